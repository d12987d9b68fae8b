/*-------------------------------------------------------------------------
 *
 * clock.c
 *	  The clock: as StrategyGetBuffer() does it, the hand takes a buffer's
 *	  usage count down by one each time it passes, and the first one found at
 *	  zero leaves; a dirty one already at one.
 *
 * Neighbours leave earlier than the hand would have it: one whose count is 2
 * or less would leave within two more passes, and by then would mostly be
 * dirty again.  Simulated with uniform keys, 1.7 times the data that fits:
 * 12.5 transactions per write instead of 5.6, with the same misses; with
 * zipfian keys (1.05) 60 instead of 38.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sweeper/policies/policy.h"

#define CLOCK_DIRTY_FLOOR	1

static bool
clock_visit(PgscaleSweeperVisit *visit)
{
	if (visit->pinned)
		return false;
	if (visit->usage <= (visit->dirty ? CLOCK_DIRTY_FLOOR : 0))
		return true;
	visit->usage--;
	return false;
}

static int
clock_choose(const PgscaleSweeperVisit *candidates, int n)
{
	return 0;
}

const PgscaleSweeperPolicy pgscale_sweeper_policy_clock = {
	.name = "clock",
	.group = 1,
	.dirty_floor = CLOCK_DIRTY_FLOOR,
	.neighbour_usage = 2,
	.visit = clock_visit,
	.choose = clock_choose,
	.evicted = NULL
};
