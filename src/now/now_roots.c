/*-------------------------------------------------------------------------
 *
 * now_roots.c
 *	  The root blockers of this moment, with all that they hold up.
 *
 * The graph is base/lock_waits.c's.  pgscale.blockers shows all of it, and searches it once
 * for each transaction to know how many are behind that one, which grows with the square of a
 * queue.  Here only roots are counted, each waiter once and for its own root: with 5,000 in one
 * queue that takes milliseconds.
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
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/lock_waits.h"
#include "base/pg_compat.h"
#include "base/processes.h"
#include "base/row_builder.h"

#define MAX_ROOTS			5

/* Those that give up and try again are there most of the time. */
#define MORE_LOOKS			20
#define LOOK_AGAIN_US		10000

PG_FUNCTION_INFO_V1(pgscale_now_roots);

/* By node; those that are no root have no waiters. */
typedef struct RootSum
{
	int			node;
	int			waiters;		/* transactions below it */
	int			rows;			/* of them, those that wait for a row */
	int			maintenance;	/* those that only commands such as CREATE
								 * INDEX CONCURRENTLY and VACUUM do */
	int			first_level;	/* those that it is in the way of itself */
	int			gate;			/* of these, the last one */
	TimestampTz since;			/* of the one that has waited longest */
	TimestampTz first_since;	/* the same, of the first level */
	TimestampTz row_since;		/* the same, of those of them that wait for a
								 * row: with each holder they wait anew */
	TimestampTz queue_since;	/* since when the oldest of these is at its
								 * statement */
	const LOCKTAG *tag;			/* what the first of the first level waits for */
} RootSum;

static int
compare_roots(const void *a, const void *b)
{
	const RootSum *left = a;
	const RootSum *right = b;

	if (left->waiters != right->waiters)
		return left->waiters > right->waiters ? -1 : 1;
	if (left->since != right->since)
		return left->since < right->since ? -1 : 1;
	return left->node < right->node ? -1 : 1;
}

/*
 * Does only a command wait in this way that lets the load go on: for the end of transactions that may still
 * see an old state, or for another command of its kind?
 */
static bool
is_maintenance_wait(const PgscaleLockWaiter *waiter, const LOCKTAG *tag)
{
	return tag->locktag_type == LOCKTAG_VIRTUALTRANSACTION ||
		(tag->locktag_type == LOCKTAG_RELATION && waiter->mode == ShareUpdateExclusiveLock);
}

static void
sum_roots(const PgscaleLockWaits *waits, RootSum *sums)
{
	for (int node = 0; node < waits->nnodes; node++)
	{
		sums[node].node = node;
		sums[node].waiters = sums[node].rows = sums[node].maintenance = sums[node].first_level = 0;
		sums[node].gate = -1;
		sums[node].since = sums[node].first_since = sums[node].row_since = sums[node].queue_since = DT_NOEND;
		sums[node].tag = NULL;
	}
	for (int node = 0; node < waits->nnodes; node++)
	{
		RootSum    *sum = &sums[waits->nodes[node].root];
		const int	waiter = waits->nodes[node].waiter;
		const LOCKTAG *tag;
		Oid			database;

		if (sum->node == node || waiter < 0)
			continue;
		tag = &waits->locks[waits->waiters[waiter].lock].tag;
		sum->waiters++;
		if (tag->locktag_type == LOCKTAG_TRANSACTION || tag->locktag_type == LOCKTAG_TUPLE)
			sum->rows++;
		sum->maintenance += is_maintenance_wait(&waits->waiters[waiter], tag);
		if (waits->nodes[node].parent == sum->node)
		{
			sum->first_level++;
			sum->gate = node;
			sum->first_since = Min(sum->first_since, pgscale_lock_waits_since(waits, node));
		}
		sum->since = Min(sum->since, pgscale_lock_waits_since(waits, node));

		/*
		 * Of a queue for a row all but the first wait for the tuple, which
		 * says of which table.
		 */
		if (!sum->tag || (!OidIsValid(pgscale_lock_waits_relation(sum->tag, &database)) && tag->locktag_type == LOCKTAG_TUPLE))
			sum->tag = tag;
	}
}

static const PgscaleProcStatement *
statement_of(const PgscaleLockNode *node, PgscaleProcStatement *statement)
{
	return node->pid != 0 && node->slot >= 0 && pgscale_procs_read_statement(node->slot, statement) && statement->pid == node->pid ?
		statement : NULL;
}

/* Of the first level's waiters for rows, the beginnings of their waits and of their statements. */
static void
find_queues(const PgscaleLockWaits *waits, RootSum *sums)
{
	PgscaleProcStatement *room = palloc(sizeof(PgscaleProcStatement));

	for (int node = 0; node < waits->nnodes; node++)
	{
		const int	parent = waits->nodes[node].parent;
		const int	waiter = waits->nodes[node].waiter;
		const PgscaleProcStatement *statement;

		CHECK_FOR_INTERRUPTS();
		if (parent < 0 || waits->nodes[node].root != parent || waiter < 0 ||
			waits->locks[waits->waiters[waiter].lock].tag.locktag_type != LOCKTAG_TRANSACTION)
			continue;
		sums[parent].row_since = Min(sums[parent].row_since, pgscale_lock_waits_since(waits, node));
		statement = statement_of(&waits->nodes[node], room);
		if (statement && statement->activity_start > 0)
			sums[parent].queue_since = Min(sums[parent].queue_since, statement->activity_start);
	}
	pfree(room);
}

/*
 * When the transaction of a root began; 0 if that is not known.  From shared memory, because within
 * a transaction block pg_stat_activity keeps what it has shown first, and a session that has begun
 * another transaction since then would seem to have idled in it all the time.
 */
static TimestampTz
transaction_start(const PgscaleLockNode *node)
{
	PgscaleProcStatement *room = palloc(sizeof(PgscaleProcStatement));
	const PgscaleProcStatement *statement = statement_of(node, room);
	const TimestampTz start = statement ? statement->xact_start : 0;

	pfree(room);
	return start;
}

/*
 * Those that wait only since that one does: they want the same lock, and no holder is in their way.  To end what
 * that one waits to do lets all of them go on.
 */
static int
count_behind_gate(const PgscaleLockWaits *waits, int gate)
{
	const int	lock = waits->waiters[waits->nodes[gate].waiter].lock;
	int			n = 0;

	for (int i = 0; i < waits->nwaiters; i++)
		n += waits->waiters[i].lock == lock && waits->nodes[waits->waiters[i].node].parent == gate;
	return n;
}

/* Has a process of the same group, as one of a parallel query, been found to hold the lock in that way already? */
static bool
is_counted(const PgscaleLockWaits *waits, const PgscaleAwaitedLock *lock, int holder, LOCKMASK conflicts)
{
	for (int h = waits->holders[holder].next; h >= lock->first_holder; h = waits->holders[h].next)
		if ((waits->holders[h].modes & conflicts) != 0)
			return true;
	return false;
}

/* Those that are in the way of a waiter, each by a lock that it holds, and wait for nothing. */
static int
count_holders(const PgscaleLockWaits *waits, int node)
{
	const PgscaleLockWaiter *waiter = &waits->waiters[waits->nodes[node].waiter];
	const PgscaleAwaitedLock *lock = &waits->locks[waiter->lock];
	const LOCKMASK conflicts = lock->conflicts[waiter->mode];
	int			n = 0;

	for (int h = lock->first_holder; h < lock->first_holder + lock->nholders; h++)
		n += (waits->holders[h].modes & conflicts) != 0 && waits->holders[h].node != node &&
			waits->nodes[waits->holders[h].node].waiter < 0 && !is_counted(waits, lock, h, conflicts);
	return n;
}

static double
ms_since(TimestampTz since, TimestampTz now)
{
	return since < now ? (now - since) / 1000.0 : 0;
}

static void
put_root(ReturnSetInfo *rsinfo, const PgscaleLockWaits *waits, const RootSum *sum, TimestampTz now)
{
	const PgscaleLockNode *node = &waits->nodes[sum->node];
	Oid			database = InvalidOid;
	const Oid	relation = pgscale_lock_waits_relation(sum->tag, &database);
	const bool	known = OidIsValid(relation);
	PgscaleRow	row = {0};

	pgscale_row_pid(&row, node->pid);
	pgscale_row_put(&row, TransactionIdGetDatum(node->xid), node->pid != 0);
	pgscale_row_int4(&row, sum->waiters);
	pgscale_row_int4(&row, sum->rows);
	pgscale_row_float8(&row, ms_since(sum->since, now));
	pgscale_row_text(&row, sum->tag->locktag_type <= LOCKTAG_LAST_TYPE ? LockTagTypeNames[sum->tag->locktag_type] : "unknown");
	pgscale_row_put(&row, ObjectIdGetDatum(database), !known);
	pgscale_row_oid(&row, relation);
	pgscale_row_bool(&row, node->waiter >= 0);
	pgscale_row_timestamp(&row, transaction_start(node));
	pgscale_row_int4(&row, sum->maintenance);
	pgscale_row_float8(&row, ms_since(sum->first_since, now));
	pgscale_row_int4(&row, count_holders(waits, sum->gate));
	pgscale_row_int4(&row, waits->nodes[sum->gate].pid);
	pgscale_row_int4(&row, sum->first_level == 1 ? count_behind_gate(waits, sum->gate) : 0);
	pgscale_row_float8(&row, sum->queue_since == DT_NOEND ? NAN : ms_since(sum->queue_since, now));
	pgscale_row_float8(&row, sum->row_since == DT_NOEND ? NAN : ms_since(sum->row_since, now));
	pgscale_row_end(&row, rsinfo);
}

/*
 * pgscale_internal.now_roots(patient): the roots with the most waiters, at most five of them.  patient: of late
 * sessions have waited, and given up; so where none waits at this moment, look again for a while.
 */
Datum
pgscale_now_roots(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	PgscaleLockWaits *waits;
	RootSum    *sums;
	TimestampTz now;

	InitMaterializedSRF(fcinfo, 0);
	waits = pgscale_lock_waits_read_all(false);
	for (int i = 0; PG_GETARG_BOOL(0) && waits->nwaiters == 0 && i < MORE_LOOKS; i++)
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(LOOK_AGAIN_US);
		if (!pgscale_lock_waits_read(waits))
			waits = pgscale_lock_waits_read_all(false);
	}
	now = GetCurrentTimestamp();
	pgscale_lock_waits_find_roots(waits);
	sums = palloc_extended(Max(waits->nnodes, 1) * sizeof(RootSum), MCXT_ALLOC_HUGE);
	sum_roots(waits, sums);
	find_queues(waits, sums);
	CHECK_FOR_INTERRUPTS();
	qsort(sums, waits->nnodes, sizeof(RootSum), compare_roots);
	for (int i = 0; i < Min(waits->nnodes, MAX_ROOTS) && sums[i].waiters > 0; i++)
		put_root(rsinfo, waits, &sums[i], now);
	return (Datum) 0;
}
