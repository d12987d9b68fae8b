/*-------------------------------------------------------------------------
 *
 * buffer_usage.c
 *	  Contents of shared buffers, and how well page replacement works.
 *
 * All figures are read from the buffer headers at each call, without a lock and
 * without a row for each buffer: usage counts here, relations in relation_buffers.c,
 * the clock sweep in clock_sweep.c.  So nothing is collected in the background, and an
 * answer is not a snapshot: buffers change while their headers are read.
 *
 * A header is a cache line, and reading the header is the whole cost of counting.  A
 * sample of headers costs the same for any size of shared buffers.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "common/pg_prng.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"

#include "base/pg_compat.h"
#include "base/row_builder.h"
#include "base/wilson_interval.h"
#include "buffer_usage/buffer_usage.h"

/* Headers between two checks for interrupts: 1 MB of them. */
#define HEADERS_AT_ONCE	16384

/* As above, from a sample. */
#define SAMPLE_AT_ONCE	1024

PG_FUNCTION_INFO_V1(pgscale_buffer_usage);
PG_FUNCTION_INFO_V1(pgscale_buffer_usage_sample);

void
pgscale_buffer_usage_count(PgscaleUsage *usage)
{
	PgscaleTally tally = {0};

	for (int first = 0; first < NBuffers; first += HEADERS_AT_ONCE)
	{
		CHECK_FOR_INTERRUPTS();
		pgscale_buffers_tally_range(&tally, first, Min(HEADERS_AT_ONCE, NBuffers - first));
	}
	pgscale_buffers_tally_sum(&tally, usage);
}

/* pgscale_internal.buffer_usage(): one row a usage count, and one for what is not in use. */
Datum
pgscale_buffer_usage(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	PgscaleUsage usage;

	InitMaterializedSRF(fcinfo, 0);
	pgscale_buffer_usage_count(&usage);

	for (int count = 0; count < lengthof(usage.of); count++)
	{
		const PgscaleUsageCounts *of = &usage.of[count];
		PgscaleRow	row = {0};

		pgscale_row_put(&row, Int32GetDatum(count), count == PGSCALE_NO_PAGE);
		pgscale_row_int8(&row, of->buffers);
		pgscale_row_float8(&row, (double) of->buffers / usage.buffers);
		pgscale_row_int8(&row, of->dirty);
		pgscale_row_int8(&row, of->pinned);
		pgscale_row_end(&row, rsinfo);
	}
	return (Datum) 0;
}

static void
count_sample(int32 n, PgscaleUsage *usage)
{
	PgscaleTally tally = {0};
	int			bufs[SAMPLE_AT_ONCE];

	/* Numbers first: then the processor waits for many headers at a time. */
	while (n > 0)
	{
		const int	some = Min(n, SAMPLE_AT_ONCE);

		CHECK_FOR_INTERRUPTS();
		for (int i = 0; i < some; i++)
			bufs[i] = (int) pg_prng_uint64_range(&pg_global_prng_state, 0, NBuffers - 1);
		pgscale_buffers_tally_some(&tally, bufs, some);
		n -= some;
	}
	pgscale_buffers_tally_sum(&tally, usage);
}

/*
 * pgscale_internal.buffer_usage_sample(n): as buffer_usage(), of n random buffers, with
 * replacement, scaled up to all of them.
 */
Datum
pgscale_buffer_usage_sample(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	PgscaleUsage usage;
	double		scale;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("the number of buffers to sample must not be null"),
				 errhint("pgscale.buffer_usage() without an argument counts all buffers.")));
	if (PG_GETARG_INT32(0) < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the number of buffers to sample must be positive"),
				 errhint("Four times as many halve the interval; without an argument all buffers are counted.")));

	InitMaterializedSRF(fcinfo, 0);
	count_sample(PG_GETARG_INT32(0), &usage);
	scale = (double) NBuffers / usage.buffers;

	for (int count = 0; count < lengthof(usage.of); count++)
	{
		const PgscaleUsageCounts *of = &usage.of[count];
		const PgscaleInterval interval = pgscale_wilson_interval(of->buffers, usage.buffers);
		PgscaleRow	row = {0};

		pgscale_row_put(&row, Int32GetDatum(count), count == PGSCALE_NO_PAGE);
		pgscale_row_int8(&row, (int64) rint(of->buffers * scale));
		pgscale_row_float8(&row, (double) of->buffers / usage.buffers);
		pgscale_row_float8(&row, interval.low);
		pgscale_row_float8(&row, interval.high);
		pgscale_row_int8(&row, (int64) rint(of->dirty * scale));
		pgscale_row_int8(&row, (int64) rint(of->pinned * scale));
		pgscale_row_end(&row, rsinfo);
	}
	return (Datum) 0;
}

static void
buffer_usage_health(PgscaleHealth *health)
{
	if (pgscale_health_preloaded(health, NULL, true))
		health->reason = "reads buffer headers when asked";
	else
		health->reason = "pgscale is not loaded into the server: clock_sweep has no rates; all else works";
	health->state = PGSCALE_HEALTH_IDLE;
}

const PgscaleModule pgscale_buffer_usage_module = {
	.name = "buffer_usage",
	.areas = (const PgscaleArea *const[]) {&pgscale_buffer_usage_area, NULL},
	.reset = pgscale_buffer_usage_clock_reset,
	.health = buffer_usage_health,
};
