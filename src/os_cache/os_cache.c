/*-------------------------------------------------------------------------
 *
 * os_cache.c
 *	  Relations in the kernel's page cache: how much of each is cached, is in shared
 *	  buffers as well, or must still be written to disk.
 *
 * Reading takes no lock on a relation, because a session that waits for such a lock or
 * holds one for long is exactly what a DBA wants to examine. pg_class is read by its
 * own scan.  Files are opened by path, one at a time; a missing file belongs to a
 * relation that was dropped or rewritten meanwhile.  So each row is true of its file at
 * some moment of the call, not of all files at one moment.
 *
 * In both.  The blocks of a file in shared buffers are sorted, and the kernel is asked
 * about each run of neighbours, unless it caches all of the file or nothing.
 *
 * Acting: os_cache_flush() locks the relation as a reader does, because it uses smgr.
 * os_cache_evict() only gives the kernel a hint and takes no lock.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_tablespace_d.h"
#include "executor/instrument.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/fd.h"
#include "storage/smgr.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/relmapper.h"
#include "utils/syscache.h"

#include "base/kernel.h"
#include "base/pg_compat.h"
#include "base/relation_files.h"
#include "base/row_builder.h"
#include "os_cache/os_cache.h"

/* What the kernel is asked to begin in one call, in blocks. */
#define WRITEBACK_BLOCKS	(4 * 1024 * 1024 / BLCKSZ)

PG_FUNCTION_INFO_V1(pgscale_relation_os_cache);
PG_FUNCTION_INFO_V1(pgscale_os_cache_flush);
PG_FUNCTION_INFO_V1(pgscale_os_cache_evict);

/* A relation's storage, as its row of pg_class had it. */
typedef struct Storage
{
	Oid			relation;
	RelFileLocator locator;
	ProcNumber	backend;
} Storage;

/* One fork of it, or what was added up of its segments so far. */
typedef struct Fork
{
	int64		size;
	int64		buffers;
	int64		both;
	PgscaleCached kernel;
	bool		known;			/* did the kernel report it? */
} Fork;

/* Of a temporary relation of another session only that one knows the pages. */
static bool
others_temp(Form_pg_class class)
{
	return class->relpersistence == RELPERSISTENCE_TEMP && !isTempOrTempToastNamespace(class->relnamespace);
}

static void
check_storage(Form_pg_class class)
{
	if (!RELKIND_HAS_STORAGE(class->relkind))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("relation \"%s\" has no storage", NameStr(class->relname)),
				 errdetail_relkind_not_supported(class->relkind),
				 errhint("Name a table, index, materialized view or sequence; if it is partitioned, name its "
						 "partitions.")));
	if (others_temp(class))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("relation \"%s\" is a temporary one of another session", NameStr(class->relname)),
				 errhint("Call it in the session that created it.")));
}

static void
os_cache_raise_no_relation(Oid oid)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_TABLE),
			 errmsg("relation with OID %u does not exist", oid),
			 errhint("Name a relation of the database that you are connected to.")));
}

/* Where it is stored: the logic of RelationInitPhysicalAddr(). */
static Storage
storage_of(Form_pg_class class)
{
	Storage		storage;

	storage.relation = class->oid;
	storage.locator.spcOid = OidIsValid(class->reltablespace) ? class->reltablespace : MyDatabaseTableSpace;
	storage.locator.dbOid = storage.locator.spcOid == GLOBALTABLESPACE_OID ? InvalidOid : MyDatabaseId;
	storage.locator.relNumber = OidIsValid(class->relfilenode) ? class->relfilenode :
		RelationMapOidToFilenumber(class->oid, class->relisshared);
	storage.backend = class->relpersistence == RELPERSISTENCE_TEMP ?
		ProcNumberForTempRelations() : INVALID_PROC_NUMBER;
	return storage;
}

static Storage
named_storage(Oid oid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(oid));
	Storage		storage;

	if (!HeapTupleIsValid(tuple))
		os_cache_raise_no_relation(oid);
	check_storage((Form_pg_class) GETSTRUCT(tuple));
	storage = storage_of((Form_pg_class) GETSTRUCT(tuple));
	ReleaseSysCache(tuple);
	return storage;
}

/*
 * That of all relations of this database.  Returns how many; pg_class is left
 * before any file is read.
 */
static int
all_storage(Storage **all)
{
	Relation	pg_class = table_open(RelationRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(pg_class, InvalidOid, false, NULL, 0, NULL);
	int			room = 1024;
	int			n = 0;
	HeapTuple	tuple;

	*all = palloc(room * sizeof(Storage));
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_class class = (Form_pg_class) GETSTRUCT(tuple);

		if (!RELKIND_HAS_STORAGE(class->relkind) || others_temp(class))
			continue;
		if (n == room)
			*all = repalloc_huge(*all, (room *= 2) * sizeof(Storage));
		(*all)[n++] = storage_of(class);
	}
	systable_endscan(scan);
	table_close(pg_class, AccessShareLock);
	return n;
}

/*
 * Opens a segment and returns its size in *size.  Returns -1 if there is none, also
 * beyond a segment that is not full: such a file was truncated, and waits to be
 * removed.
 */
static int
open_segment(const Storage *storage, ForkNumber fork, uint32 segment, int64 previous_size, int64 *size)
{
	char		path[MAXPGPATH];
	struct stat file;
	int			fd;

	if (segment > 0 && previous_size < PGSCALE_SEGMENT_BYTES)
		return -1;
	pgscale_relation_file_path(path, storage->locator, storage->backend, fork, segment);
	fd = pgscale_relation_file_open(path);
	if (fd < 0 && errno == ENOENT)
		return -1;
	if (fd < 0 || fstat(fd, &file) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not %s file \"%s\": %m", fd < 0 ? "open" : "stat", path)));
	*size = file.st_size;
	return fd;
}

/*
 * The number of the given blocks of a file that the kernel caches, -1 if unknown.
 * Blocks count from the file's beginning.
 */
static int64
cached_of_blocks(int fd, const BlockNumber *blocks, uint32 n, BlockNumber base)
{
	int64		sum = 0;
	uint32		run;

	for (uint32 i = 0; i < n; i += run)
	{
		PgscaleCached cached;

		for (run = 1; i + run < n && blocks[i + run] == blocks[i] + run;)
			run++;
		CHECK_FOR_INTERRUPTS();
		if (!pgscale_kernel_cached(fd, (off_t) (blocks[i] - base) * BLCKSZ, (off_t) run * BLCKSZ, &cached))
			return -1;
		sum += cached.cached;
	}
	return sum;
}

/*
 * Adds a segment to what is known of its fork; blocks are those of the segment
 * that shared buffers hold.
 */
static void
add_segment(Fork *fork, int fd, int64 size, const BlockNumber *blocks, uint32 n, BlockNumber base)
{
	PgscaleCached cached;
	int64		both;

	fork->size += size;
	fork->buffers += (int64) n * BLCKSZ;
	if (size == 0 || !fork->known)
		return;
	if (!pgscale_kernel_cached(fd, 0, size, &cached))
	{
		fork->known = false;
		return;
	}
	/* A file may end within a page of the kernel. */
	cached.cached = Min(cached.cached, size);
	if (cached.cached == 0)
		both = 0;
	else if (cached.cached == size)
		both = (int64) n * BLCKSZ;
	else
		both = cached_of_blocks(fd, blocks, n, base);
	fork->known = both >= 0;
	fork->both += both;
	fork->kernel.cached += cached.cached;
	fork->kernel.dirty += Min(cached.dirty, size);
	fork->kernel.writeback += Min(cached.writeback, size);
}

/* False if the fork does not exist. */
static bool
read_fork(const Storage *storage, ForkNumber number, PgscaleOsCacheBlocks *in_buffers, Fork *fork)
{
	BlockNumber *blocks = NULL;
	uint32		n = 0;
	uint32		segment = 0;
	int64		size = 0;
	int			fd;

	/* A temporary relation may have the number of a permanent one. */
	if (storage->backend == INVALID_PROC_NUMBER)
		n = pgscale_os_cache_blocks_of(in_buffers, storage->locator, number, &blocks);
	memset(fork, 0, sizeof(Fork));
	fork->known = true;

	while ((fd = open_segment(storage, number, segment, size, &size)) >= 0)
	{
		const BlockNumber base = segment * (BlockNumber) RELSEG_SIZE;
		uint32		here = 0;

		while (here < n && blocks[here] - base < size / BLCKSZ)
			here++;
		add_segment(fork, fd, size, blocks, here, base);
		CloseTransientFile(fd);
		blocks += here;
		n -= here;
		segment++;
	}
	return segment > 0;
}

static void
put_fork(ReturnSetInfo *rsinfo, const Storage *storage, ForkNumber number, const Fork *fork)
{
	const bool	unmarked = !fork->known || fork->kernel.dirty < 0;
	PgscaleRow	row = {0};

	pgscale_row_oid(&row, storage->relation);
	pgscale_row_text(&row, forkNames[number]);
	pgscale_row_int8(&row, fork->size);
	pgscale_row_int8(&row, fork->buffers);
	pgscale_row_put(&row, Int64GetDatum(fork->kernel.cached), !fork->known);
	pgscale_row_put(&row, Int64GetDatum(fork->both), !fork->known);
	pgscale_row_put(&row, Int64GetDatum(fork->kernel.dirty), unmarked);
	pgscale_row_put(&row, Int64GetDatum(fork->kernel.writeback), unmarked);
	pgscale_row_end(&row, rsinfo);
}

/* pgscale_internal.relation_os_cache(relation): one row a fork; NULL: of all relations. */
Datum
pgscale_relation_os_cache(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Storage		named;
	Storage    *storage = &named;
	int			n = 1;
	PgscaleOsCacheBlocks *in_buffers;

	InitMaterializedSRF(fcinfo, 0);
	if (PG_ARGISNULL(0))
		n = all_storage(&storage);
	else
		named = named_storage(PG_GETARG_OID(0));
	in_buffers = pgscale_os_cache_blocks_collect(PG_ARGISNULL(0) ? NULL : &named.locator);

	for (int i = 0; i < n; i++)
		for (ForkNumber number = 0; number <= MAX_FORKNUM; number++)
		{
			Fork		fork;

			CHECK_FOR_INTERRUPTS();
			if (read_fork(&storage[i], number, in_buffers, &fork))
				put_fork(rsinfo, &storage[i], number, &fork);
			else if (number == MAIN_FORKNUM)
				break;
		}
	return (Datum) 0;
}

/* Writes what is dirty in shared, or the session's own, buffers; bytes. */
static int64
flush_buffers(Relation relation)
{
	const int64 shared_before = pgBufferUsage.shared_blks_written;
	int			local = 0;

	if (RelationUsesLocalBuffers(relation))
		local = pgscale_buffers_local_dirty(relation->rd_locator);
	FlushRelationBuffers(relation);
	return (pgBufferUsage.shared_blks_written - shared_before + local) * BLCKSZ;
}

/*
 * Has the kernel begin to write a fork to disk.  The size is asked for each
 * time since that is what opens the segments, and an interrupt may close them.
 */
static void
begin_writing(Relation relation, ForkNumber number)
{
	BlockNumber blocks;

	for (BlockNumber block = 0; block < (blocks = smgrnblocks(RelationGetSmgr(relation), number));)
	{
		const BlockNumber n = Min(WRITEBACK_BLOCKS, blocks - block);

		smgrwriteback(RelationGetSmgr(relation), number, block, n);
		block += n;
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * pgscale.os_cache_flush(relation, wait): the bytes of its dirty buffers that
 * it wrote.  With wait, all that the kernel has of it is on disk afterwards.
 */
Datum
pgscale_os_cache_flush(PG_FUNCTION_ARGS)
{
	const Oid	oid = PG_GETARG_OID(0);
	const bool	wait = PG_GETARG_BOOL(1);
	Relation	relation = try_relation_open(oid, AccessShareLock);
	int64		written;

	if (!relation)
		os_cache_raise_no_relation(oid);
	check_storage(relation->rd_rel);
	if (!wait && enableFsync && !pgscale_kernel_may_begin_writes())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("the kernel or the container does not let this server call sync_file_range, which begins writing"),
				 errhint("With wait => true it is not called.")));
	written = flush_buffers(relation);

	for (ForkNumber number = 0; number <= MAX_FORKNUM && !RelationUsesLocalBuffers(relation); number++)
	{
		if (!smgrexists(RelationGetSmgr(relation), number))
			continue;
		if (wait)
			smgrimmedsync(RelationGetSmgr(relation), number);
		else if (!pgscale_compat_direct_data())
			begin_writing(relation, number);
		CHECK_FOR_INTERRUPTS();
	}
	relation_close(relation, AccessShareLock);
	PG_RETURN_INT64(written);
}

/* Adds to *evicted how many bytes of a fork left the kernel's cache.  Returns false if unknown. */
static bool
evict_fork(const Storage *storage, ForkNumber number, int64 *evicted)
{
	bool		known = true;
	int64		size = 0;
	int			fd;

	for (uint32 segment = 0; (fd = open_segment(storage, number, segment, size, &size)) >= 0; segment++)
	{
		PgscaleCached before;
		PgscaleCached after;

		known &= pgscale_kernel_cached(fd, 0, 0, &before);
		pgscale_kernel_evict(fd);
		known &= pgscale_kernel_cached(fd, 0, 0, &after);
		CloseTransientFile(fd);
		if (known)
			*evicted += before.cached - after.cached;
		CHECK_FOR_INTERRUPTS();
	}
	return known;
}

/*
 * pgscale.os_cache_evict(relation): the bytes by which the kernel's cache has shrunk,
 * NULL if unknown.
 */
Datum
pgscale_os_cache_evict(PG_FUNCTION_ARGS)
{
	const Storage storage = named_storage(PG_GETARG_OID(0));
	int64		evicted = 0;
	bool		known = true;

	for (ForkNumber number = 0; number <= MAX_FORKNUM; number++)
		known &= evict_fork(&storage, number, &evicted);
	if (!known)
		PG_RETURN_NULL();
	/* Others may have read more meanwhile. */
	PG_RETURN_INT64(Max(evicted, 0));
}

static void
os_cache_health(PgscaleHealth *health)
{
	const char *why;

	health->state = PGSCALE_HEALTH_IDLE;
	if (pgscale_kernel_reports_dirty(&why))
		health->reason = "asks the kernel by cachestat";
	else
	{
		health->reason = psprintf("asks the kernel by mincore, which does not report dirty pages: %s", why);
		health->action = "run Linux 6.5 or later, and allow the system call cachestat";
	}
}

/* What relation_os_cache() asks of other features, in SQL. */
static const char *const asks[] = {"pgscale_internal.relation_buffers", NULL};

const PgscaleModule pgscale_os_cache_module = {
	.name = "os_cache",
	.asks = asks,
	.health = os_cache_health
};
