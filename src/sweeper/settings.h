/*-------------------------------------------------------------------------
 *
 * settings.h
 *	  The sweeper's settings.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SWEEPER_SETTINGS_H
#define PGSCALE_SWEEPER_SETTINGS_H

#include "postgres.h"

typedef struct PgscaleSweeperSettings
{
	bool		enabled;
	bool		adaptive;
	int			workers;
	int			writers;		/* of each worker */
	int			mode;			/* PgscaleSweeperMode */
	double		low_watermark;	/* per cent of shared_buffers */
	double		high_watermark;
	int			combine_limit;	/* pages */
	int			writeback_pages;	/* 0: never */
} PgscaleSweeperSettings;

extern PgscaleSweeperSettings pgscale_sweeper_settings;

extern void pgscale_sweeper_define_gucs(void);

#endif							/* PGSCALE_SWEEPER_SETTINGS_H */
