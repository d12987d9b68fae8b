/*
 * One sweep, tick by tick, and its writers: scan.c, shares.c, writer.c, kept_pages.c, the standing set and write combining,
 * with the clock and the freelist, over buffers that are made up. sweep_steps() returns a line for each check.
 */
#define BUFFERS		400
#include "made_up_buffers.h"

#include "access/xlog.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#define XLogFlush(lsn)	made_up_flush(lsn)
#define proc_exit(code)	(writer_ended = true)
#define pgstat_report_stat(force)	0
static bool writer_ended;
static int	flushes;
static void
made_up_flush(XLogRecPtr lsn)
{
	flushes++;
}

static PgscaleWriteResult made_up_write(int buf, const PgscalePage *page, XLogRecPtr *lsn);
static void made_up_writeback(const PgscalePage *first, int count);

#define pgscale_buffer_write			made_up_write
#define pgscale_buffer_pages_writeback	made_up_writeback
#include "sweeper/known_pages.c"
#include "sweeper/policies/page_history.c"
#undef GHOST_WAYS
#include "sweeper/policies/shadow.c"
#include "sweeper/policies/adaptive.c"
#include "sweeper/policies/policies.c"
#define left_to	freelist_left_to
#include "sweeper/supply/freelist.c"
#undef left_to
#include "sweeper/supply/window.c"
#undef YIELD_TIMES
#undef LOOK_AT_CLOCK
#define is_ours	set_is_ours
#include "sweeper/standing_set.c"
#undef LOOK_AT_CLOCK
#undef is_ours
#include "sweeper/write_combining.c"
#include "sweeper/kept_pages.c"
#include "sweeper/shares.c"
#include "sweeper/scan.c"
#include "sweeper/writer.c"

PG_FUNCTION_INFO_V1(sweep_steps);

PgscaleSweeperSettings pgscale_sweeper_settings = {.writers = 16};
PgscaleSweeperKeptList *pgscale_sweeper_kept_list;
uint64		(*pgscale_counters_own_writes) (void);

static PgscaleSweeperShare *s;
static int64 the_time = INT64CONST(1000000000);
static int	tick_ms = 4;
static PgscaleWriteResult write_results[PGSCALE_RUNS_QUEUED];	/* by block; that many are tried at most */
static StringInfoData written_back;

/* What these files ask of others */
int64 pgscale_timer_clock(void) { return the_time; }
int64 pgscale_timer_cpu_time(void) { return 0; }
int64 pgscale_counters_backend_writes(PgscaleBackendWrites *count, LWLock *lock, bool anew) { return 0; }
bool pgscale_sweeper_page_worth(int buf, const PgscalePage *page, PgscalePageWorth *worth) { return false; }
bool pgscale_compat_direct_data(void) { return false; }
bool pgscale_kernel_may_begin_writes(void) { return true; }
void pgscale_worker_start(const char *wait_event_name) { }
bool pgscale_worker_interrupts(void) { return false; }
void pgscale_worker_rounds(void (*round) (void), void (*failed) (void)) { round(); }
void pgscale_worker_wait(long timeout_ms) { }

/* A page that is dirty is written, unless a test says otherwise. */
static PgscaleWriteResult
made_up_write(int buf, const PgscalePage *page, XLogRecPtr *lsn)
{
	const PgscaleWriteResult result = is_dirty(buf) ? write_results[page->block % lengthof(write_results)] : PGSCALE_WRITE_CHANGED;

	*lsn = page->block;
	the_time += 10;
	if (result == PGSCALE_WRITTEN)
		set_flag(buf, BM_DIRTY, false);
	return result;
}

static void
made_up_writeback(const PgscalePage *first, int count)
{
	appendStringInfo(&written_back, "%u+%d ", first->block, count);
}

/* Buffers from one on have these pages, with that count. */
static void
fill(int from, int to, int count, bool dirty)
{
	for (int buf = from; buf <= to; buf++)
	{
		hold(buf, buf, count);
		set_flag(buf, BM_DIRTY, dirty);
	}
}

#define PAGES(...)	lengthof(((const int[]) {__VA_ARGS__})), (const int[]) {__VA_ARGS__}

/* These are dirty. */
static void
dirty(int count, int n, const int *bufs)
{
	for (int i = 0; i < n; i++)
		fill(bufs[i], bufs[i], count, true);
}

static const char *
describe(const PgscaleSweeperRun *found, int n)
{
	StringInfoData said;

	initStringInfo(&said);
	for (int i = 0; i < n; i++)
		appendStringInfo(&said, "%s%u+%d/%d", i == 0 ? "" : " ", found[i].first.block, found[i].pages, found[i].victims);
	return said.data;
}

static bool
queue(int block, int pages, int victims)
{
	return pgscale_sweeper_put_run(s, &(PgscaleSweeperRun) {page_of(block), pages, victims});
}

/* Takes all that is queued. */
static const char *
queued(void)
{
	PgscaleSweeperRun *found = palloc(PGSCALE_RUNS_QUEUED * sizeof(PgscaleSweeperRun));
	bool		lost;
	int			n = 0;

	while (n < PGSCALE_RUNS_QUEUED && pgscale_sweeper_take_run(s, &found[n], &lost))
		n++;
	return describe(found, n);
}

/* Write combining: the run around a page */

static bool
any_buffer(int buf)
{
	return buf != 111;
}

static void
check_runs(void)
{
	static const struct
	{
		int			block, limit;
		const char *run;
	}			cases[] = {
		{11, 64, "10+3/0"}, {10, 64, "10+3/0"}, {12, 64, "10+3/0"}, {20, 64, "20+1/0"}, {11, 1, "11+1/0"}, {11, 2, "10+2/0"},
		{11, 3, "10+3/0"}, {40, 4, "40+4/0"}, {47, 4, "44+4/0"}, {45, 10, "40+10/0"}, {45, 9, "40+9/0"}, {0, 64, "0+2/0"},
		{1, 64, "0+2/0"}, {399, 64, "398+2/0"}, {62, 64, ""}, {61, 64, "60+2/0"}, {63, 64, "63+2/0"}, {5000, 64, ""},
		/* not over a buffer that may not be written, or is in I/O */
		{110, 64, "110+1/0"}, {112, 64, "112+1/0"}, {111, 64, ""}
	};

	fill(0, BUFFERS - 1, 5, false);
	dirty(5, PAGES(0, 1, 10, 11, 12, 20, 60, 61, 63, 64, 110, 111, 112, 113, 398, 399));
	fill(40, 49, 5, true);
	set_flag(113, BM_IO_IN_PROGRESS, true);
	descs[65].tag.blockNum = 65;
	descs[66].tag.blockNum = 62;
	for (int i = 0; i < lengthof(cases); i++)
	{
		const PgscalePage page = page_of(cases[i].block);
		PgscaleSweeperRun run;
		int			bufs[PGSCALE_RUN_MAX];

		same(describe(&run, pgscale_sweeper_run_around(&page, cases[i].limit, any_buffer, &run, bufs) > 0), cases[i].run,
			 psprintf("the run around %d, at most %d", cases[i].block, cases[i].limit));
	}
}

/* The standing set */

static bool
used_once(int buf, const PgscaleBuffer *look, const PgscalePage *page)
{
	return look->usage <= 1;
}

static const char *
again(int pages)
{
	PgscaleSweeperRun found[100];

	return describe(found, pgscale_sweeper_set_choose(pages, used_once, 64, NS_PER_S, found, lengthof(found)));
}

/* Puts pages into a new set with that room; what did each of them cost? */
static const char *
add(int room, int limit, int n, const int *blocks)
{
	StringInfoData said;

	initStringInfo(&said);
	pgscale_sweeper_set_init(0, BUFFERS, room);
	for (int i = 0; i < n; i++)
	{
		const PgscalePage page = page_of(blocks[i]);

		appendStringInfo(&said, "%s%d", i == 0 ? "" : " ", pgscale_sweeper_set_add(blocks[i], &page, limit));
	}
	return said.data;
}

static void
check_set(void)
{
	static const struct
	{
		bool		longest;
		int			pages;
		const char *runs;
	}			cases[] = {
		{true, 0, ""}, {true, 1, "50+6/1"}, {true, 6, "50+6/1"}, {true, 7, "10+5/1 50+6/1"}, {true, 12, "10+5/1 30+4/1 50+6/1"},
		{true, 99, "5+1/1 10+5/1 20+3/1 30+4/1 50+6/1"},
		{false, 0, ""}, {false, 1, "30+4/1"}, {false, 5, "5+1/1 30+4/1"}, {false, 6, "5+1/1 20+3/1 30+4/1"}
	};
	const int	ups[] = {40, 41, 42, 43, 44, 45, 46, 47, 48, 49};
	const int	downs[] = {49, 48, 47, 46, 45, 44, 43, 42, 41, 40};

	fill(0, BUFFERS - 1, 5, false);
	dirty(1, PAGES(5, 10, 11, 12, 13, 14, 20, 21, 22, 30, 31, 32, 33, 50, 51, 52, 53, 54, 55));
	for (int i = 0; i < lengthof(cases); i++)
	{
		pgscale_sweeper_set_order(cases[i].longest);
		(void) add(100, 64, PAGES(30, 5, 21, 11, 54));
		same(again(cases[i].pages), cases[i].runs,
			 psprintf("the %s for %d pages, in their order", cases[i].longest ? "longest" : "oldest", cases[i].pages));
	}
	pgscale_sweeper_set_order(true);
	(void) add(100, 64, PAGES(50, 51, 10, 50));
	same(again(1), "50+6/2", "all victims of a run count as such, once");
	same(again(99), "10+5/1", "the others are chosen later");
	same(again(99), "", "none is chosen twice");
	(void) add(2, 64, PAGES(5, 21, 54));
	same(again(99), "5+1/1 20+3/1", "no more than there is room for");
	(void) add(100, 64, PAGES(10, 6, 21));
	set_usage(21, 2);
	same(again(99), "10+5/1", "no page that is clean, or was used again");
	set_usage(21, 1);
	(void) add(100, 64, PAGES(30, 54));
	hold(54, 1000, 0);
	set_flag(54, BM_DIRTY, true);
	same(again(99), "30+4/1", "no buffer that has another page");
	fill(54, 54, 1, true);

	/* Marks are of a buffer. */
	(void) add(3, 64, PAGES(30, 10));
	pgscale_sweeper_set_forget(30);
	is(pgscale_sweeper_set_add(30, &(PgscalePage) {.locator = {1, 2, 3},.block = 30}, 64), 0, "a buffer has one entry");
	is(pgscale_sweeper_set_lacks(0.7) && !pgscale_sweeper_set_lacks(0.6), true, "two of three");
	is(pgscale_sweeper_set_skip(10) && pgscale_sweeper_set_skip(10) && !pgscale_sweeper_set_skip(30), true,
	   "which is passed, if it still counts");
	same(again(99), "10+5/1", "one that was forgotten is not chosen");
	is(pgscale_sweeper_set_skip(10) && !pgscale_sweeper_set_skip(10), true, "a page with the writers is passed, once");

	/* Runs change while their candidates wait. */
	(void) add(100, 64, PAGES(30, 50, 51));
	for (int block = 52; block <= 55; block++)
		set_flag(block, BM_DIRTY, false);
	same(again(1), "30+4/1", "a run that was shortened waits with all its candidates");
	same(again(1), "50+2/2", "and is chosen when it is the longest");
	fill(50, 55, 1, true);
	(void) add(100, 64, PAGES(30, 50));
	fill(34, 39, 1, true);
	same(again(1), "50+6/1", "a run that has grown is not known of");
	(void) add(100, 64, PAGES(30, 50));
	fill(34, 35, 1, false);
	fill(34, 39, 1, true);
	for (int i = 0; i < 2; i++)
		pgscale_sweeper_set_refresh(100, used_once, 64, NS_PER_S);
	same(again(1), "30+10/1", "until it is looked at again");
	fill(34, 39, 1, false);

	/* The price of a page in pages that are looked up: its run and the two that end it, once in a turn, in any order. */
	fill(40, 59, 1, true);
	same(add(100, 64, PAGES(5, 12, 10, 14, 5, 6)), "3 7 0 0 0 2", "a run costs its length, once");
	same(add(100, 8, lengthof(ups), ups), "10 0 0 0 0 0 0 0 10 0", "a long one costs no more, forwards");
	same(add(100, 8, lengthof(downs), downs), "10 0 0 0 0 0 0 0 4 0", "or backwards");
	pgscale_sweeper_set_order(false);
	same(add(100, 8, PAGES(40, 5)), "0 0", "nothing where the oldest go first");
	same(again(1), "40+20/1", "before they are chosen");
}

/* Ticks */

/* A new process works on a share of these buffers. */
static void
work_on(int first, int size, int low, int high)
{
	static const PgscaleSweeperScanCounts none = {0};

	s->first = first;
	s->buffers = size;
	s->low = low;
	s->high = high;
	s->counts = none;
}

static void
begin(int first, int size, int low, int high)
{
	work_on(first, size, low, high);
	s->stack_used = s->stuck = 0;
	s->policy = PGSCALE_SWEEPER_NO_POLICY;
	s->state = PGSCALE_SWEEPER_WORKING;
	(void) queued();
	hand = rated_ns = starved_share = rate = 0;
	refilling = writes_short = false;
	supply = NULL;
	pgscale_sweeper_scan_settings(s, PGSCALE_FREELIST ? PGSCALE_SWEEPER_FREELIST : PGSCALE_SWEEPER_WINDOW, PGSCALE_SWEEPER_CLOCK);
	pgscale_sweeper_scan_init(s);
	server_hand = 0;
}

/* Backends take so many buffers from the list, as the server does: the last one first, none that is used. */
static void
take(int n)
{
	static BlockNumber next_page = 100000;

	for (int i = s->stack_used - 1; i >= 0 && n > 0; i--)
	{
		const int	buf = s->stack[i].buf;

		if (!pgscale_buffer_listed(buf))
			continue;
		take_off_list(buf);
		if (usage(buf) > 0)
			continue;
		hold(buf, next_page++, 5);
		n--;
	}
}

/*
 * One more tick, and the counts after it: scanned/lowered, supplied clean and written, taken and used again, queued, ready;
 * with ! if there was demand.
 */
static void
tick(const char *want, const char *name)
{
	const PgscaleSweeperScanCounts *c = &s->counts;
	bool		demand;

	the_time += tick_ms * NS_PER_MS;
	demand = pgscale_sweeper_scan(s);
	same(psprintf("%s%d/%d %d+%d %d+%d %d %d", demand ? "! " : "", (int) c->scanned, (int) c->decremented, (int) c->supplied_clean,
				  (int) c->supplied_written, (int) c->consumed, (int) c->reused, (int) c->queued, s->ready), want, name);
}

static void
write_all(void)
{
	me = &s->writers[0];
	my_number = 0;
	pg_atomic_write_u32(&me->pid, MyProcPid);
	write_round();
	pg_atomic_write_u32(&me->pid, 0);
}

static const char *
counts_of(int n, const int *bufs)
{
	StringInfoData said;

	initStringInfo(&said);
	for (int i = 0; i < n; i++)
		appendStringInfo(&said, "%d", usage(bufs[i]));
	return said.data;
}

#if PGSCALE_FREELIST

static void
check_clean(void)
{
	fill(0, BUFFERS - 1, 5, false);
	fill(0, 9, 0, false);
	fill(10, 19, 1, false);
	fill(20, 63, 3, false);
	set_flag(5, BUF_REFCOUNT_ONE, true);
	begin(0, 64, 8, 12);
	tick("! 64/54 9+0 0+0 0 0", "once around, unused pages are supplied, and counts taken down");
	same(counts_of(PAGES(5, 9, 10, 19, 20, 63, 64)), "0000225", "each by one, in its share");
	tick("77/54 12+0 0+0 0 9", "it goes on up to the high watermark, past what is ready or pinned");
	tick("77/54 12+0 0+0 0 12", "there it stops");
	take(3);
	tick("! 77/54 12+0 3+0 0 9", "three are taken, and above the low watermark that will do");
	set_usage(9, 1);
	take(1);
	is(page_in(9), 9, "a page that was used is not taken");
	tick("! 82/54 17+0 4+1 0 7", "one more is taken, one was used: below the low watermark, it refills");
	tick("82/54 17+0 4+1 0 12", "up to the high one");
	set_usage(17, 2);
	tick("82/54 17+0 4+1 0 11", "one that is used is not ready");
	set_usage(17, 0);
	take(99);
	tick("! 146/115 19+0 16+1 0 0", "all are taken");
}

static void
check_dirty(void)
{
	fill(0, BUFFERS - 1, 5, false);
	dirty(0, PAGES(80));
	dirty(1, PAGES(70, 71, 72, 73, 91, 95));
	dirty(2, PAGES(74, 90));
	dirty(3, PAGES(75));
	dirty(5, PAGES(100));
	set_flag(95, BUF_REFCOUNT_ONE, true);
	begin(64, 64, 20, 24);
	/* eleven others are ready, of another share */
	for (int buf = 300; buf < 311; buf++)
	{
		const PgscalePage page = page_of(buf);

		set_usage(buf, 0);
		(void) freelist_offer(s, buf, &page, 0);
	}
	tick("64/62 0+0 0+0 1 11", "a dirty page that nobody used is a victim");
	same(counts_of(PAGES(70, 80, 74, 75, 90, 91, 95, 100, 127)), "111211144",
		 "others are counted down, but dirty ones not below one");
	same(queued(), "80+1/1", "it goes to the writers");
	tick("128/119 0+0 0+0 6 11", "the next time around, so are those that had one; none that is pinned");
	same(queued(), "70+6/4 90+2/1", "with their neighbours");
	queue(70, 6, 4);
	queue(80, 1, 1);
	queue(90, 2, 1);
	set_usage(75, 3);
	write_all();
	tick("192/174 0+8 0+0 6 19", "all that were written are supplied, but one that was used again");
	is(is_dirty(95) && is_dirty(100) && !is_dirty(75), true, "others are as they were");
	dirty(0, PAGES(101, 102, 104, 105, 107, 108, 109, 111, 112, 120));
	tick("256/219 0+8 0+0 16 19", "all that are found become candidates");
	same(queued(), "100+3/2 104+2/2", "and the oldest are written, as many as needed");
	tick("256/219 0+8 0+0 16 19", "the next time no other is found");
	same(queued(), "107+3/3 111+2/2", "but the next ones are written");

	/* What waits for writers, or is with one, will be ready. */
	for (int buf = 64; buf < 128; buf++)
		if (!is_dirty(buf) && !pgscale_buffer_listed(buf))
			set_usage(buf, 5);
	queue(101, 2, 2);
	s->writers[PGSCALE_SWEEPER_MAX_WRITERS - 1].writing = 3;
	work_on(64, 64, 20, 24);
	tick("0/0 0+0 0+0 0 19", "with what writers have there will be enough");
	s->writers[PGSCALE_SWEEPER_MAX_WRITERS - 1].writing = 0;
	tick("0/0 0+0 0+0 0 19", "without, above the low watermark it goes on to be");
	work_on(64, 64, 22, 24);
	tick("64/45 0+0 0+0 0 19", "below it, not");
	(void) queued();

	/* While it rests it counts what is taken, and has nothing written. */
	take(1);
	is(pgscale_sweeper_rest(s, false), true, "it rests");
	is(s->counts.consumed, 1, "one was taken");
	same(queued(), "", "nothing is written");
	work_on(64, 64, 40, 50);
	queue(101, 2, 2);
	(void) pgscale_sweeper_scan(s);
	is(s->stuck, false, "writers may begin");
	the_time += STUCK_NS + SCAN_NS;
	(void) pgscale_sweeper_scan(s);
	is(s->stuck, true, "who do nothing for two seconds are stuck");
	s->writers[3].counts.skipped_locked++;
	(void) pgscale_sweeper_scan(s);
	is(s->stuck, false, "until they get on");
}

/* Few dirty pages wait where most victims are clean. */
static void
check_mixed(void)
{
	fill(0, BUFFERS - 1, 0, false);
	begin(0, 200, 0, 0);
	for (int i = 0; i < 5; i++)
		(void) pgscale_sweeper_scan(s);
	is(s->counts.starved + 10 * s->counts.queued, 5, "ticks find nothing ready, but nothing is wanted");
	work_on(0, 200, 140, 150);
	s->stack_size = 200;
	for (int i = 0; i < 6; i++)
		(void) pgscale_sweeper_scan(s);
	is(s->counts.supplied_clean > 100 && s->counts.queued == 0, true, "all victims are clean");
	for (int i = 0; i < s->stack_used; i++)
		take_off_list(s->stack[i].buf);
	s->stack_used = 0;
	fill(160, 199, 1, true);
	fill(159, 159, 4, true);
	work_on(0, 200, 190, 195);
	for (int i = 0; i < 2; i++)
		(void) pgscale_sweeper_scan(s);
	is(s->counts.queued, 16, "few dirty pages wait among many clean ones");
	write_all();
	(void) pgscale_sweeper_scan(s);
	is(pgscale_buffer_listed(160) && !pgscale_buffer_listed(159), true, "victims leave, and a neighbour that was used stays");
}

/* Where ticks find nothing ready and victims are dirty, writes are short, after the third such tick. */
static void
check_short(void)
{
	static const char *const runs_of_ticks[] = {"0+1/1", "2+1/1", "4+1/1", "100+7/6", "6+1/1"};

	fill(0, BUFFERS - 1, 5, false);
	dirty(0, PAGES(0, 2, 4, 6, 100, 101, 102, 103, 104, 105));
	dirty(2, PAGES(106));
	begin(0, 160, 1, 1);
	s->stack_size = 200;
	for (int i = 0; i < lengthof(runs_of_ticks); i++)
	{
		(void) pgscale_sweeper_scan(s);
		same(queued(), runs_of_ticks[i],
			 i < 3 ? "at first the oldest is written" : "then the longest run is written first, as soon as it is known");
	}
	is(s->counts.starved, 5, "ticks found nothing ready");
	queue(100, 7, 6);
	write_all();
	(void) pgscale_sweeper_scan(s);
	is(s->counts.supplied_written, 7, "all leave, also the neighbour that was used twice");

	/* The sweep also looks for candidates between batches, but only where buffers are taken. */
	fill(20, 80, 0, true);
	work_on(0, 160, 0, 1);
	queue(20, 61, 61);
	write_all();
	(void) pgscale_sweeper_scan(s);
	fill(120, 125, 0, true);
	work_on(0, 160, 0, 1);
	tick("0/0 0+0 0+0 0 68", "much is ready, and no buffer is taken: it looks for nothing");
	take(30);
	tick("! 160/112 0+0 30+0 8 38",
		 "while buffers are taken and writes are short, it looks for candidates although enough is ready");
	(void) queued();

	/* After a rest the oldest is first again. */
	(void) pgscale_sweeper_rest(s, false);
	for (int i = 0; i < s->stack_used; i++)
		take_off_list(s->stack[i].buf);
	fill(0, BUFFERS - 1, 5, false);
	fill(0, 0, 0, true);
	fill(100, 105, 0, true);
	work_on(0, 160, 1, 1);
	(void) pgscale_sweeper_scan(s);
	same(queued(), "0+1/1", "after a rest the oldest is written first again");

	/* It refills before what is ready is gone: when as much is left as was taken lately within two ticks. */
	fill(0, BUFFERS - 1, 0, false);
	begin(0, 160, 120, 121);
	for (int i = 0; i < 9; i++)
		(void) pgscale_sweeper_scan(s);
	work_on(0, 160, 0, 121);
	take(1);
	tick("! 0/0 0+0 1+0 0 120", "while enough is ready, the sweep looks for nothing");
	take(80);
	tick_ms = 250;
	tick("! 160/81 39+0 81+0 0 40", "it is refilled although the low watermark is zero, as most was taken");
	tick_ms = 4;
}

#endif							/* PGSCALE_FREELIST */

/* The writer */

static void
check_writer(void)
{
	static const struct
	{
		int			block, pages, victims;
	}			cases[] = {{0, 1, 1}, {2, 2, 1}, {5, 3, 3}, {10, 4, 1}, {15, 5, 2}, {25, 64, 9}, {100, 6, 2}, {110, 15, 2}, {130,
		16, 2}, {300, 65, 1},
	{5000, 1, 1}};
	static PgscaleSweeperWriteCounts none = {0};
	PgscaleSweeperWriteCounts c;
	StringInfoData classes;

	begin(0, BUFFERS, 1, 2);
	for (int w = 0; w < PGSCALE_SWEEPER_MAX_WRITERS; w++)
		s->writers[w].counts = none;
	fill(0, BUFFERS - 1, 5, true);
	set_flag(103, BM_DIRTY, false);
	for (int i = 0; i < lengthof(cases); i++)
		queue(cases[i].block, cases[i].pages, cases[i].victims);
	s->state = PGSCALE_SWEEPER_WATCHING;
	write_all();
	is(s->writers[0].counts.runs == 0 && is_dirty(0), true, "while the sweep does not work, nothing is written");
	is(pgscale_sweeper_queued_runs(s), 0, "and what is queued is dropped");
	s->state = PGSCALE_SWEEPER_WORKING;
	for (int i = 0; i < lengthof(cases); i++)
		queue(cases[i].block, cases[i].pages, cases[i].victims);
	resetStringInfo(&written_back);
	write_all();
	s->writers[PGSCALE_SWEEPER_MAX_WRITERS - 1].counts.errors = 3;
	c = pgscale_sweeper_write_counts(s);
	initStringInfo(&classes);
	for (int i = 0; i < PGSCALE_RUN_CLASSES; i++)
		appendStringInfo(&classes, "%d ", (int) c.runs_by_pages[i]);
	same(classes.data, "1 2 3 1 2 0 1 1 ", "each run by its length");
	same(psprintf("written %d, runs %d, neighbours %d, changed %d, errors %d, writebacks %d", (int) c.written, (int) c.runs,
		 (int) c.neighbours,
				  (int) c.skipped_changed, (int) c.errors, (int) c.writeback_calls),
				   "written 180, runs 11, neighbours 156, changed 2, errors 3, writebacks 3",
					"pages, runs and neighbours, of all writers");
	is(c.write_ns, 10 * c.written, "the time of each write");
	same(written_back.data, "25+64 130+16 300+65 ", "the kernel is asked for runs of 16 pages and more");
	is(is_dirty(1) && !is_dirty(2) && !is_dirty(3) && is_dirty(4), true, "others are not written");

	/* A page that is skipped ends a run; WAL is flushed for 64 pages. */
	fill(200, 399, 5, true);
	write_results[201] = PGSCALE_WRITE_LOCKED;
	write_results[203] = PGSCALE_WRITE_PINNED;
	write_results[204] = PGSCALE_WRITE_BEYOND_WAL;
	for (int block = 300; block < 363; block++)
		write_results[block] = PGSCALE_WRITE_NEEDS_WAL;
	queue(200, 8, 1);
	queue(300, 63, 1);
	write_all();
	c = pgscale_sweeper_write_counts(s);
	same(psprintf("runs %d, locked %d, pinned %d, wal %d, flushes %d", (int) c.runs, (int) c.skipped_locked,
		 (int) c.skipped_pinned, (int) c.skipped_wal,
				  flushes), "runs 14, locked 1, pinned 1, wal 64, flushes 0", "pages that are left out");
	queue(300, 1, 1);
	write_all();
	is(flushes == 1 && s->writers[0].counts.wal_flushes == 1, true, "WAL is flushed for 64 pages");
	memset(write_results, 0, sizeof(write_results));
	is(writer_ended, false, "a writer that had work goes on");
	the_time += LINGER_NS;
	write_all();
	is(writer_ended, true, "and ends after ten seconds without");
}

/* Queues, and the shares of several sweepers */

static void
check_shares(void)
{
	PgscaleSweeperSwept swept;
	bool		lost;
	int			n = 0;

	for (int i = 0; i < PGSCALE_RUNS_QUEUED + 2; i++)
		n += queue(i, 1 + i % 2, 1);
	is(n, 4096, "the queue has room for so many runs");
	is(pgscale_sweeper_pending(s), 4096 * 1.5, "whose pages are coming");
	is(strncmp(queued(), "0+1/1 1+2/1 2+1/1 ", 18), 0, "they come back in their order");
	pg_atomic_fetch_add_u32(&s->runs_put, PG_INT32_MAX);
	lost = false;
	is(!pgscale_sweeper_take_run(s, &runs[0], &lost) && lost, true, "a ring that says what cannot be is given up");
	is(!pgscale_sweeper_take_run(s, &runs[0], &lost) && !lost, true, "once");
	for (int i = 0; i < PGSCALE_PAGES_WRITTEN + 2; i++)
		pgscale_sweeper_put_written(&s->writers[1], &(PgscaleSweeperSwept) {i, page_of(i)});
	for (n = 0; pgscale_sweeper_take_written(&s->writers[1], &swept, &lost); n++)
		if (swept.buf != n)
			break;
	is(n, 4096, "as many written pages come back, in their order");
	pg_atomic_fetch_add_u32(&s->writers[1].put, PG_INT32_MAX);
	is(!pgscale_sweeper_take_written(&s->writers[1], &swept, &lost) && lost, true, "this one, too");
	is(!pgscale_sweeper_take_written(&s->writers[1], &swept, &lost), true, "once");
	is(share_begin(0, 3) == 0 && share_begin(1, 3) == 133 && share_begin(3, 3) == 400, true, "three sweepers share the buffers");
	is(most_writers(0, 1) == 16 && most_writers(0, 4) == 7 && most_writers(1, 4) == 6 && most_writers(15, 16) == 1, true,
	   "with a writer for 16 buffers");
	is(memories_size(3), 2 * pgscale_sweeper_memory_size(133) + pgscale_sweeper_memory_size(134), "each with a memory");
	is(stack_size(1000), 251, "a quarter of the buffers may be ready");
}

Datum
sweep_steps(PG_FUNCTION_ARGS)
{
	initStringInfo(&lines);
	initStringInfo(&written_back);
	shared = palloc0(sizeof(SweeperShared));
	shared->workers = 1;
	s = share = shares[0] = palloc0(offsetof(PgscaleSweeperShare, stack) + BUFFERS * sizeof(PgscaleSweeperSupplied));
	s->pages = palloc0(BUFFERS * sizeof(PgscaleSweeperPage));
	s->policy_memory = palloc0(pgscale_sweeper_memory_size(BUFFERS));
	s->stack_size = 100;
	s->most_writers = s->writers_now = PGSCALE_SWEEPER_MAX_WRITERS;
	pgscale_sweeper_kept_list = palloc0(sizeof(PgscaleSweeperKeptList));
	check_runs();
	check_set();
#if PGSCALE_FREELIST
	check_clean();
	check_dirty();
	check_mixed();
	check_short();
#endif
	check_writer();
	check_shares();
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}
