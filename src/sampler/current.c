/*-------------------------------------------------------------------------
 *
 * current.c
 *	  The current wait of every process, and how many of the server's connections are in
 *	  use, what they do, and the most that were in use at a time.
 *
 * The calling backend reads the processes itself, without a lock: it needs no worker and no
 * shared memory of pgscale, and so no preload.
 *
 * A connection is a slot of max_connections.  The server takes it before it
 * authenticates the client and gives it back when the session ends, so the slots in use
 * are exactly the connections that count against the limit, sessions that are not in
 * pg_stat_activity yet included.
 *
 * The peaks need the sampler, which counts the slots in use at each tick: since its
 * statistics were reset or the server started (sampler.c), and of each second of
 * the last hour (timeline.c).  A connection that lasts for less than a tick may be missed.
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
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/processes.h"
#include "base/row_builder.h"
#include "base/wait_events.h"
#include "sampler/past/past.h"
#include "sampler/sampler.h"

PG_FUNCTION_INFO_V1(pgscale_wait_current);
PG_FUNCTION_INFO_V1(pgscale_connections);
PG_FUNCTION_INFO_V1(pgscale_connections_peak);

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
	uint32		wait_event;
	const bool	known = pgscale_wait_of(proc, &wait_event);
	PgscaleRow	row = {0};

	pgscale_row_int4(&row, proc->pid);
	pgscale_row_text(&row, kind_name(proc));
	pgscale_row_pid(&row, proc->leader_pid);
	pgscale_row_oid(&row, proc->datid);
	pgscale_row_oid(&row, proc->userid);
	pgscale_row_id(&row, pgscale_proc_running_queryid(proc));
	pgscale_row_text(&row, pgscale_proc_state_name(proc->state));
	pgscale_row_text(&row, known ? pgscale_wait_event_type(wait_event) : NULL);
	pgscale_row_text(&row, known ? pgscale_wait_event_name(wait_event) : NULL);
	pgscale_row_end(&row, rsinfo);
}

/* pgscale.wait_current: one row for each process. */
Datum
pgscale_wait_current(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int slot = 0; slot < pgscale_procs_count(); slot++)
	{
		PgscaleProc proc;

		if (pgscale_procs_read_anew(slot, &proc))
			put_proc(rsinfo, &proc);
	}
	return (Datum) 0;
}

/* Connections in use, by what they do. */
typedef struct Connections
{
	int			used;
	int			active;
	int			idle;
	int			in_transaction;
} Connections;

static void
connections_count(Connections *c)
{
	memset(c, 0, sizeof(*c));
	for (int slot = 0; pgscale_procs_is_connection(slot); slot++)
	{
		PgscaleProc proc;

		if (!pgscale_procs_read_anew(slot, &proc))
			continue;
		c->used++;
		c->active += proc.running;
		c->in_transaction += proc.in_transaction;
		c->idle += proc.state == STATE_IDLE;
	}
}

/* The value of a setting that is a number; 0 where this server does not have it. */
static int
connections_setting(const char *name)
{
	const char *value = GetConfigOption(name, true, false);

	return value ? atoi(value) : 0;
}

/*
 * pgscale_internal.connections(): one row.  The peak is NULL without preload, and until the
 * sampler's first tick.
 */
Datum
pgscale_connections(PG_FUNCTION_ARGS)
{
	Connections c;
	PgscaleSamplerStats s = {0};
	PgscaleRow	row = {0};

	connections_count(&c);
	if (pgscale_preload_done())
		pgscale_sampler_stats_copy(&s);

	pgscale_row_int4(&row, c.used);
	pgscale_row_int4(&row, c.active);
	pgscale_row_int4(&row, c.idle);
	pgscale_row_int4(&row, c.in_transaction);
	pgscale_row_int4(&row, c.used - c.active - c.idle - c.in_transaction);
	pgscale_row_int4(&row, connections_setting("superuser_reserved_connections") + connections_setting("reserved_connections"));
	pgscale_row_int4(&row, MaxConnections);
	pgscale_row_put(&row, Int32GetDatum(Max(s.connections_peak, c.used)), s.connections_since == 0);
	pgscale_row_timestamp(&row, s.connections_since);
	return pgscale_row_result(&row, fcinfo);
}

/*
 * pgscale_internal.connections_peak(since): the most connections at a tick since then, or in
 * the last hour if that is later or since is NULL; NULL if the sampler observed none of that time.
 */
Datum
pgscale_connections_peak(PG_FUNCTION_ARGS)
{
	int			most;

	pgscale_preload_require();
	most = pgscale_sampler_timeline_connections(PG_ARGISNULL(0) ? DT_NOBEGIN : PG_GETARG_TIMESTAMPTZ(0));
	if (most < 0)
		PG_RETURN_NULL();
	PG_RETURN_INT32(most);
}
