/*-------------------------------------------------------------------------
 *
 * round_launcher.h
 *	  The process that starts a round of the archive each minute.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_ARCHIVE_ROUND_LAUNCHER_H
#define PGSCALE_ARCHIVE_ROUND_LAUNCHER_H

#include "pgscale.h"

extern const PgscaleWorker pgscale_archive_launcher;

#endif							/* PGSCALE_ARCHIVE_ROUND_LAUNCHER_H */
