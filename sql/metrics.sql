-- What monitoring systems scrape: its shape, and that it says what the views say. That no counter falls: t/059_metrics.pl.
CREATE EXTENSION pgscale;

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
SELECT wait_until($$ EXISTS (SELECT FROM pgscale.wait_totals() WHERE event = 'PgSleep') $$);
CREATE TABLE metric AS SELECT * FROM pgscale.metrics();

-- the families: those that any machine has
SELECT name, type, string_agg(DISTINCT label, ' ') AS labels
  FROM metric LEFT JOIN LATERAL jsonb_object_keys(labels) label ON true
 WHERE name !~ '^pgscale_(numa|writeback_machine|scalability_(concurrency|throughput|peak|lambda|sigma|kappa|r2))'
 GROUP BY name, type ORDER BY name COLLATE "C";

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
    EXCEPT SELECT name FROM unnest('{health,fleet,sampler,blockers,archive,sweeper,buffer_usage,writeback,relocation,tuning,scalability,numa}'::text[]) f
      CROSS JOIN LATERAL pgscale.metrics(f)) missing;
SELECT DISTINCT name ~ '^pgscale_(sampler|wait)_' AS of_the_sampler FROM pgscale.metrics('sampler');

-- wrong input
SELECT * FROM pgscale.metrics('nothing');
SELECT * FROM pgscale.metrics('');

-- The totals are the profile without what idles, to the nanosecond, when nothing moves. What was told apart late is in both.
SELECT pgscale.sampler_reset();
SELECT count(*) FROM generate_series(1, 500000);
SELECT pg_sleep(1.2);
SELECT count(*) FROM generate_series(1, 500000);
SELECT wait_until($$ EXISTS (SELECT FROM pgscale.wait_totals() WHERE event = 'PgSleep' AND wait_ms > 500) $$);
ALTER SYSTEM SET pgscale.sampler = off;
SELECT pg_reload_conf();
SELECT wait_until('period_ms IS NULL FROM pgscale.sampler_stats');
SELECT evictions FROM pgscale.sampler_stats;
SELECT * FROM (SELECT backend_type, event_type, event, round(sum(wait_ms)::numeric, 6) AS wait_ms
                 FROM pgscale.wait_profile() WHERE NOT idle GROUP BY 1, 2, 3) p
  FULL JOIN (SELECT backend_type, event_type, event, round(wait_ms::numeric, 6) AS wait_ms
               FROM pgscale.wait_totals() WHERE wait_ms > 0) t USING (backend_type, event_type, event)
 WHERE p.wait_ms IS DISTINCT FROM t.wait_ms;
SELECT count(*) > 0 AS some, bool_and(stats_reset BETWEEN now() - interval '1 hour' AND now()) AS fresh
  FROM pgscale.wait_totals();

-- a reset empties them
SELECT pgscale.sampler_reset();
SELECT sum(wait_ms) FROM pgscale.wait_totals();
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
SELECT count(*) > 0 AS readable FROM pgscale.wait_totals();
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
DROP SCHEMA planted CASCADE;

DROP TABLE metric;
DROP FUNCTION wait_until;
DROP EXTENSION pgscale;
DROP ROLE regress_scraper, regress_monitor;
