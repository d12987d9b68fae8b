/*-------------------------------------------------------------------------
 *
 * freelist.c
 *	  Supply through the server's freelist, which exists up to PostgreSQL 18.
 *
 * The server's hand stands still while the list is not empty.  The list is last in,
 * first out, and so is our stack of the buffers that we put there.  So the stack shows
 * without a search which ones were taken: its last entries that are no longer on the
 * list.  Buffers that were used while they waited stay on the list until a backend
 * finds and drops them; a sample shows how many of the stack they are.
 *
 * A usage count is the server's own, except that of a dirty page.  That count stays at
 * one or more, or bgwriter, and backends that find the list empty, would write the page
 * singly; the mark "aged" remembers that the page is at zero.  Only the server's hand
 * brings dirty pages below one, so only the buffers that it has passed need a look.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "utils/memutils.h"

#include "base/shared_buffers.h"
#include "sweeper/standing_set.h"
#include "sweeper/supply/supply.h"
#include "sweeper/sweeper.h"

#if PGSCALE_FREELIST

/* Dirty buffers have this usage count at least. */
#define DIRTY_FLOOR		1

/* The number of ready buffers in the sample of those used meanwhile. */
#define STALE_SAMPLE	64

static uint8 *aged = NULL;		/* by buffer of the share: 0, or mark_of() its
								 * page */
static int64 shielded = PG_INT64_MIN;	/* where the server's hand was, up to
										 * there none is left to shield */

static void
freelist_init(const PgscaleSweeperShare *share)
{
	if (!aged)
		aged = MemoryContextAllocExtended(TopMemoryContext, share->buffers, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
}

/* Not of a newer page, except one in 128. */
static uint8
mark_of(const PgscalePage *page)
{
	return 0x80 | pgscale_buffer_page_hash(page);
}

static bool
is_aged(const PgscaleSweeperShare *share, int buf, const PgscalePage *page)
{
	return pgscale_sweeper_in_share(share, buf) &&
		aged[buf - share->first] != 0 && aged[buf - share->first] == mark_of(page);
}

/* Takes off the stack what backends took off the freelist. */
static void
pop_taken(PgscaleSweeperShare *share)
{
	Assert(share->stack_used >= 0 && share->stack_used <= share->stack_size);
	for (int n = 0; share->stack_used > 0 && !pgscale_sweeper_long_enough(n); n++)
	{
		PgscaleSweeperSupplied *top = &share->stack[share->stack_used - 1];
		PgscaleBuffer look;
		PgscalePage page;

		if (pgscale_buffer_listed(top->buf))
			break;

		if (pgscale_buffer_read(top->buf, &look, &page) && pgscale_buffer_page_hash(&page) == top->page_hash)
			share->counts.reused++;
		else
		{
			share->counts.consumed++;
			pgscale_sweeper_set_forget(top->buf);
		}
		share->stack_used--;
	}
}

static bool
freelist_follow(PgscaleSweeperShare *share)
{
	const uint64 gone = share->counts.consumed + share->counts.reused;
	bool		empty;

	pop_taken(share);
	empty = !pgscale_buffers_any_listed();
	share->counts.starved += empty;
	return empty || share->counts.consumed + share->counts.reused != gone;
}

static int
freelist_usage(PgscaleSweeperShare *share, int buf, const PgscaleBuffer *look, const PgscalePage *page)
{
	if (look->listed)
		return -1;
	return look->usage > 0 && is_aged(share, buf, page) ? look->usage - 1 : look->usage;
}

static void
freelist_age(PgscaleSweeperShare *share, int buf, const PgscaleBuffer *look, const PgscalePage *page, uint8 usage)
{
	const bool	stays = look->dirty && usage < DIRTY_FLOOR;

	Assert(pgscale_sweeper_in_share(share, buf));
	aged[buf - share->first] = stays ? mark_of(page) : 0;
	if (stays)
		usage = DIRTY_FLOOR;
	if (usage != look->usage)
		(void) pgscale_buffer_set_usage(buf, look, usage);
}

static bool
freelist_offer(PgscaleSweeperShare *share, int buf, const PgscalePage *page, uint8 max_usage)
{
	PgscaleSweeperSupplied *top = &share->stack[share->stack_used];

	if (share->stack_used >= share->stack_size ||
		!pgscale_buffer_supply(buf, page, max_usage + is_aged(share, buf, page)))
		return false;
	top->buf = buf;
	top->page_hash = pgscale_buffer_page_hash(page);
	share->stack_used++;
	return true;
}

/* How much of the stack a backend could use, by a sample. */
static int
freelist_ready(const PgscaleSweeperShare *share)
{
	int			n = Min(share->stack_used, STALE_SAMPLE);
	int			good = 0;

	for (int i = 0; i < n; i++)
	{
		PgscaleBuffer look;
		int			at = i;

		if (share->stack_used > STALE_SAMPLE)
			at = (int) pg_prng_uint64_range(&pg_global_prng_state, 0, share->stack_used - 1);
		pgscale_buffer_look(share->stack[at].buf, &look);
		good += look.listed && look.usage == 0 && !look.pinned;
	}
	return n == 0 ? 0 : (int) ((int64) share->stack_used * good / n);
}

static bool
freelist_full(const PgscaleSweeperShare *share)
{
	return share->stack_used >= share->stack_size;
}

static int
freelist_onward(const PgscaleSweeperShare *share, int hand, double dirty_share)
{
	return hand;
}

/*
 * Keeps dirty buffers from bgwriter while the stock lasts.  It writes those with a
 * usage count of zero ahead of the server's hand, one by one.
 */
static void
freelist_guard(PgscaleSweeperShare *share)
{
	const int64 hand = (int64) pgscale_buffers_hand();

	if (share->ready < share->low || share->stuck || !pgscale_buffers_any_listed())
		return;
	shielded = pgscale_sweeper_into_share(share, Max(shielded, hand - NBuffers));
	for (int n = 0; shielded < hand && !pgscale_sweeper_long_enough(n); n++)
	{
		const int	buf = pgscale_sweeper_buffer_at(shielded);
		PgscaleBuffer look;

		pgscale_buffer_look(buf, &look);
		if (look.valid && look.dirty && look.usage < DIRTY_FLOOR)
			(void) pgscale_buffer_set_usage(buf, &look, DIRTY_FLOOR);
		shielded = pgscale_sweeper_into_share(share, shielded + 1);
	}
}

/* What is on the list stays there: backends take it as ever. */
static bool
freelist_leave(PgscaleSweeperShare *share)
{
	shielded = PG_INT64_MIN;
	pop_taken(share);
	return true;
}

const PgscaleSweeperSupply pgscale_sweeper_freelist = {
	.init = freelist_init,
	.follow = freelist_follow,
	.usage = freelist_usage,
	.age = freelist_age,
	.offer = freelist_offer,
	.ready = freelist_ready,
	.full = freelist_full,
	.onward = freelist_onward,
	.guard = freelist_guard,
	.leave = freelist_leave,
};

#endif							/* PGSCALE_FREELIST */
