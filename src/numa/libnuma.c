/*-------------------------------------------------------------------------
 *
 * libnuma.c
 *	  The machine's NUMA nodes through libnuma, or its stub where pgscale was
 *	  built without it: the only file that knows which.
 *
 * Of libnuma, this calls what returns an error.  Some of its functions print
 * one on stderr instead and return nothing: where there is such a function, the
 * system call's wrapper is called, which libnuma has as well.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#ifdef PGSCALE_LIBNUMA
#include <numa.h>
#include <numaif.h>
#endif

#include "lib/stringinfo.h"

#include "numa/libnuma.h"

#ifdef PGSCALE_LIBNUMA

/*
 * Containers mostly forbid these system calls, each on its own, to processes
 * that lack CAP_SYS_NICE.  The call that returns where a page lies is tried on a page
 * of the stack.
 */
const char *
pgscale_numa_lib_trouble(const char **action)
{
	int			nodes[PGSCALE_NUMA_NODES];
	int			here = 0;
	void	   *page = &here;
	int			node;

	const int	error = get_mempolicy(NULL, NULL, 0, NULL, 0) == 0 ? 0 : errno;

	if (error == ENOSYS)
	{
		*action = "nothing, with this kernel";
		return "the kernel was built without NUMA";
	}
	if (error != 0 || numa_available() < 0 || pgscale_numa_lib_locate(1, &page, &node) != 0)
	{
		*action = "allow get_mempolicy, mbind and move_pages in the container's seccomp profile, as CAP_SYS_NICE does";
		return "the kernel forbids the system calls that locate memory";
	}
	if (pgscale_numa_lib_nodes(nodes) == 0)
	{
		*action = "mount sysfs on /sys, where libnuma finds the nodes";
		return "libnuma finds no nodes";
	}
	return NULL;
}

int
pgscale_numa_lib_nodes(int nodes[PGSCALE_NUMA_NODES])
{
	const int	last = Min(numa_max_node(), PGSCALE_NUMA_NODES - 1);
	int			n = 0;

	for (int node = 0; node <= last; node++)
	{
		/* There may be gaps, and nodes that have no memory. */
		if (numa_node_size64(node, NULL) >= 0)
			nodes[n++] = node;
	}
	return n;
}

int
pgscale_numa_lib_allowed(void)
{
	struct bitmask *allowed = numa_get_mems_allowed();
	const int	n = numa_bitmask_weight(allowed);

	numa_bitmask_free(allowed);
	return n;
}

/* Numbers in ascending order, as 0-3,8. */
static char *
cpu_list_text(const struct bitmask *mask)
{
	StringInfoData text;

	initStringInfo(&text);
	for (unsigned int first = 0; first < mask->size; first++)
	{
		unsigned int last = first;

		if (!numa_bitmask_isbitset(mask, first))
			continue;
		while (last + 1 < mask->size && numa_bitmask_isbitset(mask, last + 1))
			last++;
		appendStringInfo(&text, text.len > 0 ? ",%u" : "%u", first);
		if (last > first)
			appendStringInfo(&text, "-%u", last);
		first = last;
	}
	return text.data;
}

void
pgscale_numa_lib_node(int node, PgscaleNumaNode *what)
{
	struct bitmask *cpus = numa_allocate_cpumask();
	long long	unused = 0;

	if (numa_node_to_cpus(node, cpus) != 0)
		numa_bitmask_clearall(cpus);
	what->cpus = numa_bitmask_weight(cpus);
	what->cpu_list = cpu_list_text(cpus);
	numa_bitmask_free(cpus);

	what->memory_bytes = numa_node_size64(node, &unused);
	what->free_bytes = unused;
}

int
pgscale_numa_lib_distance(int from, int to)
{
	return numa_distance(from, to);
}

int
pgscale_numa_lib_locate(int count, void **pages, int *nodes)
{
	return numa_move_pages(0, count, pages, NULL, nodes, 0) == 0 ? 0 : errno;
}

int
pgscale_numa_lib_move(int count, void **pages, int *nodes, int *answers)
{
	return numa_move_pages(0, count, pages, nodes, answers, MPOL_MF_MOVE) == 0 ? 0 : errno;
}

int
pgscale_numa_lib_interleave(void *start, Size size, int nodes[PGSCALE_NUMA_NODES], int *n)
{
	struct bitmask *allowed = numa_get_mems_allowed();
	int			error = 0;

	*n = 0;
	for (int node = 0; node < Min(allowed->size, PGSCALE_NUMA_NODES); node++)
	{
		if (numa_bitmask_isbitset(allowed, node))
			nodes[(*n)++] = node;
	}
	if (mbind(start, size, MPOL_INTERLEAVE, allowed->maskp, allowed->size + 1, 0) != 0)
		error = errno;
	numa_bitmask_free(allowed);
	return error;
}

#else							/* !PGSCALE_LIBNUMA */

const char *
pgscale_numa_lib_trouble(const char **action)
{
	*action = "install libnuma's development package (libnuma-dev, numactl-devel), build pgscale again and restart";
	return "pgscale was built without libnuma";
}

int
pgscale_numa_lib_nodes(int nodes[PGSCALE_NUMA_NODES])
{
	return 0;
}

int
pgscale_numa_lib_allowed(void)
{
	return 0;
}

void
pgscale_numa_lib_node(int node, PgscaleNumaNode *what)
{
	memset(what, 0, sizeof(*what));
}

int
pgscale_numa_lib_distance(int from, int to)
{
	return 0;
}

int
pgscale_numa_lib_locate(int count, void **pages, int *nodes)
{
	return ENOSYS;
}

int
pgscale_numa_lib_move(int count, void **pages, int *nodes, int *answers)
{
	return ENOSYS;
}

int
pgscale_numa_lib_interleave(void *start, Size size, int nodes[PGSCALE_NUMA_NODES], int *n)
{
	*n = 0;
	return ENOSYS;
}

#endif							/* PGSCALE_LIBNUMA */
