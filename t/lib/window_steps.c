/*
 * Supply through the usage counts, beside a server's hand that is made up and runs while the sweep looks: the guard, a sweep that
 * falls behind, and leaving in pieces. window_steps() returns a line for each check: "ok" or "not ok", and its name.
 */
#include "postgres.h"

#include <math.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "steps.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(window_steps);

#define BUFFERS		20000
#define NBuffers	BUFFERS

#include "sweeper/known_pages.c"
#include "sweeper/supply/window.c"
#include "plain_clock.h"
#include "steps_pages.h"

const PgscaleSweeperPolicy *const pgscale_sweeper_policies[PGSCALE_SWEEPER_POLICIES] = {&plain_clock};

/* The cache: a page of its own in each buffer, or none. */

typedef struct Frame
{
	BlockNumber page;			/* InvalidBlockNumber: empty */
	uint8		usage;
	bool		dirty;
} Frame;

static Frame frames[BUFFERS];
static BlockNumber next_page = 0;
static int64 server_hand = 0;
static int	taken_by_hand = 0;
static int	runs_by_look = 0;	/* so far does the hand run while the sweep looks at a buffer */
static int	wants = 0;			/* until it has found so many */
static int	looks = 0;
static PgscaleSweeperShare the_share;
static PgscaleSweeperPage the_pages[BUFFERS];
static uint8 the_counts[BUFFERS];

/* The hand goes on by a buffer, as in StrategyGetBuffer(). */
static void
hand_steps(void)
{
	Frame	   *f = &frames[server_hand++ % BUFFERS];

	if (f->usage > 0)
	{
		f->usage--;
		return;
	}
	taken_by_hand++;
	wants--;
	f->page = next_page++;
	f->usage = 1;
	f->dirty = false;
}

/* It runs until it has found so many. */
static void
hand_finds(int n)
{
	wants = n;
	while (wants > 0)
		hand_steps();
}

void
pgscale_buffer_look(int buf, PgscaleBuffer *buffer)
{
	const Frame *f = &frames[buf];

	looks++;
	for (int i = 0; i < runs_by_look && wants > 0; i++)
		hand_steps();
	memset(buffer, 0, sizeof(PgscaleBuffer));
	buffer->usage = f->usage;
	buffer->valid = f->page != InvalidBlockNumber;
	buffer->dirty = f->dirty;
}

bool
pgscale_buffer_read(int buf, PgscaleBuffer *buffer, PgscalePage *page)
{
	pgscale_buffer_look(buf, buffer);
	memset(page, 0, sizeof(PgscalePage));
	page->block = frames[buf].page;
	return buffer->valid;
}

bool
pgscale_buffer_set_usage(int buf, const PgscaleBuffer *seen, uint8 usage)
{
	if (frames[buf].usage != seen->usage)
		return false;
	frames[buf].usage = usage;
	return true;
}

uint64
pgscale_buffers_hand(void)
{
	return (uint64) server_hand;
}

int
pgscale_sweeper_count(void)
{
	return 1;
}

PgscaleSweeperShare *
pgscale_sweeper_share(int number)
{
	return &the_share;
}

void
pgscale_sweeper_set_forget(int buf)
{
}

/*
 * A window over those buffers is entered, which all were used so often, but for so many at their end, which are on offer. The hand
 * is at the first of all.
 */
static void
enter(int first, int buffers, uint8 usage, int ready)
{
	runs_by_look = wants = 0;
	most_looks = PG_INT32_MAX;
	memset(&the_share, 0, sizeof(the_share));
	the_share.first = first;
	the_share.buffers = buffers;
	the_share.high = ready;
	the_share.pages = the_pages;
	the_share.policy_memory = the_counts;
	the_share.policy = PGSCALE_SWEEPER_NO_POLICY;
	pgscale_sweeper_policy_begin(&the_share, PGSCALE_SWEEPER_CLOCK);
	entered = false;
	offered = 0;
	for (int i = 0; i < BUFFERS; i++)
	{
		frames[i].page = next_page++;
		frames[i].usage = i >= first + buffers - ready ? 0 : usage;
		frames[i].dirty = false;
	}
	server_hand += BUFFERS - server_hand % BUFFERS;
	(void) window_follow(&the_share);
	looks = taken_by_hand = 0;
	the_share.counts.supplied_clean = 0;
}

/* Buffers that have that count. */
static int
with_usage(uint8 usage)
{
	int			n = 0;

	for (int i = 0; i < BUFFERS; i++)
		n += frames[i].usage == usage;
	return n;
}

static void
check_guard(void)
{
	int64		from;

	enter(0, BUFFERS, 3, 0);
	window_guard(&the_share);
	is(the_share.counts.supplied_clean, 1, "nothing is on offer: one is yielded");
	is(frames[0].usage, 0, "the first of those that were used least");

	enter(0, BUFFERS, 3, 0);
	from = server_hand;
	runs_by_look = wants = 1;
	window_guard(&the_share);
	is(server_hand - from > YIELD_LEAST, true, "the hand runs past what is yielded");
	hand_finds(1);
	is(server_hand - from < BUFFERS, true, "and finds others ahead of it, before it comes round");

	enter(0, BUFFERS, 3, 0);
	the_share.taken = 1000;
	most_looks = 600;
	window_guard(&the_share);
	is(the_share.counts.supplied_clean, BUFFERS / 4 / YIELD_TIMES, "many are needed, and the time is short: they are yielded");
	is(looks <= 2 * (most_looks + 1), true, "within what it allows");

	enter(0, BUFFERS, 3, 0);
	frames[100].page = InvalidBlockNumber;
	frames[100].usage = 0;
	window_guard(&the_share);
	is(the_share.counts.supplied_clean, 0, "an empty buffer is supply: nothing is yielded");
	frames[100].usage = 1;
	window_guard(&the_share);
	is(the_share.counts.supplied_clean, 1, "one that the hand will pass is not");
}

/* A buffer comes on offer, as one does that a writer has cleaned. */
static void
offer(int buf)
{
	PgscaleBuffer look;

	frames[buf].dirty = false;
	pgscale_buffer_look(buf, &look);
	is(put_on_offer(buf, &look, &the_pages[buf]), true, "it is put on offer");
}

static void
check_take_back(void)
{
	int			far = 0;
	int			left = 0;

	enter(0, BUFFERS, 3, 0);
	for (int i = 0; i < BUFFERS; i++)
		frames[i].dirty = true;
	the_share.taken = 100;
	runs_by_look = 4;
	wants = 1;
	window_guard(&the_share);
	runs_by_look = 0;
	for (int i = GUARD_AHEAD; i < BUFFERS; i++)
	{
		const Frame *f = &frames[(server_hand + i) % BUFFERS];

		far += f->dirty && f->usage == 0;
	}
	is(far > 0, true, "dirty pages were yielded far ahead of a fast hand");
	(void) window_follow(&the_share);
	the_share.taken = 0;
	offer(server_hand % BUFFERS);
	window_guard(&the_share);
	for (int i = 0; i < BUFFERS; i++)
		left += frames[i].dirty && frames[i].usage == 0;
	is(left, 0, "then one is on offer: the hand shall pass all dirty pages");
}

static void
check_demand(void)
{
	enter(0, BUFFERS, 3, 10);
	is(window_follow(&the_share), false, "ten are on offer and the hand stands: no demand");
	for (int i = 0; i < BUFFERS / 4; i++)
		hand_steps();
	most_looks = 100;
	is(window_follow(&the_share), true, "it moves: demand");
	is(window_follow(&the_share), true, "as long as it was not followed");
	most_looks = PG_INT32_MAX;
	is(window_follow(&the_share), false, "and no longer");

	enter(BUFFERS / 2, BUFFERS / 2, 3, 10);
	is(window_follow(&the_share), false, "it stands in another share: no demand");
	hand_steps();
	is(window_follow(&the_share), true, "it moves there: demand in all");
}

static void
check_behind(void)
{
	int			wrong = 0;

	enter(0, BUFFERS, 5, 0);
	most_looks = 100;
	for (int i = 0; i < 2 * BUFFERS; i++)
	{
		hand_steps();
		if (i % 1000 == 0)
			(void) window_follow(&the_share);
	}
	most_looks = PG_INT32_MAX;
	(void) window_follow(&the_share);
	for (int i = 0; i < BUFFERS; i++)
		wrong += the_counts[i] != 5;
	is(wrong, 0, "the hand has gone round twice and was followed for a tenth: no page has become older");
	is(with_usage(5), 0, "their counts are signals");

	most_looks = 7000;
	is(window_leave(&the_share), false, "leaving takes more than a tick");
	is(with_usage(5), 7000, "which gives so many their counts back as it has time for");
	is(frames[server_hand % BUFFERS].usage, 5, "from the hand on");
	is(window_leave(&the_share), false, "the next one more");
	is(window_leave(&the_share), true, "the last one the rest");
	is(with_usage(5), BUFFERS, "and none is left out");
}

static void
check_return(void)
{
	enter(0, BUFFERS, 5, 0);
	for (int i = 0; i < BUFFERS; i++)
		hand_steps();
	(void) window_follow(&the_share);
	most_looks = 7000;
	is(window_leave(&the_share), false, "it is to leave");
	most_looks = PG_INT32_MAX;
	(void) window_follow(&the_share);
	is(window_leave(&the_share), true, "it works again before that is done, and leaves again");
	is(with_usage(5), BUFFERS, "all have their counts");
}

Datum
window_steps(PG_FUNCTION_ARGS)
{
	initStringInfo(&lines);
	check_guard();
	check_take_back();
	check_demand();
	check_behind();
	check_return();
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}
