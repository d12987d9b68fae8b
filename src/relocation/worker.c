/*-------------------------------------------------------------------------
 *
 * worker.c
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
 * process, after a last word to the job's row.  Its commits wait for the disk, but
 * for no standby: a wait for one that is not there takes a signal to end, and the
 * next commit would wait again.
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

#include "base/pg_compat.h"
#include "relocation/checks.h"
#include "relocation/job_table.h"
#include "relocation/relocation.h"
#include "relocation/shared_state.h"

/* Between two looks at whether a move may begin. */
#define OBSTACLE_MS		2000

/* Between two tries to say a job's last word. */
#define WORD_MS			1000

/* Where somebody wants the database for himself. */
#define WAY_MS			1000

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
job_become(const char *role, const char *search_path)
{
	StartTransactionCommand();
	SetConfigOption("role", role, PGC_SUSET, PGC_S_SESSION);
	SetConfigOption("search_path", search_path, PGC_SUSET, PGC_S_SESSION);
	CommitTransactionCommand();
}

static void
become_myself(void)
{
	job_become("none", "pg_catalog, pg_temp");
}

/* Is it to leave its job to another worker? */
static bool
told_to_end(void)
{
	return ShutdownRequestPending || pgscale_relocation_in_the_way();
}

/*
 * Errors that tell of the system and of names, not of what is in a table.  Any
 * error of an index' function may tell that, and then has another class.
 */
static bool
tells_no_rows(int sqlstate)
{
	switch (ERRCODE_TO_CATEGORY(sqlstate))
	{
		case MAKE_SQLSTATE('0', 'A', '0', '0', '0'):	/* not supported */
		case MAKE_SQLSTATE('4', '0', '0', '0', '0'):	/* rolled back */
		case MAKE_SQLSTATE('4', '2', '0', '0', '0'):	/* names and privileges */
		case MAKE_SQLSTATE('5', '3', '0', '0', '0'):	/* resources */
		case MAKE_SQLSTATE('5', '4', '0', '0', '0'):	/* limits */
		case MAKE_SQLSTATE('5', '5', '0', '0', '0'):	/* not now */
		case MAKE_SQLSTATE('5', '7', '0', '0', '0'):	/* ended by somebody */
		case MAKE_SQLSTATE('5', '8', '0', '0', '0'):	/* the system's */
			return true;
	}
	return false;
}

static void write_down(PgscaleRelocationJob *job);

static void
take_error(PgscaleRelocationJob *job, ErrorData *data, PgscaleRelocationJobWord *error)
{
	const char *all = data->detail ? psprintf("%s (%s)", data->message, data->detail) : data->message;
	bool		open;

	if (data->sqlerrcode == ERRCODE_QUERY_CANCELED && told_to_end())
	{
		data->sqlerrcode = ERRCODE_ADMIN_SHUTDOWN;
		data->message = pstrdup(ShutdownRequestPending ? "the worker was told to end" :
								"the worker has made way for somebody who wants the database for himself");
		all = data->message;
	}
	open = tells_no_rows(data->sqlerrcode);
	error->sqlstate = data->sqlerrcode;
	error->message = open ? data->message : "an error whose words may tell of rows: they are shown to those who may read the table";
	error->detail = open && !data->detail ? NULL : all;
	ereport(LOG,
			(errcode(data->sqlerrcode),
			 errmsg("pgscale relocation job " INT64_FORMAT ": %s", job->id, data->message),
			 data->detail ? errdetail_internal("%s", data->detail) : 0));
}

/*
 * Whether step has gone well; if not, what it raised.  Afterwards in no
 * transaction, as superuser.  Only here can the work be interrupted, so that what
 * has become of it always is written down.
 */
static bool
job_try(void (*step) (PgscaleRelocationJob *job), PgscaleRelocationJob *job, PgscaleRelocationJobWord *error)
{
	volatile bool ok = false;

	SetCurrentStatementStartTimestamp();
	RESUME_CANCEL_INTERRUPTS();
	PG_TRY();
	{
		/* one step was ended by it, the next must not begin to wait */
		if (ShutdownRequestPending && step != write_down)
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
		take_error(job, data, error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(job_context);
	become_myself();
	pgstat_report_activity(STATE_IDLE, NULL);
	pgstat_report_stat(true);
	return ok;
}

static void
set_lock_timeout(int ms)
{
	SetConfigOption("lock_timeout", psprintf("%d", ms), PGC_SUSET, PGC_S_OVERRIDE);
}

/* How the attempt at hand has ended: at rest for so long, or for good. */
static struct
{
	const char *state;
	bool		for_good;
	int64		delay_ms;
	PgscaleRelocationJobWord word;
}			outcome;

static void
write_down(PgscaleRelocationJob *job)
{
	set_lock_timeout(WORD_MS);
	if (outcome.for_good)
		pgscale_relocation_job_end(job, outcome.state, &outcome.word);
	else
		pgscale_relocation_job_put_back(job, outcome.state, outcome.delay_ms, &outcome.word);
}

/*
 * The last word of an attempt.  Somebody may have locked the table of jobs, and
 * then it waits; but not longer than that by much when it is told to end.  The job
 * then is an orphan, which the next worker puts back.
 */
static void
say_last_word(PgscaleRelocationJob *job)
{
	PgscaleRelocationJobWord error = {0};

	for (;;)
	{
		bool		last = ShutdownRequestPending;

		QueryCancelPending = false; /* whoever wanted to end it came too late */
		if (job_try(write_down, job, &error))
			break;
		if (last || (error.sqlstate != ERRCODE_LOCK_NOT_AVAILABLE && error.sqlstate != ERRCODE_QUERY_CANCELED &&
					 error.sqlstate != ERRCODE_ADMIN_SHUTDOWN))
			proc_exit(1);
	}
	set_lock_timeout(0);
}

static void
put_back(PgscaleRelocationJob *job, const char *state, int64 delay_ms, const PgscaleRelocationJobWord *why)
{
	outcome.state = state;
	outcome.for_good = false;
	outcome.delay_ms = delay_ms;
	outcome.word = *why;
	say_last_word(job);
}

static void
end_job(PgscaleRelocationJob *job, const char *state, const PgscaleRelocationJobWord *why)
{
	outcome.state = state;
	outcome.for_good = true;
	outcome.word = *why;
	say_last_word(job);
}

static bool job_moved;
static char *obstacle;
static char *suggestion;

static void
job_settle(PgscaleRelocationJob *job)
{
	job_moved = pgscale_relocation_move_settle(job);
}

static void
become_requester(const PgscaleRelocationJob *job)
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
	job_become(role, users_search_path);
}

/* As the requester sees it now. */
static void
job_check(PgscaleRelocationJob *job)
{
	become_requester(job);
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (!OidIsValid(pgscale_relocation_tablespace_of(job->relation)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the %s was dropped", job->is_table ? "table" : "index")));
	pgscale_relocation_check_target(job->target);
	if (job->is_table)
		(void) pgscale_relocation_check_table(job->relation, job->target, ERROR);
	else
		(void) pgscale_relocation_check_index(job->relation, job->target, ERROR);
	pgscale_relocation_check_space(job->target, job->bytes, get_rel_persistence(job->relation) == RELPERSISTENCE_PERMANENT);
	PopActiveSnapshot();
	CommitTransactionCommand();
}

static void
look_for_obstacle(PgscaleRelocationJob *job)
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
job_move(PgscaleRelocationJob *job)
{
	become_requester(job);
	set_lock_timeout(job->is_table ? job->lock_timeout_ms : 0);
	pgscale_relocation_move(job, job_context);
}

static void
job_verify(PgscaleRelocationJob *job)
{
	pgscale_relocation_job_verifying(job);
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	pgscale_relocation_verify_move(job);
	PopActiveSnapshot();
	CommitTransactionCommand();
}

static void
job_suggest(PgscaleRelocationJob *job)
{
	char	   *found;

	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	found = pgscale_relocation_suggest_settings(job);
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
retry_delay(const PgscaleRelocationJob *job)
{
	return Min((int64) RETRY_MS << Min(job->attempts - 1, 16), RETRY_MAX_MS);
}

/* The job has not moved, and nothing is left of the attempt. */
static void
end_unmoved(PgscaleRelocationJob *job, const PgscaleRelocationJobWord *error)
{
	if (job->cancel)
		end_job(job, PGSCALE_JOB_CANCELLED, error);
	else if (told_to_end())
		put_back(job, PGSCALE_JOB_QUEUED, 0, error);
	else if (may_try_again(error->sqlstate) && job->attempts < pgscale_relocation_attempts)
		put_back(job, PGSCALE_JOB_WAITING, retry_delay(job), error);
	else
		end_job(job, PGSCALE_JOB_FAILED, error);
}

/* It has; whoever wants it to end now only ends the check. */
static void
end_moved(PgscaleRelocationJob *job)
{
	PgscaleRelocationJobWord error = {0};

	if (job->crashes >= MAX_CRASHES)
	{
		error.sqlstate = ERRCODE_CRASH_SHUTDOWN;
		error.message = "it has moved, but was not checked, since attempts ended in a crash of the server";
		end_job(job, PGSCALE_JOB_LOST, &error);
		return;
	}
	if (!told_to_end() && job_try(job_verify, job, &error))
	{
		PgscaleRelocationJobWord word = {0};

		if (job_try(job_suggest, job, &error))
			word.message = suggestion;
		end_job(job, PGSCALE_JOB_DONE, &word);
		return;
	}
	if (told_to_end())
	{
		put_back(job, PGSCALE_JOB_QUEUED, 0, &error);
		return;
	}
	error.message = psprintf("it has moved, but was not found to be in order: %s", error.message);
	if (error.detail)
		error.detail = psprintf("it has moved, but was not found to be in order: %s", error.detail);
	end_job(job, error.sqlstate == ERRCODE_QUERY_CANCELED ? PGSCALE_JOB_DONE : PGSCALE_JOB_FAILED, &error);
}

/* Whoever wants it to end wants that of the next worker, too. */
static void
note_cancel(PgscaleRelocationJob *job, const PgscaleRelocationJobWord *error)
{
	if (pgscale_relocation_cancelled() || (error->sqlstate == ERRCODE_QUERY_CANCELED && !told_to_end()))
		job->cancel = true;
}

/* Returns false, and has the job wait for another worker, if it cannot be told now. */
static bool
job_settled(PgscaleRelocationJob *job)
{
	PgscaleRelocationJobWord error = {0};
	bool		at_once;

	if (job_try(job_settle, job, &error))
		return true;
	note_cancel(job, &error);
	at_once = told_to_end() || error.sqlstate == ERRCODE_QUERY_CANCELED;
	put_back(job, PGSCALE_JOB_QUEUED, at_once ? 0 : CLEAN_MS, &error);
	return false;
}

static void
work_at(PgscaleRelocationJob *job)
{
	PgscaleRelocationJobWord error = {0};

	if (!job_settled(job))
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
		end_job(job, PGSCALE_JOB_LOST, &error);
		return;
	}
	if (!job_try(job_check, job, &error) || !job_try(look_for_obstacle, job, &error))
	{
		note_cancel(job, &error);
		end_unmoved(job, &error);
		return;
	}
	if (obstacle)
	{
		error.sqlstate = ERRCODE_OBJECT_IN_USE;
		error.message = obstacle;
		put_back(job, PGSCALE_JOB_WAITING, OBSTACLE_MS, &error);
		return;
	}
	if (job_try(pgscale_relocation_job_begin_attempt, job, &error))
		(void) job_try(job_move, job, &error);
	note_cancel(job, &error);
	set_lock_timeout(0);
	if (!job_settled(job))
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
		/* no standby can keep it from ending */
		{"synchronous_commit", "local"},
	};

	for (int i = 0; i < lengthof(settings); i++)
		if (GetConfigOption(settings[i][0], true, false))
			SetConfigOption(settings[i][0], settings[i][1], PGC_SUSET, PGC_S_OVERRIDE);
}

static bool
next_job(PgscaleRelocationJob *job)
{
	bool		claimed;
	bool		more;

	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
	if (told_to_end() || !pgscale_relocation_enabled)
		return false;

	/* Whoever wanted to end the last one came too late. */
	QueryCancelPending = false;

	claimed = pgscale_relocation_job_claim(job, &more);
	if (!claimed)
		return false;
	if (more)
		pgscale_relocation_due(MyDatabaseId, 0);
	return true;
}

/* Leaves word for the launcher of when there is something to do here, if at all. */
static void
see_what_is_next(void)
{
	TimestampTz next;
	uint64		looked;
	bool		open;

	if (told_to_end())
	{
		pgscale_relocation_due(MyDatabaseId, ShutdownRequestPending ? 0 : WAY_MS);
		return;
	}
	QueryCancelPending = false;
	looked = pgscale_relocation_open_look();
	next = pgscale_relocation_jobs_next(&open);
	/* what could have been taken and was not is locked: by who cancels it */
	if (next != DT_NOEND)
		pgscale_relocation_due(MyDatabaseId, Max(TimestampDifferenceMilliseconds(GetCurrentTimestamp(), next) + 1, LOCKED_MS));
	if (!open)
		pgscale_relocation_open_none(looked);
}

void
pgscale_relocation_worker_main(Datum arg)
{
	Oid			database = pgscale_relocation_slot_attach(DatumGetInt32(arg));
	uint64		looked;
	PgscaleRelocationJob job;

	if (!OidIsValid(database))
		proc_exit(0);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, StatementCancelHandler);
	pqsignal(SIGTERM, handle_sigterm);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);

	job_context = AllocSetContextCreate(TopMemoryContext, "pgscale relocation job", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(job_context);
	override_settings();
	users_search_path = MemoryContextStrdup(TopMemoryContext, GetConfigOption("search_path", false, false));
	become_myself();
	pgscale_relocation_move_start();
	looked = pgscale_relocation_open_look();

	/* An error ends this process; until there is a job, nothing is lost. */
	if (pgscale_relocation_jobs_here())
	{
		while (next_job(&job))
		{
			HOLD_CANCEL_INTERRUPTS();
			work_at(&job);
			RESUME_CANCEL_INTERRUPTS();
			pgscale_relocation_at_work(0);
			MemoryContextSwitchTo(job_context);
			MemoryContextReset(job_context);
		}
		see_what_is_next();
	}
	else
		pgscale_relocation_open_none(looked);
	pgscale_relocation_leave();
	proc_exit(0);
}
