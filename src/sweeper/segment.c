/*-------------------------------------------------------------------------
 *
 * segment.c
 *	  The memory of a sweeper that grows with the buffers.
 *
 * It is a dynamic segment, which the sweeper makes when it starts and which goes with it.
 * So a server with the sweeper off has nothing of it, whatever shared_buffers is, and can
 * have it switched on without a restart.  Its writers map the segment for the queues.  A
 * session maps it for the time of one call, to see what the policy knows of pages.  It
 * cannot be the sweeper's private memory for these two.
 *
 * A writer of an earlier sweeper has the queues of that one still, and ends when it sees
 * that there are others.
 *
 * Failure: the segment may be larger than what is left, in a container often 64 MB in all.
 * The server reserves a segment's pages when it makes it, so that nothing fails later on.
 * Then the log has the reason, and pgscale.health says how much it needs.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/memutils.h"

#include "base/timer.h"
#include "base/units.h"
#include "base/worker.h"
#include "sweeper/known_pages.h"
#include "sweeper/segment.h"
#include "sweeper/sweeper.h"

/* Between two tries to get it. */
#define AGAIN_NS	(60 * NS_PER_S)
#define LOOK_MS		1000

/* Where the parts are; bytes in all. */
static Size
place_parts(int buffers, int stack, char *at, PgscaleSweeperMemory *memory)
{
	Size		most = 0;
	Size		size;

	for (int i = 0; i < PGSCALE_SWEEPER_POLICIES; i++)
		most = Max(most, pgscale_sweeper_policies[i]->size(buffers));

	memory->queues = (PgscaleSweeperQueues *) at;
	size = CACHELINEALIGN(sizeof(PgscaleSweeperQueues));
	memory->pages = (PgscaleSweeperPage *) (at + size);
	size = add_size(size, CACHELINEALIGN(mul_size(buffers, sizeof(PgscaleSweeperPage))));
	memory->policy = at + size;
	size = add_size(size, CACHELINEALIGN(most));
	memory->stack = (PgscaleSweeperSupplied *) (at + size);
	return add_size(size, mul_size(PGSCALE_FREELIST ? stack : 0, sizeof(PgscaleSweeperSupplied)));
}

Size
pgscale_sweeper_memory_size(int buffers)
{
	PgscaleSweeperMemory none;

	return place_parts(buffers, pgscale_sweeper_stack_size(buffers), NULL, &none);
}

/* Returns NULL if there is none: the log has the reason. */
static dsm_segment *
try_to_create(Size size)
{
	MemoryContext context = CurrentMemoryContext;
	dsm_segment *volatile segment = NULL;

	PG_TRY();
	{
		segment = dsm_create(size, 0);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		EmitErrorReport();
		FlushErrorState();
		LWLockReleaseAll();
		pgstat_report_wait_end();
	}
	PG_END_TRY();
	return segment;
}

void
pgscale_sweeper_memory_create(PgscaleSweeperPartition *partition)
{
	const Size	size = pgscale_sweeper_memory_size(partition->buffers);
	const int64 began = pgscale_timer_clock();
	PgscaleSweeperMemory *memory = &pgscale_sweeper_memory;
	dsm_segment *segment = try_to_create(size);

	partition->no_memory = segment == NULL;
	if (!segment)
	{
		/* whatever the one before did: others look at it */
		partition->state = PGSCALE_SWEEPER_OFF;
		do
		{
			pgscale_worker_wait(LOOK_MS);
			(void) pgscale_worker_interrupts();
		} while (pgscale_sweeper_wanted() && pgscale_timer_clock() - began < AGAIN_NS);
		proc_exit(pgscale_sweeper_wanted() ? 1 : 0);
	}

	dsm_pin_mapping(segment);
	(void) place_parts(partition->buffers, partition->stack_size, dsm_segment_address(segment), memory);
	memory->segment = segment;
	memset(memory->queues, 0, sizeof(*memory->queues));
	pg_atomic_init_u32(&memory->queues->runs_put, 0);
	pg_atomic_init_u32(&memory->queues->runs_taken, 0);
	for (int w = 0; w < PGSCALE_SWEEPER_MAX_WRITERS; w++)
	{
		pg_atomic_init_u32(&memory->queues->written[w].put, 0);
		pg_atomic_init_u32(&memory->queues->written[w].taken, 0);
	}
	partition->stack_used = 0;
	partition->policy = PGSCALE_SWEEPER_NO_POLICY;
	pg_write_barrier();
	partition->memory = dsm_segment_handle(segment);
}

bool
pgscale_sweeper_memory_attach(const PgscaleSweeperPartition *partition, PgscaleSweeperMemory *memory)
{
	const dsm_handle handle = partition->memory;

	memory->segment = handle == DSM_HANDLE_INVALID ? NULL : dsm_attach(handle);
	if (!memory->segment)
		return false;
	(void) place_parts(partition->buffers, partition->stack_size, dsm_segment_address(memory->segment), memory);
	return true;
}

/*
 * What the sweepers know of pages, for those who read buffers
 */

/* The memories of all sweepers that run, from begin() to end(). */
static PgscaleSweeperMemory memories[PGSCALE_SWEEPER_MAX_WORKERS];

static void
worths_begin(void)
{
	/* those of a call that an error ended are not mapped any more */
	memset(memories, 0, sizeof(memories));
	for (int n = 0; n < pgscale_sweeper_count(); n++)
		(void) pgscale_sweeper_memory_attach(pgscale_sweeper_partition(n), &memories[n]);
}

static void
worths_end(void)
{
	for (int n = 0; n < pgscale_sweeper_count(); n++)
		if (memories[n].segment)
			dsm_detach(memories[n].segment);
}

/* The memory may change meanwhile; then a figure of one page is wrong, and no other. */
static bool
worth_of(int buf, const PgscalePage *page, PgscalePageWorth *worth)
{
	const PgscaleSweeperPartition *partition;
	const PgscaleSweeperMemory *memory;
	const PgscaleSweeperPolicy *policy;
	int			kind;
	int			n = 0;

	while (buf >= pgscale_sweeper_partition(n)->first + pgscale_sweeper_partition(n)->buffers)
		n++;
	partition = pgscale_sweeper_partition(n);
	memory = &memories[n];
	kind = partition->policy;	/* once: another sweeper may begin meanwhile */
	buf -= partition->first;
	if (!memory->segment || kind == PGSCALE_SWEEPER_NO_POLICY ||
		!memory->pages[buf].known || memory->pages[buf].hash != pgscale_buffer_page_hash(page))
		return false;
	policy = pgscale_sweeper_policies[kind];
	worth->score = exp2(policy->score(memory->policy, buf));
	worth->may_leave = policy->rank(memory->policy, buf) == 0;
	return true;
}

const PgscalePageWorths pgscale_sweeper_worths = {worths_begin, worth_of, worths_end};
