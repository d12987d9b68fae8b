/*-------------------------------------------------------------------------
 *
 * forecast.c
 *	  How many reads another choice of pages would save, and how many it has saved.
 *
 * The policy has shadow caches (policy/shadow.c), which see one sequence of
 * references, each with another choice of the pages that leave.  So what a half-life
 * misses, divided by what the clock misses, is how many reads it would leave of those
 * that the server does.  The clock's shadow is the measure, and not the real cache: what
 * is missing in the sequence is missing for all of them.
 *
 * The figures are of the last two to four turnovers of the cache.  The first two count for
 * nothing, because every page is new then to all of them.  Half-lives that are longer go
 * on learning after that; then a forecast is lower than what comes true.
 *
 * A sequence of which most is missing forecasts nothing: pages that come and go between two
 * looks of the sweeper are not in it, and of a loop over many pages a random part is left,
 * in which no page is worth more than another.  So nothing is known while less was seen
 * than was missed.
 *
 * Reads saved: the misses of the clock, divided by those of the choice that was in force at
 * the time, are the reads that the server would have done for each that it did.  It did
 * about one for each page that arrived.  With the misses c of the clock and m of the choice
 * in each of n groups of pages, a arrivals, and sums C and M:
 *
 *		saved = a * (C / M - 1)
 *		variance of C / M = n / (n - 1) * sum((c - m * C / M)^2) / M^2
 *
 * That is the ratio estimate of a sample of clusters (Cochran, Sampling Techniques, 1977,
 * section 6.3 and 9.3): pages are the sample, and all references to one are in one group.
 * The interval is of Student's t with n - 1 degrees of freedom.  It is about the sample; that a
 * shadow cache is not the real one is not in it.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "port/atomics.h"

#include "sweeper/forecast.h"

/* A period: in that many turnovers the clock's shadow misses as many pages as it has room for so often. */
#define PERIOD_TURNOVERS	2

/* The first period that counts. */
#define FIRST_PERIOD		2

/* An estimate of fewer misses would mean nothing. */
#define ENOUGH_MISSES		1000

/* Of Student's t, for an interval of 95 % by all groups. */
#define T_OF_GROUPS			2.131
StaticAssertDecl(PGSCALE_SWEEPER_GROUPS == 16, "quantile of t has 15 degrees of freedom");

void
pgscale_sweeper_forecast_go_on(PgscaleSweeperForecast *forecast, const PgscaleSweeperPolicyReport *report,
							   uint64 start, int buffers, const PgscaleSweeperCoverage *coverage)
{
	if (start != forecast->start)
	{
		memset(forecast, 0, sizeof(PgscaleSweeperForecast));
		forecast->start = start;
		forecast->next_coverage = *coverage;
	}
	if ((report->misses[PGSCALE_SWEEPER_CANDIDATE_CLOCK] - forecast->next[PGSCALE_SWEEPER_CANDIDATE_CLOCK]) * report->sample >= (uint64) PERIOD_TURNOVERS * buffers)
	{
		memcpy(forecast->from, forecast->next, sizeof(forecast->from));
		memcpy(forecast->next, report->misses, sizeof(forecast->next));
		forecast->from_coverage = forecast->next_coverage;
		forecast->next_coverage = *coverage;
		forecast->periods++;
	}
	for (int i = 0; i < PGSCALE_SWEEPER_CANDIDATES; i++)
		forecast->misses[1 - forecast->current][i] = report->misses[i] - forecast->from[i];
	pg_write_barrier();
	forecast->current = 1 - forecast->current;
	forecast->known = forecast->periods >= FIRST_PERIOD &&
		coverage->missed - forecast->from_coverage.missed <= coverage->seen - forecast->from_coverage.seen;
}

bool
pgscale_sweeper_forecast_saved(const PgscaleSweeperForecast *forecast, double *saved)
{
	const uint64 *misses = forecast->misses[forecast->current];
	uint64		least = PG_UINT64_MAX;

	if (!forecast->known)
		return false;
	pg_read_barrier();
	if (misses[PGSCALE_SWEEPER_CANDIDATE_CLOCK] == 0)
		return false;
	for (int i = 0; i < PGSCALE_SWEEPER_CANDIDATES; i++)
		if (i != PGSCALE_SWEEPER_CANDIDATE_CLOCK)
			least = Min(least, misses[i]);
	*saved = 1 - (double) least / misses[PGSCALE_SWEEPER_CANDIDATE_CLOCK];
	return true;
}

bool
pgscale_sweeper_reads_saved(const PgscaleSweeperPolicyReport *report, PgscaleSweeperSaved *saved)
{
	const double m = report->chosen_misses;
	const int	n = report->groups;
	double		ratio;
	double		squares = 0;
	double		error;

	if (report->chosen_misses < ENOUGH_MISSES)
		return false;
	ratio = report->misses[PGSCALE_SWEEPER_CANDIDATE_CLOCK] / m;
	for (int g = 0; g < n; g++)
	{
		const double off = report->clock_group[g] - report->chosen_group[g] * ratio;

		squares += off * off;
	}
	saved->reads = report->arrivals * (ratio - 1);
	saved->sure = n == PGSCALE_SWEEPER_GROUPS;
	error = report->arrivals * T_OF_GROUPS * sqrt(squares * n / Max(n - 1, 1)) / m;
	saved->low = saved->reads - error;
	saved->high = saved->reads + error;
	return true;
}
