/*-------------------------------------------------------------------------
 *
 * report.h
 *	  The feature: a period on one page, for psql or for a browser.
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

/* At most that many characters of an argument, as base/texts.h reads them: valid UTF-8; lines: keep its lines. */
extern char *pgscale_report_text_of(const text *value, int most, bool lines);

/* Puts it into a page of HTML, as ASCII. */
extern void pgscale_report_text_put_html(StringInfo out, const char *utf8);

/* Columns on a terminal. */
extern int	pgscale_report_text_width(const char *utf8, int len);

/* The number of bytes of it that fit into that many columns, cut between words if possible. */
extern int	pgscale_report_text_fit(const char *utf8, int width, bool words);

/* The format that an argument names: true for HTML. */
extern bool pgscale_report_text_is_html(FunctionCallInfo fcinfo, int argument);

#endif							/* PGSCALE_REPORT_H */
