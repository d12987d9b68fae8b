/*-------------------------------------------------------------------------
 *
 * sampler.c
 *	  The wait-event sampler: a background worker that reads at every tick what each
 *	  process of the server waits for, and on whose behalf.
 *
 * A tick reads all processes' slots without a lock (samples.c).  What counts its samples is
 * the list of consumers below, each of which has shared memory of fixed size, which only
 * this process writes and which others read without stopping it.  So the sampler costs the
 * server nothing but its own CPU time, and no process can block it.
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

#include "funcapi.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "port/pg_bitutils.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/row_builder.h"
#include "base/server_settings.h"
#include "base/shared_area.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/worker.h"
#include "sampler/past/history.h"
#include "sampler/profile/profile.h"
#include "sampler/sampler.h"
#include "sampler/samples.h"

/* How long a reset may take, and how often to check whether it is done. */
#define RESET_LIMIT_MS	5000
#define RESET_CHECK_MS	100

/* If there was no tick for that long, and for several periods, something is wrong. */
#define STALLED_MS		5000

/* After that many failures in a row the kernel's counts are not available. */
#define UNREADABLE		5

/*
 * What counts or keeps the samples.  The blockers of a sample are found before the history
 * keeps it.  Time that is split moves in the profile and in the timeline, after the ends of
 * their ticks; a reset ends what is being split before it empties the totals.  Labels are
 * forgotten when nothing has their numbers any more.
 */
const PgscaleSamplerConsumer *const pgscale_sampler_consumers[] = {
	&pgscale_sampler_samples_consumer,
	&pgscale_sampler_profile_consumer,
	&pgscale_sampler_blockers_consumer,
	&pgscale_sampler_history_consumer,
	&pgscale_sampler_timeline_consumer,
	&pgscale_sampler_texts_consumer,
	&pgscale_sampler_cpu_consumer,
	&pgscale_sampler_totals_consumer,
	&pgscale_sampler_labels_consumer,
	&pgscale_sampler_observers_consumer,
	NULL
};

/* Settings. */
static bool sampler_enabled = true;
static int	sampler_period = 10;
PgscaleSamplerSettings pgscale_sampler_settings = {
	.profile_size = 5000,
	.history_size = 40000,
	.history_period_ms = 1000,
	.nested = false
};

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

PG_FUNCTION_INFO_V1(pgscale_sampler_stats);

static void
sampler_define_gucs(void)
{
	DefineCustomBoolVariable("pgscale.sampler",
							 "Samples what the server's processes wait for.",
							 "Its process also starts the workers of other features, so it runs while this is off, too.",
							 &sampler_enabled, true,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sampler_period",
							"Time between two samples.",
							"A shorter period takes more CPU time.",
							&sampler_period, 10, 1, 1000,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sampler_profile_size",
							"Number of entries of the wait profile, of 56 bytes each.",
							"Beyond it, the smallest ones are evicted to one row for each wait event.",
							&pgscale_sampler_settings.profile_size, 5000, 100, PGSCALE_PROFILE_MAX,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sampler_history_size",
							"Number of single samples that the history keeps, of 56 bytes each.",
							"With one sample per second, 40,000 last for an hour of 11 active sessions.",
							&pgscale_sampler_settings.history_size, 40000, 0, 10000000,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sampler_history_period",
							"Time between two samples of a process that the history keeps.",
							"Below pgscale.sampler_period every sample is kept.",
							&pgscale_sampler_settings.history_period_ms, 1000, 1, PGSCALE_SAMPLER_HISTORY_PERIOD_MAX,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomBoolVariable("pgscale.sampler_nested",
							 "Counts waits for the nested statement instead of the top-level one.",
							 "It installs hooks of the executor, and takes 128 bytes for each process.",
							 &pgscale_sampler_settings.nested, false,
							 PGC_POSTMASTER, 0, NULL, NULL, NULL);
	pgscale_sampler_labels_define_guc();
}

/* In the postmaster, when all other processes are gone. */
static void
save_at_shutdown(int code, Datum arg)
{
	/* Not if anything, or just the sampler, was stopped in mid-air. */
	if (code == 0 && stats->pid == 0)
		pgscale_sampler_files_save();
}

static void
control_init(void)
{
	pg_atomic_init_u64(&control->resets_requested, 0);
	pg_atomic_init_u64(&control->resets_done, 0);
	ConditionVariableInit(&control->reset_done);
}

static void
stats_init(void)
{
	pgscale_change_init(&stats->changes);
}

static const PgscaleArea control_area = {
	.name = "pgscale sampler",
	.at = (void **) &control,
	.size = sizeof(SamplerControl),
	.init = control_init,
};

static const PgscaleArea stats_area = {
	.name = "pgscale sampler stats",
	.at = (void **) &stats,
	.size = sizeof(PgscaleSamplerStats),
	.init = stats_init,
};

static const PgscaleArea *const sampler_areas[] = {
	&control_area,
	&stats_area,
	&pgscale_sampler_types_area,
	&pgscale_sampler_nested_area,
	&pgscale_sampler_profile_area,
	&pgscale_sampler_blockers_area,
	&pgscale_sampler_history_area,
	&pgscale_sampler_timeline_area,
	&pgscale_sampler_texts_area,
	&pgscale_sampler_totals_area,
	&pgscale_sampler_labels_area,
	NULL
};

static void
sampler_shmem_startup(void)
{
	if (IsUnderPostmaster)
		return;
	pgscale_sampler_files_load();
	on_shmem_exit(save_at_shutdown, (Datum) 0);
}

static void
sampler_register_workers(void)
{
	/* Else compute_query_id = auto would leave all waits without a query. */
	EnableQueryId();

	if (pgscale_sampler_settings.nested)
		pgscale_sampler_nested_install();
	pgscale_worker_register("pgscale sampler", "pgscale_sampler_main", 0);
}

/* Counts a tick, and the CPU time of the process, for which once a second is enough: it needs a system call. */
static void
count_tick(const PgscaleSamplerTick *tick, uint64 missed)
{
	static int64 cpu_counted = 0;
	const int64 late_ns = Max(tick->now - tick->due, 0);
	const int64 late_us = late_ns / NS_PER_US;
	const int	class = late_us == 0 ? 0 : pg_leftmost_one_pos64(late_us) + 1;
	const int64 spent_ns = pgscale_timer_clock() - tick->now;

	pgscale_change_begin_write(&stats->changes);
	stats->ticks++;
	stats->missed += missed;
	stats->lateness[Min(class, PGSCALE_LATENESS_CLASSES - 1)]++;
	stats->lateness_ns += late_ns;
	stats->lateness_max_ns = Max(stats->lateness_max_ns, late_ns);
	stats->observed_ns += tick->ns;
	stats->active_ns += tick->nactive * tick->ns + tick->found_idle_ns + tick->found_in_transaction_ns;
	stats->in_transaction_ns += tick->nin_transaction * tick->ns - tick->found_in_transaction_ns;
	stats->tick_ns += spent_ns;
	stats->tick_max_ns = Max(stats->tick_max_ns, spent_ns);
	if (stats->connections_since == 0)
		stats->connections_since = tick->wall;
	stats->connections_peak = Max(stats->connections_peak, tick->nconnections);
	pgscale_change_end_write(&stats->changes);

	if (tick->now - cpu_counted >= NS_PER_S)
	{
		cpu_counted = tick->now;
		stats->cpu_ns = cpu_base + pgscale_timer_cpu_time();
	}
}

static void
sampler_tick(int64 due, int64 missed)
{
	PgscaleSamplerTick tick = {.due = due,.now = pgscale_timer_clock(),.stats = stats};

	tick.wall = GetCurrentTimestamp();
	tick.ns = tick.now - last_tick;
	last_tick = tick.now;
	pgscale_sampler_samples_take(&tick);
	stats->last_tick_ns = tick.now;
	count_tick(&tick, missed);
	for (int i = 0; pgscale_sampler_consumers[i]; i++)
		if (pgscale_sampler_consumers[i]->after)
			pgscale_sampler_consumers[i]->after(&tick);
}

/* The time before now was not observed, and is not to be counted. */
static void
sampler_start(int64 now)
{
	last_tick = now;
	for (int i = 0; pgscale_sampler_consumers[i]; i++)
		if (pgscale_sampler_consumers[i]->start)
			pgscale_sampler_consumers[i]->start(now);
}

static void
sampler_stop(void)
{
	for (int i = 0; pgscale_sampler_consumers[i]; i++)
		if (pgscale_sampler_consumers[i]->stop)
			pgscale_sampler_consumers[i]->stop();
}

static void
sampler_apply_settings(void)
{
	int64		period = sampler_enabled ? sampler_period * NS_PER_MS : 0;

	/* What is known of their time on CPU may be forgotten below. */
	pgscale_sampler_samples_forget(pgscale_sampler_labels_apply());

	if (period == stats->period_ns)
		return;

	if (stats->period_ns == 0)
	{
		sampler_start(pgscale_timer_clock());
		stats->on_since_ns = stats->last_tick_ns = last_tick;
	}
	else if (period == 0)
		sampler_stop();
	pgscale_timer_set(&timer, period);
	stats->period_ns = period;
}

static void
serve_resets(void)
{
	uint64		requested = pg_atomic_read_u64(&control->resets_requested);

	if (requested == pg_atomic_read_u64(&control->resets_done))
		return;

	last_tick = pgscale_timer_clock();
	for (int i = 0; pgscale_sampler_consumers[i]; i++)
		if (pgscale_sampler_consumers[i]->reset)
			pgscale_sampler_consumers[i]->reset(last_tick);
	pgscale_change_begin_write(&stats->changes);
	memset((char *) stats + offsetof(PgscaleSamplerStats, ticks), 0,
		   sizeof(*stats) - offsetof(PgscaleSamplerStats, ticks));
	pgscale_change_end_write(&stats->changes);
	cpu_base = -pgscale_timer_cpu_time();

	pg_atomic_write_u64(&control->resets_done, requested);
	ConditionVariableBroadcast(&control->reset_done);
}

static void
sampler_detach(int code, Datum arg)
{
	sampler_stop();
	control->latch = NULL;
	stats->pid = 0;
	stats->period_ns = 0;
}

/* The worker. */
void
pgscale_sampler_main(Datum arg)
{
	pgscale_worker_start("PgscaleSamplerMain");

	cpu_base = stats->cpu_ns - pgscale_timer_cpu_time();
	for (int i = 0; pgscale_sampler_consumers[i]; i++)
		if (pgscale_sampler_consumers[i]->attach)
			pgscale_sampler_consumers[i]->attach();
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
			sampler_tick(due, expired - 1);
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

void
pgscale_sampler_stats_copy(PgscaleSamplerStats *copy)
{
	pgscale_change_copy(&stats->changes, copy, stats, sizeof(*copy));
}

/*
 * The lateness in microseconds below which a fraction of all ticks was, taken as
 * evenly spread within its class.
 */
static double
lateness_quantile(const PgscaleSamplerStats *s, double fraction)
{
	double		wanted = s->ticks * fraction;
	double		seen = 0;

	for (int i = 0; i < PGSCALE_LATENESS_CLASSES; i++)
	{
		double		low = i == 0 ? 0 : (double) (INT64CONST(1) << (i - 1));
		double		high = (double) (INT64CONST(1) << i);

		if (s->lateness[i] > 0 && seen + s->lateness[i] >= wanted)
			return Min(low + (high - low) * (wanted - seen) / s->lateness[i],
					   s->lateness_max_ns / 1e3);
		seen += s->lateness[i];
	}
	return s->lateness_max_ns / 1e3;
}

/* pgscale_internal.sampler_stats(): one row. */
Datum
pgscale_sampler_stats(PG_FUNCTION_ARGS)
{
	PgscaleSamplerStats s;
	PgscaleSamplerProfileTotals totals;
	PgscaleRow	row = {0};

	pgscale_preload_require();
	pgscale_sampler_stats_copy(&s);
	pgscale_sampler_profile_totals(&totals);

	pgscale_row_pid(&row, s.pid);
	pgscale_row_int8(&row, s.starts);
	pgscale_row_float8(&row, s.period_ns ? s.period_ns / 1e6 : NAN);
	pgscale_row_int8(&row, s.ticks);
	pgscale_row_int8(&row, s.missed);
	pgscale_row_float8(&row, s.ticks ? s.lateness_ns / 1e3 / s.ticks : NAN);
	pgscale_row_float8(&row, s.ticks ? lateness_quantile(&s, 0.5) : NAN);
	pgscale_row_float8(&row, s.ticks ? lateness_quantile(&s, 0.99) : NAN);
	pgscale_row_float8(&row, s.ticks ? s.lateness_max_ns / 1e3 : NAN);
	pgscale_row_int8s(&row, s.lateness, PGSCALE_LATENESS_CLASSES);
	pgscale_row_float8(&row, s.observed_ns / 1e6);
	pgscale_row_float8(&row, s.active_ns / 1e6);
	pgscale_row_float8(&row, s.in_transaction_ns / 1e6);
	pgscale_row_float8(&row, s.ticks ? s.tick_ns / 1e3 / s.ticks : NAN);
	pgscale_row_float8(&row, s.ticks ? s.tick_max_ns / 1e3 : NAN);
	pgscale_row_float8(&row, s.cpu_ns / 1e6);
	pgscale_row_float8(&row, s.observed_ns ? (double) s.cpu_ns / s.observed_ns : NAN);
	pgscale_row_int8(&row, totals.samples);
	pgscale_row_float8(&row, totals.ns / 1e6);
	pgscale_row_int4(&row, totals.used);
	pgscale_row_int8(&row, totals.evictions);
	pgscale_row_int8(&row, s.retries);
	pgscale_row_int8(&row, s.readings);
	pgscale_row_int8(&row, s.blocker_looks);
	pgscale_row_timestamp(&row, totals.reset_at);
	return pgscale_row_result(&row, fcinfo);
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

static const char *const asks[] = {"pgscale_internal.archive_node_ids", NULL};

const PgscaleModule pgscale_sampler_module = {
	.name = "sampler",
	.asks = asks,
	.define_gucs = sampler_define_gucs,
	.areas = sampler_areas,
	.shmem_startup = sampler_shmem_startup,
	.register_workers = sampler_register_workers,
	.reset = sampler_reset,
	.health = sampler_health,
};
