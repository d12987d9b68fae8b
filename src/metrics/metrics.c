/*-------------------------------------------------------------------------
 *
 * metrics.c
 *	  What monitoring systems scrape: what it asks of other features.
 *
 * pgscale.metrics() is SQL, in metrics.sql, because it does nothing but name what
 * other features show, in the units that monitoring systems want.  What they show
 * must be cheap, bounded in number and, where it is a counter, never fall: so it
 * takes time in wait events from pgscale_internal.wait_totals() and not from the profile.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "metrics/metrics.h"

static const char *const asks[] = {
	"pgscale.archive_minutes", "pgscale.buffer_usage_sample", "pgscale_internal.connections",
	"pgscale_internal.connections_by_application", "pgscale.health", "pgscale_internal.lock_waits", "pgscale.node_identity", "pgscale.numa_nodes", "pgscale.relocation_jobs", "pgscale.sampler_stats",
	"pgscale.scalability", "pgscale.sweeper_stats", "pgscale.tuning_findings", "pgscale_internal.wait_totals",
	"pgscale.writeback_stats", NULL
};

const PgscaleModule pgscale_metrics_module = {
	.name = "metrics",
	.asks = asks,
};
