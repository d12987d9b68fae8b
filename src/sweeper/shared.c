/*-------------------------------------------------------------------------
 *
 * shared.c
 *	  The sweeper's shared memory: what others read, and the counts.
 *
 * It lasts as long as the server, so that a restarted sweeper or writer continues where
 * its predecessor stopped.  What grows with the buffers, and the queues, are in a segment
 * that each sweeper makes for itself (segment.c): one that is off takes some kilobytes,
 * whatever shared_buffers is.
 *
 * Runs go from the sweeper to its writers, and pages return, through rings without a
 * lock.  One process puts, because it has claimed to be the only one.  One process
 * takes, or several do and the winner moves the other end.  No more than the ring's
 * size can be between the two ends.  If there is more nevertheless, the contents are
 * discarded, because a loop over them would last for hours.  Every other field has one
 * process that writes it.  Only the base of the counts has a lock: a reset stores the
 * counts there, and readers subtract them.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "base/server_counters.h"
#include "base/shared_area.h"
#include "sweeper/segment.h"
#include "sweeper/shared.h"
#include "sweeper/sweeper.h"

/* One in that many buffers may belong to a writer. */
#define BUFFERS_A_WRITER	16

PgscaleSweeper *pgscale_sweeper = NULL;
PgscaleSweeperMemory pgscale_sweeper_memory = {0};

bool
pgscale_sweeper_claim(pg_atomic_uint32 *owner)
{
	uint32		nobody = 0;

	return pg_atomic_compare_exchange_u32(owner, &nobody, MyProcPid);
}

void
pgscale_sweeper_release(pg_atomic_uint32 *owner)
{
	uint32		me = MyProcPid;

	(void) pg_atomic_compare_exchange_u32(owner, &me, 0);
}

bool
pgscale_sweeper_put_run(PgscaleSweeperQueues *queues, const PgscaleSweeperRun *run)
{
	uint32		put = pg_atomic_read_u32(&queues->runs_put);

	if (put - pg_atomic_read_u32(&queues->runs_taken) >= PGSCALE_RUNS_QUEUED)
		return false;
	Assert(run->pages > 0 && run->pages <= PGSCALE_RUN_MAX && run->victims <= run->pages);
	pg_memory_barrier();
	queues->runs[put % PGSCALE_RUNS_QUEUED] = *run;
	pg_write_barrier();
	pg_atomic_write_u32(&queues->runs_put, put + 1);
	return true;
}

bool
pgscale_sweeper_take_run(PgscaleSweeperQueues *queues, PgscaleSweeperRun *run, bool *lost)
{
	uint32		taken = pg_atomic_read_u32(&queues->runs_taken);
	uint32		next;

	/* The copy is valid if no other process has taken it meanwhile. */
	do
	{
		uint32		put;

		/*
		 * Not an older one than goes with what was taken: it would seem too
		 * little.
		 */
		pg_read_barrier();
		put = pg_atomic_read_u32(&queues->runs_put);
		*lost = false;
		if (taken == put)
			return false;
		/* Or what was taken is old by now, and will not be exchanged. */
		*lost = put - taken > PGSCALE_RUNS_QUEUED;
		next = *lost ? put : taken + 1;
		pg_read_barrier();
		*run = queues->runs[taken % PGSCALE_RUNS_QUEUED];
	} while (!pg_atomic_compare_exchange_u32(&queues->runs_taken, &taken, next));
	Assert(*lost || (run->pages > 0 && run->pages <= PGSCALE_RUN_MAX)); /* a whole one */
	return !*lost;
}

uint32
pgscale_sweeper_queued_runs(PgscaleSweeperQueues *queues)
{
	const uint32 taken = pg_atomic_read_u32(&queues->runs_taken);

	return Min(pg_atomic_read_u32(&queues->runs_put) - taken, PGSCALE_RUNS_QUEUED);
}

/* Each pins a page while it writes that, and sessions must find others. */
int
pgscale_sweeper_writers_most(void)
{
	return Min(pgscale_sweeper_settings.writers, Max(NBuffers / BUFFERS_A_WRITER, 1));
}

int
pgscale_sweeper_writers_wanted(void)
{
	return Min(pgscale_sweeper_writers_most(), pgscale_sweeper->writers_now);
}

int
pgscale_sweeper_writers_running(void)
{
	int			running = 0;

	for (int i = 0; i < PGSCALE_SWEEPER_MAX_WRITERS; i++)
		running += pg_atomic_read_u32(&pgscale_sweeper->writers[i].pid) != 0;
	return running;
}

int
pgscale_sweeper_pending(PgscaleSweeperQueues *queues)
{
	uint32		put = pg_atomic_read_u32(&queues->runs_put);
	uint32		queued = put - pg_atomic_read_u32(&queues->runs_taken);
	int			pages = 0;

	for (uint32 i = Min(queued, PGSCALE_RUNS_QUEUED); i > 0; i--)
		pages += queues->runs[(put - i) % PGSCALE_RUNS_QUEUED].pages;
	for (int i = 0; i < PGSCALE_SWEEPER_MAX_WRITERS; i++)
		pages += pgscale_sweeper->writers[i].writing;
	return pages;
}

void
pgscale_sweeper_put_written(PgscaleSweeperWritten *written, const PgscaleSweeperSwept *swept)
{
	uint32		put = pg_atomic_read_u32(&written->put);

	if (put - pg_atomic_read_u32(&written->taken) >= PGSCALE_PAGES_WRITTEN)
		return;
	pg_memory_barrier();
	written->pages[put % PGSCALE_PAGES_WRITTEN] = *swept;
	pg_write_barrier();
	pg_atomic_write_u32(&written->put, put + 1);
}

bool
pgscale_sweeper_take_written(PgscaleSweeperWritten *written, PgscaleSweeperSwept *swept, bool *lost)
{
	uint32		taken = pg_atomic_read_u32(&written->taken);
	uint32		put = pg_atomic_read_u32(&written->put);

	if (taken == put)
		return false;
	*lost = put - taken > PGSCALE_PAGES_WRITTEN;
	if (*lost)
	{
		pg_atomic_write_u32(&written->taken, put);
		return false;
	}
	pg_read_barrier();
	*swept = written->pages[taken % PGSCALE_PAGES_WRITTEN];
	pg_memory_barrier();
	Assert(pg_atomic_read_u32(&written->taken) == taken);	/* only we take */
	pg_atomic_write_u32(&written->taken, taken + 1);
	return true;
}

PgscaleSweeperWriteCounts
pgscale_sweeper_write_counts(void)
{
	PgscaleSweeperWriteCounts sum = {0};

	/* Nothing but counts of 64 bits in there. */
	for (int i = 0; i < PGSCALE_SWEEPER_MAX_WRITERS; i++)
		for (int field = 0; field < sizeof(sum) / sizeof(uint64); field++)
			((uint64 *) &sum)[field] += ((const uint64 *) &pgscale_sweeper->writers[i].counts)[field];
	return sum;
}

static uint64
sweeper_written(void)
{
	return pgscale_sweeper_write_counts().written;
}

static void
sweeper_init(void)
{
	pgscale_counters_own_writes = sweeper_written;
	pgscale_buffer_worths = &pgscale_sweeper_worths;
	pgscale_sweeper->writers_now = PGSCALE_SWEEPER_FIRST_WRITERS;
	pgscale_sweeper->memory = DSM_HANDLE_INVALID;
	pg_atomic_init_u32(&pgscale_sweeper->pid, 0);
	pgscale_change_init(&pgscale_sweeper->report_changes);
	for (int w = 0; w < PGSCALE_SWEEPER_MAX_WRITERS; w++)
		pg_atomic_init_u32(&pgscale_sweeper->writers[w].pid, 0);
}

const PgscaleArea pgscale_sweeper_area = {
	.name = "pgscale sweeper",
	.at = (void **) &pgscale_sweeper,
	.size = sizeof(PgscaleSweeper),
	.nlocks = 1,
	.locks = offsetof(PgscaleSweeper, lock),
	.init = sweeper_init,
};

bool
pgscale_sweeper_reported(PgscaleSweeperPolicyReport *report)
{
	pgscale_change_copy(&pgscale_sweeper->report_changes, report, &pgscale_sweeper->report, sizeof(*report));
	return report->sample > 0;
}

void
pgscale_sweeper_report_add(PgscaleSweeperPolicyReport *report, const PgscaleSweeperPolicyReport *other, bool subtract)
{
	const int	sign = subtract ? -1 : 1;

	report->arrivals += sign * other->arrivals;
	report->evictions += sign * other->evictions;
	report->switches += sign * other->switches;
	report->references += sign * other->references;
	report->chosen_misses += sign * other->chosen_misses;
	for (int i = 0; i < PGSCALE_SWEEPER_CANDIDATES; i++)
		report->misses[i] += sign * other->misses[i];
	for (int g = 0; g < PGSCALE_SWEEPER_GROUPS; g++)
	{
		report->clock_group[g] += sign * other->clock_group[g];
		report->chosen_group[g] += sign * other->chosen_group[g];
	}
}

int64
pgscale_sweeper_backend_writes(bool anew)
{
	return pgscale_counters_backend_writes(&pgscale_sweeper->backend_writes, pgscale_sweeper->lock, anew);
}

void
pgscale_sweeper_base(PgscaleSweeperBase *base)
{
	LWLockAcquire(pgscale_sweeper->lock, LW_SHARED);
	*base = pgscale_sweeper->base;
	LWLockRelease(pgscale_sweeper->lock);
}

void
pgscale_sweeper_rebase(void)
{
	PgscaleSweeperBase base = {.backend_writes = pgscale_sweeper_backend_writes(false)};

	(void) pgscale_sweeper_reported(&base.policy);	/* may wait */
	LWLockAcquire(pgscale_sweeper->lock, LW_EXCLUSIVE);
	base.sweep = pgscale_sweeper->counts;
	base.write = pgscale_sweeper_write_counts();
	base.reset_at = GetCurrentTimestamp();
	pgscale_sweeper->base = base;
	pgscale_sweeper->base_known = true;
	LWLockRelease(pgscale_sweeper->lock);
}

void
pgscale_sweeper_base_init(void)
{
	if (!pgscale_sweeper->base_known)
		pgscale_sweeper_rebase();
}
