-- What is wrong now: evidence, which C and SQL collect into one jsonb; rules in C, which read it; and one screen of it.

CREATE FUNCTION pgscale_internal.now_processes(watch_flushes boolean DEFAULT true)
RETURNS jsonb
AS 'MODULE_PATHNAME', 'pgscale_now_processes'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale_internal.now_processes(boolean) IS
'part of the evidence of diagnosis: a scan of all processes, without texts; watches flushes, and without the sampler the CPUs, for 15 ms; needs no preload';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_processes(boolean) TO pg_monitor;

CREATE FUNCTION pgscale_internal.now_counts()
RETURNS jsonb
AS 'MODULE_PATHNAME', 'pgscale_now_counts'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale_internal.now_counts() IS
'part of the evidence of diagnosis: waits and counters of the last seconds, half a minute, the last minute, and the hour before; NULL without the sampler';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_counts() TO pg_monitor;

CREATE FUNCTION pgscale_internal.now_disk()
RETURNS jsonb
AS 'MODULE_PATHNAME', 'pgscale_now_disk'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale_internal.now_disk() IS
'part of the evidence of diagnosis: size and free space of the disks of pg_wal and of the data directory, of each that has little; needs no preload';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_disk() TO pg_monitor;

CREATE FUNCTION pgscale_internal.now_roots(
    patient boolean,
    OUT pid integer, OUT prepared_xid xid, OUT waiters integer, OUT row_waiters integer, OUT longest_ms double precision,
    OUT locktype text, OUT relation_datid oid, OUT relation oid, OUT waits boolean, OUT xact_start timestamptz,
    OUT maintenance integer, OUT first_ms double precision, OUT holders integer, OUT gate_pid integer, OUT behind_gate integer,
    OUT queue_ms double precision, OUT row_wait_ms double precision)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_now_roots'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 5;
COMMENT ON FUNCTION pgscale_internal.now_roots(boolean) IS
'part of the evidence of diagnosis: the five root blockers with the most waiters; patient: looks for 200 ms until a session waits';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_roots(boolean) TO pg_monitor;

CREATE FUNCTION pgscale_internal.now_findings(
    seen jsonb,
    OUT rank integer, OUT rule text, OUT certainty text, OUT sentence text, OUT cure text, OUT risk text, OUT pid integer,
    OUT evidence jsonb)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_now_findings'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 2;
COMMENT ON FUNCTION pgscale_internal.now_findings(jsonb) IS 'what the rules of diagnosis find in evidence; see diagnosis()';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_findings(jsonb) TO pg_monitor;

CREATE FUNCTION pgscale_internal.now_rules()
RETURNS text[]
AS 'MODULE_PATHNAME', 'pgscale_now_rules'
LANGUAGE C STRICT STABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale_internal.now_rules() IS 'names of the rules of diagnosis';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_rules() TO pg_monitor;

-- Time in reads is divided by all reads, those of other processes too; so both times are lower bounds unless the server measures.
CREATE FUNCTION pgscale_internal.now_period(counts jsonb)
RETURNS jsonb
LANGUAGE sql STRICT STABLE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
AS $$
    SELECT jsonb_build_object('s', p.s, 'active', p.active, 'kinds', p.kinds, 'locks', p.locks,
               'flush_ms', CASE WHEN p.wal_syncs > 0 AND p.wal_sync_us > 0 THEN p.wal_sync_us / 1e3 / p.wal_syncs
                                WHEN p.wal_syncs > 0 THEN k.sync * p.s * 1e3 / p.wal_syncs
                                WHEN p.wal_syncs = 0 AND k.sync >= 0.9 THEN p.s * 1e3 END,
               'flush_measured', coalesce(p.wal_syncs > 0 AND p.wal_sync_us > 0, false), 'flushes', p.wal_syncs,
               'read_ms', CASE WHEN p.reads > 0 THEN k.read * p.s * 1e3 / p.reads WHEN p.reads = 0 AND k.read >= 0.9 THEN p.s * 1e3 END,
               'reads', p.reads, 'reads_per_s', p.reads / nullif(p.s, 0), 'temp_bytes_per_s', p.temp_bytes / nullif(p.s, 0),
               'wal_bytes_per_s', p.wal_bytes / nullif(p.s, 0), 'commits_per_s', p.commits / nullif(p.s, 0),
               'rollbacks_per_s', p.rollbacks / nullif(p.s, 0), 'deadlocks_per_s', p.deadlocks / nullif(p.s, 0))
      FROM jsonb_to_record(counts) p(s double precision, active double precision, kinds jsonb, locks double precision,
                                     wal_syncs double precision, wal_sync_us double precision, reads double precision,
                                     temp_bytes double precision, wal_bytes double precision, commits double precision,
                                     rollbacks double precision, deadlocks double precision)
      CROSS JOIN LATERAL (SELECT coalesce((p.kinds->>'wal_sync')::double precision, 0) AS sync,
                                 coalesce((p.kinds->>'data_read')::double precision, 0) AS read) k
$$;
COMMENT ON FUNCTION pgscale_internal.now_period(jsonb) IS
'part of the evidence of diagnosis: a period of now_counts() with times of a flush and a read';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_period(jsonb) TO pg_monitor;

-- A mean of few flushes or reads says nothing of what is usual.
CREATE FUNCTION pgscale_internal.now_usual(counts jsonb)
RETURNS jsonb
LANGUAGE sql STRICT STABLE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
AS $$
    SELECT p || CASE WHEN (p->>'flushes')::double precision >= 100 THEN '{}'::jsonb ELSE '{"flush_ms": null}' END
             || CASE WHEN (p->>'reads')::double precision >= 100 THEN '{}'::jsonb ELSE '{"read_ms": null}' END
      FROM pgscale_internal.now_period(counts) p
$$;
COMMENT ON FUNCTION pgscale_internal.now_usual(jsonb) IS 'part of the evidence of diagnosis: what is usual';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_usual(jsonb) TO pg_monitor;

CREATE FUNCTION pgscale_internal.now_classes(since timestamptz, until timestamptz)
RETURNS jsonb
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
AS $$
    SELECT jsonb_build_object('s', coalesce(max(a.coverage_fraction), 0) * extract(epoch FROM interval '36500 days')::double precision,
               'classes', coalesce(jsonb_object_agg(a.event_type, a.active_sessions) FILTER (WHERE a.event_type IS NOT NULL), '{}'))
      FROM pgscale.activity(since, until, '36500 days') a
$$;
COMMENT ON FUNCTION pgscale_internal.now_classes(timestamptz, timestamptz) IS
'part of the evidence of diagnosis: a period as average sessions by class of wait event';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_classes(timestamptz, timestamptz) TO pg_monitor;

-- This hour of the day before, if the archive has ten minutes of it; else the hour before, without the time that is compared with it.
-- A screen must not wait for a lock on the archive.
CREATE FUNCTION pgscale_internal.now_load()
RETURNS jsonb
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '100ms'
SET extra_float_digits = 1
AS $$
DECLARE
    at CONSTANT timestamptz := clock_timestamp();
    yesterday jsonb;
    found boolean;
BEGIN
    yesterday := pgscale_internal.now_classes(at - interval '24 hours 30 minutes', at - interval '23 hours 30 minutes');
    found := (yesterday->>'s')::double precision >= 600;
    RETURN jsonb_build_object('now', pgscale_internal.now_classes(at - interval '30 seconds', at), 'yesterday', found,
               'usual', CASE WHEN found THEN yesterday
                             ELSE pgscale_internal.now_classes(at - interval '1 hour 30 seconds', at - interval '30 seconds') END);
EXCEPTION
    WHEN lock_not_available THEN
        RETURN NULL;
END
$$;
COMMENT ON FUNCTION pgscale_internal.now_load() IS 'part of the evidence of diagnosis: the load now, and what is usual';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_load() TO pg_monitor;

CREATE FUNCTION pgscale_internal.now_age(since timestamptz)
RETURNS double precision
LANGUAGE sql VOLATILE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN since IS NOT NULL THEN greatest(extract(epoch FROM clock_timestamp() - since)::double precision, 0) END
$$;
COMMENT ON FUNCTION pgscale_internal.now_age(timestamptz) IS
'part of the evidence of diagnosis: seconds since a time, never negative; NULL if the time is not known';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_age(timestamptz) TO pg_monitor;

-- By pg_stat_activity's rules for other users' texts. A session that has ended meanwhile is left out. The command is found in the
-- whole text: in a line, a comment at its beginning would have no end.
CREATE FUNCTION pgscale_internal.now_sessions(sessions jsonb)
RETURNS jsonb
LANGUAGE sql STRICT VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
AS $$
    SELECT coalesce(jsonb_agg(s.value || jsonb_build_object(
               'role', a.usesysid::bigint, 'application', a.application_name, 'backend_type', a.backend_type,
               'login', pgscale_internal.clean_line(concat_ws('@', pgscale_internal.name_of(a.usesysid, true), pgscale_internal.name_of(a.datid)), 100),
               'query', pgscale_internal.clean_line(pgscale_internal.clean_statement(t.query), 100), 'command', pgscale_internal.statement_command(t.query),
               'transaction_s', pgscale_internal.now_age(a.xact_start), 'state_s', pgscale_internal.now_age(a.state_change))
                   ORDER BY s.ordinality), '[]')
      FROM jsonb_array_elements(sessions) WITH ORDINALITY s
      CROSS JOIN LATERAL pg_stat_get_activity((s.value->>'pid')::integer) a
      LEFT JOIN pg_database d ON d.oid = a.datid
      CROSS JOIN LATERAL (SELECT pgscale_internal.foreign_text(a.query, coalesce(d.encoding, 0)) AS query) t
$$;
COMMENT ON FUNCTION pgscale_internal.now_sessions(jsonb) IS 'part of the evidence of diagnosis: sessions with their texts';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_sessions(jsonb) TO pg_monitor;

-- Which session pins the page that a VACUUM waits for is not known; it has a lock on the table, and a snapshot.
CREATE FUNCTION pgscale_internal.now_pinning(vacuum_pid integer)
RETURNS jsonb
LANGUAGE sql STRICT VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object('pid', s.pid, 'state', s.state, 'event_type', s.wait_event_type, 'event', s.wait_event)
                              ORDER BY s.xact_start), '[]')
      FROM (SELECT DISTINCT a.pid, a.state, a.wait_event_type, a.wait_event, a.xact_start
              FROM pg_stat_get_progress_info('VACUUM') v
              JOIN pg_lock_status() l ON l.database = v.datid AND l.relation = v.relid AND l.granted AND l.pid <> v.pid
              CROSS JOIN LATERAL pg_stat_get_activity(l.pid) a
             WHERE v.pid = vacuum_pid AND a.backend_xmin IS NOT NULL) s
$$;
COMMENT ON FUNCTION pgscale_internal.now_pinning(integer) IS
'part of the evidence of diagnosis: the sessions that may have pinned a page that a VACUUM waits for';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_pinning(integer) TO pg_monitor;

-- The kind of lock that sessions wait for at a root, as the history has it, and when the root waited for such a lock itself: it has it
-- since then at most. watched: whether the history has a sample of each second.
CREATE FUNCTION pgscale_internal.now_root_sessions(watched boolean, patient boolean)
RETURNS jsonb
LANGUAGE sql STRICT VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
-- planned for thousands of rows, it would be compiled for seconds
SET jit = off
AS $$
    WITH waited AS MATERIALIZED (
        SELECT h.pid, h.event, max(h.sampled_at) AS at FROM pgscale_internal.wait_history(clock_timestamp() - interval '10 s', NULL) h
         WHERE watched AND h.event_type = 'Lock' GROUP BY 1, 2)
    SELECT coalesce(jsonb_agg(jsonb_build_object(
               'pid', r.pid, 'waiters', r.waiters, 'rows', r.row_waiters, 'longest_s', r.longest_ms / 1e3, 'locktype', r.locktype,
               'relation', CASE WHEN r.relation_datid IN (0, here.oid) OR r.relation < 16384
                                THEN pgscale_internal.clean_line(r.relation::regclass::text, 130)
                                WHEN r.relation IS NOT NULL
                                THEN concat('relation ' || r.relation, ' of database ' || pgscale_internal.name_of(r.relation_datid)) END,
               'waits', r.waits, 'gid', p.gid, 'gid_shown', pgscale_internal.clean_line(p.gid, 100), 'database', p.database,
               'role', a.usesysid::bigint, 'application', a.application_name, 'backend_type', a.backend_type,
               'state', CASE WHEN r.pid IS NULL THEN 'prepared' ELSE coalesce(a.state, a.backend_type) END,
               'event_type', a.wait_event_type, 'event', a.wait_event,
               'query', pgscale_internal.clean_line(pgscale_internal.clean_statement(pgscale_internal.foreign_text(a.query, coalesce(d.encoding, 0))), 100),
               'age_s', least(pgscale_internal.now_age(a.query_start), t.s), 'transaction_s', t.s,
               -- of other roles' transactions it shows whether they are younger than 2 s, which their locks in pg_locks show, too
               'transaction_least_s', CASE WHEN pgscale_internal.now_age(r.xact_start) < 2 THEN 0 WHEN r.xact_start IS NOT NULL THEN 2 END,
               'state_s', least(pgscale_internal.now_age(a.state_change), t.s),
               'waited_ago_s', CASE WHEN pgscale_internal.now_age(r.xact_start) >= 2 THEN
                                    (SELECT pgscale_internal.now_age(max(w.at)) FROM waited w WHERE w.pid = r.pid AND w.at >= r.xact_start
                                        AND (w.event = r.locktype OR (r.row_waiters > 0 AND w.event IN ('transactionid', 'tuple')))) END,
               'maintenance', r.maintenance + (CASE WHEN r.row_waiters > 0 AND EXISTS (
                                    SELECT FROM pg_get_replication_slots() l
                                     WHERE l.active_pid = r.gate_pid AND l.slot_type = 'logical' AND l.confirmed_flush_lsn IS NULL) THEN 1 ELSE 0 END),
               'first_s', r.first_ms / 1e3, 'queue_s', r.queue_ms / 1e3, 'row_wait_s', r.row_wait_ms / 1e3, 'holders', r.holders, 'gate_pid', r.gate_pid, 'behind_gate', r.behind_gate,
               'gate_application', g.application_name, 'gate_type', g.backend_type, 'gate_role', g.usesysid::bigint,
               'gate_query', pgscale_internal.clean_line(pgscale_internal.clean_statement(pgscale_internal.foreign_text(g.query, coalesce(e.encoding, 0))), 100),
               'pinning', CASE WHEN a.wait_event IN ('BufferPin', 'BufferCleanup') THEN pgscale_internal.now_sessions(pgscale_internal.now_pinning(r.pid)) END)
                   ORDER BY r.waiters DESC), '[]')
      FROM pgscale_internal.now_roots(patient) r
      CROSS JOIN (SELECT b.oid FROM pg_database b WHERE b.datname = current_database()) here
      LEFT JOIN LATERAL pg_stat_get_activity(r.pid) a ON r.pid IS NOT NULL
      LEFT JOIN pg_database d ON d.oid = a.datid
      LEFT JOIN LATERAL pg_stat_get_activity(r.gate_pid) g ON true
      LEFT JOIN pg_database e ON e.oid = g.datid
      LEFT JOIN LATERAL (SELECT x.prepared, quote_literal(pgscale_internal.foreign_text(x.gid, coalesce(e.encoding, 0))) AS gid,
                                pgscale_internal.clean_line(pgscale_internal.foreign_name(e.datname), 130) AS database
                           FROM pg_prepared_xact() x LEFT JOIN pg_database e ON e.oid = x.dbid
                          WHERE x.transaction = r.prepared_xid) p ON r.pid IS NULL
      -- by shared memory, but only where pg_stat_activity shows it
      CROSS JOIN LATERAL (SELECT pgscale_internal.now_age(CASE WHEN r.pid IS NULL THEN p.prepared
                                                               WHEN a.xact_start IS NOT NULL THEN r.xact_start END) AS s) t
$$;
COMMENT ON FUNCTION pgscale_internal.now_root_sessions(boolean, boolean) IS 'part of the evidence of diagnosis: root blockers with their texts';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_root_sessions(boolean, boolean) TO pg_monitor;

-- On a standby: the sessions that replay may wait for, as far as the caller may know. Of a snapshot, the oldest of each database; of a
-- lock, those in its way; of a page, two in a transaction, since the rule wants to know whether it is one; of a tablespace, the oldest
-- in one. Who may not see others' sessions is not told of his own: they would seem to be the only ones.
CREATE FUNCTION pgscale_internal.now_conflicting(conflict text, startup_pid integer)
RETURNS jsonb
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
AS $$
    WITH wait AS MATERIALIZED (
        SELECT b.blocked_by, b.waited_ms / 1e3 AS s FROM pgscale_internal.blockers() b WHERE conflict = 'lock' AND b.pid = startup_pid),
    session AS (
        SELECT a.pid, a.state, a.wait_event_type, a.wait_event, a.xact_start,
               row_number() OVER (PARTITION BY a.datid, a.backend_xmin IS NULL ORDER BY age(a.backend_xmin) DESC, a.xact_start) AS by_snapshot,
               row_number() OVER (ORDER BY a.xact_start) AS by_start, a.backend_xmin IS NOT NULL AS snapshot
          FROM pg_stat_get_activity(NULL) a
         WHERE pg_has_role('pg_read_all_stats', 'USAGE') AND a.backend_type = 'client backend' AND a.pid <> pg_backend_pid()
               AND a.xact_start IS NOT NULL)
    SELECT jsonb_build_object('conflict_s', (SELECT w.s FROM wait w), 'conflicting',
               coalesce(pgscale_internal.now_sessions(
                   jsonb_agg(jsonb_build_object('pid', s.pid, 'state', s.state, 'event_type', s.wait_event_type, 'event', s.wait_event)
                             ORDER BY s.xact_start)), '[]'))
      FROM (SELECT c.pid, c.state, c.wait_event_type, c.wait_event, c.xact_start FROM session c
             WHERE CASE conflict WHEN 'snapshot' THEN c.snapshot AND c.by_snapshot = 1 WHEN 'pin' THEN c.by_start <= 2
                                 WHEN 'tablespace' THEN c.by_start = 1 END
            UNION ALL
            SELECT a.pid, a.state, a.wait_event_type, a.wait_event, a.xact_start
              FROM wait w CROSS JOIN unnest(w.blocked_by) b(pid) CROSS JOIN LATERAL pg_stat_get_activity(b.pid) a) s
$$;
COMMENT ON FUNCTION pgscale_internal.now_conflicting(text, integer) IS
'part of the evidence of diagnosis: on a standby, how long replay has waited for a lock, and the sessions that it may wait for';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_conflicting(text, integer) TO pg_monitor;

-- The standbys that commits wait for. The first number of the setting is that of the standbys wanted, if it is more than one. The first
-- position that a commit waits for tells those that have it and have not replayed it from those that do not have it.
CREATE FUNCTION pgscale_internal.now_standbys(wanted integer, awaited pg_lsn)
RETURNS jsonb
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jsonb_build_object('sync_standbys', CASE WHEN s.known THEN s.confirm END, 'sync_catching_up', CASE WHEN s.known THEN s.catch_up END,
               'sync_flushed', CASE WHEN s.known AND awaited IS NOT NULL THEN s.flushed END, 'sync_replaying', CASE WHEN s.known THEN s.replaying END,
               'sync_apply', (SELECT g.reset_val = 'remote_apply' AND g.source NOT IN ('user', 'database', 'database user', 'client')
                                FROM pg_settings g WHERE g.name = 'synchronous_commit'),
               'patroni', pgscale_internal.node_manager() IS NOT NULL,
               'sync_fewer', CASE WHEN s.known AND s.confirm BETWEEN 1 AND wanted - 1
                                  THEN regexp_replace(current_setting('synchronous_standby_names'), '[0-9]+', s.confirm::text) END)
      FROM (SELECT pg_has_role('pg_read_all_stats', 'USAGE') AS known, count(*) FILTER (WHERE w.confirms) AS confirm,
                   count(*) FILTER (WHERE w.confirms AND w.flush_lsn >= awaited AND w.replay_lsn < awaited) AS flushed,
                   min(pgscale_internal.clean_line(a.application_name, 100))
                       FILTER (WHERE w.confirms AND w.flush_lsn >= awaited AND w.replay_lsn < awaited) AS replaying,
                   count(*) FILTER (WHERE w.sync_priority > 0 AND w.state IN ('startup', 'catchup')) AS catch_up
              FROM (SELECT x.*, x.sync_state IN ('sync', 'quorum') AS confirms FROM pg_stat_get_wal_senders() x) w
              LEFT JOIN LATERAL pg_stat_get_activity(w.pid) a ON true) s
$$;
COMMENT ON FUNCTION pgscale_internal.now_standbys(integer, pg_lsn) IS
'part of the evidence of diagnosis: connected standbys of those that commits wait for, unless the caller may not know; synchronous_standby_names with as many';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_standbys(integer, pg_lsn) TO pg_monitor;

-- The slot that keeps most WAL, and since when archiving has failed: asked for where the disk of pg_wal has little space.
CREATE FUNCTION pgscale_internal.now_wal_kept()
RETURNS jsonb
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
AS $$
    SELECT jsonb_build_object('archive_failed_s',
               (SELECT pgscale_internal.now_age(a.last_failed_time) FROM pg_stat_get_archiver() a
                 WHERE a.last_failed_time > coalesce(a.last_archived_time, '-infinity') AND current_setting('archive_mode') <> 'off'))
           || coalesce((SELECT jsonb_build_object('slot', s.slot_name, 'slot_active', s.active, 'slot_bytes', pg_wal_lsn_diff(
                                   CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, s.restart_lsn))
                          FROM pg_get_replication_slots() s
                         WHERE s.restart_lsn IS NOT NULL AND s.wal_status IS DISTINCT FROM 'lost'
                               -- 17 and later: a standby's copy of its primary's slot, which cannot be dropped
                               AND to_jsonb(s)->>'synced' IS DISTINCT FROM 'true' ORDER BY s.restart_lsn LIMIT 1), '{}')
$$;
COMMENT ON FUNCTION pgscale_internal.now_wal_kept() IS
'part of the evidence of diagnosis: the slot that keeps most WAL, and how long ago archiving failed, if it has not worked since';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_wal_kept() TO pg_monitor;

-- What keeps most from VACUUM of what seems forgotten: a prepared transaction, a slot that no process uses, a session that idles in its
-- transaction and shares its snapshot with none that is at work, as the leader of a parallel dump does. A statement at work is none of
-- them. The thresholds are the rule's.
CREATE FUNCTION pgscale_internal.now_horizon(xids integer, seconds double precision)
RETURNS jsonb
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
AS $$
    WITH session AS MATERIALIZED (
        SELECT a.pid, a.usesysid, a.application_name, a.state LIKE 'idle in transaction%' AS idle, a.backend_xmin::text AS snapshot, a.backend_xid IS NOT NULL AS writes, a.state_change,
               greatest(age(a.backend_xmin), age(a.backend_xid)) AS age
          FROM pg_stat_get_activity(NULL) a
         WHERE a.backend_type = 'client backend' AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL))
    SELECT jsonb_build_object('xmin_holder', h.holder, 'xmin_name', h.name, 'xmin_shown', pgscale_internal.clean_line(h.shown, 100),
                              'xmin_role', h.role::bigint, 'xmin_age', h.age, 'xmin_s', h.s)
      FROM (SELECT 'prepared' AS holder, quote_literal(g.gid) AS name, quote_literal(g.gid) AS shown, NULL::oid AS role,
                   age(x.transaction) AS age, pgscale_internal.now_age(x.prepared) AS s
              FROM pg_prepared_xact() x LEFT JOIN pg_database d ON d.oid = x.dbid
              CROSS JOIN LATERAL (SELECT pgscale_internal.foreign_text(x.gid, coalesce(d.encoding, 0)) AS gid) g
            UNION ALL
            SELECT 'slot', quote_literal(s.slot_name), s.slot_name, NULL, greatest(age(s.xmin), age(s.catalog_xmin)), NULL
              FROM pg_get_replication_slots() s
             WHERE NOT s.active AND s.restart_lsn IS NOT NULL AND s.wal_status IS DISTINCT FROM 'lost'
            UNION ALL
            SELECT 'session', i.pid::text, concat('pid ', i.pid, ', ' || nullif(i.application_name, '')), i.usesysid, i.age,
                   pgscale_internal.now_age(i.state_change)
              FROM session i
             WHERE i.idle AND (i.writes OR NOT EXISTS (SELECT FROM session o WHERE NOT o.idle AND o.snapshot = i.snapshot))) h
     WHERE h.age >= xids AND (h.s >= seconds OR h.s IS NULL)
     ORDER BY h.age DESC LIMIT 1
$$;
COMMENT ON FUNCTION pgscale_internal.now_horizon(integer, double precision) IS
'part of the evidence of diagnosis: the prepared transaction, unused slot or idle transaction that holds VACUUM back most; NULL if none has for long';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_horizon(integer, double precision) TO pg_monitor;

-- A role, or a database, that has used up the connections it may have; not a role for one or two, as those of monitoring and replication.
CREATE FUNCTION pgscale_internal.now_limited()
RETURNS jsonb
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
AS $$
    WITH session AS MATERIALIZED (
        SELECT a.usesysid, a.datid, count(*) AS n, count(*) FILTER (WHERE a.state = 'idle') AS idle
          FROM pg_stat_get_activity(NULL) a WHERE a.backend_type = 'client backend' GROUP BY 1, 2)
    SELECT jsonb_build_object('limited', l.what,
                              'limited_name', CASE WHEN pgscale_internal.foreign_name(l.name) = l.name THEN quote_ident(l.name) END,
                              'limited_shown', pgscale_internal.clean_line(pgscale_internal.foreign_name(l.name), 100),
                              'limited_role', l.role::bigint, 'limited_connections', l.most, 'limited_idle', l.idle)
      FROM (SELECT 'role' AS what, r.rolname AS name, r.oid AS role, r.rolconnlimit AS most, sum(s.n) AS n, sum(s.idle) AS idle
              FROM pg_roles r JOIN session s ON s.usesysid = r.oid WHERE r.rolconnlimit > 2 AND NOT r.rolsuper GROUP BY 2, 3, 4
            UNION ALL
            SELECT 'database', d.datname, d.datdba, d.datconnlimit, sum(s.n), sum(s.idle)
              FROM pg_database d JOIN session s ON s.datid = d.oid WHERE d.datconnlimit > 2 GROUP BY 2, 3, 4) l
     WHERE l.n >= l.most
     ORDER BY l.n DESC LIMIT 1
$$;
COMMENT ON FUNCTION pgscale_internal.now_limited() IS
'part of the evidence of diagnosis: the role or database whose CONNECTION LIMIT is reached; NULL if there is none';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_limited() TO pg_monitor;

CREATE FUNCTION pgscale_internal.now_evidence()
RETURNS jsonb
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
AS $$
DECLARE
    counts jsonb := pgscale_internal.now_counts();
    -- where flushes are counted, how long they take is known
    seen jsonb := pgscale_internal.now_processes(coalesce((counts->'recent'->>'wal_syncs')::bigint, 0) <= 0);
    disk jsonb := pgscale_internal.now_disk();
    recent jsonb := coalesce(pgscale_internal.now_period(counts->'recent'),
                             pgscale_internal.now_period(jsonb_build_object('s', 0, 'active', seen->'active', 'kinds', seen->'kinds', 'locks', seen->'locks')));
    watched boolean := counts IS NOT NULL AND (SELECT s.setting::integer <= 2000 FROM pg_settings s WHERE s.name = 'pgscale.sampler_history_period');
BEGIN
    RETURN (seen - '{active,kinds,locks,forgotten_xids,forgotten_s}'::text[]) || jsonb_build_object(
        'standby', pg_is_in_recovery(),
        'reserved', current_setting('superuser_reserved_connections')::integer
                    + coalesce(current_setting('reserved_connections', true)::integer, 0),
        'now', recent, 'usual', pgscale_internal.now_usual(counts->'usual'), 'flush_measured', recent->'flush_measured',
        'checkpoints_requested', counts->'minute'->'checkpoints_requested', 'minute_s', counts->'minute'->'s',
        'minute_wal_bytes', counts->'minute'->'wal_bytes', 'max_wal_size_bytes', pg_size_bytes(current_setting('max_wal_size')),
        'minute_max_wal_size_bytes', counts->'max_wal_size_bytes', 'usual_checkpoints_requested', counts->'usual'->'checkpoints_requested',
        'watched_s', CASE WHEN watched THEN (recent->>'s')::double precision END,
        'roots', pgscale_internal.now_root_sessions(watched, (recent->>'locks')::double precision >= 0.5),
        'sessions', pgscale_internal.now_sessions(seen->'sessions'),
        'computing', pgscale_internal.now_sessions(seen->'computing'),
        'missing', CASE WHEN counts IS NULL THEN (SELECT CASE h.state WHEN 'working' THEN 'the sampler has just begun' ELSE h.reason END
                                                   FROM pgscale.health h WHERE h.feature = 'sampler') END)
        -- few servers need them
        || CASE WHEN (counts->'minute'->>'checkpoints_requested')::bigint >= 2
                THEN jsonb_build_object('half_minute', pgscale_internal.now_period(counts->'half_minute'),
                                        'max_wal_size_wanted', (SELECT pgscale_internal.tuning_max_wal_size())) ELSE '{}' END
        -- the server's, whatever this session has set
        || CASE WHEN (recent->>'deadlocks_per_s')::double precision > 0
                THEN (SELECT jsonb_build_object('deadlock_timeout_s', CASE WHEN s.source NOT IN ('user', 'database user', 'client')
                                                                           THEN s.reset_val ELSE s.boot_val END::double precision / 1e3)
                        FROM pg_settings s WHERE s.name = 'deadlock_timeout')
                ELSE '{}' END
        || disk || CASE WHEN disk ? 'wal_free_bytes' THEN pgscale_internal.now_wal_kept() ELSE '{}' END
        || pgscale_internal.now_standbys((seen->>'sync_wanted')::integer, (seen->>'sync_lsn')::pg_lsn)
        || coalesce(pgscale_internal.now_horizon((seen->>'forgotten_xids')::integer, (seen->>'forgotten_s')::double precision), '{}')
        || CASE WHEN EXISTS (SELECT FROM pg_roles r WHERE r.rolconnlimit > 2) OR EXISTS (SELECT FROM pg_database d WHERE d.datconnlimit > 2)
                THEN coalesce(pgscale_internal.now_limited(), '{}') ELSE '{}' END
        || CASE WHEN seen->>'conflict' IS NULL THEN '{}' ELSE pgscale_internal.now_conflicting(seen->>'conflict', (seen->>'startup_pid')::integer) END
        || (SELECT jsonb_build_object('oldest_xid_age', age(d.datfrozenxid), 'oldest_xid_owner', d.datdba::bigint,
                                      'oldest_xid_database', pgscale_internal.clean_line(pgscale_internal.foreign_name(d.datname), 130))
              FROM pg_database d ORDER BY age(d.datfrozenxid) DESC LIMIT 1);
END
$$;
COMMENT ON FUNCTION pgscale_internal.now_evidence() IS 'the evidence of diagnosis: what is known of the server at this moment, and what is usual';
GRANT EXECUTE ON FUNCTION pgscale_internal.now_evidence() TO pg_monitor;

CREATE FUNCTION pgscale.diagnosis(
    OUT rank integer, OUT rule text, OUT certainty text, OUT sentence text, OUT cure text, OUT risk text, OUT pid integer,
    OUT evidence jsonb)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL UNSAFE ROWS 2
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
AS $$
    SELECT * FROM pgscale_internal.now_findings(pgscale_internal.now_evidence())
$$;
COMMENT ON FUNCTION pgscale.diagnosis() IS
'causes of what is unusual at this moment, the most costly first: sessions held up, times 1, 0.6 or 0.25 by certainty; no row: nothing is unusual. Works without preload, with less evidence
rank: 1 for the first line of pgscale.now
rule: name of the rule
certainty: high, medium or low
sentence: the finding in one sentence, with the cause
cure: statement that ends the trouble, or that shows more where only a person can decide
risk: what the statement costs, and the role that may run it if the caller may not
pid: process ID of the cause; NULL if the cause is not one process
evidence: the numbers: sessions, _s seconds, _ms milliseconds, _bytes bytes';
GRANT EXECUTE ON FUNCTION pgscale.diagnosis() TO pg_monitor;
