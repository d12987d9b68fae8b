/*-------------------------------------------------------------------------
 *
 * wait_totals.c
 *	  Time in each wait event, by type of process: counters that never fall.
 *
 * Entries of the profile fall: evicted entries move to a row of their event, and time
 * that the kernel's counts prove to be time on CPU moves there from the sampled event.
 * A monitoring system takes a falling counter for a restart of the server, and would
 * count everything again.  So there are totals by process type and event only, few
 * enough to keep all of them.  Each time is added once, when its event is final: for a
 * session about a second after the sample (cpu_split.c), for other processes at once.
 * Idle time is not counted.
 *
 * There are more pairs of type and event than rows.  When most rows are taken, further
 * pairs share a row for their type and class of event, and when those are taken, one
 * row for all.  No row is ever reused, so no added time moves.
 *
 * Only the sampler writes.  A row is complete before the count includes it, and then
 * only its time changes, which is one atomic word: so readers need neither a lock nor a
 * second read.  A reset sets the times to zero, and keeps the rows.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/row_builder.h"
#include "base/wait_events.h"
#include "sampler/profile/profile.h"
#include "sampler/samples.h"

/* A row for each pair, then for the type and class; the last one is for all others. */
#define MAX_ROWS		512
#define MAX_PAIRS		384

/* What a row of several events has instead of an event's number, below the class. */
#define REST_OF_CLASS	((uint32) 0x00FFFFFF)

/* Where the writer searches first for a pair. */
#define HINTS			256

typedef struct Row
{
	pg_atomic_uint64 ns;
	uint32		wait_event;
	PgscaleProcKind kind;
} Row;

typedef struct Totals
{
	pg_atomic_uint32 used;		/* rows; grows only */
	pg_atomic_uint64 reset_at;	/* a TimestampTz */
	Row			rows[MAX_ROWS];
} Totals;

static Totals *totals = NULL;

/* The writer's own: numbers of rows. */
static uint16 hints[HINTS];

PG_FUNCTION_INFO_V1(pgscale_wait_totals);

static void
totals_init(void)
{
	pg_atomic_init_u32(&totals->used, 0);
	pg_atomic_init_u64(&totals->reset_at, (uint64) GetCurrentTimestamp());
	for (int i = 0; i < MAX_ROWS; i++)
		pg_atomic_init_u64(&totals->rows[i].ns, 0);
}

/* The row of a pair, made if there are fewer rows than that; else NULL. */
static Row *
totals_find_or_make(PgscaleProcKind kind, uint32 wait_event, uint32 limit)
{
	const uint32 used = pg_atomic_read_u32(&totals->used);
	Row		   *row;

	for (uint32 i = 0; i < used; i++)
		if (totals->rows[i].wait_event == wait_event && totals->rows[i].kind == kind)
			return &totals->rows[i];
	if (used >= limit)
		return NULL;
	Assert(used < MAX_ROWS);
	row = &totals->rows[used];
	row->kind = kind;
	row->wait_event = wait_event;
	pg_write_barrier();
	pg_atomic_write_u32(&totals->used, used + 1);
	return row;
}

void
pgscale_sampler_totals_add(PgscaleProcKind kind, uint32 wait_event, uint64 ns)
{
	uint16	   *hint = &hints[(wait_event ^ (wait_event >> 20) ^ (kind << 5)) % HINTS];
	Row		   *row = &totals->rows[*hint];

	if (ns == 0 || pgscale_wait_is_idle(kind, wait_event))
		return;
	if (row->kind != kind || row->wait_event != wait_event || *hint >= pg_atomic_read_u32(&totals->used))
	{
		row = totals_find_or_make(kind, wait_event, MAX_PAIRS);
		if (!row)
			row = totals_find_or_make(kind, (wait_event & PGSCALE_WAIT_CLASS) | REST_OF_CLASS, MAX_ROWS - 1);
		if (!row)
			row = totals_find_or_make(PGSCALE_PROC_OTHER, PGSCALE_WAIT_OTHER, MAX_ROWS);
		Assert(row);
		*hint = row - totals->rows;
	}
	/* There is no other writer. */
	pg_atomic_write_u64(&row->ns, pg_atomic_read_u64(&row->ns) + ns);
}

/* Samples of other processes are added when they are split (cpu_split.c). */
static void
totals_add_sample(PgscaleSamplerTickSample *sample, const PgscaleSamplerTick *tick)
{
	if (!sample->proc->has_cpu)
		pgscale_sampler_totals_add(sample->key.kind, sample->key.wait_event, sample->ns);
}

static void
totals_reset(int64 now)
{
	const uint32 used = pg_atomic_read_u32(&totals->used);

	for (uint32 i = 0; i < used; i++)
		pg_atomic_write_u64(&totals->rows[i].ns, 0);
	pg_atomic_write_u64(&totals->reset_at, (uint64) GetCurrentTimestamp());
}

const PgscaleArea pgscale_sampler_totals_area = {
	.name = "pgscale sampler totals",
	.at = (void **) &totals,
	.size = sizeof(Totals),
	.init = totals_init,
};

const PgscaleSamplerConsumer pgscale_sampler_totals_consumer = {
	.reset = totals_reset,
	.add = totals_add_sample,
};

/*
 * pgscale_internal.wait_totals(): one row for each type of process and wait event that was seen
 * since the server's start.
 */
Datum
pgscale_wait_totals(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	uint32		used;

	pgscale_preload_require();
	InitMaterializedSRF(fcinfo, 0);

	used = pg_atomic_read_u32(&totals->used);
	pg_read_barrier();
	for (uint32 i = 0; i < used; i++)
	{
		Row		   *row = &totals->rows[i];
		const bool	rest = (row->wait_event & REST_OF_CLASS) == REST_OF_CLASS;
		PgscaleRow	columns = {0};

		pgscale_row_text(&columns, row->kind == PGSCALE_PROC_OTHER ? "other" : pgscale_sampler_type_name(row->kind));
		pgscale_row_text(&columns, pgscale_wait_event_type(rest && row->kind != PGSCALE_PROC_OTHER ?
														   row->wait_event & PGSCALE_WAIT_CLASS : row->wait_event));
		pgscale_row_text(&columns, rest ? "other" : pgscale_wait_event_name(row->wait_event));
		pgscale_row_float8(&columns, (double) pg_atomic_read_u64(&row->ns) / 1e6);
		pgscale_row_timestamp(&columns, (TimestampTz) pg_atomic_read_u64(&totals->reset_at));
		pgscale_row_end(&columns, rsinfo);
	}
	return (Datum) 0;
}
