-- The counters of the archive.  To add one, add a line at the end of those that have a meaning.

-- Each is a column of archive_minute: numeric, which takes fewer bytes for a small number than bigint.  With a meaning it is a
-- column of archive_minutes, too: a time as double precision, all else as bigint.
-- archive_sources() has its value, as key of source, except connections_peak, which archive_write() takes for the time of its row.  Those of the source "moment" do not add up: an hour has their maximum.
-- Of the sampler, session_ms is active and idle in a transaction: it moves time between the two.
CREATE VIEW pgscale_internal.archive_counter AS
    SELECT row_number() OVER () AS n, c.name, CASE WHEN c.name ~ '_m?s$' THEN 'double precision' ELSE 'bigint' END AS type,
           c.source, c.key, c.meaning
      FROM (VALUES
        ('commits', 'databases', 'xact_commit', 'transactions committed'),
        ('rollbacks', 'databases', 'xact_rollback', 'transactions rolled back'),
        ('blocks_read', 'databases', 'blks_read', 'blocks read into shared buffers by backends'),
        ('blocks_hit', 'databases', 'blks_hit', 'blocks that backends found in shared buffers'),
        ('block_read_ms', 'databases', 'blk_read_time', 'time of these reads, in milliseconds; 0 unless track_io_timing is on'),
        ('block_write_ms', 'databases', 'blk_write_time', 'time of backends'' writes, in milliseconds; 0 unless track_io_timing is on'),
        ('rows_returned', 'databases', 'tup_returned', 'rows read by scans'),
        ('rows_fetched', 'databases', 'tup_fetched', 'rows fetched by index scans'),
        ('rows_inserted', 'databases', 'tup_inserted', 'rows inserted'),
        ('rows_updated', 'databases', 'tup_updated', 'rows updated'),
        ('rows_deleted', 'databases', 'tup_deleted', 'rows deleted'),
        ('temp_files', 'databases', 'temp_files', 'temporary files'),
        ('temp_bytes', 'databases', 'temp_bytes', 'bytes written into temporary files'),
        ('deadlocks', 'databases', 'deadlocks', 'deadlocks'),
        ('conflicts', 'databases', 'conflicts', 'queries cancelled by recovery'),
        ('sessions_started', 'databases', 'sessions', 'sessions that began'),
        ('session_ms', 'databases', 'session_time', 'time of all sessions that have reported to the statistics, in milliseconds'),
        ('active_ms', 'databases', 'active_time', 'part of session_ms in which they executed statements, in milliseconds'),
        ('idle_in_transaction_ms', 'databases', 'idle_in_transaction_time', 'part of session_ms in which they were idle in a transaction, in milliseconds'),
        ('wal_records', 'wal', 'wal_records', 'WAL records'),
        ('wal_full_page_images', 'wal', 'wal_fpi', 'full page images in WAL'),
        ('wal_bytes', 'wal', 'wal_bytes', 'bytes of WAL'),
        ('wal_buffers_full', 'wal', 'wal_buffers_full', 'times that WAL was written because its buffers were full'),
        ('wal_write_ms', 'wal', 'wal_write_time', 'time of writing WAL, in milliseconds; 0 unless track_wal_io_timing is on'),
        ('wal_sync_ms', 'wal', 'wal_sync_time', 'time of syncing WAL, in milliseconds; 0 unless track_wal_io_timing is on'),
        ('checkpoints_timed', 'checkpointer', 'num_timed', 'checkpoints by time'),
        ('checkpoints_requested', 'checkpointer', 'num_requested', 'requested checkpoints, those by max_wal_size included'),
        ('checkpoint_write_ms', 'checkpointer', 'write_time', 'time that checkpoints wrote, in milliseconds'),
        ('checkpoint_sync_ms', 'checkpointer', 'sync_time', 'time that checkpoints synced files, in milliseconds'),
        ('checkpoint_buffers', 'checkpointer', 'buffers_written', 'buffers written by checkpoints'),
        ('bgwriter_buffers', 'bgwriter', 'buffers_clean', 'buffers written by the background writer'),
        ('bgwriter_stops', 'bgwriter', 'maxwritten_clean', 'times that the background writer stopped at its limit'),
        ('backend_buffers', 'bgwriter', 'buffers_backend', 'buffers written by processes other than the checkpointer, the background writer and the sweeper''s writers; with files that are extended before PostgreSQL 16'),
        ('backend_fsyncs', 'bgwriter', 'buffers_backend_fsync', 'files synced by backends'),
        ('buffers_allocated', 'bgwriter', 'buffers_alloc', 'buffers allocated'),
        ('io_reads', 'io', 'reads', 'pages of relations that were read; from PostgreSQL 16 on'),
        ('io_writes', 'io', 'writes', 'pages of relations that were written; from PostgreSQL 16 on'),
        ('io_extends', 'io', 'extends', 'pages by which relations were extended; from PostgreSQL 16 on'),
        ('io_evictions', 'io', 'evictions', 'buffers evicted for another page; from PostgreSQL 16 on'),
        ('io_reuses', 'io', 'reuses', 'buffers reused within a ring; from PostgreSQL 16 on'),
        ('io_fsyncs', 'io', 'fsyncs', 'syncs of files of relations; from PostgreSQL 16 on'),
        ('io_read_ms', 'io', 'read_time', 'time of these reads, in milliseconds; from PostgreSQL 16 on, 0 unless track_io_timing is on'),
        ('io_write_ms', 'io', 'write_time', 'time of these writes, in milliseconds; from PostgreSQL 16 on, 0 unless track_io_timing is on'),
        ('wal_files_archived', 'archiver', 'archived_count', 'WAL files archived'),
        ('wal_archive_failures', 'archiver', 'failed_count', 'failed attempts to archive a WAL file'),
        ('sweeper_supplied', 'sweeper', 'supplied', 'buffers that the sweeper supplied'),
        ('sweeper_written', 'sweeper', 'written', 'pages that the sweeper wrote'),
        ('writeback_requested_bytes', 'writeback', 'requested_bytes', 'bytes that the kernel was asked to write back'),
        ('relocations', 'relocation', 'ended', 'relocation jobs of this database that have ended'),
        ('sessions', 'moment', 'sessions', 'client backends at the end of the minute; of an hour: the maximum'),
        ('standby_lag_s', 'moment', 'lag_s', 'time that the standby furthest behind must still replay, of a standby''s row this one, at the end of the minute; of an hour: the maximum'),
        ('standby_lag_bytes', 'moment', 'lag_bytes', 'WAL that the standby furthest behind must still replay, of a standby''s row this one, of what it has received, at the end of the minute; of an hour: the maximum'),
        ('connections_peak', 'moment', 'connections_peak', 'most connections in use at a time, to the second; of an hour: the maximum; NULL if the sampler was off'),
        ('observed_ms', 'sampler', 'observed_ms', NULL),
        ('active_session_ms', 'sampler', 'active_ms', NULL),
        ('idle_in_transaction_session_ms', 'sampler', 'session_ms', NULL)) AS c(name, source, key, meaning);
COMMENT ON VIEW pgscale_internal.archive_counter IS 'the counters that the archive keeps, and where a round finds them';
GRANT SELECT ON pgscale_internal.archive_counter TO pg_monitor;

DO $do$
DECLARE
    counter record;
BEGIN
    EXECUTE (SELECT 'ALTER TABLE pgscale_internal.archive_minute '
                    || string_agg(format('ADD COLUMN %I numeric', c.name), ', ' ORDER BY c.n)
               FROM pgscale_internal.archive_counter c);
    EXECUTE (SELECT format($view$
CREATE VIEW pgscale.archive_minutes AS
    SELECT at, period_s, rounds, node, active_session_ms::double precision / nullif(observed_ms, 0) AS active_sessions,
           idle_in_transaction_session_ms::double precision / nullif(observed_ms, 0) AS idle_in_transaction_sessions,
           observed_ms::double precision AS observed_ms, %s,
           CASE WHEN NOT pulled THEN pgscale_internal.row_origin(cluster, database) END AS origin, pulled,
           CASE WHEN standby THEN 'standby' ELSE 'primary' END AS role, timeline, node_id
      FROM pgscale_internal.archive_minute$view$,
                           -- the server counts the sweeper's pages among those of backends, up to a second later
                           string_agg(format('(%s)::%s AS %I', CASE c.name WHEN 'backend_buffers'
                                             THEN 'CASE WHEN backend_buffers < sweeper_written THEN 0 ELSE backend_buffers - sweeper_written END'
                                             ELSE quote_ident(c.name) END, c.type, c.name), ', ' ORDER BY c.n))
               FROM pgscale_internal.archive_counter c WHERE c.meaning IS NOT NULL);
    FOR counter IN SELECT c.name, c.meaning FROM pgscale_internal.archive_counter c WHERE c.meaning IS NOT NULL LOOP
        EXECUTE format('COMMENT ON COLUMN pgscale.archive_minutes.%I IS %L', counter.name, counter.meaning);
    END LOOP;
END
$do$;
COMMENT ON VIEW pgscale.archive_minutes IS
'one row per archived minute, or hour once it is rolled up, with the increase of the server''s counters. NULL: this server has no such counter, it was reset, or a database was created or dropped. An hour leaves out unknown minutes';
GRANT SELECT ON pgscale.archive_minutes TO pg_monitor;
COMMENT ON COLUMN pgscale.archive_minutes.at IS 'start of the minute, or of the hour once it is rolled up';
COMMENT ON COLUMN pgscale.archive_minutes.period_s IS 'length of the minute or hour, in seconds';
COMMENT ON COLUMN pgscale.archive_minutes.rounds IS 'number of rounds that the row is made of';
COMMENT ON COLUMN pgscale.archive_minutes.node IS 'server of the row';
COMMENT ON COLUMN pgscale.archive_minutes.active_sessions IS
'average of client backends and their parallel workers that were active, over the observed time; NULL if the sampler was off';
COMMENT ON COLUMN pgscale.archive_minutes.idle_in_transaction_sessions IS
'average of client backends that were idle in a transaction, over the observed time; NULL if the sampler was off';
COMMENT ON COLUMN pgscale.archive_minutes.observed_ms IS 'time that the sampler observed, in milliseconds; 0 if it was off';
COMMENT ON COLUMN pgscale.archive_minutes.origin IS 'another server or another database, if the row came with a copy; NULL if it was written or asked for here';
COMMENT ON COLUMN pgscale.archive_minutes.pulled IS 'whether another server wrote the row, which asked that one; false for the history of the primary';
COMMENT ON COLUMN pgscale.archive_minutes.role IS 'what it was then: primary or standby';
COMMENT ON COLUMN pgscale.archive_minutes.timeline IS 'its timeline then: higher after each promotion';
COMMENT ON COLUMN pgscale.archive_minutes.node_id IS 'number of its data directory: the same under each name and in each role';

-- Pages, because from 18 on the server counts operations, which may have several pages, and their bytes; without WAL, except where
-- WAL is named.  16 has the view first.
CREATE FUNCTION pgscale_internal.archive_io()
RETURNS jsonb
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    io jsonb := '{}';
BEGIN
    IF pgscale_internal.major() >= 16 THEN
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
    RETURN io;
END
$$;
COMMENT ON FUNCTION pgscale_internal.archive_io() IS
'the server''s counts of input and output by relations and WAL; an empty object before PostgreSQL 16';
GRANT EXECUTE ON FUNCTION pgscale_internal.archive_io() TO pg_monitor;

-- An object for each source, with stats_reset where it can be reset.  Majors have the counts in different views, which are taken as
-- JSON, with the keys of the newest one.
CREATE FUNCTION pgscale_internal.archive_sources()
RETURNS jsonb
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    -- first, because a row ends when its round begins
    sampler CONSTANT jsonb := (SELECT to_jsonb(s) || jsonb_build_object('session_ms', s.active_ms + s.idle_in_transaction_ms)
                                 FROM pgscale_internal.sampler_stats() s);
    io CONSTANT jsonb := pgscale_internal.archive_io();
    bgwriter CONSTANT jsonb := (SELECT to_jsonb(b) FROM pg_stat_bgwriter b);
    checkpointer jsonb;
    databases jsonb;
BEGIN
    IF pgscale_internal.major() >= 17 THEN
        EXECUTE 'SELECT to_jsonb(c) FROM pg_catalog.pg_stat_checkpointer c' INTO checkpointer;
    ELSE
        checkpointer := jsonb_build_object('num_timed', bgwriter -> 'checkpoints_timed', 'num_requested', bgwriter -> 'checkpoints_req',
            'write_time', bgwriter -> 'checkpoint_write_time', 'sync_time', bgwriter -> 'checkpoint_sync_time',
            'buffers_written', bgwriter -> 'buffers_checkpoint', 'stats_reset', bgwriter -> 'stats_reset');
    END IF;
    -- a database that is made or dropped changes the sums, too
    EXECUTE (SELECT format('SELECT jsonb_build_object(''stats_reset'', string_agg(concat_ws('' '', datid, stats_reset), '','' ORDER BY datid), %s)
                              FROM pg_catalog.pg_stat_database', string_agg(format('%L, sum(%I)', c.key, c.key), ', '))
               FROM pgscale_internal.archive_counter c WHERE c.source = 'databases') INTO databases;
    RETURN jsonb_build_object(
        'databases', databases,
        'wal', (SELECT jsonb_build_object('wal_write_time', io -> 'wal_write_time', 'wal_sync_time', io -> 'wal_sync_time') || to_jsonb(w)
                       || jsonb_build_object('stats_reset', concat(w.stats_reset, io ->> 'stats_reset')) FROM pg_stat_wal w),
        'checkpointer', checkpointer,
        'bgwriter', jsonb_build_object('buffers_backend', io -> 'buffers_backend', 'buffers_backend_fsync', io -> 'buffers_backend_fsync')
                    || bgwriter || jsonb_build_object('stats_reset', concat(bgwriter ->> 'stats_reset', io ->> 'stats_reset')),
        'io', io,
        'archiver', (SELECT to_jsonb(a) FROM pg_stat_archiver a),
        'sweeper', (SELECT jsonb_build_object('supplied', w.supplied_clean + w.supplied_written, 'written', w.written,
                                              'stats_reset', w.stats_reset) FROM pgscale_internal.sweeper_stats() w),
        'writeback', (SELECT to_jsonb(w) FROM pgscale_internal.writeback_stats() w),
        'relocation', (SELECT jsonb_build_object('ended', count(*)) FROM pgscale.relocation_jobs j WHERE j.finished_at IS NOT NULL),
        'moment', jsonb_build_object('sessions', (SELECT count(*) FROM pg_stat_activity a WHERE a.backend_type = 'client backend'))
                  || CASE WHEN pg_is_in_recovery()
                          THEN (SELECT jsonb_build_object('lag_s', i.lag_s, 'lag_bytes', greatest(pg_wal_lsn_diff(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()), 0))
                                  FROM pgscale.node_identity() i)
                          ELSE (SELECT jsonb_build_object('lag_s', max(extract(epoch FROM r.replay_lag)),
                                                          'lag_bytes', max(pg_wal_lsn_diff(pg_current_wal_lsn(), r.replay_lsn)))
                                  FROM pg_stat_replication r JOIN pg_stat_activity a USING (pid) WHERE a.datid IS NULL) END,
        'sampler', sampler);
END
$$;
COMMENT ON FUNCTION pgscale_internal.archive_sources() IS
'the server''s counts by source and key, as archive_counter names them, with the time of each reset; for the archive''s worker';
GRANT EXECUTE ON FUNCTION pgscale_internal.archive_sources() TO pg_monitor;

-- A marker is a hash of the start of the count; NULL: a gauge.
CREATE FUNCTION pgscale_internal.archive_counters(OUT name text, OUT source text, OUT value double precision, OUT marker bigint)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH now AS MATERIALIZED (SELECT pgscale_internal.archive_sources() AS sources)
    SELECT c.name, c.source, (n.sources -> c.source ->> c.key)::double precision,
           CASE WHEN c.source <> 'moment' THEN hashtextextended(concat_ws(' ', c.name, n.sources -> c.source ->> 'stats_reset'), 0) END
      FROM pgscale_internal.archive_counter c, now n
$$;
COMMENT ON FUNCTION pgscale_internal.archive_counters() IS 'the server''s counters as the archive names them, with a hash of the reset time of each';
GRANT EXECUTE ON FUNCTION pgscale_internal.archive_counters() TO pg_monitor;

CREATE FUNCTION pgscale_internal.archive_counter_growth("values" double precision[], markers bigint[])
RETURNS double precision[]
AS 'MODULE_PATHNAME', 'pgscale_archive_counter_growth'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale_internal.archive_counter_growth(double precision[], bigint[]) IS
'increase of counters since the latest row of the archive; for its worker';

CREATE FUNCTION pgscale_internal.archive_counter_deltas()
RETURNS jsonb
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH counters AS MATERIALIZED (
        SELECT row_number() OVER (ORDER BY c.name) AS n, c.* FROM pgscale_internal.archive_counters() c),
    deltas AS MATERIALIZED (
        SELECT pgscale_internal.archive_counter_growth(array_agg(c.value ORDER BY c.n), array_agg(c.marker ORDER BY c.n)) AS each
          FROM counters c)
    -- after a reset all that the sampler has observed is new; the server's smallest unit is a microsecond
    SELECT jsonb_object_agg(c.name, round(CASE c.source WHEN 'sampler' THEN coalesce(d.each[c.n], c.value, 0) ELSE d.each[c.n] END::numeric, 3))
      FROM counters c, deltas d
$$;
COMMENT ON FUNCTION pgscale_internal.archive_counter_deltas() IS
'increase of each counter since the latest row of the archive, by its name; for its worker';
