/*-------------------------------------------------------------------------
 *
 * statement_texts.h
 *	  Texts of statements that ran for more than a second.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_STATEMENT_TEXTS_H
#define PGSCALE_SAMPLER_STATEMENT_TEXTS_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "sampler/samples.h"

extern Size pgscale_sampler_texts_size(void);
extern void pgscale_sampler_texts_startup(void);

/* In the sampler: before the first tick, and in a reset. */
extern void pgscale_sampler_texts_attach(void);
extern void pgscale_sampler_texts_reset(void);

/* Around a tick; in it, of each session that does not idle.  Does something once a second. */
extern void pgscale_sampler_texts_begin(int64 now, TimestampTz wall);
extern void pgscale_sampler_texts_add(const PgscaleSamplerTickSample *sample);
extern void pgscale_sampler_texts_end(void);

#endif							/* PGSCALE_SAMPLER_STATEMENT_TEXTS_H */
