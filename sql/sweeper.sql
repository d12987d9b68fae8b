-- The sweeper's surface: its settings, its view, who may use them, and what they answer to wrong input.
CREATE EXTENSION pgscale;
\pset format unaligned \pset footer off

-- settings, each with a description and a default within its bounds
SELECT name, vartype, boot_val, unit, context, min_val, max_val
  FROM pg_settings WHERE name = 'pgscale.sweeper' OR name LIKE 'pgscale.sweeper\_%' ORDER BY name COLLATE "C";
SELECT count(*) FILTER (WHERE short_desc IS NULL) AS not_described, count(*) FILTER (WHERE source <> 'default') AS not_default
  FROM pg_settings WHERE name = 'pgscale.sweeper' OR name LIKE 'pgscale.sweeper\_%';

-- the view's columns
SELECT a.attname AS column, format_type(a.atttypid, a.atttypmod) AS type
  FROM pg_attribute a WHERE a.attrelid = 'pgscale.sweeper_stats'::regclass AND a.attnum > 0 ORDER BY a.attnum;
SELECT a.attname AS column, format_type(a.atttypid, a.atttypmod) AS type
  FROM pg_attribute a WHERE a.attrelid = 'pgscale.replacement_stats'::regclass AND a.attnum > 0 ORDER BY a.attnum;
-- both have only one column in common: since when they count
SELECT attname FROM pg_attribute WHERE attrelid IN ('pgscale.sweeper_stats'::regclass, 'pgscale.replacement_stats'::regclass) AND attnum > 0
 GROUP BY 1 HAVING count(*) = 2 ORDER BY 1;
SELECT o AS object, d IS NOT NULL AS described FROM (VALUES
    ('view', obj_description('pgscale.sweeper_stats'::regclass, 'pg_class')),
    ('function', obj_description('pgscale_internal.sweeper_stats()'::regprocedure, 'pg_proc')),
    ('view', obj_description('pgscale.replacement_stats'::regclass, 'pg_class')),
    ('function', obj_description('pgscale_internal.replacement_stats()'::regprocedure, 'pg_proc'))) v (o, d);

-- it is off by default, and there
SELECT writers, state, reason, state_change,
       low_watermark, high_watermark, ready, scanned, decremented,
       supplied_clean, supplied_written, consumed, reused, queued, starved, runs, runs_by_pages, written, neighbours,
       skipped_pinned, skipped_locked, skipped_wal, skipped_changed, write_ms, writeback_calls, writeback_ms, wal_flushes,
       errors, backend_writes >= 0 AS backend_writes, cpu_ms >= 0 AS cpu, writer_cpu_ms, stats_reset IS NOT NULL AS reset
  FROM pgscale.sweeper_stats \gx
SELECT feature, enabled, state, reason ~ '^it is switched off' AS reason FROM pgscale.health WHERE feature = 'sweeper' \gx
-- nothing was ever chosen; the memory is there, in proportion to the buffers
SELECT choice, evictions, reads_saved, switches, shadow_references, shadow_misses, chosen_misses, half_lives, shadow_sample,
       restored, restore_problem, memory_bytes BETWEEN 16 * n AND 64 * n + 4 * 1048576 AS memory, r.stats_reset = s.stats_reset AS reset
  FROM pgscale.replacement_stats r, pgscale.sweeper_stats s, (SELECT setting::bigint FROM pg_settings WHERE name = 'shared_buffers') b (n) \gx

-- a reset
CREATE TEMP TABLE before AS SELECT stats_reset FROM pgscale.sweeper_stats;
SELECT pgscale.reset('sweeper');
SELECT s.stats_reset > b.stats_reset AS later, s.stats_reset <= clock_timestamp() AS now FROM pgscale.sweeper_stats s, before b;

-- kept relations: no effect while it is off; the fractions are checked whatever the sweeper does
SELECT a.attname AS column, format_type(a.atttypid, a.atttypmod) AS type
  FROM pg_attribute a WHERE a.attrelid = 'pgscale.kept_relations'::regclass AND a.attnum > 0 ORDER BY a.attnum;
CREATE TABLE prices (id int PRIMARY KEY);
SELECT pgscale.keep('prices') > 0 AS by_default, pgscale.keep('prices_pkey', 0.1) > 0 AS index;
SELECT datname = current_database() AS here, relation, fraction, buffers_allowed > 0 AS allowed, buffers_held, stayed, state,
       relation_oid = relation::regclass AS oid, relfilenode = pg_relation_filenode(relation_oid) AS file
  FROM pgscale.kept_relations ORDER BY relation;
SELECT reason FROM pgscale.health WHERE feature = 'sweeper';
SELECT pgscale.keep('prices', 0.6);
SELECT pgscale.keep('prices', 0.45);
SELECT pgscale.keep('pgscale.kept_relations');
SELECT pgscale.keep(NULL, 0.1);
SELECT pgscale.keep('prices', 0), pgscale.keep('prices_pkey', NULL);
SELECT count(*) FROM pgscale.kept_relations;
DROP TABLE prices;

-- wrong input: the server's own errors, and nothing changed
ALTER SYSTEM SET pgscale.sweeper_writers = 0;
ALTER SYSTEM SET pgscale.sweeper_high_watermark = 0.3;
\set VERBOSITY sqlstate
ALTER SYSTEM SET pgscale.sweeper_writers = 17;
ALTER SYSTEM SET pgscale.sweeper_high_watermark = 'NaN';
SET pgscale.sweeper = on;
\set VERBOSITY default
SELECT pg_reload_conf();
SELECT count(*) FROM pg_settings WHERE name LIKE 'pgscale.%' AND (source <> 'default' OR pending_restart);
SELECT count(*) FROM pg_file_settings WHERE name LIKE 'pgscale.%';

-- right input, at the bounds
ALTER SYSTEM SET pgscale.sweeper_writers = 16;
ALTER SYSTEM SET pgscale.sweeper_high_watermark = 0.25;
SELECT pg_reload_conf();
-- a session takes a setting over between two commands; a new one has it
\c -
SHOW pgscale.sweeper_writers;
ALTER SYSTEM RESET pgscale.sweeper_writers;
ALTER SYSTEM RESET pgscale.sweeper_high_watermark;
SELECT pg_reload_conf();

-- who may do what
CREATE ROLE pgscale_nobody;
CREATE ROLE pgscale_watcher IN ROLE pg_monitor;
SET ROLE pgscale_nobody;
SELECT * FROM pgscale.sweeper_stats;
SELECT pgscale.keep('pg_class');
SELECT pgscale.reset('sweeper');
RESET ROLE;
SET ROLE pgscale_watcher;
SELECT pgscale.keep('pg_class');
SELECT count(*) FROM pgscale.kept_relations;
SELECT count(*) FROM pgscale.sweeper_stats;
SELECT count(*) FROM pgscale.replacement_stats;
SELECT pgscale.reset('sweeper');
ALTER SYSTEM SET pgscale.sweeper = on;
RESET ROLE;
GRANT EXECUTE ON FUNCTION pgscale.reset(text) TO pgscale_watcher;
SET ROLE pgscale_watcher;
SELECT pgscale.reset('sweeper');
RESET ROLE;

DROP EXTENSION pgscale;
DROP ROLE pgscale_nobody, pgscale_watcher;
