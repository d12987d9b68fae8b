-- Requests for relocation, and their jobs.

-- Only the library reads and writes it; users see relocation_jobs.
CREATE TABLE pgscale_internal.relocation_job (
    job bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    cluster bigint NOT NULL,
    database oid NOT NULL,
    kind text NOT NULL,
    mode text NOT NULL,
    relation oid NOT NULL,
    heap oid NOT NULL,
    relation_name text NOT NULL,
    heap_name text NOT NULL,
    source oid NOT NULL,
    target oid NOT NULL,
    source_name name NOT NULL,
    target_name name NOT NULL,
    role oid NOT NULL,
    role_name name NOT NULL,
    amcheck boolean NOT NULL,
    prewarm boolean NOT NULL,
    lock_timeout_ms integer NOT NULL,
    block_ms_predicted double precision,
    bytes bigint NOT NULL,
    bytes_after bigint,
    undo_of bigint,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at timestamptz,
    finished_at timestamptz,
    not_before timestamptz NOT NULL DEFAULT clock_timestamp(),
    state text NOT NULL DEFAULT 'queued',
    cancel boolean NOT NULL DEFAULT false,
    attempts integer NOT NULL DEFAULT 0,
    crashes integer NOT NULL DEFAULT 0,
    pid integer,
    new_index oid,
    files oid[],
    before text,
    copied_bytes bigint,
    recopied_blocks bigint,
    wal_read_bytes bigint,
    lock_tries bigint,
    locked_ms double precision,
    sqlstate text,
    message text,
    detail text)
    -- a row is updated some times until its job has ended: in its page, without new entries in the indexes
    WITH (fillfactor = 50);
CREATE UNIQUE INDEX relocation_job_open ON pgscale_internal.relocation_job (relation) WHERE finished_at IS NULL;
-- in the order in which workers take them; and by target
CREATE INDEX relocation_job_next ON pgscale_internal.relocation_job (not_before, job) WHERE finished_at IS NULL;
CREATE INDEX relocation_job_target ON pgscale_internal.relocation_job (target, job) WHERE finished_at IS NULL;
COMMENT ON TABLE pgscale_internal.relocation_job IS 'relocation jobs as the library keeps them; see pgscale.relocation_jobs';
COMMENT ON SEQUENCE pgscale_internal.relocation_job_job_seq IS 'ids of relocation jobs';

CREATE FUNCTION pgscale_internal.relocation_progress(
    OUT job bigint, OUT phase text, OUT done_fraction double precision, OUT copied_bytes bigint, OUT recopied_blocks bigint,
    OUT wal_read_bytes bigint, OUT lock_tries bigint, OUT left_s double precision, OUT held_back_by text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_relocation_progress'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 1;
COMMENT ON FUNCTION pgscale_internal.relocation_progress() IS
'internal, for relocation_jobs: what the online moves of this database are at';

CREATE VIEW pgscale.relocation_jobs AS
    SELECT j.job, j.kind, j.relation_name AS relation, j.source_name AS source, j.target_name AS target, j.mode,
           -- only functions open to PUBLIC, so that SELECT on the view is enough
           CASE WHEN j.finished_at IS NULL AND
                     (j.database <> (SELECT oid FROM pg_database WHERE datname = current_database()) OR
                      j.cluster <> (SELECT system_identifier FROM pg_control_system())) THEN 'foreign'
                WHEN l.held_back_by IS NOT NULL AND j.state = 'running' THEN 'waiting'
                ELSE j.state
           END AS state,
           CASE WHEN j.finished_at IS NOT NULL THEN NULL
                WHEN l.job IS NOT NULL THEN round(1000 * l.done_fraction) / 1000
                WHEN p.blocks_total > 0 THEN round(1000.0::double precision * p.blocks_done / p.blocks_total) / 1000
                WHEN p.tuples_total > 0 THEN round(1000.0::double precision * p.tuples_done / p.tuples_total) / 1000
                WHEN p.lockers_total > 0 THEN round(1000.0::double precision * p.lockers_done / p.lockers_total) / 1000
           END AS done_fraction,
           CASE WHEN j.finished_at IS NULL THEN coalesce(l.phase, p.phase) END AS phase,
           CASE WHEN j.finished_at IS NULL THEN l.left_s END AS left_s,
           j.heap_name AS table_name, j.bytes AS size_bytes, j.bytes_after AS size_after_bytes,
           coalesce(j.copied_bytes, l.copied_bytes) AS copied_bytes,
           coalesce(j.recopied_blocks, l.recopied_blocks) AS recopied_blocks,
           coalesce(j.wal_read_bytes, l.wal_read_bytes) AS wal_read_bytes,
           coalesce(j.lock_tries, l.lock_tries) AS lock_tries, j.locked_ms, j.attempts,
           CASE WHEN j.state IN ('queued', 'waiting') THEN j.not_before END AS wait_until,
           j.role_name AS requested_by, j.requested_at, j.started_at, j.finished_at,
           j.block_ms_predicted, j.undo_of, j.sqlstate,
           -- an error's words may hold values of rows
           CASE WHEN j.finished_at IS NULL AND l.held_back_by IS NOT NULL THEN l.held_back_by
                WHEN j.detail IS NOT NULL AND
                     (pg_has_role(j.role, 'USAGE') OR
                      has_table_privilege(j.heap, 'SELECT') AND NOT row_security_active(j.heap)) THEN j.detail
                ELSE j.message
           END AS message
      FROM pgscale_internal.relocation_job j
      LEFT JOIN pg_stat_progress_create_index p
           ON p.pid = j.pid AND p.datname = current_database()
      LEFT JOIN pgscale_internal.relocation_progress() l ON l.job = j.job
     ORDER BY j.job;
COMMENT ON VIEW pgscale.relocation_jobs IS
'moves of indexes and tables to other tablespaces, requested in this database: their progress or their end';
GRANT SELECT ON pgscale.relocation_jobs TO pg_monitor;
COMMENT ON COLUMN pgscale.relocation_jobs.job IS 'number of the job';
COMMENT ON COLUMN pgscale.relocation_jobs.kind IS 'index or table';
COMMENT ON COLUMN pgscale.relocation_jobs.relation IS 'the moved relation, by its name when the job was requested';
COMMENT ON COLUMN pgscale.relocation_jobs.source IS 'tablespace that it is moved from';
COMMENT ON COLUMN pgscale.relocation_jobs.target IS 'tablespace that it is moved to';
COMMENT ON COLUMN pgscale.relocation_jobs.mode IS 'online or rebuild for an index, online or lock for a table';
COMMENT ON COLUMN pgscale.relocation_jobs.state IS
'queued, waiting, running, verifying, done, failed, cancelled, lost, or foreign: copied from another database or server, does nothing';
COMMENT ON COLUMN pgscale.relocation_jobs.done_fraction IS 'done part of the phase, 0 to 1; of an online move, of the copy';
COMMENT ON COLUMN pgscale.relocation_jobs.phase IS
'phase of REINDEX as in pg_stat_progress_create_index; of an online move: copying, following, waiting for a gap, switching, dropping';
COMMENT ON COLUMN pgscale.relocation_jobs.left_s IS 'predicted time until all blocks are copied, in seconds, by the rate so far; NULL if nothing is being copied';
COMMENT ON COLUMN pgscale.relocation_jobs.table_name IS 'its table, by its name when the job was requested';
COMMENT ON COLUMN pgscale.relocation_jobs.size_bytes IS 'size when the job was requested';
COMMENT ON COLUMN pgscale.relocation_jobs.size_after_bytes IS 'size after the move; NULL until it is done';
COMMENT ON COLUMN pgscale.relocation_jobs.copied_bytes IS 'bytes of the first copy; NULL if nothing is copied';
COMMENT ON COLUMN pgscale.relocation_jobs.recopied_blocks IS 'number of blocks that were copied again, because they had changed; NULL if nothing is copied';
COMMENT ON COLUMN pgscale.relocation_jobs.wal_read_bytes IS 'bytes of WAL that were read to find the changes; NULL if nothing is copied';
COMMENT ON COLUMN pgscale.relocation_jobs.lock_tries IS 'number of attempts to get the lock for the switch; NULL if there is no switch';
COMMENT ON COLUMN pgscale.relocation_jobs.locked_ms IS 'time that the lock for the switch was held, in milliseconds';
COMMENT ON COLUMN pgscale.relocation_jobs.attempts IS 'number of attempts so far';
COMMENT ON COLUMN pgscale.relocation_jobs.wait_until IS 'time of the next check of a waiting job; otherwise NULL';
COMMENT ON COLUMN pgscale.relocation_jobs.requested_by IS 'role that requested the job';
COMMENT ON COLUMN pgscale.relocation_jobs.requested_at IS 'time of the request';
COMMENT ON COLUMN pgscale.relocation_jobs.started_at IS 'start of the first attempt; NULL before that';
COMMENT ON COLUMN pgscale.relocation_jobs.finished_at IS 'end of the job; NULL before that';
COMMENT ON COLUMN pgscale.relocation_jobs.block_ms_predicted IS 'for a table: predicted time during which it is blocked, in milliseconds';
COMMENT ON COLUMN pgscale.relocation_jobs.undo_of IS 'number of the job that this job moves back; otherwise NULL';
COMMENT ON COLUMN pgscale.relocation_jobs.sqlstate IS 'SQLSTATE of the last attempt''s error; NULL if there was none';
COMMENT ON COLUMN pgscale.relocation_jobs.message IS
'error of the last attempt, why the job waits, or a note; otherwise NULL. Only its requester and readers of the table see values of rows';

CREATE FUNCTION pgscale.relocate_indexes(
    relation regclass, tablespace name, amcheck boolean DEFAULT false, prewarm boolean DEFAULT false,
    mode text DEFAULT 'online')
RETURNS SETOF bigint
AS 'MODULE_PATHNAME', 'pgscale_relocate_indexes'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE ROWS 10;
COMMENT ON FUNCTION pgscale.relocate_indexes(regclass, name, boolean, boolean, text) IS
'queues the moves of an index with its leaves, or of all indexes of a table and its partitions, and returns the jobs; they stay in use. Errors, before there is a job: wrong_object_type, feature_not_supported, undefined_object, insufficient_privilege, disk_full, object_in_use, invalid_parameter_value; object_not_in_prerequisite_state without preload, or for an invalid index; read_only_sql_transaction on a standby
relation: index or table
tablespace: the target
amcheck: true: check the contents after the move, by amcheck
prewarm: true: read it into shared buffers after the move, by pg_prewarm
mode: online copies an index, rebuild builds it anew; auto rebuilds a btree index that becomes 30 % smaller, or one that cannot move online';

CREATE FUNCTION pgscale.relocate_table(
    "table" regclass, tablespace name, mode text DEFAULT 'online', lock_timeout interval DEFAULT '1 s',
    prewarm boolean DEFAULT false)
RETURNS SETOF bigint
AS 'MODULE_PATHNAME', 'pgscale_relocate_table'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE ROWS 1;
COMMENT ON FUNCTION pgscale.relocate_table(regclass, name, text, interval, boolean) IS
'queues the move of a table with its TOAST table, or of each partition, and returns the jobs; not of its indexes. Errors: as relocate_indexes()
table: the table
tablespace: the target
mode: online copies it while it is in use; lock runs ALTER TABLE, which blocks its use during the move
lock_timeout: for mode lock: for how long to wait for the lock in each attempt
prewarm: true: read it into shared buffers after the move, by pg_prewarm';

CREATE FUNCTION pgscale.relocate_tablespace(
    source name, tablespace name, what text DEFAULT 'all', amcheck boolean DEFAULT false, prewarm boolean DEFAULT false,
    mode text DEFAULT 'online')
RETURNS SETOF bigint
AS 'MODULE_PATHNAME', 'pgscale_relocate_tablespace'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE ROWS 100;
COMMENT ON FUNCTION pgscale.relocate_tablespace(name, name, text, boolean, boolean, text) IS
'queues the moves of all tables and indexes that this database has in a tablespace, largest first, and returns the jobs; notices show which relations stay. Errors: as relocate_indexes()
source: the tablespace to empty
tablespace: the target
what: all, or indexes
amcheck: true: check the contents after the move, by amcheck
prewarm: true: read it into shared buffers after the move, by pg_prewarm
mode: online; with what => indexes any mode of relocate_indexes()';

CREATE FUNCTION pgscale.relocation_cancel(job bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'pgscale_relocation_cancel'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.relocation_cancel(bigint) IS
'cancels a relocation job and removes its files; false if it had ended already. For the requesting role, and roles with its privileges
job: number of the job';

CREATE FUNCTION pgscale.relocation_undo(job bigint)
RETURNS bigint
AS 'MODULE_PATHNAME', 'pgscale_relocation_undo'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.relocation_undo(bigint) IS
'queues the move back of a relation that a job has moved, also if the job failed its checks, and returns the new job
job: number of the job';

CREATE PROCEDURE pgscale.relocation_wait(
    job bigint, timeout interval DEFAULT '1 hour', INOUT state text DEFAULT NULL)
AS 'MODULE_PATHNAME', 'pgscale_relocation_wait'
LANGUAGE C;
COMMENT ON PROCEDURE pgscale.relocation_wait(bigint, interval, text) IS
'waits for the end of a relocation job, and shows its state; cannot run in a transaction block
job: number of the job
timeout: for how long, at most
state: state of the job, as in relocation_jobs';

CREATE FUNCTION pgscale_internal.relocation_may_move_online(relation oid)
RETURNS boolean
AS 'MODULE_PATHNAME', 'pgscale_relocation_may_move_online'
LANGUAGE C STRICT STABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale_internal.relocation_may_move_online(oid) IS
'internal, for relocation: can this table or index be moved online? Needs a WAL record that names each changed block';

CREATE FUNCTION pgscale_internal.relocation_bytes(relation oid, toast boolean, cached boolean)
RETURNS bigint
AS 'MODULE_PATHNAME', 'pgscale_relocation_bytes'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale_internal.relocation_bytes(oid, boolean, boolean) IS
'internal, for relocation: size of a relation''s files, with those of its TOAST table or without, or what the kernel caches of them; takes no lock on it';

CREATE FUNCTION pgscale_internal.relocation_database_bytes(tablespace oid, database oid)
RETURNS bigint
AS 'MODULE_PATHNAME', 'pgscale_relocation_database_bytes'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale_internal.relocation_database_bytes(oid, oid) IS
'internal, for relocate_tablespace: size of the files that a database has in a tablespace';

-- A kind for each relation that relocate_tablespace() does not move, and what moves it. 2613 and 2683: pg_largeobject and its index.
CREATE FUNCTION pgscale_internal.relocation_staying(tablespace oid, OUT relation oid, OUT kind text, OUT cure text)
RETURNS SETOF record
LANGUAGE sql STRICT VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT k.oid, k.kind,
           CASE k.kind WHEN 'temporary tables' THEN 'The setting temp_tablespaces says where new ones are made.'
                       WHEN 'invalid indexes' THEN 'Drop them, or REINDEX them and then move them.'
                       WHEN 'unlogged tables and indexes' THEN
                       'relocate_table(..., mode => ''lock'') and relocate_indexes(..., mode => ''rebuild'') move them.'
                       WHEN 'indexes that cannot move online' THEN 'relocate_indexes(..., mode => ''rebuild'') builds them anew.'
                       WHEN 'tables that cannot move online' THEN 'relocate_table(..., mode => ''lock'') moves them, and blocks all use of them meanwhile.'
                       WHEN 'pgscale''s own relations' THEN 'ALTER TABLE or ALTER INDEX ... SET TABLESPACE moves them, and blocks all use of them meanwhile.'
                       ELSE 'ALTER DATABASE ... SET TABLESPACE moves them, while no session is connected to the database.' END
      FROM (SELECT c.oid, c.relkind,
                   CASE WHEN c.relpersistence = 't' THEN 'temporary tables'
                        WHEN n.nspname = 'pgscale_internal' THEN 'pgscale''s own relations'
                        WHEN c.oid IN (2613, 2683) AND pgscale_internal.relocation_bytes(2613, false, false) > 0 THEN 'large objects'
                        WHEN n.nspname IN ('pg_catalog', 'information_schema') THEN 'system catalogs'
                        WHEN c.relkind = 'S' THEN 'sequences'
                        WHEN NOT x.indisvalid THEN 'invalid indexes'
                        WHEN c.relpersistence = 'u' THEN 'unlogged tables and indexes'
                        WHEN NOT pgscale_internal.relocation_may_move_online(c.oid) THEN
                        CASE c.relkind WHEN 'i' THEN 'indexes that cannot move online' ELSE 'tables that cannot move online' END END AS kind
              FROM pg_class c
              JOIN pg_namespace n ON n.oid = c.relnamespace
              LEFT JOIN pg_index x ON x.indexrelid = c.oid
             WHERE c.reltablespace = tablespace AND c.relkind IN ('r', 'm', 'i', 'S') AND n.nspname <> 'pg_toast') k
     WHERE k.kind IS NOT NULL
$$;
COMMENT ON FUNCTION pgscale_internal.relocation_staying(oid) IS
'internal, for relocate_tablespace: the relations of this database in a tablespace (0: its own) that stay there, by kind, and what would move them';

-- Workers call it, as superusers: the reason why a job on this relation should not begin yet. It looks for the transactions that REINDEX
-- CONCURRENTLY would wait for; or, for an online move, for those that have locked the relation. A limit of -1 means no limit.
CREATE FUNCTION pgscale_internal.relocation_obstacle(relation oid, online boolean, max_age_s integer)
RETURNS text
LANGUAGE sql STRICT VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('%s has been open for %s', who, date_trunc('second', age))
      FROM (SELECT 'the transaction of process ' || a.pid AS who, clock_timestamp() - a.xact_start AS age
              FROM pg_stat_activity a
             WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
               AND a.backend_type NOT LIKE ALL ('{autovacuum%,pgscale%}')
               AND a.pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum
                                 UNION ALL
                                 SELECT pid FROM pg_stat_progress_create_index WHERE command LIKE '%CONCURRENTLY')
               AND (a.backend_xmin IS NOT NULL AND NOT online OR
                    EXISTS (SELECT FROM pg_locks l
                             WHERE l.pid = a.pid AND l.relation = relocation_obstacle.relation AND l.granted
                               AND (online OR l.mode NOT IN ('AccessShareLock', 'RowShareLock'))))
            UNION ALL
            SELECT format('the prepared transaction %L', p.gid), clock_timestamp() - p.prepared
              FROM pg_prepared_xacts p
             WHERE p.database = current_database()
               AND EXISTS (SELECT FROM pg_locks x JOIN pg_locks l USING (virtualtransaction)
                            WHERE x.pid IS NULL AND x.transactionid = p.transaction
                              AND l.pid IS NULL AND l.relation = relocation_obstacle.relation
                              AND (online OR l.mode NOT IN ('AccessShareLock', 'RowShareLock')))) t
     WHERE max_age_s >= 0 AND age > max_age_s * interval '1 second'
     ORDER BY age DESC
     LIMIT 1
$$;
COMMENT ON FUNCTION pgscale_internal.relocation_obstacle(oid, boolean, integer) IS
'internal, for relocation: the oldest transaction that a job on a relation should wait for';

-- Workers call it before and after a move, as the requesting role: the complete definition of an index, without its tablespace. On any
-- major the text is the same before and after.
CREATE FUNCTION pgscale_internal.relocation_describe_index(index oid)
RETURNS text
LANGUAGE sql STRICT STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT concat_ws(E'\n',
               pg_get_indexdef(i.indexrelid),
               format('owner %s, persistence %s, options %s, parent %s', c.relowner, c.relpersistence, c.reloptions,
                      (SELECT inhparent FROM pg_inherits WHERE inhrelid = i.indexrelid)),
               format('primary %s, immediate %s, clustered %s, replica identity %s',
                      i.indisprimary, i.indimmediate, i.indisclustered, i.indisreplident),
               'comment ' || obj_description(i.indexrelid, 'pg_class'),
               (SELECT format('constraint %s %s %s %s', k.oid, k.conname, pg_get_constraintdef(k.oid),
                              obj_description(k.oid, 'pg_constraint'))
                  FROM pg_constraint k
                 WHERE k.conindid = i.indexrelid AND k.conrelid = i.indrelid AND k.contype IN ('p', 'u', 'x')),
               'used by ' || (SELECT string_agg(k.oid::text, ' ' ORDER BY k.oid) FROM pg_constraint k
                               WHERE k.conindid = i.indexrelid AND k.contype = 'f'),
               'statistics targets ' || (SELECT string_agg(a.attnum || ':' || a.attstattarget, ' ' ORDER BY a.attnum)
                                           FROM pg_attribute a WHERE a.attrelid = i.indexrelid),
               'depends on ' || (SELECT string_agg(concat_ws('/', refclassid, refobjid, refobjsubid, deptype), ' '
                                                   ORDER BY refclassid, refobjid, refobjsubid, deptype)
                                   FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = i.indexrelid),
               'needed by ' || (SELECT string_agg(concat_ws('/', classid, objid, objsubid, deptype), ' '
                                                  ORDER BY classid, objid, objsubid, deptype)
                                  FROM pg_depend WHERE refclassid = 'pg_class'::regclass AND refobjid = i.indexrelid))
      FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
     WHERE i.indexrelid = index
$$;
COMMENT ON FUNCTION pgscale_internal.relocation_describe_index(oid) IS
'internal, for relocation: definition, constraint, statistics targets, comments, options, marks, parent and dependencies of an index as one text';
