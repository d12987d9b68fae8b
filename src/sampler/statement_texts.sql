-- Texts of statements that pg_stat_statements does not have: of sessions that run one, and of those that ran for longer than a second.

CREATE FUNCTION pgscale_internal.statement_texts(
    OUT queryid bigint, OUT datid oid, OUT userid oid, OUT first_seen timestamptz, OUT last_seen timestamptz,
    OUT last_ms double precision, OUT longest_seen timestamptz, OUT longest_ms double precision, OUT query text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_statement_texts'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 64;
COMMENT ON FUNCTION pgscale_internal.statement_texts() IS
'texts of the statements that the sampler saw run longest, by query and role; other users'' only with pg_read_all_stats';

-- By the rules that pg_stat_activity has for other users' texts.
CREATE FUNCTION pgscale_internal.session_queries(queryids bigint[])
RETURNS TABLE (queryid bigint, query text)
LANGUAGE sql VOLATILE PARALLEL RESTRICTED ROWS 10
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT DISTINCT ON (t.queryid) t.queryid, t.query
      FROM (SELECT a.query_id AS queryid, pgscale_internal.clean_statement(pgscale_internal.foreign_text(a.query, d.encoding)) AS query, 1 AS source
              FROM pg_stat_activity a JOIN pg_database d ON d.oid = a.datid
             WHERE a.query_id = ANY ($1) AND a.query <> ''
            UNION ALL
            SELECT s.queryid, s.query, 2 FROM pgscale_internal.statement_texts() s WHERE s.queryid = ANY ($1)) t
     ORDER BY t.queryid, t.source, t.query COLLATE "C"
$$;
COMMENT ON FUNCTION pgscale_internal.session_queries(bigint[]) IS
'texts of queries, from pg_stat_activity, otherwise from the sampler''s memory; other users'' only with pg_read_all_stats';

CREATE FUNCTION pgscale_internal.unidentified_statement(since timestamptz, until timestamptz)
RETURNS text
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT s.query
      FROM pgscale_internal.statement_texts() s
           CROSS JOIN LATERAL (SELECT max(least(until, e.seen) - greatest(since, e.seen - e.ms * interval '1 ms')) AS length
                                 FROM (VALUES (s.last_seen, s.last_ms), (s.longest_seen, s.longest_ms)) e (seen, ms)) within_period
     WHERE s.queryid IS NULL AND within_period.length > interval '0'
     ORDER BY within_period.length DESC, s.longest_ms DESC LIMIT 1
$$;
COMMENT ON FUNCTION pgscale_internal.unidentified_statement(timestamptz, timestamptz) IS
'text of the statement without a query identifier whose longest or last execution ran longest within a period, if the sampler''s memory has it; other users'' only with pg_read_all_stats';
