/*-------------------------------------------------------------------------
 *
 * history_file.c
 *	  Keeps the history over a restart of the server.
 *
 * The file (sampler_files.c) has a header, the types of background workers and the
 * applications of the samples, the spans, and the newest samples as they are in memory.  Times are of the wall clock, so they stay true; the time without
 * a server is not in any span.  A file of another major version, another build or
 * another format, or a damaged file, is ignored.  A checksum does not prove who wrote
 * the file, so each field is checked as well: whatever the file contains, the result is
 * a valid history.
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
#include "sampler/profile/session_labels.h"
#include "sampler/sampler_files.h"
#include "sampler/worker_types.h"

#define HISTORY_FILE	PGSTAT_STAT_PERMANENT_DIRECTORY "/pgscale_sampler_history.stat"

/* More would make a shutdown long: 56 MB. */
#define MAX_SAMPLES		1000000

/* All numbers are used. */
#define MAX_NAMES		1000

/* The states of a backend that there are, and one more in 18. */
#define MAX_STATE		((int) STATE_DISABLED + 1)

/* As far from the ends of timestamps as any bucket is long, which is 32 years at most. */
#define TIME_MIN		(MIN_TIMESTAMP + INT64CONST(10000000000000000))
#define TIME_MAX		(END_TIMESTAMP - INT64CONST(10000000000000000))

/* To be changed with the format of the header, of a span or of a sample. */
#define HISTORY_FORMAT	0x70677369

typedef struct HistoryHeader
{
	uint32		format;
	uint32		catversion;		/* wait events' numbers go with the major */
	uint32		sample_size;
	uint32		nsamples;
	uint32		ntypes;
	uint32		nnames;
	PgscaleSamplerSpans spans;
} HistoryHeader;

/* What a file holds. */
typedef struct HistoryStore
{
	HistoryHeader header;
	PgscaleSamplerTypeName types[PGSCALE_PROC_TYPES];
	PgscaleSamplerName names[MAX_NAMES];
	PgscaleSamplerSample *samples;
} HistoryStore;

void
pgscale_sampler_history_save(void)
{
	PgscaleSamplerHistoryParts parts;
	const		PgscaleSamplerTypeName *types;
	PgscaleSamplerName names[MAX_NAMES];
	HistoryHeader header;
	PgscaleSavedFile file;

	if (!pgscale_sampler_history_parts(MAX_SAMPLES, &parts))
	{
		pgscale_sampler_file_not_kept("the wait history");
		return;
	}
	if (parts.spans.n == 0)
		return;

	memset(&header, 0, sizeof(header));
	header.format = HISTORY_FORMAT;
	header.catversion = CATALOG_VERSION_NO;
	header.sample_size = sizeof(PgscaleSamplerSample);
	header.nsamples = parts.n[0] + parts.n[1];
	header.ntypes = pgscale_sampler_types(&types);
	header.nnames = pgscale_sampler_label_names(names, MAX_NAMES);
	header.spans = parts.spans;

	pgscale_saved_begin(&file, HISTORY_FILE);
	pgscale_saved_put(&file, &header, sizeof(header));
	pgscale_saved_put(&file, types, header.ntypes * sizeof(*types));
	pgscale_saved_put(&file, names, header.nnames * sizeof(*names));
	for (int i = 0; i < lengthof(parts.n); i++)
		pgscale_saved_put(&file, parts.samples[i], parts.n[i] * sizeof(PgscaleSamplerSample));
	(void) pgscale_saved_end(&file, LOG, NULL);
}

static bool
sample_is_possible(const PgscaleSamplerSample *sample, const HistoryHeader *header)
{
	return sample->sampled_at >= TIME_MIN && sample->sampled_at <= TIME_MAX &&
		sample->period_us >= 1 && sample->period_us <= (PGSCALE_SAMPLER_LATE * PGSCALE_SAMPLER_HISTORY_PERIOD_MAX + 1000) * 1000 &&
		sample->pid > 0 &&
		sample->blocker_pid >= PGSCALE_SAMPLER_NO_PID && sample->root_pid >= PGSCALE_SAMPLER_NO_PID &&
		(sample->blocker_pid == PGSCALE_SAMPLER_NO_PID) == (sample->root_pid == PGSCALE_SAMPLER_NO_PID) &&
		sample->state <= MAX_STATE &&
		(sample->label <= header->nnames || pgscale_sampler_label_is_other(sample->label)) &&
		pgscale_sampler_file_knows_kind(sample->kind, header->ntypes) &&
		pgscale_sampler_file_knows_event(sample->wait_event);
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

/* Does all of it make sense? */
static const char *
check_history(const HistoryStore *store)
{
	const HistoryHeader *header = &store->header;

	if (!pgscale_sampler_file_knows_types(store->types, header->ntypes))
		return "it has a type of process without a name";
	for (uint32 i = 0; i < header->nnames; i++)
		if (memchr(store->names[i], '\0', NAMEDATALEN) == NULL)
			return "it has an application without an end";
	if (!spans_are_possible(&header->spans, header->nsamples))
		return "it has times that cannot be";
	for (uint32 i = 0; i < header->nsamples; i++)
		if (!sample_is_possible(&store->samples[i], header))
			return "it has a sample that cannot be";
	return NULL;
}

/* Reads and checks what the file has; returns why it cannot be used, or NULL. */
static const char *
read_history(PgscaleSavedFile *file, HistoryStore *store)
{
	HistoryHeader *header = &store->header;

	if (!pgscale_saved_get(file, header, sizeof(*header)))
		return file->problem;
	if (header->format != HISTORY_FORMAT || header->sample_size != sizeof(PgscaleSamplerSample))
		return "its format is not this version's";
	if (header->catversion != CATALOG_VERSION_NO)
		return "another major version wrote it";
	if (header->nsamples > MAX_SAMPLES || header->ntypes > PGSCALE_PROC_TYPES || header->nnames > MAX_NAMES ||
		file->left != (uint64) header->ntypes * sizeof(PgscaleSamplerTypeName) +
		(uint64) header->nnames * sizeof(PgscaleSamplerName) +
		(uint64) header->nsamples * sizeof(PgscaleSamplerSample))
		return "its size is wrong";

	store->samples = palloc(Max(1, header->nsamples) * sizeof(PgscaleSamplerSample));
	if (!pgscale_saved_get(file, store->types, header->ntypes * sizeof(PgscaleSamplerTypeName)) ||
		!pgscale_saved_get(file, store->names, header->nnames * sizeof(PgscaleSamplerName)) ||
		!pgscale_saved_get(file, store->samples, header->nsamples * sizeof(PgscaleSamplerSample)))
		return file->problem;
	return check_history(store);
}

/*
 * Types, applications and some wait events have other numbers in this server.  The roots'
 * entries are not kept.
 */
static void
history_file_restore(HistoryStore *store)
{
	const HistoryHeader *header = &store->header;
	PgscaleProcKind kinds[PGSCALE_PROC_TYPES];
	uint16		labels[MAX_NAMES + 1] = {0};

	pgscale_sampler_file_kinds(store->types, header->ntypes, kinds);
	for (uint32 i = 0; i < header->nnames; i++)
		if (pgscale_sampler_file_is_ascii(store->names[i]))
			labels[i + 1] = pgscale_sampler_label_of_name(store->names[i]);
	for (uint32 i = 0; i < header->nsamples; i++)
	{
		PgscaleSamplerSample *sample = &store->samples[i];
		int			type = sample->kind - PGSCALE_PROC_FIRST_TYPE;

		if (type >= 0 && type < header->ntypes)
			sample->kind = kinds[type];
		sample->wait_event = pgscale_wait_event_durable(sample->wait_event);
		memset(&sample->root, 0, sizeof(sample->root));
		if (sample->label <= header->nnames)
			sample->label = labels[sample->label];
	}
	pgscale_sampler_history_restore(store->samples, header->nsamples, &header->spans);
}

void
pgscale_sampler_history_load(void)
{
	HistoryStore *store;
	PgscaleSavedFile file;

	if (!pgscale_saved_open(&file, HISTORY_FILE, NULL))
		return;

	store = palloc0(sizeof(HistoryStore));
	file.problem = read_history(&file, store);
	if (file.problem == NULL)
		history_file_restore(store);

	if (store->samples)
		pfree(store->samples);
	pfree(store);
	pgscale_saved_close(&file, true, "The history starts empty.", NULL);
}
