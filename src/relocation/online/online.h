/*-------------------------------------------------------------------------
 *
 * online.h
 *	  Moves a table or an index, as it is, while it is in use.
 *
 * The method is in online_move.c, which copies and keeps up.  online_copy.c has the blocks of one file, online_switch.c waits
 * for its moment and switches, online_files.c removes files.  Only pgscale_relocation_online_move() and pgscale_relocation_online_clean_up() are for others.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_ONLINE_H
#define PGSCALE_RELOCATION_ONLINE_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "storage/block.h"
#include "utils/relcache.h"

#include "base/pg_compat.h"
#include "relocation/jobs/launcher.h"
#include "relocation/jobs/relocation_jobs.h"
#include "relocation/online/pace.h"
#include "relocation/online/relocation_wal.h"

/*
 * Moves it, as a superuser; in no transaction.  Raises what errors there are.  In both cases job->files are
 * then those that are to be removed.
 */
extern void pgscale_relocation_online_move(PgscaleRelocationJob *job);

/*
 * online_copy.c: copies a relation's file, and keeps the copy up to date while the relation changes.
 */

typedef struct PgscaleRelocationCopy
{
	Oid			relation;
	RelFileLocator from;
	RelFileLocator to;
	bool		standard;		/* do its pages have their free space between
								 * pd_lower and pd_upper? */
	BlockNumber copied;			/* blocks before this one have been copied */
	BlockNumber blocks;			/* that the copy has */
	BlockNumber mapped;			/* the most that the relation had while its
								 * free space map was copied, which may name
								 * them */
	BlockNumber marked;			/* copied blocks that have changed since */
	BlockNumber again;			/* marked blocks are copied again from this
								 * one on */
	BlockNumber mapped_pages;	/* pages of maps that were written */
	ForkNumber	map;			/* that is being copied, and its next page */
	BlockNumber map_page;
	uint64	   *marks;			/* a bit for each block before nmarks */
	BlockNumber nmarks;
	MemoryContext context;		/* of marks */
} PgscaleRelocationCopy;

/* A block has changed; nothing if it is still to be copied. */
extern void pgscale_relocation_copy_mark(PgscaleRelocationCopy *copy, BlockNumber block);

/* The relation was truncated to that number of blocks. */
extern void pgscale_relocation_copy_truncated(PgscaleRelocationCopy *copy, BlockNumber blocks);

/*
 * Call the following in a transaction, with the relation open and locked in any mode.
 */

/* Copies at most that number of further blocks.  Returns their number: 0 at the end of the relation. */
extern BlockNumber pgscale_relocation_copy_more(PgscaleRelocationCopy *copy, Relation relation, BlockNumber most);

/*
 * Copies at most that number of marked blocks again, from copy->again on.  Returns their number: 0 if there is none up to
 * the end of the relation.
 */
extern BlockNumber pgscale_relocation_copy_again(PgscaleRelocationCopy *copy, Relation relation, BlockNumber most);

/*
 * Copies pages of a map, its free space or visibility map, that differ from those of the copy: at most that number from that
 * page on.  Returns the next page, or InvalidBlockNumber at the end.  With AccessExclusiveLock both are equal afterwards;
 * without it, the next call has less to do.
 */
extern BlockNumber pgscale_relocation_copy_map(PgscaleRelocationCopy *copy, Relation relation, ForkNumber fork,
											   BlockNumber next, BlockNumber most);

/* Truncates the copy if it is longer than the relation. */
extern void pgscale_relocation_copy_shorten(PgscaleRelocationCopy *copy, Relation relation);

/* Call it last, with AccessExclusiveLock.  Raises an error unless the copy is complete. */
extern void pgscale_relocation_copy_finish(PgscaleRelocationCopy *copy, Relation relation);

/* What a try to switch is at, for the errors that it may raise. */
typedef enum PgscaleRelocationSwitchStep
{
	PGSCALE_SWITCH_LOCKS,		/* it asks for a lock */
	PGSCALE_SWITCH_COPIES,		/* it copies, and all else */
	PGSCALE_SWITCH_CATALOG,		/* it changes rows of pg_class */
} PgscaleRelocationSwitchStep;

typedef struct PgscaleRelocationOnline
{
	PgscaleRelocationJob *job;
	MemoryContext context;		/* that lasts until its end */
	Oid			relations[PGSCALE_JOB_FILES];	/* that belong together */
	int			nrelations;
	PgscaleRelocationCopy copies[PGSCALE_JOB_FILES];	/* of those that are not
														 * there already */
	int			ncopies;
	int64		locked_at;		/* when it got the lock, at the last try */
	PgscaleRelocationSwitchStep step;	/* of the last try */
	uint32		no_lock;		/* tries for which a lock was not free */
	int			collisions;		/* of tries, with others that change pg_class */
	char	   *checksums;		/* the server's setting when it began */
	PgscaleRelocationWal *wal;
	PgscaleRelocationPace pace;
	PgscaleRelocationProgress progress;
} PgscaleRelocationOnline;

/*
 * online_move.c
 */

/* Notes in the job the files that are left, or else the new ones. */
extern void pgscale_relocation_online_note_files(const PgscaleRelocationOnline *move, PgscaleRelocationJob *job, bool from);

/* Opens the relation, in a transaction.  Raises an error if it has another file than the one that is copied. */
extern Relation pgscale_relocation_online_open(const PgscaleRelocationOnline *move, const PgscaleRelocationCopy *copy, LOCKMODE lock);

/*
 * Has the table the TOAST table that was copied, and that one the same index?  And have pages that were written since the
 * beginning checksums if the server expects them?  (A later server may enable them while it runs.)  If not, raises an error.
 */
extern void pgscale_relocation_online_check_same(const PgscaleRelocationOnline *move);

/* Shows how far it is. */
extern void pgscale_relocation_online_show(PgscaleRelocationOnline *move, PgscaleRelocationPhase phase);

/* Follows changes up to there, or with an invalid position all that are on disk. */
extern void pgscale_relocation_online_follow(PgscaleRelocationOnline *move, XLogRecPtr until);

/* The number of copied blocks that are known to have changed. */
extern BlockNumber pgscale_relocation_online_marked(const PgscaleRelocationOnline *move);

/* For how many milliseconds nothing may be copied; notes the reason. */
extern long pgscale_relocation_online_pause(PgscaleRelocationOnline *move);

/* How many blocks may be copied under the lock, at most that number: commits wait for them, too, where standbys are synchronous. */
extern BlockNumber pgscale_relocation_online_try_blocks(const PgscaleRelocationOnline *move, BlockNumber most);

/* The following are in no transaction. */

/* Copies again the blocks that have changed, until few are left, or there are not fewer from round to round. */
extern void pgscale_relocation_online_catch_up(PgscaleRelocationOnline *move, PgscaleRelocationPhase phase);

/* Does before the lock is taken what need not be done under it. */
extern void pgscale_relocation_online_prepare(PgscaleRelocationOnline *move);

/*
 * online_switch.c
 */

/* Waits for a moment to switch, and does. */
extern void pgscale_relocation_online_switch(PgscaleRelocationOnline *move);

/*
 * online_files.c: removes files of relations that move.
 */

/* Removes job->files, if no relation has them.  In no transaction. */
extern void pgscale_relocation_online_clean_up(PgscaleRelocationJob *job);

#endif							/* PGSCALE_RELOCATION_ONLINE_H */
