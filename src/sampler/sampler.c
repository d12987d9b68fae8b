/*-------------------------------------------------------------------------
 *
 * sampler.c
 *	  The wait-event sampler: a background worker that on every tick reads
 *	  what each process of the server waits for, and whom for.
 *
 * A tick reads all processes' slots without a lock (base/processes.c) and adds what it
 * sees to the profile (profile.c), to the ring of single samples
 * (history.c), to the timeline (timeline.c), to the totals (wait_totals.c) and, of waits
 * for locks, to the profile of blockers (blocker_profile.c).  All of them are
 * shared memory of fixed size, written by this process alone and read without
 * stopping it, so that the sampler costs the server nothing but its own time
 * and nobody can hold it up.  What other features need of it they are told once a
 * second (observers.c), and of LWLocks at each tick (lwlock_waits.c).
 *
 * Slots: a tick goes over those in which a process was seen, and looks at no more
 * than so many others for a new one; then max_connections may be far above the
 * number of sessions.  Below that number of slots a new process is seen by the next
 * tick, above it some ticks later.
 *
 * Weights: ticks follow an absolute schedule, but a busy machine makes some
 * late or has them missed.  Each sample therefore stands for the time since
 * the tick before, whatever it was; samples are counted besides.
 *
 * CPU: a session, or an io worker, that shows no wait event counts as on CPU; whether
 * it runs or is ready to is found out once a second (cpu_split.c).  Other processes do
 * not count: most do their work without telling that they are at it, and idle ones
 * would count too.
 *
 * Queries: a statement gets its identifier in parse analysis, after some of
 * its time has passed, maybe in waits.  What is sampled before is counted
 * without an identifier and remembered ("parked") per process; when the same
 * statement's identifier appears, it is moved there.  So totals are exact at
 * every moment.
 *
 * Failure: an error or a SIGTERM ends the process, and the postmaster starts
 * it again; all that it accumulated is in shared memory.  A reset is asked for
 * by other backends and done here, since only this process writes.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/processes.h"
#include "base/server_settings.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/wait_events.h"
#include "base/worker.h"
#include "sampler/blocker_profile.h"
#include "sampler/cpu_split.h"
#include "sampler/history.h"
#include "sampler/profile.h"
#include "sampler/sampler.h"
#include "sampler/stats.h"


/* How many different waits of one statement are parked. */
#define MAX_PARKED		4

/* How long a reset may take, and how often to look whether it is done. */
#define RESET_LIMIT_MS	5000
#define RESET_CHECK_MS	100

/* How many slots ahead of the one being counted to prefetch. */
#define PREFETCH_SLOTS	8

/* How many slots without a process to look at in a tick: 0.1 ms. */
#define FREE_SLOTS		10000

/* Without a tick for so long, and several periods, something is wrong. */
#define STALLED_MS		5000

/* After so many failures in a row the kernel's counts are not to be had. */
#define UNREADABLE		5

/* Settings. */
static bool sampler_enabled = true;
static int	sampler_period = 10;
static int	sampler_profile_size = 5000;
static int	sampler_history_size = 50000;
static int	sampler_history_period = 1000;
static bool sampler_nested = false;

/* Samples of a statement that has no identifier yet. */
typedef struct Parked
{
	int			entry;
	uint64		born;			/* which one is in that place */
	uint64		samples;
	uint64		ns;
} Parked;

/* What the sampler remembers of a slot between two ticks. */
typedef struct SlotState
{
	PgscaleProc proc;
	int			hints[2];		/* where its samples were counted */
	int			typed_pid;		/* the background worker whose type is known */
	PgscaleProcKind type;		/* and what it is */
	PgscaleSamplerDimension dimension;	/* its application and client */
	TimestampTz parked_activity;	/* the statement they are of */
	int			nparked;
	Parked		parked[MAX_PARKED];
} SlotState;

/*
 * A process that idles at tick after tick, as most do on most servers: all that is left
 * to do is to count it again.  This is not a part of SlotState, and no tick writes here
 * while the process idles, so that a tick touches little memory.
 */
typedef struct QuietSlot
{
	PgscaleProcMark mark;
	int			entry;			/* -1: not quiet */
	uint32		generation;		/* of the profile, when entry was made */
	uint64		since_tick;		/* the first one that found it so, */
	uint64		since_ns;		/* and the time that all before it stand for */
} QuietSlot;

/* How other backends reach the sampler. */
typedef struct SamplerControl
{
	Latch	   *volatile latch; /* the sampler's, NULL if it is not running */
	pg_atomic_uint64 resets_requested;
	pg_atomic_uint64 resets_done;
	ConditionVariable reset_done;
} SamplerControl;

static SamplerControl *control = NULL;
static PgscaleSamplerStats *stats = NULL;

/* The worker's own. */
static SlotState *slot_states = NULL;
static QuietSlot *quiet_slots = NULL;
static int *live_slots = NULL;	/* where a process was seen, nlive of them */
static int	nlive = 0;
static bool *is_live = NULL;
static int	free_hand = 0;		/* the next slot to look for a new process in */
static PgscaleTimer timer;
static int64 last_tick;			/* on the monotonic clock */
static uint64 tick_number = 0;	/* of the present one */
static uint64 ticked_ns = 0;	/* that those before it stand for */
static int64 cpu_base;			/* added to the process' CPU time in stats */

/* Sessions that the present tick found active, or idle in a transaction. */
static int	nactive;
static int	nin_transaction;

PGDLLEXPORT void pgscale_sampler_main(Datum arg);

PG_FUNCTION_INFO_V1(pgscale_sampler_reset);

static void
sampler_define_gucs(void)
{
	DefineCustomBoolVariable("pgscale.sampler",
							 "Samples what the server's processes wait for.",
							 NULL,
							 &sampler_enabled, true,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sampler_period",
							"Time between two samples.",
							NULL,
							&sampler_period, 10, 1, 1000,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sampler_profile_size",
							"Number of entries of the wait profile.",
							"Beyond it, the smallest ones are evicted to one row a wait event.",
							&sampler_profile_size, 5000, 100, PGSCALE_PROFILE_MAX,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sampler_history_size",
							"Number of single samples that are kept.",
							NULL,
							&sampler_history_size, 50000, 0, 10000000,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.sampler_history_period",
							"Time between two single samples that are kept.",
							"Below pgscale.sampler_period every sample is.",
							&sampler_history_period, 1000, 1, PGSCALE_SAMPLER_HISTORY_PERIOD_MAX,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomBoolVariable("pgscale.sampler_nested",
							 "Counts waits for the nested statement instead of the top-level one.",
							 NULL,
							 &sampler_nested, false,
							 PGC_POSTMASTER, 0, NULL, NULL, NULL);
	pgscale_sampler_dimensions_define_guc();
	DefineCustomIntVariable("pgscale.sampler_debug_period",
							"Length of a record of evidence, of a measurement of scalability, and of a row of the archive. For tests.",
							"0 is the usual length.",
							&pgscale_timer_debug_ms, 0, 0, SECS_PER_HOUR * 1000,
							PGC_SIGHUP, GUC_UNIT_MS | GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
}

static void
sampler_shmem_request(void)
{
	Size		size = 0;

	size = add_size(size, sizeof(SamplerControl));
	size = add_size(size, pgscale_sampler_stats_size());
	size = add_size(size, pgscale_sampler_profile_size(sampler_profile_size));
	size = add_size(size, pgscale_sampler_history_size(sampler_history_size));
	size = add_size(size, pgscale_sampler_timeline_size());
	size = add_size(size, pgscale_sampler_totals_size());
	size = add_size(size, pgscale_sampler_types_size());
	size = add_size(size, pgscale_sampler_dimensions_size());
	size = add_size(size, pgscale_sampler_blockers_size());
	if (sampler_nested)
		size = add_size(size, pgscale_sampler_nested_size());
	RequestAddinShmemSpace(size);
}

/* In the postmaster, when all other processes are gone. */
static void
save_at_shutdown(int code, Datum arg)
{
	/* Not if anything, or just the sampler, was stopped in mid-air. */
	if (code == 0 && stats->pid == 0)
	{
		pgscale_sampler_save();
		pgscale_sampler_history_save();
	}
}

static void
sampler_shmem_startup(void)
{
	bool		found;

	control = ShmemInitStruct("pgscale sampler", sizeof(SamplerControl), &found);
	if (!found)
	{
		control->latch = NULL;
		pg_atomic_init_u64(&control->resets_requested, 0);
		pg_atomic_init_u64(&control->resets_done, 0);
		ConditionVariableInit(&control->reset_done);
	}
	stats = pgscale_sampler_stats_startup();
	pgscale_sampler_profile_startup(sampler_profile_size);
	pgscale_sampler_history_startup(sampler_history_size);
	pgscale_sampler_timeline_startup();
	pgscale_sampler_totals_startup();
	pgscale_sampler_types_startup();
	pgscale_sampler_dimensions_startup();
	pgscale_sampler_blockers_startup();
	if (sampler_nested)
		pgscale_sampler_nested_startup();

	if (!found && !IsUnderPostmaster)
	{
		pgscale_sampler_load();
		pgscale_sampler_history_load();
		on_shmem_exit(save_at_shutdown, (Datum) 0);
	}
}

static void
sampler_register_workers(void)
{
	/* Else compute_query_id = auto would leave all waits without a query. */
	EnableQueryId();

	if (sampler_nested)
		pgscale_sampler_nested_install();
	pgscale_worker_register("pgscale sampler", "pgscale_sampler_main", 0);
}

/*
 * Counts a sample of a statement without an identifier, to be moved when it
 * gets one.  What does not fit stays where it was counted.
 */
static void
sampler_park(SlotState *state, int entry, int64 ns)
{
	uint64		born = pgscale_sampler_profile_born(entry);
	int			i;

	if (state->parked_activity != state->proc.activity_start)
		state->nparked = 0;
	state->parked_activity = state->proc.activity_start;

	for (i = 0; i < state->nparked; i++)
		if (state->parked[i].entry == entry && state->parked[i].born == born)
			break;
	if (i == MAX_PARKED)
		return;
	if (i == state->nparked)
	{
		memset(&state->parked[i], 0, sizeof(Parked));
		state->parked[i].entry = entry;
		state->parked[i].born = born;
		state->nparked++;
	}
	state->parked[i].samples++;
	state->parked[i].ns += ns;
}

/* Moves what is parked to its query, if that is the one seen now. */
static void
sampler_unpark(int slot, SlotState *state)
{
	if (state->parked_activity == state->proc.activity_start)
		for (int i = 0; i < state->nparked; i++)
		{
			const Parked *parked = &state->parked[i];
			PgscaleSamplerWaitKey key;
			int			entry = -1;

			if (pgscale_sampler_profile_key(parked->entry, parked->born, &key))
			{
				key.queryid = state->proc.queryid;
				entry = pgscale_sampler_profile_move(parked->entry, &key, parked->samples, parked->ns);
			}
			pgscale_sampler_cpu_moved(slot, parked->entry, parked->born, entry, parked->samples, parked->ns);
		}
	state->nparked = 0;
}

/* What the process is; of a background worker, its type. */
static PgscaleProcKind
sampler_kind_of(SlotState *state)
{
	PgscaleProc *proc = &state->proc;

	if (proc->kind != (PgscaleProcKind) B_BG_WORKER)
		return proc->kind;
	if (state->typed_pid != proc->pid)
	{
		if (!pgscale_sampler_type_of_worker(proc->pid, &state->type))
			return proc->kind;
		state->typed_pid = proc->pid;
	}
	return state->type;
}

/* Returns false if no process is there. */
static bool
sample_slot(int slot, int64 ns)
{
	SlotState  *state = &slot_states[slot];
	PgscaleProc *proc = &state->proc;
	PgscaleSamplerWaitKey key = {0};
	bool		changed;
	bool		idle;
	int			entry;

	if (!pgscale_procs_read(slot, proc, &changed, &stats->retries))
	{
		state->nparked = 0;
		pgscale_sampler_cpu_leave(slot);
		return false;
	}

	/* An idle session still tells the identifier of its last statement. */
	if (state->nparked > 0 && changed && proc->queryid != 0)
		sampler_unpark(slot, state);
	/* A statement that has ended without one gets none. */
	if (changed && !proc->running)
		state->nparked = 0;

	if (!pgscale_wait_of(proc, &key.wait_event))
		return true;

	if (changed)
		pgscale_sampler_dimension_of(proc, slot, &state->dimension);

	key.kind = sampler_kind_of(state);
	key.dimension = state->dimension.number;
	key.datid = proc->datid;
	key.userid = proc->userid;
	key.queryid = pgscale_proc_running_queryid(proc);
	if (sampler_nested && key.queryid != 0)
	{
		int64		nested = pgscale_sampler_nested_queryid(slot, proc);

		if (nested != 0)
			key.queryid = nested;
	}

	/*
	 * Of a nested statement it is not known: the server shows the outer
	 * one's.
	 */
	if (pgscale_sampler_by_plan_id() && key.queryid == proc->queryid)
		key.plan_id = pgscale_proc_running_plan_id(proc);

	entry = pgscale_sampler_profile_add(&key, state->hints, ns);
	pgscale_sampler_lwlock_add(key.wait_event);
	if (proc->running && proc->queryid == 0)
		sampler_park(state, entry, ns);

	idle = pgscale_wait_is_idle(proc->kind, key.wait_event);
	if (!idle)
	{
		const PgscaleSamplerBlocked *blocked = NULL;

		if ((key.wait_event & PGSCALE_WAIT_CLASS) == PG_WAIT_LOCK)
			blocked = pgscale_sampler_blocked_by(slot, proc, ns, last_tick);
		pgscale_sampler_history_add(proc, key.kind, key.dimension, key.wait_event, key.queryid, blocked);
	}
	if (proc->has_cpu)
		pgscale_sampler_cpu_add(slot, proc->pid, entry, key.kind, key.wait_event, 1, ns, state->nparked > 0);
	else
		pgscale_sampler_totals_add(key.kind, key.wait_event, ns);
	if (proc->session)
	{
		if (!idle)
		{
			pgscale_sampler_timeline_add(key.wait_event);
			if (key.wait_event == PGSCALE_WAIT_IDLE_IN_TRANSACTION)
				nin_transaction++;
			else
				nactive++;
		}
		/* To hold others up is no work that advice could spare. */
		pgscale_sampler_observe_sample(proc, idle || proc->in_transaction, ns);
	}

	if (idle && state->nparked == 0 &&
		key.kind != (PgscaleProcKind) B_BG_WORKER &&
		pgscale_procs_mark(slot, proc, &quiet_slots[slot].mark))
	{
		quiet_slots[slot].entry = entry;
		quiet_slots[slot].generation = pgscale_sampler_profile_generation();
		quiet_slots[slot].since_tick = tick_number + 1;
		quiet_slots[slot].since_ns = ticked_ns + ns;
	}
	return true;
}

/* Does a process still idle in the same entry? */
static inline bool
is_quiet(const QuietSlot *quiet, uint32 generation)
{
	return quiet->entry >= 0 && quiet->generation == generation && pgscale_proc_same(&quiet->mark);
}

/* A process does not idle any more, or its entry may be another one. */
static void
end_quiet(int slot, uint32 generation)
{
	QuietSlot  *quiet = &quiet_slots[slot];
	const PgscaleProc *proc = &slot_states[slot].proc;

	if (quiet->entry >= 0 && quiet->generation == generation && proc->has_cpu && quiet->since_tick < tick_number)
		pgscale_sampler_cpu_add(slot, proc->pid, quiet->entry, proc->kind, proc->wait_event,
								tick_number - quiet->since_tick, ticked_ns - quiet->since_ns, false);
	quiet->entry = -1;
}

static void
forget_quiet_slots(void)
{
	for (int slot = 0; slot < pgscale_procs_count(); slot++)
		quiet_slots[slot].entry = -1;
}

static void
prefetch_slot(int slot)
{
	if (quiet_slots[slot].entry >= 0)
		pgscale_proc_prefetch(&quiet_slots[slot].mark);
	else
		pgscale_procs_prefetch_status(slot);
}

/* Processes that idle mostly follow one another and have the same entry: their samples are added at once. */
static void
sample_live_slots(int64 ns)
{
	uint32		generation = pgscale_sampler_profile_generation();
	uint64		nquiet = 0;
	int			entry = -1;

	for (int i = 0; i < Min(nlive, PREFETCH_SLOTS); i++)
		prefetch_slot(live_slots[i]);
	for (int i = 0; i < nlive;)
	{
		int			slot = live_slots[i];
		bool		quiet = is_quiet(&quiet_slots[slot], generation);

		if (i + PREFETCH_SLOTS < nlive)
			prefetch_slot(live_slots[i + PREFETCH_SLOTS]);
		if (nquiet > 0 && (!quiet || quiet_slots[slot].entry != entry))
		{
			pgscale_sampler_profile_add_again(entry, nquiet, ns);
			nquiet = 0;
		}
		if (quiet)
		{
			entry = quiet_slots[slot].entry;
			nquiet++;
			i++;
			continue;
		}
		end_quiet(slot, generation);
		if (sample_slot(slot, ns))
			i++;
		else
		{
			is_live[slot] = false;
			live_slots[i] = live_slots[--nlive];
		}
		generation = pgscale_sampler_profile_generation();
	}
	if (nquiet > 0)
		pgscale_sampler_profile_add_again(entry, nquiet, ns);
}

/* Looks for processes in slots that had none, at their first sample. */
static void
sample_new_slots(int64 ns)
{
	int			nslots = pgscale_procs_count();
	int			self = pgscale_procs_self();

	for (int left = Min(nslots, FREE_SLOTS); left > 0; left--)
	{
		int			slot = free_hand;
		int			ahead = slot + PREFETCH_SLOTS;

		free_hand = slot + 1 < nslots ? slot + 1 : 0;
		if (ahead < nslots && !is_live[ahead])
			pgscale_procs_prefetch(ahead);
		if (is_live[slot] || slot == self || !pgscale_procs_in_use(slot) || !sample_slot(slot, ns))
			continue;
		is_live[slot] = true;
		live_slots[nlive++] = slot;
	}
}

static void
sampler_tick(int64 due, int64 missed)
{
	int64		now = pgscale_timer_clock();
	int64		ns = now - last_tick;
	TimestampTz wall = GetCurrentTimestamp();
	PgscaleSamplerFound found;

	last_tick = now;
	tick_number++;
	nactive = nin_transaction = 0;

	pgscale_sampler_profile_begin();
	pgscale_sampler_history_begin(wall, due, now, sampler_history_period * NS_PER_MS,
								  Min(pgscale_procs_count(), nlive + FREE_SLOTS));
	pgscale_sampler_timeline_begin(wall, ns);
	pgscale_sampler_blockers_begin(wall);
	sample_live_slots(ns);
	sample_new_slots(ns);
	ticked_ns += ns;
	pgscale_sampler_blockers_end();
	pgscale_sampler_timeline_end();
	pgscale_sampler_history_end();
	pgscale_sampler_profile_end();
	pgscale_sampler_lwlock_tell(ns);
	pgscale_sampler_cpu_settle(now, ns, &found);

	stats->last_tick_ns = now;
	pgscale_sampler_stats_tick(now - due, missed, ns, pgscale_timer_clock() - now,
							   nactive * ns + found.idle_ns + found.in_transaction_ns,
							   nin_transaction * ns - found.in_transaction_ns);
	pgscale_sampler_observe_tick(wall, ns);
	if (pgscale_sampler_blocked_look(now, wall))
		stats->blocker_looks++;
}

/* Once a second is enough for a figure that needs a system call. */
static void
account_cpu(void)
{
	static int64 accounted = 0;

	if (last_tick - accounted < NS_PER_S)
		return;
	accounted = last_tick;
	stats->cpu_ns = cpu_base + pgscale_timer_cpu_time();
}

static void
sampler_apply_settings(void)
{
	int64		period = sampler_enabled ? sampler_period * NS_PER_MS : 0;

	/* What is known of their time on CPU may be forgotten below. */
	forget_quiet_slots();

	if (period == stats->period_ns)
		return;

	/* Time that was not observed is not to be counted. */
	if (stats->period_ns == 0)
	{
		last_tick = pgscale_timer_clock();
		stats->on_since_ns = stats->last_tick_ns = last_tick;
		pgscale_sampler_history_start(last_tick);
		pgscale_sampler_cpu_forget();
		pgscale_sampler_observe_begin();
	}
	else if (period == 0)
		pgscale_sampler_cpu_forget();
	pgscale_timer_set(&timer, period);
	stats->period_ns = period;
}

static void
serve_resets(void)
{
	uint64		requested = pg_atomic_read_u64(&control->resets_requested);

	if (requested == pg_atomic_read_u64(&control->resets_done))
		return;

	pgscale_sampler_dimensions_begin_reset();
	pgscale_sampler_profile_reset();
	pgscale_sampler_history_reset();
	pgscale_sampler_dimensions_end_reset();
	for (int slot = 0; slot < pgscale_procs_count(); slot++)
	{
		slot_states[slot].nparked = 0;
		/* so that all of it is read again */
		slot_states[slot].proc.changecount = 0;
		slot_states[slot].dimension.number = 0;
	}
	forget_quiet_slots();
	pgscale_sampler_cpu_forget();
	pgscale_sampler_totals_reset();
	pgscale_sampler_timeline_reset();
	pgscale_sampler_blocked_reset();
	pgscale_sampler_stats_reset();
	cpu_base = -pgscale_timer_cpu_time();
	last_tick = pgscale_timer_clock();
	pgscale_sampler_history_start(last_tick);

	pg_atomic_write_u64(&control->resets_done, requested);
	ConditionVariableBroadcast(&control->reset_done);
}

static void
sampler_detach(int code, Datum arg)
{
	pgscale_sampler_cpu_forget();
	control->latch = NULL;
	stats->pid = 0;
	stats->period_ns = 0;
}

/* The worker. */
void
pgscale_sampler_main(Datum arg)
{
	pgscale_worker_start("PgscaleSamplerMain");

	slot_states = MemoryContextAllocZero(TopMemoryContext,
										 pgscale_procs_count() * sizeof(SlotState));
	for (int slot = 0; slot < pgscale_procs_count(); slot++)
		slot_states[slot].hints[0] = slot_states[slot].hints[1] = -1;
	quiet_slots = MemoryContextAllocZero(TopMemoryContext,
										 pgscale_procs_count() * sizeof(QuietSlot));
	forget_quiet_slots();
	live_slots = MemoryContextAllocZero(TopMemoryContext, pgscale_procs_count() * sizeof(int));
	is_live = MemoryContextAllocZero(TopMemoryContext, pgscale_procs_count() * sizeof(bool));
	cpu_base = stats->cpu_ns - pgscale_timer_cpu_time();

	pgscale_sampler_profile_attach_writer();
	pgscale_sampler_dimensions_attach();
	pgscale_sampler_history_attach();
	pgscale_sampler_blocked_attach();
	pgscale_sampler_blockers_attach();
	pgscale_sampler_cpu_attach(pgscale_procs_count(), pgscale_procs_count() / FREE_SLOTS + 2, stats);
	before_shmem_exit(sampler_detach, (Datum) 0);
	stats->starts++;
	stats->period_ns = 0;
	sampler_apply_settings();
	control->latch = MyLatch;
	stats->pid = MyProcPid;

	for (;;)
	{
		int64		due;
		int64		expired = pgscale_timer_wait(&timer, &due);

		bool		reloaded = pgscale_worker_interrupts();

		if (reloaded)
			sampler_apply_settings();
		pgscale_workers_start(reloaded);
		serve_resets();
		if (expired > 0 && stats->period_ns > 0)
		{
			sampler_tick(due, expired - 1);
			account_cpu();
		}
	}
}

/*
 * pgscale.sampler_reset(): empties the profiles, the history, the timeline and
 * the sampler's statistics.  Returns when it is done.
 */
Datum
pgscale_sampler_reset(PG_FUNCTION_ARGS)
{
	uint64		request;
	Latch	   *latch;

	pgscale_require_preload();

	request = pg_atomic_fetch_add_u64(&control->resets_requested, 1) + 1;
	latch = control->latch;
	if (latch)
		SetLatch(latch);

	ConditionVariablePrepareToSleep(&control->reset_done);
	for (int ms = 0; pg_atomic_read_u64(&control->resets_done) < request; ms += RESET_CHECK_MS)
	{
		if (ms >= RESET_LIMIT_MS)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the sampler does not answer"),
					 errdetail("The reset will take place when it does."),
					 errhint("See pgscale.health for the reason.")));
		ConditionVariableTimedSleep(&control->reset_done, RESET_CHECK_MS, PG_WAIT_EXTENSION);
	}
	ConditionVariableCancelSleep();

	PG_RETURN_VOID();
}

static void
sampler_health(PgscaleHealth *health)
{
	if (!pgscale_health_preloaded(health, "pgscale.sampler", true))
		return;

	/* The worker may know of a reload before this backend does. */
	if (stats->pid != 0 ? stats->period_ns == 0 : !sampler_enabled)
	{
		health->state = PGSCALE_HEALTH_OFF;
		health->reason = "it is switched off";
		health->action = "set pgscale.sampler to on and reload";
	}
	else if (!pgscale_health_worker(health, &pgscale_sampler_module, stats->pid, stats->starts, stats->last_tick_ns,
									Max(STALLED_MS, 10 * stats->period_ns / NS_PER_MS)))
		return;
	else
	{
		const bool	blind = strcmp(pgscale_server_setting("track_activities"), "off") == 0;

		health->state = PGSCALE_HEALTH_WORKING;
		health->since_ns = stats->on_since_ns;
		health->reason = psprintf("samples every %d ms%s%s%s", (int) (stats->period_ns / NS_PER_MS),
								  blind ? "; queries and idle transactions are unknown, because track_activities is off" : "",
								  stats->unreadable < UNREADABLE ? "" :
								  "; time on CPU is not split into running and queued, because /proc/PID/schedstat "
								  "cannot be read",
								  pgscale_sampler_plan_id_unknown() ?
								  "; plan_id is always NULL, because this server has no plan identifiers" : "");
		if (blind)
			health->action = "set track_activities to on and reload";
		else if (pgscale_sampler_plan_id_unknown())
			health->action = "use PostgreSQL 18 or later, or take plan_id out of pgscale.sampler_dimensions";
	}
}

const PgscaleModule pgscale_sampler_module = {
	.name = "sampler",
	.define_gucs = sampler_define_gucs,
	.shmem_request = sampler_shmem_request,
	.shmem_startup = sampler_shmem_startup,
	.register_workers = sampler_register_workers,
	.health = sampler_health,
};
