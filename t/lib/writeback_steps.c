/*
 * The parts of writeback, step by step, with a clock, buffers and a kernel that this file makes up. writeback_steps(folder)
 * returns a line for each check: "ok" or "not ok", and its name. The folder is an empty one, for files.
 */
#include "postgres.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include "catalog/pg_tablespace_d.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
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
static int	open_now = 0;

static int
open_null(void)
{
	open_now++;
	return OpenTransientFile("/dev/null", O_RDONLY);
}

static void steps_flush(int fd, off_t offset, off_t bytes);

static int
close_null(int fd)
{
	open_now--;
	return CloseTransientFile(fd);
}

/* What it has of the server is made up as well. */
#define NBuffers			buffers
#define pg_flush_data		steps_flush
#define CloseTransientFile	close_null

#include "writeback/writeback_controller.c"
#include "writeback/dirty_tracker.c"
#undef ROUND_NS
#define context files_context
#include "writeback/file_scan.c"
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
controller_begins(void)
{
	pgscale_writeback_decide_start(&w, seconds(0));
	e = (PgscaleWritebackEvidence)
	{
		.possible = true,.cap_setting = 100 * MB,.redirty_limit = 0.4,.tells = true,
			.landing_ms = -1,.rewritten = -1,.read_ms = -1
	};
}

static int64
decide(double s)
{
	return pgscale_writeback_decide(&w, &e, seconds(s));
}

static void
waits(int64 waiting, int64 skipped, int64 in_flight)
{
	e.waiting = waiting;
	e.skipped = skipped;
	e.flying = in_flight;
}

static void
check_standing_down(void)
{
	controller_begins();
	waits(51 * MB, 0, 0);
	is(decide(10), 0, "it asks for nothing while it learns");
	is(w.state, PGSCALE_WRITEBACK_WATCHING, "it watches then");
	is(w.reason, PGSCALE_WRITEBACK_LEARNING, "it says that it learns");
	is(w.number, 20, "for another 20 s");
	is(decide(29.9), 0, "just before 30 s it still learns");
	is(decide(30), MB, "at 30 s it asks");
	is(w.state, PGSCALE_WRITEBACK_CAPPING, "that is capping");

	e.rewritten = 0.39;
	is(decide(31), MB, "fewer rewrites than the limit: it goes on");
	e.rewritten = 0.4;
	is(decide(32), MB, "as many as the limit: it goes on");
	e.rewritten = 0.41;
	is(decide(33), 0, "more: it stands down");
	is(w.state, PGSCALE_WRITEBACK_STANDING_DOWN, "more: that is its state");
	is(w.reason, PGSCALE_WRITEBACK_REWRITES, "more: and the reason");
	is(w.number, 0.41, "more: and the share");
	is(w.was_flying, false, "nothing is in flight then");
	e.rewritten = 0.2;
	is(decide(42.9), 0, "few rewrites, but 10 s are not over");
	is(w.number, 0.2, "the share is that of now");
	e.rewritten = 0.31;
	is(decide(43.1), 0, "10 s are over, but there are more than three quarters of the limit");
	is(w.state, PGSCALE_WRITEBACK_STANDING_DOWN, "so it still stands down");
	e.rewritten = 0.29;
	is(decide(43.2), MB, "fewer than three quarters: it is back by itself");
	is(w.state, PGSCALE_WRITEBACK_CAPPING, "and caps");
	is(w.reason, PGSCALE_WRITEBACK_KEEPING, "for another reason");
	e.rewritten = 0.39;
	is(decide(44), MB, "back, it takes the whole limit to stand down");
	e.rewritten = 0.5;
	is(decide(50), 0, "stands down again");
	e.rewritten = 0.1;
	is(decide(59.9), 0, "for 10 s from then on");
	is(decide(60), MB, "and is back at their end");

	e.rewritten = 0.99;
	is(decide(61), 0, "nearly all");
	e.redirty_limit = 1;
	is(decide(62), MB, "with a limit of 1 it does not stand down");
	e.rewritten = 1;
	is(decide(63), MB, "with a limit of 1 not for all of them");
	e.redirty_limit = 0;
	is(decide(64), 0, "with a limit of 0 it does");
	e.rewritten = 0;
	is(decide(75), MB, "with a limit of 0 it asks if there are none");

	controller_begins();
	waits(51 * MB, 0, 0);
	e.rewritten = 0.41;
	is(decide(5), 0, "too many while it learns");
	is(w.state, PGSCALE_WRITEBACK_STANDING_DOWN, "too many while it learns: it stands down");

	e.possible = false;
	e.obstacle = PGSCALE_WRITEBACK_OVERLAY;
	e.rewritten = -1;
	is(decide(40), 0, "where it is of no use it asks for nothing");
	is(w.state, PGSCALE_WRITEBACK_STANDING_DOWN, "where it is of no use it stands down");
	is(w.reason, PGSCALE_WRITEBACK_OVERLAY, "where it is of no use it says why");
	is(w.number, 0, "without a number");
	e.possible = true;
	is(decide(41), MB, "it is back by itself when it is of use");
	e.possible = false;
	e.obstacle = PGSCALE_WRITEBACK_NO_FSYNC;
	e.redirty_limit = 1;
	is(decide(42), 0, "of no use, with a limit of 1, too");
	is(w.reason, PGSCALE_WRITEBACK_NO_FSYNC, "and says why, too");
}

static void
check_cap(void)
{
	controller_begins();
	e.redirty_limit = 1;
	e.cap_setting = -1;
	decide(0);
	is(w.cap, 32 * MB, "the cap while the disk's rate is unknown");
	w.disk_rate = 100e6;
	decide(0);
	is(w.cap, 25e6, "the cap is a quarter of a second");
	w.disk_rate = 10e6;
	decide(0);
	is(w.cap, 8 * MB, "but no less than 8 MB");
	w.disk_rate = 10e9;
	decide(0);
	is(w.cap, 256 * MB, "and no more than 256 MB");
	e.cap_setting = 0;
	waits(8192, 0, 0);
	is(decide(0), 8192, "with a cap of 0 it asks for all");
	is(w.cap, 0, "a cap of 0 is one");

	controller_begins();
	e.redirty_limit = 1;
	e.cap_setting = 100 * MB;
	waits(50 * MB, 0, 0);
	is(decide(0), 0, "half the cap may wait");
	is(w.state, PGSCALE_WRITEBACK_WATCHING, "then it watches");
	is(w.reason, PGSCALE_WRITEBACK_LITTLE, "and says so");
	waits(50 * MB + 8192, 0, 0);
	is(decide(0), 8192, "what exceeds that is asked for");
	is(w.state, PGSCALE_WRITEBACK_CAPPING, "that is capping, too");
	is(w.reason, PGSCALE_WRITEBACK_KEEPING, "it keeps under the cap");
	is(w.was_flying, true, "something is in flight then");
	waits(0, 0, 8192);
	is(decide(0), 0, "in flight, and nothing waits");
	is(w.reason, PGSCALE_WRITEBACK_KEEPING, "it keeps while something is in flight");
	waits(70 * MB, 20 * MB, 0);
	is(decide(0), 0, "what is better left alone does not count");
	waits(72 * MB, 20 * MB, 0);
	is(decide(0), 2 * MB, "what exceeds both does");
	waits(78 * MB, 78 * MB, 0);
	is(decide(0), 3 * MB, "up to three quarters of the cap");

	waits(90 * MB, 0, 0);
	is(decide(0), 4 * MB, "no more than the window at once");
	is(w.was_limited, true, "which is a limit");
	waits(90 * MB, 0, 3 * MB);
	is(decide(0), MB, "no more than its rest");
	waits(90 * MB, 0, 7 * MB);
	is(decide(0), 0, "nothing while there is more in flight");
	waits(54 * MB, 0, 0);
	is(decide(0), 4 * MB, "all of the window");
	is(w.was_limited, false, "is no limit");
	e.tells = false;
	waits(150 * MB, 0, 30 * MB);
	is(decide(0), 64 * MB, "a kernel that does not say what landed gets 64 MB");
	is(w.was_flying, false, "and its rate is not measured");

	e.tells = true;
	waits(97 * MB, 0, 4 * MB);
	decide(0);
	is(w.reason, PGSCALE_WRITEBACK_KEEPING, "over the cap, but the disk's rate is unknown");
	w.disk_rate = 7e6;
	decide(0);
	is(w.reason, PGSCALE_WRITEBACK_BEHIND, "over the cap, and it is known");
	is(w.number, 7e6, "with the rate");
	is(w.state, PGSCALE_WRITEBACK_CAPPING, "over the cap it caps");
	waits(96 * MB, 0, 4 * MB);
	decide(0);
	is(w.reason, PGSCALE_WRITEBACK_KEEPING, "at the cap");
}

static void
check_window(void)
{
	controller_begins();
	e.redirty_limit = 1;
	waits(90 * MB, 0, 0);
	is(w.window, 4 * MB, "the window at first");
	decide(0);
	e.landing_ms = 100;
	decide(0);
	is(w.window, 5 * MB, "it grows where it was a limit");
	e.landing_ms = -1;
	decide(0);
	is(w.window, 5 * MB, "but not if nothing landed");
	e.landing_ms = 101;
	decide(0);
	is(w.window, 4 * MB, "it shrinks if landing takes long");
	for (int i = 0; i < 50; i++)
		decide(0);
	is(w.window, MB / 2, "to half a MB at least");
	e.landing_ms = 0;
	waits(200 * MB, 0, 0);
	for (int i = 0; i < 50; i++)
		decide(0);
	is(w.window, 64 * MB, "it grows to 64 MB at most");
	waits(0, 0, 0);
	decide(0);
	w.window = 4 * MB;
	decide(0);
	is(w.window, 4 * MB, "it does not grow where it was none");

	controller_begins();
	e.redirty_limit = 1;
	waits(90 * MB, 0, 0);
	decide(0);
	e.landing_ms = 10;
	e.read_ms = 10;
	w.window = 4 * MB;
	decide(0);
	is(w.read_ms, 10, "the first reads are the usual ones");
	w.window = 4 * MB;
	e.read_ms = 22;
	decide(0);
	is(w.window, 5 * MB, "twice the usual and 2 ms more are not slow");
	is(w.read_ms, 10.12, "they count little while something is in flight");
	w.read_ms = 10;
	w.window = 4 * MB;
	e.read_ms = 22.1;
	decide(0);
	is(w.window * 5, 4 * MB / 5 * 5 * 4, "more than that is slow, and shrinks the window");
	is(w.reason, PGSCALE_WRITEBACK_SLOW_READS, "and is the reason");
	is(w.number, w.read_ms, "with the usual time");
	e.read_ms = -1;
	w.window = 4 * MB;
	decide(0);
	is(w.window, 4 * MB, "until the next reads it neither grows nor shrinks");
	is(w.reason, PGSCALE_WRITEBACK_SLOW_READS, "the reason stays");
	waits(0, 0, 0);
	decide(0);
	is(w.reason, PGSCALE_WRITEBACK_LITTLE, "slow reads do not matter if nothing is asked for");
	w.read_ms = 10;
	e.read_ms = 20;
	decide(0);
	is(w.slow_reads, false, "as usual again");
	is(w.read_ms, 11, "reads count more while nothing is in flight");
}

/* Half a second of work, in which so much lands. */
static void
works(double *s, int64 landed)
{
	for (int i = 0; i < 2; i++)
	{
		e.landed = landed / 2;
		decide(*s += 0.25);
	}
}

static void
check_rate(void)
{
	double		s = 0;

	controller_begins();
	e.redirty_limit = 1;
	waits(0, 0, 0);
	e.landed = 50 * MB;
	decide(s += 1);
	decide(s += 1);
	is(w.disk_rate, -1, "without anything in flight there is no rate");
	waits(90 * MB, 0, 0);
	e.landed = 0;
	decide(s);
	e.landed = 5000000;
	decide(s += 0.25);
	is(w.disk_rate, -1, "none after a quarter of a second");
	decide(s += 0.25);
	is(w.disk_rate, 20e6, "half a second says what the disk takes");
	works(&s, 20000000);
	is(w.disk_rate, 40e6, "more than that is taken over");
	works(&s, 10000000);
	is(w.disk_rate, 38e6, "less counts a tenth, if the window was a limit");
	waits(51 * MB, 0, 0);
	e.landed = 0;
	decide(s);
	works(&s, 10000000);
	is(w.disk_rate, 38e6, "and nothing if it was not");
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
static bool locked;				/* headers cannot be read for now */

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
	return held[buf].tagged && !locked;
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
	if (x->fork != y->fork)
		return x->fork < y->fork ? -1 : 1;
	return x->block < y->block ? -1 : x->block > y->block;
}

static PgscalePage
page_of(Oid relation, ForkNumber fork, BlockNumber block)
{
	PgscalePage page = {.fork = fork,.block = block};

	page.locator.spcOid = DEFAULTTABLESPACE_OID;
	page.locator.dbOid = 5;
	page.locator.relNumber = relation;
	return page;
}

static void
dirties(int buf, Oid relation, ForkNumber fork, BlockNumber block)
{
	held[buf] = (Held)
	{
		.page = page_of(relation, fork, block),.tagged = true,.dirty = true
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
	hand = 0;
	held = repalloc(held, n * sizeof(Held));
	memset(held, 0, n * sizeof(Held));
	pgscale_writeback_watch_start(seconds(0));
}

static PgscaleWritebackStretchKey
key_of(Oid relation, ForkNumber fork, uint32 number)
{
	PgscaleWritebackStretchKey key;

	memset(&key, 0, sizeof(key));
	key.locator = page_of(relation, fork, 0).locator;
	key.fork = fork;
	key.number = number;
	return key;
}

static PgscaleWritebackStretch *
stretch_of(Oid relation, ForkNumber fork, uint32 number)
{
	static PgscaleWritebackStretch none = {0};
	PgscaleWritebackStretchKey key = key_of(relation, fork, number);
	StretchEntry *entry = stretch_table_lookup(table, key);

	return entry ? &pgscale_writeback_watch.stretches[entry->stretch] : &none;
}

#define watch pgscale_writeback_watch

static void
check_buffers(void)
{
	PgscaleWritebackStretchKey key = key_of(1, MAIN_FORKNUM, 0);

	watch_begins(1000);
	dirties(0, 1, MAIN_FORKNUM, 127);
	dirties(1, 1, MAIN_FORKNUM, 128);
	dirties(2, 1, MAIN_FORKNUM, 2047);
	dirties(3, 1, MAIN_FORKNUM, 2048);
	dirties(4, 1, FSM_FORKNUM, 127);
	dirties(999, 2, MAIN_FORKNUM, 127);
	is(look(1), true, "what becomes dirty is work");
	is(watch.written, 0, "what is dirty is not written");
	is(watch.waiting, 0, "nor does it wait");
	is(watch.used, 4, "stretches are apart by relation, fork and 16 MB");
	is(stretch_of(1, MAIN_FORKNUM, 0)->dirty, 3, "dirty buffers of a stretch");
	is(pgscale_writeback_watch_knows(&key), true, "the buffers have something of it");
	is(look(1.1), true, "the pass after it, too");
	is(look(1.2), false, "then there is no work");
	for (int i = 0; i < 3; i++)
		held[i].dirty = false;
	held[999].dirty = false;
	is(look(2), true, "what is written is work");
	is(watch.written, 4, "what is clean was written");
	is(watch.waiting, 4, "and waits");
	is(stretch_of(1, MAIN_FORKNUM, 0)->waiting, 3, "in its stretch");
	is(stretch_of(1, MAIN_FORKNUM, 0)->dirty, 0, "where none is dirty any more");
	is(stretch_of(1, MAIN_FORKNUM, 0)->pieces, 1 | 2 | 1 << 15, "in its pieces");
	is(stretch_of(1, MAIN_FORKNUM, 0)->since_ns, seconds(2), "since then");
	is(stretch_of(1, MAIN_FORKNUM, 1)->waiting, 0, "not in the next one");
	is(stretch_of(1, FSM_FORKNUM, 0)->waiting, 0, "nor in another fork's");
	is(stretch_of(2, MAIN_FORKNUM, 0)->waiting, 1, "and in another relation's");
	is(pgscale_writeback_watch_knows(&key), true, "of what waits the buffers have told");

	/* written and dirty again, replaced, dropped, unreadable */
	held[3].checkpoint = true;
	look(3);
	is(watch.written, 4, "what a checkpoint is to write is not written");
	held[3].checkpoint = false;
	look(4);
	is(watch.written, 5, "what it has written, and is dirty again, is");
	look(5);
	is(watch.written, 5, "once");
	is(stretch_of(1, MAIN_FORKNUM, 1)->dirty, 1, "and is still dirty");
	dirties(3, 1, MAIN_FORKNUM, 2049);
	look(6);
	is(watch.written, 6, "what was replaced by another dirty page was written");
	dirties(3, 1, MAIN_FORKNUM, 4097);
	look(6.1);
	is(watch.written, 7, "by one of another stretch, too");
	is(stretch_of(1, MAIN_FORKNUM, 1)->dirty, 0, "which is not dirty there any more");
	dirties(3, 1, FSM_FORKNUM, 4097);
	look(6.2);
	is(watch.written, 8, "by one of another fork, too");
	dirties(3, 9, FSM_FORKNUM, 4097);
	look(6.3);
	is(watch.written, 9, "by one of another relation, too");
	held[3] = (Held)
	{
		.tagged = false
	};
	look(7);
	is(watch.written, 9, "what was dropped was not");
	is(stretch_of(9, FSM_FORKNUM, 2)->dirty, 0, "nor is it dirty");
	dirties(4, 1, FSM_FORKNUM, 500);
	locked = true;
	look(8);
	is(watch.written, 9, "a header that cannot be read says nothing");
	locked = false;
	look(8.1);
	is(watch.written, 10, "until it can");
	is(watch.waiting, 10, "all of them wait");
	is(stretch_of(1, MAIN_FORKNUM, 0)->since_ns, seconds(2), "the first ones still since they were written");

	/* a page that is written more often than its stretch has pages */
	for (int i = 0; i < 2100; i++)
	{
		dirties(10, 3, MAIN_FORKNUM, 5);
		look(9);
		held[10].dirty = false;
		look(9);
	}
	is(stretch_of(3, MAIN_FORKNUM, 0)->waiting, 2048, "no more waits of a stretch than it has");
	is(watch.waiting, 2058, "nor in all");
	is(watch.written, 2110, "but all that was written counts");

	watch_begins(66000);
	for (int i = 0; i < 66000; i++)
		dirties(i, 1000 + i, MAIN_FORKNUM, 0);
	look(1);
	is(watch.used, 65536, "there are so many stretches at most");
	is(watch.unseen, 66000 - 65536, "what finds no room is counted");
	for (int i = 0; i < 300; i++)
		held[i] = (Held)
	{
		.tagged = false
	};
	look(2);
	look(3);
	is(watch.unseen, 2 * (66000 - 65536) + 66000 - 65536 - 300, "what is free is used again");
	is(stretch_of(1000, MAIN_FORKNUM, 0)->dirty, 0, "and means another one");
}

static void
check_cursors(void)
{
	int			rounds = 0;

	/* far from the hand */
	watch_begins(600000);
	dirties(540000, 1, MAIN_FORKNUM, 0);
	for (rounds = 0; watch.used == 0 && rounds < 20; rounds++)
		look(1);
	is(rounds, 3, "a round sees 262144 buffers if there is time");
	watch_begins(600000);
	dirties(131072, 1, MAIN_FORKNUM, 0);
	clock_ns = seconds(2);
	pgscale_writeback_watch_round(seconds(1), 50 * NS_PER_MS);
	is(watch.used, 0, "and 131072 if there is none");
	pgscale_writeback_watch_round(seconds(1), 50 * NS_PER_MS);
	is(watch.used, 1, "the next one goes on there");

	/* about it */
	watch_begins(600000);
	hand = 100000;
	pgscale_writeback_watch_start(seconds(0));
	look(1);
	dirties(100000 - 8192, 1, MAIN_FORKNUM, 0);
	dirties(100000 + 8191, 1, MAIN_FORKNUM, 1);
	dirties(100000 - 8193, 1, MAIN_FORKNUM, 2);
	dirties(100000 + 8192, 1, MAIN_FORKNUM, 3);
	clock_ns = seconds(3);
	pgscale_writeback_watch_round(seconds(2), 50 * NS_PER_MS);
	is(stretch_of(1, MAIN_FORKNUM, 0)->dirty, 2, "what is about the hand is seen at once");
	hand = 101000;
	pgscale_writeback_watch_round(seconds(2), 50 * NS_PER_MS);
	is(stretch_of(1, MAIN_FORKNUM, 0)->dirty, 3, "and what it has come to");
	watch_begins(600000);
	dirties(600000 - 10, 1, MAIN_FORKNUM, 0);
	dirties(10, 1, MAIN_FORKNUM, 1);
	hand = 3;
	clock_ns = seconds(3);
	pgscale_writeback_watch_round(seconds(2), 50 * NS_PER_MS);
	is(stretch_of(1, MAIN_FORKNUM, 0)->dirty, 2, "over the end of the buffers, too");
}

/* Writes pages of a relation, each once. */
static void
writes(double s, Oid relation, int pages)
{
	for (int i = 0; i < pages; i++)
		dirties(i, relation, MAIN_FORKNUM, i);
	look(s);
	for (int i = 0; i < pages; i++)
		held[i].dirty = false;
	look(s);
}

static void
check_rewrites(void)
{
	double		sampled;
	double		rewritten;

	watch_begins(3000);
	is(pgscale_writeback_watch_rewritten(), -1, "the share of rewrites is unknown at first");
	writes(0, 1, 2000);
	sampled = watch.sampled;
	is(sampled > 200 && sampled < 300, true, "a page of eight is sampled");
	is(pgscale_writeback_watch_rewritten(), 0, "no page was written again");
	look(15);
	is(watch.sampled, sampled * exp(-0.5), "samples fade");
	watch.sampled = 100;
	watch.rewritten = 25;
	is(pgscale_writeback_watch_rewritten(), 0.25, "a hundred samples say something");
	watch.sampled = 99;
	is(pgscale_writeback_watch_rewritten(), -1, "fewer do not");

	watch_begins(3000);
	writes(0, 1, 2000);
	writes(29, 1, 2000);
	is(watch.rewritten, sampled, "within 30 s all are written again");
	rewritten = (double) stretch_of(1, MAIN_FORKNUM, 0)->rewritten / stretch_of(1, MAIN_FORKNUM, 0)->sampled;
	is(pgscale_writeback_stretch_rewritten(stretch_of(1, MAIN_FORKNUM, 0)), rewritten, "the share of a stretch");
	is(rewritten > 0.9, true, "of which the latest count");
	is(stretch_of(1, MAIN_FORKNUM, 0)->sampled <= 64, true, "no more than so many");
	writes(59, 1, 2000);
	is(watch.rewritten, sampled * exp(-1), "after 30 s none is");
	stretch_of(1, MAIN_FORKNUM, 0)->sampled = 8;
	stretch_of(1, MAIN_FORKNUM, 0)->rewritten = 2;
	is(pgscale_writeback_stretch_rewritten(stretch_of(1, MAIN_FORKNUM, 0)), 0.25, "eight samples of a stretch say something");
	stretch_of(1, MAIN_FORKNUM, 0)->sampled = 7;
	is(pgscale_writeback_stretch_rewritten(stretch_of(1, MAIN_FORKNUM, 0)), 0, "fewer do not, of a stretch");
}

static void
check_sums(void)
{
	PgscaleWritebackStretchKey key = key_of(1, MAIN_FORKNUM, 3);
	PgscaleWritebackStretch *s;

	watch_begins(100);
	is(pgscale_writeback_watch_found(&key, 1 | 4 | 8, 10, seconds(1)), 10, "pages that are found");
	s = stretch_of(1, MAIN_FORKNUM, 3);
	is(s->waiting, 10, "found: they wait");
	is(s->since_ns, seconds(1), "found: since then");
	is(pgscale_writeback_watch_knows(&key), false, "but the buffers do not know them");
	is(pgscale_writeback_watch_found(&key, 16, 13, seconds(2)), 3, "found again: what is new");
	is(s->pieces, 1 | 4 | 8 | 16, "found again: pieces join");
	is(s->waiting, 13, "found again: pages join");
	is(pgscale_writeback_watch_found(&key, 32, 13, seconds(2)), 0, "found again: nothing new");
	is(s->pieces, 1 | 4 | 8 | 16, "which changes nothing");
	is(pgscale_writeback_stretch_take(s, 2, 100), 4, "a piece has its share, rounded up");
	is(s->pieces, 1 | 8 | 16, "taken: it is another one's no more");
	is(s->waiting, 9, "taken: it does not wait");
	is(s->flying, 4, "but is in flight");
	is(watch.waiting, 9, "taken: in all, too");
	is(watch.flying, 4, "in flight in all, too");
	is(pgscale_writeback_stretch_take(s, 0, 1), 1, "no more than the kernel has dirty");
	is(s->waiting, 6, "the rest of its share does not wait either");
	is(s->flying, 5, "nor is it in flight");
	is(pgscale_writeback_watch_found(&key, 1, 13, seconds(3)), 2, "found, beside what waits and is in flight");
	is(pgscale_writeback_stretch_limit(s, 9), 0, "no fewer wait than there are");
	is(pgscale_writeback_stretch_limit(s, 5), 3, "a limit");
	is(s->waiting, 5, "so many wait");
	is(watch.waiting, 5, "in all, too, after a limit");
	is(s->pieces, 1 | 8 | 16, "the pieces stay");
	is(pgscale_writeback_stretch_limit(s, 0), 5, "a limit of none");
	is(s->pieces, 0, "leaves no piece");
	pgscale_writeback_stretch_landed(s, 2);
	is(s->flying, 3, "landed");
	is(watch.flying, 3, "landed, in all");
}


/*---- the kernel ----*/

typedef struct Dirty
{
	char		path[MAXPGPATH];
	int			piece;			/* of the file */
	int64		dirty;
	int64		writeback;
}			Dirty;

static Dirty kernel[200];
static int	kernel_used = 0;
static bool refuses = false;
static char opened[MAXPGPATH];
static char gone[MAXPGPATH];
static int	opens = 0;

static StringInfoData flushed;
static int64 flush_takes_ns = 0;

static void
kernel_has(const char *path, int piece, int64 dirty, int64 writeback)
{
	Dirty	   *d = kernel;

	while (d < kernel + kernel_used && (d->piece != piece || strcmp(d->path, path) != 0))
		d++;
	if (d == kernel + kernel_used)
		kernel_used++;
	strlcpy(d->path, path, sizeof(d->path));
	d->piece = piece;
	d->dirty = dirty;
	d->writeback = writeback;
}

bool
pgscale_kernel_cached(int fd, off_t offset, off_t length, PgscaleCached *cached)
{
	*cached = (PgscaleCached)
	{
		0
	};
	if (refuses)
	{
		cached->dirty = cached->writeback = -1;
		return true;
	}
	for (Dirty * d = kernel; d < kernel + kernel_used; d++)
		if (strcmp(d->path, opened) == 0 && d->piece * MB >= offset && (length == 0 || d->piece * MB < offset + length))
		{
			cached->dirty += d->dirty;
			cached->writeback += d->writeback;
		}
	return true;
}

static void
steps_flush(int fd, off_t offset, off_t bytes)
{
	appendStringInfo(&flushed, " %s@%.1f+%.1f", opened, (double) offset / MB, (double) bytes / MB);
	clock_ns += flush_takes_ns;
}

int
pgscale_relation_file_open(const char *path)
{
	opens++;
	strlcpy(opened, path, sizeof(opened));
	return strcmp(path, gone) == 0 ? -1 : open_null();
}

void
pgscale_relation_file_path(char *path, RelFileLocator locator, ProcNumber backend, ForkNumber fork, uint32 segment)
{
	int			n = snprintf(path, MAXPGPATH, "base/%u/%u%s", locator.dbOid, locator.relNumber,
							 fork == FSM_FORKNUM ? "_fsm" : fork == VISIBILITYMAP_FORKNUM ? "_vm" : "");

	if (segment > 0)
		snprintf(path + n, MAXPGPATH - n, ".%u", segment);
}

bool
pgscale_compat_parse_relfile(const char *name, RelFileLocator *locator, ForkNumber *fork, uint32 *segment)
{
	char	   *rest;

	locator->relNumber = strtoul(name, &rest, 10);
	*fork = strncmp(rest, "_fsm", 4) == 0 ? FSM_FORKNUM : MAIN_FORKNUM;
	if (*fork == FSM_FORKNUM)
		rest += 4;
	*segment = *rest == '.' ? strtoul(rest + 1, &rest, 10) : 0;
	return isdigit((unsigned char) name[0]) && *rest == '\0';
}

static PgscaleWritebackAsked asked;

static void
are(const char *want, const char *name)
{
	appendStringInfo(&lines, "%s %s", strcmp(flushed.data, want) == 0 ? "ok" : "not ok", name);
	if (strcmp(flushed.data, want) != 0)
		appendStringInfo(&lines, ": \"%s\" instead of \"%s\"", flushed.data, want);
	appendStringInfoChar(&lines, '\n');
	resetStringInfo(&flushed);
}

static void
flights_begin(void)
{
	watch_begins(100);
	pgscale_writeback_ask_start();
	kernel_used = 0;
	refuses = false;
	gone[0] = '\0';
	resetStringInfo(&flushed);
}

static void
finds(Oid relation, ForkNumber fork, uint32 number, uint16 pieces, int pages, double s)
{
	PgscaleWritebackStretchKey key = key_of(relation, fork, number);

	pgscale_writeback_watch_found(&key, pieces, pages, seconds(s));
}

static void
ask_for(int64 pages, double limit, double s)
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
check_requests(void)
{
	/* ranges */
	flights_begin();
	kernel_has("base/5/7.1", 19, 50 * BLCKSZ, 0);
	kernel_has("base/5/7.1", 31, 30 * BLCKSZ - 4096, 0);
	finds(7, MAIN_FORKNUM, 65, 1 << 3 | 1 << 15 | 1 << 4, 90, 0);
	ask_for(1000, 1, 1);
	are(" base/5/7.1@19.0+1.0 base/5/7.1@31.0+1.0", "the pieces that wait, in their segment");
	is(asked.requests, 2, "are two requests");
	is(asked.asked, 60, "for the pages that the kernel has of them");
	is(asked.taken, 30, "the others were on disk");
	is(watch.waiting, 0, "none waits any more");
	is(watch.flying, 60, "they are in flight");
	is(open_now, 0, "no file stays open");

	finds(7, MAIN_FORKNUM, 63, 1 << 15, 10, 1);
	finds(7, MAIN_FORKNUM, 64, 1, 10, 1);
	finds(7, FSM_FORKNUM, 64, 1, 10, 1);
	finds(7, VISIBILITYMAP_FORKNUM, 64, 1, 10, 1);
	refuses = true;
	ask_for(1000, 1, 1);
	refuses = false;
	are(" base/5/7@1023.0+1.0 base/5/7.1@0.0+1.0 base/5/7_fsm.1@0.0+1.0 base/5/7_vm.1@0.0+1.0", "each in its own file");
	for (int i = 0; i < 4; i++)
	{
		Flight	   *last = &flights[--flying];

		pgscale_writeback_stretch_landed(&watch.stretches[last->stretch], last->pages);
	}

	/* landing */
	kernel_has("base/5/7.1", 19, 0, 8192);
	kernel_has("base/5/7.1", 31, 0, 0);
	look_at_kernel(1.05);
	is(asked.landed, 30, "what the kernel does not write any more is on disk");
	is(asked.landing_ms, 50, "after a time");
	is(asked.tells, true, "it says so");
	is(watch.flying, 30, "the rest is in flight");
	look_at_kernel(10.9);
	is(asked.landed, 0, "and stays there");
	is(asked.landing_ms, -1, "without a time");
	is(watch.flying, 30, "for 10 s");
	look_at_kernel(11);
	is(watch.flying, 0, "at most");
	is(asked.landed, 0, "which says nothing about the disk");
	is(asked.tells, false, "nor does the kernel");

	/* and where the kernel does not say */
	flights_begin();
	refuses = true;
	finds(7, FSM_FORKNUM, 0, 1, 90, 0);
	ask_for(1000, 1, 1);
	are(" base/5/7_fsm@0.0+1.0", "without an answer of the kernel all that waits is asked for");
	is(asked.asked, 90, "as many as there are");
	look_at_kernel(1.24);
	is(watch.flying, 90, "it is in flight");
	look_at_kernel(1.25);
	is(watch.flying, 0, "for a quarter of a second");
	is(asked.tells, false, "the kernel does not say");
	strcpy(gone, "base/5/7_fsm");
	refuses = false;
	kernel_has("base/5/7_fsm", 0, 90 * BLCKSZ, 0);
	finds(7, FSM_FORKNUM, 0, 1, 90, 2);
	ask_for(1000, 1, 2);
	are("", "of a file that is gone nothing");
	is(asked.taken, 90, "which does not wait");
	is(watch.waiting, 0, "gone: in all");
	gone[0] = '\0';
	finds(7, FSM_FORKNUM, 0, 1, 90, 3);
	ask_for(1000, 1, 3);
	strcpy(gone, "base/5/7_fsm");
	kernel_has("base/5/7_fsm", 0, 0, 8192);
	look_at_kernel(3.1);
	is(watch.flying, 0, "gone while it was in flight");
	is(asked.landed, 0, "is not on disk");

	/* order: the densest, the oldest, and last what is written again */
	flights_begin();
	refuses = true;
	finds(9, MAIN_FORKNUM, 0, 1, 50, 0.1);
	finds(8, MAIN_FORKNUM, 1, 1, 100, 5);
	finds(8, MAIN_FORKNUM, 0, 1, 90, 5);
	ask_for(100, 1, 10);
	are(" base/5/8@16.0+1.0", "the stretch with the most pages first");
	finds(8, MAIN_FORKNUM, 2, 1, 100, 5);
	ask_for(40, 1, 10.2);
	are(" base/5/9@0.0+1.0", "what has waited 10 s before that");
	ask_for(130, 1, 10.3);
	are(" base/5/8@0.0+1.0 base/5/8@32.0+1.0", "in the order of the file");
	finds(8, MAIN_FORKNUM, 3, 1, 100, 10);
	finds(9, MAIN_FORKNUM, 3, 1, 10, 10);
	stretch_of(8, MAIN_FORKNUM, 3)->sampled = 10;
	stretch_of(8, MAIN_FORKNUM, 3)->rewritten = 5;
	is(pgscale_writeback_ask_skipped(0.49, seconds(11)), 100, "of a stretch with rewrites all is left alone");
	is(pgscale_writeback_ask_skipped(0.5, seconds(11)), 0, "not if they are as many as the limit");
	is(pgscale_writeback_ask_skipped(0.49, seconds(39.9)), 100, "for 30 s");
	is(pgscale_writeback_ask_skipped(0.49, seconds(40)), 0, "and no longer");
	ask_for(5, 0.49, 11);
	are(" base/5/9@48.0+1.0", "others come first");
	ask_for(5, 0.49, 11);
	are(" base/5/8@48.0+1.0", "it comes last");

	/* as many as were asked for, and no longer than 50 ms */
	flights_begin();
	refuses = true;
	finds(8, MAIN_FORKNUM, 0, 0xf, 400, 0);
	ask_for(150, 1, 1);
	are(" base/5/8@0.0+1.0 base/5/8@1.0+1.0", "pieces until it is enough");
	is(asked.asked, 200, "in whole pieces");
	flush_takes_ns = 51 * NS_PER_MS;
	ask_for(1000, 1, 1);
	are(" base/5/8@2.0+1.0", "one that takes long is the last of a round");
	flush_takes_ns = 0;
	ProcSignalBarrierPending = true;
	ask_for(1000, 1, 1);
	ProcSignalBarrierPending = false;
	are("", "nothing while others wait for an answer");
	ask_for(1000, 1, 1);
	are(" base/5/8@3.0+1.0", "then it goes on");
}

static void
check_waiting(void)
{
	flights_begin();
	kernel_has("base/5/7", 17, 20 * BLCKSZ, 0);
	finds(7, MAIN_FORKNUM, 1, 2, 50, 0);
	look_at_kernel(0.9);
	is(watch.waiting, 50, "what waits is looked at after a second");
	look_at_kernel(1);
	is(watch.waiting, 20, "and is no more than the kernel has");
	is(asked.taken, 30, "the rest was taken");
	kernel_has("base/5/7", 17, 0, 0);
	look_at_kernel(1.9);
	is(watch.waiting, 20, "it is looked at again");
	look_at_kernel(2);
	is(watch.waiting, 0, "after another second");
	is(stretch_of(7, MAIN_FORKNUM, 1)->pieces, 0, "then no piece is left");

	flights_begin();
	kernel_has("base/5/7", 17, 1024 * BLCKSZ, 0);
	finds(7, MAIN_FORKNUM, 1, 2, 50, 0);
	look_at_kernel(1);
	is(asked.found, 974, "if the kernel has half of a stretch, all of it waits");
	is(watch.waiting, 1024, "half: so many");
	is(stretch_of(7, MAIN_FORKNUM, 1)->pieces, 0xffff, "in any piece");
	flights_begin();
	kernel_has("base/5/7", 17, 1023 * BLCKSZ, 0);
	finds(7, MAIN_FORKNUM, 1, 2, 50, 0);
	look_at_kernel(1);
	is(asked.found, 0, "less than half: nothing more");
	is(watch.waiting, 50, "less than half: what was known");

	flights_begin();
	refuses = true;
	finds(7, MAIN_FORKNUM, 1, 2, 50, 0);
	look_at_kernel(30);
	is(watch.waiting, 50, "a kernel that does not say has 30 s");
	look_at_kernel(31.1);
	is(watch.waiting, 0, "and no more");
	flights_begin();
	strcpy(gone, "base/5/7");
	finds(7, MAIN_FORKNUM, 1, 2, 50, 0);
	look_at_kernel(1);
	is(watch.waiting, 0, "what is gone does not wait");
	is(open_now, 0, "nothing stays open");
}


/*---- files that no buffer knows of ----*/

static void
make_file(const char *path, int64 bytes, int age)
{
	int			fd = open(path, O_CREAT | O_WRONLY, 0600);
	struct utimbuf times = {.actime = time(NULL) - age,.modtime = time(NULL) - age};

	if (fd < 0 || ftruncate(fd, bytes) != 0 || utime(path, &times) != 0)
		elog(ERROR, "could not make %s: %m", path);
	close(fd);
}

static int64
walk(double from, double to)
{
	int64		found = 0;

	for (double s = from; s < to + 0.01; s += 0.05)
	{
		clock_ns = seconds(s);
		found += pgscale_writeback_files_round(seconds(s));
	}
	return found;
}

static void
check_files(const char *where)
{
	char		back[MAXPGPATH];
	PgscaleWritebackStretchKey key;

	if (!getcwd(back, sizeof(back)) || chdir(where) != 0)
		elog(ERROR, "could not change to %s: %m", where);
	PG_TRY();
	{
		const char *folders_of[] = {"base", "base/5", "base/pgsql_tmp", "pg_tblspc", "pg_tblspc/77",
		"pg_tblspc/77/" TABLESPACE_VERSION_DIRECTORY, "pg_tblspc/77/" TABLESPACE_VERSION_DIRECTORY "/6", "base/5/12"};
		const char *there = "pg_tblspc/77/" TABLESPACE_VERSION_DIRECTORY "/6/8";

		for (int i = 0; i < lengthof(folders_of); i++)
			if (mkdir(folders_of[i], 0700) != 0)
				elog(ERROR, "could not make %s: %m", folders_of[i]);
		flights_begin();
		pgscale_writeback_files_start();
		make_file("base/5/7", 33 * MB, 0);
		make_file("base/5/7.1", 17 * MB, 0);
		make_file("base/5/7_fsm", MB, 0);
		make_file("base/5/x7", MB, 0);
		make_file("base/5/t3_7", MB, 0);
		make_file("base/pgsql_tmp/7", MB, 0);
		make_file("base/5/9", MB, 25);
		make_file("base/5/10", MB, 40);
		make_file("base/5/11", 20 * MB, 0);
		make_file(there, MB, 0);
		kernel_has("base/5/7", 15, 3 * BLCKSZ, 0);
		kernel_has("base/5/7", 32, 5 * BLCKSZ + 4096, 0);
		kernel_has("base/5/7.1", 16, 7 * BLCKSZ, 0);
		kernel_has("base/5/7_fsm", 0, 11 * BLCKSZ, 0);
		kernel_has("base/5/x7", 0, 13 * BLCKSZ, 0);
		kernel_has("base/5/t3_7", 0, 13 * BLCKSZ, 0);
		kernel_has("base/pgsql_tmp/7", 0, 13 * BLCKSZ, 0);
		kernel_has("base/5/9", 0, 17 * BLCKSZ, 0);
		kernel_has("base/5/10", 0, 100 * BLCKSZ, 0);
		kernel_has("base/5/11", 0, 40 * BLCKSZ, 0);
		kernel_has("base/5/11", 16, 19 * BLCKSZ, 0);
		kernel_has(there, 0, 23 * BLCKSZ, 0);
		/* the buffers have something of the first stretch of 11 */
		dirties(0, 11, MAIN_FORKNUM, 0);
		look(3);
		is(walk(3, 3.5), 3 + 6 + 7 + 11 + 17 + 19 + 23, "what is found in files");
		is(stretch_of(7, MAIN_FORKNUM, 0)->waiting, 3, "in the first stretch");
		is(stretch_of(7, MAIN_FORKNUM, 0)->pieces, 1 << 15, "in its piece");
		is(stretch_of(7, MAIN_FORKNUM, 2)->waiting, 6, "in the third, rounded up");
		is(stretch_of(7, MAIN_FORKNUM, 65)->waiting, 7, "in the second of the second segment");
		is(stretch_of(7, MAIN_FORKNUM, 65)->pieces, 1, "in its first piece");
		is(stretch_of(7, FSM_FORKNUM, 0)->waiting, 11, "in another fork");
		is(stretch_of(9, MAIN_FORKNUM, 0)->waiting, 17, "of a file that was changed 25 s ago");
		is(stretch_of(10, MAIN_FORKNUM, 0)->waiting, 0, "but not 40 s ago");
		is(stretch_of(11, MAIN_FORKNUM, 0)->waiting, 0, "nor where the buffers know more");
		is(stretch_of(11, MAIN_FORKNUM, 1)->waiting, 19, "but in the rest of that file");
		key = key_of(8, MAIN_FORKNUM, 0);
		key.locator.spcOid = 77;
		key.locator.dbOid = 6;
		is(stretch_table_lookup(table, key) != NULL, true, "in a tablespace");
		is(walk(3.6, 4.9), 0, "nothing is found twice");

		/* a walk every two seconds, of what was changed since the one before */
		kernel_has("base/5/7", 15, 4 * BLCKSZ, 0);
		kernel_has("base/5/9", 0, 40 * BLCKSZ, 0);
		is(walk(4.9, 4.94), 0, "the next walk begins after two seconds");
		is(walk(5, 5.3), 1, "and finds what is new, of what was changed");
		is(open_now, 0, "walked, nothing stays open");
		opens = 0;
		dirties(1, 11, MAIN_FORKNUM, 2048);
		look(6);
		unlink("base/5/7");
		unlink("base/5/7.1");
		unlink("base/5/7_fsm");
		unlink(there);
		walk(7.1, 7.4);
		is(opens, 0, "a file that the buffers know all of is not opened");
		pgscale_writeback_files_start();
		is(walk(7.45, 7.6), 40 - 17, "begun anew it looks at the last 30 s again");
		pgscale_writeback_files_start();
	}
	PG_FINALLY();
	{
		if (chdir(back) != 0)
			elog(FATAL, "could not change to %s: %m", back);
	}
	PG_END_TRY();
}


/*---- how long reads take ----*/

static PgscaleDisk disk;
static bool no_disk = false;

bool
pgscale_kernel_disk(dev_t device, PgscaleDisk *now)
{
	*now = disk;
	return !no_disk;
}

static void
check_reads(void)
{
	int			fd = OpenTransientFile("/dev/null", O_RDONLY);

	known = 0;
	no_disk = true;
	pgscale_writeback_disk_note(fd);
	is(known, 0, "what lies on no disk is not noted");
	no_disk = false;
	disk = (PgscaleDisk)
	{
		.reads = 1000,.read_ms = 50000
	};
	pgscale_writeback_disk_note(fd);
	pgscale_writeback_disk_note(fd);
	CloseTransientFile(fd);
	is(known, 1, "a disk is noted once");
	is(pgscale_writeback_disk_read_ms(seconds(0)), -1, "no reads since");
	disk.reads += 20;
	disk.read_ms += 70;
	is(pgscale_writeback_disk_read_ms(seconds(0.9)), -1, "less than a second");
	is(pgscale_writeback_disk_read_ms(seconds(1)), 3.5, "the mean of the reads of a second");
	disk.reads += 19;
	disk.read_ms += 70;
	is(pgscale_writeback_disk_read_ms(seconds(2)), -1, "too few");
	disk.reads += 100;
	disk.read_ms += 50;
	is(pgscale_writeback_disk_read_ms(seconds(3)), 0.5, "and then those of another second");
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
	check_cursors();
	check_rewrites();
	check_sums();
	check_requests();
	check_waiting();
	check_files(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	check_reads();
	pgscale_writeback_watch_stop();
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}
