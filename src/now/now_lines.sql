-- One screen of the evidence: at most 36 lines of at most 118 characters.

CREATE FUNCTION pgscale_internal.now_part_diagnosis(seen jsonb)
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
AS $$
DECLARE
    f record;
    active integer := round((seen->'now'->>'active')::numeric);
BEGIN
    FOR f IN SELECT * FROM pgscale_internal.now_findings(seen) n ORDER BY n.rank LIMIT 4 LOOP
        IF f.rank > 1 THEN
            RETURN NEXT format('%s [%s]', left('also: ' || f.sentence, 115 - length(f.rule)), f.rule);
        ELSE
            RETURN NEXT format('%s [%s]', left(CASE f.certainty WHEN 'low' THEN 'perhaps: ' ELSE '' END || f.sentence,
                                               115 - length(f.rule)), f.rule);
            IF length(concat(f.cure, f.risk)) <= 110 AND position(chr(10) IN f.cure) = 0 THEN
                RETURN NEXT format('  %s  -- %s', f.cure, f.risk);
            ELSE
                -- a statement that is cut is none, or worse: another one
                RETURN QUERY SELECT '  ' || c.line
                               FROM string_to_table(CASE WHEN (SELECT max(length(l)) FROM string_to_table(f.cure, chr(10)) l) <= 116 THEN f.cure
                                                         ELSE '-- the statement is longer than this line: see the cure in pgscale.diagnosis()' END,
                                                    chr(10)) c(line);
                RETURN QUERY SELECT '  -- ' || coalesce(r.part[1], r.part[2])
                               FROM regexp_matches(f.risk, '(.{1,113})(?: |$)|([^ ]{114,})', 'g') WITH ORDINALITY r(part, n) ORDER BY r.n;
            END IF;
        END IF;
    END LOOP;
    IF NOT FOUND THEN
        RETURN NEXT format('Nothing unusual. %s %s.', active, CASE active WHEN 1 THEN 'session is active' ELSE 'sessions are active' END);
    END IF;
END
$$;
COMMENT ON FUNCTION pgscale_internal.now_part_diagnosis(jsonb) IS 'part of the view now: the diagnosis';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_part_diagnosis(jsonb) TO pg_monitor;

CREATE FUNCTION pgscale_internal.now_rate(rate numeric)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT round(rate, CASE WHEN rate < 10 THEN 1 ELSE 0 END)::text
$$;
COMMENT ON FUNCTION pgscale_internal.now_rate(numeric) IS 'part of the view now: a number a second';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_rate(numeric) TO pg_monitor;

-- Of the last ten minutes, those that a revert can take back. A screen must not wait for a lock on the journal.
CREATE FUNCTION pgscale_internal.now_part_changes()
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '100ms'
SET extra_float_digits = 1
AS $$
BEGIN
    RETURN QUERY SELECT format('CALL pgscale.revert(%s, true)%s takes back: %s from %s to %s, %s s ago', j.change,
                  CASE WHEN NOT has_function_privilege('pgscale.revert(bigint, boolean, boolean, bigint)', 'EXECUTE') THEN ' (superuser)' END, j.setting,
                  pgscale_internal.clean_line(coalesce(nullif(j.old_in_force, ''), '(empty)'), 20),
                  pgscale_internal.clean_line(coalesce(nullif(j.new_value, ''), '(no line)'), 20), round(pgscale_internal.now_age(j.applied_at)))
      FROM pgscale_internal.tuning_journal() j
     WHERE j.revert_of IS NULL AND j.state IN ('applied', 'pending reload', 'pending restart') AND pgscale_internal.now_age(j.applied_at) < 600
     ORDER BY j.change DESC LIMIT 2;
EXCEPTION
    WHEN lock_not_available THEN
        RETURN;
END
$$;
COMMENT ON FUNCTION pgscale_internal.now_part_changes() IS 'part of the view now: changes of settings that have just been made, and how to take them back';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_part_changes() TO pg_monitor;

CREATE FUNCTION pgscale_internal.now_part_load(seen jsonb)
RETURNS SETOF text
LANGUAGE sql STABLE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
AS $$
    WITH span AS (
        SELECT round((seen->'load'->'now'->>'s')::numeric) AS s, round((seen->'load'->'usual'->>'s')::numeric) AS usual_s),
    class AS (
        SELECT c.key AS class, c.value::float8 AS sessions,
               CASE WHEN p.usual_s > 0 THEN coalesce((seen->'load'->'usual'->'classes'->>c.key)::float8, 0) END AS usual
          FROM span p CROSS JOIN jsonb_each_text(seen->'load'->'now'->'classes') c),
    line (n, what, sessions, usual) AS (
        SELECT 1, 'active sessions', coalesce(sum(c.sessions) FILTER (WHERE c.class <> 'IdleInTransaction'), 0),
               (SELECT sum(u.value::float8) FROM span p CROSS JOIN jsonb_each_text(seen->'load'->'usual'->'classes') u
                 WHERE u.key <> 'IdleInTransaction' AND p.usual_s > 0) FROM class c
        UNION ALL SELECT 2, 'on a CPU or queued for one', c.sessions, c.usual FROM class c WHERE c.class = 'CPU'
        UNION ALL SELECT 3, 'queued for a CPU', c.sessions * (seen->>'queued_fraction')::float8, NULL
                    FROM class c WHERE c.class = 'CPU' AND seen ? 'queued_fraction'
        UNION ALL SELECT 3 + row_number() OVER (ORDER BY c.sessions DESC, c.class), 'waiting: ' || c.class, c.sessions, c.usual
                    FROM class c WHERE c.class NOT IN ('CPU', 'IdleInTransaction')
        UNION ALL SELECT 100, 'idle in a transaction', c.sessions, c.usual FROM class c WHERE c.class = 'IdleInTransaction')
    SELECT format('%s     now   usual  factor   now: %s; usual: %s', rpad('load', 29), CASE WHEN p.s > 0 THEN format('last %s s', p.s) ELSE 'this moment' END,
                  CASE WHEN (seen->'load'->>'yesterday')::boolean THEN 'this hour of yesterday' WHEN p.usual_s >= 120 THEN format('the %s min before', round(p.usual_s / 60))
                       WHEN p.usual_s > 0 THEN format('the %s s before', p.usual_s) ELSE 'not known' END)
      FROM span p
    UNION ALL
    (SELECT rtrim('  ' || rpad(l.what, 27) || lpad(round(l.sessions::numeric, 1)::text, 8) || lpad(coalesce(round(l.usual::numeric, 1)::text, ''), 8)
                || lpad(coalesce(CASE WHEN round(l.usual::numeric, 1) > 0 THEN round((l.sessions / l.usual)::numeric, 1)::text END, ''), 8))
       FROM line l WHERE l.n NOT BETWEEN 7 AND 99 ORDER BY l.n)
    UNION ALL
    SELECT rtrim('  ' || rpad(t.what, 27) || lpad(pgscale_internal.now_rate(t.now), 8) || lpad(coalesce(pgscale_internal.now_rate(t.usual), ''), 8)
                || lpad(coalesce(CASE WHEN t.usual > 0 THEN round(t.now / t.usual, 1)::text END, ''), 8))
                || format('   now: last %s s; usual: ', round((seen->'now'->>'s')::numeric))
                || CASE WHEN t.usual IS NULL THEN 'not known' WHEN t.usual_s >= 120 THEN format('the %s min before', round(t.usual_s / 60))
                        ELSE format('the %s s before', round(t.usual_s)) END
      FROM (VALUES ('commits a second', (seen->'now'->>'commits_per_s')::numeric, (seen->'usual'->>'commits_per_s')::numeric,
                    (seen->'usual'->>'s')::numeric)) t(what, now, usual, usual_s)
     WHERE t.now IS NOT NULL
$$;
COMMENT ON FUNCTION pgscale_internal.now_part_load(jsonb) IS 'part of the view now: load now, and what is usual';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_part_load(jsonb) TO pg_monitor;

CREATE FUNCTION pgscale_internal.now_part_sessions(seen jsonb)
RETURNS SETOF text
LANGUAGE sql STABLE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
AS $$
    SELECT format('connections: %s of %s used, %s idle, %s idle in a transaction, %s new in 10 s, %s reserved', seen->>'used', seen->>'max_connections',
                  seen->>'idle', seen->>'idle_in_transaction', seen->>'new', seen->>'reserved')
    UNION ALL
    SELECT CASE jsonb_array_length(seen->'roots') WHEN 0 THEN 'blockers: none' ELSE 'blockers, with all sessions that wait behind them' END
    UNION ALL
    (SELECT '  ' || rpad(coalesce(r.pid::text, left(r.gid_shown, 16)), 8) || ' ' || rpad(left(coalesce(r.application, ''), 17), 18)
                || rpad(left(concat(coalesce(r.state, 'state not known'), ' ' || round(coalesce(r.state_s, r.transaction_s)::numeric) || ' s'), 31), 32)
                || lpad(r.waiters::text, 5) || ' wait, ' || round(r.longest_s::numeric) || ' s  ' || coalesce(r.query, '')
       FROM jsonb_to_recordset(seen->'roots') r(pid integer, gid_shown text, application text, state text, state_s float8, transaction_s float8,
                                                waiters integer, longest_s float8, query text)
      ORDER BY r.waiters DESC)
    UNION ALL
    SELECT rpad('oldest', 11) || rpad('application', 18) || rpad('user@database', 18) || rpad('waits for', 22) || lpad('seconds', 7) || '  statement'
     WHERE jsonb_array_length(seen->'sessions') > 0
    UNION ALL
    (SELECT '  ' || rpad(s.pid::text, 8) || ' ' || rpad(left(coalesce(s.application, ''), 17), 18)
                || rpad(left(coalesce(s.login, ''), 17), 18)
                || rpad(left(CASE WHEN s.event = 'IdleInTransaction' THEN s.state ELSE concat_ws(' ', nullif(s.event_type, s.event), s.event) END, 21), 22)
                || lpad(round(s.age_s::numeric, CASE WHEN s.age_s < 1000 THEN 1 ELSE 0 END)::text, 7) || '  ' || coalesce(s.query, '')
       FROM jsonb_to_recordset(seen->'sessions') s(pid integer, application text, login text, state text, event_type text, event text, age_s float8, query text)
      ORDER BY s.age_s DESC)
$$;
COMMENT ON FUNCTION pgscale_internal.now_part_sessions(jsonb) IS 'part of the view now: connections, blockers, and the oldest statements';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_part_sessions(jsonb) TO pg_monitor;

-- Two digits that count: a mean of a few flushes has no more. A time that is computed is 0 if no session was seen to wait.
CREATE FUNCTION pgscale_internal.now_ms(ms numeric)
RETURNS numeric
LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN ms > 0 THEN round(ms, greatest(1 - floor(log(ms))::integer, 0)) END
$$;
COMMENT ON FUNCTION pgscale_internal.now_ms(numeric) IS 'part of the view now: a time with two digits that count; NULL unless it is positive';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_ms(numeric) TO pg_monitor;

CREATE FUNCTION pgscale_internal.now_latency(what text, ms numeric, usual_ms numeric, n numeric)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT what || CASE WHEN ms > 0 THEN format(' %s ms%s', pgscale_internal.now_ms(ms), ' (usually ' || pgscale_internal.now_ms(usual_ms) || ')')
                        WHEN ms = 0 THEN ' too short to see' WHEN n = 0 THEN ' -' ELSE ' unknown' END
$$;
COMMENT ON FUNCTION pgscale_internal.now_latency(text, numeric, numeric, numeric) IS
'part of the view now: a mean time in milliseconds, and what is usual; - if there was none of n, as nothing was written or read';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_latency(text, numeric, numeric, numeric) TO pg_monitor;

CREATE FUNCTION pgscale_internal.now_part_machine(seen jsonb)
RETURNS SETOF text
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
AS $$
    SELECT 'disk: ' || pgscale_internal.now_latency('WAL flush', (seen->'now'->>'flush_ms')::numeric, (seen->'usual'->>'flush_ms')::numeric,
                                                    (seen->'now'->>'flushes')::numeric) || ', '
               || pgscale_internal.now_latency('read', (seen->'now'->>'read_ms')::numeric, (seen->'usual'->>'read_ms')::numeric,
                                               (seen->'now'->>'reads')::numeric)
               || CASE WHEN (seen->>'flush_measured')::boolean THEN '; flush measured, read computed' ELSE '; computed' END
               || CASE WHEN (seen->>'checkpoint')::boolean THEN concat('; checkpoint under way', ' in ' || (seen->>'checkpointer_event'))
                       ELSE format('; last checkpoint began %s s ago',
                                   round(greatest(extract(epoch FROM clock_timestamp() - (SELECT c.checkpoint_time FROM pg_control_checkpoint() c)), 0))) END
    UNION ALL
    SELECT format('CPUs: %s', seen->>'cpus')
               || coalesce(', of which sessions use ' || round(((seen->'now'->'kinds'->>'cpu')::float8 * (1 - (seen->>'queued_fraction')::float8))::numeric, 1), '')
               || coalesce('; checkpoints that no timer asked for: ' || (seen->>'checkpoints_requested')
                           || ' in the last ' || round((seen->>'minute_s')::numeric) || ' s', '')
    UNION ALL
    SELECT 'missing: waits of the last seconds, and what is usual: ' || (seen->>'missing') WHERE seen->>'missing' IS NOT NULL
$$;
COMMENT ON FUNCTION pgscale_internal.now_part_machine(jsonb) IS 'part of the view now: disks and CPUs';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_part_machine(jsonb) TO pg_monitor;

-- The worst nodes of the archive, a line each, in the database that has it.
CREATE FUNCTION pgscale_internal.now_part_nodes()
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF has_table_privilege('pgscale.archive_nodes', 'SELECT') THEN
        RETURN QUERY
            SELECT format('node %s: %s', pgscale_internal.clean_line(n.node, 40), concat_ws(', ', CASE WHEN n.state <> 'ok' THEN n.state END,
                          n.role, CASE WHEN n.role = 'standby' THEN round(n.lag_s) || ' s behind' END,
                          round(n.active_sessions::numeric, 1) || ' active' || coalesce(', most in ' || pgscale_internal.clean_line(n.event, 40), ''),
                          'minute of ' || to_char(n.at, 'HH24:MI')))
              FROM pgscale.archive_nodes n
             WHERE n.state <> 'gone' AND (SELECT count(*) > 1 FROM pgscale.archive_nodes x WHERE x.state <> 'gone') LIMIT 5;
    END IF;
END
$$;
COMMENT ON FUNCTION pgscale_internal.now_part_nodes() IS 'part of the view now: the nodes of the archive, the worst first';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_part_nodes() TO pg_monitor;

CREATE FUNCTION pgscale_internal.now_lines(seen jsonb)
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 36
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
AS $$
BEGIN
    -- without the sampler, or behind a lock on the archive, the sessions of this moment
    seen := seen || jsonb_build_object('load', coalesce(CASE WHEN seen->>'missing' IS NULL THEN pgscale_internal.now_load() END,
                                                        jsonb_build_object('now', jsonb_build_object('s', 0, 'classes', seen->'classes'))));
    -- in a database without an encoding a cut may be within a character
    RETURN QUERY
        SELECT pgscale_internal.foreign_text(left(l.line, 118), pg_char_to_encoding(getdatabaseencoding()))
          FROM (SELECT 1 AS part, d.* FROM pgscale_internal.now_part_diagnosis(seen) WITH ORDINALITY d(line, n)
                UNION ALL SELECT 2, d.* FROM pgscale_internal.now_part_changes() WITH ORDINALITY d(line, n)
                UNION ALL SELECT 3, d.* FROM pgscale_internal.now_part_nodes() WITH ORDINALITY d(line, n)
                UNION ALL SELECT 4, d.* FROM pgscale_internal.now_part_load(seen) WITH ORDINALITY d(line, n)
                UNION ALL SELECT 5, d.* FROM pgscale_internal.now_part_sessions(seen) WITH ORDINALITY d(line, n)
                UNION ALL SELECT 6, d.* FROM pgscale_internal.now_part_machine(seen) WITH ORDINALITY d(line, n)) l
         ORDER BY l.part, l.n LIMIT 36;
END
$$;
COMMENT ON FUNCTION pgscale_internal.now_lines(jsonb) IS 'the lines of the view now';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_lines(jsonb) TO pg_monitor;

CREATE VIEW pgscale.now AS
    SELECT l.line AS now FROM pgscale_internal.now_lines(pgscale_internal.now_evidence()) WITH ORDINALITY l(line, n) ORDER BY l.n;
COMMENT ON VIEW pgscale.now IS
'one screen of at most 36 lines, to be watched every 2 s: the cause of the trouble and its cure, load, connections, blockers, the oldest statements, disks';
GRANT SELECT ON pgscale.now TO pg_monitor;
COMMENT ON COLUMN pgscale.now.now IS 'line of text, at most 118 characters';
