/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  Code that pgscale's background workers share: registration, start, and the
 *	  requests that every round must serve.
 *
 * A worker without a database still calls BackgroundWorkerInitializeConnection().  Only
 * then does it take part in procsignal barriers, show in pg_stat_activity and obey
 * pg_terminate_backend.  Otherwise DROP DATABASE, DROP TABLESPACE and pg_upgrade would
 * hang, because they wait until every process has absorbed a barrier.
 *
 * Signals: the handlers of the server's own workers, which only set flags.  SIGTERM
 * ends a worker with exit code 1, from pgscale_worker_interrupts(), so it is started
 * again a second later unless the server is shutting down.  An ERROR ends it the same
 * way: all lasting state is in shared memory, and a restart is the one path of
 * recovery.  Rounds (pgscale_worker_rounds) continue after an error, as bgwriter does:
 * they are for work in which errors are expected, such as writing to a full disk.  A
 * worker ends at its next wait if the postmaster has died.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dlfcn.h>

#include "access/xact.h"
#include "catalog/pg_authid_d.h"
#include "catalog/pg_database.h"
#include "pgstat.h"
#include "postmaster/bgwriter.h"
#include "postmaster/interrupt.h"
#include "storage/bufmgr.h"
#include "storage/condition_variable.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/sinval.h"
#include "storage/smgr.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/server_settings.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/worker.h"

/* Seconds before the postmaster starts a worker that ended again. */
#define RESTART_DELAY_S 1

/* Milliseconds between an error and the next round. */
#define ERROR_DELAY_MS	1000

/*
 * How often to look for what must be done now and then, but not at every
 * tick.
 */
#define CHORES_PERIOD_NS	NS_PER_S

/*
 * The file that this library was loaded from.  By the name "pgscale" the server may find
 * another one, if shared_preload_libraries has a path; in that one nothing would be set up,
 * shared memory included.  Before 16 there is not always room for a path.
 */
static const char *
worker_library(Size room)
{
	static char own_address;
	Dl_info		own;

	if (dladdr(&own_address, &own) == 0 || own.dli_fname[0] != '/' || strlen(own.dli_fname) >= room)
		return "pgscale";
	return own.dli_fname;
}

static void
worker_describe(BackgroundWorker *worker, const char *name, const char *function, int32 arg)
{
	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker->bgw_start_time = BgWorkerStart_ConsistentState;
	worker->bgw_restart_time = RESTART_DELAY_S;
	strlcpy(worker->bgw_library_name, worker_library(sizeof(worker->bgw_library_name)), sizeof(worker->bgw_library_name));
	strlcpy(worker->bgw_function_name, function, sizeof(worker->bgw_function_name));
	strlcpy(worker->bgw_name, name, sizeof(worker->bgw_name));
	strlcpy(worker->bgw_type, name, sizeof(worker->bgw_type));
	worker->bgw_main_arg = Int32GetDatum(arg);
}

/* Of the postmaster, as processes inherit it. */
static bool all_registered = true;

void
pgscale_worker_register(const char *name, const char *function, int32 arg)
{
	BackgroundWorker worker;

	worker_describe(&worker, name, function, arg);
	RegisterBackgroundWorker(&worker);
	all_registered &= pgscale_compat_worker_is_registered(name);
}

bool
pgscale_worker_all_registered(void)
{
	return all_registered;
}

bool
pgscale_worker_launch(const char *name, const char *function, int32 arg, bool gives_way,
					  BackgroundWorkerHandle **handle)
{
	const MemoryContext context = MemoryContextSwitchTo(TopMemoryContext);
	BackgroundWorker worker;
	bool		started;

	worker_describe(&worker, name, function, arg);
	if (gives_way)
		worker.bgw_flags |= BGWORKER_INTERRUPTIBLE;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	started = RegisterDynamicBackgroundWorker(&worker, handle);
	if (!started && handle)
		*handle = NULL;
	MemoryContextSwitchTo(context);
	return started;
}

bool
pgscale_worker_launched(BackgroundWorkerHandle **handle)
{
	pid_t		pid;

	if (!*handle)
		return false;
	if (GetBackgroundWorkerPid(*handle, &pid) != BGWH_STOPPED)
		return true;
	pfree(*handle);
	*handle = NULL;
	return false;
}

void
pgscale_worker_start(const char *wait_event_name)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	/* No user's statement runs here that pg_cancel_backend() could end. */
	pqsignal(SIGINT, PG_SIG_IGN);
	BackgroundWorkerUnblockSignals();

	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	pgscale_server_settings_store();

	pgscale_timer_wait_event(pgscale_compat_wait_event_new(wait_event_name));
}

bool
pgscale_worker_interrupts(void)
{
	static int64 chores_done = 0;
	int64		now;

	CHECK_FOR_INTERRUPTS();

	if (ShutdownRequestPending)
		proc_exit(1);

	/*
	 * Else our place in the invalidation queue would hold up the others.  It
	 * takes a transaction, which ends without what was current before it.
	 */
	if (catchupInterruptPending)
	{
		ResourceOwner owner = CurrentResourceOwner;
		MemoryContext context = CurrentMemoryContext;

		ProcessCatchupInterrupt();
		CurrentResourceOwner = owner;
		MemoryContextSwitchTo(context);
	}

	/*
	 * As bgwriter does: a handle kept open would keep a dropped file's space.
	 * A second of delay is as good, and the check takes a spinlock.
	 */
	now = pgscale_timer_clock();
	if (now - chores_done >= CHORES_PERIOD_NS)
	{
		chores_done = now;
		if (FirstCallSinceLastCheckpoint())
			pgscale_compat_smgr_release_all();
	}

	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
		pgscale_server_settings_store();
		return true;
	}
	return false;
}

/*
 * What bgwriter does after an error: the part of AbortTransaction() that a
 * process without transactions needs.  Before that, the transaction, should it
 * have been in one that serves a request.
 */
static void
worker_clean_up(MemoryContext context)
{
	error_context_stack = NULL;
	HOLD_INTERRUPTS();
	EmitErrorReport();

	AbortOutOfAnyTransaction();
	CurrentResourceOwner = AuxProcessResourceOwner;

	LWLockReleaseAll();
	ConditionVariableCancelSleep();
	pgstat_report_wait_end();
	pgscale_compat_abort_io();
	UnlockBuffers();
	ReleaseAuxProcessResources(false);
	AtEOXact_Buffers(false);
	AtEOXact_SMgr();
	AtEOXact_Files(false);
	AtEOXact_HashTables(false);

	MemoryContextSwitchTo(context);
	FlushErrorState();
	MemoryContextReset(context);
	RESUME_INTERRUPTS();
}

void
pgscale_worker_rounds(void (*round) (void), void (*failed) (void))
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "pgscale rounds",
												  ALLOCSET_DEFAULT_SIZES);
	sigjmp_buf	on_error;

	CreateAuxProcessResourceOwner();
	CurrentResourceOwner = AuxProcessResourceOwner;
	MemoryContextSwitchTo(context);

	/*
	 * Any error of a round: it is logged, and the next round begins from
	 * shared memory alone.
	 */
	if (sigsetjmp(on_error, 1) != 0)
	{
		int64		resume;

		worker_clean_up(context);
		failed();

		/*
		 * It may well happen again, and need not fill the log, whatever there
		 * is to do.
		 */
		resume = pgscale_timer_clock() + ERROR_DELAY_MS * NS_PER_MS;
		for (int64 left; (left = resume - pgscale_timer_clock()) > 0;)
		{
			pgscale_worker_wait(left / NS_PER_MS + 1);
			(void) pgscale_worker_interrupts();
		}
		pgscale_compat_smgr_release_all();
	}
	PG_exception_stack = &on_error;

	for (;;)
		round();
}

void
pgscale_worker_wait(long timeout_ms)
{
	pgscale_timer_wait_latch(timeout_ms);
	ResetLatch(MyLatch);
}

bool
pgscale_worker_database_locked(Oid database)
{
	LOCKTAG		tag;
	VirtualTransactionId *holders;
	int			n;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, database, 0);
	holders = GetLockConflicts(&tag, RowExclusiveLock, &n);
	pfree(holders);
	return n > 0;
}

/* One that this server or this major does not have is left out; a library's may be loaded later. */
static void
worker_override(const PgscaleWorkerSetting *settings, int n)
{
	for (int i = 0; i < n; i++)
		if (strchr(settings[i].name, '.') || GetConfigOption(settings[i].name, true, false))
			SetConfigOption(settings[i].name, settings[i].value, PGC_SUSET, PGC_S_SESSION);
}

void
pgscale_worker_set_early(const char *name, const char *value)
{
	(void) set_config_option_ext(name, value, PGC_SUSET, PGC_S_SESSION, BOOTSTRAP_SUPERUSERID, GUC_ACTION_SET, true, 0, false);
}

void
pgscale_worker_connect(Oid database, const PgscaleWorkerSetting *own, int n)
{
	static const PgscaleWorkerSetting settings[] = {
		{"lock_timeout", "0"},
		{"statement_timeout", "0"},
		{"transaction_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_read_only", "off"},
		{"default_transaction_deferrable", "off"},
		{"exit_on_error", "off"},
		{"log_min_messages", "warning"},
		{"log_min_error_statement", "error"},
		{"log_min_duration_statement", "-1"},
		{"log_min_duration_sample", "-1"},
		{"log_statement", "none"},
		{"log_duration", "off"},
		{"log_parser_stats", "off"},
		{"log_planner_stats", "off"},
		{"log_executor_stats", "off"},
		{"log_statement_stats", "off"},
		{"debug_print_parse", "off"},
		{"debug_print_rewritten", "off"},
		{"debug_print_plan", "off"},
		{"debug_print_raw_parse", "off"},
		{"trace_sort", "off"},
		{"trace_notify", "off"},
		{"auto_explain.log_min_duration", "-1"},
	};

	/* such as that of a collation's version, three lines each time */
	pgscale_worker_set_early("log_min_messages", "error");
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);

	worker_override(settings, lengthof(settings));
	worker_override(own, n);
}
