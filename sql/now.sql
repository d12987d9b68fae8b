-- What is wrong now: its shape, who may read it, and each rule on evidence that is made up, on both sides of its thresholds. A case
-- is the evidence and what the rules find in it; wrong ones are printed. That the evidence is right takes several sessions: see
-- t/now_*.pl.
CREATE EXTENSION pgscale;
\pset format unaligned \pset footer off

-- an idle server: the shape of the screen
SELECT split_part(now, '.', 1) AS first_line FROM pgscale.now LIMIT 1;
SELECT count(*) BETWEEN 8 AND 36 AS lines, max(length(now)) <= 118 AS width, bool_and(now !~ '[[:cntrl:]]') AS plain,
       count(*) = count(now) AS whole FROM pgscale.now;
SELECT count(*) FROM pgscale.diagnosis();
SELECT jsonb_typeof(value) AS type, string_agg(key, ' ' ORDER BY key) AS keys FROM jsonb_each(pgscale_internal.now_evidence())
 WHERE key NOT IN ('queued_fraction', 'usual', 'checkpointer_event', 'minute_s', 'minute_wal_bytes', 'minute_max_wal_size_bytes',
       'checkpoints_requested', 'usual_checkpoints_requested', 'missing', 'flush_measured', 'half_minute', 'max_wal_size_wanted',
       'watched_s')
 GROUP BY 1 ORDER BY 1;

-- The cases, and the texts of what they find.
\set ECHO none
CREATE TABLE cases (n int GENERATED ALWAYS AS IDENTITY, found text, expected text);
CREATE TABLE texts (n int GENERATED ALWAYS AS IDENTITY, rule text, sentence text, cure text, risk text);
-- Members of "more" replace those of a server at work, of which eight sessions are active.
CREATE FUNCTION finds(more jsonb, now jsonb DEFAULT '{}', usual jsonb DEFAULT '{}')
RETURNS TABLE (rank integer, rule text, certainty text, pid integer, sentence text, cure text, risk text, evidence jsonb)
LANGUAGE sql AS $$
    SELECT f.rank, f.rule, f.certainty, f.pid, f.sentence, f.cure, f.risk, f.evidence
      FROM pgscale_internal.now_findings('{"used": 20, "idle": 10, "max_connections": 100, "reserved": 3, "cpus": 4,
               "queued_fraction": 0, "max_wal_size_bytes": 1073741824, "minute_max_wal_size_bytes": 1073741824,
               "max_wal_size_wanted": "4GB", "sync_standbys": 0, "look_s": 0.015, "watched_s": 6}'::jsonb || more
           || jsonb_build_object('now', '{"s": 6, "active": 8}'::jsonb || now,
                                 'usual', '{"s": 3000, "active": 4, "kinds": {}, "flush_ms": 1, "read_ms": 0.5}'::jsonb || usual)) f
     ORDER BY f.rank
$$;
-- Of each finding: rule, certainty, pid and the cure's first object; of deadlocks how much of the waits they explain.
CREATE FUNCTION found(more jsonb, now jsonb DEFAULT '{}', usual jsonb DEFAULT '{}') RETURNS text LANGUAGE sql AS $$
    INSERT INTO texts (rule, sentence, cure, risk) SELECT f.rule, f.sentence, f.cure, f.risk FROM finds(more, now, usual) f;
    SELECT coalesce(string_agg(concat_ws(' ', f.rule, f.certainty, f.pid, substring(f.cure from '\m(?:pgscale\.|pg_)(\w+)'),
               CASE f.rule WHEN 'deadlocks' THEN concat(round((f.evidence->>'held_up_sessions')::numeric, 1), '/',
                                                        round((f.evidence->>'waiting_sessions')::numeric, 1)) END),
               ', ' ORDER BY f.rank), '')
      FROM finds(more, now, usual) f
$$;
CREATE FUNCTION evidence(more jsonb, now jsonb DEFAULT '{}', usual jsonb DEFAULT '{}') RETURNS text LANGUAGE sql AS $$
    SELECT f.evidence::text FROM finds(more, now, usual) f WHERE f.rank = 1
$$;
-- Evidence: a session with locks that others wait for; one of which little is known; one that keeps an advisory lock; one in a
-- short transaction, which holds rows or a table.
CREATE FUNCTION root(more jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_object('roots', jsonb_build_array('{"pid": 4711, "application": "nightly_report",
        "backend_type": "client backend", "waiters": 8, "rows": 8, "longest_s": 230, "state": "idle in transaction", "state_s": 245,
        "transaction_s": 300, "locktype": "tuple", "relation": "public.t", "query": "UPDATE t SET v = 1", "event_type": "Client",
        "event": "ClientRead", "age_s": 250}'::jsonb || more))
$$;
CREATE FUNCTION hidden(more jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT root('{"backend_type": null, "state": null, "state_s": null, "transaction_s": null}'::jsonb || more) $$;
CREATE FUNCTION office(more jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT root('{"rows": 0, "locktype": "advisory", "relation": null, "state": "idle", "transaction_s": null,
        "first_s": 5}'::jsonb || more) $$;
CREATE FUNCTION row_root(rows integer) RETURNS jsonb LANGUAGE sql AS $$
    SELECT root(jsonb_build_object('transaction_s', 0.1, 'longest_s', 0.1, 'rows', rows)) $$;
CREATE FUNCTION lock_root(more jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT root('{"transaction_s": 0.1, "longest_s": 0.1, "rows": 0, "locktype": "relation"}'::jsonb || more) $$;
-- A session behind which many wait for its own wait; two queues, of which one is a cycle.
CREATE FUNCTION gate(more jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT root('{"holders": 6, "rows": 0, "gate_pid": 55, "gate_type": "client backend", "gate_query": "ALTER TABLE t",
        "behind_gate": 7}'::jsonb || more) $$;
CREATE FUNCTION pinned(more jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT root('{"state": "active", "event_type": "BufferPin", "event": "BufferPin", "rows": 0}'::jsonb || more) $$;
CREATE FUNCTION cycle(waiters integer, others integer) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_object('roots', jsonb_build_array(
        row_root(waiters)->'roots'->0 || jsonb_build_object('waits', true, 'waiters', waiters, 'relation', 'public.accounts'),
        row_root(others)->'roots'->0 || jsonb_build_object('waiters', others, 'relation', 'public.other'))) $$;
CREATE FUNCTION deadlocks(now jsonb, more jsonb DEFAULT '{}', usual jsonb DEFAULT '{}') RETURNS text LANGUAGE sql AS $$
    SELECT found(row_root(8) || '{"deadlock_timeout_s": 1}' || more,
                 '{"deadlocks_per_s": 1, "kinds": {"lock_transaction": 1, "lock_tuple": 3}}'::jsonb || now, usual) $$;
CREATE FUNCTION computing(more jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_object('long_computing', 1, 'computing', jsonb_build_array('{"pid": 4712, "application": "psql", "age_s": 5,
        "cpus": 1, "workers": 0, "running": true, "query": "SELECT count(*) FROM a, b, c", "event": "CPU",
        "event_type": "CPU"}'::jsonb || more)) $$;
CREATE FUNCTION storm(more jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT '{"checkpoints_requested": 6, "minute_s": 60, "minute_wal_bytes": 4e9}'::jsonb || more $$;
CREATE FUNCTION checkpoints(more jsonb, now jsonb, usual jsonb DEFAULT '{}') RETURNS text LANGUAGE sql AS $$
    SELECT found(storm('{"half_minute": {"s": 28, "active": 8, "kinds": {"wal_sync": 3}}}'::jsonb || more), now, usual) $$;
CREATE FUNCTION full_disk(more jsonb) RETURNS text LANGUAGE sql AS $$
    SELECT found('{"max_wal_size_bytes": 1e9, "wal_size_bytes": 1e11, "wal_free_bytes": 5e9,
        "wal_used_bytes": 9e10}'::jsonb || more) $$;
CREATE FUNCTION synchronous(more jsonb) RETURNS text LANGUAGE sql AS $$ SELECT found(more, '{"kinds": {"sync_rep": 7}}') $$;
CREATE FUNCTION conflicts(conflict text, sessions jsonb, more jsonb DEFAULT '{}') RETURNS text LANGUAGE sql AS $$
    SELECT found(jsonb_build_object('standby', true, 'conflict', conflict, 'conflicting', sessions) || more) $$;
CREATE FUNCTION holder(more jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT '{"xmin_holder": "session", "xmin_name": "4711", "xmin_shown": "pid 4711, nightly_report", "xmin_age": 100000,
        "xmin_s": 60}'::jsonb || more $$;

INSERT INTO cases (found, expected) VALUES
-- nothing unusual
    (found('{}'), ''),
    (found('{}', '{"kinds": {"cpu": 4, "wal_sync": 2, "data_read": 1, "lock_transaction": 1}}'), ''),
-- blocker
    (found(root('{}')), 'blocker high 4711 terminate'),
    (found(root('{"waiters": 1, "longest_s": 4.9}')), ''),
    (found(root('{"waiters": 1, "longest_s": 5, "rows": 1}')), 'blocker high 4711 terminate'),
    (found(root('{"waiters": 2, "longest_s": 0.9}')), ''),
    (found(root('{"waiters": 2, "longest_s": 1, "state_s": 0.9}')), 'blocker medium 4711 terminate'),
    (found(root('{"transaction_s": 1.9}')), ''),
    (found(root('{"rows": 0, "locktype": "relation", "state": "active", "event_type": null, "event": null}')),
        'blocker high 4711 cancel'),
    (found(root('{"rows": 0, "locktype": "advisory", "state": "active", "application": "",
        "query": "<insufficient privilege>"}')), 'blocker medium 4711 terminate'),
    (found(root('{"state": "active", "event_type": "IO", "event": "WALSync"}')), 'blocker low 4711 cancel'),
    (found(root('{"state": "active", "event_type": "IPC", "event": "SyncRep"}')), ''),
    (found(root('{"pid": null, "gid": "''it''''s''", "gid_shown": "''it''''s''", "state": "prepared", "state_s": null}')),
        'blocker high prepared_xacts'),
    (found(root(jsonb_build_object('pid', null, 'state', 'prepared', 'state_s', null, 'database', 'shop',
        'gid', quote_literal(repeat('x', 96)), 'gid_shown', quote_literal(repeat('x', 96))))), 'blocker high prepared_xacts'),
    (evidence(root('{}')), '{"state": "idle in transaction", "held_s": 300.000, "waiters": 8.000, "locktype": "tuple", '
        '"relation": "public.t", "transaction_s": 300.000, "longest_wait_s": 230.000}'),
-- what cancel() and terminate() refuse
    (found(root('{"backend_type": "walsender", "state": "active", "query": "START_REPLICATION"}')),
        'blocker high 4711 stat_activity'),
    (found(root('{"backend_type": "logical replication worker", "state": "idle in transaction"}')),
        'blocker high 4711 stat_activity'),
-- what is not known: the age of a transaction, the state; an office that is held
    (found(root('{"state": "disabled", "state_s": null, "transaction_s": null, "query": null}')), 'blocker low 4711 terminate'),
    (found(hidden('{"query": "<insufficient privilege>"}')), 'blocker low 4711 terminate'),
    (found(hidden('{"transaction_least_s": 2}')), 'blocker medium 4711 terminate'),
    (found(hidden('{"transaction_least_s": 0}')), ''),
    (found(hidden('{"rows": 0, "locktype": "advisory"}')), ''),
    (found(root('{"pid": 77, "backend_type": "startup", "state": "startup", "application": "", "transaction_s": null,
        "query": null}')), 'blocker high blockers'),
-- an idle session with an advisory lock is a leader
    (found(root('{"rows": 0, "locktype": "advisory", "state": "idle", "transaction_s": null}')), ''),
-- one that waits itself is no cause, and an autovacuum that prevents wraparound is none to end
    (found(root('{"waits": true}')), ''),
    (found(root('{"pid": 99, "backend_type": "autovacuum worker", "rows": 0, "state": "active",
        "query": "autovacuum: VACUUM public.t (to prevent wraparound)"}')), 'wraparound_vacuum high stat_progress_vacuum'),
-- a client that calls itself so is no autovacuum
    (found(root('{"state": "active", "query": "-- (to prevent wraparound)"}')), 'blocker high 4711 terminate'),
-- turns: it waited for such a lock itself a moment ago, or its waiters have waited for those before it
    (found(root('{"state": "active", "event_type": null, "waited_ago_s": 7.9}')), ''),
    (evidence(root('{"state": "active", "event_type": null, "waited_ago_s": 8}'))::jsonb->>'held_s', '8.000'),
    (found(root('{"state_s": 7.9, "waited_ago_s": 7.9}')), ''),
    (found(root('{"state_s": 7.9, "transaction_s": 7.9, "queue_s": 8}')), ''),
    (found(root('{"state_s": 7.9, "transaction_s": 7.9, "queue_s": 7.8}')), 'blocker high 4711 terminate'),
    (found(root('{"state_s": 8, "transaction_s": 8, "queue_s": 9}')), 'blocker high 4711 terminate'),
-- a batch that has the row for long, and waits now and then itself
    (found(root('{"state": "active", "transaction_s": 700, "first_s": 600, "longest_s": 600, "queue_s": 600,
        "waited_ago_s": 3}')), ''),
    (found(root('{"state": "active", "transaction_s": 700, "first_s": 600, "longest_s": 600, "queue_s": 600, "waited_ago_s": 3,
        "row_wait_s": 600}')), 'blocker high 4711 terminate'),
    (found(hidden('{"transaction_least_s": 2, "queue_s": 9}')), 'blocker medium 4711 terminate'),
    (found(root('{"state_s": 2, "transaction_s": 2, "first_s": 5.1}')), ''),
    (found(root('{"state_s": 2, "transaction_s": 2, "first_s": 5}')), 'blocker high 4711 terminate'),
    (found(root('{"state_s": 30, "waited_ago_s": 31, "first_s": 100}')), 'blocker high 4711 terminate'),
    (found(root('{"pid": null, "gid": "p", "state": "prepared", "transaction_s": 29, "state_s": null, "first_s": 100}')), ''),
-- without the history it is not known whether a statement began with a wait
    (found(root('{"state": "active", "event_type": null}') || '{"watched_s": null}'), 'blocker medium 4711 cancel'),
    (found(root('{}') || '{"watched_s": null}'), 'blocker high 4711 terminate'),
-- those that give up early, and try again
    (found(root('{"waiters": 1, "longest_s": 0.2}'), '{"kinds": {"lock_tuple": 0.3, "lock_transaction": 0.4}}'),
        'blocker high 4711 terminate'),
    (found(root('{"waiters": 1, "longest_s": 0.2}'), '{"kinds": {"lock_tuple": 0.6, "lock_relation": 5}}'), ''),
    (found(root('{"waiters": 1, "longest_s": 0.2, "state_s": 4.9, "transaction_s": 4.9}'), '{"kinds": {"lock_tuple": 3}}'), ''),
    (found(root('{"waiters": 1, "longest_s": 0.2, "rows": 0, "locktype": "relation"}'), '{"kinds": {"lock_relation": 0.7}}'),
        'blocker high 4711 terminate'),
    (found(root('{"waiters": 1, "longest_s": 0.2, "rows": 0, "locktype": "advisory"}'), '{"kinds": {"lock_advisory": 0.7}}'),
        'blocker medium 4711 terminate'),
-- advisory_lock: an office, or a lock that was forgotten
    (found(office('{}')), 'advisory_lock low 4711 locks'),
    (found(office('{"first_s": 4.9}')), ''),
    (found(office('{"waiters": 1}')), ''),
    (found(office('{"state": "active", "transaction_s": 3}')), 'advisory_lock low 4711 locks'),
    (found(office('{"state": "active", "transaction_s": 3, "waited_ago_s": 1}')), ''),
    (found(office('{}'), '{"kinds": {"lock_advisory": 8}}', '{"kinds": {"lock_advisory": 4.1}}'), ''),
-- several holders; one waiter behind which the others queue; commands that the load does not feel; a page that is pinned
    (found(root('{"holders": 6}')), 'blocker high 4711 blockers'),
    (found(gate('{}')), 'blocker high 55 cancel_backend'),
    (found(gate('{"holders": 1}')), 'blocker high 4711 terminate'),
    (found(gate('{"gate_type": "autovacuum worker"}')), 'blocker high 4711 blockers'),
    (found(gate('{"holders": 1, "gate_query": null, "gate_application": "psql", "state": "active", "event_type": null,
        "query": "COPY t TO stdout"}')), 'blocker high 55 cancel_backend'),
    (found(root('{"waiters": 1, "maintenance": 1, "rows": 0, "gate_pid": 55, "gate_query": "VACUUM t"}')),
        'blocker low 4711 blockers'),
    (found(root('{"waiters": 2, "maintenance": 1, "rows": 0, "gate_pid": 55}')), 'blocker high 4711 terminate'),
    (found(pinned('{"pinning": [{"pid": 88, "application": "report", "state": "idle in transaction"}]}')),
        'blocker high 88 terminate'),
    (found(pinned('{"pinning": [{"pid": 88, "state": "active"}, {"pid": 89, "state": "active"}]}')),
        'blocker medium stat_activity'),
-- a client that does not read or send cannot be cancelled
    (found(root('{"state": "active", "event": "ClientWrite", "query": "COPY t TO STDOUT"}')), 'blocker high 4711 terminate'),
-- the order of findings: sessions, as far as it is certain that they are held up
    (found(root('{"waiters": 1, "maintenance": 1, "rows": 0, "gate_pid": 55}'), '{"active": 12, "kinds": {"cpu": 12}}',
        '{"kinds": {"cpu": 2}}'), 'cpu_saturation medium top_waits, blocker low 4711 blockers'),
    (found(root('{"waiters": 5, "rows": 5}'), '{"active": 30, "kinds": {"cpu": 20}}', '{"kinds": {"cpu": 2}}'),
        'cpu_saturation medium top_waits, blocker high 4711 terminate'),
-- hot_row
    (found(row_root(8), '{"kinds": {"lock_transaction": 1, "lock_tuple": 2.1}}'), ''),
    (found(row_root(8), '{"kinds": {"lock_transaction": 1, "lock_tuple": 2.3}}'), 'hot_row medium top_waits'),
    (found(row_root(8), '{"active": 5, "kinds": {"lock_tuple": 2.9}}'), ''),
    (found(row_root(8), '{"kinds": {"lock_tuple": 6}}', '{"kinds": {"lock_tuple": 3.1}}'), ''),
    (found(row_root(8), '{"kinds": {"lock_tuple": 6}}', '{"kinds": {"lock_tuple": 3}}'), 'hot_row medium top_waits'),
    (found(row_root(8), '{"kinds": {"lock_tuple": 6, "wal_sync": 0.1, "wal_write_lock": 2.8}}'), 'hot_row medium top_waits'),
    (found(row_root(8), '{"kinds": {"lock_tuple": 6, "wal_sync": 0.1, "wal_write_lock": 2.9}}'), 'hot_row low top_waits'),
    (found(row_root(2), '{"kinds": {"lock_tuple": 6}}'), 'hot_row medium top_waits'),
    (found(row_root(1), '{"kinds": {"lock_tuple": 6}}'), ''),
    (found(root('{}'), '{"kinds": {"lock_tuple": 6}}'), 'blocker high 4711 terminate'),
-- deadlocks: of four sessions that wait for rows, two by the rate alone; high from half of them on, and one session
    (deadlocks('{}'), 'deadlocks high top_waits 2.0/4.0'),
    (deadlocks('{"kinds": {"lock_transaction": 1, "lock_tuple": 3.1}}'),
        'hot_row medium top_waits, deadlocks medium top_waits 2.0/4.1'),
    (deadlocks('{"kinds": {"lock_transaction": 1, "lock_tuple": 7.1}}'),
        'hot_row medium top_waits, deadlocks low top_waits 2.0/8.1'),
    (evidence('{"deadlock_timeout_s": 0.5}', '{"deadlocks_per_s": 4, "kinds": {"lock_tuple": 8}}', '{"deadlocks_per_s": 4}'),
        '{"deadlocks_per_s": 4.000, "held_up_sessions": 4.000, "waiting_sessions": 8.000, "deadlock_timeout_s": 0.500, '
        '"usual_deadlocks_per_s": 4.000}'),
-- more, if they wait in a cycle or behind one at this moment, for as much of the time as there is one
    (deadlocks('{"active": 12, "kinds": {"lock_tuple": 8}}', cycle(2, 3)), 'deadlocks high top_waits 4.0/8.0'),
    (deadlocks('{"active": 12, "kinds": {"lock_tuple": 8}}', cycle(2, 4)),
        'hot_row medium top_waits, deadlocks medium top_waits 3.4/8.0'),
    (deadlocks('{"active": 12, "kinds": {"lock_tuple": 8}, "deadlocks_per_s": 0.5}', cycle(7, 0)),
        'deadlocks high top_waits 4.0/8.0'),
    (deadlocks('{"active": 12, "kinds": {"lock_tuple": 8}, "deadlocks_per_s": 0.49}', cycle(7, 0)),
        'hot_row medium top_waits, deadlocks medium top_waits 3.9/8.0'),
    (deadlocks('{"kinds": {"lock_relation": 4}}', lock_root('{"waits": true}')), 'deadlocks high top_waits 4.0/4.0'),
    (deadlocks('{"kinds": {"lock_relation": 4.1}}', lock_root('{}')),
        'hot_lock medium top_waits, deadlocks medium top_waits 2.0/4.1'),
-- two in the last seconds, with those of this moment, and one in five; less than a session is medium, if it is unusual; most of the
-- waits are never usual
    (deadlocks('{"s": 10, "deadlocks_per_s": 0.2}', '{"deadlock_timeout_s": 10}'), 'deadlocks high top_waits 4.0/4.0'),
    (deadlocks('{"s": 11, "deadlocks_per_s": 0.1818}', '{"deadlock_timeout_s": 10}'), 'hot_row medium top_waits'),
    (deadlocks('{"deadlocks_per_s": 0.3333}', '{"deadlock_timeout_s": 6}'), 'deadlocks high top_waits 4.0/4.0'),
    (deadlocks('{"deadlocks_per_s": 0.1667}', '{"deadlock_timeout_s": 6}'), 'hot_row medium top_waits'),
    (deadlocks('{"deadlocks_per_s": 0.1667}', cycle(3, 0) || '{"deadlock_timeout_s": 6}'), 'deadlocks high top_waits 4.0/4.0'),
    (deadlocks('{"deadlocks_per_s": 0}', cycle(3, 0) || '{"deadlock_timeout_s": 6}'), 'hot_row medium top_waits'),
    (deadlocks('{"deadlocks_per_s": 0.4, "kinds": {"lock_tuple": 0.9}}', '{}', '{"deadlocks_per_s": 0.2}'),
        'deadlocks medium top_waits 0.8/0.9'),
    (deadlocks('{"deadlocks_per_s": 0.4, "kinds": {"lock_tuple": 0.9}}', '{}', '{"deadlocks_per_s": 0.21}'), ''),
    (deadlocks('{}', '{}', '{"deadlocks_per_s": 1}'), 'deadlocks high top_waits 2.0/4.0'),
    (deadlocks('{}', '{"deadlock_timeout_s": null}'), 'hot_row medium top_waits'),
    (deadlocks('{"deadlocks_per_s": null}'), 'hot_row medium top_waits'),
-- transactions that they roll back do not fail for another reason
    (deadlocks('{"deadlocks_per_s": 3, "commits_per_s": 5, "rollbacks_per_s": 6}'), 'deadlocks high top_waits 4.0/4.0'),
    (deadlocks('{"deadlocks_per_s": 2.9, "commits_per_s": 5, "rollbacks_per_s": 6}'),
        'deadlocks high top_waits 4.0/4.0, failing_transactions low stat_database'),
    (deadlocks('{"deadlocks_per_s": 3, "commits_per_s": 5, "rollbacks_per_s": 6, "kinds": {"lock_tuple": 8}}',
        '{"deadlock_timeout_s": 0.01}'),
        'hot_row medium top_waits, failing_transactions low stat_database, deadlocks low top_waits 0.1/8.0'),
-- hot_lock: the same at a table, and, perhaps on purpose, at advisory locks; not at an office
    (found(lock_root('{}'), '{"kinds": {"lock_relation": 3.2}}'), 'hot_lock medium top_waits'),
    (found(lock_root('{}'), '{"kinds": {"lock_relation": 2.9}}'), ''),
    (found(lock_root('{"waiters": 1}'), '{"kinds": {"lock_relation": 6}}'), ''),
    (found(lock_root('{}'), '{"kinds": {"lock_advisory": 6}}'), ''),
    (found(lock_root('{"locktype": "object", "relation": "pg_database"}'), '{"kinds": {"other_lock": 6}}'),
        'hot_lock medium top_waits'),
    (found(lock_root('{"locktype": "virtualxid", "relation": null}'), '{"kinds": {"other_lock": 6}}'), ''),
    (found(lock_root('{"locktype": "advisory", "relation": null}'), '{"kinds": {"lock_advisory": 6}}'), 'hot_lock low top_waits'),
    (found(lock_root('{"locktype": "advisory", "relation": null, "state": "idle"}'), '{"kinds": {"lock_advisory": 6}}'), ''),
-- lock_manager, buffer_mapping
    (found('{"sessions": [{"pid": 5, "event": "LockManager", "query": "SELECT FROM parted"}]}',
        '{"kinds": {"lock_manager": 2}}'), 'lock_manager high top_waits'),
    (found('{}', '{"active": 40, "kinds": {"lock_manager": 2}}'), 'lock_manager high top_waits'),
    (found('{}', '{"active": 41, "kinds": {"lock_manager": 2}}'), ''),
    (found('{}', '{"kinds": {"lock_manager": 1.9}}'), ''),
    (found(row_root(2), '{"kinds": {"lock_manager": 3, "lock_tuple": 3.3}}'), 'hot_row medium top_waits'),
    (found('{}', '{"kinds": {"lock_manager": 4}}', '{"kinds": {"lock_manager": 2.1}}'), ''),
    (found('{}', '{"kinds": {"buffer_mapping": 3}}'), 'buffer_mapping high top_waits'),
-- cpu_runaway
    (found(computing('{}') || '{"cpus": 2}', '{"kinds": {"cpu": 1.5}}'), 'cpu_runaway medium 4712 cancel'),
    (found(computing('{}'), '{"kinds": {"cpu": 1.5}}'), ''),
    (found(computing('{}') || '{"queued_fraction": 0.7}', '{"kinds": {"cpu": 1.5}}'), 'cpu_runaway high 4712 cancel'),
    (found(computing('{}') || '{"queued_fraction": 0.6}', '{"kinds": {"cpu": 1.5}}'), ''),
-- no more at the CPUs than usual
    (found(computing('{}') || '{"queued_fraction": 0.7}', '{"kinds": {"cpu": 1.5}}', '{"kinds": {"cpu": 1.1}}'), ''),
-- a victim of others: it gets a twelfth of the CPUs, or they are too many without it
    (found(computing('{"age_s": 6, "cpus": 0.08, "demand": 1, "cpu_s": 6, "ran_s": 0.5}') || '{"cpus": 2}', '{"active": 25,
        "kinds": {"cpu": 25}}'), 'cpu_saturation medium top_waits'),
    (found(computing('{"age_s": 6, "cpus": 0.6, "demand": 1, "cpu_s": 6, "ran_s": 4}') || '{"cpus": 2}',
        '{"kinds": {"cpu": 3.1}}', '{"kinds": {"cpu": 2}}'), ''),
    (found(computing('{"age_s": 6, "cpus": 0.6, "demand": 1, "cpu_s": 6, "ran_s": 4}') || '{"cpus": 2}', '{"kinds": {"cpu": 3}}',
        '{"kinds": {"cpu": 2}}'), 'cpu_runaway high 4712 cancel'),
    (found(computing('{"cpus": 0.25, "ran_s": 2.5}') || '{"cpus": 2, "queued_fraction": 0.7}', '{"kinds": {"cpu": 1.5}}'),
        'cpu_runaway high 4712 cancel'),
    (found(computing('{"cpus": 0.4, "ran_s": 2.4}') || '{"cpus": 2, "queued_fraction": 0.7}', '{"kinds": {"cpu": 1.5}}'), ''),
    (found(computing('{"cpus": 0.24, "ran_s": 4}') || '{"cpus": 2, "queued_fraction": 0.7}', '{"kinds": {"cpu": 1.5}}'), ''),
    (found(computing('{"age_s": 4.9}') || '{"cpus": 2}', '{"kinds": {"cpu": 1.5}}'), ''),
    (found(computing('{"cpus": 0.4}') || '{"cpus": 2, "queued_fraction": 0.7}', '{"kinds": {"cpu": 1.5}}'), ''),
    (found(computing('{"cpus": 2.9, "workers": 2}'), '{"kinds": {"cpu": 3}}'), 'cpu_runaway medium 4712 cancel'),
    (found(computing('{}') || '{"cpus": 1.5}', '{"kinds": {"cpu": 1.5}}'), 'cpu_runaway medium 4712 cancel'),
    (found(computing('{"command": "COPY", "query": "copy t FROM STDIN"}') || '{"queued_fraction": 0.7}',
        '{"kinds": {"cpu": 1.5}}'), ''),
    (found(computing('{"command": "SELECT", "query": "select copy FROM t"}') || '{"queued_fraction": 0.7}',
        '{"kinds": {"cpu": 1.5}}'), 'cpu_runaway high 4712 cancel'),
    (found(computing('{"cpu_s": 2.5}') || '{"queued_fraction": 0.7}', '{"kinds": {"cpu": 1.5, "temp_file": 1}}'),
        'cpu_runaway medium 4712 cancel'),
    (found(computing('{"cpu_s": 2.4}') || '{"queued_fraction": 0.7}', '{"kinds": {"cpu": 1.5}}'), ''),
-- where nothing else runs, after a minute; where all statements are long, none is a runaway
    (found(computing('{"age_s": 59}') || '{"cpus": 2}', '{"active": 1, "kinds": {"cpu": 1}}'), ''),
    (found(computing('{"age_s": 60}') || '{"cpus": 2}', '{"active": 1, "kinds": {"cpu": 1}}'), 'cpu_runaway medium 4712 cancel'),
    (found(computing('{}') || '{"cpus": 2, "long_computing": 3}', '{"active": 8, "kinds": {"cpu": 3}}'), ''),
-- cpu_saturation
    (found('{}', '{"active": 9, "kinds": {"cpu": 8}}', '{"kinds": {"cpu": 4}}'), 'cpu_saturation medium top_waits'),
    (found('{}', '{"active": 9, "kinds": {"cpu": 7.9}}', '{"kinds": {"cpu": 2}}'), ''),
    (found('{}', '{"active": 9, "kinds": {"cpu": 8}}', '{"kinds": {"cpu": 4.1}}'), ''),
    (found('{"queued_fraction": 0.5}', '{"active": 9, "kinds": {"cpu": 8}}', '{"kinds": {"cpu": 2}}'),
        'cpu_saturation medium top_waits'),
    (found('{"cpus": 0.5}', '{"active": 9, "kinds": {"cpu": 2.5}}', '{"kinds": {"cpu": 1}}'), 'cpu_saturation medium top_waits'),
    (found('{}', '{"active": 20, "kinds": {"cpu": 11}}', '{"s": 0}'), ''),
    (found('{}', '{"active": 20, "kinds": {"cpu": 12}}', '{"s": 0}'), 'cpu_saturation medium top_waits'),
-- connection_storm
    (found('{"used": 88, "idle": 80, "new": 2, "application": "it''s web", "application_sessions": 80, "application_idle": 79}'),
        'connection_storm low stat_activity'),
    (found('{"used": 88, "idle": 80, "new": 20, "application": "it''s web", "application_sessions": 80,
        "application_idle": 79}'), 'connection_storm medium terminate'),
    (found('{"used": 87, "idle": 80, "new": 2}'), ''),
    (found('{"used": 73, "idle": 9, "new": 20}'), 'connection_storm medium stat_activity'),
    (found('{"used": 73, "idle": 9, "new": 19}'), ''),
    (found('{"used": 72, "idle": 9, "new": 20}'), ''),
    (found('{"used": 97, "idle": 90, "new": 20}'), 'connection_storm high stat_activity'),
    (found('{"used": 88, "idle": 10, "new": 2}'), 'connection_storm medium stat_activity'),
    (found(root('{"waiters": 70}') || '{"used": 88, "idle": 10, "new": 60}'),
        'blocker high 4711 terminate, connection_storm medium stat_activity'),
-- what most of them do
    (found('{"used": 97, "idle": 3, "idle_in_transaction": 92, "new": 2, "application": "web", "application_sessions": 92,
        "application_idle": 3}'), 'connection_storm medium stat_activity'),
    (found('{"used": 97, "idle": 3, "starting": 90}'), 'connection_storm medium'),
-- temp_files
    (found('{"sessions": [{"pid": 6, "application": "a", "event": "BufFileWrite"}]}', '{"active": 5, "kinds": {"temp_file": 1},
        "temp_bytes_per_s": 2e8}'), 'temp_files medium 6 cancel'),
    (found('{}', '{"active": 6, "kinds": {"temp_file": 1.1}, "temp_bytes_per_s": 2e7}'), ''),
    (found('{}', '{"active": 6, "kinds": {"temp_file": 3}}', '{"kinds": {"temp_file": 1.5}}'), 'temp_files medium top_waits'),
    (found('{}', '{"active": 6, "kinds": {"temp_file": 3}}', '{"kinds": {"temp_file": 1.6}}'), ''),
-- checkpoint_storm
    (found(storm('{}'), '{"kinds": {"wal_sync": 1, "data_extend": 1}}'), 'checkpoint_storm high set'),
    (found('{"checkpoints_requested": 2, "minute_s": 60, "minute_wal_bytes": 4e9}', '{"active": 2, "kinds": {"wal_sync": 0.9}}'),
        ''),
    (found('{"checkpoints_requested": 6, "minute_s": 60, "minute_wal_bytes": 1e9}', '{"kinds": {"wal_sync": 2}}'),
        'checkpoint_storm medium stat_activity'),
    (found('{"checkpoints_requested": 1, "minute_s": 20, "minute_wal_bytes": 4e9}', '{"kinds": {"wal_sync": 2}}'), ''),
    (found(storm('{}'), '{"kinds": {"wal_sync": 2}}', '{"kinds": {"data_write": 1.1}}'), ''),
    (found(storm('{"standby": true}'), '{"kinds": {"wal_sync": 2}}'), ''),
    (found(storm('{}'), '{"active": 3, "kinds": {"wal_init": 0.9}}'), ''),
-- in the last half minute, with few that wait just now; the WAL is still being written, or its checkpoint syncs
    (checkpoints('{}', '{"kinds": {"cpu": 1}, "wal_bytes_per_s": 17000000}'), 'checkpoint_storm high set'),
    (checkpoints('{}', '{"kinds": {"cpu": 1}, "wal_bytes_per_s": 16000000}'), ''),
    (checkpoints('{}', '{"kinds": {"wal_sync": 1}, "wal_bytes_per_s": 0}'), ''),
    (checkpoints('{"checkpointer_event": "DataFileSync"}', '{"kinds": {"wal_sync": 1}, "wal_bytes_per_s": 0}'),
        'checkpoint_storm high set'),
-- max_wal_size has just been changed; its disk is full
    (checkpoints('{"max_wal_size_bytes": 4294967296}', '{"kinds": {"wal_sync": 3}}'), ''),
    (checkpoints('{"max_wal_size_wanted": null}', '{"kinds": {"wal_sync": 3}}'), 'checkpoint_storm high top_waits'),
-- of what is usual the storm is the larger part
    (checkpoints('{"usual_checkpoints_requested": 149}', '{"kinds": {"wal_sync": 3}}', '{"kinds": {"wal_sync": 2}}'), ''),
    (checkpoints('{"usual_checkpoints_requested": 150}', '{"kinds": {"wal_sync": 3}}', '{"kinds": {"wal_sync": 2}}'),
        'checkpoint_storm high set'),
-- slow_flush
    (found('{}', '{"flush_ms": 200, "kinds": {"wal_sync": 1, "wal_write_lock": 6}}'), 'slow_flush high set'),
    (found('{"flush_measured": true}', '{"flush_ms": 20, "kinds": {"wal_sync": 1, "wal_write_lock": 6}}', '{"flush_ms": null}'),
        'slow_flush high set'),
-- CPUs that are short lengthen what is computed
    (found('{"queued_fraction": 0.5}', '{"flush_ms": 200, "read_ms": 200, "kinds": {"wal_sync": 4, "data_read": 2, "cpu": 2}}'),
        'slow_flush low set, slow_reads low tablespace_latency'),
    (found('{"queued_fraction": 0.4}', '{"flush_ms": 200, "read_ms": 200, "kinds": {"wal_sync": 4, "data_read": 2, "cpu": 2}}'),
        'slow_flush high set, slow_reads high tablespace_latency'),
    (found('{"queued_fraction": 0.5, "flush_measured": true}', '{"flush_ms": 200, "kinds": {"wal_sync": 4, "cpu": 2}}'),
        'slow_flush high set'),
    (found('{"standby": true}', '{"flush_ms": 200, "kinds": {"wal_sync": 1, "wal_write_lock": 6}}'), ''),
    (found('{}', '{"flush_ms": 19, "kinds": {"wal_sync": 2}}', '{"flush_ms": null}'), ''),
    (found('{}', '{"flush_ms": 4.9, "kinds": {"wal_sync": 2}}'), ''),
    (found('{}', '{"flush_ms": 29, "kinds": {"wal_sync": 2}}', '{"flush_ms": 10}'), ''),
    (found('{}', '{"flush_ms": 200, "kinds": {"wal_sync": 1.9}}'), ''),
    (found('{}', '{"flush_ms": 200, "active": 1, "kinds": {"wal_sync": 0.9}}'), ''),
    (found(storm('{}'), '{"flush_ms": 200, "kinds": {"wal_sync": 7}}'), 'checkpoint_storm high set, slow_flush medium set'),
    (found('{}', '{"flush_ms": 200, "kinds": {"wal_sync": 4, "temp_file": 2.5}}'),
        'temp_files medium top_waits, slow_flush medium set'),
    (found('{"stuck_flushes": 1}', '{"s": 0, "kinds": {"wal_sync": 1, "wal_write_lock": 3}}', '{"s": 0, "flush_ms": null}'),
        'slow_flush medium set'),
    (found('{"stuck_flushes": 0}', '{"s": 0, "kinds": {"wal_sync": 1, "wal_write_lock": 3}}', '{"s": 0, "flush_ms": null}'), ''),
-- slow_reads
    (found('{}', '{"read_ms": 30, "reads_per_s": 200, "kinds": {"data_read": 6}}'), 'slow_reads high tablespace_latency'),
    (found('{}', '{"read_ms": 4.9, "kinds": {"data_read": 6}}'), ''),
    (found('{}', '{"read_ms": 30, "kinds": {"data_read": 1.9}}'), ''),
-- full_disk
    (full_disk('{"slot": "old", "slot_active": false, "slot_bytes": 8e10}'), 'full_disk high replication_slots'),
    (full_disk('{"slot": "old", "slot_active": false, "slot_bytes": 8e10, "wal_free_bytes": 1.9e9}'),
        'full_disk high drop_replication_slot'),
    (full_disk('{"slot": "old", "slot_active": true, "slot_bytes": 8e10, "archive_failed_s": 5}'),
        'full_disk high stat_replication'),
    (full_disk('{"slot": "old", "slot_active": true, "slot_bytes": 1e9, "archive_failed_s": 5}'), 'full_disk high stat_archiver'),
    (full_disk('{"archive_failed_s": 5, "wal_used_bytes": 2e9}'), ''),
    (full_disk('{"wal_free_bytes": 1.9e9, "data_size_bytes": 1e11, "data_free_bytes": 1.9e9}'), 'full_disk medium settings'),
    (full_disk('{"data_size_bytes": 1e12, "data_free_bytes": 1.9e10}'), 'full_disk medium size_pretty'),
    (full_disk('{}'), ''),
-- replication_wait
    (synchronous('{}'), 'replication_wait high set'),
    (synchronous('{"sync_standbys": 1}'), 'replication_wait medium set'),
    (synchronous('{"sync_standbys": null}'), 'replication_wait medium set'),
    (found('{"sync_standbys": 1}', '{"kinds": {"sync_rep": 7}}', '{"kinds": {"sync_rep": 4}}'), ''),
    (found('{"sync_standbys": 1}', '{"kinds": {"sync_rep": 2.3}}'), ''),
    (synchronous('{"sync_wanted": 1, "sync_standbys": 0, "sync_catching_up": 1}'), 'replication_wait high set'),
    (synchronous('{"sync_wanted": 2, "sync_standbys": 0, "sync_catching_up": 0}'), 'replication_wait high set'),
    (synchronous('{"sync_wanted": 2, "sync_standbys": 0, "sync_catching_up": 1}'), 'replication_wait high set'),
    (synchronous('{"sync_wanted": 2, "sync_standbys": 1, "sync_catching_up": 0, "sync_fewer": "ANY 1 (\"it''s\", b)"}'),
        'replication_wait high set'),
    (evidence('{"sync_wanted": 2, "sync_standbys": 1, "sync_catching_up": 1, "sync_flushed": 0}', '{"kinds": {"sync_rep": 7}}'),
        '{"standbys": 1.000, "standbys_wanted": 2.000, "held_up_sessions": 7.000, "waiting_sessions": 7.000, '
        '"standbys_to_replay": 0.000, "standbys_catching_up": 1.000}'),
    (synchronous('{"sync_wanted": 3, "sync_standbys": 2, "sync_catching_up": 1, "sync_fewer": "ANY 2 (a, b)"}'),
        'replication_wait high set'),
    (synchronous('{"sync_wanted": 2, "sync_standbys": 2, "sync_catching_up": 1}'), 'replication_wait medium set'),
    (synchronous('{"sync_wanted": 0, "sync_standbys": 0, "sync_catching_up": 0}'), ''),
-- of missing ones nothing is usual, and one commit is enough; with the others that wait for its rows, unless it is over
    (found('{}', '{"kinds": {"sync_rep": 0.9}}', '{"kinds": {"sync_rep": 4}}'), 'replication_wait high set'),
    (found('{}', '{"kinds": {"sync_rep": 0.8}}'), ''),
    (found(root('{"waiters": 6, "state": "active", "event_type": "IPC", "event": "SyncRep"}') || '{"sync_standbys": 1}',
        '{"kinds": {"sync_rep": 1}}'), 'replication_wait medium set'),
-- those behind a commit are no queue in turns
    (found(row_root(3), '{"kinds": {"sync_rep": 1, "lock_tuple": 4}}'), 'hot_row medium top_waits, replication_wait high set'),
    (found(root('{"rows": 3, "waiters": 3, "transaction_s": 0.5, "longest_s": 0.4, "event_type": "IPC", "event": "SyncRep",
        "state": "active"}'), '{"kinds": {"sync_rep": 1, "lock_tuple": 4}}'), 'replication_wait high set'),
    (synchronous('{"sync_wanted": 2, "sync_standbys": 1, "sync_fewer": "ANY 1 (a, b)", "patroni": true}'),
        'replication_wait high stat_replication'),
-- they have the WAL and have not replayed it
    (synchronous('{"sync_standbys": 1, "sync_flushed": 1, "sync_replaying": "near", "sync_apply": true}'),
        'replication_wait high set'),
    (synchronous('{"sync_standbys": 1, "sync_flushed": 1, "sync_replaying": "near", "sync_apply": false}'),
        'replication_wait medium set'),
    (synchronous('{"sync_standbys": 1, "sync_flushed": 1, "sync_replaying": "near", "sync_apply": true, "patroni": true}'),
        'replication_wait high'),
    (synchronous('{"sync_standbys": 2, "sync_wanted": 2, "sync_flushed": 1}'), 'replication_wait medium set'),
-- wraparound_vacuum, by age
    (found('{"oldest_xid_age": 1600000000, "oldest_xid_database": "app"}'), 'wraparound_vacuum medium'),
    (found('{"oldest_xid_age": 1900000000, "oldest_xid_database": "app"}'), 'wraparound_vacuum high'),
    (found('{"oldest_xid_age": 1499999999, "oldest_xid_database": "app"}'), ''),
-- recovery_conflict
    (conflicts('snapshot', '[{"pid": 8, "application": "report", "state": "active", "transaction_s": 50}]'),
        'recovery_conflict medium 8 cancel'),
    (conflicts('snapshot', '[{"pid": 8, "state": "idle in transaction"}]'), 'recovery_conflict medium 8 terminate'),
    (conflicts('snapshot', '[{"pid": 8, "state": "active"}, {"pid": 9, "state": "active"}]'),
        'recovery_conflict medium stat_activity'),
    (conflicts('snapshot', '[]'), 'recovery_conflict medium stat_activity'),
    (conflicts('lock', '[{"pid": 8, "state": "idle in transaction"}, {"pid": 9, "state": "active"}]', '{"conflict_s": 1}'),
        'recovery_conflict high 8 terminate'),
    (conflicts('lock', '[{"pid": 8, "state": "active", "event_type": "Lock", "event": "relation"}]', '{"conflict_s": 1}'),
        'recovery_conflict high 8 cancel_backend'),
    (conflicts('lock', '[{"pid": 8, "state": "active"}]', '{"conflict_s": 0.9}'), ''),
    (conflicts('lock', '[]', '{"conflict_s": 1}'), 'recovery_conflict medium blockers'),
    (conflicts('lock', '[]'), ''),
    (conflicts('lock', '[{"pid": 8, "state": null}]', '{"conflict_s": 1}'), 'recovery_conflict high 8 terminate'),
    (conflicts('pin', '[{"pid": 8, "state": "idle in transaction"}]'), 'recovery_conflict medium 8 terminate'),
    (conflicts('pin', '[{"pid": 8, "state": "idle in transaction"}, {"pid": 9, "state": "active"}]'),
        'recovery_conflict medium stat_activity'),
    (conflicts('tablespace', '[{"pid": 8, "state": "active"}]'), 'recovery_conflict medium 8 cancel'),
    (conflicts('tablespace', '[]'), 'recovery_conflict medium stat_activity'),
    (conflicts('snapshot', '[]', '{"standby": false}'), ''),
    (conflicts('another', '[]'), ''),
-- a session in the way of replay only is named once
    (found(root('{"pid": 8, "rows": 0, "waiters": 1, "locktype": "relation"}') || '{"standby": true, "conflict": "lock",
        "conflict_s": 5, "conflicting": [{"pid": 8, "state": "idle in transaction"}]}'), 'recovery_conflict high 8 terminate'),
    (found(root('{"pid": 8, "rows": 0, "waiters": 2, "locktype": "relation"}') || '{"standby": true, "conflict": "lock",
        "conflict_s": 5, "conflicting": [{"pid": 8, "state": "idle in transaction"}]}'),
        'blocker high 8 terminate, recovery_conflict high 8 terminate'),
-- the most certain first, and of those the most costly
    (found(root('{"waiters": 3}') || '{"oldest_xid_age": 1600000000}', '{"flush_ms": 200, "kinds": {"wal_sync": 4,
        "lock_manager": 2}}'),
        'slow_flush high set, blocker high 4711 terminate, lock_manager high top_waits, wraparound_vacuum medium'),
-- failing_transactions
    (found('{}', '{"commits_per_s": 20, "rollbacks_per_s": 5}', '{"commits_per_s": 47.5, "rollbacks_per_s": 2.5}'),
        'failing_transactions medium stat_database'),
    (found('{}', '{"commits_per_s": 20, "rollbacks_per_s": 4.9}', '{"commits_per_s": 46, "rollbacks_per_s": 2.4}'), ''),
    (found('{}', '{"commits_per_s": 21, "rollbacks_per_s": 5}', '{"commits_per_s": 47.5, "rollbacks_per_s": 2.5}'), ''),
    (found('{}', '{"commits_per_s": 20, "rollbacks_per_s": 5}', '{"commits_per_s": 94, "rollbacks_per_s": 5}'), ''),
    (found('{}', '{"commits_per_s": 0, "rollbacks_per_s": 5}', '{"commits_per_s": 95, "rollbacks_per_s": 2.6}'), ''),
    (found('{}', '{"commits_per_s": 50, "rollbacks_per_s": 50}', '{"s": 0}'), 'failing_transactions low stat_database'),
    (found('{}', '{"commits_per_s": 51, "rollbacks_per_s": 50}', '{"s": 0}'), ''),
    (found('{}', '{"commits_per_s": 50, "rollbacks_per_s": 50}', '{"commits_per_s": 80, "rollbacks_per_s": 20}'), ''),
-- forgotten_xmin
    (found(holder('{}')), 'forgotten_xmin medium 4711 terminate'),
    (found(holder('{"xmin_age": 99999}')), ''),
    (found(holder('{"xmin_s": 59}')), ''),
    (found(holder('{"xmin_s": null}')), 'forgotten_xmin low 4711 terminate'),
    (found(holder('{"standby": true}')), ''),
    (found(holder('{"xmin_holder": "slot", "xmin_name": "''s''", "xmin_shown": "s", "xmin_s": null}')),
        'forgotten_xmin low replication_slots'),
    (found(holder('{"xmin_holder": "prepared", "xmin_name": "''it''''s''", "xmin_shown": "''it''''s''"}')),
        'forgotten_xmin medium prepared_xacts'),
    (found(holder('{}') || root('{}')), 'blocker high 4711 terminate'),
    (found(holder('{"xmin_name": "4712"}') || root('{}')), 'blocker high 4711 terminate, forgotten_xmin medium 4712 terminate'),
    (found(holder('{"xmin_holder": "prepared", "xmin_name": "''g''"}') || root('{"pid": null, "gid": "''g''",
        "gid_shown": "''g''", "state": "prepared", "state_s": null}')), 'blocker high prepared_xacts'),
-- connection_limit, when it is reached
    (found('{"limited": "role", "limited_name": "\"Shop\"", "limited_shown": "Shop", "limited_connections": 10,
        "limited_idle": 4}'), 'connection_limit medium'),
    (found('{"limited": "database", "limited_name": "shop", "limited_shown": "shop", "limited_connections": 78,
        "limited_idle": 39}'), 'connection_limit low'),
    (found('{"standby": true, "limited": "role", "limited_name": "shop", "limited_connections": 7}'),
        'connection_limit medium stat_activity'),
    (found('{"used": 96, "limited": "role", "limited_name": "shop", "limited_connections": 7}'),
        'connection_storm medium stat_activity, connection_limit medium stat_activity'),
    (evidence('{"limited": "role", "limited_name": "shop", "limited_connections": 77}'),
        '{"idle": 0.000, "limited": "role", "connections": 77.000}'),
    (found('{"limited": "role", "limited_connections": 7}'), 'connection_limit medium stat_activity');
SELECT count(*) FROM cases;
SELECT 'case ' || n AS wrong, found, expected FROM cases WHERE found IS DISTINCT FROM expected ORDER BY n;
-- each rule has cases, and there is no other rule
SELECT rule AS without_case FROM unnest(pgscale_internal.now_rules()) rule WHERE rule NOT IN (SELECT rule FROM texts);
SELECT rule AS unlisted FROM texts WHERE rule <> ALL (pgscale_internal.now_rules());
\pset tuples_only on
-- each wording of a sentence once, whatever its figures; each cure and its risk once
SELECT rule || ': ' || min_by.sentence
  FROM (SELECT DISTINCT ON (regexp_replace(sentence, '[0-9.]+', 'N', 'g')) n, rule, sentence FROM texts
         ORDER BY regexp_replace(sentence, '[0-9.]+', 'N', 'g'), n) min_by ORDER BY n;
SELECT cure || ' -- ' || risk
  FROM (SELECT DISTINCT ON (regexp_replace(cure || risk, '[0-9.]+', 'N', 'g')) n, cure, risk FROM texts
         ORDER BY regexp_replace(cure || risk, '[0-9.]+', 'N', 'g'), n) first ORDER BY n;

-- The screen: long texts are cut, statements are not; four findings at most.
CREATE FUNCTION full_screen(application text, lines integer) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT l FROM pgscale_internal.now_lines(pgscale_internal.now_evidence() || '{"used": 95, "idle": 90, "max_connections": 100,
            "reserved": 3, "new": 60, "application_sessions": 80, "application_idle": 79}'
        || jsonb_build_object('application', application)) l LIMIT lines
$$;
SELECT full_screen(repeat('w', 63), 7);
SELECT full_screen(repeat('''', 63), 3);
SELECT l FROM pgscale_internal.now_lines(pgscale_internal.now_evidence()
    || root(jsonb_build_object('pid', null, 'state', 'prepared', 'state_s', null, 'transaction_s', null,
                               'gid', quote_literal(repeat('x', 150)), 'gid_shown', quote_literal(repeat('x', 90))))) l LIMIT 3;
SELECT count(*) <= 36 AS lines, max(length(l)) <= 118 AS width, count(*) FILTER (WHERE l ~ '^also: ') AS also
  FROM pgscale_internal.now_lines(pgscale_internal.now_evidence() || (
        SELECT jsonb_build_object(
                   'roots', jsonb_agg(root('{}')->'roots'->0 || jsonb_build_object('pid', i, 'query', repeat('x', 100))),
                   'sessions', jsonb_agg(jsonb_build_object('pid', i, 'age_s', i, 'query', repeat('y', 100))))
          FROM generate_series(1, 5) i)) l;
-- the first lines of that cure, without the last: none is a statement
DO $do$
DECLARE
    part text := '';
    line text;
BEGIN
    FOREACH line IN ARRAY string_to_array((SELECT cure FROM finds('{"used": 95, "new": 60, "application": "no such",
        "application_idle": 79}') WHERE rule = 'connection_storm'), chr(10)) LOOP
        part := concat(part, ' ', line);
        BEGIN
            EXECUTE part;
            RAISE NOTICE 'runs: ...%', right(part, 14);
        EXCEPTION WHEN syntax_error OR undefined_column THEN
            NULL;
        END;
    END LOOP;
END
$do$;

-- evidence of any kind, also if it is nested without end, is no error
SELECT sum((SELECT count(*) FROM pgscale_internal.now_findings(evidence)))
  FROM (VALUES ('{}'::jsonb), ('[1, {"a": 2}]'), ('"x"'), (NULL),
               ('{"roots": {"pid": 1}, "now": 3, "sessions": [null, 1, {"pid": 1e300}], "used": "many",
                  "cpus": null}')) v(evidence);
DO $$
BEGIN
    PERFORM pgscale_internal.now_findings(('{"roots": [{"pinning": [{"pid": 1, "pinning": [' || repeat('{"pinning": [', 5000)
        || repeat(']}', 5000) || ']}]}]}')::jsonb);
EXCEPTION WHEN statement_too_complex THEN
    NULL;
END
$$;

-- the command of a statement, behind comments
SELECT string_agg(coalesce(pgscale_internal.statement_command(s), '-'), ' ' ORDER BY n)
  FROM (VALUES (1, 'copy t FROM STDIN'), (2, E'/* nightly /* of */ psql */\n\tcreate INDEX ON t (v)'),
               (3, E'-- a comment\n VACUUM'), (4, '/* it has no end'), (5, '(SELECT 1)'),
               (6, '<insufficient privilege>'), (7, '')) v(n, s);
-- times of disks: two digits that count, or why there is none
SELECT pgscale_internal.now_latency('read', ms, usual, n)
  FROM (VALUES (45.33, 2.148, 9), (0.00417, NULL, 9), (145.2, 0, 9), (9.99, 99.5, 9), (0, 1, 9),
               (NULL, 1, 0), (NULL, 1, NULL)) v(ms, usual, n);
SELECT substring(f.sentence FROM '[(].*[)]')
  FROM (VALUES (0), (0.0123), (1.25), (12.34)) v(ms),
       LATERAL finds('{}', '{"flush_ms": 200, "kinds": {"wal_sync": 7}}', jsonb_build_object('flush_ms', ms)) f;

-- Who may not run a cure reads who may. Which cures need which right, with sessions of that role; "-": the role that asks may.
CREATE ROLE regress_now;
CREATE ROLE regress_now_app CONNECTION LIMIT 7;
CREATE FUNCTION cures(role text) RETURNS TABLE (cure text, needs text) LANGUAGE sql AS $$
    SELECT left(split_part(f.cure, chr(10), 1), 59),
           -- from 18 on a role may do that
           replace(coalesce(substring(f.risk FROM 'needs (.*)'), '-'), 'a member of pg_signal_autovacuum_worker', 'a superuser')
      FROM (SELECT r.oid::bigint AS oid FROM pg_roles r WHERE r.rolname = role) o,
           LATERAL (SELECT jsonb_build_object('role', o.oid) AS role) j,
           LATERAL (VALUES (1, root(j.role)), (2, root('{"state": "active", "event_type": null}' || j.role)),
               (3, root('{"state": "active", "event_type": null, "pid": 9, "backend_type": "autovacuum worker", "rows": 0}')),
               (4, gate('{"gate_query": null}' || jsonb_build_object('gate_role', o.oid))),
               (5, holder('{"xmin_name": "5"}' || jsonb_build_object('xmin_role', o.oid))),
               (6, '{"standby": true, "conflict": "lock", "conflict_s": 1}'
                   || jsonb_build_object('conflicting', jsonb_build_array('{"pid": 8, "state": "active"}' || j.role))),
               (7, '{"limited": "role", "limited_name": "regress_now_app", "limited_connections": 7}'
                   || jsonb_build_object('limited_role', o.oid)),
               (8, '{"limited": "database", "limited_name": "shop", "limited_connections": 7}'
                   || jsonb_build_object('limited_role', o.oid)),
               (9, '{"oldest_xid_age": 1600000000}' || jsonb_build_object('oldest_xid_owner', o.oid)),
               (10, '{"now": {"active": 8, "flush_ms": 200, "kinds": {"wal_sync": 7}}}'),
               (11, '{"now": {"active": 8, "read_ms": 200, "kinds": {"data_read": 7}}}'),
               (12, '{"now": {"active": 8, "kinds": {"sync_rep": 7}}, "sync_standbys": 0}'),
               (13, '{"now": {"active": 8, "kinds": {"lock_manager": 7}}}'),
               (14, '{"slot": "old", "slot_bytes": 8e10, "max_wal_size_bytes": 1e9, "wal_size_bytes": 1e11, "wal_free_bytes": 1e9,
                      "wal_used_bytes": 9e10}'),
               (15, '{"used": 97, "idle": 90, "new": 60, "application": "web", "application_idle": 79}')) v(n, seen),
           LATERAL pgscale_internal.now_findings('{"used": 20, "max_connections": 100}' || v.seen) f
     ORDER BY n
$$;
SELECT 'superuser', count(*), count(*) FILTER (WHERE needs <> '-') FROM cures('regress_now_app');
SET ROLE regress_now;
SELECT * FROM pgscale.now;
SELECT * FROM pgscale.diagnosis();
RESET ROLE;
GRANT pg_monitor TO regress_now;
SET ROLE regress_now;
SELECT count(*) > 0, (SELECT count(*) FROM pgscale.diagnosis()) FROM pgscale.now;
SELECT 'pg_monitor', * FROM cures('regress_now_app');
SELECT 'pg_monitor, of a superuser', string_agg(DISTINCT needs, ' | ') FROM cures((SELECT rolname FROM pg_roles WHERE oid = 10))
 WHERE cure ~ '(cancel|terminate|cancel_backend)[(][0-9]';
-- a long risk takes two lines
SELECT l FROM pgscale_internal.now_lines(pgscale_internal.now_evidence()
    || '{"now": {"active": 8, "flush_ms": 200, "kinds": {"wal_sync": 7}}, "checkpoints_requested": 0}') l LIMIT 4;
RESET ROLE;
GRANT pg_signal_backend TO regress_now;
SET ROLE regress_now;
SELECT 'pg_signal_backend', * FROM cures('regress_now_app') WHERE needs <> '-';
SELECT 'pg_signal_backend, of a superuser', * FROM cures((SELECT rolname FROM pg_roles WHERE oid = 10)) WHERE needs = '-';
RESET ROLE;
REVOKE pg_signal_backend FROM regress_now;
-- its own sessions and databases, and those of a role whose privileges it has; cancel() needs EXECUTE, too
GRANT regress_now_app TO regress_now WITH ADMIN OPTION;
ALTER ROLE regress_now CREATEROLE REPLICATION;
GRANT EXECUTE ON FUNCTION pgscale.terminate, pgscale.tablespace_latency TO regress_now;
GRANT EXECUTE ON PROCEDURE pgscale.set TO regress_now;
SET ROLE regress_now;
SELECT 'member', * FROM cures('regress_now_app') WHERE needs <> '-';
RESET ROLE;
GRANT ALTER SYSTEM ON PARAMETER synchronous_commit, synchronous_standby_names TO regress_now;
SET ROLE regress_now;
SELECT 'ALTER SYSTEM', * FROM cures('regress_now_app') WHERE cure ~ 'pgscale.set';
RESET ROLE;
GRANT EXECUTE ON FUNCTION pg_reload_conf TO regress_now;
SET ROLE regress_now;
SELECT 'pg_reload_conf', * FROM cures('regress_now_app') WHERE cure ~ 'pgscale.set';
RESET ROLE;
REVOKE EXECUTE ON FUNCTION pg_reload_conf FROM regress_now;
REVOKE ALTER SYSTEM ON PARAMETER synchronous_commit, synchronous_standby_names FROM regress_now;
REVOKE ALL ON PROCEDURE pgscale.set FROM regress_now;
REVOKE ALL ON FUNCTION pgscale.terminate, pgscale.tablespace_latency FROM regress_now;
DROP ROLE regress_now, regress_now_app;
DROP TABLE cases, texts;
DROP FUNCTION finds, found, evidence, root, hidden, office, row_root, lock_root, gate, pinned, cycle, deadlocks, computing, storm,
    checkpoints, full_disk, synchronous, conflicts, holder, full_screen, cures;
DROP EXTENSION pgscale;
