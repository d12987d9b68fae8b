/*-------------------------------------------------------------------------
 *
 * online_move.h
 *	  Moves a table or an index, as it is, while it is in use.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_ONLINE_MOVE_H
#define PGSCALE_RELOCATION_ONLINE_MOVE_H

#include "postgres.h"

#include "relocation/job_table.h"

/*
 * Moves it, as a superuser; in no transaction.  Raises what errors there are.  In both cases job->files are
 * then those that are to be removed.
 */
extern void pgscale_relocation_online_move(PgscaleRelocationJob *job);

/* Removes job->files, if no relation has them.  In no transaction. */
extern void pgscale_relocation_online_clean_up(PgscaleRelocationJob *job);

/*
 * Is it fit to be moved like that?  What speaks against it is reported at this level, with an errcode, and is
 * an error or answered with false.
 */
extern bool pgscale_relocation_online_check(Oid relation, int elevel);

#endif							/* PGSCALE_RELOCATION_ONLINE_MOVE_H */
