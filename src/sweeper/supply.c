/*-------------------------------------------------------------------------
 *
 * supply.c
 *	  How buffers that may leave reach the backends: through the usage counts.
 *
 * The server's hand takes a buffer whose count is zero, and decrements each other count
 * that it passes.  So a count in the header becomes a signal to the hand only: zero for
 * a page on offer, one to three for any other page, which the hand passes.  How often a
 * page is used the policy knows, and says what rank it has, 0 .. 5.
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
 * the yielded ones, and those behind a hand that ticks are too late to follow.
 *
 * Backends must find a buffer within a short way: a hand that finds nothing goes round
 * until it has taken all counts down to zero.  So the guard examines the buffers on
 * offer or empty in the piece ahead of the hand.  Where those are fewer than backends
 * may take in the next tick, it yields the least used ones there: clean pages before
 * dirty ones that were used once less.  If the hand runs past that piece meanwhile, the
 * guard continues ahead of it.
 *
 * While writes are short that is not enough: sessions that go on after a wait take more
 * buffers within a tick, and a hand that runs ahead of the guard takes the first page that
 * it has brought to zero.  A clean one costs a read.  A dirty one costs the write of a single
 * page, for which its session waits beside all runs of the writers.  So, where reads are
 * cheap, clean pages are yielded up to the rank with which neighbours leave, and the hand
 * passes the others once.  What is used before the hand comes stays.  And what stays dirty
 * meanwhile gets more dirty neighbours, so that each write of the disk carries more.
 *
 * The hand may be faster than ticks can follow.  A sweep that falls behind by a lap
 * skips the older part and continues just ahead of the hand, where counts are needed
 * first.  A skipped page keeps its rank.  Its uses may be missed, and the hand may
 * find it at zero and take it, as on a stock server.
 *
 * Entering takes one round of the sweep over the buffers, in pieces.  Leaving takes one,
 * too, and gives the ranks to the headers as counts.  A sweep that ends without that
 * leaves counts that a stock server could have.  Nothing is locked: each change is one
 * CAS from the observed state, as in the server itself, and a failed one is repeated at
 * the hand's next round.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"

#include "base/shared_buffers.h"
#include "sweeper/known_pages.h"
#include "sweeper/standing_set.h"
#include "sweeper/supply.h"
#include "sweeper/sweeper.h"

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

/* What is known of the pages is prefetched so many buffers before it follows the hand to them. */
#define PREFETCH_AHEAD	48

/* Classes of pages that may be yielded, two for each rank. */
#define YIELD_CLASSES	(2 * (PGSCALE_MAX_USAGE + 2))

static int	offered = 0;		/* on offer when they were last seen */
static bool entered = false;	/* is the sweep at work here? */
static int	enter_from = 0;
static int	entered_to = 0;		/* buffers from there on */
static int	left_to = 0;		/* buffers that were left */
static int64 hand_seen = 0;		/* the server's hand, in the tick before */
static int64 followed = 0;		/* up to there */
static int	taken = 0;			/* in this tick */
static double taken_lately = 0; /* at most, in a short tick */
static int64 yielded_from = 0;	/* dirty pages may lie at zero between these */
static int64 yielded_to = 0;	/* positions of the hand */
static bool yields_dirty = false;	/* was one yielded since the last tick? */
static int	leave_from = 0;

static bool
is_yielded(const PgscaleSweeperPage *p)
{
	return p->followed && !p->offered && p->left == 0;
}

static void
take_off_offer(PgscaleSweeperPage *p)
{
	offered -= p->offered;
	p->offered = false;
	Assert(offered >= 0);
}

/* The page that was followed has gone, or was taken. */
static void
page_gone(int buf, PgscaleSweeperPage *p)
{
	taken++;
	pgscale_sweeper->counts.consumed += p->offered;
	take_off_offer(p);
	pgscale_sweeper_set_forget(buf);
}

/* There is no page to be seen in the buffer. */
static void
page_lost(int buf, PgscaleSweeperPage *p)
{
	page_gone(buf, p);
	pgscale_sweeper_page_left(buf);
	p->followed = false;
}

/*
 * Updates what is known of the page from the header just seen. "passed": that many
 * passes of the hand are noted only now.  A count that is lower than expected shows a
 * pass before the hand is followed there; it is noted, or it would be expected again.
 * While the sweep was not at work, the hand has aged pages as on a stock server.
 */
static PgscaleSweeperPage *
catch_up(int buf, const PgscaleBuffer *look, const PgscalePage *page, int passed)
{
	PgscaleSweeperPage *p = pgscale_sweeper_page(buf);
	const bool	followed = p->followed;
	const PgscaleSweeperNews news = pgscale_sweeper_page_seen(buf, look, page,
															  (int) p->left - (followed ? passed : 0), !followed);

	Assert(followed || !p->offered);
	p->followed = true;
	if (!followed)
		return p;
	if (news == PGSCALE_PAGE_REPLACED)
	{
		page_gone(buf, p);
		p->passed = true;		/* or one of its uses is missed */
	}
	else if (news == PGSCALE_PAGE_USED)
	{
		pgscale_sweeper->counts.reused += p->offered;
		take_off_offer(p);
	}
	else if (news == PGSCALE_PAGE_LOWERED)
		p->passed = true;
	Assert(!p->offered || p->left == 0);	/* or it was used */
	return p;
}

/* Has the hand find that count there.  What is known is up to date with the look. */
static bool
signal_hand(int buf, const PgscaleBuffer *look, PgscaleSweeperPage *p, uint8 count)
{
	Assert(p->followed && p->left == look->usage);
	if (look->usage == count)
		return true;
	if (!pgscale_buffer_set_usage(buf, look, count))
		return false;
	p->left = count;
	return true;
}

/* How often the hand passes a page that is not on offer. */
static uint8
passes_wanted(int buf, const PgscaleBuffer *look, const PgscaleSweeperPage *p)
{
	if (!pgscale_sweeper->writes_short || !pgscale_sweeper->reads_cheap || look->dirty || p->kept)
		return pgscale_sweeper_header(buf);
	return pgscale_sweeper_rank(buf) > pgscale_sweeper_policy_neighbour_rank(pgscale_sweeper_memory.policy, true) ? 1 : 0;
}

/* Has it pass the page, or yields that. */
static void
keep_from_hand(int buf, const PgscaleBuffer *look, PgscaleSweeperPage *p)
{
	(void) signal_hand(buf, look, p, passes_wanted(buf, look, p));
}

static bool
put_on_offer(int buf, const PgscaleBuffer *look, PgscaleSweeperPage *p)
{
	Assert(!p->offered);
	if (!signal_hand(buf, look, p, 0))
		return false;
	p->offered = true;
	offered++;
	return true;
}

/*
 * A page on offer may have gone, and another one come.  What the history knows of both is at random
 * places, so with many buffers seldom in the processor's caches.
 */
static void
prefetch_known(int buf)
{
	PgscaleSweeperHistory *history = pgscale_sweeper_policy_history(pgscale_sweeper_memory.policy);
	const PgscaleSweeperPage *p = pgscale_sweeper_page(buf);
	PgscaleBuffer look;
	PgscalePage page;

	if (!p->offered)
		return;
	if (pgscale_buffer_read(buf, &look, &page))
	{
		const uint32 hash = pgscale_buffer_page_hash(&page);

		if (hash == p->hash)
			return;
		pgscale_sweeper_history_prefetch(history, hash);
	}
	pgscale_sweeper_history_prefetch(history, p->hash);
}

/* The server's hand has passed a buffer. */
static void
pass_by(int buf)
{
	PgscaleBuffer look;
	PgscalePage page;
	PgscaleSweeperPage *p = pgscale_sweeper_page(buf);

	if (pgscale_buffer_read(buf, &look, &page))
	{
		/*
		 * From a page that is pinned, for a write perhaps, the hand takes
		 * nothing.
		 */
		(void) catch_up(buf, &look, &page, !p->passed && !look.pinned);
		/* except a dirty one, which its backend writes before */
		taken += look.pinned && look.usage == 0;
		p->passed = false;
		if (!p->offered)
			keep_from_hand(buf, &look, p);
	}
	else if (p->followed)
		page_lost(buf, p);		/* another is being read, or there is none */
}

/* Makes itself known to more of the buffers, from the server's hand on. */
static void
go_on_entering(void)
{
	for (int n = 0; entered_to < NBuffers && !pgscale_sweeper_long_enough(n); n++)
	{
		const int	buf = (enter_from + entered_to++) % NBuffers;
		PgscaleBuffer look;
		PgscalePage page;
		PgscaleSweeperPage *p = pgscale_sweeper_page(buf);

		if (p->followed || !pgscale_buffer_read(buf, &look, &page))
			continue;
		(void) catch_up(buf, &look, &page, 0);
		if (look.usage > 0 || look.pinned)
			continue;

		/* More than is wanted would look as if all victims were clean. */
		if (look.dirty || offered >= pgscale_sweeper->high || pgscale_sweeper_rank(buf) > 0)
			keep_from_hand(buf, &look, p);
		else if (put_on_offer(buf, &look, p))
			pgscale_sweeper->counts.supplied_clean++;
	}
}

bool
pgscale_sweeper_supply_follow(void)
{
	const int64 hand = (int64) pgscale_buffers_hand();
	const int64 upto = pgscale_sweeper_passed(hand);
	int64		prefetched;
	bool		demand;

	if (!entered || left_to > 0)
	{
		entered = true;
		entered_to = left_to = 0;
		followed = hand_seen = hand;
		enter_from = pgscale_sweeper_buffer_at(hand);
	}

	/* the server's count of the hand's rounds wraps around, as in observe.c */
	if (hand < followed - NBuffers)
	{
		followed = hand_seen = hand;
		yielded_from = yielded_to = 0;
	}
	followed = prefetched = Max(followed, hand - NBuffers);
	for (int n = 0; followed < upto && !pgscale_sweeper_long_enough(n); n++)
	{
		for (; prefetched < Min(followed + PREFETCH_AHEAD, upto); prefetched++)
			prefetch_known(pgscale_sweeper_buffer_at(prefetched));
		pass_by(pgscale_sweeper_buffer_at(followed));
		followed++;
	}
	go_on_entering();
	Assert(offered <= NBuffers);
	demand = hand != hand_seen || followed < upto || offered == 0;
	hand_seen = hand;
	taken_lately = Max((double) taken * PGSCALE_SWEEPER_TICK_NS / pgscale_sweeper->period_ns, taken_lately * TAKEN_DECAY);
	pgscale_sweeper->counts.starved += offered == 0 || yields_dirty;
	taken = 0;
	yields_dirty = false;
	return demand;
}

int
pgscale_sweeper_supply_rank(int buf, const PgscaleBuffer *look, const PgscalePage *page)
{
	return catch_up(buf, look, page, 0)->offered ? -1 : pgscale_sweeper_rank(buf);
}

void
pgscale_sweeper_supply_show(int buf, const PgscaleBuffer *look)
{
	keep_from_hand(buf, look, pgscale_sweeper_page(buf));
}

bool
pgscale_sweeper_supply_offer(int buf, const PgscalePage *page, uint8 max_rank)
{
	PgscaleBuffer look;
	PgscalePage now;
	PgscaleSweeperPage *p;

	if (!pgscale_buffer_read(buf, &look, &now) || !pgscale_buffer_page_equal(&now, page))
		return false;
	p = catch_up(buf, &look, page, 0);
	if (look.dirty || look.busy || look.pinned || p->offered || pgscale_sweeper_rank(buf) > max_rank)
		return false;
	return put_on_offer(buf, &look, p);
}

int
pgscale_sweeper_supply_ready(void)
{
	return offered;
}

/*
 * Where clean pages leave, what is on offer shall lie close ahead of the server's
 * hand; so a sweep that is not ahead of it goes there.  Dirty ones are found where
 * they are, and written in an order of their own.
 */
int
pgscale_sweeper_supply_onward(int hand, double dirty_fraction)
{
	const int	server = pgscale_sweeper_buffer_at((int64) pgscale_buffers_hand());
	const int	ahead = (hand - server + NBuffers) % NBuffers;

	return dirty_fraction < 0.5 && ahead > NBuffers / 2 ? server : hand;
}

/* In what order a page is yielded: the least first, and none that is less than 0. */
static int
yield_class(int buf, PgscaleBuffer *look)
{
	PgscalePage page;

	if (!pgscale_buffer_read(buf, look, &page) || look->busy || look->pinned ||
		catch_up(buf, look, &page, 0)->left == 0)
		return -1;
	return 2 * (pgscale_sweeper_rank(buf) + look->dirty) + look->dirty;
}

/*
 * The hand shall pass what was yielded ahead of it, now that enough is on offer.  What
 * there is no time for is left to the next tick.
 */
static void
take_back_yielded(int64 from, int *looked)
{
	yielded_from = Max(from, yielded_from);
	while (yielded_from < yielded_to && !pgscale_sweeper_long_enough((*looked)++))
	{
		const int	buf = pgscale_sweeper_buffer_at(yielded_from);
		PgscaleSweeperPage *p = pgscale_sweeper_page(buf);
		PgscaleBuffer look;
		PgscalePage page;

		yielded_from++;
		if (is_yielded(p) && pgscale_buffer_read(buf, &look, &page))
			keep_from_hand(buf, &look, catch_up(buf, &look, &page, 0));
	}
}

/* Will the hand take it, although it is not on offer?  It may be empty. */
static bool
lies_at_zero(const PgscaleSweeperPage *p, int buf)
{
	PgscaleBuffer look;

	pgscale_buffer_look(buf, &look);
	return !p->offered && look.usage == 0 && !look.pinned && !look.busy;
}

/*
 * Yields that many buffers from one position of the hand up to another, or within the
 * part for which there is time.  Returns the position behind them.
 */
static int64
yield_some(int64 from, int64 to, int needed, int *looked)
{
	int			of_class[YIELD_CLASSES] = {0};
	int			most = 0;
	int			below = 0;

	Assert(needed > 0);
	for (int64 at = from; at < to; at++)
	{
		const int	buf = pgscale_sweeper_buffer_at(at);
		PgscaleBuffer look;
		const int	class = yield_class(buf, &look);

		if (class >= 0)
			of_class[class]++;
		else
			needed -= lies_at_zero(pgscale_sweeper_page(buf), buf);
		if (pgscale_sweeper_long_enough((*looked)++))
			to = at + 1;
	}
	yielded_from = yielded_from < yielded_to ? Min(yielded_from, from) : from;
	yielded_to = Max(yielded_to, to);
	while (most < YIELD_CLASSES - 1 && below + of_class[most] < needed)
		below += of_class[most++];
	for (int64 at = from; at < to && needed > 0; at++)
	{
		const int	buf = pgscale_sweeper_buffer_at(at);
		PgscaleSweeperPage *p = pgscale_sweeper_page(buf);
		PgscaleBuffer look;
		const int	class = yield_class(buf, &look);

		if (class < 0 || class > most || (class == most && below >= needed))
			continue;
		if (look.dirty)
		{
			yields_dirty = true;
			needed -= signal_hand(buf, &look, p, 0);
		}
		else if (put_on_offer(buf, &look, p))
		{
			pgscale_sweeper->counts.supplied_clean++;
			needed--;
		}
		below -= class < most;
	}
	return to;
}

/* Is it still on offer?  What was used or has gone is taken off. */
static bool
still_on_offer(int buf)
{
	PgscaleSweeperPage *p = pgscale_sweeper_page(buf);
	PgscaleBuffer look;
	PgscalePage page;

	if (!p->offered)
		return false;
	if (pgscale_buffer_read(buf, &look, &page))
		return catch_up(buf, &look, &page, 0)->offered && !look.pinned;
	page_lost(buf, p);
	return false;
}

/*
 * Makes sure that a hand at that position finds that many buffers ahead.  If it must
 * yield some, returns the position behind them.
 */
static int64
guard_from(int64 hand, int needed, int *looked)
{
	const int64 to = hand + Min(NBuffers / 4, GUARD_AHEAD);

	/* After a long tick, not all that lies ahead. */
	needed = Min(needed, (int) Max((to - hand) / YIELD_TIMES, 1));
	for (int64 at = hand; at < to && needed > 0; at++)
		needed -= still_on_offer(pgscale_sweeper_buffer_at(at));
	if (needed <= 0)
	{
		take_back_yielded(hand, looked);
		return PG_INT64_MAX;
	}
	return yield_some(hand, Min(to, hand + Max(needed * YIELD_TIMES, YIELD_LEAST)), needed, looked);
}

void
pgscale_sweeper_supply_guard(void)
{
	int64		hand = (int64) pgscale_buffers_hand();
	int64		lead = 0;
	int			looked = 0;
	const int	needed = (int) ceil(TAKEN_PART * (TAKEN_TIMES * taken_lately * pgscale_sweeper->period_ns / PGSCALE_SWEEPER_TICK_NS + TAKEN_MORE));

	/*
	 * A hand that finds nothing may run past what is yielded, while it is:
	 * then again, further ahead than it runs in that time.
	 */
	for (int i = 0; i < GUARD_TRIES; i++)
	{
		const int64 guarded = guard_from(hand + lead, needed, &looked);
		const int64 now = (int64) pgscale_buffers_hand();

		if (now < guarded)
			break;
		lead = Min(2 * (now - hand), NBuffers / 2);
		hand = now;
	}
}

bool
pgscale_sweeper_supply_leave(void)
{
	/* From the server's hand on: there the counts are needed first. */
	if (entered && left_to == 0)
		leave_from = pgscale_sweeper_buffer_at((int64) pgscale_buffers_hand());
	for (int n = 0; entered && left_to < NBuffers; n++)
	{
		const int	buf = (leave_from + left_to) % NBuffers;
		PgscaleSweeperPage *p = pgscale_sweeper_page(buf);
		PgscaleBuffer look;
		PgscalePage page;

		if (pgscale_sweeper_long_enough(n))
			return false;
		left_to++;
		if (p->followed && pgscale_buffer_read(buf, &look, &page) && !catch_up(buf, &look, &page, 0)->offered)
			(void) signal_hand(buf, &look, p, pgscale_sweeper_rank(buf));
		take_off_offer(p);
		p->followed = p->passed = false;
	}
	Assert(offered == 0);
	entered = false;
	taken_lately = 0;
	return true;
}
