/*-------------------------------------------------------------------------
 *
 * lock_waits.c
 *	  A copy of the wait-for graph from the lock manager.
 *
 * pg_blocking_pids() takes all partitions of the lock manager for each waiter, so two
 * of its answers are not from one moment. pg_locks takes them once, but copies all
 * locks and does not show the order of a queue.  Here the partitions are taken once,
 * and only awaited locks are copied: the PGPROC of a waiter leads to its lock, and the
 * lock to its queue and its holders.
 *
 * Waiters are searched before that, without a lock: the PGPROC shows the wait.  Under
 * the locks, each waiter is read again, and so is each process that holds an awaited
 * lock or is ahead in its queue, with the rest of its lock group.  So a process that
 * began to wait meanwhile may be missing, but no waiting process can look like a root.
 *
 * Fast-path locks do not matter: a process that needs a conflicting lock moves them to
 * the shared table before it waits.
 *
 * Locking: all partitions, shared, in their order, as the lock manager requires.
 * Nothing can raise an error meanwhile; LWLocks hold off interrupts.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/twophase.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/wait_event.h"

#include "base/lock_waits.h"
#include "base/pg_compat.h"
#include "base/processes.h"
#include "base/wait_events.h"

/* Initial room of a graph that is to have all holders. */
#define FIRST_HOLDERS	1000

/* How many of a waiter's latest locks of a partition may be the row that it waits for. */
#define ROW_SEARCH	3

PgscaleLockWaits *
pgscale_lock_waits_create(int max_holders, bool rows)
{
	PgscaleLockWaits *waits = palloc0(sizeof(PgscaleLockWaits));
	Size		nslots;

	/*
	 * The dummy processes of prepared transactions come last, and are not
	 * counted.
	 */
	waits->nslots = (int) ProcGlobal->allProcCount + max_prepared_xacts;
	waits->max_holders = max_holders;
	waits->rows = rows;
	nslots = waits->nslots;
	waits->nodes = palloc_extended(nslots * sizeof(PgscaleLockNode), MCXT_ALLOC_HUGE);
	waits->locks = palloc_extended(nslots * sizeof(PgscaleAwaitedLock), MCXT_ALLOC_HUGE);
	waits->waiters = palloc_extended(nslots * sizeof(PgscaleLockWaiter), MCXT_ALLOC_HUGE);
	waits->holders = palloc_extended(max_holders * sizeof(PgscaleLockHolder), MCXT_ALLOC_HUGE);
	waits->node_of = palloc(nslots * sizeof(int));
	waits->lock_of = palloc(nslots * sizeof(int));
	waits->pending = palloc(2 * nslots * sizeof(int));
	waits->others = palloc(nslots * sizeof(int));
	return waits;
}

/* Recovery waits for sessions' snapshots by looking again and again. */
static bool
is_other_wait(uint32 wait_event)
{
	return pgscale_waits_for_pin(wait_event) ||
		wait_event == WAIT_EVENT_RECOVERY_CONFLICT_SNAPSHOT ||
		wait_event == WAIT_EVENT_RECOVERY_CONFLICT_TABLESPACE;
}

static void
find_waiting(PgscaleLockWaits *waits)
{
	waits->npending = waits->nothers = 0;
	for (int slot = 0; slot < waits->nslots; slot++)
	{
		volatile PGPROC *proc = &ProcGlobal->allProcs[slot];

		if (proc->waitLock != NULL)
			waits->pending[waits->npending++] = slot;
		else if (is_other_wait(*pgscale_compat_wait_event_at(proc)))
			waits->others[waits->nothers++] = slot;
	}
}

/* Before other waiters for the same lock are known. */
static void
add_pending(PgscaleLockWaits *waits, PGPROC *proc)
{
	int			slot = (int) (proc - ProcGlobal->allProcs);

	if (proc->waitLock != NULL && waits->lock_of[slot] < 0)
		waits->pending[waits->npending++] = slot;
}

/*
 * The node of a process; a new one's processes are all looked at.  A leader that has left
 * keeps its slot, and before 17 its pid, for as long as its lock group lasts: the group's
 * first process then stands for all.
 */
static int
node_of_proc(PgscaleLockWaits *waits, PGPROC *proc)
{
	PGPROC	   *leader = proc->lockGroupLeader ? proc->lockGroupLeader : proc;
	PGPROC	   *shown = leader;
	int			slot = (int) (leader - ProcGlobal->allProcs);
	PgscaleLockNode *node;

	if (waits->node_of[slot] >= 0)
		return waits->node_of[slot];

	waits->node_of[slot] = waits->nnodes;
	node = &waits->nodes[waits->nnodes++];
	if (leader->lockGroupLeader != NULL && !pgscale_procs_in_use(slot))
		shown = dlist_head_element(PGPROC, lockGroupLink, &leader->lockGroupMembers);
	node->slot = (int) (shown - ProcGlobal->allProcs);
	node->pid = shown->pid;
	node->xid = shown->pid == 0 ? shown->xid : InvalidTransactionId;
	node->waiter = node->holder = node->blocker = node->parent = -1;
	node->root = waits->nnodes - 1;
	node->other_wait = 0;

	if (leader->lockGroupLeader == NULL)
		add_pending(waits, leader);
	else
	{
		dlist_iter	iter;

		dlist_foreach(iter, &leader->lockGroupMembers)
			add_pending(waits, dlist_container(PGPROC, lockGroupLink, iter.cur));
	}
	return waits->nnodes - 1;
}

/*
 * A process that updates or locks a row takes the row's own lock first, as a place in
 * the queue, and then waits for the transaction that has changed the row.  So that lock
 * is among the latest ones of its partition, however many locks the process has.
 * Behind it come at most the transaction's lock and a relation's that another process
 * moved there from the fast path.
 */
static bool
find_row(PGPROC *proc, LOCKTAG *row)
{
	for (int i = 0; i < NUM_LOCK_PARTITIONS; i++)
	{
		PROCLOCK   *held = NULL;

		for (int left = ROW_SEARCH; left > 0 && (held = pgscale_compat_earlier_held(proc, i, held)) != NULL; left--)
			if (held->tag.myLock->tag.locktag_type == LOCKTAG_TUPLE && held->holdMask != 0)
			{
				*row = held->tag.myLock->tag;
				return true;
			}
	}
	return false;
}

static void
add_waiter(PgscaleLockWaits *waits, PGPROC *proc, int lock)
{
	PgscaleLockWaiter *waiter = &waits->waiters[waits->nwaiters];
	PgscaleLockNode *node;

	waiter->slot = (int) (proc - ProcGlobal->allProcs);
	waits->lock_of[waiter->slot] = lock;
	waiter->node = node_of_proc(waits, proc);
	waiter->pid = proc->pid;
	waiter->lock = lock;
	waiter->mode = proc->waitLockMode;
	waiter->since = (TimestampTz) pg_atomic_read_u64(&proc->waitStart);
	waiter->row_known = waits->rows && waits->locks[lock].tag.locktag_type == LOCKTAG_TRANSACTION &&
		find_row(proc, &waiter->row);

	node = &waits->nodes[waiter->node];
	waiter->next = node->waiter;
	node->waiter = waits->nwaiters++;
}

static void
add_holder(PgscaleLockWaits *waits, PGPROC *proc, int lock, LOCKMASK modes)
{
	PgscaleLockHolder *holder = &waits->holders[waits->nholders];
	PgscaleLockNode *node;

	holder->node = node_of_proc(waits, proc);
	holder->lock = lock;
	holder->modes = modes;

	node = &waits->nodes[holder->node];
	holder->next = node->holder;
	node->holder = waits->nholders++;
}

/* Copies a lock, its queue, and of its holders those that conflict with the queue. */
static bool
add_lock(PgscaleLockWaits *waits, LOCK *from)
{
	int			number = waits->nlocks++;
	PgscaleAwaitedLock *lock = &waits->locks[number];
	LOCKMASK	conflicts = 0;
	PGPROC	   *waiter = NULL;
	PROCLOCK   *held = NULL;

	lock->tag = from->tag;
	lock->conflicts = GetLockTagsMethodTable(&from->tag)->conflictTab;
	lock->first_waiter = waits->nwaiters;
	lock->first_holder = waits->nholders;

	while ((waiter = pgscale_compat_next_waiter(from, waiter)) != NULL)
	{
		conflicts |= lock->conflicts[waiter->waitLockMode];
		add_waiter(waits, waiter, number);
	}
	lock->nwaiters = waits->nwaiters - lock->first_waiter;

	while (waits->nholders < waits->max_holders &&
		   (held = pgscale_compat_next_holder(from, held)) != NULL)
		if ((held->holdMask & conflicts) != 0)
			add_holder(waits, held->tag.myProc, number, held->holdMask);
	lock->nholders = waits->nholders - lock->first_holder;
	return waits->nholders < waits->max_holders;
}

bool
pgscale_lock_waits_read(PgscaleLockWaits *waits)
{
	bool		fits = true;

	waits->nnodes = waits->nlocks = waits->nwaiters = waits->nholders = 0;
	find_waiting(waits);
	if (waits->npending == 0 && waits->nothers == 0)
		return true;
	for (int slot = 0; slot < waits->nslots; slot++)
		waits->node_of[slot] = waits->lock_of[slot] = -1;

	for (int i = 0; i < NUM_LOCK_PARTITIONS; i++)
		LWLockAcquire(LockHashPartitionLockByIndex(i), LW_SHARED);

	/* Those that are found meanwhile come to the end of the list. */
	while (waits->npending > 0)
	{
		int			slot = waits->pending[--waits->npending];
		LOCK	   *lock = ProcGlobal->allProcs[slot].waitLock;

		if (lock != NULL && waits->lock_of[slot] < 0)
			fits = add_lock(waits, lock) && fits;
	}
	for (int i = 0; i < waits->nothers; i++)
	{
		PGPROC	   *proc = &ProcGlobal->allProcs[waits->others[i]];
		uint32		wait_event = *pgscale_compat_wait_event_at(proc);

		if (pgscale_procs_in_use(waits->others[i]) && is_other_wait(wait_event))
			waits->nodes[node_of_proc(waits, proc)].other_wait = wait_event;
	}

	for (int i = NUM_LOCK_PARTITIONS; --i >= 0;)
		LWLockRelease(LockHashPartitionLockByIndex(i));
	return fits;
}

int
pgscale_lock_waits_blockers(const PgscaleLockWaits *waits, int node, int *blockers, int most, int *marks, int mark)
{
	int			n = 0;

	marks[node] = mark;
	for (int i = waits->nodes[node].waiter; i >= 0 && n < most; i = waits->waiters[i].next)
	{
		const PgscaleLockWaiter *waiter = &waits->waiters[i];
		const PgscaleAwaitedLock *lock = &waits->locks[waiter->lock];
		LOCKMASK	conflicts = lock->conflicts[waiter->mode];

		for (int h = lock->first_holder; h < lock->first_holder + lock->nholders && n < most; h++)
		{
			const PgscaleLockHolder *holder = &waits->holders[h];

			if ((holder->modes & conflicts) != 0 && marks[holder->node] != mark)
			{
				marks[holder->node] = mark;
				blockers[n++] = holder->node;
			}
		}
		for (int w = lock->first_waiter; w < i && n < most; w++)
		{
			const PgscaleLockWaiter *ahead = &waits->waiters[w];

			if ((LOCKBIT_ON(ahead->mode) & conflicts) != 0 && marks[ahead->node] != mark)
			{
				marks[ahead->node] = mark;
				blockers[n++] = ahead->node;
			}
		}
	}
	return n;
}

/*
 * Follows the parents from a node on until one of which the root is known, or which has
 * none.  Returns that one, or, if the way leads back to itself, the one of the cycle that
 * has waited longest, which then has no parent any more.
 */
static int
find_end(PgscaleLockWaits *waits, int node, int *seen)
{
	int			at = node;
	int			end;

	while (waits->nodes[at].parent >= 0 && waits->nodes[at].root < 0 && seen[at] != node)
	{
		seen[at] = node;
		at = waits->nodes[at].parent;
	}
	if (waits->nodes[at].parent < 0 || waits->nodes[at].root >= 0)
		return at;

	end = at;
	for (int other = waits->nodes[at].parent; other != at; other = waits->nodes[other].parent)
		if (pgscale_lock_waits_since(waits, other) < pgscale_lock_waits_since(waits, end))
			end = other;
	waits->nodes[end].parent = -1;
	return end;
}

TimestampTz
pgscale_lock_waits_since(const PgscaleLockWaits *waits, int node)
{
	TimestampTz since = DT_NOEND;

	for (int i = waits->nodes[node].waiter; i >= 0; i = waits->waiters[i].next)
		if (waits->waiters[i].since != 0)
			since = Min(since, waits->waiters[i].since);
	return since;
}

void
pgscale_lock_waits_find_roots(PgscaleLockWaits *waits)
{
	/* What the reading needed, it does not need any more. */
	int		   *marks = waits->node_of;
	int		   *seen = waits->lock_of;

	for (int node = 0; node < waits->nnodes; node++)
		marks[node] = seen[node] = -1;
	for (int node = 0; node < waits->nnodes; node++)
	{
		PgscaleLockNode *of = &waits->nodes[node];

		if (pgscale_lock_waits_blockers(waits, node, &of->blocker, 1, marks, node) == 0)
			of->blocker = -1;
		of->parent = of->blocker;
		of->root = -1;
	}
	for (int node = 0; node < waits->nnodes; node++)
	{
		int			end = find_end(waits, node, seen);
		int			root = waits->nodes[end].root >= 0 ? waits->nodes[end].root : end;

		waits->nodes[end].root = root;
		for (int at = node; waits->nodes[at].root < 0; at = waits->nodes[at].parent)
			waits->nodes[at].root = root;
	}
}

PgscaleLockWaits *
pgscale_lock_waits_read_all(bool rows)
{
	for (int holders = FIRST_HOLDERS;; holders *= 4)
	{
		PgscaleLockWaits *waits = pgscale_lock_waits_create(holders, rows);

		CHECK_FOR_INTERRUPTS();
		if (pgscale_lock_waits_read(waits))
			return waits;
	}
}

Oid
pgscale_lock_waits_relation(const LOCKTAG *tag, Oid *database)
{
	switch ((LockTagType) tag->locktag_type)
	{
		case LOCKTAG_RELATION:
		case LOCKTAG_RELATION_EXTEND:
		case LOCKTAG_PAGE:
		case LOCKTAG_TUPLE:
		case LOCKTAG_OBJECT:
			*database = tag->locktag_field1;
			return tag->locktag_field2;
		default:
			return InvalidOid;
	}
}
