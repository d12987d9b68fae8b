/*-------------------------------------------------------------------------
 *
 * supply.h
 *	  How buffers that may leave reach the backends, and what is known of the others.
 *
 * It reports what it sees of the pages to the policy, through known_pages.c, and acts on
 * their ranks.
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

/*
 * Begins a tick: notes what the backends have done.  Returns whether there is demand: the
 * server's hand moves, or nothing is on offer.
 */
extern bool pgscale_sweeper_supply_follow(void);

/* The rank of the page that the buffer was just seen with.  Less than 0: it is on offer. */
extern int	pgscale_sweeper_supply_rank(int buf, const PgscaleBuffer *look, const PgscalePage *page);

/*
 * Makes the header fit the rank, which a visit may have changed; the rank was just asked
 * for, with the same look.
 */
extern void pgscale_sweeper_supply_show(int buf, const PgscaleBuffer *look);

/* Offers the page to the backends, if it is clean, unpinned, and ranks no higher than that. */
extern bool pgscale_sweeper_supply_offer(int buf, const PgscalePage *page, uint8 max_rank);

/* Buffers on offer, as far as it knows. */
extern int	pgscale_sweeper_supply_ready(void);

/* Where the sweep goes on that has come to this buffer. */
extern int	pgscale_sweeper_supply_onward(int hand, double dirty_fraction);

/* Ends a tick: what backends will find. */
extern void pgscale_sweeper_supply_guard(void);

/* Leaves the buffers to the server, as much of that as a tick has time for.  Returns whether it is done. */
extern bool pgscale_sweeper_supply_leave(void);

/* The buffer at a position of the server's hand. */
static inline int
pgscale_sweeper_buffer_at(int64 position)
{
	return (int) ((position + NBuffers) % NBuffers);
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
