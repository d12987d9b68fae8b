/*-------------------------------------------------------------------------
 *
 * subtransaction.c
 *	  What may fail without failing the statement it is part of.
 *
 * The server leaves it to whoever begins an internal subtransaction to end it.
 * Raised past its end, an error leaves it open: to the session's top level, which
 * then aborts that subtransaction alone and goes on within its parent; or to a
 * handler of PL/pgSQL, which ends it in place of its own, so that the statement's
 * transaction becomes a block that nobody commits, and what is committed in it is
 * lost.  So the subtransaction ends here, whatever the error is, and only then
 * may the error be raised again.
 *
 * Functions that get here must be PARALLEL UNSAFE: within a parallel operation no
 * subtransaction can begin.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "base/subtransaction.h"

ErrorData *
pgscale_subtransaction_run(void (*function) (void *arg), void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		MemoryContextSwitchTo(context);
		function(arg);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return error;
}

bool
pgscale_subtransaction_is_grave(const ErrorData *error)
{
	const int	category = ERRCODE_TO_CATEGORY(error->sqlerrcode);

	return category == ERRCODE_OPERATOR_INTERVENTION || category == ERRCODE_INSUFFICIENT_RESOURCES ||
		category == ERRCODE_SYSTEM_ERROR || category == ERRCODE_INTERNAL_ERROR ||
		category == ERRCODE_TRANSACTION_ROLLBACK;
}
