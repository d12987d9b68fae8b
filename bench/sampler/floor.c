/*
 * floor.c
 *	  What a tick costs before anything is done in it.
 *
 * floor PERIOD_US: sleeps on an absolute schedule for ever, and does nothing
 * when it wakes up.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

int
main(int argc, char **argv)
{
	int64_t		period;
	int64_t		due;
	struct timespec until;

	if (argc != 2 || (period = atoll(argv[1]) * 1000) <= 0)
		return 2;
	prctl(PR_SET_TIMERSLACK, 1);
	clock_gettime(CLOCK_MONOTONIC, &until);
	due = until.tv_sec * INT64_C(1000000000) + until.tv_nsec;
	for (;;)
	{
		due += period;
		until.tv_sec = due / INT64_C(1000000000);
		until.tv_nsec = due % INT64_C(1000000000);
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
	}
}
