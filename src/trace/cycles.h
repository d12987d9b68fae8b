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
#ifndef PGSCALE_TRACE_CYCLES_H
#define PGSCALE_TRACE_CYCLES_H

#include "postgres.h"

#ifdef __x86_64__
#include <x86intrin.h>
#endif

#include "base/timer.h"

/* Set by pgscale_trace_cycles_begin(). */
extern bool pgscale_trace_cycles_counter;

/*
 * The time, in a unit for which pgscale_trace_cycles_per_ns() returns the rate.  From one
 * CPU to another it may go back a little.
 */
static inline uint64
pgscale_trace_cycles_now(void)
{
#ifdef __x86_64__
	if (likely(pgscale_trace_cycles_counter))
		return __rdtsc();
#endif
	return (uint64) pgscale_timer_clock();
}

/* The same moment by both clocks. */
typedef struct PgscaleTraceMoment
{
	uint64		cycles;
	int64		ns;				/* by pgscale_timer_clock() */
} PgscaleTraceMoment;

/* Is the counter used?  If not, *why is set to the reason. */
extern bool pgscale_trace_cycles_usable(const char **why);

/*
 * Before a measurement: takes the moment, and returns cycles per nanosecond, to
 * about 1 in 10,000.  Takes a millisecond, of which the counter is the only reason.
 */
extern double pgscale_trace_cycles_begin(PgscaleTraceMoment *moment);

/* After the measurement: the same rate, measured since then, so more precisely. */
extern double pgscale_trace_cycles_per_ns(const PgscaleTraceMoment *since);

#endif							/* PGSCALE_TRACE_CYCLES_H */
