/*
 * Puts sessions into one lock group, as a parallel query does with its leader and workers. Here the leader can leave first.
 */
#include "postgres.h"

#include "fmgr.h"
#include "storage/proc.h"
#include "storage/procarray.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(lead_lock_group);
PG_FUNCTION_INFO_V1(join_lock_group);

Datum
lead_lock_group(PG_FUNCTION_ARGS)
{
	BecomeLockGroupLeader();
	PG_RETURN_VOID();
}

Datum
join_lock_group(PG_FUNCTION_ARGS)
{
	const int	pid = PG_GETARG_INT32(0);
	PGPROC	   *leader = BackendPidGetProc(pid);

	PG_RETURN_BOOL(leader != NULL && BecomeLockGroupMember(leader, pid));
}
