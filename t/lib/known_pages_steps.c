/*
 * What the sweeper reports to its policy, and what it has the server's hand find, step by step: with a policy that only writes
 * down what it hears, and one buffer after another that is made up. known_pages_steps() returns a line for each check: "ok" or "not
 * ok", and its name.
 */
#include "postgres.h"

#include <math.h>

#include "common/pg_prng.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "steps.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(known_pages_steps);

#define BUFFERS		1000
#define NBuffers	BUFFERS

#include "sweeper/known_pages.c"
#include "sweeper/supply/freelist.c"
#include "steps_pages.h"

/* The policy: ranks are what a test says. */

static StringInfoData heard;
static uint8 ranks[BUFFERS];
static PgscaleSweeperShare the_share;
static PgscaleSweeperPage the_pages[BUFFERS];
static char the_memory[BUFFERS];
static bool begins_while_read = false;
static uint64 reports = 0;

static Size
heard_size(int buffers)
{
	return buffers;
}

static void
heard_init(void *memory, int buffers)
{
	appendStringInfo(&heard, "init %d; ", ((char *) memory)[buffers - 1]);
}

static void
heard_take_over(void *memory)
{
	appendStringInfo(&heard, "take over %d; ", ((char *) memory)[0]);
}

static void
heard_arrived(void *memory, int buf, uint32 page, int uses)
{
	appendStringInfo(&heard, "%d: %u arrived, %d; ", buf, page, uses);
}

static void
heard_used(void *memory, int buf, uint32 page, int uses)
{
	appendStringInfo(&heard, "%d: %u used %d; ", buf, page, uses);
}

static void
heard_evicted(void *memory, int buf, uint32 page)
{
	appendStringInfo(&heard, "%d: %u evicted; ", buf, page);
}

static uint8
heard_rank(const void *memory, int buf)
{
	return ranks[buf];
}

static uint8
heard_visit(void *memory, int buf, bool kept)
{
	appendStringInfo(&heard, "%d: visit; ", buf);
	return ranks[buf];
}

static uint8
heard_header(const void *memory, int buf)
{
	return pgscale_sweeper_header_of_rank(ranks[buf]);
}

static void
heard_report(const void *memory, int buffers, PgscaleSweeperPolicyReport *report)
{
	memset(report, 0, sizeof(PgscaleSweeperPolicyReport));
	report->evictions = 42;
	report->misses[0] = 10 * ++reports;
	report->chosen_misses = 3 * reports;
	if (begins_while_read)
	{
		the_share.policy = PGSCALE_SWEEPER_NO_POLICY;
		pgscale_sweeper_policy_begin(&the_share, PGSCALE_SWEEPER_HISTORY);
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
	[PGSCALE_SWEEPER_CLOCK] = &heard_policy,
	[PGSCALE_SWEEPER_HISTORY] = &heard_policy,
	[PGSCALE_SWEEPER_ADAPTIVE] = &heard_policy
};

static void
hears(const char *want, const char *name)
{
	bool		ok;

	/* without the last "; " */
	if (heard.len > 0)
		heard.data[heard.len -= 2] = '\0';
	ok = strcmp(heard.data, want) == 0;
	appendStringInfo(&lines, "%s %s", ok ? "ok" : "not ok", name);
	if (!ok)
		appendStringInfo(&lines, ": %s instead of %s", heard.data, want);
	appendStringInfoChar(&lines, '\n');
	resetStringInfo(&heard);
}

/* The cache: what a test puts there. */

typedef struct Frame
{
	BlockNumber page;
	uint8		usage;
	bool		dirty;
	bool		listed;
	bool		pinned;
	bool		locked;			/* cannot be read */
} Frame;

static Frame frames[BUFFERS];
static bool changes_fail = false;
static uint64 server_hand = 0;

void
pgscale_buffer_look(int buf, PgscaleBuffer *buffer)
{
	const Frame *f = &frames[buf];

	memset(buffer, 0, sizeof(PgscaleBuffer));
	buffer->usage = f->usage;
	buffer->valid = true;
	buffer->dirty = f->dirty;
	buffer->listed = f->listed;
	buffer->pinned = f->pinned;
}

bool
pgscale_buffer_read(int buf, PgscaleBuffer *buffer, PgscalePage *page)
{
	pgscale_buffer_look(buf, buffer);
	memset(page, 0, sizeof(PgscalePage));
	page->block = frames[buf].page;
	return !frames[buf].locked;
}

bool
pgscale_buffer_set_usage(int buf, const PgscaleBuffer *seen, uint8 usage)
{
	if (changes_fail || frames[buf].usage != seen->usage)
		return false;
	frames[buf].usage = usage;
	return true;
}

bool
pgscale_buffer_supply(int buf, const PgscalePage *page, uint8 max_usage)
{
	Frame	   *f = &frames[buf];

	if (f->listed || f->dirty || f->page != page->block || f->usage > max_usage)
		return false;
	f->usage = 0;
	f->listed = true;
	return true;
}

bool
pgscale_buffer_listed(int buf)
{
	return frames[buf].listed;
}

bool
pgscale_buffers_any_listed(void)
{
	return true;
}

uint64
pgscale_buffers_hand(void)
{
	return server_hand;
}

void
pgscale_sweeper_set_forget(int buf)
{
}

/* A buffer is seen, as if that count was expected. */
static int
see(int buf, int expected, bool hand_ages)
{
	PgscaleBuffer look;
	PgscalePage page;

	(void) pgscale_buffer_read(buf, &look, &page);
	return pgscale_sweeper_page_seen(&the_share, buf, &look, &page, expected, hand_ages);
}

/* The share are the buffers from 100 on: the first of them is 0 to the policy. */
static void
begin(int policy)
{
	the_share.first = 100;
	the_share.buffers = 800;
	the_share.pages = the_pages;
	the_share.policy_memory = the_memory;
	memset(the_memory, 1, sizeof(the_memory));
	memset(the_pages, 1, sizeof(the_pages));
	the_share.policy = PGSCALE_SWEEPER_NO_POLICY;
	pgscale_sweeper_policy_begin(&the_share, policy);
	memset(frames, 0, sizeof(frames));
	for (int i = 0; i < BUFFERS; i++)
		frames[i].page = 7000 + i;
}

static void
check_seen(void)
{
	begin(PGSCALE_SWEEPER_HISTORY);
	hears("init 0", "a policy begins with memory that is cleared");
	frames[105].usage = 3;
	is(see(105, 0, false), PGSCALE_PAGE_FIRST_SEEN, "a page is seen for the first time");
	hears("5: 7105 arrived, 3", "with the count in its header");
	is(see(105, 3, false), PGSCALE_PAGE_NOT_USED, "it is not used");
	hears("", "which is no news");
	frames[105].usage = 5;
	is(see(105, 3, false), PGSCALE_PAGE_USED, "it is used");
	hears("5: 7105 used 2", "twice");
	frames[105].usage = 2;
	is(see(105, 5, false), PGSCALE_PAGE_LOWERED, "the server's hand has passed");
	hears("", "which does not age the page in a window");
	frames[105].usage = 0;
	is(see(105, 2, true), PGSCALE_PAGE_LOWERED, "it passes again");
	hears("5: visit; 5: visit", "which does where backends search by it");
	frames[105].page = 9;
	frames[105].usage = 1;
	is(see(105, 0, true), PGSCALE_PAGE_REPLACED, "another page is there");
	hears("5: 7105 evicted; 5: 9 arrived, 1", "one left, one came");
	frames[105].page = 10;
	frames[105].usage = 0;
	(void) see(105, 1, true);
	hears("5: 9 evicted; 5: 10 arrived, 0; 5: visit", "one that the hand has found unused since has been passed once");
	pgscale_sweeper_page_left(&the_share, 105);
	pgscale_sweeper_page_left(&the_share, 105);
	hears("5: 10 evicted", "a page leaves once");
	frames[106].usage = 0;
	(void) see(106, 0, false);
	hears("6: 7106 arrived, 0", "in a window the hand ages none");
}

static void
check_memory(void)
{
	PgscaleSweeperPolicyReport report;
	uint32		begun;

	begin(PGSCALE_SWEEPER_HISTORY);
	(void) see(105, 0, false);
	the_pages[5].followed = the_pages[5].offered = the_pages[5].passed = true;
	resetStringInfo(&heard);
	pgscale_sweeper_pages_init(&the_share);
	is(the_pages[5].followed + the_pages[5].offered + the_pages[5].passed, 0, "to a new process nothing is on offer");
	hears("take over 0", "and the policy goes on after a pause");
	frames[105].usage = 1;
	is(see(105, the_pages[5].left, true), PGSCALE_PAGE_USED, "and pages are known");
	is(pgscale_sweeper_policy_report(&the_share, &report, &begun), true, "a policy reports");
	is(report.evictions, 42, "what it has");
	is(begun, the_share.policy_begun, "since it began");
	begins_while_read = true;
	is(pgscale_sweeper_policy_report(&the_share, &report, &begun), false, "nothing if another begins meanwhile");
	begins_while_read = false;
	is(the_pages[5].known, false, "which knows no page");
	begin(PGSCALE_SWEEPER_HISTORY);
	(void) see(105, 0, false);
	resetStringInfo(&heard);
	begun = the_share.policy_begun;
	the_memory[0] = 7;
	pgscale_sweeper_policy_begin(&the_share, PGSCALE_SWEEPER_CLOCK);
	hears("take over 7", "another policy goes on with the memory");
	is(the_share.policy_begun, begun, "which was not set up anew");
	is(the_pages[5].known, true, "and with the pages");
	the_share.policy = PGSCALE_SWEEPER_NO_POLICY;
	is(pgscale_sweeper_policy_report(&the_share, &report, &begun), false, "nor has a sweeper that was never on");
	resetStringInfo(&heard);
}

#if PGSCALE_FREELIST

/* Has the header of a buffer fit that rank, and returns its count. */
static int
shown(int buf, uint8 rank)
{
	PgscaleBuffer look;
	PgscalePage page;

	(void) pgscale_buffer_read(buf, &look, &page);
	(void) freelist_rank_page(&the_share, buf, &look, &page);
	ranks[buf - the_share.first] = rank;
	freelist_show(&the_share, buf, &look);
	return frames[buf].usage;
}

static bool
offers(int buf, BlockNumber block, uint8 max_rank)
{
	PgscalePage page = {.block = block};

	return freelist_offer(&the_share, buf, &page, max_rank);
}

static void
check_headers(void)
{
	begin(PGSCALE_SWEEPER_CLOCK);
	is(shown(110, 4), 4, "under the clock a header has the policy's count");
	is(shown(110, 0), 0, "down to zero");
	frames[110].dirty = true;
	is(shown(110, 0), 1, "but for a dirty page");

	begin(PGSCALE_SWEEPER_HISTORY);
	frames[110].usage = 3;
	is(shown(110, 5), 1, "under a history it has one, so that later uses show");
	is(shown(110, 0), 0, "and none if the page may leave");
	frames[110].dirty = true;
	is(shown(110, 0), 1, "but for a dirty page");
	resetStringInfo(&heard);
	(void) shown(110, 0);
	hears("", "what the sweep leaves in a header is no use of the page");
	frames[110].usage = 3;
	(void) shown(110, 5);
	hears("10: 7110 used 2", "and uses are those beyond it");
	frames[110].usage = 3;
	changes_fail = true;
	is(shown(110, 5), 3, "a header that changes meanwhile is left");
	changes_fail = false;
	resetStringInfo(&heard);
	(void) shown(110, 5);
	hears("", "and its uses were seen");

	/* The guard raises a dirty page that the server's hand has taken down. */
	frames[110].usage = 0;
	the_share.ready = the_share.low = 1;
	server_hand = 200;
	shielded = PG_INT64_MIN;
	freelist_guard(&the_share);
	is(frames[110].usage, 1, "a dirty page is kept from bgwriter");
	(void) shown(110, 5);
	hears("10: visit", "which is no use of it: the hand has passed once");
	frames[110].usage = 0;
	(void) shown(110, 5);
	hears("10: visit", "and once more");
	is(frames[110].usage, 1, "it is shown to be kept");
}

static void
check_offers(void)
{
	begin(PGSCALE_SWEEPER_HISTORY);
	the_share.stack_size = 100;
	the_share.stack_used = 0;
	frames[120].usage = frames[121].usage = 4;
	ranks[20] = ranks[21] = 2;
	is(offers(120, 7120, 1), false, "a page of a higher rank is not offered");
	is(offers(120, 8, 2), false, "nor another one than is meant");
	is(offers(120, 7120, 2), true, "one of that rank is, whatever its header has");
	is(frames[120].usage, 0, "which has nothing from then on");
	is(offers(120, 7120, 5), false, "it is offered once");
	is(offers(121, 7121, 5), true, "another one");
	frames[99].usage = 2;
	is(offers(99, 7099, 2), false, "of other shares none that was used: a header has no rank");
	frames[99].usage = 0;
	is(offers(99, 7099, 2), true, "but others");
	resetStringInfo(&heard);

	/* The last three are taken, and one page is seen before that is known. */
	for (int buf = 99; buf <= 121; buf++)
	{
		frames[buf].listed = false;
		frames[buf].page = 100 + buf;
		frames[buf].usage = 1;
	}
	(void) see(121, 0, true);
	hears("21: 7121 evicted; 21: 221 arrived, 1", "one is taken, and the sweep sees the next page");
	(void) freelist_follow(&the_share);
	hears("20: 7120 evicted", "the others of this share are reported when they are missed, each once");
	is(the_share.counts.consumed, 3, "and counted");
	(void) see(120, 0, true);
	hears("20: 220 arrived, 1", "the next page comes");

	/* One is used again: a backend drops it from the list. */
	the_share.counts.consumed = 0;
	is(offers(120, 220, 2), true, "it is offered");
	resetStringInfo(&heard);
	frames[120].listed = false;
	frames[120].usage = 1;
	(void) freelist_follow(&the_share);
	is(the_share.counts.reused, 1, "and used instead");
	(void) see(120, the_pages[20].left, true);
	hears("20: 220 used 1", "once");

	/* One is used again, and waits on the list below others. */
	is(offers(120, 220, 2), true, "it is offered again");
	is(offers(122, 7122, 2), true, "and one after it");
	the_share.counts.reused = 0;
	resetStringInfo(&heard);
	is(offers(120, 220, 5), false, "as long as it was not used, it is ready");
	frames[120].usage = 3;
	is(shown(120, 2), 1, "when it was used, the sweep sees it as any other page");
	hears("20: 220 used 3", "with its uses");
	is(offers(120, 220, 1), false, "it is not offered before it may leave");
	frames[120].dirty = true;
	is(offers(120, 220, 2), false, "nor while it is dirty");
	frames[120].dirty = false;
	frames[120].pinned = true;
	is(offers(120, 220, 2), false, "or pinned");
	frames[120].pinned = false;
	is(frames[120].usage, 1, "a backend would drop it");
	is(offers(120, 220, 2), true, "then it is");
	is(frames[120].usage, 0, "where it is: it is ready");
	is(the_share.stack_used, 2, "the list has it once");
	is(the_share.counts.reused, 1, "and it counts as used again");
	is(see(120, the_pages[20].left, true), PGSCALE_PAGE_NOT_USED, "which is no use of it");
	frames[122].listed = false;
	frames[122].page = 222;
	(void) freelist_follow(&the_share);
	frames[120].listed = false;
	frames[120].page = 320;
	resetStringInfo(&heard);
	(void) freelist_follow(&the_share);
	hears("20: 220 evicted", "it can be taken like any other");
	(void) see(120, 1, true);
	frames[120].page = 220;
	(void) see(120, 1, true);

	/* A page that cannot be read is gone. */
	is(offers(120, 220, 2), true, "again");
	resetStringInfo(&heard);
	frames[120].listed = false;
	frames[120].locked = true;
	(void) freelist_follow(&the_share);
	hears("20: 220 evicted", "a buffer that is being filled was taken");
}

static void
check_left(void)
{
	begin(PGSCALE_SWEEPER_HISTORY);
	for (int buf = 100; buf < 900; buf++)
	{
		(void) shown(buf, 5);
		ranks[buf - 100] = buf % 6;
	}
	frames[101].listed = true;
	frames[101].usage = 0;
	frames[105].listed = true;
	frames[102].dirty = true;
	ranks[2] = 0;
	(void) freelist_follow(&the_share);
	most_looks = 500;
	is(freelist_leave(&the_share), false, "headers are given their ranks in pieces");
	is(frames[599].usage, 599 % 6, "the first");
	is(frames[605].usage, 1, "not the next");
	is(freelist_leave(&the_share), true, "which the second tick does");
	is(frames[605].usage, 5, "up to five");
	is(frames[101].usage, 0, "except what is ready on the list");
	is(frames[105].usage, 105 % 6, "what is there, and was used, has one again");
	is(frames[102].usage, 0, "a dirty page, too: bgwriter may write it now");
	frames[605].usage = 3;
	is(freelist_leave(&the_share), true, "once is enough");
	is(frames[605].usage, 3, "then they are the server's");
	(void) freelist_follow(&the_share);
	is(freelist_leave(&the_share), false, "until it works again");
	most_looks = PG_INT32_MAX;

	begin(PGSCALE_SWEEPER_CLOCK);
	frames[105].usage = 2;
	(void) shown(105, 2);
	ranks[5] = 4;
	is(freelist_leave(&the_share), true, "under the clock");
	is(frames[105].usage, 2, "they have the counts already");
}

#endif							/* PGSCALE_FREELIST */

Datum
known_pages_steps(PG_FUNCTION_ARGS)
{
	initStringInfo(&lines);
	initStringInfo(&heard);
	check_seen();
	check_memory();
#if PGSCALE_FREELIST
	check_headers();
	check_offers();
	check_left();
#endif
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}
