-- The tables of the archive, and the views that show them.

-- A row a minute (later: an hour), with its waits in arrays of the same length: compressed they take a tenth of what a row
-- for each would.  The worker makes a partition for each day (UTC), as a
-- member of the extension: so pg_dump leaves them out.
CREATE TABLE pgscale_internal.archive_minute (
    at timestamptz NOT NULL,
    period_s double precision NOT NULL,
    rounds integer NOT NULL,
    node text,
    cluster bigint NOT NULL,
    database oid NOT NULL,
    counters double precision[] NOT NULL,
    backend_types text[] NOT NULL,
    datids oid[] NOT NULL,
    datnames text[] NOT NULL,
    usenames text[] NOT NULL,
    application_names text[] NOT NULL,
    queryids bigint[] NOT NULL,
    event_types text[] NOT NULL,
    events text[] NOT NULL,
    blockers text[] NOT NULL,
    wait_ms real[] NOT NULL,
    PRIMARY KEY (at))
PARTITION BY RANGE (at);
COMMENT ON TABLE pgscale_internal.archive_minute IS
'one row for each minute of the archive, later for each hour; see archive_minutes and archive_waits';
GRANT SELECT ON pgscale_internal.archive_minute TO pg_monitor;

CREATE TABLE pgscale_internal.archive_query (
    day date NOT NULL,
    queryid bigint NOT NULL,
    first_seen timestamptz NOT NULL,
    last_seen timestamptz NOT NULL,
    query text NOT NULL,
    PRIMARY KEY (day, queryid))
PARTITION BY RANGE (day);
COMMENT ON TABLE pgscale_internal.archive_query IS
'texts of the queries with waits in the archive, for each day; see archive_queries';

CREATE TABLE pgscale_internal.archive_change (
    at timestamptz NOT NULL,
    setting text NOT NULL,
    old text,
    new text,
    PRIMARY KEY (at, setting));
COMMENT ON TABLE pgscale_internal.archive_change IS
'settings that were found changed; see archive_changes';

-- What the settings were when they were last looked at; of those that are hidden a hash.
CREATE TABLE pgscale_internal.archive_setting (
    setting text PRIMARY KEY,
    value text);
COMMENT ON TABLE pgscale_internal.archive_setting IS
'values of the settings when the archive last read them, those that are hidden as a hash';

CREATE VIEW pgscale.archive_waits AS
    SELECT m.at, m.period_s, w.backend_type, w.datid, w.datname::name AS datname, w.usename::name AS usename,
           w.application_name, w.queryid, w.event_type, w.event, w.blocker, w.wait_ms::double precision AS wait_ms
      FROM pgscale_internal.archive_minute m,
           unnest(m.backend_types, m.datids, m.datnames, m.usenames, m.application_names, m.queryids,
                  m.event_types, m.events, m.blockers, m.wait_ms)
           AS w(backend_type, datid, datname, usename, application_name, queryid, event_type, event, blocker, wait_ms);
COMMENT ON VIEW pgscale.archive_waits IS
'waits of past minutes: the longest of each, and the rest as one row "other"; give bounds of "at" as constants';
GRANT SELECT ON pgscale.archive_waits TO pg_monitor;
COMMENT ON COLUMN pgscale.archive_waits.at IS
'start of the minute, or of the hour once it is rolled up';
COMMENT ON COLUMN pgscale.archive_waits.period_s IS
'length of the minute or hour, in seconds';
COMMENT ON COLUMN pgscale.archive_waits.backend_type IS
'kind of process as in pg_stat_activity; also parallel worker, unknown, and other in the row of the rest';
COMMENT ON COLUMN pgscale.archive_waits.datid IS
'OID of the database; NULL if the process has none';
COMMENT ON COLUMN pgscale.archive_waits.datname IS
'name of the database at that time';
COMMENT ON COLUMN pgscale.archive_waits.usename IS
'name of the session user at that time';
COMMENT ON COLUMN pgscale.archive_waits.application_name IS
'name of the application; NULL unless pgscale.sampler_dimensions has it';
COMMENT ON COLUMN pgscale.archive_waits.queryid IS
'query identifier; NULL outside a statement or if it is unknown; see archive_queries';
COMMENT ON COLUMN pgscale.archive_waits.event_type IS
'type of the wait event as in pg_stat_activity; CPU for a backend that executes a statement and does not wait; other for the rest';
COMMENT ON COLUMN pgscale.archive_waits.event IS
'name of the wait event as in pg_stat_activity, or CPU; other for the rest';
COMMENT ON COLUMN pgscale.archive_waits.blocker IS
'of a lock wait: process ID and application of the root blocker; NULL if unknown';
COMMENT ON COLUMN pgscale.archive_waits.wait_ms IS
'time of waiting within that period, in milliseconds';

CREATE VIEW pgscale.archive_minutes AS
    SELECT at, period_s, rounds, node, counters[54] / nullif(counters[53], 0) AS active_sessions,
           counters[55] / nullif(counters[53], 0) AS idle_in_transaction_sessions, counters[53] AS observed_ms,
           counters[1]::bigint AS commits,
           counters[2]::bigint AS rollbacks,
           counters[3]::bigint AS blocks_read,
           counters[4]::bigint AS blocks_hit,
           counters[5] AS block_read_ms,
           counters[6] AS block_write_ms,
           counters[7]::bigint AS rows_returned,
           counters[8]::bigint AS rows_fetched,
           counters[9]::bigint AS rows_inserted,
           counters[10]::bigint AS rows_updated,
           counters[11]::bigint AS rows_deleted,
           counters[12]::bigint AS temp_files,
           counters[13]::bigint AS temp_bytes,
           counters[14]::bigint AS deadlocks,
           counters[15]::bigint AS conflicts,
           counters[16]::bigint AS sessions_started,
           counters[17] AS session_ms,
           counters[18] AS active_ms,
           counters[19] AS idle_in_transaction_ms,
           counters[20]::bigint AS wal_records,
           counters[21]::bigint AS wal_full_page_images,
           counters[22]::bigint AS wal_bytes,
           counters[23]::bigint AS wal_buffers_full,
           counters[24] AS wal_write_ms,
           counters[25] AS wal_sync_ms,
           counters[26]::bigint AS checkpoints_timed,
           counters[27]::bigint AS checkpoints_requested,
           counters[28] AS checkpoint_write_ms,
           counters[29] AS checkpoint_sync_ms,
           counters[30]::bigint AS checkpoint_buffers,
           counters[31]::bigint AS bgwriter_buffers,
           counters[32]::bigint AS bgwriter_stops,
           -- the server counts the sweeper's pages among these, up to a second later
           CASE WHEN counters[33] < counters[47] THEN 0 ELSE counters[33] - counters[47] END::bigint AS backend_buffers,
           counters[34]::bigint AS backend_fsyncs,
           counters[35]::bigint AS buffers_allocated,
           counters[36]::bigint AS io_reads,
           counters[37]::bigint AS io_writes,
           counters[38]::bigint AS io_extends,
           counters[39]::bigint AS io_evictions,
           counters[40]::bigint AS io_reuses,
           counters[41]::bigint AS io_fsyncs,
           counters[42] AS io_read_ms,
           counters[43] AS io_write_ms,
           counters[44]::bigint AS wal_files_archived,
           counters[45]::bigint AS wal_archive_failures,
           counters[46]::bigint AS sweeper_supplied,
           counters[47]::bigint AS sweeper_written,
           counters[48]::bigint AS writeback_requested_bytes,
           counters[49]::bigint AS relocations,
           counters[50]::bigint AS sessions,
           counters[51] AS standby_lag_s,
           counters[52]::bigint AS standby_lag_bytes,
           pgscale_internal.row_origin(cluster, database) AS origin
      FROM pgscale_internal.archive_minute;
COMMENT ON VIEW pgscale.archive_minutes IS
'the archived minutes, and the increase of the server''s counters; NULL where a counter is unknown or was reset';
GRANT SELECT ON pgscale.archive_minutes TO pg_monitor;
COMMENT ON COLUMN pgscale.archive_minutes.at IS
'start of the minute, or of the hour once it is rolled up';
COMMENT ON COLUMN pgscale.archive_minutes.period_s IS
'length of the minute or hour, in seconds';
COMMENT ON COLUMN pgscale.archive_minutes.rounds IS
'number of rounds that the row is made of';
COMMENT ON COLUMN pgscale.archive_minutes.node IS
'server of the row';
COMMENT ON COLUMN pgscale.archive_minutes.active_sessions IS
'average of client backends and their parallel workers that were active, over the observed time; NULL if the sampler was off';
COMMENT ON COLUMN pgscale.archive_minutes.idle_in_transaction_sessions IS
'average of client backends that were idle in a transaction, over the observed time; NULL if the sampler was off';
COMMENT ON COLUMN pgscale.archive_minutes.observed_ms IS
'time that the sampler observed, in milliseconds; 0 if it was off';
COMMENT ON COLUMN pgscale.archive_minutes.commits IS
'transactions committed';
COMMENT ON COLUMN pgscale.archive_minutes.rollbacks IS
'transactions rolled back';
COMMENT ON COLUMN pgscale.archive_minutes.blocks_read IS
'blocks read into shared buffers by backends';
COMMENT ON COLUMN pgscale.archive_minutes.blocks_hit IS
'blocks that backends found in shared buffers';
COMMENT ON COLUMN pgscale.archive_minutes.block_read_ms IS
'time of these reads, in milliseconds; 0 unless track_io_timing is on';
COMMENT ON COLUMN pgscale.archive_minutes.block_write_ms IS
'time of backends'' writes, in milliseconds; 0 unless track_io_timing is on';
COMMENT ON COLUMN pgscale.archive_minutes.rows_returned IS
'rows read by scans';
COMMENT ON COLUMN pgscale.archive_minutes.rows_fetched IS
'rows fetched by index scans';
COMMENT ON COLUMN pgscale.archive_minutes.rows_inserted IS
'rows inserted';
COMMENT ON COLUMN pgscale.archive_minutes.rows_updated IS
'rows updated';
COMMENT ON COLUMN pgscale.archive_minutes.rows_deleted IS
'rows deleted';
COMMENT ON COLUMN pgscale.archive_minutes.temp_files IS
'temporary files';
COMMENT ON COLUMN pgscale.archive_minutes.temp_bytes IS
'bytes written into temporary files';
COMMENT ON COLUMN pgscale.archive_minutes.deadlocks IS
'deadlocks';
COMMENT ON COLUMN pgscale.archive_minutes.conflicts IS
'queries cancelled by recovery';
COMMENT ON COLUMN pgscale.archive_minutes.sessions_started IS
'sessions that began';
COMMENT ON COLUMN pgscale.archive_minutes.session_ms IS
'time of all sessions that have reported to the statistics, in milliseconds';
COMMENT ON COLUMN pgscale.archive_minutes.active_ms IS
'part of session_ms in which they executed statements, in milliseconds';
COMMENT ON COLUMN pgscale.archive_minutes.idle_in_transaction_ms IS
'part of session_ms in which they were idle in a transaction, in milliseconds';
COMMENT ON COLUMN pgscale.archive_minutes.wal_records IS
'WAL records';
COMMENT ON COLUMN pgscale.archive_minutes.wal_full_page_images IS
'full page images in WAL';
COMMENT ON COLUMN pgscale.archive_minutes.wal_bytes IS
'bytes of WAL';
COMMENT ON COLUMN pgscale.archive_minutes.wal_buffers_full IS
'times that WAL was written because its buffers were full';
COMMENT ON COLUMN pgscale.archive_minutes.wal_write_ms IS
'time of writing WAL, in milliseconds; 0 unless track_wal_io_timing is on';
COMMENT ON COLUMN pgscale.archive_minutes.wal_sync_ms IS
'time of syncing WAL, in milliseconds; 0 unless track_wal_io_timing is on';
COMMENT ON COLUMN pgscale.archive_minutes.checkpoints_timed IS
'checkpoints by time';
COMMENT ON COLUMN pgscale.archive_minutes.checkpoints_requested IS
'requested checkpoints, those by max_wal_size included';
COMMENT ON COLUMN pgscale.archive_minutes.checkpoint_write_ms IS
'time that checkpoints wrote, in milliseconds';
COMMENT ON COLUMN pgscale.archive_minutes.checkpoint_sync_ms IS
'time that checkpoints synced files, in milliseconds';
COMMENT ON COLUMN pgscale.archive_minutes.checkpoint_buffers IS
'buffers written by checkpoints';
COMMENT ON COLUMN pgscale.archive_minutes.bgwriter_buffers IS
'buffers written by the background writer';
COMMENT ON COLUMN pgscale.archive_minutes.bgwriter_stops IS
'times that the background writer stopped at its limit';
COMMENT ON COLUMN pgscale.archive_minutes.backend_buffers IS
'buffers written by processes other than the checkpointer, the background writer and the sweeper''s writers; with files that are extended before PostgreSQL 16';
COMMENT ON COLUMN pgscale.archive_minutes.backend_fsyncs IS
'files synced by backends';
COMMENT ON COLUMN pgscale.archive_minutes.buffers_allocated IS
'buffers allocated';
COMMENT ON COLUMN pgscale.archive_minutes.io_reads IS
'pages of relations that were read; from PostgreSQL 16 on';
COMMENT ON COLUMN pgscale.archive_minutes.io_writes IS
'pages of relations that were written; from PostgreSQL 16 on';
COMMENT ON COLUMN pgscale.archive_minutes.io_extends IS
'pages by which relations were extended; from PostgreSQL 16 on';
COMMENT ON COLUMN pgscale.archive_minutes.io_evictions IS
'buffers evicted for another page; from PostgreSQL 16 on';
COMMENT ON COLUMN pgscale.archive_minutes.io_reuses IS
'buffers reused within a ring; from PostgreSQL 16 on';
COMMENT ON COLUMN pgscale.archive_minutes.io_fsyncs IS
'syncs of files of relations; from PostgreSQL 16 on';
COMMENT ON COLUMN pgscale.archive_minutes.io_read_ms IS
'time of these reads, in milliseconds; from PostgreSQL 16 on, 0 unless track_io_timing is on';
COMMENT ON COLUMN pgscale.archive_minutes.io_write_ms IS
'time of these writes, in milliseconds; from PostgreSQL 16 on, 0 unless track_io_timing is on';
COMMENT ON COLUMN pgscale.archive_minutes.wal_files_archived IS
'WAL files archived';
COMMENT ON COLUMN pgscale.archive_minutes.wal_archive_failures IS
'failed attempts to archive a WAL file';
COMMENT ON COLUMN pgscale.archive_minutes.sweeper_supplied IS
'buffers that the sweeper supplied';
COMMENT ON COLUMN pgscale.archive_minutes.sweeper_written IS
'pages that the sweeper wrote';
COMMENT ON COLUMN pgscale.archive_minutes.writeback_requested_bytes IS
'bytes that the kernel was asked to write back';
COMMENT ON COLUMN pgscale.archive_minutes.relocations IS
'relocation jobs of this database that have ended';
COMMENT ON COLUMN pgscale.archive_minutes.sessions IS
'client backends at the end of the minute; of an hour: the maximum';
COMMENT ON COLUMN pgscale.archive_minutes.standby_lag_s IS
'time that the standby furthest behind must still replay, at the end of the minute; of an hour: the maximum';
COMMENT ON COLUMN pgscale.archive_minutes.standby_lag_bytes IS
'WAL that the standby furthest behind must still replay, at the end of the minute; of an hour: the maximum';
COMMENT ON COLUMN pgscale.archive_minutes.origin IS
'another server or another database, if the row came with a copy; NULL if it was written here';

CREATE VIEW pgscale.archive_queries AS
    SELECT queryid, max(query) AS query, min(first_seen) AS first_seen, max(last_seen) AS last_seen
      FROM pgscale_internal.archive_query
     GROUP BY queryid;
COMMENT ON VIEW pgscale.archive_queries IS
'texts of the queries with waits in the archive';
GRANT SELECT ON pgscale.archive_queries TO pg_monitor;
COMMENT ON COLUMN pgscale.archive_queries.queryid IS
'query identifier';
COMMENT ON COLUMN pgscale.archive_queries.query IS
'beginning of the text, as pg_stat_statements or pg_stat_activity had it';
COMMENT ON COLUMN pgscale.archive_queries.first_seen IS
'when it was first among the longest waits';
COMMENT ON COLUMN pgscale.archive_queries.last_seen IS
'when it was last among the longest waits, accurate to an hour';

CREATE VIEW pgscale.archive_changes AS
    SELECT at, setting, old, new FROM pgscale_internal.archive_change;
COMMENT ON VIEW pgscale.archive_changes IS
'changes of settings and of server_version_num; values that may hold a password are hidden';
GRANT SELECT ON pgscale.archive_changes TO pg_monitor;
COMMENT ON COLUMN pgscale.archive_changes.at IS
'when the change was found: within a minute';
COMMENT ON COLUMN pgscale.archive_changes.setting IS
'name of the setting';
COMMENT ON COLUMN pgscale.archive_changes.old IS
'value before, in the unit of pg_settings; (hidden) if it may hold a password; NULL if the setting did not exist';
COMMENT ON COLUMN pgscale.archive_changes.new IS
'value after, in the unit of pg_settings; (hidden) if it may hold a password; NULL if the setting does not exist';
