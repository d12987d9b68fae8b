/*-------------------------------------------------------------------------
 *
 * launcher.h
 *	  The process that starts workers where there is something to relocate.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_LAUNCHER_H
#define PGSCALE_RELOCATION_LAUNCHER_H

extern void pgscale_relocation_launcher_register(void);

#endif							/* PGSCALE_RELOCATION_LAUNCHER_H */
