/*-------------------------------------------------------------------------
 *
 * report.c
 *	  What a report asks of other features.
 *
 * What a report says is SQL, in the .sql files of this folder: report_part() asks the other
 * features and the server.  How it looks is C, in the other .c files: text.c
 * measures and quotes text, table.c lays out tables and paragraphs, chart.c draws,
 * page.c is the frame of a page of HTML.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "report/report.h"

static const char *const asks[] = {
	"pgscale.activity", "pgscale.advice", "pgscale.apply", "pgscale.archive_changes", "pgscale.archive_minutes",
	"pgscale.blocker_profile", "pgscale.blockers", "pgscale.buffer_usage_sample", "pgscale.clock_sweep",
	"pgscale.compare_waits", "pgscale_internal.connections", "pgscale_internal.connections_by_application", "pgscale.health", "pgscale.node_identity", "pgscale.past_coverage",
	"pgscale_internal.past_items", "pgscale_internal.past_queries", "pgscale.relocation_jobs", "pgscale.scalability",
	"pgscale.sweeper_stats", "pgscale.top_waits", "pgscale.tuning_journal", "pgscale.wait_meanings",
	"pgscale.wal_efficiency", "pgscale.writeback_stats", NULL
};

const PgscaleModule pgscale_report_module = {
	.name = "report",
	.asks = asks,
};
