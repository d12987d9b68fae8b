/*-------------------------------------------------------------------------
 *
 * timer.c
 *	  The clock, and a timer that does not drift.
 *
 * The timer sleeps until an absolute time, in plain clock_nanosleep().  Waiting for the
 * latch counts whole milliseconds from the call, so it can neither keep a schedule of 1
 * ms nor avoid drift.  A timerfd could, but makes a tick half as expensive again;
 * nearly all of that cost is code that has left the cache since the previous tick.
 * Signals end the sleep.  A signal just before the sleep, or a latch set by another
 * process, is noticed only when it ends.  So no sleep is longer than some
 * milliseconds.  With a longer period the timer waits for the latch, and notices the
 * expiration up to a millisecond late: one wake-up instead of two.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/pmsignal.h"
#include "tcop/tcopprot.h"

#include "base/pg_compat.h"
#include "base/timer.h"
#include "base/units.h"

/* The least that Linux grants. */
#define SHORT_SLICE_NS	100000

/* The longest wait without a period. */
#define STOPPED_MS		1000

/* Up to this, sleep. */
#define SLEEP_MAX_NS	(20 * NS_PER_MS)

int			pgscale_timer_debug_ms = 0;

/* As libpq/libpq.h has it, which needs the headers of GSSAPI. */
extern bool pq_check_connection(void);

static uint32 wait_event = 0;

/* The kernel's struct sched_attr, which older C libraries do not declare. */
typedef struct SchedAttr
{
	uint32		size;
	uint32		policy;
	uint64		flags;
	int32		nice;
	uint32		priority;
	uint64		runtime;
	uint64		deadline;
	uint64		period;
} SchedAttr;

void
pgscale_timer_wait_event(uint32 event)
{
	wait_event = event;
}

int
pgscale_timer_period_ms(int usual_ms)
{
	return pgscale_timer_debug_ms > 0 ? pgscale_timer_debug_ms : usual_ms;
}

static int64
read_clock(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

int64
pgscale_timer_clock(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

int64
pgscale_timer_cpu_time(void)
{
	return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

/*
 * Asks the kernel to wake this process when it is due: timers are served up to
 * 50 us late for others' sake, and a process with a short time slice (Linux
 * 6.12) is let in before those with longer ones, which suits one that runs for
 * microseconds.  Neither takes a privilege or gives it more of the CPU.
 */
static void
ask_for_punctuality(void)
{
	static bool asked = false;
	SchedAttr	attr = {.size = sizeof(attr)};

	if (asked)
		return;
	asked = true;
	(void) prctl(PR_SET_TIMERSLACK, 1);
	if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) != 0)
		return;
	attr.runtime = SHORT_SLICE_NS;
	(void) syscall(SYS_sched_setattr, 0, &attr, 0);
}

void
pgscale_timer_set(PgscaleTimer *timer, int64 period_ns)
{
	timer->period_ns = period_ns;
	timer->next_ns = pgscale_timer_clock() + period_ns;
	ask_for_punctuality();
}

void
pgscale_timer_wait_latch(long timeout_ms)
{
	(void) WaitLatch(MyLatch,
					 WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (timeout_ms >= 0 ? WL_TIMEOUT : 0),
					 timeout_ms, wait_event);
}

void
pgscale_timer_pause(long timeout_ms)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout_ms, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	if (whereToSendOutput == DestRemote && MyProcPort && !pq_check_connection())
	{
		ClientConnectionLost = true;
		InterruptPending = true;
	}
	CHECK_FOR_INTERRUPTS();
}

static void
sleep_until(int64 ns)
{
	struct timespec until = {.tv_sec = ns / NS_PER_S,.tv_nsec = ns % NS_PER_S};

	if (!PostmasterIsAlive())
		proc_exit(1);
	pgstat_report_wait_start(wait_event);
	(void) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
	pgstat_report_wait_end();
}

int64
pgscale_timer_wait(PgscaleTimer *timer, int64 *due)
{
	int64		left = timer->next_ns - pgscale_timer_clock();
	int64		expired;

	if (MyLatch->is_set)
	{
		ResetLatch(MyLatch);
		return 0;
	}

	if (timer->period_ns == 0)
	{
		pgscale_timer_wait_latch(STOPPED_MS);
		return 0;
	}
	if (left > 0)
	{
		if (left > SLEEP_MAX_NS)
			pgscale_timer_wait_latch((left + NS_PER_MS - 1) / NS_PER_MS);
		else
			sleep_until(timer->next_ns);
		left = timer->next_ns - pgscale_timer_clock();
		if (left > 0)
			return 0;			/* a signal, or the latch */
	}

	expired = -left / timer->period_ns + 1;
	*due = timer->next_ns;
	timer->next_ns += expired * timer->period_ns;
	return expired;
}
