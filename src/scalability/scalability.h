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

#include "base/row_builder.h"
#include "pgscale.h"
#include "scalability/usl_fit.h"

extern const PgscaleModule pgscale_scalability_module;

/* usl_functions.c: a fit as a row */

/* Adds the columns of the type usl. */
extern void pgscale_scalability_usl_row(PgscaleRow *row, const PgscaleScalabilityUsl *usl);

#endif							/* PGSCALE_SCALABILITY_H */
