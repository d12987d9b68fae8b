/*-------------------------------------------------------------------------
 *
 * samples.h
 *	  A tick of the sampler, the sample of each process, and what counts them.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_SAMPLES_H
#define PGSCALE_SAMPLER_SAMPLES_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "postmaster/bgworker.h"

#include "base/processes.h"
#include "base/shared_area.h"
#include "sampler/profile/profile.h"
#include "sampler/sampler.h"

/* How many slots without a process to visit in a tick: 0.1 ms. */
#define PGSCALE_SAMPLER_FREE_SLOTS	10000

typedef struct PgscaleSamplerTick
{
	int64		due;			/* when it should have begun, and when it did, */
	int64		now;			/* on the monotonic clock */
	TimestampTz wall;
	int64		ns;				/* the time that it stands for */
	int			max_samples;	/* it has no more */
	PgscaleSamplerStats *stats;

	/* sessions that it found active, or idle in a transaction */
	int			nactive;
	int			nin_transaction;

	int			nconnections;	/* slots of max_connections in use at its end */

	/*
	 * Time of earlier ticks, too, that was sampled as idle, outside of a
	 * transaction or in one, and was spent on CPU.
	 */
	int64		found_idle_ns;
	int64		found_in_transaction_ns;
} PgscaleSamplerTick;

/* An entry of the profile of blockers; zeroes: none. */
typedef struct PgscaleSamplerRoot
{
	uint32		entry;
	uint32		born;
} PgscaleSamplerRoot;

/* The blockers of a lock wait: process IDs; 0: a prepared transaction, which has none.  And the root's entry. */
typedef struct PgscaleSamplerBlocked
{
	int			blocker;
	int			root;
	PgscaleSamplerRoot entry;
} PgscaleSamplerBlocked;

/* What a tick has found of a process: made once, for all that count it. */
typedef struct PgscaleSamplerTickSample
{
	int			slot;
	const PgscaleProc *proc;	/* as it was read */
	PgscaleSamplerWaitKey key;	/* what it waits for, and whom for */
	int			entry;			/* of the profile, where it was counted */
	bool		idle;
	uint64		samples;		/* 1; or how many ticks found the same */
	int64		ns;				/* the time that they stand for */
	const PgscaleSamplerBlocked *blocked;	/* of a long lock wait, if it is
											 * known; or NULL */
} PgscaleSamplerTickSample;

/*
 * What counts the samples, or keeps what belongs to them.  Any member may be NULL.  The
 * functions of all consumers are called in the order of the list in sampler.c.
 */
typedef struct PgscaleSamplerConsumer
{
	/*
	 * In the sampler's process: before the first tick; when it is switched
	 * on, or was started; when it is switched off, or ends; between two
	 * ticks: counts from now on.
	 */
	void		(*attach) (void);
	void		(*start) (int64 now);
	void		(*stop) (void);
	void		(*reset) (int64 now);

	/*
	 * A tick.  add is called for each sample between begin and end, except
	 * those of processes that idle as in the tick before: as of these,
	 * nothing need be shown again. after may take longer, and is no part of
	 * the time that ticks take.
	 */
	void		(*begin) (const PgscaleSamplerTick *tick);
	void		(*add) (PgscaleSamplerTickSample *sample, const PgscaleSamplerTick *tick);
	void		(*end) (PgscaleSamplerTick *tick);
	void		(*after) (const PgscaleSamplerTick *tick);
} PgscaleSamplerConsumer;

extern const PgscaleSamplerConsumer pgscale_sampler_samples_consumer;
extern const PgscaleSamplerConsumer pgscale_sampler_labels_consumer;
extern const PgscaleSamplerConsumer pgscale_sampler_profile_consumer;
extern const PgscaleSamplerConsumer pgscale_sampler_blockers_consumer;
extern const PgscaleSamplerConsumer pgscale_sampler_history_consumer;
extern const PgscaleSamplerConsumer pgscale_sampler_timeline_consumer;
extern const PgscaleSamplerConsumer pgscale_sampler_texts_consumer;
extern const PgscaleSamplerConsumer pgscale_sampler_cpu_consumer;
extern const PgscaleSamplerConsumer pgscale_sampler_totals_consumer;
extern const PgscaleSamplerConsumer pgscale_sampler_observers_consumer;

/* The shared memory of what they count. */
extern const PgscaleArea pgscale_sampler_types_area;
extern const PgscaleArea pgscale_sampler_nested_area;
extern const PgscaleArea pgscale_sampler_profile_area;
extern const PgscaleArea pgscale_sampler_blockers_area;
extern const PgscaleArea pgscale_sampler_history_area;
extern const PgscaleArea pgscale_sampler_timeline_area;
extern const PgscaleArea pgscale_sampler_texts_area;
extern const PgscaleArea pgscale_sampler_totals_area;
extern const PgscaleArea pgscale_sampler_labels_area;

/* All consumers, NULL-terminated. */
extern const PgscaleSamplerConsumer *const pgscale_sampler_consumers[];

/* A tick: samples all processes, from the consumers' begin to their end. */
extern void pgscale_sampler_samples_take(PgscaleSamplerTick *tick);

/*
 * Does the slot have samples that are moved to another entry of the profile as soon as
 * their statement has an identifier?
 */
extern bool pgscale_sampler_samples_parked(int slot);

/*
 * Between two ticks: what was seen of idle processes may not hold in the next one; and, if
 * relabel, whom a session counts for may be another one, though it does nothing.
 */
extern void pgscale_sampler_samples_forget(bool relabel);

/*
 * cpu_split.c: samples that were counted in an entry of the profile; those that were
 * counted in one are in another from now on, or -1; and no process is in the slot, within
 * a change of the profile.
 */
extern void pgscale_sampler_cpu_add(PgscaleSamplerTickSample *sample, const PgscaleSamplerTick *tick);
extern void pgscale_sampler_cpu_moved(int slot, int from, uint64 born, int to, uint64 samples, uint64 ns);
extern void pgscale_sampler_cpu_leave(int slot);

/* sampler_files.c: in the postmaster, while there is no other process, keeps the profile and the history over a restart. */
extern void pgscale_sampler_files_save(void);
extern void pgscale_sampler_files_load(void);

/* blocker_profile.c: the blockers of long lock waits, and the time of lock waits by root blocker */

/*
 * In any process: a copy of the entries, and the name of the application of a sample's
 * root; NULL if its entry has gone, or is not for the role that reads it.
 */
typedef struct PgscaleSamplerRoots PgscaleSamplerRoots;

extern PgscaleSamplerRoots *pgscale_sampler_roots_copy(void);
extern const char *pgscale_sampler_root_application(const PgscaleSamplerRoots *copy, const PgscaleSamplerRoot *root);

/* worker_types.c: the type of a background worker, as a number */

typedef char PgscaleSamplerTypeName[BGW_MAXLEN];

/*
 * The kind of the background workers of a type.  In the sampler, or before there
 * is one.  The server's own kind for all of them, if there are too many types.
 */
extern PgscaleProcKind pgscale_sampler_type_kind(const char *name);

/*
 * The kind of a running background worker, by its pid.  Returns false if it is unknown
 * at this moment.  Call it in the sampler.
 */
extern bool pgscale_sampler_type_of_worker(int pid, PgscaleProcKind *kind);

/* How any kind is called, as in pg_stat_activity.backend_type. */
extern const char *pgscale_sampler_type_name(PgscaleProcKind kind);

/* The types that are known: kinds PGSCALE_PROC_FIRST_TYPE and on. */
extern int	pgscale_sampler_types(const PgscaleSamplerTypeName * *names);

/* nested_queries.c: in the postmaster, installs the hooks. */
extern void pgscale_sampler_nested_install(void);

/* The identifier of a nested statement, or 0 outside of one, or without hooks. */
extern int64 pgscale_sampler_nested_queryid(int slot, const PgscaleProc *proc);

#endif							/* PGSCALE_SAMPLER_SAMPLES_H */
