/*
 * Puts into the shared memory of the sweeper, while it does nothing, what is to be shown or judged.
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
#include "sweeper/shared.c"

PgscaleSweeperSettings pgscale_sweeper_settings;
uint64		(*pgscale_counters_own_writes) (void);
const PgscalePageWorths *pgscale_buffer_worths;
const PgscalePageWorths pgscale_sweeper_worths;

int64 pgscale_counters_backend_writes(PgscaleBackendWrites *count, LWLock *lock, bool anew) { return 0; }

static PgscaleSweeper *
the_sweeper(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	pgscale_sweeper = ShmemInitStruct(pgscale_sweeper_area.name, sizeof(PgscaleSweeper), &found);
	LWLockRelease(AddinShmemInitLock);
	return pgscale_sweeper;
}

/* set_counts(from): each count is another number, from that one on; two of the writers have some, too */
Datum
set_counts(PG_FUNCTION_ARGS)
{
	PgscaleSweeper *s = the_sweeper();
	const uint64 from = PG_GETARG_INT64(0);

	for (int i = 0; i < sizeof(s->counts) / sizeof(uint64); i++)
		((uint64 *) &s->counts)[i] = from * (i + 1);
	for (int w = 0; w < PGSCALE_SWEEPER_MAX_WRITERS; w++)
		for (int i = 0; i < sizeof(s->writers[w].counts) / sizeof(uint64); i++)
			((uint64 *) &s->writers[w].counts)[i] = w == 0 || w == PGSCALE_SWEEPER_MAX_WRITERS - 1 ? from * (100 + i) : 0;
	PG_RETURN_VOID();
}

/* add_counts(supplied, consumed, starved, written, runs, write_ns): half of what was consumed was used again */
Datum
add_counts(PG_FUNCTION_ARGS)
{
	PgscaleSweeper *s = the_sweeper();
	PgscaleSweeperWriteCounts *write = &s->writers[PGSCALE_SWEEPER_MAX_WRITERS - 1].counts;

	s->counts.supplied_clean += PG_GETARG_INT64(0);
	s->counts.consumed += PG_GETARG_INT64(1) / 2;
	s->counts.reused += PG_GETARG_INT64(1) - PG_GETARG_INT64(1) / 2;
	s->counts.starved += PG_GETARG_INT64(2);
	write->written += PG_GETARG_INT64(3);
	write->runs += PG_GETARG_INT64(4);
	write->write_ns += PG_GETARG_INT64(5);
	PG_RETURN_VOID();
}

/* set_state(state, reason, number, stood_down, its number, seconds ago, no_slots, stuck, seconds since the last tick) */
Datum
set_state(PG_FUNCTION_ARGS)
{
	PgscaleSweeper *s = the_sweeper();
	const int64 now = pgscale_timer_clock();

	s->state = PG_GETARG_INT32(0);
	s->reason = PG_GETARG_INT32(1);
	s->reason_number = PG_GETARG_FLOAT8(2);
	s->stood_down = PG_GETARG_INT32(3);
	s->stood_down_number = PG_GETARG_FLOAT8(4);
	s->stood_down_ns = PG_GETARG_INT32(5) < 0 ? 0 : now - PG_GETARG_INT32(5) * NS_PER_S;
	s->no_slots = PG_GETARG_BOOL(6);
	s->stuck = PG_GETARG_BOOL(7);
	/* whom health takes for the sweeper */
	pg_atomic_write_u32(&s->pid, PG_GETARG_INT32(0) == PGSCALE_SWEEPER_OFF ? 0 : MyProcPid);
	s->decided_ns = s->last_tick_ns = now - PG_GETARG_INT32(8) * NS_PER_S;
	PG_RETURN_VOID();
}

/* set_few_slots(writers, pressed): as if it had found no slot for more writers; 0: it has */
Datum
set_few_slots(PG_FUNCTION_ARGS)
{
	PgscaleSweeper *s = the_sweeper();

	s->few_slots = PG_GETARG_INT32(0) > 0;
	s->writers_now = Max(PG_GETARG_INT32(0), PGSCALE_SWEEPER_FIRST_WRITERS);
	s->pressed = PG_GETARG_FLOAT8(1);
	PG_RETURN_VOID();
}

/* set_warm(): as if all buffers had been used */
Datum
set_warm(PG_FUNCTION_ARGS)
{
	the_sweeper()->warm = true;
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
