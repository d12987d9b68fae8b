/*-------------------------------------------------------------------------
 *
 * freelist.c
 *	  Supply through the server's freelist, which exists up to PostgreSQL 18.
 *
 * The server's hand stands still while the list is not empty.  The list is last in,
 * first out, and so is our stack of the buffers that we put there.  So the stack shows
 * without a search which ones were taken: its last entries that are no longer on the
 * list.  Buffers that were used while they waited stay on the list until a backend
 * finds and drops them; a sample shows how many of the stack they are.  A backend finds
 * them only when it has taken all that came later, which may never be.  So the sweep
 * ages them as it does all pages, and makes those that may leave again ready where they
 * are.  Otherwise they would stay in the cache for good, and become more and more.
 *
 * The counts in the headers are a signal, for backends that find the list empty and run
 * the clock sweep.  Under the policy "clock" they are the policy's own counts, so that
 * this sweep finds what it finds on a stock server.  Under any other, a page that may
 * leave has none, and any other page one: then its next uses are seen, as a count ends at
 * five.  A dirty page has one in any case, or bgwriter, and those backends, would write
 * the page singly.  Only the server's hand brings dirty pages below that, so only the
 * buffers that it has passed need a look.
 *
 * What a sweeper has put on the list stays there when it ends, and its stack does not.  The
 * next one takes it for its own, or it would put as much on top of it, which backends would
 * take instead, and at each start more of the cache would be out of use.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "miscadmin.h"

#include "base/shared_buffers.h"
#include "sweeper/known_pages.h"
#include "sweeper/standing_set.h"
#include "sweeper/supply/supply.h"
#include "sweeper/sweeper.h"

#if PGSCALE_FREELIST

/* Dirty buffers have this usage count at least. */
#define DIRTY_FLOOR		1

/* The number of ready buffers in the sample of those used meanwhile. */
#define STALE_SAMPLE	64

/* Buffers between two checks for interrupts. */
#define RESUME_AT_ONCE	65536

static int	left_to = 0;		/* buffers of the partition that were left */
static int64 shielded = PG_INT64_MIN;	/* where the server's hand was, up to
										 * there none is left to shield */

static void
push_supplied(PgscaleSweeperPartition *partition, int buf, uint32 page_hash)
{
	PgscaleSweeperSupplied *top = &pgscale_sweeper_memory.stack[partition->stack_used++];

	top->buf = buf;
	top->page_hash = page_hash;
}

/*
 * Not in the list's order, which changes meanwhile: so it may be noticed late that they are
 * taken, and freelist_ready() looks at each.  A buffer that is free holds no page.
 */
void
pgscale_sweeper_freelist_resume(PgscaleSweeperPartition *partition)
{
	if (!pgscale_buffers_any_listed())
		return;
	for (int n = 0; n < partition->buffers && partition->stack_used < partition->stack_size; n++)
	{
		const int	buf = partition->first + n;
		PgscaleBuffer look;
		PgscalePage page;

		if (n % RESUME_AT_ONCE == 0)
			CHECK_FOR_INTERRUPTS();
		if (pgscale_buffer_listed(buf) && pgscale_buffer_read(buf, &look, &page))
			push_supplied(partition, buf, pgscale_buffer_page_hash(&page));
	}
}

/* A backend has taken that page's buffer.  Has the sweep seen another one in it since? */
static void
supplied_page_left(PgscaleSweeperPartition *partition, const PgscaleSweeperSupplied *supplied)
{
	if (pgscale_sweeper_in_partition(partition, supplied->buf) &&
		pgscale_sweeper_page(partition, supplied->buf)->hash == supplied->page_hash)
		pgscale_sweeper_page_left(partition, supplied->buf);
	pgscale_sweeper_set_forget(supplied->buf);
}

/* Takes off the stack what backends took off the freelist. */
static void
pop_taken(PgscaleSweeperPartition *partition)
{
	Assert(partition->stack_used >= 0 && partition->stack_used <= partition->stack_size);
	for (int n = 0; partition->stack_used > 0 && !pgscale_sweeper_long_enough(n); n++)
	{
		PgscaleSweeperSupplied *top = &pgscale_sweeper_memory.stack[partition->stack_used - 1];
		PgscaleBuffer look;
		PgscalePage page;

		if (pgscale_buffer_listed(top->buf))
			break;

		if (pgscale_buffer_read(top->buf, &look, &page) && pgscale_buffer_page_hash(&page) == top->page_hash)
			partition->counts.reused++;
		else
		{
			partition->counts.consumed++;
			supplied_page_left(partition, top);
		}
		partition->stack_used--;
	}
}

static bool
freelist_follow(PgscaleSweeperPartition *partition)
{
	const uint64 gone = partition->counts.consumed + partition->counts.reused;
	bool		empty;

	left_to = 0;
	pop_taken(partition);
	empty = !pgscale_buffers_any_listed();
	partition->counts.starved += empty;
	return empty || partition->counts.consumed + partition->counts.reused != gone;
}

static int
freelist_rank_page(PgscaleSweeperPartition *partition, int buf, const PgscaleBuffer *look, const PgscalePage *page)
{
	if (look->listed && look->usage == 0)
		return -1;
	(void) pgscale_sweeper_page_seen(partition, buf, look, page, pgscale_sweeper_page(partition, buf)->left, true);
	return pgscale_sweeper_rank(partition, buf);
}

/* Has the server find that count there.  The page was just seen. */
static void
set_header_count(PgscaleSweeperPartition *partition, int buf, const PgscaleBuffer *look, uint8 count)
{
	if (count != look->usage && pgscale_buffer_set_usage(buf, look, count))
		pgscale_sweeper_page(partition, buf)->left = count;
}

static void
freelist_show(PgscaleSweeperPartition *partition, int buf, const PgscaleBuffer *look)
{
	uint8		count = pgscale_sweeper_rank(partition, buf);

	if (partition->policy != PGSCALE_SWEEPER_CLOCK)
		count = Min(count, 1);
	set_header_count(partition, buf, look, look->dirty ? Max(count, DIRTY_FLOOR) : count);
}

/*
 * Makes a page ready again that was used while it waited.  The stack has it already; it
 * counts as used again, and as supplied once more.
 */
static bool
make_ready_again(PgscaleSweeperPartition *partition, int buf, const PgscaleBuffer *look)
{
	if (look->dirty || look->busy || look->pinned || !pgscale_buffer_set_usage(buf, look, 0))
		return false;
	partition->counts.reused++;
	return true;
}

/*
 * Makes the page ready, if its rank, or for a page of another sweep's its count, is that
 * at most, and no process has used it since that was seen.  *listed: it was on the list.
 */
static bool
put_on_list(PgscaleSweeperPartition *partition, int buf, const PgscalePage *page, uint8 max_rank, bool *listed)
{
	PgscaleBuffer look;
	PgscalePage now;
	int			rank;

	*listed = false;

	/*
	 * under another policy than the clock its header says little of its rank:
	 * its own sweep finds it
	 */
	if (!pgscale_sweeper_in_partition(partition, buf))
		return pgscale_buffer_supply(buf, page, partition->policy == PGSCALE_SWEEPER_CLOCK ? max_rank : 0);
	if (!pgscale_buffer_read(buf, &look, &now) || !pgscale_buffer_page_equal(&now, page))
		return false;
	rank = freelist_rank_page(partition, buf, &look, page);
	if (rank < 0 || rank > max_rank)
		return false;
	*listed = look.listed;
	if (!(*listed ? make_ready_again(partition, buf, &look) : pgscale_buffer_supply(buf, page, look.usage)))
		return false;
	pgscale_sweeper_page(partition, buf)->left = 0;
	return true;
}

static bool
freelist_offer(PgscaleSweeperPartition *partition, int buf, const PgscalePage *page, uint8 max_rank)
{
	bool		listed;

	if (partition->stack_used >= partition->stack_size || !put_on_list(partition, buf, page, max_rank, &listed))
		return false;
	if (!listed)
		push_supplied(partition, buf, pgscale_buffer_page_hash(page));
	return true;
}

/*
 * From 16 on, what evicts a page by its buffer (pg_buffercache) leaves this off the list,
 * and the hand, which would find it, stands still.
 */
static bool
freelist_offer_empty(PgscaleSweeperPartition *partition, int buf)
{
	if (partition->stack_used >= partition->stack_size || !pgscale_buffer_supply(buf, NULL, 0))
		return false;
	pgscale_sweeper_page_left(partition, buf);
	push_supplied(partition, buf, 0);
	return true;
}

/* How much of the stack a backend could use, by a sample. */
static int
freelist_ready(const PgscaleSweeperPartition *partition)
{
	int			n = Min(partition->stack_used, STALE_SAMPLE);
	int			good = 0;

	for (int i = 0; i < n; i++)
	{
		PgscaleBuffer look;
		int			at = i;

		if (partition->stack_used > STALE_SAMPLE)
			at = (int) pg_prng_uint64_range(&pg_global_prng_state, 0, partition->stack_used - 1);
		pgscale_buffer_look(pgscale_sweeper_memory.stack[at].buf, &look);
		good += look.listed && look.usage == 0 && !look.pinned;
	}
	return n == 0 ? 0 : (int) ((int64) partition->stack_used * good / n);
}

static bool
freelist_full(const PgscaleSweeperPartition *partition)
{
	return partition->stack_used >= partition->stack_size;
}

static int
freelist_onward(const PgscaleSweeperPartition *partition, int hand, double dirty_fraction)
{
	return hand;
}

/*
 * Keeps dirty buffers from bgwriter while the stock lasts.  It writes those with a
 * usage count of zero ahead of the server's hand, one by one.
 */
static void
freelist_guard(PgscaleSweeperPartition *partition)
{
	const int64 hand = (int64) pgscale_buffers_hand();

	if (partition->ready < partition->low || partition->stuck || !pgscale_buffers_any_listed())
		return;
	shielded = pgscale_sweeper_into_partition(partition, Max(shielded, hand - NBuffers));
	for (int n = 0; shielded < hand && !pgscale_sweeper_long_enough(n); n++)
	{
		const int	buf = pgscale_sweeper_buffer_at(shielded);
		PgscaleBuffer look;

		pgscale_buffer_look(buf, &look);
		if (look.valid && look.dirty && look.usage < DIRTY_FLOOR && pgscale_buffer_set_usage(buf, &look, DIRTY_FLOOR))
			pgscale_sweeper_page_raised(partition, buf, DIRTY_FLOOR - look.usage);
		shielded = pgscale_sweeper_into_partition(partition, shielded + 1);
	}
}

/*
 * What is on the list stays there: backends take it as ever.  Other pages get their ranks
 * for counts, which they have already where these are the clock's.
 */
static bool
freelist_leave(PgscaleSweeperPartition *partition)
{
	shielded = PG_INT64_MIN;
	pop_taken(partition);
	if (partition->policy == PGSCALE_SWEEPER_CLOCK || partition->observing)
		return true;
	for (int n = 0; left_to < partition->buffers; n++, left_to++)
	{
		const int	buf = partition->first + left_to;
		PgscaleBuffer look;
		PgscalePage page;

		if (pgscale_sweeper_long_enough(n))
			return false;
		if (pgscale_sweeper_page(partition, buf)->known && pgscale_buffer_read(buf, &look, &page) &&
			freelist_rank_page(partition, buf, &look, &page) >= 0)
			set_header_count(partition, buf, &look, pgscale_sweeper_rank(partition, buf));
	}
	return true;
}

const PgscaleSweeperSupply pgscale_sweeper_freelist = {
	.follow = freelist_follow,
	.rank = freelist_rank_page,
	.show = freelist_show,
	.offer = freelist_offer,
	.offer_empty = freelist_offer_empty,
	.ready = freelist_ready,
	.full = freelist_full,
	.onward = freelist_onward,
	.guard = freelist_guard,
	.leave = freelist_leave,
};

#endif							/* PGSCALE_FREELIST */
