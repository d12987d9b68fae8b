/*
 * A library to preload: whoever sleeps until an absolute time, as only pgscale's timer does, loses some memory at each call
 * and a descriptor at some. The soak has to see it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define BYTES		200
#define CALLS_PER_DESCRIPTOR	4000

int
clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
	static int	(*real) (clockid_t, int, const struct timespec *, struct timespec *);
	static unsigned long calls;

	if (!real)
		real = dlsym(RTLD_NEXT, "clock_nanosleep");
	if (flags & TIMER_ABSTIME)
	{
		/* only what is written to takes memory; GCC 16 leaves out what nothing reads */
		static char *volatile lost;

		if ((lost = malloc(BYTES)) != NULL)
			memset(lost, 1, BYTES);
		/* not before it has all the descriptors that it needs */
		if (++calls % CALLS_PER_DESCRIPTOR == 0 && dup(0) < 0)
			abort();
	}
	return real(clock, flags, until, left);
}
