/*-------------------------------------------------------------------------
 *
 * shadow.c
 *	  Shadow caches: how many misses would each candidate have now?
 *
 * A shadow cache has no pages, only their names.  It sees one page in so many, chosen by
 * the hash, and is smaller than the real cache by the same factor.  So its misses stand
 * for those of a real cache that its candidate rules.  All shadows see the same uses:
 * those that the sweeper sees.
 *
 * Each is a table of sets.  A page's hash determines its set, which has WAYS resident
 * pages and, except in the clock's shadow, as many ghosts.  So no lists or maps are
 * needed, and a use costs one pass over a set.  A candidate with a half-life evicts the
 * least worthy page of the set, as the sweep evicts one of the least worthy that its
 * hand passes.  The clock has a hand in each set.  The time of a shadow is its own
 * evictions: a candidate that misses less ages its pages less.
 *
 * Misses are counted in groups of sets.  A page belongs to one group, so groups know
 * nothing of each other: how much they differ shows how well a sample of the pages
 * stands for all.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sweeper/policy/shadow.h"

/* Resident pages of a set, and ghosts. */
#define WAYS			16
#define GHOST_WAYS		16
#define SLOTS			(WAYS + GHOST_WAYS)

/* Pages of a shadow, if there are as many buffers. */
#define LEAST_PAGES		256
#define MOST_PAGES		4096
#define USUAL_SAMPLE	16

/* Tag of a slot: the page, and whether it is resident. */
#define TAG_RESIDENT	0x8000
#define TAG_PAGE		0x7FFF

static const float half_lives[PGSCALE_SWEEPER_CANDIDATES] = {0, 0.5, 2, 8, 32};

/* One page in so many. */
static int
shadow_sample(int buffers)
{
	return Max(buffers / Max(Min(buffers / USUAL_SAMPLE, MOST_PAGES), LEAST_PAGES), 1);
}

/* As much smaller than the cache. */
static int
count_shadow_pages(int buffers)
{
	return Max(buffers / shadow_sample(buffers) / WAYS, 1) * WAYS;
}

Size
pgscale_sweeper_shadows_size(int buffers)
{
	return offsetof(PgscaleSweeperShadows, slots) +
		(Size) PGSCALE_SWEEPER_CANDIDATES * (count_shadow_pages(buffers) / WAYS) * SLOTS * sizeof(PgscaleSweeperScore);
}

void
pgscale_sweeper_shadows_init(PgscaleSweeperShadows *shadows, int buffers)
{
	const int	pages = count_shadow_pages(buffers);

	shadows->sets = pages / WAYS;
	shadows->sample = shadow_sample(buffers);
	for (int i = 0; i < PGSCALE_SWEEPER_CANDIDATES; i++)
	{
		shadows->of[i].half_life = half_lives[i];
		if (half_lives[i] > 0)
			shadows->of[i].decay = 1 / (half_lives[i] * pages);
	}
}

/* The page's slot, or NULL. */
static PgscaleSweeperScore *
find_slot(PgscaleSweeperScore *set, uint16 tag)
{
	for (int i = 0; i < SLOTS; i++)
		if ((set[i].tag & TAG_PAGE) == tag)
			return &set[i];
	return NULL;
}

/* The slot of the least worthy page, among the residents or among the others. */
static PgscaleSweeperScore *
least_worthy(const PgscaleSweeperShadow *shadow, PgscaleSweeperScore *set, bool resident)
{
	PgscaleSweeperScore *least = NULL;
	float		worth = INFINITY;

	for (int i = 0; i < SLOTS; i++)
	{
		float		w;

		if (((set[i].tag & TAG_RESIDENT) != 0) != resident)
			continue;
		w = set[i].tag == 0 ? -INFINITY : pgscale_sweeper_score_worth(&set[i], shadow->now, shadow->decay);
		if (!least || w < worth)
		{
			worth = w;
			least = &set[i];
		}
	}
	return least;
}

/* Makes room for a resident page, if there is none. */
static void
evict_worst(PgscaleSweeperShadow *shadow, PgscaleSweeperScore *set)
{
	int			residents = 0;

	for (int i = 0; i < SLOTS; i++)
		residents += (set[i].tag & TAG_RESIDENT) != 0;
	if (residents < WAYS)
		return;
	least_worthy(shadow, set, true)->tag &= ~TAG_RESIDENT;
	shadow->now++;
}

/* The page comes to a cache that has a half-life. Returns whether it was a miss. */
static bool
use_by_history(PgscaleSweeperShadow *shadow, PgscaleSweeperScore *set, uint16 tag)
{
	PgscaleSweeperScore *slot = find_slot(set, tag);

	if (slot && (slot->tag & TAG_RESIDENT))
	{
		pgscale_sweeper_score_use(slot, shadow->now, shadow->decay);
		return false;
	}
	evict_worst(shadow, set);
	if (slot)
		pgscale_sweeper_score_use(slot, shadow->now, shadow->decay);
	else
	{
		slot = least_worthy(shadow, set, false);
		pgscale_sweeper_score_first(slot, shadow->now);
	}
	slot->tag = tag | TAG_RESIDENT;
	return true;
}

/*
 * The page comes to a cache that the clock rules.  Its residents are the first slots of
 * the set, count_log is the count, and the first slot's time is the hand.
 */
static bool
use_by_clock(PgscaleSweeperScore *set, uint16 tag, int uses)
{
	PgscaleSweeperScore *slot = find_slot(set, tag);
	uint32	   *hand = &set->at;

	if (slot)
	{
		slot->count_log = Min(slot->count_log + uses, PGSCALE_MAX_USAGE);
		return false;
	}
	while (set[*hand].count_log > 0)
	{
		set[*hand].count_log--;
		*hand = (*hand + 1) % WAYS;
	}
	slot = &set[*hand];
	*hand = (*hand + 1) % WAYS;
	slot->count_log = Max(Min(uses, PGSCALE_MAX_USAGE), 1);
	slot->tag = tag;
	return true;
}

bool
pgscale_sweeper_shadows_use(PgscaleSweeperShadows *shadows, uint32 page, int uses)
{
	const uint32 rest = page * 0x9E3779B1;	/* independent of what chose the
											 * page */
	uint16		tag;
	uint32		number;
	PgscaleSweeperScore *set;
	uint32		missed = 0;

	if (page % shadows->sample != 0)
		return false;
	tag = Max(pgscale_sweeper_hash_tag(rest) & TAG_PAGE, 1);
	number = pgscale_sweeper_hash_part(rest, shadows->sets);
	set = shadows->slots + (Size) number * SLOTS;
	shadows->references++;
	for (int i = 0; i < PGSCALE_SWEEPER_CANDIDATES; i++)
	{
		PgscaleSweeperShadow *shadow = &shadows->of[i];

		if (shadow->half_life > 0 ? use_by_history(shadow, set, tag) : use_by_clock(set, tag, uses))
		{
			shadow->misses[number % PGSCALE_SWEEPER_GROUPS]++;
			missed |= 1 << i;
		}
		set += (Size) shadows->sets * SLOTS;
	}
	shadows->missed_by[missed]++;
	return true;
}
