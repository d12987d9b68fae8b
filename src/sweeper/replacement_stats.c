/*-------------------------------------------------------------------------
 *
 * replacement_stats.c
 *	  What the sweeper's policy has seen and chosen.
 *
 * Reads saved and expected reads: see forecast.c.  Counts that the sweeper's supply has,
 * too, are not repeated here: the view takes them from pgscale_internal.sweeper_stats().
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/pg_compat.h"
#include "base/preload.h"
#include "sweeper/known_pages.h"
#include "sweeper/saved_history.h"
#include "sweeper/shares.h"
#include "sweeper/sweeper.h"

PG_FUNCTION_INFO_V1(pgscale_replacement_stats);

/* Of what the policy reports. */
#define REPORT_COLUMNS	11

/* Subtracts what had been reported at the last reset, unless the memory was set up after that. */
static void
subtract_base(PgscaleSweeperPolicyReport *report, const PgscaleSweeperBase *base, int n, uint32 begun)
{
	const PgscaleSweeperPolicyReport *from = &base->policy[n];

	if (base->policy_begun[n] != begun)
		return;
	report->arrivals -= from->arrivals;
	report->evictions -= from->evictions;
	report->switches -= from->switches;
	report->references -= from->references;
	report->chosen_misses -= from->chosen_misses;
	for (int i = 0; i < PGSCALE_SWEEPER_CANDIDATES; i++)
		report->misses[i] -= from->misses[i];
	for (int g = 0; g < PGSCALE_SWEEPER_GROUPS; g++)
	{
		report->clock_group[g] -= from->clock_group[g];
		report->chosen_group[g] -= from->chosen_group[g];
	}
}

const char *
pgscale_sweeper_describe_choice(const PgscaleSweeperPolicyReport *report, int choice)
{
	const double half_life = report->half_lives[choice];

	return half_life == 0 ? "clock" : psprintf("half-life %g", half_life);
}

static Datum
float8_array(const double *values, int n)
{
	Datum		elements[PGSCALE_SWEEPER_CANDIDATES];

	for (int i = 0; i < n; i++)
		elements[i] = Float8GetDatum(values[i]);
	return PointerGetDatum(construct_array(elements, n, FLOAT8OID, sizeof(float8), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

static Datum
int8_array(const uint64 *values, int n)
{
	Datum		elements[PGSCALE_SWEEPER_CANDIDATES];

	for (int i = 0; i < n; i++)
		elements[i] = Int64GetDatum((int64) values[i]);
	return PointerGetDatum(construct_array(elements, n, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* Puts what is reported into the columns from the choice on. */
static void
put_report(const PgscaleSweeperPolicyReport *report, Datum *values, bool *nulls)
{
	PgscaleSweeperSaved saved = {0};
	const bool	estimated = pgscale_sweeper_reads_saved(report, &saved);
	int			i = 0;

	values[i++] = CStringGetTextDatum(pgscale_sweeper_describe_choice(report, report->choice));
	values[i++] = Int64GetDatum((int64) report->evictions);
	nulls[i] = !estimated;
	values[i++] = Int64GetDatum((int64) rint(saved.reads));
	nulls[i] = !saved.sure;
	values[i++] = Int64GetDatum((int64) rint(saved.low));
	nulls[i] = !saved.sure;
	values[i++] = Int64GetDatum((int64) rint(saved.high));
	values[i++] = Int64GetDatum((int64) report->switches);
	values[i++] = Int64GetDatum((int64) report->references);
	values[i++] = int8_array(report->misses, PGSCALE_SWEEPER_CANDIDATES);
	values[i++] = Int64GetDatum((int64) report->chosen_misses);
	values[i++] = float8_array(report->half_lives, PGSCALE_SWEEPER_CANDIDATES);
	values[i++] = Int64GetDatum((int64) report->sample);
	Assert(i == REPORT_COLUMNS);
}

/* How many of the buffers that were taken on the whole server were not ready ones?  *served: what fraction was. */
static int64
count_fallbacks(const PgscaleSweeperBase *base, double *served)
{
	const uint64 allocated = pgscale_sweeper_share(0)->counts.allocated - base->sweep[0].allocated;
	uint64		consumed = 0;

	for (int n = 0; n < pgscale_sweeper_count(); n++)
		consumed += pgscale_sweeper_share(n)->counts.consumed - base->sweep[n].consumed;
	/* the server counts later than the sweeper does */
	consumed = Min(consumed, allocated);
	*served = allocated > 0 ? (double) consumed / allocated : -1;
	return (int64) (allocated - consumed);
}

static const PgscaleSweeperShare *
share_of_buffer(int buf)
{
	int			n = 0;

	while (buf >= pgscale_sweeper_share(n)->first + pgscale_sweeper_share(n)->buffers)
		n++;
	return pgscale_sweeper_share(n);
}

/* The memory may change meanwhile; then a figure of one page is wrong, and no other. */
bool
pgscale_sweeper_page_worth(int buf, const PgscalePage *page, PgscalePageWorth *worth)
{
	const PgscaleSweeperShare *share = share_of_buffer(buf);
	const int	number = share->policy;
	const PgscaleSweeperPolicy *policy;

	if (number == PGSCALE_SWEEPER_NO_POLICY || !share->pages[buf - share->first].known ||
		share->pages[buf - share->first].hash != pgscale_buffer_page_hash(page))
		return false;
	policy = pgscale_sweeper_policies[number];
	worth->score = exp2(policy->score(share->policy_memory, buf - share->first));
	worth->may_leave = policy->rank(share->policy_memory, buf - share->first) == 0;
	return true;
}

/* pgscale_internal.replacement_stats(): one row a worker. */
Datum
pgscale_replacement_stats(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	PgscaleSweeperBase base;
	double		served;
	int64		fallbacks;

	pgscale_preload_require();
	InitMaterializedSRF(fcinfo, 0);

	/* Where the sweeper never was on, nothing has been counted yet. */
	pgscale_sweeper_base_init();
	pgscale_sweeper_base(&base);
	fallbacks = count_fallbacks(&base, &served);

	for (int n = 0; n < pgscale_sweeper_count(); n++)
	{
		const PgscaleSweeperShare *s = pgscale_sweeper_share(n);
		const int	policy = s->policy;
		const char *problem = pgscale_sweeper_saved_problem(s->restore_problem);
		PgscaleSweeperPolicyReport report;
		uint32		begun;
		uint64		misses[PGSCALE_SWEEPER_CANDIDATES] = {0};
		double		saved = 0;
		Datum		values[2 + REPORT_COLUMNS + 9] = {0};
		bool		nulls[2 + REPORT_COLUMNS + 9] = {0};
		int			i = 0;

		values[i++] = Int32GetDatum(n + 1);
		/* before it was ever at work, the one that it would begin with */
		values[i++] = CStringGetTextDatum(pgscale_sweeper_policies[policy < 0 || s->observing ? pgscale_sweeper_settings.policy : policy]->name);
		if (pgscale_sweeper_policy_report(s, &report, &begun))
		{
			subtract_base(&report, &base, n, begun);
			put_report(&report, values + i, nulls + i);
		}
		else
			memset(nulls + i, true, REPORT_COLUMNS);
		i += REPORT_COLUMNS;
		pgscale_sweeper_forecast_add(misses, &s->forecast);
		nulls[i] = !pgscale_sweeper_forecast_saved(misses, PGSCALE_SWEEPER_ADAPTIVE, &saved);
		values[i++] = Float8GetDatum(Min(-saved, 0));
		nulls[i] = served < 0;
		values[i++] = Float8GetDatum(served);
		values[i++] = Int64GetDatum(fallbacks);
		values[i++] = Int64GetDatum((int64) (s->counts.observed - base.sweep[n].observed));
		values[i++] = Int64GetDatum((int64) (s->counts.unobserved - base.sweep[n].unobserved));
		values[i++] = Int64GetDatum((int64) s->restored);
		nulls[i] = problem == NULL;
		if (problem)
			values[i] = CStringGetTextDatum(problem);
		i++;
		values[i++] = Int64GetDatum((int64) pgscale_sweeper_memory_size(s->buffers));
		nulls[i] = base.reset_at == 0;
		values[i++] = TimestampTzGetDatum(base.reset_at);
		Assert(i == lengthof(values));

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
