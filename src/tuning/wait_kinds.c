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
	{PGSCALE_EVIDENCE_WAL_INSERT, "LWLock", "WALInsert"},
	{PGSCALE_EVIDENCE_WAL_BUFFERS, "LWLock", "WALBufMapping"},
	{PGSCALE_EVIDENCE_WAL_INIT, "IO", "WalInitWrite"},
	{PGSCALE_EVIDENCE_WAL_INIT, "IO", "WalInitSync"},
	{PGSCALE_EVIDENCE_DATA_READ, "IO", "DataFileRead"},
	{PGSCALE_EVIDENCE_DATA_READ, "IO", "AioIoCompletion"},
	{PGSCALE_EVIDENCE_DATA_READ, "IO", "AioIoUringExecution"},
	{PGSCALE_EVIDENCE_DATA_READ, "IO", "AioIoUringSubmit"},
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
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "ExecuteGather"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "ParallelFinish"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "BgWorkerStartup"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "BgWorkerShutdown"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "BtreePage"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "ParallelBitmapScan"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "ParallelCreateIndexScan"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "MessageQueueReceive"},
	{PGSCALE_EVIDENCE_PARALLEL, "IPC", "MessageQueueSend"},
	{PGSCALE_EVIDENCE_SPIN, "Timeout", "SpinDelay"},
	{PGSCALE_EVIDENCE_CLIENT, "Client", "ClientWrite"},
};

/* And what is not named above, by its class. */
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
	if (strcmp(type, "IPC") == 0 && strncmp(name, "Hash", 4) == 0)
		return PGSCALE_EVIDENCE_PARALLEL;
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
	for (uint32 event = 0; event < PGSCALE_TRANCHES_END; event++)
	{
		const char *own = pgstat_get_wait_event(class | event);

		if (own && pg_strcasecmp(own, name) == 0)
			return own;
	}
	return NULL;
}

/* Its events of this type that this major has, as "A, B"; NULL if none has a name here. */
static const char *
kind_events(int kind, const char *type)
{
	const uint32 class = wait_class_of(type);
	StringInfoData names;

	if (kind == PGSCALE_EVIDENCE_CPU)
		return "CPU";			/* no event, but shown as one */
	initStringInfo(&names);
	for (int i = 0; class != 0 && i < lengthof(wait_names); i++)
	{
		const char *name;

		if (wait_names[i].wait != kind || strcmp(wait_names[i].type, type) != 0)
			continue;
		name = own_name(class, wait_names[i].name);
		if (name)
			appendStringInfo(&names, "%s%s", names.len > 0 ? ", " : "", name);
	}
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
