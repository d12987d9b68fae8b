/*
 * Holds LWLocks of the server for as long as a file is there. Whoever holds one, or waits for one, cannot be cancelled; so
 * the file's time is bounded. Preloaded, it also asks for a tranche of its own; and it makes pgscale believe in another
 * layout of LWLocks if the environment has WRONG_LAYOUT, which takes a pgscale that shows what it knows (PostgreSQL 15).
 */
#include "postgres.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "access/relation.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "utils/builtins.h"
#include "utils/rel.h"

#define OWN_TRANCHE	"hold_lwlock"
#define OWN_LOCKS	8
#define LIMIT_MS	60000

PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

PG_FUNCTION_INFO_V1(hold_lwlock);
PG_FUNCTION_INFO_V1(hold_buffer);
PG_FUNCTION_INFO_V1(advisory_partition);

static shmem_request_hook_type previous_request = NULL;

/* Shows in another file that it is at it, if there is anything to wait for. */
static void
until_gone(const char *file)
{
	if (access(file, F_OK) == 0)
	{
		int			shown = open(psprintf("%s.held", file), O_CREAT | O_WRONLY, 0600);

		if (shown < 0)
			elog(ERROR, "could not show that it is held: %m");
		close(shown);
	}
	for (int ms = 0; ms < LIMIT_MS && access(file, F_OK) == 0; ms++)
		pg_usleep(1000);
}

static LWLock *
lock_of(const char *tranche, int number)
{
	if (strcmp(tranche, "BufferMapping") == 0)
		number += BUFFER_MAPPING_LWLOCK_OFFSET;
	else if (strcmp(tranche, "LockManager") == 0)
		number += LOCK_MANAGER_LWLOCK_OFFSET;
	else if (strcmp(tranche, "PredicateLockManager") == 0)
		number += PREDICATELOCK_MANAGER_LWLOCK_OFFSET;
	else if (strcmp(tranche, "TwoPhaseState") == 0)
		return TwoPhaseStateLock;
	else
		return &GetNamedLWLockTranche(tranche)[number].lock;
	return &MainLWLockArray[number].lock;
}

/* hold_lwlock(tranche, number, exclusive, file) */
Datum
hold_lwlock(PG_FUNCTION_ARGS)
{
	LWLock	   *lock = lock_of(text_to_cstring(PG_GETARG_TEXT_PP(0)), PG_GETARG_INT32(1));
	char	   *file = text_to_cstring(PG_GETARG_TEXT_PP(3));

	LWLockAcquire(lock, PG_GETARG_BOOL(2) ? LW_EXCLUSIVE : LW_SHARED);
	until_gone(file);
	LWLockRelease(lock);
	PG_RETURN_VOID();
}

/* hold_buffer(relation, block, exclusive, file): its content lock */
Datum
hold_buffer(PG_FUNCTION_ARGS)
{
	Relation	relation = relation_open(PG_GETARG_OID(0), AccessShareLock);
	Buffer		buffer = ReadBuffer(relation, PG_GETARG_INT32(1));
	char	   *file = text_to_cstring(PG_GETARG_TEXT_PP(3));

	LockBuffer(buffer, PG_GETARG_BOOL(2) ? BUFFER_LOCK_EXCLUSIVE : BUFFER_LOCK_SHARE);
	until_gone(file);
	UnlockReleaseBuffer(buffer);
	relation_close(relation, AccessShareLock);
	PG_RETURN_VOID();
}

/* advisory_partition(key): the lock manager's partition of an advisory lock */
Datum
advisory_partition(PG_FUNCTION_ARGS)
{
	const int64 key = PG_GETARG_INT64(0);
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (key >> 32), (uint32) key, 1);
	PG_RETURN_INT32(LockHashPartition(LockTagHashCode(&tag)));
}

static void
ask(void)
{
	if (previous_request)
		previous_request();
	RequestNamedLWLockTranche(OWN_TRANCHE, OWN_LOCKS);
}

static void
believe_otherwise(void)
{
	uint32	   *layout = dlsym(RTLD_DEFAULT, "pgscale_compat_lwlock");
	long		page = sysconf(_SC_PAGESIZE);

	if (!layout)
		elog(FATAL, "pgscale does not show its layout");
	if (mprotect((void *) ((uintptr_t) layout & ~(page - 1)), 2 * page, PROT_READ | PROT_WRITE) != 0)
		elog(FATAL, "mprotect: %m");
	for (int i = 0; i < 4; i++)
		layout[i] >>= 1;
}

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	previous_request = shmem_request_hook;
	shmem_request_hook = ask;
	if (getenv("WRONG_LAYOUT"))
		believe_otherwise();
}
