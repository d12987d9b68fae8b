/*-------------------------------------------------------------------------
 *
 * behind.c
 *	  The number of transactions behind each blocker, directly or indirectly.
 *
 * It is a search from each node along all edges, including those of the queues.  There
 * are as many queue edges as pairs of waiters, so they are not stored.  A place in a
 * queue is visited only once for each mode that it could block: the set behind the
 * first holder, or first waiter, of a mode is also behind all others of that mode.  So
 * each search visits a waiter at most eight times.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "base/lock_waits.h"
#include "blockers/blockers.h"

typedef struct Search
{
	const PgscaleLockWaits *waits;
	int			from;
	int		   *reached;		/* by node: the last search that came there */
	int		   *queue;			/* nodes to go on from */
	int			nqueue;
	int		   *searched;		/* by lock: the last search that came there */
	int			(*begin)[MAX_LOCKMODES];	/* by lock and mode: the place
											 * from which on its queue was
											 * searched */
} Search;

/* Comes to those that a mode holds up, from that place of the lock's queue on. */
static void
search_queue(Search *search, int lock_number, LOCKMODE mode, int begin, int self)
{
	const PgscaleAwaitedLock *lock = &search->waits->locks[lock_number];
	int			end;

	if (search->searched[lock_number] != search->from)
	{
		search->searched[lock_number] = search->from;
		for (int i = 0; i < MAX_LOCKMODES; i++)
			search->begin[lock_number][i] = lock->first_waiter + lock->nwaiters;
	}

	end = search->begin[lock_number][mode];
	for (int i = begin; i < end; i++)
	{
		const PgscaleLockWaiter *waiter = &search->waits->waiters[i];

		if ((lock->conflicts[waiter->mode] & LOCKBIT_ON(mode)) == 0 ||
			waiter->node == self || search->reached[waiter->node] == search->from)
			continue;
		search->reached[waiter->node] = search->from;
		search->queue[search->nqueue++] = waiter->node;
	}
	search->begin[lock_number][mode] = Min(begin, end);
}

static void
search_from(Search *search, int number)
{
	const PgscaleLockWaits *waits = search->waits;

	for (int i = waits->nodes[number].holder; i >= 0; i = waits->holders[i].next)
	{
		const PgscaleLockHolder *holder = &waits->holders[i];

		for (LOCKMODE mode = 1; mode < MAX_LOCKMODES; mode++)
			if (holder->modes & LOCKBIT_ON(mode))
				search_queue(search, holder->lock, mode, waits->locks[holder->lock].first_waiter, number);
	}
	for (int i = waits->nodes[number].waiter; i >= 0; i = waits->waiters[i].next)
		search_queue(search, waits->waiters[i].lock, waits->waiters[i].mode, i + 1, number);
}

static void
init_search(Search *search, const PgscaleLockWaits *waits)
{
	memset(search, 0, sizeof(*search));
	search->waits = waits;
	search->reached = palloc(waits->nnodes * sizeof(int));
	search->queue = palloc(waits->nnodes * sizeof(int));
	search->searched = palloc(waits->nlocks * sizeof(int));
	search->begin = palloc(waits->nlocks * sizeof(*search->begin));
	for (int i = 0; i < waits->nnodes; i++)
		search->reached[i] = -1;
	for (int i = 0; i < waits->nlocks; i++)
		search->searched[i] = -1;
}

/* Returns the number of nodes behind one. */
static int
search_behind(Search *search, int node)
{
	search->from = node;
	search->reached[node] = node;
	search->nqueue = 0;
	search_from(search, node);
	for (int i = 0; i < search->nqueue; i++)
		search_from(search, search->queue[i]);
	return search->nqueue;
}

int
pgscale_blockers_count_behind_one(const PgscaleLockWaits *waits, int node)
{
	Search		search;

	init_search(&search, waits);
	return search_behind(&search, node);
}

void
pgscale_blockers_count_behind(const PgscaleLockWaits *waits, int *behind, bool *cycle)
{
	const int	n = waits->nnodes;
	int		   *blockers = palloc(n * sizeof(int));
	int		   *marks = palloc(n * sizeof(int));
	Search		search;

	init_search(&search, waits);
	for (int i = 0; i < n; i++)
		marks[i] = -1;

	for (int node = 0; node < n; node++)
	{
		int			nblockers;

		CHECK_FOR_INTERRUPTS();
		behind[node] = search_behind(&search, node);

		/* Itself is never come to: is one of those in its way behind it? */
		cycle[node] = false;
		if (behind[node] == 0)
			continue;
		nblockers = pgscale_lock_waits_blockers(waits, node, blockers, n, marks, node);
		for (int i = 0; i < nblockers; i++)
			if (search.reached[blockers[i]] == node)
				cycle[node] = true;
	}
}
