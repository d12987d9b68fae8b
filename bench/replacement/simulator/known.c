/*-------------------------------------------------------------------------
 *
 * known.c
 *	  Known algorithms: the server's clock and that of one bit, LRU, 2Q, ARC, S3-FIFO, SIEVE and LIRS, with
 *	  the parameters of their papers.
 *
 * They know each reference, and evict at the moment of a miss.  The sweeper's policies
 * see less, and later.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "lists.h"

#define MIN(a, b)	((a) < (b) ? (a) : (b))
#define MAX(a, b)	((a) > (b) ? (a) : (b))

static const Trace *trace;
static Links links;

static void
begin_lists(const Trace *t)
{
	trace = t;
	links = links_make(t->distinct);
}

static void
end_lists(void)
{
	links_free(&links);
}

/* The server's: StrategyGetBuffer(), usage counts up to 5.  Textbooks have one bit. */

#define MAX_USAGE	5

static int	max_usage;
static uint32_t *held;			/* by buffer */
static uint8_t *usage;
static int *where;				/* by page: buffer + 1, or 0 */
static int	clock_hand;
static int	clock_used;

static void
clock_begin_with(const Trace *t, int most)
{
	trace = t;
	max_usage = most;
	held = zeroed(BUFFERS, sizeof(uint32_t));
	usage = zeroed(BUFFERS, 1);
	where = zeroed(t->distinct, sizeof(int));
	clock_hand = clock_used = 0;
}

static void
clock_begin(const Trace *t)
{
	clock_begin_with(t, MAX_USAGE);
}

static void
one_bit_begin(const Trace *t)
{
	clock_begin_with(t, 1);
}

static void
clock_end(void)
{
	free(held);
	free(usage);
	free(where);
}

static bool
clock_use(int reference)
{
	const uint32_t page = trace->pages[reference];
	int			buf = where[page] - 1;

	if (buf >= 0)
	{
		usage[buf] = MIN(usage[buf] + 1, max_usage);
		return true;
	}
	if (clock_used < BUFFERS)
		buf = clock_used++;
	else
	{
		while (usage[clock_hand] > 0)
		{
			usage[clock_hand]--;
			clock_hand = (clock_hand + 1) % BUFFERS;
		}
		buf = clock_hand;
		clock_hand = (clock_hand + 1) % BUFFERS;
		where[held[buf]] = 0;
	}
	held[buf] = page;
	usage[buf] = 1;
	where[page] = buf + 1;
	return false;
}

const Algorithm server_clock = {"clock", clock_begin, clock_use, NULL, NULL, clock_end};
const Algorithm one_bit_clock = {"clock of one bit", one_bit_begin, clock_use, NULL, NULL, clock_end};

/* LRU */

static List recent;

static void
lru_begin(const Trace *t)
{
	begin_lists(t);
	recent = (List) EMPTY_LIST;
}

static bool
lru_use(int reference)
{
	const uint32_t page = trace->pages[reference];
	const bool	hit = links.list[page] != NULL;

	if (!hit && recent.length == BUFFERS)
		list_take_last(&links, &recent);
	list_to(&links, &recent, page);
	return hit;
}

const Algorithm lru = {"LRU", lru_begin, lru_use, NULL, NULL, end_lists};

/* 2Q (Johnson and Shasha 1994): new pages in a quarter, as many known again as half of the buffers. */

#define NEW_PAGES		(BUFFERS / 4)
#define NEW_GHOSTS		(BUFFERS / 2)

static List news,
			new_ghosts,
			mains;

static void
two_q_begin(const Trace *t)
{
	begin_lists(t);
	news = new_ghosts = mains = (List) EMPTY_LIST;
}

static void
two_q_reclaim(void)
{
	if (news.length + mains.length < BUFFERS)
		return;
	if (news.length > NEW_PAGES || mains.length == 0)
	{
		if (new_ghosts.length == NEW_GHOSTS)
			list_take_last(&links, &new_ghosts);
		list_put(&links, &new_ghosts, list_take_last(&links, &news));
	}
	else
		list_take_last(&links, &mains);
}

static bool
two_q_use(int reference)
{
	const uint32_t page = trace->pages[reference];
	const List *list = links.list[page];

	if (list == &mains)
		list_to(&links, &mains, page);
	if (list == &mains || list == &news)
		return true;
	if (list == &new_ghosts)
	{
		list_remove(&links, page);
		two_q_reclaim();
		list_put(&links, &mains, page);
		return false;
	}
	two_q_reclaim();
	list_put(&links, &news, page);
	return false;
}

const Algorithm two_q = {"2Q", two_q_begin, two_q_use, NULL, NULL, end_lists};

/* ARC (Megiddo and Modha 2003) */

static List once,
			often,
			once_ghosts,
			often_ghosts;
static double once_target;

static void
arc_begin(const Trace *t)
{
	begin_lists(t);
	once = often = once_ghosts = often_ghosts = (List) EMPTY_LIST;
	once_target = 0;
}

static void
arc_replace(bool was_often)
{
	if (once.length > 0 && (once.length > once_target || (was_often && once.length == once_target)))
		list_put(&links, &once_ghosts, list_take_last(&links, &once));
	else
		list_put(&links, &often_ghosts, list_take_last(&links, &often));
}

static void
arc_make_room(void)
{
	const int	all = once.length + once_ghosts.length + often.length + often_ghosts.length;

	if (once.length + once_ghosts.length == BUFFERS)
	{
		if (once.length < BUFFERS)
		{
			list_take_last(&links, &once_ghosts);
			arc_replace(false);
		}
		else
			list_take_last(&links, &once);
	}
	else if (all >= BUFFERS)
	{
		if (all == 2 * BUFFERS)
			list_take_last(&links, &often_ghosts);
		arc_replace(false);
	}
}

static bool
arc_use(int reference)
{
	const uint32_t page = trace->pages[reference];
	const List *list = links.list[page];

	if (list == &once || list == &often)
	{
		list_to(&links, &often, page);
		return true;
	}
	if (list == &once_ghosts)
		once_target = MIN(once_target + MAX((double) often_ghosts.length / once_ghosts.length, 1), BUFFERS);
	else if (list == &often_ghosts)
		once_target = MAX(once_target - MAX((double) once_ghosts.length / often_ghosts.length, 1), 0);
	else
	{
		arc_make_room();
		list_put(&links, &once, page);
		return false;
	}
	arc_replace(list == &often_ghosts);
	list_to(&links, &often, page);
	return false;
}

const Algorithm arc = {"ARC", arc_begin, arc_use, NULL, NULL, end_lists};

/* S3-FIFO (Yang et al. 2023): a tenth for new pages, as many ghosts as there are other pages. */

#define SMALL_PAGES		(BUFFERS / 10)
#define S3_GHOSTS		(BUFFERS - SMALL_PAGES)
#define MAX_FREQUENCY	3

static uint8_t *frequency;
static List small,
			large,
			s3_ghosts;

static void
s3_begin(const Trace *t)
{
	begin_lists(t);
	frequency = zeroed(t->distinct, 1);
	small = large = s3_ghosts = (List) EMPTY_LIST;
}

static void
s3_end(void)
{
	free(frequency);
	end_lists();
}

/* Both return whether a page has left the cache. */
static bool
s3_evict_small(void)
{
	const uint32_t page = list_take_last(&links, &small);

	if (frequency[page] > 1)
	{
		frequency[page] = 0;
		list_put(&links, &large, page);
		return false;
	}
	if (s3_ghosts.length == S3_GHOSTS)
		list_take_last(&links, &s3_ghosts);
	list_put(&links, &s3_ghosts, page);
	return true;
}

static bool
s3_evict_large(void)
{
	const uint32_t page = list_take_last(&links, &large);

	if (frequency[page] == 0)
		return true;
	frequency[page]--;
	list_put(&links, &large, page);
	return false;
}

static bool
s3_use(int reference)
{
	const uint32_t page = trace->pages[reference];
	const List *list = links.list[page];
	bool		evicted = false;

	if (list == &small || list == &large)
	{
		frequency[page] = MIN(frequency[page] + 1, MAX_FREQUENCY);
		return true;
	}
	if (list)
		list_remove(&links, page);
	while (!evicted && small.length + large.length >= BUFFERS)
		evicted = small.length >= SMALL_PAGES || large.length == 0 ? s3_evict_small() : s3_evict_large();
	frequency[page] = 0;
	list_put(&links, list ? &large : &small, page);
	return false;
}

const Algorithm s3_fifo = {"S3-FIFO", s3_begin, s3_use, NULL, NULL, s3_end};

/* SIEVE (Zhang et al. 2024) */

static uint8_t *visited;
static List sieve_pages;
static uint32_t sieve_hand;

static void
sieve_begin(const Trace *t)
{
	begin_lists(t);
	visited = zeroed(t->distinct, 1);
	sieve_pages = (List) EMPTY_LIST;
	sieve_hand = NO_PAGE;
}

static void
sieve_end(void)
{
	free(visited);
	end_lists();
}

static void
sieve_evict(void)
{
	uint32_t	page = sieve_hand == NO_PAGE ? sieve_pages.last : sieve_hand;

	while (visited[page])
	{
		visited[page] = 0;
		page = links.newer[page] == NO_PAGE ? sieve_pages.last : links.newer[page];
	}
	sieve_hand = links.newer[page];
	list_remove(&links, page);
}

static bool
sieve_use(int reference)
{
	const uint32_t page = trace->pages[reference];

	if (links.list[page])
	{
		visited[page] = 1;
		return true;
	}
	if (sieve_pages.length == BUFFERS)
		sieve_evict();
	visited[page] = 0;
	list_put(&links, &sieve_pages, page);
	return false;
}

const Algorithm sieve = {"SIEVE", sieve_begin, sieve_use, NULL, NULL, sieve_end};

/*
 * LIRS (Jiang and Zhang 2002): a hundredth of the buffers for pages of which only one
 * use is remembered, twice as many pages not in the cache as there are buffers.
 */

#define COLD_PAGES		(BUFFERS / 100)
#define LIRS_GHOSTS		(2 * BUFFERS)

static Links queue_links;		/* of the queue of cold pages, and of ghosts */
static List stack,
			cold,
			lirs_ghosts;
static uint8_t *is_hot;
static int	hot_pages;

static void
lirs_begin(const Trace *t)
{
	begin_lists(t);
	queue_links = links_make(t->distinct);
	is_hot = zeroed(t->distinct, 1);
	stack = cold = lirs_ghosts = (List) EMPTY_LIST;
	hot_pages = 0;
}

static void
lirs_end(void)
{
	links_free(&queue_links);
	free(is_hot);
	end_lists();
}

/* The stack ends with a hot page. */
static void
lirs_prune(void)
{
	while (stack.length > 0 && !is_hot[stack.last])
	{
		const uint32_t page = list_take_last(&links, &stack);

		if (queue_links.list[page] == &lirs_ghosts)
			list_remove(&queue_links, page);
	}
}

/* The page becomes hot; the oldest hot one cold, if there are too many. */
static void
lirs_make_hot(uint32_t page)
{
	if (queue_links.list[page])
		list_remove(&queue_links, page);
	is_hot[page] = 1;
	list_to(&links, &stack, page);
	if (++hot_pages > BUFFERS - COLD_PAGES)
	{
		const uint32_t oldest = list_take_last(&links, &stack);

		is_hot[oldest] = 0;
		hot_pages--;
		list_put(&queue_links, &cold, oldest);
	}
	lirs_prune();
}

static void
lirs_evict(void)
{
	const uint32_t page = list_take_last(&queue_links, &cold);

	if (!links.list[page])
		return;
	if (lirs_ghosts.length == LIRS_GHOSTS)
		list_remove(&links, list_take_last(&queue_links, &lirs_ghosts));
	list_put(&queue_links, &lirs_ghosts, page);
}

static bool
lirs_use(int reference)
{
	const uint32_t page = trace->pages[reference];
	const bool	hit = is_hot[page] || queue_links.list[page] == &cold;

	if (is_hot[page])
	{
		list_to(&links, &stack, page);
		lirs_prune();
		return true;
	}
	if (!hit && hot_pages + cold.length == BUFFERS)
		lirs_evict();
	if (links.list[page] || hot_pages < BUFFERS - COLD_PAGES)
		lirs_make_hot(page);
	else
	{
		list_put(&links, &stack, page);
		list_to(&queue_links, &cold, page);
	}
	return hit;
}

const Algorithm lirs = {"LIRS", lirs_begin, lirs_use, NULL, NULL, lirs_end};
