/*
 * What a sweeper's policy remembers, over a restart of the server: which pages are kept, with which scores, and what comes
 * back, with made-up uses of made-up pages, in the folder of the server that runs it. saved_steps() returns a line for each
 * check.
 */
#include "postgres.h"

#include <math.h>

#include "common/pg_prng.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"

#include "steps.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(saved_steps);

#define BUFFERS		4000
#define NBuffers	BUFFERS

/* Pages that there are: more than buffers and ghosts. */
#define PAGES		30000

#include "base/restart_file.c"
#include "sweeper/policies/adaptive.c"
#include "sweeper/policies/page_history.c"
#undef GHOST_WAYS
#include "sweeper/policies/shadow.c"
#include "sweeper/policies/policies.c"
#include "sweeper/known_pages.c"
#include "sweeper/saved_history.c"

PgscaleSweeperSettings pgscale_sweeper_settings = {0};

static PgscaleSweeperShare the_share;
static uint32 held[BUFFERS];	/* page of each buffer */
static int	where[PAGES];		/* buffer of a page, and one; 0: it has none */
static int	sweepers = 1;

/* Pages are numbers, and are to be hashed as if they were names. */
static uint32
hash_of_number(uint32 number)
{
	number = (number ^ number >> 16) * 0x7feb352d;
	number = (number ^ number >> 15) * 0x846ca68b;
	return number ^ number >> 16;
}

uint32 pgscale_buffer_page_hash(const PgscalePage *page) { return hash_of_number(page->block); }
int pgscale_sweeper_count(void) { return sweepers; }
PgscaleSweeperShare *pgscale_sweeper_share(int number) { return &the_share; }
bool pgscale_sweeper_wanted(void) { return true; }

/* A server that starts: its memory is as it was allocated. */
static void
start(int policy)
{
	static char *memory = NULL;
	static PgscaleSweeperPage *pages = NULL;
	Size		size = 0;

	for (int i = 0; i < PGSCALE_SWEEPER_POLICIES; i++)
		size = Max(size, pgscale_sweeper_policies[i]->size(BUFFERS));
	if (!memory)
	{
		memory = MemoryContextAlloc(TopMemoryContext, size);
		pages = MemoryContextAlloc(TopMemoryContext, BUFFERS * sizeof(PgscaleSweeperPage));
	}
	memset(memory, 0xEE, size);
	memset(&the_share, 0, offsetof(PgscaleSweeperShare, runs));
	the_share.buffers = BUFFERS;
	the_share.pages = pages;
	the_share.policy_memory = memory;
	the_share.policy = PGSCALE_SWEEPER_NO_POLICY;
	pgscale_sweeper_policy_begin(&the_share, policy);
	pgscale_sweeper_saved_read(&the_share);
}

/* Is there a file?  Its header. */
static bool
kept(SavedHeader *header)
{
	char		name[MAXPGPATH];
	char		temp[MAXPGPATH];
	FILE	   *file;
	bool		good;

	name_files(0, name, temp);
	file = fopen(name, "rb");
	good = file && fread(header, sizeof(*header), 1, file) == 1;
	if (file)
		fclose(file);
	return good;
}

/* A load: pages come and go, and some are used much more often than others; each use counts, because the hand has passed since. */
static void
work(int rounds)
{
	pg_prng_state prng;

	pg_prng_seed(&prng, 7);
	memset(held, 0xFF, sizeof(held));
	memset(where, 0, sizeof(where));
	for (int i = 0; i < rounds; i++)
	{
		const double u = pg_prng_double(&prng);
		const uint32 page = (uint32) (u * u * u * PAGES);
		const bool	there = where[page] > 0;
		const int	buf = there ? where[page] - 1 : (int) pg_prng_uint64_range(&prng, 0, BUFFERS - 1);
		PgscaleBuffer look = {.usage = there ? 2 : 1,.valid = true};
		PgscalePage name = {.block = page};

		if (there)
			(void) pgscale_sweeper_visit(&the_share, buf, false);
		else if (held[buf] != PG_UINT32_MAX)
		{
			pgscale_sweeper_page_left(&the_share, buf);
			where[held[buf]] = 0;
		}
		held[buf] = page;
		where[page] = buf + 1;
		(void) pgscale_sweeper_page_seen(&the_share, buf, &look, &name, 1, false);
	}
}

/*
 * The score with which a page that is in no buffer would come back, before that use counts; NaN: it would be a new one. It is
 * forgotten then.
 */
static float
comes_back(uint32 page)
{
	PgscaleSweeperHistory *history = history_of(the_share.policy_memory);
	PgscaleSweeperScore score;

	if (!ghost_take(history, hash_of_number(page), &score))
		return NAN;
	return pgscale_sweeper_score(&score, history->now, history->decay);
}

static void
check_hashes(void)
{
	static const int sets[] = {1, 3, 200, 1000, 32768, 65536, 65537, 100000, 1 << 24, 1 << 29};
	int			wrong = 0;
	int			kept_all = 0;

	for (int i = 0; i < lengthof(sets); i++)
		for (uint32 n = 0; n < 2000; n++)
		{
			const uint32 page = n == 0 ? 0 : n == 1 ? PG_UINT32_MAX : hash_of_number(n);
			const uint16 tag = pgscale_sweeper_hash_tag(page);
			uint32		hash;

			if ((uint16) (page ^ page >> 16) == 0)
				continue;		/* its tag is made up */
			if (!hash_of_ghost(pgscale_sweeper_hash_part(page, sets[i]), sets[i], tag, &hash) ||
				pgscale_sweeper_hash_part(hash, sets[i]) != pgscale_sweeper_hash_part(page, sets[i]) ||
				pgscale_sweeper_hash_tag(hash) != tag)
				wrong++;
			kept_all += sets[i] == 1 << 24 && hash == page;
		}
	is(wrong, 0, "each ghost has a hash with its set and its tag");
	is(kept_all > 1990, true, "where there are many sets, that of its page");
}

/* A history: what is kept are the best of pages in buffers and pages that have left, each with its score. */
static void
check_history(void)
{
	SavedHeader header;
	float		scores[500];	/* of the pages that are used most */
	int			came = 0;
	int			good = 0;

	start(PGSCALE_SWEEPER_HISTORY);
	is(the_share.restored || kept(&header), false, "at first there is nothing to restore, nor a file");
	write_saved(&the_share);
	is(kept(&header), false, "nothing that is known leaves none");
	work(60000);
	write_saved(&the_share);
	is(kept(&header), true, "a history leaves a file");
	is(header.pages, BUFFERS, "with a page for each buffer");
	is(header.choice, ((Adaptive *) the_share.policy_memory)->preferred, "and what adaptive would choose");
	for (int page = 0; page < lengthof(scores); page++)
		scores[page] = where[page] > 0 ? adaptive_score(the_share.policy_memory, where[page] - 1) : comes_back(page);

	start(PGSCALE_SWEEPER_HISTORY);
	is(the_share.restored, BUFFERS, "a server that starts restores all of them");
	is(the_share.restore_problem, PGSCALE_SAVED_GOOD, "without a problem");
	is(kept(&header), false, "and removes the file");
	for (int page = 0; page < PAGES; page++)
	{
		const float score = comes_back(page);

		came += !isnan(score);
		good += page < lengthof(scores) && fabsf(score - scores[page]) < 0.001;
	}
	is(came > 0.9 * BUFFERS && came <= BUFFERS, true, "nearly all of them come back");
	is(good > 0.98 * lengthof(scores), true, "the best among them, with the score that they had");
}

/* A page that is restored goes on like one that had only left. */
static void
check_goes_on(void)
{
	PgscaleSweeperRemembered page = {.page = hash_of_number(1),.score = 3};
	PgscaleSweeperHistory *history;

	start(PGSCALE_SWEEPER_HISTORY);
	history = history_of(the_share.policy_memory);
	pgscale_sweeper_history_remember(history, &page);
	pgscale_sweeper_history_remember(history, &page);
	pgscale_sweeper_history_arrived(history, 0, page.page);
	is(fabs(pgscale_sweeper_history_score(history, 0) - log2(9)) < 0.001, true, "eight uses and one are nine");
	pgscale_sweeper_history_arrived(history, 1, page.page);
	is(pgscale_sweeper_history_score(history, 1), 0, "what is remembered twice comes back once");
	page.score = -4;
	pgscale_sweeper_history_remember(history, &page);
	is(fabs(comes_back(1) + 4) < 0.001, true, "a score below zero");
	page.score = -PGSCALE_SWEEPER_SCORE_MOST;
	pgscale_sweeper_history_remember(history, &page);
	is(comes_back(1) < -30, true, "the least that there is");
	page.score = PGSCALE_SWEEPER_SCORE_MOST;
	pgscale_sweeper_history_remember(history, &page);
	is(comes_back(1) > 31.9, true, "the most");
}

static void
check_adaptive(void)
{
	SavedHeader header;
	PgscaleSweeperPolicyReport report;

	for (int choice = 0; choice < PGSCALE_SWEEPER_CANDIDATES; choice += 2)
	{
		start(PGSCALE_SWEEPER_ADAPTIVE);
		adaptive_resume(the_share.policy_memory, choice);
		/* less than would make it choose */
		((Adaptive *) the_share.policy_memory)->compare_at = PG_UINT64_MAX;
		work(10000);
		write_saved(&the_share);
		is(kept(&header) && header.choice == choice, true, "adaptive keeps its choice");
		start(PGSCALE_SWEEPER_ADAPTIVE);
		is(the_share.restored == header.pages && header.pages > 0, true, "which comes back, with the pages");
		adaptive_report(the_share.policy_memory, the_share.buffers, &report);
		is(report.choice == choice && report.switches + report.evictions == 0, true, "and is in force, which is no switch");
		is(isnan(comes_back(0)), false, "a page that was used often is known");
	}
	write_saved(&the_share);
	start(PGSCALE_SWEEPER_CLOCK);
	is(the_share.restored > 0, true, "another policy takes the pages over");
	adaptive_report(the_share.policy_memory, the_share.buffers, &report);
	is(report.choice, PGSCALE_SWEEPER_THE_CLOCK, "which goes on as the clock");
	work(1000);
	write_saved(&the_share);
	is(kept(&header) && header.choice == 4, true, "and keeps what adaptive would choose");
}

/* The most that are kept in all are divided among the sweepers. */
static void
check_most(void)
{
	SavedHeader header;

	start(PGSCALE_SWEEPER_HISTORY);
	work(30000);
	sweepers = MOST_PAGES / 100;
	write_saved(&the_share);
	is(kept(&header) ? header.pages : -1, 100, "of many sweepers each keeps its part");
	start(PGSCALE_SWEEPER_HISTORY);
	is(the_share.restored, 100, "which comes back");
	is(isnan(comes_back(0)), false, "the best of them");
	sweepers = 1;
}

/* One that was ended while it read, or never read, leaves the file to the next one. */
static void
check_unread(void)
{
	SavedHeader header;

	work(30000);
	write_saved(&the_share);
	the_share.policy = PGSCALE_SWEEPER_NO_POLICY;
	pgscale_sweeper_policy_begin(&the_share, PGSCALE_SWEEPER_HISTORY);
	the_share.history_read = false;
	work(100);
	write_saved(&the_share);
	is(kept(&header) ? header.pages : -1, BUFFERS, "what was not read stays");
	pgscale_sweeper_saved_read(&the_share);
	is(the_share.restored, BUFFERS, "and is read by the next process");
	is(the_share.history_read, true, "once");
}

/* What the server wrote, with other bytes somewhere and a checksum that is right: what is wrong with it? */
static void
check_foreign(void)
{
	static const struct
	{
		uint32		at, with;	/* a word */
		int			size;		/* of a whole file, or less */
		PgscaleSweeperSavedProblem problem;
	}			cases[] = {
		{0, SAVED_FORMAT, 100000, PGSCALE_SAVED_GOOD},
		{0, SAVED_FORMAT, 10, PGSCALE_SAVED_SHORT},
		{0, SAVED_FORMAT, 5000, PGSCALE_SAVED_SIZE},
		{offsetof(SavedHeader, format), 1, 100000, PGSCALE_SAVED_FORMAT},
		{offsetof(SavedHeader, catversion), 1, 100000, PGSCALE_SAVED_MAJOR},
		{offsetof(SavedHeader, block_size), 4096, 100000, PGSCALE_SAVED_BUILD},
		{offsetof(SavedHeader, hash), 1, 100000, PGSCALE_SAVED_BUILD},
		{offsetof(SavedHeader, buffers), 1, 100000, PGSCALE_SAVED_BUFFERS},
		{offsetof(SavedHeader, workers), 2, 100000, PGSCALE_SAVED_WORKERS},
		{offsetof(SavedHeader, worker), 1, 100000, PGSCALE_SAVED_WORKERS},
		{offsetof(SavedHeader, pages), BUFFERS + 1, 100000, PGSCALE_SAVED_SIZE},
		{offsetof(SavedHeader, choice), 5, 100000, PGSCALE_SAVED_IMPOSSIBLE},
		/* scores: no number, and one beyond all */
		{sizeof(SavedHeader) + 4, 0x7FC00000, 100000, PGSCALE_SAVED_IMPOSSIBLE},
		{sizeof(SavedHeader) + 4, 0x42040000, 100000, PGSCALE_SAVED_IMPOSSIBLE}
	};
	static char bytes[100000];
	char		name[MAXPGPATH];
	char		temp[MAXPGPATH];

	name_files(0, name, temp);
	for (int i = 0; i < lengthof(cases); i++)
	{
		FILE	   *file;
		int			size;
		pg_crc32c	crc;

		start(PGSCALE_SWEEPER_HISTORY);
		work(30000);
		write_saved(&the_share);
		file = fopen(name, "r+b");
		size = (int) fread(bytes, 1, sizeof(bytes), file);
		memcpy(bytes + cases[i].at, &cases[i].with, sizeof(uint32));
		INIT_CRC32C(crc);
		COMP_CRC32C(crc, bytes, size - sizeof(crc));
		FIN_CRC32C(crc);
		memcpy(bytes + size - sizeof(crc), &crc, sizeof(crc));
		rewind(file);
		is(fwrite(bytes, 1, size, file) == size && fflush(file) == 0 && ftruncate(fileno(file), Min(size, cases[i].size)) == 0,
		   true, "a file is changed");
		fclose(file);
		start(PGSCALE_SWEEPER_HISTORY);
		is(the_share.restore_problem, cases[i].problem, psprintf("a word at %u, at most %d bytes: the problem", cases[i].at, cases[i].size));
		is(the_share.restored, cases[i].problem == PGSCALE_SAVED_GOOD ? BUFFERS : 0, "it is restored, or not at all");
	}
}

Datum
saved_steps(PG_FUNCTION_ARGS)
{
	initStringInfo(&lines);
	check_hashes();
	check_history();
	check_goes_on();
	check_adaptive();
	check_most();
	check_unread();
	check_foreign();
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}
