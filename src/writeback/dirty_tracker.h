/*-------------------------------------------------------------------------
 *
 * dirty_tracker.h
 *	  Finds the parts of files that the server has written into the kernel, and how
 *	  often it writes the same page again.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_WRITEBACK_DIRTY_TRACKER_H
#define PGSCALE_WRITEBACK_DIRTY_TRACKER_H

#include "postgres.h"

#include "common/relpath.h"
#include "storage/block.h"

#include "base/pg_compat.h"

/* The kernel is asked for pieces of 1 MB; 16 of them are a stretch. */
#define PGSCALE_PIECE_BLOCKS	128
#define PGSCALE_PIECES			16
#define PGSCALE_STRETCH_BLOCKS	(PGSCALE_PIECE_BLOCKS * PGSCALE_PIECES)
#define PGSCALE_PIECE_BYTES		((off_t) PGSCALE_PIECE_BLOCKS * BLCKSZ)
#define PGSCALE_STRETCH_BYTES	((off_t) PGSCALE_STRETCH_BLOCKS * BLCKSZ)

/* of a file */
#define PGSCALE_SEGMENT_STRETCHES (RELSEG_SIZE / PGSCALE_STRETCH_BLOCKS)

StaticAssertDecl(RELSEG_SIZE % PGSCALE_STRETCH_BLOCKS == 0,
				 "files must consist of whole stretches");

/* The age at which the kernel by default writes dirty pages, seconds. */
#define PGSCALE_REWRITE_WINDOW_S 30

typedef struct PgscaleWritebackStretchKey
{
	RelFileLocator locator;
	ForkNumber	fork;
	uint32		number;			/* block / PGSCALE_STRETCH_BLOCKS */
} PgscaleWritebackStretchKey;

/* 16 MB of a fork, with what is known of its pages in the kernel. */
typedef struct PgscaleWritebackStretch
{
	PgscaleWritebackStretchKey key;
	uint16		pieces;			/* a bit each: has pages that wait */
	uint16		sampled;		/* of its latest writes, that many were
								 * sampled */
	uint16		rewritten;		/* and that many of those were rewrites */
	uint32		waiting;		/* pages written, not asked for */
	uint32		flying;			/* pages asked for, maybe not on disk yet */
	uint32		dirty;			/* buffers that hold a dirty page of it */
	bool		in_buffers;		/* did any ever? */
	int64		since_ns;		/* when the first of those that wait was
								 * written */
	int64		looked_ns;		/* when the kernel was last asked */
} PgscaleWritebackStretch;

typedef struct PgscaleWritebackWatch
{
	PgscaleWritebackStretch *stretches;
	int			used;			/* of these */
	int64		waiting;		/* pages, of all stretches */
	int64		flying;
	uint64		written;		/* pages, ever */
	uint64		unseen;			/* dirty pages that found no room here, ever */
	double		sampled;		/* writes, the older the less they count */
	double		rewritten;		/* of them */
} PgscaleWritebackWatch;

extern PgscaleWritebackWatch pgscale_writeback_watch;

/* Allocates, or begins anew. */
extern void pgscale_writeback_watch_start(int64 now_ns);

/* Frees what it holds. */
extern void pgscale_writeback_watch_stop(void);

/*
 * Looks at the next buffers, as many as it takes to see all of them in time if it
 * is called that often.  Returns whether any was written or dirtied since the last
 * pass over all of them began.
 */
extern bool pgscale_writeback_watch_round(int64 now_ns, int64 period_ns);

/* Do the buffers show the writes of a stretch, now? */
extern bool pgscale_writeback_watch_knows(const PgscaleWritebackStretchKey *key);

/*
 * Notes a number of pages in these pieces of a stretch that were written past the buffers
 * and are in the kernel.  Returns the number of new ones.
 */
extern int	pgscale_writeback_watch_found(const PgscaleWritebackStretchKey *key, uint16 pieces, int pages, int64 now_ns);

/* Fraction of the writes that hit a page again, or -1 if too few are known. */
extern double pgscale_writeback_watch_rewritten(void);

/* Fraction of a stretch's writes that do, or 0 if too few are known. */
extern double pgscale_writeback_stretch_rewritten(const PgscaleWritebackStretch *stretch);

/*
 * Moves the pages of one piece from waiting to in flight; there cannot be more than
 * that many.  Returns the number moved.
 */
extern int	pgscale_writeback_stretch_take(PgscaleWritebackStretch *stretch, int piece, int most);

/* Those are on disk. */
extern void pgscale_writeback_stretch_landed(PgscaleWritebackStretch *stretch, int pages);

/* Limits its waiting pages.  Returns by how many there are fewer. */
extern int	pgscale_writeback_stretch_limit(PgscaleWritebackStretch *stretch, int pages);

#endif							/* PGSCALE_WRITEBACK_DIRTY_TRACKER_H */
