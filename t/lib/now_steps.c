/*
 * Replay that waits, on a standby that this file makes up: does it still wait after a moment? now_steps(folder) returns a line for
 * each check: "ok" or "not ok", and its name.
 */
#include "postgres.h"

#include <math.h>
#include <unistd.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"

#include "base/kernel.h"
#include "base/pg_compat.h"
#include "base/processes.h"
#include "base/timer.h"
#include "base/wait_events.h"

#include "steps.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(now_steps);

/* What this process shows as its own wait, as if it replayed WAL: at first, and after a moment. */
static uint32 at_first;
static uint32 after_a_moment;

static void
show_wait(uint32 wait_event)
{
	*(volatile uint32 *) pgscale_compat_wait_event_at(MyProc) = wait_event;
}

#define pg_usleep(us)	show_wait(after_a_moment)

#include "now/now_processes.c"

static int
own_slot(void)
{
	return (int) (MyProc - ProcGlobal->allProcs);
}

int
pgscale_procs_count(void)
{
	return own_slot() + 1;
}

bool
pgscale_procs_read(int slot, PgscaleProc *proc, bool *changed, uint64 *retries)
{
	if (slot != own_slot())
		return false;
	proc->pid = MyProcPid;
	proc->kind = (PgscaleProcKind) B_STARTUP;
	proc->wait_event = at_first;
	show_wait(at_first);
	return true;
}

bool
pgscale_procs_read_client(int slot, bool address, PgscaleProcClient *client)
{
	return false;
}

bool
pgscale_procs_mark(int slot, const PgscaleProc *proc, PgscaleProcMark *mark)
{
	return false;
}

const char *
pgscale_proc_state_name(uint8 state)
{
	return "";
}

bool
pgscale_wait_of(const PgscaleProc *proc, uint32 *wait_event)
{
	return false;
}

const char *
pgscale_wait_event_type(uint32 wait_event)
{
	return "";
}

const char *
pgscale_wait_event_name(uint32 wait_event)
{
	return "";
}

int
pgscale_kernel_open_schedule(int pid)
{
	return -1;
}

bool
pgscale_kernel_read_schedule(int fd, PgscaleKernelSchedule *counts)
{
	return false;
}

double
pgscale_kernel_cpus(void)
{
	return 1;
}

int64
pgscale_timer_clock(void)
{
	return 0;
}

static uint32
wait_for_pin(void)
{
	uint32		wait_event = (uint32) 0x04000000;

	while (!pgscale_waits_for_pin(wait_event))
		wait_event++;
	return wait_event;
}

/* Is that the conflict that it names?  NULL: none. */
static void
names(uint32 first, uint32 then, const char *conflict, const char *name)
{
	Datum		found;
	char	   *text;

	at_first = first;
	after_a_moment = then;
	found = DirectFunctionCall1(pgscale_now_processes, (Datum) 0);
	show_wait(0);
	text = DatumGetCString(DirectFunctionCall1(jsonb_out, found));
	is(strstr(text, conflict ? psprintf("\"conflict\": \"%s\"", conflict) : "\"conflict\": null") != NULL, true, name);
}

Datum
now_steps(PG_FUNCTION_ARGS)
{
	const uint32 pin = wait_for_pin();
	const uint32 snapshot = WAIT_EVENT_RECOVERY_CONFLICT_SNAPSHOT;
	const uint32 lock = PG_WAIT_LOCK;

	initStringInfo(&lines);
	names(pin, pin, "pin", "replay that waits for a page, and still does after a moment: a conflict");
	names(pin, 0, NULL, "replay that goes on after a moment: none");
	names(pin, snapshot, NULL, "replay that then waits for a snapshot: none that is known for long enough");
	names(0, pin, NULL, "replay that begins to wait for a page: none");
	names(snapshot, 0, "snapshot", "waits for a snapshot are many short ones: a conflict");
	names(lock, 0, "lock", "a wait for a lock has a duration of its own: a conflict");
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}
