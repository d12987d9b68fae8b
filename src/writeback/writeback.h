/*-------------------------------------------------------------------------
 *
 * writeback.h
 *	  The feature: limits the data that the kernel must still write for this cluster.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_WRITEBACK_H
#define PGSCALE_WRITEBACK_H

#include "postgres.h"

#include "pgscale.h"

extern const PgscaleModule pgscale_writeback_module;

/* file_scan.c: finds files that are written past the shared buffers */

/* Begins anew, as well after an error. */
extern void pgscale_writeback_files_start(void);

/* Looks at the next files.  Returns how many pages were found to wait. */
extern int64 pgscale_writeback_files_round(int64 now_ns);

#endif							/* PGSCALE_WRITEBACK_H */
