/*-------------------------------------------------------------------------
 *
 * controller.h
 *	  Whether the sweeper should work.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SWEEPER_CONTROLLER_H
#define PGSCALE_SWEEPER_CONTROLLER_H

#include "postgres.h"

#include "sweeper/shared_state.h"

/* What was seen since the evidence was last taken for a decision. */
typedef struct PgscaleSweeperEvidence
{
	int64		ns;				/* how long it was gathered */
	double		waiting;		/* sessions that wait to write a page, mean */
	uint64		supplied;		/* pages: made ready */
	uint64		consumed;		/* taken */
	uint64		written;		/* written for that */
	uint64		runs;
	uint64		write_ns;
	uint64		starved;		/* ticks that found nothing ready */
} PgscaleSweeperEvidence;

typedef struct PgscaleSweeperDecision
{
	PgscaleSweeperState state;	/* WATCHING or WORKING */
	PgscaleSweeperReason reason;
	double		number;			/* that belongs to the reason */
	int64		since_ns;
	int64		rest_ns;		/* how long to rest at least */
} PgscaleSweeperDecision;

/*
 * Returns whether the evidence was enough to judge, and hence is used up; the
 * decision may be as before.  now_ns is of a monotonic clock.
 */
extern bool pgscale_sweeper_decide(PgscaleSweeperDecision *decision, const PgscaleSweeperEvidence *evidence,
								   int64 now_ns);

/* In words. */
extern char *pgscale_sweeper_reason(PgscaleSweeperReason reason, double number);

#endif							/* PGSCALE_SWEEPER_CONTROLLER_H */
