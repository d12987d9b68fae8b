/*-------------------------------------------------------------------------
 *
 * catalog_text.h
 *	  One text from the catalogs.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_CATALOG_TEXT_H
#define PGSCALE_RELOCATION_CATALOG_TEXT_H

#include "postgres.h"

/*
 * The first column of a query's first row, as text, or NULL if there is none.
 * Its parameters are $1, an oid, and $2, a bigint; it need not use them.
 */
extern char *pgscale_relocation_text(const char *query, Oid oid, int64 number);

/*
 * Until AtEOXact_GUC(true, what it returns) names and operators are looked up in
 * pg_catalog, whatever search_path the caller has: a schema that others may
 * create in could have an operator that fits better than the one meant.
 */
extern int	pgscale_relocation_names(void);

#endif							/* PGSCALE_RELOCATION_CATALOG_TEXT_H */
