/*-------------------------------------------------------------------------
 *
 * long_waits.h
 *	  The blockers of long lock waits.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_LONG_WAITS_H
#define PGSCALE_SAMPLER_LONG_WAITS_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "sampler/roots/blocker_profile.h"
#include "sampler/samples.h"

/* Process IDs; 0: a prepared transaction, which has none.  And the root's entry. */
typedef struct PgscaleSamplerBlocked
{
	int			blocker;
	int			root;
	PgscaleSamplerRoot entry;
} PgscaleSamplerBlocked;

/* In the sampler: before the first tick. */
extern void pgscale_sampler_long_waits_attach(void);

/*
 * In a tick: adds the sample of a process that waits for a lock to the profile of
 * blockers.  Returns its blocker, as of the last copy, or NULL if it has waited for
 * less than deadlock_timeout, or the blocker is unknown.
 */
extern const PgscaleSamplerBlocked *pgscale_sampler_long_waits_add(const PgscaleSamplerTickSample *sample, int64 now);

/*
 * After a tick: looks at the lock manager, if a process has waited that long and the last
 * look is a second ago.  Returns whether it did.
 */
extern bool pgscale_sampler_long_waits_look(int64 now, TimestampTz wall);
extern void pgscale_sampler_long_waits_reset(void);

#endif							/* PGSCALE_SAMPLER_LONG_WAITS_H */
