-- The universal scalability law: its fit to given points and to the running server.

CREATE TYPE pgscale.usl AS (
    status text,
    lambda double precision, sigma double precision, kappa double precision,
    r2 double precision,
    peak_concurrency double precision, peak_concurrency_low double precision,
    peak_concurrency_high double precision,
    peak_throughput double precision, peak_throughput_low double precision,
    peak_throughput_high double precision,
    points integer,
    min_concurrency double precision, max_concurrency double precision);
COMMENT ON TYPE pgscale.usl IS 'the Universal Scalability Law as fitted: X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1))';
COMMENT ON COLUMN pgscale.usl.status IS 'ok; no peak ...; noisy: ...; or insufficient range: ..., with the reason';
COMMENT ON COLUMN pgscale.usl.lambda IS 'throughput of one session, in the unit of the throughput; NULL with too few different concurrencies';
COMMENT ON COLUMN pgscale.usl.sigma IS 'contention, the fraction of the work that only one session can do at a time; NULL as lambda';
COMMENT ON COLUMN pgscale.usl.kappa IS 'coherency, the cost of exchange between each pair of sessions; NULL as lambda';
COMMENT ON COLUMN pgscale.usl.r2 IS 'fraction of the variance of throughput that the law explains, below 0 if the mean fits better; NULL without variance';
COMMENT ON COLUMN pgscale.usl.peak_concurrency IS 'concurrency at which throughput is highest, at least 1; NULL unless the status is ok';
COMMENT ON COLUMN pgscale.usl.peak_concurrency_low IS 'lower end of the 95 % interval of peak_concurrency; NULL unless the status is ok';
COMMENT ON COLUMN pgscale.usl.peak_concurrency_high IS 'upper end of the 95 % interval of peak_concurrency; NULL unless the status is ok';
COMMENT ON COLUMN pgscale.usl.peak_throughput IS 'throughput at peak_concurrency';
COMMENT ON COLUMN pgscale.usl.peak_throughput_low IS 'lower end of the 95 % interval of peak_throughput; NULL unless the status is ok';
COMMENT ON COLUMN pgscale.usl.peak_throughput_high IS 'upper end of the 95 % interval of peak_throughput; NULL unless the status is ok';
COMMENT ON COLUMN pgscale.usl.points IS 'number of measurements';
COMMENT ON COLUMN pgscale.usl.min_concurrency IS 'smallest concurrency measured';
COMMENT ON COLUMN pgscale.usl.max_concurrency IS 'largest concurrency measured';

CREATE FUNCTION pgscale_internal.usl_fit_add(internal, double precision, double precision)
RETURNS internal
AS 'MODULE_PATHNAME', 'pgscale_usl_fit_add'
LANGUAGE C CALLED ON NULL INPUT IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale_internal.usl_fit_add(internal, double precision, double precision) IS 'part of usl_fit: takes a measurement';

CREATE FUNCTION pgscale_internal.usl_fit_end(internal)
RETURNS pgscale.usl
AS 'MODULE_PATHNAME', 'pgscale_usl_fit_end'
LANGUAGE C CALLED ON NULL INPUT IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale_internal.usl_fit_end(internal) IS 'part of usl_fit: fits the law';

CREATE AGGREGATE pgscale.usl_fit(concurrency double precision, throughput double precision) (
    SFUNC = pgscale_internal.usl_fit_add,
    STYPE = internal,
    SSPACE = 1024,
    FINALFUNC = pgscale_internal.usl_fit_end,
    PARALLEL = SAFE);
COMMENT ON AGGREGATE pgscale.usl_fit(double precision, double precision) IS
'fits the Universal Scalability Law to measurements, at most 10,000; NULL without rows. Errors: invalid_parameter_value, program_limit_exceeded
concurrency: number of sessions of the measurement; NULL: the row is ignored
throughput: throughput of the measurement, in any unit; NULL: the row is ignored';
GRANT EXECUTE ON FUNCTION pgscale.usl_fit(double precision, double precision) TO pg_monitor;

CREATE FUNCTION pgscale.usl_fit(concurrency double precision[], throughput double precision[])
RETURNS pgscale.usl
AS 'MODULE_PATHNAME', 'pgscale_usl_fit'
LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale.usl_fit(double precision[], double precision[]) IS
'fits the Universal Scalability Law to measurements in arrays; NULL if they are empty. Errors: as of the aggregate, array_subscript_error, null_value_not_allowed
concurrency: number of sessions of each measurement
throughput: throughput of each measurement, in any unit; an array of the same length';
GRANT EXECUTE ON FUNCTION pgscale.usl_fit(double precision[], double precision[]) TO pg_monitor;

CREATE FUNCTION pgscale_internal.usl_throughput(
    lambda double precision, sigma double precision, kappa double precision, concurrency double precision)
RETURNS double precision
AS 'MODULE_PATHNAME', 'pgscale_usl_throughput'
LANGUAGE C CALLED ON NULL INPUT IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale_internal.usl_throughput(double precision, double precision, double precision, double precision) IS
'the work of usl_predict, which takes the law apart';

CREATE FUNCTION pgscale.usl_predict(usl pgscale.usl, concurrency double precision)
RETURNS double precision
LANGUAGE SQL STRICT IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT pgscale_internal.usl_throughput((usl).lambda, (usl).sigma, (usl).kappa, concurrency);
END;
COMMENT ON FUNCTION pgscale.usl_predict(pgscale.usl, double precision) IS
'throughput at a concurrency, by a fitted law, in the unit of the fit; NULL if there was no fit
usl: the law, as usl_fit() returns it
concurrency: number of sessions N; below 1 the throughput is lambda N';
GRANT EXECUTE ON FUNCTION pgscale.usl_predict(pgscale.usl, double precision) TO pg_monitor;

CREATE FUNCTION pgscale_internal.scalability(
    OUT status text,
    OUT lambda double precision, OUT sigma double precision, OUT kappa double precision,
    OUT r2 double precision,
    OUT peak_concurrency double precision, OUT peak_concurrency_low double precision,
    OUT peak_concurrency_high double precision,
    OUT peak_throughput double precision, OUT peak_throughput_low double precision,
    OUT peak_throughput_high double precision,
    OUT points integer,
    OUT min_concurrency double precision, OUT max_concurrency double precision,
    OUT concurrency double precision, OUT throughput double precision,
    OUT measured_at timestamptz,
    OUT buckets bigint, OUT discarded bigint, OUT stats_reset timestamptz)
AS 'MODULE_PATHNAME', 'pgscale_scalability'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale_internal.scalability() IS 'the rows of pgscale.scalability';
GRANT EXECUTE ON FUNCTION pgscale_internal.scalability() TO pg_monitor;

CREATE FUNCTION pgscale_internal.scalability_points(
    OUT concurrency double precision, OUT throughput double precision,
    OUT seconds double precision)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_scalability_points'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 20;
COMMENT ON FUNCTION pgscale_internal.scalability_points() IS 'the points of pgscale.scalability, a row each';
GRANT EXECUTE ON FUNCTION pgscale_internal.scalability_points() TO pg_monitor;

CREATE VIEW pgscale.scalability AS
    SELECT pgscale_internal.three_digits(peak_concurrency) AS peak_concurrency,
           pgscale_internal.three_digits(peak_concurrency_low) AS peak_concurrency_low,
           pgscale_internal.three_digits(peak_concurrency_high) AS peak_concurrency_high,
           pgscale_internal.three_digits(concurrency) AS concurrency, pgscale_internal.three_digits(throughput) AS throughput,
           pgscale_internal.three_digits(peak_throughput) AS peak_throughput,
           pgscale_internal.three_digits(peak_throughput_low) AS peak_throughput_low,
           pgscale_internal.three_digits(peak_throughput_high) AS peak_throughput_high, pgscale_internal.three_digits(lambda) AS lambda,
           pgscale_internal.three_digits(sigma) AS sigma, pgscale_internal.three_digits(kappa) AS kappa,
           pgscale_internal.three_digits(r2) AS r2, points, pgscale_internal.three_digits(min_concurrency) AS min_concurrency,
           pgscale_internal.three_digits(max_concurrency) AS max_concurrency, buckets, discarded, measured_at, stats_reset,
           status, p.point_concurrency, p.point_throughput, p.point_s
      FROM pgscale_internal.scalability()
      CROSS JOIN (SELECT array_agg(p.concurrency ORDER BY p.concurrency) AS point_concurrency,
                         array_agg(p.throughput ORDER BY p.concurrency) AS point_throughput,
                         array_agg(p.seconds ORDER BY p.concurrency) AS point_s
                    FROM pgscale_internal.scalability_points() p) p;
COMMENT ON VIEW pgscale.scalability IS 'the Universal Scalability Law of this server: how many active sessions it can use';
GRANT SELECT ON pgscale.scalability TO pg_monitor;
COMMENT ON COLUMN pgscale.scalability.peak_concurrency IS 'active sessions at which throughput is highest, at least 1; NULL unless the status is ok';
COMMENT ON COLUMN pgscale.scalability.peak_concurrency_low IS 'lower end of the 95 % interval of peak_concurrency; NULL unless the status is ok';
COMMENT ON COLUMN pgscale.scalability.peak_concurrency_high IS 'upper end of the 95 % interval of peak_concurrency; NULL unless the status is ok';
COMMENT ON COLUMN pgscale.scalability.concurrency IS 'active sessions in the latest bucket that was not discarded';
COMMENT ON COLUMN pgscale.scalability.throughput IS 'transactions per second in that bucket';
COMMENT ON COLUMN pgscale.scalability.peak_throughput IS 'transactions per second at peak_concurrency';
COMMENT ON COLUMN pgscale.scalability.peak_throughput_low IS 'lower end of the 95 % interval of peak_throughput; NULL unless the status is ok';
COMMENT ON COLUMN pgscale.scalability.peak_throughput_high IS 'upper end of the 95 % interval of peak_throughput; NULL unless the status is ok';
COMMENT ON COLUMN pgscale.scalability.lambda IS 'transactions per second of one session; NULL with too few different concurrencies';
COMMENT ON COLUMN pgscale.scalability.sigma IS 'contention, the fraction of the work that only one session can do at a time; NULL as lambda';
COMMENT ON COLUMN pgscale.scalability.kappa IS 'coherency, the cost of exchange between each pair of sessions; NULL as lambda';
COMMENT ON COLUMN pgscale.scalability.r2 IS
'fraction of the variance of throughput that the law explains, below 0 if the mean fits better; NULL without variance';
COMMENT ON COLUMN pgscale.scalability.points IS 'number of points of the fit';
COMMENT ON COLUMN pgscale.scalability.min_concurrency IS 'smallest concurrency of a point';
COMMENT ON COLUMN pgscale.scalability.max_concurrency IS 'largest concurrency of a point';
COMMENT ON COLUMN pgscale.scalability.buckets IS 'number of measurements of five seconds that were used';
COMMENT ON COLUMN pgscale.scalability.discarded IS 'number of measurements that were discarded, because the load changed or statistics were reset';
COMMENT ON COLUMN pgscale.scalability.measured_at IS 'end of the latest bucket that was not discarded; NULL if there was none';
COMMENT ON COLUMN pgscale.scalability.stats_reset IS 'start of the server or latest reset';
COMMENT ON COLUMN pgscale.scalability.status IS 'ok; no peak ...; noisy: ...; or insufficient range: ..., with the reason';
COMMENT ON COLUMN pgscale.scalability.point_concurrency IS
'the points to which the law is fitted, in ascending order: active sessions; NULL if there are none';
COMMENT ON COLUMN pgscale.scalability.point_throughput IS 'transactions per second at each of these points';
COMMENT ON COLUMN pgscale.scalability.point_s IS 'seconds of measurement at each of these points, as far as they still count: they halve in a day';
