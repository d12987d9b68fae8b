/*-------------------------------------------------------------------------
 *
 * model.c
 *	  A model of the sweeper's world: a cache, sessions that dirty pages, writers
 *	  and a disk that does so many operations a second.
 *
 * src/sweeper/scan.c, standing_set.c, write_combining.c, supply/ and policies/ are
 * compiled into it unchanged; what they ask of the server is answered here.  So it
 * says what they decide, hours of it in seconds, and nothing about what the server
 * costs: no locks, no kernel cache.  Each buffer looked at and each page looked up
 * has a fixed price in CPU time.  The sweep sees it on its clocks, and a long tick
 * delays the next one.  Fewer runs may be queued, as there are fewer buffers.
 *
 * The disk takes a page alone and a run of neighbours for one operation.  All who
 * write to it wait in one queue, a page each time, as the kernel makes those who
 * dirty pages wait (balance_dirty_pages()).  A session that misses takes a buffer
 * from the freelist, or by the clock sweep, and then must write it first if it is
 * dirty.
 *
 *	  model LOAD TIMES SECONDS WRITERS PART SEED MODE POLICY WRITES
 *
 * LOAD: uniform, pareto, zipf and its exponent, tpcb; TIMES: pages a buffer; WRITERS: 0 is
 * a stock server, less than 0 are writers that the disk serves before sessions;
 * PART: the set has room for 1/PART of the buffers; MODE: freelist or window; POLICY:
 * clock, history or adaptive; WRITES: operations of the disk a second.  The sweeper
 * begins when all buffers are in use.  Prints a line of numbers:
 * transactions a disk write, pages written a transaction, pages a write,
 * transactions a second, misses a transaction, buffers that the sweep passed a miss,
 * share of ticks without stock, pages a transaction that sessions wrote, the longest
 * tick's milliseconds, buffers that the server's hand passed a miss.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "common/pg_prng.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/shared_buffers.h"
#include "base/timer.h"
#include "base/units.h"
#include "sweeper/keep.h"
#include "sweeper/known_pages.h"
#include "sweeper/standing_set.h"
#include "sweeper/sweeper.h"

#define BUFFERS			8192
#define SESSIONS		8
#define TOUCHES			6		/* pages a transaction */
#define TRANSACTION_NS	(4000 * NS_PER_US)	/* without waits */
#define TICK_NS			(4 * NS_PER_MS)
#define STEP_NS			(NS_PER_MS / 20)
#define SETTLE_S		60
#define DIRTY_PAGES		768		/* that the kernel holds back before somebody waits */
#define QUEUE			128		/* runs: a third of the high watermark's pages, as for a large cache */
#define LOOK_NS			50		/* at a buffer's header */
#define LOOK_UP_NS		400		/* of a page in the mapping */

/* What the sources ask for. */
int			NBuffers = BUFFERS;
volatile sig_atomic_t InterruptPending = false;
MemoryContext TopMemoryContext = NULL;
pg_prng_state pg_global_prng_state;
PgscaleSweeperSettings pgscale_sweeper_settings = {
	.enabled = true,.workers = 1,.high_watermark = 0.05
};

typedef struct Frame
{
	int			page;			/* -1: none */
	uint8		usage;
	bool		dirty;
	bool		listed;
} Frame;

static Frame frames[BUFFERS];
static int *where;				/* by page: its buffer, or -1 */
static int	pages;
static int	list[BUFFERS];
static int	list_used = 0;
static uint64 clock_hand = 0;
static int64 now_ns = 0;
static int64 cpu_ns = 0;		/* in this tick */
static PgscaleSweeperShare *share;
static PgscaleSweeperRun queue[PGSCALE_RUNS_QUEUED];
static uint64 queue_put = 0;
static uint64 queue_taken = 0;
static PgscaleSweeperSwept *written;
static uint64 written_put = 0;
static uint64 written_taken = 0;
static PgscaleSweeperWriteCounts write_counts;

/* Everything that is printed. */
static double ops = 0;
static double pages_written = 0;
static double session_pages = 0;
static double transactions = 0;
static double misses = 0;
static int64 longest_ns = 0;

void *
MemoryContextAlloc(MemoryContext context, Size size)
{
	return calloc(1, size);
}

void *
MemoryContextAllocExtended(MemoryContext context, Size size, int flags)
{
	return calloc(1, size);
}

void
ProcessInterrupts(void)
{
}

/* xorshift */
uint64
pg_prng_uint64_range(pg_prng_state *state, uint64 from, uint64 to)
{
	state->s0 ^= state->s0 << 13;
	state->s0 ^= state->s0 >> 7;
	state->s0 ^= state->s0 << 17;
	return from + (state->s0 >> 1) % (to - from + 1);
}

/* Instead of libpgport's. */
#undef qsort
#undef printf
#undef fprintf

void
pg_qsort(void *base, size_t nel, size_t elsize, int (*cmp) (const void *, const void *))
{
	qsort(base, nel, elsize, cmp);
}

int64
pgscale_timer_clock(void)
{
	return now_ns + cpu_ns;
}

int64
pgscale_timer_cpu_time(void)
{
	return cpu_ns;
}

bool
pgscale_buffer_page_equal(const PgscalePage *a, const PgscalePage *b)
{
	return a->block == b->block;
}

int
pgscale_buffer_page_compare(const void *a, const void *b)
{
	const PgscalePage *x = a;
	const PgscalePage *y = b;

	return x->block < y->block ? -1 : x->block > y->block;
}

uint32
pgscale_buffer_page_hash(const PgscalePage *page)
{
	return page->block;
}

void
pgscale_buffer_look(int buf, PgscaleBuffer *buffer)
{
	const Frame *f = &frames[buf];

	cpu_ns += LOOK_NS;
	memset(buffer, 0, sizeof(PgscaleBuffer));
	buffer->usage = f->usage;
	buffer->valid = f->page >= 0;
	buffer->dirty = f->dirty;
	buffer->listed = f->listed;
}

bool
pgscale_buffer_read(int buf, PgscaleBuffer *buffer, PgscalePage *page)
{
	pgscale_buffer_look(buf, buffer);
	memset(page, 0, sizeof(PgscalePage));
	page->block = frames[buf].page;
	return buffer->valid;
}

int
pgscale_buffer_find(const PgscalePage *page)
{
	cpu_ns += LOOK_UP_NS;
	return page->block < (BlockNumber) pages ? where[page->block] : -1;
}

bool
pgscale_buffer_listed(int buf)
{
	return frames[buf].listed;
}

bool
pgscale_buffer_set_usage(int buf, const PgscaleBuffer *seen, uint8 usage)
{
	frames[buf].usage = usage;
	return true;
}

bool
pgscale_buffer_supply(int buf, const PgscalePage *page, uint8 max_usage)
{
	Frame	   *f = &frames[buf];

	if (f->listed || f->dirty || f->page != (int) page->block || f->usage > max_usage)
		return false;
	f->usage = 0;
	f->listed = true;
	list[list_used++] = buf;
	return true;
}

uint64
pgscale_buffers_hand(void)
{
	return clock_hand;
}

bool
pgscale_buffers_any_listed(void)
{
	return list_used > 0;
}

/* No relation is kept. */

int			pgscale_sweeper_kept_files = 0;

void
pgscale_sweeper_kept_refresh(const PgscaleSweeperShare *of)
{
}

int
pgscale_sweeper_kept_place(const RelFileLocator *file)
{
	return -1;
}

int
pgscale_sweeper_kept_met(const PgscaleSweeperShare *of, const RelFileLocator *file)
{
	return -1;
}

void
pgscale_sweeper_kept_stayed(const PgscaleSweeperShare *of, int place)
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
	return share;
}

bool
pgscale_sweeper_put_run(PgscaleSweeperShare *s, const PgscaleSweeperRun *run)
{
	if (queue_put - queue_taken >= QUEUE)
		return false;
	queue[queue_put++ % PGSCALE_RUNS_QUEUED] = *run;
	return true;
}

uint32
pgscale_sweeper_queued_runs(PgscaleSweeperShare *s)
{
	/* The room that seems left is that of the queue here. */
	return (uint32) (queue_put - queue_taken) + PGSCALE_RUNS_QUEUED - QUEUE;
}

static int	writing[PGSCALE_SWEEPER_MAX_WRITERS];

int
pgscale_sweeper_pending(PgscaleSweeperShare *s)
{
	int			n = 0;

	for (uint64 i = queue_taken; i < queue_put; i++)
		n += queue[i % PGSCALE_RUNS_QUEUED].pages;
	for (int i = 0; i < PGSCALE_SWEEPER_MAX_WRITERS; i++)
		n += writing[i];
	return n;
}

/* All of it is in the first writer's hands. */
bool
pgscale_sweeper_take_written(PgscaleSweeperWriter *writer, PgscaleSweeperSwept *swept, bool *lost)
{
	if (writer != &share->writers[0] || written_taken == written_put)
		return false;
	*swept = written[written_taken++ % BUFFERS];
	return true;
}

PgscaleSweeperWriteCounts
pgscale_sweeper_write_counts(const PgscaleSweeperShare *s)
{
	return write_counts;
}

/* One who writes: a session with a page of its own, or a writer at a run. */
typedef struct Actor
{
	bool		waits;			/* in the disk's queue */
	int64		free_ns;		/* from then on it can go on */
	int			touches;		/* session: left of its transaction */
	int			account;		/* session: page of its account */
	bool		reads;			/* session: does not dirty the page */
	int			page;			/* session: that it missed */
	int			buf;			/* session: for that page */
	PgscaleSweeperRun run;		/* writer */
	int			at;
	bool		begun;			/* writer: the page before was written */
} Actor;

/* Loads */

static double *cumulated = NULL;	/* zipf */
static int *permuted;
static double exponent = 0;
static bool is_tpcb = false;

static double
draw(void)
{
	return (double) (pg_prng_uint64_range(&pg_global_prng_state, 0, PG_INT64_MAX)) / PG_INT64_MAX;
}

static void
prepare_load(const char *load)
{
	double		s = strncmp(load, "zipf", 4) == 0 ? atof(load + 4) : 0;

	is_tpcb = strcmp(load, "tpcb") == 0;
	if (strcmp(load, "pareto") == 0)
		exponent = log(0.2) / log(0.8); /* as sysbench's, h = 0.2 */
	if (s == 0)
		return;
	cumulated = malloc(pages * sizeof(double));
	permuted = malloc(pages * sizeof(int));
	for (int i = 0; i < pages; i++)
	{
		int			j = (int) pg_prng_uint64_range(&pg_global_prng_state, 0, i);

		cumulated[i] = (i > 0 ? cumulated[i - 1] : 0) + pow(i + 1, -s);
		permuted[i] = permuted[j];
		permuted[j] = i;
	}
}

/*
 * Like TPC-B: one account in the table and in its key, whose pages are read only; a teller,
 * a branch and the end of the history.  There is one page of tellers for each 512 pages.
 * The history takes a page after so many rows, and begins anew where its pages end.
 */
#define TPCB_TOUCHES	5
#define TPCB_KEY		6		/* table's pages a page of the key */
#define TPCB_TELLERS	512
#define TPCB_HISTORY	150		/* rows a page */

static int
draw_tpcb_page(Actor *a)
{
	static uint64 rows = 0;
	const int	tellers = pages / TPCB_TELLERS + 1;
	const int	history = pages / 16;
	const int	key = (pages - 2 * tellers - history) / (TPCB_KEY + 1);
	const int	accounts = pages - 2 * tellers - history - key;

	switch (a->touches)
	{
		case 5:
			a->account = Min((int) (draw() * accounts), accounts - 1);
			a->reads = true;
			return accounts + a->account * (int64) key / accounts;
		case 4:
			return a->account;
		case 3:
			return accounts + key + Min((int) (draw() * tellers), tellers - 1);
		case 2:
			return accounts + key + tellers + Min((int) (draw() * tellers), tellers - 1);
		default:
			return accounts + key + 2 * tellers + rows++ / TPCB_HISTORY % history;
	}
}

static int
draw_page(Actor *a)
{
	double		u;
	int			low = 0;
	int			high = pages - 1;

	a->reads = false;
	if (is_tpcb)
		return draw_tpcb_page(a);
	u = draw();
	if (exponent > 0)
		return Min((int) (pages * pow(u, exponent)), pages - 1);
	if (!cumulated)
		return Min((int) (u * pages), pages - 1);
	u *= cumulated[pages - 1];
	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (cumulated[middle] < u)
			low = middle + 1;
		else
			high = middle;
	}
	return permuted[low];
}

/* A buffer that may be used, as StrategyGetBuffer() finds one. */
static int
get_buffer(void)
{
	while (list_used > 0)
	{
		int			buf = list[--list_used];

		frames[buf].listed = false;
		if (frames[buf].usage == 0)
			return buf;
	}
	for (;;)
	{
		Frame	   *f = &frames[clock_hand++ % BUFFERS];

		if (f->usage == 0)
			return (int) (f - frames);
		f->usage--;
	}
}

static Actor actors[SESSIONS + PGSCALE_SWEEPER_MAX_WRITERS];
static int	line[SESSIONS + PGSCALE_SWEEPER_MAX_WRITERS];
static int	in_line = 0;
static bool writers_first = false;	/* what the writers could do if sessions left the disk to them */
static double owed_ops = 0;		/* what the kernel has yet to write */
static double owed_pages = 0;
static double writes_a_second;

static void
stand_in_line(int who)
{
	actors[who].waits = true;
	line[in_line++] = who;
}

static void
put_page(Actor *a)
{
	Frame	   *f = &frames[a->buf];

	if (where[a->page] >= 0)
	{
		/* another session was faster; the buffer stays as it is */
		frames[where[a->page]].dirty |= !a->reads;
		return;
	}
	if (f->page >= 0)
		where[f->page] = -1;
	f->page = a->page;
	f->usage = 1;
	f->dirty = !a->reads;
	where[a->page] = a->buf;
}

static void
session_goes_on(int who)
{
	Actor	   *a = &actors[who];

	while (a->touches > 0)
	{
		int			page = draw_page(a);

		a->touches--;
		if (where[page] >= 0)
		{
			Frame	   *f = &frames[where[page]];

			f->usage = Min(f->usage + 1, PGSCALE_MAX_USAGE);
			f->dirty |= !a->reads;
			continue;
		}
		misses++;
		a->page = page;
		a->buf = get_buffer();
		if (frames[a->buf].dirty)
		{
			stand_in_line(who);
			return;
		}
		put_page(a);
	}
	transactions++;
	a->touches = is_tpcb ? TPCB_TOUCHES : TOUCHES;
	a->free_ns = now_ns + TRANSACTION_NS;
}

/* Takes a run if it has none, and stands in line for its next page that is still dirty. */
static void
writer_goes_on(int who)
{
	Actor	   *a = &actors[who];

	for (;;)
	{
		if (a->at >= a->run.pages)
		{
			writing[who - SESSIONS] = a->run.pages = 0;
			if (queue_taken == queue_put)
			{
				a->free_ns = now_ns + TICK_NS / 4;
				return;
			}
			a->run = queue[queue_taken++ % PGSCALE_RUNS_QUEUED];
			a->at = 0;
			a->begun = false;
			writing[who - SESSIONS] = a->run.pages;
		}
		a->buf = where[a->run.first.block + a->at];
		if (a->buf >= 0 && frames[a->buf].dirty)
		{
			stand_in_line(who);
			return;
		}
		write_counts.skipped_changed++;
		a->begun = false;
		a->at++;
	}
}

/* Who is first in line writes a page. */
static void
serve(void)
{
	int			first = 0;
	int			who;
	Actor	   *a;
	bool		operation;

	if (writers_first)
		while (first < in_line - 1 && line[first] < SESSIONS)
			first++;
	if (line[first] < SESSIONS)
		first = 0;
	who = line[first];
	a = &actors[who];
	operation = who < SESSIONS || !a->begun;
	memmove(line + first, line + first + 1, (--in_line - first) * sizeof(int));
	a->waits = false;
	pages_written++;
	ops += operation;
	owed_ops += operation;
	owed_pages++;
	if (who < SESSIONS)
	{
		session_pages++;
		frames[a->buf].dirty = false;
		put_page(a);
		session_goes_on(who);
		return;
	}
	/* It may have got another page while it waited. */
	if (where[a->run.first.block + a->at] == a->buf && frames[a->buf].dirty)
	{
		PgscaleSweeperSwept *swept = &written[written_put % BUFFERS];

		frames[a->buf].dirty = false;
		swept->buf = a->buf;
		swept->page.block = frames[a->buf].page;
		written_put++;
		write_counts.written++;
		a->begun = true;
	}
	a->at++;
	writer_goes_on(who);
}

/* So many seconds of operations, each with as many pages as there are in the mean. */
static void
disk_works(double seconds)
{
	double		done = Min(seconds * writes_a_second, owed_ops);

	if (done > 0)
		owed_pages -= owed_pages * done / owed_ops;
	owed_ops -= done;
}

static void
live(int64 until_ns, int writers)
{
	static int64 tick_ns = 0;

	for (; now_ns < until_ns; now_ns += STEP_NS)
	{
		if (writers > 0 && now_ns >= tick_ns)
		{
			share->counts.ticks++;
			(void) pgscale_sweeper_scan(share);
			longest_ns = Max(longest_ns, cpu_ns);
			tick_ns = now_ns + Max(TICK_NS, cpu_ns);
			cpu_ns = 0;
		}
		for (int who = 0; who < SESSIONS + writers; who++)
			if (!actors[who].waits && actors[who].free_ns <= now_ns)
			{
				if (who < SESSIONS)
					session_goes_on(who);
				else
					writer_goes_on(who);
			}
		while (in_line > 0 && owed_pages < DIRTY_PAGES)
			serve();
		disk_works(STEP_NS / 1e9);
	}
}

static bool
all_in_use(void)
{
	for (int i = 0; i < BUFFERS; i++)
		if (frames[i].page < 0)
			return false;
	return true;
}

static int
policy_named(const char *name)
{
	for (int i = 0; i < PGSCALE_SWEEPER_POLICIES; i++)
		if (strcmp(pgscale_sweeper_policies[i]->name, name) == 0)
			return i;
	fprintf(stderr, "there is no policy %s\n", name);
	exit(2);
}

static Size
most_memory(void)
{
	Size		most = 0;

	for (int i = 0; i < PGSCALE_SWEEPER_POLICIES; i++)
		most = Max(most, pgscale_sweeper_policies[i]->size(BUFFERS));
	return most;
}

int
main(int argc, char **argv)
{
	double		seconds,
				passed,
				ticks;
	int			writers,
				part;

	if (argc != 10)
	{
		fprintf(stderr, "model LOAD TIMES SECONDS WRITERS PART SEED MODE POLICY WRITES\n");
		return 2;
	}
	pages = (int) (atof(argv[2]) * BUFFERS);
	seconds = atof(argv[3]);
	writers = abs(atoi(argv[4]));
	writers_first = atoi(argv[4]) < 0;
	part = atoi(argv[5]);
	pg_global_prng_state.s0 = 88172645463325252 + atoi(argv[6]);
	writes_a_second = atof(argv[9]);
	where = malloc(pages * sizeof(int));
	memset(where, -1, pages * sizeof(int));
	written = malloc(BUFFERS * sizeof(PgscaleSweeperSwept));
	share = calloc(1, sizeof(PgscaleSweeperShare) + BUFFERS * sizeof(PgscaleSweeperSupplied));
	share->buffers = BUFFERS;
	share->stack_size = BUFFERS / 4;
	share->pages = calloc(BUFFERS, sizeof(PgscaleSweeperPage));
	share->policy_memory = calloc(1, most_memory());
	share->policy = PGSCALE_SWEEPER_NO_POLICY;
	share->low = (int) (0.4 * BUFFERS * pgscale_sweeper_settings.high_watermark);
	share->high = (int) (BUFFERS * pgscale_sweeper_settings.high_watermark);
	prepare_load(argv[1]);
	for (int i = 0; i < BUFFERS; i++)
		frames[i].page = -1;
	for (int i = 0; i < SESSIONS; i++)
		actors[i].touches = is_tpcb ? TPCB_TOUCHES : TOUCHES;
	pgscale_sweeper_scan_init(share);
	pgscale_sweeper_scan_settings(share, strcmp(argv[7], "window") == 0 ? PGSCALE_SWEEPER_WINDOW : PGSCALE_SWEEPER_FREELIST,
								  policy_named(argv[8]));
	if (part > 0)
		pgscale_sweeper_set_init(0, BUFFERS, BUFFERS / part);

	while (!all_in_use() && now_ns < SETTLE_S * NS_PER_S)
		live(now_ns + NS_PER_S, 0);
	live(now_ns + (int64) SETTLE_S * NS_PER_S, writers);
	ops = pages_written = session_pages = transactions = misses = 0;
	share->counts.ticks = share->counts.starved = longest_ns = 0;
	passed = (double) share->counts.scanned;
	ticks = (double) clock_hand;
	live(now_ns + (int64) (seconds * 1e9), writers);
	passed = (double) share->counts.scanned - passed;
	printf("%.3f %.3f %.2f %.0f %.3f %.2f %.3f %.3f %.1f %.1f\n", transactions / ops, pages_written / transactions, pages_written / ops,
		   transactions / seconds, misses / transactions, passed / Max(misses, 1),
		   (double) share->counts.starved / Max(share->counts.ticks, 1), session_pages / transactions, longest_ns / 1e6,
		   (clock_hand - ticks) / Max(misses, 1));
	return 0;
}
