/*
 * A sweep, step by step, over buffers that are made up: what it reports to its policy, what it has the server's hand find, what
 * it observes, its ticks, and its writers. The policy is made up, too: it is a clock that
 * says what it hears. sweep_steps() returns a line for each check.
 */
#include "made_up_buffers.h"

#include "access/xlog.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#define XLogFlush(lsn)				(flushes++)
#define proc_exit(code)				(writer_ended = true)
#define pgstat_report_stat(force)	0

#include "base/timer.h"
#include "sweeper/sweeper.h"

static int	flushes = 0;
static bool writer_ended = false;
static PgscaleWriteResult made_up_write(int buf, const PgscalePage *page, XLogRecPtr *lsn);
static void made_up_writeback(const PgscalePage *first, int count);

#define pgscale_buffer_write			made_up_write
#define pgscale_buffer_pages_writeback	made_up_writeback
#include "sweeper/known_pages.c"
#include "sweeper/supply.c"
#undef YIELD_TIMES
#undef LOOK_AT_CLOCK
#define followed	observe_followed
#define allowed		observe_allowed
#include "sweeper/observe.c"
#undef followed
#undef allowed
#include "sweeper/standing_set.c"
#undef LOOK_AT_CLOCK
#include "sweeper/kept_pages.c"
#include "base/change_count.c"
#include "sweeper/shared.c"
#define pgscale_sweeper_long_enough		true_long_enough
#include "sweeper/scan.c"
#undef pgscale_sweeper_long_enough
#include "sweeper/writer.c"

PG_FUNCTION_INFO_V1(sweep_steps);

PgscaleSweeperSettings pgscale_sweeper_settings = {.writers = 16};
PgscaleSweeperKeptList *pgscale_sweeper_kept_list;
uint64		(*pgscale_counters_own_writes) (void);

static PgscaleSweeper *s;
static PgscaleSweeperQueues *q;
static PgscaleSweeperPage the_pages[MOST_BUFFERS];
static char the_memory[MOST_BUFFERS];
static uint8 ranks[MOST_BUFFERS];
static bool listens;			/* is what the policy hears to be said? */
static int	most_looks;			/* that a tick has time for */
static int64 the_time = NS_PER_S;
static int	found_by_hand;
static bool skips = false;		/* are some pages not written? */
static bool writes_first = false;	/* as the policy was told */

/* What these files ask of others */
int64 pgscale_timer_clock(void) { return the_time; }
int64 pgscale_timer_cpu_time(void) { return 0; }
int64 pgscale_counters_backend_writes(PgscaleBackendWrites *count, LWLock *lock, bool anew) { return 0; }
const PgscalePageWorths *pgscale_buffer_worths;
const PgscalePageWorths pgscale_sweeper_worths;
bool pgscale_sweeper_memory_attach(PgscaleSweeperMemory *memory) { return false; }
bool pgscale_compat_direct_data(void) { return false; }
bool pgscale_kernel_may_begin_writes(void) { return true; }
void pgscale_worker_start(const char *wait_event_name) { }
bool pgscale_worker_interrupts(void) { return false; }
void pgscale_worker_rounds(void (*round) (void), void (*failed) (void)) { round(); }
void pgscale_worker_wait(long timeout_ms) { }
bool pgscale_sweeper_long_enough(int n) { return n >= most_looks; }

/* The policy. */

static void
hear(const char *what, int buf, int page, int uses)
{
	if (listens)
		say(what, buf, page, uses);
}

Size pgscale_sweeper_policy_size(int buffers) { return buffers; }
void pgscale_sweeper_policy_observe(PgscaleSweeperPolicy *p, bool observes) { hear("observes: %d", observes, 0, 0); }
void pgscale_sweeper_policy_writes_first(PgscaleSweeperPolicy *p, bool first) { writes_first = first; }
void pgscale_sweeper_policy_evicted(PgscaleSweeperPolicy *p, int buf, uint32 page) { hear("%d: %d evicted", buf, page, 0); }
uint8 pgscale_sweeper_policy_neighbour_rank(const PgscaleSweeperPolicy *p, bool writes_short) { return writes_short ? 2 : 0; }
uint8 pgscale_sweeper_policy_rank(const PgscaleSweeperPolicy *p, int buf) { return ranks[buf]; }
PgscaleSweeperHistory *pgscale_sweeper_policy_history(const PgscaleSweeperPolicy *p) { return NULL; }
void pgscale_sweeper_history_pass(PgscaleSweeperHistory *history, float pages) { }
void pgscale_sweeper_history_prefetch(PgscaleSweeperHistory *history, uint32 page) { hear("prefetches %d", page, 0, 0); }

void
pgscale_sweeper_policy_init(PgscaleSweeperPolicy *p, int buffers)
{
	hear("memory begins with %d", ((char *) p)[buffers - 1], 0, 0);
}

void
pgscale_sweeper_policy_arrived(PgscaleSweeperPolicy *p, int buf, uint32 page, int uses)
{
	hear("%d: %d arrived, %d", buf, page, uses);
	ranks[buf] = uses;
}

void
pgscale_sweeper_policy_used(PgscaleSweeperPolicy *p, int buf, uint32 page, int uses)
{
	hear("%d: %d used %d", buf, page, uses);
	ranks[buf] = Min(ranks[buf] + uses, PGSCALE_MAX_USAGE);
}

uint8
pgscale_sweeper_policy_visit(PgscaleSweeperPolicy *p, int buf, bool kept)
{
	const uint8 rank = ranks[buf];

	hear("%d: visit", buf, 0, 0);
	ranks[buf] -= rank > 0;
	return rank;
}

/* The writers, the server's hand and the backends. */

static void
fill(int from, int to, int count)
{
	for (int buf = from; buf <= to; buf++)
		hold(buf, buf, count);
}

/* A page that is dirty is written, unless it is to be skipped. */
static PgscaleWriteResult
made_up_write(int buf, const PgscalePage *page, XLogRecPtr *lsn)
{
	static const PgscaleWriteResult skipped[300] = {
		[201] = PGSCALE_WRITE_LOCKED,[203] = PGSCALE_WRITE_PINNED,[204] = PGSCALE_WRITE_BEYOND_WAL
	};

	*lsn = page->block;
	the_time += 10;
	if ((state_of(buf) & BM_DIRTY) == 0)
		return PGSCALE_WRITE_CHANGED;
	if (skips && page->block >= lengthof(skipped))
		return PGSCALE_WRITE_NEEDS_WAL;
	if (skips && skipped[page->block] != PGSCALE_WRITTEN)
		return skipped[page->block];
	set_state(buf, state_of(buf) & ~BM_DIRTY);
	return PGSCALE_WRITTEN;
}

static void made_up_writeback(const PgscalePage *first, int count) { say("writeback %u+%d", first->block, count); }

static void
write_all(void)
{
	me = &s->writers[0];
	my_number = 0;
	pg_atomic_write_u32(&me->pid, MyProcPid);
	write_round();
	pg_atomic_write_u32(&me->pid, 0);
}

static void
use(int from, int count, int to)
{
	for (int buf = from; buf <= to; buf++)
		set_usage(buf, count);
}

/* The hand goes on as in StrategyGetBuffer(), until it has passed so many buffers or has found so many. */
static void
hand_goes(int passes, int finds)
{
	for (int i = 0; i < passes && finds > 0; i++)
	{
		const int	buf = (int) (server_hand++ % NBuffers);

		if (BUF_STATE_GET_REFCOUNT(state_of(buf)) != 0)
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

static void
hand_runs(void)
{
	if (found_by_hand == 0)
		hand_goes(4, 1);
}

/* A backend locks the header to put another page there. */
static void
page_changes(void)
{
	set_state(5, state_of(5) | BM_LOCKED);
	in_read = NULL;
}

/* The sweep. */

static const char *
describe(const PgscaleSweeperRun *found, int n)
{
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < n; i++)
		appendStringInfo(&text, "%s%u+%d/%d", i == 0 ? "" : " ", found[i].first.block, found[i].pages, found[i].victims);
	return text.data;
}

/* Takes all that is queued. */
static const char *
queued(void)
{
	PgscaleSweeperRun *found = palloc(PGSCALE_RUNS_QUEUED * sizeof(PgscaleSweeperRun));
	bool		lost;
	int			n = 0;

	while (n < PGSCALE_RUNS_QUEUED && pgscale_sweeper_take_run(q, &found[n], &lost))
		n++;
	return describe(found, n);
}

/* A new process works on so many buffers. */
static void
begin(int size)
{
	static const PgscaleSweeperWriteCounts none = {0};

	at_look = NULL;
	most_looks = PG_INT32_MAX;
	listens = false;
	NBuffers = size;
	memset(s, 0, offsetof(PgscaleSweeper, writers));
	s->writers_now = PGSCALE_SWEEPER_MAX_WRITERS;
	s->state = PGSCALE_SWEEPER_WORKING;
	for (int w = 0; w < PGSCALE_SWEEPER_MAX_WRITERS; w++)
		s->writers[w].counts = none;
	memset(the_memory, 1, sizeof(the_memory));
	memset(the_pages, 1, sizeof(the_pages));
	(void) queued();
	hand = rated_ns = starved_fraction = rate = offered = found_by_hand = taken_lately = 0;
	refilling = entered = false;
	pgscale_sweeper_pages_begin();
	pgscale_sweeper_scan_init();
	server_hand += NBuffers - server_hand % NBuffers;
}

static void
work_on(int low, int high)
{
	static const PgscaleSweeperScanCounts none = {0};

	s->low = low;
	s->high = high;
	s->counts = none;
}

/* A sweep over so many buffers, which have their pages already. */
static void
begin_sweep(int size, int low, int high)
{
	begin(size);
	work_on(low, high);
}

/* Buffer N has page 10000 + N. */
static void
begin_supply(int size, int count)
{
	for (int buf = 0; buf < size; buf++)
		hold(buf, 10000 + buf, count);
	begin(size);
}

/* Buffer 5 is seen with that page and count. */
static void
see(BlockNumber block, int count, int expected, bool hand_ages)
{
	static const char *const news[] = {"first", "replaced", "used", "not used", "lowered"};
	PgscaleBuffer look;
	PgscalePage page;

	if (block != page_in(5) || count != usage(5))
		hold(5, block, count);
	(void) pgscale_buffer_read(5, &look, &page);
	say(news[pgscale_sweeper_page_seen(5, &look, &page, expected, hand_ages)]);
	say("%d is left to %u", the_pages[5].left, the_pages[5].hash);
}

/* Is a name read while a backend, which locks the header, writes it? */
static bool
read_torn(void)
{
	PgscaleBuffer look;
	PgscalePage page;

	in_read = page_changes;
	return pgscale_buffer_read(5, &look, &page);
}

/* These buffers, which have the pages from that block on */
static void
offer(int from, BlockNumber block, int max_rank, int to)
{
	for (int buf = from; buf <= to; buf++)
	{
		const PgscalePage page = page_of(block + buf - from);

		say(yes(pgscale_sweeper_supply_offer(buf, &page, max_rank)));
	}
}

/* A tick of the sweep that only watches: nothing is written to a header. */
static bool
observe(int ms)
{
	static BufferDesc before[MOST_BUFFERS];
	bool		hurries;

	the_time += ms * NS_PER_MS;
	memcpy(before, descs, sizeof(descs));
	hurries = pgscale_sweeper_observe();
	if (memcmp(before, descs, sizeof(descs)) != 0)
		say("a header is written");
	return hurries;
}

/* The hand goes round once, in two ticks. */
static void
lap(void)
{
	for (int i = 0; i < 2; i++)
	{
		hand_goes(NBuffers / 2, NBuffers);
		(void) observe(0);
	}
}

/*
 * A tick after that time: scanned/lowered, supplied clean and written, taken and used again, queued, ready; with ! if there was
 * demand.
 */
static void
tick(int ms)
{
	const PgscaleSweeperScanCounts *c = &s->counts;
	bool		demand;

	the_time += ms * NS_PER_MS;
	demand = pgscale_sweeper_scan();
	say("%s%d/%d %d+%d %d+%d %d %d", demand ? "! " : "", (int) c->scanned, (int) c->decremented, (int) c->supplied_clean,
		(int) c->supplied_written, (int) c->consumed, (int) c->reused, (int) c->queued, s->ready);
}

static void
ticks(int n)
{
	for (int i = 0; i < n; i++)
		(void) pgscale_sweeper_scan();
}

static bool
used_once(int buf, const PgscaleBuffer *look, const PgscalePage *page)
{
	return look->usage <= 1;
}

static const char *
choose(int pages)
{
	PgscaleSweeperRun found[100];

	return describe(found, pgscale_sweeper_set_choose(pages, used_once, 64, NS_PER_S, found, lengthof(found)));
}

static bool
any_buffer(int buf)
{
	return buf != 111;
}

static void
run_around(int block, int limit)
{
	const PgscalePage page = page_of(block);
	PgscaleSweeperRun run;
	int			bufs[PGSCALE_RUN_MAX];

	say("%s", describe(&run, set_run_around(&page, limit, any_buffer, &run, bufs) > 0));
}

static void
add_all(const double *blocks)
{
	for (int i = 0; i < STEP_NUMBERS && blocks[i] > 0; i++)
	{
		const PgscalePage page = page_of(blocks[i]);

		(void) pgscale_sweeper_set_add(blocks[i], &page, 64);
	}
}

static const char *
counts_of(int from, int to)
{
	char	   *text = palloc0(to - from + 2);

	for (int buf = from; buf <= to; buf++)
		text[buf - from] = '0' + usage(buf);
	return text;
}

static int
buffers_with(int count, PgscaleBufferState flag)
{
	int			n = 0;

	for (int buf = 0; buf < NBuffers; buf++)
		n += usage(buf) == count && (state_of(buf) & flag) == flag;
	return n;
}

static void
say_written(void)
{
	const PgscaleSweeperWriteCounts c = pgscale_sweeper_write_counts();
	StringInfoData classes;

	initStringInfo(&classes);
	for (int i = 0; i < PGSCALE_RUN_CLASSES; i++)
		appendStringInfo(&classes, " %d", (int) c.runs_by_pages[i]);
	say("%d in %d runs:%s; neighbours %d, changed %d, locked %d, pinned %d, wal %d, flushes %d %d, errors %d, "
		"writebacks %d, ns %d",
		(int) c.written, (int) c.runs, classes.data, (int) c.neighbours, (int) c.skipped_changed, (int) c.skipped_locked,
		(int) c.skipped_pinned, (int) c.skipped_wal, flushes, (int) c.wal_flushes, (int) c.errors, (int) c.writeback_calls,
		(int) c.write_ns);
}

static const struct
{
	const char *name;
	PgscaleBufferState flag;
}			flags[] = {
	{"dirty", BM_DIRTY}, {"pin", BUF_REFCOUNT_ONE}, {"awaited", BM_PIN_COUNT_WAITER}, {"locked", BM_LOCKED}, {"valid", BM_VALID},
	{"tag", BM_TAG_VALID}, {"io", BM_IO_IN_PROGRESS}
};

/* "+dirty", "-pin" and so on: sets or clears a flag of these buffers. */
static bool
set_flags(const char *name, int from, int to)
{
	for (int i = 0; i < lengthof(flags); i++)
	{
		if ((*name != '+' && *name != '-') || strcmp(name + 1, flags[i].name) != 0)
			continue;
		for (int buf = from; buf <= Max(from, to); buf++)
			set_state(buf, *name == '+' ? state_of(buf) | flags[i].flag : state_of(buf) & ~flags[i].flag);
		return true;
	}
	return false;
}

static bool
command(const char *name, const double *numbers)
{
	const int	a = (int) numbers[0];
	const int	b = (int) numbers[1];
	const int	c = (int) numbers[2];
	const int	d = (int) numbers[3];
	PgscaleSweeperScanCounts *counts = &s->counts;
	PgscaleSweeperPage *p = &the_pages[5];
	const PgscalePage page = page_of(a);

	/* buffers, of which some have a page and a count, and the server around them */
	COMMAND("hold", hold(a, b, c));
	COMMAND("fill", fill(a, b, c));
	COMMAND("use", use(a, b, Max(a, c)));
	COMMAND("hand", hand_goes(a, b > 0 ? b : NBuffers));
	COMMAND("where", say("%d", (int) (server_hand % NBuffers)));
	COMMAND("hand_at", server_hand += NBuffers - server_hand % NBuffers + a);
	COMMAND("wraps", server_hand %= NBuffers);
	COMMAND("hand_runs", at_look = a ? hand_runs : NULL);
	COMMAND("later", the_time += a * NS_PER_MS);
	COMMAND("counts", say(counts_of(a, Max(a, b))));
	COMMAND("with", say("%d", buffers_with(a, b ? BM_DIRTY : 0)));
	COMMAND("dirty", say(yes(state_of(a) & BM_DIRTY)));

	/* what is known of the page in buffer 5, and the policy */
	COMMAND("listen", listens = true);
	COMMAND("deaf", listens = false);
	COMMAND("see", see(a, b, c, d));
	COMMAND("left", pgscale_sweeper_page_left(5));
	COMMAND("keep", p->kept = true);
	COMMAND("kept", say("%d, rank %d, header %d", p->kept, pgscale_sweeper_rank(5), pgscale_sweeper_header(5)));
	COMMAND("torn", say(yes(read_torn())));
	COMMAND("offered", p->followed = p->offered = p->passed = true);
	COMMAND("on_offer", say("%d", p->followed + p->offered + p->passed));
	COMMAND("begin", pgscale_sweeper_pages_begin());
	COMMAND("rank", memset(ranks + a, b, Max(a, c) - a + 1));

	/* the supply */
	COMMAND("supply", begin_supply(a, b));
	COMMAND("looks", most_looks = a > 0 ? a : PG_INT32_MAX);
	COMMAND("offer", offer(a, page_in(a), b, Max(a, c)));
	COMMAND("offer_page", offer(a, b, c, a));
	COMMAND("ready", say("%d", pgscale_sweeper_supply_ready()));
	COMMAND("follow", say(pgscale_sweeper_supply_follow() ? "demand" : "no demand"));
	COMMAND("leave", say(pgscale_sweeper_supply_leave() ? "done" : "more"));
	COMMAND("onward", say("%d", pgscale_sweeper_supply_onward(a, b / 100.0)));
	COMMAND("guard", pgscale_sweeper_supply_guard());
	COMMAND("high", s->high = a);
	COMMAND("short", s->writes_short = a);
	COMMAND("cheap", s->reads_cheap = a);
	COMMAND("first", say(yes(writes_first)));
	COMMAND("fast", taken_lately = a);
	COMMAND("speed", say("%g", taken_lately));
	COMMAND("gone", say("%d+%d, starved %d", (int) counts->consumed, (int) counts->reused, (int) counts->starved));
	COMMAND("supplied", say("%d", (int) counts->supplied_clean));

	/* the sweep */
	COMMAND("sweep", begin_sweep(a, b, c));
	COMMAND("work", work_on(a, b));
	COMMAND("tick", tick(a > 0 ? a : 4));
	COMMAND("ticks", ticks(a));
	COMMAND("period", say("%d", (int) (s->period_ns / NS_PER_MS)));
	COMMAND("low", s->low = a);
	COMMAND("rest", say(yes(pgscale_sweeper_rest(false))));
	COMMAND("stuck", say(yes(s->stuck)));
	COMMAND("observing", s->observing = true);
	COMMAND("observe", (void) observe(a));
	COMMAND("hurries", say(yes(observe(a))));
	COMMAND("lap", lap());
	COMMAND("observed", say("%d, not %d, missed %d", (int) counts->observed, (int) counts->unobserved, (int) s->coverage.missed));

	/* the standing set, the queue and the writers */
	COMMAND("run", run_around(a, b));
	COMMAND("set", pgscale_sweeper_set_init(a));
	COMMAND("longest", pgscale_sweeper_set_order(a));
	COMMAND("add", say("%d", pgscale_sweeper_set_add(a, &page, b > 0 ? b : 64)));
	COMMAND("adds", add_all(numbers));
	COMMAND("choose", say(choose(a)));
	COMMAND("refresh", pgscale_sweeper_set_refresh(100, used_once, 64, NS_PER_S));
	COMMAND("forget", pgscale_sweeper_set_forget(a));
	COMMAND("lacks", say(yes(pgscale_sweeper_set_lacks(a / 100.0))));
	COMMAND("skip", say(yes(pgscale_sweeper_set_skip(a))));
	COMMAND("queue", (void) pgscale_sweeper_put_run(q, &(PgscaleSweeperRun) {page, b, c}));
	COMMAND("queued", say(queued()));
	COMMAND("waiting", say("%d", (int) pgscale_sweeper_queued_runs(q)));
	COMMAND("writing", s->writers[PGSCALE_SWEEPER_MAX_WRITERS - 1].writing = a);
	COMMAND("skips", s->writers[3].counts.skipped_locked++);
	COMMAND("watch", s->state = a ? PGSCALE_SWEEPER_WATCHING : PGSCALE_SWEEPER_WORKING);
	COMMAND("skip_some", skips = true);
	COMMAND("write", write_all());
	COMMAND("written", say_written());
	COMMAND("ended", say(yes(writer_ended)));
	return set_flags(name, a, b);
}

/* What the policy hears, and "left", of a page whose count was expected to be the third number. */
static const Step known[] = {
	{"supply 800 0, listen"},
	{"see 7 3 0 0", "5: 7 arrived, 3; first; 3 is left to 7", "a page that is new"},
	{"see 7 3 3 0", "not used; 3 is left to 7", "one that was not used"},
	{"see 7 5 3 0", "5: 7 used 2; used; 5 is left to 7", "one that was"},
	{"see 7 2 5 0", "lowered; 2 is left to 7", "one that the sweep has passed"},
	{"see 7 0 2 1", "5: visit; 5: visit; lowered; 0 is left to 7", "one that the hand has passed, which ages pages"},
	{"see 9 1 0 1", "5: 7 evicted; 5: 9 arrived, 1; replaced; 1 is left to 9", "one in the place of another"},
	{"see 10 0 1 1", "5: 9 evicted; 5: 10 arrived, 0; 5: visit; replaced; 0 is left to 10", "one that the hand has passed since"},
	{"left, left", "5: 10 evicted", "one that has left"},
	{"see 11 0 0 0, keep, kept", "5: 11 arrived, 0; first; 0 is left to 11; 1, rank 1, header 3", "a kept page ranks one"},
	{"see 12 1 0 0, kept", "5: 11 evicted; 5: 12 arrived, 1; replaced; 1 is left to 12; 0, rank 1, header 1",
	"its successor is not"},
	{"torn, -locked 5", "no", "a name is not read while it is written"},
	{"see 12 2 1 1", "5: 12 used 1; used; 2 is left to 12", "and pages are known"},
	{"begin, see 12 2 2 0", "memory begins with 0; 5: 12 arrived, 2; first; 2 is left to 12", "no page is known at first"},
};

static const Step supply[] = {
	/* unused pages are at 190 on: the first one is dirty, the second one is pinned */
	{"supply 400 5, high 4, use 190 0 199, +dirty 190, +pin 191"},
	{"follow, ready, supplied", "no demand; 4; 4", "as much is on offer as is wanted"},
	{"counts 188 199", "551000001111", "the hand shall pass others, also dirty ones"},
	{"-pin 191, use 193 1, use 150 1, use 151 3, hand 264, follow, gone", "demand; 3+1, starved 1",
	"three are taken, one is used"},
	{"counts 188 199", "331111111111", "the hand finds no others, three times at most"},
	{"offer 188 4, offer_page 188 1 5", "no; no", "no page that ranks higher, or is not meant"},
	{"+dirty 188, offer 188 5, -dirty 188, +pin 188, offer 188 5, -pin 188", "no; no", "nor one that is dirty or pinned"},
	{"ready, offer 188 5, counts 188, ready, offer 188 5", "0; yes; 0; 1; no", "others are, once"},
	{"looks 250, leave, leave, counts 188 199, ready", "more; done; 050111110000; 0",
	"it leaves ranks, except of what is on offer"},
	{"hand_at 150, onward 160 0, onward 140 0, onward 140 50", "160; 150; 140",
	"a sweep that is behind goes to the hand, for clean pages"},

	/* the server counts the rounds of the hand with 32 bits */
	{"hand_at 0, hand_at 0, hand_at 0, supply 400 5, high 4, use 190 0 199, follow, wraps, follow, hand 264, follow, gone",
	"no demand; no demand; demand; 4+0, starved 1", "a hand that begins anew is followed from there"},

	/* where nothing is on offer the guard yields what is used least, clean pages before dirty ones */
	{"supply 20000 3, follow, guard, supplied, counts 0 1", "demand; 1; 03", "the first one, if all are equal"},
	{"supply 20000 3, follow, rank 60 1, rank 61 0, +dirty 61, rank 59 0, +pin 59, guard, counts 59 62, supplied",
	"demand; 3033; 1", "a clean page before a dirty one that was used once less"},
	{"supply 20000 3, follow, rank 60 2, rank 61 0, +dirty 61, rank 59 0, +pin 59, guard, counts 59 62, supplied",
	"demand; 3303; 0", "not before one that was used twice less, which is no supply"},
	{"guard, counts 59 62, follow, gone", "3303; demand; 0+0, starved 2", "one is enough"},
	{"rank 80 0, offer 80 0, guard, counts 80, counts 61", "yes; 0; 1",
	"when a clean page is on offer, the dirty one is taken back"},
	{"supply 20000 3, follow, hand_runs 1, guard, hand_runs 0, where, hand 20000 1, where", "demand; 4104; 6157",
	"the hand runs past what is yielded, and finds more ahead"},
	{"supply 20000 3, follow, fast 1000, looks 600, guard, supplied", "demand; 78",
	"what is needed is yielded in part of the time"},
	{"supply 20000 3, follow, -valid 100, -tag 100, use 100 0, guard, supplied", "demand; 0", "an empty buffer is supply"},
	{"use 100 1, guard, supplied", "1", "one that the hand will pass is not"},
	{"supply 20000 3, follow, +dirty 0 19999, fast 100, hand_runs 1, guard, hand_runs 0, follow, where",
	"demand; demand; 8320", "dirty pages are yielded far ahead of a fast hand"},
	{"fast 0, -dirty 8320, offer 8320 5, guard, with 0 1", "yes; 0", "and taken back when a clean one is offered"},

	/* while writes are short and reads are cheap, each clean page that is little used */
	{"supply 20000 3, follow, short 1, rank 2 2, hand 300, follow, counts 2", "demand; demand; 2"},
	{"supply 20000 3, follow, short 1, cheap 1, rank 2 2, rank 3 3, rank 4 0, +dirty 4, keep, rank 6 0, use 6 1, hand 300, follow",
	"demand; demand"},
	{"counts 2 6, gone, ready", "01130; 0+0, starved 2; 0", "is yielded, and supplies nothing"},

	{"supply 400 5, high 3, use 100 0 102, follow, use 101 1, listen, hand 200, -valid 102, follow, deaf",
	"no demand; prefetches 110100; prefetches 10100; prefetches 10102; 100: 10100 evicted; 100: 110100 arrived, 1; 101: 10101 used 1; "
	"102: 10102 evicted; demand", "what is known of a page on offer that has gone is prefetched, and of the one that has come"},

	/* demand */
	{"supply 20000 3, high 10, use 19990 0 19999, follow, follow", "no demand; no demand",
	"ten are on offer and the hand stands"},
	{"hand 5000, looks 100, follow, follow, looks 0, follow", "demand; demand; no demand", "it moves, until it was followed"},
	{"supply 20000 3, follow, use 0 0 4, hand 200, follow, speed, follow, speed",
	"demand; demand; 5; demand; 4.75", "what was taken in a tick is remembered, a little less each time"},

	/* the hand goes round twice, and is followed for a tenth */
	{"supply 20000 5, follow, looks 100, listen, hand 40000, follow, looks 0, follow, with 5", "demand; demand; demand; 0",
	"no page ages by passes that were not seen"},
	{"looks 7000, leave, counts 0, counts 7000", "more; 5; 3", "it leaves from the hand on, in pieces"},
	{"looks 0, follow, leave, with 5", "demand; done; 20000", "it works again before that is done, and leaves again"},
};

/* Four buffers with counts of 2, 0, 5 and 1; the hand is before them. */
static const Step observed[] = {
	{"supply 4 0, observing, use 0 2, use 2 5, use 3 1, observe 100000, listen"},
	{"hand 1, observe 0", "", "the hand was not there yet"},
	{"hand 1, observe 0", "0: 10000 arrived, 1", "a page is seen behind it"},
	{"hand 3, observe 0", "1: 110001 arrived, 1; 2: 10002 arrived, 4; 3: 10003 arrived, 0; 3: visit", "the others"},
	{"use 0 2, +pin 1, use 2 5, lap",
	"0: 10000 used 2; 0: visit; 2: 10002 used 1; 2: visit; 3: 10003 evicted; 3: 110003 arrived, 1",
	"uses are the growth and one"},
	{"-pin 1, +locked 1, lap, -locked 1", "0: visit; 1: 110001 evicted; 2: visit; 3: visit", "one that is not to be read"},
	{"use 1 2, use 0 1, lap, observed",
	"0: 10000 used 1; 0: visit; 1: 110001 arrived, 1; 2: visit; 3: 110003 evicted; 3: 210003 arrived, 1; 16, not 0, missed 0",
	"where a pin keeps the hand away nothing is taken"},
	{"deaf, lap, lap, lap, lap, observed, use 0 5, use 1 5, use 3 5, lap, lap, observed, listen",
	"32, not 0, missed 0; 32, not 0, missed 0", "a window ends after eight laps"},
	{"use 2 0, hand 4, observe 1, observed", "32, not 13, missed 0", "another one begins as visits are allowed again"},
	{"use 0 5, lap", "1: visit; 2: 110002 evicted; 2: 310002 arrived, 0; 2: visit; 3: visit",
	"in its first lap counts show no uses, because passes of the hand were not seen"},
	{"use 1 5, lap", "0: visit; 1: 310001 used 4; 1: visit; 2: 310002 evicted; 2: 410002 arrived, 1; 3: visit",
	"in the second one they do"},
	{"hand 12, observe 0, observed", "39, not 13, missed 13", "a hand that outruns the ticks ends the window"},
	{"observe 2000, observed", "39, not 13, missed 13", "what passes where no tick comes is not missed"},
	{"supply 400 0, observing, observe 100000, hand 50, hurries 100", "no", "eight ticks for a lap are enough"},
	{"hand 51, hurries 100, hand 3, hurries 4", "yes; yes", "a faster hand needs more ticks"},
	{"hand 2, hurries 4", "no", "as long as it is that fast"},
	{"listen, rest, rest, deaf", "observes: 0; yes; yes", "the policy hears once that this ends"},
};

/* What the run around a page of 400 is, at most so long */
static const Step runs_around[] = {
	{"fill 0 399 5, +dirty 0 1, +dirty 10 12, +dirty 20, +dirty 40 49, +dirty 60 61, +dirty 63 64, +dirty 110 113, +dirty 398 399"},
	{"+io 113, hold 65 65 5, hold 66 62 5"},
	{"run 11 64, run 10 64, run 12 64, run 20 64", "10+3/0; 10+3/0; 10+3/0; 20+1/0", "all dirty neighbours"},
	{"run 11 1, run 11 2, run 11 3, run 40 4, run 47 4", "11+1/0; 10+2/0; 10+3/0; 40+4/0; 44+4/0", "no more than the limit"},
	{"run 45 10, run 45 9", "40+10/0; 40+9/0", "which may be less than there are"},
	{"run 0 64, run 1 64, run 399 64", "0+2/0; 0+2/0; 398+2/0", "at the ends of the file"},
	{"run 61 64, run 62 64, run 63 64, run 5000 64", "60+2/0; ; 63+2/0; ", "none around a clean page, or one that is not there"},
	{"run 110 64, run 112 64, run 111 64", "110+1/0; 112+1/0; ", "not over a buffer that may not be written, or is in I/O"},
};

static const Step standing_set[] = {
	{"fill 0 399 5, fill 5 5 1, fill 10 14 1, fill 20 22 1, fill 30 33 1, fill 50 55 1"},
	{"+dirty 5, +dirty 10 14, +dirty 20 22, +dirty 30 33, +dirty 50 55"},
	{"longest 1, set 100, adds 30 5 21 11 54, choose 0, choose 1", "50+6/1", "the longest run for one page"},
	{"set 100, adds 30 5 21 11 54, choose 7", "10+5/1 50+6/1", "the longest runs for seven, in their order"},
	{"set 100, adds 30 5 21 11 54, choose 12", "10+5/1 30+4/1 50+6/1", "for twelve"},
	{"set 100, adds 30 5 21 11 54, choose 99", "5+1/1 10+5/1 20+3/1 30+4/1 50+6/1", "all"},
	{"longest 0, set 100, adds 30 5 21 11 54, choose 0, choose 1", "30+4/1", "the oldest for one page"},
	{"set 100, adds 30 5 21 11 54, choose 5", "5+1/1 30+4/1", "for five"},
	{"set 100, adds 30 5 21 11 54, choose 6", "5+1/1 20+3/1 30+4/1", "for six"},
	{"longest 1, set 100, adds 50 51 10 50, choose 1", "50+6/2", "all victims of a run count as such, once"},
	{"choose 99, choose 99", "10+5/1; ", "the others are chosen later, none twice"},
	{"set 2, adds 5 21 54, choose 99", "5+1/1 20+3/1", "no more than there is room for"},
	{"set 100, adds 10 6 21, use 21 2, choose 99, use 21 1", "10+5/1", "no page that is clean, or was used again"},
	{"set 100, adds 30 54, hold 54 1000 0, +dirty 54, choose 99, hold 54 54 1, +dirty 54", "30+4/1",
	"no buffer that has another page"},

	/* marks are of a buffer */
	{"set 3, adds 30 10, forget 30, add 30, lacks 70, lacks 60", "0; yes; no", "a buffer has one entry"},
	{"skip 10, skip 10, skip 30", "yes; yes; no", "a candidate is passed, if it still counts"},
	{"choose 99, skip 10, skip 10", "10+5/1; yes; no",
	"one that was forgotten is not chosen; a page with the writers is passed, once"},

	/* runs change while their candidates wait */
	{"set 100, adds 30 50 51, -dirty 52 55, choose 1", "30+4/1", "a run that was shortened waits with all its candidates"},
	{"choose 1, +dirty 52 55", "50+2/2", "and is chosen when it is the longest"},
	{"set 100, adds 30 50, fill 34 39 1, +dirty 34 39, choose 1", "50+6/1", "a run that has grown is not known of"},
	{"set 100, -dirty 34 39, adds 30 50, +dirty 34 39, refresh, refresh, choose 1", "30+10/1", "until it is looked at again"},

	/* what adding costs: pages that are looked up, its run and the two that end it, once in a turn */
	{"-dirty 34 39, fill 40 59 1, +dirty 40 59, set 100, add 5, add 12, add 10, add 14, add 5, add 6", "3; 7; 0; 0; 0; 2",
	"a run costs its length, once"},
	{"set 100, add 40 8, add 41 8, add 47 8, add 48 8, add 49 8", "10; 0; 0; 10; 0", "a long one costs no more, forwards"},
	{"set 100, add 49 8, add 48 8, add 42 8, add 41 8, add 40 8", "10; 0; 0; 4; 0", "or backwards"},
	{"longest 0, set 100, add 40 8, add 5 8, choose 1", "0; 0; 40+20/1",
	"nothing where the oldest go first, before they are chosen"},
};

/* Ticks: see tick(). */
static const Step ticks_of_sweep[] = {
	/* clean pages */
	{"fill 0 399 5, fill 0 2 0, fill 200 202 0, fill 210 219 1, +pin 201, sweep 400 8 12"},
	{"tick", "400/394 5+0 0+0 0 5", "what nobody uses is on offer, and counts are taken down"},
	{"tick, tick", "617/598 12+0 0+0 0 5; 617/598 12+0 0+0 0 12",
	"it goes on up to the high watermark, and past what is ready or pinned"},
	{"counts 0 3, counts 200 202, counts 210 219", "0003; 000; 0000000111", "the hand shall pass others"},
	{"hand 67, tick", "! 617/598 13+0 3+0 0 9", "three are taken, and above the low watermark that will do"},
	{"use 212 2, hand 204, tick, tick", "! 1017/994 17+0 12+1 0 7; 1358/1325 25+0 12+1 0 4",
	"below it, it refills; one was used, and was not taken"},

	/* dirty pages, while eleven buffers are ready */
	{"fill 0 399 5, fill 80 80 0, fill 70 73 1, fill 91 91 1, fill 95 95 1, fill 74 74 2, fill 90 90 2, fill 75 75 3, "
	"fill 300 310 0"},
	{"+dirty 80, +dirty 70 75, +dirty 90 91, +dirty 95, +dirty 100, +pin 95, sweep 400 20 24"},
	{"tick, queued", "400/387 11+0 0+0 1 11; 80+1/1", "a dirty page that nobody used is a victim"},
	{"tick, queued", "800/769 11+0 0+0 6 11; 70+6/4 90+2/1",
	"the next time around so are those that had one use, with neighbours"},
	{"queue 70 6 4, queue 80 1 1, queue 90 2 1, use 75 3, write"},
	{"tick, dirty 95, dirty 100, dirty 75", "1200/1149 11+8 0+0 6 19; yes; yes; no",
	"all that were written are supplied, but one that was used again"},
	{"rank 101 0 102, rank 104 0 105, rank 107 0 109, rank 111 0 112, rank 120 0"},
	{"+dirty 101 102, +dirty 104 105, +dirty 107 109, +dirty 111 112, +dirty 120"},
	{"tick, queued", "1600/1519 11+8 0+0 16 19; 100+3/2 104+2/2", "all that are found become candidates, the oldest are written"},
	{"tick, queued", "1600/1519 11+8 0+0 16 19; 107+3/3 111+2/2",
	"the next time no other is found, but the next ones are written"},

	/* what waits for writers, or is with one, will be ready */
	{"queue 101 2 2, writing 3, work 20 24, tick, writing 0", "0/0 0+0 0+0 0 19", "with what writers have there will be enough"},
	{"tick, work 22 24, tick, queued", "0/0 0+0 0+0 0 19; 400/370 0+0 0+0 0 19; 101+2/2 120+1/1",
	"without, it is enough above the low watermark, and not below it"},
	{"rest, queued", "yes; ", "at rest it has nothing written"},
	{"work 40 50, queue 101 2 2, ticks 1, stuck", "no", "writers may begin"},
	{"later 2001, ticks 1, stuck, skips, ticks 1, stuck", "yes; no",
	"who do nothing for two seconds are stuck, until they get on"},

	/* few dirty pages wait where most victims are clean */
	{"fill 0 399 5, sweep 400 0 1, ticks 1, rank 0 0 149, work 140 150, tick", "150/0 149+0 0+0 0 1", "all victims are clean"},
	{"rank 160 0 199, +dirty 159 199, work 190 195, tick", "400/210 0+0 0+0 22 150", "few dirty pages wait"},
	{"write, ticks 1, counts 159 161", "writeback 159+41; 300", "victims leave, and a neighbour that was used stays"},

	/* where ticks find nothing ready and victims are dirty, writes are short */
	{"fill 0 399 5, fill 0 0 0, fill 2 2 0, fill 4 4 0, fill 6 6 0, fill 100 105 0, fill 106 106 2"},
	{"+dirty 0, +dirty 2, +dirty 4, +dirty 6, +dirty 100 106, sweep 400 1 1"},
	{"ticks 1, queued, ticks 1, queued, ticks 1, queued", "0+1/1; 2+1/1; 4+1/1", "at first the oldest is written"},
	{"ticks 1, queued, ticks 1, queued, gone, first", "100+7/6; 6+1/1; 0+0, starved 5; no",
	"after the third tick the longest run is written first"},
	{"queue 100 7 6, write, tick", "! 800/780 0+7 0+0 10 7", "all leave, also the neighbour that was used twice"},
	{"rank 20 0 80, +dirty 20 80, work 0 1, queue 20 61 61, write, ticks 1, rank 120 0 125, +dirty 120 125, work 0 1"},
	{"tick", "0/0 0+0 0+0 0 68", "much is ready, and no buffer is taken: it looks for nothing"},
	{"hand 90, tick, queued", "! 36/32 0+0 16+0 2 62; ",
	"while buffers are taken and writes are short, it looks for candidates although enough is ready"},
	{"rest, fill 0 399 5, fill 0 0 0, fill 100 105 0, +dirty 0, +dirty 100 105, work 1 1, ticks 1, queued", "yes; 0+1/1",
	"after a rest the oldest is written first again"},
	{"ticks 3, first, cheap 1, ticks 1, first, cheap 0, ticks 1, first", "no; yes; no", "the policy knows whether reads are cheap meanwhile"},

	/* it refills when as much is left as was taken lately within two ticks */
	{"fill 0 399 5, fill 0 119 0, fill 200 399 0, sweep 400 120 121, ticks 9, work 0 121, hand 65"},
	{"tick", "! 0/0 0+0 1+0 0 120", "while enough is ready, the sweep looks for nothing"},
	{"hand 79, tick 250", "! 137/56 80+0 80+0 0 41", "it is refilled although the low watermark is zero, as most was taken"},

	/* the less is taken of what is ready, the later is the next tick */
	{"fill 0 399 5, fill 0 119 0, sweep 400 8 80, period, ticks 1, period, ticks 1, period, ticks 1, period", "4; 8; 16; 16",
	"without demand the next tick is due after up to 16 ms"},
	{"hand 65, tick 16, hand 8, tick 16, period", "! 0/0 80+0 1+0 0 79; ! 0/0 80+0 9+0 0 71; 16", "an eighth may be taken meanwhile"},
	{"hand 9, tick 16, period, ticks 1, period", "! 0/0 81+0 18+0 0 62; 4; 8", "if that is more, the next tick is due after 4 ms at once"},
	{"ticks 2, period, queue 300 1 1, ticks 1, period, queued", "16; 4; 300+1/1", "or if a run waits for a writer"},
	{"ticks 2, period, low 64, ticks 1, period", "16; 4", "or below the low watermark"},
	{"low 8, ticks 2, period, rest, period", "16; yes; 4", "and after a rest"},
};

static const Step writers[] = {
	{"fill 0 399 5, +dirty 0 399, -dirty 103, sweep 400 1 2"},
	{"watch 1, queue 0 1 1, queue 2 2 1, write, dirty 0, waiting", "yes; 0",
	"while the sweep does not work, what is queued is dropped"},
	{"watch 0, queue 0 1 1, queue 2 2 1, queue 5 3 3, queue 10 4 1, queue 15 5 2, queue 25 64 9, queue 100 6 2, queue 110 15 2"},
	{"queue 130 16 2, queue 300 64 1, queue 5000 1 1, write", "writeback 25+64; writeback 130+16; writeback 300+64",
	"the kernel is asked for runs of 16 pages and more"},
	{"written", "179 in 11 runs: 1 2 3 1 2 0 2 0; neighbours 155, changed 2, locked 0, pinned 0, wal 0, flushes 0 0, errors 0, "
	"writebacks 3, ns 1790", "runs by their length, pages, neighbours, and the time of each write"},
	{"dirty 1, dirty 2, dirty 3, dirty 4", "yes; no; no; yes", "others are not written"},
	{"skip_some, fill 200 399 5, +dirty 200 399, queue 200 8 1, queue 300 63 1, write, written",
	"184 in 14 runs: 3 2 4 1 2 0 2 0; neighbours 159, changed 2, locked 1, pinned 1, wal 64, flushes 0 0, errors 0, writebacks 3, "
	"ns 1840", "a page that is skipped ends a run"},
	{"queue 300 1 1, write, written",
	"184 in 14 runs: 3 2 4 1 2 0 2 0; neighbours 159, changed 2, locked 1, pinned 1, wal 65, flushes 1 1, errors 0, writebacks 3, "
	"ns 1840", "WAL is flushed for 64 pages"},
	{"ended, later 10000, write, ended", "no; yes", "a writer goes on, and ends after ten seconds without work"},
};

static void
check_queues(void)
{
	PgscaleSweeperSwept swept;
	bool		lost;
	int			n = 0;

	for (int i = 0; i < PGSCALE_RUNS_QUEUED + 2; i++)
		n += pgscale_sweeper_put_run(q, &(PgscaleSweeperRun) {page_of(i), 1 + i % 2, 1});
	is(n, 4096, "the queue has room for so many runs");
	is(pgscale_sweeper_pending(q), 4096 * 1.5, "whose pages are coming");
	is(strncmp(queued(), "0+1/1 1+2/1 2+1/1 ", 18), 0, "they come back in their order");
	pg_atomic_fetch_add_u32(&q->runs_put, PG_INT32_MAX);
	lost = false;
	is(!pgscale_sweeper_take_run(q, &runs[0], &lost) && lost, true, "a ring that says what cannot be is given up");
	is(!pgscale_sweeper_take_run(q, &runs[0], &lost) && !lost, true, "once");
	for (int i = 0; i < PGSCALE_PAGES_WRITTEN + 2; i++)
		pgscale_sweeper_put_written(&q->written[1], &(PgscaleSweeperSwept) {i, page_of(i)});
	for (n = 0; pgscale_sweeper_take_written(&q->written[1], &swept, &lost); n++)
		if (swept.buf != n)
			break;
	is(n, 4096, "as many written pages come back, in their order");
	pg_atomic_fetch_add_u32(&q->written[1].put, PG_INT32_MAX);
	is(!pgscale_sweeper_take_written(&q->written[1], &swept, &lost) && lost, true, "this one, too");
}

#define CHECK(steps)	check_steps(steps, lengthof(steps), command)

Datum
sweep_steps(PG_FUNCTION_ARGS)
{
	initStringInfo(&lines);
	initStringInfo(&said);
	s = pgscale_sweeper = palloc0(sizeof(PgscaleSweeper));
	q = palloc0(sizeof(PgscaleSweeperQueues));
	pgscale_sweeper_memory = (PgscaleSweeperMemory) {
		.queues = q,.pages = the_pages,.policy = (PgscaleSweeperPolicy *) the_memory
	};
	pgscale_sweeper_kept_list = palloc0(sizeof(PgscaleSweeperKeptList));
	CHECK(known);
	CHECK(supply);
	CHECK(ticks_of_sweep);
	CHECK(observed);
	NBuffers = 400;
	CHECK(runs_around);
	CHECK(standing_set);
	CHECK(writers);
	check_queues();
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}
