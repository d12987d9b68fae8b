/*-------------------------------------------------------------------------
 *
 * bufusage.h
 *	  What shared buffers hold, and how replacement fares.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BUFUSAGE_H
#define PGSCALE_BUFUSAGE_H

#include "pgscale.h"

extern const PgscaleModule pgscale_bufusage_module;

#endif							/* PGSCALE_BUFUSAGE_H */
