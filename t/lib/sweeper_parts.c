/*
 * Puts into the shared memory of the sweepers, while they do nothing, what is to be shown or judged. partitions.c itself finds it.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/wait_event.h"

#include "base/timer.h"
#include "base/units.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(set_counts);
PG_FUNCTION_INFO_V1(add_counts);
PG_FUNCTION_INFO_V1(set_state);
PG_FUNCTION_INFO_V1(set_few_slots);
PG_FUNCTION_INFO_V1(set_warm);
PG_FUNCTION_INFO_V1(wait_to_write);

#include "base/change_count.c"
#include "base/timer.c"
#include "sweeper/partitions.c"

PgscaleSweeperSettings pgscale_sweeper_settings;
uint64		(*pgscale_counters_own_writes) (void);
const PgscalePageWorths *pgscale_buffer_worths;
const PgscalePageWorths pgscale_sweeper_worths;

int64 pgscale_counters_backend_writes(PgscaleBackendWrites *count, LWLock *lock, bool anew) { return 0; }

/* The n-th of that many. */
static PgscaleSweeperPartition *
of_workers(int n, int workers)
{
	if (!shared)
	{
		bool		found;

		pgscale_sweeper_settings.workers = workers;
		LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
		shared = ShmemInitStruct(pgscale_sweeper_area.name, partitions_size(), &found);
		LWLockRelease(AddinShmemInitLock);
	}
	return &shared->partitions[n];
}

/*
 * set_counts(workers, from): each count of the first worker is another number, from that one on; two of its writers have some,
 * too
 */
Datum
set_counts(PG_FUNCTION_ARGS)
{
	PgscaleSweeperPartition *partition = of_workers(0, PG_GETARG_INT32(0));
	const uint64 from = PG_GETARG_INT64(1);

	for (int i = 0; i < sizeof(partition->counts) / sizeof(uint64); i++)
		((uint64 *) &partition->counts)[i] = from * (i + 1);
	for (int w = 0; w < PGSCALE_SWEEPER_MAX_WRITERS; w++)
		for (int i = 0; i < sizeof(partition->writers[w].counts) / sizeof(uint64); i++)
			((uint64 *) &partition->writers[w].counts)[i] = w == 0 || w == PGSCALE_SWEEPER_MAX_WRITERS - 1 ? from * (100 + i) : 0;
	PG_RETURN_VOID();
}

/* add_counts(workers, supplied, consumed, starved, written, runs, write_ns): half of what was consumed was used again */
Datum
add_counts(PG_FUNCTION_ARGS)
{
	PgscaleSweeperPartition *partition = of_workers(0, PG_GETARG_INT32(0));
	PgscaleSweeperWriteCounts *write = &partition->writers[PGSCALE_SWEEPER_MAX_WRITERS - 1].counts;

	partition->counts.supplied_clean += PG_GETARG_INT64(1);
	partition->counts.consumed += PG_GETARG_INT64(2) / 2;
	partition->counts.reused += PG_GETARG_INT64(2) - PG_GETARG_INT64(2) / 2;
	partition->counts.starved += PG_GETARG_INT64(3);
	write->written += PG_GETARG_INT64(4);
	write->runs += PG_GETARG_INT64(5);
	write->write_ns += PG_GETARG_INT64(6);
	PG_RETURN_VOID();
}

/* set_state(workers, state, reason, number, stood_down, its number, seconds ago, no_slots, stuck, seconds since the last tick) */
Datum
set_state(PG_FUNCTION_ARGS)
{
	const int64 now = pgscale_timer_clock();

	for (int i = 0; i < PG_GETARG_INT32(0); i++)
	{
		PgscaleSweeperPartition *partition = of_workers(i, PG_GETARG_INT32(0));

		partition->state = PG_GETARG_INT32(1);
		partition->reason = PG_GETARG_INT32(2);
		partition->reason_number = PG_GETARG_FLOAT8(3);
		partition->stood_down = PG_GETARG_INT32(4);
		partition->stood_down_number = PG_GETARG_FLOAT8(5);
		partition->stood_down_ns = PG_GETARG_INT32(6) < 0 ? 0 : now - PG_GETARG_INT32(6) * NS_PER_S;
		partition->no_slots = PG_GETARG_BOOL(7);
		partition->stuck = PG_GETARG_BOOL(8);
		/* whom health takes for the sweeper */
		pg_atomic_write_u32(&partition->pid, PG_GETARG_INT32(1) == PGSCALE_SWEEPER_OFF ? 0 : MyProcPid);
		partition->decided_ns = partition->last_tick_ns = now - PG_GETARG_INT32(9) * NS_PER_S;
	}
	PG_RETURN_VOID();
}

/* set_few_slots(workers, writers, pressed): as if it had found no slot for more writers; 0: it has */
Datum
set_few_slots(PG_FUNCTION_ARGS)
{
	PgscaleSweeperPartition *partition = of_workers(0, PG_GETARG_INT32(0));

	partition->few_slots = PG_GETARG_INT32(1) > 0;
	partition->writers_now = Max(PG_GETARG_INT32(1), PGSCALE_SWEEPER_FIRST_WRITERS);
	partition->pressed = PG_GETARG_FLOAT8(2);
	PG_RETURN_VOID();
}

/* set_warm(workers): as if all buffers had been used */
Datum
set_warm(PG_FUNCTION_ARGS)
{
	for (int i = 0; i < PG_GETARG_INT32(0); i++)
		of_workers(i, PG_GETARG_INT32(0))->warm = true;
	PG_RETURN_VOID();
}

/* wait_to_write(): seems to wait to write a page, until it is cancelled */
Datum
wait_to_write(PG_FUNCTION_ARGS)
{
	while (true)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 600000L, WAIT_EVENT_DATA_FILE_WRITE);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	PG_RETURN_VOID();
}
