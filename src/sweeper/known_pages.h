/*-------------------------------------------------------------------------
 *
 * known_pages.h
 *	  What the sweeper knows of the pages in the buffers, and what its policy remembers.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SWEEPER_KNOWN_PAGES_H
#define PGSCALE_SWEEPER_KNOWN_PAGES_H

#include "postgres.h"

#include "miscadmin.h"

#include "base/shared_buffers.h"
#include "sweeper/policy/policy.h"
#include "sweeper/shared.h"

/* A buffer's page, as last seen. */
struct PgscaleSweeperPage
{
	uint32		hash;			/* of its name */
	unsigned int left:3;		/* the count in the header */
	unsigned int known:1;		/* by the policy; or nothing of this holds */
	unsigned int kept:1;		/* it stays: see keep.h */

	/* supply.c's, false while that is not at work */
	unsigned int followed:1;	/* "left" is what the server's hand finds */
	unsigned int offered:1;
	unsigned int passed:1;		/* that was behind the hand, and it was not
								 * followed there yet */
};

/* The count in the header of a page that shall stay, at most. */
#define PGSCALE_SWEEPER_HEADER_MOST	3

/* What a header shows of the time since its page was last seen. */
typedef enum PgscaleSweeperNews
{
	PGSCALE_PAGE_FIRST_SEEN,
	PGSCALE_PAGE_REPLACED,		/* by the one that is seen now */
	PGSCALE_PAGE_USED,
	PGSCALE_PAGE_NOT_USED,
	PGSCALE_PAGE_LOWERED		/* not used, and lower than expected */
} PgscaleSweeperNews;

/* Once in a sweeper: no page is known.  Takes as long as clearing the memory does. */
extern void pgscale_sweeper_pages_begin(void);

/*
 * The buffer was just seen with that page: reports to the policy what happened to it
 * since it was last seen.  The header's count was expected to be that; what it is lower
 * the server's hand has taken from it, and if that ages pages, so does the policy.
 */
extern PgscaleSweeperNews pgscale_sweeper_page_seen(int buf, const PgscaleBuffer *look,
													const PgscalePage *page, int expected, bool hand_ages);

/* The page that is known has left the buffer. */
extern void pgscale_sweeper_page_left(int buf);

static inline PgscaleSweeperPage *
pgscale_sweeper_page(int buf)
{
	Assert(buf >= 0 && buf < NBuffers);
	return &pgscale_sweeper_memory.pages[buf];
}

/* What the policy says of the page that was seen in the buffer.  A kept page ranks one at least. */
static inline uint8
pgscale_sweeper_rank(int buf)
{
	const uint8 rank = pgscale_sweeper_policy_rank(pgscale_sweeper_memory.policy, buf);

	return Max(rank, pgscale_sweeper_page(buf)->kept);
}

/* Until the next visit the page is kept, or not. */
static inline uint8
pgscale_sweeper_visit(int buf, bool kept)
{
	pgscale_sweeper_page(buf)->kept = kept;
	return pgscale_sweeper_policy_visit(pgscale_sweeper_memory.policy, buf, kept);
}

/*
 * For how many rounds the server's hand shall leave a page alone that may not leave; a kept
 * one for as many as any.  No more than one where that is all it was used: VACUUM and COPY
 * give up a buffer of their own that has more.
 */
static inline uint8
pgscale_sweeper_header(int buf)
{
	const uint8 rank = pgscale_sweeper_page(buf)->kept ? PGSCALE_SWEEPER_HEADER_MOST :
		pgscale_sweeper_policy_rank(pgscale_sweeper_memory.policy, buf);

	return Max(Min(rank, PGSCALE_SWEEPER_HEADER_MOST), 1);
}

#endif							/* PGSCALE_SWEEPER_KNOWN_PAGES_H */
