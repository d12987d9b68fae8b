/*-------------------------------------------------------------------------
 *
 * writeback_stats.h
 *	  Statistics of the writeback worker.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_WRITEBACK_WRITEBACK_STATS_H
#define PGSCALE_WRITEBACK_WRITEBACK_STATS_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "writeback/writeback_controller.h"

/* Cumulative since the server started. */
typedef struct PgscaleWritebackCounts
{
	uint64		rounds;
	uint64		written;		/* pages that the server wrote into the kernel */
	uint64		found;			/* and that were found in files, not in
								 * buffers */
	uint64		requests;
	uint64		asked;			/* pages */
	uint64		taken;			/* pages that were on disk without being asked
								 * for */
	uint64		unseen;
	uint64		backed_off;
	uint64		ask_ns;
	uint64		errors;
	uint64		cpu_ns;
} PgscaleWritebackCounts;

/* Only the worker writes it; others read it without a lock. */
typedef struct PgscaleWritebackShare
{
	volatile int pid;			/* 0 if it is not running */
	volatile uint64 starts;
	volatile bool reset_peak;	/* set by others, cleared by the worker */
	PgscaleWritebackState state;
	PgscaleWritebackReason reason;
	double		reason_number;
	TimestampTz state_change;
	int64		decided_ns;		/* the same by CLOCK_MONOTONIC, as the next */
	int64		last_round_ns;

	/* bytes */
	int64		dirty;			/* waiting or in flight */
	int64		peak;
	int64		skipped;
	int64		cap;
	int64		window;
	double		server_rate;	/* a second; -1: unknown */
	double		disk_rate;		/* a second; -1: unknown */
	double		rewritten;		/* share; -1: unknown */
	PgscaleWritebackCounts counts;
} PgscaleWritebackShare;

/* setting */
extern int	pgscale_writeback_use;

extern void pgscale_writeback_share_request(void);
extern void pgscale_writeback_share_startup(void);

extern PgscaleWritebackShare *pgscale_writeback_share(void);

/* Counts from now on. */
extern void pgscale_writeback_rebase(void);

#endif							/* PGSCALE_WRITEBACK_WRITEBACK_STATS_H */
