/*-------------------------------------------------------------------------
 *
 * sampler.h
 *	  The wait-event sampler.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_H
#define PGSCALE_SAMPLER_H

#include "postgres.h"

#include "pgscale.h"

extern const PgscaleModule pgscale_sampler_module;

#endif							/* PGSCALE_SAMPLER_H */
