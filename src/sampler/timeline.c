/*-------------------------------------------------------------------------
 *
 * timeline.c
 *	  Average active sessions second by second, by wait class.
 *
 * The ring of single samples holds seconds to minutes on a busy server.  This
 * one holds an hour in less space, since all it keeps of a second is how much
 * time the server's sessions spent in each class of wait event, or idle in a transaction.  Divided by
 * the time that was observed, that is the average number of active sessions.
 *
 * A second lies at its Unix time modulo the ring's size, and is cleared when
 * its place is used for another one.  The sampler alone writes; each second
 * has a count of its changes for the readers.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/change_count.h"
#include "base/pg_compat.h"
#include "base/processes.h"
#include "base/wait_events.h"
#include "pgscale.h"
#include "sampler/sampler.h"

/*
 * A wait event's class is its number's uppermost byte; the server's go from 0
 * (on CPU) to 0x0B, and any beyond counts in the last place.  Sessions that idle in a
 * transaction are not active, and have a place of their own.
 */
#define NCLASSES	16
#define CLASS_SHIFT 24
#define IN_TRANSACTION	(NCLASSES - 2)

typedef struct Second
{
	PgscaleChangeCount changes; /* of all that follows */
	int64		second;			/* since the PostgreSQL epoch */
	uint64		observed_ns;
	uint64		class_ns[NCLASSES];
} Second;

/* An hour; what is older is in the history and the archive. */
#define TIMELINE_SECONDS	SECS_PER_HOUR

static Second *timeline = NULL;

/* What the present tick has so far; written at its end, all at once. */
static TimestampTz tick_at;
static uint64 tick_ns;
static uint64 tick_class_ns[NCLASSES];

PG_FUNCTION_INFO_V1(pgscale_wait_timeline);

Size
pgscale_sampler_timeline_size(void)
{
	return mul_size(TIMELINE_SECONDS, sizeof(Second));
}

void
pgscale_sampler_timeline_startup(void)
{
	bool		found;

	timeline = ShmemInitStruct("pgscale sampler timeline",
							   pgscale_sampler_timeline_size(), &found);
	if (found)
		return;

	memset(timeline, 0, pgscale_sampler_timeline_size());
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
}

static uint32
timeline_class(uint32 wait_event)
{
	const uint32 class = wait_event >> CLASS_SHIFT;

	if (wait_event == PGSCALE_WAIT_IDLE_IN_TRANSACTION)
		return IN_TRANSACTION;
	return class < IN_TRANSACTION ? class : NCLASSES - 1;
}

/* Rounds down, also where a clock shows a time before 2000, which is negative. */
static int64
timeline_floor(int64 value, int64 unit)
{
	return (value >= 0 ? value : value - (unit - 1)) / unit;
}

void
pgscale_sampler_timeline_begin(TimestampTz now, uint64 ns)
{
	tick_at = now;
	tick_ns = ns;
	memset(tick_class_ns, 0, sizeof(tick_class_ns));
}

void
pgscale_sampler_timeline_add(uint32 wait_event)
{
	tick_class_ns[timeline_class(wait_event)] += tick_ns;
}

void
pgscale_sampler_timeline_end(void)
{
	int64		second = timeline_floor(tick_at, USECS_PER_SEC);
	Second	   *s = place_of(second);

	pgscale_change_begin_write(&s->changes);
	if (s->second != second)
	{
		timeline_clear(s);
		s->second = second;
	}
	s->observed_ns += tick_ns;
	for (int class = 0; class < NCLASSES; class++)
		s->class_ns[class] += tick_class_ns[class];
	pgscale_change_end_write(&s->changes);
}

void
pgscale_sampler_timeline_add_late(uint32 wait_event, uint64 ns)
{
	Second	   *s = place_of(timeline_floor(tick_at, USECS_PER_SEC));

	pgscale_change_begin_write(&s->changes);
	s->class_ns[timeline_class(wait_event)] += ns;
	pgscale_change_end_write(&s->changes);
}

/* Moves at most so much of a class in a second to the class CPU; returns how much it was. */
static uint64
timeline_move(int64 second, uint32 class, uint64 ns)
{
	Second	   *s = place_of(second);

	if (s->second != second)
		return 0;
	ns = Min(ns, s->class_ns[class]);
	pgscale_change_begin_write(&s->changes);
	s->class_ns[class] -= ns;
	s->class_ns[PGSCALE_WAIT_CPU >> CLASS_SHIFT] += ns;
	pgscale_change_end_write(&s->changes);
	return ns;
}

/*
 * The samples of the last second lie in two seconds of the timeline, and each of
 * them gives its part of what was on CPU; the seconds before give what these do not have.
 */
void
pgscale_sampler_timeline_to_cpu(uint32 wait_event, uint64 ns)
{
	const uint32 class = timeline_class(wait_event);
	const int64 second = timeline_floor(tick_at, USECS_PER_SEC);
	const double part = (double) (tick_at - second * USECS_PER_SEC) / USECS_PER_SEC;

	if (class == PGSCALE_WAIT_CPU >> CLASS_SHIFT)
		return;
	ns -= timeline_move(second, class, ns * part);
	for (int back = 1; back <= 4 && ns > 0; back++)
		ns -= timeline_move(second - back, class, ns);
	(void) timeline_move(second, class, ns);
}

void
pgscale_sampler_timeline_reset(void)
{
	for (int i = 0; i < TIMELINE_SECONDS; i++)
	{
		pgscale_change_begin_write(&timeline[i].changes);
		timeline_clear(&timeline[i]);
		pgscale_change_end_write(&timeline[i].changes);
	}
}

static void
put_bucket(ReturnSetInfo *rsinfo, TimestampTz start, Second *sum)
{
	for (uint32 class = 0; class < NCLASSES; class++)
	{
		Datum		values[4];
		bool		nulls[4] = {0};

		/* On CPU always, so that an idle bucket is seen to be one. */
		if (class > 0 && sum->class_ns[class] == 0)
			continue;
		values[0] = TimestampTzGetDatum(start);
		values[1] = CStringGetTextDatum(class == IN_TRANSACTION ? pgscale_wait_event_name(PGSCALE_WAIT_IDLE_IN_TRANSACTION) :
										pgscale_wait_event_type(class << CLASS_SHIFT));
		values[2] = Float8GetDatum((double) sum->class_ns[class] / sum->observed_ns);
		values[3] = Float8GetDatum((double) sum->observed_ns / 1e6);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
}

/*
 * pgscale.wait_timeline(bucket): average active sessions for each bucket of
 * time that was observed at all, by wait class, oldest first.
 */
Datum
pgscale_wait_timeline(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Interval   *interval;
	int64		bucket;
	int64		now;
	Second		sum = {0};

	pgscale_require_preload();

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("bucket must not be null"),
				 errhint("Use a whole number of seconds, such as interval '10 seconds'.")));
	interval = PG_GETARG_INTERVAL_P(0);
	if (interval->month != 0 || interval->day != 0 ||
		interval->time < USECS_PER_SEC || interval->time % USECS_PER_SEC != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("bucket must be a positive whole number of seconds"),
				 errhint("Use a time without days or months, such as interval '10 seconds'.")));
	bucket = interval->time / USECS_PER_SEC;

	InitMaterializedSRF(fcinfo, 0);

	/* The ring from its oldest second, which lies behind the present one. */
	now = timeline_floor(GetCurrentTimestamp(), USECS_PER_SEC);
	for (int64 second = now - TIMELINE_SECONDS + 1; second <= now; second++)
	{
		Second	   *place = place_of(second);
		Second		s;

		pgscale_change_copy(&place->changes, &s, place, sizeof(s));
		if (s.second != second || s.observed_ns == 0)
			continue;

		if (sum.observed_ns > 0 && timeline_floor(second, bucket) != timeline_floor(sum.second, bucket))
		{
			put_bucket(rsinfo, timeline_floor(sum.second, bucket) * bucket * USECS_PER_SEC, &sum);
			timeline_clear(&sum);
		}
		sum.second = second;
		sum.observed_ns += s.observed_ns;
		for (int class = 0; class < NCLASSES; class++)
			sum.class_ns[class] += s.class_ns[class];
	}
	if (sum.observed_ns > 0)
		put_bucket(rsinfo, timeline_floor(sum.second, bucket) * bucket * USECS_PER_SEC, &sum);

	return (Datum) 0;
}
