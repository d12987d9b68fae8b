/*-------------------------------------------------------------------------
 *
 * change_count.h
 *	  A count of changes: one process changes data in shared memory, any number of
 *	  others copy it, and neither side waits for a lock.
 *
 * The count is odd while the writer changes the data.  A copy is good if the count
 * was even before it and is the same after it.
 *
 * Writer: one process at a time.  Between begin and end it calls nothing that could
 * wait.  A crash there makes the server set up all shared memory anew.  A writer that
 * leaves by an error leaves the count odd, and the data changed in part; the next
 * change makes it even again.  So a writer that can raise an error there makes an
 * empty change when it starts.
 *
 * Order: the writer stores odd, barrier, data, barrier, even; a reader loads count,
 * barrier, data, barrier, count.  If the reader has copied anything of a change, then
 * the second barrier of the reader and the first of the writer make it see that
 * change's odd count, or a later one, in its second look; so the two looks differ, or
 * are odd.  If its first look was the even count after a change, then the other two
 * barriers make it copy all of that change.  That needs no more of the machine than
 * the barriers say.
 *
 * Reader: pgscale_change_wait() and pgscale_change_copy() raise an error if a change
 * lasts for a second, since then the writer is stopped, and check for interrupts.  A
 * copy that was overtaken is made again: a copy must take much less time than there
 * is between two changes.
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
