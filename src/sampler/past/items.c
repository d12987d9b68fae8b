/*-------------------------------------------------------------------------
 *
 * items.c
 *	  The waits of a period by event, query, user and the like: what top_waits() and
 *	  compare_waits() show.
 *
 * The sums of a period (past.c) are grouped once, in one hash table: by item, by item and
 * event, and by item and query.  The latter two give each item its longest event and query.
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

#include "base/pg_compat.h"
#include "base/row_builder.h"
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

/* The time of an item; or of it in one event, or of one query. */
typedef enum ItemPart
{
	PART_ALL,
	PART_EVENT,
	PART_QUERY
} ItemPart;

/* Hashed and compared as bytes. */
typedef struct PastItemKey
{
	int64		number;			/* of a query, or a database without a name */
	PgscaleSamplerPastText text;
	PgscaleSamplerPastText event;	/* by event: text is its class */
	uint32		kind;
	uint32		part;
	int64		part_queryid;	/* 0 unless it is of one query */
	PgscaleSamplerPastText part_type;	/* 0 unless it is in one event */
	PgscaleSamplerPastText part_event;
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
	const struct PastItem *longest_event;	/* parts; or NULL */
	const struct PastItem *longest_query;
} PastItem;

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

/* What of a period is wanted. */
typedef struct ItemsQuery
{
	const PgscaleSamplerPast *past;
	ItemBy		by;
	bool		of_one_query;	/* and of this one only */
	int64		queryid;
	PgscaleSamplerPastText other;
	PgscaleSamplerPastText idle;
} ItemsQuery;

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

static PastItemKey
item_of(const ItemsQuery *query, const PgscaleSamplerPastSum *sum)
{
	const PgscaleSamplerPastKey *of = &sum->key.of;
	PastItemKey key = {0};

	switch (query->by)
	{
		case BY_EVENT:
			key.text = of->event_type;
			key.event = of->event;
			break;
		case BY_CLASS:
			key.text = of->event == query->idle ? query->idle : of->event_type;
			break;
		case BY_QUERY:
			key.number = of->queryid;
			break;
		case BY_DATABASE:
			key.text = of->datname;
			key.number = of->datname == 0 ? of->datid : 0;
			break;
		case BY_USER:
			key.text = of->usename;
			break;
		case BY_APPLICATION:
			key.text = of->application_name;
			break;
		case BY_BACKEND_TYPE:
			key.text = of->backend_type;
			break;
		case BY_BLOCKER:
			key.text = of->blocker;
			break;
	}

	/*
	 * events that the archive does not separate have a class and a type of
	 * that name
	 */
	if (query->by == BY_EVENT || query->by == BY_CLASS || query->by == BY_BACKEND_TYPE)
		key.kind = key.text == query->other ? ITEM_OTHER : ITEM_NAMED;
	else
		key.kind = of->backend_type == query->other ? ITEM_OTHER : ITEM_NAMED;
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
item_name(const ItemsQuery *query, const PastItemKey *key)
{
	const PgscaleSamplerPastTexts *texts = query->past->texts;

	if (key->kind != ITEM_NAMED)
		return kinds[key->kind];
	if (query->by == BY_QUERY)
		return psprintf(INT64_FORMAT, key->number);
	if (key->text == 0)
		return psprintf("database %u", (Oid) key->number);
	if (query->by == BY_EVENT && key->event != 0 && key->event != key->text)
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

static PastItem *
add_item_time(items_hash *hash, const PastItemKey *key, double ms)
{
	bool		found;
	PastItem   *item = items_insert(hash, *key, &found);

	if (!found)
	{
		item->ms = item->idle_ms = 0;
		item->sessions = true;
		item->rank = 0;
		item->longest_event = item->longest_query = NULL;
	}
	item->ms += ms;
	return item;
}

/* Of parts of the same time, any one, but always the same. */
static const PastItem *
longer_part(const PastItem *one, const PastItem *two)
{
	if (one == NULL || two->ms > one->ms ||
		(two->ms == one->ms && memcmp(&two->key, &one->key, sizeof(PastItemKey)) < 0))
		return two;
	return one;
}

/* The items in order, and how much time of sessions there is in all. */
static PastItem **
sum_by_item(const ItemsQuery *query, int64 *n, double *database_ms)
{
	const PgscaleSamplerPast *past = query->past;
	items_hash *hash = items_create(CurrentMemoryContext, 256, NULL);
	PastItem  **ordered;
	items_iterator it;
	PastItem   *item;

	*database_ms = 0;
	for (int64 i = 0; i < past->nsums; i++)
	{
		const PgscaleSamplerPastSum *sum = &past->sums[i];
		const bool	session = pgscale_sampler_past_is_session(pgscale_sampler_past_text(past->texts, sum->key.of.backend_type));
		PastItemKey key;

		CHECK_FOR_INTERRUPTS();
		if (session)
			*database_ms += sum->ms;
		/* of server processes nothing but their type matters */
		if ((query->of_one_query && sum->key.of.queryid != query->queryid) ||
			(query->by != BY_BACKEND_TYPE && !session))
			continue;
		key = item_of(query, sum);
		item = add_item_time(hash, &key, sum->ms);
		item->sessions = item->sessions && session;
		if (sum->key.of.event == query->idle)
			item->idle_ms += sum->ms;

		if (sum->key.of.queryid != 0)
		{
			key.part = PART_QUERY;
			key.part_queryid = sum->key.of.queryid;
			(void) add_item_time(hash, &key, sum->ms);
			key.part_queryid = 0;
		}
		key.part = PART_EVENT;
		key.part_type = sum->key.of.event_type;
		key.part_event = sum->key.of.event;
		(void) add_item_time(hash, &key, sum->ms);
	}

	ordered = MemoryContextAllocHuge(CurrentMemoryContext, Max(hash->members, 1) * sizeof(PastItem *));
	*n = 0;
	items_start_iterate(hash, &it);
	while ((item = items_iterate(hash, &it)) != NULL)
	{
		/* those whose root is not known, and those that have none */
		if (query->by == BY_BLOCKER && item->key.kind != ITEM_NAMED)
			continue;
		if (item->key.part == PART_ALL)
		{
			item->name = item_name(query, &item->key);
			ordered[(*n)++] = item;
		}
		else
		{
			PastItemKey key = item->key;
			PastItem   *whole;

			key.part = PART_ALL;
			key.part_queryid = 0;
			key.part_type = key.part_event = 0;
			whole = items_lookup(hash, key);
			if (item->key.part == PART_EVENT)
				whole->longest_event = longer_part(whole->longest_event, item);
			else
				whole->longest_query = longer_part(whole->longest_query, item);
		}
	}
	qsort(ordered, *n, sizeof(PastItem *), compare_items);
	return ordered;
}

/*
 * pgscale_internal.past_items(since, until, by, top, queryid): one row for each item,
 * longest first; all beyond top, or not separate, are one row.
 */
Datum
pgscale_past_items(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	const char *node = pgscale_sampler_past_node(fcinfo, 5);
	ItemsQuery	query = {0};
	PgscaleSamplerPastRange period;
	PastItem  **items;
	PastItem	rest = {.name = kinds[ITEM_OTHER],.key.kind = ITEM_OTHER,.sessions = true};
	double		database_ms;
	int64		n;
	int64		top;

	query.by = item_by(PG_ARGISNULL(2) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(2)));
	if (PG_ARGISNULL(3) || PG_GETARG_INT32(3) < 1 || PG_GETARG_INT32(3) > TOP_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("top must be from 1 to %d", TOP_MAX),
				 errhint("The rest is one row, other.")));
	top = PG_GETARG_INT32(3);
	query.of_one_query = !PG_ARGISNULL(4);
	query.queryid = query.of_one_query ? PG_GETARG_INT64(4) : 0;
	period = pgscale_sampler_past_period(fcinfo, node);
	InitMaterializedSRF(fcinfo, 0);

	query.past = pgscale_sampler_past_sums(&period, by_parts[query.by], node);
	query.other = pgscale_sampler_past_number(query.past->texts, kinds[ITEM_OTHER]);
	query.idle = pgscale_sampler_past_number(query.past->texts, PGSCALE_WAIT_IDLE_NAME);
	items = sum_by_item(&query, &n, &database_ms);
	top = Min(top, n);
	while (top > 0 && items[top - 1]->key.kind == ITEM_OTHER)
		top--;
	for (int i = 0; i < top; i++)
		items[i]->rank = i + 1;
	for (int64 i = top; i < n; i++)
	{
		rest.ms += items[i]->ms;
		rest.idle_ms += items[i]->idle_ms;
		rest.sessions = rest.sessions && items[i]->sessions;
	}

	for (int i = 0; i < top + (n > top ? 1 : 0); i++)
	{
		const PastItem *item = i < top ? items[i] : &rest;
		const PastItem *event = item->longest_event;

		/* by event or class, being idle is an item of its own */
		const bool	counts_idle = query.by == BY_EVENT || query.by == BY_CLASS;
		const double active_ms = counts_idle ? item->ms : item->ms - item->idle_ms;
		PgscaleRow	row = {0};

		pgscale_row_int4(&row, item->rank ? item->rank : PG_GETARG_INT32(3) + 1);
		pgscale_row_text(&row, item->name);
		pgscale_row_text(&row, kinds[item->key.kind]);
		pgscale_row_text(&row, pgscale_sampler_past_text(query.past->texts, event ? event->key.part_type : 0));
		pgscale_row_text(&row, pgscale_sampler_past_text(query.past->texts, event ? event->key.part_event : 0));
		pgscale_row_put(&row, Float8GetDatum(active_ms / query.past->known_ms), !(query.past->known_ms > 0));
		pgscale_row_put(&row, Float8GetDatum(item->idle_ms / query.past->known_ms), !(query.past->known_ms > 0));
		pgscale_row_put(&row, Float8GetDatum(item->ms / database_ms), !(item->sessions && database_ms > 0));
		pgscale_row_float8(&row, item->ms);
		pgscale_row_id(&row, item->longest_query ? item->longest_query->key.part_queryid : 0);
		pgscale_row_end(&row, rsinfo);
	}
	return (Datum) 0;
}
