/*-------------------------------------------------------------------------
 *
 * page_nodes.c
 *	  The NUMA node of a page of shared memory, without bringing that page into
 *	  memory.
 *
 * The kernel reports the node (move_pages) only of pages in the page table of the
 * calling process.  The server's own views touch all pages first.  That takes memory
 * for unused pages, on the node of the caller, and for the page table, which is kept
 * until the session ends.  Therefore:
 *
 * mincore() reports which pages of a shared mapping are in memory, whichever process
 * brought them there.  Only those are touched, by reading a byte, which maps them and
 * allocates nothing.  The reads use a second mapping of the same pages (mremap() of
 * length 0), which covers one batch and disappears with its page table.  Swapped-out
 * pages stay swapped out.
 *
 * Of huge pages from the kernel's pool, mincore() knows only those in the own page
 * table, and they cannot be mapped a second time.  There the caller says which pages
 * are used; the entries in the page table are few.
 *
 * A page that is being moved has no node.  It is located again.
 *
 * At the server's start, pages in memory can be moved directly: only the postmaster has
 * them, in its page table.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>
#include <unistd.h>

#include "storage/fd.h"

#include "numa/libnuma.h"
#include "numa/page_nodes.h"

#define TRIES	3

/*
 * A mapping is a line of its address range and more, and lines "Name: number kB".
 * One on which the policy was set in parts is several, side by side in the same
 * file.
 */
bool
pgscale_numa_mapping(const void *address, PgscaleNumaMapping *mapping)
{
	const uintptr_t at = (uintptr_t) address;
	FILE	   *file = AllocateFile("/proc/self/smaps", "r");
	char		line[MAXPGPATH + 128];
	uintptr_t	start = 0;
	uintptr_t	end = 0;
	unsigned long inode = 0;
	bool		found = false;
	bool		in_it = false;

	if (!file)
		return false;

	memset(mapping, 0, sizeof(*mapping));
	while (fgets(line, sizeof(line), file))
	{
		unsigned long from;
		unsigned long to;
		unsigned long number;
		unsigned long kb;

		if (sscanf(line, "%lx-%lx %*s %*x %*s %lu", &from, &to, &number) == 3)
		{
			const bool	more = end != 0 && from == end && number == inode && inode != 0;

			if (found && !more)
				break;
			if (!more)
			{
				start = from;
				inode = number;
			}
			end = to;
			in_it = at >= from && at < to;
			found = found || in_it;
			if (found)
			{
				mapping->start = (char *) start;
				mapping->size = end - start;
			}
		}
		else if (in_it && sscanf(line, "KernelPageSize: %lu kB", &kb) == 1)
			mapping->page = kb * 1024;
	}
	FreeFile(file);
	mapping->huge = mapping->page > sysconf(_SC_PAGESIZE);
	return found && mapping->page > 0;
}

/* Which of the pages are in memory?  Returns an error number. */
static int
page_nodes_resident(const PgscaleNumaMapping *mapping, char *view, const char *first, int count,
					bool (*used) (const char *page, Size size), unsigned char *there)
{
	if (!mapping->huge)
		return mincore(view, count * mapping->page, there) == 0 ? 0 : errno;

	for (int i = 0; i < count; i++)
	{
		const Size	at = i * mapping->page;

		if (used(first + at, mapping->page))
			there[i] = 1;
		else if (mincore(view + at, sysconf(_SC_PAGESIZE), &there[i]) != 0)
			return errno;
	}
	return 0;
}

/* One round: those that are there and have no node yet.  Returns an error number. */
static int
page_nodes_locate(const PgscaleNumaMapping *mapping, char *view, int count, const unsigned char *there, int *nodes, bool *done)
{
	void	   *pages[PGSCALE_NUMA_AT_ONCE];
	int			answers[PGSCALE_NUMA_AT_ONCE];
	int			which[PGSCALE_NUMA_AT_ONCE];
	int			n = 0;
	int			error;

	for (int i = 0; i < count; i++)
	{
		if (!(there[i] & 1) || nodes[i] >= 0)
			continue;
		pages[n] = view + i * mapping->page;
		which[n++] = i;
		(void) *(volatile char *) (view + i * mapping->page);
	}

	*done = true;
	if (n == 0)
		return 0;
	error = pgscale_numa_lib_locate(n, pages, answers);
	if (error != 0)
		return error;
	for (int i = 0; i < n; i++)
	{
		if (answers[i] >= 0)
			nodes[which[i]] = answers[i];
		else
			*done = false;
	}
	return 0;
}

int
pgscale_numa_where(const PgscaleNumaMapping *mapping, char *first, int count,
				   bool (*used) (const char *page, Size size), int *nodes)
{
	unsigned char there[PGSCALE_NUMA_AT_ONCE];
	const Size	length = count * mapping->page;
	char	   *view = first;
	bool		done = false;
	int			error;

	Assert(count <= PGSCALE_NUMA_AT_ONCE);
	if (!mapping->huge)
	{
		view = mremap(first, 0, length, MREMAP_MAYMOVE);
		if (view == MAP_FAILED)
			return errno;
	}

	for (int i = 0; i < count; i++)
		nodes[i] = -1;
	error = page_nodes_resident(mapping, view, first, count, used, there);
	for (int try = 0; error == 0 && !done && try < TRIES; try++)
		error = page_nodes_locate(mapping, view, count, there, nodes, &done);

	if (!mapping->huge)
		(void) munmap(view, length);
	return error;
}

static bool
page_unused(const char *page, Size size)
{
	return false;
}

/*
 * Moves what is in memory of a mapping to these nodes in turn.  Returns how many
 * pages are not where they should be.
 *
 * A policy of interleaving, once set, does not move what is there, even if it is
 * asked to (MPOL_MF_MOVE): a page on any of the nodes is taken to follow it.
 */
static int64
page_nodes_deal(const PgscaleNumaMapping *mapping, int *nodes, int n)
{
	const int64 pages = mapping->size / mapping->page;
	int64		left = 0;

	for (int64 first = 0; first < pages; first += PGSCALE_NUMA_AT_ONCE)
	{
		const int	count = Min(PGSCALE_NUMA_AT_ONCE, pages - first);
		char	   *start = mapping->start + first * mapping->page;
		unsigned char there[PGSCALE_NUMA_AT_ONCE];
		void	   *batch[PGSCALE_NUMA_AT_ONCE];
		int			wanted[PGSCALE_NUMA_AT_ONCE];
		int			answers[PGSCALE_NUMA_AT_ONCE];
		int			some = 0;
		int			error;

		if (page_nodes_resident(mapping, start, start, count, page_unused, there) != 0)
			continue;
		for (int i = 0; i < count; i++)
		{
			if (!(there[i] & 1))
				continue;
			batch[some] = start + i * mapping->page;
			wanted[some++] = nodes[(first + i) % n];
		}
		if (some == 0)
			continue;
		error = pgscale_numa_lib_move(some, batch, wanted, answers);
		for (int i = 0; i < some; i++)
		{
			if (error != 0 || answers[i] != wanted[i])
				left++;
		}
	}
	return left;
}

int
pgscale_numa_interleave(const PgscaleNumaMapping *mapping, int64 *left)
{
	int			nodes[PGSCALE_NUMA_NODES];
	int			n;
	const int	error = pgscale_numa_lib_interleave(mapping->start, mapping->size, nodes, &n);

	*left = error != 0 || n == 0 ? 0 : page_nodes_deal(mapping, nodes, n);
	return error;
}
