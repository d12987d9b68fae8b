/*-------------------------------------------------------------------------
 *
 * optimum.c
 *	  What no algorithm can beat, because both know the future.
 *
 * The static optimum holds the pages that are used most often in the whole trace, and
 * never exchanges one: the best that there is where each reference is independent of
 * those before.  Belady's algorithm evicts the page whose next use is the farthest.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "simulator.h"

static const Trace *trace;
static bool *is_held;			/* by page */

static uint32_t *uses;

static int
compare_uses(const void *a, const void *b)
{
	const uint32_t x = uses[*(const uint32_t *) a];
	const uint32_t y = uses[*(const uint32_t *) b];

	return (x < y) - (x > y);
}

static void
static_begin(const Trace *t)
{
	uint32_t   *pages = zeroed(t->distinct, sizeof(uint32_t));

	trace = t;
	is_held = zeroed(t->distinct, sizeof(bool));
	uses = zeroed(t->distinct, sizeof(uint32_t));
	for (int i = 0; i < t->length; i++)
		uses[t->pages[i]]++;
	for (uint32_t page = 0; page < t->distinct; page++)
		pages[page] = page;
	qsort(pages, t->distinct, sizeof(uint32_t), compare_uses);
	for (uint32_t i = 0; i < BUFFERS && i < t->distinct; i++)
		is_held[pages[i]] = true;
	free(uses);
	free(pages);
}

static bool
static_use(int reference)
{
	return is_held[trace->pages[reference]];
}

static void
static_end(void)
{
	free(is_held);
}

const Algorithm static_optimum = {"static optimum", static_begin, static_use, NULL, NULL, static_end};

/*
 * A heap of references, that with the farthest next use first.  An entry is valid if it
 * is its page's last one; the others are dropped when they come to the top.
 */
static int *next_use;			/* by reference */
static int *last_use;			/* by page: reference */
static int *heap;
static int	heap_used;
static int	held;

static void
belady_begin(const Trace *t)
{
	int		   *coming = zeroed(t->distinct, sizeof(int));

	trace = t;
	is_held = zeroed(t->distinct, sizeof(bool));
	next_use = zeroed(t->length, sizeof(int));
	last_use = zeroed(t->distinct, sizeof(int));
	heap = zeroed(t->length, sizeof(int));
	heap_used = held = 0;
	for (uint32_t page = 0; page < t->distinct; page++)
		coming[page] = t->length;
	for (int i = t->length - 1; i >= 0; i--)
	{
		next_use[i] = coming[t->pages[i]];
		coming[t->pages[i]] = i;
	}
	free(coming);
}

static void
heap_put(int reference)
{
	int			at = heap_used++;

	for (; at > 0 && next_use[heap[(at - 1) / 2]] < next_use[reference]; at = (at - 1) / 2)
		heap[at] = heap[(at - 1) / 2];
	heap[at] = reference;
}

static int
heap_take(void)
{
	const int	top = heap[0];
	const int	last = heap[--heap_used];
	int			at = 0;

	for (;;)
	{
		int			child = 2 * at + 1;

		if (child + 1 < heap_used && next_use[heap[child + 1]] > next_use[heap[child]])
			child++;
		if (child >= heap_used || next_use[heap[child]] <= next_use[last])
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = last;
	return top;
}

static void
belady_evict(void)
{
	for (;;)
	{
		const int	reference = heap_take();
		const uint32_t page = trace->pages[reference];

		if (is_held[page] && last_use[page] == reference)
		{
			is_held[page] = false;
			held--;
			return;
		}
	}
}

static bool
belady_use(int reference)
{
	const uint32_t page = trace->pages[reference];
	const bool	hit = is_held[page];

	if (!hit)
	{
		if (held == BUFFERS)
			belady_evict();
		is_held[page] = true;
		held++;
	}
	last_use[page] = reference;
	heap_put(reference);
	return hit;
}

static void
belady_end(void)
{
	free(is_held);
	free(next_use);
	free(last_use);
	free(heap);
}

const Algorithm belady = {"Belady", belady_begin, belady_use, NULL, NULL, belady_end};
