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

/* trigger.c: when, and of whom */

extern const PgscaleArea pgscale_trace_trigger_area;

extern void pgscale_trace_trigger_define_gucs(void);
extern void pgscale_trace_trigger_observe(const PgscaleObservation *observation);

/* How it is, if it is on; else returns false. */
extern bool pgscale_trace_trigger_health(PgscaleHealth *health);

/* trace_history.c: what is kept */

extern const PgscaleArea pgscale_trace_history_area;

extern void pgscale_trace_history_reset(void);
extern void pgscale_trace_history_add(int number, const PgscaleTraceAlarm *alarm, const PgscaleTrace *trace,
									  const PgscaleProcClient *client);

#endif							/* PGSCALE_TRACE_TRIGGER_H */
