/*-------------------------------------------------------------------------
 *
 * known_pages.h
 *	  What a sweeper knows of the pages in its buffers, and what its policy remembers.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SWEEPER_KNOWN_PAGES_H
#define PGSCALE_SWEEPER_KNOWN_PAGES_H

#include "postgres.h"

#include "base/shared_buffers.h"
#include "sweeper/policies/policy.h"
#include "sweeper/partitions.h"

/* A buffer's page, as last seen. */
struct PgscaleSweeperPage
{
	uint32		hash;			/* of its name */
	unsigned int left:3;		/* the count in the header, and what the sweep
								 * has raised it by since */
	unsigned int known:1;		/* the policy knows the page; or nothing of
								 * this holds */
	unsigned int kept:1;		/* it stays: see keep.h */

	/* supply/window.c's, false while that is not at work */
	unsigned int followed:1;	/* "left" is what the server's hand found or
								 * will find */
	unsigned int offered:1;
	unsigned int passed:1;		/* that was behind the hand, and it was not
								 * followed there yet */
};

/* What a header shows of the time since its page was last seen. */
typedef enum PgscaleSweeperNews
{
	PGSCALE_PAGE_FIRST_SEEN,
	PGSCALE_PAGE_REPLACED,		/* by the one that is seen now */
	PGSCALE_PAGE_USED,
	PGSCALE_PAGE_NOT_USED,
	PGSCALE_PAGE_LOWERED		/* not used, and the count is lower than
								 * expected */
} PgscaleSweeperNews;

/*
 * Puts that policy in force.  The first one in a process knows no page, and takes as long
 * as clearing the memory does.
 */
extern void pgscale_sweeper_policy_begin(PgscaleSweeperPartition *partition, int policy);

/*
 * The buffer was just seen with that page: reports to the policy what happened to it
 * since it was last seen.  The header's count was expected to be that; what it is lower
 * the server's hand has taken from it, and if that ages pages, so does the policy.
 */
extern PgscaleSweeperNews pgscale_sweeper_page_seen(PgscaleSweeperPartition *partition, int buf, const PgscaleBuffer *look,
													const PgscalePage *page, int expected, bool hand_ages);

/* The sweep has raised the count in the buffer's header by that, without looking at the page. */
extern void pgscale_sweeper_page_raised(PgscaleSweeperPartition *partition, int buf, int by);

/* The page that is known has left the buffer. */
extern void pgscale_sweeper_page_left(PgscaleSweeperPartition *partition, int buf);

/* What the policy of this sweeper has to report, since it began. */
extern void pgscale_sweeper_policy_report(const PgscaleSweeperPartition *partition, PgscaleSweeperPolicyReport *report);

static inline PgscaleSweeperPage *
pgscale_sweeper_page(const PgscaleSweeperPartition *partition, int buf)
{
	Assert(buf >= partition->first && buf < partition->first + partition->buffers);
	return &pgscale_sweeper_memory.pages[buf - partition->first];
}

/* The policy in force. */
static inline const PgscaleSweeperPolicy *
pgscale_sweeper_policy(const PgscaleSweeperPartition *partition)
{
	Assert(partition->policy >= 0 && partition->policy < PGSCALE_SWEEPER_POLICIES);
	return pgscale_sweeper_policies[partition->policy];
}

/* What it says of the page that was seen in the buffer: see policies/policy.h.  A kept page ranks one at least. */
static inline uint8
pgscale_sweeper_rank(const PgscaleSweeperPartition *partition, int buf)
{
	const uint8 rank = pgscale_sweeper_policy(partition)->rank(pgscale_sweeper_memory.policy, buf - partition->first);

	return Max(rank, pgscale_sweeper_page(partition, buf)->kept);
}

/* Until the next visit the page is kept, or not. */
static inline uint8
pgscale_sweeper_visit(PgscaleSweeperPartition *partition, int buf, bool kept)
{
	pgscale_sweeper_page(partition, buf)->kept = kept;
	return pgscale_sweeper_policy(partition)->visit(pgscale_sweeper_memory.policy, buf - partition->first, kept);
}

/* A kept page is left alone for as many rounds as any. */
static inline uint8
pgscale_sweeper_header(const PgscaleSweeperPartition *partition, int buf)
{
	if (pgscale_sweeper_page(partition, buf)->kept)
		return PGSCALE_SWEEPER_HEADER_MOST;
	return pgscale_sweeper_policy(partition)->header(pgscale_sweeper_memory.policy, buf - partition->first);
}

#endif							/* PGSCALE_SWEEPER_KNOWN_PAGES_H */
