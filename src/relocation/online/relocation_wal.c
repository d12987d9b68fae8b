/*-------------------------------------------------------------------------
 *
 * relocation_wal.c
 *	  A move and the WAL: which blocks of the cluster change, the next segment, and who has still to read what a move writes.
 *
 * Changes.  The server's own reader decodes each record up to the end of the flushed WAL, as in pg_walinspect.  Each record names the
 * blocks of a main fork that it changes, whatever its access method.  The only exception is a truncation.  (Commands that drop a
 * relation's file or replace it hold AccessExclusiveLock; callers see their effect in pg_class.)
 *
 * The WAL of the whole cluster is read, because it has no index.  It is in the kernel's cache, because it was written a moment
 * ago.
 *
 * Each call starts the reader anew at the first record that it has not read: a reader that stopped in the middle of a record
 * cannot continue.
 *
 * The next segment.  The process that first reaches the end of a segment needs the next one.  Often a checkpoint has left an old
 * segment for that.  If not, the process makes one: it fills 16 MB with zeros and syncs them, under the lock that all commits need.
 * An online move writes more segments than checkpoints leave.  So its worker makes the next one before each piece, without that
 * lock.  XLogFileInit() does it, as for the server itself.
 *
 * The server calls XLogFileInit() where no segment can be removed meanwhile.  Here a delay could let others write beyond the
 * segment, and a checkpoint remove it.  Then it would come back, full of zeros, and might be archived over the good one.  So
 * no checkpoint may start while it is made, and the position is read only after that is so.  A checkpoint that began
 * before keeps all segments from its start on.
 *
 * Readers.  A commit waits until synchronous standbys have confirmed its WAL, and with it all WAL of a move before it.  So a move
 * asks before each piece whether they have confirmed the piece before.
 *
 * Other physical receivers, pg_receivewal too, are behind by what they have not flushed.  WAL that a standby has flushed and not
 * replayed is not kept here, and recovery_min_apply_delay may be hours.
 *
 * Logical consumers confirm when they have applied, which may take as long as the longest transaction.  They are not
 * waited for; their slots keep the WAL.  A walsender for them is connected to a database, a physical one is not.
 *
 * A slot loses its WAL at the checkpoint after it is behind by more than max_slot_wal_keep_size, whether it is in use or not.
 * pg_replication_slots.safe_wal_size is computed in the same way.  A part of that room is left to the WAL of others.
 *
 * All of it is in shared memory: one spinlock for each walsender, and for each slot, as in the views.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "access/rmgr.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xloginsert.h"
#include "access/xlogreader.h"
#include "access/xlogutils.h"
#include "catalog/pg_control.h"
#include "catalog/storage_xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/atomics.h"
#include "replication/slot.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/fd.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/spin.h"
#include "utils/guc.h"

#include "base/pg_compat.h"
#include "base/processes.h"
#include "base/units.h"
#include "base/wal_disk.h"
#include "relocation/online/relocation_wal.h"

/* The part of max_slot_wal_keep_size that is left to others. */
#define SLOT_RESERVE_PERCENT	25

/* Between two looks for a request to end. */
#define RECORDS_BETWEEN_LOOKS	256

/* A segment that is recycled while it is read has records of another position. */
#define RECYCLED_HINT	"Raise max_wal_size or wal_keep_size, or lower pgscale.relocation_rate."

struct PgscaleRelocationWal
{
	XLogReaderState *reader;
	ReadLocalXLogPageNoWaitPrivate private;
	XLogRecPtr	next;			/* of the first record that was not read */
	MemoryContext context;		/* in which the reader makes and frees its
								 * buffers as it goes */
	PgscaleRelocationWalVisitor visitor;
};

/* As wal_segment_open(), with an error that says what to do. */
static void
wal_open_segment(XLogReaderState *reader, XLogSegNo segment, TimeLineID *timeline)
{
	char		path[MAXPGPATH];

	XLogFilePath(path, *timeline, segment, wal_segment_size);
	reader->seg.ws_file = BasicOpenFile(path, O_RDONLY | PG_BINARY);
	if (reader->seg.ws_file >= 0)
		return;
	if (errno == ENOENT)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("the server has recycled WAL that the move had not read yet: \"%s\"", path),
				 errhint(RECYCLED_HINT)));
	ereport(ERROR,
			(errcode_for_file_access(),
			 errmsg("could not open file \"%s\": %m", path)));
}

PgscaleRelocationWal *
pgscale_relocation_wal_begin(const PgscaleRelocationWalVisitor *visitor)
{
	PgscaleRelocationWal *follow = palloc0(sizeof(PgscaleRelocationWal));

	follow->visitor = *visitor;
	follow->context = CurrentMemoryContext;
	follow->reader = XLogReaderAllocate(wal_segment_size, NULL,
										XL_ROUTINE(.page_read = read_local_xlog_page_no_wait,
												   .segment_open = wal_open_segment,
												   .segment_close = wal_segment_close),
										&follow->private);
	if (!follow->reader)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
	follow->next = GetXLogInsertRecPtr();
	return follow;
}

void
pgscale_relocation_wal_end(PgscaleRelocationWal *follow)
{
	XLogReaderFree(follow->reader);
	pfree(follow);
}

static void
wal_visit(const PgscaleRelocationWalVisitor *visitor, XLogReaderState *record)
{
	for (int id = 0; id <= XLogRecMaxBlockId(record); id++)
	{
		RelFileLocator locator;
		ForkNumber	fork;
		BlockNumber block;

		if (XLogRecGetBlockTagExtended(record, id, &locator, &fork, &block, NULL))
			visitor->changed(visitor->arg, locator, fork, block);
	}
	if (XLogRecGetRmid(record) == RM_SMGR_ID && (XLogRecGetInfo(record) & ~XLR_INFO_MASK) == XLOG_SMGR_TRUNCATE)
	{
		const xl_smgr_truncate *truncate = (const xl_smgr_truncate *) XLogRecGetData(record);

		if (truncate->flags & SMGR_TRUNCATE_HEAP)
			visitor->truncated(visitor->arg, truncate->rlocator, truncate->blkno);
	}
}

/* The next record begins at the end of the last one, behind the header of a page that begins there. */
static XLogRecPtr
wal_record_after(XLogRecPtr end)
{
	if (end % XLOG_BLCKSZ != 0)
		return end;
	return end + (XLogSegmentOffset(end, wal_segment_size) == 0 ? SizeOfXLogLongPHD : SizeOfXLogShortPHD);
}

int64
pgscale_relocation_wal_read(PgscaleRelocationWal *follow, XLogRecPtr until)
{
	const bool	to_the_end = !XLogRecPtrIsInvalid(until);
	const XLogRecPtr start = follow->next;
	MemoryContext old;

	if (!to_the_end)
		until = GetFlushRecPtr(NULL);
	if (follow->next >= until)
		return 0;
	old = MemoryContextSwitchTo(follow->context);
	XLogBeginRead(follow->reader, follow->next);
	for (int n = 1; follow->next < until; n++)
	{
		char	   *problem = NULL;

		if (n % RECORDS_BETWEEN_LOOKS == 0)
			CHECK_FOR_INTERRUPTS();
		follow->private.end_of_wal = false;
		if (!XLogReadRecord(follow->reader, &problem))
		{
			if (follow->private.end_of_wal && !to_the_end)
				break;
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("could not read the WAL at %X/%X: %s", LSN_FORMAT_ARGS(follow->next),
							problem ? problem : "there is no valid record"),
					 errhint(RECYCLED_HINT)));
		}
		wal_visit(&follow->visitor, follow->reader);
		follow->next = wal_record_after(follow->reader->EndRecPtr);
	}
	MemoryContextSwitchTo(old);
	return follow->next - start;
}

XLogRecPtr
pgscale_relocation_wal_flush(void)
{
	char		nothing = 0;
	XLogRecPtr	end;

	/*
	 * the end of a record, which is what can be flushed to: the position of
	 * the next one can be behind a page's header
	 */
	XLogBeginInsert();
	XLogRegisterData(&nothing, sizeof(nothing));
	end = XLogInsert(RM_XLOG_ID, XLOG_NOOP);
	XLogFlush(end);
	return end;
}

/*
 * The next segment
 */

static XLogSegNo
next_segment(void)
{
	XLogSegNo	segment;

	XLByteToSeg(GetXLogInsertRecPtr(), segment, wal_segment_size);
	return segment + 1;
}

void
pgscale_relocation_wal_ahead(void)
{
	static XLogSegNo made = 0;
	XLogSegNo	next;

	if (next_segment() == made)
		return;

	/*
	 * a checkpoint heeds the flag only of a process in a transaction; an
	 * error then removes the flag
	 */
	StartTransactionCommand();
	Assert((MyProc->delayChkptFlags & DELAY_CHKPT_START) == 0);
	MyProc->delayChkptFlags |= DELAY_CHKPT_START;
	pg_memory_barrier();
	next = next_segment();
	/* if the segment is there, it is only opened */
	close(XLogFileInit(next, GetWALInsertionTimeLine()));
	MyProc->delayChkptFlags &= ~DELAY_CHKPT_START;
	CommitTransactionCommand();
	made = next;
}

/*
 * Readers
 */

/* Its name, as pg_stat_replication has it. */
static void
receiver_name(int pid, char *name, Size size)
{
	PGPROC	   *proc = BackendPidGetProc(pid);
	PgscaleProcClient client;

	if (!proc || !pgscale_procs_read_client((int) (proc - ProcGlobal->allProcs), false, &client))
		client.application_name[0] = '\0';
	strlcpy(name, client.application_name, size);
}

static bool
receiver_is_physical(int pid)
{
	PGPROC	   *proc = BackendPidGetProc(pid);

	return proc && !OidIsValid(proc->databaseId);
}

bool
pgscale_relocation_wal_is_synchronous(void)
{
	const char *level = GetConfigOptionResetString("synchronous_commit");

	if (SyncRepConfig == NULL || max_wal_senders == 0)
		return false;
	/* sessions may ask for it where the database does not */
	return (strcmp(level, "off") != 0 && strcmp(level, "local") != 0) ||
		pgscale_compat_sync_rep_waits(SYNC_REP_WAIT_WRITE) || pgscale_compat_sync_rep_waits(SYNC_REP_WAIT_FLUSH) ||
		pgscale_compat_sync_rep_waits(SYNC_REP_WAIT_APPLY);
}

/* Any session may ask for another level of synchronous_commit: what is flushed counts, or what is replayed where one waits for that. */
static XLogRecPtr
standby_confirmed(const SyncRepStandbyData *standby)
{
	if (pgscale_compat_sync_rep_waits(SYNC_REP_WAIT_APPLY) ||
		strcmp(GetConfigOptionResetString("synchronous_commit"), "remote_apply") == 0)
		return standby->apply;
	return standby->flush;
}

bool
pgscale_relocation_wal_unconfirmed(XLogRecPtr until, char *why, Size size)
{
	SyncRepStandbyData *standbys = NULL;
	int			n;
	int			confirmed = 0;
	int			waits_for = 0;

	if (!pgscale_relocation_wal_is_synchronous())
		return false;
	n = SyncRepGetCandidateStandbys(&standbys);
	for (int i = 0; i < n; i++)
		if (standby_confirmed(&standbys[i]) >= until)
			confirmed++;
		else
			waits_for = standbys[i].pid;
	if (standbys)
		pfree(standbys);
	/* of a quorum any will do; else there are no more candidates than that */
	if (confirmed >= SyncRepConfig->num_sync)
		return false;
	if (waits_for == 0)
		snprintf(why, size, "only %d of %d synchronous standbys stream WAL (synchronous_standby_names)",
				 n, SyncRepConfig->num_sync);
	else
	{
		char		name[NAMEDATALEN];

		receiver_name(waits_for, name, sizeof(name));
		snprintf(why, size, "synchronous standby \"%s\" has not confirmed the WAL of the last piece", name);
	}
	return true;
}

bool
pgscale_relocation_wal_behind(int64 most, char *why, Size size)
{
	const XLogRecPtr here = GetXLogWriteRecPtr();
	char		name[NAMEDATALEN];
	int			pid = 0;

	for (int i = 0; i < max_wal_senders; i++)
	{
		WalSnd	   *sender = &WalSndCtl->walsnds[i];
		XLogRecPtr	flushed;
		int64		behind;
		int			its_pid;

		SpinLockAcquire(&sender->mutex);
		its_pid = sender->pid;
		flushed = sender->flush;
		SpinLockRelease(&sender->mutex);
		behind = (int64) (here - flushed);
		/* a base backup flushes none, and pg_receivewal whole segments */
		if (its_pid == 0 || XLogRecPtrIsInvalid(flushed) || behind <= most || !receiver_is_physical(its_pid) ||
			(behind <= wal_segment_size && XLogSegmentOffset(flushed, wal_segment_size) == 0))
			continue;
		most = behind;
		pid = its_pid;
	}
	if (pid == 0)
		return false;
	receiver_name(pid, name, sizeof(name));
	snprintf(why, size, "standby \"%s\" has " INT64_FORMAT " MB of WAL to receive (pgscale.relocation_max_lag)",
			 name, most / PGSCALE_MB);
	return true;
}

/*
 * What the slot still needs that needs the oldest WAL, and its name; invalid if none keeps any.  unused: only of those that no process
 * uses.
 */
static XLogRecPtr
oldest_slot(bool unused, NameData *name)
{
	XLogRecPtr	oldest = InvalidXLogRecPtr;

	LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
	for (int i = 0; i < PGSCALE_REPLICATION_SLOTS; i++)
	{
		ReplicationSlot *slot = &ReplicationSlotCtl->replication_slots[i];

		if (!slot->in_use)
			continue;
		SpinLockAcquire(&slot->mutex);
		/* one that was invalidated keeps none */
		if (!XLogRecPtrIsInvalid(slot->data.restart_lsn) && !pgscale_compat_slot_is_invalid(slot) &&
			!(unused && pgscale_compat_slot_is_used(slot)) &&
			(XLogRecPtrIsInvalid(oldest) || slot->data.restart_lsn < oldest))
		{
			oldest = slot->data.restart_lsn;
			*name = slot->data.name;
		}
		SpinLockRelease(&slot->mutex);
	}
	LWLockRelease(ReplicationSlotControlLock);
	return oldest;
}

/* How much WAL may be written until a slot that needs it from there on may lose it. */
static int64
slot_room(XLogRecPtr restart)
{
	const int64 kept_mb = Max(max_slot_wal_keep_size_mb, wal_keep_size_mb);
	const XLogSegNo kept = kept_mb * PGSCALE_MB / wal_segment_size;
	XLogSegNo	segment;
	XLogRecPtr	lost_at;

	XLByteToSeg(restart, segment, wal_segment_size);
	XLogSegNoOffsetToRecPtr(segment + kept + 1, 0, wal_segment_size, lost_at);
	return (int64) lost_at - (int64) GetXLogWriteRecPtr();
}

bool
pgscale_relocation_wal_slot_at_risk(int64 bytes, bool unused, char *why, Size size)
{
	const int64 reserve = max_slot_wal_keep_size_mb * PGSCALE_MB / 100 * SLOT_RESERVE_PERCENT;
	NameData	name;
	XLogRecPtr	oldest;
	int64		room;

	if (max_slot_wal_keep_size_mb < 0)
		return false;
	oldest = oldest_slot(unused, &name);
	if (XLogRecPtrIsInvalid(oldest))
		return false;
	room = slot_room(oldest);
	if (room - reserve >= bytes)
		return false;

	/*
	 * a slot that needs nothing but the last segment is read, and loses
	 * nothing by what is written next
	 */
	if (!unused && GetXLogWriteRecPtr() - oldest < wal_segment_size)
		return false;
	snprintf(why, size, "replication slot \"%s\" would be lost after " INT64_FORMAT " more MB of WAL (max_slot_wal_keep_size)",
			 NameStr(name), Max(room, 0) / PGSCALE_MB);
	return true;
}

/* How much WAL is there from that place on; 0 if it is invalid. */
static int64
written_since(XLogRecPtr from)
{
	return XLogRecPtrIsInvalid(from) ? 0 : (int64) (GetXLogWriteRecPtr() - from);
}

/* The first segment that the next checkpoint keeps at most, for recovery, slots, the WAL summarizer or wal_keep_size. */
static XLogSegNo
next_checkpoint_keeps(XLogRecPtr slots, XLogRecPtr unsummarized)
{
	const XLogSegNo keep_size = wal_keep_size_mb * PGSCALE_MB / wal_segment_size;
	XLogRecPtr	from = GetRedoRecPtr();
	XLogSegNo	kept;
	XLogSegNo	now;

	if (!XLogRecPtrIsInvalid(slots))
		from = Min(from, slots);
	if (!XLogRecPtrIsInvalid(unsummarized))
		from = Min(from, unsummarized);
	XLByteToSeg(from, kept, wal_segment_size);
	XLByteToSeg(GetXLogWriteRecPtr(), now, wal_segment_size);
	return Min(kept, now - Min(keep_size, now));
}

PgscaleRelocationHeldBack
pgscale_relocation_wal_held_back(int64 bytes, char *why, Size size)
{
	/* what recovery would need is kept anyway */
	const int64 kept = written_since(GetRedoRecPtr());
	const int64 archive = pgscale_wal_disk_to_archive_before(PG_UINT64_MAX);
	const XLogRecPtr unsummarized = pgscale_compat_oldest_unsummarized();
	const int64 summarizer = written_since(unsummarized);
	NameData	name = {.data = ""};
	const XLogRecPtr oldest = oldest_slot(false, &name);
	const int64 slot = written_since(oldest);
	const XLogSegNo end = next_checkpoint_keeps(oldest, unsummarized);
	int64		removed;

	removed = pgscale_wal_disk_used_before(end) - pgscale_wal_disk_to_archive_before(end);
	if (removed >= bytes)
	{
		snprintf(why, size, "the next checkpoint removes " INT64_FORMAT " MB of WAL", removed / PGSCALE_MB);
		return PGSCALE_RELOCATION_HELD_UNTIL_CHECKPOINT;
	}
	if (removed + Max(Max(slot, archive), summarizer) - kept < bytes)
		return PGSCALE_RELOCATION_HELD_BY_NONE;
	if (slot >= archive && slot >= summarizer)
		snprintf(why, size, "replication slot \"%s\" keeps " INT64_FORMAT " MB of WAL", NameStr(name), slot / PGSCALE_MB);
	else if (archive >= summarizer)
		snprintf(why, size, "the archiver has " INT64_FORMAT " MB of WAL still to archive", archive / PGSCALE_MB);
	else
		snprintf(why, size, "the WAL summarizer has " INT64_FORMAT " MB of WAL still to read", summarizer / PGSCALE_MB);
	return PGSCALE_RELOCATION_HELD_BY_READER;
}
