/*-------------------------------------------------------------------------
 *
 * live_move.c
 *	  Moves a table or an index, as it is, while it is in use.
 *
 * The method is that of hypervisors, which move the memory of a running machine: copy everything, copy again the blocks
 * that changed meanwhile until few are left, then stop the users for a moment, copy the rest and switch.  Rows keep
 * their places, so indexes are not touched.  OIDs stay.  The table needs no trigger, no logical decoding and no key.
 *
 *	copying		The job's row gets the names of the new files; then they are made.  Blocks are copied in pieces.  Each
 *				piece is a transaction that holds AccessShareLock for milliseconds, without xid and snapshot: VACUUM is
 *				not held back, DDL waits no longer than that, and there can be no deadlock.  After each piece
 *				the WAL is read (wal_follow.c), and copied blocks that have changed are marked.
 *	following	Marked blocks are copied again until few are left.
 *	waiting		The worker waits for a moment without users, or with users that have just begun (lock_gap.c), and
 *				keeps the copy up to date.
 *	switching	One transaction takes AccessExclusiveLock, reads the WAL to its end, copies the last blocks and the
 *				visibility map, changes pg_class, and writes the names of the old files into the job's row.
 *				It gives up if more blocks are left than can be copied in some milliseconds.
 *	dropping	The old files are removed slowly (live_files.c).
 *
 * A table moves with its TOAST table and the index of that: all are copied, and switched in one transaction.  A partitioned
 * table or index has no file, so only its row of pg_class changes.
 *
 * Events during a move:
 *
 *	VACUUM, other locks			it waits until they end, and shows their pids
 *	VACUUM that truncates		the copy is truncated, too
 *	VACUUM FULL, TRUNCATE,
 *	  CLUSTER, ALTER TABLE		the table has another file: error, and the job starts again
 *	DROP TABLE					error; the job ends
 *	DROP EXTENSION				the job's row is gone, so it does not switch: error; the job ends
 *	crash, promotion, restore	the row has the files to remove; then the job starts again
 *	very fast changes			it switches when the copy has caught up
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/xact.h"
#include "catalog/catalog.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "commands/tablecmds.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/bufmgr.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/pg_compat.h"
#include "base/timer.h"
#include "base/units.h"
#include "relocation/checks.h"
#include "relocation/live_copy.h"
#include "relocation/live_files.h"
#include "relocation/live_move.h"
#include "relocation/lock_gap.h"
#include "relocation/pace.h"
#include "relocation/relocation.h"
#include "relocation/relocation_state.h"
#include "relocation/wal_follow.h"

/* At most these are copied in one transaction. */
#define PIECE_BLOCKS	512

/*
 * Blocks that are left when the copy has caught up; up to which the lock is asked for; and above which it is released
 * again.
 */
#define FEW_BLOCKS		64
#define TRY_BLOCKS		256
#define MANY_BLOCKS		512

/* While waiting: between two looks at the users, and between two rounds of copying again, which get longer. */
#define LOOK_MS			2
#define AGAIN_TRY_MS	50
#define AGAIN_MS		250
#define AGAIN_MAX_MS	5000

/* After a try that failed, doubled each time: its queue was for 3 % of the time in the end, where each transaction is long. */
#define TRY_MS			100
#define TRY_MAX_MS		1000

/* How long the switch waits for a lock: of its row, and then, while the relation is locked, of others. */
#define ROW_LOCK_MS		1000
#define SWITCH_LOCK_MS	10

/* Internal errors after which it tries again. */
#define MAX_COLLISIONS	10

PG_FUNCTION_INFO_V1(pgscale_relocation_copyable);

typedef struct LiveMove
{
	PgscaleRelocationJob *job;
	MemoryContext context;		/* that lasts until its end */
	Oid			relations[PGSCALE_JOB_FILES];	/* that belong together */
	int			nrelations;
	PgscaleRelocationCopy copies[PGSCALE_JOB_FILES];	/* of those that are not
														 * there already */
	int			ncopies;
	int64		locked_at;		/* when it got the lock, at the last try */
	int			collisions;		/* internal errors of tries */
	char	   *checksums;		/* the server's setting when it began */
	PgscaleRelocationWal *wal;
	PgscaleRelocationPace pace;
	PgscaleRelocationProgress progress;
} LiveMove;

/*
 * What can be moved
 */

/* Do the WAL records of this access method name each block that they change? */
static bool
am_is_known(Oid am)
{
	static const char *const known[] = {"heap", "btree", "hash", "gist", "gin", "spgist", "brin", "bloom"};
	const char *name = get_am_name(am);

	for (int i = 0; name && i < lengthof(known); i++)
		if (strcmp(name, known[i]) == 0)
			return true;
	return false;
}

bool
pgscale_relocation_live_check(Oid relation, int elevel)
{
	const char	kind = get_rel_relkind(relation);
	const bool	is_index = kind == RELKIND_INDEX || kind == RELKIND_PARTITIONED_INDEX;
	const char *name = get_rel_name(relation);

	if (!RELKIND_HAS_STORAGE(kind))
		return true;
	if (get_rel_persistence(relation) == RELPERSISTENCE_UNLOGGED)
	{
		ereport(elevel,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("\"%s\" is unlogged, and its changes cannot be followed", name),
				 errhint(is_index ? "pgscale.relocate_index(..., mode => 'rebuild') moves an unlogged index." :
						 "pgscale.relocate_table(..., mode => 'lock') moves an unlogged table, and blocks all use of it meanwhile.")));
		return false;
	}
	if (!am_is_known(pgscale_relocation_am_of(relation)))
	{
		ereport(elevel,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("\"%s\" has access method \"%s\", which may log changes that a copy cannot follow", name,
						get_am_name(pgscale_relocation_am_of(relation))),
				 errhint(is_index ? "pgscale.relocate_index(..., mode => 'rebuild') builds the index anew." :
						 "pgscale.relocate_table(..., mode => 'lock') moves the table, and blocks all use of it meanwhile.")));
		return false;
	}
	return true;
}

/* pgscale_internal.relocation_copyable(relation) */
Datum
pgscale_relocation_copyable(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(pgscale_relocation_live_check(PG_GETARG_OID(0), DEBUG5));
}

/*
 * Progress
 */

static int64
live_copied_bytes(const LiveMove *move)
{
	int64		blocks = 0;

	for (int i = 0; i < move->ncopies; i++)
		blocks += move->copies[i].copied;
	return blocks * BLCKSZ;
}

static void
live_show(LiveMove *move, PgscaleRelocationPhase phase)
{
	move->progress.phase = phase;
	move->progress.counts.copied_bytes = live_copied_bytes(move);
	pgscale_relocation_show_progress(&move->progress);
}

/*
 * The WAL
 */

static PgscaleRelocationCopy *
copy_of(LiveMove *move, RelFileLocator locator)
{
	for (int i = 0; i < move->ncopies; i++)
		if (RelFileLocatorEquals(move->copies[i].from, locator))
			return &move->copies[i];
	return NULL;
}

static void
live_changed(void *arg, RelFileLocator locator, ForkNumber fork, BlockNumber block)
{
	PgscaleRelocationCopy *copy = fork == MAIN_FORKNUM ? copy_of(arg, locator) : NULL;

	if (copy)
		pgscale_relocation_copy_mark(copy, block);
}

static void
live_truncated(void *arg, RelFileLocator locator, BlockNumber blocks)
{
	PgscaleRelocationCopy *copy = copy_of(arg, locator);

	if (copy)
		pgscale_relocation_copy_truncated(copy, blocks);
}

static void
live_follow(LiveMove *move, XLogRecPtr until)
{
	if (move->wal)
		move->progress.counts.wal_read_bytes += pgscale_relocation_wal_read(move->wal, until);
}

/*
 * Copying
 */

static void
live_raise_rewritten(const LiveMove *move)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("the %s was rewritten during its move", move->job->is_table ? "table" : "index")));
}

/* Opens the relation.  Raises an error if it has another file than the one that is copied. */
static Relation
live_open(const LiveMove *move, const PgscaleRelocationCopy *copy, LOCKMODE lock)
{
	Relation	relation = try_relation_open(copy->relation, lock);

	if (!relation && copy->relation == move->job->relation)
		pgscale_relocation_check_there(copy->relation, move->job->is_table);
	if (!relation || !RelFileLocatorEquals(relation->rd_locator, copy->from) ||
		relation->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		live_raise_rewritten(move);
	return relation;
}

typedef BlockNumber (*LivePiece) (PgscaleRelocationCopy *copy, Relation relation, BlockNumber most);

/* One piece, as a transaction of its own. */
static BlockNumber
live_piece(LiveMove *move, PgscaleRelocationCopy *copy, LivePiece piece, BlockNumber most)
{
	Relation	relation;
	BlockNumber done;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	relation = live_open(move, copy, AccessShareLock);
	/* opening it has read catalogs: do not hold back VACUUM */
	InvalidateCatalogSnapshot();
	done = piece(copy, relation, most);
	relation_close(relation, AccessShareLock);
	CommitTransactionCommand();
	return done;
}

/* Copies the next pages of a map.  Returns 0 at its end. */
static BlockNumber
live_map(PgscaleRelocationCopy *copy, Relation relation, BlockNumber most)
{
	copy->map_page = pgscale_relocation_copy_map(copy, relation, copy->map, copy->map_page, most);
	return copy->map_page != InvalidBlockNumber;
}

static BlockNumber
live_shorten(PgscaleRelocationCopy *copy, Relation relation, BlockNumber most)
{
	pgscale_relocation_copy_shorten(copy, relation);
	return 0;
}

static void
live_sleep(long ms)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/* Number of copied blocks that are known to have changed. */
static BlockNumber
live_marked(const LiveMove *move)
{
	BlockNumber marked = 0;

	for (int i = 0; i < move->ncopies; i++)
		marked += move->copies[i].marked;
	return marked;
}

/* For how many milliseconds nothing may be copied; notes the reason. */
static long
live_pause(LiveMove *move)
{
	const int64 copied = live_copied_bytes(move);
	const int64 written = copied + move->progress.counts.recopied_blocks * BLCKSZ;
	const int64 left = Max(move->progress.total_bytes - copied, 0) + (int64) live_marked(move) * BLCKSZ;
	char	   *why = NULL;
	const long	ms = pgscale_relocation_pace_wait(&move->pace, written, left, &why);

	strlcpy(move->progress.held_back_by, why ? why : "", sizeof(move->progress.held_back_by));
	return ms;
}

/* Waits until more may be copied. */
static void
live_keep_pace(LiveMove *move, PgscaleRelocationPhase phase)
{
	long		ms;

	while ((ms = live_pause(move)) > 0)
	{
		live_show(move, phase);
		live_follow(move, InvalidXLogRecPtr);
		live_sleep(Min(ms, 1000));
	}
	live_show(move, phase);
}

/* How many blocks the next piece may have. */
static BlockNumber
live_pace_blocks(const LiveMove *move)
{
	return Min(Max(pgscale_relocation_pace_piece(&move->pace) / BLCKSZ, 1), PIECE_BLOCKS);
}

static void
live_copy_map(LiveMove *move, PgscaleRelocationCopy *copy, ForkNumber map, PgscaleRelocationPhase phase)
{
	copy->map = map;
	copy->map_page = 0;
	do
	{
		if (phase == PGSCALE_PHASE_COPYING)
			live_keep_pace(move, phase);
		live_follow(move, InvalidXLogRecPtr);
	} while (live_piece(move, copy, live_map, live_pace_blocks(move)) > 0);
}

static void
live_copy_all(LiveMove *move)
{
	for (int i = 0; i < move->ncopies; i++)
	{
		PgscaleRelocationCopy *copy = &move->copies[i];

		do
		{
			live_keep_pace(move, PGSCALE_PHASE_COPYING);
			live_follow(move, InvalidXLogRecPtr);
		} while (live_piece(move, copy, pgscale_relocation_copy_more, live_pace_blocks(move)) > 0);
		live_copy_map(move, copy, FSM_FORKNUM, PGSCALE_PHASE_COPYING);
		live_copy_map(move, copy, VISIBILITYMAP_FORKNUM, PGSCALE_PHASE_COPYING);
	}
}

/* Copies again the blocks that have changed by now. */
static void
live_copy_marked(LiveMove *move, PgscaleRelocationCopy *copy, PgscaleRelocationPhase phase)
{
	BlockNumber left = copy->marked;
	BlockNumber done;

	do
	{
		/* while it waits for a moment to switch, it must not fall behind */
		if (phase == PGSCALE_PHASE_FOLLOWING)
			live_keep_pace(move, phase);
		done = live_piece(move, copy, pgscale_relocation_copy_again, Min(left, live_pace_blocks(move)));
		left -= Min(done, left);
		move->progress.counts.recopied_blocks += done;
		live_show(move, phase);
	} while (left > 0 && done > 0);
}

/* Copies again the blocks that have changed, until few are left, or there are not fewer from round to round. */
static void
live_catch_up(LiveMove *move, PgscaleRelocationPhase phase)
{
	BlockNumber before = InvalidBlockNumber;

	for (;;)
	{
		BlockNumber left;
		bool		grown = false;

		live_follow(move, InvalidXLogRecPtr);
		left = live_marked(move);
		for (int i = 0; i < move->ncopies; i++)
		{
			PgscaleRelocationCopy *copy = &move->copies[i];

			while (live_piece(move, copy, pgscale_relocation_copy_more, live_pace_blocks(move)) > 0)
			{
				grown = true;
				if (phase == PGSCALE_PHASE_FOLLOWING)
					live_keep_pace(move, phase);
				live_follow(move, InvalidXLogRecPtr);
			}
			if (left > FEW_BLOCKS && copy->marked > 0)
				live_copy_marked(move, copy, phase);
		}
		if (left >= before || (left <= FEW_BLOCKS && !grown))
			break;
		before = left;
	}
}

/*
 * The beginning
 */

/*
 * Lists a table, its TOAST table and that one's index; or an index.  Returns their number.
 */
static int
live_list(const PgscaleRelocationJob *job, Oid *relations)
{
	Relation	relation;
	Oid			toast;
	int			n = 0;

	pgscale_relocation_check_there(job->relation, job->is_table);
	relation = relation_open(job->relation, AccessShareLock);
	toast = relation->rd_rel->reltoastrelid;
	relation_close(relation, NoLock);
	relations[n++] = job->relation;
	if (OidIsValid(toast))
	{
		List	   *indexes;
		ListCell   *cell;

		relation = relation_open(toast, AccessShareLock);
		indexes = RelationGetIndexList(relation);
		relation_close(relation, NoLock);
		relations[n++] = toast;
		foreach(cell, indexes)
		{
			/* an interrupted REINDEX CONCURRENTLY leaves others */
			if (!get_index_isvalid(lfirst_oid(cell)))
				continue;
			if (n == PGSCALE_JOB_FILES)
				elog(ERROR, "TOAST table %u has more than one valid index", toast);
			relations[n++] = lfirst_oid(cell);
		}
	}
	return n;
}

static void
live_add_copy(LiveMove *move, Oid oid)
{
	PgscaleRelocationCopy *copy = &move->copies[move->ncopies];
	Relation	relation = relation_open(oid, AccessShareLock);

	if (RELKIND_HAS_STORAGE(relation->rd_rel->relkind) && relation->rd_locator.spcOid != move->job->target)
	{
		copy->relation = oid;
		copy->from = copy->to = relation->rd_locator;
		copy->to.spcOid = move->job->target;
		copy->to.relNumber = GetNewRelFileNumber(move->job->target, NULL, RELPERSISTENCE_PERMANENT);
		copy->standard = relation->rd_rel->relam == BTREE_AM_OID || relation->rd_rel->relam == HEAP_TABLE_AM_OID;
		copy->context = move->context;
		move->progress.total_bytes += (int64) RelationGetNumberOfBlocks(relation) * BLCKSZ;
		move->ncopies++;
	}
	relation_close(relation, NoLock);
}

/* Notes in it the files that are left, or else the new ones. */
static void
live_note_files(const LiveMove *move, PgscaleRelocationJob *job, bool from)
{
	job->nfiles = move->ncopies;
	for (int i = 0; i < move->ncopies; i++)
		job->files[i] = from ? move->copies[i].from : move->copies[i].to;
}

static void
live_begin(LiveMove *move)
{
	const PgscaleRelocationWalVisitor visitor = {live_changed, live_truncated, move};

	StartTransactionCommand();
	/* it may wait for locks here, so it takes the snapshot afterwards */
	move->nrelations = live_list(move->job, move->relations);
	for (int i = 0; i < move->nrelations; i++)
		live_add_copy(move, move->relations[i]);
	live_note_files(move, move->job, false);
	PushActiveSnapshot(GetTransactionSnapshot());
	pgscale_relocation_job_has_files(move->job);
	PopActiveSnapshot();
	CommitTransactionCommand();

	if (move->ncopies == 0)
		return;
	StartTransactionCommand();
	for (int i = 0; i < move->ncopies; i++)
		pgscale_relocation_file_make(move->copies[i].to);
	CommitTransactionCommand();

	MemoryContextSwitchTo(move->context);
	move->checksums = pstrdup(GetConfigOption("data_checksums", false, false));
	move->wal = pgscale_relocation_wal_begin(&visitor);
}

/*
 * The switch
 */

/*
 * Has the table the TOAST table that was copied, and that one the same index?  And have pages that were written since the
 * beginning checksums if the server expects them?  (A later server may enable them while it runs.)
 */
static void
live_check_same(const LiveMove *move)
{
	Oid			relations[PGSCALE_JOB_FILES];

	if (live_list(move->job, relations) != move->nrelations ||
		memcmp(relations, move->relations, move->nrelations * sizeof(Oid)) != 0)
		live_raise_rewritten(move);
	if (move->checksums && strcmp(move->checksums, GetConfigOption("data_checksums", false, false)) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("data checksums were enabled or disabled during the move")));
}

/* Number of blocks that still have to be copied, while all relations are locked. */
static BlockNumber
live_left(const LiveMove *move, const Relation *relations)
{
	BlockNumber left = live_marked(move);

	for (int i = 0; i < move->ncopies; i++)
	{
		const BlockNumber end = RelationGetNumberOfBlocks(relations[i]);

		left += end - Min(move->copies[i].copied, end);
	}
	return left;
}

static void
live_copy_rest(LiveMove *move, const Relation *relations)
{
	for (int i = 0; i < move->ncopies; i++)
	{
		PgscaleRelocationCopy *copy = &move->copies[i];

		while (pgscale_relocation_copy_more(copy, relations[i], PIECE_BLOCKS) > 0)
			;
		move->progress.counts.recopied_blocks += pgscale_relocation_copy_again(copy, relations[i], MANY_BLOCKS);
		(void) pgscale_relocation_copy_map(copy, relations[i], VISIBILITYMAP_FORKNUM, 0, InvalidBlockNumber);
		pgscale_relocation_copy_finish(copy, relations[i]);
	}
}

static void
live_set_tablespace(LiveMove *move, Relation relation, RelFileNumber file)
{
	if (!CheckRelationTableSpaceMove(relation, move->job->target))
		return;
	SetRelationTableSpace(relation, move->job->target, file);
	InvokeObjectPostAlterHook(RelationRelationId, RelationGetRelid(relation), 0);
}

/* Locks all relations.  After false the caller must abort the transaction. */
static bool
live_lock_all(LiveMove *move, bool queue)
{
	if (move->ncopies == 0)
		return pgscale_relocation_gap_take(move->job->relation, queue);
	/* no queue for the TOAST table, while others queue for the locked table */
	for (int i = 0; i < move->ncopies; i++)
		if (!pgscale_relocation_gap_take(move->copies[i].relation, queue && i == 0))
			return false;
	return true;
}

/* Within the transaction of live_try(). */
static bool
live_try_now(LiveMove *move, bool queue)
{
	PgscaleRelocationJob row = *move->job;
	Relation	relations[PGSCALE_JOB_FILES];

	/*
	 * the row first: it may be locked; if it is gone, the new files are those
	 * to remove
	 */
	LockTimeout = ROW_LOCK_MS;
	PushActiveSnapshot(GetTransactionSnapshot());
	live_note_files(move, &row, true);
	pgscale_relocation_job_has_files(&row);
	PopActiveSnapshot();
	/* so that little is left to flush and to read under the lock */
	live_follow(move, pgscale_relocation_wal_flush());
	if (!live_lock_all(move, queue))
		return false;

	/*
	 * from now on others wait for this process, and it must not wait: an
	 * uncommitted GRANT has locked the row of pg_class
	 */
	LockTimeout = SWITCH_LOCK_MS;
	move->locked_at = pgscale_timer_clock();
	CHECK_FOR_INTERRUPTS();
	live_check_same(move);
	for (int i = 0; i < move->ncopies; i++)
		relations[i] = live_open(move, &move->copies[i], NoLock);
	live_follow(move, pgscale_relocation_wal_flush());
	if (live_left(move, relations) > MANY_BLOCKS)
		return false;
	live_copy_rest(move, relations);
	for (int i = 0; i < move->ncopies; i++)
	{
		live_set_tablespace(move, relations[i], move->copies[i].to.relNumber);
		relation_close(relations[i], NoLock);
	}
	if (move->ncopies == 0)
	{
		relations[0] = relation_open(move->job->relation, NoLock);
		live_set_tablespace(move, relations[0], 0);
		relation_close(relations[0], NoLock);
	}
	CommandCounterIncrement();
	return true;
}

/* May another try succeed after that error?  Of two that change the same row of pg_class, the later one gets an internal error. */
static bool
live_may_try_again(LiveMove *move, int sqlstate)
{
	if (sqlstate == ERRCODE_INTERNAL_ERROR)
		return ++move->collisions <= MAX_COLLISIONS;
	return sqlstate == ERRCODE_LOCK_NOT_AVAILABLE || sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED;
}

/*
 * Tries to switch.  Returns false if a lock was not free, or too many blocks have changed; then nothing has changed.
 */
static bool
live_try(LiveMove *move, bool queue)
{
	const int	lock_timeout = LockTimeout;
	volatile bool switched = false;

	move->progress.counts.lock_tries++;
	move->progress.held_back_by[0] = '\0';
	live_show(move, PGSCALE_PHASE_SWITCHING);
	SetCurrentStatementStartTimestamp();
	PG_TRY();
	{
		StartTransactionCommand();
		switched = live_try_now(move, queue);
		if (switched)
			CommitTransactionCommand();
		else
			AbortCurrentTransaction();
	}
	PG_CATCH();
	{
		LockTimeout = lock_timeout;
		if (!live_may_try_again(move, geterrcode()))
			PG_RE_THROW();
		switched = false;
		FlushErrorState();
		AbortCurrentTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(move->context);
	LockTimeout = lock_timeout;
	if (switched)
	{
		move->progress.counts.locked_us = (pgscale_timer_clock() - move->locked_at) / NS_PER_US;
		live_note_files(move, move->job, true);
	}
	return switched;
}

static void
live_look(LiveMove *move, PgscaleRelocationUsers *users)
{
	memset(users, 0, sizeof(*users));
	if (move->ncopies == 0)
		pgscale_relocation_gap_look(move->job->relation, users);
	for (int i = 0; i < move->ncopies; i++)
		pgscale_relocation_gap_look(move->copies[i].relation, users);
}

static void
live_show_users(LiveMove *move, const PgscaleRelocationUsers *users)
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
live_give_up(const LiveMove *move)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("the relation could not be switched within %d s: %s", pgscale_relocation_switch_timeout,
					move->progress.held_back_by[0] ? move->progress.held_back_by : "it changes too fast"),
			 errhint("Move it when there are no long transactions, or raise pgscale.relocation_switch_timeout.")));
}

/* Does before the lock is taken what need not be done under it. */
static void
live_prepare(LiveMove *move)
{
	for (int i = 0; i < move->ncopies; i++)
	{
		live_copy_map(move, &move->copies[i], VISIBILITYMAP_FORKNUM, PGSCALE_PHASE_WAITING);
		(void) live_piece(move, &move->copies[i], live_shorten, 0);
	}
}

/* How long not to copy again: each time costs the WAL an image of each changed block. */
static int64
live_again_ns(int64 waited_ns, bool may_try)
{
	if (may_try)
		return AGAIN_TRY_MS * NS_PER_MS;
	return Min(Max(AGAIN_MS * NS_PER_MS, waited_ns / 20), AGAIN_MAX_MS * NS_PER_MS);
}

/* Waits for a moment to switch, and does. */
static void
live_switch(LiveMove *move)
{
	int64		waited_ns = 0;	/* without the time for which it was held back */
	int64		looked_at = pgscale_timer_clock();
	int64		copied_at = 0;
	int64		try_at = 0;
	int64		pause_ms = TRY_MS;

	for (;;)
	{
		const int64 now = pgscale_timer_clock();
		int64		looked_ns;
		PgscaleRelocationUsers users;
		bool		may_try;
		bool		held_back;

		live_follow(move, InvalidXLogRecPtr);
		held_back = live_pause(move) > 0;
		if (move->progress.held_back_by[0] == '\0')
			waited_ns += now - looked_at;
		looked_at = now;
		looked_ns = pgscale_timer_clock();
		live_look(move, &users);
		looked_ns = pgscale_timer_clock() - looked_ns;
		may_try = !held_back && now >= try_at && (users.n == 0 || users.all_new);
		if (!held_back && now - copied_at >= live_again_ns(waited_ns, may_try))
		{
			live_catch_up(move, PGSCALE_PHASE_WAITING);
			if (may_try)
				live_prepare(move);
			copied_at = pgscale_timer_clock();
			live_look(move, &users);
			may_try = may_try && (users.n == 0 || users.all_new);
		}
		if (may_try && live_marked(move) <= TRY_BLOCKS)
		{
			if (live_try(move, users.n > 0))
				return;
			try_at = pgscale_timer_clock() + pause_ms * NS_PER_MS;
			pause_ms = Min(pause_ms * 2, TRY_MAX_MS);
		}
		if (move->progress.held_back_by[0] == '\0')
			live_show_users(move, &users);
		live_show(move, PGSCALE_PHASE_WAITING);
		if (waited_ns > pgscale_relocation_switch_timeout * NS_PER_S)
			live_give_up(move);

		/*
		 * looking at the locks of all processes takes a while, where there
		 * are thousands
		 */
		live_sleep(Max(LOOK_MS, 10 * looked_ns / NS_PER_MS));
	}
}

static void
live_run(LiveMove *move)
{
	live_begin(move);
	move->progress.began_ns = pgscale_timer_clock();
	pgscale_relocation_pace_start(&move->pace, move->job->target, move->progress.total_bytes);
	live_copy_all(move);
	live_show(move, PGSCALE_PHASE_FOLLOWING);
	live_catch_up(move, PGSCALE_PHASE_FOLLOWING);
	live_switch(move);
	live_show(move, PGSCALE_PHASE_DROPPING);
}

void
pgscale_relocation_live_move(PgscaleRelocationJob *job)
{
	LiveMove   *move = palloc0(sizeof(LiveMove));

	move->job = job;
	move->context = CurrentMemoryContext;
	PG_TRY();
	{
		live_run(move);
	}
	PG_FINALLY();
	{
		if (move->wal)
			pgscale_relocation_wal_end(move->wal);
		job->counts = move->progress.counts;
		job->counts.known = true;
	}
	PG_END_TRY();
}

/*
 * Afterwards
 */

static bool
live_has_time(void)
{
	return !ShutdownRequestPending && !pgscale_relocation_in_the_way();
}

void
pgscale_relocation_live_clean_up(PgscaleRelocationJob *job)
{
	while (job->nfiles > 0)
	{
		pgscale_relocation_file_remove(job->files[job->nfiles - 1], live_has_time);
		job->nfiles--;
	}
}
