/*-------------------------------------------------------------------------
 *
 * forecast.c
 *	  How many reads another choice of pages would save.
 *
 * The policy "adaptive" has shadow caches (policies/shadow.c), which see one sequence of
 * references, each with another choice of the pages that leave.  So what a half-life
 * misses, divided by what the clock misses, is how many reads it would leave of those
 * that the server does.  The clock's shadow is the measure, and not the real cache: what
 * is missing in the sequence is missing for all of them.
 *
 * The figures are of the last two to four turnovers of the cache.  The first two count for
 * nothing, because every page is new then to all of them.  Half-lives that are longer go
 * on learning after that; then a forecast is lower than what comes true.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sweeper/forecast.h"

/* A period: in that many turnovers the clock's shadow misses as many pages as it has room for so often. */
#define PERIOD_TURNOVERS	2

/* The first period that counts. */
#define FIRST_PERIOD		2

/* The clock among the candidates. */
#define THE_CLOCK			0

void
pgscale_sweeper_forecast_go_on(PgscaleSweeperForecast *forecast, const PgscaleSweeperPolicyReport *report,
							   uint32 begun, int buffers)
{
	if (!report)
	{
		forecast->known = false;
		return;
	}
	if (begun != forecast->begun)
	{
		memset(forecast, 0, sizeof(PgscaleSweeperForecast));
		forecast->begun = begun;
	}
	if ((report->misses[THE_CLOCK] - forecast->next[THE_CLOCK]) * report->sample >= (uint64) PERIOD_TURNOVERS * buffers)
	{
		memcpy(forecast->from, forecast->next, sizeof(forecast->from));
		memcpy(forecast->next, report->misses, sizeof(forecast->next));
		forecast->periods++;
	}
	for (int i = 0; i < PGSCALE_SWEEPER_CANDIDATES; i++)
		forecast->misses[i] = report->misses[i] - forecast->from[i];
	forecast->known = forecast->periods >= FIRST_PERIOD;
}

void
pgscale_sweeper_forecast_add(uint64 *sum, const PgscaleSweeperForecast *forecast)
{
	if (!forecast->known)
		return;
	for (int i = 0; i < PGSCALE_SWEEPER_CANDIDATES; i++)
		sum[i] += forecast->misses[i];
}

bool
pgscale_sweeper_forecast_saved(const uint64 *misses, double *saved)
{
	uint64		least = PG_UINT64_MAX;

	if (misses[THE_CLOCK] == 0)
		return false;
	for (int i = 0; i < PGSCALE_SWEEPER_CANDIDATES; i++)
		if (i != THE_CLOCK)
			least = Min(least, misses[i]);
	*saved = 1 - (double) least / misses[THE_CLOCK];
	return true;
}
