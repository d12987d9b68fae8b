/*-------------------------------------------------------------------------
 *
 * rings.c
 *	  The sweeper's rings under simulate.c: each run that was queued is taken once, as
 *	  it was put, and each page comes back at most once, in order; nothing is given up.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "simulate.h"

#include "base/shared_area.c"
#include "sweeper/shared.c"

#define WRITERS 3
#define RUNS	12

PgscaleSweeperSettings pgscale_sweeper_settings;
const PgscalePageWorths *pgscale_buffer_worths;
const PgscalePageWorths pgscale_sweeper_worths;

static PgscaleSweeperQueues *queues;
static bool taken[RUNS + 1];
static int	ntaken;

/* Calls all of them: a run's content tells its number in each field. */
static PgscaleSweeperRun
make_run(int n)
{
	PgscaleSweeperRun	run;

	run.first.locator = *(RelFileLocator *) (Oid[3]){n, n, n};
	run.first.fork = (ForkNumber) (n % 3);
	run.first.block = n;
	run.pages = n;
	run.victims = n;
	return run;
}

static void
put_runs(void *argument)
{
	for (int n = 1; n <= RUNS; n++)
	{
		PgscaleSweeperRun	run = make_run(n);

		while (!pgscale_sweeper_put_run(queues, &run))
			sim_pause();
		(void) pgscale_sweeper_pending(queues);
	}
}

static void
take_runs(void *argument)
{
	while (ntaken < RUNS)
	{
		PgscaleSweeperRun	run;
		bool		lost = false;

		if (pgscale_sweeper_take_run(queues, &run, &lost))
		{
			PgscaleSweeperRun	as_put;

			if (run.pages < 1 || run.pages > RUNS)
				sim_fail("a run of %d pages was taken that nobody had put", run.pages);
			as_put = make_run(run.pages);
			if (memcmp(&run, &as_put, sizeof(run)) != 0)
				sim_fail("run %d was taken in part", run.pages);
			if (taken[run.pages])
				sim_fail("run %d was taken twice", run.pages);
			taken[run.pages] = true;
			ntaken++;
		}
		else
			sim_pause();
		if (lost)
			sim_fail("runs were given up");
	}
}

static void
put_pages(void *argument)
{
	PgscaleSweeperSwept swept = {0};

	for (int n = 1; n <= RUNS; n++)
	{
		swept.buf = n;
		swept.page.block = n;
		pgscale_sweeper_put_written(&queues->written[0], &swept);
	}
}

static void
take_pages(void *argument)
{
	int			last = 0;

	for (int i = 0; i < 3 * RUNS; i++)
	{
		PgscaleSweeperSwept swept;
		bool		lost = false;

		if (pgscale_sweeper_take_written(&queues->written[0], &swept, &lost))
		{
			if (swept.buf != swept.page.block || swept.buf <= last)
				sim_fail("page %d of buffer %d was taken after %d", swept.page.block, swept.buf, last);
			last = swept.buf;
		}
		else
			sim_pause();
		if (lost)
			sim_fail("pages were given up");
	}
}

void
sim_begin(void)
{
	bool		found;

	memset(taken, 0, sizeof(taken));
	ntaken = 0;
	pgscale_area_startup(&pgscale_sweeper_area);
	queues = ShmemInitStruct("queues", sizeof(PgscaleSweeperQueues), &found);
	if (sim_random(2) == 0)
	{
		sim_thread(put_runs, NULL);
		for (int i = 0; i < WRITERS; i++)
			sim_thread(take_runs, NULL);
	}
	else
	{
		sim_thread(put_pages, NULL);
		sim_thread(take_pages, NULL);
	}
}

void
sim_end(void)
{
}
