/*-------------------------------------------------------------------------
 *
 * forecast.h
 *	  How many reads another choice of pages would save.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SWEEPER_FORECAST_H
#define PGSCALE_SWEEPER_FORECAST_H

#include "postgres.h"

#include "sweeper/policy/policy.h"

/*
 * How much the sweeper sees of what happens, in buffers that were taken, or that the server's
 * hand has passed.  Cumulative; one process writes it.
 */
typedef struct PgscaleSweeperCoverage
{
	int64		seen;
	int64		missed;			/* an estimate; it may fall */
} PgscaleSweeperCoverage;

/*
 * Misses of the policy's shadow caches in the last periods, and since.  One process
 * writes it; any process reads the last three fields.  It writes the copy that is not
 * current, and then makes it that, ten times a second at most.
 */
typedef struct PgscaleSweeperForecast
{
	uint64		start;			/* which of the sweeper's starts it is of */
	int			periods;		/* that have ended */
	uint64		from[PGSCALE_SWEEPER_CANDIDATES];	/* before the last period */
	uint64		next[PGSCALE_SWEEPER_CANDIDATES];	/* at its end */
	PgscaleSweeperCoverage from_coverage;	/* what was seen by then */
	PgscaleSweeperCoverage next_coverage;
	volatile bool known;
	volatile int current;		/* copy */
	uint64		misses[2][PGSCALE_SWEEPER_CANDIDATES];
} PgscaleSweeperForecast;

/* Goes on with what the policy of that many buffers reports now. */
extern void pgscale_sweeper_forecast_go_on(PgscaleSweeperForecast *forecast, const PgscaleSweeperPolicyReport *report,
										   uint64 start, int buffers, const PgscaleSweeperCoverage *coverage);

/*
 * The fraction of the clock's misses that the best half-life saves; less than 0 if it misses
 * more.  Returns false if that is not known.
 */
extern bool pgscale_sweeper_forecast_saved(const PgscaleSweeperForecast *forecast, double *saved);

/* Reads that the clock would have made in addition, with an interval of 95 %. */
typedef struct PgscaleSweeperSaved
{
	double		reads;
	bool		sure;			/* is the interval known? */
	double		low;
	double		high;
} PgscaleSweeperSaved;

/* By what the policy has reported since some time.  Returns false if that is too little. */
extern bool pgscale_sweeper_reads_saved(const PgscaleSweeperPolicyReport *report, PgscaleSweeperSaved *saved);

#endif							/* PGSCALE_SWEEPER_FORECAST_H */
