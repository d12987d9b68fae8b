/*-------------------------------------------------------------------------
 *
 * lwlocks.c
 *	  The feature: its setting and how it is.
 *
 * A wait event names no lock but a tranche: of 128 locks, or of one for each buffer.
 * The profile says which of them it was (lwlock_profile.c), hot_buffers which pages
 * (hot_buffers.c).
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/guc.h"

#include "base/lwlock_state.h"
#include "lwlocks/lwlocks.h"

/* Without a tick for so long something is wrong. */
#define STALLED_MS		5000

static bool lwlocks_enabled = true;

static void
lwlocks_define_gucs(void)
{
	DefineCustomBoolVariable("pgscale.lwlocks",
							 "Has the sampler read which locks of a tranche processes wait for.",
							 NULL,
							 &lwlocks_enabled, true,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
}

static void
lwlocks_tick(const PgscaleLwlockWaits *waits)
{
	pgscale_lwlocks_profile_tick(waits, lwlocks_enabled);
}

static void
lwlocks_health(PgscaleHealth *health)
{
	if (!pgscale_health_preloaded(health, "pgscale.lwlocks", true))
		return;
	if (!lwlocks_enabled)
	{
		health->state = PGSCALE_HEALTH_OFF;
		health->reason = "it is switched off";
		health->action = "set pgscale.lwlocks to on and reload";
	}
	else if (!pgscale_lwlocks_profile_possible())
	{
		health->state = PGSCALE_HEALTH_BROKEN;
		health->reason = pgscale_lwlock_layout_known() ?
			"pgscale does not know where this server has its LWLocks" :
			"pgscale does not know the layout of this server's LWLocks";
		health->action = "use a build of pgscale for this server, or set pgscale.lwlocks to off and reload";
	}
	else if (pgscale_health_observed(health, pgscale_lwlocks_profile_last(), STALLED_MS))
	{
		health->state = PGSCALE_HEALTH_WORKING;
		health->reason = "reads the locks of a tranche while processes wait for it";
	}
}

const PgscaleModule pgscale_lwlocks_module = {
	.name = "lwlocks",
	.define_gucs = lwlocks_define_gucs,
	.shmem_request = pgscale_lwlocks_profile_request,
	.shmem_startup = pgscale_lwlocks_profile_startup,
	.lwlock_waits = lwlocks_tick,
	.reset = pgscale_lwlocks_profile_reset,
	.health = lwlocks_health
};
