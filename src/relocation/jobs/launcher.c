/*-------------------------------------------------------------------------
 *
 * launcher.c
 *	  The process that starts workers while there are relocation jobs, and the state that it shares with them and
 *	  with backends: which databases have jobs and when they are due, and which worker runs which job.
 *
 * It connects to no database, so it blocks no DROP DATABASE.  Jobs are rows of a table
 * in their own database, for which it starts workers.  Backends whose jobs have
 * committed, and workers that end before all jobs have, notify it of a database and a
 * time (pgscale_relocation_due()).  After its own start it has no notification, so it lets a
 * worker check each database that has open jobs (open_jobs.c), once.
 *
 * It exists only while there is a job or a worker: open_jobs.c knows whether there may
 * be a job, also after a start of the server.
 *
 * If a worker ends without a notification, for example because its connection was
 * refused, the launcher has its database checked again a little later, while that
 * database exists.
 *
 * DROP DATABASE, ALTER DATABASE RENAME and CREATE DATABASE TEMPLATE lock the database
 * and fail after 5 seconds if another process is still connected.  The server ends only
 * workers of autovacuum for them.  So the launcher looks for such locks on the
 * databases of its workers and makes those workers leave, which queues their jobs
 * again.
 *
 * A newly built index is written past shared buffers and synced when it is complete,
 * before 17 by the process that builds it.  That is hundreds of megabytes at once, and
 * the commits of all sessions wait behind the sync if the WAL is on the same disk: the
 * longest wait that a move causes.  So the launcher, which has nothing else to do,
 * reads the size of the file from time to time, and asks the kernel to start writing
 * the part that is new.  It is a hint, by the file's path and without a lock.  A missing file was dropped, or
 * does not exist yet.
 *
 * One lock guards the shared state.  It is held while a few dozen words are read or written,
 * and never while an error can be raised.  After a crash the state is empty, which is
 * correct: jobs are rows of a table (relocation_jobs.c), and a row that says "running" while
 * no worker here runs it was left behind.
 *
 * Failure: an error ends it, and it is started again.  Running workers continue
 * meanwhile.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <sys/stat.h>

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/kernel.h"
#include "base/pg_compat.h"
#include "base/relation_files.h"
#include "base/shared_area.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/worker.h"
#include "relocation/jobs/launcher.h"
#include "relocation/relocation.h"

/*
 * The longest between two rounds; and when to look again into databases that may have open
 * jobs and nothing due, as after a transaction that failed while it committed one.
 */
#define ROUND_MS	5000

/* When to try again where a worker could not be started or ended without a notification, or is not wanted now. */
#define AGAIN_MS	5000
#define WANTED_MS	1000

/* ... which accepts no connections. */
#define CLOSED_MS	60000

/*
 * Time between two checks for commands that need a database exclusively, which wait 5
 * s; and how long a worker there may clean up.
 */
#define WAY_MS		250
#define CLEAN_UP_MS 2000

/* Between two looks at the files that workers write: where one has grown since the last one, and otherwise. */
#define GROWING_MS	20
#define WAITING_MS	200

/* More databases than this with something to do at a time are found by looking. */
#define DUE_MAX			64

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

/* How far a file has been asked for. */
typedef struct FlushedFile
{
	RelFileLocator locator;
	uint32		segment;
	off_t		done;			/* within the segment */
} FlushedFile;

static BackgroundWorkerHandle *handles[PGSCALE_RELOCATION_SLOTS];
static bool no_slot = false;
static FlushedFile flushed[PGSCALE_RELOCATION_SLOTS];
static List *to_visit = NIL;	/* databases, in TopMemoryContext */
static int64 listed_ns;			/* when it last saw which databases have open
								 * jobs */
static int64 asked_at[PGSCALE_RELOCATION_SLOTS];	/* 0: not */

/*
 * The shared state
 */

const PgscaleArea pgscale_relocation_area = {
	.name = "pgscale relocation",
	.at = (void **) &shared,
	.size = sizeof(RelocationShared),
	.nlocks = 1,
	.locks = offsetof(RelocationShared, lock),
};

static void
launcher_ended(int code, Datum arg)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->launcher = NULL;
	shared->state.pid = 0;
	LWLockRelease(shared->lock);
}

static void
relocation_launcher_started(void)
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

static void
relocation_launcher_alive(bool enabled, bool no_slot)
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

/*
 * Takes a database whose time has come; false if there is none, with how many
 * milliseconds it is to the next one's (PG_INT64_MAX: there is none).  *all: it is lost which ones there
 * are, so each is to be visited.
 */
static bool
take_due(Oid *database, int64 *next_ms, bool *all)
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

/* A slot for a worker in this database; -1 if all are taken. */
static int
take_slot(Oid database)
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

/* Frees it if no worker has attached to it, and returns its database; InvalidOid: it was free, or is used. */
static Oid
abandon_slot(int slot)
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
	my_slot->ends = false;
	LWLockRelease(shared->lock);
}

bool
pgscale_relocation_ends(void)
{
	bool		cancelled;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	my_slot->ends = true;
	cancelled = my_slot->cancelled;
	LWLockRelease(shared->lock);
	return cancelled;
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

/* Asks the worker of that slot to leave its database: after it has cleaned up, or at once. */
static void
ask_to_leave(int slot, bool at_once)
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

		found = slot->database == database && slot->job == job && slot->pid != 0 && !slot->ends;
		if (found)
		{
			slot->cancelled = true;
			(void) kill(slot->pid, SIGINT);
		}
	}
	LWLockRelease(shared->lock);
	return found;
}

/*
 * The launcher
 */

static bool
is_connectable(HeapTuple tuple)
{
	Form_pg_database database = (Form_pg_database) GETSTRUCT(tuple);

	/* a negative limit other than "none" is what an interrupted DROP leaves */
	return database->datallowconn && database->datconnlimit >= -1;
}

/* In the caller's memory context. */
static List *
every_database(void)
{
	MemoryContext context = CurrentMemoryContext;
	Relation	relation;
	TableScanDesc scan;
	HeapTuple	tuple;
	List	   *databases = NIL;

	StartTransactionCommand();
	relation = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(relation, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
		if (is_connectable(tuple))
		{
			MemoryContext old = MemoryContextSwitchTo(context);

			databases = lappend_oid(databases, ((Form_pg_database) GETSTRUCT(tuple))->oid);
			MemoryContextSwitchTo(old);
		}
	table_endscan(scan);
	table_close(relation, AccessShareLock);
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	return databases;
}

static void
list_databases(void)
{
	MemoryContext context = MemoryContextSwitchTo(TopMemoryContext);
	List	   *open = pgscale_relocation_open_list(every_database);

	to_visit = list_concat_unique_oid(to_visit, open);
	list_free(open);
	MemoryContextSwitchTo(context);
	listed_ns = pgscale_timer_clock();
}

/* If not now, sees to what happens later. */
static bool
can_connect(Oid database)
{
	HeapTuple	tuple;
	bool		there;
	bool		can;

	StartTransactionCommand();
	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	there = HeapTupleIsValid(tuple);
	can = there && is_connectable(tuple);
	if (there)
		ReleaseSysCache(tuple);
	CommitTransactionCommand();
	if (!there)
		pgscale_relocation_open_gone(database);
	else if (!can)
		pgscale_relocation_due(database, CLOSED_MS);
	else if (pgscale_worker_database_locked(database))
	{
		pgscale_relocation_due(database, WANTED_MS);
		can = false;
	}
	return can;
}

/* Makes workers leave databases that a command needs exclusively. */
static void
make_way(void)
{
	const int64 now = pgscale_timer_clock();
	PgscaleRelocationSlot slots[PGSCALE_RELOCATION_SLOTS];

	pgscale_relocation_slots(slots);
	for (int i = 0; i < PGSCALE_RELOCATION_SLOTS; i++)
	{
		if (slots[i].pid == 0 || !pgscale_worker_database_locked(slots[i].database))
		{
			asked_at[i] = 0;
			continue;
		}
		if (asked_at[i] == 0)
		{
			asked_at[i] = now;
			ask_to_leave(i, false);
		}
		else if (now - asked_at[i] >= CLEAN_UP_MS * NS_PER_MS)
			ask_to_leave(i, true);
	}
}

/* Of workers that the postmaster could not start after all. */
static void
free_abandoned(void)
{
	for (int i = 0; i < PGSCALE_RELOCATION_SLOTS; i++)
	{
		Oid			database;

		if (!handles[i] || pgscale_worker_launched(&handles[i]))
			continue;
		database = abandon_slot(i);
		if (OidIsValid(database))
			pgscale_relocation_due(database, AGAIN_MS);
	}
}

/* Returns false if the server has no place for a worker now. */
static bool
launcher_launch(Oid database)
{
	int			slot = take_slot(database);
	BackgroundWorkerHandle *handle;

	/*
	 * It makes way by itself, for which it cleans up first: the server would
	 * end it at once.
	 */
	if (slot >= 0 && pgscale_worker_launch("pgscale relocation worker", "pgscale_relocation_worker_main", slot, false, &handle))
	{
		if (handles[slot])
			pfree(handles[slot]);
		handles[slot] = handle;
		no_slot = false;
		return true;
	}
	if (slot >= 0)
		(void) abandon_slot(slot);
	no_slot = true;
	return false;
}

static int
launcher_workers(void)
{
	PgscaleRelocationSlot slots[PGSCALE_RELOCATION_SLOTS];
	int			workers = 0;

	pgscale_relocation_slots(slots);
	for (int i = 0; i < PGSCALE_RELOCATION_SLOTS; i++)
		workers += OidIsValid(slots[i].database);
	return workers;
}

/* Returns in how many milliseconds there is something to do next. */
static int64
launch_due(void)
{
	int64		next = PG_INT64_MAX;

	while (launcher_workers() < pgscale_relocation_workers)
	{
		Oid			database;
		bool		all;
		bool		due;

		due = take_due(&database, &next, &all);
		if (all)
			list_databases();
		if (!due)
		{
			if (to_visit == NIL && next == PG_INT64_MAX && launcher_workers() == 0 &&
				pgscale_timer_clock() - listed_ns >= ROUND_MS * NS_PER_MS)
			{
				pgscale_relocation_open_looked();
				list_databases();
			}
			if (to_visit == NIL)
				break;
			database = linitial_oid(to_visit);
		}
		if (can_connect(database) && !launcher_launch(database))
		{
			/* else it stays in that list, which has room for all */
			if (due)
				pgscale_relocation_due(database, AGAIN_MS);
			break;
		}
		to_visit = list_delete_oid(to_visit, database);
	}
	return next;
}

/*
 * The files that workers write
 */

/* Returns whether there may be another segment; sets *grown if it has grown. */
static bool
flush_segment(FlushedFile *at, bool *grown)
{
	char		path[MAXPGPATH];
	struct stat st;
	int			fd;

	pgscale_relation_file_path(path, at->locator, INVALID_PROC_NUMBER, MAIN_FORKNUM, at->segment);
	fd = pgscale_relation_file_open(path);
	if (fd < 0)
		return false;
	if (fstat(fd, &st) == 0 && st.st_size > at->done)
	{
		pg_flush_data(fd, at->done, st.st_size - at->done);
		at->done = st.st_size;
		*grown = true;
	}
	CloseTransientFile(fd);
	if (at->done < PGSCALE_SEGMENT_BYTES)
		return false;
	at->segment++;
	at->done = 0;
	return true;
}

/*
 * A look at what grows; in how many milliseconds to look again, or -1 if nothing grows.
 */
static long
launcher_flush(void)
{
	PgscaleRelocationSlot slots[PGSCALE_RELOCATION_SLOTS];
	bool		any = false;
	bool		grown = false;

	if (!pgscale_kernel_may_begin_writes())
		return -1;

	pgscale_relocation_slots(slots);
	for (int i = 0; i < PGSCALE_RELOCATION_SLOTS; i++)
	{
		FlushedFile *at = &flushed[i];

		if (slots[i].grows.relNumber == 0)
			continue;
		any = true;
		if (!RelFileLocatorEquals(slots[i].grows, at->locator))
		{
			memset(at, 0, sizeof(*at));
			at->locator = slots[i].grows;
		}
		while (flush_segment(at, &grown))
			;
	}
	if (!any)
		return -1;
	return grown ? GROWING_MS : WAITING_MS;
}

static void
relocation_launcher_main(void)
{
	pgscale_worker_start("PgscaleRelocationMain");
	/* pgscale.health reads it as soon as there is a process */
	relocation_launcher_alive(pgscale_relocation_workers > 0, false);
	relocation_launcher_started();

	for (;;)
	{
		int64		next;
		long		wait;
		long		flush;

		(void) pgscale_worker_interrupts();
		free_abandoned();
		relocation_launcher_alive(pgscale_relocation_workers > 0, no_slot);
		if (!pgscale_relocation_launcher_wanted())
			proc_exit(0);
		next = pgscale_relocation_workers > 0 ? launch_due() : PG_INT64_MAX;
		make_way();
		wait = launcher_workers() > 0 ? WAY_MS : ROUND_MS;
		if (next < wait)
			wait = (long) next + 1;
		flush = launcher_flush();
		if (flush >= 0)
			wait = Min(wait, flush);
		pgscale_worker_wait(wait);
	}
}

const PgscaleWorker pgscale_relocation_launcher = {
	.name = "pgscale relocation",
	.wanted = pgscale_relocation_launcher_wanted,
	.main = relocation_launcher_main,
};
