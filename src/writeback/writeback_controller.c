/*-------------------------------------------------------------------------
 *
 * writeback_controller.c
 *	  Decides how much to ask the kernel to write now, and whether to ask at all.
 *
 * Up to half the cap, waiting data is left alone, so that neighbouring pages can join
 * and be written at once; the excess is requested.  The other half of the cap is room
 * for data in flight, and half of that for stretches whose pages are written again
 * soon.
 *
 * The window.  A queue at the disk delays everything that waits for the disk, first of
 * all the WAL's fsync behind it.  So data in flight is limited: the limit grows while
 * pieces reach the disk soon, and shrinks if they take long, or if reads take much
 * longer than without requests.  It never shrinks to nothing, because a checkpoint's
 * fsync would write the rest, all at once.  With a kernel that does not report when a
 * piece is on disk there is no such limit; that kernel makes the worker wait when the
 * disk's own queue is full.
 *
 * Standing down.  Where shared buffers are smaller than the working set, and the
 * kernel's cache is not, the kernel absorbs rewrites of the same page, and any cap
 * takes that away: with a fraction r of rewrites, writing each page at once makes 1 /
 * (1 - r) times the writes.  That fraction is measured all the time, with any cap, so
 * resuming needs no trial.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/units.h"
#include "writeback/dirty_tracker.h"
#include "writeback/writeback_controller.h"


/* The cap that is found: so much of the disk's time, within these bounds. */
#define CAP_S			0.25
#define CAP_MIN			(8 * PGSCALE_MB)
#define CAP_MAX			(256 * PGSCALE_MB)
#define CAP_UNKNOWN		(32 * PGSCALE_MB)

#define WINDOW_MIN		(512 * PGSCALE_KB)
#define WINDOW_START	(4 * PGSCALE_MB)
#define WINDOW_MAX		(64 * PGSCALE_MB)

/* What takes longer to reach the disk has queued for too long. */
#define LANDING_MS		100.0

/* Reads this much slower than without us are our doing. */
#define READ_FACTOR		2.0
#define READ_EXTRA_MS	2.0

/* How much a second's reads count for what is usual: otherwise, and then. */
#define READ_WEIGHT		0.1
#define READ_WEIGHT_BUSY 0.01

/* The rate is measured over so much time in which something was in flight. */
#define RATE_NS			(NS_PER_S / 2)

/* Having stood down, come back below this fraction of the limit, not before. */
#define COME_BACK		0.75
#define REST_NS			(10 * NS_PER_S)

void
pgscale_writeback_decide_start(PgscaleWriteback *w, int64 now_ns)
{
	memset(w, 0, sizeof(*w));
	w->state = PGSCALE_WRITEBACK_WATCHING;
	w->reason = PGSCALE_WRITEBACK_LEARNING;
	w->number = PGSCALE_REWRITE_WINDOW_S;
	w->since_ns = w->last_ns = now_ns;
	w->window = WINDOW_START;
	w->disk_rate = w->read_ms = -1;
}

static void
writeback_conclude(PgscaleWriteback *w, PgscaleWritebackState state, PgscaleWritebackReason reason, double number)
{
	w->state = state;
	w->reason = reason;
	w->number = number;
}

/* The disk's rate, over time in which it had something to do. */
static void
measure_rate(PgscaleWriteback *w, const PgscaleWritebackEvidence *e, int64 now_ns)
{
	if (w->was_flying)
	{
		w->busy_ns += now_ns - w->last_ns;
		w->busy_bytes += e->landed;
	}
	if (w->busy_ns >= RATE_NS)
	{
		double		rate = w->busy_bytes / ((double) w->busy_ns / NS_PER_S);

		if (w->disk_rate < 0 || rate > w->disk_rate)
			w->disk_rate = rate;
		else if (w->was_limited)
			w->disk_rate += (rate - w->disk_rate) * 0.1;
		w->busy_ns = w->busy_bytes = 0;
	}
	w->last_ns = now_ns;
}

static void
set_cap(PgscaleWriteback *w, int64 setting)
{
	if (setting >= 0)
		w->cap = setting;
	else if (w->disk_rate < 0)
		w->cap = CAP_UNKNOWN;
	else
		w->cap = Min(Max((int64) (w->disk_rate * CAP_S), CAP_MIN), CAP_MAX);
}

static void
adapt_window(PgscaleWriteback *w, const PgscaleWritebackEvidence *e)
{
	bool		slow_reads = e->read_ms >= 0 && w->read_ms >= 0 &&
		e->read_ms > w->read_ms * READ_FACTOR + READ_EXTRA_MS;

	if (e->read_ms >= 0)
	{
		/* If there is always something asked for, what is usual comes slowly. */
		double		weight = e->flying == 0 && !w->was_flying ? READ_WEIGHT : READ_WEIGHT_BUSY;

		w->read_ms = w->read_ms < 0 ? e->read_ms : w->read_ms + (e->read_ms - w->read_ms) * weight;
		w->slow_reads = slow_reads;
	}

	if (slow_reads || e->landing_ms > LANDING_MS)
		w->window = Max(w->window * 4 / 5, WINDOW_MIN);
	else if (e->landing_ms >= 0 && w->was_limited && !w->slow_reads)
		w->window = Min(w->window * 5 / 4, WINDOW_MAX);
}

/* Decides whether to ask at all. */
static bool
may_ask(PgscaleWriteback *w, const PgscaleWritebackEvidence *e, int64 now_ns)
{
	double		limit = e->redirty_limit;

	if (!e->possible)
	{
		writeback_conclude(w, PGSCALE_WRITEBACK_STANDING_DOWN, e->obstacle, 0);
		return false;
	}
	if (limit >= 1)
		return true;
	if (w->reason == PGSCALE_WRITEBACK_REWRITES && e->rewritten >= 0)
	{
		w->number = e->rewritten;
		if (now_ns - w->since_ns < REST_NS)
			return false;
		limit *= COME_BACK;
	}
	if (e->rewritten > limit)
	{
		if (w->reason != PGSCALE_WRITEBACK_REWRITES)
			w->since_ns = now_ns;
		writeback_conclude(w, PGSCALE_WRITEBACK_STANDING_DOWN, PGSCALE_WRITEBACK_REWRITES, e->rewritten);
		return false;
	}

	/* What is written again later than that cannot have been seen yet. */
	if (w->reason == PGSCALE_WRITEBACK_LEARNING)
	{
		int64		left = w->since_ns + PGSCALE_REWRITE_WINDOW_S * NS_PER_S - now_ns;

		w->number = (double) left / NS_PER_S;
		return left <= 0;
	}
	return true;
}

int64
pgscale_writeback_decide(PgscaleWriteback *w, const PgscaleWritebackEvidence *e, int64 now_ns)
{
	int64		excess;
	int64		room;
	int64		ask;

	measure_rate(w, e, now_ns);
	set_cap(w, e->cap_setting);
	adapt_window(w, e);
	w->was_limited = w->was_flying = false;
	if (!may_ask(w, e, now_ns))
		return 0;

	/*
	 * Pages that are better left alone may fill the room for those in flight.
	 */
	excess = Max(e->waiting - e->skipped - w->cap / 2, e->waiting - w->cap / 4 * 3);
	room = e->tells ? w->window - e->flying : WINDOW_MAX;
	w->was_limited = excess > room;
	if (w->slow_reads && excess > 0)
		writeback_conclude(w, PGSCALE_WRITEBACK_CAPPING, PGSCALE_WRITEBACK_SLOW_READS, w->read_ms);
	else if (e->waiting + e->flying > w->cap && w->disk_rate >= 0)
		writeback_conclude(w, PGSCALE_WRITEBACK_CAPPING, PGSCALE_WRITEBACK_BEHIND, w->disk_rate);
	else if (excess > 0 || e->flying > 0)
		writeback_conclude(w, PGSCALE_WRITEBACK_CAPPING, PGSCALE_WRITEBACK_KEEPING, 0);
	else
		writeback_conclude(w, PGSCALE_WRITEBACK_WATCHING, PGSCALE_WRITEBACK_LITTLE, 0);
	ask = Max(Min(excess, room), 0);
	w->was_flying = e->tells && e->flying + ask > 0;
	return ask;
}

char *
pgscale_writeback_reason(PgscaleWritebackReason reason, double number)
{
	switch (reason)
	{
		case PGSCALE_WRITEBACK_IS_OFF:
			return pstrdup("it is switched off");
		case PGSCALE_WRITEBACK_NO_FSYNC:
			return pstrdup("fsync is off: no checkpoint waits for the disk");
		case PGSCALE_WRITEBACK_DIRECT_IO:
			return pstrdup("the server writes data past the kernel's cache: nothing piles up there");
		case PGSCALE_WRITEBACK_OVERLAY:
			return pstrdup("the data directory is on overlay, which ignores requests to begin writing");
		case PGSCALE_WRITEBACK_NO_CALL:
			return pstrdup("the kernel or the container does not let it call sync_file_range, which begins writing");
		case PGSCALE_WRITEBACK_FAILED:
			return pstrdup("an error ended its last round; see the server log");
		case PGSCALE_WRITEBACK_LEARNING:
			return psprintf("learns for another %.0f s how often pages are written again", number);
		case PGSCALE_WRITEBACK_LITTLE:
			return pstrdup("less than half the cap waits in the kernel");
		case PGSCALE_WRITEBACK_KEEPING:
			return pstrdup("keeps the data that waits in the kernel under the cap");
		case PGSCALE_WRITEBACK_BEHIND:
			return psprintf("over the cap: the server writes more than the %.1f MB/s that the disk takes",
							number / PGSCALE_MB);
		case PGSCALE_WRITEBACK_SLOW_READS:
			return psprintf("asks for less, because reads take much longer than the usual %.1f ms", number);
		case PGSCALE_WRITEBACK_REWRITES:
			return psprintf("%.0f %% of the writes hit a page again within %d s, and the kernel saves these by waiting",
							number * 100, PGSCALE_REWRITE_WINDOW_S);
	}
	return pstrdup("");			/* not reached */
}
