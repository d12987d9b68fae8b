/*-------------------------------------------------------------------------
 *
 * shared_buffers.c
 *	  Shared buffers from outside: the only file that knows their headers.
 *
 * Reading headers takes no lock: their state is one atomic word.  The tag beside it is
 * read without its lock, so it may be torn or may change a moment later.  Code that
 * acts on a page checks the tag again under the header's lock.
 *
 * Writing is FlushOneBuffer(), with what the server requires of its callers: a pin,
 * from ReadRecentBuffer(), which checks the tag under the header's lock, and a share
 * lock on the content.  Neither is waited for: work of sessions comes first.
 *
 * From 19 on ReadRecentBuffer() counts as a use, which is subtracted again.  The content
 * lock has a mode that prevents hint bits meanwhile and cannot be requested conditionally.
 * It is requested only if no process holds a conflicting mode, so a wait is rare and short.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "storage/s_lock.h"
#include "storage/smgr.h"

#include "base/lwlock_state.h"
#include "base/pg_compat.h"
#include "base/shared_buffers.h"

/* Holds a page, fully read. */
#define HOLDS_PAGE		(BM_VALID | BM_TAG_VALID)

/*
 * A tally counts by the bits of the state from the usage count up to
 * BM_TAG_VALID, and by whether there is a pin: no branch, and one counter a
 * header.
 */
#define TALLY_BITS		(BUF_USAGECOUNT_MASK | BM_LOCKED | BM_DIRTY | HOLDS_PAGE)
#define TALLY_PINNED	((TALLY_BITS >> BUF_USAGECOUNT_SHIFT) + 1)

StaticAssertDecl(TALLY_PINNED * 2 == lengthof(((PgscaleTally *) 0)->seen),
				 "a tally has a counter for each value of its bits");
StaticAssertDecl(PGSCALE_MAX_USAGE == BM_MAX_USAGE_COUNT,
				 "usage counts end where the server's do");

/* A header is locked for some instructions: some microseconds are enough. */
#define READ_RETRIES	100

/* Most readers go from buffer to buffer: the header that far ahead is prefetched, if there is one. */
#define PREFETCH_HEADERS	64

const PgscalePageWorths *pgscale_buffer_worths = NULL;

bool
pgscale_buffer_page_equal(const PgscalePage *a, const PgscalePage *b)
{
	return a->block == b->block && a->fork == b->fork && RelFileLocatorEquals(a->locator, b->locator);
}

int
pgscale_buffer_page_compare(const void *a, const void *b)
{
	const PgscalePage *x = a;
	const PgscalePage *y = b;
	int			order = memcmp(&x->locator, &y->locator, sizeof(RelFileLocator));

	if (order != 0)
		return order;
	if (x->fork != y->fork)
		return x->fork < y->fork ? -1 : 1;
	if (x->block != y->block)
		return x->block < y->block ? -1 : 1;
	return 0;
}

static void
make_tag(BufferTag *tag, const PgscalePage *page)
{
	InitBufferTag(tag, &page->locator, page->fork, page->block);
}

/* Not the server's hash, which takes three times as long: the sweeper asks for one at each buffer that it passes. */
uint32
pgscale_buffer_page_hash(const PgscalePage *page)
{
	uint64		h = (uint64) page->locator.relNumber << 32 | page->block;

	h ^= (((uint64) page->locator.spcOid << 32 | page->locator.dbOid) + page->fork) * UINT64CONST(0x9E3779B97F4A7C15);
	h = (h ^ h >> 32) * UINT64CONST(0xBF58476D1CE4E5B9);
	h = (h ^ h >> 29) * UINT64CONST(0x94D049BB133111EB);
	return h >> 32;
}

/*
 * How often a page was used, as its buffer's state has it.  The only accessors: a later major
 * may have a bit instead of a count.
 */
static inline int
buffer_usage_of(PgscaleBufferState state)
{
	return BUF_STATE_GET_USAGECOUNT(state);
}

static inline PgscaleBufferState
buffer_with_usage(PgscaleBufferState state, int usage)
{
	return (state & ~BUF_USAGECOUNT_MASK) + usage * BUF_USAGECOUNT_ONE;
}

static void
buffer_describe(PgscaleBufferState state, PgscaleBuffer *buffer)
{
	buffer->state = state;
	buffer->usage = buffer_usage_of(state);
	buffer->valid = (state & HOLDS_PAGE) == HOLDS_PAGE;
	buffer->dirty = (state & BM_DIRTY) != 0;
	buffer->pinned = BUF_STATE_GET_REFCOUNT(state) != 0;
	buffer->busy = (state & (BM_LOCKED | BM_IO_IN_PROGRESS)) != 0;
}

void
pgscale_buffer_look(int buf, PgscaleBuffer *buffer)
{
	buffer_describe(pgscale_compat_state_read(&GetBufferDescriptor(buf)->state), buffer);
}

void
pgscale_buffer_page(int buf, PgscalePage *page)
{
	volatile BufferDesc *desc = GetBufferDescriptor(buf);
	BufferTag	tag = desc->tag;

	page->locator = BufTagGetRelFileLocator(&tag);
	page->fork = BufTagGetForkNum(&tag);
	page->block = tag.blockNum;
}

/*
 * A tag changes only while the header is locked, and until the new page has
 * been read the buffer is not valid.  So the tag belongs to the state if the
 * buffer is valid and not locked both before and after; pins and usage counts,
 * which change all the time on a busy page, do not matter.  A process that is
 * suspended in between for as long as a page is evicted and another one is read
 * may see part of each tag: callers check before they act, see above.
 */
bool
pgscale_buffer_read(int buf, PgscaleBuffer *buffer, PgscalePage *page)
{
	BufferDesc *desc = GetBufferDescriptor(buf);

	__builtin_prefetch((char *) desc + PREFETCH_HEADERS * sizeof(BufferDescPadded));
	for (int i = 0; i < READ_RETRIES; i++)
	{
		PgscaleBufferState before = pgscale_compat_state_read(&desc->state);

		if ((before & HOLDS_PAGE) != HOLDS_PAGE)
			return false;
		if ((before & BM_LOCKED) == 0)
		{
			PgscaleBufferState after;

			pg_read_barrier();
			pgscale_buffer_page(buf, page);
			pg_read_barrier();
			after = pgscale_compat_state_read(&desc->state);
			if ((after & (HOLDS_PAGE | BM_LOCKED)) == HOLDS_PAGE)
			{
				buffer_describe(after, buffer);
				return true;
			}
		}
		SPIN_DELAY();
	}
	return false;
}

PgscaleLwlock
pgscale_buffer_content_look(int buf)
{
#ifdef PGSCALE_CONTENT_LOCK_IN_STATE
	const PgscaleBufferState state = pgscale_compat_state_read(&GetBufferDescriptor(buf)->state);
	const PgscaleLwlock seen = {
		.exclusive = (state & BM_LOCK_VAL_EXCLUSIVE) != 0,
		.share_exclusive = (state & BM_LOCK_VAL_SHARE_EXCLUSIVE) != 0,
		.shared = (state >> BM_LOCK_SHIFT) & MAX_BACKENDS,
		.waited = (state & BM_LOCK_HAS_WAITERS) != 0
	};

	return seen;
#else
	return pgscale_lwlock_look(BufferDescriptorGetContentLock(GetBufferDescriptor(buf)));
#endif
}

bool
pgscale_buffer_page_copy(int buf, const PgscalePage *page, char *copy)
{
	PgscaleBuffer buffer;
	PgscalePage now;

	memcpy(copy, BufferGetBlock(buf + 1), BLCKSZ);
	pg_read_barrier();
	return pgscale_buffer_read(buf, &buffer, &now) && pgscale_buffer_page_equal(&now, page);
}

static inline void
buffer_tally(PgscaleTally *t, int buf)
{
	PgscaleBufferState state = pgscale_compat_state_read(&GetBufferDescriptor(buf)->state);
	uint32		kind = (state & TALLY_BITS) >> BUF_USAGECOUNT_SHIFT;

	t->seen[kind + (BUF_STATE_GET_REFCOUNT(state) != 0) * TALLY_PINNED]++;
}

void
pgscale_buffers_tally_range(PgscaleTally *t, int first, int count)
{
	for (int buf = first; buf < first + count; buf++)
		buffer_tally(t, buf);
}

void
pgscale_buffers_tally_some(PgscaleTally *t, const int *bufs, int count)
{
	for (int i = 0; i < count; i++)
		buffer_tally(t, bufs[i]);
}

void
pgscale_buffers_tally_sum(const PgscaleTally *t, PgscaleUsage *usage)
{
	memset(usage, 0, sizeof(PgscaleUsage));
	for (uint32 i = 0; i < lengthof(t->seen); i++)
	{
		const PgscaleBufferState state = (PgscaleBufferState) (i % TALLY_PINNED) << BUF_USAGECOUNT_SHIFT;
		const bool	pinned = i >= TALLY_PINNED;
		const int	count = Min(buffer_usage_of(state), PGSCALE_MAX_USAGE);
		PgscaleUsageCounts *of = &usage->of[(state & HOLDS_PAGE) == HOLDS_PAGE ? count : PGSCALE_NO_PAGE];

		usage->buffers += t->seen[i];
		of->buffers += t->seen[i];
		if (state & BM_DIRTY)
			of->dirty += t->seen[i];
		if (pinned)
			of->pinned += t->seen[i];
		else
			usage->unpinned[count] += t->seen[i];
	}
}

int
pgscale_buffer_find(const PgscalePage *page)
{
	BufferTag	tag;
	uint32		hash;
	LWLock	   *lock;
	int			buf;

	make_tag(&tag, page);
	hash = BufTableHashCode(&tag);
	lock = BufMappingPartitionLock(hash);

	LWLockAcquire(lock, LW_SHARED);
	buf = BufTableLookup(&tag, hash);
	LWLockRelease(lock);
	return buf;
}

bool
pgscale_buffer_dirty(int buf, bool *tagged, bool *checkpoint)
{
	PgscaleBufferState state = pgscale_compat_state_read(&GetBufferDescriptor(buf)->state);

	*tagged = (state & BM_TAG_VALID) != 0;
	*checkpoint = (state & BM_CHECKPOINT_NEEDED) != 0;
	return (state & BM_DIRTY) != 0;
}

/* As the server's own changes of a count: one CAS, never while locked. */
bool
pgscale_buffer_set_usage(int buf, const PgscaleBuffer *seen, uint8 usage)
{
	PgscaleBufferState state = seen->state;

	return (state & BM_LOCKED) == 0 &&
		pgscale_compat_state_exchange(&GetBufferDescriptor(buf)->state, &state, buffer_with_usage(state, usage));
}

/*
 * Has WAL reached that position, if not on disk?  A position that it has reached is
 * remembered, because asking takes a lock that all writers of WAL need.
 */
static bool
wal_has(XLogRecPtr lsn)
{
	static XLogRecPtr end = InvalidXLogRecPtr;

	if (lsn > end)
		end = RecoveryInProgress() ? GetCurrentReplayRecPtr(NULL) : GetXLogInsertRecPtr();
	return lsn <= end;
}

/* Locks the content so that it can be written, or says that this would take a wait. */
static bool
lock_to_write(BufferDesc *desc)
{
#ifdef PGSCALE_CONTENT_LOCK_IN_STATE
	const PgscaleBufferState state = pgscale_compat_state_read(&desc->state);

	if (state & (BM_LOCK_VAL_EXCLUSIVE | BM_LOCK_VAL_SHARE_EXCLUSIVE | BM_LOCK_HAS_WAITERS))
		return false;
	LockBuffer(BufferDescriptorGetBuffer(desc), BUFFER_LOCK_SHARE_EXCLUSIVE);
	return true;
#else
	return LWLockConditionalAcquire(BufferDescriptorGetContentLock(desc), LW_SHARED);
#endif
}

/*
 * Pins the buffer if it holds that page, without counting as a use of it.  A concurrent
 * use by another process may be subtracted instead of ours: both count one.
 */
static bool
pin_to_write(BufferDesc *desc, const PgscalePage *page)
{
#ifdef PGSCALE_CONTENT_LOCK_IN_STATE
	PgscaleBufferState state = pgscale_compat_state_read(&desc->state);
	const bool	counts = buffer_usage_of(state) < BM_MAX_USAGE_COUNT;

	if (!ReadRecentBuffer(page->locator, page->fork, page->block, BufferDescriptorGetBuffer(desc)))
		return false;
	state = pgscale_compat_state_read(&desc->state);
	for (int i = 0; counts && i < READ_RETRIES && buffer_usage_of(state) > 0; i++)
	{
		if (state & BM_LOCKED)
		{
			SPIN_DELAY();
			state = pgscale_compat_state_read(&desc->state);
		}
		else if (pgscale_compat_state_exchange(&desc->state, &state, buffer_with_usage(state, buffer_usage_of(state) - 1)))
			break;
	}
	return true;
#else
	return ReadRecentBuffer(page->locator, page->fork, page->block, BufferDescriptorGetBuffer(desc));
#endif
}

PgscaleWriteResult
pgscale_buffer_write(int buf, const PgscalePage *page, XLogRecPtr *lsn)
{
	BufferDesc *desc = GetBufferDescriptor(buf);
	Buffer		buffer = BufferDescriptorGetBuffer(desc);
	PgscaleWriteResult result;
	PgscaleBufferState state;

	if (!pin_to_write(desc, page))
		return PGSCALE_WRITE_CHANGED;

	state = pgscale_compat_state_read(&desc->state);
	if ((state & BM_DIRTY) == 0)
		result = PGSCALE_WRITE_CHANGED;
	else if (state & BM_PIN_COUNT_WAITER)
		result = PGSCALE_WRITE_PINNED;
	else if ((state & BM_IO_IN_PROGRESS) || !lock_to_write(desc))
		result = PGSCALE_WRITE_LOCKED;
	else
	{
		*lsn = BufferGetLSNAtomic(buffer);

		/* Unlogged pages may contain a number that is not an LSN. */
		if ((state & BM_PERMANENT) && XLogNeedsFlush(*lsn))
			result = wal_has(*lsn) ? PGSCALE_WRITE_NEEDS_WAL : PGSCALE_WRITE_BEYOND_WAL;
		else
		{
			FlushOneBuffer(buffer);
			result = PGSCALE_WRITTEN;
		}
		LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	}
	ReleaseBuffer(buffer);
	return result;
}

/*
 * As for the server's own hints: pages whose relation is gone, or whose segment is not
 * open here, are ignored; errors are raised as in fd.c.
 */
void
pgscale_buffer_pages_writeback(const PgscalePage *first, int count)
{
	smgrwriteback(smgropen(first->locator, INVALID_PROC_NUMBER), first->fork, first->block, count);
}

uint64
pgscale_buffers_hand(void)
{
	uint32		passes;
	int			hand = StrategySyncStart(&passes, NULL);	/* NULL: bgwriter counts
															 * allocations there */

	return (uint64) passes * NBuffers + hand;
}

bool
pgscale_buffers_all_used(void)
{
	return !pgscale_compat_any_listed() && pgscale_buffers_hand() >= PGSCALE_HAND_WARM;
}

int
pgscale_buffers_local_dirty(RelFileLocator locator)
{
	int			dirty = 0;

	for (int i = 0; i < NLocBuffer; i++)
	{
		BufferDesc *desc = GetLocalBufferDescriptor(i);
		RelFileLocator its = BufTagGetRelFileLocator(&desc->tag);

		dirty += (pgscale_compat_state_read(&desc->state) & BM_DIRTY) != 0 && RelFileLocatorEquals(its, locator);
	}
	return dirty;
}
