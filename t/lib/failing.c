/*
 * Preloaded into a server after pgscale: logs what two observers of the sampler are told, with the time that sessions
 * have slept, and has one fail while a setting says so. And a worker like pgscale's own, whose first round fails within
 * a transaction and whose second one looks whether anything is left of that.
 */
#include "postgres.h"

#include <sys/mman.h>
#include <unistd.h>

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/guc.h"

#include "base/evidence.h"
#include "base/worker.h"
#include "pgscale.h"

PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);
PGDLLEXPORT void failing_round_main(Datum arg);

static char *failing = NULL;
static PgscaleModule wrapped[2];
static const PgscaleModule *original[2];

/* The class of waits that PgSleep is of, and the others that are no time on CPU. */
static void
add_wait(void *arg, uint32 wait_event, uint64 ns)
{
	uint64	   *sums = arg;

	if (wait_event >> 24 != 0)
		sums[wait_event >> 24 == 0x09 ? 0 : 1] += ns;
}

static void
observe(int i, const PgscaleObservation *observation)
{
	uint64		sums[2] = {0};

	observation->waits(add_wait, sums);
	ereport(LOG, (errmsg("observer %s is told of %d ms, %s, %.3f active, %d ms of sleep, %d ms of other waits", original[i]->name,
						 (int) (observation->ns / 1000000), observation->anew ? "anew" : "going on", observation->active,
						 (int) (sums[0] / 1000000), (int) (sums[1] / 1000000))));
	if (strcmp(failing, original[i]->name) == 0)
		ereport(ERROR, (errmsg("observer %s fails", original[i]->name)));
	original[i]->observe(observation);
}

/* An observer is not told which one it is. */
static void observe_tuning(const PgscaleObservation *o) { observe(0, o); }
static void observe_scalability(const PgscaleObservation *o) { observe(1, o); }

static void
wrap(const PgscaleModule **modules, int i, const char *name, void (*observe_it) (const PgscaleObservation *))
{
	while (strcmp((*modules)->name, name) != 0)
		modules++;
	original[i] = *modules;
	wrapped[i] = **modules;
	wrapped[i].observe = observe_it;
	*modules = &wrapped[i];
}

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
	const PgscaleModule **modules = (const PgscaleModule **) pgscale_modules;
	long		page = sysconf(_SC_PAGESIZE);
	BackgroundWorker worker = {
		.bgw_name = "failing round",
		.bgw_type = "failing round",
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_function_name = "failing_round_main"
	};

	DefineCustomStringVariable("failing_observer.name", "The observer that fails.", NULL, &failing, "", PGC_SIGHUP, 0,
							   NULL, NULL, NULL);

	/* The list is constant. */
	if (mprotect((void *) ((uintptr_t) modules & ~(page - 1)), 2 * page, PROT_READ | PROT_WRITE) != 0)
		elog(FATAL, "mprotect: %m");
	wrap(modules, 0, "tuning", observe_tuning);
	wrap(modules, 1, "scalability", observe_scalability);

	strlcpy(worker.bgw_library_name, FAILING, sizeof(worker.bgw_library_name));
	RegisterBackgroundWorker(&worker);
}
