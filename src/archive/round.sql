-- A round of the archive's worker: one new row.

-- What a round's process calls; these work in no other one.
CREATE FUNCTION pgscale.archive_wait_growth(keys bigint[], ms double precision[])
RETURNS double precision[]
AS 'MODULE_PATHNAME', 'pgscale_archive_wait_growth'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.archive_wait_growth(bigint[], double precision[]) IS
'increase of waits since the latest row of the archive; for its worker';

CREATE FUNCTION pgscale.archive_counter_growth("values" double precision[], markers bigint[])
RETURNS double precision[]
AS 'MODULE_PATHNAME', 'pgscale_archive_counter_growth'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.archive_counter_growth(double precision[], bigint[]) IS
'increase of counters since the latest row of the archive; for its worker';

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
'the server''s counters as the archive numbers them, with a hash of the reset time of each';

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
    room := 5 * current_setting('pgscale.archive_top')::integer - (SELECT count(*) FROM pgscale.archive_query q WHERE q.day = today);
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
'archives changes of settings; for the archive''s worker';

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
'writes the increase of waits and counters as a row of the archive; for its worker';
