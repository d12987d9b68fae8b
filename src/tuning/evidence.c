/*-------------------------------------------------------------------------
 *
 * evidence.c
 *	  A ring of evidence: every few seconds the deltas of the server's counters, and
 *	  the time of its sessions by wait.
 *
 * The server counts from its last reset on, which says little about now, and does not
 * count what its sessions wait for.  The sampler does.  So both are recorded together,
 * for the same seconds, and can be divided by each other.
 *
 * One process writes, the sampler; any number of others copy, and neither side waits
 * for the other.
 *
 * After a reset of the counters, or a pause of the sampler, a delta would be negative,
 * or would cover another time than the waits.  Such a record is not written; the next
 * one begins there.
 *
 * Settings: after a reload, the writer compares all values with the previous ones and
 * notes the time of each change.  Of the settings of a library that it has not loaded,
 * it knows those that a file sets.
 *
 * Failure: if the writer dies within a record, its successor writes the record again.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "port/atomics.h"
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
#include "tuning/tuning.h"

/* That long before a record's end the server is asked to sum up what its backends have written. */
#define REFRESH_MS		2000

/* The observed time may be so much less than the clock's before it is a gap. */
#define MAX_GAP_US		(2 * USECS_PER_SEC)

/* For that many settings the time of the last change is known. */
#define MAX_SETTINGS	1024

/* A setting's value, as the sampler has it, and since when. */
typedef struct Setting
{
	uint64		name;			/* hashes of both */
	uint32		value;
	pg_atomic_uint64 set_at;	/* 0: as at the server's start */
	pg_atomic_uint64 set_ns;	/* by CLOCK_MONOTONIC */
} Setting;

typedef struct Shared
{
	PgscaleRing ring;			/* of the records */
	pg_atomic_uint64 observed_ns;	/* by CLOCK_MONOTONIC; 0: never */

	pg_atomic_uint32 nsettings; /* the sampler adds to them, and writes all */
	Setting		settings[MAX_SETTINGS];

	PgscaleTuningEvidence records[PGSCALE_EVIDENCE_MAX];
} Shared;

static Shared *shared = NULL;

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
static int64 io_queue_ns;

static uint64
hash_of_name(const char *setting)
{
	char		name[256];

	strlcpy(name, setting, sizeof(name));
	for (char *c = name; *c; c++)
		*c = (char) pg_ascii_tolower((unsigned char) *c);
	return DatumGetUInt64(hash_any_extended((const unsigned char *) name, strlen(name), 0));
}

static uint32
value_of(const char *setting)
{
	const char *value = GetConfigOption(setting, true, false);

	return value ? DatumGetUInt32(hash_any((const unsigned char *) value, strlen(value))) : 0;
}

int
pgscale_tuning_evidence_ms(void)
{
	return pgscale_timer_period_ms(PGSCALE_EVIDENCE_MS);
}

Size
pgscale_tuning_evidence_size(void)
{
	return sizeof(Shared);
}

static Setting *
find_setting(uint64 name)
{
	const uint32 n = pg_atomic_read_u32(&shared->nsettings);

	pg_read_barrier();
	for (uint32 i = 0; i < n; i++)
		if (shared->settings[i].name == name)
			return &shared->settings[i];
	return NULL;
}

static void
watch_setting(const char *name, void *arg)
{
	const TimestampTz now = *(const TimestampTz *) arg; /* 0: the server starts */
	const uint64 hash = hash_of_name(name);
	const uint32 value = value_of(name);
	const uint32 n = pg_atomic_read_u32(&shared->nsettings);
	Setting    *setting = find_setting(hash);

	if (setting ? setting->value == value : n == MAX_SETTINGS)
		return;
	if (!setting)
	{
		setting = &shared->settings[n];
		setting->name = hash;
	}
	setting->value = value;
	if (now != 0)
	{
		pg_atomic_write_u64(&setting->set_ns, (uint64) pgscale_timer_clock());
		pg_atomic_write_u64(&setting->set_at, now);
	}
	pg_write_barrier();
	if (setting == &shared->settings[n])
		pg_atomic_write_u32(&shared->nsettings, n + 1);
}

void
pgscale_tuning_evidence_startup(void)
{
	TimestampTz start = 0;
	bool		found;

	shared = ShmemInitStruct("pgscale tuning", sizeof(Shared), &found);
	if (found)
		return;

	memset(shared, 0, sizeof(Shared));
	pgscale_ring_init(&shared->ring);
	pg_atomic_init_u64(&shared->observed_ns, 0);
	pg_atomic_init_u32(&shared->nsettings, 0);
	for (int i = 0; i < MAX_SETTINGS; i++)
	{
		pg_atomic_init_u64(&shared->settings[i].set_at, 0);
		pg_atomic_init_u64(&shared->settings[i].set_ns, 0);
	}
	pgscale_compat_each_setting(watch_setting, &start);
}

static void
watch_settings(TimestampTz now)
{
	static TimestampTz read_at = 0;

	if (read_at == PgReloadTime)
		return;
	read_at = PgReloadTime;
	pgscale_compat_each_setting(watch_setting, &now);
}

TimestampTz
pgscale_tuning_evidence_set_at(const char *name)
{
	const TimestampTz now = GetCurrentTimestamp();
	Setting    *setting = find_setting(hash_of_name(name));
	TimestampTz at;

	/* of one that found no place it may have been at the last reload */
	if (!setting)
		return pg_atomic_read_u32(&shared->nsettings) == MAX_SETTINGS && PgReloadTime <= now ? PgReloadTime : 0;
	at = (TimestampTz) pg_atomic_read_u64(&setting->set_at);
	/* A future time is from a clock that was set back since. */
	return at <= now ? at : now - (pgscale_timer_clock() - (int64) pg_atomic_read_u64(&setting->set_ns)) / 1000;
}

/* The kind of a wait, or -1 for what is none. */
static int
evidence_kind_of(uint32 wait_event)
{
	const char *type = pgscale_wait_event_type(wait_event);
	const char *name = pgscale_wait_event_name(wait_event);

	return type ? pgscale_tuning_wait_kind(type, name ? name : "") : PGSCALE_EVIDENCE_CPU;
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

/* Do as many io workers as there may be work just now? */
static bool
io_workers_work(void)
{
	static PgscaleProc procs[NUM_AUXILIARY_PROCS];
	const int	first = pgscale_procs_count() - NUM_AUXILIARY_PROCS;
	const int	most = pgscale_compat_io_workers();
	int			working = 0;
	bool		changed;
	uint64		retries = 0;

	for (int i = 0; i < NUM_AUXILIARY_PROCS && most > 0; i++)
		if (pgscale_procs_read(first + i, &procs[i], &changed, &retries) && pgscale_is_io_worker(procs[i].kind) &&
			!pgscale_wait_is_idle(procs[i].kind, procs[i].wait_event))
			working++;
	return most > 0 && working >= most;
}

static void
add_completion(void *arg, uint32 wait_event, uint64 ns)
{
	if (wait_event == PGSCALE_WAIT_AIO_COMPLETION)
		*(uint64 *) arg += ns;
}

/* The time that sessions have waited for io workers since the last call, if none of these idles now. */
static int64
io_queue_look(const PgscaleObservation *observation)
{
	static uint64 before = 0;
	uint64		now = 0;
	int64		queued = 0;

	if (pgscale_compat_io_workers() == 0)
		return 0;
	observation->waits(add_completion, &now);
	if (now > before && io_workers_work())
		queued = now - before;
	before = now;
	return queued;
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

/* The difference between two looks; returns false if it is unknown. */
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
	record->io_queue_ns = io_queue_ns;
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
pgscale_tuning_evidence_observe(const PgscaleObservation *observation)
{
	const int64 period_ms = pgscale_tuning_evidence_ms();
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
	observed_ns += observation->ns;
	active_ns += observation->active * observation->ns;
	if (checkpointer_syncs())
		sync_ns += observation->ns;
	io_queue_ns += io_queue_look(observation);
	if (!base.known || observed_ns >= period_ms * NS_PER_MS)
	{
		evidence_look(observation, &now);
		if (base.known && evidence_compare(&base, &now, &record))
			evidence_put(&record);
		base = now;
		observed_ns = sync_ns = io_queue_ns = 0;
		active_ns = 0;
	}
	if (observed_ns >= (period_ms - REFRESH_MS) * NS_PER_MS)
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
	sum->io_queue_ns += record->io_queue_ns;
	sum->sweep_ticks += record->sweep_ticks;
	sum->swapped = sum_known(sum->swapped, record->swapped);
	sum->compact_stalls = sum_known(sum->compact_stalls, record->compact_stalls);
	sum->active_ns += record->active_ns;
	sum->session_ns += record->session_ns;
	for (int i = 0; i < PGSCALE_EVIDENCE_WAITS; i++)
		sum->wait_ns[i] += record->wait_ns[i];
}
