/*-------------------------------------------------------------------------
 *
 * controller.c
 *	  Decides whether the sweeper works: it must prove its benefit or stand down.
 *
 * The waits that it can prevent show while it does nothing: sessions wait in
 * DataFileWrite, because they must clean a buffer before they can use it.  So it
 * watches for these waits, which costs next to nothing, and works when they appear.
 * While it works there are none, and its own writes show its benefit: whether there is
 * anything to write, whether a write takes longer than a copy into the kernel's cache,
 * and whether dirty pages have dirty neighbours.  If not, it stands down and rests
 * before it may work again, each time twice as long, until it was useful for a while.
 *
 * The other reason are reads.  It can choose better than the clock which pages leave, and
 * what that saves is forecast while it watches (forecast.c).  So it works if sessions wait
 * in DataFileRead, a wait is longer than a copy from the kernel's cache, and a part of the
 * reads would be saved.  The length of a wait is the number of sessions that
 * wait divided by the number of allocations a second (Little's law).  Either reason
 * is enough: while reads are saved, it does not matter that writes gain nothing.
 *
 * These reasons predict a gain.  Whether there is one, sessions show: how long they run for
 * a transaction.  If that is longer while it works than it was before, by more than chance
 * makes it, it stands down, whatever the reason is.  More clients make it longer, too, but
 * not while fewer transactions are done.
 *
 * Where buffers are taken faster than it can offer them, most sessions take one from the
 * server's clock, as without it, and it costs them CPU time.  So it stands down there, also
 * if it is to work always.
 *
 * The thresholds are not critical.  Where it helps, sessions spend most of their time
 * in such waits and a write takes a millisecond; where it cannot, both are a hundredth
 * of that.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "sweeper/controller.h"

/* It must see earlier than by all evidence that buffers are taken too fast. */
#define OUTPACED_NS		(2 * NS_PER_S)

#define REST_MIN_NS		(20 * NS_PER_S)
#define REST_LOSS_NS	(100 * NS_PER_S)	/* to lose takes 20 s */
#define REST_MAX_NS		(1200 * NS_PER_S)

/* Working for that long was useful. */
#define USEFUL_NS		(60 * NS_PER_S)

/* Fewer sessions than that, on average, are not a reason to work. */
#define MIN_WAITING		0.2

/* A read that is quicker is a copy within memory, too. */
#define MIN_READ_US		50.0

/*
 * What must be saved of the reads, to begin and to go on.  A forecast that is lower is as
 * likely none.
 */
#define MIN_SAVED		0.05
#define STILL_SAVED		0.02

/* Transactions may take that part longer, and so many standard errors. */
#define LOSS			0.05
#define LOSS_ERRORS		2

/* Fewer buffers a second cost little CPU time, even where the stock of a small cache does not last. */
#define OUTPACED_LEAST	200000

/* To go on, so much of the waits for reads is enough: it saves some. */
#define STILL_WAITING	0.5

/* Less than this fraction of victims dirty: nothing to write. */
#define MIN_DIRTY		0.05

/* A write that is quicker is a copy within memory, and no disk is behind it. */
#define MIN_WRITE_US	50.0

/* Shorter runs save no writes that matter. */
#define MIN_RUN_PAGES	1.25

/*
 * For that fraction of a second the writers must be pressed before one is added;
 * after that many seconds without, one is removed.
 */
#define PRESSED_MORE	0.1
#define RELAXED_S		30

/* A missing slot is reported after that many seconds. */
#define SHORT_S			10

/* Below these, means mean nothing. */
#define ENOUGH_PAGES	500
#define ENOUGH_RUNS		200

static void
sweeper_decide(PgscaleSweeperDecision *decision, PgscaleSweeperState state, PgscaleSweeperReason reason, double number,
			   int64 now_ns)
{
	if (decision->state != state)
	{
		decision->since_ns = now_ns;
		decision->again = false;
	}
	decision->state = state;
	decision->reason = reason;
	decision->number = number;
}

/* Microseconds that a read takes. */
static double
read_us(const PgscaleSweeperEvidence *e)
{
	return e->reading * (e->ns / 1e3) / Max(e->allocations, 1);
}

static bool
reads_delay(const PgscaleSweeperEvidence *e, double waiting)
{
	return e->reading >= waiting && read_us(e) >= MIN_READ_US;
}

/* Buffers that are taken a second. */
static double
taken_a_second(const PgscaleSweeperEvidence *e)
{
	return e->allocations / (e->ns / 1e9);
}

static bool
is_outpaced(const PgscaleSweeperEvidence *e)
{
	return taken_a_second(e) > Max(e->most, OUTPACED_LEAST);
}

static PgscaleSweeperCost
cost_of(const PgscaleSweeperEvidence *e)
{
	PgscaleSweeperCost cost = {0};

	if (e->transactions > 0 && e->running > 0)
	{
		const double error = e->running_error / e->running;

		cost.per_s = e->transactions / (e->ns / 1e9);
		cost.ms = e->running * 1e3 / cost.per_s;
		cost.error = sqrt(error * error + 1.0 / e->transactions);
	}
	return cost;
}

/* The fraction by which transactions take longer than before; 0 if that may be chance, or is not known. */
static double
cost_increase(const PgscaleSweeperCost *before, const PgscaleSweeperEvidence *e)
{
	const PgscaleSweeperCost cost = cost_of(e);
	double		loss;

	if (before->ms <= 0 || cost.ms <= 0 || cost.per_s >= before->per_s)
		return 0;
	loss = cost.ms / before->ms - 1;
	return loss > LOSS + LOSS_ERRORS * sqrt(before->error * before->error + cost.error * cost.error) ? loss : 0;
}

/* It rests for that long at least, and for longer each time until it has been of use for a while. */
static void
stand_down(PgscaleSweeperDecision *decision, PgscaleSweeperReason reason, double number, int64 least_ns, int64 now_ns)
{
	sweeper_decide(decision, PGSCALE_SWEEPER_WATCHING, reason, number, now_ns);
	decision->rest_ns = Min(Max(2 * decision->rest_ns, least_ns), REST_MAX_NS);
}

static void
sweeper_watch(PgscaleSweeperDecision *decision, const PgscaleSweeperEvidence *e, int64 now_ns)
{
	const bool	writes = e->waiting >= MIN_WAITING;
	const bool	reads = reads_delay(e, MIN_WAITING) && e->forecast && e->saved >= MIN_SAVED;
	const bool	rests = now_ns - decision->since_ns < decision->rest_ns;
	const bool	again = decision->again;

	decision->again = writes || reads;
	if (is_outpaced(e))
		sweeper_decide(decision, PGSCALE_SWEEPER_WATCHING, PGSCALE_SWEEPER_REASON_OUTPACED, taken_a_second(e), now_ns);
	else if (decision->reason == PGSCALE_SWEEPER_REASON_OUTPACED)
		sweeper_decide(decision, PGSCALE_SWEEPER_WATCHING, PGSCALE_SWEEPER_REASON_NO_WAITS, 0, now_ns);
	else if (!rests && e->always)
		sweeper_decide(decision, PGSCALE_SWEEPER_WORKING, PGSCALE_SWEEPER_REASON_ALWAYS, 0, now_ns);
	else if (!rests && again && decision->again)
	{
		sweeper_decide(decision, PGSCALE_SWEEPER_WORKING, writes ? PGSCALE_SWEEPER_REASON_WAITS : PGSCALE_SWEEPER_REASON_READS,
					   writes ? e->waiting : e->saved, now_ns);
		decision->before = cost_of(e);
	}
}

/*
 * Are reads a reason to go on?  If not, says why not.  Where nothing is forecast while the
 * sweeper works, they are if it began for them.
 */
static bool
saves_reads(const PgscaleSweeperEvidence *e, bool for_reads, PgscaleSweeperReason *why_not, double *number)
{
	const bool	saves = e->forecast ? e->saved >= STILL_SAVED : for_reads;

	*why_not = saves ? PGSCALE_SWEEPER_REASON_QUICK_READS : PGSCALE_SWEEPER_REASON_CLOCK_AS_GOOD;
	*number = e->forecast ? Max(e->saved, 0) : 0;
	return saves && reads_delay(e, STILL_WAITING * MIN_WAITING);
}

/* Are writes?  *sure: they are seen to gain; otherwise there are too few to say no. */
static bool
saves_writes(const PgscaleSweeperEvidence *e, PgscaleSweeperReason *why_not, double *number, bool *sure)
{
	const double write_us = e->written ? e->write_ns / 1e3 / e->written : 0;
	const double run_pages = e->runs ? (double) e->written / e->runs : 0;
	const double dirty = e->supplied ? (double) e->written / e->supplied : 1;

	*sure = e->written >= ENOUGH_PAGES && e->runs >= ENOUGH_RUNS;
	if (dirty < MIN_DIRTY)
		*why_not = PGSCALE_SWEEPER_REASON_CLEAN, *number = dirty;
	else if (e->written >= ENOUGH_PAGES && write_us < MIN_WRITE_US)
		*why_not = PGSCALE_SWEEPER_REASON_FAST_DISK, *number = write_us;
	else if (e->runs >= ENOUGH_RUNS && run_pages < MIN_RUN_PAGES)
		*why_not = PGSCALE_SWEEPER_REASON_NO_NEIGHBOURS, *number = run_pages;
	else if (e->waiting >= MIN_WAITING && e->starved == 0)
		*why_not = PGSCALE_SWEEPER_REASON_RINGS, *number = e->waiting;
	else
	{
		*number = run_pages;
		return true;
	}
	return false;
}

/*
 * One that began for reads goes on for writes only if it is sure of them: no session was
 * seen to wait for these.
 */
static void
sweeper_work(PgscaleSweeperDecision *decision, const PgscaleSweeperEvidence *e, int64 now_ns)
{
	const bool	for_reads = decision->reason == PGSCALE_SWEEPER_REASON_READS;
	PgscaleSweeperReason reason = PGSCALE_SWEEPER_REASON_WAITS;
	PgscaleSweeperReason reads_reason;
	double		number;
	double		reads_number;
	bool		sure;
	const bool	writes = saves_writes(e, &reason, &number, &sure);
	const double loss = now_ns - decision->since_ns < USEFUL_NS ? cost_increase(&decision->before, e) : 0;
	const bool	again = decision->again;

	decision->again = loss > 0;
	if (is_outpaced(e))
	{
		/* a try costs little */
		decision->rest_ns = 0;
		stand_down(decision, PGSCALE_SWEEPER_REASON_OUTPACED, taken_a_second(e), REST_MIN_NS, now_ns);
		return;
	}
	if (loss > 0 && again && !e->always)
	{
		stand_down(decision, PGSCALE_SWEEPER_REASON_LOSS, loss, REST_LOSS_NS, now_ns);
		return;
	}
	if (e->consumed == 0 && e->written == 0 && !e->always)
	{
		sweeper_decide(decision, PGSCALE_SWEEPER_WATCHING, PGSCALE_SWEEPER_REASON_NO_DEMAND, e->ns / 1e9, now_ns);
		decision->rest_ns = 0;
		return;
	}

	if (e->always)
		sweeper_decide(decision, PGSCALE_SWEEPER_WORKING, PGSCALE_SWEEPER_REASON_ALWAYS, 0, now_ns);
	else if (saves_reads(e, for_reads, &reads_reason, &reads_number))
	{
		if (!for_reads && !writes)
			sweeper_decide(decision, PGSCALE_SWEEPER_WORKING, PGSCALE_SWEEPER_REASON_READS, reads_number, now_ns);
	}
	else if (for_reads && writes && sure)
		sweeper_decide(decision, PGSCALE_SWEEPER_WORKING, PGSCALE_SWEEPER_REASON_RUNS, number, now_ns);
	else if (for_reads || !writes)
	{
		if (for_reads)
			reason = reads_reason, number = reads_number;
		stand_down(decision, reason, number, REST_MIN_NS, now_ns);
		return;
	}
	if (now_ns - decision->since_ns >= USEFUL_NS)
		decision->rest_ns = 0;
}

bool
pgscale_sweeper_decide(PgscaleSweeperDecision *decision, const PgscaleSweeperEvidence *evidence, int64 now_ns)
{
	bool		working = decision->state == PGSCALE_SWEEPER_WORKING;

	Assert(working || decision->state == PGSCALE_SWEEPER_WATCHING);
	/* what costs sessions CPU time does not wait for the rest of the evidence */
	if (!pgscale_sweeper_due(decision, evidence->ns) && (evidence->ns < OUTPACED_NS || !is_outpaced(evidence)))
		return false;
	if (working)
		sweeper_work(decision, evidence, now_ns);
	else
		sweeper_watch(decision, evidence, now_ns);
	return true;
}

/*
 * The kernel lets all processes that dirty pages of a slow disk write equally many
 * of them.  Few writers beside many sessions never can feed those: the stock runs
 * out, the sessions write single pages, and these take the disk from the runs.  So
 * the writers are as many as that takes, while others find slots, too.
 *
 * So slots that others need back are given back, and a writer that is missing counts
 * only if a slot is left for it: it would be launched again and again.
 */
void
pgscale_sweeper_decide_writers(PgscaleSweeperWriterCount *count, double pressed, int running, int most, int slots)
{
	bool		more;

	Assert(count->writers >= PGSCALE_SWEEPER_FIRST_WRITERS);
	count->writers = Max(Min(count->writers, running + slots), PGSCALE_SWEEPER_FIRST_WRITERS);
	more = pressed >= PRESSED_MORE && count->writers < most && running >= count->writers;
	count->relaxed_s = pressed >= PRESSED_MORE ? 0 : count->relaxed_s + 1;
	count->short_s = more && slots <= 0 ? count->short_s + 1 : 0;
	count->few_slots = count->short_s >= SHORT_S;
	if (more)
		count->writers += Min(Max(count->writers / 2, 1), Max(slots, 0));
	else if (count->relaxed_s >= RELAXED_S)
	{
		count->relaxed_s = 0;
		count->writers--;
	}
	count->writers = Max(Min(count->writers, most), PGSCALE_SWEEPER_FIRST_WRITERS);
}

char *
pgscale_sweeper_reason(PgscaleSweeperReason reason, double number)
{
	switch (reason)
	{
		case PGSCALE_SWEEPER_REASON_OFF:
			return pstrdup("it is switched off");
		case PGSCALE_SWEEPER_REASON_FREE_BUFFERS:
			return pstrdup("there are buffers that were never used");
		case PGSCALE_SWEEPER_REASON_NO_WAITS:
			return pstrdup("no session waits to write a page");
		case PGSCALE_SWEEPER_REASON_WAITS:
			return psprintf("%.1f sessions were waiting to write a page", number);
		case PGSCALE_SWEEPER_REASON_ALWAYS:
			return pstrdup("pgscale.sweeper is on, not auto");
		case PGSCALE_SWEEPER_REASON_NO_DEMAND:
			return psprintf("no buffer was needed for %.0f s", number);
		case PGSCALE_SWEEPER_REASON_CLEAN:
			return psprintf("only %.1f %% of the pages that leave are dirty", number * 100);
		case PGSCALE_SWEEPER_REASON_FAST_DISK:
			return psprintf("the disk delays no session: a write takes %.0f us", number);
		case PGSCALE_SWEEPER_REASON_NO_NEIGHBOURS:
			return psprintf("dirty pages have no dirty neighbours: %.2f pages a run", number);
		case PGSCALE_SWEEPER_REASON_RINGS:
			return psprintf("%.1f sessions write pages of their own, as COPY and VACUUM do", number);
		case PGSCALE_SWEEPER_REASON_READS:
			return psprintf("sessions wait for reads, and another choice of pages saves %.0f %% of them", number * 100);
		case PGSCALE_SWEEPER_REASON_RUNS:
			return psprintf("dirty pages are written together: %.1f pages a run", number);
		case PGSCALE_SWEEPER_REASON_CLOCK_AS_GOOD:
			return psprintf("another choice of pages saves only %.1f %% of the reads", number * 100);
		case PGSCALE_SWEEPER_REASON_QUICK_READS:
			return pstrdup("reads no longer delay sessions");
		case PGSCALE_SWEEPER_REASON_OUTPACED:
			return psprintf("sessions take %.0f buffers per second, more than it can offer", number);
		case PGSCALE_SWEEPER_REASON_LOSS:
			return psprintf("transactions took %.0f %% longer than before it worked", number * 100);
	}
	return NULL;				/* not reached */
}

bool
pgscale_sweeper_is_no_use(PgscaleSweeperReason reason)
{
	return reason == PGSCALE_SWEEPER_REASON_CLEAN || reason == PGSCALE_SWEEPER_REASON_FAST_DISK ||
		reason == PGSCALE_SWEEPER_REASON_NO_NEIGHBOURS || reason == PGSCALE_SWEEPER_REASON_RINGS ||
		reason == PGSCALE_SWEEPER_REASON_CLOCK_AS_GOOD || reason == PGSCALE_SWEEPER_REASON_OUTPACED ||
		reason == PGSCALE_SWEEPER_REASON_LOSS;
}
