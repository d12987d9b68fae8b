/*-------------------------------------------------------------------------
 *
 * clock_sweep.c
 *	  The cost of the server's clock sweep: the price of a victim, and whether usage
 *	  counts still show which pages to replace.
 *
 * The server counts how far its clock hand has moved. pg_stat_bgwriter counts the
 * allocated buffers.  Each tick of the hand is a buffer that was examined as a victim.
 * The first count starts with the server, the second with the last reset of the
 * statistics, so rates need a base of both in shared memory.  The first caller stores
 * that base, and so does the first caller after a reset of the statistics.
 *
 * The hand is read as bgwriter reads it, but without the count of allocations: reading
 * that one would take it away from bgwriter.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "storage/lwlock.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/preload.h"
#include "base/row_builder.h"
#include "base/shared_area.h"
#include "base/timer.h"
#include "buffer_usage/buffer_usage.h"

/* Fewer allocations say little about what one costs. */
#define ENOUGH_ALLOCATIONS	100

/* More buffers than that without a page are not leftovers of dropped relations. */
#define MANY_UNUSED		0.01

/* A victim of the sweep takes a tick at least: most came without it. */
#define NO_SEARCH		0.5

/*
 * A tick is a cache line of another processor and a compare-and-swap, some 50 ns: that
 * many ticks cost about as much as copying a page from the kernel's cache.
 */
#define LONG_SEARCH		100

/* Counts that end at the same value show nothing about each other. */
#define MOST_AT_MAXIMUM	0.5

/* Nearly all at zero or one: none was found again before the hand came by. */
#define NEARLY_ALL_LOW	0.9

typedef struct Base
{
	bool		known;
	TimestampTz since;
	int64		since_ns;		/* the same by CLOCK_MONOTONIC */
	TimestampTz stats_reset;	/* of the server's statistics */
	int64		allocations;
	uint64		hand;
} Base;

typedef struct Shared
{
	LWLock	   *lock;			/* over base */
	Base		base;
} Shared;

/* What a row of clock_sweep says. */
typedef struct Sweep
{
	Base		now;
	bool		measured;		/* by a base that was taken before */
	TimestampTz since;
	int64		ns;				/* since then */
	int64		ticks;
	int64		allocations;
	double		unused;			/* fractions of all buffers */
	double		zero;
	double		one;
	double		maximum;
	double		expected;		/* ticks; 0 without any victim */
} Sweep;

static Shared *shared = NULL;

PG_FUNCTION_INFO_V1(pgscale_clock_sweep);

const PgscaleArea pgscale_buffer_usage_area = {
	.name = "pgscale buffer_usage",
	.at = (void **) &shared,
	.size = sizeof(Shared),
	.nlocks = 1,
	.locks = offsetof(Shared, lock),
};

static Base
read_now(void)
{
	const PgStat_BgWriterStats *stats = pgstat_fetch_stat_bgwriter();
	Base		now = {.known = true};

	now.allocations = stats->buf_alloc;
	now.stats_reset = stats->stat_reset_timestamp;
	now.hand = pgscale_buffers_hand();
	now.since = GetCurrentTimestamp();
	now.since_ns = pgscale_timer_clock();
	return now;
}

/*
 * The base, or, if there is none or the statistics were reset since, a new one.
 * Returns whether it was there before.  What this transaction knows of the
 * statistics may be older than the base, even from before a reset: it stays.
 */
static bool
base_for(const Base *now, Base *base)
{
	bool		known;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	known = shared->base.known && shared->base.stats_reset >= now->stats_reset;
	if (!known)
		shared->base = *now;
	*base = shared->base;
	LWLockRelease(shared->lock);
	return known;
}

/*
 * Ticks until the next victim, on average over where the hand may be, if the
 * freelist is empty: as many whole passes as the least usage count there is,
 * and then to the next of the n buffers that have it.
 */
static double
expected_search(const PgscaleUsage *usage)
{
	const double all = usage->buffers;

	for (int count = 0; count < lengthof(usage->unpinned); count++)
		if (usage->unpinned[count] > 0)
			return count * all + (all + 1) / (usage->unpinned[count] + 1);
	return 0;
}

static void
clock_sweep_read(Sweep *sweep)
{
	PgscaleUsage usage;
	double		all;

	memset(sweep, 0, sizeof(Sweep));
	sweep->now = read_now();
	if (pgscale_preload_done())
	{
		Base		base;

		sweep->measured = base_for(&sweep->now, &base);
		sweep->since = base.since;
		sweep->ns = sweep->now.since_ns - base.since_ns;
		sweep->ticks = sweep->now.hand - base.hand;
		if (sweep->now.stats_reset == base.stats_reset)
			sweep->allocations = Max(sweep->now.allocations - base.allocations, 0);
	}

	pgscale_buffer_usage_count(&usage);
	all = usage.buffers;
	sweep->unused = usage.of[PGSCALE_NO_PAGE].buffers / all;
	sweep->zero = usage.of[0].buffers / all;
	sweep->one = usage.of[1].buffers / all;
	sweep->maximum = usage.of[PGSCALE_MAX_USAGE].buffers / all;
	sweep->expected = expected_search(&usage);
}

/*
 * What it amounts to.  What was measured goes before what is to be expected,
 * and what makes all else meaningless before that.
 */
static const char *
clock_sweep_reason(const Sweep *s)
{
	const bool	enough = s->measured && s->allocations >= ENOUGH_ALLOCATIONS;
	const double search = enough ? (double) s->ticks / s->allocations : s->expected;

	if (pgscale_preload_done() && !s->measured)
		return "counting begins with this call: ask again when the server has worked for a while";
	if (s->unused >= MANY_UNUSED && !pgscale_buffers_all_used())
		return psprintf("nothing has to leave yet: %.1f %% of the buffers hold no page, and new pages go there",
						100 * s->unused);
	if (s->measured && s->allocations == 0 && s->ticks == 0)
		return "nothing had to leave: no buffer was allocated since counting began";
	if (enough && search < NO_SEARCH)
		return psprintf("victims come from the freelist: %.2f ticks an allocation, so most need no search", search);
	if (s->maximum >= MOST_AT_MAXIMUM && Max(search, s->expected) >= LONG_SEARCH)
		return psprintf("replacement is close to random, and expensive: %.1f %% of the buffers are at the maximum "
						"usage count, whether hot or not, and the next victim costs about %.0f ticks",
						100 * s->maximum, Max(search, s->expected));
	if (search >= LONG_SEARCH)
		return psprintf("replacement is choosing, but searches long: a victim costs %.0f ticks, and %.1f %% of the "
						"buffers are at zero", search, 100 * s->zero);
	if (s->zero + s->one >= NEARLY_ALL_LOW)
		return psprintf("replacement is in order of arrival: %.1f %% of the buffers are at zero or one, so hardly a "
						"page is used twice before it leaves; a victim costs %.1f ticks",
						100 * (s->zero + s->one), search);
	return psprintf("replacement is choosing: %.1f %% of the buffers are at zero and leave next, %.1f %% are at the "
					"maximum and stay; a victim costs %.1f ticks",
					100 * s->zero, 100 * s->maximum, search);
}

/* pgscale_internal.clock_sweep(): one row; without preload no rates. */
Datum
pgscale_clock_sweep(PG_FUNCTION_ARGS)
{
	const bool	unknown = !pgscale_preload_done();
	PgscaleRow	row = {0};
	Sweep		s;

	clock_sweep_read(&s);
	pgscale_row_int4(&row, NBuffers);
	pgscale_row_int8(&row, s.now.hand / NBuffers);
	pgscale_row_int4(&row, s.now.hand % NBuffers);
	pgscale_row_put(&row, TimestampTzGetDatum(s.since), unknown);
	pgscale_row_put(&row, Int64GetDatum(s.ticks), unknown);
	pgscale_row_put(&row, Int64GetDatum(s.allocations), unknown);
	pgscale_row_float8(&row, s.allocations > 0 ? (double) s.ticks / s.allocations : NAN);
	pgscale_row_float8(&row, s.ticks > 0 ? s.ns / 1e9 * NBuffers / s.ticks : NAN);
	pgscale_row_float8(&row, s.unused);
	pgscale_row_float8(&row, s.zero);
	pgscale_row_float8(&row, s.maximum);
	pgscale_row_put(&row, Float8GetDatum(s.expected), s.expected == 0);
	pgscale_row_text(&row, clock_sweep_reason(&s));
	return pgscale_row_result(&row, fcinfo);
}

void
pgscale_buffer_usage_clock_reset(void)
{
	Base		now;

	/* Else the counts could be those of this transaction's beginning. */
	pgstat_clear_snapshot();
	now = read_now();
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->base = now;
	LWLockRelease(shared->lock);
}
