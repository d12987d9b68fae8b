/*-------------------------------------------------------------------------
 *
 * deltas.h
 *	  Deltas of the server's counters since the latest row.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_ARCHIVE_DELTAS_H
#define PGSCALE_ARCHIVE_DELTAS_H

#include "postgres.h"

#include "datatype/timestamp.h"

/*
 * Call it first in a round.  Returns the start of the deltas, by the present clock;
 * until, if there is no usable baseline.
 */
extern void pgscale_archive_deltas_begin(TimestampTz *since, TimestampTz *until);

/* What the round has found is the baseline from now on. */
extern void pgscale_archive_deltas_keep(void);

#endif							/* PGSCALE_ARCHIVE_DELTAS_H */
