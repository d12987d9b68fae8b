/*-------------------------------------------------------------------------
 *
 * live_files.c
 *	  New files of relations that move, and files that they have left.
 *
 * The server removes the files of a transaction that does not commit, and at a commit the files of dropped relations.  A move
 * takes many transactions, so its files are noted in the job's row: the new ones before they are made, the old ones in the
 * transaction that switches.  The next worker that takes the job removes them (move.c).  A file that a row of pg_class
 * has is never removed.
 *
 * The removal is a transaction with an xid.  Its commit record names the file, so standbys remove the file, too.  (An abort
 * without an xid writes no record, and standbys would keep the file.)
 *
 * The removal of a large file at once stalls the commits of all sessions on some file systems: this, not the lock, was the
 * longest stall of a move.  So the file's buffers are dropped first, and then the file is shortened step by step.
 * A WAL record of the truncation to zero blocks is flushed before, because recovery from a crash in between would
 * otherwise miss blocks that earlier records name.  If the file cannot be truncated, the removal at the end only warns.
 * (RelationTruncate() would instead end the server if the disk fails.)
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "access/xlogutils.h"
#include "catalog/storage.h"
#include "catalog/storage_xlog.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/latch.h"
#include "storage/smgr.h"
#include "utils/rel.h"

#include "base/pg_compat.h"
#include "base/relation_files.h"
#include "relocation/live_files.h"

/* A step of making a file shorter, and the pause after it. */
#define STEP_BYTES	((off_t) 4 * 1024 * 1024)
#define STEP_MS		10

void
pgscale_relocation_file_make(RelFileLocator locator)
{
	(void) RelationCreateStorage(locator, RELPERSISTENCE_PERMANENT, false);
}

static void
log_truncation(RelFileLocator locator)
{
	xl_smgr_truncate truncate = {.blkno = 0,.rlocator = locator,.flags = SMGR_TRUNCATE_HEAP};

	XLogBeginInsert();
	XLogRegisterData((char *) &truncate, sizeof(truncate));
	XLogFlush(XLogInsert(RM_SMGR_ID, XLOG_SMGR_TRUNCATE | XLR_SPECIAL_REL_UPDATE));
}

/* Makes the main fork's files empty, the last one first, as the server does. */
static void
shrink_file(RelFileLocator locator, BlockNumber blocks, bool (*more_time) (void))
{
	const off_t bytes = (off_t) blocks * BLCKSZ;

	for (off_t left = bytes; left > STEP_BYTES && more_time();)
	{
		const uint32 segment = (left - 1) / PGSCALE_SEGMENT_BYTES;
		const off_t keep = Max(left - STEP_BYTES, (off_t) segment * PGSCALE_SEGMENT_BYTES);
		char		path[MAXPGPATH];

		pgscale_relation_file_path(path, locator, INVALID_PROC_NUMBER, MAIN_FORKNUM, segment);
		if (truncate(path, keep - (off_t) segment * PGSCALE_SEGMENT_BYTES) != 0)
			return;
		left = keep;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, STEP_MS, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/* Does it exist, and no relation has it?  In a transaction. */
static bool
is_orphan(RelFileLocator locator)
{
	if (OidIsValid(RelidByRelfilenumber(locator.spcOid, locator.relNumber)))
		return false;
	return smgrexists(smgropen(locator, INVALID_PROC_NUMBER), MAIN_FORKNUM);
}

void
pgscale_relocation_file_remove(RelFileLocator locator, bool (*more_time) (void))
{
	BlockNumber blocks;
	Relation	fake;

	StartTransactionCommand();
	if (!is_orphan(locator))
	{
		CommitTransactionCommand();
		return;
	}
	blocks = smgrnblocks(smgropen(locator, INVALID_PROC_NUMBER), MAIN_FORKNUM);
	if (more_time() && blocks > 0)
	{
		SMgrRelation file = smgropen(locator, INVALID_PROC_NUMBER);
		ForkNumber	fork = MAIN_FORKNUM;
		BlockNumber first = 0;

		log_truncation(locator);
		DropRelationBuffers(file, &fork, 1, &first);
		smgrclose(file);
		CommitTransactionCommand();
		shrink_file(locator, blocks, more_time);
		StartTransactionCommand();
	}
	(void) GetCurrentTransactionId();
	fake = CreateFakeRelcacheEntry(locator);
	RelationDropStorage(fake);
	FreeFakeRelcacheEntry(fake);
	CommitTransactionCommand();
}
