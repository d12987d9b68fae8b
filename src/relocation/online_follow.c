/*-------------------------------------------------------------------------
 *
 * online_follow.c
 *	  An online move copies everything, and again what changes meanwhile.
 *
 * All work is done in pieces.  Each is a transaction that opens the relation anew, because another file may have taken its place
 * since, and holds no snapshot, so that VACUUM is not held back.  Between two pieces the WAL is read, so the marks of changed
 * blocks are complete up to there, and the pace is kept (pace.c).
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "access/relation.h"
#include "access/xact.h"
#include "utils/snapmgr.h"

#include "base/relation_files.h"
#include "base/timer.h"
#include "relocation/online_parts.h"
#include "relocation/wal_ahead.h"
#include "relocation/wal_readers.h"

/* At most these are copied in one transaction. */
#define PIECE_BLOCKS	512

/* While it waits, the WAL is followed that often: the server may recycle it soon. */
#define FOLLOW_MS		20

/* Blocks that are left when the copy has caught up. */
#define FEW_BLOCKS		64

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
pgscale_relocation_online_follow_from_now(PgscaleRelocationOnline *move)
{
	const PgscaleRelocationWalVisitor visitor = {online_changed, online_truncated, move};

	move->wal = pgscale_relocation_wal_begin(&visitor);
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

int64
pgscale_relocation_online_copied_bytes(const PgscaleRelocationOnline *move)
{
	int64		blocks = 0;

	for (int i = 0; i < move->ncopies; i++)
		blocks += move->copies[i].copied;
	return blocks * BLCKSZ;
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
	const int64 copied = pgscale_relocation_online_copied_bytes(move);
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

void
pgscale_relocation_online_copy_all(PgscaleRelocationOnline *move)
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
