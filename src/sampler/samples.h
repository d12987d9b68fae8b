/*-------------------------------------------------------------------------
 *
 * samples.h
 *	  A tick of the sampler: the sample of each process, and the interface to what
 *	  counts it.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_SAMPLES_H
#define PGSCALE_SAMPLER_SAMPLES_H

#include "postgres.h"

#include "base/processes.h"
#include "sampler/profile/profile.h"
#include "sampler/sampler_stats.h"

/* How many slots without a process to look at in a tick: 0.1 ms. */
#define PGSCALE_SAMPLER_FREE_SLOTS	10000

typedef struct PgscaleSamplerTick
{
	int64		now;			/* when it began, on the monotonic clock */
	int64		ns;				/* the time that it stands for */

	/* sessions that it found active, or idle in a transaction */
	int			nactive;
	int			nin_transaction;

	int			nconnections;	/* slots of max_connections in use at its end */
} PgscaleSamplerTick;

/* What a tick has found of a process: made once, for all that count it. */
typedef struct PgscaleSamplerTickSample
{
	int			slot;
	const PgscaleProc *proc;	/* as it was read */
	PgscaleSamplerWaitKey key;	/* what it waits for, and whom for */
	int			entry;			/* of the profile, where it was counted */
	bool		idle;
	uint64		samples;		/* 1; or how many ticks found the same */
	int64		ns;				/* the time that they stand for */
} PgscaleSamplerTickSample;

/* In the sampler, before the first tick; torn reads are counted in stats. */
extern void pgscale_sampler_samples_attach(PgscaleSamplerStats *stats);

/* Samples all processes, within a change of the profile and of the others. */
extern void pgscale_sampler_samples_take(PgscaleSamplerTick *tick);

/*
 * Does the slot have samples that are moved to another entry of the profile as soon as
 * their statement has an identifier?
 */
extern bool pgscale_sampler_samples_parked(int slot);

/* How many samples the next tick has at most. */
extern int	pgscale_sampler_samples_most(void);

/* Between two ticks: what was seen of idle processes may not hold in the next one. */
extern void pgscale_sampler_samples_forget_quiet(void);

/* Between two ticks: whom a session counts for may be another one, though it does nothing. */
extern void pgscale_sampler_samples_relabel(void);

/* After a reset of the profile: all is read again. */
extern void pgscale_sampler_samples_reset(void);

#endif							/* PGSCALE_SAMPLER_SAMPLES_H */
