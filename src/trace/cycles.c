/*-------------------------------------------------------------------------
 *
 * cycles.c
 *	  A clock that costs a few nanoseconds to read.
 *
 * The time-stamp counter is used under two conditions.  The CPU declares it invariant:
 * its rate does not depend on the CPU's frequency or sleep states.  And the kernel
 * still trusts it: the counters of all CPUs agree.  The rate is measured against
 * CLOCK_MONOTONIC each time, over the measured period itself, so no figure from the CPU
 * or the hypervisor is needed.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "base/kernel.h"
#include "base/units.h"
#include "trace/cycles.h"

/* The least time over which a rate is measured, and tries to read both clocks at once. */
#define BEGIN_NS	NS_PER_MS
#define TRIES		8

bool		pgscale_trace_cycles_counter = false;

bool
pgscale_trace_cycles_usable(const char **why)
{
#ifdef __x86_64__
	char		clocks[128];
	unsigned int eax,
				ebx,
				ecx,
				edx;

	/* Advanced power management: the TSC is invariant. */
	if (!__get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx) || (edx & (1 << 8)) == 0)
		*why = "the CPU does not say that its time-stamp counter is invariant";
	else if (pgscale_kernel_setting("/sys/devices/system/clocksource/clocksource0/available_clocksource",
									clocks, sizeof(clocks)) && strstr(clocks, "tsc ") == NULL)
		*why = "the kernel does not trust the time-stamp counter";
	else
		return true;
#else
	*why = "the time-stamp counter is used on x86-64 only";
#endif
	return false;
}

/*
 * The clock is read between two readings of the counter.  Of several tries the one with
 * the least time between those is taken: in the others this process may have been
 * off its CPU.
 */
static void
cycles_moment(PgscaleTraceMoment *moment)
{
	uint64		least = PG_UINT64_MAX;

	for (int i = 0; i < TRIES; i++)
	{
		const uint64 before = pgscale_trace_cycles_now();
		const int64 ns = pgscale_timer_clock();
		const uint64 took = pgscale_trace_cycles_now() - before;

		if (i > 0 && took >= least)
			continue;
		least = took;
		moment->cycles = before + took / 2;
		moment->ns = ns;
	}
}

double
pgscale_trace_cycles_begin(PgscaleTraceMoment *moment)
{
	const char *why;

	pgscale_trace_cycles_counter = pgscale_trace_cycles_usable(&why);
	cycles_moment(moment);
	if (!pgscale_trace_cycles_counter)
		return 1;
	while (pgscale_timer_clock() - moment->ns < BEGIN_NS)
		;
	return pgscale_trace_cycles_per_ns(moment);
}

double
pgscale_trace_cycles_per_ns(const PgscaleTraceMoment *since)
{
	PgscaleTraceMoment now;

	if (!pgscale_trace_cycles_counter)
		return 1;
	cycles_moment(&now);
	return (double) (int64) (now.cycles - since->cycles) / (now.ns - since->ns);
}
