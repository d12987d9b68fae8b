/*-------------------------------------------------------------------------
 *
 * server_counters.h
 *	  The server's cumulative statistics, in one struct on every major.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_SERVER_COUNTERS_H
#define PGSCALE_BASE_SERVER_COUNTERS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "storage/lwlock.h"

/* At most that many databases are counted. */
#define PGSCALE_DATABASES	256

/* The types of heavyweight locks whose waits are counted apart. */
typedef enum PgscaleLockType
{
	PGSCALE_LOCK_EXTEND,
	PGSCALE_LOCK_TRANSACTION,
	PGSCALE_LOCK_TUPLE,
	PGSCALE_LOCK_RELATION,
	PGSCALE_LOCK_ADVISORY,
	PGSCALE_LOCK_OTHER,
	PGSCALE_LOCK_TYPES
} PgscaleLockType;

/*
 * Each -1 where this major, or this server, does not count it.  Nothing but
 * int64: they are summed and compared as an array.
 */
typedef struct PgscaleCounters
{
	int64		commits;		/* of the given databases, since this process
								 * first read them, as this group */
	int64		rollbacks;
	int64		blocks_read;
	int64		blocks_hit;
	int64		temp_bytes;
	int64		deadlocks;

	int64		checkpoints_timed;
	int64		checkpoints_requested;
	int64		checkpoint_buffers;
	int64		checkpoint_write_ms;
	int64		checkpoint_sync_ms;

	int64		bgwriter_buffers;
	int64		bgwriter_stopped;	/* maxwritten_clean */
	int64		buffers_allocated;
	int64		backend_buffers;	/* written by client backends that needed
									 * the room; before 16 all that they
									 * wrote, even to extend tables */
	int64		sweeper_buffers;	/* by pgscale's own */
	int64		backend_ring_buffers;	/* and by COPY, VACUUM and the like,
										 * with their parallel workers */
	int64		backend_ring_reads; /* pages that any process has read so;
									 * they are among blocks_read */
	int64		reads;			/* operations that read blocks_read, each of
								 * one page or more */
	int64		backend_fsyncs;

	int64		wal_records;
	int64		wal_pages;		/* full-page images */
	int64		wal_page_bytes; /* of these; -1 before 19 */
	int64		wal_bytes;
	int64		wal_buffers_full;
	int64		wal_writes;
	int64		wal_written_bytes;
	int64		wal_syncs;
	int64		wal_write_us;	/* 0 unless the server measures it */
	int64		wal_sync_us;
	int64		wal_position;	/* up to where WAL was written */

	int64		xact_hits;		/* of the caches that have a setting in 17 */
	int64		xact_reads;
	int64		subtrans_hits;
	int64		subtrans_reads;
	int64		offset_hits;
	int64		offset_reads;
	int64		member_hits;
	int64		member_reads;

	int64		lock_waits[PGSCALE_LOCK_TYPES]; /* that took deadlock_timeout
												 * or longer and got the lock */
	int64		lock_wait_us[PGSCALE_LOCK_TYPES];	/* all of their time */
	int64		fast_path_exceeded; /* weak locks on relations that found all
									 * fast-path slots taken */
} PgscaleCounters;

/*
 * Reads them as of now; anywhere, also outside of a transaction.  This, and
 * pgscale_counters_transactions(), discard the snapshot of statistics that a
 * transaction has taken, and go by a database's place in the list: it must keep
 * it, until another one replaces it.
 */
extern void pgscale_counters_read(PgscaleCounters *counters, const Oid *databases, int ndatabases);

/* A list of databases for these functions; zeroed at first. */
typedef struct PgscaleDatabases
{
	int			n;
	Oid			oids[PGSCALE_DATABASES];
	uint64		seen_in[PGSCALE_DATABASES]; /* the period in which it was seen
											 * last */
	int			latest;			/* sessions of one come one after the other,
								 * mostly */
	uint64		period;			/* the caller's, which counts them */
} PgscaleDatabases;

/*
 * Adds a database that was seen.  If there is no more room, it takes the place of the one that
 * was unused for the longest time, such as a dropped one.  Returns its place; -1 if there is
 * none.
 */
extern int	pgscale_counters_see_database(PgscaleDatabases *databases, Oid database);

/* Commits and rollbacks of these databases only; cheaper.  A reset makes it fall. */
extern int64 pgscale_counters_transactions(const Oid *databases, int ndatabases);

/* Buffers that were allocated; as current as the background writer is.  A reset makes it fall. */
extern int64 pgscale_counters_allocations(void);

/*
 * The pages that backends wrote, as a count that never falls.  The server's falls
 * when its statistics are reset.  Where it has the pages of background workers,
 * those of pgscale's own are taken off; it counts them up to a second later than
 * pgscale does.
 */
typedef struct PgscaleBackendWrites
{
	int64		writes;			/* the count */
	int64		balance;		/* the same, but what the server still lacks
								 * is taken off already */
	int64		server;			/* the server's when it was last looked at, */
	int64		own;			/* pgscale's own, */
	TimestampTz reset_at;		/* and the time of the server's last reset */
} PgscaleBackendWrites;

/*
 * Looks at the server's count and returns the pages since the struct was zeroed.
 * The caller keeps other processes from the struct: it passes the lock over it, or
 * NULL.  A snapshot of statistics that this transaction has taken stays, unless
 * anew is true.
 */
extern int64 pgscale_counters_backend_writes(PgscaleBackendWrites *count, LWLock *lock, bool anew);

/* Set by the feature whose processes write pages: how many they have written since the server's start. */
extern uint64 (*pgscale_counters_own_writes) (void);

#endif							/* PGSCALE_BASE_SERVER_COUNTERS_H */
