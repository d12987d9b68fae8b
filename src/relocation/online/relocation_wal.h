/*-------------------------------------------------------------------------
 *
 * relocation_wal.h
 *	  A move and the WAL: which blocks of the cluster change, the next segment, and who has still to read what a move writes.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_RELOCATION_WAL_H
#define PGSCALE_RELOCATION_RELOCATION_WAL_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "storage/block.h"

#include "base/pg_compat.h"

typedef struct PgscaleRelocationWal PgscaleRelocationWal;

/* Functions that are called for each block that a record names, and for each truncation of a main fork. */
typedef struct PgscaleRelocationWalVisitor
{
	void		(*changed) (void *arg, RelFileLocator locator, ForkNumber fork, BlockNumber block);
	void		(*truncated) (void *arg, RelFileLocator locator, BlockNumber blocks);
	void	   *arg;
} PgscaleRelocationWalVisitor;

/*
 * Follows the WAL from now on.  Allocates in the current memory context.  The caller must call pgscale_relocation_wal_end(), also
 * after an error, because a file is open.
 */
extern PgscaleRelocationWal *pgscale_relocation_wal_begin(const PgscaleRelocationWalVisitor *visitor);
extern void pgscale_relocation_wal_end(PgscaleRelocationWal *follow);

/*
 * Visits all records that are on disk; with until, all those that begin before it, or it raises an error.  Returns the
 * number of bytes read.  Needs no transaction.  Raises an error if the server has removed a segment that still had to be
 * read.
 */
extern int64 pgscale_relocation_wal_read(PgscaleRelocationWal *follow, XLogRecPtr until);

/* Flushes all WAL that was inserted before this call, and returns the position up to which it did.  Inside or outside a transaction. */
extern XLogRecPtr pgscale_relocation_wal_flush(void);

/*
 * Makes the next segment of the WAL before anyone needs it.  Call it in no transaction, before up to a segment of WAL is written.
 * Raises an error if there is no room for the segment.
 */
extern void pgscale_relocation_wal_ahead(void);

/*
 * Readers: standbys, slots, the archiver.  A text is for users: what a move waits for, with the setting that says so.
 */

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

#endif							/* PGSCALE_RELOCATION_RELOCATION_WAL_H */
