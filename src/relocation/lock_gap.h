/*-------------------------------------------------------------------------
 *
 * lock_gap.h
 *	  Finds a moment at which a relation can be locked exclusively without long waits of other sessions.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_LOCK_GAP_H
#define PGSCALE_RELOCATION_LOCK_GAP_H

#include "postgres.h"

#define PGSCALE_GAP_PIDS	8

/* Who uses a relation. */
typedef struct PgscaleRelocationUsers
{
	int			n;				/* a process counts once for each relation */
	bool		all_new;		/* have all of their transactions begun just
								 * now? */
	int			npids;
	int			pids[PGSCALE_GAP_PIDS]; /* of some of them; 0: a prepared
										 * transaction */
	bool		others;			/* than those of pids */
} PgscaleRelocationUsers;

/* Adds the users of this relation.  Takes no lock on it.  Inside or outside a transaction. */
extern void pgscale_relocation_gap_look(Oid relation, PgscaleRelocationUsers *users);

/*
 * Takes AccessExclusiveLock if it is free.  If it is not, returns false, or with queue waits for it: for PGSCALE_GAP_QUEUE_MS, and then
 * raises ERRCODE_LOCK_NOT_AVAILABLE.  Leaves LockTimeout changed.
 */
#define PGSCALE_GAP_QUEUE_MS	30

extern bool pgscale_relocation_gap_take(Oid relation, bool queue);

#endif							/* PGSCALE_RELOCATION_LOCK_GAP_H */
