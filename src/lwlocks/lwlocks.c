/*-------------------------------------------------------------------------
 *
 * lwlocks.c
 *	  Which LWLock of a tranche processes wait for: pgscale.lwlock_profile and
 *	  pgscale.lwlock_tranches.
 *
 * A wait event names a tranche, not a lock: 128 locks, or one for each buffer.  This
 * profile shows which lock it was, hot_buffers.c which page.
 *
 * At a tick at which processes wait for a tranche, all locks of that tranche are read.
 * Once a second all locks are read, which shows how often a lock is held while no
 * process waits.  The locks are those of the server's main array.  Others cannot be
 * found, because their addresses are private to the server; of their tranches only the
 * waits are known.
 *
 * The number of processes that wait for one lock is not known either, only that there
 * is a queue.  The waits of a tick are divided evenly among the locks of the tranche
 * that had a queue; in a tranche with one lock, they all belong to that lock.  The lock
 * is read microseconds after the sample, so its queue may be gone: then only the
 * tranche gets the wait.
 *
 * Only the sampler writes the counts, under a change count (base/change_count.h), and
 * they only grow.  A reset stores their values under a lock, and readers subtract
 * those.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/change_count.h"
#include "base/lwlock_state.h"
#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/row_builder.h"
#include "base/shared_area.h"
#include "base/timer.h"
#include "base/units.h"
#include "lwlocks/lwlocks.h"

/* The server's own, and those that libraries requested. */
#define MAX_LOCKS		(NUM_FIXED_LWLOCKS + 512)

/* Queues seen for each lock of a tranche, below which its skew is not shown. */
#define LEAST_QUEUES	4

/* How often all of them are read. */
#define READ_ALL_NS		NS_PER_S

/* If there was no tick for that long, something is wrong. */
#define STALLED_MS		5000

PG_FUNCTION_INFO_V1(pgscale_lwlock_profile);
PG_FUNCTION_INFO_V1(pgscale_lwlock_tranches);

typedef struct TrancheCounts
{
	uint64		ticks;			/* at which processes waited for it */
	uint64		ns;				/* that these stand for */
	uint64		wait_ns;		/* of all that waited */
} TrancheCounts;

typedef struct LockCounts
{
	uint64		waited;			/* ticks of the tranche with a queue here */
	uint64		exclusive;		/* or, held so */
	uint64		shared;
	uint64		wait_ns;		/* its part of the tranche's */
	uint64		found_exclusive;	/* of the readings of all locks, held so */
	uint64		found_shared;
} LockCounts;

/* Nothing but uint64, see counts_now(). */
typedef struct Counts
{
	uint64		readings;		/* of all locks */
	TrancheCounts tranches[PGSCALE_LWLOCK_TRANCHES];
	LockCounts	locks[MAX_LOCKS];
} Counts;

typedef struct Shared
{
	PgscaleChangeCount changes; /* of counts, which the sampler writes */
	pg_atomic_uint64 last_ns;	/* when it last was here */
	Counts		counts;
	LWLock	   *lock;			/* over what follows */
	Counts		base;			/* to be subtracted */
	TimestampTz reset_at;
} Shared;

/* Where the locks of a tranche lie in the main array. */
typedef struct Range
{
	int			first;
	int			count;			/* 0: they are not there */
} Range;

static Shared *shared = NULL;

/* Known from the start, and inherited by all processes. */
static int	nlocks = 0;			/* 0: nothing is known of them */
static Range ranges[PGSCALE_LWLOCK_TRANCHES];

static void
find_ranges(void)
{
	memset(ranges, 0, sizeof(ranges));
	for (int i = 0; i < nlocks; i++)
	{
		const uint16 tranche = pgscale_lwlocks_at(i)->tranche;

		if (tranche >= PGSCALE_LWLOCK_TRANCHES - 1)
			continue;
		if (ranges[tranche].count++ == 0)
			ranges[tranche].first = i;
	}
}

static void
lwlocks_init(void)
{
	pgscale_change_init(&shared->changes);
	pg_atomic_init_u64(&shared->last_ns, 0);
	shared->reset_at = GetCurrentTimestamp();
	nlocks = pgscale_lwlock_layout_known() ? pgscale_lwlocks_count(MAX_LOCKS) : 0;
	find_ranges();
}

static const PgscaleArea lwlocks_area = {
	.name = "pgscale lwlocks",
	.at = (void **) &shared,
	.size = sizeof(Shared),
	.nlocks = 1,
	.locks = offsetof(Shared, lock),
	.init = lwlocks_init,
};

/* Divides a tranche's waits among the locks that have a queue. */
static void
count_waits(const Range *range, const bool *waited, int nwaited, uint64 wait_ns)
{
	LockCounts *locks = &shared->counts.locks[range->first];

	for (int i = 0; i < range->count; i++)
	{
		locks[i].waited += waited[i];
		if (waited[i] || range->count == 1)
			locks[i].wait_ns += wait_ns / Max(nwaited, 1);
	}
}

static void
read_tranche(uint8 tranche, uint32 waiters, uint64 ns)
{
	TrancheCounts *counts = &shared->counts.tranches[tranche];
	const Range *range = &ranges[tranche];
	bool		waited[MAX_LOCKS];
	int			nwaited = 0;

	counts->ticks++;
	counts->ns += ns;
	counts->wait_ns += waiters * ns;
	for (int i = 0; i < range->count; i++)
	{
		const PgscaleLwlock lock = pgscale_lwlock_look(pgscale_lwlocks_at(range->first + i));
		LockCounts *of = &shared->counts.locks[range->first + i];

		of->exclusive += lock.exclusive;
		of->shared += lock.shared > 0;
		waited[i] = lock.waited;
		nwaited += lock.waited;
	}
	count_waits(range, waited, nwaited, waiters * ns);
}

static void
read_all_locks(void)
{
	shared->counts.readings++;
	for (int i = 0; i < nlocks; i++)
	{
		const PgscaleLwlock lock = pgscale_lwlock_look(pgscale_lwlocks_at(i));

		shared->counts.locks[i].found_exclusive += lock.exclusive;
		shared->counts.locks[i].found_shared += lock.shared > 0;
	}
}

static void
lwlocks_tick(const PgscaleLwlockWaits *waits)
{
	static int64 since_all = 0;
	bool		all;

	pg_atomic_write_u64(&shared->last_ns, (uint64) pgscale_timer_clock());
	if (nlocks == 0)
		return;
	since_all += waits->ns;
	all = since_all >= READ_ALL_NS;
	if (waits->ntranches == 0 && !all)
		return;

	pgscale_change_begin_write(&shared->changes);
	for (int i = 0; i < waits->ntranches; i++)
		read_tranche(waits->tranches[i], waits->waiters[waits->tranches[i]], (uint64) waits->ns);
	if (all)
	{
		read_all_locks();
		since_all = 0;
	}
	pgscale_change_end_write(&shared->changes);
}

/* The counts since the last reset, which was at *reset_at; palloc'd. */
static Counts *
counts_now(TimestampTz *reset_at)
{
	Counts	   *now = palloc(sizeof(Counts));
	uint64	   *base = palloc(sizeof(Counts));

	LWLockAcquire(shared->lock, LW_SHARED);
	memcpy(base, &shared->base, sizeof(Counts));
	*reset_at = shared->reset_at;
	LWLockRelease(shared->lock);

	/* After it: counts only grow. */
	pgscale_change_copy(&shared->changes, now, &shared->counts, sizeof(Counts));
	for (int i = 0; i < sizeof(Counts) / sizeof(uint64); i++)
		((uint64 *) now)[i] -= base[i];
	pfree(base);
	return now;
}

static void
put_lock(ReturnSetInfo *rsinfo, int tranche, int number, const Counts *counts, TimestampTz reset_at)
{
	const LockCounts *lock = &counts->locks[ranges[tranche].first + number];
	const TrancheCounts *of = &counts->tranches[tranche];
	PgscaleRow	row = {0};

	pgscale_row_int4(&row, tranche);
	pgscale_row_text(&row, pgscale_lwlock_tranche_name(tranche));
	pgscale_row_int4(&row, number);
	pgscale_row_int8(&row, of->ticks);
	pgscale_row_int8(&row, lock->waited);
	pgscale_row_int8(&row, lock->exclusive);
	pgscale_row_int8(&row, lock->shared);
	pgscale_row_float8(&row, lock->wait_ns / 1e6);
	pgscale_row_float8(&row, of->ns > 0 ? (double) lock->wait_ns / of->ns : NAN);
	pgscale_row_int8(&row, counts->readings);
	pgscale_row_int8(&row, lock->found_exclusive);
	pgscale_row_int8(&row, lock->found_shared);
	pgscale_row_timestamp(&row, reset_at);
	pgscale_row_end(&row, rsinfo);
}

static bool
lock_seen(const LockCounts *lock)
{
	return lock->waited + lock->wait_ns + lock->exclusive + lock->shared +
		lock->found_exclusive + lock->found_shared > 0;
}

/* pgscale_internal.lwlock_profile(): one row a lock that was seen held or waited for. */
Datum
pgscale_lwlock_profile(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	TimestampTz reset_at;
	Counts	   *counts;

	pgscale_preload_require();
	InitMaterializedSRF(fcinfo, 0);
	counts = counts_now(&reset_at);
	for (int tranche = 0; tranche < PGSCALE_LWLOCK_TRANCHES; tranche++)
		for (int i = 0; i < ranges[tranche].count; i++)
			if (lock_seen(&counts->locks[ranges[tranche].first + i]))
				put_lock(rsinfo, tranche, i, counts, reset_at);
	pfree(counts);
	return (Datum) 0;
}

/*
 * How unevenly processes queued at the locks of a tranche: the most waited-for lock's
 * ticks by the mean of all; 1 is even.  0 where the queues that were seen are too few: with
 * four for each lock, an even load of 128 locks rarely has a skew above 3 by chance.
 * *busiest is -1 where no queue was seen.
 */
static double
skew_of(const Range *range, const Counts *counts, int *busiest)
{
	const LockCounts *locks = &counts->locks[range->first];
	uint64		sum = 0;

	*busiest = 0;
	for (int i = 0; i < range->count; i++)
	{
		sum += locks[i].waited;
		if (locks[i].waited > locks[*busiest].waited)
			*busiest = i;
	}
	if (sum == 0 && range->count > 1)
		*busiest = -1;
	return sum > 0 && sum >= LEAST_QUEUES * range->count ? (double) locks[*busiest].waited * range->count / sum : 0;
}

/* Why its locks are not known one by one. */
static const char *
tranche_reason(int tranche)
{
	if (tranche == PGSCALE_TRANCHE_BUFFER_CONTENT)
		return "one lock a buffer: pgscale.hot_buffers shows those with a queue now";
	if (tranche < LWTRANCHE_FIRST_USER_DEFINED)
		return "the server does not show where these locks lie";
	return "an extension's locks, in its own memory";
}

static void
put_tranche(ReturnSetInfo *rsinfo, int tranche, const Counts *counts, TimestampTz reset_at)
{
	const TrancheCounts *of = &counts->tranches[tranche];
	const Range *range = &ranges[tranche];
	const bool	last = tranche == PGSCALE_LWLOCK_TRANCHES - 1;
	int			busiest;
	const double skew = skew_of(range, counts, &busiest);
	PgscaleRow	row = {0};

	pgscale_row_put(&row, Int32GetDatum(tranche), last);
	pgscale_row_text(&row, last ? "other" : pgscale_lwlock_tranche_name(tranche));
	pgscale_row_put(&row, Int32GetDatum(range->count), range->count == 0);
	pgscale_row_int8(&row, of->ticks);
	pgscale_row_float8(&row, of->wait_ns / 1e6);
	pgscale_row_float8(&row, (double) of->wait_ns / of->ns);
	pgscale_row_put(&row, Int32GetDatum(busiest), range->count == 0 || busiest < 0);
	pgscale_row_put(&row, Float8GetDatum(skew), skew == 0 || range->count == 1);
	pgscale_row_text(&row, range->count > 0 ? NULL : tranche_reason(tranche));
	pgscale_row_timestamp(&row, reset_at);
	pgscale_row_end(&row, rsinfo);
}

/* pgscale_internal.lwlock_tranches(): one row a tranche that was waited for. */
Datum
pgscale_lwlock_tranches(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	TimestampTz reset_at;
	Counts	   *counts;

	pgscale_preload_require();
	InitMaterializedSRF(fcinfo, 0);
	counts = counts_now(&reset_at);
	for (int tranche = 0; tranche < PGSCALE_LWLOCK_TRANCHES; tranche++)
		if (counts->tranches[tranche].ticks > 0)
			put_tranche(rsinfo, tranche, counts, reset_at);
	pfree(counts);
	return (Datum) 0;
}

static void
lwlocks_reset(void)
{
	Counts	   *now = palloc(sizeof(Counts));

	pgscale_change_copy(&shared->changes, now, &shared->counts, sizeof(Counts));
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	memcpy(&shared->base, now, sizeof(Counts));
	shared->reset_at = GetCurrentTimestamp();
	LWLockRelease(shared->lock);
	pfree(now);
}

static void
lwlocks_health(PgscaleHealth *health)
{
	if (!pgscale_health_preloaded(health, "pgscale.sampler", true))
		return;
	if (nlocks == 0)
	{
		health->state = PGSCALE_HEALTH_BROKEN;
		health->reason = pgscale_lwlock_layout_known() ?
			"pgscale does not know where this server has its LWLocks" :
			"pgscale does not know the layout of this server's LWLocks";
		health->action = "use a build of pgscale for this server";
	}
	else if (pgscale_health_observed(health, (int64) pg_atomic_read_u64(&shared->last_ns), STALLED_MS))
	{
		health->state = PGSCALE_HEALTH_WORKING;
		health->reason = "reads the locks of a tranche while processes wait for it";
	}
}

const PgscaleModule pgscale_lwlocks_module = {
	.name = "lwlocks",
	.areas = (const PgscaleArea *const[]) {&lwlocks_area, NULL},
	.lwlock_waits = lwlocks_tick,
	.reset = lwlocks_reset,
	.health = lwlocks_health
};
