-- What pg_wait_sampling shows, by its names, from pgscale: for PoWA, pg_profile and others that read it. Not a part of the extension.
-- Run it with psql, as a superuser, in each database that needs it: \i this file. -v schema=NAME chooses a schema other than public.
--
-- Whoever may create objects in that schema may have put some there. So nothing there is called: all names are looked up in
-- pg_catalog or qualified, bodies are bound when they are created, nothing is replaced, and views do not go through functions of
-- that schema. Where an object of one of the names exists, the script refuses.

\if :{?schema}
\else
\set schema public
\endif
\set ON_ERROR_STOP on

BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL check_function_bodies = on;
SELECT pg_catalog.set_config('pg_wait_sampling_of_pgscale.schema', :'schema', true) AS schema \gset

DO $$
DECLARE
    target text := pg_catalog.current_setting('pg_wait_sampling_of_pgscale.schema');
    found text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
                     JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid
                     JOIN pg_catalog.pg_namespace n ON n.oid = d.objid
                    WHERE d.deptype = 'e' AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass
                      AND d.classid = 'pg_catalog.pg_namespace'::pg_catalog.regclass
                      AND e.extname = 'pgscale' AND n.nspname = 'pgscale') THEN
        RAISE EXCEPTION 'the extension pgscale is not installed in this database' USING HINT = 'Run CREATE EXTENSION pgscale.';
    END IF;
    IF EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'pg_wait_sampling') THEN
        RAISE EXCEPTION 'pg_wait_sampling itself is installed in this database' USING HINT = 'Nothing is missing, or run DROP EXTENSION pg_wait_sampling before.';
    END IF;
    SELECT pg_catalog.min(name) INTO found FROM (
        SELECT proname FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = pronamespace WHERE nspname = target
        UNION ALL
        SELECT relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace WHERE nspname = target
        UNION ALL
        SELECT typname FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = typnamespace WHERE nspname = target) o (name)
     WHERE name LIKE 'pg!_wait!_sampling!_%' ESCAPE '!';
    IF found IS NOT NULL THEN
        RAISE EXCEPTION 'there is an object "%" in schema "%" already', found, target
            USING HINT = 'Look at what it is and drop it, or choose another schema with -v schema=NAME.';
    END IF;
END $$;

-- count is how often the sampler has seen it; NULL as type and event is the CPU; pid is 0, as with pg_wait_sampling.profile_pid off
CREATE FUNCTION :"schema".pg_wait_sampling_get_profile(
    OUT pid integer, OUT event_type text, OUT event text, OUT queryid bigint, OUT count bigint)
RETURNS SETOF record LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
    SELECT 0, nullif(event_type, 'CPU'), CASE event_type WHEN 'CPU' THEN NULL ELSE event END, coalesce(queryid, 0),
           sum(samples)::bigint
      FROM pgscale_internal.wait_profile() GROUP BY 2, 3, 4;
END;
CREATE FUNCTION :"schema".pg_wait_sampling_get_history(
    OUT pid integer, OUT ts timestamptz, OUT event_type text, OUT event text, OUT queryid bigint)
RETURNS SETOF record LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
    SELECT pid, sampled_at, nullif(event_type, 'CPU'), CASE event_type WHEN 'CPU' THEN NULL ELSE event END, coalesce(queryid, 0)
      FROM pgscale_internal.wait_history();
END;
CREATE FUNCTION :"schema".pg_wait_sampling_get_current(
    pid integer, OUT pid integer, OUT event_type text, OUT event text, OUT queryid bigint)
RETURNS SETOF record LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
    SELECT w.pid, nullif(w.event_type, 'CPU'), CASE w.event_type WHEN 'CPU' THEN NULL ELSE w.event END, coalesce(w.queryid, 0)
      FROM pgscale_internal.wait_current() w WHERE $1 IS NULL OR w.pid = $1;
END;
CREATE FUNCTION :"schema".pg_wait_sampling_reset_profile() RETURNS void LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
    SELECT pgscale.reset('sampler');
END;
CREATE VIEW :"schema".pg_wait_sampling_profile AS
    SELECT 0 AS pid, nullif(event_type, 'CPU') AS event_type, CASE event_type WHEN 'CPU' THEN NULL ELSE event END AS event,
           coalesce(queryid, 0) AS queryid, sum(samples)::bigint AS count
      FROM pgscale_internal.wait_profile() GROUP BY 2, 3, 4;
CREATE VIEW :"schema".pg_wait_sampling_history AS
    SELECT pid, sampled_at AS ts, nullif(event_type, 'CPU') AS event_type, CASE event_type WHEN 'CPU' THEN NULL ELSE event END AS event,
           coalesce(queryid, 0) AS queryid
      FROM pgscale_internal.wait_history();
CREATE VIEW :"schema".pg_wait_sampling_current AS
    SELECT pid, nullif(event_type, 'CPU') AS event_type, CASE event_type WHEN 'CPU' THEN NULL ELSE event END AS event,
           coalesce(queryid, 0) AS queryid
      FROM pgscale_internal.wait_current();

REVOKE ALL ON FUNCTION :"schema".pg_wait_sampling_get_profile(), :"schema".pg_wait_sampling_get_history(),
    :"schema".pg_wait_sampling_get_current(integer), :"schema".pg_wait_sampling_reset_profile() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION :"schema".pg_wait_sampling_get_profile(), :"schema".pg_wait_sampling_get_history(),
    :"schema".pg_wait_sampling_get_current(integer) TO pg_monitor;
GRANT SELECT ON :"schema".pg_wait_sampling_profile, :"schema".pg_wait_sampling_history, :"schema".pg_wait_sampling_current TO pg_monitor;
COMMIT;
