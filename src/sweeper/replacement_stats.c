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
#include "sweeper/partitions.h"
#include "sweeper/segment.h"
#include "sweeper/sweeper.h"

PG_FUNCTION_INFO_V1(pgscale_replacement_stats);

/* Of what the policy reports. */
#define REPORT_COLUMNS	11

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
	const uint64 allocated = pgscale_sweeper_partition(0)->counts.allocated - base->sweep[0].allocated;
	uint64		consumed = 0;

	for (int n = 0; n < pgscale_sweeper_count(); n++)
		consumed += pgscale_sweeper_partition(n)->counts.consumed - base->sweep[n].consumed;
	/* the server counts later than the sweeper does */
	consumed = Min(consumed, allocated);
	*served = allocated > 0 ? (double) consumed / allocated : -1;
	return (int64) (allocated - consumed);
}

/* The memories of all sweepers that run, from begin() to end(). */
static PgscaleSweeperMemory memories[PGSCALE_SWEEPER_MAX_WORKERS];

static void
worths_begin(void)
{
	/* those of a call that an error ended are not mapped any more */
	memset(memories, 0, sizeof(memories));
	for (int n = 0; n < pgscale_sweeper_count(); n++)
		(void) pgscale_sweeper_memory_attach(pgscale_sweeper_partition(n), &memories[n]);
}

static void
worths_end(void)
{
	for (int n = 0; n < pgscale_sweeper_count(); n++)
		if (memories[n].segment)
			dsm_detach(memories[n].segment);
}

/* The memory may change meanwhile; then a figure of one page is wrong, and no other. */
static bool
worth_of(int buf, const PgscalePage *page, PgscalePageWorth *worth)
{
	const PgscaleSweeperPartition *partition;
	const PgscaleSweeperMemory *memory;
	const PgscaleSweeperPolicy *policy;
	int			kind;
	int			n = 0;

	while (buf >= pgscale_sweeper_partition(n)->first + pgscale_sweeper_partition(n)->buffers)
		n++;
	partition = pgscale_sweeper_partition(n);
	memory = &memories[n];
	kind = partition->policy;	/* once: another sweeper may begin meanwhile */
	buf -= partition->first;
	if (!memory->segment || kind == PGSCALE_SWEEPER_NO_POLICY ||
		!memory->pages[buf].known || memory->pages[buf].hash != pgscale_buffer_page_hash(page))
		return false;
	policy = pgscale_sweeper_policies[kind];
	worth->score = exp2(policy->score(memory->policy, buf));
	worth->may_leave = policy->rank(memory->policy, buf) == 0;
	return true;
}

const PgscalePageWorths pgscale_sweeper_worths = {worths_begin, worth_of, worths_end};

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
		PgscaleSweeperPartition *s = pgscale_sweeper_partition(n);
		const int	policy = s->policy;
		PgscaleSweeperPolicyReport report;
		uint64		misses[PGSCALE_SWEEPER_CANDIDATES] = {0};
		double		saved = 0;
		Datum		values[2 + REPORT_COLUMNS + 9] = {0};
		bool		nulls[2 + REPORT_COLUMNS + 9] = {0};
		int			i = 0;

		values[i++] = Int32GetDatum(n + 1);
		/* before it was ever at work, the one that it would begin with */
		values[i++] = CStringGetTextDatum(pgscale_sweeper_policies[policy < 0 || s->observing ? pgscale_sweeper_settings.policy : policy]->name);
		if (pgscale_sweeper_reported(s, &report))
		{
			pgscale_sweeper_report_add(&report, &base.policy[n], true);
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
		nulls[i] = s->restore_problem[0] == '\0';
		values[i++] = CStringGetTextDatum(s->restore_problem);
		values[i++] = Int64GetDatum((int64) pgscale_sweeper_memory_size(s->buffers));
		nulls[i] = base.reset_at == 0;
		values[i++] = TimestampTzGetDatum(base.reset_at);
		Assert(i == lengthof(values));

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
