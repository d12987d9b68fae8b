/*-------------------------------------------------------------------------
 *
 * relocation_worker.c
 *	  A process that works off the relocation jobs of one database, one after
 *	  the other, and ends when there is none left for it.
 *
 * An attempt is a walk through these steps (attempt_walk); each is one or more
 * transactions, and none depends on the memory of this process: were it killed
 * between any two of them, the next worker would go on from the job's row and
 * from the catalogs.
 *
 *	clean up	what an earlier attempt has left; that may have moved it, too
 *	check		with the rights that the requesting role has by now
 *	look		for what to wait for
 *	begin		says in the job's row that it is tried
 *	move
 *	settle		cleans up again, and sees whether it has moved
 *	verify		what has moved, in this attempt or an earlier one
 *	suggest		settings for the place where it is now
 *
 * How an attempt ends (attempt_end asks in this order):
 *
 *	not cleaned up		queued for just that: a while later, or at once where the
 *						process is told to end or the job is cancelled
 *	moved, and
 *	  crashed too often	lost: nobody dares to verify it
 *	  verified			done; also if amcheck cannot check such an index, which is said
 *	  told to end		queued again, to be verified
 *	  cancelled			done, unverified
 *	  any other error	failed: it is not what it was
 *	not moved, and
 *	  cancelled			cancelled: relocation_cancel(), pg_cancel_backend()
 *	  crashed too often	lost, since it may have been the cause
 *	  must wait			waiting: for an old transaction, a standby that lags
 *	  told to end		queued again: shutdown, pg_terminate_backend()
 *	  deadlock, no lock,
 *	  rewritten			waiting: later each time, five times
 *	  any other error	failed
 *
 * A crash leaves a row that says it is tried, while nobody does: the next worker
 * queues it again.  Whatever the end, it is written down only after all has been
 * cleaned up.
 *
 * Rights.  The process is a superuser's, for its own table and for an online move, which runs no
 * code of users; a statement that moves a relation is run as the requesting role.  Index functions are run by the
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
#include "base/worker.h"
#include "relocation/checks.h"
#include "relocation/jobs/launcher.h"
#include "relocation/jobs/relocation_jobs.h"
#include "relocation/move.h"
#include "relocation/relocation.h"

/* Between two looks at whether a move may begin. */
#define OBSTACLE_MS		2000

/* Between two tries to say a job's last word. */
#define WORD_MS			1000

/* A command needs the database exclusively. */
#define WAY_MS			1000

/* Attempts that a deadlock or a missing lock may end: what such a job waits for has then been there for 15 s and more. */
#define ATTEMPTS		5

/* Between two of them: doubled with each attempt. */
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
 * Errors about the system and about names, not about contents of a table.  An error of
 * an index' function may show contents, and has another class.
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
		case MAKE_SQLSTATE('5', '7', '0', '0', '0'):	/* ended by a request */
		case MAKE_SQLSTATE('5', '8', '0', '0', '0'):	/* the system's */
			return true;
	}
	return false;
}

static void
take_error(PgscaleRelocationJob *job, ErrorData *data, PgscaleRelocationJobWord *error)
{
	const char *all = data->detail ? psprintf("%s (%s)", data->message, data->detail) : data->message;
	bool		open;

	if (data->sqlerrcode == ERRCODE_QUERY_CANCELED && told_to_end())
	{
		data->sqlerrcode = ERRCODE_ADMIN_SHUTDOWN;
		data->message = pstrdup(ShutdownRequestPending ? "the worker was asked to end" :
								"the worker has disconnected for a command that needs the database exclusively");
		all = data->message;
	}
	/* what a copy says of a damaged page has its place only */
	open = tells_no_rows(data->sqlerrcode) || (data->sqlerrcode == ERRCODE_DATA_CORRUPTED && job->mode == PGSCALE_RELOCATE_ONLINE);
	error->sqlstate = data->sqlerrcode;
	error->message = open ? data->message : "an error whose text may contain values of rows: it is shown to roles "
		"that may read the table";
	error->detail = open && !data->detail ? NULL : all;
	ereport(LOG,
			(errcode(data->sqlerrcode),
			 errmsg("pgscale relocation job " INT64_FORMAT ": %s", job->id, data->message),
			 data->detail ? errdetail_internal("%s", data->detail) : 0));
}

/* What is to be written into the job's row. */
typedef struct AttemptEnd
{
	const char *state;
	PgscaleRelocationJobWord word;
	int64		delay_ms;		/* if it has not ended for good: until the
								 * next look at it */
} AttemptEnd;

typedef struct Attempt
{
	PgscaleRelocationJob *job;
	void		(*step) (struct Attempt *attempt);	/* the last one that was
													 * taken */
	bool		ok;				/* whether that went well */
	bool		to_end;			/* whether the job then was to be left to
								 * another worker */
	bool		tried;			/* to move it, in this attempt */
	PgscaleRelocationJobWord error; /* what the last step that did not go well
									 * has raised */
	char	   *obstacle;		/* what to wait for; NULL: nothing */
	bool		moved;
	bool		may_move_online;	/* an index whose rebuild has failed, and
									 * that could move online */
	char	   *unverified;		/* why amcheck could not check it, or NULL */
	char	   *suggestion;		/* or NULL */
	AttemptEnd	end;
} Attempt;

static void
set_lock_timeout(int ms)
{
	SetConfigOption("lock_timeout", psprintf("%d", ms), PGC_SUSET, PGC_S_SESSION);
}

static void
attempt_write_down(Attempt *attempt)
{
	const AttemptEnd *end = &attempt->end;

	set_lock_timeout(WORD_MS);
	pgscale_relocation_job_end_attempt(attempt->job, end->state, end->delay_ms, &end->word);
}

/*
 * Whether the action has gone well; if not, what it raised.  Afterwards in no
 * transaction, as superuser.  Only here can the work be interrupted, so that what
 * has become of it always is written down.
 */
static bool
attempt_try(void (*action) (Attempt *attempt), Attempt *attempt, PgscaleRelocationJobWord *error)
{
	volatile bool ok = false;

	SetCurrentStatementStartTimestamp();
	RESUME_CANCEL_INTERRUPTS();
	PG_TRY();
	{
		/* one step was ended by it, the next must not begin to wait */
		if (ShutdownRequestPending && action != attempt_write_down)
			QueryCancelPending = InterruptPending = true;
		CHECK_FOR_INTERRUPTS();
		MemoryContextSwitchTo(job_context);
		action(attempt);
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
		take_error(attempt->job, data, error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(job_context);
	become_myself();
	pgstat_report_activity(STATE_IDLE, NULL);
	pgstat_report_stat(true);
	return ok;
}

/*
 * The last statement of an attempt.  It waits if another session has locked the table
 * of jobs, but not much longer than that after a request to end.  The job then is an
 * orphan, which the next worker queues again.
 */
static void
say_last_word(Attempt *attempt)
{
	PgscaleRelocationJobWord error = {0};

	for (;;)
	{
		bool		last = ShutdownRequestPending;

		QueryCancelPending = false; /* a request to end it came too late */
		if (attempt_try(attempt_write_down, attempt, &error))
			break;
		if (last || (error.sqlstate != ERRCODE_LOCK_NOT_AVAILABLE && error.sqlstate != ERRCODE_QUERY_CANCELED &&
					 error.sqlstate != ERRCODE_ADMIN_SHUTDOWN))
			proc_exit(1);
	}
	set_lock_timeout(0);
}

/* What is to outlast it is for attempt_keep(). */
static void
attempt_start_transaction(void)
{
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
}

static void
attempt_commit(void)
{
	PopActiveSnapshot();
	CommitTransactionCommand();
}

static char *
attempt_keep(const char *text)
{
	return text ? MemoryContextStrdup(job_context, text) : NULL;
}

/*
 * The steps
 */

static void
attempt_settle(Attempt *attempt)
{
	const PgscaleRelocationJob *job = attempt->job;

	set_lock_timeout(0);		/* that of a move */
	attempt->moved = pgscale_relocation_move_settle(attempt->job);
	if (attempt->tried && !attempt->moved && job->mode == PGSCALE_RELOCATE_REBUILD)
	{
		StartTransactionCommand();
		attempt->may_move_online = pgscale_relocation_tablespace_of(job->relation) != InvalidOid && pgscale_relocation_check_online(job->relation, DEBUG5);
		CommitTransactionCommand();
	}
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
				 errmsg("the requesting role was dropped")));
	role = attempt_keep(role);
	CommitTransactionCommand();
	job_become(role, users_search_path);
}

/* As the requester sees it now. */
static void
attempt_check(Attempt *attempt)
{
	const PgscaleRelocationJob *job = attempt->job;

	become_requester(job);
	attempt_start_transaction();
	pgscale_relocation_check_job(job);
	pgscale_relocation_check_space(job->target, job->bytes, get_rel_persistence(job->relation) == RELPERSISTENCE_PERMANENT,
								   job->mode == PGSCALE_RELOCATE_ONLINE);
	attempt_commit();
}

static void
attempt_look(Attempt *attempt)
{
	attempt_start_transaction();
	attempt->obstacle = attempt_keep(pgscale_relocation_obstacle(attempt->job));
	attempt_commit();
}

static void
attempt_begin(Attempt *attempt)
{
	attempt->tried = true;
	pgscale_relocation_job_begin_attempt(attempt->job);
}

static void
attempt_move(Attempt *attempt)
{
	PgscaleRelocationJob *job = attempt->job;

	if (job->mode != PGSCALE_RELOCATE_ONLINE)
		become_requester(job);
	set_lock_timeout(job->mode == PGSCALE_RELOCATE_LOCK ? job->lock_timeout_ms : 0);
	pgscale_relocation_move(job, job_context);
}

static void
attempt_verify(Attempt *attempt)
{
	pgscale_relocation_job_verifying(attempt->job);
	attempt_start_transaction();
	attempt->unverified = attempt_keep(pgscale_relocation_verify_move(attempt->job));
	attempt_commit();
}

static void
attempt_suggest(Attempt *attempt)
{
	attempt_start_transaction();
	attempt->suggestion = attempt_keep(pgscale_relocation_suggest_settings(attempt->job));
	attempt_commit();
}

static bool
attempt_crashed_often(const Attempt *attempt)
{
	return attempt->job->crashes >= MAX_CRASHES;
}

/* Takes a step.  Returns false if it has raised an error. */
static bool
attempt_takes(Attempt *attempt, void (*step) (Attempt *attempt))
{
	attempt->step = step;
	attempt->ok = attempt_try(step, attempt, &attempt->error);
	attempt->to_end = told_to_end();
	/* a request to end it is also one for the next worker */
	if (pgscale_relocation_cancelled() || (!attempt->ok && attempt->error.sqlstate == ERRCODE_QUERY_CANCELED))
		attempt->job->cancel = true;
	/* if it has moved, an error of the move does not matter */
	if (attempt->ok && attempt->moved)
		memset(&attempt->error, 0, sizeof(attempt->error));
	return attempt->ok;
}

/* Walks through the steps, until one ends the attempt by an error or by what it has found. */
static void
attempt_walk(Attempt *attempt)
{
	if (!attempt_takes(attempt, attempt_settle))
		return;
	if (!attempt->moved)
	{
		if (attempt_crashed_often(attempt) || attempt->job->cancel ||
			!attempt_takes(attempt, attempt_check) || !attempt_takes(attempt, attempt_look) || attempt->obstacle)
			return;
		(void) (attempt_takes(attempt, attempt_begin) && attempt_takes(attempt, attempt_move));
		if (!attempt_takes(attempt, attempt_settle) || !attempt->moved)
			return;
	}
	if (!attempt_crashed_often(attempt) && !attempt->to_end)
		(void) (attempt_takes(attempt, attempt_verify) && attempt_takes(attempt, attempt_suggest));
}

static PgscaleRelocationJobWord
job_word(int sqlstate, const char *message)
{
	const PgscaleRelocationJobWord word = {.sqlstate = sqlstate,.message = message};

	return word;
}

/* Of a move whose verification was cancelled, or has found something wrong. */
static PgscaleRelocationJobWord
unverified_word(PgscaleRelocationJobWord error)
{
	const char *what = error.sqlstate == ERRCODE_QUERY_CANCELED ? "it was not verified" : "its verification failed";

	error.message = psprintf("it has moved, but %s: %s", what, error.message);
	if (error.detail)
		error.detail = psprintf("it has moved, but %s: %s", what, error.detail);
	return error;
}

/* Of one that is done: what the user should know; nothing as a rule. */
static PgscaleRelocationJobWord
done_word(const Attempt *attempt)
{
	const char *message = attempt->suggestion;

	if (attempt->unverified)
		message = psprintf("its contents were not verified: %s%s%s", attempt->unverified,
						   attempt->suggestion ? "; " : "", attempt->suggestion ? attempt->suggestion : "");
	return job_word(0, message);
}

/* Why it has not moved: no error need have come up. */
static PgscaleRelocationJobWord
unmoved_word(const Attempt *attempt)
{
	if (attempt->error.message)
		return attempt->error;
	if (attempt->tried)
		return job_word(0, "the move was made, but the relation was dropped or changed afterwards");
	return job_word(ERRCODE_QUERY_CANCELED, "cancelled");
}

/* Of a rebuild that failed while it was made: an online move may do, such as of an index whose expression raises an error. */
static PgscaleRelocationJobWord
failed_word(const Attempt *attempt)
{
	static const char *const hint = "(pgscale.relocate_indexes(..., mode => 'online') moves the index without building it)";
	PgscaleRelocationJobWord word = unmoved_word(attempt);

	if (!attempt->may_move_online || !word.message)
		return word;
	word.message = psprintf("%s %s", word.message, hint);
	if (word.detail)
		word.detail = psprintf("%s %s", word.detail, hint);
	return word;
}

static AttemptEnd
ends_as(const char *state, PgscaleRelocationJobWord word, int64 delay_ms)
{
	const AttemptEnd end = {.state = state,.word = word,.delay_ms = delay_ms};

	return end;
}

/*
 * Each of them may come from any step, and may be over by the next attempt.  An attempt uses nothing of the one before: it begins with
 * the clean-up, and the job's row.
 */
static bool
may_try_again(int sqlstate)
{
	return sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED || sqlstate == ERRCODE_LOCK_NOT_AVAILABLE ||
		sqlstate == ERRCODE_T_R_SERIALIZATION_FAILURE;
}

/* Its end follows from the arguments only. */
static AttemptEnd
attempt_end(const Attempt *attempt)
{
	const PgscaleRelocationJob *job = attempt->job;
	const PgscaleRelocationJobWord error = attempt->error;
	const bool	was_cancelled = error.sqlstate == ERRCODE_QUERY_CANCELED;

	if (!attempt->ok && attempt->step == attempt_settle)
		return ends_as(PGSCALE_JOB_QUEUED, error, attempt->to_end || was_cancelled ? 0 : CLEAN_MS);

	if (attempt->moved && attempt_crashed_often(attempt))
		return ends_as(PGSCALE_JOB_LOST,
					   job_word(ERRCODE_CRASH_SHUTDOWN,
								"it has moved, but was not verified, because attempts ended in a crash of the server"), 0);
	if (attempt->moved && attempt->step == attempt_suggest)
		return ends_as(PGSCALE_JOB_DONE, done_word(attempt), 0);
	if (attempt->moved && attempt->to_end)
		return ends_as(PGSCALE_JOB_QUEUED, error, 0);
	if (attempt->moved)
		return ends_as(was_cancelled ? PGSCALE_JOB_DONE : PGSCALE_JOB_FAILED, unverified_word(error), 0);

	if (job->cancel)
		return ends_as(PGSCALE_JOB_CANCELLED, unmoved_word(attempt), 0);
	if (attempt_crashed_often(attempt))
		return ends_as(PGSCALE_JOB_LOST,
					   job_word(ERRCODE_CRASH_SHUTDOWN,
								psprintf("%d attempts ended in a crash of the server, so it is not tried again", job->crashes)), 0);
	if (attempt->obstacle)
		return ends_as(PGSCALE_JOB_WAITING, job_word(ERRCODE_OBJECT_IN_USE, attempt->obstacle), OBSTACLE_MS);
	if (attempt->to_end)
		return ends_as(PGSCALE_JOB_QUEUED, unmoved_word(attempt), 0);
	if (may_try_again(error.sqlstate) && job->attempts < ATTEMPTS)
		return ends_as(PGSCALE_JOB_WAITING, error, Min((int64) RETRY_MS << Min(Max(job->attempts - 1, 0), 16), RETRY_MAX_MS));
	return ends_as(PGSCALE_JOB_FAILED, failed_word(attempt), 0);
}

static const PgscaleWorkerSetting worker_settings[] = {
	/* no standby can keep it from ending */
	{"synchronous_commit", "local"},
	/* a copy must not turn damaged pages into valid ones */
	{"zero_damaged_pages", "off"},
	{"ignore_checksum_failure", "off"},
};

static bool
next_job(PgscaleRelocationJob *job)
{
	bool		more;

	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
	if (told_to_end() || pgscale_relocation_workers == 0)
		return false;

	/* A request to end the last one came too late. */
	QueryCancelPending = false;

	if (!pgscale_relocation_job_claim(job, &more))
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
	/* a job that was due and not taken is locked: by a cancel */
	if (next != DT_NOEND)
		pgscale_relocation_due(MyDatabaseId, Max(TimestampDifferenceMilliseconds(GetCurrentTimestamp(), next) + 1, LOCKED_MS));
	if (!open)
		pgscale_relocation_open_none(looked);
}

void
pgscale_relocation_worker_main(Datum arg)
{
	Oid			database = pgscale_relocation_slot_attach(DatumGetInt32(arg));
	PgscaleRelocationJob job;

	if (!OidIsValid(database))
		proc_exit(0);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, StatementCancelHandler);
	pqsignal(SIGTERM, handle_sigterm);
	BackgroundWorkerUnblockSignals();
	pgscale_worker_connect(database, worker_settings, lengthof(worker_settings));

	job_context = AllocSetContextCreate(TopMemoryContext, "pgscale relocation job", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(job_context);
	users_search_path = MemoryContextStrdup(TopMemoryContext, GetConfigOption("search_path", false, false));
	become_myself();
	pgscale_relocation_move_start();

	/* An error ends this process; until there is a job, nothing is lost. */
	while (next_job(&job))
	{
		Attempt		attempt = {.job = &job};

		HOLD_CANCEL_INTERRUPTS();
		attempt_walk(&attempt);
		job.cancel |= pgscale_relocation_ends();
		attempt.end = attempt_end(&attempt);
		say_last_word(&attempt);
		RESUME_CANCEL_INTERRUPTS();
		pgscale_relocation_at_work(0, InvalidOid);
		MemoryContextSwitchTo(job_context);
		MemoryContextReset(job_context);
	}
	see_what_is_next();
	pgscale_relocation_leave();
	proc_exit(0);
}
