/*-------------------------------------------------------------------------
 *
 * verify_move.h
 *	  What a move must not have changed.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_VERIFY_MOVE_H
#define PGSCALE_RELOCATION_VERIFY_MOVE_H

#include "relocation/job_table.h"

/* All that makes it what it is, but where it lies; NULL if it is gone. In a transaction. */
extern char *pgscale_describe_index(Oid index);

/*
 * Is the moved relation where it should be, and what it was?  Then measures
 * it, and checks and reads it in as the job asks for.  In a transaction; raises an error.
 */
extern void pgscale_verify_move(PgscaleJob *job);

/*
 * The functions that look up every row of a table in its index, and that read a
 * relation in; an error if they are not installed here, or not these.
 */
extern Oid	pgscale_amcheck_function(void);
extern Oid	pgscale_prewarm_function(void);

/*
 * After the last job to a tablespace: the settings that suit its disk, as a
 * measurement now suggests; NULL if there is nothing to say.  In a transaction.
 */
extern char *pgscale_suggest_settings(const PgscaleJob *job);

#endif							/* PGSCALE_RELOCATION_VERIFY_MOVE_H */
