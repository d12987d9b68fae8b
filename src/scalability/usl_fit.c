/*-------------------------------------------------------------------------
 *
 * usl_fit.c
 *	  The Universal Scalability Law, fitted to measurements.
 *
 *	  X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1))
 *
 * N. J. Gunther, "Guerrilla Capacity Planning", Springer 2007.  Divided out,
 *
 *	  N / X = c0 + c1 (N - 1) + c2 N (N - 1),  lambda = 1 / c0,
 *	  sigma = c1 / c0, kappa = c2 / c0,
 *
 * it is linear in its coefficients.  With the weights (X / N)^2 the squares are
 * those of the relative errors of X, to the first order, and these are what has
 * about the same size at all N.  None of the coefficients can be negative; the
 * best of the solutions that have some of them at 0 and the others above is
 * that least-squares solution, and there are but seven such choices.  Throughput
 * peaks at N* = sqrt((1 - sigma) / kappa), and not at all if kappa is 0:
 * Amdahl's law.  Below one session there is no session to wait for: there X is
 * lambda N.
 *
 * Intervals are by parametric bootstrap: the fitted throughputs, each with a
 * log-normal error as large as the residuals say, are fitted again and again.
 * How large it is is itself uncertain with few points, and drawn, too, from
 * what a chi-squared distribution leaves possible.  Drawing points instead would
 * often lose an end of a short sweep, and drawing from half a dozen residuals
 * gives intervals that are too narrow.
 *
 * Pure: what it is given is all that it knows, and it raises no error of its own.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "common/pg_prng.h"
#include "miscadmin.h"

#include "scalability/usl_fit.h"

#define REPLICATES		1000
#define SEED			1
#define LOW				24		/* of the replicates, sorted: 2.5 and 97.5 % */
#define HIGH			975

/* Concurrencies are different if one is larger than another by this factor. */
#define DIFFERENT		1.1
#define MIN_DIFFERENT	4

/* The data must reach this fraction of the peak's concurrency. */
#define MIN_REACH		0.5

/* If the points exceed the peak by this factor, a missing peak does not come from too narrow a range. */
#define MIN_PAST		1.5

/*
 * Points that are less off the law than the first do not hide it; more than the
 * second hides everything but a peak that is clear all the same.
 */
#define MIN_SCATTER		0.1
#define MAX_SCATTER		0.25

/*
 * They must reach this fraction of the limit if there is no peak; the latter where
 * none is possible.
 */
#define MIN_LEVEL		0.75
#define MIN_LEVEL_CERTAIN	0.5

/*
 * The interval must not be wider than this fraction of the peak's concurrency;
 * where all of it was measured, than the other one.
 */
#define MAX_WIDTH		0.5
#define MAX_WIDTH_MEASURED	1.0

/* From here on the residuals show the size of the error well enough. */
#define MANY_DEGREES	100

/* Columns this close to a combination of others add nothing. */
#define MIN_PIVOT		1e-12

/* A better fit by less than this is rounding. */
#define MIN_GAIN		1e-13

/* Normal equations, of N and X in units of the largest ones. */
typedef struct Sums
{
	double		a[3][3];
	double		b[3];
	double		weight;
} Sums;

/* c is all 0 without a solution. */
typedef struct Solution
{
	double		c[3];
	double		error;			/* sum of squares */
} Solution;

static void
usl_add(Sums *sums, double n, double x, double weight, double max_n)
{
	double		above = Max(n - 1 / max_n, 0);	/* (N - 1) / max N */
	double		rate = x / n;
	double		row[3] = {rate, rate * above, rate * above * n};

	for (int i = 0; i < 3; i++)
	{
		for (int j = 0; j <= i; j++)
			sums->a[i][j] += weight * row[i] * row[j];
		sums->b[i] += weight * row[i];
	}
	sums->weight += weight;
}

/*
 * Least squares with these coefficients only, by Cholesky's decomposition of the normal
 * equations, scaled to a diagonal of 1.  Returns false if there is no solution, or none
 * with all of them above 0.
 */
static bool
usl_solve(const Sums *sums, const int *use, int nuse, Solution *solution)
{
	double		l[3][3];
	double		z[3];
	double		scale[3];

	for (int i = 0; i < nuse; i++)
	{
		scale[i] = sqrt(sums->a[use[i]][use[i]]);
		if (!(scale[i] > 0) || isinf(scale[i]))
			return false;
	}
	for (int i = 0; i < nuse; i++)
	{
		double		pivot = 1;

		for (int j = 0; j < i; j++)
		{
			double		sum = sums->a[use[i]][use[j]] / (scale[i] * scale[j]);

			for (int k = 0; k < j; k++)
				sum -= l[i][k] * l[j][k];
			l[i][j] = sum / l[j][j];
			pivot -= l[i][j] * l[i][j];
		}
		if (!(pivot > MIN_PIVOT))
			return false;
		l[i][i] = sqrt(pivot);
		z[i] = sums->b[use[i]] / scale[i];
		for (int k = 0; k < i; k++)
			z[i] -= l[i][k] * z[k];
		z[i] /= l[i][i];
	}
	memset(solution, 0, sizeof(*solution));
	solution->error = sums->weight;
	for (int i = nuse - 1; i >= 0; i--)
	{
		for (int k = i + 1; k < nuse; k++)
			z[i] -= l[k][i] * z[k];
		z[i] /= l[i][i];
		solution->c[use[i]] = z[i] / scale[i];
		if (!(solution->c[use[i]] > 0) || isinf(solution->c[use[i]]))
			return false;
		solution->error -= solution->c[use[i]] * sums->b[use[i]];
	}
	return true;
}

/* Non-negative least squares. */
static Solution
usl_best(const Sums *sums)
{
	/* the fewer the coefficients the earlier: of equal ones, the first wins */
	static const struct
	{
		int			nuse;
		int			use[3];
	}			choices[] = {
		{1, {0}}, {1, {1}}, {1, {2}},
		{2, {0, 1}}, {2, {0, 2}}, {2, {1, 2}},
		{3, {0, 1, 2}}
	};
	Solution	least = {{0}, sums->weight};

	for (int i = 0; i < lengthof(choices); i++)
	{
		Solution	solution;

		if (usl_solve(sums, choices[i].use, choices[i].nuse, &solution) &&
			solution.error < least.error - MIN_GAIN * sums->weight)
			least = solution;
	}
	return least;
}

double
pgscale_scalability_usl_throughput(double lambda, double sigma, double kappa, double n)
{
	double		above = Max(n - 1, 0);

	if (isinf(n))
		return kappa > 0 ? 0 : lambda / sigma;
	return lambda * n / (1 + above * (sigma + kappa * n));
}

/* The law's peak; infinite if there is none. */
static double
usl_peak(double sigma, double kappa)
{
	if (sigma >= 1)
		return 1;
	if (kappa <= 0)
		return INFINITY;
	return Max(sqrt((1 - sigma) / kappa), 1);
}

/*
 * Parameters of a solution, back in the units of the data. lambda is infinite if the
 * data do not determine it.
 */
static void
usl_parameters(const Solution *solution, double max_n, double max_x,
			   double *lambda, double *sigma, double *kappa)
{
	const double *c = solution->c;

	*lambda = max_x / max_n / c[0];
	*sigma = c[1] / c[0] / max_n;
	*kappa = c[2] / c[0] / max_n / max_n;
}

/* Box and Muller's. */
static double
usl_normal(pg_prng_state *random)
{
	double		u = 1 - pg_prng_double(random);

	return sqrt(-2 * log(u)) * cos(2 * M_PI * pg_prng_double(random));
}

/* How many times the error that the residuals show it may really be. */
static double
error_factor(pg_prng_state *random, int degrees)
{
	double		chi2 = 0;

	if (degrees >= MANY_DEGREES)
		return 1;
	for (int i = 0; i < degrees; i++)
	{
		double		z = usl_normal(random);

		chi2 += z * z;
	}
	return sqrt(degrees / Max(chi2, 1e-300));
}

static int
compare_double(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return x < y ? -1 : x > y;
}

static int
compare_points(const void *a, const void *b)
{
	const PgscaleScalabilityUslPoint *p = a;
	const PgscaleScalabilityUslPoint *q = b;
	int			order = compare_double(&p->n, &q->n);

	if (order == 0)
		order = compare_double(&p->x, &q->x);
	return order ? order : compare_double(&p->weight, &q->weight);
}

static void
set_intervals(PgscaleScalabilityUsl *usl, const PgscaleScalabilityUslPoint *points, int npoints, double max_x)
{
	double	   *peaks_n = palloc(sizeof(double) * REPLICATES);
	double	   *peaks_x = palloc(sizeof(double) * REPLICATES);
	int			degrees = npoints - 3;
	double		error = 0;
	double		weights = 0;
	pg_prng_state random;

	for (int i = 0; i < npoints; i++)
	{
		double		residual = log(points[i].x / pgscale_scalability_usl_throughput(usl->lambda, usl->sigma,
																					usl->kappa, points[i].n));

		error += points[i].weight * residual * residual;
		weights += points[i].weight;
	}
	usl->scatter = sqrt(error / weights * npoints / degrees);
	error = sqrt(error / degrees);

	pg_prng_seed(&random, SEED);
	for (int r = 0; r < REPLICATES; r++)
	{
		Sums		sums = {0};
		Solution	solution;
		double		size = error * error_factor(&random, degrees);
		double		lambda;
		double		sigma;
		double		kappa;

		CHECK_FOR_INTERRUPTS();
		for (int i = 0; i < npoints; i++)
		{
			double		x = pgscale_scalability_usl_throughput(usl->lambda, usl->sigma, usl->kappa, points[i].n);

			x *= exp(size / sqrt(points[i].weight) * usl_normal(&random));
			usl_add(&sums, points[i].n / usl->max_n, x / max_x, points[i].weight, usl->max_n);
		}
		solution = usl_best(&sums);
		usl_parameters(&solution, usl->max_n, max_x, &lambda, &sigma, &kappa);

		/* Errors so large that no figures are left leave everything possible. */
		peaks_n[r] = solution.c[0] > 0 ? usl_peak(sigma, kappa) : r % 2 ? 1 : INFINITY;
		peaks_x[r] = solution.c[0] > 0 ? pgscale_scalability_usl_throughput(lambda, sigma, kappa, peaks_n[r])
			: r % 2 ? 0 : INFINITY;
	}
	qsort(peaks_n, REPLICATES, sizeof(double), compare_double);
	qsort(peaks_x, REPLICATES, sizeof(double), compare_double);
	usl->peak_n_low = peaks_n[LOW];
	usl->peak_n_high = peaks_n[HIGH];
	usl->peak_x_low = peaks_x[LOW];
	usl->peak_x_high = peaks_x[HIGH];
	pfree(peaks_n);
	pfree(peaks_x);
}

static void
set_r2(PgscaleScalabilityUsl *usl, const PgscaleScalabilityUslPoint *points, int npoints)
{
	double		weight = 0;
	double		mean = 0;
	double		total = 0;
	double		left = 0;

	for (int i = 0; i < npoints; i++)
	{
		weight += points[i].weight;
		mean += points[i].weight * (points[i].x - mean) / weight;
	}
	for (int i = 0; i < npoints; i++)
	{
		/* in units of the mean, which cannot overflow as easily */
		double		off = points[i].x / mean - 1;
		double		error = (points[i].x - pgscale_scalability_usl_throughput(usl->lambda, usl->sigma, usl->kappa,
																			  points[i].n)) / mean;

		total += points[i].weight * off * off;
		left += points[i].weight * error * error;
	}
	usl->r2 = total > 0 ? 1 - left / total : NAN;
}

/* A number as a person would write it. */
static const char *
usl_figure(char *buffer, double number)
{
	snprintf(buffer, 32, number >= 100 && number < 1e15 ? "%.0f" : "%.3g", number);
	return buffer;
}

/*
 * Do the points say next to nothing about the law?  If throughputs are all about equal,
 * r2 is meaningless.
 */
static bool
is_scattered(const PgscaleScalabilityUsl *usl)
{
	if (isnan(usl->r2) || usl->scatter < MIN_SCATTER)
		return false;
	return usl->r2 < 0 || (!usl->peaked && usl->scatter > MAX_SCATTER);
}

/* What the fit says, or why it cannot say it. */
static void
usl_judge(PgscaleScalabilityUsl *usl)
{
	bool		measured = usl->peak_n_high <= usl->max_n;
	bool		levels = usl->sigma * usl->max_n >=
		(isinf(usl->peak_n_low) ? MIN_LEVEL_CERTAIN : MIN_LEVEL) * (1 + usl->sigma * (usl->max_n - 1));
	bool		unsure = false;
	char		max_n[32];
	char		low[32];
	char		high[32];

	usl_figure(max_n, usl->max_n);
	usl_figure(low, usl->peak_n_low);
	usl_figure(high, usl->peak_n_high);

	if (usl->peak_n < usl->min_n)
		snprintf(usl->status, sizeof(usl->status),
				 "insufficient range: throughput falls from the least concurrency on, %s",
				 usl_figure(low, usl->min_n));
	else if (isnan(usl->r2) || (isinf(usl->peak_n_high) && usl->peak_n_low > usl->max_n && levels))
		snprintf(usl->status, sizeof(usl->status),
				 "no peak up to concurrency %s: Amdahl's law fits, with a limit of %s",
				 max_n, usl_figure(high, usl->lambda / usl->sigma));
	else if (isinf(usl->peak_n_low))
		snprintf(usl->status, sizeof(usl->status),
				 "insufficient range: throughput still rises at the greatest concurrency, %s", max_n);
	else if (isinf(usl->peak_n_high))
	{
		unsure = true;
		snprintf(usl->status, sizeof(usl->status),
				 "insufficient range: a peak may be anywhere from concurrency %s on, if there is one", low);
	}
	else if (usl->max_n < MIN_REACH * usl->peak_n)
		snprintf(usl->status, sizeof(usl->status),
				 "insufficient range: the greatest concurrency, %s, is less than half of where the peak would be, %s",
				 max_n, usl_figure(high, usl->peak_n));
	else if (usl->peak_n_high - usl->peak_n_low >
			 (measured ? MAX_WIDTH_MEASURED : MAX_WIDTH) * usl->peak_n)
	{
		unsure = true;
		snprintf(usl->status, sizeof(usl->status),
				 "insufficient range: the peak may be anywhere from concurrency %s to %s", low, high);
	}
	else
	{
		usl->peaked = true;
		strlcpy(usl->status, "ok", sizeof(usl->status));
	}

	/* Cases in which more range would not help. */
	if (is_scattered(usl) || (unsure && usl->max_n >= MIN_PAST * usl->peak_n))
	{
		usl->peaked = false;
		snprintf(usl->status, sizeof(usl->status),
				 "noisy: a point is off the law by %s %%, too much for %d points to locate a peak",
				 usl_figure(low, 100 * usl->scatter), usl->points);
	}
}

void
pgscale_scalability_usl_fit(PgscaleScalabilityUsl *usl, PgscaleScalabilityUslPoint *points, int npoints)
{
	Sums		sums = {0};
	Solution	solution;
	double		max_x = 0;
	double		last = 0;
	int			different = 0;

	qsort(points, npoints, sizeof(PgscaleScalabilityUslPoint), compare_points);
	memset(usl, 0, sizeof(*usl));
	usl->points = npoints;
	usl->min_n = points[0].n;
	usl->max_n = points[npoints - 1].n;
	for (int i = 0; i < npoints; i++)
	{
		/* below one session only lambda shows */
		double		n = Max(points[i].n, 1);

		if (n > last * DIFFERENT)
		{
			different++;
			last = n;
		}
		max_x = Max(max_x, points[i].x);
	}
	if (different < MIN_DIFFERENT)
	{
		snprintf(usl->status, sizeof(usl->status),
				 "insufficient range: concurrencies from 1 on that differ by more than a tenth: %d, at least %d are needed",
				 different, MIN_DIFFERENT);
		return;
	}

	for (int i = 0; i < npoints; i++)
		usl_add(&sums, points[i].n / usl->max_n, points[i].x / max_x, points[i].weight, usl->max_n);
	solution = usl_best(&sums);
	usl_parameters(&solution, usl->max_n, max_x, &usl->lambda, &usl->sigma, &usl->kappa);
	usl->peak_n = usl_peak(usl->sigma, usl->kappa);
	usl->peak_x = pgscale_scalability_usl_throughput(usl->lambda, usl->sigma, usl->kappa, usl->peak_n);
	if (!(solution.c[0] > 0) || isinf(usl->lambda) || isnan(usl->peak_n))
	{
		strlcpy(usl->status, "insufficient range: the throughput of one session is undetermined",
				sizeof(usl->status));
		return;
	}
	usl->fitted = true;
	set_r2(usl, points, npoints);
	set_intervals(usl, points, npoints, max_x);
	usl_judge(usl);
}
