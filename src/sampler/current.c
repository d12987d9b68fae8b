/*-------------------------------------------------------------------------
 *
 * current.c
 *	  The current wait of every process.
 *
 * The calling backend reads it itself: it needs no worker and no shared memory of
 * pgscale, and so no preload.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "base/pg_compat.h"
#include "base/processes.h"
#include "base/wait_events.h"

PG_FUNCTION_INFO_V1(pgscale_wait_current);

/* As pg_stat_activity has it: a background worker by its type. */
static const char *
kind_name(const PgscaleProc *proc)
{
	const char *type = NULL;

	if (proc->kind == (PgscaleProcKind) B_BG_WORKER)
		type = GetBackgroundWorkerTypeByPid(proc->pid);
	return type ? type : pgscale_proc_kind_name(proc->kind);
}

static void
put_proc(ReturnSetInfo *rsinfo, const PgscaleProc *proc)
{
	int64		queryid = pgscale_proc_running_queryid(proc);
	const char *state = pgscale_proc_state_name(proc->state);
	uint32		wait_event;
	Datum		values[9] = {0};
	bool		nulls[9] = {0};

	values[0] = Int32GetDatum(proc->pid);
	values[1] = CStringGetTextDatum(kind_name(proc));
	values[2] = Int32GetDatum(proc->leader_pid);
	nulls[2] = (proc->leader_pid == 0);
	values[3] = ObjectIdGetDatum(proc->datid);
	nulls[3] = !OidIsValid(proc->datid);
	values[4] = ObjectIdGetDatum(proc->userid);
	nulls[4] = !OidIsValid(proc->userid);
	values[5] = Int64GetDatum(queryid);
	nulls[5] = (queryid == 0);
	if (state)
		values[6] = CStringGetTextDatum(state);
	else
		nulls[6] = true;

	if (!pgscale_wait_of(proc, &wait_event))
		nulls[7] = nulls[8] = true;
	else
	{
		values[7] = CStringGetTextDatum(pgscale_wait_event_type(wait_event));
		values[8] = CStringGetTextDatum(pgscale_wait_event_name(wait_event));
	}
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * pgscale.wait_current(pid): one row for the process, or for every one if
 * pid is NULL.
 */
Datum
pgscale_wait_current(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	bool		all = PG_ARGISNULL(0);
	int			pid = all ? 0 : PG_GETARG_INT32(0);
	bool		seen = false;

	InitMaterializedSRF(fcinfo, 0);
	for (int slot = 0; slot < pgscale_procs_count(); slot++)
	{
		PgscaleProc proc = {0};
		bool		changed;
		uint64		retries = 0;

		if (!pgscale_procs_read(slot, &proc, &changed, &retries) ||
			(!all && proc.pid != pid))
			continue;
		seen = true;
		put_proc(rsinfo, &proc);
	}

	if (!all && !seen)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("no server process has PID %d", pid),
				 errhint("pgscale.wait_current lists the processes.")));
	return (Datum) 0;
}
