/*-------------------------------------------------------------------------
 *
 * server_counters.c
 *	  The server's cumulative statistics, readable in any process.
 *
 * The statistics are in shared memory.  The server's functions copy each requested
 * entry, or all entries at once, into a snapshot that lasts until the end of the
 * transaction.  A background worker has no transaction, so the snapshot is discarded
 * before and after.
 *
 * Locking: the server's, of one entry at a time.  Backends report at most once a
 * second, and when they become idle, so two readings must be seconds apart.
 *
 * Failure: an error, such as out of memory, goes to the caller.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "pgstat.h"
#include "storage/lock.h"

#include "base/pg_compat.h"
#include "base/server_counters.h"

/*
 * Statistics as of now, only of the requested objects: copying those of all the
 * server's tables, which stats_fetch_consistency may request, takes too long.  Returns
 * the argument for end_reading(), which the caller must call after an error, too.
 * Otherwise the session would keep reading in this way.
 */
static int
begin_reading(void)
{
	int			consistency = pgstat_fetch_consistency;

	pgstat_clear_snapshot();
	pgstat_fetch_consistency = PGSTAT_FETCH_CONSISTENCY_CACHE;
	return consistency;
}

static void
end_reading(int consistency)
{
	pgstat_fetch_consistency = consistency;
	pgstat_clear_snapshot();
}

/* Counts of a database when it was last looked at; in the place that it has in the caller's list. */
typedef struct Seen
{
	Oid			database;		/* invalid: not yet */
	PgscaleDatabaseStats stats;
} Seen;

static Seen seen[PGSCALE_DATABASES];

/* By all databases, each from when it was first looked at. */
static PgscaleDatabaseStats counted;

/*
 * A count after the server's went from before to after.  It falls by a reset, as
 * a caller has to see, but not below 0, which would mean that it is not counted:
 * the server's may have been any number when it was first read.
 */
static int64
count_on(int64 count, int64 before, int64 after)
{
	return Max(count + after - before, 0);
}

static void
count_difference(const PgscaleDatabaseStats *before, const PgscaleDatabaseStats *after)
{
	counted.commits = count_on(counted.commits, before->commits, after->commits);
	counted.rollbacks = count_on(counted.rollbacks, before->rollbacks, after->rollbacks);
	counted.blocks_read = count_on(counted.blocks_read, before->blocks_read, after->blocks_read);
	counted.blocks_hit = count_on(counted.blocks_hit, before->blocks_hit, after->blocks_hit);
	counted.temp_bytes = count_on(counted.temp_bytes, before->temp_bytes, after->temp_bytes);
	counted.deadlocks = count_on(counted.deadlocks, before->deadlocks, after->deadlocks);
}

/*
 * The past of a new database must not count as now, and a dropped one must not subtract
 * anything: where databases come and go all the time, a plain sum of their counts would
 * be meaningless.
 */
static void
count_databases(const Oid *databases, int ndatabases)
{
	for (int i = 0; i < Min(ndatabases, PGSCALE_DATABASES); i++)
	{
		PgscaleDatabaseStats stats;

		/* false for one that has been dropped */
		if (!pgscale_compat_database_stats_read(databases[i], &stats))
		{
			seen[i].database = InvalidOid;
			continue;
		}
		if (seen[i].database == databases[i])
			count_difference(&seen[i].stats, &stats);
		seen[i].database = databases[i];
		seen[i].stats = stats;
	}
}

int
pgscale_counters_see_database(PgscaleDatabases *databases, Oid database)
{
	int			i = databases->latest;

	if (!OidIsValid(database))
		return -1;
	if (i >= databases->n || databases->oids[i] != database)
	{
		int			oldest = 0;

		for (i = 0; i < databases->n && databases->oids[i] != database; i++)
			if (databases->seen_in[i] < databases->seen_in[oldest])
				oldest = i;
		if (i == PGSCALE_DATABASES)
		{
			i = oldest;
			if (databases->seen_in[i] == databases->period)
				return -1;
			databases->oids[i] = database;
		}
		else if (i == databases->n)
			databases->oids[databases->n++] = database;
		databases->latest = i;
	}
	databases->seen_in[i] = databases->period;
	return i;
}

int64
pgscale_counters_transactions(const Oid *databases, int ndatabases)
{
	int			consistency = begin_reading();

	PG_TRY();
	{
		count_databases(databases, ndatabases);
	}
	PG_FINALLY();
	{
		end_reading(consistency);
	}
	PG_END_TRY();
	return counted.commits + counted.rollbacks;
}

int64
pgscale_counters_allocations(void)
{
	int			consistency = begin_reading();
	int64		allocations = 0;

	PG_TRY();
	{
		allocations = pgstat_fetch_stat_bgwriter()->buf_alloc;
	}
	PG_FINALLY();
	{
		end_reading(consistency);
	}
	PG_END_TRY();
	return allocations;
}

static void
read_databases(PgscaleCounters *counters, const Oid *databases, int ndatabases)
{
	count_databases(databases, ndatabases);
	counters->commits = counted.commits;
	counters->rollbacks = counted.rollbacks;
	counters->blocks_read = counted.blocks_read;
	counters->blocks_hit = counted.blocks_hit;
	counters->temp_bytes = counted.temp_bytes;
	counters->deadlocks = counted.deadlocks;
}

uint64		(*pgscale_counters_own_writes) (void) = NULL;

static void
count_backend_writes(PgscaleBackendWrites *count, int64 server, TimestampTz reset_at)
{
	const bool	reset = reset_at > count->reset_at;
	const int64 own = PGSCALE_BACKENDS_WITH_WORKERS && pgscale_counters_own_writes ? (int64) pgscale_counters_own_writes() : 0;
	int64		more = server - count->server - (own - count->own);

	/* This transaction's snapshot is older than the latest look. */
	if (!reset && (reset_at < count->reset_at || server < count->server))
		return;
	/* Of pgscale's own some may have been counted before the reset. */
	if (reset)
		more = Max(server - (own - count->own), 0);
	count->balance += more;
	count->writes = Max(count->writes, count->balance);
	count->server = server;
	count->own = own;
	count->reset_at = reset_at;
}

static int64
read_backend_writes_anew(TimestampTz *reset_at)
{
	int			consistency = begin_reading();
	volatile int64 writes = 0;

	PG_TRY();
	{
		writes = pgscale_compat_backend_writes(reset_at);
	}
	PG_FINALLY();
	{
		end_reading(consistency);
	}
	PG_END_TRY();
	return writes;
}

int64
pgscale_counters_backend_writes(PgscaleBackendWrites *count, LWLock *lock, bool anew)
{
	TimestampTz reset_at;
	const int64 server = anew ? read_backend_writes_anew(&reset_at) : pgscale_compat_backend_writes(&reset_at);
	int64		writes;

	if (lock)
		LWLockAcquire(lock, LW_EXCLUSIVE);
	count_backend_writes(count, server, reset_at);
	writes = count->writes;
	if (lock)
		LWLockRelease(lock);
	return writes;
}

static void
read_slru(const char *name, int64 *hits, int64 *reads)
{
	const PgStat_SLRUStats *stats = &pgstat_fetch_slru()[pgstat_get_slru_index(name)];

	*hits = stats->blocks_hit;
	*reads = stats->blocks_read;
}

static PgscaleLockType
lock_type(LockTagType type)
{
	switch (type)
	{
		case LOCKTAG_RELATION_EXTEND:
			return PGSCALE_LOCK_EXTEND;
		case LOCKTAG_TRANSACTION:
			return PGSCALE_LOCK_TRANSACTION;
		case LOCKTAG_TUPLE:
			return PGSCALE_LOCK_TUPLE;
		case LOCKTAG_RELATION:
			return PGSCALE_LOCK_RELATION;
		case LOCKTAG_ADVISORY:
			return PGSCALE_LOCK_ADVISORY;
		default:
			return PGSCALE_LOCK_OTHER;
	}
}

/* -1 stands for each count that there is not, and no sum falls below it. */
static void
read_locks(PgscaleCounters *counters, const PgscaleStats *stats)
{
	for (int type = 0; type <= LOCKTAG_LAST_TYPE; type++)
	{
		const PgscaleLockType to = lock_type((LockTagType) type);

		counters->lock_waits[to] = Max(counters->lock_waits[to] + stats->lock_waits[type], -1);
		counters->lock_wait_us[to] = Max(counters->lock_wait_us[to] + stats->lock_wait_us[type], -1);
		counters->fast_path_exceeded = Max(counters->fast_path_exceeded + stats->fast_path_exceeded[type], -1);
	}
}

static void
read_all(PgscaleCounters *counters, const Oid *databases, int ndatabases)
{
	static PgscaleBackendWrites backend_writes;
	const PgStat_BgWriterStats *bgwriter = pgstat_fetch_stat_bgwriter();
	PgscaleStats stats;

	memset(counters, 0, sizeof(*counters));
	read_databases(counters, databases, ndatabases);

	pgscale_compat_stats_read(&stats);
	counters->checkpoints_timed = stats.checkpoints_timed;
	counters->checkpoints_requested = stats.checkpoints_requested;
	counters->checkpoint_buffers = stats.checkpoint_buffers;
	counters->checkpoint_write_ms = stats.checkpoint_write_ms;
	counters->checkpoint_sync_ms = stats.checkpoint_sync_ms;
	counters->bgwriter_buffers = bgwriter->buf_written_clean;
	counters->bgwriter_stopped = bgwriter->maxwritten_clean;
	counters->buffers_allocated = bgwriter->buf_alloc;
	counters->backend_buffers = PGSCALE_BACKENDS_WITH_WORKERS ?
		pgscale_counters_backend_writes(&backend_writes, NULL, false) : stats.backend_buffers;
	counters->sweeper_buffers = pgscale_counters_own_writes ? (int64) pgscale_counters_own_writes() : 0;
	counters->backend_ring_buffers = stats.backend_ring_buffers;
	counters->backend_ring_reads = stats.backend_ring_reads;
	counters->reads = stats.reads;
	counters->backend_fsyncs = stats.backend_fsyncs;
	counters->wal_records = stats.wal_records;
	counters->wal_pages = stats.wal_pages;
	counters->wal_page_bytes = stats.wal_page_bytes;
	counters->wal_bytes = stats.wal_bytes;
	counters->wal_buffers_full = stats.wal_buffers_full;
	counters->wal_writes = stats.wal_writes;
	counters->wal_written_bytes = stats.wal_written_bytes;
	counters->wal_syncs = stats.wal_syncs;
	counters->wal_write_us = stats.wal_write_us;
	counters->wal_sync_us = stats.wal_sync_us;
	counters->wal_position = RecoveryInProgress() ? -1 : (int64) GetXLogWriteRecPtr();

	read_slru(PGSCALE_SLRU_XACT, &counters->xact_hits, &counters->xact_reads);
	read_slru(PGSCALE_SLRU_SUBTRANS, &counters->subtrans_hits, &counters->subtrans_reads);
	read_slru(PGSCALE_SLRU_OFFSET, &counters->offset_hits, &counters->offset_reads);
	read_slru(PGSCALE_SLRU_MEMBER, &counters->member_hits, &counters->member_reads);
	read_locks(counters, &stats);
}

void
pgscale_counters_read(PgscaleCounters *counters, const Oid *databases, int ndatabases)
{
	int			consistency = begin_reading();

	PG_TRY();
	{
		read_all(counters, databases, ndatabases);
	}
	PG_FINALLY();
	{
		end_reading(consistency);
	}
	PG_END_TRY();
}
