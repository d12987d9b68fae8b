/*-------------------------------------------------------------------------
 *
 * adaptive.c
 *	  The clock or the history, with the half-life that would miss least now.
 *
 * No half-life is good for all loads.  A long one finds the pages that are used a
 * little more often than others; where the newest pages are the hot ones, it keeps the
 * old ones and misses several times as often as the clock.  So shadow caches (shadow.c)
 * count the misses that each candidate would have: the clock, and the history
 * (page_history.c) with half-lives of 0.5, 2, 8 and 32 evictions a buffer.
 *
 * Once in N/32 evictions the candidates are compared by two sums of their misses.  The
 * long one forgets slowly, and a gain of 2 % is enough to change the choice: candidates
 * that are equal do not take turns.  The short one forgets fast, and must show a gain of
 * 8 %: that is a change of the load, to which the choice follows within N/8 evictions.
 *
 * All pages keep their scores whatever the choice is, and a score does not depend on the
 * half-life, so a change needs no pass over the pages.  The clock's counts are kept only
 * while it is in force.  A count has the number of the clock's term; a page without a
 * count of this term has its rank by the history for one.
 *
 * The memory is that of the history, and about 5 bytes for each buffer, less for more
 * than 65,536 buffers.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sweeper/policies/page_history.h"
#include "sweeper/policies/policy.h"
#include "sweeper/policies/shadow.h"

#define CLOCK			0
#define FIRST_CHOICE	3

/* Compares once in N divided by that many evictions. */
#define PERIOD_PART		32

/* The sums of misses: the part that is kept from one comparison to the next, and the
 * part of the present candidate's misses that a better one has at most. */
static const struct
{
	float		kept;
	float		better;
}			sums[] =

{
	{0.95f, 0.98f},
	{0.7f, 0.92f}
};

#define SUMS			((int) lengthof(sums))

/* The clock's part of a page's tag, beside the history's: a count, and its term. */
#define COUNT_SHIFT		3
#define COUNT_MASK		0x0038
#define TERM_SHIFT		6
#define TERM_MASK		0xFFC0

typedef struct Adaptive
{
	int			choice;
	int			buffers;
	uint16		term;			/* how often the clock was chosen; wraps
								 * around */
	uint64		switches;
	uint64		evictions;
	uint64		compare_at;		/* evictions */
	uint64		chosen_misses;
	uint64		seen[PGSCALE_SWEEPER_CANDIDATES];	/* misses, when last
													 * compared */
	float		misses[SUMS][PGSCALE_SWEEPER_CANDIDATES];
	/* the history is behind this struct, then the shadows are */
} Adaptive;

static PgscaleSweeperHistory *
history_of(const void *memory)
{
	return (PgscaleSweeperHistory *) ((char *) memory + MAXALIGN(sizeof(Adaptive)));
}

static bool
chose_clock(const void *memory)
{
	return ((const Adaptive *) memory)->choice == CLOCK;
}

static Size
shadows_offset(int buffers)
{
	return MAXALIGN(sizeof(Adaptive)) + MAXALIGN(pgscale_sweeper_history_size(buffers));
}

static PgscaleSweeperShadows *
shadows_at(const void *memory, int buffers)
{
	return (PgscaleSweeperShadows *) ((char *) memory + shadows_offset(buffers));
}

static PgscaleSweeperShadows *
shadows_of(const void *memory)
{
	return shadows_at(memory, ((const Adaptive *) memory)->buffers);
}

static Size
adaptive_size(int buffers)
{
	return shadows_offset(buffers) + pgscale_sweeper_shadows_size(buffers);
}

static void
choose_candidate(void *memory, int choice)
{
	Adaptive   *a = memory;

	a->choice = choice;
	if (choice == CLOCK)
		a->term++;
	else
		pgscale_sweeper_history_half_life(history_of(memory), shadows_of(memory)->of[choice].half_life);
}

static void
adaptive_init(void *memory, int buffers)
{
	Adaptive   *a = memory;

	a->buffers = buffers;
	pgscale_sweeper_shadows_init(shadows_of(memory), buffers);
	pgscale_sweeper_history_init(history_of(memory), buffers, shadows_of(memory)->of[FIRST_CHOICE].half_life);
	choose_candidate(memory, FIRST_CHOICE);
}

static uint8
count_of_page(const void *memory, int buf)
{
	const Adaptive *a = memory;
	const uint16 tag = history_of(memory)->pages[buf].tag;

	if ((tag & TERM_MASK) != (uint16) (a->term << TERM_SHIFT))
		return pgscale_sweeper_history_rank(history_of(memory), buf);
	return (tag & COUNT_MASK) >> COUNT_SHIFT;
}

static void
set_page_count(void *memory, int buf, uint8 count)
{
	const Adaptive *a = memory;
	uint16	   *tag = &history_of(memory)->pages[buf].tag;

	Assert(count <= PGSCALE_MAX_USAGE);
	*tag = (*tag & ~(TERM_MASK | COUNT_MASK)) | (uint16) (a->term << TERM_SHIFT) | count << COUNT_SHIFT;
}

/* Adds the misses since the last comparison to the sums. */
static void
add_misses(Adaptive *a, const PgscaleSweeperShadows *shadows)
{
	for (int i = 0; i < PGSCALE_SWEEPER_CANDIDATES; i++)
	{
		const uint64 more = shadows->of[i].misses - a->seen[i];

		for (int s = 0; s < SUMS; s++)
			a->misses[s][i] = a->misses[s][i] * sums[s].kept + more;
		if (i == a->choice)
			a->chosen_misses += more;
		a->seen[i] = shadows->of[i].misses;
	}
}

static int
fewest_misses(const float *misses)
{
	int			best = 0;

	for (int i = 1; i < PGSCALE_SWEEPER_CANDIDATES; i++)
		if (misses[i] < misses[best])
			best = i;
	return best;
}

static void
compare_candidates(void *memory)
{
	Adaptive   *a = memory;

	a->compare_at = a->evictions + Max(a->buffers / PERIOD_PART, 1);
	add_misses(a, shadows_of(memory));
	for (int s = 0; s < SUMS; s++)
	{
		const int	best = fewest_misses(a->misses[s]);

		if (a->misses[s][best] < a->misses[s][a->choice] * sums[s].better)
		{
			choose_candidate(memory, best);
			a->switches++;
			return;
		}
	}
}

static void
adaptive_arrived(void *memory, int buf, uint32 page, int uses)
{
	pgscale_sweeper_history_arrived(history_of(memory), buf, page);
	if (chose_clock(memory))
		set_page_count(memory, buf, Max(Min(uses, PGSCALE_MAX_USAGE), 1));
	pgscale_sweeper_shadows_use(shadows_of(memory), page, uses);
}

static void
adaptive_used(void *memory, int buf, uint32 page, int uses)
{
	if (chose_clock(memory))
		set_page_count(memory, buf, Min(count_of_page(memory, buf) + uses, PGSCALE_MAX_USAGE));
	pgscale_sweeper_history_used(history_of(memory), buf);
	pgscale_sweeper_shadows_use(shadows_of(memory), page, uses);
}

static void
adaptive_evicted(void *memory, int buf, uint32 page)
{
	Adaptive   *a = memory;

	pgscale_sweeper_history_evicted(history_of(memory), buf, page);
	a->evictions++;
	if (a->evictions >= a->compare_at)
		compare_candidates(memory);
}

static uint8
adaptive_rank(const void *memory, int buf)
{
	return chose_clock(memory) ? count_of_page(memory, buf) : pgscale_sweeper_history_rank(history_of(memory), buf);
}

/* Under the clock, too, the history must know what was used between two visits. */
static uint8
adaptive_visit(void *memory, int buf)
{
	const uint8 rank = adaptive_rank(memory, buf);

	(void) pgscale_sweeper_history_visit(history_of(memory), buf);
	if (chose_clock(memory))
		set_page_count(memory, buf, rank > 0 ? rank - 1 : 0);
	return rank;
}

static uint8
adaptive_header(const void *memory, int buf)
{
	return pgscale_sweeper_header_of_rank(adaptive_rank(memory, buf));
}

/* Another policy may begin in the memory meanwhile, so nothing that is in it says where to look. */
static void
adaptive_report(const void *memory, int buffers, PgscaleSweeperPolicyReport *report)
{
	const Adaptive *a = memory;
	const PgscaleSweeperShadows *shadows = shadows_at(memory, buffers);

	report->choice = a->choice;
	report->evictions = a->evictions;
	report->switches = a->switches;
	report->sample = shadows->sample;
	report->references = shadows->references;
	report->chosen_misses = a->chosen_misses;
	for (int i = 0; i < PGSCALE_SWEEPER_CANDIDATES; i++)
	{
		report->half_lives[i] = shadows->of[i].half_life;
		/* those that chosen_misses knows, too */
		report->misses[i] = a->seen[i];
	}
}

static float
adaptive_score(const void *memory, int buf)
{
	return pgscale_sweeper_history_score(history_of(memory), buf);
}

static int
adaptive_departed(const void *memory, uint32 *at, PgscaleSweeperRemembered *pages, int most)
{
	return pgscale_sweeper_history_departed(history_of(memory), at, pages, most);
}

static void
adaptive_remember(void *memory, const PgscaleSweeperRemembered *page)
{
	pgscale_sweeper_history_remember(history_of(memory), page);
}

static void
adaptive_resume(void *memory, int choice)
{
	Assert(choice >= 0 && choice < PGSCALE_SWEEPER_CANDIDATES);
	choose_candidate(memory, choice);
}

const PgscaleSweeperPolicy pgscale_sweeper_policy_adaptive = {
	.name = "adaptive",
	.size = adaptive_size,
	.init = adaptive_init,
	.neighbour_usage = 2,
	.arrived = adaptive_arrived,
	.used = adaptive_used,
	.evicted = adaptive_evicted,
	.rank = adaptive_rank,
	.visit = adaptive_visit,
	.header = adaptive_header,
	.report = adaptive_report,
	.score = adaptive_score,
	.departed = adaptive_departed,
	.remember = adaptive_remember,
	.resume = adaptive_resume
};
