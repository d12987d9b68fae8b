/*-------------------------------------------------------------------------
 *
 * profile.c
 *	  The accumulated wait profile, in shared memory of fixed size.
 *
 * One process, the sampler, writes; any number of others read, and neither side waits
 * for the other.  With a lock, a slow reader would stop the sampler, or its ticks would
 * stop a dashboard.
 *
 * The entries are a dense array.  Only the writer needs to find a key, so the hash
 * table over the array is in the writer's own memory; a new writer rebuilds it from the
 * array.
 *
 * Readers: the profile has one change count, and each chunk of entries remembers the
 * number of its last change.  A reader copies all chunks, then the chunks that changed
 * since it began, and so on, until a pass finds no change.  A large profile takes
 * longer to copy than the time between two ticks of 1 ms.  But the last passes copy
 * only the few chunks of one tick, so the copy converges: it is the profile as of the
 * end of one tick, and its sums agree with the totals to the nanosecond.
 *
 * Eviction: when all entries are in use, the one with the least time among a few at a
 * rotating hand is evicted into a row that keeps only its wait event, and counted.
 * Large entries stay, whatever their age; totals never change.  Those rows have their
 * own space, with a last row for all further events, so that an eviction cannot fail.
 *
 * A writer that ends within a change has counted at most one tick in part.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "base/change_count.h"
#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/row_builder.h"
#include "base/wait_events.h"
#include "sampler/profile/profile.h"
#include "sampler/samples.h"

/* Entries whose changes readers see together. */
#define CHUNK_ENTRIES	64

/*
 * Rows for evicted entries, one an event: the server has about 300, the rest
 * is for what extensions add.  The last one is for all other events.
 */
#define MAX_OTHERS		PGSCALE_PROFILE_OTHERS

/* How many entries a search for a victim compares. */
#define EVICTION_SAMPLE 16

typedef struct Chunk
{
	uint64		changed;		/* number of the last change */
	PgscaleSamplerProfileEntry entries[CHUNK_ENTRIES];
} Chunk;

/*
 * All is written by the sampler only, and read under the protocol above.
 * Entries 0 .. capacity-1 are ordinary, MAX_OTHERS more follow.
 */
typedef struct Profile
{
	PgscaleChangeCount changes; /* of all that follows */
	int32		capacity;
	int32		nchunks;
	uint64		births;			/* entries ever made */
	PgscaleSamplerProfileTotals totals;
	Chunk		chunks[FLEXIBLE_ARRAY_MEMBER];
} Profile;

static Profile *profile = NULL;

/* The writer's map from keys to entries. */
typedef struct IndexElement
{
	PgscaleSamplerWaitKey key;
	int32		entry;
	char		status;
} IndexElement;

#define SH_PREFIX		profile_index
#define SH_ELEMENT_TYPE IndexElement
#define SH_KEY_TYPE		PgscaleSamplerWaitKey
#define SH_KEY			key
#define SH_HASH_KEY(tb, k)	hash_bytes((const unsigned char *) &(k), sizeof(k))
#define SH_EQUAL(tb, a, b)	(memcmp(&(a), &(b), sizeof(a)) == 0)
#define SH_SCOPE		static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

static profile_index_hash *index_of = NULL;
static int32 hand = 0;
static uint64 change;			/* the number of the one under way */

/* Incremented when an entry's number may mean something else from now on. */
static uint32 generation = 0;

PG_FUNCTION_INFO_V1(pgscale_wait_profile);

static int
chunks_for(int capacity)
{
	return (capacity + MAX_OTHERS + CHUNK_ENTRIES - 1) / CHUNK_ENTRIES;
}

static Size
profile_size(void)
{
	return add_size(offsetof(Profile, chunks),
					mul_size(chunks_for(pgscale_sampler_settings.profile_size), sizeof(Chunk)));
}

static void
profile_init(void)
{
	pgscale_change_init(&profile->changes);
	profile->capacity = pgscale_sampler_settings.profile_size;
	profile->nchunks = chunks_for(profile->capacity);
	memset(profile->chunks, 0, profile->nchunks * sizeof(Chunk));
	profile->totals.reset_at = GetCurrentTimestamp();
}

static inline PgscaleSamplerProfileEntry *
entry_at(int entry)
{
	Assert(entry >= 0 && entry < profile->capacity + MAX_OTHERS);
	return &profile->chunks[entry / CHUNK_ENTRIES].entries[entry % CHUNK_ENTRIES];
}

/* The entry, to be changed: readers will copy its chunk again. */
static inline PgscaleSamplerProfileEntry *
entry_to_change(int entry)
{
	Assert(pgscale_change_is_under_way(&profile->changes));
	profile->chunks[entry / CHUNK_ENTRIES].changed = change;
	return entry_at(entry);
}

static void
index_entry(int entry)
{
	bool		found;

	profile_index_insert(index_of, entry_at(entry)->key, &found)->entry = entry;
}

static void
profile_attach(void)
{
	/* The one before may have ended within a change. */
	pgscale_sampler_profile_begin(NULL);
	pgscale_sampler_profile_end(NULL);

	index_of = profile_index_create(TopMemoryContext,
									profile->capacity + MAX_OTHERS, NULL);
	for (int i = 0; i < profile->totals.used; i++)
		index_entry(i);
	for (int i = 0; i < profile->totals.others; i++)
		index_entry(profile->capacity + i);
}

void
pgscale_sampler_profile_begin(const PgscaleSamplerTick *tick)
{
	change = pgscale_change_begin_write(&profile->changes);
}

void
pgscale_sampler_profile_end(PgscaleSamplerTick *tick)
{
	pgscale_change_end_write(&profile->changes);
}

static void
set_entry(int entry, const PgscaleSamplerWaitKey *key)
{
	PgscaleSamplerProfileEntry *e = entry_to_change(entry);

	e->key = *key;
	e->samples = 0;
	e->ns = 0;
	e->born = ++profile->births;
	index_entry(entry);
}

/* The row that collects what is evicted of a wait event. */
static int
other_entry(uint32 wait_event)
{
	PgscaleSamplerWaitKey key = {0};
	IndexElement *found;
	int			entry;

	key.kind = PGSCALE_PROC_OTHER;
	key.wait_event = wait_event;
	found = profile_index_lookup(index_of, key);
	if (found)
		return found->entry;

	if (profile->totals.others >= MAX_OTHERS - 1 && wait_event != PGSCALE_WAIT_OTHER)
		return other_entry(PGSCALE_WAIT_OTHER);

	Assert(profile->totals.others < MAX_OTHERS);
	entry = profile->capacity + profile->totals.others++;
	set_entry(entry, &key);
	return entry;
}

/* Frees an entry: its time goes to its event's row. */
static int
profile_evict(void)
{
	int			victim = -1;
	PgscaleSamplerProfileEntry *v;
	PgscaleSamplerProfileEntry *other;

	for (int i = 0; i < EVICTION_SAMPLE; i++)
	{
		if (victim < 0 || entry_at(hand)->ns < entry_at(victim)->ns)
			victim = hand;
		hand = (hand + 1) % profile->capacity;
	}

	v = entry_at(victim);
	other = entry_to_change(other_entry(v->key.wait_event));
	other->samples += v->samples;
	other->ns += v->ns;
	profile_index_delete(index_of, v->key);
	profile->totals.evictions++;
	generation++;
	return victim;
}

static int
find_or_make(const PgscaleSamplerWaitKey *key)
{
	IndexElement *found = profile_index_lookup(index_of, *key);
	int			entry;

	if (found)
		return found->entry;

	if (profile->totals.used < profile->capacity)
		entry = profile->totals.used++;
	else
		entry = profile_evict();
	set_entry(entry, key);
	return entry;
}

void
pgscale_sampler_profile_add_again(int entry, uint64 samples, uint64 ns)
{
	PgscaleSamplerProfileEntry *e = entry_to_change(entry);

	e->samples += samples;
	e->ns += samples * ns;
	profile->totals.samples += samples;
	profile->totals.ns += samples * ns;
}

static bool
is_entry_of(int entry, const PgscaleSamplerWaitKey *key)
{
	return entry >= 0 && entry < profile->totals.used && memcmp(&entry_at(entry)->key, key, sizeof(*key)) == 0;
}

int
pgscale_sampler_profile_add(const PgscaleSamplerWaitKey *key, int hints[2], uint64 ns)
{
	if (!is_entry_of(hints[0], key))
	{
		const int	before = hints[1];

		hints[1] = hints[0];
		hints[0] = is_entry_of(before, key) ? before : find_or_make(key);
	}
	pgscale_sampler_profile_add_again(hints[0], 1, ns);
	return hints[0];
}

uint32
pgscale_sampler_profile_generation(void)
{
	return generation;
}

uint64
pgscale_sampler_profile_born(int entry)
{
	return entry_at(entry)->born;
}

bool
pgscale_sampler_profile_key(int entry, uint64 born, PgscaleSamplerWaitKey *key)
{
	/* It may be evicted within the tick that made it, or reset. */
	if (entry >= profile->totals.used || entry_at(entry)->born != born)
		return false;
	*key = entry_at(entry)->key;
	return true;
}

int
pgscale_sampler_profile_move(int entry, const PgscaleSamplerWaitKey *key, uint64 samples, uint64 ns)
{
	PgscaleSamplerProfileEntry *from = entry_to_change(entry);
	PgscaleSamplerProfileEntry *to;
	int			target;

	/* What was parked for long may have been split meanwhile. */
	samples = Min(samples, from->samples);
	ns = Min(ns, from->ns);

	/* Take it out first: making room for the new key may evict this one. */
	from->samples -= samples;
	from->ns -= ns;

	target = find_or_make(key);
	to = entry_to_change(target);
	to->samples += samples;
	to->ns += ns;
	return target;
}

static void
profile_reset(int64 now)
{
	pgscale_sampler_profile_begin(NULL);
	for (int i = 0; i < profile->nchunks; i++)
	{
		memset(profile->chunks[i].entries, 0, sizeof(profile->chunks[i].entries));
		profile->chunks[i].changed = change;
	}
	memset(&profile->totals, 0, sizeof(profile->totals));
	profile->totals.reset_at = GetCurrentTimestamp();
	profile_index_reset(index_of);
	hand = 0;
	generation++;
	pgscale_sampler_profile_end(NULL);
}

const PgscaleArea pgscale_sampler_profile_area = {
	.name = "pgscale sampler profile",
	.at = (void **) &profile,
	.size = offsetof(Profile, chunks),
	.computed = profile_size,
	.init = profile_init,
};

const PgscaleSamplerConsumer pgscale_sampler_profile_consumer = {
	.attach = profile_attach,
	.reset = profile_reset,
	.begin = pgscale_sampler_profile_begin,
	.end = pgscale_sampler_profile_end,
};

void
pgscale_sampler_profile_totals(PgscaleSamplerProfileTotals *totals)
{
	pgscale_change_copy(&profile->changes, totals, &profile->totals, sizeof(*totals));
}

/*
 * The entries in use of a profile with these totals, without the gaps.  Returns false
 * if there is no memory for them and flags say that this is not an error.
 */
static bool
pack_entries(Chunk *chunks, PgscaleSamplerProfileSnapshot *snapshot, int flags)
{
	const int	capacity = profile->capacity;
	const Size	most = Max(1, snapshot->totals.used + snapshot->totals.others);
	int			n = 0;

	snapshot->entries = palloc_extended(mul_size(most, sizeof(PgscaleSamplerProfileEntry)), MCXT_ALLOC_HUGE | flags);
	if (snapshot->entries == NULL)
		return false;
	for (int i = 0; i < capacity + MAX_OTHERS; i++)
	{
		PgscaleSamplerProfileEntry *e = &chunks[i / CHUNK_ENTRIES].entries[i % CHUNK_ENTRIES];

		if (i >= snapshot->totals.used && i < capacity)
			continue;
		if (i >= capacity + snapshot->totals.others)
			break;
		if (e->samples > 0 || e->ns > 0)
			snapshot->entries[n++] = *e;
	}
	snapshot->nentries = n;
	return true;
}

static void
profile_snapshot(PgscaleSamplerProfileSnapshot *snapshot)
{
	Chunk	   *copy;
	uint64		before;
	uint64		copied = 0;		/* a chunk never changed has nothing to copy */

	copy = palloc_extended(mul_size(profile->nchunks, sizeof(Chunk)), MCXT_ALLOC_HUGE);

	for (;;)
	{
		before = pgscale_change_wait(&profile->changes);
		for (int i = 0; i < profile->nchunks; i++)
			if (profile->chunks[i].changed > copied)
				memcpy(&copy[i], &profile->chunks[i], sizeof(Chunk));
		snapshot->totals = profile->totals;
		if (pgscale_change_is_unchanged(&profile->changes, before))
			break;
		copied = before;
		CHECK_FOR_INTERRUPTS();
	}

	(void) pack_entries(copy, snapshot, 0);
	pfree(copy);
}

bool
pgscale_sampler_profile_at_rest(PgscaleSamplerProfileSnapshot *snapshot)
{
	snapshot->totals = profile->totals;
	return !pgscale_change_is_under_way(&profile->changes) &&
		pack_entries(profile->chunks, snapshot, MCXT_ALLOC_NO_OOM);
}

void
pgscale_sampler_profile_restore(const PgscaleSamplerProfileTotals *totals,
								const PgscaleSamplerProfileEntry *entries, int nentries)
{
	profile_attach();
	pgscale_sampler_profile_begin(NULL);
	for (int i = 0; i < nentries; i++)
	{
		PgscaleSamplerWaitKey key = entries[i].key;
		PgscaleSamplerProfileEntry *e;

		key.wait_event = pgscale_wait_event_durable(key.wait_event);
		e = entry_to_change(key.kind == PGSCALE_PROC_OTHER ?
							other_entry(key.wait_event) : find_or_make(&key));
		e->samples += entries[i].samples;
		e->ns += entries[i].ns;
		profile->totals.samples += entries[i].samples;
		profile->totals.ns += entries[i].ns;
	}
	profile->totals.evictions += totals->evictions;
	profile->totals.reset_at = Min(totals->reset_at, GetCurrentTimestamp());
	pgscale_sampler_profile_end(NULL);
	profile_index_destroy(index_of);
	index_of = NULL;
}

/* Again after a reset: its numbers stand for others then. */
static void
read_snapshot(void *arg)
{
	PgscaleSamplerProfileSnapshot *snapshot = arg;

	if (snapshot->entries)
		pfree(snapshot->entries);
	profile_snapshot(snapshot);
}

static int
compare_entries(const void *a, const void *b)
{
	const uint64 x = ((const PgscaleSamplerProfileEntry *) a)->ns;
	const uint64 y = ((const PgscaleSamplerProfileEntry *) b)->ns;

	return (x < y) - (x > y);
}

/*
 * pgscale_internal.wait_profile(): one row an entry, the longest first.  Columns that do not
 * apply are NULL: an evicted entry's row has only its event.
 */
Datum
pgscale_wait_profile(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	PgscaleSamplerProfileSnapshot snapshot = {0};
	PgscaleSamplerLabels *labels;
	double		shown = 0;

	pgscale_preload_require();
	InitMaterializedSRF(fcinfo, 0);
	labels = pgscale_sampler_labels_read_with(read_snapshot, &snapshot);
	qsort(snapshot.entries, snapshot.nentries, sizeof(*snapshot.entries), compare_entries);
	for (int i = 0; i < snapshot.nentries; i++)
		if (!pgscale_wait_is_idle(snapshot.entries[i].key.kind, snapshot.entries[i].key.wait_event))
			shown += snapshot.entries[i].ns;

	for (int i = 0; i < snapshot.nentries; i++)
	{
		PgscaleSamplerProfileEntry *e = &snapshot.entries[i];
		const bool	other = e->key.kind == PGSCALE_PROC_OTHER;
		const bool	idle = pgscale_wait_is_idle(e->key.kind, e->key.wait_event);
		const char *application_name;
		const char *address;
		PgscaleRow	row = {0};

		CHECK_FOR_INTERRUPTS();
		pgscale_sampler_label(labels, e->key.label, e->key.userid, &application_name, &address);
		pgscale_row_text(&row, other ? "other" : pgscale_sampler_type_name(e->key.kind));
		pgscale_row_oid(&row, e->key.datid);
		pgscale_row_oid(&row, e->key.userid);
		pgscale_row_id(&row, e->key.queryid);
		pgscale_row_text(&row, pgscale_wait_event_type(e->key.wait_event));
		pgscale_row_text(&row, pgscale_wait_event_name(e->key.wait_event));
		pgscale_row_bool(&row, idle);
		pgscale_row_int8(&row, e->samples);
		pgscale_row_float8(&row, (double) e->ns / 1e6);
		pgscale_row_text(&row, application_name);
		pgscale_row_put(&row, address ? DirectFunctionCall1(inet_in, CStringGetDatum(address)) : (Datum) 0, address == NULL);
		pgscale_row_id(&row, e->key.plan_id);
		pgscale_row_float8(&row, idle || shown == 0 ? NAN : e->ns / shown);
		pgscale_row_end(&row, rsinfo);
	}
	return (Datum) 0;
}
