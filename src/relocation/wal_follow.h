/*-------------------------------------------------------------------------
 *
 * wal_follow.h
 *	  Reads from the WAL which blocks of the cluster change.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_WAL_FOLLOW_H
#define PGSCALE_RELOCATION_WAL_FOLLOW_H

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

#endif							/* PGSCALE_RELOCATION_WAL_FOLLOW_H */
