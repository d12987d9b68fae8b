/*-------------------------------------------------------------------------
 *
 * now_processes.c
 *	  All processes of this moment: how many sessions do what, which are the oldest, and
 *	  which of them run on a CPU or queue for one.
 *
 * One scan of PGPROC and PgBackendStatus through base/processes, without a lock and without
 * texts, which the SQL adds for the few sessions that count.  pg_stat_activity would search
 * all processes for each of them.
 *
 * Whether a session really has a CPU only the kernel knows.  So for at most 64 sessions, the
 * oldest first, its counts are compared with those that the sampler has read in the last second,
 * or in the last three seconds if a statement has no identifier.  Without these they are read twice,
 * 15 ms apart.  In that time it is also seen which flushes of WAL last for all of it, if none are
 * counted, and whether replay still waits for a pinned page.
 *
 * Needs no preload.  Failure: a process that ends meanwhile is left out; without the kernel's
 * counts the CPU's members are missing.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>
#include <unistd.h>

#include "catalog/pg_authid_d.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "replication/syncrep.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "base/evidence.h"
#include "base/kernel.h"
#include "base/pg_compat.h"
#include "base/processes.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/wait_events.h"
#include "base/wait_kinds.h"
#include "now/now.h"
#include "now/now_evidence.h"

#define OLDEST			8
#define WATCHED			64
#define APPLICATIONS	64
#define CLASSES			16		/* of wait events */

/* How long the kernel's counts are watched, at least; the sampler has read those of a session that is at work for twice as long. */
#define LOOK_NS			(15 * NS_PER_MS)

/* A session that started within this time is new. */
#define NEW_US			(10 * USECS_PER_SEC)

PG_FUNCTION_INFO_V1(pgscale_now_processes);

/* A session whose CPU is looked at. */
typedef struct Watched
{
	int			pid;
	int			leader_pid;		/* of a parallel worker, else 0 */
	bool		on_cpu;			/* it showed no wait event */
	bool		marked;
	PgscaleProcMark mark;		/* of that moment */
	int64		age_ns;			/* of its statement */
	int64		life_ns;		/* of its process */
	bool		kept;			/* the sampler has read it */
	PgscaleCpuReading before;	/* its clock is 0: the kernel does not tell */
	double		life_s;			/* ran and queued since the process began */
	double		ran_s;			/* of that, ran */
	double		run;			/* of the time watched, 0 .. 1; -1: unknown */
	double		queue;
} Watched;

typedef struct Application
{
	char		name[NAMEDATALEN];
	int			sessions;
	int			idle;
} Application;

typedef struct NowScan
{
	TimestampTz now;
	PgscaleProc *sessions;		/* those at work or in a transaction, the
								 * caller left out, with parallel workers */
	int		   *slots;			/* of each */
	int			nsessions;

	int			used;			/* slots of max_connections */
	int			idle;
	int			in_transaction;
	int			starting;		/* that are not authenticated yet */
	int			new;
	XLogRecPtr	sync_lsn;		/* the first that a commit waits for until
								 * standbys have it; or none */
	int			startup_slot;	/* of the process that replays WAL; or -1 */
	int			startup_pid;
	uint32		startup_event;
	const char *conflict;		/* what it waits for, if sessions can be in
								 * its way; or NULL */
	uint32		checkpointer_event;
	bool		checkpoint;		/* the checkpointer is at work, or sleeps
								 * between two writes of a checkpoint */

	int64		waits[PGSCALE_WAIT_KINDS];	/* sessions in each kind */
	int64		locks;			/* and in any wait of the class Lock */
	int			classes[CLASSES];	/* and in each class, by its number */
	Application applications[APPLICATIONS];
	int			napplications;

	int			leaders[WATCHED];	/* of parallel workers on CPU, by pid */
	int			nleaders;
	Watched		watched[WATCHED];
	int			nwatched;
	double		look_s;
	int			stuck;			/* flushes of WAL that lasted all of that */
} NowScan;

static void
count_wait(NowScan *scan, uint32 wait_event)
{
	const int	kind = pgscale_wait_kind_of(wait_event);

	if (kind < 0)
		return;
	scan->waits[kind]++;
	if (wait_event >> 24 < CLASSES)
		scan->classes[wait_event >> 24]++;
	if ((wait_event & PGSCALE_WAIT_CLASS) == PG_WAIT_LOCK)
		scan->locks++;
}

static void
count_application(NowScan *scan, int slot, bool idle)
{
	PgscaleProcClient client;
	int			i = 0;

	if (!pgscale_procs_read_client(slot, false, &client))
		return;
	while (i < scan->napplications && strcmp(scan->applications[i].name, client.application_name) != 0)
		i++;
	if (i == APPLICATIONS)
		return;
	if (i == scan->napplications)
	{
		memset(&scan->applications[i], 0, sizeof(Application));
		strlcpy(scan->applications[i].name, client.application_name, NAMEDATALEN);
		scan->napplications++;
	}
	scan->applications[i].sessions++;
	scan->applications[i].idle += idle;
}

/* What sessions do that replay can wait for by this event; NULL: nothing. */
static const char *
conflict_name(uint32 wait_event)
{
	if (wait_event == WAIT_EVENT_RECOVERY_CONFLICT_SNAPSHOT)
		return "snapshot";
	if (wait_event == WAIT_EVENT_RECOVERY_CONFLICT_TABLESPACE)
		return "tablespace";
	if ((wait_event & PGSCALE_WAIT_CLASS) == PG_WAIT_LOCK)
		return "lock";
	return pgscale_waits_for_pin(wait_event) ? "pin" : NULL;
}

static void
count_process(NowScan *scan, int slot, const PgscaleProc *proc, bool applications)
{
	if (proc->kind == (PgscaleProcKind) B_STARTUP)
	{
		scan->startup_slot = slot;
		scan->startup_pid = proc->pid;
		scan->startup_event = proc->wait_event;
		scan->conflict = conflict_name(proc->wait_event);
	}
	else if (proc->kind == (PgscaleProcKind) B_CHECKPOINTER)
	{
		scan->checkpointer_event = proc->wait_event;
		scan->checkpoint = proc->wait_event != WAIT_EVENT_CHECKPOINTER_MAIN;
	}
	/* as pgscale_internal.connections() counts them */
	if (pgscale_procs_is_connection(slot))
	{
		const bool	idle = proc->state == STATE_IDLE;

		scan->used++;
		scan->idle += idle;
		scan->in_transaction += proc->in_transaction;

		/*
		 * until then it has no status, or from 18 on one that comes before
		 * idle
		 */
		scan->starting += proc->changecount == 0 || proc->state < (uint8) STATE_IDLE;
		scan->new += proc->proc_start != 0 && proc->proc_start <= scan->now && proc->proc_start > scan->now - NEW_US;
		if (applications)
			count_application(scan, slot, idle);
	}
	if (proc->wait_event == WAIT_EVENT_SYNC_REP)
	{
		/* the session's own, read without SyncRepLock: it may be over by now */
		const XLogRecPtr lsn = ((volatile PGPROC *) &ProcGlobal->allProcs[slot])->waitLSN;

		if (!XLogRecPtrIsInvalid(lsn) && (XLogRecPtrIsInvalid(scan->sync_lsn) || lsn < scan->sync_lsn))
			scan->sync_lsn = lsn;
	}
	if (!proc->session)
		return;
	if (proc->pid == MyProcPid || proc->leader_pid == MyProcPid)
		return;
	if (proc->leader_pid == 0 && !proc->running && !proc->in_transaction)
		return;
	if (!proc->in_transaction)
		count_wait(scan, proc->wait_event);
	if (proc->leader_pid != 0 && proc->wait_event == PGSCALE_WAIT_CPU && scan->nleaders < WATCHED)
		scan->leaders[scan->nleaders++] = proc->leader_pid;
	scan->sessions[scan->nsessions] = *proc;
	scan->slots[scan->nsessions++] = slot;
}

static void
scan_processes(NowScan *scan)
{
	const int	n = pgscale_procs_count();
	const bool	applications = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);

	scan->sessions = palloc_extended(n * sizeof(PgscaleProc), MCXT_ALLOC_HUGE);
	scan->slots = palloc_extended(n * sizeof(int), MCXT_ALLOC_HUGE);
	for (int slot = 0; slot < n; slot++)
	{
		PgscaleProc proc;

		if (pgscale_procs_read_anew(slot, &proc))
			count_process(scan, slot, &proc, applications);
	}
}

/* Seconds since its statement began, or since its last one did; never negative, whatever a clock was set to. */
static double
age_of(const NowScan *scan, const PgscaleProc *proc)
{
	return proc->activity_start == 0 || proc->activity_start > scan->now ? 0 :
		(scan->now - proc->activity_start) / (double) USECS_PER_SEC;
}

/* Is it a session that computes, or whose parallel workers do? */
static bool
is_computing(const NowScan *scan, const PgscaleProc *proc)
{
	if (!proc->running || proc->leader_pid != 0)
		return false;
	if (proc->wait_event == PGSCALE_WAIT_CPU)
		return true;
	for (int i = 0; i < scan->nleaders; i++)
		if (scan->leaders[i] == proc->pid)
			return true;
	return false;
}

/* Is it among those that have been at their statement for longest?  They are few; a search for each is cheap. */
static int
find_oldest(const NowScan *scan, bool computing, int *oldest)
{
	int			n = 0;

	for (int i = 0; i < scan->nsessions; i++)
	{
		const PgscaleProc *proc = &scan->sessions[i];
		const double age = age_of(scan, proc);
		int			at = n;

		if (proc->leader_pid != 0 || (n == OLDEST && age <= age_of(scan, &scan->sessions[oldest[n - 1]])))
			continue;
		if (computing && !is_computing(scan, proc))
			continue;
		while (at > 0 && age > age_of(scan, &scan->sessions[oldest[at - 1]]))
			at--;
		n = Min(n + 1, OLDEST);
		for (int to = n - 1; to > at; to--)
			oldest[to] = oldest[to - 1];
		oldest[at] = i;
	}
	return n;
}

static void
watch_session(NowScan *scan, int i)
{
	const PgscaleProc *proc = &scan->sessions[i];
	Watched    *w = &scan->watched[scan->nwatched];

	for (int other = 0; other < scan->nwatched; other++)
		if (scan->watched[other].pid == proc->pid)
			return;
	if (scan->nwatched == WATCHED)
		return;
	w->pid = proc->pid;
	w->leader_pid = proc->leader_pid;
	w->on_cpu = proc->wait_event == PGSCALE_WAIT_CPU;
	w->marked = pgscale_procs_mark(scan->slots[i], proc, &w->mark);
	w->age_ns = age_of(scan, proc) * NS_PER_S;
	w->life_ns = (scan->now - proc->proc_start) * NS_PER_US;
	w->run = w->queue = -1;
	scan->nwatched++;
}

static void
choose_watched(NowScan *scan, const int *computing, int ncomputing)
{
	for (int c = 0; c < ncomputing; c++)
	{
		watch_session(scan, computing[c]);
		for (int i = 0; i < scan->nsessions; i++)
			if (scan->sessions[i].leader_pid == scan->sessions[computing[c]].pid)
				watch_session(scan, i);
	}
	for (int i = 0; i < scan->nsessions; i++)
		if (scan->sessions[i].wait_event == PGSCALE_WAIT_CPU && !scan->sessions[i].in_transaction)
			watch_session(scan, i);
}

/* Nothing in here raises an error while the file is open. */
static bool
read_schedule(int pid, PgscaleKernelSchedule *counts)
{
	const int	fd = pgscale_kernel_open_schedule(pid);
	const bool	known = fd >= 0 && pgscale_kernel_read_schedule(fd, counts);

	if (fd >= 0)
		close(fd);
	return known;
}

/*
 * What the kernel counted of one of them meanwhile.  The time in a queue is counted at its end: one that
 * did not run queued all the time, unless it shows that it slept, or began its statement meanwhile.
 */
static void
look_end(Watched *w)
{
	const int64 ns = pgscale_timer_clock() - w->before.clock_ns;
	PgscaleKernelSchedule after;

	if (w->before.clock_ns != 0 && ns >= LOOK_NS / 2 && read_schedule(w->pid, &after))
	{
		const double run = after.run_ns - w->before.counts.run_ns;
		const double queue = after.queue_ns - w->before.counts.queue_ns;

		w->life_s = (after.run_ns + after.queue_ns) / (double) NS_PER_S;
		w->ran_s = after.run_ns / (double) NS_PER_S;
		w->run = Min(Max(run / ns, 0), 1);
		w->queue = Min(Max(queue / ns, 0), 1);
		if (w->on_cpu && run <= 0 && queue <= 0 && w->marked && pgscale_proc_same(&w->mark) && (!w->kept || w->age_ns >= ns))
			w->queue = 1;
	}
}

/*
 * Replay waits for pages for moments, which is no conflict; one page after the other looks like a
 * long one.  How long it waits for a lock is known; its waits for snapshots are made of many short ones.
 */
static bool
is_passing_conflict(const NowScan *scan)
{
	return scan->conflict && strcmp(scan->conflict, "pin") == 0 &&
		*pgscale_compat_wait_event_at(&ProcGlobal->allProcs[scan->startup_slot]) != scan->startup_event;
}

/* A signal, as of a notification, ends a sleep early. */
static void
look_until(int64 ns)
{
	int64		left;

	while ((left = ns - pgscale_timer_clock()) > 0)
		pg_usleep(left / NS_PER_US + 1);
}

static void
look_at_cpus(NowScan *scan, bool watch_flushes)
{
	PgscaleProcMark marks[WATCHED];
	int			nmarks = 0;
	const int64 begin = pgscale_timer_clock();
	int			nkept = 0;
	bool		look;

	for (int i = 0; watch_flushes && i < scan->nsessions && nmarks < WATCHED; i++)
		if (scan->sessions[i].wait_event == WAIT_EVENT_WAL_SYNC &&
			pgscale_procs_mark(scan->slots[i], &scan->sessions[i], &marks[nmarks]))
			nmarks++;
	look = scan->conflict || nmarks > 0;
	for (int i = 0; i < scan->nwatched; i++)
	{
		Watched    *w = &scan->watched[i];

		/* one that is older than the process is of another, which had its pid */
		w->kept = pgscale_evidence_find_cpu(w->pid, begin - LOOK_NS, &w->before) && w->before.clock_ns >= begin - w->life_ns;
		nkept += w->kept;
		look = look || (!w->kept && w->age_ns >= 2 * LOOK_NS);
		if (!w->kept)
			w->before.clock_ns = read_schedule(w->pid, &w->before.counts) ? pgscale_timer_clock() : 0;
	}
	if (look || (scan->nwatched > 0 && nkept == 0))
		look_until(pgscale_timer_clock() + LOOK_NS);
	if (is_passing_conflict(scan))
		scan->conflict = NULL;
	scan->look_s = (pgscale_timer_clock() - begin) / (double) NS_PER_S;
	for (int i = 0; i < nmarks; i++)
		scan->stuck += pgscale_proc_same(&marks[i]);
	for (int i = 0; i < scan->nwatched; i++)
		look_end(&scan->watched[i]);
}

static void
put_name(StringInfo out, const char *name, const char *value)
{
	appendStringInfo(out, ", \"%s\": ", name);
	if (value)
		escape_json(out, value);
	else
		appendStringInfoString(out, "null");
}

/*
 * CPUs that a session uses with its parallel workers, -1: unknown; those that it would use if it
 * did not queue; and the time that these processes ran or queued, and ran, since they began.
 */
static double
cpus_of(const NowScan *scan, int pid, double *demand, double *life_s, double *ran_s)
{
	double		sum = -1;

	*demand = *life_s = *ran_s = 0;

	for (int i = 0; i < scan->nwatched; i++)
	{
		const Watched *w = &scan->watched[i];

		if ((w->pid == pid || w->leader_pid == pid) && w->run >= 0)
		{
			sum = Max(sum, 0) + w->run;
			*demand += Min(w->run + w->queue, 1);
			*life_s += w->life_s;
			*ran_s += w->ran_s;
		}
	}
	return sum;
}

static void
put_chosen_sessions(StringInfo out, const char *name, const NowScan *scan, const int *chosen, int n)
{
	appendStringInfo(out, ", \"%s\": [", name);
	for (int c = 0; c < n; c++)
	{
		const PgscaleProc *proc = &scan->sessions[chosen[c]];
		double		demand;
		double		life_s;
		double		ran_s;
		const double cpus = cpus_of(scan, proc->pid, &demand, &life_s, &ran_s);
		int			workers = 0;
		uint32		wait_event;

		for (int i = 0; i < scan->nsessions; i++)
			workers += scan->sessions[i].leader_pid == proc->pid;
		if (!pgscale_wait_of(proc, &wait_event))
			wait_event = proc->wait_event;
		appendStringInfo(out, "%s{\"pid\": %d, \"age_s\": %.3f, \"running\": %s, \"workers\": %d", c > 0 ? ", " : "",
						 proc->pid, age_of(scan, proc), proc->running ? "true" : "false", workers);
		if (cpus >= 0)
			appendStringInfo(out, ", \"cpus\": %.3f, \"demand\": %.3f, \"cpu_s\": %.3f, \"ran_s\": %.3f", cpus, demand, life_s, ran_s);
		put_name(out, "state", pgscale_proc_state_name(proc->state));
		put_name(out, "event_type", pgscale_wait_event_type(wait_event));
		put_name(out, "event", pgscale_wait_event_name(wait_event));
		appendStringInfoChar(out, '}');
	}
	appendStringInfoChar(out, ']');
}

static void
put_classes(StringInfo out, const NowScan *scan)
{
	bool		first = true;

	appendStringInfoString(out, ", \"classes\": {");
	for (int class = 0; class < CLASSES; class++)
	{
		const char *type = pgscale_wait_event_type((uint32) class << 24);

		if (scan->classes[class] == 0)
			continue;
		appendStringInfoString(out, first ? "" : ", ");
		escape_json(out, type ? type : "CPU");
		appendStringInfo(out, ": %d", scan->classes[class]);
		first = false;
	}
	appendStringInfoChar(out, '}');
}

/* Of those that showed no wait event: the part of their time at the CPUs in which they queued. */
static void
put_queue(StringInfo out, const NowScan *scan)
{
	double		run = 0;
	double		queue = 0;

	for (int i = 0; i < scan->nwatched; i++)
		if (scan->watched[i].on_cpu && scan->watched[i].run >= 0)
		{
			run += scan->watched[i].run;
			queue += scan->watched[i].queue;
		}
	if (run + queue > 0)
		appendStringInfo(out, ", \"queued_fraction\": %.4f", queue / (run + queue));
}

static void
put_application(StringInfo out, const NowScan *scan)
{
	const Application *most = NULL;

	for (int i = 0; i < scan->napplications; i++)
		if (!most || scan->applications[i].sessions > most->sessions)
			most = &scan->applications[i];
	if (!most)
		return;
	put_name(out, "application", most->name);
	appendStringInfo(out, ", \"application_sessions\": %d, \"application_idle\": %d", most->sessions, most->idle);
}

/* Computing sessions whose statement has lasted for so long. */
static int
count_long(const NowScan *scan, double s)
{
	int			n = 0;

	for (int i = 0; i < scan->nsessions; i++)
		n += scan->sessions[i].running && scan->sessions[i].leader_pid == 0 && scan->sessions[i].wait_event == PGSCALE_WAIT_CPU &&
			age_of(scan, &scan->sessions[i]) >= s;
	return n;
}

/* pgscale_internal.now_processes(watch_flushes): the counts, the sessions at the oldest statements, and those of them that compute. */
Datum
pgscale_now_processes(PG_FUNCTION_ARGS)
{
	NowScan    *scan = palloc0(sizeof(NowScan));
	int			oldest[OLDEST];
	int			computing[OLDEST];
	int			noldest;
	int			ncomputing;
	StringInfoData out;

	scan->now = GetCurrentTimestamp();
	scan->startup_slot = -1;
	scan_processes(scan);
	CHECK_FOR_INTERRUPTS();
	noldest = find_oldest(scan, false, oldest);
	ncomputing = find_oldest(scan, true, computing);
	choose_watched(scan, computing, ncomputing);
	look_at_cpus(scan, PG_GETARG_BOOL(0));
	CHECK_FOR_INTERRUPTS();

	initStringInfo(&out);
	appendStringInfo(&out, "{\"used\": %d, \"idle\": %d, \"idle_in_transaction\": %d, \"starting\": %d, \"new\": %d, "
					 "\"max_connections\": %d, \"cpus\": %g, \"look_s\": %.4f, \"stuck_flushes\": %d, \"long_computing\": %d, "
					 "\"checkpoint\": %s, \"sync_wanted\": %d, \"startup_pid\": %d, \"forgotten_xids\": %d, \"forgotten_s\": %d",
					 scan->used, scan->idle, scan->in_transaction, scan->starting, scan->new,
					 MaxConnections, rint(pgscale_kernel_cpus() * 100) / 100, scan->look_s, scan->stuck, count_long(scan, 5),
					 scan->checkpoint ? "true" : "false", SyncRepConfig ? SyncRepConfig->num_sync : 0, scan->startup_pid,
					 PGSCALE_NOW_FORGOTTEN_XIDS, PGSCALE_NOW_FORGOTTEN_S);
	put_name(&out, "checkpointer_event", scan->checkpointer_event != 0 ? pgscale_wait_event_name(scan->checkpointer_event) : NULL);
	put_name(&out, "conflict", scan->conflict);
	if (!XLogRecPtrIsInvalid(scan->sync_lsn))
		appendStringInfo(&out, ", \"sync_lsn\": \"%X/%X\"", LSN_FORMAT_ARGS(scan->sync_lsn));
	put_application(&out, scan);
	put_queue(&out, scan);
	pgscale_now_put_waits(&out, scan->waits, scan->locks, 1);
	put_classes(&out, scan);
	put_chosen_sessions(&out, "sessions", scan, oldest, noldest);
	put_chosen_sessions(&out, "computing", scan, computing, ncomputing);
	appendStringInfoChar(&out, '}');
	PG_RETURN_DATUM(DirectFunctionCall1(jsonb_in, CStringGetDatum(out.data)));
}
