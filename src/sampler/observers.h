/*-------------------------------------------------------------------------
 *
 * observers.h
 *	  Notifies other features once a second of the sampler's findings.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_OBSERVERS_H
#define PGSCALE_SAMPLER_OBSERVERS_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "sampler/samples.h"

/* In the sampler: first, and when it has not looked for a while. */
extern void pgscale_sampler_observe_begin(void);

/* A sample of a session; a quiet one's need not be shown again. */
extern void pgscale_sampler_observe_sample(const PgscaleSamplerTickSample *sample);

/* The end of a tick of that length: notifies the others when a second is over. */
extern void pgscale_sampler_observe_tick(TimestampTz wall, int64 ns);

#endif							/* PGSCALE_SAMPLER_OBSERVERS_H */
