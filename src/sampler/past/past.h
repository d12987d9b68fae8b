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

/* timeline.c: average active sessions second by second, by wait class */

/* A second has the time of each class, of each event on CPU, and of being idle in a transaction: so many places. */
#define PGSCALE_TIMELINE_PLACES	19

/* The number of a minute, counted from 2000, among the minutes of one reading: an hour, and as long as it takes, have fewer. */
#define PGSCALE_TIMELINE_MINUTES	64

static inline uint8
pgscale_sampler_timeline_minute(int64 minute)
{
	return (uint64) minute % PGSCALE_TIMELINE_MINUTES;
}

/* The place of a wait event; and what there is in a place: an event, or the number of a class. */
extern uint32 pgscale_sampler_timeline_place(uint32 wait_event);
extern uint32 pgscale_sampler_timeline_event(uint32 place);

/*
 * In any process: the most connections at a tick of the seconds since then, of the last hour
 * at most; -1 if none of them was observed.
 */
extern int	pgscale_sampler_timeline_connections(TimestampTz since);

/* After the end of a tick: time of the last second that only now is known to be one. */
extern void pgscale_sampler_timeline_add_late(uint32 wait_event, uint64 ns);

/* After the end of a tick: time of its second that was shown as this wait, and was spent as this event on CPU. */
extern void pgscale_sampler_timeline_to_cpu(uint32 wait_event, uint32 cpu_event, uint64 ns);

typedef struct PgscaleSamplerPastRange
{
	TimestampTz begin;
	TimestampTz end;
} PgscaleSamplerPastRange;

/* Each text once, with a number in the order of their first use; 0: no text. */
typedef uint32 PgscaleSamplerPastText;
typedef struct PgscaleSamplerPastTexts PgscaleSamplerPastTexts;

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
#define PGSCALE_PAST_CLASSES		0x01	/* slices */
#define PGSCALE_PAST_WAITS			0x02	/* sums: type, query, event */
#define PGSCALE_PAST_DATABASES		0x04
#define PGSCALE_PAST_USERS			0x08
#define PGSCALE_PAST_APPLICATIONS	0x10
#define PGSCALE_PAST_BLOCKERS		0x20
#define PGSCALE_PAST_ALL			0x3F

/*
 * The length of the rows that the waits of memory are, in microseconds: they begin at its
 * multiples, counted from 2000.  PGSCALE_PAST_SAMPLES: each sample is a row;
 * PGSCALE_PAST_WHOLE: all of a period is one, with the range 0 to 0.
 */
#define PGSCALE_PAST_SAMPLES	INT64CONST(0)
#define PGSCALE_PAST_WHOLE	INT64CONST(-1)

/* Time that was waited in a row.  Hashed and compared as bytes. */
typedef struct PgscaleSamplerPastRow
{
	PgscaleSamplerPastRange range;
	PgscaleSamplerPastKey of;
} PgscaleSamplerPastRow;

typedef struct PgscaleSamplerPastSum
{
	PgscaleSamplerPastRow key;
	char		status;
	double		ms;
} PgscaleSamplerPastSum;

/* Time that is known, or known in part. */
typedef struct PgscaleSamplerPastSpan
{
	PgscaleSamplerPastRange range;	/* first, for past.c's qsort() */
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

/* A period, as it is read and added up. */
typedef struct PgscaleSamplerPast
{
	uint32		parts;			/* what is wanted */
	int64		row_us;
	PgscaleSamplerPastTexts *texts;
	struct past_sums_hash *hash;	/* NULL if no waits are wanted */
	struct WaitRows *rows;		/* past_waits(): each wait is a row of it at
								 * once, and is not added up */
	PgscaleSamplerPastSum *sums;	/* in the end, all of the hash */
	int64		nsums;
	PgscaleSamplerPastSpan *spans;	/* in any order */
	int64		nspans;
	int64		spans_size;
	PgscaleSamplerPastSlice *slices;
	int64		nslices;
	int64		slices_size;
	double		known_ms;
} PgscaleSamplerPast;

/* past.c: a period, from the archive and from memory, so that no time counts twice. */

/*
 * At least these parts, in the current memory context, or what past_keep() has of the period.  node: of
 * the server of that name, of which the archive has rows; NULL: of this one; "": what this one's memory has.
 */
extern const PgscaleSamplerPast *pgscale_sampler_past_sums(const PgscaleSamplerPastRange *period, uint32 parts, const char *node);

/* The argument node of a function, or NULL; and is that this server, whose memory counts? */
extern const char *pgscale_sampler_past_node(FunctionCallInfo fcinfo, int argument);
extern bool pgscale_sampler_past_remembers(const char *node);

/* Without any time yet, in the current memory context; texts may be another one's, or NULL. */
extern PgscaleSamplerPast *pgscale_sampler_past_create(uint32 parts, int64 row_us, PgscaleSamplerPastTexts *texts);

/* Add to it what was read. */
extern void pgscale_sampler_past_add_span(PgscaleSamplerPast *past, const PgscaleSamplerPastRange *range, double known_ms,
										  const char *source, bool other_node);
extern void pgscale_sampler_past_add_wait(PgscaleSamplerPast *past, const PgscaleSamplerPastRange *range,
										  const PgscaleSamplerPastKey *of, double ms);
extern void pgscale_sampler_past_add_class(PgscaleSamplerPast *past, const PgscaleSamplerPastRange *range,
										   PgscaleSamplerPastText class, double ms);

/*
 * The period that the first two arguments of a function are, since and until: with their
 * defaults, without the future and what was before all that is known.
 */
extern PgscaleSamplerPastRange pgscale_sampler_past_period(FunctionCallInfo fcinfo, const char *node);

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

/*
 * past_memory.c: what the history has of these ranges, which must be in order; and the
 * begin of the oldest time that it knows, or DT_NOEND.
 */
extern void pgscale_sampler_past_read_memory(const PgscaleSamplerPastRange *ranges, int nranges, PgscaleSamplerPast *past);
extern TimestampTz pgscale_sampler_past_memory_begin(void);

/*
 * past_archive.c: the rows of a node, or if that is NULL of the history of the primary, as far as they lie in the period, in any order;
 * and the begin of its oldest row, or DT_NOEND.
 */
extern void pgscale_sampler_past_read_archive(const PgscaleSamplerPastRange *period, const char *node, PgscaleSamplerPast *past);
extern TimestampTz pgscale_sampler_past_archive_begin(bool of_node);

/*
 * What the timeline has of these ranges: time by minute and place, as if all of each
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

#endif							/* PGSCALE_PAST_H */
