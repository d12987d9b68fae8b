/*-------------------------------------------------------------------------
 *
 * workers.c
 *	  The background workers of the features: each exists while it is wanted.
 *
 * The server has few slots for background workers, and parallel queries and logical
 * replication need them, too.  So pgscale registers only the sampler's process
 * permanently.  That process checks which other workers are wanted (PgscaleWorker) once
 * a second, after a reload, and on request of another process; and makes the postmaster
 * start them.  A feature that was switched on, a crashed worker, a promoted standby and
 * a free slot are all the same finding: a worker is wanted and missing.
 *
 * A running worker has claimed its place in shared memory, where its successor and the
 * next check find it.  The postmaster may be late, or a previous process of the sampler
 * may have made the request.  Then a worker starts twice, and the second one ends.
 *
 * Failure: without the sampler's process, which the postmaster starts again, workers
 * continue and none is started.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/shmem.h"
#include "utils/memutils.h"

#include "base/shared_area.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/worker.h"
#include "pgscale.h"

/* Between two looks, and so between two starts of the same worker at least. */
#define LOOK_NS			NS_PER_S

/* How long a worker may take to start, and a look to be due. */
#define STARTING_NS		(5 * NS_PER_S)

typedef struct WorkerPlace
{
	/* written by the worker */
	pg_atomic_uint32 pid;		/* 0: not there */
	bool		failed;			/* the latest one ended by an error or a
								 * signal */

	/* ... and by the sampler's process */
	bool		no_slot;		/* when it was asked for */
	int64		missing_ns;		/* wanted and not there since; 0: it is not so */
} WorkerPlace;

typedef struct WorkersShared
{
	pg_atomic_uint32 changed;	/* has anything asked for a look? */
	Latch	   *volatile latch; /* of the process that looks, or NULL */
	int64		looked_ns;
	WorkerPlace places[FLEXIBLE_ARRAY_MEMBER];
} WorkersShared;

static WorkersShared *shared = NULL;

/* In the process that looks: what it has asked the postmaster for. */
static BackgroundWorkerHandle **handles = NULL;

PGDLLEXPORT void pgscale_workers_main(Datum arg);

/* Each feature has one, whether or not it has a worker. */
static int
count_places(void)
{
	int			n = 0;

	while (pgscale_modules[n])
		n++;
	return n;
}

static Size
workers_size(void)
{
	return add_size(offsetof(WorkersShared, places), mul_size(count_places(), sizeof(WorkerPlace)));
}

static void
workers_init(void)
{
	const int	places = count_places();

	memset(shared->places, 0, places * sizeof(WorkerPlace));
	pg_atomic_init_u32(&shared->changed, 0);
	for (int i = 0; i < places; i++)
		pg_atomic_init_u32(&shared->places[i].pid, 0);
}

const PgscaleArea pgscale_workers_area = {
	.name = "pgscale workers",
	.at = (void **) &shared,
	.size = offsetof(WorkersShared, places),
	.computed = workers_size,
	.init = workers_init,
};

void
pgscale_workers_wake(void)
{
	Latch	   *latch;

	pg_atomic_exchange_u32(&shared->changed, 1);
	latch = shared->latch;
	if (latch)
		SetLatch(latch);
}

static void
workers_detach(int code, Datum arg)
{
	shared->latch = NULL;
}

/* Is the worker there, or about to be by an earlier request? */
static bool
is_there(int place)
{
	return pg_atomic_read_u32(&shared->places[place].pid) != 0 || pgscale_worker_launched(&handles[place]);
}

static void
start_worker(int place)
{
	const char *name = pgscale_modules[place]->worker->name;
	WorkerPlace *p = &shared->places[place];
	const bool	started = pgscale_worker_launch(name, "pgscale_workers_main", place, false, &handles[place]);

	if (!started && !p->no_slot)
		ereport(LOG,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("the server has no slot for background worker \"%s\"", name),
				 errhint("Raise max_worker_processes, which is %d, and restart the server.", max_worker_processes)));
	p->no_slot = !started;
}

void
pgscale_workers_start(bool changed)
{
	const int64 now = pgscale_timer_clock();

	if (!handles)
	{
		handles = MemoryContextAllocZero(TopMemoryContext, count_places() * sizeof(*handles));
		before_shmem_exit(workers_detach, (Datum) 0);
		shared->latch = MyLatch;
	}
	if (pg_atomic_read_u32(&shared->changed) != 0)
		changed = pg_atomic_exchange_u32(&shared->changed, 0) != 0;
	if ((!changed && now - shared->looked_ns < LOOK_NS) || IsBinaryUpgrade)
		return;
	shared->looked_ns = now;

	for (int place = 0; pgscale_modules[place]; place++)
	{
		const PgscaleWorker *worker = pgscale_modules[place]->worker;
		WorkerPlace *p = &shared->places[place];
		const bool	wanted = worker && worker->wanted();

		if (!wanted || pg_atomic_read_u32(&p->pid) != 0)
		{
			p->missing_ns = 0;
			p->no_slot = false;
		}
		else if (p->missing_ns == 0)
			p->missing_ns = now;
		if (wanted && !is_there(place))
			start_worker(place);
	}
}

static void
worker_leaves(int code, Datum arg)
{
	WorkerPlace *p = &shared->places[DatumGetInt32(arg)];

	p->failed = code != 0;
	pg_atomic_write_u32(&p->pid, 0);
}

/* Any of the workers. */
void
pgscale_workers_main(Datum arg)
{
	const int	place = DatumGetInt32(arg);
	uint32		none = 0;

	if (!pg_atomic_compare_exchange_u32(&shared->places[place].pid, &none, MyProcPid))
		proc_exit(0);
	before_shmem_exit(worker_leaves, arg);
	pgscale_modules[place]->worker->main();
}

PgscaleWorkerStart
pgscale_workers_start_of(const PgscaleModule *module)
{
	const int64 now = pgscale_timer_clock();
	const WorkerPlace *p = shared->places;

	for (int i = 0; pgscale_modules[i] != module; i++)
		p++;
	if (p->no_slot)
		return PGSCALE_WORKER_NO_SLOT;
	if (!shared->latch || now - shared->looked_ns >= STARTING_NS)
		return PGSCALE_WORKER_UNASKED;
	if (p->missing_ns != 0 && now - p->missing_ns >= STARTING_NS)
		return PGSCALE_WORKER_FAILING;
	return p->failed ? PGSCALE_WORKER_ENDED : PGSCALE_WORKER_STARTING;
}
