/*-------------------------------------------------------------------------
 *
 * shared_area.c
 *	  Parts of shared memory: their space, their locks, and their first content.
 *
 * Each is a ShmemInitStruct() of its own, so that pg_shmem_allocations shows which feature
 * takes how much.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "base/shared_area.h"

static Size
area_size(const PgscaleArea *area)
{
	return area->computed ? area->computed() : area->size;
}

void
pgscale_area_request(const PgscaleArea *area)
{
	RequestAddinShmemSpace(area_size(area));
	if (area->nlocks > 0)
		RequestNamedLWLockTranche(area->name, area->nlocks);
}

void
pgscale_area_startup(const PgscaleArea *area)
{
	const Size	size = area_size(area);
	bool		found;

	if (size == 0)
		return;
	*area->at = ShmemInitStruct(area->name, size, &found);
	if (found)
		return;
	memset(*area->at, 0, area->size);
	for (int i = 0; i < area->nlocks; i++)
		((LWLock **) ((char *) *area->at + area->locks))[i] = &GetNamedLWLockTranche(area->name)[i].lock;
	if (area->init)
		area->init();
}
