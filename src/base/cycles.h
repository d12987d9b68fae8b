/*-------------------------------------------------------------------------
 *
 * cycles.h
 *	  A clock that costs a few nanoseconds to read: the CPU's time-stamp counter, or
 *	  CLOCK_MONOTONIC where there is none that can be trusted.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_CYCLES_H
#define PGSCALE_BASE_CYCLES_H

#include "postgres.h"

#ifdef __x86_64__
#include <x86intrin.h>
#endif

#include "base/timer.h"

/* Set by pgscale_cycles_begin(). */
extern bool pgscale_cycles_counter;

/*
 * The time, in a unit for which pgscale_cycles_per_ns() returns the rate.  From one CPU
 * to another it may go back a little.
 */
static inline uint64
pgscale_cycles_now(void)
{
#ifdef __x86_64__
	if (likely(pgscale_cycles_counter))
		return __rdtsc();
#endif
	return (uint64) pgscale_timer_clock();
}

/* The same moment by both clocks. */
typedef struct PgscaleCyclesMoment
{
	uint64		cycles;
	int64		ns;				/* by pgscale_timer_clock() */
} PgscaleCyclesMoment;

/* Is the counter used?  If not, *why is set to the reason. */
extern bool pgscale_cycles_usable(const char **why);

extern void pgscale_cycles_moment(PgscaleCyclesMoment *moment);

/*
 * Before a measurement: takes the moment, and returns cycles per nanosecond, to
 * about 1 in 10,000.  Takes a millisecond, of which the counter is the only reason.
 */
extern double pgscale_cycles_begin(PgscaleCyclesMoment *moment);

/* After it: the same, measured since then, and so much the better. */
extern double pgscale_cycles_per_ns(const PgscaleCyclesMoment *since);

#endif							/* PGSCALE_BASE_CYCLES_H */
