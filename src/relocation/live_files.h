/*-------------------------------------------------------------------------
 *
 * live_files.h
 *	  New files of relations that move, and files that they have left.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_LIVE_FILES_H
#define PGSCALE_RELOCATION_LIVE_FILES_H

#include "postgres.h"

#include "base/pg_compat.h"

/* Call it in a transaction.  Makes an empty file that stays even if the transaction aborts. */
extern void pgscale_relocation_file_make(RelFileLocator locator);

/*
 * Call it outside a transaction.  Removes a file with all of its forks, here and on standbys, unless a relation has it: slowly as
 * long as more_time() returns true.  It has at most that number of segments.  If the folder of its tablespace is missing, raises an
 * error: then the server does not write the file any more, but it is still to be removed.
 */
extern void pgscale_relocation_file_remove(RelFileLocator locator, uint32 segments, bool (*more_time) (void));

#endif							/* PGSCALE_RELOCATION_LIVE_FILES_H */
