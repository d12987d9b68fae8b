/*-------------------------------------------------------------------------
 *
 * launcher.h
 *	  The launcher of relocations, and the state that it shares with its workers and with backends.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_LAUNCHER_H
#define PGSCALE_RELOCATION_LAUNCHER_H

#include "postgres.h"

#include "nodes/pg_list.h"

#include "base/pg_compat.h"
#include "base/shared_area.h"
#include "pgscale.h"
#include "relocation/jobs/relocation_jobs.h"

/* How many workers there can be at a time. */
#define PGSCALE_RELOCATION_SLOTS	16

extern const PgscaleArea pgscale_relocation_area;

/* The launcher's own account. */
typedef struct PgscaleRelocationLauncherState
{
	int			pid;			/* 0: there is none */
	uint64		starts;
	int64		last_round_ns;
	bool		enabled;		/* does it start jobs? */
	bool		no_slot;		/* the server had no place for a worker */
} PgscaleRelocationLauncherState;

extern PgscaleRelocationLauncherState pgscale_relocation_launcher_state(void);

/*
 * Is there anything that the launcher is for?  And may there be jobs that have not ended, in any database?  Neither takes a lock,
 * so what changes now may be seen only at the next call.
 */
extern bool pgscale_relocation_launcher_wanted(void);
extern bool pgscale_relocation_may_have_jobs(void);

/*
 * Announces work in this database in that many milliseconds.  In a transaction of a
 * backend, call it after the commit: it raises no error.
 */
extern void pgscale_relocation_due(Oid database, int64 ms);

/*
 * Call it first in a worker: returns the database to connect to, or InvalidOid if it is
 * no longer wanted.  The slot is free when the worker ends.
 */
extern Oid	pgscale_relocation_slot_attach(int slot);

/* In a worker: sets its job and the job's table; 0 and InvalidOid if none.  Forgets a request to end the last one. */
extern void pgscale_relocation_at_work(int64 job, Oid heap);

/*
 * In a worker: what has become of its job is about to be written down.  Was the job to be ended before?  Who asks for that from now on
 * finds no worker at it, and changes the job's row.
 */
extern bool pgscale_relocation_ends(void);

/* In a worker: it is about to write these files, until its job ends. */
extern void pgscale_relocation_grows(RelFileLocator locator);

/* The phase of an online move; relocation.c has the words. */
typedef enum PgscaleRelocationPhase
{
	PGSCALE_PHASE_NONE,
	PGSCALE_PHASE_COPYING,
	PGSCALE_PHASE_FOLLOWING,
	PGSCALE_PHASE_WAITING,
	PGSCALE_PHASE_SWITCHING,
	PGSCALE_PHASE_DROPPING,
} PgscaleRelocationPhase;

typedef struct PgscaleRelocationProgress
{
	PgscaleRelocationPhase phase;
	int64		total_bytes;	/* to be copied, as when it began */
	PgscaleRelocationCounts counts;
	int64		began_ns;		/* by CLOCK_MONOTONIC */
	char		held_back_by[192];	/* what it waits for; empty: nothing */
} PgscaleRelocationProgress;

/* In a worker: shows it, until its job ends. */
extern void pgscale_relocation_show_progress(const PgscaleRelocationProgress *progress);

/* In a worker: is this job to be ended? */
extern bool pgscale_relocation_cancelled(void);

/* In a worker: does a command need the database exclusively? */
extern bool pgscale_relocation_in_the_way(void);

/* In a worker: it ends, and all is said. */
extern void pgscale_relocation_leave(void);

/* What a worker is at.  After its end the slot is free. */
typedef struct PgscaleRelocationSlot
{
	Oid			database;		/* InvalidOid: free */
	int			pid;			/* 0: the worker has not begun yet */
	int64		job;			/* 0: none */
	Oid			heap;			/* the job's table */
	RelFileLocator grows;		/* what it writes; relNumber 0: nothing */
	PgscaleRelocationProgress progress; /* of an online move */
	bool		cancelled;
	bool		ends;			/* it is too late to cancel it here */
	bool		in_the_way;		/* of a command that needs the database
								 * exclusively */
	bool		left;			/* in order */
} PgscaleRelocationSlot;

/* In any process: copies all slots, PGSCALE_RELOCATION_SLOTS, as they are at one moment. */
extern void pgscale_relocation_slots(PgscaleRelocationSlot *slots);

/* Has the worker that is at that job end it; false if there is none, or it is about to write down what has become of it. */
extern bool pgscale_relocation_interrupt(Oid database, int64 job);

extern const PgscaleWorker pgscale_relocation_launcher;

/*
 * open_jobs.c: in which databases there are relocation jobs that have not ended.
 */

extern const PgscaleArea pgscale_relocation_open_area;

/*
 * In a backend whose transaction has added jobs to its database: before it
 * commits, which may raise an error; and when it has ended, however.
 */
extern void pgscale_relocation_open_begin(void);
extern void pgscale_relocation_open_end(void);

/*
 * In a worker, about its database: first look, then see whether there is an open
 * job, and if there is none, say so.  What was added meanwhile is not forgotten.
 */
extern uint64 pgscale_relocation_open_look(void);
extern void pgscale_relocation_open_none(uint64 looked);

/*
 * In the launcher.  Which databases they are; on a server of which that is not
 * known, as after a promotion, those that every_one() lists.  Not in recovery.
 */
extern List *pgscale_relocation_open_list(List *(*every_one) (void));

/* All that were listed last were looked into, and in none is anything to do now or later. */
extern void pgscale_relocation_open_looked(void);

/* This one is gone. */
extern void pgscale_relocation_open_gone(Oid database);

/*
 * In any process: may there be a job that has not ended, in any database?  Not in
 * recovery.  Takes no lock, so what changes now may be seen only at the next call.
 */
extern bool pgscale_relocation_is_any_open(void);

#endif							/* PGSCALE_RELOCATION_LAUNCHER_H */
