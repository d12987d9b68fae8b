/*-------------------------------------------------------------------------
 *
 * verify.h
 *	  Was a change for the better?
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_TUNING_CHANGES_VERIFY_H
#define PGSCALE_TUNING_CHANGES_VERIFY_H

#include "postgres.h"

#include "tuning/changes/journal.h"

/*
 * Has the change remember what its setting is judged by: the evidence itself is
 * lost when the server restarts.
 */
extern void pgscale_verify_remember(PgscaleChange *change);

#endif							/* PGSCALE_TUNING_CHANGES_VERIFY_H */
