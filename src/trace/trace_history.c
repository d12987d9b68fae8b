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
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/ring.h"
#include "base/units.h"
#include "base/wait_events.h"
#include "trace/trigger.h"

#define TRACES			64
#define EVENTS			16

/* The rest has no quantiles. */
#define UNKNOWN			(-1.0)

typedef struct HistoryEvent
{
	uint32		event;
	int64		count;
	double		total_us;
	double		p50_us;			/* or UNKNOWN */
	double		p95_us;			/* or UNKNOWN */
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

Size
pgscale_trace_history_size(void)
{
	return MAXALIGN(sizeof(History));
}

void
pgscale_trace_history_startup(void)
{
	bool		found;

	history = ShmemInitStruct("pgscale trace history", sizeof(History), &found);
	if (found)
		return;
	memset(history, 0, sizeof(*history));
	pg_atomic_init_u64(&history->first, 0);
	pgscale_ring_init(&history->ring);
}

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
		rest->p50_us = rest->p95_us = UNKNOWN;
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
	Datum		values[22];
	bool		nulls[22] = {0};
	int			i = 0;

	values[i++] = Int64GetDatum(kept->number);
	values[i++] = TimestampTzGetDatum(kept->started_at);
	values[i++] = CStringGetTextDatum(figures[kept->alarm.figure]);
	values[i++] = Float8GetDatum(kept->alarm.sessions);
	values[i++] = Float8GetDatum(kept->alarm.usual);
	values[i++] = Float8GetDatum(kept->alarm.limit);
	values[i++] = Int32GetDatum(kept->pid);
	nulls[i] = !OidIsValid(kept->datid);
	values[i++] = ObjectIdGetDatum(kept->datid);
	nulls[i] = !OidIsValid(kept->userid);
	values[i++] = ObjectIdGetDatum(kept->userid);
	values[i++] = CStringGetTextDatum(kept->application_name);
	nulls[i] = (kept->queryid == 0);
	values[i++] = Int64GetDatum(kept->queryid);
	values[i++] = CStringGetTextDatum(pgscale_wait_event_type(event->event));
	values[i++] = CStringGetTextDatum(pgscale_wait_event_name(event->event));
	values[i++] = Int64GetDatum(event->count);
	values[i++] = Float8GetDatum(event->total_us / 1000);
	values[i++] = Float8GetDatum(event->total_us / kept->traced_us);
	nulls[i] = (event->p50_us == UNKNOWN);
	values[i++] = Float8GetDatum(event->p50_us);
	nulls[i] = (event->p95_us == UNKNOWN);
	values[i++] = Float8GetDatum(event->p95_us);
	values[i++] = Float8GetDatum(event->max_us);
	values[i++] = Float8GetDatum(kept->traced_us / 1000);
	values[i++] = CStringGetTextDatum(pgscale_trace_end_name(kept->end));
	values[i++] = Float8GetDatum(kept->coverage);
	Assert(i == lengthof(values));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
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
