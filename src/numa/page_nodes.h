/*-------------------------------------------------------------------------
 *
 * page_nodes.h
 *	  Between libnuma.c, which calls libnuma, and page_nodes.c, which knows
 *	  what of a mapping is in memory.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_NUMA_PAGE_NODES_H
#define PGSCALE_NUMA_PAGE_NODES_H

#include "postgres.h"

#include "numa/libnuma.h"

/*
 * The nodes of pages that are in this process' page table; less than 0, an error
 * number, for others.  Returns an error number.
 */
extern int	pgscale_numalib_ask(int count, void **pages, int *nodes);

/*
 * Moves pages that no other process has in its page table, each to its node.
 * Answers are the nodes that they are on then, or less than 0.
 */
extern int	pgscale_numalib_move(int count, void **pages, int *nodes, int *answers);

/*
 * Moves what is in memory of a mapping to these nodes in turn.  Returns how many
 * pages are not where they should be.
 */
extern int64 pgscale_numalib_deal(const PgscaleMapping *mapping, int *nodes, int n);

#endif							/* PGSCALE_NUMA_PAGE_NODES_H */
