/* pgscale 1.0 */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION pgscale" to load this file. \quit

-- Reading is for pg_monitor, acting for superusers and whom they grant it; the
-- end of this file sees to both.

CREATE SCHEMA pgscale;
COMMENT ON SCHEMA pgscale IS 'objects of the extension pgscale';

---- the server's version

-- Whatever depends on the server's version asks this function.
CREATE FUNCTION pgscale.major()
RETURNS integer
LANGUAGE sql STABLE PARALLEL SAFE
RETURN current_setting('server_version_num')::integer / 10000;
COMMENT ON FUNCTION pgscale.major() IS
'the server''s major version';

---- health

CREATE FUNCTION pgscale.health(
    OUT feature text, OUT enabled boolean, OUT state text,
    OUT reason text, OUT action text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_health'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale.health() IS
'one row a feature: off, starting, idle, working, standing down or broken; why, and what to do';

CREATE VIEW pgscale.health AS SELECT * FROM pgscale.health();
COMMENT ON VIEW pgscale.health IS
'one row a feature: off, starting, idle, working, standing down or broken; why, and what to do';
COMMENT ON COLUMN pgscale.health.feature IS
'name of the feature: also the stem of its settings, functions and page';
COMMENT ON COLUMN pgscale.health.enabled IS
'whether the configuration asks for it; false only in state off';
COMMENT ON COLUMN pgscale.health.state IS
'off, starting, idle, working, standing down or broken';
COMMENT ON COLUMN pgscale.health.reason IS
'why, in one sentence';
COMMENT ON COLUMN pgscale.health.action IS
'what to do, or NULL';

---- texts of other databases

-- Sessions' statements and names are bytes as their database, or the one that made the name, has them. Whatever shows them makes
-- text of them first.
CREATE FUNCTION pgscale.foreign_text(value text, encoding integer)
RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_foreign_text'
LANGUAGE C STRICT STABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale.foreign_text(text, integer) IS
'a text of a database of that encoding in the encoding of this one; what is no character becomes U+FFFD or a question mark';

CREATE FUNCTION pgscale.foreign_name(value name)
RETURNS name
AS 'MODULE_PATHNAME', 'pgscale_foreign_name'
LANGUAGE C STRICT STABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale.foreign_name(name) IS
'the name of a role or a database as a valid text of this database; what is no character becomes U+FFFD or a question mark';

---- sampler

CREATE FUNCTION pgscale.wait_profile(
    OUT backend_type text, OUT datid oid, OUT userid oid, OUT queryid bigint,
    OUT event_type text, OUT event text, OUT idle boolean,
    OUT samples bigint, OUT wait_ms double precision, OUT application_name text, OUT client_addr inet,
    OUT plan_id bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_wait_profile'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 5000;
COMMENT ON FUNCTION pgscale.wait_profile() IS
'accumulated waits, idle ones included; wait_ms is the time that the samples stand for';

CREATE VIEW pgscale.wait_profile AS
    SELECT p.backend_type, p.event_type, p.event, round(p.wait_ms * 10) / 10 AS wait_ms,
           round(p.wait_ms / nullif(sum(p.wait_ms) OVER (), 0) * 1e6) / 1e6 AS fraction,
           pgscale.foreign_name(d.datname) AS datname, pgscale.foreign_name(u.rolname) AS usename, p.queryid
      FROM (SELECT backend_type, datid, userid, queryid, event_type, event, idle, sum(wait_ms) AS wait_ms
              FROM pgscale.wait_profile() GROUP BY 1, 2, 3, 4, 5, 6, 7) p
      LEFT JOIN pg_database d ON d.oid = p.datid
      LEFT JOIN pg_roles u ON u.oid = p.userid
     WHERE NOT p.idle OR current_setting('pgscale.sampler_show_idle', true)::boolean
     ORDER BY p.wait_ms DESC;
COMMENT ON VIEW pgscale.wait_profile IS
'accumulated waits, longest first, without idle ones unless pgscale.sampler_show_idle is on';
COMMENT ON COLUMN pgscale.wait_profile.backend_type IS
'kind of process as in pg_stat_activity; also parallel worker and unknown; other for evicted entries';
COMMENT ON COLUMN pgscale.wait_profile.event_type IS
'type of the wait event as in pg_stat_activity; CPU for a backend that executes a statement and does not wait';
COMMENT ON COLUMN pgscale.wait_profile.event IS
'name of the wait event as in pg_stat_activity, or CPU';
COMMENT ON COLUMN pgscale.wait_profile.wait_ms IS
'time that the samples stand for, in milliseconds';
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
'process ID of the first in its way, of a wait for a lock that lasts for long; 0 for a prepared transaction';
COMMENT ON COLUMN pgscale.wait_history.root_pid IS
'process ID of the root: who is in the way of all of them and does not wait; 0 for a prepared transaction';
COMMENT ON COLUMN pgscale.wait_history.root_application_name IS
'name of the root''s application then; NULL for other users'' sessions without pg_read_all_stats, and after a restart';
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
'accumulated time that processes waited for locks, by process and application of the root, which was in the way of all of them and did not wait';

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
'accumulated time that processes waited for locks, by root, longest first';
COMMENT ON COLUMN pgscale.blocker_profile.root IS
'process ID, or the transaction ID of a prepared transaction; not looked up: no root is known; other: folded roots';
COMMENT ON COLUMN pgscale.blocker_profile.application_name IS
'name of the application then: a connection of a pooler has a row for each; NULL for other users'' sessions without pg_read_all_stats';
COMMENT ON COLUMN pgscale.blocker_profile.usename IS
'name of the session user; NULL if the process has none or it was dropped';
COMMENT ON COLUMN pgscale.blocker_profile.datname IS
'name of the database; NULL if the process has none or it was dropped';
COMMENT ON COLUMN pgscale.blocker_profile.waited_ms IS
'time that processes waited for locks because of it, summed over them, in milliseconds';
COMMENT ON COLUMN pgscale.blocker_profile.fraction IS
'fraction of all time that processes waited for locks, 0 to 1';
COMMENT ON COLUMN pgscale.blocker_profile.idle_fraction IS
'fraction of waited_ms while the root was idle in its transaction, 0 to 1; NULL if it has no process';
COMMENT ON COLUMN pgscale.blocker_profile.max_waiters IS
'most processes that waited because of it at once';

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

CREATE VIEW pgscale.wait_current AS
    SELECT c.pid, c.backend_type, c.state, c.event_type, c.event, pgscale.foreign_name(d.datname) AS datname,
           pgscale.foreign_name(u.rolname) AS usename, c.leader_pid, c.queryid, c.datid, c.userid
      FROM pgscale.wait_current() c
      LEFT JOIN pg_database d ON d.oid = c.datid
      LEFT JOIN pg_roles u ON u.oid = c.userid;
COMMENT ON VIEW pgscale.wait_current IS
'what every server process waits for at this moment';
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
'average active sessions in each bucket of time, by class of wait event; as IdleInTransaction those that are not active';

CREATE FUNCTION pgscale.wait_totals(
    OUT backend_type text, OUT event_type text, OUT event text, OUT wait_ms double precision,
    OUT stats_reset timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_wait_totals'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 50;
COMMENT ON FUNCTION pgscale.wait_totals() IS
'time in each wait event that is not idle, by type of process: at most 512 rows, which only grow until the next reset or restart';
-- The past, from the history in memory and from the archive alike. Waiting is time in milliseconds, and what it is divided by is
-- the time that is known, so that a gap does not look like rest.
--
-- A standby's archive is a copy of its primary's, so there the history alone counts: what this server did.

-- Which tables of the archive there are to read here.
CREATE FUNCTION pgscale.past_archive(OUT minutes regclass, OUT queries regclass)
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT max(c.oid) FILTER (WHERE c.relname = 'archive_minute')::regclass,
           max(c.oid) FILTER (WHERE c.relname = 'archive_queries')::regclass
      FROM pg_extension e
      JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
           AND d.classid = 'pg_class'::regclass AND d.deptype = 'e'
      JOIN pg_class c ON c.oid = d.objid
     WHERE e.extname = 'pgscale' AND c.relname IN ('archive_minute', 'archive_queries')
       AND c.relkind IN ('p', 'v') AND NOT pg_is_in_recovery() AND has_table_privilege(c.oid, 'SELECT')
$$;
COMMENT ON FUNCTION pgscale.past_archive() IS
'the tables of the archive that top_waits and its like may read here; NULL where they may not';

CREATE FUNCTION pgscale.past_coverage(
    since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL,
    OUT at timestamptz, OUT period_s double precision, OUT known_s double precision, OUT source text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_past_coverage'
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 100
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale.past_coverage(timestamptz, timestamptz) IS
'of which parts of a period what was waited for is known, how much of each, and from where; the rest are gaps';

CREATE FUNCTION pgscale.past_waits(
    since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL, resolution_s double precision DEFAULT 0,
    OUT at timestamptz, OUT period_s double precision, OUT backend_type text, OUT datid oid, OUT datname name, OUT usename name,
    OUT application_name text, OUT queryid bigint, OUT event_type text, OUT event text, OUT blocker text, OUT wait_ms double precision)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_past_waits'
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10000
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale.past_waits(timestamptz, timestamptz, double precision) IS
'what was waited for in a period, from archive and memory: each row is waiting between at and period_s later; idle waits are left out';

CREATE FUNCTION pgscale.past_items(
    since timestamptz, until timestamptz, by text, top integer, of_query bigint DEFAULT NULL,
    OUT rank integer, OUT item text, OUT kind text, OUT event_type text, OUT event text,
    OUT active_sessions double precision, OUT idle_in_transaction_sessions double precision, OUT fraction double precision,
    OUT wait_ms double precision, OUT queryid bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_past_items'
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale.past_items(timestamptz, timestamptz, text, integer, bigint) IS
'what top_waits shows, of one query alone if it is given; kind is named, unknown or other, whatever the item is called';

CREATE FUNCTION pgscale.past_keep(since timestamptz, until timestamptz)
RETURNS void
AS 'MODULE_PATHNAME', 'pgscale_past_keep'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.past_keep(timestamptz, timestamptz) IS
'part of report: just this period is read once for all that is asked of it, until the transaction ends; NULL: no period any more';

-- With pg_stat_statements' own rules for other users' texts.
CREATE FUNCTION pgscale.past_queries(queryids bigint[])
RETURNS TABLE (queryid bigint, query text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 10
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    statements regclass := pgscale.query_waits_statements(false);
    archived regclass;
BEGIN
    SELECT a.queries INTO archived FROM pgscale.past_archive() a WHERE pg_has_role('pg_read_all_stats', 'USAGE');
    IF has_table_privilege(statements, 'SELECT') THEN
        BEGIN
            FOR queryid, query IN EXECUTE format('SELECT s.queryid, min(pgscale.foreign_text(s.query, %s)) FROM %s s
                     WHERE s.queryid = ANY ($1) AND s.query IS NOT NULL GROUP BY 1',
                    (SELECT d.encoding FROM pg_database d WHERE d.datname = current_database()), statements) USING $1 LOOP
                $1 := array_remove($1, queryid);
                RETURN NEXT;
            END LOOP;
        EXCEPTION
            -- one text that is none in this database's encoding, and it shows nothing at all
            WHEN untranslatable_character OR character_not_in_repertoire THEN
                NULL;
        END;
    END IF;
    IF archived IS NOT NULL AND $1 <> '{}' THEN
        FOR queryid, query IN EXECUTE format('SELECT s.queryid, min(s.query) FROM %s s WHERE s.queryid = ANY ($1) GROUP BY 1', archived) USING $1 LOOP
            $1 := array_remove($1, queryid);
            RETURN NEXT;
        END LOOP;
    END IF;
    -- it has not ended yet, or the statistics were reset
    IF $1 <> '{}' THEN
        RETURN QUERY
            SELECT a.query_id, min(pgscale.foreign_text(a.query, d.encoding))
              FROM pg_stat_activity a JOIN pg_database d ON d.oid = a.datid WHERE a.query_id = ANY ($1) AND a.query <> '' GROUP BY 1;
    END IF;
END
$$;
COMMENT ON FUNCTION pgscale.past_queries(bigint[]) IS
'texts of queries, from pg_stat_statements if it is installed, else from the archive, else from pg_stat_activity; other users'' only with pg_read_all_stats';

CREATE FUNCTION pgscale.top_waits(
    since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL, by text DEFAULT 'event', top integer DEFAULT 10)
RETURNS TABLE (rank integer, item text, event_type text, event text, active_sessions double precision,
    fraction double precision, wait_ms double precision, queryid bigint, query text, idle_in_transaction_sessions double precision)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 10
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        WITH items AS MATERIALIZED (SELECT * FROM pgscale.past_items($1, $2, $3, $4))
        SELECT i.rank, i.item, i.event_type, i.event, i.active_sessions, i.fraction, i.wait_ms, i.queryid, q.query, i.idle_in_transaction_sessions
          FROM items i
          LEFT JOIN pgscale.past_queries(ARRAY(SELECT a.queryid FROM items a)) q USING (queryid)
         ORDER BY i.rank;
END
$$;
COMMENT ON FUNCTION pgscale.top_waits(timestamptz, timestamptz, text, integer) IS
'what sessions waited for in a period, longest first: by event, class, query, database, user, application, backend_type or blocker';

CREATE FUNCTION pgscale.activity(
    since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL, bucket interval DEFAULT NULL,
    OUT at timestamptz, OUT event_type text, OUT active_sessions double precision, OUT covered_fraction double precision)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_activity'
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 500
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale.activity(timestamptz, timestamptz, interval) IS
'average sessions of a period over time, by class of wait event: active ones, and as IdleInTransaction those that are not; a time of which nothing is known has a row without a class';

CREATE FUNCTION pgscale.compare_waits(
    since1 timestamptz, until1 timestamptz, since2 timestamptz, until2 timestamptz, by text DEFAULT 'event', top integer DEFAULT 10)
RETURNS TABLE (item text, active_sessions_1 double precision, active_sessions_2 double precision,
    difference double precision, fraction_1 double precision, fraction_2 double precision)
LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED ROWS 10
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    everything CONSTANT integer := 1000000;
BEGIN
    IF $6 IS NULL OR $6 NOT BETWEEN 1 AND everything THEN
        RAISE EXCEPTION 'top must be from 1 to %', everything
            USING ERRCODE = 'invalid_parameter_value', HINT = 'The rest is one row, other.';
    END IF;
    RETURN QUERY
        WITH one AS (SELECT * FROM pgscale.past_items($1, $2, $5, everything)),
        two AS (SELECT * FROM pgscale.past_items($3, $4, $5, everything)),
        known AS (SELECT (SELECT sum(c.known_s) > 0 FROM pgscale.past_coverage($1, $2) c) AS one,
                         (SELECT sum(c.known_s) > 0 FROM pgscale.past_coverage($3, $4) c) AS two),
        -- what is not there while the time is known was not waited for
        both_times AS (
            SELECT item, kind,
                   CASE WHEN k.one THEN coalesce(one.active_sessions, 0) END AS active_sessions_1,
                   CASE WHEN k.two THEN coalesce(two.active_sessions, 0) END AS active_sessions_2,
                   CASE WHEN k.one THEN coalesce(one.fraction, 0) END AS fraction_1,
                   CASE WHEN k.two THEN coalesce(two.fraction, 0) END AS fraction_2
              FROM one FULL JOIN two USING (item, kind) CROSS JOIN known k),
        ranked AS (
            SELECT b.*, CASE WHEN b.kind = 'other' THEN $6 + 1
                             ELSE least(row_number() OVER (ORDER BY b.kind = 'other',
                                 abs(coalesce(b.active_sessions_2, 0) - coalesce(b.active_sessions_1, 0)) DESC, b.item COLLATE "C"), $6 + 1) END AS rank
              FROM both_times b)
        SELECT CASE WHEN r.rank > $6 THEN 'other' ELSE min(r.item) END, sum(r.active_sessions_1), sum(r.active_sessions_2),
               sum(r.active_sessions_2) - sum(r.active_sessions_1), sum(r.fraction_1), sum(r.fraction_2)
          FROM ranked r GROUP BY r.rank ORDER BY r.rank;
END
$$;
COMMENT ON FUNCTION pgscale.compare_waits(timestamptz, timestamptz, timestamptz, timestamptz, text, integer) IS
'what sessions waited for in two periods side by side, the largest difference first';

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
'how well the sampler keeps its schedule, what it costs, and the profile''s totals';

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
'how well the sampler keeps its schedule, what it costs, and the profile''s totals';
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
'number of profile entries folded into other';
COMMENT ON COLUMN pgscale.sampler_stats.lateness_mean_us IS
'mean delay of a tick, in microseconds';
COMMENT ON COLUMN pgscale.sampler_stats.lateness_p50_us IS
'median delay of a tick, in microseconds, interpolated';
COMMENT ON COLUMN pgscale.sampler_stats.lateness_max_us IS
'longest delay of a tick, in microseconds';
COMMENT ON COLUMN pgscale.sampler_stats.tick_max_us IS
'longest duration of a tick, in microseconds';
COMMENT ON COLUMN pgscale.sampler_stats.observed_ms IS
'time that all ticks stand for, in milliseconds';
COMMENT ON COLUMN pgscale.sampler_stats.active_ms IS
'time of all active sessions together, in milliseconds; sessions are client backends and their parallel workers';
COMMENT ON COLUMN pgscale.sampler_stats.idle_in_transaction_ms IS
'time of all sessions together that were idle in a transaction, in milliseconds';
COMMENT ON COLUMN pgscale.sampler_stats.cpu_ms IS
'CPU time of the worker, in milliseconds';
COMMENT ON COLUMN pgscale.sampler_stats.wait_ms IS
'time that the samples in the profile stand for, in milliseconds';
COMMENT ON COLUMN pgscale.sampler_stats.torn_reads IS
'number of repeated reads of a process''s status';
COMMENT ON COLUMN pgscale.sampler_stats.cpu_readings IS
'number of times that the kernel was asked how long a session, or an io worker, ran and queued for a CPU';
COMMENT ON COLUMN pgscale.sampler_stats.blocker_looks IS
'number of looks at the lock manager for who is in the way of those that wait long, one a second at most';
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

---- query_waits

-- By what belongs to the extension, because any role could have planted the name.
CREATE FUNCTION pgscale.query_waits_statements(needed boolean)
RETURNS regclass
AS 'MODULE_PATHNAME', 'pgscale_query_waits_statements'
LANGUAGE C STRICT STABLE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale.query_waits_statements(boolean) IS
'the view pg_stat_statements; if it cannot be read, an error with a hint, or NULL where it is not needed';

-- Dynamic, since pg_stat_statements may be in any schema, or not there at all.
CREATE FUNCTION pgscale.query_waits(
    OUT datid oid, OUT userid oid, OUT queryid bigint,
    OUT event_type text, OUT event text, OUT samples bigint,
    OUT wait_ms double precision, OUT fraction double precision,
    OUT calls bigint, OUT total_time_ms double precision, OUT query text)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    statements regclass := pgscale.query_waits_statements(true);
    own integer := (SELECT d.encoding FROM pg_database d WHERE d.datname = current_database());
    -- A statement is one row there for each level it was run at; here it is one.
    -- Sessions' time that no query is known of stays in, so that sums are whole.
    waits text := $q$
        WITH texts AS MATERIALIZED (
            SELECT t.queryid, min(t.query) AS query
              FROM pgscale.past_queries(ARRAY(SELECT DISTINCT p.queryid FROM pgscale.wait_profile() p)) t
             GROUP BY 1)
        SELECT w.datid, w.userid, w.queryid, w.event_type, w.event,
               w.samples::bigint, w.wait_ms,
               w.wait_ms / nullif(sum(w.wait_ms) OVER (PARTITION BY w.datid, w.userid, w.queryid), 0),
               s.calls::bigint, s.total_time_ms, %s
          FROM (SELECT p.datid, p.userid, p.queryid, p.event_type, p.event,
                       sum(p.samples) AS samples, sum(p.wait_ms) AS wait_ms
                  FROM pgscale.wait_profile() p
                 WHERE (p.queryid IS NOT NULL OR p.backend_type IN ('client backend', 'parallel worker'))
                   AND (NOT p.idle OR current_setting('pgscale.sampler_show_idle', true)::boolean)
                 GROUP BY 1, 2, 3, 4, 5) w
          LEFT JOIN (SELECT t.dbid, t.userid, t.queryid, sum(t.calls) AS calls,
                            sum(t.total_plan_time + t.total_exec_time) AS total_time_ms,
                            min(t.query) AS query
                       FROM %s t
                      GROUP BY 1, 2, 3) s
            ON s.dbid = w.datid AND s.userid = w.userid AND s.queryid = w.queryid
         ORDER BY w.wait_ms DESC$q$;
BEGIN
    RETURN QUERY EXECUTE format(waits, format('pgscale.foreign_text(s.query, %s)', own), statements);
EXCEPTION
    -- one text that is none in this database's encoding, and it shows nothing at all
    WHEN untranslatable_character OR character_not_in_repertoire THEN
        RETURN QUERY EXECUTE format(waits, '(SELECT x.query FROM texts x WHERE x.queryid = w.queryid)',
                                    (SELECT format('%I.pg_stat_statements(false)', n.nspname)
                                       FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = statements));
END
$$;
COMMENT ON FUNCTION pgscale.query_waits() IS
'waits by query and role, with what pg_stat_statements knows of it; an error with a hint where that is not installed';

CREATE VIEW pgscale.query_waits AS
    SELECT q.event_type, q.event, round(q.wait_ms * 10) / 10 AS wait_ms, q.calls,
           -- where left() counts bytes, as in SQL_ASCII, it leaves a part of a character
           pgscale.foreign_text(left(regexp_replace(left(q.query, 200), '[[:space:]]+', ' ', 'g'), 28), pg_char_to_encoding(getdatabaseencoding())) AS query,
           pgscale.foreign_name(d.datname) AS datname, q.queryid
      FROM pgscale.query_waits() q
      LEFT JOIN pg_database d ON d.oid = q.datid
     ORDER BY q.wait_ms DESC;
COMMENT ON VIEW pgscale.query_waits IS
'waits by query, longest first, with what pg_stat_statements knows of it; a row for each role';
COMMENT ON COLUMN pgscale.query_waits.event_type IS
'type of the wait event as in pg_stat_activity; CPU for a backend that executes a statement and does not wait';
COMMENT ON COLUMN pgscale.query_waits.event IS
'name of the wait event as in pg_stat_activity, or CPU';
COMMENT ON COLUMN pgscale.query_waits.wait_ms IS
'time that the samples stand for, in milliseconds';
COMMENT ON COLUMN pgscale.query_waits.calls IS
'number of executions, repeated on each row of the query';
COMMENT ON COLUMN pgscale.query_waits.query IS
'beginning of the query''s text; NULL or <insufficient privilege> for other users'' queries without pg_read_all_stats';
COMMENT ON COLUMN pgscale.query_waits.datname IS
'name of the database; NULL if the process has none or it was dropped';
COMMENT ON COLUMN pgscale.query_waits.queryid IS
'query identifier; NULL outside a statement or if it is unknown';

---- blockers

CREATE FUNCTION pgscale.lock_waits(
    OUT pid integer, OUT prepared_xid xid, OUT depth integer, OUT waiters integer, OUT cycle boolean,
    OUT waiting_pid integer, OUT wait_start timestamptz, OUT waited_ms double precision,
    OUT locktype text, OUT mode text, OUT relation_datid oid, OUT relation oid, OUT target text,
    OUT awaited_row text, OUT blocked_by integer[], OUT root_pid integer, OUT root_prepared_xid xid)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_lock_waits'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 20;
COMMENT ON FUNCTION pgscale.lock_waits() IS
'the graph that blockers shows, without names and texts: who waits for a lock now and who is in the way';

-- Each transaction beside what pg_stat_activity tells of it, by the rules that this has for other users' texts.
CREATE FUNCTION pgscale.blockers(
    OUT pid integer, OUT gid text, OUT depth integer, OUT waiters integer, OUT waited_ms double precision,
    OUT waits_for text, OUT state text, OUT datname name, OUT usename name, OUT application_name text,
    OUT backend_type text, OUT query text, OUT transaction_ms double precision,
    OUT root_pid integer, OUT root_gid text, OUT root_state text, OUT root_application_name text,
    OUT root_transaction_ms double precision, OUT root_query text,
    OUT locktype text, OUT mode text, OUT relation regclass, OUT wait_start timestamptz,
    OUT waiting_pid integer, OUT cycle boolean, OUT blocked_by integer[])
RETURNS SETOF record
LANGUAGE sql STRICT VOLATILE PARALLEL RESTRICTED ROWS 20
BEGIN ATOMIC
    WITH activity AS MATERIALIZED (
        SELECT a.pid, pgscale.foreign_name(a.datname) AS datname, pgscale.foreign_name(a.usename) AS usename,
               a.application_name, a.backend_type, coalesce(a.state, a.backend_type) AS state,
               pgscale.foreign_text(a.query, coalesce(d.encoding, 0)) AS query,
               extract(epoch FROM clock_timestamp() - a.xact_start)::double precision * 1000 AS transaction_ms
          FROM pg_catalog.pg_stat_activity a LEFT JOIN pg_catalog.pg_database d ON d.oid = a.datid),
    prepared AS MATERIALIZED (
        SELECT p.transaction, pgscale.foreign_text(p.gid, coalesce(d.encoding, 0)) AS gid, pgscale.foreign_name(p.owner) AS owner,
               pgscale.foreign_name(p.database) AS database,
               extract(epoch FROM clock_timestamp() - p.prepared)::double precision * 1000 AS transaction_ms
          FROM pg_catalog.pg_prepared_xacts p LEFT JOIN pg_catalog.pg_database d ON d.datname = p.database)
    SELECT w.pid, p.gid, w.depth, w.waiters, w.waited_ms,
           coalesce('row ' || w.awaited_row, w.locktype || coalesce(' ' || w.target, ''))
               || CASE WHEN w.relation IS NULL THEN ''
                       ELSE CASE WHEN w.locktype IN ('relation', 'extend') THEN ' ' ELSE ' of ' END
                            || coalesce(w.here::text, 'relation ' || w.relation || ' of database ' || w.relation_datid) END,
           CASE WHEN w.pid IS NULL THEN 'prepared' ELSE a.state END,
           coalesce(a.datname, p.database), coalesce(a.usename, p.owner), a.application_name, a.backend_type, a.query,
           coalesce(a.transaction_ms, p.transaction_ms),
           w.root_pid, rp.gid, CASE WHEN w.root_pid IS NULL THEN 'prepared' ELSE r.state END, r.application_name,
           coalesce(r.transaction_ms, rp.transaction_ms), r.query,
           w.locktype, w.mode, w.here, w.wait_start, w.waiting_pid, w.cycle, w.blocked_by
      FROM (SELECT l.*, CASE WHEN l.relation_datid IN (0, d.oid) OR l.relation < 16384 THEN l.relation::regclass END AS here
              FROM pgscale.lock_waits() WITH ORDINALITY l
              CROSS JOIN (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()) d) w
      LEFT JOIN activity a ON a.pid = w.pid
      LEFT JOIN activity r ON r.pid = w.root_pid
      LEFT JOIN prepared p ON p.transaction = w.prepared_xid
      LEFT JOIN prepared rp ON rp.transaction = w.root_prepared_xid
     ORDER BY w.ordinality;
END;
COMMENT ON FUNCTION pgscale.blockers() IS
'who waits for a lock now and who is in the way, as a forest, each root before those that wait for it';

CREATE VIEW pgscale.blockers AS
    SELECT repeat('  ', least(b.depth, 10)) || coalesce(b.pid::text, 'prepared ' || pgscale.foreign_text(left(b.gid, 20), pg_char_to_encoding(getdatabaseencoding())), 'prepared')
               || CASE WHEN b.cycle THEN ' (cycle)' ELSE '' END AS process,
           b.waiters, round(b.waited_ms) AS waited_ms,
           coalesce('waits for ' || b.waits_for, b.state) AS activity,
           b.application_name, pgscale.foreign_text(left(translate(b.query, E'\r\n\t', '   '), 30), pg_char_to_encoding(getdatabaseencoding())) AS query
      FROM pgscale.blockers() WITH ORDINALITY b
     ORDER BY b.ordinality;
COMMENT ON VIEW pgscale.blockers IS
'who waits for a lock now and who is in the way, as a tree, each root before those that wait for it';
COMMENT ON COLUMN pgscale.blockers.process IS
'process ID, or the begin of a prepared transaction''s identifier; indented by depth, up to 10';
COMMENT ON COLUMN pgscale.blockers.waiters IS
'number of transactions that wait for this one, directly or behind others that do';
COMMENT ON COLUMN pgscale.blockers.waited_ms IS
'how long it has waited, in milliseconds; NULL for a root';
COMMENT ON COLUMN pgscale.blockers.activity IS
'what it waits for; of a root, its state as in pg_stat_activity, prepared, or the type of the process';
COMMENT ON COLUMN pgscale.blockers.application_name IS
'name of the application';
COMMENT ON COLUMN pgscale.blockers.query IS
'begin of the statement that runs or ran last; <insufficient privilege> for other users'' without pg_read_all_stats';

---- lwlocks

CREATE FUNCTION pgscale.lwlock_profile(
    OUT tranche_id integer, OUT tranche text, OUT lock integer, OUT ticks bigint, OUT waited bigint,
    OUT held_exclusive bigint, OUT held_shared bigint, OUT wait_ms double precision,
    OUT mean_waiters double precision, OUT looks bigint, OUT looks_exclusive bigint,
    OUT looks_shared bigint, OUT stats_reset timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_lwlock_profile'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 100;
COMMENT ON FUNCTION pgscale.lwlock_profile() IS
'LWLocks one by one: how often each was waited for and held while processes waited for its tranche, and at looks once a second';

CREATE VIEW pgscale.lwlock_profile AS
    SELECT tranche, lock, ticks, waited, held_exclusive, held_shared, round(wait_ms * 10) / 10 AS wait_ms,
           round(mean_waiters * 100) / 100 AS mean_waiters,
           round((looks_exclusive + looks_shared) / nullif(looks, 0)::double precision * 1e4) / 1e4 AS held_fraction,
           stats_reset
      FROM pgscale.lwlock_profile() p
     ORDER BY p.wait_ms DESC, waited DESC, tranche_id, lock;
COMMENT ON VIEW pgscale.lwlock_profile IS
'LWLocks one by one, those waited for longest first';
COMMENT ON COLUMN pgscale.lwlock_profile.tranche IS
'the tranche, as the wait event is named; extension if this session does not know the name';
COMMENT ON COLUMN pgscale.lwlock_profile.lock IS
'number of the lock in its tranche, from 0: for a partitioned table the partition';
COMMENT ON COLUMN pgscale.lwlock_profile.ticks IS
'number of ticks at which processes waited for the tranche, so that its locks were looked at';
COMMENT ON COLUMN pgscale.lwlock_profile.waited IS
'number of these at which a process queued at this lock';
COMMENT ON COLUMN pgscale.lwlock_profile.held_exclusive IS
'number of these at which it was held exclusive';
COMMENT ON COLUMN pgscale.lwlock_profile.held_shared IS
'number of these at which it was held shared';
COMMENT ON COLUMN pgscale.lwlock_profile.wait_ms IS
'its share of the time that processes waited for the tranche, in milliseconds';
COMMENT ON COLUMN pgscale.lwlock_profile.mean_waiters IS
'its share of the processes that waited, on average over the ticks';
COMMENT ON COLUMN pgscale.lwlock_profile.held_fraction IS
'fraction of the looks once a second that found it held, whether or not anybody waited, 0 to 1';
COMMENT ON COLUMN pgscale.lwlock_profile.stats_reset IS
'time since which is counted: the last reset or start of the server';

CREATE FUNCTION pgscale.lwlock_tranches(
    OUT tranche_id integer, OUT tranche text, OUT locks integer, OUT ticks bigint,
    OUT wait_ms double precision, OUT mean_waiters double precision, OUT busiest_lock integer,
    OUT skew double precision, OUT reason text, OUT stats_reset timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_lwlock_tranches'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 20;
COMMENT ON FUNCTION pgscale.lwlock_tranches() IS
'tranches of LWLocks that were waited for, and how unevenly over their locks';

CREATE VIEW pgscale.lwlock_tranches AS
    SELECT tranche, locks, ticks, round(wait_ms * 10) / 10 AS wait_ms, round(mean_waiters * 100) / 100 AS mean_waiters,
           busiest_lock, round(skew * 10) / 10 AS skew, stats_reset, reason
      FROM pgscale.lwlock_tranches() t
     ORDER BY t.wait_ms DESC;
COMMENT ON VIEW pgscale.lwlock_tranches IS
'tranches of LWLocks that were waited for, longest first, and how unevenly over their locks';
COMMENT ON COLUMN pgscale.lwlock_tranches.tranche IS
'the tranche, as the wait event is named; extension if this session does not know the name; other for those beyond the first 255';
COMMENT ON COLUMN pgscale.lwlock_tranches.locks IS
'number of its locks; NULL if they cannot be looked at one by one, see reason';
COMMENT ON COLUMN pgscale.lwlock_tranches.ticks IS
'number of ticks at which processes waited for it';
COMMENT ON COLUMN pgscale.lwlock_tranches.wait_ms IS
'time that processes waited for it, in milliseconds, as in pgscale.wait_profile';
COMMENT ON COLUMN pgscale.lwlock_tranches.mean_waiters IS
'number of processes that waited for it, on average over the ticks';
COMMENT ON COLUMN pgscale.lwlock_tranches.busiest_lock IS
'number of the lock at which processes queued most often; NULL if that is unknown';
COMMENT ON COLUMN pgscale.lwlock_tranches.skew IS
'how often processes queued at that lock, as a multiple of the mean of all locks: 1 is even; NULL for a single lock, and below 4 queues seen for each lock';
COMMENT ON COLUMN pgscale.lwlock_tranches.stats_reset IS
'time since which is counted: the last reset or start of the server';
COMMENT ON COLUMN pgscale.lwlock_tranches.reason IS
'why its locks cannot be looked at one by one';

CREATE FUNCTION pgscale.lwlock_profile_reset()
RETURNS void
AS 'MODULE_PATHNAME', 'pgscale_lwlock_profile_reset'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.lwlock_profile_reset() IS
'has pgscale.lwlock_profile and pgscale.lwlock_tranches count anew';

CREATE FUNCTION pgscale.hot_buffers(
    OUT bufferid integer, OUT datid oid, OUT relation regclass, OUT relfilenode oid, OUT reltablespace oid,
    OUT fork text, OUT block bigint, OUT page_kind text, OUT held text, OUT holders integer,
    OUT all_waiters integer)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_hot_buffers'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 10;
COMMENT ON FUNCTION pgscale.hot_buffers() IS
'buffers whose content lock processes wait for now, of all databases';

CREATE VIEW pgscale.hot_buffers AS
    SELECT h.relation, h.fork, h.block, h.page_kind, h.held, h.holders, h.all_waiters,
           pgscale.foreign_name(d.datname) AS datname, h.bufferid, h.datid, h.relfilenode, h.reltablespace
      FROM pgscale.hot_buffers() h
      LEFT JOIN pg_database d ON d.oid = h.datid
     ORDER BY h.relation::text, h.block;
COMMENT ON VIEW pgscale.hot_buffers IS
'buffers whose content lock processes wait for now, of all databases';
COMMENT ON COLUMN pgscale.hot_buffers.relation IS
'the relation; NULL if it is of another database, was just dropped, or belongs to an open transaction';
COMMENT ON COLUMN pgscale.hot_buffers.fork IS
'main, fsm, vm or init';
COMMENT ON COLUMN pgscale.hot_buffers.block IS
'number of the page in the fork';
COMMENT ON COLUMN pgscale.hot_buffers.page_kind IS
'of a B-tree: meta, root, internal, leaf or deleted; NULL for other relations or if the page is being changed';
COMMENT ON COLUMN pgscale.hot_buffers.held IS
'exclusive or shared, from 19 on also share exclusive; NULL if those who wait are being woken';
COMMENT ON COLUMN pgscale.hot_buffers.holders IS
'number of processes that hold the lock';
COMMENT ON COLUMN pgscale.hot_buffers.all_waiters IS
'number of processes that wait for the content lock of any buffer, the same in all rows';
COMMENT ON COLUMN pgscale.hot_buffers.datname IS
'name of the database; NULL for shared catalogs';
COMMENT ON COLUMN pgscale.hot_buffers.bufferid IS
'number of the buffer, as in pg_buffercache';
COMMENT ON COLUMN pgscale.hot_buffers.datid IS
'OID of the database; 0 for shared catalogs';
COMMENT ON COLUMN pgscale.hot_buffers.relfilenode IS
'filenode number of the relation';
COMMENT ON COLUMN pgscale.hot_buffers.reltablespace IS
'OID of the tablespace';

---- trace

CREATE FUNCTION pgscale.trace_waits(
    pid integer, duration interval DEFAULT '10 seconds', max_events integer DEFAULT 100000,
    OUT seq integer, OUT started_at timestamptz, OUT event_type text, OUT event text,
    OUT duration_us double precision, OUT queryid bigint, OUT spans_gap boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_trace_waits'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 10000;
COMMENT ON FUNCTION pgscale.trace_waits(integer, interval, integer) IS
'every wait of one process, and its time on CPU between them; takes one CPU while it runs';

CREATE FUNCTION pgscale.trace_summary(
    pid integer, duration interval DEFAULT '10 seconds',
    OUT event_type text, OUT event text, OUT count bigint,
    OUT total_ms double precision, OUT fraction double precision,
    OUT min_us double precision, OUT mean_us double precision, OUT p50_us double precision,
    OUT p95_us double precision, OUT p99_us double precision, OUT max_us double precision,
    OUT spans_gap bigint, OUT coverage_fraction double precision)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_trace_summary'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 20;
COMMENT ON FUNCTION pgscale.trace_summary(integer, interval) IS
'every wait of one process by event: number, total and quantiles; takes one CPU while it runs';

CREATE FUNCTION pgscale.trace_query(
    pid integer, timeout interval DEFAULT '10 seconds', duration interval DEFAULT '1 minute',
    max_events integer DEFAULT 100000,
    OUT seq integer, OUT started_at timestamptz, OUT event_type text, OUT event text,
    OUT duration_us double precision, OUT queryid bigint, OUT spans_gap boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_trace_query'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 10000;
COMMENT ON FUNCTION pgscale.trace_query(integer, interval, interval, integer) IS
'the next statement of a session from start to end, wait by wait; takes one CPU while it runs';

CREATE FUNCTION pgscale.trace_query_summary(
    pid integer, timeout interval DEFAULT '10 seconds', duration interval DEFAULT '1 minute',
    OUT event_type text, OUT event text, OUT count bigint,
    OUT total_ms double precision, OUT fraction double precision,
    OUT min_us double precision, OUT mean_us double precision, OUT p50_us double precision,
    OUT p95_us double precision, OUT p99_us double precision, OUT max_us double precision,
    OUT spans_gap bigint, OUT coverage_fraction double precision)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_trace_query_summary'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 20;
COMMENT ON FUNCTION pgscale.trace_query_summary(integer, interval, interval) IS
'the next statement of a session by event: number, total and quantiles; takes one CPU while it runs';

CREATE FUNCTION pgscale.trace_coverage(
    OUT pid integer, OUT started_at timestamptz, OUT traced_ms double precision, OUT ended_by text,
    OUT coverage_fraction double precision, OUT gaps bigint, OUT gaps_ms double precision,
    OUT longest_gap_us double precision, OUT poll_us double precision, OUT clock text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_trace_coverage'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 1;
COMMENT ON FUNCTION pgscale.trace_coverage() IS
'the latest trace of this session: why it ended, and how much of its time was really watched';

CREATE FUNCTION pgscale.trace_history(
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
COMMENT ON FUNCTION pgscale.trace_history() IS
'the latest traces that pgscale.trace_trigger has made, oldest first, one row for each of their events';

CREATE VIEW pgscale.trace_history AS
    SELECT h.trace, h.started_at, h.figure, round(h.sessions * 10) / 10 AS sessions,
           round(h.usual_sessions * 10) / 10 AS usual_sessions,
           round(h.limit_sessions * 10) / 10 AS limit_sessions,
           h.pid, h.event_type, h.event, h.count,
           round(h.total_ms * 1000) / 1000 AS total_ms, round(h.fraction * 10000) / 10000 AS fraction,
           round(h.p50_us * 10) / 10 AS p50_us, round(h.p95_us * 10) / 10 AS p95_us,
           round(h.max_us * 10) / 10 AS max_us,
           pgscale.foreign_name(d.datname) AS datname, pgscale.foreign_name(u.rolname) AS usename, h.application_name, h.queryid,
           round(h.traced_ms * 10) / 10 AS traced_ms, h.ended_by,
           round(h.coverage_fraction * 10000) / 10000 AS coverage_fraction, h.datid, h.userid
      FROM pgscale.trace_history() WITH ORDINALITY h
      LEFT JOIN pg_database d ON d.oid = h.datid
      LEFT JOIN pg_roles u ON u.oid = h.userid
     ORDER BY h.ordinality;
COMMENT ON VIEW pgscale.trace_history IS
'the latest traces that pgscale.trace_trigger has made, oldest first, longest event first';
COMMENT ON COLUMN pgscale.trace_history.trace IS
'number of the trace; numbers are given to traces that were not kept, too';
COMMENT ON COLUMN pgscale.trace_history.started_at IS
'when it began';
COMMENT ON COLUMN pgscale.trace_history.figure IS
'what had left its usual range: lock waits or active sessions';
COMMENT ON COLUMN pgscale.trace_history.sessions IS
'that figure over three seconds: sessions that waited for locks or LWLocks, or were active, on average';
COMMENT ON COLUMN pgscale.trace_history.usual_sessions IS
'its median of the two minutes before';
COMMENT ON COLUMN pgscale.trace_history.limit_sessions IS
'what it was above in each of the three seconds';
COMMENT ON COLUMN pgscale.trace_history.pid IS
'process ID of the session that was traced';
COMMENT ON COLUMN pgscale.trace_history.event_type IS
'type of the wait event as in pg_stat_activity; CPU; Other for all events beyond the first 16';
COMMENT ON COLUMN pgscale.trace_history.event IS
'name of the wait event as in pg_stat_activity; CPU; Other';
COMMENT ON COLUMN pgscale.trace_history.count IS
'number of waits, or of stretches on CPU';
COMMENT ON COLUMN pgscale.trace_history.total_ms IS
'their sum, in milliseconds';
COMMENT ON COLUMN pgscale.trace_history.fraction IS
'of the time of the trace, 0 to 1';
COMMENT ON COLUMN pgscale.trace_history.p50_us IS
'median length, in microseconds; NULL for Other';
COMMENT ON COLUMN pgscale.trace_history.p95_us IS
'95 % quantile of the length, in microseconds; NULL for Other';
COMMENT ON COLUMN pgscale.trace_history.max_us IS
'longest, in microseconds';
COMMENT ON COLUMN pgscale.trace_history.datname IS
'name of the database; NULL if it was dropped';
COMMENT ON COLUMN pgscale.trace_history.usename IS
'name of the session user; NULL if it was dropped';
COMMENT ON COLUMN pgscale.trace_history.application_name IS
'name of the application';
COMMENT ON COLUMN pgscale.trace_history.queryid IS
'query identifier of the statement that ran when the session was chosen; NULL if it is unknown';
COMMENT ON COLUMN pgscale.trace_history.traced_ms IS
'length of the trace, in milliseconds';
COMMENT ON COLUMN pgscale.trace_history.ended_by IS
'why it ended: duration or process ended';
COMMENT ON COLUMN pgscale.trace_history.coverage_fraction IS
'fraction of that time that was really watched, 0 to 1';
COMMENT ON COLUMN pgscale.trace_history.datid IS
'OID of the database';
COMMENT ON COLUMN pgscale.trace_history.userid IS
'OID of the session user';

CREATE FUNCTION pgscale.trace_history_reset() RETURNS void
AS 'MODULE_PATHNAME', 'pgscale_trace_history_reset'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.trace_history_reset() IS
'empties pgscale.trace_history';

---- texts of others, as far as they are kept or put on a page

CREATE FUNCTION pgscale.clean_text(value text)
RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_clean_text'
LANGUAGE C STRICT STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale.clean_text(text) IS
'a text, which may be of a database of another encoding, without control characters and bytes that are no characters here';

CREATE FUNCTION pgscale.clean_statement(query text)
RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_clean_statement'
LANGUAGE C STRICT STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale.clean_statement(text) IS
'a statement as a clean text, its first 2,000 characters, and without constants if it seems to have a password or a key';

CREATE FUNCTION pgscale.is_secret(setting text, value text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'pgscale_is_secret'
LANGUAGE C STABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale.is_secret(text, text) IS
'whether a setting is for superusers only, or its name or this value of it (NULL: any) seems to have a password, a key, a command or a connection';

-- Only a number above zero has a unit: 0 needs none, and -1 stands for something else.
CREATE FUNCTION pgscale.setting_text(value text, unit text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH unit_size (name, kind, size) AS (
        VALUES ('B', 'bytes', 1::numeric), ('kB', 'bytes', 1024), ('MB', 'bytes', 1048576), ('GB', 'bytes', 1073741824),
               ('TB', 'bytes', 1099511627776), ('us', 'time', 0.001), ('ms', 'time', 1), ('s', 'time', 1000), ('min', 'time', 60000),
               ('h', 'time', 3600000), ('d', 'time', 86400000)
    )
    SELECT CASE WHEN value ~ '^[0-9]+([.][0-9]+)?$' AND value ~ '[1-9]'
                THEN coalesce((SELECT trim_scale(value::numeric * times * own.size / shown.size) || shown.name
                                 FROM unit_size own
                                 JOIN unit_size shown ON shown.kind = own.kind
                                CROSS JOIN coalesce(substring(unit FROM '^[0-9]+')::numeric, 1) times
                                WHERE own.name = ltrim(unit, '0123456789') AND value::numeric * times * own.size % shown.size = 0
                                ORDER BY shown.size DESC LIMIT 1), concat(value, unit))
                ELSE value END
$$;
COMMENT ON FUNCTION pgscale.setting_text(text, text) IS
'value of a setting whose unit is that of pg_settings, as SHOW prints it: 16384 of 8kB is 128MB; any other text as it is';

---- tables of the library's own

CREATE FUNCTION pgscale.row_origin(cluster bigint, database oid)
RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_row_origin'
LANGUAGE C STRICT STABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale.row_origin(bigint, oid) IS
'where a row of the library''s tables was written: another server, another database, or NULL for this one';

---- archive

-- A row a minute (later: an hour), with its waits in arrays of the same length: compressed they take a tenth of what a row
-- for each would.  The worker makes a partition for each day (UTC), as a
-- member of the extension: so pg_dump leaves them out.
CREATE TABLE pgscale.archive_minute (
    at timestamptz NOT NULL,
    period_s double precision NOT NULL,
    rounds integer NOT NULL,
    node text,
    cluster bigint NOT NULL,
    database oid NOT NULL,
    counters double precision[] NOT NULL,
    backend_types text[] NOT NULL,
    datids oid[] NOT NULL,
    datnames text[] NOT NULL,
    usenames text[] NOT NULL,
    application_names text[] NOT NULL,
    queryids bigint[] NOT NULL,
    event_types text[] NOT NULL,
    events text[] NOT NULL,
    blockers text[] NOT NULL,
    wait_ms real[] NOT NULL,
    PRIMARY KEY (at))
PARTITION BY RANGE (at);
COMMENT ON TABLE pgscale.archive_minute IS
'what the archive has of each minute, and later of each hour; see archive_minutes and archive_waits';

CREATE TABLE pgscale.archive_query (
    day date NOT NULL,
    queryid bigint NOT NULL,
    first_seen timestamptz NOT NULL,
    last_seen timestamptz NOT NULL,
    query text NOT NULL,
    PRIMARY KEY (day, queryid))
PARTITION BY RANGE (day);
COMMENT ON TABLE pgscale.archive_query IS
'texts of the queries that the archive has waits of, for each day; see archive_queries';

CREATE TABLE pgscale.archive_change (
    at timestamptz NOT NULL,
    setting text NOT NULL,
    old text,
    new text,
    PRIMARY KEY (at, setting));
COMMENT ON TABLE pgscale.archive_change IS
'settings that were found changed; see archive_changes';

-- What the settings were when they were last looked at; of those that are hidden a hash.
CREATE TABLE pgscale.archive_setting (
    setting text PRIMARY KEY,
    value text);
COMMENT ON TABLE pgscale.archive_setting IS
'settings as the archive has seen them last';

CREATE VIEW pgscale.archive_waits AS
    SELECT m.at, m.period_s, w.backend_type, w.datid, w.datname::name AS datname, w.usename::name AS usename,
           w.application_name, w.queryid, w.event_type, w.event, w.blocker, w.wait_ms::double precision AS wait_ms
      FROM pgscale.archive_minute m,
           unnest(m.backend_types, m.datids, m.datnames, m.usenames, m.application_names, m.queryids,
                  m.event_types, m.events, m.blockers, m.wait_ms)
           AS w(backend_type, datid, datname, usename, application_name, queryid, event_type, event, blocker, wait_ms);
COMMENT ON VIEW pgscale.archive_waits IS
'waits of past minutes: the longest of each, and the rest as one row "other"; give bounds of "at" as constants';
COMMENT ON COLUMN pgscale.archive_waits.at IS
'start of the minute, or of the hour once it is rolled up';
COMMENT ON COLUMN pgscale.archive_waits.period_s IS
'length of it, in seconds';
COMMENT ON COLUMN pgscale.archive_waits.backend_type IS
'kind of process as in pg_stat_activity; also parallel worker, unknown, and other for what is not told apart';
COMMENT ON COLUMN pgscale.archive_waits.datid IS
'OID of the database; NULL if the process has none';
COMMENT ON COLUMN pgscale.archive_waits.datname IS
'name of the database at that time';
COMMENT ON COLUMN pgscale.archive_waits.usename IS
'name of the session user at that time';
COMMENT ON COLUMN pgscale.archive_waits.application_name IS
'name of the application; NULL unless pgscale.sampler_dimensions has it';
COMMENT ON COLUMN pgscale.archive_waits.queryid IS
'query identifier; NULL outside a statement or if it is unknown; see archive_queries';
COMMENT ON COLUMN pgscale.archive_waits.event_type IS
'type of the wait event as in pg_stat_activity; CPU for a backend that executes a statement and does not wait; other for the rest';
COMMENT ON COLUMN pgscale.archive_waits.event IS
'name of the wait event as in pg_stat_activity, or CPU; other for the rest';
COMMENT ON COLUMN pgscale.archive_waits.blocker IS
'of a wait for a lock: application and process ID of the root, who was in the way and did not wait; NULL if that is unknown';
COMMENT ON COLUMN pgscale.archive_waits.wait_ms IS
'time of waiting within that period, in milliseconds';

CREATE VIEW pgscale.archive_minutes AS
    SELECT at, period_s, rounds, node, counters[54] / nullif(counters[53], 0) AS active_sessions,
           counters[55] / nullif(counters[53], 0) AS idle_in_transaction_sessions, counters[53] AS observed_ms,
           counters[1]::bigint AS commits,
           counters[2]::bigint AS rollbacks,
           counters[3]::bigint AS blocks_read,
           counters[4]::bigint AS blocks_hit,
           counters[5] AS block_read_ms,
           counters[6] AS block_write_ms,
           counters[7]::bigint AS rows_returned,
           counters[8]::bigint AS rows_fetched,
           counters[9]::bigint AS rows_inserted,
           counters[10]::bigint AS rows_updated,
           counters[11]::bigint AS rows_deleted,
           counters[12]::bigint AS temp_files,
           counters[13]::bigint AS temp_bytes,
           counters[14]::bigint AS deadlocks,
           counters[15]::bigint AS conflicts,
           counters[16]::bigint AS sessions_started,
           counters[17] AS session_ms,
           counters[18] AS active_ms,
           counters[19] AS idle_in_transaction_ms,
           counters[20]::bigint AS wal_records,
           counters[21]::bigint AS wal_full_page_images,
           counters[22]::bigint AS wal_bytes,
           counters[23]::bigint AS wal_buffers_full,
           counters[24] AS wal_write_ms,
           counters[25] AS wal_sync_ms,
           counters[26]::bigint AS checkpoints_timed,
           counters[27]::bigint AS checkpoints_requested,
           counters[28] AS checkpoint_write_ms,
           counters[29] AS checkpoint_sync_ms,
           counters[30]::bigint AS checkpoint_buffers,
           counters[31]::bigint AS bgwriter_buffers,
           counters[32]::bigint AS bgwriter_stops,
           -- the server counts the sweeper's pages among these, up to a second later
           CASE WHEN counters[33] < counters[47] THEN 0 ELSE counters[33] - counters[47] END::bigint AS backend_buffers,
           counters[34]::bigint AS backend_fsyncs,
           counters[35]::bigint AS buffers_allocated,
           counters[36]::bigint AS io_reads,
           counters[37]::bigint AS io_writes,
           counters[38]::bigint AS io_extends,
           counters[39]::bigint AS io_evictions,
           counters[40]::bigint AS io_reuses,
           counters[41]::bigint AS io_fsyncs,
           counters[42] AS io_read_ms,
           counters[43] AS io_write_ms,
           counters[44]::bigint AS wal_files_archived,
           counters[45]::bigint AS wal_archive_failures,
           counters[46]::bigint AS sweeper_supplied,
           counters[47]::bigint AS sweeper_written,
           counters[48]::bigint AS writeback_requested_bytes,
           counters[49]::bigint AS relocations,
           counters[50]::bigint AS sessions,
           counters[51] AS standby_lag_s,
           counters[52]::bigint AS standby_lag_bytes,
           pgscale.row_origin(cluster, database) AS origin
      FROM pgscale.archive_minute;
COMMENT ON VIEW pgscale.archive_minutes IS
'the minutes that the archive has, and what the server''s counters grew by; NULL where a counter is unknown or was reset';
COMMENT ON COLUMN pgscale.archive_minutes.at IS
'start of the minute, or of the hour once it is rolled up';
COMMENT ON COLUMN pgscale.archive_minutes.period_s IS
'length of it, in seconds';
COMMENT ON COLUMN pgscale.archive_minutes.rounds IS
'number of minutes that the row is made of';
COMMENT ON COLUMN pgscale.archive_minutes.node IS
'the server that it is of';
COMMENT ON COLUMN pgscale.archive_minutes.active_sessions IS
'client backends and their parallel workers that were active, on average while the sampler observed; NULL if it did not';
COMMENT ON COLUMN pgscale.archive_minutes.idle_in_transaction_sessions IS
'client backends that were idle in a transaction, on average while the sampler observed; NULL if it did not';
COMMENT ON COLUMN pgscale.archive_minutes.observed_ms IS
'time of the row that the sampler has observed, in milliseconds; 0 if it was off';
COMMENT ON COLUMN pgscale.archive_minutes.commits IS
'transactions committed';
COMMENT ON COLUMN pgscale.archive_minutes.rollbacks IS
'transactions rolled back';
COMMENT ON COLUMN pgscale.archive_minutes.blocks_read IS
'blocks read into shared buffers by backends';
COMMENT ON COLUMN pgscale.archive_minutes.blocks_hit IS
'blocks that backends found in shared buffers';
COMMENT ON COLUMN pgscale.archive_minutes.block_read_ms IS
'time of these reads, in milliseconds; 0 unless track_io_timing is on';
COMMENT ON COLUMN pgscale.archive_minutes.block_write_ms IS
'time of backends'' writes, in milliseconds; 0 unless track_io_timing is on';
COMMENT ON COLUMN pgscale.archive_minutes.rows_returned IS
'rows read by scans';
COMMENT ON COLUMN pgscale.archive_minutes.rows_fetched IS
'rows fetched by index scans';
COMMENT ON COLUMN pgscale.archive_minutes.rows_inserted IS
'rows inserted';
COMMENT ON COLUMN pgscale.archive_minutes.rows_updated IS
'rows updated';
COMMENT ON COLUMN pgscale.archive_minutes.rows_deleted IS
'rows deleted';
COMMENT ON COLUMN pgscale.archive_minutes.temp_files IS
'temporary files';
COMMENT ON COLUMN pgscale.archive_minutes.temp_bytes IS
'bytes written into temporary files';
COMMENT ON COLUMN pgscale.archive_minutes.deadlocks IS
'deadlocks';
COMMENT ON COLUMN pgscale.archive_minutes.conflicts IS
'queries cancelled by recovery';
COMMENT ON COLUMN pgscale.archive_minutes.sessions_started IS
'sessions that began';
COMMENT ON COLUMN pgscale.archive_minutes.session_ms IS
'time of all sessions that have reported, in milliseconds';
COMMENT ON COLUMN pgscale.archive_minutes.active_ms IS
'time that these executed statements, in milliseconds';
COMMENT ON COLUMN pgscale.archive_minutes.idle_in_transaction_ms IS
'time that these idled in a transaction, in milliseconds';
COMMENT ON COLUMN pgscale.archive_minutes.wal_records IS
'WAL records';
COMMENT ON COLUMN pgscale.archive_minutes.wal_full_page_images IS
'full page images in WAL';
COMMENT ON COLUMN pgscale.archive_minutes.wal_bytes IS
'bytes of WAL';
COMMENT ON COLUMN pgscale.archive_minutes.wal_buffers_full IS
'times that WAL was written because its buffers were full';
COMMENT ON COLUMN pgscale.archive_minutes.wal_write_ms IS
'time of writing WAL, in milliseconds; 0 unless track_wal_io_timing is on';
COMMENT ON COLUMN pgscale.archive_minutes.wal_sync_ms IS
'time of syncing WAL, in milliseconds; 0 unless track_wal_io_timing is on';
COMMENT ON COLUMN pgscale.archive_minutes.checkpoints_timed IS
'checkpoints by time';
COMMENT ON COLUMN pgscale.archive_minutes.checkpoints_requested IS
'checkpoints asked for, by max_wal_size among others';
COMMENT ON COLUMN pgscale.archive_minutes.checkpoint_write_ms IS
'time that checkpoints wrote, in milliseconds';
COMMENT ON COLUMN pgscale.archive_minutes.checkpoint_sync_ms IS
'time that checkpoints synced files, in milliseconds';
COMMENT ON COLUMN pgscale.archive_minutes.checkpoint_buffers IS
'buffers written by checkpoints';
COMMENT ON COLUMN pgscale.archive_minutes.bgwriter_buffers IS
'buffers written by the background writer';
COMMENT ON COLUMN pgscale.archive_minutes.bgwriter_stops IS
'times that the background writer stopped at its limit';
COMMENT ON COLUMN pgscale.archive_minutes.backend_buffers IS
'buffers written by processes other than the checkpointer, the background writer and the sweeper''s writers; with files that are extended before PostgreSQL 16';
COMMENT ON COLUMN pgscale.archive_minutes.backend_fsyncs IS
'files synced by backends';
COMMENT ON COLUMN pgscale.archive_minutes.buffers_allocated IS
'buffers allocated';
COMMENT ON COLUMN pgscale.archive_minutes.io_reads IS
'pages of relations that were read; from PostgreSQL 16 on';
COMMENT ON COLUMN pgscale.archive_minutes.io_writes IS
'pages of relations that were written; from PostgreSQL 16 on';
COMMENT ON COLUMN pgscale.archive_minutes.io_extends IS
'pages by which relations were extended; from PostgreSQL 16 on';
COMMENT ON COLUMN pgscale.archive_minutes.io_evictions IS
'buffers evicted for another page; from PostgreSQL 16 on';
COMMENT ON COLUMN pgscale.archive_minutes.io_reuses IS
'buffers reused within a ring; from PostgreSQL 16 on';
COMMENT ON COLUMN pgscale.archive_minutes.io_fsyncs IS
'syncs of files of relations; from PostgreSQL 16 on';
COMMENT ON COLUMN pgscale.archive_minutes.io_read_ms IS
'time of these reads, in milliseconds; from PostgreSQL 16 on, 0 unless track_io_timing is on';
COMMENT ON COLUMN pgscale.archive_minutes.io_write_ms IS
'time of these writes, in milliseconds; likewise';
COMMENT ON COLUMN pgscale.archive_minutes.wal_files_archived IS
'WAL files archived';
COMMENT ON COLUMN pgscale.archive_minutes.wal_archive_failures IS
'failed tries to archive a WAL file';
COMMENT ON COLUMN pgscale.archive_minutes.sweeper_supplied IS
'buffers that the sweeper supplied';
COMMENT ON COLUMN pgscale.archive_minutes.sweeper_written IS
'pages that the sweeper wrote';
COMMENT ON COLUMN pgscale.archive_minutes.writeback_requested_bytes IS
'bytes that the kernel was asked to write back';
COMMENT ON COLUMN pgscale.archive_minutes.relocations IS
'relocation jobs of this database that have ended';
COMMENT ON COLUMN pgscale.archive_minutes.sessions IS
'client backends at its end; of an hour: the most';
COMMENT ON COLUMN pgscale.archive_minutes.standby_lag_s IS
'time that the standby furthest behind has yet to replay, at its end; of an hour: the most';
COMMENT ON COLUMN pgscale.archive_minutes.standby_lag_bytes IS
'WAL that the standby furthest behind has yet to replay, at its end; of an hour: the most';
COMMENT ON COLUMN pgscale.archive_minutes.origin IS
'where the row is from if not from this database: another server, another database; NULL: from here';

CREATE VIEW pgscale.archive_queries AS
    SELECT queryid, max(query) AS query, min(first_seen) AS first_seen, max(last_seen) AS last_seen
      FROM pgscale.archive_query
     GROUP BY queryid;
COMMENT ON VIEW pgscale.archive_queries IS
'texts of the queries that the archive has waits of';
COMMENT ON COLUMN pgscale.archive_queries.queryid IS
'query identifier';
COMMENT ON COLUMN pgscale.archive_queries.query IS
'beginning of the text, as pg_stat_statements or pg_stat_activity had it';
COMMENT ON COLUMN pgscale.archive_queries.first_seen IS
'when it was first among the longest waits';
COMMENT ON COLUMN pgscale.archive_queries.last_seen IS
'when it was last seen there, to an hour';

CREATE VIEW pgscale.archive_changes AS
    SELECT at, setting, old, new FROM pgscale.archive_change;
COMMENT ON VIEW pgscale.archive_changes IS
'settings that were found changed, and when, and server_version_num; what may hold a password is hidden';
COMMENT ON COLUMN pgscale.archive_changes.at IS
'when the change was found: within a minute';
COMMENT ON COLUMN pgscale.archive_changes.setting IS
'name of the setting';
COMMENT ON COLUMN pgscale.archive_changes.old IS
'value before, in the unit of pg_settings; (hidden) for what may hold a password; NULL: there was no such setting';
COMMENT ON COLUMN pgscale.archive_changes.new IS
'value since then; likewise';

-- What a round's process calls; these work in no other one.
CREATE FUNCTION pgscale.archive_wait_growth(keys bigint[], ms double precision[])
RETURNS double precision[]
AS 'MODULE_PATHNAME', 'pgscale_archive_wait_growth'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.archive_wait_growth(bigint[], double precision[]) IS
'by how much waits have grown since the latest row of the archive; for its worker';

CREATE FUNCTION pgscale.archive_counter_growth("values" double precision[], markers bigint[])
RETURNS double precision[]
AS 'MODULE_PATHNAME', 'pgscale_archive_counter_growth'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.archive_counter_growth(double precision[], bigint[]) IS
'by how much counters have grown since the latest row of the archive; for its worker';

-- The server's counters, in the order in which archive_minutes has them, and of each a hash of what it was counted since;
-- NULL for a value of the moment.  Majors have them in different views, so rows are taken as JSON.
CREATE FUNCTION pgscale.archive_counters(OUT "values" double precision[], OUT markers bigint[])
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    databases record;
    wal jsonb;
    bgwriter jsonb;
    checkpointer jsonb;
    io jsonb := '{}';
    archiver pg_stat_archiver;
    sweeper record;
    writeback record;
    sampler record;
    standby record;
BEGIN
    -- a database that is made or dropped changes the sums, too
    SELECT sum(xact_commit) AS commits, sum(xact_rollback) AS rollbacks, sum(blks_read) AS reads, sum(blks_hit) AS hits,
           sum(blk_read_time) AS read_ms, sum(blk_write_time) AS write_ms, sum(tup_returned) AS returned,
           sum(tup_fetched) AS fetched, sum(tup_inserted) AS inserted, sum(tup_updated) AS updated, sum(tup_deleted) AS deleted,
           sum(temp_files) AS temp_files, sum(temp_bytes) AS temp_bytes, sum(deadlocks) AS deadlocks, sum(conflicts) AS conflicts,
           sum(s.sessions) AS sessions, sum(session_time) AS session_ms, sum(active_time) AS active_ms,
           sum(idle_in_transaction_time) AS idle_ms, string_agg(concat_ws(' ', datid, stats_reset), ',' ORDER BY datid) AS marker
      INTO databases
      FROM pg_stat_database s;
    SELECT to_jsonb(w) INTO wal FROM pg_stat_wal w;
    SELECT to_jsonb(b) INTO bgwriter FROM pg_stat_bgwriter b;
    SELECT * INTO archiver FROM pg_stat_archiver;
    checkpointer := bgwriter;
    IF pgscale.major() >= 17 THEN
        EXECUTE $q$SELECT jsonb_build_object('checkpoints_timed', num_timed, 'checkpoints_req', num_requested,
                       'checkpoint_write_time', write_time, 'checkpoint_sync_time', sync_time,
                       'buffers_checkpoint', buffers_written, 'stats_reset', stats_reset)
                     FROM pg_catalog.pg_stat_checkpointer$q$ INTO checkpointer;
    END IF;
    -- pages: from 18 on the server counts operations, which may have several, and their bytes
    IF pgscale.major() >= 16 THEN
        EXECUTE $q$SELECT jsonb_build_object('reads', sum(page.reads) FILTER (WHERE object <> 'wal'),
                       'writes', sum(page.writes) FILTER (WHERE object <> 'wal'), 'extends', sum(page.extends) FILTER (WHERE object <> 'wal'),
                       'evictions', sum(evictions), 'reuses', sum(reuses), 'fsyncs', sum(fsyncs) FILTER (WHERE object <> 'wal'),
                       'read_time', sum(read_time) FILTER (WHERE object <> 'wal'),
                       'write_time', sum(write_time) FILTER (WHERE object <> 'wal'),
                       'wal_write_time', sum(write_time) FILTER (WHERE object = 'wal'),
                       'wal_sync_time', sum(fsync_time) FILTER (WHERE object = 'wal'),
                       'buffers_backend', sum(page.writes) FILTER (WHERE object <> 'wal'
                           AND backend_type IN ('client backend', 'background worker', 'autovacuum worker', 'autovacuum launcher', 'walsender')),
                       'buffers_backend_fsync', sum(fsyncs) FILTER (WHERE object <> 'wal'
                           AND backend_type IN ('client backend', 'background worker', 'autovacuum worker', 'autovacuum launcher', 'walsender')),
                       'stats_reset', max(stats_reset))
                     FROM pg_catalog.pg_stat_io i, to_jsonb(i) j, current_setting('block_size') b(bytes)
                    CROSS JOIN LATERAL (
                        SELECT coalesce((j ->> 'read_bytes')::bigint / bytes::integer, i.reads) AS reads,
                               coalesce((j ->> 'write_bytes')::bigint / bytes::integer, i.writes) AS writes,
                               coalesce((j ->> 'extend_bytes')::bigint / bytes::integer, i.extends) AS extends) page$q$ INTO io;
    END IF;
    SELECT sum(w.supplied_clean + w.supplied_written) AS supplied, sum(w.written) AS written, max(w.stats_reset) AS stats_reset
      INTO sweeper FROM pgscale.sweeper_stats() w;
    SELECT w.requested_bytes, w.stats_reset INTO writeback FROM pgscale.writeback_stats() w;
    SELECT w.observed_ms, w.active_ms, w.idle_in_transaction_ms, w.stats_reset INTO sampler FROM pgscale.sampler_stats() w;
    SELECT max(extract(epoch FROM replay_lag)) AS lag_s,
           max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)) AS lag_bytes INTO standby FROM pg_stat_replication;

    "values" := ARRAY[
        databases.commits, databases.rollbacks, databases.reads, databases.hits, databases.read_ms, databases.write_ms,
        databases.returned, databases.fetched, databases.inserted, databases.updated, databases.deleted, databases.temp_files,
        databases.temp_bytes, databases.deadlocks, databases.conflicts, databases.sessions, databases.session_ms,
        databases.active_ms, databases.idle_ms]::double precision[]
        || ARRAY[wal ->> 'wal_records', wal ->> 'wal_fpi', wal ->> 'wal_bytes', wal ->> 'wal_buffers_full',
        coalesce(wal ->> 'wal_write_time', io ->> 'wal_write_time'), coalesce(wal ->> 'wal_sync_time', io ->> 'wal_sync_time'),
        checkpointer ->> 'checkpoints_timed', checkpointer ->> 'checkpoints_req', checkpointer ->> 'checkpoint_write_time',
        checkpointer ->> 'checkpoint_sync_time', checkpointer ->> 'buffers_checkpoint',
        bgwriter ->> 'buffers_clean', bgwriter ->> 'maxwritten_clean',
        coalesce(bgwriter ->> 'buffers_backend', io ->> 'buffers_backend'),
        coalesce(bgwriter ->> 'buffers_backend_fsync', io ->> 'buffers_backend_fsync'), bgwriter ->> 'buffers_alloc',
        io ->> 'reads', io ->> 'writes', io ->> 'extends', io ->> 'evictions', io ->> 'reuses', io ->> 'fsyncs',
        io ->> 'read_time', io ->> 'write_time']::double precision[]
        || ARRAY[archiver.archived_count, archiver.failed_count, sweeper.supplied, sweeper.written, writeback.requested_bytes,
        (SELECT count(*) FROM pgscale.relocation_jobs j WHERE j.finished_at IS NOT NULL),
        (SELECT count(*) FROM pg_stat_activity a WHERE a.backend_type = 'client backend'),
        standby.lag_s, standby.lag_bytes, sampler.observed_ms, sampler.active_ms,
        sampler.active_ms + sampler.idle_in_transaction_ms]::double precision[];
    markers := array_fill(hashtextextended(databases.marker, 0), ARRAY[19])
        || array_fill(hashtextextended(concat(wal ->> 'stats_reset', io ->> 'stats_reset'), 0), ARRAY[6])
        || array_fill(hashtextextended(concat(checkpointer ->> 'stats_reset'), 0), ARRAY[5])
        || array_fill(hashtextextended(concat(bgwriter ->> 'stats_reset', io ->> 'stats_reset'), 0), ARRAY[5])
        || array_fill(hashtextextended(concat(io ->> 'stats_reset'), 0), ARRAY[8])
        || array_fill(hashtextextended(concat(archiver.stats_reset), 0), ARRAY[2])
        || array_fill(hashtextextended(concat(sweeper.stats_reset), 0), ARRAY[2])
        || hashtextextended(concat(writeback.stats_reset), 0) || 0::bigint
        || array_fill(NULL::bigint, ARRAY[3]) || array_fill(hashtextextended(concat(sampler.stats_reset), 0), ARRAY[3]);
END
$$;
COMMENT ON FUNCTION pgscale.archive_counters() IS
'the server''s counters as the archive numbers them, with a hash of what each was counted since';

-- A trigger or rule would run as the owner of the tables, a superuser.
CREATE FUNCTION pgscale.archive_partition(parent text, day date)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    partition text := parent || to_char(day, '_YYYYMMDD');
    found regclass;
    granted record;
BEGIN
    IF coalesce(parent, '') NOT IN ('archive_minute', 'archive_query') OR NOT coalesce(isfinite(day), false) THEN
        RAISE EXCEPTION 'there is no such partition' USING ERRCODE = 'invalid_parameter_value',
              HINT = 'The archive''s worker makes what it needs.';
    END IF;
    SELECT i.inhrelid INTO found
      FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = format('pgscale.%I', parent)::regclass
       AND c.relname IN (partition, replace(partition, '_minute_', '_hour_'));
    IF found IS NULL THEN
        EXECUTE format('CREATE TABLE pgscale.%I (LIKE pgscale.%I INCLUDING ALL)%s', partition, parent,
                       (SELECT format(' TABLESPACE %I', t.spcname) FROM pg_class c JOIN pg_tablespace t ON t.oid = c.reltablespace
                         WHERE c.oid = format('pgscale.%I', parent)::regclass));
        FOR granted IN SELECT DISTINCT a.grantee FROM pg_class c, aclexplode(c.relacl) a
                        WHERE c.oid = format('pgscale.%I', partition)::regclass AND a.grantee <> c.relowner LOOP
            EXECUTE format('REVOKE ALL ON pgscale.%I FROM %s', partition,
                           CASE WHEN granted.grantee = 0 THEN 'PUBLIC' ELSE granted.grantee::regrole::text END);
        END LOOP;
        EXECUTE format('COMMENT ON TABLE pgscale.%I IS %L', partition, 'a day (UTC) of ' || parent);
        IF parent = 'archive_minute' THEN
            EXECUTE format('ALTER TABLE pgscale.%I ATTACH PARTITION pgscale.%I FOR VALUES FROM (%L) TO (%L)', parent, partition,
                           to_char(day, 'YYYY-MM-DD 00:00+00'), to_char(day + 1, 'YYYY-MM-DD 00:00+00'));
        ELSE
            EXECUTE format('ALTER TABLE pgscale.%I ATTACH PARTITION pgscale.%I FOR VALUES FROM (%L) TO (%L)', parent, partition,
                           to_char(day, 'YYYY-MM-DD'), to_char(day + 1, 'YYYY-MM-DD'));
        END IF;
        EXECUTE format('ALTER EXTENSION pgscale ADD TABLE pgscale.%I', partition);
        PERFORM pgscale.keep_local();
        found := format('pgscale.%I', partition)::regclass;
    END IF;
    IF EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid IN (found, format('pgscale.%I', parent)::regclass) AND NOT t.tgisinternal
                  AND t.tgfoid <> 'pgscale.discard_replicated()'::regprocedure)
       OR EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class IN (found, format('pgscale.%I', parent)::regclass))
       OR NOT (SELECT r.rolsuper FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner WHERE c.oid = found) THEN
        RAISE EXCEPTION '% has a trigger or a rule, or belongs to a role that is no superuser', found
            USING ERRCODE = 'wrong_object_type', HINT = 'Drop the trigger or rule, or give it to a superuser.';
    END IF;
END
$$;
COMMENT ON FUNCTION pgscale.archive_partition(text, date) IS
'makes the partition of a day if it is missing, and makes sure that nothing of others runs on it; for the archive''s worker';

-- Texts of queries that have none for this day yet.  Without pg_stat_statements, and where it has a text that cannot be
-- converted to this database's encoding, those that sessions have just executed are taken.
CREATE FUNCTION pgscale.archive_texts(wanted bigint[], seen_at timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    today date := (seen_at AT TIME ZONE 'UTC')::date;
    missing bigint[];
    room integer;
    statements regclass;
BEGIN
    UPDATE pgscale.archive_query q SET last_seen = seen_at
     WHERE q.day = today AND q.queryid = ANY (wanted) AND q.last_seen < seen_at - interval '1 hour';
    missing := ARRAY(SELECT w FROM unnest(wanted) w WHERE w IS NOT NULL
                     EXCEPT SELECT q.queryid FROM pgscale.archive_query q WHERE q.day = today);
    IF missing = '{}' THEN
        RETURN;
    END IF;
    room := current_setting('pgscale.archive_texts')::integer - (SELECT count(*) FROM pgscale.archive_query q WHERE q.day = today);
    IF room <= 0 THEN
        RETURN;
    END IF;
    SELECT c.oid INTO statements
      FROM pg_extension e
      JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
           AND d.classid = 'pg_class'::regclass AND d.deptype = 'e'
      JOIN pg_class c ON c.oid = d.objid
     WHERE e.extname = 'pg_stat_statements' AND c.relname = 'pg_stat_statements' AND c.relkind = 'v';
    IF FOUND THEN
        BEGIN
            EXECUTE format($q$
                INSERT INTO pgscale.archive_query (day, queryid, first_seen, last_seen, query)
                SELECT $2, t.queryid, $3, $3, pgscale.clean_statement(max(t.query))
                  FROM %s t WHERE t.queryid = ANY ($1) AND t.query IS NOT NULL GROUP BY t.queryid LIMIT $4
                ON CONFLICT DO NOTHING$q$, statements) USING missing, today, seen_at, room;
            RETURN;
        EXCEPTION
            -- it is not preloaded, or a text is of another encoding
            WHEN object_not_in_prerequisite_state OR undefined_column OR undefined_function OR untranslatable_character
                 OR character_not_in_repertoire THEN
                NULL;
        END;
    END IF;
    INSERT INTO pgscale.archive_query (day, queryid, first_seen, last_seen, query)
    SELECT DISTINCT ON (a.query_id) today, a.query_id, seen_at, seen_at,
           pgscale.clean_statement(pgscale.foreign_text(a.query, d.encoding))
      FROM pg_stat_activity a JOIN pg_database d ON d.oid = a.datid
     WHERE a.query_id = ANY (missing) AND a.query IS NOT NULL
     LIMIT room
    ON CONFLICT DO NOTHING;
END
$$;
COMMENT ON FUNCTION pgscale.archive_texts(bigint[], timestamptz) IS
'archives texts of queries; for the archive''s worker';

CREATE FUNCTION pgscale.archive_settings(seen_at timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    anew boolean := NOT EXISTS (SELECT FROM pgscale.archive_setting);
    -- the settings of another major are others, and the archive is there after pg_upgrade
    upgraded boolean := EXISTS (SELECT FROM pgscale.archive_setting o WHERE o.setting = 'server_version_num'
                                   AND o.value::integer / 10000 <> pgscale.major());
    changed record;
BEGIN
    FOR changed IN
        SELECT coalesce(s.name, o.setting) AS setting, o.setting IS NOT NULL AS known, s.name IS NOT NULL AS there,
               o.value AS old, s.value AS new, coalesce(s.hidden, pgscale.is_secret(o.setting, o.value)) AS hidden
          FROM (SELECT h.name, h.hidden,
                       CASE WHEN h.hidden THEN encode(sha256(textsend(h.reset_val)), 'hex')
                            ELSE pgscale.clean_text(h.reset_val) END AS value
                  FROM (SELECT p.name, p.reset_val, pgscale.is_secret(p.name, p.reset_val) AS hidden
                          FROM pg_settings p WHERE (p.context <> 'internal' OR p.name = 'server_version_num')
                           AND p.source NOT IN ('database', 'user', 'database user', 'client')) h) s
          FULL JOIN pgscale.archive_setting o ON o.setting = s.name
         WHERE s.value IS DISTINCT FROM o.value
           AND (s.name IS NOT NULL OR NOT EXISTS (SELECT FROM pg_settings p WHERE p.name = o.setting)) LOOP
        IF NOT changed.there THEN
            DELETE FROM pgscale.archive_setting o WHERE o.setting = changed.setting;
        ELSE
            INSERT INTO pgscale.archive_setting (setting, value) VALUES (changed.setting, changed.new)
            ON CONFLICT (setting) DO UPDATE SET value = excluded.value;
        END IF;
        IF NOT (anew OR upgraded AND NOT (changed.known AND changed.there)) THEN
            INSERT INTO pgscale.archive_change (at, setting, old, new)
            VALUES (seen_at, changed.setting,
                    -- a hash: it was hidden for its value
                    CASE WHEN changed.known AND (changed.hidden OR changed.old ~ '^[0-9a-f]{64}$') THEN '(hidden)' ELSE changed.old END,
                    CASE WHEN changed.hidden AND changed.there THEN '(hidden)' ELSE changed.new END)
            ON CONFLICT DO NOTHING;
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION pgscale.archive_settings(timestamptz) IS
'archives which settings are not what they were; for the archive''s worker';

-- A round: 'first' where there is nothing to compare with yet, else 'written'.
CREATE FUNCTION pgscale.archive_write(since timestamptz, period interval)
RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    until timestamptz := since + period;
    period_s double precision := extract(epoch FROM period);
    top integer := current_setting('pgscale.archive_top');
    reset_at timestamptz;
    waits record;
    counters record;
    growth double precision[];
    too_long double precision;
BEGIN
    -- again, if there was a reset meanwhile
    LOOP
        reset_at := (SELECT s.stats_reset FROM pgscale.sampler_stats() s);
        WITH profile AS MATERIALIZED (
            SELECT row_number() OVER () AS n, g.*
              FROM (SELECT p.backend_type, p.datid, p.userid, p.application_name, p.queryid, p.event_type, p.event,
                           sum(p.wait_ms) AS ms
                      FROM pgscale.wait_profile() p
                     WHERE NOT p.idle
                     GROUP BY 1, 2, 3, 4, 5, 6, 7) g),
        grown AS MATERIALIZED (
            SELECT g.n, g.ms
              FROM (SELECT pgscale.archive_wait_growth(
                        coalesce(array_agg(hash_record_extended(ROW(p.backend_type, p.datid, p.userid, p.application_name,
                                                                    p.queryid, p.event_type, p.event), 0) ORDER BY p.n), '{}')
                        || coalesce(array_agg(hash_record_extended(ROW(p.event_type, p.event), 0) ORDER BY p.n), '{}')
                        || coalesce(array_agg(hash_record_extended(ROW(p.backend_type, p.datid, p.userid, p.application_name,
                                                                       p.queryid), 0) ORDER BY p.n), '{}')
                        || coalesce(array_agg((p.backend_type = 'other')::integer::bigint ORDER BY p.n), '{}')
                        || (extract(epoch FROM reset_at) * 1000000)::bigint,
                        coalesce(array_agg(p.ms ORDER BY p.n), '{}')) AS each
                      FROM profile p) a,
                   unnest(a.each) WITH ORDINALITY g(ms, n)),
        changed AS MATERIALIZED (
            SELECT p.*, g.ms AS grown,
                   CASE WHEN p.event_type = 'Lock'
                        THEN hash_record_extended(ROW(p.backend_type, p.datid, p.userid, p.queryid, p.event), 0) END AS lock_key
              FROM profile p JOIN grown g USING (n)
             WHERE g.ms > 0),
        -- whose samples of the minute were in whose way
        roots AS MATERIALIZED (
            SELECT r.lock_key, r.blocker, r.samples / sum(r.samples) OVER (PARTITION BY r.lock_key) AS part
              FROM (SELECT hash_record_extended(ROW(h.backend_type, h.datid, h.userid, h.queryid, h.event), 0) AS lock_key,
                           CASE WHEN h.root_pid = 0 THEN 'prepared transaction'
                                ELSE h.root_pid || coalesce(' ' || nullif(h.root_application_name, ''), '') END AS blocker,
                           count(*)::double precision AS samples
                      FROM pgscale.wait_history(since, NULL::timestamptz) h
                     WHERE h.event_type = 'Lock'
                       AND EXISTS (SELECT FROM changed c WHERE c.event_type = 'Lock')
                     GROUP BY 1, 2) r),
        named AS MATERIALIZED (
            SELECT c.backend_type, c.datid, pgscale.foreign_name(d.datname)::text AS datname,
                   pgscale.foreign_name(u.rolname)::text AS usename, c.application_name, c.queryid, c.event_type, c.event,
                   r.blocker, c.grown * coalesce(r.part, 1) AS ms
              FROM changed c
              LEFT JOIN roots r USING (lock_key)
              LEFT JOIN pg_database d ON d.oid = c.datid
              LEFT JOIN pg_roles u ON u.oid = c.userid),
        ranked AS MATERIALIZED (SELECT w.*, row_number() OVER (ORDER BY w.ms DESC) AS place FROM named w)
        SELECT coalesce(array_agg(k.backend_type), '{}') AS backend_types, coalesce(array_agg(k.datid), '{}') AS datids,
               coalesce(array_agg(k.datname), '{}') AS datnames, coalesce(array_agg(k.usename), '{}') AS usenames,
               coalesce(array_agg(k.application_name), '{}') AS application_names,
               coalesce(array_agg(k.queryid), '{}') AS queryids, coalesce(array_agg(k.event_type), '{}') AS event_types,
               coalesce(array_agg(k.event), '{}') AS events, coalesce(array_agg(k.blocker), '{}') AS blockers,
               coalesce(array_agg(k.ms::real), '{}') AS ms
          INTO waits
          FROM (SELECT r.backend_type, r.datid, r.datname, r.usename, r.application_name, r.queryid, r.event_type, r.event,
                       r.blocker, r.ms
                  FROM ranked r WHERE r.place <= top
                 UNION ALL
                SELECT 'other', NULL, NULL, NULL, NULL, NULL, 'other', 'other', NULL, sum(r.ms)
                  FROM ranked r WHERE r.place > top HAVING count(*) > 0
                 ORDER BY event_type, event, backend_type, datname, usename, application_name, queryid) k;
        SELECT * INTO counters FROM pgscale.archive_counters();
        EXIT WHEN reset_at = (SELECT s.stats_reset FROM pgscale.sampler_stats() s);
    END LOOP;
    growth := pgscale.archive_counter_growth(counters."values", counters.markers);
    PERFORM pgscale.archive_settings(until);
    IF period_s <= 0 THEN
        RETURN 'first';
    END IF;

    -- After a reset all that the sampler has observed is new. After a pause its first tick stands for time before this row, too.
    growth[53:55] := ARRAY(SELECT coalesce(growth[n], counters."values"[n], 0) FROM generate_series(53, 55) n ORDER BY n);
    growth[55] := greatest(growth[55] - growth[54], 0);
    too_long := greatest(growth[53] / (period_s * 1000), 1);
    growth[53:55] := ARRAY[least(growth[53], period_s * 1000), growth[54] / too_long, growth[55] / too_long];
    IF (too_long - 1) * period_s > 0.1 THEN
        waits.ms := ARRAY(SELECT (w.ms / too_long)::real FROM unnest(waits.ms) WITH ORDINALITY w(ms, n) ORDER BY w.n);
    END IF;

    PERFORM pgscale.archive_partition('archive_minute'::text, (since AT TIME ZONE 'UTC')::date);
    PERFORM pgscale.archive_partition('archive_query'::text, (until AT TIME ZONE 'UTC')::date);
    IF EXISTS (SELECT FROM pgscale.archive_minute m
                WHERE m.at > since - interval '2 hours' AND m.at < until
                  AND m.at + make_interval(secs => m.period_s) > since + interval '0.5 s') THEN
        RAISE EXCEPTION 'the archive already has rows of this time'
            USING ERRCODE = 'unique_violation',
                  DETAIL = 'The clock was set back, or another server''s archive was copied here.',
                  HINT = 'No time is archived twice. The archive goes on by itself when the clock has passed these rows.';
    END IF;
    INSERT INTO pgscale.archive_minute (at, period_s, rounds, node, cluster, database, counters, backend_types,
                                        datids, datnames, usenames, application_names, queryids, event_types, events, blockers, wait_ms)
    SELECT since, period_s, 1, n.node, n.system_identifier, d.oid, growth, waits.backend_types, waits.datids, waits.datnames, waits.usenames,
           waits.application_names, waits.queryids, waits.event_types, waits.events, waits.blockers, waits.ms
      FROM pgscale.node_identity() n, pg_database d WHERE d.datname = current_database();
    PERFORM pgscale.archive_texts(waits.queryids, until);
    RETURN 'written';
END
$$;
COMMENT ON FUNCTION pgscale.archive_write(timestamptz, interval) IS
'writes what the waits and counters have grown by as a row of the archive; for its worker';

-- Minutes become hours: stretches of them without a gap, within an hour, by the longest waits of that.
CREATE FUNCTION pgscale.archive_roll_up(minutes text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    hours text := replace(minutes, '_minute_', '_hour_');
    bound text := (SELECT pg_get_expr(c.relpartbound, c.oid) FROM pg_class c WHERE c.oid = to_regclass(format('pgscale.%I', minutes)));
    granted record;
BEGIN
    IF bound IS NULL OR minutes !~ '^archive_minute_[0-9]{8}$' THEN
        RAISE EXCEPTION 'there is no such partition of minutes' USING ERRCODE = 'invalid_parameter_value',
              HINT = 'The archive''s worker rolls up what is old: see pgscale.archive_detail.';
    END IF;
    EXECUTE format('CREATE TABLE pgscale.%I (LIKE pgscale.%I INCLUDING ALL)%s', hours, minutes,
                   (SELECT format(' TABLESPACE %I', t.spcname) FROM pg_class c JOIN pg_tablespace t ON t.oid = c.reltablespace
                     WHERE c.oid = format('pgscale.%I', minutes)::regclass));
    FOR granted IN SELECT DISTINCT a.grantee FROM pg_class c, aclexplode(c.relacl) a
                    WHERE c.oid = format('pgscale.%I', hours)::regclass AND a.grantee <> c.relowner LOOP
        EXECUTE format('REVOKE ALL ON pgscale.%I FROM %s', hours,
                       CASE WHEN granted.grantee = 0 THEN 'PUBLIC' ELSE granted.grantee::regrole::text END);
    END LOOP;
    EXECUTE format('COMMENT ON TABLE pgscale.%I IS %L', hours, 'a day (UTC) of archive_minute, by hours');
    EXECUTE format('ALTER EXTENSION pgscale ADD TABLE pgscale.%I', hours);
    PERFORM pgscale.keep_local();
    EXECUTE format($q$
        INSERT INTO pgscale.%I (at, period_s, rounds, node, cluster, database, counters, backend_types,
                                datids, datnames, usenames, application_names, queryids, event_types, events, blockers, wait_ms)
        WITH minutes AS MATERIALIZED (
            SELECT j.*, sum(CASE WHEN j.joined THEN 0 ELSE 1 END) OVER (ORDER BY j.at) AS stretch
              FROM (SELECT m.*,
                           coalesce(m.at - lag(m.at + make_interval(secs => m.period_s)) OVER o < interval '2 s'
                               AND date_trunc('hour', m.at, 'UTC') = date_trunc('hour', lag(m.at) OVER o, 'UTC')
                               AND m.node IS NOT DISTINCT FROM lag(m.node) OVER o AND m.cluster = lag(m.cluster) OVER o
                               AND m.database = lag(m.database) OVER o, false) AS joined
                      FROM pgscale.%I m WINDOW o AS (ORDER BY m.at)) j),
        waits AS (
            SELECT m.stretch, w.backend_type, w.datid, w.datname, w.usename, w.application_name, w.queryid, w.event_type,
                   w.event, w.blocker, sum(w.ms::double precision) AS ms,
                   w.backend_type = 'other' AND w.event_type = 'other' AS rest
              FROM minutes m,
                   unnest(m.backend_types, m.datids, m.datnames, m.usenames, m.application_names, m.queryids, m.event_types,
                          m.events, m.blockers, m.wait_ms)
                   AS w(backend_type, datid, datname, usename, application_name, queryid, event_type, event, blocker, ms)
             GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
        ranked AS (SELECT w.*, row_number() OVER (PARTITION BY w.stretch ORDER BY w.rest, w.ms DESC) AS place FROM waits w),
        arrays AS (
            SELECT k.stretch, array_agg(k.backend_type) AS backend_types, array_agg(k.datid) AS datids,
                   array_agg(k.datname) AS datnames, array_agg(k.usename) AS usenames,
                   array_agg(k.application_name) AS application_names, array_agg(k.queryid) AS queryids,
                   array_agg(k.event_type) AS event_types, array_agg(k.event) AS events, array_agg(k.blocker) AS blockers,
                   array_agg(k.ms::real) AS wait_ms
              FROM (SELECT r.stretch, r.backend_type, r.datid, r.datname, r.usename, r.application_name, r.queryid,
                           r.event_type, r.event, r.blocker, r.ms
                      FROM ranked r WHERE r.place <= $1 AND NOT r.rest
                     UNION ALL
                    SELECT r.stretch, 'other', NULL, NULL, NULL, NULL, NULL, 'other', 'other', NULL, sum(r.ms)
                      FROM ranked r WHERE r.place > $1 OR r.rest GROUP BY r.stretch
                     ORDER BY stretch, event_type, event, backend_type, datname, usename, application_name, queryid) k
             GROUP BY k.stretch),
        counts AS (
            SELECT s.stretch, array_agg(s.value ORDER BY s.n) AS counters
              FROM (SELECT m.stretch, c.n, CASE WHEN c.n BETWEEN 50 AND 52 THEN max(c.value) ELSE sum(c.value) END AS value
                      FROM minutes m, unnest(m.counters) WITH ORDINALITY c(value, n)
                     GROUP BY 1, 2) s
             GROUP BY 1)
        SELECT h.at, h.period_s, h.rounds, h.node, h.cluster, h.database, c.counters,
               coalesce(a.backend_types, '{}'), coalesce(a.datids, '{}'), coalesce(a.datnames, '{}'), coalesce(a.usenames, '{}'),
               coalesce(a.application_names, '{}'), coalesce(a.queryids, '{}'), coalesce(a.event_types, '{}'),
               coalesce(a.events, '{}'), coalesce(a.blockers, '{}'), coalesce(a.wait_ms, '{}')
          FROM (SELECT m.stretch, min(m.at) AS at,
                       extract(epoch FROM max(m.at + make_interval(secs => m.period_s)) - min(m.at))::double precision AS period_s,
                       sum(m.rounds)::integer AS rounds,
                       min(m.node) AS node, min(m.cluster) AS cluster, min(m.database) AS database
                  FROM minutes m GROUP BY m.stretch) h
          JOIN counts c USING (stretch)
          LEFT JOIN arrays a USING (stretch)$q$, hours, minutes) USING current_setting('pgscale.archive_top')::integer;
    PERFORM pgscale.archive_drop(minutes);
    EXECUTE format('ALTER TABLE pgscale.archive_minute ATTACH PARTITION pgscale.%I %s', hours, bound);
END
$$;
COMMENT ON FUNCTION pgscale.archive_roll_up(text) IS
'puts a partition of hours in the place of one of minutes; for the archive''s worker';

CREATE FUNCTION pgscale.archive_drop(partition text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                    WHERE i.inhparent IN ('pgscale.archive_minute'::regclass, 'pgscale.archive_query'::regclass)
                      AND c.relnamespace = 'pgscale'::regnamespace AND c.relname = partition) THEN
        RAISE EXCEPTION 'there is no such partition' USING ERRCODE = 'invalid_parameter_value',
              HINT = 'The archive''s worker drops what is too old: see pgscale.archive_retention.';
    END IF;
    IF EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = format('pgscale.%I', partition)::regclass
                AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e') THEN
        EXECUTE format('ALTER EXTENSION pgscale DROP TABLE pgscale.%I', partition);
    END IF;
    EXECUTE format('DROP TABLE pgscale.%I', partition);
END
$$;
COMMENT ON FUNCTION pgscale.archive_drop(text) IS
'drops a partition, which belongs to the extension or not; for the archive''s worker';

-- One partition at a time, because it takes the strongest lock of its parent for a moment. While others have a lock of either, it
-- does not queue for that, because all who read the archive then would queue behind it.
CREATE FUNCTION pgscale.archive_upkeep(detail integer, retention integer)
RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    old record;
BEGIN
    PERFORM pgscale.archive_partition('archive_minute'::text, today + 1);
    PERFORM pgscale.archive_partition('archive_query'::text, today + 1);
    SELECT p.* INTO old
      FROM (SELECT c.oid, c.relname::text AS name, i.inhparent AS parent, today - to_date(right(c.relname, 8), 'YYYYMMDD') AS days
              FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
             WHERE i.inhparent IN ('pgscale.archive_minute'::regclass, 'pgscale.archive_query'::regclass)
               AND c.relnamespace = 'pgscale'::regnamespace AND c.relname ~ '^archive_(minute|hour|query)_[0-9]{8}$') p
     WHERE p.days > retention OR (p.days > detail AND p.name ~ '^archive_minute_')
     ORDER BY p.days > retention DESC, p.days DESC, p.name LIMIT 1;
    IF NOT FOUND THEN
        RETURN 'nothing';
    END IF;
    -- a prepared transaction has no pid
    IF EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
                WHERE l.relation IN (old.oid, old.parent) AND d.datname = current_database() AND l.pid IS DISTINCT FROM pg_backend_pid()) THEN
        RETURN 'hindered';
    END IF;
    SET LOCAL lock_timeout = '10ms';
    IF old.days > retention THEN
        PERFORM pgscale.archive_drop(old.name);
        DELETE FROM pgscale.archive_change c WHERE c.at < today - retention;
        RETURN 'dropped';
    END IF;
    PERFORM pgscale.archive_roll_up(old.name);
    RETURN 'rolled up';
EXCEPTION
    WHEN lock_not_available THEN
        RETURN 'hindered';
END
$$;
COMMENT ON FUNCTION pgscale.archive_upkeep(integer, integer) IS
'makes tomorrow''s partitions, drops one that is too old or rolls one up, unless a lock hinders it; for the archive''s worker';

---- sweeper

CREATE FUNCTION pgscale.sweeper_stats(
    OUT worker integer, OUT writers integer, OUT mode text, OUT state text, OUT reason text,
    OUT state_change timestamptz,
    OUT buffers integer, OUT low_watermark integer, OUT high_watermark integer, OUT ready integer,
    OUT ticks bigint, OUT scanned bigint, OUT decremented bigint,
    OUT supplied_clean bigint, OUT supplied_written bigint,
    OUT consumed bigint, OUT reused bigint, OUT queued bigint, OUT starved bigint,
    OUT runs bigint, OUT runs_by_pages bigint[],
    OUT written bigint, OUT neighbours bigint,
    OUT skipped_pinned bigint, OUT skipped_locked bigint,
    OUT skipped_wal bigint, OUT skipped_changed bigint,
    OUT write_ms double precision,
    OUT writeback_calls bigint, OUT writeback_ms double precision,
    OUT wal_flushes bigint, OUT errors bigint, OUT backend_writes bigint,
    OUT cpu_ms double precision, OUT writer_cpu_ms double precision,
    OUT stats_reset timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_sweeper_stats'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale.sweeper_stats() IS
'one row a sweeper: what it does and why, what it supplied and wrote, and what it cost';

CREATE VIEW pgscale.sweeper_stats AS
    SELECT worker, mode, state, ready, consumed, starved, written, runs, round(write_ms * 10) / 10 AS write_ms,
           backend_writes, writers, buffers, low_watermark, high_watermark, ticks, scanned, decremented,
           supplied_clean, supplied_written, reused, queued, neighbours, skipped_pinned, skipped_locked,
           skipped_wal, skipped_changed, writeback_calls, round(writeback_ms * 10) / 10 AS writeback_ms,
           wal_flushes, errors, round(cpu_ms * 10) / 10 AS cpu_ms,
           round(writer_cpu_ms * 10) / 10 AS writer_cpu_ms, runs_by_pages, state_change, stats_reset, reason
      FROM pgscale.sweeper_stats();
COMMENT ON VIEW pgscale.sweeper_stats IS
'one row a sweeper: what it does and why, what it supplied and wrote, and what it cost';
COMMENT ON COLUMN pgscale.sweeper_stats.worker IS
'number of the sweeper';
COMMENT ON COLUMN pgscale.sweeper_stats.mode IS
'freelist or ahead';
COMMENT ON COLUMN pgscale.sweeper_stats.state IS
'off, warming up, watching or working';
COMMENT ON COLUMN pgscale.sweeper_stats.ready IS
'number of clean buffers at hand now, an estimate';
COMMENT ON COLUMN pgscale.sweeper_stats.consumed IS
'number of ready buffers that backends took';
COMMENT ON COLUMN pgscale.sweeper_stats.starved IS
'number of ticks at work that found no buffer ready';
COMMENT ON COLUMN pgscale.sweeper_stats.written IS
'number of pages written';
COMMENT ON COLUMN pgscale.sweeper_stats.runs IS
'number of runs of neighbouring pages written';
COMMENT ON COLUMN pgscale.sweeper_stats.write_ms IS
'time that all writers together spent in writes, in milliseconds';
COMMENT ON COLUMN pgscale.sweeper_stats.backend_writes IS
'number of pages that backends and recovery wrote themselves, on the whole server';
COMMENT ON COLUMN pgscale.sweeper_stats.writers IS
'number of writers that it has now';
COMMENT ON COLUMN pgscale.sweeper_stats.buffers IS
'number of buffers that it is responsible for';
COMMENT ON COLUMN pgscale.sweeper_stats.low_watermark IS
'number of ready buffers below which it refills; NULL while it is off';
COMMENT ON COLUMN pgscale.sweeper_stats.high_watermark IS
'number of ready buffers up to which it refills; NULL while it is off';
COMMENT ON COLUMN pgscale.sweeper_stats.ticks IS
'number of rounds';
COMMENT ON COLUMN pgscale.sweeper_stats.scanned IS
'number of buffers that its hand passed';
COMMENT ON COLUMN pgscale.sweeper_stats.decremented IS
'number of usage counts that it decremented';
COMMENT ON COLUMN pgscale.sweeper_stats.supplied_clean IS
'number of buffers made ready as they were';
COMMENT ON COLUMN pgscale.sweeper_stats.supplied_written IS
'number of buffers made ready after a write';
COMMENT ON COLUMN pgscale.sweeper_stats.reused IS
'number of ready buffers that were used again for their old page';
COMMENT ON COLUMN pgscale.sweeper_stats.queued IS
'number of dirty victims that were collected';
COMMENT ON COLUMN pgscale.sweeper_stats.neighbours IS
'number of pages written that were not victims themselves';
COMMENT ON COLUMN pgscale.sweeper_stats.skipped_pinned IS
'number of pages left out because a process waits for the only pin';
COMMENT ON COLUMN pgscale.sweeper_stats.skipped_locked IS
'number of pages left out because they were locked or in I/O';
COMMENT ON COLUMN pgscale.sweeper_stats.skipped_wal IS
'number of pages left out because their WAL was not on disk';
COMMENT ON COLUMN pgscale.sweeper_stats.skipped_changed IS
'number of pages left out because they were clean or gone meanwhile';
COMMENT ON COLUMN pgscale.sweeper_stats.writeback_calls IS
'number of requests to the kernel to start writing a run';
COMMENT ON COLUMN pgscale.sweeper_stats.writeback_ms IS
'time spent in these requests, in milliseconds';
COMMENT ON COLUMN pgscale.sweeper_stats.wal_flushes IS
'number of WAL flushes for pages that had been left out';
COMMENT ON COLUMN pgscale.sweeper_stats.errors IS
'number of rounds that ended in an error, which the server log has';
COMMENT ON COLUMN pgscale.sweeper_stats.cpu_ms IS
'CPU time of the sweeper, in milliseconds';
COMMENT ON COLUMN pgscale.sweeper_stats.writer_cpu_ms IS
'CPU time of its writers, in milliseconds';
COMMENT ON COLUMN pgscale.sweeper_stats.runs_by_pages IS
'number of runs of 1, 2, up to 4, 8, 16, 32, 64 and more pages';
COMMENT ON COLUMN pgscale.sweeper_stats.state_change IS
'time when state or reason last changed; NULL if it was never on';
COMMENT ON COLUMN pgscale.sweeper_stats.stats_reset IS
'time of the latest reset';
COMMENT ON COLUMN pgscale.sweeper_stats.reason IS
'why it is in that state, in one sentence';

CREATE FUNCTION pgscale.sweeper_reset()
RETURNS void
AS 'MODULE_PATHNAME', 'pgscale_sweeper_reset'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.sweeper_reset() IS
'sets the counts of pgscale.sweeper_stats to zero';

---- metrics

-- What monitoring systems scrape. Each row is computed of what a feature shows anyway; nothing here looks at a disk, at all
-- buffers or at each relation, and no label has values without a bound.
CREATE FUNCTION pgscale.metrics(
    feature text DEFAULT NULL,
    OUT name text, OUT type text, OUT help text, OUT labels jsonb, OUT value double precision)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 250
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
AS $$
#variable_conflict use_column
DECLARE
    features CONSTANT text[] := '{health,fleet,sampler,blockers,archive,sweeper,buffer_usage,writeback,relocation,tuning,scalability,numa}';
    page CONSTANT float8 := current_setting('block_size');
BEGIN
    IF metrics.feature <> ALL (features) THEN
        RAISE invalid_parameter_value USING MESSAGE = format('there are no metrics of a feature named "%s"', metrics.feature),
            HINT = format('Features with metrics are %s; NULL stands for all.', array_to_string(features, ', '));
    END IF;

    IF coalesce(metrics.feature, 'health') = 'health' THEN
        RETURN QUERY
        SELECT 'pgscale_health', 'gauge', 'Whether a feature is in this state: 1 for one state of each feature, 0 for the others.',
               jsonb_build_object('feature', h.feature, 'state', s.state), (h.state = s.state)::integer::float8
          FROM pgscale.health() h
          CROSS JOIN unnest('{off,starting,idle,working,standing down,broken}'::text[]) s(state);
    END IF;

    IF coalesce(metrics.feature, 'fleet') = 'fleet' THEN
        RETURN QUERY
        SELECT m.*
          FROM pgscale.node_identity() n
          CROSS JOIN LATERAL (VALUES
            ('pgscale_node_info', 'gauge', 'Which server this is; always 1.',
             jsonb_build_object('node', n.node, 'system_identifier', n.system_identifier::text, 'role', n.role), 1::float8),
            ('pgscale_node_lag_seconds', 'gauge', 'How far a standby is behind; absent on a primary.', '{}', n.lag_s)
          ) m(name, type, help, labels, value)
         WHERE m.value IS NOT NULL;
    END IF;

    IF coalesce(metrics.feature, 'sampler') = 'sampler' THEN
        RETURN QUERY
        SELECT 'pgscale_wait_seconds_total', 'counter',
               'Time in a wait event, idle ones left out, of all processes of a type. Its rate is the average number of them in it.',
               jsonb_build_object('backend_type', w.backend_type, 'event_type', w.event_type, 'event', w.event), sum(w.wait_ms) / 1e3
          -- lock tranches of one name are one series
          FROM pgscale.wait_totals() w GROUP BY w.backend_type, w.event_type, w.event
         ORDER BY w.backend_type, w.event_type, w.event;

        RETURN QUERY
        SELECT m.*
          -- sums of whole nanoseconds: a counter must not fall by an error of rounding
          FROM (SELECT *, round(coalesce(s.lateness_mean_us * s.ticks, 0) * 1e3) / 1e9 AS lateness,
                       round(coalesce(s.tick_mean_us * s.ticks, 0) * 1e3) / 1e9 AS ticking FROM pgscale.sampler_stats() s) s
          CROSS JOIN LATERAL (
            -- the last class of lateness has no upper end
            SELECT 'pgscale_sampler_lateness_seconds_bucket', 'histogram', 'How late the sampler''s ticks were.',
                   jsonb_build_object('le', CASE WHEN c.class < count(*) OVER () THEN (2 ^ (c.class - 1) / 1e6)::text ELSE '+Inf' END),
                   sum(c.ticks) OVER (ORDER BY c.class)::float8
              FROM unnest(s.lateness_classes) WITH ORDINALITY c(ticks, class)
            UNION ALL VALUES
            ('pgscale_sampler_lateness_seconds_sum', 'histogram', 'How late the sampler''s ticks were.', '{}'::jsonb, s.lateness),
            ('pgscale_sampler_lateness_seconds_count', 'histogram', 'How late the sampler''s ticks were.', '{}', s.ticks),
            ('pgscale_sampler_ticks_total', 'counter', 'Ticks of the sampler.', '{}', s.ticks),
            ('pgscale_sampler_missed_ticks_total', 'counter', 'Ticks that were due and skipped.', '{}', s.missed_ticks),
            ('pgscale_sampler_observed_seconds_total', 'counter', 'Time that all ticks stand for.', '{}', s.observed_ms / 1e3),
            ('pgscale_sampler_tick_seconds_total', 'counter', 'Time spent in ticks.', '{}', s.ticking),
            ('pgscale_sampler_cpu_seconds_total', 'counter', 'CPU time of the sampler.', '{}', s.cpu_ms / 1e3),
            ('pgscale_sampler_period_seconds', 'gauge', 'Time between two ticks; 0 if the sampler is off.', '{}', coalesce(s.period_ms, 0) / 1e3),
            ('pgscale_sampler_profile_entries', 'gauge', 'Entries of the wait profile in use.', '{}', s.entries),
            ('pgscale_sampler_profile_evictions_total', 'counter', 'Entries of the wait profile that were folded into others.', '{}', s.evictions)
          ) m(name, type, help, labels, value);
    END IF;

    IF coalesce(metrics.feature, 'blockers') = 'blockers' THEN
        RETURN QUERY
        SELECT m.*
          FROM (SELECT count(DISTINCT l.waiting_pid) AS waiting, count(*) FILTER (WHERE l.depth = 0) AS roots,
                       coalesce(max(l.waiters), 0) AS most, coalesce(max(l.waited_ms), 0) / 1e3 AS longest
                  FROM pgscale.lock_waits() l) l
          CROSS JOIN LATERAL (VALUES
            ('pgscale_blockers_waiting_processes', 'gauge', 'Processes that wait for a lock now.', '{}'::jsonb, l.waiting::float8),
            ('pgscale_blockers_roots', 'gauge', 'Transactions that others wait for and that wait for none.', '{}', l.roots),
            ('pgscale_blockers_most_waiters', 'gauge', 'Transactions behind the one that most wait for.', '{}', l.most),
            ('pgscale_blockers_longest_wait_seconds', 'gauge', 'How long the longest wait for a lock has lasted.', '{}', l.longest)
          ) m(name, type, help, labels, value);
    END IF;

    IF coalesce(metrics.feature, 'archive') = 'archive' THEN
        RETURN QUERY
        SELECT m.*
          FROM (SELECT max(extract(epoch FROM a.at) + a.period_s)::float8 AS last, sum(a.rounds)::float8 AS rounds
                  FROM pgscale.archive_minutes a WHERE a.at > now() - interval '1 hour') a
          CROSS JOIN LATERAL (VALUES
            ('pgscale_archive_last_timestamp_seconds', 'gauge', 'End of the latest minute of the archive in this database; absent if that is over an hour ago.', '{}'::jsonb, a.last),
            ('pgscale_archive_rounds', 'gauge', 'Minutes of the last hour that the archive in this database has.', '{}', a.rounds)
          ) m(name, type, help, labels, value)
         WHERE m.value IS NOT NULL;
    END IF;

    IF coalesce(metrics.feature, 'sweeper') = 'sweeper' THEN
        RETURN QUERY
        WITH s AS MATERIALIZED (SELECT * FROM pgscale.sweeper_stats()),
        runs AS (
            SELECT r.class, sum(sum(r.runs)) OVER (ORDER BY r.class)::float8 AS runs, count(*) OVER () AS classes
              FROM s CROSS JOIN unnest(s.runs_by_pages) WITH ORDINALITY r(runs, class) GROUP BY r.class)
        SELECT 'pgscale_sweeper_run_pages_bucket', 'histogram', 'Pages of a run of neighbours that the sweepers wrote.',
               jsonb_build_object('le', CASE WHEN r.class < r.classes THEN (2 ^ (r.class - 1))::text ELSE '+Inf' END), r.runs
          FROM runs r
        UNION ALL
        SELECT m.*
          FROM (SELECT sum(written) AS written, sum(runs) AS runs, sum(ready) AS ready, sum(ticks) AS ticks, sum(scanned) AS scanned,
                       sum(supplied_clean) AS clean, sum(supplied_written) AS supplied, sum(consumed) AS consumed,
                       sum(reused) AS reused, sum(starved) AS starved, sum(write_ms) / 1e3 AS write,
                       sum(writeback_ms) / 1e3 AS writeback, sum(wal_flushes) AS flushes, sum(errors) AS errors,
                       sum(cpu_ms + writer_cpu_ms) / 1e3 AS cpu, max(backend_writes) AS backends FROM s) s
          CROSS JOIN LATERAL (VALUES
            ('pgscale_sweeper_run_pages_sum', 'histogram', 'Pages of a run of neighbours that the sweepers wrote.', '{}'::jsonb, s.written::float8),
            ('pgscale_sweeper_run_pages_count', 'histogram', 'Pages of a run of neighbours that the sweepers wrote.', '{}', s.runs),
            ('pgscale_sweeper_ready_bytes', 'gauge', 'Size of the clean buffers at hand, an estimate.', '{}', s.ready * page),
            ('pgscale_sweeper_ticks_total', 'counter', 'Rounds of the sweepers.', '{}', s.ticks),
            ('pgscale_sweeper_starved_ticks_total', 'counter', 'Rounds at work that found no buffer ready.', '{}', s.starved),
            ('pgscale_sweeper_scanned_buffers_total', 'counter', 'Buffers that the sweepers'' hands passed.', '{}', s.scanned),
            ('pgscale_sweeper_supplied_buffers_total', 'counter', 'Buffers made ready, as they were or after a write.', '{"kind": "clean"}', s.clean),
            ('pgscale_sweeper_supplied_buffers_total', 'counter', 'Buffers made ready, as they were or after a write.', '{"kind": "written"}', s.supplied),
            ('pgscale_sweeper_consumed_buffers_total', 'counter', 'Ready buffers that backends took.', '{}', s.consumed),
            ('pgscale_sweeper_reused_buffers_total', 'counter', 'Ready buffers that were used again for their old page.', '{}', s.reused),
            ('pgscale_sweeper_written_bytes_total', 'counter', 'Size of the pages that the sweepers wrote.', '{}', s.written * page),
            ('pgscale_sweeper_write_seconds_total', 'counter', 'Time that all writers together spent in writes.', '{}', s.write),
            ('pgscale_sweeper_writeback_seconds_total', 'counter', 'Time spent in requests to the kernel to start writing.', '{}', s.writeback),
            ('pgscale_sweeper_wal_flushes_total', 'counter', 'WAL flushes for pages that had been left out.', '{}', s.flushes),
            ('pgscale_sweeper_errors_total', 'counter', 'Rounds that ended in an error.', '{}', s.errors),
            ('pgscale_sweeper_cpu_seconds_total', 'counter', 'CPU time of the sweepers and their writers.', '{}', s.cpu),
            ('pgscale_sweeper_backend_written_bytes_total', 'counter', 'Size of the pages that backends and recovery wrote themselves.', '{}', s.backends * page)
          ) m(name, type, help, labels, value)
         WHERE m.value IS NOT NULL;
    END IF;

    IF coalesce(metrics.feature, 'buffer_usage') = 'buffer_usage' THEN
        RETURN QUERY
        WITH b AS MATERIALIZED (SELECT * FROM pgscale.buffer_usage_sample(4096))
        SELECT 'pgscale_buffer_usage_bytes', 'gauge', 'Size of the shared buffers with a usage count, estimated from 4096 of them.',
               jsonb_build_object('usage_count', coalesce(b.usage_count::text, 'none')), b.buffers * page
          FROM b
        UNION ALL
        SELECT 'pgscale_buffer_usage_dirty_bytes', 'gauge', 'Size of the shared buffers that must be written, estimated from 4096 of them.',
               '{}', sum(b.dirty)::float8 * page
          FROM b
        UNION ALL
        SELECT 'pgscale_buffer_usage_pinned_bytes', 'gauge', 'Size of the shared buffers in use at this moment, estimated from 4096 of them.',
               '{}', sum(b.pinned)::float8 * page
          FROM b;
    END IF;

    IF coalesce(metrics.feature, 'writeback') = 'writeback' THEN
        RETURN QUERY
        SELECT m.*
          FROM pgscale.writeback_stats() w
          CROSS JOIN LATERAL (VALUES
            ('pgscale_writeback_cluster_dirty_bytes', 'gauge', 'What the server has written and the kernel has not, as far as known.', '{}'::jsonb, w.cluster_dirty_bytes::float8),
            ('pgscale_writeback_cap_bytes', 'gauge', 'Cap in force on what the server has written and the kernel has not.', '{}', w.cap_bytes),
            ('pgscale_writeback_window_bytes', 'gauge', 'Most bytes that may be on their way to the disk by request.', '{}', w.window_bytes),
            ('pgscale_writeback_written_bytes_total', 'counter', 'Size of the writes that were seen in the buffers.', '{}', w.written_bytes),
            ('pgscale_writeback_found_bytes_total', 'counter', 'Size of the writes that were found in files.', '{}', w.found_bytes),
            ('pgscale_writeback_requests_total', 'counter', 'Requests to the kernel to write.', '{}', w.requests),
            ('pgscale_writeback_requested_bytes_total', 'counter', 'Size of the requests to the kernel to write.', '{}', w.requested_bytes),
            ('pgscale_writeback_taken_bytes_total', 'counter', 'Bytes that reached the disk without a request.', '{}', w.taken_bytes),
            ('pgscale_writeback_request_seconds_total', 'counter', 'Time spent in requests to the kernel to write.', '{}', w.request_ms / 1e3),
            ('pgscale_writeback_rounds_total', 'counter', 'Rounds of the writeback worker.', '{}', w.rounds),
            ('pgscale_writeback_backed_off_rounds_total', 'counter', 'Rounds that asked for less because reads were slow.', '{}', w.backed_off),
            ('pgscale_writeback_errors_total', 'counter', 'Rounds that ended in an error.', '{}', w.errors),
            ('pgscale_writeback_cpu_seconds_total', 'counter', 'CPU time of the writeback worker.', '{}', w.cpu_ms / 1e3),
            ('pgscale_writeback_machine_dirty_bytes', 'gauge', 'Dirty in the memory of the whole machine.', '{}', w.dirty_bytes),
            ('pgscale_writeback_machine_writeback_bytes', 'gauge', 'Of the whole machine: on its way to a disk.', '{}', w.writeback_bytes),
            ('pgscale_writeback_machine_background_threshold_bytes', 'gauge', 'Dirty bytes from which on the kernel starts to write.', '{}', w.background_threshold_bytes),
            ('pgscale_writeback_machine_threshold_bytes', 'gauge', 'Dirty bytes from which on the kernel makes writers wait.', '{}', w.threshold_bytes),
            ('pgscale_writeback_machine_io_pressure_ratio', 'gauge', 'Fraction of the last 10 s in which some process waited for I/O.', '{}', w.io_pressure_fraction)
          ) m(name, type, help, labels, value)
         WHERE m.value IS NOT NULL;
    END IF;

    IF coalesce(metrics.feature, 'relocation') = 'relocation' THEN
        RETURN QUERY
        SELECT 'pgscale_relocation_jobs', 'gauge', 'Relocation jobs of this database by state.', jsonb_build_object('state', s.state),
               count(j.state)::float8
          FROM unnest('{queued,waiting,running,verifying,done,failed,cancelled,lost,copied}'::text[]) WITH ORDINALITY s(state, place)
          LEFT JOIN pgscale.relocation_jobs j ON j.state = s.state
         GROUP BY s.state, s.place ORDER BY s.place;
    END IF;

    IF coalesce(metrics.feature, 'tuning') = 'tuning' THEN
        RETURN QUERY
        SELECT 'pgscale_tuning_advice', 'gauge', 'Pieces of advice now, by confidence.', jsonb_build_object('confidence', c.confidence),
               count(f.rule)::float8
          FROM unnest('{high,medium,low}'::text[]) WITH ORDINALITY c(confidence, place)
          LEFT JOIN pgscale.tuning_findings() f ON f.confidence = c.confidence AND f.verdict = 'advises'
         GROUP BY c.confidence, c.place ORDER BY c.place;
    END IF;

    IF coalesce(metrics.feature, 'scalability') = 'scalability' THEN
        RETURN QUERY
        SELECT m.*
          FROM pgscale.scalability() s
          CROSS JOIN LATERAL (VALUES
            ('pgscale_scalability_concurrency', 'gauge', 'Active sessions in the latest bucket.', '{}'::jsonb, s.concurrency),
            ('pgscale_scalability_throughput', 'gauge', 'Transactions a second in the latest bucket.', '{}', s.throughput),
            ('pgscale_scalability_peak_concurrency', 'gauge', 'Active sessions at which throughput is highest; absent while that is unknown.', '{}', s.peak_concurrency),
            ('pgscale_scalability_peak_throughput', 'gauge', 'Transactions a second at the peak; absent while that is unknown.', '{}', s.peak_throughput),
            ('pgscale_scalability_lambda', 'gauge', 'Transactions a second of one session.', '{}', s.lambda),
            ('pgscale_scalability_sigma', 'gauge', 'Contention: the fraction of the work that only one session can do at a time.', '{}', s.sigma),
            ('pgscale_scalability_kappa', 'gauge', 'Coherency: the cost of each pair of sessions.', '{}', s.kappa),
            ('pgscale_scalability_r2', 'gauge', 'Fraction of the variance of throughput that the law explains.', '{}', s.r2),
            ('pgscale_scalability_buckets_total', 'counter', 'Measurements used.', '{}', s.buckets),
            ('pgscale_scalability_discarded_buckets_total', 'counter', 'Measurements not used.', '{}', s.discarded)
          ) m(name, type, help, labels, value)
         WHERE m.value IS NOT NULL;
    END IF;

    IF coalesce(metrics.feature, 'numa') = 'numa' THEN
        BEGIN
            RETURN QUERY
            SELECT m.*
              FROM (SELECT * FROM pgscale.numa_nodes() ORDER BY node LIMIT 64) n
              CROSS JOIN LATERAL (VALUES
                ('pgscale_numa_memory_bytes', 'gauge', 'Memory of a NUMA node.', jsonb_build_object('node', n.node::text), n.memory_bytes::float8),
                ('pgscale_numa_free_bytes', 'gauge', 'Free memory of a NUMA node, without the page cache.', jsonb_build_object('node', n.node::text), n.free_bytes)
              ) m(name, type, help, labels, value)
             WHERE m.value IS NOT NULL;
        EXCEPTION WHEN feature_not_supported THEN
            -- not on this machine, as health says
            NULL;
        END;
    END IF;
END
$$;
COMMENT ON FUNCTION pgscale.metrics(text) IS
'what monitoring systems scrape, of one feature or of all: counters that fall at a reset or restart alone, gauges and histograms, in seconds and bytes; at most 1000 rows, and no look at a disk';

---- buffer_usage

CREATE FUNCTION pgscale.buffer_usage(
    OUT usage_count integer, OUT buffers bigint, OUT fraction double precision,
    OUT dirty bigint, OUT pinned bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_buffer_usage'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 7;
COMMENT ON FUNCTION pgscale.buffer_usage() IS
'shared buffers by usage count; NULL for those that hold no page';

CREATE VIEW pgscale.buffer_usage AS
    SELECT usage_count, buffers, round(fraction * 10000) / 10000 AS fraction, dirty, pinned
      FROM pgscale.buffer_usage();
COMMENT ON VIEW pgscale.buffer_usage IS
'shared buffers by usage count; NULL for those that hold no page';
COMMENT ON COLUMN pgscale.buffer_usage.usage_count IS
'usage count of the buffers; NULL for those that hold no page';
COMMENT ON COLUMN pgscale.buffer_usage.buffers IS
'number of buffers with that count';
COMMENT ON COLUMN pgscale.buffer_usage.fraction IS
'fraction of all buffers, 0 to 1';
COMMENT ON COLUMN pgscale.buffer_usage.dirty IS
'number of these buffers that must be written';
COMMENT ON COLUMN pgscale.buffer_usage.pinned IS
'number of these buffers in use at this moment';

CREATE FUNCTION pgscale.buffer_usage_sample(
    n integer DEFAULT 65536,
    OUT usage_count integer, OUT buffers bigint, OUT fraction double precision,
    OUT fraction_low double precision, OUT fraction_high double precision,
    OUT dirty bigint, OUT pinned bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_buffer_usage_sample'
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 7;
COMMENT ON FUNCTION pgscale.buffer_usage_sample(integer) IS
'shared buffers by usage count, estimated from n random ones, with the 95 % interval of each fraction';

CREATE FUNCTION pgscale.relation_buffers(
    OUT datid oid, OUT relation regclass, OUT relfilenode oid, OUT reltablespace oid,
    OUT fork text, OUT buffers bigint, OUT buffers_bytes bigint, OUT dirty bigint,
    OUT mean_usage double precision, OUT cached_fraction double precision)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_relation_buffers'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale.relation_buffers() IS
'how much of each relation''s fork is in shared buffers, of all databases';

CREATE VIEW pgscale.relation_buffers AS
    SELECT r.relation, r.fork, r.buffers, r.buffers_bytes, r.dirty,
           round(r.mean_usage * 100) / 100 AS mean_usage,
           round(r.cached_fraction * 1e9) / 1e9 AS cached_fraction, pgscale.foreign_name(d.datname) AS datname, r.datid, r.relfilenode,
           r.reltablespace
      FROM pgscale.relation_buffers() r
      LEFT JOIN pg_database d ON d.oid = r.datid
     ORDER BY r.buffers DESC;
COMMENT ON VIEW pgscale.relation_buffers IS
'how much of each relation''s fork is in shared buffers, of all databases, most first';
COMMENT ON COLUMN pgscale.relation_buffers.relation IS
'the relation; NULL if it is of another database, was just dropped, or belongs to an open transaction';
COMMENT ON COLUMN pgscale.relation_buffers.fork IS
'main, fsm, vm or init';
COMMENT ON COLUMN pgscale.relation_buffers.buffers IS
'number of buffers that hold its pages';
COMMENT ON COLUMN pgscale.relation_buffers.buffers_bytes IS
'size of these buffers';
COMMENT ON COLUMN pgscale.relation_buffers.dirty IS
'number of these buffers that must be written';
COMMENT ON COLUMN pgscale.relation_buffers.mean_usage IS
'mean usage count';
COMMENT ON COLUMN pgscale.relation_buffers.cached_fraction IS
'fraction of the fork that is in shared buffers, 0 to 1; NULL if its size is unknown';
COMMENT ON COLUMN pgscale.relation_buffers.datname IS
'name of the database; NULL for shared catalogs';
COMMENT ON COLUMN pgscale.relation_buffers.datid IS
'OID of the database; 0 for shared catalogs';
COMMENT ON COLUMN pgscale.relation_buffers.relfilenode IS
'filenode number of the relation';
COMMENT ON COLUMN pgscale.relation_buffers.reltablespace IS
'OID of the tablespace';

CREATE FUNCTION pgscale.clock_sweep(
    OUT buffers integer, OUT passes bigint, OUT hand integer,
    OUT stats_reset timestamptz, OUT ticks bigint, OUT allocations bigint,
    OUT ticks_per_allocation double precision, OUT seconds_per_pass double precision,
    OUT unused_fraction double precision, OUT zero_fraction double precision,
    OUT max_fraction double precision, OUT expected_search double precision,
    OUT reason text)
AS 'MODULE_PATHNAME', 'pgscale_clock_sweep'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale.clock_sweep() IS
'what it costs to find a buffer for another page, and whether usage counts still tell which one; no rates without preload';

CREATE VIEW pgscale.clock_sweep AS
    SELECT round(ticks_per_allocation * 100) / 100 AS ticks_per_allocation,
           round(seconds_per_pass * 10) / 10 AS seconds_per_pass,
           round(unused_fraction * 10000) / 10000 AS unused_fraction,
           round(zero_fraction * 10000) / 10000 AS zero_fraction,
           round(max_fraction * 10000) / 10000 AS max_fraction,
           round(expected_search * 100) / 100 AS expected_search, buffers, ticks, allocations, passes, hand,
           stats_reset, reason
      FROM pgscale.clock_sweep();
COMMENT ON VIEW pgscale.clock_sweep IS
'what it costs to find a buffer for another page, and whether usage counts still tell which one; no rates without preload';
COMMENT ON COLUMN pgscale.clock_sweep.ticks_per_allocation IS
'buffers that the clock hand passes for one allocation; NULL without allocations';
COMMENT ON COLUMN pgscale.clock_sweep.seconds_per_pass IS
'time of one pass over all buffers; NULL if the hand stood still';
COMMENT ON COLUMN pgscale.clock_sweep.unused_fraction IS
'fraction of the buffers that hold no page, 0 to 1';
COMMENT ON COLUMN pgscale.clock_sweep.zero_fraction IS
'fraction of the buffers with usage count 0, 0 to 1';
COMMENT ON COLUMN pgscale.clock_sweep.max_fraction IS
'fraction of the buffers with the maximum usage count, 0 to 1';
COMMENT ON COLUMN pgscale.clock_sweep.expected_search IS
'expected number of ticks to the next victim; where there is a freelist (15 to 18), if it is empty';
COMMENT ON COLUMN pgscale.clock_sweep.buffers IS
'number of all buffers';
COMMENT ON COLUMN pgscale.clock_sweep.ticks IS
'number of buffers that the clock hand has passed';
COMMENT ON COLUMN pgscale.clock_sweep.allocations IS
'number of buffers needed for another page, those from a freelist included, those of rings not';
COMMENT ON COLUMN pgscale.clock_sweep.passes IS
'number of completed passes since the server started';
COMMENT ON COLUMN pgscale.clock_sweep.hand IS
'number of the buffer that the clock hand comes to next, from 0';
COMMENT ON COLUMN pgscale.clock_sweep.stats_reset IS
'time when ticks and allocations began to count';
COMMENT ON COLUMN pgscale.clock_sweep.reason IS
'the conclusion, in one sentence';

CREATE FUNCTION pgscale.clock_sweep_reset()
RETURNS void
AS 'MODULE_PATHNAME', 'pgscale_clock_sweep_reset'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.clock_sweep_reset() IS
'has the rates of pgscale.clock_sweep begin anew';

---- os_cache

CREATE FUNCTION pgscale.relation_os_cache(
    relation regclass DEFAULT NULL,
    OUT relation regclass, OUT fork text, OUT size_bytes bigint,
    OUT buffers_bytes bigint, OUT os_cache_bytes bigint, OUT both_bytes bigint,
    OUT dirty_bytes bigint, OUT writeback_bytes bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_relation_os_cache'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale.relation_os_cache(regclass) IS
'one row a fork of a relation, or of all: what shared buffers, the kernel''s cache and both hold, and what the kernel has yet to write, which is an upper bound; takes no lock';

CREATE VIEW pgscale.relation_os_cache AS
    SELECT * FROM pgscale.relation_os_cache(NULL)
     WHERE size_bytes > 0
     ORDER BY os_cache_bytes DESC NULLS LAST;
COMMENT ON VIEW pgscale.relation_os_cache IS
'one row a fork of each relation of this database that is not empty, largest share of the kernel''s cache first: what shared buffers, that cache and both hold, and what the kernel has yet to write, which is an upper bound';
COMMENT ON COLUMN pgscale.relation_os_cache.relation IS
'table, index, TOAST table, materialized view or sequence';
COMMENT ON COLUMN pgscale.relation_os_cache.fork IS
'main, fsm, vm or init';
COMMENT ON COLUMN pgscale.relation_os_cache.size_bytes IS
'size of its files';
COMMENT ON COLUMN pgscale.relation_os_cache.buffers_bytes IS
'size of what shared buffers hold of it';
COMMENT ON COLUMN pgscale.relation_os_cache.os_cache_bytes IS
'size of what the kernel''s page cache holds of it; NULL if the kernel cannot tell';
COMMENT ON COLUMN pgscale.relation_os_cache.both_bytes IS
'size of what both hold, counted page by page';
COMMENT ON COLUMN pgscale.relation_os_cache.dirty_bytes IS
'written to the kernel and not yet on its way to the disk, an upper bound; NULL without cachestat';
COMMENT ON COLUMN pgscale.relation_os_cache.writeback_bytes IS
'on its way to the disk; NULL without cachestat';

CREATE FUNCTION pgscale.os_cache_flush(relation regclass, wait boolean DEFAULT false)
RETURNS bigint
AS 'MODULE_PATHNAME', 'pgscale_os_cache_flush'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.os_cache_flush(regclass, boolean) IS
'writes a relation''s dirty buffers, returns their bytes, and has the kernel begin to write the relation to disk; with wait, returns when it is there';

CREATE FUNCTION pgscale.os_cache_evict(relation regclass)
RETURNS bigint
AS 'MODULE_PATHNAME', 'pgscale_os_cache_evict'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.os_cache_evict(regclass) IS
'drops what is clean of a relation from the kernel''s cache, and returns how many bytes that were; what is dirty stays, and begins to be written';

---- writeback

CREATE FUNCTION pgscale.writeback_stats(
    OUT state text, OUT reason text, OUT state_change timestamptz,
    OUT cluster_dirty_bytes bigint, OUT cap_bytes bigint, OUT peak_dirty_bytes bigint,
    OUT skipped_bytes bigint, OUT redirty_fraction double precision,
    OUT server_bytes_per_s bigint, OUT disk_bytes_per_s bigint, OUT window_bytes bigint,
    OUT written_bytes bigint, OUT found_bytes bigint, OUT unseen_bytes bigint,
    OUT requests bigint, OUT requested_bytes bigint, OUT taken_bytes bigint,
    OUT request_ms double precision, OUT backed_off bigint,
    OUT rounds bigint, OUT errors bigint, OUT cpu_ms double precision, OUT stats_reset timestamptz,
    OUT dirty_bytes bigint, OUT writeback_bytes bigint,
    OUT background_threshold_bytes bigint, OUT threshold_bytes bigint,
    OUT io_pressure_fraction double precision)
AS 'MODULE_PATHNAME', 'pgscale_writeback_stats'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale.writeback_stats() IS
'what the kernel has yet to write, for this cluster and in all, and what is done about it';

CREATE VIEW pgscale.writeback_stats AS
    SELECT state, cluster_dirty_bytes, cap_bytes, peak_dirty_bytes,
           round(redirty_fraction * 10000) / 10000 AS redirty_fraction, server_bytes_per_s, disk_bytes_per_s,
           window_bytes, skipped_bytes, written_bytes, found_bytes, unseen_bytes, requests, requested_bytes,
           taken_bytes, round(request_ms * 10) / 10 AS request_ms, backed_off, rounds, errors,
           round(cpu_ms * 10) / 10 AS cpu_ms, dirty_bytes, writeback_bytes, background_threshold_bytes,
           threshold_bytes, round(io_pressure_fraction * 10000) / 10000 AS io_pressure_fraction, state_change, stats_reset, reason
      FROM pgscale.writeback_stats();
COMMENT ON VIEW pgscale.writeback_stats IS
'what the kernel has yet to write, for this cluster and in all, and what is done about it';
COMMENT ON COLUMN pgscale.writeback_stats.state IS
'off, watching, capping or standing down';
COMMENT ON COLUMN pgscale.writeback_stats.cluster_dirty_bytes IS
'what the server has written and the kernel has not, as far as known';
COMMENT ON COLUMN pgscale.writeback_stats.cap_bytes IS
'cap in force';
COMMENT ON COLUMN pgscale.writeback_stats.peak_dirty_bytes IS
'highest cluster_dirty_bytes since stats_reset';
COMMENT ON COLUMN pgscale.writeback_stats.redirty_fraction IS
'fraction of the writes that hit a page again within 30 s, 0 to 1; NULL with too few writes';
COMMENT ON COLUMN pgscale.writeback_stats.server_bytes_per_s IS
'what the server wrote into the kernel in the last second';
COMMENT ON COLUMN pgscale.writeback_stats.disk_bytes_per_s IS
'what the disk was seen to take in a second';
COMMENT ON COLUMN pgscale.writeback_stats.window_bytes IS
'most bytes that may be in flight now';
COMMENT ON COLUMN pgscale.writeback_stats.skipped_bytes IS
'part of cluster_dirty_bytes that is left alone now because its pages are written again soon';
COMMENT ON COLUMN pgscale.writeback_stats.written_bytes IS
'size of the writes seen in the buffers';
COMMENT ON COLUMN pgscale.writeback_stats.found_bytes IS
'size of the writes found in files';
COMMENT ON COLUMN pgscale.writeback_stats.unseen_bytes IS
'size of the writes for which there was no room';
COMMENT ON COLUMN pgscale.writeback_stats.requests IS
'number of requests to the kernel to write';
COMMENT ON COLUMN pgscale.writeback_stats.requested_bytes IS
'size of these requests';
COMMENT ON COLUMN pgscale.writeback_stats.taken_bytes IS
'bytes that reached the disk without a request';
COMMENT ON COLUMN pgscale.writeback_stats.request_ms IS
'time spent in requests, in milliseconds';
COMMENT ON COLUMN pgscale.writeback_stats.backed_off IS
'number of rounds in which it asked for less because reads were slow';
COMMENT ON COLUMN pgscale.writeback_stats.rounds IS
'number of rounds';
COMMENT ON COLUMN pgscale.writeback_stats.errors IS
'number of rounds that ended in an error, which the server log has';
COMMENT ON COLUMN pgscale.writeback_stats.cpu_ms IS
'CPU time of the worker, in milliseconds';
COMMENT ON COLUMN pgscale.writeback_stats.dirty_bytes IS
'of the whole machine: dirty in memory, an upper bound';
COMMENT ON COLUMN pgscale.writeback_stats.writeback_bytes IS
'of the whole machine: on its way to a disk';
COMMENT ON COLUMN pgscale.writeback_stats.background_threshold_bytes IS
'dirty bytes from which on the kernel starts to write';
COMMENT ON COLUMN pgscale.writeback_stats.threshold_bytes IS
'dirty bytes from which on the kernel makes writers wait';
COMMENT ON COLUMN pgscale.writeback_stats.io_pressure_fraction IS
'fraction of the last 10 s in which some process waited for I/O, 0 to 1; NULL if the kernel does not report it';
COMMENT ON COLUMN pgscale.writeback_stats.state_change IS
'time when state or reason last changed; NULL if it was never on';
COMMENT ON COLUMN pgscale.writeback_stats.stats_reset IS
'time of the latest reset';
COMMENT ON COLUMN pgscale.writeback_stats.reason IS
'why it is in that state, in one sentence';

CREATE FUNCTION pgscale.writeback_reset()
RETURNS void
AS 'MODULE_PATHNAME', 'pgscale_writeback_reset'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.writeback_reset() IS
'sets the counts of pgscale.writeback_stats to zero';

---- relocation

-- Written and read by the library alone; what users see is relocation_jobs.
CREATE TABLE pgscale.relocation_job (
    job bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    cluster bigint NOT NULL,
    database oid NOT NULL,
    kind text NOT NULL,
    relation oid NOT NULL,
    heap oid NOT NULL,
    relation_name text NOT NULL,
    heap_name text NOT NULL,
    source oid NOT NULL,
    target oid NOT NULL,
    source_name name NOT NULL,
    target_name name NOT NULL,
    role oid NOT NULL,
    role_name name NOT NULL,
    amcheck boolean NOT NULL,
    prewarm boolean NOT NULL,
    lock_timeout_ms integer NOT NULL,
    block_ms_predicted double precision,
    bytes bigint NOT NULL,
    bytes_after bigint,
    undo_of bigint,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at timestamptz,
    finished_at timestamptz,
    not_before timestamptz NOT NULL DEFAULT clock_timestamp(),
    state text NOT NULL DEFAULT 'queued',
    cancel boolean NOT NULL DEFAULT false,
    attempts integer NOT NULL DEFAULT 0,
    crashes integer NOT NULL DEFAULT 0,
    pid integer,
    new_index oid,
    before text,
    sqlstate text,
    message text,
    detail text);
CREATE UNIQUE INDEX relocation_job_open ON pgscale.relocation_job (relation) WHERE finished_at IS NULL;
COMMENT ON TABLE pgscale.relocation_job IS
'relocation jobs as the library keeps them; see pgscale.relocation_jobs';
COMMENT ON SEQUENCE pgscale.relocation_job_job_seq IS
'ids of relocation jobs';

CREATE VIEW pgscale.relocation_jobs AS
    SELECT j.job, j.kind, j.relation_name AS relation, j.source_name AS source, j.target_name AS target,
           -- by what everybody may call: whoever may read the view reads it all
           CASE WHEN j.finished_at IS NULL AND
                     (j.database <> (SELECT oid FROM pg_database WHERE datname = current_database()) OR
                      j.cluster <> (SELECT system_identifier FROM pg_control_system())) THEN 'copied'
                ELSE j.state
           END AS state,
           CASE WHEN j.finished_at IS NOT NULL THEN NULL
                WHEN p.blocks_total > 0 THEN round(1000.0::double precision * p.blocks_done / p.blocks_total) / 1000
                WHEN p.tuples_total > 0 THEN round(1000.0::double precision * p.tuples_done / p.tuples_total) / 1000
                WHEN p.lockers_total > 0 THEN round(1000.0::double precision * p.lockers_done / p.lockers_total) / 1000
           END AS done_fraction,
           CASE WHEN j.finished_at IS NULL THEN p.phase END AS phase,
           j.heap_name AS table_name, j.bytes AS size_bytes, j.bytes_after AS size_after_bytes, j.attempts,
           CASE WHEN j.state IN ('queued', 'waiting') THEN j.not_before END AS wait_until,
           j.role_name AS requested_by, j.requested_at, j.started_at, j.finished_at,
           j.block_ms_predicted, j.undo_of, j.sqlstate,
           -- an error's words may hold values of rows
           CASE WHEN j.detail IS NOT NULL AND
                     (pg_has_role(j.role, 'USAGE') OR
                      has_table_privilege(j.heap, 'SELECT') AND NOT row_security_active(j.heap)) THEN j.detail
                ELSE j.message
           END AS message
      FROM pgscale.relocation_job j
      LEFT JOIN pg_stat_progress_create_index p
           ON p.pid = j.pid AND p.datname = current_database()
     ORDER BY j.job;
COMMENT ON VIEW pgscale.relocation_jobs IS
'moves of indexes and tables to other tablespaces, asked for in this database: how far they are or how they ended';
COMMENT ON COLUMN pgscale.relocation_jobs.job IS
'number of the job';
COMMENT ON COLUMN pgscale.relocation_jobs.kind IS
'index or table';
COMMENT ON COLUMN pgscale.relocation_jobs.relation IS
'what is moved, by its name when the job was requested';
COMMENT ON COLUMN pgscale.relocation_jobs.source IS
'tablespace that it is moved from';
COMMENT ON COLUMN pgscale.relocation_jobs.target IS
'tablespace that it is moved to';
COMMENT ON COLUMN pgscale.relocation_jobs.state IS
'queued, waiting, running, verifying, done, failed, cancelled, lost or copied';
COMMENT ON COLUMN pgscale.relocation_jobs.done_fraction IS
'done part of the phase, 0 to 1';
COMMENT ON COLUMN pgscale.relocation_jobs.phase IS
'phase of REINDEX as in pg_stat_progress_create_index';
COMMENT ON COLUMN pgscale.relocation_jobs.table_name IS
'its table, by its name when the job was requested';
COMMENT ON COLUMN pgscale.relocation_jobs.size_bytes IS
'size when the job was requested';
COMMENT ON COLUMN pgscale.relocation_jobs.size_after_bytes IS
'size after the move';
COMMENT ON COLUMN pgscale.relocation_jobs.attempts IS
'number of attempts so far';
COMMENT ON COLUMN pgscale.relocation_jobs.wait_until IS
'time of the next look at a job that waits';
COMMENT ON COLUMN pgscale.relocation_jobs.requested_by IS
'role that requested the job';
COMMENT ON COLUMN pgscale.relocation_jobs.requested_at IS
'time of the request';
COMMENT ON COLUMN pgscale.relocation_jobs.started_at IS
'start of the first attempt';
COMMENT ON COLUMN pgscale.relocation_jobs.finished_at IS
'end of the job';
COMMENT ON COLUMN pgscale.relocation_jobs.block_ms_predicted IS
'for a table: how long all use of it is expected to wait, in milliseconds';
COMMENT ON COLUMN pgscale.relocation_jobs.undo_of IS
'number of the job that this one takes back';
COMMENT ON COLUMN pgscale.relocation_jobs.sqlstate IS
'SQLSTATE of the last attempt''s error';
COMMENT ON COLUMN pgscale.relocation_jobs.message IS
'error of the last attempt, or what the job waits for';

CREATE FUNCTION pgscale.relocate_index(
    index regclass, tablespace name, amcheck boolean DEFAULT false, prewarm boolean DEFAULT false)
RETURNS SETOF bigint
AS 'MODULE_PATHNAME', 'pgscale_relocate_index'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE ROWS 1;
COMMENT ON FUNCTION pgscale.relocate_index(regclass, name, boolean, boolean) IS
'queues the online move of an index, of a partitioned one all leaves, and returns the jobs';

CREATE FUNCTION pgscale.relocate_indexes(
    "table" regclass, tablespace name, amcheck boolean DEFAULT false, prewarm boolean DEFAULT false)
RETURNS SETOF bigint
AS 'MODULE_PATHNAME', 'pgscale_relocate_indexes'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE ROWS 10;
COMMENT ON FUNCTION pgscale.relocate_indexes(regclass, name, boolean, boolean) IS
'queues the online move of all indexes of a table and of its partitions, and returns the jobs';

CREATE FUNCTION pgscale.relocate_all_indexes(
    source name, tablespace name, amcheck boolean DEFAULT false, prewarm boolean DEFAULT false)
RETURNS SETOF bigint
AS 'MODULE_PATHNAME', 'pgscale_relocate_all_indexes'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE ROWS 100;
COMMENT ON FUNCTION pgscale.relocate_all_indexes(name, name, boolean, boolean) IS
'queues the online move of all indexes of this database that are in the source tablespace, and returns the jobs';

CREATE FUNCTION pgscale.relocate_table(
    "table" regclass, tablespace name, mode text DEFAULT 'online', lock_timeout interval DEFAULT '1 s')
RETURNS SETOF bigint
AS 'MODULE_PATHNAME', 'pgscale_relocate_table'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE ROWS 1;
COMMENT ON FUNCTION pgscale.relocate_table(regclass, name, text, interval) IS
'queues the move of a table, of a partitioned one each partition, and returns the jobs; mode lock blocks its use meanwhile, mode online says what to use instead';

CREATE FUNCTION pgscale.relocation_cancel(job bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'pgscale_relocation_cancel'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.relocation_cancel(bigint) IS
'ends a relocation job, and cleans up after it; false if it had ended already';

CREATE FUNCTION pgscale.relocation_undo(job bigint)
RETURNS bigint
AS 'MODULE_PATHNAME', 'pgscale_relocation_undo'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.relocation_undo(bigint) IS
'queues the move back to where a done job has moved it from, and returns the new job';

CREATE PROCEDURE pgscale.relocation_wait(
    job bigint, timeout interval DEFAULT '1 hour', INOUT state text DEFAULT NULL)
AS 'MODULE_PATHNAME', 'pgscale_relocation_wait'
LANGUAGE C;
COMMENT ON PROCEDURE pgscale.relocation_wait(bigint, interval, text) IS
'waits until a relocation job has ended, or for so long, and shows its state';

-- Called by workers, as superusers: why a job on this table should wait with its beginning. REINDEX CONCURRENTLY waits for the
-- transactions that it looks for; a limit of -1 is none.
CREATE FUNCTION pgscale.relocation_obstacle("table" oid, max_age_s integer, max_lag_mb integer)
RETURNS text
LANGUAGE sql STRICT VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(
        (SELECT format('%s has been open for %s', who, date_trunc('second', age))
           FROM (SELECT 'the transaction of process ' || a.pid AS who, clock_timestamp() - a.xact_start AS age
                   FROM pg_stat_activity a
                  WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
                    AND a.backend_type NOT LIKE ALL ('{autovacuum%,pgscale%}')
                    AND a.pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum
                                      UNION ALL
                                      SELECT pid FROM pg_stat_progress_create_index WHERE command LIKE '%CONCURRENTLY')
                    AND (a.backend_xmin IS NOT NULL OR
                         EXISTS (SELECT FROM pg_locks l
                                  WHERE l.pid = a.pid AND l.relation = "table"
                                    AND l.mode NOT IN ('AccessShareLock', 'RowShareLock')))
                 UNION ALL
                 SELECT format('the prepared transaction %L', p.gid), clock_timestamp() - p.prepared
                   FROM pg_prepared_xacts p
                  WHERE p.database = current_database()
                    AND EXISTS (SELECT FROM pg_locks x JOIN pg_locks l USING (virtualtransaction)
                                 WHERE x.pid IS NULL AND x.transactionid = p.transaction
                                   AND l.pid IS NULL AND l.relation = "table"
                                   AND l.mode NOT IN ('AccessShareLock', 'RowShareLock'))) t
          WHERE max_age_s >= 0 AND age > max_age_s * interval '1 second'
          ORDER BY age DESC
          LIMIT 1),
        (SELECT format('standby %s is %s behind', application_name, pg_size_pretty(lag))
           FROM (SELECT application_name, pg_current_wal_lsn() - replay_lsn AS lag FROM pg_stat_replication) t
          WHERE max_lag_mb >= 0 AND lag > max_lag_mb * 1024::bigint * 1024
          ORDER BY lag DESC
          LIMIT 1))
$$;
COMMENT ON FUNCTION pgscale.relocation_obstacle(oid, integer, integer) IS
'internal, for relocation: the oldest transaction or the standby furthest behind that a job on a table should wait for';

-- Called by workers before a move, as who asked for it, and after it: all that makes an index what it is, but where it lies. The
-- text is the same on both sides whatever a major has in it.
CREATE FUNCTION pgscale.relocation_describe_index(index oid)
RETURNS text
LANGUAGE sql STRICT STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT concat_ws(E'\n',
               pg_get_indexdef(i.indexrelid),
               format('owner %s, persistence %s, options %s, parent %s', c.relowner, c.relpersistence, c.reloptions,
                      (SELECT inhparent FROM pg_inherits WHERE inhrelid = i.indexrelid)),
               format('primary %s, immediate %s, clustered %s, replica identity %s',
                      i.indisprimary, i.indimmediate, i.indisclustered, i.indisreplident),
               'comment ' || obj_description(i.indexrelid, 'pg_class'),
               (SELECT format('constraint %s %s %s %s', k.oid, k.conname, pg_get_constraintdef(k.oid),
                              obj_description(k.oid, 'pg_constraint'))
                  FROM pg_constraint k
                 WHERE k.conindid = i.indexrelid AND k.conrelid = i.indrelid AND k.contype IN ('p', 'u', 'x')),
               'used by ' || (SELECT string_agg(k.oid::text, ' ' ORDER BY k.oid) FROM pg_constraint k
                               WHERE k.conindid = i.indexrelid AND k.contype = 'f'),
               'statistics targets ' || (SELECT string_agg(a.attnum || ':' || a.attstattarget, ' ' ORDER BY a.attnum)
                                           FROM pg_attribute a WHERE a.attrelid = i.indexrelid),
               'depends on ' || (SELECT string_agg(concat_ws('/', refclassid, refobjid, refobjsubid, deptype), ' '
                                                   ORDER BY refclassid, refobjid, refobjsubid, deptype)
                                   FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = i.indexrelid),
               'needed by ' || (SELECT string_agg(concat_ws('/', classid, objid, objsubid, deptype), ' '
                                                  ORDER BY classid, objid, objsubid, deptype)
                                  FROM pg_depend WHERE refclassid = 'pg_class'::regclass AND refobjid = i.indexrelid))
      FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
     WHERE i.indexrelid = index
$$;
COMMENT ON FUNCTION pgscale.relocation_describe_index(oid) IS
'internal, for relocation: definition, constraint, statistics targets, comments, options, marks, parent and dependencies of an index as one text';

---- relocation plan

CREATE FUNCTION pgscale.tablespace_latency(
    tablespace name DEFAULT NULL,
    OUT tablespace name, OUT reads integer,
    OUT read_ms double precision, OUT max_ms double precision, OUT spread double precision,
    OUT sequential_bytes_per_s bigint, OUT random_page_cost double precision,
    OUT device text, OUT reason text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_tablespace_latency'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.tablespace_latency(name) IS
'what the device below a tablespace, or each one, can do, measured now past all caches: mean of up to 256 random reads of a page, rate of sequential ones, and the random_page_cost that this suggests: greatest(1, 0.1 * read_ms / ms of a page read in sequence), since PostgreSQL''s documentation has its default of 4 stand for 40 times slower reads of which 90 % are cached; none where the rounds of the measurement disagree';

CREATE FUNCTION pgscale.relocation_clock(pause_ms double precision DEFAULT 0)
RETURNS double precision
AS 'MODULE_PATHNAME', 'pgscale_relocation_clock'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.relocation_clock(double precision) IS
'internal, for relocation_plan: waits for so long, a second at most, and returns the milliseconds of a clock that nobody sets';

-- A look at what the server has counted up to now: for each relation the blocks that were not in shared buffers, by its file,
-- and for all of them the time that reads took.
CREATE FUNCTION pgscale.relocation_reads(
    OUT at_ms double precision, OUT relations oid[], OUT filenodes oid[], OUT reads bigint[],
    OUT read_ms double precision, OUT stats_reset timestamptz)
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT pg_stat_clear_snapshot();
    SELECT pgscale.relocation_clock(), array_agg(c.oid), array_agg(c.relfilenode),
           array_agg(pg_stat_get_blocks_fetched(c.oid) - pg_stat_get_blocks_hit(c.oid)),
           pg_stat_get_db_blk_read_time(d.oid), pg_stat_get_db_stat_reset_time(d.oid)
      FROM pg_class c, pg_database d
     WHERE d.datname = current_database() AND c.relkind IN ('r', 'm', 't', 'i', 'S') AND NOT c.relisshared
     GROUP BY d.oid
$$;
COMMENT ON FUNCTION pgscale.relocation_reads() IS
'internal, for relocation_plan: what the server has counted of the reads of each relation of this database up to now';

-- What to move: which indexes and tables would gain how much in another tablespace, and which of them to take there when it has
-- only so much room.
--
-- The server counts, for each relation, the blocks that were not in shared buffers. Two looks at these counts, a window apart,
-- tell what is read now. Some of it the kernel's cache answers; how much the counts do not tell, but time does, if the server
-- measures it (track_io_timing): let f be the time that all reads of this database took in the window, divided by what they would
-- have taken had each gone to its device, which a probe times. Then
--
--     time of a relation's reads here  = reads * latency here * f
--     how many of them the device sees = reads * least(1, f)
--     time of them there               = those * latency there
--
-- f may be larger than 1: requests queue when many sessions read at a time, and the probe, which has one under way, knows nothing
-- of that. With all that is read in one tablespace, the first line is reads * the mean time of a read, and the probe only says how
-- many reads the device saw. Reads that the kernel answers cost the same here and there.
--
-- Without measured times, the share of a relation that the kernel has in its cache stands for the share of reads that it answers,
-- which is a guess: the reason says so.
--
-- What is built or rewritten in the window is read by that and not by queries, or has counts that are not its own: such rows are
-- shown, and not chosen.
--
-- Locking. No relation's: sizes are those that relation_os_cache() finds, past smgr, since pg_relation_size() would wait for
-- whoever locks a relation. What is dropped meanwhile has no row. As any query that runs for so long, this one holds back the
-- horizon of VACUUM while it waits.
--
-- Privileges. All is done as the caller, who needs pg_monitor's to see what others build, and EXECUTE on tablespace_latency().
CREATE FUNCTION pgscale.relocation_plan(
    tablespace name, budget_bytes bigint, duration interval DEFAULT '30 seconds',
    OUT kind text, OUT relation regclass, OUT source name,
    OUT size_bytes bigint, OUT size_after_bytes bigint,
    OUT reads_per_s double precision, OUT physical_reads_per_s double precision,
    OUT here_ms double precision, OUT there_ms double precision,
    OUT saved_ms_per_s double precision, OUT saved_ms_per_s_per_gb double precision,
    OUT chosen boolean, OUT statement text, OUT reason text)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    -- what a move must save at least, in ms of all sessions' waiting in a second: a hundredth of one session; below it a window
    -- tells chance from gain no more
    least_gain_ms CONSTANT float8 := 10;
    duration_ms CONSTANT float8 := extract(epoch FROM duration) * 1000;
    target record;
    target_oid oid;
    earlier record;
    later record;
    left_ms float8;
    seconds float8;
    timed_ms float8;    -- that all reads in between took
    seen_built oid[] := '{}';
BEGIN
    IF tablespace IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'tablespace must not be null',
            HINT = 'Name the tablespace to move to.';
    ELSIF budget_bytes IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'budget_bytes must not be null',
            HINT = 'Say how many bytes may be moved.';
    ELSIF duration IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'duration must not be null',
            HINT = 'Say for how long to watch, such as interval ''1 minute''.';
    ELSIF budget_bytes <= 0 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'budget_bytes must be greater than zero',
            HINT = 'Say how many bytes may be moved, such as pg_size_bytes(''10 GB'').';
    ELSIF duration_ms NOT BETWEEN 1 AND 86400000 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'duration must be from a millisecond to a day',
            HINT = 'Name a time in which the server does its usual work, such as interval ''1 minute''.';
    ELSIF NOT pg_has_role('pg_monitor', 'USAGE') THEN
        RAISE insufficient_privilege USING MESSAGE = 'permission denied to plan relocation',
            HINT = 'Beside EXECUTE on this function and on pgscale.tablespace_latency(name), it takes pg_monitor.';
    END IF;

    SELECT l.read_ms, l.reason, l.spread, l.device INTO target FROM pgscale.tablespace_latency(tablespace) l;
    IF target.read_ms IS NULL THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('the latency of tablespace "%s" is unknown', tablespace),
            DETAIL = format('pgscale.tablespace_latency says: %s.', target.reason),
            HINT = 'Name a tablespace that can be read from and written to.';
    END IF;

    SELECT * INTO earlier FROM pgscale.relocation_reads();
    LOOP
        -- what is being built or rewritten: index, and table
        PERFORM pg_stat_clear_snapshot();
        seen_built := ARRAY(
            SELECT unnest(seen_built)
            UNION
            SELECT unnest(ARRAY[index_relid, relid]) FROM pg_stat_progress_create_index WHERE datname = current_database()
            UNION
            SELECT relid FROM pg_stat_progress_cluster WHERE datname = current_database());
        left_ms := earlier.at_ms + duration_ms - pgscale.relocation_clock();
        EXIT WHEN left_ms <= 0;
        PERFORM pgscale.relocation_clock(left_ms);
    END LOOP;
    SELECT * INTO later FROM pgscale.relocation_reads();
    IF later.stats_reset IS DISTINCT FROM earlier.stats_reset THEN
        RAISE object_not_in_prerequisite_state USING MESSAGE = 'statistics were reset during the window',
            HINT = 'Ask again.';
    END IF;
    seconds := (later.at_ms - earlier.at_ms) / 1000;
    timed_ms := later.read_ms - earlier.read_ms;
    SELECT oid INTO target_oid FROM pg_tablespace WHERE spcname = relocation_plan.tablespace;
    IF NOT FOUND THEN
        RAISE undefined_object USING MESSAGE = format('tablespace "%s" does not exist', tablespace),
            HINT = 'The tablespaces are those of pg_tablespace; CREATE TABLESPACE makes another one.';
    END IF;

    RETURN QUERY
    WITH RECURSIVE part AS MATERIALIZED (
        -- each relation, and the one that it is moved with: TOAST moves with its table
        SELECT c.oid AS part, coalesce(owner.oid, c.oid) AS relation, c.reltuples, c.relpages,
               coalesce(nullif(c.reltablespace, 0), d.dattablespace) AS tablespace,
               CASE WHEN b.filenode = a.filenode THEN b.reads - a.reads ELSE 0 END::float8 AS reads,
               b.filenode IS DISTINCT FROM a.filenode OR c.oid = ANY (seen_built) AS built
          FROM pg_class c
          JOIN unnest(later.relations, later.filenodes, later.reads) AS b(relation, filenode, reads) ON b.relation = c.oid
          JOIN pg_database d ON d.datname = current_database()
          LEFT JOIN unnest(earlier.relations, earlier.filenodes, earlier.reads) AS a(relation, filenode, reads) ON a.relation = c.oid
          LEFT JOIN pg_index x ON x.indexrelid = c.oid
          LEFT JOIN pg_class owner ON owner.reltoastrelid = coalesce(x.indrelid, c.oid)
    ), latency AS MATERIALIZED (
        SELECT s.oid, s.spcname, l.read_ms, l.reason, l.spread, l.device
          FROM (SELECT DISTINCT tablespace FROM part WHERE reads > 0 AND tablespace <> target_oid OFFSET 0) t
          JOIN pg_tablespace s ON s.oid = t.tablespace
          CROSS JOIN LATERAL pgscale.tablespace_latency(s.spcname) l
        UNION ALL
        SELECT target_oid, relocation_plan.tablespace, target.read_ms, NULL, target.spread, target.device
    ), factor AS MATERIALIZED (
        SELECT CASE WHEN timed_ms > 0 THEN timed_ms / nullif(sum(p.reads * l.read_ms), 0) END AS f
          FROM part p JOIN latency l ON l.oid = p.tablespace
    ), file AS (
        SELECT relation::oid AS part, sum(size_bytes) AS size, sum(os_cache_bytes) AS kernel
          FROM pgscale.relation_os_cache()
         GROUP BY 1
    ), movable AS MATERIALIZED (
        SELECT CASE c.relkind WHEN 'i' THEN 'index' ELSE 'table' END AS kind, c.oid AS relation,
               format('%I.%I', n.nspname, c.relname) AS name,
               coalesce(nullif(c.reltablespace, 0), d.dattablespace) AS tablespace,
               a.amname, c.reloptions, x.indrelid, x.indkey
          FROM pg_class c
          JOIN pg_namespace n ON n.oid = c.relnamespace
          JOIN pg_database d ON d.datname = current_database()
          LEFT JOIN pg_am a ON a.oid = c.relam
          LEFT JOIN pg_index x ON x.indexrelid = c.oid
         WHERE c.relkind IN ('r', 'm', 'i') AND c.relpersistence <> 't'
           AND c.oid >= 16384 AND n.nspname NOT IN ('pg_catalog', 'pg_toast')
           AND x.indisexclusion IS NOT TRUE AND x.indisvalid IS NOT FALSE
           AND coalesce(nullif(c.reltablespace, 0), d.dattablespace) <> target_oid
    ), read AS MATERIALIZED (
        SELECT m.*, p.reads, p.built, p.unknown, p.size, p.tuples,
               CASE WHEN NOT (p.built OR p.unknown) THEN p.here END AS here,
               CASE WHEN NOT (p.built OR p.unknown) THEN p.physical END AS physical
          FROM movable m
          JOIN (SELECT p.relation, sum(p.reads) AS reads, bool_or(p.built) AS built,
                       bool_or(p.reads > 0 AND l.read_ms IS NULL) AS unknown,
                       sum(p.reads * l.read_ms * coalesce(f.f, 1 - coalesce(k.cached, 0))) AS here,
                       sum(p.reads * least(1, coalesce(f.f, 1 - coalesce(k.cached, 0)))) AS physical,
                       sum(k.size) AS size,
                       -- as the planner does: density when last counted, times the present size
                       sum(p.reltuples * k.size / nullif(p.relpages, 0) / current_setting('block_size')::float8)
                           FILTER (WHERE p.part = p.relation AND p.reltuples >= 0) AS tuples
                  FROM part p
                  CROSS JOIN factor f
                  LEFT JOIN latency l ON l.oid = p.tablespace
                  LEFT JOIN (SELECT part, size, kernel / nullif(size, 0)::float8 AS cached FROM file) k ON k.part = p.part
                 GROUP BY 1) p USING (relation)
         WHERE p.reads > 0 OR p.built
    ), width AS (
        -- a btree's tuple: header, 8 bytes more with a map of nulls; key, aligned; line pointer
        SELECT r.relation, r.tuples,
               CASE WHEN bool_or(s.null_frac > 0) THEN 16 ELSE 8 END
               + 8 * ceil(sum(s.avg_width * (1 - s.null_frac)) / 8) + 4 AS tuple,
               coalesce((SELECT option_value::float8 FROM pg_options_to_table(r.reloptions)
                          WHERE option_name = 'fillfactor'), 90) / 100 AS fill,
               current_setting('block_size')::float8 AS page
          FROM read r
          CROSS JOIN LATERAL unnest(r.indkey) WITH ORDINALITY AS k(attnum, position)
          -- an expression's statistics are the index's, by its own column
          JOIN pg_attribute a ON a.attrelid = CASE k.attnum WHEN 0 THEN r.relation ELSE r.indrelid END
                             AND a.attnum = CASE k.attnum WHEN 0 THEN k.position ELSE k.attnum END
          JOIN pg_class c ON c.oid = a.attrelid
          JOIN pg_namespace n ON n.oid = c.relnamespace
          LEFT JOIN pg_stats s ON s.schemaname = n.nspname AND s.tablename = c.relname
                              AND s.attname = a.attname AND NOT s.inherited
         WHERE r.amname = 'btree'
         GROUP BY r.relation, r.tuples, r.reloptions
        HAVING count(*) = count(s.avg_width)
    ), rebuilt AS (
        -- pages have 40 bytes of header and special space, and a high key; inner pages are 70 % full; one page is meta
        SELECT relation, (2 + ceil(leaves * fanout / greatest(fanout - 1, 1))) * page AS size
          FROM (SELECT relation, page, floor((page - 40) * 0.7 / tuple) AS fanout,
                       ceil(tuples / greatest(floor((page * fill - 40) / tuple) - 1, 1)) AS leaves
                  FROM width) w
    ), rated AS (
        SELECT r.*, least(r.size, b.size)::bigint AS size_after, r.physical * target.read_ms AS there,
               (r.here - r.physical * target.read_ms) / seconds AS saved
          FROM read r LEFT JOIN rebuilt b USING (relation)
    ), ranked AS MATERIALIZED (
        SELECT *, CASE WHEN gains THEN
               row_number() OVER (PARTITION BY gains ORDER BY saved / greatest(size_after, 1) DESC, relation) END AS rank
          -- by the slowest round there; and here by the fastest, where the probe is all that is known
          FROM (SELECT r.*, l.device IS NOT DISTINCT FROM target.device AS same_device,
                       saved >= least_gain_ms AND l.device IS DISTINCT FROM target.device
                       AND here / CASE WHEN f.f IS NULL THEN l.spread ELSE 1 END - there * target.spread > here * 0.2 AS gains
                  FROM rated r CROSS JOIN factor f LEFT JOIN latency l ON l.oid = r.tablespace) r
    ), sizes AS MATERIALIZED (
        SELECT array_agg(coalesce(size_after, 0) ORDER BY rank) AS size FROM ranked WHERE rank IS NOT NULL
    ), greedy AS (
        -- down the ranks, taking what still fits
        SELECT 0::bigint AS rank, false AS chosen, budget_bytes AS left_bytes
        UNION ALL
        SELECT g.rank + 1, g.next <= g.left_bytes, g.left_bytes - CASE WHEN g.next <= g.left_bytes THEN g.next ELSE 0 END
          FROM (SELECT rank, left_bytes, (SELECT size FROM sizes)[rank + 1] AS next FROM greedy) g
         WHERE g.next IS NOT NULL
    )
    SELECT r.kind, r.relation::regclass, l.spcname, r.size::bigint, r.size_after,
           r.reads / seconds, r.physical / seconds, r.here / nullif(r.reads, 0), r.there / nullif(r.reads, 0),
           r.saved, r.saved / greatest(r.size_after, 1) * 1024 ^ 3, coalesce(g.chosen, false),
           CASE r.kind WHEN 'index' THEN format('SELECT pgscale.relocate_index(%L, %L);', r.name, relocation_plan.tablespace)
                       ELSE format('SELECT pgscale.relocate_table(%L, %L, mode => ''lock'');', r.name, relocation_plan.tablespace) END,
           CASE WHEN r.built THEN 'discarded: built or rewritten during the window'
                ELSE concat_ws('; ',
                     CASE WHEN r.unknown THEN 'latency here is unknown: ' || t.reason
                          WHEN g.chosen THEN 'chosen'
                          WHEN r.gains THEN 'does not fit into the budget'
                          WHEN r.same_device THEN 'is on the same device: ' || target.device
                          ELSE 'saves too little' END,
                     CASE WHEN f.f IS NULL THEN 'an estimate: no read was timed, so the kernel''s cache stands for what it answers' END)
           END
      FROM ranked r
      CROSS JOIN factor f
      JOIN pg_tablespace l ON l.oid = r.tablespace
      LEFT JOIN latency t ON t.oid = r.tablespace
      LEFT JOIN greedy g ON g.rank = r.rank
     ORDER BY g.chosen DESC NULLS LAST, r.saved DESC NULLS LAST, r.relation;
END
$$;
COMMENT ON FUNCTION pgscale.relocation_plan(name, bigint, interval) IS
'what to move to a tablespace: watches for the given time which indexes and tables of this database are read, times the devices, and chooses what saves most per byte under the budget; ends in the statement that moves each';

---- tuning

CREATE FUNCTION pgscale.tuning_findings(
    duration interval DEFAULT '10 minutes', probe boolean DEFAULT false,
    OUT rule text, OUT verdict text, OUT setting text, OUT object text,
    OUT current text, OUT recommended text, OUT evidence jsonb, OUT reason text,
    OUT gain double precision, OUT needs text, OUT confidence text, OUT risk text,
    OUT since timestamptz, OUT until timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_tuning_findings'
LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale.tuning_findings(interval, boolean) IS
'what each rule finds in the evidence of the last so long: advises, satisfied, or silent, and why; gain is the fraction of the sessions'' time that it would save; with probe, the disks are timed, for which it takes EXECUTE on pgscale.tablespace_latency()';

CREATE VIEW pgscale.advice AS
    SELECT setting, object, current, recommended, round(gain * 10000) / 10000 AS gain, confidence, needs, rule,
           since, until, reason, risk, evidence
      FROM pgscale.tuning_findings() f
     WHERE verdict = 'advises'
     ORDER BY f.gain DESC;
COMMENT ON VIEW pgscale.advice IS
'what to set, by the evidence of the last 10 minutes, greatest gain first; no rows where nothing is to be won';
COMMENT ON COLUMN pgscale.advice.setting IS
'what ALTER SYSTEM would set; NULL if nothing';
COMMENT ON COLUMN pgscale.advice.object IS
'tablespace, table or another object, if the advice is not about a setting';
COMMENT ON COLUMN pgscale.advice.current IS
'value now, as SHOW prints it';
COMMENT ON COLUMN pgscale.advice.recommended IS
'value to set, as ALTER SYSTEM takes it; or what to do';
COMMENT ON COLUMN pgscale.advice.gain IS
'fraction of the sessions'' time that it would save, 0 to 1, an estimate';
COMMENT ON COLUMN pgscale.advice.confidence IS
'high, medium or low';
COMMENT ON COLUMN pgscale.advice.needs IS
'what it takes: reload, restart, superuser ...';
COMMENT ON COLUMN pgscale.advice.rule IS
'name of the rule';
COMMENT ON COLUMN pgscale.advice.since IS
'start of the evidence';
COMMENT ON COLUMN pgscale.advice.until IS
'end of the evidence';
COMMENT ON COLUMN pgscale.advice.reason IS
'why, in one sentence, with the source';
COMMENT ON COLUMN pgscale.advice.risk IS
'what it costs';
COMMENT ON COLUMN pgscale.advice.evidence IS
'the numbers behind it';

CREATE VIEW pgscale.advice_rules AS
    SELECT rule, min(verdict) AS verdict, string_agg(reason, '; ') AS reason
      FROM pgscale.tuning_findings()
     GROUP BY rule
     ORDER BY rule;
COMMENT ON VIEW pgscale.advice_rules IS
'one row a rule: whether it advises, is satisfied or silent, and why';
COMMENT ON COLUMN pgscale.advice_rules.rule IS
'name of the rule';
COMMENT ON COLUMN pgscale.advice_rules.verdict IS
'advises, satisfied or silent';
COMMENT ON COLUMN pgscale.advice_rules.reason IS
'why, in one sentence for each of its findings';

---- tuning: changes

-- Written and read by the library alone; what users see is tuning_journal.
CREATE TABLE pgscale.tuning_change (
    change bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    cluster bigint NOT NULL,
    database oid NOT NULL,
    node text NOT NULL,
    timeline bigint NOT NULL,
    setting text NOT NULL,
    old_value text,
    new_value text,
    state text NOT NULL DEFAULT 'begun',
    requested_by text NOT NULL,
    acting_as text NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    applied_at timestamptz,
    effective_at timestamptz,
    reason text,
    evidence jsonb,
    metrics text[],
    metric_ends timestamptz[],
    metric_values double precision[],
    outcome jsonb,
    revert_of bigint,
    reverted_by bigint,
    sqlstate text,
    message text);
COMMENT ON TABLE pgscale.tuning_change IS
'changes of settings as the library keeps them; see pgscale.tuning_journal';
COMMENT ON SEQUENCE pgscale.tuning_change_change_seq IS
'ids of changes of settings';

CREATE FUNCTION pgscale.tuning_journal(
    OUT change bigint, OUT setting text, OUT old_value text, OUT new_value text,
    OUT state text, OUT requested_by text, OUT acting_as text,
    OUT requested_at timestamptz, OUT applied_at timestamptz,
    OUT effective_at timestamptz, OUT reason text, OUT evidence jsonb,
    OUT outcome jsonb, OUT revert_of bigint, OUT reverted_by bigint,
    OUT sqlstate text, OUT message text, OUT node text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_tuning_journal'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.tuning_journal() IS
'changes of settings made from this database: the line of postgresql.auto.conf before and after (NULL: none), who, when, why, and what has become of it';

CREATE VIEW pgscale.tuning_journal AS
    SELECT change, setting, old_value, new_value, state, requested_by, requested_at, applied_at, effective_at,
           acting_as, revert_of, reverted_by, node, sqlstate, message, reason, evidence, outcome
      FROM pgscale.tuning_journal();
COMMENT ON VIEW pgscale.tuning_journal IS
'changes of settings made from this database: the line of postgresql.auto.conf before and after (NULL: none), who, when, why, and what has become of it';
COMMENT ON COLUMN pgscale.tuning_journal.change IS
'number of the change, as verify and revert take it';
COMMENT ON COLUMN pgscale.tuning_journal.setting IS
'name of the setting';
COMMENT ON COLUMN pgscale.tuning_journal.old_value IS
'line in postgresql.auto.conf before the change; NULL if there was none';
COMMENT ON COLUMN pgscale.tuning_journal.new_value IS
'line in postgresql.auto.conf after the change; NULL if there is none';
COMMENT ON COLUMN pgscale.tuning_journal.state IS
'applied, pending reload, pending restart, overridden, superseded, changed by hand, reverted, failed, begun, or where it was made';
COMMENT ON COLUMN pgscale.tuning_journal.requested_by IS
'session user';
COMMENT ON COLUMN pgscale.tuning_journal.requested_at IS
'time when the change was written down';
COMMENT ON COLUMN pgscale.tuning_journal.applied_at IS
'time when the change was made';
COMMENT ON COLUMN pgscale.tuning_journal.effective_at IS
'time since when the change is in force';
COMMENT ON COLUMN pgscale.tuning_journal.acting_as IS
'role that the session user acted as';
COMMENT ON COLUMN pgscale.tuning_journal.revert_of IS
'number of the change that this one reverts';
COMMENT ON COLUMN pgscale.tuning_journal.reverted_by IS
'number of the change that reverted this one';
COMMENT ON COLUMN pgscale.tuning_journal.node IS
'host and data directory where it was made; NULL unless one may see data_directory';
COMMENT ON COLUMN pgscale.tuning_journal.sqlstate IS
'SQLSTATE of its error';
COMMENT ON COLUMN pgscale.tuning_journal.message IS
'error that it ended in';
COMMENT ON COLUMN pgscale.tuning_journal.reason IS
'why, in one sentence: the reason of the advice';
COMMENT ON COLUMN pgscale.tuning_journal.evidence IS
'the numbers of the advice';
COMMENT ON COLUMN pgscale.tuning_journal.outcome IS
'what verify said last';

CREATE PROCEDURE pgscale.set(
    setting text, value text, reload boolean DEFAULT false, force boolean DEFAULT false,
    INOUT change bigint DEFAULT NULL)
AS 'MODULE_PATHNAME', 'pgscale_tuning_set'
LANGUAGE C;
COMMENT ON PROCEDURE pgscale.set(text, text, boolean, boolean, bigint) IS
'ALTER SYSTEM with a way back: sets a setting to a value, as postgresql.conf would have it, or with NULL removes its line; with force also if the server would not start again; shows the change';

CREATE PROCEDURE pgscale.apply(
    setting text, reload boolean DEFAULT false, INOUT change bigint DEFAULT NULL)
AS 'MODULE_PATHNAME', 'pgscale_tuning_apply'
LANGUAGE C;
COMMENT ON PROCEDURE pgscale.apply(text, boolean, bigint) IS
'sets a setting to what pgscale.advice recommends, and shows the change';

CREATE PROCEDURE pgscale.apply_all(
    dry_run boolean DEFAULT true, reload boolean DEFAULT false, INOUT changes bigint[] DEFAULT NULL)
AS 'MODULE_PATHNAME', 'pgscale_tuning_apply_all'
LANGUAGE C;
COMMENT ON PROCEDURE pgscale.apply_all(boolean, boolean, bigint[]) IS
'sets all that pgscale.advice recommends with high or medium confidence and ALTER SYSTEM can set, and shows the changes; with dry_run only tells';

CREATE PROCEDURE pgscale.revert(
    change bigint, reload boolean DEFAULT false, force boolean DEFAULT false,
    INOUT reverted_by bigint DEFAULT NULL)
AS 'MODULE_PATHNAME', 'pgscale_tuning_revert'
LANGUAGE C;
COMMENT ON PROCEDURE pgscale.revert(bigint, boolean, boolean, bigint) IS
'gives a setting back the line that it had before a change, or none; with force also where it was changed since, by hand or by later changes, which then are reverted, too';

CREATE FUNCTION pgscale.verify(
    change bigint, duration interval DEFAULT NULL,
    OUT metric text, OUT unit text, OUT before double precision, OUT after double precision,
    OUT difference double precision, OUT difference_low double precision, OUT difference_high double precision,
    OUT samples_before integer, OUT samples_after integer,
    OUT verdict text, OUT decides boolean, OUT reason text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_tuning_verify'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.verify(bigint, interval) IS
'compares what a setting is judged by before and after a change: difference is relative, with its 95 % interval, verdict better, worse or cannot tell';

---- contention

CREATE FUNCTION pgscale.wait_kind(event_type text, event text)
RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_wait_kind'
LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale.wait_kind(text, text) IS
'kind of a wait event, as wait_meanings has it; NULL for pg_sleep()';

CREATE FUNCTION pgscale.wait_kinds(
    OUT kind text, OUT event_type text, OUT event text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_wait_kinds'
LANGUAGE C STRICT STABLE PARALLEL RESTRICTED ROWS 40;
COMMENT ON FUNCTION pgscale.wait_kinds() IS
'kinds of waits that the evidence tells apart, with the wait events of each by their names on this major version; NULL if it has none, others for the rest of a type';

CREATE FUNCTION pgscale.tuning_waits(
    duration interval DEFAULT '10 minutes',
    OUT kind text, OUT fraction double precision, OUT waiting_sessions double precision,
    OUT since timestamptz, OUT until timestamptz, OUT evidence jsonb)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_tuning_waits'
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 40;
COMMENT ON FUNCTION pgscale.tuning_waits(interval) IS
'fraction of the sessions'' time that each kind of wait took in the evidence of the last so long, and how many sessions were in it on average';

-- Written from the sources of the majors and from their release notes; a cure names the commit. "what" completes "it waits
-- for", in at most 36 characters.
CREATE VIEW pgscale.wait_meanings AS
    SELECT kind, event_type, event, what, cured_in, meaning, remedy, cure, cured_meaning
      FROM (VALUES
        ('cpu', '(running, or ready to run)',
         'a session runs, or is ready to run and waits for a CPU; events Running and Queued of pgscale.wait_profile tell '
         'one from the other',
         'cheaper statements: pgscale.query_waits shows which take the most time on CPU; more CPUs if more sessions are on '
         'CPU than there are',
         NULL, NULL, NULL),
        ('wal_sync', 'the WAL to reach the disk',
         'a commit waits until its WAL is flushed to disk',
         'fewer and larger transactions; a disk that flushes faster for pg_wal; synchronous_commit = off if losing the '
         'last commits in a crash is acceptable; see pgscale.wal_efficiency',
         NULL, NULL, NULL),
        ('wal_write', 'the WAL to reach the disk',
         'a session writes WAL to the kernel, which delays writers when much of their data is still to be written',
         'less WAL: a larger max_wal_size, wal_compression, fewer indexes; see pgscale.advice',
         NULL, NULL, NULL),
        ('wal_write_lock', 'the WAL to reach the disk',
         'a commit waits for another session''s flush, which may cover its own WAL too; or WAL buffers are full',
         'fewer and larger transactions; a disk that flushes faster for pg_wal; commit_delay if many sessions commit at '
         'the same time; larger wal_buffers if they are full, see pgscale.advice',
         NULL, NULL, NULL),
        ('wal_insert', 'a place to insert WAL',
         'a session waits for one of the 8 WAL insertion locks, whose holder inserts WAL or waits for room in WAL buffers; '
         'a flush waits for these locks too, to ask how far their holders have come',
         'wal_buffers of 16 MB or more; less WAL: wal_compression, COPY, or statements that write many rows instead of one',
         17, 'a flush reads how far the holders have come without their locks (commit 71e4cc6b8)',
         'a session waits for one of the 8 WAL insertion locks, whose holder inserts WAL or waits for room in WAL buffers'),
        ('wal_buffers', 'room in the WAL buffers',
         'WAL buffers are full, and one session at a time makes room',
         'wal_buffers of 16 MB or more; a shorter wal_writer_delay',
         NULL, NULL, NULL),
        ('wal_init', 'a new WAL file',
         'a session fills a new WAL file with zeroes and flushes it, while others wait',
         'a larger min_wal_size, so that old files are recycled; wal_init_zero = off on a copy-on-write file system',
         NULL, NULL, NULL),
        ('data_read', 'data that is not cached',
         'a session reads a page that is not in shared buffers, one page at a time',
         'larger shared_buffers if the kernel''s cache has the pages; indexes that avoid scans; a faster tablespace, see '
         'pgscale.relocation_plan()',
         17, 'sequential scans and ANALYZE read up to io_combine_limit at a time (commits b7b0f3f27, 041b96802); 18 also '
             'reads ahead by itself (io_method)',
         'a session reads pages that are not in shared buffers'),
        ('aio_queue', 'a place in the io workers'' queue',
         'sessions put their reads into one queue, and io workers take them out, one process at a time',
         'io_method = io_uring, see pgscale.advice; a larger io_combine_limit, so that there are fewer reads; statements that '
         'read less',
         NULL, NULL, NULL),
        ('aio_completion', 'data that is not cached',
         'a session reads pages through io_uring, and another session waits for the same pages or for other reads of that session',
         'larger shared_buffers if the kernel''s cache has the pages; fewer sessions that scan the same data at the same '
         'time; io_method = worker',
         NULL, NULL, NULL),
        ('data_write', 'data files to be written',
         'a session writes a dirty page to free its buffer',
         'a background writer that may write more (bgwriter_lru_maxpages); pgscale.sweeper (15 to 18); larger shared_buffers',
         NULL, NULL, NULL),
        ('data_extend', 'a table to be made longer',
         'a session extends a relation page by page',
         'COPY instead of INSERT; fewer relations to load at the same time',
         16, 'a session extends a relation by many pages at a time (commits 31966b151 and 00d1e02be)',
         'a session extends a relation by many pages at a time'),
        ('data_sync', 'data files to reach the disk',
         'a session syncs a data file itself, because the checkpointer''s request queue is full or the file was built '
         'outside shared buffers',
         'larger shared_buffers, on which the size of that queue depends; wal_level above minimal for loads of small tables',
         NULL, NULL, NULL),
        ('temp_file', 'temporary files',
         'a sort or hash does not fit in work_mem and uses temporary files',
         'more work_mem for the statements that pgscale.query_waits names',
         NULL, NULL, NULL),
        ('slru_io', 'the status of other transactions',
         'a session reads or writes pages of transaction status, whose caches have a fixed size',
         'shorter transactions, so that old status is not looked up; pg_stat_slru shows which cache it is',
         17, 'the sizes of the caches can be set (commit 53c2a97a9)',
         'a session reads or writes pages of transaction status'),
        ('buffer_mapping', 'the map of cached pages',
         'many pages enter and leave shared buffers, and one of the 128 partitions of their map is being changed',
         'larger shared_buffers; statements that read less',
         NULL, NULL, NULL),
        ('buffer_content', 'a page that others are using',
         'many sessions change the same page, usually the last leaf of an index or the only page of a small table',
         'keys that are spread (hash partitions, another first column); a low fillfactor for small, hot tables',
         NULL, NULL, NULL),
        ('buffer_io', 'data that is not cached',
         'another session is reading the same page into shared buffers',
         'larger shared_buffers if the kernel''s cache has the pages; fewer sessions that scan the same data at the same '
         'time',
         NULL, NULL, NULL),
        ('buffer_pin', 'a page that others are using',
         'VACUUM waits to be alone with a page that another session uses, for example with an open cursor',
         'close cursors, and end transactions that are idle',
         NULL, NULL, NULL),
        ('proc_array', 'snapshots, and ends of transactions',
         'transactions end one after the other, and sessions that take a snapshot wait meanwhile',
         'fewer active connections (a pooler; pgscale.scalability shows how many are worth it); fewer, larger transactions',
         NULL, NULL, NULL),
        ('xid_gen', 'a transaction identifier',
         'transactions that write get their identifiers one after the other',
         'fewer, larger transactions; fewer savepoints and exception blocks, each of which takes an identifier if it writes',
         NULL, NULL, NULL),
        ('xact', 'the status of other transactions',
         'sessions read or write the commit log under one lock, in a cache of at most 1 MB',
         'VACUUM, which sets hint bits and freezes rows, so that their status need not be looked up; fewer, larger '
         'transactions',
         17, 'the cache is divided into banks with a lock each, and transaction_buffers sets its size (commit 53c2a97a9)',
         'sessions read or write the commit log''s cache, which has a lock for each bank'),
        ('subtrans', 'the status of other transactions',
         'a transaction has more than 64 open subtransactions, so that each snapshot of other sessions looks up their '
         'parents, under one lock, in a cache of 256 kB',
         'fewer savepoints and PL/pgSQL exception blocks in a transaction; shorter transactions beside it',
         17, 'the cache is divided into banks with a lock each, and subtransaction_buffers sets its size (commit 53c2a97a9)',
         'a transaction has more than 64 open subtransactions, so that each snapshot of other sessions looks up their '
         'parents'),
        ('multixact', 'the status of other transactions',
         'many transactions lock the same rows, as foreign keys do, and the lists of lockers are read under one lock',
         'fewer foreign keys to small, hot tables; shorter transactions; VACUUM more often',
         17, 'the caches are divided into banks with a lock each, and multixact_offset_buffers and '
             'multixact_member_buffers set their sizes (commit 53c2a97a9)',
         'many transactions lock the same rows, as foreign keys do'),
        ('sinval', 'news of changed definitions',
         'definitions of tables change often, and each session must be told',
         'fewer temporary tables and less DDL; fewer connections',
         NULL, NULL, NULL),
        ('predicate', 'what serializable transactions read',
         'serializable transactions record what they read',
         'REPEATABLE READ if that is enough; READ ONLY DEFERRABLE for reports; shorter transactions',
         NULL, NULL, NULL),
        ('statistics', 'statistics in shared memory',
         'sessions add to statistics in shared memory',
         'pg_stat_statements.track_planning = off; a larger pg_stat_statements.max if it evicts entries',
         NULL, NULL, NULL),
        ('lock_manager', 'the lock table''s own locks',
         'statements lock more than 16 relations, such as partitions and their indexes, or take strong locks; both use the '
         'lock table in shared memory, which has 16 partitions',
         'plans that prune partitions, unlike the generic plans of prepared statements; fewer indexes and partitions; from '
         '18 on, a larger max_locks_per_transaction',
         18, 'a session has more fast-path slots with a larger max_locks_per_transaction (commit c4d5cb71d)',
         'statements lock more relations than a session has fast-path slots, or take strong locks'),
        ('lock_fast_path', 'the lock table''s own locks',
         'a strong lock, as DDL takes it, moves the weak locks of all sessions into the lock table',
         'less DDL and LOCK TABLE while there is load',
         NULL, NULL, NULL),
        ('lock_extend', 'a table to be made longer',
         'sessions that load the same relation extend it one after the other, page by page',
         'COPY instead of INSERT; fewer sessions that load; partitions',
         16, 'each session extends it by many pages at a time and writes them without the lock (commits 31966b151, 00d1e02be)',
         'sessions that load the same relation extend it one after the other'),
        ('lock_transaction', 'a row that another one has changed',
         'a session wants to change a row that another transaction has changed and not committed yet',
         'shorter transactions that change the hot row last; faster commits; several rows to add up instead of one; SKIP LOCKED '
         'for queues',
         NULL, NULL, NULL),
        ('lock_tuple', 'a row that another one has changed',
         'several sessions queue for the same row, and the first of them waits for the transaction that has changed it',
         'shorter transactions that change the hot row last; faster commits; several rows to add up instead of one; SKIP LOCKED '
         'for queues',
         NULL, NULL, NULL),
        ('lock_relation', 'a table that another one has locked',
         'DDL, LOCK TABLE or VACUUM FULL holds a lock or waits for it, and sessions that come later queue behind it',
         'lock_timeout for DDL; CONCURRENTLY; pgscale.relocate_index() and pgscale.relocate_table() instead of SET '
         'TABLESPACE',
         NULL, NULL, NULL),
        ('lock_advisory', 'a lock of the application',
         'the application waits for its own advisory locks',
         'a change of the application, which alone knows what these locks are for',
         NULL, NULL, NULL),
        ('sync_rep', 'a standby',
         'a commit waits for a synchronous standby',
         'synchronous_commit = remote_write or local if that is enough; a standby that is nearer; ANY instead of FIRST in '
         'synchronous_standby_names',
         NULL, NULL, NULL),
        ('parallel', 'the others of its parallel query',
         'parallel workers and their leader wait for each other',
         'fewer workers (max_parallel_workers_per_gather) if statements are short or the CPUs are busy',
         NULL, NULL, NULL),
        ('spin', 'a spinlock',
         'a process that has lost its CPU holds a spinlock, or too many processes want it',
         'fewer active connections: there are more than CPUs',
         NULL, NULL, NULL),
        ('client', 'its client',
         'the client or the network is slower than the server',
         'smaller results; a client that is nearer',
         NULL, NULL, NULL),
        ('other_lwlock', 'a lock in shared memory',
         'a session waits for a lock in shared memory that has no row of its own here',
         'find the event in pgscale.wait_profile, and what it is under "Wait Events" in PostgreSQL''s documentation',
         NULL, NULL, NULL),
        ('other_lock', 'a lock that another one holds',
         'a session waits for a lock of a type that has no row of its own here',
         'the end of the transaction that holds the lock: pg_blocking_pids() and pg_locks show it',
         NULL, NULL, NULL),
        ('other_io', 'a file',
         'a session reads or writes a file of a kind that has no row of its own here',
         'find the event in pgscale.wait_profile, and what it is under "Wait Events" in PostgreSQL''s documentation',
         NULL, NULL, NULL),
        ('other_ipc', 'another process',
         'a session waits for another process, in a way that has no row of its own here',
         'find the event in pgscale.wait_profile, and what it is under "Wait Events" in PostgreSQL''s documentation',
         NULL, NULL, NULL),
        ('other', '(see "Wait Events" in the manual)',
         'a session waits in a way that has no row of its own here',
         'find the event in pgscale.wait_profile, and what it is under "Wait Events" in PostgreSQL''s documentation',
         NULL, NULL, NULL)
        ) m (kind, what, meaning, remedy, cured_in, cure, cured_meaning)
      LEFT JOIN pgscale.wait_kinds() USING (kind);
COMMENT ON VIEW pgscale.wait_meanings IS
'what each kind of wait means, what helps, and which major version has cured it';
COMMENT ON COLUMN pgscale.wait_meanings.kind IS
'name of the kind, as wait_kind() returns it';
COMMENT ON COLUMN pgscale.wait_meanings.event_type IS
'type of the wait events; NULL for the rest of all types';
COMMENT ON COLUMN pgscale.wait_meanings.event IS
'names of the wait events on this major version, NULL if it has none; others for the rest of a type';
COMMENT ON COLUMN pgscale.wait_meanings.what IS
'what a session waits for, in a few words';
COMMENT ON COLUMN pgscale.wait_meanings.cured_in IS
'major version that has cured it; NULL if none has';
COMMENT ON COLUMN pgscale.wait_meanings.meaning IS
'what happens there, before that major version';
COMMENT ON COLUMN pgscale.wait_meanings.remedy IS
'what helps';
COMMENT ON COLUMN pgscale.wait_meanings.cure IS
'what that major version does instead; NULL if none has cured it';
COMMENT ON COLUMN pgscale.wait_meanings.cured_meaning IS
'what happens there from that major version on; NULL if none has cured it';

-- STABLE, so that it is inlined.
CREATE FUNCTION pgscale.contention(
    duration interval DEFAULT '10 minutes',
    OUT event_type text, OUT event text, OUT fraction double precision,
    OUT waiting_sessions double precision, OUT meaning text, OUT cured_in text,
    OUT now_possible text, OUT since timestamptz, OUT until timestamptz, OUT evidence jsonb)
RETURNS SETOF record
LANGUAGE sql STABLE PARALLEL RESTRICTED
BEGIN ATOMIC
    SELECT m.event_type, m.event, w.fraction, w.waiting_sessions,
           CASE WHEN m.cured_in <= major THEN m.cured_meaning ELSE m.meaning END,
           CASE WHEN m.cured_in > major THEN m.cured_in || ': ' || m.cure END,
           CASE WHEN m.event_type = 'Lock' AND m.kind <> 'lock_extend' AND
                     (SELECT sum(b.idle_in_transaction_ms) >= sum(b.waited_ms) / 2 FROM pgscale.blocker_profile() b WHERE b.last_seen >= w.since)
                THEN 'an end of transactions that are idle while others wait for them, see pgscale.blocker_profile: shorter ones, with no work '
                     'of the application between their statements; idle_in_transaction_session_timeout'
                ELSE m.remedy END, w.since, w.until, w.evidence
      FROM pgscale.tuning_waits(duration) w JOIN pgscale.wait_meanings m USING (kind),
           (SELECT pgscale.major()) v (major)
     WHERE w.fraction >= 0.01
     ORDER BY w.fraction DESC, m.event_type, m.event;
END;
COMMENT ON FUNCTION pgscale.contention(interval) IS
'one row a kind of wait, or the time on CPU, that takes a hundredth or more of the sessions'' time, greatest share first: what it means on this major, which later one has cured it and how, and what can be done now';

CREATE VIEW pgscale.contention AS
    SELECT event_type, event, round(c.fraction * 10000) / 10000 AS fraction,
           round(waiting_sessions * 100) / 100 AS waiting_sessions, cured_in, since, until, meaning,
           now_possible, evidence
      FROM pgscale.contention() c;
COMMENT ON VIEW pgscale.contention IS
'what sessions waited for in the last 10 minutes, beside their time on CPU, greatest share of their time first: what it means on this major, which later one has cured it and how, and what can be done now';
COMMENT ON COLUMN pgscale.contention.event_type IS
'type of the wait event, as in wait_profile; CPU for time on CPU';
COMMENT ON COLUMN pgscale.contention.event IS
'names of the wait events with that meaning; others for the rest of a type';
COMMENT ON COLUMN pgscale.contention.fraction IS
'fraction of the sessions'' time, 0 to 1';
COMMENT ON COLUMN pgscale.contention.waiting_sessions IS
'mean number of sessions in this wait';
COMMENT ON COLUMN pgscale.contention.cured_in IS
'later major version that has cured it, and how; NULL if there is none';
COMMENT ON COLUMN pgscale.contention.since IS
'start of the evidence';
COMMENT ON COLUMN pgscale.contention.until IS
'end of the evidence';
COMMENT ON COLUMN pgscale.contention.meaning IS
'what happens there';
COMMENT ON COLUMN pgscale.contention.now_possible IS
'what helps on this major version';
COMMENT ON COLUMN pgscale.contention.evidence IS
'what the server counts of it, from 19 on: waits for a lock that reached deadlock_timeout, and weak locks without a fast-path slot; NULL if nothing';

---- wal

CREATE FUNCTION pgscale.wal_efficiency(
    duration interval DEFAULT '10 minutes',
    OUT wal_bytes bigint, OUT written_bytes bigint, OUT rewritten_fraction double precision,
    OUT written_exact boolean, OUT commits bigint,
    OUT flushes_per_commit double precision, OUT commits_per_flush double precision,
    OUT flush_ms double precision, OUT flush_measured boolean, OUT flush_fraction double precision,
    OUT page_image_fraction double precision, OUT page_image_exact boolean, OUT segment_switches_per_s double precision,
    OUT buffers_full_per_s double precision, OUT reason text,
    OUT since timestamptz, OUT until timestamptz)
AS 'MODULE_PATHNAME', 'pgscale_wal_efficiency'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale.wal_efficiency(interval) IS
'what was written of WAL for what was generated, what a flush takes and how many commits share it, and what that costs the sessions; before 18 written_bytes is an estimate';

CREATE VIEW pgscale.wal_efficiency AS
    SELECT commits, round(commits_per_flush * 100) / 100 AS commits_per_flush,
           round(flush_ms * 1000) / 1000 AS flush_ms, round(flush_fraction * 10000) / 10000 AS flush_fraction,
           round(page_image_fraction * 10000) / 10000 AS page_image_fraction,
           round(rewritten_fraction * 10000) / 10000 AS rewritten_fraction, wal_bytes, written_bytes,
           written_exact, page_image_exact, round(flushes_per_commit * 10000) / 10000 AS flushes_per_commit, flush_measured,
           round(segment_switches_per_s * 10000) / 10000 AS segment_switches_per_s,
           round(buffers_full_per_s * 100) / 100 AS buffers_full_per_s, since, until, reason
      FROM pgscale.wal_efficiency();
COMMENT ON VIEW pgscale.wal_efficiency IS
'of the last 10 minutes: what was written of WAL for what was generated, what a flush takes and how many commits share it, and what that costs the sessions; before 18 written_bytes is an estimate';
COMMENT ON COLUMN pgscale.wal_efficiency.commits IS
'number of commits in the databases that sessions used';
COMMENT ON COLUMN pgscale.wal_efficiency.commits_per_flush IS
'commits that share a flush; NULL if the server counts no flushes';
COMMENT ON COLUMN pgscale.wal_efficiency.flush_ms IS
'mean time of a flush, in milliseconds';
COMMENT ON COLUMN pgscale.wal_efficiency.flush_fraction IS
'fraction of the sessions'' time in which commits waited for WAL, 0 to 1';
COMMENT ON COLUMN pgscale.wal_efficiency.page_image_fraction IS
'fraction of page images in the WAL, 0 to 1; before 19 an upper bound';
COMMENT ON COLUMN pgscale.wal_efficiency.rewritten_fraction IS
'fraction of the written bytes that had been written before, 0 to 1; NULL on a standby';
COMMENT ON COLUMN pgscale.wal_efficiency.wal_bytes IS
'size of the records generated';
COMMENT ON COLUMN pgscale.wal_efficiency.written_bytes IS
'size of the writes to WAL files; an estimate before 18';
COMMENT ON COLUMN pgscale.wal_efficiency.written_exact IS
'whether written_bytes is counted';
COMMENT ON COLUMN pgscale.wal_efficiency.page_image_exact IS
'whether the bytes of page images are counted';
COMMENT ON COLUMN pgscale.wal_efficiency.flushes_per_commit IS
'flushes for each commit; NULL if the server counts no flushes';
COMMENT ON COLUMN pgscale.wal_efficiency.flush_measured IS
'whether the server measured flush_ms; otherwise it is a lower bound';
COMMENT ON COLUMN pgscale.wal_efficiency.segment_switches_per_s IS
'number of WAL files started in a second; NULL on a standby';
COMMENT ON COLUMN pgscale.wal_efficiency.buffers_full_per_s IS
'how often a second a session found WAL buffers full and wrote them itself';
COMMENT ON COLUMN pgscale.wal_efficiency.since IS
'start of the evidence';
COMMENT ON COLUMN pgscale.wal_efficiency.until IS
'end of the evidence';
COMMENT ON COLUMN pgscale.wal_efficiency.reason IS
'the most important of this, in one sentence';

---- fleet

CREATE FUNCTION pgscale.node_identity(
    OUT node text, OUT system_identifier bigint, OUT role text, OUT lag_s double precision)
AS 'MODULE_PATHNAME', 'pgscale_node_identity'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale.node_identity() IS
'which server this is: cluster_name@host:port, the identifier of its cluster, primary or standby, and how far a standby is behind';

CREATE FUNCTION pgscale.node_manager() RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_node_manager'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale.node_manager() IS
'who sets this server''s settings in the place of ALTER SYSTEM: patroni, or NULL';

CREATE FUNCTION pgscale.node_state(
    OUT node text, OUT system_identifier bigint, OUT role text, OUT lag_s double precision,
    OUT version text, OUT started_at timestamptz, OUT manager text, OUT settings jsonb)
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT i.*, current_setting('server_version'), pg_postmaster_start_time(), pgscale.node_manager(),
           (SELECT jsonb_object_agg(name, CASE WHEN pgscale.is_secret(name, setting)
                                               THEN '(hidden) ' || left(encode(sha256(textsend(setting)), 'hex'), 8)
                                               ELSE current_setting(name) END) FROM pg_settings
             WHERE category NOT IN ('Preset Options', 'Customized Options', 'File Locations') AND name NOT IN
                   -- what is of one server
                   ('cluster_name', 'port', 'listen_addresses', 'unix_socket_directories', 'external_pid_file',
                    'primary_conninfo', 'primary_slot_name', 'hot_standby', 'synchronous_standby_names', 'in_hot_standby',
                    'recovery_target_timeline', 'restore_command', 'archive_cleanup_command', 'recovery_end_command',
                    'promote_trigger_file', 'log_directory', 'log_filename',
                    -- or of this session
                    'application_name', 'client_encoding', 'DateStyle', 'IntervalStyle', 'TimeZone', 'extra_float_digits', 'search_path',
                    'role', 'session_authorization', 'statement_timeout', 'transaction_deferrable', 'transaction_isolation',
                    'transaction_read_only'))
      FROM pgscale.node_identity() i;
$$;
COMMENT ON FUNCTION pgscale.node_state() IS
'what pgscale.fleet shows of this server, with its settings as far as servers of a fleet may have them in common';

CREATE FUNCTION pgscale.node_advice(
    OUT setting text, OUT object text, OUT current text, OUT recommended text, OUT gain double precision,
    OUT confidence text, OUT needs text, OUT rule text, OUT reason text, OUT risk text, OUT patroni_command text)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT a.setting, a.object, a.current, a.recommended, a.gain, a.confidence, a.needs, a.rule, a.reason, a.risk,
           CASE WHEN pgscale.node_manager() = 'patroni' AND s.name IS NOT NULL
                THEN format('patronictl edit-config --pg %s %s', quoted.change, quoted.cluster) END
      FROM pgscale.advice a
      LEFT JOIN pg_settings s ON s.name = a.setting
     -- as a shell takes it
     CROSS JOIN LATERAL (SELECT concat('''', replace(concat(a.setting, '=', a.recommended), '''', E'''\\'''''), '''') AS change,
                                concat('''', replace(current_setting('cluster_name'), '''', E'''\\'''''), '''') AS cluster) quoted;
$$;
COMMENT ON FUNCTION pgscale.node_advice() IS
'the rows of pgscale.advice, and where Patroni sets the settings the command that takes the advice';

CREATE FUNCTION pgscale.fleet_validate(options text[], catalog oid) RETURNS void
AS 'MODULE_PATHNAME', 'pgscale_fleet_validate'
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.fleet_validate(text[], oid) IS
'part of the foreign-data wrapper pgscale_fleet: which options nodes and user mappings may have';

CREATE FOREIGN DATA WRAPPER pgscale_fleet NO HANDLER VALIDATOR pgscale.fleet_validate;
COMMENT ON FOREIGN DATA WRAPPER pgscale_fleet IS
'its foreign servers are the nodes of the fleet';

CREATE FUNCTION pgscale.fleet_add(node text, conninfo text) RETURNS void
AS 'MODULE_PATHNAME', 'pgscale_fleet_add'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.fleet_add(text, text) IS
'adds a node, a foreign server of that name, with a user mapping for the current user; the connection string has no password';

CREATE FUNCTION pgscale.fleet_remove(node text) RETURNS void
AS 'MODULE_PATHNAME', 'pgscale_fleet_remove'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.fleet_remove(text) IS
'removes a node with all its user mappings';

CREATE FUNCTION pgscale.fleet_ask(question text, arguments text[]) RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_fleet_ask'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE ROWS 100;
COMMENT ON FUNCTION pgscale.fleet_ask(text, text[]) IS
'asks all nodes at once: columns node, state and error, then those asked for; a node that does not answer is one row';

CREATE FUNCTION pgscale.fleet(
    OUT node text, OUT state text, OUT role text, OUT lag_s double precision, OUT version text,
    OUT manager text, OUT same_as text, OUT identity text, OUT system_identifier bigint,
    OUT started_at timestamptz, OUT error text, OUT differing_settings text)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH asked AS MATERIALIZED (
        SELECT * FROM pgscale.fleet_ask('node_state', '{}') AS a (
            name text, state text, error text, node text, system_identifier bigint, role text, lag_s double precision,
            version text, started_at timestamptz, manager text, settings jsonb)
    ), setting AS (
        SELECT a.name AS node, s.key, s.value
          FROM asked a CROSS JOIN LATERAL jsonb_each_text(CASE jsonb_typeof(settings) WHEN 'object' THEN settings ELSE '{}' END) s
    ), counted AS (
        SELECT key, value, n, max(n) OVER (PARTITION BY key) AS most
          FROM (SELECT key, value, count(*) AS n FROM setting GROUP BY 1, 2) v
    ), usual AS (
        -- what most have; none if as many have another
        SELECT key, CASE count(*) FILTER (WHERE n = most) WHEN 1 THEN max(value) FILTER (WHERE n = most) END AS value
          FROM counted GROUP BY key HAVING count(*) > 1
    )
    SELECT a.name, a.state, a.role, a.lag_s, a.version, a.manager,
           (SELECT string_agg(b.name, ', ' ORDER BY b.name COLLATE "C") FROM asked b
             WHERE b.name <> a.name AND b.system_identifier = a.system_identifier AND b.started_at = a.started_at AND b.node = a.node),
           a.node, a.system_identifier, a.started_at, a.error,
           (SELECT string_agg(format('%s=%s', s.key, s.value), ', ' ORDER BY s.key COLLATE "C")
              FROM setting s JOIN usual u USING (key) WHERE s.node = a.name AND s.value IS DISTINCT FROM u.value)
      FROM asked a;
$$;
COMMENT ON FUNCTION pgscale.fleet() IS
'one row a node that was added: whether it answers, its role, how far it is behind, its version, and settings that most others have otherwise';

CREATE VIEW pgscale.fleet AS
    SELECT node, state, role, round(lag_s * 1000) / 1000 AS lag_s, version, manager, same_as, identity, system_identifier,
           started_at, error, differing_settings
      FROM pgscale.fleet()
     ORDER BY node COLLATE "C";
COMMENT ON VIEW pgscale.fleet IS
'one row a node that was added: whether it answers, its role, how far it is behind, its version, and settings that most others have otherwise';
COMMENT ON COLUMN pgscale.fleet.node IS
'name that it was added by';
COMMENT ON COLUMN pgscale.fleet.state IS
'ok, unreachable, no answer, failed or garbled';
COMMENT ON COLUMN pgscale.fleet.role IS
'primary or standby';
COMMENT ON COLUMN pgscale.fleet.lag_s IS
'how far a standby is behind, in seconds, as in node_identity(); NULL on a primary';
COMMENT ON COLUMN pgscale.fleet.version IS
'version of PostgreSQL';
COMMENT ON COLUMN pgscale.fleet.manager IS
'who sets its settings in the place of ALTER SYSTEM: patroni, or NULL';
COMMENT ON COLUMN pgscale.fleet.same_as IS
'other nodes that are the same server';
COMMENT ON COLUMN pgscale.fleet.identity IS
'what it calls itself: cluster_name@host:port';
COMMENT ON COLUMN pgscale.fleet.system_identifier IS
'identifier of its cluster, the same on a primary and its standbys';
COMMENT ON COLUMN pgscale.fleet.started_at IS
'start of the server';
COMMENT ON COLUMN pgscale.fleet.error IS
'why there is no answer; NULL if there is one';
COMMENT ON COLUMN pgscale.fleet.differing_settings IS
'settings of which most other nodes have another value, or as many; NULL if there are none';

CREATE FUNCTION pgscale.fleet_health(
    OUT node text, OUT feature text, OUT enabled boolean, OUT state text, OUT reason text, OUT action text)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT a.node, a.feature, a.enabled, CASE a.node_state WHEN 'ok' THEN a.state ELSE a.node_state END, coalesce(a.error, a.reason), a.action
      FROM pgscale.fleet_ask('health', '{}') AS a (
          node text, node_state text, error text, feature text, enabled boolean, state text, reason text, action text);
$$;
COMMENT ON FUNCTION pgscale.fleet_health() IS
'health of all nodes; a node that does not answer is a row without a feature';

CREATE VIEW pgscale.fleet_health AS SELECT * FROM pgscale.fleet_health();
COMMENT ON VIEW pgscale.fleet_health IS
'health of all nodes; a node that does not answer is a row without a feature';
COMMENT ON COLUMN pgscale.fleet_health.node IS
'name of the node';
COMMENT ON COLUMN pgscale.fleet_health.feature IS
'name of the feature; NULL for a node that does not answer';
COMMENT ON COLUMN pgscale.fleet_health.enabled IS
'whether the configuration asks for it; false only in state off';
COMMENT ON COLUMN pgscale.fleet_health.state IS
'as in health; or of a node that does not answer as in fleet';
COMMENT ON COLUMN pgscale.fleet_health.reason IS
'why, in one sentence';
COMMENT ON COLUMN pgscale.fleet_health.action IS
'what to do, or NULL';

CREATE FUNCTION pgscale.fleet_advice(
    OUT node text, OUT setting text, OUT object text, OUT current text, OUT recommended text, OUT gain double precision,
    OUT confidence text, OUT needs text, OUT rule text, OUT patroni_command text, OUT error text, OUT reason text, OUT risk text)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT a.node, a.setting, a.object, a.current, a.recommended, a.gain, a.confidence, a.needs, a.rule, a.patroni_command,
           a.error, a.reason, a.risk
      FROM pgscale.fleet_ask('node_advice', '{}') AS a (
          node text, state text, error text, setting text, object text, current text, recommended text, gain double precision,
          confidence text, needs text, rule text, patroni_command text, reason text, risk text)
     WHERE a.rule IS NOT NULL OR a.error IS NOT NULL;
$$;
COMMENT ON FUNCTION pgscale.fleet_advice() IS
'advice of all nodes; a node that does not answer is a row with its error';

CREATE VIEW pgscale.fleet_advice AS
    SELECT * FROM pgscale.fleet_advice() ORDER BY gain DESC NULLS LAST, node COLLATE "C";
COMMENT ON VIEW pgscale.fleet_advice IS
'advice of all nodes, greatest gain first; a node that does not answer is a row with its error';
COMMENT ON COLUMN pgscale.fleet_advice.node IS
'name of the node, as fleet_apply takes it';
COMMENT ON COLUMN pgscale.fleet_advice.setting IS
'what ALTER SYSTEM would set there; NULL if nothing';
COMMENT ON COLUMN pgscale.fleet_advice.object IS
'tablespace, table or another object, if the advice is not about a setting';
COMMENT ON COLUMN pgscale.fleet_advice.current IS
'value now';
COMMENT ON COLUMN pgscale.fleet_advice.recommended IS
'value to set, or what to do';
COMMENT ON COLUMN pgscale.fleet_advice.gain IS
'fraction of that node''s sessions'' time that it would save, 0 to 1, an estimate';
COMMENT ON COLUMN pgscale.fleet_advice.confidence IS
'high, medium or low';
COMMENT ON COLUMN pgscale.fleet_advice.needs IS
'what it takes: reload, restart, superuser ...';
COMMENT ON COLUMN pgscale.fleet_advice.rule IS
'name of the rule';
COMMENT ON COLUMN pgscale.fleet_advice.patroni_command IS
'command that takes the advice, where Patroni sets the settings; otherwise NULL';
COMMENT ON COLUMN pgscale.fleet_advice.error IS
'why there is no answer; NULL if there is one';
COMMENT ON COLUMN pgscale.fleet_advice.reason IS
'why, in one sentence, with the source';
COMMENT ON COLUMN pgscale.fleet_advice.risk IS
'what it costs';

CREATE FUNCTION pgscale.fleet_waits(
    since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL, by text DEFAULT 'event', top integer DEFAULT 10,
    OUT node text, OUT rank integer, OUT item text, OUT event_type text, OUT event text,
    OUT active_sessions double precision, OUT fraction double precision, OUT wait_ms double precision,
    OUT queryid bigint, OUT query text, OUT idle_in_transaction_sessions double precision, OUT error text)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET DateStyle = 'ISO'
AS $$
    SELECT a.node, a.rank, a.item, a.event_type, a.event, a.active_sessions, a.fraction, a.wait_ms, a.queryid, a.query,
           a.idle_in_transaction_sessions, a.error
      FROM pgscale.fleet_ask('top_waits', ARRAY[$1::text, $2::text, $3, $4::text]) AS a (
          node text, state text, error text, rank integer, item text, event_type text, event text,
          active_sessions double precision, fraction double precision, wait_ms double precision, queryid bigint, query text,
          idle_in_transaction_sessions double precision)
     WHERE a.item IS NOT NULL OR a.error IS NOT NULL;
$$;
COMMENT ON FUNCTION pgscale.fleet_waits(timestamptz, timestamptz, text, integer) IS
'top_waits() of all nodes; a node that does not answer is a row with its error';

CREATE FUNCTION pgscale.fleet_apply(node text, setting text, reload boolean DEFAULT false, OUT change bigint)
AS 'MODULE_PATHNAME', 'pgscale_fleet_apply'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.fleet_apply(text, text, boolean) IS
'sets a setting of a node to what pgscale.advice recommends there, and returns the change in the node''s own journal';

CREATE FUNCTION pgscale.fleet_revert(node text, change bigint, reload boolean DEFAULT false, OUT reverted_by bigint)
AS 'MODULE_PATHNAME', 'pgscale_fleet_revert'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.fleet_revert(text, bigint, boolean) IS
'takes a change of a node''s journal back';

---- numa

CREATE FUNCTION pgscale.numa_nodes(
    OUT node integer, OUT cpus integer, OUT cpu_list text, OUT memory_bytes bigint, OUT free_bytes bigint,
    OUT distance integer[])
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_numa_nodes'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 4;
COMMENT ON FUNCTION pgscale.numa_nodes() IS
'the machine''s NUMA nodes, and how far each is from each, in the order of the rows';

CREATE VIEW pgscale.numa_nodes AS SELECT * FROM pgscale.numa_nodes();
COMMENT ON VIEW pgscale.numa_nodes IS
'the machine''s NUMA nodes, and how far each is from each, in the order of the rows';
COMMENT ON COLUMN pgscale.numa_nodes.node IS
'the kernel''s number of the node';
COMMENT ON COLUMN pgscale.numa_nodes.cpus IS
'number of its CPUs';
COMMENT ON COLUMN pgscale.numa_nodes.cpu_list IS
'its CPUs, as 0-3,8';
COMMENT ON COLUMN pgscale.numa_nodes.memory_bytes IS
'size of its memory';
COMMENT ON COLUMN pgscale.numa_nodes.free_bytes IS
'size of its free memory, without the page cache';
COMMENT ON COLUMN pgscale.numa_nodes.distance IS
'distance to each node, in the order of the rows; 10 to itself, 0 if unknown';

CREATE FUNCTION pgscale.numa_buffers(
    everything boolean DEFAULT false,
    OUT node integer, OUT pages bigint, OUT bytes bigint, OUT fraction double precision,
    OUT fraction_low double precision, OUT fraction_high double precision, OUT sampled boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_numa_buffers'
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 4;
COMMENT ON FUNCTION pgscale.numa_buffers(boolean) IS
'shared buffers by NUMA node; NULL for what is not in memory; of a sample unless everything is asked for';

CREATE VIEW pgscale.numa_buffers AS
    SELECT node, pages, bytes, round(fraction * 10000) / 10000 AS fraction,
           round(fraction_low * 10000) / 10000 AS fraction_low,
           round(fraction_high * 10000) / 10000 AS fraction_high, sampled
      FROM pgscale.numa_buffers();
COMMENT ON VIEW pgscale.numa_buffers IS
'shared buffers by NUMA node; NULL for what is not in memory; of a sample if they are large';
COMMENT ON COLUMN pgscale.numa_buffers.node IS
'number of the node; NULL for what is not in memory';
COMMENT ON COLUMN pgscale.numa_buffers.pages IS
'number of the kernel''s pages in which shared buffers lie';
COMMENT ON COLUMN pgscale.numa_buffers.bytes IS
'size of the shared buffers';
COMMENT ON COLUMN pgscale.numa_buffers.fraction IS
'fraction of all shared buffers, 0 to 1';
COMMENT ON COLUMN pgscale.numa_buffers.fraction_low IS
'lower end of the 95 % interval of fraction';
COMMENT ON COLUMN pgscale.numa_buffers.fraction_high IS
'upper end of the 95 % interval of fraction';
COMMENT ON COLUMN pgscale.numa_buffers.sampled IS
'whether random pages were looked at rather than all';

---- scalability

CREATE TYPE pgscale.usl AS (
    status text,
    lambda double precision, sigma double precision, kappa double precision,
    r2 double precision,
    peak_concurrency double precision, peak_concurrency_low double precision,
    peak_concurrency_high double precision,
    peak_throughput double precision, peak_throughput_low double precision,
    peak_throughput_high double precision,
    points integer,
    min_concurrency double precision, max_concurrency double precision);
COMMENT ON TYPE pgscale.usl IS
'the Universal Scalability Law as fitted: X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1))';
COMMENT ON COLUMN pgscale.usl.status IS
'ok; no peak ...; noisy: ...; or insufficient range: ..., with the reason';
COMMENT ON COLUMN pgscale.usl.lambda IS
'throughput of one session, in the unit of the throughput';
COMMENT ON COLUMN pgscale.usl.sigma IS
'contention, the fraction of the work that only one session can do at a time';
COMMENT ON COLUMN pgscale.usl.kappa IS
'coherency, the cost of each pair of sessions';
COMMENT ON COLUMN pgscale.usl.r2 IS
'fraction of the variance of throughput that the law explains; NULL if there is none';
COMMENT ON COLUMN pgscale.usl.peak_concurrency IS
'concurrency at which throughput is highest; NULL unless the status is ok';
COMMENT ON COLUMN pgscale.usl.peak_concurrency_low IS
'lower end of the 95 % interval of peak_concurrency';
COMMENT ON COLUMN pgscale.usl.peak_concurrency_high IS
'upper end of the 95 % interval of peak_concurrency';
COMMENT ON COLUMN pgscale.usl.peak_throughput IS
'throughput at peak_concurrency';
COMMENT ON COLUMN pgscale.usl.peak_throughput_low IS
'lower end of the 95 % interval of peak_throughput';
COMMENT ON COLUMN pgscale.usl.peak_throughput_high IS
'upper end of the 95 % interval of peak_throughput';
COMMENT ON COLUMN pgscale.usl.points IS
'number of measurements';
COMMENT ON COLUMN pgscale.usl.min_concurrency IS
'smallest concurrency measured';
COMMENT ON COLUMN pgscale.usl.max_concurrency IS
'largest concurrency measured';

CREATE FUNCTION pgscale.usl_fit_add(internal, double precision, double precision)
RETURNS internal
AS 'MODULE_PATHNAME', 'pgscale_usl_fit_add'
LANGUAGE C CALLED ON NULL INPUT IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale.usl_fit_add(internal, double precision, double precision) IS
'part of usl_fit: takes a measurement';

CREATE FUNCTION pgscale.usl_fit_end(internal)
RETURNS pgscale.usl
AS 'MODULE_PATHNAME', 'pgscale_usl_fit_end'
LANGUAGE C CALLED ON NULL INPUT IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale.usl_fit_end(internal) IS
'part of usl_fit: fits the law';

CREATE AGGREGATE pgscale.usl_fit(concurrency double precision, throughput double precision) (
    SFUNC = pgscale.usl_fit_add,
    STYPE = internal,
    SSPACE = 1024,
    FINALFUNC = pgscale.usl_fit_end,
    PARALLEL = SAFE);
COMMENT ON AGGREGATE pgscale.usl_fit(double precision, double precision) IS
'fits the Universal Scalability Law to measurements of throughput at several concurrencies';

CREATE FUNCTION pgscale.usl_fit(concurrency double precision[], throughput double precision[])
RETURNS pgscale.usl
AS 'MODULE_PATHNAME', 'pgscale_usl_fit'
LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale.usl_fit(double precision[], double precision[]) IS
'the aggregate of the same name, of two arrays of the same length';

CREATE FUNCTION pgscale.usl_predict(usl pgscale.usl, concurrency double precision)
RETURNS double precision
AS 'MODULE_PATHNAME', 'pgscale_usl_predict'
LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale.usl_predict(pgscale.usl, double precision) IS
'throughput at this concurrency by a law that usl_fit has fitted';

CREATE FUNCTION pgscale.scalability(
    OUT status text,
    OUT lambda double precision, OUT sigma double precision, OUT kappa double precision,
    OUT r2 double precision,
    OUT peak_concurrency double precision, OUT peak_concurrency_low double precision,
    OUT peak_concurrency_high double precision,
    OUT peak_throughput double precision, OUT peak_throughput_low double precision,
    OUT peak_throughput_high double precision,
    OUT points integer,
    OUT min_concurrency double precision, OUT max_concurrency double precision,
    OUT concurrency double precision, OUT throughput double precision,
    OUT measured_at timestamptz,
    OUT buckets bigint, OUT discarded bigint, OUT stats_reset timestamptz)
AS 'MODULE_PATHNAME', 'pgscale_scalability'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale.scalability() IS
'the Universal Scalability Law of this server: how many active sessions it can use';

CREATE VIEW pgscale.scalability AS
    SELECT round(peak_concurrency * 10) / 10 AS peak_concurrency,
           round(peak_concurrency_low * 10) / 10 AS peak_concurrency_low,
           round(peak_concurrency_high * 10) / 10 AS peak_concurrency_high,
           round(concurrency * 10) / 10 AS concurrency, round(throughput * 100) / 100 AS throughput,
           round(peak_throughput * 100) / 100 AS peak_throughput,
           round(peak_throughput_low * 100) / 100 AS peak_throughput_low,
           round(peak_throughput_high * 100) / 100 AS peak_throughput_high, round(lambda * 100) / 100 AS lambda,
           round(sigma * 1000000) / 1000000 AS sigma, round(kappa * 100000000) / 100000000 AS kappa,
           round(r2 * 10000) / 10000 AS r2, points, round(min_concurrency * 10) / 10 AS min_concurrency,
           round(max_concurrency * 10) / 10 AS max_concurrency, buckets, discarded, measured_at, stats_reset,
           status
      FROM pgscale.scalability();
COMMENT ON VIEW pgscale.scalability IS
'the Universal Scalability Law of this server: how many active sessions it can use';
COMMENT ON COLUMN pgscale.scalability.peak_concurrency IS
'concurrency at which throughput is highest; NULL unless the status is ok';
COMMENT ON COLUMN pgscale.scalability.peak_concurrency_low IS
'lower end of the 95 % interval of peak_concurrency';
COMMENT ON COLUMN pgscale.scalability.peak_concurrency_high IS
'upper end of the 95 % interval of peak_concurrency';
COMMENT ON COLUMN pgscale.scalability.concurrency IS
'active sessions in the latest bucket that was not discarded';
COMMENT ON COLUMN pgscale.scalability.throughput IS
'transactions a second in that bucket';
COMMENT ON COLUMN pgscale.scalability.peak_throughput IS
'throughput at peak_concurrency';
COMMENT ON COLUMN pgscale.scalability.peak_throughput_low IS
'lower end of the 95 % interval of peak_throughput';
COMMENT ON COLUMN pgscale.scalability.peak_throughput_high IS
'upper end of the 95 % interval of peak_throughput';
COMMENT ON COLUMN pgscale.scalability.lambda IS
'throughput of one session, in the unit of the throughput';
COMMENT ON COLUMN pgscale.scalability.sigma IS
'contention, the fraction of the work that only one session can do at a time';
COMMENT ON COLUMN pgscale.scalability.kappa IS
'coherency, the cost of each pair of sessions';
COMMENT ON COLUMN pgscale.scalability.r2 IS
'fraction of the variance of throughput that the law explains; NULL if there is none';
COMMENT ON COLUMN pgscale.scalability.points IS
'number of measurements';
COMMENT ON COLUMN pgscale.scalability.min_concurrency IS
'smallest concurrency measured';
COMMENT ON COLUMN pgscale.scalability.max_concurrency IS
'largest concurrency measured';
COMMENT ON COLUMN pgscale.scalability.buckets IS
'number of measurements used';
COMMENT ON COLUMN pgscale.scalability.discarded IS
'number of measurements not used';
COMMENT ON COLUMN pgscale.scalability.measured_at IS
'end of the latest bucket that was not discarded; NULL if there was none';
COMMENT ON COLUMN pgscale.scalability.stats_reset IS
'start of the server or latest reset';
COMMENT ON COLUMN pgscale.scalability.status IS
'ok; no peak ...; noisy: ...; or insufficient range: ..., with the reason';

CREATE FUNCTION pgscale.scalability_points(
    OUT concurrency double precision, OUT throughput double precision,
    OUT seconds double precision)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_scalability_points'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 20;
COMMENT ON FUNCTION pgscale.scalability_points() IS
'what the law of this server is fitted to: transactions a second by active sessions';

CREATE FUNCTION pgscale.scalability_reset()
RETURNS void
AS 'MODULE_PATHNAME', 'pgscale_scalability_reset'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.scalability_reset() IS
'forgets what the law of this server is fitted to';

---- report

-- How a report looks is C: each of these has a text for psql and one for a browser.
CREATE FUNCTION pgscale.report_paragraph(format text, value text, style text)
RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_report_paragraph'
LANGUAGE C VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale.report_paragraph(text, text, text) IS
'part of report: a title, the title of a part, a note, or a sentence';

CREATE FUNCTION pgscale.report_table(format text, titles text[], kinds text[], cells text[])
RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_report_table'
LANGUAGE C VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale.report_table(text, text[], text[], text[]) IS
'part of report: a table of columns with titles and kinds, and cells row by row';

CREATE FUNCTION pgscale.report_chart(
    format text, since timestamptz, until timestamptz, bucket_s double precision,
    at timestamptz[], event_type text[], active_sessions double precision[], covered_fraction double precision[],
    mark_at timestamptz[] DEFAULT NULL, mark text[] DEFAULT NULL, most double precision DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_report_chart'
LANGUAGE C VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale.report_chart(text, timestamptz, timestamptz, double precision, timestamptz[], text[],
    double precision[], double precision[], timestamptz[], text[], double precision) IS
'part of report: active sessions over time by class of wait event, as activity() has them, with marks';

-- What happened in the period that may explain a change in it. What cannot be asked here is left out.
CREATE FUNCTION pgscale.report_marks(since timestamptz, until timestamptz, OUT at timestamptz, OUT kind text, OUT mark text)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 20
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    source text;
BEGIN
    FOREACH source IN ARRAY ARRAY[
        $q$SELECT pg_postmaster_start_time(), 'start', 'the server started'$q$,
        $q$SELECT pg_conf_load_time(), 'reload', 'the configuration was read again'
            WHERE pg_conf_load_time() > pg_postmaster_start_time() + interval '1 s'$q$,
        $q$SELECT checkpoint_time, 'checkpoint', 'a checkpoint began' FROM pg_control_checkpoint()$q$,
        $q$SELECT coalesce(j.applied_at, j.requested_at), 'setting',
                  format('%s: %s to %s, change %s, %s', j.setting, coalesce(left(pgscale.setting_text(j.old_value, s.unit), 40), '(not set)'),
                         coalesce(left(pgscale.setting_text(j.new_value, s.unit), 40), '(not set)'), j.change, j.state)
             FROM pgscale.tuning_journal() j
             LEFT JOIN pg_settings s ON s.name = j.setting
            WHERE NOT pgscale.is_secret(j.setting, concat(j.old_value, ' ', j.new_value))$q$,
        $q$SELECT c.at, 'setting', format('%s: %s to %s', c.setting, coalesce(left(pgscale.setting_text(c.old, s.unit), 40), '(not set)'),
                                          coalesce(left(pgscale.setting_text(c.new, s.unit), 40), '(not set)'))
             FROM pgscale.archive_changes c
             LEFT JOIN pg_settings s ON s.name = c.setting
            WHERE c.at BETWEEN $1 AND $2 AND NOT pg_is_in_recovery() AND NOT pgscale.is_secret(c.setting, concat(c.old, ' ', c.new))$q$,
        $q$SELECT m.at, 'checkpoint', format('%s checkpoints in %s s', m.checkpoints_timed + m.checkpoints_requested, round(m.period_s))
             FROM pgscale.archive_minutes m
            WHERE m.at BETWEEN $1 AND $2 AND NOT pg_is_in_recovery() AND m.checkpoints_timed + m.checkpoints_requested > 0$q$,
        $q$SELECT m.at, 'node', format('%s took over from %s', m.node, m.before)
             FROM (SELECT m.at, m.node, lag(m.node) OVER (ORDER BY m.at) AS before
                     FROM pgscale.archive_minutes m WHERE m.at BETWEEN $1 AND $2) m
            WHERE m.node <> m.before$q$]
    LOOP
        BEGIN
            RETURN QUERY EXECUTE format('SELECT m.at, m.kind, m.mark FROM (%s LIMIT 1000) m (at, kind, mark)
                                          WHERE m.at BETWEEN $1 AND $2', source) USING since, until;
        EXCEPTION
            WHEN OTHERS THEN NULL;
        END;
    END LOOP;
END
$$;
COMMENT ON FUNCTION pgscale.report_marks(timestamptz, timestamptz) IS
'part of report: restarts, checkpoints and changes of settings in a period, as far as they are known';

CREATE FUNCTION pgscale.report_bucket(length interval, most integer)
RETURNS double precision
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(min(s), ceil(max(wanted) / 86400) * 86400)
      FROM (SELECT extract(epoch FROM length)::float8 / most AS wanted) w
      LEFT JOIN unnest('{1,2,5,10,15,20,30,60,120,300,600,900,1200,1800,3600,7200,10800,21600,43200,86400}'::float8[]) s ON s >= wanted
$$;
COMMENT ON FUNCTION pgscale.report_bucket(interval, integer) IS
'part of report: the shortest round bucket of which a period has at most so many, in seconds';

-- How much of a period is known, 100 % only if that is all of it, and the longest gaps of a second or more.
CREATE FUNCTION pgscale.report_known(since timestamptz, until timestamptz)
RETURNS text
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH known AS MATERIALIZED (
        SELECT c.source, tstzrange(c.at, c.at + c.period_s * interval '1 s') AS span, c.known_s AS s
          FROM pgscale.past_coverage(since, until) c),
    gap AS (
        SELECT g.a, g.b, row_number() OVER (ORDER BY g.b - g.a DESC, g.a) AS n
          FROM (SELECT lower(m), upper(m) FROM unnest(tstzmultirange(tstzrange(since, until)) - (SELECT range_agg(k.span) FROM known k)) m) g (a, b)
         WHERE g.b - g.a >= interval '1 s'),
    gaps AS (
        SELECT string_agg(concat(to_char(g.a, t.form), ' to ', to_char(g.b, t.form)), ', ' ORDER BY g.a) FILTER (WHERE g.n <= 3)
               || CASE WHEN count(*) > 3 THEN format(', and %s shorter gap%s', count(*) - 3, CASE WHEN count(*) > 4 THEN 's' END) ELSE '' END AS text
          FROM gap g, (SELECT CASE WHEN until::date = since::date THEN 'HH24:MI:SS' ELSE 'YYYY-MM-DD HH24:MI' END) t (form))
    SELECT CASE WHEN coalesce(sum(k.s), 0) = 0
                THEN 'Nothing is known of the waits in this period: pgscale''s memory does not reach back to it, and no archive has it.'
                ELSE format('%s of the period is known, from %s.%s',
                            coalesce(nullif(CASE WHEN sum(k.s) < extract(epoch FROM until - since)::float8 - 1e-6
                                                 THEN least(round((100 * sum(k.s) / extract(epoch FROM until - since)::float8)::numeric, 1), 99.9)
                                                 ELSE 100.0 END, 0) || ' %', 'Less than 0.1 %'),
                            string_agg(DISTINCT k.source, ' and '), ' Nothing is known from ' || (SELECT g.text FROM gaps g) || '.') END
      FROM known k
$$;
COMMENT ON FUNCTION pgscale.report_known(timestamptz, timestamptz) IS
'part of report: how much of a period is known, and of which times nothing is';

-- What a session waits for, in a few words.
CREATE FUNCTION pgscale.report_what(event_type text, event text)
RETURNS text
LANGUAGE sql STRICT VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN $2 = 'IdleInTransaction' THEN '(idle in a transaction)'
                ELSE (SELECT m.what FROM pgscale.wait_meanings m WHERE m.kind = pgscale.wait_kind($1, $2) LIMIT 1) END
$$;
COMMENT ON FUNCTION pgscale.report_what(text, text) IS
'part of report: what a session waits for in this wait event';

-- The begin of a statement, on one line.
CREATE FUNCTION pgscale.report_line(query text)
RETURNS text
LANGUAGE sql STRICT VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT regexp_replace(left(pgscale.clean_statement(query), 100), '[[:space:]]+', ' ', 'g')
$$;
COMMENT ON FUNCTION pgscale.report_line(text) IS
'part of report: the begin of a statement, on one line';

-- Who was in the way in a period, as top_waits() has them, with what blocker_profile() knows of each. That is of more than the
-- period, so of its idle time the part is taken.
CREATE FUNCTION pgscale.report_roots(since timestamptz, until timestamptz)
RETURNS TABLE (rank integer, item text, active_sessions double precision, fraction double precision, wait_ms double precision,
    idle_fraction double precision, usename text, application_name text, state text, first_seen timestamptz, last_seen timestamptz,
    query text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE ROWS 10
SET search_path = pg_catalog, pg_temp
AS $$
    WITH waited AS MATERIALIZED (
        SELECT w.rank, w.item, w.active_sessions, w.fraction, w.wait_ms
          FROM pgscale.top_waits($1, $2, 'blocker'::text, 10) w
         WHERE w.item IS NOT NULL AND w.wait_ms > 0),
    roots AS MATERIALIZED (
        SELECT DISTINCT ON (b.item) b.*
          FROM (SELECT p.root_pid, p.backend_start, p.userid, p.application_name, p.root_state, p.queryid, p.waited_ms,
                       p.idle_in_transaction_ms, greatest(p.first_seen, $1) AS first_seen, least(p.last_seen, $2) AS last_seen,
                       CASE p.root_pid WHEN 0 THEN 'prepared transaction'
                                 ELSE p.root_pid || coalesce(' ' || nullif(p.application_name, ''), '') END AS item
                  FROM pgscale.blocker_profile() p
                 WHERE p.first_seen <= $2 AND p.last_seen >= $1) b
          JOIN waited w USING (item)
         ORDER BY b.item, b.last_seen - b.first_seen DESC)
    SELECT w.rank, w.item, w.active_sessions, w.fraction, w.wait_ms, r.idle_in_transaction_ms / nullif(r.waited_ms, 0),
           u.rolname::text, r.application_name, r.root_state, r.first_seen, r.last_seen,
           coalesce(q.query, CASE WHEN r.queryid IS NULL THEN nullif(a.query, '<insufficient privilege>') END)
      FROM waited w
      LEFT JOIN roots r USING (item)
      LEFT JOIN pg_roles u ON u.oid = r.userid
      LEFT JOIN pgscale.past_queries(ARRAY(SELECT o.queryid FROM roots o WHERE o.queryid IS NOT NULL)) q ON q.queryid = r.queryid
      LEFT JOIN pg_stat_activity a ON a.pid = r.root_pid AND a.backend_start = r.backend_start
     ORDER BY w.rank
$$;
COMMENT ON FUNCTION pgscale.report_roots(timestamptz, timestamptz) IS
'part of report: who was in the way of waits for locks in a period, and what it did meanwhile';

-- Whether waits for locks were a real share of a period, and one root or idle transactions the cause of them: then the root is to
-- blame, and not the statements that waited.
CREATE FUNCTION pgscale.report_blame(since timestamptz, until timestamptz, OUT idle boolean, OUT sentence text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH roots AS MATERIALIZED (
        SELECT r.*, r.wait_ms * coalesce(r.idle_fraction, 0) AS idle_ms FROM pgscale.report_roots($1, $2) r WHERE r.item <> 'other'),
    total AS (
        SELECT sum(w.wait_ms) FILTER (WHERE w.event IS DISTINCT FROM 'IdleInTransaction') AS active_ms,
               sum(w.wait_ms) FILTER (WHERE w.event_type = 'Lock') AS lock_ms
          FROM pgscale.top_waits($1, $2, 'event'::text, 1000) w),
    sums AS (
        SELECT sum(r.idle_ms) AS idle_ms, count(*) FILTER (WHERE r.idle_fraction >= 0.5) AS idle_roots FROM roots r),
    -- the first of those that were idle, or of all
    root AS (
        SELECT r.idle_ms, r.wait_ms, r.state, pgscale.report_line(r.query) AS statement, i.idle,
               coalesce('process ' || substring(r.item FROM '^[0-9]+'), 'a ' || r.item)
                   || coalesce(' (' || nullif(concat_ws(', ', 'user ' || r.usename, 'application ' || nullif(coalesce(
                          r.application_name, substring(r.item FROM '^[0-9]+ (.*)')), '')), '') || ')', '') AS who
          FROM roots r CROSS JOIN total t CROSS JOIN sums s CROSS JOIN LATERAL (SELECT s.idle_ms >= t.lock_ms / 2) i (idle)
         WHERE t.lock_ms >= 0.05 * t.active_ms AND (i.idle OR r.wait_ms >= t.lock_ms / 4)
         ORDER BY CASE WHEN i.idle THEN r.idle_ms ELSE r.wait_ms END DESC LIMIT 1),
    told AS (
        SELECT CASE WHEN NOT r.idle
                    THEN format('%s held others up for %s s in all%s.', r.who, round(r.wait_ms / 1000),
                                ' (' || nullif(concat_ws(', ', r.state, 'statement: ' || r.statement), '') || ')')
                    WHEN s.idle_roots > 1 AND r.idle_ms < 0.9 * s.idle_ms
                    THEN format('%s processes held others up for %s s in all while they were idle in transactions, most of it %s, for %s s%s.',
                                s.idle_roots, round(s.idle_ms / 1000), r.who, round(r.idle_ms / 1000), ' (last statement: ' || r.statement || ')')
                    ELSE format('%s held others up for %s s in all while it was idle in a transaction%s.', r.who, round(r.idle_ms / 1000),
                                ' (last statement: ' || r.statement || ')') END AS sentence
          FROM root r CROSS JOIN sums s)
    SELECT coalesce((SELECT r.idle FROM root r), false), (SELECT upper(left(t.sentence, 1)) || substr(t.sentence, 2) FROM told t)
$$;
COMMENT ON FUNCTION pgscale.report_blame(timestamptz, timestamptz) IS
'part of report: who was the cause of waits for locks, and whether it was idle in its transaction meanwhile';

-- The chart of a period. Its buckets begin where those of activity() do, so the period may have only a part of the first one and
-- of the last: they count by that part in the chart's averages.
CREATE FUNCTION pgscale.report_activity(since timestamptz, until timestamptz, most double precision, format text)
RETURNS text
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT pgscale.report_chart(format, least(since, min(a.at)), until, b.s, array_agg(a.at), array_agg(a.event_type),
               array_agg(a.active_sessions), array_agg(a.covered_fraction * extract(epoch FROM least(a.at + b.s * interval '1 s', until)
                                                                                              - greatest(a.at, since))::float8 / b.s), m.at, m.mark, most)
      FROM (SELECT pgscale.report_bucket(until - since, CASE format WHEN 'html' THEN 120 ELSE 30 END)) b (s)
      CROSS JOIN (SELECT array_agg(m.at ORDER BY m.at), array_agg(m.mark ORDER BY m.at)
                    FROM (SELECT * FROM pgscale.report_marks(since, until) m ORDER BY m.kind = 'checkpoint', m.at LIMIT 40) m) m (at, mark)
      CROSS JOIN LATERAL pgscale.activity(since, until, b.s * interval '1 s') a
     GROUP BY b.s, m.at, m.mark
$$;
COMMENT ON FUNCTION pgscale.report_activity(timestamptz, timestamptz, double precision, text) IS
'part of report: active sessions over time, with what happened meanwhile';

-- One part of a report, or of the difference of two periods. What it cannot have raises an error, which report_section() makes a
-- sentence.
CREATE FUNCTION pgscale.report_part(
    part text, since timestamptz, until timestamptz, since2 timestamptz, until2 timestamptz, format text)
RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
DECLARE
    html CONSTANT boolean := format = 'html';
    buckets CONSTANT integer := CASE WHEN html THEN 120 ELSE 30 END;
    body text;
    cells text[];
    item record;
BEGIN
    CASE part
    WHEN 'period' THEN
        cells := ARRAY[
            ['Server', format('PostgreSQL %s, up since %s', current_setting('server_version'),
                              date_trunc('second', pg_postmaster_start_time()))],
            ['Period', format('%s to %s (%s)', date_trunc('second', since), date_trunc('second', until), current_setting('TimeZone'))],
            ['Made', format('%s in database %s by %s, of pgscale %s', date_trunc('second', clock_timestamp()), current_database(),
                            session_user, (SELECT e.extversion FROM pg_extension e WHERE e.extname = 'pgscale'))]];
        BEGIN
            SELECT n.node, n.system_identifier, n.role, n.lag_s INTO item FROM pgscale.node_identity() n;
            cells := ARRAY['Node', concat_ws(', ', item.node, 'system identifier ' || item.system_identifier, item.role,
                                             'behind by ' || round(item.lag_s::numeric, 1) || ' s')] || cells;
        EXCEPTION
            WHEN OTHERS THEN NULL;
        END;
        body := pgscale.report_table(format, '{"",""}'::text[], '{name,prose}'::text[], cells);
        BEGIN
            RETURN body || pgscale.report_paragraph(format, pgscale.report_known(since, until), ''::text);
        EXCEPTION
            WHEN OTHERS THEN
                RETURN body || pgscale.report_paragraph(format, 'Nothing is known of the waits: ' || SQLERRM || '.', 'missing'::text);
        END;

    WHEN 'summary' THEN
        WITH waits AS MATERIALIZED (
            SELECT t.*, pgscale.report_what(t.event_type, t.event) AS what, t.event IS NOT DISTINCT FROM 'IdleInTransaction' AS idle
              FROM pgscale.top_waits(since, until, 'event'::text, 1000) t),
        total AS (
            SELECT sum(w.wait_ms) FILTER (WHERE NOT w.idle) AS ms, sum(w.active_sessions) FILTER (WHERE NOT w.idle) AS active,
                   sum(w.active_sessions) FILTER (WHERE w.idle) AS idle
              FROM waits w),
        wait AS (
            SELECT coalesce('waiting for ' || nullif(w.what, substring(w.what FROM '^[(].*')),
                            CASE w.item WHEN 'CPU' THEN 'running, or ready to run' ELSE 'in ' || w.item END) AS what, sum(w.wait_ms) AS ms
              FROM waits w WHERE w.item <> 'other' AND NOT w.idle GROUP BY 1 ORDER BY 2 DESC LIMIT 1),
        query AS (
            SELECT i.queryid, i.active_sessions
              FROM pgscale.past_items(since, until, 'query'::text, 100) i
             WHERE i.kind = 'named' AND i.active_sessions > 0
             ORDER BY 2 DESC, 1 LIMIT 1)
        SELECT pgscale.report_paragraph(format, concat_ws(' ',
                   (SELECT r.sentence FROM pgscale.report_blame(since, until) r),
                   format('On average %s sessions were active%s.', round(coalesce(total.active, 0)::numeric, 1),
                          ', and ' || nullif(round(total.idle::numeric, 1), 0) || ' were idle in a transaction'),
                   (SELECT format('Those that were active spent %s %% of their time %s.', round((100 * wait.ms / total.ms)::numeric), wait.what)
                      FROM wait),
                   (SELECT format('The statement that took most of it, %s %%, is%s', round((100 * q.active_sessions / total.active)::numeric),
                                  coalesce(': ' || pgscale.report_line(x.query),
                                           format(' the one with queryid %s, whose text is not known.', q.queryid)))
                      FROM query q LEFT JOIN pgscale.past_queries(ARRAY[q.queryid]) x ON true)), ''::text)
          INTO body
          FROM total
         WHERE EXISTS (SELECT FROM waits w WHERE w.wait_ms > 0);
        RETURN coalesce(body, pgscale.report_paragraph(format, 'No session was active, as far as is known.', ''::text));

    WHEN 'activity' THEN
        RETURN pgscale.report_activity(since, until, NULL, format);

    WHEN 'load' THEN
        IF pg_is_in_recovery() THEN
            RETURN pgscale.report_paragraph(format, 'This server is a standby: the archive that it has is of its primary.', 'missing'::text);
        END IF;
        -- a row that lies in the period in part counts by its part
        SELECT sum(m.period_s * m.part) AS s, sum(m.commits * m.part) AS commits, sum(m.rollbacks * m.part) AS rollbacks,
               sum(m.blocks_read * m.part) AS blocks_read,
               sum(m.blocks_read * m.part) / nullif(sum((m.blocks_read + m.blocks_hit) * m.part), 0) AS missed,
               sum(m.wal_bytes * m.part)::bigint AS wal_bytes, sum(m.wal_buffers_full * m.part) AS full,
               sum(m.checkpoints_timed * m.part) AS timed, sum(m.checkpoints_requested * m.part) AS requested,
               sum(m.temp_bytes * m.part)::bigint AS temp_bytes, sum(m.deadlocks * m.part) AS deadlocks, sum(m.conflicts * m.part) AS conflicts,
               sum(m.rows_inserted * m.part) AS inserted, sum(m.rows_updated * m.part) AS updated, sum(m.rows_deleted * m.part) AS deleted,
               string_agg(DISTINCT m.node, ', ') FILTER (WHERE m.node <> (SELECT pgscale.report_node())) AS nodes
          INTO item
          FROM (SELECT a.*, extract(epoch FROM least(a.at + a.period_s * interval '1 s', until) - greatest(a.at, since))::float8 / a.period_s AS part
                  FROM pgscale.archive_minutes a
                 WHERE a.at > since - interval '1 day' AND a.at < until AND a.period_s > 0) m
         WHERE m.part > 0;
        IF item.s IS NULL THEN
            RETURN pgscale.report_paragraph(format, 'The archive of this database has nothing of the period.', 'missing'::text);
        END IF;
        SELECT pgscale.report_table(format, '{"",total,"a second"}'::text[], '{name,count,number}'::text[],
                   array_agg(ARRAY[c.name, round(c.value)::text, (c.value / item.s)::text] ORDER BY c.n))
               || pgscale.report_paragraph(format, format('The archive has %s s of the period%s. %s %% of the blocks that statements asked for were not in shared buffers; %s of WAL and %s of temporary files were written.',
                      round(item.s), ', in part of another server, ' || item.nodes, round((100 * coalesce(item.missed, 0))::numeric, 1), pg_size_pretty(item.wal_bytes), pg_size_pretty(item.temp_bytes)), ''::text)
          INTO body
          FROM unnest(ARRAY['transactions committed', 'rolled back', 'rows inserted', 'rows updated', 'rows deleted', 'blocks read',
                            'WAL buffers full', 'timed checkpoints', 'requested checkpoints', 'deadlocks', 'conflicts'],
                      ARRAY[item.commits, item.rollbacks, item.inserted, item.updated, item.deleted, item.blocks_read,
                            item.full, item.timed, item.requested, item.deadlocks, item.conflicts]::float8[]) WITH ORDINALITY c (name, value, n);
        RETURN body;

    -- two periods
    WHEN 'periods' THEN
        RETURN pgscale.report_table(format, '{period,since,until,known}'::text[], '{name,name,name,prose}'::text[], ARRAY[
            ['1', date_trunc('second', since)::text, date_trunc('second', until)::text, pgscale.report_known(since, until)],
            ['2', date_trunc('second', since2)::text, date_trunc('second', until2)::text, pgscale.report_known(since2, until2)]]);

    WHEN 'activities' THEN
        SELECT max(t.total) INTO item
          FROM (SELECT sum(a.active_sessions) AS total FROM pgscale.activity(since, until, pgscale.report_bucket(until - since, buckets) * interval '1 s') a GROUP BY a.at
                UNION ALL
                SELECT sum(a.active_sessions) FROM pgscale.activity(since2, until2, pgscale.report_bucket(until2 - since2, buckets) * interval '1 s') a GROUP BY a.at) t;
        body := pgscale.report_activity(since, until, item.max, format);
        RETURN CASE WHEN html THEN '<div class="two"><div><h3>1</h3>' || body || '</div><div><h3>2</h3>'
                                   || pgscale.report_activity(since2, until2, item.max, format) || '</div></div>'
                    ELSE body || pgscale.report_activity(since2, until2, item.max, format) END;

    WHEN 'differences' THEN
        SELECT string_agg(pgscale.report_paragraph(format, 'By ' || k.kind, 'list'::text)
                   || pgscale.report_table(format, ARRAY[k.kind, 'sessions in 1', 'sessions in 2', 'difference', 'share in 1', 'share in 2'],
                                           ARRAY[CASE k.kind WHEN 'query' THEN 'query' ELSE 'name' END, 'number', 'number', 'change', 'share', 'share'],
                                           k.cells), '' ORDER BY k.n)
          INTO body
          FROM (SELECT k.kind, k.n, array_agg(ARRAY[
                           CASE k.kind WHEN 'query' THEN coalesce(pgscale.clean_statement(q.query), w.item) ELSE w.item END,
                           w.active_sessions_1::text, w.active_sessions_2::text, w.difference::text, w.fraction_1::text, w.fraction_2::text]
                           ORDER BY w.ordinality) AS cells
                  FROM unnest('{event,query,application,user,database}'::text[]) WITH ORDINALITY k (kind, n)
                  CROSS JOIN LATERAL pgscale.compare_waits(since, until, since2, until2, k.kind, 10) WITH ORDINALITY w
                  LEFT JOIN LATERAL (
                       SELECT p.query FROM pgscale.past_queries(ARRAY[w.item::bigint]) p
                        WHERE k.kind = 'query' AND w.item ~ '^-?[0-9]+$' LIMIT 1) q ON true
                 GROUP BY k.kind, k.n) k;
        RETURN body;

    WHEN 'changes' THEN
        SELECT pgscale.report_table(format, '{"at",what}'::text[], '{name,prose}'::text[],
                   array_agg(ARRAY[date_trunc('second', m.at)::text, m.mark] ORDER BY m.at))
          INTO body
          FROM pgscale.report_marks(least(since, since2), greatest(until, until2)) m
         WHERE m.kind <> 'checkpoint';
        RETURN coalesce(nullif(body, ''), pgscale.report_paragraph(format, 'Nothing that pgscale knows of.', 'note'::text));

    WHEN 'waits' THEN
        WITH w AS MATERIALIZED (
            SELECT t.rank, t.item, t.active_sessions, t.fraction, t.wait_ms, pgscale.report_what(t.event_type, t.event) AS what,
                   pgscale.wait_kind(t.event_type, t.event) AS kind, t.event_type, t.event
              FROM pgscale.top_waits(since, until, 'event'::text, 12) t),
        blame AS MATERIALIZED (SELECT b.idle FROM pgscale.report_blame(since, until) b WHERE EXISTS (SELECT FROM w WHERE w.event_type = 'Lock')),
        help AS (
            SELECT w.what, sum(w.fraction) AS fraction, (array_agg(m.meaning ORDER BY w.rank))[1] AS meaning,
                   (array_agg(m.remedy ORDER BY w.rank))[1] AS remedy
              FROM (SELECT w.*, w.event = 'IdleInTransaction' AS idle, w.event_type = 'Lock' AND w.kind <> 'lock_extend' AND b.idle AS blocked
                      FROM w LEFT JOIN blame b ON true) w
              CROSS JOIN LATERAL (
                   SELECT CASE WHEN w.idle THEN 'a session has a transaction open and waits for its client''s next statement'
                               ELSE 'a session waits for a transaction that is idle: see who was in the way' END AS meaning,
                          'shorter transactions, with no work of the application between their statements; '
                          'idle_in_transaction_session_timeout' AS remedy
                    WHERE w.idle OR w.blocked
                   UNION ALL
                   (SELECT CASE WHEN k.cured_in <= pgscale.major() THEN k.cured_meaning ELSE k.meaning END, k.remedy
                      FROM pgscale.wait_meanings k
                     WHERE k.kind = w.kind AND NOT w.idle AND NOT w.blocked LIMIT 1)) m
             WHERE w.kind <> 'other' OR w.idle
             GROUP BY w.what
            HAVING sum(w.fraction) >= 0.05)
        SELECT pgscale.report_table(format, '{wait,sessions,share,time,"it waits for"}'::text[], '{name,number,share,ms,prose}'::text[],
                   (SELECT array_agg(ARRAY[w.item, w.active_sessions::text, w.fraction::text, w.wait_ms::text, w.what] ORDER BY w.rank)
                      FROM w WHERE w.wait_ms > 0))
               || coalesce((SELECT pgscale.report_paragraph(format, 'What helps', 'list'::text)
                         || pgscale.report_table(format, '{"it waits for",share,"what happens","what helps"}'::text[], '{name,share,prose,prose}'::text[],
                                array_agg(ARRAY[h.what, h.fraction::text, h.meaning, h.remedy] ORDER BY h.fraction DESC))
                      FROM (SELECT * FROM help ORDER BY help.fraction DESC LIMIT 5) h HAVING count(*) > 0), '')
          INTO body;
        RETURN body;

    WHEN 'queries' THEN
        WITH q AS MATERIALIZED (
            SELECT * FROM pgscale.top_waits(since, until, 'query'::text, 10)),
        waits AS (
            SELECT w.queryid, string_agg(format('%s %s %%', w.item, round(100 * w.share)), ', ' ORDER BY w.share DESC) AS waits
              FROM (SELECT q.queryid, i.item, i.kind, i.rank, (i.wait_ms / nullif(sum(i.wait_ms) OVER (PARTITION BY q.queryid), 0))::numeric AS share
                      FROM q CROSS JOIN LATERAL pgscale.past_items(since, until, 'event'::text, 5, q.queryid) i
                     WHERE q.queryid IS NOT NULL) w
             WHERE w.kind = 'named' AND w.rank <= 4 AND w.share >= 0.01
             GROUP BY w.queryid)
        SELECT pgscale.report_table(format, '{query,sessions,share,time,"its waits"}'::text[], '{query,number,share,ms,prose}'::text[],
                   array_agg(ARRAY[
                       CASE WHEN q.query IS NOT NULL THEN pgscale.clean_statement(q.query)
                            WHEN q.queryid IS NOT NULL THEN format('(query %s, whose text is not known)', q.queryid)
                            WHEN q.item = 'other' THEN '(all others)'
                            ELSE '(no query: between statements, or before a statement has its identifier)' END,
                       q.active_sessions::text, q.fraction::text, q.wait_ms::text, waits.waits] ORDER BY q.rank))
          INTO body
          FROM q LEFT JOIN waits ON waits.queryid = q.queryid AND q.item <> 'other'
         WHERE q.wait_ms > 0;
        RETURN body;

    WHEN 'sessions' THEN
        SELECT pgscale.report_table(format, '{by,name,sessions,share,time}'::text[], '{name,name,number,share,ms}'::text[],
                   array_agg(ARRAY[k.kind, w.item, w.active_sessions::text, w.fraction::text, w.wait_ms::text] ORDER BY k.n, w.rank))
          INTO body
          FROM unnest('{application,user,database}'::text[]) WITH ORDINALITY k (kind, n)
          CROSS JOIN LATERAL pgscale.top_waits(since, until, k.kind, 5) w;
        RETURN body;

    WHEN 'blockers' THEN
        SELECT pgscale.report_table(format, '{"in the way",user,state,share,"time waited","while idle","from","to",statement}'::text[],
                   '{name,name,prose,share,ms,share,name,name,query}'::text[],
                   array_agg(ARRAY[r.item, r.usename, r.state, r.fraction::text, r.wait_ms::text, r.idle_fraction::text,
                                   to_char(r.first_seen, t.form), to_char(r.last_seen, t.form), pgscale.clean_statement(r.query)]
                             ORDER BY r.rank))
          INTO body
          FROM pgscale.report_roots(since, until) r, (SELECT CASE WHEN until::date = since::date THEN 'HH24:MI:SS' ELSE 'MM-DD HH24:MI' END) t (form);
        SELECT body || pgscale.report_paragraph(format, 'At this moment', 'list'::text)
                    || pgscale.report_table(format, '{process,waiters,waited,activity,application,query}'::text[],
                                            '{prose,count,ms,prose,name,query}'::text[], array_agg(b.row ORDER BY b.n)) AS now,
               count(*) AS rows
          INTO item
          FROM (SELECT ARRAY[repeat('> ', least(b.depth, 8)) || coalesce(b.pid::text, 'prepared ' || b.gid),
                             b.waiters::text, b.waited_ms::text, coalesce('waits for ' || b.waits_for, b.state),
                             b.application_name, pgscale.clean_statement(b.query)] AS row, row_number() OVER () AS n
                  FROM pgscale.blockers() b LIMIT 30) b;
        RETURN CASE WHEN item.rows > 0 THEN item.now
                    ELSE body || pgscale.report_paragraph(format, 'At this moment nobody waits for a lock.', 'note'::text) END;

    WHEN 'buffers' THEN
        SELECT pgscale.report_table(format, '{"usage count",buffers,share,dirty,pinned}'::text[], '{name,count,share,count,count}'::text[],
                   array_agg(ARRAY[coalesce(u.usage_count::text, 'no page'), u.buffers::text, u.fraction::text, u.dirty::text, u.pinned::text]
                             ORDER BY u.usage_count NULLS FIRST))
          INTO body
          FROM pgscale.buffer_usage_sample(16384) u;
        SELECT pgscale.report_paragraph(format, format('Shared buffers have %s. %s', current_setting('shared_buffers'), c.reason), ''::text) || body
          INTO body
          FROM pgscale.clock_sweep() c;
        RETURN body || pgscale.report_paragraph(format, 'By database, since its statistics were reset', 'list'::text)
            || coalesce((SELECT pgscale.report_table(format, '{database,"blocks read","found in buffers","mean read",transactions,"temporary files"}'::text[],
                                     '{name,count,share,ms,count,bytes}'::text[],
                       array_agg(ARRAY[d.datname::text, d.blks_read::text, (d.blks_hit / nullif(d.blks_hit + d.blks_read, 0)::float8)::text,
                                       CASE WHEN d.blk_read_time > 0 THEN (d.blk_read_time / nullif(d.blks_read, 0))::text END,
                                       (d.xact_commit + d.xact_rollback)::text, d.temp_bytes::text] ORDER BY d.blks_read DESC))
                   FROM (SELECT * FROM pg_stat_database WHERE datname IS NOT NULL AND blks_hit + blks_read > 0
                          ORDER BY blks_read DESC LIMIT 8) d), '');

    WHEN 'sweeper' THEN
        SELECT pgscale.report_table(format, '{worker,mode,state,consumed,starved,written,"backend writes",reason}'::text[],
                   '{name,name,name,count,count,count,count,prose}'::text[],
                   array_agg(ARRAY[s.worker::text, s.mode, s.state, s.consumed::text, s.starved::text, s.written::text,
                                   s.backend_writes::text, s.reason] ORDER BY s.worker))
          INTO body
          FROM pgscale.sweeper_stats() s;
        RETURN body;

    WHEN 'writeback' THEN
        SELECT pgscale.report_paragraph(format, format('The controller is %s: %s.', w.state, w.reason), ''::text)
               || pgscale.report_table(format, '{"dirty in the kernel","of this cluster","under writeback","written by the server","asked for","I/O pressure"}'::text[],
                      '{bytes,bytes,bytes,bytes,bytes,share}'::text[],
                      ARRAY[w.dirty_bytes::text, w.cluster_dirty_bytes::text, w.writeback_bytes::text, w.written_bytes::text,
                            w.requested_bytes::text, w.io_pressure_fraction::text])
          INTO body
          FROM pgscale.writeback_stats() w;
        RETURN body;

    WHEN 'wal' THEN
        SELECT pgscale.report_table(format, '{"WAL since the reset",records,"page images","buffers full","since"}'::text[], '{bytes,count,count,count,name}'::text[],
                   ARRAY[w.wal_bytes::text, w.wal_records::text, w.wal_fpi::text, w.wal_buffers_full::text,
                         date_trunc('second', w.stats_reset)::text])
          INTO body
          FROM pg_stat_wal w;
        IF pgscale.major() >= 17 THEN
            EXECUTE 'SELECT num_timed AS timed, num_requested AS requested, write_time AS write_ms, sync_time AS sync_ms,
                            buffers_written AS buffers, stats_reset FROM pg_stat_checkpointer' INTO item;
        ELSE
            EXECUTE 'SELECT checkpoints_timed AS timed, checkpoints_req AS requested, checkpoint_write_time AS write_ms,
                            checkpoint_sync_time AS sync_ms, buffers_checkpoint AS buffers, stats_reset FROM pg_stat_bgwriter' INTO item;
        END IF;
        body := body || pgscale.report_table(format, '{"timed checkpoints",requested,"buffers written",writing,syncing,"since"}'::text[],
                    '{count,count,count,ms,ms,name}'::text[],
                    ARRAY[item.timed::text, item.requested::text, item.buffers::text, item.write_ms::text, item.sync_ms::text,
                          date_trunc('second', item.stats_reset)::text]);
        BEGIN
            body := body || pgscale.report_paragraph(format, (SELECT w.reason FROM pgscale.wal_efficiency w), ''::text);
        EXCEPTION
            WHEN OTHERS THEN NULL;      -- its evidence needs preload
        END;
        RETURN body || coalesce((SELECT pgscale.report_table(format, '{standby,state,sync,"not yet replayed"}'::text[], '{name,name,name,bytes}'::text[],
                       array_agg(ARRAY[r.application_name, r.state, r.sync_state,
                                       pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() ELSE pg_current_wal_lsn() END,
                                                       r.replay_lsn)::text]))
                   FROM (SELECT * FROM pg_stat_replication LIMIT 20) r), '');

    WHEN 'relocation' THEN
        SELECT pgscale.report_table(format, '{job,kind,relation,"from","to",state,size,requested,message}'::text[],
                   '{count,name,name,name,name,name,bytes,name,prose}'::text[],
                   array_agg(ARRAY[j.job::text, j.kind, j.relation, j.source::text, j.target::text, j.state, j.size_bytes::text,
                                   date_trunc('second', j.requested_at)::text, j.message] ORDER BY j.job DESC))
          INTO body
          FROM (SELECT * FROM pgscale.relocation_jobs ORDER BY job DESC LIMIT 10) j;
        RETURN coalesce(nullif(body, ''), pgscale.report_paragraph(format, 'No job has been requested in this database.', 'note'::text));

    WHEN 'advice' THEN
        SELECT pgscale.report_table(format, '{advice,"may gain",now,recommended,why,risk}'::text[],
                   '{name,share,name,prose,prose,prose}'::text[],
                   array_agg(ARRAY[coalesce(a.setting, a.object, a.rule), a.gain::text,
                                   CASE WHEN a.setting IS NULL OR NOT pgscale.is_secret(a.setting, a.current) THEN a.current
                                        ELSE '(hidden)' END,
                                   a.recommended, concat_ws('; ', a.reason, 'confidence ' || a.confidence, 'needs ' || a.needs), a.risk]
                             ORDER BY a.gain DESC NULLS LAST))
               || CASE WHEN count(a.setting) > 0 THEN
                      pgscale.report_paragraph(format, 'Statements to copy', 'list'::text)
                      || pgscale.report_table(format, '{""}'::text[], '{statement}'::text[],
                             array_agg(ARRAY[format(CASE s.context WHEN 'postmaster' THEN 'CALL pgscale.apply(%L); -- then restart the server'
                                                                   ELSE 'CALL pgscale.apply(%L, reload => true);' END, a.setting)]
                                       ORDER BY a.gain DESC NULLS LAST)
                                 FILTER (WHERE a.setting IS NOT NULL))
                  ELSE '' END
          INTO body
          FROM (SELECT * FROM pgscale.advice LIMIT 20) a
          LEFT JOIN pg_settings s ON s.name = a.setting;
        RETURN coalesce(nullif(body, ''), pgscale.report_paragraph(format,
            'There is none: no rule found anything in the last ten minutes that a change would gain by.', 'note'::text));

    WHEN 'scalability' THEN
        SELECT pgscale.report_table(format, '{"best at",throughput,"now at","throughput now",status}'::text[], '{number,number,number,number,prose}'::text[],
                   ARRAY[s.peak_concurrency::text, s.peak_throughput::text, s.concurrency::text, s.throughput::text, s.status])
          INTO body
          FROM pgscale.scalability() s;
        RETURN body;

    WHEN 'health' THEN
        SELECT pgscale.report_table(format, '{feature,state,why,"what to do"}'::text[], '{name,name,prose,prose}'::text[],
                   array_agg(ARRAY[h.feature, h.state, h.reason, h.action]))
          INTO body
          FROM pgscale.health() h;
        RETURN body;

    WHEN 'settings' THEN
        SELECT pgscale.report_table(format, '{setting,value,default,source}'::text[], '{name,prose,prose,name}'::text[],
                   array_agg(ARRAY[s.name, CASE WHEN s.secret THEN '(hidden)' ELSE s.value END, CASE WHEN s.secret THEN '' ELSE s.boot END,
                                   s.source] ORDER BY s.name))
          INTO body
          FROM (SELECT s.name, left(pgscale.setting_text(s.setting, s.unit), 200) AS value,
                       left(pgscale.setting_text(s.boot_val, s.unit), 200) AS boot, s.source,
                       pgscale.is_secret(s.name, s.setting) AS secret
                  FROM pg_settings s
                 WHERE s.source NOT IN ('default', 'override', 'client', 'session', 'interactive', 'test')
                   AND s.setting IS DISTINCT FROM s.boot_val
                 ORDER BY s.name LIMIT 150) s;
        RETURN body;

    ELSE
        RAISE EXCEPTION 'there is no part "%" of a report', left(part, 40)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'pgscale.report() has them all.';
    END CASE;
END
$$;
COMMENT ON FUNCTION pgscale.report_part(text, timestamptz, timestamptz, timestamptz, timestamptz, text) IS
'part of report: one of its parts; raises an error if it cannot be had';

-- A part, or a sentence that says why there is none. A cancel is not for it: WHEN OTHERS leaves that alone.
CREATE FUNCTION pgscale.report_section(
    part text, title text, about text, since timestamptz, until timestamptz, since2 timestamptz, until2 timestamptz, format text)
RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    body text;
    why text;
BEGIN
    BEGIN
        body := pgscale.report_part(part, since, until, since2, until2, format);
        IF coalesce(body, '') = '' THEN
            why := 'There is nothing to show.';
        END IF;
    EXCEPTION
        WHEN insufficient_privilege THEN
            why := 'This part is not for the role that asked: ' || SQLERRM || '.';
        WHEN lock_not_available THEN
            why := 'This part is missing: another session holds a lock on what it reads.';
        WHEN OTHERS THEN
            why := 'This part is missing: ' || SQLERRM || '.';
    END;
    body := pgscale.report_paragraph(format, title, 'part'::text)
            || pgscale.report_paragraph(format, CASE WHEN why IS NULL THEN about END, 'note'::text)
            || CASE WHEN why IS NULL THEN body ELSE pgscale.report_paragraph(format, why, 'missing'::text) END;
    RETURN CASE format WHEN 'html' THEN '<section id="' || part || E'">\n' || body || E'</section>\n' ELSE body END;
END
$$;
COMMENT ON FUNCTION pgscale.report_section(text, text, text, timestamptz, timestamptz, timestamptz, timestamptz, text) IS
'part of report: a part with its title, or a sentence that says why there is none';

-- The frame of a page: no script, nothing from elsewhere.
CREATE FUNCTION pgscale.report_page(title text, body text)
RETURNS text
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $page$
    SELECT $html$<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>$html$ || replace(replace(replace(pgscale.report_paragraph('html'::text, title, ''::text), '<p>', ''), '</p>', ''), E'\n', '') || $html$</title>
<style>
:root{--bg:#fff;--card:#fff;--fg:#1c2330;--dim:#66707f;--line:#e3e7ec;--soft:#f4f6f8;--acc:#2f6fd0;--mark:#b3261e;
--w0:#3f9c62;--w1:#3b78d0;--w2:#8f5bc4;--w3:#d2483f;--w4:#22a3a8;--w5:#dd9f1f;--w6:#8d6a3f;--w7:#8b97a8;--w8:#c9629c;--w9:#a9b2bd;--w10:#e8e2c9}
@media (prefers-color-scheme:dark){:root{--bg:#14181f;--card:#1a1f28;--fg:#dfe4ec;--dim:#97a1b0;--line:#2c3440;--soft:#202733;--acc:#6ea3f0;--mark:#ff8a80;
--w0:#4fb377;--w1:#5a93e6;--w2:#a97be0;--w3:#e8665d;--w4:#35babf;--w5:#e9b344;--w6:#ab8555;--w7:#8b97a8;--w8:#dd7db3;--w9:#6d7885;--w10:#4a4634}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",Arial,sans-serif;-webkit-text-size-adjust:100%}
main{max-width:1080px;margin:0 auto;padding:24px 20px 48px}
h1{font-size:22px;line-height:1.3;margin:0 0 16px;overflow-wrap:anywhere}
h2{font-size:16px;margin:0 0 4px}
section{margin:0 0 28px;padding:20px 0 0;border-top:1px solid var(--line)}
#period,#periods{border-top:0;padding-top:0}#period h2{display:none}
p{margin:4px 0 10px;max-width:76ch;overflow-wrap:anywhere}
p.m{color:var(--dim);font-size:13px}
p.x{color:var(--dim);background:var(--soft);border-left:3px solid var(--line);padding:8px 12px}
h3{font-size:13px;margin:18px 0 2px;color:var(--dim);font-weight:600}
table{border-collapse:collapse;width:100%;margin:8px 0 12px;font-variant-numeric:tabular-nums}
th{font-size:12px;font-weight:600;color:var(--dim);text-align:left;vertical-align:bottom;padding:4px 16px 4px 0;border-bottom:1px solid var(--line)}
td{padding:5px 16px 5px 0;vertical-align:top;border-bottom:1px solid var(--line);overflow-wrap:anywhere}
tr>:last-child{padding-right:0}
th.n,td.n{text-align:right;white-space:nowrap}
td.w{min-width:7em}
td.p{min-width:14em;max-width:40em}
th.s,td.s{white-space:nowrap;width:152px;text-align:right}
.b{float:left;width:64px;height:8px;margin:7px 8px 0 0;background:var(--soft);border-radius:2px;overflow:hidden}
.b i{display:block;height:100%;background:var(--acc)}
code,pre{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace}
td.q{min-width:18em}
td.c code{user-select:all;background:var(--soft);padding:2px 6px;border-radius:3px;-webkit-box-decoration-break:clone;box-decoration-break:clone}
summary{cursor:pointer}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--soft);padding:10px 12px;border-radius:4px;margin:6px 0}
figure{margin:12px 0 8px}
.chart{position:relative;margin:0 0 34px 34px;padding-top:20px}
.chart svg{display:block;width:100%;height:230px;border-left:1px solid var(--line);border-bottom:1px solid var(--line)}
.chart path.grid{stroke:var(--line);stroke-width:1;fill:none;vector-effect:non-scaling-stroke}
.chart path.cpus{stroke:var(--fg);stroke-width:1.3;stroke-dasharray:5 4;fill:none;vector-effect:non-scaling-stroke}
.chart path.mark{stroke:var(--mark);stroke-width:1.3;fill:none;vector-effect:non-scaling-stroke}
.chart path.gap{fill:var(--soft)}
.chart rect{fill:transparent}.chart rect:hover{fill:var(--fg);fill-opacity:.12}
.chart .y,.chart .x,.chart .n{font-size:11px;color:var(--dim)}
.chart .y{position:absolute;left:-34px;width:28px;top:20px;height:230px;text-align:right}
.chart .y span{position:absolute;right:0;transform:translateY(50%);line-height:1}
.chart .x span{position:absolute;top:254px;transform:translateX(-50%);white-space:nowrap}
.chart .n span{position:absolute;top:0;transform:translateX(-50%);min-width:16px;text-align:center;line-height:16px;border-radius:8px;background:var(--mark);color:var(--bg);font-size:10px;font-weight:600;padding:0 3px}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 16px;margin:0 0 8px 34px;padding:0;font-size:13px}
.legend i{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:6px;vertical-align:-1px}
.legend i.gap{background:var(--soft);border:1px solid var(--line)}
.legend i.cpus{height:0;border-top:2px dashed var(--fg);border-radius:0;vertical-align:3px;width:14px}
.legend b{font-weight:600}
.marks{margin:0 0 8px 34px;padding-left:18px;font-size:13px;color:var(--dim)}
.marks b{color:var(--fg);font-weight:600;font-variant-numeric:tabular-nums}
path.w0{fill:var(--w0)}i.w0{background:var(--w0)}path.w1{fill:var(--w1)}i.w1{background:var(--w1)}
path.w2{fill:var(--w2)}i.w2{background:var(--w2)}path.w3{fill:var(--w3)}i.w3{background:var(--w3)}
path.w4{fill:var(--w4)}i.w4{background:var(--w4)}path.w5{fill:var(--w5)}i.w5{background:var(--w5)}
path.w6{fill:var(--w6)}i.w6{background:var(--w6)}path.w7{fill:var(--w7)}i.w7{background:var(--w7)}
path.w8{fill:var(--w8)}i.w8{background:var(--w8)}path.w9{fill:var(--w9)}i.w9{background:var(--w9)}
path.w10{fill:var(--w10)}i.w10{background:var(--w10)}
.two{display:grid;grid-template-columns:1fr 1fr;gap:24px}
@media (max-width:700px){
main{padding:16px 14px 32px}
.two{grid-template-columns:1fr}
.chart .x span:nth-child(even){display:none}
thead{display:none}
table,tbody,tr,td{display:block;width:auto!important}
tr{padding:8px 0;border-bottom:1px solid var(--line);display:flex;flex-wrap:wrap;gap:2px 18px}
td{border:0;padding:0;text-align:left!important;min-width:0!important;max-width:100%}
td.e{display:none}
td:first-child{flex:1 0 100%;font-weight:600}
td.p,td.q,td.c{flex:1 0 100%}
td:not(:first-child)::before{content:attr(data-t) " ";color:var(--dim);font-size:12px;font-weight:400}
td:first-child.n::before,td:first-child.s::before{content:attr(data-t) " ";color:var(--dim);font-size:12px;font-weight:400}
.b{margin:6px 8px 0 0}
td.s{width:auto}
}
@media print{
:root{--bg:#fff;--fg:#000;--dim:#444}
main{max-width:none;padding:0}
body{font-size:11px}
section{break-inside:auto}h2,figure,tr{break-inside:avoid}h2{break-after:avoid}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}
}
</style>
</head>
<body>
<main>
$html$ || body || $html$</main>
</body>
</html>
$html$
$page$;
COMMENT ON FUNCTION pgscale.report_page(text, text) IS
'part of report: one self-contained page of HTML';

-- What this server is called.
CREATE FUNCTION pgscale.report_node()
RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT n.node FROM pgscale.node_identity() n);
EXCEPTION
    WHEN OTHERS THEN
        RETURN concat_ws('@', nullif(current_setting('cluster_name'), ''), 'port ' || current_setting('port'));
END
$$;
COMMENT ON FUNCTION pgscale.report_node() IS
'part of report: what this server is called';

-- Nothing is known of the future, nor of what was before all that is known.
CREATE FUNCTION pgscale.report_period(INOUT since timestamptz, INOUT until timestamptz)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    now CONSTANT timestamptz := clock_timestamp();
BEGIN
    IF since >= now THEN
        RAISE EXCEPTION 'the period of a report must not lie in the future'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Choose one that has begun.';
    END IF;
    until := coalesce(least(until, now), now);
    IF since >= until THEN
        RAISE EXCEPTION 'the period of a report must end after its start'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Swap the two times, or leave one out: since is an hour before until, and until is now.';
    END IF;
    IF until < '2000-01-02 00:00:00+00' THEN
        RAISE EXCEPTION 'nothing is known of a time before the year 2000'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Choose a later period.';
    END IF;
    since := coalesce(since, until - interval '1 hour');
    IF since < '2000-01-01 00:00:00+00' THEN
        BEGIN
            SELECT min(c.at) INTO since FROM pgscale.past_coverage(since, until) c;
        EXCEPTION
            WHEN OTHERS THEN since := NULL;
        END;
        since := coalesce(since, until - interval '1 hour');
    END IF;
END
$$;
COMMENT ON FUNCTION pgscale.report_period(timestamptz, timestamptz) IS
'part of report: a period with its defaults, or an error if it is none';

CREATE FUNCTION pgscale.report(
    since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL, format text DEFAULT 'text')
RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '100ms'
SET DateStyle = 'ISO'
SET IntervalStyle = 'postgres'
SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
DECLARE
    name CONSTANT text := pgscale.report_node();
    body text;
    item record;
BEGIN
    SELECT p.since, p.until INTO since, until FROM pgscale.report_period(since, until) p;
    PERFORM pgscale.past_keep(since, until);
    body := pgscale.report_paragraph(format, 'pgscale report: ' || name, 'title'::text);
    FOR item IN
        SELECT *
          FROM (VALUES
            ('period', 'Period', NULL),
            ('summary', 'In short', NULL),
            ('activity', 'Active sessions', 'On average, by what they did: on CPU, or waiting, by class of wait event.'),
            ('waits', 'Top waits', 'Sessions: on average. Share: of database time, in which sessions were active or held others up.'),
            ('queries', 'Top queries', NULL),
            ('sessions', 'Who it was', NULL),
            ('blockers', 'Who was in the way', 'Time that sessions waited for locks, by whom they waited for.'),
            ('advice', 'Advice', 'From the last ten minutes, with the statements that apply it. What they change, pgscale.revert() takes back.'),
            ('load', 'The period in numbers', 'From the archive.'),
            ('buffers', 'Shared buffers', 'As they are at this moment, from a sample.'),
            ('sweeper', 'Sweeper', NULL),
            ('writeback', 'Writeback', 'What the kernel has still to write.'),
            ('wal', 'WAL, checkpoints and standbys', NULL),
            ('relocation', 'Relocation', NULL),
            ('scalability', 'Scalability', 'How many active sessions this server can use, by the Universal Scalability Law.'),
            ('health', 'Health of pgscale', NULL),
            ('settings', 'Settings', 'Those that differ from their defaults. What may be a secret is hidden.')) p (part, title, about)
    LOOP
        body := body || pgscale.report_section(item.part, item.title, item.about, since, until, NULL::timestamptz, NULL::timestamptz, format);
    END LOOP;
    PERFORM pgscale.past_keep(NULL, NULL);
    RETURN CASE format WHEN 'html' THEN pgscale.report_page('pgscale report: ' || name, body) ELSE body END;
END
$$;
COMMENT ON FUNCTION pgscale.report(timestamptz, timestamptz, text) IS
'a period on one page: text for psql, or html for a browser; NULL: the hour before, and now';

CREATE FUNCTION pgscale.report_diff(
    since1 timestamptz, until1 timestamptz, since2 timestamptz, until2 timestamptz, format text DEFAULT 'text')
RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '100ms'
SET DateStyle = 'ISO'
SET IntervalStyle = 'postgres'
SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
DECLARE
    name CONSTANT text := pgscale.report_node();
    body text;
    item record;
BEGIN
    SELECT p.since, p.until INTO since1, until1 FROM pgscale.report_period(since1, until1) p;
    SELECT p.since, p.until INTO since2, until2 FROM pgscale.report_period(since2, until2) p;
    PERFORM pgscale.past_keep(since1, until1), pgscale.past_keep(since2, until2);
    body := pgscale.report_paragraph(format, 'pgscale report of two periods: ' || name, 'title'::text);
    FOR item IN
        SELECT *
          FROM (VALUES
            ('periods', 'Periods', NULL),
            ('activities', 'Active sessions', 'Both to the same scale.'),
            ('differences', 'What differs', 'In average active sessions, the largest difference first.'),
            ('changes', 'What was changed', 'Restarts and settings, from the start of the earlier period to the end of the later.')) p (part, title, about)
    LOOP
        body := body || pgscale.report_section(item.part, item.title, item.about, since1, until1, since2, until2, format);
    END LOOP;
    PERFORM pgscale.past_keep(NULL, NULL);
    RETURN CASE format WHEN 'html' THEN pgscale.report_page('pgscale report of two periods: ' || name, body) ELSE body END;
END
$$;
COMMENT ON FUNCTION pgscale.report_diff(timestamptz, timestamptz, timestamptz, timestamptz, text) IS
'two periods side by side on one page: text for psql, or html for a browser';

---- logical replication

-- The rows of pgscale's tables are about this server, and no other has a use for them; but a publication FOR ALL TABLES
-- includes them.  A subscriber without pgscale would stop at the first row, and one with pgscale at the first equal key.
-- So nothing is sent: logical decoding skips tables that are marked as a rewrite of another one.  And nothing is taken: a
-- trigger, which fires where replication writes and nowhere else, drops what the first copy of a subscription brings.
CREATE FUNCTION pgscale.keep_local()
RETURNS void
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH own AS (
        SELECT c.oid, c.reltoastrelid
          FROM pg_extension e
          JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
               AND d.classid = 'pg_class'::regclass AND d.deptype = 'e'
          JOIN pg_class c ON c.oid = d.objid AND c.relkind IN ('r', 'p')
         WHERE e.extname = 'pgscale')
    UPDATE pg_class c SET relrewrite = c.oid
     WHERE c.relrewrite = 0 AND c.oid IN (SELECT o.oid FROM own o UNION ALL SELECT o.reltoastrelid FROM own o)
$$;
COMMENT ON FUNCTION pgscale.keep_local() IS
'marks the tables of pgscale so that logical decoding skips their rows';

-- Any role that may call health() calls this one, too. So it calls no function of pgscale, which may not be granted to that role.
CREATE FUNCTION pgscale.published()
RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('publication "%s" includes its tables', p.pubname)
      FROM pg_extension e
      JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
           AND d.classid = 'pg_class'::regclass AND d.deptype = 'e'
      JOIN pg_class c ON c.oid = d.objid AND c.relkind IN ('r', 'p')
     CROSS JOIN pg_publication p
      LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid
     WHERE e.extname = 'pgscale'
       -- 19 knows tables that a publication leaves out
       AND CASE WHEN r.oid IS NOT NULL THEN (to_jsonb(r) ->> 'prexcept') IS DISTINCT FROM 'true'
                -- a day of the archive is included with its parent
                WHEN c.relispartition THEN false
                ELSE p.puballtables OR EXISTS (SELECT FROM pg_publication_namespace n
                                                WHERE n.pnpubid = p.oid AND n.pnnspid = c.relnamespace) END
     ORDER BY p.pubname LIMIT 1
$$;
COMMENT ON FUNCTION pgscale.published() IS
'a publication of this database that includes tables of pgscale, in a sentence; NULL if there is none';

CREATE FUNCTION pgscale.discard_replicated()
RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION pgscale.discard_replicated() IS
'trigger on the tables of pgscale: drops rows that logical replication brings from another server';

DO $$
DECLARE
    own regclass;
    published text;
BEGIN
    FOR own IN SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'pgscale'::regnamespace AND c.relkind IN ('r', 'p') LOOP
        EXECUTE format('CREATE TRIGGER discard_replicated BEFORE INSERT OR UPDATE OR DELETE ON %s
            FOR EACH ROW EXECUTE FUNCTION pgscale.discard_replicated()', own);
        EXECUTE format('ALTER TABLE %s ENABLE REPLICA TRIGGER discard_replicated', own);
    END LOOP;
    PERFORM pgscale.keep_local();
    published := pgscale.published();
    IF published IS NOT NULL THEN
        RAISE WARNING 'pgscale: %', published
            USING HINT = 'Subscriptions that exist go on. A new one, and REFRESH PUBLICATION, need these tables there: see "Logical replication" in doc/operations.md.';
    END IF;
END
$$;

---- privileges

REVOKE ALL ON SCHEMA pgscale FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA pgscale FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA pgscale FROM PUBLIC;

GRANT USAGE ON SCHEMA pgscale TO pg_monitor;
-- nothing but their arguments, and in most views: a role to which one view is granted need not be granted these
GRANT EXECUTE ON FUNCTION pgscale.foreign_name(name), pgscale.foreign_text(text, integer), pgscale.major() TO PUBLIC;
-- part of report(), which has for each role what that may see
GRANT EXECUTE ON FUNCTION pgscale.past_keep(timestamptz, timestamptz) TO PUBLIC;
GRANT SELECT ON ALL TABLES IN SCHEMA pgscale TO pg_monitor;
REVOKE ALL ON pgscale.archive_change, pgscale.archive_query, pgscale.archive_setting, pgscale.relocation_job,
    pgscale.tuning_change FROM pg_monitor;
GRANT EXECUTE ON FUNCTION
    pgscale.activity(timestamptz, timestamptz, interval),
    pgscale.blocker_profile(),
    pgscale.blockers(),
    pgscale.buffer_usage(),
    pgscale.buffer_usage_sample(integer),
    pgscale.clean_statement(text),
    pgscale.clean_text(text),
    pgscale.clock_sweep(),
    pgscale.compare_waits(timestamptz, timestamptz, timestamptz, timestamptz, text, integer),
    pgscale.contention(interval),
    pgscale.fleet(),
    pgscale.fleet_advice(),
    pgscale.fleet_ask(text, text[]),
    pgscale.fleet_health(),
    pgscale.fleet_waits(timestamptz, timestamptz, text, integer),
    pgscale.health(),
    pgscale.hot_buffers(),
    pgscale.is_secret(text, text),
    pgscale.lock_waits(),
    pgscale.lwlock_profile(),
    pgscale.lwlock_tranches(),
    pgscale.metrics(text),
    pgscale.node_advice(),
    pgscale.node_identity(),
    pgscale.node_manager(),
    pgscale.node_state(),
    pgscale.numa_buffers(boolean),
    pgscale.numa_nodes(),
    pgscale.past_archive(),
    pgscale.past_coverage(timestamptz, timestamptz),
    pgscale.past_items(timestamptz, timestamptz, text, integer, bigint),
    pgscale.past_queries(bigint[]),
    pgscale.past_waits(timestamptz, timestamptz, double precision),
    pgscale.query_waits(),
    pgscale.query_waits_statements(boolean),
    pgscale.relation_buffers(),
    pgscale.relation_os_cache(regclass),
    pgscale.relocation_clock(double precision),
    pgscale.relocation_reads(),
    pgscale.report(timestamptz, timestamptz, text),
    pgscale.report_activity(timestamptz, timestamptz, double precision, text),
    pgscale.report_blame(timestamptz, timestamptz),
    pgscale.report_bucket(interval, integer),
    pgscale.report_chart(text, timestamptz, timestamptz, double precision, timestamptz[], text[], double precision[],
        double precision[], timestamptz[], text[], double precision),
    pgscale.report_diff(timestamptz, timestamptz, timestamptz, timestamptz, text),
    pgscale.report_known(timestamptz, timestamptz),
    pgscale.report_line(text),
    pgscale.report_marks(timestamptz, timestamptz),
    pgscale.report_node(),
    pgscale.report_page(text, text),
    pgscale.report_paragraph(text, text, text),
    pgscale.report_part(text, timestamptz, timestamptz, timestamptz, timestamptz, text),
    pgscale.report_period(timestamptz, timestamptz),
    pgscale.report_roots(timestamptz, timestamptz),
    pgscale.report_section(text, text, text, timestamptz, timestamptz, timestamptz, timestamptz, text),
    pgscale.report_table(text, text[], text[], text[]),
    pgscale.report_what(text, text),
    pgscale.row_origin(bigint, oid),
    pgscale.sampler_stats(),
    pgscale.scalability(),
    pgscale.setting_text(text, text),
    pgscale.scalability_points(),
    pgscale.sweeper_stats(),
    pgscale.top_waits(timestamptz, timestamptz, text, integer),
    pgscale.trace_history(),
    pgscale.tuning_findings(interval, boolean),
    pgscale.tuning_journal(),
    pgscale.tuning_waits(interval),
    pgscale.usl_fit(double precision, double precision),
    pgscale.usl_fit(double precision[], double precision[]),
    pgscale.usl_predict(pgscale.usl, double precision),
    pgscale.wait_current(integer),
    pgscale.wait_history(timestamptz, timestamptz),
    pgscale.wait_kind(text, text),
    pgscale.wait_kinds(),
    pgscale.wait_profile(),
    pgscale.wait_timeline(interval),
    pgscale.wait_totals(),
    pgscale.wal_efficiency(interval),
    pgscale.writeback_stats()
TO pg_monitor;
