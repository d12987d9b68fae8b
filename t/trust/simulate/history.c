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
#include "base/shared_area.c"
#include "sampler/past/history.c"

#define CAPACITY	7
#define TICKS		12
#define MOST		3			/* samples of a tick */
#define PERIOD_MS	1			/* of stored ticks, as of ticks */
#define PERIOD_NS	(PERIOD_MS * NS_PER_MS)

PgscaleSamplerSettings pgscale_sampler_settings;

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

	for (int n_tick = 0; n_tick < TICKS; n_tick++)
	{
		PgscaleProc proc = {0};
		PgscaleSamplerTickSample sample = {.proc = &proc};
		PgscaleSamplerTick of = {.due = n_tick * PERIOD_NS,.now = n_tick * PERIOD_NS,.wall = 1 + n_tick * PERIOD_NS / NS_PER_US,.max_samples = MOST};

		history_begin(&of);
		for (int i = sim_random(MOST + 1); i > 0; i--)
		{
			n++;
			proc.pid = sample.key.datid = sample.key.userid = sample.key.wait_event = sample.key.queryid = n;
			history_add(&sample, &of);
		}
		history_end(&of);
		if (sim_random(8) == 0)
			history_reset(of.now);
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
	pgscale_sampler_settings.history_size = CAPACITY;
	pgscale_sampler_settings.history_period_ms = PERIOD_MS;
	pgscale_area_startup(&pgscale_sampler_history_area);
	history_start(0);
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
