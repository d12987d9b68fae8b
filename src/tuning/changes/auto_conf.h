/*-------------------------------------------------------------------------
 *
 * auto_conf.h
 *	  The lines of postgresql.auto.conf, and how one of them is changed.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_TUNING_CHANGES_AUTO_CONF_H
#define PGSCALE_TUNING_CHANGES_AUTO_CONF_H

#include "postgres.h"

#include "utils/guc.h"

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

#endif							/* PGSCALE_TUNING_CHANGES_AUTO_CONF_H */
