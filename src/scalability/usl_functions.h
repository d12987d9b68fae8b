/*-------------------------------------------------------------------------
 *
 * usl_functions.h
 *	  What a fit looks like in SQL.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SCALABILITY_USL_FUNCTIONS_H
#define PGSCALE_SCALABILITY_USL_FUNCTIONS_H

#include "postgres.h"

#include "scalability/usl_fit.h"

/* The columns of the type usl. */
#define PGSCALE_USL_COLUMNS		14

extern void pgscale_usl_row(const PgscaleUsl *usl, Datum *values, bool *nulls);

#endif							/* PGSCALE_SCALABILITY_USL_FUNCTIONS_H */
