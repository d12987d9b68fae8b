/*-------------------------------------------------------------------------
 *
 * blocker_profile.h
 *	  The time of lock waits by root blocker.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_BLOCKER_PROFILE_H
#define PGSCALE_SAMPLER_BLOCKER_PROFILE_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "base/lock_waits.h"

extern Size pgscale_sampler_blockers_size(void);
extern void pgscale_sampler_blockers_startup(void);

/*
 * The writer's side: one process only.  All that is added lies between begin and end:
 * a tick, or a look at the lock manager.
 */
extern void pgscale_sampler_blockers_attach(void);
extern void pgscale_sampler_blockers_begin(TimestampTz at);
extern void pgscale_sampler_blockers_end(void);
extern void pgscale_sampler_blockers_reset(void);

/* An entry; zeroes: none. */
typedef struct PgscaleSamplerRoot
{
	uint32		entry;
	uint32		born;
} PgscaleSamplerRoot;

/* The entry of a root, made if necessary.  Returns false if its identity is unknown. */
extern bool pgscale_sampler_blockers_find(const PgscaleLockNode *node, PgscaleSamplerRoot *root);

/* Adds the sample of a process that waits for it.  Returns false if the entry was evicted. */
extern bool pgscale_sampler_blockers_add(const PgscaleSamplerRoot *root, uint32 wait_event, uint64 ns);

/* The same of one whose root is not known; and what of that was because of a root, as it is known now. */
extern void pgscale_sampler_blockers_add_unknown(uint32 wait_event, uint64 ns);
extern void pgscale_sampler_blockers_move(const PgscaleSamplerRoot *root, uint32 wait_event, uint64 ns);

/*
 * The readers' side: a copy of the entries, and the name of the application of a sample's
 * root; NULL if its entry has gone, or is not for the role that asks.
 */
typedef struct PgscaleSamplerRoots PgscaleSamplerRoots;

extern PgscaleSamplerRoots *pgscale_sampler_roots_copy(void);
extern const char *pgscale_sampler_root_application(const PgscaleSamplerRoots *copy, const PgscaleSamplerRoot *root);

#endif							/* PGSCALE_SAMPLER_BLOCKER_PROFILE_H */
