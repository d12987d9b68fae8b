/*
 * The sweeper's policies, with buffers, pages and uses that are made up. policy_steps() returns a line for each check: "ok" or "not
 * ok", and its name.
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
#define HOT			200
#define MOVED		10000		/* the hot pages of later */
#define WARM		1000		/* a cycle of so many, and as many others, is longer than the cache */

static const PgscaleSweeperPolicy *policy;
static void *memory;
static uint32 held[BUFFERS];	/* pages */
static uint32 next_page;
static int	at = 0;				/* buffer of the hand */
static int64 visits = 0;
static uint8 ranks[BUFFERS];
static int	refused = 0;		/* of those that could leave */

static uint32
name_of(uint32 number)
{
	return number * 0x85EBCA6Bu + 1;
}

static void
begin(const PgscaleSweeperPolicy *of)
{
	policy = of;
	memory = palloc0(policy->size(BUFFERS));
	policy->init(memory, BUFFERS);
	next_page = 0;
	for (int buf = 0; buf < BUFFERS; buf++)
	{
		held[buf] = next_page++;
		policy->arrived(memory, buf, name_of(held[buf]), 1);
	}
	visits = refused = 0;
}

static bool
is_held(uint32 page)
{
	for (int buf = 0; buf < BUFFERS; buf++)
		if (held[buf] == page)
			return true;
	return false;
}

static void
use(uint32 page)
{
	for (int buf = 0; buf < BUFFERS; buf++)
		if (held[buf] == page)
			policy->used(memory, buf, name_of(page), 1);
}

/* The page comes in the place of one that the hand finds. */
static void
come(uint32 page)
{
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
	held[at] = page;
	policy->arrived(memory, at, name_of(page), 1);
}

/* So many pages come that are used once, while the hot ones are used, about as often as the hand comes to them. */
static void
scan(int pages, uint32 hot, int nhot)
{
	for (int i = 0; i < pages; i++)
	{
		uint32		page = hot + i % nhot;

		if (is_held(page))
			use(page);
		else
			come(page);
		come(next_page++);
	}
}

static int
count_held(uint32 hot)
{
	int			n = 0;

	for (int i = 0; i < HOT; i++)
		n += is_held(hot + i);
	return n;
}

static void
check_policy(const PgscaleSweeperPolicy *of)
{
	int			leaves = 0;
	int			back = 0;

	begin(of);
	next_page = 1000000;
	for (int i = 0; i < BUFFERS; i++)
		come(next_page++);
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
	is(leaves > 0, true, "others may leave");
	is(back > leaves / 2, true, "and stay when they are used");
	is(policy->header(memory, 0) >= 1 && policy->header(memory, 0) <= 3, true, "the server's hand leaves a page alone");
}

/* The hand goes round and round, and no buffer is needed. */
static void
check_idle(const PgscaleSweeperPolicy *of)
{
	int			may = 0;

	begin(of);
	for (int i = 0; i < 50 * BUFFERS; i++)
		may += policy->visit(memory, i % BUFFERS, false) == 0 && i >= 40 * BUFFERS;
	is(may > BUFFERS / 16, true, psprintf("%s: of pages that are all alike some may leave", of->name));
}

static void
check_history(const PgscaleSweeperPolicy *of)
{
	begin(of);
	next_page = 1000000;
	scan(20 * BUFFERS, 0, HOT);
	is(count_held(0) > HOT * 9 / 10, true, psprintf("%s: pages that come back stay, whatever else comes", of->name));
	is(refused, 0, "what may leave may do so a moment later");
	is(visits < (int64) 2 * 20 * BUFFERS * 32, true, "the hand passes some pages for each");
	scan(20 * BUFFERS, MOVED, HOT);
	is(count_held(MOVED) > HOT * 9 / 10, true, "others become the hot ones");
	is(count_held(0) < HOT / 2, true, "and the old ones leave");
}

/* Another policy takes the memory over. */
static void
take_over(const PgscaleSweeperPolicy *by)
{
	policy = by;
	policy->take_over(memory);
}

static void
check_fixed(void)
{
	PgscaleSweeperPolicyReport report;
	int			alike = 0;

	begin(&pgscale_sweeper_policy_clock);
	next_page = 1000000;
	scan(20 * BUFFERS, 0, WARM);
	policy->report(memory, BUFFERS, &report);
	is(report.choice, 0, "the clock stays the clock, where the history misses less");
	is(report.preferred > 0 && report.misses[report.preferred] < report.misses[0], true, "which its shadow caches show");
	is(report.chosen_misses, report.misses[0], "what it missed are the clock's misses");
	is(report.switches, 0, "it made no other choice");
	policy->visit(memory, 0, false);
	policy->used(memory, 0, name_of(held[0]), 2);
	is(policy->rank(memory, 0), count_of_page(memory, 0), "its ranks are counts");

	take_over(&pgscale_sweeper_policy_adaptive);
	policy->report(memory, BUFFERS, &report);
	is(report.choice == report.preferred && report.switches == 1, true, "adaptive takes over, and chooses at once");
	is(chose_clock(memory), false, "the history");
	scan(20 * BUFFERS, 0, HOT);
	is(count_held(0) > HOT * 9 / 10, true, "of which it goes on");

	take_over(&pgscale_sweeper_policy_history);
	policy->report(memory, BUFFERS, &report);
	is(report.half_lives[report.choice], 8, "a history has a half-life of 8");
	is(history_of(memory)->decay == 1 / (8.0f * BUFFERS), true, "by which it ages");
	for (int buf = 0; buf < BUFFERS; buf++)
		ranks[buf] = policy->rank(memory, buf);
	take_over(&pgscale_sweeper_policy_clock);
	for (int buf = 0; buf < BUFFERS; buf++)
		alike += policy->rank(memory, buf) == ranks[buf];
	is(alike, BUFFERS, "the clock begins with its ranks for counts");
	for (int buf = 0; buf < BUFFERS; buf++)
		policy->used(memory, buf, name_of(held[buf]), 5);
	take_over(&pgscale_sweeper_policy_clock);
	is(policy->rank(memory, 7), 5, "and keeps them if it is chosen again");
}

static int
choice(void)
{
	PgscaleSweeperPolicyReport report;

	policy->report(memory, BUFFERS, &report);
	return report.choice;
}

/* The choice does not change by what is seen while the sweeper catches up. */
static void
check_settling(void)
{
	PgscaleSweeperPolicyReport before;
	PgscaleSweeperPolicyReport after;

	begin(&pgscale_sweeper_policy_adaptive);
	next_page = 1000000;
	scan(20 * BUFFERS, 0, WARM);
	is(choice() > 0, true, "where pages come back, the history is chosen");
	policy->resume(memory, PGSCALE_SWEEPER_THE_CLOCK);
	take_over(policy);
	compare_candidates(memory);
	is(sum_missed(((Adaptive *) memory)->sums[0], PGSCALE_SWEEPER_THE_CLOCK, NO_OTHER) == 0, true, "what was seen before a pause is forgotten");
	policy->report(memory, BUFFERS, &before);
	scan(BUFFERS / 3, 0, WARM);
	policy->report(memory, BUFFERS, &after);
	is(after.misses[0] > before.misses[0], true, "what is seen after it is reported");
	is(choice(), PGSCALE_SWEEPER_THE_CLOCK, "but changes no choice for a turnover");
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

/*
 * Of ten pages that are used, nine never come back, which every candidate misses; the other one does, though
 * too late for the clock.  So the history misses a tenth less, and that is certain.
 */
static void
check_pairs(void)
{
	begin(&pgscale_sweeper_policy_adaptive);
	next_page = 1000000;
	policy->resume(memory, PGSCALE_SWEEPER_THE_CLOCK);
	for (int i = 0; i < 40 * BUFFERS; i++)
	{
		scan(1, i % HOT, 1);
		for (int n = 0; n < 8; n++)
			come(next_page++);
	}
	is(choice() > 0, true, "what all miss does not hide a small gain");
}

/* The candidates, as bits of those that miss. */
#define CLOCK	1
#define TWO		4
#define EIGHT	8
#define OTHERS	(2 | 16)

static void
set_sum(int s, int missed_by, float references)
{
	((Adaptive *) memory)->sums[s][missed_by | OTHERS] = references;
}

/* Sums of a memory that prefers a half-life of 8.  Which candidate is better? */
static int
chosen_of(int s, float clock, float two, float eight, float all, float clock_eight, float two_eight)
{
	set_sum(s, CLOCK, clock);
	set_sum(s, TWO, two);
	set_sum(s, EIGHT, eight);
	set_sum(s, CLOCK | TWO | EIGHT, all);
	set_sum(s, CLOCK | EIGHT, clock_eight);
	set_sum(s, TWO | EIGHT, two_eight);
	return best_candidate(memory, s);
}

static void
check_sums(void)
{
	begin(&pgscale_sweeper_policy_adaptive);
	is(chosen_of(0, 0, 0, 190, 10000, 0, 0), 3, "a gain of less than 2 % changes nothing");
	is(chosen_of(0, 0, 0, 0, 10000, 250, 0), 2, "more than 2 % does");
	is(chosen_of(1, 0, 0, 80, 1000, 0, 0), 3, "in a short time, less than 8 % changes nothing");
	is(chosen_of(1, 0, 0, 0, 1000, 100, 0), 2, "more than 8 % does");
	is(chosen_of(0, 100, 70, 100, 0, 0, 0), 3, "30 of 170 that differ are chance");
	is(chosen_of(1, 100, 70, 100, 0, 0, 0), 3, "also in a short time");
	is(chosen_of(0, 0, 0, 100, 0, 50, 0), 2, "of two candidates that are better the best is chosen, if it is the last");
	is(chosen_of(0, 0, 0, 100, 0, 0, 50), 0, "and if it is the first");
	is(chosen_of(0, 1469, 10, 0, 0, 70, 1530), 2, "one that is better for sure is chosen, though another one misses less by chance");
}

static void
check_groups(void)
{
	PgscaleSweeperPolicyReport report;
	uint64		clock = 0;
	uint64		chosen = 0;
	int			some = 0;

	begin(&pgscale_sweeper_policy_adaptive);
	next_page = 1000000;
	scan(20 * BUFFERS, 0, WARM);
	policy->report(memory, BUFFERS, &report);
	for (int g = 0; g < PGSCALE_SWEEPER_GROUPS; g++)
	{
		clock += report.clock_group[g];
		chosen += report.chosen_group[g];
		some += report.clock_group[g] > report.misses[0] / 32;
	}
	is(clock == report.misses[0] && chosen == report.chosen_misses, true, "the groups have all misses");
	is(some, PGSCALE_SWEEPER_GROUPS, "each its part");
	is(report.groups, PGSCALE_SWEEPER_GROUPS, "and are all of them");
	is(report.arrivals >= report.evictions && report.arrivals <= report.evictions + BUFFERS, true, "pages come and go");
	policy = &pgscale_sweeper_policy_clock;
	memory = palloc0(policy->size(100));
	policy->init(memory, 100);
	policy->report(memory, 100, &report);
	is(report.groups, 6, "a small cache has fewer groups");
}

/* The hand passes fewer buffers for each page, where it is to. */
static void
check_pass(const PgscaleSweeperPolicy *of)
{
	int64		at_most;

	begin(of);
	next_page = 1000000;
	scan(10 * BUFFERS, 0, HOT);
	visits = 0;
	scan(5 * BUFFERS, 0, HOT);
	at_most = visits;
	policy->pass(memory, 4);
	scan(5 * BUFFERS, 0, HOT);
	visits = 0;
	scan(5 * BUFFERS, 0, HOT);
	is(visits < at_most / 2, true, psprintf("%s: where pages leave fast, the hand passes fewer for each", of->name));
	is(count_held(0) > HOT * 9 / 10, true, "and those that come back stay");
}

static void
check_report(void)
{
	PgscaleSweeperPolicyReport report = {0};

	begin(&pgscale_sweeper_policy_adaptive);
	next_page = 1000000;
	scan(20 * BUFFERS, 0, WARM);
	policy->report(memory, BUFFERS, &report);
	is(report.choice > 0, true, "where pages come back, the history is chosen");
	is(report.misses[report.choice] < report.misses[0], true, "which misses less than the clock");
	is(report.evictions > BUFFERS && report.references > 1000, true, "evictions and uses are counted");
	is(report.chosen_misses >= report.misses[report.choice] && report.chosen_misses <= report.misses[0], true,
	   "what the choice missed lies between the two");
	is(report.half_lives[0], 0, "the clock has no half-life");
	is(report.half_lives[PGSCALE_SWEEPER_CANDIDATES - 1], 32, "the last one has");

	/* another policy has begun in the memory */
	memset(memory, 0xA5, policy->size(BUFFERS));
	policy->report(memory, BUFFERS, &report);
	is(report.evictions == UINT64CONST(0xA5A5A5A5A5A5A5A5), true, "a report of any memory is only wrong");
}

/* No page is used more often than others: no candidate is better. */
static void
check_chance(void)
{
	PgscaleSweeperPolicyReport report = {0};

	begin(&pgscale_sweeper_policy_adaptive);
	for (uint32 i = 0; i < 60 * BUFFERS; i++)
	{
		const uint32 page = (uint32) (((uint64) (name_of(i) ^ name_of(i) >> 15) * 0x9E3779B97F4A7C15 >> 40) % (4 * BUFFERS));

		if (is_held(page))
			use(page);
		else
			come(page);
	}
	policy->report(memory, BUFFERS, &report);
	is(report.switches <= 20, true, psprintf("where all are equal, the choice changes seldom, here %d times", (int) report.switches));
}

static void
check_shadows(void)
{
	bool		alike = true;

	for (int buffers = 16; buffers < 200000; buffers += 1 + buffers / 7)
	{
		const double part = (double) count_shadow_pages(buffers) * shadow_sample(buffers) / buffers;

		alike = alike && part <= 1 && part > 0.9 - 16.0 / buffers;
	}
	is(alike, true, "a shadow is smaller by the factor of its sample");
}

static int
neighbours(const PgscaleSweeperPolicy *of, bool lacking)
{
	if (of != policy)
		begin(of);
	return policy->neighbour_rank(memory, lacking);
}

/* By counts of uses under the clock; by parts of the pages, which have the ranks, under a history. */
static void
check_neighbours(void)
{
	policy = NULL;
	is(neighbours(&pgscale_sweeper_policy_clock, true), 2, "clock: neighbours that were used twice leave with a victim while buffers are lacking");
	is(neighbours(&pgscale_sweeper_policy_clock, false), 0, "while buffers are ready, only unused ones");
	is(neighbours(&pgscale_sweeper_policy_history, false), 0, "history: those that may leave in any case do");
	is(neighbours(&pgscale_sweeper_policy_history, true), 4, "three quarters do while buffers are lacking");
	is(neighbours(&pgscale_sweeper_policy_adaptive, false), 0, "adaptive, too: those that may");
	is(neighbours(&pgscale_sweeper_policy_adaptive, true), 4, "or three quarters");
	policy->resume(memory, PGSCALE_SWEEPER_THE_CLOCK);
	is(neighbours(&pgscale_sweeper_policy_adaptive, true), 2, "but by the clock's counts while that is in force");
}

Datum
policy_steps(PG_FUNCTION_ARGS)
{
	initStringInfo(&lines);
	check_policy(&pgscale_sweeper_policy_clock);
	check_policy(&pgscale_sweeper_policy_history);
	check_policy(&pgscale_sweeper_policy_adaptive);
	check_idle(&pgscale_sweeper_policy_history);
	check_idle(&pgscale_sweeper_policy_adaptive);
	check_history(&pgscale_sweeper_policy_history);
	check_history(&pgscale_sweeper_policy_adaptive);
	check_fixed();
	check_settling();
	check_pairs();
	check_sums();
	check_groups();
	check_pass(&pgscale_sweeper_policy_history);
	check_pass(&pgscale_sweeper_policy_adaptive);
	check_report();
	check_chance();
	check_shadows();
	check_neighbours();
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}
