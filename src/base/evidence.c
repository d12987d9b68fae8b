/*-------------------------------------------------------------------------
 *
 * evidence.c
 *	  Two rings of evidence: every few seconds the server's counters, and the time of its
 *	  sessions by wait.
 *
 * The server counts from its last reset on, which says little about now, and does not
 * count what its sessions wait for.  The sampler does.  So both are read together,
 * for the same seconds, and can be divided by each other.  A fault must be named within
 * ten seconds of its beginning, so there are snapshots of every two seconds, too.
 *
 * One process writes, the sampler; any number of others copy, and neither side waits
 * for the other.
 *
 * A counter that the server has reset goes on from where it was, without what it counted
 * since the snapshot before: were the snapshots as the server has them, a difference of two
 * would be negative, or, as soon as the counter is beyond where it was, too small, with nothing
 * to tell.
 *
 * After a reset, or a pause of the sampler, a difference lacks some counts, or covers
 * another time than the waits.  Such a one is no record; the next one begins there.
 *
 * A third ring has the kernel's counts of sessions, as the sampler reads them.
 *
 * Failure: if the writer dies within a snapshot, its successor writes that place again.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "port/atomics.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "base/evidence.h"
#include "base/pg_compat.h"
#include "base/processes.h"
#include "base/ring.h"
#include "base/shared_area.h"
#include "base/shared_buffers.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/wait_events.h"

#define SECONDS_NS		(2 * NS_PER_S)

/* Readings of sessions' CPU that are kept, and until when they are of use: each active one is read in that time. */
#define CPU_READINGS	4096
#define CPU_AGE_NS		(5 * NS_PER_S)

/* That long before a record's end the server is asked to sum up what its backends have written. */
#define REFRESH_MS		2000

/* The observed time may be so much less than the clock's before it is a gap. */
#define MAX_GAP_US		(2 * USECS_PER_SEC)

/* The numbers of evidence, as an array. */
#define FIRST_NUMBER	offsetof(PgscaleEvidence, ns)
#define NUMBERS			((sizeof(PgscaleEvidence) - FIRST_NUMBER) / sizeof(int64))
#define NUMBERS_OF(evidence)	((int64 *) ((char *) (evidence) + FIRST_NUMBER))

static const struct
{
	int			first;			/* among all snapshots */
	int			size;
}			places[] = {
	[PGSCALE_EVIDENCE_HOUR] = {0, PGSCALE_EVIDENCE_NHOUR},
	[PGSCALE_EVIDENCE_SECONDS] = {PGSCALE_EVIDENCE_NHOUR, PGSCALE_EVIDENCE_NSECONDS}
};

typedef struct Shared
{
	PgscaleRing rings[PGSCALE_EVIDENCE_AGES];
	pg_atomic_uint64 observed_ns;	/* by CLOCK_MONOTONIC; 0: never */
	pg_atomic_uint64 epoch;
	PgscaleRing cpu_ring;
	PgscaleCpuReading cpu[CPU_READINGS];
	PgscaleEvidenceSnapshot snapshots[PGSCALE_EVIDENCE_NHOUR + PGSCALE_EVIDENCE_NSECONDS];
} Shared;

static Shared *shared = NULL;

/* The writer's own. */
static struct
{
	PgscaleEvidenceSnapshot now;	/* what is observed, once a second, is
									 * summed up in it */
	int64		taken_ns[PGSCALE_EVIDENCE_AGES];	/* of that; -1: not yet in
													 * this epoch */
	PgscaleCounters counters;	/* as the server had them then */
	PgscaleEvidence record;		/* the sums where the record under way began */
}			writer;

int
pgscale_evidence_ms(void)
{
	return pgscale_timer_period_ms(PGSCALE_EVIDENCE_MS);
}

static void
evidence_init(void)
{
	for (int age = 0; age < PGSCALE_EVIDENCE_AGES; age++)
		pgscale_ring_init(&shared->rings[age]);
	pgscale_ring_init(&shared->cpu_ring);
	pg_atomic_init_u64(&shared->observed_ns, 0);
	pg_atomic_init_u64(&shared->epoch, 0);
}

const PgscaleArea pgscale_evidence_area = {
	.name = "pgscale evidence",
	.at = (void **) &shared,
	.size = sizeof(Shared),
	.init = evidence_init,
};

static void
add_wait(void *arg, uint32 wait_event, uint64 ns)
{
	PgscaleEvidence *sums = arg;
	const int	kind = pgscale_wait_kind_of(wait_event);

	if (kind < 0)
		return;
	sums->wait_ns[kind] += (int64) ns;
	sums->session_ns += (int64) ns;
	if ((wait_event & PGSCALE_WAIT_CLASS) == PG_WAIT_LOCK)
		sums->lock_ns += (int64) ns;
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
		*(int64 *) arg += (int64) ns;
}

/* The time that sessions have waited for io workers since the last call, if none of these idles now. */
static int64
io_queue_time(const PgscaleObservation *observation)
{
	static int64 before = 0;
	int64		now = 0;
	int64		queued = 0;

	if (pgscale_compat_io_workers() == 0)
		return 0;
	observation->waits(add_completion, &now);
	if (now > before && io_workers_work())
		queued = now - before;
	before = now;
	return queued;
}

/* What the server has counted since the snapshot before. */
static void
add_counts(PgscaleEvidence *sums, const PgscaleCounters *counters)
{
	const int64 *before = (const int64 *) &writer.counters;
	const int64 *now = (const int64 *) counters;
	int64	   *sum = (int64 *) &sums->counts;
	bool		reset = false;

	for (int i = 0; i < sizeof(PgscaleCounters) / sizeof(int64); i++)
	{
		reset = reset || (now[i] >= 0 && now[i] < before[i]);
		sum[i] = now[i] < 0 ? -1 : sum[i] + Max(now[i] - before[i], 0);
	}
	if (reset)
		sums->resets++;
	writer.counters = *counters;
}

/* Everything as of now. */
static void
evidence_take(const PgscaleObservation *observation)
{
	PgscaleEvidence *sums = &writer.now.sums;
	PgscaleKernelCounts kernel;
	PgscaleCounters counters;

	writer.now.clock_ns = pgscale_timer_clock();
	writer.now.max_wal_size_mb = max_wal_size_mb;
	sums->until = observation->at;
	sums->sweep_ticks = (int64) pgscale_buffers_hand();
	pgscale_kernel_counts(&kernel);
	sums->swapped = kernel.swapped;
	sums->compact_stalls = kernel.compact_stalls;
	sums->session_ns = sums->lock_ns = 0;
	memset(sums->wait_ns, 0, sizeof(sums->wait_ns));
	observation->waits(add_wait, sums);
	pgscale_counters_read(&counters, observation->databases, observation->ndatabases);
	add_counts(sums, &counters);
}

bool
pgscale_evidence_between(const PgscaleEvidence *from, const PgscaleEvidence *to, PgscaleEvidence *difference)
{
	const int64 *a = NUMBERS_OF(from);
	const int64 *b = NUMBERS_OF(to);
	int64	   *d = NUMBERS_OF(difference);
	bool		known = true;

	difference->since = from->until;
	difference->until = to->until;
	for (int i = 0; i < NUMBERS; i++)
	{
		if (b[i] >= 0 && b[i] < a[i])
			known = false;
		d[i] = a[i] < 0 || b[i] < a[i] ? -1 : b[i] - a[i];
	}
	return known;
}

/* A record is of one time without gaps, whose counts and waits belong together. */
static bool
ends_record(void)
{
	PgscaleEvidence record;
	int64		gap_us;

	if (writer.taken_ns[PGSCALE_EVIDENCE_HOUR] < 0 || !pgscale_evidence_between(&writer.record, &writer.now.sums, &record) ||
		record.resets != 0)
		return false;
	gap_us = record.until - record.since - record.ns / 1000;
	return gap_us <= MAX_GAP_US && gap_us >= -MAX_GAP_US;
}

static void
put_snapshot(PgscaleEvidenceAge age)
{
	const uint64 number = pgscale_ring_begin_write(&shared->rings[age], 1);

	shared->snapshots[places[age].first + number % places[age].size] = writer.now;
	pgscale_ring_end_write(&shared->rings[age], number + 1);
	writer.taken_ns[age] = writer.now.sums.ns;
}

/* Is a snapshot due after that time? */
static bool
is_due(PgscaleEvidenceAge age, int64 period_ns)
{
	return writer.taken_ns[age] < 0 || writer.now.sums.ns - writer.taken_ns[age] >= period_ns;
}

void
pgscale_evidence_observe(const PgscaleObservation *observation)
{
	const int64 period_ns = pgscale_evidence_ms() * NS_PER_MS;
	PgscaleEvidence *sums = &writer.now.sums;
	const int64 queued_ns = io_queue_time(observation);
	const bool	standby = RecoveryInProgress();
	bool		seconds;
	bool		record;

	pg_atomic_write_u64(&shared->observed_ns, (uint64) pgscale_timer_clock());
	if (writer.now.epoch == 0 || observation->anew || writer.now.standby != standby)
	{
		memset(&writer, 0, sizeof(writer));
		writer.now.standby = standby;
		writer.now.epoch = pg_atomic_fetch_add_u64(&shared->epoch, 1) + 1;
		for (int age = 0; age < PGSCALE_EVIDENCE_AGES; age++)
			writer.taken_ns[age] = -1;
	}
	else
	{
		sums->ns += observation->ns;
		sums->active_ns += (int64) (observation->active * observation->ns);
		if (checkpointer_syncs())
			sums->sync_ns += observation->ns;
		sums->io_queue_ns += queued_ns;
	}

	seconds = is_due(PGSCALE_EVIDENCE_SECONDS, SECONDS_NS);
	record = is_due(PGSCALE_EVIDENCE_HOUR, period_ns);
	if (seconds || record)
		evidence_take(observation);
	if (seconds)
		put_snapshot(PGSCALE_EVIDENCE_SECONDS);
	if (record)
	{
		writer.now.ends_record = ends_record();
		put_snapshot(PGSCALE_EVIDENCE_HOUR);
		writer.record = *sums;
	}
	if (is_due(PGSCALE_EVIDENCE_HOUR, period_ns - REFRESH_MS * NS_PER_MS))
		pgscale_compat_refresh_backend_writes();
}

int64
pgscale_evidence_last_ns(void)
{
	return (int64) pg_atomic_read_u64(&shared->observed_ns);
}

uint64
pgscale_evidence_snapshots(PgscaleEvidenceAge age)
{
	return pgscale_ring_begin_read(&shared->rings[age]);
}

bool
pgscale_evidence_snapshot(PgscaleEvidenceAge age, uint64 number, PgscaleEvidenceSnapshot *snapshot)
{
	*snapshot = shared->snapshots[places[age].first + number % places[age].size];
	return number >= pgscale_ring_oldest(&shared->rings[age], places[age].size);
}

/*
 * From the newest on, so that after the clock was set back what was written before
 * that does not hide what is written since.
 */
int
pgscale_evidence_read(TimestampTz since, TimestampTz until, PgscaleEvidence *records, int max)
{
	const bool	standby = RecoveryInProgress();
	uint64		number = pgscale_evidence_snapshots(PGSCALE_EVIDENCE_HOUR);
	TimestampTz next = until;
	PgscaleEvidenceSnapshot from;
	PgscaleEvidenceSnapshot to = {0};
	int			n = 0;

	for (; number > 0 && n < max && pgscale_evidence_snapshot(PGSCALE_EVIDENCE_HOUR, number - 1, &from); number--, to = from)
	{
		PgscaleEvidence *record = &records[max - 1 - n];

		if (from.standby && !standby)
			break;
		if (!to.ends_record || from.sums.until < since || to.sums.until > next)
			continue;
		(void) pgscale_evidence_between(&from.sums, &to.sums, record);
		next = record->since;
		n++;
	}
	memmove(records, &records[max - n], n * sizeof(PgscaleEvidence));
	return n;
}

void
pgscale_evidence_add(PgscaleEvidence *sum, const PgscaleEvidence *record)
{
	const int64 *from = NUMBERS_OF(record);
	int64	   *to = NUMBERS_OF(sum);

	if (sum->ns == 0)
		sum->since = record->since;
	sum->until = record->until;
	for (int i = 0; i < NUMBERS; i++)
		to[i] = to[i] < 0 || from[i] < 0 ? -1 : to[i] + from[i];
}

void
pgscale_evidence_add_cpu(int pid, const PgscaleKernelSchedule *counts)
{
	const uint64 number = pgscale_ring_begin_write(&shared->cpu_ring, 1);

	shared->cpu[number % CPU_READINGS] = (PgscaleCpuReading)
	{
		pid, pgscale_timer_clock(), *counts
	};
	pgscale_ring_end_write(&shared->cpu_ring, number + 1);
}

bool
pgscale_evidence_find_cpu(int pid, int64 before_ns, PgscaleCpuReading *found)
{
	uint64		number = shared ? pgscale_ring_begin_read(&shared->cpu_ring) : 0;

	while (number-- > 0)
	{
		*found = shared->cpu[number % CPU_READINGS];
		if (number < pgscale_ring_oldest(&shared->cpu_ring, CPU_READINGS) || found->clock_ns < before_ns - CPU_AGE_NS)
			return false;
		if (found->pid == pid && found->clock_ns <= before_ns)
			return true;
	}
	return false;
}
