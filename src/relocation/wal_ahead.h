/*-------------------------------------------------------------------------
 *
 * wal_ahead.h
 *	  Makes the next segment of the WAL before anyone needs it.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_WAL_AHEAD_H
#define PGSCALE_RELOCATION_WAL_AHEAD_H

/*
 * Call it in no transaction, before up to a segment of WAL is written.  Raises an error if there is no room for the segment.
 */
extern void pgscale_relocation_wal_ahead(void);

#endif							/* PGSCALE_RELOCATION_WAL_AHEAD_H */
