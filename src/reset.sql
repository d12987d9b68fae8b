-- Resets of statistics, by feature.

CREATE FUNCTION pgscale.reset(feature text DEFAULT NULL)
RETURNS void
AS 'MODULE_PATHNAME', 'pgscale_reset'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.reset(text) IS
'sets the statistics of a feature to zero: sampler, lwlocks, trace, sweeper, buffer_usage, writeback or scalability; NULL: of all';
