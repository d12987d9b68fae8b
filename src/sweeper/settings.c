/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  The sweeper's settings.
 *
 * The server itself refuses what is out of range, with the range.  Watermarks
 * that are in range but in the wrong order cannot be refused: each may be set
 * before the other.  The sweeper puts them in order and warns.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/guc.h"

#include "base/pg_compat.h"
#include "sweeper/shared_state.h"
#include "sweeper/sweeper.h"

PgscaleSweeperSettings pgscale_sweeper_settings = {0};

/* The first one is the default; the others are those that go without a freelist, too. */
static const struct config_enum_entry modes[] = {
	{"freelist", PGSCALE_SWEEPER_FREELIST, false},
	{"ahead", PGSCALE_SWEEPER_AHEAD, false},
	{NULL, 0, false}
};

void
pgscale_sweeper_define_gucs(void)
{
	PgscaleSweeperSettings *s = &pgscale_sweeper_settings;
	const struct config_enum_entry *possible = PGSCALE_FREELIST ? modes : modes + 1;

	DefineCustomBoolVariable("pgscale.sweeper",
							 "Keeps clean buffers ready for the backends, and writes neighbouring dirty pages together.",
							 NULL,
							 &s->enabled, false,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("pgscale.sweeper_adaptive",
							 "Lets the sweeper work only while it is of use.",
							 "Off, it works all the time.",
							 &s->adaptive, true,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sweeper_workers",
							"Number of sweepers; each has writers and a share of the buffers of its own.",
							"Each takes one of max_worker_processes.",
							&s->workers, 1, 1, PGSCALE_SWEEPER_MAX_WORKERS,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sweeper_writers",
							"Number of writers of each sweeper, while it works.",
							"Each takes one of max_worker_processes meanwhile.",
							&s->writers, 4, 1, PGSCALE_SWEEPER_MAX_WRITERS,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("pgscale.sweeper_mode",
							 "How clean buffers reach the backends.",
							 "\"freelist\" hands them over; \"ahead\" cleans what lies before the server's clock hand.",
							 &s->mode, possible->val, possible,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomRealVariable("pgscale.sweeper_low_watermark",
							 "Fraction of the buffers below which clean ones are made ready.",
							 NULL,
							 &s->low_watermark, 0.02, 0.0001, PGSCALE_SWEEPER_MAX_WATERMARK,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomRealVariable("pgscale.sweeper_high_watermark",
							 "Fraction of the buffers up to which clean ones are made ready.",
							 NULL,
							 &s->high_watermark, 0.05, 0.0001, PGSCALE_SWEEPER_MAX_WATERMARK,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sweeper_combine_limit",
							"The most neighbouring pages to write together.",
							NULL,
							&s->combine_limit, 64, 1, PGSCALE_RUN_MAX,
							PGC_SIGHUP, GUC_UNIT_BLOCKS, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sweeper_writeback_pages",
							"The least neighbouring pages for which the kernel is asked to begin writing to disk.",
							"0 never asks it.",
							&s->writeback_pages, 16, 0, PGSCALE_RUN_MAX,
							PGC_SIGHUP, GUC_UNIT_BLOCKS, NULL, NULL, NULL);
}
