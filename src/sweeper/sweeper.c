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
#include "postmaster/bgwriter.h"
#include "storage/bufmgr.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "base/evidence.h"
#include "base/pg_compat.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/worker.h"
#include "sweeper/controller.h"
#include "sweeper/keep.h"
#include "sweeper/partitions.h"
#include "sweeper/saved_history.h"
#include "sweeper/segment.h"
#include "sweeper/sweeper.h"

/* If there was no tick for that long, something is wrong. */
#define STALLED_MS		5000

/* How long to remember, while it is off, that it was of no use. */
#define REMEMBERED_NS	(SECS_PER_DAY * NS_PER_S)

PgscaleSweeperSettings pgscale_sweeper_settings = {0};

static const struct config_enum_entry modes[] = {
#if PGSCALE_FREELIST
	{"freelist", PGSCALE_SWEEPER_FREELIST, false},
#endif
	{"window", PGSCALE_SWEEPER_WINDOW, false},
	{NULL, 0, false}
};

static const struct config_enum_entry policies[] = {
	{"clock", PGSCALE_SWEEPER_CLOCK, false},
	{"history", PGSCALE_SWEEPER_HISTORY, false},
	{"adaptive", PGSCALE_SWEEPER_ADAPTIVE, false},
	{NULL, 0, false}
};

bool
pgscale_sweeper_wanted(void)
{
	return pgscale_sweeper_settings.use != PGSCALE_USE_OFF;
}

static void
sweeper_define_gucs(void)
{
	PgscaleSweeperSettings *s = &pgscale_sweeper_settings;

	DefineCustomEnumVariable("pgscale.sweeper_mode",
							 "How clean buffers reach the backends.",
							 "\"freelist\", up to PostgreSQL 18, hands them over; \"window\" lets the server's clock hand find them.",
							 &s->mode, PGSCALE_FREELIST ? PGSCALE_SWEEPER_FREELIST : PGSCALE_SWEEPER_WINDOW, modes,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("pgscale.sweeper_policy",
							 "How the sweeper chooses the pages that leave shared buffers.",
							 "\"clock\" as the server does, by usage counts; \"history\" by how often and how long ago a page was used, also before it left; "
							 "\"adaptive\" by the one of these that would have read less.",
							 &s->policy, PGSCALE_SWEEPER_CLOCK, policies,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("pgscale.sweeper",
							 "Keeps clean buffers ready for the backends, and writes neighbouring dirty pages together.",
							 "\"auto\": only while that is of use; \"on\": all the time.",
							 &s->use, PGSCALE_USE_OFF, pgscale_use_options,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sweeper_workers",
							"Number of sweepers; each has writers and a share of the buffers of its own.",
							"Each takes one of max_worker_processes; together they take no more than a third of these.",
							&s->workers, 1, 1, PGSCALE_SWEEPER_MAX_WORKERS,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sweeper_writers",
							"The most writers of each sweeper.",
							"It has 4 while it works, and more while they do not keep up. Each takes one of max_worker_processes meanwhile.",
							&s->writers, PGSCALE_SWEEPER_MAX_WRITERS, 1, PGSCALE_SWEEPER_MAX_WRITERS,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomRealVariable("pgscale.sweeper_high_watermark",
							 "Fraction of the buffers up to which clean ones are made ready.",
							 NULL,
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
say_few_slots(const PgscaleSweeperPartition *s, PgscaleHealth *health)
{
	health->state = PGSCALE_HEALTH_WORKING;
	health->reason = psprintf("its %d writers did not keep up in %.0f %% of the last second, and the server has no slot for more; "
							  "max_worker_processes is %d", s->writers_now, 100 * s->pressed, max_worker_processes);
	health->action = "raise max_worker_processes and restart";
	health->no_slot = true;
}

/*
 * If something keeps a sweeper from working, or some of its writers from being
 * there, says so and returns false.
 */
static bool
can_work(PgscaleSweeperPartition *s, PgscaleHealth *health)
{
	if (s->no_memory)
	{
		health->state = PGSCALE_HEALTH_BROKEN;
		health->reason = psprintf("the server could not give sweeper %d its %.0f MB of dynamic shared memory", s->number + 1,
								  ceil((double) pgscale_sweeper_memory_size(s->buffers) / PGSCALE_MB));
		health->action = "see the server log; in a container, make /dev/shm larger, or set min_dynamic_shared_memory and restart";
		return false;
	}
	/* Switched on, it ticks a moment later. */
	if (!pgscale_health_worker(health, &pgscale_sweeper_module, (int) pg_atomic_read_u32(&s->pid), s->starts, Max(s->last_tick_ns, s->decided_ns), STALLED_MS))
		return false;
	if (s->state != PGSCALE_SWEEPER_WORKING ||
		!(s->no_slots || s->few_slots || (s->stuck && pgscale_sweeper_writers_wanted(s) > 0)))
		return true;
	if (s->few_slots && !s->no_slots && !s->stuck)
	{
		say_few_slots(s, health);
		return false;
	}
	health->state = PGSCALE_HEALTH_BROKEN;
	if (!s->no_slots)
	{
		health->reason = "its writers have written none of the waiting pages for two seconds";
		health->action = "check whether the disk hangs, and see the server log";
		return false;
	}
	if (pgscale_sweeper_writers_running(s) > 0)
		health->state = PGSCALE_HEALTH_WORKING;
	health->reason = psprintf("the server has no slot for all its writers; max_worker_processes is %d",
							  max_worker_processes);
	health->action = "raise max_worker_processes and restart";
	health->no_slot = true;
	return false;
}

static PgscaleHealthState
sweeper_state_of(const PgscaleSweeperPartition *s)
{
	if (s->state == PGSCALE_SWEEPER_WORKING)
		return PGSCALE_HEALTH_WORKING;
	return pgscale_sweeper_is_no_use(s->reason) ? PGSCALE_HEALTH_STANDING_DOWN : PGSCALE_HEALTH_IDLE;
}

/*
 * bgwriter should be off while the sweeper works through the freelist.  That is
 * requested then, and stays so while the sweeper is on, because it may work again any
 * minute.  In mode window bgwriter finds nothing.
 */
#define SWEEPER_WHY	"bgwriter writes single pages that could be combined"

static const PgscaleClaim working_claims[] = {
	{"bgwriter_lru_maxpages", "0", true, SWEEPER_WHY},
	{"bgwriter_delay", NULL, false, SWEEPER_WHY},
	{"bgwriter_lru_multiplier", NULL, false, SWEEPER_WHY},
	{NULL}
};

static const PgscaleClaim other_claims[] = {
	{"bgwriter_lru_maxpages", "0", false, SWEEPER_WHY},
	{"bgwriter_delay", NULL, false, SWEEPER_WHY},
	{"bgwriter_lru_multiplier", NULL, false, SWEEPER_WHY},
	{NULL}
};

#define OFF_AND_BGWRITER \
	"set pgscale.sweeper to off, reset bgwriter_lru_maxpages and reload: otherwise no process writes ahead of the sessions"

static void
say_off(const PgscaleSweeperPartition *leader, PgscaleHealth *health)
{
	PgscaleSweeperKept list[PGSCALE_SWEEPER_KEPT_MOST];
	const int	kept = pgscale_sweeper_kept_copy(list);

	health->state = PGSCALE_HEALTH_OFF;
	health->reason = pgscale_sweeper_reason(PGSCALE_SWEEPER_REASON_OFF, 0);
	health->action = "set pgscale.sweeper to auto and reload";
	health->no_use = leader->stood_down_ns != 0 && pgscale_timer_clock() - leader->stood_down_ns < REMEMBERED_NS;
	if (health->no_use)
	{
		health->reason = psprintf("it is switched off; when it was on, it stood down: %s",
								  pgscale_sweeper_reason(leader->stood_down, leader->stood_down_number));
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

/* Adds that there are fewer sweepers than were asked for. */
static void
add_fewer_sweepers(PgscaleHealth *health)
{
	const int	asked = pgscale_sweeper_settings.workers;

	if (health->state == PGSCALE_HEALTH_OFF || pgscale_sweeper_count() >= asked)
		return;
	health->reason = psprintf("%s; %d of the %d sweepers of pgscale.sweeper_workers run, because they take no more than a third of "
							  "max_worker_processes, which is %d", health->reason, pgscale_sweeper_count(), asked, max_worker_processes);
	if (!health->action)
		health->action = psprintf("raise max_worker_processes to %d and restart", 3 * asked);
	health->no_slot = true;
}

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
health_of_sweepers(PgscaleHealth *health)
{
	PgscaleSweeperPartition *leader;

	/* The worker may know of a reload before this backend does. */
	leader = pgscale_sweeper_partition(0);
	if (pg_atomic_read_u32(&leader->pid) != 0 ? leader->state == PGSCALE_SWEEPER_OFF && !leader->no_memory : !pgscale_sweeper_wanted())
	{
		say_off(leader, health);
		return;
	}
	health->reads_forecast = pgscale_sweeper_forecast_all(&health->reads_saved);
	if (pgscale_sweeper_settings.mode == PGSCALE_SWEEPER_FREELIST)
		health->claims = leader->state == PGSCALE_SWEEPER_WORKING ? working_claims : other_claims;
	for (int i = 0; i < pgscale_sweeper_count(); i++)
		if (!can_work(pgscale_sweeper_partition(i), health))
			return;
	health->state = sweeper_state_of(leader);
	health->reason = pgscale_sweeper_reason(leader->reason, leader->reason_number);
	if (health->state == PGSCALE_HEALTH_STANDING_DOWN && bgwriter_lru_maxpages == 0)
		health->action = "if this lasts, " OFF_AND_BGWRITER;
}

static void
sweeper_health(PgscaleHealth *health)
{
	if (!pgscale_health_preloaded(health, "pgscale.sweeper", false))
		return;
	health_of_sweepers(health);
	add_fewer_sweepers(health);
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
