/*-------------------------------------------------------------------------
 *
 * sweeper_health.c
 *	  What pgscale.health says of the sweeper.
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
#include "utils/timestamp.h"

#include "base/timer.h"
#include "base/units.h"
#include "base/worker.h"
#include "sweeper/controller.h"
#include "sweeper/keep.h"
#include "sweeper/partitions.h"
#include "sweeper/segment.h"
#include "sweeper/sweeper.h"

/* If there was no tick for that long, something is wrong. */
#define STALLED_MS		5000

/* How long to remember, while it is off, that it was of no use. */
#define REMEMBERED_NS	(SECS_PER_DAY * NS_PER_S)

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

void
pgscale_sweeper_health(PgscaleHealth *health)
{
	if (!pgscale_health_preloaded(health, "pgscale.sweeper", false))
		return;
	health_of_sweepers(health);
	add_fewer_sweepers(health);
	add_kept_problem(health);
}
