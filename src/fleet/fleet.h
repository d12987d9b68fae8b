/*-------------------------------------------------------------------------
 *
 * fleet.h
 *	  Which server this is, and what its fellows say.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_FLEET_H
#define PGSCALE_FLEET_H

#include "pgscale.h"

extern const PgscaleModule pgscale_fleet_module;

#endif							/* PGSCALE_FLEET_H */
