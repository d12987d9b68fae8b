-- The extension's surface: what is there, who may use it, what works.
-- Statements are not echoed: a line of \echo says whose answer follows.
\set ECHO none
CREATE EXTENSION pgscale;
CREATE PROCEDURE wait_until(condition text) LANGUAGE plpgsql AS $$
DECLARE
    holds boolean;
BEGIN
    FOR i IN 1..600 LOOP
        EXECUTE 'SELECT ' || condition INTO holds;
        EXIT WHEN holds;
        PERFORM pg_sleep(0.05);
    END LOOP;
END $$;

\echo '-- every column of a view has a comment; whose all objects are and who may use them: privileges.sql'
SELECT c.relname, a.attname
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
 WHERE c.relnamespace = 'pgscale'::regnamespace AND c.relkind IN ('v', 'c') AND col_description(c.oid, a.attnum) IS NULL;

\a
\echo '-- the views'' columns'
SELECT c.relname, string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum) AS columns
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
 WHERE c.relnamespace = 'pgscale'::regnamespace AND c.relkind = 'v'
 GROUP BY 1 ORDER BY 1;
\a

\echo '-- a name is a view or a function, not both'
SELECT relname FROM pg_class WHERE relnamespace = 'pgscale'::regnamespace AND relname IN (SELECT proname FROM pg_proc WHERE pronamespace = 'pgscale'::regnamespace);

\echo -- a view has the columns of the function of its name, besides what it adds or filters by; and names beside OIDs
--
WITH columns (name, kind, attname) AS (
    SELECT c.relname, 'view', a.attname::text
      FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
     WHERE c.relnamespace = 'pgscale'::regnamespace AND c.relkind = 'v'
    UNION ALL
    SELECT p.proname, 'function', a.name
      FROM pg_proc p CROSS JOIN unnest(p.proargnames, p.proargmodes) a (name, mode)
     WHERE p.pronamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace) AND a.mode IN ('o', 't'))
SELECT name, only_in, string_agg(attname, ' ' ORDER BY attname) AS columns
  FROM (SELECT name, min(kind) AS only_in, attname FROM columns
         WHERE name IN (SELECT name FROM columns WHERE kind = 'view') AND name IN (SELECT name FROM columns WHERE kind = 'function')
         GROUP BY name, attname HAVING count(*) = 1) c
 GROUP BY 1, 2 ORDER BY 1, 2;
SELECT v.name FROM (SELECT attrelid::regclass AS name, array_agg(attname) AS columns FROM pg_attribute WHERE attnum > 0 GROUP BY 1) v
  JOIN pg_class c ON c.oid = v.name
 WHERE c.relnamespace = 'pgscale'::regnamespace AND c.relkind = 'v'
   AND ('datid' = ANY (columns) AND 'datname' <> ALL (columns) OR 'userid' = ANY (columns) AND 'usename' <> ALL (columns));

\echo -- settings
SELECT name, setting, unit, context, min_val, max_val
  FROM pg_settings WHERE name LIKE 'pgscale.%' ORDER BY name COLLATE "C";

\echo '-- the sampler needs a moment after the server''s start'
CALL wait_until($$(SELECT bool_and(state = 'working') FROM pgscale.health WHERE feature IN ('lwlocks', 'sampler', 'scalability', 'tuning'))$$);
\echo -- what os_cache, numa and trace say depends on the machine, and version on the release
SELECT * FROM pgscale.health WHERE feature NOT IN ('numa', 'os_cache', 'sweeper', 'trace', 'version') ORDER BY feature;

\echo '-- it is the server''s, not that of the asking session: neither its own settings change it, nor those of its database, nor its role'
CREATE TABLE health AS SELECT * FROM pgscale.health;
GRANT SELECT ON health TO pg_monitor;
SET track_activities = off;
SET track_counts = off;
SET compute_query_id = off;
SET track_io_timing = on;
SET backend_flush_after = 256;
SET pg_stat_statements.max = 100;
SET pgscale.fleet_timeout = 100;
SET search_path = '';
SET DateStyle = German;
SET IntervalStyle = iso_8601;
SET ROLE pg_monitor;
SELECT 'before' AS which, h.* FROM (TABLE public.health EXCEPT TABLE pgscale.health) h
UNION ALL SELECT 'with odd settings', h.* FROM (TABLE pgscale.health EXCEPT TABLE public.health) h;
SELECT * FROM pgscale.query_waits;
RESET ROLE;
RESET ALL;
DO $$
BEGIN
    EXECUTE format('ALTER DATABASE %I SET track_activities = off', current_database());
    EXECUTE format('ALTER DATABASE %I SET compute_query_id = off', current_database());
    EXECUTE format('ALTER DATABASE %I SET track_counts = off', current_database());
END $$;
\c -
SELECT 'before' AS which, h.* FROM (TABLE health EXCEPT TABLE pgscale.health) h
UNION ALL SELECT 'in an odd database', h.* FROM (TABLE pgscale.health EXCEPT TABLE health) h;
DO $$
BEGIN
    EXECUTE format('ALTER DATABASE %I RESET track_activities', current_database());
    EXECUTE format('ALTER DATABASE %I RESET compute_query_id', current_database());
    EXECUTE format('ALTER DATABASE %I RESET track_counts', current_database());
END $$;
\c -
DROP TABLE health;

\echo '-- what the server''s settings take away'
ALTER SYSTEM SET track_activities = off;
SELECT pg_reload_conf();
\c -
CALL wait_until($$(SELECT state = 'broken' FROM pgscale.health WHERE feature = 'scalability')$$);
\echo -- a session that counts for itself does not change that
SET track_activities = on;
\x
SELECT * FROM pgscale.health WHERE feature IN ('lwlocks', 'query_waits', 'sampler', 'scalability', 'tuning') ORDER BY feature;
\x
RESET track_activities;
ALTER SYSTEM RESET track_activities;
ALTER SYSTEM SET track_counts = off;
ALTER SYSTEM SET compute_query_id = off;
SELECT pg_reload_conf();
\c -
CALL wait_until($$(SELECT count(*) = 2 FROM pgscale.health
           WHERE (feature, action) IN (('scalability', 'set track_counts to on and reload'),
                                       ('query_waits', 'set compute_query_id to auto or on, and reload')))$$);
SELECT * FROM pgscale.health WHERE feature IN ('query_waits', 'sampler', 'scalability', 'tuning') ORDER BY feature;
ALTER SYSTEM RESET track_counts;
ALTER SYSTEM RESET compute_query_id;

\echo '-- the other way round: the sampler off, and then what lives on it; what else can be, is switched off or on'
ALTER SYSTEM SET pgscale.sampler = off;
ALTER SYSTEM SET pgscale.relocation_workers = 0;
SELECT pg_reload_conf();
\c -
CALL wait_until($$(SELECT bool_and(NOT enabled) FROM pgscale.health WHERE feature IN ('relocation', 'sampler'))
     AND (SELECT period_ms IS NULL FROM pgscale.sampler_stats)$$);
SELECT * FROM pgscale.health WHERE feature NOT IN ('numa', 'os_cache', 'sweeper', 'trace', 'version') ORDER BY feature;
ALTER SYSTEM RESET pgscale.sampler;
ALTER SYSTEM RESET pgscale.relocation_workers;
SELECT pg_reload_conf();

\echo -- goes without a trace
DROP PROCEDURE wait_until;
DROP EXTENSION pgscale;
SELECT count(*) FROM pg_namespace WHERE nspname IN ('pgscale', 'pgscale_internal');
