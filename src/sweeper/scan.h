/*-------------------------------------------------------------------------
 *
 * scan.h
 *	  The sweep: finding buffers that may leave, and making them ready.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SWEEPER_SCAN_H
#define PGSCALE_SWEEPER_SCAN_H

#include "postgres.h"

#include "sweeper/shared_state.h"

/* Once in a process. */
extern void pgscale_sweeper_scan_init(void);

/* One tick of the sweep.  Were buffers needed since the last one? */
extern bool pgscale_sweeper_scan(PgscaleSweeperShare *share);

/* Instead of it, while the sweep does not work. */
extern void pgscale_sweeper_rest(PgscaleSweeperShare *share);

#endif							/* PGSCALE_SWEEPER_SCAN_H */
