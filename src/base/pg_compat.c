/*-------------------------------------------------------------------------
 *
 * pg_compat.c
 *	  Adaptations to PostgreSQL's majors that are too large to be inline.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "base/pg_compat.h"

#include "pgstat.h"
#include "postmaster/bgworker_internals.h"
#include "storage/fd.h"
#include "storage/lock.h"
#include "storage/reinit.h"
#include "storage/sinvaladt.h"
#include "storage/smgr.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#if PG_VERSION_NUM >= 180000
#include "storage/aio.h"
#include "storage/aio_subsys.h"
#include "storage/io_worker.h"
#elif PG_VERSION_NUM < 160000
#include "storage/bufmgr.h"
#endif

/*
 * The shared array of all backends' status.  The server keeps it static, but
 * MyBEEntry points into it at an index that we know.  NULL in a process that
 * has no entry.
 */
PgBackendStatus *
pgscale_compat_status_array(void)
{
	if (MyBEEntry == NULL)
		return NULL;
#if PG_VERSION_NUM >= 170000
	return MyBEEntry - MyProcNumber;
#else
	if (MyBackendId == InvalidBackendId)
		return NULL;
	return MyBEEntry - (MyBackendId - 1);
#endif
}

/*
 * The status entry that belongs to a PGPROC, or NULL.
 *
 * Before 17 an ordinary backend's entry is found by its backend id, and an
 * auxiliary process' entry lies behind those at an index by its kind, which
 * its PGPROC does not tell: there are five, so look for its pid.
 */
PgBackendStatus *
pgscale_compat_status_of(PgBackendStatus *array, ProcNumber procno)
{
#if PG_VERSION_NUM >= 170000
	return &array[procno];
#else
	volatile PGPROC *proc = &ProcGlobal->allProcs[procno];
	int			pid;

	if (procno < MaxBackends)
	{
		BackendId	id = proc->backendId;

		return (id >= 1 && id <= MaxBackends) ? &array[id - 1] : NULL;
	}

	pid = proc->procLatch.owner_pid;
	for (int i = 0; pid != 0 && i < NUM_AUXPROCTYPES; i++)
	{
		volatile PgBackendStatus *status = &array[MaxBackends + i];

		if (status->st_procpid == pid)
			return &array[MaxBackends + i];
	}
	return NULL;
#endif
}

uint32
pgscale_compat_wait_event_new(const char *name)
{
#if PG_VERSION_NUM >= 170000
	return WaitEventExtensionNew(name);
#else
	return PG_WAIT_EXTENSION;
#endif
}

void
pgscale_compat_smgr_release_all(void)
{
#if PG_VERSION_NUM >= 170000
	smgrdestroyall();
#else
	smgrcloseall();
#endif
}

void
pgscale_compat_abort_io(void)
{
#if PG_VERSION_NUM >= 180000
	pgaio_error_cleanup();
#elif PG_VERSION_NUM < 160000
	AbortBufferIO();
#endif
}

#if PG_VERSION_NUM >= 160000
/*
 * Sums the pages of relations that processes of a kind have read or written in a
 * range of contexts.  18 (commit f92c854cf) counts operations, each of up to
 * io_combine_limit pages, and their bytes; before, each page counts.
 */
static int64
io_pages(const PgStat_IO *io, BackendType kind, int first, int last, IOOp op)
{
	int64		pages = 0;

	for (int context = first; context <= last; context++)
#if PG_VERSION_NUM >= 180000
		pages += io->stats[kind].bytes[IOOBJECT_RELATION][context][op] / BLCKSZ;
#else
		pages += io->stats[kind].counts[IOOBJECT_RELATION][context][op];
#endif
	return pages;
}
#endif

int64
pgscale_compat_backend_writes(TimestampTz *reset_at)
{
#if PG_VERSION_NUM >= 160000
	const PgStat_IO *io = pgstat_fetch_stat_io();

	*reset_at = io->stat_reset_timestamp;
	return io_pages(io, B_BACKEND, 0, IOCONTEXT_NUM_TYPES - 1, IOOP_WRITE) +
		io_pages(io, B_STARTUP, 0, IOCONTEXT_NUM_TYPES - 1, IOOP_WRITE);
#else
	/* Both are reset by one call, but only one has the time. */
	*reset_at = pgstat_fetch_stat_bgwriter()->stat_reset_timestamp;
	return pgstat_fetch_stat_checkpointer()->buf_written_backend;
#endif
}

void
pgscale_compat_refresh_backend_writes(void)
{
#if PG_VERSION_NUM < 160000
	/* A process that has gone meanwhile is none's latch: harmless. */
	Latch	   *latch = ProcGlobal->checkpointerLatch;

	if (latch)
		SetLatch(latch);
#endif
}

void
pgscale_compat_relpath(char *path, RelFileLocator locator, ProcNumber backend, ForkNumber fork)
{
#if PG_VERSION_NUM >= 180000
	strlcpy(path, relpathbackend(locator, backend, fork).str, MAXPGPATH);
#else
	char	   *allocated = relpathbackend(locator, backend, fork);

	strlcpy(path, allocated, MAXPGPATH);
	pfree(allocated);
#endif
}

bool
pgscale_compat_parse_relfile(const char *name, RelFileLocator *locator, ForkNumber *fork, uint32 *segment)
{
#if PG_VERSION_NUM >= 170000
	return parse_filename_for_nontemp_relation(name, &locator->relNumber, fork, segment);
#else
	int			digits;
	const char *dot = strchr(name, '.');

	if (!parse_filename_for_nontemp_relation(name, &digits, fork))
		return false;
	*segment = dot ? strtoul(dot + 1, NULL, 10) : 0;
	locator->relNumber = strtoul(name, NULL, 10);
	return true;
#endif
}

bool
pgscale_compat_direct_data(void)
{
#if PG_VERSION_NUM >= 160000
	return (io_direct_flags & IO_DIRECT_DATA) != 0;
#else
	return false;
#endif
}

bool
pgscale_compat_may_reindex(Oid index, Oid table)
{
#if PG_VERSION_NUM >= 170000
	return pg_class_aclcheck(table, GetUserId(), ACL_MAINTAIN) == ACLCHECK_OK;
#else
	return pgscale_owns_relation(index);
#endif
}

struct config_generic *
pgscale_compat_find_setting(const char *name)
{
#if PG_VERSION_NUM >= 160000
	return find_option(name, false, true, DEBUG5);
#else
	struct config_generic **all = get_guc_variables();
	char	   *wanted = convert_GUC_name_for_parameter_acl(name);	/* knows old names */

	for (int i = 0; i < GetNumConfigOptions(); i++)
		if (pg_strcasecmp(all[i]->name, wanted) == 0)
			return all[i];
	return NULL;
#endif
}

void
pgscale_compat_each_setting(void (*each) (const char *name, void *arg), void *arg)
{
#if PG_VERSION_NUM >= 160000
	int			n;
	struct config_generic **all = get_guc_variables(&n);
#else
	const int	n = GetNumConfigOptions();
	struct config_generic **all = get_guc_variables();
#endif

	for (int i = 0; i < n; i++)
		each(all[i]->name, arg);
#if PG_VERSION_NUM >= 160000
	pfree(all);
#endif
}

int
pgscale_compat_io_workers(void)
{
#if PG_VERSION_NUM >= 190000
	return io_method == IOMETHOD_WORKER ? io_max_workers : 0;
#elif PG_VERSION_NUM >= 180000
	return io_method == IOMETHOD_WORKER ? io_workers : 0;
#else
	return 0;
#endif
}

bool
pgscale_compat_setting_knows(const char *name, const char *value)
{
	struct config_generic *record = pgscale_compat_find_setting(name);
	int			number;

	return record && config_enum_lookup_by_name((struct config_enum *) pgscale_compat_of_enum(record), value, &number);
}

static void
read_backend_io(PgscaleStats *stats)
{
#if PG_VERSION_NUM >= 160000
	const PgStat_IO *io = pgstat_fetch_stat_io();
	const int	rings[] = {IOCONTEXT_BULKREAD, IOCONTEXT_BULKWRITE, IOCONTEXT_VACUUM};

	stats->backend_buffers = io_pages(io, B_BACKEND, IOCONTEXT_NORMAL, IOCONTEXT_NORMAL, IOOP_WRITE);
	for (int context = 0; context < IOCONTEXT_NUM_TYPES; context++)
		stats->backend_fsyncs += io->stats[B_BACKEND].counts[IOOBJECT_RELATION][context][IOOP_FSYNC];
	for (int i = 0; i < lengthof(rings); i++)
	{
		/* a parallel worker is a background worker */
		stats->backend_ring_buffers += io_pages(io, B_BACKEND, rings[i], rings[i], IOOP_WRITE) +
			io_pages(io, B_BG_WORKER, rings[i], rings[i], IOOP_WRITE);
		for (int kind = 0; kind < BACKEND_NUM_TYPES; kind++)
			stats->backend_ring_reads += io_pages(io, kind, rings[i], rings[i], IOOP_READ);
	}
#if PG_VERSION_NUM >= 180000
	for (int kind = 0; kind < BACKEND_NUM_TYPES; kind++)
		for (int context = 0; context < IOCONTEXT_NUM_TYPES; context++)
			stats->reads += io->stats[kind].counts[IOOBJECT_RELATION][context][IOOP_READ];
#else
	stats->reads = -1;
#endif
#else
	const PgStat_CheckpointerStats *checkpointer = pgstat_fetch_stat_checkpointer();

	stats->backend_buffers = checkpointer->buf_written_backend;
	stats->backend_fsyncs = checkpointer->buf_fsync_backend;
	stats->backend_ring_buffers = stats->backend_ring_reads = stats->reads = -1;
#endif
}

static void
read_wal(PgscaleStats *stats)
{
	const PgStat_WalStats *wal = pgstat_fetch_stat_wal();

#if PG_VERSION_NUM >= 180000
	const PgStat_IO *io = pgstat_fetch_stat_io();

	stats->wal_records = wal->wal_counters.wal_records;
	stats->wal_pages = wal->wal_counters.wal_fpi;
	stats->wal_bytes = wal->wal_counters.wal_bytes;
	stats->wal_buffers_full = wal->wal_counters.wal_buffers_full;
#if PG_VERSION_NUM >= 190000
	stats->wal_page_bytes = wal->wal_counters.wal_fpi_bytes;
#else
	stats->wal_page_bytes = -1;
#endif
	for (int kind = 0; kind < BACKEND_NUM_TYPES; kind++)
	{
		const PgStat_BktypeIO *of = &io->stats[kind];

		stats->wal_writes += of->counts[IOOBJECT_WAL][IOCONTEXT_NORMAL][IOOP_WRITE];
		stats->wal_written_bytes += of->bytes[IOOBJECT_WAL][IOCONTEXT_NORMAL][IOOP_WRITE];
		stats->wal_write_us += of->times[IOOBJECT_WAL][IOCONTEXT_NORMAL][IOOP_WRITE];
		stats->wal_syncs += of->counts[IOOBJECT_WAL][IOCONTEXT_NORMAL][IOOP_FSYNC];
		stats->wal_sync_us += of->times[IOOBJECT_WAL][IOCONTEXT_NORMAL][IOOP_FSYNC];
	}
#else
	stats->wal_records = wal->wal_records;
	stats->wal_pages = wal->wal_fpi;
	stats->wal_page_bytes = -1;
	stats->wal_bytes = wal->wal_bytes;
	stats->wal_buffers_full = wal->wal_buffers_full;
	stats->wal_writes = wal->wal_write;
	stats->wal_written_bytes = -1;
	stats->wal_write_us = wal->wal_write_time;
	stats->wal_syncs = wal->wal_sync;
	stats->wal_sync_us = wal->wal_sync_time;
#endif
}

static void
read_lock_stats(PgscaleStats *stats)
{
#if PG_VERSION_NUM >= 190000
	const		PgStat_LockEntry *counts = pgstat_fetch_stat_lock()->stats;
#endif

	for (int type = 0; type <= LOCKTAG_LAST_TYPE; type++)
	{
#if PG_VERSION_NUM >= 190000
		stats->lock_waits[type] = counts[type].waits;
		stats->lock_wait_us[type] = counts[type].wait_time;
		stats->fast_path_exceeded[type] = counts[type].fastpath_exceeded;
#else
		stats->lock_waits[type] = stats->lock_wait_us[type] = stats->fast_path_exceeded[type] = -1;
#endif
	}
}

void
pgscale_compat_stats_read(PgscaleStats *stats)
{
	const PgStat_CheckpointerStats *checkpointer = pgstat_fetch_stat_checkpointer();

	memset(stats, 0, sizeof(*stats));
#if PG_VERSION_NUM >= 170000
	stats->checkpoints_timed = checkpointer->num_timed;
	stats->checkpoints_requested = checkpointer->num_requested;
	stats->checkpoint_buffers = checkpointer->buffers_written;
	stats->checkpoint_write_ms = checkpointer->write_time;
	stats->checkpoint_sync_ms = checkpointer->sync_time;
#else
	stats->checkpoints_timed = checkpointer->timed_checkpoints;
	stats->checkpoints_requested = checkpointer->requested_checkpoints;
	stats->checkpoint_buffers = checkpointer->buf_written_checkpoints;
	stats->checkpoint_write_ms = checkpointer->checkpoint_write_time;
	stats->checkpoint_sync_ms = checkpointer->checkpoint_sync_time;
#endif
	read_backend_io(stats);
	read_wal(stats);
	read_lock_stats(stats);
}

bool
pgscale_compat_database_stats_read(Oid database, PgscaleDatabaseStats *stats)
{
	const PgStat_StatDBEntry *entry = pgstat_fetch_stat_dbentry(database);

	if (!entry)
		return false;
	stats->commits = entry->xact_commit;
	stats->rollbacks = entry->xact_rollback;
#if PG_VERSION_NUM >= 160000
	stats->blocks_hit = entry->blocks_hit;
	stats->blocks_read = entry->blocks_fetched - entry->blocks_hit;
	stats->temp_bytes = entry->temp_bytes;
	stats->deadlocks = entry->deadlocks;
#else
	stats->blocks_hit = entry->n_blocks_hit;
	stats->blocks_read = entry->n_blocks_fetched - entry->n_blocks_hit;
	stats->temp_bytes = entry->n_temp_bytes;
	stats->deadlocks = entry->n_deadlocks;
#endif
	return true;
}

#if PG_VERSION_NUM >= 180000
#define each_worker(iter)	dlist_foreach(iter, &BackgroundWorkerList)
#define worker_of(iter)		dlist_container(RegisteredBgWorker, rw_lnode, (iter).cur)
typedef dlist_iter WorkerIter;
#else
#define each_worker(iter)	slist_foreach(iter, &BackgroundWorkerList)
#define worker_of(iter)		slist_container(RegisteredBgWorker, rw_lnode, (iter).cur)
typedef slist_iter WorkerIter;
#endif

bool
pgscale_compat_worker_is_registered(const char *name)
{
	WorkerIter	iter;

	each_worker(iter)
	{
		if (strcmp(worker_of(iter)->rw_worker.bgw_name, name) == 0)
			return true;
	}
	return false;
}

/* 19 has a member of its own for the queue of a lock. */
#if PG_VERSION_NUM >= 190000
#define WAIT_LINK	waitLink
#else
#define WAIT_LINK	links
#endif

#if PG_VERSION_NUM >= 160000
static dlist_node *
next_in_list(dlist_head *list, dlist_node *previous)
{
	if (previous == NULL)
		return dlist_is_empty(list) ? NULL : dlist_head_node(list);
	return dlist_has_next(list, previous) ? dlist_next_node(list, previous) : NULL;
}

PGPROC *
pgscale_compat_next_waiter(LOCK *lock, PGPROC *previous)
{
	dlist_node *node = next_in_list(&lock->waitProcs.dlist, previous ? &previous->WAIT_LINK : NULL);

	return node ? dlist_container(PGPROC, WAIT_LINK, node) : NULL;
}

PROCLOCK *
pgscale_compat_next_holder(LOCK *lock, PROCLOCK *previous)
{
	dlist_node *node = next_in_list(&lock->procLocks, previous ? &previous->lockLink : NULL);

	return node ? dlist_container(PROCLOCK, lockLink, node) : NULL;
}

PROCLOCK *
pgscale_compat_earlier_held(PGPROC *proc, int partition, PROCLOCK *later)
{
	dlist_head *list = &proc->myProcLocks[partition];
	dlist_node *node = later ? &later->procLink : &list->head;

	if (dlist_is_empty(list) || node->prev == &list->head)
		return NULL;
	return dlist_container(PROCLOCK, procLink, node->prev);
}
#else
PGPROC *
pgscale_compat_next_waiter(LOCK *lock, PGPROC *previous)
{
	SHM_QUEUE  *list = &lock->waitProcs.links;

	return (PGPROC *) SHMQueueNext(list, previous ? &previous->links : list, offsetof(PGPROC, links));
}

PROCLOCK *
pgscale_compat_next_holder(LOCK *lock, PROCLOCK *previous)
{
	SHM_QUEUE  *list = &lock->procLocks;

	return (PROCLOCK *) SHMQueueNext(list, previous ? &previous->lockLink : list, offsetof(PROCLOCK, lockLink));
}

PROCLOCK *
pgscale_compat_earlier_held(PGPROC *proc, int partition, PROCLOCK *later)
{
	SHM_QUEUE  *list = &proc->myProcLocks[partition];

	return (PROCLOCK *) SHMQueuePrev(list, later ? &later->procLink : list, offsetof(PROCLOCK, procLink));
}
#endif

#if PG_VERSION_NUM >= 170000
int
pgscale_compat_vxid_slot(const VirtualTransactionId *vxid)
{
	return vxid->procNumber == INVALID_PROC_NUMBER ? -1 : vxid->procNumber;
}
#else
int
pgscale_compat_vxid_slot(const VirtualTransactionId *vxid)
{
	const PGPROC *proc = vxid->backendId == InvalidBackendId ? NULL : BackendIdGetProc(vxid->backendId);

	return proc ? proc->pgprocno : -1;
}
#endif

const PgscaleLwlockLayout pgscale_compat_lwlock = {
#if PG_VERSION_NUM >= 190000
	.unused = 0,
#elif PG_VERSION_NUM >= 180000
	.unused = (uint32) 1 << 30,
#else
	.unused = (uint32) 1 << 29,
#endif
#if PG_VERSION_NUM >= 180000
	.waited = (uint32) 1 << 31,
	.exclusive = (uint32) 1 << 18,
	.shared = ((uint32) 1 << 18) - 1
#else
	.waited = (uint32) 1 << 30,
	.exclusive = (uint32) 1 << 24,
	.shared = ((uint32) 1 << 24) - 1
#endif
};
