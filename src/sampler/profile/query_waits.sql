-- The sampler's profile with the texts and counts of pg_stat_statements.

-- Finds the members of the extension, because any role could have created an object of that name.
CREATE FUNCTION pgscale_internal.query_waits_statements(needed boolean)
RETURNS regclass
AS 'MODULE_PATHNAME', 'pgscale_query_waits_statements'
LANGUAGE C STRICT STABLE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale_internal.query_waits_statements(boolean) IS
'the view pg_stat_statements; if it cannot be read, an error with a hint, or NULL where it is not needed';
GRANT EXECUTE ON FUNCTION pgscale_internal.query_waits_statements(boolean) TO pg_monitor;

CREATE FUNCTION pgscale_internal.query_waits_text_fits(missed boolean)
RETURNS boolean
AS 'MODULE_PATHNAME', 'pgscale_query_waits_text_fits'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale_internal.query_waits_text_fits(boolean) IS
'whether pg_stat_statements may read its texts, all at once, within work_mem * hash_mem_multiplier; otherwise with a notice if one is missed';

-- Dynamic SQL, because pg_stat_statements may be in any schema, or missing.
CREATE FUNCTION pgscale_internal.query_waits(
    OUT datid oid, OUT userid oid, OUT queryid bigint,
    OUT event_type text, OUT event text, OUT samples bigint,
    OUT wait_ms double precision, OUT fraction double precision,
    OUT calls bigint, OUT total_time_ms double precision, OUT query text)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    statements regclass := pgscale_internal.query_waits_statements(true);
    counts text := (SELECT format('%I.pg_stat_statements(false)', n.nspname)
                      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = statements);
    -- A statement is one row there for each level it was run at; here it is one. One that has not ended is not there.
    -- Sessions' time that no query is known of stays in, so that sums are whole.
BEGIN
    RETURN QUERY EXECUTE format($q$
        WITH waits AS MATERIALIZED (
            SELECT p.datid, p.userid, p.queryid, p.event_type, p.event,
                   sum(p.samples)::bigint AS samples, sum(p.wait_ms) AS wait_ms
              FROM pgscale_internal.wait_profile() p
             WHERE (p.queryid IS NOT NULL OR p.backend_type IN ('client backend', 'parallel worker'))
               AND NOT p.idle
             GROUP BY 1, 2, 3, 4, 5)
        SELECT w.datid, w.userid, w.queryid, w.event_type, w.event, w.samples, w.wait_ms,
               w.wait_ms / nullif(sum(w.wait_ms) OVER (PARTITION BY w.datid, w.userid, w.queryid), 0),
               s.calls::bigint, s.total_time_ms, q.query
          FROM waits w
          LEFT JOIN (SELECT t.dbid, t.userid, t.queryid, sum(t.calls) AS calls,
                            sum(t.total_plan_time + t.total_exec_time) AS total_time_ms
                       FROM %s t
                      GROUP BY 1, 2, 3) s
            ON s.dbid = w.datid AND s.userid = w.userid AND s.queryid = w.queryid
          LEFT JOIN pgscale_internal.past_queries(ARRAY(SELECT DISTINCT x.queryid FROM waits x)) q ON q.queryid = w.queryid
         ORDER BY w.wait_ms DESC$q$, counts);
END
$$;
COMMENT ON FUNCTION pgscale_internal.query_waits() IS 'the rows of pgscale.query_waits';
GRANT EXECUTE ON FUNCTION pgscale_internal.query_waits() TO pg_monitor;

CREATE VIEW pgscale.query_waits AS
    SELECT q.event_type, q.event, round(q.wait_ms * 10) / 10 AS wait_ms, q.calls,
           pgscale_internal.clean_line(q.query, 28) AS query,
           pgscale_internal.name_of(q.datid) AS datname, q.queryid,
           (SELECT s.stats_reset FROM pgscale_internal.sampler_stats() s) AS stats_reset,
           pgscale_internal.name_of(q.userid, true) AS usename, q.samples, round(q.fraction * 1e6) / 1e6 AS fraction,
           round(q.total_time_ms * 10) / 10 AS total_time_ms, q.datid, q.userid, q.query AS full_query
      FROM pgscale_internal.query_waits() q
     ORDER BY q.wait_ms DESC;
COMMENT ON VIEW pgscale.query_waits IS
'waits by query and role since stats_reset, longest first, joined to pg_stat_statements; error object_not_in_prerequisite_state if that is not loaded, not installed here, or older than 1.8';
GRANT SELECT ON pgscale.query_waits TO pg_monitor;
COMMENT ON COLUMN pgscale.query_waits.event_type IS
'type of the wait event as in pg_stat_activity; CPU for a backend that executes a statement and does not wait';
COMMENT ON COLUMN pgscale.query_waits.event IS 'name of the wait event, as in wait_profile';
COMMENT ON COLUMN pgscale.query_waits.wait_ms IS 'time that the samples represent, summed over backend types, in milliseconds';
COMMENT ON COLUMN pgscale.query_waits.calls IS 'number of executions, repeated on each row of the query; NULL if pg_stat_statements does not know the query';
COMMENT ON COLUMN pgscale.query_waits.query IS
'first 28 characters of the query''s text, on one line; NULL if it is unknown, and for other users'' queries without pg_read_all_stats';
COMMENT ON COLUMN pgscale.query_waits.datname IS 'name of the database; NULL if the process has none or it was dropped';
COMMENT ON COLUMN pgscale.query_waits.queryid IS 'query identifier; NULL if the statement ended before its identifier was seen';
COMMENT ON COLUMN pgscale.query_waits.stats_reset IS 'time since which waits are added up: the latest reset; not that of pg_stat_statements';
COMMENT ON COLUMN pgscale.query_waits.usename IS 'name of the session user; NULL if the process has none or it was dropped';
COMMENT ON COLUMN pgscale.query_waits.samples IS 'number of samples';
COMMENT ON COLUMN pgscale.query_waits.fraction IS 'fraction of this query''s time, 0 to 1';
COMMENT ON COLUMN pgscale.query_waits.total_time_ms IS
'planning and execution time by pg_stat_statements, in milliseconds, repeated on each row of the query; without the flush of a commit, which wait_ms includes';
COMMENT ON COLUMN pgscale.query_waits.datid IS 'OID of the database; NULL if the process has none';
COMMENT ON COLUMN pgscale.query_waits.userid IS 'OID of the session user; NULL if the process has none';
COMMENT ON COLUMN pgscale.query_waits.full_query IS 'the query''s text, up to 2,000 characters; NULL where query is';
