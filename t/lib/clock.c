/*
 * Preloaded into a server: the clock that people set differs from the machine's by as many microseconds as the file has
 * that PGSCALE_CLOCK names, which all processes map.  CLOCK_MONOTONIC, which nobody sets, is as it is.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor))
static void
map_offset(void)
{
	const char *path = getenv("PGSCALE_CLOCK");
	int			fd = path ? open(path, O_RDONLY) : -1;
	void	   *map;

	if (fd < 0)
		return;
	map = mmap(NULL, sizeof(*offset), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (map != MAP_FAILED)
		offset = map;
}

/* Microseconds since 1970. */
static int64_t
now(void)
{
	struct timespec ts;

	syscall(SYS_clock_gettime, CLOCK_REALTIME, &ts);
	return ts.tv_sec * INT64_C(1000000) + ts.tv_nsec / 1000 + (offset ? *offset : 0);
}

int
gettimeofday(struct timeval *tv, void *zone)
{
	int64_t		us = now();

	tv->tv_sec = us / 1000000;
	tv->tv_usec = us % 1000000;
	return 0;
}

time_t
time(time_t *at)
{
	time_t		seconds = now() / 1000000;

	if (at)
		*at = seconds;
	return seconds;
}
