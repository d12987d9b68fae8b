/*-------------------------------------------------------------------------
 *
 * lwlocks.h
 *	  The feature: which LWLock of a tranche processes wait for.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_LWLOCKS_H
#define PGSCALE_LWLOCKS_H

#include "postgres.h"

#include "pgscale.h"

extern const PgscaleModule pgscale_lwlocks_module;

#endif							/* PGSCALE_LWLOCKS_H */
