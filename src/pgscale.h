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
#include "utils/guc.h"

#include "base/shared_area.h"

/* The setting of a feature that acts: never, only while that is of use, or always. */
typedef enum PgscaleUse
{
	PGSCALE_USE_OFF,
	PGSCALE_USE_AUTO,
	PGSCALE_USE_ON
} PgscaleUse;

extern const struct config_enum_entry pgscale_use_options[];

struct PgscaleObservation;		/* base/evidence.h */

/*
 * How a feature is.  BROKEN is an alert: somebody asks for it, and it cannot do
 * its work.  So it is neither what has nothing to do, nor what is about to start,
 * nor what has found that it would be of no use.
 */
typedef enum PgscaleHealthState
{
	PGSCALE_HEALTH_OFF,			/* not requested */
	PGSCALE_HEALTH_STARTING,	/* asked for a moment ago */
	PGSCALE_HEALTH_IDLE,		/* nothing to do now */
	PGSCALE_HEALTH_WORKING,
	PGSCALE_HEALTH_STANDING_DOWN,	/* able, but evidence says not to act */
	PGSCALE_HEALTH_BROKEN
} PgscaleHealthState;

/*
 * A setting of the server, or what else rules are about, that a feature minds.
 * No rule advises on it meanwhile; and health asks for what is wanted, if asked is
 * true.
 */
typedef struct PgscaleClaim
{
	const char *setting;		/* NULL ends a list of them */
	const char *wanted;			/* as SHOW has it; NULL: none in particular */
	bool		asked;
	const char *why;
} PgscaleClaim;

/*
 * One row of pgscale.health.  The texts are constants or palloc'd, and only for people:
 * code reads the other members. action is NULL if there is nothing to do.
 */
typedef struct PgscaleHealth
{
	PgscaleHealthState state;
	const char *reason;			/* why, in one sentence */
	const char *action;			/* what the DBA can do about it */
	bool		no_slot;		/* the server has no slot for its worker */
	bool		no_use;			/* when it last was on, it stood down */
	const PgscaleClaim *claims; /* of the state that it is in; or NULL */
	int64		since_ns;		/* when it was switched on, by
								 * CLOCK_MONOTONIC; 0: untold */
} PgscaleHealth;

/*
 * The LWLocks that processes wait for at a tick of the sampler, by tranche.  The
 * last tranche stands for all that are beyond.
 */
#define PGSCALE_LWLOCK_TRANCHES	256

typedef struct PgscaleLwlockWaits
{
	int64		ns;				/* the time that the tick stands for */
	int			ntranches;
	uint8		tranches[PGSCALE_LWLOCK_TRANCHES];	/* those waited for */
	uint32		waiters[PGSCALE_LWLOCK_TRANCHES];	/* processes, by tranche */
} PgscaleLwlockWaits;

/*
 * A background worker of a feature, which takes a slot of the server's only while it is
 * wanted: the sampler's process starts it then (workers.c).  wanted is asked in any process,
 * once a second in the sampler's, so it waits for nothing and raises no error; what is about
 * to change is right at the next look.  The worker ends with exit code 0 when it is not
 * wanted any more, and is started again when it ended otherwise.
 */
typedef struct PgscaleWorker
{
	const char *name;			/* in pg_stat_activity */
	bool		(*wanted) (void);
	void		(*main) (void);
} PgscaleWorker;

/*
 * A feature.  Any member may be NULL, and all but health are called only when
 * the library is preloaded: those before worker in this order in the postmaster,
 * observe once a second in the sampler's process, outside of a transaction.
 * lwlock_waits is called there at each tick, and is a part of it: it raises no
 * error, waits for nothing and takes microseconds.
 */
typedef struct PgscaleModule
{
	const char *name;			/* the stem of its names, and its health row */
	void		(*define_gucs) (void);
	const PgscaleArea *const *areas;	/* its shared memory, NULL-terminated */
	void		(*shmem_startup) (void);	/* after these have begun */
	void		(*register_workers) (void);
	const PgscaleWorker *worker;
	void		(*observe) (const struct PgscaleObservation *observation);
	void		(*lwlock_waits) (const PgscaleLwlockWaits *waits);
	void		(*health) (PgscaleHealth *health);	/* in any backend */
	void		(*reset) (void);	/* in any backend: counts from now on, or
									 * forgets what it knows */
	bool		has_tables;		/* which a publication may include */
	const char *const *asks;	/* NULL-terminated: functions and views of
								 * other features that its SQL uses */
} PgscaleModule;

/* NULL-terminated; defined in modules.c */
extern const PgscaleModule *const pgscale_modules[];

/*
 * If the library was not preloaded, says so in a row of pgscale.health and returns
 * false.  The feature's setting, or else its default, decides whether it is requested.
 */
extern bool pgscale_health_preloaded(PgscaleHealth *health, const char *setting, bool by_default);

/*
 * If something keeps a wanted worker of a feature from working, says so and returns
 * false.  The worker passes its process id (0: none), the number of its starts, and
 * when it was last seen at work, which must be less than that long ago: by
 * pgscale_timer_clock(), which changes of the system's time do not move.
 */
extern bool pgscale_health_worker(PgscaleHealth *health, const PgscaleModule *module, int pid, uint64 starts,
								  int64 last_ns, int64 stalled_ms);

/* workers.c: the features' workers */

extern const PgscaleArea pgscale_workers_area;

/*
 * In the sampler's process, as often as that likes: starts what is wanted and does not run,
 * at once if something may have changed (settings, for one) and else once a second.
 */
extern void pgscale_workers_start(bool changed);

/* In any process: has the sampler's look at once.  Raises no error. */
extern void pgscale_workers_wake(void);

/*
 * How it is with the worker of a feature that is wanted and not there: the server has no
 * slot for it; it was asked for a moment ago, or will be; that, after the one before ended by
 * an error or a signal; it should have started long ago, but did not; or nothing has asked
 * for it, since the sampler's process is not there or is stopped.
 */
typedef enum PgscaleWorkerStart
{
	PGSCALE_WORKER_NO_SLOT,
	PGSCALE_WORKER_STARTING,
	PGSCALE_WORKER_ENDED,
	PGSCALE_WORKER_FAILING,
	PGSCALE_WORKER_UNASKED
} PgscaleWorkerStart;

extern PgscaleWorkerStart pgscale_workers_start_of(const PgscaleModule *module);

/*
 * Whether a feature works whose observe() the sampler calls, by when it last did; and
 * of one that lives on what it has written down, if stalled_ms is 0.  Where the sampler
 * is off, it is off, too.
 */
extern bool pgscale_health_observed(PgscaleHealth *health, int64 last_ns, int64 stalled_ms);

/*
 * The state of a feature, with its wishes about settings in action; and the feature
 * that claims a setting now, or NULL.
 */
extern void pgscale_health_of(const PgscaleModule *module, PgscaleHealth *health);
extern const PgscaleModule *pgscale_claimant(const char *setting, PgscaleHealth *health, PgscaleClaim *claim);

/* The feature of that name. */
extern const PgscaleModule *pgscale_module(const char *name);

/*
 * version.c: the row "version" of pgscale.health, which compares the library with the
 * extension in this database; and the message of the server's start.
 */
extern void pgscale_version_health(PgscaleHealth *health);
extern void pgscale_version_log(void);

extern const PgscaleArea pgscale_health_area;

#endif							/* PGSCALE_H */
