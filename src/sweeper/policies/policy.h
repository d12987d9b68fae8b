/*-------------------------------------------------------------------------
 *
 * policy.h
 *	  What leaves the cache: the choice of victims, and nothing else.
 *
 * Pure: a policy calls nothing of the server and changes no buffer; it is
 * told what the sweeper sees and answers what should be.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SWEEPER_POLICIES_POLICY_H
#define PGSCALE_SWEEPER_POLICIES_POLICY_H

#include "postgres.h"

#include "base/shared_buffers.h"

/* A buffer that the sweeper passes. */
typedef struct PgscaleSweeperVisit
{
	int			buf;
	PgscalePage page;
	uint8		usage;
	bool		pinned;
	bool		dirty;
	bool		aged;			/* its count was taken down to dirty_floor,
								 * and is one less than it says */
} PgscaleSweeperVisit;

typedef struct PgscaleSweeperPolicy
{
	const char *name;

	/*
	 * How many candidates to choose one victim from, 1 .. PGSCALE_POLICY_MAX.
	 */
	int			group;

	/*
	 * Dirty buffers have this usage count at least.  Those at zero would be
	 * written one by one, by bgwriter and by backends that find no stock.
	 */
	uint8		dirty_floor;

	/*
	 * Of a victim's neighbours in its file, which are written together with
	 * it, those with a usage count up to this one leave the cache, too.
	 */
	uint8		neighbour_usage;

	/* Sets usage and aged to what they should be; may the page leave? */
	bool		(*visit) (PgscaleSweeperVisit *visit);

	/* Which of n candidates leaves? */
	int			(*choose) (const PgscaleSweeperVisit *candidates, int n);

	/* A page has left, for good. */
	void		(*evicted) (int buf, uint32 page_hash);
} PgscaleSweeperPolicy;

#define PGSCALE_POLICY_MAX	16

/* The server's own: usage counts that a clock hand takes down. */
extern const PgscaleSweeperPolicy pgscale_sweeper_policy_clock;

#endif							/* PGSCALE_SWEEPER_POLICIES_POLICY_H */
