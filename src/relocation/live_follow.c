/*-------------------------------------------------------------------------
 *
 * live_follow.c
 *	  A live move copies everything, and again what changes meanwhile.
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
#include "relocation/live_parts.h"
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
copy_of(PgscaleRelocationLive *move, RelFileLocator locator)
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

void
pgscale_relocation_live_follow_from_now(PgscaleRelocationLive *move)
{
	const PgscaleRelocationWalVisitor visitor = {live_changed, live_truncated, move};

	move->wal = pgscale_relocation_wal_begin(&visitor);
}

void
pgscale_relocation_live_follow(PgscaleRelocationLive *move, XLogRecPtr until)
{
	if (move->wal)
		move->progress.counts.wal_read_bytes += pgscale_relocation_wal_read(move->wal, until);
}

/*
 * Copying
 */

typedef BlockNumber (*LivePiece) (PgscaleRelocationCopy *copy, Relation relation, BlockNumber most);

/* One piece, as a transaction of its own. */
static BlockNumber
live_piece(PgscaleRelocationLive *move, PgscaleRelocationCopy *copy, LivePiece piece, BlockNumber most)
{
	Relation	relation;
	BlockNumber done;

	pgscale_relocation_wal_ahead();
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	relation = pgscale_relocation_live_open(move, copy, AccessShareLock);
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

int64
pgscale_relocation_live_copied_bytes(const PgscaleRelocationLive *move)
{
	int64		blocks = 0;

	for (int i = 0; i < move->ncopies; i++)
		blocks += move->copies[i].copied;
	return blocks * BLCKSZ;
}

BlockNumber
pgscale_relocation_live_marked(const PgscaleRelocationLive *move)
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
live_check_target(const PgscaleRelocationLive *move)
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
pgscale_relocation_live_pause(PgscaleRelocationLive *move)
{
	const int64 copied = pgscale_relocation_live_copied_bytes(move);
	int64		written = copied + move->progress.counts.recopied_blocks * BLCKSZ;
	const int64 left = Max(move->progress.total_bytes - copied, 0) + (int64) pgscale_relocation_live_marked(move) * BLCKSZ;
	char	   *why = NULL;
	long		ms;

	for (int i = 0; i < move->ncopies; i++)
		written += (int64) move->copies[i].mapped_pages * BLCKSZ;
	ms = pgscale_relocation_pace_wait(&move->pace, written, left, &why);
	live_check_target(move);
	strlcpy(move->progress.held_back_by, why ? why : "", sizeof(move->progress.held_back_by));
	return ms;
}

/* Waits until more may be copied. */
static void
live_keep_pace(PgscaleRelocationLive *move, PgscaleRelocationPhase phase)
{
	long		ms;

	while ((ms = pgscale_relocation_live_pause(move)) > 0)
	{
		pgscale_relocation_live_show(move, phase);
		pgscale_relocation_live_follow(move, InvalidXLogRecPtr);
		pgscale_timer_pause(Min(ms, FOLLOW_MS));
	}
	pgscale_relocation_live_show(move, phase);
}

/* How many blocks the next piece may have. */
static BlockNumber
live_pace_blocks(const PgscaleRelocationLive *move)
{
	return Min(Max(pgscale_relocation_pace_piece(&move->pace) / BLCKSZ, 1), PIECE_BLOCKS);
}

BlockNumber
pgscale_relocation_live_try_blocks(const PgscaleRelocationLive *move, BlockNumber most)
{
	if (!pgscale_relocation_wal_is_synchronous())
		return most;
	return Min(most, Max(live_pace_blocks(move), FEW_BLOCKS / 4));
}

static void
live_copy_map(PgscaleRelocationLive *move, PgscaleRelocationCopy *copy, ForkNumber map, PgscaleRelocationPhase phase)
{
	copy->map = map;
	copy->map_page = 0;
	do
	{
		live_keep_pace(move, phase);
		pgscale_relocation_live_follow(move, InvalidXLogRecPtr);
	} while (live_piece(move, copy, live_map, live_pace_blocks(move)) > 0);
}

void
pgscale_relocation_live_copy_all(PgscaleRelocationLive *move)
{
	for (int i = 0; i < move->ncopies; i++)
	{
		PgscaleRelocationCopy *copy = &move->copies[i];

		do
		{
			live_keep_pace(move, PGSCALE_PHASE_COPYING);
			pgscale_relocation_live_follow(move, InvalidXLogRecPtr);
		} while (live_piece(move, copy, pgscale_relocation_copy_more, live_pace_blocks(move)) > 0);
		live_copy_map(move, copy, FSM_FORKNUM, PGSCALE_PHASE_COPYING);
		live_copy_map(move, copy, VISIBILITYMAP_FORKNUM, PGSCALE_PHASE_COPYING);
	}
}

/*
 * Copies again the blocks that have changed.  The WAL is followed after each piece: what a piece writes lets the server
 * recycle what has not been read yet.
 */
static void
live_copy_marked(PgscaleRelocationLive *move, PgscaleRelocationCopy *copy, PgscaleRelocationPhase phase)
{
	BlockNumber done;

	copy->again = 0;
	do
	{
		live_keep_pace(move, phase);
		done = live_piece(move, copy, pgscale_relocation_copy_again, live_pace_blocks(move));
		move->progress.counts.recopied_blocks += done;
		pgscale_relocation_live_follow(move, InvalidXLogRecPtr);
		pgscale_relocation_live_show(move, phase);
	} while (done > 0);
}

void
pgscale_relocation_live_catch_up(PgscaleRelocationLive *move, PgscaleRelocationPhase phase)
{
	BlockNumber before = InvalidBlockNumber;

	for (;;)
	{
		BlockNumber left;
		bool		grown = false;

		pgscale_relocation_live_follow(move, InvalidXLogRecPtr);
		left = pgscale_relocation_live_marked(move);
		for (int i = 0; i < move->ncopies; i++)
		{
			PgscaleRelocationCopy *copy = &move->copies[i];

			while (live_piece(move, copy, pgscale_relocation_copy_more, live_pace_blocks(move)) > 0)
			{
				grown = true;
				live_keep_pace(move, phase);
				pgscale_relocation_live_follow(move, InvalidXLogRecPtr);
			}
			if (left > FEW_BLOCKS && copy->marked > 0)
				live_copy_marked(move, copy, phase);
		}
		if (left >= before || (left <= FEW_BLOCKS && !grown))
			break;
		before = left;
	}
}

void
pgscale_relocation_live_prepare(PgscaleRelocationLive *move)
{
	for (int i = 0; i < move->ncopies; i++)
	{
		PgscaleRelocationCopy *copy = &move->copies[i];

		/* the few that are left may have to be read from a slow disk */
		if (copy->marked > 0)
			live_copy_marked(move, copy, PGSCALE_PHASE_WAITING);
		live_copy_map(move, copy, VISIBILITYMAP_FORKNUM, PGSCALE_PHASE_WAITING);
		(void) live_piece(move, copy, live_shorten, 0);
	}
}
