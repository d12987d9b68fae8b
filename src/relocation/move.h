/*-------------------------------------------------------------------------
 *
 * move.h
 *	  One move, and what it leaves behind where it fails.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_MOVE_H
#define PGSCALE_RELOCATION_MOVE_H

#include "relocation/job_table.h"

/* Once in a worker, before all else. */
extern void pgscale_move_start(void);

/*
 * Moves it with the rights of the current user; in no transaction.  Raises what
 * errors there are.  The context must last until they are dealt with.
 */
extern void pgscale_move(PgscaleJob *job, MemoryContext context);

/*
 * After an attempt that ended in whatever way: drops what it left, as a
 * superuser, and returns whether the relation has moved.  In no transaction.
 */
extern bool pgscale_move_settle(PgscaleJob *job);

#endif							/* PGSCALE_RELOCATION_MOVE_H */
