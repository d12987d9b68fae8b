/*-------------------------------------------------------------------------
 *
 * sweeper_scan.c
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
 * buffers are kept at a usage count that bgwriter leaves alone.
 *
 * Supply ahead of the hand.  Nothing is put anywhere: the dirty ones among the
 * buffers that the server's hand will find next with a usage count of zero are
 * cleaned before it comes.  For a server without a freelist.
 *
 * More dirty victims than needed are gathered if dirty pages have dirty
 * neighbours here, so that there is a choice; see sweeper_combine.c.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "miscadmin.h"
#include "utils/memutils.h"

#include "buffers.h"
#include "sweeper_combine.h"
#include "sweeper_policy.h"
#include "sweeper_scan.h"
#include "sweeper_settings.h"

/* Buffers to look at in one tick. */
#define SCAN_MAX		65536

/* Dirty victims to gather in one tick. */
#define MAX_VICTIMS		16384

/*
 * How many times the victims needed to gather, where runs are found.  The more,
 * the longer are the best runs, and the more pages leave that would have been
 * used again: so more than the least only after there was too little.
 */
#define CHOICE_LEAST	2.0
#define CHOICE_MOST		12.0
#define CHOICE_GROWTH	1.25	/* after a batch in which the stock ran out */
#define CHOICE_DECAY	0.998	/* after one in which it did not */

/* From so many pages a run on, it can. */
#define CHOICE_MIN_RUN	1.5

/* How many ready buffers to look at to tell how many were used meanwhile. */
#define STALE_SAMPLE	64

/* In mode "ahead", buffers are dealt to the workers in pieces of this size. */
#define AHEAD_PIECE		256

static const PgscalePolicy *const policy = &pgscale_policy_clock;

static int	hand = 0;
static bool refilling = false;
static int	shield_left = INT_MAX;	/* buffers to shield yet */
static uint32 sample_seed = 1;
static double choice = 1;
static uint64 starved_before = 0;	/* at the last batch */

static PgscalePage *victims = NULL;
static PgscaleRun *runs = NULL;
static int	nvictims = 0;

void
pgscale_sweeper_scan_init(void)
{
	victims = MemoryContextAlloc(TopMemoryContext, MAX_VICTIMS * sizeof(PgscalePage));
	runs = MemoryContextAlloc(TopMemoryContext, MAX_VICTIMS * sizeof(PgscaleRun));
}

static void
push(PgscaleSweeperShare *share, int buf, const PgscalePage *page)
{
	PgscaleSupplied *top = &share->stack[share->stack_used];

	top->buf = buf;
	top->page_hash = pgscale_page_hash(page);
	share->stack_used++;
}

/* Takes off the stack what backends took off the freelist. */
static void
pop_taken(PgscaleSweeperShare *share)
{
	while (share->stack_used > 0)
	{
		PgscaleSupplied *top = &share->stack[share->stack_used - 1];
		PgscalePage page;

		if (pgscale_buffer_listed(top->buf))
			break;

		pgscale_buffer_page(top->buf, &page);
		if (pgscale_page_hash(&page) == top->page_hash)
			share->counts.reused++;
		else
		{
			share->counts.consumed++;
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
		{
			sample_seed = sample_seed * 1664525 + 1013904223;
			at = (int) (((uint64) sample_seed * share->stack_used) >> 32);
		}
		pgscale_buffer_look(share->stack[at].buf, &look);
		good += look.listed && look.usage == 0 && !look.pinned;
	}
	return n == 0 ? 0 : (int) ((int64) share->stack_used * good / n);
}

/*
 * Keeps dirty buffers from bgwriter, which writes those with a usage count of
 * zero ahead of the server's hand, one by one.  Once round all buffers is
 * enough until backends have moved that hand again.
 */
static void
shield(PgscaleSweeperShare *share)
{
	shield_left = Min(shield_left, share->buffers);
	for (int i = Min(shield_left, SCAN_MAX); i > 0; i--)
	{
		int			buf = share->first + --shield_left;
		PgscaleBuffer look;

		pgscale_buffer_look(buf, &look);
		if (look.valid && look.dirty && look.usage < policy->dirty_floor)
			pgscale_buffer_set_usage(buf, &look, policy->dirty_floor);
	}
}

/* Supplies what the writers have cleaned. */
static void
take_back(PgscaleSweeperShare *share)
{
	PgscaleSwept swept;

	for (int i = 0; i < PGSCALE_SWEEPER_MAX_WRITERS; i++)
		while (pgscale_sweeper_take_written(&share->writers[i], &swept))
		{
			if (share->mode == PGSCALE_SWEEPER_AHEAD)
				share->counts.supplied_written++;
			else if (share->stack_used < share->stack_size &&
					 pgscale_buffer_supply(swept.buf, &swept.page, policy->neighbour_usage))
			{
				push(share, swept.buf, &swept.page);
				share->counts.supplied_written++;
			}
		}
}

static void
gather(PgscaleSweeperShare *share, const PgscalePage *page)
{
	victims[nvictims++] = *page;
	share->counts.queued++;
}

/* Has the best runs around the gathered victims written, so many pages. */
static void
hand_to_writers(PgscaleSweeperShare *share, int pages)
{
	int			nruns;
	int			found = 0;

	nruns = pgscale_runs_find(victims, nvictims, pgscale_sweeper_settings.combine_limit, runs);
	for (int i = 0; i < nruns; i++)
		found += runs[i].pages;
	if (nruns > 0 && found < nruns * CHOICE_MIN_RUN)
		choice = 1;
	else if (nruns > 0)
	{
		choice *= share->counts.starved > starved_before ? CHOICE_GROWTH : CHOICE_DECAY;
		choice = Min(Max(choice, CHOICE_LEAST), CHOICE_MOST);
	}
	starved_before = share->counts.starved;

	nruns = pgscale_runs_choose(runs, nruns, pages);
	for (int i = 0; i < nruns; i++)
		if (!pgscale_sweeper_put_run(share, &runs[i]))
			break;
	nvictims = 0;
}

/*
 * Visits buffers until so many clean ones are supplied, or enough dirty ones
 * gathered.
 */
static void
sweep(PgscaleSweeperShare *share, int lacking)
{
	int			enough = (int) Min(lacking * choice, MAX_VICTIMS);
	PgscaleVisit candidates[PGSCALE_POLICY_MAX];
	int			n = 0;

	for (int i = Min(share->buffers, SCAN_MAX); i > 0 && lacking > 0 && nvictims < enough; i--)
	{
		PgscaleVisit *visit = &candidates[n];
		PgscaleBuffer look;

		visit->buf = share->first + hand;
		hand = (hand + 1) % share->buffers;
		share->counts.scanned++;

		pgscale_buffer_look(visit->buf, &look);
		if (!look.valid || look.busy || look.listed)
			continue;
		pgscale_buffer_page(visit->buf, &visit->page);
		visit->usage = look.usage;
		visit->pinned = look.pinned;
		visit->dirty = look.dirty;
		if (!policy->visit(visit))
		{
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
		if (look.dirty)
			gather(share, &visit->page);
		else if (share->stack_used < share->stack_size &&
				 pgscale_buffer_supply(visit->buf, &visit->page, visit->usage))
		{
			push(share, visit->buf, &visit->page);
			share->counts.supplied_clean++;
			lacking--;
		}
	}
}

static void
scan_freelist(PgscaleSweeperShare *share)
{
	int			coming;

	pop_taken(share);
	take_back(share);
	share->ready = count_ready(share);
	if (!pgscale_buffers_any_listed())
	{
		share->counts.starved++;
		shield_left = INT_MAX;
	}
	else if (share->ready >= share->low)
		shield(share);

	coming = share->ready + pgscale_sweeper_pending(share);
	if (coming < share->low)
		refilling = true;
	else if (coming >= share->high)
		refilling = false;
	if (!refilling || share->stack_used >= share->stack_size)
		return;

	sweep(share, share->high - coming);
	hand_to_writers(share, share->high - coming);
}

static void
scan_ahead(PgscaleSweeperShare *share, int workers)
{
	uint64		from = pgscale_buffers_hand();
	int			clean = 0;
	bool		idle = pgscale_sweeper_pending(share) == 0;

	take_back(share);
	for (int i = 0; i < Min(NBuffers, SCAN_MAX) && clean + nvictims < share->high; i++)
	{
		int			buf = (from + i) % NBuffers;
		PgscaleBuffer look;
		PgscalePage page;

		if (buf / AHEAD_PIECE % workers != share->number)
			continue;
		share->counts.scanned++;
		pgscale_buffer_look(buf, &look);
		if (!look.valid || look.busy || look.pinned || look.usage > 0)
			continue;
		if (!look.dirty)
			clean++;
		else if (idle && nvictims < MAX_VICTIMS)
		{
			pgscale_buffer_page(buf, &page);
			gather(share, &page);
		}
	}
	share->ready = clean;
	if (clean == 0)
		share->counts.starved++;

	/* None may stay dirty: the hand will not choose. */
	hand_to_writers(share, INT_MAX);
}

void
pgscale_sweeper_scan(PgscaleSweeperShare *share)
{
	if (share->mode == PGSCALE_SWEEPER_AHEAD)
		scan_ahead(share, pgscale_sweeper_count());
	else
		scan_freelist(share);
}

void
pgscale_sweeper_rest(PgscaleSweeperShare *share)
{
	PgscaleSwept swept;

	refilling = false;
	shield_left = INT_MAX;
	for (int i = 0; i < PGSCALE_SWEEPER_MAX_WRITERS; i++)
		while (pgscale_sweeper_take_written(&share->writers[i], &swept))
			;
	pop_taken(share);
	share->ready = share->mode == PGSCALE_SWEEPER_AHEAD ? 0 : count_ready(share);
}
