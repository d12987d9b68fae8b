/*-------------------------------------------------------------------------
 *
 * timeline.c
 *	  Average active sessions over time, by class of wait event: second by second of the
 *	  last hour, in shared memory, and activity() of any period.
 *
 * The history has one tick a second, and covers only minutes on a busy server.  This
 * ring has each second of the last hour, from all ticks, in less space: of a second it
 * keeps only the sessions' time in each class of wait event, in each event on CPU, or
 * idle in a transaction, and the most connections at a tick.  Divided by the observed
 * time, the former is the average number of active sessions.  activity() reads it, the sums
 * of the history are made to agree with it (past_memory.c), and current.c reads the latter.
 *
 * A second is at its Unix time modulo the ring's size, and is cleared when its place is
 * used again.  Only the sampler writes; each second has a change count for the readers.
 *
 * activity() takes the seconds that the ring has from there: it is finer than the archive's
 * minutes and than the history.  There is one exception: if the archive has the time under
 * another node, the archive is used, as in all functions that read the past.  All other time
 * comes from the archive and the history.  A row of the archive is spread evenly over its
 * time, and so is its known part.
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

#include "base/change_count.h"
#include "base/pg_compat.h"
#include "base/processes.h"
#include "base/row_builder.h"
#include "base/units.h"
#include "base/wait_events.h"
#include "sampler/past/history.h"
#include "sampler/past/past.h"
#include "sampler/samples.h"

/*
 * A wait event's class is its number's uppermost byte; the server's go from 0
 * (on CPU, not split) to 0x0B.  The events on CPU follow, then sessions that idle in a
 * transaction, which are not active, and then any other class.
 */
#define NCLASSES	PGSCALE_TIMELINE_PLACES
#define CLASS_SHIFT 24
#define ON_CPU		(0x0B + 1)
#define IN_TRANSACTION	(ON_CPU + PGSCALE_WAIT_BLOCKED)

typedef struct Second
{
	PgscaleChangeCount changes; /* of all that follows */
	int64		second;			/* since the PostgreSQL epoch */
	uint64		observed_ns;
	uint64		class_ns[NCLASSES];
	int			connections;	/* the most at one of its ticks */
	int			upto_us;		/* from its begin, up to its last tick */
} Second;

/* An hour; what is older is in the history and the archive. */
#define TIMELINE_SECONDS	SECS_PER_HOUR

#define BUCKETS_MAX		100000
#define BUCKET_MAX_DAYS 36500

/* At most that many buckets and one, if their length is not given. */
#define BUCKETS_MOST	60

PG_FUNCTION_INFO_V1(pgscale_activity);

static Second *timeline = NULL;

/* What the present tick has so far; written at its end, all at once. */
static TimestampTz tick_at;
static uint64 tick_ns;
static uint64 tick_class_ns[NCLASSES];

static void
timeline_init(void)
{
	for (int i = 0; i < TIMELINE_SECONDS; i++)
		pgscale_change_init(&timeline[i].changes);
}

/* The place of a second; a clock that was never set shows years before 2000. */
static Second *
place_of(int64 second)
{
	int64		place = second % TIMELINE_SECONDS;

	return &timeline[place < 0 ? place + TIMELINE_SECONDS : place];
}

static void
timeline_clear(Second *s)
{
	s->second = 0;
	s->observed_ns = 0;
	memset(s->class_ns, 0, sizeof(s->class_ns));
	s->connections = 0;
	s->upto_us = 0;
}

uint32
pgscale_sampler_timeline_place(uint32 wait_event)
{
	const uint32 class = wait_event >> CLASS_SHIFT;

	StaticAssertStmt(IN_TRANSACTION == NCLASSES - 2, "places of the timeline");
	if (wait_event == PGSCALE_WAIT_IDLE_IN_TRANSACTION)
		return IN_TRANSACTION;
	if (class == 0 && wait_event >= PGSCALE_WAIT_RUNNING && wait_event <= PGSCALE_WAIT_BLOCKED)
		return ON_CPU + wait_event - PGSCALE_WAIT_RUNNING;
	return class < ON_CPU ? class : NCLASSES - 1;
}

uint32
pgscale_sampler_timeline_event(uint32 place)
{
	if (place == IN_TRANSACTION)
		return PGSCALE_WAIT_IDLE_IN_TRANSACTION;
	if (place == NCLASSES - 1)
		return (uint32) 0x0F << CLASS_SHIFT;
	return place < ON_CPU ? place << CLASS_SHIFT : place - ON_CPU + PGSCALE_WAIT_RUNNING;
}

static void
timeline_begin(const PgscaleSamplerTick *tick)
{
	tick_at = tick->wall;

	/*
	 * As in the history, a tick that is later than that stands for a second,
	 * and what was before is a gap.
	 */
	tick_ns = tick->ns <= PGSCALE_SAMPLER_LATE * NS_PER_S ? tick->ns : NS_PER_S;
	memset(tick_class_ns, 0, sizeof(tick_class_ns));
}

static void
timeline_add(PgscaleSamplerTickSample *sample, const PgscaleSamplerTick *tick)
{
	if (sample->proc->session && !sample->idle)
		tick_class_ns[pgscale_sampler_timeline_place(sample->key.wait_event)] += tick_ns;
}

/* A tick's time ends with it, and may have begun in the second before; after a stall, some seconds before. */
static void
timeline_end(PgscaleSamplerTick *tick)
{
	const int64 tick_us = Max(tick_ns / NS_PER_US, 1);
	const TimestampTz begin = tick_at - tick_us;
	const int64 last = pgscale_sampler_past_floor(tick_at, USECS_PER_SEC);

	for (int64 second = pgscale_sampler_past_floor(begin, USECS_PER_SEC); second <= last; second++)
	{
		const TimestampTz end = Min(tick_at, (second + 1) * USECS_PER_SEC);
		const int64 us = end - Max(begin, second * USECS_PER_SEC);
		const double part = us / (double) tick_us;
		Second	   *s = place_of(second);

		pgscale_change_begin_write(&s->changes);
		if (s->second != second)
		{
			timeline_clear(s);
			s->second = second;
		}
		s->observed_ns += (uint64) (tick_ns * part);
		for (int class = 0; class < NCLASSES; class++)
			s->class_ns[class] += (uint64) (tick_class_ns[class] * part);
		s->upto_us = Max(s->upto_us, (int) (end - second * USECS_PER_SEC));
		if (second == last)
			s->connections = Max(s->connections, tick->nconnections);
		pgscale_change_end_write(&s->changes);
	}
}

void
pgscale_sampler_timeline_add_late(uint32 wait_event, uint64 ns)
{
	Second	   *s = place_of(pgscale_sampler_past_floor(tick_at, USECS_PER_SEC));

	pgscale_change_begin_write(&s->changes);
	s->class_ns[pgscale_sampler_timeline_place(wait_event)] += ns;
	pgscale_change_end_write(&s->changes);
}

/* Moves at most so much from one place of a second to another; returns how much it was. */
static uint64
timeline_move(int64 second, uint32 class, uint32 to, uint64 ns)
{
	Second	   *s = place_of(second);

	if (s->second != second)
		return 0;
	ns = Min(ns, s->class_ns[class]);
	pgscale_change_begin_write(&s->changes);
	s->class_ns[class] -= ns;
	s->class_ns[to] += ns;
	pgscale_change_end_write(&s->changes);
	return ns;
}

/*
 * The samples of the last second lie in two seconds of the timeline, and each of
 * them gives its part of what was on CPU; the seconds before give what these do not have.
 */
void
pgscale_sampler_timeline_to_cpu(uint32 wait_event, uint32 cpu_event, uint64 ns)
{
	const uint32 class = pgscale_sampler_timeline_place(wait_event);
	const uint32 to = pgscale_sampler_timeline_place(cpu_event);
	const int64 second = pgscale_sampler_past_floor(tick_at, USECS_PER_SEC);
	const double part = (double) (tick_at - second * USECS_PER_SEC) / USECS_PER_SEC;

	ns -= timeline_move(second, class, to, ns * part);
	for (int back = 1; back <= 4 && ns > 0; back++)
		ns -= timeline_move(second - back, class, to, ns);
	(void) timeline_move(second, class, to, ns);
}

static void
timeline_reset(int64 now)
{
	for (int i = 0; i < TIMELINE_SECONDS; i++)
	{
		pgscale_change_begin_write(&timeline[i].changes);
		timeline_clear(&timeline[i]);
		pgscale_change_end_write(&timeline[i].changes);
	}
}

const PgscaleArea pgscale_sampler_timeline_area = {
	.name = "pgscale sampler timeline",
	.at = (void **) &timeline,
	.size = TIMELINE_SECONDS * sizeof(Second),
	.init = timeline_init,
};

const PgscaleSamplerConsumer pgscale_sampler_timeline_consumer = {
	.reset = timeline_reset,
	.begin = timeline_begin,
	.add = timeline_add,
	.end = timeline_end,
};

/* Returns false if nothing of that second was observed, or it is too long ago. */
static bool
copy_second(int64 second, Second *copy)
{
	Second	   *s = place_of(second);

	CHECK_FOR_INTERRUPTS();
	pgscale_change_copy(&s->changes, copy, s, sizeof(*copy));
	return copy->second == second && copy->observed_ns > 0;
}

typedef void (*VisitSecond) (const Second *s, const PgscaleSamplerPastRange *of, double part, void *arg);

/*
 * Calls for each second, or the part of it, that lies in these ranges.  What was observed of the
 * present one, or of one in which the sampler was stopped, was before its last tick.
 */
static void
visit_seconds(const PgscaleSamplerPastRange *ranges, int nranges, VisitSecond visit, void *arg)
{
	const int64 present = pgscale_sampler_past_floor(GetCurrentTimestamp(), USECS_PER_SEC);

	for (int i = 0; i < nranges; i++)
	{
		const int64 first = Max(pgscale_sampler_past_floor(ranges[i].begin, USECS_PER_SEC), present - TIMELINE_SECONDS + 1);
		const int64 last = Min(pgscale_sampler_past_floor(ranges[i].end - 1, USECS_PER_SEC), present);

		for (int64 second = first; second <= last; second++)
		{
			const TimestampTz begin = second * USECS_PER_SEC;
			const PgscaleSamplerPastRange of = {Max(begin, ranges[i].begin), Min(begin + USECS_PER_SEC, ranges[i].end)};
			Second		s;

			if (of.begin < of.end && copy_second(second, &s))
				visit(&s, &of, Max(Min(of.end, begin + s.upto_us) - of.begin, 0) / (double) s.upto_us, arg);
		}
	}
}

/* A part of a second is that part of all that was observed in it. */
static void
read_second(const Second *s, const PgscaleSamplerPastRange *of, double part, void *arg)
{
	PgscaleSamplerPast *past = arg;
	uint64		cpu_ns = s->class_ns[0];

	for (uint32 class = ON_CPU; class < IN_TRANSACTION; class++)
		cpu_ns += s->class_ns[class];
	pgscale_sampler_past_add_span(past, of, s->observed_ns * part / NS_PER_MS, "memory", false);
	for (uint32 class = 0; class < NCLASSES; class++)
	{
		const uint64 ns = class == 0 ? cpu_ns : s->class_ns[class];

		if (ns > 0 && (class < ON_CPU || class >= IN_TRANSACTION))
			pgscale_sampler_past_add_class(past, of, pgscale_sampler_past_class(past->texts, pgscale_sampler_timeline_event(class)),
										   ns * part / NS_PER_MS);
	}
}

static void
add_second(const Second *s, const PgscaleSamplerPastRange *of, double part, void *arg)
{
	PgscaleSamplerPastSeconds *sum = arg;
	PgscaleSamplerPastRange *last = sum->n > 0 ? &sum->ranges[sum->n - 1] : NULL;
	double	   *place_us = sum->place_us[pgscale_sampler_timeline_minute(pgscale_sampler_past_floor(s->second, SECS_PER_MINUTE))];

	if (last && last->end == of->begin)
		last->end = of->end;
	else
		sum->ranges[sum->n++] = *of;
	/* what was not observed of it was as the rest */
	for (uint32 class = 0; class < NCLASSES; class++)
		place_us[class] += s->class_ns[class] * ((of->end - of->begin) / (double) s->observed_ns);
}

void
pgscale_sampler_past_add_timeline(const PgscaleSamplerPastRange *ranges, int nranges, PgscaleSamplerPastSeconds *sum)
{
	memset(sum, 0, sizeof(*sum));
	/* a range more than seconds for each end of one */
	sum->ranges = palloc((TIMELINE_SECONDS + nranges) * sizeof(PgscaleSamplerPastRange));
	visit_seconds(ranges, nranges, add_second, sum);
}

int
pgscale_sampler_timeline_connections(TimestampTz since)
{
	const int64 present = pgscale_sampler_past_floor(GetCurrentTimestamp(), USECS_PER_SEC);
	int64		second = present - TIMELINE_SECONDS + 1;
	int			most = -1;

	if (since > second * USECS_PER_SEC)
		second = pgscale_sampler_past_floor(since, USECS_PER_SEC);
	for (; second <= present; second++)
	{
		Second		s;

		if (copy_second(second, &s))
			most = Max(most, s.connections);
	}
	return most;
}

TimestampTz
pgscale_sampler_past_timeline_begin(void)
{
	const int64 present = pgscale_sampler_past_floor(GetCurrentTimestamp(), USECS_PER_SEC);
	Second		s;

	for (int64 second = present - TIMELINE_SECONDS + 1; second <= present; second++)
		if (copy_second(second, &s))
			return second * USECS_PER_SEC;
	return DT_NOEND;
}

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
bucket_us(const PgscaleSamplerPastRange *period, const Interval *given)
{
	static const int lengths_s[] = {1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400};
	const int64 length = period->end - period->begin;
	double		given_us;

	if (!given)
	{
		for (int i = 0; i < lengthof(lengths_s); i++)
			if (length <= BUCKETS_MOST * lengths_s[i] * USECS_PER_SEC)
				return lengths_s[i] * USECS_PER_SEC;
		return USECS_PER_DAY * (int64) ceil(length / (double) (USECS_PER_DAY * BUCKETS_MOST));
	}
	given_us = given->day * (double) USECS_PER_DAY + given->time;
	if (given->month != 0 || given_us < USECS_PER_SEC || given_us > BUCKET_MAX_DAYS * (double) USECS_PER_DAY)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("bucket must be from a second to %d days, without months", BUCKET_MAX_DAYS),
				 errhint("Use a time such as interval '1 minute'.")));
	if (length / given_us > BUCKETS_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("there would be more than %d buckets", BUCKETS_MAX),
				 errhint("Use a longer bucket or a shorter period.")));
	return (int64) given_us;
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
	PgscaleRow	row = {0};

	pgscale_row_put(&row, TimestampTzGetDatum(at), false);
	pgscale_row_text(&row, class);
	pgscale_row_put(&row, Float8GetDatum(sessions), class == NULL);
	pgscale_row_float8(&row, covered);
	pgscale_row_end(&row, rsinfo);
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
	const char *node = pgscale_sampler_past_node(fcinfo, 3);
	const PgscaleSamplerPast *past;
	PgscaleSamplerPast *seconds;
	Buckets		buckets = {0};
	Classes		classes = {0};
	Ranges		ours;
	Ranges		rest;

	buckets.period = pgscale_sampler_past_period(fcinfo, node);
	buckets.size_us = bucket_us(&buckets.period, PG_ARGISNULL(2) ? NULL : PG_GETARG_INTERVAL_P(2));
	InitMaterializedSRF(fcinfo, 0);
	if (buckets.period.begin >= buckets.period.end)
		return (Datum) 0;

	past = pgscale_sampler_past_sums(&buckets.period, PGSCALE_PAST_CLASSES, node);
	ours = period_without(&buckets.period, past, true);
	if (!pgscale_sampler_past_remembers(node))
		ours.n = 0;
	seconds = pgscale_sampler_past_create(PGSCALE_PAST_CLASSES, PGSCALE_PAST_WHOLE, past->texts);
	visit_seconds(ours.ranges, ours.n, read_second, seconds);
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
