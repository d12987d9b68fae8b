/*-------------------------------------------------------------------------
 *
 * clock_sweep.h
 *	  How the server's clock sweep fares.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BUFFER_USAGE_CLOCK_SWEEP_H
#define PGSCALE_BUFFER_USAGE_CLOCK_SWEEP_H

#include "base/shared_buffers.h"

extern void pgscale_bufusage_clock_request(void);
extern void pgscale_bufusage_clock_startup(void);

/* All buffers, summed up.  May be interrupted. */
extern void pgscale_bufusage_count(PgscaleUsage *usage);

#endif							/* PGSCALE_BUFFER_USAGE_CLOCK_SWEEP_H */
