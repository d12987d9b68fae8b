/*-------------------------------------------------------------------------
 *
 * move.h
 *	  One move, what it leaves behind where it fails, and what it must not have changed.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_MOVE_H
#define PGSCALE_RELOCATION_MOVE_H

#include "postgres.h"

#include "relocation/jobs/relocation_jobs.h"

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

#endif							/* PGSCALE_RELOCATION_MOVE_H */
