/*-------------------------------------------------------------------------
 *
 * cancel.c
 *	  Cancels the statement of a root blocker, or terminates its session.
 *
 * The process that is named is acted on, and no other one: a parallel worker stands for its
 * leader, and only root => true stands for the root of the chain in which the process waits.
 * Nothing is done to a process that waits for a lock itself, and the answer has its root: to end
 * a waiter helps only those that queue behind it.
 *
 * Only client backends are acted on, and autovacuum workers unless they prevent wraparound: all other
 * processes would start again, or end the server.  May the caller do so?  That is asked of the
 * server: pg_cancel_backend() and pg_terminate_backend() send the signal.
 *
 * The answer is what was seen to happen: the process is read until its statement, or it, has
 * ended, or two seconds are over.
 *
 * To find the root and its waiters takes milliseconds, in which a transaction may end and the next
 * one begin.  So the process is read before the graph of lock waits that shows it as a root, and again
 * right before the signal: if its transaction is another one then, nothing is done.  Of a
 * statement that is to be cancelled, the statement is compared, too; of a session that idles, since
 * when it does.
 *
 * A commit that waits for a synchronous standby is not ended: it is written here already, so neither a cancellation nor
 * a termination undoes it.  Either would only show it to others before a standby has it.
 *
 * What may be otherwise a moment later, as that a process waits or has ended, is an answer and no
 * error, so a statement that ends many sessions says what became of each.  A process of a kind
 * that must not be ended is an error, as is one for which the caller lacks the privilege.
 *
 * Locking: that of base/lock_waits.c, at most ROOT_TRIES times.  A process that ends meanwhile is not an
 * error.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/latch.h"
#include "utils/backend_status.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "base/lock_waits.h"
#include "base/pg_compat.h"
#include "base/processes.h"
#include "base/row_builder.h"
#include "base/texts.h"
#include "base/timer.h"
#include "base/units.h"
#include "blockers/blockers.h"

/* How long to see whether it obeys, and how often to check. */
#define OBEY_NS			(2 * NS_PER_S)
#define OBEY_CHECK_MS	10

/* How often to read a status that is being written. */
#define STATUS_TRIES	20
#define STATUS_TRY_US	500

/* How often to read the graph until the process that was read is a root in it. */
#define ROOT_TRIES		3

PG_FUNCTION_INFO_V1(pgscale_cancel);
PG_FUNCTION_INFO_V1(pgscale_terminate);

typedef enum Action
{
	ACTION_CANCEL,
	ACTION_TERMINATE
} Action;

static const char *const verbs[] = {"cancel", "terminate"};

/* The process to act on, as it was found. */
typedef struct Target
{
	int			pid;
	int			slot;			/* -1: there is none */
	PgscaleProc proc;
	PgscaleProcStatement statement;
	bool		in_graph;		/* it waits for a lock, or is waited for */
	int			waiters;		/* transactions that wait for it */
} Target;

/* Reads a slot; returns false if no process is there.  If its status is unknown, proc.changecount is 0. */
static bool
read_slot(int slot, Target *target)
{
	for (int i = 0; i < STATUS_TRIES; i++)
	{
		uint64		retries = 0;
		bool		changed;

		memset(&target->proc, 0, sizeof(target->proc));
		memset(&target->statement, 0, sizeof(target->statement));
		if (!pgscale_procs_read(slot, &target->proc, &changed, &retries))
			return false;
		/* both as of one moment */
		if (target->proc.changecount != 0 && pgscale_procs_read_statement(slot, &target->statement) &&
			pgscale_procs_read(slot, &target->proc, &changed, &retries) && !changed)
			return true;
		pg_usleep(STATUS_TRY_US);
	}
	memset(&target->statement, 0, sizeof(target->statement));
	return true;
}

static void
read_target(Target *target, int pid)
{
	memset(target, 0, sizeof(*target));
	target->pid = pid;
	target->slot = pgscale_procs_find(pid, &target->proc);
	if (target->slot >= 0 && (!read_slot(target->slot, target) || target->proc.pid != pid))
		target->slot = -1;
}

/* Of a parallel worker, its leader. */
static void
read_session(Target *target, int pid)
{
	read_target(target, pid);
	if (target->slot >= 0 && target->proc.leader_pid != 0)
		read_target(target, target->proc.leader_pid);
}

/* Reads the process again; returns false if it has ended. */
static bool
is_target_there(const Target *target, Target *now)
{
	return read_slot(target->slot, now) && now->proc.pid == target->proc.pid &&
		(now->proc.proc_start == 0 || target->proc.proc_start == 0 || now->proc.proc_start == target->proc.proc_start);
}

/* Does it certainly run the same statement no more? */
static bool
has_statement_ended(const Target *target, const Target *now)
{
	return now->proc.changecount != 0 &&
		(!now->proc.running || now->proc.activity_start != target->proc.activity_start);
}

/* Is it at something other than what it was found at?  Also if that is unknown. */
static bool
has_gone_on(const Target *target, const Target *now, Action action)
{
	if ((target->waiters > 0 || target->proc.in_transaction) && now->statement.xact_start != target->statement.xact_start)
		return true;
	if (target->proc.state == (uint8) STATE_IDLE && now->statement.state_start != target->statement.state_start)
		return true;
	return action == ACTION_CANCEL && target->proc.running &&
		(now->proc.changecount == 0 || has_statement_ended(target, now));
}

static void
refuse_process(int pid, Action action, const char *what, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("cannot %s process %d: it is %s", verbs[action], pid, what),
			 errhint("%s", hint)));
}

static void
check_worker(int pid, Action action)
{
	const char *type = GetBackgroundWorkerTypeByPid(pid);

	if (type && strncmp(type, "pgscale ", strlen("pgscale ")) == 0)
		refuse_process(pid, action, "a worker of pgscale",
					   "Switch off its feature by its setting. A job of relocation is ended by pgscale.relocation_cancel().");
	refuse_process(pid, action, "a background worker",
				   "End it by the extension or the subscription that it belongs to.");
}

/* Raises an error unless it is what may be ended. */
static void
check_target(const Target *target, Action action)
{
	const PgscaleProc *proc = &target->proc;

	if (proc->pid == MyProcPid)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("cannot %s process %d: it is this session", verbs[action], proc->pid),
				 errhint("COMMIT or ROLLBACK ends its transaction.")));
	if (proc->kind == (PgscaleProcKind) B_BACKEND)
		return;
	if (proc->kind == (PgscaleProcKind) B_AUTOVAC_WORKER)
	{
		if ((ProcGlobal->allProcs[target->slot].statusFlags & PROC_VACUUM_FOR_WRAPAROUND) == 0)
			return;
		refuse_process(proc->pid, action, "an autovacuum worker that prevents transaction ID wraparound",
					   "Let it finish: another one would begin again at once.");
	}
	if (proc->kind == (PgscaleProcKind) B_WAL_SENDER)
		refuse_process(proc->pid, action, "a walsender",
					   "Stop the standby or the subscription that it serves; it would connect again.");
	if (pgscale_proc_is_worker(proc->kind))
		check_worker(proc->pid, action);
	refuse_process(proc->pid, action, psprintf("a server process (%s)", pgscale_proc_kind_name(proc->kind)),
				   "Only sessions can be ended.");
}

/* Is its transaction committed here, and does it only wait for a standby to say so, too? */
static bool
awaits_standby(const PgscaleProc *proc)
{
	return proc->wait_event == WAIT_EVENT_SYNC_REP;
}

/* The server acts on a cancellation only when such a wait is over; a termination ends it. */
static bool
awaits_client(const PgscaleProc *proc)
{
	return proc->running && (proc->wait_event == WAIT_EVENT_CLIENT_READ || proc->wait_event == WAIT_EVENT_CLIENT_WRITE);
}

/* The node of a process, or NULL if it neither waits nor is waited for. */
static const PgscaleLockNode *
find_node(const PgscaleLockWaits *waits, int pid)
{
	for (int node = 0; node < waits->nnodes; node++)
		if (waits->nodes[node].pid == pid)
			return &waits->nodes[node];
	return NULL;
}

/* Which session it is, and what it did. */
static char *
target_text(const Target *target)
{
	const PgscaleProc *proc = &target->proc;
	const char *user = pgscale_text_name_of(proc->userid, true);
	const char *state = pgscale_proc_state_name(proc->state);
	const TimestampTz since = target->statement.state_start;
	const double in_state_s = since == 0 ? 0 : Max(GetCurrentTimestamp() - since, 0) / (double) USECS_PER_SEC;
	PgscaleProcClient client;
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfo(&text, "process %d (", proc->pid);
	if (proc->kind != (PgscaleProcKind) B_BACKEND)
		appendStringInfo(&text, "%s, ", pgscale_proc_kind_name(proc->kind));
	if (user)
		appendStringInfo(&text, "user %s, ", user);
	if (pgscale_procs_read_client(target->slot, false, &client) && client.application_name[0] != '\0')
		appendStringInfo(&text, "application %s, ",
						 pgscale_text_line(client.application_name, GetDatabaseEncoding(), NAMEDATALEN));
	appendStringInfo(&text, "%s", state ? state : "state unknown");
	if (proc->running || proc->in_transaction || proc->state == (uint8) STATE_IDLE)
		appendStringInfo(&text, " for %s", pgscale_text_duration(in_state_s));
	appendStringInfoChar(&text, ')');
	return text.data;
}

static char *
prepared_text(int pid, TransactionId xid)
{
	return psprintf("nothing was done: the root blocker of process %d is a prepared transaction; to end it: COMMIT PREPARED or ROLLBACK PREPARED "
					"with the gid of transaction %u in pg_prepared_xacts", pid, xid);
}

static char *
waiter_text(int pid, Action action, int root)
{
	return psprintf("nothing was done: process %d is not a root blocker, because it waits for a lock itself; its root is process %d: "
					"SELECT * FROM pgscale.%s(%d); to end the waiting one: SELECT pg_%s_backend(%d)",
					pid, root, verbs[action], root, verbs[action], pid);
}

static char *
standby_text(int pid, Action action, const char *session)
{
	return psprintf("nothing was done: %s waits until a synchronous standby has its commit; to end that wait does not undo the commit, but shows it "
					"to all before a standby has it, and it is lost if this server is; SELECT * FROM pgscale.now: why it waits; to do it anyway: "
					"SELECT pg_%s_backend(%d)", session, verbs[action], pid);
}

static char *
gone_on_text(const char *session)
{
	return psprintf("nothing was done: %s has gone on to something else meanwhile", session);
}

/*
 * Its place in the graph of lock waits: goes to the root.  Returns NULL, or why nothing may be done: it is not the
 * root, or that is not a process, or it was another one each time.
 */
static char *
go_to_root(Target *target, Action action, bool to_root)
{
	for (int i = 0; i < ROOT_TRIES; i++)
	{
		PgscaleLockWaits *waits = pgscale_lock_waits_read_all(false);
		const PgscaleLockNode *node = find_node(waits, target->pid);
		const PgscaleLockNode *root;

		/* after the first reading: a root that nothing waits for any more */
		if (node == NULL)
			return i == 0 ? NULL : gone_on_text(target_text(target));
		pgscale_lock_waits_find_roots(waits);
		root = &waits->nodes[node->root];
		if (root == node)
		{
			target->in_graph = true;
			target->waiters = pgscale_blockers_count_behind_one(waits, node - waits->nodes);
			return NULL;
		}
		if (root->pid == 0)
			return prepared_text(target->pid, root->xid);
		if (!to_root)
			return waiter_text(target->pid, action, root->pid);
		read_target(target, root->pid);
		if (target->slot < 0)
			return NULL;
	}
	return gone_on_text(target_text(target));
}

static const char *
waiters_text(const Target *target)
{
	if (target->waiters == 0)
		return "";
	if (target->waiters == 1)
		return "; 1 transaction waited for it";
	return psprintf("; %d transactions waited for it", target->waiters);
}

static bool
send_signal(const Target *target, Action action)
{
	const Datum pid = Int32GetDatum(target->proc.pid);

	if (action == ACTION_CANCEL)
		return DatumGetBool(DirectFunctionCall1(pg_cancel_backend, pid));
	return DatumGetBool(DirectFunctionCall2(pg_terminate_backend, pid, Int64GetDatum(0)));
}

/* Returns whether it has obeyed; if not, *now is what it does instead. */
static bool
wait_to_obey(const Target *target, Action action, Target *now)
{
	const int64 give_up = pgscale_timer_clock() + OBEY_NS;

	while (is_target_there(target, now) && (action != ACTION_CANCEL || !has_statement_ended(target, now)))
	{
		if (pgscale_timer_clock() >= give_up)
			return false;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, OBEY_CHECK_MS, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	return true;
}

/* Does it, unless there is nothing to do; returns what was done, or why it was not. */
static char *
act_on_target(const Target *target, Action action, bool *done)
{
	const char *session = target_text(target);
	Target		now;

	*done = false;
	if (action == ACTION_CANCEL && target->proc.in_transaction)
		return psprintf("nothing to cancel: %s runs no statement; to end its transaction, use pgscale.terminate(%d)%s",
						session, target->pid, waiters_text(target));
	if (action == ACTION_CANCEL && target->proc.state == (uint8) STATE_IDLE)
		return psprintf("nothing to cancel: %s runs no statement", session);
	/* from here to the signal, nothing that takes time */
	if (!is_target_there(target, &now))
		return psprintf("nothing to %s: %s has ended", verbs[action], session);
	if (has_gone_on(target, &now, action))
		return gone_on_text(session);
	if (awaits_standby(&now.proc))
		return standby_text(target->pid, action, session);
	if (!send_signal(target, action))
		return psprintf("nothing to %s: %s has ended", verbs[action], session);
	if (action == ACTION_CANCEL && !target->proc.running)
		return psprintf("asked %s to cancel its statement, if it runs one%s", session, waiters_text(target));
	*done = wait_to_obey(target, action, &now);
	if (*done)
		return psprintf(action == ACTION_CANCEL ? "cancelled the statement of %s%s" : "terminated %s%s",
						session, waiters_text(target));
	return psprintf("asked %s to end%s, which it has not done within %d s%s%s", session,
					action == ACTION_CANCEL ? " its statement" : "", (int) (OBEY_NS / NS_PER_S),
					action == ACTION_CANCEL && awaits_client(&now.proc) ?
					psprintf(": it waits for its client, which only pgscale.terminate(%d) ends", target->pid) : "",
					waiters_text(target));
}

/* Finds the process to act on, and acts. */
static char *
end_target(Target *target, int pid, Action action, bool to_root, bool only_idle, bool *done)
{
	char	   *refusal = NULL;

	read_session(target, pid);
	if (target->slot >= 0)
	{
		if (!to_root)
			check_target(target, action);
		refusal = go_to_root(target, action, to_root);
	}
	if (refusal)
		return refusal;
	if (target->slot < 0)
		return psprintf("nothing to %s: there is no process %d, or it has ended", verbs[action], target->pid);
	check_target(target, action);

	/* what it waited for may just have ended */
	if (to_root && !target->in_graph)
		return psprintf("nothing to %s: %s does not wait for a lock, and no transaction waits for it",
						verbs[action], target_text(target));
	if (only_idle && target->proc.state != (uint8) STATE_IDLE)
		return psprintf("nothing was done: %s is not idle", target_text(target));
	return act_on_target(target, action, done);
}

static Datum
end_process(FunctionCallInfo fcinfo, Action action, bool only_idle)
{
	Target		target;
	PgscaleRow	row = {0};
	bool		done = false;
	const char *what = end_target(&target, PG_GETARG_INT32(0), action, PG_GETARG_BOOL(1), only_idle, &done);

	pgscale_row_int4(&row, target.pid);
	pgscale_row_bool(&row, done);
	pgscale_row_text(&row, what);
	return pgscale_row_result(&row, fcinfo);
}

/* pgscale.cancel(pid, root): one row.  Errors: of processes that may not be ended, and those of pg_cancel_backend(). */
Datum
pgscale_cancel(PG_FUNCTION_ARGS)
{
	return end_process(fcinfo, ACTION_CANCEL, false);
}

/*
 * pgscale.terminate(pid, root, idle): one row.  Errors: as cancel().  A statement that ends many sessions has a list of
 * them that grows old while it ends one after the other: idle => true leaves alone those that have work by then.
 */
Datum
pgscale_terminate(PG_FUNCTION_ARGS)
{
	return end_process(fcinfo, ACTION_TERMINATE, PG_GETARG_BOOL(2));
}
