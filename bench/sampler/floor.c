/*
 * floor.c
 *	  What a tick costs before anything is done in it.
 *
 * floor sleep|worker PERIOD_US: wakes up on an absolute schedule for ever.
 * "sleep" calls clock_nanosleep, the cheapest way there is.  "worker" waits as
 * a process of the server has to, which must answer signals and the server's
 * death besides: epoll on a timer, then a read of it.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

int
main(int argc, char **argv)
{
	int64_t		period;
	struct timespec now;

	if (argc != 3 || (period = atoll(argv[2]) * 1000) <= 0)
		return 2;
	prctl(PR_SET_TIMERSLACK, 1);
	clock_gettime(CLOCK_MONOTONIC, &now);

	if (strcmp(argv[1], "sleep") == 0)
	{
		int64_t		due = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;

		for (;;)
		{
			due += period;
			now.tv_sec = due / INT64_C(1000000000);
			now.tv_nsec = due % INT64_C(1000000000);
			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &now, NULL);
		}
	}
	else
	{
		int			timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
		int			epoll = epoll_create1(0);
		struct epoll_event event = {.events = EPOLLIN};
		struct itimerspec spec = {.it_value = now};
		uint64_t	expired;

		spec.it_interval.tv_sec = period / INT64_C(1000000000);
		spec.it_interval.tv_nsec = period % INT64_C(1000000000);
		timerfd_settime(timer, TFD_TIMER_ABSTIME, &spec, NULL);
		epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &event);
		for (;;)
		{
			epoll_wait(epoll, &event, 1, -1);
			if (read(timer, &expired, sizeof(expired)) < 0)
				continue;
		}
	}
}
