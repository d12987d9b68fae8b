/*-------------------------------------------------------------------------
 *
 * adaptive.c
 *	  The clock or the history, with the half-life that would miss least now; and the
 *	  policies that are always one of them.
 *
 * No half-life is good for all loads.  A long one finds the pages that are used a
 * little more often than others; where the newest pages are the hot ones, it keeps the
 * old ones and misses several times as often as the clock.  So shadow caches (shadow.c)
 * count the misses that each candidate would have: the clock, and the history
 * (page_history.c) with half-lives of 0.5, 2, 8 and 32 evictions a buffer.
 *
 * Once in N/32 evictions, N being the buffers, the candidates are compared by two sums
 * of their misses.  The long one forgets slowly, and a gain of 2 % is enough to change
 * the choice: candidates that are equal do not take turns.  The short one forgets fast,
 * and must show a gain of 8 %: that is a change of the load, to which the choice follows
 * within N/8 evictions.
 *
 * While sessions wait for writes, and hardly any for reads, the clock is in force: what
 * the history keeps longer gets dirty again, so that a write serves fewer transactions.
 *
 * Each change costs some misses, and the shadows of a small cache have few of them: so a
 * gain must also be larger than chance makes it.  All candidates see the same
 * references.  A reference that two of them miss says nothing about which is better.  So
 * only those count that one of the two misses and the other does not.
 *
 * When a sweeper starts again, or another policy takes over, pages may have come and
 * gone unseen.  What has changed then is seen in the hand's next round, each page once.
 * That favours a long half-life, because the hot pages are in the cache.  So the choice
 * does not change for one turnover.
 *
 * All pages keep their scores whatever the choice is.  A score is stored as a count and
 * the time of the last use, and another half-life goes on from these.  So a change needs
 * no pass over the pages.  The clock's counts are kept only while it is in force.  A
 * count has the number of the clock's term; a page without a count of this term has its
 * rank by the history for one.
 *
 * The policies "clock" and "history" have the same memory and learn the same; only their
 * choice is fixed: the clock, and a half-life of 8.  So the shadow caches show what another
 * policy would miss, whichever is in force, and one that takes over knows all pages.  Under
 * the clock that costs what the history does for each visit; but the clock visits fewer
 * buffers for each page that leaves.
 *
 * While writes are short, neighbours of a victim leave earlier than with the hand only:
 * a neighbour with a count of 2 or less would leave within two more passes, and would
 * mostly be dirty again by then.  In a simulated cache, with uniform keys and 1.7
 * times the data that fits, the clock so has 4.4 transactions a disk write instead of
 * 3.6, with the same misses.
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

#define FIRST_CHOICE	3

/* In place of a fixed choice. */
#define NOT_FIXED		(-1)

/* Compares once in N divided by that many evictions. */
#define PERIOD_PART		32

/*
 * Of each sum, the part that is kept from one comparison to the next; and the least gain, as a
 * part of the misses of the candidate that is preferred, and in standard errors.  These are
 * many, because comparisons are, and because references to one page are not independent:
 * by bench/replacement, candidates that are equal change places seldom.
 */
static const struct
{
	float		kept;
	float		gain;
	float		errors;
}			limits[] =

{
	{0.95f, 0.02f, 3.6f},
	{0.7f, 0.08f, 2.7f}
};

#define SUMS			((int) lengthof(limits))

#define NO_OTHER		(-1)

/* The clock's part of a page's tag, beside the history's: a count, and its term. */
#define COUNT_SHIFT		PGSCALE_SWEEPER_TAG_BITS
#define COUNT_MASK		0x00E0
#define TERM_SHIFT		(COUNT_SHIFT + 3)
#define TERM_MASK		0xFF00

typedef struct Adaptive
{
	int			choice;			/* in force */
	int			fixed;			/* that it always is, or NOT_FIXED */
	int			preferred;		/* what it is if it is not fixed, */
	bool		writes_first;	/* and if this is not so: see policy.h */
	int			buffers;
	uint16		term;			/* how often the clock was chosen; wraps
								 * around */
	uint64		switches;
	uint64		arrivals;
	uint64		evictions;
	uint64		compare_at;		/* evictions */
	uint64		settled_at;		/* evictions; before that the choice does not
								 * change */
	uint64		seen[PGSCALE_SWEEPER_CANDIDATES][PGSCALE_SWEEPER_GROUPS];	/* misses, when last
																			 * compared */
	uint64		chosen[PGSCALE_SWEEPER_GROUPS]; /* those of the choice in
												 * force */
	uint64		missed_by[PGSCALE_SWEEPER_OUTCOMES];	/* when last compared */
	float		sums[SUMS][PGSCALE_SWEEPER_OUTCOMES];	/* of references, by the
														 * candidates that
														 * missed */
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
	return ((const Adaptive *) memory)->choice == PGSCALE_SWEEPER_CANDIDATE_CLOCK;
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

/*
 * The choice does not change for the next N evictions.  If that holds already, it does not
 * hold for longer: or policies that take turns would never choose.
 */
static void
settle_choice(Adaptive *a)
{
	if (a->evictions >= a->settled_at)
		a->settled_at = a->evictions + a->buffers;
}

/*
 * Puts in force what is fixed, or the clock for the sake of writes, or what is preferred.
 * Was something else?  Under the clock the history goes on with the half-life that it had.
 */
static bool
choose_candidate(void *memory)
{
	Adaptive   *a = memory;
	const int	before = a->choice;

	if (a->fixed != NOT_FIXED)
		a->choice = a->fixed;
	else
		a->choice = a->writes_first ? PGSCALE_SWEEPER_CANDIDATE_CLOCK : a->preferred;
	if (a->choice != PGSCALE_SWEEPER_CANDIDATE_CLOCK)
		pgscale_sweeper_history_half_life(history_of(memory), shadows_of(memory)->of[a->choice].half_life);
	else if (before != PGSCALE_SWEEPER_CANDIDATE_CLOCK)
		a->term++;
	return a->choice != before;
}

static void
fix_choice(void *memory, int fixed)
{
	Adaptive   *a = memory;

	a->fixed = fixed;
	a->switches += choose_candidate(memory);
	settle_choice(a);
}

static void
candidates_init(void *memory, int buffers, int fixed)
{
	Adaptive   *a = memory;

	a->buffers = buffers;
	a->fixed = fixed;
	a->choice = a->preferred = FIRST_CHOICE;
	pgscale_sweeper_shadows_init(shadows_of(memory), buffers);
	pgscale_sweeper_history_init(history_of(memory), buffers, shadows_of(memory)->of[FIRST_CHOICE].half_life);
	(void) choose_candidate(memory);
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

/* Adds the misses since the last comparison. */
static void
add_misses(Adaptive *a, const PgscaleSweeperShadows *shadows)
{
	for (int i = 0; i < PGSCALE_SWEEPER_OUTCOMES; i++)
	{
		const uint64 more = shadows->missed_by[i] - a->missed_by[i];

		a->missed_by[i] += more;
		for (int s = 0; s < SUMS; s++)
			a->sums[s][i] = a->sums[s][i] * limits[s].kept + more;
	}
	for (int i = 0; i < PGSCALE_SWEEPER_CANDIDATES; i++)
	{
		for (int g = 0; g < PGSCALE_SWEEPER_GROUPS; g++)
		{
			const uint64 of_group = shadows->of[i].misses[g] - a->seen[i][g];

			if (i == a->choice)
				a->chosen[g] += of_group;
			a->seen[i][g] += of_group;
		}
	}
}

/* Of the references of a sum, those that one candidate missed and the other one, if any, did not. */
static float
sum_missed(const float *sum, int candidate, int other)
{
	float		misses = 0;

	for (int i = 0; i < PGSCALE_SWEEPER_OUTCOMES; i++)
		if ((i >> candidate & 1) != 0 && (other == NO_OTHER || (i >> other & 1) == 0))
			misses += sum[i];
	return misses;
}

/*
 * Does a candidate miss less than the one that is preferred, by more than chance?  A count
 * of chance events has itself for a variance.  A sum counts what is older only in part, so
 * its variance is the sum at first, and less later.
 */
static bool
is_better(const Adaptive *a, int s, int candidate)
{
	const float *sum = a->sums[s];
	const float more = sum_missed(sum, a->preferred, candidate);
	const float less = sum_missed(sum, candidate, a->preferred);
	const float least = sum_missed(sum, a->preferred, NO_OTHER) * limits[s].gain;

	return more - less > Max(least, limits[s].errors * sqrt(more + less));
}

/* The best of the candidates that are better than the preferred one, or that one. */
static int
best_candidate(const Adaptive *a, int s)
{
	int			best = a->preferred;

	for (int i = 0; i < PGSCALE_SWEEPER_CANDIDATES; i++)
		if (is_better(a, s, i) && sum_missed(a->sums[s], i, best) < sum_missed(a->sums[s], best, i))
			best = i;
	return best;
}

static void
compare_candidates(void *memory)
{
	Adaptive   *a = memory;

	a->compare_at = a->evictions + Max(a->buffers / PERIOD_PART, 1);
	add_misses(a, shadows_of(memory));
	if (a->evictions < a->settled_at)
	{
		memset(a->sums, 0, sizeof(a->sums));
		return;
	}
	for (int s = 0; s < SUMS; s++)
	{
		const int	best = best_candidate(a, s);

		if (best != a->preferred)
		{
			a->preferred = best;
			a->switches += choose_candidate(memory);
			return;
		}
	}
}

static void
adaptive_pass(void *memory, float pages)
{
	pgscale_sweeper_history_pass(history_of(memory), pages);
}

static void
adaptive_writes_first(void *memory, bool first)
{
	Adaptive   *a = memory;

	if (a->writes_first == first)
		return;
	a->writes_first = first;
	a->switches += choose_candidate(memory);
}

static void
adaptive_arrived(void *memory, int buf, uint32 page, int uses)
{
	((Adaptive *) memory)->arrivals++;
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
adaptive_neighbour_rank(const void *memory, bool writes_short)
{
	return chose_clock(memory) ? pgscale_sweeper_neighbour_usage(writes_short) : pgscale_sweeper_history_neighbour_rank(writes_short);
}

static uint8
adaptive_rank(const void *memory, int buf)
{
	return chose_clock(memory) ? count_of_page(memory, buf) : pgscale_sweeper_history_rank(history_of(memory), buf);
}

/* Under the clock, too, the history must know what was used between two visits. */
static uint8
adaptive_visit(void *memory, int buf, bool kept)
{
	uint8		count;

	if (!chose_clock(memory))
		return pgscale_sweeper_history_visit(history_of(memory), buf, kept);
	count = count_of_page(memory, buf);
	(void) pgscale_sweeper_history_visit(history_of(memory), buf, kept);
	set_page_count(memory, buf, count > 0 ? count - 1 : 0);
	return count;
}

static uint8
adaptive_header(const void *memory, int buf)
{
	return pgscale_sweeper_header_of_rank(adaptive_rank(memory, buf));
}

static void
adaptive_report(const void *memory, int buffers, PgscaleSweeperPolicyReport *report)
{
	const Adaptive *a = memory;
	const PgscaleSweeperShadows *shadows = shadows_at(memory, buffers);

	memset(report, 0, sizeof(PgscaleSweeperPolicyReport));
	report->choice = a->choice;
	report->preferred = a->preferred;
	report->arrivals = a->arrivals;
	report->evictions = a->evictions;
	report->switches = a->switches;
	report->sample = shadows->sample;
	report->references = shadows->references;
	report->groups = pgscale_sweeper_shadows_groups(shadows);
	for (int i = 0; i < PGSCALE_SWEEPER_CANDIDATES; i++)
	{
		report->half_lives[i] = shadows->of[i].half_life;
		/* those that chosen_misses knows, too */
		for (int g = 0; g < PGSCALE_SWEEPER_GROUPS; g++)
			report->misses[i] += a->seen[i][g];
	}
	for (int g = 0; g < PGSCALE_SWEEPER_GROUPS; g++)
	{
		report->clock_group[g] = a->seen[PGSCALE_SWEEPER_CANDIDATE_CLOCK][g];
		report->chosen_group[g] = a->chosen[g];
		report->chosen_misses += a->chosen[g];
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
	((Adaptive *) memory)->preferred = choice;
	(void) choose_candidate(memory);
}

/* The policies differ in what is fixed. */

static void
adaptive_init(void *memory, int buffers)
{
	candidates_init(memory, buffers, NOT_FIXED);
}

static void
adaptive_take_over(void *memory)
{
	fix_choice(memory, NOT_FIXED);
}

static void
clock_init(void *memory, int buffers)
{
	candidates_init(memory, buffers, PGSCALE_SWEEPER_CANDIDATE_CLOCK);
}

static void
clock_take_over(void *memory)
{
	fix_choice(memory, PGSCALE_SWEEPER_CANDIDATE_CLOCK);
}

static void
history_init(void *memory, int buffers)
{
	candidates_init(memory, buffers, PGSCALE_SWEEPER_CANDIDATE_HISTORY);
}

static void
history_take_over(void *memory)
{
	fix_choice(memory, PGSCALE_SWEEPER_CANDIDATE_HISTORY);
}

#define POLICY_WITH_CANDIDATES \
	.size = adaptive_size, \
	.pass = adaptive_pass, \
	.writes_first = adaptive_writes_first, \
	.arrived = adaptive_arrived, \
	.used = adaptive_used, \
	.evicted = adaptive_evicted, \
	.neighbour_rank = adaptive_neighbour_rank, \
	.rank = adaptive_rank, \
	.visit = adaptive_visit, \
	.header = adaptive_header, \
	.report = adaptive_report, \
	.score = adaptive_score, \
	.departed = adaptive_departed, \
	.remember = adaptive_remember, \
	.resume = adaptive_resume

static const PgscaleSweeperPolicy policy_clock = {
	.name = "clock",
	.init = clock_init,
	.take_over = clock_take_over,
	POLICY_WITH_CANDIDATES
};

static const PgscaleSweeperPolicy policy_history = {
	.name = "history",
	.init = history_init,
	.take_over = history_take_over,
	POLICY_WITH_CANDIDATES
};

static const PgscaleSweeperPolicy policy_adaptive = {
	.name = "adaptive",
	.init = adaptive_init,
	.take_over = adaptive_take_over,
	POLICY_WITH_CANDIDATES
};

const PgscaleSweeperPolicy *const pgscale_sweeper_policies[PGSCALE_SWEEPER_POLICIES] = {
	[PGSCALE_SWEEPER_CLOCK] = &policy_clock,
	[PGSCALE_SWEEPER_HISTORY] = &policy_history,
	[PGSCALE_SWEEPER_ADAPTIVE] = &policy_adaptive
};
