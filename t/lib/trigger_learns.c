/*
 * Preloaded into a server after pgscale: once a setting is on, the trigger of traces has learnt the latest second as often as it takes
 * to know what is usual.  What comes then, it is told second by second.  Or, by another setting, the sampler tells it nothing.
 */
#include "postgres.h"

#include <sys/mman.h>
#include <unistd.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/guc.h"

#include "pgscale.h"

PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

static bool learns = false;
static bool made_up = false;
static PgscaleModule wrapped;
static const PgscaleModule *original;

static void
observe(const PgscaleObservation *observation)
{
	static bool learnt = false;
	PgscaleObservation again = *observation;

	if (made_up && MyBackendType == B_BG_WORKER)
		return;
	original->observe(observation);
	if (learns && !learnt)
		for (int i = 0; i < 40; i++)
		{
			again.anew = false;
			original->observe(&again);
		}
	learnt = learns;
}

void
_PG_init(void)
{
	const PgscaleModule **modules = (const PgscaleModule **) pgscale_modules;
	long		page = sysconf(_SC_PAGESIZE);

	DefineCustomBoolVariable("trigger_learns.now", "The trigger knows what is usual.", NULL, &learns, false, PGC_SIGHUP, 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("trigger_learns.made_up", "What the trigger observes is made up in a session.", NULL, &made_up, false,
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
