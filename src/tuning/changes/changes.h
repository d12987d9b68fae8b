/*-------------------------------------------------------------------------
 *
 * changes.h
 *	  Changes of settings: the lines of postgresql.auto.conf, the journal, and what is
 *	  checked before a change and remembered to judge it.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_TUNING_CHANGES_H
#define PGSCALE_TUNING_CHANGES_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "utils/array.h"
#include "utils/guc.h"
#include "utils/jsonb.h"

/* auto_conf.c: the lines of postgresql.auto.conf, and how one of them is changed */

/* What the file has, in the order of its lines. */
typedef struct PgscaleTuningLines
{
	ConfigVariable *head;
	bool		known;			/* could it be read? */
} PgscaleTuningLines;

/*
 * Reads the file.  If it cannot be parsed, or ALTER SYSTEM would break it, that is an
 * error; for a reader, it is unknown.
 */
extern void pgscale_tuning_lines_read(PgscaleTuningLines *lines, bool look);

/* The value of a setting's line, of several the last one's; NULL: it has none. */
extern const char *pgscale_tuning_line_of(const PgscaleTuningLines *lines, const char *setting);

/* Are both the same, or both NULL? */
extern bool pgscale_tuning_line_same(const char *a, const char *b);

/*
 * Would the server take this value, NULL to remove the line, from this user?
 * Raises what it would, with a hint.  Returns the name as the server spells it.
 */
extern const char *pgscale_tuning_line_check(const char *setting, const char *value);

/* Would the server take a value that it has in its file? */
extern bool pgscale_tuning_line_valid(const char *setting, const char *value);

/* May the current user see values of this setting? */
extern bool pgscale_tuning_line_visible(const char *setting);

/* The value as the current user may see it: hidden, if it may not; or it seems to be a secret and this is no superuser. */
extern const char *pgscale_tuning_line_shown(const char *setting, const char *value, const char *hidden);

/* The value as an error's text has it. */
extern const char *pgscale_tuning_line_show(const char *setting, const char *value);

/* What the file has after an error. */
typedef enum PgscaleTuningLineFate
{
	PGSCALE_LINE_KEPT,			/* not the new line */
	PGSCALE_LINE_CHANGED,		/* the new one, all the same */
	PGSCALE_LINE_UNKNOWN		/* it cannot be read */
} PgscaleTuningLineFate;

/*
 * Changes the line, if it is still this one; else, or if that fails, raises an
 * error, with what has become of the line in *fate.
 */
extern void pgscale_tuning_line_change(const char *setting, const char *expected, const char *value,
									   volatile PgscaleTuningLineFate *fate);

/* journal.c: each old line is committed before the change is made */

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
	char	   *new_value;		/* NULL: there is none now */
	char	   *state;
	const char *foreign;		/* "another server" or "another database",
								 * whose row is a copy here; or NULL */
	char	   *node;			/* where it was made: host and data directory */
	bool		elsewhere;		/* on another node, or before the last
								 * promotion: this one's file need not have it */
	bool		other_node;		/* the former */
	int64		revert_of;		/* a change; 0: it is not a revert */
	int64		reverted_by;	/* a change; 0: it was not reverted */
	const char *reason;			/* or NULL; not read back, as the next one */
	const Jsonb *evidence;

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

/* Any other column. */
extern void pgscale_tuning_journal_set(int64 id, const char *column, Oid type, Datum value);

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
