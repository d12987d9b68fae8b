-- What the archive's tables, views and functions make of rows; who writes them and when takes a server of its own: see t/archive_truth.pl.
CREATE EXTENSION pgscale;
\pset format unaligned \pset footer off
SELECT enabled, state FROM pgscale.health WHERE feature = 'archive';
SELECT name, setting, unit, context, min_val, max_val FROM pg_settings WHERE name LIKE 'pgscale.archive%' ORDER BY 1;
\pset null '-'
\set VERBOSITY terse
\set ECHO none
SET TimeZone = 'Asia/Kathmandu';

\echo '-- nothing was archived'
SELECT (SELECT count(*) FROM pgscale.archive_waits), (SELECT count(*) FROM pgscale.archive_minutes),
       (SELECT count(*) FROM pgscale.archive_queries), (SELECT count(*) FROM pgscale.archive_changes);

\echo '-- the columns that others rely on'
SELECT string_agg(concat_ws(' ', attname, atttypid::regtype), ', ' ORDER BY attnum)
  FROM pg_attribute WHERE attrelid = 'pgscale.archive_waits'::regclass AND attnum > 0;

\echo '-- partitions: each is a day in UTC, belongs to the extension, and grants nothing to other roles'
ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC;
SELECT pgscale_internal.archive_partition('archive_minute', '2020-03-01'), pgscale_internal.archive_partition('archive_query', '2020-02-29');
SELECT pgscale_internal.archive_partition('archive_minute', '2020-03-01');
SELECT pgscale_internal.archive_partition('archive_change', '2020-03-01');
SELECT pgscale_internal.archive_partition('archive_minute', 'infinity');
SELECT pgscale_internal.archive_partition('archive_minute', NULL);
CREATE VIEW partitions AS
    SELECT i.inhparent::regclass::text AS of, c.relname, pg_get_expr(c.relpartbound, c.oid) AS bound, c.relacl,
           (SELECT count(*) FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
             WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e' AND e.extname = 'pgscale') AS members
      FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent IN ('pgscale_internal.archive_minute'::regclass, 'pgscale_internal.archive_query'::regclass);
SET TimeZone = 'UTC';
SELECT of, relname, bound, relacl IS NULL OR relacl::text !~ '[{,]=' AS private, members,
       obj_description(format('pgscale_internal.%I', relname)::regclass) FROM partitions ORDER BY 1, 2;

\echo '-- which must have nothing on them that runs as a superuser'
CREATE ROLE regress_archive;
CREATE RULE planted AS ON INSERT TO pgscale_internal.archive_query DO ALSO NOTHING;
SELECT pgscale_internal.archive_partition('archive_query', '2020-02-29');
DROP RULE planted ON pgscale_internal.archive_query;
CREATE RULE planted AS ON INSERT TO pgscale_internal.archive_query_20200229 DO ALSO NOTHING;
SELECT pgscale_internal.archive_partition('archive_query', '2020-02-29');
DROP RULE planted ON pgscale_internal.archive_query_20200229;
ALTER TABLE pgscale_internal.archive_query_20200229 OWNER TO regress_archive;
SELECT pgscale_internal.archive_partition('archive_query', '2020-02-29');
ALTER TABLE pgscale_internal.archive_query_20200229 OWNER TO CURRENT_USER;
CREATE FUNCTION planted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER planted BEFORE INSERT ON pgscale_internal.archive_query FOR EACH STATEMENT EXECUTE FUNCTION planted();
SELECT pgscale_internal.archive_partition('archive_query', '2020-02-29');
DROP FUNCTION planted CASCADE;
SELECT pgscale_internal.archive_partition('archive_query', '2020-02-29');

\echo '-- a minute, whose counters are base + 1, base + 2, ..., and whose waits are given; half as many sessions as are active idle in a transaction'
CREATE FUNCTION minute(at text, period_s float8, active float8, base float8, waits text, node text DEFAULT 'a', cluster int DEFAULT 0, database int DEFAULT 0,
    observed_s float8 DEFAULT NULL)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO pgscale_internal.archive_minute
    SELECT m.*
      FROM pg_control_system() c, pg_database d, (SELECT coalesce(observed_s, period_s) * 1000 AS ms) o,
           (SELECT jsonb_object_agg(name, base + n) AS counters FROM pgscale_internal.archive_counter WHERE source <> 'sampler') b,
           (SELECT coalesce(array_agg(coalesce(t.kind, CASE WHEN t.t = 'other' THEN 'other' ELSE 'client backend' END)), '{}'),
                   coalesce(array_agg(CASE WHEN t.d IS NOT NULL THEN 7::oid END), '{}'), coalesce(array_agg(t.d), '{}'),
                   coalesce(array_agg(t.u), '{}'), coalesce(array_agg(t.a), '{}'), coalesce(array_agg(t.q), '{}'), coalesce(array_agg(t.t), '{}'),
                   coalesce(array_agg(t.e), '{}'), coalesce(array_agg(t.r), '{}'), coalesce(array_agg(t.ms::real), '{}')
              FROM jsonb_to_recordset(waits::jsonb) AS t(kind text, d text, u text, a text, q bigint, t text, e text, r text, ms float8)) w
             (backend_types, datids, datnames, usenames, application_names, queryids, event_types, events, blockers, wait_ms),
           jsonb_populate_record(NULL::pgscale_internal.archive_minute, '{"node_id": 0, "timeline": 1, "standby": false, "pulled": false}' || b.counters || to_jsonb(w) || jsonb_build_object('at', at::timestamptz,
               'period_s', period_s, 'rounds', 1, 'node', node, 'cluster', c.system_identifier + cluster, 'database', (d.oid::int + database)::oid,
               'observed_ms', o.ms, 'active_session_ms', o.ms * active, 'idle_in_transaction_session_ms', o.ms * active / 2)) m
     WHERE d.datname = current_database()
$$;

\echo '-- each counter is what its name says'
SELECT minute('2020-03-01 10:00+00', 60, 0.5, 0, '[]', observed_s => 0.053);
\echo '-- the sweeper''s pages are among those that the server counts for backends'
UPDATE pgscale_internal.archive_minute SET backend_buffers = backend_buffers + sweeper_written;
SELECT string_agg(concat_ws(' ', key, value), ', ' ORDER BY value::numeric) FROM pgscale.archive_minutes m, jsonb_each_text(to_jsonb(m)) c(key, value)
 WHERE key NOT IN ('at', 'node', 'origin', 'pulled', 'role', 'timeline');
\echo '-- which may have counted them in the next minute only; what is not known of either is not known'
UPDATE pgscale_internal.archive_minute SET backend_buffers = 46;
SELECT backend_buffers FROM pgscale.archive_minutes;
UPDATE pgscale_internal.archive_minute SET sweeper_written = NULL;
SELECT backend_buffers FROM pgscale.archive_minutes;
DELETE FROM pgscale_internal.archive_minute;

\echo '-- counters are those of the server, read at the same moment'
CREATE TABLE worked AS SELECT i FROM generate_series(1, 2000) i;
BEGIN; INSERT INTO worked VALUES (1); ROLLBACK;
BEGIN; UPDATE worked SET i = -i WHERE i < 30; DELETE FROM worked WHERE i > 1950; COMMIT;
BEGIN; SET LOCAL work_mem = '64kB'; SELECT count(*) FROM (SELECT i FROM generate_series(1, 20000) i ORDER BY -i OFFSET 0) s; COMMIT;
CHECKPOINT;
\echo '-- which the checkpointer counts when it is over, and the background writer what was allocated'
DO $$ BEGIN
    FOR i IN 1 .. 600 LOOP
        PERFORM pg_stat_clear_snapshot();
        EXIT WHEN (SELECT bool_and(c.value > 0) FROM pgscale_internal.archive_counters() c
                    WHERE c.name IN ('checkpoints_requested', 'checkpoint_buffers', 'buffers_allocated'));
        PERFORM pg_sleep(0.1);
    END LOOP;
END $$;
SELECT pg_stat_force_next_flush();
SELECT pgscale_internal.major() >= 17 AS new, pgscale_internal.major() >= 16 AS io \gset
BEGIN;
SET LOCAL stats_fetch_consistency = snapshot;
\if :new
CREATE TEMP VIEW checkpoints AS SELECT num_timed AS a, num_requested AS b, write_time AS c, sync_time AS d, buffers_written AS e FROM pg_stat_checkpointer;
\else
CREATE TEMP VIEW checkpoints AS SELECT checkpoints_timed AS a, checkpoints_req AS b, checkpoint_write_time AS c, checkpoint_sync_time AS d, buffers_checkpoint AS e FROM pg_stat_bgwriter;
\endif
SELECT string_agg(w.name, ' ' ORDER BY w.name) FILTER (WHERE c.value::numeric IS DISTINCT FROM w.theirs AND NOT (w.theirs IS NULL AND w.elsewhere)) AS differ,
       string_agg(w.name, ' ' ORDER BY w.name) FILTER (WHERE w.theirs > 0 AND w.name IN ('commits', 'rollbacks', 'blocks_hit', 'rows_returned', 'rows_inserted',
           'rows_updated', 'rows_deleted', 'temp_files', 'temp_bytes', 'sessions_started', 'session_ms', 'active_ms', 'wal_records', 'wal_bytes',
           'checkpoints_requested', 'checkpoint_buffers', 'buffers_allocated')) AS counted, count(c.name) AS counters
  FROM (SELECT sum(xact_commit) AS v1, sum(xact_rollback) AS v2, sum(blks_read) AS v3, sum(blks_hit) AS v4, sum(blk_read_time) AS v5,
               sum(blk_write_time) AS v6, sum(tup_returned) AS v7, sum(tup_fetched) AS v8, sum(tup_inserted) AS v9, sum(tup_updated) AS v10,
               sum(tup_deleted) AS v11, sum(temp_files) AS v12, sum(temp_bytes) AS v13, sum(deadlocks) AS v14, sum(conflicts) AS v15,
               sum(sessions) AS v16, sum(session_time) AS v17, sum(active_time) AS v18, sum(idle_in_transaction_time) AS v19 FROM pg_stat_database) d
 CROSS JOIN pg_stat_wal l CROSS JOIN pg_stat_bgwriter b CROSS JOIN pg_stat_archiver a CROSS JOIN checkpoints k CROSS JOIN pgscale_internal.writeback_stats() f
 CROSS JOIN (SELECT count(*) AS n FROM pg_stat_activity WHERE backend_type = 'client backend') s
 CROSS JOIN (SELECT supplied_clean + supplied_written AS supplied, written FROM pgscale_internal.sweeper_stats()) z
 CROSS JOIN LATERAL (VALUES ('commits', v1, false), ('rollbacks', v2, false), ('blocks_read', v3, false), ('blocks_hit', v4, false),
           ('block_read_ms', v5::numeric, false), ('block_write_ms', v6::numeric, false), ('rows_returned', v7, false), ('rows_fetched', v8, false),
           ('rows_inserted', v9, false), ('rows_updated', v10, false), ('rows_deleted', v11, false), ('temp_files', v12, false),
           ('temp_bytes', v13, false), ('deadlocks', v14, false), ('conflicts', v15, false), ('sessions_started', v16, false),
           ('session_ms', v17::numeric, false), ('active_ms', v18::numeric, false), ('idle_in_transaction_ms', v19::numeric, false),
           ('wal_records', l.wal_records, false), ('wal_full_page_images', l.wal_fpi, false), ('wal_bytes', l.wal_bytes, false),
           ('wal_buffers_full', l.wal_buffers_full, false), ('wal_write_ms', (to_jsonb(l) ->> 'wal_write_time')::numeric, true),
           ('wal_sync_ms', (to_jsonb(l) ->> 'wal_sync_time')::numeric, true), ('checkpoints_timed', k.a, false), ('checkpoints_requested', k.b, false),
           ('checkpoint_write_ms', k.c::numeric, false), ('checkpoint_sync_ms', k.d::numeric, false), ('checkpoint_buffers', k.e, false),
           ('bgwriter_buffers', b.buffers_clean, false), ('bgwriter_stops', b.maxwritten_clean, false),
           ('backend_buffers', (to_jsonb(b) ->> 'buffers_backend')::numeric, true), ('backend_fsyncs', (to_jsonb(b) ->> 'buffers_backend_fsync')::numeric, true),
           ('buffers_allocated', b.buffers_alloc, false), ('wal_files_archived', a.archived_count, false), ('wal_archive_failures', a.failed_count, false),
           ('sweeper_supplied', z.supplied, false), ('sweeper_written', z.written, false), ('writeback_requested_bytes', f.requested_bytes, false),
           ('relocations', 0, false), ('sessions', s.n, false), ('standby_lag_s', NULL, false), ('standby_lag_bytes', NULL, false),
           ('connections_peak', NULL, false)) AS w(name, theirs, elsewhere)
  FULL JOIN pgscale_internal.archive_counters() c ON c.name = w.name;
ROLLBACK;

\echo '-- pages, which 18 reads and adds several at a time; before 16 none of it is counted'
SET max_parallel_workers_per_gather = 0;
CREATE VIEW pages AS SELECT coalesce(max(value) FILTER (WHERE name = 'io_reads'), 0) AS reads, coalesce(max(value) FILTER (WHERE name = 'io_extends'), 0) AS extends,
       max(value) FILTER (WHERE name = 'blocks_read') AS blocks FROM pgscale_internal.archive_counters();
SELECT * FROM pages \gset before_
CREATE TABLE filled AS SELECT i, repeat('x', 1800) AS filler FROM generate_series(1, 20000) i;
SELECT count(*) FROM filled;
SELECT pg_stat_force_next_flush();
SELECT blocks - :before_blocks > 2000 AS "read",
       reads - :before_reads BETWEEN 0.98 * (blocks - :before_blocks) AND 1.02 * (blocks - :before_blocks) OR NOT :'io' AS reads,
       (extends - :before_extends) / pg_relation_size('filled') * current_setting('block_size')::int BETWEEN 0.98 AND 1.1 OR NOT :'io' AS extends
  FROM pages;
DROP VIEW pages;
DROP TABLE filled;
RESET max_parallel_workers_per_gather;

\echo '-- and each has a mark of when it was reset'
CREATE TABLE marked AS SELECT 0 AS n, 'before' AS what, name, marker FROM pgscale_internal.archive_counters();
\if :new
SELECT pg_stat_reset_shared('checkpointer') \g /dev/null
\endif
SELECT FROM pg_stat_reset_shared('bgwriter');
INSERT INTO marked SELECT 1, 'bgwriter', name, marker FROM pgscale_internal.archive_counters();
SELECT FROM pg_stat_reset_shared('wal');
INSERT INTO marked SELECT 2, 'wal', name, marker FROM pgscale_internal.archive_counters();
SELECT FROM pg_stat_reset_shared('archiver');
INSERT INTO marked SELECT 3, 'archiver', name, marker FROM pgscale_internal.archive_counters();
SELECT FROM pgscale.reset('sweeper');
INSERT INTO marked SELECT 4, 'sweeper', name, marker FROM pgscale_internal.archive_counters();
SELECT FROM pgscale.reset('writeback');
INSERT INTO marked SELECT 5, 'writeback', name, marker FROM pgscale_internal.archive_counters();
SELECT FROM pgscale.reset('sampler');
INSERT INTO marked SELECT 6, 'sampler', name, marker FROM pgscale_internal.archive_counters();
SELECT FROM pg_stat_reset();
INSERT INTO marked SELECT 7, 'database', name, marker FROM pgscale_internal.archive_counters();
SELECT a.what, string_agg(a.name, ' ' ORDER BY a.name) AS changed
  FROM marked a JOIN marked b ON b.n = a.n - 1 AND b.name = a.name WHERE a.marker IS DISTINCT FROM b.marker GROUP BY a.n, a.what ORDER BY a.n;
SELECT string_agg(name, ' ' ORDER BY name) AS of_the_moment FROM marked WHERE n = 0 AND marker IS NULL;

\echo '-- a day of minutes of unequal length, with gaps, in which waits rise, fall, come and go'
SELECT minute('2020-03-01 10:00:00+00', 60, 4, 1000, '[{"d":"shop","u":"ann","a":"web","q":1,"t":"IO","e":"DataFileRead","ms":12000},
    {"d":"shop","u":"ann","a":"web","q":1,"t":"CPU","e":"CPU","ms":6000}, {"d":"bank","u":"bob","q":2,"t":"Lock","e":"tuple","r":"7 batch","ms":3000},
    {"t":"other","e":"other","ms":900}, {"kind":"checkpointer","t":"IO","e":"DataFileSync","ms":600}, {"kind":"parallel worker","d":"shop","u":"ann","q":1,"t":"CPU","e":"CPU","ms":3000}]'),
       minute('2020-03-01 10:01:00+00', 600, 1, 3000, '[{"d":"shop","u":"ann","a":"web","q":1,"t":"IO","e":"DataFileRead","ms":60000},
    {"d":"bank","u":"bob","q":2,"t":"Lock","e":"tuple","r":"8 psql","ms":24000}, {"d":"bank","u":"bob","q":3,"t":"Lock","e":"tuple","r":"8 psql","ms":6000},
    {"d":"bank","u":"bob","q":2,"t":"LWLock","e":"WALWrite","ms":5000}]'),
       minute('2020-03-01 10:20:00+00', 120, 2, 2000, '[{"d":"shop","u":"ann","a":"web","q":1,"t":"IO","e":"DataFileRead","ms":7000},
    {"d":"bank","u":"bob","q":2,"t":"LWLock","e":"WALWrite","ms":8000}, {"d":"shop","u":"bob","q":4,"t":"CPU","e":"CPU","ms":2000}]'),
       minute('2020-03-01 10:59:30+00', 60, 1, 100, '[{"d":"shop","u":"ann","a":"web","q":1,"t":"IO","e":"DataFileRead","ms":1000}]'),
       minute('2020-03-01 11:00:30+00', 60, 3, 200, '[{"d":"shop","u":"ann","a":"web","q":1,"t":"IO","e":"DataFileRead","ms":9000}]'),
       minute('2020-03-01 11:01:31.9+00', 28.1, 1, 300, '[{"d":"shop","u":"ann","a":"web","q":1,"t":"IO","e":"DataFileRead","ms":500}]'),
       minute('2020-03-01 11:02:02+00', 58, 1, 400, '[]'),
       minute('2020-03-01 11:03:00+00', 60, 1, 500, '[]', 'b'),
       minute('2020-03-01 11:04:00+00', 60, 1, 600, '[]', 'b', 1),
       minute('2020-03-01 11:05:00+00', 60, 1, 700, '[]', 'b', 1, 1),
       minute('2020-03-01 11:06:00+00', 60, 1, 800, '[]', 'b', 0, 1),
       minute('2020-03-01 11:07:00+00', 60, 1, 900, '[]', 'b', 0, 1);
UPDATE pgscale_internal.archive_minute SET commits = NULL, standby_lag_s = NULL WHERE at = '2020-03-01 10:00+00';
SELECT to_char(at, 'HH24:MI:SS') AS at, period_s, node, origin FROM pgscale.archive_minutes WHERE at >= '2020-03-01 11:02+00' ORDER BY 1;

\echo '-- what readers make of it: weights are time, and time that is not known counts for nothing'
CREATE FUNCTION short(double precision) RETURNS numeric LANGUAGE sql AS 'SELECT trim_scale(round($1::numeric, 4))';
SELECT to_char(at, 'HH24:MI:SS') AS at, short(period_s) AS period_s, short(known_s) AS known_s, source FROM pgscale_internal.past_coverage('2020-03-01 10:05+00', '2020-03-01 11:01+00');
SELECT by, rank, item, event_type, event, short(active_sessions) AS sessions, short(fraction) AS fraction, short(wait_ms) AS ms, queryid
  FROM unnest('{event,class,query,database,user,application,backend_type,blocker}'::text[]) WITH ORDINALITY b (by, n),
       pgscale.top_waits('2020-03-01 10:00+00', '2020-03-01 10:30+00', by, 2) ORDER BY n, rank;
SELECT item, short(active_sessions) AS sessions, short(fraction) AS fraction, short(wait_ms) AS ms
  FROM pgscale.top_waits('2020-03-01 10:06+00', '2020-03-01 10:21:30+00', 'event', 3);
SELECT to_char(at, 'HH24:MI:SS') AS at, event_type, short(active_sessions) AS sessions, short(coverage_fraction) AS covered
  FROM pgscale.activity('2020-03-01 10:00:30+00', '2020-03-01 10:22+00', '5 min');
SELECT length, count(DISTINCT a.at) AS buckets, extract(epoch FROM max(a.at) - min(a.at))::int / (count(DISTINCT a.at) - 1) AS bucket_s
  FROM unnest('{1 min,61 s,1 h,3660 s,60 d,61 d}'::interval[]) length, pgscale.activity('2020-01-01 00:00+00', '2020-01-01 00:00+00'::timestamptz + length) a
 GROUP BY length ORDER BY length;
SELECT by, item, short(active_sessions_1) AS one, short(active_sessions_2) AS two, short(difference) AS difference, short(fraction_1) AS fraction_1, short(fraction_2) AS fraction_2
  FROM unnest('{event,query,blocker,backend_type}'::text[]) WITH ORDINALITY b (by, n),
       pgscale.compare_waits('2020-03-01 10:00+00', '2020-03-01 10:11+00', '2020-03-01 10:15+00', '2020-03-01 11:00+00', by, 2) WITH ORDINALITY
 ORDER BY n, ordinality;
SELECT item, short(active_sessions_1) AS one, short(active_sessions_2) AS two, short(difference) AS difference, short(fraction_1) AS fraction_1, short(fraction_2) AS fraction_2
  FROM pgscale.compare_waits('2020-03-01 11:05+00', '2020-03-01 11:06+00', '2020-03-01 10:20+00', '2020-03-01 10:22+00', 'event', 10);
SELECT item, short(active_sessions_1) AS one, short(active_sessions_2) AS two, short(difference) AS difference, short(fraction_1) AS fraction_1, short(fraction_2) AS fraction_2
  FROM pgscale.compare_waits('2020-03-01 10:20+00', '2020-03-01 10:22+00', '2020-03-01 09:20+00', '2020-03-01 09:22+00', 'class', 1);
\echo '-- an hour, unless it is said; and nothing of what was before all that is known'
SELECT to_char(min(at), 'HH24:MI:SS') AS since, short(sum(known_s)) AS known_s FROM pgscale_internal.past_coverage(NULL, '2020-03-01 11:00:30+00');
SELECT count(*) AS buckets, min(at) AS since FROM pgscale.activity('1969-12-31 23:00+00', '2020-03-01 12:00+00', '1 h');

\echo '-- A row that was observed in part: its waits are of that part. Names that are also words of ours, and sessions that were not active.'
SELECT pgscale_internal.archive_partition('archive_minute', '2020-04-01');
SELECT minute('2020-04-01 10:00:00+00', 60, 1, 0, '[{"d":"shop","u":"other","a":"unknown","q":1,"t":"IO","e":"DataFileRead","ms":15000},
    {"d":"shop","u":"other","q":2,"t":"Client","e":"IdleInTransaction","ms":9000}, {"t":"other","e":"other","ms":3000}]', observed_s => 30),
       minute('2020-04-01 10:01:00+00', 60, 1, 0, '[{"d":"shop","u":"ann","a":"web","q":1,"t":"IO","e":"DataFileRead","ms":6000}]', observed_s => 0);
SELECT to_char(at, 'HH24:MI:SS') AS at, short(period_s) AS period_s, short(known_s) AS known_s FROM pgscale_internal.past_coverage('2020-04-01', '2020-04-02');
SELECT by, rank, item, short(active_sessions) AS active, short(idle_in_transaction_sessions) AS idle, short(fraction) AS fraction, short(wait_ms) AS ms
  FROM unnest('{event,class,user,application}'::text[]) WITH ORDINALITY b (by, n), pgscale.top_waits('2020-04-01 10:00+00', '2020-04-01 10:02+00', by, 3)
 ORDER BY n, rank;
SELECT to_char(at, 'HH24:MI:SS') AS at, event_type, short(active_sessions) AS sessions, short(coverage_fraction) AS covered
  FROM pgscale.activity('2020-04-01 10:00+00', '2020-04-01 10:02+00', '1 min');
SELECT item, short(active_sessions_1) AS one, short(active_sessions_2) AS two, short(fraction_1) AS fraction_1
  FROM pgscale.compare_waits('2020-04-01 10:00+00', '2020-04-01 10:01+00', '2020-04-01 10:01+00', '2020-04-01 10:02+00', 'user', 3);
SELECT rank, item, short(wait_ms) AS ms FROM pgscale_internal.past_items('2020-04-01 10:00+00', '2020-04-01 10:00:30+00', 'event', 3, 2);
\echo '-- read once for all that is asked, and then not'
BEGIN;
SELECT pgscale_internal.past_keep('2020-04-01 10:00+00', '2020-04-01 10:02+00');
SELECT short(sum(wait_ms)) AS ms FROM pgscale.top_waits('2020-04-01 10:00+00', '2020-04-01 10:02+00');
DELETE FROM pgscale_internal.archive_minute WHERE at >= '2020-04-01' AND at < '2020-04-02';
SELECT (SELECT short(sum(wait_ms)) FROM pgscale.top_waits('2020-04-01 10:00+00', '2020-04-01 10:02+00')) AS kept,
       (SELECT count(*) FROM pgscale.top_waits('2020-04-01 10:00+00', '2020-04-01 10:01:59+00')) AS another;
SET LOCAL ROLE pg_monitor;
SELECT count(*) AS for_another_role FROM pgscale.top_waits('2020-04-01 10:00+00', '2020-04-01 10:02+00');
RESET ROLE;
SELECT pgscale_internal.past_keep(NULL, NULL);
SELECT count(*) FROM pgscale.top_waits('2020-04-01 10:00+00', '2020-04-01 10:02+00');
ROLLBACK;
BEGIN;
SAVEPOINT a;
SELECT pgscale_internal.past_keep('2020-04-01 10:00+00', '2020-04-01 10:02+00');
SELECT count(*) FROM pgscale.top_waits('2020-04-01 10:00+00', '2020-04-01 10:02+00');
ROLLBACK TO a;
DELETE FROM pgscale_internal.archive_minute WHERE at >= '2020-04-01' AND at < '2020-04-02';
SELECT count(*) FROM pgscale.top_waits('2020-04-01 10:00+00', '2020-04-01 10:02+00');
COMMIT;
\echo '-- whatever a superuser has written there: waits of no class, no time, and times that are none; and a row of no time'
SELECT minute('2020-04-01 11:00+00', 60, 1, 0, '[{"e":"x","ms":6000}, {"e":"y","ms":6000}, {"t":"IO","e":"DataFileRead","ms":12000}, {"t":"CPU","e":"CPU","ms":"NaN"},
    {"t":"CPU","e":"CPU"}, {"t":"CPU","e":"CPU","ms":"Infinity"}, {"t":"CPU","e":"CPU","ms":-60}]');
SELECT item, short(active_sessions) AS sessions, short(fraction) AS fraction FROM pgscale.top_waits('2020-04-01 11:00+00', '2020-04-01 11:01+00');
SELECT event_type, short(active_sessions) AS sessions, short(coverage_fraction) AS covered FROM pgscale.activity('2020-04-01 11:00+00', '2020-04-01 11:01+00', '1 min');
CREATE TABLE pgscale.beyond PARTITION OF pgscale_internal.archive_minute DEFAULT;
SELECT minute('-infinity', 60, 1, 0, '[]');
SELECT min(at) AS since FROM pgscale.activity('-infinity', '2020-04-02');
DROP TABLE pgscale.beyond;
SELECT pgscale_internal.archive_drop('archive_minute_20200401');

\echo '-- minutes become hours'
CREATE TABLE before AS SELECT item, wait_ms FROM pgscale.top_waits('2020-03-01', '2020-03-02', 'event', 100);
SELECT pgscale_internal.archive_roll_up('archive_minute_20200301');
SELECT of, relname, bound, relacl IS NULL OR relacl::text !~ '[{,]=' AS private, members, obj_description(format('pgscale_internal.%I', relname)::regclass)
  FROM partitions ORDER BY 1, 2;
SELECT to_char(at, 'HH24:MI:SS') AS at, short(period_s) AS period_s, rounds, short(active_sessions) AS active, short(idle_in_transaction_sessions) AS idle, node, origin,
       commits, rollbacks, relocations, sessions, standby_lag_s AS lag_s, standby_lag_bytes AS lag_b, observed_ms
  FROM pgscale.archive_minutes WHERE at >= '2020-03-01' AND at < '2020-03-02' ORDER BY 1;
SELECT to_char(at, 'HH24:MI:SS') AS at, backend_type, datname, datid, usename, application_name, queryid, event_type, event, blocker, wait_ms
  FROM pgscale.archive_waits WHERE at < '2020-03-02' ORDER BY 1, event_type, event, wait_ms;
SELECT count(*) AS differ FROM before b FULL JOIN pgscale.top_waits('2020-03-01', '2020-03-02', 'event', 100) a USING (item)
 WHERE short(a.wait_ms) IS DISTINCT FROM short(b.wait_ms);
SELECT pgscale_internal.archive_partition('archive_minute', '2020-03-01');
SELECT count(*) AS hours_stay FROM partitions WHERE relname ~ '_20200301$';
SELECT pgscale_internal.archive_roll_up('archive_hour_20200301');
SELECT pgscale_internal.archive_roll_up('archive_minute_20200302');
SELECT pgscale_internal.archive_roll_up('archive_minute');

\echo '-- the longest waits of an hour, and the rest: 203 of them, and what was the rest before'
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE regress_archive LOCATION '';
ALTER TABLE pgscale_internal.archive_minute SET TABLESPACE regress_archive;
SELECT pgscale_internal.archive_partition('archive_minute', '2020-03-03');
SELECT relname, (SELECT spcname FROM pg_tablespace t WHERE t.oid = c.reltablespace) FROM pg_class c WHERE relname ~ '^archive_.*_20200303$' ORDER BY 1;
SELECT minute('2020-03-03 10:00+00', 60, 1, 0, (jsonb_agg(jsonb_build_object('d', 'shop', 'q', i, 't', 'IO', 'e', 'DataFileRead', 'ms', i * 10)) || '[{"t":"other","e":"other","ms":99999}]')::text)
  FROM generate_series(1, 203) i;
SELECT pgscale_internal.archive_roll_up('archive_minute_20200303');
SELECT relname, (SELECT spcname FROM pg_tablespace t WHERE t.oid = c.reltablespace) FROM pg_class c WHERE relname ~ '^archive_.*_20200303$' ORDER BY 1;
ALTER TABLE pgscale_internal.archive_minute SET TABLESPACE pg_default;
SELECT event, count(*), min(queryid), max(queryid), sum(wait_ms) FROM pgscale.archive_waits WHERE at >= '2020-03-03' GROUP BY 1 ORDER BY 1;

\echo '-- what is called other, or unknown, is not the rest'
SELECT pgscale_internal.archive_partition('archive_minute', '2020-03-04');
SELECT count(*) FROM generate_series(0, 2) i, minute(concat('2020-03-04 10:0', i, '+00'), 60, 1, 0, '[{"d":"other","u":"other","a":"other","q":1,"t":"IO","e":"DataFileRead","ms":1},
    {"d":"unknown","u":"unknown","a":"unknown","q":1,"t":"IO","e":"DataFileRead","ms":2}, {"kind":"other","t":"IO","e":"DataFileRead","ms":4}, {"kind":"unknown","t":"IO","e":"DataFileRead","ms":8},
    {"kind":"parallel worker","d":"other","u":"other","a":"other","t":"Other","e":"Other","r":"other","ms":16}, {"t":"other","e":"other","ms":32}]');
SELECT pgscale_internal.archive_roll_up('archive_minute_20200304');
SELECT backend_type, datname, usename, application_name, queryid, event_type, event, blocker, wait_ms
  FROM pgscale.archive_waits WHERE at >= '2020-03-04' AND at < '2020-03-05' ORDER BY wait_ms;
SELECT pgscale_internal.archive_drop('archive_hour_20200304');

\echo '-- a partition that the extension does not have is dropped, too'
SELECT pgscale_internal.archive_drop('archive_hour_20200303');
ALTER EXTENSION pgscale DROP TABLE pgscale_internal.archive_query_20200229;
SELECT pgscale_internal.archive_drop('archive_query_20200229');
SELECT pgscale_internal.archive_drop('archive_setting');
SELECT pgscale_internal.archive_drop('marked');
SELECT pgscale_internal.archive_drop('archive_hour_20200301');
SELECT relname FROM partitions;
DROP TABLESPACE regress_archive;

\echo '-- upkeep: both sides of 35 and of 7 days. It takes one at a time, the oldest first. At midnight it waits for the other day.'
SELECT pg_sleep(11) WHERE (clock_timestamp() AT TIME ZONE 'UTC')::time > '23:59:50';
CREATE FUNCTION today() RETURNS date LANGUAGE sql AS $$SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date$$;
SELECT count(*) FROM unnest('{41,36,35,34,9,8,7,6,0}'::int[]) i, LATERAL (SELECT pgscale_internal.archive_partition('archive_minute', today() - i)) p;
SELECT count(*) FROM unnest('{39,37,35,8,0}'::int[]) i, LATERAL (SELECT pgscale_internal.archive_partition('archive_query', today() - i)) p;
SELECT minute(concat(today() - 9, ' 10:30+00'), 60, 1, 0, '[]');
INSERT INTO pgscale_internal.archive_change SELECT (today() - i) + t, 'work_mem', i::text, NULL FROM (VALUES (36, time '23:59:59'), (35, time '00:00'), (1, time '12:00')) c(i, t);
CREATE VIEW days AS SELECT string_agg(concat(substring(relname FROM '_(.).*_'), today() - to_date(right(relname, 8), 'YYYYMMDD')), ' '
    ORDER BY right(relname, 8), relname) AS days, (SELECT string_agg(old, ' ' ORDER BY at) FROM pgscale_internal.archive_change) AS changes FROM partitions;
SELECT * FROM days;
SELECT pgscale_internal.archive_upkeep(2147483647, 2147483647);
SELECT pgscale_internal.archive_upkeep(7, 2147483647);
SELECT * FROM days;
SELECT pgscale_internal.archive_upkeep(7, 35);
SELECT * FROM days;
SELECT pgscale_internal.archive_upkeep(7, 35);
SELECT * FROM days;
SELECT pgscale_internal.archive_upkeep(7, 35);
SELECT pgscale_internal.archive_upkeep(7, 35);
SELECT * FROM days;
SELECT pgscale_internal.archive_upkeep(7, 35);
SELECT pgscale_internal.archive_upkeep(7, 35);
SELECT * FROM days;
SELECT pgscale_internal.archive_upkeep(7, 8);
SELECT pgscale_internal.archive_upkeep(7, 8);
SELECT pgscale_internal.archive_upkeep(7, 8);
SELECT pgscale_internal.archive_upkeep(7, 8);
SELECT pgscale_internal.archive_upkeep(7, 8);
SELECT pgscale_internal.archive_upkeep(7, 8);
SELECT * FROM days;

\echo '-- a reader that gives bounds locks the days within them'
SELECT concat(today() - 7, ' 00:00+00') AS seven, concat(today() - 6, ' 00:00+00') AS six \gset
BEGIN;
SELECT count(*) FROM pgscale.archive_waits WHERE at >= :'seven' AND at < :'six';
SELECT count(*) AS locked FROM pg_locks l JOIN pg_inherits i ON i.inhrelid = l.relation WHERE l.pid = pg_backend_pid() AND i.inhparent = 'pgscale_internal.archive_minute'::regclass;
COMMIT;

\echo '-- texts of queries: one a day, as many as there is room for; last_seen is of the hour'
SELECT today() + time '12:00' AT TIME ZONE 'UTC' AS noon \gset
INSERT INTO pgscale_internal.archive_query VALUES (today(), 1, :'noon'::timestamptz - interval '3 h', :'noon'::timestamptz - interval '61 min', 'one'),
    (today(), 2, :'noon'::timestamptz - interval '3 h', :'noon'::timestamptz - interval '59 min', 'two'),
    (today() + 1, 1, :'noon'::timestamptz + interval '1 d', :'noon'::timestamptz + interval '1 d', 'one');
INSERT INTO pgscale_internal.archive_query SELECT today(), 1000 + i, :'noon', :'noon', 'password=secret' FROM generate_series(1, 998) i;
SELECT pgscale_internal.archive_texts(ARRAY[1, 2, NULL, 77] || query_id, :'noon') AS full FROM pg_stat_activity WHERE pid = pg_backend_pid();
DELETE FROM pgscale_internal.archive_query WHERE queryid > 1000;
SELECT pgscale_internal.archive_texts(ARRAY[1, NULL, 77] || query_id, :'noon') AS room /* my password: here */ FROM pg_stat_activity WHERE pid = pg_backend_pid();
SELECT CASE WHEN queryid BETWEEN 1 AND 77 THEN queryid END AS queryid, query, first_seen - :'noon' AS first, last_seen - :'noon' AS last
  FROM pgscale.archive_queries ORDER BY 1, 2;

\echo '-- settings: the first time there is nothing to compare with; what may be a secret is hidden; what a database has set is not the server''s'
SET work_mem = '3MB';
SELECT pgscale_internal.archive_settings('2020-03-01 10:00+00', pgscale_internal.archive_settings_now(), 0);
SELECT (SELECT count(*) FROM pgscale.archive_changes WHERE at < '2021-01-01') AS changes, (SELECT value FROM pgscale_internal.archive_setting WHERE setting = 'work_mem') AS work_mem,
       (SELECT value ~ '^[(]hidden[)] [0-9a-f]{64}$' FROM pgscale_internal.archive_setting WHERE setting = 'primary_conninfo') AS hashed;
UPDATE pgscale_internal.archive_setting SET value = CASE setting WHEN 'primary_conninfo' THEN '(hidden) ' || repeat('0', 64) WHEN 'deadlock_timeout' THEN '(hidden) ' || repeat('1', 64) ELSE '7' END
 WHERE setting IN ('work_mem', 'primary_conninfo', 'deadlock_timeout');
INSERT INTO pgscale_internal.archive_setting VALUES ('no.such', 'gone'), ('no.such_password', 'gone'), ('lc_messages', 'of the database');
DELETE FROM pgscale_internal.archive_setting WHERE setting IN ('autovacuum', 'archive_command');
SELECT pgscale_internal.archive_settings('2020-03-01 10:01+00', pgscale_internal.archive_settings_now(), 0);
SELECT pgscale_internal.archive_settings('2020-03-01 10:02+00', pgscale_internal.archive_settings_now(), 0);
SELECT * FROM pgscale.archive_changes WHERE at < '2021-01-01' ORDER BY setting;
SELECT * FROM pgscale_internal.archive_setting WHERE setting IN ('lc_messages', 'no.such', 'work_mem', 'autovacuum', 'server_version') ORDER BY 1;
\echo '-- another minor release changes nothing else; another major has other settings, which are no changes, and may have another default'
INSERT INTO pgscale_internal.archive_setting VALUES ('no.such', 'gone');
DELETE FROM pgscale_internal.archive_setting WHERE setting = 'autovacuum';
UPDATE pgscale_internal.archive_setting SET value = current_setting('server_version_num')::integer / 10000 * 10000 + 98 WHERE setting = 'server_version_num';
SELECT pgscale_internal.archive_settings('2020-03-01 10:03+00', pgscale_internal.archive_settings_now(), 0);
INSERT INTO pgscale_internal.archive_setting VALUES ('no.such', 'gone');
DELETE FROM pgscale_internal.archive_setting WHERE setting = 'autovacuum';
UPDATE pgscale_internal.archive_setting SET value = CASE setting WHEN 'work_mem' THEN '7' ELSE '140022' END WHERE setting IN ('work_mem', 'server_version_num');
SELECT pgscale_internal.archive_settings('2020-03-01 10:04+00', pgscale_internal.archive_settings_now(), 0);
SELECT at, setting, replace(old, current_setting('server_version_num')::integer / 10000 || '0098', 'minor') AS old,
       replace(new, current_setting('server_version_num'), 'now') AS new
  FROM pgscale.archive_changes WHERE at BETWEEN '2020-03-01 10:03+00' AND '2021-01-01' ORDER BY at, setting;
SELECT * FROM pgscale_internal.archive_setting WHERE setting IN ('no.such', 'work_mem', 'autovacuum') ORDER BY 1;

\echo '-- who may read it, and who may call what'
SELECT pgscale_internal.archive_wait_growth('{0}', '{}');
SELECT pgscale_internal.archive_counter_growth('{}', '{}');
SET ROLE regress_archive;
SELECT * FROM pgscale.archive_waits;
RESET ROLE;
GRANT pg_monitor TO regress_archive;
SET ROLE regress_archive;
SELECT (SELECT count(*) FROM pgscale.archive_waits) + (SELECT count(*) FROM pgscale.archive_minutes) +
       (SELECT count(*) FROM pgscale.archive_queries) + (SELECT count(*) FROM pgscale.archive_changes) > 0 AS may_read;
SELECT count(*) FROM pgscale_internal.archive_setting;
SELECT pgscale_internal.archive_upkeep(1, 1);
RESET ROLE;
DROP ROLE regress_archive;
ALTER DEFAULT PRIVILEGES REVOKE SELECT ON TABLES FROM PUBLIC;
DROP VIEW days, partitions;
DROP TABLE worked, marked, before;

\echo '-- what DROP EXTENSION drops; and the lines of doc/operations.md that keep it'
DELETE FROM pgscale_internal.archive_minute;
SELECT count(pgscale_internal.archive_partition('archive_minute', day)) FROM unnest('{2020-05-01,2020-05-02}'::date[]) day;
SELECT minute('2020-05-01 10:00+00', 60, 1, 0, '[{"t":"IO","e":"DataFileRead","ms":1000}]');
SELECT minute('2020-05-02 23:59+00', 60, 1, 0, '[{"t":"IO","e":"DataFileRead","ms":2000}]');
DROP FUNCTION minute, short, today;
CREATE TABLE kept_minutes AS TABLE pgscale_internal.archive_minute;
CREATE TABLE kept_queries AS TABLE pgscale_internal.archive_query;
CREATE TABLE kept_changes AS TABLE pgscale_internal.archive_change;
DROP EXTENSION pgscale;
CREATE EXTENSION pgscale;
SELECT count(pgscale_internal.archive_partition('archive_minute', day)) FROM (SELECT DISTINCT (at AT TIME ZONE 'UTC')::date FROM kept_minutes) m(day);
SELECT count(pgscale_internal.archive_partition('archive_query', day)) > 0 AS days FROM (SELECT DISTINCT day FROM kept_queries) q;
INSERT INTO pgscale_internal.archive_minute TABLE kept_minutes;
INSERT INTO pgscale_internal.archive_query TABLE kept_queries ON CONFLICT DO NOTHING;
INSERT INTO pgscale_internal.archive_change TABLE kept_changes ON CONFLICT DO NOTHING;
SELECT (SELECT count(*) FROM pgscale.archive_minutes), (SELECT sum(wait_ms) FROM pgscale.archive_waits),
       (SELECT count(*) FROM pgscale_internal.archive_query) = (SELECT count(*) FROM kept_queries) AS queries,
       (SELECT count(*) FROM pgscale.archive_changes) = (SELECT count(*) FROM kept_changes) AS changes;
DROP TABLE kept_minutes, kept_queries, kept_changes;
DROP EXTENSION pgscale;
SELECT count(*) FROM pg_class WHERE relname ~ '^archive_';
