/*-------------------------------------------------------------------------
 *
 * online_copy.h
 *	  Copies a relation's file, and keeps the copy up to date while the relation changes.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_ONLINE_COPY_H
#define PGSCALE_RELOCATION_ONLINE_COPY_H

#include "postgres.h"

#include "storage/block.h"
#include "utils/relcache.h"

#include "base/pg_compat.h"

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

#endif							/* PGSCALE_RELOCATION_ONLINE_COPY_H */
