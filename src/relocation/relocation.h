/*-------------------------------------------------------------------------
 *
 * relocation.h
 *	  Moves indexes and tables to other tablespaces.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_H
#define PGSCALE_RELOCATION_H

#include "pgscale.h"

extern const PgscaleModule pgscale_relocate_module;

/* settings */
extern bool pgscale_relocation_enabled;
extern int	pgscale_relocation_workers;
extern int	pgscale_relocation_max_lag; /* MB; -1: whatever it is */
extern int	pgscale_relocation_max_transaction_age; /* s; -1: likewise */
extern int	pgscale_relocation_attempts;

#endif							/* PGSCALE_RELOCATION_H */
