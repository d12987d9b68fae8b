/*-------------------------------------------------------------------------
 *
 * changes.h
 *	  Common parts of the procedures that change settings.
 *
 * Each one begins, checks its arguments, locks, remembers the old line and checks
 * again; then pgscale_tuning_change_one() does the rest.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_TUNING_CHANGES_H
#define PGSCALE_TUNING_CHANGES_H

#include "postgres.h"

#include "fmgr.h"
#include "nodes/pg_list.h"

#include "tuning/changes/journal.h"

/* An argument that must be true or false; and the error of one that is NULL. */
extern bool pgscale_tuning_change_bool(FunctionCallInfo fcinfo, int number, const char *name);
extern void pgscale_tuning_change_null(const char *parameter, const char *hint);

/*
 * Before anything else.  Leaves a connection to SPI, whose memory holds what is
 * needed until the end.
 */
extern void pgscale_tuning_change_begin(FunctionCallInfo fcinfo, const char *procedure, bool reload);

/* From now on there are no other changes, in any database. */
extern void pgscale_tuning_change_lock(void);

/* Reads the line that the setting has, and what it is judged by. */
extern void pgscale_tuning_change_remember(PgscaleTuningChange *change);

/* Warns if that line could not be put back. */
extern void pgscale_tuning_change_check_old(const PgscaleTuningChange *change);

/* Makes one change and ends the call. */
extern Datum pgscale_tuning_change_one(FunctionCallInfo fcinfo, PgscaleTuningChange *change, bool reload);

/* How a value is set by hand, as a statement for a hint. */
extern const char *pgscale_tuning_change_statement(const char *setting, const char *value, bool force);

/* start_check.c: would the server start with a setting changed? */

/*
 * Raises an error if it is known that it would not, or not live, once the line has
 * this value, NULL: none.  force: the statement that sets it all the same, for the
 * hint.  A notice if it is for standbys to follow.
 */
extern void pgscale_tuning_start_check(const char *setting, const char *value, const char *force);

/* start_ask.c: the server's own answer */

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
extern void pgscale_tuning_start_ask(const char *setting, const char *value, List *options, PgscaleTuningStart *start);

/* verify.c: was a change for the better? */

/*
 * Has the change remember what its setting is judged by: the evidence itself is
 * lost when the server restarts.
 */
extern void pgscale_tuning_verify_remember(PgscaleTuningChange *change);

#endif							/* PGSCALE_TUNING_CHANGES_H */
