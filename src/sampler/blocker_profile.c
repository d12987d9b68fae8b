/*-------------------------------------------------------------------------
 *
 * blocker_profile.c
 *	  The blockers of long lock waits, and the time of lock waits by root blocker, in
 *	  shared memory of fixed size.
 *
 * A tick sees that a process waits for a lock, and since when.  Only the lock manager
 * knows the holder.  So all awaited locks are copied (base/lock_waits.c), between two
 * ticks, at most once a second, and only while a process has waited longer than the
 * server's deadlock_timeout, after which the server itself reads the lock manager.  The
 * samples of each wait in that copy carry its blockers until the next copy.  In the
 * profile, the root counts for the wait from its beginning: earlier samples are kept
 * until a copy contains the wait.
 *
 * The beginning of a wait, as its process shows it, separates two waits of one
 * process.  Its length is measured by the monotonic clock.
 *
 * The root is at the head of the chain of blockers and does not wait itself.  An entry is
 * a process under one application name, or a prepared transaction.  The start time
 * separates a process from a later one with the same pid.  A pooler runs the transactions
 * of many applications in one process, each under its own name.  An entry keeps the latest
 * known state of its root, so it is complete even after the process has ended.
 *
 * Two more entries make the sums complete: waits without a known root, and evicted
 * entries.  Every sample of a lock wait goes to the first of these or to a root.  When
 * the root of a wait is found, the time of that wait so far moves to it.  If no entry
 * is free for a new root, the entry with the least time is evicted.
 *
 * Only the sampler writes; readers copy everything by its change count.  A tick without
 * a lock wait changes nothing.  What is known of waits is the sampler's own memory,
 * allocated when it starts.  Holders beyond that memory are not read; then the root of
 * some waits may be unknown.
 *
 * A root's state is read at most once a tick, while a process waits for it.  That costs
 * two cache lines unless the state has changed.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/lock.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/change_count.h"
#include "base/lock_waits.h"
#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/processes.h"
#include "base/row_builder.h"
#include "base/units.h"
#include "base/wait_events.h"
#include "sampler/samples.h"

/* Between two readings of the lock manager. */
#define READ_NS			NS_PER_S

/* Room for that many holders of awaited locks, for each process. */
#define HOLDERS_EACH	4

#define MAX_ROOTS	500
#define UNKNOWN		MAX_ROOTS	/* waits without a known root */
#define EVICTED		(MAX_ROOTS + 1)
#define ENTRIES		(MAX_ROOTS + 2)

/* The server numbers the waits for locks by the kind of lock. */
#define LOCK_KINDS	(LOCKTAG_LAST_TYPE + 1)
#define KIND_OF(wait_event) Min((wait_event) & 0xFFFF, LOCKTAG_LAST_TYPE)

typedef struct BlockerEntry
{
	/* Which one it is. */
	int			pid;			/* 0: a prepared transaction */
	TransactionId xid;			/* of a prepared transaction */
	TimestampTz proc_start;		/* of a process */
	PgscaleProcClient client;	/* of a process, when it was found */
	uint32		born;			/* no other entry has this number */

	/* As it was last seen. */
	Oid			datid;
	Oid			userid;
	int64		queryid;
	PgscaleProcKind kind;
	uint8		state;

	/* Of the waiters. */
	uint64		ns;
	uint64		idle_ns;		/* of that, while the root idled */
	uint64		kind_ns[LOCK_KINDS];	/* of that, by kind of lock */
	int			max_waiters;
	TimestampTz first_seen;
	TimestampTz last_seen;
} BlockerEntry;

typedef struct BlockerProfile
{
	PgscaleChangeCount changes; /* of all that follows */
	uint32		births;
	int32		used;			/* roots */
	BlockerEntry entries[ENTRIES];
} BlockerProfile;

/* The writer's own, for each root. */
typedef struct RootState
{
	int			slot;			/* -1: not known */
	PgscaleProc proc;
	uint64		round;			/* the one in which it was read */
	int			waiters;		/* in that one */
} RootState;

/* What is known of the wait of a process. */
typedef struct LockWait
{
	int			pid;
	uint64		began;			/* as the process shows it: which wait it is */
	int64		seen_ns;		/* when a tick saw it first */
	uint64		found;			/* the wait that was read last, or 0 */
	PgscaleSamplerBlocked by;	/* and its blockers; to this root's entry goes
								 * its time */
	uint32		wait_event;
	uint64		pending_ns;		/* its time that no root is known of yet */
} LockWait;

/* A reader's copy. */
struct PgscaleSamplerRoots
{
	bool		reads_all;		/* of all users' sessions */
	BlockerEntry entries[ENTRIES];
};

static BlockerProfile *blockers = NULL;

/* The sampler's own. */
static RootState roots[MAX_ROOTS];
static uint64 round_number = 0;
static TimestampTz round_at;
static bool changing = false;
static LockWait *lock_waits;	/* by slot */
static PgscaleLockWaits *graph;
static int64 last_read;			/* of the lock manager */
static bool read_wanted;		/* by the present tick */

PG_FUNCTION_INFO_V1(pgscale_blocker_profile);

static void
blockers_init(void)
{
	pgscale_change_init(&blockers->changes);
}

static void
blockers_change(void)
{
	if (!changing)
		(void) pgscale_change_begin_write(&blockers->changes);
	changing = true;
}

static void
blockers_end_change(void)
{
	if (changing)
		pgscale_change_end_write(&blockers->changes);
	changing = false;
}

/* All that is added lies in a round: a tick, or a reading of the lock manager. */
static void
begin_blockers_round(TimestampTz at)
{
	round_number++;
	round_at = at;
}

static void
blockers_begin(const PgscaleSamplerTick *tick)
{
	begin_blockers_round(tick->wall);
}

static void
blockers_end(PgscaleSamplerTick *tick)
{
	blockers_end_change();
}

static void
blockers_attach(void)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	lock_waits = palloc_extended(pgscale_procs_count() * sizeof(LockWait), MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	graph = pgscale_lock_waits_create(HOLDERS_EACH * pgscale_procs_count(), false);
	MemoryContextSwitchTo(old);

	/* The one before may have ended within a change. */
	blockers_change();
	blockers_end_change();

	/* Where its roots are, only that one knew: they are found again. */
	for (int i = 0; i < MAX_ROOTS; i++)
		roots[i].slot = -1;
}

static void
blockers_reset(int64 now)
{
	for (int slot = 0; slot < pgscale_procs_count(); slot++)
		lock_waits[slot].pending_ns = lock_waits[slot].found = 0;
	blockers_change();
	memset(blockers->entries, 0, sizeof(blockers->entries));
	blockers->used = 0;
	blockers_end_change();
}

static void
blocker_add_time(BlockerEntry *entry, uint32 wait_event, uint64 ns)
{
	entry->ns += ns;
	entry->kind_ns[KIND_OF(wait_event)] += ns;
	if (entry->first_seen == 0)
		entry->first_seen = round_at;
	entry->last_seen = round_at;
}

/* What the root does now; what it did last, if it has gone. */
static void
read_root(int i)
{
	BlockerEntry *entry = &blockers->entries[i];
	PgscaleProc *proc = &roots[i].proc;
	uint64		retries = 0;
	bool		changed;

	if (roots[i].round == round_number)
		return;
	roots[i].round = round_number;
	roots[i].waiters = 0;
	if (entry->pid == 0)
		return;
	if (!pgscale_procs_read(roots[i].slot, proc, &changed, &retries) ||
		proc->pid != entry->pid || proc->proc_start != entry->proc_start)
	{
		proc->in_transaction = false;
		return;
	}
	if (!changed)
		return;
	entry->datid = proc->datid;
	entry->userid = proc->userid;
	entry->queryid = proc->queryid;
	entry->kind = proc->kind;
	entry->state = proc->state;
}

/* Evicts an entry, and returns its number. */
static int
evict_least(void)
{
	BlockerEntry *evicted = &blockers->entries[EVICTED];
	BlockerEntry *entry;
	int			least = 0;

	for (int i = 1; i < MAX_ROOTS; i++)
		if (blockers->entries[i].ns < blockers->entries[least].ns)
			least = i;
	entry = &blockers->entries[least];

	evicted->ns += entry->ns;
	evicted->idle_ns += entry->idle_ns;
	for (int kind = 0; kind < LOCK_KINDS; kind++)
		evicted->kind_ns[kind] += entry->kind_ns[kind];
	evicted->max_waiters = Max(evicted->max_waiters, entry->max_waiters);
	if (evicted->first_seen == 0 || entry->first_seen < evicted->first_seen)
		evicted->first_seen = entry->first_seen;
	evicted->last_seen = Max(evicted->last_seen, entry->last_seen);
	return least;
}

static int
make_entry(const PgscaleLockNode *node, TimestampTz proc_start, const PgscaleProcClient *client)
{
	const int	i = blockers->used < MAX_ROOTS ? blockers->used++ : evict_least();
	BlockerEntry *entry = &blockers->entries[i];

	memset(entry, 0, sizeof(*entry));
	entry->pid = node->pid;
	entry->xid = node->xid;
	entry->proc_start = proc_start;
	entry->client = *client;
	if (++blockers->births == 0)
		blockers->births = 1;
	entry->born = blockers->births;
	entry->kind = (PgscaleProcKind) B_INVALID;
	if (node->pid == 0)
	{
		volatile PGPROC *proc = &ProcGlobal->allProcs[node->slot];

		/* If it has ended since then, its owner is unknown. */
		entry->datid = proc->databaseId;
		entry->userid = proc->roleId;
		pg_read_barrier();
		if (proc->xid != node->xid)
			entry->datid = entry->userid = InvalidOid;
	}
	roots[i].slot = -1;
	return i;
}

/* The entry of a root, made if necessary.  Returns false if its identity is unknown. */
static bool
find_root(const PgscaleLockNode *node, PgscaleSamplerRoot *root)
{
	PgscaleProc proc = {0};
	PgscaleProcClient client = {0};
	int			i;

	/*
	 * It may have ended since it was seen, and another one be there.  If it
	 * is still there after its client was read, the client is its own.
	 */
	if (node->pid != 0 &&
		(!pgscale_procs_read_client(node->slot, true, &client) ||
		 !pgscale_procs_read_anew(node->slot, &proc) || proc.pid != node->pid || proc.proc_start == 0))
		return false;

	blockers_change();
	for (i = 0; i < blockers->used; i++)
	{
		const BlockerEntry *entry = &blockers->entries[i];

		if (entry->pid == node->pid && entry->xid == node->xid && entry->proc_start == proc.proc_start &&
			strcmp(entry->client.application_name, client.application_name) == 0)
			break;
	}
	if (i == blockers->used)
		i = make_entry(node, proc.proc_start, &client);
	if (roots[i].slot < 0)
	{
		memset(&roots[i], 0, sizeof(roots[i]));
		roots[i].slot = node->slot;
	}
	root->entry = i;
	root->born = blockers->entries[i].born;
	return true;
}

/* Adds the sample of a process that waits for it.  Returns false if the entry was evicted. */
static bool
add_to_root(const PgscaleSamplerRoot *root, uint32 wait_event, uint64 ns)
{
	BlockerEntry *entry = &blockers->entries[root->entry];
	RootState  *state = &roots[root->entry];

	if (root->born == 0 || entry->born != root->born)
		return false;
	blockers_change();
	read_root(root->entry);
	blocker_add_time(entry, wait_event, ns);
	if (state->proc.in_transaction)
		entry->idle_ns += ns;
	state->waiters++;
	entry->max_waiters = Max(entry->max_waiters, state->waiters);
	return true;
}

static void
blockers_add(PgscaleSamplerTickSample *sample, const PgscaleSamplerTick *tick)
{
	const PgscaleProc *proc = sample->proc;
	LockWait   *wait;
	uint64		began;

	if ((proc->wait_event & PGSCALE_WAIT_CLASS) != PG_WAIT_LOCK)
		return;

	/* A process waits for a moment before it shows since when. */
	wait = &lock_waits[sample->slot];
	began = pg_atomic_read_u64(&ProcGlobal->allProcs[sample->slot].waitStart);

	/* After a wait that got no lock, waitStart may still be that wait's. */
	if (began != 0 && (wait->began != began || wait->pid != proc->pid || wait->wait_event != proc->wait_event))
	{
		wait->pid = proc->pid;
		wait->began = began;
		wait->seen_ns = tick->now;
		wait->wait_event = proc->wait_event;
		wait->pending_ns = 0;
	}
	if (began == 0 || wait->found != began || !add_to_root(&wait->by.entry, proc->wait_event, sample->ns))
	{
		blockers_change();
		blocker_add_time(&blockers->entries[UNKNOWN], proc->wait_event, sample->ns);
		if (began != 0)
			wait->pending_ns += sample->ns;
	}
	if (began == 0 || tick->now - wait->seen_ns < DeadlockTimeout * NS_PER_MS)
		return;
	read_wanted = true;
	if (wait->found == began)
		sample->blocked = &wait->by;
}

/* Gives a wait its root, and its time so far, which was of an unknown one. */
static void
give_root(const PgscaleLockWaiter *waiter, const PgscaleSamplerRoot *root)
{
	LockWait   *wait = &lock_waits[waiter->slot];
	const bool	same = wait->began == (uint64) waiter->since && wait->pid == waiter->pid;
	const uint64 ns = same ? wait->pending_ns : 0;

	wait->by.entry = *root;
	if (root->born == 0)
		return;
	if (add_to_root(root, wait->wait_event, ns))
	{
		BlockerEntry *unknown = &blockers->entries[UNKNOWN];

		unknown->ns -= ns;
		unknown->kind_ns[KIND_OF(wait->wait_event)] -= ns;
	}
	wait->pending_ns = 0;
}

/* Reads the lock manager, if a process has waited that long and the last reading is a second ago. */
static void
blockers_after(const PgscaleSamplerTick *tick)
{
	const bool	wanted = read_wanted;
	PgscaleSamplerRoot root = {0};
	int			root_node = -1;
	bool		all_known;

	read_wanted = false;
	if (!wanted || tick->now - last_read < READ_NS)
		return;
	last_read = tick->now;
	tick->stats->blocker_looks++;

	all_known = pgscale_lock_waits_read(graph);
	pgscale_lock_waits_find_roots(graph);
	for (int slot = 0; slot < pgscale_procs_count(); slot++)
		lock_waits[slot].found = 0;
	begin_blockers_round(tick->wall);
	for (int i = 0; i < graph->nwaiters; i++)
	{
		const PgscaleLockWaiter *waiter = &graph->waiters[i];
		const PgscaleLockNode *node = &graph->nodes[waiter->node];
		LockWait   *wait = &lock_waits[waiter->slot];

		if (node->blocker < 0)
			continue;

		/*
		 * A root that waits is part of a cycle, or waits for an unknown
		 * blocker.
		 */
		if (!all_known && graph->nodes[node->root].waiter >= 0)
			continue;
		wait->found = (uint64) waiter->since;
		wait->by.blocker = graph->nodes[node->blocker].pid;
		wait->by.root = graph->nodes[node->root].pid;

		/* Most waiters for the same lock have the same root. */
		if (node->root != root_node && !find_root(&graph->nodes[node->root], &root))
			memset(&root, 0, sizeof(root));
		root_node = node->root;
		give_root(waiter, &root);
	}
	blockers_end_change();
}

const PgscaleArea pgscale_sampler_blockers_area = {
	.name = "pgscale sampler blockers",
	.at = (void **) &blockers,
	.size = sizeof(BlockerProfile),
	.init = blockers_init,
};

const PgscaleSamplerConsumer pgscale_sampler_blockers_consumer = {
	.attach = blockers_attach,
	.reset = blockers_reset,
	.begin = blockers_begin,
	.add = blockers_add,
	.end = blockers_end,
	.after = blockers_after,
};

/* The kind of lock with most of the time, as a wait event. */
static uint32
main_event(const BlockerEntry *entry)
{
	int			main = 0;

	for (int kind = 1; kind < LOCK_KINDS; kind++)
		if (entry->kind_ns[kind] > entry->kind_ns[main])
			main = kind;
	return PG_WAIT_LOCK | main;
}

/* What the root was doing when it was last seen; of the other entries, what they are. */
static const char *
state_text(const BlockerEntry *entry, int i)
{
	const char *state;

	if (i == UNKNOWN)
		return "not looked up";
	if (i == EVICTED)
		return "other";
	if (entry->pid == 0)
		return "prepared";
	state = pgscale_proc_state_name(entry->state);
	return state ? state : pgscale_sampler_type_name(entry->kind);
}

PgscaleSamplerRoots *
pgscale_sampler_roots_copy(void)
{
	PgscaleSamplerRoots *copy = palloc(sizeof(PgscaleSamplerRoots));

	copy->reads_all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
	pgscale_change_copy(&blockers->changes, copy->entries, blockers->entries, sizeof(blockers->entries));
	return copy;
}

/* Of a process: the name of its application, for the role that reads it. */
static const char *
application_of(const PgscaleSamplerRoots *copy, const BlockerEntry *entry)
{
	return entry->pid != 0 && (copy->reads_all || entry->userid == GetUserId()) ? entry->client.application_name : NULL;
}

const char *
pgscale_sampler_root_application(const PgscaleSamplerRoots *copy, const PgscaleSamplerRoot *root)
{
	const BlockerEntry *entry = &copy->entries[root->entry];

	return root->born != 0 && entry->born == root->born ? application_of(copy, entry) : NULL;
}

static void
put_entry(ReturnSetInfo *rsinfo, const PgscaleSamplerRoots *copy, int i)
{
	const BlockerEntry *entry = &copy->entries[i];
	const bool	root = i < MAX_ROOTS;
	const bool	process = root && entry->pid != 0;
	const char *application_name = application_of(copy, entry);
	const char *address = application_name && entry->client.address[0] != '\0' ? entry->client.address : NULL;
	PgscaleRow	row = {0};

	pgscale_row_put(&row, Int32GetDatum(entry->pid), !root);
	pgscale_row_put(&row, TimestampTzGetDatum(entry->proc_start), !process);
	pgscale_row_put(&row, TransactionIdGetDatum(entry->xid), !root || process);
	pgscale_row_oid(&row, entry->datid);
	pgscale_row_oid(&row, entry->userid);
	pgscale_row_text(&row, application_name);
	pgscale_row_put(&row, address ? DirectFunctionCall1(inet_in, CStringGetDatum(address)) : (Datum) 0, address == NULL);
	pgscale_row_text(&row, state_text(entry, i));
	pgscale_row_id(&row, entry->queryid);
	pgscale_row_text(&row, pgscale_wait_event_name(main_event(entry)));
	pgscale_row_float8(&row, (double) entry->ns / 1e6);
	pgscale_row_put(&row, Float8GetDatum((double) entry->idle_ns / 1e6), !process && i != EVICTED);
	pgscale_row_put(&row, Int32GetDatum(entry->max_waiters), i == UNKNOWN);
	pgscale_row_timestamp(&row, entry->first_seen);
	pgscale_row_timestamp(&row, entry->last_seen);
	pgscale_row_end(&row, rsinfo);
}

/* pgscale_internal.blocker_profile(): a row for each root, and for what has none. */
Datum
pgscale_blocker_profile(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	PgscaleSamplerRoots *copy;

	pgscale_preload_require();
	InitMaterializedSRF(fcinfo, 0);

	copy = pgscale_sampler_roots_copy();
	for (int i = 0; i < ENTRIES; i++)
		if (copy->entries[i].ns > 0)
			put_entry(rsinfo, copy, i);
	return (Datum) 0;
}
