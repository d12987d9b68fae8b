/*
 * Lets the trigger of traces observe, in a session, seconds that a test makes up; the sampler must tell it nothing meanwhile.
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "utils/array.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "pgscale.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(trigger_seconds);

static uint64 lock_ns,
			lwlock_ns,
			other_ns;

/* Locks are waited for, LWLocks, a disk and the CPU. */
static void
waits(void (*each) (void *arg, uint32 wait_event, uint64 ns), void *arg)
{
	each(arg, PG_WAIT_LOCK | 3, lock_ns);
	each(arg, PG_WAIT_LWLOCK | 50, lwlock_ns);
	each(arg, PG_WAIT_IO | 3, other_ns);
	each(arg, 0, other_ns);
}

static double *
doubles(Datum array, int *n)
{
	Datum	   *values;
	bool	   *nulls;
	double	   *result;

	deconstruct_array(DatumGetArrayTypeP(array), FLOAT8OID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, &values, &nulls, n);
	result = palloc((*n + 1) * sizeof(double));
	for (int i = 0; i < *n; i++)
		result[i] = DatumGetFloat8(values[i]);
	return result;
}

/*
 * trigger_seconds(locks, active, length, anew, at): one observation for each, which stands for so many seconds, of sessions that wait for
 * locks, and active ones.  Below 0 is a reset of the profile.
 */
Datum
trigger_seconds(PG_FUNCTION_ARGS)
{
	int			n,
				nactive;
	double	   *locks = doubles(PG_GETARG_DATUM(0), &n);
	double	   *active = doubles(PG_GETARG_DATUM(1), &nactive);
	const PgscaleModule *const *module = pgscale_modules;

	while (strcmp((*module)->name, "trace") != 0)
		module++;
	for (int i = 0; i < n; i++)
	{
		const PgscaleObservation observation = {
			.at = PG_GETARG_TIMESTAMPTZ(4),
			.ns = (int64) (PG_GETARG_FLOAT8(2) * 1e9),
			.anew = PG_GETARG_BOOL(3) && i == 0,
			.active = active[i],
			.waits = waits
		};

		lock_ns = locks[i] < 0 ? 0 : lock_ns + (uint64) (locks[i] * 0.75 * observation.ns);
		lwlock_ns = locks[i] < 0 ? 0 : lwlock_ns + (uint64) (locks[i] * 0.25 * observation.ns);
		other_ns += 10 * observation.ns;
		(*module)->observe(&observation);
	}
	PG_RETURN_VOID();
}
