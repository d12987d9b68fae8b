/*-------------------------------------------------------------------------
 *
 * replacement_stats.c
 *	  What the sweeper's policy has seen and chosen.
 *
 * Reads saved: the shadow caches of the policy "adaptive" see the same references, each
 * with another choice of pages.  So the misses of the clock, divided by those of the
 * choice that was in force at the time, are the reads that the server would have done for
 * each that it did.  It did about one for each eviction.
 *
 * Expected reads: see forecast.c.
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

/* An estimate of less evidence would mean nothing. */
#define ENOUGH_MISSES	1000

/* What a policy had reported at the last reset, or when it began if that was later. */
static PgscaleSweeperPolicyReport
report_base(const PgscaleSweeperBase *base, int n, uint32 begun)
{
	const PgscaleSweeperPolicyReport nothing = {0};

	return base->policy_begun[n] == begun ? base->policy[n] : nothing;
}

static text *
describe_choice(const PgscaleSweeperPolicyReport *report)
{
	const double half_life = report->half_lives[report->choice];

	return cstring_to_text(half_life == 0 ? "clock" : psprintf("half-life %g", half_life));
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

/* Puts what is reported into the columns from evictions on. */
static void
put_report(PgscaleSweeperPolicyReport report, const PgscaleSweeperPolicyReport *base, Datum *values, bool *nulls)
{
	const uint64 evictions = report.evictions - base->evictions;
	const uint64 chosen_misses = report.chosen_misses - base->chosen_misses;
	int			i = 0;

	for (int c = 0; c < PGSCALE_SWEEPER_CANDIDATES; c++)
		report.misses[c] -= base->misses[c];

	values[i++] = Int64GetDatum((int64) evictions);
	if (chosen_misses >= ENOUGH_MISSES)
		values[i] = Int64GetDatum((int64) rint(evictions * ((double) report.misses[0] / chosen_misses - 1)));
	else
		nulls[i] = true;
	i++;
	values[i++] = Int64GetDatum((int64) (report.switches - base->switches));
	values[i++] = Int64GetDatum((int64) (report.references - base->references));
	values[i++] = int8_array(report.misses, PGSCALE_SWEEPER_CANDIDATES);
	values[i++] = Int64GetDatum((int64) chosen_misses);
	values[i++] = float8_array(report.half_lives, PGSCALE_SWEEPER_CANDIDATES);
	values[i++] = Int64GetDatum((int64) report.sample);
}

#define REPORT_COLUMNS	8

/* pgscale_internal.replacement_stats(): one row a worker. */
Datum
pgscale_replacement_stats(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	PgscaleSweeperBase base;

	pgscale_preload_require();
	InitMaterializedSRF(fcinfo, 0);

	/* Where the sweeper never was on, nothing has been counted yet. */
	pgscale_sweeper_base_init();
	pgscale_sweeper_base(&base);

	for (int n = 0; n < pgscale_sweeper_count(); n++)
	{
		const PgscaleSweeperShare *s = pgscale_sweeper_share(n);
		const int	policy = s->policy;
		const char *problem = pgscale_sweeper_saved_problem(s->restore_problem);
		PgscaleSweeperPolicyReport report;
		uint32		begun;
		uint64		misses[PGSCALE_SWEEPER_CANDIDATES] = {0};
		double		saved = 0;
		Datum		values[3 + REPORT_COLUMNS + 7] = {0};
		bool		nulls[3 + REPORT_COLUMNS + 7] = {0};
		int			i = 0;

		values[i++] = Int32GetDatum(n + 1);
		/* before it was ever at work, the one that it would begin with */
		values[i++] = CStringGetTextDatum(pgscale_sweeper_policies[policy < 0 || s->observing ? pgscale_sweeper_settings.policy : policy]->name);
		if (pgscale_sweeper_policy_report(s, &report, &begun))
		{
			const PgscaleSweeperPolicyReport from = report_base(&base, n, begun);

			values[i] = PointerGetDatum(describe_choice(&report));
			put_report(report, &from, values + i + 1, nulls + i + 1);
		}
		else
			memset(nulls + i, true, 1 + REPORT_COLUMNS);
		i += 1 + REPORT_COLUMNS;
		pgscale_sweeper_forecast_add(misses, &s->forecast);
		nulls[i] = !pgscale_sweeper_forecast_saved(misses, &saved);
		values[i++] = Float8GetDatum(Min(-saved, 0));
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
