/*-------------------------------------------------------------------------
 *
 * past_memory.c
 *	  The history's samples as time waited, added up, and the known times.
 *
 * A sample represents the time that ends at its tick.  The parts within the requested
 * ranges count, in each bucket of the requested size.  Samples that differ only in
 * their process are one sum, because texts cost a hundred times as much as samples.
 * Until they are scaled, sessions' sums are of one minute each: at most as many as the
 * history has samples, and twice those at the ends of minutes.
 *
 * A sample shows what a session waits for once a second, but not that it was woken and
 * queues for a CPU, and a session that seems to idle has no sample.  The timeline has
 * each class of waits from all ticks, after the kernel's counts.  So the sums of the
 * sessions' samples are made to agree with it, class by class and minute by minute: the
 * timeline says how much of a class there was in a minute, the samples say of whom and
 * in which event.  In a second the samples are too few for that; a factor for a
 * longer time would show a storm of one minute in the others, too.  But a class that has
 * a few seconds of a minute often has no sample there.  In the sum of a whole period such
 * time is of those that its samples of the other minutes show; where there are none, and
 * in rows of a shorter time, it is a sum of its class only.  Times that the timeline does
 * not have are as the samples are.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "catalog/pg_type_d.h"
#include "commands/dbcommands.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/texts.h"
#include "base/wait_events.h"
#include "sampler/past/history.h"
#include "sampler/past/past.h"
#include "sampler/profile/session_labels.h"
#include "sampler/roots/blocker_profile.h"
#include "sampler/worker_types.h"

/* Hashed and compared as bytes. */
typedef struct HistoryWaitKey
{
	TimestampTz begin;
	TimestampTz end;
	int64		queryid;
	Oid			datid;
	Oid			userid;
	uint32		wait_event;
	int			root_pid;
	PgscaleSamplerRoot root;
	uint16		label;
	PgscaleProcKind kind;
	uint8		minute;			/* a session's, at a time that the timeline
								 * has: its place there and 1; 0: as it is */
	bool		no_event;		/* only the class is known */
	uint8		unused[3];
} HistoryWaitKey;

typedef struct HistoryWait
{
	HistoryWaitKey key;
	char		status;
	double		us;
} HistoryWait;

#define SH_PREFIX		history_sums
#define SH_ELEMENT_TYPE HistoryWait
#define SH_KEY_TYPE		HistoryWaitKey
#define SH_KEY			key
#define SH_HASH_KEY(tb, k)	hash_bytes((const unsigned char *) &(k), sizeof(k))
#define SH_EQUAL(tb, a, b)	(memcmp(&(a), &(b), sizeof(a)) == 0)
#define SH_SCOPE		static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* What the reader is told of a wait: in one row, though several sums are parts of it. */
typedef struct ToldWaitKey
{
	PgscaleSamplerPastRange range;
	PgscaleSamplerPastKey of;
} ToldWaitKey;

typedef struct ToldWait
{
	ToldWaitKey key;
	char		status;
	double		us;
} ToldWait;

#define SH_PREFIX		told
#define SH_ELEMENT_TYPE ToldWait
#define SH_KEY_TYPE		ToldWaitKey
#define SH_KEY			key
#define SH_HASH_KEY(tb, k)	hash_bytes((const unsigned char *) &(k), sizeof(k))
#define SH_EQUAL(tb, a, b)	(memcmp(&(a), &(b), sizeof(a)) == 0)
#define SH_SCOPE		static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* What sessions waited in a look, by class. */
typedef struct HistorySlice
{
	PgscaleSamplerPastRange range;
	uint32		class;			/* of wait events; or the event, if it is idle */
	int64		us;
} HistorySlice;

typedef struct HistorySums
{
	const PgscaleSamplerPastRange *ranges;	/* in order, none within another */
	int			nranges;
	int64		bucket_us;
	PgscaleSamplerPastSeconds seconds;	/* of the ranges, as far as the
										 * samples know them */
	double		timed_us[PGSCALE_TIMELINE_MINUTES][PGSCALE_TIMELINE_PLACES];	/* of the samples */
	double		period_us[PGSCALE_TIMELINE_PLACES]; /* the same of all minutes */
	double		unsampled_us[PGSCALE_TIMELINE_PLACES];	/* the timeline's, of
														 * minutes without such
														 * samples */
	history_sums_hash *hash;
	told_hash  *told;
	bool		with_slices;
	HistorySlice *slices;
	int64		nslices;
	int64		slices_size;
	int64		look;			/* the first of the latest look */
	TimestampTz look_at;
	uint64		next;			/* number of the next sample */
	bool		partial;		/* of the look at this time some are gone */
	TimestampTz partial_at;
} HistorySums;

static void
forget_sums(HistorySums *sums)
{
	history_sums_reset(sums->hash);
	memset(sums->timed_us, 0, sizeof(sums->timed_us));
	sums->nslices = 0;
	sums->look = 0;
	sums->look_at = DT_NOBEGIN;
}

/* Adds the part of a session's sample that lies in a range. */
static void
add_slice(HistorySums *sums, const PgscaleSamplerSample *sample, TimestampTz begin, TimestampTz end)
{
	const uint32 class = sample->wait_event == PGSCALE_WAIT_IDLE_IN_TRANSACTION ?
		sample->wait_event : sample->wait_event & PGSCALE_WAIT_CLASS;
	HistorySlice *slice;

	if (sample->sampled_at != sums->look_at)
	{
		sums->look = sums->nslices;
		sums->look_at = sample->sampled_at;
	}
	for (int64 i = sums->look; i < sums->nslices; i++)
	{
		slice = &sums->slices[i];
		if (slice->class == class && slice->range.begin == begin && slice->range.end == end)
		{
			slice->us += end - begin;
			return;
		}
	}
	if (sums->nslices == sums->slices_size)
	{
		sums->slices_size *= 2;
		sums->slices = repalloc_huge(sums->slices, sums->slices_size * sizeof(HistorySlice));
	}
	slice = &sums->slices[sums->nslices++];
	slice->range.begin = begin;
	slice->range.end = end;
	slice->class = class;
	slice->us = end - begin;
}

/* Adds time to one sum. */
static void
add_us(history_sums_hash *hash, const HistoryWaitKey *key, double us)
{
	bool		found;
	HistoryWait *wait = history_sums_insert(hash, *key, &found);

	wait->us = (found ? wait->us : 0) + us;
}

/* The row of a time within a range; returns where the next row begins, or the time ends. */
static TimestampTz
past_row(int64 size, const PgscaleSamplerPastRange *range, TimestampTz begin, TimestampTz end, PgscaleSamplerPastRange *row)
{
	TimestampTz bucket;

	*row = (PgscaleSamplerPastRange)
	{
		0, 0
	};
	if (size == PGSCALE_PAST_WHOLE)
		return end;
	row->begin = begin;
	row->end = end;
	if (size == PGSCALE_PAST_LOOKS)
		return end;
	bucket = pgscale_sampler_past_floor(begin, size) * size;
	row->begin = Max(bucket, range->begin);
	row->end = Min(bucket + size, range->end);
	return Min(end, bucket + size);
}

/* Adds a part of the time of a sample; minute: as in the key. */
static void
add_part(HistorySums *sums, const PgscaleSamplerSample *sample, uint8 minute, const PgscaleSamplerPastRange *row, int64 us)
{
	HistoryWaitKey key = {0};

	key.begin = row->begin;
	key.end = row->end;
	key.queryid = sample->queryid;
	key.datid = sample->datid;
	key.userid = sample->userid;
	key.wait_event = sample->wait_event;
	key.root_pid = sample->root_pid;
	key.root = sample->root;
	key.label = sample->label;
	key.kind = sample->kind;
	key.minute = minute;
	add_us(sums->hash, &key, us);
	if (minute > 0)
		sums->timed_us[minute - 1][pgscale_sampler_timeline_place(sample->wait_event)] += us;
}

/* The same of all of its time within a row, minute by minute where the timeline has it. */
static void
add_by_minute(HistorySums *sums, const PgscaleSamplerSample *sample, const PgscaleSamplerPastRange *row, TimestampTz begin, TimestampTz end)
{
	const PgscaleSamplerPastSeconds *seconds = &sums->seconds;

	if (pgscale_proc_is_session(sample->kind))
		for (int i = pgscale_sampler_past_find(seconds->ranges, seconds->n, begin);
			 i < seconds->n && seconds->ranges[i].begin < end; i++)
		{
			const TimestampTz timed_end = Min(end, seconds->ranges[i].end);

			if (begin < seconds->ranges[i].begin)
				add_part(sums, sample, 0, row, seconds->ranges[i].begin - begin);
			begin = Max(begin, seconds->ranges[i].begin);
			while (begin < timed_end)
			{
				const int64 minute = pgscale_sampler_past_floor(begin, USECS_PER_MINUTE);
				const TimestampTz next = Min(timed_end, (minute + 1) * USECS_PER_MINUTE);

				add_part(sums, sample, pgscale_sampler_timeline_minute(minute) + 1, row, next - begin);
				begin = next;
			}
		}
	if (begin < end)
		add_part(sums, sample, 0, row, end - begin);
}

/* The same of all of its time within a range. */
static void
add_by_row(HistorySums *sums, const PgscaleSamplerSample *sample, const PgscaleSamplerPastRange *range, TimestampTz begin, TimestampTz end)
{
	while (begin < end)
	{
		PgscaleSamplerPastRange row;
		const TimestampTz next = past_row(sums->bucket_us, range, begin, end, &row);

		add_by_minute(sums, sample, &row, begin, next);
		begin = next;
	}
}

/*
 * If samples were overwritten while others were read, then all that are older count no
 * more, nor does a look that has lost some of its samples.
 */
static void
visit_sample(uint64 number, const PgscaleSamplerSample *sample, void *arg)
{
	HistorySums *sums = arg;
	const TimestampTz begin = sample->sampled_at - sample->period_us;

	if (number != sums->next)
	{
		forget_sums(sums);
		sums->partial = true;
		sums->partial_at = sample->sampled_at;
	}
	sums->next = number + 1;
	sums->partial = sums->partial && sample->sampled_at == sums->partial_at;
	if (sums->partial)
		return;
	if (pgscale_wait_is_idle(sample->kind, sample->wait_event))
		return;
	for (int i = pgscale_sampler_past_find(sums->ranges, sums->nranges, begin); i < sums->nranges && sums->ranges[i].begin < sample->sampled_at; i++)
	{
		const PgscaleSamplerPastRange *range = &sums->ranges[i];

		add_by_row(sums, sample, range, Max(begin, range->begin), Min(sample->sampled_at, range->end));
		if (sums->with_slices && pgscale_sampler_past_is_session(pgscale_sampler_type_name(sample->kind)))
			add_slice(sums, sample, Max(begin, range->begin), Min(sample->sampled_at, range->end));
	}
}

/* Reads the timeline of the times that the samples know: the spans, of which a clock that was set back may make two overlap. */
static void
read_seconds(HistorySums *sums, const PgscaleSamplerSpans *spans)
{
	PgscaleSamplerPastRange *known = palloc((sums->nranges + spans->n) * sizeof(PgscaleSamplerPastRange));
	int			nknown = 0;

	for (int i = 0; i < sums->nranges; i++)
	{
		const PgscaleSamplerPastRange *range = &sums->ranges[i];
		PgscaleSamplerPastRange *within = palloc((spans->n + 1) * sizeof(PgscaleSamplerPastRange));
		PgscaleSamplerPastRange *gaps;
		PgscaleSamplerPastRange *left;
		int			n = 0;
		int			nleft;

		for (int j = 0; j < spans->n; j++)
		{
			const TimestampTz begin = Max(Max(spans->spans[j].begin, sums->partial_at), range->begin);
			const TimestampTz end = Min(spans->spans[j].end, range->end);

			if (begin < end)
				within[n++] = (PgscaleSamplerPastRange)
			{
				begin, end
			};
		}
		gaps = pgscale_sampler_past_subtract(range, within, n, &n);
		left = pgscale_sampler_past_subtract(range, gaps, n, &nleft);
		memcpy(&known[nknown], left, nleft * sizeof(PgscaleSamplerPastRange));
		nknown += nleft;
		pfree(left);
		pfree(gaps);
		pfree(within);
	}
	pgscale_sampler_past_add_timeline(known, nknown, &sums->seconds);
	pfree(known);
}

/*
 * The sums, what the numbers in them stand for, and the spans that they are of, with no
 * reset in between.
 */
static PgscaleSamplerLabels *
sum_with_labels(HistorySums *sums, PgscaleSamplerSpans *spans)
{
	for (;;)
	{
		const uint64 before = pgscale_sampler_labels_begin_read();
		const uint64 history_before = pgscale_sampler_history_begin_read();
		PgscaleSamplerLabels *labels;
		uint64		first;

		forget_sums(sums);
		pgscale_sampler_history_spans(spans, &first);
		sums->next = first;
		sums->partial = false;
		sums->partial_at = DT_NOBEGIN;
		read_seconds(sums, spans);
		if (!pgscale_sampler_history_visit(first, spans->end, visit_sample, sums))
		{
			forget_sums(sums);
			spans->n = 0;
		}
		/* some that were known were overwritten meanwhile */
		if (spans->n == 0 || sums->partial_at != DT_NOBEGIN)
			read_seconds(sums, spans);
		labels = pgscale_sampler_labels_copy();
		if (pgscale_sampler_history_unchanged(history_before) && pgscale_sampler_labels_unchanged(before))
			return labels;
		if (labels)
			pfree(labels);
		CHECK_FOR_INTERRUPTS();
	}
}

/* Names by OID, each looked up once. */
typedef struct NameOf
{
	Oid			oid;			/* of a role, or of a database */
	PgscaleSamplerPastText name;
} NameOf;

static HTAB *
names_create(const char *what)
{
	HASHCTL		control = {.keysize = sizeof(Oid),.entrysize = sizeof(NameOf),.hcxt = CurrentMemoryContext};

	return hash_create(what, 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

static PgscaleSamplerPastText
name_of(HTAB *names, PgscaleSamplerPastTexts *texts, Oid oid, bool database)
{
	NameOf	   *entry;
	bool		found;

	if (!OidIsValid(oid))
		return 0;
	entry = hash_search(names, &oid, HASH_ENTER, &found);
	if (!found)
	{
		const char *name = database ? get_database_name(oid) : GetUserNameFromId(oid, true);

		/* of a dropped database the key has the OID, of a role this */
		if (!name && !database)
			name = psprintf("role %u", oid);
		entry->name = pgscale_sampler_past_number(texts, name ? pgscale_text_name(name) : NULL);
	}
	return entry->name;
}

static void
visit_spans(const HistorySums *sums, const PgscaleSamplerSpans *spans, const PgscaleSamplerPastReader *reader)
{
	for (int i = 0; i < spans->n; i++)
	{
		const TimestampTz begin = Max(spans->spans[i].begin, sums->partial_at);
		const TimestampTz end = spans->spans[i].end;

		for (int j = pgscale_sampler_past_find(sums->ranges, sums->nranges, begin); j < sums->nranges && sums->ranges[j].begin < end; j++)
		{
			const PgscaleSamplerPastRange part = {Max(begin, sums->ranges[j].begin), Min(end, sums->ranges[j].end)};

			if (part.begin < part.end)
				reader->visit_span(&part, (part.end - part.begin) / 1000.0, false, NULL, reader->arg);
		}
	}
}

static void
add_told(const HistorySums *sums, const PgscaleSamplerPastRange *range, const PgscaleSamplerPastKey *of, double us)
{
	ToldWaitKey key = {.range = *range,.of = *of};
	ToldWait   *wait;
	bool		found;

	StaticAssertStmt(sizeof(key) == sizeof(key.range) + sizeof(key.of), "no gap in what is compared as bytes");
	wait = told_insert(sums->told, key, &found);
	wait->us = (found ? wait->us : 0) + us;
}

static void
tell_waits(const HistorySums *sums, const PgscaleSamplerPastReader *reader)
{
	told_iterator it;
	ToldWait   *wait;

	told_start_iterate(sums->told, &it);
	while ((wait = told_iterate(sums->told, &it)) != NULL)
		reader->visit_wait(&wait->key.range, &wait->key.of, wait->us / 1000.0, reader->arg);
}

/* An event on CPU that the timeline has, and no sample. */
static bool
is_part_of_cpu(uint32 wait_event)
{
	return wait_event != PGSCALE_WAIT_CPU && wait_event <= PGSCALE_WAIT_BLOCKED;
}

static bool
is_in_wait(uint32 wait_event)
{
	return wait_event == PGSCALE_WAIT_RUNNING_IN_WAIT || wait_event == PGSCALE_WAIT_QUEUED_IN_WAIT;
}

/* What a class of waits has less in the timeline than in the samples: what showed such a wait had ended it, and ran or queued. */
static double
lost_us(const HistorySums *sums, int minute, uint32 place)
{
	return Max(sums->timed_us[minute][place] - sums->seconds.place_us[minute][place], 0);
}

static double
all_lost_us(const HistorySums *sums, int minute)
{
	double		us = 0;

	for (uint32 place = 0; place < PGSCALE_TIMELINE_PLACES; place++)
		if (pgscale_sampler_timeline_event(place) > PGSCALE_WAIT_BLOCKED)
			us += lost_us(sums, minute, place);
	return us;
}

/* So much time of a wait was in this event. */
static void
add_event(HistorySums *sums, const HistoryWaitKey *of, uint32 wait_event, double us)
{
	HistoryWaitKey key = *of;

	if (us <= 0)
		return;
	key.minute = 0;
	key.wait_event = wait_event;
	add_us(sums->hash, &key, us);
}

/*
 * A part of what the timeline has of a class in a minute.  Samples on CPU are all in one event, so they are split as the timeline is;
 * but time at the CPUs within a wait belongs to those that showed the waits.
 */
static void
add_timed(HistorySums *sums, const HistoryWaitKey *of, double part)
{
	const int	minute = of->minute - 1;
	const double *us = sums->seconds.place_us[minute];
	const uint32 place = pgscale_sampler_timeline_place(of->wait_event);
	const double all_lost = all_lost_us(sums, minute);

	add_event(sums, of, of->wait_event, us[place] * part);
	for (uint32 event = PGSCALE_WAIT_RUNNING; event <= PGSCALE_WAIT_BLOCKED; event++)
	{
		double		share = of->wait_event == PGSCALE_WAIT_CPU ? part : 0;

		if (is_in_wait(event) && all_lost > 0)
			share = of->wait_event == PGSCALE_WAIT_CPU ? 0 : part * lost_us(sums, minute, place) / all_lost;
		add_event(sums, of, event, us[pgscale_sampler_timeline_place(event)] * share);
	}
}

/* For the sum of a whole period: of each class the time in minutes that have no sample of it. */
static void
sum_unsampled(HistorySums *sums)
{
	for (int minute = 0; minute < PGSCALE_TIMELINE_MINUTES; minute++)
	{
		const double *us = sums->seconds.place_us[minute];

		for (uint32 place = 0; place < PGSCALE_TIMELINE_PLACES; place++)
		{
			const uint32 class = pgscale_sampler_timeline_event(place);

			sums->period_us[place] += sums->timed_us[minute][place];
			if (sums->timed_us[minute][place] > 0 || is_part_of_cpu(class))
				continue;
			sums->unsampled_us[place] += us[place];
			for (uint32 event = PGSCALE_WAIT_RUNNING; class == PGSCALE_WAIT_CPU && event <= PGSCALE_WAIT_BLOCKED; event++)
				if (!is_in_wait(event) || all_lost_us(sums, minute) <= 0)
					sums->unsampled_us[pgscale_sampler_timeline_place(event)] += us[pgscale_sampler_timeline_place(event)];
		}
	}
}

/* A part of that, split as add_timed() does. */
static void
add_period(HistorySums *sums, const HistoryWaitKey *of, double part)
{
	add_event(sums, of, of->wait_event, sums->unsampled_us[pgscale_sampler_timeline_place(of->wait_event)] * part);
	for (uint32 event = PGSCALE_WAIT_RUNNING; of->wait_event == PGSCALE_WAIT_CPU && event <= PGSCALE_WAIT_BLOCKED; event++)
		add_event(sums, of, event, sums->unsampled_us[pgscale_sampler_timeline_place(event)] * part);
}

/* Classes that the timeline has in a minute, and no sample: none of the minute; or of the period, if that is one sum. */
static void
add_unsampled(HistorySums *sums, int64 minute, const PgscaleSamplerPastRange *known)
{
	const PgscaleSamplerPastRange range = {Max(minute * USECS_PER_MINUTE, known->begin), Min((minute + 1) * USECS_PER_MINUTE, known->end)};
	HistoryWaitKey key = {.root_pid = PGSCALE_SAMPLER_NO_PID,.kind = (PgscaleProcKind) B_BACKEND};

	key.minute = pgscale_sampler_timeline_minute(minute) + 1;
	for (uint32 place = 0; place < PGSCALE_TIMELINE_PLACES; place++)
	{
		key.wait_event = pgscale_sampler_timeline_event(place);
		if (sums->timed_us[key.minute - 1][place] > 0 || sums->period_us[place] > 0 || is_part_of_cpu(key.wait_event))
			continue;
		key.no_event = key.wait_event != PGSCALE_WAIT_CPU && key.wait_event != PGSCALE_WAIT_IDLE_IN_TRANSACTION;
		for (TimestampTz begin = range.begin, next; begin < range.end; begin = next)
		{
			PgscaleSamplerPastRange row;

			next = past_row(sums->bucket_us, known, begin, range.end, &row);
			key.begin = row.begin;
			key.end = row.end;
			add_timed(sums, &key, (next - begin) / (double) (range.end - range.begin));
		}
	}
}

/* Makes the sums of the sessions' samples agree with the timeline; then they are no longer of single minutes. */
static void
scale_sums(HistorySums *sums)
{
	const PgscaleSamplerPastSeconds *seconds = &sums->seconds;
	history_sums_hash *sampled = sums->hash;
	history_sums_iterator it;
	HistoryWait *wait;

	if (sums->bucket_us == PGSCALE_PAST_WHOLE)
		sum_unsampled(sums);
	sums->hash = history_sums_create(CurrentMemoryContext, 1024, NULL);
	history_sums_start_iterate(sampled, &it);
	while ((wait = history_sums_iterate(sampled, &it)) != NULL)
	{
		const uint32 place = pgscale_sampler_timeline_place(wait->key.wait_event);

		CHECK_FOR_INTERRUPTS();
		if (wait->key.minute == 0)
		{
			add_us(sums->hash, &wait->key, wait->us);
			continue;
		}
		add_timed(sums, &wait->key, wait->us / sums->timed_us[wait->key.minute - 1][place]);
		if (sums->bucket_us == PGSCALE_PAST_WHOLE)
			add_period(sums, &wait->key, wait->us / sums->period_us[place]);
	}
	history_sums_destroy(sampled);
	if (seconds->n > 0)
	{
		const PgscaleSamplerPastRange known = {seconds->ranges[0].begin, seconds->ranges[seconds->n - 1].end};
		const int64 last = pgscale_sampler_past_floor(known.end - 1, USECS_PER_MINUTE);

		for (int64 minute = pgscale_sampler_past_floor(known.begin, USECS_PER_MINUTE); minute <= last; minute++)
			add_unsampled(sums, minute, &known);
	}
}

static void
visit_sums(HistorySums *sums, const PgscaleSamplerLabels *labels, const PgscaleSamplerPastReader *reader)
{
	const bool	reads_all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
	PgscaleSamplerRoots *roots = pgscale_sampler_roots_copy();
	HTAB	   *databases = names_create("pgscale databases");
	HTAB	   *users = names_create("pgscale users");
	history_sums_iterator it;
	HistoryWait *wait;

	history_sums_start_iterate(sums->hash, &it);
	while ((wait = history_sums_iterate(sums->hash, &it)) != NULL)
	{
		const HistoryWaitKey *from = &wait->key;
		const PgscaleSamplerPastRange range = {from->begin, from->end};
		const char *application_name = NULL;
		const char *address = NULL;
		const char *root_application = pgscale_sampler_root_application(roots, &from->root);
		PgscaleSamplerPastKey key = {0};

		CHECK_FOR_INTERRUPTS();
		if (reads_all || from->userid == GetUserId())
			pgscale_sampler_label(labels, from->label, &application_name, &address);
		key.queryid = from->queryid;
		key.datid = from->datid;
		key.backend_type = pgscale_sampler_past_number(reader->texts, pgscale_sampler_type_name(from->kind));
		key.datname = name_of(databases, reader->texts, from->datid, true);
		key.usename = name_of(users, reader->texts, from->userid, false);
		key.application_name = pgscale_sampler_past_number(reader->texts, application_name);
		if (from->root_pid == 0)
			key.blocker = pgscale_sampler_past_number(reader->texts, "prepared transaction");
		else if (from->root_pid != PGSCALE_SAMPLER_NO_PID)
		{
			const bool	named = root_application && root_application[0];

			key.blocker = pgscale_sampler_past_number(reader->texts, psprintf("%d%s%s", from->root_pid, named ? " " : "",
																			  named ? root_application : ""));
		}
		key.event_type = pgscale_sampler_past_number(reader->texts, pgscale_wait_event_type(from->wait_event));
		key.event = from->no_event ? key.event_type : pgscale_sampler_past_number(reader->texts, pgscale_wait_event_name(from->wait_event));
		add_told(sums, &range, &key, wait->us);
	}
	tell_waits(sums, reader);
}

static void
visit_slices(const HistorySums *sums, const PgscaleSamplerPastReader *reader)
{
	for (int64 i = 0; i < sums->nslices; i++)
	{
		const HistorySlice *slice = &sums->slices[i];

		reader->visit_class(&slice->range, pgscale_sampler_past_class(reader->texts, slice->class), slice->us / 1000.0, reader->arg);
	}
}

void
pgscale_sampler_past_read_memory(const PgscaleSamplerPastRange *ranges, int nranges, int64 bucket_us,
								 const PgscaleSamplerPastReader *reader)
{
	HistorySums sums = {0};
	PgscaleSamplerSpans *spans = palloc(sizeof(PgscaleSamplerSpans));
	PgscaleSamplerLabels *labels;

	pgscale_preload_require();
	sums.ranges = ranges;
	sums.nranges = nranges;
	sums.bucket_us = bucket_us;
	sums.hash = history_sums_create(CurrentMemoryContext, 1024, NULL);
	sums.told = told_create(CurrentMemoryContext, 1024, NULL);
	sums.with_slices = (reader->parts & PGSCALE_PAST_CLASSES) != 0;
	sums.slices_size = 1024;
	sums.slices = palloc(sums.slices_size * sizeof(HistorySlice));

	labels = sum_with_labels(&sums, spans);
	scale_sums(&sums);
	visit_spans(&sums, spans, reader);
	visit_sums(&sums, labels, reader);
	if (reader->parts & PGSCALE_PAST_CLASSES)
		visit_slices(&sums, reader);
	history_sums_destroy(sums.hash);
	pfree(sums.slices);
	pfree(spans);
}

TimestampTz
pgscale_sampler_past_memory_begin(void)
{
	PgscaleSamplerSpans *spans = palloc(sizeof(PgscaleSamplerSpans));
	TimestampTz begin = DT_NOEND;
	uint64		before;
	uint64		first;

	pgscale_preload_require();
	do
	{
		CHECK_FOR_INTERRUPTS();
		before = pgscale_sampler_history_begin_read();
		pgscale_sampler_history_spans(spans, &first);
	}
	while (!pgscale_sampler_history_unchanged(before));
	/* a clock that was set back makes a later one begin earlier */
	for (int i = 0; i < spans->n; i++)
		begin = Min(begin, spans->spans[i].begin);
	return begin;
}
