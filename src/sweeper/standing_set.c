/*-------------------------------------------------------------------------
 *
 * standing_set.c
 *	  Write combining: finds the dirty pages to write together; and the standing set, dirty pages
 *	  that may leave, and wait to be written.
 *
 * A disk that is limited by its number of operations writes a run of neighbours at the
 * price of one page.  So the server's buffer mapping is searched around each victim for
 * neighbours that are in memory and dirty.  Nothing is locked over the batch, and requests
 * of the server are served during it.  Changes are noticed when a page's turn comes.
 *
 * Where a fraction p of a file's pages is dirty, at random, the run around a victim has
 * (1 + p) / (1 - p) pages on average.  So while writes are short a large choice pays: of many pages that may
 * leave, those with the most dirty neighbours are written, and the others wait for
 * neighbours.  A candidate stays until it is written, used again, or replaced.  So the
 * sweep need not pass many buffers to find new ones, and usage counts keep their meaning.
 *
 * But the longest runs are where pages are used most.  So while writes are not short the
 * oldest candidates are written first, with their neighbours: in bench/replacement, with
 * transactions like TPC-C's and the clock, sessions then read as many pages as without a
 * sweeper, instead of 1.12 times as many.
 *
 * A candidate is a buffer number and the hash of the page that the buffer held.  Each
 * buffer has two more bytes: marks, and the length of the run around its page at the
 * sweep's last look.  One look at a run sets the length of all candidates in it, so the
 * cost grows with the pages, not with their square.  A run longer than the limit would
 * be searched for each candidate behind the limit.  So a search ends at pages that this
 * turn has already found in a run of the limit.  Then a turn looks up each page once,
 * and two more pages at the end of each run, in any order of the candidates.  Only a
 * page that becomes dirty later costs a look of its own, of at most the limit.  All of
 * it counts towards the time of the sweep.  A length is a hint, because neighbours
 * become dirty and others are written.  So the sweep measures the runs again in turn,
 * and always the chosen run; if that has become shorter, its candidate waits at the new
 * length.
 *
 * Why a quarter of the buffers: transactions for each disk write, and in parentheses
 * pages written for each transaction, by bench/replacement/simulator.c, which runs this file
 * (8,192 buffers, six pages a transaction, all dirtied):
 *
 *					stock			N/16			N/8				N/4				N/2
 * uniform, 1.7x		0.41 (2.47)		4.09 (2.53)		4.36 (2.52)		4.45 (2.52)		4.49 (2.50)
 * uniform, 3.2x		0.24 (4.12)		0.55 (4.18)		0.59 (4.17)		0.65 (4.19)		0.68 (4.16)
 * pareto, 3.2x		0.83 (1.20)		1.80 (1.65)		1.88 (1.67)		1.99 (1.70)		2.00 (1.76)
 * zipf 1.05, 3.2x		1.43 (0.70)		2.58 (0.82)		2.69 (0.83)		2.88 (0.83)		3.01 (0.84)
 *
 * More pages are written for each transaction than on a stock server: hot neighbours
 * are written, too, and become dirty again; and pages leave earlier.  Two variants were
 * worse: runs in which only cold pages count, and runs from which only victims leave.
 *
 * The sweep fills as much of that as the fraction of victims that are dirty (scan.c).
 * Clean victims leave at once, and dirty ones in short runs would wait for long where new
 * rows give long runs again and again: the set would be full of pages that are older than
 * the clean ones that leave for them.
 *
 * When a backend replaces a page by itself, the buffer keeps its marks.  So the new
 * page may leave one lap early, or wait until the old page's entry has its turn.  That
 * is harmless, and not worth a hash for each buffer: where half of the ticks find no
 * stock, marks that go with their page change the model's figures by less than 2 %, and
 * mostly for the worse.
 *
 * Nothing is shared: the set is memory of the sweep's process, two bytes for each
 * buffer and twelve for each candidate.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/timer.h"
#include "sweeper/standing_set.h"

/* Marks of a buffer. */
#define MARK_CANDIDATE	0x01	/* its page is in the set */
#define MARK_TURN		0x02	/* looked at in the turn of this parity */
#define MARK_QUEUED		0x04	/* went to the writers */
#define MARK_ENTRY		0x08	/* the set has an entry, maybe an old one */

/* A length of a run has a byte. */
#define LENGTH_MAX		255

/* Pages at which a run ends, on both sides. */
#define RUN_ENDS		2

/* Pages and candidates between two looks at the CPU time. */
#define LOOK_AT_CLOCK	256

typedef struct Candidate
{
	int			buf;
	uint32		page_hash;
} Candidate;

static uint8 *marks = NULL;		/* by buffer */
static uint8 *lengths = NULL;	/* by buffer, too; 0: not known */
static Candidate *candidates = NULL;	/* the oldest first */
static int	used = 0;
static int	room = 0;
static int *chosen = NULL;		/* numbers of candidates */
static int	turn_at = 0;		/* the next one to look at anew */
static uint8 turn = 0;			/* MARK_TURN or 0 */
static int	full_length;		/* in lengths, of a run of the limit */
static bool longest_first = false;

/* The buffer that holds the page, if that is dirty and free to be written, or -1. */
static int
worth_writing(const PgscalePage *page, bool (*may_write) (int buf))
{
	int			buf = pgscale_buffer_find(page);
	PgscaleBuffer look;

	if (buf < 0)
		return -1;
	pgscale_buffer_look(buf, &look);
	return look.valid && look.dirty && !look.busy && may_write(buf) ? buf : -1;
}

/*
 * Finds the run around a page, at most limit pages from block "least" on, first
 * those before the page; it ends at a buffer that may not be written, if that is asked.
 * bufs has room for limit buffers and gets theirs, in no order.  Returns how
 * many; none if the page itself is not worth writing.
 */
static int
set_run_around(const PgscalePage *page, int limit, bool (*may_write) (int buf),
			   PgscaleSweeperRun *run, int *bufs)
{
	PgscalePage at = *page;
	int			n = 0;
	int			buf = worth_writing(page, may_write);

	Assert(limit > 0 && limit <= PGSCALE_RUN_MAX);
	run->first = *page;
	run->pages = 0;
	run->victims = 0;
	if (buf < 0)
		return 0;
	bufs[n++] = buf;
	while (n < limit && at.block > 0)
	{
		at.block--;
		if ((buf = worth_writing(&at, may_write)) < 0)
			break;
		bufs[n++] = buf;
		run->first = at;
	}
	for (at.block = page->block + 1; n < limit && at.block != InvalidBlockNumber && (buf = worth_writing(&at, may_write)) >= 0; at.block++)
		bufs[n++] = buf;
	run->pages = n;
	return n;
}

static int
in_file_order(const void *a, const void *b)
{
	return pgscale_buffer_page_compare(&((const PgscaleSweeperRun *) a)->first,
									   &((const PgscaleSweeperRun *) b)->first);
}

void
pgscale_sweeper_set_init(int candidates_room)
{
	Assert(candidates_room > 0);
	room = candidates_room;
	used = turn_at = 0;
	marks = MemoryContextAllocExtended(TopMemoryContext, NBuffers, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	lengths = MemoryContextAllocExtended(TopMemoryContext, NBuffers, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	candidates = MemoryContextAlloc(TopMemoryContext, room * sizeof(Candidate));
	chosen = MemoryContextAlloc(TopMemoryContext, room * sizeof(int));
}

void
pgscale_sweeper_set_order(bool longest)
{
	longest_first = longest;
}

bool
pgscale_sweeper_set_lacks(double part)
{
	return used < part * room;
}

void
pgscale_sweeper_set_forget(int buf)
{
	marks[buf] &= MARK_ENTRY;
	lengths[buf] = 0;
}

static bool
not_queued(int buf)
{
	return (marks[buf] & MARK_QUEUED) == 0;
}

/* Nor in a run of the limit that was looked at in this turn. */
static bool
not_in_full_run(int buf)
{
	return (marks[buf] & MARK_QUEUED) == 0 && ((marks[buf] & MARK_TURN) != turn || lengths[buf] < full_length);
}

/* Is the length of its run known, from this turn? */
static bool
is_measured(int buf)
{
	return (marks[buf] & MARK_TURN) == turn && lengths[buf] > 0;
}

/* Looks at the run around a page, and notes its length for all that are in it. */
static int
look_at_run(const PgscalePage *page, int limit, bool (*may_write) (int buf), PgscaleSweeperRun *run, int *bufs)
{
	int			n = set_run_around(page, limit, may_write, run, bufs);

	for (int i = 0; i < n; i++)
	{
		const int	at = bufs[i];

		lengths[at] = Min(n, LENGTH_MAX);
		marks[at] = (marks[at] & ~MARK_TURN) | turn;
		run->victims += (marks[at] & MARK_CANDIDATE) != 0;
	}
	Assert(n == run->pages && n <= limit && run->victims <= n);
	return n;
}

/* Notes the length around a page that this turn has not seen.  Returns the run's pages. */
static int
note_run(const PgscalePage *page, int limit)
{
	PgscaleSweeperRun run;
	int			bufs[PGSCALE_RUN_MAX];

	full_length = Min(limit, LENGTH_MAX);
	return look_at_run(page, limit, not_in_full_run, &run, bufs);
}

/* Is the CPU time over, *looked being what was looked at since the last check of it? */
static bool
set_looked_enough(int *looked, int64 give_up)
{
	if (*looked < LOOK_AT_CLOCK)
		return false;
	*looked = 0;
	return pgscale_timer_cpu_time() > give_up;
}

bool
pgscale_sweeper_set_skip(int buf)
{
	const uint8 mark = marks[buf];

	/* Still dirty when the sweep comes round again, it was skipped. */
	marks[buf] &= ~MARK_QUEUED;
	return (mark & (MARK_CANDIDATE | MARK_QUEUED)) != 0;
}

int
pgscale_sweeper_set_add(int buf, const PgscalePage *page, int limit)
{
	Assert(used <= room);
	/* An old entry would take its mark; the next choice removes that. */
	if (used >= room || (marks[buf] & MARK_ENTRY))
		return 0;
	marks[buf] |= MARK_CANDIDATE | MARK_ENTRY;
	candidates[used].buf = buf;
	candidates[used++].page_hash = pgscale_buffer_page_hash(page);
	if (!longest_first || is_measured(buf))
		return 0;
	return note_run(page, limit) + RUN_ENDS;
}

/* Is it still there, dirty and unused?  If not, it is a candidate no more. */
static bool
still_candidate(const Candidate *c, PgscaleSweeperUnused unused, PgscalePage *page)
{
	PgscaleBuffer look;

	if ((marks[c->buf] & MARK_CANDIDATE) == 0)
		return false;
	if (!pgscale_buffer_read(c->buf, &look, page) || pgscale_buffer_page_hash(page) != c->page_hash)
	{
		pgscale_sweeper_set_forget(c->buf);
		return false;
	}
	if (look.dirty && unused(c->buf, &look, page))
		return true;
	marks[c->buf] &= ~MARK_CANDIDATE;
	return false;
}

/* The length by which they are ordered: while the oldest go first, all are equal. */
static int
order_length(int at)
{
	return longest_first ? lengths[at] : 0;
}

/* Removes those that lost their mark, and counts the others by the lengths of their runs. */
static void
set_compact(int *counts)
{
	int			n = 0;
	int			next = turn_at;

	memset(counts, 0, (LENGTH_MAX + 1) * sizeof(int));
	for (int i = 0; i < used; i++)
	{
		int			at = candidates[i].buf;

		if (i == turn_at)
			next = n;
		if ((marks[at] & MARK_CANDIDATE) == 0)
		{
			marks[at] &= ~MARK_ENTRY;
			continue;
		}
		counts[order_length(at)]++;
		candidates[n++] = candidates[i];
	}
	Assert(n <= used);
	used = n;
	turn_at = Min(next, used);
}

/*
 * Puts the candidates of the longest runs into chosen, which have at least that many
 * pages, the longest first and among equal ones the oldest. ends has the end of those
 * of each length.
 */
static int
set_longest(int pages, int *ends)
{
	int			counts[LENGTH_MAX + 1];
	int			least = LENGTH_MAX;
	int			n = 0;

	set_compact(counts);
	for (;; least--)
	{
		ends[least] = n;
		n += counts[least];
		if (n >= pages || least == 0)
			break;
	}
	for (int i = 0; i < used; i++)
	{
		int			length = order_length(candidates[i].buf);

		if (length >= least)
			chosen[ends[length]++] = i;
	}
	Assert(n <= used && ends[least] == n);
	return n;
}

/* One look at the first. Returns how many runs, and takes their pages off. */
static int
set_choose_some(int *pages, PgscaleSweeperUnused unused, int limit, int64 give_up, PgscaleSweeperRun *runs, int most)
{
	int			bufs[PGSCALE_RUN_MAX];
	int			ends[LENGTH_MAX + 1];
	int			n = set_longest(*pages, ends);
	int			expected = LENGTH_MAX;
	int			nruns = 0;
	int			looked = 0;

	for (int i = 0; i < n && *pages > 0 && nruns < most; i++)
	{
		const Candidate *c = &candidates[chosen[i]];
		PgscaleSweeperRun *run = &runs[nruns];
		PgscalePage page;

		CHECK_FOR_INTERRUPTS();
		if (set_looked_enough(&looked, give_up))
			break;
		looked++;
		while (i >= ends[expected])
			expected--;
		/* Another candidate of this run may have found it shorter just now. */
		if (lengths[c->buf] < expected || !still_candidate(c, unused, &page))
			continue;

		/* None if another is about to write it: that is its end, too. */
		if (look_at_run(&page, limit, not_queued, run, bufs) == 0)
			marks[c->buf] &= ~MARK_CANDIDATE;
		looked += run->pages + RUN_ENDS;
		if (run->pages == 0 || Min(run->pages, LENGTH_MAX) < expected)
			continue;
		for (int b = 0; b < run->pages; b++)
			marks[bufs[b]] = (marks[bufs[b]] & ~MARK_CANDIDATE) | MARK_QUEUED;
		*pages -= run->pages;
		nruns++;
	}
	return nruns;
}

int
pgscale_sweeper_set_choose(int pages, PgscaleSweeperUnused unused, int limit, int64 cpu_ns, PgscaleSweeperRun *runs, int most)
{
	const int64 give_up = pgscale_timer_cpu_time() + cpu_ns;
	int			nruns = 0;

	if (pages <= 0)
		return 0;
	/* Runs that were shorter than noted come in their turn the second time. */
	for (int i = 0; i < 2 && pages > 0; i++)
		nruns += set_choose_some(&pages, unused, limit, give_up, runs + nruns, most - nruns);
	Assert(nruns <= most);
	qsort(runs, nruns, sizeof(PgscaleSweeperRun), in_file_order);
	return nruns;
}

void
pgscale_sweeper_set_refresh(int n, PgscaleSweeperUnused unused, int limit, int64 cpu_ns)
{
	const int64 give_up = pgscale_timer_cpu_time() + cpu_ns;
	int			looked = 0;

	if (!longest_first)
		return;
	for (n = Min(n, used); n > 0; n--)
	{
		const Candidate *c;
		PgscalePage page;
		int			run_pages;

		if (set_looked_enough(&looked, give_up))
			break;
		looked++;
		if (turn_at >= used)
		{
			turn_at = 0;
			turn ^= MARK_TURN;
		}
		c = &candidates[turn_at++];
		if (!still_candidate(c, unused, &page) || is_measured(c->buf))
			continue;
		run_pages = note_run(&page, limit);
		looked += run_pages + RUN_ENDS;
		if (run_pages == 0)
			marks[c->buf] &= ~MARK_CANDIDATE;
	}
}
