/*-------------------------------------------------------------------------
 *
 * wait_kinds.c
 *	  The kind of each wait event, by its names in all majors.
 *
 * The view pgscale.wait_meanings explains a kind and its remedy; its key is the kind's
 * name.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "storage/lwlock.h"
#include "utils/builtins.h"
#include "utils/wait_event.h"

#include "base/pg_compat.h"
#include "base/row_builder.h"
#include "base/wait_events.h"
#include "base/wait_kinds.h"

PG_FUNCTION_INFO_V1(pgscale_wait_kind);
PG_FUNCTION_INFO_V1(pgscale_wait_kinds);

static const char *const kind_names[] = {
	[PGSCALE_KIND_CPU] = "cpu",
	[PGSCALE_KIND_WAL_SYNC] = "wal_sync",
	[PGSCALE_KIND_WAL_WRITE] = "wal_write",
	[PGSCALE_KIND_WAL_WRITE_LOCK] = "wal_write_lock",
	[PGSCALE_KIND_WAL_INSERT] = "wal_insert",
	[PGSCALE_KIND_WAL_BUFFERS] = "wal_buffers",
	[PGSCALE_KIND_WAL_INIT] = "wal_init",
	[PGSCALE_KIND_DATA_READ] = "data_read",
	[PGSCALE_KIND_AIO_QUEUE] = "aio_queue",
	[PGSCALE_KIND_AIO_COMPLETION] = "aio_completion",
	[PGSCALE_KIND_DATA_WRITE] = "data_write",
	[PGSCALE_KIND_DATA_EXTEND] = "data_extend",
	[PGSCALE_KIND_DATA_SYNC] = "data_sync",
	[PGSCALE_KIND_TEMP_FILE] = "temp_file",
	[PGSCALE_KIND_SLRU_IO] = "slru_io",
	[PGSCALE_KIND_BUFFER_MAPPING] = "buffer_mapping",
	[PGSCALE_KIND_BUFFER_CONTENT] = "buffer_content",
	[PGSCALE_KIND_BUFFER_IO] = "buffer_io",
	[PGSCALE_KIND_BUFFER_PIN] = "buffer_pin",
	[PGSCALE_KIND_PROC_ARRAY] = "proc_array",
	[PGSCALE_KIND_XID_GEN] = "xid_gen",
	[PGSCALE_KIND_XACT] = "xact",
	[PGSCALE_KIND_SUBTRANS] = "subtrans",
	[PGSCALE_KIND_MULTIXACT] = "multixact",
	[PGSCALE_KIND_SINVAL] = "sinval",
	[PGSCALE_KIND_PREDICATE] = "predicate",
	[PGSCALE_KIND_STATISTICS] = "statistics",
	[PGSCALE_KIND_LOCK_MANAGER] = "lock_manager",
	[PGSCALE_KIND_LOCK_FAST_PATH] = "lock_fast_path",
	[PGSCALE_KIND_LOCK_EXTEND] = "lock_extend",
	[PGSCALE_KIND_LOCK_TRANSACTION] = "lock_transaction",
	[PGSCALE_KIND_LOCK_TUPLE] = "lock_tuple",
	[PGSCALE_KIND_LOCK_RELATION] = "lock_relation",
	[PGSCALE_KIND_LOCK_ADVISORY] = "lock_advisory",
	[PGSCALE_KIND_SYNC_REP] = "sync_rep",
	[PGSCALE_KIND_PARALLEL] = "parallel",
	[PGSCALE_KIND_SPIN] = "spin",
	[PGSCALE_KIND_CLIENT] = "client",
	[PGSCALE_KIND_IDLE_IN_TRANSACTION] = "idle_in_transaction",
	[PGSCALE_KIND_REPLICATION] = "replication",
	[PGSCALE_KIND_RECOVERY] = "recovery",
	[PGSCALE_KIND_BACKUP] = "backup",
	[PGSCALE_KIND_CHECKPOINT] = "checkpoint",
	[PGSCALE_KIND_VACUUM] = "vacuum",
	[PGSCALE_KIND_NOTIFY] = "notify",
	[PGSCALE_KIND_COMMIT_TS] = "commit_ts",
	[PGSCALE_KIND_COPY] = "copy",
	[PGSCALE_KIND_SERVER] = "server",
	[PGSCALE_KIND_SERVER_IDLE] = "server_idle",
	[PGSCALE_KIND_OTHER_LWLOCK] = "other_lwlock",
	[PGSCALE_KIND_OTHER_LOCK] = "other_lock",
	[PGSCALE_KIND_OTHER_IO] = "other_io",
	[PGSCALE_KIND_OTHER_IPC] = "other_ipc",
	[PGSCALE_KIND_OTHER] = "other",
};

StaticAssertDecl(lengthof(kind_names) == PGSCALE_WAIT_KINDS, "each kind has a name");

/* Of a kind's events so many are shown. */
#define SHOWN_EVENTS	4

typedef struct WaitNames
{
	PgscaleWaitKind wait;
	const char *type;
	const char *names[32];		/* NULL-terminated */
} WaitNames;

/*
 * The events of a kind, by type; names as in pg_stat_activity of any major, whose cases
 * differ.  A kind is shown with the first type of which this major has an event.
 */
static const WaitNames wait_names[] = {
	{PGSCALE_KIND_WAL_SYNC, "IO", {"WalSync"}},
	{PGSCALE_KIND_WAL_WRITE, "IO", {"WalWrite"}},
	{PGSCALE_KIND_WAL_WRITE_LOCK, "LWLock", {"WALWrite"}},
	{PGSCALE_KIND_WAL_WRITE_LOCK, "Timeout", {"CommitDelay"}},
	{PGSCALE_KIND_WAL_INSERT, "LWLock", {"WALInsert"}},
	{PGSCALE_KIND_WAL_BUFFERS, "LWLock", {"WALBufMapping"}},
	{PGSCALE_KIND_WAL_INIT, "IO", {"WalInitWrite", "WalInitSync"}},
	{PGSCALE_KIND_DATA_READ, "IO", {
			"DataFileRead", "AioIoCompletion", "AioIoUringExecution", "AioIoUringSubmit", "DataFilePrefetch"
	}},
	{PGSCALE_KIND_AIO_QUEUE, "LWLock", {"AioWorkerSubmissionQueue", "AioWorkerControl"}},
	{PGSCALE_KIND_AIO_COMPLETION, "LWLock", {"AioUringCompletion"}},
	{PGSCALE_KIND_DATA_WRITE, "IO", {"DataFileWrite"}},
	{PGSCALE_KIND_DATA_EXTEND, "IO", {"DataFileExtend"}},
	{PGSCALE_KIND_DATA_SYNC, "IO", {"DataFileSync", "DataFileImmediateSync", "DataFileFlush"}},
	{PGSCALE_KIND_TEMP_FILE, "IO", {"BufFileRead", "BufFileWrite", "BuffileTruncate"}},
	{PGSCALE_KIND_SLRU_IO, "IO", {"SlruRead", "SlruWrite", "SlruSync", "SlruFlushSync"}},
	{PGSCALE_KIND_BUFFER_MAPPING, "LWLock", {"BufferMapping"}},
	{PGSCALE_KIND_BUFFER_CONTENT, "LWLock", {"BufferContent"}},
	{PGSCALE_KIND_BUFFER_CONTENT, "Buffer", {"BufferShared", "BufferShareExclusive", "BufferExclusive"}},
	{PGSCALE_KIND_BUFFER_IO, "IPC", {"BufferIO"}},
	{PGSCALE_KIND_BUFFER_PIN, "BufferPin", {"BufferPin"}},
	{PGSCALE_KIND_BUFFER_PIN, "Buffer", {"BufferCleanup"}},
	{PGSCALE_KIND_PROC_ARRAY, "LWLock", {"ProcArray", "OldSnapshotTimeMap"}},
	{PGSCALE_KIND_PROC_ARRAY, "IPC", {"ProcArrayGroupUpdate"}},
	{PGSCALE_KIND_XID_GEN, "LWLock", {"XidGen"}},
	{PGSCALE_KIND_XACT, "LWLock", {"XactSLRU", "XactBuffer"}},
	{PGSCALE_KIND_XACT, "IPC", {"XactGroupUpdate"}},
	{PGSCALE_KIND_SUBTRANS, "LWLock", {"SubtransSLRU", "SubtransBuffer"}},
	{PGSCALE_KIND_MULTIXACT, "LWLock", {
			"MultiXactOffsetSLRU", "MultiXactOffsetBuffer", "MultiXactMemberSLRU", "MultiXactMemberBuffer",
			"MultiXactGen"
	}},
	{PGSCALE_KIND_MULTIXACT, "IPC", {"MultixactCreation"}},
	{PGSCALE_KIND_SINVAL, "LWLock", {"SInvalRead", "SInvalWrite"}},
	{PGSCALE_KIND_PREDICATE, "LWLock", {
			"PredicateLockManager", "PerXactPredicateList", "SerializableXactHash", "SerializableFinishedList",
			"SerializablePredicateList", "SerialSLRU", "SerialBuffer", "SerialControl"
	}},
	{PGSCALE_KIND_PREDICATE, "IPC", {"SafeSnapshot"}},
	{PGSCALE_KIND_STATISTICS, "LWLock", {"PgStatsDSA", "PgStatsHash", "PgStatsData", "pg_stat_statements"}},
	{PGSCALE_KIND_LOCK_MANAGER, "LWLock", {"LockManager"}},
	{PGSCALE_KIND_LOCK_FAST_PATH, "LWLock", {"LockFastPath"}},
	{PGSCALE_KIND_LOCK_EXTEND, "Lock", {"extend"}},
	{PGSCALE_KIND_LOCK_TRANSACTION, "Lock", {"transactionid"}},
	{PGSCALE_KIND_LOCK_TUPLE, "Lock", {"tuple"}},
	{PGSCALE_KIND_LOCK_RELATION, "Lock", {"relation"}},
	{PGSCALE_KIND_LOCK_ADVISORY, "Lock", {"advisory"}},
	{PGSCALE_KIND_SYNC_REP, "IPC", {"SyncRep"}},
	{PGSCALE_KIND_SYNC_REP, "Client", {"WaitForStandbyConfirmation"}},
	{PGSCALE_KIND_SYNC_REP, "LWLock", {"SyncRep"}},
	{PGSCALE_KIND_PARALLEL, "IPC", {
			"ExecuteGather", "ParallelFinish", "BgWorkerStartup", "BgWorkerShutdown", "BtreePage", "ParallelBitmapScan",
			"ParallelCreateIndexScan", "MessageQueueReceive", "MessageQueueSend", "AppendReady", "HashBatchAllocate",
			"HashBatchElect", "HashBatchLoad", "HashBuildAllocate", "HashBuildElect", "HashBuildHashInner",
			"HashBuildHashOuter", "HashGrowBatchesAllocate", "HashGrowBatchesDecide", "HashGrowBatchesElect",
			"HashGrowBatchesFinish", "HashGrowBatchesReallocate", "HashGrowBatchesRepartition",
			"HashGrowBucketsAllocate", "HashGrowBucketsElect", "HashGrowBucketsReallocate", "HashGrowBucketsReinsert",
			"MessageQueueInternal", "MessageQueuePutMessage"
	}},
	{PGSCALE_KIND_PARALLEL, "IO", {"DsmAllocate", "DsmFillZeroWrite"}},
	{PGSCALE_KIND_PARALLEL, "LWLock", {
			"ParallelAppend", "ParallelBtreeScan", "ParallelHashJoin", "ParallelQueryDSA", "PerSessionDSA",
			"PerSessionRecordType", "PerSessionRecordTypmod", "SharedTidBitmap", "SharedTupleStore"
	}},
	{PGSCALE_KIND_SPIN, "Timeout", {"SpinDelay"}},
	{PGSCALE_KIND_CLIENT, "Client", {"ClientWrite", "ClientRead", "GssOpenServer", "SslOpenServer"}},
	{PGSCALE_KIND_SERVER_IDLE, "Activity", {
			"ArchiverMain", "AutovacuumMain", "BgwriterHibernate", "BgwriterMain", "CheckpointerMain",
			"CheckpointerShutdown", "IoWorkerMain", "LogicalApplyMain", "LogicalLauncherMain",
			"LogicalParallelApplyMain", "RecoveryWalStream", "ReplicationSlotsyncMain", "ReplicationSlotsyncShutdown",
			"SysloggerMain", "WalReceiverMain", "WalSenderMain", "WalSummarizerWal", "WalWriterMain"
	}},
	{PGSCALE_KIND_REPLICATION, "IPC", {
			"LogicalApplySendData", "LogicalParallelApplyStateChange", "LogicalSyncData", "LogicalSyncStateChange",
			"ReplicationOriginDrop", "ReplicationSlotDrop", "WalReceiverExit", "WalReceiverUpstreamCatchup",
			"WalReceiverWaitStart"
	}},
	{PGSCALE_KIND_REPLICATION, "Client", {
			"LibpqwalreceiverConnect", "LibpqwalreceiverReceive", "WalSenderWaitForWal", "WalSenderWriteData"
	}},
	{PGSCALE_KIND_REPLICATION, "IO", {
			"LogicalRewriteCheckpointSync", "LogicalRewriteMappingSync", "LogicalRewriteMappingWrite",
			"LogicalRewriteSync", "LogicalRewriteTruncate", "LogicalRewriteWrite", "ReorderBufferRead",
			"ReorderBufferWrite", "ReorderLogicalMappingRead", "ReplicationSlotRead", "ReplicationSlotRestoreSync",
			"ReplicationSlotSync", "ReplicationSlotWrite", "SnapbuildRead", "SnapbuildSync", "SnapbuildWrite",
			"TimelineHistoryFileSync", "TimelineHistoryFileWrite", "TimelineHistoryRead", "TimelineHistorySync",
			"TimelineHistoryWrite", "WalRead", "WalsenderTimelineHistoryRead"
	}},
	{PGSCALE_KIND_REPLICATION, "LWLock", {
			"LogicalRepLauncherDSA", "LogicalRepLauncherHash", "LogicalRepWorker", "ReplicationOrigin",
			"ReplicationOriginState", "ReplicationSlotAllocation", "ReplicationSlotControl", "ReplicationSlotIO",
			"LogicalDecodingControl"
	}},
	{PGSCALE_KIND_REPLICATION, "Lock", {"applytransaction"}},
	{PGSCALE_KIND_BACKUP, "IPC", {"ArchiveCommand", "BackupWaitWalArchive", "WalSummaryReady"}},
	{PGSCALE_KIND_BACKUP, "IO", {
			"BasebackupRead", "BasebackupSync", "BasebackupWrite", "WalSummaryRead", "WalSummaryWrite"
	}},
	{PGSCALE_KIND_BACKUP, "LWLock", {"WALSummarizer"}},
	{PGSCALE_KIND_BACKUP, "Timeout", {"BaseBackupThrottle", "WalSummarizerError"}},
	{PGSCALE_KIND_CHECKPOINT, "IPC", {
			"CheckpointDelayComplete", "CheckpointDelayStart", "CheckpointDone", "CheckpointStart"
	}},
	{PGSCALE_KIND_CHECKPOINT, "LWLock", {"CheckpointerComm", "ControlFile"}},
	{PGSCALE_KIND_CHECKPOINT, "IO", {
			"ControlFileRead", "ControlFileSync", "ControlFileSyncUpdate", "ControlFileWrite", "ControlFileWriteUpdate"
	}},
	{PGSCALE_KIND_CHECKPOINT, "Timeout", {"CheckpointWriteDelay", "RegisterSyncRequest"}},
	{PGSCALE_KIND_SERVER, "LWLock", {
			"AddinShmemInit", "AutoFile", "BackgroundWorker", "DSMRegistry", "DSMRegistryDSA", "DSMRegistryHash",
			"DynamicSharedMemoryControl", "InjectionPoint", "OidGen", "RelationMapping", "RelCacheInit", "ShmemIndex",
			"SyncScan", "TablespaceCreate", "TwoPhaseState", "WaitEventCustom"
	}},
	{PGSCALE_KIND_SERVER, "IPC", {"BackendTermination", "ProcSignalBarrier", "RepackWorkerExport"}},
	{PGSCALE_KIND_SERVER, "IO", {
			"CopyFileCopy", "CopyFileRead", "CopyFileWrite", "DataFileTruncate", "LockFileAddtodatadirRead",
			"LockFileAddtodatadirSync", "LockFileAddtodatadirWrite", "LockFileCreateRead", "LockFileCreateSync",
			"LockFileCreateWrite", "LockFileRecheckdatadirRead", "RelationMapRead", "RelationMapReplace",
			"RelationMapSync", "RelationMapWrite", "TwophaseFileRead", "TwophaseFileSync", "TwophaseFileWrite",
			"VersionFileSync", "VersionFileWrite", "WalBootstrapSync", "WalBootstrapWrite", "WalCopyRead", "WalCopySync",
			"WalCopyWrite", "WalSyncMethodAssign"
	}},
	{PGSCALE_KIND_RECOVERY, "IPC", {
			"ArchiveCleanupCommand", "Promote", "RecoveryConflictSnapshot", "RecoveryConflictTablespace",
			"RecoveryEndCommand", "RecoveryPause", "RestoreCommand", "WaitForWalFlush", "WaitForWalReplay",
			"WaitForWalWrite"
	}},
	{PGSCALE_KIND_RECOVERY, "Timeout", {"RecoveryApplyDelay", "RecoveryRetrieveRetryInterval"}},
	{PGSCALE_KIND_RECOVERY, "LWLock", {"WaitLSN"}},
	{PGSCALE_KIND_VACUUM, "Timeout", {"VacuumDelay", "VacuumTruncate"}},
	{PGSCALE_KIND_VACUUM, "LWLock", {
			"Autovacuum", "AutovacuumSchedule", "BtreeVacuum", "MultiXactTruncation", "ParallelVacuumDSA",
			"WrapLimitsVacuum", "XactTruncation"
	}},
	{PGSCALE_KIND_VACUUM, "Lock", {"frozenid"}},
	{PGSCALE_KIND_OTHER_LOCK, "Lock", {"object", "page", "spectoken", "userlock", "virtualxid"}},
	{PGSCALE_KIND_COMMIT_TS, "LWLock", {"CommitTs", "CommitTsBuffer", "CommitTsSLRU"}},
	{PGSCALE_KIND_NOTIFY, "LWLock", {
			"NotifyBuffer", "NotifyQueue", "NotifyQueueTail", "NotifySLRU", "NotifyChannelHash"
	}},
	{PGSCALE_KIND_COPY, "IO", {"CopyFromRead", "CopyToWrite"}},
	{PGSCALE_KIND_IDLE_IN_TRANSACTION, "Client", {PGSCALE_WAIT_IDLE_NAME}},
};

/* And what is not named above, by its class: events of libraries, and of majors to come.  A test asks for all others. */
static const WaitNames class_names[] = {
	{PGSCALE_KIND_CPU, "CPU"},
	{PGSCALE_KIND_OTHER_LWLOCK, "LWLock"},
	{PGSCALE_KIND_OTHER_LOCK, "Lock"},
	{PGSCALE_KIND_OTHER_IO, "IO"},
	{PGSCALE_KIND_OTHER_IPC, "IPC"},
	{PGSCALE_KIND_CLIENT, "Client"},
};

/* The kind of an event by its type and name; -1 for what is none. */
static int
kind_named(const char *type, const char *name)
{
	if (strcmp(name, "PgSleep") == 0)
		return -1;
	for (int i = 0; i < lengthof(wait_names); i++)
		if (strcmp(type, wait_names[i].type) == 0)
			for (const char *const *known = wait_names[i].names; *known; known++)
				if (pg_strcasecmp(name, *known) == 0)
					return wait_names[i].wait;
	for (int i = 0; i < lengthof(class_names); i++)
		if (strcmp(type, class_names[i].type) == 0)
			return class_names[i].wait;
	return PGSCALE_KIND_OTHER;
}

int
pgscale_wait_kind_of(uint32 wait_event)
{
	const char *type = pgscale_wait_event_type(wait_event);
	const char *name = pgscale_wait_event_name(wait_event);

	return type ? kind_named(type, name ? name : "") : PGSCALE_KIND_CPU;
}

const char *
pgscale_wait_kind_name(PgscaleWaitKind kind)
{
	return kind_names[kind];
}

/* The class of this type, or 0. */
static uint32
wait_class_of(const char *type)
{
	for (uint32 class = 1; class < 0x10; class++)
	{
		const char *name = pgstat_get_wait_event_type(class << 24);

		if (name && strcmp(name, type) == 0)
			return class << 24;
	}
	return 0;
}

/* As this major spells it; NULL if it has no such event. */
static const char *
own_name(uint32 class, const char *name)
{
	if (strcmp(name, PGSCALE_WAIT_IDLE_NAME) == 0)
		return PGSCALE_WAIT_IDLE_NAME;	/* pgscale's own */
	for (uint32 event = 0; event < PGSCALE_TRANCHES_END; event++)
	{
		const char *own = pgstat_get_wait_event(class | event);

		if (own && pg_strcasecmp(own, name) == 0)
			return own;
	}
	return NULL;
}

/* The first of these events that this major has, as "A, B, others"; NULL if it has none. */
static const char *
shown_events(const WaitNames *kind)
{
	const uint32 class = wait_class_of(kind->type);
	StringInfoData names;
	int			n = 0;

	if (class == 0)
		return NULL;
	initStringInfo(&names);
	for (const char *const *known = kind->names; *known; known++)
	{
		const char *name = own_name(class, *known);

		if (name && n++ < SHOWN_EVENTS)
			appendStringInfo(&names, "%s%s", names.len > 0 ? ", " : "", name);
	}
	if (n > SHOWN_EVENTS)
		appendStringInfoString(&names, ", others");
	return n > 0 ? names.data : NULL;
}

/* pgscale.wait_kind(event_type, event): NULL for what is none. */
Datum
pgscale_wait_kind(PG_FUNCTION_ARGS)
{
	const int	kind = kind_named(text_to_cstring(PG_GETARG_TEXT_PP(0)), text_to_cstring(PG_GETARG_TEXT_PP(1)));

	if (kind < 0)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(kind_names[kind]));
}

/* pgscale_internal.wait_kinds(): one row a kind; no event where this major has none of the kind. */
Datum
pgscale_wait_kinds(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int kind = 0; kind < PGSCALE_WAIT_KINDS; kind++)
	{
		const char *type = NULL;
		const char *events = kind == PGSCALE_KIND_CPU ? "CPU" : "others";
		PgscaleRow	row = {0};

		for (int i = 0; i < lengthof(class_names); i++)
			if (class_names[i].wait == kind)
				type = class_names[i].type;
		for (int i = 0; i < lengthof(wait_names); i++)
			if (wait_names[i].wait == kind)
			{
				type = wait_names[i].type;
				events = shown_events(&wait_names[i]);
				if (events)
					break;
			}

		pgscale_row_text(&row, kind_names[kind]);
		pgscale_row_text(&row, type);
		pgscale_row_text(&row, events);
		pgscale_row_end(&row, rsinfo);
	}
	return (Datum) 0;
}
