/*-------------------------------------------------------------------------
 *
 * wait_totals.h
 *	  Time in each wait event, by type of process, that never falls.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_WAIT_TOTALS_H
#define PGSCALE_SAMPLER_WAIT_TOTALS_H

#include "postgres.h"

#include "base/processes.h"

extern Size pgscale_sampler_totals_size(void);
extern void pgscale_sampler_totals_startup(void);

/* In the sampler: time that is known to be this, unless that is to idle. */
extern void pgscale_sampler_totals_add(PgscaleProcKind kind, uint32 wait_event, uint64 ns);
extern void pgscale_sampler_totals_reset(void);

#endif							/* PGSCALE_SAMPLER_WAIT_TOTALS_H */
