/*-------------------------------------------------------------------------
 *
 * write_combining.h
 *	  Write combining: which dirty pages to write together.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SWEEPER_WRITE_COMBINING_H
#define PGSCALE_SWEEPER_WRITE_COMBINING_H

#include "postgres.h"

#include "base/shared_buffers.h"

/* Dirty pages side by side in one fork. */
typedef struct PgscaleSweeperRun
{
	PgscalePage first;
	int			pages;
	int			victims;		/* of them, victims */
} PgscaleSweeperRun;

/*
 * Finds the runs around the victims, at most limit pages each.  Sorts victims;
 * runs has room for nvictims and comes back in the order of files and blocks.
 * Returns how many.
 */
extern int	pgscale_sweeper_runs_find(PgscalePage *victims, int nvictims, int limit, PgscaleSweeperRun *runs);

/*
 * Keeps the longest runs that together have so many pages, in the order of
 * files and blocks.  Returns how many.
 */
extern int	pgscale_sweeper_runs_choose(PgscaleSweeperRun *runs, int nruns, int pages);

#endif							/* PGSCALE_SWEEPER_WRITE_COMBINING_H */
