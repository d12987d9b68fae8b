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
#include "utils/tuplestore.h"
#include "utils/wait_event.h"

#include "base/pg_compat.h"
#include "base/wait_events.h"
#include "tuning/wait_kinds.h"

PG_FUNCTION_INFO_V1(pgscale_wait_kind);
PG_FUNCTION_INFO_V1(pgscale_wait_kinds);

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

/*
 * What a kind consists of; names as in pg_stat_activity of any major, whose cases
 * differ.  A kind is shown with the type that comes first.
 */
#define SHOWN_EVENTS	4

typedef struct WaitName
{
	PgscaleTuningEvidenceWait wait;
	const char *type;
	const char *name;
} WaitName;

static const WaitName wait_names[] = {
	{PGSCALE_EVIDENCE_WAL_SYNC, "IO", "WalSync"},
	{PGSCALE_EVIDENCE_WAL_WRITE, "IO", "WalWrite"},
	{PGSCALE_EVIDENCE_WAL_WRITE_LOCK, "LWLock", "WALWrite"},
	{PGSCALE_EVIDENCE_WAL_WRITE_LOCK, "Timeout", "CommitDelay"},
	{PGSCALE_EVIDENCE_WAL_INSERT, "LWLock", "WALInsert"},
	{PGSCALE_EVIDENCE_WAL_BUFFERS, "LWLock", "WALBufMapping"},
	{PGSCALE_EVIDENCE_WAL_INIT, "IO", "WalInitWrite"},
	{PGSCALE_EVIDENCE_WAL_INIT, "IO", "WalInitSync"},
	{PGSCALE_EVIDENCE_DATA_READ, "IO", "DataFileRead"},
	{PGSCALE_EVIDENCE_DATA_READ, "IO", "AioIoCompletion"},
	{PGSCALE_EVIDENCE_DATA_READ, "IO", "AioIoUringExecution"},
	{PGSCALE_EVIDENCE_DATA_READ, "IO", "AioIoUringSubmit"},
	{PGSCALE_EVIDENCE_DATA_READ, "IO", "DataFilePrefetch"},
	{PGSCALE_EVIDENCE_AIO_QUEUE, "LWLock", "AioWorkerSubmissionQueue"},
	{PGSCALE_EVIDENCE_AIO_QUEUE, "LWLock", "AioWorkerControl"},
	{PGSCALE_EVIDENCE_AIO_COMPLETION, "LWLock", "AioUringCompletion"},
	{PGSCALE_EVIDENCE_DATA_WRITE, "IO", "DataFileWrite"},
	{PGSCALE_EVIDENCE_DATA_EXTEND, "IO", "DataFileExtend"},
	{PGSCALE_EVIDENCE_DATA_SYNC, "IO", "DataFileSync"},
	{PGSCALE_EVIDENCE_DATA_SYNC, "IO", "DataFileImmediateSync"},
	{PGSCALE_EVIDENCE_DATA_SYNC, "IO", "DataFileFlush"},
	{PGSCALE_EVIDENCE_TEMP_FILE, "IO", "BufFileRead"},
	{PGSCALE_EVIDENCE_TEMP_FILE, "IO", "BufFileWrite"},
	{PGSCALE_EVIDENCE_TEMP_FILE, "IO", "BuffileTruncate"},
	{PGSCALE_EVIDENCE_SLRU_IO, "IO", "SlruRead"},
	{PGSCALE_EVIDENCE_SLRU_IO, "IO", "SlruWrite"},
	{PGSCALE_EVIDENCE_SLRU_IO, "IO", "SlruSync"},
	{PGSCALE_EVIDENCE_SLRU_IO, "IO", "SlruFlushSync"},
	{PGSCALE_EVIDENCE_BUFFER_MAPPING, "LWLock", "BufferMapping"},
	{PGSCALE_EVIDENCE_BUFFER_CONTENT, "LWLock", "BufferContent"},
	{PGSCALE_EVIDENCE_BUFFER_CONTENT, "Buffer", "BufferShared"},
	{PGSCALE_EVIDENCE_BUFFER_CONTENT, "Buffer", "BufferShareExclusive"},
	{PGSCALE_EVIDENCE_BUFFER_CONTENT, "Buffer", "BufferExclusive"},
	{PGSCALE_EVIDENCE_BUFFER_IO, "IPC", "BufferIO"},
	{PGSCALE_EVIDENCE_BUFFER_PIN, "BufferPin", "BufferPin"},
	{PGSCALE_EVIDENCE_BUFFER_PIN, "Buffer", "BufferCleanup"},
	{PGSCALE_EVIDENCE_PROC_ARRAY, "LWLock", "ProcArray"},
	{PGSCALE_EVIDENCE_PROC_ARRAY, "IPC", "ProcArrayGroupUpdate"},
	{PGSCALE_EVIDENCE_PROC_ARRAY, "LWLock", "OldSnapshotTimeMap"},
	{PGSCALE_EVIDENCE_XID_GEN, "LWLock", "XidGen"},
	{PGSCALE_EVIDENCE_XACT, "LWLock", "XactSLRU"},
	{PGSCALE_EVIDENCE_XACT, "LWLock", "XactBuffer"},
	{PGSCALE_EVIDENCE_XACT, "IPC", "XactGroupUpdate"},
	{PGSCALE_EVIDENCE_SUBTRANS, "LWLock", "SubtransSLRU"},
	{PGSCALE_EVIDENCE_SUBTRANS, "LWLock", "SubtransBuffer"},
	{PGSCALE_EVIDENCE_MULTIXACT, "LWLock", "MultiXactOffsetSLRU"},
	{PGSCALE_EVIDENCE_MULTIXACT, "LWLock", "MultiXactOffsetBuffer"},
	{PGSCALE_EVIDENCE_MULTIXACT, "LWLock", "MultiXactMemberSLRU"},
	{PGSCALE_EVIDENCE_MULTIXACT, "LWLock", "MultiXactMemberBuffer"},
	{PGSCALE_EVIDENCE_MULTIXACT, "LWLock", "MultiXactGen"},
	{PGSCALE_EVIDENCE_MULTIXACT, "IPC", "MultixactCreation"},
	{PGSCALE_EVIDENCE_SINVAL, "LWLock", "SInvalRead"},
	{PGSCALE_EVIDENCE_SINVAL, "LWLock", "SInvalWrite"},
	{PGSCALE_EVIDENCE_PREDICATE, "LWLock", "PredicateLockManager"},
	{PGSCALE_EVIDENCE_PREDICATE, "LWLock", "PerXactPredicateList"},
	{PGSCALE_EVIDENCE_PREDICATE, "LWLock", "SerializableXactHash"},
	{PGSCALE_EVIDENCE_PREDICATE, "LWLock", "SerializableFinishedList"},
	{PGSCALE_EVIDENCE_PREDICATE, "LWLock", "SerializablePredicateList"},
	{PGSCALE_EVIDENCE_PREDICATE, "LWLock", "SerialSLRU"},
	{PGSCALE_EVIDENCE_PREDICATE, "LWLock", "SerialBuffer"},
	{PGSCALE_EVIDENCE_PREDICATE, "LWLock", "SerialControl"},
	{PGSCALE_EVIDENCE_PREDICATE, "IPC", "SafeSnapshot"},
	{PGSCALE_EVIDENCE_STATISTICS, "LWLock", "PgStatsDSA"},
	{PGSCALE_EVIDENCE_STATISTICS, "LWLock", "PgStatsHash"},
	{PGSCALE_EVIDENCE_STATISTICS, "LWLock", "PgStatsData"},
	{PGSCALE_EVIDENCE_STATISTICS, "LWLock", "pg_stat_statements"},
	{PGSCALE_EVIDENCE_LOCK_MANAGER, "LWLock", "LockManager"},
	{PGSCALE_EVIDENCE_LOCK_FAST_PATH, "LWLock", "LockFastPath"},
	{PGSCALE_EVIDENCE_LOCK_EXTEND, "Lock", "extend"},
	{PGSCALE_EVIDENCE_LOCK_TRANSACTION, "Lock", "transactionid"},
	{PGSCALE_EVIDENCE_LOCK_TUPLE, "Lock", "tuple"},
	{PGSCALE_EVIDENCE_LOCK_RELATION, "Lock", "relation"},
	{PGSCALE_EVIDENCE_LOCK_ADVISORY, "Lock", "advisory"},
	{PGSCALE_EVIDENCE_SYNC_REP, "IPC", "SyncRep"},
	{PGSCALE_EVIDENCE_SYNC_REP, "Client", "WaitForStandbyConfirmation"},
	{PGSCALE_EVIDENCE_SYNC_REP, "LWLock", "SyncRep"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "ExecuteGather"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "ParallelFinish"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "BgWorkerStartup"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "BgWorkerShutdown"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "BtreePage"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "ParallelBitmapScan"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "ParallelCreateIndexScan"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "MessageQueueReceive"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "MessageQueueSend"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "AppendReady"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "HashBatchAllocate"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "HashBatchElect"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "HashBatchLoad"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "HashBuildAllocate"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "HashBuildElect"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "HashBuildHashInner"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "HashBuildHashOuter"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "HashGrowBatchesAllocate"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "HashGrowBatchesDecide"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "HashGrowBatchesElect"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "HashGrowBatchesFinish"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "HashGrowBatchesReallocate"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "HashGrowBatchesRepartition"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "HashGrowBucketsAllocate"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "HashGrowBucketsElect"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "HashGrowBucketsReallocate"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "HashGrowBucketsReinsert"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "MessageQueueInternal"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "MessageQueuePutMessage"},
	{PGSCALE_EVIDENCE_PARALLEL, "IO", "DsmAllocate"},
	{PGSCALE_EVIDENCE_PARALLEL, "IO", "DsmFillZeroWrite"},
	{PGSCALE_EVIDENCE_PARALLEL, "LWLock", "ParallelAppend"},
	{PGSCALE_EVIDENCE_PARALLEL, "LWLock", "ParallelBtreeScan"},
	{PGSCALE_EVIDENCE_PARALLEL, "LWLock", "ParallelHashJoin"},
	{PGSCALE_EVIDENCE_PARALLEL, "LWLock", "ParallelQueryDSA"},
	{PGSCALE_EVIDENCE_PARALLEL, "LWLock", "PerSessionDSA"},
	{PGSCALE_EVIDENCE_PARALLEL, "LWLock", "PerSessionRecordType"},
	{PGSCALE_EVIDENCE_PARALLEL, "LWLock", "PerSessionRecordTypmod"},
	{PGSCALE_EVIDENCE_PARALLEL, "LWLock", "SharedTidBitmap"},
	{PGSCALE_EVIDENCE_PARALLEL, "LWLock", "SharedTupleStore"},
	{PGSCALE_EVIDENCE_SPIN, "Timeout", "SpinDelay"},
	{PGSCALE_EVIDENCE_CLIENT, "Client", "ClientWrite"},
	{PGSCALE_EVIDENCE_CLIENT, "Client", "ClientRead"},
	{PGSCALE_EVIDENCE_CLIENT, "Client", "GssOpenServer"},
	{PGSCALE_EVIDENCE_CLIENT, "Client", "SslOpenServer"},
	{PGSCALE_EVIDENCE_SERVER_IDLE, "Activity", "ArchiverMain"},
	{PGSCALE_EVIDENCE_SERVER_IDLE, "Activity", "AutovacuumMain"},
	{PGSCALE_EVIDENCE_SERVER_IDLE, "Activity", "BgwriterHibernate"},
	{PGSCALE_EVIDENCE_SERVER_IDLE, "Activity", "BgwriterMain"},
	{PGSCALE_EVIDENCE_SERVER_IDLE, "Activity", "CheckpointerMain"},
	{PGSCALE_EVIDENCE_SERVER_IDLE, "Activity", "CheckpointerShutdown"},
	{PGSCALE_EVIDENCE_SERVER_IDLE, "Activity", "IoWorkerMain"},
	{PGSCALE_EVIDENCE_SERVER_IDLE, "Activity", "LogicalApplyMain"},
	{PGSCALE_EVIDENCE_SERVER_IDLE, "Activity", "LogicalLauncherMain"},
	{PGSCALE_EVIDENCE_SERVER_IDLE, "Activity", "LogicalParallelApplyMain"},
	{PGSCALE_EVIDENCE_SERVER_IDLE, "Activity", "RecoveryWalStream"},
	{PGSCALE_EVIDENCE_SERVER_IDLE, "Activity", "ReplicationSlotsyncMain"},
	{PGSCALE_EVIDENCE_SERVER_IDLE, "Activity", "ReplicationSlotsyncShutdown"},
	{PGSCALE_EVIDENCE_SERVER_IDLE, "Activity", "SysloggerMain"},
	{PGSCALE_EVIDENCE_SERVER_IDLE, "Activity", "WalReceiverMain"},
	{PGSCALE_EVIDENCE_SERVER_IDLE, "Activity", "WalSenderMain"},
	{PGSCALE_EVIDENCE_SERVER_IDLE, "Activity", "WalSummarizerWal"},
	{PGSCALE_EVIDENCE_SERVER_IDLE, "Activity", "WalWriterMain"},
	{PGSCALE_EVIDENCE_REPLICATION, "IPC", "LogicalApplySendData"},
	{PGSCALE_EVIDENCE_REPLICATION, "IPC", "LogicalParallelApplyStateChange"},
	{PGSCALE_EVIDENCE_REPLICATION, "IPC", "LogicalSyncData"},
	{PGSCALE_EVIDENCE_REPLICATION, "IPC", "LogicalSyncStateChange"},
	{PGSCALE_EVIDENCE_REPLICATION, "IPC", "ReplicationOriginDrop"},
	{PGSCALE_EVIDENCE_REPLICATION, "IPC", "ReplicationSlotDrop"},
	{PGSCALE_EVIDENCE_REPLICATION, "IPC", "WalReceiverExit"},
	{PGSCALE_EVIDENCE_REPLICATION, "IPC", "WalReceiverUpstreamCatchup"},
	{PGSCALE_EVIDENCE_REPLICATION, "IPC", "WalReceiverWaitStart"},
	{PGSCALE_EVIDENCE_REPLICATION, "Client", "LibpqwalreceiverConnect"},
	{PGSCALE_EVIDENCE_REPLICATION, "Client", "LibpqwalreceiverReceive"},
	{PGSCALE_EVIDENCE_REPLICATION, "Client", "WalSenderWaitForWal"},
	{PGSCALE_EVIDENCE_REPLICATION, "Client", "WalSenderWriteData"},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", "LogicalRewriteCheckpointSync"},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", "LogicalRewriteMappingSync"},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", "LogicalRewriteMappingWrite"},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", "LogicalRewriteSync"},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", "LogicalRewriteTruncate"},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", "LogicalRewriteWrite"},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", "ReorderBufferRead"},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", "ReorderBufferWrite"},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", "ReorderLogicalMappingRead"},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", "ReplicationSlotRead"},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", "ReplicationSlotRestoreSync"},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", "ReplicationSlotSync"},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", "ReplicationSlotWrite"},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", "SnapbuildRead"},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", "SnapbuildSync"},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", "SnapbuildWrite"},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", "TimelineHistoryFileSync"},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", "TimelineHistoryFileWrite"},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", "TimelineHistoryRead"},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", "TimelineHistorySync"},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", "TimelineHistoryWrite"},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", "WalRead"},
	{PGSCALE_EVIDENCE_REPLICATION, "IO", "WalsenderTimelineHistoryRead"},
	{PGSCALE_EVIDENCE_REPLICATION, "LWLock", "LogicalRepLauncherDSA"},
	{PGSCALE_EVIDENCE_REPLICATION, "LWLock", "LogicalRepLauncherHash"},
	{PGSCALE_EVIDENCE_REPLICATION, "LWLock", "LogicalRepWorker"},
	{PGSCALE_EVIDENCE_REPLICATION, "LWLock", "ReplicationOrigin"},
	{PGSCALE_EVIDENCE_REPLICATION, "LWLock", "ReplicationOriginState"},
	{PGSCALE_EVIDENCE_REPLICATION, "LWLock", "ReplicationSlotAllocation"},
	{PGSCALE_EVIDENCE_REPLICATION, "LWLock", "ReplicationSlotControl"},
	{PGSCALE_EVIDENCE_REPLICATION, "LWLock", "ReplicationSlotIO"},
	{PGSCALE_EVIDENCE_REPLICATION, "Lock", "applytransaction"},
	{PGSCALE_EVIDENCE_REPLICATION, "LWLock", "LogicalDecodingControl"},
	{PGSCALE_EVIDENCE_BACKUP, "IPC", "ArchiveCommand"},
	{PGSCALE_EVIDENCE_BACKUP, "IPC", "BackupWaitWalArchive"},
	{PGSCALE_EVIDENCE_BACKUP, "IPC", "WalSummaryReady"},
	{PGSCALE_EVIDENCE_BACKUP, "IO", "BasebackupRead"},
	{PGSCALE_EVIDENCE_BACKUP, "IO", "BasebackupSync"},
	{PGSCALE_EVIDENCE_BACKUP, "IO", "BasebackupWrite"},
	{PGSCALE_EVIDENCE_BACKUP, "IO", "WalSummaryRead"},
	{PGSCALE_EVIDENCE_BACKUP, "IO", "WalSummaryWrite"},
	{PGSCALE_EVIDENCE_BACKUP, "LWLock", "WALSummarizer"},
	{PGSCALE_EVIDENCE_BACKUP, "Timeout", "BaseBackupThrottle"},
	{PGSCALE_EVIDENCE_BACKUP, "Timeout", "WalSummarizerError"},
	{PGSCALE_EVIDENCE_CHECKPOINT, "IPC", "CheckpointDelayComplete"},
	{PGSCALE_EVIDENCE_CHECKPOINT, "IPC", "CheckpointDelayStart"},
	{PGSCALE_EVIDENCE_CHECKPOINT, "IPC", "CheckpointDone"},
	{PGSCALE_EVIDENCE_CHECKPOINT, "IPC", "CheckpointStart"},
	{PGSCALE_EVIDENCE_CHECKPOINT, "LWLock", "CheckpointerComm"},
	{PGSCALE_EVIDENCE_CHECKPOINT, "LWLock", "ControlFile"},
	{PGSCALE_EVIDENCE_CHECKPOINT, "IO", "ControlFileRead"},
	{PGSCALE_EVIDENCE_CHECKPOINT, "IO", "ControlFileSync"},
	{PGSCALE_EVIDENCE_CHECKPOINT, "IO", "ControlFileSyncUpdate"},
	{PGSCALE_EVIDENCE_CHECKPOINT, "IO", "ControlFileWrite"},
	{PGSCALE_EVIDENCE_CHECKPOINT, "IO", "ControlFileWriteUpdate"},
	{PGSCALE_EVIDENCE_CHECKPOINT, "Timeout", "CheckpointWriteDelay"},
	{PGSCALE_EVIDENCE_CHECKPOINT, "Timeout", "RegisterSyncRequest"},
	{PGSCALE_EVIDENCE_SERVER, "LWLock", "AddinShmemInit"},
	{PGSCALE_EVIDENCE_SERVER, "LWLock", "AutoFile"},
	{PGSCALE_EVIDENCE_SERVER, "LWLock", "BackgroundWorker"},
	{PGSCALE_EVIDENCE_SERVER, "LWLock", "DSMRegistry"},
	{PGSCALE_EVIDENCE_SERVER, "LWLock", "DSMRegistryDSA"},
	{PGSCALE_EVIDENCE_SERVER, "LWLock", "DSMRegistryHash"},
	{PGSCALE_EVIDENCE_SERVER, "LWLock", "DynamicSharedMemoryControl"},
	{PGSCALE_EVIDENCE_SERVER, "LWLock", "InjectionPoint"},
	{PGSCALE_EVIDENCE_SERVER, "LWLock", "OidGen"},
	{PGSCALE_EVIDENCE_SERVER, "LWLock", "RelationMapping"},
	{PGSCALE_EVIDENCE_SERVER, "LWLock", "RelCacheInit"},
	{PGSCALE_EVIDENCE_SERVER, "LWLock", "ShmemIndex"},
	{PGSCALE_EVIDENCE_SERVER, "LWLock", "SyncScan"},
	{PGSCALE_EVIDENCE_SERVER, "LWLock", "TablespaceCreate"},
	{PGSCALE_EVIDENCE_SERVER, "LWLock", "TwoPhaseState"},
	{PGSCALE_EVIDENCE_SERVER, "LWLock", "WaitEventCustom"},
	{PGSCALE_EVIDENCE_SERVER, "IPC", "BackendTermination"},
	{PGSCALE_EVIDENCE_SERVER, "IPC", "ProcSignalBarrier"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "CopyFileCopy"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "CopyFileRead"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "CopyFileWrite"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "DataFileTruncate"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "LockFileAddtodatadirRead"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "LockFileAddtodatadirSync"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "LockFileAddtodatadirWrite"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "LockFileCreateRead"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "LockFileCreateSync"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "LockFileCreateWrite"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "LockFileRecheckdatadirRead"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "RelationMapRead"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "RelationMapReplace"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "RelationMapSync"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "RelationMapWrite"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "TwophaseFileRead"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "TwophaseFileSync"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "TwophaseFileWrite"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "VersionFileSync"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "VersionFileWrite"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "WalBootstrapSync"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "WalBootstrapWrite"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "WalCopyRead"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "WalCopySync"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "WalCopyWrite"},
	{PGSCALE_EVIDENCE_SERVER, "IO", "WalSyncMethodAssign"},
	{PGSCALE_EVIDENCE_SERVER, "IPC", "RepackWorkerExport"},
	{PGSCALE_EVIDENCE_RECOVERY, "IPC", "ArchiveCleanupCommand"},
	{PGSCALE_EVIDENCE_RECOVERY, "IPC", "Promote"},
	{PGSCALE_EVIDENCE_RECOVERY, "IPC", "RecoveryConflictSnapshot"},
	{PGSCALE_EVIDENCE_RECOVERY, "IPC", "RecoveryConflictTablespace"},
	{PGSCALE_EVIDENCE_RECOVERY, "IPC", "RecoveryEndCommand"},
	{PGSCALE_EVIDENCE_RECOVERY, "IPC", "RecoveryPause"},
	{PGSCALE_EVIDENCE_RECOVERY, "IPC", "RestoreCommand"},
	{PGSCALE_EVIDENCE_RECOVERY, "Timeout", "RecoveryApplyDelay"},
	{PGSCALE_EVIDENCE_RECOVERY, "Timeout", "RecoveryRetrieveRetryInterval"},
	{PGSCALE_EVIDENCE_RECOVERY, "IPC", "WaitForWalFlush"},
	{PGSCALE_EVIDENCE_RECOVERY, "IPC", "WaitForWalReplay"},
	{PGSCALE_EVIDENCE_RECOVERY, "IPC", "WaitForWalWrite"},
	{PGSCALE_EVIDENCE_RECOVERY, "LWLock", "WaitLSN"},
	{PGSCALE_EVIDENCE_VACUUM, "Timeout", "VacuumDelay"},
	{PGSCALE_EVIDENCE_VACUUM, "Timeout", "VacuumTruncate"},
	{PGSCALE_EVIDENCE_VACUUM, "LWLock", "Autovacuum"},
	{PGSCALE_EVIDENCE_VACUUM, "LWLock", "AutovacuumSchedule"},
	{PGSCALE_EVIDENCE_VACUUM, "LWLock", "BtreeVacuum"},
	{PGSCALE_EVIDENCE_VACUUM, "LWLock", "MultiXactTruncation"},
	{PGSCALE_EVIDENCE_VACUUM, "LWLock", "ParallelVacuumDSA"},
	{PGSCALE_EVIDENCE_VACUUM, "LWLock", "WrapLimitsVacuum"},
	{PGSCALE_EVIDENCE_VACUUM, "LWLock", "XactTruncation"},
	{PGSCALE_EVIDENCE_VACUUM, "Lock", "frozenid"},
	{PGSCALE_EVIDENCE_OTHER_LOCK, "Lock", "object"},
	{PGSCALE_EVIDENCE_OTHER_LOCK, "Lock", "page"},
	{PGSCALE_EVIDENCE_OTHER_LOCK, "Lock", "spectoken"},
	{PGSCALE_EVIDENCE_OTHER_LOCK, "Lock", "userlock"},
	{PGSCALE_EVIDENCE_OTHER_LOCK, "Lock", "virtualxid"},
	{PGSCALE_EVIDENCE_COMMIT_TS, "LWLock", "CommitTs"},
	{PGSCALE_EVIDENCE_COMMIT_TS, "LWLock", "CommitTsBuffer"},
	{PGSCALE_EVIDENCE_COMMIT_TS, "LWLock", "CommitTsSLRU"},
	{PGSCALE_EVIDENCE_NOTIFY, "LWLock", "NotifyBuffer"},
	{PGSCALE_EVIDENCE_NOTIFY, "LWLock", "NotifyQueue"},
	{PGSCALE_EVIDENCE_NOTIFY, "LWLock", "NotifyQueueTail"},
	{PGSCALE_EVIDENCE_NOTIFY, "LWLock", "NotifySLRU"},
	{PGSCALE_EVIDENCE_NOTIFY, "LWLock", "NotifyChannelHash"},
	{PGSCALE_EVIDENCE_COPY, "IO", "CopyFromRead"},
	{PGSCALE_EVIDENCE_COPY, "IO", "CopyToWrite"},
	{PGSCALE_EVIDENCE_IDLE_IN_TRANSACTION, "Client", PGSCALE_WAIT_IDLE_NAME},
};

/* And what is not named above, by its class: events of libraries, and of majors to come.  A test asks for all others. */
static const WaitName class_names[] = {
	{PGSCALE_EVIDENCE_CPU, "CPU", NULL},
	{PGSCALE_EVIDENCE_OTHER_LWLOCK, "LWLock", NULL},
	{PGSCALE_EVIDENCE_OTHER_LOCK, "Lock", NULL},
	{PGSCALE_EVIDENCE_OTHER_IO, "IO", NULL},
	{PGSCALE_EVIDENCE_OTHER_IPC, "IPC", NULL},
	{PGSCALE_EVIDENCE_CLIENT, "Client", NULL},
};

const char *
pgscale_tuning_wait_kind_name(PgscaleTuningEvidenceWait kind)
{
	return kind_names[kind];
}

int
pgscale_tuning_wait_kind(const char *type, const char *name)
{
	if (strcmp(name, "PgSleep") == 0)
		return -1;
	for (int i = 0; i < lengthof(wait_names); i++)
		if (pg_strcasecmp(name, wait_names[i].name) == 0 && strcmp(type, wait_names[i].type) == 0)
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

/* Its first events of this type that this major has, as "A, B, others"; NULL if none has a name here. */
static const char *
kind_events(int kind, const char *type)
{
	const uint32 class = wait_class_of(type);
	StringInfoData names;
	int			n = 0;

	if (kind == PGSCALE_EVIDENCE_CPU)
		return "CPU";			/* no event, but shown as one */
	initStringInfo(&names);
	for (int i = 0; class != 0 && i < lengthof(wait_names); i++)
	{
		const char *name;

		if (wait_names[i].wait != kind || strcmp(wait_names[i].type, type) != 0)
			continue;
		name = own_name(class, wait_names[i].name);
		if (name && n++ < SHOWN_EVENTS)
			appendStringInfo(&names, "%s%s", names.len > 0 ? ", " : "", name);
	}
	if (n > SHOWN_EVENTS)
		appendStringInfoString(&names, ", others");
	return names.len > 0 ? names.data : NULL;
}

/*
 * The type that a kind is shown with, of those that majors have for it the one that this major
 * has; NULL for what is of several.
 */
static const char *
kind_type(int kind)
{
	const char *type = NULL;

	for (int i = 0; i < lengthof(wait_names); i++)
		if (wait_names[i].wait == kind && (!type || strcmp(type, wait_names[i].type) != 0))
		{
			if (type && kind_events(kind, type))
				break;
			type = wait_names[i].type;
		}
	if (type)
		return type;
	for (int i = 0; i < lengthof(class_names); i++)
		if (class_names[i].wait == kind)
			return class_names[i].type;
	return NULL;
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

/* Does it consist of events that have names here, or had on some other major? */
static bool
kind_has_names(int kind)
{
	for (int i = 0; i < lengthof(wait_names); i++)
		if (wait_names[i].wait == kind)
			return true;
	return false;
}

/* pgscale_internal.wait_kinds(): one row a kind; no event where this major has none of the kind. */
Datum
pgscale_wait_kinds(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int kind = 0; kind < PGSCALE_EVIDENCE_WAITS; kind++)
	{
		const char *type = kind_type(kind);
		const char *events = !kind_has_names(kind) && kind != PGSCALE_EVIDENCE_CPU ? "others" : kind_events(kind, type);
		Datum		values[] = {
			CStringGetTextDatum(kind_names[kind]),
			type ? CStringGetTextDatum(type) : (Datum) 0,
			events ? CStringGetTextDatum(events) : (Datum) 0,
		};
		bool		nulls[] = {false, !type, !events};

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
