/*-------------------------------------------------------------------------
 *
 * os_cache.h
 *	  The feature: what the kernel's page cache holds of each relation.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_OS_CACHE_H
#define PGSCALE_OS_CACHE_H

#include "pgscale.h"

extern const PgscaleModule pgscale_oscache_module;

#endif							/* PGSCALE_OS_CACHE_H */
