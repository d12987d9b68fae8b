/*-------------------------------------------------------------------------
 *
 * journal.h
 *	  The journal of changes of settings: each old line is committed before the change
 *	  is made.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_TUNING_CHANGES_JOURNAL_H
#define PGSCALE_TUNING_CHANGES_JOURNAL_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/array.h"
#include "utils/jsonb.h"

/* A change's state as its row has it; what is shown depends on the file, too. */
#define PGSCALE_CHANGE_BEGUN	"begun"
#define PGSCALE_CHANGE_APPLIED	"applied"
#define PGSCALE_CHANGE_REVERTED "reverted"
#define PGSCALE_CHANGE_FAILED	"failed"

typedef struct PgscaleTuningChange
{
	int64		id;
	char	   *setting;
	char	   *old_value;		/* of its line; NULL: there was none */
	char	   *new_value;		/* likewise */
	char	   *state;
	const char *foreign;		/* "another server" or "another database",
								 * whose row is a copy here; or NULL */
	char	   *node;			/* where it was made: host and data directory */
	bool		elsewhere;		/* on another node, or before the last
								 * promotion: this one's file need not have it */
	bool		other_node;		/* the former */
	int64		revert_of;		/* a change; 0: it is not a revert */
	int64		reverted_by;	/* likewise */
	const char *reason;			/* or NULL */
	const Jsonb *evidence;		/* or NULL; not read back */

	/*
	 * What the setting is judged by, before the change: a metric's name, its
	 * value of each record, and when the records ended.  NULL: nothing is
	 * known.
	 */
	ArrayType  *metrics;		/* text[] */
	ArrayType  *ends;			/* timestamptz[] */
	ArrayType  *values;			/* float8[][]: of each metric one value a
								 * record; NaN: unknown */

	TimestampTz requested_at;
	TimestampTz applied_at;		/* 0: not yet, as the next one */
	TimestampTz effective_at;
} PgscaleTuningChange;

/*
 * All of these are a part of the caller's transaction; what they return is in the
 * current memory context.
 */

/* The bigint that a query on the server's catalogs and files has as its result; setting: its $1, unless NULL. */
extern int64 pgscale_tuning_journal_number(const char *query, const char *setting);

/* Adds it as begun, and returns its id. */
extern int64 pgscale_tuning_journal_begin(const PgscaleTuningChange *change);

/* False if there is none such. */
extern bool pgscale_tuning_journal_get(int64 id, PgscaleTuningChange *change);

/* Locks what is going to be written, so that writing it does not have to wait. */
extern void pgscale_tuning_journal_hold(const PgscaleTuningChange *change);

/* What has become of it; and of what it was to revert.  applied_at 0 is now. */
extern void pgscale_tuning_journal_applied(const PgscaleTuningChange *change);

/* What went wrong; and if it failed, that it was not made. */
extern void pgscale_tuning_journal_error(int64 id, bool failed, int sqlstate, const char *message);

extern void pgscale_tuning_journal_effective(int64 id, TimestampTz at);
extern void pgscale_tuning_journal_outcome(int64 id, const Jsonb *outcome);

/*
 * Of changes that a session left as begun when it ended: looks into the file
 * what became of them.  The lock on changes must be held.
 */
extern void pgscale_tuning_journal_reconcile(void);

/* The latest change of the setting since this one that stands; 0: none. */
extern int64 pgscale_tuning_journal_later(const PgscaleTuningChange *change);

/* How many others were made or took effect between these. */
extern int	pgscale_tuning_journal_others(int64 id, TimestampTz since, TimestampTz until);

/* When the next one of this setting was made, whatever it was; DT_NOEND: none. */
extern TimestampTz pgscale_tuning_journal_next(const PgscaleTuningChange *change);

/* Since when the server has had the value; 0: it does not yet. */
extern TimestampTz pgscale_tuning_journal_effective_at(const PgscaleTuningChange *change);

#endif							/* PGSCALE_TUNING_CHANGES_JOURNAL_H */
