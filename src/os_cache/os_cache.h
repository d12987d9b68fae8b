/*-------------------------------------------------------------------------
 *
 * os_cache.h
 *	  The feature: what the kernel's page cache holds of each relation.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_OS_CACHE_H
#define PGSCALE_OS_CACHE_H

#include "postgres.h"

#include "base/shared_buffers.h"
#include "pgscale.h"

extern const PgscaleModule pgscale_oscache_module;

/* buffered_blocks.c: which blocks of which fork are in shared buffers */

typedef struct PgscaleBlocks PgscaleBlocks;

/*
 * Collects those of one relation, or of all relations that this database sees
 * (NULL), into the current memory context: 4 bytes a buffer, and some a fork.
 */
extern PgscaleBlocks *pgscale_blocks_collect(const RelFileLocator *only);

/* A fork's, in ascending order, none twice.  Returns how many. */
extern uint32 pgscale_blocks_of(PgscaleBlocks *blocks, RelFileLocator locator, ForkNumber fork,
								BlockNumber **numbers);

#endif							/* PGSCALE_OS_CACHE_H */
