/*
 * Preloaded into a server after pgscale, for the trigger of traces: once a setting is on, it has learnt the latest
 * second as often as it takes to know what is usual. What comes then, it is told second by second. Or, by another
 * setting, the sampler tells it nothing, and a session has it observe seconds that a test makes up.
 */
#include "postgres.h"

#include <sys/mman.h>
#include <unistd.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "base/evidence.h"
#include "pgscale.h"

PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);
PG_FUNCTION_INFO_V1(trigger_second);

static bool learns = false;
static bool made_up = false;
static PgscaleModule wrapped;
static const PgscaleModule *original;
static uint64 lock_ns,
			lwlock_ns,
			other_ns;

static void
observe(const PgscaleObservation *observation)
{
	static bool learnt = false;

	if (made_up && MyBackendType == B_BG_WORKER)
		return;
	original->observe(observation);
	if (learns && !learnt)
	{
		PgscaleObservation again = *observation;

		again.anew = false;
		for (int i = 0; i < 40; i++)
			original->observe(&again);
	}
	learnt = learns;
}

/* Locks are waited for, LWLocks, a disk and the CPU. */
static void
waits(void (*each) (void *arg, uint32 wait_event, uint64 ns), void *arg)
{
	each(arg, PG_WAIT_LOCK | 3, lock_ns);
	each(arg, PG_WAIT_LWLOCK | 50, lwlock_ns);
	each(arg, PG_WAIT_IO | 3, other_ns);
	each(arg, 0, other_ns);
}

/*
 * trigger_second(locks, active, length, anew, at): one observation, which stands for so many seconds, of sessions that
 * wait for locks, and active ones. Below 0 is a reset of the profile.
 */
Datum
trigger_second(PG_FUNCTION_ARGS)
{
	double		locks = PG_GETARG_FLOAT8(0);
	const PgscaleObservation observation = {
		.at = PG_GETARG_TIMESTAMPTZ(4),
		.ns = (int64) (PG_GETARG_FLOAT8(2) * 1e9),
		.anew = PG_GETARG_BOOL(3),
		.active = PG_GETARG_FLOAT8(1),
		.waits = waits
	};

	lock_ns = locks < 0 ? 0 : lock_ns + (uint64) (locks * 0.75 * observation.ns);
	lwlock_ns = locks < 0 ? 0 : lwlock_ns + (uint64) (locks * 0.25 * observation.ns);
	other_ns += 10 * observation.ns;
	original->observe(&observation);
	PG_RETURN_VOID();
}

void
_PG_init(void)
{
	const PgscaleModule **modules = (const PgscaleModule **) pgscale_modules;
	long		page = sysconf(_SC_PAGESIZE);

	DefineCustomBoolVariable("trigger.now", "The trigger knows what is usual.", NULL, &learns, false, PGC_SIGHUP, 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("trigger.made_up", "What the trigger observes is made up in a session.", NULL, &made_up, false,
							 PGC_POSTMASTER, 0, NULL, NULL, NULL);

	/* The list is constant. */
	if (mprotect((void *) ((uintptr_t) modules & ~(page - 1)), 2 * page, PROT_READ | PROT_WRITE) != 0)
		elog(FATAL, "mprotect: %m");
	while (strcmp((*modules)->name, "trace") != 0)
		modules++;
	original = *modules;
	wrapped = *original;
	wrapped.observe = observe;
	*modules = &wrapped;
}
