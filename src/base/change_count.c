/*-------------------------------------------------------------------------
 *
 * change_count.c
 *	  Readers of data that has a count of its changes.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/s_lock.h"

#include "base/change_count.h"
#include "base/timer.h"
#include "base/units.h"

/* A change lasts microseconds; a reader gives up on a stopped writer. */
#define READ_SPINS		1000
#define READ_SLEEP_US	100
#define READ_LIMIT_NS	NS_PER_S

uint64
pgscale_change_wait(PgscaleChangeCount *count)
{
	int64		give_up = 0;	/* on the monotonic clock */

	for (;;)
	{
		for (int i = 0; i < READ_SPINS; i++)
		{
			uint64		before = pgscale_change_begin_read(count);

			if (before % 2 == 0)
				return before;
			pg_spin_delay();
		}

		if (give_up == 0)
			give_up = pgscale_timer_clock() + READ_LIMIT_NS;
		else if (pgscale_timer_clock() >= give_up)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("a worker did not finish a change within one second"),
					 errhint("Check whether a process of pgscale in pg_stat_activity is stopped or starved of CPU.")));
		CHECK_FOR_INTERRUPTS();
		pg_usleep(READ_SLEEP_US);
	}
}

void
pgscale_change_copy(PgscaleChangeCount *count, void *to, const void *from, size_t size)
{
	uint64		before;

	do
	{
		CHECK_FOR_INTERRUPTS();
		before = pgscale_change_wait(count);
		memcpy(to, from, size);
	} while (!pgscale_change_is_unchanged(count, before));
}
