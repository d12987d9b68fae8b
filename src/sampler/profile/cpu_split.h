/*-------------------------------------------------------------------------
 *
 * cpu_split.h
 *	  Splits the time on CPU of sessions into running and queued.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_CPU_SPLIT_H
#define PGSCALE_SAMPLER_CPU_SPLIT_H

#include "postgres.h"

#include "sampler/sampler_stats.h"
#include "sampler/samples.h"

/*
 * All of it is the sampler's own memory.  Accounts are numbered like processes' slots.
 * stats counts the results of the readings. after_ticks: that many ticks from now on, a
 * new process has just started.
 */
extern void pgscale_sampler_cpu_attach(int nslots, int after_ticks, PgscaleSamplerStats *stats);

/* What was counted before is not to be split any more: after a reset, or a pause. */
extern void pgscale_sampler_cpu_forget(void);

/*
 * Samples of a session that were counted in an entry of the profile.
 */
extern void pgscale_sampler_cpu_add(const PgscaleSamplerTickSample *sample);

/* Samples that were counted in one entry are in another one from now on, or -1. */
extern void pgscale_sampler_cpu_moved(int slot, int from, uint64 born, int to, uint64 samples, uint64 ns);

/* No process is in the slot.  Within a change of the profile. */
extern void pgscale_sampler_cpu_leave(int slot);

/* Time that was sampled as idle, outside of a transaction or in one, and was spent on CPU. */
typedef struct PgscaleSamplerFound
{
	int64		idle_ns;
	int64		in_transaction_ns;
} PgscaleSamplerFound;

/*
 * Call it at the end of a tick of that length, outside of a change of the profile:
 * splits the due accounts by the kernel's counts.
 */
extern void pgscale_sampler_cpu_settle(int64 now, int64 ns, PgscaleSamplerFound *found);

#endif							/* PGSCALE_SAMPLER_CPU_SPLIT_H */
