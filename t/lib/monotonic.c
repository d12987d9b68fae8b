/*
 * Preloaded into a server: CLOCK_MONOTONIC is ahead by as many seconds as the file has that PGSCALE_MONOTONIC names, which all
 * processes map.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *ahead;

__attribute__((constructor))
static void
map_ahead(void)
{
	const char *path = getenv("PGSCALE_MONOTONIC");
	int			fd = path ? open(path, O_RDONLY) : -1;
	void	   *map;

	if (fd < 0)
		return;
	map = mmap(NULL, sizeof(*ahead), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (map != MAP_FAILED)
		ahead = map;
}

int
clock_gettime(clockid_t clock, struct timespec *ts)
{
	long		result = syscall(SYS_clock_gettime, clock, ts);

	if (result == 0 && clock == CLOCK_MONOTONIC && ahead)
		ts->tv_sec += *ahead;
	return (int) result;
}

/* Until a time of that clock. */
int
clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
	struct timespec ts = *until;

	if (clock == CLOCK_MONOTONIC && (flags & TIMER_ABSTIME) && ahead)
		ts.tv_sec -= *ahead;
	return syscall(SYS_clock_nanosleep, clock, flags, &ts, left) == 0 ? 0 : errno;
}
