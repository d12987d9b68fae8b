/*-------------------------------------------------------------------------
 *
 * sweeper_worker.c
 *	  The sweeper: clean buffers ahead of the backends, and neighbouring dirty pages
 *	  written together.
 *
 * On a server whose data does not fit into shared buffers, a backend that needs a
 * buffer must often write a dirty page first: a single one, at a random place of the
 * disk, while its query waits.  The sweeper runs the clock sweep in place of the
 * backends and keeps a stock of ready buffers.  That only moves the writes to another
 * process.  Most of them are saved because pages are written together with their dirty
 * neighbours.
 *
 * The sweeper looks, decides and supplies (scan.c), and never waits for a disk.  The
 * writers (writer.c) do; the sweeper launches them while it works.  Their shared memory
 * is in shared.c.  A policy decides which pages leave the cache (policy/policy.h);
 * known_pages.c reports to it what the backends did.  A file keeps what it remembers
 * over a restart of the server (saved_history.c).
 *
 * It works only where that is useful (controller.c).  Until then, and whenever the stock
 * is empty, backends do the same as on a server without it.
 *
 * It does not start before all buffers have been used: autoprewarm fills the unused
 * ones.  Before 19 the server's clock hand moves only when the freelist is empty; from 19
 * on there is no such list, and the hand has passed all buffers once.
 *
 * Failure: without the sweeper the stock is used up and not refilled.  The runs of a
 * missing writer are left to the others, and it is launched again.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/processes.h"
#include "base/server_counters.h"
#include "base/shared_buffers.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/worker.h"
#include "sweeper/controller.h"
#include "sweeper/keep.h"
#include "sweeper/known_pages.h"
#include "sweeper/saved_history.h"
#include "sweeper/segment.h"
#include "sweeper/shared.h"
#include "sweeper/sweeper.h"

/* Between two ticks: while the sweep works but has had no demand for a second, and while it does not. */
#define IDLE_PERIOD_NS	(50 * NS_PER_MS)
#define WATCH_PERIOD_NS (100 * NS_PER_MS)

/* The low watermark, as a part of the high one: as bench/sweeper measured them, 0.02 and 0.05 of the buffers. */
#define LOW_OF_HIGH		0.4

/* Ready buffers last that many seconds, but are no fewer than that. */
#define STOCK_S			10
#define STOCK_LEAST		16384
#define STOCK_DECAY		0.98	/* by the second, when less would do */

/* What may not be taken of max_worker_processes for more than the first writers. */
#define SLOTS_LEFT		Max(max_worker_processes / 4, 2)

/*
 * Reads are cheap while that many times the sessions that wait for them are fewer than those that
 * wait to write, as a mean of that many looks.
 */
#define CHEAP_TIMES		2
#define CHEAP_LOOKS		20

/* And what not even these take, except for the first one. */
#define LAST_SLOTS		1

static int	high_setting;		/* the high watermark, as the setting has it */
static double stock_most = STOCK_LEAST; /* what the upper one may be */
static PgscaleSweeperWriterCount writer_count = {.writers = PGSCALE_SWEEPER_FIRST_WRITERS};
static PgscaleTimer timer;
static int64 cpu_base;			/* added to the process' CPU time */
static int64 demanded = 0;		/* when it last found demand */
static bool left = true;		/* are all buffers the server's again? */
static bool hurries = false;	/* to observe what the server's hand passes */
static int64 watched = 0;		/* when it last reconsidered */
static int64 refreshed = 0;		/* when it last did what is done by the second */
static int	last_choice = -1;	/* in force a tick ago; -1: not known */

static PgscaleSweeperPolicyReport reported_before;	/* by earlier sweepers */

static PgscaleProc *procs = NULL;

/* What a second began with, and the periods of its ticks. */
static struct
{
	int64		at_ns;			/* 0: none has begun */
	uint64		taken;
	uint64		starved;
	int64		ns;
	int64		pressed_ns;
}			second;

/* The server's count of allocations, and the pages that came, a second ago. */
static struct
{
	int64		allocations;	/* -1: it did not work then */
	uint64		arrivals;
}			covered = {.allocations = -1};

/* Sessions that wait to write a page, and to read one, as a mean of the last looks. */
static struct
{
	double		writing;
	double		reading;
}			waits;

/* What it judges by, since it last did, and what came of that. */
static struct
{
	bool		began;
	int64		since_ns;
	uint64		looks;
	uint64		writing;		/* sessions that waited for that */
	uint64		reading;
	uint64		running;		/* that executed a statement, and the squares */
	uint64		running_squares;
	PgscaleSweeperEvidence counts;	/* back then */
	int			ndatabases;		/* whose transactions were counted then, */
	int64		transactions;	/* and these */
	PgscaleSweeperDecision decision;
}			judged;

/* Of sessions; a period is that of evidence. */
static PgscaleDatabases databases;

/* What the postmaster was asked for, one a writer. */
typedef struct Request
{
	BackgroundWorkerHandle *handle; /* NULL: nothing */
	int64		at_ns;
	bool		refused;		/* the server has no slot */
} Request;

static Request requests[PGSCALE_SWEEPER_MAX_WRITERS];

/*
 * Puts the watermarks in force: those of the setting, but no more than lasts.
 * In a large cache a per cent of the buffers is far more than the backends take
 * while a batch is written, and lost to them as cache.
 */
static void
apply_watermarks(void)
{
	pgscale_sweeper->high = (int) Min(high_setting, stock_most);
	pgscale_sweeper->low = Max((int) (pgscale_sweeper->high * LOW_OF_HIGH), 1);
	Assert(pgscale_sweeper->low < pgscale_sweeper->high);
}

static void
sweeper_apply_settings(void)
{
	high_setting = Max((int) (NBuffers * pgscale_sweeper_settings.high_watermark), 2);
	apply_watermarks();
}

/*
 * Once a second: how much lasts, by what was taken in the seconds before; twice
 * of what it was if there was too little.
 */
static void
limit_stock(int64 now)
{
	const uint64 taken = pgscale_sweeper->counts.consumed + pgscale_sweeper->counts.reused;

	if (second.at_ns != 0)
	{
		double		wanted = STOCK_S * (taken - second.taken) * 1e9 / (now - second.at_ns);

		if (pgscale_sweeper->counts.starved > second.starved)
			wanted = Max(wanted, 2.0 * pgscale_sweeper->high);
		stock_most = Max(wanted, Max(stock_most * STOCK_DECAY, STOCK_LEAST));
		stock_most = Min(stock_most, PGSCALE_SWEEPER_MAX_STOCK);
	}
	second.taken = taken;
	second.starved = pgscale_sweeper->counts.starved;
	second.at_ns = now;
	apply_watermarks();
}

/* How many of max_worker_processes are in use now. */
static int
count_background_workers(void)
{
	int			workers = 0;
	uint64		retries = 0;

	for (int slot = 0; slot < pgscale_procs_count(); slot++)
	{
		bool		changed;

		if (pgscale_procs_read(slot, &procs[slot], &changed, &retries) &&
			(pgscale_proc_is_worker(procs[slot].kind) || procs[slot].kind == PGSCALE_PROC_PARALLEL))
			workers++;
	}
	return workers;
}

/* In a tick: will the stock run out although all writers write? */
static void
note_pressure(void)
{
	bool		pressed = pgscale_sweeper->ready < pgscale_sweeper->low / 2 &&
		pgscale_sweeper_queued_runs(pgscale_sweeper_memory.queues) > 0;

	for (int i = 0; pressed && i < pgscale_sweeper_writers_wanted(); i++)
		pressed = pgscale_sweeper->writers[i].writing > 0 || pg_atomic_read_u32(&pgscale_sweeper->writers[i].pid) == 0;
	second.pressed_ns += pressed ? timer.period_ns : 0;
	second.ns += timer.period_ns;
}

/* Once a second: how many writers. */
static void
settle_writers(void)
{
	const int	slots = max_worker_processes - count_background_workers() - SLOTS_LEFT;

	pgscale_sweeper->pressed = second.ns > 0 ? (double) second.pressed_ns / second.ns : 0;
	second.pressed_ns = second.ns = 0;
	pgscale_sweeper_decide_writers(&writer_count, pgscale_sweeper->pressed, pgscale_sweeper_writers_running(),
								   pgscale_sweeper_writers_most(), slots);
	pgscale_sweeper->writers_now = writer_count.writers;
	pgscale_sweeper->few_slots = writer_count.few_slots;
}

static void
set_state(PgscaleSweeperState state, PgscaleSweeperReason reason, double number)
{
	if (pgscale_sweeper_is_no_use(reason))
	{
		pgscale_sweeper->stood_down_ns = pgscale_timer_clock();
		pgscale_sweeper->stood_down = reason;
		pgscale_sweeper->stood_down_number = number;
	}
	else if (state == PGSCALE_SWEEPER_WORKING)
		pgscale_sweeper->stood_down_ns = 0;
	if (state != pgscale_sweeper->state || reason != pgscale_sweeper->reason || pgscale_sweeper->state_change == 0)
	{
		pgscale_sweeper->state_change = GetCurrentTimestamp();
		pgscale_sweeper->decided_ns = pgscale_timer_clock();
	}
	pgscale_sweeper->reason = reason;
	pgscale_sweeper->reason_number = number;
	pgscale_sweeper->state = state;
}

/*
 * Counts the processes that wait to write a page that they must clean for themselves, those
 * that wait to read one, and the sessions that run.
 */
static void
look_at_waits(void)
{
	int			writing = 0;
	int			reading = 0;
	int			running = 0;
	uint64		retries = 0;

	for (int slot = 0; slot < pgscale_procs_count(); slot++)
	{
		bool		changed;
		int			place;

		if (!pgscale_procs_read(slot, &procs[slot], &changed, &retries) ||
			!(procs[slot].session || procs[slot].kind == B_STARTUP))
			continue;
		place = pgscale_counters_see_database(&databases, procs[slot].datid);
		/* whose transactions are counted */
		running += procs[slot].running && procs[slot].leader_pid == 0 && place >= 0 && place < judged.ndatabases;
		writing += procs[slot].wait_event == WAIT_EVENT_DATA_FILE_WRITE;
		reading += pgscale_wait_is_data_read(procs[slot].wait_event);
	}
	waits.writing += (writing - waits.writing) / CHEAP_LOOKS;
	waits.reading += (reading - waits.reading) / CHEAP_LOOKS;
	pgscale_sweeper->reads_cheap = waits.reading * (pgscale_sweeper->reads_cheap ? 1 : CHEAP_TIMES) < waits.writing;
	judged.writing += writing;
	judged.reading += reading;
	judged.running += running;
	judged.running_squares += (uint64) running * running;
	judged.looks++;
}

static PgscaleSweeperEvidence
count_all(void)
{
	const PgscaleSweeperScanCounts *counts = &pgscale_sweeper->counts;
	const PgscaleSweeperWriteCounts write = pgscale_sweeper_write_counts();
	PgscaleSweeperEvidence e = {0};

	e.supplied = counts->supplied_clean + counts->supplied_written;
	e.consumed = counts->consumed;
	e.starved = counts->starved;
	e.written = write.written;
	e.runs = write.runs;
	e.write_ns = write.write_ns;
	e.forecast = pgscale_sweeper_forecast_saved(&pgscale_sweeper->forecast, &e.saved);
	e.allocations = (uint64) pgscale_counters_allocations();
	e.most = pgscale_sweeper->high * (double) NS_PER_S / PGSCALE_SWEEPER_TICK_NS;
	e.always = pgscale_sweeper_settings.use == PGSCALE_USE_ON;
	return e;
}

static void
start_evidence(int64 now)
{
	judged.counts = count_all();
	judged.ndatabases = databases.n;
	judged.transactions = pgscale_counters_transactions(databases.oids, databases.n);
	databases.period++;
	judged.since_ns = now;
	judged.writing = judged.reading = judged.running = judged.running_squares = judged.looks = 0;
}

/* What the server does, and hence what to do. */
static void
sweeper_judge(int64 now)
{
	PgscaleSweeperEvidence e = count_all();
	double		looks;

	if (!judged.began || e.always != judged.counts.always)
	{
		/* switched on or to the other mode, or warm */
		judged.began = true;
		judged.decision = (PgscaleSweeperDecision)
		{
			.state = e.always ? PGSCALE_SWEEPER_WORKING : PGSCALE_SWEEPER_WATCHING,
				.reason = e.always ? PGSCALE_SWEEPER_REASON_ALWAYS : PGSCALE_SWEEPER_REASON_NO_WAITS,
				.since_ns = now
		};
		start_evidence(now);
	}
	else if (e.allocations < judged.counts.allocations)
		start_evidence(now);	/* the server's statistics were reset */
	look_at_waits();

	looks = judged.looks;
	e.ns = now - judged.since_ns;
	e.waiting = judged.writing / looks;
	e.reading = judged.reading / looks;
	e.allocations -= judged.counts.allocations;
	e.supplied -= judged.counts.supplied;
	e.consumed -= judged.counts.consumed;
	e.written -= judged.counts.written;
	e.runs -= judged.counts.runs;
	e.write_ns -= judged.counts.write_ns;
	e.starved -= judged.counts.starved;
	e.running = judged.running / looks;
	e.running_error = sqrt(Max(judged.running_squares / looks - e.running * e.running, 0) / looks);
	e.transactions = -1;
	if (pgscale_sweeper_due(&judged.decision, e.ns))
		e.transactions = pgscale_counters_transactions(databases.oids, judged.ndatabases) - judged.transactions;
	if (pgscale_sweeper_decide(&judged.decision, &e, now))
		start_evidence(now);
}

/* Takes what its policy knows by now into the forecast. */
static void
sweeper_forecast(void)
{
	PgscaleSweeperPolicyReport report;

	pgscale_sweeper_policy_report(pgscale_sweeper_memory.policy, &report);
	pgscale_sweeper_forecast_go_on(&pgscale_sweeper->forecast, &report, pgscale_sweeper->starts, NBuffers,
								   &pgscale_sweeper->coverage);
}

/*
 * In a tick: shows what the policy knows by now, so that a reset counts from here.  Logs it
 * if another choice of pages has come into force.
 */
static void
sweeper_report(void)
{
	PgscaleSweeperPolicyReport report;

	pgscale_sweeper_policy_report(pgscale_sweeper_memory.policy, &report);
	if (last_choice >= 0 && report.choice != last_choice)
		ereport(DEBUG1,
				(errmsg("pages leave by %s, before by %s; switch %llu",
						pgscale_sweeper_describe_choice(&report, report.choice), pgscale_sweeper_describe_choice(&report, last_choice),
						(unsigned long long) report.switches)));
	last_choice = report.choice;

	pgscale_sweeper_report_add(&report, &reported_before, false);
	(void) pgscale_change_begin_write(&pgscale_sweeper->report_changes);
	pgscale_sweeper->report = report;
	pgscale_change_end_write(&pgscale_sweeper->report_changes);
}

/*
 * Once a second while it works: how many buffers were taken, and how many of the pages that
 * came has it seen?
 */
static void
note_coverage(void)
{
	const int64 allocations = pgscale_counters_allocations();

	/* a reset of the server's statistics makes it fall */
	if (covered.allocations >= 0 && allocations >= covered.allocations)
	{
		const int64 taken = allocations - covered.allocations;
		const int64 seen = (int64) (pgscale_sweeper->report.arrivals - covered.arrivals);

		pgscale_sweeper->coverage.seen += seen;
		pgscale_sweeper->coverage.missed += taken - seen;
		pgscale_sweeper->counts.allocated += taken;
	}
	covered.allocations = allocations;
	covered.arrivals = pgscale_sweeper->report.arrivals;
}

/* May it supply, and should it? */
static void
sweeper_reconsider(int64 now)
{
	const bool	wanted = pgscale_sweeper_wanted();

	sweeper_forecast();

	if (wanted && !pgscale_sweeper->warm)
		pgscale_sweeper->warm = pgscale_buffers_hand() >= PGSCALE_HAND_WARM;

	if (wanted && pgscale_sweeper->warm)
	{
		sweeper_judge(now);
		set_state(judged.decision.state, judged.decision.reason, judged.decision.number);
		return;
	}

	judged.began = false;
	if (!wanted)
		set_state(PGSCALE_SWEEPER_OFF, PGSCALE_SWEEPER_REASON_OFF, 0);
	else
		set_state(PGSCALE_SWEEPER_WARMING_UP, PGSCALE_SWEEPER_REASON_FREE_BUFFERS, 0);
}

/*
 * Asks for a writer, to be called once a second until it runs.  A request that the
 * postmaster has not handled yet still counts; after that, the writer must still claim
 * its place, or is ending.
 */
static void
launch_writer(int i, int64 now)
{
	Request    *request = &requests[i];

	if (pgscale_worker_launched(&request->handle))
		return;
	request->at_ns = now;
	request->refused = !pgscale_worker_launch("pgscale sweeper writer", "pgscale_sweeper_writer_main", i, false, &request->handle);
}

/* Has the writers that are wanted. */
static void
launch_writers(int64 now)
{
	const int	wanted = pgscale_sweeper_writers_wanted();
	bool		refused = false;
	int			slots = -1;

	for (int i = 0; i < wanted; i++)
	{
		Request    *request = &requests[i];

		if (pg_atomic_read_u32(&pgscale_sweeper->writers[i].pid) != 0)
			continue;
		if (request->at_ns == 0 || now - request->at_ns >= NS_PER_S)
		{
			if (slots < 0)
				slots = Max(max_worker_processes - count_background_workers() - LAST_SLOTS, 0);
			if (i == 0 || slots > 0 || request->handle)
				launch_writer(i, now);
			else
			{
				request->at_ns = now;
				request->refused = true;
			}
			slots = Max(slots - 1, 0);
		}
		refused |= request->refused;
	}
	pgscale_sweeper->no_slots = refused;
}

static void
wake_writers(void)
{
	for (int i = 0; i < PGSCALE_SWEEPER_MAX_WRITERS; i++)
	{
		Latch	   *latch = pgscale_sweeper->writers[i].latch;

		if (latch && pgscale_sweeper->writers[i].writing == 0)
			SetLatch(latch);
	}
}

/* The timer's period follows what there is to do. */
static void
adapt_period(int64 now)
{
	int64		period = WATCH_PERIOD_NS;

	if (pgscale_sweeper->state == PGSCALE_SWEEPER_WORKING)
		period = now - demanded < NS_PER_S ? pgscale_sweeper->period_ns : IDLE_PERIOD_NS;
	else if (!left || hurries)
		period = PGSCALE_SWEEPER_TICK_NS;
	if (timer.period_ns != period)
		pgscale_timer_set(&timer, period);
}

/*
 * Where it does not work: it learns while it watches, unless buffers are taken too fast for
 * that, and keeps what it knows while it is off.
 */
static void
sweeper_rest(void)
{
	const bool	watches = pgscale_sweeper->state == PGSCALE_SWEEPER_WATCHING && pgscale_sweeper->reason != PGSCALE_SWEEPER_REASON_OUTPACED;

	left = pgscale_sweeper_rest(watches || pgscale_sweeper->observing);
	hurries = left && watches && pgscale_sweeper_observe();
}

static void
sweep_round(void)
{
	int64		due;
	int64		expired = pgscale_timer_wait(&timer, &due);
	int64		now;
	bool		reconsiders;

	Assert(pg_atomic_read_u32(&pgscale_sweeper->pid) == (uint32) MyProcPid);
	if (pgscale_worker_interrupts())
		sweeper_apply_settings();

	now = pgscale_timer_clock();
	reconsiders = !pgscale_sweeper_wanted() || now - watched >= WATCH_PERIOD_NS;
	if (reconsiders)
	{
		sweeper_reconsider(now);
		pgscale_sweeper_kept_follow();
		watched = now;
	}

	hurries = false;
	if (expired > 0 && pgscale_sweeper->state == PGSCALE_SWEEPER_WORKING)
	{
		if (pgscale_sweeper_scan())
			demanded = now;
		note_pressure();
		if (pgscale_sweeper_queued_runs(pgscale_sweeper_memory.queues) > 0)
		{
			launch_writers(now);
			wake_writers();
		}
	}
	else if (pgscale_sweeper->state != PGSCALE_SWEEPER_WORKING)
		sweeper_rest();
	sweeper_report();
	if (pgscale_sweeper->state != PGSCALE_SWEEPER_WORKING)
		covered.allocations = -1;
	if (!pgscale_sweeper_wanted() && left)
		proc_exit(0);

	if (pgscale_sweeper->state == PGSCALE_SWEEPER_WORKING && now - refreshed >= NS_PER_S)
	{
		limit_stock(now);
		settle_writers();
		note_coverage();
		pgscale_compat_refresh_backend_writes();
		refreshed = now;
	}

	if (expired > 0)
	{
		pgscale_sweeper->counts.ticks += reconsiders || !hurries;
		pgscale_sweeper->last_tick_ns = pgscale_timer_clock();
	}
	adapt_period(now);
	pgscale_sweeper->counts.cpu_ns = pgscale_timer_cpu_time() + cpu_base;
}

static void
sweep_failed(void)
{
	pgscale_sweeper->counts.errors++;
}

static void
sweeper_detach(int code, Datum arg)
{
	pgscale_sweeper_saved_write();
	pgscale_sweeper->memory = DSM_HANDLE_INVALID;
	pgscale_sweeper_release(&pgscale_sweeper->pid);
}

static void
sweeper_main(void)
{
	if (!pgscale_sweeper_claim(&pgscale_sweeper->pid))
		proc_exit(1);
	before_shmem_exit(sweeper_detach, (Datum) 0);
	pgscale_worker_start("PgscaleSweeperMain");

	pgscale_sweeper_memory_create();
	(void) pgscale_sweeper_reported(&reported_before);
	pgscale_sweeper_scan_init();
	procs = MemoryContextAllocZero(TopMemoryContext, pgscale_procs_count() * sizeof(PgscaleProc));
	cpu_base = pgscale_sweeper->counts.cpu_ns - pgscale_timer_cpu_time();

	pgscale_sweeper->starts++;
	pgscale_sweeper->state = PGSCALE_SWEEPER_OFF;
	sweeper_apply_settings();
	pgscale_sweeper_saved_read();
	pgscale_sweeper_base_init();

	/* The first round decides what the next one waits for. */
	pgscale_timer_set(&timer, NS_PER_MS);
	pgscale_worker_rounds(sweep_round, sweep_failed);
}

const PgscaleWorker pgscale_sweeper_worker = {
	.name = "pgscale sweeper",
	.wanted = pgscale_sweeper_wanted,
	.main = sweeper_main,
};
