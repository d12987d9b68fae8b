/*-------------------------------------------------------------------------
 *
 * lwlock_waits.h
 *	  Notifies other features at each tick of the LWLocks that processes wait for.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_LWLOCK_WAITS_H
#define PGSCALE_SAMPLER_LWLOCK_WAITS_H

#include "postgres.h"

/* What a process waits for at this tick, if that is an LWLock. */
extern void pgscale_sampler_lwlock_add(uint32 wait_event);

/* The end of the tick: notifies the others. */
extern void pgscale_sampler_lwlock_tell(int64 ns);

#endif							/* PGSCALE_SAMPLER_LWLOCK_WAITS_H */
