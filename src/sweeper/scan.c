/*-------------------------------------------------------------------------
 *
 * scan.c
 *	  The sweep: finds buffers that may leave, and makes them ready.
 *
 * The sweep never waits, not even for a write.  A clean victim is offered to the
 * backends at once.  A dirty one goes to the writers, with its dirty neighbours, and is
 * offered when it comes back.  Either may have been used meanwhile; then it stays.  The
 * supply (supply.h) passes buffers to the backends, and sees what they do.  The sweep has
 * a hand of its own, and a policy that ranks the page in each buffer.
 *
 * Queued and running writes count as future stock, but only while the writers make
 * progress.  If none can start, or all hang in a write, the sweep takes only clean
 * victims, and leaves dirty ones to the server.
 *
 * Each sweep is bounded in buffers and in time, because reading a header from another
 * processor's cache takes long.  The next tick continues where it stopped.
 *
 * Dirty victims become candidates, and the best of them are written: see
 * standing_set.c.
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
#include "base/timer.h"
#include "base/units.h"
#include "sweeper/keep.h"
#include "sweeper/known_pages.h"
#include "sweeper/standing_set.h"
#include "sweeper/supply.h"
#include "sweeper/sweeper.h"

/* Buffers to look at and pages to look up in one tick, and for how long. */
#define SCAN_MAX		65536
#define SCAN_NS			NS_PER_MS
#define LOOK_AT_CLOCK	1024	/* of them between two looks at the clock */

/* CPU time to choose, or to look at runs anew; each is done twice in a tick at most. */
#define CHOOSE_NS		(5 * NS_PER_MS)

/*
 * The standing set: a quarter of the buffers, but no more than can be kept in
 * order in the time that there is.  Of that it uses the fraction of victims that are
 * dirty, and a few: clean victims leave at once, so dirty ones that wait take the
 * room of clean pages that were used later.
 */
#define SET_PART		4
#define SET_MOST		(256 * 1024)
#define SET_LEAST		16

/*
 * Writes are short if in more than that fraction of the last time ticks found nothing ready,
 * until nearly none did; and if at least that fraction of the victims are dirty.  Only then
 * victims in long runs are written first, and neighbours leave with them: both cost reads.
 */
#define SHORT_FRACTION		0.001
#define SHORT_OVER		(SHORT_FRACTION / 20)
#define SHORT_NS		(10 * NS_PER_S)
#define SHORT_DIRTY		0.25

/* As many candidates are looked at anew as this times the pages that are chosen. */
#define REFRESH_TIMES	4

/*
 * While a batch has what it needs, the sweep may pass no more buffers than this
 * times those that were taken, about as many as the server's own hand would; after a
 * rest, so many laps.  While writes are short it may pass more, and looks for candidates
 * between batches, too: the more candidates, the longer are the runs that are chosen.
 */
#define PASS_TIMES			3
#define PASS_TIMES_SHORT	6
#define PASS_LAPS			2

/*
 * The sweep passes so many buffers a second for the pages that leave.  Where they leave
 * faster than that allows, the policy chooses among fewer, down to that many for each.
 */
#define PASS_A_SECOND	500000
#define PASS_LEAST		4

/* How fast buffers are taken, as a mean of that time. */
#define RATE_S			0.25

/* It refills before what is ready may be taken in so many ticks. */
#define REFILL_TICKS	2

/* The longest time between two ticks, while what is taken in one is no more than that part of what is ready. */
#define TICK_MOST_NS	(4 * PGSCALE_SWEEPER_TICK_NS)
#define TAKEN_OF_READY	0.125

/* The fraction of dirty victims, as a mean of the last ones. */
#define DIRTY_MEMORY	1000

/* Writers that have not worked on the queue for that long are stuck. */
#define STUCK_NS		(2000 * NS_PER_MS)

static int	hand = 0;
static bool refilling = false;
static double may_pass = 0;		/* buffers, although nothing is lacking */
static double dirty_fraction = 0;	/* of the victims found */
static int	found = 0;			/* victims, up to those that are remembered */
static double starved_fraction = 0; /* of the time */
static double rate = 0;			/* buffers that are taken, a second */
static double peak = 0;			/* the rate, or the last tick's if higher */
static int64 rated_ns = 0;		/* when the rate was computed */
static int64 give_up_ns = 0;	/* when this tick has lasted long enough */

/* The writers' progress. */
static uint64 done_before = 0;
static int64 progress_ns = 0;	/* when they last got on */

static PgscaleSweeperRun *runs = NULL;

void
pgscale_sweeper_scan_init(void)
{
	dirty_fraction = found = 0;
	may_pass = (double) PASS_LAPS * NBuffers;
	pgscale_sweeper->period_ns = PGSCALE_SWEEPER_TICK_NS;
	pgscale_sweeper_set_init(Max(Min(NBuffers / SET_PART, SET_MOST), 1));
	runs = MemoryContextAlloc(TopMemoryContext, PGSCALE_RUNS_QUEUED * sizeof(PgscaleSweeperRun));
}

bool
pgscale_sweeper_long_enough(int n)
{
	static int	due;

	if (n == 0)
		due = LOOK_AT_CLOCK - 1;
	if (n >= SCAN_MAX || n < due)
		return n >= SCAN_MAX;
	due = n + LOOK_AT_CLOCK;
	return pgscale_timer_clock() > give_up_ns;
}

/* Has the standing set room for another candidate? */
static bool
set_has_room(void)
{
	return pgscale_sweeper_set_lacks(Min(Max(dirty_fraction, (double) SET_LEAST * SET_PART / NBuffers), 1));
}

static bool
is_unused(int buf, const PgscaleBuffer *look, const PgscalePage *page)
{
	return pgscale_sweeper_supply_rank(buf, look, page) == 0;
}

/* The next page that a writer has cleaned, if any. */
static bool
take_written(int writer, PgscaleSweeperSwept *swept)
{
	bool		lost = false;
	bool		taken = pgscale_sweeper_take_written(&pgscale_sweeper_memory.queues->written[writer], swept, &lost);

	pgscale_sweeper->counts.errors += lost;
	return taken;
}

/* Supplies what the writers have cleaned. */
static void
take_back(void)
{
	const uint8 most = pgscale_sweeper_policy_neighbour_rank(pgscale_sweeper_memory.policy, pgscale_sweeper->writes_short);
	PgscaleSweeperSwept swept;

	for (int i = 0; i < PGSCALE_SWEEPER_MAX_WRITERS; i++)
		for (int n = 0; n < PGSCALE_PAGES_WRITTEN && take_written(i, &swept); n++)
		{
			/* of a kept relation no page leaves as a neighbour */
			const bool	neighbours = pgscale_sweeper_kept_place(&swept.page.locator) < 0;

			pgscale_sweeper_set_forget(swept.buf);
			if (pgscale_sweeper_supply_offer(swept.buf, &swept.page, neighbours ? most : 0))
				pgscale_sweeper->counts.supplied_written++;
		}
}

/* Do the writers that have pages to write do nothing? */
static bool
writers_stuck(int pending, int64 now)
{
	const PgscaleSweeperWriteCounts write = pgscale_sweeper_write_counts();
	const uint64 done = write.written + write.skipped_pinned + write.skipped_locked + write.skipped_wal + write.skipped_changed;

	if (pending == 0 || done != done_before)
		progress_ns = now;
	done_before = done;
	return now - progress_ns >= STUCK_NS;
}

/* Queues them, while there is room. */
static void
hand_to_writers(int nruns)
{
	for (int i = 0; i < nruns; i++)
		if (!pgscale_sweeper_put_run(pgscale_sweeper_memory.queues, &runs[i]))
			break;
}

/* Has that many pages of the standing set written.  Returns their number. */
static int
sweeper_write(int pages)
{
	const int	room = PGSCALE_RUNS_QUEUED - (int) pgscale_sweeper_queued_runs(pgscale_sweeper_memory.queues);
	const int	nruns = pgscale_sweeper_set_choose(pages, is_unused, PGSCALE_RUN_MAX, CHOOSE_NS, runs, room);
	int			chosen = 0;

	for (int i = 0; i < nruns; i++)
		chosen += runs[i].pages;
	hand_to_writers(nruns);
	pgscale_sweeper_set_refresh(REFRESH_TIMES * chosen, is_unused, PGSCALE_RUN_MAX, CHOOSE_NS);
	return chosen;
}

/* A victim was found.  Returns how many pages it looked up. */
static int
sweeper_found(int buf, const PgscaleBuffer *look, const PgscalePage *page, int *lacking)
{
	/*
	 * A clean one that is not offered stays, and counts in each lap.  So more
	 * clean ones are supplied and fewer dirty ones written than by their
	 * numbers.  Where each counts once, a write serves 1.9 transactions
	 * instead of 2.1: uniform keys, bench/sweeper skewed.
	 */
	found = Min(found + 1, DIRTY_MEMORY);
	dirty_fraction += (look->dirty - dirty_fraction) / found;
	if (look->dirty)
	{
		if (pgscale_sweeper->stuck || !set_has_room())
			return 0;
		pgscale_sweeper_supply_show(buf, look);
		pgscale_sweeper->counts.queued++;
		return pgscale_sweeper_set_add(buf, page, PGSCALE_RUN_MAX);
	}
	if (*lacking > 0 && pgscale_sweeper_supply_offer(buf, page, 0))
	{
		pgscale_sweeper_set_forget(buf);
		pgscale_sweeper->counts.supplied_clean++;
		(*lacking)--;
	}
	return 0;
}

/*
 * May the sweep pass another buffer?  Always, if buffers are lacking and what is
 * found can be used.  Otherwise only as many as it may; and to find candidates only if
 * part of the victims are dirty.
 */
static bool
sweep_goes_on(int lacking)
{
	if (lacking > 0 && (pgscale_sweeper->stuck || set_has_room()))
		return true;
	return may_pass > 0 && (lacking > 0 || (!pgscale_sweeper->stuck && pgscale_sweeper_set_lacks(dirty_fraction)));
}

/* A visit: may the page leave?  A kept one does not.  Place: see pgscale_sweeper_kept_met(). */
static bool
visit_may_leave(int buf, int place)
{
	const uint8 rank = pgscale_sweeper_visit(buf, place >= 0);

	if (rank == 0 && place >= 0)
		pgscale_sweeper_kept_stayed(place);
	return rank == 0 && place < 0;
}

/*
 * Visits buffers until that many clean ones are supplied, and the standing set is
 * full.  Returns the number still missing.
 */
static int
sweeper_sweep(int lacking)
{
	int			looked_up = 0;

	if (lacking > 0)
		hand = pgscale_sweeper_supply_onward(hand, dirty_fraction);
	Assert(hand >= 0 && hand < NBuffers);
	for (int i = 0; i < NBuffers && sweep_goes_on(lacking) && !pgscale_sweeper_long_enough(i + looked_up); i++)
	{
		const int	buf = hand;
		PgscaleBuffer look;
		PgscalePage page;
		int			rank;
		int			place;

		hand = (hand + 1) % NBuffers;
		pgscale_sweeper->counts.scanned++;
		may_pass--;

		if (!pgscale_buffer_read(buf, &look, &page) || look.busy)
			continue;
		place = pgscale_sweeper_kept_files > 0 ? pgscale_sweeper_kept_met(&page.locator) : -1;
		rank = pgscale_sweeper_supply_rank(buf, &look, &page);
		if (rank < 0 || (pgscale_sweeper_set_skip(buf) && look.dirty && rank == 0) || look.pinned)
			continue;
		if (visit_may_leave(buf, place))
			looked_up += sweeper_found(buf, &look, &page, &lacking);
		else
		{
			pgscale_sweeper_supply_show(buf, &look);
			pgscale_sweeper->counts.decremented++;
		}
	}
	return lacking;
}

/*
 * Makes that many buffers ready, or has them written: dirty ones in their proportion of
 * the victims, because clean ones are worth as much as cache.
 */
static void
sweeper_refill(int lacking)
{
	Assert(lacking > 0);
	if (!pgscale_sweeper->stuck)
		lacking -= sweeper_write((int) ceil(lacking * dirty_fraction));
	give_up_ns = pgscale_timer_clock() + SCAN_NS;	/* choosing has a limit */
	lacking = sweeper_sweep(lacking);
	if (!pgscale_sweeper->stuck && lacking > 0)
		(void) sweeper_write(lacking);
}

/* So many buffers were taken since the last tick.  Returns how many the next ticks will take. */
static int
follow_rate(double taken, int64 now)
{
	const double s = Max((now - rated_ns) / (double) NS_PER_S, 1e-6);
	const double part = Min(s / RATE_S, 1);

	rate += (taken / s - rate) * part;
	peak = Max(rate, taken * NS_PER_S / Max(now - rated_ns, PGSCALE_SWEEPER_TICK_NS));
	rated_ns = now;
	pgscale_sweeper_history_pass(pgscale_sweeper_policy_history(pgscale_sweeper_memory.policy),
								 Max(Min(PASS_A_SECOND / Max(rate, 1), PGSCALE_SWEEPER_PASS_MOST), PASS_LEAST));
	return (int) Min(REFILL_TICKS * rate * s, (double) pgscale_sweeper->high);
}

/* One more tick.  How long there was nothing ready in it is not known. */
static void
follow_shortage(bool starved)
{
	starved_fraction += (starved - starved_fraction) *
		(starved ? PGSCALE_SWEEPER_TICK_NS : pgscale_sweeper->period_ns) / SHORT_NS;
	pgscale_sweeper->writes_short = dirty_fraction >= SHORT_DIRTY &&
		starved_fraction > (pgscale_sweeper->writes_short ? SHORT_OVER : SHORT_FRACTION);
	pgscale_sweeper_set_order(pgscale_sweeper->writes_short);
	pgscale_sweeper_policy_writes_first(pgscale_sweeper_memory.policy,
										pgscale_sweeper->writes_short && pgscale_sweeper->reads_cheap);
}

/*
 * A wake-up costs more than the rest of a tick in which little was taken.  So the next tick
 * is postponed while the stock lasts for several, no writer may have to be woken, and
 * this one was done in time.
 */
static void
choose_period(int64 began, bool starved)
{
	const double lasts = TAKEN_OF_READY * pgscale_sweeper_supply_ready() / Max(peak, 1) * NS_PER_S;

	if (lasts < pgscale_sweeper->period_ns || pgscale_sweeper->ready < pgscale_sweeper->low ||
		starved || pgscale_sweeper->writes_short || pgscale_timer_clock() - began >= SCAN_NS ||
		pgscale_sweeper_pending(pgscale_sweeper_memory.queues) > 0)
		pgscale_sweeper->period_ns = PGSCALE_SWEEPER_TICK_NS;
	else if (lasts >= 2 * pgscale_sweeper->period_ns)
		pgscale_sweeper->period_ns = Min(2 * pgscale_sweeper->period_ns, TICK_MOST_NS);
}

bool
pgscale_sweeper_scan(void)
{
	const int64 now = pgscale_timer_clock();
	const int	pending = pgscale_sweeper_pending(pgscale_sweeper_memory.queues);
	const uint64 gone = pgscale_sweeper->counts.consumed + pgscale_sweeper->counts.reused;
	const uint64 starved = pgscale_sweeper->counts.starved;
	bool		demand;
	int			coming;
	int			soon;
	double		taken;

	if (pgscale_sweeper->observing && !pgscale_sweeper_rest(false))
		return true;
	give_up_ns = now + SCAN_NS;
	pgscale_sweeper_kept_refresh();
	pgscale_sweeper->stuck = writers_stuck(pending, now);
	demand = pgscale_sweeper_supply_follow();
	follow_shortage(pgscale_sweeper->counts.starved != starved);
	take_back();
	pgscale_sweeper->ready = pgscale_sweeper_supply_ready();

	taken = (double) (pgscale_sweeper->counts.consumed + pgscale_sweeper->counts.reused - gone);
	soon = follow_rate(taken, now);
	may_pass += (pgscale_sweeper->writes_short ? PASS_TIMES_SHORT : PASS_TIMES) * taken;
	may_pass = Max(Min(may_pass, (double) PASS_LAPS * NBuffers), -(double) NBuffers);
	coming = pgscale_sweeper->ready + (pgscale_sweeper->stuck ? 0 : pending);
	if (coming < Max(pgscale_sweeper->low, soon))
		refilling = true;
	else if (coming >= pgscale_sweeper->high)
		refilling = false;
	if (refilling)
		sweeper_refill(pgscale_sweeper->high - coming);
	else if (pgscale_sweeper->writes_short && taken > 0)
		(void) sweeper_sweep(0);

	give_up_ns = pgscale_timer_clock() + SCAN_NS;
	pgscale_sweeper_supply_guard();
	choose_period(now, pgscale_sweeper->counts.starved != starved);
	return demand;
}

bool
pgscale_sweeper_rest(bool observe)
{
	PgscaleSweeperSwept swept;
	bool		left;

	give_up_ns = pgscale_timer_clock() + SCAN_NS;
	refilling = pgscale_sweeper->writes_short = false;
	starved_fraction = 0;
	pgscale_sweeper->period_ns = PGSCALE_SWEEPER_TICK_NS;
	pgscale_sweeper_policy_writes_first(pgscale_sweeper_memory.policy, false);
	may_pass = (double) PASS_LAPS * NBuffers;
	progress_ns = give_up_ns;
	pgscale_sweeper->stuck = false;
	for (int i = 0; i < PGSCALE_SWEEPER_MAX_WRITERS; i++)
		for (int n = 0; n < PGSCALE_PAGES_WRITTEN && take_written(i, &swept); n++)
			pgscale_sweeper_set_forget(swept.buf);
	left = pgscale_sweeper_supply_leave();
	if (left && pgscale_sweeper->observing != observe)
	{
		pgscale_sweeper_policy_observe(pgscale_sweeper_memory.policy, observe);
		pgscale_sweeper->observing = observe;
	}
	pgscale_sweeper->ready = pgscale_sweeper_supply_ready();
	return left;
}
