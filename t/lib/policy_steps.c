/*
 * The sweeper's policy, with buffers, pages and uses that are made up; and what they remember over a restart of the server: which
 * pages are kept, with which scores, and what comes back, in the folder of the server that runs it. policy_steps() returns a line
 * for each check.
 */
#include "steps.h"

#include "common/pg_prng.h"
#include "storage/bufmgr.h"

PG_FUNCTION_INFO_V1(policy_steps);

#define BUFFERS		1600
#define NBuffers	BUFFERS
#define PAGES		(1 << 22)
#define LOADED		12000		/* more than buffers and pages that have left */
#define HOT			200
#define MOVED		10000		/* the hot pages of later */
#define WARM		1000		/* a cycle of so many, and as many others, is longer than the cache */
#define ONCE		1000000		/* pages that are used once, from here on */

#include "base/saved_file.c"
#include "sweeper/policy/policy.c"
#include "sweeper/policy/page_history.c"
#undef GHOST_WAYS
#include "sweeper/policy/shadow.c"
#include "sweeper/known_pages.c"
#include "sweeper/saved_history.c"

PgscaleSweeperSettings pgscale_sweeper_settings = {0};
PgscaleSweeperMemory pgscale_sweeper_memory;

static PgscaleSweeper sweeper;
PgscaleSweeper *pgscale_sweeper = &sweeper;
static PgscaleSweeperPolicy *policy;
static PgscaleSweeperPolicyReport report;
static uint32 held[BUFFERS];	/* pages */
static int	where[PAGES];		/* buffer of a page, and one; 0: it is not there */
static uint32 next_page;
static int	at = 0;				/* buffer of the hand */
static int64 visits = 0;
static int	refused = 0;		/* of those that could leave */
static SavedHeader header;		/* of the file that was kept last */

/* Pages are numbers, and are to be hashed as if they were names. */
static uint32
hash_of(uint32 number)
{
	number = (number ^ number >> 16) * 0x7feb352d;
	number = (number ^ number >> 15) * 0x846ca68b;
	return number ^ number >> 16;
}

uint32 pgscale_buffer_page_hash(const PgscalePage *page) { return hash_of(page->block); }
bool pgscale_sweeper_wanted(void) { return true; }

/* A server that starts, with empty buffers: its memory is as it was allocated. */
static void
start(void)
{
	static PgscaleSweeperPage pages[BUFFERS];
	const Size	size = pgscale_sweeper_policy_size(BUFFERS);

	policy = policy ? policy : MemoryContextAlloc(TopMemoryContext, size);
	memset(policy, 0xEE, size);
	memset(&sweeper, 0, sizeof(sweeper));
	memset(where, 0, sizeof(where));
	memset(held, 0xFF, sizeof(held));
	pgscale_sweeper_memory.pages = pages;
	pgscale_sweeper_memory.policy = policy;
	history_read = false;
	pgscale_sweeper_pages_begin();
	pgscale_sweeper_saved_read();
	next_page = ONCE;
	visits = refused = 0;
}

/* The sweep sees the page in a buffer, which has one use more than was expected. */
static void
see(int buf, uint32 page, int usage)
{
	const PgscaleBuffer look = {.usage = usage,.valid = true};
	const PgscalePage name = {.block = page};

	held[buf] = page;
	where[page] = buf + 1;
	(void) pgscale_sweeper_page_seen(buf, &look, &name, 1, false);
}

/* One with full buffers. */
static void
begin(void)
{
	start();
	for (int buf = 0; buf < BUFFERS; buf++)
		see(buf, buf, 1);
}

static void
observe(bool observes)
{
	pgscale_sweeper_policy_observe(policy, observes);
}

/* A choice that does not change. */
static void
choose(int choice)
{
	pgscale_sweeper_policy_resume(policy, choice);
	policy->compare_at = PG_UINT64_MAX;
}

/* The page is used, or comes in the place of one that the hand finds. */
static void
use(uint32 page)
{
	if (where[page] > 0)
	{
		see(where[page] - 1, page, 2);
		return;
	}
	for (int n = 0; n < 20 * BUFFERS; n++)
	{
		at = (at + 1) % BUFFERS;
		visits++;
		if (held[at] == PG_UINT32_MAX)
			break;
		if (pgscale_sweeper_policy_visit(policy, at, false) > 0)
			continue;
		if (pgscale_sweeper_policy_rank(policy, at) == 0)
			break;
		refused++;
	}
	if (held[at] != PG_UINT32_MAX)
	{
		pgscale_sweeper_page_left(at);
		where[held[at]] = 0;
	}
	see(at, page, 1);
}

/* So many pages come that are used once, while the hot ones are used, about as often as the hand comes to them. */
static void
scan(int pages, uint32 hot, int nhot)
{
	for (int i = 0; i < pages; i++)
	{
		use(hot + i % nhot);
		use(next_page++);
	}
}

/* Some pages are used much more often than others. */
static void
work(int rounds)
{
	pg_prng_state prng;

	pg_prng_seed(&prng, 7);
	for (int i = 0; i < rounds; i++)
	{
		const double u = pg_prng_double(&prng);

		use((uint32) (u * u * u * LOADED));
	}
}

static int
count_held(uint32 hot)
{
	int			n = 0;

	for (int i = 0; i < HOT; i++)
		n += where[hot + i] > 0;
	return n;
}

static int
choice(void)
{
	pgscale_sweeper_policy_report(policy, &report);
	return report.choice;
}

static void
check_policy(bool observes)
{
	int			leaves = 0;
	int			back = 0;

	begin();
	observe(observes);
	for (int i = 0; i < BUFFERS; i++)
		use(next_page++);
	is(refused, 0, psprintf("observes %d: what may leave may do so a moment later, too, after a fill", observes));
	is(visits < (int64) 64 * BUFFERS, true, "and is found soon");
	for (int i = 0; i < 2 * BUFFERS; i++)
	{
		const int	buf = i % BUFFERS;

		if (pgscale_sweeper_policy_visit(policy, buf, false) > 0)
			continue;
		leaves++;
		see(buf, held[buf], 2);
		see(buf, held[buf], 2);
		back += pgscale_sweeper_policy_rank(policy, buf) > 0;
	}
	is(leaves > 0 && back > leaves / 2, true, "others may leave, and stay when they are used");
}

static void
check_history(void)
{
	int64		at_most;
	int			may = 0;

	begin();
	for (int i = 0; i < 50 * BUFFERS; i++)
		may += pgscale_sweeper_policy_visit(policy, i % BUFFERS, false) == 0 && i >= 40 * BUFFERS;
	is(may > BUFFERS / 16, true, "where no buffer is needed, some pages may leave");

	begin();
	scan(20 * BUFFERS, 0, HOT);
	is(count_held(0) > HOT * 9 / 10, true, "pages that come back stay, whatever else comes");
	is(refused, 0, "what may leave may do so a moment later");
	is(visits < (int64) 2 * 20 * BUFFERS * 32, true, "the hand passes some pages for each");
	scan(20 * BUFFERS, MOVED, HOT);
	is(count_held(MOVED) > HOT * 9 / 10 && count_held(0) < HOT / 2, true, "others become the hot ones, and the old ones leave");
	visits = 0;
	scan(5 * BUFFERS, MOVED, HOT);
	at_most = visits;
	pgscale_sweeper_history_pass(pgscale_sweeper_policy_history(policy), 4);
	scan(5 * BUFFERS, MOVED, HOT);
	visits = 0;
	scan(5 * BUFFERS, MOVED, HOT);
	is(visits < at_most / 2, true, "where pages leave fast, the hand passes fewer for each");
	is(count_held(MOVED) > HOT * 9 / 10, true, "and those that come back stay");
}

static void
check_observing(void)
{
	static uint8 ranks[BUFFERS];
	int			equal = 0;

	begin();
	observe(true);
	scan(20 * BUFFERS, 0, WARM);
	is(choice() == 0 && report.chosen_misses == report.misses[0] && report.switches == 1, true, "while it observes, the clock is in force");
	is(report.preferred > 0 && report.misses[report.preferred] < report.misses[0], true, "where its shadows show a better choice");
	pgscale_sweeper_policy_visit(policy, 0, false);
	see(0, held[0], 3);
	is(pgscale_sweeper_policy_rank(policy, 0), count_of_page(policy, 0), "its ranks are counts");

	observe(false);
	is(choice() == report.preferred && report.switches == 2, true, "afterwards that is chosen at once");
	scan(20 * BUFFERS, 0, HOT);
	is(count_held(0) > HOT * 9 / 10, true, "the history, of which it goes on");

	is(choice() > 0, true, "and stays");
	for (int buf = 0; buf < BUFFERS; buf++)
		ranks[buf] = pgscale_sweeper_policy_rank(policy, buf);
	observe(true);
	for (int buf = 0; buf < BUFFERS; buf++)
		equal += pgscale_sweeper_policy_rank(policy, buf) == ranks[buf];
	is(equal, BUFFERS, "the clock begins with its ranks for counts");
	see(7, held[7], 6);
	observe(true);
	is(pgscale_sweeper_policy_rank(policy, 7), 5, "and keeps them if it is chosen again");
	is(pgscale_sweeper_policy_visit(policy, 7, false) * 10 + pgscale_sweeper_policy_rank(policy, 7), 54, "a visit finds a count, and takes it down");
}

/* The choice does not change by what is seen while the sweeper catches up. */
static void
check_settling(void)
{
	uint64		before;

	begin();
	scan(20 * BUFFERS, 0, WARM);
	is(choice() > 0 && report.chosen_misses >= report.misses[report.choice] && report.chosen_misses <= report.misses[0], true,
	   "where pages come back, the history is chosen, which misses less");
	pgscale_sweeper_policy_resume(policy, PGSCALE_SWEEPER_CANDIDATE_CLOCK);
	observe(false);
	compare_candidates(policy);
	is(sum_missed(policy->sums[0], PGSCALE_SWEEPER_CANDIDATE_CLOCK, NO_OTHER) == 0, true,
	   "what was seen before a pause is forgotten");
	(void) choice();
	before = report.misses[0];
	scan(BUFFERS / 3, 0, WARM);
	is(choice() == PGSCALE_SWEEPER_CANDIDATE_CLOCK && report.misses[0] > before, true,
	   "what is seen after it changes no choice for a turnover");
	for (int i = 0; i < 60; i++)
	{
		scan(BUFFERS / 3, 0, WARM);
		observe(i % 2 == 0);
	}
	is(choice() > 0, true, "also where it often begins and ends to observe, it does later");
}

/* References by the candidates that miss them, in sums of a memory that prefers a half-life of 8: which candidate is better? */
static void
check_sums(void)
{
	static const struct
	{
		int			sum;
		float		clock, two, eight, all, clock_eight, two_eight;
		int			best;
		const char *name;
	}			cases[] = {
		{0, 0, 0, 190, 10000, 0, 0, 3, "a gain of less than 2 % changes nothing"},
		{0, 0, 0, 0, 10000, 250, 0, 2, "more than 2 % does"},
		{1, 0, 0, 80, 1000, 0, 0, 3, "in a short time, less than 8 % changes nothing"},
		{1, 0, 0, 0, 1000, 100, 0, 2, "more than 8 % does"},
		{0, 100, 70, 100, 0, 0, 0, 3, "30 of 170 that differ are chance"},
		{1, 100, 70, 100, 0, 0, 0, 3, "also in a short time"},
		{0, 0, 0, 100, 0, 50, 0, 2, "of two candidates that are better the best is chosen, if it is the last"},
		{0, 0, 0, 100, 0, 0, 50, 0, "and if it is the first"},
		{0, 1469, 10, 0, 0, 70, 1530, 2, "one that is better for sure is chosen, though another one misses less by chance"}
	};
	enum
	{
		CLOCK = 1, TWO = 4, EIGHT = 8, OTHERS = 2 | 16
	};

	begin();
	for (int i = 0; i < lengthof(cases); i++)
	{
		float	   *sum = policy->sums[cases[i].sum];

		sum[CLOCK | OTHERS] = cases[i].clock;
		sum[TWO | OTHERS] = cases[i].two;
		sum[EIGHT | OTHERS] = cases[i].eight;
		sum[CLOCK | TWO | EIGHT | OTHERS] = cases[i].all;
		sum[CLOCK | EIGHT | OTHERS] = cases[i].clock_eight;
		sum[TWO | EIGHT | OTHERS] = cases[i].two_eight;
		is(best_candidate(policy, cases[i].sum), cases[i].best, cases[i].name);
	}
}

/*
 * Of ten pages that are used, nine never come back, which every candidate misses; the other one does, though too late for the
 * clock. So the history misses a tenth less, and that is certain. Where no page is used more often than others, no candidate is
 * better.
 */
static void
check_chance(void)
{
	begin();
	pgscale_sweeper_policy_resume(policy, PGSCALE_SWEEPER_CANDIDATE_CLOCK);
	for (int i = 0; i < 40 * BUFFERS; i++)
	{
		scan(1, i % HOT, 1);
		for (int n = 0; n < 8; n++)
			use(next_page++);
	}
	is(choice() > 0, true, "what all miss does not hide a small gain");
	begin();
	for (uint32 i = 0; i < 60 * BUFFERS; i++)
		use(hash_of(i + 1) % (4 * BUFFERS));
	(void) choice();
	is(report.switches <= 20, true, "where all are equal, the choice changes seldom");
}

static void
check_shadows(void)
{
	uint64		clock = 0;
	uint64		chosen = 0;
	int			some = 0;
	bool		smaller = true;
	PgscaleSweeperPolicy *small = palloc0(pgscale_sweeper_policy_size(100));

	begin();
	scan(20 * BUFFERS, 0, WARM);
	(void) choice();
	for (int g = 0; g < PGSCALE_SWEEPER_GROUPS; g++)
	{
		clock += report.clock_group[g];
		chosen += report.chosen_group[g];
		some += report.clock_group[g] > report.misses[0] / 32;
	}
	is(clock == report.misses[0] && chosen == report.chosen_misses, true, "the groups have all misses");
	is(some == PGSCALE_SWEEPER_GROUPS && report.groups == some, true, "each its part");
	is(report.arrivals >= report.evictions && report.arrivals <= report.evictions + BUFFERS, true, "pages come and go");
	pgscale_sweeper_policy_init(small, 100);
	pgscale_sweeper_policy_report(small, &report);
	is(report.groups, 6, "a small cache has fewer groups");
	for (int buffers = 16; buffers < 200000; buffers += 1 + buffers / 7)
	{
		const double part = (double) count_shadow_pages(buffers) * shadow_sample(buffers) / buffers;

		smaller = smaller && part <= 1 && part > 0.9 - 16.0 / buffers;
	}
	is(smaller, true, "a shadow is smaller by the factor of its sample");
}

/* Ranks of worths, with limits from 1 to 5; and of neighbours that leave, while buffers are ready and while they are lacking. */
static void
check_ranks(void)
{
	static const PgscaleSweeperHistory history = {.limits = {1, 2, 3, 4, 5}};

	for (int worth = 0; worth <= 6; worth++)
		is(rank_of_worth(&history, worth), Min(worth, 5), psprintf("the rank of a worth of %d", worth));
	begin();
	observe(true);
	is(pgscale_sweeper_policy_neighbour_rank(policy, false) * 10 + pgscale_sweeper_policy_neighbour_rank(policy, true), 2,
	   "the clock: twice used neighbours while buffers are lacking");
	observe(false);
	is(pgscale_sweeper_policy_neighbour_rank(policy, false) * 10 + pgscale_sweeper_policy_neighbour_rank(policy, true), 4,
	   "a history: three quarters of the pages");
	pgscale_sweeper_policy_resume(policy, PGSCALE_SWEEPER_CANDIDATE_CLOCK);
	is(pgscale_sweeper_policy_neighbour_rank(policy, true), 2, "the clock's counts while that is in force");
	pgscale_sweeper_policy_resume(policy, FIRST_CHOICE);
	pgscale_sweeper_policy_writes_first(policy, true);
	is(pgscale_sweeper_policy_neighbour_rank(policy, true), 2, "the clock is in force while writes are all that counts");
	pgscale_sweeper_policy_writes_first(policy, false);
	is(pgscale_sweeper_policy_neighbour_rank(policy, true), 4, "and what is preferred afterwards");
}

/* Over a restart */

/* Reads its header.  How many pages has the file?  -1: there is none. */
static int
kept(void)
{
	FILE	   *file = fopen(SAVED_FILE, "rb");

	if (!file)
		return -1;
	(void) fread(&header, sizeof(header), 1, file);
	fclose(file);
	return header.pages;
}

/*
 * The score with which a page that is in no buffer would come back, before that use counts; NaN: it would be a new one. It is
 * forgotten then.
 */
static float
comes_back(uint32 page)
{
	PgscaleSweeperHistory *history = pgscale_sweeper_policy_history(policy);
	PgscaleSweeperScore score;

	return ghost_take(history, hash_of(page), &score) ? pgscale_sweeper_score(&score, history->now, history->decay) : NAN;
}

static void
check_hashes(void)
{
	static const int sets[] = {1, 3, 200, 1000, 32768, 65536, 65537, 100000, 1 << 24, 1 << 29};
	int			wrong = 0;
	int			kept_all = 0;

	for (int i = 0; i < lengthof(sets); i++)
		for (uint32 n = 0; n < 2000; n++)
		{
			const uint32 page = n == 0 ? 0 : n == 1 ? PG_UINT32_MAX : hash_of(n);
			const uint16 tag = pgscale_sweeper_hash_tag(page);
			uint32		hash;

			if ((uint16) (page ^ page >> 16) == 0)
				continue;		/* its tag is made up */
			wrong += !hash_of_ghost(pgscale_sweeper_hash_part(page, sets[i]), sets[i], tag, &hash) ||
				pgscale_sweeper_hash_part(hash, sets[i]) != pgscale_sweeper_hash_part(page, sets[i]) ||
				pgscale_sweeper_hash_tag(hash) != tag;
			kept_all += sets[i] == 1 << 24 && hash == page;
		}
	is(wrong, 0, "each ghost has a hash with its set and its tag");
	is(kept_all > 1990, true, "where there are many sets, that of its page");
}

/* What is kept are the best of pages in buffers and pages that have left, each with its score. */
static void
check_kept(void)
{
	float		scores[200];	/* of the pages that are used most */
	int			came = 0;
	int			good = 0;

	start();
	choose(FIRST_CHOICE);
	pgscale_sweeper_saved_write();
	is(kept(), -1, "nothing that is known leaves no file");
	work(60000);
	pgscale_sweeper_saved_write();
	is(kept(), BUFFERS, "it leaves a file, with a page for each buffer");
	is(header.choice, FIRST_CHOICE, "and the choice");
	for (int page = 0; page < lengthof(scores); page++)
		scores[page] = where[page] > 0 ? pgscale_sweeper_history_score(pgscale_sweeper_policy_history(policy), where[page] - 1) : comes_back(page);

	start();
	is(sweeper.restored, BUFFERS, "a server that starts restores all of them");
	is(kept(), -1, "and removes the file");
	for (int page = 0; page < LOADED; page++)
	{
		const float score = comes_back(page);

		came += !isnan(score);
		good += page < lengthof(scores) && fabsf(score - scores[page]) < 0.001;
	}
	is(came > 0.9 * BUFFERS && came <= BUFFERS, true, "nearly all of them come back");
	is(good > 0.98 * lengthof(scores), true, "the best among them, with the score that they had");
}

/* A page that is restored goes on like one that had only left, with its score. */
static void
check_remembered(void)
{
	static const struct
	{
		float		score, least, most;
	}			cases[] = {
		{-4, -4.001, -3.999}, {-PGSCALE_SWEEPER_SCORE_MOST, -33, -30}, {PGSCALE_SWEEPER_SCORE_MOST, 31.9, 32}
	};
	PgscaleSweeperRemembered page = {.page = hash_of(1),.score = 3};
	PgscaleSweeperHistory *history;

	start();
	history = pgscale_sweeper_policy_history(policy);
	pgscale_sweeper_history_remember(history, &page);
	pgscale_sweeper_history_remember(history, &page);
	pgscale_sweeper_history_arrived(history, 0, page.page);
	is(fabs(pgscale_sweeper_history_score(history, 0) - log2(9)) < 0.001, true, "eight uses and one are nine");
	pgscale_sweeper_history_arrived(history, 1, page.page);
	is(pgscale_sweeper_history_score(history, 1), 0, "what is remembered twice comes back once");
	for (int i = 0; i < lengthof(cases); i++)
	{
		float		score;

		page.score = cases[i].score;
		pgscale_sweeper_history_remember(history, &page);
		score = comes_back(1);
		is(score >= cases[i].least && score <= cases[i].most, true, psprintf("a score of %g comes back", cases[i].score));
	}
}

static void
check_choice(void)
{
	for (int wanted = 0; wanted < PGSCALE_SWEEPER_CANDIDATES; wanted += 2)
	{
		start();
		choose(wanted);
		work(10000);
		pgscale_sweeper_saved_write();
		is(kept() > 0 && header.choice == wanted, true, "its choice is kept");
		start();
		is(sweeper.restored == header.pages && choice() == wanted && report.switches + report.evictions == 0, true,
		   "which is in force again, with the pages, and is no switch");
	}
	pgscale_sweeper_saved_write();
	start();
	observe(true);
	is(sweeper.restored > 0 && choice() == PGSCALE_SWEEPER_CANDIDATE_CLOCK, true, "while it observes, the pages are there, too");
	pgscale_sweeper_saved_write();
	is(kept() > 0 && header.choice == 4, true, "and what is preferred is kept");
}

/* Of more pages than may be kept, those are that have the highest scores. */
static void
check_most(void)
{
	PgscaleSweeperRemembered pages[CHUNK];
	SavedWalk	walk = {0};
	SavedCut	cut;
	int			least;
	int			better = 0;
	int			all = 0;
	int			n;

	start();
	work(30000);
	is(find_saved_cut(100, &cut), 100, "no more are kept than may be");
	least = cut.class;
	while ((n = next_pages(&walk, pages)) > 0)
	{
		for (int i = 0; i < n; i++)
			better += class_of_score(pages[i].score) > least;
		n = keep_best(pages, n, &cut);
		for (int i = 0; i < n; i++)
			better -= class_of_score(pages[i].score) > least;
		all += n;
	}
	is(all, 100, "as many are put into the file");
	is(better, 0, "the best of them");
}

/* A process that never read its file leaves it to the next one. */
static void
check_unread(void)
{
	start();
	work(30000);
	pgscale_sweeper_saved_write();
	history_read = false;
	sweeper.restored = 0;
	memset(pgscale_sweeper_memory.pages, 0, BUFFERS * sizeof(PgscaleSweeperPage));
	pgscale_sweeper_saved_write();
	is(kept(), BUFFERS, "what was not read stays");
	pgscale_sweeper_saved_read();
	is(sweeper.restored == BUFFERS && history_read, true, "and is read by the next process, once");
}

/* What the server wrote, with other bytes somewhere and a checksum that is right: what is wrong with it? */
static void
check_foreign(void)
{
	static const struct
	{
		uint32		at, with;	/* a word */
		int			size;		/* of a whole file, or less */
		int			restored;
		const char *problem;
	}			cases[] = {
		{0, SAVED_FORMAT, 100000, BUFFERS, ""},
		{0, SAVED_FORMAT, 3, 0, "its checksum is wrong"},
		{0, SAVED_FORMAT, 5000, 0, "its checksum is wrong"},
		{offsetof(SavedHeader, format), 1, 100000, 0, "its format is not this version's"},
		{offsetof(SavedHeader, catversion), 1, 100000, 0, "another major version wrote it"},
		{offsetof(SavedHeader, block_size), 4096, 100000, 0, "a server that was built otherwise wrote it"},
		{offsetof(SavedHeader, hash), 1, 100000, 0, "a server that was built otherwise wrote it"},
		{offsetof(SavedHeader, buffers), 1, 100000, 0, "shared_buffers was another"},
		{offsetof(SavedHeader, pages), BUFFERS + 1, 100000, 0, "its size is wrong"},
		{offsetof(SavedHeader, pages), BUFFERS - 1, 100000, 0, "its size is wrong"},
		{offsetof(SavedHeader, choice), 5, 100000, 0, "it has a choice that cannot be"},
		/* scores: no number, and one beyond all */
		{sizeof(SavedHeader) + 4, 0x7FC00000, 100000, BUFFERS - 1, ""},
		{sizeof(SavedHeader) + 4, 0x42040000, 100000, BUFFERS - 1, ""}
	};
	static char bytes[100000];

	for (int i = 0; i < lengthof(cases); i++)
	{
		FILE	   *file;
		int			size;
		pg_crc32c	crc;

		start();
		work(30000);
		pgscale_sweeper_saved_write();
		file = fopen(SAVED_FILE, "r+b");
		size = (int) fread(bytes, 1, sizeof(bytes), file);
		memcpy(bytes + cases[i].at, &cases[i].with, sizeof(uint32));
		INIT_CRC32C(crc);
		COMP_CRC32C(crc, bytes, size - sizeof(crc));
		FIN_CRC32C(crc);
		memcpy(bytes + size - sizeof(crc), &crc, sizeof(crc));
		rewind(file);
		if (fwrite(bytes, 1, size, file) != size || fflush(file) != 0 || ftruncate(fileno(file), Min(size, cases[i].size)) != 0)
			elog(ERROR, "could not change %s: %m", SAVED_FILE);
		fclose(file);
		start();
		is(strcmp(sweeper.restore_problem, cases[i].problem), 0, psprintf("a word at %u, %d bytes: %s", cases[i].at, cases[i].size, cases[i].problem));
		is(sweeper.restored, cases[i].restored, "so many pages are restored");
	}
}

Datum
policy_steps(PG_FUNCTION_ARGS)
{
	initStringInfo(&lines);
	check_policy(true);
	check_policy(false);
	check_history();
	check_observing();
	check_settling();
	check_sums();
	check_chance();
	check_shadows();
	check_ranks();
	check_hashes();
	check_kept();
	check_remembered();
	check_choice();
	check_most();
	check_unread();
	check_foreign();
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}
