/*-------------------------------------------------------------------------
 *
 * samples.c
 *	  A tick of the sampler: reads each process and passes its sample on.
 *
 * Slots: a tick visits the slots in which a process was seen, and a bounded number of
 * other slots to find new processes.  So max_connections may be far above the number of
 * sessions.  Below that bound a new process is seen by the next tick, above it some
 * ticks later.
 *
 * CPU: a session, or an io worker, that shows no wait event counts as on CPU;
 * cpu_split.c finds out once a second whether it runs or is ready to run.  Other
 * processes without a wait event do not count: most work without reporting it, and idle
 * ones would count, too.
 *
 * Queries: a statement gets its identifier in parse analysis, after part of its time
 * has passed, maybe in waits.  Earlier samples are counted without an identifier and
 * remembered ("parked") for each process.  When the identifier of the same statement
 * appears, they are moved there.  So totals are exact at every moment.
 *
 * All memory is the sampler's own.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "base/pg_compat.h"
#include "base/processes.h"
#include "base/wait_events.h"
#include "sampler/profile/profile.h"
#include "sampler/samples.h"

/* How many different waits of one statement are parked. */
#define MAX_PARKED		4

/* How many slots ahead of the one being counted to prefetch. */
#define PREFETCH_SLOTS	8

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
	PgscaleSamplerLabel label;	/* its application and client */
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

static SlotState *slot_states = NULL;
static QuietSlot *quiet_slots = NULL;
static int *live_slots = NULL;	/* where a process was seen, nlive of them */
static int	nlive = 0;
static bool *is_live = NULL;
static int	nconnections = 0;	/* of live_slots, those of max_connections */
static int	free_hand = 0;		/* the next slot where a new process may be */
static uint64 tick_number = 0;	/* of the present one */
static uint64 ticked_ns = 0;	/* that those before it stand for */

/* The consumers' functions to call for each sample, NULL-terminated. */
static void (**adders) (PgscaleSamplerTickSample *sample, const PgscaleSamplerTick *tick) = NULL;

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

bool
pgscale_sampler_samples_parked(int slot)
{
	return slot_states[slot].nparked > 0;
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

/*
 * The wait of the process, and all columns of the profile.  Returns false if it is not
 * to be counted. *key must be zeroes.
 */
static bool
key_of_slot(int slot, SlotState *state, bool changed, PgscaleSamplerWaitKey *key)
{
	const PgscaleProc *proc = &state->proc;

	if (!pgscale_wait_of(proc, &key->wait_event))
		return false;

	if (changed)
		pgscale_sampler_label_of(proc, slot, &state->label);

	key->kind = sampler_kind_of(state);
	key->label = state->label.number;
	key->datid = proc->datid;
	key->userid = proc->userid;
	key->queryid = pgscale_proc_running_queryid(proc);
	if (key->queryid != 0)
	{
		int64		nested = pgscale_sampler_nested_queryid(slot, proc);

		if (nested != 0)
			key->queryid = nested;
	}

	/*
	 * Of a nested statement it is not known: the server shows the outer
	 * one's.
	 */
	if (pgscale_sampler_by_plan_id() && key->queryid == proc->queryid)
		key->plan_id = pgscale_proc_running_plan_id(proc);
	return true;
}

/* Hands a sample, which the profile has, to all others that count it. */
static void
pass_on_sample(PgscaleSamplerTickSample *sample, PgscaleSamplerTick *tick)
{
	for (int i = 0; adders[i]; i++)
		adders[i] (sample, tick);
	if (!sample->proc->session || sample->idle)
		return;
	if (sample->key.wait_event == PGSCALE_WAIT_IDLE_IN_TRANSACTION)
		tick->nin_transaction++;
	else
		tick->nactive++;
}

/* As long as an idle process does nothing, the next ticks only count it again. */
static void
begin_quiet(const PgscaleSamplerTickSample *sample, const PgscaleSamplerTick *tick)
{
	QuietSlot  *quiet = &quiet_slots[sample->slot];

	if (!sample->idle || pgscale_sampler_samples_parked(sample->slot) ||
		sample->key.kind == (PgscaleProcKind) B_BG_WORKER ||
		!pgscale_procs_mark(sample->slot, sample->proc, &quiet->mark))
		return;
	quiet->entry = sample->entry;
	quiet->generation = pgscale_sampler_profile_generation();
	quiet->since_tick = tick_number + 1;
	quiet->since_ns = ticked_ns + tick->ns;
}

/* Returns false if no process is there. */
static bool
sample_slot(int slot, PgscaleSamplerTick *tick)
{
	SlotState  *state = &slot_states[slot];
	PgscaleProc *proc = &state->proc;
	PgscaleSamplerTickSample sample = {.slot = slot,.proc = proc,.samples = 1,.ns = tick->ns};
	bool		changed;

	if (!pgscale_procs_read(slot, proc, &changed, &tick->stats->retries))
	{
		state->nparked = 0;
		pgscale_sampler_cpu_leave(slot);
		return false;
	}

	/* An idle session still shows the identifier of its last statement. */
	if (state->nparked > 0 && changed && proc->queryid != 0)
		sampler_unpark(slot, state);
	/* A statement that has ended without one gets none. */
	if (changed && !proc->running)
		state->nparked = 0;

	if (!key_of_slot(slot, state, changed, &sample.key))
		return true;
	sample.idle = pgscale_wait_is_idle(proc->kind, sample.key.wait_event);
	sample.entry = pgscale_sampler_profile_add(&sample.key, state->hints, tick->ns);
	if (proc->running && proc->queryid == 0)
		sampler_park(state, sample.entry, tick->ns);

	pass_on_sample(&sample, tick);
	begin_quiet(&sample, tick);
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
end_quiet(int slot, uint32 generation, const PgscaleSamplerTick *tick)
{
	QuietSlot  *quiet = &quiet_slots[slot];
	const PgscaleProc *proc = &slot_states[slot].proc;

	if (quiet->entry >= 0 && quiet->generation == generation && proc->has_cpu && quiet->since_tick < tick_number)
	{
		PgscaleSamplerTickSample quiet_ones = {
			.slot = slot,
			.proc = proc,
			.key = {.kind = proc->kind,.wait_event = proc->wait_event},
			.entry = quiet->entry,
			.idle = true,
			.samples = tick_number - quiet->since_tick,
			.ns = ticked_ns - quiet->since_ns
		};

		pgscale_sampler_cpu_add(&quiet_ones, tick);
	}
	quiet->entry = -1;
}

void
pgscale_sampler_samples_forget(bool relabel)
{
	for (int slot = 0; slot < pgscale_procs_count(); slot++)
	{
		quiet_slots[slot].entry = -1;
		if (relabel)
		{
			/* so that all of it is read again */
			slot_states[slot].proc.changecount = 0;
			slot_states[slot].label.number = 0;
		}
	}
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
sample_live_slots(PgscaleSamplerTick *tick)
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
			pgscale_sampler_profile_add_again(entry, nquiet, tick->ns);
			nquiet = 0;
		}
		if (quiet)
		{
			entry = quiet_slots[slot].entry;
			nquiet++;
			i++;
			continue;
		}
		end_quiet(slot, generation, tick);
		if (sample_slot(slot, tick))
			i++;
		else
		{
			is_live[slot] = false;
			nconnections -= pgscale_procs_is_connection(slot);
			live_slots[i] = live_slots[--nlive];
		}
		generation = pgscale_sampler_profile_generation();
	}
	if (nquiet > 0)
		pgscale_sampler_profile_add_again(entry, nquiet, tick->ns);
}

/* Finds processes in slots that had none, at their first sample. */
static void
sample_new_slots(PgscaleSamplerTick *tick)
{
	int			nslots = pgscale_procs_count();
	int			self = pgscale_procs_self();

	for (int left = Min(nslots, PGSCALE_SAMPLER_FREE_SLOTS); left > 0; left--)
	{
		int			slot = free_hand;
		int			ahead = slot + PREFETCH_SLOTS;

		free_hand = slot + 1 < nslots ? slot + 1 : 0;
		if (ahead < nslots && !is_live[ahead])
			pgscale_procs_prefetch(ahead);
		if (is_live[slot] || slot == self || !pgscale_procs_in_use(slot) || !sample_slot(slot, tick))
			continue;
		is_live[slot] = true;
		live_slots[nlive++] = slot;
		nconnections += pgscale_procs_is_connection(slot);
	}
}

void
pgscale_sampler_samples_take(PgscaleSamplerTick *tick)
{
	tick->max_samples = Min(pgscale_procs_count(), nlive + PGSCALE_SAMPLER_FREE_SLOTS);
	tick_number++;
	for (int i = 0; pgscale_sampler_consumers[i]; i++)
		if (pgscale_sampler_consumers[i]->begin)
			pgscale_sampler_consumers[i]->begin(tick);
	sample_live_slots(tick);
	sample_new_slots(tick);
	ticked_ns += tick->ns;
	tick->nconnections = nconnections;
	for (int i = 0; pgscale_sampler_consumers[i]; i++)
		if (pgscale_sampler_consumers[i]->end)
			pgscale_sampler_consumers[i]->end(tick);
}

static void
samples_attach(void)
{
	const int	nslots = pgscale_procs_count();
	int			n = 0;

	slot_states = MemoryContextAllocZero(TopMemoryContext, nslots * sizeof(SlotState));
	for (int slot = 0; slot < nslots; slot++)
		slot_states[slot].hints[0] = slot_states[slot].hints[1] = -1;
	quiet_slots = MemoryContextAllocZero(TopMemoryContext, nslots * sizeof(QuietSlot));
	pgscale_sampler_samples_forget(false);
	live_slots = MemoryContextAllocZero(TopMemoryContext, nslots * sizeof(int));
	is_live = MemoryContextAllocZero(TopMemoryContext, nslots * sizeof(bool));

	for (int i = 0; pgscale_sampler_consumers[i]; i++)
		n++;
	adders = MemoryContextAllocZero(TopMemoryContext, (n + 1) * sizeof(*adders));
	n = 0;
	for (int i = 0; pgscale_sampler_consumers[i]; i++)
		if (pgscale_sampler_consumers[i]->add)
			adders[n++] = pgscale_sampler_consumers[i]->add;
}

/* The profile is empty: all is read again. */
static void
samples_reset(int64 now)
{
	for (int slot = 0; slot < pgscale_procs_count(); slot++)
		slot_states[slot].nparked = 0;
	pgscale_sampler_samples_forget(true);
}

const PgscaleSamplerConsumer pgscale_sampler_samples_consumer = {
	.attach = samples_attach,
	.reset = samples_reset,
};
