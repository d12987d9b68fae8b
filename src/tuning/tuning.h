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

/* The kind of an event by its type and name; -1 if it is not a wait of a session at work. */
extern int	pgscale_tuning_wait_kind(const char *type, const char *name);

/*
 * A window's length of SQL, in milliseconds; an error if it is null or not
 * positive.
 */
extern int64 pgscale_tuning_duration_ms(FunctionCallInfo fcinfo, int argument);

#endif							/* PGSCALE_TUNING_H */
