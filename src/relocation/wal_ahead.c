/*-------------------------------------------------------------------------
 *
 * wal_ahead.c
 *	  Makes the next segment of the WAL before anyone needs it.
 *
 * Whoever reaches the end of a segment first must make the next one, unless a checkpoint has left an old one there: fill it
 * with zeros and sync it, under the lock for which all commits wait.  A live move writes many segments more than a checkpoint
 * leaves.  So it makes them, while nobody waits, with the function that the server itself uses.
 *
 * The server calls that function where no segment can be removed meanwhile.  Here a delay could have others write beyond the
 * segment, and a checkpoint remove it: then it would come back, full of zeros, and might be archived over the good one.  So
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
	 * for a flag of a process without a transaction nobody waits; and after
	 * an error it must go
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
