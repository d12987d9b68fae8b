/*-------------------------------------------------------------------------
 *
 * modules.c
 *	  The list of features.
 *
 * A feature is one PgscaleModule, and its line below is all it takes to be
 * registered.  The order of the list is the order of their shared memory, of
 * their workers and of pgscale.health; there no feature depends on another
 * one's place.  It is also the order of their parts of the install script: the
 * Makefile reads the list, one module a line.  There a view needs the functions
 * and views that it uses to stand before it.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "archive/archive.h"
#include "blockers/blockers.h"
#include "buffer_usage/buffer_usage.h"
#include "fleet/fleet.h"
#include "lwlocks/lwlocks.h"
#include "metrics/metrics.h"
#include "now/now.h"
#include "numa/numa.h"
#include "os_cache/os_cache.h"
#include "pgscale.h"
#include "relocation/relocation.h"
#include "report/report.h"
#include "sampler/profile/query_waits.h"
#include "sampler/sampler.h"
#include "scalability/scalability.h"
#include "sweeper/sweeper.h"
#include "trace/trace.h"
#include "tuning/tuning.h"
#include "writeback/writeback.h"

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
	&pgscale_now_module,
	&pgscale_fleet_module,
	&pgscale_scalability_module,
	&pgscale_report_module,
	&pgscale_numa_module,
	&pgscale_metrics_module,
	NULL
};
