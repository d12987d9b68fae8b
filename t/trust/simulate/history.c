/*-------------------------------------------------------------------------
 *
 * history.c
 *	  The ring of samples, and with it the positions of a ring, under simulate.c: what a
 *	  reader gets is samples as they were added, without a gap, and none from before the
 *	  latest reset that it can know of.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "simulate.h"

#include "base/change_count.c"
#include "sampler/past/history.c"

#define CAPACITY	7
#define TICKS		12
#define MOST		3			/* samples of a tick */
#define PERIOD_NS	NS_PER_MS	/* of looks, as of ticks */

/* What one call has returned. */
typedef struct Rows
{
	int64		last;
	int			n;
} Rows;

static void
add_samples(void *argument)
{
	int64		n = 0;

	for (int tick = 0; tick < TICKS; tick++)
	{
		PgscaleProc proc = {0};
		PgscaleSamplerTickSample sample = {.proc = &proc};

		pgscale_sampler_history_begin(1 + tick * PERIOD_NS / NS_PER_US, tick * PERIOD_NS, tick * PERIOD_NS, PERIOD_NS, MOST);
		for (int i = sim_random(MOST + 1); i > 0; i--)
		{
			n++;
			proc.pid = sample.key.datid = sample.key.userid = sample.key.wait_event = sample.key.queryid = n;
			pgscale_sampler_history_add(&sample, NULL);
		}
		pgscale_sampler_history_end();
		if (sim_random(8) == 0)
			pgscale_sampler_history_reset();
	}
}

static void
read_samples(void *argument)
{
	int64		before = 0;

	for (int i = 0; i < 4; i++)
	{
		Rows		rows = {0};
		ReturnSetInfo set = {.setResult = (Tuplestorestate *) &rows};
		LOCAL_FCINFO(fcinfo, 2);

		fcinfo->args[0].isnull = fcinfo->args[1].isnull = true;
		fcinfo->resultinfo = (fmNodePtr) &set;
		(void) pgscale_wait_history(fcinfo);
		if (rows.n > CAPACITY)
			sim_fail("%d samples of %d", rows.n, CAPACITY);
		if (rows.n > 0 && rows.last < before)
			sim_fail("sample %d was the last, and %d before", (int) rows.last, (int) before);
		before = Max(before, rows.last);
	}
}

void
sim_begin(void)
{
	pgscale_sampler_history_startup(CAPACITY);
	pgscale_sampler_history_start(0);
	sim_thread(add_samples, NULL);
	sim_thread(read_samples, NULL);
	sim_thread(read_samples, NULL);
}

void
sim_end(void)
{
}

/* A row of the function's result. */
void
tuplestore_putvalues(Tuplestorestate *state, TupleDesc desc, Datum *values, bool *nulls)
{
	Rows	   *rows = (Rows *) state;
	int64		n = DatumGetInt64(values[5]);

	if (DatumGetInt32(values[1]) != n || DatumGetObjectId(values[3]) != n || DatumGetObjectId(values[4]) != n)
		sim_fail("sample %d has pid %d, database %d, user %d", (int) n, DatumGetInt32(values[1]),
				 (int) DatumGetObjectId(values[3]), (int) DatumGetObjectId(values[4]));
	if (rows->n > 0 && n != rows->last + 1)
		sim_fail("after sample %d comes %d", (int) rows->last, (int) n);
	rows->last = n;
	rows->n++;
}
