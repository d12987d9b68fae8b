/*-------------------------------------------------------------------------
 *
 * texts.h
 *	  Text of whatever origin, made harmless, and without secrets.
 *
 * In SQL: pgscale_internal.clean_text(), clean_line() and clean_statement().  All
 * that is kept or put on a page goes through them.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_TEXTS_H
#define PGSCALE_BASE_TEXTS_H

#include "postgres.h"

#include "lib/stringinfo.h"

/* A statement that is kept or printed has at most that many characters. */
#define PGSCALE_STATEMENT_LENGTH	2000

/*
 * At most that many characters of a text in this encoding, and ... if there are more,
 * as valid UTF-8 without control characters. lines: keep its white space and its lines;
 * otherwise it becomes one line, in which white space is a single space, without any at
 * its ends.
 */
extern char *pgscale_text_read(const char *value, int len, int encoding, int most, bool lines);

/* Such a line in the database's encoding. */
extern char *pgscale_text_line(const char *value, int encoding, int most);

/* A statement in this encoding as clean_statement() shows it: without secrets, and a very long one shortened. */
extern char *pgscale_text_statement(const char *query, int len, int encoding);

/* Converts that many bytes of UTF-8 to text in the database's encoding. */
extern void pgscale_text_put(StringInfo out, const char *utf8, int len);

/* The name of a role or a database, which does not say of which encoding it is, as a valid text. */
extern const char *pgscale_text_name_of(Oid object, bool role);

/* psprintf() for functions that take arguments themselves. */
extern char *pgscale_text_format(const char *format, va_list args) pg_attribute_printf(1, 0);

/* Bytes: "512 MB", from 10 GB on "12 GB". */
extern const char *pgscale_text_bytes(double bytes);

/* A length of time: "12 s", "4 min", "3 h", "5 days"; "an unknown time" if it is negative or not finite. */
extern const char *pgscale_text_duration(double s);

#endif							/* PGSCALE_BASE_TEXTS_H */
