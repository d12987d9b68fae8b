/*-------------------------------------------------------------------------
 *
 * policy.h
 *	  The choice of pages that leave the cache, and nothing else.
 *
 * Pure: a policy calls no function of the server, allocates nothing and has no variables
 * of its own, so that the same files are compiled into the server and into the simulator
 * of bench/replacement.  The sweeper gives it one block of memory, and reports what the
 * backends did; the policy returns its decision.
 *
 * A decision is a page's rank, 0 .. PGSCALE_MAX_USAGE.  At 0 the page may leave.  The
 * ranks above are like the server's usage counts: how long the page should stay, in
 * comparison with the other pages.
 *
 * A page is known by a 32-bit hash of its name.  A hash that was read torn, or that two
 * pages have in common, only makes a choice worse: before the sweeper does anything to a
 * page, it compares the whole name.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SWEEPER_POLICIES_POLICY_H
#define PGSCALE_SWEEPER_POLICIES_POLICY_H

#include "postgres.h"

#include "base/shared_buffers.h"

typedef enum PgscaleSweeperPolicyKind
{
	PGSCALE_SWEEPER_CLOCK,
	PGSCALE_SWEEPER_HISTORY,
	PGSCALE_SWEEPER_ADAPTIVE
} PgscaleSweeperPolicyKind;

#define PGSCALE_SWEEPER_POLICIES	(PGSCALE_SWEEPER_ADAPTIVE + 1)

/* What a policy that chooses among others may choose: the clock, and half-lives. */
#define PGSCALE_SWEEPER_CANDIDATES	5

/* The sampled pages are divided into that many groups: how much these differ shows how sure a sum of theirs is. */
#define PGSCALE_SWEEPER_GROUPS		16

/* The candidates that are the clock and the policy "history", in all lists of them. */
#define PGSCALE_SWEEPER_CANDIDATE_CLOCK	0
#define PGSCALE_SWEEPER_CANDIDATE_HISTORY	3

/* Pages that a sweep passes for each that leaves, if it has the time. */
#define PGSCALE_SWEEPER_PASS_MOST	16

/* All counts are cumulative since init(). */
typedef struct PgscaleSweeperPolicyReport
{
	int			choice;			/* in force: 0 the clock, 1 .. the half-lives */
	int			preferred;		/* what "adaptive" would choose */
	double		half_lives[PGSCALE_SWEEPER_CANDIDATES]; /* in evictions a
														 * buffer; 0: the clock */
	uint64		arrivals;		/* of pages */
	uint64		evictions;
	uint64		switches;
	uint32		sample;			/* one page in so many is in the shadow caches */
	uint64		references;		/* to these pages */
	uint64		misses[PGSCALE_SWEEPER_CANDIDATES]; /* of them, by candidate */
	uint64		chosen_misses;	/* of the candidate that was in force */
	int			groups;			/* that have pages, 1 .. GROUPS */
	uint64		clock_group[PGSCALE_SWEEPER_GROUPS];	/* misses of the clock,
														 * by group */
	uint64		chosen_group[PGSCALE_SWEEPER_GROUPS];	/* chosen_misses, by
														 * group */
} PgscaleSweeperPolicyReport;

/* A page that is remembered over a restart of the server. */
typedef struct PgscaleSweeperRemembered
{
	uint32		page;			/* hash of its name, or one that the policy
								 * takes for that */
	float		score;			/* log2 of its count now */
} PgscaleSweeperRemembered;

/* No score is higher, or lower than this below zero. */
#define PGSCALE_SWEEPER_SCORE_MOST	32

typedef struct PgscaleSweeperPolicy
{
	const char *name;

	/* Bytes of memory for that many buffers. */
	Size		(*size) (int buffers);

	/* Begins; the memory is zeroed. */
	void		(*init) (void *memory, int buffers);

	/*
	 * Goes on with the memory of another policy, which has the same form and
	 * keeps all that it knows; or with its own, after some time in which
	 * pages came and went unseen.
	 */
	void		(*take_over) (void *memory);

	/*
	 * For each page that leaves, the sweep can pass that many, PASS_MOST or
	 * less: the fewer they are, the worse is the choice.  PASS_MOST at first.
	 */
	void		(*pass) (void *memory, float pages);

	/*
	 * Do sessions wait for writes, and hardly any for reads?  Then fewer
	 * writes are worth more reads.
	 */
	void		(*writes_first) (void *memory, bool first);

	/*
	 * The page in the buffer has come, and was used that many times since, or
	 * was used that many times more.
	 */
	void		(*arrived) (void *memory, int buf, uint32 page, int uses);
	void		(*used) (void *memory, int buf, uint32 page, int uses);

	/*
	 * The page has left the buffer: a backend took it, or it was dropped.
	 * Comes before the arrival of the buffer's next page.  Each call is a
	 * tick of the policy's time.
	 */
	void		(*evicted) (void *memory, int buf, uint32 page);

	/*
	 * Of a victim's neighbours in its file, which are written together with
	 * it, those with a rank up to this one leave the cache, too.  Writes are
	 * short if backends find nothing ready.
	 */
	uint8		(*neighbour_rank) (const void *memory, bool writes_short);

	/* The page's rank; changes nothing. */
	uint8		(*rank) (const void *memory, int buf);

	/*
	 * The sweep's hand has come to the page, which is not pinned.  Returns
	 * the rank with which the hand finds it; the clock decrements its count
	 * after that.  A page that is kept stays whatever its rank is.
	 */
	uint8		(*visit) (void *memory, int buf, bool kept);

	/*
	 * For how many rounds the server's hand shall leave a page alone that may
	 * not leave, 1 to 3.
	 */
	uint8		(*header) (const void *memory, int buf);

	/*
	 * What it has seen and chosen.
	 */
	void		(*report) (const void *memory, int buffers, PgscaleSweeperPolicyReport *report);

	/*
	 * What is kept over a restart of the server.  The score of the page in
	 * the buffer.  The next pages that have left and are remembered, at most
	 * that many, from *at on, which begins with 0: returns their number, 0 at
	 * the end.
	 */
	float		(*score) (const void *memory, int buf);
	int			(*departed) (const void *memory, uint32 *at, PgscaleSweeperRemembered *pages, int most);

	/*
	 * After init(): remembers a page as one that has left; or goes on with
	 * the choice that was preferred.
	 */
	void		(*remember) (void *memory, const PgscaleSweeperRemembered *page);
	void		(*resume) (void *memory, int choice);
} PgscaleSweeperPolicy;

/* By PgscaleSweeperPolicyKind. */
extern const PgscaleSweeperPolicy *const pgscale_sweeper_policies[PGSCALE_SWEEPER_POLICIES];

#define PGSCALE_SWEEPER_HEADER_MOST	3

/*
 * By counts of uses: twice used neighbours leave while writes are short, because then the
 * run that was written serves more transactions.  Else only unused ones do.
 */
static inline uint8
pgscale_sweeper_neighbour_usage(bool writes_short)
{
	return writes_short ? 2 : 0;
}

/*
 * The header of a page with that rank.  No more than one where that is all it was used:
 * VACUUM and COPY give up a buffer of their own that has more.
 */
static inline uint8
pgscale_sweeper_header_of_rank(uint8 rank)
{
	return Max(Min(rank, PGSCALE_SWEEPER_HEADER_MOST), 1);
}

#endif							/* PGSCALE_SWEEPER_POLICIES_POLICY_H */
