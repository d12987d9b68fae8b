/*-------------------------------------------------------------------------
 *
 * blocker_profile.h
 *	  The blockers of long lock waits, and the time of lock waits by root blocker.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_BLOCKER_PROFILE_H
#define PGSCALE_SAMPLER_BLOCKER_PROFILE_H

#include "postgres.h"

/* An entry; zeroes: none. */
typedef struct PgscaleSamplerRoot
{
	uint32		entry;
	uint32		born;
} PgscaleSamplerRoot;

/* Process IDs; 0: a prepared transaction, which has none.  And the root's entry. */
typedef struct PgscaleSamplerBlocked
{
	int			blocker;
	int			root;
	PgscaleSamplerRoot entry;
} PgscaleSamplerBlocked;

/*
 * In any process: a copy of the entries, and the name of the application of a sample's
 * root; NULL if its entry has gone, or is not for the role that reads it.
 */
typedef struct PgscaleSamplerRoots PgscaleSamplerRoots;

extern PgscaleSamplerRoots *pgscale_sampler_roots_copy(void);
extern const char *pgscale_sampler_root_application(const PgscaleSamplerRoots *copy, const PgscaleSamplerRoot *root);

#endif							/* PGSCALE_SAMPLER_BLOCKER_PROFILE_H */
