-- Resets of statistics, by feature.

CREATE FUNCTION pgscale.reset(feature text DEFAULT NULL)
RETURNS void
AS 'MODULE_PATHNAME', 'pgscale_reset'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.reset(text) IS
'sets statistics of pgscale to zero, and none of PostgreSQL''s own. Errors: object_not_in_prerequisite_state without preload, and if '
'the sampler does not answer within 5 s (it resets later); lock_not_available if the sampler was stopped while it read LWLocks; '
'invalid_parameter_value for another feature
feature: sampler (wait profile, history, activity, totals, blocker_profile, texts, sampler_stats), lwlocks, trace, sweeper, '
'buffer_usage (counts of clock_sweep), writeback, scalability; NULL: all in this order, until the first error';
