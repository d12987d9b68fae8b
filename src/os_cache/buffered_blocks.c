/*-------------------------------------------------------------------------
 *
 * buffered_blocks.c
 *	  Blocks of each fork that are in shared buffers.
 *
 * Two passes over the headers, without locks: the first counts the buffers of each
 * fork, the second stores their block numbers, so a buffer takes no more than the 4
 * bytes of its number.  Pages come and go between and during the passes.  Pages that
 * are new in the second pass are left out where the first pass counted no room for
 * them, and a page that was seen in two buffers counts once.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "lib/qunique.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"

#include "os_cache/os_cache.h"

/* Buffers to read between two checks for interrupts. */
#define PIECE	65536

typedef struct ForkKey
{
	RelFileLocator locator;
	ForkNumber	fork;
} ForkKey;

typedef struct ForkEntry
{
	ForkKey		key;
	uint32		counted;
	uint32		found;			/* never more than counted */
	BlockNumber *numbers;		/* room for what was counted */
	char		status;
} ForkEntry;

#define SH_PREFIX		forks
#define SH_ELEMENT_TYPE ForkEntry
#define SH_KEY_TYPE		ForkKey
#define SH_KEY			key
#define SH_HASH_KEY(tb, k)	hash_bytes((const unsigned char *) &(k), sizeof(k))
#define SH_EQUAL(tb, a, b)	(memcmp(&(a), &(b), sizeof(a)) == 0)
#define SH_SCOPE		static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

struct PgscaleOsCacheBlocks
{
	forks_hash *forks;
	const RelFileLocator *only;
};

/* Reads which page a buffer holds; false if none that was asked for. */
static bool
block_wanted(const PgscaleOsCacheBlocks *blocks, int buf, PgscalePage *page)
{
	PgscaleBuffer buffer;

	if (!pgscale_buffer_read(buf, &buffer, page))
		return false;
	if (blocks->only)
		return RelFileLocatorEquals(page->locator, *blocks->only);
	return page->locator.dbOid == MyDatabaseId || page->locator.dbOid == InvalidOid;
}

static void
block_count(PgscaleOsCacheBlocks *blocks, const PgscalePage *page)
{
	const ForkKey key = {page->locator, page->fork};
	bool		found;
	ForkEntry  *entry = forks_insert(blocks->forks, key, &found);

	if (!found)
		entry->counted = entry->found = 0;
	entry->counted++;
}

static void
fill_in(PgscaleOsCacheBlocks *blocks, const PgscalePage *page)
{
	const ForkKey key = {page->locator, page->fork};
	ForkEntry  *entry = forks_lookup(blocks->forks, key);

	if (entry && entry->found < entry->counted)
		entry->numbers[entry->found++] = page->block;
}

static void
block_pass(PgscaleOsCacheBlocks *blocks, void (*seen) (PgscaleOsCacheBlocks *, const PgscalePage *))
{
	for (int buf = 0; buf < NBuffers; buf++)
	{
		PgscalePage page;

		if (block_wanted(blocks, buf, &page))
			seen(blocks, &page);
		if (buf % PIECE == 0)
			CHECK_FOR_INTERRUPTS();
	}
}

static void
make_room(PgscaleOsCacheBlocks *blocks)
{
	forks_iterator iterator;
	ForkEntry  *entry;
	Size		total = 0;
	BlockNumber *room;

	forks_start_iterate(blocks->forks, &iterator);
	while ((entry = forks_iterate(blocks->forks, &iterator)) != NULL)
		total += entry->counted;
	room = MemoryContextAllocHuge(CurrentMemoryContext, (total + 1) * sizeof(BlockNumber));

	forks_start_iterate(blocks->forks, &iterator);
	while ((entry = forks_iterate(blocks->forks, &iterator)) != NULL)
	{
		entry->numbers = room;
		room += entry->counted;
	}
}

PgscaleOsCacheBlocks *
pgscale_os_cache_blocks_collect(const RelFileLocator *only)
{
	PgscaleOsCacheBlocks *blocks = palloc(sizeof(PgscaleOsCacheBlocks));

	blocks->forks = forks_create(CurrentMemoryContext, 1024, NULL);
	blocks->only = only;
	block_pass(blocks, block_count);
	make_room(blocks);
	block_pass(blocks, fill_in);
	return blocks;
}

static int
block_compare(const void *a, const void *b)
{
	const BlockNumber x = *(const BlockNumber *) a;
	const BlockNumber y = *(const BlockNumber *) b;

	return x < y ? -1 : x > y;
}

static int
compare_blocks(const void *a, const void *b, void *unused)
{
	return block_compare(a, b);
}

uint32
pgscale_os_cache_blocks_of(PgscaleOsCacheBlocks *blocks, RelFileLocator locator, ForkNumber fork, BlockNumber **numbers)
{
	const ForkKey key = {locator, fork};
	ForkEntry  *entry = forks_lookup(blocks->forks, key);

	if (!entry)
		return 0;
	*numbers = entry->numbers;
	/* Of a large table in large buffers it takes seconds. */
	qsort_interruptible(entry->numbers, entry->found, sizeof(BlockNumber), compare_blocks, NULL);
	return qunique(entry->numbers, entry->found, sizeof(BlockNumber), block_compare);
}
