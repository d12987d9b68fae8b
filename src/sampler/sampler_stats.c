/*-------------------------------------------------------------------------
 *
 * sampler_stats.c
 *	  How well the sampler keeps its schedule, and what it costs.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "port/pg_bitutils.h"
#include "storage/shmem.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/preload.h"
#include "sampler/profile/profile.h"
#include "sampler/sampler_stats.h"

static PgscaleSamplerStats *stats = NULL;

PG_FUNCTION_INFO_V1(pgscale_sampler_stats);

Size
pgscale_sampler_stats_size(void)
{
	return sizeof(PgscaleSamplerStats);
}

PgscaleSamplerStats *
pgscale_sampler_stats_startup(void)
{
	bool		found;

	stats = ShmemInitStruct("pgscale sampler stats", sizeof(*stats), &found);
	if (!found)
	{
		memset(stats, 0, sizeof(*stats));
		pgscale_change_init(&stats->changes);
	}
	return stats;
}

void
pgscale_sampler_stats_tick(int64 late_ns, uint64 missed, int64 observed_ns, int64 spent_ns,
						   int64 active_ns, int64 in_transaction_ns)
{
	int64		late_us = Max(late_ns, 0) / 1000;
	int			class = late_us == 0 ? 0 : pg_leftmost_one_pos64(late_us) + 1;

	pgscale_change_begin_write(&stats->changes);
	stats->ticks++;
	stats->missed += missed;
	stats->lateness[Min(class, PGSCALE_LATENESS_CLASSES - 1)]++;
	stats->lateness_ns += Max(late_ns, 0);
	stats->lateness_max_ns = Max(stats->lateness_max_ns, late_ns);
	stats->observed_ns += observed_ns;
	stats->active_ns += active_ns;
	stats->in_transaction_ns += in_transaction_ns;
	stats->tick_ns += spent_ns;
	stats->tick_max_ns = Max(stats->tick_max_ns, spent_ns);
	pgscale_change_end_write(&stats->changes);
}

void
pgscale_sampler_stats_connections(TimestampTz wall, int connections)
{
	if (stats->connections_since != 0 && connections <= stats->connections_peak)
		return;
	pgscale_change_begin_write(&stats->changes);
	if (stats->connections_since == 0)
		stats->connections_since = wall;
	stats->connections_peak = connections;
	pgscale_change_end_write(&stats->changes);
}

void
pgscale_sampler_stats_copy(PgscaleSamplerStats *copy)
{
	pgscale_change_copy(&stats->changes, copy, stats, sizeof(*copy));
}

void
pgscale_sampler_stats_reset(void)
{
	pgscale_change_begin_write(&stats->changes);
	memset((char *) stats + offsetof(PgscaleSamplerStats, ticks), 0,
		   sizeof(*stats) - offsetof(PgscaleSamplerStats, ticks));
	pgscale_change_end_write(&stats->changes);
}

/*
 * The lateness in microseconds below which a share of all ticks was, taken as
 * evenly spread within its class.
 */
static double
lateness_quantile(const PgscaleSamplerStats *s, double share)
{
	double		wanted = s->ticks * share;
	double		seen = 0;

	for (int i = 0; i < PGSCALE_LATENESS_CLASSES; i++)
	{
		double		low = i == 0 ? 0 : (double) (INT64CONST(1) << (i - 1));
		double		high = (double) (INT64CONST(1) << i);

		if (s->lateness[i] > 0 && seen + s->lateness[i] >= wanted)
			return Min(low + (high - low) * (wanted - seen) / s->lateness[i],
					   s->lateness_max_ns / 1e3);
		seen += s->lateness[i];
	}
	return s->lateness_max_ns / 1e3;
}

/* pgscale_internal.sampler_stats(): one row. */
Datum
pgscale_sampler_stats(PG_FUNCTION_ARGS)
{
	TupleDesc	desc;
	PgscaleSamplerStats s;
	PgscaleSamplerProfileTotals totals;
	Datum		values[25] = {0};
	bool		nulls[25] = {0};
	Datum		classes[PGSCALE_LATENESS_CLASSES];
	int			i = 0;

	pgscale_preload_require();
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");

	pgscale_sampler_stats_copy(&s);
	pgscale_sampler_profile_totals(&totals);
	for (int c = 0; c < PGSCALE_LATENESS_CLASSES; c++)
		classes[c] = Int64GetDatum((int64) s.lateness[c]);

	nulls[i] = (s.pid == 0);
	values[i++] = Int32GetDatum(s.pid);
	values[i++] = Int64GetDatum((int64) s.starts);
	nulls[i] = (s.period_ns == 0);
	values[i++] = Float8GetDatum(s.period_ns / 1e6);
	values[i++] = Int64GetDatum((int64) s.ticks);
	values[i++] = Int64GetDatum((int64) s.missed);
	nulls[i] = nulls[i + 1] = nulls[i + 2] = nulls[i + 3] = (s.ticks == 0);
	values[i++] = Float8GetDatum(s.ticks ? s.lateness_ns / 1e3 / s.ticks : 0);
	values[i++] = Float8GetDatum(lateness_quantile(&s, 0.5));
	values[i++] = Float8GetDatum(lateness_quantile(&s, 0.99));
	values[i++] = Float8GetDatum(s.lateness_max_ns / 1e3);
	values[i++] = PointerGetDatum(construct_array(classes, PGSCALE_LATENESS_CLASSES,
												  INT8OID, sizeof(int64),
												  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	values[i++] = Float8GetDatum(s.observed_ns / 1e6);
	values[i++] = Float8GetDatum(s.active_ns / 1e6);
	values[i++] = Float8GetDatum(s.in_transaction_ns / 1e6);
	nulls[i] = nulls[i + 1] = (s.ticks == 0);
	values[i++] = Float8GetDatum(s.ticks ? s.tick_ns / 1e3 / s.ticks : 0);
	values[i++] = Float8GetDatum(s.tick_max_ns / 1e3);
	values[i++] = Float8GetDatum(s.cpu_ns / 1e6);
	nulls[i] = (s.observed_ns == 0);
	values[i++] = Float8GetDatum(s.observed_ns ? (double) s.cpu_ns / s.observed_ns : 0);
	values[i++] = Int64GetDatum((int64) totals.samples);
	values[i++] = Float8GetDatum(totals.ns / 1e6);
	values[i++] = Int32GetDatum(totals.used);
	values[i++] = Int64GetDatum((int64) totals.evictions);
	values[i++] = Int64GetDatum((int64) s.retries);
	values[i++] = Int64GetDatum((int64) s.readings);
	values[i++] = Int64GetDatum((int64) s.blocker_looks);
	values[i++] = TimestampTzGetDatum(totals.reset_at);

	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}
