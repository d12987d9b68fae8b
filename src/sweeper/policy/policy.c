/*-------------------------------------------------------------------------
 *
 * policy.c
 *	  The clock or the history, with the half-life that would miss least now.
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
 * While the sweeper only observes, the clock is in force, because the server's is; what the
 * candidates would miss is counted all the same.  When that begins or ends, pages may have
 * come and gone unseen.  What has changed then is seen in the hand's next round, each page
 * once.  That favours a long half-life, because the hot pages are in the cache.  So no other
 * candidate is preferred for one turnover.
 *
 * All pages keep their scores whatever the choice is.  A score is stored as a count and
 * the time of the last use, and another half-life goes on from these.  So a change needs
 * no pass over the pages.  The clock's counts are kept only while it is in force.  A
 * count has the number of the clock's term; a page without a count of this term has its
 * rank by the history for one.
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

#include "sweeper/policy/policy.h"
#include "sweeper/policy/shadow.h"

#define FIRST_CHOICE	3

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

/* Ranks of neighbours that leave while writes are short; by the history three quarters of the pages have these. */
#define CLOCK_NEIGHBOURS	2
#define HISTORY_NEIGHBOURS	4

/* The clock's part of a page's tag, beside the history's: a count, and its term. */
#define COUNT_SHIFT		PGSCALE_SWEEPER_TAG_BITS
#define COUNT_MASK		0x00E0
#define TERM_SHIFT		(COUNT_SHIFT + 3)
#define TERM_MASK		0xFF00

struct PgscaleSweeperPolicy
{
	int			choice;			/* in force */
	int			preferred;		/* it is the choice, except while: */
	bool		observes;		/* the server chooses, or */
	bool		writes_first;	/* writes are what sessions wait for */
	int			buffers;
	uint16		term;			/* choices of the clock; wraps around */
	uint64		switches;
	uint64		arrivals;
	uint64		evictions;
	uint64		compare_at;		/* evictions */
	uint64		settled_at;		/* evictions; until then the preferred one
								 * stays */
	uint64		seen[PGSCALE_SWEEPER_CANDIDATES][PGSCALE_SWEEPER_GROUPS];	/* misses, when last
																			 * compared */
	uint64		chosen[PGSCALE_SWEEPER_GROUPS]; /* those of the choice in
												 * force */
	uint64		missed_by[PGSCALE_SWEEPER_OUTCOMES];	/* when last compared */
	float		sums[SUMS][PGSCALE_SWEEPER_OUTCOMES];	/* of references, by the
														 * candidates that
														 * missed */
	/* the history is behind this struct, then the shadows are */
};

static PgscaleSweeperHistory *
history_of(const PgscaleSweeperPolicy *p)
{
	return (PgscaleSweeperHistory *) ((char *) p + MAXALIGN(sizeof(PgscaleSweeperPolicy)));
}

static bool
chose_clock(const PgscaleSweeperPolicy *p)
{
	return p->choice == PGSCALE_SWEEPER_CANDIDATE_CLOCK;
}

static Size
shadows_offset(int buffers)
{
	return MAXALIGN(sizeof(PgscaleSweeperPolicy)) + MAXALIGN(pgscale_sweeper_history_size(buffers));
}

static PgscaleSweeperShadows *
shadows_of(const PgscaleSweeperPolicy *p)
{
	return (PgscaleSweeperShadows *) ((char *) p + shadows_offset(p->buffers));
}

Size
pgscale_sweeper_policy_size(int buffers)
{
	return shadows_offset(buffers) + pgscale_sweeper_shadows_size(buffers);
}

void
pgscale_sweeper_policy_init(PgscaleSweeperPolicy *p, int buffers)
{
	p->buffers = buffers;
	p->choice = p->preferred = FIRST_CHOICE;
	pgscale_sweeper_shadows_init(shadows_of(p), buffers);
	pgscale_sweeper_history_init(history_of(p), buffers, shadows_of(p)->of[FIRST_CHOICE].half_life);
}

/*
 * Puts the clock in force, or what is preferred.  Was something else?  Under the clock the
 * history goes on with the half-life that it had.
 */
static bool
choose_candidate(PgscaleSweeperPolicy *p)
{
	const int	before = p->choice;

	p->choice = p->observes || p->writes_first ? PGSCALE_SWEEPER_CANDIDATE_CLOCK : p->preferred;
	if (!chose_clock(p))
		pgscale_sweeper_history_half_life(history_of(p), shadows_of(p)->of[p->choice].half_life);
	else if (before != PGSCALE_SWEEPER_CANDIDATE_CLOCK)
		p->term++;
	return p->choice != before;
}

/*
 * No other candidate is preferred for the next N evictions.  If that holds already, it does
 * not hold for longer: else it would always, where the sweeper often begins and ends to work.
 */
void
pgscale_sweeper_policy_observe(PgscaleSweeperPolicy *p, bool observes)
{
	p->observes = observes;
	p->switches += choose_candidate(p);
	if (p->evictions >= p->settled_at)
		p->settled_at = p->evictions + p->buffers;
}

void
pgscale_sweeper_policy_writes_first(PgscaleSweeperPolicy *p, bool first)
{
	if (p->writes_first == first)
		return;
	p->writes_first = first;
	p->switches += choose_candidate(p);
}

void
pgscale_sweeper_policy_resume(PgscaleSweeperPolicy *p, int choice)
{
	Assert(choice >= 0 && choice < PGSCALE_SWEEPER_CANDIDATES);
	p->preferred = choice;
	(void) choose_candidate(p);
}

PgscaleSweeperHistory *
pgscale_sweeper_policy_history(const PgscaleSweeperPolicy *p)
{
	return history_of(p);
}

static uint8
count_of_page(const PgscaleSweeperPolicy *p, int buf)
{
	const uint16 tag = history_of(p)->pages[buf].tag;

	if ((tag & TERM_MASK) != (uint16) (p->term << TERM_SHIFT))
		return pgscale_sweeper_history_rank(history_of(p), buf);
	return (tag & COUNT_MASK) >> COUNT_SHIFT;
}

static void
set_page_count(PgscaleSweeperPolicy *p, int buf, uint8 count)
{
	uint16	   *tag = &history_of(p)->pages[buf].tag;

	Assert(count <= PGSCALE_MAX_USAGE);
	*tag = (*tag & ~(TERM_MASK | COUNT_MASK)) | (uint16) (p->term << TERM_SHIFT) | count << COUNT_SHIFT;
}

/* Adds the misses since the last comparison. */
static void
add_misses(PgscaleSweeperPolicy *p, const PgscaleSweeperShadows *shadows)
{
	for (int i = 0; i < PGSCALE_SWEEPER_OUTCOMES; i++)
	{
		const uint64 more = shadows->missed_by[i] - p->missed_by[i];

		p->missed_by[i] += more;
		for (int s = 0; s < SUMS; s++)
			p->sums[s][i] = p->sums[s][i] * limits[s].kept + more;
	}
	for (int i = 0; i < PGSCALE_SWEEPER_CANDIDATES; i++)
	{
		for (int g = 0; g < PGSCALE_SWEEPER_GROUPS; g++)
		{
			const uint64 of_group = shadows->of[i].misses[g] - p->seen[i][g];

			if (i == p->choice)
				p->chosen[g] += of_group;
			p->seen[i][g] += of_group;
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
is_better(const PgscaleSweeperPolicy *p, int s, int candidate)
{
	const float *sum = p->sums[s];
	const float more = sum_missed(sum, p->preferred, candidate);
	const float less = sum_missed(sum, candidate, p->preferred);
	const float least = sum_missed(sum, p->preferred, NO_OTHER) * limits[s].gain;

	return more - less > Max(least, limits[s].errors * sqrt(more + less));
}

/* The best of the candidates that are better than the preferred one, or that one. */
static int
best_candidate(const PgscaleSweeperPolicy *p, int s)
{
	int			best = p->preferred;

	for (int i = 0; i < PGSCALE_SWEEPER_CANDIDATES; i++)
		if (is_better(p, s, i) && sum_missed(p->sums[s], i, best) < sum_missed(p->sums[s], best, i))
			best = i;
	return best;
}

static void
compare_candidates(PgscaleSweeperPolicy *p)
{
	p->compare_at = p->evictions + Max(p->buffers / PERIOD_PART, 1);
	add_misses(p, shadows_of(p));
	if (p->evictions < p->settled_at)
	{
		memset(p->sums, 0, sizeof(p->sums));
		return;
	}
	for (int s = 0; s < SUMS; s++)
	{
		const int	best = best_candidate(p, s);

		if (best != p->preferred)
		{
			p->preferred = best;
			p->switches += choose_candidate(p);
			return;
		}
	}
}

void
pgscale_sweeper_policy_arrived(PgscaleSweeperPolicy *p, int buf, uint32 page, int uses)
{
	p->arrivals++;
	pgscale_sweeper_history_arrived(history_of(p), buf, page);
	if (chose_clock(p))
		set_page_count(p, buf, Max(Min(uses, PGSCALE_MAX_USAGE), 1));
	pgscale_sweeper_shadows_use(shadows_of(p), page, uses);
}

void
pgscale_sweeper_policy_used(PgscaleSweeperPolicy *p, int buf, uint32 page, int uses)
{
	if (chose_clock(p))
		set_page_count(p, buf, Min(count_of_page(p, buf) + uses, PGSCALE_MAX_USAGE));
	pgscale_sweeper_history_used(history_of(p), buf);
	pgscale_sweeper_shadows_use(shadows_of(p), page, uses);
}

void
pgscale_sweeper_policy_evicted(PgscaleSweeperPolicy *p, int buf, uint32 page)
{
	pgscale_sweeper_history_evicted(history_of(p), buf, page);
	p->evictions++;
	if (p->evictions >= p->compare_at)
		compare_candidates(p);
}

/*
 * By counts, twice used neighbours leave while writes are short, because then the run that
 * was written serves more transactions.  Else only unused ones do.
 */
uint8
pgscale_sweeper_policy_neighbour_rank(const PgscaleSweeperPolicy *p, bool writes_short)
{
	if (!writes_short)
		return 0;
	return chose_clock(p) ? CLOCK_NEIGHBOURS : HISTORY_NEIGHBOURS;
}

uint8
pgscale_sweeper_policy_rank(const PgscaleSweeperPolicy *p, int buf)
{
	return chose_clock(p) ? count_of_page(p, buf) : pgscale_sweeper_history_rank(history_of(p), buf);
}

/* Under the clock, too, the history must know what was used between two visits. */
uint8
pgscale_sweeper_policy_visit(PgscaleSweeperPolicy *p, int buf, bool kept)
{
	uint8		count;

	if (!chose_clock(p))
		return pgscale_sweeper_history_visit(history_of(p), buf, kept);
	count = count_of_page(p, buf);
	(void) pgscale_sweeper_history_visit(history_of(p), buf, kept);
	set_page_count(p, buf, count > 0 ? count - 1 : 0);
	return count;
}

void
pgscale_sweeper_policy_report(const PgscaleSweeperPolicy *p, PgscaleSweeperPolicyReport *report)
{
	const PgscaleSweeperShadows *shadows = shadows_of(p);

	memset(report, 0, sizeof(PgscaleSweeperPolicyReport));
	report->choice = p->choice;
	report->preferred = p->preferred;
	report->arrivals = p->arrivals;
	report->evictions = p->evictions;
	report->switches = p->switches;
	report->sample = shadows->sample;
	report->references = shadows->references;
	report->groups = pgscale_sweeper_shadows_groups(shadows);
	for (int i = 0; i < PGSCALE_SWEEPER_CANDIDATES; i++)
	{
		report->half_lives[i] = shadows->of[i].half_life;
		/* those that chosen_misses knows, too */
		for (int g = 0; g < PGSCALE_SWEEPER_GROUPS; g++)
			report->misses[i] += p->seen[i][g];
	}
	for (int g = 0; g < PGSCALE_SWEEPER_GROUPS; g++)
	{
		report->clock_group[g] = p->seen[PGSCALE_SWEEPER_CANDIDATE_CLOCK][g];
		report->chosen_group[g] = p->chosen[g];
		report->chosen_misses += p->chosen[g];
	}
}
