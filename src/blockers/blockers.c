/*-------------------------------------------------------------------------
 *
 * blockers.c
 *	  The lock waits of this moment as a forest of blockers.
 *
 * The graph is copied from the lock manager (base/lock_waits.c).  In the forest a
 * transaction is below its first blocker: a holder of the lock if there is one,
 * otherwise the first of the queue.  So the queue of a lock is one level, however long
 * it is. blocked_by lists all blockers.
 *
 * Statements and states are not read here: pgscale.blockers joins pg_stat_activity,
 * which knows which role may see them.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_type_d.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/lock_waits.h"
#include "base/pg_compat.h"
#include "base/row_builder.h"
#include "base/wait_events.h"
#include "blockers/blockers.h"

/* Of a long queue, the last one has as many in its way as there are. */
#define MOST_BLOCKERS	100

/* Columns of a wait, and which of them is the kind of the lock. */
#define WAIT_COLUMNS	9
#define LOCK_TYPE		3

PG_FUNCTION_INFO_V1(pgscale_lock_waits);

/* A node and what sorts it. */
typedef struct Place
{
	int			node;
	int			behind;			/* of a root; others are not sorted by it */
	bool		parent;
	TimestampTz since;
	int			waiter;
} Place;

typedef struct Forest
{
	PgscaleLockWaits *waits;
	int		   *behind;
	bool	   *cycle;
	int		   *first_child;
	int		   *next_sibling;	/* of roots, too */
	int			first_root;
	int		   *marks;
	TimestampTz now;
} Forest;

/*
 * Roots with the most behind them first, and of those that hold up the same ones the
 * one that they stand below; then as long as they wait.
 */
static int
compare_places(const void *a, const void *b)
{
	const Place *left = a;
	const Place *right = b;

	if (left->behind != right->behind)
		return left->behind > right->behind ? -1 : 1;
	if (left->parent != right->parent)
		return left->parent ? -1 : 1;
	if (left->since != right->since)
		return left->since < right->since ? -1 : 1;
	if (left->waiter != right->waiter)
		return left->waiter < right->waiter ? -1 : 1;
	return left->node < right->node ? -1 : 1;
}

static void
plant_forest(Forest *forest)
{
	const PgscaleLockWaits *waits = forest->waits;
	Place	   *places = palloc_extended(Max(waits->nnodes, 1) * sizeof(Place), MCXT_ALLOC_HUGE);

	for (int node = 0; node < waits->nnodes; node++)
	{
		places[node].node = node;
		places[node].behind = waits->nodes[node].parent < 0 ? forest->behind[node] : 0;
		places[node].parent = false;
		places[node].since = pgscale_lock_waits_since(waits, node);
		places[node].waiter = waits->nodes[node].waiter;
		forest->first_child[node] = -1;
	}
	for (int node = 0; node < waits->nnodes; node++)
	{
		int			parent = waits->nodes[node].parent;

		if (parent >= 0 && waits->nodes[parent].parent < 0)
			places[parent].parent = true;
	}
	qsort(places, waits->nnodes, sizeof(Place), compare_places);

	forest->first_root = -1;
	for (int i = waits->nnodes; --i >= 0;)
	{
		int			node = places[i].node;
		int			parent = waits->nodes[node].parent;
		int		   *first = parent < 0 ? &forest->first_root : &forest->first_child[parent];

		forest->next_sibling[node] = *first;
		*first = node;
	}
}

/* What of the lock's kind it is, apart from its relation. */
static char *
lock_target(const LOCKTAG *tag)
{
	switch ((LockTagType) tag->locktag_type)
	{
		case LOCKTAG_RELATION:
		case LOCKTAG_RELATION_EXTEND:
		case LOCKTAG_DATABASE_FROZEN_IDS:
			return NULL;
		case LOCKTAG_PAGE:
			return psprintf("%u", tag->locktag_field3);
		case LOCKTAG_TUPLE:
			return psprintf("(%u,%u)", tag->locktag_field3, tag->locktag_field4);
		case LOCKTAG_TRANSACTION:
			return psprintf("%u", tag->locktag_field1);
		case LOCKTAG_VIRTUALTRANSACTION:
			return psprintf("%u/%u", tag->locktag_field1, tag->locktag_field2);
		case LOCKTAG_SPECULATIVE_TOKEN:
			return psprintf("%u, token %u", tag->locktag_field1, tag->locktag_field2);
		case LOCKTAG_ADVISORY:
			/* one key of 64 bits, or two of 32 */
			if (tag->locktag_field4 == 1)
				return psprintf(INT64_FORMAT, (int64) ((uint64) tag->locktag_field2 << 32 | tag->locktag_field3));
			return psprintf("%d, %d", (int) tag->locktag_field2, (int) tag->locktag_field3);
		default:
			return psprintf("%u", tag->locktag_field3);
	}
}

/* The relation that it is about, or the catalog of what is none; and its database. */
static Oid
lock_relation(const PgscaleLockWaiter *waiter, const LOCKTAG *tag, Oid *database)
{
	if (tag->locktag_type == LOCKTAG_TRANSACTION)
	{
		if (!waiter->row_known)
			return InvalidOid;
		tag = &waiter->row;
	}
	return pgscale_lock_waits_relation(tag, database);
}

static Datum
blocked_by(Forest *forest, int node)
{
	int			blockers[MOST_BLOCKERS];
	Datum		pids[MOST_BLOCKERS];
	int			n;

	n = pgscale_lock_waits_blockers(forest->waits, node, blockers, MOST_BLOCKERS, forest->marks, node);
	for (int i = 0; i < n; i++)
		pids[i] = Int32GetDatum(forest->waits->nodes[blockers[i]].pid);
	return PointerGetDatum(construct_array(pids, n, INT4OID, sizeof(int32), true, TYPALIGN_INT));
}

/* Of those of its processes that wait, the one that does so for longest. */
static const PgscaleLockWaiter *
longest_waiter(const PgscaleLockWaits *waits, int node)
{
	const PgscaleLockWaiter *longest = NULL;

	for (int i = waits->nodes[node].waiter; i >= 0; i = waits->waiters[i].next)
	{
		const PgscaleLockWaiter *waiter = &waits->waiters[i];

		if (longest == NULL ||
			(waiter->since != 0 && (longest->since == 0 || waiter->since < longest->since)))
			longest = waiter;
	}
	return longest;
}

/* What it waits for: WAIT_COLUMNS columns. */
static void
put_wait(PgscaleRow *row, const Forest *forest, const PgscaleLockWaiter *waiter)
{
	const LOCKTAG *tag = &forest->waits->locks[waiter->lock].tag;
	Oid			database = InvalidOid;
	const Oid	relation = lock_relation(waiter, tag, &database);
	const TimestampTz since = waiter->since;

	pgscale_row_int4(row, waiter->pid);
	/* It is reported a moment after the wait has begun. */
	pgscale_row_timestamp(row, since);
	pgscale_row_float8(row, since != 0 && since < forest->now ? (forest->now - since) / 1000.0 : 0);
	pgscale_row_text(row, tag->locktag_type <= LOCKTAG_LAST_TYPE ? LockTagTypeNames[tag->locktag_type] : "unknown");
	pgscale_row_text(row, GetLockmodeName(tag->locktag_lockmethodid, waiter->mode));
	pgscale_row_put(row, ObjectIdGetDatum(database), !OidIsValid(relation));
	pgscale_row_oid(row, relation);
	pgscale_row_text(row, lock_target(tag));
	pgscale_row_text(row, waiter->row_known ? lock_target(&waiter->row) : NULL);
}

/* The same columns of a transaction that waits for no lock: in lock_type, what else it waits for. */
static void
put_other_wait(PgscaleRow *row, const PgscaleLockNode *node)
{
	for (int i = 0; i < WAIT_COLUMNS; i++)
		pgscale_row_text(row, i == LOCK_TYPE && node->other_wait != 0 ? pgscale_wait_event_name(node->other_wait) : NULL);
}

static void
put_node(ReturnSetInfo *rsinfo, Forest *forest, int number, int depth)
{
	const PgscaleLockNode *node = &forest->waits->nodes[number];
	const PgscaleLockNode *root = &forest->waits->nodes[node->root];
	const PgscaleLockWaiter *waiter = longest_waiter(forest->waits, number);
	PgscaleRow	row = {0};

	pgscale_row_pid(&row, node->pid);
	pgscale_row_put(&row, TransactionIdGetDatum(node->xid), node->pid != 0);
	pgscale_row_int4(&row, depth);
	pgscale_row_int4(&row, forest->behind[number]);
	pgscale_row_bool(&row, forest->cycle[number]);
	if (waiter)
		put_wait(&row, forest, waiter);
	else
		put_other_wait(&row, node);
	pgscale_row_put(&row, blocked_by(forest, number), false);
	pgscale_row_pid(&row, root->pid);
	pgscale_row_put(&row, TransactionIdGetDatum(root->xid), root->pid != 0);
	pgscale_row_end(&row, rsinfo);
}

/* Does any process wait here, or for it? */
static bool
is_shown(const Forest *forest, int number)
{
	const PgscaleLockNode *node = &forest->waits->nodes[number];

	return forest->behind[number] > 0 || node->waiter >= 0 || node->other_wait != 0;
}

static void
put_forest(ReturnSetInfo *rsinfo, Forest *forest)
{
	int			node = forest->first_root;
	int			depth = 0;

	while (node >= 0)
	{
		CHECK_FOR_INTERRUPTS();
		if (is_shown(forest, node))
			put_node(rsinfo, forest, node, depth);
		if (forest->first_child[node] >= 0)
		{
			node = forest->first_child[node];
			depth++;
			continue;
		}
		while (node >= 0 && forest->next_sibling[node] < 0)
		{
			node = forest->waits->nodes[node].parent;
			depth--;
		}
		if (node >= 0)
			node = forest->next_sibling[node];
	}
}

/* pgscale_internal.lock_waits(): one row a transaction that waits for a lock, or is waited for. */
Datum
pgscale_lock_waits(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Forest		forest = {0};
	Size		n;

	InitMaterializedSRF(fcinfo, 0);
	forest.waits = pgscale_lock_waits_read_all(true);
	forest.now = GetCurrentTimestamp();
	n = Max(forest.waits->nnodes, 1);
	forest.behind = palloc(n * sizeof(int));
	forest.cycle = palloc(n * sizeof(bool));
	forest.first_child = palloc(n * sizeof(int));
	forest.next_sibling = palloc(n * sizeof(int));
	forest.marks = palloc(n * sizeof(int));
	for (int i = 0; i < n; i++)
		forest.marks[i] = -1;

	pgscale_blockers_count_behind(forest.waits, forest.behind, forest.cycle);
	pgscale_lock_waits_find_roots(forest.waits);
	plant_forest(&forest);
	put_forest(rsinfo, &forest);
	return (Datum) 0;
}

/* What cancel() points to. */
static const char *const asks[] = {"pgscale.now", NULL};

const PgscaleModule pgscale_blockers_module = {
	.name = "blockers",
	.asks = asks,
};
