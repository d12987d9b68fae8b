-- What it answers to wrong input, and to whom. What it measures and plans: t/relocation_plan.pl.
CREATE EXTENSION pgscale;
\pset format unaligned \pset footer off

CREATE FUNCTION try(call text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    message text;
    detail text;
    hint text;
BEGIN
    EXECUTE 'SELECT * FROM pgscale.' || call;
    RAISE INFO '%: no error', call;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RAISE INFO USING MESSAGE = format('%s: %s: %s', call, SQLSTATE, message), DETAIL = detail, HINT = hint;
END $$;

-- a row for each tablespace that can hold relations of a database
SELECT tablespace, reads > 0 AS read, read_ms <= max_ms AS mean, reason ~ '^(of its relations|of a temporary file)' AS reason
  FROM pgscale.tablespace_latency();
SELECT count(*) FROM pgscale.tablespace_latency(NULL);
SELECT try(call) FROM unnest('{tablespace_latency(''nowhere''), tablespace_latency(''''), tablespace_latency(''pg_global'')}'::text[]) call;

-- one clear error each
SELECT try('relocation_plan(' || arguments || ')') FROM unnest(ARRAY[
    'NULL, 1', '''pg_default'', NULL', '''pg_default'', 1, NULL', '''nowhere'', 1', '''pg_global'', 1',
    '''pg_default'', 0', '''pg_default'', 1, ''0''', '''pg_default'', 1, ''00:01:00.001''', '''pg_default'', 1, ''1 month''']) arguments;

-- a window that is watched first: in the session only, and for as long as a day
CALL pgscale.relocation_watch('0');
CALL pgscale.relocation_watch('24:00:00.001');
BEGIN;
CALL pgscale.relocation_watch('1 ms');
ROLLBACK;
CALL pgscale.relocation_watch('1 ms');
SELECT * FROM pgscale.relocation_plan('pg_default', 1, NULL);

-- nothing is read, or all of it lies there already
SELECT * FROM pgscale.relocation_plan('pg_default', 1, duration => '1 ms');
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT * FROM pgscale.relocation_plan('pg_default', 1, '1 ms');
COMMIT;

-- for whom: EXECUTE on both, and membership in pg_monitor
CREATE ROLE regress_planner;
GRANT EXECUTE ON FUNCTION try(text) TO regress_planner;
GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO regress_planner;
GRANT EXECUTE ON FUNCTION pgscale.relocation_plan(name, bigint, interval) TO regress_planner;
SET ROLE regress_planner;
SELECT try(call) FROM unnest('{tablespace_latency(), "relocation_plan(''pg_default'', 1)"}'::text[]) call;
RESET ROLE;
GRANT pg_monitor TO regress_planner;
SET ROLE regress_planner;
SELECT try(call) FROM unnest('{tablespace_latency(), "relocation_plan(''pg_default'', 1)"}'::text[]) call;
RESET ROLE;
GRANT EXECUTE ON FUNCTION pgscale.tablespace_latency(name) TO regress_planner;
SET ROLE regress_planner;
SELECT try(call) FROM unnest('{tablespace_latency(), "relocation_plan(''pg_default'', 1, ''1 ms'')"}'::text[]) call;
RESET ROLE;

REVOKE pg_monitor FROM regress_planner;
GRANT EXECUTE ON PROCEDURE pgscale.relocation_watch(interval, bigint) TO regress_planner;
SET ROLE regress_planner;
CALL pgscale.relocation_watch('1 ms');
RESET ROLE;

DROP OWNED BY regress_planner;
DROP ROLE regress_planner;
DROP FUNCTION try(text);
DROP EXTENSION pgscale;
