/*-------------------------------------------------------------------------
 *
 * items.c
 *	  The waits of a period by event, query, user and the like: what top_waits() and
 *	  compare_waits() show.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/pg_compat.h"
#include "base/wait_events.h"
#include "sampler/past/past.h"

#define TOP_MAX		1000000

PG_FUNCTION_INFO_V1(pgscale_past_items);

typedef enum ItemBy
{
	BY_EVENT,
	BY_CLASS,
	BY_QUERY,
	BY_DATABASE,
	BY_USER,
	BY_APPLICATION,
	BY_BACKEND_TYPE,
	BY_BLOCKER
} ItemBy;

static const char *const bys[] = {"event", "class", "query", "database", "user", "application", "backend_type", "blocker"};

/* What they need of a period. */
static const uint32 by_parts[] = {
	[BY_EVENT] = PGSCALE_PAST_WAITS,
	[BY_CLASS] = PGSCALE_PAST_WAITS,
	[BY_QUERY] = PGSCALE_PAST_WAITS,
	[BY_DATABASE] = PGSCALE_PAST_WAITS | PGSCALE_PAST_DATABASES,
	[BY_USER] = PGSCALE_PAST_WAITS | PGSCALE_PAST_USERS,
	[BY_APPLICATION] = PGSCALE_PAST_WAITS | PGSCALE_PAST_APPLICATIONS,
	[BY_BACKEND_TYPE] = PGSCALE_PAST_WAITS,
	[BY_BLOCKER] = PGSCALE_PAST_WAITS | PGSCALE_PAST_BLOCKERS,
};

/* A role may have the name "other": so a name, a missing name, and all that is not separate have no texts. */
typedef enum ItemKind
{
	ITEM_NAMED,
	ITEM_UNKNOWN,
	ITEM_OTHER
} ItemKind;

static const char *const kinds[] = {"named", "unknown", "other"};

/* Hashed and compared as bytes. */
typedef struct PastItemKey
{
	int64		number;			/* of a query, or a database without a name */
	PgscaleSamplerPastText text;
	PgscaleSamplerPastText event;	/* by event: text is its class */
	uint32		kind;
	uint32		unused;
} PastItemKey;

typedef struct PastItem
{
	PastItemKey key;
	char		status;
	const char *name;
	double		ms;
	double		idle_ms;		/* of that, idle in a transaction */
	bool		sessions;		/* nothing else */
	int			rank;			/* 0: among the others */
} PastItem;

/* The waits, and the queries, of an item. */
typedef struct PartKey
{
	int64		queryid;
	uint32		rank;
	PgscaleSamplerPastText event_type;
	PgscaleSamplerPastText event;
	uint32		unused;
} PartKey;

typedef struct Part
{
	PartKey		key;
	char		status;
	double		ms;
} Part;

#define SH_PREFIX		items
#define SH_ELEMENT_TYPE PastItem
#define SH_KEY_TYPE		PastItemKey
#define SH_KEY			key
#define SH_HASH_KEY(tb, k)	hash_bytes((const unsigned char *) &(k), sizeof(k))
#define SH_EQUAL(tb, a, b)	(memcmp(&(a), &(b), sizeof(a)) == 0)
#define SH_SCOPE		static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

#define SH_PREFIX		parts
#define SH_ELEMENT_TYPE Part
#define SH_KEY_TYPE		PartKey
#define SH_KEY			key
#define SH_HASH_KEY(tb, k)	hash_bytes((const unsigned char *) &(k), sizeof(k))
#define SH_EQUAL(tb, a, b)	(memcmp(&(a), &(b), sizeof(a)) == 0)
#define SH_SCOPE		static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* What of a period is asked for. */
typedef struct Question
{
	const PgscaleSamplerPast *past;
	ItemBy		by;
	bool		of_query;		/* of this one only */
	int64		queryid;
	PgscaleSamplerPastText other;
	PgscaleSamplerPastText idle;
} Question;

static ItemBy
item_by(const char *by)
{
	for (int i = 0; by && i < lengthof(bys); i++)
		if (strcmp(bys[i], by) == 0)
			return (ItemBy) i;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 by ? errmsg("cannot group waits by \"%s\"", by) : errmsg("cannot group waits by NULL"),
			 errhint("Use event, class, query, database, user, application, backend_type or blocker.")));
}

static bool
is_session_sum(const Question *question, const PgscaleSamplerPastSum *sum)
{
	return pgscale_sampler_past_is_session(pgscale_sampler_past_text(question->past->texts, sum->key.backend_type));
}

/* Of server processes nothing but their type matters. */
static bool
is_asked_for(const Question *question, const PgscaleSamplerPastSum *sum)
{
	return (!question->of_query || sum->key.queryid == question->queryid) &&
		(question->by == BY_BACKEND_TYPE || is_session_sum(question, sum));
}

static PastItemKey
item_of(const Question *question, const PgscaleSamplerPastSum *sum)
{
	const PgscaleSamplerPastKey *from = &sum->key;
	PastItemKey key = {0};

	switch (question->by)
	{
		case BY_EVENT:
			key.text = from->event_type;
			key.event = from->event;
			break;
		case BY_CLASS:
			key.text = from->event == question->idle ? question->idle : from->event_type;
			break;
		case BY_QUERY:
			key.number = from->queryid;
			break;
		case BY_DATABASE:
			key.text = from->datname;
			key.number = from->datname == 0 ? from->datid : 0;
			break;
		case BY_USER:
			key.text = from->usename;
			break;
		case BY_APPLICATION:
			key.text = from->application_name;
			break;
		case BY_BACKEND_TYPE:
			key.text = from->backend_type;
			break;
		case BY_BLOCKER:
			key.text = from->blocker;
			break;
	}

	/*
	 * events that the archive does not separate have a class and a type of
	 * that name
	 */
	if (question->by == BY_EVENT || question->by == BY_CLASS || question->by == BY_BACKEND_TYPE)
		key.kind = key.text == question->other ? ITEM_OTHER : ITEM_NAMED;
	else
		key.kind = from->backend_type == question->other ? ITEM_OTHER : ITEM_NAMED;
	if (key.kind == ITEM_NAMED && key.text == 0 && key.number == 0)
		key.kind = ITEM_UNKNOWN;
	if (key.kind != ITEM_NAMED)
	{
		key.text = key.event = 0;
		key.number = 0;
	}
	return key;
}

static const char *
item_name(const Question *question, const PastItemKey *key)
{
	const PgscaleSamplerPastTexts *texts = question->past->texts;

	if (key->kind != ITEM_NAMED)
		return kinds[key->kind];
	if (question->by == BY_QUERY)
		return psprintf(INT64_FORMAT, key->number);
	if (key->text == 0)
		return psprintf("database %u", (Oid) key->number);
	if (question->by == BY_EVENT && key->event != 0 && key->event != key->text)
		return psprintf("%s:%s", pgscale_sampler_past_text(texts, key->text), pgscale_sampler_past_text(texts, key->event));
	return pgscale_sampler_past_text(texts, key->text);
}

/* Longest first, the others last. */
static int
compare_items(const void *a, const void *b)
{
	const PastItem *one = *(PastItem *const *) a;
	const PastItem *two = *(PastItem *const *) b;

	if ((one->key.kind == ITEM_OTHER) != (two->key.kind == ITEM_OTHER))
		return one->key.kind == ITEM_OTHER ? 1 : -1;
	if (one->ms != two->ms)
		return one->ms > two->ms ? -1 : 1;
	return strcmp(one->name, two->name);
}

/* The items, and how much time of sessions there is in all. */
static PastItem **
sum_by_item(const Question *question, items_hash *hash, int64 *n, double *database_ms)
{
	const PgscaleSamplerPast *past = question->past;
	PastItem  **ordered;
	items_iterator it;
	PastItem   *item;

	*database_ms = 0;
	for (int64 i = 0; i < past->nsums; i++)
	{
		const PgscaleSamplerPastSum *sum = &past->sums[i];
		bool		found;

		CHECK_FOR_INTERRUPTS();
		if (is_session_sum(question, sum))
			*database_ms += sum->ms;
		if (!is_asked_for(question, sum))
			continue;
		item = items_insert(hash, item_of(question, sum), &found);
		if (!found)
		{
			item->ms = item->idle_ms = 0;
			item->sessions = true;
			item->rank = 0;
		}
		item->sessions = item->sessions && is_session_sum(question, sum);
		item->ms += sum->ms;
		if (sum->key.event == question->idle)
			item->idle_ms += sum->ms;
	}

	ordered = MemoryContextAllocHuge(CurrentMemoryContext, Max(hash->members, 1) * sizeof(PastItem *));
	*n = 0;
	items_start_iterate(hash, &it);
	while ((item = items_iterate(hash, &it)) != NULL)
	{
		/* those whose root is not known, and those that have none */
		if (question->by == BY_BLOCKER && item->key.kind != ITEM_NAMED)
			continue;
		item->name = item_name(question, &item->key);
		ordered[(*n)++] = item;
	}
	qsort(ordered, *n, sizeof(PastItem *), compare_items);
	return ordered;
}

/* The longest wait and the longest query of the first items. */
static void
find_longest(const Question *question, items_hash *hash, int n, Part *events, Part *queries)
{
	const PgscaleSamplerPast *past = question->past;
	parts_hash *by_event = parts_create(CurrentMemoryContext, 256, NULL);
	parts_hash *by_query = parts_create(CurrentMemoryContext, 256, NULL);

	for (int64 i = 0; i < past->nsums; i++)
	{
		const PgscaleSamplerPastSum *sum = &past->sums[i];
		PartKey		key = {0};
		const PastItem *item;
		bool		found;
		Part	   *part;

		CHECK_FOR_INTERRUPTS();
		if (!is_asked_for(question, sum))
			continue;
		item = items_lookup(hash, item_of(question, sum));
		if (!item || item->rank == 0)
			continue;
		key.rank = item->rank;
		if (sum->key.queryid != 0)
		{
			key.queryid = sum->key.queryid;
			part = parts_insert(by_query, key, &found);
			part->ms = (found ? part->ms : 0) + sum->ms;
			key.queryid = 0;
		}
		key.event_type = sum->key.event_type;
		key.event = sum->key.event;
		part = parts_insert(by_event, key, &found);
		part->ms = (found ? part->ms : 0) + sum->ms;
	}
	for (int pass = 0; pass < 2; pass++)
	{
		parts_hash *of = pass == 0 ? by_event : by_query;
		Part	   *longest = pass == 0 ? events : queries;
		parts_iterator it;
		Part	   *part;

		parts_start_iterate(of, &it);
		while ((part = parts_iterate(of, &it)) != NULL)
		{
			Part	   *best = &longest[part->key.rank];

			if (best->key.rank == 0 || part->ms > best->ms ||
				(part->ms == best->ms && memcmp(&part->key, &best->key, sizeof(PartKey)) < 0))
				*best = *part;
		}
		parts_destroy(of);
	}
}

/*
 * pgscale_internal.past_items(since, until, by, top, queryid): one row for each item,
 * longest first; all beyond top, or not separate, are one row.
 */
Datum
pgscale_past_items(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Question	question = {0};
	PgscaleSamplerPastRange period;
	items_hash *hash;
	PastItem  **items;
	PastItem	rest = {.name = kinds[ITEM_OTHER],.key.kind = ITEM_OTHER,.sessions = true};
	Part	   *events;
	Part	   *queries;
	double		database_ms;
	int64		n;
	int64		top;

	question.by = item_by(PG_ARGISNULL(2) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(2)));
	if (PG_ARGISNULL(3) || PG_GETARG_INT32(3) < 1 || PG_GETARG_INT32(3) > TOP_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("top must be from 1 to %d", TOP_MAX),
				 errhint("The rest is one row, other.")));
	top = PG_GETARG_INT32(3);
	question.of_query = !PG_ARGISNULL(4);
	question.queryid = question.of_query ? PG_GETARG_INT64(4) : 0;
	period = pgscale_sampler_past_period(fcinfo);
	InitMaterializedSRF(fcinfo, 0);

	question.past = pgscale_sampler_past_sums(&period, by_parts[question.by]);
	question.other = pgscale_sampler_past_number(question.past->texts, kinds[ITEM_OTHER]);
	question.idle = pgscale_sampler_past_number(question.past->texts, PGSCALE_WAIT_IDLE_NAME);
	hash = items_create(CurrentMemoryContext, 256, NULL);
	items = sum_by_item(&question, hash, &n, &database_ms);
	top = Min(top, n);
	while (top > 0 && items[top - 1]->key.kind == ITEM_OTHER)
		top--;
	for (int i = 0; i < top; i++)
		items[i]->rank = i + 1;
	events = palloc0((top + 1) * sizeof(Part));
	queries = palloc0((top + 1) * sizeof(Part));
	find_longest(&question, hash, top, events, queries);
	for (int64 i = top; i < n; i++)
	{
		rest.ms += items[i]->ms;
		rest.idle_ms += items[i]->idle_ms;
		rest.sessions = rest.sessions && items[i]->sessions;
	}

	for (int i = 0; i < top + (n > top ? 1 : 0); i++)
	{
		const PastItem *item = i < top ? items[i] : &rest;
		const Part *event = &events[item->rank];
		const Part *query = &queries[item->rank];

		/* by event or class, being idle is an item of its own */
		const bool	counts_idle = question.by == BY_EVENT || question.by == BY_CLASS;
		const double active_ms = counts_idle ? item->ms : item->ms - item->idle_ms;
		Datum		values[10];
		bool		nulls[10] = {0};

		values[0] = Int32GetDatum(item->rank ? item->rank : PG_GETARG_INT32(3) + 1);
		values[1] = CStringGetTextDatum(item->name);
		values[2] = CStringGetTextDatum(kinds[item->key.kind]);
		nulls[3] = event->key.event_type == 0;
		values[3] = nulls[3] ? (Datum) 0 : CStringGetTextDatum(pgscale_sampler_past_text(question.past->texts, event->key.event_type));
		nulls[4] = event->key.event == 0;
		values[4] = nulls[4] ? (Datum) 0 : CStringGetTextDatum(pgscale_sampler_past_text(question.past->texts, event->key.event));
		values[5] = Float8GetDatum(active_ms / question.past->known_ms);
		nulls[5] = nulls[6] = !(question.past->known_ms > 0);
		values[6] = Float8GetDatum(item->idle_ms / question.past->known_ms);
		nulls[7] = !(item->sessions && database_ms > 0);
		values[7] = nulls[7] ? (Datum) 0 : Float8GetDatum(item->ms / database_ms);
		values[8] = Float8GetDatum(item->ms);
		nulls[9] = query->key.queryid == 0;
		values[9] = Int64GetDatum(query->key.queryid);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
