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

#include "miscadmin.h"
#include "tcop/pquery.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"

#include "base/pg_compat.h"
#include "sweeper/shared_state.h"
#include "sweeper/sweeper.h"

PgscaleSweeperSettings pgscale_sweeper_settings = {0};

static const struct config_enum_entry modes[] = {
	{"freelist", PGSCALE_SWEEPER_FREELIST, false},
	{"ahead", PGSCALE_SWEEPER_AHEAD, false},
	{NULL, 0, false}
};

/* Can buffers reach the backends in this mode? */
static bool
sweeper_can_supply(void)
{
	return PGSCALE_FREELIST || pgscale_sweeper_settings.mode != PGSCALE_SWEEPER_FREELIST;
}

bool
pgscale_sweeper_wanted(void)
{
	return pgscale_sweeper_settings.enabled && sweeper_can_supply();
}

PgscaleSweeperReason
pgscale_sweeper_why_off(void)
{
	return pgscale_sweeper_settings.enabled && !sweeper_can_supply() ? PGSCALE_BECAUSE_NO_FREELIST : PGSCALE_BECAUSE_OFF;
}

/*
 * Do the files that are being read name a mode?  Its line may come after that of
 * pgscale.sweeper; then the present mode is not the one that will hold.
 */
static bool
sweeper_mode_in_files(GucSource source)
{
	return source == PGC_S_FILE && !process_shared_preload_libraries_in_progress &&
		(pgscale_compat_find_setting("pgscale.sweeper_mode")->status & GUC_IS_IN_FILE) != 0;
}

/*
 * Warns when the sweeper is switched on and will not run: in the session that
 * does so, and in the postmaster, for the log.  Other processes check the same
 * value at every reload and stay silent; they have no statement then.
 */
static bool
sweeper_check_enabled(bool *newval, void **extra, GucSource source)
{
	if (*newval && !pgscale_sweeper_settings.enabled && !sweeper_can_supply() && (ActivePortal || !IsUnderPostmaster) &&
		!sweeper_mode_in_files(source))
		ereport(WARNING,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("pgscale.sweeper does nothing in mode \"freelist\": PostgreSQL %d has no freelist", PGSCALE_MAJOR_NUMBER),
				 errhint("Set pgscale.sweeper to off. In mode \"ahead\" it works, and gains far less: see doc/sweeper.md.")));
	return true;
}

void
pgscale_sweeper_define_gucs(void)
{
	PgscaleSweeperSettings *s = &pgscale_sweeper_settings;

	/* The first one: the check of pgscale.sweeper asks for it. */
	DefineCustomEnumVariable("pgscale.sweeper_mode",
							 "How clean buffers reach the backends.",
							 "\"freelist\" hands them over, up to PostgreSQL 18; \"ahead\" cleans the buffers "
							 "before the server's clock hand.",
							 &s->mode, PGSCALE_SWEEPER_FREELIST, modes,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("pgscale.sweeper",
							 "Keeps clean buffers ready for the backends, and writes neighbouring dirty pages together.",
							 NULL,
							 &s->enabled, false,
							 PGC_SIGHUP, 0, sweeper_check_enabled, NULL, NULL);
	DefineCustomBoolVariable("pgscale.sweeper_adaptive",
							 "Lets the sweeper work only while it is of use.",
							 "If off, the sweeper works all the time.",
							 &s->adaptive, true,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sweeper_workers",
							"Number of sweepers; each has writers and a share of the buffers of its own.",
							"Each takes one of max_worker_processes.",
							&s->workers, 1, 1, PGSCALE_SWEEPER_MAX_WORKERS,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sweeper_writers",
							"The most writers of each sweeper.",
							"It has 4 while it works, and more while they do not keep up. Each takes one of max_worker_processes meanwhile.",
							&s->writers, PGSCALE_SWEEPER_MAX_WRITERS, 1, PGSCALE_SWEEPER_MAX_WRITERS,
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
							"Maximum number of neighbouring pages to write together.",
							NULL,
							&s->combine_limit, 64, 1, PGSCALE_RUN_MAX,
							PGC_SIGHUP, GUC_UNIT_BLOCKS, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sweeper_writeback_pages",
							"Minimum number of neighbouring pages for which the kernel is asked to begin writing to "
							"disk.",
							"0 never asks it.",
							&s->writeback_pages, 16, 0, PGSCALE_RUN_MAX,
							PGC_SIGHUP, GUC_UNIT_BLOCKS, NULL, NULL, NULL);
}
