/*-------------------------------------------------------------------------
 *
 * sampler.c
 *	  The wait-event sampler: a background worker that reads at every tick what each
 *	  process of the server waits for, and on whose behalf.
 *
 * A tick reads all processes' slots without a lock (samples.c).  It adds its samples to
 * the profile (profile.c), the ring of single samples (history.c), the timeline
 * (timeline.c) and the totals (wait_totals.c), and lock waits to the profile of
 * blockers (blocker_profile.c).  Once a second it keeps the texts of long statements
 * (statement_texts.c).  All of them are shared memory of fixed size, which only this
 * process writes and which others read without stopping it.  So the sampler costs the
 * server nothing but its own CPU time, and no process can block it.  Other features
 * are notified once a second (observers.c), and of LWLocks at each tick
 * (lwlock_waits.c).
 *
 * Weights: ticks follow an absolute schedule, but a busy machine delays some and skips
 * others.  So each sample represents the time since the previous tick; samples are
 * counted besides.
 *
 * Failure: an error or a SIGTERM ends the process, and the postmaster starts it again;
 * all its data is in shared memory.  Other backends request a reset, and this process
 * makes it, because only this process writes.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/processes.h"
#include "base/server_settings.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/worker.h"
#include "sampler/lwlock_waits.h"
#include "sampler/nested_queries.h"
#include "sampler/observers.h"
#include "sampler/past/history.h"
#include "sampler/past/timeline.h"
#include "sampler/profile/cpu_split.h"
#include "sampler/profile/profile.h"
#include "sampler/profile/session_labels.h"
#include "sampler/profile/wait_totals.h"
#include "sampler/roots/blocker_profile.h"
#include "sampler/roots/long_waits.h"
#include "sampler/sampler.h"
#include "sampler/sampler_stats.h"
#include "sampler/samples.h"
#include "sampler/statement_texts.h"
#include "sampler/worker_types.h"

/* How long a reset may take, and how often to look whether it is done. */
#define RESET_LIMIT_MS	5000
#define RESET_CHECK_MS	100

/* If there was no tick for that long, and for several periods, something is wrong. */
#define STALLED_MS		5000

/* After that many failures in a row the kernel's counts are not available. */
#define UNREADABLE		5

/* Settings. */
static bool sampler_enabled = true;
static int	sampler_period = 10;
static int	sampler_profile_size = 5000;
static int	sampler_history_size = 40000;
static int	sampler_history_period = 1000;
static bool sampler_nested = false;

/* How other backends reach the sampler. */
typedef struct SamplerControl
{
	Latch	   *volatile latch; /* the sampler's, NULL if it is not running */
	pg_atomic_uint64 resets_requested;
	pg_atomic_uint64 resets_done;
	ConditionVariable reset_done;
} SamplerControl;

static SamplerControl *control = NULL;
static PgscaleSamplerStats *stats = NULL;

/* The worker's own. */
static PgscaleTimer timer;
static int64 last_tick;			/* on the monotonic clock */
static int64 cpu_base;			/* added to the process' CPU time in stats */

PGDLLEXPORT void pgscale_sampler_main(Datum arg);

static void
sampler_define_gucs(void)
{
	DefineCustomBoolVariable("pgscale.sampler",
							 "Samples what the server's processes wait for.",
							 NULL,
							 &sampler_enabled, true,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sampler_period",
							"Time between two samples.",
							NULL,
							&sampler_period, 10, 1, 1000,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sampler_profile_size",
							"Number of entries of the wait profile.",
							"Beyond it, the smallest ones are evicted to one row a wait event.",
							&sampler_profile_size, 5000, 100, PGSCALE_PROFILE_MAX,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sampler_history_size",
							"Number of single samples that are kept.",
							NULL,
							&sampler_history_size, 40000, 0, 10000000,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sampler_history_period",
							"Time between two single samples that are kept.",
							"Below pgscale.sampler_period every sample is.",
							&sampler_history_period, 1000, 1, PGSCALE_SAMPLER_HISTORY_PERIOD_MAX,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomBoolVariable("pgscale.sampler_nested",
							 "Counts waits for the nested statement instead of the top-level one.",
							 NULL,
							 &sampler_nested, false,
							 PGC_POSTMASTER, 0, NULL, NULL, NULL);
	pgscale_sampler_labels_define_guc();
	DefineCustomIntVariable("pgscale.sampler_debug_period",
							"Length of a record of evidence, of a measurement of scalability, and of a row of the archive. For tests.",
							"0 is the usual length.",
							&pgscale_timer_debug_ms, 0, 0, SECS_PER_HOUR * 1000,
							PGC_SIGHUP, GUC_UNIT_MS | GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
}

static void
sampler_shmem_request(void)
{
	Size		size = 0;

	size = add_size(size, sizeof(SamplerControl));
	size = add_size(size, pgscale_sampler_stats_size());
	size = add_size(size, pgscale_sampler_profile_size(sampler_profile_size));
	size = add_size(size, pgscale_sampler_history_size(sampler_history_size));
	size = add_size(size, pgscale_sampler_timeline_size());
	size = add_size(size, pgscale_sampler_totals_size());
	size = add_size(size, pgscale_sampler_types_size());
	size = add_size(size, pgscale_sampler_labels_size());
	size = add_size(size, pgscale_sampler_blockers_size());
	size = add_size(size, pgscale_sampler_texts_size());
	if (sampler_nested)
		size = add_size(size, pgscale_sampler_nested_size());
	RequestAddinShmemSpace(size);
}

/* In the postmaster, when all other processes are gone. */
static void
save_at_shutdown(int code, Datum arg)
{
	/* Not if anything, or just the sampler, was stopped in mid-air. */
	if (code == 0 && stats->pid == 0)
	{
		pgscale_sampler_save();
		pgscale_sampler_history_save();
	}
}

static void
sampler_shmem_startup(void)
{
	bool		found;

	control = ShmemInitStruct("pgscale sampler", sizeof(SamplerControl), &found);
	if (!found)
	{
		control->latch = NULL;
		pg_atomic_init_u64(&control->resets_requested, 0);
		pg_atomic_init_u64(&control->resets_done, 0);
		ConditionVariableInit(&control->reset_done);
	}
	stats = pgscale_sampler_stats_startup();
	pgscale_sampler_profile_startup(sampler_profile_size);
	pgscale_sampler_history_startup(sampler_history_size);
	pgscale_sampler_timeline_startup();
	pgscale_sampler_totals_startup();
	pgscale_sampler_types_startup();
	pgscale_sampler_labels_startup();
	pgscale_sampler_blockers_startup();
	pgscale_sampler_texts_startup();
	if (sampler_nested)
		pgscale_sampler_nested_startup();

	if (!found && !IsUnderPostmaster)
	{
		pgscale_sampler_load();
		pgscale_sampler_history_load();
		on_shmem_exit(save_at_shutdown, (Datum) 0);
	}
}

static void
sampler_register_workers(void)
{
	/* Else compute_query_id = auto would leave all waits without a query. */
	EnableQueryId();

	if (sampler_nested)
		pgscale_sampler_nested_install();
	pgscale_worker_register("pgscale sampler", "pgscale_sampler_main", 0);
}

static void
sampler_tick(int64 due, int64 missed)
{
	int64		now = pgscale_timer_clock();
	int64		ns = now - last_tick;
	TimestampTz wall = GetCurrentTimestamp();
	PgscaleSamplerTick tick = {.now = now,.ns = ns};
	PgscaleSamplerFound found;

	last_tick = now;

	pgscale_sampler_profile_begin();
	pgscale_sampler_history_begin(wall, due, now, sampler_history_period * NS_PER_MS, pgscale_sampler_samples_most());
	pgscale_sampler_timeline_begin(wall, ns);
	pgscale_sampler_blockers_begin(wall);
	pgscale_sampler_texts_begin(now, wall);
	pgscale_sampler_samples_take(&tick);
	pgscale_sampler_texts_end();
	pgscale_sampler_blockers_end();
	pgscale_sampler_timeline_end(tick.nconnections);
	pgscale_sampler_history_end();
	pgscale_sampler_profile_end();
	pgscale_sampler_lwlock_tell(ns);
	pgscale_sampler_cpu_settle(now, ns, &found);

	stats->last_tick_ns = now;
	pgscale_sampler_stats_tick(now - due, missed, ns, pgscale_timer_clock() - now,
							   tick.nactive * ns + found.idle_ns + found.in_transaction_ns,
							   tick.nin_transaction * ns - found.in_transaction_ns);
	pgscale_sampler_stats_connections(wall, tick.nconnections);
	pgscale_sampler_observe_tick(wall, ns);
	if (pgscale_sampler_long_waits_look(now, wall))
		stats->blocker_looks++;
}

/* Once a second is enough for a figure that needs a system call. */
static void
account_cpu(void)
{
	static int64 accounted = 0;

	if (last_tick - accounted < NS_PER_S)
		return;
	accounted = last_tick;
	stats->cpu_ns = cpu_base + pgscale_timer_cpu_time();
}

static void
sampler_apply_settings(void)
{
	int64		period = sampler_enabled ? sampler_period * NS_PER_MS : 0;

	/* What is known of their time on CPU may be forgotten below. */
	pgscale_sampler_samples_forget_quiet();
	if (pgscale_sampler_labels_apply())
		pgscale_sampler_samples_relabel();

	if (period == stats->period_ns)
		return;

	/* Time that was not observed is not to be counted. */
	if (stats->period_ns == 0)
	{
		last_tick = pgscale_timer_clock();
		stats->on_since_ns = stats->last_tick_ns = last_tick;
		pgscale_sampler_history_start(last_tick);
		pgscale_sampler_cpu_forget();
		pgscale_sampler_observe_begin();
	}
	else if (period == 0)
		pgscale_sampler_cpu_forget();
	pgscale_timer_set(&timer, period);
	stats->period_ns = period;
}

static void
serve_resets(void)
{
	uint64		requested = pg_atomic_read_u64(&control->resets_requested);

	if (requested == pg_atomic_read_u64(&control->resets_done))
		return;

	pgscale_sampler_labels_begin_reset();
	pgscale_sampler_profile_reset();
	pgscale_sampler_history_reset();
	pgscale_sampler_labels_end_reset();
	pgscale_sampler_samples_reset();
	pgscale_sampler_cpu_forget();
	pgscale_sampler_totals_reset();
	pgscale_sampler_timeline_reset();
	pgscale_sampler_long_waits_reset();
	pgscale_sampler_texts_reset();
	pgscale_sampler_stats_reset();
	cpu_base = -pgscale_timer_cpu_time();
	last_tick = pgscale_timer_clock();
	pgscale_sampler_history_start(last_tick);

	pg_atomic_write_u64(&control->resets_done, requested);
	ConditionVariableBroadcast(&control->reset_done);
}

static void
sampler_detach(int code, Datum arg)
{
	pgscale_sampler_cpu_forget();
	control->latch = NULL;
	stats->pid = 0;
	stats->period_ns = 0;
}

/* The worker. */
void
pgscale_sampler_main(Datum arg)
{
	pgscale_worker_start("PgscaleSamplerMain");

	pgscale_sampler_samples_attach(stats);
	cpu_base = stats->cpu_ns - pgscale_timer_cpu_time();

	pgscale_sampler_profile_attach_writer();
	pgscale_sampler_labels_attach();
	pgscale_sampler_history_attach();
	pgscale_sampler_long_waits_attach();
	pgscale_sampler_blockers_attach();
	pgscale_sampler_texts_attach();
	pgscale_sampler_cpu_attach(pgscale_procs_count(), pgscale_procs_count() / PGSCALE_SAMPLER_FREE_SLOTS + 2, stats);
	before_shmem_exit(sampler_detach, (Datum) 0);
	stats->starts++;
	stats->period_ns = 0;
	sampler_apply_settings();
	control->latch = MyLatch;
	stats->pid = MyProcPid;

	for (;;)
	{
		int64		due;
		int64		expired = pgscale_timer_wait(&timer, &due);

		bool		reloaded = pgscale_worker_interrupts();

		if (reloaded)
			sampler_apply_settings();
		pgscale_workers_start(reloaded);
		serve_resets();
		if (expired > 0 && stats->period_ns > 0)
		{
			sampler_tick(due, expired - 1);
			account_cpu();
		}
	}
}

/*
 * Empties the profiles, the history, the timeline and the sampler's statistics.
 * Returns when it is done.
 */
static void
sampler_reset(void)
{
	const uint64 request = pg_atomic_fetch_add_u64(&control->resets_requested, 1) + 1;
	Latch	   *latch = control->latch;

	if (latch)
		SetLatch(latch);

	ConditionVariablePrepareToSleep(&control->reset_done);
	for (int ms = 0; pg_atomic_read_u64(&control->resets_done) < request; ms += RESET_CHECK_MS)
	{
		if (ms >= RESET_LIMIT_MS)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the sampler does not answer"),
					 errdetail("The reset will take place when it does."),
					 errhint("See pgscale.health for the reason.")));
		ConditionVariableTimedSleep(&control->reset_done, RESET_CHECK_MS, PG_WAIT_EXTENSION);
	}
	ConditionVariableCancelSleep();
}

static void
sampler_health(PgscaleHealth *health)
{
	if (!pgscale_health_preloaded(health, "pgscale.sampler", true))
		return;

	/* The worker may know of a reload before this backend does. */
	if (stats->pid != 0 ? stats->period_ns == 0 : !sampler_enabled)
	{
		health->state = PGSCALE_HEALTH_OFF;
		health->reason = "it is switched off";
		health->action = "set pgscale.sampler to on and reload";
	}
	else if (!pgscale_health_worker(health, &pgscale_sampler_module, stats->pid, stats->starts, stats->last_tick_ns,
									Max(STALLED_MS, 10 * stats->period_ns / NS_PER_MS)))
		return;
	else
	{
		const bool	blind = strcmp(pgscale_server_setting("track_activities"), "off") == 0;

		health->state = PGSCALE_HEALTH_WORKING;
		health->since_ns = stats->on_since_ns;
		health->reason = psprintf("samples every %d ms%s%s%s", (int) (stats->period_ns / NS_PER_MS),
								  blind ? "; queries and idle transactions are unknown, because track_activities is off" : "",
								  stats->unreadable < UNREADABLE ? "" :
								  "; time on CPU is not split into running and queued, because /proc/PID/schedstat "
								  "cannot be read",
								  pgscale_sampler_plan_id_unknown() ?
								  "; plan_id is always NULL, because this server has no plan identifiers" : "");
		if (blind)
			health->action = "set track_activities to on and reload";
		else if (pgscale_sampler_plan_id_unknown())
			health->action = "use PostgreSQL 18 or later, or take plan_id out of pgscale.sampler_dimensions";
	}
}

const PgscaleModule pgscale_sampler_module = {
	.name = "sampler",
	.define_gucs = sampler_define_gucs,
	.shmem_request = sampler_shmem_request,
	.shmem_startup = sampler_shmem_startup,
	.register_workers = sampler_register_workers,
	.reset = sampler_reset,
	.health = sampler_health,
};
