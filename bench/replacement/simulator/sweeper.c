/*-------------------------------------------------------------------------
 *
 * sweeper.c
 *	  The sweeper's policies, driven as the sweeper drives them.
 *
 * A tick comes once in TICK references.  It finds out which of the offered buffers were
 * taken, and where less than LOW of the buffers are ready, the sweep's hand goes round
 * until HIGH are.  A page's uses are seen when the hand comes to it, as the growth of
 * the count in its header over what was left there; that counts to 5, so a burst counts
 * little.  A page that is used while it is on offer stays, and ages there like any other.  Backends take what is on
 * offer, and where that is nothing, the server's own clock finds a buffer.  So a page
 * leaves some time after it was chosen, as in the server with its freelist.
 *
 * All pages are clean, and no page is pinned.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "simulator.h"
#include "sweeper/policies/policy.h"

#define TICK		(BUFFERS / TICKS)
#define HIGH		(BUFFERS / 20)
#define LOW			(HIGH * 2 / 5)

/* It refills, too, before what is ready may be taken in so many ticks; how fast that is, is a mean of so many. */
#define REFILL_TICKS	2
#define RATE_TICKS		64

#define NO_PAGE		UINT32_MAX

typedef struct Frame
{
	uint32_t	page;
	uint32_t	known;			/* page that the policy knows there */
	uint8		count;			/* in the header */
	uint8		left;			/* when the sweep last saw it */
	bool		listed;
} Frame;

static const Trace *trace;
static const PgscaleSweeperPolicy *policy;
static void *memory;
static Frame *frames;
static int *where;				/* by page: buffer + 1, or 0 */
static int	list[BUFFERS];		/* the server's freelist: last in, first out */
static int	list_used;
static int	stack[BUFFERS];		/* what the sweep put there */
static int	stack_used;
static int	server_hand;
static int	hand;
static double rate;				/* buffers that are taken in a tick, a mean */
static double visits;

static uint32
page_hash(uint32_t page)
{
	return (uint32) mixed(page);
}

static void
sweeper_begin(const PgscaleSweeperPolicy *p, const Trace *t)
{
	trace = t;
	policy = p;
	memory = zeroed(1, p->size(BUFFERS));
	p->init(memory, BUFFERS);
	frames = zeroed(BUFFERS, sizeof(Frame));
	where = zeroed(t->distinct, sizeof(int));
	stack_used = server_hand = hand = 0;
	rate = visits = 0;
	for (list_used = 0; list_used < BUFFERS; list_used++)
	{
		list[list_used] = list_used;
		frames[list_used].page = frames[list_used].known = NO_PAGE;
		frames[list_used].listed = true;
	}
}

static void
sweeper_end(void)
{
	free(memory);
	free(frames);
	free(where);
}

/* Lets the policy know what happened to a buffer since the last look. */
static void
catch_up(int buf)
{
	Frame	   *f = &frames[buf];

	if (f->known != f->page)
	{
		if (f->known != NO_PAGE)
			policy->evicted(memory, buf, page_hash(f->known));
		policy->arrived(memory, buf, page_hash(f->page), f->count);
		f->known = f->page;
	}
	else if (f->count > f->left)
		policy->used(memory, buf, page_hash(f->page), f->count - f->left);
	f->left = f->count;
}

static void
follow_taken(void)
{
	while (stack_used > 0 && !frames[stack[stack_used - 1]].listed)
		catch_up(stack[--stack_used]);
}

static int
count_ready(void)
{
	int			ready = list_used - stack_used; /* never used */

	for (int i = 0; i < stack_used; i++)
		ready += frames[stack[i]].listed && frames[stack[i]].count == 0;
	return ready;
}

static void
offer(int buf)
{
	Frame	   *f = &frames[buf];

	f->count = f->left = 0;
	f->listed = true;
	list[list_used++] = buf;
	stack[stack_used++] = buf;
}

static void
sweep(void)
{
	const int	before = stack_used;
	int			ready;

	follow_taken();
	rate += (before - stack_used - rate) / RATE_TICKS;
	ready = count_ready();
	if (ready >= Max(LOW, Min(REFILL_TICKS * rate, HIGH)))
		return;
	for (int i = 0; i < BUFFERS && ready < HIGH && stack_used < BUFFERS / 4; i++)
	{
		const int	buf = hand;
		Frame	   *f = &frames[buf];

		hand = (hand + 1) % BUFFERS;
		if (f->listed && f->count == 0)
			continue;
		visits++;
		catch_up(buf);
		if (policy->visit(memory, buf, false) == 0)
		{
			if (f->listed)
				f->count = f->left = 0;
			else
				offer(buf);
			ready++;
		}
		else
			f->count = f->left = Min(policy->header(memory, buf), 1);
	}
}

/* As StrategyGetBuffer() finds one. */
static int
get_buffer(void)
{
	while (list_used > 0)
	{
		const int	buf = list[--list_used];

		frames[buf].listed = false;
		if (frames[buf].count == 0)
			return buf;
	}
	for (;;)
	{
		const int	buf = server_hand;

		server_hand = (server_hand + 1) % BUFFERS;
		if (frames[buf].count == 0)
			return buf;
		frames[buf].count--;
	}
}

static bool
sweeper_use(int reference)
{
	const uint32_t page = trace->pages[reference];
	int			buf = where[page] - 1;

	if (reference % TICK == 0)
		sweep();
	if (buf >= 0)
	{
		frames[buf].count = Min(frames[buf].count + 1, PGSCALE_MAX_USAGE);
		return true;
	}
	buf = get_buffer();
	if (frames[buf].page != NO_PAGE)
		where[frames[buf].page] = 0;
	frames[buf].page = page;
	frames[buf].count = 1;
	where[page] = buf + 1;
	return false;
}

/* Buffers that the hand came to, in the window. */
static double
sweeper_visits(void)
{
	const double n = visits;

	visits = 0;
	return n;
}

/* The candidate in force. */
static double
sweeper_choice(void)
{
	PgscaleSweeperPolicyReport report;

	policy->report(memory, BUFFERS, &report);
	return report.choice;
}

static void
sweeper_clock_begin(const Trace *t)
{
	sweeper_begin(&pgscale_sweeper_policy_clock, t);
}

static void
sweeper_history_begin(const Trace *t)
{
	sweeper_begin(&pgscale_sweeper_policy_history, t);
}

static void
sweeper_adaptive_begin(const Trace *t)
{
	sweeper_begin(&pgscale_sweeper_policy_adaptive, t);
}

const Algorithm sweeper_clock = {"policy clock", sweeper_clock_begin, sweeper_use, sweeper_visits, "visits", sweeper_end};
const Algorithm sweeper_history = {"policy history", sweeper_history_begin, sweeper_use, sweeper_visits, "visits", sweeper_end};
const Algorithm sweeper_adaptive = {"policy adaptive", sweeper_adaptive_begin, sweeper_use, sweeper_choice, "choice", sweeper_end};
