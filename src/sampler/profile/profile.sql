-- Waits, added up.

CREATE FUNCTION pgscale_internal.wait_profile(
    OUT backend_type text, OUT datid oid, OUT userid oid, OUT queryid bigint,
    OUT event_type text, OUT event text, OUT idle boolean,
    OUT samples bigint, OUT wait_ms double precision, OUT application_name text, OUT client_addr inet,
    OUT plan_id bigint, OUT fraction double precision)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_wait_profile'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 5000;
COMMENT ON FUNCTION pgscale_internal.wait_profile() IS 'the rows of pgscale.wait_profile in their order, and those of idle waits';
GRANT EXECUTE ON FUNCTION pgscale_internal.wait_profile() TO pg_monitor;

CREATE VIEW pgscale.wait_profile AS
    SELECT p.backend_type, p.event_type, p.event, round(p.wait_ms * 10) / 10 AS wait_ms,
           round(p.fraction * 1e6) / 1e6 AS fraction,
           pgscale_internal.name_of(p.datid) AS datname, pgscale_internal.name_of(p.userid, true) AS usename,
           p.application_name, p.queryid, p.samples, p.client_addr, p.plan_id, p.datid, p.userid,
           (SELECT s.stats_reset FROM pgscale_internal.sampler_stats() s) AS stats_reset
      FROM pgscale_internal.wait_profile() p
     WHERE NOT p.idle;
COMMENT ON VIEW pgscale.wait_profile IS
'waits added up since stats_reset, longest first, without idle ones; a row for each value of pgscale.sampler_dimensions; top_waits() has any period';
GRANT SELECT ON pgscale.wait_profile TO pg_monitor;
COMMENT ON COLUMN pgscale.wait_profile.backend_type IS 'kind of process as in pg_stat_activity; also parallel worker and unknown; other for evicted entries';
COMMENT ON COLUMN pgscale.wait_profile.event_type IS
'type of the wait event as in pg_stat_activity; CPU for a backend that executes a statement and does not wait';
COMMENT ON COLUMN pgscale.wait_profile.event IS
'name of the wait event as in pg_stat_activity; of type CPU: Running, Queued, RunningInWait, QueuedInWait, Blocked or CPU';
COMMENT ON COLUMN pgscale.wait_profile.wait_ms IS 'time that the samples represent, in milliseconds';
COMMENT ON COLUMN pgscale.wait_profile.fraction IS 'fraction of the time of all rows shown, those of server processes included, 0 to 1';
COMMENT ON COLUMN pgscale.wait_profile.datname IS 'name of the database; NULL if the process has none or it was dropped';
COMMENT ON COLUMN pgscale.wait_profile.usename IS 'name of the session user; NULL if the process has none or it was dropped';
COMMENT ON COLUMN pgscale.wait_profile.application_name IS
'name of the application; NULL while pgscale.sampler_dimensions was without it, and for other users'' sessions without pg_read_all_stats';
COMMENT ON COLUMN pgscale.wait_profile.queryid IS 'query identifier; NULL outside a statement or if it is unknown';
COMMENT ON COLUMN pgscale.wait_profile.samples IS 'number of samples; 0 is possible where time was moved here from another event';
COMMENT ON COLUMN pgscale.wait_profile.client_addr IS 'address of the client; NULL as application_name';
COMMENT ON COLUMN pgscale.wait_profile.plan_id IS 'plan identifier; NULL while pgscale.sampler_dimensions was without it, and where none is known';
COMMENT ON COLUMN pgscale.wait_profile.datid IS 'OID of the database; NULL if the process has none';
COMMENT ON COLUMN pgscale.wait_profile.userid IS 'OID of the session user; NULL if the process has none';
COMMENT ON COLUMN pgscale.wait_profile.stats_reset IS 'time since which waits are added up: the latest reset';

CREATE FUNCTION pgscale_internal.wait_totals(
    OUT backend_type text, OUT event_type text, OUT event text, OUT wait_ms double precision,
    OUT stats_reset timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_wait_totals'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 50;
COMMENT ON FUNCTION pgscale_internal.wait_totals() IS
'time in each wait event that is not idle, by type of process: at most 512 rows, which only increase until the next reset or restart';
GRANT EXECUTE ON FUNCTION pgscale_internal.wait_totals() TO pg_monitor;
