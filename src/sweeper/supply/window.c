/*-------------------------------------------------------------------------
 *
 * window.c
 *	  Supply through the usage counts, without a freelist.
 *
 * The server's hand takes a buffer whose count is zero, and decrements each other count
 * that it passes.  So a count in the header becomes a signal to the hand only: zero for
 * a page on offer, one to three for any other page, which the hand passes.  The real
 * usage of a page, 0 .. 5, is kept here.
 *
 * No look at a page is needed when it is used.  Only the hand lowers a count, by one at
 * each pass.  So when the sweep follows the hand, the header's count, minus the one
 * that was left there, plus one for the pass, is the number of uses since.  Then the
 * count is raised again, for the hand's next round.  The work is in proportion to the
 * hand's movement.  The hand may go round ten times as fast as on a stock server
 * without ageing any page: only the policy ages pages.
 *
 *	header found behind the hand			what happened
 *	another page							taken, if it was on offer, or replaced
 *	on offer, the same page					used: no longer on offer
 *	not on offer							used that many times
 *
 * A used page is no longer on offer, because the hand passes it then; and a page that
 * becomes dirty was used.  So bgwriter, which writes dirty pages at zero, finds only
 * the yielded ones.
 *
 * Backends must find a buffer within a short way: a hand that finds nothing goes round
 * until it has taken all counts down to zero.  So the guard examines the buffers on
 * offer or empty in the piece ahead of the hand.  Where those are fewer than backends
 * may take in the next tick, it yields the least used ones there: clean pages before
 * dirty ones that were used once less.  If the hand runs past that piece meanwhile, the
 * guard continues ahead of it.
 *
 * The hand may be faster than ticks can follow.  A sweep that falls behind by a lap
 * skips the older part and continues just ahead of the hand, where counts are needed
 * first.  A skipped page keeps its usage.  Its uses may be missed, and the hand may
 * find it at zero and take it, as on a stock server.
 *
 * Entering takes one round of the sweep over its share, in pieces.  Leaving takes one,
 * too, and returns the real counts to the headers.  A sweep that ends without that
 * leaves counts that a stock server could have.  Nothing is locked: each change is one
 * CAS from the observed state, as in the server itself, and a failed one is repeated at
 * the hand's next round.
 *
 * The memory is four bytes for each buffer of the share, in the sweep's process.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/shared_buffers.h"
#include "sweeper/standing_set.h"
#include "sweeper/supply/supply.h"
#include "sweeper/sweeper.h"

/*
 * A backend moves the hand first, and then takes the count down.  The last buffers
 * before the hand wait for the next tick.
 */
#define HAND_LAG		64

/*
 * The guard looks GUARD_AHEAD buffers ahead of the hand.  It yields within the first
 * YIELD_TIMES for each needed one, at least YIELD_LEAST.
 */
#define GUARD_AHEAD		8192
#define YIELD_LEAST		512
#define YIELD_TIMES		64

/* In a tick, it yields so often while the hand runs past that. */
#define GUARD_TRIES		4

/*
 * A part of the demand of the next tick is on offer: that many times the demand of the
 * previous tick, and some more.
 */
#define TAKEN_TIMES		1.5
#define TAKEN_MORE		2
#define TAKEN_PART		0.1

/* What was taken in a tick is remembered, a little less each time. */
#define TAKEN_DECAY		0.95

/* Pages that were used so seldom may be yielded; a rank has two for each count. */
#define RANKS			(2 * (PGSCALE_MAX_USAGE + 2))

typedef struct WindowEntry
{
	unsigned int usage:3;		/* how often the page was used */
	unsigned int left:3;		/* the header's count when last seen */
	unsigned int offered:1;
	unsigned int passed:1;		/* that was behind the hand, and it was not
								 * followed there yet */
	unsigned int known:1;		/* or nothing of this holds */
	unsigned int page_hash:23;
} WindowEntry;

#define HASH_MASK		0x7FFFFF

static WindowEntry *entries = NULL; /* by buffer of the share */
static int	offered = 0;		/* on offer, except those used since they were
								 * last seen */
static bool entered = false;	/* is the sweep at work here? */
static int	enter_from = 0;		/* in the share */
static int	entered_to = 0;		/* buffers from there on */
static int	left_to = 0;		/* buffers that were left */
static int64 hand_seen = 0;		/* position of the server's hand in the tick
								 * before */
static int64 followed = 0;		/* up to there */
static int	taken = 0;			/* in this tick */
static int64 yielded_from = 0;	/* dirty pages may lie at zero between these */
static int64 yielded_to = 0;	/* positions of the hand */
static bool yields_dirty = false;	/* was one yielded since the last tick? */
static int	leave_from = 0;		/* in the share */

static void
window_init(const PgscaleSweeperShare *share)
{
	if (!entries)
		entries = MemoryContextAllocExtended(TopMemoryContext, share->buffers * sizeof(WindowEntry),
											 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
}

static WindowEntry *
window_entry(const PgscaleSweeperShare *share, int64 position)
{
	Assert(pgscale_sweeper_in_share(share, pgscale_sweeper_buffer_at(position)));
	return &entries[pgscale_sweeper_buffer_at(position) - share->first];
}

/* Where the server's hand is in the share, or comes into it. */
static int
hand_in_share(const PgscaleSweeperShare *share)
{
	return pgscale_sweeper_buffer_at(pgscale_sweeper_into_share(share, (int64) pgscale_buffers_hand())) - share->first;
}

static bool
is_yielded(const WindowEntry *e)
{
	return e->known && !e->offered && e->left == 0;
}

static void
take_off_offer(WindowEntry *e)
{
	offered -= e->offered;
	e->offered = false;
	Assert(offered >= 0);
}

/* The page of the entry has gone, or was taken. */
static void
page_gone(PgscaleSweeperShare *share, int buf, WindowEntry *e)
{
	taken++;
	share->counts.consumed += e->offered;
	take_off_offer(e);
	pgscale_sweeper_set_forget(buf);
}

/*
 * Updates the entry from the header just seen. "passed": that many passes of the hand
 * are noted only now.  A count that is lower than expected shows a pass before the hand
 * is followed there; it is noted, or it would be expected again.
 */
static WindowEntry *
catch_up(PgscaleSweeperShare *share, int buf, const PgscaleBuffer *look, const PgscalePage *page, int passed)
{
	WindowEntry *e = &entries[buf - share->first];
	const uint32 hash = pgscale_buffer_page_hash(page) & HASH_MASK;
	const int	expected = (int) e->left - passed;

	Assert(pgscale_sweeper_in_share(share, buf));
	Assert(e->known || !e->offered);
	if (!e->known)
		e->usage = look->usage;
	else if (e->page_hash != hash)
	{
		page_gone(share, buf, e);
		e->usage = pgscale_sweeper_policy->arrived(look->usage);
		e->passed = true;		/* or one of its uses is missed */
	}
	else if (look->usage > expected)
	{
		share->counts.reused += e->offered;
		take_off_offer(e);
		e->usage = pgscale_sweeper_policy->used(e->usage, look->usage - expected);
	}
	else if (look->usage < expected)
		e->passed = true;
	e->known = true;
	e->page_hash = hash;
	e->left = look->usage;
	Assert(e->usage <= PGSCALE_MAX_USAGE);
	Assert(!e->offered || e->left == 0);	/* or it was used */
	return e;
}

/* Has the hand find that count there.  The entry is up to date with the look. */
static bool
signal_hand(int buf, const PgscaleBuffer *look, WindowEntry *e, uint8 count)
{
	Assert(e->known && e->left == look->usage);
	if (look->usage == count)
		return true;
	if (!pgscale_buffer_set_usage(buf, look, count))
		return false;
	e->left = count;
	return true;
}

static bool
put_on_offer(int buf, const PgscaleBuffer *look, WindowEntry *e)
{
	Assert(!e->offered);
	if (!signal_hand(buf, look, e, 0))
		return false;
	e->offered = true;
	offered++;
	return true;
}

/* The server's hand has passed a buffer. */
static void
pass_by(PgscaleSweeperShare *share, int buf)
{
	PgscaleBuffer look;
	PgscalePage page;
	WindowEntry *e = &entries[buf - share->first];

	if (pgscale_buffer_read(buf, &look, &page))
	{
		/*
		 * From a page that is pinned, for a write perhaps, the hand takes
		 * nothing.
		 */
		(void) catch_up(share, buf, &look, &page, !e->passed && !look.pinned);
		/* except a dirty one, which its backend writes before */
		taken += look.pinned && look.usage == 0;
		e->passed = false;
		if (!e->offered)
			(void) signal_hand(buf, &look, e, pgscale_sweeper_policy->header(e->usage));
	}
	else if (e->known)
	{
		/* another page is being read into it, or there is none */
		page_gone(share, buf, e);
		e->known = false;
	}
}

/* Makes itself known to more of the share, from the server's hand on. */
static void
go_on_entering(PgscaleSweeperShare *share)
{
	for (int n = 0; entered_to < share->buffers && !pgscale_sweeper_long_enough(n); n++)
	{
		const int	buf = share->first + (enter_from + entered_to++) % share->buffers;
		PgscaleBuffer look;
		PgscalePage page;
		WindowEntry *e;

		if (entries[buf - share->first].known || !pgscale_buffer_read(buf, &look, &page))
			continue;
		e = catch_up(share, buf, &look, &page, 0);
		if (look.usage > 0 || look.pinned)
			continue;

		/* More than is wanted would look as if all victims were clean. */
		if (look.dirty || offered >= share->high)
			(void) signal_hand(buf, &look, e, pgscale_sweeper_policy->header(0));
		else if (put_on_offer(buf, &look, e))
			share->counts.supplied_clean++;
	}
}

/*
 * There is demand while the hand moves, in any share: when it comes into this one, the
 * sweep must be awake.
 */
static bool
window_follow(PgscaleSweeperShare *share)
{
	const int64 hand = (int64) pgscale_buffers_hand();
	const int64 upto = hand - Min(HAND_LAG, NBuffers / 4);
	bool		demand;

	if (!entered || left_to > 0)
	{
		entered = true;
		entered_to = left_to = 0;
		followed = hand_seen = hand;
		enter_from = hand_in_share(share);
	}
	followed = pgscale_sweeper_into_share(share, Max(followed, hand - NBuffers));
	for (int n = 0; followed < upto && !pgscale_sweeper_long_enough(n); n++)
	{
		pass_by(share, pgscale_sweeper_buffer_at(followed));
		followed = pgscale_sweeper_into_share(share, followed + 1);
	}
	go_on_entering(share);
	Assert(offered <= share->buffers);
	demand = hand != hand_seen || followed < upto || offered == 0;
	hand_seen = hand;
	share->taken = Max(taken, share->taken * TAKEN_DECAY);
	share->counts.starved += offered == 0 || yields_dirty;
	taken = 0;
	yields_dirty = false;
	return demand;
}

static int
window_usage(PgscaleSweeperShare *share, int buf, const PgscaleBuffer *look, const PgscalePage *page)
{
	const WindowEntry *e = catch_up(share, buf, look, page, 0);

	return e->offered ? -1 : e->usage;
}

static void
window_age(PgscaleSweeperShare *share, int buf, const PgscaleBuffer *look, const PgscalePage *page, uint8 usage)
{
	WindowEntry *e = &entries[buf - share->first];

	e->usage = usage;
	(void) signal_hand(buf, look, e, pgscale_sweeper_policy->header(usage));
}

static bool
window_offer(PgscaleSweeperShare *share, int buf, const PgscalePage *page, uint8 max_usage)
{
	PgscaleBuffer look;
	PgscalePage now;
	WindowEntry *e;

	if (!pgscale_sweeper_in_share(share, buf) || !pgscale_buffer_read(buf, &look, &now) || !pgscale_buffer_page_equal(&now, page))
		return false;
	e = catch_up(share, buf, &look, page, 0);
	if (look.dirty || look.busy || look.pinned || e->offered || e->usage > max_usage)
		return false;
	return put_on_offer(buf, &look, e);
}

static int
window_ready(const PgscaleSweeperShare *share)
{
	return offered;
}

static bool
window_full(const PgscaleSweeperShare *share)
{
	return false;
}

/*
 * Where clean pages leave, what is on offer shall lie close ahead of the server's
 * hand; so a sweep that is not ahead of it goes there.  Dirty ones are found where
 * they are, and written in an order of their own.
 */
static int
window_onward(const PgscaleSweeperShare *share, int hand, double dirty_share)
{
	const int	server = hand_in_share(share);
	const int	ahead = (hand - server + share->buffers) % share->buffers;

	return dirty_share < 0.5 && ahead > share->buffers / 2 ? server : hand;
}

/* How little a page was used: what is least is yielded first; less than 0: not to be yielded. */
static int
rank_of(PgscaleSweeperShare *share, int buf, PgscaleBuffer *look, WindowEntry **e)
{
	PgscalePage page;

	if (!pgscale_buffer_read(buf, look, &page) || look->busy || look->pinned)
		return -1;
	*e = catch_up(share, buf, look, &page, 0);
	if ((*e)->left == 0)
		return -1;
	return 2 * ((*e)->usage + look->dirty) + look->dirty;
}

/*
 * The hand shall pass what was yielded ahead of it, now that enough is on offer.  What
 * there is no time for is left to the next tick.
 */
static void
take_back_yielded(PgscaleSweeperShare *share, int64 from, int *looked)
{
	yielded_from = Max(from, yielded_from);
	while (yielded_from < yielded_to && !pgscale_sweeper_long_enough((*looked)++))
	{
		const int	buf = pgscale_sweeper_buffer_at(yielded_from);
		WindowEntry *e = window_entry(share, yielded_from);
		PgscaleBuffer look;
		PgscalePage page;

		yielded_from = pgscale_sweeper_into_share(share, yielded_from + 1);
		if (!is_yielded(e) || !pgscale_buffer_read(buf, &look, &page))
			continue;
		e = catch_up(share, buf, &look, &page, 0);
		(void) signal_hand(buf, &look, e, pgscale_sweeper_policy->header(e->usage));
	}
}

/* Will the hand take it, although it is not on offer?  It may be empty. */
static bool
lies_at_zero(const WindowEntry *e, int buf)
{
	PgscaleBuffer look;

	pgscale_buffer_look(buf, &look);
	return !e->offered && look.usage == 0 && !look.pinned && !look.busy;
}

/*
 * Yields that many buffers from one position of the hand up to another, or within the
 * part for which there is time.  Returns the position behind them.
 */
static int64
yield_some(PgscaleSweeperShare *share, int64 from, int64 to, int needed, int *looked)
{
	int			of_rank[RANKS] = {0};
	int			most = 0;
	int			below = 0;

	Assert(needed > 0);
	for (int64 at = from; at < to; at = pgscale_sweeper_into_share(share, at + 1))
	{
		const int	buf = pgscale_sweeper_buffer_at(at);
		PgscaleBuffer look;
		WindowEntry *e;
		const int	rank = rank_of(share, buf, &look, &e);

		if (rank >= 0)
			of_rank[rank]++;
		else
			needed -= lies_at_zero(window_entry(share, at), buf);
		if (pgscale_sweeper_long_enough((*looked)++))
			to = at + 1;
	}
	yielded_from = yielded_from < yielded_to ? Min(yielded_from, from) : from;
	yielded_to = Max(yielded_to, to);
	while (most < RANKS - 1 && below + of_rank[most] < needed)
		below += of_rank[most++];
	for (int64 at = from; at < to && needed > 0; at = pgscale_sweeper_into_share(share, at + 1))
	{
		const int	buf = pgscale_sweeper_buffer_at(at);
		PgscaleBuffer look;
		WindowEntry *e;
		const int	rank = rank_of(share, buf, &look, &e);

		if (rank < 0 || rank > most || (rank == most && below >= needed))
			continue;
		if (look.dirty)
		{
			yields_dirty = true;
			needed -= signal_hand(buf, &look, e, 0);
		}
		else if (put_on_offer(buf, &look, e))
		{
			share->counts.supplied_clean++;
			needed--;
		}
		below -= rank < most;
	}
	return to;
}

/* Is it still on offer?  What was used or has gone is taken off. */
static bool
still_on_offer(PgscaleSweeperShare *share, int buf)
{
	WindowEntry *e = &entries[buf - share->first];
	PgscaleBuffer look;
	PgscalePage page;

	if (!e->offered)
		return false;
	if (pgscale_buffer_read(buf, &look, &page))
		return catch_up(share, buf, &look, &page, 0)->offered && !look.pinned;
	page_gone(share, buf, e);
	e->known = false;
	return false;
}

/*
 * Makes sure that a hand at that position finds that many buffers ahead.  If it must
 * yield some, returns the position behind them.
 */
static int64
guard_from(PgscaleSweeperShare *share, int64 hand, int needed, int *looked)
{
	const int64 from = pgscale_sweeper_into_share(share, hand);
	const int64 to = hand + Min(NBuffers / 4, GUARD_AHEAD);

	/* After a long tick, or at the share's end, not all that lies ahead. */
	needed = Min(needed, (int) Max((to - from) / YIELD_TIMES, 1));
	for (int64 at = from; at < to && needed > 0; at = pgscale_sweeper_into_share(share, at + 1))
		needed -= still_on_offer(share, pgscale_sweeper_buffer_at(at));
	if (needed <= 0)
	{
		take_back_yielded(share, from, looked);
		return PG_INT64_MAX;
	}
	return yield_some(share, from, Min(to, from + Max(needed * YIELD_TIMES, YIELD_LEAST)), needed, looked);
}

static void
window_guard(PgscaleSweeperShare *share)
{
	int64		hand = (int64) pgscale_buffers_hand();
	int64		lead = 0;
	int			looked = 0;
	double		rate = 0;
	int			needed;

	/* The hand may come from another sweep's share. */
	for (int i = 0; i < pgscale_sweeper_count(); i++)
		rate = Max(rate, pgscale_sweeper_share(i)->taken);
	needed = (int) ceil(TAKEN_PART * (TAKEN_TIMES * rate + TAKEN_MORE));

	/*
	 * A hand that finds nothing may run past what is yielded, while it is:
	 * then again, further ahead than it runs in that time.
	 */
	for (int i = 0; i < GUARD_TRIES; i++)
	{
		const int64 guarded = guard_from(share, hand + lead, needed, &looked);
		const int64 now = (int64) pgscale_buffers_hand();

		if (now < guarded)
			break;
		lead = Min(2 * (now - hand), NBuffers / 2);
		hand = now;
	}
}

static bool
window_leave(PgscaleSweeperShare *share)
{
	/* From the server's hand on: there the counts are needed first. */
	if (entered && left_to == 0)
		leave_from = hand_in_share(share);
	for (int n = 0; entered && left_to < share->buffers; n++)
	{
		const int	buf = share->first + (leave_from + left_to) % share->buffers;
		WindowEntry *e = &entries[buf - share->first];
		PgscaleBuffer look;
		PgscalePage page;

		if (pgscale_sweeper_long_enough(n))
			return false;
		left_to++;
		if (e->known && pgscale_buffer_read(buf, &look, &page) && !catch_up(share, buf, &look, &page, 0)->offered)
			(void) signal_hand(buf, &look, e, e->usage);
		take_off_offer(e);
		e->known = false;
	}
	Assert(offered == 0);
	entered = false;
	share->taken = 0;
	return true;
}

const PgscaleSweeperSupply pgscale_sweeper_window = {
	.init = window_init,
	.follow = window_follow,
	.usage = window_usage,
	.age = window_age,
	.offer = window_offer,
	.ready = window_ready,
	.full = window_full,
	.onward = window_onward,
	.guard = window_guard,
	.leave = window_leave,
};
