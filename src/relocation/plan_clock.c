/*-------------------------------------------------------------------------
 *
 * plan_clock.c
 *	  How pgscale.relocation_plan() waits.
 *
 * That function is SQL, in plan.sql.  SQL has no monotonic clock: pg_sleep() waits
 * for clock_timestamp(), and waits for hours if that is set back meanwhile.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"

#include "base/pg_compat.h"
#include "base/timer.h"
#include "base/units.h"

/* At most; how often the plan looks for what is built. */
#define PAUSE_MS			1000

PG_FUNCTION_INFO_V1(pgscale_relocation_clock);

/* pgscale_internal.relocation_clock(pause_ms): waits for that long, or less, and returns the clock's milliseconds. */
Datum
pgscale_relocation_clock(PG_FUNCTION_ARGS)
{
	const double pause_ms = PG_GETARG_FLOAT8(0);

	if (pause_ms > 0)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 (long) Min(pause_ms + 1, PAUSE_MS), PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	PG_RETURN_FLOAT8((double) pgscale_timer_clock() / NS_PER_MS);
}
