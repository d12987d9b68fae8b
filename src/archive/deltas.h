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
 * First thing in a round: since when the counts have grown, by the present clock; until if
 * there is no baseline that is of use.
 */
extern void pgscale_archive_deltas_begin(TimestampTz *since, TimestampTz *until);

/* What the round has found is the baseline from now on. */
extern void pgscale_archive_deltas_keep(void);

#endif							/* PGSCALE_ARCHIVE_DELTAS_H */
