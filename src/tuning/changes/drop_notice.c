/*-------------------------------------------------------------------------
 *
 * drop_notice.c
 *	  Tells what goes with the journal of changes when the extension is dropped.
 *
 * The settings stay as they are and the way back is lost, so a notice says so
 * before.  It comes from the hook of utility statements, which are no queries: of
 * all others but DROP it costs one comparison.  An event trigger would have to
 * find the library whenever any extension is dropped, even once its file is gone;
 * the object access hook is called for each function that a query uses, and comes
 * when the table is gone.  DROP OWNED and DROP DATABASE are not told.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"

#include "base/own_table.h"
#include "tuning/changes/changes.h"
#include "tuning/changes/journal.h"

static const PgscaleOwnTable journal = {"tuning_change", "tuning journal"};

static ProcessUtility_hook_type prev_ProcessUtility = NULL;

static bool
drops_extension(const DropStmt *statement)
{
	ListCell   *cell;

	if (statement->removeType == OBJECT_EXTENSION)
		foreach(cell, statement->objects)
			if (strcmp(strVal(lfirst(cell)), "pgscale") == 0)
			return true;
	return false;
}

/* Others than superusers cannot drop it; them the server will tell so. */
static void
tell_lost(void)
{
	Oid			owner;
	int			in_force;

	if (!superuser() || !OidIsValid(pgscale_own_table(&journal, &owner)))
		return;
	in_force = pgscale_tuning_journal_in_force();
	if (in_force > 0)
		ereport(NOTICE,
				(errmsg_plural("%d setting keeps what pgscale has changed it to, and the journal that could revert it is dropped",
							   "%d settings keep what pgscale has changed them to, and the journal that could revert them is dropped",
							   in_force, in_force),
				 errhint("To have them reverted, ROLLBACK, or create it again and use pgscale.set();"
						 " \"postgresql.auto.conf\" has their lines.")));
}

static void
tell_ProcessUtility(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree, ProcessUtilityContext context,
					ParamListInfo params, QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc)
{
	if (IsA(pstmt->utilityStmt, DropStmt) && drops_extension((DropStmt *) pstmt->utilityStmt))
		tell_lost();
	if (prev_ProcessUtility)
		prev_ProcessUtility(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
}

void
pgscale_tuning_drop_notice_install(void)
{
	prev_ProcessUtility = ProcessUtility_hook;
	ProcessUtility_hook = tell_ProcessUtility;
}
