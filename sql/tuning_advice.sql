-- Advice, contention and the WAL's efficiency: the views, who may use them, what they say without evidence, and to wrong input.
-- Statements are not echoed: a line of \echo says whose answer follows.
\set ECHO none
CREATE EXTENSION pgscale;
\pset format unaligned \pset footer off

\echo '-- the sampler needs a moment after the server''s start'
DO $$
BEGIN
    FOR i IN 1..600 LOOP
        EXIT WHEN (SELECT state = 'working' FROM pgscale.health WHERE feature = 'tuning');
        PERFORM pg_sleep(0.05);
    END LOOP;
END $$;
SELECT * FROM pgscale.health WHERE feature = 'tuning';

\echo -- what each rule says of a window without evidence
SELECT rule, verdict, reason FROM pgscale.advice_rules('1 ms') ORDER BY rule COLLATE "C";
SELECT count(*) AS advice FROM pgscale.advice_rules('1 ms')
 WHERE verdict = 'advises' OR gain IS NOT NULL OR since IS NOT NULL OR evidence IS NOT NULL OR recommended IS NOT NULL;

\echo '-- and of one with some: each rule, each with a reason'
SELECT count(DISTINCT rule) > 20 AS "all",
       count(*) FILTER (WHERE reason IS NULL OR reason !~ '\w' OR verdict NOT IN ('advises', 'satisfied', 'silent')) AS wrong
  FROM pgscale.advice_rules();
SELECT count(*) AS wrong FROM pgscale.advice
 WHERE gain NOT BETWEEN 0 AND 1 OR reason IS NULL OR recommended IS NULL OR risk IS NULL OR needs IS NULL
    OR confidence NOT IN ('high', 'medium', 'low') OR (setting IS NULL) = (object IS NULL);
SELECT count(*) AS wrong FROM pgscale.contention() WHERE fraction NOT BETWEEN 0 AND 1 OR meaning IS NULL OR active_sessions <= 0;

\echo -- without evidence, and of no time
SELECT count(*) FROM pgscale.contention('1 us') WHERE until - since > '10 s';
SELECT num_nulls(wal_bytes, written_bytes, rewritten_fraction, commits, flushes_per_commit, commits_per_flush, flush_ms,
       flush_fraction, page_image_fraction, segment_switches_per_s, buffers_full_per_s, since, until) AS nulls, reason
  FROM pgscale.wal_efficiency('1 us');

\echo '-- what waits mean: each kind that the evidence tells apart has one row, and each row all its texts; 15 has no event of spin,'
-- and 19 does not tell the locks of a library that is not loaded
SELECT kind, k.kind IS NULL AS "not in the library", m.kind IS NULL AS "not in the view"
  FROM pgscale_internal.wait_kinds() k FULL JOIN pgscale.wait_meanings m USING (kind)
 WHERE k.kind IS NULL OR m.kind IS NULL;
SELECT kind FROM pgscale_internal.wait_kinds() FULL JOIN pgscale_internal.tuning_waits() USING (kind) WHERE num_nulls(fraction, waiting_sessions) > 0;
SELECT count(*) > 40 AS "so many", count(*) = count(DISTINCT kind) AS "one row a kind",
       count(*) FILTER (WHERE (event_type IS NULL) <> (kind = 'other') OR (event = 'others' AND kind NOT IN ('spin', 'statistics')) <> (kind LIKE 'other%' AND kind <> 'other_lock')) AS "without events",
       count(*) FILTER (WHERE num_nulls(what, meaning, remedy) > 0 OR '' IN (trim(what), trim(meaning), trim(remedy))) AS "without a text",
       count(*) FILTER (WHERE length(what) > 36) AS "too long",
       count(*) FILTER (WHERE num_nulls(cured_in, cure, cured_meaning) NOT IN (0, 3) OR cured_in NOT BETWEEN 16 AND 18
                           OR '' IN (trim(cure), trim(cured_meaning))) AS "half a cure"
  FROM pgscale.wait_meanings;
\echo -- the kind of an event, whose names differ in case from one major to another; an event of none has the rest of its type
SELECT type, event, pgscale.wait_kind(type, event)
  FROM (VALUES ('IO', 'WalSync'), ('IO', 'WALSync'), ('LWLock', 'WALWrite'), ('IO', 'WALWrite'), ('IPC', 'XactGroupUpdate'),
               ('IPC', 'HashBuildAllocate'), ('LWLock', 'of another extension'), ('CPU', 'CPU'), ('Timeout', 'PgSleep'),
               ('Timeout', 'VacuumDelay'), ('', ''), (NULL, 'WalSync'), ('IO', 'AioIoCompletion'), ('IO', 'AioIoUringSubmit'),
               ('IO', 'AioIoUringExecution'), ('LWLock', 'AioWorkerSubmissionQueue'), ('LWLock', 'AioWorkerControl'),
               ('LWLock', 'AioUringCompletion')) e (type, event);
\echo -- a kind of which this major has no event shows none; and where the server lists its events, those of asynchronous I/O have kinds
SELECT count(*) FILTER (WHERE event = 'others') AS others, count(*) FILTER (WHERE kind ~ '^aio_' AND (event IS NULL) <> (current_setting('server_version_num')::int < 180000)) AS aio
  FROM pgscale.wait_meanings;
SELECT to_regclass('pg_catalog.pg_wait_events') IS NOT NULL AS listed \gset
\if :listed
CREATE TEMP VIEW aio AS SELECT type, name FROM pg_wait_events WHERE name ~* '^aio';
\else
CREATE TEMP VIEW aio AS SELECT NULL AS type, NULL AS name;
\endif
SELECT type, name FROM aio WHERE pgscale.wait_kind(type, name) ~ '^other';
SELECT m.kind FROM pgscale.wait_meanings m, unnest(string_to_array(event, ', ')) e
 WHERE e <> 'others' AND pgscale.wait_kind(event_type, e) IS DISTINCT FROM m.kind;
\echo -- waits for buffers, by the names that majors have for them
SELECT pgscale.wait_kind(type, event), string_agg(event, ' ' ORDER BY n) AS events
  FROM (VALUES (1, 'LWLock', 'BufferContent'), (2, 'Buffer', 'BufferShared'), (3, 'Buffer', 'BufferShareExclusive'),
               (4, 'Buffer', 'BufferExclusive'), (5, 'BufferPin', 'BufferPin'), (6, 'Buffer', 'BufferCleanup')) e (n, type, event)
 GROUP BY 1 ORDER BY min(n);

\echo -- wrong input
SELECT * FROM pgscale.advice_rules(NULL);
SELECT * FROM pgscale.advice_rules('1 hour', NULL);
SELECT * FROM pgscale.advice_rules('0');
SELECT * FROM pgscale.contention('-1 day');
SELECT * FROM pgscale.wal_efficiency(NULL);
SELECT count(*) FROM pgscale.contention('178000000 years') WHERE fraction > 1;
SELECT count(*) FROM pgscale.contention('10000000 years') WHERE fraction > 1;
\set VERBOSITY sqlstate
SELECT * FROM pgscale.advice_rules('-1 second');
SELECT * FROM pgscale.advice_rules('now');
SELECT * FROM pgscale.contention(NULL);
\set VERBOSITY default

\echo '-- who may do what; the rules'' own questions are asked as the caller'
CREATE ROLE pgscale_nobody;
CREATE ROLE pgscale_watcher IN ROLE pg_monitor;
GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO pgscale_nobody;
SET ROLE pgscale_nobody;
SELECT * FROM pgscale.advice;
SELECT * FROM pgscale.advice_rules();
SELECT * FROM pgscale.contention();
SELECT * FROM pgscale.wal_efficiency();
SELECT * FROM pgscale.advice_rules();
SELECT * FROM pgscale.contention('1 hour');
SELECT * FROM pgscale.wait_meanings;
SELECT * FROM pgscale.wal_efficiency('1 hour');
RESET ROLE;
SET ROLE pgscale_watcher;
SELECT count(*) > 20 AS rules FROM pgscale.advice_rules();
SELECT count(*) FROM pgscale.wal_efficiency();
SELECT count(*) >= 0 AS rows FROM pgscale.contention();
SELECT count(*) >= 0 AS rows FROM pgscale.contention('1 hour');
SELECT what FROM pgscale.wait_meanings WHERE kind = pgscale.wait_kind('Lock', 'tuple');
SELECT rule, verdict, reason FROM pgscale.advice_rules('1 ms', true) WHERE rule ~ 'random_page_cost|concurrency' ORDER BY 1;
RESET ROLE;

DROP EXTENSION pgscale;
DROP ROLE pgscale_nobody, pgscale_watcher;
