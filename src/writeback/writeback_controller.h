/*-------------------------------------------------------------------------
 *
 * writeback_controller.h
 *	  Decides how much to ask the kernel to write now.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_WRITEBACK_WRITEBACK_CONTROLLER_H
#define PGSCALE_WRITEBACK_WRITEBACK_CONTROLLER_H

#include "postgres.h"

typedef enum PgscaleWritebackState
{
	PGSCALE_WRITEBACK_OFF,
	PGSCALE_WRITEBACK_WATCHING,
	PGSCALE_WRITEBACK_CAPPING,
	PGSCALE_WRITEBACK_STANDING_DOWN
} PgscaleWritebackState;

/* Why, with a number that belongs to it. */
typedef enum PgscaleWritebackReason
{
	PGSCALE_WRITEBACK_IS_OFF,
	PGSCALE_WRITEBACK_NO_FSYNC,
	PGSCALE_WRITEBACK_DIRECT_IO,
	PGSCALE_WRITEBACK_OVERLAY,
	PGSCALE_WRITEBACK_NO_CALL,
	PGSCALE_WRITEBACK_FAILED,
	PGSCALE_WRITEBACK_LEARNING, /* seconds to go */
	PGSCALE_WRITEBACK_LITTLE,
	PGSCALE_WRITEBACK_KEEPING,
	PGSCALE_WRITEBACK_BEHIND,	/* bytes a second that the disk takes */
	PGSCALE_WRITEBACK_SLOW_READS,	/* ms a read, usually */
	PGSCALE_WRITEBACK_REWRITES	/* fraction of the writes */
} PgscaleWritebackReason;

/* What is known in a round; -1 is unknown. */
typedef struct PgscaleWritebackEvidence
{
	bool		possible;		/* is there any use in asking? */
	PgscaleWritebackReason obstacle;	/* if not, why */
	int64		cap_setting;	/* bytes, -1: to be found */
	double		redirty_limit;
	int64		waiting;		/* bytes in the kernel, not asked for */
	int64		skipped;		/* of them, better left alone */
	int64		flying;			/* bytes asked for, not on disk yet */
	bool		tells;			/* does the kernel report what reached the
								 * disk? */
	int64		landed;			/* bytes that did since the last round */
	double		landing_ms;		/* and how long that took, mean */
	double		rewritten;		/* fraction of the writes that hit a page
								 * again */
	double		read_ms;		/* how long a read took, once a second */
} PgscaleWritebackEvidence;

typedef struct PgscaleWriteback
{
	PgscaleWritebackState state;
	PgscaleWritebackReason reason;
	double		number;
	int64		since_ns;		/* when it began to watch, or to stand down */

	int64		cap;			/* bytes */
	int64		window;			/* bytes to have in flight at most */
	double		disk_rate;		/* bytes a second, or -1 */
	double		read_ms;		/* that reads usually take, or -1 */
	bool		slow_reads;		/* they took longer, last time */

	/* for the disk's rate */
	int64		busy_ns;
	int64		busy_bytes;
	int64		last_ns;
	bool		was_flying;
	bool		was_limited;	/* by the window */
} PgscaleWriteback;

extern void pgscale_writeback_decide_start(PgscaleWriteback *w, int64 now_ns);

/* Decides, and returns how many bytes to ask for. */
extern int64 pgscale_writeback_decide(PgscaleWriteback *w, const PgscaleWritebackEvidence *e,
									  int64 now_ns);

/* A decision in words. */
extern char *pgscale_writeback_reason(PgscaleWritebackReason reason, double number);

#endif							/* PGSCALE_WRITEBACK_WRITEBACK_CONTROLLER_H */
