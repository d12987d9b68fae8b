/*-------------------------------------------------------------------------
 *
 * relocation.h
 *	  Moves indexes and tables to other tablespaces.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_H
#define PGSCALE_RELOCATION_H

#include "postgres.h"

#include "nodes/pg_list.h"

#include "pgscale.h"
#include "relocation/job_table.h"

extern const PgscaleModule pgscale_relocation_module;

/* settings */
extern int	pgscale_relocation_workers; /* 0: switched off */
extern int	pgscale_relocation_max_lag; /* MB; -1: whatever it is */
extern int	pgscale_relocation_max_transaction_age; /* s; -1: none */
extern int	pgscale_relocation_switch_timeout;	/* s */

/*
 * open_jobs.c: in which databases there are relocation jobs that have not ended.
 */

extern void pgscale_relocation_open_request(void);
extern void pgscale_relocation_open_startup(void);

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

/*
 * launcher.c: the process that starts workers where there is something to relocate.
 */

extern const PgscaleWorker pgscale_relocation_launcher;

/* Is there anything that it is for? */
extern bool pgscale_relocation_launcher_wanted(void);

/* False where no database has jobs that have not ended; true may be for nothing. */
extern bool pgscale_relocation_may_have_jobs(void);

/* move.c: one move, and what it leaves behind where it fails */

/* Once in a worker, before all else. */
extern void pgscale_relocation_move_start(void);

/*
 * Moves it with the rights of the current user, an online move with a superuser's; in no transaction.  Raises what
 * errors there are.  The context must last until they are dealt with.
 */
extern void pgscale_relocation_move(PgscaleRelocationJob *job, MemoryContext context);

/*
 * After an attempt that ended in whatever way: drops what it left, as a
 * superuser, and returns whether the relation has moved.  In no transaction.
 */
extern bool pgscale_relocation_move_settle(PgscaleRelocationJob *job);

/* flush.c: has the kernel write new indexes while they grow */

/*
 * A look at what grows, for another process than the one that writes it; in how
 * many milliseconds to look again, or -1 if nothing grows.
 */
extern long pgscale_relocation_flush(void);

/* verify_move.c: what a move must not have changed */

/* All that makes it what it is, but where it lies; NULL if it is gone. In a transaction. */
extern char *pgscale_relocation_describe_index(Oid index);

/*
 * Is the moved relation where it should be, and what it was?  Then measures
 * it, and checks and reads it in as the job asks for.  In a transaction; raises an error.
 * Returns why amcheck could not check it, or NULL.
 */
extern char *pgscale_relocation_verify_move(PgscaleRelocationJob *job);

/* Why amcheck, as it is installed here, cannot check this index, and what helps; NULL: it can. */
extern char *pgscale_relocation_cannot_amcheck(Oid index, const char **hint);

/* The function that reads a relation in; an error if it is not installed here, or not this one. */
extern Oid	pgscale_relocation_prewarm_function(void);

/*
 * After the last job to a tablespace: the settings that suit its disk, as a
 * measurement now suggests; NULL if there is nothing to say.  In a transaction.
 */
extern char *pgscale_relocation_suggest_settings(const PgscaleRelocationJob *job);

#endif							/* PGSCALE_RELOCATION_H */
