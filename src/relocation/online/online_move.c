/*-------------------------------------------------------------------------
 *
 * online_move.c
 *	  Moves a table or an index, as it is, while it is in use.
 *
 * The method is that of hypervisors, which move the memory of a running machine: copy everything, copy again the blocks
 * that changed meanwhile until few are left, then stop the users for a moment, copy the rest and switch.  Rows keep
 * their places, so indexes are not touched.  OIDs stay.  The table needs no trigger, no logical decoding and no key.
 *
 *	copying		The job's row gets the names of the new files; then they are made.  Blocks are copied in pieces.  Each
 *				piece is a transaction that holds AccessShareLock for milliseconds, without xid and snapshot: VACUUM is
 *				not held back, DDL waits no longer than that, and there can be no deadlock.  After each piece
 *				the WAL is read (relocation_wal.c), and copied blocks that have changed are marked.
 *	following	Marked blocks are copied again until few are left.
 *	waiting		The worker waits for a moment without users, or with users that have just begun (online_switch.c), and
 *				keeps the copy up to date.
 *	switching	One transaction takes AccessExclusiveLock, reads the WAL to its end, copies the last blocks and the
 *				visibility map, changes pg_class, and writes the names of the old files into the job's row.
 *				It gives up if more blocks are left than can be copied in some milliseconds.
 *	dropping	The old files are removed slowly (online_files.c).
 *
 * A table moves with its TOAST table and the index of that: all are copied, and switched in one transaction.  A partitioned
 * table or index has no file, so only its row of pg_class changes.
 *
 * All work before the switch is done in pieces.  Each is a transaction that opens the relation anew, because another file may have
 * taken its place since, and holds no snapshot, so that VACUUM is not held back.  Between two pieces the WAL is read, so the marks of
 * changed blocks are complete up to there, and the pace is kept (pace.c).
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

#include <sys/stat.h>

#include "access/genam.h"
#include "access/relation.h"
#include "access/xact.h"
#include "catalog/catalog.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/storage.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/kernel.h"
#include "base/relation_files.h"
#include "base/timer.h"
#include "relocation/checks.h"
#include "relocation/online/online.h"

/* Written pages that the kernel is asked to write on at a time, as for a checkpoint. */
#define FLUSH_AFTER_BLOCKS	32

/* At most these are copied in one transaction. */
#define PIECE_BLOCKS	512

/* While it waits, the WAL is followed that often: the server may recycle it soon. */
#define FOLLOW_MS		20

/* Blocks that are left when the copy has caught up. */
#define FEW_BLOCKS		64

/*
 * For all parts
 */

static void
online_raise_rewritten(const PgscaleRelocationOnline *move)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("the %s was rewritten during its move", move->job->is_table ? "table" : "index")));
}

Relation
pgscale_relocation_online_open(const PgscaleRelocationOnline *move, const PgscaleRelocationCopy *copy, LOCKMODE lock)
{
	Relation	relation = try_relation_open(copy->relation, lock);

	if (!relation && copy->relation == move->job->relation)
		pgscale_relocation_check_there(copy->relation, move->job->is_table);
	if (!relation || !RelFileLocatorEquals(relation->rd_locator, copy->from) ||
		relation->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		online_raise_rewritten(move);
	return relation;
}

static int64
online_copied_bytes(const PgscaleRelocationOnline *move)
{
	int64		blocks = 0;

	for (int i = 0; i < move->ncopies; i++)
		blocks += move->copies[i].copied;
	return blocks * BLCKSZ;
}

void
pgscale_relocation_online_show(PgscaleRelocationOnline *move, PgscaleRelocationPhase phase)
{
	move->progress.phase = phase;
	move->progress.counts.copied_bytes = online_copied_bytes(move);
	pgscale_relocation_show_progress(&move->progress);
}

/*
 * The WAL
 */

static PgscaleRelocationCopy *
copy_of(PgscaleRelocationOnline *move, RelFileLocator locator)
{
	for (int i = 0; i < move->ncopies; i++)
		if (RelFileLocatorEquals(move->copies[i].from, locator))
			return &move->copies[i];
	return NULL;
}

static void
online_changed(void *arg, RelFileLocator locator, ForkNumber fork, BlockNumber block)
{
	PgscaleRelocationCopy *copy = fork == MAIN_FORKNUM ? copy_of(arg, locator) : NULL;

	if (copy)
		pgscale_relocation_copy_mark(copy, block);
}

static void
online_truncated(void *arg, RelFileLocator locator, BlockNumber blocks)
{
	PgscaleRelocationCopy *copy = copy_of(arg, locator);

	if (copy)
		pgscale_relocation_copy_truncated(copy, blocks);
}

void
pgscale_relocation_online_follow(PgscaleRelocationOnline *move, XLogRecPtr until)
{
	if (move->wal)
		move->progress.counts.wal_read_bytes += pgscale_relocation_wal_read(move->wal, until);
}

/*
 * Copying
 */

typedef BlockNumber (*OnlinePiece) (PgscaleRelocationCopy *copy, Relation relation, BlockNumber most);

/* One piece, as a transaction of its own. */
static BlockNumber
online_piece(PgscaleRelocationOnline *move, PgscaleRelocationCopy *copy, OnlinePiece piece, BlockNumber most)
{
	Relation	relation;
	BlockNumber done;

	pgscale_relocation_wal_ahead();
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	relation = pgscale_relocation_online_open(move, copy, AccessShareLock);
	/* opening it has read catalogs: do not hold back VACUUM */
	InvalidateCatalogSnapshot();
	done = piece(copy, relation, most);
	relation_close(relation, AccessShareLock);
	CommitTransactionCommand();
	return done;
}

/* Copies the next pages of a map.  Returns 0 at its end. */
static BlockNumber
online_map(PgscaleRelocationCopy *copy, Relation relation, BlockNumber most)
{
	copy->map_page = pgscale_relocation_copy_map(copy, relation, copy->map, copy->map_page, most);
	return copy->map_page != InvalidBlockNumber;
}

static BlockNumber
online_shorten(PgscaleRelocationCopy *copy, Relation relation, BlockNumber most)
{
	pgscale_relocation_copy_shorten(copy, relation);
	return 0;
}

BlockNumber
pgscale_relocation_online_marked(const PgscaleRelocationOnline *move)
{
	BlockNumber marked = 0;

	for (int i = 0; i < move->ncopies; i++)
		marked += move->copies[i].marked;
	return marked;
}

/*
 * Is the target still there?  Its folder, not that of the mount point.  If not, no page of the copy can be written, and no checkpoint
 * ends until the move has ended and its pages are gone.
 */
static void
online_check_target(const PgscaleRelocationOnline *move)
{
	char		folder[MAXPGPATH];
	struct stat st;

	pgscale_relation_files_folder(folder, move->job->target);
	if (stat(folder, &st) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not find the target's folder \"%s\": %m", folder),
				 errhint("Is its disk mounted?")));
}

long
pgscale_relocation_online_pause(PgscaleRelocationOnline *move)
{
	const int64 copied = online_copied_bytes(move);
	int64		written = copied + move->progress.counts.recopied_blocks * BLCKSZ;
	const int64 left = Max(move->progress.total_bytes - copied, 0) + (int64) pgscale_relocation_online_marked(move) * BLCKSZ;
	char	   *why = NULL;
	long		ms;

	for (int i = 0; i < move->ncopies; i++)
		written += (int64) move->copies[i].mapped_pages * BLCKSZ;
	ms = pgscale_relocation_pace_wait(&move->pace, written, left, &why);
	online_check_target(move);
	strlcpy(move->progress.held_back_by, why ? why : "", sizeof(move->progress.held_back_by));
	return ms;
}

/* Waits until more may be copied. */
static void
online_keep_pace(PgscaleRelocationOnline *move, PgscaleRelocationPhase phase)
{
	long		ms;

	while ((ms = pgscale_relocation_online_pause(move)) > 0)
	{
		pgscale_relocation_online_show(move, phase);
		pgscale_relocation_online_follow(move, InvalidXLogRecPtr);
		pgscale_timer_pause(Min(ms, FOLLOW_MS));
	}
	pgscale_relocation_online_show(move, phase);
}

/* How many blocks the next piece may have. */
static BlockNumber
online_pace_blocks(const PgscaleRelocationOnline *move)
{
	return Min(Max(pgscale_relocation_pace_piece(&move->pace) / BLCKSZ, 1), PIECE_BLOCKS);
}

BlockNumber
pgscale_relocation_online_try_blocks(const PgscaleRelocationOnline *move, BlockNumber most)
{
	if (!pgscale_relocation_wal_is_synchronous())
		return most;
	return Min(most, Max(online_pace_blocks(move), FEW_BLOCKS / 4));
}

static void
online_copy_map(PgscaleRelocationOnline *move, PgscaleRelocationCopy *copy, ForkNumber map, PgscaleRelocationPhase phase)
{
	copy->map = map;
	copy->map_page = 0;
	do
	{
		online_keep_pace(move, phase);
		pgscale_relocation_online_follow(move, InvalidXLogRecPtr);
	} while (online_piece(move, copy, online_map, online_pace_blocks(move)) > 0);
}

static void
online_copy_all(PgscaleRelocationOnline *move)
{
	for (int i = 0; i < move->ncopies; i++)
	{
		PgscaleRelocationCopy *copy = &move->copies[i];

		do
		{
			online_keep_pace(move, PGSCALE_PHASE_COPYING);
			pgscale_relocation_online_follow(move, InvalidXLogRecPtr);
		} while (online_piece(move, copy, pgscale_relocation_copy_more, online_pace_blocks(move)) > 0);
		online_copy_map(move, copy, FSM_FORKNUM, PGSCALE_PHASE_COPYING);
		online_copy_map(move, copy, VISIBILITYMAP_FORKNUM, PGSCALE_PHASE_COPYING);
	}
}

/*
 * Copies again the blocks that have changed.  The WAL is followed after each piece: what a piece writes lets the server
 * recycle what has not been read yet.
 */
static void
online_copy_marked(PgscaleRelocationOnline *move, PgscaleRelocationCopy *copy, PgscaleRelocationPhase phase)
{
	BlockNumber done;

	copy->again = 0;
	do
	{
		online_keep_pace(move, phase);
		done = online_piece(move, copy, pgscale_relocation_copy_again, online_pace_blocks(move));
		move->progress.counts.recopied_blocks += done;
		pgscale_relocation_online_follow(move, InvalidXLogRecPtr);
		pgscale_relocation_online_show(move, phase);
	} while (done > 0);
}

void
pgscale_relocation_online_catch_up(PgscaleRelocationOnline *move, PgscaleRelocationPhase phase)
{
	BlockNumber before = InvalidBlockNumber;

	for (;;)
	{
		BlockNumber left;
		bool		grown = false;

		pgscale_relocation_online_follow(move, InvalidXLogRecPtr);
		left = pgscale_relocation_online_marked(move);
		for (int i = 0; i < move->ncopies; i++)
		{
			PgscaleRelocationCopy *copy = &move->copies[i];

			while (online_piece(move, copy, pgscale_relocation_copy_more, online_pace_blocks(move)) > 0)
			{
				grown = true;
				online_keep_pace(move, phase);
				pgscale_relocation_online_follow(move, InvalidXLogRecPtr);
			}
			if (left > FEW_BLOCKS && copy->marked > 0)
				online_copy_marked(move, copy, phase);
		}
		if (left >= before || (left <= FEW_BLOCKS && !grown))
			break;
		before = left;
	}
}

void
pgscale_relocation_online_prepare(PgscaleRelocationOnline *move)
{
	for (int i = 0; i < move->ncopies; i++)
	{
		PgscaleRelocationCopy *copy = &move->copies[i];

		/* the few that are left may have to be read from a slow disk */
		if (copy->marked > 0)
			online_copy_marked(move, copy, PGSCALE_PHASE_WAITING);
		online_copy_map(move, copy, VISIBILITYMAP_FORKNUM, PGSCALE_PHASE_WAITING);
		(void) online_piece(move, copy, online_shorten, 0);
	}
}

/*
 * The beginning
 */

/* Lists a table, its TOAST table and that one's index; or an index.  Returns their number.  In a transaction. */
static int
online_list(const PgscaleRelocationJob *job, Oid *relations)
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

void
pgscale_relocation_online_check_same(const PgscaleRelocationOnline *move)
{
	Oid			relations[PGSCALE_JOB_FILES];

	if (online_list(move->job, relations) != move->nrelations ||
		memcmp(relations, move->relations, move->nrelations * sizeof(Oid)) != 0)
		online_raise_rewritten(move);
	if (move->checksums && strcmp(move->checksums, GetConfigOption("data_checksums", false, false)) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("data checksums were enabled or disabled during the move")));
}

static void
online_add_copy(PgscaleRelocationOnline *move, Oid oid)
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

void
pgscale_relocation_online_note_files(const PgscaleRelocationOnline *move, PgscaleRelocationJob *job, bool from)
{
	job->nfiles = move->ncopies;
	for (int i = 0; i < move->ncopies; i++)
		job->files[i] = from ? move->copies[i].from : move->copies[i].to;
}

static void
online_begin(PgscaleRelocationOnline *move)
{
	const PgscaleRelocationWalVisitor visitor = {online_changed, online_truncated, move};

	StartTransactionCommand();
	/* it may wait for locks here, so it takes the snapshot afterwards */
	move->nrelations = online_list(move->job, move->relations);
	for (int i = 0; i < move->nrelations; i++)
		online_add_copy(move, move->relations[i]);
	pgscale_relocation_online_note_files(move, move->job, false);
	PushActiveSnapshot(GetTransactionSnapshot());
	pgscale_relocation_job_has_files(move->job);
	PopActiveSnapshot();
	CommitTransactionCommand();

	if (move->ncopies == 0)
		return;
	StartTransactionCommand();
	/* they are empty, and stay even if the transaction aborts */
	for (int i = 0; i < move->ncopies; i++)
		(void) RelationCreateStorage(move->copies[i].to, RELPERSISTENCE_PERMANENT, false);
	CommitTransactionCommand();

	MemoryContextSwitchTo(move->context);
	move->checksums = pstrdup(GetConfigOption("data_checksums", false, false));
	move->wal = pgscale_relocation_wal_begin(&visitor);
}

/*
 * The whole
 */

static void
online_run(PgscaleRelocationOnline *move)
{
	online_begin(move);
	move->progress.began_ns = pgscale_timer_clock();
	pgscale_relocation_pace_start(&move->pace, move->job->target, move->progress.total_bytes);
	online_copy_all(move);
	pgscale_relocation_online_show(move, PGSCALE_PHASE_FOLLOWING);
	pgscale_relocation_online_catch_up(move, PGSCALE_PHASE_FOLLOWING);
	pgscale_relocation_online_switch(move);
	pgscale_relocation_online_show(move, PGSCALE_PHASE_DROPPING);
}

void
pgscale_relocation_online_move(PgscaleRelocationJob *job)
{
	PgscaleRelocationOnline *move = palloc0(sizeof(PgscaleRelocationOnline));
	const int	flush_after = backend_flush_after;

	move->job = job;
	move->context = CurrentMemoryContext;
	/* all at once, later, would hold up the commits of all */
	if (flush_after == 0 && pgscale_kernel_may_begin_writes())
		backend_flush_after = FLUSH_AFTER_BLOCKS;
	PG_TRY();
	{
		online_run(move);
	}
	PG_FINALLY();
	{
		/* not what a reload has changed */
		if (backend_flush_after == FLUSH_AFTER_BLOCKS)
			backend_flush_after = flush_after;
		if (move->wal)
			pgscale_relocation_wal_end(move->wal);
		job->counts = move->progress.counts;
		job->counts.known = true;
	}
	PG_END_TRY();
}
