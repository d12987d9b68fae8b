/*-------------------------------------------------------------------------
 *
 * compat.c
 *	  Adaptations to PostgreSQL's majors that are too large to be inline.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "compat.h"

#include "pgstat.h"
#include "storage/fd.h"
#include "storage/reinit.h"
#include "storage/smgr.h"
#if PG_VERSION_NUM >= 180000
#include "storage/aio_subsys.h"
#elif PG_VERSION_NUM < 160000
#include "storage/bufmgr.h"
#endif

/*
 * The shared array of all backends' status.  The server keeps it static, but
 * MyBEEntry points into it at an index that we know.  NULL in a process that
 * has no entry.
 */
PgBackendStatus *
pgscale_status_array(void)
{
	if (MyBEEntry == NULL)
		return NULL;
#if PG_VERSION_NUM >= 170000
	return MyBEEntry - MyProcNumber;
#else
	if (MyBackendId == InvalidBackendId)
		return NULL;
	return MyBEEntry - (MyBackendId - 1);
#endif
}

/*
 * The status entry that belongs to a PGPROC, or NULL.
 *
 * Before 17 an ordinary backend's entry is found by its backend id, and an
 * auxiliary process' entry lies behind those at an index by its kind, which
 * its PGPROC does not tell: there are five, so look for its pid.
 */
PgBackendStatus *
pgscale_status_of(PgBackendStatus *array, ProcNumber procno)
{
#if PG_VERSION_NUM >= 170000
	return &array[procno];
#else
	volatile PGPROC *proc = &ProcGlobal->allProcs[procno];
	int			pid;

	if (procno < MaxBackends)
	{
		BackendId	id = proc->backendId;

		return (id >= 1 && id <= MaxBackends) ? &array[id - 1] : NULL;
	}

	pid = proc->procLatch.owner_pid;
	for (int i = 0; pid != 0 && i < NUM_AUXPROCTYPES; i++)
	{
		volatile PgBackendStatus *status = &array[MaxBackends + i];

		if (status->st_procpid == pid)
			return &array[MaxBackends + i];
	}
	return NULL;
#endif
}

uint32
pgscale_wait_event_new(const char *name)
{
#if PG_VERSION_NUM >= 170000
	return WaitEventExtensionNew(name);
#else
	return PG_WAIT_EXTENSION;
#endif
}

void
pgscale_smgr_release_all(void)
{
#if PG_VERSION_NUM >= 170000
	smgrdestroyall();
#else
	smgrcloseall();
#endif
}

void
pgscale_abort_io(void)
{
#if PG_VERSION_NUM >= 180000
	pgaio_error_cleanup();
#elif PG_VERSION_NUM < 160000
	AbortBufferIO();
#endif
}

int64
pgscale_backend_writes(int64 own_writes)
{
#if PG_VERSION_NUM >= 160000
	/*
	 * Here the writers are background workers, which have counts of their
	 * own.
	 */
	const BackendType writing[] = {B_BACKEND, B_STARTUP};
	PgStat_IO  *io = pgstat_fetch_stat_io();
	int64		writes = 0;

	for (int i = 0; i < lengthof(writing); i++)
		for (int context = 0; context < IOCONTEXT_NUM_TYPES; context++)
			writes += io->stats[writing[i]].counts[IOOBJECT_RELATION][context][IOOP_WRITE];
	return writes;
#else
	return pgstat_fetch_stat_checkpointer()->buf_written_backend - own_writes;
#endif
}

void
pgscale_refresh_backend_writes(void)
{
#if PG_VERSION_NUM < 160000
	/* A process that has gone meanwhile is none's latch: harmless. */
	Latch	   *latch = ProcGlobal->checkpointerLatch;

	if (latch)
		SetLatch(latch);
#endif
}

void
pgscale_relpath(char *path, RelFileLocator locator, ProcNumber backend, ForkNumber fork)
{
#if PG_VERSION_NUM >= 180000
	strlcpy(path, relpathbackend(locator, backend, fork).str, MAXPGPATH);
#else
	char	   *allocated = relpathbackend(locator, backend, fork);

	strlcpy(path, allocated, MAXPGPATH);
	pfree(allocated);
#endif
}

bool
pgscale_parse_relfile(const char *name, RelFileLocator *locator, ForkNumber *fork, uint32 *segment)
{
#if PG_VERSION_NUM >= 170000
	return parse_filename_for_nontemp_relation(name, &locator->relNumber, fork, segment);
#else
	int			digits;
	const char *dot = strchr(name, '.');

	if (!parse_filename_for_nontemp_relation(name, &digits, fork))
		return false;
	*segment = dot ? strtoul(dot + 1, NULL, 10) : 0;
	locator->relNumber = strtoul(name, NULL, 10);
	return true;
#endif
}

bool
pgscale_direct_data(void)
{
#if PG_VERSION_NUM >= 160000
	return (io_direct_flags & IO_DIRECT_DATA) != 0;
#else
	return false;
#endif
}

bool
pgscale_may_reindex(Oid index, Oid table)
{
#if PG_VERSION_NUM >= 170000
	return pg_class_aclcheck(table, GetUserId(), ACL_MAINTAIN) == ACLCHECK_OK;
#else
	return pgscale_owns_relation(index);
#endif
}
