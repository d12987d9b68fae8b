/*-------------------------------------------------------------------------
 *
 * now_counts.c
 *	  What the sampler has seen in the last seconds, and in the hour before.
 *
 * Rings of snapshots in shared memory, which thin out with age: one of every two seconds,
 * one of every ten, and one of every minute.  A snapshot has the time that sessions spent in each wait event, and some of the
 * server's counters, both as sums that only grow.  So the difference of any two of them is
 * a period: the last seconds, the last minute, and what is usual, the hour before the
 * last half minute.
 *
 * The evidence of tuning has five seconds and kinds of waits; a fault must be named within
 * ten seconds of its beginning, and by event.
 *
 * The sampler's process writes, outside of its ticks.  Each snapshot has a count of its
 * changes, by which any number of readers copy it, and neither side waits.
 *
 * A snapshot belongs to an epoch, which ends where the sampler is started anew or did not
 * observe for a while: nothing is subtracted across two of them.  Nor is a counter that
 * was reset in between: it is unknown for that period.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "port/atomics.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/jsonb.h"

#include "base/change_count.h"
#include "base/server_counters.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/wait_events.h"
#include "now/now.h"

typedef enum Age
{
	FINE,						/* half a minute */
	COARSE,						/* two minutes */
	HOUR,
	NAGES
} Age;

#define NFINE			16
#define NCOARSE			13
#define NHOUR			62

static const struct
{
	int64		period_ns;
	int			first;			/* among all snapshots */
	int			size;
}			ages[] = {
	[FINE] = {2 * NS_PER_S, 0, NFINE},
	[COARSE] = {10 * NS_PER_S, NFINE, NCOARSE},
	[HOUR] = {60 * NS_PER_S, NFINE + NCOARSE, NHOUR}
};

/* The sampler's table of events never shrinks, and a server knows some three hundred. */
#define MAX_EVENTS		256

/* The last seconds: at least so many, which smooths what a single sample is. */
#define RECENT_NS		(5 * NS_PER_S)
#define HALF_MINUTE_NS	(30 * NS_PER_S)
#define MINUTE_NS		(60 * NS_PER_S)

/* The usual period ended half a minute ago, so that what has just begun is not part of it, and has 15 s at least. */
#define USUAL_AGO_NS	(30 * NS_PER_S)
#define USUAL_LEAST_NS	(15 * NS_PER_S)

/* Without a snapshot for so long the sampler is not at work. */
#define STALLED_NS		(10 * NS_PER_S)

PG_FUNCTION_INFO_V1(pgscale_now_counts);

typedef enum Counted
{
	COUNTED_COMMITS,
	COUNTED_ROLLBACKS,
	COUNTED_DEADLOCKS,
	COUNTED_READS,
	COUNTED_TEMP_BYTES,
	COUNTED_WAL_BYTES,
	COUNTED_WAL_SYNCS,
	COUNTED_WAL_SYNC_US,
	COUNTED_CHECKPOINTS_REQUESTED,
	NCOUNTED
} Counted;

static const char *const counted_names[] = {
	[COUNTED_COMMITS] = "commits",
	[COUNTED_ROLLBACKS] = "rollbacks",
	[COUNTED_DEADLOCKS] = "deadlocks",
	[COUNTED_READS] = "reads",
	[COUNTED_TEMP_BYTES] = "temp_bytes",
	[COUNTED_WAL_BYTES] = "wal_bytes",
	[COUNTED_WAL_SYNCS] = "wal_syncs",
	[COUNTED_WAL_SYNC_US] = "wal_sync_us",
	[COUNTED_CHECKPOINTS_REQUESTED] = "checkpoints_requested",
};

StaticAssertDecl(lengthof(counted_names) == NCOUNTED, "each count has a name");

typedef struct Snapshot
{
	PgscaleChangeCount changes; /* of all that follows */
	uint64		epoch;			/* 0: none */
	int64		clock_ns;		/* by CLOCK_MONOTONIC */
	int64		observed_ns;	/* in this epoch so far */
	int64		counts[NCOUNTED];	/* -1: not counted here */
	int			max_wal_size_mb;
	int			nevents;
	uint32		events[MAX_EVENTS];
	uint64		event_ns[MAX_EVENTS];
} Snapshot;

typedef struct Shared
{
	pg_atomic_uint64 epoch;		/* the sampler's process alone writes these */
	pg_atomic_uint64 n[NAGES];
	Snapshot	snapshots[NFINE + NCOARSE + NHOUR];
} Shared;

static Shared *shared = NULL;

Size
pgscale_now_counts_size(void)
{
	return sizeof(Shared);
}

void
pgscale_now_counts_startup(void)
{
	bool		found;

	shared = ShmemInitStruct("pgscale now", sizeof(Shared), &found);
	if (found)
		return;

	memset(shared, 0, sizeof(Shared));
	pg_atomic_init_u64(&shared->epoch, 0);
	for (int age = 0; age < NAGES; age++)
		pg_atomic_init_u64(&shared->n[age], 0);
	for (int i = 0; i < lengthof(shared->snapshots); i++)
		pgscale_change_init(&shared->snapshots[i].changes);
}

static void
snapshot_add_wait(void *arg, uint32 wait_event, uint64 ns)
{
	Snapshot   *s = arg;

	if (s->nevents == MAX_EVENTS)
		return;
	s->events[s->nevents] = wait_event;
	s->event_ns[s->nevents++] = ns;
}

static void
snapshot_take(Snapshot *s, const PgscaleObservation *observation)
{
	PgscaleCounters counters;

	s->nevents = 0;
	observation->waits(snapshot_add_wait, s);
	pgscale_counters_read(&counters, observation->databases, observation->ndatabases);
	s->counts[COUNTED_COMMITS] = counters.commits;
	s->counts[COUNTED_ROLLBACKS] = counters.rollbacks;
	s->counts[COUNTED_DEADLOCKS] = counters.deadlocks;
	s->counts[COUNTED_READS] = counters.reads >= 0 ? counters.reads : counters.blocks_read;
	s->counts[COUNTED_TEMP_BYTES] = counters.temp_bytes;

	/*
	 * sessions report what they generate at a statement's end, and some last
	 * for minutes
	 */
	s->counts[COUNTED_WAL_BYTES] = counters.wal_position >= 0 ? counters.wal_position : counters.wal_bytes;
	s->counts[COUNTED_WAL_SYNCS] = counters.wal_syncs;
	s->counts[COUNTED_WAL_SYNC_US] = counters.wal_sync_us;
	s->counts[COUNTED_CHECKPOINTS_REQUESTED] = counters.checkpoints_requested;
	s->max_wal_size_mb = max_wal_size_mb;
}

static Snapshot *
snapshot_at(Age age, uint64 number)
{
	return &shared->snapshots[ages[age].first + number % ages[age].size];
}

static void
snapshot_put(Age age, const Snapshot *s)
{
	const uint64 number = pg_atomic_read_u64(&shared->n[age]);
	Snapshot   *to = snapshot_at(age, number);

	pgscale_change_begin_write(&to->changes);
	memcpy(&to->epoch, &s->epoch, sizeof(Snapshot) - offsetof(Snapshot, epoch));
	pgscale_change_end_write(&to->changes);
	pg_atomic_write_u64(&shared->n[age], number + 1);
}

void
pgscale_now_counts_observe(const PgscaleObservation *observation)
{
	static uint64 epoch = 0;
	static int64 observed_ns;
	static int64 next_ns[NAGES];	/* of observed_ns */
	static Snapshot s;

	if (epoch == 0 || observation->anew)
	{
		epoch = pg_atomic_read_u64(&shared->epoch) + 1;
		pg_atomic_write_u64(&shared->epoch, epoch);
		observed_ns = 0;
		memset(next_ns, 0, sizeof(next_ns));
	}
	else
		observed_ns += observation->ns;
	if (observed_ns < next_ns[FINE])
		return;

	s.epoch = epoch;
	s.clock_ns = pgscale_timer_clock();
	s.observed_ns = observed_ns;
	snapshot_take(&s, observation);
	for (int age = 0; age < NAGES; age++)
		if (observed_ns >= next_ns[age])
		{
			snapshot_put(age, &s);
			next_ns[age] = observed_ns + ages[age].period_ns;
		}
}

/* The newest snapshot of an epoch (0: any) that was taken so long before a time or earlier; else the oldest one of it, if oldest. */
static bool
find_snapshot(Age age, uint64 epoch, int64 before_ns, bool oldest, Snapshot *found)
{
	const uint64 end = pg_atomic_read_u64(&shared->n[age]);
	bool		any = false;

	for (uint64 i = end; i > 0 && i + ages[age].size > end; i--)
	{
		Snapshot   *from = snapshot_at(age, i - 1);
		Snapshot	copy;

		pgscale_change_copy(&from->changes, &copy, from, sizeof(copy));
		if (copy.epoch == 0 || (epoch != 0 && copy.epoch != epoch))
			break;
		if (copy.clock_ns > before_ns && !oldest)
			continue;
		*found = copy;
		any = true;
		if (copy.clock_ns <= before_ns)
			break;
	}
	return any;
}

/* The oldest snapshot since max_wal_size has the value that it has in the latest one, as far as they reach back. */
static void
cut_at_wal_size(const Snapshot *latest, Snapshot *from)
{
	const uint64 end = pg_atomic_read_u64(&shared->n[FINE]);

	if (from->max_wal_size_mb == latest->max_wal_size_mb)
		return;
	*from = *latest;
	for (uint64 i = end; i > 0 && i + NFINE > end; i--)
	{
		Snapshot   *older = snapshot_at(FINE, i - 1);
		Snapshot	copy;

		pgscale_change_copy(&older->changes, &copy, older, sizeof(copy));
		if (copy.epoch != latest->epoch || copy.max_wal_size_mb != latest->max_wal_size_mb)
			break;
		if (copy.clock_ns <= from->clock_ns)
			*from = copy;
	}
}

static void
put_event(StringInfo out, uint32 wait_event, double sessions, bool first)
{
	const char *type = pgscale_wait_event_type(wait_event);
	const char *name = pgscale_wait_event_name(wait_event);

	appendStringInfo(out, "%s{\"type\": ", first ? "" : ", ");
	escape_json(out, type ? type : "CPU");
	appendStringInfoString(out, ", \"event\": ");
	escape_json(out, name ? name : "CPU");
	appendStringInfo(out, ", \"sessions\": %.4f}", sessions);
}

/* What an event had before; of one that may have found no room then, what it has now. */
static uint64
event_ns_before(const Snapshot *from, uint32 wait_event, uint64 now)
{
	for (int i = 0; i < from->nevents; i++)
		if (from->events[i] == wait_event)
			return Min(from->event_ns[i], now);
	return from->nevents == MAX_EVENTS ? now : 0;
}

static void
put_period(StringInfo out, const char *name, const Snapshot *from, const Snapshot *to)
{
	const double ns = to->observed_ns - from->observed_ns;
	bool		first = true;

	appendStringInfo(out, "%s\"%s\": {\"s\": %.3f", out->len > 1 ? ", " : "", name, ns / NS_PER_S);
	for (int i = 0; i < NCOUNTED; i++)
		if (from->counts[i] >= 0 && to->counts[i] >= from->counts[i])
			appendStringInfo(out, ", \"%s\": " INT64_FORMAT, counted_names[i], to->counts[i] - from->counts[i]);
	appendStringInfoString(out, ", \"events\": [");
	for (int i = 0; i < to->nevents; i++)
	{
		const uint64 waited = to->event_ns[i] - event_ns_before(from, to->events[i], to->event_ns[i]);

		if (waited == 0)
			continue;
		put_event(out, to->events[i], waited / ns, first);
		first = false;
	}
	appendStringInfoString(out, "]}");
}

/*
 * pgscale_internal.now_counts(): what happened in the last seconds ("recent"), the last half minute
 * ("half_minute"), the last minute ("minute"), and the hour before the last half minute ("usual"), as far
 * as each is known; NULL if the sampler is off or the library is not preloaded.  The minute begins no
 * earlier than max_wal_size got its value: what asked for checkpoints before is not known by the new one.
 */
Datum
pgscale_now_counts(PG_FUNCTION_ARGS)
{
	const int64 now = pgscale_timer_clock();
	Snapshot	latest;
	Snapshot	from;
	Snapshot	usual;
	StringInfoData out;

	if (!shared || !find_snapshot(FINE, 0, now, false, &latest) ||
		now - latest.clock_ns > STALLED_NS ||
		!find_snapshot(FINE, latest.epoch, latest.clock_ns - RECENT_NS, false, &from))
		PG_RETURN_NULL();

	initStringInfo(&out);
	appendStringInfoChar(&out, '{');
	put_period(&out, "recent", &from, &latest);
	if (find_snapshot(FINE, latest.epoch, latest.clock_ns - HALF_MINUTE_NS, true, &from))
		put_period(&out, "half_minute", &from, &latest);
	if (find_snapshot(COARSE, latest.epoch, latest.clock_ns - MINUTE_NS, true, &from))
	{
		cut_at_wal_size(&latest, &from);
		if (from.observed_ns < latest.observed_ns)
			put_period(&out, "minute", &from, &latest);
		appendStringInfo(&out, ", \"max_wal_size_bytes\": " INT64_FORMAT, latest.max_wal_size_mb * PGSCALE_MB);
	}
	if (find_snapshot(COARSE, latest.epoch, latest.clock_ns - USUAL_AGO_NS, false, &usual) &&
		find_snapshot(HOUR, latest.epoch, PG_INT64_MIN, true, &from) &&
		usual.observed_ns - from.observed_ns >= USUAL_LEAST_NS)
		put_period(&out, "usual", &from, &usual);
	appendStringInfoChar(&out, '}');
	PG_RETURN_DATUM(DirectFunctionCall1(jsonb_in, CStringGetDatum(out.data)));
}
