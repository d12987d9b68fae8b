/*-------------------------------------------------------------------------
 *
 * relocation.h
 *	  Moves indexes and tables to other tablespaces: the feature, and its settings.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_H
#define PGSCALE_RELOCATION_H

#include "pgscale.h"

extern const PgscaleModule pgscale_relocation_module;

/* settings; online/pace.c has those that only it reads */
extern int	pgscale_relocation_workers; /* 0: switched off */
extern int	pgscale_relocation_max_lag; /* MB; -1: whatever it is */
extern int	pgscale_relocation_max_transaction_age; /* s; -1: none */
extern int	pgscale_relocation_switch_timeout;	/* s */

#endif							/* PGSCALE_RELOCATION_H */
