/*-------------------------------------------------------------------------
 *
 * verify.c
 *	  Verifies whether a change was an improvement.
 *
 * Each setting has metrics, figures that should be low or high.  Their values before
 * the change were stored with it, for each record of evidence, because a restart
 * empties the evidence.  Their values since it took effect are read.  The two windows
 * have the same length and are the nearest ones: the last before the change, and the
 * last until now, or until the next change of the setting.  The result is the
 * difference of the means with its confidence interval; if the interval contains zero,
 * the verdict is "cannot tell".
 *
 * Other changes meanwhile, such as the load, are not known, except changes of settings,
 * which are listed.
 *
 * A mean is the ratio of two sums: for example, the time of a transaction over the whole
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

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/row_builder.h"
#include "base/three_digits.h"
#include "base/units.h"
#include "tuning/changes/changes.h"
#include "tuning/findings.h"
#include "tuning/tuning.h"

PG_FUNCTION_INFO_V1(pgscale_tuning_verify);

/* Of fewer values nothing is said. */
#define SERIES_MIN	12

#define WINDOW_MS	((int64) pgscale_evidence_ms() * PGSCALE_EVIDENCE_MAX)
/* No verdict on less. */
#define LEAST_MS	((int64) pgscale_evidence_ms() * SERIES_MIN)

/* Counts and what each is divided by, in the order of time. */
typedef struct Series
{
	int			n;				/* pairs that are known */
	double		mean;			/* the ratio of their sums; NaN: unknown */
	double		variance;		/* of the mean; NaN: too few values */
	double		df;				/* that the variance is known with */
} Series;

static const Series unknown_series = {0, NAN, NAN, NAN};

/* Of four means or so a correlation beyond that is chance. */
#define MAX_CORRELATION 0.8

static double
square_of(double x)
{
	return x * x;
}

/* Values that are not finite are not known. */
static Series
series_of(const double *of, const double *per, int n)
{
	Series		series = unknown_series;
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
	if (series.n < SERIES_MIN)
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

/* What Student's t exceeds on either side with a probability of 2.5 %; n, its degrees of freedom, >= 1. */
static double
student_95(double n)
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

/*
 * Half the width of the 95 % confidence interval of the difference of their
 * means.  NaN: too few values.
 */
static double
series_difference(const Series *a, const Series *b)
{
	double		sum = a->variance + b->variance;
	double		df;

	if (isnan(sum))
		return NAN;
	if (sum == 0)
		return 0;
	df = square_of(sum) / (square_of(a->variance) / a->df + square_of(b->variance) / b->df);
	return student_95(df) * sqrt(sum);
}

static int
count_metrics(const PgscaleTuningMetric *const *metrics)
{
	int			n = 0;

	while (metrics && metrics[n])
		n++;
	return n;
}

void
pgscale_tuning_verify_remember(PgscaleTuningChange *change)
{
	const PgscaleTuningMetric *const *metrics;
	PgscaleEvidence *records;
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz since = now - WINDOW_MS * (USECS_PER_SEC / 1000);
	int			nmetrics;
	int			n;
	Datum	   *names;
	Datum	   *ends;
	Datum	   *values;
	int			dims[3];
	int			bounds[3] = {1, 1, 1};

	if (!pgscale_preload_done())
		return;
	metrics = pgscale_tuning_metrics(change->setting);
	nmetrics = count_metrics(metrics);
	records = palloc(sizeof(PgscaleEvidence) * PGSCALE_EVIDENCE_MAX);
	n = pgscale_evidence_read(Max(since, pgscale_tuning_set_at(change->setting)), now, records, PGSCALE_EVIDENCE_MAX);
	if (n == 0)
	{
		/* was there evidence, only not of this value? */
		if (pgscale_evidence_read(since, now, records, PGSCALE_EVIDENCE_MAX) > 0)
			change->ends = construct_empty_array(TIMESTAMPTZOID);
		pfree(records);
		return;
	}
	names = palloc(sizeof(Datum) * nmetrics);
	ends = palloc(sizeof(Datum) * n);
	values = palloc(sizeof(Datum) * n * nmetrics * 2);
	for (int i = 0; i < n; i++)
		ends[i] = TimestampTzGetDatum(records[i].until);
	for (int m = 0; m < nmetrics; m++)
	{
		names[m] = CStringGetTextDatum(metrics[m]->name);
		for (int i = 0; i < n; i++)
		{
			double		of;
			double		per;

			metrics[m]->parts(&records[i], &of, &per);
			values[2 * m * n + i] = Float8GetDatum(of);
			values[(2 * m + 1) * n + i] = Float8GetDatum(per);
		}
	}
	dims[0] = nmetrics;
	dims[1] = 2;
	dims[2] = n;
	change->metrics = construct_array(names, nmetrics, TEXTOID, -1, false, TYPALIGN_INT);
	change->ends = construct_array(ends, n, TIMESTAMPTZOID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE);
	change->values = construct_md_array(values, NULL, 3, dims, bounds, FLOAT8OID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE);
	pfree(records);
}

/* What is compared, and why nothing can be, if so. */
typedef struct Windows
{
	/* what was written down with the change */
	int			nmetrics;
	Datum	   *names;
	int			before_n;
	Datum	   *ends;
	Datum	   *values;			/* nmetrics * 2 * before_n: of and per, by
								 * record */

	int			before_from;	/* index of the first record */
	PgscaleEvidence *after;
	int			after_n;
	int64		ms;				/* of each */
	int64		before_ms;		/* all that is known of each */
	int64		after_ms;
	bool		over;			/* there will be no more of the latter */
	TimestampTz since;			/* all of it */
	TimestampTz until;
	const char *cannot;			/* NULL: it can */
} Windows;

static void
read_before(const PgscaleTuningChange *change, Windows *windows)
{
	int			n;

	if (!change->metrics || !change->ends || !change->values)
		return;
	deconstruct_array(change->metrics, TEXTOID, -1, false, TYPALIGN_INT, &windows->names, NULL, &windows->nmetrics);
	deconstruct_array(change->ends, TIMESTAMPTZOID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, &windows->ends, NULL, &windows->before_n);
	deconstruct_array(change->values, FLOAT8OID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, &windows->values, NULL, &n);
	if (n != windows->before_n * windows->nmetrics * 2)
		elog(ERROR, "the journal has %d values of %d metrics at %d times", n, windows->nmetrics, windows->before_n);
}

/* The metric's values in the last records of the window before. */
static Series
series_before(const Windows *windows, const char *metric)
{
	const int	n = windows->before_n - windows->before_from;

	for (int m = 0; m < windows->nmetrics; m++)
		if (strcmp(TextDatumGetCString(windows->names[m]), metric) == 0)
		{
			const Datum *parts = &windows->values[2 * m * windows->before_n + windows->before_from];
			double	   *of = palloc(sizeof(double) * Max(n, 1));
			double	   *per = palloc(sizeof(double) * Max(n, 1));

			for (int i = 0; i < n; i++)
			{
				of[i] = DatumGetFloat8(parts[i]);
				per[i] = DatumGetFloat8(parts[windows->before_n + i]);
			}
			return series_of(of, per, n);
		}
	return unknown_series;
}

static Series
series_after(const Windows *windows, const PgscaleTuningMetric *metric)
{
	double	   *of = palloc(sizeof(double) * Max(windows->after_n, 1));
	double	   *per = palloc(sizeof(double) * Max(windows->after_n, 1));

	for (int i = 0; i < windows->after_n; i++)
		metric->parts(&windows->after[i], &of[i], &per[i]);
	return series_of(of, per, windows->after_n);
}

static int64
duration_ms(FunctionCallInfo fcinfo)
{
	const double ms = pgscale_interval_ms(PG_GETARG_INTERVAL_P(1));

	if (!(ms >= LEAST_MS && ms <= WINDOW_MS))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("duration must be from %d s to %d s", (int) (LEAST_MS / 1000), (int) (WINDOW_MS / 1000)),
				 errhint("NULL takes the longest time that is known both before and after.")));
	return (int64) ms;
}

/* ms 0: as long as there is. */
static void
choose_windows(const PgscaleTuningChange *change, int64 ms, Windows *windows)
{
	TimestampTz effective_at = pgscale_tuning_journal_effective_at(change);
	TimestampTz end = Min(GetCurrentTimestamp(), pgscale_tuning_journal_next(change));
	int64		need_ms;
	int			most;
	PgscaleTuningLines lines;
	TimestampTz set_at = pgscale_tuning_set_at(change->setting);

	/*
	 * a line that was changed by hand since no longer belongs to that change
	 */
	pgscale_tuning_lines_read(&lines, true);
	if (lines.known && !pgscale_tuning_line_same(pgscale_tuning_line_of(&lines, change->setting), change->new_value) &&
		effective_at != 0 && set_at > effective_at)
		end = Min(end, set_at);
	windows->after_n = 0;
	read_before(change, windows);
	if (effective_at == 0)
	{
		const struct config_generic *record = pgscale_compat_find_setting(change->setting);

		windows->cannot = record && record->context == PGC_POSTMASTER
			? "cannot tell yet: it takes effect at the next restart"
			: "cannot tell yet: it takes effect at the next reload";
		return;
	}
	if (change->other_node)
	{
		windows->cannot = "cannot tell: it was made on another node, and the evidence before it is that node's";
		return;
	}
	if (windows->before_n == 0)
	{
		windows->cannot = change->ends
			? "cannot tell: the value before was in effect for less than a record of evidence; waiting does not help"
			: "cannot tell: no evidence was recorded before the change; waiting does not help";
		return;
	}
	windows->after = palloc(sizeof(PgscaleEvidence) * PGSCALE_EVIDENCE_MAX);
	windows->after_n = pgscale_evidence_read(effective_at, end, windows->after, PGSCALE_EVIDENCE_MAX);
	windows->before_ms = (int64) windows->before_n * pgscale_evidence_ms();
	windows->after_ms = (int64) windows->after_n * pgscale_evidence_ms();
	windows->over = end < GetCurrentTimestamp() - USECS_PER_SEC;
	need_ms = ms ? ms : LEAST_MS;
	windows->ms = ms ? ms : Min(windows->before_ms, windows->after_ms);
	if (windows->before_ms < need_ms)
		windows->cannot = psprintf("cannot tell: only " INT64_FORMAT " s were recorded with the value before, of " INT64_FORMAT " s;"
								   " waiting does not help",
								   windows->before_ms / 1000, need_ms / 1000);
	else if (windows->after_ms < need_ms && windows->over)
		windows->cannot = psprintf("cannot tell: it was in effect for " INT64_FORMAT " s, of " INT64_FORMAT " s;"
								   " waiting does not help",
								   windows->after_ms / 1000, need_ms / 1000);
	else if (windows->after_ms < need_ms)
		windows->cannot = psprintf("cannot tell yet: wait " INT64_FORMAT " s more",
								   (need_ms - windows->after_ms + 999) / 1000 + pgscale_evidence_ms() / 1000);
	if (windows->cannot)
	{
		windows->after_n = 0;
		return;
	}

	/* the last ones of each */
	most = (int) (windows->ms / pgscale_evidence_ms());
	windows->before_from = Max(0, windows->before_n - most);
	windows->after += Max(0, windows->after_n - most);
	windows->after_n = Min(windows->after_n, most);
	windows->since = DatumGetTimestampTz(windows->ends[windows->before_from]);
	windows->until = windows->after[windows->after_n - 1].until;
}

typedef struct Comparison
{
	Series		before;
	Series		after;
	double		difference;		/* relative, as the next two; NaN: unknown */
	double		low;
	double		high;
	const char *verdict;
	const char *reason;
} Comparison;

/*
 * How much more time would decide, if all goes on like this?  The interval shrinks as
 * the square root of the time.
 */
static const char *
how_long(const Windows *windows, double difference, double half)
{
	double		times = difference == 0 ? INFINITY : pow(half / difference, 2);
	double		need_ms = ceil(times * windows->ms / 60000) * 60000;

	if (need_ms > WINDOW_MS)
		return psprintf("a difference this small would take more than the %d s of evidence that are kept", (int) (WINDOW_MS / 1000));
	if (need_ms > windows->before_ms)
		return psprintf("it would take about %.0f s of each, and " INT64_FORMAT " s were recorded with the value before:"
						" waiting does not help", need_ms / 1000, windows->before_ms / 1000);
	if (need_ms <= windows->after_ms)
		return psprintf("a duration of about %.0f s would be enough", need_ms / 1000);
	if (windows->over)
		return psprintf("it would take about %.0f s of each, and it was in effect for " INT64_FORMAT " s: waiting does not help",
						need_ms / 1000, windows->after_ms / 1000);
	return psprintf("about %.0f s more would be enough, if it goes on like this", (need_ms - windows->after_ms) / 1000);
}

/* How much more is needed of a metric that is known of too few records. */
static const char *
how_many_more(const Windows *windows, const Series *before, const Series *after)
{
	if (before->n < SERIES_MIN || windows->over)
		return "waiting does not help";
	return psprintf("%d s more in which it is known would be enough",
					Max(SERIES_MIN - after->n, 1) * pgscale_evidence_ms() / 1000);
}

static Comparison
verify_compare(const Windows *windows, const PgscaleTuningMetric *metric, int others)
{
	Comparison	c = {.difference = NAN,.low = NAN,.high = NAN,.verdict = "cannot tell"};
	double		half;
	double		difference;

	if (windows->cannot)
	{
		c.before = c.after = unknown_series;
		c.reason = windows->cannot;
		return c;
	}
	c.before = series_before(windows, metric->name);
	c.after = series_after(windows, metric);
	half = series_difference(&c.before, &c.after);
	if (isnan(half))
	{
		c.reason = psprintf("cannot tell: %s is known of %d records before and %d after, of at least %d; %s",
							metric->name, c.before.n, c.after.n, SERIES_MIN,
							how_many_more(windows, &c.before, &c.after));
		return c;
	}
	difference = c.after.mean - c.before.mean;
	if (c.before.mean != 0)
	{
		c.difference = difference / fabs(c.before.mean);
		/* none of them can be negative */
		c.low = Max((difference - half) / fabs(c.before.mean), -1);
		c.high = (difference + half) / fabs(c.before.mean);
	}
	if (difference - half > 0)
		c.verdict = metric->less_is_better ? "worse" : "better";
	else if (difference + half < 0)
		c.verdict = metric->less_is_better ? "better" : "worse";
	c.reason = psprintf("%g %s, %g before, over " INT64_FORMAT " s each%s%s", pgscale_three_digits(c.after.mean), metric->unit, pgscale_three_digits(c.before.mean),
						windows->ms / 1000,
						strcmp(c.verdict, "cannot tell") != 0 ? "" :
						psprintf("; the interval of the difference contains zero: %s", how_long(windows, difference, half)),
						others == 0 ? "" : psprintf("; %d other changes of settings took place meanwhile", others));
	return c;
}

static Jsonb *
verify_outcome(const Windows *windows, const PgscaleTuningMetric *metric, const Comparison *c)
{
	PgscaleTuningJson json = {0};

	pgscale_tuning_json_text(&json, "verdict", c->verdict);
	pgscale_tuning_json_text(&json, "metric", metric->name);
	pgscale_tuning_json_text(&json, "unit", metric->unit);
	pgscale_tuning_json_number(&json, "before", c->before.mean);
	pgscale_tuning_json_number(&json, "after", c->after.mean);
	pgscale_tuning_json_number(&json, "difference", c->difference);
	pgscale_tuning_json_number(&json, "difference_low", c->low);
	pgscale_tuning_json_number(&json, "difference_high", c->high);
	pgscale_tuning_json_number(&json, "duration_s", windows->ms / 1000);
	pgscale_tuning_json_text(&json, "verified_at", timestamptz_to_str(GetCurrentTimestamp()));
	pgscale_tuning_json_text(&json, "reason", c->reason);
	return pgscale_tuning_json_end(&json);
}

static void
check_verifiable(int64 id, PgscaleTuningChange *change)
{
	if (!pgscale_tuning_journal_get(id, change))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("there is no change " INT64_FORMAT " in this database's journal", id),
				 errhint("pgscale.tuning_journal lists the changes. Each database with the extension has a journal of its own.")));
	if (change->foreign)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("change " INT64_FORMAT " is of %s", id, change->foreign),
				 errhint("Its row came here with a copy of that journal: verify it there.")));
	if (strcmp(change->state, PGSCALE_CHANGE_FAILED) == 0 ||
		strcmp(change->state, PGSCALE_CHANGE_BEGUN) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("change " INT64_FORMAT " was not made", id),
				 errhint("pgscale.tuning_journal shows its state and its error.")));
}

/* pgscale.verify(change, duration) */
Datum
pgscale_tuning_verify(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	const PgscaleTuningMetric *const *metrics;
	PgscaleTuningChange change;
	Windows		windows = {0};
	int64		ms;
	int			n;
	int			others = 0;
	int			decides = -1;
	Comparison *comparisons;

	pgscale_preload_require();
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("change must not be null"),
				 errhint("pgscale.tuning_journal lists the changes.")));
	ms = PG_ARGISNULL(1) ? 0 : duration_ms(fcinfo);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	check_verifiable(PG_GETARG_INT64(0), &change);
	choose_windows(&change, ms, &windows);
	if (!windows.cannot)
		others = pgscale_tuning_journal_others(change.id, windows.since, windows.until);
	metrics = pgscale_tuning_metrics(change.setting);
	n = count_metrics(metrics);
	comparisons = palloc0(sizeof(Comparison) * Max(n, 1));
	for (int i = 0; i < n; i++)
	{
		comparisons[i] = verify_compare(&windows, metrics[i], others);
		if (decides < 0 && strcmp(comparisons[i].verdict, "cannot tell") != 0)
			decides = i;
	}
	for (int i = 0; i < n; i++)
	{
		const Comparison *c = &comparisons[i];
		PgscaleRow	row = {0};

		pgscale_row_text(&row, metrics[i]->name);
		pgscale_row_text(&row, metrics[i]->unit);
		pgscale_row_float8(&row, pgscale_three_digits(c->before.mean));
		pgscale_row_float8(&row, pgscale_three_digits(c->after.mean));
		pgscale_row_float8(&row, pgscale_three_digits(c->difference));
		pgscale_row_float8(&row, pgscale_three_digits(c->low));
		pgscale_row_float8(&row, pgscale_three_digits(c->high));
		pgscale_row_int4(&row, c->before.n);
		pgscale_row_int4(&row, c->after.n);
		pgscale_row_text(&row, c->verdict);
		pgscale_row_bool(&row, i == decides);
		pgscale_row_text(&row, c->reason);
		pgscale_row_end(&row, rsinfo);
	}
	/* if the journal cannot be written it is only reported */
	if (n > 0 && !RecoveryInProgress() && !XactReadOnly)
		pgscale_tuning_journal_set(change.id, "outcome", JSONBOID,
								   JsonbPGetDatum(verify_outcome(&windows, metrics[Max(decides, 0)], &comparisons[Max(decides, 0)])));
	return (Datum) 0;
}
