/*-------------------------------------------------------------------------
 *
 * buffer_usage.h
 *	  What shared buffers hold, and how replacement fares.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BUFFER_USAGE_H
#define PGSCALE_BUFFER_USAGE_H

#include "pgscale.h"

extern const PgscaleModule pgscale_bufusage_module;

#endif							/* PGSCALE_BUFFER_USAGE_H */
