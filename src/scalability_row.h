/*-------------------------------------------------------------------------
 *
 * scalability_row.h
 *	  What a fit looks like in SQL.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SCALABILITY_ROW_H
#define PGSCALE_SCALABILITY_ROW_H

#include "postgres.h"

#include "scalability_fit.h"

/* The columns of the type usl. */
#define PGSCALE_USL_COLUMNS		14

extern void pgscale_usl_row(const PgscaleUsl *usl, Datum *values, bool *nulls);

#endif							/* PGSCALE_SCALABILITY_ROW_H */
