/*-------------------------------------------------------------------------
 *
 * counters.h
 *	  The server's cumulative statistics, in one struct on every major.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_COUNTERS_H
#define PGSCALE_COUNTERS_H

#include "postgres.h"

/* Each -1 where this major does not count it. */
typedef struct PgscaleCounters
{
	int64		commits;		/* of the given databases, as the rest of this
								 * group */
	int64		rollbacks;
	int64		blocks_read;
	int64		blocks_hit;
	int64		temp_bytes;

	int64		checkpoints_timed;
	int64		checkpoints_requested;
	int64		checkpoint_buffers;
	int64		checkpoint_write_ms;
	int64		checkpoint_sync_ms;

	int64		bgwriter_buffers;
	int64		bgwriter_stopped;	/* maxwritten_clean */
	int64		buffers_allocated;
	int64		backend_buffers;	/* written by client backends */
	int64		backend_fsyncs;

	int64		wal_records;
	int64		wal_pages;		/* full-page images */
	int64		wal_bytes;
	int64		wal_buffers_full;
	int64		wal_writes;
	int64		wal_written_bytes;
	int64		wal_syncs;
	int64		wal_write_us;	/* 0 unless track_wal_io_timing is on */
	int64		wal_sync_us;
	/* ... SLRUs: hits and reads of each that has a setting in 17 */
} PgscaleCounters;

/* Reads them as of now; anywhere, also outside of a transaction. */
extern void pgscale_counters_read(PgscaleCounters *counters, const Oid *databases, int ndatabases);

/* Commits and rollbacks of these databases alone; cheaper. */
extern int64 pgscale_counters_transactions(const Oid *databases, int ndatabases);

#endif							/* PGSCALE_COUNTERS_H */
