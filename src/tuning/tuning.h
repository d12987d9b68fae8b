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

#endif							/* PGSCALE_TUNING_H */
