-- Efficiency of WAL writes.

CREATE FUNCTION pgscale_internal.wal_efficiency(
    duration interval DEFAULT '10 minutes',
    OUT wal_bytes bigint, OUT written_bytes bigint, OUT rewritten_fraction double precision,
    OUT written_exact boolean, OUT commits bigint,
    OUT flushes_per_commit double precision, OUT commits_per_flush double precision,
    OUT flush_ms double precision, OUT flush_measured boolean, OUT flush_fraction double precision,
    OUT page_image_fraction double precision, OUT page_image_exact boolean, OUT segment_switches_per_s double precision,
    OUT buffers_full_per_s double precision, OUT reason text,
    OUT since timestamptz, OUT until timestamptz,
    OUT usual_flush_ms double precision, OUT usual_flush_fraction double precision)
AS 'MODULE_PATHNAME', 'pgscale_wal_efficiency'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale_internal.wal_efficiency(interval) IS 'the row of pgscale.wal_efficiency()';
GRANT EXECUTE ON FUNCTION pgscale_internal.wal_efficiency(interval) TO pg_monitor;

CREATE FUNCTION pgscale.wal_efficiency(
    duration interval DEFAULT '10 minutes',
    OUT commits bigint, OUT commits_per_flush double precision, OUT flush_ms double precision, OUT usual_flush_ms double precision,
    OUT flush_fraction double precision, OUT usual_flush_fraction double precision, OUT page_image_fraction double precision,
    OUT rewritten_fraction double precision, OUT wal_bytes bigint, OUT written_bytes bigint, OUT written_exact boolean,
    OUT page_image_exact boolean, OUT flushes_per_commit double precision, OUT flush_measured boolean,
    OUT segment_switches_per_s double precision, OUT buffers_full_per_s double precision, OUT since timestamptz, OUT until timestamptz,
    OUT reason text)
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
    SELECT w.commits, pgscale_internal.three_digits(w.commits_per_flush),
           pgscale_internal.three_digits(w.flush_ms), pgscale_internal.three_digits(w.usual_flush_ms),
           pgscale_internal.three_digits(w.flush_fraction), pgscale_internal.three_digits(w.usual_flush_fraction),
           pgscale_internal.three_digits(w.page_image_fraction), pgscale_internal.three_digits(w.rewritten_fraction),
           w.wal_bytes, w.written_bytes, w.written_exact, w.page_image_exact,
           pgscale_internal.three_digits(w.flushes_per_commit), w.flush_measured,
           pgscale_internal.three_digits(w.segment_switches_per_s), pgscale_internal.three_digits(w.buffers_full_per_s),
           w.since, w.until, w.reason
      FROM pgscale_internal.wal_efficiency(duration) w;
END;
COMMENT ON FUNCTION pgscale.wal_efficiency(interval) IS
'generated and written WAL, and the cost of commits, by the evidence of the duration; all columns are NULL without evidence. Errors: as advice_rules()
duration: length of the period that ends now
commits: commits in the databases that sessions used, including those that wrote nothing
commits_per_flush: group commit; NULL if the server counts no flushes: fsync off, or wal_sync_method open_...
flush_ms: mean time of a flush
usual_flush_ms: flush_ms of the evidence before, up to an hour ago; NULL if that is less than a minute
flush_fraction: fraction of the sessions'' time in which commits waited for WAL, 0 to 1: WalSync, WalWrite and their lock
usual_flush_fraction: flush_fraction of the evidence before, up to an hour ago
page_image_fraction: fraction of the WAL that is page images, 0 to 1; before 19 an upper bound; with wal_compression an estimate
rewritten_fraction: fraction of the written bytes that had been written before, 0 to 1: 1 - distance / written_bytes; NULL on a standby
wal_bytes: bytes of generated records
written_bytes: bytes written to WAL files; before 18 an estimate: the distance by which WAL was written, plus 8 kB for each flush
written_exact: whether written_bytes is counted
page_image_exact: whether the bytes of page images are counted
flushes_per_commit: inverse of commits_per_flush
flush_measured: whether the server measured flush_ms, with track_wal_io_timing; otherwise it is a lower bound: waiting time of sessions / all flushes
segment_switches_per_s: WAL files started per second; NULL on a standby
buffers_full_per_s: times per second that a session found WAL buffers full and wrote them itself
since: start of the evidence
until: end of the evidence
reason: the most important finding, in one sentence';
GRANT EXECUTE ON FUNCTION pgscale.wal_efficiency(interval) TO pg_monitor;
