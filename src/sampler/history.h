/*-------------------------------------------------------------------------
 *
 * history.h
 *	  The latest samples one by one, in a ring.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_HISTORY_H
#define PGSCALE_SAMPLER_HISTORY_H

#include "postgres.h"

#include "base/processes.h"

extern Size pgscale_history_size(int capacity);
extern void pgscale_history_startup(int capacity);

/*
 * The writer's side: one process only.  The samples of a tick lie between
 * begin and end; max_samples bounds how many they will be.
 */
extern void pgscale_history_begin(TimestampTz sampled_at, int max_samples);
extern void pgscale_history_add(const PgscaleProc *proc, PgscaleProcKind kind, int64 queryid);
extern void pgscale_history_end(void);
extern void pgscale_history_reset(void);

#endif							/* PGSCALE_SAMPLER_HISTORY_H */
