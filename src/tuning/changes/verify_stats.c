/*-------------------------------------------------------------------------
 *
 * verify_stats.c
 *	  The ratio of two series whose values depend on each other, and the difference of
 *	  two such ratios; pure.
 *
 * The ratio of the sums is, for example, the time of a transaction over the whole
 * window, however unequal its parts are.  The mean of the parts' ratios is not, and
 * ignores a stall without any transaction.  The precision of the ratio follows from its
 * residuals, of - ratio * per, divided by the mean of per (W. G. Cochran, Sampling
 * Techniques, 1977, ch. 6): below, these are the values.
 *
 * Five seconds of a server are much like the five before.  The usual standard error
 * treats each value as independent, and would find a difference where there is none.
 * So the series is cut into batches of the square root of its length, whose means
 * depend on each other much less (batch means; Law, Simulation Modeling and Analysis,
 * ch. 9.5.3).  The remaining dependence of the means is estimated by their correlation
 * with the next one, r, as in a first-order autoregression: k of them are worth k (1 -
 * r) / (1 + r) independent ones.
 *
 * Both means have variances of their own, hence Welch's interval (Biometrika 34, 1947)
 * with Satterthwaite's degrees of freedom.  Student's quantile is G. W. Hill's
 * algorithm 396 (CACM 13, 1970), exact to six digits.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "tuning/changes/verify_stats.h"

/* Of four means or so a correlation beyond that is chance. */
#define MAX_CORRELATION 0.8

static double
square_of(double x)
{
	return x * x;
}

PgscaleTuningSeries
pgscale_tuning_series(const double *of, const double *per, int n)
{
	PgscaleTuningSeries series = {0, NAN, NAN, NAN};
	double	   *residuals = palloc(Max(n, 1) * sizeof(double));
	double	   *weights = palloc(Max(n, 1) * sizeof(double));
	double	   *means;
	int			length;
	int			batches;
	double		sum_of = 0;
	double		sum_per = 0;
	double		mean = 0;
	double		squares = 0;
	double		products = 0;
	double		r;
	double		independent;

	for (int i = 0; i < n; i++)
		if (isfinite(of[i]) && isfinite(per[i]))
		{
			residuals[series.n] = of[i];
			weights[series.n++] = per[i];
			sum_of += of[i];
			sum_per += per[i];
		}
	if (!(sum_per > 0))
		return series;
	series.mean = sum_of / sum_per;
	if (series.n < PGSCALE_SERIES_MIN)
		return series;
	for (int i = 0; i < series.n; i++)
		residuals[i] = (residuals[i] - series.mean * weights[i]) * series.n / sum_per;

	length = (int) sqrt(series.n);
	batches = series.n / length;
	means = palloc0(batches * sizeof(double));
	residuals += series.n - batches * length;	/* the oldest are left over */
	for (int i = 0; i < batches; i++)
	{
		for (int j = 0; j < length; j++)
			means[i] += residuals[i * length + j] / length;
		mean += means[i] / batches;
	}
	for (int i = 0; i < batches; i++)
	{
		squares += square_of(means[i] - mean);
		if (i > 0)
			products += (means[i] - mean) * (means[i - 1] - mean);
	}
	r = squares > 0 ? Min(Max(products / squares, 0), MAX_CORRELATION) : 0;
	independent = batches * (1 - r) / (1 + r);
	series.variance = squares / (batches - 1) / independent;
	series.df = Max(independent - 1, 1);
	return series;
}

double
pgscale_tuning_student_95(double n)
{
	const double z = -1.959963984540054;	/* the normal distribution's */
	const double p = 0.05;
	double		a = 1 / (n - 0.5);
	double		b = 48 / square_of(a);
	double		c = ((20700 * a / b - 98) * a - 16) * a + 96.36;
	double		d = ((94.5 / (b + c) - 3) / b + 1) * sqrt(a * M_PI / 2) * n;
	double		y = pow(d * p, 2 / n);

	/* the series is not meant for these; between them it is good enough */
	if (n <= 1)
		return 12.7062047361747;
	if (n == 2)
		return 4.30265272974946;
	if (y > 0.05 + a)
	{
		y = square_of(z);
		if (n < 5)
			c += 0.3 * (n - 4.5) * (z + 0.6);
		c += (((0.05 * d * z - 5) * z - 7) * z - 2) * z + b;
		y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * z;
		y = expm1(a * square_of(y));
	}
	else
		y = ((1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)) * y - 1) *
			(n + 1) / (n + 2) + 1 / y;
	return sqrt(n * y);
}

double
pgscale_tuning_series_difference(const PgscaleTuningSeries *a, const PgscaleTuningSeries *b)
{
	double		sum = a->variance + b->variance;
	double		df;

	if (isnan(sum))
		return NAN;
	if (sum == 0)
		return 0;
	df = square_of(sum) / (square_of(a->variance) / a->df + square_of(b->variance) / b->df);
	return pgscale_tuning_student_95(df) * sqrt(sum);
}
