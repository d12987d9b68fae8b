/*-------------------------------------------------------------------------
 *
 * tuning.h
 *	  Evidence, advice, and the results of changes.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_TUNING_H
#define PGSCALE_TUNING_H

#include "fmgr.h"

#include "pgscale.h"

extern const PgscaleModule pgscale_tuning_module;

/*
 * A window's length of SQL, in milliseconds; an error if it is null or not
 * positive.
 */
extern int64 pgscale_tuning_duration_ms(FunctionCallInfo fcinfo, int argument);

/* setting_times.c: since when settings have their values */

extern const PgscaleArea pgscale_tuning_settings_area;


/* The writer's side: the sampler's process. */
extern void pgscale_tuning_settings_watch(TimestampTz now);

/*
 * The time when a setting got its present value: earlier evidence does not apply to it.
 * 0 if it has had the value since the server's start, as all evidence.
 */
extern TimestampTz pgscale_tuning_set_at(const char *setting);

#endif							/* PGSCALE_TUNING_H */
