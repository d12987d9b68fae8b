-- What monitoring systems scrape: its shape, and that it says what the views say. That no counter falls: t/metrics_scrape.pl.
CREATE EXTENSION pgscale;
\pset format unaligned \pset footer off

\set ECHO none
-- Waits until a condition holds, for at most half a minute.
CREATE FUNCTION wait_until(condition text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    met boolean;
BEGIN
    FOR i IN 1..600 LOOP
        EXECUTE 'SELECT ' || condition INTO met;
        IF met THEN
            RETURN true;
        END IF;
        PERFORM pg_sleep(0.05);
    END LOOP;
    RETURN false;
END $$;
SELECT wait_until('ticks > 5 FROM pgscale.sampler_stats');
SELECT pg_sleep(0.2);
SELECT wait_until($$ EXISTS (SELECT FROM pgscale_internal.wait_totals() WHERE event = 'PgSleep') $$);
CREATE TABLE metric AS SELECT * FROM pgscale.metrics();

-- names, types and values are as monitoring systems want them
SELECT name, labels FROM metric GROUP BY name, labels HAVING count(*) > 1;
SELECT name FROM metric GROUP BY name HAVING count(DISTINCT type) > 1 OR count(DISTINCT help) > 1 OR bool_or(help !~ '^[A-Z].*\.$');
SELECT name, type FROM metric
 WHERE name !~ '^pgscale_[a-z][a-z0-9_]*$' OR name ~ '_(ms|us|milliseconds|kb|mb|percent|fraction)(_|$)'
    OR (type = 'counter') <> (name ~ '_total$') OR (type = 'histogram') <> (name ~ '_(bucket|sum|count)$')
    OR type NOT IN ('counter', 'gauge', 'histogram');
SELECT name, labels, value FROM metric
 WHERE num_nulls(name, type, help, labels, value) > 0 OR value IN ('NaN', 'Infinity', '-Infinity')
    OR type <> 'gauge' AND value < 0 OR jsonb_typeof(labels) <> 'object';
SELECT name, key, value FROM metric m, jsonb_each(m.labels) l(key, label)
 WHERE jsonb_typeof(label) <> 'string' OR label = '""' OR key !~ '^[a-z][a-z_]*$';
SELECT count(*) <= 1000 AS bounded, count(*) > 100 AS plenty FROM metric;

-- histograms: cumulative, up to all
SELECT h.name, bool_and(h.value >= h.before) AS cumulative, count(*) > 5 AS buckets,
       max(h.value) FILTER (WHERE h.le = 'Infinity') = (SELECT c.value FROM metric c WHERE c.name = replace(h.name, '_bucket', '_count')) AS complete
  FROM (SELECT name, (labels ->> 'le')::float8 AS le, value,
               coalesce(lag(value) OVER (PARTITION BY name ORDER BY (labels ->> 'le')::float8), 0) AS before
          FROM metric WHERE name ~ '_bucket$') h
 GROUP BY 1 ORDER BY 1;

-- one state for each feature, and each feature by itself
SELECT count(*) = (SELECT count(*) FROM pgscale.health) AS features, bool_and(states = 1 AND rows = 6) AS one_state
  FROM (SELECT sum(value) AS states, count(*) AS rows FROM metric WHERE name = 'pgscale_health' GROUP BY labels ->> 'feature') h;
SELECT count(*) FROM (SELECT DISTINCT name FROM metric
    EXCEPT SELECT name FROM unnest('{health,now,fleet,connections,sampler,blockers,archive,sweeper,buffer_usage,writeback,relocation,tuning,scalability,numa}'::text[]) f
      CROSS JOIN LATERAL pgscale.metrics(f)) missing;
SELECT DISTINCT name ~ '^pgscale_(sampler|wait)_' AS of_the_sampler FROM pgscale.metrics('sampler');

-- Each figure is the one of its view. For this the functions and views that metrics() asks are replaced by ones whose figures all differ:
-- in row r, number column c is r * 1000 + c.
BEGIN;
CREATE FUNCTION columns_of(what text) RETURNS TABLE (place bigint, name text, type text) LANGUAGE sql AS $$
    SELECT c.place, c.name, format_type(c.type, NULL)
      FROM pg_proc p CROSS JOIN unnest(p.proargnames, p.proallargtypes, p.proargmodes) WITH ORDINALITY c(name, type, mode, place)
     WHERE p.pronamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace) AND p.proname = what AND c.mode = 'o'
    UNION ALL
    SELECT a.attnum, a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
     WHERE a.attrelid = to_regclass('pgscale.' || what) AND attnum > 0
       AND NOT EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace) AND p.proname = what)
     ORDER BY 1
$$;
CREATE FUNCTION numbered(what text, r integer) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_object_agg(c.name, CASE WHEN c.type ~ '\[\]$' THEN jsonb_build_array(10 * r + 1, 10 * r + 3, 10 * r + 8)
                                         ELSE to_jsonb(r * 1000 + c.place) END)
      FROM (SELECT row_number() OVER () AS place, name, type FROM columns_of(what)) c WHERE c.type ~ '^(integer|bigint|double precision)'
$$;
CREATE PROCEDURE stand_in(what text, VARIADIC rows jsonb[]) LANGUAGE plpgsql AS $$
DECLARE
    body text := format('SELECT * FROM jsonb_to_recordset(%L) r (%s)', to_jsonb(rows),
                        (SELECT string_agg(format('%I %s', c.name, c.type), ', ') FROM columns_of(what) c));
    function oid := (SELECT oid FROM pg_proc WHERE pronamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace) AND proname = what);
BEGIN
    EXECUTE CASE WHEN function IS NULL THEN format('CREATE OR REPLACE VIEW pgscale.%I AS %s', what, body)
                 ELSE format('CREATE OR REPLACE FUNCTION %s(%s) RETURNS %s LANGUAGE sql AS %L', function::regproc,
                             pg_get_function_arguments(function), pg_get_function_result(function), body) END;
END $$;
CALL stand_in('health', '{"feature": "a", "state": "working"}', '{"feature": "b", "state": "broken"}');
CALL stand_in('node_identity', '{"node": "quoted \" \\ name", "system_identifier": 7000000000000000001, "role": "standby", "lag_s": 2.5}');
CALL stand_in('connections', numbered('connections', 1));
CALL stand_in('connections_ages', '{"transaction_s": 71.5, "idle_in_transaction_s": 8.25}');
CALL stand_in('connections_by_application', '{"application_name": "one", "used": 15, "active": 2, "idle": 4, "idle_in_transaction": 8}',
    '{"application_name": "other", "used": 3, "active": 0, "idle": 3, "idle_in_transaction": 0}');
CALL stand_in('wait_totals', '{"backend_type": "x", "event_type": "LWLock", "event": "y", "wait_ms": 1000}',
    '{"backend_type": "x", "event_type": "LWLock", "event": "y", "wait_ms": 250}', '{"backend_type": "z", "event_type": "LWLock", "event": "y", "wait_ms": 20}');
CALL stand_in('diagnosis', '{"rank": 1, "rule": "slow_reads", "certainty": "high"}', '{"rank": 3, "rule": "blocker", "certainty": "low"}',
    '{"rank": 2, "rule": "blocker", "certainty": "medium"}');
CALL stand_in('sampler_stats', numbered('sampler_stats', 1));
CALL stand_in('lock_waits', '{"pid": 1, "depth": 0, "waiters": 3}', '{"pid": 2, "waiting_pid": 2, "depth": 1, "waiters": 2, "waited_ms": 4000}',
    '{"pid": 3, "waiting_pid": 3, "depth": 2, "waiters": 0, "waited_ms": 7500}', '{"pid": 3, "waiting_pid": 4, "depth": 2, "waiters": 0, "waited_ms": 100}',
    '{"pid": 3, "waiting_pid": 4, "depth": 3, "waiters": 1, "waited_ms": 100}', '{"pid": 5, "depth": 0, "waiters": 1}');
CALL stand_in('archive_minutes', jsonb_build_object('at', now() - interval '59 minutes', 'period_s', 60, 'rounds', 7, 'pulled', false),
    jsonb_build_object('at', now() - interval '20 minutes', 'period_s', 120, 'rounds', 2, 'pulled', false),
    jsonb_build_object('at', now() - interval '61 minutes', 'period_s', 60, 'rounds', 100, 'pulled', false));
CALL stand_in('sweeper_stats', numbered('sweeper_stats', 1));
CALL stand_in('buffer_usage_sample', numbered('buffer_usage_sample', 1), numbered('buffer_usage_sample', 2) - 'usage_count');
CALL stand_in('writeback_stats', numbered('writeback_stats', 1));
CALL stand_in('relocation_jobs', '{"state": "queued"}', '{"state": "done"}', '{"state": "queued"}', '{"state": "lost"}', '{"state": "lost"}', '{"state": "lost"}');
CALL stand_in('advice_rules', '{"rule": "r", "confidence": "high", "verdict": "advises"}', '{"rule": "r", "confidence": "low", "verdict": "silent"}',
    '{"rule": "r", "confidence": "low", "verdict": "advises"}', '{"rule": "r", "confidence": "low", "verdict": "advises"}');
CALL stand_in('scalability', numbered('scalability', 1));
CALL stand_in('numa_nodes', '{"node": 0, "memory_bytes": 64, "free_bytes": 16}', '{"node": 3, "memory_bytes": 32}');
CREATE TABLE figure AS SELECT * FROM pgscale.metrics();
SELECT name, string_agg(concat(labels::text || ' ',
           CASE name WHEN 'pgscale_archive_last_timestamp_seconds' THEN round(extract(epoch FROM now()) - value::numeric)
                     ELSE value::numeric END), ', ' ORDER BY labels::text COLLATE "C") AS values
  FROM (SELECT name, nullif(labels, '{}') AS labels, value FROM figure WHERE name <> 'pgscale_diagnosis') f
 WHERE name <> 'pgscale_health' OR value > 0 GROUP BY name ORDER BY name COLLATE "C";
-- each rule of now has a value for each certainty: 1 for its most certain finding
SELECT rule, certainty FROM unnest(pgscale_internal.now_rules()) rule, unnest('{high,medium,low}'::text[]) certainty
EXCEPT ALL SELECT labels ->> 'rule', labels ->> 'certainty' FROM figure WHERE name = 'pgscale_diagnosis';
SELECT count(*) = 3 * cardinality(pgscale_internal.now_rules()) AS complete, string_agg(labels::text, ', ' ORDER BY labels::text) FILTER (WHERE value <> 0)
  FROM figure WHERE name = 'pgscale_diagnosis';
-- a real server has these families, but for those that not every machine has
SELECT DISTINCT name, type, k AS label FROM figure LEFT JOIN LATERAL jsonb_object_keys(labels) k ON true
 WHERE name !~ '^pgscale_(archive|node_lag|numa|wait|scalability_(concurrency|throughput|peak|lambda|sigma|kappa|r2)|writeback_(machine|cap|cluster|window))'
EXCEPT SELECT name, type, k FROM metric LEFT JOIN LATERAL jsonb_object_keys(labels) k ON true;
SELECT DISTINCT name, type, k AS label FROM metric LEFT JOIN LATERAL jsonb_object_keys(labels) k ON true
EXCEPT SELECT name, type, k FROM figure LEFT JOIN LATERAL jsonb_object_keys(labels) k ON true;

-- what is unknown is absent, or 0 where something must be
CALL stand_in('node_identity', '{"node": "n", "system_identifier": 1, "role": "primary"}');
CALL stand_in('connections', numbered('connections', 1) - 'peak');
CALL stand_in('sampler_stats', numbered('sampler_stats', 1) - '{period_ms,lateness_mean_us,tick_mean_us}'::text[]);
CALL stand_in('lock_waits', VARIADIC '{}');
CALL stand_in('archive_minutes', VARIADIC '{}');
CALL stand_in('sweeper_stats', VARIADIC '{}');
CALL stand_in('writeback_stats', '{"rounds": 3}');
CALL stand_in('scalability', '{"buckets": 4, "discarded": 5}');
SELECT name, value FROM pgscale.metrics()
 WHERE name ~ '^pgscale_(node_lag|connections_peak|sampler_(period|lateness_seconds_sum|tick_seconds)|blockers|archive|sweeper|writeback|scalability)' ORDER BY name COLLATE "C";
-- an archive that is not written any more is still known
CALL stand_in('archive_minutes', jsonb_build_object('at', now() - interval '3 days', 'period_s', 3600, 'rounds', 60, 'pulled', false),
    jsonb_build_object('at', now() - interval '61 minutes', 'period_s', 60, 'rounds', 100, 'pulled', false));
SELECT name, CASE name WHEN 'pgscale_archive_last_timestamp_seconds' THEN round(extract(epoch FROM now()) - value::numeric) ELSE value::numeric END AS value
  FROM pgscale.metrics('archive') ORDER BY name COLLATE "C";
CREATE OR REPLACE FUNCTION pgscale_internal.numa_nodes(OUT node integer, OUT cpus integer, OUT cpu_list text, OUT memory_bytes bigint, OUT free_bytes bigint,
    OUT distance integer[]) RETURNS SETOF record LANGUAGE plpgsql AS $$ BEGIN RAISE feature_not_supported; END $$;
SELECT count(*) FROM pgscale.metrics('numa');
ROLLBACK;

-- wrong input
\set VERBOSITY terse
SELECT * FROM pgscale.metrics('nothing');

-- The totals are the profile without what idles, to the nanosecond, when nothing moves. What was told apart late is in both.
SELECT pgscale.reset('sampler');
SELECT count(*) FROM generate_series(1, 500000);
SELECT pg_sleep(0.6);
SELECT wait_until($$ EXISTS (SELECT FROM pgscale_internal.wait_totals() WHERE event = 'PgSleep' AND wait_ms > 500) $$);
ALTER SYSTEM SET pgscale.sampler = off;
SELECT pg_reload_conf();
SELECT wait_until('period_ms IS NULL FROM pgscale.sampler_stats');
SELECT evictions FROM pgscale.sampler_stats;
SELECT * FROM (SELECT backend_type, event_type, event, round(sum(wait_ms)::numeric, 6) AS wait_ms
                 FROM pgscale_internal.wait_profile() WHERE NOT idle GROUP BY 1, 2, 3) p
  FULL JOIN (SELECT backend_type, event_type, event, round(wait_ms::numeric, 6) AS wait_ms
               FROM pgscale_internal.wait_totals() WHERE wait_ms > 0) t USING (backend_type, event_type, event)
 WHERE p.wait_ms IS DISTINCT FROM t.wait_ms;
SELECT count(*) > 0 AS some, bool_and(stats_reset BETWEEN now() - interval '1 hour' AND now()) AS fresh
  FROM pgscale_internal.wait_totals();

-- a reset empties them
SELECT pgscale.reset('sampler');
SELECT sum(wait_ms) FROM pgscale_internal.wait_totals();
SELECT name, value FROM pgscale.metrics('sampler') WHERE value <> 0;
ALTER SYSTEM RESET pgscale.sampler;
SELECT pg_reload_conf();
SELECT wait_until('ticks > 0 FROM pgscale.sampler_stats');

-- who may
CREATE ROLE regress_scraper;
CREATE ROLE regress_monitor IN ROLE pg_monitor;
SET ROLE regress_scraper;
SELECT * FROM pgscale.metrics();
RESET ROLE;
SET ROLE regress_monitor;
SELECT count(*) > 100 AS readable FROM pgscale.metrics();
SELECT count(*) > 0 AS readable FROM pgscale_internal.wait_totals();
RESET ROLE;

-- what others have planted does not run
CREATE SCHEMA planted;
GRANT USAGE ON SCHEMA planted TO PUBLIC;
CREATE FUNCTION planted.trap(anyelement, anyelement) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'planted'; END $$;
CREATE OPERATOR planted.= (FUNCTION = planted.trap, LEFTARG = anyelement, RIGHTARG = anyelement);
CREATE OPERATOR planted.<> (FUNCTION = planted.trap, LEFTARG = anyelement, RIGHTARG = anyelement);
CREATE FUNCTION planted.jsonb_build_object(text, text) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'planted'; END $$;
CREATE FUNCTION planted.round(float8) RETURNS float8 LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'planted'; END $$;
SET ROLE regress_monitor;
SET search_path = planted, pg_catalog;
SELECT count(*) > 100 AS all_there FROM pgscale.metrics();
RESET search_path;
RESET ROLE;
SET client_min_messages = warning;
DROP SCHEMA planted CASCADE;

DROP TABLE metric;
DROP FUNCTION wait_until;
DROP EXTENSION pgscale;
DROP ROLE regress_scraper, regress_monitor;
