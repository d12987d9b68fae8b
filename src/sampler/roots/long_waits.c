/*-------------------------------------------------------------------------
 *
 * long_waits.c
 *	  The blockers of long lock waits, for the history and the profile of blockers.
 *
 * A tick sees that a process waits for a lock, and since when.  Only the lock manager
 * knows the holder.  So all awaited locks are copied (base/lock_waits.c), between two
 * ticks, at most once a second, and only while a process has waited longer than the
 * server's deadlock_timeout, after which the server itself reads the lock manager.  The
 * samples of each wait in that copy carry its blockers until the next copy.  In the
 * profile, the root counts for the wait from its beginning: earlier samples are kept
 * until a copy contains the wait.
 *
 * The beginning of a wait, as its process shows it, separates two waits of one
 * process.  Its length is measured by the monotonic clock.
 *
 * Locking: that of base/lock_waits.c.  All memory is the sampler's own and is allocated
 * when it starts.  Holders beyond that memory are not read; then the root of some waits
 * may be unknown.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/atomics.h"
#include "utils/memutils.h"

#include "base/lock_waits.h"
#include "base/pg_compat.h"
#include "base/processes.h"
#include "base/units.h"
#include "sampler/roots/blocker_profile.h"
#include "sampler/roots/long_waits.h"
#include "sampler/samples.h"

/* Between two looks. */
#define LOOK_NS			NS_PER_S

/* Room for that many holders of awaited locks, for each process. */
#define HOLDERS_EACH	4

/* What is known of the wait of a process. */
typedef struct LockWait
{
	int			pid;
	uint64		began;			/* as the process shows it: which wait it is */
	int64		seen_ns;		/* when a tick saw it first */
	uint64		found;			/* the wait that the last look saw, or 0 */
	PgscaleSamplerBlocked by;	/* and in whose way it saw it; to this root's
								 * entry goes its time */
	uint32		wait_event;
	uint64		pending_ns;		/* its time that no root is known of yet */
} LockWait;

static LockWait *lock_waits;
static PgscaleLockWaits *graph;
static int64 last_look;
static bool look_wanted;		/* by the present tick */

void
pgscale_sampler_long_waits_attach(void)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	lock_waits = palloc_extended(pgscale_procs_count() * sizeof(LockWait), MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	graph = pgscale_lock_waits_create(HOLDERS_EACH * pgscale_procs_count(), false);
	MemoryContextSwitchTo(old);
}

void
pgscale_sampler_long_waits_reset(void)
{
	for (int slot = 0; slot < pgscale_procs_count(); slot++)
		lock_waits[slot].pending_ns = lock_waits[slot].found = 0;
	pgscale_sampler_blockers_reset();
}

const PgscaleSamplerBlocked *
pgscale_sampler_long_waits_add(const PgscaleSamplerTickSample *sample, int64 now)
{
	const PgscaleProc *proc = sample->proc;
	LockWait   *wait = &lock_waits[sample->slot];
	uint64		began = pg_atomic_read_u64(&ProcGlobal->allProcs[sample->slot].waitStart);

	/* A process waits for a moment before it shows since when. */
	if (began == 0)
	{
		pgscale_sampler_blockers_add_unknown(proc->wait_event, sample->ns);
		return NULL;
	}
	/* After a wait in vain it may still show that one's beginning. */
	if (wait->began != began || wait->pid != proc->pid || wait->wait_event != proc->wait_event)
	{
		wait->pid = proc->pid;
		wait->began = began;
		wait->seen_ns = now;
		wait->wait_event = proc->wait_event;
		wait->pending_ns = 0;
	}
	if (wait->found != began || !pgscale_sampler_blockers_add(&wait->by.entry, proc->wait_event, sample->ns))
	{
		pgscale_sampler_blockers_add_unknown(proc->wait_event, sample->ns);
		wait->pending_ns += sample->ns;
	}
	if (now - wait->seen_ns < DeadlockTimeout * NS_PER_MS)
		return NULL;
	look_wanted = true;
	return wait->found == began ? &wait->by : NULL;
}

/* Gives a wait its root. */
static void
add_to_root(const PgscaleLockWaiter *waiter, const PgscaleSamplerRoot *root)
{
	LockWait   *wait = &lock_waits[waiter->slot];
	const bool	same = wait->began == (uint64) waiter->since && wait->pid == waiter->pid;

	wait->by.entry = *root;
	if (root->born == 0)
		return;
	pgscale_sampler_blockers_move(root, wait->wait_event, same ? wait->pending_ns : 0);
	wait->pending_ns = 0;
}

bool
pgscale_sampler_long_waits_look(int64 now, TimestampTz wall)
{
	bool		wanted = look_wanted;
	PgscaleSamplerRoot root = {0};
	int			root_node = -1;
	bool		all_known;

	look_wanted = false;
	if (!wanted || now - last_look < LOOK_NS)
		return false;
	last_look = now;

	all_known = pgscale_lock_waits_read(graph);
	pgscale_lock_waits_find_roots(graph);
	for (int slot = 0; slot < pgscale_procs_count(); slot++)
		lock_waits[slot].found = 0;
	pgscale_sampler_blockers_begin(wall);
	for (int i = 0; i < graph->nwaiters; i++)
	{
		const PgscaleLockWaiter *waiter = &graph->waiters[i];
		const PgscaleLockNode *node = &graph->nodes[waiter->node];
		LockWait   *wait = &lock_waits[waiter->slot];

		if (node->blocker < 0)
			continue;

		/*
		 * A root that waits is part of a cycle, or waits for an unknown
		 * blocker.
		 */
		if (!all_known && graph->nodes[node->root].waiter >= 0)
			continue;
		wait->found = (uint64) waiter->since;
		wait->by.blocker = graph->nodes[node->blocker].pid;
		wait->by.root = graph->nodes[node->root].pid;

		/* Most waiters for the same lock have the same root. */
		if (node->root != root_node && !pgscale_sampler_blockers_find(&graph->nodes[node->root], &root))
			memset(&root, 0, sizeof(root));
		root_node = node->root;
		add_to_root(waiter, &root);
	}
	pgscale_sampler_blockers_end();
	return true;
}
