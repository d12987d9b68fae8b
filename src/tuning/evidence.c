/*-------------------------------------------------------------------------
 *
 * evidence.c
 *	  A ring of what the server did: every few seconds the differences of its
 *	  counters and the time that its sessions spent, and with what.
 *
 * The server counts from its last reset on, which tells little of now; and what
 * its sessions wait for it does not count at all.  The sampler does, so both are
 * written down together, of the very same seconds: then they can be divided by
 * each other.
 *
 * One process writes, the sampler; any number of others copy, and neither side
 * waits for the other.
 *
 * Counters are reset, and the sampler switched off and on: then a difference would
 * be negative, or of another time than the waits.  Such a record is not written;
 * the next one begins there.
 *
 * Settings: when the configuration was read again, the writer compares the values
 * that rules are about and notes the time of those that changed.
 *
 * Failure: if the writer dies within a record, its successor writes it anew.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "lib/stringinfo.h"
#include "port/atomics.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "base/kernel.h"
#include "base/pg_compat.h"
#include "base/processes.h"
#include "base/ring.h"
#include "base/shared_buffers.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/wait_events.h"
#include "tuning/evidence.h"


/* How many locks of other extensions to look through for a name. */
#define EXTENSIONS_LOCKS	64

/*
 * So long before a record's end the server is asked to sum up what its backends
 * have written.
 */
#define REFRESH_MS		2000

/* The observed time may be so much less than the clock's before it is a gap. */
#define MAX_GAP_US		(2 * USECS_PER_SEC)

/*
 * What a kind of time consists of; names as in pg_stat_activity of any major, whose
 * cases differ.
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
	{PGSCALE_EVIDENCE_BUFFER_IO, "IPC", "BufferIO"},
	{PGSCALE_EVIDENCE_BUFFER_PIN, "BufferPin", "BufferPin"},
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

/* The settings that rules are about. */
static const char *const watched[] = {
	"backend_flush_after", "bgwriter_delay", "bgwriter_flush_after", "bgwriter_lru_maxpages",
	"bgwriter_lru_multiplier", "checkpoint_completion_target", "checkpoint_flush_after",
	"checkpoint_timeout", "commit_delay", "commit_siblings", "effective_io_concurrency",
	"fsync", "full_page_writes", "huge_pages", "max_wal_size", "min_wal_size",
	"max_worker_processes", "multixact_member_buffers", "multixact_offset_buffers",
	"pgscale.sweeper", "pgscale.writeback", "random_page_cost", "shared_buffers",
	"subtransaction_buffers", "synchronous_commit", "transaction_buffers", "wal_buffers",
	"wal_compression", "wal_recycle", "wal_writer_delay", "wal_writer_flush_after",
};

typedef struct Shared
{
	PgscaleRing ring;			/* of the records */
	pg_atomic_uint64 observed_ns;	/* by CLOCK_MONOTONIC; 0: never */

	/*
	 * The values' hashes, and since when they are so; the sampler writes
	 * both.
	 */
	uint32		value[lengthof(watched)];
	pg_atomic_uint64 set_at[lengthof(watched)]; /* 0: as at the server's start */
	pg_atomic_uint64 set_ns[lengthof(watched)]; /* by CLOCK_MONOTONIC */

	PgscaleTuningEvidence records[PGSCALE_EVIDENCE_MAX];
} Shared;

static Shared *shared = NULL;

int			pgscale_tuning_evidence_ms = PGSCALE_EVIDENCE_MS;

/* The writer's own: where the record under way began. */
typedef struct Base
{
	bool		known;
	TimestampTz at;
	PgscaleCounters counters;
	int64		hand;
	PgscaleKernelCounts kernel;
	uint64		wait_ns[PGSCALE_EVIDENCE_WAITS];
} Base;

static Base base;
static int64 observed_ns;		/* since then, as the rest */
static double active_ns;
static int64 sync_ns;

static uint32
value_of(const char *setting)
{
	const char *value = GetConfigOption(setting, true, false);

	return value ? DatumGetUInt32(hash_any((const unsigned char *) value, strlen(value))) : 0;
}

Size
pgscale_tuning_evidence_size(void)
{
	return sizeof(Shared);
}

void
pgscale_tuning_evidence_startup(void)
{
	bool		found;

	shared = ShmemInitStruct("pgscale tuning", sizeof(Shared), &found);
	if (found)
		return;

	memset(shared, 0, sizeof(Shared));
	pgscale_ring_init(&shared->ring);
	pg_atomic_init_u64(&shared->observed_ns, 0);
	for (int i = 0; i < lengthof(watched); i++)
	{
		shared->value[i] = value_of(watched[i]);
		pg_atomic_init_u64(&shared->set_at[i], 0);
		pg_atomic_init_u64(&shared->set_ns[i], 0);
	}
}

static void
watch_settings(TimestampTz now)
{
	static TimestampTz read_at = 0;

	if (read_at == PgReloadTime)
		return;
	read_at = PgReloadTime;
	for (int i = 0; i < lengthof(watched); i++)
	{
		const uint32 value = value_of(watched[i]);

		if (value == shared->value[i])
			continue;
		shared->value[i] = value;
		pg_atomic_write_u64(&shared->set_ns[i], (uint64) pgscale_timer_clock());
		pg_atomic_write_u64(&shared->set_at[i], now);
	}
}

TimestampTz
pgscale_tuning_evidence_set_at(const char *setting)
{
	const TimestampTz now = GetCurrentTimestamp();

	/* What is yet to come was told by a clock that was set back since. */
	for (int i = 0; i < lengthof(watched); i++)
		if (pg_strcasecmp(setting, watched[i]) == 0)
		{
			const TimestampTz at = (TimestampTz) pg_atomic_read_u64(&shared->set_at[i]);
			const int64 ns = (int64) pg_atomic_read_u64(&shared->set_ns[i]);

			return at <= now ? at : now - (pgscale_timer_clock() - ns) / 1000;
		}
	return PgReloadTime <= now ? PgReloadTime : 0;
}

/* The kind of a wait, or -1 for what is none. */
static int
evidence_kind_of(uint32 wait_event)
{
	const char *type = pgscale_wait_event_type(wait_event);
	const char *name = pgscale_wait_event_name(wait_event);

	if (!type)
		return PGSCALE_EVIDENCE_CPU;
	if (!name)
		name = "";
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
evidence_class_of(const char *type)
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
	for (uint32 event = 0; event < LWTRANCHE_FIRST_USER_DEFINED + EXTENSIONS_LOCKS; event++)
	{
		const char *own = pgstat_get_wait_event(class | event);

		if (own && pg_strcasecmp(own, name) == 0)
			return own;
	}
	return NULL;
}

const char *
pgscale_tuning_evidence_events(PgscaleTuningEvidenceWait wait, const char *type)
{
	const uint32 class = evidence_class_of(type);
	StringInfoData names;

	initStringInfo(&names);
	for (int i = 0; class != 0 && i < lengthof(wait_names); i++)
	{
		const char *name;

		if (wait_names[i].wait != wait || strcmp(wait_names[i].type, type) != 0)
			continue;
		name = own_name(class, wait_names[i].name);
		if (name)
			appendStringInfo(&names, "%s%s", names.len > 0 ? ", " : "", name);
	}
	return names.len > 0 ? names.data : NULL;
}

static void
add_wait(void *arg, uint32 wait_event, uint64 ns)
{
	const int	kind = evidence_kind_of(wait_event);

	if (kind >= 0)
		((uint64 *) arg)[kind] += ns;
}

/* Does the checkpointer sync files just now? */
static bool
checkpointer_syncs(void)
{
	static int	slot = 0;
	static PgscaleProc proc;
	bool		changed;
	uint64		retries = 0;

	if (!pgscale_procs_read(slot, &proc, &changed, &retries) || proc.kind != (PgscaleProcKind) B_CHECKPOINTER)
	{
		/* It has a slot for life, but is not there from the start. */
		for (slot = pgscale_procs_count() - 1; slot > 0; slot--)
		{
			memset(&proc, 0, sizeof(proc));
			if (pgscale_procs_read(slot, &proc, &changed, &retries) && proc.kind == (PgscaleProcKind) B_CHECKPOINTER)
				break;
		}
		if (slot == 0)
			return false;
	}
	return proc.wait_event == WAIT_EVENT_DATA_FILE_SYNC;
}

/* Everything as of now. */
static void
evidence_look(const PgscaleObservation *observation, Base *now)
{
	memset(now, 0, sizeof(*now));
	now->known = true;
	now->at = observation->at;
	now->hand = (int64) pgscale_buffers_hand();
	pgscale_kernel_counts(&now->kernel);
	observation->waits(add_wait, now->wait_ns);
	pgscale_counters_read(&now->counters, observation->databases, observation->ndatabases);
}

static int64
evidence_difference(int64 from, int64 to)
{
	return from < 0 || to < from ? -1 : to - from;
}

/* What lies between two looks; false if that cannot be told. */
static bool
evidence_compare(const Base *from, const Base *to, PgscaleTuningEvidence *record)
{
	const int64 gap_us = to->at - from->at - observed_ns / 1000;

	memset(record, 0, sizeof(*record));
	record->since = from->at;
	record->until = to->at;
	record->ns = observed_ns;
	record->active_ns = (uint64) active_ns;
	record->sync_ns = sync_ns;
	record->sweep_ticks = to->hand - from->hand;
	record->swapped = evidence_difference(from->kernel.swapped, to->kernel.swapped);
	record->compact_stalls = evidence_difference(from->kernel.compact_stalls, to->kernel.compact_stalls);
	for (int i = 0; i < PGSCALE_EVIDENCE_WAITS; i++)
	{
		if (to->wait_ns[i] < from->wait_ns[i])
			return false;
		record->wait_ns[i] = to->wait_ns[i] - from->wait_ns[i];
		record->session_ns += record->wait_ns[i];
	}
	return gap_us <= MAX_GAP_US && gap_us >= -MAX_GAP_US &&
		pgscale_counters_between(&from->counters, &to->counters, &record->counts);
}

static void
evidence_put(const PgscaleTuningEvidence *record)
{
	const uint64 number = pgscale_ring_begin_write(&shared->ring, 1);

	shared->records[number % PGSCALE_EVIDENCE_MAX] = *record;
	pgscale_ring_end_write(&shared->ring, number + 1);
}

void
pgscale_tuning_evidence_observe(const PgscaleObservation *observation, bool on)
{
	PgscaleTuningEvidence record;
	Base		now;

	/*
	 * A record is of one time without gaps, whose counts and waits belong
	 * together.
	 */
	if (observation->anew)
		base.known = false;

	watch_settings(observation->at);
	pg_atomic_write_u64(&shared->observed_ns, (uint64) pgscale_timer_clock());
	if (!on)
	{
		base.known = false;
		return;
	}
	observed_ns += observation->ns;
	active_ns += observation->active * observation->ns;
	if (checkpointer_syncs())
		sync_ns += observation->ns;
	if (!base.known || observed_ns >= pgscale_tuning_evidence_ms * NS_PER_MS)
	{
		evidence_look(observation, &now);
		if (base.known && evidence_compare(&base, &now, &record))
			evidence_put(&record);
		base = now;
		observed_ns = sync_ns = 0;
		active_ns = 0;
	}
	if (observed_ns >= (pgscale_tuning_evidence_ms - REFRESH_MS) * NS_PER_MS)
		pgscale_compat_refresh_backend_writes();
}

int64
pgscale_tuning_evidence_last_ns(int *nrecords)
{
	*nrecords = (int) Min(pgscale_ring_begin_read(&shared->ring), PGSCALE_EVIDENCE_MAX);
	return (int64) pg_atomic_read_u64(&shared->observed_ns);
}

/*
 * From the newest on, so that after the clock was set back what was written before
 * that does not hide what is written since.
 */
int
pgscale_tuning_evidence_read(TimestampTz since, TimestampTz until, PgscaleTuningEvidence *records, int max)
{
	TimestampTz next = until;
	int			n = 0;

	for (uint64 end = pgscale_ring_begin_read(&shared->ring); end > 0 && n < max; end--)
	{
		PgscaleTuningEvidence *record = &records[max - 1 - n];

		*record = shared->records[(end - 1) % PGSCALE_EVIDENCE_MAX];
		if (end - 1 < pgscale_ring_oldest(&shared->ring, PGSCALE_EVIDENCE_MAX))
			break;
		if (record->since < since || record->until > next)
			continue;
		next = record->since;
		n++;
	}
	memmove(records, &records[max - n], n * sizeof(PgscaleTuningEvidence));
	return n;
}

static int64
sum_known(int64 a, int64 b)
{
	return a < 0 || b < 0 ? -1 : a + b;
}

void
pgscale_tuning_evidence_add(PgscaleTuningEvidence *sum, const PgscaleTuningEvidence *record)
{
	if (sum->ns == 0)
		sum->since = record->since;
	sum->until = record->until;
	sum->ns += record->ns;
	pgscale_counters_add(&sum->counts, &record->counts);
	sum->sync_ns += record->sync_ns;
	sum->sweep_ticks += record->sweep_ticks;
	sum->swapped = sum_known(sum->swapped, record->swapped);
	sum->compact_stalls = sum_known(sum->compact_stalls, record->compact_stalls);
	sum->active_ns += record->active_ns;
	sum->session_ns += record->session_ns;
	for (int i = 0; i < PGSCALE_EVIDENCE_WAITS; i++)
		sum->wait_ns[i] += record->wait_ns[i];
}
