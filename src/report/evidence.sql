-- Facts that several sections of a report use.

-- Events that may explain a change within the period, of a node as the archive has them. Sources that are not available are left out.
CREATE FUNCTION pgscale_internal.report_marks(since timestamptz, until timestamptz, node text DEFAULT NULL, OUT at timestamptz, OUT kind text, OUT mark text)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 20
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    own CONSTANT text[] := ARRAY[
        $q$SELECT pg_postmaster_start_time(), 'start', 'the server started'$q$,
        $q$SELECT pg_conf_load_time(), 'reload', 'the configuration was reloaded'
            WHERE pg_conf_load_time() > pg_postmaster_start_time() + interval '1 s'$q$,
        $q$SELECT checkpoint_time, 'checkpoint', 'a checkpoint began' FROM pg_control_checkpoint()$q$,
        $q$SELECT coalesce(j.applied_at, j.requested_at), 'setting',
                  format('%s: %s to %s, change %s, %s', j.setting, left(coalesce(pgscale_internal.setting_text(j.old_value, s.unit), j.old_in_force, '(not set)'), 40),
                         coalesce(left(pgscale_internal.setting_text(j.new_value, s.unit), 40), '(not set)'), j.change, j.state)
             FROM pgscale_internal.tuning_journal() j
             LEFT JOIN pg_settings s ON s.name = j.setting
            WHERE NOT pgscale_internal.is_secret(j.setting, concat(j.old_value, ' ', j.new_value))$q$];
    source text;
BEGIN
    FOREACH source IN ARRAY CASE WHEN node IS NULL THEN own ELSE '{}' END || ARRAY[
        $q$SELECT c.at, 'setting', format('%s%s: %s to %s', CASE WHEN $3 IS NULL THEN c.node || ': ' END, c.setting, coalesce(left(pgscale_internal.setting_text(c.old, s.unit), 40), '(not set)'),
                                          coalesce(left(pgscale_internal.setting_text(c.new, s.unit), 40), '(not set)'))
             FROM pgscale.archive_changes c
             LEFT JOIN pg_settings s ON s.name = c.setting
            WHERE c.at BETWEEN $1 AND $2 AND CASE WHEN $3 IS NULL THEN NOT pg_is_in_recovery() ELSE coalesce(c.node, '') = coalesce((
                      SELECT CASE WHEN m.node_id = ANY (pgscale_internal.archive_node_ids($3)) THEN '' ELSE $3 END
                        FROM pgscale.archive_minutes m WHERE NOT m.pulled AND m.at <= c.at ORDER BY m.at DESC LIMIT 1), $3) END
              AND NOT pgscale_internal.is_secret(c.setting, concat(c.old, ' ', c.new))$q$,
        $q$SELECT m.at, 'checkpoint', format('%s checkpoints in %s s', m.checkpoints_timed + m.checkpoints_requested, round(m.period_s))
             FROM pgscale.archive_minutes m
            WHERE m.at BETWEEN $1 AND $2 AND CASE WHEN $3 IS NULL THEN NOT (m.pulled OR pg_is_in_recovery()) ELSE m.node_id = ANY ((SELECT pgscale_internal.archive_node_ids($3))::bigint[]) END
              AND m.checkpoints_timed + m.checkpoints_requested > 0$q$,
        $q$SELECT m.at, 'node', CASE WHEN m.role = m.role_before THEN format('%s took over from %s', m.node, m.before) ELSE 'it became a ' || m.role END
             FROM (SELECT m.at, m.node, m.role, lag(m.node) OVER (ORDER BY m.at) AS before, lag(m.role) OVER (ORDER BY m.at) AS role_before
                     FROM pgscale.archive_minutes m
                    WHERE m.at BETWEEN $1 AND $2 AND CASE WHEN $3 IS NULL THEN NOT m.pulled ELSE m.node_id = ANY ((SELECT pgscale_internal.archive_node_ids($3))::bigint[]) END) m
            WHERE $3 IS NULL AND m.node <> m.before OR m.role <> m.role_before$q$]
    LOOP
        BEGIN
            RETURN QUERY EXECUTE format('SELECT m.at, m.kind, m.mark FROM (%s LIMIT 1000) m (at, kind, mark)
                                          WHERE m.at BETWEEN $1 AND $2', source) USING since, until, node;
        EXCEPTION
            -- a source that is not there, not for this role, or locked has no marks
            WHEN object_not_in_prerequisite_state OR insufficient_privilege OR lock_not_available OR undefined_table THEN NULL;
        END;
    END LOOP;
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_marks(timestamptz, timestamptz, text) IS
'part of report: restarts, checkpoints and changes of settings in a period, as far as they are known';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_marks(timestamptz, timestamptz, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_bucket(length interval, most integer)
RETURNS double precision
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(min(s), ceil(max(wanted) / 86400) * 86400)
      FROM (SELECT extract(epoch FROM length)::float8 / most AS wanted) w
      LEFT JOIN unnest('{1,2,5,10,15,20,30,60,120,300,600,900,1200,1800,3600,7200,10800,21600,43200,86400}'::float8[]) s ON s >= wanted
$$;
COMMENT ON FUNCTION pgscale_internal.report_bucket(interval, integer) IS
'part of report: the shortest round bucket of which a period has at most that number, in seconds';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_bucket(interval, integer) TO pg_monitor;

-- The known fraction of a period, 100 % only if all of it is known, and its longest gaps of a second or more.
CREATE FUNCTION pgscale_internal.report_known(since timestamptz, until timestamptz, node text DEFAULT NULL)
RETURNS text
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH known AS MATERIALIZED (
        SELECT c.source, tstzrange(c.at, c.at + c.period_s * interval '1 s') AS span, c.known_s AS s
          FROM pgscale_internal.past_coverage(since, until, node) c),
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
COMMENT ON FUNCTION pgscale_internal.report_known(timestamptz, timestamptz, text) IS 'part of report: how much of a period is known, and its gaps';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_known(timestamptz, timestamptz, text) TO pg_monitor;

-- The awaited thing, in a few words.
CREATE FUNCTION pgscale_internal.report_what(event_type text, event text)
RETURNS text
LANGUAGE sql STRICT VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN $2 = 'IdleInTransaction' THEN '(idle in a transaction)'
                ELSE (SELECT m.what FROM pgscale.wait_meanings m WHERE m.kind = pgscale.wait_kind($1, $2) LIMIT 1) END
$$;
COMMENT ON FUNCTION pgscale_internal.report_what(text, text) IS 'part of report: what a session waits for in this wait event';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_what(text, text) TO pg_monitor;

-- The root blockers of a period, as in top_waits(), with the details of blocker_profile(). Those cover more than the period, so
-- their idle time counts in proportion.
CREATE FUNCTION pgscale_internal.report_roots(since timestamptz, until timestamptz, node text DEFAULT NULL)
RETURNS TABLE (rank integer, item text, active_sessions double precision, fraction double precision, wait_ms double precision,
    idle_fraction double precision, usename text, application_name text, state text, first_seen timestamptz, last_seen timestamptz,
    query text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE ROWS 10
SET search_path = pg_catalog, pg_temp
AS $$
    WITH waited AS MATERIALIZED (
        SELECT w.rank, w.item, w.active_sessions, w.fraction, w.wait_ms
          FROM pgscale_internal.past_items($1, $2, 'blocker'::text, 10, NULL, $3) w
         WHERE w.item IS NOT NULL AND w.wait_ms > 0),
    roots AS MATERIALIZED (
        SELECT DISTINCT ON (b.item) b.*
          FROM (SELECT p.root_pid, p.backend_start, p.userid, p.application_name, p.root_state, p.queryid, p.waited_ms,
                       p.idle_in_transaction_ms, greatest(p.first_seen, $1) AS first_seen, least(p.last_seen, $2) AS last_seen,
                       CASE p.root_pid WHEN 0 THEN 'prepared transaction'
                                 ELSE p.root_pid || coalesce(' ' || nullif(p.application_name, ''), '') END AS item
                  FROM pgscale_internal.blocker_profile() p
                 WHERE $3 IS NULL AND p.first_seen <= $2 AND p.last_seen >= $1) b
          JOIN waited w USING (item)
         ORDER BY b.item, b.last_seen - b.first_seen DESC)
    SELECT w.rank, w.item, w.active_sessions, w.fraction, w.wait_ms, r.idle_in_transaction_ms / nullif(r.waited_ms, 0),
           pgscale_internal.name_of(r.userid, true)::text, r.application_name, r.root_state, r.first_seen, r.last_seen,
           coalesce(q.query, CASE WHEN r.queryid IS NULL
                                  THEN pgscale_internal.clean_statement(pgscale_internal.foreign_text(nullif(a.query, '<insufficient privilege>'),
                                                                                                      coalesce(d.encoding, 0))) END)
      FROM waited w
      LEFT JOIN roots r USING (item)
      LEFT JOIN pgscale_internal.past_queries(ARRAY(SELECT o.queryid FROM roots o WHERE o.queryid IS NOT NULL)) q ON q.queryid = r.queryid
      LEFT JOIN pg_stat_activity a ON a.pid = r.root_pid AND a.backend_start = r.backend_start
      LEFT JOIN pg_database d ON d.oid = a.datid
     ORDER BY w.rank
$$;
COMMENT ON FUNCTION pgscale_internal.report_roots(timestamptz, timestamptz, text) IS
'part of report: the root blockers of lock waits in a period, and their states';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_roots(timestamptz, timestamptz, text) TO pg_monitor;

-- Did lock waits take a relevant fraction of the period, caused by one root or by idle transactions? Then the root is to blame,
-- and not the statements that waited.
CREATE FUNCTION pgscale_internal.report_blame(since timestamptz, until timestamptz, node text DEFAULT NULL, OUT idle boolean, OUT sentence text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH roots AS MATERIALIZED (
        SELECT r.*, r.wait_ms * coalesce(r.idle_fraction, 0) AS idle_ms FROM pgscale_internal.report_roots($1, $2, $3) r WHERE r.item <> 'other'),
    total AS (
        SELECT sum(w.wait_ms) FILTER (WHERE w.event IS DISTINCT FROM 'IdleInTransaction') AS active_ms,
               sum(w.wait_ms) FILTER (WHERE w.event_type = 'Lock') AS lock_ms
          FROM pgscale_internal.past_items($1, $2, 'event'::text, 1000, NULL, $3) w),
    sums AS (
        SELECT sum(r.idle_ms) AS idle_ms, count(*) FILTER (WHERE r.idle_fraction >= 0.5) AS idle_roots FROM roots r),
    -- the first of those that were idle, or of all
    root AS (
        SELECT r.idle_ms, r.wait_ms, r.state, pgscale_internal.clean_line(r.query, 100) AS statement, i.idle,
               coalesce('process ' || substring(r.item FROM '^[0-9]+'), 'a ' || r.item)
                   || coalesce(' (' || nullif(concat_ws(', ', 'user ' || r.usename, 'application ' || nullif(coalesce(
                          r.application_name, substring(r.item FROM '^[0-9]+ (.*)')), '')), '') || ')', '') AS who
          FROM roots r CROSS JOIN total t CROSS JOIN sums s CROSS JOIN LATERAL (SELECT s.idle_ms >= t.lock_ms / 2) i (idle)
         WHERE t.lock_ms >= 0.05 * t.active_ms AND (i.idle OR r.wait_ms >= t.lock_ms / 4)
         ORDER BY CASE WHEN i.idle THEN r.idle_ms ELSE r.wait_ms END DESC LIMIT 1),
    told AS (
        SELECT CASE WHEN NOT r.idle
                    THEN format('%s blocked other sessions for %s s in all%s.', r.who, round(r.wait_ms / 1000),
                                ' (' || nullif(concat_ws(', ', r.state, 'statement: ' || r.statement), '') || ')')
                    WHEN s.idle_roots > 1 AND r.idle_ms < 0.9 * s.idle_ms
                    THEN format('%s processes blocked other sessions for %s s in all while they were idle in transactions, most of it %s, for %s s%s.',
                                s.idle_roots, round(s.idle_ms / 1000), r.who, round(r.idle_ms / 1000), ' (last statement: ' || r.statement || ')')
                    ELSE format('%s blocked other sessions for %s s in all while it was idle in a transaction%s.', r.who, round(r.idle_ms / 1000),
                                ' (last statement: ' || r.statement || ')') END AS sentence
          FROM root r CROSS JOIN sums s)
    SELECT coalesce((SELECT r.idle FROM root r), false), (SELECT upper(left(t.sentence, 1)) || substr(t.sentence, 2) FROM told t)
$$;
COMMENT ON FUNCTION pgscale_internal.report_blame(timestamptz, timestamptz, text) IS
'part of report: a sentence on the root blocker that caused much of the lock waits, and whether it was idle in its transaction; NULL if none did';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_blame(timestamptz, timestamptz, text) TO pg_monitor;

-- The chart of a period. Its buckets are those of activity(), so the first and the last one may be only partly in the period: they
-- count by their known part in the chart's averages.
CREATE FUNCTION pgscale_internal.report_part_activity(since timestamptz, until timestamptz, format text, node text DEFAULT NULL, most double precision DEFAULT NULL)
RETURNS text
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT pgscale_internal.report_chart(format, least(since, min(a.at)), until, b.s, array_agg(a.at), array_agg(a.event_type),
               array_agg(a.active_sessions), array_agg(a.coverage_fraction), m.at, m.mark, most, node IS NULL)
      FROM (SELECT pgscale_internal.report_bucket(until - since, CASE format WHEN 'html' THEN 120 ELSE 30 END)) b (s)
      CROSS JOIN (SELECT array_agg(m.at ORDER BY m.at), array_agg(m.mark ORDER BY m.at)
                    FROM (SELECT * FROM pgscale_internal.report_marks(since, until, node) m ORDER BY m.kind = 'checkpoint', m.at LIMIT 40) m) m (at, mark)
      CROSS JOIN LATERAL pgscale.activity(since, until, b.s * interval '1 s', node) a
     GROUP BY b.s, m.at, m.mark
$$;
COMMENT ON FUNCTION pgscale_internal.report_part_activity(timestamptz, timestamptz, text, text, double precision) IS
'part of report: active sessions over time, with marked events';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part_activity(timestamptz, timestamptz, text, text, double precision) TO pg_monitor;
