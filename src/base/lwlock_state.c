/*-------------------------------------------------------------------------
 *
 * lwlock_state.c
 *	  LWLocks of the server from outside.
 *
 * The state of an LWLock is one atomic word.  Reading it takes no lock, and costs the
 * holder no more than a shared cache line.  The word shows whether the lock is held, in
 * which mode, by how many sharers, and whether a queue exists.  The length of the queue
 * is in a list that takes a lock to read, and the holder is recorded nowhere: both are
 * left out.
 *
 * The bit layout is private to the server's lwlock.c and differs between majors
 * (base/pg_compat).  So it is tested on a private lock: new, held shared, held
 * exclusive.  No process can be made to queue there, so the bit of the queue is trusted
 * if all else is as expected.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/atomics.h"

#include "base/lwlock_state.h"
#include "base/pg_compat.h"

static inline uint32
lwlock_state(const LWLock *lock)
{
	return pg_atomic_read_u32(unconstify(pg_atomic_uint32 *, &lock->state));
}

PgscaleLwlock
pgscale_lwlock_look(const LWLock *lock)
{
	const PgscaleLwlockLayout *layout = &pgscale_compat_lwlock;
	const uint32 state = lwlock_state(lock);
	const PgscaleLwlock seen = {
		.exclusive = (state & layout->exclusive) != 0,
		.shared = state & layout->shared,
		.waited = (state & layout->waited) != 0
	};

	return seen;
}

/* Is it held in this mode as we see it, and free again afterwards? */
static bool
lwlock_shows(LWLock *lock, LWLockMode mode)
{
	PgscaleLwlock seen;

	if (!LWLockConditionalAcquire(lock, mode))
		return false;
	seen = pgscale_lwlock_look(lock);
	LWLockRelease(lock);
	return seen.exclusive == (mode == LW_EXCLUSIVE) && seen.shared == (mode == LW_SHARED) && !seen.waited &&
		lwlock_state(lock) == pgscale_compat_lwlock.unused;
}

bool
pgscale_lwlock_layout_known(void)
{
	static bool tried = false;
	static bool known = false;
	LWLock		lock;

	if (tried)
		return known;
	tried = true;
	LWLockInitialize(&lock, LWTRANCHE_LOCK_MANAGER);
	known = lwlock_state(&lock) == pgscale_compat_lwlock.unused &&
		lwlock_shows(&lock, LW_SHARED) && lwlock_shows(&lock, LW_EXCLUSIVE);
	return known;
}

/* The tranche of one of the server's own locks, by its place. */
static uint16
lwlocks_own_tranche(int number)
{
	if (number < BUFFER_MAPPING_LWLOCK_OFFSET)
		return number;
	if (number < LOCK_MANAGER_LWLOCK_OFFSET)
		return LWTRANCHE_BUFFER_MAPPING;
	return number < PREDICATELOCK_MANAGER_LWLOCK_OFFSET ? LWTRANCHE_LOCK_MANAGER : LWTRANCHE_PREDICATE_LOCK_MANAGER;
}

/* The server does not show how many locks libraries requested. */
int
pgscale_lwlocks_count(int max)
{
	int			count = NUM_FIXED_LWLOCKS;
	uint16		last = LWTRANCHE_FIRST_USER_DEFINED;

	if (pgscale_compat_lwlocks_end() != NULL)
		count = (int) Min(pgscale_compat_lwlocks_end() - MainLWLockArray, max);
	for (int i = 0; i < count; i++)
	{
		const uint16 tranche = pgscale_lwlocks_at(i)->tranche;

		if (i < NUM_FIXED_LWLOCKS ? tranche != lwlocks_own_tranche(i) : tranche < last)
			return 0;
		last = Max(last, tranche);
	}
	return count < NUM_FIXED_LWLOCKS ? 0 : count;
}

const char *
pgscale_lwlock_tranche_name(uint16 tranche)
{
	return GetLWLockIdentifier(PG_WAIT_LWLOCK, tranche);
}
