/*-------------------------------------------------------------------------
 *
 * writeback.c
 *	  Limits the data that the kernel must still write for this cluster.
 *
 * The server writes into the kernel's page cache, and by default the kernel collects
 * gigabytes there for half a minute.  Any process that then needs the disk waits for
 * all of it: a checkpoint's fsync, and behind that every commit.  This worker makes the
 * kernel write all the time instead, so that it never holds more than
 * pgscale.writeback_cap.
 *
 * A round, 20 times a second: find the server's new writes (dirty_tracker.c, and
 * file_scan.c for files past the buffers), find which of them have reached the disk,
 * decide how much to request (writeback_controller.c), and request it
 * (flush_requests.c).  It takes no lock that others wait for, and no process waits for
 * it.
 *
 * The server's own checkpoint_flush_after and similar settings make such requests,
 * too.  But each process does so for its own writes, as soon as they reach a fixed
 * size, and backends by default never.  None of them considers the sum, the disk's
 * queue, or the benefit.
 *
 * Counts only grow.  A reset stores their values under a lock that the worker never takes.
 *
 * Failure: without the worker, the kernel works as usual.  An error in a round is
 * logged, the knowledge is discarded, and the worker begins again a second later.  A
 * failed write is raised as the server itself would raise it, by data_sync_retry.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "base/kernel.h"
#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/row_builder.h"
#include "base/shared_area.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/worker.h"
#include "writeback/dirty_tracker.h"
#include "writeback/flush_requests.h"
#include "writeback/writeback.h"
#include "writeback/writeback_controller.h"

/* Between two rounds: while anything is written, and otherwise. */
#define WORK_PERIOD_NS	(50 * NS_PER_MS)
#define IDLE_PERIOD_NS	(200 * NS_PER_MS)

/* A fraction of rewrites from which on the worker stands down: writing each page at once makes 1.4 times the writes. */
#define REDIRTY_LIMIT	0.3

/* If there was no round for that long, something is wrong. */
#define STALLED_MS		5000

/* Cumulative since the server started. */
typedef struct WritebackCounts
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
} WritebackCounts;

/* Only the worker writes it; others read it without a lock. */
typedef struct WritebackFigures
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
	double		rewritten;		/* fraction; -1: unknown */
	WritebackCounts counts;
} WritebackFigures;

typedef struct WritebackShared
{
	WritebackFigures figures;

	/* guarded by the lock */
	LWLock	   *lock;
	WritebackCounts base;
	TimestampTz reset_at;
} WritebackShared;

static WritebackShared *shared = NULL;

PG_FUNCTION_INFO_V1(pgscale_writeback_stats);

static int	writeback_use;		/* PgscaleUse */
static int	writeback_cap;		/* kB; -1: to be found */

static WritebackFigures *published = NULL;	/* in the worker */
static PgscaleWriteback controller;
static PgscaleTimer timer;
static bool on = false;
static int64 cpu_base;			/* added to the process' CPU time */
static uint64 files_found = 0;	/* pages, since it was switched on */
static uint64 counted_written;	/* of what the watch counts, already published */
static uint64 counted_unseen;

/* for the server's rate */
static int64 rate_since_ns;
static uint64 rate_written;

static void
writeback_define_gucs(void)
{
	DefineCustomEnumVariable("pgscale.writeback",
							 "Makes the kernel write continuously, so that little is left for a checkpoint's fsync.",
							 "\"auto\": not while more than 30 % of the writes hit a page again; \"on\": always.",
							 &writeback_use, PGSCALE_USE_OFF, pgscale_use_options,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.writeback_cap",
							"Limit of the bytes that the kernel must still write for this cluster.",
							"-1: what the disk takes in 0.25 s, from 8 MB to 256 MB.",
							&writeback_cap, -1, -1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
}

static void
writeback_init(void)
{
	shared->figures.cap = shared->figures.window = -1;
	shared->figures.server_rate = shared->figures.disk_rate = shared->figures.rewritten = -1;
	shared->reset_at = GetCurrentTimestamp();
}

static const PgscaleArea writeback_area = {
	.name = "pgscale writeback",
	.at = (void **) &shared,
	.size = sizeof(WritebackShared),
	.nlocks = 1,
	.locks = offsetof(WritebackShared, lock),
	.init = writeback_init,
};

static void
writeback_rebase(void)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->base = shared->figures.counts;
	shared->reset_at = GetCurrentTimestamp();
	shared->figures.reset_peak = true;
	LWLockRelease(shared->lock);
}

static void
switch_on(int64 now_ns)
{
	pgscale_writeback_watch_start(now_ns);
	pgscale_writeback_ask_start();
	pgscale_writeback_files_start();
	pgscale_writeback_decide_start(&controller, now_ns);
	files_found = counted_written = counted_unseen = 0;
	rate_since_ns = now_ns;
	rate_written = 0;
	on = true;
}

static void
switch_off(void)
{
	pgscale_writeback_watch_stop();
	pgscale_writeback_files_start();
	published->dirty = published->skipped = 0;
	on = false;
}

static int64
pages_bytes(int64 pages)
{
	return pages * BLCKSZ;
}

static void
writeback_decided(PgscaleWritebackState state, PgscaleWritebackReason reason, double number)
{
	if (published->state != state || published->reason != reason || published->state_change == 0)
	{
		published->state_change = GetCurrentTimestamp();
		published->decided_ns = pgscale_timer_clock();
	}
	published->reason = reason;
	published->reason_number = number;
	published->state = state;
}

static void
writeback_count(const PgscaleWritebackAsked *asked)
{
	WritebackCounts *c = &published->counts;

	c->rounds++;
	c->written += pgscale_writeback_watch.written - counted_written;
	c->unseen += pgscale_writeback_watch.unseen - counted_unseen;
	counted_written = pgscale_writeback_watch.written;
	counted_unseen = pgscale_writeback_watch.unseen;
	c->requests += asked->requests;
	c->asked += asked->asked;
	c->taken += asked->taken;
	c->backed_off += controller.reason == PGSCALE_WRITEBACK_SLOW_READS;
}

static void
measure_server_rate(int64 now_ns)
{
	uint64		written = pgscale_writeback_watch.written + files_found;

	if (now_ns - rate_since_ns < NS_PER_S)
		return;
	published->server_rate = (double) pages_bytes(written - rate_written) * NS_PER_S / (now_ns - rate_since_ns);
	rate_since_ns = now_ns;
	rate_written = written;
}

static void
writeback_publish(int64 skipped)
{
	published->dirty = pages_bytes(pgscale_writeback_watch.waiting + pgscale_writeback_watch.flying);
	if (published->reset_peak)
		published->peak = 0;
	published->reset_peak = false;
	published->peak = Max(published->peak, published->dirty);
	published->skipped = pages_bytes(skipped);
	published->cap = controller.cap;
	published->window = controller.window;
	published->disk_rate = controller.disk_rate;
	published->rewritten = pgscale_writeback_watch_rewritten();
}

/* Is there any use in asking?  If not, why? */
static bool
writeback_is_possible(PgscaleWritebackReason *obstacle)
{
	if (!enableFsync)
		*obstacle = PGSCALE_WRITEBACK_NO_FSYNC;
	else if (pgscale_compat_direct_data())
		*obstacle = PGSCALE_WRITEBACK_DIRECT_IO;
	else if (!pgscale_kernel_begins_writes("."))
		*obstacle = PGSCALE_WRITEBACK_OVERLAY;
	else if (!pgscale_kernel_may_begin_writes())
		*obstacle = PGSCALE_WRITEBACK_NO_CALL;
	else
		return true;
	return false;
}

/* Returns whether the server writes, or anything is left to write. */
static bool
writeback_work(int64 now_ns)
{
	bool		busy = pgscale_writeback_watch_round(now_ns, Max(timer.period_ns, WORK_PERIOD_NS));
	PgscaleWritebackAsked asked;
	PgscaleWritebackEvidence e;
	const double redirty_limit = writeback_use == PGSCALE_USE_AUTO ? REDIRTY_LIMIT : 1;
	int64		found;
	int64		skipped;
	int64		ask;

	found = pgscale_writeback_files_round(now_ns);
	pgscale_writeback_ask_look(&asked, now_ns);
	found += asked.found;
	files_found += found;
	published->counts.found += found;
	skipped = pgscale_writeback_ask_skipped(redirty_limit, now_ns);

	e.possible = writeback_is_possible(&e.obstacle);
	e.cap_setting = writeback_cap < 0 ? -1 : writeback_cap * PGSCALE_KB;
	e.redirty_limit = redirty_limit;
	e.waiting = pages_bytes(pgscale_writeback_watch.waiting);
	e.skipped = pages_bytes(skipped);
	e.flying = pages_bytes(pgscale_writeback_watch.flying);
	e.tells = asked.tells;
	e.landed = pages_bytes(asked.landed);
	e.landing_ms = asked.landing_ms;
	e.rewritten = pgscale_writeback_watch_rewritten();
	e.read_ms = pgscale_writeback_read_ms(now_ns);
	ask = pgscale_writeback_decide(&controller, &e, now_ns);
	if (ask > 0)
	{
		int64		since = pgscale_timer_clock();

		pgscale_writeback_ask(&asked, (ask + BLCKSZ - 1) / BLCKSZ, redirty_limit, now_ns);
		published->counts.ask_ns += pgscale_timer_clock() - since;
	}

	writeback_decided(controller.state, controller.reason, controller.number);
	writeback_count(&asked);
	measure_server_rate(now_ns);
	writeback_publish(skipped);
	return busy || pgscale_writeback_watch.waiting + pgscale_writeback_watch.flying > 0;
}

static void
writeback_round(void)
{
	int64		due;
	int64		expired = pgscale_timer_wait(&timer, &due);
	int64		now = pgscale_timer_clock();
	int64		period = timer.period_ns;

	(void) pgscale_worker_interrupts();

	if (writeback_use == PGSCALE_USE_OFF)
	{
		if (on)
			switch_off();
		writeback_decided(PGSCALE_WRITEBACK_OFF, PGSCALE_WRITEBACK_IS_OFF, 0);
		proc_exit(0);
	}
	if (!on)
		switch_on(now);
	if (expired > 0)
		period = writeback_work(now) ? WORK_PERIOD_NS : IDLE_PERIOD_NS;
	if (timer.period_ns != period)
		pgscale_timer_set(&timer, period);
	published->last_round_ns = pgscale_timer_clock();
	published->counts.cpu_ns = pgscale_timer_cpu_time() + cpu_base;
}

static void
writeback_failed(void)
{
	published->counts.errors++;
	if (on)
		switch_off();
	writeback_decided(PGSCALE_WRITEBACK_STANDING_DOWN, PGSCALE_WRITEBACK_FAILED, 0);
}

static void
writeback_detach(int code, Datum arg)
{
	published->pid = 0;
}

static void
writeback_main(void)
{
	published = &shared->figures;
	pgscale_worker_start("PgscaleWritebackMain");

	cpu_base = published->counts.cpu_ns - pgscale_timer_cpu_time();
	before_shmem_exit(writeback_detach, (Datum) 0);
	published->starts++;
	published->pid = MyProcPid;

	/* The first round decides what the next one waits for. */
	pgscale_timer_set(&timer, NS_PER_MS);
	pgscale_worker_rounds(writeback_round, writeback_failed);
}

/*
 * The view
 */

static const char *const states[] = {
	[PGSCALE_WRITEBACK_OFF] = "off",
	[PGSCALE_WRITEBACK_WATCHING] = "watching",
	[PGSCALE_WRITEBACK_CAPPING] = "capping",
	[PGSCALE_WRITEBACK_STANDING_DOWN] = "standing down"
};

/* -1: unknown */
static void
add_bytes(PgscaleRow *row, int64 bytes)
{
	pgscale_row_put(row, Int64GetDatum(bytes), bytes < 0);
}

static void
add_float(PgscaleRow *row, double number)
{
	pgscale_row_put(row, Float8GetDatum(number), number < 0);
}

/* The worker's figures, all NULL without a worker. */
static void
add_ours(PgscaleRow *row, bool preloaded)
{
	WritebackFigures s = {0};
	WritebackCounts base = {0};
	TimestampTz reset_at = 0;
	bool		on;

	if (preloaded)
	{
		LWLockAcquire(shared->lock, LW_SHARED);
		base = shared->base;
		reset_at = shared->reset_at;
		LWLockRelease(shared->lock);
		s = shared->figures;	/* after it: counts only grow */

		/*
		 * One that was ended, and is not wanted any more, did not put that
		 * down.
		 */
		if (s.pid == 0 && writeback_use == PGSCALE_USE_OFF)
		{
			s.state = PGSCALE_WRITEBACK_OFF;
			s.reason = PGSCALE_WRITEBACK_IS_OFF;
		}
	}
	on = preloaded && s.state != PGSCALE_WRITEBACK_OFF;

	pgscale_row_put(row, CStringGetTextDatum(states[s.state]), !preloaded);
	pgscale_row_put(row, CStringGetTextDatum(pgscale_writeback_reason(s.reason, s.reason_number)), !preloaded);
	pgscale_row_timestamp(row, s.state_change);
	add_bytes(row, on ? s.dirty : -1);
	add_bytes(row, on ? s.cap : -1);
	add_bytes(row, !preloaded ? -1 : s.reset_peak ? s.dirty : s.peak);
	add_bytes(row, on ? s.skipped : -1);
	add_float(row, on ? s.rewritten : -1);
	add_bytes(row, on ? (int64) s.server_rate : -1);
	add_bytes(row, on ? (int64) s.disk_rate : -1);
	add_bytes(row, on ? s.window : -1);

#define COUNT(field) ((int64) (s.counts.field - base.field))
	pgscale_row_put(row, Int64GetDatum(COUNT(written) * BLCKSZ), !preloaded);
	pgscale_row_put(row, Int64GetDatum(COUNT(found) * BLCKSZ), !preloaded);
	pgscale_row_put(row, Int64GetDatum(COUNT(unseen) * BLCKSZ), !preloaded);
	pgscale_row_put(row, Int64GetDatum(COUNT(requests)), !preloaded);
	pgscale_row_put(row, Int64GetDatum(COUNT(asked) * BLCKSZ), !preloaded);
	pgscale_row_put(row, Int64GetDatum(COUNT(taken) * BLCKSZ), !preloaded);
	pgscale_row_put(row, Float8GetDatum(COUNT(ask_ns) / 1e6), !preloaded);
	pgscale_row_put(row, Int64GetDatum(COUNT(backed_off)), !preloaded);
	pgscale_row_put(row, Int64GetDatum(COUNT(rounds)), !preloaded);
	pgscale_row_put(row, Int64GetDatum(COUNT(errors)), !preloaded);
	pgscale_row_put(row, Float8GetDatum(COUNT(cpu_ns) / 1e6), !preloaded);
#undef COUNT
	pgscale_row_timestamp(row, reset_at);
}

/* pgscale_internal.writeback_stats(): without preload, only the kernel's figures. */
Datum
pgscale_writeback_stats(PG_FUNCTION_ARGS)
{
	PgscaleKernelMemory memory;
	PgscaleRow	row = {0};

	add_ours(&row, pgscale_preload_done());
	pgscale_kernel_memory(&memory);
	add_bytes(&row, memory.dirty);
	add_bytes(&row, memory.writeback);
	add_bytes(&row, memory.background_threshold);
	add_bytes(&row, memory.threshold);
	add_float(&row, pgscale_kernel_io_pressure_fraction());
	return pgscale_row_result(&row, fcinfo);
}

/*
 * Health
 */

static PgscaleHealthState
writeback_state_of(const WritebackFigures *s)
{
	switch (s->reason)
	{
		case PGSCALE_WRITEBACK_IS_OFF:
			return PGSCALE_HEALTH_OFF;
		case PGSCALE_WRITEBACK_LEARNING:
			return PGSCALE_HEALTH_STARTING;
		case PGSCALE_WRITEBACK_LITTLE:
			return PGSCALE_HEALTH_IDLE;
		case PGSCALE_WRITEBACK_OVERLAY:
		case PGSCALE_WRITEBACK_NO_CALL:
		case PGSCALE_WRITEBACK_FAILED:
			return PGSCALE_HEALTH_BROKEN;
		default:
			return s->state == PGSCALE_WRITEBACK_CAPPING ? PGSCALE_HEALTH_WORKING : PGSCALE_HEALTH_STANDING_DOWN;
	}
}

/*
 * While it is of use, it does what these would: sessions need not, and the kernel
 * has little to collect.
 */
#define OF_USE_WHY	"the worker has the kernel write early already"

static const PgscaleClaim of_use_claims[] = {
	{"backend_flush_after", NULL, false, OF_USE_WHY},
	{"vm.dirty_background_bytes", NULL, false, OF_USE_WHY},
	{NULL}
};

/* And while the kernel saves writes by waiting, these had better not have it write. */
#define REWRITES_WHY	"it makes the kernel write pages at once that are written again soon"

static const PgscaleClaim rewrites_claims[] = {
	{"backend_flush_after", "0", true, REWRITES_WHY},
	{"checkpoint_flush_after", NULL, false, REWRITES_WHY},
	{"bgwriter_flush_after", NULL, false, REWRITES_WHY},
	{"vm.dirty_background_bytes", NULL, false, REWRITES_WHY},
	{NULL}
};

static const PgscaleClaim *
claims_of(const PgscaleHealth *health, const WritebackFigures *s)
{
	if (s->reason == PGSCALE_WRITEBACK_REWRITES)
		return rewrites_claims;
	if (health->state == PGSCALE_HEALTH_STARTING || health->state == PGSCALE_HEALTH_IDLE ||
		health->state == PGSCALE_HEALTH_WORKING)
		return of_use_claims;
	return NULL;
}

static void
writeback_health(PgscaleHealth *health)
{
	const WritebackFigures *s;

	if (!pgscale_health_preloaded(health, "pgscale.writeback", false))
		return;

	/* The worker may know of a reload before this backend does. */
	s = &shared->figures;
	if (s->pid != 0 ? s->state == PGSCALE_WRITEBACK_OFF : writeback_use == PGSCALE_USE_OFF)
	{
		health->state = PGSCALE_HEALTH_OFF;
		health->reason = pgscale_writeback_reason(PGSCALE_WRITEBACK_IS_OFF, 0);
		health->action = "set pgscale.writeback to auto and reload";
		return;
	}
	/* Switched on, its first round ends a moment later. */
	if (!pgscale_health_worker(health, &pgscale_writeback_module, s->pid, s->starts, Max(s->last_round_ns, s->decided_ns), STALLED_MS))
		return;
	health->state = writeback_state_of(s);
	health->reason = pgscale_writeback_reason(s->reason, s->reason_number);
	health->claims = claims_of(health, s);
	if (s->reason == PGSCALE_WRITEBACK_OVERLAY)
		health->action = "put the data directory on a volume of its own";
	else if (s->reason == PGSCALE_WRITEBACK_NO_CALL)
		health->action = "allow the system call sync_file_range, as in the container's seccomp profile, and restart";
	else if (s->reason == PGSCALE_WRITEBACK_REWRITES && pgscale_kernel_buffers_may_grow())
		health->action = "raise shared_buffers, so that pages which change often stay in them";
}

static bool
writeback_wanted(void)
{
	return writeback_use != PGSCALE_USE_OFF;
}

static const PgscaleWorker writeback_worker = {
	.name = "pgscale writeback",
	.wanted = writeback_wanted,
	.main = writeback_main,
};

const PgscaleModule pgscale_writeback_module = {
	.name = "writeback",
	.define_gucs = writeback_define_gucs,
	.areas = (const PgscaleArea *const[]) {&writeback_area, NULL},
	.worker = &writeback_worker,
	.reset = writeback_rebase,
	.health = writeback_health,
};
