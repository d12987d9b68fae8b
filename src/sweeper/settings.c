/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  The sweeper's settings.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/guc.h"

#include "base/pg_compat.h"
#include "sweeper/partitions.h"
#include "sweeper/sweeper.h"

PgscaleSweeperSettings pgscale_sweeper_settings = {0};

static const struct config_enum_entry modes[] = {
#if PGSCALE_FREELIST
	{"freelist", PGSCALE_SWEEPER_FREELIST, false},
#endif
	{"window", PGSCALE_SWEEPER_WINDOW, false},
	{NULL, 0, false}
};

static const struct config_enum_entry policies[] = {
	{"clock", PGSCALE_SWEEPER_CLOCK, false},
	{"history", PGSCALE_SWEEPER_HISTORY, false},
	{"adaptive", PGSCALE_SWEEPER_ADAPTIVE, false},
	{NULL, 0, false}
};

bool
pgscale_sweeper_wanted(void)
{
	return pgscale_sweeper_settings.use != PGSCALE_USE_OFF;
}

int
pgscale_sweeper_workers(void)
{
	return Min(pgscale_sweeper_settings.workers, Max(max_worker_processes / 3, 1));
}

void
pgscale_sweeper_define_gucs(void)
{
	PgscaleSweeperSettings *s = &pgscale_sweeper_settings;

	DefineCustomEnumVariable("pgscale.sweeper_mode",
							 "How clean buffers reach the backends.",
							 "\"freelist\", up to PostgreSQL 18, hands them over; \"window\" lets the server's clock hand find them.",
							 &s->mode, PGSCALE_FREELIST ? PGSCALE_SWEEPER_FREELIST : PGSCALE_SWEEPER_WINDOW, modes,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("pgscale.sweeper_policy",
							 "How the sweeper chooses the pages that leave shared buffers.",
							 "\"clock\" as the server does, by usage counts; \"history\" by how often and how long ago a page was used, also before it left; "
							 "\"adaptive\" by the one of these that would have read less.",
							 &s->policy, PGSCALE_SWEEPER_CLOCK, policies,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("pgscale.sweeper",
							 "Keeps clean buffers ready for the backends, and writes neighbouring dirty pages together.",
							 "\"auto\": only while that is of use; \"on\": all the time.",
							 &s->use, PGSCALE_USE_OFF, pgscale_use_options,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sweeper_workers",
							"Number of sweepers; each has writers and a share of the buffers of its own.",
							"Each takes one of max_worker_processes; together they take no more than a third of these.",
							&s->workers, 1, 1, PGSCALE_SWEEPER_MAX_WORKERS,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sweeper_writers",
							"The most writers of each sweeper.",
							"It has 4 while it works, and more while they do not keep up. Each takes one of max_worker_processes meanwhile.",
							&s->writers, PGSCALE_SWEEPER_MAX_WRITERS, 1, PGSCALE_SWEEPER_MAX_WRITERS,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomRealVariable("pgscale.sweeper_high_watermark",
							 "Fraction of the buffers up to which clean ones are made ready.",
							 NULL,
							 &s->high_watermark, 0.05, 0.0001, PGSCALE_SWEEPER_MAX_WATERMARK,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
}
