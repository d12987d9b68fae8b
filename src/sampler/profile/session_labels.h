/*-------------------------------------------------------------------------
 *
 * session_labels.h
 *	  Extra columns of the wait profile: texts, as a number, and the plan.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_SESSION_LABELS_H
#define PGSCALE_SAMPLER_SESSION_LABELS_H

#include "postgres.h"

#include "base/processes.h"

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

#endif							/* PGSCALE_SAMPLER_SESSION_LABELS_H */
