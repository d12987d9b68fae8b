/*-------------------------------------------------------------------------
 *
 * trace.c
 *	  The SQL functions: check the target and the limits, trace, return rows.
 *
 * A role that may see a session's statement in pg_stat_activity may trace it, given
 * EXECUTE on the function.  Only superusers have that privilege by default, because a
 * trace takes a CPU.
 *
 * A row is a stretch or an event.  Each row ends with the quality of the whole trace:
 * the watched fraction, the longest gap, and why it ended.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/row_builder.h"
#include "base/three_digits.h"
#include "base/units.h"
#include "base/wait_events.h"
#include "trace/trace.h"
#include "trace/trigger.h"

#define MAX_DURATION_MS	(60 * 60 * 1000)
#define MAX_EVENTS		1000000

/* Rows to put out between two checks for interrupts. */
#define PIECE			1024

PG_FUNCTION_INFO_V1(pgscale_trace_waits);
PG_FUNCTION_INFO_V1(pgscale_trace_summary);

static int64
argument_ns(FunctionCallInfo fcinfo, int n, const char *name)
{
	const double ms = pgscale_interval_ms(PG_GETARG_INTERVAL_P(n));

	if (!(ms > 0 && ms <= MAX_DURATION_MS))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be more than 0 and at most 1 hour", name),
				 errhint("Trace for some seconds; pgscale.wait_profile shows what a server waits for all the time.")));
	return (int64) (ms * NS_PER_MS);
}

static int
argument_max_events(FunctionCallInfo fcinfo, int n)
{
	const int	max_events = PG_GETARG_INT32(n);

	if (max_events < 1 || max_events > MAX_EVENTS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_events must be from 1 to %d", MAX_EVENTS),
				 errhint("pgscale.trace_summary takes no memory for each event, and has no such limit.")));
	return max_events;
}

/* Finds the process, and checks that the caller may trace it. */
static void
trace_find(PgscaleTrace *trace, int pid)
{
	PgscaleProc *proc = &trace->target;

	trace->slot = pgscale_procs_find(pid, proc);
	if (trace->slot < 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("no server process has PID %d", pid),
				 errhint("pgscale.wait_current lists the processes.")));
	if (pid == MyProcPid)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a session cannot trace itself"),
				 errhint("Call it in a second session, with the PID that pg_backend_pid() returns in the first.")));
	if (!has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) &&
		!(OidIsValid(proc->userid) && has_privs_of_role(GetUserId(), proc->userid)))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to trace process %d", pid),
				 errhint("Only roles with privileges of pg_read_all_stats, or of the role of that session, may trace it.")));
	if (proc->changecount == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("process %d does not publish its state", pid),
				 errhint("It is just starting or ending, or has no row in pg_stat_activity.")));
}

static void
trace_check_cpus(void)
{
	if (pgscale_trace_places() == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a trace needs a second CPU"),
				 errdetail("It takes one CPU while it runs, and the server may use fewer than two."),
				 errhint("Let the server use more CPUs; pgscale.wait_profile and pgscale.wait_history take next to none.")));
}

static void
trace_statements_only(const PgscaleProc *proc)
{
	if (proc->kind != (PgscaleProcKind) B_BACKEND)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("process %d is not a client backend", proc->pid),
				 errhint("Without statement_within any process can be traced.")));
	if ((BackendState) proc->state == STATE_DISABLED)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("process %d does not report when a statement begins", proc->pid),
				 errhint("Set track_activities to on in that session.")));
}

static void
trace_run(PgscaleTrace *trace)
{
	if (!pgscale_trace_watch(trace))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many traces at a time"),
				 errdetail("Each takes a CPU; on this machine there may be %d at a time.", pgscale_trace_places()),
				 errhint("Wait until one has ended, or cancel it: pg_locks shows its process under classid %u.",
						 PGSCALE_TRACE_LOCK_CLASS)));
	if (trace->end == PGSCALE_TRACE_NO_STATEMENT)
		ereport(NOTICE,
				(errmsg("process %d began no statement in time", trace->target.pid),
				 errhint("A statement that runs already is not traced. Allow more time, or leave out statement_within.")));
}

/* The last columns of each row, equal in all rows of a trace; ends the row. */
static void
trace_put_quality(PgscaleRow *row, ReturnSetInfo *rsinfo, const PgscaleTrace *trace)
{
	pgscale_row_float8(row, pgscale_trace_watched(trace));
	pgscale_row_float8(row, pgscale_trace_us(trace, trace->gaps_longest));
	pgscale_row_text(row, pgscale_trace_end_name(trace->end));
	pgscale_row_end(row, rsinfo);
}

static void
trace_put_stretch(ReturnSetInfo *rsinfo, const PgscaleTrace *trace, int n)
{
	const PgscaleTraceStretch *stretch = &trace->stretches[n];
	PgscaleRow	row = {0};

	pgscale_row_int4(&row, n + 1);
	pgscale_row_timestamp(&row, pgscale_trace_timestamp(trace, stretch->start));
	pgscale_row_text(&row, pgscale_wait_event_type(stretch->event));
	pgscale_row_text(&row, pgscale_wait_event_name(stretch->event));
	pgscale_row_float8(&row, pgscale_trace_us(trace, stretch->end - stretch->start));
	pgscale_row_id(&row, stretch->queryid);
	pgscale_row_bool(&row, stretch->spans_gap);
	trace_put_quality(&row, rsinfo, trace);
}

/* Traces, and returns one row a stretch. */
static Datum
trace_stretches(FunctionCallInfo fcinfo, PgscaleTrace *trace)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	const Size	size = trace->max_stretches * sizeof(PgscaleTraceStretch);

	InitMaterializedSRF(fcinfo, 0);
	trace->stretches = palloc(size);
	/* So that the kernel need not provide the memory later, which takes time. */
	memset(trace->stretches, 0, size);
	trace_run(trace);

	for (int n = 0; n < trace->nstretches; n++)
	{
		if (n % PIECE == 0)
			CHECK_FOR_INTERRUPTS();
		trace_put_stretch(rsinfo, trace, n);
	}
	pfree(trace->stretches);
	return (Datum) 0;
}

static void
trace_put_total(ReturnSetInfo *rsinfo, const PgscaleTrace *trace, const PgscaleTraceTotal *total)
{
	const double times[] = {
		total->min, (double) total->total / total->count, total->p50, total->p95, total->p99, total->max
	};
	PgscaleRow	row = {0};

	pgscale_row_text(&row, pgscale_wait_event_type(total->event));
	pgscale_row_text(&row, pgscale_wait_event_name(total->event));
	pgscale_row_int8(&row, total->count);
	pgscale_row_float8(&row, pgscale_three_digits(pgscale_trace_us(trace, total->total) / 1000));
	pgscale_row_float8(&row, trace->last > trace->first ?
					   pgscale_three_digits((double) total->total / (trace->last - trace->first)) : NAN);
	for (int i = 0; i < lengthof(times); i++)
		pgscale_row_float8(&row, pgscale_three_digits(pgscale_trace_us(trace, times[i])));
	pgscale_row_int8(&row, total->spans_gap);
	pgscale_row_timestamp(&row, pgscale_trace_timestamp(trace, trace->first));
	trace_put_quality(&row, rsinfo, trace);
}

/* Traces, and returns one row an event. */
static Datum
trace_totals(FunctionCallInfo fcinfo, PgscaleTrace *trace)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	PgscaleTraceTotal *totals;
	int			n;

	InitMaterializedSRF(fcinfo, 0);
	trace->totals = pgscale_trace_totals_create();
	trace_run(trace);
	n = pgscale_trace_totals_list(trace->totals, &totals);
	for (int i = 0; i < n; i++)
		trace_put_total(rsinfo, trace, &totals[i]);
	return (Datum) 0;
}

/* Is one of the first n arguments null?  Then there is nothing to trace, and no row. */
static bool
trace_nothing(FunctionCallInfo fcinfo, int n)
{
	for (int i = 0; i < n; i++)
		if (PG_ARGISNULL(i))
		{
			InitMaterializedSRF(fcinfo, 0);
			return true;
		}
	return false;
}

/*
 * Fills in what the arguments say: a process and for how long, and in argument
 * number within how long to wait for a statement, if only that is to be traced.
 */
static void
trace_begin(FunctionCallInfo fcinfo, PgscaleTrace *trace, int within)
{
	memset(trace, 0, sizeof(*trace));
	trace->statement = !PG_ARGISNULL(within);
	if (trace->statement)
		trace->timeout_ns = argument_ns(fcinfo, within, "statement_within");
	trace->duration_ns = argument_ns(fcinfo, 1, "duration");
	trace_check_cpus();
	trace_find(trace, PG_GETARG_INT32(0));
	if (trace->statement)
		trace_statements_only(&trace->target);
}

/* pgscale.trace_waits(pid, duration, max_events, statement_within): what a process waits for, one by one. */
Datum
pgscale_trace_waits(PG_FUNCTION_ARGS)
{
	PgscaleTrace trace;
	int			max_events;

	if (trace_nothing(fcinfo, 3))
		return (Datum) 0;
	max_events = argument_max_events(fcinfo, 2);
	trace_begin(fcinfo, &trace, 3);
	trace.max_stretches = max_events;
	return trace_stretches(fcinfo, &trace);
}

/* pgscale.trace_summary(pid, duration, statement_within): the same by event. */
Datum
pgscale_trace_summary(PG_FUNCTION_ARGS)
{
	PgscaleTrace trace;

	if (trace_nothing(fcinfo, 2))
		return (Datum) 0;
	trace_begin(fcinfo, &trace, 2);
	return trace_totals(fcinfo, &trace);
}

static void
trace_health(PgscaleHealth *health)
{
	const bool	triggered = pgscale_trace_trigger_health(health);
	const char *why;

	if (pgscale_trace_places() == 0)
	{
		health->state = triggered ? PGSCALE_HEALTH_BROKEN : PGSCALE_HEALTH_OFF;
		health->reason = "a trace takes a CPU, and the server may use fewer than two";
		health->action = "let the server use more CPUs";
	}
	else if (triggered)
		return;
	else
	{
		health->state = PGSCALE_HEALTH_IDLE;
		health->reason = "traces when asked, by the time-stamp counter";
		if (!pgscale_trace_cycles_usable(&why))
			health->reason = psprintf("traces when asked, by clock_gettime: %s", why);
	}
}

const PgscaleModule pgscale_trace_module = {
	.name = "trace",
	.define_gucs = pgscale_trace_trigger_define_gucs,
	.areas = (const PgscaleArea *const[]) {&pgscale_trace_trigger_area, &pgscale_trace_history_area, NULL},
	.observe = pgscale_trace_trigger_observe,
	.reset = pgscale_trace_history_reset,
	.health = trace_health
};
