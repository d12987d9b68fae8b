/*-------------------------------------------------------------------------
 *
 * wilson_interval.h
 *	  The confidence interval of a fraction from a sample.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_WILSON_INTERVAL_H
#define PGSCALE_BASE_WILSON_INTERVAL_H

#include "postgres.h"

typedef struct PgscaleInterval
{
	double		low;
	double		high;
} PgscaleInterval;

/*
 * The interval that a share lies in with a probability of 95 %, if k of n that
 * were drawn at random have the property.  n > 0.
 */
extern PgscaleInterval pgscale_wilson_interval(double k, double n);

#endif							/* PGSCALE_BASE_WILSON_INTERVAL_H */
