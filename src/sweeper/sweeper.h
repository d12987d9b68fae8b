/*-------------------------------------------------------------------------
 *
 * sweeper.h
 *	  The sweeper.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SWEEPER_H
#define PGSCALE_SWEEPER_H

#include "postgres.h"

#include "pgscale.h"
#include "sweeper/shared_state.h"

extern const PgscaleModule pgscale_sweeper_module;

/* settings.c */

typedef struct PgscaleSweeperSettings
{
	bool		enabled;
	bool		adaptive;
	int			workers;
	int			writers;		/* of each worker */
	int			mode;			/* PgscaleSweeperMode */
	double		low_watermark;	/* fraction of shared_buffers */
	double		high_watermark;
	int			combine_limit;	/* pages */
	int			writeback_pages;	/* 0: never */
} PgscaleSweeperSettings;

extern PgscaleSweeperSettings pgscale_sweeper_settings;

extern void pgscale_sweeper_define_gucs(void);

/* Is it on, in a mode in which it can supply on this major? */
extern bool pgscale_sweeper_wanted(void);

/* Why it is off where it is not wanted. */
extern PgscaleSweeperReason pgscale_sweeper_why_off(void);

/* scan.c: finding buffers that may leave, and making them ready */

/* Once in a process. */
extern void pgscale_sweeper_scan_init(const PgscaleSweeperShare *share);

/* One tick of the sweep.  Were buffers needed since the last one? */
extern bool pgscale_sweeper_scan(PgscaleSweeperShare *share);

/* Instead of it, while the sweep does not work. */
extern void pgscale_sweeper_rest(PgscaleSweeperShare *share);

#endif							/* PGSCALE_SWEEPER_H */
