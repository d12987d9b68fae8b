-- A round of the archive's worker: one new row.

-- Only the process of a round may call it.
CREATE FUNCTION pgscale_internal.archive_wait_growth(keys bigint[], ms double precision[])
RETURNS double precision[]
AS 'MODULE_PATHNAME', 'pgscale_archive_wait_growth'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale_internal.archive_wait_growth(bigint[], double precision[]) IS
'increase of waits since the latest row of the archive; for its worker';

-- Those of the queries that have no text for this day yet, if there is room for it.
CREATE FUNCTION pgscale_internal.archive_missing(wanted bigint[], seen_at timestamptz)
RETURNS bigint[]
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    today date := (seen_at AT TIME ZONE 'UTC')::date;
BEGIN
    UPDATE pgscale_internal.archive_query q SET last_seen = seen_at
     WHERE q.day = today AND q.queryid = ANY (wanted) AND q.last_seen < seen_at - interval '1 hour';
    RETURN ARRAY(SELECT w FROM unnest(wanted) w WHERE w IS NOT NULL
                 EXCEPT SELECT q.queryid FROM pgscale_internal.archive_query q WHERE q.day = today
                 LIMIT greatest(5 * current_setting('pgscale.archive_top')::integer
                                - (SELECT count(*) FROM pgscale_internal.archive_query q WHERE q.day = today), 0));
END
$$;
COMMENT ON FUNCTION pgscale_internal.archive_missing(bigint[], timestamptz) IS 'queries without a text in the archive; for its worker';

-- What is kept is the text without constants: a session's, which has them, is for what pg_stat_statements does not know.
CREATE FUNCTION pgscale_internal.archive_texts(wanted bigint[], seen_at timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    missing bigint[] := pgscale_internal.archive_missing(wanted, seen_at);
BEGIN
    IF missing <> '{}' AND pgscale_internal.query_waits_text_fits(false) THEN
        INSERT INTO pgscale_internal.archive_query (day, queryid, first_seen, last_seen, query)
        SELECT (seen_at AT TIME ZONE 'UTC')::date, s.queryid, seen_at, seen_at, s.query
          FROM pgscale_internal.past_queries(missing, true) s
        ON CONFLICT DO NOTHING;
    END IF;
END
$$;
COMMENT ON FUNCTION pgscale_internal.archive_texts(bigint[], timestamptz) IS 'archives texts of queries; for the archive''s worker';

-- Each setting's value; of a hidden one a hash. NULL: of this session, and not known.
CREATE FUNCTION pgscale_internal.archive_settings_now()
RETURNS jsonb
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jsonb_object_agg(p.name,
               CASE WHEN p.source NOT IN ('database', 'user', 'database user', 'client')
                         -- and of those that a round overrides: their source is the session
                         AND p.name NOT IN (SELECT split_part(c, '=', 1) FROM pg_db_role_setting r, unnest(r.setconfig) c
                                             WHERE r.setdatabase IN (0, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
                                               AND r.setrole IN (0, quote_ident(session_user)::regrole)
                                               AND (r.setdatabase <> 0 OR r.setrole <> 0))
                    THEN CASE WHEN pgscale_internal.is_secret(p.name, p.reset_val) THEN '(hidden) ' || encode(sha256(textsend(p.reset_val)), 'hex')
                              ELSE pgscale_internal.clean_text(p.reset_val) END END)
      FROM pg_settings p WHERE p.context <> 'internal' OR p.name = 'server_version_num'
$$;
COMMENT ON FUNCTION pgscale_internal.archive_settings_now() IS 'this server''s settings as the archive compares them, those that are hidden as a hash';
GRANT EXECUTE ON FUNCTION pgscale_internal.archive_settings_now() TO pg_monitor;

CREATE FUNCTION pgscale_internal.archive_settings(seen_at timestamptz, seen jsonb, of_node bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    anew boolean := NOT EXISTS (SELECT FROM pgscale_internal.archive_setting o WHERE o.node_id = of_node);
    -- the settings of another major are others, and the archive is there after pg_upgrade
    upgraded boolean := EXISTS (SELECT FROM pgscale_internal.archive_setting o WHERE o.node_id = of_node AND o.setting = 'server_version_num'
                                   AND left(o.value, -4) <> left(seen ->> 'server_version_num', -4));
    changed record;
BEGIN
    FOR changed IN
        SELECT coalesce(s.key, o.setting) AS setting, o.setting IS NOT NULL AS known, s.key IS NOT NULL AS there, o.value AS old, s.value AS new,
               coalesce(s.value ~ '^[(]hidden[)] [0-9a-f]{64}$', pgscale_internal.is_secret(o.setting, o.value)) AS hidden
          FROM (SELECT * FROM jsonb_each_text(seen) s WHERE s.value IS NOT NULL) s
          FULL JOIN (SELECT * FROM pgscale_internal.archive_setting o WHERE o.node_id = of_node) o ON o.setting = s.key
         WHERE s.value IS DISTINCT FROM o.value AND (s.key IS NOT NULL OR NOT seen ? o.setting) LOOP
        IF NOT changed.there THEN
            DELETE FROM pgscale_internal.archive_setting o WHERE o.setting = changed.setting AND o.node_id = of_node;
        ELSE
            INSERT INTO pgscale_internal.archive_setting (setting, value, node_id) VALUES (changed.setting, changed.new, of_node)
            ON CONFLICT (setting, node_id) DO UPDATE SET value = excluded.value;
        END IF;
        IF NOT (anew OR upgraded AND NOT (changed.known AND changed.there)) THEN
            INSERT INTO pgscale_internal.archive_change (at, setting, old, new, node_id)
            VALUES (seen_at, changed.setting, 
                    CASE WHEN changed.known AND (changed.hidden OR changed.old ~ '^[(]hidden[)] [0-9a-f]{64}$') THEN '(hidden)' ELSE changed.old END,
                    CASE WHEN changed.there AND changed.hidden THEN '(hidden)' ELSE changed.new END, of_node)
            ON CONFLICT DO NOTHING;
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION pgscale_internal.archive_settings(timestamptz, jsonb, bigint) IS
'archives changes of settings, of this server (0) or another node; for the archive''s worker';

-- The delta of each wait, if it is not zero. lock_key identifies the owner and the lock of a lock wait; NULL for other waits.
CREATE FUNCTION pgscale_internal.archive_wait_deltas(
    reset_at timestamptz,
    OUT backend_type text, OUT datid oid, OUT userid oid, OUT application_name text, OUT queryid bigint, OUT event_type text,
    OUT event text, OUT ms double precision, OUT lock_key bigint)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH profile AS MATERIALIZED (
        SELECT row_number() OVER () AS n, g.*
          FROM (SELECT p.backend_type, p.datid, p.userid, p.application_name, p.queryid, p.event_type, p.event,
                       sum(p.wait_ms) AS ms
                  FROM pgscale_internal.wait_profile() p
                 WHERE NOT p.idle
                 GROUP BY 1, 2, 3, 4, 5, 6, 7) g),
    deltas AS MATERIALIZED (
        SELECT pgscale_internal.archive_wait_growth(
                   coalesce(array_agg(hash_record_extended(ROW(p.backend_type, p.datid, p.userid, p.application_name,
                                                               p.queryid, p.event_type, p.event), 0) ORDER BY p.n), '{}')
                   || coalesce(array_agg(hash_record_extended(ROW(p.event_type, p.event), 0) ORDER BY p.n), '{}')
                   || coalesce(array_agg(hash_record_extended(ROW(p.backend_type, p.datid, p.userid, p.application_name,
                                                                  p.queryid), 0) ORDER BY p.n), '{}')
                   || coalesce(array_agg((p.backend_type = 'other')::integer::bigint ORDER BY p.n), '{}')
                   || (extract(epoch FROM reset_at) * 1000000)::bigint,
                   coalesce(array_agg(p.ms ORDER BY p.n), '{}')) AS each
          FROM profile p)
    SELECT p.backend_type, p.datid, p.userid, p.application_name, p.queryid, p.event_type, p.event, d.ms,
           CASE WHEN p.event_type = 'Lock'
                THEN hash_record_extended(ROW(p.backend_type, p.datid, p.userid, p.queryid, p.event), 0) END
      FROM deltas, unnest(deltas.each) WITH ORDINALITY d(ms, n) JOIN profile p USING (n)
     WHERE d.ms > 0
$$;
COMMENT ON FUNCTION pgscale_internal.archive_wait_deltas(timestamptz) IS 'increase of each wait since the latest row of the archive; for its worker';

-- With names, and with the root blockers of lock waits, from the samples since then.
CREATE FUNCTION pgscale_internal.archive_named_waits(
    since timestamptz, reset_at timestamptz,
    OUT backend_type text, OUT datid oid, OUT datname text, OUT usename text, OUT application_name text, OUT queryid bigint,
    OUT event_type text, OUT event text, OUT blocker text, OUT ms double precision)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH changed AS MATERIALIZED (SELECT * FROM pgscale_internal.archive_wait_deltas(reset_at)),
    roots AS MATERIALIZED (
        SELECT r.lock_key, r.blocker, r.samples / sum(r.samples) OVER (PARTITION BY r.lock_key) AS part
          FROM (SELECT hash_record_extended(ROW(h.backend_type, h.datid, h.userid, h.queryid, h.event), 0) AS lock_key,
                       CASE WHEN h.root_pid = 0 THEN 'prepared transaction'
                            ELSE h.root_pid || coalesce(' ' || nullif(h.root_application_name, ''), '') END AS blocker,
                       count(*)::double precision AS samples
                  FROM pgscale_internal.wait_history(since, NULL::timestamptz) h
                 WHERE h.event_type = 'Lock'
                   AND EXISTS (SELECT FROM changed c WHERE c.event_type = 'Lock')
                 GROUP BY 1, 2) r)
    SELECT c.backend_type, c.datid, pgscale_internal.name_of(c.datid)::text,
           coalesce(pgscale_internal.name_of(c.userid, true)::text, 'role ' || c.userid), c.application_name, c.queryid, c.event_type, c.event,
           r.blocker, c.ms * coalesce(r.part, 1)
      FROM changed c
      LEFT JOIN roots r USING (lock_key)
$$;
COMMENT ON FUNCTION pgscale_internal.archive_named_waits(timestamptz, timestamptz) IS
'increase of each wait since the latest row of the archive, with names and root blockers; for its worker';

-- The longest waits of each part, and the rest as one. The query has the columns part (a number), backend_type, datid, datname,
-- usename, application_name, queryid, event_type, event, blocker and ms.
CREATE FUNCTION pgscale_internal.archive_longest(
    waits text, top integer,
    OUT part bigint, OUT backend_types text[], OUT datids oid[], OUT datnames text[], OUT usenames text[],
    OUT application_names text[], OUT queryids bigint[], OUT event_types text[], OUT events text[], OUT blockers text[],
    OUT wait_ms real[])
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY EXECUTE format($q$
        WITH waited AS (SELECT w.*, w.backend_type = 'other' AND w.event_type = 'other' AS rest FROM (%s) w),
        ranked AS (SELECT w.*, row_number() OVER (PARTITION BY w.part ORDER BY w.rest, w.ms DESC) AS place FROM waited w)
        SELECT k.part, array_agg(k.backend_type), array_agg(k.datid), array_agg(k.datname), array_agg(k.usename),
               array_agg(k.application_name), array_agg(k.queryid), array_agg(k.event_type), array_agg(k.event),
               array_agg(k.blocker), array_agg(k.ms::real)
          FROM (SELECT r.part, r.backend_type, r.datid, r.datname, r.usename, r.application_name, r.queryid,
                       r.event_type, r.event, r.blocker, r.ms
                  FROM ranked r WHERE r.place <= $1 AND NOT r.rest
                 UNION ALL
                SELECT r.part, 'other', NULL, NULL, NULL, NULL, NULL, 'other', 'other', NULL, sum(r.ms)
                  FROM ranked r WHERE r.place > $1 OR r.rest GROUP BY r.part
                 ORDER BY part, event_type, event, backend_type, datname, usename, application_name, queryid) k
         GROUP BY k.part$q$, waits) USING top;
END
$$;
COMMENT ON FUNCTION pgscale_internal.archive_longest(text, integer) IS
'the longest of the waits that a query returns, and the rest, as a row of the archive has them';
GRANT EXECUTE ON FUNCTION pgscale_internal.archive_longest(text, integer) TO pg_monitor;

-- A round: returns 'first' if there is nothing to compare with yet, otherwise 'written'.
CREATE FUNCTION pgscale_internal.archive_write(since timestamptz, period interval)
RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    until timestamptz := since + period;
    minute pgscale_internal.archive_minute;
    reset_at timestamptz;
    deltas jsonb;
    too_long double precision;
BEGIN
    SELECT since, extract(epoch FROM period), 1, n.node, n.system_identifier, d.oid, k.node_id, k.timeline, false, false
      INTO minute.at, minute.period_s, minute.rounds, minute.node, minute.cluster, minute.database, minute.node_id, minute.timeline,
           minute.standby, minute.pulled
      FROM pgscale.node_identity() n, pgscale_internal.node_key() k, pg_database d WHERE d.datname = current_database();
    -- again, if there was a reset meanwhile
    LOOP
        reset_at := (SELECT s.stats_reset FROM pgscale_internal.sampler_stats() s);
        SELECT coalesce(w.backend_types, '{}'), coalesce(w.datids, '{}'), coalesce(w.datnames, '{}'), coalesce(w.usenames, '{}'),
               coalesce(w.application_names, '{}'), coalesce(w.queryids, '{}'), coalesce(w.event_types, '{}'),
               coalesce(w.events, '{}'), coalesce(w.blockers, '{}'), coalesce(w.wait_ms, '{}')
          INTO minute.backend_types, minute.datids, minute.datnames, minute.usenames, minute.application_names, minute.queryids,
               minute.event_types, minute.events, minute.blockers, minute.wait_ms
          FROM (VALUES (1)) one LEFT JOIN pgscale_internal.archive_longest(
                   format('SELECT 0::bigint AS part, n.* FROM pgscale_internal.archive_named_waits(%L, %L) n', since, reset_at),
                   current_setting('pgscale.archive_top')::integer) w ON true;
        deltas := pgscale_internal.archive_counter_deltas();
        EXIT WHEN reset_at = (SELECT s.stats_reset FROM pgscale_internal.sampler_stats() s);
    END LOOP;
    PERFORM pgscale_internal.archive_settings(until, pgscale_internal.archive_settings_now(), 0::bigint);
    IF minute.period_s <= 0 THEN
        RETURN 'first';
    END IF;

    -- After a pause the sampler's first tick stands for time before this row, too.
    minute := jsonb_populate_record(minute, deltas);
    minute.connections_peak := (SELECT pgscale_internal.connections_peak(since));
    too_long := greatest(minute.observed_ms / (minute.period_s * 1000), 1);
    minute.observed_ms := least(minute.observed_ms, minute.period_s * 1000);
    minute.idle_in_transaction_session_ms :=
        round((greatest(minute.idle_in_transaction_session_ms - minute.active_session_ms, 0) / too_long)::numeric, 3);
    minute.active_session_ms := round((minute.active_session_ms / too_long)::numeric, 3);
    IF (too_long - 1) * minute.period_s > 0.1 THEN
        minute.wait_ms := ARRAY(SELECT (w.ms / too_long)::real FROM unnest(minute.wait_ms) WITH ORDINALITY w(ms, n) ORDER BY w.n);
    END IF;

    PERFORM pgscale_internal.archive_partition('archive_minute'::text, (since AT TIME ZONE 'UTC')::date);
    PERFORM pgscale_internal.archive_partition('archive_query'::text, (until AT TIME ZONE 'UTC')::date);
    IF EXISTS (SELECT FROM pgscale_internal.archive_minute m
                WHERE m.at > since - interval '2 hours' AND m.at < until AND NOT m.pulled
                  AND m.at + make_interval(secs => m.period_s) > since + interval '0.5 s') THEN
        RAISE EXCEPTION 'the archive already has rows of this time'
            USING ERRCODE = 'unique_violation',
                  DETAIL = 'The clock was set back, or another server''s archive was copied here.',
                  HINT = 'No time is archived twice. The archive resumes by itself when the clock has passed these rows.';
    END IF;
    INSERT INTO pgscale_internal.archive_minute VALUES (minute.*);
    PERFORM pgscale_internal.archive_seen(minute, until, NULL::text);
    PERFORM pgscale_internal.archive_texts(minute.queryids, until);
    RETURN 'written';
END
$$;
COMMENT ON FUNCTION pgscale_internal.archive_write(timestamptz, interval) IS
'writes the increase of waits and counters as a row of the archive; for its worker';
