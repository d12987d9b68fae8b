-- Counts of writeback.

CREATE FUNCTION pgscale_internal.writeback_stats(
    OUT state text, OUT reason text, OUT state_change timestamptz,
    OUT cluster_dirty_bytes bigint, OUT cap_bytes bigint, OUT peak_dirty_bytes bigint,
    OUT skipped_bytes bigint, OUT redirty_fraction double precision,
    OUT server_bytes_per_s bigint, OUT disk_bytes_per_s bigint, OUT window_bytes bigint,
    OUT written_bytes bigint, OUT found_bytes bigint, OUT unseen_bytes bigint,
    OUT requests bigint, OUT requested_bytes bigint, OUT taken_bytes bigint,
    OUT request_ms double precision, OUT backed_off bigint,
    OUT rounds bigint, OUT errors bigint, OUT cpu_ms double precision, OUT stats_reset timestamptz,
    OUT dirty_bytes bigint, OUT writeback_bytes bigint,
    OUT background_threshold_bytes bigint, OUT threshold_bytes bigint,
    OUT io_pressure_fraction double precision)
AS 'MODULE_PATHNAME', 'pgscale_writeback_stats'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale_internal.writeback_stats() IS 'the rows of pgscale.writeback_stats';
GRANT EXECUTE ON FUNCTION pgscale_internal.writeback_stats() TO pg_monitor;

CREATE VIEW pgscale.writeback_stats AS
    SELECT state, cluster_dirty_bytes, cap_bytes, peak_dirty_bytes,
           pgscale_internal.three_digits(redirty_fraction) AS redirty_fraction, server_bytes_per_s, disk_bytes_per_s,
           window_bytes, skipped_bytes, written_bytes, found_bytes, unseen_bytes, requests, requested_bytes,
           taken_bytes, pgscale_internal.three_digits(request_ms) AS request_ms, backed_off, rounds, errors,
           round(cpu_ms * 10) / 10 AS cpu_ms, dirty_bytes, writeback_bytes, background_threshold_bytes,
           threshold_bytes, pgscale_internal.three_digits(io_pressure_fraction) AS io_pressure_fraction, state_change, stats_reset, reason
      FROM pgscale_internal.writeback_stats();
COMMENT ON VIEW pgscale.writeback_stats IS
'one row: what the kernel must still write, for this cluster and in all, and the state of the writeback worker; counts since stats_reset. Without preload only the columns of the whole machine have values';
GRANT SELECT ON pgscale.writeback_stats TO pg_monitor;
COMMENT ON COLUMN pgscale.writeback_stats.state IS 'off, watching, capping or standing down';
COMMENT ON COLUMN pgscale.writeback_stats.cluster_dirty_bytes IS
'bytes that the server has written to the kernel and the kernel not to disk, as far as known; NULL while off';
COMMENT ON COLUMN pgscale.writeback_stats.cap_bytes IS 'cap in force; NULL while off';
COMMENT ON COLUMN pgscale.writeback_stats.peak_dirty_bytes IS 'highest cluster_dirty_bytes since stats_reset';
COMMENT ON COLUMN pgscale.writeback_stats.redirty_fraction IS
'fraction of the writes that hit a page again within 30 s, 0 to 1; NULL with fewer than about 800 writes, and while off';
COMMENT ON COLUMN pgscale.writeback_stats.server_bytes_per_s IS 'bytes that the server wrote to the kernel in the last second; NULL while off';
COMMENT ON COLUMN pgscale.writeback_stats.disk_bytes_per_s IS
'bytes per second that the disk was seen to take, which may be less than its maximum; NULL while off';
COMMENT ON COLUMN pgscale.writeback_stats.window_bytes IS 'limit of bytes in flight now; NULL while off';
COMMENT ON COLUMN pgscale.writeback_stats.skipped_bytes IS
'part of cluster_dirty_bytes not requested now because its pages will be written again soon; NULL while off';
COMMENT ON COLUMN pgscale.writeback_stats.written_bytes IS 'size of the writes seen in the buffers';
COMMENT ON COLUMN pgscale.writeback_stats.found_bytes IS 'size of the writes found in files, past the buffers';
COMMENT ON COLUMN pgscale.writeback_stats.unseen_bytes IS
'size of dirty pages for which there was no room; there is room for 1 TB of files that change at one time';
COMMENT ON COLUMN pgscale.writeback_stats.requests IS 'number of requests to the kernel to write';
COMMENT ON COLUMN pgscale.writeback_stats.requested_bytes IS 'size of these requests';
COMMENT ON COLUMN pgscale.writeback_stats.taken_bytes IS
'bytes that reached the disk without a request: by the kernel itself, or by a checkpoint''s fsync';
COMMENT ON COLUMN pgscale.writeback_stats.request_ms IS 'time spent in requests, in milliseconds';
COMMENT ON COLUMN pgscale.writeback_stats.backed_off IS 'number of rounds that requested less because reads were slow';
COMMENT ON COLUMN pgscale.writeback_stats.rounds IS 'number of rounds';
COMMENT ON COLUMN pgscale.writeback_stats.errors IS 'number of rounds that ended in an error; the server log shows the errors';
COMMENT ON COLUMN pgscale.writeback_stats.cpu_ms IS 'CPU time of the worker, in milliseconds';
COMMENT ON COLUMN pgscale.writeback_stats.dirty_bytes IS
'of the whole machine: dirty in memory, an upper bound, because whole folios count';
COMMENT ON COLUMN pgscale.writeback_stats.writeback_bytes IS 'of the whole machine: being written to a disk';
COMMENT ON COLUMN pgscale.writeback_stats.background_threshold_bytes IS 'dirty bytes above which the kernel starts to write';
COMMENT ON COLUMN pgscale.writeback_stats.threshold_bytes IS 'dirty bytes above which the kernel makes writers wait';
COMMENT ON COLUMN pgscale.writeback_stats.io_pressure_fraction IS
'fraction of the last 10 s in which some process waited for I/O, 0 to 1; NULL if the kernel does not report it (PSI)';
COMMENT ON COLUMN pgscale.writeback_stats.state_change IS 'time when state or reason last changed; NULL if it was never on';
COMMENT ON COLUMN pgscale.writeback_stats.stats_reset IS 'start of the counts';
COMMENT ON COLUMN pgscale.writeback_stats.reason IS 'why it is in that state, in one sentence';
