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
 *				the WAL is read (wal_follow.c), and copied blocks that have changed are marked.
 *	following	Marked blocks are copied again until few are left.
 *	waiting		The worker waits for a moment without users, or with users that have just begun (lock_gap.c), and
 *				keeps the copy up to date.
 *	switching	One transaction takes AccessExclusiveLock, reads the WAL to its end, copies the last blocks and the
 *				visibility map, changes pg_class, and writes the names of the old files into the job's row.
 *				It gives up if more blocks are left than can be copied in some milliseconds.
 *	dropping	The old files are removed slowly (online_files.c).
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
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
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
#include "relocation/online_files.h"
#include "relocation/online_move.h"
#include "relocation/online_parts.h"
#include "relocation/relocation.h"

/* Written pages that the kernel is asked to write on at a time, as for a checkpoint. */
#define FLUSH_AFTER_BLOCKS	32

PG_FUNCTION_INFO_V1(pgscale_relocation_may_move_online);

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
pgscale_relocation_online_check(Oid relation, int elevel)
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

/* pgscale_internal.relocation_may_move_online(relation) */
Datum
pgscale_relocation_may_move_online(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(pgscale_relocation_online_check(PG_GETARG_OID(0), DEBUG5));
}

/*
 * For its parts
 */

void
pgscale_relocation_online_raise_rewritten(const PgscaleRelocationOnline *move)
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
		pgscale_relocation_online_raise_rewritten(move);
	return relation;
}

void
pgscale_relocation_online_show(PgscaleRelocationOnline *move, PgscaleRelocationPhase phase)
{
	move->progress.phase = phase;
	move->progress.counts.copied_bytes = pgscale_relocation_online_copied_bytes(move);
	pgscale_relocation_show_progress(&move->progress);
}

/*
 * The beginning
 */

int
pgscale_relocation_online_list(const PgscaleRelocationJob *job, Oid *relations)
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
	StartTransactionCommand();
	/* it may wait for locks here, so it takes the snapshot afterwards */
	move->nrelations = pgscale_relocation_online_list(move->job, move->relations);
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
	for (int i = 0; i < move->ncopies; i++)
		pgscale_relocation_file_make(move->copies[i].to);
	CommitTransactionCommand();

	MemoryContextSwitchTo(move->context);
	move->checksums = pstrdup(GetConfigOption("data_checksums", false, false));
	pgscale_relocation_online_follow_from_now(move);
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
	pgscale_relocation_online_copy_all(move);
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

/*
 * Afterwards
 */

static bool
online_has_time(void)
{
	return !ShutdownRequestPending && !pgscale_relocation_in_the_way();
}

/* How much larger the relation may have become, in segments, since its size was last known. */
#define GROWN_SEGMENTS	64

void
pgscale_relocation_online_clean_up(PgscaleRelocationJob *job)
{
	const int64 bytes = Max(job->bytes, job->counts.copied_bytes);
	const uint32 segments = bytes / PGSCALE_SEGMENT_BYTES + GROWN_SEGMENTS;

	/* one that cannot be removed must not keep the server writing the others */
	for (int i = 0; i < job->nfiles; i++)
		pgscale_relocation_file_forget(job->files[i], segments);
	while (job->nfiles > 0)
	{
		pgscale_relocation_file_remove(job->files[job->nfiles - 1], online_has_time);
		job->nfiles--;
	}
}
