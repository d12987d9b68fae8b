/*-------------------------------------------------------------------------
 *
 * history_waits.c
 *	  The history's samples as time that was waited, added up; and which time it knows.
 *
 * A sample stands for the time that ends with its look.  Of that the parts count that
 * lie in the times asked for, and in each bucket of time of the size asked for.  All
 * that differs in nothing but the process is one row, since texts and rows cost a
 * hundred times as much as the samples: an hour of a ring takes a few milliseconds.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/pg_compat.h"
#include "base/wait_events.h"
#include "pgscale.h"
#include "sampler/blocker_profile.h"
#include "sampler/history.h"
#include "sampler/sampler.h"

/* Buckets may be so long, and no shorter unless each look is to be a row of its own. */
#define RESOLUTION_MIN_S	1.0
#define RESOLUTION_MAX_S	1e9

/* Hashed and compared as bytes. */
typedef struct HistoryWaitKey
{
	TimestampTz begin;
	TimestampTz end;
	int64		queryid;
	Oid			datid;
	Oid			userid;
	uint32		wait_event;
	int			root_pid;
	PgscaleSamplerRoot root;
	uint16		dimension;
	PgscaleProcKind kind;
	uint8		unused[5];
} HistoryWaitKey;

typedef struct HistoryWait
{
	HistoryWaitKey key;
	char		status;
	int64		us;
} HistoryWait;

#define SH_PREFIX		history_sums
#define SH_ELEMENT_TYPE HistoryWait
#define SH_KEY_TYPE		HistoryWaitKey
#define SH_KEY			key
#define SH_HASH_KEY(tb, k)	hash_bytes((const unsigned char *) &(k), sizeof(k))
#define SH_EQUAL(tb, a, b)	(memcmp(&(a), &(b), sizeof(a)) == 0)
#define SH_SCOPE		static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

typedef struct TimeRange
{
	TimestampTz begin;
	TimestampTz end;
} TimeRange;

typedef struct HistorySums
{
	const TimeRange *ranges;	/* in order, none within another */
	int			nranges;
	int64		bucket_us;		/* 0: none */
	history_sums_hash *hash;
	uint64		next;			/* number of the next sample */
	bool		partial;		/* of the look at this time some are gone */
	TimestampTz partial_at;
} HistorySums;

PG_FUNCTION_INFO_V1(pgscale_history_waits);
PG_FUNCTION_INFO_V1(pgscale_history_coverage);

/* Adds a part of the time of a sample. */
static void
add_part(HistorySums *sums, const PgscaleSamplerSample *sample, TimestampTz begin, TimestampTz end, int64 us)
{
	HistoryWaitKey key = {0};
	HistoryWait *wait;
	bool		found;

	key.begin = begin;
	key.end = end;
	key.queryid = sample->queryid;
	key.datid = sample->datid;
	key.userid = sample->userid;
	key.wait_event = sample->wait_event;
	key.root_pid = sample->root_pid;
	key.root = sample->root;
	key.dimension = sample->dimension;
	key.kind = sample->kind;
	wait = history_sums_insert(sums->hash, key, &found);
	wait->us = (found ? wait->us : 0) + us;
}

/* The same of a part within one range, bucket by bucket. */
static void
add_by_bucket(HistorySums *sums, const PgscaleSamplerSample *sample, const TimeRange *range,
			  TimestampTz begin, TimestampTz end)
{
	const int64 size = sums->bucket_us;

	if (size == 0)
	{
		add_part(sums, sample, begin, end, end - begin);
		return;
	}
	while (begin < end)
	{
		const int64 over = begin % size;
		const TimestampTz bucket = begin - (over < 0 ? over + size : over);
		const TimestampTz next = Min(end, bucket + size);

		add_part(sums, sample, Max(bucket, range->begin), Min(bucket + size, range->end), next - begin);
		begin = next;
	}
}

/* The first range that ends after a time. */
static int
find_range(const HistorySums *sums, TimestampTz at)
{
	int			low = 0;
	int			high = sums->nranges;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (sums->ranges[middle].end > at)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/*
 * If samples were overwritten while others were read, then all that are older count no
 * more, nor does a look that has lost some of its samples.
 */
static void
visit_sample(uint64 number, const PgscaleSamplerSample *sample, void *arg)
{
	HistorySums *sums = arg;
	const TimestampTz begin = sample->sampled_at - sample->period_us;

	if (number != sums->next)
	{
		history_sums_reset(sums->hash);
		sums->partial = true;
		sums->partial_at = sample->sampled_at;
	}
	sums->next = number + 1;
	sums->partial = sums->partial && sample->sampled_at == sums->partial_at;
	if (sums->partial)
		return;
	if (pgscale_wait_is_idle(sample->kind, sample->wait_event))
		return;
	for (int i = find_range(sums, begin); i < sums->nranges && sums->ranges[i].begin < sample->sampled_at; i++)
	{
		const TimeRange *range = &sums->ranges[i];

		add_by_bucket(sums, sample, range, Max(begin, range->begin), Min(sample->sampled_at, range->end));
	}
}

/* The sums, and what the numbers in them stand for, with no reset between the two. */
static PgscaleSamplerDimensions *
sum_with_dimensions(HistorySums *sums)
{
	for (;;)
	{
		const uint64 before = pgscale_sampler_dimensions_begin_read();
		const uint64 history_before = pgscale_sampler_history_begin_read();
		PgscaleSamplerSpans spans;
		PgscaleSamplerDimensions *dimensions;
		uint64		first;

		pgscale_sampler_history_spans(&spans, &first);
		sums->next = first;
		sums->partial = false;
		if (!pgscale_sampler_history_visit(first, spans.end, visit_sample, sums))
			history_sums_reset(sums->hash);
		dimensions = pgscale_sampler_dimensions_copy();
		if (pgscale_sampler_history_unchanged(history_before) && pgscale_sampler_dimensions_unchanged(before))
			return dimensions;
		history_sums_reset(sums->hash);
		if (dimensions)
			pfree(dimensions);
		CHECK_FOR_INTERRUPTS();
	}
}

/* The ranges from two arrays of the same length. */
static TimeRange *
ranges_of(ArrayType *begins, ArrayType *ends, int *n)
{
	Datum	   *begin,
			   *end;
	int			nbegin,
				nend;
	TimeRange  *ranges;

	if (array_contains_nulls(begins) || array_contains_nulls(ends))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("times must not be null"),
				 errhint("Use pgscale.past_waits(), which calls this function.")));
	deconstruct_array(begins, TIMESTAMPTZOID, sizeof(TimestampTz), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, &begin, NULL, &nbegin);
	deconstruct_array(ends, TIMESTAMPTZOID, sizeof(TimestampTz), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, &end, NULL, &nend);
	ranges = palloc(Max(nbegin, 1) * sizeof(TimeRange));
	*n = nbegin;
	for (int i = 0; i < nbegin && nbegin == nend; i++)
	{
		ranges[i].begin = DatumGetTimestampTz(begin[i]);
		ranges[i].end = DatumGetTimestampTz(end[i]);
		if (ranges[i].begin > ranges[i].end || (i > 0 && ranges[i].begin < ranges[i - 1].end))
			nend = -1;
	}
	if (nbegin != nend)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("each time must begin after the end of the one before, and before its own end"),
				 errhint("Use pgscale.past_waits(), which calls this function.")));
	return ranges;
}

/*
 * pgscale.history_waits(begins, ends, resolution_s): time waited within these times, which
 * must be in order, by all that samples tell but the process, in buckets of so many
 * seconds since 2000; 0: each look is a bucket.  Idle waits are left out.  Errors:
 * invalid_parameter_value, null_value_not_allowed.
 */
Datum
pgscale_history_waits(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	const double resolution_s = PG_GETARG_FLOAT8(2);
	const bool	reads_all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
	PgscaleSamplerDimensions *dimensions;
	PgscaleSamplerRoots *roots;
	HistorySums sums = {0};
	history_sums_iterator it;
	HistoryWait *wait;

	pgscale_require_preload();
	if (isnan(resolution_s) || resolution_s > RESOLUTION_MAX_S ||
		(resolution_s != 0 && resolution_s < RESOLUTION_MIN_S))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("resolution must be 0, or from %g s to %g s", RESOLUTION_MIN_S, RESOLUTION_MAX_S),
				 errhint("0 tells each look of the sampler.")));
	sums.bucket_us = (int64) (resolution_s * USECS_PER_SEC);
	sums.ranges = ranges_of(PG_GETARG_ARRAYTYPE_P(0), PG_GETARG_ARRAYTYPE_P(1), &sums.nranges);
	sums.hash = history_sums_create(CurrentMemoryContext, 1024, NULL);
	InitMaterializedSRF(fcinfo, 0);

	dimensions = sum_with_dimensions(&sums);
	roots = pgscale_sampler_roots_copy();
	history_sums_start_iterate(sums.hash, &it);
	while ((wait = history_sums_iterate(sums.hash, &it)) != NULL)
	{
		const HistoryWaitKey *key = &wait->key;
		const char *application_name = NULL;
		const char *address = NULL;
		const char *root_application = pgscale_sampler_root_application(roots, &key->root);
		Datum		values[12] = {0};
		bool		nulls[12] = {0};

		CHECK_FOR_INTERRUPTS();

		if (reads_all || key->userid == GetUserId())
			pgscale_sampler_dimension(dimensions, key->dimension, &application_name, &address);
		values[0] = TimestampTzGetDatum(key->begin);
		values[1] = Float8GetDatum((key->end - key->begin) / (double) USECS_PER_SEC);
		values[2] = CStringGetTextDatum(pgscale_sampler_type_name(key->kind));
		values[3] = ObjectIdGetDatum(key->datid);
		nulls[3] = !OidIsValid(key->datid);
		values[4] = ObjectIdGetDatum(key->userid);
		nulls[4] = !OidIsValid(key->userid);
		nulls[5] = application_name == NULL;
		if (application_name)
			values[5] = CStringGetTextDatum(application_name);
		values[6] = Int64GetDatum(key->queryid);
		nulls[6] = key->queryid == 0;
		values[7] = CStringGetTextDatum(pgscale_wait_event_type(key->wait_event));
		values[8] = CStringGetTextDatum(pgscale_wait_event_name(key->wait_event));
		values[9] = Int32GetDatum(key->root_pid);
		nulls[9] = key->root_pid == PGSCALE_SAMPLER_NO_PID;
		nulls[10] = root_application == NULL;
		if (root_application)
			values[10] = CStringGetTextDatum(root_application);
		values[11] = Float8GetDatum(wait->us / 1000.0);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* pgscale.history_coverage(): the times that the history knows all of. */
Datum
pgscale_history_coverage(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	PgscaleSamplerSpans spans;
	uint64		before;
	uint64		first;

	pgscale_require_preload();
	InitMaterializedSRF(fcinfo, 0);

	do
	{
		CHECK_FOR_INTERRUPTS();
		before = pgscale_sampler_history_begin_read();
		pgscale_sampler_history_spans(&spans, &first);
	}
	while (!pgscale_sampler_history_unchanged(before));

	for (int i = 0; i < spans.n; i++)
	{
		const PgscaleSamplerSpan *span = &spans.spans[i];
		Datum		values[2];
		bool		nulls[2] = {0};

		if (span->begin >= span->end)
			continue;
		values[0] = TimestampTzGetDatum(span->begin);
		values[1] = Float8GetDatum((span->end - span->begin) / (double) USECS_PER_SEC);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
