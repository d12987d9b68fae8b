/*-------------------------------------------------------------------------
 *
 * trigger.c
 *	  The trigger: traces without a request.
 *
 * Once a second the sampler reports the number of active sessions, and the time that
 * processes waited for locks and LWLocks.  Divided by the length of that second, the
 * time is a number of sessions, too; so one rule judges both (trigger_judge).
 *
 * If a figure leaves its usual range, a background worker is started for one trace: it
 * finds the worst session, traces it, stores the result, and ends.  It connects to no
 * database, so it blocks no DROP DATABASE.  It begins no transaction, so it holds back no
 * VACUUM, and no timeout of a transaction ends it.  It takes one of the places that all
 * traces share, by a resource owner of its own.
 *
 * The cost has three limits: one trace at a time, one a minute, and a total length of
 * traces in any hour.  The last two come from a ring of the started traces.  It is in
 * shared memory, so the limits survive a restart of the sampler.
 *
 * Locking: only the sampler begins runs, and later writes are atomic.  The place of a
 * run is used again only after so many runs that they take more than an hour, so its
 * worker has time to read it.
 *
 * Failure: a worker that ends early leaves its run as one that took its full time.
 * SIGTERM ends it at the next reading of the trace, as it ends any session.  It is not
 * started again.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
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

/* A shorter trace sees nothing that lasts.  Who means seconds and names no unit is told. */
#define SHORTEST_MS		100

/* More than there can be in an hour. */
#define RUNS			64

StaticAssertDecl(RUNS > HOUR_NS / REST_NS + 1, "a run's place must not be used again within an hour");

/* Waits for LWLocks are short: how long to search for a waiting process, and how often. */
#define FIND_NS			NS_PER_S
#define FIND_AGAIN_MS	10

/* health says that it does not work if there was no observation for that long. */
#define SILENT_MS		10000

/* How a trace that the trigger began has ended. */
typedef enum TraceOutcome
{
	TRACE_BEGUN,
	TRACE_KEPT,
	TRACE_NO_SLOT,				/* for the background worker */
	TRACE_NO_PLACE,				/* others trace */
	TRACE_NO_SESSION,			/* none to trace */
	TRACE_NO_BUDGET
} TraceOutcome;

#define OUTCOMES	(TRACE_NO_BUDGET + 1)

/* A trace that was begun; its place in the ring is its number's. */
typedef struct TraceRun
{
	PgscaleTraceAlarm alarm;
	int			duration_ms;
	pg_atomic_uint64 began_ns;	/* by pgscale_timer_clock() */
	pg_atomic_uint64 spent_ns;	/* time of tracing; before it is over, the
								 * most it may be */
} TraceRun;

typedef struct TriggerShared
{
	pg_atomic_uint64 observed_ns;	/* by pgscale_timer_clock(); 0: never */
	pg_atomic_uint32 known;		/* seconds */
	pg_atomic_uint32 worker_pid;	/* the tracing process; 0: none */
	pg_atomic_uint32 latest;	/* TraceOutcome */
	pg_atomic_uint64 counts[OUTCOMES];
	pg_atomic_uint64 number;	/* of the latest run; 0: there was none */
	TraceRun	runs[RUNS];
} TriggerShared;

static TriggerShared *shared = NULL;

PGDLLEXPORT void pgscale_trace_trigger_main(Datum arg);

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
 * minutes.  So a pile-up that lasts is reported once, because after some seconds it is
 * a part of its own range.  The margin keeps a server at rest, or with a single session, silent.
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

static TraceRun *
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
trigger_note(TraceOutcome outcome)
{
	pg_atomic_write_u32(&shared->latest, outcome);
	pg_atomic_fetch_add_u64(&shared->counts[outcome], 1);
}

static void
trigger_end(TraceRun *run, TraceOutcome outcome, int64 spent_ns)
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
	TraceRun   *run = trigger_run(number);

	run->alarm = *alarm;
	run->duration_ms = trace_trigger;
	pg_atomic_write_u64(&run->began_ns, (uint64) now);
	pg_atomic_write_u64(&run->spent_ns, (uint64) (trace_trigger * NS_PER_MS));
	pg_atomic_write_u64(&shared->number, number);
	trigger_note(TRACE_BEGUN);
	if (!has_budget)
		trigger_end(run, TRACE_NO_BUDGET, 0);
	else if (!pgscale_worker_launch("pgscale trace", "pgscale_trace_trigger_main", (int32) number, false, NULL))
		trigger_end(run, TRACE_NO_SLOT, 0);
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

/*
 * The worker
 */

/* Could a trace of this process explain the figure? */
static bool
worker_is_candidate(const PgscaleProc *proc, PgscaleTraceFigure figure)
{
	const uint32 class = proc->wait_event & PGSCALE_WAIT_CLASS;

	if (proc->kind != (PgscaleProcKind) B_BACKEND || !proc->running || proc->changecount == 0)
		return false;
	return figure != PGSCALE_TRACE_LOCK_WAITS || class == PG_WAIT_LOCK || class == PG_WAIT_LWLOCK;
}

/*
 * The longest statement is the worst, of those that began when the figure had left its
 * range: one that began long before, such as a report, belongs to what is usual.
 */
static bool
worker_is_worse(const PgscaleProc *a, const PgscaleProc *b, TimestampTz since)
{
	const bool	a_is_new = a->activity_start >= since;
	const bool	b_is_new = b->activity_start >= since;

	return a_is_new == b_is_new ? a->activity_start < b->activity_start : a_is_new;
}

/* Reads all processes once; false if there is none to trace. */
static bool
worker_choose(const PgscaleTraceAlarm *alarm, PgscaleTrace *trace)
{
	trace->target.pid = 0;
	for (int slot = 0; slot < pgscale_procs_count(); slot++)
	{
		PgscaleProc proc;

		if (!pgscale_procs_read_anew(slot, &proc) || !worker_is_candidate(&proc, alarm->figure))
			continue;
		if (trace->target.pid == 0 || worker_is_worse(&proc, &trace->target, alarm->since))
		{
			trace->target = proc;
			trace->slot = slot;
		}
	}
	return trace->target.pid != 0;
}

static bool
worker_find(const PgscaleTraceAlarm *alarm, PgscaleTrace *trace)
{
	const int64 give_up = pgscale_timer_clock() + FIND_NS;

	while (!worker_choose(alarm, trace))
	{
		if (pgscale_timer_clock() >= give_up)
			return false;
		pgscale_worker_wait(FIND_AGAIN_MS);
		CHECK_FOR_INTERRUPTS();
	}
	return true;
}

static TraceOutcome
worker_trace(int number, TraceRun *run)
{
	PgscaleTrace trace = {.duration_ns = run->duration_ms * NS_PER_MS};
	PgscaleProcClient client;

	trace.totals = pgscale_trace_totals_create();
	if (!worker_find(&run->alarm, &trace))
		return TRACE_NO_SESSION;
	if (!pgscale_procs_read_client(trace.slot, false, &client))
		client.application_name[0] = '\0';
	if (!pgscale_trace_watch(&trace))
		return TRACE_NO_PLACE;
	/* It may have ended before it could be watched. */
	if (trace.last <= trace.first)
		return TRACE_NO_SESSION;
	pgscale_trace_history_add(number, &run->alarm, &trace, &client);
	return TRACE_KEPT;
}

static void
trigger_detach(int code, Datum arg)
{
	pg_atomic_write_u32(&shared->worker_pid, 0);
}

/* The run of that number, which is this process' until it ends; NULL if another process traces. */
static TraceRun *
trigger_attach(int number)
{
	uint32		nobody = 0;

	if (!pg_atomic_compare_exchange_u32(&shared->worker_pid, &nobody, MyProcPid))
		return NULL;
	before_shmem_exit(trigger_detach, 0);
	return trigger_run(number);
}

static bool
trigger_check(int *newval, void **extra, GucSource source)
{
	if (*newval == 0 || *newval >= SHORTEST_MS)
		return true;
	GUC_check_errdetail("A trace takes %d ms or more; 0 is off.", SHORTEST_MS);
	return false;
}

void
pgscale_trace_trigger_main(Datum arg)
{
	const int	number = DatumGetInt32(arg);
	TraceRun   *run;
	TraceOutcome outcome;
	int64		began;

	pgscale_worker_start("PgscaleTrace");
	/* A trace reads no flag except the one that this handler sets. */
	pqsignal(SIGTERM, die);
	if (ShutdownRequestPending)
		proc_exit(1);

	run = trigger_attach(number);
	if (run == NULL)
		proc_exit(0);
	CreateAuxProcessResourceOwner();
	CurrentResourceOwner = AuxProcessResourceOwner;

	began = pgscale_timer_clock();
	outcome = worker_trace(number, run);
	trigger_end(run, outcome, outcome == TRACE_KEPT ? pgscale_timer_clock() - began : 0);
	proc_exit(0);
}

/*
 * The feature
 */

void
pgscale_trace_trigger_define_gucs(void)
{
	DefineCustomIntVariable("pgscale.trace_trigger",
							"Length of the traces that start when active sessions or lock waits leave their usual range.",
							"0: off; otherwise at least 100 ms. Each takes a CPU. It needs the sampler.",
							&trace_trigger, 0, 0, BUDGET_S * 1000, PGC_SIGHUP, GUC_UNIT_MS,
							trigger_check, NULL, NULL);
}

static void
trigger_init(void)
{
	pg_atomic_init_u64(&shared->observed_ns, 0);
	pg_atomic_init_u32(&shared->known, 0);
	pg_atomic_init_u32(&shared->worker_pid, 0);
	pg_atomic_init_u32(&shared->latest, TRACE_BEGUN);
	pg_atomic_init_u64(&shared->number, 0);
	for (int i = 0; i < OUTCOMES; i++)
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
		[TRACE_BEGUN] = "began a trace that was not kept",
		[TRACE_KEPT] = "was traced",
		[TRACE_NO_SLOT] = "found no slot for a background worker",
		[TRACE_NO_PLACE] = "was not traced, because others were tracing",
		[TRACE_NO_SESSION] = "found no session to trace",
		[TRACE_NO_BUDGET] = "was not traced, because the hour's budget is used up"
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

	for (int i = TRACE_NO_SLOT; i < OUTCOMES; i++)
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
								  trigger_latest(), pg_atomic_read_u64(&shared->counts[TRACE_KEPT]), trigger_untaken(), spent);
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
		if (pg_atomic_read_u32(&shared->latest) == TRACE_NO_SLOT)
		{
			health->state = PGSCALE_HEALTH_BROKEN;
			health->action = psprintf("raise max_worker_processes, which is %d, and restart", max_worker_processes);
			health->no_slot = true;
		}
	}
	return true;
}
