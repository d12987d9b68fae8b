/*-------------------------------------------------------------------------
 *
 * wait_kinds.h
 *	  The kind of each wait event.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_TUNING_WAIT_KINDS_H
#define PGSCALE_TUNING_WAIT_KINDS_H

#include "postgres.h"

#include "tuning/evidence.h"

/* The kind of an event by its type and name; -1 if it is not a wait of a session at work. */
extern int	pgscale_tuning_wait_kind(const char *type, const char *name);

#endif							/* PGSCALE_TUNING_WAIT_KINDS_H */
