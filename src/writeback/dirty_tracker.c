/*-------------------------------------------------------------------------
 *
 * dirty_tracker.c
 *	  Finds what the server has written into the kernel, by the buffer headers.
 *
 * The kernel can report how dirty a file is, but that takes a walk over all its cached
 * pages, and it counts folios, which one dirty byte makes dirty as a whole.  The buffer
 * headers are better.  If a buffer held a dirty page in one pass, and holds it clean,
 * or holds another page, in the next, then the page was written in between.  So each
 * buffer's dirty page is remembered, in eight bytes, and the headers are read again and
 * again.  If a checkpoint writes a page and a backend dirties it at once, the flag that
 * the checkpoint has set and cleared shows the write.
 *
 * Writes are added up by stretches of 16 MB, because a stretch is cheap to ask the
 * kernel for, and there are not too many of them.
 *
 * Two cursors.  One visits all buffers, each second if that takes no more than a tenth
 * of a CPU, and otherwise as often as a tenth of a CPU allows.  Pages that leave the
 * buffers, or that bgwriter writes ahead, are near the server's clock hand.  So the
 * other cursor follows the hand in each round, and sees writes there at once, however
 * many buffers there are.
 *
 * Pages that are dirtied and written between two looks are missed: part of the pages of
 * COPY and VACUUM, but never a whole stretch of them.  So are files that are written
 * past the buffers, which file_scan.c finds.
 *
 * Rewrites.  If a page is written many times before the kernel writes it to disk, early
 * requests cost writes that waiting would have saved.  So for every eighth page, by its
 * hash, the time of its last write is remembered.
 *
 * Memory: 8 bytes for each buffer, and 10 MB, fixed, in this process.  The memory of a
 * buffer is initialized at the first look at it, so that switching on is fast with any
 * number of buffers.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "common/hashfn.h"
#include "port/pg_bitutils.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/shared_buffers.h"
#include "base/timer.h"
#include "base/units.h"
#include "writeback/dirty_tracker.h"


/* Headers to read in a round in any case: 0.3 ms. */
#define ROUND_BUFFERS	131072

/* All buffers within that time, but with no more than one part in that many of it. */
#define PASS_NS			NS_PER_S
#define ROUND_NS		(NS_PER_S / 20)
#define BUSY_PARTS		10
#define IDLE_PARTS		50

/* That many between two looks at the clock, and initialized at once. */
#define CHUNK_BUFFERS	8192

/*
 * Near the hand: that many behind its old place and ahead of its new one, and no more
 * than that in all.
 */
#define HAND_BUFFERS	8192
#define HAND_MAX		131072

#define MAX_STRETCHES	65536
#define NO_STRETCH		PG_UINT32_MAX

/* How many to try to find one that is free. */
#define FREE_TRIES		64

/* One page in that many is sampled; the latest ones are remembered, four a row. */
#define SAMPLE_PAGES	8
#define MEMORY_ROWS		65536
#define MEMORY_WAYS		4

/* With fewer samples, fractions mean nothing. */
#define ENOUGH_SAMPLES	100
#define ENOUGH_OF_STRETCH	8

/* At that many pages of a stretch, the counts are halved. */
#define STRETCH_SAMPLES 64

/* What a buffer held when it was last looked at. */
typedef struct Memo
{
	uint32		stretch;		/* NO_STRETCH: no dirty page */
	uint16		block;			/* within the stretch */
	bool		checkpoint;		/* a checkpoint was to write it */
} Memo;

/*
 * Where a stretch is.  This table takes all of its memory when it is created;
 * the server's other kind would grow with the files that come and go.
 */
typedef struct StretchEntry
{
	PgscaleWritebackStretchKey key;
	uint32		stretch;
	char		status;
} StretchEntry;

#define SH_PREFIX		stretch_table
#define SH_ELEMENT_TYPE StretchEntry
#define SH_KEY_TYPE		PgscaleWritebackStretchKey
#define SH_KEY			key
#define SH_HASH_KEY(tb, k)	hash_bytes((const unsigned char *) &(k), sizeof(k))
#define SH_EQUAL(tb, a, b)	(memcmp(&(a), &(b), sizeof(a)) == 0)
#define SH_SCOPE		static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* A page that was written, and when, in seconds. */
typedef struct PageMemory
{
	uint32		page;
	uint32		at;
} PageMemory;

PgscaleWritebackWatch pgscale_writeback_watch = {0};

static MemoryContext context = NULL;
static Memo *memos;
static bool *ready;				/* chunks of them that are */
static stretch_table_hash *table;
static PageMemory (*memory)[MEMORY_WAYS];
static int	next_buffer;
static uint64 last_hand;		/* the server's, in buffers since its start */
static uint32 free_hand;
static bool changed;			/* did anything, in this pass so far? */
static bool last_changed;		/* and in the one before? */
static int64 weighed_ns;		/* when samples last lost weight */

void
pgscale_writeback_watch_start(int64 now_ns)
{
	MemoryContext old;

	if (!context)
		context = AllocSetContextCreate(TopMemoryContext, "pgscale writeback watch",
										ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(context);
	old = MemoryContextSwitchTo(context);

	memset(&pgscale_writeback_watch, 0, sizeof(pgscale_writeback_watch));
	pgscale_writeback_watch.stretches = palloc0(MAX_STRETCHES * sizeof(PgscaleWritebackStretch));
	memos = MemoryContextAllocHuge(context, (Size) NBuffers * sizeof(Memo));
	ready = palloc0((NBuffers / CHUNK_BUFFERS + 1) * sizeof(bool));
	table = stretch_table_create(context, MAX_STRETCHES, NULL);
	memory = palloc0(MEMORY_ROWS * sizeof(*memory));
	MemoryContextSwitchTo(old);

	next_buffer = free_hand = 0;
	last_hand = pgscale_buffers_hand();
	changed = last_changed = false;
	weighed_ns = now_ns;
}

void
pgscale_writeback_watch_stop(void)
{
	if (context)
		MemoryContextReset(context);
	memset(&pgscale_writeback_watch, 0, sizeof(pgscale_writeback_watch));
}

/* A place for another stretch, or NO_STRETCH. */
static uint32
free_stretch(void)
{
	if (pgscale_writeback_watch.used < MAX_STRETCHES)
		return pgscale_writeback_watch.used++;
	for (int i = 0; i < FREE_TRIES; i++)
	{
		uint32		n = free_hand;
		PgscaleWritebackStretch *s = &pgscale_writeback_watch.stretches[n];

		free_hand = (free_hand + 1) % MAX_STRETCHES;
		if (s->waiting == 0 && s->flying == 0 && s->dirty == 0)
		{
			stretch_table_delete(table, s->key);
			return n;
		}
	}
	return NO_STRETCH;
}

static uint32
find_stretch(const PgscaleWritebackStretchKey *key)
{
	bool		found;
	StretchEntry *entry = stretch_table_lookup(table, *key);
	uint32		n;

	if (entry)
		return entry->stretch;
	n = free_stretch();
	if (n == NO_STRETCH)
		return n;
	entry = stretch_table_insert(table, *key, &found);
	entry->stretch = n;
	memset(&pgscale_writeback_watch.stretches[n], 0, sizeof(PgscaleWritebackStretch));
	pgscale_writeback_watch.stretches[n].key = *key;
	return n;
}

/* Remembers a write to a page.  Returns whether there was one not long ago. */
static bool
dirty_remember(uint32 page, int64 now_ns)
{
	PageMemory *row = memory[page / SAMPLE_PAGES % MEMORY_ROWS];
	PageMemory *oldest = row;
	uint32		now = now_ns / NS_PER_S + 1;	/* 0: never */
	bool		again = false;

	for (int i = 0; i < MEMORY_WAYS; i++)
	{
		if (row[i].page == page && row[i].at != 0)
		{
			again = now - row[i].at < PGSCALE_REWRITE_WINDOW_S;
			oldest = &row[i];
			break;
		}
		if (row[i].at < oldest->at)
			oldest = &row[i];
	}
	oldest->page = page;
	oldest->at = now;
	return again;
}

static void
dirty_sample(PgscaleWritebackStretch *s, uint32 n, int block, int64 now_ns)
{
	/* Stretches keep their number for as long as they have anything to say. */
	uint32		page = murmurhash32(n * PGSCALE_STRETCH_BLOCKS + block);
	bool		again;

	if (page % SAMPLE_PAGES != 0)
		return;
	again = dirty_remember(page, now_ns);
	pgscale_writeback_watch.sampled++;
	pgscale_writeback_watch.rewritten += again;
	if (s->sampled >= STRETCH_SAMPLES)
	{
		s->sampled /= 2;
		s->rewritten /= 2;
	}
	s->sampled++;
	s->rewritten += again;
}

static void
add_waiting(PgscaleWritebackStretch *s, uint16 pieces, int pages, int64 now_ns)
{
	pages = Min(pages, PGSCALE_STRETCH_BLOCKS - (int) s->waiting);
	if (s->waiting == 0)
		s->since_ns = now_ns;
	s->waiting += pages;
	s->pieces |= pieces;
	pgscale_writeback_watch.waiting += pages;
}

static void
was_written(const Memo *memo, int64 now_ns)
{
	PgscaleWritebackStretch *s = &pgscale_writeback_watch.stretches[memo->stretch];

	pgscale_writeback_watch.written++;
	add_waiting(s, 1 << (memo->block / PGSCALE_PIECE_BLOCKS), 1, now_ns);
	dirty_sample(s, memo->stretch, memo->block, now_ns);
}

static void
dirty_forget(Memo *memo)
{
	pgscale_writeback_watch.stretches[memo->stretch].dirty--;
	memo->stretch = NO_STRETCH;
}

static void
dirty_keep(Memo *memo, const PgscalePage *page, bool checkpoint)
{
	PgscaleWritebackStretchKey key;

	memset(&key, 0, sizeof(key));
	key.locator = page->locator;
	key.fork = page->fork;
	key.number = page->block / PGSCALE_STRETCH_BLOCKS;

	memo->stretch = find_stretch(&key);
	if (memo->stretch == NO_STRETCH)
	{
		pgscale_writeback_watch.unseen++;
		return;
	}
	memo->block = page->block % PGSCALE_STRETCH_BLOCKS;
	memo->checkpoint = checkpoint;
	pgscale_writeback_watch.stretches[memo->stretch].dirty++;
	pgscale_writeback_watch.stretches[memo->stretch].in_buffers = true;
}

static bool
dirty_holds(const Memo *memo, const PgscalePage *page)
{
	const PgscaleWritebackStretchKey *key = &pgscale_writeback_watch.stretches[memo->stretch].key;

	return page->block == key->number * PGSCALE_STRETCH_BLOCKS + memo->block &&
		page->fork == key->fork && RelFileLocatorEquals(page->locator, key->locator);
}

/* It holds the same dirty page as before, written in between or not. */
static void
still_dirty(Memo *memo, bool checkpoint, int64 now_ns)
{
	if (memo->checkpoint && !checkpoint)
	{
		changed = true;
		was_written(memo, now_ns);
	}
	memo->checkpoint = checkpoint;
}

/* Compares a buffer with what it held before. */
static void
dirty_look(int buf, int64 now_ns)
{
	Memo	   *memo = &memos[buf];
	bool		tagged;
	bool		checkpoint;
	bool		dirty = pgscale_buffer_dirty(buf, &tagged, &checkpoint);
	PgscaleBuffer buffer;
	PgscalePage page;

	if (!dirty && memo->stretch == NO_STRETCH)
		return;
	if (dirty && memo->stretch != NO_STRETCH)
	{
		/* Mostly so, and torn it would not be the same. */
		pgscale_buffer_page(buf, &page);
		if (dirty_holds(memo, &page))
		{
			still_dirty(memo, checkpoint, now_ns);
			return;
		}
	}
	if (dirty && !(pgscale_buffer_read(buf, &buffer, &page) && buffer.dirty))
		return;					/* changes at this moment: next time */

	changed = true;
	if (memo->stretch != NO_STRETCH)
	{
		/* What holds no page at all was dropped. */
		if (tagged)
			was_written(memo, now_ns);
		dirty_forget(memo);
	}
	if (dirty)
		dirty_keep(memo, &page, checkpoint);
}

static void
let_samples_fade(int64 now_ns)
{
	double		left = exp(-(double) (now_ns - weighed_ns) / (PGSCALE_REWRITE_WINDOW_S * NS_PER_S));

	pgscale_writeback_watch.sampled *= left;
	pgscale_writeback_watch.rewritten *= left;
	weighed_ns = now_ns;
}

/* Looks at buffers of one chunk. */
static void
look_within_chunk(int first, int end, int64 now_ns)
{
	int			chunk = first / CHUNK_BUFFERS;

	if (!ready[chunk])
	{
		int			chunk_end = (int) Min((int64) (chunk + 1) * CHUNK_BUFFERS, NBuffers);

		for (int i = chunk * CHUNK_BUFFERS; i < chunk_end; i++)
			memos[i].stretch = NO_STRETCH;
		ready[chunk] = true;
	}
	for (int buf = first; buf < end; buf++)
		dirty_look(buf, now_ns);
}

/* The end of the chunk, or of the buffers. */
static int
chunk_end_of(int buf)
{
	return (int) Min((int64) (buf / CHUNK_BUFFERS + 1) * CHUNK_BUFFERS, NBuffers);
}

/*
 * Looks at what the hand has gone over since the last time, at what bgwriter may
 * have cleaned ahead of it, and at what it comes to next, so that it is known what
 * that was.
 */
static void
look_about_hand(int64 now_ns)
{
	uint64		hand = pgscale_buffers_hand();
	int64		moved = Max((int64) (hand - last_hand), 0);
	int64		n = Min(Min(moved + 2 * HAND_BUFFERS + moved, HAND_MAX), NBuffers);
	int64		behind = Min(moved + HAND_BUFFERS, n / 2);
	int			buf = (int) ((hand + NBuffers - behind % NBuffers) % NBuffers);

	while (n > 0)
	{
		int			end = (int) Min(buf + n, chunk_end_of(buf));

		look_within_chunk(buf, end, now_ns);
		n -= end - buf;
		buf = end < NBuffers ? end : 0;
	}
	last_hand = hand;
}

/* How many buffers to look at, of all, in a round that comes so often. */
static int64
part_of_pass(int64 period_ns)
{
	return Max((int64) NBuffers * period_ns / PASS_NS + 1, ROUND_BUFFERS * (period_ns / ROUND_NS + 1));
}

bool
pgscale_writeback_watch_round(int64 now_ns, int64 period_ns)
{
	bool		busy = changed || last_changed;
	int64		left = part_of_pass(period_ns);
	int64		least = ROUND_BUFFERS;
	int64		give_up = now_ns + period_ns / (busy ? BUSY_PARTS : IDLE_PARTS);

	if (next_buffer == 0)
	{
		last_changed = changed;
		changed = false;
	}
	let_samples_fade(now_ns);
	if (NBuffers > ROUND_BUFFERS)
		look_about_hand(now_ns);
	do
	{
		int			end = (int) Min(next_buffer + left, chunk_end_of(next_buffer));

		look_within_chunk(next_buffer, end, now_ns);
		left -= end - next_buffer;
		least -= end - next_buffer;
		next_buffer = end < NBuffers ? end : 0;
	} while (next_buffer != 0 && left > 0 && (least > 0 || pgscale_timer_clock() < give_up));
	return changed || last_changed;
}

bool
pgscale_writeback_watch_knows(const PgscaleWritebackStretchKey *key)
{
	const StretchEntry *entry = stretch_table_lookup(table, *key);
	const PgscaleWritebackStretch *s;

	if (!entry)
		return false;
	s = &pgscale_writeback_watch.stretches[entry->stretch];
	return s->dirty > 0 || (s->in_buffers && s->waiting + s->flying > 0);
}

int
pgscale_writeback_watch_found(const PgscaleWritebackStretchKey *key, uint16 pieces, int pages, int64 now_ns)
{
	uint32		n = find_stretch(key);
	PgscaleWritebackStretch *s;

	if (n == NO_STRETCH)
		return 0;
	s = &pgscale_writeback_watch.stretches[n];
	pages -= s->waiting + s->flying;
	if (pages <= 0)
		return 0;
	add_waiting(s, pieces, pages, now_ns);
	return pages;
}

double
pgscale_writeback_watch_rewritten(void)
{
	if (pgscale_writeback_watch.sampled < ENOUGH_SAMPLES)
		return -1;
	return pgscale_writeback_watch.rewritten / pgscale_writeback_watch.sampled;
}

double
pgscale_writeback_stretch_rewritten(const PgscaleWritebackStretch *s)
{
	return s->sampled < ENOUGH_OF_STRETCH ? 0 : (double) s->rewritten / s->sampled;
}

int
pgscale_writeback_stretch_take(PgscaleWritebackStretch *s, int piece, int most)
{
	/* Its share of them, since they are not counted by pieces. */
	int			pieces = pg_popcount32(s->pieces);
	int			share = (s->waiting + pieces - 1) / pieces;
	int			pages = Min(share, most);

	s->pieces &= ~(1 << piece);
	s->waiting -= share;
	s->flying += pages;
	pgscale_writeback_watch.waiting -= share;
	pgscale_writeback_watch.flying += pages;
	return pages;
}

void
pgscale_writeback_stretch_landed(PgscaleWritebackStretch *s, int pages)
{
	s->flying -= pages;
	pgscale_writeback_watch.flying -= pages;
}

int
pgscale_writeback_stretch_limit(PgscaleWritebackStretch *s, int pages)
{
	int			fewer = (int) s->waiting - pages;

	if (fewer <= 0)
		return 0;
	s->waiting = pages;
	if (pages == 0)
		s->pieces = 0;
	pgscale_writeback_watch.waiting -= fewer;
	return fewer;
}
