/*-------------------------------------------------------------------------
 *
 * lru_2.c
 *	  LRU-K with K = 2 (O'Neil, O'Neil and Weikum 1993).
 *
 * Evicts the page whose last use but one is the oldest; those that were used once come
 * first, and among equal ones the page whose last use is the oldest.  The last two uses of
 * all pages are remembered, for ever, and each use counts: no two are correlated.
 *
 * The pages are in a heap, that which leaves next first.  Each use adds an entry; one that
 * does not have its page's last use is dropped when it comes to the top.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "simulator.h"

typedef struct Uses
{
	int			before;			/* the last but one: reference + 1, or 0 */
	int			last;
} Uses;

typedef struct Entry
{
	Uses		uses;
	uint32_t	page;
} Entry;

static const Trace *trace;
static Uses *uses;				/* by page */
static bool *is_held;
static int	held;
static Entry *heap;
static int	entries;

static void
lru_2_begin(const Trace *t)
{
	trace = t;
	uses = zeroed(t->distinct, sizeof(Uses));
	is_held = zeroed(t->distinct, sizeof(bool));
	heap = zeroed(t->length, sizeof(Entry));
	held = entries = 0;
}

static void
lru_2_end(void)
{
	free(uses);
	free(is_held);
	free(heap);
}

static bool
leaves_before(const Entry *a, const Entry *b)
{
	if (a->uses.before != b->uses.before)
		return a->uses.before < b->uses.before;
	return a->uses.last < b->uses.last;
}

static void
add_entry(Entry entry)
{
	int			at = entries++;

	for (; at > 0 && leaves_before(&entry, &heap[(at - 1) / 2]); at = (at - 1) / 2)
		heap[at] = heap[(at - 1) / 2];
	heap[at] = entry;
}

static Entry
take_entry(void)
{
	const Entry first = heap[0];
	const Entry last = heap[--entries];
	int			at = 0;

	for (int child = 1; child < entries; child = 2 * at + 1)
	{
		if (child + 1 < entries && leaves_before(&heap[child + 1], &heap[child]))
			child++;
		if (!leaves_before(&heap[child], &last))
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = last;
	return first;
}

static void
evict_page(void)
{
	for (;;)
	{
		const Entry entry = take_entry();

		if (is_held[entry.page] && uses[entry.page].last == entry.uses.last)
		{
			is_held[entry.page] = false;
			held--;
			return;
		}
	}
}

static bool
lru_2_use(int reference)
{
	const uint32_t page = trace->pages[reference];
	const bool	hit = is_held[page];

	if (!hit && held == BUFFERS)
		evict_page();
	uses[page] = (Uses) {uses[page].last, reference + 1};
	add_entry((Entry) {uses[page], page});
	held += !hit;
	is_held[page] = true;
	return hit;
}

const Algorithm lru_2 = {"LRU-2", lru_2_begin, lru_2_use, NULL, NULL, lru_2_end};
