-- Usage of shared buffers: by usage count, by relation, and over time.

CREATE FUNCTION pgscale_internal.buffer_usage(
    OUT usage_count integer, OUT buffers bigint, OUT fraction double precision,
    OUT dirty bigint, OUT pinned bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_buffer_usage'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 7;
COMMENT ON FUNCTION pgscale_internal.buffer_usage() IS 'the rows of pgscale.buffer_usage() of all buffers';
GRANT EXECUTE ON FUNCTION pgscale_internal.buffer_usage() TO pg_monitor;

CREATE FUNCTION pgscale_internal.buffer_usage_sample(
    n integer,
    OUT usage_count integer, OUT buffers bigint, OUT fraction double precision,
    OUT fraction_low double precision, OUT fraction_high double precision,
    OUT dirty bigint, OUT pinned bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_buffer_usage_sample'
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 7;
COMMENT ON FUNCTION pgscale_internal.buffer_usage_sample(integer) IS 'the rows of pgscale.buffer_usage() of a sample';
GRANT EXECUTE ON FUNCTION pgscale_internal.buffer_usage_sample(integer) TO pg_monitor;

CREATE FUNCTION pgscale.buffer_usage(
    sample integer DEFAULT NULL,
    OUT usage_count integer, OUT buffers bigint, OUT fraction double precision, OUT dirty bigint, OUT pinned bigint,
    OUT fraction_low double precision, OUT fraction_high double precision)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL RESTRICTED ROWS 7
BEGIN ATOMIC
    SELECT u.usage_count, u.buffers, round(u.fraction * 10000) / 10000, u.dirty, u.pinned,
           round(u.fraction_low * 10000) / 10000, round(u.fraction_high * 10000) / 10000
      FROM (SELECT a.usage_count, a.buffers, a.fraction, a.dirty, a.pinned, a.fraction AS fraction_low, a.fraction AS fraction_high
              FROM pgscale_internal.buffer_usage() a WHERE sample IS NULL
            UNION ALL
            SELECT s.usage_count, s.buffers, s.fraction, s.dirty, s.pinned, s.fraction_low, s.fraction_high
              FROM pgscale_internal.buffer_usage_sample(sample) s WHERE sample IS NOT NULL) u;
END;
COMMENT ON FUNCTION pgscale.buffer_usage(integer) IS
'shared buffers by usage count; rows of all buffers, or an estimate from a sample
sample: number of random buffers, drawn with replacement; NULL: all; less than 1: invalid_parameter_value
usage_count: 0 to 5; NULL for buffers that hold no page: never used, of a dropped relation, or being read
buffers: number of buffers with that count
fraction: of all buffers, or of the sampled ones, 0 to 1
dirty: number of these buffers that must be written
pinned: number of these buffers in use at this moment
fraction_low: lower end of the 95 % interval of the fraction, for each row separately (Wilson score interval); without sample the fraction
fraction_high: upper end of that interval';
GRANT EXECUTE ON FUNCTION pgscale.buffer_usage(integer) TO pg_monitor;

CREATE FUNCTION pgscale_internal.relation_buffers(
    OUT datid oid, OUT relation regclass, OUT relfilenode oid, OUT reltablespace oid,
    OUT fork text, OUT buffers bigint, OUT buffers_bytes bigint, OUT dirty bigint,
    OUT mean_usage double precision, OUT cached_fraction double precision,
    OUT mean_score double precision, OUT may_leave bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_relation_buffers'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale_internal.relation_buffers() IS 'the rows of pgscale.relation_buffers';
GRANT EXECUTE ON FUNCTION pgscale_internal.relation_buffers() TO pg_monitor;

CREATE VIEW pgscale.relation_buffers AS
    SELECT r.relation, r.fork, r.buffers, r.buffers_bytes, r.dirty,
           round(r.mean_usage * 100) / 100 AS mean_usage, round(r.mean_score * 100) / 100 AS mean_score, r.may_leave,
           round(r.cached_fraction * 1e9) / 1e9 AS cached_fraction, pgscale_internal.name_of(r.datid) AS datname, r.datid, r.relfilenode,
           r.reltablespace
      FROM pgscale_internal.relation_buffers() r
     ORDER BY r.buffers DESC;
COMMENT ON VIEW pgscale.relation_buffers IS
'one row for each fork with shared buffers, of all databases, most buffers first; locks no relation';
GRANT SELECT ON pgscale.relation_buffers TO pg_monitor;
COMMENT ON COLUMN pgscale.relation_buffers.relation IS
'the relation; NULL if it is of another database, was just dropped, or belongs to an open transaction';
COMMENT ON COLUMN pgscale.relation_buffers.fork IS 'main, fsm, vm or init';
COMMENT ON COLUMN pgscale.relation_buffers.buffers IS 'number of buffers that hold its pages';
COMMENT ON COLUMN pgscale.relation_buffers.buffers_bytes IS 'size of these buffers';
COMMENT ON COLUMN pgscale.relation_buffers.dirty IS 'number of these buffers that must be written';
COMMENT ON COLUMN pgscale.relation_buffers.mean_usage IS 'mean usage count, 0 to 5';
COMMENT ON COLUMN pgscale.relation_buffers.mean_score IS
'mean number of uses that the sweeper remembers, where a use counts half after a half-life; NULL if it knows none of these pages';
COMMENT ON COLUMN pgscale.relation_buffers.may_leave IS
'number of these buffers whose page the sweeper''s policy would evict now; NULL as mean_score';
COMMENT ON COLUMN pgscale.relation_buffers.cached_fraction IS
'fraction of the fork that is in shared buffers, by the size of its files, 0 to 1; NULL if that size is unknown';
COMMENT ON COLUMN pgscale.relation_buffers.datname IS 'name of the database; NULL for shared catalogs';
COMMENT ON COLUMN pgscale.relation_buffers.datid IS 'OID of the database; 0 for shared catalogs';
COMMENT ON COLUMN pgscale.relation_buffers.relfilenode IS 'filenode number of the relation';
COMMENT ON COLUMN pgscale.relation_buffers.reltablespace IS 'OID of the tablespace';

CREATE FUNCTION pgscale_internal.clock_sweep(
    OUT buffers integer, OUT passes bigint, OUT hand integer,
    OUT stats_reset timestamptz, OUT ticks bigint, OUT allocations bigint,
    OUT ticks_per_allocation double precision, OUT pass_s double precision,
    OUT unused_fraction double precision, OUT zero_fraction double precision,
    OUT max_fraction double precision, OUT expected_search double precision,
    OUT reason text)
AS 'MODULE_PATHNAME', 'pgscale_clock_sweep'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale_internal.clock_sweep() IS 'the rows of pgscale.clock_sweep';
GRANT EXECUTE ON FUNCTION pgscale_internal.clock_sweep() TO pg_monitor;

CREATE VIEW pgscale.clock_sweep AS
    SELECT round(ticks_per_allocation * 100) / 100 AS ticks_per_allocation,
           round(pass_s * 10) / 10 AS pass_s,
           round(unused_fraction * 10000) / 10000 AS unused_fraction,
           round(zero_fraction * 10000) / 10000 AS zero_fraction,
           round(max_fraction * 10000) / 10000 AS max_fraction,
           round(expected_search * 100) / 100 AS expected_search, buffers, ticks, allocations, passes, hand,
           stats_reset, reason
      FROM pgscale_internal.clock_sweep();
COMMENT ON VIEW pgscale.clock_sweep IS
'one row: cost of finding a buffer for another page, and whether usage counts still show which pages to replace. Without preload ticks, allocations and their ratios are NULL; ratios also in the call that starts the counts';
GRANT SELECT ON pgscale.clock_sweep TO pg_monitor;
COMMENT ON COLUMN pgscale.clock_sweep.ticks_per_allocation IS
'buffers that the clock hand passes for one allocation, a mean over the whole server; NULL without allocations';
COMMENT ON COLUMN pgscale.clock_sweep.pass_s IS 'time of one pass over all buffers, in seconds; NULL if the hand did not move';
COMMENT ON COLUMN pgscale.clock_sweep.unused_fraction IS 'fraction of the buffers that hold no page, 0 to 1';
COMMENT ON COLUMN pgscale.clock_sweep.zero_fraction IS 'fraction of the buffers with usage count 0, 0 to 1';
COMMENT ON COLUMN pgscale.clock_sweep.max_fraction IS 'fraction of the buffers with the maximum usage count, 0 to 1';
COMMENT ON COLUMN pgscale.clock_sweep.expected_search IS
'expected number of ticks to the next victim: uN + (N+1)/(n+1), where n of N buffers have the smallest count u; before 19 with an empty freelist';
COMMENT ON COLUMN pgscale.clock_sweep.buffers IS 'number of all buffers';
COMMENT ON COLUMN pgscale.clock_sweep.ticks IS 'number of buffers that the clock hand has passed since stats_reset';
COMMENT ON COLUMN pgscale.clock_sweep.allocations IS
'number of buffers needed for another page since stats_reset, by pg_stat_bgwriter: including a freelist, without rings (large sequential scans, VACUUM, COPY)';
COMMENT ON COLUMN pgscale.clock_sweep.passes IS 'number of passes over all buffers since the server started';
COMMENT ON COLUMN pgscale.clock_sweep.hand IS 'number of the buffer that the clock hand comes to next, from 0';
COMMENT ON COLUMN pgscale.clock_sweep.stats_reset IS
'start of the counts: the first call after a start of the server, a reset, or a reset of pg_stat_bgwriter';
COMMENT ON COLUMN pgscale.clock_sweep.reason IS 'the conclusion, in one sentence';
