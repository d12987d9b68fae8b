/*-------------------------------------------------------------------------
 *
 * wait_kinds.c
 *	  The kind of each wait event, by its names in all majors; and the evidence on each
 *	  kind: its fraction, and the server's own counters for such waits.
 *
 * The view pgscale.wait_meanings explains a kind and its remedy; its key is the kind's
 * name.  pgscale.contention() takes its fractions from top_waits(), and only the
 * server's counters from here.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "storage/lwlock.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#include "utils/wait_event.h"

#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/wait_events.h"
#include "tuning/findings.h"
#include "tuning/json.h"
#include "tuning/tuning.h"

PG_FUNCTION_INFO_V1(pgscale_wait_kind);
PG_FUNCTION_INFO_V1(pgscale_wait_kinds);
PG_FUNCTION_INFO_V1(pgscale_tuning_since);
PG_FUNCTION_INFO_V1(pgscale_tuning_waits);

static const char *const kind_names[] = {
	[PGSCALE_EVIDENCE_CPU] = "cpu",
	[PGSCALE_EVIDENCE_WAL_SYNC] = "wal_sync",
	[PGSCALE_EVIDENCE_WAL_WRITE] = "wal_write",
	[PGSCALE_EVIDENCE_WAL_WRITE_LOCK] = "wal_write_lock",
	[PGSCALE_EVIDENCE_WAL_INSERT] = "wal_insert",
	[PGSCALE_EVIDENCE_WAL_BUFFERS] = "wal_buffers",
	[PGSCALE_EVIDENCE_WAL_INIT] = "wal_init",
	[PGSCALE_EVIDENCE_DATA_READ] = "data_read",
	[PGSCALE_EVIDENCE_AIO_QUEUE] = "aio_queue",
	[PGSCALE_EVIDENCE_AIO_COMPLETION] = "aio_completion",
	[PGSCALE_EVIDENCE_DATA_WRITE] = "data_write",
	[PGSCALE_EVIDENCE_DATA_EXTEND] = "data_extend",
	[PGSCALE_EVIDENCE_DATA_SYNC] = "data_sync",
	[PGSCALE_EVIDENCE_TEMP_FILE] = "temp_file",
	[PGSCALE_EVIDENCE_SLRU_IO] = "slru_io",
	[PGSCALE_EVIDENCE_BUFFER_MAPPING] = "buffer_mapping",
	[PGSCALE_EVIDENCE_BUFFER_CONTENT] = "buffer_content",
	[PGSCALE_EVIDENCE_BUFFER_IO] = "buffer_io",
	[PGSCALE_EVIDENCE_BUFFER_PIN] = "buffer_pin",
	[PGSCALE_EVIDENCE_PROC_ARRAY] = "proc_array",
	[PGSCALE_EVIDENCE_XID_GEN] = "xid_gen",
	[PGSCALE_EVIDENCE_XACT] = "xact",
	[PGSCALE_EVIDENCE_SUBTRANS] = "subtrans",
	[PGSCALE_EVIDENCE_MULTIXACT] = "multixact",
	[PGSCALE_EVIDENCE_SINVAL] = "sinval",
	[PGSCALE_EVIDENCE_PREDICATE] = "predicate",
	[PGSCALE_EVIDENCE_STATISTICS] = "statistics",
	[PGSCALE_EVIDENCE_LOCK_MANAGER] = "lock_manager",
	[PGSCALE_EVIDENCE_LOCK_FAST_PATH] = "lock_fast_path",
	[PGSCALE_EVIDENCE_LOCK_EXTEND] = "lock_extend",
	[PGSCALE_EVIDENCE_LOCK_TRANSACTION] = "lock_transaction",
	[PGSCALE_EVIDENCE_LOCK_TUPLE] = "lock_tuple",
	[PGSCALE_EVIDENCE_LOCK_RELATION] = "lock_relation",
	[PGSCALE_EVIDENCE_LOCK_ADVISORY] = "lock_advisory",
	[PGSCALE_EVIDENCE_SYNC_REP] = "sync_rep",
	[PGSCALE_EVIDENCE_PARALLEL] = "parallel",
	[PGSCALE_EVIDENCE_SPIN] = "spin",
	[PGSCALE_EVIDENCE_CLIENT] = "client",
	[PGSCALE_EVIDENCE_IDLE_IN_TRANSACTION] = "idle_in_transaction",
	[PGSCALE_EVIDENCE_REPLICATION] = "replication",
	[PGSCALE_EVIDENCE_RECOVERY] = "recovery",
	[PGSCALE_EVIDENCE_BACKUP] = "backup",
	[PGSCALE_EVIDENCE_CHECKPOINT] = "checkpoint",
	[PGSCALE_EVIDENCE_VACUUM] = "vacuum",
	[PGSCALE_EVIDENCE_NOTIFY] = "notify",
	[PGSCALE_EVIDENCE_COMMIT_TS] = "commit_ts",
	[PGSCALE_EVIDENCE_COPY] = "copy",
	[PGSCALE_EVIDENCE_SERVER] = "server",
	[PGSCALE_EVIDENCE_SERVER_IDLE] = "server_idle",
	[PGSCALE_EVIDENCE_OTHER_LWLOCK] = "other_lwlock",
	[PGSCALE_EVIDENCE_OTHER_LOCK] = "other_lock",
	[PGSCALE_EVIDENCE_OTHER_IO] = "other_io",
	[PGSCALE_EVIDENCE_OTHER_IPC] = "other_ipc",
	[PGSCALE_EVIDENCE_OTHER] = "other",
};

StaticAssertDecl(lengthof(kind_names) == PGSCALE_EVIDENCE_WAITS, "each kind has a name");

/* Of a kind's events so many are shown. */
#define SHOWN_EVENTS	4

typedef struct WaitNames
{
	PgscaleTuningEvidenceWait wait;
	const char *type;
	const char *names[32];		/* NULL-terminated */
} WaitNames;

/*
 * The events of a kind, by type; names as in pg_stat_activity of any major, whose cases
 * differ.  A kind is shown with the first type of which this major has an event.
 */
static const WaitNames wait_names[] = {
	{PGSCALE_EVIDENCE_WAL_SYNC, "IO", {"WalSync"}},
	{PGSCALE_EVIDENCE_WAL_WRITE, "IO", {"WalWrite"}},
	{PGSCALE_EVIDENCE_WAL_WRITE_LOCK, "LWLock", {"WALWrite"}},
	{PGSCALE_EVIDENCE_WAL_WRITE_LOCK, "Timeout", {"CommitDelay"}},
	{PGSCALE_EVIDENCE_WAL_INSERT, "LWLock", {"WALInsert"}},
	{PGSCALE_EVIDENCE_WAL_BUFFERS, "LWLock", {"WALBufMapping"}},
	{PGSCALE_EVIDENCE_WAL_INIT, "IO", {"WalInitWrite", "WalInitSync"}},
	{PGSCALE_EVIDENCE_DATA_READ, "IO", {
			"DataFileRead", "AioIoCompletion", "AioIoUringExecution", "AioIoUringSubmit", "DataFilePrefetch"
	}},
	{PGSCALE_EVIDENCE_AIO_QUEUE, "LWLock", {"AioWorkerSubmissionQueue", "AioWorkerControl"}},
	{PGSCALE_EVIDENCE_AIO_COMPLETION, "LWLock", {"AioUringCompletion"}},
	{PGSCALE_EVIDENCE_DATA_WRITE, "IO", {"DataFileWrite"}},
	{PGSCALE_EVIDENCE_DATA_EXTEND, "IO", {"DataFileExtend"}},
	{PGSCALE_EVIDENCE_DATA_SYNC, "IO", {"DataFileSync", "DataFileImmediateSync", "DataFileFlush"}},
	{PGSCALE_EVIDENCE_TEMP_FILE, "IO", {"BufFileRead", "BufFileWrite", "BuffileTruncate"}},
	{PGSCALE_EVIDENCE_SLRU_IO, "IO", {"SlruRead", "SlruWrite", "SlruSync", "SlruFlushSync"}},
	{PGSCALE_EVIDENCE_BUFFER_MAPPING, "LWLock", {"BufferMapping"}},
	{PGSCALE_EVIDENCE_BUFFER_CONTENT, "LWLock", {"BufferContent"}},
	{PGSCALE_EVIDENCE_BUFFER_CONTENT, "Buffer", {"BufferShared", "BufferShareExclusive", "BufferExclusive"}},
	{PGSCALE_EVIDENCE_BUFFER_IO, "IPC", {"BufferIO"}},
	{PGSCALE_EVIDENCE_BUFFER_PIN, "BufferPin", {"BufferPin"}},
	{PGSCALE_EVIDENCE_BUFFER_PIN, "Buffer", {"BufferCleanup"}},
	{PGSCALE_EVIDENCE_PROC_ARRAY, "LWLock", {"ProcArray", "OldSnapshotTimeMap"}},
	{PGSCALE_EVIDENCE_PROC_ARRAY, "IPC", {"ProcArrayGroupUpdate"}},
	{PGSCALE_EVIDENCE_XID_GEN, "LWLock", {"XidGen"}},
	{PGSCALE_EVIDENCE_XACT, "LWLock", {"XactSLRU", "XactBuffer"}},
	{PGSCALE_EVIDENCE_XACT, "IPC", {"XactGroupUpdate"}},
	{PGSCALE_EVIDENCE_SUBTRANS, "LWLock", {"SubtransSLRU", "SubtransBuffer"}},
	{PGSCALE_EVIDENCE_MULTIXACT, "LWLock", {
			"MultiXactOffsetSLRU", "MultiXactOffsetBuffer", "MultiXactMemberSLRU", "MultiXactMemberBuffer",
			"MultiXactGen"
	}},
	{PGSCALE_EVIDENCE_MULTIXACT, "IPC", {"MultixactCreation"}},
	{PGSCALE_EVIDENCE_SINVAL, "LWLock", {"SInvalRead", "SInvalWrite"}},
	{PGSCALE_EVIDENCE_PREDICATE, "LWLock", {
			"PredicateLockManager", "PerXactPredicateList", "SerializableXactHash", "SerializableFinishedList",
			"SerializablePredicateList", "SerialSLRU", "SerialBuffer", "SerialControl"
	}},
	{PGSCALE_EVIDENCE_PREDICATE, "IPC", {"SafeSnapshot"}},
	{PGSCALE_EVIDENCE_STATISTICS, "LWLock", {"PgStatsDSA", "PgStatsHash", "PgStatsData", "pg_stat_statements"}},
	{PGSCALE_EVIDENCE_LOCK_MANAGER, "LWLock", {"LockManager"}},
	{PGSCALE_EVIDENCE_LOCK_FAST_PATH, "LWLock", {"LockFastPath"}},
	{PGSCALE_EVIDENCE_LOCK_EXTEND, "Lock", {"extend"}},
	{PGSCALE_EVIDENCE_LOCK_TRANSACTION, "Lock", {"transactionid"}},
	{PGSCALE_EVIDENCE_LOCK_TUPLE, "Lock", {"tuple"}},
	{PGSCALE_EVIDENCE_LOCK_RELATION, "Lock", {"relation"}},
	{PGSCALE_EVIDENCE_LOCK_ADVISORY, "Lock", {"advisory"}},
	{PGSCALE_EVIDENCE_SYNC_REP, "IPC", {"SyncRep"}},
	{PGSCALE_EVIDENCE_SYNC_REP, "Client", {"WaitForStandbyConfirmation"}},
	{PGSCALE_EVIDENCE_SYNC_REP, "LWLock", {"SyncRep"}},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", {
			"ExecuteGather", "ParallelFinish", "BgWorkerStartup", "BgWorkerShutdown", "BtreePage", "ParallelBitmapScan",
			"ParallelCreateIndexScan", "MessageQueueReceive", "MessageQueueSend", "AppendReady", "HashBatchAllocate",
			"HashBatchElect", "HashBatchLoad", "HashBuildAllocate", "HashBuildElect", "HashBuildHashInner",
			"HashBuildHashOuter", "HashGrowBatchesAllocate", "HashGrowBatchesDecide", "HashGrowBatchesElect",
			"HashGrowBatchesFinish", "HashGrowBatchesReallocate", "HashGrowBatchesRepartition",
			"HashGrowBucketsAllocate", "HashGrowBucketsElect", "HashGrowBucketsReallocate", "HashGrowBucketsReinsert",
			"MessageQueueInternal", "MessageQueuePutMessage"
	}},
	{PGSCALE_EVIDENCE_PARALLEL, "IO", {"DsmAllocate", "DsmFillZeroWrite"}},
	{PGSCALE_EVIDENCE_PARALLEL, "LWLock", {
			"ParallelAppend", "ParallelBtreeScan", "ParallelHashJoin", "ParallelQueryDSA", "PerSessionDSA",
			"PerSessionRecordType", "PerSessionRecordTypmod", "SharedTidBitmap", "SharedTupleStore"
	}},
	{PGSCALE_EVIDENCE_SPIN, "Timeout", {"SpinDelay"}},
	{PGSCALE_EVIDENCE_CLIENT, "Client", {"ClientWrite", "ClientRead", "GssOpenServer", "SslOpenServer"}},
	{PGSCALE_EVIDENCE_SERVER_IDLE, "Activity", {
			"ArchiverMain", "AutovacuumMain", "BgwriterHibernate", "BgwriterMain", "CheckpointerMain",
			"CheckpointerShutdown", "IoWorkerMain", "LogicalApplyMain", "LogicalLauncherMain",
			"LogicalParallelApplyMain", "RecoveryWalStream", "ReplicationSlotsyncMain", "ReplicationSlotsyncShutdown",
			"SysloggerMain", "WalReceiverMain", "WalSenderMain", "WalSummarizerWal", "WalWriterMain"
	}},
	{PGSCALE_EVIDENCE_REPLICATION, "IPC", {
			"LogicalApplySendData", "LogicalParallelApplyStateChange", "LogicalSyncData", "LogicalSyncStateChange",
			"ReplicationOriginDrop", "ReplicationSlotDrop", "WalReceiverExit", "WalReceiverUpstreamCatchup",
			"WalReceiverWaitStart"
	}},
	{PGSCALE_EVIDENCE_REPLICATION, "Client", {
			"LibpqwalreceiverConnect", "LibpqwalreceiverReceive", "WalSenderWaitForWal", "WalSenderWriteData"
	}},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", {
			"LogicalRewriteCheckpointSync", "LogicalRewriteMappingSync", "LogicalRewriteMappingWrite",
			"LogicalRewriteSync", "LogicalRewriteTruncate", "LogicalRewriteWrite", "ReorderBufferRead",
			"ReorderBufferWrite", "ReorderLogicalMappingRead", "ReplicationSlotRead", "ReplicationSlotRestoreSync",
			"ReplicationSlotSync", "ReplicationSlotWrite", "SnapbuildRead", "SnapbuildSync", "SnapbuildWrite",
			"TimelineHistoryFileSync", "TimelineHistoryFileWrite", "TimelineHistoryRead", "TimelineHistorySync",
			"TimelineHistoryWrite", "WalRead", "WalsenderTimelineHistoryRead"
	}},
	{PGSCALE_EVIDENCE_REPLICATION, "LWLock", {
			"LogicalRepLauncherDSA", "LogicalRepLauncherHash", "LogicalRepWorker", "ReplicationOrigin",
			"ReplicationOriginState", "ReplicationSlotAllocation", "ReplicationSlotControl", "ReplicationSlotIO",
			"LogicalDecodingControl"
	}},
	{PGSCALE_EVIDENCE_REPLICATION, "Lock", {"applytransaction"}},
	{PGSCALE_EVIDENCE_BACKUP, "IPC", {"ArchiveCommand", "BackupWaitWalArchive", "WalSummaryReady"}},
	{PGSCALE_EVIDENCE_BACKUP, "IO", {
			"BasebackupRead", "BasebackupSync", "BasebackupWrite", "WalSummaryRead", "WalSummaryWrite"
	}},
	{PGSCALE_EVIDENCE_BACKUP, "LWLock", {"WALSummarizer"}},
	{PGSCALE_EVIDENCE_BACKUP, "Timeout", {"BaseBackupThrottle", "WalSummarizerError"}},
	{PGSCALE_EVIDENCE_CHECKPOINT, "IPC", {
			"CheckpointDelayComplete", "CheckpointDelayStart", "CheckpointDone", "CheckpointStart"
	}},
	{PGSCALE_EVIDENCE_CHECKPOINT, "LWLock", {"CheckpointerComm", "ControlFile"}},
	{PGSCALE_EVIDENCE_CHECKPOINT, "IO", {
			"ControlFileRead", "ControlFileSync", "ControlFileSyncUpdate", "ControlFileWrite", "ControlFileWriteUpdate"
	}},
	{PGSCALE_EVIDENCE_CHECKPOINT, "Timeout", {"CheckpointWriteDelay", "RegisterSyncRequest"}},
	{PGSCALE_EVIDENCE_SERVER, "LWLock", {
			"AddinShmemInit", "AutoFile", "BackgroundWorker", "DSMRegistry", "DSMRegistryDSA", "DSMRegistryHash",
			"DynamicSharedMemoryControl", "InjectionPoint", "OidGen", "RelationMapping", "RelCacheInit", "ShmemIndex",
			"SyncScan", "TablespaceCreate", "TwoPhaseState", "WaitEventCustom"
	}},
	{PGSCALE_EVIDENCE_SERVER, "IPC", {"BackendTermination", "ProcSignalBarrier", "RepackWorkerExport"}},
	{PGSCALE_EVIDENCE_SERVER, "IO", {
			"CopyFileCopy", "CopyFileRead", "CopyFileWrite", "DataFileTruncate", "LockFileAddtodatadirRead",
			"LockFileAddtodatadirSync", "LockFileAddtodatadirWrite", "LockFileCreateRead", "LockFileCreateSync",
			"LockFileCreateWrite", "LockFileRecheckdatadirRead", "RelationMapRead", "RelationMapReplace",
			"RelationMapSync", "RelationMapWrite", "TwophaseFileRead", "TwophaseFileSync", "TwophaseFileWrite",
			"VersionFileSync", "VersionFileWrite", "WalBootstrapSync", "WalBootstrapWrite", "WalCopyRead", "WalCopySync",
			"WalCopyWrite", "WalSyncMethodAssign"
	}},
	{PGSCALE_EVIDENCE_RECOVERY, "IPC", {
			"ArchiveCleanupCommand", "Promote", "RecoveryConflictSnapshot", "RecoveryConflictTablespace",
			"RecoveryEndCommand", "RecoveryPause", "RestoreCommand", "WaitForWalFlush", "WaitForWalReplay",
			"WaitForWalWrite"
	}},
	{PGSCALE_EVIDENCE_RECOVERY, "Timeout", {"RecoveryApplyDelay", "RecoveryRetrieveRetryInterval"}},
	{PGSCALE_EVIDENCE_RECOVERY, "LWLock", {"WaitLSN"}},
	{PGSCALE_EVIDENCE_VACUUM, "Timeout", {"VacuumDelay", "VacuumTruncate"}},
	{PGSCALE_EVIDENCE_VACUUM, "LWLock", {
			"Autovacuum", "AutovacuumSchedule", "BtreeVacuum", "MultiXactTruncation", "ParallelVacuumDSA",
			"WrapLimitsVacuum", "XactTruncation"
	}},
	{PGSCALE_EVIDENCE_VACUUM, "Lock", {"frozenid"}},
	{PGSCALE_EVIDENCE_OTHER_LOCK, "Lock", {"object", "page", "spectoken", "userlock", "virtualxid"}},
	{PGSCALE_EVIDENCE_COMMIT_TS, "LWLock", {"CommitTs", "CommitTsBuffer", "CommitTsSLRU"}},
	{PGSCALE_EVIDENCE_NOTIFY, "LWLock", {
			"NotifyBuffer", "NotifyQueue", "NotifyQueueTail", "NotifySLRU", "NotifyChannelHash"
	}},
	{PGSCALE_EVIDENCE_COPY, "IO", {"CopyFromRead", "CopyToWrite"}},
	{PGSCALE_EVIDENCE_IDLE_IN_TRANSACTION, "Client", {PGSCALE_WAIT_IDLE_NAME}},
};

/* And what is not named above, by its class: events of libraries, and of majors to come.  A test asks for all others. */
static const WaitNames class_names[] = {
	{PGSCALE_EVIDENCE_CPU, "CPU"},
	{PGSCALE_EVIDENCE_OTHER_LWLOCK, "LWLock"},
	{PGSCALE_EVIDENCE_OTHER_LOCK, "Lock"},
	{PGSCALE_EVIDENCE_OTHER_IO, "IO"},
	{PGSCALE_EVIDENCE_OTHER_IPC, "IPC"},
	{PGSCALE_EVIDENCE_CLIENT, "Client"},
};

int
pgscale_tuning_wait_kind(const char *type, const char *name)
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
	return PGSCALE_EVIDENCE_OTHER;
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
	const int	kind = pgscale_tuning_wait_kind(text_to_cstring(PG_GETARG_TEXT_PP(0)), text_to_cstring(PG_GETARG_TEXT_PP(1)));

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
	for (int kind = 0; kind < PGSCALE_EVIDENCE_WAITS; kind++)
	{
		const char *type = NULL;
		const char *events = kind == PGSCALE_EVIDENCE_CPU ? "CPU" : "others";
		Datum		values[3];
		bool		nulls[3] = {false};

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

		values[0] = CStringGetTextDatum(kind_names[kind]);
		values[1] = type ? CStringGetTextDatum(type) : (Datum) 0;
		values[2] = events ? CStringGetTextDatum(events) : (Datum) 0;
		nulls[1] = !type;
		nulls[2] = !events;
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* The kind of a wait for each type of lock. */
static const PgscaleTuningEvidenceWait lock_kinds[PGSCALE_LOCK_TYPES] = {
	[PGSCALE_LOCK_EXTEND] = PGSCALE_EVIDENCE_LOCK_EXTEND,
	[PGSCALE_LOCK_TRANSACTION] = PGSCALE_EVIDENCE_LOCK_TRANSACTION,
	[PGSCALE_LOCK_TUPLE] = PGSCALE_EVIDENCE_LOCK_TUPLE,
	[PGSCALE_LOCK_RELATION] = PGSCALE_EVIDENCE_LOCK_RELATION,
	[PGSCALE_LOCK_ADVISORY] = PGSCALE_EVIDENCE_LOCK_ADVISORY,
	[PGSCALE_LOCK_OTHER] = PGSCALE_EVIDENCE_OTHER_LOCK,
};

/* What the server counts of a kind of wait; NULL if nothing. */
static Jsonb *
server_counts(const PgscaleTuningEvidence *e, int kind)
{
	const PgscaleCounters *c = &e->counts;
	PgscaleTuningJson json = {0};

	if (e->ns == 0)
		return NULL;
	if (kind == PGSCALE_EVIDENCE_LOCK_MANAGER && c->fast_path_exceeded >= 0)
	{
		pgscale_tuning_json_number(&json, "fast_path_exceeded_per_s", pgscale_tuning_rate(e, c->fast_path_exceeded));
		return pgscale_tuning_json_end(&json);
	}
	for (int lock = 0; lock < PGSCALE_LOCK_TYPES; lock++)
		if (kind == lock_kinds[lock] && c->lock_waits[lock] >= 0)
		{
			pgscale_tuning_json_number(&json, "long_waits", c->lock_waits[lock]);
			pgscale_tuning_json_number(&json, "long_wait_ms", c->lock_waits[lock] == 0 ? NAN :
									   c->lock_wait_us[lock] / 1e3 / c->lock_waits[lock]);
			return pgscale_tuning_json_end(&json);
		}
	return NULL;
}

/* pgscale_internal.tuning_since(duration): the same errors as for evidence, and no longer than there can be any. */
Datum
pgscale_tuning_since(PG_FUNCTION_ARGS)
{
	const int64 duration_ms = pgscale_tuning_duration_ms(fcinfo, 0);

	pgscale_preload_require();
	PG_RETURN_TIMESTAMPTZ(GetCurrentTimestamp() - duration_ms * (USECS_PER_SEC / 1000));
}

/* pgscale_internal.tuning_waits(duration): one row a kind. */
Datum
pgscale_tuning_waits(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	const int64 duration_ms = pgscale_tuning_duration_ms(fcinfo, 0);
	PgscaleTuningEvidence sum;

	pgscale_preload_require();
	InitMaterializedSRF(fcinfo, 0);
	pgscale_tuning_window(duration_ms, &sum);
	for (int kind = 0; kind < PGSCALE_EVIDENCE_WAITS; kind++)
	{
		Jsonb	   *counts = server_counts(&sum, kind);
		Datum		values[] = {
			CStringGetTextDatum(kind_names[kind]),
			Float8GetDatum(pgscale_tuning_fraction(&sum, kind)),
			Float8GetDatum(pgscale_tuning_waiting(&sum, kind)),
			TimestampTzGetDatum(sum.since),
			TimestampTzGetDatum(sum.until),
			JsonbPGetDatum(counts)
		};
		bool		nulls[lengthof(values)] = {[3] = sum.ns == 0,[4] = sum.ns == 0,[5] = counts == NULL};

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
