/*-------------------------------------------------------------------------
 *
 * controller.h
 *	  Decides whether the sweeper works.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SWEEPER_CONTROLLER_H
#define PGSCALE_SWEEPER_CONTROLLER_H

#include "postgres.h"

#include "base/units.h"
#include "sweeper/shared.h"

/*
 * How long to gather evidence before judging.  It begins to work when it has a reason twice in a
 * row, so that the second time shows what was before; and it loses twice in a row.
 */
#define PGSCALE_SWEEPER_WATCH_NS	(5 * NS_PER_S)
#define PGSCALE_SWEEPER_WORK_NS		(10 * NS_PER_S)

/* How long sessions run for a transaction. */
typedef struct PgscaleSweeperCost
{
	double		ms;				/* 0: unknown */
	double		per_s;			/* transactions */
	double		error;			/* its standard error, as a fraction of it */
} PgscaleSweeperCost;

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
	double		reading;		/* sessions that wait to read a page, mean */
	uint64		allocations;	/* of buffers, by all processes */
	bool		forecast;		/* are the savings of reads known? */
	double		saved;			/* fraction of the reads */
	double		most;			/* buffers that it can offer a second */
	int64		transactions;	/* less than 0: unknown */
	double		running;		/* sessions that execute a statement, mean, */
	double		running_error;	/* and its standard error */
	bool		always;			/* it is to work without a proof of its use */
} PgscaleSweeperEvidence;

typedef struct PgscaleSweeperDecision
{
	PgscaleSweeperState state;	/* WATCHING or WORKING */
	PgscaleSweeperReason reason;
	double		number;			/* that belongs to the reason */
	int64		since_ns;
	int64		rest_ns;		/* how long to rest at least */
	bool		again;			/* there was a reason to work, or a loss, when
								 * it last judged */
	PgscaleSweeperCost before;	/* while it works: what was before */
} PgscaleSweeperDecision;

/* Is evidence of that time enough to judge?  Before that, transactions need not be counted. */
static inline bool
pgscale_sweeper_due(const PgscaleSweeperDecision *decision, int64 ns)
{
	return ns >= (decision->state == PGSCALE_SWEEPER_WORKING ? PGSCALE_SWEEPER_WORK_NS : PGSCALE_SWEEPER_WATCH_NS);
}

/*
 * Returns whether the evidence was enough to judge, and hence is used up; the
 * decision may be as before.  now_ns is of a monotonic clock.
 */
extern bool pgscale_sweeper_decide(PgscaleSweeperDecision *decision, const PgscaleSweeperEvidence *evidence,
								   int64 now_ns);

/* How many writers the sweeper has. */
typedef struct PgscaleSweeperWriterCount
{
	int			writers;
	bool		few_slots;		/* it needs more, and the server has no slot */
	int			relaxed_s;		/* seconds without pressure */
	int			short_s;		/* seconds with it, and without a slot */
} PgscaleSweeperWriterCount;

/*
 * Once a second: pressed is the fraction of time in which nearly nothing was ready
 * although all writers wrote; running, how many there are; most, how many there may
 * be; slots, those that the server can spare, less than 0 if it needs some back.
 */
extern void pgscale_sweeper_decide_writers(PgscaleSweeperWriterCount *count, double pressed, int running, int most, int slots);

/* In words. */
extern char *pgscale_sweeper_reason(PgscaleSweeperReason reason, double number);

/* Has it been seen, if that is the reason, that the sweeper would be of no use? */
extern bool pgscale_sweeper_is_no_use(PgscaleSweeperReason reason);

#endif							/* PGSCALE_SWEEPER_CONTROLLER_H */
