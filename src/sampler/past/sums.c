/*-------------------------------------------------------------------------
 *
 * sums.c
 *	  A period, read once and added up.
 *
 * top_waits() and similar functions group a period by one column; a report groups the
 * same period by many.  The sums keep all these columns apart, so one reading is
 * enough: past_keep() keeps it.  The sums are as of that reading.  They last until the
 * end of the transaction, or subtransaction, that has kept them.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "sampler/past/past.h"

/* Periods that a transaction can keep; what is beyond is read each time. */
#define KEPT_MOST		16

#define SH_PREFIX		past_sums
#define SH_ELEMENT_TYPE PgscaleSamplerPastSum
#define SH_KEY_TYPE		PgscaleSamplerPastKey
#define SH_KEY			key
#define SH_HASH_KEY(tb, k)	hash_bytes((const unsigned char *) &(k), sizeof(k))
#define SH_EQUAL(tb, a, b)	(memcmp(&(a), &(b), sizeof(a)) == 0)
#define SH_SCOPE		static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

PG_FUNCTION_INFO_V1(pgscale_past_keep);

/* A period that is kept, once it has been read. */
typedef struct Kept
{
	struct Kept *next;
	PgscaleSamplerPastRange period;
	Oid			userid;			/* the role that may see it */
	MemoryContext context;
	PgscaleSamplerPast *past;
} Kept;

static Kept *kept;

typedef struct Adding
{
	PgscaleSamplerPast *past;
	uint32		parts;
	past_sums_hash *hash;
	int64		spans_size;
	int64		slices_size;
} Adding;

static void
keep_span(const PgscaleSamplerPastRange *range, double known_ms, bool archived, const char *node, void *arg)
{
	Adding	   *adding = arg;
	PgscaleSamplerPast *past = adding->past;
	PgscaleSamplerPastSpan *span;

	if (past->nspans == adding->spans_size)
	{
		adding->spans_size *= 2;
		past->spans = repalloc_huge(past->spans, adding->spans_size * sizeof(PgscaleSamplerPastSpan));
	}
	span = &past->spans[past->nspans++];
	span->range = *range;
	span->known_ms = known_ms;
	span->source = pgscale_sampler_past_number(past->texts, !archived ? "memory" : node ? psprintf("archive of %s", node) : "archive");
	span->other_node = node != NULL;
	past->known_ms += known_ms;
}

static void
sum_wait(const PgscaleSamplerPastRange *range, const PgscaleSamplerPastKey *key, double ms, void *arg)
{
	Adding	   *adding = arg;
	PgscaleSamplerPastKey wanted = *key;
	PgscaleSamplerPastSum *sum;
	bool		found;

	if (!(adding->parts & PGSCALE_PAST_WAITS))
		return;
	/* a sum for each of their values would take much memory for nothing */
	if (!(adding->parts & PGSCALE_PAST_DATABASES))
	{
		wanted.datid = InvalidOid;
		wanted.datname = 0;
	}
	if (!(adding->parts & PGSCALE_PAST_USERS))
		wanted.usename = 0;
	if (!(adding->parts & PGSCALE_PAST_APPLICATIONS))
		wanted.application_name = 0;
	if (!(adding->parts & PGSCALE_PAST_BLOCKERS))
		wanted.blocker = 0;
	sum = past_sums_insert(adding->hash, wanted, &found);
	sum->ms = (found ? sum->ms : 0) + ms;
}

/* A row's waits of a class come one after the other. */
static void
sum_class(const PgscaleSamplerPastRange *range, PgscaleSamplerPastText class, double ms, void *arg)
{
	Adding	   *adding = arg;
	PgscaleSamplerPast *past = adding->past;
	PgscaleSamplerPastSlice *slice = past->nslices > 0 ? &past->slices[past->nslices - 1] : NULL;

	if (slice && slice->class == class && slice->range.begin == range->begin && slice->range.end == range->end)
	{
		slice->ms += ms;
		return;
	}
	if (past->nslices == adding->slices_size)
	{
		adding->slices_size *= 2;
		past->slices = repalloc_huge(past->slices, adding->slices_size * sizeof(PgscaleSamplerPastSlice));
	}
	past->slices[past->nslices++] = (PgscaleSamplerPastSlice)
	{
		*range, class, ms
	};
}

/* In the current memory context, where all that is of use only while it is read stays, too. */
static PgscaleSamplerPastReader
begin_adding(Adding *adding, uint32 parts, PgscaleSamplerPastTexts *texts)
{
	PgscaleSamplerPast *past = palloc0(sizeof(PgscaleSamplerPast));

	*adding = (Adding)
	{
		.past = past,.parts = parts,.spans_size = 256,.slices_size = 1024
	};
	past->texts = texts;
	past->spans = palloc(adding->spans_size * sizeof(PgscaleSamplerPastSpan));
	past->slices = palloc(adding->slices_size * sizeof(PgscaleSamplerPastSlice));
	return (PgscaleSamplerPastReader)
	{
		.parts = parts,.texts = texts,.arg = adding,.visit_span = keep_span,.visit_wait = sum_wait,.visit_class = sum_class
	};
}

static PgscaleSamplerPast *
read_period(const PgscaleSamplerPastRange *period, uint32 parts)
{
	Adding		adding;
	PgscaleSamplerPastReader reader = begin_adding(&adding, parts, pgscale_sampler_past_texts_create());
	PgscaleSamplerPast *past = adding.past;
	past_sums_iterator it;
	PgscaleSamplerPastSum *sum;

	adding.hash = past_sums_create(CurrentMemoryContext, 1024, NULL);
	pgscale_sampler_past_read(period, PGSCALE_PAST_WHOLE, &reader);

	past->sums = MemoryContextAllocHuge(CurrentMemoryContext, Max(adding.hash->members, 1) * sizeof(PgscaleSamplerPastSum));
	past_sums_start_iterate(adding.hash, &it);
	while ((sum = past_sums_iterate(adding.hash, &it)) != NULL)
		past->sums[past->nsums++] = *sum;
	past_sums_destroy(adding.hash);
	return past;
}

const PgscaleSamplerPast *
pgscale_sampler_past_seconds(const PgscaleSamplerPastRange *ranges, int nranges, PgscaleSamplerPastTexts *texts)
{
	Adding		adding;
	const PgscaleSamplerPastReader reader = begin_adding(&adding, PGSCALE_PAST_CLASSES, texts);

	pgscale_sampler_past_read_timeline(ranges, nranges, &reader);
	return adding.past;
}

static Kept *
find_kept(const PgscaleSamplerPastRange *period)
{
	Kept	   *of = kept;

	while (of && (of->period.begin != period->begin || of->period.end != period->end || of->userid != GetUserId()))
		of = of->next;
	return of;
}

const PgscaleSamplerPast *
pgscale_sampler_past_sums(const PgscaleSamplerPastRange *period, uint32 parts)
{
	Kept	   *of = find_kept(period);
	MemoryContext context;
	MemoryContext old;
	PgscaleSamplerPast *past;

	if (!of)
		return read_period(period, parts);
	if (of->past)
		return of->past;

	/* after an error in the midst it is as if it had not been read */
	context = AllocSetContextCreate(CurrentMemoryContext, "pgscale past", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	past = read_period(period, PGSCALE_PAST_ALL);
	MemoryContextSwitchTo(old);
	/* a policy on the archive's table may have forgotten or read it meanwhile */
	of = find_kept(period);
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
 * pgscale_internal.past_keep(since, until): what is asked of just this period from now on is read
 * once, until the transaction ends, or all is forgotten by NULL.
 */
Datum
pgscale_past_keep(PG_FUNCTION_ARGS)
{
	MemoryContext context;
	MemoryContextCallback *callback;
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
	of->context = context;
	callback = MemoryContextAlloc(context, sizeof(MemoryContextCallback));
	callback->func = forget_kept;
	callback->arg = of;
	MemoryContextRegisterResetCallback(context, callback);
	of->next = kept;
	kept = of;
	PG_RETURN_VOID();
}
