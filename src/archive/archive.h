/*-------------------------------------------------------------------------
 *
 * archive.h
 *	  What was, on disk: rollups of each minute in tables of one database.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_ARCHIVE_H
#define PGSCALE_ARCHIVE_H

#include "pgscale.h"

extern const PgscaleModule pgscale_archive_module;

/* Between two rows, usually. */
#define PGSCALE_ARCHIVE_PERIOD_MS	60000

/* settings */
extern char *pgscale_archive_database;
extern int	pgscale_archive_retention;
extern int	pgscale_archive_detail;
extern int	pgscale_archive_top;

#endif							/* PGSCALE_ARCHIVE_H */
