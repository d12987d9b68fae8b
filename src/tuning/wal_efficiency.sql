-- Efficiency of WAL writes.

CREATE FUNCTION pgscale.wal_efficiency(
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
COMMENT ON FUNCTION pgscale.wal_efficiency(interval) IS
'generated and written WAL, length of a flush, commits that share a flush, and their cost to the sessions; before 18 written_bytes is an estimate';
GRANT EXECUTE ON FUNCTION pgscale.wal_efficiency(interval) TO pg_monitor;

CREATE VIEW pgscale.wal_efficiency AS
    SELECT commits, pgscale_internal.three_digits(commits_per_flush) AS commits_per_flush,
           pgscale_internal.three_digits(flush_ms) AS flush_ms, pgscale_internal.three_digits(usual_flush_ms) AS usual_flush_ms,
           pgscale_internal.three_digits(flush_fraction) AS flush_fraction,
           pgscale_internal.three_digits(usual_flush_fraction) AS usual_flush_fraction,
           pgscale_internal.three_digits(page_image_fraction) AS page_image_fraction,
           pgscale_internal.three_digits(rewritten_fraction) AS rewritten_fraction, wal_bytes, written_bytes,
           written_exact, page_image_exact, pgscale_internal.three_digits(flushes_per_commit) AS flushes_per_commit, flush_measured,
           pgscale_internal.three_digits(segment_switches_per_s) AS segment_switches_per_s,
           pgscale_internal.three_digits(buffers_full_per_s) AS buffers_full_per_s, since, until, reason
      FROM pgscale.wal_efficiency();
COMMENT ON VIEW pgscale.wal_efficiency IS
'of the last 10 minutes: generated and written WAL, length of a flush, commits that share a flush, and their cost to the sessions; before 18 written_bytes is an estimate';
GRANT SELECT ON pgscale.wal_efficiency TO pg_monitor;
COMMENT ON COLUMN pgscale.wal_efficiency.commits IS 'number of commits in the databases that sessions used';
COMMENT ON COLUMN pgscale.wal_efficiency.commits_per_flush IS 'commits that share a flush; NULL if the server counts no flushes';
COMMENT ON COLUMN pgscale.wal_efficiency.flush_ms IS 'mean time of a flush, in milliseconds';
COMMENT ON COLUMN pgscale.wal_efficiency.usual_flush_ms IS
'flush_ms of the evidence before, of the last hour; NULL if that is less than a minute';
COMMENT ON COLUMN pgscale.wal_efficiency.flush_fraction IS 'fraction of the sessions'' time in which commits waited for WAL, 0 to 1';
COMMENT ON COLUMN pgscale.wal_efficiency.usual_flush_fraction IS
'flush_fraction of the evidence before, of the last hour; NULL if that is less than a minute';
COMMENT ON COLUMN pgscale.wal_efficiency.page_image_fraction IS 'fraction of page images in the WAL, 0 to 1; before 19 an upper bound';
COMMENT ON COLUMN pgscale.wal_efficiency.rewritten_fraction IS
'fraction of the written bytes that had been written before, 0 to 1; NULL on a standby';
COMMENT ON COLUMN pgscale.wal_efficiency.wal_bytes IS 'size of the records generated';
COMMENT ON COLUMN pgscale.wal_efficiency.written_bytes IS 'size of the writes to WAL files; an estimate before 18';
COMMENT ON COLUMN pgscale.wal_efficiency.written_exact IS 'whether written_bytes is counted';
COMMENT ON COLUMN pgscale.wal_efficiency.page_image_exact IS 'whether the bytes of page images are counted';
COMMENT ON COLUMN pgscale.wal_efficiency.flushes_per_commit IS 'flushes for each commit; NULL if the server counts no flushes';
COMMENT ON COLUMN pgscale.wal_efficiency.flush_measured IS 'whether the server measured flush_ms; otherwise it is a lower bound';
COMMENT ON COLUMN pgscale.wal_efficiency.segment_switches_per_s IS 'number of WAL files started in a second; NULL on a standby';
COMMENT ON COLUMN pgscale.wal_efficiency.buffers_full_per_s IS 'times a second that a session found WAL buffers full and wrote them itself';
COMMENT ON COLUMN pgscale.wal_efficiency.since IS 'start of the evidence';
COMMENT ON COLUMN pgscale.wal_efficiency.until IS 'end of the evidence';
COMMENT ON COLUMN pgscale.wal_efficiency.reason IS 'the most important finding, in one sentence';
