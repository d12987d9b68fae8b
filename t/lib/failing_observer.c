/*
 * Preloaded into a server after pgscale: logs what each observer of the sampler is told, with the time that sessions have slept, and
 * has one fail while a setting says so.
 */
#include "postgres.h"

#include <sys/mman.h>
#include <unistd.h>

#include "fmgr.h"
#include "utils/guc.h"

#include "pgscale.h"

#define MAX_OBSERVERS 16

PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

static char *failing = NULL;
static int	nobservers = 0;
static PgscaleModule wrapped[MAX_OBSERVERS];
static const PgscaleModule *original[MAX_OBSERVERS];

/* The class of waits that PgSleep is of, and the others that are no time on CPU. */
static void
add_wait(void *arg, uint32 wait_event, uint64 ns)
{
	uint64	   *sums = arg;

	if (wait_event >> 24 == 0x09)
		sums[0] += ns;
	else if (wait_event >> 24 != 0)
		sums[1] += ns;
}

static void
observe(int i, const PgscaleObservation *observation)
{
	uint64		sums[2] = {0};

	observation->waits(add_wait, sums);
	ereport(LOG, (errmsg("observer %s is told of %d ms, %s, %.3f active, %d ms of sleep, %d ms of other waits, %d databases", original[i]->name,
						 (int) (observation->ns / 1000000), observation->anew ? "anew" : "going on", observation->active,
						 (int) (sums[0] / 1000000), (int) (sums[1] / 1000000), observation->ndatabases)));
	if (strcmp(failing, original[i]->name) == 0)
		ereport(ERROR, (errmsg("observer %s fails", original[i]->name)));
	original[i]->observe(observation);
}

/* An observer is not told which one it is. */
#define OBSERVER(i) static void observe_##i(const PgscaleObservation *o) { observe(i, o); }
OBSERVER(0)
OBSERVER(1)
OBSERVER(2)
OBSERVER(3)
OBSERVER(4)
OBSERVER(5)
OBSERVER(6)
OBSERVER(7)
static void (*const observes[]) (const PgscaleObservation *) = {
	observe_0, observe_1, observe_2, observe_3, observe_4, observe_5, observe_6, observe_7
};

void
_PG_init(void)
{
	const PgscaleModule **modules = (const PgscaleModule **) pgscale_modules;
	long		page = sysconf(_SC_PAGESIZE);

	DefineCustomStringVariable("failing_observer.name", "The observer that fails.", NULL, &failing, "", PGC_SIGHUP, 0,
							   NULL, NULL, NULL);

	/* The list is constant. */
	if (mprotect((void *) ((uintptr_t) modules & ~(page - 1)), 2 * page, PROT_READ | PROT_WRITE) != 0)
		elog(FATAL, "mprotect: %m");
	for (int i = 0; modules[i]; i++)
	{
		if (!modules[i]->observe || nobservers == lengthof(observes))
			continue;
		original[nobservers] = modules[i];
		wrapped[nobservers] = *modules[i];
		wrapped[nobservers].observe = observes[nobservers];
		modules[i] = &wrapped[nobservers++];
	}
}
