-- Waits for heavyweight locks, and their root blockers, at this moment.

CREATE FUNCTION pgscale_internal.lock_waits(
    OUT pid integer, OUT prepared_xid xid, OUT depth integer, OUT waiters integer, OUT cycle boolean,
    OUT waiting_pid integer, OUT wait_start timestamptz, OUT waited_ms double precision,
    OUT locktype text, OUT mode text, OUT relation_datid oid, OUT relation oid, OUT target text,
    OUT awaited_row text, OUT blocked_by integer[], OUT root_pid integer, OUT root_prepared_xid xid)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_lock_waits'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 20;
COMMENT ON FUNCTION pgscale_internal.lock_waits() IS 'the graph that blockers shows, without names and texts: present lock waits and their blockers';
GRANT EXECUTE ON FUNCTION pgscale_internal.lock_waits() TO pg_monitor;

-- Each transaction with its row of pg_stat_activity, which hides other users' texts by its own rules.
CREATE FUNCTION pgscale_internal.blockers(
    OUT pid integer, OUT gid text, OUT depth integer, OUT waiters integer, OUT waited_ms double precision,
    OUT waits_for text, OUT state text, OUT datname name, OUT usename name, OUT application_name text,
    OUT backend_type text, OUT query text, OUT transaction_ms double precision,
    OUT root_pid integer, OUT root_gid text, OUT root_state text, OUT root_application_name text,
    OUT root_transaction_ms double precision, OUT root_query text,
    OUT locktype text, OUT mode text, OUT relation regclass, OUT wait_start timestamptz,
    OUT waiting_pid integer, OUT cycle boolean, OUT blocked_by integer[])
RETURNS SETOF record
LANGUAGE sql STRICT VOLATILE PARALLEL RESTRICTED ROWS 20
BEGIN ATOMIC
    WITH activity AS MATERIALIZED (
        SELECT a.pid, pgscale_internal.name_of(a.datid) AS datname, pgscale_internal.name_of(a.usesysid, true) AS usename,
               a.application_name, a.backend_type, coalesce(a.state, a.backend_type) AS state,
               pgscale_internal.foreign_text(a.query, coalesce(d.encoding, 0)) AS query,
               extract(epoch FROM clock_timestamp() - a.xact_start)::double precision * 1000 AS transaction_ms
          FROM pg_catalog.pg_stat_activity a LEFT JOIN pg_catalog.pg_database d ON d.oid = a.datid),
    prepared AS MATERIALIZED (
        SELECT p.transaction, pgscale_internal.foreign_text(p.gid, coalesce(d.encoding, 0)) AS gid, pgscale_internal.foreign_name(p.owner) AS owner,
               pgscale_internal.foreign_name(p.database) AS database,
               extract(epoch FROM clock_timestamp() - p.prepared)::double precision * 1000 AS transaction_ms
          FROM pg_catalog.pg_prepared_xacts p LEFT JOIN pg_catalog.pg_database d ON d.datname = p.database)
    SELECT w.pid, p.gid, w.depth, w.waiters, w.waited_ms,
           coalesce('row ' || w.awaited_row, w.locktype || coalesce(' ' || w.target, ''))
               || CASE WHEN w.relation IS NULL THEN ''
                       ELSE CASE WHEN w.locktype IN ('relation', 'extend') THEN ' ' ELSE ' of ' END
                            || coalesce(w.here::text, CASE w.locktype WHEN 'relation' THEN '' ELSE 'relation ' END || w.relation || ' of database '
                                                     || coalesce(pgscale_internal.name_of(w.relation_datid)::text, w.relation_datid::text)) END,
           CASE WHEN w.pid IS NULL THEN 'prepared' ELSE a.state END,
           coalesce(a.datname, p.database), coalesce(a.usename, p.owner), a.application_name, a.backend_type, pgscale_internal.clean_statement(a.query),
           coalesce(a.transaction_ms, p.transaction_ms),
           w.root_pid, rp.gid, CASE WHEN w.root_pid IS NULL THEN 'prepared' ELSE r.state END, r.application_name,
           coalesce(r.transaction_ms, rp.transaction_ms), pgscale_internal.clean_statement(r.query),
           w.locktype, w.mode, w.here, w.wait_start, w.waiting_pid, w.cycle, w.blocked_by
      FROM (SELECT l.*, CASE WHEN l.relation_datid IN (0, d.oid) OR l.relation < 16384 THEN l.relation::regclass END AS here
              FROM pgscale_internal.lock_waits() WITH ORDINALITY l
              CROSS JOIN (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()) d) w
      LEFT JOIN activity a ON a.pid = w.pid
      LEFT JOIN activity r ON r.pid = w.root_pid
      LEFT JOIN prepared p ON p.transaction = w.prepared_xid
      LEFT JOIN prepared rp ON rp.transaction = w.root_prepared_xid
     ORDER BY w.ordinality;
END;
COMMENT ON FUNCTION pgscale_internal.blockers() IS 'the rows of pgscale.blockers';
GRANT EXECUTE ON FUNCTION pgscale_internal.blockers() TO pg_monitor;

CREATE VIEW pgscale.blockers AS
    SELECT repeat('  ', least(b.depth, 10)) || coalesce(b.pid::text, 'prepared ' || pgscale_internal.clean_line(b.gid, 20), 'prepared')
               || CASE WHEN b.cycle THEN ' (cycle)' ELSE '' END AS process,
           b.waiters, round(b.waited_ms) AS waited_ms,
           coalesce('waits for ' || b.waits_for, b.state) AS activity,
           b.application_name, pgscale_internal.clean_line(b.query, 30) AS query,
           b.pid, b.gid, b.depth, b.waits_for, b.state, b.datname, b.usename, b.backend_type,
           round(b.transaction_ms) AS transaction_ms, b.root_pid, b.root_gid, b.root_state, b.root_application_name,
           round(b.root_transaction_ms) AS root_transaction_ms, b.locktype, b.mode, b.relation, b.wait_start, b.waiting_pid,
           b.cycle, b.blocked_by, b.query AS full_query, b.root_query
      FROM pgscale_internal.blockers() WITH ORDINALITY b
     ORDER BY b.ordinality;
COMMENT ON VIEW pgscale.blockers IS 'present lock waits and their blockers, as a tree, each root before its waiters';
GRANT SELECT ON pgscale.blockers TO pg_monitor;
COMMENT ON COLUMN pgscale.blockers.process IS
'process ID, or prepared and the first 20 characters of the gid; indented by depth, up to 10; (cycle) if it waits for itself';
COMMENT ON COLUMN pgscale.blockers.waiters IS 'number of transactions that wait for this one, directly or behind other waiters';
COMMENT ON COLUMN pgscale.blockers.waited_ms IS 'length of its wait so far, in milliseconds; NULL for a root';
COMMENT ON COLUMN pgscale.blockers.activity IS
'awaited lock or event; of a root its state as in pg_stat_activity, prepared, or the backend type';
COMMENT ON COLUMN pgscale.blockers.application_name IS 'name of the application';
COMMENT ON COLUMN pgscale.blockers.query IS
'the first 30 characters of the statement that runs or ran last, on one line; <insufficient privilege> for other users without pg_read_all_stats';
COMMENT ON COLUMN pgscale.blockers.pid IS
'process ID; of a parallel query its leader, or one of its workers if the leader has ended; NULL for a prepared transaction';
COMMENT ON COLUMN pgscale.blockers.gid IS 'identifier of a prepared transaction';
COMMENT ON COLUMN pgscale.blockers.depth IS 'number of levels below the root';
COMMENT ON COLUMN pgscale.blockers.waits_for IS 'awaited lock, in words; NULL for a root';
COMMENT ON COLUMN pgscale.blockers.state IS
'state as in pg_stat_activity; prepared, or the backend type where a process has none; NULL for other users without pg_read_all_stats';
COMMENT ON COLUMN pgscale.blockers.datname IS 'database, also of a prepared transaction; NULL if the process has none';
COMMENT ON COLUMN pgscale.blockers.usename IS 'name of the session user, or owner of the prepared transaction; NULL if the process has none';
COMMENT ON COLUMN pgscale.blockers.backend_type IS 'kind of process as in pg_stat_activity';
COMMENT ON COLUMN pgscale.blockers.transaction_ms IS 'age of its transaction, in milliseconds';
COMMENT ON COLUMN pgscale.blockers.root_pid IS 'process ID of the root of this tree; NULL for a prepared transaction';
COMMENT ON COLUMN pgscale.blockers.root_gid IS 'identifier of the root that is a prepared transaction';
COMMENT ON COLUMN pgscale.blockers.root_state IS 'state of the root, as the column state';
COMMENT ON COLUMN pgscale.blockers.root_application_name IS 'name of the root''s application';
COMMENT ON COLUMN pgscale.blockers.root_transaction_ms IS 'age of the root''s transaction, in milliseconds';
COMMENT ON COLUMN pgscale.blockers.locktype IS 'type of the lock as in pg_locks; the wait event, if it does not wait for a lock';
COMMENT ON COLUMN pgscale.blockers.mode IS 'mode of the lock as in pg_locks';
COMMENT ON COLUMN pgscale.blockers.relation IS
'relation of the lock or of the awaited row; the catalog, if locktype is object; NULL in another database';
COMMENT ON COLUMN pgscale.blockers.wait_start IS 'when the wait began; NULL for a moment after that';
COMMENT ON COLUMN pgscale.blockers.waiting_pid IS 'process ID of the process that waits; may be a parallel worker';
COMMENT ON COLUMN pgscale.blockers.cycle IS
'whether it waits for itself behind others: a deadlock, unless the server can reorder a queue';
COMMENT ON COLUMN pgscale.blockers.blocked_by IS
'all its blockers, as in pg_blocking_pids(): holders, then waiters ahead in the queue; 100 at most; 0 for prepared transactions';
COMMENT ON COLUMN pgscale.blockers.full_query IS 'the statement, up to 2,000 characters';
COMMENT ON COLUMN pgscale.blockers.root_query IS 'the root''s statement, up to 2,000 characters';
