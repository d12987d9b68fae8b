/*-------------------------------------------------------------------------
 *
 * supply.h
 *	  How buffers that may leave reach the backends, and what is known of the others.
 *
 * There are two ways, one at a time: freelist.c and window.c.  Each reports what it sees
 * of the pages to the policy, through known_pages.c, and acts on their ranks.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SWEEPER_SUPPLY_H
#define PGSCALE_SWEEPER_SUPPLY_H

#include "postgres.h"

#include "miscadmin.h"

#include "base/shared_buffers.h"
#include "sweeper/shares.h"

typedef struct PgscaleSweeperSupply
{
	/*
	 * Begins a tick: notes what the backends have done.  Returns whether
	 * there is demand: backends take buffers, or nothing is on offer.
	 */
	bool		(*follow) (PgscaleSweeperShare *share);

	/*
	 * The rank of the page that the buffer was just seen with.  Less than 0:
	 * it is on offer.
	 */
	int			(*rank) (PgscaleSweeperShare *share, int buf, const PgscaleBuffer *look, const PgscalePage *page);

	/*
	 * Makes the header fit the rank, which a visit may have changed; rank()
	 * was just asked, with the same look.
	 */
	void		(*show) (PgscaleSweeperShare *share, int buf, const PgscaleBuffer *look);

	/*
	 * Offers the page to the backends, if it is clean, unpinned, and ranks no
	 * higher than that.
	 */
	bool		(*offer) (PgscaleSweeperShare *share, int buf, const PgscalePage *page, uint8 max_rank);

	/* Buffers on offer, as far as it knows; and can there be no more? */
	int			(*ready) (const PgscaleSweeperShare *share);
	bool		(*full) (const PgscaleSweeperShare *share);

	/* Where the sweep goes on that has come to this buffer of the share. */
	int			(*onward) (const PgscaleSweeperShare *share, int hand, double dirty_share);

	/* Ends a tick: what backends will find, and what others may write. */
	void		(*guard) (PgscaleSweeperShare *share);

	/*
	 * Leaves the buffers to the server, as much of that as a tick has time
	 * for.  Returns whether it is done.
	 */
	bool		(*leave) (PgscaleSweeperShare *share);
} PgscaleSweeperSupply;

#if PGSCALE_FREELIST
extern const PgscaleSweeperSupply pgscale_sweeper_freelist;
#endif
extern const PgscaleSweeperSupply pgscale_sweeper_window;

static inline bool
pgscale_sweeper_in_share(const PgscaleSweeperShare *share, int buf)
{
	return buf >= share->first && buf < share->first + share->buffers;
}

/* The buffer at a position of the server's hand. */
static inline int
pgscale_sweeper_buffer_at(int64 position)
{
	return (int) ((position + NBuffers) % NBuffers);
}

/* The first position of the server's hand from this one on that lies in the share. */
static inline int64
pgscale_sweeper_into_share(const PgscaleSweeperShare *share, int64 position)
{
	const int	buf = pgscale_sweeper_buffer_at(position);

	if (buf < share->first)
		return position + share->first - buf;
	if (buf >= share->first + share->buffers)
		return position + NBuffers - buf + share->first;
	return position;
}

/*
 * Up to which position the hand has passed buffers, if it is at that one.  A backend moves
 * it first, and then takes the count down: the last buffers before it must wait.
 */
#define PGSCALE_SWEEPER_HAND_LAG	64

static inline int64
pgscale_sweeper_passed(int64 hand)
{
	return hand - Min(PGSCALE_SWEEPER_HAND_LAG, NBuffers / 4);
}

#endif							/* PGSCALE_SWEEPER_SUPPLY_H */
