/*-------------------------------------------------------------------------
 *
 * trace_history.c
 *	  The traces of the trigger, in a ring in shared memory.
 *
 * Each keeps the events that took most time, and the rest as one event.
 *
 * Locking: there is only one tracing worker, and only it writes.  Readers copy the ring
 * (base/ring.h).  A reset stores the number of the first trace to show.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/ring.h"
#include "base/row_builder.h"
#include "base/shared_area.h"
#include "base/units.h"
#include "base/wait_events.h"
#include "trace/trigger.h"

#define TRACES			64
#define EVENTS			16

typedef struct HistoryEvent
{
	uint32		event;
	int64		count;
	double		total_us;
	double		p50_us;			/* NaN: unknown, as of the rest */
	double		p95_us;
	double		max_us;
} HistoryEvent;

typedef struct HistoryTrace
{
	int			number;
	TimestampTz started_at;
	PgscaleTraceAlarm alarm;
	int			pid;
	Oid			datid;
	Oid			userid;
	int64		queryid;
	char		application_name[NAMEDATALEN];
	double		traced_us;
	double		coverage;
	PgscaleTraceEnd end;
	int			nevents;
	HistoryEvent events[EVENTS + 1];
} HistoryTrace;

typedef struct History
{
	pg_atomic_uint64 first;		/* traces below are forgotten: a reset */
	PgscaleRing ring;
	HistoryTrace traces[TRACES];
} History;

static History *history = NULL;

PG_FUNCTION_INFO_V1(pgscale_trace_history);

static const char *const figures[] = {
	[PGSCALE_TRACE_LOCK_WAITS] = "lock waits",
	[PGSCALE_TRACE_ACTIVE_SESSIONS] = "active sessions"
};

static void
trace_history_init(void)
{
	pg_atomic_init_u64(&history->first, 0);
	pgscale_ring_init(&history->ring);
}

const PgscaleArea pgscale_trace_history_area = {
	.name = "pgscale trace history",
	.at = (void **) &history,
	.size = sizeof(History),
	.init = trace_history_init,
};

static HistoryEvent
history_event(const PgscaleTrace *trace, const PgscaleTraceTotal *total)
{
	return (HistoryEvent)
	{
		.event = total->event,
			.count = (int64) total->count,
			.total_us = pgscale_trace_us(trace, total->total),
			.p50_us = pgscale_trace_us(trace, total->p50),
			.p95_us = pgscale_trace_us(trace, total->p95),
			.max_us = pgscale_trace_us(trace, total->max)
	};
}

/* Takes the longest ones in, and adds the others up. */
static void
history_take_events(HistoryTrace *kept, const PgscaleTrace *trace)
{
	PgscaleTraceTotal *totals;
	const int	n = pgscale_trace_totals_list(trace->totals, &totals);
	HistoryEvent *rest = &kept->events[EVENTS];

	kept->nevents = Min(n, EVENTS + 1);
	for (int i = 0; i < n; i++)
	{
		const HistoryEvent event = history_event(trace, &totals[i]);

		if (i < EVENTS)
		{
			kept->events[i] = event;
			continue;
		}
		rest->event = PGSCALE_WAIT_OTHER;
		rest->count += event.count;
		rest->total_us += event.total_us;
		rest->p50_us = rest->p95_us = NAN;
		rest->max_us = Max(rest->max_us, event.max_us);
	}
}

void
pgscale_trace_history_add(int number, const PgscaleTraceAlarm *alarm, const PgscaleTrace *trace,
						  const PgscaleProcClient *client)
{
	HistoryTrace kept = {
		.number = number,
		.started_at = pgscale_trace_timestamp(trace, trace->first),
		.alarm = *alarm,
		.pid = trace->target.pid,
		.datid = trace->target.datid,
		.userid = trace->target.userid,
		.queryid = trace->target.queryid,
		.traced_us = pgscale_trace_us(trace, trace->last - trace->first),
		.coverage = pgscale_trace_watched(trace),
		.end = trace->end
	};
	uint64		next;

	strlcpy(kept.application_name, client->application_name, sizeof(kept.application_name));
	history_take_events(&kept, trace);

	next = pgscale_ring_begin_write(&history->ring, 1);
	history->traces[next % TRACES] = kept;
	pgscale_ring_end_write(&history->ring, next + 1);
}

static void
history_put(ReturnSetInfo *rsinfo, const HistoryTrace *kept, const HistoryEvent *event)
{
	PgscaleRow	row = {0};

	pgscale_row_int8(&row, kept->number);
	pgscale_row_timestamp(&row, kept->started_at);
	pgscale_row_text(&row, figures[kept->alarm.figure]);
	pgscale_row_float8(&row, kept->alarm.sessions);
	pgscale_row_float8(&row, kept->alarm.usual);
	pgscale_row_float8(&row, kept->alarm.limit);
	pgscale_row_int4(&row, kept->pid);
	pgscale_row_oid(&row, kept->datid);
	pgscale_row_oid(&row, kept->userid);
	pgscale_row_text(&row, kept->application_name);
	pgscale_row_id(&row, kept->queryid);
	pgscale_row_text(&row, pgscale_wait_event_type(event->event));
	pgscale_row_text(&row, pgscale_wait_event_name(event->event));
	pgscale_row_int8(&row, event->count);
	pgscale_row_float8(&row, event->total_us / 1000);
	pgscale_row_float8(&row, event->total_us / kept->traced_us);
	pgscale_row_float8(&row, event->p50_us);
	pgscale_row_float8(&row, event->p95_us);
	pgscale_row_float8(&row, event->max_us);
	pgscale_row_float8(&row, kept->traced_us / 1000);
	pgscale_row_text(&row, pgscale_trace_end_name(kept->end));
	pgscale_row_float8(&row, kept->coverage);
	pgscale_row_end(&row, rsinfo);
}

/* pgscale_internal.trace_history(): the traces kept, oldest first, one row an event. */
Datum
pgscale_trace_history(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	HistoryTrace *copy;
	uint64		begin,
				end;

	pgscale_preload_require();
	InitMaterializedSRF(fcinfo, 0);

	begin = pg_atomic_read_u64(&history->first);
	pg_read_barrier();
	end = pgscale_ring_begin_read(&history->ring);
	copy = palloc(sizeof(history->traces));
	memcpy(copy, history->traces, sizeof(history->traces));
	begin = Max(begin, pgscale_ring_oldest(&history->ring, TRACES));

	for (uint64 n = begin; n < end; n++)
	{
		const HistoryTrace *kept = &copy[n % TRACES];

		CHECK_FOR_INTERRUPTS();
		for (int i = 0; i < kept->nevents; i++)
			history_put(rsinfo, kept, &kept->events[i]);
	}
	return (Datum) 0;
}

void
pgscale_trace_history_reset(void)
{
	pg_atomic_write_u64(&history->first, pg_atomic_read_u64(&history->ring.written));
}
