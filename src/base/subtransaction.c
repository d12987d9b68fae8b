/*-------------------------------------------------------------------------
 *
 * subtransaction.c
 *	  Internal subtransactions: code that may fail without failing its statement.
 *
 * The server leaves it to the caller to end an internal subtransaction.  An error that
 * is raised past its end leaves it open.  At the session's top level, only that
 * subtransaction is then aborted, and the session continues within its parent.  A
 * handler of PL/pgSQL ends it in place of its own, so the transaction of the statement
 * becomes a block that no command commits, and its changes are lost.  So the
 * subtransaction is ended here, whatever the error is, and only then may the error be
 * raised again.
 *
 * Functions that get here must be PARALLEL UNSAFE: a parallel operation cannot begin a
 * subtransaction.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "base/subtransaction.h"

ErrorData *
pgscale_subtransaction_run(void (*function) (void *arg), void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	const uint32 held = InterruptHoldoffCount;
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
		/*
		 * whichever it is, a cancel too: the caller decides, by
		 * pgscale_subtransaction_is_grave()
		 */
		InterruptHoldoffCount = held;	/* the error has let go of them all */
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
