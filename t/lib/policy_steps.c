/*
 * The sweeper's policies, with buffers, pages and uses that are made up. policy_steps() returns a line for each check.
 */
#include "postgres.h"

#include <math.h>

#include "fmgr.h"
#include "utils/builtins.h"

#include "steps.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(policy_steps);

#include "sweeper/policies/page_history.c"
#include "sweeper/policies/shadow.c"
#include "sweeper/policies/adaptive.c"

#define BUFFERS		1600
#define PAGES		(1 << 22)
#define HOT			200
#define MOVED		10000		/* the hot pages of later */
#define WARM		1000		/* a cycle of so many, and as many others, is longer than the cache */
#define ONCE		1000000		/* pages that are used once, from here on */

static const PgscaleSweeperPolicy *policy;
static void *memory;
static PgscaleSweeperPolicyReport report;
static uint32 held[BUFFERS];	/* pages */
static int	where[PAGES];		/* buffer of a page, and one; 0: it is not there */
static uint32 next_page;
static int	at = 0;				/* buffer of the hand */
static int64 visits = 0;
static int	refused = 0;		/* of those that could leave */

static uint32
name_of(uint32 number)
{
	return number * 0x85EBCA6Bu + 1;
}

static void
put(int buf, uint32 page)
{
	held[buf] = page;
	where[page] = buf + 1;
	policy->arrived(memory, buf, name_of(page), 1);
}

static void
begin(const PgscaleSweeperPolicy *of)
{
	policy = of;
	memory = palloc0(policy->size(BUFFERS));
	policy->init(memory, BUFFERS);
	memset(where, 0, sizeof(where));
	for (int buf = 0; buf < BUFFERS; buf++)
		put(buf, buf);
	next_page = ONCE;
	visits = refused = 0;
}

/* The page is used, or comes in the place of one that the hand finds. */
static void
use(uint32 page)
{
	if (where[page] > 0)
	{
		policy->used(memory, where[page] - 1, name_of(page), 1);
		return;
	}
	for (int n = 0; n < 20 * BUFFERS; n++)
	{
		at = (at + 1) % BUFFERS;
		visits++;
		if (policy->visit(memory, at, false) > 0)
			continue;
		if (policy->rank(memory, at) == 0)
			break;
		refused++;
	}
	policy->evicted(memory, at, name_of(held[at]));
	where[held[at]] = 0;
	put(at, page);
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
	policy->report(memory, BUFFERS, &report);
	return report.choice;
}

/* Another policy takes the memory over. */
static void
take_over(const PgscaleSweeperPolicy *by)
{
	policy = by;
	policy->take_over(memory);
}

static void
check_policy(const PgscaleSweeperPolicy *of)
{
	int			leaves = 0;
	int			back = 0;

	begin(of);
	for (int i = 0; i < BUFFERS; i++)
		use(next_page++);
	is(refused, 0, psprintf("%s: what may leave may do so a moment later, too, after a fill", of->name));
	is(visits < (int64) 64 * BUFFERS, true, "and is found soon");
	for (int i = 0; i < 2 * BUFFERS; i++)
	{
		const int	buf = i % BUFFERS;

		if (policy->visit(memory, buf, false) > 0)
			continue;
		leaves++;
		policy->used(memory, buf, name_of(held[buf]), 1);
		policy->used(memory, buf, name_of(held[buf]), 1);
		back += policy->rank(memory, buf) > 0;
	}
	is(leaves > 0 && back > leaves / 2, true, "others may leave, and stay when they are used");
	is(policy->header(memory, 0) >= 1 && policy->header(memory, 0) <= 3, true, "the server's hand leaves a page alone");
}

static void
check_history(const PgscaleSweeperPolicy *of)
{
	int64		at_most;
	int			may = 0;

	begin(of);
	for (int i = 0; i < 50 * BUFFERS; i++)
		may += policy->visit(memory, i % BUFFERS, false) == 0 && i >= 40 * BUFFERS;
	is(may > BUFFERS / 16, true, psprintf("%s: where the hand goes round and no buffer is needed, some pages may leave", of->name));

	begin(of);
	scan(20 * BUFFERS, 0, HOT);
	is(count_held(0) > HOT * 9 / 10, true, psprintf("%s: pages that come back stay, whatever else comes", of->name));
	is(refused, 0, "what may leave may do so a moment later");
	is(visits < (int64) 2 * 20 * BUFFERS * 32, true, "the hand passes some pages for each");
	scan(20 * BUFFERS, MOVED, HOT);
	is(count_held(MOVED) > HOT * 9 / 10 && count_held(0) < HOT / 2, true, "others become the hot ones, and the old ones leave");
	visits = 0;
	scan(5 * BUFFERS, MOVED, HOT);
	at_most = visits;
	policy->pass(memory, 4);
	scan(5 * BUFFERS, MOVED, HOT);
	visits = 0;
	scan(5 * BUFFERS, MOVED, HOT);
	is(visits < at_most / 2, true, "where pages leave fast, the hand passes fewer for each");
	is(count_held(MOVED) > HOT * 9 / 10, true, "and those that come back stay");
}

static void
check_ranks(void)
{
	static const PgscaleSweeperHistory history = {.limits = {1, 2, 3, 4, 5}};

	for (int worth = 0; worth <= 6; worth++)
		is(rank_of_worth(&history, worth), Min(worth, 5), psprintf("the rank of a worth of %d, with limits from 1 to 5", worth));
}

static void
check_take_over(void)
{
	static uint8 ranks[BUFFERS];
	int			alike = 0;

	begin(&pgscale_sweeper_policy_clock);
	scan(20 * BUFFERS, 0, WARM);
	is(choice(), 0, "the clock stays the clock, where the history misses less");
	is(report.preferred > 0 && report.misses[report.preferred] < report.misses[0], true, "which its shadow caches show");
	is(report.chosen_misses == report.misses[0] && report.switches == 0, true, "it made no other choice");
	policy->visit(memory, 0, false);
	policy->used(memory, 0, name_of(held[0]), 2);
	is(policy->rank(memory, 0), count_of_page(memory, 0), "its ranks are counts");

	take_over(&pgscale_sweeper_policy_adaptive);
	is(choice() == report.preferred && report.switches == 1 && !chose_clock(memory), true,
	   "adaptive takes over, and chooses at once");
	scan(20 * BUFFERS, 0, HOT);
	is(count_held(0) > HOT * 9 / 10, true, "the history, of which it goes on");
	is(report.evictions > BUFFERS && report.references > 1000, true, "evictions and uses are counted");
	is(report.half_lives[0] == 0 && report.half_lives[PGSCALE_SWEEPER_CANDIDATES - 1] == 32, true, "the clock has no half-life");

	take_over(&pgscale_sweeper_policy_history);
	is(report.half_lives[choice()], 8, "a history has a half-life of 8");
	is(history_of(memory)->decay == 1 / (8.0f * BUFFERS), true, "by which it ages");
	for (int buf = 0; buf < BUFFERS; buf++)
		ranks[buf] = policy->rank(memory, buf);
	take_over(&pgscale_sweeper_policy_clock);
	for (int buf = 0; buf < BUFFERS; buf++)
		alike += policy->rank(memory, buf) == ranks[buf];
	is(alike, BUFFERS, "the clock begins with its ranks for counts");
	policy->used(memory, 7, name_of(held[7]), 5);
	take_over(&pgscale_sweeper_policy_clock);
	is(policy->rank(memory, 7), 5, "and keeps them if it is chosen again");
	is(policy->visit(memory, 7, false) * 10 + policy->rank(memory, 7), 54, "a visit finds a count, and takes it down");

	/* another policy has begun in the memory meanwhile */
	memset(memory, 0xA5, policy->size(BUFFERS));
	(void) choice();
	is(report.evictions == UINT64CONST(0xA5A5A5A5A5A5A5A5), true, "a report of any memory is only wrong");
}

/* The choice does not change by what is seen while the sweeper catches up. */
static void
check_settling(void)
{
	uint64		before;

	begin(&pgscale_sweeper_policy_adaptive);
	scan(20 * BUFFERS, 0, WARM);
	is(choice() > 0 && report.misses[report.choice] < report.misses[0], true,
	   "where pages come back, the history is chosen, which misses less");
	is(report.chosen_misses >= report.misses[report.choice] && report.chosen_misses <= report.misses[0], true, "as the choice has");
	policy->resume(memory, PGSCALE_SWEEPER_THE_CLOCK);
	take_over(policy);
	compare_candidates(memory);
	is(sum_missed(((Adaptive *) memory)->sums[0], PGSCALE_SWEEPER_THE_CLOCK, NO_OTHER) == 0, true,
	   "what was seen before a pause is forgotten");
	(void) choice();
	before = report.misses[0];
	scan(BUFFERS / 3, 0, WARM);
	is(choice() == PGSCALE_SWEEPER_THE_CLOCK && report.misses[0] > before, true,
	   "what is seen after it changes no choice for a turnover");
	for (int i = 0; i < 60; i++)
	{
		scan(BUFFERS / 3, 0, WARM);
		take_over(i % 2 == 0 ? &pgscale_sweeper_policy_clock : &pgscale_sweeper_policy_adaptive);
	}
	is(choice() > 0, true, "also where policies take turns, it does later");
	policy->resume(memory, PGSCALE_SWEEPER_THE_CLOCK);
	scan(20 * BUFFERS, 0, WARM);
	is(choice() > 0, true, "only later");
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

	begin(&pgscale_sweeper_policy_adaptive);
	for (int i = 0; i < lengthof(cases); i++)
	{
		float	   *sum = ((Adaptive *) memory)->sums[cases[i].sum];

		sum[CLOCK | OTHERS] = cases[i].clock;
		sum[TWO | OTHERS] = cases[i].two;
		sum[EIGHT | OTHERS] = cases[i].eight;
		sum[CLOCK | TWO | EIGHT | OTHERS] = cases[i].all;
		sum[CLOCK | EIGHT | OTHERS] = cases[i].clock_eight;
		sum[TWO | EIGHT | OTHERS] = cases[i].two_eight;
		is(best_candidate(memory, cases[i].sum), cases[i].best, cases[i].name);
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
	begin(&pgscale_sweeper_policy_adaptive);
	policy->resume(memory, PGSCALE_SWEEPER_THE_CLOCK);
	for (int i = 0; i < 40 * BUFFERS; i++)
	{
		scan(1, i % HOT, 1);
		for (int n = 0; n < 8; n++)
			use(next_page++);
	}
	is(choice() > 0, true, "what all miss does not hide a small gain");
	begin(&pgscale_sweeper_policy_adaptive);
	for (uint32 i = 0; i < 60 * BUFFERS; i++)
		use((uint32) (((uint64) (name_of(i) ^ name_of(i) >> 15) * 0x9E3779B97F4A7C15 >> 40) % (4 * BUFFERS)));
	(void) choice();
	is(report.switches <= 20, true, psprintf("where all are equal, the choice changes seldom, here %d times",
	   (int) report.switches));
}

static void
check_shadows(void)
{
	uint64		clock = 0;
	uint64		chosen = 0;
	int			some = 0;
	bool		alike = true;

	begin(&pgscale_sweeper_policy_adaptive);
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
	memory = palloc0(policy->size(100));
	policy->init(memory, 100);
	policy->report(memory, 100, &report);
	is(report.groups, 6, "a small cache has fewer groups");
	for (int buffers = 16; buffers < 200000; buffers += 1 + buffers / 7)
	{
		const double part = (double) count_shadow_pages(buffers) * shadow_sample(buffers) / buffers;

		alike = alike && part <= 1 && part > 0.9 - 16.0 / buffers;
	}
	is(alike, true, "a shadow is smaller by the factor of its sample");
}

/* Ranks of neighbours that leave, while buffers are ready and while they are lacking. */
static void
check_neighbours(void)
{
	begin(&pgscale_sweeper_policy_clock);
	is(policy->neighbour_rank(memory, false) * 10 + policy->neighbour_rank(memory, true), 2,
	   "the clock: twice used neighbours while buffers are lacking");
	begin(&pgscale_sweeper_policy_adaptive);
	is(policy->neighbour_rank(memory, false) * 10 + policy->neighbour_rank(memory, true), 4,
	   "a history: three quarters of the pages");
	policy->resume(memory, PGSCALE_SWEEPER_THE_CLOCK);
	is(policy->neighbour_rank(memory, true), 2, "the clock's counts while that is in force");
}

Datum
policy_steps(PG_FUNCTION_ARGS)
{
	initStringInfo(&lines);
	check_policy(&pgscale_sweeper_policy_clock);
	check_policy(&pgscale_sweeper_policy_history);
	check_policy(&pgscale_sweeper_policy_adaptive);
	check_history(&pgscale_sweeper_policy_history);
	check_history(&pgscale_sweeper_policy_adaptive);
	check_ranks();
	check_take_over();
	check_settling();
	check_sums();
	check_chance();
	check_shadows();
	check_neighbours();
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}
