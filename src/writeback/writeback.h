/*-------------------------------------------------------------------------
 *
 * writeback.h
 *	  Feature: keeps small what the kernel has yet to write for this cluster.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_WRITEBACK_H
#define PGSCALE_WRITEBACK_H

#include "pgscale.h"

extern const PgscaleModule pgscale_writeback_module;

#endif							/* PGSCALE_WRITEBACK_H */
