/*-------------------------------------------------------------------------
 *
 * lwlocks.h
 *	  The feature: which LWLock of a tranche processes wait for.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_LWLOCKS_H
#define PGSCALE_LWLOCKS_H

#include "postgres.h"

#include "pgscale.h"

extern const PgscaleModule pgscale_lwlocks_module;

/* lwlock_profile.c: locks as they were found at the sampler's ticks */

extern void pgscale_lwlocks_profile_request(void);
extern void pgscale_lwlocks_profile_startup(void);
extern void pgscale_lwlocks_profile_reset(void);

/* Are the locks where, and laid out as, we know them? */
extern bool pgscale_lwlocks_profile_possible(void);

/* In the sampler. */
extern void pgscale_lwlocks_profile_tick(const PgscaleLwlockWaits *waits);

/* When that last was called, by pgscale_timer_clock(). */
extern int64 pgscale_lwlocks_profile_last(void);

#endif							/* PGSCALE_LWLOCKS_H */
