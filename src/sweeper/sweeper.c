/*-------------------------------------------------------------------------
 *
 * sweeper.c
 *	  The feature: its settings, what pgscale.health says of it, and its module.  sweeper_worker.c is the
 *	  process.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "base/evidence.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/worker.h"
#include "sweeper/controller.h"
#include "sweeper/keep.h"
#include "sweeper/saved_history.h"
#include "sweeper/segment.h"
#include "sweeper/shared.h"
#include "sweeper/sweeper.h"

/* If there was no tick for that long, something is wrong. */
#define STALLED_MS		5000

/* How long to remember, while it is off, that it was of no use. */
#define REMEMBERED_NS	(SECS_PER_DAY * NS_PER_S)

PgscaleSweeperSettings pgscale_sweeper_settings = {0};

bool
pgscale_sweeper_wanted(void)
{
	return pgscale_sweeper_settings.use != PGSCALE_USE_OFF;
}

static void
sweeper_define_gucs(void)
{
	PgscaleSweeperSettings *s = &pgscale_sweeper_settings;

	DefineCustomEnumVariable("pgscale.sweeper",
							 "Keeps clean buffers ready for the backends, and writes neighbouring dirty pages together.",
							 "\"auto\": only while that is of use; \"on\": always, unless buffers are taken too fast. It takes 32 bytes per buffer.",
							 &s->use, PGSCALE_USE_OFF, pgscale_use_options,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sweeper_writers",
							"Maximum number of the sweeper's writers; at most one for 16 buffers.",
							"Four run at first, and more while they do not keep up.",
							&s->writers, PGSCALE_SWEEPER_MAX_WRITERS, 1, PGSCALE_SWEEPER_MAX_WRITERS,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomRealVariable("pgscale.sweeper_high_watermark",
							 "Number of clean buffers up to which the sweeper refills, as a fraction of shared buffers.",
							 "At most ten seconds of demand, or 16,384 buffers if that is more.",
							 &s->high_watermark, 0.05, 0.0001, PGSCALE_SWEEPER_MAX_WATERMARK,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
}

/*
 * Health
 */

/*
 * It works, but could do more.  What there is to gain is measured by bench/sweeper:
 * with four writers and with sixteen, see doc/sweeper.md.
 */
static void
say_few_slots(PgscaleHealth *health)
{
	health->state = PGSCALE_HEALTH_WORKING;
	health->reason = psprintf("its %d writers did not keep up in %.0f %% of the last second, and the server has no slot for more; "
							  "max_worker_processes is %d", pgscale_sweeper->writers_now, 100 * pgscale_sweeper->pressed, max_worker_processes);
	health->action = "raise max_worker_processes and restart";
	health->no_slot = true;
}

/*
 * If something keeps the sweeper from working, or some of its writers from being
 * there, says so and returns false.
 */
static bool
can_work(PgscaleHealth *health)
{
	PgscaleSweeper *s = pgscale_sweeper;

	if (s->no_memory)
	{
		health->state = PGSCALE_HEALTH_BROKEN;
		health->reason = psprintf("the server could not give it its %.0f MB of dynamic shared memory",
								  ceil((double) pgscale_sweeper_memory_size() / PGSCALE_MB));
		health->action = "see the server log; in a container, make /dev/shm larger, or set min_dynamic_shared_memory and restart";
		return false;
	}
	/* Switched on, it ticks a moment later. */
	if (!pgscale_health_worker(health, &pgscale_sweeper_module, (int) pg_atomic_read_u32(&s->pid), s->starts,
							   Max(s->last_tick_ns, s->decided_ns), STALLED_MS))
		return false;
	if (s->state != PGSCALE_SWEEPER_WORKING ||
		!(s->no_slots || s->few_slots || (s->stuck && pgscale_sweeper_writers_wanted() > 0)))
		return true;
	if (s->few_slots && !s->no_slots && !s->stuck)
	{
		say_few_slots(health);
		return false;
	}
	health->state = PGSCALE_HEALTH_BROKEN;
	if (!s->no_slots)
	{
		health->reason = "its writers have written none of the waiting pages for two seconds";
		health->action = "check whether the disk hangs, and see the server log";
		return false;
	}
	if (pgscale_sweeper_writers_running() > 0)
		health->state = PGSCALE_HEALTH_WORKING;
	health->reason = psprintf("the server has no slot for all its writers; max_worker_processes is %d",
							  max_worker_processes);
	health->action = "raise max_worker_processes and restart";
	health->no_slot = true;
	return false;
}

static PgscaleHealthState
sweeper_state(void)
{
	if (pgscale_sweeper->state == PGSCALE_SWEEPER_WORKING)
		return PGSCALE_HEALTH_WORKING;
	return pgscale_sweeper_is_no_use(pgscale_sweeper->reason) ? PGSCALE_HEALTH_STANDING_DOWN : PGSCALE_HEALTH_IDLE;
}

static void
say_off(PgscaleHealth *health)
{
	PgscaleSweeperKept list[PGSCALE_SWEEPER_KEPT_MOST];
	const int	kept = pgscale_sweeper_kept_copy(list);

	health->state = PGSCALE_HEALTH_OFF;
	health->reason = pgscale_sweeper_reason(PGSCALE_SWEEPER_REASON_OFF, 0);
	health->action = "set pgscale.sweeper to auto and reload";
	health->no_use = pgscale_sweeper->stood_down_ns != 0 &&
		pgscale_timer_clock() - pgscale_sweeper->stood_down_ns < REMEMBERED_NS;
	if (health->no_use)
	{
		health->reason = psprintf("it is switched off; when it was on, it stood down: %s",
								  pgscale_sweeper_reason(pgscale_sweeper->stood_down, pgscale_sweeper->stood_down_number));
		health->action = NULL;
	}
	if (kept > 0)
		health->reason = psprintf("%s; meanwhile it keeps none of the %d relations in pgscale.kept_relations", health->reason, kept);
}

static const struct
{
	const char *what;
	const char *action;
}			kept_problems[] =

{
	[PGSCALE_KEPT_NO_FILE] = {
		"no relation is kept, because pg_stat/pgscale_sweeper_keep.stat is not a file", "remove it, and call pgscale.keep() again"
	},
	[PGSCALE_KEPT_UNREAD] = {
		"no relation is kept, because pg_stat/pgscale_sweeper_keep.stat could not be read", "see the server log, and call pgscale.keep() again"
	},
	[PGSCALE_KEPT_IGNORED] = {
		"no relation is kept, because pg_stat/pgscale_sweeper_keep.stat was damaged or of another server", "call pgscale.keep() again"
	},
	[PGSCALE_KEPT_UNWRITTEN] = {
		"pg_stat/pgscale_sweeper_keep.stat could not be written and has an older list of kept relations",
		"see the server log, and call pgscale.keep() again before the next restart"
	}
};

/* Adds what is wrong with the list of kept relations, whatever the sweeper does. */
static void
add_kept_problem(PgscaleHealth *health)
{
	const PgscaleSweeperKeptProblem problem = pgscale_sweeper_kept_list->problem;

	if (problem == PGSCALE_KEPT_NO_PROBLEM)
		return;
	health->reason = psprintf("%s; %s", health->reason, kept_problems[problem].what);
	health->action = health->action ? psprintf("%s; %s", health->action, kept_problems[problem].action) : kept_problems[problem].action;
}

static void
health_of_sweeper(PgscaleHealth *health)
{
	PgscaleSweeper *s = pgscale_sweeper;

	/* The worker may know of a reload before this backend does. */
	if (pg_atomic_read_u32(&s->pid) != 0 ? s->state == PGSCALE_SWEEPER_OFF && !s->no_memory : !pgscale_sweeper_wanted())
	{
		say_off(health);
		return;
	}
	if (!can_work(health))
		return;
	health->state = sweeper_state();
	health->reason = pgscale_sweeper_reason(s->reason, s->reason_number);
}

static void
sweeper_health(PgscaleHealth *health)
{
	if (!pgscale_health_preloaded(health, "pgscale.sweeper", false))
		return;
	health_of_sweeper(health);
	add_kept_problem(health);
}

/*
 * The module
 */

static void
sweeper_shmem_startup(void)
{
	if (!IsUnderPostmaster)
		pgscale_sweeper_saved_startup();
}

/* A reset of the server's statistics then takes no more than a second of backends' writes from the count. */
static void
sweeper_observe(const PgscaleObservation *observation)
{
	(void) pgscale_sweeper_backend_writes(true);
}

static void
sweeper_reset(void)
{
	pgscale_sweeper_rebase();
	pgscale_sweeper_kept_reset();
}

const PgscaleModule pgscale_sweeper_module = {
	.name = "sweeper",
	.define_gucs = sweeper_define_gucs,
	.areas = (const PgscaleArea *const[]) {&pgscale_sweeper_area, &pgscale_sweeper_kept_area, NULL},
	.shmem_startup = sweeper_shmem_startup,
	.worker = &pgscale_sweeper_worker,
	.observe = sweeper_observe,
	.reset = sweeper_reset,
	.health = sweeper_health,
};
