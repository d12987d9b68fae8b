/*-------------------------------------------------------------------------
 *
 * pgscale.h
 *	  What a feature shows to the library: one PgscaleModule.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_H
#define PGSCALE_H

#include "postgres.h"

/*
 * One row of pgscale.health.  The texts are constants or palloc'd; action is
 * NULL where nothing is to be done.
 */
typedef struct PgscaleHealth
{
	bool		enabled;		/* does the configuration ask for it? */
	bool		working;		/* does it do its work now? */
	const char *reason;			/* why, in one sentence */
	const char *action;			/* what the DBA can do about it */
} PgscaleHealth;

/*
 * A feature.  The library calls the members in this order, all but the last
 * in the postmaster, and only when it is preloaded; any may be NULL.
 */
typedef struct PgscaleModule
{
	const char *name;			/* the stem of its names; its health row */
	void		(*define_gucs) (void);
	void		(*shmem_request) (void);	/* asks for space and locks */
	void		(*shmem_startup) (void);	/* under AddinShmemInitLock */
	void		(*register_workers) (void);
	void		(*health) (PgscaleHealth *health);	/* in any backend */
} PgscaleModule;

/* NULL-terminated; defined in pgscale.c */
extern const PgscaleModule *const pgscale_modules[];

/* Was the library loaded through shared_preload_libraries? */
extern bool pgscale_preloaded(void);

/* If it was not, says so in a row of pgscale.health and returns false. */
extern bool pgscale_health_preloaded(PgscaleHealth *health);

/* Raises an error with a hint if it was not. */
extern void pgscale_require_preload(void);

#endif							/* PGSCALE_H */
