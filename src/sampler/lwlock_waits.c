/*-------------------------------------------------------------------------
 *
 * lwlock_waits.c
 *	  Notifies other features at each tick of the LWLocks that processes wait for.
 *
 * Once a second, as for observers, would be too late.  A queue at a lock lasts for
 * microseconds, and the lock of a tranche can be found only while its queue exists.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/wait_events.h"
#include "pgscale.h"
#include "sampler/lwlock_waits.h"

static PgscaleLwlockWaits waits;

void
pgscale_sampler_lwlock_add(uint32 wait_event)
{
	uint32		tranche;

	if ((wait_event & PGSCALE_WAIT_CLASS) != PG_WAIT_LWLOCK)
		return;
	tranche = Min(wait_event & ~PGSCALE_WAIT_CLASS, PGSCALE_LWLOCK_TRANCHES - 1);
	if (waits.waiters[tranche]++ == 0)
		waits.tranches[waits.ntranches++] = (uint8) tranche;
}

void
pgscale_sampler_lwlock_tell(int64 ns)
{
	waits.ns = ns;
	for (int i = 0; pgscale_modules[i]; i++)
		if (pgscale_modules[i]->lwlock_waits)
			pgscale_modules[i]->lwlock_waits(&waits);
	for (int i = 0; i < waits.ntranches; i++)
		waits.waiters[waits.tranches[i]] = 0;
	waits.ntranches = 0;
}
