/*-------------------------------------------------------------------------
 *
 * partitions.c
 *	  The sweeper's shared memory: one partition for each worker, and the counts at the
 *	  last reset.
 *
 * A partition lasts as long as the server, so that a restarted sweeper or writer continues
 * where its predecessor stopped.  It has the counts and what others read.  What grows with
 * the buffers, and the queues, are in a segment that each sweeper makes for itself
 * (segment.c): a sweeper that is off takes some kilobytes, whatever shared_buffers is.
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
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "base/server_counters.h"
#include "base/shared_area.h"
#include "sweeper/partitions.h"
#include "sweeper/segment.h"
#include "sweeper/sweeper.h"

/* One in that many buffers may belong to a writer. */
#define BUFFERS_A_WRITER	16

typedef struct SweeperShared
{
	int			workers;
	LWLock	   *lock;			/* over what follows */
	PgscaleBackendWrites backend_writes;
	bool		base_known;
	PgscaleSweeperBase base;

	/* of each worker, and not under the lock */
	PgscaleSweeperPartition partitions[FLEXIBLE_ARRAY_MEMBER];
} SweeperShared;

static SweeperShared *shared = NULL;

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

int
pgscale_sweeper_writers_wanted(const PgscaleSweeperPartition *partition)
{
	return Min(Min(pgscale_sweeper_settings.writers, partition->most_writers), partition->writers_now);
}

int
pgscale_sweeper_writers_running(PgscaleSweeperPartition *partition)
{
	int			running = 0;

	for (int i = 0; i < PGSCALE_SWEEPER_MAX_WRITERS; i++)
		running += pg_atomic_read_u32(&partition->writers[i].pid) != 0;
	return running;
}

int
pgscale_sweeper_pending(PgscaleSweeperPartition *partition, PgscaleSweeperQueues *queues)
{
	uint32		put = pg_atomic_read_u32(&queues->runs_put);
	uint32		queued = put - pg_atomic_read_u32(&queues->runs_taken);
	int			pages = 0;

	for (uint32 i = Min(queued, PGSCALE_RUNS_QUEUED); i > 0; i--)
		pages += queues->runs[(put - i) % PGSCALE_RUNS_QUEUED].pages;
	for (int i = 0; i < PGSCALE_SWEEPER_MAX_WRITERS; i++)
		pages += partition->writers[i].writing;
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
pgscale_sweeper_write_counts(const PgscaleSweeperPartition *partition)
{
	PgscaleSweeperWriteCounts sum = {0};

	/* Nothing but counts of 64 bits in there. */
	for (int i = 0; i < PGSCALE_SWEEPER_MAX_WRITERS; i++)
		for (int field = 0; field < sizeof(sum) / sizeof(uint64); field++)
			((uint64 *) &sum)[field] += ((const uint64 *) &partition->writers[i].counts)[field];
	return sum;
}

/* The n-th of that many contiguous partitions begins here. */
static int
partition_begin(int n, int workers)
{
	return (int) ((int64) NBuffers * n / workers);
}

int
pgscale_sweeper_stack_size(int buffers)
{
	return (int) Min(buffers * PGSCALE_SWEEPER_MAX_WATERMARK + 1, PGSCALE_SWEEPER_MAX_STOCK);
}

/* Each pins a page while it writes that, and sessions must find others. */
static int
most_writers(int n, int workers)
{
	int			all = Max(NBuffers / BUFFERS_A_WRITER, 1);

	return Min(all / workers + (n < all % workers), PGSCALE_SWEEPER_MAX_WRITERS);
}

int
pgscale_sweeper_workers(void)
{
	return Min(pgscale_sweeper_settings.workers, Max(max_worker_processes / 3, 1));
}

static Size
partitions_size(void)
{
	return add_size(offsetof(SweeperShared, partitions), mul_size(pgscale_sweeper_workers(), sizeof(PgscaleSweeperPartition)));
}

static uint64
sweeper_written(void)
{
	uint64		written = 0;

	for (int i = 0; i < shared->workers; i++)
		written += pgscale_sweeper_write_counts(&shared->partitions[i]).written;
	return written;
}

static void
partitions_init(void)
{
	const int	workers = pgscale_sweeper_workers();

	pgscale_counters_own_writes = sweeper_written;
	pgscale_buffer_worths = &pgscale_sweeper_worths;
	memset(shared->partitions, 0, workers * sizeof(PgscaleSweeperPartition));
	shared->workers = workers;

	for (int i = 0; i < workers; i++)
	{
		PgscaleSweeperPartition *partition = &shared->partitions[i];

		partition->number = i;
		partition->first = partition_begin(i, workers);
		partition->buffers = partition_begin(i + 1, workers) - partition->first;
		partition->stack_size = pgscale_sweeper_stack_size(partition->buffers);
		partition->most_writers = most_writers(i, workers);
		partition->writers_now = PGSCALE_SWEEPER_FIRST_WRITERS;
		partition->policy = PGSCALE_SWEEPER_NO_POLICY;
		partition->memory = DSM_HANDLE_INVALID;
		pg_atomic_init_u32(&partition->pid, 0);
		pgscale_change_init(&partition->report_changes);
		for (int w = 0; w < PGSCALE_SWEEPER_MAX_WRITERS; w++)
			pg_atomic_init_u32(&partition->writers[w].pid, 0);
	}
}

const PgscaleArea pgscale_sweeper_area = {
	.name = "pgscale sweeper",
	.at = (void **) &shared,
	.size = offsetof(SweeperShared, partitions),
	.computed = partitions_size,
	.nlocks = 1,
	.locks = offsetof(SweeperShared, lock),
	.init = partitions_init,
};

int
pgscale_sweeper_count(void)
{
	return shared->workers;
}

PgscaleSweeperPartition *
pgscale_sweeper_partition(int number)
{
	Assert(number >= 0 && number < shared->workers);
	return &shared->partitions[number];
}

bool
pgscale_sweeper_reported(PgscaleSweeperPartition *partition, PgscaleSweeperPolicyReport *report)
{
	pgscale_change_copy(&partition->report_changes, report, &partition->report, sizeof(*report));
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
	return pgscale_counters_backend_writes(&shared->backend_writes, shared->lock, anew);
}

void
pgscale_sweeper_base(PgscaleSweeperBase *base)
{
	LWLockAcquire(shared->lock, LW_SHARED);
	*base = shared->base;
	LWLockRelease(shared->lock);
}

void
pgscale_sweeper_rebase(void)
{
	int64		backend_writes = pgscale_sweeper_backend_writes(false);
	PgscaleSweeperPolicyReport reports[PGSCALE_SWEEPER_MAX_WORKERS] = {0};

	/* may wait */
	for (int i = 0; i < shared->workers; i++)
		(void) pgscale_sweeper_reported(&shared->partitions[i], &reports[i]);

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->workers; i++)
	{
		shared->base.sweep[i] = shared->partitions[i].counts;
		shared->base.write[i] = pgscale_sweeper_write_counts(&shared->partitions[i]);
		shared->base.policy[i] = reports[i];
	}
	shared->base.backend_writes = backend_writes;
	shared->base.reset_at = GetCurrentTimestamp();
	shared->base_known = true;
	LWLockRelease(shared->lock);
}

void
pgscale_sweeper_base_init(void)
{
	if (!shared->base_known)
		pgscale_sweeper_rebase();
}
