/*-------------------------------------------------------------------------
 *
 * policy.h
 *	  The choice of pages that leave the cache, and nothing else.
 *
 * Pure: the policy calls no function of the server, allocates nothing and has no variables
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
#ifndef PGSCALE_SWEEPER_POLICY_POLICY_H
#define PGSCALE_SWEEPER_POLICY_POLICY_H

#include "postgres.h"

#include "sweeper/policy/page_history.h"

/* What it chooses among: the clock, and half-lives. */
#define PGSCALE_SWEEPER_CANDIDATES	5

/* The clock, in all lists of them. */
#define PGSCALE_SWEEPER_CANDIDATE_CLOCK	0

/* The sampled pages are divided into that many groups: how much these differ shows how sure a sum of theirs is. */
#define PGSCALE_SWEEPER_GROUPS		16

/* All counts are cumulative since init(). */
typedef struct PgscaleSweeperPolicyReport
{
	int			choice;			/* in force: 0 the clock, 1 .. the half-lives */
	int			preferred;		/* choice, were the clock not forced */
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
	uint64		clock_group[PGSCALE_SWEEPER_GROUPS];	/* misses of the clock */
	uint64		chosen_group[PGSCALE_SWEEPER_GROUPS];	/* of chosen_misses */
} PgscaleSweeperPolicyReport;

/* Its memory. */
typedef struct PgscaleSweeperPolicy PgscaleSweeperPolicy;

/* Bytes for that many buffers. */
extern Size pgscale_sweeper_policy_size(int buffers);

/* Begins; the memory is zeroed. */
extern void pgscale_sweeper_policy_init(PgscaleSweeperPolicy *p, int buffers);

/*
 * From now on the server chooses the pages that leave, by its clock, and the policy only
 * learns; or no longer.  In either case pages may have come and gone unseen before.
 */
extern void pgscale_sweeper_policy_observe(PgscaleSweeperPolicy *p, bool observes);

/* Do sessions wait for writes, and hardly any for reads?  Then fewer writes are worth more reads. */
extern void pgscale_sweeper_policy_writes_first(PgscaleSweeperPolicy *p, bool first);

/* The page in the buffer has come, and was used that many times since, or was used that many times more. */
extern void pgscale_sweeper_policy_arrived(PgscaleSweeperPolicy *p, int buf, uint32 page, int uses);
extern void pgscale_sweeper_policy_used(PgscaleSweeperPolicy *p, int buf, uint32 page, int uses);

/*
 * The page has left the buffer: a backend took it, or it was dropped.  Comes before the
 * arrival of the buffer's next page.  Each call is a tick of the policy's time.
 */
extern void pgscale_sweeper_policy_evicted(PgscaleSweeperPolicy *p, int buf, uint32 page);

/*
 * Of a victim's neighbours in its file, which are written together with it, those with a
 * rank up to this one leave the cache, too.  Writes are short if backends find nothing ready.
 */
extern uint8 pgscale_sweeper_policy_neighbour_rank(const PgscaleSweeperPolicy *p, bool writes_short);

/* The page's rank; changes nothing. */
extern uint8 pgscale_sweeper_policy_rank(const PgscaleSweeperPolicy *p, int buf);

/*
 * The sweep's hand has come to the page, which is not pinned.  Returns the rank with which
 * the hand finds it; the clock decrements its count after that.  A page that is kept stays
 * whatever its rank is.
 */
extern uint8 pgscale_sweeper_policy_visit(PgscaleSweeperPolicy *p, int buf, bool kept);

/* What it has seen and chosen. */
extern void pgscale_sweeper_policy_report(const PgscaleSweeperPolicy *p, PgscaleSweeperPolicyReport *report);

/* The scores of pages, which it keeps whatever its choice is. */
extern PgscaleSweeperHistory *pgscale_sweeper_policy_history(const PgscaleSweeperPolicy *p);

/* After init(), and before the history remembers pages: goes on with the choice that was preferred. */
extern void pgscale_sweeper_policy_resume(PgscaleSweeperPolicy *p, int choice);

#endif							/* PGSCALE_SWEEPER_POLICY_POLICY_H */
