-- Current waits of the server's processes, and statistics of the sampler.

CREATE FUNCTION pgscale_internal.wait_current(
    OUT pid integer, OUT backend_type text, OUT leader_pid integer,
    OUT datid oid, OUT userid oid, OUT queryid bigint, OUT state text,
    OUT event_type text, OUT event text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_wait_current'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale_internal.wait_current() IS 'the rows of pgscale.wait_current';
GRANT EXECUTE ON FUNCTION pgscale_internal.wait_current() TO pg_monitor;

CREATE VIEW pgscale.wait_current AS
    SELECT c.pid, c.backend_type, c.state, c.event_type, c.event, pgscale_internal.name_of(c.datid) AS datname,
           pgscale_internal.name_of(c.userid, true) AS usename, c.leader_pid, c.queryid, c.datid, c.userid
      FROM pgscale_internal.wait_current() c;
COMMENT ON VIEW pgscale.wait_current IS 'what each server process waits for at this moment; needs no preload';
GRANT SELECT ON pgscale.wait_current TO pg_monitor;
COMMENT ON COLUMN pgscale.wait_current.pid IS 'process ID';
COMMENT ON COLUMN pgscale.wait_current.backend_type IS 'kind of process as in pg_stat_activity; also parallel worker and unknown';
COMMENT ON COLUMN pgscale.wait_current.state IS 'state of the backend as in pg_stat_activity';
COMMENT ON COLUMN pgscale.wait_current.event_type IS
'type of the wait event as in pg_stat_activity; CPU for a backend that executes a statement and does not wait';
COMMENT ON COLUMN pgscale.wait_current.event IS 'name of the wait event as in pg_stat_activity, or CPU; NULL if nothing is known of the process';
COMMENT ON COLUMN pgscale.wait_current.datname IS 'name of the database; NULL if the process has none or it was dropped';
COMMENT ON COLUMN pgscale.wait_current.usename IS 'name of the session user; NULL if the process has none or it was dropped';
COMMENT ON COLUMN pgscale.wait_current.leader_pid IS 'process ID of the leader of a parallel worker';
COMMENT ON COLUMN pgscale.wait_current.queryid IS 'query identifier; NULL outside a statement or if it is unknown';
COMMENT ON COLUMN pgscale.wait_current.datid IS 'OID of the database; NULL if the process has none';
COMMENT ON COLUMN pgscale.wait_current.userid IS 'OID of the session user; NULL if the process has none';

CREATE FUNCTION pgscale_internal.sampler_stats(
    OUT pid integer, OUT starts bigint, OUT period_ms double precision,
    OUT ticks bigint, OUT missed_ticks bigint, OUT lateness_mean_us double precision,
    OUT lateness_p50_us double precision, OUT lateness_p99_us double precision,
    OUT lateness_max_us double precision, OUT lateness_classes bigint[],
    OUT observed_ms double precision, OUT active_ms double precision, OUT idle_in_transaction_ms double precision,
    OUT tick_mean_us double precision, OUT tick_max_us double precision,
    OUT cpu_ms double precision, OUT cpu_fraction double precision,
    OUT samples bigint, OUT wait_ms double precision,
    OUT entries integer, OUT evictions bigint, OUT torn_reads bigint, OUT cpu_readings bigint,
    OUT blocker_looks bigint,
    OUT stats_reset timestamptz)
AS 'MODULE_PATHNAME', 'pgscale_sampler_stats'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale_internal.sampler_stats() IS 'the rows of pgscale.sampler_stats';
GRANT EXECUTE ON FUNCTION pgscale_internal.sampler_stats() TO pg_monitor;

CREATE VIEW pgscale.sampler_stats AS
    SELECT period_ms, ticks, missed_ticks, pgscale_internal.three_digits(lateness_p99_us) AS lateness_p99_us,
           pgscale_internal.three_digits(tick_mean_us) AS tick_mean_us, pgscale_internal.three_digits(cpu_fraction) AS cpu_fraction,
           samples, entries, evictions, pgscale_internal.three_digits(lateness_mean_us) AS lateness_mean_us,
           pgscale_internal.three_digits(lateness_p50_us) AS lateness_p50_us,
           pgscale_internal.three_digits(lateness_max_us) AS lateness_max_us, pgscale_internal.three_digits(tick_max_us) AS tick_max_us,
           round(observed_ms * 10) / 10 AS observed_ms, round(active_ms * 10) / 10 AS active_ms,
           round(idle_in_transaction_ms * 10) / 10 AS idle_in_transaction_ms, round(cpu_ms * 10) / 10 AS cpu_ms,
           round(wait_ms * 10) / 10 AS wait_ms, torn_reads, cpu_readings, blocker_looks, pid, starts, stats_reset, lateness_classes
      FROM pgscale_internal.sampler_stats();
COMMENT ON VIEW pgscale.sampler_stats IS 'the sampler''s schedule and cost, and the profile''s totals';
GRANT SELECT ON pgscale.sampler_stats TO pg_monitor;
COMMENT ON COLUMN pgscale.sampler_stats.period_ms IS 'period in force, in milliseconds; NULL if the sampler is off';
COMMENT ON COLUMN pgscale.sampler_stats.ticks IS 'number of ticks taken';
COMMENT ON COLUMN pgscale.sampler_stats.missed_ticks IS 'number of ticks that were due and skipped';
COMMENT ON COLUMN pgscale.sampler_stats.lateness_p99_us IS '99th percentile of the delay of the first due tick, in microseconds, interpolated';
COMMENT ON COLUMN pgscale.sampler_stats.tick_mean_us IS 'mean wall-clock time of a tick, in microseconds';
COMMENT ON COLUMN pgscale.sampler_stats.cpu_fraction IS 'CPU time of the worker as a fraction of one CPU, 0 to 1';
COMMENT ON COLUMN pgscale.sampler_stats.samples IS 'number of samples in the profile';
COMMENT ON COLUMN pgscale.sampler_stats.entries IS 'number of profile entries in use, those from before a reset included';
COMMENT ON COLUMN pgscale.sampler_stats.evictions IS 'number of profile entries evicted to the row other of their wait event';
COMMENT ON COLUMN pgscale.sampler_stats.lateness_mean_us IS 'mean delay of the first due tick, in microseconds';
COMMENT ON COLUMN pgscale.sampler_stats.lateness_p50_us IS 'median delay of the first due tick, in microseconds, interpolated';
COMMENT ON COLUMN pgscale.sampler_stats.lateness_max_us IS 'longest delay of the first due tick, in microseconds';
COMMENT ON COLUMN pgscale.sampler_stats.tick_max_us IS 'longest wall-clock time of a tick, in microseconds';
COMMENT ON COLUMN pgscale.sampler_stats.observed_ms IS 'time that all ticks represent, in milliseconds';
COMMENT ON COLUMN pgscale.sampler_stats.active_ms IS
'time of all active sessions together, in milliseconds; sessions are client backends and their parallel workers';
COMMENT ON COLUMN pgscale.sampler_stats.idle_in_transaction_ms IS 'time of all sessions together that were idle in a transaction, in milliseconds';
COMMENT ON COLUMN pgscale.sampler_stats.cpu_ms IS 'CPU time of the worker, in milliseconds';
COMMENT ON COLUMN pgscale.sampler_stats.wait_ms IS 'time that the samples in the profile represent, in milliseconds';
COMMENT ON COLUMN pgscale.sampler_stats.torn_reads IS 'number of repeated reads of a process''s status';
COMMENT ON COLUMN pgscale.sampler_stats.cpu_readings IS 'number of readings of the kernel''s CPU counts of a session or an io worker';
COMMENT ON COLUMN pgscale.sampler_stats.blocker_looks IS 'number of readings of the lock manager to find blockers of long waits, at most one per second';
COMMENT ON COLUMN pgscale.sampler_stats.pid IS 'process ID of the worker';
COMMENT ON COLUMN pgscale.sampler_stats.starts IS 'number of times that the worker was started';
COMMENT ON COLUMN pgscale.sampler_stats.stats_reset IS 'time of the latest reset';
COMMENT ON COLUMN pgscale.sampler_stats.lateness_classes IS 'number of ticks less than 1, 2, 4, 8 ... microseconds late, each in the first class that fits';
