/*-------------------------------------------------------------------------
 *
 * bufusage_clock.h
 *	  How the server's clock sweep fares.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BUFUSAGE_CLOCK_H
#define PGSCALE_BUFUSAGE_CLOCK_H

#include "buffers.h"

extern void pgscale_bufusage_clock_request(void);
extern void pgscale_bufusage_clock_startup(void);

/* All buffers, summed up.  May be interrupted. */
extern void pgscale_bufusage_count(PgscaleUsage *usage);

#endif							/* PGSCALE_BUFUSAGE_CLOCK_H */
