/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  What pgscale's background workers have in common: registration, start,
 *	  the requests every round must serve, and a timer that does not drift.
 *
 * A worker connects to no database, yet it does connect
 * (BackgroundWorkerInitializeConnection): only then does it take part in
 * procsignal barriers, show in pg_stat_activity and answer
 * pg_terminate_backend.  A worker that did not would hang DROP DATABASE, DROP
 * TABLESPACE and pg_upgrade, all of which wait until every process has
 * absorbed a barrier.
 *
 * Signals: the handlers of the server's own workers, which only set flags.
 * SIGTERM ends a worker with exit code 1, from pgscale_worker_interrupts(), so
 * that the postmaster starts it again a second later unless the server itself
 * is shutting down.  An ERROR ends it the same way: whatever outlives a worker
 * is in shared memory, and starting again is the one path of recovery.  The
 * postmaster's death ends it at its next wait.
 *
 * The timer is a timerfd, waited for together with the latch.  A latch's own
 * timeout counts whole milliseconds from the call, so it can neither keep a
 * schedule of 1 ms nor one that does not drift; sleeping in the kernel until
 * an absolute time would keep it, but would leave the latch, and with it the
 * server's requests, unanswered meanwhile.  The kernel counts the expirations,
 * so a missed one is known rather than guessed.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/bgwriter.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/sinval.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"

#include "compat.h"
#include "worker.h"

#define NS_PER_S	INT64CONST(1000000000)

/* Seconds before the postmaster starts a worker that ended again. */
#define RESTART_DELAY_S 1

/* The least that Linux grants. */
#define SHORT_SLICE_NS	100000

/*
 * How often to look for what must be done now and then, but not at every
 * tick.
 */
#define CHORES_PERIOD_NS	NS_PER_S

struct PgscaleTimer
{
	int			fd;
	WaitEventSet *events;
	int64		period;			/* ns; 0 if stopped */
	int64		due;			/* when the last known expiration was due */
};

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
pgscale_worker_register(const char *name, const char *function)
{
	BackgroundWorker worker = {0};

	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = RESTART_DELAY_S;
	strlcpy(worker.bgw_library_name, "pgscale", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, function, sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, name, sizeof(worker.bgw_name));
	strlcpy(worker.bgw_type, name, sizeof(worker.bgw_type));
	RegisterBackgroundWorker(&worker);
}

void
pgscale_worker_start(const char *wait_event_name)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();

	BackgroundWorkerInitializeConnection(NULL, NULL, 0);

	wait_event = pgscale_wait_event_new(wait_event_name);
}

bool
pgscale_worker_interrupts(void)
{
	static int64 chores_done = 0;
	int64		now;

	CHECK_FOR_INTERRUPTS();

	if (ShutdownRequestPending)
		proc_exit(1);

	/* Else our place in the invalidation queue would hold up the others. */
	if (catchupInterruptPending)
		ProcessCatchupInterrupt();

	/*
	 * As bgwriter does: a handle kept open would keep a dropped file's space.
	 * A second of delay is as good, and the check takes a spinlock.
	 */
	now = pgscale_worker_clock();
	if (now - chores_done >= CHORES_PERIOD_NS)
	{
		chores_done = now;
		if (FirstCallSinceLastCheckpoint())
			pgscale_smgr_release_all();
	}

	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
		return true;
	}
	return false;
}

static int64
read_clock(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

int64
pgscale_worker_clock(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

int64
pgscale_worker_cpu_time(void)
{
	return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

/*
 * Asks the scheduler for the shortest time slice it has (Linux 6.12): a
 * process with a short one is let in before those with longer ones, and a
 * timer that is served for microseconds needs no longer.  It takes no
 * privilege and no share of the CPU from others, and older kernels ignore it.
 */
static void
ask_for_short_slices(void)
{
	SchedAttr	attr = {.size = sizeof(attr)};

	if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) != 0)
		return;
	attr.runtime = SHORT_SLICE_NS;
	(void) syscall(SYS_sched_setattr, 0, &attr, 0);
}

PgscaleTimer *
pgscale_timer_create(void)
{
	PgscaleTimer *timer = MemoryContextAllocZero(TopMemoryContext, sizeof(PgscaleTimer));

	if (!AcquireExternalFD())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("too many open files for a timer"),
				 errhint("Raise the operating system's limit on open files, or lower max_files_per_process.")));

	timer->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (timer->fd < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create a timer: %m")));

	ask_for_short_slices();

	timer->events = pgscale_wait_event_set(3);
	AddWaitEventToSet(timer->events, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(timer->events, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	AddWaitEventToSet(timer->events, WL_SOCKET_READABLE, timer->fd, NULL, NULL);
	return timer;
}

void
pgscale_timer_set(PgscaleTimer *timer, int64 period_ns)
{
	struct itimerspec spec = {{0}};

	timer->period = period_ns;
	timer->due = pgscale_worker_clock();
	if (period_ns > 0)
	{
		int64		first = timer->due + period_ns;

		spec.it_value.tv_sec = first / NS_PER_S;
		spec.it_value.tv_nsec = first % NS_PER_S;
		spec.it_interval.tv_sec = period_ns / NS_PER_S;
		spec.it_interval.tv_nsec = period_ns % NS_PER_S;
	}
	if (timerfd_settime(timer->fd, TFD_TIMER_ABSTIME, &spec, NULL) < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not set a timer: %m")));
}

int64
pgscale_timer_wait(PgscaleTimer *timer, int64 *due)
{
	WaitEvent	event;
	uint64		expired;

	if (WaitEventSetWait(timer->events, -1, &event, 1, wait_event) == 1 &&
		(event.events & WL_LATCH_SET))
	{
		ResetLatch(MyLatch);
		return 0;
	}

	/* Not readable after all: it was set anew meanwhile. */
	if (read(timer->fd, &expired, sizeof(expired)) != sizeof(expired))
		return 0;

	*due = timer->due + timer->period;
	timer->due += (int64) expired * timer->period;
	return (int64) expired;
}
