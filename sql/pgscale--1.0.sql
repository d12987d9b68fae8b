/* pgscale 1.0 */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION pgscale" to load this file. \quit

-- Reading is for pg_monitor, acting for superusers and whom they grant it; the
-- end of this file sees to both.

CREATE SCHEMA pgscale;
COMMENT ON SCHEMA pgscale IS 'objects of the extension pgscale';

---- health

CREATE FUNCTION pgscale.health(
    OUT feature text, OUT enabled boolean, OUT working boolean,
    OUT reason text, OUT action text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_health'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale.health() IS
'one row a feature: is it asked for, does it work, why, and what to do';

CREATE VIEW pgscale.health AS SELECT * FROM pgscale.health();
COMMENT ON VIEW pgscale.health IS
'one row a feature: is it asked for, does it work, why, and what to do';

---- sampler

CREATE FUNCTION pgscale.sampler_profile(
    OUT backend_type text, OUT datid oid, OUT userid oid, OUT queryid bigint,
    OUT event_type text, OUT event text, OUT idle boolean,
    OUT samples bigint, OUT wait_ms double precision)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_sampler_profile'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 5000;
COMMENT ON FUNCTION pgscale.sampler_profile() IS
'accumulated waits, idle ones included; wait_ms is the time that the samples stand for';

CREATE VIEW pgscale.wait_profile AS
    SELECT backend_type, datid, userid, queryid, event_type, event, samples, wait_ms,
           wait_ms / nullif(sum(wait_ms) OVER (), 0) AS fraction
      FROM pgscale.sampler_profile()
     WHERE NOT idle OR current_setting('pgscale.sampler_show_idle', true)::boolean
     ORDER BY wait_ms DESC;
COMMENT ON VIEW pgscale.wait_profile IS
'accumulated waits, longest first, without idle ones unless pgscale.sampler_show_idle is on';

CREATE FUNCTION pgscale.sampler_history(
    OUT sampled_at timestamptz, OUT pid integer, OUT backend_type text,
    OUT datid oid, OUT userid oid, OUT queryid bigint, OUT state text,
    OUT event_type text, OUT event text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_sampler_history'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 50000;
COMMENT ON FUNCTION pgscale.sampler_history() IS
'the latest samples one by one, oldest first';

CREATE VIEW pgscale.wait_history AS SELECT * FROM pgscale.sampler_history();
COMMENT ON VIEW pgscale.wait_history IS
'the latest samples one by one, oldest first';

CREATE FUNCTION pgscale.sampler_current(
    pid integer DEFAULT NULL,
    OUT pid integer, OUT backend_type text, OUT leader_pid integer,
    OUT datid oid, OUT userid oid, OUT queryid bigint, OUT state text,
    OUT event_type text, OUT event text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_sampler_current'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale.sampler_current(integer) IS
'what a server process, or every one, waits for at this moment; needs no preload';

CREATE VIEW pgscale.wait_current AS SELECT * FROM pgscale.sampler_current();
COMMENT ON VIEW pgscale.wait_current IS
'what every server process waits for at this moment';

CREATE FUNCTION pgscale.wait_timeline(
    bucket interval DEFAULT '10 seconds',
    OUT bucket_start timestamptz, OUT event_type text,
    OUT active_sessions double precision, OUT observed_ms double precision)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_sampler_timeline'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale.wait_timeline(interval) IS
'average active sessions in each bucket of time, by class of wait event';

CREATE FUNCTION pgscale.sampler_stats(
    OUT pid integer, OUT starts bigint, OUT period_ms double precision,
    OUT ticks bigint, OUT missed_ticks bigint,
    OUT lateness_p50_us double precision, OUT lateness_p99_us double precision,
    OUT lateness_max_us double precision, OUT lateness_classes bigint[],
    OUT observed_ms double precision,
    OUT tick_mean_us double precision, OUT tick_max_us double precision,
    OUT cpu_ms double precision, OUT cpu_fraction double precision,
    OUT samples bigint, OUT wait_ms double precision,
    OUT entries integer, OUT evictions bigint, OUT torn_reads bigint,
    OUT stats_reset timestamptz)
AS 'MODULE_PATHNAME', 'pgscale_sampler_stats'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale.sampler_stats() IS
'how well the sampler keeps its schedule, what it costs, and the profile''s totals';

CREATE VIEW pgscale.sampler_stats AS SELECT * FROM pgscale.sampler_stats();
COMMENT ON VIEW pgscale.sampler_stats IS
'how well the sampler keeps its schedule, what it costs, and the profile''s totals';

CREATE FUNCTION pgscale.sampler_reset()
RETURNS void
AS 'MODULE_PATHNAME', 'pgscale_sampler_reset'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.sampler_reset() IS
'empties the wait profile, history and timeline, and the sampler''s statistics';

---- query_waits

-- Dynamic, since pg_stat_statements may be in any schema, or not there at all.
CREATE FUNCTION pgscale.query_waits(
    OUT datid oid, OUT userid oid, OUT queryid bigint,
    OUT event_type text, OUT event text, OUT samples bigint,
    OUT wait_ms double precision, OUT fraction double precision,
    OUT calls bigint, OUT total_time_ms double precision, OUT query text)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    statements regnamespace;
BEGIN
    SELECT extnamespace INTO statements
      FROM pg_extension WHERE extname = 'pg_stat_statements';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'pg_stat_statements is not installed in this database'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Preload pg_stat_statements and run CREATE EXTENSION pg_stat_statements; '
                         'without it, pgscale.wait_profile has the waits by queryid.';
    END IF;
    -- A statement is one row there for each level it was run at; here it is one.
    -- Sessions' time that no query is known of stays in, so that sums are whole.
    RETURN QUERY EXECUTE format($q$
        SELECT w.datid, w.userid, w.queryid, w.event_type, w.event,
               w.samples::bigint, w.wait_ms,
               w.wait_ms / nullif(sum(w.wait_ms) OVER (PARTITION BY w.datid, w.userid, w.queryid), 0),
               s.calls::bigint, s.total_time_ms, s.query
          FROM (SELECT p.datid, p.userid, p.queryid, p.event_type, p.event,
                       sum(p.samples) AS samples, sum(p.wait_ms) AS wait_ms
                  FROM pgscale.wait_profile p
                 WHERE p.queryid IS NOT NULL
                    OR p.backend_type IN ('client backend', 'parallel worker')
                 GROUP BY 1, 2, 3, 4, 5) w
          LEFT JOIN (SELECT t.dbid, t.userid, t.queryid, sum(t.calls) AS calls,
                            sum(t.total_plan_time + t.total_exec_time) AS total_time_ms,
                            min(t.query) AS query
                       FROM %s.pg_stat_statements t
                      GROUP BY 1, 2, 3) s
            ON s.dbid = w.datid AND s.userid = w.userid AND s.queryid = w.queryid
         ORDER BY w.wait_ms DESC$q$, statements);
END
$$;
COMMENT ON FUNCTION pgscale.query_waits() IS
'waits by query, with what pg_stat_statements knows of it; an error with a hint where that is not installed';

CREATE VIEW pgscale.query_waits AS SELECT * FROM pgscale.query_waits();
COMMENT ON VIEW pgscale.query_waits IS
'waits by query, with what pg_stat_statements knows of it';

---- sweeper

CREATE FUNCTION pgscale.sweeper_stats(
    OUT worker integer, OUT writers integer, OUT mode text, OUT state text, OUT decision text,
    OUT decided_at timestamptz,
    OUT buffers integer, OUT low integer, OUT high integer, OUT ready integer,
    OUT ticks bigint, OUT scanned bigint, OUT decremented bigint,
    OUT supplied_clean bigint, OUT supplied_written bigint,
    OUT consumed bigint, OUT reused bigint, OUT queued bigint, OUT starved bigint,
    OUT runs bigint, OUT runs_by_pages bigint[],
    OUT written bigint, OUT neighbours bigint,
    OUT skipped_pinned bigint, OUT skipped_locked bigint,
    OUT skipped_wal bigint, OUT skipped_changed bigint,
    OUT write_ms double precision,
    OUT writeback_calls bigint, OUT writeback_ms double precision,
    OUT wal_flushes bigint, OUT errors bigint, OUT backend_writes bigint,
    OUT cpu_ms double precision, OUT writer_cpu_ms double precision,
    OUT stats_reset timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_sweeper_stats'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale.sweeper_stats() IS
'one row a sweeper: what it does and why, what it supplied and wrote, and what it cost';

CREATE VIEW pgscale.sweeper_stats AS SELECT * FROM pgscale.sweeper_stats();
COMMENT ON VIEW pgscale.sweeper_stats IS
'one row a sweeper: what it does and why, what it supplied and wrote, and what it cost';

CREATE FUNCTION pgscale.sweeper_reset()
RETURNS void
AS 'MODULE_PATHNAME', 'pgscale_sweeper_reset'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.sweeper_reset() IS
'sets the counts of pgscale.sweeper_stats to zero';

---- privileges

REVOKE ALL ON SCHEMA pgscale FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA pgscale FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA pgscale FROM PUBLIC;

GRANT USAGE ON SCHEMA pgscale TO pg_monitor;
GRANT SELECT ON ALL TABLES IN SCHEMA pgscale TO pg_monitor;
GRANT EXECUTE ON FUNCTION
    pgscale.health(),
    pgscale.query_waits(),
    pgscale.sampler_current(integer),
    pgscale.sampler_history(),
    pgscale.sampler_profile(),
    pgscale.sampler_stats(),
    pgscale.sweeper_stats(),
    pgscale.wait_timeline(interval)
TO pg_monitor;
