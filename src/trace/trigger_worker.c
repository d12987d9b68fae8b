/*-------------------------------------------------------------------------
 *
 * trigger_worker.c
 *	  The background worker that makes one trace for the trigger: it finds the worst
 *	  session, traces it, stores the result, and ends.
 *
 * It connects to no database, so it blocks no DROP DATABASE.  It begins no transaction,
 * so it holds back no VACUUM, and no timeout of a transaction ends it.  It takes one of
 * the places that all traces share, by a resource owner of its own.
 *
 * SIGTERM ends it at the next look of the trace, as it ends any session.  It is not
 * started again.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/resowner.h"

#include "base/pg_compat.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/wait_events.h"
#include "base/worker.h"
#include "trace/trigger.h"

/* Waits for LWLocks are short: how long to look for a waiting process, and how often. */
#define FIND_NS			NS_PER_S
#define FIND_AGAIN_MS	10

PGDLLEXPORT void pgscale_trace_trigger_main(Datum arg);

/* Could a trace of this process explain the figure? */
static bool
worker_is_candidate(const PgscaleProc *proc, PgscaleTraceFigure figure)
{
	const uint32 class = proc->wait_event & PGSCALE_WAIT_CLASS;

	if (proc->kind != (PgscaleProcKind) B_BACKEND || !proc->running || proc->changecount == 0)
		return false;
	return figure != PGSCALE_TRACE_LOCK_WAITS || class == PG_WAIT_LOCK || class == PG_WAIT_LWLOCK;
}

/*
 * The longest statement is the worst, of those that began when the figure had left its
 * range: one that began long before, such as a report, belongs to what is usual.
 */
static bool
worker_is_worse(const PgscaleProc *a, const PgscaleProc *b, TimestampTz since)
{
	const bool	a_is_new = a->activity_start >= since;
	const bool	b_is_new = b->activity_start >= since;

	return a_is_new == b_is_new ? a->activity_start < b->activity_start : a_is_new;
}

/* Looks once at all processes; false if there is none to trace. */
static bool
worker_choose(const PgscaleTraceAlarm *alarm, PgscaleTrace *trace)
{
	trace->target.pid = 0;
	for (int slot = 0; slot < pgscale_procs_count(); slot++)
	{
		PgscaleProc proc = {0};
		bool		changed;
		uint64		retries = 0;

		if (!pgscale_procs_read(slot, &proc, &changed, &retries) || !worker_is_candidate(&proc, alarm->figure))
			continue;
		if (trace->target.pid == 0 || worker_is_worse(&proc, &trace->target, alarm->since))
		{
			trace->target = proc;
			trace->slot = slot;
		}
	}
	return trace->target.pid != 0;
}

static bool
worker_find(const PgscaleTraceAlarm *alarm, PgscaleTrace *trace)
{
	const int64 give_up = pgscale_timer_clock() + FIND_NS;

	while (!worker_choose(alarm, trace))
	{
		if (pgscale_timer_clock() >= give_up)
			return false;
		pgscale_worker_wait(FIND_AGAIN_MS);
		CHECK_FOR_INTERRUPTS();
	}
	return true;
}

static PgscaleTraceOutcome
worker_trace(int number, PgscaleTraceRun *run)
{
	PgscaleTrace trace = {.duration_ns = run->duration_ms * NS_PER_MS};
	PgscaleProcClient client;

	trace.totals = pgscale_trace_totals_create();
	if (!worker_find(&run->alarm, &trace))
		return PGSCALE_TRACE_NO_SESSION;
	if (!pgscale_procs_read_client(trace.slot, false, &client))
		client.application_name[0] = '\0';
	if (!pgscale_trace_watch(&trace))
		return PGSCALE_TRACE_NO_PLACE;
	/* It may have ended before it could be watched. */
	if (trace.last <= trace.first)
		return PGSCALE_TRACE_NO_SESSION;
	pgscale_trace_history_add(number, &run->alarm, &trace, &client);
	return PGSCALE_TRACE_KEPT;
}

void
pgscale_trace_trigger_main(Datum arg)
{
	const int	number = DatumGetInt32(arg);
	PgscaleTraceRun *run;
	PgscaleTraceOutcome outcome;
	int64		began;

	pgscale_worker_start("PgscaleTrace");
	/* A trace looks for no flag but the one that this handler sets. */
	pqsignal(SIGTERM, die);
	if (ShutdownRequestPending)
		proc_exit(1);

	run = pgscale_trace_trigger_attach(number);
	if (run == NULL)
		proc_exit(0);
	CreateAuxProcessResourceOwner();
	CurrentResourceOwner = AuxProcessResourceOwner;

	began = pgscale_timer_clock();
	outcome = worker_trace(number, run);
	pgscale_trace_trigger_end(run, outcome, outcome == PGSCALE_TRACE_KEPT ? pgscale_timer_clock() - began : 0);
	proc_exit(0);
}
