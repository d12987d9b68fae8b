/*
 * Preloaded into a server: a machine that has two NUMA nodes, 0 and 2, by what libnuma says of it. Of the pages that are asked
 * for, each third one is on the second, which has no CPU. MBIND is the error that mbind fails with, in the environment.
 */
#include <errno.h>
#include <numa.h>
#include <stdlib.h>

int
numa_max_node(void)
{
	return 2;
}

long long
numa_node_size64(int node, long long *unused)
{
	if (unused)
		*unused = 1000 * (node + 1);
	return node == 0 || node == 2 ? 1000000 * (node + 1) : -1;
}

int
numa_node_to_cpus(int node, struct bitmask *mask)
{
	numa_bitmask_clearall(mask);
	if (node == 0)
	{
		for (unsigned int cpu = 0; cpu < 4; cpu++)
			numa_bitmask_setbit(mask, cpu);
		numa_bitmask_setbit(mask, 8);
	}
	return 0;
}

int
numa_distance(int from, int to)
{
	return from == to ? 10 : 25 + from;
}

struct bitmask *
numa_get_mems_allowed(void)
{
	return numa_bitmask_setbit(numa_bitmask_setbit(numa_allocate_nodemask(), 0), 2);
}

int
numa_move_pages(int pid, unsigned long count, void **pages, const int *nodes, int *status, int flags)
{
	static int	asked = 0;

	for (unsigned long i = 0; i < count; i++)
		status[i] = nodes ? nodes[i] : asked++ % 3 == 2 ? 2 : 0;
	return 0;
}

long
mbind(void *start, unsigned long length, int mode, const unsigned long *nodes, unsigned long max, unsigned flags)
{
	const char *error = getenv("MBIND");

	if (error)
		errno = atoi(error);
	return error ? -1 : 0;
}
