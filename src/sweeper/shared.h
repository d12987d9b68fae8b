/*-------------------------------------------------------------------------
 *
 * shared.h
 *	  Shared memory of the sweeper and its writers, and what others read of it.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SWEEPER_SHARED_H
#define PGSCALE_SWEEPER_SHARED_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/dsm.h"
#include "storage/latch.h"
#include "storage/lwlock.h"

#include "base/change_count.h"
#include "base/server_counters.h"
#include "base/shared_area.h"
#include "base/shared_buffers.h"
#include "sweeper/forecast.h"
#include "sweeper/policy/policy.h"
#include "sweeper/standing_set.h"

#define PGSCALE_SWEEPER_MAX_WRITERS 16
/* Until they are seen not to keep up. */
#define PGSCALE_SWEEPER_FIRST_WRITERS 4

/* Of shared_buffers: more than that ready would be cache lost. */
#define PGSCALE_SWEEPER_MAX_WATERMARK 0.25

/* Buffers: that many ready ones last the fastest server for seconds. */
#define PGSCALE_SWEEPER_MAX_STOCK	(4 * 1024 * 1024)

/* Runs that may wait for a writer. */
#define PGSCALE_RUNS_QUEUED		4096

/* Pages that a writer has written and the sweeper not yet taken back. */
#define PGSCALE_PAGES_WRITTEN	4096

/* Runs of 1, 2, up to 4, 8, 16, 32, 64, and more pages. */
#define PGSCALE_RUN_CLASSES		8

typedef enum PgscaleSweeperState
{
	PGSCALE_SWEEPER_OFF,
	PGSCALE_SWEEPER_WARMING_UP,
	PGSCALE_SWEEPER_WATCHING,
	PGSCALE_SWEEPER_WORKING
} PgscaleSweeperState;

/* Why it is in that state, with a number that belongs to it. */
typedef enum PgscaleSweeperReason
{
	PGSCALE_SWEEPER_REASON_OFF,
	PGSCALE_SWEEPER_REASON_FREE_BUFFERS,
	PGSCALE_SWEEPER_REASON_NO_WAITS,
	PGSCALE_SWEEPER_REASON_WAITS,	/* sessions that wait */
	PGSCALE_SWEEPER_REASON_ALWAYS,
	PGSCALE_SWEEPER_REASON_NO_DEMAND,	/* seconds */
	PGSCALE_SWEEPER_REASON_CLEAN,	/* fraction of victims that were dirty */
	PGSCALE_SWEEPER_REASON_FAST_DISK,	/* us a page */
	PGSCALE_SWEEPER_REASON_NO_NEIGHBOURS,	/* pages a run */
	PGSCALE_SWEEPER_REASON_RINGS,	/* sessions that wait */
	PGSCALE_SWEEPER_REASON_READS,	/* fraction of the reads that is saved */
	PGSCALE_SWEEPER_REASON_RUNS,	/* pages a run */
	PGSCALE_SWEEPER_REASON_CLOCK_AS_GOOD,	/* fraction of the reads */
	PGSCALE_SWEEPER_REASON_QUICK_READS,
	PGSCALE_SWEEPER_REASON_OUTPACED,	/* buffers that are taken a second */
	PGSCALE_SWEEPER_REASON_LOSS /* fraction by which sessions run longer */
} PgscaleSweeperReason;

/*
 * Cumulative counts since the server started.  Written by one process each,
 * read by anyone without a lock.
 */
typedef struct PgscaleSweeperScanCounts
{
	uint64		ticks;
	uint64		scanned;
	uint64		decremented;
	uint64		supplied_clean;
	uint64		supplied_written;
	uint64		consumed;
	uint64		reused;
	uint64		queued;
	uint64		starved;
	uint64		errors;
	uint64		cpu_ns;
	uint64		observed;		/* while it only watches: see observe.c */
	uint64		unobserved;
	uint64		allocated;		/* buffers that processes took while it worked */
} PgscaleSweeperScanCounts;

typedef struct PgscaleSweeperWriteCounts
{
	uint64		runs;
	uint64		runs_by_pages[PGSCALE_RUN_CLASSES];
	uint64		written;
	uint64		neighbours;
	uint64		skipped_pinned;
	uint64		skipped_locked;
	uint64		skipped_wal;
	uint64		skipped_changed;
	uint64		write_ns;
	uint64		writeback_calls;
	uint64		writeback_ns;
	uint64		wal_flushes;
	uint64		errors;
	uint64		cpu_ns;
} PgscaleSweeperWriteCounts;

/* A buffer, and the page it is meant to hold. */
typedef struct PgscaleSweeperSwept
{
	int			buf;
	PgscalePage page;
} PgscaleSweeperSwept;

/* A writer's slot.  Each field belongs to the claimant. */
typedef struct PgscaleSweeperWriter
{
	pg_atomic_uint32 pid;		/* its owner, 0 if there is none */
	Latch	   *volatile latch; /* or NULL */
	volatile int writing;		/* pages of the run it is at */
	PgscaleSweeperWriteCounts counts;
} PgscaleSweeperWriter;

/* Pages that a writer has cleaned, for the sweeper to take back. */
typedef struct PgscaleSweeperWritten
{
	pg_atomic_uint32 put;		/* the writer's: how many ever went in */
	pg_atomic_uint32 taken;		/* the sweeper's: how many came out */
	PgscaleSweeperSwept pages[PGSCALE_PAGES_WRITTEN];
} PgscaleSweeperWritten;

/* What the sweeper and its writers give each other. */
typedef struct PgscaleSweeperQueues
{
	/* Runs to write.  The sweeper puts, writers take. */
	pg_atomic_uint32 runs_put;	/* how many ever */
	pg_atomic_uint32 runs_taken;
	PgscaleSweeperRun runs[PGSCALE_RUNS_QUEUED];

	PgscaleSweeperWritten written[PGSCALE_SWEEPER_MAX_WRITERS];
} PgscaleSweeperQueues;

/* See known_pages.h. */
typedef struct PgscaleSweeperPage PgscaleSweeperPage;

/*
 * The memory of the sweeper, which grows with the buffers: where this process has it.  All
 * but the queues are the sweeper's alone; others may read pages and policy.
 */
typedef struct PgscaleSweeperMemory
{
	dsm_segment *segment;		/* NULL: it is not mapped */
	PgscaleSweeperQueues *queues;
	PgscaleSweeperPage *pages;	/* of each buffer, what is known of its page */
	PgscaleSweeperPolicy *policy;
} PgscaleSweeperMemory;

/* What counts at the last reset, to be subtracted. */
typedef struct PgscaleSweeperBase
{
	PgscaleSweeperScanCounts sweep;
	PgscaleSweeperWriteCounts write;
	PgscaleSweeperPolicyReport policy;
	int64		backend_writes;
	TimestampTz reset_at;
} PgscaleSweeperBase;

/*
 * The sweeper and its writers.  Fields are the sweeper's to write if nothing else is
 * said.
 */
typedef struct PgscaleSweeper
{
	volatile int writers_now;	/* present number, see settle_writers() */
	pg_atomic_uint32 pid;		/* the sweeper's, 0 if it is not running */
	volatile dsm_handle memory; /* its, while it runs */
	volatile bool no_memory;	/* it could not get any */
	volatile uint64 starts;
	volatile PgscaleSweeperState state;
	PgscaleSweeperReason reason;
	double		reason_number;
	TimestampTz state_change;
	int64		decided_ns;		/* the same by CLOCK_MONOTONIC, as those below */
	int64		stood_down_ns;	/* last; 0: never, or it was of use since */
	PgscaleSweeperReason stood_down;	/* why */
	double		stood_down_number;
	int64		last_tick_ns;
	int64		period_ns;		/* to the next one, while it works */
	bool		warm;			/* all buffers have been used */
	bool		no_slots;		/* for a writer that was wanted */
	bool		few_slots;		/* for more writers, which it needs */
	double		pressed;		/* fraction of the last second: nearly nothing
								 * was ready, and all writers wrote */
	bool		stuck;			/* the writers get nowhere */
	bool		writes_short;	/* they do not keep up: see scan.c */
	bool		reads_cheap;	/* few of the waits are for reads */
	int			low;			/* watermarks in force */
	int			high;
	int			ready;
	PgscaleChangeCount report_changes;
	PgscaleSweeperPolicyReport report;	/* of the policy, with the counts of
										 * the sweepers before; zeros before
										 * the first */
	volatile uint32 restored;	/* pages of the file that was kept */
	char		restore_problem[80];	/* why that was ignored, or empty */
	volatile bool observing;	/* only the policy learns: see observe.c */
	PgscaleSweeperCoverage coverage;
	PgscaleSweeperForecast forecast;
	PgscaleSweeperScanCounts counts;
	PgscaleSweeperWriter writers[PGSCALE_SWEEPER_MAX_WRITERS];

	LWLock	   *lock;			/* over what follows, which any process writes */
	PgscaleBackendWrites backend_writes;
	bool		base_known;
	PgscaleSweeperBase base;
} PgscaleSweeper;

/* In shared memory, set at server start. */
extern PgscaleSweeper *pgscale_sweeper;

/* In the sweeper and in its writers. */
extern PgscaleSweeperMemory pgscale_sweeper_memory;

/*
 * Several processes may be started for one place, late or twice, by a delayed
 * postmaster: the first to claim it has it, the others must end.
 */
extern bool pgscale_sweeper_claim(pg_atomic_uint32 *owner);
extern void pgscale_sweeper_release(pg_atomic_uint32 *owner);

/* Queues a run.  Returns false if there is no room. */
extern bool pgscale_sweeper_put_run(PgscaleSweeperQueues *queues, const PgscaleSweeperRun *run);

/*
 * Take one.  Returns false if there is none.  If more seem to be there than
 * there is room for, which cannot be, they are given up, and *lost is set; this
 * goes for pages, too.
 */
extern bool pgscale_sweeper_take_run(PgscaleSweeperQueues *queues, PgscaleSweeperRun *run, bool *lost);

/* How many runs wait for a writer. */
extern uint32 pgscale_sweeper_queued_runs(PgscaleSweeperQueues *queues);

/* How many writers there may be. */
extern int	pgscale_sweeper_writers_most(void);

/* How many there should be. */
extern int	pgscale_sweeper_writers_wanted(void);

/* How many there are. */
extern int	pgscale_sweeper_writers_running(void);

/* Pages that are queued or being written. */
extern int	pgscale_sweeper_pending(PgscaleSweeperQueues *queues);

/* Returns a clean page.  It is forgotten if there is no room. */
extern void pgscale_sweeper_put_written(PgscaleSweeperWritten *written, const PgscaleSweeperSwept *swept);

/* Take one back.  Returns false if there is none. */
extern bool pgscale_sweeper_take_written(PgscaleSweeperWritten *written, PgscaleSweeperSwept *swept, bool *lost);

/* What all writers have done. */
extern PgscaleSweeperWriteCounts pgscale_sweeper_write_counts(void);

extern const PgscaleArea pgscale_sweeper_area;

/* What the sweeper last reported of its policy, at most a tick ago.  Returns false if it never did. */
extern bool pgscale_sweeper_reported(PgscaleSweeperPolicyReport *report);

/* Adds the counts of another report, or subtracts them. */
extern void pgscale_sweeper_report_add(PgscaleSweeperPolicyReport *report, const PgscaleSweeperPolicyReport *other, bool subtract);

/*
 * Pages that backends and recovery have written since the server started: a count
 * that never falls.  anew: the snapshot of statistics is discarded.
 */
extern int64 pgscale_sweeper_backend_writes(bool anew);

/* What counted at the last reset; take the counts of now for it. */
extern void pgscale_sweeper_base(PgscaleSweeperBase *base);
extern void pgscale_sweeper_rebase(void);

/* As above, but without a reset since the server started. */
extern void pgscale_sweeper_base_init(void);

#endif							/* PGSCALE_SWEEPER_SHARED_H */
