/*-------------------------------------------------------------------------
 *
 * saved_history.h
 *	  Keeps what the policy remembers over a restart of the server.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SWEEPER_SAVED_HISTORY_H
#define PGSCALE_SWEEPER_SAVED_HISTORY_H

#include "postgres.h"

#include "sweeper/shared.h"

/* In the postmaster, when shared memory has been set up: removes the file if it will not be read. */
extern void pgscale_sweeper_saved_startup(void);

/* In the sweeper, when its policy has begun: has it go on with what the one before knew, and removes the file. */
extern void pgscale_sweeper_saved_read(void);

/*
 * In the sweeper, when it ends: writes what its policy remembers, if anything.  If it has not read
 * the file of the one before, that one stays.
 */
extern void pgscale_sweeper_saved_write(void);

#endif							/* PGSCALE_SWEEPER_SAVED_HISTORY_H */
