-- Changes of settings: what is written to postgresql.auto.conf and to the journal, what is refused, and in which words. For
-- failures, other sessions, restarts and what keeps a server from starting see t/tuning_*.pl.
CREATE EXTENSION pgscale;
SET timezone = 'UTC';
\pset format unaligned
\pset tuples_only
\pset null (null)

-- lines of the settings that are used here, as they are in the file
CREATE FUNCTION lines() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT line FROM regexp_split_to_table(pg_read_file('postgresql.auto.conf'), E'\n') line
     WHERE line ~* '^(work_mem|search_path|datestyle|commit_delay|cluster_name|max_connections|tuned\.)' $$;
CREATE FUNCTION journal() RETURNS TABLE (change bigint, setting text, old_value text, new_value text, state text, revert_of bigint,
    reverted_by bigint) LANGUAGE sql AS $$
    SELECT change, setting, old_value, new_value, state, revert_of, reverted_by FROM pgscale.tuning_journal ORDER BY change $$;
SELECT md5(pg_read_file('postgresql.auto.conf')) AS before \gset

-- set, set again, back, and back again
CALL pgscale.set('Work_Mem', '8MB');
-- it said that nothing is in force yet
SET client_min_messages = warning;
SELECT * FROM lines();
CALL pgscale.set('work_mem', '9MB');
SELECT * FROM lines();
SELECT * FROM journal();
CALL pgscale.revert(1);
CALL pgscale.revert(2);
SELECT * FROM lines();
CALL pgscale.revert(1);
SELECT * FROM lines();
SELECT * FROM journal();
SELECT requested_by = session_user, acting_as = current_user, requested_at <= applied_at, applied_at <= clock_timestamp(), reason,
       evidence, outcome, sqlstate, message FROM pgscale.tuning_journal WHERE change = 1;
SELECT md5(pg_read_file('postgresql.auto.conf')) = :'before' AS as_before;

-- values come to the file as postgresql.conf has them, whatever is in them
CALL pgscale.set('search_path', $$"$user", Public, "a'b\c,d"$$);
CALL pgscale.set('cluster_name', $$it's \n "x" #$$);
CALL pgscale.set('DateStyle', 'ISO, DMY');
CALL pgscale.set('commit_delay', ' 10 ');
SELECT * FROM lines();
SELECT change, setting, new_value FROM journal() WHERE state NOT IN ('reverted') AND revert_of IS NULL;
CALL pgscale.set('search_path', '');
SELECT * FROM lines();
CALL pgscale.revert(9);
CALL pgscale.revert(8);
CALL pgscale.revert(7);
CALL pgscale.revert(6);
CALL pgscale.revert(5);
SELECT md5(pg_read_file('postgresql.auto.conf')) = :'before' AS as_before;

-- NULL removes the line, and revert puts back what was there, a line as somebody else wrote it
ALTER SYSTEM SET search_path = "Public", pg_temp;
CALL pgscale.set('search_path', NULL);
SELECT * FROM lines();
CALL pgscale.set('search_path', NULL);
CALL pgscale.revert(16);
CALL pgscale.revert(15);
SELECT * FROM lines();
ALTER SYSTEM RESET search_path;

-- what was changed by hand since is not overwritten, unless by force
CALL pgscale.set('work_mem', '8MB');
ALTER SYSTEM SET work_mem = '10MB';
SELECT state FROM journal() WHERE change = 19;
CALL pgscale.revert(19);
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM lines();
CALL pgscale.revert(19, force => true);
SELECT * FROM lines();
SELECT * FROM journal() WHERE change IN (19, 20);
CALL pgscale.revert(20);
\echo :LAST_ERROR_SQLSTATE
CALL pgscale.revert(19);
\echo :LAST_ERROR_SQLSTATE
-- by hand, but to what it was: nothing to complain of
CALL pgscale.set('work_mem', '8MB');
ALTER SYSTEM RESET work_mem;
ALTER SYSTEM SET work_mem = '8MB';
CALL pgscale.revert(21);

-- what the server refuses is refused before anything is written
SELECT md5(pg_read_file('postgresql.auto.conf')) AS before, (SELECT max(change) FROM journal()) AS last \gset
CALL pgscale.set('nonsense', '1'); \echo :LAST_ERROR_SQLSTATE
CALL pgscale.set('tuned.nonsense', '1'); \echo :LAST_ERROR_SQLSTATE
CALL pgscale.set('commit_delay', '100001'); \echo :LAST_ERROR_SQLSTATE
CALL pgscale.set('commit_delay', 'soon'); \echo :LAST_ERROR_SQLSTATE
CALL pgscale.set('wal_level', 'loud'); \echo :LAST_ERROR_SQLSTATE
CALL pgscale.set('cluster_name', E'a\nb'); \echo :LAST_ERROR_SQLSTATE
CALL pgscale.set('data_directory', '/tmp'); \echo :LAST_ERROR_SQLSTATE
CALL pgscale.set(NULL, '1'); \echo :LAST_ERROR_SQLSTATE
CALL pgscale.set('work_mem', '1MB', NULL); \echo :LAST_ERROR_SQLSTATE
CALL pgscale.revert(NULL); \echo :LAST_ERROR_SQLSTATE
CALL pgscale.revert(0); \echo :LAST_ERROR_SQLSTATE
CALL pgscale.revert(1, force => NULL); \echo :LAST_ERROR_SQLSTATE
CALL pgscale.apply(NULL); \echo :LAST_ERROR_SQLSTATE
CALL pgscale.apply('nonsense'); \echo :LAST_ERROR_SQLSTATE
CALL pgscale.apply('port'); \echo :LAST_ERROR_SQLSTATE
CALL pgscale.apply_all(NULL); \echo :LAST_ERROR_SQLSTATE
SELECT * FROM pgscale.verify(NULL); \echo :LAST_ERROR_SQLSTATE
SELECT * FROM pgscale.verify(0); \echo :LAST_ERROR_SQLSTATE
SELECT * FROM pgscale.verify(1, '1 second'); \echo :LAST_ERROR_SQLSTATE

-- it ends transactions, so it cannot be within one
RESET client_min_messages;
BEGIN;
CALL pgscale.set('work_mem', '1MB');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
DO $$
DECLARE
    change bigint;
BEGIN
    CALL pgscale.set('work_mem', '1MB', change => change);
EXCEPTION WHEN active_sql_transaction THEN
    RAISE NOTICE '% %', SQLSTATE, SQLERRM;
END $$;
CREATE FUNCTION within() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    change bigint;
BEGIN
    CALL pgscale.set('work_mem', '1MB', change => change);
    RETURN change;
END $$;
SELECT within();
\echo :LAST_ERROR_SQLSTATE
BEGIN READ ONLY;
CALL pgscale.revert(1);
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
SET default_transaction_read_only = on;
CALL pgscale.set('work_mem', '1MB');
\echo :LAST_ERROR_SQLSTATE
SET default_transaction_read_only = off;
SELECT md5(pg_read_file('postgresql.auto.conf')) = :'before' AS as_before, (SELECT max(change) FROM journal()) - :last AS more;

-- but a DO block can call it, and nothing that its caller sets changes what it does
SET default_transaction_isolation = 'serializable';
DO $$
DECLARE
    change bigint;
BEGIN
    FOR i IN 1..3 LOOP
        CALL pgscale.set('work_mem', i || 'MB', change => change);
        RAISE NOTICE 'change %', change;
    END LOOP;
    FOR i IN REVERSE change..change - 2 LOOP
        CALL pgscale.revert(i, reverted_by => change);
    END LOOP;
    RAISE NOTICE '%', current_setting('transaction_isolation');
END $$;
RESET default_transaction_isolation;
SELECT state, count(*) FROM journal() WHERE change > :last GROUP BY state ORDER BY state;
SELECT md5(pg_read_file('postgresql.auto.conf')) = :'before' AS as_before;

-- names of an extension that is not loaded, but somebody has used
SET tuned.by = 'hand';
CALL pgscale.set('tuned.by', $$'"\$$, change => 0) \gset
SELECT * FROM lines();
CALL pgscale.revert(:change);
SELECT * FROM lines();

-- two that are stacked, and a hand on top
SET client_min_messages = warning;
CALL pgscale.set('work_mem', '1MB', change => 0) \gset lower_
CALL pgscale.set('work_mem', '2MB', change => 0) \gset upper_
ALTER SYSTEM SET work_mem = '3MB';
\set VERBOSITY sqlstate
CALL pgscale.revert(:lower_change);
CALL pgscale.revert(:upper_change);
\set VERBOSITY default
CALL pgscale.revert(:lower_change, force => true, reverted_by => 0) \gset
SELECT state, reverted_by = :reverted_by FROM journal() WHERE change IN (:lower_change, :upper_change);
SELECT md5(pg_read_file('postgresql.auto.conf')) = :'before' AS as_before;

-- overridden for some
RESET client_min_messages;
ALTER DATABASE contrib_regression SET Work_Mem = '5MB';
CALL pgscale.set('work_mem', '1MB', change => 0) \gset
CALL pgscale.revert(:change, reverted_by => 0) \gset
ALTER DATABASE contrib_regression RESET work_mem;
-- and only at the next start
CALL pgscale.set('max_connections', '31', change => 0) \gset
SELECT state FROM journal() WHERE change = :change;
CALL pgscale.revert(:change, reverted_by => 0) \gset
SELECT md5(pg_read_file('postgresql.auto.conf')) = :'before' AS as_before;

-- What has followed a change is told of all changes at once: each row is read a few times, however many there are.  Here lines
-- are missing, which is what a change that has begun makes of some of these settings; the rest is asked row by row.
BEGIN;
CREATE FUNCTION rows_read() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT pg_stat_get_xact_tuples_returned(o) + pg_stat_get_xact_tuples_fetched(o)
      FROM (SELECT 'pgscale_internal.tuning_change'::regclass::oid) t (o) $$;
INSERT INTO pgscale_internal.tuning_change (cluster, database, node, timeline, setting, new_value, state, requested_by, acting_as, revert_of)
SELECT cluster, database, node, timeline, 'tuned.setting' || n % 12, CASE WHEN n % 6 <> 0 OR n % 2 <> 0 THEN n::text END,
       (array['applied', 'applied', 'reverted', 'failed', 'begun'])[1 + n * 7919 % 5], requested_by, acting_as,
       CASE WHEN n * 31 % 7 IN (0, 3) THEN 1 END
  FROM pgscale_internal.tuning_change, generate_series(1, 400) n WHERE change = 1;
SELECT rows_read() AS read \gset
CREATE TEMP TABLE shown ON COMMIT DROP AS SELECT change, state FROM pgscale.tuning_journal WHERE setting LIKE 'tuned.setting%';
SELECT rows_read() - :read <= 3 * count(*) AS few_reads FROM pgscale_internal.tuning_change;
SELECT s.state, count(*), bool_and((s.state = 'superseded') = (c.state = 'applied' AND (
           EXISTS (SELECT FROM pgscale_internal.tuning_change l WHERE l.setting = c.setting AND l.change > c.change AND l.state = 'applied'
                      AND (l.revert_of IS NULL OR c.revert_of IS NOT NULL))
           OR (SELECT l.new_value IS NULL FROM pgscale_internal.tuning_change l WHERE l.setting = c.setting AND l.change > c.change
                  AND l.state = 'begun' ORDER BY l.change DESC LIMIT 1) AND c.new_value IS NOT NULL))) AS right
  FROM shown s JOIN pgscale_internal.tuning_change c USING (change) GROUP BY s.state ORDER BY s.state;
ROLLBACK;

-- without the extension there is no journal; and no trust in a table of that name
DROP FUNCTION journal();
DROP EXTENSION pgscale;
\set VERBOSITY terse
CREATE SCHEMA pgscale_internal;
CREATE TABLE pgscale_internal.tuning_change (LIKE pg_class);
CREATE PROCEDURE public.set(text, text, boolean, boolean, INOUT bigint) LANGUAGE C AS 'pgscale', 'pgscale_tuning_set';
CALL public.set('work_mem', '1MB', false, false, NULL);
\echo :LAST_ERROR_SQLSTATE
DROP TABLE pgscale_internal.tuning_change;
CALL public.set('work_mem', '1MB', false, false, NULL);
\echo :LAST_ERROR_SQLSTATE
DROP PROCEDURE public.set;
DROP SCHEMA pgscale_internal;
SELECT md5(pg_read_file('postgresql.auto.conf')) = :'before' AS as_before;
DROP FUNCTION lines, within;
