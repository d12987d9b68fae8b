/*-------------------------------------------------------------------------
 *
 * sampler_files.c
 *	  Keeps the wait profile and the history over a restart of the server.
 *
 * Each has a file (base/saved_file.c): a header; the totals of the profile, or the spans of
 * the history; the types of background workers and the applications that the items refer to;
 * and the items, which are the profile's entries or the newest samples, as they are in memory.
 * Times are of the wall clock, so they stay true; the time without a server is not in any
 * span.
 *
 * The postmaster reads and removes such a file at start.  When it writes one, it takes
 * the contents of shared memory if no change of it is in progress.
 *
 * A file of another major version, another build or another format, or a damaged file, is
 * ignored.  A checksum does not prove who wrote the file, so each field is checked as well:
 * whatever the file contains, the result is a valid profile or history.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/catversion.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/saved_file.h"
#include "base/wait_events.h"
#include "sampler/past/history.h"
#include "sampler/profile/profile.h"
#include "sampler/samples.h"

/* To be changed with the format of the header, of the totals or of an entry; of a span or of a sample. */
#define PROFILE_FORMAT	0x70677334
#define HISTORY_FORMAT	0x70677369

/* The most that any server keeps, by the setting's bounds; rows of what was evicted come on top. */
#define MAX_ENTRIES		(PGSCALE_PROFILE_MAX + PGSCALE_PROFILE_OTHERS)

/* More would make a shutdown long: 56 MB. */
#define MAX_SAMPLES		1000000

/* All numbers are used. */
#define MAX_NAMES		1000

/* The states of a backend that there are, and one more in 18. */
#define MAX_STATE		((int) STATE_DISABLED + 1)

/* As far from the ends of timestamps as any bucket is long, which is 32 years at most. */
#define TIME_MIN		(MIN_TIMESTAMP + INT64CONST(10000000000000000))
#define TIME_MAX		(END_TIMESTAMP - INT64CONST(10000000000000000))

typedef struct FileHeader
{
	uint32		format;
	uint32		catversion;		/* wait events' numbers go with the major */
	uint32		item_size;
	uint32		nitems;
	uint32		ntypes;
	uint32		nnames;			/* of applications: only in the history */
} FileHeader;

/* What a file holds, in this order. */
typedef struct FileContents
{
	FileHeader	header;
	union
	{
		PgscaleSamplerProfileTotals totals;
		PgscaleSamplerSpans spans;
	};
	PgscaleSamplerTypeName types[PGSCALE_PROC_TYPES];
	PgscaleSamplerName names[MAX_NAMES];
	void	   *items;			/* all in one piece, when it was read */
} FileContents;

/* One of the two files. */
typedef struct FileKind
{
	const char *path;
	const char *lost;			/* what it means if it cannot be used */
	uint32		format;
	Size		summary_size;	/* of the totals or the spans */
	uint32		item_size;
	uint32		max_items;
	uint32		max_names;

	/* Returns why its summary or its items cannot be, or NULL. */
	const char *(*check) (const FileContents *contents);
	void		(*restore) (FileContents *contents);
} FileKind;

/* In place of writing. */
static void
log_not_kept(const char *what)
{
	ereport(LOG,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("%s is not kept over the restart", what),
			 errdetail("The sampler ended in the middle of a change, or there is no memory.")));
}

/* Writes the contents with as many applications, and the items in two parts, which may be empty. */
static void
write_samples(const FileKind *kind, FileContents *contents, uint32 nnames, const void *const items[2], const uint64 nitems[2])
{
	FileHeader *header = &contents->header;
	const		PgscaleSamplerTypeName *types;
	PgscaleSavedFile file;

	memset(header, 0, sizeof(*header));
	header->format = kind->format;
	header->catversion = CATALOG_VERSION_NO;
	header->item_size = kind->item_size;
	header->nitems = nitems[0] + nitems[1];
	header->ntypes = pgscale_sampler_types(&types);
	header->nnames = nnames;

	pgscale_saved_begin(&file, kind->path);
	pgscale_saved_put(&file, header, sizeof(*header));
	pgscale_saved_put(&file, &contents->totals, kind->summary_size);
	pgscale_saved_put(&file, types, header->ntypes * sizeof(*types));
	pgscale_saved_put(&file, contents->names, nnames * sizeof(*contents->names));
	for (int i = 0; i < 2; i++)
		pgscale_saved_put(&file, items[i], nitems[i] * kind->item_size);
	(void) pgscale_saved_end(&file, LOG, NULL);
}

/* Reads and checks what the file has; returns why it cannot be used, or NULL. */
static const char *
read_samples(const FileKind *kind, PgscaleSavedFile *file, FileContents *contents)
{
	FileHeader *header = &contents->header;
	Size		items_size;

	if (!pgscale_saved_get(file, header, sizeof(*header)))
		return file->problem;
	if (header->format != kind->format || header->item_size != kind->item_size)
		return "its format is not this version's";
	if (header->catversion != CATALOG_VERSION_NO)
		return "another major version wrote it";
	if (header->nitems > kind->max_items || header->ntypes > PGSCALE_PROC_TYPES || header->nnames > kind->max_names)
		return "its size is wrong";
	items_size = header->nitems * (Size) kind->item_size;
	if (!pgscale_saved_get(file, &contents->totals, kind->summary_size) ||
		!pgscale_saved_get(file, contents->types, header->ntypes * sizeof(*contents->types)) ||
		!pgscale_saved_get(file, contents->names, header->nnames * sizeof(*contents->names)))
		return file->problem;
	if (file->left != items_size)
		return "its size is wrong";
	contents->items = palloc_extended(Max(1, items_size), MCXT_ALLOC_HUGE);
	if (!pgscale_saved_get(file, contents->items, items_size))
		return file->problem;

	for (uint32 i = 0; i < header->ntypes; i++)
		if (contents->types[i][0] == '\0' || memchr(contents->types[i], '\0', BGW_MAXLEN) == NULL)
			return "it has a type of process without a name";
	for (uint32 i = 0; i < header->nnames; i++)
		if (memchr(contents->names[i], '\0', NAMEDATALEN) == NULL)
			return "it has an application without an end";
	return kind->check(contents);
}

static void
load_samples(const FileKind *kind)
{
	FileContents *contents;
	PgscaleSavedFile file;

	if (!pgscale_saved_open(&file, kind->path, NULL))
		return;
	contents = palloc0(sizeof(FileContents));
	file.problem = read_samples(kind, &file, contents);
	if (file.problem == NULL)
		kind->restore(contents);
	if (contents->items)
		pfree(contents->items);
	pfree(contents);
	pgscale_saved_close(&file, true, kind->lost, NULL);
}

/* Can a file have this event? */
static bool
event_is_possible(uint32 wait_event)
{
	const char *type;
	const char *name;

	/* The server has names for all of what is durable. */
	wait_event = pgscale_wait_event_durable(wait_event);
	type = pgscale_wait_event_type(wait_event);
	name = pgscale_wait_event_name(wait_event);
	return type != NULL && name != NULL && strcmp(type, "???") != 0 &&
		strcmp(name, "???") != 0 && strcmp(name, "unknown wait event") != 0;
}

static bool
kind_is_possible(PgscaleProcKind kind, uint32 ntypes)
{
	return kind < BACKEND_NUM_TYPES || kind == PGSCALE_PROC_PARALLEL ||
		(kind >= PGSCALE_PROC_FIRST_TYPE && kind - PGSCALE_PROC_FIRST_TYPE < ntypes);
}

/* Names that need not be text here are not restored. */
static bool
is_ascii_name(const char *text)
{
	for (const char *c = text; *c; c++)
		if (*c < ' ' || *c > '~')
			return false;
	return true;
}

/* What the types of a file are in this server. */
static void
kinds_of_types(const FileContents *contents, PgscaleProcKind *kinds)
{
	for (uint32 i = 0; i < contents->header.ntypes; i++)
		kinds[i] = is_ascii_name(contents->types[i]) ? pgscale_sampler_type_kind(contents->types[i]) : (PgscaleProcKind) B_BG_WORKER;
}

static void
restore_kind(const FileContents *contents, const PgscaleProcKind *kinds, PgscaleProcKind *kind)
{
	const int	type = *kind - PGSCALE_PROC_FIRST_TYPE;

	if (type >= 0 && type < contents->header.ntypes)
		*kind = kinds[type];
}

/*
 * The wait profile.
 */

static bool
entry_is_possible(const PgscaleSamplerProfileEntry *entry, uint32 ntypes)
{
	const PgscaleSamplerWaitKey *key = &entry->key;

	if (!(key->kind == PGSCALE_PROC_OTHER || kind_is_possible(key->kind, ntypes)) ||
		!event_is_possible(key->wait_event) || key->unused != 0)
		return false;
	/* Evicted time has no owner. */
	return key->kind != PGSCALE_PROC_OTHER ||
		(key->datid == InvalidOid && key->userid == InvalidOid && key->queryid == 0 && key->plan_id == 0);
}

/* Adds, unless the sum is more than the views can show. */
static bool
add_count(uint64 *sum, uint64 n)
{
	if (n > PG_INT64_MAX || *sum + n > PG_INT64_MAX)
		return false;
	*sum += n;
	return true;
}

/* Do the entries make sense, and are the totals theirs? */
static const char *
check_profile(const FileContents *contents)
{
	const PgscaleSamplerProfileTotals *totals = &contents->totals;
	const PgscaleSamplerProfileEntry *entries = contents->items;
	uint64		samples = 0;
	uint64		ns = 0;

	for (uint32 i = 0; i < contents->header.nitems; i++)
	{
		const PgscaleSamplerProfileEntry *entry = &entries[i];

		if (!entry_is_possible(entry, contents->header.ntypes))
			return "it has an entry that cannot be";
		if (entry->samples + entry->ns == 0 || !add_count(&samples, entry->samples) || !add_count(&ns, entry->ns))
			return "it has an entry with counts that cannot be";
	}
	if (totals->samples != samples || totals->ns != ns)
		return "its totals are not those of its entries";
	if (totals->evictions > PG_INT64_MAX / 2 || !IS_VALID_TIMESTAMP(totals->reset_at))
		return "its totals cannot be";
	return NULL;
}

static void
restore_profile(FileContents *contents)
{
	PgscaleSamplerProfileEntry *entries = contents->items;
	PgscaleProcKind kinds[PGSCALE_PROC_TYPES];

	kinds_of_types(contents, kinds);
	for (uint32 i = 0; i < contents->header.nitems; i++)
	{
		restore_kind(contents, kinds, &entries[i].key.kind);
		/* The texts that it stood for are not kept. */
		entries[i].key.label = 0;
		if (!pgscale_sampler_by_plan_id())
			entries[i].key.plan_id = 0;
	}
	pgscale_sampler_profile_restore(&contents->totals, entries, contents->header.nitems);
}

static const FileKind profile_kind = {
	.path = PGSTAT_STAT_PERMANENT_DIRECTORY "/pgscale_sampler.stat",
	.lost = "The wait profile starts empty.",
	.format = PROFILE_FORMAT,
	.summary_size = sizeof(PgscaleSamplerProfileTotals),
	.item_size = sizeof(PgscaleSamplerProfileEntry),
	.max_items = MAX_ENTRIES,
	.max_names = 0,
	.check = check_profile,
	.restore = restore_profile,
};

/*
 * The history.
 */

static bool
sample_is_possible(const PgscaleSamplerSample *sample, const FileHeader *header)
{
	return sample->sampled_at >= TIME_MIN && sample->sampled_at <= TIME_MAX &&
		sample->period_us >= 1 && sample->period_us <= (PGSCALE_SAMPLER_LATE * PGSCALE_SAMPLER_HISTORY_PERIOD_MAX + 1000) * 1000 &&
		sample->pid > 0 &&
		sample->blocker_pid >= PGSCALE_SAMPLER_NO_PID && sample->root_pid >= PGSCALE_SAMPLER_NO_PID &&
		(sample->blocker_pid == PGSCALE_SAMPLER_NO_PID) == (sample->root_pid == PGSCALE_SAMPLER_NO_PID) &&
		sample->state <= MAX_STATE &&
		(sample->label <= header->nnames || pgscale_sampler_label_is_other(sample->label)) &&
		kind_is_possible(sample->kind, header->ntypes) &&
		event_is_possible(sample->wait_event);
}

static bool
spans_are_possible(const PgscaleSamplerSpans *spans, uint32 nsamples)
{
	uint64		first = 0;

	if (spans->n < 0 || spans->n > PGSCALE_SAMPLER_SPANS || spans->end != nsamples)
		return false;
	for (int i = 0; i < spans->n; i++)
	{
		const PgscaleSamplerSpan *span = &spans->spans[i];

		if (span->begin < TIME_MIN || span->end > TIME_MAX || span->begin > span->end ||
			span->first < first || span->first > nsamples)
			return false;
		first = span->first;
	}
	return true;
}

static const char *
check_history(const FileContents *contents)
{
	const PgscaleSamplerSample *samples = contents->items;

	if (!spans_are_possible(&contents->spans, contents->header.nitems))
		return "it has times that cannot be";
	for (uint32 i = 0; i < contents->header.nitems; i++)
		if (!sample_is_possible(&samples[i], &contents->header))
			return "it has a sample that cannot be";
	return NULL;
}

/*
 * Types, applications and some wait events have other numbers in this server.  The roots'
 * entries are not kept.
 */
static void
restore_history(FileContents *contents)
{
	const FileHeader *header = &contents->header;
	PgscaleSamplerSample *samples = contents->items;
	PgscaleProcKind kinds[PGSCALE_PROC_TYPES];
	uint16		labels[MAX_NAMES + 1] = {0};

	kinds_of_types(contents, kinds);
	for (uint32 i = 0; i < header->nnames; i++)
		if (is_ascii_name(contents->names[i]))
			labels[i + 1] = pgscale_sampler_label_of_name(contents->names[i]);
	for (uint32 i = 0; i < header->nitems; i++)
	{
		PgscaleSamplerSample *sample = &samples[i];

		restore_kind(contents, kinds, &sample->kind);
		sample->wait_event = pgscale_wait_event_durable(sample->wait_event);
		memset(&sample->root, 0, sizeof(sample->root));
		if (sample->label <= header->nnames)
			sample->label = labels[sample->label];
	}
	pgscale_sampler_history_restore(samples, header->nitems, &contents->spans);
}

static const FileKind history_kind = {
	.path = PGSTAT_STAT_PERMANENT_DIRECTORY "/pgscale_sampler_history.stat",
	.lost = "The history starts empty.",
	.format = HISTORY_FORMAT,
	.summary_size = sizeof(PgscaleSamplerSpans),
	.item_size = sizeof(PgscaleSamplerSample),
	.max_items = MAX_SAMPLES,
	.max_names = MAX_NAMES,
	.check = check_history,
	.restore = restore_history,
};

void
pgscale_sampler_files_load(void)
{
	load_samples(&profile_kind);
	load_samples(&history_kind);
}

void
pgscale_sampler_files_save(void)
{
	FileContents contents = {0};
	PgscaleSamplerProfileSnapshot snapshot;
	PgscaleSamplerHistoryParts history;

	if (pgscale_sampler_profile_at_rest(&snapshot))
	{
		const void *entries[] = {snapshot.entries, NULL};
		const uint64 n[] = {snapshot.nentries, 0};

		contents.totals = snapshot.totals;
		write_samples(&profile_kind, &contents, 0, entries, n);
	}
	else
		log_not_kept("the wait profile");

	if (!pgscale_sampler_history_parts(MAX_SAMPLES, &history))
		log_not_kept("the wait history");
	else if (history.spans.n > 0)
	{
		const void *samples[] = {history.samples[0], history.samples[1]};

		contents.spans = history.spans;
		write_samples(&history_kind, &contents, pgscale_sampler_label_names(contents.names, MAX_NAMES), samples, history.n);
	}
}
