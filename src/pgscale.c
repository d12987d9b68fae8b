/*-------------------------------------------------------------------------
 *
 * pgscale.c
 *	  Entry point, and the server's two shared memory hooks for all features.
 *
 * If the library is loaded through shared_preload_libraries, every module (modules.c)
 * defines its settings, requests its shared memory and registers its workers.  If a
 * session loads it later, by a call of one of its functions, nothing is set up: a
 * function that needs shared memory calls pgscale_preload_require() and raises an
 * error.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/server_settings.h"
#include "base/timer.h"
#include "pgscale.h"

PG_MODULE_MAGIC_EXT(.name = "pgscale",.version = PGSCALE_VERSION);

/* Where a bool was set, it still can be. */
const struct config_enum_entry pgscale_use_options[] = {
	{"off", PGSCALE_USE_OFF, false},
	{"auto", PGSCALE_USE_AUTO, false},
	{"on", PGSCALE_USE_ON, false},
	{"false", PGSCALE_USE_OFF, true},
	{"true", PGSCALE_USE_ON, true},
	{"no", PGSCALE_USE_OFF, true},
	{"yes", PGSCALE_USE_ON, true},
	{"0", PGSCALE_USE_OFF, true},
	{"1", PGSCALE_USE_ON, true},
	{NULL, 0, false}
};

/* Of no feature. */
static const PgscaleArea *const own_areas[] = {
	&pgscale_health_area, &pgscale_server_settings_area, &pgscale_workers_area, NULL
};

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

PGDLLEXPORT void _PG_init(void);

static void
each_area(const PgscaleArea *const *areas, void (*each) (const PgscaleArea *area))
{
	for (int i = 0; areas && areas[i]; i++)
		each(areas[i]);
}

static void
request_shmem(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();

	each_area(own_areas, pgscale_area_request);
	for (int i = 0; pgscale_modules[i]; i++)
		each_area(pgscale_modules[i]->areas, pgscale_area_request);
}

static void
startup_shmem(void)
{
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	each_area(own_areas, pgscale_area_startup);
	for (int i = 0; pgscale_modules[i]; i++)
	{
		each_area(pgscale_modules[i]->areas, pgscale_area_startup);
		if (pgscale_modules[i]->shmem_startup)
			pgscale_modules[i]->shmem_startup();
	}
	LWLockRelease(AddinShmemInitLock);
	pgscale_version_log();
}

void
_PG_init(void)
{
	if (!pgscale_preload_init())
		return;

	for (int i = 0; pgscale_modules[i]; i++)
		if (pgscale_modules[i]->define_gucs)
			pgscale_modules[i]->define_gucs();
	DefineCustomIntVariable("pgscale.debug_period",
							"Length of a record of evidence, of a measurement of scalability, and of a row of the archive. For tests.",
							"0 is the usual length.",
							&pgscale_timer_debug_ms, 0, 0, SECS_PER_HOUR * 1000,
							PGC_SIGHUP, GUC_UNIT_MS | GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
	MarkGUCPrefixReserved("pgscale");

	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = request_shmem;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup_shmem;

	for (int i = 0; pgscale_modules[i]; i++)
		if (pgscale_modules[i]->register_workers)
			pgscale_modules[i]->register_workers();
}
