-- Metrics for monitoring systems. Each row is computed from figures that a feature shows anyway. Nothing here reads a disk, all
-- buffers or each relation, and the number of values that a label has at a time is bounded.

CREATE TYPE pgscale_internal.metric AS (name text, type text, help text, labels jsonb, value double precision);
COMMENT ON TYPE pgscale_internal.metric IS 'row of metrics';

CREATE FUNCTION pgscale_internal.metrics_health() RETURNS SETOF pgscale_internal.metric
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
SELECT 'pgscale_health', 'gauge', 'Whether a feature is in this state: 1 for one state of each feature, 0 for the others.',
       jsonb_build_object('feature', h.feature, 'state', s.state), (h.state = s.state)::integer::float8
  FROM pgscale_internal.health() h
  CROSS JOIN unnest('{off,starting,idle,working,standing down,broken}'::text[]) s(state)
$$;
COMMENT ON FUNCTION pgscale_internal.metrics_health() IS 'part of metrics: the state of each feature';
GRANT EXECUTE ON FUNCTION pgscale_internal.metrics_health() TO pg_monitor;

CREATE FUNCTION pgscale_internal.metrics_fleet() RETURNS SETOF pgscale_internal.metric
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
SELECT m.*
  FROM pgscale.node_identity() n
  CROSS JOIN LATERAL (VALUES
    ('pgscale_node_info', 'gauge', 'Which server this is; always 1.',
     jsonb_build_object('node', n.node, 'system_identifier', n.system_identifier::text, 'role', n.role), 1::float8),
    ('pgscale_node_lag_seconds', 'gauge', 'How far a standby is behind; absent on a primary.', '{}', n.lag_s)
  ) m(name, type, help, labels, value)
 WHERE m.value IS NOT NULL
$$;
COMMENT ON FUNCTION pgscale_internal.metrics_fleet() IS 'part of metrics: which server this is';
GRANT EXECUTE ON FUNCTION pgscale_internal.metrics_fleet() TO pg_monitor;

CREATE FUNCTION pgscale_internal.metrics_connections() RETURNS SETOF pgscale_internal.metric
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
SELECT m.*
  FROM pgscale_internal.connections() c
  CROSS JOIN pgscale_internal.connections_ages() g
  CROSS JOIN LATERAL (VALUES
    ('pgscale_connections', 'gauge', 'Connections in use, by state; other is starting, or unknown while track_activities is off.', '{"state": "active"}'::jsonb, c.active::float8),
    ('pgscale_connections', 'gauge', 'Connections in use, by state; other is starting, or unknown while track_activities is off.', '{"state": "idle"}', c.idle),
    ('pgscale_connections', 'gauge', 'Connections in use, by state; other is starting, or unknown while track_activities is off.', '{"state": "idle in transaction"}', c.idle_in_transaction),
    ('pgscale_connections', 'gauge', 'Connections in use, by state; other is starting, or unknown while track_activities is off.', '{"state": "other"}', c.other),
    ('pgscale_connections_max', 'gauge', 'The server''s max_connections.', '{}', c.max),
    ('pgscale_connections_reserved', 'gauge', 'Connections reserved for superusers and for pg_use_reserved_connections, of the maximum.', '{}', c.reserved),
    ('pgscale_connections_peak', 'gauge', 'Most connections in use at a tick of the sampler since its reset or the restart.', '{}', c.peak),
    ('pgscale_connections_longest_transaction_seconds', 'gauge', 'Age of the oldest transaction of a session; 0 without one.', '{}', g.transaction_s),
    ('pgscale_connections_longest_idle_in_transaction_seconds', 'gauge', 'Longest time that a session has been idle in a transaction; 0 without one.', '{}',
     g.idle_in_transaction_s)
  ) m(name, type, help, labels, value)
 WHERE m.value IS NOT NULL
UNION ALL
SELECT 'pgscale_connections_by_application', 'gauge', 'Connections of the 20 applications with the most of them, and of all others, by state; (none) has an empty name.',
       jsonb_build_object('application_name', a.application_name, 'state', s.state), s.used
  FROM pgscale_internal.connections_by_application() a
  CROSS JOIN LATERAL (VALUES
    ('active', a.active::float8), ('idle', a.idle), ('idle in transaction', a.idle_in_transaction),
    ('other', a.used - a.active - a.idle - a.idle_in_transaction)
  ) s(state, used)
$$;
COMMENT ON FUNCTION pgscale_internal.metrics_connections() IS 'part of metrics: connections';
GRANT EXECUTE ON FUNCTION pgscale_internal.metrics_connections() TO pg_monitor;

CREATE FUNCTION pgscale_internal.metrics_sampler() RETURNS SETOF pgscale_internal.metric
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
(SELECT 'pgscale_wait_seconds_total', 'counter',
       'Time in a wait event, of all processes of a type, without idle waits except IdleInTransaction. Its rate is the average number of them in it.',
       jsonb_build_object('backend_type', w.backend_type, 'event_type', w.event_type, 'event', w.event), sum(w.wait_ms) / 1e3
  -- lock tranches of one name are one series
  FROM pgscale_internal.wait_totals() w GROUP BY w.backend_type, w.event_type, w.event
 ORDER BY w.backend_type, w.event_type, w.event)
UNION ALL
SELECT m.*
  -- sums of whole nanoseconds: a counter must not fall by an error of rounding
  FROM (SELECT *, round(coalesce(s.lateness_mean_us * s.ticks, 0) * 1e3) / 1e9 AS lateness,
               round(coalesce(s.tick_mean_us * s.ticks, 0) * 1e3) / 1e9 AS ticking FROM pgscale_internal.sampler_stats() s) s
  CROSS JOIN LATERAL (
    -- the last class of lateness has no upper end
    SELECT 'pgscale_sampler_lateness_seconds_bucket', 'histogram', 'How late the sampler''s ticks were.',
           jsonb_build_object('le', CASE WHEN c.class < count(*) OVER () THEN (2 ^ (c.class - 1) / 1e6)::text ELSE '+Inf' END),
           sum(c.ticks) OVER (ORDER BY c.class)::float8
      FROM unnest(s.lateness_classes) WITH ORDINALITY c(ticks, class)
    UNION ALL VALUES
    ('pgscale_sampler_lateness_seconds_sum', 'histogram', 'How late the sampler''s ticks were.', '{}'::jsonb, s.lateness),
    ('pgscale_sampler_lateness_seconds_count', 'histogram', 'How late the sampler''s ticks were.', '{}', s.ticks),
    ('pgscale_sampler_ticks_total', 'counter', 'Ticks of the sampler.', '{}', s.ticks),
    ('pgscale_sampler_missed_ticks_total', 'counter', 'Ticks that were due and skipped.', '{}', s.missed_ticks),
    ('pgscale_sampler_observed_seconds_total', 'counter', 'Time that all ticks stand for.', '{}', s.observed_ms / 1e3),
    ('pgscale_sampler_tick_seconds_total', 'counter', 'Time spent in ticks.', '{}', s.ticking),
    ('pgscale_sampler_cpu_seconds_total', 'counter', 'CPU time of the sampler.', '{}', s.cpu_ms / 1e3),
    ('pgscale_sampler_period_seconds', 'gauge', 'Time between two ticks; 0 if the sampler is off.', '{}', coalesce(s.period_ms, 0) / 1e3),
    ('pgscale_sampler_profile_entries', 'gauge', 'Entries of the wait profile in use.', '{}', s.entries),
    ('pgscale_sampler_profile_evictions_total', 'counter', 'Entries of the wait profile that were evicted to the row other.', '{}', s.evictions)
  ) m(name, type, help, labels, value)
$$;
COMMENT ON FUNCTION pgscale_internal.metrics_sampler() IS 'part of metrics: waits, and how the sampler is';
GRANT EXECUTE ON FUNCTION pgscale_internal.metrics_sampler() TO pg_monitor;

CREATE FUNCTION pgscale_internal.metrics_blockers() RETURNS SETOF pgscale_internal.metric
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
SELECT m.*
  FROM (SELECT count(DISTINCT l.waiting_pid) AS waiting, count(*) FILTER (WHERE l.depth = 0) AS roots,
               coalesce(max(l.waiters), 0) AS most, coalesce(max(l.waited_ms), 0) / 1e3 AS longest
          FROM pgscale_internal.lock_waits() l) l
  CROSS JOIN LATERAL (VALUES
    ('pgscale_blockers_waiting_processes', 'gauge', 'Processes that wait for a lock now.', '{}'::jsonb, l.waiting::float8),
    ('pgscale_blockers_roots', 'gauge', 'Transactions that others wait for and that wait for none.', '{}', l.roots),
    ('pgscale_blockers_most_waiters', 'gauge', 'Transactions behind the one that most wait for.', '{}', l.most),
    ('pgscale_blockers_longest_wait_seconds', 'gauge', 'How long the longest wait for a lock has lasted.', '{}', l.longest)
  ) m(name, type, help, labels, value)
$$;
COMMENT ON FUNCTION pgscale_internal.metrics_blockers() IS 'part of metrics: lock waits now';
GRANT EXECUTE ON FUNCTION pgscale_internal.metrics_blockers() TO pg_monitor;

CREATE FUNCTION pgscale_internal.metrics_now() RETURNS SETOF pgscale_internal.metric
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
SELECT 'pgscale_diagnosis', 'gauge', 'Whether this rule of diagnosis has found a cause, and with which certainty: 1 if it has, 0 otherwise.',
       jsonb_build_object('rule', r.rule, 'certainty', c.certainty), coalesce((c.certainty = d.certainty)::integer, 0)::float8
  FROM unnest((SELECT pgscale_internal.now_rules())) WITH ORDINALITY r(rule, place)
  CROSS JOIN unnest('{high,medium,low}'::text[]) WITH ORDINALITY c(certainty, place)
  -- a rule that has found several causes counts with the most certain one
  LEFT JOIN (SELECT DISTINCT ON (f.rule) f.rule, f.certainty FROM pgscale.diagnosis() f ORDER BY f.rule, f.rank) d ON d.rule = r.rule
 ORDER BY r.place, c.place
$$;
COMMENT ON FUNCTION pgscale_internal.metrics_now() IS 'part of metrics: which rules of diagnosis have found a cause, and how certain it is';
GRANT EXECUTE ON FUNCTION pgscale_internal.metrics_now() TO pg_monitor;

CREATE FUNCTION pgscale_internal.metrics_archive() RETURNS SETOF pgscale_internal.metric
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
SELECT m.*
  -- an hour has at most 60 rows, and to plan for each partition once is half the work
  FROM (SELECT max(extract(epoch FROM m.at) + m.period_s) AS last,
               coalesce(sum(m.rounds) FILTER (WHERE m.at > now() - interval '1 hour'), 0) AS rounds
          FROM (SELECT a.at, a.period_s, a.rounds FROM pgscale.archive_minutes a WHERE NOT a.pulled ORDER BY a.at DESC LIMIT 61) m
        HAVING count(*) > 0) a
  CROSS JOIN LATERAL (VALUES
    ('pgscale_archive_last_timestamp_seconds', 'gauge', 'End of the latest minute of the archive in this database, in Unix time; absent if it has none.', '{}'::jsonb, a.last::float8),
    ('pgscale_archive_rounds', 'gauge', 'Minutes of the last hour that the archive in this database has; 60 if none is missing.', '{}', a.rounds)
  ) m(name, type, help, labels, value)
 UNION ALL
SELECT m.*
  FROM (SELECT * FROM pgscale.archive_nodes n
         WHERE n.state <> 'gone' AND (SELECT count(*) > 1 FROM pgscale.archive_nodes x WHERE x.state <> 'gone')) n
  CROSS JOIN LATERAL (VALUES
    ('pgscale_archive_node_up', 'gauge', 'Whether the node answered the archive in this database last.', jsonb_build_object('node', n.node), (n.state = 'ok')::integer::float8),
    ('pgscale_archive_node_last_timestamp_seconds', 'gauge', 'Start of the latest minute of the node in the archive in this database, in Unix time.', jsonb_build_object('node', n.node), extract(epoch FROM n.at)::float8),
    ('pgscale_archive_node_active_sessions', 'gauge', 'Average of active sessions of the node in that minute.', jsonb_build_object('node', n.node), n.active_sessions),
    ('pgscale_archive_node_lag_seconds', 'gauge', 'How far replay of the node was behind at the end of that minute; of a primary, its standby furthest behind.', jsonb_build_object('node', n.node), n.lag_s)
  ) m(name, type, help, labels, value)
 WHERE m.value IS NOT NULL
$$;
COMMENT ON FUNCTION pgscale_internal.metrics_archive() IS 'part of metrics: the latest minutes of the archive, of its nodes, too';
GRANT EXECUTE ON FUNCTION pgscale_internal.metrics_archive() TO pg_monitor;

CREATE FUNCTION pgscale_internal.metrics_sweeper() RETURNS SETOF pgscale_internal.metric
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
WITH s AS MATERIALIZED (SELECT s.*, current_setting('block_size')::float8 AS page FROM pgscale_internal.sweeper_stats() s)
SELECT 'pgscale_sweeper_run_pages_bucket', 'histogram', 'Pages of a run of neighbours that the sweeper wrote.',
       jsonb_build_object('le', CASE WHEN r.class < cardinality(s.runs_by_pages) THEN (2 ^ (r.class - 1))::text ELSE '+Inf' END),
       (sum(r.runs) OVER (ORDER BY r.class))::float8
  FROM s CROSS JOIN unnest(s.runs_by_pages) WITH ORDINALITY r(runs, class)
UNION ALL
SELECT m.*
  FROM s
  CROSS JOIN LATERAL (VALUES
    ('pgscale_sweeper_run_pages_sum', 'histogram', 'Pages of a run of neighbours that the sweeper wrote.', '{}'::jsonb, s.written::float8),
    ('pgscale_sweeper_run_pages_count', 'histogram', 'Pages of a run of neighbours that the sweeper wrote.', '{}', s.runs),
    ('pgscale_sweeper_ready_bytes', 'gauge', 'Size of the clean buffers at hand, an estimate.', '{}', s.ready * s.page),
    ('pgscale_sweeper_ticks_total', 'counter', 'Rounds of the sweeper.', '{}', s.ticks),
    ('pgscale_sweeper_starved_ticks_total', 'counter', 'Rounds at work that found no buffer ready, or only dirty ones.', '{}', s.starved),
    ('pgscale_sweeper_scanned_buffers_total', 'counter', 'Buffers that the sweeper''s hand passed.', '{}', s.scanned),
    ('pgscale_sweeper_supplied_buffers_total', 'counter', 'Buffers made ready, as they were or after a write.', '{"kind": "clean"}', s.supplied_clean),
    ('pgscale_sweeper_supplied_buffers_total', 'counter', 'Buffers made ready, as they were or after a write.', '{"kind": "written"}', s.supplied_written),
    ('pgscale_sweeper_consumed_buffers_total', 'counter', 'Ready buffers that backends took.', '{}', s.consumed),
    ('pgscale_sweeper_reused_buffers_total', 'counter', 'Ready buffers that were used again for their old page.', '{}', s.reused),
    ('pgscale_sweeper_written_bytes_total', 'counter', 'Size of the pages that the sweeper wrote.', '{}', s.written * s.page),
    ('pgscale_sweeper_write_seconds_total', 'counter', 'Time that all writers together spent in writes.', '{}', s.write_ms / 1e3),
    ('pgscale_sweeper_writeback_seconds_total', 'counter', 'Time spent in requests to the kernel to start writing.', '{}', s.writeback_ms / 1e3),
    ('pgscale_sweeper_wal_flushes_total', 'counter', 'WAL flushes for pages that had been left out.', '{}', s.wal_flushes),
    ('pgscale_sweeper_errors_total', 'counter', 'Rounds that ended in an error.', '{}', s.errors),
    ('pgscale_sweeper_cpu_seconds_total', 'counter', 'CPU time of the sweeper and its writers.', '{}', (s.cpu_ms + s.writer_cpu_ms) / 1e3),
    ('pgscale_sweeper_backend_written_bytes_total', 'counter', 'Size of the pages that backends and recovery wrote themselves; zero after a reset of the server''s statistics, too.', '{}', s.backend_writes * s.page)
  ) m(name, type, help, labels, value)
$$;
COMMENT ON FUNCTION pgscale_internal.metrics_sweeper() IS 'part of metrics: the sweeper';
GRANT EXECUTE ON FUNCTION pgscale_internal.metrics_sweeper() TO pg_monitor;

CREATE FUNCTION pgscale_internal.metrics_buffer_usage() RETURNS SETOF pgscale_internal.metric
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
WITH b AS MATERIALIZED (
    SELECT u.*, current_setting('block_size')::float8 AS page FROM pgscale_internal.buffer_usage_sample(4096) u)
SELECT 'pgscale_buffer_usage_bytes', 'gauge', 'Size of the shared buffers with a usage count, estimated from 4096 of them.',
       jsonb_build_object('usage_count', coalesce(b.usage_count::text, 'none')), b.buffers * b.page
  FROM b
UNION ALL
SELECT 'pgscale_buffer_usage_dirty_bytes', 'gauge', 'Size of the shared buffers that must be written, estimated from 4096 of them.',
       '{}', sum(b.dirty * b.page)
  FROM b
UNION ALL
SELECT 'pgscale_buffer_usage_pinned_bytes', 'gauge', 'Size of the shared buffers in use at this moment, estimated from 4096 of them.',
       '{}', sum(b.pinned * b.page)
  FROM b
$$;
COMMENT ON FUNCTION pgscale_internal.metrics_buffer_usage() IS 'part of metrics: usage counts of a sample of the buffers';
GRANT EXECUTE ON FUNCTION pgscale_internal.metrics_buffer_usage() TO pg_monitor;

CREATE FUNCTION pgscale_internal.metrics_writeback() RETURNS SETOF pgscale_internal.metric
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
SELECT m.*
  FROM pgscale_internal.writeback_stats() w
  CROSS JOIN LATERAL (VALUES
    ('pgscale_writeback_cluster_dirty_bytes', 'gauge', 'What the server has written and the kernel has not, as far as known.', '{}'::jsonb, w.cluster_dirty_bytes::float8),
    ('pgscale_writeback_cap_bytes', 'gauge', 'Cap in force on what the server has written and the kernel has not.', '{}', w.cap_bytes),
    ('pgscale_writeback_window_bytes', 'gauge', 'Most bytes that may be on their way to the disk by request.', '{}', w.window_bytes),
    ('pgscale_writeback_written_bytes_total', 'counter', 'Size of the writes that were seen in the buffers.', '{}', w.written_bytes),
    ('pgscale_writeback_found_bytes_total', 'counter', 'Size of the writes that were found in files.', '{}', w.found_bytes),
    ('pgscale_writeback_requests_total', 'counter', 'Requests to the kernel to write.', '{}', w.requests),
    ('pgscale_writeback_requested_bytes_total', 'counter', 'Size of the requests to the kernel to write.', '{}', w.requested_bytes),
    ('pgscale_writeback_taken_bytes_total', 'counter', 'Bytes that reached the disk without a request.', '{}', w.taken_bytes),
    ('pgscale_writeback_request_seconds_total', 'counter', 'Time spent in requests to the kernel to write.', '{}', w.request_ms / 1e3),
    ('pgscale_writeback_rounds_total', 'counter', 'Rounds of the writeback worker.', '{}', w.rounds),
    ('pgscale_writeback_backed_off_rounds_total', 'counter', 'Rounds that asked for less because reads were slow.', '{}', w.backed_off),
    ('pgscale_writeback_errors_total', 'counter', 'Rounds that ended in an error.', '{}', w.errors),
    ('pgscale_writeback_cpu_seconds_total', 'counter', 'CPU time of the writeback worker.', '{}', w.cpu_ms / 1e3),
    ('pgscale_writeback_machine_dirty_bytes', 'gauge', 'Dirty in the memory of the whole machine.', '{}', w.dirty_bytes),
    ('pgscale_writeback_machine_writeback_bytes', 'gauge', 'Of the whole machine: on its way to a disk.', '{}', w.writeback_bytes),
    ('pgscale_writeback_machine_background_threshold_bytes', 'gauge', 'Dirty bytes from which on the kernel starts to write.', '{}', w.background_threshold_bytes),
    ('pgscale_writeback_machine_threshold_bytes', 'gauge', 'Dirty bytes from which on the kernel makes writers wait.', '{}', w.threshold_bytes),
    ('pgscale_writeback_machine_io_pressure_ratio', 'gauge', 'Fraction of the last 10 s in which some process waited for I/O.', '{}', w.io_pressure_fraction)
  ) m(name, type, help, labels, value)
 WHERE m.value IS NOT NULL
$$;
COMMENT ON FUNCTION pgscale_internal.metrics_writeback() IS 'part of metrics: the kernel''s writeback';
GRANT EXECUTE ON FUNCTION pgscale_internal.metrics_writeback() TO pg_monitor;

CREATE FUNCTION pgscale_internal.metrics_relocation() RETURNS SETOF pgscale_internal.metric
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
SELECT 'pgscale_relocation_jobs', 'gauge', 'Relocation jobs of this database by state.', jsonb_build_object('state', s.state),
       count(j.state)::float8
  FROM unnest('{queued,waiting,running,verifying,done,failed,cancelled,lost,foreign}'::text[]) WITH ORDINALITY s(state, place)
  LEFT JOIN pgscale.relocation_jobs j ON j.state = s.state
 GROUP BY s.state, s.place ORDER BY s.place
$$;
COMMENT ON FUNCTION pgscale_internal.metrics_relocation() IS 'part of metrics: jobs of relocation';
GRANT EXECUTE ON FUNCTION pgscale_internal.metrics_relocation() TO pg_monitor;

CREATE FUNCTION pgscale_internal.metrics_tuning() RETURNS SETOF pgscale_internal.metric
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
SELECT 'pgscale_tuning_advice', 'gauge', 'Pieces of advice now, by confidence.', jsonb_build_object('confidence', c.confidence),
       count(f.rule)::float8
  FROM unnest('{high,medium,low}'::text[]) WITH ORDINALITY c(confidence, place)
  LEFT JOIN pgscale.advice_rules() f ON f.confidence = c.confidence AND f.verdict = 'advises'
 GROUP BY c.confidence, c.place ORDER BY c.place
$$;
COMMENT ON FUNCTION pgscale_internal.metrics_tuning() IS 'part of metrics: pieces of advice';
GRANT EXECUTE ON FUNCTION pgscale_internal.metrics_tuning() TO pg_monitor;

CREATE FUNCTION pgscale_internal.metrics_scalability() RETURNS SETOF pgscale_internal.metric
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
SELECT m.*
  FROM pgscale_internal.scalability() s
  CROSS JOIN LATERAL (VALUES
    ('pgscale_scalability_concurrency', 'gauge', 'Active sessions in the latest bucket.', '{}'::jsonb, s.concurrency),
    ('pgscale_scalability_throughput', 'gauge', 'Transactions a second in the latest bucket.', '{}', s.throughput),
    ('pgscale_scalability_peak_concurrency', 'gauge', 'Active sessions at which throughput is highest; absent while that is unknown.', '{}', s.peak_concurrency),
    ('pgscale_scalability_peak_throughput', 'gauge', 'Transactions a second at the peak; absent while that is unknown.', '{}', s.peak_throughput),
    ('pgscale_scalability_lambda', 'gauge', 'Transactions a second of one session.', '{}', s.lambda),
    ('pgscale_scalability_sigma', 'gauge', 'Contention: the fraction of the work that only one session can do at a time.', '{}', s.sigma),
    ('pgscale_scalability_kappa', 'gauge', 'Coherency: the cost of each pair of sessions.', '{}', s.kappa),
    ('pgscale_scalability_r2', 'gauge', 'Fraction of the variance of throughput that the law explains.', '{}', s.r2),
    ('pgscale_scalability_buckets_total', 'counter', 'Measurements used.', '{}', s.buckets),
    ('pgscale_scalability_discarded_buckets_total', 'counter', 'Measurements not used.', '{}', s.discarded)
  ) m(name, type, help, labels, value)
 WHERE m.value IS NOT NULL
$$;
COMMENT ON FUNCTION pgscale_internal.metrics_scalability() IS 'part of metrics: the scalability law of this server';
GRANT EXECUTE ON FUNCTION pgscale_internal.metrics_scalability() TO pg_monitor;

CREATE FUNCTION pgscale_internal.metrics_numa() RETURNS SETOF pgscale_internal.metric
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
BEGIN
    RETURN QUERY
    SELECT m.*
      FROM (SELECT * FROM pgscale_internal.numa_nodes() ORDER BY node LIMIT 64) n
      CROSS JOIN LATERAL (VALUES
        ('pgscale_numa_memory_bytes', 'gauge', 'Memory of a NUMA node.', jsonb_build_object('node', n.node::text), n.memory_bytes::float8),
        ('pgscale_numa_free_bytes', 'gauge', 'Free memory of a NUMA node, without the page cache.', jsonb_build_object('node', n.node::text), n.free_bytes)
      ) m(name, type, help, labels, value)
     WHERE m.value IS NOT NULL;
EXCEPTION WHEN feature_not_supported THEN
    -- not on this machine, as health says
    NULL;
END
$$;
COMMENT ON FUNCTION pgscale_internal.metrics_numa() IS 'part of metrics: memory of the NUMA nodes';
GRANT EXECUTE ON FUNCTION pgscale_internal.metrics_numa() TO pg_monitor;

CREATE FUNCTION pgscale.metrics(
    feature text DEFAULT NULL,
    OUT name text, OUT type text, OUT help text, OUT labels jsonb, OUT value double precision)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 250
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    features CONSTANT text[] := '{health,now,fleet,connections,sampler,blockers,archive,sweeper,buffer_usage,writeback,relocation,tuning,scalability,numa}';
    one text;
BEGIN
    PERFORM pgscale_internal.short_locks();
    IF metrics.feature <> ALL (features) THEN
        RAISE invalid_parameter_value USING MESSAGE = format('there are no metrics of a feature named "%s"', metrics.feature),
            HINT = format('Features with metrics are %s; NULL stands for all.', array_to_string(features, ', '));
    END IF;
    FOREACH one IN ARRAY features LOOP
        CONTINUE WHEN metrics.feature <> one;
        BEGIN
            RETURN QUERY EXECUTE format('SELECT * FROM pgscale_internal.metrics_%s()', one);
        EXCEPTION WHEN lock_not_available THEN
            RETURN QUERY SELECT 'pgscale_metrics_missing', 'gauge',
                                'A feature whose metrics are missing while another session has locked a table of pgscale; always 1.',
                                jsonb_build_object('feature', one), 1::float8;
        END;
    END LOOP;
END
$$;
COMMENT ON FUNCTION pgscale.metrics(text) IS
'counters, gauges and histograms for monitoring systems, at most 1000 rows; counters fall only at a reset or restart; reads no disk. '
'Errors: object_not_in_prerequisite_state without preload; invalid_parameter_value for another feature
feature: health, now, fleet, connections, sampler, blockers, archive, sweeper, buffer_usage, writeback, relocation, tuning, scalability '
'or numa; NULL: all
name: name of the metric, with its base unit; counters end with _total, parts of histograms with _bucket, _sum or _count
type: counter, gauge or histogram
help: description, equal in all rows of a name
labels: an object of texts; {} without labels; name and labels together are unique
value: never NULL, infinite or not a number: a row whose value is unknown is missing';
GRANT EXECUTE ON FUNCTION pgscale.metrics(text) TO pg_monitor;
