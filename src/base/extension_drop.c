/*-------------------------------------------------------------------------
 *
 * extension_drop.c
 *	  Notices before the extension is dropped.
 *
 * They come from the hook for utility statements; each of those except DROP pays for
 * one comparison.  An event trigger would need the library whenever any extension is
 * dropped, even after its file was removed.  The object access hook is called for each
 * function of a query, and only after the tables are gone.  DROP OWNED and DROP
 * DATABASE give no notice.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"

#include "base/extension_drop.h"
#include "base/subtransaction.h"

#define TELLERS	4

static void (*tellers[TELLERS]) (void);
static int	ntellers = 0;
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

static void
call_teller(void *teller)
{
	tellers[*(int *) teller] ();
}

static void
tell_all(void)
{
	for (int i = 0; i < ntellers; i++)
	{
		ErrorData  *error = pgscale_subtransaction_run(call_teller, &i);

		if (error && pgscale_subtransaction_is_grave(error))
			ReThrowError(error);

		/*
		 * such as of another version's tables, which must not keep it from
		 * being dropped
		 */
		if (error)
			ereport(WARNING,
					(errcode(error->sqlerrcode),
					 errmsg("part of what DROP EXTENSION pgscale discards is not known: %s", error->message),
					 errhint("To look at it first, ROLLBACK: see \"Keep archive and journal\" in doc/operations.md.")));
	}
}

static void
tell_ProcessUtility(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree, ProcessUtilityContext context,
					ParamListInfo params, QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc)
{
	/*
	 * Only superusers can drop it; the server raises the error for other
	 * roles.
	 */
	if (IsA(pstmt->utilityStmt, DropStmt) && drops_extension((DropStmt *) pstmt->utilityStmt) && superuser())
		tell_all();
	if (prev_ProcessUtility)
		prev_ProcessUtility(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
}

void
pgscale_extension_drop_tell(void (*tell) (void))
{
	Assert(ntellers < TELLERS);
	if (ntellers == 0)
	{
		prev_ProcessUtility = ProcessUtility_hook;
		ProcessUtility_hook = tell_ProcessUtility;
	}
	tellers[ntellers++] = tell;
}
