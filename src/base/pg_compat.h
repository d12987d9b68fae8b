/*-------------------------------------------------------------------------
 *
 * pg_compat.h
 *	  The only file that knows PostgreSQL's major versions.
 *
 * The rest of pgscale is written in terms of PostgreSQL 19.  What an older
 * major lacks, names otherwise or lays out otherwise is adapted here, each
 * adaptation with the reason.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_PG_COMPAT_H
#define PGSCALE_BASE_PG_COMPAT_H

#include "postgres.h"

#include "catalog/pg_class.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_tablespace.h"
#include "common/relpath.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/backend_status.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 200000
#error "pgscale supports PostgreSQL 15 to 19"
#endif

#if PG_VERSION_NUM >= 160000
#include "nodes/queryjumble.h"
#include "varatt.h"
#else
#include "utils/queryjumble.h"
#endif

/* 18 (commit 9324c8c58) shows the name and the version that a library gives itself. */
#if PG_VERSION_NUM < 180000
#define PG_MODULE_MAGIC_EXT(...)	PG_MODULE_MAGIC
#endif

/*
 * 18 made query identifiers signed.  Everything here stores them as int64,
 * which is also what SQL shows.
 */
#define pgscale_query_id(x) ((int64) (x))

/*
 * 18 (commit 2a0cd38da) shows the identifier of a statement's plan, where a module gives
 * it one.
 */
#if PG_VERSION_NUM >= 180000
#define PGSCALE_PLAN_IDS	true
#define pgscale_plan_id(status)		((status)->st_plan_id)
#else
#define PGSCALE_PLAN_IDS	false
#define pgscale_plan_id(status)		((int64) 0)
#endif

/*
 * 17 (commit 024c52111) indexes both the PGPROC and the backend status array
 * by ProcNumber.  Before, the two had indexes of their own.
 */
#if PG_VERSION_NUM < 170000
#include "storage/backendid.h"
typedef int ProcNumber;

#define MyProcNumber	(MyProc->pgprocno)
#endif

/*
 * Where a process shows its wait event.  The only accessor: a later major may have events
 * of another width, or show them elsewhere.
 */
static inline const volatile uint32 *
pgscale_compat_wait_event_at(const volatile PGPROC *proc)
{
	return &proc->wait_event_info;
}

extern PgBackendStatus *pgscale_compat_status_array(void);
extern PgBackendStatus *pgscale_compat_status_of(PgBackendStatus *array, ProcNumber procno);

/*
 * Custom wait event names came with 17 (commit c9af05465); older majors show
 * the class's generic name, Extension.
 */
extern uint32 pgscale_compat_wait_event_new(const char *name);

/*
 * The lists of the lock manager, for those that hold its partition's lock: the
 * next process of a lock's queue, the next holder of a lock, or the lock of a partition
 * that a process asked for before that one; the first one, or the latest, after NULL, NULL
 * after the last.  16 (commit 5764f611e) has lists of another kind.
 */
extern PGPROC *pgscale_compat_next_waiter(LOCK *lock, PGPROC *previous);
extern PROCLOCK *pgscale_compat_next_holder(LOCK *lock, PROCLOCK *previous);
extern PROCLOCK *pgscale_compat_earlier_held(PGPROC *proc, int partition, PROCLOCK *later);

/*
 * In the postmaster: has a background worker of that name a slot?  RegisterBackgroundWorker() does
 * not say so.  18 has a list of another kind.
 */
extern bool pgscale_compat_worker_is_registered(const char *name);

/* 17 (commit 50c67c201) has resource owners keep sets of wait events, which memory contexts did. */
#if PG_VERSION_NUM < 170000
#define CreateWaitEventSet(owner, nevents)	CreateWaitEventSet(CurrentMemoryContext, nevents)
#endif

/*
 * Waits for a buffer. 19 has a class for those for its content lock, which is not an
 * LWLock there, and for its pin. 17 renamed the class of the pin.
 */
#if PG_VERSION_NUM >= 190000
#define PGSCALE_BUFFER_WAITS	"Buffer"
#define PGSCALE_TRANCHE_BUFFER_CONTENT	(-1)
#define pgscale_waits_for_pin(wait_event)	((wait_event) == WAIT_EVENT_BUFFER_CLEANUP)
#define pgscale_waits_for_content(wait_event) \
	((wait_event) == WAIT_EVENT_BUFFER_SHARED || (wait_event) == WAIT_EVENT_BUFFER_SHARE_EXCLUSIVE || \
	 (wait_event) == WAIT_EVENT_BUFFER_EXCLUSIVE)
#else
#if PG_VERSION_NUM < 170000
#define PG_WAIT_BUFFERPIN	PG_WAIT_BUFFER_PIN
#endif
#define PGSCALE_BUFFER_WAITS	"BufferPin"
#define PGSCALE_TRANCHE_BUFFER_CONTENT	LWTRANCHE_BUFFER_CONTENT
#define pgscale_waits_for_pin(wait_event)	(((wait_event) & PGSCALE_WAIT_CLASS) == PG_WAIT_BUFFERPIN)
#define pgscale_waits_for_content(wait_event)	((wait_event) == (PG_WAIT_LWLOCK | LWTRANCHE_BUFFER_CONTENT))
#endif

/*
 * Up to which number tranches of LWLocks may be asked for their names.  19 raises an error for
 * what no library has registered; before, it is called "extension".
 */
#if PG_VERSION_NUM >= 190000
#define PGSCALE_TRANCHES_END	LWTRANCHE_FIRST_USER_DEFINED
#else
#define PGSCALE_TRANCHES_END	(LWTRANCHE_FIRST_USER_DEFINED + 64)
#endif

/*
 * A buffer's header.  In 19 its state has 64 bits, and the content lock is among them; and there is no list of free
 * buffers.  For shared_buffers.c, which knows the members.
 */
#if PG_VERSION_NUM >= 190000
#define PGSCALE_HAND_WARM	NBuffers	/* it goes over unused buffers, too */
#define PGSCALE_CONTENT_LOCK_IN_STATE
typedef uint64 PgscaleBufferState;

#define pgscale_compat_state_read(state)	pg_atomic_read_u64(state)
#define pgscale_compat_state_exchange(state, expected, desired) \
	pg_atomic_compare_exchange_u64(state, expected, desired)
#define pgscale_compat_any_listed()		false
#else
#define PGSCALE_HAND_WARM	1	/* it first moves when none is unused */
typedef uint32 PgscaleBufferState;

#define pgscale_compat_state_read(state)	pg_atomic_read_u32(state)
#define pgscale_compat_state_exchange(state, expected, desired) \
	pg_atomic_compare_exchange_u32(state, expected, desired)
#define pgscale_compat_any_listed()		have_free_buffer()
#endif

/*
 * The buffer of a new block at the end of a permanent relation's file, exclusively locked.  Nothing else may extend that file
 * meanwhile.  16 has a function for that, and since 17 ReadBufferWithoutRelcache() crashes with P_NEW.
 */
#if PG_VERSION_NUM >= 160000
#define pgscale_compat_extend(locator, fork, strategy) \
	ExtendBufferedRel(BMR_SMGR(smgropen(locator, INVALID_PROC_NUMBER), RELPERSISTENCE_PERMANENT), fork, strategy, \
					  EB_SKIP_EXTENSION_LOCK | EB_LOCK_FIRST)
#else
#define pgscale_compat_extend(locator, fork, strategy) \
	ReadBufferWithoutRelcache(locator, fork, P_NEW, RBM_ZERO_AND_LOCK, strategy, true)
#endif

/* Is a page, as it is on the disk, one that the server would accept?  18 (commit 55bdba11b) reports failed checksums apart. */
#if PG_VERSION_NUM >= 180000
#define pgscale_compat_page_verified(page, block)	PageIsVerified(page, block, 0, &(bool) {false})
#else
#define pgscale_compat_page_verified(page, block)	PageIsVerifiedExtended(page, block, 0)
#endif

/* Does a session wait for synchronous standbys at that level, as far as can be seen without a lock?  16 has lists of another kind. */
#if PG_VERSION_NUM >= 160000
#define pgscale_compat_sync_rep_waits(mode)	(!dlist_is_empty(&WalSndCtl->SyncRepQueue[mode]))
#else
#define pgscale_compat_sync_rep_waits(mode)	(!SHMQueueEmpty(&WalSndCtl->SyncRepQueue[mode]))
#endif

/*
 * 16 (commit be87200ef) invalidates slots for several reasons, and says which.  One that was invalidated for another reason than
 * lost WAL has its restart_lsn still, and keeps no WAL.  19 has more slots, for REPACK.
 */
#if PG_VERSION_NUM >= 160000
#define pgscale_compat_slot_is_invalid(slot)	((slot)->data.invalidated != RS_INVAL_NONE)
#else
#define pgscale_compat_slot_is_invalid(slot)	(!XLogRecPtrIsInvalid((slot)->data.invalidated_at))
#endif
#if PG_VERSION_NUM >= 190000
#define pgscale_compat_slot_is_used(slot)	((slot)->active_proc != INVALID_PROC_NUMBER)
#else
#define pgscale_compat_slot_is_used(slot)	((slot)->active_pid != 0)
#endif
#if PG_VERSION_NUM >= 190000
#define PGSCALE_REPLICATION_SLOTS	(max_replication_slots + max_repack_replication_slots)
#else
#define PGSCALE_REPLICATION_SLOTS	max_replication_slots
#endif

/* 16 (commit faeedbcef) aligns what is read directly. */
#if PG_VERSION_NUM < 160000
typedef PGAlignedBlock PGIOAlignedBlock;
#endif

/* 19 has a type of its own for signal handlers. */
#if PG_VERSION_NUM < 190000
#define PG_SIG_IGN	SIG_IGN
#endif

/*
 * 19 ends a worker with this flag where CREATE, ALTER or DROP DATABASE wants the database
 * that it is connected to.
 */
#if PG_VERSION_NUM < 190000
#define BGWORKER_INTERRUPTIBLE	0
#endif

/* A library that calls it by its later name does not load into 15.0, which knows only this one. */
#if PG_VERSION_NUM < 160000
#define InitMaterializedSRF(fcinfo, flags)	SetSingleFuncCall(fcinfo, flags)
#endif

/*
 * 18 (commit 247ce06b8) has processes that do the reads of sessions, which wait for them, or
 * for the kernel.  All such operations are reads of relations' pages, up to 19.
 */
#if PG_VERSION_NUM >= 180000
#define PGSCALE_WAIT_AIO_COMPLETION	WAIT_EVENT_AIO_IO_COMPLETION
#define pgscale_wait_is_data_read(event) \
	((event) == WAIT_EVENT_DATA_FILE_READ || (event) == WAIT_EVENT_AIO_IO_COMPLETION || \
	 (event) == WAIT_EVENT_AIO_IO_URING_SUBMIT || (event) == WAIT_EVENT_AIO_IO_URING_EXECUTION)
#define pgscale_is_io_worker(kind)	((kind) == B_IO_WORKER)
#else
#define PGSCALE_WAIT_AIO_COMPLETION	((uint32) 0)
#define pgscale_wait_is_data_read(event)	((event) == WAIT_EVENT_DATA_FILE_READ)
#define pgscale_is_io_worker(kind)	((void) (kind), false)
#endif

/*
 * How many of them there may be now; 0: none.  19 starts them as they are needed,
 * up to a limit.
 */
extern int	pgscale_compat_io_workers(void);

/* 17 named the walsender's wait for WAL anew. */
#if PG_VERSION_NUM >= 170000
#define PGSCALE_WAIT_WAL_SENDER_IDLE	WAIT_EVENT_WAL_SENDER_WAIT_FOR_WAL
#else
#define PGSCALE_WAIT_WAL_SENDER_IDLE	WAIT_EVENT_WAL_SENDER_WAIT_WAL
#endif

/* 18 (commit 3eea7a0c9) dropped ExecutorRun's execute_once. */
#if PG_VERSION_NUM >= 180000
#define PGSCALE_EXECUTOR_RUN_PARAMS \
	QueryDesc *queryDesc, ScanDirection direction, uint64 count
#define PGSCALE_EXECUTOR_RUN_ARGS	queryDesc, direction, count
#else
#define PGSCALE_EXECUTOR_RUN_PARAMS \
	QueryDesc *queryDesc, ScanDirection direction, uint64 count, bool execute_once
#define PGSCALE_EXECUTOR_RUN_ARGS	queryDesc, direction, count, execute_once
#endif

/* 18 (the same commit) dropped PortalRun's run_once, too. */
#if PG_VERSION_NUM >= 180000
#define PGSCALE_PORTAL_RUN_TO_END	FETCH_ALL, true
#else
#define PGSCALE_PORTAL_RUN_TO_END	FETCH_ALL, true, true
#endif

/*
 * May the current user REINDEX it?  17 (commit ecb0fd337) has a privilege on the
 * table for that; before, it takes the owner.
 */
extern bool pgscale_compat_may_reindex(Oid index, Oid table);

/* 16 (commit c727f511b) has one function for all kinds of objects. */
#if PG_VERSION_NUM < 160000
#define pgscale_owns_relation(relation)	pg_class_ownercheck(relation, GetUserId())
#define pgscale_may_create_in(tablespace) \
	(pg_tablespace_aclcheck(tablespace, GetUserId(), ACL_CREATE) == ACLCHECK_OK)
/* to set its CONNECTION LIMIT */
#define pgscale_may_alter_role(role)	(has_createrole_privilege(GetUserId()) && !has_rolreplication(role))
#define pgscale_may_use_server(server) \
	(pg_foreign_server_aclcheck(server, GetUserId(), ACL_USAGE) == ACLCHECK_OK)
#else
#define pgscale_owns_relation(relation) \
	object_ownercheck(RelationRelationId, relation, GetUserId())
#define pgscale_may_create_in(tablespace) \
	(object_aclcheck(TableSpaceRelationId, tablespace, GetUserId(), ACL_CREATE) == ACLCHECK_OK)
#define pgscale_may_alter_role(role) \
	(has_createrole_privilege(GetUserId()) && is_admin_of_role(GetUserId(), role))
#define pgscale_may_use_server(server) \
	(object_aclcheck(ForeignServerRelationId, server, GetUserId(), ACL_USAGE) == ACLCHECK_OK)
#endif

/* 16 (commit b0a55e432) renamed relfilenodes and changed how buffer tags store them. */
#if PG_VERSION_NUM >= 160000
#include "storage/relfilelocator.h"
#include "utils/relfilenumbermap.h"
#else
#include "storage/relfilenode.h"
#include "utils/relfilenodemap.h"
typedef RelFileNode RelFileLocator;
typedef Oid RelFileNumber;

#define spcOid						spcNode
#define dbOid						dbNode
#define relNumber					relNode
#define rd_locator					rd_node
#define RelFileLocatorEquals(a, b)	RelFileNodeEquals(a, b)
#define rlocator					rnode
#define RelationMapOidToFilenumber(relation, shared) \
	RelationMapOidToFilenode(relation, shared)
#define GetNewRelFileNumber(tablespace, class, persistence) \
	GetNewRelFileNode(tablespace, class, persistence)
#define RelidByRelfilenumber(tablespace, number)	RelidByRelfilenode(tablespace, number)
#define DropRelationBuffers(smgr, forks, n, first)	DropRelFileNodeBuffers(smgr, forks, n, first)
#define InitBufferTag(tag, locator, fork, block) \
	INIT_BUFFERTAG(*(tag), *(locator), fork, block)
#define BufferTagsEqual(a, b)		BUFFERTAGS_EQUAL(*(a), *(b))
#define BufTagGetRelFileLocator(tag)	((tag)->rnode)
#define BufTagGetForkNum(tag)		((tag)->forkNum)
#endif

/* 16 (commit 0c679464a) defines the number of kinds of process. */
#if PG_VERSION_NUM < 160000
#define BACKEND_NUM_TYPES	(B_LOGGER + 1)
#endif

/* 17 (commit 024c52111) has one number for both kinds of process. */
#if PG_VERSION_NUM < 170000
#define INVALID_PROC_NUMBER InvalidBackendId
#define ProcNumberForTempRelations() BackendIdForTempRelations()
#define GetTempNamespaceProcNumber(space) GetTempNamespaceBackendId(space)
#endif

/* The slot of the process that has that virtual transaction; -1: none. */
extern int	pgscale_compat_vxid_slot(const VirtualTransactionId *vxid);

/*
 * The path of a fork's first file into char[MAXPGPATH].  Before 18 the server
 * allocates what it returns.
 */
extern void pgscale_compat_relpath(char *path, RelFileLocator locator, ProcNumber backend, ForkNumber fork);

/*
 * After an error: what a process that writes buffers has under way and no
 * resource owner knows of.
 */
extern void pgscale_compat_abort_io(void);

/*
 * Returns the pages that backends and recovery have written since the server's
 * statistics were last reset, and when that was.  15 counts all processes except
 * bgwriter and checkpointer, so background workers too, and extensions of files.
 */
extern int64 pgscale_compat_backend_writes(TimestampTz *reset_at);

#if PG_VERSION_NUM >= 160000
#define PGSCALE_BACKENDS_WITH_WORKERS	false
#else
#define PGSCALE_BACKENDS_WITH_WORKERS	true
#endif

/* 16 dropped the n_ from the names of what it counts of a database. */
#if PG_VERSION_NUM < 160000
#define xact_commit					n_xact_commit
#define xact_rollback				n_xact_rollback
#endif

/*
 * What the majors count in different places; -1 where one does not.  17 (commit
 * 96f052613) gave the checkpointer's counts other names and dropped what backends
 * wrote, which 16 (commit 9c4edd8f6) has by kind of process and context; 18
 * (commit a051e71e2) moved there what was written and flushed of WAL.  19 counts
 * the bytes of page images, and has counts of the lock manager, by LockTagType.
 */
typedef struct PgscaleStats
{
	int64		checkpoints_timed;
	int64		checkpoints_requested;
	int64		checkpoint_buffers;
	int64		checkpoint_write_ms;
	int64		checkpoint_sync_ms;
	int64		backend_buffers;
	int64		backend_ring_buffers;
	int64		backend_ring_reads;
	int64		reads;
	int64		backend_fsyncs;
	int64		wal_records;
	int64		wal_pages;
	int64		wal_page_bytes;
	int64		wal_bytes;
	int64		wal_buffers_full;
	int64		wal_writes;
	int64		wal_written_bytes;
	int64		wal_syncs;
	int64		wal_write_us;
	int64		wal_sync_us;
	int64		lock_waits[LOCKTAG_LAST_TYPE + 1];
	int64		lock_wait_us[LOCKTAG_LAST_TYPE + 1];
	int64		fast_path_exceeded[LOCKTAG_LAST_TYPE + 1];
} PgscaleStats;

extern void pgscale_compat_stats_read(PgscaleStats *stats);

/* From where on the WAL summarizer has still to read WAL; invalid if it is off. */
#if PG_VERSION_NUM >= 170000
#include "postmaster/walsummarizer.h"
#define pgscale_compat_oldest_unsummarized()	GetOldestUnsummarizedLSN(NULL, NULL)
#else
#define pgscale_compat_oldest_unsummarized()	InvalidXLogRecPtr
#endif

/* The counts of a relation of this database, or NULL.  19 says whether the caller may free them, if it asks. */
#if PG_VERSION_NUM >= 190000
#define pgscale_compat_relation_stats(relation) pgstat_fetch_stat_tabentry_ext(false, relation, NULL)
#else
#define pgscale_compat_relation_stats(relation) pgstat_fetch_stat_tabentry_ext(false, relation)
#endif

/* Of one database; false if it has no counts, as one that was dropped. */
typedef struct PgscaleDatabaseStats
{
	int64		commits;
	int64		rollbacks;
	int64		blocks_read;
	int64		blocks_hit;
	int64		temp_bytes;
	int64		deadlocks;
} PgscaleDatabaseStats;

extern bool pgscale_compat_database_stats_read(Oid database, PgscaleDatabaseStats *stats);

/* The SLRUs that have a setting in 17, by the names of pg_stat_slru. */
#if PG_VERSION_NUM >= 170000
#define PGSCALE_SLRU_XACT			"transaction"
#define PGSCALE_SLRU_SUBTRANS		"subtransaction"
#define PGSCALE_SLRU_OFFSET			"multixact_offset"
#define PGSCALE_SLRU_MEMBER			"multixact_member"
#else
#define PGSCALE_SLRU_XACT			"Xact"
#define PGSCALE_SLRU_SUBTRANS		"Subtrans"
#define PGSCALE_SLRU_OFFSET			"MultiXactOffset"
#define PGSCALE_SLRU_MEMBER			"MultiXactMember"
#endif

/*
 * The number of dead rows of a table, as a multiple of the threshold of autovacuum, for
 * a FROM: relid and overdue.  Only 19 has it; before, there is no row.
 */
#if PG_VERSION_NUM >= 190000
#define PGSCALE_OVERDUE_VACUUM \
"(SELECT relid, vacuum_score / nullif(pg_catalog.current_setting('autovacuum_vacuum_score_weight')::float8, 0) AS overdue" \
"   FROM pg_catalog.pg_stat_autovacuum_scores)"
#else
#define PGSCALE_OVERDUE_VACUUM \
"(SELECT NULL::pg_catalog.oid AS relid, NULL::float8 AS overdue WHERE false)"
#endif

/*
 * How many fast-path slots for weak locks on relations a session can have.  18 (commit
 * c4d5cb71d) gives it as many as max_locks_per_transaction says, in groups of 16.
 */
#if PG_VERSION_NUM >= 180000
#define PGSCALE_FAST_PATH_SLOTS		(FP_LOCK_GROUPS_PER_BACKEND_MAX * FP_LOCK_SLOTS_PER_GROUP)
#else
#define PGSCALE_FAST_PATH_SLOTS		FP_LOCK_SLOTS_PER_BACKEND
#endif

/* The server's major, for what is said about it. */
#define PGSCALE_MAJOR_NUMBER		(PG_VERSION_NUM / 10000)

/*
 * Has these counts brought up to date, soon.  Before 16 the checkpointer
 * collects them and hands them on only when something wakes it.
 */
extern void pgscale_compat_refresh_backend_writes(void);

/*
 * 17 (commit 21d9c3ee4) separates closing smgr handles from freeing them, and names the
 * latter smgrdestroyall().
 */
extern void pgscale_compat_smgr_release_all(void);

/*
 * The file of a relation for which a name within its folder stands, if any; not of
 * temporary relations.  Before 17 the server returns the end of the number, and nothing
 * about the segment.
 */
extern bool pgscale_compat_parse_relfile(const char *name, RelFileLocator *locator, ForkNumber *fork,
										 uint32 *segment);

/*
 * Does the server read and write data past the kernel's cache?  16 (commit
 * d4e71df6d) can, and then does not take requests to write that cache back.
 */
extern bool pgscale_compat_direct_data(void);

/* 18 (commit 4f7f7b037) looks for $libdir/NAME in dynamic_library_path. */
#define PGSCALE_LIBDIR_SEARCHED	(PG_VERSION_NUM >= 180000)

/* 18 (commit 14ffaece0) has amcheck check GIN indexes, too. */
#define PGSCALE_AMCHECK_GIN		(PG_VERSION_NUM >= 180000)

/*
 * The setting of this name, NULL if there is none.  16 (commit f13b2088f) exports
 * what looks one up.
 */
struct config_generic;
extern struct config_generic *pgscale_compat_find_setting(const char *name);

/* Calls it with the name of each setting.  16 (commit 3057465ac) keeps them in a hash table and makes a list. */
extern void pgscale_compat_each_setting(void (*each) (const char *name, void *arg), void *arg);

/* Does this server know that value of a setting that is one of a list? */
extern bool pgscale_compat_setting_knows(const char *name, const char *value);

/* What is its own of a setting's type.  19 has a union there; before, each type begins with what all have. */
#if PG_VERSION_NUM >= 190000
#define pgscale_compat_of_bool(record)	(&(record)->_bool)
#define pgscale_compat_of_int(record)	(&(record)->_int)
#define pgscale_compat_of_enum(record)	(&(record)->_enum)
#else
#define pgscale_compat_of_bool(record)	((const struct config_bool *) (record))
#define pgscale_compat_of_int(record)	((const struct config_int *) (record))
#define pgscale_compat_of_enum(record)	((const struct config_enum *) (record))
#endif

/*
 * The bits of an LWLock's state, which are private to lwlock.c: there is a queue, it is
 * held exclusive, and the number of sharers. 19 sets none of them in a free lock, where
 * earlier majors set the bit below the queue's. 18 made the number as wide as
 * MAX_BACKENDS, and moved the queue's bit to the top.
 */
typedef struct PgscaleLwlockLayout
{
	uint32		unused;			/* the whole state, of a free lock */
	uint32		waited;
	uint32		exclusive;
	uint32		shared;
} PgscaleLwlockLayout;

extern const PgscaleLwlockLayout pgscale_compat_lwlock;

/*
 * The end of the server's main array of LWLocks, with those that libraries asked for.  The list
 * of their tranches lies right behind it; not so in 19, where NULL says that the end is unknown.
 */
#if PG_VERSION_NUM >= 190000
#define pgscale_compat_lwlocks_end()	((LWLockPadded *) NULL)
#else
#define pgscale_compat_lwlocks_end() \
	(NamedLWLockTrancheRequests > 0 ? (LWLockPadded *) NamedLWLockTrancheArray : (LWLockPadded *) NULL)
#endif

#endif							/* PGSCALE_BASE_PG_COMPAT_H */
