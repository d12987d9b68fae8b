/*-------------------------------------------------------------------------
 *
 * deltas.c
 *	  Deltas of the server's counters since the latest row.
 *
 * A round reads all waits of the profile and computes the delta of each against the
 * baseline: its value when the latest row ended.  A hash of owner and event identifies
 * a wait.  With 5,000 waits, two of them collide once in 10^12 rounds.
 *
 * Where the profile has no room, it evicts entries into one entry for each wait event
 * ("other").  The time of an evicted entry then moves to that entry, including the part
 * that was archived before.  So the time that an earlier wait has lost is subtracted
 * from the "other" entry of its event: sums stay exact, and no time is archived twice.
 * The sampler also moves time from a wait to CPU when it learns later that the process
 * ran.  So a loss is first subtracted from the deltas of other waits of the same owner,
 * and the rest from its future deltas.  Both may happen to a wait, so what its "other"
 * entry has not got is its owner's.  After a reset everything in the profile is new.
 *
 * Counters come in the order of their names.  Each has a marker, a hash of its name and
 * of its reset time.  A counter is unknown for this row if its marker changed, if its
 * value fell, or if it follows a counter that an update of the extension added.  A
 * value without a marker is a gauge.
 *
 * A round stores the new baseline just before it commits, so no time is archived
 * twice.  If the commit itself fails, that row is a gap.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/shmem.h"
#include "utils/array.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "archive/archive.h"
#include "archive/deltas.h"
#include "archive/round_launcher.h"
#include "base/timer.h"
#include "base/units.h"

/* A row may cover that many periods if rounds have failed; longer times are gaps. */
#define MAX_PERIODS	5.5

/* To so much the clock and CLOCK_MONOTONIC must agree on how long ago it was. */
#define CLOCK_SLACK_US	(USECS_PER_SEC / 10)

/* What this round has found; in TopMemoryContext. */
static struct
{
	bool		active;
	int64		taken_ns;
	TimestampTz taken_at;
	int64		profile_reset;
	int			ncounters;
	PgscaleArchiveCounter counters[PGSCALE_ARCHIVE_COUNTERS];
	int			nwaits;
	PgscaleArchiveWait *waits;
}			found;

PG_FUNCTION_INFO_V1(pgscale_archive_wait_growth);
PG_FUNCTION_INFO_V1(pgscale_archive_counter_growth);

void
pgscale_archive_deltas_begin(TimestampTz *since, TimestampTz *until)
{
	int			capacity;
	const PgscaleArchiveBaseline *baseline = pgscale_archive_baseline(&capacity);
	int64		passed_us;

	memset(&found, 0, sizeof(found));
	found.active = true;
	found.taken_ns = pgscale_timer_clock();
	found.taken_at = *until = GetCurrentTimestamp();

	passed_us = (found.taken_ns - baseline->taken_ns) / 1000;
	*since = *until - passed_us;
	if (baseline->taken_ns == 0 || passed_us <= 0 ||
		passed_us / 1000 > MAX_PERIODS * (int64) pgscale_timer_period_ms(PGSCALE_ARCHIVE_PERIOD_MS))
	{
		*since = *until;
	}
	/* rows follow each other exactly where the clock was not set */
	else if (llabs(*since - baseline->taken_at) < CLOCK_SLACK_US && baseline->taken_at < *until)
		*since = baseline->taken_at;
}

void
pgscale_archive_deltas_keep(void)
{
	int			capacity;
	PgscaleArchiveBaseline *baseline = pgscale_archive_baseline(&capacity);

	baseline->taken_ns = 0;
	baseline->taken_at = found.taken_at;
	baseline->profile_reset = found.profile_reset;
	baseline->ncounters = found.ncounters;
	memcpy(baseline->counters, found.counters, sizeof(found.counters));
	baseline->nwaits = Min(found.nwaits, capacity);
	memcpy(baseline->waits, found.waits, baseline->nwaits * sizeof(PgscaleArchiveWait));
	/* without all waits it would be of no use */
	if (found.nwaits <= capacity)
		baseline->taken_ns = found.taken_ns;
}

static void
require_round(void)
{
	if (!found.active)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("only the archive's worker calls this function"),
				 errhint("Set pgscale.archive_database, and read pgscale.archive_waits and pgscale.archive_minutes.")));
}

static int
compare_keys(const void *a, const void *b)
{
	const int64 one = ((const PgscaleArchiveWait *) a)->key;
	const int64 other = ((const PgscaleArchiveWait *) b)->key;

	return one < other ? -1 : one > other;
}

static int
array_of(ArrayType *array, Oid type, int16 length, char align, Datum **values, bool **nulls)
{
	int			n;

	if (ARR_ELEMTYPE(array) != type)
		elog(ERROR, "wrong type of array");
	deconstruct_array(array, type, length, FLOAT8PASSBYVAL, align, values, nulls, &n);
	return n;
}

/* The waits of a round, and by how much each has grown. */
typedef struct Grown
{
	int			n;
	PgscaleArchiveWait *waits;
	bool	   *folded;
	double	   *ms;
} Grown;

/* Takes off as much as there is; returns what is left. */
static double
take_off(double *growth, double missing)
{
	const double part = Min(Max(*growth, 0), missing);

	*growth -= part;
	return missing - part;
}

static double
take_off_owner(Grown *grown, int64 owner, double missing)
{
	for (int i = 0; i < grown->n && missing > 0; i++)
		if (!grown->folded[i] && grown->waits[i].owner == owner)
			missing = take_off(&grown->ms[i], missing);
	return missing;
}

/* Of the folded one of that event. */
static double
take_off_event(Grown *grown, int64 event, double missing)
{
	for (int i = 0; i < grown->n && missing > 0; i++)
		if (grown->folded[i] && grown->waits[i].event == event)
			missing = take_off(&grown->ms[i], missing);
	return missing;
}

/* Of any folded one: events beyond those that have one of their own share one. */
static double
take_off_folded(Grown *grown, double missing)
{
	for (int i = 0; i < grown->n && missing > 0; i++)
		if (grown->folded[i])
			missing = take_off(&grown->ms[i], missing);
	return missing;
}

/* Future deltas of folded ones are less by that much. */
static void
owe_folded(Grown *grown, double missing)
{
	for (int i = 0; i < grown->n; i++)
		if (grown->folded[i])
		{
			grown->waits[i].ms += missing;
			return;
		}
}

static void
wait_growth(Grown *grown)
{
	int			capacity;
	const PgscaleArchiveBaseline *baseline = pgscale_archive_baseline(&capacity);
	const int	nold = baseline->profile_reset == found.profile_reset && baseline->taken_ns != 0 ? baseline->nwaits : 0;
	bool	   *matched = palloc0(Max(nold, 1) * sizeof(bool));

	for (int i = 0; i < grown->n; i++)
	{
		const PgscaleArchiveWait *before = bsearch(&grown->waits[i], baseline->waits, nold, sizeof(PgscaleArchiveWait), compare_keys);

		grown->ms[i] = grown->waits[i].ms - (before ? before->ms : 0);
		if (before)
			matched[before - baseline->waits] = true;
	}
	for (int i = 0; i < nold; i++)
	{
		double		missing = baseline->waits[i].ms;

		CHECK_FOR_INTERRUPTS();
		if (matched[i])
			continue;
		missing = take_off_event(grown, baseline->waits[i].event, missing);
		missing = take_off_owner(grown, baseline->waits[i].owner, missing);
		missing = take_off_folded(grown, missing);
		owe_folded(grown, missing);
	}
	for (int i = 0; i < grown->n; i++)
	{
		double		missing = -grown->ms[i];

		CHECK_FOR_INTERRUPTS();
		if (missing <= 0)
			continue;
		grown->ms[i] = 0;
		missing = take_off_owner(grown, grown->waits[i].owner, missing);
		missing = take_off_event(grown, grown->waits[i].event, missing);
		missing = take_off_folded(grown, missing);
		grown->waits[i].ms += missing;
	}
}

/*
 * pgscale_internal.archive_wait_growth(keys, ms): the delta of each wait; only the
 * archive's worker may call it. keys has the keys of all waits, then hashes of their
 * events, then of their owners, then 1 for evicted ones, and finally the time of the
 * profile's reset.
 */
Datum
pgscale_archive_wait_growth(PG_FUNCTION_ARGS)
{
	Datum	   *keys;
	Datum	   *ms;
	bool	   *nulls;
	Grown		grown;
	Datum	   *result;
	int			n;

	require_round();
	n = array_of(PG_GETARG_ARRAYTYPE_P(1), FLOAT8OID, sizeof(double), TYPALIGN_DOUBLE, &ms, &nulls);
	if (array_of(PG_GETARG_ARRAYTYPE_P(0), INT8OID, sizeof(int64), TYPALIGN_DOUBLE, &keys, &nulls) != 4 * n + 1)
		elog(ERROR, "wrong number of keys");
	found.profile_reset = DatumGetInt64(keys[4 * n]);

	grown.n = n;
	grown.waits = palloc(mul_size(Max(n, 1), sizeof(PgscaleArchiveWait)));
	grown.folded = palloc(mul_size(Max(n, 1), sizeof(bool)));
	grown.ms = palloc(mul_size(Max(n, 1), sizeof(double)));
	for (int i = 0; i < n; i++)
	{
		grown.waits[i].key = DatumGetInt64(keys[i]);
		grown.waits[i].event = DatumGetInt64(keys[n + i]);
		grown.waits[i].ms = DatumGetFloat8(ms[i]);
		grown.waits[i].owner = DatumGetInt64(keys[2 * n + i]);
		grown.folded[i] = DatumGetInt64(keys[3 * n + i]) != 0;
	}
	wait_growth(&grown);

	if (found.waits)
		pfree(found.waits);
	found.waits = MemoryContextAllocHuge(TopMemoryContext, Max(n, 1) * sizeof(PgscaleArchiveWait));
	memcpy(found.waits, grown.waits, n * sizeof(PgscaleArchiveWait));
	qsort(found.waits, n, sizeof(PgscaleArchiveWait), compare_keys);
	found.nwaits = n;

	result = palloc(Max(n, 1) * sizeof(Datum));
	for (int i = 0; i < n; i++)
		result[i] = Float8GetDatum(grown.ms[i]);
	PG_RETURN_ARRAYTYPE_P(construct_array(result, n, FLOAT8OID, sizeof(double), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

static bool
counter_growth(const PgscaleArchiveCounter *now, const PgscaleArchiveCounter *before, double *growth)
{
	*growth = now->value - before->value;
	return now->known && before->known && now->marker == before->marker && *growth >= 0;
}

/*
 * pgscale_internal.archive_counter_growth(values, markers): the delta of each counter,
 * NULL if unknown; only the archive's worker may call it.
 */
Datum
pgscale_archive_counter_growth(PG_FUNCTION_ARGS)
{
	int			capacity;
	const PgscaleArchiveBaseline *baseline = pgscale_archive_baseline(&capacity);
	const PgscaleArchiveCounter none = {0};
	Datum	   *values;
	Datum	   *markers;
	bool	   *no_value;
	bool	   *no_marker;
	Datum	   *result;
	bool	   *unknown;
	int			lower = 1;
	int			n;

	require_round();
	n = array_of(PG_GETARG_ARRAYTYPE_P(0), FLOAT8OID, sizeof(double), TYPALIGN_DOUBLE, &values, &no_value);
	if (array_of(PG_GETARG_ARRAYTYPE_P(1), INT8OID, sizeof(int64), TYPALIGN_DOUBLE, &markers, &no_marker) != n ||
		n > PGSCALE_ARCHIVE_COUNTERS)
		elog(ERROR, "wrong number of counters");
	result = palloc(Max(n, 1) * sizeof(Datum));
	unknown = palloc(Max(n, 1) * sizeof(bool));
	found.ncounters = n;
	for (int i = 0; i < n; i++)
	{
		PgscaleArchiveCounter *now = &found.counters[i];
		double		growth;

		memset(now, 0, sizeof(*now));
		now->known = !no_value[i] && !no_marker[i];
		now->value = no_value[i] ? 0 : DatumGetFloat8(values[i]);
		now->marker = no_marker[i] ? 0 : DatumGetInt64(markers[i]);
		unknown[i] = !counter_growth(now, i < baseline->ncounters && baseline->taken_ns != 0 ? &baseline->counters[i] : &none, &growth);
		if (no_marker[i])
		{
			unknown[i] = no_value[i];
			growth = now->value;
		}
		result[i] = Float8GetDatum(growth);
	}
	PG_RETURN_ARRAYTYPE_P(construct_md_array(result, unknown, 1, &n, &lower, FLOAT8OID, sizeof(double), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}
