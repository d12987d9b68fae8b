/*-------------------------------------------------------------------------
 *
 * relocation_state.c
 *	  State that the launcher of relocations, its workers and backends share: which
 *	  databases have jobs and when they are due, and which worker runs which job.
 *
 * One lock guards all of it.  It is held while a few dozen words are read or written,
 * and never while an error can be raised.  After a crash the state is empty, which is
 * correct: jobs are rows of a table (relocation_jobs.c), and a row that says "running" while
 * no worker here runs it was left behind.  open_jobs.c knows more than this state for longer: in which
 * databases there are open jobs, over a restart.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xlog.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "base/pg_compat.h"
#include "base/timer.h"
#include "base/units.h"
#include "pgscale.h"
#include "relocation/jobs/relocation_state.h"
#include "relocation/relocation.h"

PG_FUNCTION_INFO_V1(pgscale_relocation_progress);

#define LOCK_TRANCHE	"pgscale relocation"

/* More databases than this with something to do at a time are found by looking. */
#define DUE_MAX			64

/* When to look again after a worker that ended without a word. */
#define AGAIN_MS		5000

typedef struct Due
{
	Oid			database;		/* InvalidOid: none */
	int64		at_ns;			/* by CLOCK_MONOTONIC */
} Due;

/* All but the lock itself is guarded by it. */
typedef struct RelocationShared
{
	LWLock	   *lock;
	Latch	   *launcher;		/* NULL while there is none */
	PgscaleRelocationLauncherState state;	/* of the launcher */
	bool		all;			/* there was no room in due[] */
	Due			due[DUE_MAX];
	PgscaleRelocationSlot slots[PGSCALE_RELOCATION_SLOTS];
} RelocationShared;

static RelocationShared *shared = NULL;
static PgscaleRelocationSlot *my_slot = NULL;

void
pgscale_relocation_share_request(void)
{
	RequestAddinShmemSpace(MAXALIGN(sizeof(RelocationShared)));
	RequestNamedLWLockTranche(LOCK_TRANCHE, 1);
	pgscale_relocation_open_request();
}

void
pgscale_relocation_share_startup(void)
{
	bool		found;

	shared = ShmemInitStruct("pgscale relocation", sizeof(RelocationShared), &found);
	if (!found)
	{
		memset(shared, 0, sizeof(*shared));
		shared->lock = &GetNamedLWLockTranche(LOCK_TRANCHE)->lock;
	}
	pgscale_relocation_open_startup();
}

static void
launcher_ended(int code, Datum arg)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->launcher = NULL;
	shared->state.pid = 0;
	LWLockRelease(shared->lock);
}

void
pgscale_relocation_launcher_started(void)
{
	before_shmem_exit(launcher_ended, (Datum) 0);
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->launcher = MyLatch;
	shared->state.pid = MyProcPid;
	shared->state.starts++;
	shared->all = true;
	/* the worker that was to have them was never started */
	for (int i = 0; i < PGSCALE_RELOCATION_SLOTS; i++)
		if (shared->slots[i].pid == 0)
			shared->slots[i].database = InvalidOid;
	LWLockRelease(shared->lock);
}

void
pgscale_relocation_launcher_alive(bool enabled, bool no_slot)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->state.last_round_ns = pgscale_timer_clock();
	shared->state.enabled = enabled;
	shared->state.no_slot = no_slot;
	LWLockRelease(shared->lock);
}

PgscaleRelocationLauncherState
pgscale_relocation_launcher_state(void)
{
	PgscaleRelocationLauncherState state;

	LWLockAcquire(shared->lock, LW_SHARED);
	state = shared->state;
	LWLockRelease(shared->lock);
	return state;
}

void
pgscale_relocation_slots(PgscaleRelocationSlot *slots)
{
	LWLockAcquire(shared->lock, LW_SHARED);
	memcpy(slots, shared->slots, sizeof(shared->slots));
	LWLockRelease(shared->lock);
}

bool
pgscale_relocation_may_have_jobs(void)
{
	if (RecoveryInProgress())
		return false;
	for (int i = 0; i < DUE_MAX; i++)
		if (OidIsValid(shared->due[i].database))
			return true;
	return shared->all || pgscale_relocation_is_any_open();
}

bool
pgscale_relocation_launcher_wanted(void)
{
	if (RecoveryInProgress())
		return false;
	for (int i = 0; i < PGSCALE_RELOCATION_SLOTS; i++)
		if (OidIsValid(shared->slots[i].database))
			return true;
	return pgscale_relocation_workers > 0 && pgscale_relocation_may_have_jobs();
}

/* The lock must be held. */
static void
add_due(Oid database, int64 ms)
{
	int64		at_ns = pgscale_timer_clock() + ms * NS_PER_MS;
	Due		   *place = NULL;

	for (int i = 0; i < DUE_MAX; i++)
	{
		Due		   *due = &shared->due[i];

		if (due->database == database)
		{
			place = due;
			at_ns = Min(at_ns, due->at_ns);
			break;
		}
		if (!OidIsValid(due->database) && !place)
			place = due;
	}
	if (place)
	{
		place->database = database;
		place->at_ns = at_ns;
	}
	else
		shared->all = true;
}

/* Lets go of the lock and wakes the launcher, which else would wait for it, or has it started. */
static void
release_and_wake(void)
{
	Latch	   *launcher = shared->launcher;

	LWLockRelease(shared->lock);
	if (launcher)
		SetLatch(launcher);
	else
		pgscale_workers_wake();
}

void
pgscale_relocation_due(Oid database, int64 ms)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	add_due(database, ms);
	release_and_wake();
}

bool
pgscale_relocation_take_due(Oid *database, int64 *next_ms, bool *all)
{
	const int64 now = pgscale_timer_clock();
	Due		   *first = NULL;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	*all = shared->all;
	shared->all = false;
	for (int i = 0; i < DUE_MAX; i++)
		if (OidIsValid(shared->due[i].database) && (!first || shared->due[i].at_ns < first->at_ns))
			first = &shared->due[i];
	*next_ms = first ? Max(first->at_ns - now, 0) / NS_PER_MS : PG_INT64_MAX;
	if (first && first->at_ns <= now)
	{
		*database = first->database;
		first->database = InvalidOid;
	}
	else
		first = NULL;
	LWLockRelease(shared->lock);
	return first != NULL;
}

int
pgscale_relocation_slot_take(Oid database)
{
	int			slot;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	for (slot = PGSCALE_RELOCATION_SLOTS - 1; slot >= 0; slot--)
		if (!OidIsValid(shared->slots[slot].database))
			break;
	if (slot >= 0)
	{
		memset(&shared->slots[slot], 0, sizeof(PgscaleRelocationSlot));
		shared->slots[slot].database = database;
	}
	LWLockRelease(shared->lock);
	return slot;
}

Oid
pgscale_relocation_slot_abandon(int slot)
{
	Oid			database = InvalidOid;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	if (shared->slots[slot].pid == 0)
	{
		database = shared->slots[slot].database;
		shared->slots[slot].database = InvalidOid;
	}
	LWLockRelease(shared->lock);
	return database;
}

static void
worker_ended(int code, Datum arg)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	if (!my_slot->left)
		add_due(my_slot->database, AGAIN_MS);
	memset(my_slot, 0, sizeof(PgscaleRelocationSlot));
	release_and_wake();
}

Oid
pgscale_relocation_slot_attach(int slot)
{
	Oid			database;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	/* another worker's, if the launcher has ended and begun again meanwhile */
	database = shared->slots[slot].pid == 0 ? shared->slots[slot].database : InvalidOid;
	if (OidIsValid(database))
		shared->slots[slot].pid = MyProcPid;
	LWLockRelease(shared->lock);
	if (OidIsValid(database))
	{
		my_slot = &shared->slots[slot];
		before_shmem_exit(worker_ended, (Datum) 0);
	}
	return database;
}

void
pgscale_relocation_at_work(int64 job, Oid heap)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	my_slot->job = job;
	my_slot->heap = heap;
	my_slot->grows.relNumber = 0;
	my_slot->progress.phase = PGSCALE_PHASE_NONE;
	my_slot->cancelled = false;
	LWLockRelease(shared->lock);
}

void
pgscale_relocation_grows(RelFileLocator locator)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	my_slot->grows = locator;
	release_and_wake();
}

void
pgscale_relocation_show_progress(const PgscaleRelocationProgress *progress)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	my_slot->progress = *progress;
	LWLockRelease(shared->lock);
}

bool
pgscale_relocation_cancelled(void)
{
	return my_slot->cancelled;
}

void
pgscale_relocation_ask_way(int slot, bool at_once)
{
	/* It cannot end meanwhile: that takes the lock. */
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	if (shared->slots[slot].pid != 0)
	{
		shared->slots[slot].in_the_way = true;
		(void) kill(shared->slots[slot].pid, at_once ? SIGTERM : SIGINT);
	}
	LWLockRelease(shared->lock);
}

bool
pgscale_relocation_in_the_way(void)
{
	return my_slot->in_the_way;
}

void
pgscale_relocation_leave(void)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	my_slot->left = true;
	LWLockRelease(shared->lock);
}

bool
pgscale_relocation_interrupt(Oid database, int64 job)
{
	bool		found = false;

	/* It cannot end meanwhile: that takes the lock. */
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < PGSCALE_RELOCATION_SLOTS && !found; i++)
	{
		PgscaleRelocationSlot *slot = &shared->slots[i];

		found = slot->database == database && slot->job == job && slot->pid != 0;
		if (found)
		{
			slot->cancelled = true;
			(void) kill(slot->pid, SIGINT);
		}
	}
	LWLockRelease(shared->lock);
	return found;
}

static const char *const phase_words[] = {
	[PGSCALE_PHASE_NONE] = "",
	[PGSCALE_PHASE_COPYING] = "copying",
	[PGSCALE_PHASE_FOLLOWING] = "following",
	[PGSCALE_PHASE_WAITING] = "waiting for a gap",
	[PGSCALE_PHASE_SWITCHING] = "switching",
	[PGSCALE_PHASE_DROPPING] = "dropping",
};

/* As the copy went so far, with its pauses. */
static double
seconds_left(const PgscaleRelocationProgress *progress)
{
	const double done = progress->counts.copied_bytes;
	const double left = Max(progress->total_bytes - done, 0);

	return left / done * (pgscale_timer_clock() - progress->began_ns) / NS_PER_S;
}

/* pgscale_internal.relocation_progress(): a row for each online move of this database. */
Datum
pgscale_relocation_progress(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	PgscaleRelocationSlot slots[PGSCALE_RELOCATION_SLOTS] = {0};

	InitMaterializedSRF(fcinfo, 0);
	if (shared)
		pgscale_relocation_slots(slots);
	for (int i = 0; i < PGSCALE_RELOCATION_SLOTS; i++)
	{
		const PgscaleRelocationProgress *progress = &slots[i].progress;
		Datum		values[9] = {0};
		bool		nulls[9] = {false};

		if (slots[i].database != MyDatabaseId || slots[i].job == 0 || progress->phase == PGSCALE_PHASE_NONE)
			continue;
		values[0] = Int64GetDatum(slots[i].job);
		values[1] = CStringGetTextDatum(phase_words[progress->phase]);
		values[2] = Float8GetDatum(progress->total_bytes > 0 ?
								   Min((double) progress->counts.copied_bytes / progress->total_bytes, 1) : 1);
		values[3] = Int64GetDatum(progress->counts.copied_bytes);
		values[4] = Int64GetDatum(progress->counts.recopied_blocks);
		values[5] = Int64GetDatum(progress->counts.wal_read_bytes);
		values[6] = Int64GetDatum(progress->counts.lock_tries);
		nulls[7] = progress->phase != PGSCALE_PHASE_COPYING || progress->counts.copied_bytes == 0;
		if (!nulls[7])
			values[7] = Float8GetDatum(seconds_left(progress));
		nulls[8] = progress->held_back_by[0] == '\0';
		if (!nulls[8])
			values[8] = CStringGetTextDatum(progress->held_back_by);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
