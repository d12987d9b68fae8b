/*
 * What the sweep reports to its policy, and what it has the server's hand and the backends find: known_pages.c, observe.c and
 * both supplies, over buffers that are made up, with a policy that writes down what it hears. supply_steps() returns a line for
 * each check.
 */
#define BUFFERS		20000
#include "made_up_buffers.h"

#include "sweeper/known_pages.c"
#define left_to	freelist_left_to
#include "sweeper/supply/freelist.c"
#undef left_to
#include "sweeper/supply/window.c"
#define followed observe_followed
#include "sweeper/observe.c"
#undef followed

PG_FUNCTION_INFO_V1(supply_steps);

static StringInfoData heard;
static bool listens;
static uint8 ranks[BUFFERS];	/* by buffer of the share; by counts of uses, unless a test sets them */
static PgscaleSweeperShare *the_share;
static PgscaleSweeperPage the_pages[BUFFERS];
static char the_memory[BUFFERS];
static bool begins_while_read = false;
static int	most_looks;			/* that a tick has time for */
static int64 the_time = INT64CONST(1000000000);

/* What these files ask of others */
int64 pgscale_timer_clock(void) { return the_time; }
bool pgscale_sweeper_long_enough(int n) { return n >= most_looks; }
void pgscale_sweeper_set_forget(int buf) { }
int pgscale_sweeper_count(void) { return 1; }
PgscaleSweeperShare *pgscale_sweeper_share(int number) { return the_share; }

/* The policy. */

static void
hear(const char *format, int buf, int a, int b)
{
	if (listens)
	{
		appendStringInfo(&heard, "%s%d: ", heard.len > 0 ? "; " : "", buf);
		appendStringInfo(&heard, format, a, b);
	}
}

static void
hears(const char *want)
{
	const bool	ok = strcmp(heard.data, want) == 0;

	appendStringInfo(&lines, "%s it hears: %s", ok ? "ok" : "not ok", *want ? want : "nothing");
	if (!ok)
		appendStringInfo(&lines, ", but heard: %s", heard.data);
	appendStringInfoChar(&lines, '\n');
	resetStringInfo(&heard);
}

static Size heard_size(int buffers) { return buffers; }
static void heard_init(void *memory, int buffers) { hear("memory begins", ((char *) memory)[buffers - 1], 0, 0); }
static void heard_take_over(void *memory) { hear("memory is taken over", ((char *) memory)[0], 0, 0); }
static void heard_evicted(void *memory, int buf, uint32 page) { hear("%d evicted", buf, page, 0); }
static uint8 heard_rank(const void *memory, int buf) { return ranks[buf]; }
static uint8 heard_header(const void *memory, int buf) { return pgscale_sweeper_header_of_rank(ranks[buf]); }

static void
heard_arrived(void *memory, int buf, uint32 page, int uses)
{
	hear("%d arrived, %d", buf, page, uses);
	ranks[buf] = uses;
}

static void
heard_used(void *memory, int buf, uint32 page, int uses)
{
	hear("%d used %d", buf, page, uses);
	ranks[buf] = Min(ranks[buf] + uses, PGSCALE_MAX_USAGE);
}

static uint8
heard_visit(void *memory, int buf, bool kept)
{
	hear("visit", buf, 0, 0);
	return ranks[buf];
}

static void
heard_report(const void *memory, int buffers, PgscaleSweeperPolicyReport *report)
{
	if (begins_while_read)
	{
		the_share->policy = PGSCALE_SWEEPER_NO_POLICY;
		pgscale_sweeper_policy_begin(the_share, PGSCALE_SWEEPER_HISTORY);
	}
}

static const PgscaleSweeperPolicy heard_policy = {
	.name = "heard",
	.size = heard_size,
	.init = heard_init,
	.take_over = heard_take_over,
	.arrived = heard_arrived,
	.used = heard_used,
	.evicted = heard_evicted,
	.rank = heard_rank,
	.visit = heard_visit,
	.header = heard_header,
	.report = heard_report
};

const PgscaleSweeperPolicy *const pgscale_sweeper_policies[PGSCALE_SWEEPER_POLICIES] = {
	&heard_policy, &heard_policy, &heard_policy
};

/* A share of those buffers; buffer N has page 10000 + N with that count, and the server's hand is at buffer 0. */
static void
begin(int policy, int first, int buffers, int count)
{
	at_look = NULL;
	most_looks = PG_INT32_MAX;
	listens = false;
	memset(the_share, 0, offsetof(PgscaleSweeperShare, runs));
	the_share->first = first;
	the_share->buffers = buffers;
	the_share->pages = the_pages;
	the_share->policy_memory = the_memory;
	the_share->stack_size = 100;
	the_share->stack_used = 0;
	memset(the_memory, 1, sizeof(the_memory));
	memset(the_pages, 1, sizeof(the_pages));
	the_share->policy = PGSCALE_SWEEPER_NO_POLICY;
	pgscale_sweeper_policy_begin(the_share, policy);
	for (int buf = 0; buf < BUFFERS; buf++)
		hold(buf, 10000 + buf, count);
	server_hand += BUFFERS - server_hand % BUFFERS;
	listens = buffers < 1000;
	resetStringInfo(&heard);
}

/* The hand goes on as in StrategyGetBuffer(), until it has passed so many buffers or has found so many. */
static int	found_by_hand;

static void
hand_goes(int passes, int finds)
{
	for (int i = 0; i < passes && finds > 0; i++)
	{
		const int	buf = (int) (server_hand++ % BUFFERS);

		if (BUF_STATE_GET_REFCOUNT(pgscale_compat_state_read(&descs[buf].state)) != 0)
			continue;
		if (usage(buf) > 0)
			set_usage(buf, usage(buf) - 1);
		else
		{
			hold(buf, page_in(buf) + 100000, 1);
			found_by_hand++;
			finds--;
		}
	}
}

/* What the headers show. */

/* Buffer 105 is seen with that page and count. */
static int
see(BlockNumber block, int count, int expected, bool hand_ages)
{
	PgscaleBuffer look;
	PgscalePage page;

	if (block != page_in(105) || count != usage(105))
		hold(105, block, count);
	(void) pgscale_buffer_read(105, &look, &page);
	return pgscale_sweeper_page_seen(the_share, 105, &look, &page, expected, hand_ages);
}

/* A backend locks the header to put another page there. */
static void
page_changes(void)
{
	set_flag(105, BM_LOCKED, true);
	in_read = NULL;
}

static void
check_seen(void)
{
	static const struct
	{
		int			block, count, expected;
		bool		hand_ages;
		PgscaleSweeperNews news;
		const char *hears;
	}			cases[] = {
		{7, 3, 0, false, PGSCALE_PAGE_FIRST_SEEN, "5: 7 arrived, 3"},
		{7, 3, 3, false, PGSCALE_PAGE_NOT_USED, ""},
		{7, 5, 3, false, PGSCALE_PAGE_USED, "5: 7 used 2"},
		{7, 2, 5, false, PGSCALE_PAGE_LOWERED, ""},
		{7, 0, 2, true, PGSCALE_PAGE_LOWERED, "5: visit; 5: visit"},
		{9, 1, 0, true, PGSCALE_PAGE_REPLACED, "5: 7 evicted; 5: 9 arrived, 1"},
		/* the hand has found it unused since, so it has passed once */
		{10, 0, 1, true, PGSCALE_PAGE_REPLACED, "5: 9 evicted; 5: 10 arrived, 0; 5: visit"}
	};

	begin(PGSCALE_SWEEPER_HISTORY, 100, 800, 0);
	for (int i = 0; i < lengthof(cases); i++)
	{
		is(see(cases[i].block, cases[i].count, cases[i].expected, cases[i].hand_ages), cases[i].news,
		   psprintf("page %d, count %d, expected %d: the news", cases[i].block, cases[i].count, cases[i].expected));
		is(the_pages[5].left == cases[i].count && the_pages[5].hash == cases[i].block, true, "which is noted");
		hears(cases[i].hears);
	}
	pgscale_sweeper_page_left(the_share, 105);
	pgscale_sweeper_page_left(the_share, 105);
	hears("5: 10 evicted");
	(void) see(11, 0, 0, false);
	hears("5: 11 arrived, 0");
	the_pages[5].kept = true;
	is(pgscale_sweeper_rank(the_share, 105) + 10 * pgscale_sweeper_header(the_share, 105), 31,
	   "a kept page ranks one, and is left alone");
	(void) see(12, 0, 0, false);
	is(the_pages[5].kept, false, "another one in its place is not kept");
	in_read = page_changes;
	{
		PgscaleBuffer look;
		PgscalePage page;

		is(pgscale_buffer_read(105, &look, &page), false, "a name is not read while it is written");
	}
	set_flag(105, BM_LOCKED, false);
}

static void
check_memory(void)
{
	PgscaleSweeperPolicyReport report = {0};
	uint32		begun;

	begin(PGSCALE_SWEEPER_HISTORY, 100, 800, 0);
	(void) see(7, 1, 0, false);
	the_pages[5].followed = the_pages[5].offered = the_pages[5].passed = true;
	resetStringInfo(&heard);
	pgscale_sweeper_pages_init(the_share);
	is(the_pages[5].followed + the_pages[5].offered + the_pages[5].passed, 0, "to a new process nothing is on offer");
	hears("0: memory is taken over");
	is(see(7, 2, 1, true), PGSCALE_PAGE_USED, "and pages are known");
	is(pgscale_sweeper_policy_report(the_share, &report, &begun) && begun == the_share->policy_begun, true,
	   "a policy reports what it has");
	begins_while_read = true;
	is(pgscale_sweeper_policy_report(the_share, &report, &begun), false, "nothing if another one begins meanwhile");
	begins_while_read = false;
	is(the_pages[5].known, false, "which knows no page");
	(void) see(7, 1, 0, false);
	resetStringInfo(&heard);
	the_memory[0] = 7;
	pgscale_sweeper_policy_begin(the_share, PGSCALE_SWEEPER_CLOCK);
	hears("7: memory is taken over");
	is(the_share->policy_begun == begun && the_pages[5].known, true, "another policy goes on with the memory and the pages");
}

/* The freelist. */

#if PGSCALE_FREELIST

/* The sweep comes to a buffer, and its page has that rank: what count does the header have then? */
static int
shown(int buf, uint8 rank)
{
	PgscaleBuffer look;
	PgscalePage page;

	(void) pgscale_buffer_read(buf, &look, &page);
	(void) freelist_rank_page(the_share, buf, &look, &page);
	ranks[buf - the_share->first] = rank;
	freelist_show(the_share, buf, &look);
	return usage(buf);
}

static bool
offers(int buf, BlockNumber block, uint8 max_rank)
{
	const PgscalePage page = page_of(block);

	return freelist_offer(the_share, buf, &page, max_rank);
}

/* Which buffers may be put on the list */
static void
check_supplied(void)
{
	static const struct
	{
		const char *what;
		PgscaleBufferState flag;
		BlockNumber block;
		int			most;
		bool		supplied;
	}			cases[] = {
		{"pinned", BUF_REFCOUNT_ONE, 7, 5, false}, {"dirty", BM_DIRTY, 7, 5, false},
		{"waited for", BM_PIN_COUNT_WAITER, 7, 5, false}, {"used more", 0, 7, 1, false}, {"of another page", 0, 8, 5, false},
		{"unused enough", 0, 7, 2, true}, {"there already", 0, 7, 5, false}
	};

	begin(PGSCALE_SWEEPER_CLOCK, 100, 800, 0);
	hold(110, 7, 2);
	for (int i = 0; i < lengthof(cases); i++)
	{
		const PgscalePage page = page_of(cases[i].block);

		set_flag(110, cases[i].flag, true);
		is(pgscale_buffer_supply(110, &page, cases[i].most), cases[i].supplied, psprintf("a buffer that is %s", cases[i].what));
		is(pgscale_buffer_listed(110) == (i >= 5) && usage(110) == (i >= 5 ? 0 : 2), true,
		   "is on the list without a count, or as it was");
		set_flag(110, cases[i].flag, false);
	}
}

static void
check_headers(void)
{
	static const struct
	{
		int			policy, dirty, rank, count;
	}			cases[] = {
		{PGSCALE_SWEEPER_CLOCK, false, 4, 4}, {PGSCALE_SWEEPER_CLOCK, false, 0, 0}, {PGSCALE_SWEEPER_CLOCK, true, 0, 1},
		{PGSCALE_SWEEPER_CLOCK, true, 3, 3}, {PGSCALE_SWEEPER_HISTORY, false, 5, 1}, {PGSCALE_SWEEPER_HISTORY, false, 0, 0},
		{PGSCALE_SWEEPER_HISTORY, true, 0, 1}, {PGSCALE_SWEEPER_HISTORY, true, 5, 1}
	};

	for (int i = 0; i < lengthof(cases); i++)
	{
		begin(cases[i].policy, 100, 800, 2);
		set_flag(110, BM_DIRTY, cases[i].dirty);
		is(shown(110, cases[i].rank), cases[i].count, psprintf("the count of rank %d, policy %d, dirty %d", cases[i].rank,
		   cases[i].policy, cases[i].dirty));
		resetStringInfo(&heard);
		(void) shown(110, cases[i].rank);
		hears("");
	}
	set_usage(110, 3);
	(void) shown(110, 5);
	hears("10: 10110 used 2");

	/* A header that changes meanwhile is left. */
	{
		PgscaleBuffer look;

		pgscale_buffer_look(110, &look);
		set_flag(110, BM_DIRTY, false);
		set_usage(110, 4);
		freelist_show(the_share, 110, &look);
		is(usage(110), 4, "a header that has changed meanwhile is left");
		set_flag(110, BM_DIRTY, true);
	}

	/* While the stock lasts the guard raises a dirty page of the share that the server's hand has taken down; that is no use of it. */
	for (int ready = 0; ready < 3; ready++)
	{
		set_usage(110, 0);
		hold(99, 5, 0);
		set_flag(99, BM_DIRTY, true);
		hold(5000, 6, 0);
		pgscale_compat_list(&descs[5000]);
		server_hand += 200;
		the_share->ready = ready;
		the_share->low = 1;
		the_share->stuck = ready == 2;
		shielded = PG_INT64_MIN;
		freelist_guard(the_share);
		is(usage(110) + 10 * usage(99), ready == 1,
		   psprintf("dirty pages of the share are kept from bgwriter while the stock lasts: %d", ready));
	}
}

/* What is on top of the list is taken: its buffer has another page. */
static void
taken_from_list(int buf)
{
	hold(buf, page_in(buf) + 100, 1);
}

static void
check_offers(void)
{
	begin(PGSCALE_SWEEPER_HISTORY, 100, 800, 4);
	(void) shown(120, 2);
	(void) shown(121, 2);
	is(offers(120, 10120, 1), false, "a page of a higher rank is not offered");
	is(offers(120, 8, 2), false, "nor another one than is meant");
	is(offers(120, 10120, 2), true, "one of that rank is");
	is(usage(120), 0, "which has no count from then on");
	is(offers(120, 10120, 5), false, "it is offered once");
	is(offers(121, 10121, 5), true, "another one");
	is(offers(99, 10099, 2), false, "of other shares none that was used: a header has no rank");
	set_usage(99, 0);
	is(offers(99, 10099, 2), true, "but others");
	is(freelist_ready(the_share), 3, "three are ready");
	set_usage(121, 1);
	is(freelist_ready(the_share), 2, "two if one was used");
	set_usage(121, 0);
	set_flag(121, BUF_REFCOUNT_ONE, true);
	is(freelist_ready(the_share), 2, "or is pinned");
	set_flag(121, BUF_REFCOUNT_ONE, false);
	the_share->stack_size = 3;
	is(freelist_full(the_share) && !offers(122, 10122, 5), true, "no more than there is room for");
	the_share->stack_size = 100;

	/* The last three are taken, and the sweep sees one page before that is known. */
	resetStringInfo(&heard);
	taken_from_list(99);
	taken_from_list(121);
	taken_from_list(120);
	(void) shown(121, 1);
	hears("21: 10121 evicted; 21: 10221 arrived, 1");
	is(freelist_follow(the_share), true, "there is demand");
	hears("20: 10120 evicted");
	is(the_share->counts.consumed + 10 * the_share->counts.reused, 3, "three were taken");
	is(the_share->counts.starved, 1, "and nothing is there");

	/* One is used again, and a backend drops it from the list. */
	(void) shown(120, 1);
	is(offers(120, 10220, 2), true, "it is offered");
	is(freelist_follow(the_share), false, "no demand");
	set_usage(120, 1);
	take_off_list(120);
	resetStringInfo(&heard);
	(void) freelist_follow(the_share);
	is(the_share->counts.consumed + 10 * the_share->counts.reused, 13, "and used again");
	hears("");
	(void) shown(120, 2);
	hears("20: 10220 used 1");

	/* One is used again, and waits on the list below others: the sweep ages it, and it is ready again when it may leave. */
	is(offers(120, 10220, 2) && offers(122, 10122, 4), true, "two are offered");
	the_share->counts.reused = 0;
	is(offers(120, 10220, 5), false, "as long as it was not used, it is ready");
	resetStringInfo(&heard);
	set_usage(120, 3);
	is(shown(120, 2), 1, "when it was used, the sweep sees it as any other page");
	hears("20: 10220 used 3");
	is(offers(120, 10220, 1), false, "it is not offered before it may leave");
	set_flag(120, BM_DIRTY, true);
	is(offers(120, 10220, 2), false, "nor while it is dirty");
	set_flag(120, BM_DIRTY, false);
	set_flag(120, BUF_REFCOUNT_ONE, true);
	is(offers(120, 10220, 2), false, "or pinned");
	set_flag(120, BUF_REFCOUNT_ONE, false);
	is(offers(120, 10220, 2) && usage(120) == 0, true, "then it is, where it is");
	is(the_share->stack_used, 2, "the list has it once");
	is(the_share->counts.reused, 1, "and it counts as used again");
	taken_from_list(122);
	(void) freelist_follow(the_share);
	resetStringInfo(&heard);
	take_off_list(120);
	set_flag(120, BM_VALID, false);
	(void) freelist_follow(the_share);
	hears("20: 10220 evicted");
}

static void
check_freelist_left(void)
{
	begin(PGSCALE_SWEEPER_HISTORY, 100, 800, 0);
	for (int buf = 100; buf < 900; buf++)
	{
		(void) shown(buf, 5);
		ranks[buf - 100] = buf % 6;
	}
	pgscale_compat_list(&descs[101]);
	set_usage(101, 0);
	pgscale_compat_list(&descs[105]);
	set_flag(102, BM_DIRTY, true);
	ranks[2] = 0;
	(void) freelist_follow(the_share);
	most_looks = 500;
	is(freelist_leave(the_share), false, "headers are given their ranks in pieces");
	is(usage(599) == 599 % 6 && usage(605) == 1, true, "some in a tick");
	is(freelist_leave(the_share), true, "the others in the next one");
	is(usage(605), 5, "all of them");
	is(usage(101), 0, "except what is ready on the list");
	is(usage(105), 105 % 6, "what is there, and was used, has its rank");
	is(usage(102), 0, "a dirty page, too: bgwriter may write it now");
	set_usage(605, 3);
	is(freelist_leave(the_share) && usage(605) == 3, true, "once is enough");
	(void) freelist_follow(the_share);
	is(freelist_leave(the_share), false, "until it works again");
	begin(PGSCALE_SWEEPER_CLOCK, 100, 800, 2);
	(void) shown(105, 2);
	ranks[5] = 4;
	(void) freelist_follow(the_share);
	is(freelist_leave(the_share) && usage(105) == 2, true, "under the clock headers have their counts already");
	the_share->policy = PGSCALE_SWEEPER_HISTORY;
	the_share->observing = true;
	is(freelist_leave(the_share) && usage(105) == 2, true, "and while it only watches, the server's");
}

#endif							/* PGSCALE_FREELIST */

/* The window. */

/* It is entered by a share whose pages have that count, except the last ones, which nobody uses. */
static void
enter(int first, int buffers, int count, int unused)
{
	begin(PGSCALE_SWEEPER_CLOCK, first, buffers, count);
	the_share->high = unused;
	entered = false;
	offered = 0;
	for (int buf = first + buffers - unused; buf < first + buffers; buf++)
		set_usage(buf, 0);
	(void) window_follow(the_share);
	looks = found_by_hand = 0;
	the_share->counts.supplied_clean = 0;
	resetStringInfo(&heard);
}

static const char *
counts_of(int from, int to)
{
	StringInfoData said;

	initStringInfo(&said);
	for (int buf = from; buf <= to; buf++)
		appendStringInfo(&said, "%d", usage(buf));
	return said.data;
}

static bool
window_offers(int buf, uint8 max_rank)
{
	const PgscalePage page = page_of(page_in(buf));

	return window_offer(the_share, buf, &page, max_rank);
}

static void
check_window(void)
{
	PgscalePage other = page_of(1);

	/* At 190 on are unused pages: the first one is dirty, the second one is pinned. */
	begin(PGSCALE_SWEEPER_CLOCK, 100, 100, 5);
	entered = false;
	offered = 0;
	the_share->high = 4;
	for (int buf = 190; buf < 200; buf++)
		set_usage(buf, 0);
	set_flag(190, BM_DIRTY, true);
	set_flag(191, BUF_REFCOUNT_ONE, true);
	(void) window_follow(the_share);
	is(window_ready(the_share), 4, "as much is on offer as is wanted");
	is(the_share->counts.supplied_clean, 4, "and counts as supplied");
	same(counts_of(188, 199), "551000001111", "the hand shall pass others, also dirty ones");

	/* The hand passes all of them, when one of them was used: it takes the others. */
	set_flag(191, BUF_REFCOUNT_ONE, false);
	set_usage(193, 1);
	set_usage(150, 1);
	set_usage(151, 3);
	resetStringInfo(&heard);
	hand_goes(PGSCALE_SWEEPER_HAND_LAG + 200, BUFFERS);
	(void) window_follow(the_share);
	is(the_share->counts.consumed + 10 * the_share->counts.reused, 13, "three were taken, one was used");
	is(window_ready(the_share), 0, "nothing is on offer");
	same(counts_of(188, 199), "331111111111", "the hand finds no others, three times at most");
	is(window_offers(188, 4), false, "no page is offered whose rank is higher");
	is(window_offer(the_share, 188, &other, 5), false, "nor another one than is meant");
	is(window_offers(90, 5), false, "nor of another share");
	set_flag(188, BM_DIRTY, true);
	is(window_offers(188, 5), false, "nor a dirty one");
	set_flag(188, BM_DIRTY, false);
	set_flag(188, BUF_REFCOUNT_ONE, true);
	is(window_offers(188, 5), false, "nor one that is pinned");
	set_flag(188, BUF_REFCOUNT_ONE, false);
	is(window_offers(188, 5) && usage(188) == 0 && window_ready(the_share) == 1, true, "others are");
	is(window_offers(188, 5), false, "once");
	most_looks = 50;
	is(window_leave(the_share), false, "leaving takes more than a tick");
	is(window_leave(the_share) && !entered, true, "or two");
	same(counts_of(188, 199), "050111110000", "it leaves the ranks as counts, except of what is on offer");
	is(window_ready(the_share) + the_pages[5].followed + the_pages[5].passed, 0, "of which there is none, and nothing is followed");

	/* Where clean pages leave, a sweep that is behind the hand goes there. */
	server_hand += BUFFERS - server_hand % BUFFERS + 150;
	is(window_onward(the_share, 60, 0) == 60 && window_onward(the_share, 40, 0) == 50, true, "the sweep is ahead of the hand");
	is(window_onward(the_share, 40, 0.5), 40, "unless most victims are dirty");
}

static void
hand_runs(void)
{
	if (found_by_hand == 0)
		hand_goes(4, 1);
}

static void
check_guard(void)
{
	int64		from;

	enter(0, BUFFERS, 3, 0);
	window_guard(the_share);
	is(the_share->counts.supplied_clean == 1 && usage(0) == 0, true, "nothing is on offer: the first one is yielded");
	/* one to be yielded: clean pages before dirty ones that were used once less, but not twice; none that is pinned */
	for (int used = 1; used <= 2; used++)
	{
		enter(0, BUFFERS, 3, 0);
		ranks[60] = used;
		ranks[61] = 0;
		set_flag(61, BM_DIRTY, true);
		ranks[59] = 0;
		set_flag(59, BUF_REFCOUNT_ONE, true);
		window_guard(the_share);
		same(counts_of(59, 62), used == 1 ? "3033" : "3303", "what is used least is yielded");
		is(the_share->counts.supplied_clean, used == 1, "and only a clean one is supply");
	}
	window_guard(the_share);
	same(counts_of(59, 62), "3303", "one is enough");
	is(window_follow(the_share) && the_share->counts.starved == 2, true, "nothing was on offer");
	ranks[80] = 0;
	is(window_offers(80, 0), true, "then a clean page is offered");
	window_guard(the_share);
	is(usage(61) > 0 && usage(80) == 0, true, "and the dirty one is taken back");

	enter(0, BUFFERS, 3, 0);
	from = server_hand;
	at_look = hand_runs;
	window_guard(the_share);
	is(server_hand - from > YIELD_LEAST, true, "the hand runs past what is yielded");
	at_look = NULL;
	hand_goes(BUFFERS, 1);
	is(server_hand - from < BUFFERS, true, "and finds others ahead of it, before it comes round");

	enter(0, BUFFERS, 3, 0);
	the_share->taken = 1000;
	most_looks = 600;
	window_guard(the_share);
	is(the_share->counts.supplied_clean, Min(GUARD_AHEAD, BUFFERS / 4) / YIELD_TIMES,
	   "many are needed, and the time is short: they are yielded");
	is(looks <= 2 * (most_looks + 1), true, "within what it allows");

	enter(0, BUFFERS, 3, 0);
	set_flag(100, BM_VALID | BM_TAG_VALID, false);
	set_usage(100, 0);
	window_guard(the_share);
	is(the_share->counts.supplied_clean, 0, "an empty buffer is supply: nothing is yielded");
	set_usage(100, 1);
	window_guard(the_share);
	is(the_share->counts.supplied_clean, 1, "one that the hand will pass is not");

	/* Dirty pages that were yielded far ahead of a fast hand are taken back, too. */
	enter(0, BUFFERS, 3, 0);
	for (int buf = 0; buf < BUFFERS; buf++)
		set_flag(buf, BM_DIRTY, true);
	the_share->taken = 100;
	at_look = hand_runs;
	window_guard(the_share);
	at_look = NULL;
	(void) window_follow(the_share);
	the_share->taken = 0;
	set_flag((int) (server_hand % BUFFERS), BM_DIRTY, false);
	is(window_offers((int) (server_hand % BUFFERS), 5), true, "one is offered after a fast hand");
	window_guard(the_share);
	from = 0;
	for (int buf = 0; buf < BUFFERS; buf++)
		from += is_dirty(buf) && usage(buf) == 0;
	is(from, 0, "the hand shall pass all dirty pages");
}

static void
check_demand(void)
{
	enter(0, BUFFERS, 3, 10);
	is(window_follow(the_share), false, "ten are on offer and the hand stands: no demand");
	hand_goes(BUFFERS / 4, BUFFERS);
	most_looks = 100;
	is(window_follow(the_share) && window_follow(the_share), true, "it moves: demand, as long as it was not followed");
	most_looks = PG_INT32_MAX;
	is(window_follow(the_share), false, "and no longer");
	is(the_share->counts.starved, 0, "there was always something");
	enter(BUFFERS / 2, BUFFERS / 2, 3, 10);
	is(window_follow(the_share), false, "it stands in another share: no demand");
	hand_goes(1, BUFFERS);
	is(window_follow(the_share), true, "it moves there: demand in all");

	/* Ten were taken in a tick, which is remembered. */
	enter(0, BUFFERS, 3, 0);
	for (int buf = 0; buf < 10; buf++)
		set_usage(buf, 0);
	hand_goes(200, BUFFERS);
	(void) window_follow(the_share);
	is(the_share->taken, 10, "what was taken in a tick");
	(void) window_follow(the_share);
	is(the_share->taken, 9.5, "is remembered, a little less each time");
}

static void
check_behind(void)
{
	int			some = 0;

	enter(0, BUFFERS, 5, 0);
	most_looks = 100;
	listens = true;
	for (int i = 0; i < 2 * BUFFERS / 1000; i++)
	{
		hand_goes(1000, BUFFERS);
		(void) window_follow(the_share);
	}
	most_looks = PG_INT32_MAX;
	(void) window_follow(the_share);
	hears("");
	for (int buf = 0; buf < BUFFERS; buf++)
		some += usage(buf) == 5;
	is(some, 0, "the hand has gone round twice and was followed for a tenth: no page is older, and counts are signals");
	most_looks = 7000;
	is(window_leave(the_share), false, "leaving takes more than a tick");
	is(usage((int) (server_hand % BUFFERS)) == 5 && usage((int) ((server_hand + 7000) % BUFFERS)) < 5, true,
	   "it begins at the hand");
	most_looks = PG_INT32_MAX;
	(void) window_follow(the_share);
	is(window_leave(the_share), true, "it works again before that is done, and leaves again");
	for (int buf = 0; buf < BUFFERS; buf++)
		some += usage(buf) == 5;
	is(some, BUFFERS, "then all have their counts");
}

/* While it watches. */

/* A tick so many milliseconds later. Nothing may be written to the buffers. */
static bool
tick(int ms)
{
	static BufferDesc before[BUFFERS];
	bool		hurries;

	the_time += ms * INT64CONST(1000000);
	memcpy(before, descs, sizeof(descs));
	hurries = pgscale_sweeper_observe(the_share);
	if (memcmp(before, descs, sizeof(descs)) != 0)
		is(true, false, "no header is written");
	return hurries;
}

static void
lap(void)
{
	for (int i = 0; i < 2; i++)
	{
		hand_goes(BUFFERS / 2, BUFFERS);
		(void) tick(0);
	}
}

/* A share of the four buffers from 100 on.  The hand is before it, and has not been observed for a long time. */
static void
begin_observing(void)
{
	begin(PGSCALE_SWEEPER_CLOCK, 100, 4, 0);
	the_share->observing = true;
	set_usage(100, 2);
	set_usage(102, 5);
	set_usage(103, 1);
	(void) tick(100000);
}

static void
check_observed(void)
{
	begin_observing();
	hand_goes(164, BUFFERS);
	(void) tick(0);
	hears("");
	hand_goes(1, BUFFERS);
	(void) tick(0);
	hears("0: 10100 arrived, 1");
	hand_goes(10, BUFFERS);
	(void) tick(0);
	hears("1: 110101 arrived, 1; 2: 10102 arrived, 4; 3: 10103 arrived, 0; 3: visit");

	/* In the next lap uses are the growth and one for the pass, except where a pin keeps the hand away. */
	set_usage(100, 2);
	set_flag(101, BUF_REFCOUNT_ONE, true);
	set_usage(102, 5);
	lap();
	hears("0: 10100 used 1; 0: visit; 2: 10102 used 1; 2: visit; 3: 10103 evicted; 3: 110103 arrived, 1");
	set_flag(101, BUF_REFCOUNT_ONE, false);
	set_flag(101, BM_LOCKED, true);
	lap();
	hears("0: visit; 1: 110101 evicted; 2: visit; 3: visit");
	set_flag(101, BM_LOCKED, false);
	set_usage(101, 2);
	set_usage(100, 1);
	lap();
	hears("0: 10100 used 1; 0: visit; 1: 110101 arrived, 1; 2: visit; 3: 110103 evicted; 3: 210103 arrived, 1");
	is(the_share->counts.observed, 16, "each visit is counted");
}

static void
check_windows(void)
{
	begin_observing();
	for (int i = 0; i < 12; i++)
		lap();
	is(the_share->counts.observed, 32, "a window ends after eight laps");
	resetStringInfo(&heard);
	hand_goes(BUFFERS, BUFFERS);
	is(tick(0), false, "then it need not hurry");
	hears("");
	is(the_share->counts.unobserved, 0, "what the hand passes is not observed, which is counted later");
	(void) tick(1);
	is(the_share->counts.unobserved / 4, 4, "when another window begins, as visits are allowed again");

	/* In its first lap counts show no uses, because passes of the hand were not seen; in the second one they do. */
	for (int buf = 100; buf < 104; buf++)
		hold(buf, buf < 103 ? the_pages[buf - 100].hash : 1, 5);
	the_pages[3].hash = 2;
	resetStringInfo(&heard);
	lap();
	hears("0: visit; 1: visit; 2: visit; 3: 2 evicted; 3: 1 arrived, 4");
	set_usage(103, 5);
	lap();
	hears("0: visit; 1: visit; 2: visit; 3: 1 used 1; 3: visit");
	is(the_share->sight.seen == the_share->counts.observed && the_share->sight.missed == 0, true,
	   "pauses are not part of a window");
	hand_goes(2 * BUFFERS + 200, BUFFERS);
	(void) tick(0);
	hears("");
	is(the_share->sight.missed > 0 && the_share->sight.missed < 2.5 * the_share->buffers, true,
	   "a hand that outruns the ticks ends the window");
	(void) tick(2000);
	is(the_share->counts.unobserved / 4, 4, "what passes where no tick comes is not missed");
}

static void
check_pace(void)
{
	begin_observing();
	hand_goes(BUFFERS / 8, BUFFERS);
	is(tick(100), false, "a hand that needs eight ticks for a lap is followed at leisure");
	hand_goes(BUFFERS / 8 + 1, BUFFERS);
	is(tick(100), true, "a faster one needs more ticks");
	hand_goes(BUFFERS / 8 / 20, BUFFERS);
	is(tick(4), true, "as long as it is that fast");
	hand_goes(BUFFERS / 8 / 25, BUFFERS);
	is(tick(4), false, "and no longer");
}

Datum
supply_steps(PG_FUNCTION_ARGS)
{
	initStringInfo(&lines);
	initStringInfo(&heard);
	the_share = palloc0(offsetof(PgscaleSweeperShare, stack) + 100 * sizeof(PgscaleSweeperSupplied));
	check_seen();
	check_memory();
#if PGSCALE_FREELIST
	check_supplied();
	check_headers();
	check_offers();
	check_freelist_left();
#endif
	check_window();
	check_guard();
	check_demand();
	check_behind();
	check_observed();
	check_windows();
	check_pace();
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}
