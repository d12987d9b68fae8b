/*-------------------------------------------------------------------------
 *
 * libnuma.h
 *	  The machine's NUMA nodes, and on which of them memory lies: libnuma, or
 *	  its stub.
 *
 * What returns an error number returns 0 if it went well.  Unless
 * pgscale_numalib_trouble() returns NULL, nothing else here may be called, but
 * pgscale_numalib_mapping().
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_NUMA_LIBNUMA_H
#define PGSCALE_NUMA_LIBNUMA_H

#include "postgres.h"

/* Linux has no more than that. */
#define PGSCALE_NUMA_NODES	1024

/*
 * What keeps NUMA from being looked at, in one sentence, and in *action what can
 * be done; or NULL.  Constants.
 */
extern const char *pgscale_numalib_trouble(const char **action);

/* The numbers of the nodes, in ascending order.  Returns how many. */
extern int	pgscale_numalib_nodes(int nodes[PGSCALE_NUMA_NODES]);

/* On how many of them may this process have memory? */
extern int	pgscale_numalib_allowed(void);

typedef struct PgscaleNumaNode
{
	int			cpus;
	char	   *cpu_list;		/* as 0-3,8; palloc'd */
	int64		memory_bytes;
	int64		free_bytes;
} PgscaleNumaNode;

extern void pgscale_numalib_node(int node, PgscaleNumaNode *what);

/* 10 within a node; 0: unknown. */
extern int	pgscale_numalib_distance(int from, int to);

/* A part of this process' memory that is shared and of one kind. */
typedef struct PgscaleMapping
{
	char	   *start;
	Size		size;
	Size		page;			/* of the kernel, or a huge one */
	bool		huge;			/* of the kernel's pool of huge pages */
} PgscaleMapping;

/* The one that an address lies in; false if the kernel does not tell. */
extern bool pgscale_numalib_mapping(const void *address, PgscaleMapping *mapping);

/* The most pages to ask for at once. */
#define PGSCALE_NUMA_AT_ONCE	1024

/*
 * On which nodes count pages lie, from the one at first on; -1 for those that
 * are not in memory, and are not brought there.  Returns an error number.
 *
 * The kernel does not tell which huge pages are in memory but not in this
 * process' page table.  Those it takes used() to tell of.
 */
extern int	pgscale_numalib_where(const PgscaleMapping *mapping, char *first, int count,
								  bool (*used) (const char *page, Size size), int *nodes);

/*
 * Has the pages of a mapping be taken from all nodes in turn that this process
 * may have memory on: those to come, and those in its page table that no other
 * process has mapped, of which *left could not be moved.  Returns an error number.
 */
extern int	pgscale_numalib_interleave(const PgscaleMapping *mapping, int64 *left);

/*
 * Binds this process to the CPUs of a node; its memory is taken from there as
 * long as there is some.  Returns an error number: ENODEV if there is no such
 * node or it has no CPU.  *memory is the one of the second part alone.
 */
extern int	pgscale_numalib_run_on(int node, int *memory);

#endif							/* PGSCALE_NUMA_LIBNUMA_H */
