/*-------------------------------------------------------------------------
 *
 * wal_disk.h
 *	  What pg_wal takes of its disk, and what it may take.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_WAL_DISK_H
#define PGSCALE_BASE_WAL_DISK_H

#include "postgres.h"

#include "access/xlogdefs.h"

/* Bytes of the WAL files that are there, those for later use included. */
extern int64 pgscale_wal_disk_used(void);

/* The bytes of segments before that one; and of these, what is still to be archived. */
extern int64 pgscale_wal_disk_used_before(XLogSegNo end);
extern int64 pgscale_wal_disk_to_archive_before(XLogSegNo end);

/*
 * Bytes that pg_wal may take in all: what is free on its disk, and what its files have of
 * max_wal_size already.  INFINITY if the kernel does not tell.
 */
extern double pgscale_wal_disk_room(void);

/*
 * Of that room, the largest part that max_wal_size is recommended to have.  While a checkpoint
 * is late pg_wal grows beyond that size, by as much as is written meanwhile.
 */
#define PGSCALE_WAL_DISK_ADVISED	0.5

/* And the largest part that it is set to without being forced. */
#define PGSCALE_WAL_DISK_TAKEN		0.75

#endif							/* PGSCALE_BASE_WAL_DISK_H */
