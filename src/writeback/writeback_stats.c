/*-------------------------------------------------------------------------
 *
 * writeback_stats.c
 *	  Statistics of the writeback worker, and the view that shows them.
 *
 * Counts only grow.  A reset stores their values under a lock that the worker takes
 * when it starts, and never again.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "fmgr.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/kernel.h"
#include "base/pg_compat.h"
#include "base/preload.h"
#include "pgscale.h"
#include "writeback/writeback_stats.h"

#define LOCK_TRANCHE	"pgscale writeback"

#define COLUMNS			30

typedef struct WritebackShared
{
	PgscaleWritebackShare share;

	/* guarded by the lock */
	LWLock	   *lock;
	PgscaleWritebackCounts base;
	TimestampTz reset_at;
} WritebackShared;

static WritebackShared *shared = NULL;

static const char *const states[] = {
	[PGSCALE_WRITEBACK_OFF] = "off",
	[PGSCALE_WRITEBACK_WATCHING] = "watching",
	[PGSCALE_WRITEBACK_CAPPING] = "capping",
	[PGSCALE_WRITEBACK_STANDING_DOWN] = "standing down"
};

PG_FUNCTION_INFO_V1(pgscale_writeback_stats);

void
pgscale_writeback_share_request(void)
{
	RequestAddinShmemSpace(MAXALIGN(sizeof(WritebackShared)));
	RequestNamedLWLockTranche(LOCK_TRANCHE, 1);
}

void
pgscale_writeback_share_startup(void)
{
	bool		found;

	shared = ShmemInitStruct("pgscale writeback", sizeof(WritebackShared), &found);
	if (!found)
	{
		memset(shared, 0, sizeof(*shared));
		shared->share.cap = shared->share.window = -1;
		shared->share.server_rate = shared->share.disk_rate = shared->share.rewritten = -1;
		shared->lock = &GetNamedLWLockTranche(LOCK_TRANCHE)->lock;
		shared->reset_at = GetCurrentTimestamp();
	}
}

PgscaleWritebackShare *
pgscale_writeback_share(void)
{
	return &shared->share;
}

void
pgscale_writeback_rebase(void)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->base = shared->share.counts;
	shared->reset_at = GetCurrentTimestamp();
	shared->share.reset_peak = true;
	LWLockRelease(shared->lock);
}

/* A row that is filled from left to right. */
typedef struct Row
{
	Datum		values[COLUMNS];
	bool		nulls[COLUMNS];
	int			filled;
} Row;

static void
writeback_add(Row *row, bool known, Datum value)
{
	Assert(row->filled < COLUMNS);
	row->nulls[row->filled] = !known;
	row->values[row->filled++] = value;
}

static void
add_bytes(Row *row, int64 bytes)
{
	writeback_add(row, bytes >= 0, Int64GetDatum(bytes));
}

static void
add_float(Row *row, double number)
{
	writeback_add(row, number >= 0, Float8GetDatum(number));
}

/* The worker's figures, all NULL without a worker. */
static void
add_ours(Row *row, bool preloaded)
{
	PgscaleWritebackShare s = {0};
	PgscaleWritebackCounts base = {0};
	TimestampTz reset_at = 0;
	bool		on;

	if (preloaded)
	{
		LWLockAcquire(shared->lock, LW_SHARED);
		base = shared->base;
		reset_at = shared->reset_at;
		LWLockRelease(shared->lock);
		s = shared->share;		/* after it: counts only grow */

		/*
		 * One that was ended, and is not wanted any more, did not put that
		 * down.
		 */
		if (s.pid == 0 && pgscale_writeback_use == PGSCALE_USE_OFF)
		{
			s.state = PGSCALE_WRITEBACK_OFF;
			s.reason = PGSCALE_WRITEBACK_IS_OFF;
		}
	}
	on = preloaded && s.state != PGSCALE_WRITEBACK_OFF;

	writeback_add(row, preloaded, CStringGetTextDatum(states[s.state]));
	writeback_add(row, preloaded, CStringGetTextDatum(pgscale_writeback_reason(s.reason, s.reason_number)));
	writeback_add(row, s.state_change != 0, TimestampTzGetDatum(s.state_change));
	add_bytes(row, on ? s.dirty : -1);
	add_bytes(row, on ? s.cap : -1);
	add_bytes(row, !preloaded ? -1 : s.reset_peak ? s.dirty : s.peak);
	add_bytes(row, on ? s.skipped : -1);
	add_float(row, on ? s.rewritten : -1);
	add_bytes(row, on ? (int64) s.server_rate : -1);
	add_bytes(row, on ? (int64) s.disk_rate : -1);
	add_bytes(row, on ? s.window : -1);

#define COUNT(field) ((int64) (s.counts.field - base.field))
	writeback_add(row, preloaded, Int64GetDatum(COUNT(written) * BLCKSZ));
	writeback_add(row, preloaded, Int64GetDatum(COUNT(found) * BLCKSZ));
	writeback_add(row, preloaded, Int64GetDatum(COUNT(unseen) * BLCKSZ));
	writeback_add(row, preloaded, Int64GetDatum(COUNT(requests)));
	writeback_add(row, preloaded, Int64GetDatum(COUNT(asked) * BLCKSZ));
	writeback_add(row, preloaded, Int64GetDatum(COUNT(taken) * BLCKSZ));
	writeback_add(row, preloaded, Float8GetDatum(COUNT(ask_ns) / 1e6));
	writeback_add(row, preloaded, Int64GetDatum(COUNT(backed_off)));
	writeback_add(row, preloaded, Int64GetDatum(COUNT(rounds)));
	writeback_add(row, preloaded, Int64GetDatum(COUNT(errors)));
	writeback_add(row, preloaded, Float8GetDatum(COUNT(cpu_ns) / 1e6));
#undef COUNT
	writeback_add(row, reset_at != 0, TimestampTzGetDatum(reset_at));
}

/* pgscale_internal.writeback_stats(): without preload, only the kernel's figures. */
Datum
pgscale_writeback_stats(PG_FUNCTION_ARGS)
{
	PgscaleKernelMemory memory;
	TupleDesc	desc;
	Row			row = {0};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");

	add_ours(&row, pgscale_preload_done());
	pgscale_kernel_memory(&memory);
	add_bytes(&row, memory.dirty);
	add_bytes(&row, memory.writeback);
	add_bytes(&row, memory.background_threshold);
	add_bytes(&row, memory.threshold);
	add_float(&row, pgscale_kernel_io_pressure_fraction());

	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), row.values, row.nulls));
}
