/*-------------------------------------------------------------------------
 *
 * trigger.c
 *	  The trigger: when to trace without a request.
 *
 * Once a second the sampler reports the number of active sessions, and the time that
 * processes waited for locks and LWLocks.  Divided by the length of that second, the
 * time is a number of sessions, too; so one rule judges both (trigger_judge).
 *
 * If a figure leaves its usual range, a background worker is started for one trace
 * (trigger_worker.c).  The cost has three limits: one trace at a time, one a minute,
 * and a total length of traces in any hour.  The last two come from a ring of the
 * started traces.  It is in shared memory, so the limits survive a restart of the
 * sampler.
 *
 * Locking: only the sampler begins runs, and later writes are atomic.  The place of a
 * run is used again only after so many runs that they take more than an hour, so its
 * worker has time to read it.
 *
 * Failure: a worker that ends early leaves its run as one that took its full time.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "base/shared_area.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/wait_events.h"
#include "base/worker.h"
#include "trace/trigger.h"

/* Seconds that a range is made of, and how many must be known. */
#define WINDOW_S		120
#define KNOWN_S			30

/* Seconds that a figure must be beyond it, one after the other. */
#define BEYOND_S		3

/* How far beyond: more than this many deviations from the median, and ... */
#define DEVIATIONS		4

/* ... above all but this fraction of the seconds, by that many sessions. */
#define QUANTILE		0.95
#define MARGIN			2

/* The standard deviation of a normal distribution in median absolute deviations. */
#define DEVIATION_OF_MAD	1.4826

/* Between two traces' beginnings, and all of them in an hour. */
#define REST_NS			(60 * NS_PER_S)
#define HOUR_NS			(3600 * NS_PER_S)
#define BUDGET_S		60

/* More than there can be in an hour. */
#define RUNS			64

StaticAssertDecl(RUNS > HOUR_NS / REST_NS + 1, "a run's place must not be used again within an hour");

/* health says that it does not work if there was no observation for that long. */
#define SILENT_MS		10000

typedef struct TriggerShared
{
	pg_atomic_uint64 observed_ns;	/* by pgscale_timer_clock(); 0: never */
	pg_atomic_uint32 known;		/* seconds */
	pg_atomic_uint32 worker_pid;	/* the tracing process; 0: none */
	pg_atomic_uint32 latest;	/* PgscaleTraceOutcome */
	pg_atomic_uint64 counts[PGSCALE_TRACE_OUTCOMES];
	pg_atomic_uint64 number;	/* of the latest run; 0: there was none */
	PgscaleTraceRun runs[RUNS];
} TriggerShared;

static TriggerShared *shared = NULL;

/* Length of a trace in milliseconds; 0: none. */
static int	trace_trigger = 0;

/* The sampler's own: the latest seconds. */
static struct
{
	int			n;
	double		sessions[PGSCALE_TRACE_FIGURES][WINDOW_S];
	bool		counted;
	uint64		lock_ns;		/* of all waits, as it was last */
}			seconds;

static int
trigger_compare(const void *a, const void *b)
{
	const double x = *(const double *) a;
	const double y = *(const double *) b;

	return x < y ? -1 : x > y ? 1 : 0;
}

/* Of sorted values, the least that this fraction of them does not exceed. */
static double
trigger_quantile(const double *sorted, int n, double fraction)
{
	return sorted[Max((int) ceil(fraction * n) - 1, 0)];
}

/*
 * The rule.  The usual range is that of all seconds but the latest BEYOND_S ones.  The
 * figure has left it if each of those is above a limit.
 *
 * The limit is MARGIN sessions above the greater of two.  One is the median and DEVIATIONS
 * standard deviations, estimated by the median absolute deviation: a pile-up of some
 * seconds moves neither.  The other is the 95 % quantile: where short peaks are usual,
 * the deviation does not show them, and here they count if they take 6 seconds of two
 * minutes.  So a pile-up that lasts is told once, since after some seconds it is a part of
 * its own range.  The margin keeps a server at rest, or with a single session, silent.
 */
static bool
trigger_judge(const double *values, int n, PgscaleTraceAlarm *alarm)
{
	const int	known = n - BEYOND_S;
	double		sorted[WINDOW_S];
	double		deviation;

	if (known < KNOWN_S)
		return false;

	memcpy(sorted, values, known * sizeof(double));
	qsort(sorted, known, sizeof(double), trigger_compare);
	alarm->usual = trigger_quantile(sorted, known, 0.5);
	alarm->limit = trigger_quantile(sorted, known, QUANTILE);

	for (int i = 0; i < known; i++)
		sorted[i] = fabs(values[i] - alarm->usual);
	qsort(sorted, known, sizeof(double), trigger_compare);
	deviation = DEVIATION_OF_MAD * trigger_quantile(sorted, known, 0.5);
	alarm->limit = Max(alarm->limit, alarm->usual + DEVIATIONS * deviation) + MARGIN;

	alarm->sessions = 0;
	for (int i = known; i < n; i++)
	{
		if (values[i] <= alarm->limit)
			return false;
		alarm->sessions += values[i] / BEYOND_S;
	}
	return true;
}

static void
trigger_add_lock(void *arg, uint32 wait_event, uint64 ns)
{
	const uint32 class = wait_event & PGSCALE_WAIT_CLASS;

	if (class == PG_WAIT_LOCK || class == PG_WAIT_LWLOCK)
		*(uint64 *) arg += ns;
}

/* Adds the second that was observed; what is before a gap is forgotten. */
static void
trigger_add_second(const PgscaleObservation *observation)
{
	const uint64 lock_ns_before = seconds.lock_ns;
	const bool	goes_on = seconds.counted && !observation->anew;

	seconds.lock_ns = 0;
	observation->waits(trigger_add_lock, &seconds.lock_ns);
	seconds.counted = true;
	if (!goes_on || seconds.lock_ns < lock_ns_before)
	{
		seconds.n = 0;
		return;
	}
	if (seconds.n == WINDOW_S)
	{
		seconds.n--;
		for (int i = 0; i < PGSCALE_TRACE_FIGURES; i++)
			memmove(&seconds.sessions[i][0], &seconds.sessions[i][1], seconds.n * sizeof(double));
	}
	seconds.sessions[PGSCALE_TRACE_LOCK_WAITS][seconds.n] = (double) (seconds.lock_ns - lock_ns_before) / observation->ns;
	seconds.sessions[PGSCALE_TRACE_ACTIVE_SESSIONS][seconds.n] = observation->active;
	seconds.n++;
}

/* Where both figures have left their range, lock waits say more. */
static bool
trigger_is_alarmed(PgscaleTraceAlarm *alarm)
{
	for (int i = 0; i < PGSCALE_TRACE_FIGURES; i++)
	{
		alarm->figure = (PgscaleTraceFigure) i;
		if (trigger_judge(seconds.sessions[i], seconds.n, alarm))
			return true;
	}
	return false;
}

static PgscaleTraceRun *
trigger_run(uint64 number)
{
	return &shared->runs[number % RUNS];
}

static bool
trigger_rests(int64 now)
{
	const uint64 number = pg_atomic_read_u64(&shared->number);

	return pg_atomic_read_u32(&shared->worker_pid) != 0 ||
		(number > 0 && now - (int64) pg_atomic_read_u64(&trigger_run(number)->began_ns) < REST_NS);
}

/* The time of tracing in the last hour. */
static int64
trigger_spent_ns(int64 now)
{
	int64		spent = 0;

	for (int i = 0; i < RUNS; i++)
		if (now - (int64) pg_atomic_read_u64(&shared->runs[i].began_ns) < HOUR_NS)
			spent += (int64) pg_atomic_read_u64(&shared->runs[i].spent_ns);
	return spent;
}

static bool
trigger_has_budget(int64 now)
{
	return trigger_spent_ns(now) + trace_trigger * NS_PER_MS <= BUDGET_S * NS_PER_S;
}

static void
trigger_note(PgscaleTraceOutcome outcome)
{
	pg_atomic_write_u32(&shared->latest, outcome);
	pg_atomic_fetch_add_u64(&shared->counts[outcome], 1);
}

void
pgscale_trace_trigger_end(PgscaleTraceRun *run, PgscaleTraceOutcome outcome, int64 spent_ns)
{
	pg_atomic_write_u64(&run->spent_ns, (uint64) spent_ns);
	trigger_note(outcome);
}

/* An alarm without a trace is a run, too: so it is reported once. */
static void
trigger_begin(const PgscaleTraceAlarm *alarm, int64 now)
{
	const uint64 number = pg_atomic_read_u64(&shared->number) + 1;
	const bool	has_budget = trigger_has_budget(now);
	PgscaleTraceRun *run = trigger_run(number);

	run->alarm = *alarm;
	run->duration_ms = trace_trigger;
	pg_atomic_write_u64(&run->began_ns, (uint64) now);
	pg_atomic_write_u64(&run->spent_ns, (uint64) (trace_trigger * NS_PER_MS));
	pg_atomic_write_u64(&shared->number, number);
	trigger_note(PGSCALE_TRACE_BEGUN);
	if (!has_budget)
		pgscale_trace_trigger_end(run, PGSCALE_TRACE_NO_BUDGET, 0);
	else if (!pgscale_worker_launch("pgscale trace", PGSCALE_TRACE_WORKER_MAIN, (int32) number, false, NULL))
		pgscale_trace_trigger_end(run, PGSCALE_TRACE_NO_SLOT, 0);
}

void
pgscale_trace_trigger_observe(const PgscaleObservation *observation)
{
	const int64 now = pgscale_timer_clock();
	PgscaleTraceAlarm alarm;

	pg_atomic_write_u64(&shared->observed_ns, (uint64) now);
	if (trace_trigger > 0)
		trigger_add_second(observation);
	else
	{
		seconds.n = 0;
		seconds.counted = false;
	}
	pg_atomic_write_u32(&shared->known, seconds.n);

	if (!trigger_is_alarmed(&alarm) || trigger_rests(now) || pgscale_trace_places() == 0)
		return;
	alarm.since = observation->at - (BEYOND_S + 1) * USECS_PER_SEC;
	trigger_begin(&alarm, now);
}

static void
trigger_detach(int code, Datum arg)
{
	pg_atomic_write_u32(&shared->worker_pid, 0);
}

PgscaleTraceRun *
pgscale_trace_trigger_attach(int number)
{
	uint32		nobody = 0;

	if (!pg_atomic_compare_exchange_u32(&shared->worker_pid, &nobody, MyProcPid))
		return NULL;
	before_shmem_exit(trigger_detach, 0);
	return trigger_run(number);
}

void
pgscale_trace_trigger_define_gucs(void)
{
	DefineCustomIntVariable("pgscale.trace_trigger",
							"Traces a session for that long when active sessions or lock waits leave their usual range.",
							"0 is off. All such traces of an hour take a minute at most.",
							&trace_trigger, 0, 0, BUDGET_S * 1000, PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
}

static void
trigger_init(void)
{
	pg_atomic_init_u64(&shared->observed_ns, 0);
	pg_atomic_init_u32(&shared->known, 0);
	pg_atomic_init_u32(&shared->worker_pid, 0);
	pg_atomic_init_u32(&shared->latest, PGSCALE_TRACE_BEGUN);
	pg_atomic_init_u64(&shared->number, 0);
	for (int i = 0; i < PGSCALE_TRACE_OUTCOMES; i++)
		pg_atomic_init_u64(&shared->counts[i], 0);
	for (int i = 0; i < RUNS; i++)
	{
		pg_atomic_init_u64(&shared->runs[i].began_ns, 0);
		pg_atomic_init_u64(&shared->runs[i].spent_ns, 0);
	}
}

const PgscaleArea pgscale_trace_trigger_area = {
	.name = "pgscale trace",
	.at = (void **) &shared,
	.size = sizeof(TriggerShared),
	.init = trigger_init,
};

/* What has become of the latest alarm. */
static const char *
trigger_latest(void)
{
	static const char *const texts[] = {
		[PGSCALE_TRACE_BEGUN] = "began a trace that was not kept",
		[PGSCALE_TRACE_KEPT] = "was traced",
		[PGSCALE_TRACE_NO_SLOT] = "found no slot for a background worker",
		[PGSCALE_TRACE_NO_PLACE] = "was not traced, because others were tracing",
		[PGSCALE_TRACE_NO_SESSION] = "found no session to trace",
		[PGSCALE_TRACE_NO_BUDGET] = "was not traced, because the hour's budget is used up"
	};

	if (pg_atomic_read_u32(&shared->worker_pid) != 0)
		return "is being traced";
	return texts[pg_atomic_read_u32(&shared->latest)];
}

/* Alarms that nothing came of. */
static uint64
trigger_untaken(void)
{
	uint64		untaken = 0;

	for (int i = PGSCALE_TRACE_NO_SLOT; i < PGSCALE_TRACE_OUTCOMES; i++)
		untaken += pg_atomic_read_u64(&shared->counts[i]);
	return untaken;
}

/* How the trigger is while it watches. */
static void
trigger_health_watching(PgscaleHealth *health)
{
	const char *spent = psprintf("%.1f of %d s an hour are used",
								 (double) trigger_spent_ns(pgscale_timer_clock()) / NS_PER_S, BUDGET_S);

	health->state = PGSCALE_HEALTH_WORKING;
	if (pg_atomic_read_u64(&shared->number) == 0)
		health->reason = psprintf("the trigger watches; no pile-up so far; %s", spent);
	else
		health->reason = psprintf("the trigger watches; the latest pile-up %s; " UINT64_FORMAT " kept, " UINT64_FORMAT " not taken; %s",
								  trigger_latest(), pg_atomic_read_u64(&shared->counts[PGSCALE_TRACE_KEPT]), trigger_untaken(), spent);
}

bool
pgscale_trace_trigger_health(PgscaleHealth *health)
{
	const uint32 known = shared ? pg_atomic_read_u32(&shared->known) : 0;

	if (!shared || trace_trigger == 0)
		return false;
	if (!pgscale_health_observed(health, (int64) pg_atomic_read_u64(&shared->observed_ns), SILENT_MS))
	{
		/* it is asked for by a setting of its own */
		if (health->state == PGSCALE_HEALTH_OFF)
			health->state = PGSCALE_HEALTH_BROKEN;
		return true;
	}

	if (known < KNOWN_S + BEYOND_S)
	{
		health->state = PGSCALE_HEALTH_STARTING;
		health->reason = psprintf("the trigger learns what is usual: %u of %d s are known", known, KNOWN_S + BEYOND_S);
	}
	else
	{
		trigger_health_watching(health);
		if (pg_atomic_read_u32(&shared->latest) == PGSCALE_TRACE_NO_SLOT)
		{
			health->state = PGSCALE_HEALTH_BROKEN;
			health->action = psprintf("raise max_worker_processes, which is %d, and restart", max_worker_processes);
			health->no_slot = true;
		}
	}
	return true;
}
