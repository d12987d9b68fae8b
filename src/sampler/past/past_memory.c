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

#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/texts.h"
#include "base/wait_events.h"
#include "sampler/past/history.h"
#include "sampler/past/past.h"
#include "sampler/profile/profile.h"
#include "sampler/samples.h"

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
	uint8		unused[4];
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

/* The waits of a class, and each event on CPU, by its number. */
#define DIVIDED		(PGSCALE_WAIT_BLOCKED + 1)

typedef struct HistorySums
{
	PgscaleSamplerPast *past;	/* to which it is added in the end */
	const PgscaleSamplerPastRange *ranges;	/* in order, none within another */
	int			nranges;
	PgscaleSamplerSpans *spans;
	PgscaleSamplerPastSeconds seconds;	/* of the ranges, as far as the
										 * samples know them */
	double		timed_us[PGSCALE_TIMELINE_MINUTES][PGSCALE_TIMELINE_PLACES];	/* of the samples */
	double		period_us[PGSCALE_TIMELINE_PLACES]; /* in all minutes */
	double		unsampled_us[PGSCALE_TIMELINE_PLACES][DIVIDED]; /* the timeline's, of
																 * minutes without such
																 * samples */
	history_sums_hash *hash;
	int64		nslices;		/* of the past, before these */
	uint64		next;			/* number of the next sample */
	bool		partial;		/* of the sample at this time some are gone */
	TimestampTz partial_at;

	/* what the numbers in the hash stand for */
	PgscaleSamplerLabels *labels;
	PgscaleSamplerRoots *roots;
} HistorySums;

/* A wait, as it is added to the past: all but the event of key is set. */
typedef struct TimedWait
{
	const HistoryWaitKey *of;
	PgscaleSamplerPastKey key;
	bool		no_event;		/* only the class is known */
} TimedWait;

static void
forget_sums(HistorySums *sums)
{
	history_sums_reset(sums->hash);
	memset(sums->timed_us, 0, sizeof(sums->timed_us));
	sums->past->nslices = sums->nslices;
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
	if (size == PGSCALE_PAST_SAMPLES)
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
	HistoryWait *wait;
	bool		found;

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
	wait = history_sums_insert(sums->hash, key, &found);
	wait->us = (found ? wait->us : 0) + us;
	if (minute > 0)
		sums->timed_us[minute - 1][pgscale_sampler_timeline_place(sample->wait_event)] += us;
}

/* Adds all of its time within a row, minute by minute where the timeline has it. */
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

/*
 * If samples were overwritten while others were read, then all that are older count no
 * more, nor does a tick that has lost some of its samples.
 */
static void
visit_sample(uint64 number, const PgscaleSamplerSample *sample, void *arg)
{
	HistorySums *sums = arg;
	PgscaleSamplerPast *past = sums->past;
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
		const PgscaleSamplerPastRange part = {Max(begin, range->begin), Min(sample->sampled_at, range->end)};

		for (TimestampTz at = part.begin, next; at < part.end; at = next)
		{
			PgscaleSamplerPastRange row;

			next = past_row(past->row_us, range, at, part.end, &row);
			add_by_minute(sums, sample, &row, at, next);
		}
		if ((past->parts & PGSCALE_PAST_CLASSES) && pgscale_sampler_past_is_session(pgscale_sampler_type_name(sample->kind)))
			pgscale_sampler_past_add_class(past, &part, pgscale_sampler_past_class(past->texts, sample->wait_event),
										   (part.end - part.begin) / 1000.0);
	}
}

/* Reads the timeline of the times that the samples know: the spans, of which a clock that was set back may make two overlap. */
static void
read_seconds(HistorySums *sums)
{
	const PgscaleSamplerSpans *spans = sums->spans;
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

/* The sums, and the spans that they are of; again after a reset. */
static void
read_sums(void *arg)
{
	HistorySums *sums = arg;
	PgscaleSamplerSpans *spans = sums->spans;
	uint64		first;

	forget_sums(sums);
	pgscale_sampler_history_spans(spans, &first);
	sums->next = first;
	sums->partial = false;
	sums->partial_at = DT_NOBEGIN;
	read_seconds(sums);
	if (!pgscale_sampler_history_visit(first, spans->end, visit_sample, sums))
	{
		forget_sums(sums);
		spans->n = 0;
	}
	/* some that were known were overwritten meanwhile */
	if (spans->n == 0 || sums->partial_at != DT_NOBEGIN)
		read_seconds(sums);
}

/* The columns that these numbers stand for, for the role that reads them. */
static void
begin_wait(HistorySums *sums, const HistoryWaitKey *of, TimedWait *wait)
{
	PgscaleSamplerPastTexts *texts = sums->past->texts;
	const char *application_name;
	const char *address;
	const char *usename = pgscale_text_name_of(of->userid, true);
	const char *root_application = pgscale_sampler_root_application(sums->roots, &of->root);
	PgscaleSamplerPastKey *key = &wait->key;

	memset(wait, 0, sizeof(*wait));
	wait->of = of;
	pgscale_sampler_label(sums->labels, of->label, of->userid, &application_name, &address);
	key->queryid = of->queryid;
	key->datid = of->datid;
	key->backend_type = pgscale_sampler_past_number(texts, pgscale_sampler_type_name(of->kind));
	/* of a dropped database the key has the OID, of a role this */
	if (!usename && OidIsValid(of->userid))
		usename = psprintf("role %u", of->userid);
	key->datname = pgscale_sampler_past_number(texts, pgscale_text_name_of(of->datid, false));
	key->usename = pgscale_sampler_past_number(texts, usename);
	key->application_name = pgscale_sampler_past_number(texts, application_name);
	if (of->root_pid == 0)
		key->blocker = pgscale_sampler_past_number(texts, "prepared transaction");
	else if (of->root_pid != PGSCALE_SAMPLER_NO_PID)
	{
		const bool	named = root_application && root_application[0];

		key->blocker = pgscale_sampler_past_number(texts, psprintf("%d%s%s", of->root_pid, named ? " " : "",
																   named ? root_application : ""));
	}
}

/* An event on CPU that the timeline has, and no sample. */
static bool
is_part_of_cpu(uint32 wait_event)
{
	return wait_event != PGSCALE_WAIT_CPU && wait_event <= PGSCALE_WAIT_BLOCKED;
}

/*
 * How the timeline's time of a class in a minute is divided: the waits themselves first, and then
 * the events on CPU.  Samples on CPU are all in one event, so they are split as the timeline is; but
 * time at the CPUs within a wait belongs to those that showed the waits.  What a class has less in the
 * timeline than in the samples was such time: what showed such a wait had ended it, and ran or queued.
 */
static void
divide_class(const HistorySums *sums, int minute, uint32 place, double divided[DIVIDED])
{
	const double *us = sums->seconds.place_us[minute];
	const bool	on_cpu = pgscale_sampler_timeline_event(place) == PGSCALE_WAIT_CPU;
	double		lost = 0;
	double		all_lost = 0;

	for (uint32 other = 0; other < PGSCALE_TIMELINE_PLACES; other++)
		if (pgscale_sampler_timeline_event(other) > PGSCALE_WAIT_BLOCKED)
		{
			const double other_lost = Max(sums->timed_us[minute][other] - us[other], 0);

			all_lost += other_lost;
			if (other == place)
				lost = other_lost;
		}
	divided[0] = us[place];
	for (uint32 event = PGSCALE_WAIT_RUNNING; event <= PGSCALE_WAIT_BLOCKED; event++)
	{
		const bool	in_wait = event == PGSCALE_WAIT_RUNNING_IN_WAIT || event == PGSCALE_WAIT_QUEUED_IN_WAIT;
		double		part = on_cpu ? 1 : 0;

		if (in_wait && all_lost > 0)
			part = lost / all_lost;
		divided[event] = us[pgscale_sampler_timeline_place(event)] * part;
	}
}

/* Adds time that the wait was in this event. */
static void
add_event(HistorySums *sums, const TimedWait *wait, uint32 wait_event, double us)
{
	PgscaleSamplerPastTexts *texts = sums->past->texts;
	const PgscaleSamplerPastRange range = {wait->of->begin, wait->of->end};
	PgscaleSamplerPastKey key = wait->key;

	if (us <= 0)
		return;
	key.event_type = pgscale_sampler_past_number(texts, pgscale_wait_event_type(wait_event));
	key.event = wait->no_event ? key.event_type : pgscale_sampler_past_number(texts, pgscale_wait_event_name(wait_event));
	pgscale_sampler_past_add_wait(sums->past, &range, &key, us / 1000.0);
}

/* Adds a part of the time of a class, so divided. */
static void
add_divided(HistorySums *sums, const TimedWait *wait, const double divided[DIVIDED], double part)
{
	add_event(sums, wait, wait->of->wait_event, divided[0] * part);
	for (uint32 event = PGSCALE_WAIT_RUNNING; event <= PGSCALE_WAIT_BLOCKED; event++)
		add_event(sums, wait, event, divided[event] * part);
}

/* For the sum of a whole period: of each class the time in minutes that have no sample of it. */
static void
sum_unsampled(HistorySums *sums)
{
	for (int minute = 0; minute < PGSCALE_TIMELINE_MINUTES; minute++)
	{
		for (uint32 place = 0; place < PGSCALE_TIMELINE_PLACES; place++)
		{
			double		divided[DIVIDED];

			sums->period_us[place] += sums->timed_us[minute][place];
			if (sums->timed_us[minute][place] > 0 || is_part_of_cpu(pgscale_sampler_timeline_event(place)))
				continue;
			divide_class(sums, minute, place, divided);
			for (int i = 0; i < DIVIDED; i++)
				sums->unsampled_us[place][i] += divided[i];
		}
	}
}

/* Classes that the timeline has in a minute, and no sample: none of the minute; or of the period, if that is one sum. */
static void
add_unsampled(HistorySums *sums, int64 minute, const PgscaleSamplerPastRange *known)
{
	const PgscaleSamplerPastRange range = {Max(minute * USECS_PER_MINUTE, known->begin), Min((minute + 1) * USECS_PER_MINUTE, known->end)};
	HistoryWaitKey key = {.root_pid = PGSCALE_SAMPLER_NO_PID,.kind = (PgscaleProcKind) B_BACKEND};
	TimedWait	wait;

	key.minute = pgscale_sampler_timeline_minute(minute) + 1;
	begin_wait(sums, &key, &wait);
	for (uint32 place = 0; place < PGSCALE_TIMELINE_PLACES; place++)
	{
		double		divided[DIVIDED];

		key.wait_event = pgscale_sampler_timeline_event(place);
		if (sums->timed_us[key.minute - 1][place] > 0 || sums->period_us[place] > 0 || is_part_of_cpu(key.wait_event))
			continue;
		wait.no_event = key.wait_event != PGSCALE_WAIT_CPU && key.wait_event != PGSCALE_WAIT_IDLE_IN_TRANSACTION;
		divide_class(sums, key.minute - 1, place, divided);
		for (TimestampTz begin = range.begin, next; begin < range.end; begin = next)
		{
			PgscaleSamplerPastRange row;

			next = past_row(sums->past->row_us, known, begin, range.end, &row);
			key.begin = row.begin;
			key.end = row.end;
			add_divided(sums, &wait, divided, (next - begin) / (double) (range.end - range.begin));
		}
	}
}

/* Adds the sums to the past: those of sessions made to agree with the timeline. */
static void
add_sums(HistorySums *sums)
{
	const PgscaleSamplerPastSeconds *seconds = &sums->seconds;
	const bool	whole = sums->past->row_us == PGSCALE_PAST_WHOLE;
	history_sums_iterator it;
	HistoryWait *sum;

	if (whole)
		sum_unsampled(sums);
	history_sums_start_iterate(sums->hash, &it);
	while ((sum = history_sums_iterate(sums->hash, &it)) != NULL)
	{
		const uint32 place = pgscale_sampler_timeline_place(sum->key.wait_event);
		double		divided[DIVIDED];
		TimedWait	wait;

		CHECK_FOR_INTERRUPTS();
		begin_wait(sums, &sum->key, &wait);
		if (sum->key.minute == 0)
		{
			add_event(sums, &wait, sum->key.wait_event, sum->us);
			continue;
		}
		divide_class(sums, sum->key.minute - 1, place, divided);
		add_divided(sums, &wait, divided, sum->us / sums->timed_us[sum->key.minute - 1][place]);
		if (whole)
			add_divided(sums, &wait, sums->unsampled_us[place], sum->us / sums->period_us[place]);
	}
	if (seconds->n > 0)
	{
		const PgscaleSamplerPastRange known = {seconds->ranges[0].begin, seconds->ranges[seconds->n - 1].end};
		const int64 last = pgscale_sampler_past_floor(known.end - 1, USECS_PER_MINUTE);

		for (int64 minute = pgscale_sampler_past_floor(known.begin, USECS_PER_MINUTE); minute <= last; minute++)
			add_unsampled(sums, minute, &known);
	}
}

void
pgscale_sampler_past_read_memory(const PgscaleSamplerPastRange *ranges, int nranges, PgscaleSamplerPast *past)
{
	HistorySums sums = {.past = past,.ranges = ranges,.nranges = nranges,.nslices = past->nslices};
	PgscaleSamplerSpans *spans = palloc(sizeof(PgscaleSamplerSpans));

	sums.spans = spans;
	sums.hash = history_sums_create(CurrentMemoryContext, 1024, NULL);
	sums.labels = pgscale_sampler_labels_read_with(read_sums, &sums);
	for (int i = 0; i < spans->n; i++)
	{
		const TimestampTz begin = Max(spans->spans[i].begin, sums.partial_at);
		const TimestampTz end = spans->spans[i].end;

		for (int j = pgscale_sampler_past_find(ranges, nranges, begin); j < nranges && ranges[j].begin < end; j++)
		{
			const PgscaleSamplerPastRange part = {Max(begin, ranges[j].begin), Min(end, ranges[j].end)};

			if (part.begin < part.end)
				pgscale_sampler_past_add_span(past, &part, (part.end - part.begin) / 1000.0, "memory", false);
		}
	}

	if (past->hash)
	{
		sums.roots = pgscale_sampler_roots_copy();
		add_sums(&sums);
	}
	history_sums_destroy(sums.hash);
	pfree(spans);
}

TimestampTz
pgscale_sampler_past_memory_begin(void)
{
	PgscaleSamplerSpans *spans = palloc(sizeof(PgscaleSamplerSpans));
	TimestampTz begin = DT_NOEND;
	uint64		first;

	pgscale_preload_require();
	pgscale_sampler_history_spans(spans, &first);
	/* a clock that was set back makes a later one begin earlier */
	for (int i = 0; i < spans->n; i++)
		begin = Min(begin, spans->spans[i].begin);
	return begin;
}
