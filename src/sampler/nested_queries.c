/*-------------------------------------------------------------------------
 *
 * nested_queries.c
 *	  The nested statement that a backend executes.
 *
 * The server publishes only the identifier of the top-level statement.  To separate the
 * statements within a function, each backend stores the identifier of its current one
 * in its own slot: two plain stores to memory that no other backend writes, no lock.
 * Even that costs short statements something, so the hooks are installed only if
 * pgscale.sampler_nested is set when the server starts.
 *
 * Only its backend writes a slot.  The sampler reads identifier and pid; the pid of
 * another process means that the slot is a leftover.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "storage/shmem.h"
#include "tcop/utility.h"

#include "base/pg_compat.h"
#include "sampler/samples.h"

/* Of one process, which is its only writer; in cache lines of its own. */
typedef union NestedSlot
{
	struct
	{
		pg_atomic_uint64 queryid;
		int			pid;		/* whose that is */
	};
	char		pad[PG_CACHE_LINE_SIZE];
} NestedSlot;

static NestedSlot *slots = NULL;

/* How many statements this backend is inside of. */
static int	depth = 0;

static ExecutorRun_hook_type prev_ExecutorRun = NULL;
static ExecutorFinish_hook_type prev_ExecutorFinish = NULL;
static ProcessUtility_hook_type prev_ProcessUtility = NULL;

/* The allProcs array is not yet there when shared memory is requested. */
static int
max_slots(void)
{
	return MaxBackends + NUM_AUXILIARY_PROCS;
}

static Size
nested_size(void)
{
	return pgscale_sampler_settings.nested ? mul_size(max_slots(), sizeof(NestedSlot)) : 0;
}

static void
nested_init(void)
{
	for (int i = 0; i < max_slots(); i++)
	{
		pg_atomic_init_u64(&slots[i].queryid, 0);
		slots[i].pid = 0;
	}
}

/*
 * Enters a statement and returns what to hand to nested_leave() after it.  At the
 * top level, and for a statement without an identifier, the slot stays.
 */
static uint64
nested_enter(int64 queryid)
{
	NestedSlot *slot = &slots[MyProcNumber];
	uint64		outer = 0;

	/* What another process left in the slot when it died is not ours. */
	if (slot->pid == MyProcPid)
		outer = pg_atomic_read_u64(&slot->queryid);

	if (depth++ > 0 && queryid != 0)
	{
		pg_atomic_write_u64(&slot->queryid, (uint64) queryid);
		if (slot->pid != MyProcPid)
		{
			/*
			 * A reader that sees our pid must not see the previous contents.
			 */
			pg_write_barrier();
			slot->pid = MyProcPid;
		}
	}
	return outer;
}

static void
nested_leave(uint64 outer)
{
	depth--;
	pg_atomic_write_u64(&slots[MyProcNumber].queryid, outer);
}

/* In each of these: a statement that fails is left as well, or the session would seem to be in it for ever. */
static void
nested_ExecutorRun(PGSCALE_EXECUTOR_RUN_PARAMS)
{
	volatile uint64 outer = nested_enter(pgscale_query_id(queryDesc->plannedstmt->queryId));

	PG_TRY();
	{
		if (prev_ExecutorRun)
			prev_ExecutorRun(PGSCALE_EXECUTOR_RUN_ARGS);
		else
			standard_ExecutorRun(PGSCALE_EXECUTOR_RUN_ARGS);
	}
	PG_FINALLY();
	{
		nested_leave(outer);
	}
	PG_END_TRY();
}

/* Triggers that wait for the end of the statement run here. */
static void
nested_ExecutorFinish(QueryDesc *queryDesc)
{
	volatile uint64 outer = nested_enter(pgscale_query_id(queryDesc->plannedstmt->queryId));

	PG_TRY();
	{
		if (prev_ExecutorFinish)
			prev_ExecutorFinish(queryDesc);
		else
			standard_ExecutorFinish(queryDesc);
	}
	PG_FINALLY();
	{
		nested_leave(outer);
	}
	PG_END_TRY();
}

static void
nested_ProcessUtility(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
					  ProcessUtilityContext context, ParamListInfo params,
					  QueryEnvironment *queryEnv, DestReceiver *dest,
					  QueryCompletion *qc)
{
	/* What EXECUTE runs is the statement itself, not one nested in it. */
	const bool	nested = !IsA(pstmt->utilityStmt, ExecuteStmt) && !IsA(pstmt->utilityStmt, PrepareStmt);
	volatile uint64 outer = nested ? nested_enter(pgscale_query_id(pstmt->queryId)) : 0;

	PG_TRY();
	{
		(prev_ProcessUtility ? prev_ProcessUtility : standard_ProcessUtility)
			(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	}
	PG_FINALLY();
	{
		if (nested)
			nested_leave(outer);
	}
	PG_END_TRY();
}

void
pgscale_sampler_nested_install(void)
{
	prev_ExecutorRun = ExecutorRun_hook;
	ExecutorRun_hook = nested_ExecutorRun;
	prev_ExecutorFinish = ExecutorFinish_hook;
	ExecutorFinish_hook = nested_ExecutorFinish;
	prev_ProcessUtility = ProcessUtility_hook;
	ProcessUtility_hook = nested_ProcessUtility;
}

int64
pgscale_sampler_nested_queryid(int slot, const PgscaleProc *proc)
{
	/* A parallel worker counts for what its leader is in. */
	bool		parallel = proc->leader_slot >= 0;
	NestedSlot *s;

	if (slots == NULL)
		return 0;
	s = &slots[parallel ? proc->leader_slot : slot];
	if (*(volatile int *) &s->pid != (parallel ? proc->leader_pid : proc->pid))
		return 0;
	pg_read_barrier();
	return (int64) pg_atomic_read_u64(&s->queryid);
}

const PgscaleArea pgscale_sampler_nested_area = {
	.name = "pgscale sampler nested",
	.at = (void **) &slots,
	.computed = nested_size,
	.init = nested_init,
};
