/*-------------------------------------------------------------------------
 *
 * timeline.c
 *	  Average active sessions second by second, by wait class.
 *
 * The history has one tick a second, and covers only minutes on a busy server.  This
 * ring has each second of the last hour, from all ticks, in less space: of a second it
 * keeps only the sessions' time in each class of wait event, or idle in a transaction,
 * and the most connections at a tick.  Divided by the observed time, the former is the
 * average number of active sessions.  activity() reads it (past/activity.c), and
 * connections.c reads the latter.
 *
 * A second is at its Unix time modulo the ring's size, and is cleared when its place is
 * used again.  Only the sampler writes; each second has a change count for the readers.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "base/change_count.h"
#include "base/processes.h"
#include "base/units.h"
#include "base/wait_events.h"
#include "sampler/past/history.h"
#include "sampler/past/past.h"
#include "sampler/past/timeline.h"

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
	int			connections;	/* the most at one of its ticks */
} Second;

/* An hour; what is older is in the history and the archive. */
#define TIMELINE_SECONDS	SECS_PER_HOUR

static Second *timeline = NULL;

/* What the present tick has so far; written at its end, all at once. */
static TimestampTz tick_at;
static uint64 tick_ns;
static uint64 tick_class_ns[NCLASSES];

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
	s->connections = 0;
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

	/*
	 * As in the history, a tick that is later than that stands for a second,
	 * and what was before is a gap.
	 */
	tick_ns = ns <= PGSCALE_SAMPLER_LATE * NS_PER_S ? ns : NS_PER_S;
	memset(tick_class_ns, 0, sizeof(tick_class_ns));
}

void
pgscale_sampler_timeline_add(uint32 wait_event)
{
	tick_class_ns[timeline_class(wait_event)] += tick_ns;
}

/* A tick's time ends with it, and may have begun in the second before; after a stall, some seconds before. */
void
pgscale_sampler_timeline_end(int connections)
{
	const int64 tick_us = Max(tick_ns / NS_PER_US, 1);
	const TimestampTz begin = tick_at - tick_us;
	const int64 last = timeline_floor(tick_at, USECS_PER_SEC);

	for (int64 second = timeline_floor(begin, USECS_PER_SEC); second <= last; second++)
	{
		const int64 us = Min(tick_at, (second + 1) * USECS_PER_SEC) - Max(begin, second * USECS_PER_SEC);
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
		if (second == last)
			s->connections = Max(s->connections, connections);
		pgscale_change_end_write(&s->changes);
	}
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

/* Returns false if nothing of that second was observed, or it is too long ago. */
static bool
copy_second(int64 second, Second *copy)
{
	Second	   *s = place_of(second);

	CHECK_FOR_INTERRUPTS();
	pgscale_change_copy(&s->changes, copy, s, sizeof(*copy));
	return copy->second == second && copy->observed_ns > 0;
}

/* A part of a second is that part of all that was observed in it.  All of the present one was before the range ends. */
static void
visit_second(const Second *s, bool present, const PgscaleSamplerPastRange *range, PgscaleSamplerPastText *names,
			 const PgscaleSamplerPastReader *reader)
{
	const PgscaleSamplerPastRange whole = {s->second * USECS_PER_SEC, present ? range->end : (s->second + 1) * USECS_PER_SEC};
	const PgscaleSamplerPastRange of = {Max(whole.begin, range->begin), Min(whole.end, range->end)};
	double		part;

	if (of.begin >= of.end)
		return;
	part = (of.end - of.begin) / (double) (whole.end - whole.begin);
	reader->visit_span(&of, s->observed_ns * part / NS_PER_MS, false, NULL, reader->arg);
	for (uint32 class = 0; class < NCLASSES; class++)
	{
		if (s->class_ns[class] == 0)
			continue;
		if (names[class] == 0)
			names[class] = pgscale_sampler_past_number(reader->texts, class == IN_TRANSACTION ? PGSCALE_WAIT_IDLE_NAME :
													   pgscale_wait_event_type(class << CLASS_SHIFT));
		reader->visit_class(&of, names[class], s->class_ns[class] * part / NS_PER_MS, reader->arg);
	}
}

void
pgscale_sampler_past_read_timeline(const PgscaleSamplerPastRange *ranges, int nranges, const PgscaleSamplerPastReader *reader)
{
	const int64 present = timeline_floor(GetCurrentTimestamp(), USECS_PER_SEC);
	PgscaleSamplerPastText names[NCLASSES] = {0};

	for (int i = 0; i < nranges; i++)
	{
		const int64 first = Max(timeline_floor(ranges[i].begin, USECS_PER_SEC), present - TIMELINE_SECONDS + 1);
		const int64 last = Min(timeline_floor(ranges[i].end - 1, USECS_PER_SEC), present);

		for (int64 second = first; second <= last; second++)
		{
			Second		s;

			if (copy_second(second, &s))
				visit_second(&s, second == present, &ranges[i], names, reader);
		}
	}
}

int
pgscale_sampler_timeline_connections(TimestampTz since)
{
	const int64 present = timeline_floor(GetCurrentTimestamp(), USECS_PER_SEC);
	int64		second = present - TIMELINE_SECONDS + 1;
	int			most = -1;

	if (since > second * USECS_PER_SEC)
		second = timeline_floor(since, USECS_PER_SEC);
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
	const int64 present = timeline_floor(GetCurrentTimestamp(), USECS_PER_SEC);
	Second		s;

	for (int64 second = present - TIMELINE_SECONDS + 1; second <= present; second++)
		if (copy_second(second, &s))
			return second * USECS_PER_SEC;
	return DT_NOEND;
}
