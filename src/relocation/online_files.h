/*-------------------------------------------------------------------------
 *
 * online_files.h
 *	  New files of relations that move, and files that they have left.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_ONLINE_FILES_H
#define PGSCALE_RELOCATION_ONLINE_FILES_H

#include "postgres.h"

#include "base/pg_compat.h"

/* Call it in a transaction.  Makes an empty file that stays even if the transaction aborts. */
extern void pgscale_relocation_file_make(RelFileLocator locator);

/*
 * Call it outside a transaction, for all files of a move before the first one is removed.  Unless a relation has the file, which has at
 * most that number of segments, the server writes it no longer, even if its folder is missing.
 */
extern void pgscale_relocation_file_forget(RelFileLocator locator, uint32 segments);

/*
 * Call it outside a transaction.  Removes a file with all of its forks, here and on standbys, unless a relation has it: slowly as
 * long as more_time() returns true.  If the folder of its tablespace is missing, raises an error: it is still to be removed.
 */
extern void pgscale_relocation_file_remove(RelFileLocator locator, bool (*more_time) (void));

#endif							/* PGSCALE_RELOCATION_ONLINE_FILES_H */
