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
#include "base/units.h"
#include "sweeper/shared.h"

extern const PgscaleModule pgscale_sweeper_module;

/* settings */

typedef struct PgscaleSweeperSettings
{
	int			use;			/* PgscaleUse */
	int			writers;
	double		high_watermark; /* fraction of shared_buffers */
} PgscaleSweeperSettings;

extern PgscaleSweeperSettings pgscale_sweeper_settings;

extern bool pgscale_sweeper_wanted(void);

/* scan.c: finding buffers that may leave, and making them ready */

/* Once in a process. */
extern void pgscale_sweeper_scan_init(void);

/* The shortest time between two ticks. */
#define PGSCALE_SWEEPER_TICK_NS	(4 * NS_PER_MS)

/* One tick of the sweep.  Were buffers needed since the last one? */
extern bool pgscale_sweeper_scan(void);

/*
 * Instead of it, while the sweep does not work: leaves the buffers to the server, as
 * much of that as a tick has time for.  Is it done?  Then it observes them, if wanted.
 */
extern bool pgscale_sweeper_rest(bool observe);

/* observe.c: one tick of that, after the former.  Are the next ones needed as often as those at work? */
extern bool pgscale_sweeper_observe(void);

/* Has the tick lasted long enough, n being how many buffers it has looked at? */
extern bool pgscale_sweeper_long_enough(int n);

/* sweeper_worker.c: the process */

extern const PgscaleWorker pgscale_sweeper_worker;

/* sweeper_stats.c: a choice in words */
extern const char *pgscale_sweeper_describe_choice(const PgscaleSweeperPolicyReport *report, int choice);

#endif							/* PGSCALE_SWEEPER_H */
