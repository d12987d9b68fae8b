/*-------------------------------------------------------------------------
 *
 * online_files.c
 *	  Removes files of relations that move: those that they have left, and new ones of a move that failed.
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
 * A WAL record of the truncation to zero blocks is flushed before.  Without it a server that becomes a standby after a
 * crash in between would miss blocks that earlier records name without an image, and end.  If the file cannot be truncated, the removal at the end only warns.
 * (RelationTruncate() would instead end the server if the disk fails.)
 *
 * A target's disk may go away during a move.  The server's own removal drops buffers, and forgets fsyncs, only of files that it finds,
 * so here that comes first (drop_buffers(), forget_fsyncs()).  The file stays in the job's row until its folder is
 * there again.
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
#include "commands/tablespace.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/bufmgr.h"
#include "storage/smgr.h"
#include "storage/sync.h"
#include "utils/rel.h"

#include "base/pg_compat.h"
#include "base/relation_files.h"
#include "base/timer.h"
#include "relocation/online/online.h"

/* A step of making a file shorter, and the pause after it. */
#define STEP_BYTES	((off_t) 4 * 1024 * 1024)
#define STEP_MS		10

/* How much larger the relation may have become, in segments, since its size was last known. */
#define GROWN_SEGMENTS	64

/* Is there time to remove files slowly? */
static bool
online_has_time(void)
{
	return !ShutdownRequestPending && !pgscale_relocation_in_the_way();
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
shrink_file(RelFileLocator locator, BlockNumber blocks)
{
	const off_t bytes = (off_t) blocks * BLCKSZ;

	for (off_t left = bytes; left > STEP_BYTES && online_has_time();)
	{
		const uint32 segment = (left - 1) / PGSCALE_SEGMENT_BYTES;
		const off_t keep = Max(left - STEP_BYTES, (off_t) segment * PGSCALE_SEGMENT_BYTES);
		char		path[MAXPGPATH];

		pgscale_relation_file_path(path, locator, INVALID_PROC_NUMBER, MAIN_FORKNUM, segment);
		if (truncate(path, keep - (off_t) segment * PGSCALE_SEGMENT_BYTES) != 0)
			return;
		left = keep;
		pgscale_timer_pause(STEP_MS);
	}
}

/* The server must not write its pages any more: where the folder is gone, each checkpoint and each query that needs one of those buffers would fail. */
static void
drop_buffers(RelFileLocator locator)
{
	ForkNumber	forks[MAX_FORKNUM + 1];
	BlockNumber first[MAX_FORKNUM + 1] = {0};

	for (ForkNumber fork = MAIN_FORKNUM; fork <= MAX_FORKNUM; fork++)
		forks[fork] = fork;
	DropRelationBuffers(smgropen(locator, INVALID_PROC_NUMBER), forks, lengthof(forks), first);
}

/* Nor fsync its files, which would end in a PANIC. */
static void
forget_fsyncs(RelFileLocator locator, uint32 segments)
{
	for (ForkNumber fork = MAIN_FORKNUM; fork <= MAX_FORKNUM; fork++)
		for (uint32 segment = 0; segment < segments; segment++)
		{
			FileTag		tag;

			CHECK_FOR_INTERRUPTS();
			memset(&tag, 0, sizeof(tag));
			tag.handler = SYNC_HANDLER_MD;
			tag.rlocator = locator;
			tag.forknum = fork;
			tag.segno = segment;
			(void) RegisterSyncRequest(&tag, SYNC_FORGET_REQUEST, true);
		}
}

/* Raises an error if the file and its folder are missing: its disk may come back, and the file with it.  In a transaction. */
static void
check_missing(RelFileLocator locator)
{
	const char *tablespace;
	char		path[MAXPGPATH];

	pgscale_relation_file_path(path, locator, INVALID_PROC_NUMBER, MAIN_FORKNUM, 0);
	if (access(path, F_OK) == 0)
		return;
	pgscale_relation_files_folder(path, locator.spcOid);
	if (access(path, F_OK) == 0)
		return;
	/* the folder of a tablespace that was dropped does not come back */
	tablespace = get_tablespace_name(locator.spcOid);
	if (tablespace)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FILE),
				 errmsg("could not find the folder of tablespace \"%s\", where file %u is still to be removed",
						tablespace, locator.relNumber),
				 errhint("Mount its disk again, or drop the tablespace.")));
}

/* Shortens the file slowly, outside a transaction. */
static void
empty_file(RelFileLocator locator)
{
	SMgrRelation file;
	BlockNumber blocks = 0;

	StartTransactionCommand();
	file = smgropen(locator, INVALID_PROC_NUMBER);
	if (smgrexists(file, MAIN_FORKNUM))
		blocks = smgrnblocks(file, MAIN_FORKNUM);
	/* a small one is not shortened, but removed at once */
	if ((off_t) blocks * BLCKSZ > STEP_BYTES)
	{
		log_truncation(locator);
		drop_buffers(locator);
	}
	smgrclose(file);
	CommitTransactionCommand();
	shrink_file(locator, blocks);
}

static bool
is_used(RelFileLocator locator)
{
	return OidIsValid(RelidByRelfilenumber(locator.spcOid, locator.relNumber));
}

/*
 * Does what the server's removal leaves undone where it does not find the file, which has at most that number of segments: the server
 * writes it no longer.  Unless a relation has it; outside a transaction.
 */
static void
forget_missing_file(RelFileLocator locator, uint32 segments)
{
	char		path[MAXPGPATH];

	StartTransactionCommand();
	pgscale_relation_file_path(path, locator, INVALID_PROC_NUMBER, MAIN_FORKNUM, 0);
	if (!is_used(locator) && access(path, F_OK) != 0)
	{
		drop_buffers(locator);
		forget_fsyncs(locator, segments);
	}
	CommitTransactionCommand();
}

/*
 * Removes a file with all of its forks, here and on standbys, unless a relation has it; outside a transaction.  If the folder of its
 * tablespace is missing, raises an error: it is still to be removed.
 */
static void
remove_file(RelFileLocator locator)
{
	Relation	fake;
	bool		used;

	StartTransactionCommand();
	used = is_used(locator);
	if (!used)
		check_missing(locator);
	CommitTransactionCommand();
	if (used)
		return;

	if (online_has_time())
		empty_file(locator);

	StartTransactionCommand();
	(void) GetCurrentTransactionId();
	fake = CreateFakeRelcacheEntry(locator);
	RelationDropStorage(fake);
	FreeFakeRelcacheEntry(fake);
	CommitTransactionCommand();

	/* if it went away meanwhile, the file was not removed */
	StartTransactionCommand();
	check_missing(locator);
	CommitTransactionCommand();
}

void
pgscale_relocation_online_clean_up(PgscaleRelocationJob *job)
{
	const int64 bytes = Max(job->bytes, job->counts.copied_bytes);
	const uint32 segments = bytes / PGSCALE_SEGMENT_BYTES + GROWN_SEGMENTS;

	/* one that cannot be removed must not keep the server writing the others */
	for (int i = 0; i < job->nfiles; i++)
		forget_missing_file(job->files[i], segments);
	while (job->nfiles > 0)
	{
		remove_file(job->files[job->nfiles - 1]);
		job->nfiles--;
	}
}
