/*-------------------------------------------------------------------------
 *
 * relocate_text.h
 *	  One text from the catalogs.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATE_TEXT_H
#define PGSCALE_RELOCATE_TEXT_H

#include "postgres.h"

/*
 * The first column of a query's first row, as text, or NULL if there is none.
 * Its parameters are $1, an oid, and $2, a bigint; it need not use them.
 */
extern char *pgscale_relocation_text(const char *query, Oid oid, int64 number);

#endif							/* PGSCALE_RELOCATE_TEXT_H */
