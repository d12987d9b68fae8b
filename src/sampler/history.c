/*-------------------------------------------------------------------------
 *
 * history.c
 *	  The latest samples one by one, in a ring in shared memory.
 *
 * The sampler alone writes, and nothing is retried: a reader's work is bounded
 * however fast the sampler is.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/ring.h"
#include "base/wait_events.h"
#include "pgscale.h"
#include "sampler/sampler.h"

/* 0 is a prepared transaction. */
#define NOT_KNOWN	(-1)

typedef struct HistorySample
{
	TimestampTz sampled_at;
	int64		queryid;
	int			pid;
	Oid			datid;
	Oid			userid;
	uint32		wait_event;
	int			blocker_pid;	/* or NOT_KNOWN */
	int			root_pid;		/* likewise */
	PgscaleProcKind kind;
	uint8		state;
} HistorySample;

typedef struct History
{
	int64		capacity;
	pg_atomic_uint64 first;		/* samples below are forgotten: a reset */
	PgscaleRing ring;
	HistorySample samples[FLEXIBLE_ARRAY_MEMBER];
} History;

static History *history = NULL;

/* Of the present tick; most find everybody idle and write nothing here. */
static TimestampTz tick_at;
static int	tick_max_samples;
static bool writing;
static uint64 next;

PG_FUNCTION_INFO_V1(pgscale_wait_history);

Size
pgscale_sampler_history_size(int capacity)
{
	return add_size(offsetof(History, samples),
					mul_size(capacity, sizeof(HistorySample)));
}

void
pgscale_sampler_history_startup(int capacity)
{
	bool		found;

	history = ShmemInitStruct("pgscale sampler history",
							  pgscale_sampler_history_size(capacity), &found);
	if (found)
		return;

	history->capacity = capacity;
	pg_atomic_init_u64(&history->first, 0);
	pgscale_ring_init(&history->ring);
}

void
pgscale_sampler_history_begin(TimestampTz sampled_at, int max_samples)
{
	tick_at = sampled_at;
	tick_max_samples = max_samples;
	writing = false;
}

void
pgscale_sampler_history_add(const PgscaleProc *proc, PgscaleProcKind kind, uint32 wait_event, int64 queryid,
							const PgscaleSamplerBlocked *blocked)
{
	HistorySample *sample;

	if (history->capacity == 0)
		return;

	if (!writing)
	{
		writing = true;
		next = pgscale_ring_begin_write(&history->ring, tick_max_samples);
	}

	sample = &history->samples[next++ % history->capacity];
	sample->sampled_at = tick_at;
	sample->queryid = queryid;
	sample->pid = proc->pid;
	sample->datid = proc->datid;
	sample->userid = proc->userid;
	sample->wait_event = wait_event;
	sample->blocker_pid = blocked ? blocked->blocker : NOT_KNOWN;
	sample->root_pid = blocked ? blocked->root : NOT_KNOWN;
	sample->kind = kind;
	sample->state = proc->state;
}

void
pgscale_sampler_history_end(void)
{
	if (writing)
		pgscale_ring_end_write(&history->ring, next);
}

/*
 * What a writer that died had begun to write lies in the places of the oldest samples:
 * they are gone.
 */
void
pgscale_sampler_history_attach(void)
{
	const uint64 oldest = pgscale_ring_oldest(&history->ring, history->capacity);

	if (pg_atomic_read_u64(&history->first) < oldest)
		pg_atomic_write_u64(&history->first, oldest);
}

void
pgscale_sampler_history_reset(void)
{
	/* Whoever sees this sees the samples up to there. */
	pg_write_barrier();
	pg_atomic_write_u64(&history->first, pg_atomic_read_u64(&history->ring.written));
}

/* pgscale.wait_history(): the ring's samples, oldest first. */
Datum
pgscale_wait_history(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	HistorySample *copy;
	uint64		begin,
				end;
	int64		capacity;

	pgscale_require_preload();
	InitMaterializedSRF(fcinfo, 0);

	capacity = history->capacity;
	if (capacity == 0)
		return (Datum) 0;

	begin = pg_atomic_read_u64(&history->first);
	pg_read_barrier();
	end = pgscale_ring_begin_read(&history->ring);

	copy = palloc_extended(capacity * sizeof(HistorySample), MCXT_ALLOC_HUGE);
	memcpy(copy, history->samples, Min(end, capacity) * sizeof(HistorySample));

	begin = Max(begin, pgscale_ring_oldest(&history->ring, capacity));

	for (uint64 n = begin; n < end; n++)
	{
		HistorySample *sample = &copy[n % capacity];
		const char *state = pgscale_proc_state_name(sample->state);
		Datum		values[11] = {0};
		bool		nulls[11] = {0};

		CHECK_FOR_INTERRUPTS();

		values[0] = TimestampTzGetDatum(sample->sampled_at);
		values[1] = Int32GetDatum(sample->pid);
		values[2] = CStringGetTextDatum(pgscale_sampler_type_name(sample->kind));
		values[3] = ObjectIdGetDatum(sample->datid);
		nulls[3] = !OidIsValid(sample->datid);
		values[4] = ObjectIdGetDatum(sample->userid);
		nulls[4] = !OidIsValid(sample->userid);
		values[5] = Int64GetDatum(sample->queryid);
		nulls[5] = (sample->queryid == 0);
		if (state)
			values[6] = CStringGetTextDatum(state);
		else
			nulls[6] = true;
		values[7] = CStringGetTextDatum(pgscale_wait_event_type(sample->wait_event));
		values[8] = CStringGetTextDatum(pgscale_wait_event_name(sample->wait_event));
		values[9] = Int32GetDatum(sample->blocker_pid);
		nulls[9] = sample->blocker_pid == NOT_KNOWN;
		values[10] = Int32GetDatum(sample->root_pid);
		nulls[10] = sample->root_pid == NOT_KNOWN;
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
