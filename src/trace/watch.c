/*-------------------------------------------------------------------------
 *
 * watch.c
 *	  Watches a process: a loop over two words of its shared memory.
 *
 * The server publishes a wait by storing a number in the PGPROC of the process, and
 * does not count waits.  The shortest waits, for a page in the kernel's cache, take
 * less than a microsecond, so a watcher that sleeps or calls the kernel misses many.
 * Every few nanoseconds this loop reads the clock, the wait event, and the change
 * count of the status entry.  That count shows that the query identifier or the
 * state may have changed, or that the process has ended.  The loop calls no function.
 * The target only has to fetch the cache line back for each store.
 *
 * Gaps.  This process may lose its CPU to an interrupt, the scheduler, or the
 * hypervisor.  Its clock then jumps from one reading to the next.  Each jump of more than
 * PGSCALE_TRACE_GAP_NS is a gap: its length is added up, and the current stretch and
 * the next one are marked.  Time for storing a stretch counts as well: if it takes too
 * long, it is a gap.
 *
 * Statement.  The identifier is set some time after the statement began, and stays
 * until the next one begins.  During a wait it does not change, so it is read where the
 * wait begins.  For time on CPU it is read at the end: it belongs to the last
 * statement.
 *
 * Identity.  A pid may be used again, and so may a PGPROC.  Both are compared with the
 * start time in the status entry, which is written when a process begins and ends.
 *
 * Number.  A trace takes a CPU, so few are allowed: each holds one of some locks that
 * have no other use and that SQL cannot take.  The server releases a lock when a
 * statement ends, however it ends; so this needs no shared memory of its own and no
 * preload.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "storage/pmsignal.h"
#include "utils/timestamp.h"

#include "base/kernel.h"
#include "base/units.h"
#include "base/wait_events.h"
#include "trace/trace.h"

/* One trace for that many CPUs, at least one and at most MAX_PLACES. */
#define CPUS_PER_PLACE	4
#define MAX_PLACES		8

/*
 * The locks' names: as advisory ones of no database, with a fourth number that
 * pg_advisory_lock() does not use.
 */
#define LOCK_KIND		3

typedef struct Watch
{
	PgscaleTrace *trace;
	PgscaleProc proc;			/* what is known of the target */
	PgscaleProcMark mark;		/* where that shows */
	uint64		gap_cycles;

	/* The latest reading */
	uint64		last;
	uint32		event;
	bool		gap;			/* after a gap */

	/* The stretch under way */
	PgscaleTraceStretch stretch;
	int			changecount;	/* where it began */

	/* The statement that is traced, once it has an identifier */
	int64		queryid;
	TimestampTz activity_start;
	bool		doubtful;		/* another one may have begun in a gap */
} Watch;

int
pgscale_trace_places(void)
{
	const int	cpus = (int) pgscale_kernel_cpus();

	return cpus < 2 ? 0 : Min(Max(cpus / CPUS_PER_PLACE, 1), MAX_PLACES);
}

static bool
watch_take_place(LOCKTAG *place)
{
	const int	places = pgscale_trace_places();

	for (int i = 0; i < places; i++)
	{
		SET_LOCKTAG_ADVISORY(*place, InvalidOid, PGSCALE_TRACE_LOCK_CLASS, i, LOCK_KIND);
		if (LockAcquire(place, ExclusiveLock, false, true) == LOCKACQUIRE_OK)
			return true;
	}
	return false;
}

/* Notes a time without a reading; it belongs to what was under way. */
static void
watch_note_gap(Watch *watch, uint64 gap)
{
	PgscaleTrace *trace = watch->trace;

	trace->gaps_total += gap;
	trace->gaps_longest = Max(trace->gaps_longest, gap);
	watch->stretch.spans_gap = true;
}

/*
 * Reads until the target waits for something else than in the latest reading, or its
 * status has changed: true; or until the deadline: false.  A status that is being
 * changed, for which its count is odd, is waited for: a target that is stopped just
 * then may stay so for long.
 */
static bool
watch_poll(Watch *watch, uint64 deadline)
{
	const volatile uint32 *event_at = watch->mark.wait_event_at;
	const volatile int *changecount_at = watch->mark.changecount_at;
	const uint32 event = watch->event;
	const int	changecount = watch->proc.changecount;
	const int64 gap_cycles = watch->gap_cycles;
	uint64		last = watch->last;

	for (;;)
	{
		const uint64 now = pgscale_trace_cycles_now();
		const uint32 event_now = *event_at;
		const int64 passed = now - last;	/* below 0 from CPU to CPU */
		bool		gap = false;
		int			count;

		if (unlikely(passed > gap_cycles))
		{
			watch_note_gap(watch, passed);
			gap = true;

			/*
			 * A signal shows that it has ended, and takes long enough for a
			 * gap.
			 */
			if (unlikely(!PostmasterIsAlive()))
				proc_exit(1);
		}
		last = now;

		/*
		 * The event first: a process that ends a wait may change its status
		 * next.
		 */
		pg_read_barrier();
		count = *changecount_at;
		if (unlikely(event_now != event || count != changecount || now >= deadline))
		{
			const bool	changed = event_now != event || (count != changecount && count % 2 == 0);

			if (changed || now >= deadline)
			{
				/* Was it off its CPU between the clock and the event? */
				last = pgscale_trace_cycles_now();
				if (unlikely((int64) (last - now) > gap_cycles))
				{
					watch_note_gap(watch, last - now);
					gap = true;
				}
				watch->last = gap ? last : now;
				watch->event = event_now;
				watch->gap = gap;
				return changed && now < deadline;
			}
		}
		if (unlikely(InterruptPending))
			CHECK_FOR_INTERRUPTS();
	}
}

/* Reads the target's status anew; false if it has ended. */
static bool
watch_read(Watch *watch)
{
	const PgscaleProc *target = &watch->trace->target;
	PgscaleProc *proc = &watch->proc;
	bool		changed;
	uint64		retries = 0;

	return pgscale_procs_read(watch->trace->slot, proc, &changed, &retries) &&
		proc->pid == target->pid && proc->proc_start == target->proc_start &&
		proc->changecount != 0;
}

static void
watch_begin_stretch(Watch *watch)
{
	watch->stretch = (PgscaleTraceStretch)
	{
		.start = watch->last,
			.event = watch->event,
			.queryid = pgscale_proc_running_queryid(&watch->proc),
			.spans_gap = watch->gap
	};
	watch->changecount = watch->proc.changecount;
}

/* Writes down the stretch that ended with the latest reading; same: what is traced goes on. */
static void
watch_end_stretch(Watch *watch, bool same)
{
	PgscaleTrace *trace = watch->trace;
	PgscaleTraceStretch *stretch = &watch->stretch;
	const PgscaleProc *proc = &watch->proc;

	if (stretch->event == PGSCALE_WAIT_CPU && same &&
		(proc->running || proc->changecount != watch->changecount))
		stretch->queryid = proc->queryid;
	stretch->end = Max(watch->last, stretch->start);
	if (trace->totals)
		pgscale_trace_totals_add(trace->totals, stretch);
	if (trace->stretches)
		trace->stretches[trace->nstretches++] = *stretch;
}

/*
 * Reads once more, after the status has shown that a statement has begun: the wait that
 * was seen may be older than that.
 */
static void
watch_read_again(Watch *watch)
{
	const uint64 now = pgscale_trace_cycles_now();

	watch->event = *watch->mark.wait_event_at;
	if ((int64) (now - watch->last) > (int64) watch->gap_cycles)
		watch->gap = true;
	watch->last = now;
}

/* Waits until the target begins a statement; what it executes already is not meant. */
static bool
watch_for_statement(Watch *watch, uint64 deadline)
{
	bool		was_idle = !watch->proc.running;

	for (;;)
	{
		if (!watch_poll(watch, deadline))
		{
			watch->trace->end = PGSCALE_TRACE_NO_STATEMENT;
			return false;
		}
		if (!watch_read(watch))
		{
			watch->trace->end = PGSCALE_TRACE_TARGET_ENDED;
			return false;
		}
		if (!watch->proc.running)
			was_idle = true;
		else if (was_idle)
		{
			watch_read_again(watch);
			return true;
		}
	}
}

/*
 * Has the target ended its statement and begun another one between two readings?  That is
 * unknown for two statements with the same identifier.
 */
static bool
watch_missed_end(Watch *watch)
{
	const PgscaleProc *proc = &watch->proc;

	/* So it reads after each message of the extended protocol, too. */
	if (watch->gap && proc->activity_start != watch->activity_start)
		watch->doubtful = true;
	if (proc->queryid == 0)
		return false;
	if (watch->doubtful && watch->queryid != 0 && proc->queryid != watch->queryid)
		return true;
	watch->doubtful = false;
	watch->queryid = proc->queryid;
	watch->activity_start = proc->activity_start;
	return false;
}

/* Writes down one stretch after the other until the trace is to end; returns why. */
static PgscaleTraceEnd
watch_record(Watch *watch, uint64 deadline)
{
	PgscaleTrace *trace = watch->trace;
	PgscaleTraceEnd end = PGSCALE_TRACE_DURATION;
	bool		same = true;	/* what is traced still goes on */

	watch_begin_stretch(watch);
	(void) watch_missed_end(watch);
	while (watch_poll(watch, deadline))
	{
		same = watch_read(watch);
		if (!same)
		{
			end = PGSCALE_TRACE_TARGET_ENDED;
			break;
		}
		if (trace->statement)
			same = !watch_missed_end(watch);
		if (trace->statement && !(same && watch->proc.running))
		{
			end = PGSCALE_TRACE_STATEMENT_ENDED;
			break;
		}
		if (watch->event == watch->stretch.event)
			continue;
		watch_end_stretch(watch, true);
		if (trace->stretches && trace->nstretches == trace->max_stretches)
			return PGSCALE_TRACE_MAX_EVENTS;
		watch_begin_stretch(watch);
	}
	watch_end_stretch(watch, same);
	return end;
}

static uint64
watch_deadline(const Watch *watch, int64 ns)
{
	return watch->last + (uint64) (ns * watch->trace->per_ns);
}

static void
watch_run(Watch *watch)
{
	PgscaleTrace *trace = watch->trace;

	trace->end = PGSCALE_TRACE_TARGET_ENDED;
	watch->proc = trace->target;
	if (!watch_read(watch) || !pgscale_procs_mark(trace->slot, &watch->proc, &watch->mark))
		return;
	watch->last = pgscale_trace_cycles_now();
	watch->event = watch->proc.wait_event;
	if (trace->statement && !watch_for_statement(watch, watch_deadline(watch, trace->timeout_ns)))
		return;

	trace->first = watch->last;
	trace->gaps_total = trace->gaps_longest = 0;
	trace->end = watch_record(watch, watch_deadline(watch, trace->duration_ns));
	trace->last = watch->last;
}

bool
pgscale_trace_watch(PgscaleTrace *trace)
{
	Watch		watch = {.trace = trace};
	LOCKTAG		place;

	trace->began_at = GetCurrentTimestamp();
	trace->per_ns = pgscale_trace_cycles_begin(&trace->began);
	watch.gap_cycles = (uint64) (PGSCALE_TRACE_GAP_NS * trace->per_ns);
	if (!watch_take_place(&place))
		return false;
	watch_run(&watch);
	trace->per_ns = pgscale_trace_cycles_per_ns(&trace->began);
	LockRelease(&place, ExclusiveLock, false);
	return true;
}

double
pgscale_trace_us(const PgscaleTrace *trace, double cycles)
{
	return cycles / trace->per_ns / NS_PER_US;
}

TimestampTz
pgscale_trace_timestamp(const PgscaleTrace *trace, uint64 cycles)
{
	return trace->began_at + (TimestampTz) rint(pgscale_trace_us(trace, (double) (int64) (cycles - trace->began.cycles)));
}

/* A fraction; 1 if it took no time. */
double
pgscale_trace_watched(const PgscaleTrace *trace)
{
	if (trace->last <= trace->first)
		return 1;
	return Max(1 - (double) trace->gaps_total / (trace->last - trace->first), 0);
}

const char *
pgscale_trace_end_name(PgscaleTraceEnd end)
{
	static const char *const names[] = {
		[PGSCALE_TRACE_DURATION] = "duration",
		[PGSCALE_TRACE_MAX_EVENTS] = "max_events",
		[PGSCALE_TRACE_TARGET_ENDED] = "process ended",
		[PGSCALE_TRACE_STATEMENT_ENDED] = "statement ended",
		[PGSCALE_TRACE_NO_STATEMENT] = "no statement"
	};

	return names[end];
}
