-- Waits, sample by sample and second by second.

CREATE FUNCTION pgscale_internal.wait_history(
    since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL,
    OUT sampled_at timestamptz, OUT pid integer, OUT backend_type text,
    OUT datid oid, OUT userid oid, OUT queryid bigint, OUT state text,
    OUT event_type text, OUT event text, OUT blocker_pid integer, OUT root_pid integer, OUT root_application_name text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_wait_history'
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 40000;
COMMENT ON FUNCTION pgscale_internal.wait_history(timestamptz, timestamptz) IS
'the rows of pgscale.wait_history from a time on and before another';
GRANT EXECUTE ON FUNCTION pgscale_internal.wait_history(timestamptz, timestamptz) TO pg_monitor;

CREATE VIEW pgscale.wait_history AS
    SELECT h.sampled_at, h.pid, h.backend_type, h.state, h.event_type, h.event, h.blocker_pid, h.root_pid,
           h.root_application_name, pgscale_internal.name_of(h.datid) AS datname, pgscale_internal.name_of(h.userid, true) AS usename,
           h.queryid, h.datid, h.userid
      FROM pgscale_internal.wait_history() h;
COMMENT ON VIEW pgscale.wait_history IS
'the latest samples one by one, oldest first, without idle waits; a sample is one process at one moment';
GRANT SELECT ON pgscale.wait_history TO pg_monitor;
COMMENT ON COLUMN pgscale.wait_history.sampled_at IS 'time of the sample';
COMMENT ON COLUMN pgscale.wait_history.pid IS 'process ID';
COMMENT ON COLUMN pgscale.wait_history.backend_type IS 'kind of process as in pg_stat_activity; also parallel worker and unknown';
COMMENT ON COLUMN pgscale.wait_history.state IS 'state of the backend as in pg_stat_activity';
COMMENT ON COLUMN pgscale.wait_history.event_type IS
'type of the wait event as in pg_stat_activity; CPU for a backend that executes a statement and does not wait';
COMMENT ON COLUMN pgscale.wait_history.event IS 'name of the wait event as in pg_stat_activity, or CPU, as it was seen';
COMMENT ON COLUMN pgscale.wait_history.blocker_pid IS
'of a lock wait longer than deadlock_timeout: process ID of its first blocker; 0 for a prepared transaction';
COMMENT ON COLUMN pgscale.wait_history.root_pid IS
'of a lock wait longer than deadlock_timeout: process ID of the root blocker; 0 for a prepared transaction; one process of a cycle';
COMMENT ON COLUMN pgscale.wait_history.root_application_name IS
'name of the root blocker''s application then; NULL for other users'' sessions without pg_read_all_stats, and after a restart';
COMMENT ON COLUMN pgscale.wait_history.datname IS 'name of the database; NULL if the process has none or it was dropped';
COMMENT ON COLUMN pgscale.wait_history.usename IS 'name of the session user; NULL if the process has none or it was dropped';
COMMENT ON COLUMN pgscale.wait_history.queryid IS 'query identifier; NULL outside a statement, before parse analysis, or if it is unknown';
COMMENT ON COLUMN pgscale.wait_history.datid IS 'OID of the database; NULL if the process has none';
COMMENT ON COLUMN pgscale.wait_history.userid IS 'OID of the session user; NULL if the process has none';
