/*-------------------------------------------------------------------------
 *
 * page_nodes.h
 *	  On which node a page of shared memory lies, and moving it.
 *
 * What returns an error number returns 0 if it went well.  But for
 * pgscale_numa_mapping(), what is here may be called where libnuma.h may.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_NUMA_PAGE_NODES_H
#define PGSCALE_NUMA_PAGE_NODES_H

#include "postgres.h"

#include "numa/libnuma.h"

/* A part of this process' memory that is shared and of one kind. */
typedef struct PgscaleNumaMapping
{
	char	   *start;
	Size		size;
	Size		page;			/* of the kernel, or a huge one */
	bool		huge;			/* of the kernel's pool of huge pages */
} PgscaleNumaMapping;

/* The mapping that contains an address; false if the kernel does not show it. */
extern bool pgscale_numa_mapping(const void *address, PgscaleNumaMapping *mapping);

/*
 * On which nodes count pages lie, from the one at first on, and at most
 * PGSCALE_NUMA_AT_ONCE of them; -1 for those that are not in memory, and are not
 * brought there.  Returns an error number.
 *
 * The kernel does not show which huge pages are in memory but not in this
 * process' page table.  For those, used() says so.
 */
extern int	pgscale_numa_where(const PgscaleNumaMapping *mapping, char *first, int count,
							   bool (*used) (const char *page, Size size), int *nodes);

/*
 * Has the pages of a mapping be taken from all nodes in turn that this process
 * may have memory on: those to come, and those in its page table that no other
 * process has mapped, of which *left could not be moved.  Returns an error number.
 */
extern int	pgscale_numa_interleave(const PgscaleNumaMapping *mapping, int64 *left);

#endif							/* PGSCALE_NUMA_PAGE_NODES_H */
