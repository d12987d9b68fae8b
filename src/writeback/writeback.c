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
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "base/kernel.h"
#include "base/pg_compat.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/worker.h"
#include "writeback/dirty_tracker.h"
#include "writeback/flush_requests.h"
#include "writeback/writeback.h"
#include "writeback/writeback_controller.h"
#include "writeback/writeback_stats.h"


/* Between two rounds: while anything is written, and otherwise. */
#define WORK_PERIOD_NS	(50 * NS_PER_MS)
#define IDLE_PERIOD_NS	(200 * NS_PER_MS)

/* A fraction of rewrites from which on the worker stands down: writing each page at once makes 1.4 times the writes. */
#define REDIRTY_LIMIT	0.3

/* If there was no round for that long, something is wrong. */
#define STALLED_MS		5000


int			pgscale_writeback_use;
static int	writeback_cap;		/* kB; -1: to be found */

static PgscaleWritebackShare *share = NULL;
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
							 "\"auto\": except while the kernel saves writes by waiting; \"on\": all the time.",
							 &pgscale_writeback_use, PGSCALE_USE_OFF, pgscale_use_options,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.writeback_cap",
							"Maximum that the kernel may still have to write for this cluster.",
							"-1 is what the disk takes in 0.25 s, as measured, from 8 MB to 256 MB.",
							&writeback_cap, -1, -1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
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
	share->dirty = share->skipped = 0;
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
	if (share->state != state || share->reason != reason || share->state_change == 0)
	{
		share->state_change = GetCurrentTimestamp();
		share->decided_ns = pgscale_timer_clock();
	}
	share->reason = reason;
	share->reason_number = number;
	share->state = state;
}

static void
writeback_count(const PgscaleWritebackAsked *asked)
{
	PgscaleWritebackCounts *c = &share->counts;

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
	share->server_rate = (double) pages_bytes(written - rate_written) * NS_PER_S / (now_ns - rate_since_ns);
	rate_since_ns = now_ns;
	rate_written = written;
}

static void
writeback_publish(int64 skipped)
{
	share->dirty = pages_bytes(pgscale_writeback_watch.waiting + pgscale_writeback_watch.flying);
	if (share->reset_peak)
		share->peak = 0;
	share->reset_peak = false;
	share->peak = Max(share->peak, share->dirty);
	share->skipped = pages_bytes(skipped);
	share->cap = controller.cap;
	share->window = controller.window;
	share->disk_rate = controller.disk_rate;
	share->rewritten = pgscale_writeback_watch_rewritten();
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
	const double redirty_limit = pgscale_writeback_use == PGSCALE_USE_AUTO ? REDIRTY_LIMIT : 1;
	int64		found;
	int64		skipped;
	int64		ask;

	found = pgscale_writeback_files_round(now_ns);
	pgscale_writeback_ask_look(&asked, now_ns);
	found += asked.found;
	files_found += found;
	share->counts.found += found;
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
	e.read_ms = pgscale_writeback_disk_read_ms(now_ns);
	ask = pgscale_writeback_decide(&controller, &e, now_ns);
	if (ask > 0)
	{
		int64		since = pgscale_timer_clock();

		pgscale_writeback_ask(&asked, (ask + BLCKSZ - 1) / BLCKSZ, redirty_limit, now_ns);
		share->counts.ask_ns += pgscale_timer_clock() - since;
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

	if (pgscale_writeback_use == PGSCALE_USE_OFF)
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
	share->last_round_ns = pgscale_timer_clock();
	share->counts.cpu_ns = pgscale_timer_cpu_time() + cpu_base;
}

static void
writeback_failed(void)
{
	share->counts.errors++;
	if (on)
		switch_off();
	writeback_decided(PGSCALE_WRITEBACK_STANDING_DOWN, PGSCALE_WRITEBACK_FAILED, 0);
}

static void
writeback_detach(int code, Datum arg)
{
	share->pid = 0;
}

static void
writeback_main(int number)
{
	share = pgscale_writeback_share();
	pgscale_worker_start("PgscaleWritebackMain");

	cpu_base = share->counts.cpu_ns - pgscale_timer_cpu_time();
	before_shmem_exit(writeback_detach, (Datum) 0);
	share->starts++;
	share->pid = MyProcPid;

	/* The first round decides what the next one waits for. */
	pgscale_timer_set(&timer, NS_PER_MS);
	pgscale_worker_rounds(writeback_round, writeback_failed);
}

static PgscaleHealthState
writeback_state_of(const PgscaleWritebackShare *s)
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
claims_of(const PgscaleHealth *health, const PgscaleWritebackShare *s)
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
	const PgscaleWritebackShare *s;

	if (!pgscale_health_preloaded(health, "pgscale.writeback", false))
		return;

	/* The worker may know of a reload before this backend does. */
	s = pgscale_writeback_share();
	if (s->pid != 0 ? s->state == PGSCALE_WRITEBACK_OFF : pgscale_writeback_use == PGSCALE_USE_OFF)
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
	return pgscale_writeback_use != PGSCALE_USE_OFF;
}

static const PgscaleWorker writeback_worker = {
	.name = "pgscale writeback",
	.wanted = writeback_wanted,
	.main = writeback_main,
};

const PgscaleModule pgscale_writeback_module = {
	.name = "writeback",
	.define_gucs = writeback_define_gucs,
	.shmem_request = pgscale_writeback_share_request,
	.shmem_startup = pgscale_writeback_share_startup,
	.worker = &writeback_worker,
	.reset = pgscale_writeback_rebase,
	.health = writeback_health,
};
