/*-------------------------------------------------------------------------
 *
 * nested_queries.h
 *	  The nested statement that a backend executes.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_NESTED_QUERIES_H
#define PGSCALE_SAMPLER_NESTED_QUERIES_H

#include "postgres.h"

#include "base/processes.h"

extern Size pgscale_sampler_nested_size(void);
extern void pgscale_sampler_nested_startup(void);

/* Puts the hooks in; without this they do not exist. */
extern void pgscale_sampler_nested_install(void);

/* The statement's identifier, or 0 outside a nested one, or without hooks. */
extern int64 pgscale_sampler_nested_queryid(int slot, const PgscaleProc *proc);

#endif							/* PGSCALE_SAMPLER_NESTED_QUERIES_H */
