/*-------------------------------------------------------------------------
 *
 * pgscale.c
 *	  Entry point: the list of features, and the server's two shared memory
 *	  hooks that serve them all.
 *
 * A feature is one PgscaleModule in modules[] below, and that line is all it
 * takes to be registered.  The order of the list is the order of their shared
 * memory, of their workers and of pgscale.health; there no feature depends on
 * another one's place.  It is also the order of their parts of the install
 * script: the Makefile reads the list, one module a line.  There a view needs
 * the functions and views that it uses to stand before it.
 *
 * Loaded through shared_preload_libraries, every module defines its settings,
 * asks for its shared memory and registers its workers.  Loaded later, by a
 * session that calls one of the functions, nothing is set up: a function that
 * needs shared memory calls pgscale_require_preload() and fails cleanly.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dlfcn.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "utils/guc.h"

#include "archive/archive.h"
#include "base/pg_compat.h"
#include "blockers/blockers.h"
#include "buffer_usage/buffer_usage.h"
#include "fleet/fleet.h"
#include "lwlocks/lwlocks.h"
#include "metrics/metrics.h"
#include "numa/numa.h"
#include "os_cache/os_cache.h"
#include "pgscale.h"
#include "relocation/relocation.h"
#include "report/report.h"
#include "sampler/sampler.h"
#include "scalability/scalability.h"
#include "sweeper/sweeper.h"
#include "trace/trace.h"
#include "tuning/tuning.h"
#include "writeback/writeback.h"

PG_MODULE_MAGIC_EXT(.name = "pgscale",.version = PGSCALE_VERSION);

const PgscaleModule *const pgscale_modules[] = {
	&pgscale_sampler_module,
	&pgscale_query_waits_module,
	&pgscale_lwlocks_module,
	&pgscale_blockers_module,
	&pgscale_trace_module,
	&pgscale_archive_module,
	&pgscale_sweeper_module,
	&pgscale_buffer_usage_module,
	&pgscale_os_cache_module,
	&pgscale_writeback_module,
	&pgscale_relocation_module,
	&pgscale_tuning_module,
	&pgscale_fleet_module,
	&pgscale_scalability_module,
	&pgscale_report_module,
	&pgscale_numa_module,
	&pgscale_metrics_module,
	NULL
};

static bool preloaded = false;

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

PGDLLEXPORT void _PG_init(void);

static void
request_shmem(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();

	pgscale_health_shmem_request();
	pgscale_workers_shmem_request();
	for (int i = 0; pgscale_modules[i]; i++)
		if (pgscale_modules[i]->shmem_request)
			pgscale_modules[i]->shmem_request();
}

static void
startup_shmem(void)
{
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	pgscale_health_shmem_startup();
	pgscale_workers_shmem_startup();
	for (int i = 0; pgscale_modules[i]; i++)
		if (pgscale_modules[i]->shmem_startup)
			pgscale_modules[i]->shmem_startup();
	LWLockRelease(AddinShmemInitLock);
}

/*
 * Before 16 a library shows all its functions, and the first one of a name is called by all
 * others.  So those of another file of pgscale would be called here, and rely on what is set up
 * only there.
 */
static void
refuse_second_file(void)
{
	bool		(*first_preloaded) (void) = (bool (*) (void)) dlsym(RTLD_DEFAULT, "pgscale_preloaded");

	if (!preloaded && first_preloaded && first_preloaded())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("another file of pgscale is loaded into the server"),
				 errhint("Write shared_preload_libraries = 'pgscale', without a folder, and restart the server.")));
}

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
	{
		refuse_second_file();
		return;
	}

	preloaded = true;

	for (int i = 0; pgscale_modules[i]; i++)
		if (pgscale_modules[i]->define_gucs)
			pgscale_modules[i]->define_gucs();
	MarkGUCPrefixReserved("pgscale");

	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = request_shmem;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup_shmem;

	for (int i = 0; pgscale_modules[i]; i++)
		if (pgscale_modules[i]->register_workers)
			pgscale_modules[i]->register_workers();
}

bool
pgscale_preloaded(void)
{
	return preloaded;
}

void
pgscale_require_preload(void)
{
	if (!preloaded)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pgscale is not loaded into the server"),
				 errhint("Add \"pgscale\" to shared_preload_libraries and restart the server.")));
}
