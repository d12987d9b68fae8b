-- What is wrong now: its shape, who may read it, and each rule on evidence that is made up, on both sides of its thresholds. That the
-- evidence is right takes several sessions: see t/079_now.pl.
CREATE EXTENSION pgscale;
\pset format unaligned

-- an idle server: the shape of the screen
SELECT split_part(now, '.', 1) AS first_line FROM pgscale.now LIMIT 1;
SELECT count(*) BETWEEN 8 AND 36 AS lines, max(length(now)) <= 118 AS width, bool_and(now !~ '[[:cntrl:]]') AS plain,
       count(*) = count(now) AS whole FROM pgscale.now;
SELECT count(*) FROM pgscale.diagnosis();
SELECT key, jsonb_typeof(value) FROM jsonb_each(pgscale_internal.now_evidence())
 WHERE key NOT IN ('queued_fraction', 'usual', 'checkpointer_event', 'minute_s', 'minute_wal_bytes', 'minute_max_wal_size_bytes', 'checkpoints_requested',
       'usual_checkpoints_requested', 'missing', 'flush_measured', 'half_minute', 'max_wal_size_wanted', 'watched_s')
 ORDER BY 1;
SELECT unnest(pgscale_internal.now_rules()) AS rule;

-- What rules find. Members of "more" replace those of a server at work, of which eight sessions are active.
CREATE FUNCTION finds(more jsonb, now jsonb DEFAULT '{}', usual jsonb DEFAULT '{}')
RETURNS TABLE (rank integer, rule text, certainty text, pid integer, sentence text, cure text) LANGUAGE sql AS $$
    SELECT f.rank, f.rule, f.certainty, f.pid, f.sentence, f.cure
      FROM pgscale_internal.now_findings('{"used": 20, "idle": 10, "max_connections": 100, "reserved": 3, "cpus": 4, "queued_fraction": 0,
               "max_wal_size_bytes": 1073741824, "minute_max_wal_size_bytes": 1073741824, "max_wal_size_wanted": "4GB", "sync_standbys": 0, "look_s": 0.015,
               "watched_s": 6}'::jsonb || more
           || jsonb_build_object('now', '{"s": 6, "active": 8}'::jsonb || now,
                                 'usual', '{"s": 3000, "active": 4, "kinds": {}, "flush_ms": 1, "read_ms": 0.5}'::jsonb || usual)) f
     ORDER BY f.rank
$$;
SELECT * FROM finds('{}');
SELECT * FROM finds('{}', '{"kinds": {"cpu": 4, "wal_sync": 2, "data_read": 1, "lock_transaction": 1}}');

-- blocker
CREATE FUNCTION root(more jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_object('roots', jsonb_build_array('{"pid": 4711, "application": "nightly_report", "backend_type": "client backend", "waiters": 8, "rows": 8,
        "longest_s": 230, "state": "idle in transaction", "state_s": 245, "transaction_s": 300, "locktype": "tuple", "relation": "public.t",
        "query": "UPDATE t SET v = 1", "event_type": "Client", "event": "ClientRead", "age_s": 250}'::jsonb || more))
$$;
SELECT * FROM finds(root('{}'));
SELECT risk, evidence FROM pgscale_internal.now_findings(root('{}'));
SELECT * FROM finds(root('{"waiters": 1, "longest_s": 4.9}'));
SELECT * FROM finds(root('{"waiters": 1, "longest_s": 5, "rows": 1}'));
SELECT * FROM finds(root('{"waiters": 2, "longest_s": 0.9}'));
SELECT * FROM finds(root('{"waiters": 2, "longest_s": 1, "state_s": 0.9}'));
SELECT * FROM finds(root('{"transaction_s": 1.9}'));
SELECT * FROM finds(root('{"rows": 0, "locktype": "relation", "state": "active", "event_type": null, "event": null}'));
SELECT * FROM finds(root('{"rows": 0, "locktype": "advisory", "state": "active", "application": "", "query": "<insufficient privilege>"}'));
SELECT * FROM finds(root('{"state": "active", "event_type": "IO", "event": "WALSync"}'));
SELECT * FROM finds(root('{"state": "active", "event_type": "IPC", "event": "SyncRep"}'));
SELECT * FROM finds(root('{"pid": null, "gid": "''it''''s''", "gid_shown": "''it''''s''", "state": "prepared", "state_s": null}'));
SELECT pid, sentence, cure, risk FROM pgscale_internal.now_findings(root(jsonb_build_object('pid', null, 'state', 'prepared', 'state_s', null, 'database', 'shop',
    'gid', quote_literal(repeat('x', 96)), 'gid_shown', quote_literal(repeat('x', 96)))));
-- what cancel() and terminate() refuse
SELECT cure FROM finds(root('{"backend_type": "walsender", "state": "active", "query": "START_REPLICATION"}'));
SELECT cure FROM finds(root('{"backend_type": "logical replication worker", "state": "idle in transaction"}'));
-- what is not known: the age of a transaction, the state; an office that is held
SELECT * FROM finds(root('{"state": "disabled", "state_s": null, "transaction_s": null, "query": null}'));
SELECT rule, certainty FROM finds(root('{"backend_type": null, "state": null, "state_s": null, "transaction_s": null, "query": "<insufficient privilege>"}'));
SELECT rule, certainty FROM finds(root('{"backend_type": null, "state": null, "state_s": null, "transaction_s": null, "transaction_least_s": 2}'));
SELECT rule FROM finds(root('{"backend_type": null, "state": null, "state_s": null, "transaction_s": null, "transaction_least_s": 0}'));
SELECT rule FROM finds(root('{"backend_type": null, "state": null, "state_s": null, "transaction_s": null, "rows": 0, "locktype": "advisory"}'));
SELECT * FROM finds(root('{"pid": 77, "backend_type": "startup", "state": "startup", "application": "", "transaction_s": null, "query": null}'));
-- an idle session with an advisory lock is a leader
SELECT * FROM finds(root('{"rows": 0, "locktype": "advisory", "state": "idle", "transaction_s": null}'));
-- one that waits itself is no cause, and an autovacuum that prevents wraparound is none to end
SELECT * FROM finds(root('{"waits": true}'));
SELECT * FROM finds(root('{"pid": 99, "backend_type": "autovacuum worker", "rows": 0, "state": "active", "query": "autovacuum: VACUUM public.t (to prevent wraparound)"}'));
-- a client that calls itself so is no autovacuum
SELECT rule, pid FROM finds(root('{"state": "active", "query": "-- (to prevent wraparound)"}'));

-- turns: it waited for such a lock itself a moment ago, or its waiters have waited for those before it
SELECT rule FROM finds(root('{"state": "active", "event_type": null, "waited_ago_s": 7.9}'));
SELECT rule, evidence->'held_s' AS held_s FROM pgscale_internal.now_findings(root('{"state": "active", "event_type": null, "waited_ago_s": 8}'));
SELECT rule FROM finds(root('{"state_s": 7.9, "waited_ago_s": 7.9}'));
SELECT rule FROM finds(root('{"state_s": 7.9, "transaction_s": 7.9, "queue_s": 8}'));
SELECT rule FROM finds(root('{"state_s": 7.9, "transaction_s": 7.9, "queue_s": 7.8}'));
SELECT rule FROM finds(root('{"state_s": 8, "transaction_s": 8, "queue_s": 9}'));
-- a batch that has the row for long, and waits now and then itself
SELECT rule FROM finds(root('{"state": "active", "transaction_s": 700, "first_s": 600, "longest_s": 600, "queue_s": 600, "waited_ago_s": 3}'));
SELECT rule FROM finds(root('{"state": "active", "transaction_s": 700, "first_s": 600, "longest_s": 600, "queue_s": 600, "waited_ago_s": 3, "row_wait_s": 600}'));
SELECT rule FROM finds(root('{"backend_type": null, "state": null, "state_s": null, "transaction_s": null, "transaction_least_s": 2, "queue_s": 9}'));
SELECT rule FROM finds(root('{"state_s": 2, "transaction_s": 2, "first_s": 5.1}'));
SELECT rule FROM finds(root('{"state_s": 2, "transaction_s": 2, "first_s": 5}'));
SELECT rule FROM finds(root('{"state_s": 30, "waited_ago_s": 31, "first_s": 100}'));
SELECT rule FROM finds(root('{"pid": null, "gid": "p", "state": "prepared", "transaction_s": 29, "state_s": null, "first_s": 100}'));
-- without the history it is not known whether a statement began with a wait
SELECT rule, certainty FROM finds(root('{"state": "active", "event_type": null}') || '{"watched_s": null}');
SELECT rule, certainty FROM finds(root('{}') || '{"watched_s": null}');
-- those that give up early, and try again
SELECT rule FROM finds(root('{"waiters": 1, "longest_s": 0.2}'), '{"kinds": {"lock_tuple": 0.3, "lock_transaction": 0.4}}');
SELECT rule FROM finds(root('{"waiters": 1, "longest_s": 0.2}'), '{"kinds": {"lock_tuple": 0.6, "lock_relation": 5}}');
SELECT rule FROM finds(root('{"waiters": 1, "longest_s": 0.2, "state_s": 4.9, "transaction_s": 4.9}'), '{"kinds": {"lock_tuple": 3}}');
SELECT rule FROM finds(root('{"waiters": 1, "longest_s": 0.2, "rows": 0, "locktype": "relation"}'), '{"kinds": {"lock_relation": 0.7}}');
SELECT rule, certainty FROM finds(root('{"waiters": 1, "longest_s": 0.2, "rows": 0, "locktype": "advisory"}'), '{"kinds": {"lock_advisory": 0.7}}');
-- advisory_lock: an office, or a lock that was forgotten
SELECT * FROM finds(root('{"rows": 0, "locktype": "advisory", "relation": null, "state": "idle", "transaction_s": null, "first_s": 5}'));
SELECT rule FROM finds(root('{"rows": 0, "locktype": "advisory", "relation": null, "state": "idle", "transaction_s": null, "first_s": 4.9}'));
SELECT rule FROM finds(root('{"rows": 0, "locktype": "advisory", "relation": null, "state": "idle", "transaction_s": null, "first_s": 5, "waiters": 1}'));
SELECT rule FROM finds(root('{"rows": 0, "locktype": "advisory", "relation": null, "state": "active", "transaction_s": 3, "first_s": 5}'));
SELECT rule FROM finds(root('{"rows": 0, "locktype": "advisory", "relation": null, "state": "active", "transaction_s": 3, "first_s": 5, "waited_ago_s": 1}'));
SELECT rule FROM finds(root('{"rows": 0, "locktype": "advisory", "relation": null, "state": "idle", "transaction_s": null, "first_s": 5}'), '{"kinds": {"lock_advisory": 8}}',
    '{"kinds": {"lock_advisory": 4.1}}');
-- several holders; one waiter behind which the others queue; commands that the load does not feel; a page that is pinned
SELECT * FROM finds(root('{"holders": 6}'));
SELECT * FROM finds(root('{"holders": 6, "rows": 0, "gate_pid": 55, "gate_type": "client backend", "gate_query": "ALTER TABLE t", "behind_gate": 7}'));
SELECT rule, pid FROM finds(root('{"holders": 1, "rows": 0, "gate_pid": 55, "gate_type": "client backend", "gate_query": "ALTER TABLE t", "behind_gate": 7}'));
SELECT rule, pid FROM finds(root('{"holders": 6, "rows": 0, "gate_pid": 55, "gate_type": "autovacuum worker", "gate_query": "ALTER TABLE t", "behind_gate": 7}'));
SELECT * FROM finds(root('{"holders": 1, "rows": 0, "gate_pid": 55, "gate_type": "client backend", "gate_application": "psql", "behind_gate": 7, "state": "active", "event_type": null, "query": "COPY t TO stdout"}'));
SELECT * FROM finds(root('{"waiters": 1, "maintenance": 1, "rows": 0, "gate_pid": 55, "gate_query": "VACUUM t"}'));
SELECT rule, certainty FROM finds(root('{"waiters": 2, "maintenance": 1, "rows": 0, "gate_pid": 55}'));
SELECT * FROM finds(root('{"state": "active", "event_type": "BufferPin", "event": "BufferPin", "rows": 0,
    "pinning": [{"pid": 88, "application": "report", "state": "idle in transaction"}]}'));
SELECT * FROM finds(root('{"state": "active", "event_type": "BufferPin", "event": "BufferPin", "rows": 0, "pinning": [{"pid": 88, "state": "active"}, {"pid": 89, "state": "active"}]}'));
-- a client that does not read or send cannot be cancelled
SELECT sentence, cure FROM finds(root('{"state": "active", "event": "ClientWrite", "query": "COPY t TO STDOUT"}'));
-- the order of findings: sessions, as far as it is certain that they are held up
SELECT rule, certainty FROM finds(root('{"waiters": 1, "maintenance": 1, "rows": 0, "gate_pid": 55}'), '{"active": 12, "kinds": {"cpu": 12}}', '{"kinds": {"cpu": 2}}');
SELECT rule, certainty FROM finds(root('{"waiters": 5, "rows": 5}'), '{"active": 30, "kinds": {"cpu": 20}}', '{"kinds": {"cpu": 2}}');

-- hot_row
CREATE FUNCTION row_root(rows integer) RETURNS jsonb LANGUAGE sql AS $$
    SELECT root(jsonb_build_object('transaction_s', 0.1, 'longest_s', 0.1, 'rows', rows)) $$;
SELECT * FROM finds(row_root(8), '{"kinds": {"lock_transaction": 1, "lock_tuple": 2.1}}');
SELECT * FROM finds(row_root(8), '{"kinds": {"lock_transaction": 1, "lock_tuple": 2.3}}');
SELECT * FROM finds(row_root(8), '{"active": 5, "kinds": {"lock_tuple": 2.9}}');
SELECT * FROM finds(row_root(8), '{"kinds": {"lock_tuple": 6}}', '{"kinds": {"lock_tuple": 3.1}}');
SELECT rule FROM finds(row_root(8), '{"kinds": {"lock_tuple": 6}}', '{"kinds": {"lock_tuple": 3}}');
SELECT rule, certainty FROM finds(row_root(8), '{"kinds": {"lock_tuple": 6, "wal_sync": 0.1, "wal_write_lock": 2.8}}');
SELECT rule, certainty FROM finds(row_root(8), '{"kinds": {"lock_tuple": 6, "wal_sync": 0.1, "wal_write_lock": 2.9}}');
SELECT rule FROM finds(row_root(2), '{"kinds": {"lock_tuple": 6}}');
SELECT rule FROM finds(row_root(1), '{"kinds": {"lock_tuple": 6}}');
SELECT rule FROM finds(root('{}'), '{"kinds": {"lock_tuple": 6}}');

-- deadlocks: of four sessions that wait for rows, two by the rate alone; high from half of them on, and one session
CREATE FUNCTION lock_root(more jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT root('{"transaction_s": 0.1, "longest_s": 0.1, "rows": 0, "locktype": "relation"}'::jsonb || more) $$;
CREATE FUNCTION deadlocks(now jsonb, more jsonb DEFAULT '{}', usual jsonb DEFAULT '{}')
RETURNS TABLE (rank integer, rule text, certainty text, sentence text) LANGUAGE sql AS $$
    SELECT f.rank, f.rule, f.certainty, f.sentence
      FROM finds(row_root(8) || '{"deadlock_timeout_s": 1}' || more, '{"deadlocks_per_s": 1, "kinds": {"lock_transaction": 1, "lock_tuple": 3}}'::jsonb || now, usual) f
$$;
SELECT * FROM deadlocks('{}');
SELECT cure, risk, evidence FROM pgscale_internal.now_findings('{"deadlock_timeout_s": 0.5, "now": {"s": 6, "active": 8, "deadlocks_per_s": 4, "kinds": {"lock_tuple": 8}},
    "usual": {"s": 100, "deadlocks_per_s": 4}}');
SELECT * FROM deadlocks('{"kinds": {"lock_transaction": 1, "lock_tuple": 3.1}}');
SELECT * FROM deadlocks('{"kinds": {"lock_transaction": 1, "lock_tuple": 7.1}}');
-- more, if they wait in a cycle or behind one at this moment, for as much of the time as there is one
CREATE FUNCTION cycle(waiters integer, others integer) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_object('roots', jsonb_build_array(row_root(waiters)->'roots'->0 || jsonb_build_object('waits', true, 'waiters', waiters, 'relation', 'public.accounts'),
        row_root(others)->'roots'->0 || jsonb_build_object('waiters', others, 'relation', 'public.other'))) $$;
SELECT * FROM deadlocks('{"active": 12, "kinds": {"lock_tuple": 8}}', cycle(2, 3));
SELECT * FROM deadlocks('{"active": 12, "kinds": {"lock_tuple": 8}}', cycle(2, 4));
SELECT * FROM deadlocks('{"active": 12, "kinds": {"lock_tuple": 8}, "deadlocks_per_s": 0.5}', cycle(7, 0));
SELECT * FROM deadlocks('{"active": 12, "kinds": {"lock_tuple": 8}, "deadlocks_per_s": 0.49}', cycle(7, 0));
SELECT * FROM deadlocks('{"kinds": {"lock_relation": 4}}', lock_root('{"waits": true}'));
SELECT * FROM deadlocks('{"kinds": {"lock_relation": 4.1}}', lock_root('{}'));
-- two in the last seconds, with those of this moment, and one in five; less than a session is medium, if it is unusual; most of the waits are never usual
SELECT * FROM deadlocks('{"s": 10, "deadlocks_per_s": 0.2}', '{"deadlock_timeout_s": 10}');
SELECT * FROM deadlocks('{"s": 11, "deadlocks_per_s": 0.1818}', '{"deadlock_timeout_s": 10}');
SELECT rule, certainty FROM deadlocks('{"deadlocks_per_s": 0.3333}', '{"deadlock_timeout_s": 6}');
SELECT rule, certainty FROM deadlocks('{"deadlocks_per_s": 0.1667}', '{"deadlock_timeout_s": 6}');
SELECT rule, certainty FROM deadlocks('{"deadlocks_per_s": 0.1667}', cycle(3, 0) || '{"deadlock_timeout_s": 6}');
SELECT rule, certainty FROM deadlocks('{"deadlocks_per_s": 0}', cycle(3, 0) || '{"deadlock_timeout_s": 6}');
SELECT rule, certainty FROM deadlocks('{"deadlocks_per_s": 0.4, "kinds": {"lock_tuple": 0.9}}', '{}', '{"deadlocks_per_s": 0.2}');
SELECT rule, certainty FROM deadlocks('{"deadlocks_per_s": 0.4, "kinds": {"lock_tuple": 0.9}}', '{}', '{"deadlocks_per_s": 0.21}');
SELECT rule, certainty FROM deadlocks('{}', '{}', '{"deadlocks_per_s": 1}');
SELECT rule, certainty FROM deadlocks('{}', '{"deadlock_timeout_s": null}');
SELECT rule, certainty FROM deadlocks('{"deadlocks_per_s": null}');
-- transactions that they roll back do not fail for another reason
SELECT * FROM deadlocks('{"deadlocks_per_s": 3, "commits_per_s": 5, "rollbacks_per_s": 6}');
SELECT * FROM deadlocks('{"deadlocks_per_s": 2.9, "commits_per_s": 5, "rollbacks_per_s": 6}');
SELECT * FROM deadlocks('{"deadlocks_per_s": 3, "commits_per_s": 5, "rollbacks_per_s": 6, "kinds": {"lock_tuple": 8}}', '{"deadlock_timeout_s": 0.01}');

-- hot_lock: the same at a table, and, perhaps on purpose, at advisory locks; not at an office
SELECT * FROM finds(lock_root('{}'), '{"kinds": {"lock_relation": 3.2}}');
SELECT rule FROM finds(lock_root('{}'), '{"kinds": {"lock_relation": 2.9}}');
SELECT rule FROM finds(lock_root('{"waiters": 1}'), '{"kinds": {"lock_relation": 6}}');
SELECT rule FROM finds(lock_root('{}'), '{"kinds": {"lock_advisory": 6}}');
SELECT rule, certainty, sentence FROM finds(lock_root('{"locktype": "object", "relation": "pg_database"}'), '{"kinds": {"other_lock": 6}}');
SELECT rule FROM finds(lock_root('{"locktype": "virtualxid", "relation": null}'), '{"kinds": {"other_lock": 6}}');
SELECT rule, certainty, sentence FROM finds(lock_root('{"locktype": "advisory", "relation": null}'), '{"kinds": {"lock_advisory": 6}}');
SELECT rule FROM finds(lock_root('{"locktype": "advisory", "relation": null, "state": "idle"}'), '{"kinds": {"lock_advisory": 6}}');

-- lock_manager, buffer_mapping
SELECT * FROM finds('{"sessions": [{"pid": 5, "event": "LockManager", "query": "SELECT FROM parted"}]}', '{"kinds": {"lock_manager": 2}}');
SELECT rule, certainty FROM finds('{}', '{"active": 40, "kinds": {"lock_manager": 2}}');
SELECT rule FROM finds('{}', '{"active": 41, "kinds": {"lock_manager": 2}}');
SELECT rule FROM finds('{}', '{"kinds": {"lock_manager": 1.9}}');
SELECT rule, certainty FROM finds(row_root(2), '{"kinds": {"lock_manager": 3, "lock_tuple": 3.3}}');
SELECT rule FROM finds('{}', '{"kinds": {"lock_manager": 4}}', '{"kinds": {"lock_manager": 2.1}}');
SELECT * FROM finds('{}', '{"kinds": {"buffer_mapping": 3}}');

-- cpu_runaway
CREATE FUNCTION computing(more jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_object('long_computing', 1, 'computing', jsonb_build_array('{"pid": 4712, "application": "psql", "age_s": 5, "cpus": 1, "workers": 0, "running": true,
        "query": "SELECT count(*) FROM a, b, c", "event": "CPU", "event_type": "CPU"}'::jsonb || more))
$$;
SELECT * FROM finds(computing('{}') || '{"cpus": 2}', '{"kinds": {"cpu": 1.5}}');
SELECT rule FROM finds(computing('{}'), '{"kinds": {"cpu": 1.5}}');
SELECT rule, certainty FROM finds(computing('{}') || '{"queued_fraction": 0.7}', '{"kinds": {"cpu": 1.5}}');
SELECT rule FROM finds(computing('{}') || '{"queued_fraction": 0.6}', '{"kinds": {"cpu": 1.5}}');
-- no more at the CPUs than usual
SELECT rule FROM finds(computing('{}') || '{"queued_fraction": 0.7}', '{"kinds": {"cpu": 1.5}}', '{"kinds": {"cpu": 1.1}}');
-- a victim of others: it gets a twelfth of the CPUs, or they are too many without it
SELECT rule FROM finds(computing('{"age_s": 6, "cpus": 0.08, "demand": 1, "cpu_s": 6, "ran_s": 0.5}') || '{"cpus": 2}', '{"active": 25, "kinds": {"cpu": 25}}');
SELECT rule FROM finds(computing('{"age_s": 6, "cpus": 0.6, "demand": 1, "cpu_s": 6, "ran_s": 4}') || '{"cpus": 2}', '{"kinds": {"cpu": 3.1}}', '{"kinds": {"cpu": 2}}');
SELECT rule FROM finds(computing('{"age_s": 6, "cpus": 0.6, "demand": 1, "cpu_s": 6, "ran_s": 4}') || '{"cpus": 2}', '{"kinds": {"cpu": 3}}', '{"kinds": {"cpu": 2}}');
SELECT rule FROM finds(computing('{"cpus": 0.25, "ran_s": 2.5}') || '{"cpus": 2, "queued_fraction": 0.7}', '{"kinds": {"cpu": 1.5}}');
SELECT rule FROM finds(computing('{"cpus": 0.4, "ran_s": 2.4}') || '{"cpus": 2, "queued_fraction": 0.7}', '{"kinds": {"cpu": 1.5}}');
SELECT rule FROM finds(computing('{"cpus": 0.24, "ran_s": 4}') || '{"cpus": 2, "queued_fraction": 0.7}', '{"kinds": {"cpu": 1.5}}');
SELECT rule FROM finds(computing('{"age_s": 4.9}') || '{"cpus": 2}', '{"kinds": {"cpu": 1.5}}');
SELECT rule FROM finds(computing('{"cpus": 0.4}') || '{"cpus": 2, "queued_fraction": 0.7}', '{"kinds": {"cpu": 1.5}}');
SELECT * FROM finds(computing('{"cpus": 2.9, "workers": 2}'), '{"kinds": {"cpu": 3}}');
SELECT sentence FROM finds(computing('{}') || '{"cpus": 1.5}', '{"kinds": {"cpu": 1.5}}');
SELECT rule FROM finds(computing('{"command": "COPY", "query": "copy t FROM STDIN"}') || '{"queued_fraction": 0.7}', '{"kinds": {"cpu": 1.5}}');
SELECT rule FROM finds(computing('{"command": "SELECT", "query": "select copy FROM t"}') || '{"queued_fraction": 0.7}', '{"kinds": {"cpu": 1.5}}');
SELECT pgscale_internal.statement_command(s) AS command
  FROM (VALUES ('copy t FROM STDIN'), (E'/* nightly /* of */ psql */\n\tcreate INDEX ON t (v)'), (E'-- a comment\n VACUUM'), ('/* it has no end'), ('(SELECT 1)'),
               ('<insufficient privilege>'), ('')) v(s);
SELECT rule, certainty FROM finds(computing('{"cpu_s": 2.5}') || '{"queued_fraction": 0.7}', '{"kinds": {"cpu": 1.5, "temp_file": 1}}');
SELECT rule FROM finds(computing('{"cpu_s": 2.4}') || '{"queued_fraction": 0.7}', '{"kinds": {"cpu": 1.5}}');
-- where nothing else runs, after a minute; where all statements are long, none is a runaway
SELECT rule FROM finds(computing('{"age_s": 59}') || '{"cpus": 2}', '{"active": 1, "kinds": {"cpu": 1}}');
SELECT rule FROM finds(computing('{"age_s": 60}') || '{"cpus": 2}', '{"active": 1, "kinds": {"cpu": 1}}');
SELECT rule FROM finds(computing('{}') || '{"cpus": 2, "long_computing": 3}', '{"active": 8, "kinds": {"cpu": 3}}');

-- cpu_saturation
SELECT * FROM finds('{}', '{"active": 9, "kinds": {"cpu": 8}}', '{"kinds": {"cpu": 4}}');
SELECT rule FROM finds('{}', '{"active": 9, "kinds": {"cpu": 7.9}}', '{"kinds": {"cpu": 2}}');
SELECT rule FROM finds('{}', '{"active": 9, "kinds": {"cpu": 8}}', '{"kinds": {"cpu": 4.1}}');
SELECT rule FROM finds('{"queued_fraction": 0.5}', '{"active": 9, "kinds": {"cpu": 8}}', '{"kinds": {"cpu": 2}}');
SELECT sentence FROM finds('{"cpus": 0.5}', '{"active": 9, "kinds": {"cpu": 2.5}}', '{"kinds": {"cpu": 1}}');
SELECT rule FROM finds('{}', '{"active": 20, "kinds": {"cpu": 11}}', '{"s": 0}');
SELECT * FROM finds('{}', '{"active": 20, "kinds": {"cpu": 12}}', '{"s": 0}');

-- connection_storm
SELECT * FROM finds('{"used": 88, "idle": 80, "new": 2, "application": "it''s web", "application_sessions": 80, "application_idle": 79}');
SELECT * FROM finds('{"used": 88, "idle": 80, "new": 20, "application": "it''s web", "application_sessions": 80, "application_idle": 79}');
SELECT rule FROM finds('{"used": 87, "idle": 80, "new": 2}');
SELECT rule, certainty, cure FROM finds('{"used": 73, "idle": 9, "new": 20}');
SELECT rule FROM finds('{"used": 73, "idle": 9, "new": 19}');
SELECT rule FROM finds('{"used": 72, "idle": 9, "new": 20}');
SELECT rule, certainty FROM finds('{"used": 97, "idle": 90, "new": 20}');
SELECT rule, certainty FROM finds('{"used": 88, "idle": 10, "new": 2}');
SELECT rule, certainty FROM finds(root('{"waiters": 70}') || '{"used": 88, "idle": 10, "new": 60}');

-- what most of them do
SELECT certainty, sentence, cure FROM finds('{"used": 97, "idle": 3, "idle_in_transaction": 92, "new": 2, "application": "web", "application_sessions": 92, "application_idle": 3}');
SELECT certainty, sentence, cure FROM finds('{"used": 97, "idle": 3, "starting": 90}');

-- temp_files
SELECT * FROM finds('{"sessions": [{"pid": 6, "application": "a", "event": "BufFileWrite"}]}', '{"active": 5, "kinds": {"temp_file": 1}, "temp_bytes_per_s": 2e8}');
SELECT rule FROM finds('{}', '{"active": 6, "kinds": {"temp_file": 1.1}, "temp_bytes_per_s": 2e7}');
SELECT rule, cure FROM finds('{}', '{"active": 6, "kinds": {"temp_file": 3}}', '{"kinds": {"temp_file": 1.5}}');
SELECT rule FROM finds('{}', '{"active": 6, "kinds": {"temp_file": 3}}', '{"kinds": {"temp_file": 1.6}}');

-- checkpoint_storm
SELECT * FROM finds('{"checkpoints_requested": 6, "minute_s": 60, "minute_wal_bytes": 4e9}', '{"kinds": {"wal_sync": 1, "data_extend": 1}}');
SELECT rule FROM finds('{"checkpoints_requested": 2, "minute_s": 60, "minute_wal_bytes": 4e9}', '{"active": 2, "kinds": {"wal_sync": 0.9}}');
SELECT * FROM finds('{"checkpoints_requested": 6, "minute_s": 60, "minute_wal_bytes": 1e9}', '{"kinds": {"wal_sync": 2}}');
SELECT rule FROM finds('{"checkpoints_requested": 1, "minute_s": 20, "minute_wal_bytes": 4e9}', '{"kinds": {"wal_sync": 2}}');
SELECT rule FROM finds('{"checkpoints_requested": 6, "minute_s": 60, "minute_wal_bytes": 4e9}', '{"kinds": {"wal_sync": 2}}', '{"kinds": {"data_write": 1.1}}');
SELECT rule FROM finds('{"standby": true, "checkpoints_requested": 6, "minute_s": 60, "minute_wal_bytes": 4e9}', '{"kinds": {"wal_sync": 2}}');
SELECT rule FROM finds('{"checkpoints_requested": 6, "minute_s": 60, "minute_wal_bytes": 4e9}', '{"active": 3, "kinds": {"wal_init": 0.9}}');
-- in the last half minute, with few that wait just now; the WAL is still being written, or its checkpoint syncs
CREATE FUNCTION checkpoints(more jsonb, now jsonb, usual jsonb DEFAULT '{}') RETURNS TABLE (rule text, certainty text, sentence text, cure text) LANGUAGE sql AS $$
    SELECT f.rule, f.certainty, f.sentence, f.cure
      FROM finds('{"checkpoints_requested": 6, "minute_s": 60, "minute_wal_bytes": 4e9, "half_minute": {"s": 28, "active": 8, "kinds": {"wal_sync": 3}}}'::jsonb || more, now, usual) f
$$;
SELECT * FROM checkpoints('{}', '{"kinds": {"cpu": 1}, "wal_bytes_per_s": 17000000}');
SELECT * FROM checkpoints('{}', '{"kinds": {"cpu": 1}, "wal_bytes_per_s": 16000000}');
SELECT certainty FROM checkpoints('{}', '{"kinds": {"wal_sync": 1}, "wal_bytes_per_s": 0}');
SELECT certainty FROM checkpoints('{"checkpointer_event": "DataFileSync"}', '{"kinds": {"wal_sync": 1}, "wal_bytes_per_s": 0}');
-- max_wal_size has just been changed; its disk is full
SELECT certainty FROM checkpoints('{"max_wal_size_bytes": 4294967296}', '{"kinds": {"wal_sync": 3}}');
SELECT certainty, cure FROM checkpoints('{"max_wal_size_wanted": null}', '{"kinds": {"wal_sync": 3}}');
-- of what is usual the storm is the larger part
SELECT certainty FROM checkpoints('{"usual_checkpoints_requested": 149}', '{"kinds": {"wal_sync": 3}}', '{"kinds": {"wal_sync": 2}}');
SELECT certainty FROM checkpoints('{"usual_checkpoints_requested": 150}', '{"kinds": {"wal_sync": 3}}', '{"kinds": {"wal_sync": 2}}');

-- slow_flush
SELECT * FROM finds('{}', '{"flush_ms": 200, "kinds": {"wal_sync": 1, "wal_write_lock": 6}}');
SELECT rule, sentence FROM finds('{"flush_measured": true}', '{"flush_ms": 20, "kinds": {"wal_sync": 1, "wal_write_lock": 6}}', '{"flush_ms": null}');
-- CPUs that are short lengthen what is computed
SELECT rule, certainty FROM finds('{"queued_fraction": 0.5}', '{"flush_ms": 200, "read_ms": 200, "kinds": {"wal_sync": 4, "data_read": 2, "cpu": 2}}');
SELECT rule, certainty FROM finds('{"queued_fraction": 0.4}', '{"flush_ms": 200, "read_ms": 200, "kinds": {"wal_sync": 4, "data_read": 2, "cpu": 2}}');
SELECT rule, certainty FROM finds('{"queued_fraction": 0.5, "flush_measured": true}', '{"flush_ms": 200, "kinds": {"wal_sync": 4, "cpu": 2}}');
SELECT f.sentence FROM (VALUES (0), (0.0123), (1.25), (12.34)) v(ms), LATERAL finds('{}', '{"flush_ms": 200, "kinds": {"wal_sync": 7}}', jsonb_build_object('flush_ms', ms)) f;
SELECT rule FROM finds('{"standby": true}', '{"flush_ms": 200, "kinds": {"wal_sync": 1, "wal_write_lock": 6}}');
SELECT rule FROM finds('{}', '{"flush_ms": 19, "kinds": {"wal_sync": 2}}', '{"flush_ms": null}');
SELECT rule FROM finds('{}', '{"flush_ms": 4.9, "kinds": {"wal_sync": 2}}');
SELECT rule FROM finds('{}', '{"flush_ms": 29, "kinds": {"wal_sync": 2}}', '{"flush_ms": 10}');
SELECT rule FROM finds('{}', '{"flush_ms": 200, "kinds": {"wal_sync": 1.9}}');
SELECT rule FROM finds('{}', '{"flush_ms": 200, "active": 1, "kinds": {"wal_sync": 0.9}}');
SELECT rule, certainty FROM finds('{"checkpoints_requested": 6, "minute_s": 60, "minute_wal_bytes": 4e9}', '{"flush_ms": 200, "kinds": {"wal_sync": 7}}');
SELECT rule, certainty FROM finds('{}', '{"flush_ms": 200, "kinds": {"wal_sync": 4, "temp_file": 2.5}}');
SELECT rule, certainty, sentence FROM finds('{"stuck_flushes": 1}', '{"s": 0, "kinds": {"wal_sync": 1, "wal_write_lock": 3}}', '{"s": 0, "flush_ms": null}');
SELECT rule FROM finds('{"stuck_flushes": 0}', '{"s": 0, "kinds": {"wal_sync": 1, "wal_write_lock": 3}}', '{"s": 0, "flush_ms": null}');

-- slow_reads
SELECT * FROM finds('{}', '{"read_ms": 30, "reads_per_s": 200, "kinds": {"data_read": 6}}');
SELECT rule FROM finds('{}', '{"read_ms": 4.9, "kinds": {"data_read": 6}}');
SELECT rule FROM finds('{}', '{"read_ms": 30, "kinds": {"data_read": 1.9}}');

-- full_disk
CREATE FUNCTION full_disk(more jsonb) RETURNS TABLE (rule text, certainty text, sentence text, cure text, risk text) LANGUAGE sql AS $$
    SELECT f.rule, f.certainty, f.sentence, f.cure, f.risk
      FROM pgscale_internal.now_findings('{"used": 20, "max_wal_size_bytes": 1e9, "wal_size_bytes": 1e11, "wal_free_bytes": 5e9, "wal_used_bytes": 9e10}'::jsonb || more) f
$$;
SELECT * FROM full_disk('{"slot": "old", "slot_active": false, "slot_bytes": 8e10}');
SELECT * FROM full_disk('{"slot": "old", "slot_active": false, "slot_bytes": 8e10, "wal_free_bytes": 1.9e9}');
SELECT * FROM full_disk('{"slot": "old", "slot_active": true, "slot_bytes": 8e10, "archive_failed_s": 5}');
SELECT * FROM full_disk('{"slot": "old", "slot_active": true, "slot_bytes": 1e9, "archive_failed_s": 5}');
SELECT * FROM full_disk('{"archive_failed_s": 5, "wal_used_bytes": 2e9}');
SELECT * FROM full_disk('{"wal_free_bytes": 1.9e9, "data_size_bytes": 1e11, "data_free_bytes": 1.9e9}');
SELECT * FROM full_disk('{"data_size_bytes": 1e12, "data_free_bytes": 1.9e10}');
SELECT * FROM full_disk('{}');

-- replication_wait
SELECT * FROM finds('{}', '{"kinds": {"sync_rep": 7}}');
SELECT certainty, sentence, cure FROM (VALUES (1, 0, 1), (2, 0, 0), (2, 0, 1), (2, 1, 0), (3, 2, 1), (2, 2, 1), (0, 0, 0)) v(wanted, ready, late),
    LATERAL finds(jsonb_build_object('sync_wanted', wanted, 'sync_standbys', ready, 'sync_catching_up', late,
                                     'sync_fewer', CASE WHEN ready BETWEEN 1 AND wanted - 1 THEN format('ANY %s ("it''s", b)', ready) END), '{"kinds": {"sync_rep": 7}}');
SELECT rule, certainty FROM finds('{"sync_standbys": 1}', '{"kinds": {"sync_rep": 7}}');
SELECT rule, certainty, sentence FROM finds('{"sync_standbys": null}', '{"kinds": {"sync_rep": 7}}');
SELECT rule FROM finds('{"sync_standbys": 1}', '{"kinds": {"sync_rep": 7}}', '{"kinds": {"sync_rep": 4}}');
SELECT rule FROM finds('{"sync_standbys": 1}', '{"kinds": {"sync_rep": 2.3}}');
-- of missing ones nothing is usual, and one commit is enough; with the others that wait for its rows, unless it is over
SELECT rule, sentence FROM finds('{}', '{"kinds": {"sync_rep": 0.9}}', '{"kinds": {"sync_rep": 4}}');
SELECT rule FROM finds('{}', '{"kinds": {"sync_rep": 0.8}}');
SELECT rule, certainty, sentence FROM finds(root('{"waiters": 6, "state": "active", "event_type": "IPC", "event": "SyncRep"}') || '{"sync_standbys": 1}',
    '{"kinds": {"sync_rep": 1}}');
-- those behind a commit are no queue in turns
SELECT rule FROM finds(row_root(3), '{"kinds": {"sync_rep": 1, "lock_tuple": 4}}');
SELECT rule FROM finds(root('{"rows": 3, "waiters": 3, "transaction_s": 0.5, "longest_s": 0.4, "event_type": "IPC", "event": "SyncRep", "state": "active"}'),
    '{"kinds": {"sync_rep": 1, "lock_tuple": 4}}');
SELECT certainty, cure FROM finds('{"sync_wanted": 2, "sync_standbys": 1, "sync_fewer": "ANY 1 (a, b)", "patroni": true}', '{"kinds": {"sync_rep": 7}}');
-- they have the WAL and have not replayed it
SELECT certainty, sentence, cure FROM (VALUES (true), (false)) v(apply),
    LATERAL finds(jsonb_build_object('sync_standbys', 1, 'sync_flushed', 1, 'sync_replaying', 'near', 'sync_apply', apply), '{"kinds": {"sync_rep": 7}}');
SELECT certainty, sentence FROM finds('{"sync_standbys": 2, "sync_wanted": 2, "sync_flushed": 1}', '{"kinds": {"sync_rep": 7}}');

-- wraparound_vacuum, by age; recovery_conflict
SELECT * FROM finds('{"oldest_xid_age": 1600000000, "oldest_xid_database": "app"}');
SELECT rule, certainty FROM finds('{"oldest_xid_age": 1900000000, "oldest_xid_database": "app"}');
SELECT rule FROM finds('{"oldest_xid_age": 1499999999, "oldest_xid_database": "app"}');
CREATE FUNCTION conflicts(conflict text, sessions jsonb, more jsonb DEFAULT '{}') RETURNS TABLE (certainty text, pid integer, sentence text, cure text, risk text)
LANGUAGE sql AS $$
    SELECT f.certainty, f.pid, f.sentence, f.cure, f.risk
      FROM pgscale_internal.now_findings(jsonb_build_object('standby', true, 'conflict', conflict, 'conflicting', sessions) || more) f
$$;
SELECT * FROM conflicts('snapshot', '[{"pid": 8, "application": "report", "state": "active", "transaction_s": 50}]');
SELECT * FROM conflicts('snapshot', '[{"pid": 8, "state": "idle in transaction"}]');
SELECT * FROM conflicts('snapshot', '[{"pid": 8, "state": "active"}, {"pid": 9, "state": "active"}]');
SELECT * FROM conflicts('snapshot', '[]');
SELECT * FROM conflicts('lock', '[{"pid": 8, "state": "idle in transaction"}, {"pid": 9, "state": "active"}]', '{"conflict_s": 1}');
SELECT * FROM conflicts('lock', '[{"pid": 8, "state": "active", "event_type": "Lock", "event": "relation"}]', '{"conflict_s": 1}');
SELECT * FROM conflicts('lock', '[{"pid": 8, "state": "active"}]', '{"conflict_s": 0.9}');
SELECT * FROM conflicts('lock', '[]', '{"conflict_s": 1}');
SELECT * FROM conflicts('lock', '[]');
SELECT * FROM conflicts('lock', '[{"pid": 8, "state": null}]', '{"conflict_s": 1}');
SELECT * FROM conflicts('pin', '[{"pid": 8, "state": "idle in transaction"}]');
SELECT * FROM conflicts('pin', '[{"pid": 8, "state": "idle in transaction"}, {"pid": 9, "state": "active"}]');
SELECT * FROM conflicts('tablespace', '[{"pid": 8, "state": "active"}]');
SELECT * FROM conflicts('tablespace', '[]');
SELECT * FROM conflicts('snapshot', '[]', '{"standby": false}');
SELECT * FROM conflicts('another', '[]');
-- a session in the way of replay only is named once
SELECT rule, pid FROM finds(root('{"pid": 8, "rows": 0, "waiters": 1, "locktype": "relation"}')
    || '{"standby": true, "conflict": "lock", "conflict_s": 5, "conflicting": [{"pid": 8, "state": "idle in transaction"}]}');
SELECT rule, pid FROM finds(root('{"pid": 8, "rows": 0, "waiters": 2, "locktype": "relation"}')
    || '{"standby": true, "conflict": "lock", "conflict_s": 5, "conflicting": [{"pid": 8, "state": "idle in transaction"}]}');

-- the most certain first, and of those the most costly
SELECT rank, rule, certainty FROM finds(root('{"waiters": 3}') || '{"oldest_xid_age": 1600000000}',
    '{"flush_ms": 200, "kinds": {"wal_sync": 4, "lock_manager": 2}}');

-- evidence of any kind is no error
SELECT count(*) FROM pgscale_internal.now_findings('{}');
SELECT count(*) FROM pgscale_internal.now_findings('[1, {"a": 2}]');
SELECT count(*) FROM pgscale_internal.now_findings('"x"');
SELECT count(*) FROM pgscale_internal.now_findings('{"roots": {"pid": 1}, "now": 3, "sessions": [null, 1, {"pid": 1e300}], "used": "many", "cpus": null}');
SELECT count(*) FROM pgscale_internal.now_findings(NULL);

-- the screen: long texts are cut, statements are not; four findings at most
CREATE FUNCTION storm(application text, lines integer) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT l FROM pgscale_internal.now_lines(pgscale_internal.now_evidence()
        || '{"used": 95, "idle": 90, "max_connections": 100, "reserved": 3, "new": 60, "application_sessions": 80, "application_idle": 79}'
        || jsonb_build_object('application', application)) l LIMIT lines
$$;
SELECT storm(repeat('w', 63), 7);
SELECT storm('a WHERE b', 7);
SELECT storm(repeat('''', 63), 3);
-- the first lines of that cure, without the last: none is a statement
DO $do$
DECLARE
    whole text := (SELECT cure FROM pgscale_internal.now_findings('{"used": 95, "idle": 90, "max_connections": 100, "new": 60, "application": "no such",
        "application_idle": 79}') WHERE rule = 'connection_storm');
    part text := '';
    line text;
BEGIN
    FOREACH line IN ARRAY string_to_array(whole, chr(10)) LOOP
        part := concat(part, ' ', line);
        BEGIN
            EXECUTE part;
            RAISE NOTICE 'runs: %', part;
        EXCEPTION WHEN syntax_error OR undefined_column THEN
            NULL;
        END;
    END LOOP;
END
$do$;
SELECT l FROM pgscale_internal.now_lines(pgscale_internal.now_evidence() || root(jsonb_build_object('pid', null, 'state', 'prepared', 'state_s', null,
    'transaction_s', null, 'gid', quote_literal(repeat('x', 150)), 'gid_shown', quote_literal(repeat('x', 90))))) l LIMIT 3;
SELECT count(*) <= 36 AS lines, max(length(l)) <= 118 AS width, count(*) FILTER (WHERE l ~ '^also: ') AS also
  FROM pgscale_internal.now_lines(pgscale_internal.now_evidence() || (SELECT jsonb_build_object('roots', jsonb_agg(root('{}')->'roots'->0
           || jsonb_build_object('pid', i, 'query', repeat('x', 100))), 'sessions', jsonb_agg(jsonb_build_object('pid', i, 'age_s', i, 'query', repeat('y', 100))))
         FROM generate_series(1, 5) i)) l;

-- transactions that fail
SELECT * FROM finds('{}', '{"commits_per_s": 20, "rollbacks_per_s": 5}', '{"commits_per_s": 47.5, "rollbacks_per_s": 2.5}');
SELECT * FROM finds('{}', '{"commits_per_s": 20, "rollbacks_per_s": 4.9}', '{"commits_per_s": 46, "rollbacks_per_s": 2.4}');
SELECT * FROM finds('{}', '{"commits_per_s": 21, "rollbacks_per_s": 5}', '{"commits_per_s": 47.5, "rollbacks_per_s": 2.5}');
SELECT * FROM finds('{}', '{"commits_per_s": 20, "rollbacks_per_s": 5}', '{"commits_per_s": 94, "rollbacks_per_s": 5}');
SELECT * FROM finds('{}', '{"commits_per_s": 0, "rollbacks_per_s": 5}', '{"commits_per_s": 95, "rollbacks_per_s": 2.6}');
SELECT * FROM finds('{}', '{"commits_per_s": 50, "rollbacks_per_s": 50}', '{"s": 0}');
SELECT * FROM finds('{}', '{"commits_per_s": 51, "rollbacks_per_s": 50}', '{"s": 0}');
SELECT * FROM finds('{}', '{"commits_per_s": 50, "rollbacks_per_s": 50}', '{"commits_per_s": 80, "rollbacks_per_s": 20}');
-- what is forgotten
CREATE FUNCTION holder(more jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT '{"xmin_holder": "session", "xmin_name": "4711", "xmin_shown": "pid 4711, nightly_report", "xmin_age": 100000, "xmin_s": 60}'::jsonb || more
$$;
SELECT * FROM finds(holder('{}'));
SELECT * FROM finds(holder('{"xmin_age": 99999}'));
SELECT * FROM finds(holder('{"xmin_s": 59}'));
SELECT * FROM finds(holder('{"xmin_s": null}'));
SELECT * FROM finds(holder('{"standby": true}'));
SELECT * FROM finds(holder('{"xmin_holder": "slot", "xmin_name": "''s''", "xmin_shown": "s", "xmin_s": null}'));
SELECT * FROM finds(holder('{"xmin_holder": "prepared", "xmin_name": "''it''''s''", "xmin_shown": "''it''''s''"}'));
SELECT rank, rule FROM finds(holder('{}') || root('{}'));
SELECT rank, rule FROM finds(holder('{"xmin_name": "4712"}') || root('{}'));
SELECT rank, rule FROM finds(holder('{"xmin_holder": "prepared", "xmin_name": "''g''"}') || root('{"pid": null, "gid": "''g''", "gid_shown": "''g''", "state": "prepared", "state_s": null}'));
-- a limit that is reached
SELECT * FROM finds('{"limited": "role", "limited_name": "\"Shop\"", "limited_shown": "Shop", "limited_connections": 10, "limited_idle": 4}');
SELECT * FROM finds('{"limited": "database", "limited_name": "shop", "limited_shown": "shop", "limited_connections": 78, "limited_idle": 39}');
SELECT rule, risk, evidence FROM pgscale_internal.now_findings('{"used": 20, "max_connections": 100, "limited": "role", "limited_name": "shop", "limited_connections": 77}');
SELECT cure FROM finds('{"standby": true, "limited": "role", "limited_name": "shop", "limited_connections": 7}');
SELECT cure FROM finds('{"used": 96, "limited": "role", "limited_name": "shop", "limited_connections": 7}') WHERE cure ~ 'usename';
SELECT cure FROM finds('{"limited": "role", "limited_connections": 7}');

-- evidence that is made up, and nested
DO $$
BEGIN
    PERFORM pgscale_internal.now_findings((repeat('{"roots": [{"pinning": [{"pid": 1, "pinning": [', 1) || repeat('{"pinning": [', 5000) || repeat(']}', 5000) || ']}]}]}')::jsonb);
EXCEPTION WHEN statement_too_complex THEN
    NULL;
END
$$;

-- times of disks: two digits that count, or why there is none
SELECT pgscale_internal.now_latency('read', ms, usual, n)
  FROM (VALUES (45.33, 2.148, 9), (0.00417, NULL, 9), (145.2, 0, 9), (9.99, 99.5, 9), (0, 1, 9), (NULL, 1, 0), (NULL, 1, NULL)) v(ms, usual, n);

-- who may
CREATE ROLE regress_now;
SET ROLE regress_now;
SELECT * FROM pgscale.now;
SELECT * FROM pgscale.diagnosis();
RESET ROLE;
GRANT pg_monitor TO regress_now;
SET ROLE regress_now;
SELECT count(*) > 0 AS some FROM pgscale.now;
SELECT count(*) FROM pgscale.diagnosis();
RESET ROLE;

-- who may not run a cure reads who may: each that acts, with a session of a superuser, of another role, and of regress_now
CREATE ROLE regress_now_app CONNECTION LIMIT 7;
-- from 18 on a role may do that
CREATE FUNCTION risks(role text) RETURNS TABLE (cure text, risk text) LANGUAGE sql AS $$
    SELECT f.cure, replace(f.risk, 'a member of pg_signal_autovacuum_worker', 'a superuser')
      FROM (SELECT r.oid::bigint AS oid FROM pg_roles r WHERE r.rolname = role) o,
           LATERAL (SELECT jsonb_build_object('role', o.oid) AS role) j,
           LATERAL (VALUES (root(j.role)), (root('{"state": "active", "event_type": null}' || j.role)),
               (root('{"state": "active", "event_type": null, "pid": 9, "backend_type": "autovacuum worker", "rows": 0}')),
               (root('{"holders": 6, "rows": 0, "gate_pid": 55, "gate_type": "client backend", "behind_gate": 7}' || jsonb_build_object('gate_role', o.oid))),
               (holder(jsonb_build_object('xmin_role', o.oid))),
               ('{"standby": true, "conflict": "lock", "conflict_s": 1}' || jsonb_build_object('conflicting', jsonb_build_array('{"pid": 8, "state": "active"}' || j.role))),
               ('{"limited": "role", "limited_name": "regress_now_app", "limited_connections": 7}' || jsonb_build_object('limited_role', o.oid)),
               ('{"limited": "database", "limited_name": "shop", "limited_connections": 7}' || jsonb_build_object('limited_role', o.oid)),
               ('{"oldest_xid_age": 1600000000}' || jsonb_build_object('oldest_xid_owner', o.oid))) v(seen),
           LATERAL pgscale_internal.now_findings('{"used": 20, "max_connections": 100}' || v.seen) f
$$;
CREATE FUNCTION other_risks() RETURNS TABLE (cure text, risk text) LANGUAGE sql AS $$
    SELECT f.cure, f.risk
      FROM (VALUES ('{"now": {"active": 8, "flush_ms": 200, "kinds": {"wal_sync": 7}}}'::jsonb),
               ('{"now": {"active": 8, "read_ms": 200, "kinds": {"data_read": 7}}}'),
               ('{"now": {"active": 8, "kinds": {"sync_rep": 7}}, "sync_standbys": 0}'),
               ('{"now": {"active": 8, "kinds": {"lock_manager": 7}}}'),
               ('{"slot": "old", "slot_bytes": 8e10, "max_wal_size_bytes": 1e9, "wal_size_bytes": 1e11, "wal_free_bytes": 1e9, "wal_used_bytes": 9e10}'),
               ('{"used": 97, "idle": 90, "new": 60, "application": "web", "application_idle": 79}')) v(seen),
           LATERAL pgscale_internal.now_findings('{"used": 20, "max_connections": 100}' || v.seen) f
$$;
SET ROLE regress_now;
SELECT * FROM risks('regress_now_app');
SELECT risk FROM risks((SELECT rolname FROM pg_roles WHERE oid = 10));
SELECT * FROM other_risks();
RESET ROLE;
SELECT count(*) FROM risks('regress_now_app') WHERE risk ~ 'needs';
SELECT count(*) FROM other_risks() WHERE risk ~ 'needs';
-- what each privilege is enough for; to read as many lines is tedious: those that still need one
GRANT pg_signal_backend TO regress_now;
SET ROLE regress_now;
SELECT * FROM risks('regress_now_app') WHERE risk ~ 'needs';
SELECT cure FROM other_risks() WHERE risk ~ 'needs';
SELECT cure FROM risks((SELECT rolname FROM pg_roles WHERE oid = 10)) WHERE risk !~ 'needs';
RESET ROLE;
REVOKE pg_signal_backend FROM regress_now;
-- its own sessions and databases, and those of a role whose privileges it has; cancel() needs EXECUTE, too
GRANT regress_now_app TO regress_now WITH ADMIN OPTION;
ALTER ROLE regress_now CREATEROLE REPLICATION;
GRANT EXECUTE ON FUNCTION pgscale.terminate, pgscale.tablespace_latency TO regress_now;
GRANT EXECUTE ON PROCEDURE pgscale.set TO regress_now;
SET ROLE regress_now;
SELECT * FROM risks('regress_now_app') WHERE risk ~ 'needs';
SELECT * FROM other_risks() WHERE risk ~ 'needs';
RESET ROLE;
GRANT ALTER SYSTEM ON PARAMETER synchronous_commit, synchronous_standby_names TO regress_now;
SET ROLE regress_now;
SELECT risk FROM other_risks() WHERE cure ~ 'pgscale.set';
RESET ROLE;
GRANT EXECUTE ON FUNCTION pg_reload_conf TO regress_now;
SET ROLE regress_now;
SELECT risk FROM other_risks() WHERE cure ~ 'pgscale.set';
RESET ROLE;
REVOKE EXECUTE ON FUNCTION pg_reload_conf FROM regress_now;
REVOKE ALTER SYSTEM ON PARAMETER synchronous_commit, synchronous_standby_names FROM regress_now;
REVOKE ALL ON PROCEDURE pgscale.set FROM regress_now;
REVOKE ALL ON FUNCTION pgscale.terminate, pgscale.tablespace_latency FROM regress_now;
-- a long risk takes two lines
SET ROLE regress_now;
SELECT l FROM pgscale_internal.now_lines(pgscale_internal.now_evidence() || '{"now": {"active": 8, "flush_ms": 200, "kinds": {"wal_sync": 7}}, "checkpoints_requested": 0}') l LIMIT 4;
RESET ROLE;
DROP ROLE regress_now, regress_now_app;
DROP FUNCTION finds, holder, row_root, root, computing, conflicts, storm, deadlocks, cycle, risks, other_risks;
DROP EXTENSION pgscale;
