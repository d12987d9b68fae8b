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
COMMENT ON VIEW pgscale.writeback_stats IS 'what the kernel must still write, for this cluster and in all, and the state of the writeback worker';
GRANT SELECT ON pgscale.writeback_stats TO pg_monitor;
COMMENT ON COLUMN pgscale.writeback_stats.state IS 'off, watching, capping or standing down';
COMMENT ON COLUMN pgscale.writeback_stats.cluster_dirty_bytes IS 'bytes that the server has written and the kernel has not, as far as known';
COMMENT ON COLUMN pgscale.writeback_stats.cap_bytes IS 'cap in force';
COMMENT ON COLUMN pgscale.writeback_stats.peak_dirty_bytes IS 'highest cluster_dirty_bytes since stats_reset';
COMMENT ON COLUMN pgscale.writeback_stats.redirty_fraction IS
'fraction of the writes that hit a page again within 30 s, 0 to 1; NULL with too few writes';
COMMENT ON COLUMN pgscale.writeback_stats.server_bytes_per_s IS 'bytes that the server wrote to the kernel in the last second';
COMMENT ON COLUMN pgscale.writeback_stats.disk_bytes_per_s IS 'bytes a second that the disk took, as observed';
COMMENT ON COLUMN pgscale.writeback_stats.window_bytes IS 'limit of bytes in flight now';
COMMENT ON COLUMN pgscale.writeback_stats.skipped_bytes IS
'part of cluster_dirty_bytes not requested now because its pages will be written again soon';
COMMENT ON COLUMN pgscale.writeback_stats.written_bytes IS 'size of the writes seen in the buffers';
COMMENT ON COLUMN pgscale.writeback_stats.found_bytes IS 'size of the writes found in files';
COMMENT ON COLUMN pgscale.writeback_stats.unseen_bytes IS 'size of the writes for which there was no room';
COMMENT ON COLUMN pgscale.writeback_stats.requests IS 'number of requests to the kernel to write';
COMMENT ON COLUMN pgscale.writeback_stats.requested_bytes IS 'size of these requests';
COMMENT ON COLUMN pgscale.writeback_stats.taken_bytes IS 'bytes that reached the disk without a request';
COMMENT ON COLUMN pgscale.writeback_stats.request_ms IS 'time spent in requests, in milliseconds';
COMMENT ON COLUMN pgscale.writeback_stats.backed_off IS 'number of rounds that requested less because reads were slow';
COMMENT ON COLUMN pgscale.writeback_stats.rounds IS 'number of rounds';
COMMENT ON COLUMN pgscale.writeback_stats.errors IS 'number of rounds that ended in an error, which the server log has';
COMMENT ON COLUMN pgscale.writeback_stats.cpu_ms IS 'CPU time of the worker, in milliseconds';
COMMENT ON COLUMN pgscale.writeback_stats.dirty_bytes IS 'of the whole machine: dirty in memory, an upper bound';
COMMENT ON COLUMN pgscale.writeback_stats.writeback_bytes IS 'of the whole machine: being written to a disk';
COMMENT ON COLUMN pgscale.writeback_stats.background_threshold_bytes IS 'dirty bytes above which the kernel starts to write';
COMMENT ON COLUMN pgscale.writeback_stats.threshold_bytes IS 'dirty bytes above which the kernel makes writers wait';
COMMENT ON COLUMN pgscale.writeback_stats.io_pressure_fraction IS
'fraction of the last 10 s in which some process waited for I/O, 0 to 1; NULL if the kernel does not report it';
COMMENT ON COLUMN pgscale.writeback_stats.state_change IS 'time when state or reason last changed; NULL if it was never on';
COMMENT ON COLUMN pgscale.writeback_stats.stats_reset IS 'time of the latest reset';
COMMENT ON COLUMN pgscale.writeback_stats.reason IS 'why it is in that state, in one sentence';
