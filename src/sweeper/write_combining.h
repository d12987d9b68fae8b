/*-------------------------------------------------------------------------
 *
 * write_combining.h
 *	  Write combining: finds the dirty pages to write together.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SWEEPER_WRITE_COMBINING_H
#define PGSCALE_SWEEPER_WRITE_COMBINING_H

#include "postgres.h"

#include "base/shared_buffers.h"

/* The longest run: 512 kB. A disk writes that in milliseconds, and other requests wait no longer. */
#define PGSCALE_RUN_MAX			64

/* Dirty pages side by side in one fork. */
typedef struct PgscaleSweeperRun
{
	PgscalePage first;
	int			pages;
	int			victims;		/* of them, victims */
} PgscaleSweeperRun;

/*
 * Finds the run around a page, at most limit pages from block "least" on, first
 * those before the page; it ends at a buffer that may not be written, if that is asked.
 * bufs has room for limit buffers and gets theirs, in no order.  Returns how
 * many; none if the page itself is not worth writing.
 */
extern int	pgscale_sweeper_run_around(const PgscalePage *page, int limit, bool (*may_write) (int buf),
									   PgscaleSweeperRun *run, int *bufs);

/* In the order of files and blocks. */
extern void pgscale_sweeper_runs_sort(PgscaleSweeperRun *runs, int nruns);

#endif							/* PGSCALE_SWEEPER_WRITE_COMBINING_H */
