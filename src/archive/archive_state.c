/*-------------------------------------------------------------------------
 *
 * archive_state.c
 *	  State that the archive's launcher, its rounds and backends share, and the
 *	  counters' values at the latest round.
 *
 * One lock guards the state; it is held while a few words are read or written.  The
 * baseline is in shared memory because each round is a process of its own.  It needs no
 * lock: only the attached round touches it, or the launcher while no round is
 * attached.  Its size follows from the size of the wait profile, one entry for each
 * wait.
 *
 * Failure: a killed round leaves the old baseline or the complete new one, because a
 * loop without interrupts stores it.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "archive/archive.h"
#include "archive/archive_state.h"
#include "base/timer.h"

#define LOCK_TRANCHE	"pgscale archive"

/* What the profile has beyond its size, for what was evicted; and some room. */
#define BEYOND_PROFILE	1024

/* All but the lock itself and the clock is guarded by it. */
typedef struct ArchiveShared
{
	LWLock	   *lock;
	PgscaleArchiveState state;
	Oid			offered;		/* database of the next round, InvalidOid:
								 * none */
	bool		may_age;
	int			round_pid;		/* 0: none */
	bool		said;			/* the round has reported its result */
	TimestampTz hindered_at;	/* since when upkeep is, 0: it is not */
	PgscaleArchiveClock clock;
} ArchiveShared;

static ArchiveShared *shared = NULL;
static PgscaleArchiveBaseline *baseline = NULL;

static int
baseline_capacity(void)
{
	const char *size = GetConfigOption("pgscale.sampler_profile_size", true, false);

	return (size ? atoi(size) : 0) + BEYOND_PROFILE;
}

static Size
baseline_size(void)
{
	return add_size(offsetof(PgscaleArchiveBaseline, waits), mul_size(baseline_capacity(), sizeof(PgscaleArchiveWait)));
}

void
pgscale_archive_share_request(void)
{
	RequestAddinShmemSpace(MAXALIGN(sizeof(ArchiveShared)));
	RequestAddinShmemSpace(MAXALIGN(baseline_size()));
	RequestNamedLWLockTranche(LOCK_TRANCHE, 1);
}

void
pgscale_archive_share_startup(void)
{
	bool		found;

	shared = ShmemInitStruct("pgscale archive", sizeof(ArchiveShared), &found);
	if (!found)
	{
		memset(shared, 0, sizeof(*shared));
		shared->lock = &GetNamedLWLockTranche(LOCK_TRANCHE)->lock;
	}
	baseline = ShmemInitStruct("pgscale archive baseline", baseline_size(), &found);
	if (!found)
		memset(baseline, 0, offsetof(PgscaleArchiveBaseline, waits));
}

void
pgscale_archive_state(PgscaleArchiveState *state)
{
	LWLockAcquire(shared->lock, LW_SHARED);
	*state = shared->state;
	LWLockRelease(shared->lock);
}

static void
archive_launcher_ended(int code, Datum arg)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->state.launcher_pid = 0;
	LWLockRelease(shared->lock);
}

void
pgscale_archive_launcher_started(void)
{
	before_shmem_exit(archive_launcher_ended, (Datum) 0);
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->state.launcher_pid = MyProcPid;
	shared->state.starts++;
	shared->state.last_ns = pgscale_timer_clock();
	shared->offered = InvalidOid;
	LWLockRelease(shared->lock);
}

void
pgscale_archive_launcher_alive(PgscaleArchiveObstacle obstacle)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->state.last_ns = pgscale_timer_clock();
	shared->state.obstacle = obstacle;
	LWLockRelease(shared->lock);
}

bool
pgscale_archive_round_offer(Oid database, bool may_age)
{
	bool		free;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	free = shared->round_pid == 0;
	if (free)
	{
		shared->offered = database;
		shared->may_age = may_age;
		shared->said = false;
	}
	LWLockRelease(shared->lock);
	return free;
}

bool
pgscale_archive_round_over(void)
{
	bool		said;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	said = shared->said;
	shared->offered = InvalidOid;
	LWLockRelease(shared->lock);
	return !said;
}

static void
archive_round_ended(int code, Datum arg)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->round_pid = 0;
	LWLockRelease(shared->lock);
}

Oid
pgscale_archive_round_attach(bool *may_age)
{
	Oid			database;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	database = shared->round_pid == 0 ? shared->offered : InvalidOid;
	*may_age = shared->may_age;
	if (OidIsValid(database))
	{
		shared->offered = InvalidOid;
		shared->round_pid = MyProcPid;
	}
	LWLockRelease(shared->lock);
	if (OidIsValid(database))
		before_shmem_exit(archive_round_ended, (Datum) 0);
	return database;
}

void
pgscale_archive_round_written(TimestampTz until, bool row)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	if (row)
	{
		shared->state.rounds++;
		shared->state.written_at = until;
	}
	shared->said = true;
	LWLockRelease(shared->lock);
}

PgscaleArchiveClock *
pgscale_archive_clock(void)
{
	return &shared->clock;
}

TimestampTz
pgscale_archive_hindered(bool hindered)
{
	TimestampTz since;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	if (!hindered)
		shared->hindered_at = 0;
	else if (shared->hindered_at == 0)
		shared->hindered_at = GetCurrentTimestamp();
	since = shared->hindered_at;
	LWLockRelease(shared->lock);
	return since;
}

bool
pgscale_archive_note(bool upkeep, const PgscaleArchiveError *error)
{
	static const PgscaleArchiveError none = {0};
	PgscaleArchiveError *noted = upkeep ? &shared->state.upkeep : &shared->state.error;
	bool		another;

	if (!error)
		error = &none;
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	another = noted->sqlstate != error->sqlstate || strcmp(noted->message, error->message) != 0;
	*noted = *error;
	shared->said = true;
	LWLockRelease(shared->lock);
	return another;
}

PgscaleArchiveBaseline *
pgscale_archive_baseline(int *capacity)
{
	*capacity = baseline_capacity();
	return baseline;
}

void
pgscale_archive_baseline_forget(void)
{
	baseline->taken_ns = 0;
}
