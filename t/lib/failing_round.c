/*
 * Preloaded into a server after pgscale: a worker like pgscale's own, whose first round fails within a transaction and whose
 * others look whether anything is left of that.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/lmgr.h"
#include "storage/proc.h"

#include "base/worker.h"

PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);
PGDLLEXPORT void failing_round_main(Datum arg);

static void
fail_or_look(void)
{
	static int	rounds = 0;

	if (rounds++ == 0)
	{
		StartTransactionCommand();
		LockSharedObject(1, 1, 0, ExclusiveLock);
		(void) GetCurrentTransactionId();
		ereport(ERROR, (errmsg("a round fails in its transaction")));
	}
	if (rounds == 2)
	{
		ereport(LOG, (errmsg("after it: %s, identifier %u", IsTransactionState() ? "a transaction" : "no transaction",
							 MyProc->xid)));
		StartTransactionCommand();
		LockSharedObject(1, 1, 0, ExclusiveLock);
		CommitTransactionCommand();
		ereport(LOG, (errmsg("the next one has its transaction")));
	}
	pgscale_worker_wait(1000);
	(void) pgscale_worker_interrupts();
}

static void
failed(void)
{
}

void
failing_round_main(Datum arg)
{
	pgscale_worker_start("FailingRound");
	pgscale_worker_rounds(fail_or_look, failed);
}

void
_PG_init(void)
{
	BackgroundWorker worker = {
		.bgw_name = "failing round",
		.bgw_type = "failing round",
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_function_name = "failing_round_main"
	};

	strlcpy(worker.bgw_library_name, FAILING_ROUND, sizeof(worker.bgw_library_name));
	RegisterBackgroundWorker(&worker);
}
