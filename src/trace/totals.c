/*-------------------------------------------------------------------------
 *
 * totals.c
 *	  Stretches of a trace, added up by event.
 *
 * Counts and sums are exact.  For the quantiles each duration is counted in a class: 32
 * classes for each power of two, so a quantile is off by no more than one part in 32.
 *
 * Memory is bounded: an event takes 11 kB when it is first seen, and events after the
 * first few hundred count as "other".
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "common/hashfn.h"
#include "port/pg_bitutils.h"

#include "base/wait_events.h"
#include "trace/trace.h"

#define CLASS_BITS	5
#define CLASSES_PER_POWER	(1 << CLASS_BITS)
/* 2^46 cycles are more than an hour of any CPU; what is longer counts as that. */
#define POWERS		46
#define CLASSES		((POWERS - CLASS_BITS + 1) * CLASSES_PER_POWER)

/* Places by hash, a power of two; the last quarter stays free, so that a search ends. */
#define PLACES		1024
#define MAX_EVENTS	(PLACES * 3 / 4)

typedef struct EventTotal
{
	uint32		event;
	uint64		count;
	uint64		spans_gap;
	uint64		total;
	uint64		min;
	uint64		max;
	uint64		classes[CLASSES];
} EventTotal;

struct PgscaleTraceTotals
{
	MemoryContext context;
	int			n;
	EventTotal *places[PLACES];
};

PgscaleTraceTotals *
pgscale_trace_totals_create(void)
{
	PgscaleTraceTotals *totals = palloc0(sizeof(PgscaleTraceTotals));

	totals->context = CurrentMemoryContext;
	return totals;
}

static EventTotal **
totals_place(PgscaleTraceTotals *totals, uint32 event)
{
	uint32		place = murmurhash32(event) % PLACES;

	while (totals->places[place] && totals->places[place]->event != event)
		place = (place + 1) % PLACES;
	return &totals->places[place];
}

static EventTotal *
totals_of(PgscaleTraceTotals *totals, uint32 event)
{
	EventTotal **place = totals_place(totals, event);

	if (*place == NULL && totals->n >= MAX_EVENTS)
	{
		event = PGSCALE_WAIT_OTHER;
		place = totals_place(totals, event);
	}
	if (*place == NULL)
	{
		*place = MemoryContextAllocZero(totals->context, sizeof(EventTotal));
		(*place)->event = event;
		(*place)->min = PG_UINT64_MAX;
		totals->n++;
	}
	return *place;
}

static int
class_of(uint64 duration)
{
	int			power;

	duration = Min(duration, (UINT64CONST(1) << POWERS) - 1);
	if (duration < CLASSES_PER_POWER)
		return (int) duration;
	power = pg_leftmost_one_pos64(duration);
	return (power - CLASS_BITS + 1) * CLASSES_PER_POWER +
		(int) ((duration >> (power - CLASS_BITS)) & (CLASSES_PER_POWER - 1));
}

/* The shortest duration of a class; that of the next one is where it ends. */
static double
class_start(int class)
{
	const int	octave = class / CLASSES_PER_POWER;

	if (octave == 0)
		return class;
	return ldexp(CLASSES_PER_POWER + class % CLASSES_PER_POWER, octave - 1);
}

void
pgscale_trace_totals_add(PgscaleTraceTotals *totals, const PgscaleTraceStretch *stretch)
{
	EventTotal *total = totals_of(totals, stretch->event);
	const uint64 duration = stretch->end - stretch->start;

	total->count++;
	total->spans_gap += stretch->spans_gap;
	total->total += duration;
	total->min = Min(total->min, duration);
	total->max = Max(total->max, duration);
	total->classes[class_of(duration)]++;
}

/* The duration that this fraction of them does not exceed; within a class they count as evenly spread. */
static double
totals_quantile(const EventTotal *total, double fraction)
{
	const double rank = fraction * total->count;
	uint64		below = 0;
	int			class = 0;
	double		value;

	while (class < CLASSES - 1 && below + total->classes[class] < rank)
		below += total->classes[class++];
	value = class_start(class);
	if (total->classes[class] > 0)
		value += (class_start(class + 1) - value) * (rank - below) / total->classes[class];
	return Min(Max(value, total->min), total->max);
}

static int
totals_compare(const void *a, const void *b)
{
	const uint64 x = ((const PgscaleTraceTotal *) a)->total;
	const uint64 y = ((const PgscaleTraceTotal *) b)->total;

	return x < y ? 1 : x > y ? -1 : 0;
}

int
pgscale_trace_totals_list(const PgscaleTraceTotals *totals, PgscaleTraceTotal **list)
{
	int			n = 0;

	*list = palloc(Max(totals->n, 1) * sizeof(PgscaleTraceTotal));
	for (int place = 0; place < PLACES; place++)
	{
		const EventTotal *total = totals->places[place];

		if (total == NULL)
			continue;
		(*list)[n++] = (PgscaleTraceTotal)
		{
			.event = total->event,
				.count = total->count,
				.spans_gap = total->spans_gap,
				.total = total->total,
				.min = total->min,
				.max = total->max,
				.p50 = totals_quantile(total, 0.5),
				.p95 = totals_quantile(total, 0.95),
				.p99 = totals_quantile(total, 0.99)
		};
	}
	qsort(*list, n, sizeof(PgscaleTraceTotal), totals_compare);
	return n;
}
