/*-------------------------------------------------------------------------
 *
 * lwlock_state.h
 *	  LWLocks of the server from outside: how one is held, read in passing.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_LWLOCK_STATE_H
#define PGSCALE_BASE_LWLOCK_STATE_H

#include "postgres.h"

#include "storage/lwlock.h"

/* How a lock is at the moment of the look. */
typedef struct PgscaleLwlock
{
	bool		exclusive;		/* a process holds it so */
	bool		share_exclusive;	/* or, of a buffer's content from 19 on:
									 * beside those that share it */
	uint32		shared;			/* and that many hold it so */
	bool		waited;			/* a process is in its queue */
} PgscaleLwlock;

extern PgscaleLwlock pgscale_lwlock_look(const LWLock *lock);

/*
 * Are the bits of a lock's state where this file believes them to be?  Tried once a
 * process, on a lock of its own; what looks must ask first.
 */
extern bool pgscale_lwlock_layout_known(void);

/*
 * The server's main array has the individually named locks, the partitions of its
 * large hash tables, and what libraries asked for when they were preloaded.  Returns
 * how many there are, never more than max; 0 if the array is not as it should be.
 * Only once shared memory is set up.
 */
extern int	pgscale_lwlocks_count(int max);

/* One of them. */
static inline const LWLock *
pgscale_lwlocks_at(int number)
{
	return &MainLWLockArray[number].lock;
}

/* What a tranche is called, as a wait event is; of an extension's, where this process knows it. */
extern const char *pgscale_lwlock_tranche_name(uint16 tranche);

#endif							/* PGSCALE_BASE_LWLOCK_STATE_H */
