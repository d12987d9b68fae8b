/*-------------------------------------------------------------------------
 *
 * past.c
 *	  The waits of a period, from the archive and from memory, read once and added up.
 *
 * The archive is read first, with one snapshot, and then memory for the times that the
 * archive does not have.  A row that is written meanwhile is not in the snapshot, so
 * its time comes from memory: nothing counts twice, and nothing is missing.
 *
 * All that is read is added to one hash table, by all columns that separate waits and are
 * wanted.  top_waits() and similar functions group these sums by one column; a report
 * groups the same period by many, so past_keep() keeps the sums.  They are as of that
 * reading.  They last until the end of the transaction, or subtransaction, that has kept
 * them.  past_waits() wants rows instead: those of the archive, of which there may be
 * millions, are put into its result as they come, and those of memory from the hash table.
 *
 * Texts are numbers meanwhile: a day of the archive repeats a few hundred texts a million
 * times, and numbers are found, hashed and compared at no cost.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "common/hashfn.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/node_name.h"
#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/row_builder.h"
#include "base/wait_events.h"
#include "sampler/past/past.h"

/* Rows of memory may be that long, and no shorter unless each sample is to be a row. */
#define RESOLUTION_MIN_S	1.0
#define RESOLUTION_MAX_S	1e9

/* The history does not begin before this time. */
#define EARLIEST	((TimestampTz) (UNIX_EPOCH_JDATE - POSTGRES_EPOCH_JDATE) * USECS_PER_DAY)

/* Periods that a transaction can keep; what is beyond is read each time. */
#define KEPT_MOST		16

typedef struct TextKey
{
	const char *bytes;
	int			len;
} TextKey;

typedef struct Text
{
	TextKey		key;
	char		status;
	PgscaleSamplerPastText number;
} Text;

#define SH_PREFIX		texts
#define SH_ELEMENT_TYPE Text
#define SH_KEY_TYPE		TextKey
#define SH_KEY			key
#define SH_HASH_KEY(tb, k)	hash_bytes((const unsigned char *) (k).bytes, (k).len)
#define SH_EQUAL(tb, a, b)	((a).len == (b).len && memcmp((a).bytes, (b).bytes, (a).len) == 0)
#define SH_SCOPE		static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

#define SH_PREFIX		past_sums
#define SH_ELEMENT_TYPE PgscaleSamplerPastSum
#define SH_KEY_TYPE		PgscaleSamplerPastRow
#define SH_KEY			key
#define SH_HASH_KEY(tb, k)	hash_bytes((const unsigned char *) &(k), sizeof(k))
#define SH_EQUAL(tb, a, b)	(memcmp(&(a), &(b), sizeof(a)) == 0)
#define SH_SCOPE		static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

struct PgscaleSamplerPastTexts
{
	MemoryContext context;
	texts_hash *hash;
	const char **texts;			/* by number */
	uint32		n;
	uint32		size;
};

/* The result of past_waits(). */
typedef struct WaitRows
{
	ReturnSetInfo *result;
	MemoryContext row;
} WaitRows;

/* A period that is kept, once it has been read. */
typedef struct Kept
{
	struct Kept *next;
	PgscaleSamplerPastRange period;
	Oid			userid;			/* the role that may see it */
	char	   *node;
	MemoryContext context;
	PgscaleSamplerPast *past;
} Kept;

static Kept *kept;

PG_FUNCTION_INFO_V1(pgscale_past_waits);
PG_FUNCTION_INFO_V1(pgscale_past_coverage);
PG_FUNCTION_INFO_V1(pgscale_past_keep);

PgscaleSamplerPastText
pgscale_sampler_past_number_of(PgscaleSamplerPastTexts *texts, const char *bytes, int len)
{
	TextKey		key = {bytes, len};
	Text	   *text = texts_lookup(texts->hash, key);
	char	   *copy;
	bool		found;

	if (text)
		return text->number;

	copy = MemoryContextAlloc(texts->context, len + 1);
	memcpy(copy, bytes, len);
	copy[len] = '\0';
	if (texts->n == texts->size)
	{
		texts->size *= 2;
		texts->texts = repalloc_huge(texts->texts, texts->size * sizeof(char *));
	}
	key.bytes = copy;
	text = texts_insert(texts->hash, key, &found);
	text	  ->number = texts->n;

	texts->texts[texts->n++] = copy;
	return text->number;
}

PgscaleSamplerPastText
pgscale_sampler_past_number(PgscaleSamplerPastTexts *texts, const char *text)
{
	return text ? pgscale_sampler_past_number_of(texts, text, strlen(text)) : 0;
}

PgscaleSamplerPastText
pgscale_sampler_past_class(PgscaleSamplerPastTexts *texts, uint32 wait_event)
{
	return pgscale_sampler_past_number(texts, wait_event == PGSCALE_WAIT_IDLE_IN_TRANSACTION ? PGSCALE_WAIT_IDLE_NAME :
									   pgscale_wait_event_type(wait_event));
}

const char *
pgscale_sampler_past_text(const PgscaleSamplerPastTexts *texts, PgscaleSamplerPastText number)
{
	return texts->texts[number];
}

bool
pgscale_sampler_past_is_session(const char *backend_type)
{
	return backend_type && (strcmp(backend_type, "client backend") == 0 || strcmp(backend_type, "parallel worker") == 0 ||
							strcmp(backend_type, "other") == 0);
}

PgscaleSamplerPastRange
pgscale_sampler_past_period(FunctionCallInfo fcinfo, const char *node)
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
		const TimestampTz archive = pgscale_sampler_past_archive_begin(node != NULL);

		period.begin = Min(Min(history, timeline), archive);
		period.begin = Min(Max(period.begin, EARLIEST), period.end);
	}
	return period;
}

/* By their begin; a span begins with its range. */
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

PgscaleSamplerPast *
pgscale_sampler_past_create(uint32 parts, int64 row_us, PgscaleSamplerPastTexts *texts)
{
	PgscaleSamplerPast *past = palloc0(sizeof(PgscaleSamplerPast));

	past->parts = parts;
	past->row_us = row_us;
	if (!texts)
	{
		texts = palloc(sizeof(PgscaleSamplerPastTexts));
		texts->context = CurrentMemoryContext;
		texts->hash = texts_create(CurrentMemoryContext, 256, NULL);
		texts->size = 256;
		texts->texts = palloc(texts->size * sizeof(char *));
		texts->texts[0] = NULL;
		texts->n = 1;
	}
	past->texts = texts;
	if (parts & PGSCALE_PAST_WAITS)
		past->hash = past_sums_create(CurrentMemoryContext, 1024, NULL);
	past->spans_size = 256;
	past->spans = palloc(past->spans_size * sizeof(PgscaleSamplerPastSpan));
	past->slices_size = 1024;
	past->slices = palloc(past->slices_size * sizeof(PgscaleSamplerPastSlice));
	return past;
}

void
pgscale_sampler_past_add_span(PgscaleSamplerPast *past, const PgscaleSamplerPastRange *range, double known_ms,
							  const char *source, bool other_node)
{
	if (past->nspans == past->spans_size)
	{
		past->spans_size *= 2;
		past->spans = repalloc_huge(past->spans, past->spans_size * sizeof(PgscaleSamplerPastSpan));
	}
	past->spans[past->nspans++] = (PgscaleSamplerPastSpan)
	{
		*range, known_ms, pgscale_sampler_past_number(past->texts, source), other_node
	};
	past->known_ms += known_ms;
}

/* A range's slices come one after the other. */
void
pgscale_sampler_past_add_class(PgscaleSamplerPast *past, const PgscaleSamplerPastRange *range,
							   PgscaleSamplerPastText class, double ms)
{
	for (int64 i = past->nslices - 1;
		 i >= 0 && past->slices[i].range.begin == range->begin && past->slices[i].range.end == range->end; i--)
		if (past->slices[i].class == class)
		{
			past->slices[i].ms += ms;
			return;
		}
	if (past->nslices == past->slices_size)
	{
		past->slices_size *= 2;
		past->slices = repalloc_huge(past->slices, past->slices_size * sizeof(PgscaleSamplerPastSlice));
	}
	past->slices[past->nslices++] = (PgscaleSamplerPastSlice)
	{
		*range, class, ms
	};
}

/* What past_waits() puts into its result. */
static void
put_waited(const PgscaleSamplerPast *past, const PgscaleSamplerPastRow *wait, double ms)
{
	const WaitRows *rows = past->rows;
	const PgscaleSamplerPastKey *key = &wait->of;
	const PgscaleSamplerPastText names[] = {key->datname, key->usename};
	MemoryContext old = MemoryContextSwitchTo(rows->row);
	PgscaleRow	row = {0};

	pgscale_row_put(&row, TimestampTzGetDatum(wait->range.begin), false);
	pgscale_row_float8(&row, (wait->range.end - wait->range.begin) / (double) USECS_PER_SEC);
	pgscale_row_text(&row, pgscale_sampler_past_text(past->texts, key->backend_type));
	pgscale_row_oid(&row, key->datid);
	for (int i = 0; i < lengthof(names); i++)
	{
		const char *name = pgscale_sampler_past_text(past->texts, names[i]);

		pgscale_row_put(&row, name ? DirectFunctionCall1(namein, CStringGetDatum(name)) : (Datum) 0, name == NULL);
	}
	pgscale_row_text(&row, pgscale_sampler_past_text(past->texts, key->application_name));
	pgscale_row_id(&row, key->queryid);
	pgscale_row_text(&row, pgscale_sampler_past_text(past->texts, key->event_type));
	pgscale_row_text(&row, pgscale_sampler_past_text(past->texts, key->event));
	pgscale_row_text(&row, pgscale_sampler_past_text(past->texts, key->blocker));
	pgscale_row_float8(&row, ms);
	pgscale_row_end(&row, rows->result);
	MemoryContextSwitchTo(old);
	MemoryContextReset(rows->row);
}

void
pgscale_sampler_past_add_wait(PgscaleSamplerPast *past, const PgscaleSamplerPastRange *range,
							  const PgscaleSamplerPastKey *of, double ms)
{
	PgscaleSamplerPastRow row = {.of = *of};
	PgscaleSamplerPastSum *sum;
	bool		found;

	StaticAssertStmt(sizeof(row) == sizeof(row.range) + sizeof(int64) + 8 * sizeof(uint32), "no gap in what is compared as bytes");
	if (!past->hash)
		return;
	if (past->row_us != PGSCALE_PAST_WHOLE)
		row.range = *range;
	if (past->rows)
	{
		put_waited(past, &row, ms);
		return;
	}
	/* a sum for each of their values would take much memory for nothing */
	if (!(past->parts & PGSCALE_PAST_DATABASES))
	{
		row.of.datid = InvalidOid;
		row.of.datname = 0;
	}
	if (!(past->parts & PGSCALE_PAST_USERS))
		row.of.usename = 0;
	if (!(past->parts & PGSCALE_PAST_APPLICATIONS))
		row.of.application_name = 0;
	if (!(past->parts & PGSCALE_PAST_BLOCKERS))
		row.of.blocker = 0;
	sum = past_sums_insert(past->hash, row, &found);
	sum->ms = (found ? sum->ms : 0) + ms;
}

const char *
pgscale_sampler_past_node(FunctionCallInfo fcinfo, int argument)
{
	return PG_NARGS() <= argument || PG_ARGISNULL(argument) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(argument));
}

bool
pgscale_sampler_past_remembers(const char *node)
{
	return node == NULL || node[0] == '\0' || strcmp(node, pgscale_node_name()) == 0;
}

/* What of the period the archive has, and of this server from memory what it does not have. */
static PgscaleSamplerPast *
read_period(const PgscaleSamplerPastRange *period, uint32 parts, int64 row_us, const char *node, WaitRows *rows)
{
	PgscaleSamplerPast *past = pgscale_sampler_past_create(parts, row_us, NULL);
	PgscaleSamplerPastRange *archived;
	PgscaleSamplerPastRange *left;
	int			nleft;

	pgscale_preload_require();
	past->rows = rows;
	if (node == NULL || node[0] != '\0')
		pgscale_sampler_past_read_archive(period, node, past);
	past->rows = NULL;

	archived = MemoryContextAllocHuge(CurrentMemoryContext, Max(past->nspans, 1) * sizeof(PgscaleSamplerPastRange));
	for (int64 i = 0; i < past->nspans; i++)
		archived[i] = past->spans[i].range;
	left = pgscale_sampler_past_subtract(period, archived, past->nspans, &nleft);
	if (pgscale_sampler_past_remembers(node))
		pgscale_sampler_past_read_memory(left, nleft, past);
	pfree(left);
	pfree(archived);

	if (past->hash)
	{
		past_sums_iterator it;
		PgscaleSamplerPastSum *sum;

		past->sums = MemoryContextAllocHuge(CurrentMemoryContext, Max(past->hash->members, 1) * sizeof(PgscaleSamplerPastSum));
		past_sums_start_iterate(past->hash, &it);
		while ((sum = past_sums_iterate(past->hash, &it)) != NULL)
			past->sums[past->nsums++] = *sum;
		past_sums_destroy(past->hash);
		past->hash = NULL;
	}
	return past;
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
	WaitRows	rows = {.result = (ReturnSetInfo *) fcinfo->resultinfo};
	const char *node;
	PgscaleSamplerPastRange period;
	PgscaleSamplerPast *past;

	if (isnan(resolution_s) || resolution_s > RESOLUTION_MAX_S ||
		(resolution_s != 0 && resolution_s < RESOLUTION_MIN_S))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("resolution must be 0, or from %g s to %g s", RESOLUTION_MIN_S, RESOLUTION_MAX_S),
				 errhint("With 0 there is a row for each sample.")));
	node = pgscale_sampler_past_node(fcinfo, 3);
	period = pgscale_sampler_past_period(fcinfo, node);
	InitMaterializedSRF(fcinfo, 0);
	rows.row = AllocSetContextCreate(CurrentMemoryContext, "pgscale past wait", ALLOCSET_SMALL_SIZES);
	past = read_period(&period, PGSCALE_PAST_ALL & ~PGSCALE_PAST_CLASSES,
					   resolution_s == 0 ? PGSCALE_PAST_SAMPLES : (int64) (resolution_s * USECS_PER_SEC),
					   node, &rows);
	past->rows = &rows;
	for (int64 i = 0; i < past->nsums; i++)
		put_waited(past, &past->sums[i].key, past->sums[i].ms);
	return (Datum) 0;
}

static Kept *
find_kept(const PgscaleSamplerPastRange *period, const char *node)
{
	Kept	   *of = kept;

	while (of && (of->period.begin != period->begin || of->period.end != period->end || of->userid != GetUserId() ||
				  (of->node == NULL) != (node == NULL) || (node && strcmp(of->node, node) != 0)))
		of = of->next;
	return of;
}

const PgscaleSamplerPast *
pgscale_sampler_past_sums(const PgscaleSamplerPastRange *period, uint32 parts, const char *node)
{
	Kept	   *of = find_kept(period, node);
	MemoryContext context;
	MemoryContext old;
	PgscaleSamplerPast *past;

	if (!of)
		return read_period(period, parts, PGSCALE_PAST_WHOLE, node, NULL);
	if (of->past)
		return of->past;

	/* after an error in the midst it is as if it had not been read */
	context = AllocSetContextCreate(CurrentMemoryContext, "pgscale past", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	past = read_period(period, PGSCALE_PAST_ALL, PGSCALE_PAST_WHOLE, node, NULL);
	MemoryContextSwitchTo(old);
	/* a policy on the archive's table may have forgotten or read it meanwhile */
	of = find_kept(period, node);
	if (of && !of->past)
	{
		of->past = past;
		MemoryContextSetParent(context, of->context);
	}
	return past;
}

/* The memory of one goes: the newest first, as it does in a transaction. */
static void
forget_kept(void *arg)
{
	Kept	  **of = &kept;

	while (*of && *of != arg)
		of = &(*of)->next;
	if (*of)
		*of = (*of)->next;
}

/*
 * pgscale_internal.past_keep(since, until, node): what is read of just this period from now on is
 * read once, until the transaction ends, or all is forgotten by NULL.
 */
Datum
pgscale_past_keep(PG_FUNCTION_ARGS)
{
	MemoryContext context;
	MemoryContextCallback *callback;
	const char *node;
	Kept	   *of;
	int			n = 0;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
	{
		while (kept)
			MemoryContextDelete(kept->context);
		PG_RETURN_VOID();
	}
	for (const Kept *other = kept; other; other = other->next)
		n++;
	if (n >= KEPT_MOST)
		PG_RETURN_VOID();
	context = AllocSetContextCreate(CurTransactionContext, "pgscale past kept", ALLOCSET_SMALL_SIZES);
	of = MemoryContextAllocZero(context, sizeof(Kept));
	of->period.begin = PG_GETARG_TIMESTAMPTZ(0);
	of->period.end = PG_GETARG_TIMESTAMPTZ(1);
	of->userid = GetUserId();
	node = pgscale_sampler_past_node(fcinfo, 2);
	of->node = node ? MemoryContextStrdup(context, node) : NULL;
	of->context = context;
	callback = MemoryContextAlloc(context, sizeof(MemoryContextCallback));
	callback->func = forget_kept;
	callback->arg = of;
	MemoryContextRegisterResetCallback(context, callback);
	of->next = kept;
	kept = of;
	PG_RETURN_VOID();
}

/* Spans in order, with those as one that touch and are of the same source. */
static PgscaleSamplerPastSpan *
join_spans(const PgscaleSamplerPast *past, int64 *nspans)
{
	PgscaleSamplerPastSpan *spans = MemoryContextAllocHuge(CurrentMemoryContext, Max(past->nspans, 1) * sizeof(PgscaleSamplerPastSpan));
	int64		n = 0;

	memcpy(spans, past->spans, past->nspans * sizeof(PgscaleSamplerPastSpan));
	qsort(spans, past->nspans, sizeof(PgscaleSamplerPastSpan), compare_ranges);
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

/* pgscale_internal.past_coverage(since, until, node): which times are known, how much of each, and from where. */
Datum
pgscale_past_coverage(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	const char *node = pgscale_sampler_past_node(fcinfo, 2);
	const PgscaleSamplerPast *past;
	PgscaleSamplerPastRange period;
	PgscaleSamplerPastSpan *spans;
	int64		nspans;

	period = pgscale_sampler_past_period(fcinfo, node);
	InitMaterializedSRF(fcinfo, 0);
	past = pgscale_sampler_past_sums(&period, 0, node);
	spans = join_spans(past, &nspans);
	for (int64 i = 0; i < nspans; i++)
	{
		const PgscaleSamplerPastSpan *span = &spans[i];
		PgscaleRow	row = {0};

		pgscale_row_put(&row, TimestampTzGetDatum(span->range.begin), false);
		pgscale_row_float8(&row, (span->range.end - span->range.begin) / (double) USECS_PER_SEC);
		pgscale_row_float8(&row, span->known_ms / 1000);
		pgscale_row_text(&row, pgscale_sampler_past_text(past->texts, span->source));
		pgscale_row_end(&row, rsinfo);
	}
	return (Datum) 0;
}
