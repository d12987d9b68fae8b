/*-------------------------------------------------------------------------
 *
 * ring.h
 *	  Positions of a ring in shared memory. One process fills it and overwrites the
 *	  oldest records; any number of others copy, without a lock and without a retry.
 *
 * Records are numbered from the server's start.  Record n is at n modulo the ring's
 * size.  Before the writer stores records, it moves "reserved" beyond them; afterwards
 * it moves "written".  A reader copies records below "written", then reads "reserved"
 * and drops the records that may have been overwritten.  So its work is bounded however
 * fast the writer is.
 *
 * Writer: one process at a time.  If it ends between begin and end, its successor
 * writes records of the same numbers; until then readers drop a few good ones.  If the
 * successor may write fewer, it must first note which records are gone
 * (pgscale_ring_oldest).
 *
 * Order: a reader that sees "written" sees the records below it, because of the
 * barriers in end_write and begin_read.  A reader that has copied any part of a record
 * sees the "reserved" that was stored before it, or a later one, because of the
 * barriers in begin_write and oldest.  At the end "reserved" returns to "written": the
 * places beyond were not touched.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_RING_H
#define PGSCALE_BASE_RING_H

#include "postgres.h"

#include "port/atomics.h"

typedef struct PgscaleRing
{
	pg_atomic_uint64 written;	/* records below are complete */
	pg_atomic_uint64 reserved;	/* records below may be being written */
} PgscaleRing;

static inline void
pgscale_ring_init(PgscaleRing *ring)
{
	pg_atomic_init_u64(&ring->written, 0);
	pg_atomic_init_u64(&ring->reserved, 0);
}

/* Call it before at most that many records are written; returns the number of the first. */
static inline uint64
pgscale_ring_begin_write(PgscaleRing *ring, int most)
{
	uint64		next = pg_atomic_read_u64(&ring->written);

	pg_atomic_write_u64(&ring->reserved, next + most);
	pg_write_barrier();
	return next;
}

/* After all below this one were written. */
static inline void
pgscale_ring_end_write(PgscaleRing *ring, uint64 next)
{
	pg_write_barrier();
	pg_atomic_write_u64(&ring->written, next);
	pg_atomic_write_u64(&ring->reserved, next);
}

/* Before copying; returns the number of the first record that is not there yet. */
static inline uint64
pgscale_ring_begin_read(PgscaleRing *ring)
{
	uint64		end = pg_atomic_read_u64(&ring->written);

	pg_read_barrier();
	return end;
}

/* After copying: copies of records below this may be of others, or parts. */
static inline uint64
pgscale_ring_oldest(PgscaleRing *ring, int size)
{
	uint64		reserved;

	pg_read_barrier();
	reserved = pg_atomic_read_u64(&ring->reserved);
	return reserved > size ? reserved - size : 0;
}

#endif							/* PGSCALE_BASE_RING_H */
