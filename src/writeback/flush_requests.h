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
	int64		skipped;		/* waiting, and left alone for now */
	int			landed;			/* reached the disk since the last round */
	bool		tells;			/* does the kernel report it? */
	double		landing_ms;		/* and how long that took, mean, or -1 */
	int			found;			/* waiting, and not shown by the buffers */
	int			taken;			/* were on disk before they were asked for */
} PgscaleWritebackAsked;

/* Forgets what was asked. */
extern void pgscale_writeback_ask_start(void);

/* Looks what has reached the disk: what was asked for, and what was not. */
extern void pgscale_writeback_ask_look(PgscaleWritebackAsked *asked, int64 now_ns);

/*
 * The number of waiting pages that are better left alone: of stretches with more than
 * that fraction of rewrites.
 */
extern int64 pgscale_writeback_ask_skipped(double redirty_limit, int64 now_ns);

/*
 * Requests that many pages, the densest first.  Raises the server's error if the kernel
 * has lost data.
 */
extern void pgscale_writeback_ask(PgscaleWritebackAsked *asked, int64 pages, double redirty_limit, int64 now_ns);

/*
 * Once a second: milliseconds that a read took in it, on all disks of which files were
 * asked for.  -1 in between, or if there were few reads or it is not known.
 */
extern double pgscale_writeback_read_ms(int64 now_ns);

#endif							/* PGSCALE_WRITEBACK_FLUSH_REQUESTS_H */
