/*-------------------------------------------------------------------------
 *
 * lock_gap.c
 *	  Finds a moment at which a relation can be locked exclusively without long waits of other sessions.
 *
 * A process that queues for AccessExclusiveLock blocks all later users of the relation until the slowest present user ends:
 * this is how an ALTER TABLE of a millisecond stops a server for minutes.  So the worker does not queue.  It reads
 * who holds a lock on the relation, which takes no lock on it and no xid, and asks for the lock when there is no holder.
 *
 * A busy table may have holders at each moment, each for a few milliseconds.  If all of them began just now, they are likely to
 * end soon, and the worker queues after all, for PGSCALE_GAP_QUEUE_MS at most.
 *
 * While the lock is held, LockHasWaitersRelation() would show whether others wait for it, but the server crashes in it
 * if the lock was taken by the fast path.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/twophase.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/processes.h"
#include "relocation/lock_gap.h"

/* Up to which age a transaction is new. */
#define NEW_MS		5

static void
add_user(PgscaleRelocationUsers *users, const VirtualTransactionId *user, TimestampTz now)
{
	const int	slot = pgscale_compat_vxid_slot(user);
	PgscaleProcStatement statement;
	bool		more;
	int			pid = 0;

	users->n++;

	/*
	 * A prepared transaction keeps the number of the session that has
	 * prepared it, which is at something else by now, or another session's.
	 */
	if (slot < 0 || TransactionIdIsValid(TwoPhaseGetXidByVirtualXID(*user, &more)))
		users->all_new = false;
	else if (!pgscale_procs_read_statement(slot, &statement))
		users->all_new = false;
	else
	{
		pid = statement.pid;
		if (statement.xact_start == 0 || now - statement.xact_start > NEW_MS * INT64CONST(1000))
			users->all_new = false;
	}
	for (int i = 0; i < users->npids; i++)
		if (users->pids[i] == pid)
			return;
	if (users->npids < PGSCALE_GAP_PIDS)
		users->pids[users->npids++] = pid;
	else
		users->others = true;
}

void
pgscale_relocation_gap_look(Oid relation, PgscaleRelocationUsers *users)
{
	const TimestampTz now = GetCurrentTimestamp();
	VirtualTransactionId *all;
	LOCKTAG		tag;
	int			n;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relation);
	all = GetLockConflicts(&tag, AccessExclusiveLock, &n);
	if (users->n == 0)
		users->all_new = true;
	for (int i = 0; i < n; i++)
		add_user(users, &all[i], now);
	pfree(all);
}

bool
pgscale_relocation_gap_take(Oid relation, bool queue)
{
	if (ConditionalLockRelationOid(relation, AccessExclusiveLock))
		return true;
	if (!queue)
		return false;
	LockTimeout = PGSCALE_GAP_QUEUE_MS;
	LockRelationOid(relation, AccessExclusiveLock);
	return true;
}
