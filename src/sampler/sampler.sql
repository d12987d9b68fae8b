-- What the sampler has seen, and how the sampler fares.

CREATE FUNCTION pgscale.wait_profile(
    OUT backend_type text, OUT datid oid, OUT userid oid, OUT queryid bigint,
    OUT event_type text, OUT event text, OUT idle boolean,
    OUT samples bigint, OUT wait_ms double precision, OUT application_name text, OUT client_addr inet,
    OUT plan_id bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_wait_profile'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 5000;
COMMENT ON FUNCTION pgscale.wait_profile() IS
'accumulated waits, idle ones included; wait_ms is the time that the samples represent';
GRANT EXECUTE ON FUNCTION pgscale.wait_profile() TO pg_monitor;

CREATE VIEW pgscale.wait_profile AS
    SELECT p.backend_type, p.event_type, p.event, round(p.wait_ms * 10) / 10 AS wait_ms,
           round(p.wait_ms / nullif(sum(p.wait_ms) OVER (), 0) * 1e6) / 1e6 AS fraction,
           pgscale.foreign_name(d.datname) AS datname, pgscale.foreign_name(u.rolname) AS usename, p.queryid
      FROM (SELECT backend_type, datid, userid, queryid, event_type, event, idle, sum(wait_ms) AS wait_ms
              FROM pgscale.wait_profile() GROUP BY 1, 2, 3, 4, 5, 6, 7) p
      LEFT JOIN pg_database d ON d.oid = p.datid
      LEFT JOIN pg_roles u ON u.oid = p.userid
     WHERE NOT p.idle
     ORDER BY p.wait_ms DESC;
COMMENT ON VIEW pgscale.wait_profile IS
'accumulated waits, longest first, without idle ones, which only the function has';
GRANT SELECT ON pgscale.wait_profile TO pg_monitor;
COMMENT ON COLUMN pgscale.wait_profile.backend_type IS
'kind of process as in pg_stat_activity; also parallel worker and unknown; other for evicted entries';
COMMENT ON COLUMN pgscale.wait_profile.event_type IS
'type of the wait event as in pg_stat_activity; CPU for a backend that executes a statement and does not wait';
COMMENT ON COLUMN pgscale.wait_profile.event IS
'name of the wait event as in pg_stat_activity, or CPU';
COMMENT ON COLUMN pgscale.wait_profile.wait_ms IS
'time that the samples represent, in milliseconds';
COMMENT ON COLUMN pgscale.wait_profile.fraction IS
'fraction of the time of all rows shown, 0 to 1';
COMMENT ON COLUMN pgscale.wait_profile.datname IS
'name of the database; NULL if the process has none or it was dropped';
COMMENT ON COLUMN pgscale.wait_profile.usename IS
'name of the session user; NULL if the process has none or it was dropped';
COMMENT ON COLUMN pgscale.wait_profile.queryid IS
'query identifier; NULL outside a statement or if it is unknown';

CREATE FUNCTION pgscale.wait_history(
    since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL,
    OUT sampled_at timestamptz, OUT pid integer, OUT backend_type text,
    OUT datid oid, OUT userid oid, OUT queryid bigint, OUT state text,
    OUT event_type text, OUT event text, OUT blocker_pid integer, OUT root_pid integer, OUT root_application_name text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_wait_history'
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 50000;
COMMENT ON FUNCTION pgscale.wait_history(timestamptz, timestamptz) IS
'the latest samples one by one, oldest first, from a time on and before another';
GRANT EXECUTE ON FUNCTION pgscale.wait_history(timestamptz, timestamptz) TO pg_monitor;

CREATE VIEW pgscale.wait_history AS
    SELECT h.sampled_at, h.pid, h.backend_type, h.state, h.event_type, h.event, h.blocker_pid, h.root_pid,
           h.root_application_name, pgscale.foreign_name(d.datname) AS datname, pgscale.foreign_name(u.rolname) AS usename,
           h.queryid, h.datid, h.userid
      FROM pgscale.wait_history() WITH ORDINALITY h
      LEFT JOIN pg_database d ON d.oid = h.datid
      LEFT JOIN pg_roles u ON u.oid = h.userid
     ORDER BY h.ordinality;
COMMENT ON VIEW pgscale.wait_history IS
'the latest samples one by one, oldest first';
GRANT SELECT ON pgscale.wait_history TO pg_monitor;
COMMENT ON COLUMN pgscale.wait_history.sampled_at IS
'time of the sample';
COMMENT ON COLUMN pgscale.wait_history.pid IS
'process ID';
COMMENT ON COLUMN pgscale.wait_history.backend_type IS
'kind of process as in pg_stat_activity; also parallel worker and unknown';
COMMENT ON COLUMN pgscale.wait_history.state IS
'state of the backend as in pg_stat_activity';
COMMENT ON COLUMN pgscale.wait_history.event_type IS
'type of the wait event as in pg_stat_activity; CPU for a backend that executes a statement and does not wait';
COMMENT ON COLUMN pgscale.wait_history.event IS
'name of the wait event as in pg_stat_activity, or CPU';
COMMENT ON COLUMN pgscale.wait_history.blocker_pid IS
'of a long lock wait: process ID of its first blocker; 0 for a prepared transaction';
COMMENT ON COLUMN pgscale.wait_history.root_pid IS
'of a long lock wait: process ID of the root blocker; 0 for a prepared transaction';
COMMENT ON COLUMN pgscale.wait_history.root_application_name IS
'name of the root blocker''s application then; NULL for other users'' sessions without pg_read_all_stats, and after a restart';
COMMENT ON COLUMN pgscale.wait_history.datname IS
'name of the database; NULL if the process has none or it was dropped';
COMMENT ON COLUMN pgscale.wait_history.usename IS
'name of the session user; NULL if the process has none or it was dropped';
COMMENT ON COLUMN pgscale.wait_history.queryid IS
'query identifier; NULL outside a statement or if it is unknown';
COMMENT ON COLUMN pgscale.wait_history.datid IS
'OID of the database; NULL if the process has none';
COMMENT ON COLUMN pgscale.wait_history.userid IS
'OID of the session user; NULL if the process has none';

CREATE FUNCTION pgscale.blocker_profile(
    OUT root_pid integer, OUT backend_start timestamptz, OUT prepared_xid xid, OUT datid oid, OUT userid oid,
    OUT application_name text, OUT client_addr inet, OUT root_state text, OUT queryid bigint, OUT event text,
    OUT waited_ms double precision, OUT idle_in_transaction_ms double precision, OUT max_waiters integer,
    OUT first_seen timestamptz, OUT last_seen timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_blocker_profile'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 100;
COMMENT ON FUNCTION pgscale.blocker_profile() IS
'accumulated time that processes waited for locks, by process and application of the root blocker';
GRANT EXECUTE ON FUNCTION pgscale.blocker_profile() TO pg_monitor;

CREATE VIEW pgscale.blocker_profile AS
    SELECT CASE WHEN b.root_pid > 0 THEN b.root_pid::text
                WHEN b.root_pid = 0 THEN 'prepared ' || b.prepared_xid ELSE b.root_state END AS root,
           b.application_name, pgscale.foreign_name(u.rolname) AS usename, pgscale.foreign_name(d.datname) AS datname,
           round(b.waited_ms) AS waited_ms,
           round(b.waited_ms / nullif(sum(b.waited_ms) OVER (), 0) * 1000) / 1000 AS fraction,
           round(b.idle_in_transaction_ms / nullif(b.waited_ms, 0) * 1000) / 1000 AS idle_fraction,
           b.max_waiters
      FROM pgscale.blocker_profile() b
      LEFT JOIN pg_database d ON d.oid = b.datid
      LEFT JOIN pg_roles u ON u.oid = b.userid
     ORDER BY b.waited_ms DESC;
COMMENT ON VIEW pgscale.blocker_profile IS
'accumulated time that processes waited for locks, by root blocker, longest first';
GRANT SELECT ON pgscale.blocker_profile TO pg_monitor;
COMMENT ON COLUMN pgscale.blocker_profile.root IS
'process ID, or the transaction ID of a prepared transaction; not looked up: unknown roots; other: evicted roots';
COMMENT ON COLUMN pgscale.blocker_profile.application_name IS
'name of the application then: a connection of a pooler has a row for each; NULL for other users'' sessions without pg_read_all_stats';
COMMENT ON COLUMN pgscale.blocker_profile.usename IS
'name of the session user; NULL if the process has none or it was dropped';
COMMENT ON COLUMN pgscale.blocker_profile.datname IS
'name of the database; NULL if the process has none or it was dropped';
COMMENT ON COLUMN pgscale.blocker_profile.waited_ms IS
'time that processes waited behind this root, summed over processes, in milliseconds';
COMMENT ON COLUMN pgscale.blocker_profile.fraction IS
'fraction of all time that processes waited for locks, 0 to 1';
COMMENT ON COLUMN pgscale.blocker_profile.idle_fraction IS
'fraction of waited_ms while the root was idle in its transaction, 0 to 1; NULL if it has no process';
COMMENT ON COLUMN pgscale.blocker_profile.max_waiters IS
'greatest number of processes that waited behind it at one moment';

CREATE FUNCTION pgscale.wait_current(
    pid integer DEFAULT NULL,
    OUT pid integer, OUT backend_type text, OUT leader_pid integer,
    OUT datid oid, OUT userid oid, OUT queryid bigint, OUT state text,
    OUT event_type text, OUT event text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_wait_current'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale.wait_current(integer) IS
'what a server process, or every one, waits for at this moment; needs no preload';
GRANT EXECUTE ON FUNCTION pgscale.wait_current(integer) TO pg_monitor;

CREATE VIEW pgscale.wait_current AS
    SELECT c.pid, c.backend_type, c.state, c.event_type, c.event, pgscale.foreign_name(d.datname) AS datname,
           pgscale.foreign_name(u.rolname) AS usename, c.leader_pid, c.queryid, c.datid, c.userid
      FROM pgscale.wait_current() c
      LEFT JOIN pg_database d ON d.oid = c.datid
      LEFT JOIN pg_roles u ON u.oid = c.userid;
COMMENT ON VIEW pgscale.wait_current IS
'what every server process waits for at this moment';
GRANT SELECT ON pgscale.wait_current TO pg_monitor;
COMMENT ON COLUMN pgscale.wait_current.pid IS
'process ID';
COMMENT ON COLUMN pgscale.wait_current.backend_type IS
'kind of process as in pg_stat_activity; also parallel worker and unknown';
COMMENT ON COLUMN pgscale.wait_current.state IS
'state of the backend as in pg_stat_activity';
COMMENT ON COLUMN pgscale.wait_current.event_type IS
'type of the wait event as in pg_stat_activity; CPU for a backend that executes a statement and does not wait';
COMMENT ON COLUMN pgscale.wait_current.event IS
'name of the wait event as in pg_stat_activity, or CPU';
COMMENT ON COLUMN pgscale.wait_current.datname IS
'name of the database; NULL if the process has none or it was dropped';
COMMENT ON COLUMN pgscale.wait_current.usename IS
'name of the session user; NULL if the process has none or it was dropped';
COMMENT ON COLUMN pgscale.wait_current.leader_pid IS
'process ID of the leader of a parallel worker';
COMMENT ON COLUMN pgscale.wait_current.queryid IS
'query identifier; NULL outside a statement or if it is unknown';
COMMENT ON COLUMN pgscale.wait_current.datid IS
'OID of the database; NULL if the process has none';
COMMENT ON COLUMN pgscale.wait_current.userid IS
'OID of the session user; NULL if the process has none';

CREATE FUNCTION pgscale.wait_timeline(
    bucket interval DEFAULT '10 seconds',
    OUT bucket_start timestamptz, OUT event_type text,
    OUT active_sessions double precision, OUT observed_ms double precision)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_wait_timeline'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale.wait_timeline(interval) IS
'average active sessions in each bucket of time, by class of wait event; sessions that are idle in a transaction as IdleInTransaction';
GRANT EXECUTE ON FUNCTION pgscale.wait_timeline(interval) TO pg_monitor;

CREATE FUNCTION pgscale.wait_totals(
    OUT backend_type text, OUT event_type text, OUT event text, OUT wait_ms double precision,
    OUT stats_reset timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_wait_totals'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 50;
COMMENT ON FUNCTION pgscale.wait_totals() IS
'time in each wait event that is not idle, by type of process: at most 512 rows, which only increase until the next reset or restart';
GRANT EXECUTE ON FUNCTION pgscale.wait_totals() TO pg_monitor;

CREATE FUNCTION pgscale.sampler_stats(
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
COMMENT ON FUNCTION pgscale.sampler_stats() IS
'the sampler''s schedule and cost, and the profile''s totals';
GRANT EXECUTE ON FUNCTION pgscale.sampler_stats() TO pg_monitor;

CREATE VIEW pgscale.sampler_stats AS
    SELECT period_ms, ticks, missed_ticks, round(lateness_p99_us * 10) / 10 AS lateness_p99_us,
           round(tick_mean_us * 10) / 10 AS tick_mean_us, round(cpu_fraction * 100000) / 100000 AS cpu_fraction,
           samples, entries, evictions, round(lateness_mean_us * 10) / 10 AS lateness_mean_us,
           round(lateness_p50_us * 10) / 10 AS lateness_p50_us,
           round(lateness_max_us * 10) / 10 AS lateness_max_us, round(tick_max_us * 10) / 10 AS tick_max_us,
           round(observed_ms * 10) / 10 AS observed_ms, round(active_ms * 10) / 10 AS active_ms,
           round(idle_in_transaction_ms * 10) / 10 AS idle_in_transaction_ms, round(cpu_ms * 10) / 10 AS cpu_ms,
           round(wait_ms * 10) / 10 AS wait_ms, torn_reads, cpu_readings, blocker_looks, pid, starts, stats_reset, lateness_classes
      FROM pgscale.sampler_stats();
COMMENT ON VIEW pgscale.sampler_stats IS
'the sampler''s schedule and cost, and the profile''s totals';
GRANT SELECT ON pgscale.sampler_stats TO pg_monitor;
COMMENT ON COLUMN pgscale.sampler_stats.period_ms IS
'period in force, in milliseconds; NULL if the sampler is off';
COMMENT ON COLUMN pgscale.sampler_stats.ticks IS
'number of ticks taken';
COMMENT ON COLUMN pgscale.sampler_stats.missed_ticks IS
'number of ticks that were due and skipped';
COMMENT ON COLUMN pgscale.sampler_stats.lateness_p99_us IS
'99th percentile of the delay of a tick, in microseconds, interpolated';
COMMENT ON COLUMN pgscale.sampler_stats.tick_mean_us IS
'mean duration of a tick, in microseconds';
COMMENT ON COLUMN pgscale.sampler_stats.cpu_fraction IS
'CPU time of the worker as a fraction of one CPU, 0 to 1';
COMMENT ON COLUMN pgscale.sampler_stats.samples IS
'number of samples in the profile';
COMMENT ON COLUMN pgscale.sampler_stats.entries IS
'number of profile entries in use';
COMMENT ON COLUMN pgscale.sampler_stats.evictions IS
'number of profile entries evicted to other';
COMMENT ON COLUMN pgscale.sampler_stats.lateness_mean_us IS
'mean delay of a tick, in microseconds';
COMMENT ON COLUMN pgscale.sampler_stats.lateness_p50_us IS
'median delay of a tick, in microseconds, interpolated';
COMMENT ON COLUMN pgscale.sampler_stats.lateness_max_us IS
'longest delay of a tick, in microseconds';
COMMENT ON COLUMN pgscale.sampler_stats.tick_max_us IS
'longest duration of a tick, in microseconds';
COMMENT ON COLUMN pgscale.sampler_stats.observed_ms IS
'time that all ticks represent, in milliseconds';
COMMENT ON COLUMN pgscale.sampler_stats.active_ms IS
'time of all active sessions together, in milliseconds; sessions are client backends and their parallel workers';
COMMENT ON COLUMN pgscale.sampler_stats.idle_in_transaction_ms IS
'time of all sessions together that were idle in a transaction, in milliseconds';
COMMENT ON COLUMN pgscale.sampler_stats.cpu_ms IS
'CPU time of the worker, in milliseconds';
COMMENT ON COLUMN pgscale.sampler_stats.wait_ms IS
'time that the samples in the profile represent, in milliseconds';
COMMENT ON COLUMN pgscale.sampler_stats.torn_reads IS
'number of repeated reads of a process''s status';
COMMENT ON COLUMN pgscale.sampler_stats.cpu_readings IS
'number of readings of the kernel''s CPU counts of a session or an io worker';
COMMENT ON COLUMN pgscale.sampler_stats.blocker_looks IS
'number of readings of the lock manager to find blockers of long waits, at most one a second';
COMMENT ON COLUMN pgscale.sampler_stats.pid IS
'process ID of the worker';
COMMENT ON COLUMN pgscale.sampler_stats.starts IS
'number of times that the worker was started';
COMMENT ON COLUMN pgscale.sampler_stats.stats_reset IS
'time of the latest reset';
COMMENT ON COLUMN pgscale.sampler_stats.lateness_classes IS
'number of ticks less than 1, 2, 4, 8 ... microseconds late, each in the first class that fits';

CREATE FUNCTION pgscale.sampler_reset()
RETURNS void
AS 'MODULE_PATHNAME', 'pgscale_sampler_reset'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.sampler_reset() IS
'empties the wait profile, history, timeline and totals, the profile of blockers, and the sampler''s statistics';
