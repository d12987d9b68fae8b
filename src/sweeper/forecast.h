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

#include "sweeper/policies/policy.h"

/*
 * Of a share: misses of its shadow caches in the last periods, and since.  One process
 * writes it; any process reads the last two fields.
 */
typedef struct PgscaleSweeperForecast
{
	uint32		begun;			/* which beginning of the policy's it is of */
	int			periods;		/* that have ended */
	uint64		from[PGSCALE_SWEEPER_CANDIDATES];	/* before the last period */
	uint64		next[PGSCALE_SWEEPER_CANDIDATES];	/* at its end */
	volatile bool known;
	uint64		misses[PGSCALE_SWEEPER_CANDIDATES];
} PgscaleSweeperForecast;

/* Goes on with what the policy of that many buffers reports now; NULL: it has nothing to report. */
extern void pgscale_sweeper_forecast_go_on(PgscaleSweeperForecast *forecast, const PgscaleSweeperPolicyReport *report,
										   uint32 begun, int buffers);

/* Adds the misses to a sum, if they are known. */
extern void pgscale_sweeper_forecast_add(uint64 *sum, const PgscaleSweeperForecast *forecast);

/*
 * The fraction of the clock's misses that the best half-life saves, less than 0 if it
 * misses more.  Returns false if there are no misses.
 */
extern bool pgscale_sweeper_forecast_saved(const uint64 *misses, double *saved);

#endif							/* PGSCALE_SWEEPER_FORECAST_H */
