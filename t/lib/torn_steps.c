/*
 * The sweep, its supplies and its policies over buffers whose pages are exchanged meanwhile.  torn_steps() returns a line for each
 * check: "ok" or "not ok", and its name.
 *
 * The buffers are made up.  All that reads and changes their headers is src/base/shared_buffers.c itself.  A backend is made up, too.
 * It takes buffers as the server does: from the freelist, or by the clock hand, with the header locked while it writes the name of the
 * next page, word by word.  It comes at a moment that the test chooses, in the middle of a read or right after it; or runs in a thread
 * beside the sweep.
 *
 * In every second buffer or so lies a page that the sweep cannot see, because its reads are refused.  These pages lack BM_PERMANENT, so
 * no state that was seen of another page is equal to theirs, and they have names that no other page has.  So nothing that the sweep does
 * may reach one of them, however old the name is by which it acts.
 */
#include "postgres.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "common/pg_prng.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/buf_internals.h"
#include "utils/builtins.h"

#include "base/shared_buffers.h"
#include "steps.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(torn_steps);

#define BUFFERS		128
#define PAGES		1024		/* that the sweep can see, and as many that it cannot */
#define NBuffers	BUFFERS
#define GUARD		64			/* bytes behind the policy's memory */
#define GUARD_BYTE	0x5A
#define WORDS		(sizeof(BufferTag) / sizeof(uint32))

static BufferDesc descs[BUFFERS];

static void list_buffer(BufferDesc *desc);
static void middle_of_read(void);

#undef GetBufferDescriptor
#define GetBufferDescriptor(buf)		(&descs[buf])
#define StrategyFreeBuffer(desc)		list_buffer(desc)
#undef pg_read_barrier
#define pg_read_barrier()				middle_of_read()
#define pgscale_buffer_read				true_buffer_read
#define pgscale_buffer_supply			true_buffer_supply
#define pgscale_buffers_hand			true_buffers_hand
#define pgscale_buffers_any_listed		true_buffers_any_listed
#include "base/shared_buffers.c"
#undef pgscale_buffer_read
#undef pgscale_buffer_supply
#undef pgscale_buffers_hand
#undef pgscale_buffers_any_listed

#include "sweeper/policies/page_history.c"
#include "sweeper/policies/shadow.c"
#include "sweeper/policies/adaptive.c"
#include "sweeper/policies/policies.c"
#include "sweeper/known_pages.c"
#if PGSCALE_FREELIST
#define left_to freelist_left_to
#include "sweeper/supply/freelist.c"
#undef left_to
#endif
#include "sweeper/supply/window.c"

/* What happens while the sweep reads, or after it. */
typedef enum Mischief
{
	NONE,
	STALE,						/* the page is exchanged after it was read */
	TORN,						/* its name is part of another one's */
	RACE						/* a thread exchanges pages all the time */
} Mischief;

static Mischief mischief;
static const PgscaleSweeperSupply *supply;
static PgscaleSweeperShare *the_share;
static PgscaleSweeperPage the_pages[BUFFERS];
static uint8 expected[BUFFERS]; /* the count of a page that the sweep cannot see */
static volatile int64 server_hand;
static volatile int exchanged;	/* pages */
static volatile int broken;		/* pages that the sweep cannot see, and yet has changed */
static int	supplied_others;	/* pages that were supplied by another one's name */
static volatile bool thread_ends;
static int	half_written = -1;	/* in the middle of the next read, that buffer gets part of a name */
static pg_prng_state random_of_backend;
static pg_prng_state random_of_sweep;

static bool
one_in(pg_prng_state *state, int n)
{
	return pg_prng_uint64_range(state, 0, n - 1) == 0;
}

/* A backend: what it does to a header is what bufmgr.c does. */

static void
give_way(void)
{
	if (mischief == RACE && one_in(&random_of_backend, 4))
		sched_yield();
}

static PgscaleBufferState
lock_header(BufferDesc *desc)
{
	for (;;)
	{
		PgscaleBufferState state = pgscale_compat_state_read(&desc->state) & ~BM_LOCKED;

		if (pgscale_compat_state_exchange(&desc->state, &state, state | BM_LOCKED))
			return state;
		sched_yield();
	}
}

/* Unlocks the header. */
static void
set_state(BufferDesc *desc, PgscaleBufferState state)
{
	PgscaleBufferState now = pgscale_compat_state_read(&desc->state);

	while (!pgscale_compat_state_exchange(&desc->state, &now, state))
		;
}

static PgscalePage
page_of(uint32 n)
{
	PgscalePage page = {.fork = n % 3, .block = n};

	page.locator = (RelFileLocator) {n, n, n};
	return page;
}

static bool
is_whole(const PgscalePage *page)
{
	const PgscalePage whole = page_of(page->block);

	return pgscale_buffer_page_equal(page, &whole);
}

static void
write_name(BufferDesc *desc, const BufferTag *tag, int words)
{
	for (int i = 0; i < words; i++)
	{
		((volatile uint32 *) &desc->tag)[i] = ((const uint32 *) tag)[i];
		give_way();
	}
	pg_write_barrier();
}

/* In its place comes another page, with that count. */
static void
exchange_page(int buf, int usage)
{
	BufferDesc *desc = &descs[buf];
	PgscaleBufferState state = lock_header(desc);
	const bool	hidden = one_in(&random_of_backend, 2);
	const PgscalePage page = page_of((uint32) pg_prng_uint64_range(&random_of_backend, 0, PAGES - 1) + (hidden ? PAGES : 0));
	BufferTag	tag = {0};

	broken += (state & BM_TAG_VALID) != 0 && (state & BM_PERMANENT) == 0 && buffer_usage_of(state) != expected[buf];
	expected[buf] = usage;
#if PGSCALE_FREELIST
	desc->freeNext = FREENEXT_NOT_IN_LIST;
#endif
	write_name(desc, &tag, WORDS);
	set_state(desc, 0);
	give_way();

	(void) lock_header(desc);
	make_tag(&tag, &page);
	write_name(desc, &tag, WORDS);
	state = buffer_with_usage(BM_TAG_VALID | BM_IO_IN_PROGRESS | (hidden ? 0 : BM_PERMANENT), usage) + BUF_REFCOUNT_ONE;
	set_state(desc, state);
	give_way();
	(void) lock_header(desc);
	state = (state | BM_VALID) & ~BM_IO_IN_PROGRESS;
	set_state(desc, state);
	give_way();
	(void) lock_header(desc);
	set_state(desc, state - BUF_REFCOUNT_ONE);
	exchanged++;
}

static bool
is_hidden(int buf)
{
	return (pgscale_compat_state_read(&descs[buf].state) & BM_PERMANENT) == 0;
}

/* Changes a count, unless the header changes meanwhile. */
static void
change_usage(int buf, int by)
{
	PgscaleBufferState state = pgscale_compat_state_read(&descs[buf].state);
	const int	usage = buffer_usage_of(state) + by;

	if ((state & BM_LOCKED) == 0 && usage >= 0 && usage <= BM_MAX_USAGE_COUNT &&
		pgscale_compat_state_exchange(&descs[buf].state, &state, buffer_with_usage(state, usage)) && is_hidden(buf))
		expected[buf] = usage;
}

/* Takes what is on the freelist, or what its hand finds; and uses some pages. */
static void
backend_step(void)
{
	const int	some = (int) pg_prng_uint64_range(&random_of_backend, 0, BUFFERS - 1);
	int			buf;

	if (one_in(&random_of_backend, 4))
		change_usage(some, 1);
	for (int i = 0; i < BUFFERS; i++)
	{
		buf = (some + i) % BUFFERS;
		if (pgscale_compat_listed(&descs[buf]))
		{
			exchange_page(buf, 1);
			return;
		}
	}
	buf = (int) (server_hand++ % BUFFERS);
	if (buffer_usage_of(pgscale_compat_state_read(&descs[buf].state)) == 0)
		exchange_page(buf, 1);
	else
		change_usage(buf, -1);
}

static void *
backend_thread(void *unused)
{
	while (!thread_ends)
		backend_step();
	return NULL;
}

/* What shared_buffers.c asks, and what the sweep asks of it. */

PgscaleLwlock
pgscale_lwlock_look(const LWLock *lock)
{
	return (PgscaleLwlock) {0};
}

static void
list_buffer(BufferDesc *desc)
{
#if PGSCALE_FREELIST
	desc->freeNext = FREENEXT_END_OF_LIST;
#endif
}

static void
middle_of_read(void)
{
	BufferTag	tag = {0};

	pg_memory_barrier();
	if (half_written < 0)
		return;
	(void) lock_header(&descs[half_written]);
	write_name(&descs[half_written], &tag, WORDS - 1);
	half_written = -1;
}

bool
pgscale_buffer_read(int buf, PgscaleBuffer *buffer, PgscalePage *page)
{
	if (!true_buffer_read(buf, buffer, page) || (buffer->state & BM_PERMANENT) == 0)
		return false;
	if (mischief == STALE && one_in(&random_of_sweep, 10))
		exchange_page(buf, (int) pg_prng_uint64_range(&random_of_sweep, 0, 3));
	else if (mischief == TORN && one_in(&random_of_sweep, 10))
	{
		const PgscalePage other = page_of((uint32) pg_prng_uint64_range(&random_of_sweep, 0, PAGES - 1));

		if (one_in(&random_of_sweep, 2))
			page->block = other.block;
		else
			page->locator = other.locator;
	}
	else if (mischief == RACE && one_in(&random_of_sweep, 4))
		sched_yield();
	return true;
}

bool
pgscale_buffer_supply(int buf, const PgscalePage *page, uint8 max_usage)
{
	PgscalePage now;

	if (!true_buffer_supply(buf, page, max_usage))
		return false;
	pgscale_buffer_page(buf, &now);
	supplied_others += !is_whole(page) || (mischief != RACE && !pgscale_buffer_page_equal(page, &now));
	return true;
}

uint64
pgscale_buffers_hand(void)
{
	return (uint64) server_hand;
}

bool
pgscale_buffers_any_listed(void)
{
	return true;
}

bool
pgscale_sweeper_long_enough(int n)
{
	return n >= BUFFERS;
}

void
pgscale_sweeper_set_forget(int buf)
{
}

int
pgscale_sweeper_count(void)
{
	return 1;
}

PgscaleSweeperShare *
pgscale_sweeper_share(int number)
{
	return the_share;
}

/* The sweep: as in scan.c, without writers. */

static void
tick(void)
{
	(void) supply->follow(the_share);
	for (int buf = 0; buf < BUFFERS; buf++)
	{
		PgscaleBuffer look;
		PgscalePage page;

		if (!pgscale_buffer_read(buf, &look, &page) || look.busy || supply->rank(the_share, buf, &look, &page) < 0 || look.pinned)
			continue;
		if (pgscale_sweeper_visit(the_share, buf, false) > 0)
			supply->show(the_share, buf, &look);
		else if (!supply->full(the_share))
			(void) supply->offer(the_share, buf, &page, 0);
	}
	the_share->ready = supply->ready(the_share);
	supply->guard(the_share);
}

static void
begin(const PgscaleSweeperSupply *with, int policy)
{
	const Size	size = pgscale_sweeper_policies[policy]->size(BUFFERS);

	mischief = NONE;
	supply = with;
	the_share = palloc0(offsetof(PgscaleSweeperShare, stack) + BUFFERS * sizeof(PgscaleSweeperSupplied));
	the_share->buffers = BUFFERS;
	the_share->stack_size = BUFFERS / 4;
	the_share->low = 10;
	the_share->policy = PGSCALE_SWEEPER_NO_POLICY;
	the_share->high = 20;
	the_share->pages = the_pages;
	the_share->policy_memory = palloc(size + GUARD);
	memset((char *) the_share->policy_memory + size, GUARD_BYTE, GUARD);
	pgscale_sweeper_policy_begin(the_share, policy);
	memset(descs, 0, sizeof(descs));
	for (int buf = 0; buf < BUFFERS; buf++)
		exchange_page(buf, 1);
	exchanged = broken = supplied_others = 0;
}

/* Is what the sweep knows of each page true, and its memory intact? */
static int
false_knowledge(void)
{
	int			wrong = 0;

	for (int buf = 0; buf < BUFFERS; buf++)
	{
		const PgscaleSweeperPage *p = pgscale_sweeper_page(the_share, buf);
		PgscaleBuffer look;
		PgscalePage page;

		if (pgscale_buffer_read(buf, &look, &page))
			wrong += !p->known || p->hash != pgscale_buffer_page_hash(&page) || pgscale_sweeper_rank(the_share, buf) > PGSCALE_MAX_USAGE;
	}
	return wrong;
}

static int
overwritten(int policy)
{
	const char *guard = (char *) the_share->policy_memory + pgscale_sweeper_policies[policy]->size(BUFFERS);
	int			bytes = 0;

	for (int i = 0; i < GUARD; i++)
		bytes += guard[i] != GUARD_BYTE;
	return bytes;
}

/* Is each header as backends have left it, except for the count of a page that the sweep knows? */
static int
spoiled_headers(void)
{
	int			spoiled = broken;

	for (int buf = 0; buf < BUFFERS; buf++)
	{
		const PgscaleBufferState state = pgscale_compat_state_read(&descs[buf].state);
		PgscalePage page;

		pgscale_buffer_page(buf, &page);
		spoiled += (state & ~(BUF_USAGECOUNT_MASK | BM_PERMANENT)) != (BM_VALID | BM_TAG_VALID) || !is_whole(&page) ||
			buffer_usage_of(state) > BM_MAX_USAGE_COUNT || (is_hidden(buf) && buffer_usage_of(state) != expected[buf]);
	}
	return spoiled;
}

static void
check(const PgscaleSweeperSupply *with, int policy, Mischief what, const char *named)
{
	static const char *const names[] = {
		[STALE] = "pages exchanged behind its back", [TORN] = "names that are torn", [RACE] = "pages exchanged by a thread"
	};
	const char *name = psprintf("%s, %s, %s", named, pgscale_sweeper_policies[policy]->name, names[what]);
	pthread_t	thread;
	sigset_t	all,
				before;

	begin(with, policy);
	mischief = what;
	if (what == RACE)
	{
		/* The process keeps its signals; nothing below ends before the thread does. */
		thread_ends = false;
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &before);
		is(pthread_create(&thread, NULL, backend_thread, NULL), 0, "a thread");
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
	for (int i = 0; i < 2000 || (what == RACE && exchanged < 20000 && i < 1000000); i++)
	{
		tick();
		if (what == RACE)
			sched_yield();
		for (int n = 0; what != RACE && n < 8; n++)
			backend_step();
	}
	if (what == RACE)
	{
		thread_ends = true;
		pthread_join(thread, NULL);
	}
	is(exchanged > 200, true, psprintf("%s: many", name));
	is(the_share->counts.consumed > 100, true, psprintf("%s: the sweep supplies, and backends take", name));
	is(supplied_others, 0, psprintf("%s: what is supplied is what was named", name));
	is(spoiled_headers(), 0, psprintf("%s: no header has anything that the server would not have written", name));
	is(overwritten(policy), 0, psprintf("%s: nothing is written behind the memory of the policy", name));
	mischief = NONE;
	tick();
	is(false_knowledge(), 0, psprintf("%s: a round later the sweep knows each page", name));
	while (!supply->leave(the_share))
		;
	is(spoiled_headers(), 0, psprintf("%s: it leaves the headers to the server, none of them spoiled", name));
}

/* A name is not read while it is written. */
static void
check_read(void)
{
	PgscaleBuffer look;
	PgscalePage page;

	begin(&pgscale_sweeper_window, PGSCALE_SWEEPER_CLOCK);
	for (int buf = 0; buf < BUFFERS; buf++)
		while (is_hidden(buf))
			exchange_page(buf, 1);
	is(true_buffer_read(5, &look, &page) && is_whole(&page), true, "a name is read");
	half_written = 5;
	is(true_buffer_read(5, &look, &page), false, "not one that is half written");
	set_state(&descs[5], 0);
	is(true_buffer_read(5, &look, &page), false, "nor one of no page");
}

Datum
torn_steps(PG_FUNCTION_ARGS)
{
	initStringInfo(&lines);
	pg_prng_seed(&random_of_backend, 1);
	pg_prng_seed(&random_of_sweep, 2);
	check_read();
	for (int policy = 0; policy < PGSCALE_SWEEPER_POLICIES; policy++)
		for (Mischief what = STALE; what <= RACE; what++)
		{
#if PGSCALE_FREELIST
			check(&pgscale_sweeper_freelist, policy, what, "freelist");
#endif
			check(&pgscale_sweeper_window, policy, what, "window");
		}
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}
