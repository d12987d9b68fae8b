-- Kinds of waits, their meanings, and their shares of the sessions' time.

CREATE FUNCTION pgscale.wait_kind(event_type text, event text)
RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_wait_kind'
LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale.wait_kind(text, text) IS
'kind of a wait event, as in wait_meanings; NULL for pg_sleep()
event_type: type of the wait event
event: name of the wait event, on any major version';
GRANT EXECUTE ON FUNCTION pgscale.wait_kind(text, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.wait_kinds(
    OUT kind text, OUT event_type text, OUT event text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_wait_kinds'
LANGUAGE C STRICT STABLE PARALLEL RESTRICTED ROWS 40;
COMMENT ON FUNCTION pgscale_internal.wait_kinds() IS
'kinds of waits in the evidence, with the wait events of each by their names on this major version; NULL if it has none, others for the rest of a type';
GRANT EXECUTE ON FUNCTION pgscale_internal.wait_kinds() TO pg_monitor;

CREATE FUNCTION pgscale_internal.tuning_waits(
    duration interval DEFAULT '10 minutes',
    OUT kind text, OUT fraction double precision, OUT waiting_sessions double precision,
    OUT since timestamptz, OUT until timestamptz, OUT evidence jsonb)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_tuning_waits'
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 40;
COMMENT ON FUNCTION pgscale_internal.tuning_waits(interval) IS
'fraction of the sessions'' time that each kind of wait took in the evidence of the duration, and the average number of sessions in it';
GRANT EXECUTE ON FUNCTION pgscale_internal.tuning_waits(interval) TO pg_monitor;

-- From the sources of the majors and their release notes; a cure names the commit. "what" completes "it waits for", in at most 36
-- characters.
CREATE VIEW pgscale.wait_meanings AS
    SELECT kind, event_type, event, what, cured_in, meaning, remedy, cure, cured_meaning
      FROM (VALUES
        ('cpu', '(running, or ready to run)',
         'a session runs, or is ready to run and waits for a CPU; events Running and Queued of pgscale.wait_profile '
         'separate the two',
         'cheaper statements: pgscale.query_waits shows which take the most time on CPU; more CPUs if more sessions are on '
         'CPU than there are'),
        ('wal_sync', 'the WAL to reach the disk',
         'a commit waits until its WAL is flushed to disk',
         'fewer and larger transactions; a disk that flushes faster for pg_wal; synchronous_commit = off if losing the '
         'last commits in a crash is acceptable; see pgscale.wal_efficiency'),
        ('wal_write', 'the WAL to reach the disk',
         'a session writes WAL to the kernel, which delays writers when much of their data is still to be written',
         'less WAL: a larger max_wal_size, wal_compression, fewer indexes; see pgscale.advice'),
        ('wal_write_lock', 'the WAL to reach the disk',
         'a commit waits for another session''s flush, which may cover its own WAL too; or WAL buffers are full',
         'fewer and larger transactions; a disk that flushes faster for pg_wal; commit_delay if many sessions commit at '
         'the same time; larger wal_buffers if they are full, see pgscale.advice'),
        ('wal_insert', 'a place to insert WAL',
         'a session waits for one of the 8 WAL insertion locks, whose holder inserts WAL or waits for room in WAL buffers; '
         'a flush waits for these locks too, to ask how far their holders have come',
         'wal_buffers of 16 MB or more; less WAL: wal_compression, COPY, or statements that write many rows instead of one'),
        ('wal_buffers', 'room in the WAL buffers',
         'WAL buffers are full, and one session at a time makes room',
         'wal_buffers of 16 MB or more; a shorter wal_writer_delay'),
        ('wal_init', 'a new WAL file',
         'a session fills a new WAL file with zeroes and flushes it, while others wait',
         'a larger min_wal_size, so that old files are recycled; wal_init_zero = off on a copy-on-write file system'),
        ('data_read', 'data that is not cached',
         'a session reads a page that is not in shared buffers, one page at a time',
         'larger shared_buffers if the kernel''s cache has the pages; indexes that avoid scans; a faster tablespace, see '
         'pgscale.relocation_plan()'),
        ('aio_queue', 'a place in the io workers'' queue',
         'sessions put their reads into one queue, and io workers take them out, one process at a time',
         'io_method = io_uring, see pgscale.advice; a larger io_combine_limit, so that there are fewer reads; statements that '
         'read less'),
        ('aio_completion', 'data that is not cached',
         'a session reads pages through io_uring, and another session waits for the same pages or for other reads of that session',
         'larger shared_buffers if the kernel''s cache has the pages; fewer sessions that scan the same data at the same '
         'time; io_method = worker'),
        ('data_write', 'data files to be written',
         'a session writes a dirty page to free its buffer',
         'a background writer that may write more (bgwriter_lru_maxpages); pgscale.sweeper; larger shared_buffers'),
        ('data_extend', 'a table to be made longer',
         'a session extends a relation page by page',
         'COPY instead of INSERT; fewer relations to load at the same time'),
        ('data_sync', 'data files to reach the disk',
         'a session syncs a data file itself, because the checkpointer''s request queue is full or the file was built '
         'outside shared buffers',
         'larger shared_buffers, on which the size of that queue depends; wal_level above minimal for loads of small tables'),
        ('temp_file', 'temporary files',
         'a sort or hash does not fit in work_mem and uses temporary files',
         'more work_mem for the statements that pgscale.query_waits names'),
        ('slru_io', 'the status of other transactions',
         'a session reads or writes pages of transaction status, whose caches have a fixed size',
         'shorter transactions, so that old status is not looked up; pg_stat_slru shows which cache it is'),
        ('buffer_mapping', 'the map of cached pages',
         'many pages enter and leave shared buffers, and one of the 128 partitions of their map is being changed',
         'larger shared_buffers; statements that read less'),
        ('buffer_content', 'a page that others are using',
         'many sessions change the same page, usually the last leaf of an index or the only page of a small table',
         'keys that are spread (hash partitions, another first column); a low fillfactor for small, hot tables'),
        ('buffer_io', 'data that is not cached',
         'another session is reading the same page into shared buffers',
         'larger shared_buffers if the kernel''s cache has the pages; fewer sessions that scan the same data at the same '
         'time'),
        ('buffer_pin', 'a page that others are using',
         'VACUUM waits for exclusive use of a page that another session uses, for example with an open cursor',
         'close cursors, and end transactions that are idle'),
        ('proc_array', 'snapshots, and ends of transactions',
         'transactions end one after the other, and sessions that take a snapshot wait meanwhile',
         'fewer active connections (a pooler; pgscale.scalability shows how many are worth it); fewer, larger transactions'),
        ('xid_gen', 'a transaction identifier',
         'transactions that write get their identifiers one after the other',
         'fewer, larger transactions; fewer savepoints and exception blocks, each of which takes an identifier if it writes'),
        ('xact', 'the status of other transactions',
         'sessions read or write the commit log under one lock, in a cache of at most 1 MB',
         'VACUUM, which sets hint bits and freezes rows, so that their status need not be looked up; fewer, larger '
         'transactions'),
        ('subtrans', 'the status of other transactions',
         'a transaction has more than 64 open subtransactions, so that each snapshot of other sessions looks up their '
         'parents, under one lock, in a cache of 256 kB',
         'fewer savepoints and PL/pgSQL exception blocks in a transaction; shorter transactions beside it'),
        ('multixact', 'the status of other transactions',
         'many transactions lock the same rows, as foreign keys do, and the lists of lockers are read under one lock',
         'fewer foreign keys to small, hot tables; shorter transactions; VACUUM more often'),
        ('sinval', 'news of changed definitions',
         'definitions of tables change often, and each session must be notified',
         'fewer temporary tables and less DDL; fewer connections'),
        ('predicate', 'what serializable transactions read',
         'serializable transactions record what they read',
         'REPEATABLE READ if that is enough; READ ONLY DEFERRABLE for reports; shorter transactions'),
        ('statistics', 'statistics in shared memory',
         'sessions add to statistics in shared memory',
         'pg_stat_statements.track_planning = off; a larger pg_stat_statements.max if it evicts entries'),
        ('lock_manager', 'the lock table''s own locks',
         'statements lock more than 16 relations, such as partitions and their indexes, or take strong locks; both use the '
         'lock table in shared memory, which has 16 partitions',
         'plans that prune partitions, unlike the generic plans of prepared statements; fewer indexes and partitions; from '
         '18 on, a larger max_locks_per_transaction'),
        ('lock_fast_path', 'the lock table''s own locks',
         'a strong lock, as DDL takes it, moves the weak locks of all sessions into the lock table',
         'less DDL and LOCK TABLE while there is load'),
        ('lock_extend', 'a table to be made longer',
         'sessions that load the same relation extend it one after the other, page by page',
         'COPY instead of INSERT; fewer sessions that load; partitions'),
        ('lock_transaction', 'a row that another one has changed',
         'a session wants to change a row that another transaction has changed and not committed yet',
         'shorter transactions that change the hot row last; faster commits; several rows to add up instead of one; SKIP LOCKED '
         'for queues'),
        ('lock_tuple', 'a row that another one has changed',
         'several sessions queue for the same row, and the first of them waits for the transaction that has changed it',
         'shorter transactions that change the hot row last; faster commits; several rows to add up instead of one; SKIP LOCKED '
         'for queues'),
        ('lock_relation', 'a table that another one has locked',
         'DDL, LOCK TABLE or VACUUM FULL holds a lock or waits for it, and sessions that come later queue behind it',
         'lock_timeout for DDL; CONCURRENTLY; pgscale.relocate_indexes() and pgscale.relocate_table() instead of SET '
         'TABLESPACE'),
        ('lock_advisory', 'a lock of the application',
         'the application waits for its own advisory locks',
         'a change of the application, because only the application knows the purpose of these locks'),
        ('sync_rep', 'a standby',
         'a commit waits for a synchronous standby',
         'synchronous_commit = remote_write or local if that is enough; a standby that is nearer; ANY instead of FIRST in '
         'synchronous_standby_names'),
        ('parallel', 'the others of its parallel query',
         'parallel workers and their leader wait for each other',
         'fewer workers (max_parallel_workers_per_gather) if statements are short or the CPUs are busy'),
        ('spin', 'a spinlock',
         'a process that has lost its CPU holds a spinlock, or too many processes want it',
         'fewer active connections: there are more than CPUs'),
        ('client', 'its client',
         'the client or the network is slower than the server',
         'smaller results; a client that is nearer'),
        ('idle_in_transaction', 'its client''s next statement',
         'a session has a transaction open and waits for its client''s next statement',
         'shorter transactions, with no work of the application between their statements; '
         'idle_in_transaction_session_timeout'),
        ('replication', 'a replication partner',
         'a process of replication waits for the other server, or sessions that change slots and subscriptions wait for each other',
         'see pg_stat_replication, pg_replication_slots and pg_stat_subscription; fewer slots and subscriptions that start at once'),
        ('recovery', 'the replay of WAL',
         'a standby''s replay waits for a query, for its setting, or for WAL; or a session waits for a promotion',
         'shorter queries on the standby; max_standby_streaming_delay; see pgscale.now on the standby'),
        ('backup', 'a backup or the archiver',
         'a base backup reads, writes or is throttled, or a session waits until the WAL of a backup is archived',
         'backups at hours with less load; an archive_command that is fast and does not fail: see pg_stat_archiver'),
        ('checkpoint', 'a checkpoint',
         'a command waits for a checkpoint that it has asked for, or for the checkpointer''s queue or the control file',
         'fewer commands that ask for a checkpoint, such as CHECKPOINT, base backups, and CREATE DATABASE with file_copy'),
        ('vacuum', 'a pause of VACUUM',
         'VACUUM pauses by its cost limit, or for the end of a table, or for other workers of autovacuum',
         'a smaller vacuum_cost_delay or a larger vacuum_cost_limit if VACUUM is too slow'),
        ('notify', 'the queue of notifications',
         'sessions put notifications into one queue, and a commit with a NOTIFY waits for the one before it',
         'fewer transactions with NOTIFY; fewer sessions that LISTEN'),
        ('commit_ts', 'commit timestamps',
         'transactions write or read the times of commits, under one lock, in a small cache',
         'track_commit_timestamp = off if nothing needs it'),
        ('copy', 'the file or program of a COPY',
         'COPY reads or writes a file of the server, or waits for a program',
         'a faster disk or program; COPY to and from the client'),
        ('server', 'a rarely used part of the server',
         'a session waits for a lock or a file that the server needs rarely: at starts of processes, DDL, prepared transactions',
         'less DDL, fewer new connections and prepared transactions at a time'),
        ('server_idle', 'work',
         'a server process has nothing to do',
         'nothing: this is rest'),
        ('other_lwlock', 'a lock in shared memory',
         'a session waits for a lock in shared memory that has no row of its own here',
         'find the event in pgscale.wait_profile, and what it is under "Wait Events" in PostgreSQL''s documentation'),
        ('other_lock', 'a lock that another one holds',
         'a session waits for a lock of a type that has no row of its own here',
         'the end of the transaction that holds the lock: pg_blocking_pids() and pg_locks show it'),
        ('other_io', 'a file',
         'a session reads or writes a file of a kind that has no row of its own here',
         'find the event in pgscale.wait_profile, and what it is under "Wait Events" in PostgreSQL''s documentation'),
        ('other_ipc', 'another process',
         'a session waits for another process, in a way that has no row of its own here',
         'find the event in pgscale.wait_profile, and what it is under "Wait Events" in PostgreSQL''s documentation'),
        ('other', '(see "Wait Events" in the manual)',
         'a session waits in a way that has no row of its own here',
         'find the event in pgscale.wait_profile, and what it is under "Wait Events" in PostgreSQL''s documentation')
        ) m (kind, what, meaning, remedy)
      LEFT JOIN (VALUES
        ('wal_insert', 17,
         'a flush reads how far the holders have come without their locks (commit 71e4cc6b8)',
         'a session waits for one of the 8 WAL insertion locks, whose holder inserts WAL or waits for room in WAL buffers'),
        ('data_read', 17,
         'sequential scans and ANALYZE read up to io_combine_limit at a time (commits b7b0f3f27, 041b96802); 18 also '
         'reads ahead by itself (io_method)',
         'a session reads pages that are not in shared buffers'),
        ('data_extend', 16,
         'a session extends a relation by many pages at a time (commits 31966b151 and 00d1e02be)',
         'a session extends a relation by many pages at a time'),
        ('slru_io', 17,
         'the sizes of the caches can be set (commit 53c2a97a9)',
         'a session reads or writes pages of transaction status'),
        ('xact', 17,
         'the cache is divided into banks with a lock each, and transaction_buffers sets its size (commit 53c2a97a9)',
         'sessions read or write the commit log''s cache, which has a lock for each bank'),
        ('subtrans', 17,
         'the cache is divided into banks with a lock each, and subtransaction_buffers sets its size (commit 53c2a97a9)',
         'a transaction has more than 64 open subtransactions, so that each snapshot of other sessions looks up their '
         'parents'),
        ('multixact', 17,
         'the caches are divided into banks with a lock each, and multixact_offset_buffers and '
         'multixact_member_buffers set their sizes (commit 53c2a97a9)',
         'many transactions lock the same rows, as foreign keys do'),
        ('lock_manager', 18,
         'a session has more fast-path slots with a larger max_locks_per_transaction (commit c4d5cb71d)',
         'statements lock more relations than a session has fast-path slots, or take strong locks'),
        ('lock_extend', 16,
         'each session extends it by many pages at a time and writes them without the lock (commits 31966b151, 00d1e02be)',
         'sessions that load the same relation extend it one after the other'),
        ('commit_ts', 17,
         'the cache is divided into banks with a lock each, and commit_timestamp_buffers sets its size (commit 53c2a97a9)',
         'transactions write or read the times of commits')
        ) c (kind, cured_in, cure, cured_meaning) USING (kind)
      LEFT JOIN pgscale_internal.wait_kinds() USING (kind);
COMMENT ON VIEW pgscale.wait_meanings IS 'meaning and remedy of each kind of wait, and the major version that has cured it';
GRANT SELECT ON pgscale.wait_meanings TO pg_monitor;
COMMENT ON COLUMN pgscale.wait_meanings.kind IS 'name of the kind, as wait_kind() returns it';
COMMENT ON COLUMN pgscale.wait_meanings.event_type IS 'type of the wait events; NULL for the rest of all types';
COMMENT ON COLUMN pgscale.wait_meanings.event IS 'names of the wait events on this major version, four at most; NULL if it has none; others: the rest of a type';
COMMENT ON COLUMN pgscale.wait_meanings.what IS 'what a session waits for, in a few words';
COMMENT ON COLUMN pgscale.wait_meanings.cured_in IS 'major version that has cured it; NULL if none has';
COMMENT ON COLUMN pgscale.wait_meanings.meaning IS 'what happens there, before that major version';
COMMENT ON COLUMN pgscale.wait_meanings.remedy IS 'what helps';
COMMENT ON COLUMN pgscale.wait_meanings.cure IS 'what that major version does instead; NULL if none has cured it';
COMMENT ON COLUMN pgscale.wait_meanings.cured_meaning IS 'what happens there from that major version on; NULL if none has cured it';

CREATE FUNCTION pgscale_internal.tuning_since(duration interval DEFAULT '10 minutes')
RETURNS timestamptz
AS 'MODULE_PATHNAME', 'pgscale_tuning_since'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale_internal.tuning_since(interval) IS 'start of the period of that length that ends now';
GRANT EXECUTE ON FUNCTION pgscale_internal.tuning_since(interval) TO pg_monitor;

-- Its figures are those of top_waits(). STABLE, so that it is inlined.
CREATE FUNCTION pgscale.contention(
    duration interval DEFAULT '10 minutes',
    OUT event_type text, OUT event text, OUT fraction double precision, OUT usual_fraction double precision,
    OUT active_sessions double precision, OUT cured_in text, OUT since timestamptz, OUT until timestamptz, OUT meaning text,
    OUT now_possible text, OUT evidence jsonb)
RETURNS SETOF record
LANGUAGE sql STABLE PARALLEL RESTRICTED
BEGIN ATOMIC
    WITH period AS MATERIALIZED (SELECT pgscale_internal.tuning_since(duration) AS begins),
    known AS MATERIALIZED (
        SELECT min(c.at) AS since, max(c.at + make_interval(secs => c.period_s)) AS until
          FROM period CROSS JOIN LATERAL pgscale_internal.past_coverage(period.begins) c),
    -- what the archive has as one row is of no kind; idle sessions do not contend, nor does pg_sleep(), whose kind is NULL
    waits AS (
        SELECT CASE i.kind WHEN 'other' THEN 'other' ELSE pgscale.wait_kind(i.event_type, i.event) END AS kind,
               sum(i.fraction) AS fraction, sum(i.active_sessions) AS active_sessions, sum(i.wait_ms) AS wait_ms
          FROM period CROSS JOIN LATERAL pgscale_internal.past_items(period.begins, NULL, 'event', 1000000) i
         WHERE i.event IS DISTINCT FROM 'IdleInTransaction'
         GROUP BY 1),
    -- the hour before, if enough of it is known
    before AS MATERIALIZED (
        SELECT coalesce(sum(c.known_s), 0) >= 60 AS known
          FROM period CROSS JOIN LATERAL pgscale_internal.past_coverage(period.begins - interval '1 hour', period.begins) c),
    usual AS MATERIALIZED (
        SELECT CASE i.kind WHEN 'other' THEN 'other' ELSE pgscale.wait_kind(i.event_type, i.event) END AS kind, sum(i.fraction) AS fraction
          FROM period CROSS JOIN LATERAL pgscale_internal.past_items(period.begins - interval '1 hour', period.begins, 'event', 1000000) i
         WHERE (i.event = 'IdleInTransaction') IS NOT TRUE
         GROUP BY 1),
    kinds AS (SELECT w.*, w.wait_ms / nullif(sum(w.wait_ms) OVER (), 0) AS busy_fraction FROM waits w WHERE w.kind IS NOT NULL)
    SELECT m.event_type, m.event, pgscale_internal.three_digits(k.fraction),
           pgscale_internal.three_digits(CASE WHEN before.known THEN coalesce(u.fraction, 0) END),
           pgscale_internal.three_digits(k.active_sessions),
           CASE WHEN m.cured_in > major THEN m.cured_in || ': ' || m.cure END, known.since, known.until,
           CASE WHEN m.cured_in <= major THEN m.cured_meaning ELSE m.meaning END,
           CASE WHEN m.event_type = 'Lock' AND m.kind <> 'lock_extend' AND
                     (SELECT sum(b.idle_in_transaction_ms) >= sum(b.waited_ms) / 2 FROM pgscale_internal.blocker_profile() b WHERE b.last_seen >= known.since)
                THEN 'an end of transactions that are idle while others wait for them, see pgscale.blocker_profile: shorter ones, with no work '
                     'of the application between their statements; idle_in_transaction_session_timeout'
                ELSE m.remedy END, e.evidence
      FROM kinds k JOIN pgscale.wait_meanings m USING (kind) LEFT JOIN pgscale_internal.tuning_waits(duration) e USING (kind)
           LEFT JOIN usual u USING (kind) CROSS JOIN known CROSS JOIN before CROSS JOIN (SELECT pgscale_internal.major()) v (major)
     WHERE k.busy_fraction >= 0.01
     ORDER BY k.wait_ms DESC, m.event_type, m.event;
END;
COMMENT ON FUNCTION pgscale.contention(interval) IS
'one row for each kind of wait that takes 1 % or more of the time that sessions were busy, largest fraction first. No rows if pgscale.sampler_history_size is 0 and there is no archive. Errors: as advice_rules()
duration: length of the period that ends now
event_type: type of the wait events; CPU: on a CPU, or ready to run
event: names on this major version; several with one meaning as A, B; others: the rest of a type
fraction: of the time that sessions were busy, 0 to 1, as in top_waits()
usual_fraction: fraction in the hour before; NULL if less than a minute of that hour is known
active_sessions: average number of sessions in this wait
cured_in: later major version that has cured it, and how; NULL if none
since: start of the known time
until: end of the known time
meaning: what happens there, on this major version
now_possible: remedy on this major version
evidence: counts of the server: long_waits of deadlock_timeout or longer that got the lock, long_wait_ms, fast_path_exceeded_per_s; NULL before 19';
GRANT EXECUTE ON FUNCTION pgscale.contention(interval) TO pg_monitor;
