-- The other nodes: what each tells of its last minutes, and how the node that keeps the archive asks them.

-- On the node that is asked.

-- Waits by part, the number of the minute's first second; from memory only, because a primary's archive has rows of former primaries, too.
-- Of a conflict of replay the blocker is the session that was there in most of its samples, the longest, and the query that one's.
CREATE FUNCTION pgscale_internal.node_waits(since timestamptz, until timestamptz, minute_s double precision)
RETURNS TABLE (part bigint, backend_type text, datid oid, datname text, usename text, application_name text, queryid bigint,
    event_type text, event text, blocker text, ms double precision)
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH waited AS MATERIALIZED (
        SELECT extract(epoch FROM date_bin(make_interval(secs => $3), w.at, '2000-01-01 00:00+00'))::bigint AS part, w.backend_type,
               w.datid, w.datname::text AS datname, w.usename::text AS usename, w.application_name, w.queryid, w.event_type, w.event, w.blocker, sum(w.wait_ms) AS ms
          FROM pgscale.past_waits($1, $2, $3, '') w GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
    conflict AS MATERIALIZED (
        SELECT DISTINCT w.part, w.event FROM waited w
         WHERE w.backend_type = 'startup' AND w.blocker IS NULL AND (w.event_type IN ('BufferPin', 'Buffer', 'Lock') OR w.event LIKE 'RecoveryConflict%')),
    session AS MATERIALIZED (
        SELECT h.pid, h.queryid, min(h.sampled_at) AS first FROM pgscale_internal.wait_history($1 - interval '10 min', $2) h
         WHERE h.backend_type = 'client backend' AND EXISTS (SELECT FROM conflict) GROUP BY 1, 2),
    other AS (
        SELECT DISTINCT ON (c.part, c.event) c.part, c.event, s.pid::text AS pid, s.queryid
          FROM conflict c
          JOIN pgscale_internal.wait_history($1, $2) r ON r.backend_type = 'startup' AND r.event = c.event
               AND extract(epoch FROM date_bin(make_interval(secs => $3), r.sampled_at, '2000-01-01 00:00+00'))::bigint = c.part
          JOIN pgscale_internal.wait_history($1, $2) s ON s.sampled_at = r.sampled_at AND s.backend_type = 'client backend'
          JOIN session b ON b.pid = s.pid AND b.queryid IS NOT DISTINCT FROM s.queryid
         GROUP BY c.part, c.event, s.pid, s.queryid
         ORDER BY c.part, c.event, count(*) DESC, min(b.first), s.pid)
    SELECT w.part, w.backend_type, w.datid, w.datname, w.usename, w.application_name, coalesce(w.queryid, o.queryid),
           w.event_type, w.event, coalesce(w.blocker, o.pid), w.ms
      FROM waited w LEFT JOIN other o ON w.backend_type = 'startup' AND o.part = w.part AND o.event = w.event
$$;
COMMENT ON FUNCTION pgscale_internal.node_waits(timestamptz, timestamptz, double precision) IS 'part of node_minutes: waits of each minute';
GRANT EXECUTE ON FUNCTION pgscale_internal.node_waits(timestamptz, timestamptz, double precision) TO pg_monitor;

-- known has, for each node by node_id, until when the archive has it (since; by its clock), up to when it is asked (until; NULL: its last
-- whole minute), for at most how many minutes (most), and the queries whose texts are missing.  A minute is whole two seconds after its
-- end, when the sampler has corrected its last second.  A minute of which memory has nothing has a row, too, for its counters, if the server ran.
CREATE FUNCTION pgscale_internal.node_minutes(
    minute_s double precision, known jsonb, top integer,
    OUT node text, OUT node_id bigint, OUT cluster bigint, OUT timeline integer, OUT standby boolean, OUT clock timestamptz,
    OUT at timestamptz, OUT period_s double precision, OUT observed_ms double precision, OUT active_session_ms double precision,
    OUT idle_in_transaction_session_ms double precision,
    OUT backend_types text[], OUT datids oid[], OUT datnames text[], OUT usenames text[], OUT application_names text[],
    OUT queryids bigint[], OUT event_types text[], OUT events text[], OUT blockers text[], OUT wait_ms real[],
    OUT counters jsonb, OUT settings jsonb, OUT queries jsonb)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    step CONSTANT interval := make_interval(secs => $1);
    origin CONSTANT timestamptz := '2000-01-01 00:00+00';
    own record;
    mine jsonb;
    since timestamptz;
    until timestamptz;
BEGIN
    SELECT i.node, k.node_id, i.system_identifier, k.timeline, i.role = 'standby' AS standby, clock_timestamp() AS clock INTO own
      FROM pgscale.node_identity() i, pgscale_internal.node_key() k;
    mine := $2 -> own.node_id::text;
    until := coalesce((mine ->> 'until')::timestamptz, date_bin(step, own.clock - interval '2 s', origin));
    since := least(greatest(CASE WHEN (mine ->> 'since')::timestamptz <= own.clock THEN (mine ->> 'since')::timestamptz END,
                            until - 60 * step), until);
    until := least(until, since + coalesce((mine ->> 'most')::integer, 60) * step);
    RETURN QUERY
        WITH span AS MATERIALIZED (SELECT * FROM pgscale_internal.past_coverage(since, until, '') c WHERE c.period_s > 0),
        minute AS (
            SELECT m.begin, greatest(m.begin, since) AS at, extract(epoch FROM least(m.begin + step, until) - greatest(m.begin, since))::float8 AS period_s
              FROM generate_series(date_bin(step, since, origin), until, step) AS m(begin)),
        known_minute AS (
            SELECT m.*, coalesce((SELECT sum(1000 * c.known_s / c.period_s * extract(epoch FROM
                                             least(c.at + c.period_s * interval '1 s', m.at + m.period_s * interval '1 s') - greatest(c.at, m.at)))
                                    FROM span c WHERE c.at < m.at + m.period_s * interval '1 s' AND c.at + c.period_s * interval '1 s' > m.at), 0)::float8 AS observed_ms
              FROM minute m WHERE m.period_s > 0.001),
        known_wait AS (
            SELECT k.*, w.*, row_number() OVER (ORDER BY k.at DESC) AS latest
              FROM known_minute k LEFT JOIN pgscale_internal.archive_longest(
                   format('SELECT * FROM pgscale_internal.node_waits(%L, %L, %L)', since, until, $1), $3) w ON w.part = extract(epoch FROM k.begin)::bigint
             WHERE k.observed_ms > 0 OR k.at >= pg_postmaster_start_time())
        SELECT own.node, own.node_id, own.system_identifier, own.timeline, own.standby, own.clock, t.at, t.period_s,
               least(t.observed_ms, t.period_s * 1000), s.active_ms, s.idle_ms,
               coalesce(t.backend_types, '{}'), coalesce(t.datids, '{}'), coalesce(t.datnames, '{}'), coalesce(t.usenames, '{}'),
               coalesce(t.application_names, '{}'), coalesce(t.queryids, '{}'), coalesce(t.event_types, '{}'), coalesce(t.events, '{}'),
               coalesce(t.blockers, '{}'), coalesce(t.wait_ms, '{}'), l.counters, l.settings, l.queries
          FROM (VALUES (1)) one
          LEFT JOIN known_wait t ON true
         CROSS JOIN LATERAL (
                SELECT coalesce(sum(w.ms) FILTER (WHERE w.event <> 'IdleInTransaction'), 0)::float8 AS active_ms,
                       coalesce(sum(w.ms) FILTER (WHERE w.event = 'IdleInTransaction'), 0)::float8 AS idle_ms
                  FROM unnest(t.backend_types, t.events, t.wait_ms) w(backend_type, event, ms)
                 WHERE w.backend_type IN ('client backend', 'parallel worker', 'other')) s
          -- once, with the latest minute
          LEFT JOIN LATERAL (
                SELECT (SELECT jsonb_object_agg(c.name, jsonb_build_array(c.value, c.marker::text)) FROM pgscale_internal.archive_counters() c) AS counters,
                       pgscale_internal.archive_settings_now() AS settings,
                       (SELECT jsonb_object_agg(q.queryid::text, q.query)
                          FROM pgscale_internal.past_queries(ARRAY(SELECT m::bigint FROM jsonb_array_elements_text(
                                   CASE jsonb_typeof(mine -> 'missing') WHEN 'array' THEN mine -> 'missing' END) m), true) q) AS queries) l
               ON coalesce(t.latest, 1) = 1
         ORDER BY t.at;
END
$$;
COMMENT ON FUNCTION pgscale_internal.node_minutes(double precision, jsonb, integer) IS
'what this server knows of its last minutes, for the server that keeps the archive of all nodes';
GRANT EXECUTE ON FUNCTION pgscale_internal.node_minutes(double precision, jsonb, integer) TO pg_monitor;

-- On the node that asks.

-- What a node was at its latest minute. Without a name it is the server that writes, whose counters no other one has asked for.
CREATE FUNCTION pgscale_internal.archive_seen(minute pgscale_internal.archive_minute, seen_at timestamptz, name text)
RETURNS void
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO pgscale_internal.archive_node AS n (node_id, node, name, standby, timeline, seen_at, known_until, at, active_sessions, lag_s, event)
    SELECT minute.node_id, minute.node, name, minute.standby, minute.timeline, seen_at, minute.at + make_interval(secs => minute.period_s), minute.at,
           minute.active_session_ms::float8 / nullif(minute.observed_ms, 0)::float8, minute.standby_lag_s::float8,
           (SELECT CASE WHEN w.event_type = w.event THEN w.event ELSE concat(w.event_type, ':', w.event) END
              FROM unnest(minute.backend_types, minute.event_types, minute.events, minute.wait_ms) w(backend_type, event_type, event, ms)
             WHERE w.backend_type IN ('client backend', 'parallel worker') AND w.event <> 'IdleInTransaction'
             GROUP BY w.event_type, w.event ORDER BY sum(w.ms) DESC LIMIT 1)
    ON CONFLICT (node_id) DO UPDATE
       SET node = excluded.node, name = excluded.name, standby = excluded.standby, timeline = excluded.timeline, seen_at = excluded.seen_at,
           known_until = excluded.known_until, counters = CASE WHEN excluded.name IS NOT NULL THEN n.counters END, at = excluded.at,
           active_sessions = excluded.active_sessions, lag_s = excluded.lag_s, event = excluded.event
$$;
COMMENT ON FUNCTION pgscale_internal.archive_seen(pgscale_internal.archive_minute, timestamptz, text) IS
'notes the latest minute of a node; for the archive''s worker';

-- The increase of each counter since the node's last answer; NULL: unknown.
CREATE FUNCTION pgscale_internal.archive_node_growth(before jsonb, now jsonb, rows integer)
RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jsonb_object_agg(c.name, CASE
               WHEN (now -> c.name ->> 0)::numeric NOT BETWEEN 0 AND 1e18 THEN NULL
               WHEN c.source = 'moment' THEN round((now -> c.name ->> 0)::numeric, 3)
               WHEN now -> c.name -> 1 = before -> c.name -> 1 AND (now -> c.name ->> 0)::numeric - (before -> c.name ->> 0)::numeric BETWEEN 0 AND 1e15
               THEN round(((now -> c.name ->> 0)::numeric - (before -> c.name ->> 0)::numeric) / nullif(rows, 0), 3) END)
      FROM pgscale_internal.archive_counter c WHERE c.source <> 'sampler'
$$;
COMMENT ON FUNCTION pgscale_internal.archive_node_growth(jsonb, jsonb, integer) IS
'increase of a node''s counters, divided among its new rows; for the archive''s worker';

-- What node_minutes() has to know. A node that did not answer in time is asked for less; this server has nothing to ask itself.
CREATE FUNCTION pgscale_internal.archive_known(own bigint, asked_at timestamptz)
RETURNS jsonb
LANGUAGE sql STABLE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(jsonb_object_agg(n.node_id, jsonb_build_object('since', n.known_until, 'missing', n.missing,
                                                                  'most', CASE WHEN p.state = 'no answer' THEN 5 ELSE 60 END)), '{}')
           || jsonb_build_object($1, jsonb_build_object('since', $2))
      FROM pgscale_internal.archive_node n LEFT JOIN pgscale_internal.archive_pull p ON p.name = n.name
     WHERE n.seen_at > $2 - interval '2 hours'
$$;
COMMENT ON FUNCTION pgscale_internal.archive_known(bigint, timestamptz) IS 'what a round of the archive says to all nodes that it asks; for its worker';

-- What the nodes answer, and without a name what this server itself knows of its latest gap, if it was a standby before that.
CREATE FUNCTION pgscale_internal.archive_ask(minute_s double precision, known jsonb, own bigint, asked_at timestamptz)
RETURNS TABLE (name text, state text, error text, node text, node_id bigint, cluster bigint, timeline integer, standby boolean, clock timestamptz,
    at timestamptz, period_s double precision, observed_ms double precision, active_session_ms double precision,
    idle_in_transaction_session_ms double precision, backend_types text[], datids oid[], datnames text[], usenames text[],
    application_names text[], queryids bigint[], event_types text[], events text[], blockers text[], wait_ms real[],
    counters jsonb, settings jsonb, queries jsonb)
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT * FROM pgscale_internal.fleet_ask('node_minutes', ARRAY[$1::text, $2::text, current_setting('pgscale.archive_top')]) AS f (
        name text, state text, error text, node text, node_id bigint, cluster bigint, timeline integer, standby boolean, clock timestamptz,
        at timestamptz, period_s double precision, observed_ms double precision, active_session_ms double precision,
        idle_in_transaction_session_ms double precision, backend_types text[], datids oid[], datnames text[], usenames text[],
        application_names text[], queryids bigint[], event_types text[], events text[], blockers text[], wait_ms real[],
        counters jsonb, settings jsonb, queries jsonb)
     UNION ALL
    SELECT NULL, 'ok', NULL, m.*
      FROM (SELECT g.* FROM (SELECT m.at, lag(m.standby) OVER o AS standby, lag(m.at + make_interval(secs => m.period_s)) OVER o AS before
                               FROM pgscale_internal.archive_minute m WHERE m.node_id = $3 AND m.at > $4 - interval '1 hour'
                             WINDOW o AS (ORDER BY m.at)) g
             WHERE g.standby AND g.at > g.before + interval '1 s' ORDER BY g.at DESC LIMIT 1) g
     CROSS JOIN LATERAL pgscale_internal.node_minutes($1, jsonb_build_object($3, jsonb_build_object('since', g.before, 'until', g.at)),
                                                      current_setting('pgscale.archive_top')::integer) m
     WHERE m.observed_ms > 0
$$;
COMMENT ON FUNCTION pgscale_internal.archive_ask(double precision, jsonb, bigint, timestamptz) IS
'what the nodes of the fleet answer to a round of the archive; for its worker';

-- Notes how a node answered.  Returns how far its clock is ahead, if that is more than a minute: its rows have the times of this server.
CREATE FUNCTION pgscale_internal.archive_answered(answer record, asked_at timestamptz, answered_at timestamptz)
RETURNS interval
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ahead interval := '0';
    wrong text := answer.error;
BEGIN
    IF answer.state = 'ok' AND (num_nulls(nullif(answer.node, ''), answer.node_id, answer.clock) > 0 OR answer.rows > 61
                                OR pg_column_size(answer.settings) > 1000000 OR pg_column_size(answer.counters) > 100000) THEN
        RAISE EXCEPTION 'its answer is not one of pgscale' USING ERRCODE = 'data_exception', HINT = 'Check which server the node''s address leads to.';
    ELSIF answer.state = 'ok' AND answer.name <> answer.first_name THEN
        wrong := format('it leads to the same server as %s', answer.first_name);
    ELSIF answer.clock NOT BETWEEN asked_at - interval '1 min' AND answered_at + interval '1 min' THEN
        -- the same as before if that will do, so that its rows follow each other
        ahead := make_interval(secs => coalesce(
            (SELECT n.clock_s FROM pgscale_internal.archive_node n
              WHERE n.node_id = answer.node_id AND abs(n.clock_s - extract(epoch FROM answer.clock - answered_at)) < 10),
            round(extract(epoch FROM answer.clock - answered_at))));
        wrong := format('its clock is %s s %s', abs(extract(epoch FROM ahead))::bigint, CASE WHEN ahead > '0' THEN 'ahead' ELSE 'behind' END);
    ELSIF answer.rows > 0 AND answer.observed_ms = 0 THEN
        wrong := 'its sampler has seen nothing of its latest minute';
    END IF;
    -- it may be a text that keeps it from answering
    UPDATE pgscale_internal.archive_node n SET missing = NULL WHERE n.name = answer.name AND answer.state <> 'ok';
    INSERT INTO pgscale_internal.archive_pull AS p (name, state, error, since, node_id)
    VALUES (answer.name, answer.state, wrong, answered_at, answer.node_id)
    ON CONFLICT (name) DO UPDATE
       SET state = excluded.state, error = excluded.error, since = CASE WHEN p.state = excluded.state THEN p.since ELSE excluded.since END,
           node_id = coalesce(excluded.node_id, p.node_id);
    RETURN ahead;
END
$$;
COMMENT ON FUNCTION pgscale_internal.archive_answered(record, timestamptz, timestamptz) IS
'notes how a node answered, and returns by how much its clock is wrong; for the archive''s worker';

-- Writes a minute of an answer.  One that overlaps a row of that node is not written, so that nothing counts twice.
CREATE FUNCTION pgscale_internal.archive_take(answer record, ahead interval, growth jsonb, answered_at timestamptz)
RETURNS pgscale_internal.archive_minute
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    minute pgscale_internal.archive_minute := jsonb_populate_record(NULL::pgscale_internal.archive_minute,
        coalesce(growth, '{}') || to_jsonb(answer) || jsonb_build_object(
            'at', answer.at - ahead, 'node', answer.label, 'rounds', 1, 'pulled', true, 'standby', answer.standby OR answer.name IS NULL,
            'database', (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()),
            'observed_ms', round(answer.observed_ms::numeric, 3), 'active_session_ms', round(answer.active_session_ms::numeric, 3),
            'idle_in_transaction_session_ms', round(answer.idle_in_transaction_session_ms::numeric, 3)));
    top CONSTANT integer := current_setting('pgscale.archive_top');
BEGIN
    -- sums of what is taken must fit the columns of hours
    IF minute.at NOT BETWEEN answered_at - interval '2 hours' AND answered_at OR minute.period_s NOT BETWEEN 0.001 AND 3600 OR minute.node_id = 0
       OR cardinality(minute.wait_ms) > top + 1 OR pg_column_size(minute) > 10000 + 1000 * top
       OR (cardinality(minute.wait_ms) = ALL (ARRAY[cardinality(minute.backend_types), cardinality(minute.datids), cardinality(minute.datnames),
               cardinality(minute.usenames), cardinality(minute.application_names), cardinality(minute.queryids), cardinality(minute.event_types),
               cardinality(minute.events), cardinality(minute.blockers)]) AND 0 <= ALL (minute.wait_ms) AND 1e12 >= ALL (minute.wait_ms)) IS NOT TRUE
       OR least(minute.observed_ms, minute.active_session_ms, minute.idle_in_transaction_session_ms) < 0
       OR greatest(minute.observed_ms, minute.active_session_ms, minute.idle_in_transaction_session_ms) > 1e12 THEN
        RAISE EXCEPTION 'its answer is not one of pgscale, or its clock was set meanwhile' USING ERRCODE = 'data_exception', HINT = 'Check its clock.';
    END IF;
    IF NOT EXISTS (SELECT FROM pgscale_internal.archive_minute m
                    WHERE m.node_id = minute.node_id AND m.at > minute.at - interval '2 hours'
                      AND m.at < minute.at + make_interval(secs => minute.period_s - 0.001)
                      AND m.at + make_interval(secs => m.period_s - 0.001) > minute.at) THEN
        PERFORM pgscale_internal.archive_partition('archive_minute'::text, (minute.at AT TIME ZONE 'UTC')::date);
        INSERT INTO pgscale_internal.archive_minute VALUES (minute.*);
    END IF;
    RETURN minute;
END
$$;
COMMENT ON FUNCTION pgscale_internal.archive_take(record, interval, jsonb, timestamptz) IS
'writes a minute of a node''s answer, unless there is a row of that time; for the archive''s worker';

-- What comes once with an answer, in its latest minute.
CREATE FUNCTION pgscale_internal.archive_take_latest(answer record, ahead interval, minute pgscale_internal.archive_minute, answered_at timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pgscale_internal.archive_seen(minute, answered_at, answer.name);
    UPDATE pgscale_internal.archive_node n
       SET known_until = answer.at + make_interval(secs => answer.period_s), clock_s = extract(epoch FROM ahead),
           counters = CASE WHEN answer.reaches THEN answer.counters END
     WHERE n.node_id = answer.node_id;
    PERFORM pgscale_internal.archive_settings(answered_at, (SELECT jsonb_object_agg(s.key, s.value) FROM (SELECT * FROM jsonb_each(answer.settings) LIMIT 2000) s
                                                             WHERE length(s.key) < 200), answer.node_id);
    INSERT INTO pgscale_internal.archive_query (day, queryid, first_seen, last_seen, query)
    SELECT (answered_at AT TIME ZONE 'UTC')::date, q.key::bigint, answered_at, answered_at, pgscale_internal.clean_statement(q.value)
      FROM jsonb_each_text(answer.queries) q
     WHERE q.key::bigint = ANY (pgscale_internal.archive_missing(ARRAY(SELECT k::bigint FROM jsonb_object_keys(answer.queries) k), answered_at))
           AND q.key::bigint = ANY (SELECT unnest(n.missing) FROM pgscale_internal.archive_node n WHERE n.node_id = answer.node_id)
    ON CONFLICT DO NOTHING;
END
$$;
COMMENT ON FUNCTION pgscale_internal.archive_take_latest(record, interval, pgscale_internal.archive_minute, timestamptz) IS
'notes counters, settings and texts of a node''s answer; for the archive''s worker';

CREATE FUNCTION pgscale_internal.archive_garbled(name text, error text, seen_at timestamptz)
RETURNS void
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO pgscale_internal.archive_pull (name, state, error, since) SELECT $1, 'garbled', left($2, 500), $3 WHERE $1 IS NOT NULL
    ON CONFLICT (name) DO UPDATE SET state = excluded.state, error = excluded.error,
           since = CASE WHEN archive_pull.state = excluded.state THEN archive_pull.since ELSE excluded.since END
$$;
COMMENT ON FUNCTION pgscale_internal.archive_garbled(text, text, timestamptz) IS 'notes that an answer is nonsense; for the archive''s worker';

CREATE FUNCTION pgscale_internal.archive_remarks(of_answers boolean) RETURNS text
LANGUAGE sql STABLE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT string_agg(format('%s: %s', p.name, coalesce(p.error, p.state)), '; ' ORDER BY p.name)
      FROM pgscale_internal.archive_pull p WHERE (p.state = 'ok') = $1 AND (p.state <> 'ok' OR p.error IS NOT NULL)
$$;
COMMENT ON FUNCTION pgscale_internal.archive_remarks(boolean) IS
'why nodes did not answer, or what is odd about answers; for the archive''s worker';

CREATE FUNCTION pgscale_internal.archive_asks() RETURNS text
LANGUAGE sql STABLE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 'nodes' WHERE EXISTS (SELECT FROM pg_foreign_server s JOIN pg_foreign_data_wrapper w ON w.oid = s.srvfdw WHERE w.fdwname = 'pgscale_fleet')
$$;
COMMENT ON FUNCTION pgscale_internal.archive_asks() IS 'nodes if the fleet has some, else NULL; for the archive''s worker';

-- A round of questions.  Returns which nodes did not answer and why, or NULL.  What this server knows of the time between the last row that
-- another one asked it for and its own first one after its promotion is written like that of another node.
CREATE FUNCTION pgscale_internal.archive_pull(minute_s double precision)
RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    asked_at CONSTANT timestamptz := clock_timestamp();
    own CONSTANT bigint := (SELECT k.node_id FROM pgscale_internal.node_key() k);
    answered_at timestamptz;
    answer record;
    minute pgscale_internal.archive_minute;
    ahead interval;
    growth jsonb;
    seen bigint[];
    names text[] := '{}';
    garbled text;       -- of whose answer the rest is dropped
BEGIN
    -- one that hangs must not make each round of this server late
    PERFORM set_config('pgscale.fleet_timeout', (SELECT least(s.setting::integer, 10000)::text FROM pg_settings s WHERE s.name = 'pgscale.fleet_timeout'), true);
    FOR answer IN
        SELECT a.*, count(a.at) OVER by_name AS rows, row_number() OVER (by_name ORDER BY a.at DESC NULLS LAST) AS latest,
               -- a server keeps the name that led to it, while that is asked and has not failed for long: another one may pretend to be it
               coalesce((SELECT n.name FROM pgscale_internal.archive_node n JOIN pgscale_internal.archive_pull p USING (node_id, name) WHERE n.node_id = a.node_id
                            AND EXISTS (SELECT FROM pg_foreign_server s WHERE s.srvname = n.name) AND (p.state = 'ok' OR p.since > asked_at - interval '5 min')), first_value(a.name) OVER (PARTITION BY a.node_id ORDER BY a.name)) AS first_name,
               min(a.at) OVER by_name AS oldest, a.clock < least(max(a.at) OVER by_name, timestamptz '9999-01-01 00:00+00') + make_interval(secs => 3 * minute_s) AS reaches,
               concat(a.node, CASE WHEN min(a.node_id) OVER by_node <> max(a.node_id) OVER by_node OR a.node_id <> own AND a.node = (SELECT i.node FROM pgscale.node_identity() i)
                                   THEN ' #' || right(to_hex(a.node_id), 4) END) AS label
          FROM pgscale_internal.archive_ask(minute_s, pgscale_internal.archive_known(own, asked_at), own, asked_at) a
        WINDOW by_name AS (PARTITION BY a.name), by_node AS (PARTITION BY a.node)
         ORDER BY a.name, latest LOOP
        answered_at := coalesce(answered_at, clock_timestamp());
        CONTINUE WHEN answer.name = garbled;
        BEGIN
            IF answer.latest = 1 THEN
                names := array_remove(names || answer.name, NULL);
                seen := '{}';
                ahead := CASE WHEN answer.name IS NULL THEN '0' ELSE pgscale_internal.archive_answered(answer, asked_at, answered_at) END;
                -- of just the time of these minutes, or unknown
                growth := (SELECT pgscale_internal.archive_node_growth(CASE WHEN n.known_until BETWEEN answer.oldest - interval '1 s' AND answer.oldest + interval '1 s'
                                                                                 AND answer.reaches THEN n.counters END, answer.counters, answer.rows::integer)
                             FROM pgscale_internal.archive_node n WHERE n.node_id = answer.node_id AND answer.name IS NOT NULL);
            ELSE
                growth := growth - ARRAY(SELECT c.name FROM pgscale_internal.archive_counter c WHERE c.source = 'moment');
            END IF;
            CONTINUE WHEN answer.at IS NULL OR answer.name <> answer.first_name OR answer.name IS NOT NULL AND answer.node_id = own;
            minute := pgscale_internal.archive_take(answer, ahead, growth, answered_at);
            CONTINUE WHEN answer.name IS NULL;
            seen := (seen || minute.queryids)[1:1000];
            IF answer.latest = 1 THEN
                PERFORM pgscale_internal.archive_take_latest(answer, ahead, minute, answered_at);
            END IF;
            IF answer.latest = answer.rows THEN
                UPDATE pgscale_internal.archive_node n SET missing = (pgscale_internal.archive_missing(seen, answered_at))[1:100]
                 WHERE n.node_id = answer.node_id;
            END IF;
        EXCEPTION
            -- its answer is nonsense; all else ends the round
            WHEN data_exception OR integrity_constraint_violation OR program_limit_exceeded THEN
                garbled := answer.name;
                PERFORM pgscale_internal.archive_garbled(garbled, SQLERRM, answered_at);
        END;
    END LOOP;
    DELETE FROM pgscale_internal.archive_pull p WHERE p.name <> ALL (names);
    RETURN pgscale_internal.archive_remarks(false);
END
$$;
COMMENT ON FUNCTION pgscale_internal.archive_pull(double precision) IS
'asks the nodes of the fleet for their last minutes, and returns which did not answer; for the archive''s worker';

CREATE FUNCTION pgscale_internal.archive_node_ids(node text) RETURNS bigint[]
LANGUAGE sql STABLE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT array_agg(n.node_id) FROM pgscale_internal.archive_node n WHERE n.node = $1
$$;
COMMENT ON FUNCTION pgscale_internal.archive_node_ids(text) IS 'data directories of the archive that have that name, or NULL';
GRANT EXECUTE ON FUNCTION pgscale_internal.archive_node_ids(text) TO pg_monitor;

-- A name once: of its latest data directory. A node's other names, and those of nodes that have never answered, follow.
CREATE VIEW pgscale.archive_nodes AS
    WITH latest AS (SELECT max(n.seen_at) < clock_timestamp() - interval '5 min' AS stale FROM pgscale_internal.archive_node n),
    node AS (SELECT DISTINCT ON (n.node) n.* FROM pgscale_internal.archive_node n ORDER BY n.node, n.seen_at DESC),
    shown AS (
        SELECT n.node, p.name, coalesce(p.state, CASE WHEN n.seen_at > clock_timestamp() - interval '5 min' THEN 'ok' ELSE 'gone' END) AS state,
               p.error, p.since, CASE WHEN n.standby THEN 'standby' ELSE 'primary' END AS role, n.timeline, n.at, n.lag_s, n.active_sessions, n.event, n.clock_s
          FROM node n LEFT JOIN LATERAL (SELECT * FROM pgscale_internal.archive_pull p WHERE p.node_id = n.node_id
                                        ORDER BY p.name IS DISTINCT FROM n.name, p.name LIMIT 1) p ON true
         UNION ALL
        SELECT p.name, p.name, p.state, p.error, p.since, NULL, NULL, NULL, NULL, NULL, NULL, NULL
          FROM pgscale_internal.archive_pull p
         WHERE NOT EXISTS (SELECT FROM node n WHERE n.node_id = p.node_id)
            OR EXISTS (SELECT FROM pgscale_internal.archive_pull q JOIN node n USING (node_id)
                        WHERE n.node_id = p.node_id AND (q.name IS DISTINCT FROM n.name, q.name) < (p.name IS DISTINCT FROM n.name, p.name)))
    SELECT s.node, s.name, CASE WHEN l.stale THEN 'stale' ELSE s.state END AS state, s.error, s.since, s.role, s.timeline, s.at, s.lag_s, s.active_sessions,
           s.event, s.clock_s
      FROM shown s CROSS JOIN latest l
     ORDER BY s.state = 'ok', s.lag_s DESC NULLS LAST, s.active_sessions DESC NULLS LAST, s.node;
COMMENT ON VIEW pgscale.archive_nodes IS
'the nodes that the archive has rows of, or asks for them, the worst first: what each was at its latest minute';
GRANT SELECT ON pgscale.archive_nodes TO pg_monitor;
COMMENT ON COLUMN pgscale.archive_nodes.node IS 'its identity: cluster_name@host:port; while two nodes have the same one, with the end of a number; the argument node of top_waits and other functions';
COMMENT ON COLUMN pgscale.archive_nodes.name IS 'name in fleet_add; NULL for the server that writes the archive, and for one that is not asked any more';
COMMENT ON COLUMN pgscale.archive_nodes.state IS 'how it answered last: as in fleet; gone: it is not asked any more, or another server answers in its place; stale: the archive has asked no node for five minutes';
COMMENT ON COLUMN pgscale.archive_nodes.error IS 'what is wrong, or NULL';
COMMENT ON COLUMN pgscale.archive_nodes.since IS 'since when it answers so';
COMMENT ON COLUMN pgscale.archive_nodes.role IS 'primary or standby, at its latest minute';
COMMENT ON COLUMN pgscale.archive_nodes.timeline IS 'its timeline';
COMMENT ON COLUMN pgscale.archive_nodes.at IS 'start of its latest minute';
COMMENT ON COLUMN pgscale.archive_nodes.lag_s IS 'of a standby: how far replay is behind; of a primary: its standby furthest behind; in seconds';
COMMENT ON COLUMN pgscale.archive_nodes.active_sessions IS 'average of active sessions in that minute';
COMMENT ON COLUMN pgscale.archive_nodes.event IS 'what these waited for most';
COMMENT ON COLUMN pgscale.archive_nodes.clock_s IS 'how far its clock is ahead, in seconds; 0 up to a minute. Its rows have the times of the server that asked';
