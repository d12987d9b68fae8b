-- What a trace answers to wrong input, and that its rows are all of its time. Whether what it sees is true: t/trace_truth.pl.
CREATE EXTENSION pgscale;
\pset format unaligned \pset footer off

-- an auxiliary process, which sleeps nearly all the time
SELECT pid AS checkpointer FROM pg_stat_activity WHERE backend_type = 'checkpointer' \gset
SELECT count(*) BETWEEN 1 AND 1000 AS some, min(seq) AS first, max(seq) = count(*) AS all_numbered,
       sum(duration_us) BETWEEN 49000 AND 10000000 AS long_enough, bool_and(duration_us >= 0) AS positive,
       bool_or(event_type = 'Activity' AND event = 'CheckpointerMain') AS idle, count(queryid) AS queries,
       bool_and(started_at BETWEEN now() - interval '1 s' AND clock_timestamp()) AS now, min(ended_by) AS ended_by,
       min(coverage_fraction) BETWEEN 0 AND 1 AND min(coverage_fraction) = max(coverage_fraction) AS coverage,
       min(longest_gap_us) BETWEEN 0 AND (1 - max(coverage_fraction)) * sum(duration_us) + 0.001 AS longest
  FROM pgscale.trace_waits(:checkpointer, '50 ms');
SELECT event_type, event, count >= 1 AS some, total_ms > 40 AS long_enough, fraction > 0.5 AS most, min_us <= p50_us AS p50,
       p50_us <= p95_us AS p95, p95_us <= p99_us AS p99, p99_us <= max_us AS max, spans_gap <= count AS spans_gap,
       coverage_fraction BETWEEN 0 AND 1 AS coverage, started_at BETWEEN now() - interval '1 s' AND clock_timestamp() AS now,
       longest_gap_us BETWEEN 0 AND (1 - coverage_fraction) * total_ms / fraction * 1000 + 0.001 AS longest, ended_by
  FROM pgscale.trace_summary(:checkpointer, '50 ms') WHERE event_type = 'Activity';
SELECT count(*), max(seq) FROM pgscale.trace_waits(:checkpointer, '20 ms', 1);

-- NULL is no process, and no time
SELECT count(*) FROM pgscale.trace_waits(NULL);
SELECT count(*) FROM pgscale.trace_summary(:checkpointer, NULL);
SELECT count(*) FROM pgscale.trace_waits(:checkpointer, '1 s', NULL);

-- wrong input; Linux gives no process the number 4194304
DO $$
DECLARE
    call text;
    message text;
    detail text;
    hint text;
    checkpointer text := (SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer');
BEGIN
    FOREACH call IN ARRAY ARRAY[
        'trace_waits(0)', 'trace_waits(-1)', 'trace_waits(-2147483648)', 'trace_waits(4194304)', 'trace_waits(pg_backend_pid())',
        'trace_summary(0)', 'trace_waits(0, statement_within => ''1 s'')', 'trace_summary(pg_backend_pid(), ''1 s'', ''1 s'')',
        'trace_waits(C, ''0'')', 'trace_waits(C, ''-1 s'')', 'trace_waits(C, ''1 h 1 us'')', 'trace_waits(C, ''178000000 years'')',
        'trace_waits(C, ''1 mon -30 days'')', 'trace_summary(C, ''0'')', 'trace_summary(C, ''1 day'')',
        'trace_waits(C, statement_within => ''0'')', 'trace_waits(C, statement_within => ''2 h'')', 'trace_waits(C, ''0'', statement_within => ''1 s'')',
        'trace_summary(C, ''1 s'', ''-1 s'')',
        'trace_waits(C, ''1 s'', 0)', 'trace_waits(C, ''1 s'', -1)', 'trace_waits(C, ''1 s'', 1000001)', 'trace_waits(C, ''1 s'', 2147483647)',
        'trace_waits(C, ''1 s'', 0, ''1 s'')', 'trace_waits(C, statement_within => ''1 s'')', 'trace_summary(C, ''1 s'', ''1 s'')']
    LOOP
        BEGIN
            EXECUTE 'SELECT pgscale.' || replace(call, '(C', '(' || checkpointer);
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
            message := regexp_replace(message, format('\m%s\M', checkpointer), 'C');
            RAISE INFO USING MESSAGE = format('%s: %s: %s%s', call, SQLSTATE, message, detail), HINT = hint;
        END;
    END LOOP;
END $$;

-- nothing is left behind
SELECT count(*) FROM pg_locks WHERE objsubid = 3;
BEGIN;
SELECT count(*) > 0 AS traced FROM pgscale.trace_waits(:checkpointer, '1 ms');
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory';
COMMIT;

-- the settings as they are delivered
SELECT name, boot_val, unit, min_val, max_val, context FROM pg_settings WHERE name LIKE 'pgscale.trace%' ORDER BY name COLLATE "C";
DROP EXTENSION pgscale;
