/*-------------------------------------------------------------------------
 *
 * online_copy.c
 *	  Copies a relation's file, and keeps the copy up to date while the relation changes.
 *
 * Each block is read through shared buffers, under a share lock of its content, and written through shared buffers into the
 * new file, with an image of the whole page in the WAL.  So a crash, a checkpoint, a base backup and a standby treat the
 * new file as any other file, and the end of the move needs no fsync.  (Writes past shared buffers would need one before
 * the switch, under load, and could race with a checkpoint.)  Both sides use small rings of buffers.
 *
 * Commits of others must not wait for all that is written here.  So WAL is flushed in small pieces, its next segment is
 * made ahead (relocation_wal.c), and the kernel is asked to write the new file while it grows (pgscale_relocation_online_move()).
 * With a table of 3 GB beside 50 transactions a second the longest wait was 110 to 200 ms without the last two, 5 to 10 ms
 * with them.
 *
 * Why no change is missed.  A backend changes a block and writes the WAL record of the change under one exclusive lock of
 * the block's content.  The copy is taken under a share lock, so it contains a change completely or not at all.  The record of
 * a change that it does not contain is written after the copy was taken, so a reader that follows the WAL from a point
 * before the first copy sees that record, and marks the block.  A mark is removed after its block was written again, so an error
 * in between loses none; a change during that copy marks the block again, because marks are only set between copies, from
 * WAL that is read later.  Blocks that still have to be copied need no marks.
 *
 * Two kinds of change have no record that names the block.  Hints may be lost, as after a crash.  Bits of the visibility map
 * are cleared by records that name the heap page only; so the map is compared page by page
 * (pgscale_relocation_copy_map()).  Comparing the LSNs of pages instead of following the WAL would miss changes:
 * without checksums, PD_ALL_VISIBLE is set in a heap page without a new LSN.
 *
 * A buffer may hold something else than the disk: a session with zero_damaged_pages has zeros there, one with
 * ignore_checksum_failure a damaged page, and a copy would give either a valid checksum.  ALTER TABLE SET TABLESPACE
 * reads from the disk and refuses.  So a page that the copy found in a buffer is read from the disk, too, and verified
 * (check_on_disk()).  Pages of zeros on the disk are copied as they are.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlogutils.h"
#include "access/rmgr.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/pg_control.h"
#include "catalog/storage.h"
#include "catalog/storage_xlog.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/bufmgr.h"
#include "storage/smgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "base/pg_compat.h"
#include "base/shared_buffers.h"
#include "relocation/online/online.h"

/* In one record; fewer where there are few buffers. */
#define RECORD_BLOCKS	XLR_MAX_BLOCK_ID

/*
 * After that number of blocks their WAL is flushed.  A commit of another session
 * waits until all WAL before it is on disk, which would otherwise be up to
 * wal_buffers, usually 16 MB.
 */
#define FLUSH_BLOCKS	128

#define MARK_BITS		64

/* What is copied at a time. */
typedef struct Piece
{
	int			n;
	int			unflushed;		/* blocks that were written since WAL was
								 * flushed */
	BlockNumber blocks[RECORD_BLOCKS];
	PGAlignedBlock pages[RECORD_BLOCKS];
} Piece;

static void
grow_marks(PgscaleRelocationCopy *copy, BlockNumber blocks)
{
	const Size	have = copy->nmarks / MARK_BITS;
	Size		need = have == 0 ? 1024 : have;

	while (need * MARK_BITS < blocks)
		need *= 2;
	if (copy->marks)
		copy->marks = repalloc_huge(copy->marks, need * sizeof(uint64));
	else
		copy->marks = MemoryContextAllocHuge(copy->context, need * sizeof(uint64));
	memset(copy->marks + have, 0, (need - have) * sizeof(uint64));
	copy->nmarks = (BlockNumber) Min((uint64) need * MARK_BITS, (uint64) MaxBlockNumber);
}

void
pgscale_relocation_copy_mark(PgscaleRelocationCopy *copy, BlockNumber block)
{
	const uint64 bit = UINT64CONST(1) << (block % MARK_BITS);

	if (block >= copy->copied)
		return;
	if (block >= copy->nmarks)
		grow_marks(copy, copy->copied);
	if (!(copy->marks[block / MARK_BITS] & bit))
	{
		copy->marks[block / MARK_BITS] |= bit;
		copy->marked++;
	}
}

static void
remove_mark(PgscaleRelocationCopy *copy, BlockNumber block)
{
	const uint64 bit = UINT64CONST(1) << (block % MARK_BITS);

	if (copy->marks[block / MARK_BITS] & bit)
	{
		copy->marks[block / MARK_BITS] &= ~bit;
		copy->marked--;
	}
}

void
pgscale_relocation_copy_truncated(PgscaleRelocationCopy *copy, BlockNumber blocks)
{
	if (blocks >= copy->copied)
		return;
	for (BlockNumber block = blocks; block < Min(copy->copied, copy->nmarks); block++)
		remove_mark(copy, block);
	/* if it grows again, those are copied as any other */
	copy->copied = blocks;
}

static int
piece_blocks(void)
{
	return Min(RECORD_BLOCKS, Max(NBuffers / 64, 1));
}

/* How often a page on the disk is read that seems to be damaged: it may be half written at that moment. */
#define DISK_READS		3

/*
 * Is the page on the disk sound, and a page of zeros if the buffer holds that?  A dirty page passes: the disk may have half of it since
 * a crash, and the server will write all of it.
 */
static bool
disk_agrees(Relation relation, BlockNumber block, Buffer buffer)
{
	PgscaleBuffer header;
	PGIOAlignedBlock disk;

	pgscale_buffer_look(buffer - 1, &header);
	if (header.dirty || header.busy)
		return true;
	smgrread(RelationGetSmgr(relation), MAIN_FORKNUM, block, disk.data);
	return pgscale_compat_page_verified((Page) disk.data, block) &&
		(!PageIsNew(BufferGetPage(buffer)) || PageIsNew((Page) disk.data));
}

/* Raises an error unless the disk agrees.  The buffer's content must be locked. */
static void
check_on_disk(Relation relation, BlockNumber block, Buffer buffer)
{
	for (int i = 0; i < DISK_READS; i++)
		if (disk_agrees(relation, block, buffer))
			return;
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("page %u of \"%s\" is damaged on the disk, and differs from the page in shared buffers",
					block, RelationGetRelationName(relation)),
			 errhint("A session with zero_damaged_pages or ignore_checksum_failure has read it. Restore the page, or delete its rows, before you move the relation.")));
}

/*
 * The maps are read as the server reads them: a damaged page says nothing.  first: the page is copied for the first time; later it
 * is in a buffer because it has changed.  The disk is read before the content is locked, which may take a while; what it says of a page that
 * is written meanwhile is asked again.
 */
static void
read_page(Relation relation, ForkNumber fork, BlockNumber block, BufferAccessStrategy ring, bool first, char *page)
{
	const int64 hits = pgBufferUsage.shared_blks_hit;
	Buffer		buffer = ReadBufferExtended(relation, fork, block, fork == MAIN_FORKNUM ? RBM_NORMAL : RBM_ZERO_ON_ERROR, ring);
	const bool	doubtful = fork == MAIN_FORKNUM && first && pgBufferUsage.shared_blks_hit != hits &&
		!disk_agrees(relation, block, buffer);

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	memcpy(page, BufferGetPage(buffer), BLCKSZ);
	if (doubtful || (fork == MAIN_FORKNUM && PageIsNew((Page) page)))
		check_on_disk(relation, block, buffer);
	UnlockReleaseBuffer(buffer);
}

/* The buffer of a block of the copy, which has *blocks so far, to be overwritten: exclusively locked. */
static Buffer
copy_buffer(RelFileLocator to, ForkNumber fork, BlockNumber block, BlockNumber *blocks, BufferAccessStrategy ring)
{
	if (block < *blocks)
		return ReadBufferWithoutRelcache(to, fork, block, RBM_ZERO_AND_LOCK, ring, true);
	for (;;)
	{
		Buffer		buffer = pgscale_compat_extend(to, fork, ring);

		if (BufferGetBlockNumber(buffer) != *blocks)
			elog(ERROR, "new file %u of a relocation has an unexpected block %u", to.relNumber, BufferGetBlockNumber(buffer));
		if ((*blocks)++ == block)
			return buffer;
		UnlockReleaseBuffer(buffer);
	}
}

static void
write_piece(RelFileLocator to, ForkNumber fork, Piece *piece, BlockNumber *blocks, bool standard, BufferAccessStrategy ring)
{
	Buffer		buffers[RECORD_BLOCKS];
	XLogRecPtr	end;

	for (int i = 0; i < piece->n; i++)
		buffers[i] = copy_buffer(to, fork, piece->blocks[i], blocks, ring);
	XLogEnsureRecordSpace(RECORD_BLOCKS - 1, 0);
	XLogBeginInsert();
	START_CRIT_SECTION();
	for (int i = 0; i < piece->n; i++)
	{
		memcpy(BufferGetPage(buffers[i]), piece->pages[i].data, BLCKSZ);
		MarkBufferDirty(buffers[i]);
		XLogRegisterBuffer(i, buffers[i], REGBUF_FORCE_IMAGE | (standard ? REGBUF_STANDARD : 0));
	}
	end = XLogInsert(RM_XLOG_ID, XLOG_FPI);
	for (int i = 0; i < piece->n; i++)
		/* a page of zeros must stay one */
		if (!PageIsNew(BufferGetPage(buffers[i])))
			PageSetLSN(BufferGetPage(buffers[i]), end);
	END_CRIT_SECTION();
	for (int i = 0; i < piece->n; i++)
		UnlockReleaseBuffer(buffers[i]);
	piece->unflushed += piece->n;
	if (piece->unflushed >= FLUSH_BLOCKS)
	{
		XLogFlush(end);
		piece->unflushed = 0;
	}
}

BlockNumber
pgscale_relocation_copy_more(PgscaleRelocationCopy *copy, Relation relation, BlockNumber most)
{
	const BlockNumber end = RelationGetNumberOfBlocks(relation);
	BufferAccessStrategy from = GetAccessStrategy(BAS_BULKREAD);
	BufferAccessStrategy to = GetAccessStrategy(BAS_BULKWRITE);
	Piece	   *piece = palloc(sizeof(Piece));
	BlockNumber done = 0;

	piece->unflushed = 0;
	while (done < most && copy->copied < end)
	{
		CHECK_FOR_INTERRUPTS();
		for (piece->n = 0; piece->n < Min(piece_blocks(), most - done) && copy->copied + piece->n < end; piece->n++)
		{
			piece->blocks[piece->n] = copy->copied + piece->n;
			read_page(relation, MAIN_FORKNUM, piece->blocks[piece->n], from, true, piece->pages[piece->n].data);
		}
		write_piece(copy->to, MAIN_FORKNUM, piece, &copy->blocks, copy->standard, to);
		copy->copied += piece->n;
		done += piece->n;
	}
	pfree(piece);
	FreeAccessStrategy(from);
	FreeAccessStrategy(to);
	return done;
}

/* The next marked block from this one on; InvalidBlockNumber: there is none. */
static BlockNumber
next_mark(const PgscaleRelocationCopy *copy, BlockNumber block)
{
	while (copy->marked > 0 && block < Min(copy->nmarks, copy->copied))
	{
		const uint64 rest = copy->marks[block / MARK_BITS] >> (block % MARK_BITS);

		if (rest != 0)
			return block + pg_rightmost_one_pos64(rest);
		block += MARK_BITS - block % MARK_BITS;
	}
	return InvalidBlockNumber;
}

BlockNumber
pgscale_relocation_copy_again(PgscaleRelocationCopy *copy, Relation relation, BlockNumber most)
{
	const BlockNumber end = RelationGetNumberOfBlocks(relation);
	BufferAccessStrategy ring = GetAccessStrategy(BAS_BULKWRITE);
	Piece	   *piece = palloc(sizeof(Piece));
	BlockNumber done = 0;

	piece->unflushed = 0;
	do
	{
		BlockNumber next = copy->again;

		CHECK_FOR_INTERRUPTS();
		/* what is behind the end was truncated; that will be read in the WAL */
		for (piece->n = 0; piece->n < Min(piece_blocks(), most - done) && (next = next_mark(copy, next)) < end; piece->n++, next++)
		{
			piece->blocks[piece->n] = next;

			/*
			 * it has just been changed, so it is in a buffer, and is to stay
			 * there
			 */
			read_page(relation, MAIN_FORKNUM, next, NULL, false, piece->pages[piece->n].data);
		}
		if (piece->n > 0)
			write_piece(copy->to, MAIN_FORKNUM, piece, &copy->blocks, copy->standard, ring);
		for (int i = 0; i < piece->n; i++)
			remove_mark(copy, piece->blocks[i]);
		copy->again = next;
		done += piece->n;
	} while (piece->n > 0 && done < most);
	pfree(piece);
	FreeAccessStrategy(ring);
	return done;
}

/* Is that page of the copy the same? */
static bool
same_page(RelFileLocator to, ForkNumber fork, BlockNumber block, const char *page)
{
	Buffer		buffer = ReadBufferWithoutRelcache(to, fork, block, RBM_ZERO_ON_ERROR, NULL, true);
	bool		same;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	/* the copy's LSN and checksum are its own */
	same = PageIsNew(BufferGetPage(buffer)) == PageIsNew((Page) page) &&
		memcmp((char *) BufferGetPage(buffer) + SizeOfPageHeaderData, page + SizeOfPageHeaderData,
			   BLCKSZ - SizeOfPageHeaderData) == 0;
	UnlockReleaseBuffer(buffer);
	return same;
}

BlockNumber
pgscale_relocation_copy_map(PgscaleRelocationCopy *copy, Relation relation, ForkNumber fork, BlockNumber next, BlockNumber most)
{
	SMgrRelation to = smgropen(copy->to, INVALID_PROC_NUMBER);
	BlockNumber end;
	BlockNumber blocks;
	BlockNumber all;
	BlockNumber last;
	Piece	   *piece;

	if (!smgrexists(RelationGetSmgr(relation), fork))
		return InvalidBlockNumber;
	if (!smgrexists(to, fork))
	{
		smgrcreate(to, fork, false);
		log_smgrcreate(&copy->to, fork);
	}
	end = smgrnblocks(RelationGetSmgr(relation), fork);
	blocks = smgrnblocks(to, fork);
	piece = palloc(sizeof(Piece));
	piece->n = piece->unflushed = 0;
	all = Max(end, blocks);
	last = all - Min(next, all) > most ? next + most : all;
	for (; next < last; next++)
	{
		char	   *page = piece->pages[piece->n].data;

		CHECK_FOR_INTERRUPTS();

		/*
		 * of a relation that was longer: a page of zeros says nothing in
		 * either map
		 */
		if (next < end)
			read_page(relation, fork, next, NULL, false, page);
		else
			memset(page, 0, BLCKSZ);
		if (next < blocks && same_page(copy->to, fork, next, page))
			continue;
		piece->blocks[piece->n++] = next;
		if (piece->n == piece_blocks())
		{
			write_piece(copy->to, fork, piece, &blocks, false, NULL);
			copy->mapped_pages += piece->n;
			piece->n = 0;
		}
	}
	if (piece->n > 0)
		write_piece(copy->to, fork, piece, &blocks, false, NULL);
	copy->mapped_pages += piece->n;
	pfree(piece);

	/*
	 * after the last page was read: it may have grown until then, and is not
	 * truncated while it is open
	 */
	if (fork == FSM_FORKNUM)
		copy->mapped = Max(copy->mapped, RelationGetNumberOfBlocks(relation));
	return next < all ? next : InvalidBlockNumber;
}

void
pgscale_relocation_copy_shorten(PgscaleRelocationCopy *copy, Relation relation)
{
	const BlockNumber end = RelationGetNumberOfBlocks(relation);

	/* a truncation that is still to be read in the WAL */
	if (copy->copied > end)
		return;
	if (Max(copy->blocks, copy->mapped) > end)
	{
		Relation	fake = CreateFakeRelcacheEntry(copy->to);

		RelationTruncate(fake, end);
		FreeFakeRelcacheEntry(fake);
		copy->blocks = Min(copy->blocks, end);
		copy->mapped = end;
	}
}

void
pgscale_relocation_copy_finish(PgscaleRelocationCopy *copy, Relation relation)
{
	pgscale_relocation_copy_shorten(copy, relation);
	if (copy->marked != 0 || copy->copied != RelationGetNumberOfBlocks(relation) || copy->blocks != copy->copied)
		elog(ERROR, "the copy of relation %u is not complete", copy->relation);
}
