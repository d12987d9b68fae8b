/*-------------------------------------------------------------------------
 *
 * query_waits.h
 *	  Checks whether waits can be attributed to queries.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_QUERY_WAITS_H
#define PGSCALE_SAMPLER_QUERY_WAITS_H

#include "postgres.h"

#include "pgscale.h"

extern const PgscaleModule pgscale_query_waits_module;

#endif							/* PGSCALE_SAMPLER_QUERY_WAITS_H */
