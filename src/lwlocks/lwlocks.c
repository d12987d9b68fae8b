/*-------------------------------------------------------------------------
 *
 * lwlocks.c
 *	  The feature and its health.
 *
 * A wait event names a tranche, not a lock: 128 locks, or one for each buffer.  The
 * profile shows which lock it was (lwlock_profile.c), hot_buffers shows which page
 * (hot_buffers.c).
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/lwlock_state.h"
#include "lwlocks/lwlocks.h"

/* If there was no tick for that long, something is wrong. */
#define STALLED_MS		5000

static void
lwlocks_health(PgscaleHealth *health)
{
	if (!pgscale_health_preloaded(health, "pgscale.sampler", true))
		return;
	if (!pgscale_lwlocks_profile_possible())
	{
		health->state = PGSCALE_HEALTH_BROKEN;
		health->reason = pgscale_lwlock_layout_known() ?
			"pgscale does not know where this server has its LWLocks" :
			"pgscale does not know the layout of this server's LWLocks";
		health->action = "use a build of pgscale for this server";
	}
	else if (pgscale_health_observed(health, pgscale_lwlocks_profile_last(), STALLED_MS))
	{
		health->state = PGSCALE_HEALTH_WORKING;
		health->reason = "reads the locks of a tranche while processes wait for it";
	}
}

const PgscaleModule pgscale_lwlocks_module = {
	.name = "lwlocks",
	.shmem_request = pgscale_lwlocks_profile_request,
	.shmem_startup = pgscale_lwlocks_profile_startup,
	.lwlock_waits = pgscale_lwlocks_profile_tick,
	.reset = pgscale_lwlocks_profile_reset,
	.health = lwlocks_health
};
