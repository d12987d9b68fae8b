/*-------------------------------------------------------------------------
 *
 * worker_types.h
 *	  The type of a background worker, as a number.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_WORKER_TYPES_H
#define PGSCALE_SAMPLER_WORKER_TYPES_H

#include "postgres.h"

#include "postmaster/bgworker.h"

#include "base/processes.h"

typedef char PgscaleSamplerTypeName[BGW_MAXLEN];

/*
 * The kind of the background workers of a type.  In the sampler, or before there
 * is one.  The server's own kind for all of them, if there are too many types.
 */
extern PgscaleProcKind pgscale_sampler_type_kind(const char *name);

/*
 * The kind of a running background worker, by its pid.  Returns false if it is unknown
 * at this moment.  Call it in the sampler.
 */
extern bool pgscale_sampler_type_of_worker(int pid, PgscaleProcKind *kind);

/* How any kind is called, as in pg_stat_activity.backend_type. */
extern const char *pgscale_sampler_type_name(PgscaleProcKind kind);

/* The types that are known: kinds PGSCALE_PROC_FIRST_TYPE and on. */
extern int	pgscale_sampler_types(const PgscaleSamplerTypeName * *names);

#endif							/* PGSCALE_SAMPLER_WORKER_TYPES_H */
