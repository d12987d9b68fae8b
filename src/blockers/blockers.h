/*-------------------------------------------------------------------------
 *
 * blockers.h
 *	  The feature: root blockers of lock waits.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BLOCKERS_H
#define PGSCALE_BLOCKERS_H

#include "pgscale.h"

extern const PgscaleModule pgscale_blockers_module;

struct PgscaleLockWaits;

/*
 * behind.c: for each node of the graph, how many wait for it, directly or behind others
 * that do, and whether it is one of those itself.
 */
extern void pgscale_blockers_count_behind(const struct PgscaleLockWaits *waits, int *behind, bool *cycle);

/* The number of nodes behind one node: much less work than of each. */
extern int	pgscale_blockers_count_behind_one(const struct PgscaleLockWaits *waits, int node);

#endif							/* PGSCALE_BLOCKERS_H */
