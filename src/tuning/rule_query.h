/*-------------------------------------------------------------------------
 *
 * rule_query.h
 *	  Questions that a rule asks in SQL, as its caller.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_TUNING_RULE_QUERY_H
#define PGSCALE_TUNING_RULE_QUERY_H

#include "postgres.h"

/* A result, all as text; in the memory context of the caller. */
typedef struct PgscaleRows
{
	int			nrows;
	int			ncolumns;
	char	  **values;			/* row after row; NULL is null */
	const char *error;			/* why there is no result, or NULL */
} PgscaleRows;

static inline const char *
pgscale_rows_text(const PgscaleRows *rows, int row, int column)
{
	return rows->values[row * rows->ncolumns + column];
}

/* NaN for null. */
extern double pgscale_rows_number(const PgscaleRows *rows, int row, int column);

/*
 * Executes a query that only reads, as the current user.  An error of its own is
 * the result's; a cancel, or what is wrong with the server, is raised.
 */
extern void pgscale_tuning_query(const char *query, PgscaleRows *rows);

#endif							/* PGSCALE_TUNING_RULE_QUERY_H */
