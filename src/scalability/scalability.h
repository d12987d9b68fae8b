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

#include "pgscale.h"

extern const PgscaleModule pgscale_scalability_module;

#endif							/* PGSCALE_SCALABILITY_H */
