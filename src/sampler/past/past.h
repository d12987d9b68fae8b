/*-------------------------------------------------------------------------
 *
 * past.h
 *	  The waits of a period, from the archive and from memory.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_PAST_H
#define PGSCALE_PAST_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "fmgr.h"

#include "sampler/past/timeline.h"

typedef struct PgscaleSamplerPastRange
{
	TimestampTz begin;
	TimestampTz end;
} PgscaleSamplerPastRange;

/*
 * past_texts.c: each text once, with a number in the order of their first use; 0: no text.
 * In the memory context in which it was made.
 */
typedef uint32 PgscaleSamplerPastText;
typedef struct PgscaleSamplerPastTexts PgscaleSamplerPastTexts;

extern PgscaleSamplerPastTexts *pgscale_sampler_past_texts_create(void);
extern PgscaleSamplerPastText pgscale_sampler_past_number(PgscaleSamplerPastTexts *texts, const char *text);
extern PgscaleSamplerPastText pgscale_sampler_past_number_of(PgscaleSamplerPastTexts *texts, const char *bytes, int len);
extern const char *pgscale_sampler_past_text(const PgscaleSamplerPastTexts *texts, PgscaleSamplerPastText number);

/* The class of a wait event, where sessions that idle in a transaction have a class of their own. */
extern PgscaleSamplerPastText pgscale_sampler_past_class(PgscaleSamplerPastTexts *texts, uint32 wait_event);

/* All columns that separate waits.  Hashed and compared as bytes. */
typedef struct PgscaleSamplerPastKey
{
	int64		queryid;		/* or 0 */
	Oid			datid;			/* or InvalidOid */
	PgscaleSamplerPastText backend_type;
	PgscaleSamplerPastText datname;
	PgscaleSamplerPastText usename;
	PgscaleSamplerPastText application_name;
	PgscaleSamplerPastText event_type;
	PgscaleSamplerPastText event;
	PgscaleSamplerPastText blocker;
} PgscaleSamplerPastKey;

/* Client backends, their parallel workers, and waits that are not separate, most of which are theirs. */
extern bool pgscale_sampler_past_is_session(const char *backend_type);

/* What of a period is wanted: of a key, the columns without their part may be missing. */
#define PGSCALE_PAST_CLASSES		0x01	/* visit_class */
#define PGSCALE_PAST_WAITS			0x02	/* visit_wait: type, query, event */
#define PGSCALE_PAST_DATABASES		0x04
#define PGSCALE_PAST_USERS			0x08
#define PGSCALE_PAST_APPLICATIONS	0x10
#define PGSCALE_PAST_BLOCKERS		0x20
#define PGSCALE_PAST_ALL			0x3F

typedef struct PgscaleSamplerPastReader
{
	uint32		parts;			/* what is wanted */
	PgscaleSamplerPastTexts *texts;
	void	   *arg;

	/*
	 * time that is known, or known in part; node: whose it is, NULL: this
	 * server's
	 */
	void		(*visit_span) (const PgscaleSamplerPastRange *range, double known_ms, bool archived, const char *node, void *arg);
	/* time that was waited in it */
	void		(*visit_wait) (const PgscaleSamplerPastRange *range, const PgscaleSamplerPastKey *key, double ms, void *arg);
	/* of that, the sessions' time by class of the event only */
	void		(*visit_class) (const PgscaleSamplerPastRange *range, PgscaleSamplerPastText class, double ms, void *arg);
} PgscaleSamplerPastReader;

/*
 * past_memory.c: what the history has of these ranges, which must be in order.  bucket_us: its
 * waits as sums of times so long, counted from 2000; PGSCALE_PAST_LOOKS: of each look;
 * PGSCALE_PAST_WHOLE: of all that is wanted.
 */
#define PGSCALE_PAST_LOOKS	INT64CONST(0)
#define PGSCALE_PAST_WHOLE	INT64CONST(-1)

extern void pgscale_sampler_past_read_memory(const PgscaleSamplerPastRange *ranges, int nranges, int64 bucket_us,
											 const PgscaleSamplerPastReader *reader);

/* Begin of the oldest time that it knows, or DT_NOEND. */
extern TimestampTz pgscale_sampler_past_memory_begin(void);

/*
 * timeline.c: what it has of these ranges, second by second: its spans, and what sessions
 * waited by class.  It has no single waits.
 */
extern void pgscale_sampler_past_read_timeline(const PgscaleSamplerPastRange *ranges, int nranges,
											   const PgscaleSamplerPastReader *reader);

/*
 * What it has of these ranges: time by minute and place (timeline.h), as if all of each
 * second had been observed, and which times it knows, in order; allocated in the current
 * memory context.
 */
typedef struct PgscaleSamplerPastSeconds
{
	double		place_us[PGSCALE_TIMELINE_MINUTES][PGSCALE_TIMELINE_PLACES];
	PgscaleSamplerPastRange *ranges;
	int			n;
} PgscaleSamplerPastSeconds;

extern void pgscale_sampler_past_add_timeline(const PgscaleSamplerPastRange *ranges, int nranges, PgscaleSamplerPastSeconds *sum);

/* Begin of the oldest second that it has, or DT_NOEND. */
extern TimestampTz pgscale_sampler_past_timeline_begin(void);

/* past_archive.c: the rows of the archive, as far as they lie in the period, in any order. */
extern void pgscale_sampler_past_read_archive(const PgscaleSamplerPastRange *period, const PgscaleSamplerPastReader *reader);

/* Begin of its oldest row, or DT_NOEND. */
extern TimestampTz pgscale_sampler_past_archive_begin(void);

/*
 * past.c: both, so that no time counts twice: what the archive has is taken from there.
 * The reader sees the archive's part first.
 */
extern void pgscale_sampler_past_read(const PgscaleSamplerPastRange *period, int64 bucket_us, PgscaleSamplerPastReader *reader);

/*
 * The period that the first two arguments of a function are, since and until: with their
 * defaults, without the future and what was before all that is known.
 */
extern PgscaleSamplerPastRange pgscale_sampler_past_period(FunctionCallInfo fcinfo);

/* What is left of a period without these ranges, in order.  Sorts them. */
extern PgscaleSamplerPastRange *pgscale_sampler_past_subtract(const PgscaleSamplerPastRange *period,
															  PgscaleSamplerPastRange *ranges, int n, int *nleft);

/* Divides and rounds down, also a time before 2000, which is negative. */
static inline int64
pgscale_sampler_past_floor(int64 value, int64 by)
{
	return value / by - (value % by < 0 ? 1 : 0);
}

/* Of ranges in order, none within another: the first one that ends after a time. */
extern int	pgscale_sampler_past_find(const PgscaleSamplerPastRange *ranges, int n, TimestampTz at);

/* sums.c: a period, added up */

typedef struct PgscaleSamplerPastSum
{
	PgscaleSamplerPastKey key;
	char		status;
	double		ms;
} PgscaleSamplerPastSum;

typedef struct PgscaleSamplerPastSpan
{
	PgscaleSamplerPastRange range;
	double		known_ms;
	PgscaleSamplerPastText source;
	bool		other_node;		/* another server's */
} PgscaleSamplerPastSpan;

/* Time of sessions in a class of waits, spread evenly over the range. */
typedef struct PgscaleSamplerPastSlice
{
	PgscaleSamplerPastRange range;
	PgscaleSamplerPastText class;
	double		ms;
} PgscaleSamplerPastSlice;

typedef struct PgscaleSamplerPast
{
	PgscaleSamplerPastTexts *texts;
	PgscaleSamplerPastSum *sums;
	int64		nsums;
	PgscaleSamplerPastSpan *spans;	/* in any order */
	int64		nspans;
	PgscaleSamplerPastSlice *slices;
	int64		nslices;
	double		known_ms;
} PgscaleSamplerPast;

/* At least these parts, in the current memory context, or what past_keep() has of the period. */
extern const PgscaleSamplerPast *pgscale_sampler_past_sums(const PgscaleSamplerPastRange *period, uint32 parts);

/* What the timeline has of these ranges, which has no sums, with the numbers of these texts. */
extern const PgscaleSamplerPast *pgscale_sampler_past_seconds(const PgscaleSamplerPastRange *ranges, int nranges,
															  PgscaleSamplerPastTexts *texts);

#endif							/* PGSCALE_PAST_H */
