/*-------------------------------------------------------------------------
 *
 * units.h
 *	  Units of time and size.
 *
 * Nanoseconds have the names that the server gives them from 16 on.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_UNITS_H
#define PGSCALE_BASE_UNITS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "portability/instr_time.h"

#ifndef NS_PER_S
#define NS_PER_S		INT64CONST(1000000000)
#define NS_PER_MS		INT64CONST(1000000)
#define NS_PER_US		INT64CONST(1000)
#endif

/* bytes */
#define PGSCALE_KB		INT64CONST(1024)
#define PGSCALE_MB		(1024 * PGSCALE_KB)
#define PGSCALE_GB		(1024 * PGSCALE_MB)

/* An interval's length, a month taken for 30 days; as a double it cannot overflow. */
static inline double
pgscale_interval_ms(const Interval *interval)
{
	return interval->time / 1000.0 +
		(interval->day + interval->month * (double) DAYS_PER_MONTH) * SECS_PER_DAY * 1000;
}

#endif							/* PGSCALE_BASE_UNITS_H */
