/*-------------------------------------------------------------------------
 *
 * history.c
 *	  The latest single samples, in a ring in shared memory.
 *
 * One tick in each history period stores samples.  One tick a second keeps a hundred
 * times as much time in the same memory as one each 10 ms, and still takes a hundred
 * samples of a wait of two minutes.  A sample holds the state at its tick.  It
 * represents the time since the previous stored tick, or one period if that tick was
 * long ago, as after a time without a sampler.
 *
 * Idle processes have no samples, so the samples do not show whether there were ticks
 * at all.  Spans of time do: each stored tick extends the last span, or begins a new
 * one if it does not follow the previous tick by the wall clock.  So a changed clock
 * begins a span, too.  Samples are in the order in which they were taken, which may
 * differ from the order of their times.  So a search for a time goes through all of
 * them; at a gigabyte a second that takes less time than processing the matches.
 *
 * Locking: only the sampler writes, and nothing is retried: a reader's work is bounded
 * however fast the sampler is (base/ring.h).  A reader copies a few samples at a time
 * and drops those that may have been overwritten meanwhile.  The spans have a change
 * count; a reader that reads them first finds all samples of them, or learns that they are
 * gone.  A reset forgets all samples, and then the spans; the labels' reset, which follows,
 * makes a reader of both read them again (session_labels.c).
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

#include "base/change_count.h"
#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/ring.h"
#include "base/row_builder.h"
#include "base/units.h"
#include "base/wait_events.h"
#include "sampler/past/history.h"
#include "sampler/samples.h"

/* How far two stored ticks may be apart by the wall clock, beyond the time that the second one stands for. */
#define SPAN_SLACK_US	(250 * 1000)

/* Copied at a time; small enough for the stack. */
#define CHUNK			128

typedef struct History
{
	int64		capacity;
	pg_atomic_uint64 first;		/* samples below are forgotten: a reset */
	PgscaleRing ring;
	PgscaleChangeCount changes; /* of spans */
	PgscaleSamplerSpans spans;
	PgscaleSamplerSample samples[FLEXIBLE_ARRAY_MEMBER];
} History;

static History *history = NULL;

/* The sampler's own: ticks whose samples are stored, on the monotonic clock. */
static int64 last_stored;
static int64 next_stored;
static TimestampTz last_at;		/* of the last one by the wall clock, or
								 * DT_NOBEGIN */

/* Of the present tick; most ticks find only idle processes and write nothing here. */
static bool storing;
static uint32 stored_us;		/* the time that it stands for */
static bool writing;
static uint64 next;

PG_FUNCTION_INFO_V1(pgscale_wait_history);

static Size
history_size(void)
{
	return add_size(offsetof(History, samples),
					mul_size(pgscale_sampler_settings.history_size, sizeof(PgscaleSamplerSample)));
}

static void
history_area_init(void)
{
	history->capacity = pgscale_sampler_settings.history_size;
	pg_atomic_init_u64(&history->first, 0);
	pgscale_ring_init(&history->ring);
	pgscale_change_init(&history->changes);
}

static void
history_start(int64 now)
{
	last_stored = now;
	/* The first tick is one in any case: it may have been due before now. */
	next_stored = PG_INT64_MIN;
	last_at = DT_NOBEGIN;
}

static void
history_begin(const PgscaleSamplerTick *tick)
{
	const int64 period_ns = pgscale_sampler_settings.history_period_ms * NS_PER_MS;
	const int64 ns = tick->now - last_stored;

	/* A longer one may have been set before. */
	next_stored = Min(next_stored, tick->due + period_ns);
	storing = history->capacity > 0 && tick->due >= next_stored;
	if (!storing)
		return;
	next_stored += period_ns;
	if (next_stored <= tick->due)
		next_stored = tick->due + period_ns;
	last_stored = tick->now;

	stored_us = Max(ns / NS_PER_US, 1);
	if (ns > PGSCALE_SAMPLER_LATE * Max(period_ns, NS_PER_S))
		stored_us = period_ns / NS_PER_US;

	/*
	 * The clocks are read one after the other: no time is in two stored ticks
	 * unless one was set.
	 */
	else if (last_at < tick->wall && last_at > tick->wall - stored_us - SPAN_SLACK_US &&
			 last_at < tick->wall - stored_us + SPAN_SLACK_US)
		stored_us = tick->wall - last_at;
	last_at = tick->wall;
	writing = false;
}

static void
history_add(PgscaleSamplerTickSample *seen, const PgscaleSamplerTick *tick)
{
	static const PgscaleSamplerBlocked unknown = {PGSCALE_SAMPLER_NO_PID, PGSCALE_SAMPLER_NO_PID};
	const PgscaleSamplerBlocked *blocked = seen->blocked ? seen->blocked : &unknown;
	PgscaleSamplerSample *sample;

	if (!storing || seen->idle)
		return;
	if (!writing)
	{
		writing = true;
		next = pgscale_ring_begin_write(&history->ring, tick->max_samples);
	}

	/* Readers know of no more that may be overwritten. */
	Assert(next < pg_atomic_read_u64(&history->ring.reserved));
	sample = &history->samples[next++ % history->capacity];
	sample->sampled_at = tick->wall;
	sample->queryid = seen->key.queryid;
	sample->pid = seen->proc->pid;
	sample->datid = seen->key.datid;
	sample->userid = seen->key.userid;
	sample->wait_event = seen->key.wait_event;
	sample->blocker_pid = blocked->blocker;
	sample->root_pid = blocked->root;
	sample->root = blocked->entry;
	sample->period_us = stored_us;
	sample->label = seen->key.label;
	sample->kind = seen->key.kind;
	sample->state = seen->proc->state;
}

/* Makes the last span longer by this tick, or begins one with it. */
static void
extend_spans(uint64 first, uint64 end)
{
	PgscaleSamplerSpans *spans = &history->spans;
	const TimestampTz begin = last_at - stored_us;
	PgscaleSamplerSpan *last = spans->n > 0 ? &spans->spans[spans->n - 1] : NULL;

	(void) pgscale_change_begin_write(&history->changes);
	if (last && begin <= last->end + SPAN_SLACK_US && begin >= last->end - SPAN_SLACK_US && last_at >= last->begin)
		last->end = last_at;
	else
	{
		if (spans->n == PGSCALE_SAMPLER_SPANS)
			memmove(&spans->spans[0], &spans->spans[1], sizeof(PgscaleSamplerSpan) * --spans->n);
		last = &spans->spans[spans->n++];
		last->begin = begin;
		last->end = last_at;
		last->first = first;
	}
	spans->end = end;
	pgscale_change_end_write(&history->changes);
}

static void
history_end(PgscaleSamplerTick *tick)
{
	uint64		first;

	if (!storing)
		return;
	first = pg_atomic_read_u64(&history->ring.written);
	if (writing)
		pgscale_ring_end_write(&history->ring, next);
	extend_spans(first, pg_atomic_read_u64(&history->ring.written));
}

/*
 * What a writer that died had begun to write lies in the places of the oldest samples:
 * they are gone.
 */
static void
history_attach(void)
{
	const uint64 oldest = pgscale_ring_oldest(&history->ring, history->capacity);

	if (pg_atomic_read_u64(&history->first) < oldest)
		pg_atomic_write_u64(&history->first, oldest);
	(void) pgscale_change_begin_write(&history->changes);
	pgscale_change_end_write(&history->changes);
}

static void
history_reset(int64 now)
{
	pg_atomic_write_u64(&history->first, pg_atomic_read_u64(&history->ring.written));
	(void) pgscale_change_begin_write(&history->changes);
	history->spans.n = 0;
	pgscale_change_end_write(&history->changes);
	history_start(now);
}

const PgscaleArea pgscale_sampler_history_area = {
	.name = "pgscale sampler history",
	.at = (void **) &history,
	.size = offsetof(History, samples),
	.computed = history_size,
	.init = history_area_init,
};

const PgscaleSamplerConsumer pgscale_sampler_history_consumer = {
	.attach = history_attach,
	.start = history_start,
	.reset = history_reset,
	.begin = history_begin,
	.add = history_add,
	.end = history_end,
};

/* Numbers of the samples that there are: from *first on, below *end. */
static void
history_bounds(uint64 *first, uint64 *end)
{
	*end = pgscale_ring_begin_read(&history->ring);
	*first = Max(pg_atomic_read_u64(&history->first), pgscale_ring_oldest(&history->ring, history->capacity));
	*first = Min(*first, *end);
}

bool
pgscale_sampler_history_visit(uint64 first, uint64 end, PgscaleSamplerVisit visit, void *arg)
{
	PgscaleSamplerSample copy[CHUNK];
	bool		complete = true;

	while (first < end)
	{
		const uint64 place = first % history->capacity;
		const uint64 n = Min(Min(end - first, CHUNK), history->capacity - place);
		uint64		oldest;

		CHECK_FOR_INTERRUPTS();
		memcpy(copy, &history->samples[place], n * sizeof(PgscaleSamplerSample));
		oldest = pgscale_ring_oldest(&history->ring, history->capacity);
		for (uint64 i = 0; i < n; i++)
			if (first + i >= oldest)
				visit(first + i, &copy[i], arg);
		/* What was overwritten meanwhile need not be copied. */
		first = Max(first + n, oldest);
		complete = oldest < end;
	}
	return complete;
}

/* The samples of the first tick of which there are any. */
typedef struct FirstTick
{
	uint64		first;			/* the number of its first one */
	uint64		n;				/* 0: that is gone */
	TimestampTz at;
} FirstTick;

static void
visit_first_tick(uint64 number, const PgscaleSamplerSample *sample, void *arg)
{
	FirstTick  *tick = arg;

	if (number == tick->first)
		tick->at = sample->sampled_at;
	if (number == tick->first + tick->n && sample->sampled_at == tick->at)
		tick->n++;
}

/*
 * The spans of the newest samples, at most that many.  If earlier samples were
 * overwritten, or are left out, the oldest tick may lack some: the known time begins
 * with its end.
 */
static void
spans_of_newest(uint64 most, PgscaleSamplerSpans *spans, uint64 *first)
{
	uint64		oldest;
	uint64		end;
	int			gone = 0;

	spans->end = 0;
	spans->n = 0;
	*first = 0;
	if (history->capacity == 0)
		return;

	pgscale_change_copy(&history->changes, spans, &history->spans, sizeof(*spans));
	history_bounds(&oldest, &end);
	if (spans->n == 0)
	{
		*first = spans->end;
		return;
	}
	if (spans->end > most)
		oldest = Max(oldest, spans->end - most);
	*first = spans->spans[0].first;
	if (oldest <= *first)
		return;

	/* Those that ended with a lost sample, except the last. */
	while (gone + 1 < spans->n && spans->spans[gone + 1].first <= oldest)
		gone++;
	spans->n -= gone;
	memmove(spans->spans, spans->spans + gone, spans->n * sizeof(PgscaleSamplerSpan));
	*first = oldest;
	if (oldest > spans->spans[0].first)
	{
		FirstTick	tick = {.first = oldest};

		(void) pgscale_sampler_history_visit(oldest, Min(oldest + pgscale_procs_count(), spans->end), visit_first_tick, &tick);
		if (tick.n == 0)
		{
			/* Gone as well, or there is nothing after it. */
			spans->n = 0;
			*first = spans->end;
			return;
		}
		*first = oldest + tick.n;
		spans->spans[0].begin = Max(spans->spans[0].begin, tick.at);
		spans->spans[0].end = Max(spans->spans[0].begin, spans->spans[0].end);
	}
}

void
pgscale_sampler_history_spans(PgscaleSamplerSpans *spans, uint64 *first)
{
	spans_of_newest(PG_UINT64_MAX, spans, first);
}

bool
pgscale_sampler_history_parts(uint64 most, PgscaleSamplerHistoryParts *parts)
{
	uint64		first,
				end,
				place;

	memset(parts, 0, sizeof(*parts));
	if (history->capacity == 0)
		return true;
	if (pgscale_change_is_under_way(&history->changes))
		return false;

	spans_of_newest(most, &parts->spans, &first);
	end = parts->spans.end;
	place = first % history->capacity;
	parts->samples[0] = &history->samples[place];
	parts->n[0] = Min(end - first, history->capacity - place);
	parts->samples[1] = &history->samples[0];
	parts->n[1] = end - first - parts->n[0];

	for (int i = 0; i < parts->spans.n; i++)
	{
		PgscaleSamplerSpan *span = &parts->spans.spans[i];

		span->first = span->first > first ? span->first - first : 0;
	}
	parts->spans.end = end - first;
	return true;
}

/* Where there are more than fit, it is as if the ring had overwritten the oldest. */
void
pgscale_sampler_history_restore(const PgscaleSamplerSample *samples, uint64 n, const PgscaleSamplerSpans *spans)
{
	if (history->capacity == 0)
		return;
	for (uint64 i = n > history->capacity ? n - history->capacity : 0; i < n; i++)
		history->samples[i % history->capacity] = samples[i];
	history->spans = *spans;
	pg_atomic_write_u64(&history->ring.written, n);
	pg_atomic_write_u64(&history->ring.reserved, n);
}

/* Samples of a time, without a gap among those of all times. */
typedef struct Found
{
	uint64		next;			/* number of the one after the last visited */
	TimestampTz since;
	TimestampTz until;
	PgscaleSamplerSample *samples;
	uint64		n;
	uint64		room;
} Found;

static void
visit_found(uint64 number, const PgscaleSamplerSample *sample, void *arg)
{
	Found	   *found = arg;

	/* Those before a gap are gone from the ring by now, too. */
	if (number != found->next)
		found->n = 0;
	found->next = number + 1;
	if (sample->sampled_at < found->since || sample->sampled_at >= found->until)
		return;
	if (found->n == found->room)
	{
		found->room *= 2;
		found->samples = repalloc_huge(found->samples, found->room * sizeof(PgscaleSamplerSample));
	}
	found->samples[found->n++] = *sample;
}

/*
 * pgscale_internal.wait_history(since, until): the ring's samples from since on and before until,
 * in the order in which they were taken.  NULL: no bound.
 */
Datum
pgscale_wait_history(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	PgscaleSamplerRoots *roots;
	Found		found = {.since = DT_NOBEGIN,.until = DT_NOEND};
	uint64		first,
				end;

	pgscale_preload_require();
	if (!PG_ARGISNULL(0))
		found.since = PG_GETARG_TIMESTAMPTZ(0);
	if (!PG_ARGISNULL(1))
		found.until = PG_GETARG_TIMESTAMPTZ(1);
	if (found.since > found.until)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("since must not be later than until"),
				 errhint("Swap the two times, or leave one out.")));
	InitMaterializedSRF(fcinfo, 0);
	if (history->capacity == 0)
		return (Datum) 0;

	/* First all copies, since the sampler does not wait. */
	found.room = 1024;
	found.samples = palloc(found.room * sizeof(PgscaleSamplerSample));
	history_bounds(&first, &end);
	if (!pgscale_sampler_history_visit(first, end, visit_found, &found))
		found.n = 0;
	roots = pgscale_sampler_roots_copy();

	for (uint64 n = 0; n < found.n; n++)
	{
		PgscaleSamplerSample *sample = &found.samples[n];
		PgscaleRow	row = {0};

		CHECK_FOR_INTERRUPTS();
		pgscale_row_timestamp(&row, sample->sampled_at);
		pgscale_row_int4(&row, sample->pid);
		pgscale_row_text(&row, pgscale_sampler_type_name(sample->kind));
		pgscale_row_oid(&row, sample->datid);
		pgscale_row_oid(&row, sample->userid);
		pgscale_row_id(&row, sample->queryid);
		pgscale_row_text(&row, pgscale_proc_state_name(sample->state));
		pgscale_row_text(&row, pgscale_wait_event_type(sample->wait_event));
		pgscale_row_text(&row, pgscale_wait_event_name(sample->wait_event));
		pgscale_row_put(&row, Int32GetDatum(sample->blocker_pid), sample->blocker_pid == PGSCALE_SAMPLER_NO_PID);
		pgscale_row_put(&row, Int32GetDatum(sample->root_pid), sample->root_pid == PGSCALE_SAMPLER_NO_PID);
		pgscale_row_text(&row, pgscale_sampler_root_application(roots, &sample->root));
		pgscale_row_end(&row, rsinfo);
	}
	return (Datum) 0;
}
