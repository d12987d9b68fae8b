/*-------------------------------------------------------------------------
 *
 * worker_types.c
 *	  The type of a background worker, as a number.
 *
 * pg_stat_activity shows a background worker by its bgw_type, which is a text.  Samples
 * have room for a number, so each type gets one when it is first seen, and keeps it
 * until the server ends.
 *
 * Only the sampler adds types.  A type is complete before the count includes it, and
 * then never changes.  When there is no more room, workers of further types are plain
 * background workers.
 *
 * The type is only in the server's list of workers, under a lock that processes which
 * start a worker take.  The sampler takes it once for each worker, and only if it need
 * not wait.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/lwlock.h"

#include "base/pg_compat.h"
#include "sampler/samples.h"

typedef struct Types
{
	pg_atomic_uint32 used;		/* of the names; grows only */
	PgscaleSamplerTypeName names[PGSCALE_PROC_TYPES];
} Types;

static Types *types = NULL;

StaticAssertDecl(BACKEND_NUM_TYPES <= PGSCALE_PROC_FIRST_TYPE,
				 "the server's kinds of process must not reach pgscale's");

static void
worker_types_init(void)
{
	pg_atomic_init_u32(&types->used, 0);
}

PgscaleProcKind
pgscale_sampler_type_kind(const char *name)
{
	uint32		used = pg_atomic_read_u32(&types->used);

	for (uint32 i = 0; i < used; i++)
		if (strncmp(types->names[i], name, BGW_MAXLEN - 1) == 0)
			return PGSCALE_PROC_FIRST_TYPE + i;
	if (used == PGSCALE_PROC_TYPES || name[0] == '\0')
		return (PgscaleProcKind) B_BG_WORKER;

	strlcpy(types->names[used], name, BGW_MAXLEN);
	pg_write_barrier();
	pg_atomic_write_u32(&types->used, used + 1);
	return PGSCALE_PROC_FIRST_TYPE + used;
}

bool
pgscale_sampler_type_of_worker(int pid, PgscaleProcKind *kind)
{
	const char *name;

	/* Held shared, it can be had shared again at once. */
	if (!LWLockConditionalAcquire(BackgroundWorkerLock, LW_SHARED))
		return false;
	name = GetBackgroundWorkerTypeByPid(pid);
	LWLockRelease(BackgroundWorkerLock);

	*kind = name ? pgscale_sampler_type_kind(name) : (PgscaleProcKind) B_BG_WORKER;
	return name != NULL;
}

const char *
pgscale_sampler_type_name(PgscaleProcKind kind)
{
	int			number = kind - PGSCALE_PROC_FIRST_TYPE;
	uint32		used;

	if (number < 0 || number >= PGSCALE_PROC_TYPES)
		return pgscale_proc_kind_name(kind);

	used = pg_atomic_read_u32(&types->used);
	pg_read_barrier();
	return number < used ? types->names[number] : pgscale_proc_kind_name((PgscaleProcKind) B_BG_WORKER);
}

int
pgscale_sampler_types(const PgscaleSamplerTypeName * *names)
{
	uint32		used = pg_atomic_read_u32(&types->used);

	pg_read_barrier();
	*names = types->names;
	return (int) used;
}

const PgscaleArea pgscale_sampler_types_area = {
	.name = "pgscale sampler types",
	.at = (void **) &types,
	.size = sizeof(Types),
	.init = worker_types_init,
};
