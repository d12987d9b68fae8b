/*-------------------------------------------------------------------------
 *
 * sweeper_stats.c
 *	  What the sweeper does, and why.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/pg_compat.h"
#include "base/preload.h"
#include "sweeper/controller.h"
#include "sweeper/partitions.h"
#include "sweeper/sweeper.h"

PG_FUNCTION_INFO_V1(pgscale_sweeper_stats);

static const char *const modes[] = {
	[PGSCALE_SWEEPER_FREELIST] = "freelist",
	[PGSCALE_SWEEPER_WINDOW] = "window"
};

static const char *const states[] = {
	[PGSCALE_SWEEPER_OFF] = "off",
	[PGSCALE_SWEEPER_WARMING_UP] = "warming up",
	[PGSCALE_SWEEPER_WATCHING] = "watching",
	[PGSCALE_SWEEPER_WORKING] = "working"
};

/* pgscale_internal.sweeper_stats(): one row a worker. */
Datum
pgscale_sweeper_stats(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	PgscaleSweeperBase base;
	int64		backend_writes;

	pgscale_preload_require();
	InitMaterializedSRF(fcinfo, 0);

	/* Where the sweeper never was on, nothing has been counted yet. */
	pgscale_sweeper_base_init();
	pgscale_sweeper_base(&base);
	backend_writes = pgscale_sweeper_backend_writes(false) - base.backend_writes;

	for (int n = 0; n < pgscale_sweeper_count(); n++)
	{
		PgscaleSweeperPartition *s = pgscale_sweeper_partition(n);
		const PgscaleSweeperScanCounts *sweep = &s->counts;
		const PgscaleSweeperScanCounts *sweep_base = &base.sweep[n];
		const PgscaleSweeperWriteCounts write_counts = pgscale_sweeper_write_counts(s);
		const PgscaleSweeperWriteCounts *write = &write_counts;
		const PgscaleSweeperWriteCounts *write_base = &base.write[n];

		/*
		 * A process that was ended, and is not wanted any more, did not put
		 * that down.
		 */
		const bool	off = s->state == PGSCALE_SWEEPER_OFF ||
			(pg_atomic_read_u32(&s->pid) == 0 && !pgscale_sweeper_wanted());
		Datum		classes[PGSCALE_RUN_CLASSES];
		Datum		values[36] = {0};
		bool		nulls[36] = {0};
		int			i = 0;

		for (int c = 0; c < PGSCALE_RUN_CLASSES; c++)
			classes[c] = Int64GetDatum((int64) (write->runs_by_pages[c] - write_base->runs_by_pages[c]));

		values[i++] = Int32GetDatum(n + 1);
		values[i++] = Int32GetDatum(pgscale_sweeper_writers_running(s));
		values[i++] = CStringGetTextDatum(modes[off ? pgscale_sweeper_settings.mode : s->mode]);
		values[i++] = CStringGetTextDatum(states[off ? PGSCALE_SWEEPER_OFF : s->state]);
		if (off && s->no_memory && pgscale_sweeper_wanted())
			values[i++] = CStringGetTextDatum("the server could not give it its dynamic shared memory");
		else
			values[i++] = CStringGetTextDatum(off ? pgscale_sweeper_reason(PGSCALE_SWEEPER_REASON_OFF, 0) :
											  pgscale_sweeper_reason(s->reason, s->reason_number));
		nulls[i] = s->state_change == 0;
		values[i++] = TimestampTzGetDatum(s->state_change);
		values[i++] = Int32GetDatum(s->buffers);
		nulls[i] = off;
		values[i++] = Int32GetDatum(s->low);
		nulls[i] = off;
		values[i++] = Int32GetDatum(s->high);
		values[i++] = Int32GetDatum(s->ready);

		values[i++] = Int64GetDatum((int64) (sweep->ticks - sweep_base->ticks));
		values[i++] = Int64GetDatum((int64) (sweep->scanned - sweep_base->scanned));
		values[i++] = Int64GetDatum((int64) (sweep->decremented - sweep_base->decremented));
		values[i++] = Int64GetDatum((int64) (sweep->supplied_clean - sweep_base->supplied_clean));
		values[i++] = Int64GetDatum((int64) (sweep->supplied_written - sweep_base->supplied_written));
		values[i++] = Int64GetDatum((int64) (sweep->consumed - sweep_base->consumed));
		values[i++] = Int64GetDatum((int64) (sweep->reused - sweep_base->reused));
		values[i++] = Int64GetDatum((int64) (sweep->queued - sweep_base->queued));
		values[i++] = Int64GetDatum((int64) (sweep->starved - sweep_base->starved));

		values[i++] = Int64GetDatum((int64) (write->runs - write_base->runs));
		values[i++] = PointerGetDatum(construct_array(classes, PGSCALE_RUN_CLASSES,
													  INT8OID, sizeof(int64),
													  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
		values[i++] = Int64GetDatum((int64) (write->written - write_base->written));
		values[i++] = Int64GetDatum((int64) (write->neighbours - write_base->neighbours));
		values[i++] = Int64GetDatum((int64) (write->skipped_pinned - write_base->skipped_pinned));
		values[i++] = Int64GetDatum((int64) (write->skipped_locked - write_base->skipped_locked));
		values[i++] = Int64GetDatum((int64) (write->skipped_wal - write_base->skipped_wal));
		values[i++] = Int64GetDatum((int64) (write->skipped_changed - write_base->skipped_changed));
		values[i++] = Float8GetDatum((write->write_ns - write_base->write_ns) / 1e6);
		values[i++] = Int64GetDatum((int64) (write->writeback_calls - write_base->writeback_calls));
		values[i++] = Float8GetDatum((write->writeback_ns - write_base->writeback_ns) / 1e6);
		values[i++] = Int64GetDatum((int64) (write->wal_flushes - write_base->wal_flushes));
		values[i++] = Int64GetDatum((int64) (sweep->errors - sweep_base->errors +
											 write->errors - write_base->errors));
		values[i++] = Int64GetDatum(backend_writes);
		values[i++] = Float8GetDatum((sweep->cpu_ns - sweep_base->cpu_ns) / 1e6);
		values[i++] = Float8GetDatum((write->cpu_ns - write_base->cpu_ns) / 1e6);
		nulls[i] = base.reset_at == 0;
		values[i++] = TimestampTzGetDatum(base.reset_at);
		Assert(i <= lengthof(values));

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
