/*-------------------------------------------------------------------------
 *
 * metrics.h
 *	  Metrics for monitoring systems.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_METRICS_H
#define PGSCALE_METRICS_H

#include "pgscale.h"

extern const PgscaleModule pgscale_metrics_module;

#endif							/* PGSCALE_METRICS_H */
