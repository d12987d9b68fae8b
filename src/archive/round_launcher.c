/*-------------------------------------------------------------------------
 *
 * round_launcher.c
 *	  The process that starts a round of the archive each minute, and the state that it shares
 *	  with rounds and backends.
 *
 * It connects to no database, so it blocks no DROP DATABASE.  A round is due when the
 * clock enters another minute (period) than that of the latest round.  So rows begin at
 * full minutes even after the clock was set.
 *
 * DROP DATABASE and ALTER DATABASE RENAME lock the database and fail after 5 seconds if
 * another process is still connected.  While such a lock exists, the launcher starts no
 * round there and ends the running one.
 *
 * For a day after the clock was set by more than an hour, nothing old is dropped or
 * rolled up: a clock that is wrong for a moment must not destroy the archive.
 *
 * The process exists only while a database is named, and not on a standby.
 *
 * One lock guards the state that the launcher shares with rounds and backends; it is held
 * while a few words are read or written.  The baseline is in shared memory because each
 * round is a process of its own.  It needs no lock: only the attached round touches it, or
 * the launcher while no round is attached.  Its size follows from the size of the wait
 * profile, one entry for each wait.
 *
 * Failure: an error ends it, and it is started again.  A running round continues
 * meanwhile, and no other round can attach before that one has ended.  A killed round
 * leaves the old baseline or the complete new one, because a loop without interrupts
 * stores it.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "archive/archive.h"
#include "archive/round_launcher.h"
#include "base/shared_area.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/worker.h"

/* The longest between two looks; while a round is under way. */
#define LOOK_MS		5000
#define WATCH_MS	100

/* When to try again where a round cannot begin now. */
#define AGAIN_MS	1000

/* How much longer than anything a round does it may be under way. */
#define ROUND_MAX_NS	(600 * NS_PER_S)

/* How far the clock is set that is not believed at once, and for how long. */
#define STEP_NS		(3600 * NS_PER_S)
#define DISBELIEF_NS	(86400 * NS_PER_S)

/* What the profile has beyond its size, for what was evicted; and some room. */
#define BEYOND_PROFILE	1024

/* How far the clock is ahead of CLOCK_MONOTONIC, and when that was last seen to change much; 0: unknown. */
typedef struct ArchiveClock
{
	int64		offset_ns;
	int64		stepped_ns;
} ArchiveClock;

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
	ArchiveClock clock;			/* the launcher's, which outlives it */
} ArchiveShared;

static ArchiveShared *shared = NULL;
static PgscaleArchiveBaseline *baseline = NULL;

static BackgroundWorkerHandle *round_handle = NULL;
static Oid	round_database;
static int64 round_began_ns;
static int64 last_minute = -1;	/* that of the latest round, by the period */

/*
 * The state
 */

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

const PgscaleArea pgscale_archive_area = {
	.name = "pgscale archive",
	.at = (void **) &shared,
	.size = sizeof(ArchiveShared),
	.nlocks = 1,
	.locks = offsetof(ArchiveShared, lock),
};

const PgscaleArea pgscale_archive_baseline_area = {
	.name = "pgscale archive baseline",
	.at = (void **) &baseline,
	.size = offsetof(PgscaleArchiveBaseline, waits),
	.computed = baseline_size,
};

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

static void
archive_launcher_started(void)
{
	before_shmem_exit(archive_launcher_ended, (Datum) 0);
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->state.launcher_pid = MyProcPid;
	shared->state.starts++;
	shared->state.last_ns = pgscale_timer_clock();
	shared->offered = InvalidOid;
	LWLockRelease(shared->lock);
}

static void
archive_launcher_alive(PgscaleArchiveObstacle obstacle)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->state.last_ns = pgscale_timer_clock();
	shared->state.obstacle = obstacle;
	LWLockRelease(shared->lock);
}

/*
 * Names the database of the next round, and whether that may drop and roll up what is old.
 * False while a round is under way.
 */
static bool
offer_round(Oid database, bool may_age)
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

/* The round will not come, or is over: true if it has ended without reporting a result. */
static bool
round_over(void)
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
pgscale_archive_note(PgscaleArchiveStep step, const PgscaleArchiveError *error)
{
	static const PgscaleArchiveError none = {0};
	PgscaleArchiveError *noted = &shared->state.errors[step];
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

/*
 * The launcher
 */

/* Read row by row: a process without a database may know no index. */
static PgscaleArchiveObstacle
find_database(Oid *database)
{
	PgscaleArchiveObstacle obstacle = PGSCALE_ARCHIVE_NO_DATABASE;
	Relation	relation;
	TableScanDesc scan;
	HeapTuple	tuple;

	StartTransactionCommand();
	relation = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(relation, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);

		if (strcmp(NameStr(form->datname), pgscale_archive_database) != 0)
			continue;
		*database = form->oid;

		/*
		 * a negative limit other than "none" is what an interrupted DROP
		 * leaves
		 */
		obstacle = form->datallowconn && form->datconnlimit >= -1 ? PGSCALE_ARCHIVE_READY : PGSCALE_ARCHIVE_CLOSED;
	}
	table_endscan(scan);
	table_close(relation, AccessShareLock);
	CommitTransactionCommand();
	return obstacle;
}

/* The minute that it is, by the period; and in how many milliseconds the next one begins. */
static int64
this_minute(int64 *left_ms)
{
	const int64 period_us = pgscale_timer_period_ms(PGSCALE_ARCHIVE_PERIOD_MS) * INT64CONST(1000);
	const int64 now = GetCurrentTimestamp();

	*left_ms = (period_us - now % period_us) / 1000 + 1;
	return now / period_us;
}

/* Is the clock such that by it something is too old? */
static bool
archive_believes_clock(void)
{
	ArchiveClock *clock = &shared->clock;
	const int64 now_ns = pgscale_timer_clock();
	const int64 offset = GetCurrentTimestamp() * 1000 - now_ns;

	if (clock->offset_ns != 0 && llabs(offset - clock->offset_ns) > STEP_NS)
		clock->stepped_ns = now_ns;
	clock->offset_ns = offset;
	return clock->stepped_ns == 0 || now_ns - clock->stepped_ns > DISBELIEF_NS;
}

static void
round_lost(const char *message)
{
	PgscaleArchiveError error = {.sqlstate = ERRCODE_ADMIN_SHUTDOWN};

	strlcpy(error.message, message, sizeof(error.message));
	if (pgscale_archive_note(PGSCALE_ARCHIVE_ROW, &error))
		ereport(LOG,
				(errcode(error.sqlstate),
				 errmsg("pgscale archive: %s", error.message)));
}

/* Sees to the round that is under way; true if there is none. */
static bool
watch_round(void)
{
	if (!round_handle)
		return true;
	if (!pgscale_worker_launched(&round_handle))
	{
		if (round_over())
			round_lost("the latest round was ended before it was done");
		return true;
	}
	if (pgscale_worker_database_locked(round_database) || pgscale_timer_clock() - round_began_ns > ROUND_MAX_NS)
		TerminateBackgroundWorker(round_handle);
	return false;
}

static PgscaleArchiveObstacle
begin_round(Oid database)
{
	const bool	may_age = archive_believes_clock();

	if (!offer_round(database, may_age))
		return PGSCALE_ARCHIVE_READY;
	if (!pgscale_worker_launch("pgscale archive round", "pgscale_archive_round_main", 0, true, &round_handle))
	{
		(void) round_over();
		return PGSCALE_ARCHIVE_NO_SLOT;
	}
	round_database = database;
	round_began_ns = pgscale_timer_clock();
	return PGSCALE_ARCHIVE_READY;
}

static void
log_obstacle(PgscaleArchiveObstacle obstacle)
{
	static PgscaleArchiveObstacle logged = PGSCALE_ARCHIVE_READY;

	if (obstacle == logged)
		return;
	if (obstacle == PGSCALE_ARCHIVE_NO_DATABASE)
		ereport(LOG,
				(errcode(ERRCODE_UNDEFINED_DATABASE),
				 errmsg("pgscale archive: database \"%s\" does not exist", pgscale_archive_database)));
	else if (obstacle == PGSCALE_ARCHIVE_CLOSED)
		ereport(LOG,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pgscale archive: database \"%s\" takes no connections", pgscale_archive_database)));
	else if (obstacle == PGSCALE_ARCHIVE_NO_SLOT)
		ereport(LOG,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("pgscale archive: the server has no slot for another background worker")));
	logged = obstacle;
}

/* On a standby, the primary archives. */
static bool
launcher_wanted(void)
{
	return pgscale_archive_database[0] != '\0' && !RecoveryInProgress();
}

/* Returns in how many milliseconds to look again; ends if there is nothing to look for. */
static int64
launcher_look(void)
{
	PgscaleArchiveObstacle obstacle;
	Oid			database = InvalidOid;
	int64		left_ms;
	int64		minute = this_minute(&left_ms);

	if (!watch_round())
	{
		archive_launcher_alive(PGSCALE_ARCHIVE_READY);
		return WATCH_MS;
	}
	if (!launcher_wanted())
	{
		baseline->taken_ns = 0;
		for (int step = 0; step < PGSCALE_ARCHIVE_STEPS; step++)
			(void) pgscale_archive_note(step, NULL);
		archive_launcher_alive(PGSCALE_ARCHIVE_OFF);
		proc_exit(0);
	}
	obstacle = find_database(&database);
	if (obstacle == PGSCALE_ARCHIVE_READY && minute != last_minute)
	{
		if (pgscale_worker_database_locked(database))
			left_ms = AGAIN_MS;
		else
		{
			obstacle = begin_round(database);
			last_minute = obstacle == PGSCALE_ARCHIVE_READY ? minute : -1;
			left_ms = obstacle == PGSCALE_ARCHIVE_READY ? WATCH_MS : AGAIN_MS;
		}
	}
	log_obstacle(obstacle);
	archive_launcher_alive(obstacle);
	return left_ms;
}

static void
archive_launcher_main(void)
{
	pgscale_worker_start("PgscaleArchiveMain");
	archive_launcher_started();
	for (;;)
	{
		int64		wait;

		(void) pgscale_worker_interrupts();
		wait = launcher_look();
		pgscale_worker_wait((long) Min(wait, LOOK_MS));
	}
}

const PgscaleWorker pgscale_archive_launcher = {
	.name = "pgscale archive",
	.wanted = launcher_wanted,
	.main = archive_launcher_main,
};
