/*
 * How a page is written: base/shared_buffers.c itself, on a page of the relation "written", where WAL is as far as a test says.
 * Which pages are left alone, and under which lock the server is asked to write the others. write_steps() returns a line for
 * each check.
 */
#include "steps.h"

#include "access/relation.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(write_steps);

static void note_lock(Buffer buffer);
static bool needs_flush;
static XLogRecPtr end_of_wal;

#define FlushOneBuffer(buffer)	note_lock(buffer)
#define XLogNeedsFlush(lsn)		needs_flush
#define RecoveryInProgress()	false
#define GetXLogInsertRecPtr()	end_of_wal
#include "base/shared_buffers.c"

static char held;				/* when the server was asked to write: x for a lock that keeps hint bits from being set, s for
								 * one that does not, n for none */

PgscaleLwlock
pgscale_lwlock_look(const LWLock *lock)
{
	return (PgscaleLwlock) {0};
}

static void
note_lock(Buffer buffer)
{
	BufferDesc *desc = GetBufferDescriptor(buffer - 1);

#ifdef PGSCALE_CONTENT_LOCK_IN_STATE
	const PgscaleBufferState state = pgscale_compat_state_read(&desc->state);

	held = state & (BM_LOCK_VAL_SHARE_EXCLUSIVE | BM_LOCK_VAL_EXCLUSIVE) ? 'x' : state & BM_LOCK_MASK ? 's' : 'n';
#else
	held = LWLockHeldByMe(BufferDescriptorGetContentLock(desc)) ? 's' : 'n';
#endif
}

/* Sets flags of the header, or takes them off, and a count of uses. */
static void
set_header(BufferDesc *desc, PgscaleBufferState on, PgscaleBufferState off, int usage)
{
	PgscaleBufferState state = pgscale_compat_state_read(&desc->state);

	while (!pgscale_compat_state_exchange(&desc->state, &state, buffer_with_usage((state | on) & ~off, usage)))
		;
}

Datum
write_steps(PG_FUNCTION_ARGS)
{
	static const struct
	{
		const char *what;
		int			block_off;	/* another page is meant */
		PgscaleBufferState on;
		PgscaleBufferState off;
		int			lock;
		bool		needs_flush;
		XLogRecPtr	end_of_wal;
		PgscaleWriteResult result;
	}			cases[] = {
		/* before the others: that WAL had come as far is remembered */
		{"one from beyond the end of WAL", 0, BM_DIRTY, 0, 0, true, 1, PGSCALE_WRITE_BEYOND_WAL},
		{"a dirty page", 0, BM_DIRTY, 0, 0, false, 0, PGSCALE_WRITTEN},
		{"a clean page", 0, 0, BM_DIRTY, 0, false, 0, PGSCALE_WRITE_CHANGED},
		{"another page", 1, BM_DIRTY, 0, 0, false, 0, PGSCALE_WRITE_CHANGED},
		{"one for which VACUUM waits", 0, BM_DIRTY | BM_PIN_COUNT_WAITER, 0, 0, false, 0, PGSCALE_WRITE_PINNED},
		{"one in I/O", 0, BM_DIRTY | BM_IO_IN_PROGRESS, 0, 0, false, 0, PGSCALE_WRITE_LOCKED},
		{"one that is changed", 0, BM_DIRTY, 0, BUFFER_LOCK_EXCLUSIVE, false, 0, PGSCALE_WRITE_LOCKED},
		{"one whose WAL is not on disk", 0, BM_DIRTY, 0, 0, true, PG_INT64_MAX, PGSCALE_WRITE_NEEDS_WAL},
		{"one of an unlogged table", 0, BM_DIRTY, BM_PERMANENT, 0, true, PG_INT64_MAX, PGSCALE_WRITTEN},
		{"one whose WAL is on disk", 0, BM_DIRTY, 0, 0, false, PG_INT64_MAX, PGSCALE_WRITTEN}
	};
	const Oid	oid = RelnameGetRelid("written");
	Relation	rel = relation_open(oid, AccessShareLock);
	PgscalePage page = {.locator = rel->rd_locator,.fork = MAIN_FORKNUM};

	initStringInfo(&lines);
	for (int i = 0; i < lengthof(cases); i++)
	{
		Buffer		buffer = ReadBuffer(rel, 0);
		BufferDesc *desc = GetBufferDescriptor(buffer - 1);
		XLogRecPtr	lsn = InvalidXLogRecPtr;
		PgscaleWriteResult result;
		PgscaleBufferState state;

		held = '-';
		needs_flush = cases[i].needs_flush;
		end_of_wal = cases[i].end_of_wal;
		page.block = cases[i].block_off;
		if (cases[i].lock)
			LockBuffer(buffer, cases[i].lock);
		else
			ReleaseBuffer(buffer);
		set_header(desc, cases[i].on, cases[i].off, 2);
		result = pgscale_buffer_write(buffer - 1, &page, &lsn);
		state = pgscale_compat_state_read(&desc->state);
		set_header(desc, BM_DIRTY | BM_PERMANENT, (BM_PIN_COUNT_WAITER | BM_IO_IN_PROGRESS) & cases[i].on, 2);
		if (cases[i].lock)
			UnlockReleaseBuffer(buffer);
		is(result, cases[i].result, psprintf("what becomes of %s", cases[i].what));
		is(held, result == PGSCALE_WRITTEN ? (PG_VERSION_NUM < 190000 ? 's' : 'x') : '-', "the lock under which it is written");
		/* from 19 on, a use by a process that has a pin is not counted, and yet subtracted: no writer has one */
		is(cases[i].lock ? 2 : buffer_usage_of(state), 2, "that is no use");
		is(BUF_STATE_GET_REFCOUNT(state), cases[i].lock != 0, "no pin is left");
	}
	relation_close(rel, AccessShareLock);
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}
