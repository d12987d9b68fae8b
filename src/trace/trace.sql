-- Every wait of one process, on request and by the trigger.

CREATE FUNCTION pgscale.trace_waits(
    pid integer, duration interval DEFAULT '10 seconds', max_events integer DEFAULT 100000,
    statement_within interval DEFAULT NULL,
    OUT seq integer, OUT started_at timestamptz, OUT event_type text, OUT event text,
    OUT duration_us double precision, OUT queryid bigint, OUT spans_gap boolean,
    OUT coverage_fraction double precision, OUT longest_gap_us double precision, OUT ended_by text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_trace_waits'
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10000;
COMMENT ON FUNCTION pgscale.trace_waits(integer, interval, integer, interval) IS
'every wait of one process, and its time on CPU between them, in order. Takes one CPU while it runs
pid: process ID, not that of the own session
duration: for how long at most, up to an hour
max_events: number of rows after which it ends, up to 1,000,000
statement_within: trace only the next statement, if one begins within this time, up to an hour; NULL: all
seq: number of the row, from 1
started_at: when the wait began
event_type: type of the wait event as in pg_stat_activity; CPU without one
event: name of the wait event as in pg_stat_activity; CPU without one
duration_us: length of the wait, in microseconds; the first and the last are cut off
queryid: query identifier; NULL outside a statement, before parse analysis, or if it is unknown
spans_gap: true: the tracer had no CPU for a while, so this wait may be wrong
coverage_fraction: watched part of the time of the trace, 0 to 1, in each row
longest_gap_us: longest time that the tracer did not watch, in microseconds, in each row
ended_by: why the trace ended, in each row';

CREATE FUNCTION pgscale.trace_summary(
    pid integer, duration interval DEFAULT '10 seconds', statement_within interval DEFAULT NULL,
    OUT event_type text, OUT event text, OUT count bigint,
    OUT total_ms double precision, OUT fraction double precision,
    OUT min_us double precision, OUT mean_us double precision, OUT p50_us double precision,
    OUT p95_us double precision, OUT p99_us double precision, OUT max_us double precision,
    OUT spans_gap bigint, OUT started_at timestamptz,
    OUT coverage_fraction double precision, OUT longest_gap_us double precision, OUT ended_by text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_trace_summary'
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 20;
COMMENT ON FUNCTION pgscale.trace_summary(integer, interval, interval) IS
'the waits of one process by event, longest total first. Quantiles are off by at most 3.2 %. Takes one CPU while it runs
pid: process ID, not that of the own session
duration: for how long at most, up to an hour
statement_within: trace only the next statement, if one begins within this time, up to an hour; NULL: all
event_type: type of the wait event as in pg_stat_activity; CPU without one
event: name of the wait event as in pg_stat_activity; CPU without one
count: number of waits, or of stretches on CPU
total_ms: their sum, in milliseconds
fraction: fraction of the time of the trace, 0 to 1
min_us: shortest, in microseconds
mean_us: mean length, in microseconds
p50_us: median length, in microseconds
p95_us: 95 % quantile of the length, in microseconds
p99_us: 99 % quantile of the length, in microseconds
max_us: longest, in microseconds
spans_gap: number of waits that may be wrong, because the tracer had no CPU for a while
started_at: start of the trace, in each row
coverage_fraction: watched part of the time of the trace, 0 to 1, in each row
longest_gap_us: longest time that the tracer did not watch, in microseconds, in each row
ended_by: why the trace ended, in each row';

CREATE FUNCTION pgscale_internal.trace_history(
    OUT trace bigint, OUT started_at timestamptz, OUT figure text,
    OUT sessions double precision, OUT usual_sessions double precision, OUT limit_sessions double precision,
    OUT pid integer, OUT datid oid, OUT userid oid, OUT application_name text, OUT queryid bigint,
    OUT event_type text, OUT event text, OUT count bigint,
    OUT total_ms double precision, OUT fraction double precision,
    OUT p50_us double precision, OUT p95_us double precision, OUT max_us double precision,
    OUT traced_ms double precision, OUT ended_by text, OUT coverage_fraction double precision)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_trace_history'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 100;
COMMENT ON FUNCTION pgscale_internal.trace_history() IS 'the rows of pgscale.trace_history';
GRANT EXECUTE ON FUNCTION pgscale_internal.trace_history() TO pg_monitor;

CREATE VIEW pgscale.trace_history AS
    SELECT h.trace, h.started_at, h.figure, pgscale_internal.three_digits(h.sessions) AS sessions,
           pgscale_internal.three_digits(h.usual_sessions) AS usual_sessions,
           pgscale_internal.three_digits(h.limit_sessions) AS limit_sessions,
           h.pid, h.event_type, h.event, h.count,
           pgscale_internal.three_digits(h.total_ms) AS total_ms, pgscale_internal.three_digits(h.fraction) AS fraction,
           pgscale_internal.three_digits(h.p50_us) AS p50_us, pgscale_internal.three_digits(h.p95_us) AS p95_us,
           pgscale_internal.three_digits(h.max_us) AS max_us,
           pgscale_internal.name_of(h.datid) AS datname, pgscale_internal.name_of(h.userid, true) AS usename, h.application_name, h.queryid,
           pgscale_internal.three_digits(h.traced_ms) AS traced_ms, h.ended_by,
           pgscale_internal.three_digits(h.coverage_fraction) AS coverage_fraction, h.datid, h.userid
      FROM pgscale_internal.trace_history() h;
COMMENT ON VIEW pgscale.trace_history IS
'the latest 64 traces that pgscale.trace_trigger has made, oldest first, a row for each event, longest first; needs preload; a restart empties it';
GRANT SELECT ON pgscale.trace_history TO pg_monitor;
COMMENT ON COLUMN pgscale.trace_history.trace IS 'number of the pile-up; those that were not traced have numbers, too';
COMMENT ON COLUMN pgscale.trace_history.started_at IS 'when it began';
COMMENT ON COLUMN pgscale.trace_history.figure IS 'figure that left its usual range: lock waits or active sessions';
COMMENT ON COLUMN pgscale.trace_history.sessions IS
'value of that figure: sessions that waited for locks or LWLocks, or were active, mean of the three seconds before the trace';
COMMENT ON COLUMN pgscale.trace_history.usual_sessions IS 'its median in the two minutes before';
COMMENT ON COLUMN pgscale.trace_history.limit_sessions IS 'limit that it exceeded in each of the three seconds';
COMMENT ON COLUMN pgscale.trace_history.pid IS 'process ID of the session that was traced';
COMMENT ON COLUMN pgscale.trace_history.event_type IS 'type of the wait event as in pg_stat_activity; CPU; Other for all events beyond the first 16';
COMMENT ON COLUMN pgscale.trace_history.event IS 'name of the wait event as in pg_stat_activity; CPU; Other';
COMMENT ON COLUMN pgscale.trace_history.count IS 'number of waits, or of stretches on CPU';
COMMENT ON COLUMN pgscale.trace_history.total_ms IS 'their sum, in milliseconds';
COMMENT ON COLUMN pgscale.trace_history.fraction IS 'fraction of the time of the trace, 0 to 1';
COMMENT ON COLUMN pgscale.trace_history.p50_us IS 'median length, in microseconds; NULL for Other';
COMMENT ON COLUMN pgscale.trace_history.p95_us IS '95 % quantile of the length, in microseconds; NULL for Other';
COMMENT ON COLUMN pgscale.trace_history.max_us IS 'longest, in microseconds';
COMMENT ON COLUMN pgscale.trace_history.datname IS 'name of the database; NULL if it was dropped';
COMMENT ON COLUMN pgscale.trace_history.usename IS 'name of the session user; NULL if it was dropped';
COMMENT ON COLUMN pgscale.trace_history.application_name IS 'name of the application';
COMMENT ON COLUMN pgscale.trace_history.queryid IS 'query identifier of the statement that ran when the session was chosen; NULL if it is unknown';
COMMENT ON COLUMN pgscale.trace_history.traced_ms IS 'length of the trace, in milliseconds';
COMMENT ON COLUMN pgscale.trace_history.ended_by IS 'why it ended: duration or process ended';
COMMENT ON COLUMN pgscale.trace_history.coverage_fraction IS 'fraction of that time that was watched, 0 to 1';
COMMENT ON COLUMN pgscale.trace_history.datid IS 'OID of the database';
COMMENT ON COLUMN pgscale.trace_history.userid IS 'OID of the session user';
