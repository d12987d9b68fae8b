/*-------------------------------------------------------------------------
 *
 * os_cache.h
 *	  The feature: relations in the kernel's page cache.
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

extern const PgscaleModule pgscale_os_cache_module;

/* buffered_blocks.c: which blocks of which fork are in shared buffers */

typedef struct PgscaleOsCacheBlocks PgscaleOsCacheBlocks;

/*
 * Collects those of one relation, or of all relations that this database sees
 * (NULL), into the current memory context: 4 bytes a buffer, and some a fork.
 */
extern PgscaleOsCacheBlocks *pgscale_os_cache_blocks_collect(const RelFileLocator *only);

/* A fork's, in ascending order, none twice.  Returns how many. */
extern uint32 pgscale_os_cache_blocks_of(PgscaleOsCacheBlocks *blocks, RelFileLocator locator, ForkNumber fork,
										 BlockNumber **numbers);

#endif							/* PGSCALE_OS_CACHE_H */
