-- The surface of kernel writeback: its settings, its view, who may use them, and what they answer to wrong input.
CREATE EXTENSION pgscale;
\pset format unaligned \pset footer off

-- settings
SELECT name, vartype, boot_val, unit, context, min_val, max_val, short_desc IS NOT NULL AS described
  FROM pg_settings WHERE name LIKE 'pgscale.writeback%' ORDER BY name COLLATE "C";

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
ALTER SYSTEM SET pgscale.writeback = 'some';
\set VERBOSITY sqlstate
ALTER SYSTEM SET pgscale.writeback_cap = -2;
ALTER SYSTEM SET pgscale.writeback_cap = '3 TB';
SET pgscale.writeback = on;
SET pgscale.writeback_cap = 0;
\set VERBOSITY default
SELECT count(*) FROM pg_file_settings WHERE name LIKE 'pgscale.%';

-- right input: in units, and at the bounds (pg_regress has its server do without fsync, so there is nothing to do)
CREATE PROCEDURE wait_until(condition text) LANGUAGE plpgsql AS $$
DECLARE
    done bool;
BEGIN
    PERFORM pg_reload_conf();
    FOR i IN 1..600 LOOP
        EXECUTE 'SELECT ' || condition || ' FROM pgscale.writeback_stats' INTO done;
        EXIT WHEN done;
        PERFORM pg_sleep(0.05);
    END LOOP;
END $$;
ALTER SYSTEM SET pgscale.writeback_cap = '64 MB';
ALTER SYSTEM SET pgscale.writeback = on;
CALL wait_until($$state <> 'off' AND rounds > 0$$);
SELECT state <> 'off' AS is_on, cap_bytes, cluster_dirty_bytes >= 0 AS dirty, rounds > 0 AS rounds, errors
  FROM pgscale.writeback_stats;
ALTER SYSTEM SET pgscale.writeback_cap = '2147483647 kB';
CALL wait_until('cap_bytes > 100000000');
SELECT cap_bytes FROM pgscale.writeback_stats;
ALTER SYSTEM SET pgscale.writeback_cap = 0;
CALL wait_until('cap_bytes = 0');
SELECT cap_bytes FROM pgscale.writeback_stats;
ALTER SYSTEM RESET pgscale.writeback;
ALTER SYSTEM RESET pgscale.writeback_cap;
CALL wait_until($$state = 'off'$$);
DROP PROCEDURE wait_until;

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
