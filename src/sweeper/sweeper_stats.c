/*-------------------------------------------------------------------------
 *
 * sweeper_stats.c
 *	  What the sweeper does, and why; and what its policy has seen and chosen.
 *
 * Reads saved and expected reads: see forecast.c.  Counts that the sweeper's supply has,
 * too, are not repeated for the policy: the view takes them from pgscale_internal.sweeper_stats().
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/row_builder.h"
#include "sweeper/controller.h"
#include "sweeper/segment.h"
#include "sweeper/shared.h"
#include "sweeper/sweeper.h"

PG_FUNCTION_INFO_V1(pgscale_sweeper_stats);
PG_FUNCTION_INFO_V1(pgscale_replacement_stats);

/* Of what the policy reports. */
#define REPORT_COLUMNS	11

static const char *const states[] = {
	[PGSCALE_SWEEPER_OFF] = "off",
	[PGSCALE_SWEEPER_WARMING_UP] = "warming up",
	[PGSCALE_SWEEPER_WATCHING] = "watching",
	[PGSCALE_SWEEPER_WORKING] = "working"
};

const char *
pgscale_sweeper_describe_choice(const PgscaleSweeperPolicyReport *report, int choice)
{
	const double half_life = report->half_lives[choice];

	return half_life == 0 ? "clock" : psprintf("half-life %g", half_life);
}

static Datum
float8_array(const double *values, int n)
{
	Datum		elements[PGSCALE_SWEEPER_CANDIDATES];

	for (int i = 0; i < n; i++)
		elements[i] = Float8GetDatum(values[i]);
	return PointerGetDatum(construct_array(elements, n, FLOAT8OID, sizeof(float8), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* Begins the result, of one row, and reads what counts at the last reset. */
static void
stats_begin(FunctionCallInfo fcinfo, PgscaleSweeperBase *base)
{
	pgscale_preload_require();
	InitMaterializedSRF(fcinfo, 0);

	/* Where the sweeper never was on, nothing has been counted yet. */
	pgscale_sweeper_base_init();
	pgscale_sweeper_base(base);
}

/* pgscale_internal.sweeper_stats() */
Datum
pgscale_sweeper_stats(PG_FUNCTION_ARGS)
{
	PgscaleRow	row = {0};
	PgscaleSweeper *s = pgscale_sweeper;
	PgscaleSweeperBase base;
	const PgscaleSweeperScanCounts *sweep_base = &base.sweep;
	const PgscaleSweeperWriteCounts *write_base = &base.write;
	const PgscaleSweeperScanCounts *sweep;
	PgscaleSweeperWriteCounts write;
	uint64		classes[PGSCALE_RUN_CLASSES];
	int64		backend_writes;
	bool		off;

	stats_begin(fcinfo, &base);
	backend_writes = pgscale_sweeper_backend_writes(false) - base.backend_writes;
	sweep = &s->counts;
	write = pgscale_sweeper_write_counts();

	/*
	 * A process that was ended, and is not wanted any more, did not put that
	 * down.
	 */
	off = s->state == PGSCALE_SWEEPER_OFF || (pg_atomic_read_u32(&s->pid) == 0 && !pgscale_sweeper_wanted());
	for (int c = 0; c < PGSCALE_RUN_CLASSES; c++)
		classes[c] = write.runs_by_pages[c] - write_base->runs_by_pages[c];

	pgscale_row_int4(&row, pgscale_sweeper_writers_running());
	pgscale_row_text(&row, states[off ? PGSCALE_SWEEPER_OFF : s->state]);
	if (off && s->no_memory && pgscale_sweeper_wanted())
		pgscale_row_text(&row, "the server could not give it its dynamic shared memory");
	else
		pgscale_row_text(&row, off ? pgscale_sweeper_reason(PGSCALE_SWEEPER_REASON_OFF, 0) :
						 pgscale_sweeper_reason(s->reason, s->reason_number));
	pgscale_row_timestamp(&row, s->state_change);
	pgscale_row_put(&row, Int32GetDatum(s->low), off);
	pgscale_row_put(&row, Int32GetDatum(s->high), off);
	pgscale_row_int4(&row, s->ready);

	pgscale_row_int8(&row, sweep->ticks - sweep_base->ticks);
	pgscale_row_int8(&row, sweep->scanned - sweep_base->scanned);
	pgscale_row_int8(&row, sweep->decremented - sweep_base->decremented);
	pgscale_row_int8(&row, sweep->supplied_clean - sweep_base->supplied_clean);
	pgscale_row_int8(&row, sweep->supplied_written - sweep_base->supplied_written);
	pgscale_row_int8(&row, sweep->consumed - sweep_base->consumed);
	pgscale_row_int8(&row, sweep->reused - sweep_base->reused);
	pgscale_row_int8(&row, sweep->queued - sweep_base->queued);
	pgscale_row_int8(&row, sweep->starved - sweep_base->starved);

	pgscale_row_int8(&row, write.runs - write_base->runs);
	pgscale_row_int8s(&row, classes, PGSCALE_RUN_CLASSES);
	pgscale_row_int8(&row, write.written - write_base->written);
	pgscale_row_int8(&row, write.neighbours - write_base->neighbours);
	pgscale_row_int8(&row, write.skipped_pinned - write_base->skipped_pinned);
	pgscale_row_int8(&row, write.skipped_locked - write_base->skipped_locked);
	pgscale_row_int8(&row, write.skipped_wal - write_base->skipped_wal);
	pgscale_row_int8(&row, write.skipped_changed - write_base->skipped_changed);
	pgscale_row_float8(&row, (write.write_ns - write_base->write_ns) / 1e6);
	pgscale_row_int8(&row, write.writeback_calls - write_base->writeback_calls);
	pgscale_row_float8(&row, (write.writeback_ns - write_base->writeback_ns) / 1e6);
	pgscale_row_int8(&row, write.wal_flushes - write_base->wal_flushes);
	pgscale_row_int8(&row, sweep->errors - sweep_base->errors + write.errors - write_base->errors);
	pgscale_row_int8(&row, backend_writes);
	pgscale_row_float8(&row, (sweep->cpu_ns - sweep_base->cpu_ns) / 1e6);
	pgscale_row_float8(&row, (write.cpu_ns - write_base->cpu_ns) / 1e6);
	pgscale_row_timestamp(&row, base.reset_at);
	pgscale_row_end(&row, (ReturnSetInfo *) fcinfo->resultinfo);
	return (Datum) 0;
}

/* Puts what is reported. */
static void
put_report(PgscaleRow *row, const PgscaleSweeperPolicyReport *report)
{
	PgscaleSweeperSaved saved = {0};
	const bool	estimated = pgscale_sweeper_reads_saved(report, &saved);

	pgscale_row_text(row, pgscale_sweeper_describe_choice(report, report->choice));
	pgscale_row_int8(row, report->evictions);
	pgscale_row_put(row, Int64GetDatum((int64) rint(saved.reads)), !estimated);
	pgscale_row_put(row, Int64GetDatum((int64) rint(saved.low)), !saved.sure);
	pgscale_row_put(row, Int64GetDatum((int64) rint(saved.high)), !saved.sure);
	pgscale_row_int8(row, report->switches);
	pgscale_row_int8(row, report->references);
	pgscale_row_int8s(row, report->misses, PGSCALE_SWEEPER_CANDIDATES);
	pgscale_row_int8(row, report->chosen_misses);
	pgscale_row_put(row, float8_array(report->half_lives, PGSCALE_SWEEPER_CANDIDATES), false);
	pgscale_row_int8(row, report->sample);
}

/* How many of the buffers that were taken on the whole server were not ready ones?  *served: what fraction was. */
static int64
count_fallbacks(const PgscaleSweeperBase *base, double *served)
{
	const uint64 allocated = pgscale_sweeper->counts.allocated - base->sweep.allocated;

	/* the server counts later than the sweeper does */
	const uint64 consumed = Min(pgscale_sweeper->counts.consumed - base->sweep.consumed, allocated);

	*served = allocated > 0 ? (double) consumed / allocated : -1;
	return (int64) (allocated - consumed);
}

/* pgscale_internal.replacement_stats() */
Datum
pgscale_replacement_stats(PG_FUNCTION_ARGS)
{
	const PgscaleSweeper *s = pgscale_sweeper;
	PgscaleRow	row = {0};
	PgscaleSweeperBase base;
	PgscaleSweeperPolicyReport report;
	double		served;
	double		saved = 0;
	int64		fallbacks;
	bool		known;

	stats_begin(fcinfo, &base);
	fallbacks = count_fallbacks(&base, &served);
	if (pgscale_sweeper_reported(&report))
	{
		pgscale_sweeper_report_add(&report, &base.policy, true);
		put_report(&row, &report);
	}
	else
		for (int i = 0; i < REPORT_COLUMNS; i++)
			pgscale_row_put(&row, (Datum) 0, true);
	known = pgscale_sweeper_forecast_saved(&s->forecast, &saved);
	pgscale_row_put(&row, Float8GetDatum(Min(-saved, 0)), !known);
	pgscale_row_put(&row, Float8GetDatum(served), served < 0);
	pgscale_row_int8(&row, fallbacks);
	pgscale_row_int8(&row, s->counts.observed - base.sweep.observed);
	pgscale_row_int8(&row, s->counts.unobserved - base.sweep.unobserved);
	pgscale_row_int8(&row, s->restored);
	pgscale_row_text(&row, s->restore_problem[0] == '\0' ? NULL : s->restore_problem);
	pgscale_row_int8(&row, pgscale_sweeper_memory_size());
	pgscale_row_timestamp(&row, base.reset_at);
	pgscale_row_end(&row, (ReturnSetInfo *) fcinfo->resultinfo);
	return (Datum) 0;
}
