/*-------------------------------------------------------------------------
 *
 * report.h
 *	  The feature: a period told on one page, for psql or for a browser.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_REPORT_H
#define PGSCALE_REPORT_H

#include "postgres.h"

#include "fmgr.h"
#include "lib/stringinfo.h"

#include "pgscale.h"

extern const PgscaleModule pgscale_report_module;

/* A page for psql is as wide as this. */
#define PGSCALE_REPORT_WIDTH	120

/*
 * text.c: text of whatever origin, made harmless.  Inside it is UTF-8, valid,
 * without control characters; lines end with \n.
 */

/* At most so many characters of a value in the database's encoding; lines: keep its lines apart. */
extern char *pgscale_report_text_read(const char *value, int len, int most, bool lines);

/* The same of an argument of type text. */
extern char *pgscale_report_text_of(const text *value, int most, bool lines);

/* Puts it into a page of HTML, as ASCII. */
extern void pgscale_report_text_put_html(StringInfo out, const char *utf8);

/* Puts so many bytes of it into text in the database's encoding. */
extern void pgscale_report_text_put_plain(StringInfo out, const char *utf8, int len);

/* Columns on a terminal. */
extern int	pgscale_report_text_width(const char *utf8, int len);

/* How many bytes of it fit into so many columns, to be cut between words if need be. */
extern int	pgscale_report_text_fit(const char *utf8, int width, bool words);

/* The format that an argument names: true for HTML. */
extern bool pgscale_report_text_is_html(FunctionCallInfo fcinfo, int argument);

#endif							/* PGSCALE_REPORT_H */
