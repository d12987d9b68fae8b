/*-------------------------------------------------------------------------
 *
 * shared_buffers.h
 *	  Shared buffers from outside: looking at them in passing, writing one.
 *
 * Buffers are numbered from 0 here, as the server's own buffer ids are.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_SHARED_BUFFERS_H
#define PGSCALE_BASE_SHARED_BUFFERS_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "common/relpath.h"
#include "storage/block.h"

#include "base/lwlock_state.h"
#include "base/pg_compat.h"

/* What page a buffer holds: the server's buffer tag. */
typedef struct PgscalePage
{
	RelFileLocator locator;
	ForkNumber	fork;
	BlockNumber block;
} PgscalePage;

extern bool pgscale_buffer_page_equal(const PgscalePage *a, const PgscalePage *b);

/* For qsort(): pages of one fork side by side, in the order of their blocks. */
extern int	pgscale_buffer_page_compare(const void *a, const void *b);

extern uint32 pgscale_buffer_page_hash(const PgscalePage *page);

/* A buffer's header, read without its lock: true at that moment. */
typedef struct PgscaleBuffer
{
	PgscaleBufferState state;	/* as in the header */
	uint8		usage;			/* usage count */
	bool		valid;			/* holds a page, fully read */
	bool		dirty;
	bool		pinned;
	bool		busy;			/* header locked, or in I/O */
} PgscaleBuffer;

extern void pgscale_buffer_look(int buf, PgscaleBuffer *buffer);

/* Reads which page it holds; may be torn, so the page must be checked later. */
extern void pgscale_buffer_page(int buf, PgscalePage *page);

/*
 * Reads both, of the same moment.  Returns false if the buffer holds no page,
 * or stayed locked.
 */
extern bool pgscale_buffer_read(int buf, PgscaleBuffer *buffer, PgscalePage *page);

/* How its content lock is held, and whether there is a queue. */
extern PgscaleLwlock pgscale_buffer_content_look(int buf);

/*
 * Copies the page that it holds, without a pin and without that lock: what is written
 * meanwhile may be there in part.  Returns false if it does not hold that page any more.
 */
extern bool pgscale_buffer_page_copy(int buf, const PgscalePage *page, char *copy);

/* Many headers at once, by their states only: tally them, as many times as needed, then sum up. */
#define PGSCALE_MAX_USAGE	5	/* the highest usage count */
#define PGSCALE_NO_PAGE		(PGSCALE_MAX_USAGE + 1)

typedef struct PgscaleTally
{
	int64		seen[512];		/* by usage count and flags, see
								 * shared_buffers.c */
} PgscaleTally;

typedef struct PgscaleUsageCounts
{
	int64		buffers;
	int64		dirty;
	int64		pinned;
} PgscaleUsageCounts;

typedef struct PgscaleUsage
{
	int64		buffers;
	PgscaleUsageCounts of[PGSCALE_NO_PAGE + 1]; /* by usage count of those
												 * that hold a page, and the
												 * rest */
	int64		unpinned[PGSCALE_MAX_USAGE + 1];	/* by usage count, all */
} PgscaleUsage;

extern void pgscale_buffers_tally_range(PgscaleTally *tally, int first, int count);
extern void pgscale_buffers_tally_some(PgscaleTally *tally, const int *bufs, int count);
extern void pgscale_buffers_tally_sum(const PgscaleTally *tally, PgscaleUsage *usage);

/* The buffer that holds a page, or -1. */
extern int	pgscale_buffer_find(const PgscalePage *page);

/*
 * Does it hold a dirty page?  A cheaper question than pgscale_buffer_look(). *tagged: any
 * page at all; *checkpoint: one that a running checkpoint must still write.
 */
extern bool pgscale_buffer_dirty(int buf, bool *tagged, bool *checkpoint);

/* Sets the usage count, unless the header has changed since the look: was it set? */
extern bool pgscale_buffer_set_usage(int buf, const PgscaleBuffer *seen, uint8 usage);

typedef enum PgscaleWriteResult
{
	PGSCALE_WRITTEN,
	PGSCALE_WRITE_CHANGED,		/* another page by now, or clean already */
	PGSCALE_WRITE_PINNED,		/* a process waits to be the only one with it */
	PGSCALE_WRITE_LOCKED,		/* content locked, or in I/O */
	PGSCALE_WRITE_NEEDS_WAL,	/* its WAL is not on disk; see *lsn */
	PGSCALE_WRITE_BEYOND_WAL	/* nor anywhere: its LSN is not WAL's yet */
} PgscaleWriteResult;

/*
 * Writes a buffer if it holds that page, is dirty, and neither the caller nor another
 * process has to wait.  Needs a resource owner.  Raises the errors of the write.
 */
extern PgscaleWriteResult pgscale_buffer_write(int buf, const PgscalePage *page, XLogRecPtr *lsn);

/*
 * Asks the kernel to begin writing that many pages to disk.  Not for data that bypasses
 * its cache, see pgscale_compat_direct_data().
 */
extern void pgscale_buffer_pages_writeback(const PgscalePage *first, int count);

/* What is known of a page's uses, by the feature that chooses the pages that leave. */
typedef struct PgscalePageWorth
{
	double		score;			/* number of uses, of which older ones count
								 * less */
	bool		may_leave;
} PgscalePageWorth;

/*
 * Set by that feature, for sessions.  Pages are asked for between begin() and end(), which
 * an error may leave out.  of() returns false if the page in that buffer is not known.
 */
typedef struct PgscalePageWorths
{
	void		(*begin) (void);
	bool		(*of) (int buf, const PgscalePage *page, PgscalePageWorth *worth);
	void		(*end) (void);
} PgscalePageWorths;

extern const PgscalePageWorths *pgscale_buffer_worths;

/* How far the server's clock sweep has come, in buffers since its start. */
extern uint64 pgscale_buffers_hand(void);

/* Has each buffer a page by now, as far as the server knows without looking? */
extern bool pgscale_buffers_all_used(void);

/* How many dirty pages of a relation are in this session's own buffers. */
extern int	pgscale_buffers_local_dirty(RelFileLocator locator);

#endif							/* PGSCALE_BASE_SHARED_BUFFERS_H */
