/*-------------------------------------------------------------------------
 *
 * archive_drop_notice.c
 *	  A notice before the extension is dropped: the archive goes with it.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/spi.h"

#include "archive/archive.h"
#include "base/extension_drop.h"
#include "base/extension_table.h"

static const PgscaleExtensionTable minutes = {"archive_minute", "archive"};

static void
archive_tell_lost(void)
{
	PgscaleParameters none = {0};
	Oid			owner;
	char	   *days;

	if (!OidIsValid(pgscale_table_find(&minutes, &owner)))
		return;
	pgscale_table_execute(&minutes, "SELECT to_char(min(at) AT TIME ZONE 'UTC', 'YYYY-MM-DD') ||"
						  " to_char(max(at) AT TIME ZONE 'UTC', '\" to \"YYYY-MM-DD') FROM pgscale_internal.archive_minute", &none, true);
	days = pgscale_table_text(0, 1);
	if (days)
		ereport(NOTICE,
				(errmsg("the archive from %s is dropped", days),
				 errhint("To keep it, ROLLBACK, and CREATE TABLE kept_minutes AS TABLE pgscale_internal.archive_minute;"
						 " \"Keep archive and journal\" in doc/operations.md has the rest.")));
	SPI_finish();
}

void
pgscale_archive_drop_notice_install(void)
{
	pgscale_extension_drop_tell(archive_tell_lost);
}
