/*-------------------------------------------------------------------------
 *
 * scalability.h
 *	  The Universal Scalability Law: of given figures, and of this server.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SCALABILITY_H
#define PGSCALE_SCALABILITY_H

#include "postgres.h"

#include "pgscale.h"
#include "scalability/usl_fit.h"

extern const PgscaleModule pgscale_scalability_module;

/* usl_functions.c: what a fit looks like in SQL */

/* The columns of the type usl. */
#define PGSCALE_USL_COLUMNS		14

extern void pgscale_scalability_usl_row(const PgscaleScalabilityUsl *usl, Datum *values, bool *nulls);

#endif							/* PGSCALE_SCALABILITY_H */
