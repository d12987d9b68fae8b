/*-------------------------------------------------------------------------
 *
 * simulator.c
 *	  A cache, sessions that use its pages in a given order, and a disk that does
 *	  so many writes a second, with the sweeper's own source files.
 *
 * src/sweeper/scan.c, known_pages.c, standing_set.c, supply.c and policy/ are compiled
 * into it unchanged; what they ask of the server is answered here.  So it says what they
 * decide, hours of it in seconds, and nothing about what the server costs: no locks, no
 * kernel cache.  Each buffer looked at and each page looked up has a fixed price in CPU
 * time, which the sweep sees on its clocks.
 *
 *	  simulator TRACE BUFFERS SERVER REFERENCES WRITES
 *
 * TRACE: a file with a 32-bit number for each reference: the page, and the highest bit
 * if the page is changed; SERVER: "stock", "sweeper", or "clock" for a sweeper that
 * chooses as the clock does; REFERENCES: a second, if no session waits; WRITES: of the disk, a second.  Prints a
 * line for each BUFFERS references: misses, writes of the disk, pages written.
 *
 * The disk takes a page alone and a run of neighbours for one write.  A session that
 * misses takes a buffer by the clock sweep, and must write it first if it is dirty.  A
 * page that waits to be written is pinned.  The disk serves the sweeper's writers before
 * the sessions, so the result is the most that the choice of pages can save.  Reads take
 * no time.  The sweeper begins when all buffers are in use.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

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

#define SESSIONS		8
#define WRITERS			16
#define TOUCHES			6		/* references of a transaction */
#define TICK_NS			(4 * NS_PER_MS)
#define STEP_NS			(NS_PER_MS / 4)
#define DIRTY_PAGES		768		/* that the kernel holds back before a process waits */
#define QUEUE			128		/* runs: a third of the high watermark's pages, as for a large cache */
#define SET_PART		4		/* the standing set has room for one buffer in so many */
#define LOOK_NS			50		/* at a buffer's header */
#define LOOK_UP_NS		400		/* of a page in the mapping */
#define CHANGES			0x80000000

/* What the sources ask for. */
int			NBuffers;
volatile sig_atomic_t InterruptPending = false;
MemoryContext TopMemoryContext = NULL;
pg_prng_state pg_global_prng_state;
PgscaleSweeperSettings pgscale_sweeper_settings = {
	.use = PGSCALE_USE_ON,.high_watermark = 0.05
};
int			pgscale_sweeper_kept_files = 0;

typedef struct Frame
{
	int			page;			/* -1: none */
	uint8		usage;
	bool		dirty;
	bool		written;		/* an actor waits to write it, and has it pinned */
} Frame;

/* A session with a page of its own, or a writer at a run. */
typedef struct Actor
{
	bool		waits;			/* in the disk's queue */
	int64		free_ns;		/* from then on it can go on */
	int			touches;		/* session: done of its transaction */
	uint32		reference;		/* session: that missed */
	int			buf;			/* session: for that page; writer: of the run's next page */
	PgscaleSweeperRun run;		/* writer */
	int			at;
	bool		begun;			/* writer: the page before was written */
} Actor;

static Frame *frames;
static int *where;				/* by page: its buffer, or -1 */
static int	pages;
static uint64 clock_hand = 0;
static int64 now_ns = 0;
static int64 cpu_ns = 0;		/* in this tick */
PgscaleSweeperMemory pgscale_sweeper_memory;
PgscaleSweeper *pgscale_sweeper;
static PgscaleSweeperRun queue[PGSCALE_RUNS_QUEUED];
static uint64 queue_put = 0;
static uint64 queue_taken = 0;
static PgscaleSweeperSwept *written;
static uint64 written_put = 0;
static uint64 written_taken = 0;
static PgscaleSweeperWriteCounts write_counts;
static Actor actors[SESSIONS + WRITERS];
static int	line[SESSIONS + WRITERS];	/* those who wait for the disk */
static int	in_line = 0;
static double owed_writes = 0;	/* what the kernel has still to write */
static double owed_pages = 0;
static double writes_a_second;
static int64 transaction_ns;

/* The references, and what is printed of each window of them. */
static uint32 *trace;
static int	trace_length;
static int	trace_used = 0;
static long misses = 0;
static long disk_writes = 0;
static long pages_written = 0;

/* The server, as the sweeper's files see it. */

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

/* splitmix64 */
uint32
pgscale_buffer_page_hash(const PgscalePage *page)
{
	uint64		x = page->block + UINT64CONST(0x9E3779B97F4A7C15);

	x = (x ^ x >> 30) * UINT64CONST(0xBF58476D1CE4E5B9);
	x = (x ^ x >> 27) * UINT64CONST(0x94D049BB133111EB);
	return (uint32) (x ^ x >> 31);
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
	buffer->pinned = buffer->busy = f->written;
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
pgscale_buffer_set_usage(int buf, const PgscaleBuffer *seen, uint8 usage)
{
	frames[buf].usage = usage;
	return true;
}

uint64
pgscale_buffers_hand(void)
{
	return clock_hand;
}

/* No relation is kept. */

void
pgscale_sweeper_kept_refresh(void)
{
}

int
pgscale_sweeper_kept_place(const RelFileLocator *file)
{
	return -1;
}

int
pgscale_sweeper_kept_met(const RelFileLocator *file)
{
	return -1;
}

void
pgscale_sweeper_kept_stayed(int place)
{
}

bool
pgscale_sweeper_put_run(PgscaleSweeperQueues *q, const PgscaleSweeperRun *run)
{
	if (queue_put - queue_taken >= QUEUE)
		return false;
	queue[queue_put++ % PGSCALE_RUNS_QUEUED] = *run;
	return true;
}

uint32
pgscale_sweeper_queued_runs(PgscaleSweeperQueues *q)
{
	/* The room that seems left is that of the queue here. */
	return (uint32) (queue_put - queue_taken) + PGSCALE_RUNS_QUEUED - QUEUE;
}

int
pgscale_sweeper_pending(PgscaleSweeperQueues *q)
{
	int			n = 0;

	for (uint64 i = queue_taken; i < queue_put; i++)
		n += queue[i % PGSCALE_RUNS_QUEUED].pages;
	for (int who = SESSIONS; who < SESSIONS + WRITERS; who++)
		n += actors[who].run.pages;
	return n;
}

/* All of it is in the first writer's hands. */
bool
pgscale_sweeper_take_written(PgscaleSweeperWritten *by, PgscaleSweeperSwept *swept, bool *lost)
{
	if (by != &pgscale_sweeper_memory.queues->written[0] || written_taken == written_put)
		return false;
	*swept = written[written_taken++ % NBuffers];
	return true;
}

PgscaleSweeperWriteCounts
pgscale_sweeper_write_counts(void)
{
	return write_counts;
}

/* A buffer that may be used, as StrategyGetBuffer() finds one. */
static int
get_buffer(void)
{
	for (;;)
	{
		Frame	   *f = &frames[clock_hand++ % NBuffers];

		if (f->written)
			continue;
		if (f->usage == 0)
			return (int) (f - frames);
		f->usage--;
	}
}

static void
print_window(void)
{
	printf("%ld %ld %ld\n", misses, disk_writes, pages_written);
	misses = disk_writes = pages_written = 0;
}

static void
stand_in_line(int who)
{
	actors[who].waits = true;
	frames[actors[who].buf].written = true;
	line[in_line++] = who;
}

static void
touch(int buf, uint32 reference)
{
	frames[buf].dirty |= (reference & CHANGES) != 0;
}

static void
put_page(Actor *a)
{
	const int	page = a->reference & ~CHANGES;
	Frame	   *f = &frames[a->buf];

	if (where[page] < 0)
	{
		if (f->page >= 0)
			where[f->page] = -1;
		f->page = page;
		f->usage = 1;
		f->dirty = false;
		where[page] = a->buf;
	}
	/* Otherwise another session was faster, and the buffer stays as it is. */
	touch(where[page], a->reference);
}

static void
session_goes_on(int who)
{
	Actor	   *a = &actors[who];

	while (a->touches < TOUCHES && trace_used < trace_length)
	{
		const uint32 reference = trace[trace_used];
		const int	buf = where[reference & ~CHANGES];

		if (trace_used > 0 && trace_used % NBuffers == 0)
			print_window();
		trace_used++;
		a->touches++;
		if (buf >= 0)
		{
			frames[buf].usage = Min(frames[buf].usage + 1, PGSCALE_MAX_USAGE);
			touch(buf, reference);
			continue;
		}
		misses++;
		a->reference = reference;
		a->buf = get_buffer();
		if (frames[a->buf].dirty)
		{
			stand_in_line(who);
			return;
		}
		put_page(a);
	}
	a->touches = 0;
	a->free_ns = now_ns + transaction_ns;
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
			a->run.pages = 0;
			if (queue_taken == queue_put)
			{
				a->free_ns = now_ns + TICK_NS / 4;
				return;
			}
			a->run = queue[queue_taken++ % PGSCALE_RUNS_QUEUED];
			a->at = 0;
			a->begun = false;
		}
		a->buf = where[a->run.first.block + a->at];
		if (a->buf >= 0 && frames[a->buf].dirty && !frames[a->buf].written)
		{
			stand_in_line(who);
			return;
		}
		write_counts.skipped_changed++;
		a->begun = false;
		a->at++;
	}
}

/* A page of a writer's run was written. */
static void
note_written(Actor *a)
{
	PgscaleSweeperSwept *swept = &written[written_put++ % NBuffers];

	swept->buf = a->buf;
	swept->page.block = frames[a->buf].page;
	write_counts.written++;
	a->begun = true;
	a->at++;
}

/* The first writer in line, or else the first session, writes a page. */
static void
serve(void)
{
	int			first = 0;
	int			who;
	Actor	   *a;

	while (first < in_line && line[first] < SESSIONS)
		first++;
	if (first == in_line)
		first = 0;
	who = line[first];
	a = &actors[who];
	memmove(line + first, line + first + 1, (--in_line - first) * sizeof(int));
	a->waits = frames[a->buf].written = frames[a->buf].dirty = false;
	pages_written++;
	owed_pages++;
	if (who < SESSIONS || !a->begun)
	{
		disk_writes++;
		owed_writes++;
	}
	if (who < SESSIONS)
	{
		put_page(a);
		session_goes_on(who);
	}
	else
	{
		note_written(a);
		writer_goes_on(who);
	}
}

/* The disk writes for that many seconds; each write has as many pages as they have on average. */
static void
disk_works(double seconds)
{
	double		done = Min(seconds * writes_a_second, owed_writes);

	if (done > 0)
		owed_pages -= owed_pages * done / owed_writes;
	owed_writes -= done;
}

static void
tick(void)
{
	static int64 next_ns = 0;

	if (now_ns < next_ns)
		return;
	pgscale_sweeper->counts.ticks++;
	pgscale_sweeper->period_ns = TICK_NS;
	(void) pgscale_sweeper_scan();
	/* A long tick delays the next one. */
	next_ns = now_ns + Max(TICK_NS, cpu_ns);
	cpu_ns = 0;
}

static bool
all_in_use(void)
{
	static int	used = 0;

	while (used < NBuffers && frames[used].page >= 0)
		used++;
	return used == NBuffers;
}

static void
live(bool is_stock)
{
	for (; trace_used < trace_length; now_ns += STEP_NS)
	{
		const bool	is_swept = !is_stock && all_in_use();

		if (is_swept)
			tick();
		for (int who = 0; who < SESSIONS + (is_swept ? WRITERS : 0); who++)
		{
			if (actors[who].waits || actors[who].free_ns > now_ns)
				continue;
			if (who < SESSIONS)
				session_goes_on(who);
			else
				writer_goes_on(who);
		}
		while (in_line > 0 && owed_pages < DIRTY_PAGES)
			serve();
		disk_works(STEP_NS / 1e9);
	}
	print_window();
}

static void
read_trace(const char *name)
{
	FILE	   *file = fopen(name, "rb");
	long		bytes = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : 0;

	trace_length = (int) (bytes / sizeof(uint32));
	trace = malloc(bytes + 1);
	if (trace_length > 0)
		rewind(file);
	if (trace_length == 0 || fread(trace, sizeof(uint32), trace_length, file) != trace_length)
	{
		fprintf(stderr, "no references in %s\n", name);
		exit(2);
	}
	fclose(file);
	for (int i = 0; i < trace_length; i++)
		pages = Max(pages, (int) (trace[i] & ~CHANGES) + 1);
}

static void
set_up(bool by_clock)
{
	frames = calloc(NBuffers, sizeof(Frame));
	for (int i = 0; i < NBuffers; i++)
		frames[i].page = -1;
	written = calloc(NBuffers, sizeof(PgscaleSweeperSwept));
	where = malloc(pages * sizeof(int));
	memset(where, -1, pages * sizeof(int));
	pgscale_sweeper = calloc(1, sizeof(PgscaleSweeper));
	pgscale_sweeper->reads_cheap = true;
	pgscale_sweeper_memory.queues = calloc(1, sizeof(PgscaleSweeperQueues));
	pgscale_sweeper_memory.pages = calloc(NBuffers, sizeof(PgscaleSweeperPage));
	pgscale_sweeper_memory.policy = calloc(1, pgscale_sweeper_policy_size(NBuffers));
	pgscale_sweeper->high = (int) (NBuffers * pgscale_sweeper_settings.high_watermark);
	pgscale_sweeper->low = (int) (0.4 * pgscale_sweeper->high);
	pgscale_sweeper_scan_init();
	pgscale_sweeper_pages_begin();
	/* as if it were the server's clock that it observes */
	if (by_clock)
		pgscale_sweeper_policy_observe(pgscale_sweeper_memory.policy, true);
	pgscale_sweeper_set_init(NBuffers / SET_PART);
}

int
main(int argc, char **argv)
{
	bool		is_stock;

	if (argc != 6)
	{
		fprintf(stderr, "simulator TRACE BUFFERS SERVER REFERENCES WRITES\n");
		return 2;
	}
	read_trace(argv[1]);
	NBuffers = atoi(argv[2]);
	is_stock = strcmp(argv[3], "stock") == 0;
	transaction_ns = (int64) (SESSIONS * TOUCHES * 1e9 / atof(argv[4]));
	writes_a_second = atof(argv[5]);
	pg_global_prng_state.s0 = UINT64CONST(88172645463325252);
	set_up(strcmp(argv[3], "clock") == 0);
	live(is_stock);
	return 0;
}
