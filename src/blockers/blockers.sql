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
CREATE FUNCTION pgscale.blockers(
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
        SELECT a.pid, pgscale_internal.foreign_name(a.datname) AS datname, pgscale_internal.foreign_name(a.usename) AS usename,
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
                                                     || coalesce((SELECT pgscale_internal.foreign_name(o.datname) FROM pg_catalog.pg_database o
                                                                   WHERE o.oid = w.relation_datid), w.relation_datid::text)) END,
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
COMMENT ON FUNCTION pgscale.blockers() IS 'present lock waits and their blockers, as a forest, each root before its waiters';
GRANT EXECUTE ON FUNCTION pgscale.blockers() TO pg_monitor;

CREATE VIEW pgscale.blockers AS
    SELECT repeat('  ', least(b.depth, 10)) || coalesce(b.pid::text, 'prepared ' || pgscale_internal.clean_line(b.gid, 20), 'prepared')
               || CASE WHEN b.cycle THEN ' (cycle)' ELSE '' END AS process,
           b.waiters, round(b.waited_ms) AS waited_ms,
           coalesce('waits for ' || b.waits_for, b.state) AS activity,
           b.application_name, pgscale_internal.clean_line(b.query, 30) AS query
      FROM pgscale.blockers() WITH ORDINALITY b
     ORDER BY b.ordinality;
COMMENT ON VIEW pgscale.blockers IS 'present lock waits and their blockers, as a tree, each root before its waiters';
GRANT SELECT ON pgscale.blockers TO pg_monitor;
COMMENT ON COLUMN pgscale.blockers.process IS 'process ID, or the beginning of a prepared transaction''s identifier; indented by depth, up to 10';
COMMENT ON COLUMN pgscale.blockers.waiters IS 'number of transactions that wait for this one, directly or behind other waiters';
COMMENT ON COLUMN pgscale.blockers.waited_ms IS 'length of its wait so far, in milliseconds; NULL for a root';
COMMENT ON COLUMN pgscale.blockers.activity IS
'awaited lock or event; of a root its state as in pg_stat_activity, prepared, or the type of the process';
COMMENT ON COLUMN pgscale.blockers.application_name IS 'name of the application';
COMMENT ON COLUMN pgscale.blockers.query IS
'beginning of the statement that runs or ran last; <insufficient privilege> for other users'' without pg_read_all_stats';
