/*-------------------------------------------------------------------------
 *
 * page_history.h
 *	  Scores of pages, and their history: see page_history.c.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SWEEPER_POLICY_PAGE_HISTORY_H
#define PGSCALE_SWEEPER_POLICY_PAGE_HISTORY_H

#include "postgres.h"

#include <math.h>

#include "base/shared_buffers.h"

/*
 * How often a page was used: log2 of a count that halves over a half-life, as it was at
 * the page's last use.  The tag is for the holder's use.
 */
typedef struct PgscaleSweeperScore
{
	uint32		at;				/* time of the last use */
	uint16		count_log;		/* in units of 1 / SCORE_UNIT */
	uint16		tag;
} PgscaleSweeperScore;

#define PGSCALE_SWEEPER_SCORE_UNIT	2048.0f

/* log2 of the count that a page may have which was idle for a half-life. */
#define PGSCALE_SWEEPER_IDLE_LIMIT	1.5f

/* The score's present value; "decay" is half-lives a tick of the time. */
static inline float
pgscale_sweeper_score(const PgscaleSweeperScore *s, uint32 now, float decay)
{
	return s->count_log / PGSCALE_SWEEPER_SCORE_UNIT - (uint32) (now - s->at) * decay;
}

/* The page is used once more. */
static inline void
pgscale_sweeper_score_use(PgscaleSweeperScore *s, uint32 now, float decay)
{
	const float score = pgscale_sweeper_score(s, now, decay);

	s->count_log = (uint16) Min(log2f(1 + exp2f(score)) * PGSCALE_SWEEPER_SCORE_UNIT, PG_UINT16_MAX);
	s->at = now;
}

/* The page is used for the first time. */
static inline void
pgscale_sweeper_score_first(PgscaleSweeperScore *s, uint32 now)
{
	s->count_log = 0;
	s->at = now;
}

/* log2, or up to 0.09 less, in a fourth of the time: a float's bits begin with its exponent. */
static inline float
pgscale_sweeper_rough_log2(float x)
{
	uint32		bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits / (float) (1 << 23) - 127;
}

/*
 * What keeping the page is worth: its score, but no more than fits the time for which it
 * was not used, see page_history.c.
 */
static inline float
pgscale_sweeper_score_worth(const PgscaleSweeperScore *s, uint32 now, float decay)
{
	const float idle = (uint32) (now - s->at) * decay;
	const float score = s->count_log / PGSCALE_SWEEPER_SCORE_UNIT - idle;

	return idle > 0 ? Min(score, PGSCALE_SWEEPER_IDLE_LIMIT - pgscale_sweeper_rough_log2(idle)) : score;
}

/* A page that is remembered over a restart of the server. */
typedef struct PgscaleSweeperRemembered
{
	uint32		page;			/* hash of its name, or one that is taken for
								 * that */
	float		score;			/* log2 of its count now */
} PgscaleSweeperRemembered;

/* No score is higher, or lower than this below zero. */
#define PGSCALE_SWEEPER_SCORE_MOST	32

/* The history's part of a page's tag, lowest bits; in it a page's rank. */
#define PGSCALE_SWEEPER_TAG_BITS	5
#define PGSCALE_SWEEPER_TAG_RANK	0x001C

/* Pages that a sweep passes for each that leaves, if it has the time. */
#define PGSCALE_SWEEPER_PASS_MOST	16

/* Limits between the ranks. */
#define PGSCALE_SWEEPER_LIMITS		PGSCALE_MAX_USAGE

typedef struct PgscaleSweeperHistory
{
	int			buffers;
	int			ghost_sets;
	uint32		now;			/* the time, in ticks; wraps around */
	float		decay;			/* half-lives a tick */
	float		expected;		/* uses by the scores, mean of last visits */
	float		seen;			/* uses that there were */
	float		hurry;			/* ticks an eviction, 1 or more */
	float		owed;			/* part of a tick */
	int			last;			/* buffer that was visited */
	uint32		lap_began;		/* when the hand was last at the first buffer */
	uint32		lap;			/* ticks of its last round */
	float		leaving;		/* part of the pages that has rank 0 */
	float		limits[PGSCALE_SWEEPER_LIMITS]; /* worth below which a page
												 * has rank 0, 1, ... */
	float		spread;			/* mean distance from the middle limit */
	PgscaleSweeperScore pages[FLEXIBLE_ARRAY_MEMBER];	/* by buffer; then
														 * ghosts, aligned */
} PgscaleSweeperHistory;

extern Size pgscale_sweeper_history_size(int buffers);

/* The memory is zeroed.  half_life: in evictions a buffer. */
extern void pgscale_sweeper_history_init(PgscaleSweeperHistory *history, int buffers, float half_life);
extern void pgscale_sweeper_history_half_life(PgscaleSweeperHistory *history, float half_life);

/*
 * For each page that leaves, the sweep can pass that many, PASS_MOST or less: the fewer they
 * are, the worse is the choice.  PASS_MOST at first.
 */
extern void pgscale_sweeper_history_pass(PgscaleSweeperHistory *history, float pages);

/* As in policy.h. */
extern void pgscale_sweeper_history_arrived(PgscaleSweeperHistory *history, int buf, uint32 page);
extern void pgscale_sweeper_history_used(PgscaleSweeperHistory *history, int buf);
extern void pgscale_sweeper_history_evicted(PgscaleSweeperHistory *history, int buf, uint32 page);
extern uint8 pgscale_sweeper_history_rank(const PgscaleSweeperHistory *history, int buf);
extern uint8 pgscale_sweeper_history_visit(PgscaleSweeperHistory *history, int buf, bool kept);

/* What is remembered of the page is needed soon. */
extern void pgscale_sweeper_history_prefetch(PgscaleSweeperHistory *history, uint32 page);

/* The score of the page in the buffer. */
extern float pgscale_sweeper_history_score(const PgscaleSweeperHistory *history, int buf);

/*
 * The next pages that have left and are remembered, at most that many, from *at on, which
 * begins with 0: returns their number, 0 at the end.
 */
extern int	pgscale_sweeper_history_departed(const PgscaleSweeperHistory *history, uint32 *at,
											 PgscaleSweeperRemembered *pages, int most);

/* After init(): remembers a page as one that has left. */
extern void pgscale_sweeper_history_remember(PgscaleSweeperHistory *history, const PgscaleSweeperRemembered *page);

/* A number from 0 to n - 1, of the hash's upper bits. */
static inline uint32
pgscale_sweeper_hash_part(uint32 hash, uint32 n)
{
	return ((uint64) hash * n) >> 32;
}

/* 16 bits of a hash that depend little on its upper ones; never 0. */
static inline uint16
pgscale_sweeper_hash_tag(uint32 hash)
{
	return Max((uint16) (hash ^ hash >> 16), 1);
}

#endif							/* PGSCALE_SWEEPER_POLICY_PAGE_HISTORY_H */
