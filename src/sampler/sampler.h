/*-------------------------------------------------------------------------
 *
 * sampler.h
 *	  The wait-event sampler.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_H
#define PGSCALE_SAMPLER_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "postmaster/bgworker.h"

#include "base/processes.h"
#include "pgscale.h"
#include "sampler/blocker_profile.h"

extern const PgscaleModule pgscale_sampler_module;

/* query_waits.c: whether the wait profile can be told by query */

extern const PgscaleModule pgscale_query_waits_module;

/* worker_types.c: what kind of background worker a process is, as a number */

typedef char PgscaleSamplerTypeName[BGW_MAXLEN];

extern Size pgscale_sampler_types_size(void);
extern void pgscale_sampler_types_startup(void);

/*
 * The kind of the background workers of a type.  In the sampler, or before there
 * is one.  The server's own kind for all of them, if there are too many types.
 */
extern PgscaleProcKind pgscale_sampler_type_kind(const char *name);

/*
 * The kind of a running background worker, by its pid.  Returns false if that
 * cannot be told at this moment.  In the sampler.
 */
extern bool pgscale_sampler_type_of_worker(int pid, PgscaleProcKind *kind);

/* How any kind is called, as in pg_stat_activity.backend_type. */
extern const char *pgscale_sampler_type_name(PgscaleProcKind kind);

/* The types that are known: kinds PGSCALE_PROC_FIRST_TYPE and on. */
extern int	pgscale_sampler_types(const PgscaleSamplerTypeName * *names);

/* blocked.c: who is in the way of those that have waited long for a lock */

/* Process IDs; 0: a prepared transaction, which has none.  And the root's entry. */
typedef struct PgscaleSamplerBlocked
{
	int			blocker;
	int			root;
	PgscaleSamplerRoot entry;
} PgscaleSamplerBlocked;

/* In the sampler: before the first tick. */
extern void pgscale_sampler_blocked_attach(void);

/*
 * In a tick that stands for so long: a process waits for a lock.  Who is in its way, as
 * of the last look, or NULL if it has waited for less than deadlock_timeout, or that is not known.
 */
extern const PgscaleSamplerBlocked *pgscale_sampler_blocked_by(int slot, const PgscaleProc *proc, uint64 ns, int64 now);

/*
 * After a tick: looks at the lock manager, if anybody has waited that long and the last
 * look is a second ago.  Returns whether it did.
 */
extern bool pgscale_sampler_blocked_look(int64 now, TimestampTz wall);
extern void pgscale_sampler_blocked_reset(void);

/* history.c: the latest samples one by one, in a ring */

extern Size pgscale_sampler_history_size(int capacity);
extern void pgscale_sampler_history_startup(int capacity);

/*
 * The writer's side: one process only.  Start says since when there are ticks.  The samples
 * of a tick lie between begin, which tells whether this one is a look, and end; max_samples
 * bounds how many they will be.
 */
extern void pgscale_sampler_history_attach(void);
extern void pgscale_sampler_history_start(int64 now);
extern void pgscale_sampler_history_begin(TimestampTz wall, int64 due, int64 now, int64 period_ns, int max_samples);
extern void pgscale_sampler_history_add(const PgscaleProc *proc, PgscaleProcKind kind, uint16 dimension, uint32 wait_event,
										int64 queryid, const PgscaleSamplerBlocked *blocked);
extern void pgscale_sampler_history_end(void);
extern void pgscale_sampler_history_reset(void);

/* timeline.c: average active sessions second by second, by wait class */

extern Size pgscale_sampler_timeline_size(void);
extern void pgscale_sampler_timeline_startup(void);

/*
 * The writer's side: one process only.  A tick's waits lie between begin,
 * which tells the time the tick stands for, and end.
 */
extern void pgscale_sampler_timeline_begin(TimestampTz now, uint64 ns);
extern void pgscale_sampler_timeline_add(uint32 wait_event);
extern void pgscale_sampler_timeline_end(void);

/* After the end of a tick: time of the last second that only now is known to be one. */
extern void pgscale_sampler_timeline_add_late(uint32 wait_event, uint64 ns);

/* After the end of a tick: time of its second that was shown as this wait, and was spent on CPU. */
extern void pgscale_sampler_timeline_to_cpu(uint32 wait_event, uint64 ns);
extern void pgscale_sampler_timeline_reset(void);

/* wait_totals.c: time in each wait event, by type of process, that never falls */

extern Size pgscale_sampler_totals_size(void);
extern void pgscale_sampler_totals_startup(void);

/* In the sampler: time that is known to be this, unless that is to idle. */
extern void pgscale_sampler_totals_add(PgscaleProcKind kind, uint32 wait_event, uint64 ns);
extern void pgscale_sampler_totals_reset(void);

/* dimensions.c: by what else the profile is told: texts, as a number, and the plan */

extern void pgscale_sampler_dimensions_define_guc(void);
extern Size pgscale_sampler_dimensions_size(void);
extern void pgscale_sampler_dimensions_startup(void);

/* Is the plan one of them, and can this server tell it? */
extern bool pgscale_sampler_by_plan_id(void);
extern bool pgscale_sampler_plan_id_unknown(void);

/* What a session had; zeroes at first. */
typedef struct PgscaleSamplerDimension
{
	uint16		number;
	uint64		hash;
} PgscaleSamplerDimension;

/* In the sampler: what a session has now. */
extern void pgscale_sampler_dimension_of(const PgscaleProc *proc, int slot, PgscaleSamplerDimension *dimension);

/*
 * In the sampler: what is between these forgets all that has such a number, and they
 * forget the numbers.
 */
extern void pgscale_sampler_dimensions_attach(void);
extern void pgscale_sampler_dimensions_begin_reset(void);
extern void pgscale_sampler_dimensions_end_reset(void);

/*
 * What the numbers stand for, NULL if they are not wanted.  It goes with what was
 * copied before it, if there was no reset since begin_read.
 */
typedef struct PgscaleSamplerDimensions PgscaleSamplerDimensions;

extern uint64 pgscale_sampler_dimensions_begin_read(void);
extern PgscaleSamplerDimensions *pgscale_sampler_dimensions_copy(void);
extern bool pgscale_sampler_dimensions_unchanged(uint64 before);

/* The texts of a number, NULL where it stands for none. */
extern void pgscale_sampler_dimension(const PgscaleSamplerDimensions *dimensions, uint16 number,
									  const char **application_name, const char **address);

/*
 * For the file, while there is no other process: copies the applications, the first of
 * number 1, and returns how many; whether a number stands for all further ones; and the
 * number of an application in this server, made if need be.
 */
typedef char PgscaleSamplerName[NAMEDATALEN];

extern int	pgscale_sampler_dimension_names(PgscaleSamplerName * names, int most);
extern bool pgscale_sampler_dimension_is_other(uint16 number);
extern uint16 pgscale_sampler_dimension_of_name(const char *application_name);

/* nested_queries.c: which nested statement a backend executes */

extern Size pgscale_sampler_nested_size(void);
extern void pgscale_sampler_nested_startup(void);

/* Puts the hooks in; without this they do not exist. */
extern void pgscale_sampler_nested_install(void);

/* The statement's identifier, or 0 if it is not in a nested one. */
extern int64 pgscale_sampler_nested_queryid(int slot, const PgscaleProc *proc);

/*
 * observers.c: what other features are told once a second of what the sampler sees.
 */

/* In the sampler: first, and when it has not looked for a while. */
extern void pgscale_sampler_observe_begin(void);

/* A sample of a session; a quiet one's need not be shown again. */
extern void pgscale_sampler_observe_sample(const PgscaleProc *proc, bool idle, int64 ns);

/* The end of a tick that stands for so long: tells the others when a second is over. */
extern void pgscale_sampler_observe_tick(TimestampTz wall, int64 ns);

/* lwlock_waits.c: the LWLocks that processes wait for, told at each tick */

/* What a process waits for at this tick, if that is an LWLock. */
extern void pgscale_sampler_lwlock_add(uint32 wait_event);

/* The end of the tick: tells the others. */
extern void pgscale_sampler_lwlock_tell(int64 ns);

/* profile_file.c: keeps the wait profile over a restart of the server */

/* In the postmaster, with no writer running. */
extern void pgscale_sampler_save(void);
extern void pgscale_sampler_load(void);

#endif							/* PGSCALE_SAMPLER_H */
