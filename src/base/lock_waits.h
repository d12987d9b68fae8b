/*-------------------------------------------------------------------------
 *
 * lock_waits.h
 *	  The wait-for graph of heavyweight locks at this moment.
 *
 * A node is a transaction that waits or that others wait for: a session with its
 * parallel workers, which share their locks; another process; or a prepared
 * transaction, which has no process.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_LOCK_WAITS_H
#define PGSCALE_BASE_LOCK_WAITS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "storage/lock.h"

/* A process that waits, in its place in the lock's queue. */
typedef struct PgscaleLockWaiter
{
	int			node;
	int			slot;
	int			pid;
	int			lock;
	LOCKMODE	mode;
	TimestampTz since;			/* 0: since just now */
	int			next;			/* another one of the same node, or -1 */
	bool		row_known;
	LOCKTAG		row;			/* that it has come first for, if it waits for
								 * who changed it */
} PgscaleLockWaiter;

typedef struct PgscaleLockHolder
{
	int			node;
	int			lock;
	LOCKMASK	modes;
	int			next;			/* another one of the same node, or -1 */
} PgscaleLockHolder;

/* A lock that is waited for. */
typedef struct PgscaleAwaitedLock
{
	LOCKTAG		tag;
	const LOCKMASK *conflicts;	/* by mode */
	int			first_waiter;	/* they follow each other as in the queue */
	int			nwaiters;
	int			first_holder;	/* those that block others */
	int			nholders;
} PgscaleAwaitedLock;

typedef struct PgscaleLockNode
{
	int			slot;			/* of its process; of a group its leader's, or
								 * a member's if the leader has left */
	int			pid;			/* or 0: a prepared transaction */
	TransactionId xid;			/* of a prepared transaction */
	int			waiter;			/* one of its processes that wait, or -1 */
	int			holder;			/* one of the locks that it holds, or -1 */
	uint32		other_wait;		/* the event, if it waits for something other
								 * than a lock, with unknown holders; or 0 */

	/* Since pgscale_lock_waits_find_roots(). */
	int			blocker;		/* the first in its way, or -1 */
	int			parent;			/* the same, or -1 where that closes a cycle */
	int			root;			/* the last one that way; itself, if it is one */
} PgscaleLockNode;

typedef struct PgscaleLockWaits
{
	int			nnodes;
	PgscaleLockNode *nodes;
	int			nlocks;
	PgscaleAwaitedLock *locks;
	int			nwaiters;
	PgscaleLockWaiter *waiters;
	int			nholders;
	PgscaleLockHolder *holders;

	/* Of lock_waits.c only. */
	int			nslots;
	int			max_holders;
	bool		rows;
	int		   *node_of;		/* by slot, or -1 */
	int		   *lock_of;		/* by slot: what it waits for, or -1 */
	int		   *pending;		/* slots that wait, or seem to; each twice at
								 * most */
	int			npending;
	int		   *others;			/* slots that wait for something other than a
								 * lock */
	int			nothers;
} PgscaleLockWaits;

/*
 * Makes room for all processes, and for that many holders of awaited locks. rows: find
 * the rows of waiters, too, which takes most of the time for which the partitions are
 * held if many wait for transactions.
 */
extern PgscaleLockWaits *pgscale_lock_waits_create(int max_holders, bool rows);

/*
 * Reads the graph again, as of one moment.  If no process waits, no lock is taken.
 * Otherwise all partitions of the lock manager are taken once, in shared mode, while
 * the awaited locks are copied.  Returns false if not all holders fitted.  Needs no
 * transaction and allocates nothing.
 */
extern bool pgscale_lock_waits_read(PgscaleLockWaits *waits);

/*
 * Makes room and reads, with more room until all holders fit.  Can be cancelled between two
 * readings; the graph is in the current memory context.
 */
extern PgscaleLockWaits *pgscale_lock_waits_read_all(bool rows);

/*
 * The relation that a lock is about, or the catalog of another object, and its database;
 * InvalidOid, and *database unchanged, if it is about neither.
 */
extern Oid	pgscale_lock_waits_relation(const LOCKTAG *tag, Oid *database);

/*
 * The blockers of a node, as in pg_blocking_pids(): holders of a conflicting lock, and
 * waiters for one that are ahead in the queue.  Stores at most that many nodes into an
 * array, each once and holders first; marks has room for all nodes, with values other
 * than mark.  Returns their number.
 */
extern int	pgscale_lock_waits_blockers(const PgscaleLockWaits *waits, int node, int *blockers, int most,
										int *marks, int mark);

/* Since when a node waits; DT_NOEND if it does not, or since just now. */
extern TimestampTz pgscale_lock_waits_since(const PgscaleLockWaits *waits, int node);

/*
 * Gives each node one parent, so that the graph is a forest.  In a cycle, which has no
 * root, the node that has waited longest becomes the root.
 */
extern void pgscale_lock_waits_find_roots(PgscaleLockWaits *waits);

#endif							/* PGSCALE_BASE_LOCK_WAITS_H */
