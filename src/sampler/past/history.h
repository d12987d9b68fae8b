/*-------------------------------------------------------------------------
 *
 * history.h
 *	  The latest single samples and the times of their ticks, as they are in shared
 *	  memory.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_HISTORY_H
#define PGSCALE_SAMPLER_HISTORY_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "base/processes.h"
#include "sampler/samples.h"

/* A pid that is not known; 0 is a prepared transaction. */
#define PGSCALE_SAMPLER_NO_PID	(-1)

/* What a stored tick saw of one process. */
typedef struct PgscaleSamplerSample
{
	TimestampTz sampled_at;
	int64		queryid;
	int			pid;
	Oid			datid;
	Oid			userid;
	uint32		wait_event;
	int			blocker_pid;	/* or PGSCALE_SAMPLER_NO_PID */
	int			root_pid;		/* or that */
	uint32		period_us;		/* the time that it stands for, which ends
								 * with the tick */
	uint16		label;			/* see session_labels.c */
	PgscaleProcKind kind;
	uint8		state;
	PgscaleSamplerRoot root;	/* the root's entry of the blocker profile;
								 * zeroes: not known */
} PgscaleSamplerSample;

/* A time without a gap between stored ticks.  Ticks without any active process count, too. */
typedef struct PgscaleSamplerSpan
{
	TimestampTz begin;
	TimestampTz end;
	uint64		first;			/* number of its first sample, if it has any */
} PgscaleSamplerSpan;

#define PGSCALE_SAMPLER_SPANS	256

/* The latest ones, oldest first.  A clock that was set makes a new one. */
typedef struct PgscaleSamplerSpans
{
	uint64		end;			/* samples below are of the spans */
	int			n;
	PgscaleSamplerSpan spans[PGSCALE_SAMPLER_SPANS];
} PgscaleSamplerSpans;

/* The longest time that a sample stands for. */
#define PGSCALE_SAMPLER_LATE	3
#define PGSCALE_SAMPLER_HISTORY_PERIOD_MAX	(60 * 1000)

/* In any process. */

/*
 * The spans of which the samples are still there, and the number of the first one that
 * counts.  All samples below spans->end are of them.
 */
extern void pgscale_sampler_history_spans(PgscaleSamplerSpans *spans, uint64 *first);

/*
 * Calls for each of those that are still there when it comes by, with its number; oldest
 * first.  Returns false if the last one was gone, so that what was visited is older than
 * all that is left.
 */
typedef void (*PgscaleSamplerVisit) (uint64 number, const PgscaleSamplerSample *sample, void *arg);

extern bool pgscale_sampler_history_visit(uint64 first, uint64 end, PgscaleSamplerVisit visit, void *arg);

/*
 * While there is no other process: the newest samples, at most that many, in two parts,
 * either of which may be empty, with the spans numbered from 0, without a wait and
 * without an error (false if the sampler ended within a change); and the same from an
 * earlier server.
 */
typedef struct PgscaleSamplerHistoryParts
{
	const PgscaleSamplerSample *samples[2];
	uint64		n[2];
	PgscaleSamplerSpans spans;
} PgscaleSamplerHistoryParts;

extern bool pgscale_sampler_history_parts(uint64 most, PgscaleSamplerHistoryParts *parts);
extern void pgscale_sampler_history_restore(const PgscaleSamplerSample *samples, uint64 n, const PgscaleSamplerSpans *spans);

#endif							/* PGSCALE_SAMPLER_HISTORY_H */
