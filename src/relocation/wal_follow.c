/*-------------------------------------------------------------------------
 *
 * wal_follow.c
 *	  Reads from the WAL which blocks of the cluster change.
 *
 * The server's own reader decodes each record up to the end of the flushed WAL, as in pg_walinspect.  Each record names the
 * blocks of a main fork that it changes, whatever its access method.  The only exception is a truncation.  (Commands that drop a
 * relation's file or replace it hold AccessExclusiveLock; callers see their effect in pg_class.)
 *
 * The WAL of the whole cluster is read, because it has no index.  It is in the kernel's cache, because it was written a moment
 * ago.
 *
 * Each call starts the reader anew at the first record that it has not read: a reader that stopped in the middle of a record
 * cannot continue.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>

#include "access/rmgr.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xloginsert.h"
#include "access/xlogreader.h"
#include "access/xlogutils.h"
#include "catalog/pg_control.h"
#include "catalog/storage_xlog.h"
#include "miscadmin.h"
#include "storage/fd.h"

#include "base/pg_compat.h"
#include "relocation/wal_follow.h"

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
