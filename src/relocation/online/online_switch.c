/*-------------------------------------------------------------------------
 *
 * online_switch.c
 *	  An online move waits for a moment to switch, and switches.
 *
 * While it waits it holds no lock and keeps the copy up to date.  Under AccessExclusiveLock others wait for this process, so it must
 * not wait for anyone, and has little left to do: it gives up if a lock is not free at once or too many blocks are left, and
 * tries again later.
 *
 * A process that queues for AccessExclusiveLock blocks all later users of the relation until the slowest present user ends:
 * this is how an ALTER TABLE of a millisecond stops a server for minutes.  So the worker does not queue.  It reads
 * who holds a lock on the relation, which takes no lock on it and no xid, and asks for the lock when there is no holder.
 *
 * A busy table may have holders at each moment, each for a few milliseconds.  If all of them began just now, they are likely to
 * end soon, and the worker queues after all, for GAP_QUEUE_MS at most.
 *
 * While the lock is held, LockHasWaitersRelation() would show whether others wait for it, but the server crashes in it
 * if the lock was taken by the fast path.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/twophase.h"
#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "commands/tablecmds.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/processes.h"
#include "base/timer.h"
#include "base/units.h"
#include "relocation/checks.h"
#include "relocation/online/online.h"
#include "relocation/relocation.h"

/* Changed blocks up to which the lock is asked for; and above which it is released again. */
#define TRY_BLOCKS		256
#define MANY_BLOCKS		512

/* While waiting: between two looks at the users, and between two rounds of copying again, which get longer. */
#define LOOK_MS			2
#define AGAIN_TRY_MS	50
#define AGAIN_MS		250
#define AGAIN_MAX_MS	5000

/* It then copies no more than that in a second, or the size of the relation in that time if that is more. */
#define AGAIN_BYTES		(2 * PGSCALE_MB)
#define AGAIN_ALL_S		600

/* After a try that failed, doubled each time: its queue was for 3 % of the time in the end, where each transaction is long. */
#define TRY_MS			100
#define TRY_MAX_MS		1000

/* How long the switch waits for a lock: of its row, and then, while the relation is locked, of others. */
#define ROW_LOCK_MS		1000
#define SWITCH_LOCK_MS	10

/* Internal errors after which it tries again. */
#define MAX_COLLISIONS	10

/* Up to which age a transaction is new. */
#define NEW_MS		5

/* How long it may queue. */
#define GAP_QUEUE_MS	30

#define GAP_PIDS	8

/* Who uses a relation. */
typedef struct RelationUsers
{
	int			n;				/* a process counts once for each relation */
	bool		all_new;		/* have all of their transactions begun just
								 * now? */
	int			npids;
	int			pids[GAP_PIDS]; /* of some of them; 0: a prepared transaction */
	bool		others;			/* than those of pids */
} RelationUsers;

/*
 * The gap
 */

static void
add_user(RelationUsers *users, const VirtualTransactionId *user, TimestampTz now)
{
	const int	slot = pgscale_compat_vxid_slot(user);
	PgscaleProcStatement statement;
	bool		more;
	int			pid = 0;

	users->n++;

	/*
	 * A prepared transaction keeps the number of the session that has
	 * prepared it, which is at something else by now, or another session's.
	 */
	if (slot < 0 || TransactionIdIsValid(TwoPhaseGetXidByVirtualXID(*user, &more)))
		users->all_new = false;
	else if (!pgscale_procs_read_statement(slot, &statement))
		users->all_new = false;
	else
	{
		pid = statement.pid;
		if (statement.xact_start == 0 || now - statement.xact_start > NEW_MS * INT64CONST(1000))
			users->all_new = false;
	}
	for (int i = 0; i < users->npids; i++)
		if (users->pids[i] == pid)
			return;
	if (users->npids < GAP_PIDS)
		users->pids[users->npids++] = pid;
	else
		users->others = true;
}

/* Adds the users of this relation.  Takes no lock on it. */
static void
gap_look(Oid relation, RelationUsers *users)
{
	const TimestampTz now = GetCurrentTimestamp();
	VirtualTransactionId *all;
	LOCKTAG		tag;
	int			n;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relation);
	all = GetLockConflicts(&tag, AccessExclusiveLock, &n);
	if (users->n == 0)
		users->all_new = true;
	for (int i = 0; i < n; i++)
		add_user(users, &all[i], now);
	pfree(all);
}

/*
 * Takes AccessExclusiveLock if it is free.  If it is not, returns false, or with queue waits for it: for GAP_QUEUE_MS, and then
 * raises ERRCODE_LOCK_NOT_AVAILABLE.  Leaves LockTimeout changed.
 */
static bool
gap_take(Oid relation, bool queue)
{
	if (ConditionalLockRelationOid(relation, AccessExclusiveLock))
		return true;
	if (!queue)
		return false;
	LockTimeout = GAP_QUEUE_MS;
	LockRelationOid(relation, AccessExclusiveLock);
	return true;
}

/*
 * The switch
 */

/* Number of blocks that still have to be copied, while all relations are locked. */
static BlockNumber
online_left(const PgscaleRelocationOnline *move, const Relation *relations)
{
	BlockNumber left = pgscale_relocation_online_marked(move);

	for (int i = 0; i < move->ncopies; i++)
	{
		const BlockNumber end = RelationGetNumberOfBlocks(relations[i]);

		left += end - Min(move->copies[i].copied, end);
	}
	return left;
}

/* Has the requesting role still the rights that the move takes?  It may have lost them while the copy went on for hours. */
static void
online_check_rights(const PgscaleRelocationOnline *move)
{
	Oid			user;
	int			context;

	/* after an error the end of the transaction takes it back */
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(move->job->role, context | SECURITY_LOCAL_USERID_CHANGE);
	pgscale_relocation_check_job(move->job);
	SetUserIdAndSecContext(user, context);
}

static void
online_copy_rest(PgscaleRelocationOnline *move, const Relation *relations)
{
	for (int i = 0; i < move->ncopies; i++)
	{
		PgscaleRelocationCopy *copy = &move->copies[i];

		while (pgscale_relocation_copy_more(copy, relations[i], MANY_BLOCKS) > 0)
			;
		copy->again = 0;
		move->progress.counts.recopied_blocks += pgscale_relocation_copy_again(copy, relations[i], MANY_BLOCKS);
		(void) pgscale_relocation_copy_map(copy, relations[i], VISIBILITYMAP_FORKNUM, 0, InvalidBlockNumber);
		pgscale_relocation_copy_finish(copy, relations[i]);
	}
}

static void
online_set_tablespace(PgscaleRelocationOnline *move, Relation relation, RelFileNumber file)
{
	if (!CheckRelationTableSpaceMove(relation, move->job->target))
		return;
	SetRelationTableSpace(relation, move->job->target, file);
	InvokeObjectPostAlterHook(RelationRelationId, RelationGetRelid(relation), 0);
}

/* Locks all relations.  After false the caller must abort the transaction. */
static bool
online_lock_all(PgscaleRelocationOnline *move, bool queue)
{
	if (move->ncopies == 0)
		return gap_take(move->job->relation, queue);
	/* no queue for the TOAST table, while others queue for the locked table */
	for (int i = 0; i < move->ncopies; i++)
		if (!gap_take(move->copies[i].relation, queue && i == 0))
			return false;
	return true;
}

/* Within the transaction of online_try(). */
static bool
online_try_now(PgscaleRelocationOnline *move, bool queue)
{
	PgscaleRelocationJob row = *move->job;
	Relation	relations[PGSCALE_JOB_FILES];

	/*
	 * the row first: it may be locked; if it is gone, the new files are those
	 * to remove
	 */
	LockTimeout = ROW_LOCK_MS;
	PushActiveSnapshot(GetTransactionSnapshot());
	pgscale_relocation_online_note_files(move, &row, true);
	move->step = PGSCALE_SWITCH_LOCKS;
	pgscale_relocation_job_has_files(&row);
	move->step = PGSCALE_SWITCH_COPIES;
	PopActiveSnapshot();
	/* so that little is left to flush and to read under the lock */
	pgscale_relocation_online_follow(move, pgscale_relocation_wal_flush());
	move->step = PGSCALE_SWITCH_LOCKS;
	if (!online_lock_all(move, queue))
		return false;

	/*
	 * from now on others wait for this process, and it must not wait: an
	 * uncommitted GRANT has locked the row of pg_class
	 */
	LockTimeout = SWITCH_LOCK_MS;
	move->locked_at = pgscale_timer_clock();
	CHECK_FOR_INTERRUPTS();
	pgscale_relocation_online_check_same(move);
	for (int i = 0; i < move->ncopies; i++)
		relations[i] = pgscale_relocation_online_open(move, &move->copies[i], NoLock);
	online_check_rights(move);
	move->step = PGSCALE_SWITCH_COPIES;
	pgscale_relocation_online_follow(move, pgscale_relocation_wal_flush());
	if (online_left(move, relations) > pgscale_relocation_online_try_blocks(move, MANY_BLOCKS))
		return false;
	online_copy_rest(move, relations);
	move->step = PGSCALE_SWITCH_CATALOG;
	for (int i = 0; i < move->ncopies; i++)
	{
		online_set_tablespace(move, relations[i], move->copies[i].to.relNumber);
		relation_close(relations[i], NoLock);
	}
	if (move->ncopies == 0)
	{
		relations[0] = relation_open(move->job->relation, NoLock);
		online_set_tablespace(move, relations[0], 0);
		relation_close(relations[0], NoLock);
	}
	CommandCounterIncrement();
	return true;
}

/*
 * May another try succeed after that error?  Only errors of calls that wait for locks, and of those that change pg_class: of two that change
 * the same row, the later one gets an internal error.  Neither has touched the copy or its marks.  An error of
 * the copy itself ends the attempt, whatever it is.
 */
static bool
online_may_try_again(PgscaleRelocationOnline *move, int sqlstate)
{
	if (move->step == PGSCALE_SWITCH_COPIES)
		return false;
	if (move->step == PGSCALE_SWITCH_CATALOG && sqlstate == ERRCODE_INTERNAL_ERROR)
		return ++move->collisions <= MAX_COLLISIONS;
	return sqlstate == ERRCODE_LOCK_NOT_AVAILABLE || sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED;
}

/* After an error of a try: ends its transaction, and logs it; or raises it again. */
static void
online_take_error(PgscaleRelocationOnline *move)
{
	ErrorData  *error;

	if (!online_may_try_again(move, geterrcode()))
		PG_RE_THROW();
	MemoryContextSwitchTo(move->context);
	error = CopyErrorData();
	FlushErrorState();
	AbortCurrentTransaction();

	/*
	 * a lock that is not free is what it waits for, perhaps for hours: the
	 * first, second, fourth, eighth time and so on
	 */
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
		move->no_lock++;
	ereport(error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE && (move->no_lock & (move->no_lock - 1)) != 0 ? DEBUG1 : LOG,
			(errcode(error->sqlerrcode),
			 errmsg("pgscale relocation job " INT64_FORMAT " will try to switch again: %s", move->job->id, error->message)));
	FreeErrorData(error);
}

/*
 * Tries to switch.  Returns false if a lock was not free, or too many blocks have changed; then nothing has changed.
 */
static bool
online_try(PgscaleRelocationOnline *move, bool queue)
{
	const int	lock_timeout = LockTimeout;
	volatile bool switched = false;

	move->progress.counts.lock_tries++;
	move->progress.held_back_by[0] = '\0';
	pgscale_relocation_online_show(move, PGSCALE_PHASE_SWITCHING);
	SetCurrentStatementStartTimestamp();
	move->step = PGSCALE_SWITCH_COPIES;
	PG_TRY();
	{
		StartTransactionCommand();
		switched = online_try_now(move, queue);
		move->step = PGSCALE_SWITCH_COPIES;
		if (switched)
			CommitTransactionCommand();
		else
			AbortCurrentTransaction();
	}
	PG_CATCH();
	{
		LockTimeout = lock_timeout;
		online_take_error(move);
		switched = false;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(move->context);
	LockTimeout = lock_timeout;
	if (switched)
	{
		move->progress.counts.locked_us = (pgscale_timer_clock() - move->locked_at) / NS_PER_US;
		pgscale_relocation_online_note_files(move, move->job, true);
	}
	return switched;
}

static void
online_look(PgscaleRelocationOnline *move, RelationUsers *users)
{
	memset(users, 0, sizeof(*users));
	if (move->ncopies == 0)
		gap_look(move->job->relation, users);
	for (int i = 0; i < move->ncopies; i++)
		gap_look(move->copies[i].relation, users);
}

static void
online_show_users(PgscaleRelocationOnline *move, const RelationUsers *users)
{
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < users->npids; i++)
		if (users->pids[i] == 0)
			appendStringInfo(&text, "%sa prepared transaction", i > 0 ? ", " : "in use by ");
		else
			appendStringInfo(&text, "%sprocess %d", i > 0 ? ", " : "in use by ", users->pids[i]);
	if (users->others)
		appendStringInfoString(&text, " and others");
	if (users->npids == 0 && move->progress.counts.lock_tries > 0)
		appendStringInfoString(&text, "in use by short transactions, or its row in pg_class is locked");
	strlcpy(move->progress.held_back_by, text.data, sizeof(move->progress.held_back_by));
	pfree(text.data);
}

static void
online_give_up(const PgscaleRelocationOnline *move)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("the relation could not be switched within %d s: %s", pgscale_relocation_switch_timeout,
					move->progress.held_back_by[0] ? move->progress.held_back_by : "it changes too fast"),
			 errhint("Move it when there are no long transactions, or raise pgscale.relocation_switch_timeout.")));
}

/*
 * How long not to copy again after that number of bytes was: each time costs the WAL an image of each changed block.  With a chance to
 * switch, that is worth its price.
 */
static int64
online_again_ns(const PgscaleRelocationOnline *move, int64 waited_ns, int64 bytes, bool may_try)
{
	const int64 rate = Max(AGAIN_BYTES, move->progress.total_bytes / AGAIN_ALL_S);
	const int64 paid_ns = (int64) ((double) bytes / rate * NS_PER_S);
	const int64 most_ns = AGAIN_MAX_MS * NS_PER_MS;

	if (may_try)
		return Min(Max(AGAIN_TRY_MS * NS_PER_MS, paid_ns), most_ns);
	return Max(Min(Max(AGAIN_MS * NS_PER_MS, waited_ns / 20), most_ns), paid_ns);
}

void
pgscale_relocation_online_switch(PgscaleRelocationOnline *move)
{
	int64		waited_ns = 0;	/* without the time for which it was held back */
	int64		looked_at = pgscale_timer_clock();
	int64		copied_at = 0;
	int64		copied_bytes = 0;	/* at that time */
	int64		try_at = 0;
	int64		pause_ms = TRY_MS;

	for (;;)
	{
		const int64 now = pgscale_timer_clock();
		int64		looked_ns;
		RelationUsers users;
		bool		may_try;
		bool		held_back;

		pgscale_relocation_online_follow(move, InvalidXLogRecPtr);
		held_back = pgscale_relocation_online_pause(move) > 0;
		if (move->progress.held_back_by[0] == '\0')
			waited_ns += now - looked_at;
		looked_at = now;
		looked_ns = pgscale_timer_clock();
		online_look(move, &users);
		looked_ns = pgscale_timer_clock() - looked_ns;
		may_try = !held_back && now >= try_at && (users.n == 0 || users.all_new);
		if (!held_back && now - copied_at >= online_again_ns(move, waited_ns, copied_bytes, may_try))
		{
			const int64 blocks = move->progress.counts.recopied_blocks;

			pgscale_relocation_online_catch_up(move, PGSCALE_PHASE_WAITING);
			if (may_try)
				pgscale_relocation_online_prepare(move);
			copied_at = pgscale_timer_clock();
			copied_bytes = (move->progress.counts.recopied_blocks - blocks) * BLCKSZ;
			online_look(move, &users);
			may_try = may_try && (users.n == 0 || users.all_new);
		}
		if (may_try && pgscale_relocation_online_marked(move) <= pgscale_relocation_online_try_blocks(move, TRY_BLOCKS))
		{
			if (online_try(move, users.n > 0))
				return;
			try_at = pgscale_timer_clock() + pause_ms * NS_PER_MS;
			pause_ms = Min(pause_ms * 2, TRY_MAX_MS);
		}
		if (move->progress.held_back_by[0] == '\0')
			online_show_users(move, &users);
		pgscale_relocation_online_show(move, PGSCALE_PHASE_WAITING);
		if (waited_ns > pgscale_relocation_switch_timeout * NS_PER_S)
			online_give_up(move);

		/*
		 * looking at the locks of all processes takes a while, where there
		 * are thousands
		 */
		pgscale_timer_pause(Max(LOOK_MS, 10 * looked_ns / NS_PER_MS));
	}
}
