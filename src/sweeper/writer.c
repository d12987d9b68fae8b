/*-------------------------------------------------------------------------
 *
 * writer.c
 *	  The sweeper's writers: background workers that write the chosen runs of dirty
 *	  pages.
 *
 * They are separate from the sweep, so that a slow disk delays nothing else.  There are
 * several, because the kernel makes the processes that write to a slow disk wait in
 * turns: one writer beside eight backends that write single pages would get a ninth of
 * the disk, and the backends would still have to write.
 *
 * Each writer takes the next run, writes it, and returns each page to the sweep as soon
 * as it is clean.  It makes one write for each page: the kernel joins them as well as
 * one call could, and only FlushOneBuffer() is needed from the server.  The kernel is
 * asked to start writing only a long run: asking for each short one would make the disk
 * write them one by one.
 *
 * Pages whose WAL is not on disk yet are skipped.  When there are many, as in a bulk
 * load, WAL is flushed for all of them.  A damaged page may contain a position that WAL
 * has not reached.  It is skipped as well, and nothing is flushed for it, because that
 * flush could only fail, again and again.
 *
 * Writers exist only while the sweep works, because they take slots of
 * max_worker_processes: the sweep launches them, and they end by themselves.
 *
 * Failure: an error (a full or broken disk) ends the run, not the process.  The page
 * stays dirty with its usual count, and the sweep will find it again.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_bitutils.h"
#include "storage/ipc.h"

#include "base/kernel.h"
#include "base/shared_buffers.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/worker.h"
#include "sweeper/segment.h"
#include "sweeper/shared.h"
#include "sweeper/sweeper.h"

/* How long to wait for a run at most; the sweep sets the latch. */
#define WAIT_MS			1000

/* For runs of that many pages, 128 kB, the kernel is asked to begin writing. */
#define WRITEBACK_PAGES	16

/* Without work for that long, end. */
#define LINGER_NS		(10 * NS_PER_S)

/* That many pages waiting for their WAL are worth a flush of it. */
#define WAL_PAGES		64

static PgscaleSweeperWriter *me = NULL;
static dsm_handle memory;		/* of the sweeper that it writes for */
static int	my_number;			/* from 0 */
static int64 cpu_base;			/* added to the process' CPU time */
static int64 worked_ns;			/* when it last had a run */
static XLogRecPtr unflushed = InvalidXLogRecPtr;
static int	unflushed_pages = 0;

PGDLLEXPORT void pgscale_sweeper_writer_main(Datum arg);

/* Pages have been written side by side. */
static void
count_run(const PgscalePage *first, int pages)
{
	int64		start;

	if (pages == 0)
		return;
	me->counts.runs++;
	me->counts.runs_by_pages[Min(pg_ceil_log2_32(pages), PGSCALE_RUN_CLASSES - 1)]++;

	if (pages < WRITEBACK_PAGES || pgscale_compat_direct_data() || !pgscale_kernel_may_begin_writes())
		return;
	start = pgscale_timer_clock();
	pgscale_buffer_pages_writeback(first, pages);
	me->counts.writeback_calls++;
	me->counts.writeback_ns += pgscale_timer_clock() - start;
}

/* Writes one page and gives it to the sweep. */
static bool
write_page(const PgscalePage *page)
{
	PgscaleSweeperSwept swept = {.buf = pgscale_buffer_find(page),.page = *page};
	PgscaleWriteResult result;
	XLogRecPtr	lsn;
	int64		start;

	if (swept.buf < 0)
	{
		me->counts.skipped_changed++;
		return false;
	}

	start = pgscale_timer_clock();
	result = pgscale_buffer_write(swept.buf, page, &lsn);
	switch (result)
	{
		case PGSCALE_WRITTEN:
			me->counts.write_ns += pgscale_timer_clock() - start;
			me->counts.written++;
			pgscale_sweeper_put_written(&pgscale_sweeper_memory.queues->written[my_number], &swept);
			break;
		case PGSCALE_WRITE_CHANGED:
			me->counts.skipped_changed++;
			break;
		case PGSCALE_WRITE_PINNED:
			me->counts.skipped_pinned++;
			break;
		case PGSCALE_WRITE_LOCKED:
			me->counts.skipped_locked++;
			break;
		case PGSCALE_WRITE_NEEDS_WAL:
			me->counts.skipped_wal++;
			unflushed = Max(unflushed, lsn);
			unflushed_pages++;
			break;
		case PGSCALE_WRITE_BEYOND_WAL:
			me->counts.skipped_wal++;
			break;
	}
	return result == PGSCALE_WRITTEN;
}

/* Should that fail, the next page that needs it asks for it again. */
static void
flush_wal(void)
{
	const XLogRecPtr upto = unflushed;

	unflushed = InvalidXLogRecPtr;
	unflushed_pages = 0;
	XLogFlush(upto);
	me->counts.wal_flushes++;
}

static void
write_run(const PgscaleSweeperRun *run)
{
	PgscalePage page = run->first;
	PgscalePage start = run->first;
	uint64		before = me->counts.written;

	for (int i = 0; i < run->pages; i++, page.block++)
	{
		/* Where a page is skipped, one run ends and another begins. */
		if (!write_page(&page))
		{
			count_run(&start, page.block - start.block);
			start = page;
			start.block++;
		}
		(void) pgscale_worker_interrupts();
	}
	count_run(&start, page.block - start.block);
	me->counts.neighbours += Max((int64) (me->counts.written - before) - run->victims, 0);

	if (unflushed_pages >= WAL_PAGES)
		flush_wal();
}

/* What is reported of it is of interest by the second. */
static void
sweeper_writer_report(int64 now)
{
	static int64 reported = 0;

	me->counts.cpu_ns = pgscale_timer_cpu_time() + cpu_base;
	if (now - reported >= NS_PER_S)
	{
		(void) pgstat_report_stat(true);
		reported = now;
	}
}

static void
write_round(void)
{
	PgscaleSweeperRun run;
	bool		lost = false;
	int64		now;

	Assert(pg_atomic_read_u32(&me->pid) == (uint32) MyProcPid && me->writing == 0);
	(void) pgscale_worker_interrupts();
	/* The next sweeper has another memory, and will have other writers. */
	if (pgscale_sweeper->memory != memory)
		proc_exit(0);
	while (my_number < pgscale_sweeper_writers_wanted() && pgscale_sweeper_take_run(pgscale_sweeper_memory.queues, &run, &lost))
	{
		worked_ns = pgscale_timer_clock();
		if (pgscale_sweeper->state != PGSCALE_SWEEPER_WORKING)
			continue;			/* too late */
		me->writing = run.pages;
		write_run(&run);
		me->writing = 0;
		sweeper_writer_report(worked_ns);
	}
	me->counts.errors += lost;

	now = pgscale_timer_clock();
	sweeper_writer_report(now);
	if (my_number >= pgscale_sweeper_writers_wanted() || now - worked_ns >= LINGER_NS)
		proc_exit(0);
	pgscale_worker_wait(WAIT_MS);
}

static void
write_failed(void)
{
	me->writing = 0;
	me->counts.errors++;
}

static void
sweeper_writer_detach(int code, Datum arg)
{
	me->writing = 0;
	me->latch = NULL;
	pgscale_sweeper_release(&me->pid);
}

void
pgscale_sweeper_writer_main(Datum arg)
{
	my_number = DatumGetInt32(arg);
	me = &pgscale_sweeper->writers[my_number];
	if (!pgscale_sweeper_claim(&me->pid))
		proc_exit(0);
	before_shmem_exit(sweeper_writer_detach, (Datum) 0);
	pgscale_worker_start("PgscaleSweeperWriter");

	if (!pgscale_sweeper_memory_attach(&pgscale_sweeper_memory))
		proc_exit(0);
	dsm_pin_mapping(pgscale_sweeper_memory.segment);
	memory = dsm_segment_handle(pgscale_sweeper_memory.segment);
	cpu_base = me->counts.cpu_ns - pgscale_timer_cpu_time();
	worked_ns = pgscale_timer_clock();
	me->latch = MyLatch;

	pgscale_worker_rounds(write_round, write_failed);
}
