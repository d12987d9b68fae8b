/*-------------------------------------------------------------------------
 *
 * launcher.h
 *	  The process that starts a round of the archive each minute.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_ARCHIVE_LAUNCHER_H
#define PGSCALE_ARCHIVE_LAUNCHER_H

extern void pgscale_archive_launcher_register(void);

#endif							/* PGSCALE_ARCHIVE_LAUNCHER_H */
