-- The surface of kernel writeback: its settings, its view, who may use them, and what they answer to wrong input.
CREATE EXTENSION pgscale;
\pset format unaligned \pset footer off

-- settings, each with a description and a default within its bounds
SELECT name, vartype, boot_val, unit, context, min_val, max_val
  FROM pg_settings WHERE name LIKE 'pgscale.writeback%' ORDER BY name COLLATE "C";
SELECT count(*) FILTER (WHERE short_desc IS NULL) AS not_described, count(*) FILTER (WHERE source <> 'default') AS not_default
  FROM pg_settings WHERE name LIKE 'pgscale.writeback%';

-- the view's columns
SELECT a.attname AS column, format_type(a.atttypid, a.atttypmod) AS type
  FROM pg_attribute a WHERE a.attrelid = 'pgscale.writeback_stats'::regclass AND a.attnum > 0 ORDER BY a.attnum;
SELECT o AS object, d IS NOT NULL AS described FROM (VALUES
    ('view', obj_description('pgscale.writeback_stats'::regclass, 'pg_class')),
    ('function', obj_description('pgscale_internal.writeback_stats()'::regprocedure, 'pg_proc'))) v (o, d);

-- it is off by default, and there: one row
SELECT state, reason, state_change, cluster_dirty_bytes, cap_bytes, peak_dirty_bytes, skipped_bytes,
       redirty_fraction, server_bytes_per_s, disk_bytes_per_s, window_bytes, written_bytes, found_bytes, unseen_bytes,
       requests, requested_bytes, taken_bytes, request_ms, backed_off, rounds, errors, cpu_ms >= 0 AS cpu,
       stats_reset IS NOT NULL AS reset
  FROM pgscale.writeback_stats \gx
-- what the kernel tells, if it does
SELECT coalesce(dirty_bytes >= 0, true) AS dirty, coalesce(writeback_bytes >= 0, true) AS writeback,
       coalesce(background_threshold_bytes <= threshold_bytes, true) AS thresholds,
       coalesce(io_pressure_fraction BETWEEN 0 AND 1, true) AS pressure
  FROM pgscale.writeback_stats;
SELECT feature, enabled, state, reason, action FROM pgscale.health WHERE feature = 'writeback' \gx

-- a reset
CREATE TEMP TABLE before AS SELECT stats_reset FROM pgscale.writeback_stats;
SELECT pgscale.reset('writeback');
SELECT w.stats_reset > b.stats_reset AS later, w.stats_reset <= clock_timestamp() AS now FROM pgscale.writeback_stats w, before b;

-- wrong input: the server's own errors, and nothing changed
ALTER SYSTEM SET pgscale.writeback_adaptive = 'some';
\set VERBOSITY sqlstate
ALTER SYSTEM SET pgscale.writeback_cap = -2;
ALTER SYSTEM SET pgscale.writeback_cap = 2147483648;
ALTER SYSTEM SET pgscale.writeback_cap = '3 TB';
ALTER SYSTEM SET pgscale.writeback_cap = '10 s';
ALTER SYSTEM SET pgscale.writeback_cap = 'much';
ALTER SYSTEM SET pgscale.writeback = 'perhaps';
SET pgscale.writeback = on;
SET pgscale.writeback_cap = 0;
SET pgscale.writeback_adaptive = off;
\set VERBOSITY default
SELECT pg_reload_conf();
SELECT count(*) FROM pg_settings WHERE name LIKE 'pgscale.%' AND (source <> 'default' OR pending_restart);
SELECT count(*) FROM pg_file_settings WHERE name LIKE 'pgscale.%';

-- right input: in units, and at the bounds (pg_regress has its server do without fsync, so there is nothing to do)
ALTER SYSTEM SET pgscale.writeback_cap = '64 MB';
ALTER SYSTEM SET pgscale.writeback_adaptive = off;
ALTER SYSTEM SET pgscale.writeback = on;
SELECT pg_reload_conf();
DO $$
BEGIN
    FOR i IN 1..600 LOOP
        EXIT WHEN (SELECT state <> 'off' AND rounds > 0 FROM pgscale.writeback_stats);
        PERFORM pg_sleep(0.05);
    END LOOP;
END $$;
SELECT state <> 'off' AS is_on, cap_bytes, cluster_dirty_bytes >= 0 AS dirty, rounds > 0 AS rounds, errors
  FROM pgscale.writeback_stats;
ALTER SYSTEM SET pgscale.writeback_cap = '2147483647 kB';
ALTER SYSTEM SET pgscale.writeback_adaptive = on;
SELECT pg_reload_conf();
DO $$
BEGIN
    FOR i IN 1..600 LOOP
        EXIT WHEN (SELECT cap_bytes > 100000000 FROM pgscale.writeback_stats);
        PERFORM pg_sleep(0.05);
    END LOOP;
END $$;
SELECT cap_bytes FROM pgscale.writeback_stats;
ALTER SYSTEM SET pgscale.writeback_cap = 0;
SELECT pg_reload_conf();
DO $$
BEGIN
    FOR i IN 1..600 LOOP
        EXIT WHEN (SELECT cap_bytes = 0 FROM pgscale.writeback_stats);
        PERFORM pg_sleep(0.05);
    END LOOP;
END $$;
SELECT cap_bytes FROM pgscale.writeback_stats;
ALTER SYSTEM RESET pgscale.writeback;
ALTER SYSTEM RESET pgscale.writeback_cap;
ALTER SYSTEM RESET pgscale.writeback_adaptive;
SELECT pg_reload_conf();
DO $$
BEGIN
    FOR i IN 1..600 LOOP
        EXIT WHEN (SELECT state = 'off' FROM pgscale.writeback_stats);
        PERFORM pg_sleep(0.05);
    END LOOP;
END $$;

-- off again: what was counted stays, what is true only while it is on does not; a reset begins anew
SELECT state, reason, cluster_dirty_bytes, cap_bytes, rounds > 0 AS rounds FROM pgscale.writeback_stats;
SELECT pgscale.reset('writeback');
SELECT written_bytes, found_bytes, unseen_bytes, requests, requested_bytes, taken_bytes, request_ms, backed_off, rounds, errors,
       peak_dirty_bytes
  FROM pgscale.writeback_stats;

-- who may do what
CREATE ROLE pgscale_nobody;
CREATE ROLE pgscale_watcher IN ROLE pg_monitor;
SET ROLE pgscale_nobody;
SELECT * FROM pgscale.writeback_stats;
SELECT * FROM pgscale_internal.writeback_stats();
SELECT pgscale.reset('writeback');
RESET ROLE;
SET ROLE pgscale_watcher;
SELECT count(*) FROM pgscale.writeback_stats;
SELECT count(*) FROM pgscale_internal.writeback_stats();
SELECT pgscale.reset('writeback');
ALTER SYSTEM SET pgscale.writeback = on;
RESET ROLE;
GRANT EXECUTE ON FUNCTION pgscale.reset(text) TO pgscale_watcher;
SET ROLE pgscale_watcher;
SELECT pgscale.reset('writeback');
RESET ROLE;

DROP EXTENSION pgscale;
DROP ROLE pgscale_nobody, pgscale_watcher;
