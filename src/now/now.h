/*-------------------------------------------------------------------------
 *
 * now.h
 *	  What is wrong with the server now.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_NOW_H
#define PGSCALE_NOW_H

#include "pgscale.h"

extern const PgscaleModule pgscale_now_module;

/* now_counts.c: what the sampler has seen of late, and in the hour before */

extern Size pgscale_now_counts_size(void);
extern void pgscale_now_counts_startup(void);
extern void pgscale_now_counts_observe(const PgscaleObservation *observation);

#endif							/* PGSCALE_NOW_H */
