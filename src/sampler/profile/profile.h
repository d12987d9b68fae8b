/*-------------------------------------------------------------------------
 *
 * profile.h
 *	  The accumulated wait profile: time by wait, process type, query, user and
 *	  database.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_PROFILE_H
#define PGSCALE_SAMPLER_PROFILE_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "base/processes.h"

/* The largest setting, and how many rows more there may be for what was evicted. */
#define PGSCALE_PROFILE_MAX		1000000
#define PGSCALE_PROFILE_OTHERS	512

/* The rows that collect what was evicted are of this kind. */
#define PGSCALE_PROC_OTHER	((PgscaleProcKind) 0xFF)

/* Hashed and compared as bytes: set the unused one to 0. */
typedef struct PgscaleSamplerWaitKey
{
	int64		queryid;
	Oid			datid;
	Oid			userid;
	uint32		wait_event;
	PgscaleProcKind kind;
	uint8		unused;
	uint16		label;			/* see session_labels.c */
	int64		plan_id;		/* or 0: none */
} PgscaleSamplerWaitKey;

typedef struct PgscaleSamplerProfileEntry
{
	PgscaleSamplerWaitKey key;
	uint64		samples;
	uint64		ns;				/* the time these samples stand for */
	uint64		born;			/* no other entry was made with this number */
} PgscaleSamplerProfileEntry;

/* All that the entries' sums must agree with. */
typedef struct PgscaleSamplerProfileTotals
{
	uint64		samples;
	uint64		ns;
	uint64		evictions;		/* entries that made room for others */
	int32		used;			/* ordinary entries */
	int32		others;			/* entries that collect evicted ones */
	TimestampTz reset_at;
} PgscaleSamplerProfileTotals;

/* A consistent copy, as of the end of one tick. */
typedef struct PgscaleSamplerProfileSnapshot
{
	PgscaleSamplerProfileTotals totals;
	int			nentries;
	PgscaleSamplerProfileEntry *entries;
} PgscaleSamplerProfileSnapshot;

/* In the sampler.  All changes lie between begin and end, of a tick or of another change (NULL). */
struct PgscaleSamplerTick;
extern void pgscale_sampler_profile_begin(const struct PgscaleSamplerTick *tick);
extern void pgscale_sampler_profile_end(struct PgscaleSamplerTick *tick);

/*
 * Adds a sample to the entry of a key, made if need be, and returns its number.
 * hints are kept by the caller for each process, at first { -1, -1 }: the entries of its
 * last sample and of the last other one, since it mostly goes from its client to a
 * statement and back.
 */
extern int	pgscale_sampler_profile_add(const PgscaleSamplerWaitKey *key, int hints[2], uint64 ns);

/*
 * Adds samples, each of which stands for that time, to an entry that
 * pgscale_sampler_profile_add() returned.  The number holds as long as
 * pgscale_sampler_profile_generation() stays the same.
 */
extern void pgscale_sampler_profile_add_again(int entry, uint64 samples, uint64 ns);
extern uint32 pgscale_sampler_profile_generation(void);

/* Separates an entry from earlier and later ones in the same place. */
extern uint64 pgscale_sampler_profile_born(int entry);

/* The key of an entry.  Returns false if the entry was evicted meanwhile. */
extern bool pgscale_sampler_profile_key(int entry, uint64 born, PgscaleSamplerWaitKey *key);

/* Moves a part of an entry that is there to another key, and returns the entry of that. */
extern int	pgscale_sampler_profile_move(int entry, const PgscaleSamplerWaitKey *key, uint64 samples, uint64 ns);

/* In any process, without stopping the writer. */
extern void pgscale_sampler_profile_totals(PgscaleSamplerProfileTotals *totals);

/*
 * A snapshot when there is no writer any more, without a wait and without an error:
 * returns false if the last one ended within a change, or there is no memory.
 */
extern bool pgscale_sampler_profile_at_rest(PgscaleSamplerProfileSnapshot *snapshot);

/*
 * Before there is any writer: adds what an earlier server had.  Its profile
 * may have been larger, and its wait events beyond the server's own are
 * known under other numbers now.
 */
extern void pgscale_sampler_profile_restore(const PgscaleSamplerProfileTotals *totals,
											const PgscaleSamplerProfileEntry *entries, int nentries);

/* wait_totals.c: in the sampler, adds time that is known to be this, unless that is to idle. */
extern void pgscale_sampler_totals_add(PgscaleProcKind kind, uint32 wait_event, uint64 ns);

/* session_labels.c: extra columns of the wait profile: texts, as a number, and the plan */

extern void pgscale_sampler_labels_define_guc(void);

/* In the sampler, after a reload: the setting is in force from now on.  Returns whether it has changed. */
extern bool pgscale_sampler_labels_apply(void);

/* In the sampler: is the plan one of them?  In any process: is it, and has this server no plan identifiers? */
extern bool pgscale_sampler_by_plan_id(void);
extern bool pgscale_sampler_plan_id_unknown(void);

/* What a session had; zeroes at first. */
typedef struct PgscaleSamplerLabel
{
	uint16		number;
	uint64		hash;
} PgscaleSamplerLabel;

/* In the sampler: what a session has now. */
extern void pgscale_sampler_label_of(const PgscaleProc *proc, int slot, PgscaleSamplerLabel *label);

/*
 * What the numbers stand for, in any process: calls read to copy what has such numbers, and
 * again after a reset meanwhile, until the labels that are returned go with that copy.
 */
typedef struct PgscaleSamplerLabels PgscaleSamplerLabels;

extern PgscaleSamplerLabels *pgscale_sampler_labels_read_with(void (*read) (void *arg), void *arg);

/*
 * The texts of a number; NULL where it stands for none, and for the sessions of a user that
 * the role that reads them may not see.
 */
extern void pgscale_sampler_label(const PgscaleSamplerLabels *labels, uint16 number, Oid userid,
								  const char **application_name, const char **address);

/*
 * For the file, while there is no other process: copies the applications, beginning
 * with number 1, and returns their number; whether a number stands for all further
 * ones; and the number of an application in this server, made if necessary.
 */
typedef char PgscaleSamplerName[NAMEDATALEN];

extern int	pgscale_sampler_label_names(PgscaleSamplerName * names, int most);
extern bool pgscale_sampler_label_is_other(uint16 number);
extern uint16 pgscale_sampler_label_of_name(const char *application_name);

#endif							/* PGSCALE_SAMPLER_PROFILE_H */
