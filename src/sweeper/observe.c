/*-------------------------------------------------------------------------
 *
 * observe.c
 *	  What another choice of pages would miss: learned while the sweeper only watches.
 *
 * The server's hand takes one from the count of each page that it passes, and takes the
 * buffers that it finds at zero.  So a header that is read behind the hand shows what
 * happened since the lap before: its growth over the count of then, and one for the pass,
 * are uses; another page has come in the place of the one that was known.  That is reported
 * to the policy.  It decides nothing meanwhile, but its shadow caches see the uses, and
 * forecast what another choice would save (forecast.c).  Each pass is a visit, so that all
 * pages are known when the sweeper begins to work.
 *
 * Nothing is written to a header, and no lock is taken except the one that reads the
 * position of the hand.
 *
 * The cost is in proportion to the hand's movement; while that stands, there is none.
 * Beyond a number of visits a second it is limited: then the hand is followed in windows
 * of some laps without a gap, with pauses between them.  Every n-th buffer, or
 * every n-th lap, would not do: pages that come and leave in between would be missed, so
 * that the cache would seem to be better than it is.  In a window's first lap pages that
 * were known before show no uses, because nothing is known of the hand's passes
 * meanwhile; others have come.  A hand that outruns the sweeper by a lap ends a window,
 * and what it has passed is missed.  In a pool of a few hundred buffers that can happen
 * at each tick: then nothing is forecast (forecast.c).
 *
 * A page is also taken as gone while it is being read into its buffer, or its header is
 * locked at every try.  It comes in the next lap then.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "base/shared_buffers.h"
#include "base/timer.h"
#include "base/units.h"
#include "sweeper/known_pages.h"
#include "sweeper/supply.h"
#include "sweeper/sweeper.h"

/* Visits a second, in the long run: computed at 0.3 us each, 3 % of a core. */
#define VISITS_PER_S	100000

/* Laps of a window, at the most; a pause lasts until as many visits are allowed. */
#define WINDOW_LAPS		8

/* If the hand comes further in that time than that part of a lap, ticks must be more often. */
#define PACE_NS			(100 * NS_PER_MS)
#define PACE_PART		8

/* After that long without a tick, the window has ended. */
#define WINDOW_LOST_NS	NS_PER_S

static double allowed = 0;		/* visits */
static int64 ticked_ns = 0;		/* when it last was allowed some */
static int64 hand_before = 0;	/* where the server's hand was then */
static bool in_window = false;
static int64 followed = 0;		/* up to there */
static int64 lap_end = 0;		/* of the window's first lap */

/*
 * The server's hand has passed a buffer.  From a page that is pinned it takes nothing;
 * one that was pinned only then seems to be used once less.  A page that is new there and
 * has a count came after the pass; the visit is that of the next lap.  So the policy's
 * counts are those in the headers, with which it begins if the sweeper begins to work.
 */
static void
observe_buffer(int buf, bool known_lap)
{
	const PgscaleSweeperPage *p = pgscale_sweeper_page(buf);
	PgscaleBuffer look;
	PgscalePage page;
	PgscaleSweeperNews news;

	if (!pgscale_buffer_read(buf, &look, &page))
	{
		pgscale_sweeper_page_left(buf);
		return;
	}
	news = pgscale_sweeper_page_seen(buf, &look, &page,
									 known_lap ? (int) p->left - !look.pinned : look.usage, false);
	if (!look.pinned && (look.usage == 0 || (news != PGSCALE_PAGE_FIRST_SEEN && news != PGSCALE_PAGE_REPLACED)))
		(void) pgscale_sweeper_visit(buf, false);
}

/* Is there a window, now that the hand is there?  One begins if enough visits are allowed. */
static bool
window_goes_on(int64 hand, int64 now)
{
	const double most = (double) WINDOW_LAPS * NBuffers;

	/*
	 * the server's count of the hand's rounds wraps around, in a tiny pool
	 * within a day
	 */
	if (now - ticked_ns > WINDOW_LOST_NS || hand < followed - NBuffers)
	{
		in_window = false;
		followed = hand;		/* nothing of that was to be observed */
	}
	if (ticked_ns == 0)
		allowed = most;
	allowed = Min(allowed + (now - ticked_ns) * (VISITS_PER_S / (double) NS_PER_S), most);
	ticked_ns = now;

	if (in_window && hand - followed > NBuffers)
		pgscale_sweeper->coverage.missed += hand - followed;
	else if (in_window && allowed > 0)
		return true;
	in_window = allowed >= most;
	if (in_window)
	{
		pgscale_sweeper->counts.unobserved += (uint64) Max(hand - followed, 0);
		followed = hand;
		lap_end = hand + NBuffers;
	}
	return in_window;
}

bool
pgscale_sweeper_observe(void)
{
	const int64 hand = (int64) pgscale_buffers_hand();
	const int64 upto = pgscale_sweeper_passed(hand);
	const int64 now = pgscale_timer_clock();
	const bool	fast = (double) (hand - hand_before) * PACE_NS > (double) NBuffers / PACE_PART * (now - ticked_ns);

	Assert(pgscale_sweeper->observing);
	hand_before = hand;
	if (!window_goes_on(hand, now))
		return false;
	for (int n = 0; followed < upto && !pgscale_sweeper_long_enough(n); n++)
	{
		observe_buffer(pgscale_sweeper_buffer_at(followed), followed >= lap_end);
		pgscale_sweeper->counts.observed++;
		pgscale_sweeper->coverage.seen++;
		allowed--;
		followed++;
	}
	return fast || followed < upto;
}
