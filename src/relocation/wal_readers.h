/*-------------------------------------------------------------------------
 *
 * wal_readers.h
 *	  Who has still to read the WAL that a move writes: standbys, slots, the archiver.
 *
 * A text is for users: what a move waits for, with the setting that says so.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_WAL_READERS_H
#define PGSCALE_RELOCATION_WAL_READERS_H

#include "postgres.h"

#include "access/xlogdefs.h"

/* Do commits wait for a standby? */
extern bool pgscale_relocation_wal_is_synchronous(void);

/* If a commit that wrote WAL up to there would still wait for synchronous standbys: returns true, and which. */
extern bool pgscale_relocation_wal_unconfirmed(XLogRecPtr until, char *why, Size size);

/*
 * Returns true if a physical standby, or another physical receiver, has more than that number of bytes still to flush: the one with
 * the most.
 */
extern bool pgscale_relocation_wal_behind(int64 most, char *why, Size size);

/*
 * Returns true if that number of bytes of WAL could cost a slot its WAL: the slot with the least room.  unused: only of those that no
 * process reads from now.
 */
extern bool pgscale_relocation_wal_slot_at_risk(int64 bytes, bool unused, char *why, Size size);

typedef enum PgscaleRelocationHeldBack
{
	PGSCALE_RELOCATION_HELD_BY_NONE = 0,
	PGSCALE_RELOCATION_HELD_BY_READER,	/* a slot, the archiver or the WAL
										 * summarizer */
	PGSCALE_RELOCATION_HELD_UNTIL_CHECKPOINT	/* none needs it any more */
} PgscaleRelocationHeldBack;

/* Would pg_wal shrink by that number of bytes if nothing held WAL back any more?  Then says what holds it. */
extern PgscaleRelocationHeldBack pgscale_relocation_wal_held_back(int64 bytes, char *why, Size size);

#endif							/* PGSCALE_RELOCATION_WAL_READERS_H */
