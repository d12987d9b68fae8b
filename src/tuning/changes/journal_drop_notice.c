/*-------------------------------------------------------------------------
 *
 * journal_drop_notice.c
 *	  A notice before the extension is dropped: the journal of changes goes with it.
 *
 * The settings keep their values, and the journal that could revert them is lost.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/extension_drop.h"
#include "base/extension_table.h"
#include "tuning/changes/changes.h"
#include "tuning/changes/journal.h"

static const PgscaleExtensionTable journal = {"tuning_change", "tuning journal"};

static void
tuning_tell_lost(void)
{
	Oid			owner;
	int			in_force;

	if (!OidIsValid(pgscale_table_find(&journal, &owner)))
		return;
	in_force = pgscale_tuning_journal_in_force();
	if (in_force > 0)
		ereport(NOTICE,
				(errmsg_plural("%d setting keeps its changed value, and the journal that could revert it is dropped",
							   "%d settings keep their changed values, and the journal that could revert them is "
							   "dropped",
							   in_force, in_force),
				 errhint("To revert them or to keep the journal, ROLLBACK: see \"Keep archive and journal\" in doc/operations.md."
						 " \"postgresql.auto.conf\" has their lines.")));
}

void
pgscale_tuning_drop_notice_install(void)
{
	pgscale_extension_drop_tell(tuning_tell_lost);
}
