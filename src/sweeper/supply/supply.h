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
#include "sweeper/partitions.h"

typedef struct PgscaleSweeperSupply
{
	/*
	 * Begins a tick: notes what the backends have done.  Returns whether
	 * there is demand: backends take buffers, or nothing is on offer.
	 */
	bool		(*follow) (PgscaleSweeperPartition *partition);

	/*
	 * The rank of the page that the buffer was just seen with.  Less than 0:
	 * it is on offer.
	 */
	int			(*rank) (PgscaleSweeperPartition *partition, int buf, const PgscaleBuffer *look, const PgscalePage *page);

	/*
	 * Makes the header fit the rank, which a visit may have changed; rank()
	 * was just asked, with the same look.
	 */
	void		(*show) (PgscaleSweeperPartition *partition, int buf, const PgscaleBuffer *look);

	/*
	 * Offers the page to the backends, if it is clean, unpinned, and ranks no
	 * higher than that.
	 */
	bool		(*offer) (PgscaleSweeperPartition *partition, int buf, const PgscalePage *page, uint8 max_rank);

	/*
	 * Offers a buffer that holds no page, where backends do not find it of
	 * themselves.
	 */
	bool		(*offer_empty) (PgscaleSweeperPartition *partition, int buf);

	/* Buffers on offer, as far as it knows; and can there be no more? */
	int			(*ready) (const PgscaleSweeperPartition *partition);
	bool		(*full) (const PgscaleSweeperPartition *partition);

	/* Where the sweep goes on that has come to this buffer of the partition. */
	int			(*onward) (const PgscaleSweeperPartition *partition, int hand, double dirty_fraction);

	/* Ends a tick: what backends will find, and what others may write. */
	void		(*guard) (PgscaleSweeperPartition *partition);

	/*
	 * Leaves the buffers to the server, as much of that as a tick has time
	 * for.  Returns whether it is done.
	 */
	bool		(*leave) (PgscaleSweeperPartition *partition);
} PgscaleSweeperSupply;

#if PGSCALE_FREELIST
extern const PgscaleSweeperSupply pgscale_sweeper_freelist;

/* Once, in a sweeper that has offered nothing yet: what those before it have put on the list. */
extern void pgscale_sweeper_freelist_resume(PgscaleSweeperPartition *partition);
#else
#define pgscale_sweeper_freelist_resume(partition)	((void) 0)
#endif
extern const PgscaleSweeperSupply pgscale_sweeper_window;

static inline bool
pgscale_sweeper_in_partition(const PgscaleSweeperPartition *partition, int buf)
{
	return buf >= partition->first && buf < partition->first + partition->buffers;
}

/* The buffer at a position of the server's hand. */
static inline int
pgscale_sweeper_buffer_at(int64 position)
{
	return (int) ((position + NBuffers) % NBuffers);
}

/* The first position of the server's hand from this one on that lies in the partition. */
static inline int64
pgscale_sweeper_into_partition(const PgscaleSweeperPartition *partition, int64 position)
{
	const int	buf = pgscale_sweeper_buffer_at(position);

	if (buf < partition->first)
		return position + partition->first - buf;
	if (buf >= partition->first + partition->buffers)
		return position + NBuffers - buf + partition->first;
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
