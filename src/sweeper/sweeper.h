/*-------------------------------------------------------------------------
 *
 * sweeper.h
 *	  The sweeper.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SWEEPER_H
#define PGSCALE_SWEEPER_H

#include "pgscale.h"

extern const PgscaleModule pgscale_sweeper_module;

#endif							/* PGSCALE_SWEEPER_H */
