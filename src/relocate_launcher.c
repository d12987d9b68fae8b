/*-------------------------------------------------------------------------
 *
 * relocate_launcher.c
 *	  The process that starts workers where there is something to relocate.
 *
 * It is connected to no database, so that it stands in nobody's way; jobs are
 * rows of a table in their own database, for which it starts workers.  It is
 * told in which one there is something to do and when (relocate_share.c): by
 * backends whose jobs have committed, and by workers that end before all jobs
 * have.  After its own start it is told nothing, and so it has a worker look
 * into each database that can be connected to, once.
 *
 * A worker that ended without a word, say because its connection was refused,
 * has its database looked into again a little later, as long as that exists.
 *
 * Failure: an error ends it, and the postmaster starts it again; workers that
 * are at work go on meanwhile.
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
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "relocate.h"
#include "relocate_flush.h"
#include "relocate_launcher.h"
#include "relocate_share.h"
#include "worker.h"

/* The longest between two rounds, and on a standby. */
#define ROUND_MS	5000
#define STANDBY_MS	1000

/* When to try again where a worker could not be started. */
#define AGAIN_MS	5000

static BackgroundWorkerHandle *handles[PGSCALE_RELOCATION_SLOTS];
static Oid	databases[PGSCALE_RELOCATION_SLOTS];
static bool no_slot = false;
static List *to_visit = NIL;	/* databases, in TopMemoryContext */

PGDLLEXPORT void pgscale_relocation_launcher_main(Datum arg);

void
pgscale_relocation_launcher_register(void)
{
	if (!IsBinaryUpgrade)
		pgscale_worker_register("pgscale relocation", "pgscale_relocation_launcher_main", 0);
}

static bool
is_connectable(HeapTuple tuple)
{
	Form_pg_database database = (Form_pg_database) GETSTRUCT(tuple);

	/* a negative limit other than "none" is what an interrupted DROP leaves */
	return database->datallowconn && database->datconnlimit >= -1;
}

static void
list_databases(void)
{
	Relation	relation;
	TableScanDesc scan;
	HeapTuple	tuple;

	StartTransactionCommand();
	relation = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(relation, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
		if (is_connectable(tuple))
		{
			MemoryContext context = MemoryContextSwitchTo(TopMemoryContext);

			to_visit = list_append_unique_oid(to_visit, ((Form_pg_database) GETSTRUCT(tuple))->oid);
			MemoryContextSwitchTo(context);
		}
	table_endscan(scan);
	table_close(relation, AccessShareLock);
	CommitTransactionCommand();
}

static bool
can_connect(Oid database)
{
	HeapTuple	tuple;
	bool		can;

	StartTransactionCommand();
	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	can = HeapTupleIsValid(tuple) && is_connectable(tuple);
	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	CommitTransactionCommand();
	return can;
}

static void
look_later(Oid database)
{
	pgscale_relocation_due(database, TimestampTzPlusMilliseconds(GetCurrentTimestamp(), AGAIN_MS));
}

/* Of workers that the postmaster could not start after all. */
static void
free_abandoned(void)
{
	for (int i = 0; i < PGSCALE_RELOCATION_SLOTS; i++)
	{
		pid_t		pid;

		if (!handles[i] || GetBackgroundWorkerPid(handles[i], &pid) != BGWH_STOPPED)
			continue;
		if (pgscale_relocation_slot_abandon(i))
			look_later(databases[i]);
		pfree(handles[i]);
		handles[i] = NULL;
	}
}

/* Returns false if the server has no place for a worker now. */
static bool
launch(Oid database)
{
	int			slot = pgscale_relocation_slot_take(database);
	BackgroundWorkerHandle *handle;

	if (slot >= 0 && pgscale_worker_launch("pgscale relocation worker", "pgscale_relocation_worker_main", slot, &handle))
	{
		if (handles[slot])
			pfree(handles[slot]);
		handles[slot] = handle;
		databases[slot] = database;
		no_slot = false;
		return true;
	}
	if (slot >= 0)
		(void) pgscale_relocation_slot_abandon(slot);
	look_later(database);
	no_slot = true;
	return false;
}

/* Returns when there is something to do next. */
static TimestampTz
launch_due(void)
{
	TimestampTz next = DT_NOEND;
	int			jobs;

	free_abandoned();
	while (pgscale_relocation_workers_now(&jobs) < pgscale_relocation_workers)
	{
		Oid			database;
		bool		all;
		bool		due;

		due = pgscale_relocation_take_due(GetCurrentTimestamp(), &database, &next, &all);
		if (all)
			list_databases();
		if (!due)
		{
			if (to_visit == NIL)
				break;
			database = linitial_oid(to_visit);
		}
		to_visit = list_delete_oid(to_visit, database);
		if (can_connect(database) && !launch(database))
			break;
	}
	return next;
}

void
pgscale_relocation_launcher_main(Datum arg)
{
	pgscale_worker_start("PgscaleRelocationMain");
	/* pgscale.health reads it as soon as there is a process */
	pgscale_relocation_launcher_alive(pgscale_relocation_enabled && pgscale_relocation_workers > 0, false);
	pgscale_relocation_launcher_started();

	for (;;)
	{
		long		wait = STANDBY_MS;
		long		flush;

		(void) pgscale_worker_interrupts();
		pgscale_relocation_launcher_alive(pgscale_relocation_enabled && pgscale_relocation_workers > 0, no_slot);
		if (!RecoveryInProgress())
		{
			TimestampTz next = pgscale_relocation_enabled ? launch_due() : DT_NOEND;

			wait = ROUND_MS;
			if (next != DT_NOEND)
				wait = Min(wait, TimestampDifferenceMilliseconds(GetCurrentTimestamp(), next) + 1);
			flush = pgscale_relocation_flush();
			if (flush >= 0)
				wait = Min(wait, flush);
		}
		pgscale_worker_wait(wait);
	}
}
