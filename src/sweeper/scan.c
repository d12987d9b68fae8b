/*-------------------------------------------------------------------------
 *
 * scan.c
 *	  The sweep: finding buffers that may leave, and making them ready.
 *
 * It never waits, least of all for a write: a victim that is clean becomes
 * ready at once; one that is dirty goes to the writers, with its dirty
 * neighbours, and becomes ready when it comes back.  Either may have been used
 * meanwhile; then it stays.
 *
 * Supply through the freelist.  The sweep has a hand of its own, which the
 * policy tells what to do with each buffer; the server's hand stands still
 * while the list has something to offer.  The list is last in, first out, and
 * so is our stack of what we put there, which therefore tells without a search
 * what was taken: its last entries, as far as they are no longer on the list.
 * Entries that were used while they waited stay on the list until a backend
 * finds and drops them; a sample tells how many of the stack they are.
 *
 * While the stock holds, nobody else shall write what could be combined: dirty
 * buffers are kept at a usage count that bgwriter leaves alone.  Only the server's
 * hand brings them below it, so what it has passed is all there is to look at.
 *
 * What is queued or being written counts as stock that is coming, but only as
 * long as the writers get on.  When none can start, or all hang in a write, the
 * sweep goes by clean victims alone, and leaves dirty ones to the server.
 *
 * Supply ahead of the hand.  Nothing is put anywhere: the dirty ones among the
 * buffers that the server's hand will find next with a usage count of zero are
 * cleaned before it comes.  For a server without a freelist.
 *
 * It is always of bounded length: in buffers, and in time, since a header in
 * another processor's cache takes long to look at; where it stopped it goes on
 * in the next tick.  What was seen ahead of the hand is not looked at again
 * before the hand has moved by a good part of it.
 *
 * Dirty victims become candidates, of which the best are written: see
 * standing_set.c.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "common/pg_prng.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/shared_buffers.h"
#include "base/timer.h"
#include "base/units.h"
#include "sweeper/policies/policy.h"
#include "sweeper/standing_set.h"
#include "sweeper/sweeper.h"
#include "sweeper/write_combining.h"


/* Buffers to look at and pages to look up in one tick, and for how long. */
#define SCAN_MAX		65536
#define SCAN_NS			NS_PER_MS
#define LOOK_AT_CLOCK	1024	/* of them between two looks at the clock */

/* CPU time to choose, or to look at runs anew; each is done twice in a tick at most. */
#define CHOOSE_NS		(5 * NS_PER_MS)

/*
 * The standing set: a quarter of the buffers, but no more than can be kept in
 * order in the time that there is.
 */
#define SET_PART		4
#define SET_MOST		(256 * 1024)

/* As many candidates are looked at anew as this times the pages that are chosen. */
#define REFRESH_TIMES	4

/*
 * While a batch has what it needs, the sweep may pass no more buffers than this
 * times those that were taken, about as many as the server's own hand would; after
 * a rest, so many laps.
 */
#define PASS_TIMES		4
#define PASS_LAPS		2

/* The share of dirty ones among victims, as a mean of the last so many. */
#define DIRTY_MEMORY	1000

/* Writers that in so long have done nothing of what is queued are stuck. */
#define STUCK_NS		(2000 * NS_PER_MS)

/* How many ready buffers to look at to tell how many were used meanwhile. */
#define STALE_SAMPLE	64

/* In mode "ahead", buffers are dealt to the workers in pieces of this size. */
#define AHEAD_PIECE		256

/* There, at so many pages it looks for dirty neighbours in one tick. */
#define AHEAD_PAGES		65536

/* There, look again after this part of the watermark, or so many ticks. */
#define AHEAD_PART		16
#define AHEAD_TICKS		25

static const PgscaleSweeperPolicy *const policy = &pgscale_sweeper_policy_clock;

static int	hand = 0;
static bool refilling = false;
static int64 shielded = PG_INT64_MIN;	/* where the server's hand was, up to
										 * there none is left to shield */
static double may_pass = 0;		/* buffers, although nothing is lacking */
static double dirty_share = 0;	/* of the victims found */
static int64 give_up_ns = 0;	/* when this tick has lasted long enough */

/* The writers' progress. */
static uint64 done_before = 0;
static int64 progress_ns = 0;	/* when they last got on */

/* Mode "ahead": the server's hand, now and at the last look. */
static uint64 hand_seen = 0;
static uint64 ahead_hand = 0;
static bool ahead_idle = false;
static int	ahead_ticks = 0;

static PgscalePage *victims = NULL;
static PgscaleSweeperRun *runs = NULL;
static int	nvictims = 0;

void
pgscale_sweeper_scan_init(const PgscaleSweeperShare *share)
{
	hand_seen = pgscale_buffers_hand();
	may_pass = (double) PASS_LAPS * share->buffers;
	pgscale_sweeper_set_init(share->first, share->buffers, Max(Min(share->buffers / SET_PART, SET_MOST), 1));
	victims = MemoryContextAlloc(TopMemoryContext, PGSCALE_RUNS_QUEUED * sizeof(PgscalePage));
	runs = MemoryContextAlloc(TopMemoryContext, PGSCALE_RUNS_QUEUED * sizeof(PgscaleSweeperRun));
}

/* Is that enough, n being the buffers looked at and the pages looked up?  A loop begins with n = 0. */
static bool
long_enough(int n)
{
	static int	due;

	if (n == 0)
		due = LOOK_AT_CLOCK - 1;
	if (n >= SCAN_MAX || n < due)
		return n >= SCAN_MAX;
	due = n + LOOK_AT_CLOCK;
	return pgscale_timer_clock() > give_up_ns;
}

static void
sweeper_push(PgscaleSweeperShare *share, int buf, const PgscalePage *page)
{
	PgscaleSweeperSupplied *top = &share->stack[share->stack_used];

	top->buf = buf;
	top->page_hash = pgscale_buffer_page_hash(page);
	share->stack_used++;
}

/* Takes off the stack what backends took off the freelist. */
static void
pop_taken(PgscaleSweeperShare *share)
{
	for (int n = 0; share->stack_used > 0 && !long_enough(n); n++)
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
			if (policy->evicted)
				policy->evicted(top->buf, top->page_hash);
		}
		share->stack_used--;
	}
}

/* How much of the stack a backend could use, by a sample. */
static int
count_ready(PgscaleSweeperShare *share)
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

/*
 * Keeps dirty buffers from bgwriter, which writes those with a usage count of
 * zero ahead of the server's hand, one by one.
 */
static void
sweeper_shield(PgscaleSweeperShare *share)
{
	const int64 hand_now = (int64) pgscale_buffers_hand();

	shielded = Max(shielded, hand_now - NBuffers);
	for (int n = 0; shielded < hand_now && !long_enough(n); n++)
	{
		int			buf = (int) ((shielded + NBuffers) % NBuffers);
		PgscaleBuffer look;

		/* What belongs to others is theirs to shield. */
		if (buf < share->first || buf >= share->first + share->buffers)
		{
			shielded += (buf < share->first ? share->first : NBuffers) - buf;
			continue;
		}
		pgscale_buffer_look(buf, &look);
		if (look.valid && look.dirty && look.usage < policy->dirty_floor)
			pgscale_buffer_set_usage(buf, &look, policy->dirty_floor);
		shielded++;
	}
}

/* The next page that a writer has cleaned, if any. */
static bool
take_written(PgscaleSweeperShare *share, PgscaleSweeperWriter *writer, PgscaleSweeperSwept *swept)
{
	bool		lost = false;
	bool		taken = pgscale_sweeper_take_written(writer, swept, &lost);

	share->counts.errors += lost;
	return taken;
}

/* Supplies what the writers have cleaned. */
static void
take_back(PgscaleSweeperShare *share)
{
	PgscaleSweeperSwept swept;

	for (int i = 0; i < PGSCALE_SWEEPER_MAX_WRITERS; i++)
	{
		PgscaleSweeperWriter *writer = &share->writers[i];

		for (int n = 0; n < PGSCALE_PAGES_WRITTEN && take_written(share, writer, &swept); n++)
		{
			pgscale_sweeper_set_forget(swept.buf);
			if (share->mode == PGSCALE_SWEEPER_AHEAD)
				share->counts.supplied_written++;
			else if (share->stack_used < share->stack_size &&
					 pgscale_buffer_supply(swept.buf, &swept.page, policy->neighbour_usage))
			{
				sweeper_push(share, swept.buf, &swept.page);
				share->counts.supplied_written++;
			}
		}
	}
}

/* Do the writers that have pages to write do nothing? */
static bool
writers_stuck(const PgscaleSweeperShare *share, int pending, int64 now)
{
	const PgscaleSweeperWriteCounts write = pgscale_sweeper_write_counts(share);
	const uint64 done = write.written + write.skipped_pinned + write.skipped_locked + write.skipped_wal + write.skipped_changed;

	if (pending == 0 || done != done_before)
		progress_ns = now;
	done_before = done;
	return now - progress_ns >= STUCK_NS;
}

static void
sweeper_gather(PgscaleSweeperShare *share, const PgscalePage *page)
{
	victims[nvictims++] = *page;
	share->counts.queued++;
}

/* Queues them, until there is no more room. */
static void
hand_to_writers(PgscaleSweeperShare *share, int nruns)
{
	for (int i = 0; i < nruns; i++)
		if (!pgscale_sweeper_put_run(share, &runs[i]))
			break;
}

/* Has so many pages of the standing set written. Returns how many. */
static int
sweeper_write(PgscaleSweeperShare *share, int pages)
{
	const int	limit = pgscale_sweeper_settings.combine_limit;
	const int	room = PGSCALE_RUNS_QUEUED - (int) pgscale_sweeper_queued_runs(share);
	const int	nruns = pgscale_sweeper_set_choose(pages, policy->dirty_floor, limit, CHOOSE_NS, runs, room);
	int			chosen = 0;

	for (int i = 0; i < nruns; i++)
		chosen += runs[i].pages;
	hand_to_writers(share, nruns);
	pgscale_sweeper_set_refresh(REFRESH_TIMES * chosen, policy->dirty_floor, limit, CHOOSE_NS);
	return chosen;
}

/* A victim was found.  Returns how many pages it looked up. */
static int
sweeper_found(PgscaleSweeperShare *share, PgscaleSweeperVisit *visit, const PgscaleBuffer *look, int *lacking)
{
	dirty_share += (look->dirty - dirty_share) / DIRTY_MEMORY;
	if (look->dirty)
	{
		if (share->stuck || !pgscale_sweeper_set_lacks(1))
			return 0;
		if (look->usage < policy->dirty_floor)
			pgscale_buffer_set_usage(visit->buf, look, policy->dirty_floor);
		share->counts.queued++;
		return pgscale_sweeper_set_add(visit->buf, &visit->page, pgscale_sweeper_settings.combine_limit);
	}
	if (*lacking > 0 && share->stack_used < share->stack_size &&
		pgscale_buffer_supply(visit->buf, &visit->page, visit->usage))
	{
		pgscale_sweeper_set_forget(visit->buf);
		sweeper_push(share, visit->buf, &visit->page);
		share->counts.supplied_clean++;
		(*lacking)--;
	}
	return 0;
}

/*
 * May the sweep pass another buffer?  Always, if buffers are lacking and what is
 * found can be used.  Otherwise no faster than the server's own hand; and to find
 * candidates only if part of the victims are dirty.
 */
static bool
sweep_goes_on(const PgscaleSweeperShare *share, int lacking)
{
	if (lacking > 0 && (share->stuck || pgscale_sweeper_set_lacks(1)))
		return true;
	return may_pass > 0 && (lacking > 0 || (!share->stuck && pgscale_sweeper_set_lacks(Min(2 * dirty_share, 1))));
}

/*
 * Visits buffers until so many clean ones are supplied, and the standing set is full.
 * Returns how many are still lacking.
 */
static int
sweeper_sweep(PgscaleSweeperShare *share, int lacking)
{
	PgscaleSweeperVisit candidates[PGSCALE_POLICY_MAX];
	int			n = 0;
	int			looked_up = 0;

	for (int i = 0; i < share->buffers && sweep_goes_on(share, lacking) && !long_enough(i + looked_up); i++)
	{
		PgscaleSweeperVisit *visit = &candidates[n];
		PgscaleBuffer look;

		visit->buf = share->first + hand;
		hand = (hand + 1) % share->buffers;
		share->counts.scanned++;
		may_pass--;

		if (!pgscale_buffer_read(visit->buf, &look, &visit->page) || look.busy || look.listed)
			continue;
		if (pgscale_sweeper_set_skip(visit->buf) && look.dirty && look.usage <= policy->dirty_floor)
			continue;
		visit->usage = look.usage;
		visit->pinned = look.pinned;
		visit->dirty = look.dirty;
		visit->aged = pgscale_sweeper_set_aged(visit->buf);
		if (!policy->visit(visit))
		{
			pgscale_sweeper_set_age(visit->buf, visit->aged);
			if (visit->usage != look.usage)
			{
				pgscale_buffer_set_usage(visit->buf, &look, visit->usage);
				share->counts.decremented++;
			}
			continue;
		}
		if (++n < policy->group)
			continue;

		visit = &candidates[policy->choose(candidates, n)];
		n = 0;
		pgscale_buffer_look(visit->buf, &look);
		looked_up += sweeper_found(share, visit, &look, &lacking);
	}
	return lacking;
}

/*
 * Makes so many buffers ready, or has them written: dirty ones in the part that
 * they have of the victims, for clean ones are worth no less as cache.
 */
static void
sweeper_refill(PgscaleSweeperShare *share, int lacking)
{
	if (!share->stuck)
		lacking -= sweeper_write(share, (int) ceil(lacking * dirty_share));
	give_up_ns = pgscale_timer_clock() + SCAN_NS;	/* choosing has its own
													 * limit */
	lacking = sweeper_sweep(share, lacking);
	if (!share->stuck && lacking > 0)
		(void) sweeper_write(share, lacking);
}

static bool
scan_freelist(PgscaleSweeperShare *share, int pending)
{
	const PgscaleSweeperScanCounts before = share->counts;
	int			coming;

	pop_taken(share);
	take_back(share);
	share->ready = count_ready(share);
	if (!pgscale_buffers_any_listed())
		share->counts.starved++;
	else if (share->ready >= share->low && !share->stuck)
		sweeper_shield(share);

	may_pass += PASS_TIMES * (double) (share->counts.consumed - before.consumed + share->counts.reused - before.reused);
	may_pass = Max(Min(may_pass, (double) PASS_LAPS * share->buffers), -(double) share->buffers);
	coming = share->ready + (share->stuck ? 0 : pending);
	if (coming < share->low)
		refilling = true;
	else if (coming >= share->high)
		refilling = false;
	if (refilling && share->stack_used < share->stack_size)
	{
		sweeper_refill(share, share->high - coming);
	}
	return share->counts.consumed != before.consumed || share->counts.reused != before.reused ||
		share->counts.starved != before.starved;
}

/* Counts what is clean ahead of the server's hand, and gathers what is dirty. */
static void
look_ahead(PgscaleSweeperShare *share, uint64 from, bool gathering)
{
	const int	workers = pgscale_sweeper_count();
	const int	most = Min(PGSCALE_RUNS_QUEUED, AHEAD_PAGES / pgscale_sweeper_settings.combine_limit);
	int			clean = 0;

	for (int i = 0; i < NBuffers && clean + nvictims < share->high && !long_enough(i); i++)
	{
		int			buf = (int) ((from + i) % NBuffers);
		PgscaleBuffer look;
		PgscalePage page;

		if (buf / AHEAD_PIECE % workers != share->number)
			continue;
		share->counts.scanned++;
		if (!pgscale_buffer_read(buf, &look, &page) || look.busy || look.pinned || look.usage > 0)
			continue;
		if (!look.dirty)
			clean++;
		else if (gathering && nvictims < most)
			sweeper_gather(share, &page);
	}
	share->ready = clean;
	if (clean == 0)
		share->counts.starved++;
}

static bool
scan_ahead(PgscaleSweeperShare *share, int pending)
{
	const uint64 from = pgscale_buffers_hand();
	const uint64 moved = from - ahead_hand;
	const bool	idle = pending == 0;
	const bool	demand = hand_seen != from;

	take_back(share);
	share->passed += from - hand_seen;
	hand_seen = from;
	if (idle == ahead_idle && moved < share->high / AHEAD_PART && ++ahead_ticks < AHEAD_TICKS)
		return demand;
	ahead_hand = from;
	ahead_idle = idle;
	ahead_ticks = 0;

	look_ahead(share, from, idle);

	/* None may stay dirty: the hand will not choose. */
	hand_to_writers(share, pgscale_sweeper_runs_find(victims, nvictims, pgscale_sweeper_settings.combine_limit, runs));
	nvictims = 0;
	return demand;
}

bool
pgscale_sweeper_scan(PgscaleSweeperShare *share)
{
	const int64 now = pgscale_timer_clock();
	const int	pending = pgscale_sweeper_pending(share);

	give_up_ns = now + SCAN_NS;
	share->stuck = writers_stuck(share, pending, now);
	if (share->mode == PGSCALE_SWEEPER_AHEAD)
		return scan_ahead(share, pending);
	return scan_freelist(share, pending);
}

void
pgscale_sweeper_rest(PgscaleSweeperShare *share)
{
	PgscaleSweeperSwept swept;

	give_up_ns = pgscale_timer_clock() + SCAN_NS;
	refilling = false;
	may_pass = (double) PASS_LAPS * share->buffers;
	shielded = PG_INT64_MIN;
	progress_ns = give_up_ns;
	share->stuck = false;
	hand_seen = pgscale_buffers_hand();
	for (int i = 0; i < PGSCALE_SWEEPER_MAX_WRITERS; i++)
		for (int n = 0; n < PGSCALE_PAGES_WRITTEN && take_written(share, &share->writers[i], &swept); n++)
			pgscale_sweeper_set_forget(swept.buf);
	pop_taken(share);
	share->ready = share->mode == PGSCALE_SWEEPER_AHEAD ? 0 : count_ready(share);
}
