/*-------------------------------------------------------------------------
 *
 * numa.h
 *	  The feature: where shared memory lies.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_NUMA_H
#define PGSCALE_NUMA_H

#include "pgscale.h"

extern const PgscaleModule pgscale_numa_module;

#endif							/* PGSCALE_NUMA_H */
