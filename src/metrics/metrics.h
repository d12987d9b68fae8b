/*-------------------------------------------------------------------------
 *
 * metrics.h
 *	  What monitoring systems scrape.
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
