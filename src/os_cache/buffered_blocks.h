/*-------------------------------------------------------------------------
 *
 * buffered_blocks.h
 *	  Which blocks of which fork are in shared buffers.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_OS_CACHE_BUFFERED_BLOCKS_H
#define PGSCALE_OS_CACHE_BUFFERED_BLOCKS_H

#include "base/shared_buffers.h"

typedef struct PgscaleBlocks PgscaleBlocks;

/*
 * Collects those of one relation, or of all relations that this database sees
 * (NULL), into the current memory context: 4 bytes a buffer, and some a fork.
 */
extern PgscaleBlocks *pgscale_blocks_collect(const RelFileLocator *only);

/* A fork's, in ascending order, none twice.  Returns how many. */
extern uint32 pgscale_blocks_of(PgscaleBlocks *blocks, RelFileLocator locator, ForkNumber fork,
								BlockNumber **numbers);

#endif							/* PGSCALE_OS_CACHE_BUFFERED_BLOCKS_H */
