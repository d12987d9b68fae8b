/*-------------------------------------------------------------------------
 *
 * wal_ahead.c
 *	  Makes the next segment of the WAL before anyone needs it.
 *
 * The process that first reaches the end of a segment needs the next one.  Often a checkpoint has left an old segment for that.
 * If not, the process makes one: it fills 16 MB with zeros and syncs them, under the lock that all commits need.  An online move
 * writes more segments than checkpoints leave.  So its worker makes the next one before each piece, without that lock.
 * XLogFileInit() does it, as for the server itself.
 *
 * The server calls XLogFileInit() where no segment can be removed meanwhile.  Here a delay could let others write beyond the
 * segment, and a checkpoint remove it.  Then it would come back, full of zeros, and might be archived over the good one.  So
 * no checkpoint may start while it is made, and the position is read only after that is so.  A checkpoint that began
 * before keeps all segments from its start on.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "port/atomics.h"
#include "storage/proc.h"

#include "relocation/wal_ahead.h"

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
