/*
 * shim.c: preloaded into a server, makes the system calls that write or sync its files fail, or only look as if they worked.
 *
 * What it does is said by struct orders in a file that all processes of the server map, so that it changes while they run;
 * shim.py writes it. Only files with a certain word in their path are meant.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum
{
	WRITE,
	SYNC,
	WRITEBACK,
	CALLS
};

/* shim.py knows this layout */
struct orders
{
	char		word[64];		/* only files whose path contains this */
	struct
	{
		uint32_t	rate;		/* so many of a million calls are meant */
		int32_t		error;		/* the errno they fail with; 0: they do nothing and report success */
		int64_t		left;		/* so many more calls at most */
		uint64_t	hits;		/* so many were met */
	}			calls[CALLS];
};

static struct orders *orders;

__attribute__((constructor))
static void
map_orders(void)
{
	const char *path = getenv("PGSCALE_SHIM");
	int			fd = path ? open(path, O_RDWR) : -1;
	void	   *map;

	if (fd < 0)
		return;
	map = mmap(NULL, sizeof(struct orders), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (map != MAP_FAILED)
		orders = map;
}

/* Is this call one of those that are meant? */
static int
meant(int call, int fd)
{
	static uint64_t state;
	char		link[32];
	char		path[4096];
	ssize_t		length;

	if (orders == NULL || orders->calls[call].rate == 0)
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof(path) - 1);
	if (length < 0)
		return 0;
	path[length] = '\0';
	if (strstr(path, orders->word) == NULL)
		return 0;
	state = (state ^ (uint64_t) getpid()) * 6364136223846793005u + 1442695040888963407u;
	if ((state >> 33) % 1000000 >= orders->calls[call].rate)
		return 0;
	if (__atomic_fetch_sub(&orders->calls[call].left, 1, __ATOMIC_SEQ_CST) <= 0)
		return 0;
	__atomic_fetch_add(&orders->calls[call].hits, 1, __ATOMIC_SEQ_CST);
	return 1;
}

static int
fail(int call)
{
	if (orders->calls[call].error == 0)
		return 0;
	errno = orders->calls[call].error;
	return -1;
}

#define REAL(name) \
	static __typeof__(name) *real; \
	if (real == NULL) \
		real = (__typeof__(name) *) dlsym(RTLD_NEXT, #name)

#define SYNCS(name) \
int \
name(int fd) \
{ \
	REAL(name); \
	return meant(SYNC, fd) ? fail(SYNC) : real(fd); \
}

#define WRITES(name, data, count, offset) \
ssize_t \
name(int fd, const data, count n, offset at) \
{ \
	REAL(name); \
	return meant(WRITE, fd) ? fail(WRITE) : real(fd, buffer, n, at); \
}

SYNCS(fsync)
SYNCS(fdatasync)
WRITES(pwrite, void *buffer, size_t, off_t)
WRITES(pwritev, struct iovec *buffer, int, off_t)

/* how files grow since PostgreSQL 16; it returns the errno */
int
posix_fallocate(int fd, off_t at, off_t length)
{
	REAL(posix_fallocate);
	return meant(WRITE, fd) ? orders->calls[WRITE].error : real(fd, at, length);
}

int
sync_file_range(int fd, off64_t at, off64_t length, unsigned int flags)
{
	REAL(sync_file_range);
	return meant(WRITEBACK, fd) ? fail(WRITEBACK) : real(fd, at, length, flags);
}
