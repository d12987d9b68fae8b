/*-------------------------------------------------------------------------
 *
 * report.c
 *	  The features that a report asks.
 *
 * The contents of a report are SQL, in the .sql files of this folder: report_part()
 * asks the other features and the server.  Its layout is C, in the other .c files:
 * text.c measures and quotes text, table.c lays out tables and paragraphs, chart.c
 * draws, and page.c is the frame of an HTML page.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "report/report.h"

static const char *const asks[] = {
	"pgscale.activity", "pgscale.advice", "pgscale.apply", "pgscale.archive_changes", "pgscale.archive_minutes", "pgscale.archive_nodes", "pgscale.archive_waits", "pgscale_internal.archive_node_ids",
	"pgscale_internal.blocker_profile", "pgscale_internal.blockers", "pgscale_internal.buffer_usage_sample",
	"pgscale_internal.clock_sweep", "pgscale_internal.connections",
	"pgscale_internal.connections_by_application", "pgscale.diagnosis", "pgscale_internal.health",
	"pgscale.node_identity", "pgscale_internal.past_coverage", "pgscale_internal.past_items",
	"pgscale_internal.past_differences", "pgscale_internal.past_queries", "pgscale.relocation_jobs", "pgscale_internal.scalability",
	"pgscale_internal.sweeper_stats", "pgscale_internal.tuning_journal",
	"pgscale_internal.unidentified_statement", "pgscale.wait_meanings", "pgscale.wal_efficiency",
	"pgscale_internal.writeback_stats", NULL
};

const PgscaleModule pgscale_report_module = {
	.name = "report",
	.asks = asks,
};
