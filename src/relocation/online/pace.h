/*-------------------------------------------------------------------------
 *
 * pace.h
 *	  What holds an online move back: the settings for it, standbys, and disks.
 *
 * For the worker, which copies in pieces.  Before each piece it asks
 * pgscale_relocation_pace_wait(), and copies as much as pgscale_relocation_pace_piece()
 * allows.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_PACE_H
#define PGSCALE_RELOCATION_PACE_H

#include "postgres.h"

#include "access/xlogdefs.h"

/* In the worker's memory. */
typedef struct PgscaleRelocationPace
{
	Oid			target;
	int64		bytes;			/* of all that is to be copied */

	/* of the last call */
	int64		asked_ns;
	int64		copied;
	bool		went_on;		/* whether it had not to wait */

	double		debt;			/* bytes copied beyond the rate; less than 0:
								 * still to be copied within it */
	int64		piece;			/* bytes, as the last pieces took their time */

	int64		looked_ns;		/* when the reasons to wait were looked for */
	bool		looked;			/* whether they ever were */
	char		why[192];		/* what was found, or empty */
	bool		warned;			/* that I/O pressure is unknown */

	XLogRecPtr	piece_end;		/* end of its WAL, while synchronous standbys
								 * have not confirmed it; else invalid */
	int64		base_ns;		/* least time until they confirmed a piece; 0:
								 * the next one tells */
	int64		base_at_ns;		/* since when */

	/* when free space was looked at, and found */
	bool		had_room;
	int64		space_ns;
	int64		space_copied;
	int64		checkpoint_ns;	/* when a checkpoint was asked for last, since
								 * there was room; 0: none was */
} PgscaleRelocationPace;

/* Once, before all else: the settings. */
extern void pgscale_relocation_pace_define_gucs(void);

/* Before the first piece.  bytes: of all that is to be copied. */
extern void pgscale_relocation_pace_start(PgscaleRelocationPace *pace, Oid target, int64 bytes);

/*
 * In no transaction, before each piece.  copied: bytes so far; left: bytes still to be
 * copied.  Returns how many milliseconds to wait before more is copied, a second at most;
 * 0: go on.  *why is set to what the move waits for, as a text for users that is valid
 * until the next call, or to NULL if that is only the rate.  The caller waits, follows the
 * WAL meanwhile, and asks again.
 *
 * Reads the configuration again if it was asked to.  Raises ERRCODE_DISK_FULL if what is
 * left does not fit on the disk of the target, or its WAL on that of pg_wal.
 */
extern long pgscale_relocation_pace_wait(PgscaleRelocationPace *pace, int64 copied, int64 left, char **why);

/*
 * Must all moves wait now: until pgscale.relocation_hours begin, or for a standby that lags?  Then *why is set to a text for
 * users that says so.
 */
extern bool pgscale_relocation_pace_must_wait(char *why, Size size);

/*
 * How many bytes the next piece may have: whole pages, 4 MB at most, and less where the rate
 * or the disks are slow, so that its lock is held for about 100 ms.
 */
extern int64 pgscale_relocation_pace_piece(const PgscaleRelocationPace *pace);

#endif							/* PGSCALE_RELOCATION_PACE_H */
