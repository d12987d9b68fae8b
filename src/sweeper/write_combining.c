/*-------------------------------------------------------------------------
 *
 * write_combining.c
 *	  Write combining: which dirty pages to write together.
 *
 * A disk that is limited by its number of operations takes a run of
 * neighbouring pages at the price of one.  So around each victim look up, in
 * the server's buffer mapping, how far its neighbours are in memory and dirty.
 *
 * Where a share p of a file's pages is dirty, at random, the run around a
 * victim has (1 + p) / (1 - p) pages in the mean.  To have more, write the
 * longest first: of several times the victims that are needed, those in short
 * runs stay dirty until the sweep comes round again, and by then have grown
 * neighbours.  Simulated at p = 0.54 that doubles the mean run.
 *
 * Nothing is locked over the batch, and a request of the server is served in
 * it.  What has changed when a page's turn comes is found out then.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/interrupt.h"

#include "sweeper/write_combining.h"

static bool
worth_writing(const PgscalePage *page)
{
	int			buf = pgscale_buffer_find(page);
	PgscaleBuffer look;

	if (buf < 0)
		return false;
	pgscale_buffer_look(buf, &look);
	return look.valid && look.dirty && !look.busy;
}

int
pgscale_sweeper_runs_find(PgscalePage *victims, int nvictims, int limit, PgscaleSweeperRun *runs)
{
	int			nruns = 0;

	qsort(victims, nvictims, sizeof(PgscalePage), pgscale_buffer_page_compare);

	for (int i = 0; i < nvictims && !ShutdownRequestPending; i++)
	{
		PgscaleSweeperRun *last = nruns > 0 ? &runs[nruns - 1] : NULL;
		PgscaleSweeperRun *run = &runs[nruns];
		BlockNumber end;		/* behind the last run, if in this fork */
		PgscalePage page = victims[i];

		CHECK_FOR_INTERRUPTS();
		end = last && pgscale_buffer_page_same_fork(&last->first, &page) ?
			last->first.block + last->pages : 0;
		if (page.block < end)
		{
			last->victims++;
			continue;
		}
		if (!worth_writing(&page))
			continue;

		run->first = page;
		run->pages = 1;
		run->victims = 1;
		for (page.block = run->first.block;
			 run->pages < limit && page.block > end; run->pages++)
		{
			page.block--;
			if (!worth_writing(&page))
				break;
			run->first = page;
		}
		for (page.block = run->first.block + run->pages;
			 run->pages < limit && page.block != InvalidBlockNumber && worth_writing(&page);
			 page.block++)
			run->pages++;
		nruns++;
	}
	return nruns;
}

static int
longer_first(const void *a, const void *b)
{
	return ((const PgscaleSweeperRun *) b)->pages - ((const PgscaleSweeperRun *) a)->pages;
}

static int
in_file_order(const void *a, const void *b)
{
	return pgscale_buffer_page_compare(&((const PgscaleSweeperRun *) a)->first,
									   &((const PgscaleSweeperRun *) b)->first);
}

int
pgscale_sweeper_runs_choose(PgscaleSweeperRun *runs, int nruns, int pages)
{
	int			chosen = 0;

	qsort(runs, nruns, sizeof(PgscaleSweeperRun), longer_first);
	while (chosen < nruns && pages > 0)
		pages -= runs[chosen++].pages;
	qsort(runs, chosen, sizeof(PgscaleSweeperRun), in_file_order);
	return chosen;
}
