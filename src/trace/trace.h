/*-------------------------------------------------------------------------
 *
 * trace.h
 *	  The feature: every wait of one process, while another one watches it.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_TRACE_H
#define PGSCALE_TRACE_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "base/processes.h"
#include "pgscale.h"
#include "trace/cycles.h"

extern const PgscaleModule pgscale_trace_module;

/*
 * A time in which the target waited for the same all the while, or for nothing.
 * Times are pgscale_trace_cycles_now()'s.
 */
typedef struct PgscaleTraceStretch
{
	uint64		start;
	uint64		end;
	int64		queryid;		/* 0 if unknown, or outside a statement */
	uint32		event;
	bool		spans_gap;		/* it was not watched all the time */
} PgscaleTraceStretch;

/* totals.c: stretches added up by event */

typedef struct PgscaleTraceTotals PgscaleTraceTotals;

/* Those of one event.  Quantiles are off by 3.2 % at most, all else is exact. */
typedef struct PgscaleTraceTotal
{
	uint32		event;
	uint64		count;
	uint64		spans_gap;		/* of these */
	uint64		total;
	uint64		min;
	uint64		max;
	double		p50;
	double		p95;
	double		p99;
} PgscaleTraceTotal;

extern PgscaleTraceTotals *pgscale_trace_totals_create(void);
extern void pgscale_trace_totals_add(PgscaleTraceTotals *totals, const PgscaleTraceStretch *stretch);

/* Returns how many, in order of their time, longest first. */
extern int	pgscale_trace_totals_list(const PgscaleTraceTotals *totals, PgscaleTraceTotal **list);

/* watch.c: watching a process */

typedef enum PgscaleTraceEnd
{
	PGSCALE_TRACE_DURATION,		/* the time was over */
	PGSCALE_TRACE_MAX_EVENTS,
	PGSCALE_TRACE_TARGET_ENDED,
	PGSCALE_TRACE_STATEMENT_ENDED,
	PGSCALE_TRACE_NO_STATEMENT	/* none began */
} PgscaleTraceEnd;

typedef struct PgscaleTrace
{
	/* What is asked for */
	int			slot;
	PgscaleProc target;			/* as it was when it was chosen */
	bool		statement;		/* its next one only */
	int64		timeout_ns;		/* until that begins */
	int64		duration_ns;
	int			max_stretches;	/* room in stretches[] */
	PgscaleTraceStretch *stretches; /* or NULL */
	PgscaleTraceTotals *totals; /* or NULL */

	/* What was found */
	int			nstretches;
	PgscaleTraceEnd end;
	TimestampTz began_at;
	PgscaleTraceMoment began;
	double		per_ns;			/* cycles */
	uint64		first;			/* when it was watched */
	uint64		last;
	uint64		gaps_total;		/* times without a reading, of more than
								 * PGSCALE_TRACE_GAP_NS */
	uint64		gaps_longest;
} PgscaleTrace;

/*
 * A watcher that reads again within this time misses next to nothing: the shortest
 * waits, for a page in the kernel's cache, take about that long.
 */
#define PGSCALE_TRACE_GAP_NS	500

/*
 * The number of concurrent traces, each of which takes a CPU; 0 if there is one CPU.  A
 * trace holds an advisory lock of this class.
 */
extern int	pgscale_trace_places(void);

#define PGSCALE_TRACE_LOCK_CLASS	0x74726163

/*
 * Returns false if that many are running already.  Needs a resource owner, no
 * transaction.  Errors: only those of interrupts.
 */
extern bool pgscale_trace_watch(PgscaleTrace *trace);

/* What was found: cycles in other units; how much of the time was watched; why it ended. */
extern double pgscale_trace_us(const PgscaleTrace *trace, double cycles);
extern TimestampTz pgscale_trace_timestamp(const PgscaleTrace *trace, uint64 cycles);
extern double pgscale_trace_watched(const PgscaleTrace *trace);
extern const char *pgscale_trace_end_name(PgscaleTraceEnd end);

#endif							/* PGSCALE_TRACE_H */
