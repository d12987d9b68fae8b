-- Requests for moves to other tablespaces: what is queued, what is refused, and in which words. Nothing is moved here: for that
-- see t/relocation_kinds.pl.
CREATE EXTENSION pgscale;
CREATE SCHEMA relocate;
GRANT USAGE ON SCHEMA relocate TO PUBLIC;
SET search_path = relocate, public;
ALTER SYSTEM SET pgscale.relocation_workers = 0;
SELECT pg_reload_conf();
DO $$
BEGIN
    FOR i IN 1..600 LOOP
        EXIT WHEN (SELECT NOT enabled AND reason NOT LIKE '%just started' FROM pgscale.health WHERE feature = 'relocation');
        PERFORM pg_sleep(0.05);
    END LOOP;
END $$;
SELECT enabled, state, reason, action FROM pgscale.health WHERE feature = 'relocation';

-- a malformed list of hours is refused; more of them: t/relocation_pace.pl
ALTER SYSTEM SET pgscale.relocation_hours = '22:00-06:00', '12:00-12:00';
ALTER SYSTEM SET pgscale.relocation_hours = '22:00-06:00', '12:00-13:30';
SELECT name, setting, error FROM pg_file_settings WHERE name = 'pgscale.relocation_hours';
ALTER SYSTEM RESET pgscale.relocation_hours;

SET allow_in_place_tablespaces = on;
CREATE TABLESPACE regress_fast LOCATION '';
CREATE TABLESPACE "regress ""a' b" LOCATION '';
SET client_min_messages = warning;
\set VERBOSITY terse

CREATE TABLE t (id int PRIMARY KEY, x int, y text);
INSERT INTO t SELECT i, i % 7, 'y' FROM generate_series(1, 100) i;
CREATE INDEX t_x ON t (x);
CREATE INDEX t_there ON t (y) TABLESPACE regress_fast;

-- what is queued, and how it is shown
CREATE FUNCTION jobs(OUT n bigint, OUT kind text, OUT relation text, OUT "table" text, OUT source name, OUT target name, OUT state text)
RETURNS SETOF record LANGUAGE sql AS $$
    SELECT row_number() OVER (ORDER BY j.job), j.kind, j.relation, j.table_name, j.source, j.target, j.state
      FROM pgscale.relocation_jobs j WHERE j.finished_at IS NULL ORDER BY j.job $$;
-- ends them all
CREATE FUNCTION clear(OUT cancelled bigint) LANGUAGE sql AS $$
    SELECT count(*) FROM pgscale.relocation_jobs j WHERE j.finished_at IS NULL AND pgscale.relocation_cancel(j.job) $$;
-- calls it and shows how it is refused
CREATE FUNCTION refusal(call text) RETURNS TABLE (answer text) LANGUAGE plpgsql AS $$
DECLARE
    state text;
    message text;
    hint text;
BEGIN
    EXECUTE 'SELECT count(*) FROM pgscale.' || call INTO answer;
    answer := 'rows: ' || answer;
    RETURN NEXT;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
    answer := format('%s %s', state, regexp_replace(message, 'job \d+', 'job N'));
    RETURN NEXT;
    IF hint <> '' THEN
        answer := '      ' || hint;
        RETURN NEXT;
    END IF;
END $$;
\pset tuples_only
\pset format unaligned

SELECT count(*) FROM pgscale.relocate_indexes('t_x', 'regress_fast', mode => 'rebuild');
SELECT requested_by = session_user, requested_at <= clock_timestamp(), num_nulls(started_at, finished_at, phase, done_fraction, size_after_bytes,
       block_ms_predicted, sqlstate, message, undo_of), size_bytes = pg_table_size('t_x'), attempts, wait_until <= clock_timestamp()
  FROM pgscale.relocation_jobs;
SELECT count(*) FROM pgscale.relocate_indexes('t', 'regress_fast', mode => 'rebuild');
SELECT count(*) FROM pgscale.relocate_table('t', 'regress_fast', 'lock', '50 ms');
SELECT * FROM jobs();
SELECT * FROM clear();
SELECT state, sqlstate, message = 'cancelled by ' || quote_ident(session_user), finished_at >= requested_at, wait_until IS NULL, count(*)
  FROM pgscale.relocation_jobs GROUP BY 1, 2, 3, 4, 5;

-- one job an index, or a table; when that has ended, another
SELECT call, answer FROM unnest(ARRAY[
    $$relocate_indexes('t_x', 'regress_fast', mode => 'rebuild')$$,
    $$relocate_indexes('t_x', 'regress "a'' b', mode => 'rebuild')$$,
    $$relocate_indexes('t', 'regress_fast', mode => 'rebuild')$$,
    $$relocate_table('t', 'regress "a'' b', 'lock')$$,
    $$relocate_table('t', 'regress "a'' b', 'lock')$$]) call, refusal(call) answer;
SELECT * FROM clear();
SELECT * FROM refusal($$relocate_indexes('t_x', 'regress "a'' b', mode => 'rebuild')$$);
SELECT * FROM clear();

-- what cannot be moved
CREATE TABLE duplicates (id int);
INSERT INTO duplicates VALUES (1), (1);
CREATE INDEX duplicates_invalid ON duplicates (id);
UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'duplicates_invalid'::regclass;
CREATE UNIQUE INDEX CONCURRENTLY duplicates_id ON duplicates (id);
CREATE TABLE excluded (during int4range, EXCLUDE USING gist (during WITH &&));
CREATE TEMP TABLE temporary (id int PRIMARY KEY);
CREATE VIEW v AS SELECT 1 AS x;
CREATE TABLE unstored (id int) PARTITION BY RANGE (id);
CREATE INDEX unstored_id ON ONLY unstored (id);
SELECT format('toast: %s', toast) AS toast, i.indexrelid::regclass AS toast_index, toast::text AS toast_table
  FROM (SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 't'::regclass) c (toast), pg_index i WHERE i.indrelid = toast \gset
SELECT call, answer FROM unnest(ARRAY[
    $$relocate_indexes('duplicates_invalid', 'regress_fast', mode => 'rebuild')$$,
    $$relocate_indexes('excluded_during_excl', 'regress_fast', mode => 'rebuild')$$,
    $$relocate_indexes('unstored_id', 'regress_fast', mode => 'rebuild')$$,
    $$relocate_indexes('temporary_pkey', 'regress_fast', mode => 'rebuild')$$,
    $$relocate_indexes('pg_class_oid_index', 'regress_fast', mode => 'rebuild')$$,
    $$relocate_indexes('t_there', 'regress_fast', mode => 'rebuild')$$,
    $$relocate_indexes('t_x', 'pg_default', mode => 'rebuild')$$,
    $$relocate_indexes('t_x', 'pg_global', mode => 'rebuild')$$,
    $$relocate_indexes('t_x', 'regress_none', mode => 'rebuild')$$,
    $$relocate_indexes('v', 'regress_fast', mode => 'rebuild')$$,
    $$relocate_indexes('none', 'regress_fast', mode => 'rebuild')$$,
    $$relocate_indexes(1, 'regress_fast', mode => 'rebuild')$$,
    $$relocate_indexes('pg_class', 'regress_fast', mode => 'rebuild')$$,
    $$relocate_indexes('excluded', 'regress_fast', mode => 'rebuild')$$,
    $$relocate_tablespace('regress_fast', 'regress_fast', 'indexes', mode => 'rebuild')$$,
    $$relocate_tablespace('pg_global', 'regress_fast', 'indexes', mode => 'rebuild')$$,
    $$relocate_table('t', 'regress_fast', 'fast')$$,
    $$relocate_table('t', 'regress_fast', 'lock', '0')$$,
    $$relocate_table('t', 'regress_fast', 'lock', '25 days')$$,
    $$relocate_table('t', 'pg_default', 'lock')$$,
    $$relocate_table('t_x', 'regress_fast', 'lock')$$,
    $$relocate_table('pg_class', 'regress_fast', 'lock')$$,
    $$relocate_table(1, 'regress_fast', 'lock')$$]) call, refusal(call) answer;
-- the server's words, which differ from one major to the next
SELECT regexp_replace(answer, 'pg_toast_\d+', 'pg_toast_N') FROM refusal(format('relocate_indexes(%L, %L, mode => ''rebuild'')', :'toast_index', 'regress_fast')) answer;
SELECT regexp_replace(answer, 'pg_toast_\d+', 'pg_toast_N') FROM refusal(format('relocate_table(%L, %L, %L)', :'toast_table', 'regress_fast', 'lock')) answer;

-- of several, what cannot be moved is left out, with a word
SET client_min_messages = notice;
SELECT count(*) FROM pgscale.relocate_indexes('excluded', 'regress_fast', mode => 'rebuild');
SELECT count(*) FROM pgscale.relocate_indexes('t', 'regress_fast', mode => 'rebuild');
SET client_min_messages = warning;
SELECT * FROM jobs();
SELECT * FROM clear();

-- null is nothing; needed extensions
SELECT call, answer FROM unnest(ARRAY[
    $$relocate_indexes(NULL, 'regress_fast', mode => 'rebuild')$$,
    $$relocate_indexes('t', 'regress_fast', NULL, mode => 'rebuild')$$,
    $$relocate_tablespace(NULL, 'regress_fast', 'indexes', mode => 'rebuild')$$,
    $$relocate_table('t', 'regress_fast', NULL)$$,
    $$relocate_indexes('t_x', 'regress_fast', amcheck => true, mode => 'rebuild')$$,
    $$relocate_indexes('t_x', 'regress_fast', prewarm => true, mode => 'rebuild')$$]) call, refusal(call) answer;
SELECT pgscale.relocation_cancel(NULL) IS NULL, pgscale.relocation_undo(NULL) IS NULL;

-- partitioned: every leaf, and of tables without any, none
CREATE TABLE p (id int, x int, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id);
CREATE TABLE p21 PARTITION OF p2 FOR VALUES FROM (10) TO (15);
CREATE TABLE p22 PARTITION OF p2 FOR VALUES FROM (15) TO (20);
CREATE INDEX p_x ON p (x);
CREATE TABLE leafless (id int PRIMARY KEY) PARTITION BY RANGE (id);
SELECT count(*) FROM pgscale.relocate_indexes('p2_pkey', 'regress_fast', mode => 'rebuild');
SELECT relation, "table" FROM jobs();
SELECT * FROM clear();
SELECT count(*) FROM pgscale.relocate_indexes('p', 'regress_fast', mode => 'rebuild');
SELECT count(*) FROM pgscale.relocate_table('p', 'regress_fast', 'lock');
SELECT kind, relation, "table" FROM jobs();
SELECT * FROM clear();
SELECT count(*) FROM pgscale.relocate_indexes('leafless', 'regress_fast', mode => 'rebuild');
SELECT count(*) FROM pgscale.relocate_table('leafless', 'regress_fast', 'lock');

-- moves of what is in use: of partitioned tables and indexes also the tablespace of new partitions
SELECT count(*) FROM pgscale.relocate_table('p', 'regress_fast');
SELECT count(*) FROM pgscale.relocate_indexes('p_x', 'regress_fast', mode => 'online');
SELECT kind, relation, "table" FROM jobs();
SELECT * FROM clear();
SELECT count(*) FROM pgscale.relocate_table('leafless', 'regress_fast');
SELECT count(*) FROM pgscale.relocate_indexes('leafless_pkey', 'regress_fast', mode => 'online');
SELECT count(*) FROM pgscale.relocate_indexes('excluded', 'regress_fast', mode => 'online');
SELECT kind, relation, mode FROM pgscale.relocation_jobs WHERE finished_at IS NULL ORDER BY job;
SELECT * FROM clear();
CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY);
CREATE ACCESS METHOD regress_heap TYPE TABLE HANDLER heap_tableam_handler;
CREATE ACCESS METHOD regress_gist TYPE INDEX HANDLER gisthandler;
CREATE OPERATOR CLASS regress_ops DEFAULT FOR TYPE box USING regress_gist AS OPERATOR 3 &&,
    FUNCTION 1 gist_box_consistent(internal, box, smallint, oid, internal), FUNCTION 2 gist_box_union(internal, internal),
    FUNCTION 5 gist_box_penalty(internal, internal, internal), FUNCTION 6 gist_box_picksplit(internal, internal),
    FUNCTION 7 gist_box_same(box, box, internal);
CREATE TABLE strange (id int) USING regress_heap;
CREATE TABLE strangely_indexed (id box);
CREATE INDEX strange_index ON strangely_indexed USING regress_gist (id);
CREATE FOREIGN DATA WRAPPER regress_wrapper;
CREATE SERVER regress_server FOREIGN DATA WRAPPER regress_wrapper;
CREATE FOREIGN TABLE outside (id int) SERVER regress_server;
SELECT call, answer FROM unnest(ARRAY[
    $$relocate_table('unlogged', 'regress_fast')$$,
    $$relocate_indexes('unlogged_pkey', 'regress_fast', mode => 'online')$$,
    $$relocate_indexes('temporary_pkey', 'regress_fast', mode => 'online')$$,
    $$relocate_table('pg_class', 'regress_fast')$$,
    $$relocate_table('pgscale_internal.relocation_job', 'regress_fast')$$,
    $$relocate_table('strange', 'regress_fast')$$,
    $$relocate_indexes('strange_index', 'regress_fast', mode => 'online')$$,
    $$relocate_table('outside', 'regress_fast')$$,
    $$relocate_indexes('duplicates_invalid', 'regress_fast', mode => 'online')$$,
    $$relocate_indexes('t_x', 'regress_fast', mode => 'lock')$$,
    $$relocate_table('t', 'regress_none')$$,
    $$relocate_tablespace('regress_fast', 'regress_fast')$$,
    $$relocate_tablespace('regress_fast', 'regress_none')$$,
    $$relocate_tablespace('pg_global', 'regress_fast')$$,
    $$relocate_tablespace('pg_default', 'regress_fast', 'tables')$$,
    $$relocate_tablespace('pg_default', 'regress_fast', mode => 'rebuild')$$,
    $$relocate_tablespace('pg_default', 'regress_fast', 'indexes', mode => 'lock')$$,
    $$relocate_tablespace('regress_fast', NULL)$$,
    $$relocate_indexes('t_x', 'regress_fast', mode => NULL)$$]) call, refusal(call) answer;
SET client_min_messages = notice;
CREATE TABLE small (id int);
INSERT INTO small VALUES (1);
SELECT count(*) FROM pgscale.relocate_table('small', 'regress_fast');
SET client_min_messages = warning;
SELECT * FROM clear();
DROP FOREIGN DATA WRAPPER regress_wrapper CASCADE;
DROP ACCESS METHOD regress_heap CASCADE;
DROP ACCESS METHOD regress_gist CASCADE;

-- other kinds
CREATE MATERIALIZED VIEW matview AS SELECT 1 AS x;
CREATE INDEX matview_x ON matview (x);
SELECT count(*) FROM unnest('{unlogged_pkey, matview_x}'::regclass[]) i, pgscale.relocate_indexes(i, 'regress_fast', mode => 'rebuild');
SELECT count(*) FROM unnest('{unlogged, matview}'::regclass[]) r, pgscale.relocate_table(r, 'regress_fast', 'lock');
SELECT kind, relation, "table" FROM jobs();
SELECT * FROM clear();

-- all of a tablespace, largest first; the catalogs stay
CREATE TABLE larger (id int);
INSERT INTO larger SELECT generate_series(1, 3000);
CREATE INDEX larger_empty ON larger (id) TABLESPACE regress_fast WHERE id < 0;
CREATE INDEX larger_id ON larger (id) TABLESPACE regress_fast;
SELECT count(*) FROM pgscale.relocate_tablespace('regress_fast', 'regress "a'' b', 'indexes', mode => 'rebuild');
SELECT * FROM jobs();
SELECT * FROM clear();
SELECT count(*) FROM pgscale.relocate_tablespace('regress_fast', 'regress "a'' b');
SELECT relation FROM jobs();
SELECT * FROM clear();
SELECT count(*) > 5 FROM pgscale.relocate_tablespace('pg_default', 'regress_fast', 'indexes', mode => 'rebuild');
SELECT relation FROM jobs() WHERE relation ~ '^pg|temporary|excl|duplicates|regress' ORDER BY 1;
SELECT cancelled > 5 FROM clear();

-- what a move must not change is in the text that is compared: whatever is changed, is seen in a line of its own
CREATE ROLE regress_owner;
GRANT ALL ON SCHEMA relocate TO regress_owner;
CREATE TABLE d (id int, n int NOT NULL, v text, CONSTRAINT d_key UNIQUE (id), CONSTRAINT d_late PRIMARY KEY (n) DEFERRABLE);
CREATE UNIQUE INDEX d_n ON d (n);
CREATE INDEX d_e ON d (n, (n + 1), lower(v));
CREATE TABLE parted (n int) PARTITION BY RANGE (n);
CREATE TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (10);
CREATE INDEX parted_n ON ONLY parted (n);
CREATE INDEX part_n ON part (n);
SELECT index, line FROM unnest('{d_key, d_late, d_n}'::text[]) index,
       regexp_split_to_table(pgscale_internal.relocation_describe_index(index::regclass), E'\n') line WHERE line ~ '^primary|^owner' ORDER BY 1, 2;
CREATE FUNCTION seen(index text, change text) RETURNS TABLE (line text) LANGUAGE plpgsql AS $$
DECLARE
    oid regclass := index;
    before text := pgscale_internal.relocation_describe_index(oid);
BEGIN
    EXECUTE change;
    RETURN QUERY SELECT substring(l, '^(\w+ (?:on|by|targets)|\w+)') FROM
        (SELECT regexp_split_to_table(pgscale_internal.relocation_describe_index(oid), E'\n')
         EXCEPT SELECT regexp_split_to_table(before, E'\n')) x (l) ORDER BY 1;
END $$;
SELECT change, string_agg(line, ', ') FROM (VALUES
    (1, 'd_n', $$ALTER INDEX d_n SET (fillfactor = 70)$$),
    (2, 'd_n', $$ALTER TABLE d CLUSTER ON d_n$$),
    (3, 'd_n', $$ALTER TABLE d REPLICA IDENTITY USING INDEX d_n$$),
    (4, 'd_n', $$COMMENT ON INDEX d_n IS 'new'$$),
    (5, 'd_n', $$ALTER INDEX d_n DEPENDS ON EXTENSION pgscale$$),
    (6, 'd_n', $$ALTER TABLE d RENAME n TO m$$),
    (7, 'd_key', $$COMMENT ON CONSTRAINT d_key ON d IS 'new'$$),
    (8, 'd_key', $$CREATE TABLE referring (id int REFERENCES d (id))$$),
    (9, 'd_key', $$ALTER TABLE d RENAME CONSTRAINT d_key TO d_once$$),
    (10, 'd_e', $$ALTER INDEX d_e ALTER COLUMN 2 SET STATISTICS 77$$),
    (11, 'd_e', $$ALTER TABLE d OWNER TO regress_owner$$),
    (12, 'part_n', $$ALTER INDEX parted_n ATTACH PARTITION part_n$$),
    (13, 'matview_x', $$ALTER INDEX matview_x SET TABLESPACE regress_fast$$),
    (14, 'matview_x', $$REINDEX INDEX matview_x$$)) c (n, index, change)
  LEFT JOIN LATERAL seen(index, change) ON true
 GROUP BY n, change ORDER BY n;

-- names
CREATE SCHEMA "s ""ch'ema
";
CREATE TABLE "s ""ch'ema
"."ta ble" (id int);
SELECT format('CREATE INDEX %I ON %I.%I (id)', name, E's "ch''ema\n', 'ta ble')
  FROM unnest(ARRAY['"', '''', 'ONE', E'new\nline', 'semi; DROP TABLE t', repeat('x', 63), repeat('ä', 31), '%s', '\']) name \gexec
SELECT count(*) FROM pgscale.relocate_indexes(E'"s ""ch''ema\n"."ta ble"', 'regress "a'' b', mode => 'rebuild');
SELECT relation, "table", target FROM jobs();
SELECT * FROM refusal(format('relocate_indexes(%L, %L, mode => ''rebuild'')', E'"s ""ch''ema\n"."new\nline"', 'regress "a'' b'));
SELECT * FROM clear();

-- it belongs to the transaction that asks for it
BEGIN;
SELECT count(*) FROM pgscale.relocate_indexes('t_pkey', 'regress_fast', mode => 'rebuild');
SAVEPOINT before;
SELECT count(*) FROM pgscale.relocate_indexes('t_x', 'regress_fast', mode => 'rebuild');
ROLLBACK TO before;
COMMIT;
SELECT relation FROM jobs();
SELECT * FROM clear();
BEGIN;
SELECT count(*) FROM pgscale.relocate_indexes('t_x', 'regress_fast', mode => 'rebuild');
PREPARE TRANSACTION 'regress';
SELECT count(*) FROM jobs();
BEGIN READ ONLY;
SELECT answer FROM unnest('{relocation_cancel(1),relocation_undo(1)}'::text[]) call, refusal(call) answer;
SELECT * FROM pgscale.relocate_indexes('t_x', 'regress_fast', mode => 'rebuild');
ROLLBACK;

-- cancel, undo, wait
SELECT pgscale.relocate_indexes('t_x', 'regress_fast', mode => 'rebuild') AS job \gset
SELECT state FROM pgscale.relocation_jobs WHERE job = :job;
CALL pgscale.relocation_wait(:job, '1 ms');
SELECT * FROM refusal(format('relocation_undo(%s)', :job));
SELECT pgscale.relocation_cancel(:job), pgscale.relocation_cancel(:job) AS again;
CALL pgscale.relocation_wait(:job);
CALL pgscale.relocation_wait(job => :job, timeout => '1 hour', state => 'whatever');
SELECT * FROM refusal(format('relocation_undo(%s)', :job));
SELECT call, answer FROM unnest(ARRAY['relocation_cancel(0)', 'relocation_cancel(-1)', 'relocation_cancel(9223372036854775807)',
    'relocation_undo(0)']) call, refusal(call) answer;
CALL pgscale.relocation_wait(0);
CALL pgscale.relocation_wait(NULL);
CALL pgscale.relocation_wait(:job, NULL);
CALL pgscale.relocation_wait(:job, '-1 s');
CALL pgscale.relocation_wait(:job, '25 days');
BEGIN;
CALL pgscale.relocation_wait(:job);
ROLLBACK;

-- who may: what was granted, on what one owns, to where one may create
CREATE ROLE regress_mover;
CREATE ROLE regress_other;
GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO regress_mover, regress_other;
GRANT EXECUTE ON FUNCTION pgscale.relocate_indexes(regclass, name, boolean, boolean, text),
    pgscale.relocate_table(regclass, name, text, interval, boolean), pgscale.relocation_cancel(bigint), pgscale.relocation_undo(bigint)
    TO regress_mover, regress_other;
GRANT EXECUTE ON FUNCTION refusal(text) TO regress_mover, regress_other;
CREATE TABLE own (id int PRIMARY KEY);
ALTER TABLE own OWNER TO regress_mover;
SET ROLE regress_mover;
SELECT * FROM refusal($$relocate_indexes('own_pkey', 'regress_fast', mode => 'rebuild')$$);
RESET ROLE;
GRANT CREATE ON TABLESPACE regress_fast TO regress_mover, regress_other;
SET ROLE regress_mover;
SELECT pgscale.relocate_indexes('own_pkey', 'regress_fast', mode => 'rebuild') AS job \gset
SELECT call, regexp_replace(answer, 'From PostgreSQL.*', '') FROM unnest(ARRAY[
    $$relocate_indexes('t_x', 'regress_fast', mode => 'rebuild')$$,
    $$relocate_table('t', 'regress_fast')$$,
    $$relocate_indexes('t', 'regress_fast', mode => 'online')$$,
    $$relocate_tablespace('pg_default', 'regress_fast', 'indexes', mode => 'rebuild')$$,
    $$relocate_tablespace('pg_default', 'regress_fast')$$]) call, refusal(call) answer;
TABLE pgscale.relocation_jobs;
TABLE pgscale_internal.relocation_job;
INSERT INTO pgscale_internal.relocation_job DEFAULT VALUES;
RESET ROLE;
SELECT relation, requested_by FROM pgscale.relocation_jobs WHERE job = :job;
SET ROLE regress_other;
SELECT * FROM refusal(format('relocation_cancel(%s)', :job));
RESET ROLE;
GRANT regress_mover TO regress_other;
SET ROLE regress_other;
SELECT pgscale.relocation_cancel(:job);
RESET ROLE;

-- what users put in the way of names and operators does not act for the library
CREATE SCHEMA evil AUTHORIZATION regress_other;
SET ROLE regress_other;
SELECT format($$CREATE FUNCTION evil.equal(a %1$s, b %1$s) RETURNS boolean LANGUAGE plpgsql AS
'BEGIN RAISE WARNING ''as %%'', current_setting(''is_superuser''); RETURN a OPERATOR(pg_catalog.=) b; END';
CREATE OPERATOR evil.= (LEFTARG = %1$s, RIGHTARG = %1$s, FUNCTION = evil.equal)$$, type) FROM unnest('{bigint, oid, text}'::text[]) type \gexec
SET search_path = evil, pg_catalog;
SELECT pgscale.relocation_cancel(:job);
SELECT count(*) FROM pgscale.relocate_indexes('relocate.own_pkey', 'regress_fast', mode => 'rebuild');
SET search_path = relocate, public;
RESET ROLE;
SELECT * FROM jobs();
SELECT * FROM clear();

-- a table of that name counts only while it is the extension's and a superuser's
BEGIN;
ALTER EXTENSION pgscale DROP TABLE pgscale_internal.relocation_job;
SELECT answer FROM unnest('{"relocate_indexes(''t_x'', ''regress_fast'', mode => ''rebuild'')",relocation_cancel(1),relocation_undo(1)}'::text[]) call, refusal(call) answer;
ROLLBACK;
BEGIN;
ALTER TABLE pgscale_internal.relocation_job OWNER TO regress_other;
SELECT answer FROM refusal('relocation_cancel(1)') answer;
ROLLBACK;

-- goes without a trace, with jobs in the queue
SELECT count(*) FROM pgscale.relocate_indexes('t_x', 'regress_fast', mode => 'rebuild');
DROP EXTENSION pgscale;
SELECT count(*) FROM pg_namespace WHERE nspname = 'pgscale';
SELECT indexrelid::regclass, indisvalid FROM pg_index WHERE indrelid = 't'::regclass ORDER BY 1;

ALTER SYSTEM RESET pgscale.relocation_workers;
SELECT pg_reload_conf();
SET client_min_messages = error;
DROP OWNED BY regress_mover, regress_other, regress_owner CASCADE;
DROP SCHEMA relocate, "s ""ch'ema
" CASCADE;
DROP ROLE regress_mover, regress_other, regress_owner;
DROP TABLESPACE "regress ""a' b";
DROP TABLESPACE regress_fast;
