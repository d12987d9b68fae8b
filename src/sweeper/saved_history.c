/*-------------------------------------------------------------------------
 *
 * saved_history.c
 *	  Keeps what the policy remembers, over a restart of the sweeper or of the server.
 *
 * After a restart all buffers are empty.  So what is worth keeping of the policy's memory
 * is the pages that it knows, in buffers or gone, each with its score, and its choice
 * among the candidates.  The pages come back as pages that have left: when one is read
 * again, or is found in its buffer, the policy goes on with its score.  They are known by
 * the hash of their names, which is the server's own and the same at each start.  A page
 * of a relation that was dropped meanwhile takes a place until others need it.
 *
 * The sweeper writes the file when it ends, in whatever way but a crash; at a shutdown, what
 * the last sessions do after that is missing.  Of the pages those with the highest
 * scores are kept, at most one for each buffer, and MOST_PAGES in all.  The pages are
 * walked twice: first to find the score from which on there is room, then to write them.
 *
 * The sweeper reads the file once, when it starts, and removes it.  The postmaster
 * removes it if the sweeper is off.  A file of another major version, format or
 * shared_buffers, or a damaged one, is ignored: the sweeper starts without a history,
 * the log has the reason, and so has pgscale.replacement_stats.  A checksum does not prove
 * who wrote a file, but whatever its pages and scores are, they only make a choice worse.
 *
 * Failure: a sweeper that ends while it reads has removed nothing, and writes nothing.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>
#include <unistd.h>

#include "catalog/catversion.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/bufmgr.h"
#include "storage/fd.h"
#include "storage/ipc.h"

#include "base/saved_file.h"
#include "base/shared_buffers.h"
#include "sweeper/known_pages.h"
#include "sweeper/saved_history.h"
#include "sweeper/sweeper.h"

#define SAVED_FILE		PGSTAT_STAT_PERMANENT_DIRECTORY "/pgscale_sweeper.stat"

/* To be changed with the format of the header or of a page, and with what a page's hash stands for. */
#define SAVED_FORMAT	0x7067736a

/* 128 MB. */
#define MOST_PAGES		(16 * 1024 * 1024)

/* Pages to copy at a time. */
#define CHUNK			4096

/* Classes of scores, of which there are so many in each doubling of a page's count. */
#define CLASSES_BY_2	8
#define CLASSES			(2 * PGSCALE_SWEEPER_SCORE_MOST * CLASSES_BY_2)

typedef struct SavedHeader
{
	uint32		format;
	uint32		catversion;
	uint32		block_size;
	uint32		hash;			/* of a certain page: is that the same here? */
	uint32		buffers;		/* of the server */
	int32		choice;			/* that is preferred */
	uint32		pages;
} SavedHeader;

/* Where a walk through the pages is. */
typedef struct SavedWalk
{
	int			buf;
	uint32		departed;
} SavedWalk;

/* Which pages are kept: those of higher classes, and some of this one. */
typedef struct SavedCut
{
	int			class;
	uint32		room;
} SavedCut;

/* Has this sweeper read its file? */
static bool history_read = false;

/* The hash of a page that no server has. */
static uint32
hash_of_one_page(void)
{
	PgscalePage page;

	memset(&page, 0, sizeof(page));
	page.locator.spcOid = page.locator.dbOid = page.locator.relNumber = page.block = 1;
	return pgscale_buffer_page_hash(&page);
}

static SavedHeader
saved_header(void)
{
	SavedHeader header;

	memset(&header, 0, sizeof(header));
	header.format = SAVED_FORMAT;
	header.catversion = CATALOG_VERSION_NO;
	header.block_size = BLCKSZ;
	header.hash = hash_of_one_page();
	header.buffers = NBuffers;
	return header;
}

/* The next pages, those in buffers first.  Returns their number, 0 at the end. */
static int
next_pages(SavedWalk *walk, PgscaleSweeperRemembered *pages)
{
	const PgscaleSweeperMemory *memory = &pgscale_sweeper_memory;
	const PgscaleSweeperHistory *history = pgscale_sweeper_policy_history(memory->policy);
	int			n = 0;

	for (; walk->buf < NBuffers && n < CHUNK; walk->buf++)
		if (memory->pages[walk->buf].known)
		{
			pages[n].page = memory->pages[walk->buf].hash;
			pages[n++].score = pgscale_sweeper_history_score(history, walk->buf);
		}
	if (n == 0)
		n = pgscale_sweeper_history_departed(history, &walk->departed, pages, CHUNK);
	return n;
}

static int
class_of_score(float score)
{
	const int	class = (int) ((score + PGSCALE_SWEEPER_SCORE_MOST) * CLASSES_BY_2);

	return Max(Min(class, CLASSES - 1), 0);
}

/* Finds the best pages, at most that many.  Returns their number. */
static uint32
find_saved_cut(uint32 most, SavedCut *cut)
{
	PgscaleSweeperRemembered pages[CHUNK];
	uint32		counts[CLASSES] = {0};
	SavedWalk	walk = {0};
	uint32		above = 0;
	int			n;

	while ((n = next_pages(&walk, pages)) > 0)
		for (int i = 0; i < n; i++)
			counts[class_of_score(pages[i].score)]++;

	cut->class = CLASSES - 1;
	while (cut->class >= 0 && counts[cut->class] <= most - above)
		above += counts[cut->class--];
	cut->room = cut->class >= 0 ? most - above : 0;
	return above + cut->room;
}

/* Takes the pages of a chunk that are kept to its front.  Returns their number. */
static int
keep_best(PgscaleSweeperRemembered *pages, int n, SavedCut *cut)
{
	int			kept = 0;

	for (int i = 0; i < n; i++)
	{
		const int	class = class_of_score(pages[i].score);

		if (class < cut->class || (class == cut->class && cut->room == 0))
			continue;
		if (class == cut->class)
			cut->room--;
		pages[kept++] = pages[i];
	}
	return kept;
}

void
pgscale_sweeper_saved_write(void)
{
	SavedHeader header = saved_header();
	PgscaleSweeperRemembered pages[CHUNK];
	SavedWalk	walk = {0};
	SavedCut	cut;
	PgscaleSweeperPolicyReport report;
	PgscaleSavedFile file;
	int			n;

	if (!history_read)
		return;
	pgscale_sweeper_policy_report(pgscale_sweeper_memory.policy, &report);
	header.choice = report.preferred;
	header.pages = find_saved_cut(Min(NBuffers, MOST_PAGES), &cut);
	if (header.pages == 0)
		return;

	pgscale_saved_begin(&file, SAVED_FILE);
	pgscale_saved_put(&file, &header, sizeof(header));
	while ((n = next_pages(&walk, pages)) > 0)
		pgscale_saved_put(&file, pages, keep_best(pages, n, &cut) * sizeof(*pages));
	(void) pgscale_saved_end(&file, LOG, NULL);
}

static void
remove_if_there(const char *name)
{
	if (unlink(name) != 0 && errno != ENOENT)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not remove file \"%s\": %m", name)));
}

void
pgscale_sweeper_saved_startup(void)
{
	remove_if_there(SAVED_FILE ".tmp");
	if (!pgscale_sweeper_wanted())
		remove_if_there(SAVED_FILE);
}

/* Between two chunks. */
static void
saved_interrupts(void)
{
	CHECK_FOR_INTERRUPTS();
	if (ShutdownRequestPending)
		proc_exit(1);
}

/* Is the header what this sweeper would have written?  Else why not. */
static const char *
check_header(const PgscaleSavedFile *file, const SavedHeader *header)
{
	const SavedHeader own = saved_header();

	if (header->format != own.format)
		return "its format is not this version's";
	if (header->catversion != own.catversion)
		return "another major version wrote it";
	if (header->block_size != own.block_size || header->hash != own.hash)
		return "a server that was built otherwise wrote it";
	if (header->buffers != own.buffers)
		return "shared_buffers was another";
	if (header->pages > NBuffers || file->left != (uint64) header->pages * sizeof(PgscaleSweeperRemembered))
		return "its size is wrong";
	return header->choice >= 0 && header->choice < PGSCALE_SWEEPER_CANDIDATES ? NULL : "it has a choice that cannot be";
}

/* Has the policy remember all pages.  What a server wrote has no scores that cannot be; another one's are left out. */
static void
restore_saved(PgscaleSavedFile *file, const SavedHeader *header)
{
	PgscaleSweeperPolicy *policy = pgscale_sweeper_memory.policy;
	PgscaleSweeperRemembered pages[CHUNK];
	uint32		n;

	pgscale_sweeper_policy_resume(policy, header->choice);
	pgscale_sweeper->restored = 0;
	for (uint32 left = header->pages; left > 0; left -= n)
	{
		saved_interrupts();
		n = Min(left, CHUNK);
		if (!pgscale_saved_get(file, pages, n * sizeof(*pages)))
			return;
		for (uint32 i = 0; i < n; i++)
		{
			/* a score that is no number is not, either */
			if (!(fabsf(pages[i].score) <= PGSCALE_SWEEPER_SCORE_MOST))
				continue;
			pgscale_sweeper_history_remember(pgscale_sweeper_policy_history(policy), &pages[i]);
			pgscale_sweeper->restored++;
		}
	}
}

void
pgscale_sweeper_saved_read(void)
{
	PgscaleSavedFile file;
	SavedHeader header;

	pgscale_sweeper->restore_problem[0] = '\0';
	if (pgscale_saved_open(&file, SAVED_FILE, saved_interrupts))
	{
		if (pgscale_saved_get(&file, &header, sizeof(header)))
			file.problem = check_header(&file, &header);
		if (file.problem == NULL)
			restore_saved(&file, &header);
		if (file.problem)
			strlcpy(pgscale_sweeper->restore_problem, file.problem, sizeof(pgscale_sweeper->restore_problem));
		pgscale_saved_close(&file, true, "The sweeper starts without a history.", NULL);
	}
	history_read = true;
}
