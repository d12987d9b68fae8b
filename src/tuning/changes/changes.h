/*-------------------------------------------------------------------------
 *
 * changes.h
 *	  What is checked before a setting is changed, and remembered to judge the change.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_TUNING_CHANGES_H
#define PGSCALE_TUNING_CHANGES_H

#include "postgres.h"

#include "nodes/pg_list.h"

#include "tuning/changes/journal.h"

/* start_check.c: would the server start with a setting changed? */

/*
 * Raises an error if it is known that it would not, or not live, once the line has
 * this value, NULL: none.  force: the statement that sets it all the same, for the
 * hint.  A notice if it is for standbys to follow.
 */
extern void pgscale_tuning_start_check(const char *setting, const char *value, const char *force);

/* start_probe.c: the server's own answer */

typedef struct PgscaleTuningStart
{
	bool		known;			/* else it could not be asked, and says why */
	bool		starts;			/* as far as -C goes */
	int64		shared_memory;	/* bytes, at least */
	const char *says;			/* its errors, if it does not start */
} PgscaleTuningStart;

/*
 * Asks with the setting's line changed; with NULL, as the files are.  options: more of
 * the command line, "name=value".
 */
extern void pgscale_tuning_start_probe(const char *setting, const char *value, List *options, PgscaleTuningStart *start);

/* verify.c: was a change for the better? */

/*
 * Has the change remember what its setting is judged by: the evidence itself is
 * lost when the server restarts.
 */
extern void pgscale_tuning_verify_remember(PgscaleTuningChange *change);

#endif							/* PGSCALE_TUNING_CHANGES_H */
