/*
 * The decisions of writeback, with a clock, buffers and a kernel that this file makes up. writeback_steps(folder) returns a line for
 * each check: "ok" or "not ok", and its name.
 */
#include "postgres.h"

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "catalog/pg_tablespace_d.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "base/kernel.h"
#include "base/relation_files.h"
#include "base/shared_buffers.h"
#include "base/timer.h"
#include "base/units.h"

#include "steps.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(writeback_steps);

static int	buffers = 1000;

static void steps_flush(int fd, off_t offset, off_t bytes);

/* What it has of the server is made up as well. */
#define NBuffers			buffers
#define pg_flush_data		steps_flush

#include "writeback/writeback_controller.c"
#include "writeback/dirty_tracker.c"
#include "writeback/flush_requests.c"
#include "writeback/read_latency.c"

/* The clock */
static int64 clock_ns;

int64
pgscale_timer_clock(void)
{
	return clock_ns;
}

static int64
seconds(double s)
{
	return (int64) (s * 1e9) + 1000 * NS_PER_S;
}

#define MB ((int64) 1024 * 1024)


/*---- the controller ----*/

static PgscaleWriteback w;
static PgscaleWritebackEvidence e;

static void
controller_begins(double limit)
{
	pgscale_writeback_decide_start(&w, seconds(0));
	e = (PgscaleWritebackEvidence)
	{
		.possible = true,.cap_setting = 100 * MB,.redirty_limit = limit,.tells = true,
			.landing_ms = -1,.rewritten = -1,.read_ms = -1
	};
}

static int64
decide(double s)
{
	return pgscale_writeback_decide(&w, &e, seconds(s));
}

#define POSSIBLE	PGSCALE_WRITEBACK_IS_OFF
#define LEARNING	PGSCALE_WRITEBACK_LEARNING
#define LITTLE		PGSCALE_WRITEBACK_LITTLE
#define KEEPING		PGSCALE_WRITEBACK_KEEPING
#define BEHIND		PGSCALE_WRITEBACK_BEHIND
#define REWRITES	PGSCALE_WRITEBACK_REWRITES

/* What it requests of the MB above half the cap, and why. */
static const struct
{
	double		at,
				limit,
				rewritten;
	PgscaleWritebackReason obstacle;
	int64		asks;
	PgscaleWritebackReason reason;
	double		number;
	const char *name;
}			standing_down[] = {
	{10, 0.4, -1, POSSIBLE, 0, LEARNING, 20, "it learns for 30 s"},
	{29.9, 0.4, -1, POSSIBLE, 0, LEARNING, 0.1, "just before 30 s it still learns"},
	{30, 0.4, -1, POSSIBLE, MB, KEEPING, 0, "at 30 s it asks"},
	{32, 0.4, 0.4, POSSIBLE, MB, KEEPING, 0, "as many rewrites as the limit: it goes on"},
	{33, 0.4, 0.41, POSSIBLE, 0, REWRITES, 0.41, "more: it stands down"},
	{42.9, 0.4, 0.2, POSSIBLE, 0, REWRITES, 0.2, "few rewrites, but 10 s are not over"},
	{43.1, 0.4, 0.31, POSSIBLE, 0, REWRITES, 0.31, "10 s are over, but there are more than three quarters of the limit"},
	{43.2, 0.4, 0.29, POSSIBLE, MB, KEEPING, 0, "fewer than three quarters: it is back by itself"},
	{44, 0.4, 0.39, POSSIBLE, MB, KEEPING, 0, "back, it takes the whole limit to stand down"},
	{50, 0.4, 0.5, POSSIBLE, 0, REWRITES, 0.5, "it stands down again"},
	{59.9, 0.4, 0.1, POSSIBLE, 0, REWRITES, 0.1, "for 10 s from then on"},
	{60, 0.4, 0.1, POSSIBLE, MB, KEEPING, 0, "and is back at their end"},
	{63, 1, 1, POSSIBLE, MB, KEEPING, 0, "with a limit of 1 it never stands down"},
	{64, 0, 0.01, POSSIBLE, 0, REWRITES, 0.01, "with a limit of 0 it does"},
	{75, 0, 0, POSSIBLE, MB, KEEPING, 0, "with a limit of 0 it asks if there are none"},
	{76, 0.4, -1, PGSCALE_WRITEBACK_OVERLAY, 0, PGSCALE_WRITEBACK_OVERLAY, 0, "where it is of no use it stands down"},
	{77, 0.4, -1, POSSIBLE, MB, KEEPING, 0, "it is back by itself when it is of use"},
	{78, 1, -1, PGSCALE_WRITEBACK_NO_FSYNC, 0, PGSCALE_WRITEBACK_NO_FSYNC, 0, "of no use, with a limit of 1, too"},
};

static void
check_standing_down(void)
{
	controller_begins(0.4);
	e.waiting = 51 * MB;
	for (int i = 0; i < lengthof(standing_down); i++)
	{
		const char *name = standing_down[i].name;

		e.redirty_limit = standing_down[i].limit;
		e.rewritten = standing_down[i].rewritten;
		e.possible = standing_down[i].obstacle == POSSIBLE;
		e.obstacle = standing_down[i].obstacle;
		is(decide(standing_down[i].at), standing_down[i].asks, name);
		is(w.reason, standing_down[i].reason, psprintf("%s: reason", name));
		is(w.number, standing_down[i].number, psprintf("%s: number", name));
	}
	controller_begins(0.4);
	e.rewritten = 0.41;
	is(decide(5), 0, "too many while it learns");
}

/* In MB, with a cap of 100 MB: what it requests, and why. */
static const struct
{
	double		waiting,
				skipped,
				flying,
				rate,
				asks;
	PgscaleWritebackReason reason;
	bool		limited;
	const char *name;
}			asking[] = {
	{50, 0, 0, -1, 0, LITTLE, false, "half the cap may wait"},
	{50.5, 0, 0, -1, 0.5, KEEPING, false, "what exceeds that is asked for"},
	{0, 0, 1, -1, 0, KEEPING, false, "it keeps while something is in flight"},
	{70, 20, 0, -1, 0, LITTLE, false, "what is better left alone does not count"},
	{72, 20, 0, -1, 2, KEEPING, false, "what exceeds both does"},
	{78, 78, 0, -1, 3, KEEPING, false, "up to three quarters of the cap"},
	{90, 0, 0, -1, 4, KEEPING, true, "no more than the window at once"},
	{90, 0, 3, -1, 1, KEEPING, true, "no more than its rest"},
	{90, 0, 7, -1, 0, KEEPING, true, "nothing while there is more in flight"},
	{54, 0, 0, -1, 4, KEEPING, false, "all of the window is no limit"},
	{97, 0, 4, -1, 0, KEEPING, true, "over the cap, but the disk's rate is unknown"},
	{97, 0, 4, 7e6, 0, BEHIND, true, "over the cap, and it is known"},
	{96, 0, 4, 7e6, 0, KEEPING, true, "at the cap"},
};

static double
cap_of(int64 setting, double rate)
{
	controller_begins(1);
	e.cap_setting = setting;
	w.disk_rate = rate;
	decide(0);
	return w.cap;
}

static void
check_cap(void)
{
	for (int i = 0; i < lengthof(asking); i++)
	{
		const char *name = asking[i].name;

		controller_begins(1);
		e.waiting = asking[i].waiting * MB;
		e.skipped = asking[i].skipped * MB;
		e.flying = asking[i].flying * MB;
		w.disk_rate = asking[i].rate;
		is(decide(0), asking[i].asks * MB, name);
		is(w.reason, asking[i].reason, psprintf("%s: reason", name));
		is(w.was_limited, asking[i].limited, psprintf("%s: limit", name));
	}
	is(cap_of(-1, -1), 32 * MB, "the cap while the disk's rate is unknown");
	is(cap_of(-1, 100e6), 25e6, "the cap is a quarter of a second");
	is(cap_of(-1, 10e6), 8 * MB, "but no less than 8 MB");
	is(cap_of(-1, 10e9), 256 * MB, "and no more than 256 MB");
	is(cap_of(0, 10e9), 0, "a cap of 0 is one");
	controller_begins(1);
	e.tells = false;
	e.waiting = 150 * MB;
	e.flying = 30 * MB;
	is(decide(0), 64 * MB, "a kernel that does not say what landed gets 64 MB");
	is(w.was_flying, false, "and its rate is not measured");
}

/* The window before and after, in MB; a read usually takes 10 ms. */
static const struct
{
	double		before;
	bool		limited;
	double		landing_ms,
				read_ms,
				after;
	bool		slow;
	const char *name;
}			windows[] = {
	{4, true, 100, -1, 5, false, "the window grows where it was a limit"},
	{4, false, 100, -1, 4, false, "it does not grow where it was none"},
	{4, true, -1, -1, 4, false, "nor if nothing landed"},
	{5, true, 101, -1, 4, false, "it shrinks if landing takes long"},
	{0.55, true, 101, -1, 0.5, false, "to half a MB at least"},
	{60, true, 0, -1, 64, false, "it grows to 64 MB at most"},
	{4, true, 10, 22, 5, false, "reads of twice the usual time and 2 ms more are not slow"},
	{5, true, 10, 22.1, 4, true, "longer ones are, and shrink the window"},
};

static void
check_window(void)
{
	for (int i = 0; i < lengthof(windows); i++)
	{
		controller_begins(1);
		e.waiting = 90 * MB;
		w.window = windows[i].before * MB;
		w.was_limited = windows[i].limited;
		w.read_ms = 10;
		e.landing_ms = windows[i].landing_ms;
		e.read_ms = windows[i].read_ms;
		decide(0);
		is(w.window, windows[i].after * MB, windows[i].name);
		is(w.reason == PGSCALE_WRITEBACK_SLOW_READS, windows[i].slow, psprintf("%s: reason", windows[i].name));
	}
	e.read_ms = -1;
	w.window = 4 * MB;
	decide(0);
	is(w.window, 4 * MB, "after slow reads it neither grows nor shrinks until the next ones");
	is(w.reason, PGSCALE_WRITEBACK_SLOW_READS, "the reason stays");
	w.read_ms = 10;
	e.read_ms = 22;
	decide(0);
	is(w.read_ms, 10.12, "reads count little while something is in flight");
	e.waiting = 0;
	decide(0);
	w.read_ms = 10;
	e.read_ms = 20;
	decide(0);
	is(w.read_ms, 11, "and more while nothing is");
	is(w.reason, PGSCALE_WRITEBACK_LITTLE, "slow reads do not matter if nothing is asked for");
}

/* Half a second in which so much lands, with so many MB waiting: the rate then. */
static double
rate_after(double landed, double waiting)
{
	static double s = 0;

	e.waiting = waiting * MB;
	e.landed = 0;
	decide(s);
	e.landed = landed / 2;
	decide(s += 0.25);
	decide(s += 0.25);
	return w.disk_rate;
}

static void
check_rate(void)
{
	controller_begins(1);
	is(rate_after(50e6, 0), -1, "without anything in flight there is no rate");
	is(rate_after(10e6, 90), 20e6, "half a second says what the disk takes");
	is(rate_after(20e6, 90), 40e6, "more than that is taken over");
	is(rate_after(10e6, 90), 38e6, "less counts a tenth, if the window was a limit");
	is(rate_after(10e6, 51), 38e6, "and nothing if it was not");
}


/*---- the buffers, and what was written of them ----*/

typedef struct Held
{
	PgscalePage page;
	bool		tagged;
	bool		dirty;
	bool		checkpoint;
}			Held;

static Held * held;
static uint64 hand;

bool
pgscale_buffer_dirty(int buf, bool *tagged, bool *checkpoint)
{
	*tagged = held[buf].tagged;
	*checkpoint = held[buf].checkpoint;
	return held[buf].dirty;
}

void
pgscale_buffer_page(int buf, PgscalePage *page)
{
	*page = held[buf].page;
}

bool
pgscale_buffer_read(int buf, PgscaleBuffer *buffer, PgscalePage *page)
{
	buffer->dirty = held[buf].dirty;
	*page = held[buf].page;
	return held[buf].tagged;
}

uint64
pgscale_buffers_hand(void)
{
	return hand;
}

int
pgscale_buffer_page_compare(const void *a, const void *b)
{
	const PgscalePage *x = a;
	const PgscalePage *y = b;

	if (x->locator.relNumber != y->locator.relNumber)
		return x->locator.relNumber < y->locator.relNumber ? -1 : 1;
	return x->block < y->block ? -1 : x->block > y->block;
}

static void
dirties(int buf, Oid relation, ForkNumber fork, BlockNumber block)
{
	held[buf] = (Held)
	{
		.page = {.locator = {DEFAULTTABLESPACE_OID, 5, relation},.fork = fork,.block = block},.tagged = true,.dirty = true
	};
}

static bool
look(double s)
{
	clock_ns = seconds(s);
	return pgscale_writeback_watch_round(seconds(s), 50 * NS_PER_MS);
}

static void
watch_begins(int n)
{
	buffers = n;
	held = repalloc(held, n * sizeof(Held));
	memset(held, 0, n * sizeof(Held));
	pgscale_writeback_watch_start(seconds(0));
}

static PgscaleWritebackStretch *
stretch_of(Oid relation, ForkNumber fork, uint32 number)
{
	static PgscaleWritebackStretch none = {0};
	PgscaleWritebackStretchKey key;
	StretchEntry *entry;

	memset(&key, 0, sizeof(key));
	key.locator = (RelFileLocator) {DEFAULTTABLESPACE_OID, 5, relation};
	key.fork = fork;
	key.number = number;
	entry = stretch_table_lookup(table, key);
	return entry ? &pgscale_writeback_watch.stretches[entry->stretch] : &none;
}

#define watch pgscale_writeback_watch

static void
check_buffers(void)
{
	PgscaleWritebackStretch *s;

	watch_begins(1000);
	dirties(0, 1, MAIN_FORKNUM, 127);
	dirties(1, 1, MAIN_FORKNUM, 128);
	dirties(2, 1, MAIN_FORKNUM, 2047);
	dirties(3, 1, MAIN_FORKNUM, 2048);
	dirties(4, 1, FSM_FORKNUM, 127);
	is(look(1), true, "what becomes dirty is work");
	is(watch.written + watch.waiting, 0, "what is dirty is not written, nor does it wait");
	is(watch.used, 3, "stretches are apart by relation, fork and 16 MB");
	is(stretch_of(1, MAIN_FORKNUM, 0)->dirty, 3, "dirty buffers of a stretch");
	is(look(1.1) && !look(1.2), true, "after the next pass there is no work");
	for (int i = 0; i < 3; i++)
		held[i].dirty = false;
	look(2);
	s = stretch_of(1, MAIN_FORKNUM, 0);
	is(watch.written, 3, "what is clean was written");
	is(s->waiting, 3, "and waits, in its stretch");
	is(s->pieces, 1 | 2 | 1 << 15, "in its pieces");
	is(s->since_ns, seconds(2), "since then");

	held[3].checkpoint = true;
	look(3);
	is(watch.written, 3, "what a checkpoint is to write is not written");
	held[3].checkpoint = false;
	look(4);
	look(5);
	is(watch.written, 4, "what it has written, and is dirty again, is, once");
	dirties(3, 1, MAIN_FORKNUM, 4097);
	look(6);
	is(watch.written, 5, "what was replaced by another dirty page was written");
	held[3] = (Held) {0};
	look(7);
	is(watch.written, 5, "what was dropped was not");

	/* seen at once, though a round with no time sees 131,072 buffers: what is about the hand */
	watch_begins(600000);
	hand = 400000;
	pgscale_writeback_watch_start(seconds(0));
	dirties(131071, 1, MAIN_FORKNUM, 0);
	dirties(131072, 1, MAIN_FORKNUM, 1);
	dirties(400000 - 8192, 1, MAIN_FORKNUM, 2);
	dirties(400000 + 8191, 1, MAIN_FORKNUM, 3);
	clock_ns = seconds(3);
	pgscale_writeback_watch_round(seconds(2), 50 * NS_PER_MS);
	is(stretch_of(1, MAIN_FORKNUM, 0)->dirty, 3, "a round sees its part, and what is about the hand");
	hand = 0;
}


/*---- the kernel, and what is asked of it ----*/

static bool refuses;			/* it does not report */
static int64 kernel_dirty;		/* of each piece */
static int64 kernel_writeback;
static int64 flush_takes_ns;
static char opened[MAXPGPATH];
static StringInfoData flushed;
static PgscaleWritebackAsked asked;

bool
pgscale_kernel_cached(int fd, off_t offset, off_t length, PgscaleCached *cached)
{
	*cached = (PgscaleCached) {.dirty = refuses ? -1 : kernel_dirty,.writeback = refuses ? -1 : kernel_writeback};
	return true;
}

static void
steps_flush(int fd, off_t offset, off_t bytes)
{
	appendStringInfo(&flushed, " %s@%d+%d", opened, (int) (offset / MB), (int) (bytes / MB));
	clock_ns += flush_takes_ns;
}

int
pgscale_relation_file_open(const char *path)
{
	strlcpy(opened, path, sizeof(opened));
	return OpenTransientFile("/dev/null", O_RDONLY);
}

void
pgscale_relation_file_path(char *path, RelFileLocator locator, ProcNumber backend, ForkNumber fork, uint32 segment)
{
	snprintf(path, MAXPGPATH, "%u%s.%u", locator.relNumber, fork == FSM_FORKNUM ? "_fsm" : "", segment);
}

bool
pgscale_kernel_disk(dev_t device, PgscaleDisk *now)
{
	return false;
}

static void
are(const char *want, const char *name)
{
	is(strcmp(flushed.data, want) == 0, true, flushed.data[0] ? psprintf("%s:%s", name, flushed.data) : name);
	resetStringInfo(&flushed);
}

static void
finds(Oid relation, ForkNumber fork, uint32 number, uint16 pieces, int pages, double s)
{
	PgscaleWritebackStretchKey key;

	memset(&key, 0, sizeof(key));
	key.locator = (RelFileLocator) {DEFAULTTABLESPACE_OID, 5, relation};
	key.fork = fork;
	key.number = number;
	pgscale_writeback_watch_found(&key, pieces, pages, seconds(s));
}

static void
requests(int64 pages, double limit, double s)
{
	memset(&asked, 0, sizeof(asked));
	clock_ns = seconds(s);
	pgscale_writeback_ask(&asked, pages, limit, seconds(s));
}

static void
look_at_kernel(double s)
{
	clock_ns = seconds(s);
	pgscale_writeback_ask_look(&asked, seconds(s));
}

static void
kernel_begins(bool its_refuses, int64 pages)
{
	watch_begins(100);
	pgscale_writeback_ask_start();
	refuses = its_refuses;
	kernel_dirty = pages * BLCKSZ;
	kernel_writeback = 0;
}

static void
check_requests(void)
{
	/* the pieces that wait, in their files; a piece has its share of the pages, and no more than the kernel has dirty */
	kernel_begins(false, 20);
	finds(7, MAIN_FORKNUM, 65, 1 << 3 | 1 << 15 | 1 << 4, 90, 0);
	requests(1000, 1, 1);
	are(" 7.1@19+1 7.1@20+1 7.1@31+1", "the pieces that wait, in their segment");
	is(asked.asked, 60, "for the pages that the kernel has of them");
	is(watch.flying, 60, "they are in flight");
	kernel_writeback = 1;
	look_at_kernel(10.9);
	is(watch.flying, 60, "as long as the kernel writes there");
	kernel_writeback = 0;
	look_at_kernel(10.95);
	is(asked.landed, 60, "what the kernel does not write any more is on disk");
	is(asked.landing_ms, 9950, "after a time");
	finds(7, MAIN_FORKNUM, 63, 1 << 15, 20, 11);
	kernel_writeback = 1;
	requests(1000, 1, 11);
	are(" 7.0@1023+1", "the end of the first segment");
	look_at_kernel(21);
	is(watch.flying, 0, "no more than 10 s are waited for");
	is(asked.tells, false, "which says nothing about the disk");

	/* a kernel that does not report */
	kernel_begins(true, 0);
	finds(7, FSM_FORKNUM, 0, 1, 90, 0);
	requests(1000, 1, 1);
	are(" 7_fsm.0@0+1", "without an answer of the kernel all that waits is requested");
	look_at_kernel(1.24);
	is(watch.flying, 90, "it is in flight");
	look_at_kernel(1.25);
	is(watch.flying, 0, "for a quarter of a second");

	/* order: the oldest, the densest, and last what is written again */
	kernel_begins(true, 0);
	finds(9, MAIN_FORKNUM, 0, 1, 50, 0.1);
	finds(8, MAIN_FORKNUM, 1, 1, 100, 5);
	finds(8, MAIN_FORKNUM, 0, 1, 90, 5);
	requests(100, 1, 10);
	are(" 8.0@16+1", "the stretch with the most pages first");
	requests(40, 1, 10.2);
	are(" 9.0@0+1", "what has waited 10 s before that");
	finds(8, MAIN_FORKNUM, 3, 1, 100, 10);
	finds(7, MAIN_FORKNUM, 3, 1, 10, 10);
	stretch_of(8, MAIN_FORKNUM, 3)->sampled = 10;
	stretch_of(8, MAIN_FORKNUM, 3)->rewritten = 5;
	is(pgscale_writeback_ask_skipped(0.49, seconds(39.9)), 100, "a stretch with rewrites is left alone for 30 s");
	is(pgscale_writeback_ask_skipped(0.49, seconds(40)), 0, "and no longer");
	requests(95, 0.49, 11);
	are(" 7.0@48+1 8.0@0+1", "others come first, in the order of the files");
	requests(5, 0.49, 11);
	are(" 8.0@48+1", "it comes last");

	/* as many as were asked for, and no longer than 50 ms */
	kernel_begins(true, 0);
	finds(8, MAIN_FORKNUM, 0, 0xf, 400, 0);
	requests(150, 1, 1);
	are(" 8.0@0+1 8.0@1+1", "pieces until it is enough");
	flush_takes_ns = 51 * NS_PER_MS;
	requests(1000, 1, 1);
	are(" 8.0@2+1", "one that takes long is the last of a round");
	flush_takes_ns = 0;

	/* what waits is what the kernel has, all of it if that is half of a stretch */
	kernel_begins(false, 20);
	finds(7, MAIN_FORKNUM, 1, 2, 50, 0);
	look_at_kernel(1);
	is(watch.waiting, 20, "and is no more than the kernel has");
	kernel_dirty = 1024 * BLCKSZ;
	look_at_kernel(2);
	is(watch.waiting, 1024, "if the kernel has half of a stretch, all of that waits");
	refuses = true;
	look_at_kernel(31);
	is(watch.waiting, 0, "a kernel that does not report has written it after 30 s");
}

Datum
writeback_steps(PG_FUNCTION_ARGS)
{
	initStringInfo(&lines);
	initStringInfo(&flushed);
	held = palloc(sizeof(Held));

	check_standing_down();
	check_cap();
	check_window();
	check_rate();
	check_buffers();
	check_requests();
	pgscale_writeback_watch_stop();
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}
