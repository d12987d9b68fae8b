-- The past, from the history in memory and from the archive. Waits are times in milliseconds. They are divided by the known time,
-- so that a gap does not look like an idle server.
--
-- A standby's archive is a copy of its primary's. So a standby uses only its history, what this server did, unless it is asked for a node.

-- The tables of the archive that may be read here.
CREATE FUNCTION pgscale_internal.past_archive(of_node boolean DEFAULT false, OUT minutes regclass, OUT queries regclass)
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
       AND c.relkind IN ('p', 'v') AND (of_node OR NOT pg_is_in_recovery()) AND has_table_privilege(c.oid, 'SELECT')
$$;
COMMENT ON FUNCTION pgscale_internal.past_archive(boolean) IS
'the tables of the archive that top_waits, activity and compare_waits may read here; NULL if they may not';

CREATE FUNCTION pgscale_internal.past_coverage(
    since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL, node text DEFAULT NULL,
    OUT at timestamptz, OUT period_s double precision, OUT known_s double precision, OUT source text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_past_coverage'
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 100
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale_internal.past_coverage(timestamptz, timestamptz, text) IS
'known parts of a period, how much of each is known, and the source; the rest are gaps';
GRANT EXECUTE ON FUNCTION pgscale_internal.past_coverage(timestamptz, timestamptz, text) TO pg_monitor;

CREATE FUNCTION pgscale.past_waits(
    since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL, resolution_s double precision DEFAULT 0, node text DEFAULT NULL,
    OUT at timestamptz, OUT period_s double precision, OUT backend_type text, OUT datid oid, OUT datname name, OUT usename name,
    OUT application_name text, OUT queryid bigint, OUT event_type text, OUT event text, OUT blocker text, OUT wait_ms double precision)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_past_waits'
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10000
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale.past_waits(timestamptz, timestamptz, double precision, text) IS
'waits of a period, from archive and memory, without idle ones; each row is a time of waiting within a part of the period. Errors: invalid_parameter_value, lock_not_available
since: start of the period; NULL: an hour before until; -infinity: the oldest data available
until: end of the period, excluded; NULL, or a time in the future: now
resolution_s: length in seconds of the buckets to which the rows of memory are added up; 0 or NULL: a row per sample
node: name in archive_nodes; of another server the archive is read; NULL: this server
at: start of the part of the period
period_s: length of the part of the period, in seconds
backend_type: kind of process as in pg_stat_activity; also parallel worker, unknown, and other for the rest of a minute of the archive
datid: OID of the database; NULL if the process has none
datname: name of the database; NULL if the process has none or it was dropped
usename: name of the session user; NULL if the process has none or it was dropped
application_name: name of the application; NULL if it was not recorded, and for other users'' sessions without pg_read_all_stats
queryid: query identifier; NULL outside a statement or if it is unknown
event_type: type of the wait event as in pg_stat_activity; CPU for a session that does not wait
event: name of the wait event as in pg_stat_activity, or CPU
blocker: of a lock wait: process ID and application of the root blocker; NULL if unknown
wait_ms: time of waiting within that part, in milliseconds';
GRANT EXECUTE ON FUNCTION pgscale.past_waits(timestamptz, timestamptz, double precision, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.past_items(
    since timestamptz, until timestamptz, by text, top integer, of_query bigint DEFAULT NULL, node text DEFAULT NULL,
    OUT rank integer, OUT item text, OUT kind text, OUT event_type text, OUT event text,
    OUT active_sessions double precision, OUT idle_in_transaction_sessions double precision, OUT fraction double precision,
    OUT wait_ms double precision, OUT queryid bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_past_items'
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale_internal.past_items(timestamptz, timestamptz, text, integer, bigint, text) IS
'the rows of top_waits, of one query if it is given; kind classifies the item: named, unknown or other';
GRANT EXECUTE ON FUNCTION pgscale_internal.past_items(timestamptz, timestamptz, text, integer, bigint, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.past_keep(since timestamptz, until timestamptz, node text DEFAULT NULL)
RETURNS void
AS 'MODULE_PATHNAME', 'pgscale_past_keep'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale_internal.past_keep(timestamptz, timestamptz, text) IS
'part of report: makes later calls for exactly this period read it only once, until the transaction ends; NULL: discards what is kept';

-- pg_stat_statements hides other users' texts by its own rules. For one text it reads all, and the archive has most of them from there; but
-- the archive itself asks there first, because a text that it has may be a session's.
CREATE FUNCTION pgscale_internal.past_queries(queryids bigint[], for_archive boolean DEFAULT false)
RETURNS TABLE (queryid bigint, query text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 10
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    statements regclass := pgscale_internal.query_waits_statements(false);
    archived regclass;
    source text;
    has_texts boolean := false;
    found_now bigint;
BEGIN
    $1 := ARRAY(SELECT DISTINCT w FROM unnest($1) w WHERE w IS NOT NULL);
    IF $1 = '{}' THEN
        RETURN;
    END IF;
    PERFORM pgscale_internal.short_locks();
    SELECT a.queries INTO archived FROM pgscale_internal.past_archive() a WHERE pg_has_role('pg_read_all_stats', 'USAGE');
    FOREACH source IN ARRAY CASE WHEN $2 THEN '{statements,archive}' ELSE '{archive,statements}' END::text[] LOOP
        CONTINUE WHEN $1 = '{}';
        BEGIN
            IF source = 'archive' AND archived IS NOT NULL THEN
                FOR queryid, query IN EXECUTE format('SELECT s.queryid, pgscale_internal.clean_statement(min(s.query)) FROM %s s WHERE s.queryid = ANY ($1) GROUP BY 1', archived) USING $1 LOOP
                    $1 := array_remove($1, queryid);
                    RETURN NEXT;
                END LOOP;
            ELSIF source = 'statements' AND has_table_privilege(statements, 'SELECT') THEN
                -- first, without texts, whether it has any of these
                EXECUTE (SELECT format('SELECT EXISTS (SELECT FROM %I.pg_stat_statements(false) s WHERE s.queryid = ANY ($1))', n.nspname)
                           FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = statements) INTO has_texts USING $1;
                IF has_texts AND pgscale_internal.query_waits_text_fits(false) THEN
                    FOR queryid, query IN EXECUTE format('SELECT s.queryid, pgscale_internal.clean_statement(min(pgscale_internal.foreign_text(s.query, %s))) FROM %s s
                             WHERE s.queryid = ANY ($1) AND s.query IS NOT NULL GROUP BY 1',
                            (SELECT d.encoding FROM pg_database d WHERE d.datname = current_database()), statements) USING $1 LOOP
                        $1 := array_remove($1, queryid);
                        RETURN NEXT;
                    END LOOP;
                END IF;
            END IF;
        EXCEPTION
            -- a lock; one text that is none in this database's encoding, and it shows nothing at all; or its library is not loaded, or too old
            WHEN lock_not_available OR untranslatable_character OR character_not_in_repertoire OR object_not_in_prerequisite_state
                 OR undefined_column OR undefined_function THEN
                NULL;
        END;
    END LOOP;
    -- it has not ended yet, it was cancelled, or the statistics were reset
    IF $1 <> '{}' THEN
        RETURN QUERY SELECT s.queryid, s.query FROM pgscale_internal.session_queries($1) s;
        GET DIAGNOSTICS found_now = ROW_COUNT;
        IF has_texts AND found_now < cardinality($1) THEN
            PERFORM pgscale_internal.query_waits_text_fits(true);
        END IF;
    END IF;
END
$$;
COMMENT ON FUNCTION pgscale_internal.past_queries(bigint[], boolean) IS
'cleaned texts of queries, from the archive, otherwise from pg_stat_statements if it is installed, otherwise from pg_stat_activity and the sampler''s memory; other users'' only with pg_read_all_stats';

CREATE FUNCTION pgscale.top_waits(
    since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL, by text DEFAULT 'event', top integer DEFAULT 10,
    node text DEFAULT NULL)
RETURNS TABLE (rank integer, item text, event_type text, event text, active_sessions double precision,
    fraction double precision, wait_ms double precision, queryid bigint, query text, idle_in_transaction_sessions double precision)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 10
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        WITH items AS MATERIALIZED (SELECT * FROM pgscale_internal.past_items($1, $2, $3, $4, NULL, $5))
        SELECT i.rank, i.item, i.event_type, i.event, pgscale_internal.three_digits(i.active_sessions),
               pgscale_internal.three_digits(i.fraction), pgscale_internal.three_digits(i.wait_ms), i.queryid, q.query,
               pgscale_internal.three_digits(i.idle_in_transaction_sessions)
          FROM items i
          LEFT JOIN pgscale_internal.past_queries(ARRAY(SELECT a.queryid FROM items a)) q USING (queryid)
         ORDER BY i.rank;
END
$$;
COMMENT ON FUNCTION pgscale.top_waits(timestamptz, timestamptz, text, integer, text) IS
'what sessions waited for in a period, longest first. Errors: invalid_parameter_value, lock_not_available, undefined_object for an unknown node
since: start of the period; NULL: an hour before until; -infinity: the oldest data available
until: end of the period, excluded; NULL, or a time in the future: now
by: event, class, query, database, user, application, backend_type or blocker
top: number of rows, 1 to 1,000,000; the rest is one more row, other
node: name in archive_nodes; of another server the archive is read; NULL: this server
rank: 1 for the longest; the row other is last
item: what the row is about, by the argument by; unknown: the attribute is not known; other: the rest
event_type: type of the wait event of the item''s longest wait
event: name of the wait event of the item''s longest wait
active_sessions: average number of active sessions in these waits, over the known time
fraction: fraction of database time, 0 to 1; NULL for server processes
wait_ms: time of these waits, in milliseconds
queryid: query identifier of the item''s longest wait; NULL if unknown
query: text of that query; NULL if unknown, and for other users'' queries without pg_read_all_stats
idle_in_transaction_sessions: average number of sessions that were idle in a transaction, over the known time';
GRANT EXECUTE ON FUNCTION pgscale.top_waits(timestamptz, timestamptz, text, integer, text) TO pg_monitor;

CREATE FUNCTION pgscale.activity(
    since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL, bucket interval DEFAULT NULL, node text DEFAULT NULL,
    OUT at timestamptz, OUT event_type text, OUT active_sessions double precision, OUT coverage_fraction double precision)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_activity'
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 500
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale.activity(timestamptz, timestamptz, interval, text) IS
'average number of sessions over time, by class of wait event. Errors: as top_waits()
since: start of the period; NULL: an hour before until; -infinity: the oldest data available
until: end of the period, excluded; NULL, or a time in the future: now
bucket: length of the parts of the period, from a second on, at most 100,000 parts; NULL: a length that makes at most 61
node: name in archive_nodes; of another server the archive is read; NULL: this server
at: start of the bucket
event_type: class of wait event; CPU; IdleInTransaction: idle in a transaction; NULL: nothing is known of this time
active_sessions: average number of sessions in that class; NULL where nothing is known
coverage_fraction: known part of the whole bucket, 0 to 1';
GRANT EXECUTE ON FUNCTION pgscale.activity(timestamptz, timestamptz, interval, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.past_differences(
    since1 timestamptz, until1 timestamptz, since2 timestamptz, until2 timestamptz, by text, top integer, node text DEFAULT NULL)
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
        WITH one AS (SELECT * FROM pgscale_internal.past_items($1, $2, $5, everything, NULL, $7)),
        two AS (SELECT * FROM pgscale_internal.past_items($3, $4, $5, everything, NULL, $7)),
        known AS (SELECT (SELECT sum(c.known_s) > 0 FROM pgscale_internal.past_coverage($1, $2, $7) c) AS one,
                         (SELECT sum(c.known_s) > 0 FROM pgscale_internal.past_coverage($3, $4, $7) c) AS two),
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
COMMENT ON FUNCTION pgscale_internal.past_differences(timestamptz, timestamptz, timestamptz, timestamptz, text, integer, text) IS
'the rows of compare_waits, not rounded';
GRANT EXECUTE ON FUNCTION pgscale_internal.past_differences(timestamptz, timestamptz, timestamptz, timestamptz, text, integer, text)
    TO pg_monitor;

-- A difference has as many decimals as the larger of the two: 112.3 and 112.34 differ by 0.
CREATE FUNCTION pgscale.compare_waits(
    since1 timestamptz, until1 timestamptz, since2 timestamptz, until2 timestamptz, by text DEFAULT 'event', top integer DEFAULT 10,
    node text DEFAULT NULL)
RETURNS TABLE (item text, active_sessions_1 double precision, active_sessions_2 double precision,
    difference double precision, fraction_1 double precision, fraction_2 double precision)
LANGUAGE sql VOLATILE PARALLEL RESTRICTED ROWS 10
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT d.item, pgscale_internal.three_digits(d.active_sessions_1), pgscale_internal.three_digits(d.active_sessions_2),
           coalesce(round(d.difference::numeric, greatest(2 - floor(log(nullif(greatest(d.active_sessions_1, d.active_sessions_2), 0))), 0)::integer)::float8,
                    d.difference),
           pgscale_internal.three_digits(d.fraction_1), pgscale_internal.three_digits(d.fraction_2)
      FROM pgscale_internal.past_differences($1, $2, $3, $4, $5, $6, $7) d
$$;
COMMENT ON FUNCTION pgscale.compare_waits(timestamptz, timestamptz, timestamptz, timestamptz, text, integer, text) IS
'what sessions waited for in two periods side by side, the largest difference first. Errors: as top_waits()
since1: start of the first period; NULL: an hour before until1
until1: end of the first period, excluded; NULL: now
since2: start of the second period; NULL: an hour before until2
until2: end of the second period, excluded; NULL: now
by: as in top_waits()
top: number of rows, 1 to 1,000,000; the rest is one more row, other
node: name in archive_nodes; of another server the archive is read; NULL: this server
item: what the row is about, by the argument by
active_sessions_1: average number of sessions in the first period; NULL if nothing is known of it
active_sessions_2: average number of sessions in the second period; NULL if nothing is known of it
difference: the second average minus the first; NULL if one of them is
fraction_1: fraction of database time of the first period, 0 to 1; NULL if nothing is known of it
fraction_2: fraction of database time of the second period, 0 to 1; NULL if nothing is known of it';
GRANT EXECUTE ON FUNCTION pgscale.compare_waits(timestamptz, timestamptz, timestamptz, timestamptz, text,
    integer, text) TO pg_monitor;
