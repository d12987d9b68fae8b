/*-------------------------------------------------------------------------
 *
 * activity.c
 *	  Average active sessions over time, by class of wait event.
 *
 * Seconds that the timeline has come from the timeline: it is finer than the archive's
 * minutes and than the history, which has one sample a second.  There is one exception:
 * if the archive has the time under another node, the archive is used, as in all
 * functions that read the past.  All other time comes from the archive and the history.
 *
 * A row of the archive is spread evenly over its time, and so is its known part.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/pg_compat.h"
#include "sampler/past/past.h"

#define BUCKETS_MAX		100000
#define BUCKET_MAX_DAYS 36500

/* At most that many buckets and one, if their length is not given. */
#define BUCKETS_ASKED	60

PG_FUNCTION_INFO_V1(pgscale_activity);

/* One at a time of each class; numbered as they come. */
typedef struct Classes
{
	int			n;
	PgscaleSamplerPastText texts[64];
} Classes;

typedef struct Buckets
{
	PgscaleSamplerPastRange period;
	int64		size_us;
	int64		first;			/* number of the first, counted from 2000 */
	int64		n;
	double	   *known_ms;
	double	   *ms;				/* by bucket and class */
} Buckets;

static int64
bucket_us(const PgscaleSamplerPastRange *period, const Interval *asked)
{
	static const int lengths_s[] = {1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400};
	const int64 length = period->end - period->begin;
	double		asked_us;

	if (!asked)
	{
		for (int i = 0; i < lengthof(lengths_s); i++)
			if (length <= BUCKETS_ASKED * lengths_s[i] * USECS_PER_SEC)
				return lengths_s[i] * USECS_PER_SEC;
		return USECS_PER_DAY * (int64) ceil(length / (double) (USECS_PER_DAY * BUCKETS_ASKED));
	}
	asked_us = asked->day * (double) USECS_PER_DAY + asked->time;
	if (asked->month != 0 || asked_us < USECS_PER_SEC || asked_us > BUCKET_MAX_DAYS * (double) USECS_PER_DAY)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("bucket must be from a second to %d days, without months", BUCKET_MAX_DAYS),
				 errhint("Use a time such as interval '1 minute'.")));
	if (length / asked_us > BUCKETS_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("there would be more than %d buckets", BUCKETS_MAX),
				 errhint("Use a longer bucket or a shorter period.")));
	return (int64) asked_us;
}

static int
class_number(Classes *classes, PgscaleSamplerPastText text)
{
	for (int i = 0; i < classes->n; i++)
		if (classes->texts[i] == text)
			return i;
	if (classes->n == lengthof(classes->texts))
		return classes->n - 1;
	classes->texts[classes->n++] = text;

	return classes->n - 1;
}

/* Some ranges of time, in order, none within another. */
typedef struct Ranges
{
	PgscaleSamplerPastRange *ranges;
	int			n;
} Ranges;

/* Spreads what lies in a range over the buckets, as far as it lies in those ranges: into[bucket * step]. */
static void
spread_over(const Buckets *buckets, const Ranges *within, const PgscaleSamplerPastRange *range, double ms, double *into, int step)
{
	const double length = range->end - range->begin;

	for (int i = pgscale_sampler_past_find(within->ranges, within->n, range->begin);
		 i < within->n && within->ranges[i].begin < range->end; i++)
	{
		const TimestampTz end = Min(range->end, within->ranges[i].end);
		TimestampTz at = Max(range->begin, within->ranges[i].begin);

		while (at < end)
		{
			const int64 bucket = pgscale_sampler_past_floor(at, buckets->size_us);
			const TimestampTz next = Min(end, (bucket + 1) * buckets->size_us);

			into[(bucket - buckets->first) * step] += ms * ((next - at) / length);
			at = next;
		}
	}
}

/* All of a past that lies in those ranges. */
static void
spread_past(const Buckets *buckets, Classes *classes, const PgscaleSamplerPast *past, const Ranges *within)
{
	for (int64 i = 0; i < past->nspans; i++)
	{
		CHECK_FOR_INTERRUPTS();
		spread_over(buckets, within, &past->spans[i].range, past->spans[i].known_ms, buckets->known_ms, 1);
	}
	for (int64 i = 0; i < past->nslices; i++)
	{
		CHECK_FOR_INTERRUPTS();
		spread_over(buckets, within, &past->slices[i].range, past->slices[i].ms,
					buckets->ms + class_number(classes, past->slices[i].class), classes->n);
	}
}

/* The period without the spans of a past: all of them, or those of other servers. */
static Ranges
period_without(const PgscaleSamplerPastRange *period, const PgscaleSamplerPast *past, bool other_nodes)
{
	PgscaleSamplerPastRange *ranges = MemoryContextAllocHuge(CurrentMemoryContext,
															 Max(past->nspans, 1) * sizeof(PgscaleSamplerPastRange));
	Ranges		left;
	int			n = 0;

	for (int64 i = 0; i < past->nspans; i++)
		if (!other_nodes || past->spans[i].other_node)
			ranges[n++] = past->spans[i].range;
	left.ranges = pgscale_sampler_past_subtract(period, ranges, n, &left.n);
	return left;
}

typedef struct ClassSessions
{
	const char *name;
	double		sessions;
} ClassSessions;

static int
compare_classes(const void *a, const void *b)
{
	const ClassSessions *one = a;
	const ClassSessions *two = b;

	if (one->sessions != two->sessions)
		return one->sessions > two->sessions ? -1 : 1;
	return strcmp(one->name, two->name);
}

static void
put_sessions(ReturnSetInfo *rsinfo, TimestampTz at, const char *class, double sessions, double covered)
{
	Datum		values[4];
	bool		nulls[4] = {false, class == NULL, class == NULL, false};

	values[0] = TimestampTzGetDatum(at);
	values[1] = class ? CStringGetTextDatum(class) : (Datum) 0;
	values[2] = Float8GetDatum(sessions);
	values[3] = Float8GetDatum(covered);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

static void
put_bucket_rows(ReturnSetInfo *rsinfo, const Buckets *buckets, int64 i, const Classes *classes, const PgscaleSamplerPastTexts *texts)
{
	const TimestampTz begin = (buckets->first + i) * buckets->size_us;
	const double length_ms = buckets->size_us / 1000.0;
	const double known_ms = buckets->known_ms[i];
	const double covered = Min(known_ms / length_ms, 1);
	ClassSessions sessions[lengthof(classes->texts)];
	int			n = 0;

	if (known_ms <= 0)
	{
		put_sessions(rsinfo, begin, NULL, 0, 0);
		return;
	}
	for (int c = 0; c < classes->n; c++)
	{
		const double ms = buckets->ms[i * classes->n + c];

		if (ms > 0)
		{
			const char *name = pgscale_sampler_past_text(texts, classes->texts[c]);

			sessions[n].name = name ? name : "unknown";
			sessions[n++].sessions = ms / known_ms;
		}
	}
	if (n == 0)
	{
		sessions[n].name = "CPU";
		sessions[n++].sessions = 0;
	}
	qsort(sessions, n, sizeof(ClassSessions), compare_classes);
	for (int c = 0; c < n; c++)
		put_sessions(rsinfo, begin, sessions[c].name, sessions[c].sessions, covered);
}

/*
 * pgscale.activity(since, until, bucket): average sessions in each bucket of time that is
 * a multiple of its length since 2000, by class of what they waited for.
 */
Datum
pgscale_activity(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	const PgscaleSamplerPast *past;
	PgscaleSamplerPast *seconds;
	Buckets		buckets = {0};
	Classes		classes = {0};
	Ranges		ours;
	Ranges		rest;

	buckets.period = pgscale_sampler_past_period(fcinfo);
	buckets.size_us = bucket_us(&buckets.period, PG_ARGISNULL(2) ? NULL : PG_GETARG_INTERVAL_P(2));
	InitMaterializedSRF(fcinfo, 0);
	if (buckets.period.begin >= buckets.period.end)
		return (Datum) 0;

	past = pgscale_sampler_past_sums(&buckets.period, PGSCALE_PAST_CLASSES);
	ours = period_without(&buckets.period, past, true);
	seconds = pgscale_sampler_past_create(PGSCALE_PAST_CLASSES, PGSCALE_PAST_WHOLE, past->texts);
	pgscale_sampler_past_read_timeline(ours.ranges, ours.n, seconds);
	rest = period_without(&buckets.period, seconds, false);

	buckets.first = pgscale_sampler_past_floor(buckets.period.begin, buckets.size_us);
	buckets.n = pgscale_sampler_past_floor(buckets.period.end - 1, buckets.size_us) - buckets.first + 1;
	for (int64 i = 0; i < past->nslices; i++)
		(void) class_number(&classes, past->slices[i].class);
	for (int64 i = 0; i < seconds->nslices; i++)
		(void) class_number(&classes, seconds->slices[i].class);
	buckets.known_ms = MemoryContextAllocExtended(CurrentMemoryContext, buckets.n * sizeof(double), MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	buckets.ms = MemoryContextAllocExtended(CurrentMemoryContext, Max(buckets.n * classes.n, 1) * sizeof(double),
											MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	spread_past(&buckets, &classes, seconds, &ours);
	spread_past(&buckets, &classes, past, &rest);
	for (int64 i = 0; i < buckets.n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		put_bucket_rows(rsinfo, &buckets, i, &classes, past->texts);
	}
	return (Datum) 0;
}
