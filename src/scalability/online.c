/*-------------------------------------------------------------------------
 *
 * online.c
 *	  The Universal Scalability Law of this server, from its running load.
 *
 * Once a second the sampler reports the number of active sessions, and the server's
 * statistics the number of finished transactions.  Backends report these at most once a
 * second, so several seconds make one measurement, a bucket.  A bucket in which the
 * number of sessions changed much is discarded, because part of its count belongs to
 * the second before.  That second must agree, too.
 *
 * The measurements go into a fixed number of classes of about the same concurrency.
 * Each class keeps sums of time, sessions and transactions, which decay, so that old
 * load is forgotten.  A reader fits the law to the means of the classes.
 *
 * All classes decay with observed time: nothing is forgotten while the sampler is off.
 *
 * Locking: only the sampler's process writes, and readers copy by a change count.  A
 * reset is a number that the reader increments; figures of an older number are no
 * longer shown, and the writer drops them at its next visit.
 *
 * Failure: after an error there is a gap, and a new bucket begins after it.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/change_count.h"
#include "base/evidence.h"
#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/row_builder.h"
#include "base/server_counters.h"
#include "base/server_settings.h"
#include "base/shared_area.h"
#include "base/timer.h"
#include "base/units.h"
#include "scalability/scalability.h"

#define SECOND_NS		1e9
#define BUCKET_MS		5000

/* Observed time after which a measurement counts half: a day, which has quiet and busy hours. */
#define HALF_LIFE_NS	(86400 * SECOND_NS)

/* An average below this is a server at rest: no measurement. */
#define MIN_SESSIONS	0.05

/* The seconds of a bucket may differ by this fraction of their mean, or by one. */
#define MAX_MOVE		0.5

/* Four classes while concurrency doubles, from 1/8 to beyond MAX_BACKENDS. */
#define CLASSES			104
#define CLASSES_PER_2	4
#define FIRST_CLASS		(-3 * CLASSES_PER_2)

/* A class with less time left is forgotten. */
#define MIN_CLASS_NS	((double) pgscale_timer_period_ms(BUCKET_MS) * NS_PER_MS)

/*
 * Time in a class makes its mean more certain, up to a point: what the mix of
 * queries does to it remains.  At this time both count the same.
 */
#define MIX_NS			(60 * SECOND_NS)

/* The view says that it does not work if there was no observation for that long. */
#define SILENT_MS		10000

typedef struct Class
{
	double		ns;
	double		session_ns;
	double		transactions;
} Class;

typedef struct Figures
{
	uint32		reset;			/* the number of the reset they began with */
	int64		buckets;
	int64		discarded;
	double		sessions;		/* of the latest bucket that was not discarded */
	double		transactions_per_s;
	TimestampTz bucket_at;		/* 0: there was none */
	Class		classes[CLASSES];
} Figures;

typedef struct ScalabilityShared
{
	PgscaleChangeCount changes; /* of the figures */
	pg_atomic_uint32 resets;
	pg_atomic_uint64 reset_at;	/* TimestampTz */
	pg_atomic_uint64 observed_ns;	/* by CLOCK_MONOTONIC; 0: never */
	Figures		figures;
} ScalabilityShared;

/* The writer's own: the bucket that is not full yet. */
static struct
{
	bool		begun;
	uint32		resets;
	int64		transactions;	/* when it began */
	double		ns;
	double		session_ns;
	double		min;			/* of the second before it and of its own */
	double		max;
}			bucket;

static ScalabilityShared *shared = NULL;

PG_FUNCTION_INFO_V1(pgscale_scalability);
PG_FUNCTION_INFO_V1(pgscale_scalability_points);

static int
scalability_class_of(double sessions)
{
	int			class = (int) rint(CLASSES_PER_2 * log2(sessions)) - FIRST_CLASS;

	return Min(Max(class, 0), CLASSES - 1);
}

/* An observation is the second before a bucket. */
static void
scalability_begin(const PgscaleObservation *observation, int64 transactions)
{
	bucket.begun = true;
	bucket.resets = pg_atomic_read_u32(&shared->resets);
	bucket.transactions = transactions;
	bucket.ns = bucket.session_ns = 0;
	bucket.min = bucket.max = observation->active;
}

/* Returns what to change until scalability_end_write(). */
static Figures *
scalability_begin_write(void)
{
	Figures    *figures = &shared->figures;
	uint32		resets = pg_atomic_read_u32(&shared->resets);

	pgscale_change_begin_write(&shared->changes);
	if (figures->reset != resets)
	{
		memset(figures, 0, sizeof(*figures));
		figures->reset = resets;
	}
	return figures;
}

static void
scalability_end_write(void)
{
	pgscale_change_end_write(&shared->changes);
}

static void
scalability_discard(void)
{
	scalability_begin_write()->discarded++;
	scalability_end_write();
}

/* Takes the full bucket in. */
static void
scalability_take(int64 transactions, TimestampTz now)
{
	double		sessions = bucket.session_ns / bucket.ns;
	double		ended = transactions - bucket.transactions;
	double		kept = exp2(-bucket.ns / HALF_LIFE_NS);
	Figures    *figures = scalability_begin_write();
	Class	   *class = &figures->classes[scalability_class_of(sessions)];

	for (int i = 0; i < CLASSES; i++)
	{
		figures->classes[i].ns *= kept;
		figures->classes[i].session_ns *= kept;
		figures->classes[i].transactions *= kept;
	}
	class->ns += bucket.ns;
	class->session_ns += bucket.session_ns;
	class->transactions += ended;
	figures->buckets++;
	figures->sessions = sessions;
	figures->transactions_per_s = ended / bucket.ns * SECOND_NS;
	figures->bucket_at = now;
	scalability_end_write();
}

static void
scalability_observe(const PgscaleObservation *observation)
{
	int64		transactions;

	pg_atomic_write_u64(&shared->observed_ns, (uint64) pgscale_timer_clock());
	transactions = pgscale_counters_transactions(observation->databases, observation->ndatabases);
	if (!bucket.begun || observation->anew ||
		bucket.resets != pg_atomic_read_u32(&shared->resets))
	{
		scalability_begin(observation, transactions);
		return;
	}

	/* the statistics were reset */
	if (transactions < bucket.transactions)
	{
		scalability_discard();
		scalability_begin(observation, transactions);
		return;
	}

	bucket.ns += observation->ns;
	bucket.session_ns += observation->active * observation->ns;
	bucket.min = Min(bucket.min, observation->active);
	bucket.max = Max(bucket.max, observation->active);
	if (bucket.ns < (double) pgscale_timer_period_ms(BUCKET_MS) * NS_PER_MS)
		return;
	if (bucket.max - bucket.min > Max(1, MAX_MOVE * bucket.session_ns / bucket.ns))
		scalability_discard();
	else if (bucket.session_ns >= MIN_SESSIONS * bucket.ns)
		scalability_take(transactions, observation->at);
	scalability_begin(observation, transactions);
}

/* A consistent copy, empty if it was reset. */
static void
read_figures(Figures *figures)
{
	uint32		resets = pg_atomic_read_u32(&shared->resets);

	pgscale_change_copy(&shared->changes, figures, &shared->figures, sizeof(*figures));
	if (figures->reset != resets)
		memset(figures, 0, sizeof(*figures));
}

/* The classes as measurements; returns how many. */
static int
scalability_measurements(const Figures *figures, PgscaleScalabilityUslPoint *points, double *seconds)
{
	int			count = 0;

	for (int i = 0; i < CLASSES; i++)
	{
		const Class *class = &figures->classes[i];

		/* none has ended: they are longer than all that is remembered */
		if (class->ns < MIN_CLASS_NS || class->transactions <= 0)
			continue;
		points[count].n = class->session_ns / class->ns;
		points[count].x = class->transactions / class->ns * SECOND_NS;
		points[count].weight = class->ns / (class->ns + MIX_NS);
		seconds[count] = class->ns / SECOND_NS;
		count++;
	}
	return count;
}

/* pgscale_internal.scalability(): one row. */
Datum
pgscale_scalability(PG_FUNCTION_ARGS)
{
	Figures		figures;
	PgscaleScalabilityUslPoint points[CLASSES];
	double		seconds[CLASSES];
	int			count;
	PgscaleScalabilityUsl usl = {0};
	PgscaleRow	row = {0};

	pgscale_preload_require();
	read_figures(&figures);
	count = scalability_measurements(&figures, points, seconds);
	if (count > 0)
		pgscale_scalability_usl_fit(&usl, points, count);
	else
		strlcpy(usl.status, "insufficient range: nothing has been measured yet", sizeof(usl.status));
	pgscale_scalability_usl_row(&row, &usl);
	pgscale_row_put(&row, Float8GetDatum(figures.sessions), figures.bucket_at == 0);
	pgscale_row_put(&row, Float8GetDatum(figures.transactions_per_s), figures.bucket_at == 0);
	pgscale_row_timestamp(&row, figures.bucket_at);
	pgscale_row_int8(&row, figures.buckets);
	pgscale_row_int8(&row, figures.discarded);
	pgscale_row_timestamp(&row, (TimestampTz) pg_atomic_read_u64(&shared->reset_at));
	return pgscale_row_result(&row, fcinfo);
}

/* pgscale_internal.scalability_points(): what the law is fitted to, a row a class. */
Datum
pgscale_scalability_points(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Figures		figures;
	PgscaleScalabilityUslPoint points[CLASSES];
	double		seconds[CLASSES];
	int			count;

	pgscale_preload_require();
	InitMaterializedSRF(fcinfo, 0);
	read_figures(&figures);
	count = scalability_measurements(&figures, points, seconds);
	for (int i = 0; i < count; i++)
	{
		PgscaleRow	row = {0};

		pgscale_row_float8(&row, points[i].n);
		pgscale_row_float8(&row, points[i].x);
		pgscale_row_float8(&row, seconds[i]);
		pgscale_row_end(&row, rsinfo);
	}
	return (Datum) 0;
}

static void
scalability_reset(void)
{
	pg_atomic_write_u64(&shared->reset_at, (uint64) GetCurrentTimestamp());
	pg_atomic_fetch_add_u32(&shared->resets, 1);
}

static void
scalability_init(void)
{
	pgscale_change_init(&shared->changes);
	pg_atomic_init_u32(&shared->resets, 0);
	pg_atomic_init_u64(&shared->reset_at, (uint64) GetCurrentTimestamp());
	pg_atomic_init_u64(&shared->observed_ns, 0);
}

static const PgscaleArea scalability_area = {
	.name = "pgscale scalability",
	.at = (void **) &shared,
	.size = sizeof(ScalabilityShared),
	.init = scalability_init,
};

static void
scalability_health(PgscaleHealth *health)
{
	if (!pgscale_health_preloaded(health, "pgscale.sampler", true) ||
		!pgscale_health_observed(health, (int64) pg_atomic_read_u64(&shared->observed_ns), SILENT_MS))
		return;
	if (strcmp(pgscale_server_setting("track_counts"), "off") == 0)
	{
		health->state = PGSCALE_HEALTH_BROKEN;
		health->reason = "transactions are not counted, because track_counts is off";
		health->action = "set track_counts to on and reload";
	}
	else if (strcmp(pgscale_server_setting("track_activities"), "off") == 0)
	{
		health->state = PGSCALE_HEALTH_BROKEN;
		health->reason = "active sessions are not counted, because track_activities is off";
		health->action = "set track_activities to on and reload";
	}
	else
	{
		health->state = PGSCALE_HEALTH_WORKING;
		health->reason = "measures sessions and transactions";
		if (pgscale_timer_period_ms(BUCKET_MS) != BUCKET_MS)
		{
			health->reason = "measures, but over another time: pgscale.debug_period is for tests";
			health->action = "reset pgscale.debug_period and reload";
		}
	}
}

const PgscaleModule pgscale_scalability_module = {
	.name = "scalability",
	.areas = (const PgscaleArea *const[]) {&scalability_area, NULL},
	.observe = scalability_observe,
	.reset = scalability_reset,
	.health = scalability_health,
};
