/*-------------------------------------------------------------------------
 *
 * health.c
 *	  One row for each feature: its state, the reason, and what to do; and one for the
 *	  versions of library and extension (version.c).
 *
 * A feature claims settings of the server, and its health function is the one place
 * that lists them.  Both the advice of that row and the silence of the rules
 * (tuning/rules/rule_table.c) follow from that list, so the two never contradict each
 * other.
 *
 * Common findings of several features are here, too: the library is not loaded, a
 * worker is missing or not responding, the sampler delivers nothing.
 *
 * Starting.  A feature that is about to start is not broken.  The server's uptime is
 * not enough to decide that: after a crash, and on a standby, workers start when
 * recovery has come far enough, which may take hours.  So a worker that never started
 * also counts as starting for some seconds after the first look that missed it, unless
 * the server has no slot for it.  That moment is the only content of the shared memory.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "base/extension_function.h"
#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/row_builder.h"
#include "base/server_settings.h"
#include "base/shared_area.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/worker.h"
#include "pgscale.h"

/* How long a worker may take to start. */
#define STARTING_MS		5000


PG_FUNCTION_INFO_V1(pgscale_health);

static const char *const states[] = {
	[PGSCALE_HEALTH_OFF] = "off",
	[PGSCALE_HEALTH_STARTING] = "starting",
	[PGSCALE_HEALTH_IDLE] = "idle",
	[PGSCALE_HEALTH_WORKING] = "working",
	[PGSCALE_HEALTH_STANDING_DOWN] = "standing down",
	[PGSCALE_HEALTH_BROKEN] = "broken"
};

/* By CLOCK_MONOTONIC, when a worker was first found missing; 0: never. */
static pg_atomic_uint64 *missed_at = NULL;

/* And when the server was started; processes inherit it. */
static int64 started_ns = 0;

static void
health_init(void)
{
	if (started_ns == 0)
		started_ns = pgscale_timer_clock();
	pg_atomic_init_u64(missed_at, 0);
}

const PgscaleArea pgscale_health_area = {
	.name = "pgscale health",
	.at = (void **) &missed_at,
	.size = sizeof(pg_atomic_uint64),
	.init = health_init,
};

bool
pgscale_health_preloaded(PgscaleHealth *health, const char *setting, bool by_default)
{
	const char *value;
	bool		enabled = by_default;

	if (pgscale_preload_done())
		return true;

	/* An undefined setting is a text. */
	value = setting ? GetConfigOption(setting, true, false) : NULL;
	if (value && !parse_bool(value, &enabled))
		enabled = pg_strcasecmp(value, "auto") == 0 || atoi(value) > 0; /* a number of workers */
	health->state = enabled ? PGSCALE_HEALTH_BROKEN : PGSCALE_HEALTH_OFF;
	health->reason = "pgscale is not loaded into the server";
	health->action = "add pgscale to shared_preload_libraries and restart";
	return false;
}

static bool
is_recent(int64 at_ns, int64 ms)
{
	return pgscale_timer_clock() - at_ns < ms * NS_PER_MS;
}

/* Has the first look that missed a worker been a moment ago? */
static bool
missed_lately(void)
{
	const uint64 now = (uint64) pgscale_timer_clock();
	uint64		first = 0;

	if (pg_atomic_compare_exchange_u64(missed_at, &first, now))
		return true;
	return (int64) (now - first) < STARTING_MS * NS_PER_MS;
}

static void
say_no_slot(PgscaleHealth *health)
{
	health->reason = psprintf("the server has no slot for its background worker; max_worker_processes is %d",
							  max_worker_processes);
	health->action = "raise max_worker_processes and restart";
	health->no_slot = true;
}

static bool
has_no_slot(const PgscaleModule *module)
{
	if (module->worker)
		return pgscale_workers_start_of(module) == PGSCALE_WORKER_NO_SLOT;
	return !pgscale_worker_all_registered();
}

/* Of a worker that the sampler's process starts, and that is not there. */
static void
health_of_start(PgscaleHealth *health, const PgscaleModule *module, bool worked_lately)
{
	switch (pgscale_workers_start_of(module))
	{
		case PGSCALE_WORKER_NO_SLOT:
			say_no_slot(health);
			break;
		case PGSCALE_WORKER_STARTING:
			health->state = PGSCALE_HEALTH_STARTING;
			health->reason = "its background worker is being started";
			break;
		case PGSCALE_WORKER_ENDED:
			if (worked_lately)
				health->state = PGSCALE_HEALTH_STARTING;
			health->reason = "its background worker ended and is started again within a second";
			health->action = "if this lasts, see the server log";
			break;
		case PGSCALE_WORKER_FAILING:
			health->reason = "its background worker does not start";
			health->action = "see the server log";
			break;
		case PGSCALE_WORKER_UNASKED:
			health->reason = "the sampler's process, which starts its background worker, is missing or stopped";
			health->action = "see the row of the sampler";
			break;
	}
}

bool
pgscale_health_worker(PgscaleHealth *health, const PgscaleModule *module, int pid, uint64 starts, int64 last_ns,
					  int64 stalled_ms)
{
	if (pid != 0 && is_recent(last_ns, stalled_ms))
		return true;

	health->state = PGSCALE_HEALTH_BROKEN;
	if (!IsUnderPostmaster)
	{
		health->reason = "the server is in single-user mode, in which no background worker runs";
		health->action = "start the server as usual";
	}
	else if (pid != 0)
	{
		health->reason = psprintf("its background worker, process %d, is not responding", pid);
		health->action = "check whether that process is stopped or starved of CPU";
	}
	else if (has_no_slot(module))
		say_no_slot(health);
	else if (is_recent(started_ns, STARTING_MS))
	{
		health->state = PGSCALE_HEALTH_STARTING;
		health->reason = "the server has just started";
	}
	else if (module->worker)
		health_of_start(health, module, is_recent(last_ns, stalled_ms));
	else if (starts > 0)
	{
		if (is_recent(last_ns, stalled_ms))
			health->state = PGSCALE_HEALTH_STARTING;
		health->reason = "its background worker ended and is started again within a second";
		health->action = "if this lasts, see the server log";
	}
	else if (missed_lately())
	{
		health->state = PGSCALE_HEALTH_STARTING;
		health->reason = "its background worker has not started yet";
	}
	else
	{
		health->reason = "its background worker was never started";
		health->action = "see the server log";
	}
	return false;
}

const PgscaleModule *
pgscale_module(const char *name)
{
	for (int i = 0; pgscale_modules[i]; i++)
		if (strcmp(pgscale_modules[i]->name, name) == 0)
			return pgscale_modules[i];
	return NULL;
}

bool
pgscale_health_observed(PgscaleHealth *health, int64 last_ns, int64 stalled_ms)
{
	PgscaleHealth sampler;

	pgscale_health_of(pgscale_module("sampler"), &sampler);
	health->state = PGSCALE_HEALTH_BROKEN;
	if (sampler.state == PGSCALE_HEALTH_OFF)
	{
		health->state = PGSCALE_HEALTH_OFF;
		health->reason = "this feature needs the sampler, which is off";
		health->action = "set pgscale.sampler to on and reload";
	}
	else if (sampler.state == PGSCALE_HEALTH_STARTING)
	{
		health->state = PGSCALE_HEALTH_STARTING;
		health->reason = "this feature needs the sampler, which is starting";
	}
	else if (sampler.state == PGSCALE_HEALTH_BROKEN)
	{
		health->reason = "this feature needs the sampler, which does not work";
		health->action = "see the row of the sampler";
	}
	else if (stalled_ms == 0 || is_recent(last_ns, stalled_ms))
		return true;
	else if (is_recent(sampler.since_ns, stalled_ms))
	{
		health->state = PGSCALE_HEALTH_STARTING;
		health->reason = "this feature needs the sampler, which has just been switched on";
	}
	else
	{
		health->reason = "it has received nothing from the sampler lately";
		health->action = "see the server log";
	}
	return false;
}

static bool
is_so(const PgscaleClaim *claim)
{
	return !claim->wanted || strcmp(pgscale_server_setting(claim->setting), claim->wanted) == 0;
}

void
pgscale_health_of(const PgscaleModule *module, PgscaleHealth *health)
{
	memset(health, 0, sizeof(*health));
	module->health(health);
	for (const PgscaleClaim *claim = health->claims; claim && claim->setting; claim++)
	{
		if (!claim->asked || is_so(claim))
			continue;
		health->action = psprintf("%s%sset %s to %s and reload: %s", health->action ? health->action : "",
								  health->action ? "; " : "", claim->setting, claim->wanted, claim->why);
	}
}

const PgscaleModule *
pgscale_claimant(const char *setting, PgscaleHealth *health, PgscaleClaim *claim)
{
	for (int i = 0; pgscale_modules[i]; i++)
	{
		if (!pgscale_modules[i]->health)
			continue;
		pgscale_health_of(pgscale_modules[i], health);
		for (const PgscaleClaim *c = health->claims; c && c->setting; c++)
			if (pg_strcasecmp(c->setting, setting) == 0)
			{
				*claim = *c;
				return pgscale_modules[i];
			}
	}
	return NULL;
}

/* That the feature's tables may be on their way to other servers. */
static void
add_published(PgscaleHealth *health, const char *published)
{
	const char *action = "see \"Logical replication\" in doc/operations.md";

	health->reason = psprintf("%s; %s", health->reason, published);
	health->action = health->action ? psprintf("%s; %s", health->action, action) : action;
}

static void
health_put(ReturnSetInfo *rsinfo, const char *name, const PgscaleHealth *health)
{
	PgscaleRow	row = {0};

	pgscale_row_text(&row, name);
	pgscale_row_bool(&row, health->state != PGSCALE_HEALTH_OFF);
	pgscale_row_text(&row, states[health->state]);
	pgscale_row_text(&row, health->reason);
	pgscale_row_text(&row, health->action);
	pgscale_row_end(&row, rsinfo);
}

/* pgscale_internal.health(): works without preload, where that is the finding. */
Datum
pgscale_health(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	const char *published = pgscale_extension_own_text("published", 0, NULL, NULL);
	PgscaleHealth health;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; pgscale_modules[i]; i++)
	{
		if (!pgscale_modules[i]->health)
			continue;
		pgscale_health_of(pgscale_modules[i], &health);
		if (published && pgscale_modules[i]->has_tables)
			add_published(&health, published);
		health_put(rsinfo, pgscale_modules[i]->name, &health);
	}
	pgscale_version_health(&health);
	health_put(rsinfo, "version", &health);
	return (Datum) 0;
}
