/*-------------------------------------------------------------------------
 *
 * processes.c
 *	  Reads PGPROC and PgBackendStatus of other processes.
 *
 * The wait event is in the PGPROC of a process, its statement in its PgBackendStatus.
 * Both are plain shared memory.  Reading them costs the other process no more than a
 * shared cache line, and takes no lock: a lock such as ProcArrayLock is exactly what
 * the processes of a busy server wait for.
 *
 * The order of the reads matters.  The wait event is read first, the state after it.  A
 * backend that finishes its statement sets its state to idle and only then waits for
 * its client.  In the other order, a backend that became busy between the two reads
 * would look idle and not waiting, and its CPU time would be lost.  The pid is read
 * again last, so that a slot that was reused meanwhile is not mixed up.
 *
 * A status entry is read by the protocol of its change count (utils/backend_status.h).
 * An unchanged even count means an unchanged entry; then the next read does not touch
 * the cache lines of the other fields.
 *
 * The owner of its latch shows whether a slot is in use: before 17 a PGPROC keeps its
 * pid after its process has exited.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <arpa/inet.h>

#include "base/pg_compat.h"
#include "base/processes.h"

/*
 * A status entry is written in well under a microsecond.  If that takes longer
 * its process is off its CPU just there, for milliseconds maybe.
 */
#define MAX_RETRIES 100

int
pgscale_procs_count(void)
{
	return (int) ProcGlobal->allProcCount;
}

void
pgscale_procs_prefetch_status(int slot)
{
	PgBackendStatus *array = pgscale_compat_status_array();
	PgBackendStatus *status = array ? pgscale_compat_status_of(array, slot) : NULL;

	__builtin_prefetch((const void *) pgscale_compat_wait_event_at(&ProcGlobal->allProcs[slot]));
	if (status == NULL)
		return;
	__builtin_prefetch(&status->st_changecount);
	__builtin_prefetch(&status->st_state);
	__builtin_prefetch(&status->st_query_id);
}

int
pgscale_procs_self(void)
{
	return MyProcNumber;
}

/*
 * Copies the entry's fields that we want.  Returns false, and leaves them as
 * they were, if the entry was being written all the time.
 */
static bool
copy_status(volatile PgBackendStatus *status, PgscaleProc *proc, int *status_pid,
			uint64 *retries)
{
	for (int i = 0; i < MAX_RETRIES; i++)
	{
		PgscaleProc seen = *proc;
		int			before,
					after;

		pgstat_begin_read_activity(status, before);
		*status_pid = status->st_procpid;
		seen.kind = (PgscaleProcKind) status->st_backendType;
		seen.state = (uint8) status->st_state;
		seen.datid = status->st_databaseid;
		seen.userid = status->st_userid;
		seen.queryid = pgscale_query_id(status->st_query_id);
		seen.plan_id = pgscale_plan_id(status);
		seen.activity_start = status->st_activity_start_timestamp;
		seen.proc_start = status->st_proc_start_timestamp;
		pgstat_end_read_activity(status, after);

		if (pgstat_read_activity_complete(before, after))
		{
			seen.changecount = before;
			*proc = seen;
			return true;
		}
		(*retries)++;
	}
	*status_pid = 0;
	return false;
}

/*
 * A parallel worker counts for the statement of its leader.  Those of a query
 * carry its identifier, those that build an index carry none before 18.
 */
static void
adopt_leader(PgBackendStatus *array, PGPROC *leader, PgscaleProc *proc,
			 uint64 *retries)
{
	ptrdiff_t	slot = leader - ProcGlobal->allProcs;
	PgBackendStatus *status;
	PgscaleProc seen = {0};
	int			pid;

	if (slot < 0 || slot >= ProcGlobal->allProcCount)
		return;

	proc->kind = PGSCALE_PROC_PARALLEL;
	proc->leader_slot = (int) slot;
	proc->leader_pid = leader->procLatch.owner_pid;
	status = array ? pgscale_compat_status_of(array, (ProcNumber) slot) : NULL;
	if (status && copy_status(status, &seen, &pid, retries) &&
		pid == proc->leader_pid && seen.queryid != 0)
	{
		proc->queryid = seen.queryid;
		proc->plan_id = seen.plan_id;
	}
}

bool
pgscale_procs_read(int slot, PgscaleProc *proc, bool *changed, uint64 *retries)
{
	static PgBackendStatus *array = NULL;
	volatile PGPROC *pgproc = &ProcGlobal->allProcs[slot];
	PgBackendStatus *status;
	PGPROC	   *leader;
	PgscaleProc seen;
	int			status_pid = 0;
	int			pid;

	pid = pgproc->procLatch.owner_pid;
	if (pid == 0)
	{
		*changed = (proc->pid != 0);
		proc->pid = 0;
		return false;
	}

	proc->wait_event = *pgscale_compat_wait_event_at(pgproc);
	pg_read_barrier();

	if (array == NULL)
		array = pgscale_compat_status_array();
	status = array ? pgscale_compat_status_of(array, slot) : NULL;

	*changed = true;
	if (status && proc->pid == pid && proc->changecount != 0 &&
		((volatile PgBackendStatus *) status)->st_changecount == proc->changecount)
	{
		*changed = false;
		return true;
	}

	seen = *proc;
	if (status && !copy_status(status, &seen, &status_pid, retries) &&
		proc->pid == pid)
	{
		/* In the middle of a change: what it was is the best guess. */
		*changed = false;
		return true;
	}

	if (status_pid == pid)
		*proc = seen;
	else
	{
		/* No entry yet, or none any more: then we may know what it was. */
		if (proc->pid != pid)
		{
			proc->kind = (PgscaleProcKind) B_INVALID;
			proc->datid = pgproc->databaseId;
			proc->userid = pgproc->roleId;
		}
		proc->state = STATE_UNDEFINED;
		proc->queryid = 0;
		proc->plan_id = 0;
		proc->activity_start = 0;
		proc->proc_start = 0;
		proc->changecount = 0;
	}

	proc->leader_pid = 0;
	proc->leader_slot = -1;

	/* A leader is a member of its own group, and no parallel worker. */
	leader = pgproc->lockGroupLeader;
	if (leader != NULL && leader != (PGPROC *) pgproc &&
		proc->kind == (PgscaleProcKind) B_BG_WORKER)
		adopt_leader(array, leader, proc, retries);

	proc->session = pgscale_proc_is_session(proc->kind);
	proc->has_cpu = proc->session || pgscale_is_io_worker(proc->kind);
	proc->running = (proc->state == STATE_RUNNING || proc->state == STATE_FASTPATH);
	proc->in_transaction = (proc->state == STATE_IDLEINTRANSACTION ||
							proc->state == STATE_IDLEINTRANSACTION_ABORTED);

	pg_read_barrier();
	proc->pid = pid;
	if (pgproc->procLatch.owner_pid != pid)
	{
		proc->pid = 0;
		return false;
	}
	return true;
}

bool
pgscale_procs_read_anew(int slot, PgscaleProc *proc)
{
	bool		changed;
	uint64		retries = 0;

	memset(proc, 0, sizeof(*proc));
	return pgscale_procs_read(slot, proc, &changed, &retries);
}

int
pgscale_procs_find(int pid, PgscaleProc *proc)
{
	for (int slot = 0; pid > 0 && slot < pgscale_procs_count(); slot++)
		if (pgscale_procs_in_use(slot) && pgscale_procs_read_anew(slot, proc) && proc->pid == pid)
			return slot;
	memset(proc, 0, sizeof(*proc));
	return -1;
}

/* The address as text; empty for a Unix socket. */
static void
put_address(const SockAddr *from, PgscaleProcClient *client)
{
	const void *address = NULL;

	if (from->addr.ss_family == AF_INET)
		address = &((const struct sockaddr_in *) &from->addr)->sin_addr;
	else if (from->addr.ss_family == AF_INET6)
		address = &((const struct sockaddr_in6 *) &from->addr)->sin6_addr;
	if (address)
		inet_ntop(from->addr.ss_family, address, client->address, sizeof(client->address));
}

bool
pgscale_procs_read_client(int slot, bool address, PgscaleProcClient *client)
{
	PgBackendStatus *array = pgscale_compat_status_array();
	volatile PgBackendStatus *status = array ? pgscale_compat_status_of(array, slot) : NULL;

	if (status == NULL)
		return false;
	for (int i = 0; i < MAX_RETRIES; i++)
	{
		SockAddr	from;
		int			before,
					after;

		pgstat_begin_read_activity(status, before);
		if (address)
			memcpy(&from, (const void *) &status->st_clientaddr, sizeof(from));
		memcpy(client->application_name, (const void *) status->st_appname, NAMEDATALEN);
		pgstat_end_read_activity(status, after);
		if (!pgstat_read_activity_complete(before, after))
			continue;

		client->application_name[NAMEDATALEN - 1] = '\0';
		client->address[0] = '\0';
		if (address)
			put_address(&from, client);
		return true;
	}
	return false;
}

bool
pgscale_procs_read_statement(int slot, PgscaleProcStatement *statement)
{
	PgBackendStatus *array = pgscale_compat_status_array();
	volatile PgBackendStatus *status = array ? pgscale_compat_status_of(array, slot) : NULL;
	const int	size = Min(pgstat_track_activity_query_size, PGSCALE_PROC_TEXT);

	if (status == NULL)
		return false;
	for (int i = 0; i < MAX_RETRIES; i++)
	{
		const char *query;
		int			before,
					after;

		pgstat_begin_read_activity(status, before);
		statement->pid = status->st_procpid;
		statement->proc_start = status->st_proc_start_timestamp;
		statement->activity_start = status->st_activity_start_timestamp;
		statement->state_start = status->st_state_start_timestamp;
		statement->xact_start = status->st_xact_start_timestamp;
		statement->queryid = pgscale_query_id(status->st_query_id);
		statement->datid = status->st_databaseid;
		statement->userid = status->st_userid;
		query = status->st_activity_raw;
		memcpy(statement->query, query, size);
		pgstat_end_read_activity(status, after);
		if (!pgstat_read_activity_complete(before, after))
			continue;

		statement->query[size - 1] = '\0';
		return true;
	}
	return false;
}

bool
pgscale_procs_mark(int slot, const PgscaleProc *proc, PgscaleProcMark *mark)
{
	PgBackendStatus *array = pgscale_compat_status_array();
	PgBackendStatus *status = array ? pgscale_compat_status_of(array, slot) : NULL;

	if (status == NULL || proc->changecount == 0)
		return false;
	mark->wait_event_at = pgscale_compat_wait_event_at(&ProcGlobal->allProcs[slot]);
	mark->changecount_at = &status->st_changecount;
	mark->wait_event = proc->wait_event;
	mark->changecount = proc->changecount;
	return true;
}

bool
pgscale_proc_is_worker(PgscaleProcKind kind)
{
	return kind == (PgscaleProcKind) B_BG_WORKER ||
		(kind >= PGSCALE_PROC_FIRST_TYPE && kind < PGSCALE_PROC_FIRST_TYPE + PGSCALE_PROC_TYPES);
}

bool
pgscale_proc_is_session(PgscaleProcKind kind)
{
	return kind == (PgscaleProcKind) B_BACKEND || kind == PGSCALE_PROC_PARALLEL;
}

const char *
pgscale_proc_kind_name(PgscaleProcKind kind)
{
	if (kind == PGSCALE_PROC_PARALLEL)
		return "parallel worker";
	if (kind == (PgscaleProcKind) B_INVALID)
		return "unknown";
	return GetBackendTypeDesc((BackendType) kind);
}

/* As pg_stat_activity.state; NULL where a process reports none. */
const char *
pgscale_proc_state_name(uint8 state)
{
	switch ((BackendState) state)
	{
		case STATE_UNDEFINED:
			return NULL;
		case STATE_IDLE:
			return "idle";
		case STATE_RUNNING:
			return "active";
		case STATE_IDLEINTRANSACTION:
			return "idle in transaction";
		case STATE_FASTPATH:
			return "fastpath function call";
		case STATE_IDLEINTRANSACTION_ABORTED:
			return "idle in transaction (aborted)";
		case STATE_DISABLED:
			return "disabled";
		default:				/* 18 has STATE_STARTING */
			return "starting";
	}
}
