/*-------------------------------------------------------------------------
 *
 * sql.h
 *	  Queries, and their rows copied.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_SQL_H
#define PGSCALE_BASE_SQL_H

#include "postgres.h"

/* A result, all as text; in the memory context of the caller. */
typedef struct PgscaleRows
{
	int			nrows;
	int			ncolumns;
	char	  **values;			/* row after row; NULL is null */
	const char *error;			/* of pgscale_sql_try(): the reason why there
								 * is no result, or NULL */
} PgscaleRows;

static inline const char *
pgscale_rows_text(const PgscaleRows *rows, int row, int column)
{
	return rows->values[row * rows->ncolumns + column];
}

/* NaN for null. */
extern double pgscale_sql_number(const PgscaleRows *rows, int row, int column);

/*
 * Executes a query that only reads, as the current user, with the active snapshot and with names of pg_catalog.  An error
 * of its own is raised.
 */
extern void pgscale_sql_query(const char *query, int nargs, const Oid *types, const Datum *values, PgscaleRows *rows);

/*
 * Executes a query that only reads, as the current user, with a new snapshot.  An error of its own is
 * the result's; a cancel, or what is wrong with the server, is raised.
 */
extern void pgscale_sql_try(const char *query, PgscaleRows *rows);

/*
 * Until AtEOXact_GUC(true, what it returns) names and operators are looked up in
 * pg_catalog, whatever search_path the caller has: a schema that others may
 * create in could have an operator that fits better than the one meant.
 */
extern int	pgscale_sql_names(void);

/*
 * Until AtEOXact_GUC(true, what it returns) a lock is waited for PGSCALE_LOCK_WAIT_MS at most, or for the
 * caller's lock_timeout if that is shorter.  An error ends it, too.
 */
#define PGSCALE_LOCK_WAIT_MS	500

extern int	pgscale_sql_short_locks(void);

/* Callback of an error context: if it is that such a wait ended, adds a hint. */
extern void pgscale_sql_locked_hint(void *arg);

#endif							/* PGSCALE_BASE_SQL_H */
