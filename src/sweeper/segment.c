/*-------------------------------------------------------------------------
 *
 * segment.c
 *	  The memory of the sweeper that grows with the buffers.
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

#include "miscadmin.h"
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
place_parts(char *at, PgscaleSweeperMemory *memory)
{
	Size		size;

	memory->queues = (PgscaleSweeperQueues *) at;
	size = CACHELINEALIGN(sizeof(PgscaleSweeperQueues));
	memory->pages = (PgscaleSweeperPage *) (at + size);
	size = add_size(size, CACHELINEALIGN(mul_size(NBuffers, sizeof(PgscaleSweeperPage))));
	memory->policy = (PgscaleSweeperPolicy *) (at + size);
	return add_size(size, pgscale_sweeper_policy_size(NBuffers));
}

Size
pgscale_sweeper_memory_size(void)
{
	PgscaleSweeperMemory none;

	return place_parts(NULL, &none);
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
pgscale_sweeper_memory_create(void)
{
	const Size	size = pgscale_sweeper_memory_size();
	const int64 began = pgscale_timer_clock();
	PgscaleSweeperMemory *memory = &pgscale_sweeper_memory;
	dsm_segment *segment = try_to_create(size);

	pgscale_sweeper->no_memory = segment == NULL;
	if (!segment)
	{
		/* whatever the one before did: others look at it */
		pgscale_sweeper->state = PGSCALE_SWEEPER_OFF;
		do
		{
			pgscale_worker_wait(LOOK_MS);
			(void) pgscale_worker_interrupts();
		} while (pgscale_sweeper_wanted() && pgscale_timer_clock() - began < AGAIN_NS);
		proc_exit(pgscale_sweeper_wanted() ? 1 : 0);
	}

	dsm_pin_mapping(segment);
	(void) place_parts(dsm_segment_address(segment), memory);
	memory->segment = segment;
	memset(memory->queues, 0, sizeof(*memory->queues));
	pg_atomic_init_u32(&memory->queues->runs_put, 0);
	pg_atomic_init_u32(&memory->queues->runs_taken, 0);
	for (int w = 0; w < PGSCALE_SWEEPER_MAX_WRITERS; w++)
	{
		pg_atomic_init_u32(&memory->queues->written[w].put, 0);
		pg_atomic_init_u32(&memory->queues->written[w].taken, 0);
	}
	pgscale_sweeper_pages_begin();
	pgscale_sweeper->observing = false;
	pg_write_barrier();
	pgscale_sweeper->memory = dsm_segment_handle(segment);
}

bool
pgscale_sweeper_memory_attach(PgscaleSweeperMemory *memory)
{
	const dsm_handle handle = pgscale_sweeper->memory;

	memory->segment = handle == DSM_HANDLE_INVALID ? NULL : dsm_attach(handle);
	if (!memory->segment)
		return false;
	(void) place_parts(dsm_segment_address(memory->segment), memory);
	return true;
}

/*
 * What the sweeper knows of pages, for those who read buffers
 */

/* Its memory, if it runs, from begin() to end(). */
static PgscaleSweeperMemory known;

static void
worths_begin(void)
{
	(void) pgscale_sweeper_memory_attach(&known);
}

static void
worths_end(void)
{
	if (known.segment)
		dsm_detach(known.segment);
}

/* The memory may change meanwhile; then a figure of one page is wrong, and no other. */
static bool
worth_of(int buf, const PgscalePage *page, PgscalePageWorth *worth)
{
	if (!known.segment || !known.pages[buf].known || known.pages[buf].hash != pgscale_buffer_page_hash(page))
		return false;
	worth->score = exp2(pgscale_sweeper_history_score(pgscale_sweeper_policy_history(known.policy), buf));
	worth->may_leave = pgscale_sweeper_policy_rank(known.policy, buf) == 0;
	return true;
}

const PgscalePageWorths pgscale_sweeper_worths = {worths_begin, worth_of, worths_end};
