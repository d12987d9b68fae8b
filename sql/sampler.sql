-- What the sampler sees of a session, and what it answers to wrong input.
CREATE EXTENSION pgscale;
\pset format unaligned \pset footer off

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

-- each sample is remembered, so that short waits are
ALTER SYSTEM SET pgscale.sampler_history_period = '1ms';
SELECT pg_reload_conf();
SELECT wait_until($$ count(*) > 3 FROM (SELECT sampled_at - lag(sampled_at) OVER (ORDER BY sampled_at) AS since
    FROM (SELECT DISTINCT sampled_at FROM pgscale_internal.wait_history()) s) l WHERE since < '0.1 s' $$);

-- a reset empties all, and sampling goes on
SELECT pgscale.reset('sampler');
SELECT wait_until('ticks >= 5 FROM pgscale.sampler_stats');
SELECT starts > 0 AS started, period_ms, evictions, stats_reset > now() - interval '1 minute' AS fresh FROM pgscale.sampler_stats;

-- of one feature, and of no other; of all; of none
CREATE TEMP VIEW resets AS
    SELECT 'sampler' AS feature, stats_reset FROM pgscale.sampler_stats UNION ALL SELECT 'sweeper', stats_reset FROM pgscale.sweeper_stats
    UNION ALL SELECT 'buffer_usage', stats_reset FROM pgscale.clock_sweep
    UNION ALL SELECT 'writeback', stats_reset FROM pgscale.writeback_stats UNION ALL SELECT 'scalability', stats_reset FROM pgscale.scalability;
CREATE TEMP TABLE was AS SELECT * FROM resets;
SELECT pgscale.reset('buffer_usage');
SELECT string_agg(feature, ' ' ORDER BY feature) AS reset FROM resets r JOIN was w USING (feature) WHERE r.stats_reset > w.stats_reset;
SELECT pgscale.reset();
SELECT string_agg(feature, ' ' ORDER BY feature) AS reset FROM resets r JOIN was w USING (feature) WHERE r.stats_reset > w.stats_reset;
DROP VIEW resets;
SELECT pgscale.reset('fleet');
SELECT pgscale.reset('');

-- a wait of known kind is counted for its statement and its session
SELECT pg_sleep(0.3);
SELECT wait_until($$ EXISTS (SELECT FROM pgscale.wait_profile WHERE event = 'PgSleep' AND wait_ms >= 200 AND queryid IS NOT NULL) $$);
SELECT DISTINCT backend_type, event_type, event,
       datid = (SELECT oid FROM pg_database WHERE datname = current_database()) AS this_database,
       userid = current_user::regrole AS this_role
  FROM pgscale_internal.wait_profile() WHERE event = 'PgSleep' AND wait_ms >= 200 AND queryid IS NOT NULL;
SELECT count(*) > 0 AS sampled, bool_and(pid = pg_backend_pid()) AS by_pid, bool_and(state = 'active') AS active,
       bool_and(sampled_at BETWEEN now() - interval '1 hour' AND now()) AS lately
  FROM pgscale.wait_history WHERE event = 'PgSleep';
SELECT round(sum(fraction)::numeric, 3) AS fractions FROM pgscale.wait_profile;
SELECT wait_until($$ sum(active_sessions) > 0 FROM pgscale.activity(bucket => '1 second') WHERE event_type = 'Timeout' $$);

-- a running statement that waits for nothing is on CPU
SELECT event_type, event, state, backend_type FROM pgscale.wait_current WHERE pid = pg_backend_pid();
SELECT c.datname = a.datname AS datname, c.usename = a.usename AS usename, c.datid = a.datid AS datid, c.userid = a.usesysid AS userid,
       c.queryid = a.query_id AS queryid, c.leader_pid IS NULL AS no_leader
  FROM pgscale.wait_current c JOIN pg_stat_activity a USING (pid) WHERE pid = pg_backend_pid();
SELECT count(*) FROM generate_series(1, 3000000);
SELECT wait_until($$ EXISTS (SELECT FROM pgscale.wait_profile WHERE event_type = 'CPU' AND backend_type = 'client backend' AND queryid IS NOT NULL) $$);

-- idle waits are counted always, and shown by the function
SELECT wait_until($$ EXISTS (SELECT FROM pgscale_internal.wait_profile() WHERE idle AND event_type = 'Activity') $$);
SELECT count(*) FROM pgscale.wait_profile WHERE event_type = 'Activity';
SELECT count(*) FROM pgscale.wait_history WHERE event_type = 'Activity';

-- the rows add up to the totals: exactly, when nothing moves; over a few seconds
SELECT wait_until('observed_ms > 2500 AND cpu_ms > 0 FROM pgscale.sampler_stats');
ALTER SYSTEM SET pgscale.sampler = off;
SELECT pg_reload_conf();
SELECT wait_until('period_ms IS NULL FROM pgscale.sampler_stats');
-- what is asked for ends in the second in which it was stopped, which is over when it is asked
SELECT clock_timestamp() AS stopped \gset
SELECT wait_until(format('clock_timestamp() > %L::timestamptz + interval ''1 s''', :'stopped'));
SELECT sum(p.samples) = s.samples AS samples, round((sum(p.wait_ms) - s.wait_ms)::numeric, 6) AS ms_beside,
       count(*) <= s.entries AS entries
  FROM pgscale_internal.wait_profile() p, pgscale_internal.sampler_stats() s GROUP BY s.samples, s.wait_ms, s.entries;
SELECT count(*) > 0 AS some, bool_and(p.stats_reset = s.stats_reset) AS since FROM pgscale.wait_profile p, pgscale.sampler_stats s;

-- ticks are a period apart, those that were missed included, and stand for all of the time
SELECT abs((ticks + missed_ticks) * 10 - observed_ms) <= 20 + lateness_max_us / 1000 AS ticks,
       observed_ms < 1000 * extract(epoch FROM clock_timestamp() - stats_reset) AS no_more,
       (SELECT abs(max(a.coverage_fraction) * 36500 * 86400e3 - s.observed_ms) < 1 FROM pgscale.activity(now() - interval '12 h', :'stopped', '36500 d') a) AS activity
  FROM pgscale_internal.sampler_stats() s;
-- how late they were, once more, by their classes: below 1, 2, 4 ... microseconds
WITH classes AS (
    SELECT c, ticks, lateness_max_us AS most, CASE WHEN i = 1 THEN 0 ELSE 2 ^ (i - 2) END AS low, 2 ^ (i - 1) AS high,
           sum(c) OVER (ORDER BY i) AS upto
      FROM pgscale_internal.sampler_stats(), unnest(lateness_classes) WITH ORDINALITY l (c, i)),
quantiles AS (
    SELECT DISTINCT ON (share) share, least(low + (high - low) * (ticks * share - upto + c) / c, most) AS us
      FROM classes, (VALUES (0.5), (0.99)) q (share) WHERE c > 0 AND upto >= ticks * share ORDER BY share, upto)
SELECT (SELECT sum(c) = max(ticks) FROM classes) AS classes,
       (SELECT lateness_mean_us BETWEEN sum(c * low) / max(ticks) AND sum(c * high) / max(ticks) FROM classes) AS mean,
       (SELECT lateness_max_us >= max(low) AND lateness_max_us < max(high) FROM classes WHERE c > 0) AS longest,
       (SELECT abs(lateness_p50_us - us) < 1e-6 FROM quantiles WHERE share = 0.5) AS half,
       (SELECT abs(lateness_p99_us - us) < 1e-6 FROM quantiles WHERE share = 0.99) AS nearly_all,
       tick_mean_us BETWEEN 1 AND tick_max_us AS tick, cpu_ms BETWEEN 0.002 * ticks AND observed_ms AS cpu,
       abs(cpu_fraction - cpu_ms / observed_ms) < 1e-9 AS cpu_fraction
  FROM pgscale_internal.sampler_stats();
-- the view has each of them where it says
SELECT string_agg(v.key, ', ') AS wrong
  FROM pgscale.sampler_stats view, pgscale_internal.sampler_stats() f, jsonb_each_text(to_jsonb(view)) v JOIN jsonb_each_text(to_jsonb(f)) w USING (key)
 WHERE CASE WHEN v.key ~ '_(us|ms|fraction)$' THEN abs(v.value::float8 - w.value::float8) > CASE WHEN v.key ~ 'ms' THEN 0.06 ELSE 0.0051 * w.value::float8 END
            ELSE v.value <> w.value END;

-- how figures are rounded
SELECT string_agg(concat_ws(' ', n, pgscale_internal.three_digits(n)), ', ' ORDER BY i) AS three_digits
  FROM unnest('{0,-0.04567,-12345.6,999.6,0.0009996,1e-30,-1e-30,NaN,Infinity,-Infinity}'::float8[]) WITH ORDINALITY u (n, i);

-- what sessions did is in activity, and in the totals by event
SELECT abs(a.ms - p.ms) < 1 AS activity, p.ms > 300 AS waited,
       abs(s.active_ms - p.active) < 0.01 AS active, abs(s.idle_in_transaction_ms - (p.ms - p.active)) < 0.01 AS idle
  FROM (SELECT sum(active_sessions * coverage_fraction) * 36500 * 86400e3 AS ms FROM pgscale.activity(now() - interval '12 h', :'stopped', '36500 d')) a,
       (SELECT sum(wait_ms) AS ms, sum(wait_ms) FILTER (WHERE event <> 'IdleInTransaction') AS active FROM pgscale_internal.wait_profile()
         WHERE NOT idle AND backend_type IN ('client backend', 'parallel worker')) p, pgscale_internal.sampler_stats() s;
SELECT count(*) AS other_totals
  FROM (SELECT backend_type, event_type, event, sum(wait_ms) AS ms FROM pgscale_internal.wait_profile() WHERE NOT idle GROUP BY 1, 2, 3) p
  FULL JOIN pgscale_internal.wait_totals() t USING (backend_type, event_type, event) WHERE abs(coalesce(ms, 0) - coalesce(wait_ms, 0)) > 0.001;
SELECT count(*) AS rows, bool_and(t.stats_reset BETWEEN s.stats_reset AND s.stats_reset + interval '10 s') AS reset
  FROM pgscale_internal.wait_totals() t, pgscale.sampler_stats s WHERE event = 'PgSleep';
-- it answers a reset also while it is switched off
SELECT pgscale.reset('sampler');
SELECT count(*) FROM pgscale_internal.wait_profile();
SELECT count(*) FROM pgscale.wait_history;
SELECT count(*) FROM pgscale.activity('-infinity');
SELECT ticks, missed_ticks, lateness_p50_us, samples, wait_ms, entries FROM pgscale.sampler_stats;
SELECT lateness_max_us, tick_max_us, observed_ms, active_ms, idle_in_transaction_ms, cpu_ms, evictions, torn_reads, cpu_readings, blocker_looks,
       (SELECT sum(c) FROM unnest(lateness_classes) c) AS classes
  FROM pgscale.sampler_stats;
ALTER SYSTEM RESET pgscale.sampler;
SELECT pg_reload_conf();
SELECT wait_until('ticks > 0 FROM pgscale.sampler_stats');

-- what health says
SELECT wait_until($$ state = 'working' FROM pgscale.health WHERE feature = 'sampler' $$);
SELECT feature, state, reason, action FROM pgscale.health WHERE feature IN ('sampler', 'query_waits') ORDER BY 1;

-- a history of a period
SELECT wait_until($$ count(*) > 0 FROM pgscale_internal.wait_history(now() - interval '1 hour') $$);
SELECT count(*) > 0 AS some, count(*) = count(*) FILTER (WHERE sampled_at >= now() - interval '1 hour') AS of_the_hour,
       (SELECT count(*) FROM pgscale_internal.wait_history('-infinity', now() - interval '1 day')) AS before,
       (SELECT count(*) FROM pgscale_internal.wait_history(now() + interval '1 day')) AS after,
       (SELECT count(*) FROM pgscale_internal.wait_history('infinity', 'infinity')) + (SELECT count(*) FROM pgscale_internal.wait_history(NULL, '-infinity')) AS none
  FROM pgscale_internal.wait_history(now() - interval '1 hour');
ALTER SYSTEM RESET pgscale.sampler_history_period;
SELECT pg_reload_conf();
\c -

-- the settings as they are delivered
SELECT name, boot_val, unit, min_val, max_val, context FROM pg_settings WHERE name LIKE 'pgscale.sampler%' ORDER BY name COLLATE "C";

-- wrong input: one error each, by its SQLSTATE, and nothing changed
\set VERBOSITY sqlstate
ALTER SYSTEM SET pgscale.sampler_period = 0;
ALTER SYSTEM SET pgscale.sampler_period = 1001;
ALTER SYSTEM SET pgscale.sampler_profile_size = 0;
ALTER SYSTEM SET pgscale.sampler_history_size = -1;
ALTER SYSTEM SET pgscale.sampler_history_period = 0;
ALTER SYSTEM SET pgscale.sampler_history_period = '61s';
SET pgscale.sampler_period = 5;
SELECT * FROM pgscale_internal.wait_history('infinity', '-infinity');
\set VERBOSITY terse
SELECT * FROM pgscale_internal.wait_history(now(), now() - interval '1 s');
SELECT * FROM pgscale.query_waits;
\set VERBOSITY default
-- names of databases and roles, one after the other, and of what has none
SELECT string_agg(coalesce(pgscale_internal.name_of(object, role)::text, 'none'), ' ' ORDER BY n) AS names
  FROM (VALUES (1, 1::oid, false), (2, 1, true), (3, 3373, true), (4, 3373, false), (5, 0, false), (6, 0, true), (7, 1, false)) v (n, object, role);
SELECT count(*) FROM pg_settings WHERE name LIKE 'pgscale.%' AND (source <> 'default' OR pending_restart);

DROP FUNCTION wait_until;
DROP EXTENSION pgscale;
