/*-------------------------------------------------------------------------
 *
 * observers.c
 *	  Notifies other features of the sampler's findings: once a second, and at each tick
 *	  of the LWLocks that processes wait for.
 *
 * They need the sessions' time by wait event as it passes, even if the entries of the
 * profile are evicted.  So that time is summed up here again, by event only.  All of it
 * is memory of the sampler's own process.
 *
 * Failure: an error of an observer is logged and does not affect the others.  The
 * observer is called again after a second, after two if that fails as well, and so on
 * up to a minute.  It has lost the time in between and is notified of the gap, because
 * the counters whose deltas it computes have moved on.  All observers get the same
 * notification if the sampler paused for long.
 *
 * Of LWLocks once a second would be too late.  A queue at a lock lasts for microseconds,
 * and the lock of a tranche can be found only while its queue exists.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/condition_variable.h"
#include "storage/fd.h"
#include "storage/lwlock.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "base/evidence.h"
#include "base/server_counters.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/wait_events.h"
#include "pgscale.h"
#include "sampler/samples.h"

#define OBSERVE_NS		NS_PER_S

/* A longer one is of a sampler that was held up. */
#define OBSERVE_MAX_NS	(3 * OBSERVE_NS)

/* After one error, and after many. */
#define PAUSE_MIN_NS	OBSERVE_NS
#define PAUSE_MAX_NS	(60 * OBSERVE_NS)

typedef struct WaitSum
{
	uint32		wait_event;
	char		status;
	uint64		ns;
} WaitSum;

#define SH_PREFIX		wait_sums
#define SH_ELEMENT_TYPE WaitSum
#define SH_KEY_TYPE		uint32
#define SH_KEY			wait_event
#define SH_HASH_KEY(tb, k)	murmurhash32(k)
#define SH_EQUAL(tb, a, b)	((a) == (b))
#define SH_SCOPE		static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* What is known of each module's observer. */
typedef struct Observer
{
	int64		pause_ns;		/* after its last error; 0: there was none */
	int64		resume_ns;		/* on the monotonic clock */
	bool		missed;			/* has missed an observation */
} Observer;

/* All of it is of the sampler's process. */
static Observer *observers = NULL;
static MemoryContext context = NULL;
static PgscaleLwlockWaits lwlock_waits; /* of the present tick */

/* The time of sessions: by wait event since the process began, and since the last observation. */
static struct
{
	wait_sums_hash *sums;
	int64		active_ns;
	int64		ns;
}			time_seen;

/* Of sessions; a period is an observation. */
static PgscaleDatabases databases;

static int
count_modules(void)
{
	int			n = 0;

	while (pgscale_modules[n])
		n++;
	return n;
}

static void
observers_attach(void)
{
	observers = MemoryContextAllocZero(TopMemoryContext, count_modules() * sizeof(Observer));
	time_seen.sums = wait_sums_create(TopMemoryContext, 256, NULL);
	context = AllocSetContextCreate(TopMemoryContext, "pgscale observe", ALLOCSET_DEFAULT_SIZES);
}

static void
observers_start(int64 now)
{
	const int	nmodules = count_modules();

	for (int i = 0; i < nmodules; i++)
		observers[i].missed = true;
	time_seen.active_ns = time_seen.ns = 0;
}

static void
observers_add(PgscaleSamplerTickSample *sample, const PgscaleSamplerTick *tick)
{
	const PgscaleProc *proc = sample->proc;
	const uint32 wait_event = sample->key.wait_event;
	bool		found;
	WaitSum    *sum;

	if ((wait_event & PGSCALE_WAIT_CLASS) == PG_WAIT_LWLOCK)
	{
		const uint32 tranche = Min(wait_event & ~PGSCALE_WAIT_CLASS, PGSCALE_LWLOCK_TRANCHES - 1);

		if (lwlock_waits.waiters[tranche]++ == 0)
			lwlock_waits.tranches[lwlock_waits.ntranches++] = (uint8) tranche;
	}
	if (!proc->session)
		return;
	(void) pgscale_counters_see_database(&databases, proc->datid);
	/* Blocking others is not work that advice could save. */
	if (sample->idle || proc->in_transaction)
		return;
	sum = wait_sums_insert(time_seen.sums, proc->wait_event, &found);
	if (!found)
		sum->ns = 0;
	sum->ns += sample->ns;
	if (proc->running && proc->leader_pid == 0)
		time_seen.active_ns += sample->ns;
}

static void
observers_end(PgscaleSamplerTick *tick)
{
	lwlock_waits.ns = tick->ns;
	for (int i = 0; pgscale_modules[i]; i++)
		if (pgscale_modules[i]->lwlock_waits)
			pgscale_modules[i]->lwlock_waits(&lwlock_waits);
	for (int i = 0; i < lwlock_waits.ntranches; i++)
		lwlock_waits.waiters[lwlock_waits.tranches[i]] = 0;
	lwlock_waits.ntranches = 0;
}

static void
each_wait(void (*each) (void *arg, uint32 wait_event, uint64 ns), void *arg)
{
	wait_sums_iterator iterator;
	WaitSum    *sum;

	wait_sums_start_iterate(time_seen.sums, &iterator);
	while ((sum = wait_sums_iterate(time_seen.sums, &iterator)) != NULL)
		each(arg, sum->wait_event, sum->ns);
}

/*
 * After an error in a process without transactions, in which nothing but the
 * observer can have left anything behind.
 */
static void
observers_clean_up(void)
{
	MemoryContextSwitchTo(context);
	HOLD_INTERRUPTS();
	EmitErrorReport();
	FlushErrorState();
	LWLockReleaseAll();
	ConditionVariableCancelSleep();
	pgstat_report_wait_end();
	AtEOXact_Files(false);
	RESUME_INTERRUPTS();
}

static void
observers_notify(const PgscaleModule *module, Observer *observer, PgscaleObservation observation)
{
	observation.anew = observation.anew || observer->missed;
	observer->missed = false;
	PG_TRY();
	{
		module->observe(&observation);
		observer->pause_ns = 0;
	}
	PG_CATCH();
	{
		/*
		 * Any error, which is logged: the sampler must go on.  The next
		 * observation shows the gap.
		 */
		observers_clean_up();
		observer->pause_ns = Min(Max(2 * observer->pause_ns, PAUSE_MIN_NS), PAUSE_MAX_NS);
		observer->resume_ns = pgscale_timer_clock() + observer->pause_ns;
		observer->missed = true;
	}
	PG_END_TRY();
}

/* Notifies the others when a second is over. */
static void
observers_after(const PgscaleSamplerTick *tick)
{
	PgscaleObservation observation;
	MemoryContext old;
	int64		now;

	time_seen.ns += tick->ns;
	if (time_seen.ns < OBSERVE_NS)
		return;

	observation.at = tick->wall;
	observation.ns = time_seen.ns;
	observation.anew = time_seen.ns > OBSERVE_MAX_NS;
	observation.active = (double) time_seen.active_ns / time_seen.ns;
	observation.databases = databases.oids;
	observation.ndatabases = databases.n;
	observation.waits = each_wait;
	time_seen.active_ns = time_seen.ns = 0;
	databases.period++;

	now = pgscale_timer_clock();
	old = MemoryContextSwitchTo(context);
	for (int i = 0; pgscale_modules[i]; i++)
	{
		if (!pgscale_modules[i]->observe)
			continue;
		if (observers[i].pause_ns > 0 && now < observers[i].resume_ns)
			observers[i].missed = true;
		else
			observers_notify(pgscale_modules[i], &observers[i], observation);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(context);
}

const PgscaleSamplerConsumer pgscale_sampler_observers_consumer = {
	.attach = observers_attach,
	.start = observers_start,
	.add = observers_add,
	.end = observers_end,
	.after = observers_after,
};
