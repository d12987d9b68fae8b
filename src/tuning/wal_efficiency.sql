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
'generated and written WAL, length of a flush, commits that share a flush, and their cost to the sessions, by the evidence of the duration; before 18 written_bytes is an estimate';
GRANT EXECUTE ON FUNCTION pgscale.wal_efficiency(interval) TO pg_monitor;
