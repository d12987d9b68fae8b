-- The Universal Scalability Law of given figures. What the server measures of itself is in t/scalability_law.pl.
-- Statements are not echoed: a line of \echo says whose answer follows.
\set ECHO none
CREATE EXTENSION pgscale;
\pset format unaligned \pset footer off
\pset null -
CREATE FUNCTION short(pgscale.usl) RETURNS TABLE (status text, lambda numeric, sigma numeric, kappa numeric, r2 numeric,
    peak numeric, low numeric, high numeric, throughput numeric, points integer, range text)
LANGUAGE sql RETURN ROW(($1).status, round(($1).lambda::numeric, 2), round(($1).sigma::numeric, 5), round(($1).kappa::numeric, 6),
    round(($1).r2::numeric, 4), round(($1).peak_concurrency::numeric, 1), round(($1).peak_concurrency_low::numeric),
    round(($1).peak_concurrency_high::numeric), round(($1).peak_throughput::numeric), ($1).points,
    ($1).min_concurrency || ' .. ' || ($1).max_concurrency);
CREATE FUNCTION law(n double precision, lambda double precision, sigma double precision, kappa double precision)
RETURNS double precision LANGUAGE sql RETURN lambda * n / (1 + sigma * (n - 1) + kappa * n * (n - 1));

\echo -- exact figures return the law they come from
SELECT s.* FROM (SELECT pgscale.usl_fit(n, law(n, 1000, 0.03, 0.0005)) FROM generate_series(1, 64) n) f (f), short(f) s;
\echo '-- Amdahl''s law has no kappa, and no peak'
SELECT s.* FROM (SELECT pgscale.usl_fit(n, law(n, 1000, 0.1, 0)) FROM generate_series(1, 64) n) f (f), short(f) s;

\echo -- published figures
CREATE TABLE published (name text, concurrency double precision[], throughput double precision[]);
INSERT INTO published VALUES
    -- SPEC SDM91 on a SPARCcenter 2000: Gunther, Guerrilla Capacity Planning, 2007; data set specsdm91 of R's package usl,
    -- which fits lambda 89.995, sigma 0.0277, kappa 0.000104, a peak at 96.5, by absolute errors
    ('specsdm91', '{1, 18, 36, 72, 108, 144, 216}', '{64.9, 995.9, 1652.4, 1853.2, 1828.9, 1775.0, 1702.2}'),
    -- a ray tracer on an Origin 2000: the same book and package, which fits 21.849, 0.0578, 0 and no peak
    ('raytracer', '{1, 4, 8, 12, 16, 20, 24, 28, 32, 48, 64}', '{20, 78, 130, 170, 190, 200, 210, 230, 260, 280, 310}'),
    -- MySQL on a Cisco server: Schwartz, Practical Scalability Analysis with the Universal Scalability Law, 2015, who fits
    -- 995.65, 0.0267, 0.000769, a peak at 35
    ('cisco', ARRAY(SELECT generate_series(1, 32)),
     '{955.16, 1878.91, 2688.01, 3548.68, 4315.54, 5130.43, 5931.37, 6531.08, 7219.8, 7867.61, 8278.71, 8646.7, 9047.84, 9426.55,
       9645.37, 9897.24, 10097.6, 10240.5, 10532.39, 10798.52, 11151.43, 11518.63, 11806, 12089.37, 12075.41, 12177.29, 12211.41,
       12158.93, 12155.27, 12118.04, 12140.4, 12074.39}');
SELECT p.name, s.* FROM published p, short(pgscale.usl_fit(p.concurrency, p.throughput)) s;
\echo '-- The same by normal equations, solved here: rows are X / N, X (N - 1) / N and X (N - 1), which is 0 below one session, and each'
-- is to make 1. The coefficients are all above 0, and no point lies on the law.
CREATE FUNCTION solved(n double precision[], x double precision[]) RETURNS TABLE (lambda numeric, sigma numeric, kappa numeric)
LANGUAGE sql AS $$
    WITH r AS (SELECT x / n AS a, x / n * greatest(n - 1, 0) AS b, x * greatest(n - 1, 0) AS c
                 FROM (SELECT n::numeric, x::numeric FROM unnest(n, x) u (n, x)) p),
         s AS (SELECT sum(a*a) aa, sum(a*b) ab, sum(a*c) ac, sum(b*b) bb, sum(b*c) bc, sum(c*c) cc, sum(a) ya, sum(b) yb, sum(c) yc FROM r),
         d AS (SELECT ya*(bb*cc-bc*bc) - ab*(yb*cc-bc*yc) + ac*(yb*bc-bb*yc) AS c0, aa*(yb*cc-bc*yc) - ya*(ab*cc-bc*ac) + ac*(ab*yc-yb*ac) AS c1,
                      aa*(bb*yc-yb*bc) - ab*(ab*yc-yb*ac) + ya*(ab*bc-bb*ac) AS c2, aa*(bb*cc-bc*bc) - ab*(ab*cc-bc*ac) + ac*(ab*bc-bb*ac) AS d FROM s)
    SELECT d / c0, c1 / c0, c2 / c0 FROM d $$;
INSERT INTO published VALUES ('below one', '{0.25, 0.7, 1, 3, 6, 12, 20, 30}', '{26, 66, 103, 270, 470, 700, 720, 640}');
SELECT p.name, abs(f.lambda / s.lambda::float8 - 1) < 1e-9 AS lambda, abs(f.sigma / s.sigma::float8 - 1) < 1e-6 AS sigma,
       abs(f.kappa / s.kappa::float8 - 1) < 1e-6 AS kappa, s.sigma > 0 AND s.kappa > 0 AS inside,
       abs(f.peak_concurrency / sqrt((1 - s.sigma) / s.kappa)::float8 - 1) < 1e-6 AS peak,
       abs(f.peak_throughput / law(f.peak_concurrency, f.lambda, f.sigma, f.kappa) - 1) < 1e-9 AS there, abs(f.r2 - r.r2) < 1e-9 AS r2
  FROM published p, solved(p.concurrency, p.throughput) s, pgscale.usl_fit(p.concurrency, p.throughput) f,
       LATERAL (SELECT 1 - sum((x - law(greatest(n, 1), f.lambda, f.sigma, f.kappa) * least(n, 1)) ^ 2) / (count(*) * var_pop(x))
                  FROM unnest(p.concurrency, p.throughput) u (n, x)) r (r2)
 WHERE p.name <> 'raytracer' ORDER BY 1;
\echo -- and the intervals
SELECT p.name, round(f.peak_concurrency_low::numeric, 1) AS low, round(f.peak_concurrency_high::numeric, 1) AS high,
       round(f.peak_throughput_low::numeric) AS throughput_low, round(f.peak_throughput::numeric) AS throughput, round(f.peak_throughput_high::numeric) AS throughput_high
  FROM published p, pgscale.usl_fit(p.concurrency, p.throughput) f WHERE p.name <> 'raytracer' ORDER BY 1;
DELETE FROM published WHERE name = 'below one';

\echo -- the aggregate and the arrays say the same, and so does any order
SELECT p.name, pgscale.usl_fit(p.concurrency, p.throughput) = pgscale.usl_fit(n, x) AS aggregate,
       pgscale.usl_fit(p.concurrency, p.throughput) = pgscale.usl_fit(n, x ORDER BY x DESC) AS order
  FROM published p, unnest(p.concurrency, p.throughput) u (n, x) GROUP BY p.name, p.concurrency, p.throughput ORDER BY 1;
\echo -- as much of the first as is below half of the peak, and a little more
SELECT s.status FROM published p, generate_series(3, 7) i,
       short(pgscale.usl_fit(p.concurrency[:i], p.throughput[:i])) s WHERE p.name = 'specsdm91' ORDER BY i;

\echo -- 5 % of noise from a generator that is the same everywhere; three measurements each at 1, 2, 4 .. up to twice N*
CREATE FUNCTION noise(seed integer, i integer) RETURNS double precision LANGUAGE sql
RETURN sqrt(-2 * ln((hashint8extended(i, seed) & 1048575 | 1) / 1048576.0)) * cos(2 * pi() * (hashint8extended(i, -seed) & 1048575) / 1048576.0);
CREATE VIEW noisy AS
    SELECT truth, seed, pgscale.usl_fit(n, law(n, 1000, sigma, kappa) * (1 + 0.05 * noise(seed, 3 * i + j))) AS f,
           sqrt((1 - sigma) / kappa) AS peak
      FROM (VALUES (1, 0.02, 0.01), (2, 0.05, 0.001), (3, 0.03, 0.0005)) t (truth, sigma, kappa),
           generate_series(1, 20) seed, generate_series(0, 7) i, generate_series(0, 2) j,
           LATERAL (SELECT least(2 ^ i, 2 * sqrt((1 - sigma) / kappa))) n (n)
     GROUP BY truth, seed, sigma, kappa;
SELECT truth, count(*) AS fits, count(*) FILTER (WHERE (f).status = 'ok') AS ok,
       count(*) FILTER (WHERE abs((f).peak_concurrency / peak - 1) <= 0.1) >= 0.95 * count(*) AS within_a_tenth,
       count(*) FILTER (WHERE peak BETWEEN (f).peak_concurrency_low AND (f).peak_concurrency_high) >= 0.9 * count(*) AS covered
  FROM noisy GROUP BY 1 ORDER BY 1;

\echo -- not enough to tell
SELECT s.status, s.points, s.lambda, s.peak FROM (VALUES
    (1, '{4}'::double precision[], '{100}'::double precision[]),
    (2, '{1, 8}', '{100, 500}'),
    (3, '{1, 1, 2, 2}', '{100, 100, 190, 200}'),
    (4, '{100, 101, 102, 103, 104}', '{100, 100, 100, 100, 100}'),
    (5, '{8, 8, 8, 8, 8}', '{100, 110, 120, 130, 140}'),
    (6, '{1, 2, 3, 4}', '{100, 200, 300, 400}'),
    (7, '{1, 2, 4, 8}', '{100, 100, 100, 100}'),
    (8, '{16, 24, 32, 48, 64}', '{100, 80, 65, 50, 40}'),
    (9, '{1, 2, 4, 8, 16}', '{100, 90, 500, 300, 900}')) v (i, n, x),
    short(pgscale.usl_fit(n, x)) s ORDER BY i;

\echo '-- Of points that lie far off any law, more of them further out would tell no more: a peak that can be seen, in the midst of the'
-- range, and the few sessions of a server whose throughput jumps
SELECT s.status, s.r2, s.peak FROM (VALUES
    (1, '{1, 2, 4, 8, 16, 32, 48, 64}'::double precision[], '{617, 2065, 2543, 5990, 13086, 7426, 5208, 7205}'::double precision[]),
    (2, '{2, 3, 4, 6, 8, 10, 12, 16}', '{2710, 4140, 3812, 2194, 39858, 3575, 3112, 10295}')) v (i, n, x),
    short(pgscale.usl_fit(n, x)) s ORDER BY i;

\echo '-- Both sides of what makes the difference. Four concurrencies: those that differ by more than a tenth, all below one being one'
SELECT i, points, status !~ 'differ by more' AS enough FROM (VALUES
    (1, '{10, 11.1, 12.3, 13.6}'::double precision[]), (2, '{10, 10.9, 12.1, 13.4}'), (3, '{10, 10.9, 11.1, 12.3, 13.6}'),
    (4, '{0.2, 0.5, 1.2, 1.4, 1.6}'), (5, '{0.2, 0.5, 0.9, 1.2, 1.4}')) v (i, n),
    LATERAL (SELECT array_agg(law(u, 1000, 0.03, 0.0005)) FROM unnest(n) u) l (x), pgscale.usl_fit(n, x) ORDER BY 1;
\echo '-- exact figures from one concurrency to another: the peak is at 44.05, or there is none and the limit is 10,000'
SELECT i, first, last, s.status, s.peak FROM (VALUES
    (1, 0.0005, 1, 22.0), (2, 0.0005, 1, 22.1), (3, 0.0005, 44, 90), (4, 0.0005, 44.1, 90), (5, 0, 1, 8.9), (6, 0, 1, 9.1)) v (i, k, first, last),
    LATERAL (SELECT pgscale.usl_fit(n, law(n, 1000, CASE k WHEN 0 THEN 0.1 ELSE 0.03 END, k)) FROM (SELECT first + (last - first) * n / 10 FROM generate_series(0, 10) n) g (n)) f (f),
    short(f) s ORDER BY i;
\echo '-- more contention than work: one session is best'
SELECT s.* FROM (SELECT pgscale.usl_fit(n, law(n, 1000, 1.5, 0.01)) FROM generate_series(1, 9) n) f (f), short(f) s;
\echo '-- the more noise the less is told: up to which amplitude, in thousandths, of measurements that end far beyond the peak, beyond it,'
-- just before it, and long before it, and of Amdahl's law
SELECT what, replace(regexp_replace(s.status, '[0-9.]+', 'N', 'g'), ', too much for N points to locate a peak', '') AS status,
       count(*), min(amplitude) AS from, max(amplitude) AS to
  FROM (VALUES (1, 0.03, 0.0005, 100), (2, 0.03, 0.0005, 50), (3, 0.03, 0.0005, 40), (4, 0.03, 0.0005, 25), (5, 0.1, 0, 24), (6, 0.1, 0, 40)) v (what, sigma, kappa, last),
       generate_series(4, 340, 12) amplitude,
       LATERAL (SELECT pgscale.usl_fit(n, law(n, 1000, sigma, kappa) * exp(amplitude / 1000.0 * noise(what, i))) FROM generate_series(0, 8) i, LATERAL (SELECT last ^ (i / 8.0)) g (n)) f (f),
       short(f) s
 GROUP BY 1, 2 ORDER BY 1, 4, 5;

\echo '-- figures as far apart as can be: nothing overflows'
SELECT s.status, s.lambda IS NULL OR s.lambda <> 'NaN' AS number FROM (VALUES
    (1, '{1e308, 5e307, 2e307, 1e307}'::double precision[], '{1e308, 1e307, 1e306, 1e305}'::double precision[]),
    (2, '{1e-308, 1e-200, 1e-100, 1}', '{1e308, 1e200, 1, 1e-308}'),
    (3, '{1, 2, 4, 1e308}', '{1e308, 1e-308, 1, 1e100}'),
    (4, '{1, 1e10, 1e100, 1e308}', '{1, 2, 3, 4}')) v (i, n, x), short(pgscale.usl_fit(n, x)) s ORDER BY i;

\echo -- nulls are left out, and nothing is NULL
SELECT s.points, s.range FROM (SELECT pgscale.usl_fit(n, x) FROM (VALUES (1, 10), (2, NULL), (NULL, 20), (4, 30)) v (n, x)) f (f), short(f) s;
SELECT pgscale.usl_fit(n, x) IS NULL AS none FROM (VALUES (NULL::double precision, 1), (2, NULL)) v (n, x);
SELECT pgscale.usl_fit('{}'::double precision[], '{}') IS NULL AS none, pgscale.usl_fit(NULL::double precision[], '{}') IS NULL AS null;

\echo -- figures that make no sense
CREATE FUNCTION error_of(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    hint text;
BEGIN
    EXECUTE statement;
    RETURN 'no error';
EXCEPTION WHEN others THEN
    GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
    RETURN concat_ws(' / ', sqlstate, sqlerrm, hint);
END $$;
SELECT error_of(format('SELECT pgscale.usl_fit(%L::double precision, %L::double precision)', n, x))
  FROM (VALUES (1, '0', '10'), (2, '-1', '10'), (3, 'NaN', '10'), (4, 'Infinity', '10'), (5, '2', '0'), (6, '2', '-3'), (7, '2', 'NaN'),
        (8, '2', '-Infinity')) v (i, n, x)
 ORDER BY i;
SELECT error_of(format('SELECT pgscale.usl_fit(%L::double precision[], %L::double precision[])', n, x))
  FROM (VALUES (1, '{1,2,3}', '{10,20}'), (2, '{}', '{10}'), (3, '{1,NULL}', '{10,20}'), (4, '{1,2}', '{10,NULL}'),
        (5, '{{1,2},{3,4}}', '{1,2,3,4}'), (6, '{0,1}', '{10,20}'), (7, '{1,2}', '{10,-20}')) v (i, n, x)
 ORDER BY i;
SELECT error_of('SELECT pgscale.usl_fit(n, n) FROM generate_series(1, 10001) n');
SELECT points FROM (SELECT (pgscale.usl_fit(n, 1000)).* FROM generate_series(1, 10000) n) f;

\echo -- what the law predicts
SELECT n, round(pgscale.usl_predict(f, n)::numeric, 3) AS predicted, round(law(n, 1000, 0.03, 0.0005)::numeric, 3) AS law
  FROM (SELECT pgscale.usl_fit(n, law(n, 1000, 0.03, 0.0005)) FROM generate_series(1, 64) n) f (f), (VALUES (1), (10), (44), (1000)) v (n);
SELECT pgscale.usl_predict(f, 0.5) AS half, pgscale.usl_predict(NULL, 3) IS NULL AS null FROM (SELECT pgscale.usl_fit(n, 100 * n) FROM generate_series(1, 9) n) f (f);
SELECT pgscale.usl_predict(pgscale.usl_fit(2, 20), 3) IS NULL AS no_fit;
SELECT error_of('SELECT pgscale.usl_predict(pgscale.usl_fit(2, 20), 0)');

\echo '-- the running server: what it says before anything has happened, or what it has measured meanwhile'
SELECT status ~ '^(ok|no peak|noisy: |insufficient range: )' AS status, lambda IS NULL OR points > 3 AS fit, stats_reset < now() AS stats_reset FROM pgscale.scalability;
SELECT clock_timestamp() AS before \gset
SELECT pgscale.reset('scalability');
SELECT status, points, buckets, discarded, num_nulls(lambda, sigma, kappa, r2, peak_concurrency, min_concurrency, concurrency, throughput, measured_at) AS nulls,
       stats_reset > :'before' AS stats_reset FROM pgscale.scalability;
SELECT count(*) FROM pgscale_internal.scalability_points();
DROP VIEW noisy;
DROP FUNCTION short, law, noise, error_of, solved;
DROP TABLE published;
DROP EXTENSION pgscale;
