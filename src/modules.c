/*-------------------------------------------------------------------------
 *
 * modules.c
 *	  The list of features.
 *
 * A feature is one PgscaleModule; its line below is all that registers it.  The order
 * of the list is the order of shared memory, workers and rows of pgscale.health, where
 * no feature depends on the place of another one.  It is also the order of the parts of
 * the install script, because the Makefile reads this list, one module a line.  There a
 * view must come after the functions and views that it uses.
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
