/*-------------------------------------------------------------------------
 *
 * relocate_worker.c
 *	  A process that works off the relocation jobs of one database, one after
 *	  the other, and ends when there is none left for it.
 *
 * An attempt: settle what an earlier one may have left; see whether the move may
 * begin, with the rights that the requesting role has by now; move; settle;
 * verify.  Each is one or more transactions, and none depends on the memory of
 * this process: were it killed between any two of them, the next worker would go
 * on from the job's row and from the catalogs.
 *
 * How an attempt ends:
 *
 *	moved				done, or failed if it is not what it was
 *	cancelled			cancelled: relocation_cancel(), pg_cancel_backend()
 *	deadlock, no lock	tried again, later each time, relocation_attempts times
 *	something to await	waiting: an old transaction, a standby that lags
 *	told to end			queued again: shutdown, pg_terminate_backend()
 *	crash				found by the next worker, and queued again; lost after the
 *						second, since it may have been the cause
 *	any other error		failed
 *
 * Whatever the end, it is written down only after all has been cleaned up; where
 * that is not possible now, the job stays queued for just that.
 *
 * Rights.  The process is a superuser's, for its own table; what moves a
 * relation is done as the requesting role.  Index functions are run by the
 * server as the table's owner, as in any REINDEX.
 *
 * Signals: SIGINT ends the statement, SIGTERM ends it as well and then the
 * process, after a last word to the job's row.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "relocate.h"
#include "relocate_check.h"
#include "relocate_jobs.h"
#include "relocate_move.h"
#include "relocate_share.h"
#include "relocate_verify.h"

/* Between two looks at whether a move may begin. */
#define OBSTACLE_MS		2000

/* After a deadlock or a missing lock: doubled with each attempt. */
#define RETRY_MS		1000
#define RETRY_MAX_MS	60000

/* Where a row was locked. */
#define LOCKED_MS		1000

/* Where cleaning up failed. */
#define CLEAN_MS		10000

/* Attempts that a crash may end. */
#define MAX_CRASHES		2

PGDLLEXPORT void pgscale_relocation_worker_main(Datum arg);

static MemoryContext job_context;
static char *users_search_path; /* this database's */

static void
handle_sigterm(SIGNAL_ARGS)
{
	int			save_errno = errno;

	ShutdownRequestPending = true;
	QueryCancelPending = true;
	InterruptPending = true;
	SetLatch(MyLatch);
	errno = save_errno;
}

/*
 * Takes a role's rights from now on.  Where functions are looked up by is for an
 * index' own ones, before 17: what a superuser runs looks in pg_catalog only.
 */
static void
become(const char *role, const char *search_path)
{
	StartTransactionCommand();
	SetConfigOption("role", role, PGC_SUSET, PGC_S_SESSION);
	SetConfigOption("search_path", search_path, PGC_SUSET, PGC_S_SESSION);
	CommitTransactionCommand();
}

static void
become_myself(void)
{
	become("none", "pg_catalog, pg_temp");
}

/*
 * Whether step has gone well; if not, what it raised.  Afterwards in no
 * transaction, as superuser.  Only here can the work be interrupted, so that what
 * has become of it always is written down.
 */
static bool
try(void (*step) (PgscaleJob *job), PgscaleJob *job, PgscaleJobWord *error)
{
	volatile bool ok = false;

	SetCurrentStatementStartTimestamp();
	RESUME_CANCEL_INTERRUPTS();
	PG_TRY();
	{
		/* one step was ended by it, the next must not begin to wait */
		if (ShutdownRequestPending)
			QueryCancelPending = InterruptPending = true;
		CHECK_FOR_INTERRUPTS();
		step(job);
		HOLD_CANCEL_INTERRUPTS();
		ok = true;
	}
	PG_CATCH();
	{
		ErrorData  *data;

		HOLD_CANCEL_INTERRUPTS();	/* the error has let go of them */
		MemoryContextSwitchTo(job_context);
		data = CopyErrorData();
		FlushErrorState();
		AbortCurrentTransaction();
		MemoryContextSwitchTo(job_context);

		if (ShutdownRequestPending && data->sqlerrcode == ERRCODE_QUERY_CANCELED)
		{
			data->sqlerrcode = ERRCODE_ADMIN_SHUTDOWN;
			data->message = pstrdup("the worker was told to end");
		}
		error->sqlstate = data->sqlerrcode;
		error->message = data->detail ? psprintf("%s (%s)", data->message, data->detail) : data->message;
		ereport(LOG,
				(errcode(data->sqlerrcode),
				 errmsg("pgscale relocation job " INT64_FORMAT ": %s", job->id, error->message)));
	}
	PG_END_TRY();
	MemoryContextSwitchTo(job_context);
	become_myself();
	pgstat_report_activity(STATE_IDLE, NULL);
	pgstat_report_stat(true);
	return ok;
}

static bool job_moved;
static char *obstacle;
static char *suggestion;

static void
settle(PgscaleJob *job)
{
	job_moved = pgscale_move_settle(job);
}

static void
become_requester(const PgscaleJob *job)
{
	char	   *role;

	StartTransactionCommand();
	role = GetUserNameFromId(job->role, true);
	if (!role)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the role that asked for it was dropped")));
	role = MemoryContextStrdup(job_context, role);
	CommitTransactionCommand();
	become(role, users_search_path);
}

/* As the requester sees it now. */
static void
check(PgscaleJob *job)
{
	become_requester(job);
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (!OidIsValid(pgscale_tablespace_of(job->relation)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the %s was dropped", job->is_table ? "table" : "index")));
	pgscale_check_target(job->target);
	if (job->is_table)
		(void) pgscale_check_table(job->relation, job->target, ERROR);
	else
		(void) pgscale_check_index(job->relation, job->target, ERROR);
	pgscale_check_space(job->target, job->bytes, get_rel_persistence(job->relation) == RELPERSISTENCE_PERMANENT);
	PopActiveSnapshot();
	CommitTransactionCommand();
}

static void
look_for_obstacle(PgscaleJob *job)
{
	char	   *found;

	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	found = pgscale_relocation_obstacle(job->heap);
	obstacle = found ? MemoryContextStrdup(job_context, found) : NULL;
	PopActiveSnapshot();
	CommitTransactionCommand();
}

static void
set_lock_timeout(int ms)
{
	SetConfigOption("lock_timeout", psprintf("%d", ms), PGC_SUSET, PGC_S_OVERRIDE);
}

static void
move(PgscaleJob *job)
{
	become_requester(job);
	set_lock_timeout(job->is_table ? job->lock_timeout_ms : 0);
	pgscale_move(job, job_context);
}

static void
verify(PgscaleJob *job)
{
	pgscale_job_verifying(job);
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	pgscale_verify_move(job);
	PopActiveSnapshot();
	CommitTransactionCommand();
}

static void
suggest(PgscaleJob *job)
{
	char	   *found;

	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	found = pgscale_suggest_settings(job);
	suggestion = found ? MemoryContextStrdup(job_context, found) : NULL;
	PopActiveSnapshot();
	CommitTransactionCommand();
}

static bool
may_try_again(int sqlstate)
{
	return sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED || sqlstate == ERRCODE_LOCK_NOT_AVAILABLE;
}

static int64
retry_delay(const PgscaleJob *job)
{
	return Min((int64) RETRY_MS << Min(job->attempts - 1, 16), RETRY_MAX_MS);
}

/* The job has not moved, and nothing is left of the attempt. */
static void
end_unmoved(PgscaleJob *job, const PgscaleJobWord *error)
{
	if (job->cancel)
		pgscale_job_end(job, PGSCALE_JOB_CANCELLED, error);
	else if (ShutdownRequestPending)
		pgscale_job_put_back(job, PGSCALE_JOB_QUEUED, 0, error);
	else if (may_try_again(error->sqlstate) && job->attempts < pgscale_relocation_attempts)
		pgscale_job_put_back(job, PGSCALE_JOB_WAITING, retry_delay(job), error);
	else
		pgscale_job_end(job, PGSCALE_JOB_FAILED, error);
}

/* It has; whoever wants it to end now only ends the check. */
static void
end_moved(PgscaleJob *job)
{
	PgscaleJobWord error = {0};

	if (job->crashes >= MAX_CRASHES)
	{
		error.sqlstate = ERRCODE_CRASH_SHUTDOWN;
		error.message = "it has moved, but was not checked, since attempts ended in a crash of the server";
		pgscale_job_end(job, PGSCALE_JOB_LOST, &error);
		return;
	}
	if (try(verify, job, &error))
	{
		PgscaleJobWord word = {0};

		if (try(suggest, job, &error))
			word.message = suggestion;
		pgscale_job_end(job, PGSCALE_JOB_DONE, &word);
		return;
	}
	if (ShutdownRequestPending)
	{
		pgscale_job_put_back(job, PGSCALE_JOB_QUEUED, 0, &error);
		return;
	}
	error.message = psprintf("it has moved, but was not found to be in order: %s", error.message);
	pgscale_job_end(job, error.sqlstate == ERRCODE_QUERY_CANCELED ? PGSCALE_JOB_DONE : PGSCALE_JOB_FAILED, &error);
}

/* Whoever wants it to end wants that of the next worker, too. */
static void
note_cancel(PgscaleJob *job, const PgscaleJobWord *error)
{
	if (pgscale_relocation_cancelled() || (error->sqlstate == ERRCODE_QUERY_CANCELED && !ShutdownRequestPending))
		job->cancel = true;
}

/* Returns false, and has the job wait for another worker, if it cannot be told now. */
static bool
settled(PgscaleJob *job)
{
	PgscaleJobWord error = {0};
	bool		at_once;

	if (try(settle, job, &error))
		return true;
	note_cancel(job, &error);
	at_once = ShutdownRequestPending || error.sqlstate == ERRCODE_QUERY_CANCELED;
	pgscale_job_put_back(job, PGSCALE_JOB_QUEUED, at_once ? 0 : CLEAN_MS, &error);
	return false;
}

static void
work_at(PgscaleJob *job)
{
	PgscaleJobWord error = {0};

	if (!settled(job))
		return;
	if (job_moved)
	{
		end_moved(job);
		return;
	}
	if (job->cancel)
	{
		error.sqlstate = ERRCODE_QUERY_CANCELED;
		error.message = "cancelled";
		end_unmoved(job, &error);
		return;
	}
	if (job->crashes >= MAX_CRASHES)
	{
		error.sqlstate = ERRCODE_CRASH_SHUTDOWN;
		error.message = psprintf("%d attempts ended in a crash of the server, so it is not tried again", job->crashes);
		pgscale_job_end(job, PGSCALE_JOB_LOST, &error);
		return;
	}
	if (!try(check, job, &error) || !try(look_for_obstacle, job, &error))
	{
		note_cancel(job, &error);
		end_unmoved(job, &error);
		return;
	}
	if (obstacle)
	{
		error.sqlstate = ERRCODE_OBJECT_IN_USE;
		error.message = obstacle;
		pgscale_job_put_back(job, PGSCALE_JOB_WAITING, OBSTACLE_MS, &error);
		return;
	}
	if (try(pgscale_job_begin_attempt, job, &error))
		(void) try(move, job, &error);
	note_cancel(job, &error);
	set_lock_timeout(0);
	if (!settled(job))
		return;
	if (job_moved)
	{
		end_moved(job);
		return;
	}
	if (!error.message)
		error.message = "the move was made, but is gone: somebody has dropped or changed it meanwhile";
	end_unmoved(job, &error);
}

/* What users may have set for this database must not stop a worker. */
static void
override_settings(void)
{
	static const char *const settings[][2] = {
		{"statement_timeout", "0"},
		{"lock_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"},
		{"transaction_timeout", "0"},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_read_only", "off"},
		{"default_transaction_deferrable", "off"},
		{"exit_on_error", "off"},
	};

	for (int i = 0; i < lengthof(settings); i++)
		if (GetConfigOption(settings[i][0], true, false))
			SetConfigOption(settings[i][0], settings[i][1], PGC_SUSET, PGC_S_OVERRIDE);
}

static bool
next_job(PgscaleJob *job)
{
	bool		claimed;
	bool		more;

	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
	if (ShutdownRequestPending || !pgscale_relocation_enabled)
		return false;

	/* Whoever wanted to end the last one came too late. */
	QueryCancelPending = false;

	/* An error ends this process; until there is a job, nothing is lost. */
	RESUME_CANCEL_INTERRUPTS();
	claimed = pgscale_job_claim(job, &more);
	HOLD_CANCEL_INTERRUPTS();
	if (!claimed)
		return false;
	if (more)
		pgscale_relocation_due(MyDatabaseId, GetCurrentTimestamp());
	return true;
}

void
pgscale_relocation_worker_main(Datum arg)
{
	Oid			database = pgscale_relocation_slot_attach(DatumGetInt32(arg));
	PgscaleJob	job;

	if (!OidIsValid(database))
		proc_exit(0);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, StatementCancelHandler);
	pqsignal(SIGTERM, handle_sigterm);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	HOLD_CANCEL_INTERRUPTS();

	job_context = AllocSetContextCreate(TopMemoryContext, "pgscale relocation job", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(job_context);
	override_settings();
	users_search_path = MemoryContextStrdup(TopMemoryContext, GetConfigOption("search_path", false, false));
	become_myself();
	pgscale_move_start();

	if (pgscale_jobs_here())
	{
		TimestampTz next;

		while (next_job(&job))
		{
			work_at(&job);
			pgscale_relocation_at_work(0);
			MemoryContextSwitchTo(job_context);
			MemoryContextReset(job_context);
		}
		/* what could have been taken and was not is locked: by who cancels it */
		next = ShutdownRequestPending ? GetCurrentTimestamp() :
			Max(pgscale_jobs_next(), TimestampTzPlusMilliseconds(GetCurrentTimestamp(), LOCKED_MS));
		if (next != DT_NOEND)
			pgscale_relocation_due(database, next);
	}
	pgscale_relocation_leave();
	proc_exit(0);
}
