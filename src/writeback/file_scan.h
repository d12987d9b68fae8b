/*-------------------------------------------------------------------------
 *
 * file_scan.h
 *	  Finds files that are written past the shared buffers.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_WRITEBACK_FILE_SCAN_H
#define PGSCALE_WRITEBACK_FILE_SCAN_H

#include "postgres.h"

/* Begins anew, as well after an error. */
extern void pgscale_files_start(void);

/* Looks at the next files.  Returns how many pages were found to wait. */
extern int64 pgscale_files_round(int64 now_ns);

#endif							/* PGSCALE_WRITEBACK_FILE_SCAN_H */
