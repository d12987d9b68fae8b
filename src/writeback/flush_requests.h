/*-------------------------------------------------------------------------
 *
 * flush_requests.h
 *	  Asks the kernel to write, and notices when it has written.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_WRITEBACK_FLUSH_REQUESTS_H
#define PGSCALE_WRITEBACK_FLUSH_REQUESTS_H

#include "postgres.h"

/* What was done in a round, pages. */
typedef struct PgscaleWritebackAsked
{
	int			requests;
	int			asked;
	int64		skipped;		/* that wait, and are left alone for now */
	int			landed;			/* reached the disk since the last round */
	bool		tells;			/* does the kernel tell? */
	double		landing_ms;		/* and how long that took, mean, or -1 */
	int			found;			/* wait, and no buffer told of them */
	int			taken;			/* were on disk before they were asked for */
} PgscaleWritebackAsked;

/* Forgets what was asked. */
extern void pgscale_writeback_ask_start(void);

/* Looks what has reached the disk: what was asked for, and what was not. */
extern void pgscale_writeback_ask_look(PgscaleWritebackAsked *asked, int64 now_ns);

/*
 * How many pages that wait are better left alone: of stretches of which more
 * than that share of the writes hits a page again.
 */
extern int64 pgscale_writeback_ask_skipped(double redirty_limit, int64 now_ns);

/*
 * Asks for so many pages, those first that lie closest together.  Raises what
 * the server raises if the kernel has lost data.
 */
extern void pgscale_writeback_ask(PgscaleWritebackAsked *asked, int64 pages, double redirty_limit, int64 now_ns);

#endif							/* PGSCALE_WRITEBACK_FLUSH_REQUESTS_H */
