/*-------------------------------------------------------------------------
 *
 * sampler.h
 *	  The wait-event sampler: its modules, its settings, and how well it works.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_H
#define PGSCALE_SAMPLER_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "base/change_count.h"
#include "pgscale.h"

extern const PgscaleModule pgscale_sampler_module;
extern const PgscaleModule pgscale_query_waits_module;

/* Those that consumers read. */
typedef struct PgscaleSamplerSettings
{
	int			profile_size;
	int			history_size;
	int			history_period_ms;
	bool		nested;
} PgscaleSamplerSettings;

extern PgscaleSamplerSettings pgscale_sampler_settings;

/* Lateness below 2^i microseconds; the last class has no upper bound. */
#define PGSCALE_LATENESS_CLASSES	24

/* In shared memory, written by the sampler only. */
typedef struct PgscaleSamplerStats
{
	PgscaleChangeCount changes; /* of all from ticks on */
	int			pid;			/* of the sampler, 0 if it is not running */
	uint64		starts;			/* how often it was started */
	int64		period_ns;		/* in force; 0 if switched off */
	int64		on_since_ns;	/* when it last was switched on, or started,
								 * by CLOCK_MONOTONIC */
	int64		last_tick_ns;	/* by the same clock; or that */
	uint32		unreadable;		/* failed readings since the last one */
	uint64		ticks;
	uint64		missed;			/* ticks that were due but skipped */
	uint64		lateness[PGSCALE_LATENESS_CLASSES];
	int64		lateness_ns;	/* of all ticks together */
	int64		lateness_max_ns;
	int64		observed_ns;	/* the time that all ticks stand for */
	int64		active_ns;		/* of it, added up over the sessions that were
								 * active */
	int64		in_transaction_ns;	/* and over those that idled in one */
	int64		tick_ns;		/* wall-clock time spent in ticks */
	int64		tick_max_ns;
	int64		cpu_ns;			/* CPU time of the process */
	uint64		retries;		/* torn reads that were repeated */
	uint64		readings;		/* of the kernel's counts of a session */
	uint64		blocker_looks;	/* of the lock manager, for blockers */
	TimestampTz connections_since;	/* the first tick's time; 0: none yet */
	int			connections_peak;	/* most connections at a tick */
} PgscaleSamplerStats;

/* A consistent copy, in any process of a server with preload. */
extern void pgscale_sampler_stats_copy(PgscaleSamplerStats *copy);

#endif							/* PGSCALE_SAMPLER_H */
