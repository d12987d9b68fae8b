/*-------------------------------------------------------------------------
 *
 * shadow.h
 *	  Shadow caches: see shadow.c.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SWEEPER_POLICY_SHADOW_H
#define PGSCALE_SWEEPER_POLICY_SHADOW_H

#include "postgres.h"

#include "sweeper/policy/policy.h"

/* Which of the candidates miss a reference: one bit each. */
#define PGSCALE_SWEEPER_OUTCOMES	(1 << PGSCALE_SWEEPER_CANDIDATES)

/* Of one candidate. */
typedef struct PgscaleSweeperShadow
{
	float		half_life;		/* 0: the clock */
	float		decay;
	uint32		now;			/* evictions; wraps around */
	uint64		misses[PGSCALE_SWEEPER_GROUPS]; /* by group of sets */
} PgscaleSweeperShadow;

typedef struct PgscaleSweeperShadows
{
	uint32		sample;			/* one page in so many is looked at */
	uint32		sets;
	uint64		references;
	uint64		missed_by[PGSCALE_SWEEPER_OUTCOMES];	/* of these */
	PgscaleSweeperShadow of[PGSCALE_SWEEPER_CANDIDATES];
	PgscaleSweeperScore slots[FLEXIBLE_ARRAY_MEMBER];	/* by candidate, set and
														 * way */
} PgscaleSweeperShadows;

extern Size pgscale_sweeper_shadows_size(int buffers);
extern void pgscale_sweeper_shadows_init(PgscaleSweeperShadows *shadows, int buffers);

/* How many groups have pages. */
static inline int
pgscale_sweeper_shadows_groups(const PgscaleSweeperShadows *shadows)
{
	return Min(shadows->sets, PGSCALE_SWEEPER_GROUPS);
}

/* A page was used that many times.  Returns whether the shadows look at it. */
extern bool pgscale_sweeper_shadows_use(PgscaleSweeperShadows *shadows, uint32 page, int uses);

#endif							/* PGSCALE_SWEEPER_POLICY_SHADOW_H */
