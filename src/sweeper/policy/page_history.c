/*-------------------------------------------------------------------------
 *
 * page_history.c
 *	  The history: the pages that were used least often, of late, leave the cache.
 *
 * The clock knows whether a page was used in the hand's last few rounds, and nothing of
 * pages that have left.  So a page that comes back again and again looks to it like a
 * page that is used once.  Here each page has a score instead: a count of its uses, in
 * which a use counts 1/2 after a half-life, 1/4 after two, and so on (LRFU, Lee et al.
 * 2001).  Time is counted in evictions: a cache that evicts nothing forgets nothing.
 *
 * The score is kept as the logarithm that it had at the page's last use.  Then ageing is
 * a subtraction, and is done only when the score is read:
 *
 *		score = log2(count) - (now - last use) / half-life
 *		a use:	count = 1 + 2^score
 *
 * Between two visits of the hand, a page counts one use, however many there were.  A
 * burst, such as a nested loop that reads all rows of a page, says little about how
 * soon the page is needed again.
 *
 * A page that has been idle for some time is hardly used much more often than once in
 * that time.  So what it is worth has a limit that falls while it stays idle: a count of
 * 2.8 after a half-life, of 5.7 after half of one, of 11 after a quarter.  So pages that
 * were used often, and no longer are, leave long before their count is small.
 *
 * A page that leaves keeps its score as a ghost: a tag of 16 bits and the score, in a
 * set of four that its hash determines, in which the least worthy one is replaced.  A
 * page that comes back goes on with it.  Without ghosts a page would have to prove
 * itself within one stay in the cache.
 *
 * The sweep needs a rank for each page, without a comparison with other pages.  So there
 * is a limit between each rank and the next.  Of the pages that the hand comes to, 1/16
 * score below the first limit, and 1/8, 1/4, 1/2 and 3/4 below the others.  Every second
 * visit corrects each limit: down by a step if the page is below it, else up by a smaller
 * one, such that it rests where its part of the pages is below.  So the hand passes 16
 * pages for each that leaves, and that page is among the worst 16th.  Where pages leave
 * too fast for that, a larger part may leave, and the hand passes fewer: 8 cost 1 % more
 * misses, 4 cost 2 to 7 %.
 *
 * A page keeps the rank that a visit found until it is used.  The limits move meanwhile.
 * Pages that are worth the same, as after a bulk load, would get a higher rank when they
 * are asked for again.
 *
 * When other pages become the hot ones, the old ones keep their places: their counts are
 * high.  But then the scores also predict uses that do not come.  A page is used
 * count * ln(2) times in a half-life, and the time of the hand's last round is known; so
 * are the uses that are expected between two visits.  A sample of the visits compares
 * them with the uses that there were, as means over the last N/4 visits.  If these are
 * fewer than LIKELY of the expected, time runs faster, up to 32 ticks an eviction, until
 * the old counts are so small that they predict well again.  While the load is stable,
 * both agree within some percent, whatever the skew is.
 *
 * Over a restart of the server all pages become ghosts.  A ghost has no hash any more;
 * but its set and its tag are all that is needed of one, and determine a hash that has
 * both.
 *
 * Times are 32 bits and wrap around, after 65,536 turnovers of the cache or more, 2,048
 * while time hurries most.  A page or a ghost that stays unused for so long seems young.
 *
 * A score takes 8 bytes.  With two ghosts for each buffer, that is 24 bytes a buffer.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "sweeper/policy/page_history.h"

/* Ghosts: for each buffer, and those that one page may take the place of. */
#define GHOSTS			2
#define GHOST_WAYS		4

/* Uses that there are, as a part of the expected, below which time hurries; and the most. */
#define LIKELY			0.7f
#define HURRY_MOST		32.0f

/* With more buffers a tick is several evictions, or time would wrap around within some turnovers. */
#define TICKS_A_TURNOVER	65536

/* Pages that are used so seldom predict nothing. */
#define EXPECTED_LEAST	0.03f

/* Means of uses are over N divided by that many visits; one in so many counts. */
#define MEAN_PART		4
#define MEAN_SAMPLE		4

/* The limits move by that part of the spread, or of this one: with equal pages they must move, too. */
#define LIMIT_STEP		(1.0f / 32)
#define SPREAD_LEAST	(1.0f / 16)

/* At one visit in so many: the next visits need not wait for the limits then, nor is their rank predicted badly. */
#define LIMIT_SAMPLE	2

/* Tag of a buffer's score: its page was used, or has come, since the last visit, or the rank that this found. */
#define TAG_USED		1
#define TAG_NEW			2
#define RANK_SHIFT		2
#define TAG_RANK		PGSCALE_SWEEPER_TAG_RANK
#define TAG_NO_RANK		TAG_RANK

StaticAssertDecl(TAG_NO_RANK >> RANK_SHIFT > PGSCALE_MAX_USAGE, "no rank is taken for none");

/* The pages of rank 0, unless the sweep is in a hurry; of ranks 0 and 1; of 0, 1 and 2; ... as parts of all. */
static const float parts[PGSCALE_SWEEPER_LIMITS] = {1.0f / PGSCALE_SWEEPER_PASS_MOST, 1.0f / 8, 1.0f / 4, 1.0f / 2, 3.0f / 4};

#define MIDDLE			3		/* limit of the median */

/* Aligned so that each set is within a cache line. */
static PgscaleSweeperScore *
first_ghost(const PgscaleSweeperHistory *history)
{
	return (PgscaleSweeperScore *) TYPEALIGN(GHOST_WAYS * sizeof(PgscaleSweeperScore), history->pages + history->buffers);
}

static PgscaleSweeperScore *
ghost_set(PgscaleSweeperHistory *history, uint32 page)
{
	return first_ghost(history) + (Size) pgscale_sweeper_hash_part(page, history->ghost_sets) * GHOST_WAYS;
}

static int
count_ghost_sets(int buffers)
{
	return Max((int) ((int64) buffers * GHOSTS / GHOST_WAYS), 1);
}

Size
pgscale_sweeper_history_size(int buffers)
{
	return offsetof(PgscaleSweeperHistory, pages) +
		((Size) buffers + ((Size) count_ghost_sets(buffers) + 1) * GHOST_WAYS) * sizeof(PgscaleSweeperScore);
}

void
pgscale_sweeper_history_half_life(PgscaleSweeperHistory *history, float half_life)
{
	history->decay = 1 / (half_life * Min(history->buffers, TICKS_A_TURNOVER));
}

void
pgscale_sweeper_history_init(PgscaleSweeperHistory *history, int buffers, float half_life)
{
	history->buffers = buffers;
	history->ghost_sets = count_ghost_sets(buffers);
	history->hurry = 1;
	history->leaving = parts[0];
	history->spread = 1;
	pgscale_sweeper_history_half_life(history, half_life);
}

void
pgscale_sweeper_history_pass(PgscaleSweeperHistory *history, float pages)
{
	history->leaving = 1 / pages;
}

void
pgscale_sweeper_history_prefetch(PgscaleSweeperHistory *history, uint32 page)
{
	__builtin_prefetch(ghost_set(history, page));
}

/* Remembers a page by its score; the least worthy ghost of its set is forgotten. */
static void
ghost_put(PgscaleSweeperHistory *history, uint32 page, const PgscaleSweeperScore *score)
{
	PgscaleSweeperScore *set = ghost_set(history, page);
	PgscaleSweeperScore *least = set;
	float		worth = INFINITY;

	for (int i = 0; i < GHOST_WAYS; i++)
	{
		const float w = set[i].tag == 0 ? -INFINITY : pgscale_sweeper_score_worth(&set[i], history->now, history->decay);

		if (w < worth)
		{
			worth = w;
			least = &set[i];
		}
	}
	*least = *score;
	least->tag = pgscale_sweeper_hash_tag(page);
}

/* Takes a page's score out of the ghosts.  Returns false if there is none. */
static bool
ghost_take(PgscaleSweeperHistory *history, uint32 page, PgscaleSweeperScore *score)
{
	PgscaleSweeperScore *set = ghost_set(history, page);

	for (int i = 0; i < GHOST_WAYS; i++)
		if (set[i].tag == pgscale_sweeper_hash_tag(page))
		{
			*score = set[i];
			set[i].tag = 0;
			return true;
		}
	return false;
}

void
pgscale_sweeper_history_arrived(PgscaleSweeperHistory *history, int buf, uint32 page)
{
	PgscaleSweeperScore *score = &history->pages[buf];

	if (ghost_take(history, page, score))
		pgscale_sweeper_score_use(score, history->now, history->decay);
	else
		pgscale_sweeper_score_first(score, history->now);
	score->tag = TAG_USED | TAG_NEW | TAG_NO_RANK;
}

void
pgscale_sweeper_history_used(PgscaleSweeperHistory *history, int buf)
{
	PgscaleSweeperScore *score = &history->pages[buf];

	score->tag |= TAG_NO_RANK;
	if (score->tag & TAG_USED)
		return;
	pgscale_sweeper_score_use(score, history->now, history->decay);
	score->tag |= TAG_USED;
}

void
pgscale_sweeper_history_evicted(PgscaleSweeperHistory *history, int buf, uint32 page)
{
	ghost_put(history, page, &history->pages[buf]);
	history->owed += history->hurry * Min((float) TICKS_A_TURNOVER / history->buffers, 1);
	history->now += (uint32) history->owed;
	history->owed -= (uint32) history->owed;
}

/* The first limit decides who may leave.  No branch: it would be predicted badly. */
static inline uint8
rank_of_worth(const PgscaleSweeperHistory *history, float worth)
{
	uint8		above = 1;

	for (int i = 1; i < PGSCALE_SWEEPER_LIMITS; i++)
		above += worth >= history->limits[i];
	return (worth >= history->limits[0]) * above;
}

uint8
pgscale_sweeper_history_rank(const PgscaleSweeperHistory *history, int buf)
{
	const PgscaleSweeperScore *score = &history->pages[buf];

	if ((score->tag & TAG_RANK) != TAG_NO_RANK)
		return (score->tag & TAG_RANK) >> RANK_SHIFT;
	return rank_of_worth(history, pgscale_sweeper_score_worth(score, history->now, history->decay));
}

/* Each limit moves towards its part of the pages that the hand comes to. */
static void
move_limits(PgscaleSweeperHistory *history, float worth)
{
	const float step = Max(history->spread, SPREAD_LEAST) * LIMIT_STEP;

	history->limits[0] += step * (history->leaving - (worth < history->limits[0]));
	for (int i = 1; i < PGSCALE_SWEEPER_LIMITS; i++)
		history->limits[i] += step * (parts[i] - (worth < history->limits[i]));
	history->spread += (fabsf(worth - history->limits[MIDDLE]) - history->spread) * LIMIT_STEP;
}

/* Was the page used since the last visit as its score made expect? */
static void
compare_uses(PgscaleSweeperHistory *history, const PgscaleSweeperScore *score)
{
	const float weight = Min((float) (MEAN_PART * MEAN_SAMPLE) / history->buffers, 1);
	const float used = (score->tag & TAG_USED) ? 1 : 0;
	const float count = exp2f(pgscale_sweeper_score(score, history->now, history->decay)) - used;
	const float half_lives = history->decay * history->lap;
	float		likely;

	history->expected += (Max(Min(count * (float) M_LN2 * half_lives, 1), 0) - history->expected) * weight;
	history->seen += (used - history->seen) * weight;
	likely = LIKELY * history->expected / Max(history->seen, FLT_MIN);
	history->hurry = likely <= 1 || history->expected < EXPECTED_LEAST ? 1 : Min(likely * likely * likely, HURRY_MOST);
}

/* A kept page moves no limit: else these would come down to the kept pages, and no other one could leave. */
uint8
pgscale_sweeper_history_visit(PgscaleSweeperHistory *history, int buf, bool kept)
{
	PgscaleSweeperScore *score = &history->pages[buf];
	const float worth = pgscale_sweeper_score_worth(score, history->now, history->decay);
	const uint8 rank = rank_of_worth(history, worth);

	if (buf <= history->last)
	{
		history->lap = history->now - history->lap_began;
		history->lap_began = history->now;
	}
	history->last = buf;
	if ((score->tag & TAG_NEW) == 0 && buf % MEAN_SAMPLE == 0)
		compare_uses(history, score);
	score->tag = (score->tag & ~(TAG_USED | TAG_NEW | TAG_RANK)) | rank << RANK_SHIFT;
	if (buf % LIMIT_SAMPLE == 0 && !kept)
		move_limits(history, worth);
	return rank;
}

/* Within the limits of a score. */
static float
limited_score(const PgscaleSweeperHistory *history, const PgscaleSweeperScore *score)
{
	return Max(pgscale_sweeper_score(score, history->now, history->decay), -PGSCALE_SWEEPER_SCORE_MOST);
}

float
pgscale_sweeper_history_score(const PgscaleSweeperHistory *history, int buf)
{
	return limited_score(history, &history->pages[buf]);
}

/*
 * Finds a hash with that set and tag.  The hashes of a set are a range of numbers, and of
 * each upper half in that range the tag determines the lower half.  Returns false if
 * there is none, which cannot be of a ghost with a tag other than 1.
 */
static bool
hash_of_ghost(uint32 set, uint32 sets, uint16 tag, uint32 *hash)
{
	const uint32 first = (((uint64) set << 32) / sets) >> 16;
	const uint32 last = (((uint64) (set + 1) << 32) / sets) >> 16;

	for (uint32 upper = first; upper <= Min(last, PG_UINT16_MAX); upper++)
	{
		*hash = upper << 16 | (uint16) (tag ^ upper);
		if (pgscale_sweeper_hash_part(*hash, sets) == set)
			return true;
	}
	return false;
}

int
pgscale_sweeper_history_departed(const PgscaleSweeperHistory *history, uint32 *at, PgscaleSweeperRemembered *pages, int most)
{
	const uint32 ghosts = (uint32) history->ghost_sets * GHOST_WAYS;
	int			n = 0;

	for (; *at < ghosts && n < most; (*at)++)
	{
		const PgscaleSweeperScore *ghost = first_ghost(history) + *at;

		if (ghost->tag == 0 || !hash_of_ghost(*at / GHOST_WAYS, history->ghost_sets, ghost->tag, &pages[n].page))
			continue;
		pages[n++].score = limited_score(history, ghost);
	}
	return n;
}

/* A score below zero is that of a page that was used once, some time ago. */
void
pgscale_sweeper_history_remember(PgscaleSweeperHistory *history, const PgscaleSweeperRemembered *page)
{
	const float age = Max(-page->score, 0) / history->decay;
	PgscaleSweeperScore score;

	(void) ghost_take(history, page->page, &score);
	score.count_log = (uint16) Min(Max(page->score, 0) * PGSCALE_SWEEPER_SCORE_UNIT, PG_UINT16_MAX);
	score.at = history->now - (uint32) Min(age, (float) PG_INT32_MAX);
	ghost_put(history, page->page, &score);
}
