/*-------------------------------------------------------------------------
 *
 * past.c
 *	  The waits of a period, from the archive and from memory.
 *
 * The archive is read first, with one snapshot, and then memory for the times that the
 * archive does not have.  A row that is written meanwhile is not in the snapshot, so
 * its time comes from memory: nothing counts twice, and nothing is missing.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/pg_compat.h"
#include "base/preload.h"
#include "sampler/past/past.h"

/* Buckets may be that long, and no shorter unless each tick is to be a row. */
#define RESOLUTION_MIN_S	1.0
#define RESOLUTION_MAX_S	1e9

/* The history does not begin before this time. */
#define EARLIEST	((TimestampTz) (UNIX_EPOCH_JDATE - POSTGRES_EPOCH_JDATE) * USECS_PER_DAY)

PG_FUNCTION_INFO_V1(pgscale_past_waits);
PG_FUNCTION_INFO_V1(pgscale_past_coverage);

bool
pgscale_sampler_past_is_session(const char *backend_type)
{
	return backend_type && (strcmp(backend_type, "client backend") == 0 || strcmp(backend_type, "parallel worker") == 0 ||
							strcmp(backend_type, "other") == 0);
}

PgscaleSamplerPastRange
pgscale_sampler_past_period(FunctionCallInfo fcinfo)
{
	const bool	has_since = !PG_ARGISNULL(0);
	const bool	has_until = !PG_ARGISNULL(1);
	const TimestampTz since = has_since ? PG_GETARG_TIMESTAMPTZ(0) : 0;
	const TimestampTz until = has_until ? PG_GETARG_TIMESTAMPTZ(1) : 0;
	PgscaleSamplerPastRange period;

	if (has_since && has_until && since > until)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("since must not be later than until"),
				 errhint("Swap the two times, or leave one out.")));
	period.end = GetCurrentTimestamp();
	if (has_until)
		period.end = Min(period.end, until);
	period.end = Max(period.end, EARLIEST);
	period.begin = Min(has_since ? since : period.end - USECS_PER_HOUR, period.end);
	if (period.begin < EARLIEST)
	{
		const TimestampTz history = pgscale_sampler_past_memory_begin();
		const TimestampTz timeline = pgscale_sampler_past_timeline_begin();
		const TimestampTz archive = pgscale_sampler_past_archive_begin();

		period.begin = Min(Min(history, timeline), archive);
		period.begin = Min(Max(period.begin, EARLIEST), period.end);
	}
	return period;
}

/* The times that the archive has, as they come. */
typedef struct Archived
{
	PgscaleSamplerPastReader *reader;
	MemoryContext context;
	PgscaleSamplerPastRange *ranges;
	int			n;
	int			size;
} Archived;

static void
archived_span(const PgscaleSamplerPastRange *range, double known_ms, bool archived, const char *node, void *arg)
{
	Archived   *into = arg;

	if (into->n == into->size)
	{
		into->size *= 2;
		into->ranges = repalloc_huge(into->ranges, into->size * sizeof(PgscaleSamplerPastRange));
	}
	into->ranges[into->n++] = *range;
	into->reader->visit_span(range, known_ms, archived, node, into->reader->arg);
}

static void
archived_wait(const PgscaleSamplerPastRange *range, const PgscaleSamplerPastKey *key, double ms, void *arg)
{
	PgscaleSamplerPastReader *reader = ((Archived *) arg)->reader;

	reader->visit_wait(range, key, ms, reader->arg);
}

static void
archived_class(const PgscaleSamplerPastRange *range, PgscaleSamplerPastText class, double ms, void *arg)
{
	PgscaleSamplerPastReader *reader = ((Archived *) arg)->reader;

	reader->visit_class(range, class, ms, reader->arg);
}

static int
compare_ranges(const void *a, const void *b)
{
	const PgscaleSamplerPastRange *one = a;
	const PgscaleSamplerPastRange *two = b;

	return one->begin < two->begin ? -1 : one->begin > two->begin;
}

PgscaleSamplerPastRange *
pgscale_sampler_past_subtract(const PgscaleSamplerPastRange *period, PgscaleSamplerPastRange *ranges, int n, int *nleft)
{
	PgscaleSamplerPastRange *left = MemoryContextAllocHuge(CurrentMemoryContext, (n + 1) * sizeof(PgscaleSamplerPastRange));
	TimestampTz at = period->begin;

	*nleft = 0;
	qsort(ranges, n, sizeof(PgscaleSamplerPastRange), compare_ranges);
	for (int i = 0; i <= n; i++)
	{
		const TimestampTz next = i < n ? ranges[i].begin : period->end;

		if (at < next)
			left[(*nleft)++] = (PgscaleSamplerPastRange)
		{
			at, next
		};
		if (i < n)
			at = Max(at, ranges[i].end);
	}
	return left;
}

int
pgscale_sampler_past_find(const PgscaleSamplerPastRange *ranges, int n, TimestampTz at)
{
	int			low = 0;
	int			high = n;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (ranges[middle].end > at)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

void
pgscale_sampler_past_read(const PgscaleSamplerPastRange *period, int64 bucket_us, PgscaleSamplerPastReader *reader)
{
	Archived	archived = {.reader = reader,.size = 1024};
	const PgscaleSamplerPastReader archive_reader = {
		.parts = reader->parts,
		.texts = reader->texts,
		.arg = &archived,
		.visit_span = archived_span,
		.visit_wait = archived_wait,
		.visit_class = archived_class,
	};
	PgscaleSamplerPastRange *left;
	int			nleft;

	pgscale_preload_require();
	archived.ranges = palloc(archived.size * sizeof(PgscaleSamplerPastRange));
	pgscale_sampler_past_read_archive(period, &archive_reader);
	left = pgscale_sampler_past_subtract(period, archived.ranges, archived.n, &nleft);
	pgscale_sampler_past_read_memory(left, nleft, bucket_us, reader);
	pfree(left);
	pfree(archived.ranges);
}

/* What past_waits() puts into its result. */
typedef struct WaitRows
{
	PgscaleSamplerPastTexts *texts;
	ReturnSetInfo *result;
	MemoryContext row;
} WaitRows;

static void
skip_span(const PgscaleSamplerPastRange *range, double known_ms, bool archived, const char *node, void *arg)
{
}

static Datum
text_value(const WaitRows *rows, PgscaleSamplerPastText number, bool *isnull)
{
	*isnull = number == 0;
	return number == 0 ? (Datum) 0 : CStringGetTextDatum(pgscale_sampler_past_text(rows->texts, number));
}

static Datum
name_value(const WaitRows *rows, PgscaleSamplerPastText number, bool *isnull)
{
	*isnull = number == 0;
	return number == 0 ? (Datum) 0 : DirectFunctionCall1(namein, CStringGetDatum(pgscale_sampler_past_text(rows->texts, number)));
}

static void
put_waited(const PgscaleSamplerPastRange *range, const PgscaleSamplerPastKey *key, double ms, void *arg)
{
	const WaitRows *rows = arg;
	Datum		values[12];
	bool		nulls[12] = {0};
	MemoryContext old = MemoryContextSwitchTo(rows->row);

	values[0] = TimestampTzGetDatum(range->begin);
	values[1] = Float8GetDatum((range->end - range->begin) / (double) USECS_PER_SEC);
	values[2] = text_value(rows, key->backend_type, &nulls[2]);
	values[3] = ObjectIdGetDatum(key->datid);
	nulls[3] = !OidIsValid(key->datid);
	values[4] = name_value(rows, key->datname, &nulls[4]);
	values[5] = name_value(rows, key->usename, &nulls[5]);
	values[6] = text_value(rows, key->application_name, &nulls[6]);
	values[7] = Int64GetDatum(key->queryid);
	nulls[7] = key->queryid == 0;
	values[8] = text_value(rows, key->event_type, &nulls[8]);
	values[9] = text_value(rows, key->event, &nulls[9]);
	values[10] = text_value(rows, key->blocker, &nulls[10]);
	values[11] = Float8GetDatum(ms);
	tuplestore_putvalues(rows->result->setResult, rows->result->setDesc, values, nulls);
	MemoryContextSwitchTo(old);
	MemoryContextReset(rows->row);
}

/*
 * pgscale.past_waits(since, until, resolution_s): waits in the rows of the archive, and
 * of the history in buckets of that many seconds since 2000; 0: each tick is a bucket.
 * Idle waits are left out.
 */
Datum
pgscale_past_waits(PG_FUNCTION_ARGS)
{
	const double resolution_s = PG_ARGISNULL(2) ? 0 : PG_GETARG_FLOAT8(2);
	PgscaleSamplerPastReader reader = {.texts = pgscale_sampler_past_texts_create(),.visit_span = skip_span,.visit_wait = put_waited};
	WaitRows	rows = {.texts = reader.texts,.result = (ReturnSetInfo *) fcinfo->resultinfo};
	PgscaleSamplerPastRange period;

	if (isnan(resolution_s) || resolution_s > RESOLUTION_MAX_S ||
		(resolution_s != 0 && resolution_s < RESOLUTION_MIN_S))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("resolution must be 0, or from %g s to %g s", RESOLUTION_MIN_S, RESOLUTION_MAX_S),
				 errhint("With 0 there is a row for each sample.")));
	period = pgscale_sampler_past_period(fcinfo);
	InitMaterializedSRF(fcinfo, 0);
	reader.parts = PGSCALE_PAST_ALL & ~PGSCALE_PAST_CLASSES;
	rows.row = AllocSetContextCreate(CurrentMemoryContext, "pgscale past wait", ALLOCSET_SMALL_SIZES);
	reader.arg = &rows;
	pgscale_sampler_past_read(&period, resolution_s == 0 ? PGSCALE_PAST_LOOKS : (int64) (resolution_s * USECS_PER_SEC), &reader);
	return (Datum) 0;
}

static int
compare_spans(const void *a, const void *b)
{
	const PgscaleSamplerPastSpan *one = a;
	const PgscaleSamplerPastSpan *two = b;

	return one->range.begin < two->range.begin ? -1 : one->range.begin > two->range.begin;
}

/* Spans in order, with those as one that touch and are of the same source. */
static PgscaleSamplerPastSpan *
join_spans(const PgscaleSamplerPast *past, int64 *nspans)
{
	PgscaleSamplerPastSpan *spans = MemoryContextAllocHuge(CurrentMemoryContext, Max(past->nspans, 1) * sizeof(PgscaleSamplerPastSpan));
	int64		n = 0;

	memcpy(spans, past->spans, past->nspans * sizeof(PgscaleSamplerPastSpan));
	qsort(spans, past->nspans, sizeof(PgscaleSamplerPastSpan), compare_spans);
	for (int64 i = 0; i < past->nspans; i++)
	{
		const PgscaleSamplerPastSpan *span = &spans[i];
		PgscaleSamplerPastSpan *last = n > 0 ? &spans[n - 1] : NULL;

		if (last && last->source == span->source && last->range.end == span->range.begin)
		{
			last->range.end = span->range.end;
			last->known_ms += span->known_ms;
		}
		else
			spans[n++] = *span;
	}
	*nspans = n;
	return spans;
}

/* pgscale.past_coverage(since, until): which times are known, how much of each, and from where. */
Datum
pgscale_past_coverage(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	const PgscaleSamplerPast *past;
	PgscaleSamplerPastRange period;
	PgscaleSamplerPastSpan *spans;
	int64		nspans;

	period = pgscale_sampler_past_period(fcinfo);
	InitMaterializedSRF(fcinfo, 0);
	past = pgscale_sampler_past_sums(&period, 0);
	spans = join_spans(past, &nspans);
	for (int64 i = 0; i < nspans; i++)
	{
		const PgscaleSamplerPastSpan *span = &spans[i];
		Datum		values[4];
		bool		nulls[4] = {0};

		values[0] = TimestampTzGetDatum(span->range.begin);
		values[1] = Float8GetDatum((span->range.end - span->range.begin) / (double) USECS_PER_SEC);
		values[2] = Float8GetDatum(span->known_ms / 1000);
		values[3] = CStringGetTextDatum(pgscale_sampler_past_text(past->texts, span->source));
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
