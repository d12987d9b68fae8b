/*
 * Puts sessions into one lock group, as a parallel query does with its leader and workers. Here the leader can leave first.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/procarray.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(lock_group);

/* The group of that process, of which it is to be the leader or a member. */
Datum
lock_group(PG_FUNCTION_ARGS)
{
	const int	pid = PG_GETARG_INT32(0);
	PGPROC	   *leader = BackendPidGetProc(pid);

	if (pid == MyProcPid)
		BecomeLockGroupLeader();
	PG_RETURN_BOOL(leader != NULL && (pid == MyProcPid || BecomeLockGroupMember(leader, pid)));
}
