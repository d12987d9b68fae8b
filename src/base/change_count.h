/*-------------------------------------------------------------------------
 *
 * change_count.h
 *	  A change count: one process changes data in shared memory, any number of others
 *	  copy the data, and neither side waits for a lock.
 *
 * The count is odd while the writer changes the data.  A copy is good if the count was
 * even before it and has the same value after it.
 *
 * Writer: one process at a time.  Between begin and end it must not call anything that
 * can wait.  A crash there makes the server initialize all shared memory again.  A
 * writer that leaves with an error leaves the count odd and the data partly changed;
 * the next change makes the count even again.  So a writer that can raise an error
 * there must make an empty change when it starts.
 *
 * Order: the writer stores odd, barrier, data, barrier, even.  A reader loads count,
 * barrier, data, barrier, count.  If a reader copied any part of a change, then its
 * second barrier and the writer's first one make its second load see the odd count of
 * that change or a later count.  So the two loads differ, or are odd.  If its first
 * load saw the even count after a change, then the other two barriers make it copy that
 * change completely.  The protocol needs no more from the machine than these barriers.
 *
 * Reader: pgscale_change_wait() and pgscale_change_copy() check for interrupts, and
 * raise an error if a change lasts for a second, because then the writer is stopped.  A
 * copy that a change has overtaken is repeated, so a copy must take much less time than
 * the time between two changes.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_CHANGE_COUNT_H
#define PGSCALE_BASE_CHANGE_COUNT_H

#include "postgres.h"

#include "port/atomics.h"

typedef struct PgscaleChangeCount
{
	pg_atomic_uint64 value;		/* odd while the data is changed */
} PgscaleChangeCount;

static inline void
pgscale_change_init(PgscaleChangeCount *count)
{
	pg_atomic_init_u64(&count->value, 0);
}

/* Returns the number of this change, which is odd and greater than all before it. */
static inline uint64
pgscale_change_begin_write(PgscaleChangeCount *count)
{
	uint64		number = pg_atomic_read_u64(&count->value) | 1;

	pg_atomic_write_u64(&count->value, number);
	pg_write_barrier();
	return number;
}

static inline void
pgscale_change_end_write(PgscaleChangeCount *count)
{
	Assert(pg_atomic_read_u64(&count->value) % 2 == 1);
	pg_write_barrier();
	pg_atomic_write_u64(&count->value, pg_atomic_read_u64(&count->value) + 1);
}

/* For a reader that does not wait: what to compare when it has its copy. */
static inline uint64
pgscale_change_begin_read(PgscaleChangeCount *count)
{
	uint64		before = pg_atomic_read_u64(&count->value);

	pg_read_barrier();
	return before;
}

static inline bool
pgscale_change_is_unchanged(PgscaleChangeCount *count, uint64 before)
{
	pg_read_barrier();
	return before % 2 == 0 && pg_atomic_read_u64(&count->value) == before;
}

/* Is it being changed?  Of a writer that has ended: has it ended within a change? */
static inline bool
pgscale_change_is_under_way(PgscaleChangeCount *count)
{
	return pgscale_change_begin_read(count) % 2 != 0;
}

/* As begin_read, once the data is not being changed. */
extern uint64 pgscale_change_wait(PgscaleChangeCount *count);

/* Copies data as it was between two changes. */
extern void pgscale_change_copy(PgscaleChangeCount *count, void *to, const void *from, size_t size);

#endif							/* PGSCALE_BASE_CHANGE_COUNT_H */
