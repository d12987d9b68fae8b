/*-------------------------------------------------------------------------
 *
 * standing_set.h
 *	  Write combining; and the standing set, dirty pages that may leave, and wait to be written.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SWEEPER_STANDING_SET_H
#define PGSCALE_SWEEPER_STANDING_SET_H

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

/* Is the page unused that the buffer was just seen with? */
typedef bool (*PgscaleSweeperUnused) (int buf, const PgscaleBuffer *look, const PgscalePage *page);

/* Room for that many candidates.  Call it once in a process. */
extern void pgscale_sweeper_set_init(int room);

/*
 * What is chosen first from now on: the longest runs, or else the oldest candidates.  Then
 * no lengths are measured.
 */
extern void pgscale_sweeper_set_order(bool longest);

/* Has it less than that part of what it has room for? */
extern bool pgscale_sweeper_set_lacks(double part);

/*
 * Adds the page in that buffer, if it is not there and there is room.  Returns how
 * many pages it looked up in the buffer mapping for that, at most.
 */
extern int	pgscale_sweeper_set_add(int buf, const PgscalePage *page, int limit);

/*
 * Is the page in that buffer, if it is dirty and unused, in the set or with the
 * writers?  With them no more from now on, should they have left it out.
 */
extern bool pgscale_sweeper_set_skip(int buf);

/* The buffer holds another page, or a clean one. */
extern void pgscale_sweeper_set_forget(int buf);

/*
 * Takes out the runs around the first candidates that together have that many pages, at
 * most "most" runs of at most limit pages each, in the order of files and blocks; fewer if
 * finding them takes longer than that CPU time.  Drops candidates that are used or gone.
 * Returns the number of runs.
 */
extern int	pgscale_sweeper_set_choose(int pages, PgscaleSweeperUnused unused, int limit, int64 cpu_ns, PgscaleSweeperRun *runs, int most);

/* Measures the runs of the next candidates again, that many or fewer, as above. */
extern void pgscale_sweeper_set_refresh(int n, PgscaleSweeperUnused unused, int limit, int64 cpu_ns);

#endif							/* PGSCALE_SWEEPER_STANDING_SET_H */
