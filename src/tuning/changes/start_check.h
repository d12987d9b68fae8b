/*-------------------------------------------------------------------------
 *
 * start_check.h
 *	  Would the server start with a setting changed?
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_TUNING_CHANGES_START_CHECK_H
#define PGSCALE_TUNING_CHANGES_START_CHECK_H

#include "postgres.h"

/*
 * Raises an error if it is known that it would not, or not live, once the line has
 * this value, NULL: none.  force: the statement that sets it all the same, for the
 * hint.  A notice if it is for standbys to follow.
 */
extern void pgscale_start_check(const char *setting, const char *value, const char *force);

#endif							/* PGSCALE_TUNING_CHANGES_START_CHECK_H */
