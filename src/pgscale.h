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

#include "datatype/timestamp.h"

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
 * What the sampler has seen of the sessions since its last observation, about a
 * second ago.  Time is CLOCK_MONOTONIC's.
 */
typedef struct PgscaleObservation
{
	TimestampTz at;
	int64		ns;				/* the time it stands for */
	double		active;			/* client backends that were executing a
								 * statement, on average */
	const Oid  *databases;		/* those that sessions were in */
	int			ndatabases;

	/*
	 * Calls each(arg, ...) with every wait event of sessions, idle ones left
	 * out and CPU included, and the time spent in it since the profile's last
	 * reset.
	 */
	void		(*waits) (void (*each) (void *arg, uint32 wait_event, uint64 ns), void *arg);
} PgscaleObservation;

/*
 * A feature.  Any member may be NULL, and all but health are called only when
 * the library is preloaded: the first four in this order in the postmaster,
 * observe once a second in the sampler's process, outside of a transaction.
 */
typedef struct PgscaleModule
{
	const char *name;			/* the stem of its names; its health row */
	void		(*define_gucs) (void);
	void		(*shmem_request) (void);	/* asks for space and locks */
	void		(*shmem_startup) (void);	/* under AddinShmemInitLock */
	void		(*register_workers) (void);
	void		(*observe) (const PgscaleObservation *observation);
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
