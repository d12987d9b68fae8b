/*-------------------------------------------------------------------------
 *
 * buffer_usage.h
 *	  The feature: contents of shared buffers, and how well page replacement works.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BUFFER_USAGE_H
#define PGSCALE_BUFFER_USAGE_H

#include "postgres.h"

#include "base/shared_buffers.h"
#include "pgscale.h"

extern const PgscaleModule pgscale_buffer_usage_module;

/* clock_sweep.c: how the server's clock sweep fares */

extern const PgscaleArea pgscale_buffer_usage_area;

extern void pgscale_buffer_usage_clock_reset(void);

/* All buffers, summed up.  May be interrupted. */
extern void pgscale_buffer_usage_count(PgscaleUsage *usage);

#endif							/* PGSCALE_BUFFER_USAGE_H */
