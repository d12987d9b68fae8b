/*
 * The decisions of writeback, with a clock, buffers and a kernel that are made up. writeback_steps(folder) returns a line for each
 * check.
 */
#include "steps.h"

#include <fcntl.h>
#include <unistd.h>

#include "catalog/pg_tablespace_d.h"
#include "common/hashfn.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "utils/memutils.h"

#include "base/kernel.h"
#include "base/relation_files.h"
#include "base/shared_buffers.h"
#include "base/timer.h"
#include "base/units.h"

PG_FUNCTION_INFO_V1(writeback_steps);

static int	buffers = 1000;

static void steps_flush(int fd, off_t offset, off_t bytes);

#define NBuffers			buffers
#define pg_flush_data		steps_flush

#include "writeback/writeback_controller.c"
#include "writeback/dirty_tracker.c"
#include "writeback/flush_requests.c"

#define MB		((double) PGSCALE_MB)
#define watch	pgscale_writeback_watch

typedef struct Held
{
	PgscalePage page;
	bool		tagged;
	bool		dirty;
	bool		checkpoint;
} Held;

static int64 clock_ns;
static PgscaleWriteback w;
static PgscaleWritebackEvidence e;
static Held held[600000];		/* what the buffers hold */
static uint64 hand;
static bool refuses;			/* the kernel does not report */
static int64 kernel_dirty;		/* of each piece */
static int64 kernel_writeback;
static int64 flush_takes_ns;
static char opened[MAXPGPATH];
static PgscaleWritebackAsked asked;

int64 pgscale_timer_clock(void) { return clock_ns; }
uint64 pgscale_buffers_hand(void) { return hand; }
void pgscale_buffer_page(int buf, PgscalePage *page) { *page = held[buf].page; }
bool pgscale_kernel_disk(dev_t device, PgscaleDisk *now) { return false; }

bool
pgscale_buffer_dirty(int buf, bool *tagged, bool *checkpoint)
{
	*tagged = held[buf].tagged;
	*checkpoint = held[buf].checkpoint;
	return held[buf].dirty;
}

bool
pgscale_buffer_read(int buf, PgscaleBuffer *buffer, PgscalePage *page)
{
	buffer->dirty = held[buf].dirty;
	*page = held[buf].page;
	return held[buf].tagged;
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

bool
pgscale_kernel_cached(int fd, off_t offset, off_t length, PgscaleCached *cached)
{
	*cached = (PgscaleCached) {.dirty = refuses ? -1 : kernel_dirty,.writeback = refuses ? -1 : kernel_writeback};
	return true;
}

static void
steps_flush(int fd, off_t offset, off_t bytes)
{
	say("%s@%d+%d", opened, (int) (offset / MB), (int) (bytes / MB));
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

static int64
seconds(double s)
{
	return clock_ns = (int64) (s * 1e9) + 1000 * NS_PER_S;
}

/* The controller, for which nothing is known yet. */
static void
controller_begins(double limit)
{
	pgscale_writeback_decide_start(&w, seconds(0));
	e = (PgscaleWritebackEvidence) {
		.possible = true,.cap_setting = 100 * MB,.redirty_limit = limit,.tells = true,.landing_ms = -1,.rewritten = -1,.read_ms = -1
	};
}

/* MB that it requests, whether the window was a limit, and why. */
static void
decide(double s)
{
	static const char *const reasons[] = {
		[PGSCALE_WRITEBACK_NO_FSYNC] = "no fsync",
		[PGSCALE_WRITEBACK_OVERLAY] = "overlay",
		[PGSCALE_WRITEBACK_LEARNING] = "learning",
		[PGSCALE_WRITEBACK_LITTLE] = "little",
		[PGSCALE_WRITEBACK_KEEPING] = "keeping",
		[PGSCALE_WRITEBACK_BEHIND] = "behind",
		[PGSCALE_WRITEBACK_SLOW_READS] = "slow reads",
		[PGSCALE_WRITEBACK_REWRITES] = "rewrites"
	};
	const double asks = pgscale_writeback_decide(&w, &e, seconds(s)) / MB;

	say("%g%s, %s %g", asks, w.was_limited ? " limited" : "", reasons[w.reason], w.number);
}

/* Buffers, and what the kernel is asked for */

static void
watch_begins(int n, uint64 hand_at)
{
	buffers = n;
	hand = hand_at;
	memset(held, 0, sizeof(held));
	pgscale_writeback_watch_start(seconds(0));
}

static void
kernel_begins(bool its_refuses, int pages)
{
	watch_begins(100, 0);
	pgscale_writeback_ask_start();
	refuses = its_refuses;
	kernel_dirty = pages * BLCKSZ;
	kernel_writeback = 0;
}

static void
dirties(int buf, Oid relation, ForkNumber fork, BlockNumber block)
{
	held[buf] = (Held) {
		.page = {.locator = {DEFAULTTABLESPACE_OID, 5, relation},.fork = fork,.block = block},.tagged = true,.dirty = true
	};
}

static PgscaleWritebackStretchKey
key_of(Oid relation, ForkNumber fork, uint32 number)
{
	PgscaleWritebackStretchKey key;

	memset(&key, 0, sizeof(key));
	key.locator = (RelFileLocator) {DEFAULTTABLESPACE_OID, 5, relation};
	key.fork = fork;
	key.number = number;
	return key;
}

static PgscaleWritebackStretch *
stretch_of(Oid relation, ForkNumber fork, uint32 number)
{
	const StretchEntry *entry = stretch_table_lookup(table, key_of(relation, fork, number));

	return &watch.stretches[entry->stretch];
}

static void
say_stretch(const PgscaleWritebackStretch *s)
{
	say("dirty %u, waiting %u in %x since %g", s->dirty, s->waiting, s->pieces, (s->since_ns - 1000.0 * NS_PER_S) / NS_PER_S);
}

static void
finds(const double *n)
{
	const PgscaleWritebackStretchKey key = key_of(n[0], n[1], n[2]);

	pgscale_writeback_watch_found(&key, (uint16) n[3], (int) n[4], seconds(n[5]));
}

static void
requests(int pages, double limit, double s)
{
	memset(&asked, 0, sizeof(asked));
	pgscale_writeback_ask(&asked, pages, limit, seconds(s));
}

static bool
command(const char *name, const double *n)
{
	COMMAND("begin", controller_begins(n[0]));
	COMMAND("limit", e.redirty_limit = n[0]);
	COMMAND("impossible", e.obstacle = n[0] ? PGSCALE_WRITEBACK_OVERLAY : PGSCALE_WRITEBACK_NO_FSYNC);
	COMMAND("possible", e.possible = n[0]);
	COMMAND("untold", e.tells = false);
	COMMAND("cap", e.cap_setting = n[0]);
	COMMAND("rewritten", e.rewritten = n[0]);
	COMMAND("waiting", e.waiting = n[0] * MB);
	COMMAND("skipped", e.skipped = n[0] * MB);
	COMMAND("flying", e.flying = n[0] * MB);
	COMMAND("landed", e.landed = n[0]);
	COMMAND("landing", e.landing_ms = n[0]);
	COMMAND("read", e.read_ms = n[0]);
	COMMAND("usual", w.read_ms = n[0]);
	COMMAND("rate", w.disk_rate = n[0]);
	COMMAND("window", w.window = n[0] * MB);
	COMMAND("limited", w.was_limited = true);
	COMMAND("at", decide(n[0]));
	COMMAND("round", (void) pgscale_writeback_decide(&w, &e, seconds(n[0])));
	COMMAND("cap?", say("%g", w.cap / MB));
	COMMAND("rate?", say("%g", w.disk_rate));
	COMMAND("usual?", say("%g", w.read_ms));
	COMMAND("window?", say("%g%s", w.window / MB, w.slow_reads ? " slow" : ""));

	COMMAND("buffers", watch_begins(n[0], n[1]));
	COMMAND("dirty", dirties(n[0], n[1], n[2], n[3]));
	COMMAND("clean", held[(int) n[0]].dirty = false);
	COMMAND("drop", held[(int) n[0]].tagged = held[(int) n[0]].dirty = false);
	COMMAND("checkpoint", held[(int) n[0]].checkpoint = n[1]);
	COMMAND("look", say(pgscale_writeback_watch_round(seconds(n[0]), 50 * NS_PER_MS) ? "work" : "no work"));
	COMMAND("late", (void) pgscale_writeback_watch_round(seconds(n[0]) - NS_PER_S, 50 * NS_PER_MS));
	COMMAND("watched", say("written %d, waiting %d", (int) watch.written, (int) watch.waiting));
	COMMAND("stretches", say("%d", watch.used));
	COMMAND("stretch", say_stretch(stretch_of(n[0], n[1], n[2])));

	COMMAND("kernel", kernel_begins(n[0], n[1]));
	COMMAND("kernel_dirty", kernel_dirty = n[0] * BLCKSZ);
	COMMAND("refuses", refuses = true);
	COMMAND("writes", kernel_writeback = n[0]);
	COMMAND("flush_takes", flush_takes_ns = n[0] * NS_PER_MS);
	COMMAND("finds", finds(n));
	COMMAND("rewrites", stretch_of(n[0], n[1], n[2])->sampled = n[3]; stretch_of(n[0], n[1], n[2])->rewritten = n[4]);
	COMMAND("ask", requests(n[0], n[1], n[2]));
	COMMAND("asked", say("asked %d, in flight %d", asked.asked, (int) watch.flying));
	COMMAND("skips", say("%d", (int) pgscale_writeback_ask_skipped(n[0], seconds(n[1]))));
	COMMAND("land", pgscale_writeback_ask_look(&asked, seconds(n[0])));
	COMMAND("landed?", say("%d after %g ms, %d in flight", asked.landed, asked.landing_ms, (int) watch.flying));
	COMMAND("told", say(yes(asked.tells)));
	return false;
}

/* What it requests of the MB above half the cap, with so many rewrites. */
static const Step standing_down[] = {
	{"begin .4, waiting 51, at 10, at 29.9, at 30", "0, learning 20; 0, learning 0.1; 1, keeping 0", "it learns for 30 s"},
	{"rewritten .4, at 32", "1, keeping 0", "as many rewrites as the limit: it goes on"},
	{"rewritten .41, at 33", "0, rewrites 0.41", "more: it stands down"},
	{"rewritten .2, at 42.9", "0, rewrites 0.2", "few rewrites, but 10 s are not over"},
	{"rewritten .31, at 43.1", "0, rewrites 0.31", "they are, but there are more than three quarters of the limit"},
	{"rewritten .29, at 43.2", "1, keeping 0", "fewer than three quarters: it is back by itself"},
	{"rewritten .39, at 44", "1, keeping 0", "back, it takes the whole limit to stand down"},
	{"rewritten .5, at 50, rewritten .1, at 59.9", "0, rewrites 0.5; 0, rewrites 0.1",
	"it stands down again, for 10 s from then on"},
	{"at 60", "1, keeping 0", "and is back at their end"},
	{"limit 1, rewritten 1, at 63", "1, keeping 0", "with a limit of 1 it never stands down"},
	{"limit 0, rewritten .01, at 64, rewritten 0, at 75", "0, rewrites 0.01; 1, keeping 0", "with a limit of 0 by any rewrite"},
	{"limit .4, rewritten -1, impossible 1, possible 0, at 76", "0, overlay 0", "where it is of no use it stands down"},
	{"possible 1, at 77", "1, keeping 0", "and is back by itself when it is of use"},
	{"limit 1, impossible 0, possible 0, at 78", "0, no fsync 0", "of no use, with a limit of 1, too"},
	{"begin .4, waiting 51, rewritten .41, at 5", "0, rewrites 0.41", "too many while it learns"},
};

/* With a cap of 100 MB */
static const Step asking[] = {
	{"begin 1, waiting 50, at 0", "0, little 0", "half the cap may wait"},
	{"begin 1, waiting 50.5, at 0", "0.5, keeping 0", "what exceeds that is asked for"},
	{"begin 1, flying 1, at 0", "0, keeping 0", "it keeps while something is in flight"},
	{"begin 1, waiting 70, skipped 20, at 0", "0, little 0", "what is better left alone does not count"},
	{"begin 1, waiting 72, skipped 20, at 0", "2, keeping 0", "what exceeds both does"},
	{"begin 1, waiting 78, skipped 78, at 0", "3, keeping 0", "up to three quarters of the cap"},
	{"begin 1, waiting 90, at 0, flying 3, at 0", "4 limited, keeping 0; 1 limited, keeping 0", "no more than the window at once"},
	{"begin 1, waiting 90, flying 7, at 0", "0 limited, keeping 0", "nothing while there is more in flight"},
	{"begin 1, waiting 54, at 0", "4, keeping 0", "all of the window is no limit"},
	{"begin 1, waiting 97, flying 4, at 0", "0 limited, keeping 0", "over the cap, but the disk's rate is unknown"},
	{"rate 7e6, at 0, waiting 96, at 0", "0 limited, behind 7e+06; 0 limited, keeping 0",
	"over the cap, and at it, and it is known"},
	{"begin 1, untold, waiting 150, flying 30, at 0", "64 limited, keeping 0", "a kernel that does not say what landed gets 64 MB"},

	{"begin 1, cap -1, at 0, cap?", "0, little 0; 32", "the cap while the disk's rate is unknown"},
	{"rate 100e6, at 0, cap?", "0, little 0; 23.8419", "the cap is a quarter of a second"},
	{"rate 10e6, at 0, cap?, rate 10e9, at 0, cap?", "0, little 0; 8; 0, little 0; 256", "no less than 8 MB, no more than 256 MB"},
	{"cap 0, at 0, cap?", "0, little 0; 0", "a cap of 0 is one"},

	/* the window */
	{"begin 1, waiting 90, landing 100, limited, round 0, window?", "5", "it grows where it was a limit"},
	{"begin 1, waiting 90, landing 100, round 0, window?", "4", "not where it was none"},
	{"begin 1, waiting 90, limited, round 0, window?", "4", "nor if nothing landed"},
	{"begin 1, waiting 90, window 5, limited, landing 101, round 0, window?", "4", "it shrinks if landing takes long"},
	{"window .55, limited, round 0, window?", "0.5", "to half a MB at least"},
	{"window 60, limited, landing 0, round 0, window?", "64", "it grows to 64 MB at most"},
	{"begin 1, waiting 90, limited, landing 10, usual 10, read 22, round 0, window?", "5",
	"twice the usual time of reads and 2 ms"},
	{"usual 10, read 22.1, at 0, window?", "4 limited, slow reads 10.121; 4 slow", "if they take longer, it shrinks"},
	{"read -1, at 0, window?", "4 limited, slow reads 10.121; 4 slow", "and does not grow until the next reads"},
	{"usual 10, read 22, round 0, usual?", "10.12", "reads count little while something is in flight"},
	{"waiting 0, round 0, usual 10, read 20, at 0, usual?", "0, little 0; 11", "and more while nothing is"},

	/* the disk's rate, of half a second */
	{"begin 1, landed 25e6, round 0, round .25, round .5, rate?", "-1", "without anything in flight there is no rate"},
	{"waiting 90, landed 0, round .5, landed 5e6, round .75, round 1, rate?", "2e+07", "half a second says what the disk takes"},
	{"landed 10e6, round 1.25, round 1.5, rate?", "4e+07", "more than that is taken over"},
	{"landed 5e6, round 1.75, round 2, rate?", "3.8e+07", "less counts a tenth, if the window was a limit"},
	{"waiting 51, landed 5e6, round 2.25, round 2.5, rate?", "3.8e+07", "and nothing if it was not"},
};

/* "dirty" puts a dirty page into a buffer: its relation, fork and block. "look" is a round that sees all buffers. */
static const Step watched[] = {
	{"buffers 1000, dirty 0 1 0 127, dirty 1 1 0 128, dirty 2 1 0 2047, dirty 3 1 0 2048, dirty 4 1 1 127"},
	{"look 1, watched", "work; written 0, waiting 0", "what is dirty is not written, nor does it wait"},
	{"stretches, stretch 1 0 0", "3; dirty 3, waiting 0 in 0 since -1000", "stretches are apart by relation, fork and 16 MB"},
	{"look 1.1, look 1.2", "work; no work", "after the next pass there is no work"},
	{"clean 0, clean 1, clean 2, look 2, watched", "work; written 3, waiting 3", "what is clean was written, and waits"},
	{"stretch 1 0 0", "dirty 0, waiting 3 in 8003 since 2", "in its pieces"},
	{"checkpoint 3 1, look 3, watched", "work; written 3, waiting 3", "what a checkpoint is to write is not written"},
	{"checkpoint 3 0, look 4, look 5, watched", "work; work; written 4, waiting 4",
	"what it has written, and is dirty again, is, once"},
	{"dirty 3 1 0 4097, look 6, watched", "work; written 5, waiting 5", "what was replaced by another dirty page was written"},
	{"drop 3, look 7, watched", "work; written 5, waiting 5", "what was dropped was not"},
	/* a round with no time sees 131,072 buffers, and what is about the hand */
	{"buffers 600000 400000, dirty 131071 1 0 0, dirty 131072 1 0 1, dirty 391808 1 0 2, dirty 408191 1 0 3"},
	{"late 3, stretch 1 0 0", "dirty 3, waiting 0 in 0 since -1000", "a round sees its part, and what is about the hand"},
};

/* "finds" has pages wait in a stretch: relation, fork, number, pieces, pages, since. "ask" requests pages: "file@MB+MB". */
static const Step asked_for[] = {
	/* a piece has its share of the pages, and no more than the kernel has dirty */
	{"kernel 0 20, finds 7 0 65 32792 90 0"},
	{"ask 1000 1 1, asked", "7.1@19+1; 7.1@20+1; 7.1@31+1; asked 60, in flight 60", "the pieces that wait, in their segment"},
	{"writes 1, land 10.9, landed?", "0 after -1 ms, 60 in flight", "in flight as long as the kernel writes there"},
	{"writes 0, land 10.95, landed?", "60 after 9950 ms, 0 in flight", "what the kernel does not write any more is on disk"},
	{"finds 7 0 63 32768 20 11, writes 1, ask 1000 1 11", "7.0@1023+1", "the end of the first segment"},
	{"land 21, landed?, told", "0 after -1 ms, 0 in flight; no", "10 s are waited for, which says nothing about the disk"},

	/* a kernel that does not report */
	{"kernel 1 0, finds 7 1 0 1 90 0, ask 1000 1 1", "7_fsm.0@0+1", "all that waits is requested"},
	{"land 1.24, landed?, land 1.25, landed?", "0 after -1 ms, 90 in flight; 0 after -1 ms, 0 in flight",
	"for a quarter of a second"},

	/* order */
	{"kernel 1 0, finds 9 0 0 1 50 .1, finds 8 0 1 1 100 5, finds 8 0 0 1 90 5"},
	{"ask 100 1 10", "8.0@16+1", "the stretch with the most pages first"},
	{"ask 40 1 10.2", "9.0@0+1", "what has waited 10 s before that"},
	{"finds 8 0 3 1 100 10, finds 7 0 3 1 10 10, rewrites 8 0 3 10 5, skips .49 39.9, skips .49 40", "100; 0",
	"a stretch with rewrites is left alone for 30 s"},
	{"ask 95 .49 11", "7.0@48+1; 8.0@0+1", "others come first, in the order of the files"},
	{"ask 5 .49 11", "8.0@48+1", "it comes last"},
	{"kernel 1 0, finds 8 0 0 15 400 0, ask 150 1 1", "8.0@0+1; 8.0@1+1", "pieces until it is enough"},
	{"flush_takes 51, ask 1000 1 1, flush_takes 0", "8.0@2+1", "one that takes long is the last of a round"},

	/* what waits is what the kernel has */
	{"kernel 0 20, finds 7 0 1 2 50 0, land 1, watched", "written 0, waiting 20", "no more than the kernel has"},
	{"kernel_dirty 1024, land 2, watched", "written 0, waiting 1024", "all of that if it is half of a stretch"},
	{"refuses, land 31, watched", "written 0, waiting 0", "a kernel that does not report has written it after 30 s"},
};

Datum
writeback_steps(PG_FUNCTION_ARGS)
{
	initStringInfo(&lines);
	initStringInfo(&said);
	check_steps(standing_down, lengthof(standing_down), command);
	check_steps(asking, lengthof(asking), command);
	check_steps(watched, lengthof(watched), command);
	check_steps(asked_for, lengthof(asked_for), command);
	pgscale_writeback_watch_stop();
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}
