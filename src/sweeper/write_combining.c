/*-------------------------------------------------------------------------
 *
 * write_combining.c
 *	  Write combining: finds the dirty pages to write together.
 *
 * A disk that is limited by its number of operations takes a run of neighbouring pages
 * at the price of one.  So the server's buffer mapping is searched around each victim
 * for neighbours that are in memory and dirty.
 *
 * Where a fraction p of a file's pages is dirty, at random, the run around a victim has
 * (1 + p) / (1 - p) pages on average. standing_set.c finds longer ones: while writes are
 * short it chooses the longest of many.
 *
 * Nothing is locked over the batch, and requests of the server are served during it.
 * Changes are noticed when a page's turn comes.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sweeper/write_combining.h"

/* The buffer that holds the page, if that is dirty and free to be written, or -1. */
static int
worth_writing(const PgscalePage *page, bool (*may_write) (int buf))
{
	int			buf = pgscale_buffer_find(page);
	PgscaleBuffer look;

	if (buf < 0)
		return -1;
	pgscale_buffer_look(buf, &look);
	return look.valid && look.dirty && !look.busy && may_write(buf) ? buf : -1;
}

int
pgscale_sweeper_run_around(const PgscalePage *page, int limit, bool (*may_write) (int buf),
						   PgscaleSweeperRun *run, int *bufs)
{
	PgscalePage at = *page;
	int			n = 0;
	int			buf = worth_writing(page, may_write);

	Assert(limit > 0 && limit <= PGSCALE_RUN_MAX);
	run->first = *page;
	run->pages = 0;
	run->victims = 0;
	if (buf < 0)
		return 0;
	bufs[n++] = buf;
	while (n < limit && at.block > 0)
	{
		at.block--;
		if ((buf = worth_writing(&at, may_write)) < 0)
			break;
		bufs[n++] = buf;
		run->first = at;
	}
	for (at.block = page->block + 1; n < limit && at.block != InvalidBlockNumber && (buf = worth_writing(&at, may_write)) >= 0; at.block++)
		bufs[n++] = buf;
	run->pages = n;
	return n;
}

static int
in_file_order(const void *a, const void *b)
{
	return pgscale_buffer_page_compare(&((const PgscaleSweeperRun *) a)->first,
									   &((const PgscaleSweeperRun *) b)->first);
}

void
pgscale_sweeper_runs_sort(PgscaleSweeperRun *runs, int nruns)
{
	qsort(runs, nruns, sizeof(PgscaleSweeperRun), in_file_order);
}
