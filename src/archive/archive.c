/*-------------------------------------------------------------------------
 *
 * archive.c
 *	  What was, on disk: rollups of each minute in tables of one database.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "utils/guc.h"

#include "archive/archive.h"
#include "base/pg_compat.h"

char	   *pgscale_archive_database;
int			pgscale_archive_period;
int			pgscale_archive_retention;
int			pgscale_archive_detail;
int			pgscale_archive_top;
int			pgscale_archive_texts;

static void
archive_define_gucs(void)
{
	DefineCustomStringVariable("pgscale.archive_database",
							   "Database in which the archive is kept.",
							   "Empty: nothing is archived. The extension must be installed there.",
							   &pgscale_archive_database, "",
							   PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.archive_period",
							"Time between two rows of the archive.",
							NULL,
							&pgscale_archive_period, 60, 1, 3600,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.archive_retention",
							"Days after which the archive drops what it has.",
							NULL,
							&pgscale_archive_retention, 35, 1, 3650,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.archive_detail",
							"Days after which the archive rolls minutes up to hours.",
							NULL,
							&pgscale_archive_detail, 7, 1, 3650,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.archive_top",
							"How many waits the archive tells apart in a minute.",
							"The longest; the rest is one row.",
							&pgscale_archive_top, 200, 1, 1000,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.archive_texts",
							"How many texts of queries the archive keeps of a day.",
							NULL,
							&pgscale_archive_texts, 1000, 0, 100000,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
}

static void
archive_health(PgscaleHealth *health)
{
	if (!pgscale_health_preloaded(health, NULL, false))
		return;
	health->state = PGSCALE_HEALTH_OFF;
	health->reason = "no database is named to keep it in";
	health->action = "set pgscale.archive_database to one that has the extension, and reload";
}

const PgscaleModule pgscale_archive_module = {
	.name = "archive",
	.define_gucs = archive_define_gucs,
	.health = archive_health,
};
