/*-------------------------------------------------------------------------
 *
 * metrics.c
 *	  Metrics for monitoring systems, and the features that they read.
 *
 * pgscale.metrics() is SQL, in metrics.sql, because it only renames figures of other
 * features and converts their units.  These figures must be cheap, bounded in number,
 * and, for a counter, must never fall.  So time in wait events comes from
 * pgscale_internal.wait_totals() and not from the profile.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "metrics/metrics.h"

static const char *const asks[] = {
	"pgscale.archive_minutes", "pgscale.archive_nodes", "pgscale_internal.buffer_usage_sample", "pgscale_internal.connections",
	"pgscale_internal.connections_ages", "pgscale_internal.connections_by_application", "pgscale.diagnosis",
	"pgscale_internal.health", "pgscale_internal.lock_waits", "pgscale.node_identity", "pgscale_internal.now_rules",
	"pgscale_internal.numa_nodes", "pgscale.relocation_jobs", "pgscale_internal.sampler_stats",
	"pgscale_internal.scalability", "pgscale_internal.sweeper_stats", "pgscale.advice_rules",
	"pgscale_internal.wait_totals", "pgscale_internal.writeback_stats", NULL
};

const PgscaleModule pgscale_metrics_module = {
	.name = "metrics",
	.asks = asks,
};
