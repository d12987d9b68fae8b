/*-------------------------------------------------------------------------
 *
 * trigger.h
 *	  The trigger: traces without a request.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_TRACE_TRIGGER_H
#define PGSCALE_TRACE_TRIGGER_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "port/atomics.h"

#include "base/evidence.h"
#include "base/processes.h"
#include "base/shared_area.h"
#include "trace/trace.h"

/* Figures that are watched; each is a number of sessions, on average over a second. */
typedef enum PgscaleTraceFigure
{
	PGSCALE_TRACE_LOCK_WAITS,	/* that waited for a lock or an LWLock */
	PGSCALE_TRACE_ACTIVE_SESSIONS
} PgscaleTraceFigure;

#define PGSCALE_TRACE_FIGURES	(PGSCALE_TRACE_ACTIVE_SESSIONS + 1)

/* A figure that has left its usual range. */
typedef struct PgscaleTraceAlarm
{
	PgscaleTraceFigure figure;
	double		sessions;		/* what it was */
	double		usual;			/* its median before that */
	double		limit;			/* what it has exceeded */
	TimestampTz since;			/* when it left the range */
} PgscaleTraceAlarm;

/* How a trace that the trigger began has ended. */
typedef enum PgscaleTraceOutcome
{
	PGSCALE_TRACE_BEGUN,
	PGSCALE_TRACE_KEPT,
	PGSCALE_TRACE_NO_SLOT,		/* for the background worker */
	PGSCALE_TRACE_NO_PLACE,		/* others trace */
	PGSCALE_TRACE_NO_SESSION,	/* none to trace */
	PGSCALE_TRACE_NO_BUDGET
} PgscaleTraceOutcome;

#define PGSCALE_TRACE_OUTCOMES	(PGSCALE_TRACE_NO_BUDGET + 1)

/* A trace that was begun; its place in the ring is its number's. */
typedef struct PgscaleTraceRun
{
	PgscaleTraceAlarm alarm;
	int			duration_ms;
	pg_atomic_uint64 began_ns;	/* by pgscale_timer_clock() */
	pg_atomic_uint64 spent_ns;	/* time of tracing; before it is over, the
								 * most it may be */
} PgscaleTraceRun;

/* trigger.c: when */

extern const PgscaleArea pgscale_trace_trigger_area;

extern void pgscale_trace_trigger_define_gucs(void);
extern void pgscale_trace_trigger_observe(const PgscaleObservation *observation);

/* How it is, if it is on; else returns false. */
extern bool pgscale_trace_trigger_health(PgscaleHealth *health);

/*
 * For the worker: the run of that number, which is this process' until it ends; NULL
 * if another process traces.
 */
extern PgscaleTraceRun *pgscale_trace_trigger_attach(int number);
extern void pgscale_trace_trigger_end(PgscaleTraceRun *run, PgscaleTraceOutcome outcome, int64 spent_ns);

/* trigger_worker.c: of whom */

#define PGSCALE_TRACE_WORKER_MAIN	"pgscale_trace_trigger_main"

/* trace_history.c: what is kept */

extern const PgscaleArea pgscale_trace_history_area;

extern void pgscale_trace_history_reset(void);
extern void pgscale_trace_history_add(int number, const PgscaleTraceAlarm *alarm, const PgscaleTrace *trace,
									  const PgscaleProcClient *client);

#endif							/* PGSCALE_TRACE_TRIGGER_H */
