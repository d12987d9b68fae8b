/*-------------------------------------------------------------------------
 *
 * libnuma.h
 *	  The machine's NUMA nodes: libnuma, or its stub.
 *
 * What returns an error number returns 0 if it went well.  Unless
 * pgscale_numa_lib_trouble() returns NULL, nothing else here may be called.
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
 * What keeps NUMA from being read, in one sentence, and in *action what can
 * be done; or NULL.  Constants.
 */
extern const char *pgscale_numa_lib_trouble(const char **action);

/* The numbers of the nodes, in ascending order.  Returns how many. */
extern int	pgscale_numa_lib_nodes(int nodes[PGSCALE_NUMA_NODES]);

/* On how many of them may this process have memory? */
extern int	pgscale_numa_lib_allowed(void);

typedef struct PgscaleNumaNode
{
	int			cpus;
	char	   *cpu_list;		/* as 0-3,8; palloc'd */
	int64		memory_bytes;
	int64		free_bytes;
} PgscaleNumaNode;

extern void pgscale_numa_lib_node(int node, PgscaleNumaNode *what);

/* 10 within a node; 0: unknown. */
extern int	pgscale_numa_lib_distance(int from, int to);

/*
 * Has the pages to come of this memory be taken from all nodes in turn that this
 * process may have memory on.  Returns an error number, and else those nodes.
 */
extern int	pgscale_numa_lib_interleave(void *start, Size size, int nodes[PGSCALE_NUMA_NODES], int *n);

/* The most pages of one call. */
#define PGSCALE_NUMA_AT_ONCE	1024

/*
 * The nodes of pages that are in this process' page table; less than 0, an error
 * number, for others.  Returns an error number.
 */
extern int	pgscale_numa_lib_locate(int count, void **pages, int *nodes);

/*
 * Moves pages that no other process has in its page table, each to its node.
 * Answers are the nodes that they are on then, or less than 0.
 */
extern int	pgscale_numa_lib_move(int count, void **pages, int *nodes, int *answers);

#endif							/* PGSCALE_NUMA_LIBNUMA_H */
