-- The time of lock waits by root blocker.

CREATE FUNCTION pgscale_internal.blocker_profile(
    OUT root_pid integer, OUT backend_start timestamptz, OUT prepared_xid xid, OUT datid oid, OUT userid oid,
    OUT application_name text, OUT client_addr inet, OUT root_state text, OUT queryid bigint, OUT event text,
    OUT waited_ms double precision, OUT idle_in_transaction_ms double precision, OUT max_waiters integer,
    OUT first_seen timestamptz, OUT last_seen timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_blocker_profile'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 100;
COMMENT ON FUNCTION pgscale_internal.blocker_profile() IS 'the rows of pgscale.blocker_profile';
GRANT EXECUTE ON FUNCTION pgscale_internal.blocker_profile() TO pg_monitor;

CREATE VIEW pgscale.blocker_profile AS
    SELECT CASE WHEN b.root_pid > 0 THEN b.root_pid::text
                WHEN b.root_pid = 0 THEN 'prepared ' || b.prepared_xid ELSE b.root_state END AS root,
           b.application_name, pgscale_internal.name_of(b.userid, true) AS usename, pgscale_internal.name_of(b.datid) AS datname,
           round(b.waited_ms) AS waited_ms,
           round(b.waited_ms / nullif(sum(b.waited_ms) OVER (), 0) * 1000) / 1000 AS fraction,
           round(b.idle_in_transaction_ms / nullif(b.waited_ms, 0) * 1000) / 1000 AS idle_fraction,
           b.max_waiters, b.event, b.queryid, b.root_state, b.client_addr, round(b.idle_in_transaction_ms) AS idle_in_transaction_ms,
           b.first_seen, b.last_seen, b.root_pid, b.backend_start, b.prepared_xid, b.datid, b.userid,
           (SELECT greatest(s.stats_reset, pg_postmaster_start_time()) FROM pgscale_internal.sampler_stats() s) AS stats_reset
      FROM pgscale_internal.blocker_profile() b
     ORDER BY b.waited_ms DESC;
COMMENT ON VIEW pgscale.blocker_profile IS 'accumulated time that processes waited for locks since stats_reset, by root blocker, longest first';
GRANT SELECT ON pgscale.blocker_profile TO pg_monitor;
COMMENT ON COLUMN pgscale.blocker_profile.root IS
'process ID, or the transaction ID of a prepared transaction; not looked up: unknown roots; other: evicted roots';
COMMENT ON COLUMN pgscale.blocker_profile.application_name IS
'name of the application then: a connection of a pooler has a row for each; NULL for other users'' sessions without pg_read_all_stats';
COMMENT ON COLUMN pgscale.blocker_profile.usename IS 'name of the session user; NULL if the process has none or it was dropped';
COMMENT ON COLUMN pgscale.blocker_profile.datname IS 'name of the database; NULL if the process has none or it was dropped';
COMMENT ON COLUMN pgscale.blocker_profile.waited_ms IS 'time that processes waited behind this root, summed over processes, in milliseconds';
COMMENT ON COLUMN pgscale.blocker_profile.fraction IS 'fraction of all time that processes waited for locks, 0 to 1';
COMMENT ON COLUMN pgscale.blocker_profile.idle_fraction IS
'fraction of waited_ms while the root was idle in its transaction, 0 to 1; NULL if it has no process';
COMMENT ON COLUMN pgscale.blocker_profile.max_waiters IS 'greatest number of processes that waited behind it at one moment';
COMMENT ON COLUMN pgscale.blocker_profile.event IS 'lock event with most of the time, as in wait_profile';
COMMENT ON COLUMN pgscale.blocker_profile.queryid IS 'query identifier of its statement at that time, or of its last one';
COMMENT ON COLUMN pgscale.blocker_profile.root_state IS
'latest known state of the root, as in blockers(): also prepared, or the backend type; not looked up; other';
COMMENT ON COLUMN pgscale.blocker_profile.client_addr IS 'address of its client; NULL for other users'' sessions without pg_read_all_stats';
COMMENT ON COLUMN pgscale.blocker_profile.idle_in_transaction_ms IS 'part of waited_ms while the root was idle in its transaction';
COMMENT ON COLUMN pgscale.blocker_profile.first_seen IS 'first time that a process was seen to wait behind it';
COMMENT ON COLUMN pgscale.blocker_profile.last_seen IS 'last time that a process was seen to wait behind it';
COMMENT ON COLUMN pgscale.blocker_profile.root_pid IS 'process ID; 0: a prepared transaction; NULL: not looked up and other';
COMMENT ON COLUMN pgscale.blocker_profile.backend_start IS 'start of the process; with the pid it identifies the process';
COMMENT ON COLUMN pgscale.blocker_profile.prepared_xid IS 'transaction of pg_prepared_xacts';
COMMENT ON COLUMN pgscale.blocker_profile.datid IS 'OID of the database';
COMMENT ON COLUMN pgscale.blocker_profile.userid IS 'OID of the session user';
COMMENT ON COLUMN pgscale.blocker_profile.stats_reset IS 'time since which the waits are added up: the latest reset of the sampler, or start of the server';
