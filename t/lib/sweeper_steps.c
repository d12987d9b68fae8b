/*
 * Calls the sweeper's parts one by one, for tests that expect exact answers. While pgscale.sweeper is off it has no process, so a
 * session can do its ticks instead of it, on its share, and puts into its shared memory what is to be shown.
 */
#include "postgres.h"

#include "access/relation.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/latch.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/wait_event.h"

#include "base/shared_buffers.h"
#include "base/timer.h"
#include "base/worker.h"
#include "sweeper/controller.h"
#include "sweeper/shares.h"
#include "sweeper/standing_set.h"
#include "sweeper/sweeper.h"
#include "sweeper/write_combining.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(step_decide);
PG_FUNCTION_INFO_V1(step_crew);
PG_FUNCTION_INFO_V1(step_find);
PG_FUNCTION_INFO_V1(step_order);
PG_FUNCTION_INFO_V1(step_choose);
PG_FUNCTION_INFO_V1(step_looks);
PG_FUNCTION_INFO_V1(step_plant);
PG_FUNCTION_INFO_V1(step_forget);
PG_FUNCTION_INFO_V1(step_again);
PG_FUNCTION_INFO_V1(step_refresh);
PG_FUNCTION_INFO_V1(step_touch);
PG_FUNCTION_INFO_V1(step_set_usage);
PG_FUNCTION_INFO_V1(step_supply);
PG_FUNCTION_INFO_V1(step_write);
PG_FUNCTION_INFO_V1(step_lsn);
PG_FUNCTION_INFO_V1(step_share);
PG_FUNCTION_INFO_V1(step_tick);
PG_FUNCTION_INFO_V1(step_rest);
PG_FUNCTION_INFO_V1(step_queue);
PG_FUNCTION_INFO_V1(step_queued);
PG_FUNCTION_INFO_V1(step_writer);
PG_FUNCTION_INFO_V1(step_counts);
PG_FUNCTION_INFO_V1(step_state);
PG_FUNCTION_INFO_V1(step_few_slots);
PG_FUNCTION_INFO_V1(step_wait);
PG_FUNCTION_INFO_V1(step_warm);
PG_FUNCTION_INFO_V1(step_add);
PG_FUNCTION_INFO_V1(step_writing);

static PgscalePage
page_of(Oid oid, int fork, int64 block)
{
	Relation	rel = relation_open(oid, AccessShareLock);
	PgscalePage page = {.locator = rel->rd_locator,.fork = fork,.block = (BlockNumber) block};

	relation_close(rel, AccessShareLock);
	return page;
}

static text *
describe_runs(const PgscaleSweeperRun *runs, int n)
{
	StringInfoData said;

	initStringInfo(&said);
	for (int i = 0; i < n; i++)
		appendStringInfo(&said, "%s%u.%d:%u+%d/%d", i == 0 ? "" : " ", runs[i].first.locator.relNumber, runs[i].first.fork,
						 runs[i].first.block, runs[i].pages, runs[i].victims);
	return cstring_to_text(said.data);
}

/* decide(state, since, rest, now, ns, waiting, supplied, consumed, written, runs, write_ns, starved): seconds, but for write_ns */
Datum
step_decide(PG_FUNCTION_ARGS)
{
	PgscaleSweeperDecision decision = {
		.state = PG_GETARG_INT32(0) ? PGSCALE_SWEEPER_WORKING : PGSCALE_SWEEPER_WATCHING,
		.reason = PGSCALE_BECAUSE_NO_WAITS,
		.since_ns = (int64) (PG_GETARG_FLOAT8(1) * 1e9),
		.rest_ns = (int64) (PG_GETARG_FLOAT8(2) * 1e9)
	};
	const PgscaleSweeperEvidence evidence = {
		.ns = (int64) (PG_GETARG_FLOAT8(4) * 1e9),
		.waiting = PG_GETARG_FLOAT8(5),
		.supplied = PG_GETARG_INT64(6),
		.consumed = PG_GETARG_INT64(7),
		.written = PG_GETARG_INT64(8),
		.runs = PG_GETARG_INT64(9),
		.write_ns = PG_GETARG_INT64(10),
		.starved = PG_GETARG_INT64(11)
	};
	bool		used = pgscale_sweeper_decide(&decision, &evidence, (int64) (PG_GETARG_FLOAT8(3) * 1e9));

	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%s %s since %g rest %g: %s", used ? "used" : "kept",
											  decision.state == PGSCALE_SWEEPER_WORKING ? "work" : "watch",
											  decision.since_ns / 1e9, decision.rest_ns / 1e9,
											  pgscale_sweeper_reason(decision.reason, decision.number))));
}

/* crew(writers, pressed, running, most, slots, seconds): after so many seconds */
Datum
step_crew(PG_FUNCTION_ARGS)
{
	PgscaleSweeperCrew crew = {.writers = PG_GETARG_INT32(0)};

	for (int i = 0; i < PG_GETARG_INT32(5); i++)
		pgscale_sweeper_decide_writers(&crew, PG_GETARG_FLOAT8(1), PG_GETARG_INT32(2), PG_GETARG_INT32(3), PG_GETARG_INT32(4));
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%d%s", crew.writers, crew.few_slots ? ", few slots" : "")));
}

static bool
any_buffer(int buf)
{
	return true;
}

/* find(relation, fork, block, limit) */
Datum
step_find(PG_FUNCTION_ARGS)
{
	const PgscalePage page = page_of(PG_GETARG_OID(0), PG_GETARG_INT32(1), PG_GETARG_INT32(2));
	PgscaleSweeperRun run;
	int			bufs[PGSCALE_RUN_MAX];
	const int	n = pgscale_sweeper_run_around(&page, PG_GETARG_INT32(3), any_buffer, &run, bufs);

	PG_RETURN_TEXT_P(describe_runs(&run, n > 0));
}

/* What the standing set takes for unused. */
static int	unused_usage = 0;

static bool
step_unused(int buf, const PgscaleBuffer *look, const PgscalePage *page)
{
	return look->usage <= unused_usage;
}

/* order(longest): what sets of this session choose first */
Datum
step_order(PG_FUNCTION_ARGS)
{
	pgscale_sweeper_set_order(PG_GETARG_BOOL(0));
	PG_RETURN_VOID();
}

/*
 * choose(relation, blocks, pages, usage, limit, room): from a standing set of its own, with room for so many, into which these
 * pages were put; then how many are left in it
 */
Datum
step_choose(PG_FUNCTION_ARGS)
{
	ArrayType  *blocks = PG_GETARG_ARRAYTYPE_P(1);
	int			n = ArrayGetNItems(ARR_NDIM(blocks), ARR_DIMS(blocks));
	const int	limit = PG_GETARG_INT32(4);
	PgscaleSweeperRun runs[100];

	pgscale_sweeper_set_init(0, NBuffers, PG_GETARG_INT32(5));
	for (int i = 0; i < n; i++)
	{
		PgscalePage page = page_of(PG_GETARG_OID(0), 0, ((int *) ARR_DATA_PTR(blocks))[i]);
		int			buf = pgscale_buffer_find(&page);

		if (buf >= 0)
			pgscale_sweeper_set_add(buf, &page, limit);
	}
	unused_usage = PG_GETARG_INT32(3);
	n = pgscale_sweeper_set_choose(PG_GETARG_INT32(2), step_unused, limit, INT64CONST(1000000000), runs, lengthof(runs));
	PG_RETURN_TEXT_P(describe_runs(runs, n));
}

/* looks(relation, blocks, limit): puts these pages into a set of its own, in that order; returns what each of them cost */
Datum
step_looks(PG_FUNCTION_ARGS)
{
	ArrayType  *blocks = PG_GETARG_ARRAYTYPE_P(1);
	int			n = ArrayGetNItems(ARR_NDIM(blocks), ARR_DIMS(blocks));
	StringInfoData said;

	initStringInfo(&said);
	pgscale_sweeper_set_init(0, NBuffers, NBuffers);
	for (int i = 0; i < n; i++)
	{
		PgscalePage page = page_of(PG_GETARG_OID(0), 0, ((int *) ARR_DATA_PTR(blocks))[i]);

		appendStringInfo(&said, "%s%d", i == 0 ? "" : " ", pgscale_sweeper_set_add(pgscale_buffer_find(&page), &page, PG_GETARG_INT32(2)));
	}
	PG_RETURN_TEXT_P(cstring_to_text(said.data));
}

/* plant(relation, block, as): adds the buffer of the block to that set, as if it held block "as" */
Datum
step_plant(PG_FUNCTION_ARGS)
{
	PgscalePage page = page_of(PG_GETARG_OID(0), 0, PG_GETARG_INT32(1));
	int			buf = pgscale_buffer_find(&page);

	page.block = PG_GETARG_INT32(2);
	(void) pgscale_sweeper_set_add(buf, &page, 64);
	PG_RETURN_VOID();
}

/* forget(relation, block): as if its buffer held another page now */
Datum
step_forget(PG_FUNCTION_ARGS)
{
	PgscalePage page = page_of(PG_GETARG_OID(0), 0, PG_GETARG_INT32(1));

	pgscale_sweeper_set_forget(pgscale_buffer_find(&page));
	PG_RETURN_VOID();
}

/* again(pages, usage, limit): from that set */
Datum
step_again(PG_FUNCTION_ARGS)
{
	PgscaleSweeperRun runs[100];
	int			n;

	unused_usage = PG_GETARG_INT32(1);
	n = pgscale_sweeper_set_choose(PG_GETARG_INT32(0), step_unused, PG_GETARG_INT32(2), INT64CONST(1000000000), runs, lengthof(runs));

	PG_RETURN_TEXT_P(describe_runs(runs, n));
}

/* refresh(n, usage, limit): looks at so many of it anew */
Datum
step_refresh(PG_FUNCTION_ARGS)
{
	unused_usage = PG_GETARG_INT32(1);
	pgscale_sweeper_set_refresh(PG_GETARG_INT32(0), step_unused, PG_GETARG_INT32(2), INT64CONST(1000000000));
	PG_RETURN_VOID();
}

/* touch(relation, fork, first, last, usage, dirty): reads the pages in that order, and sets usage counts; -1 leaves them */
Datum
step_touch(PG_FUNCTION_ARGS)
{
	Relation	rel = relation_open(PG_GETARG_OID(0), AccessShareLock);

	for (int block = PG_GETARG_INT32(2); block <= PG_GETARG_INT32(3); block++)
	{
		Buffer		buffer = ReadBufferExtended(rel, PG_GETARG_INT32(1), block, RBM_NORMAL, NULL);

		if (PG_GETARG_BOOL(5))
		{
			LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
			MarkBufferDirty(buffer);
			LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
		}
		if (PG_GETARG_INT32(4) >= 0)
		{
			PgscaleBuffer look;

			pgscale_buffer_look(buffer - 1, &look);
			(void) pgscale_buffer_set_usage(buffer - 1, &look, PG_GETARG_INT32(4));
		}
		ReleaseBuffer(buffer);
	}
	relation_close(rel, AccessShareLock);
	PG_RETURN_VOID();
}

/* set_usage(first, last, usage): of buffers by their numbers */
Datum
step_set_usage(PG_FUNCTION_ARGS)
{
	for (int buf = PG_GETARG_INT32(0); buf <= PG_GETARG_INT32(1); buf++)
	{
		PgscaleBuffer look;

		do
			pgscale_buffer_look(buf, &look);
		while (!pgscale_buffer_set_usage(buf, &look, PG_GETARG_INT32(2)));
	}
	PG_RETURN_VOID();
}

/* supply(relation, fork, block, as, max_usage): the buffer of the block, meant to hold block "as" */
Datum
step_supply(PG_FUNCTION_ARGS)
{
	PgscalePage page = page_of(PG_GETARG_OID(0), PG_GETARG_INT32(1), PG_GETARG_INT32(2));
	int			buf = pgscale_buffer_find(&page);

	if (buf < 0)
		PG_RETURN_NULL();
	page.block = PG_GETARG_INT32(3);
	PG_RETURN_BOOL(pgscale_buffer_supply(buf, &page, PG_GETARG_INT32(4)));
}

/* write(relation, fork, block, as, locked): as above; locked: by this very session, once share, twice exclusive */
Datum
step_write(PG_FUNCTION_ARGS)
{
	static const char *const results[] = {"written", "changed", "pinned", "locked", "needs WAL", "beyond WAL"};
	PgscalePage page = page_of(PG_GETARG_OID(0), PG_GETARG_INT32(1), PG_GETARG_INT32(2));
	int			buf = pgscale_buffer_find(&page);
	int			locked = PG_GETARG_INT32(4);
	Buffer		buffer = InvalidBuffer;
	PgscaleWriteResult result;
	XLogRecPtr	lsn = InvalidXLogRecPtr;

	if (buf < 0)
		PG_RETURN_NULL();
	if (locked > 0)
	{
		if (!ReadRecentBuffer(page.locator, page.fork, page.block, buf + 1))
			PG_RETURN_NULL();
		buffer = buf + 1;
		LockBuffer(buffer, locked == 1 ? BUFFER_LOCK_SHARE : BUFFER_LOCK_EXCLUSIVE);
	}
	page.block = PG_GETARG_INT32(3);
	result = pgscale_buffer_write(buf, &page, &lsn);
	if (locked > 0)
		UnlockReleaseBuffer(buffer);
	PG_RETURN_TEXT_P(cstring_to_text(results[result]));
}

/* lsn(relation, block, lsn): gives the page that one, and returns the one that it had */
Datum
step_lsn(PG_FUNCTION_ARGS)
{
	Relation	rel = relation_open(PG_GETARG_OID(0), AccessShareLock);
	Buffer		buffer = ReadBuffer(rel, PG_GETARG_INT32(1));
	XLogRecPtr	had;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	had = PageGetLSN(BufferGetPage(buffer));
	PageSetLSN(BufferGetPage(buffer), (XLogRecPtr) PG_GETARG_INT64(2));
	MarkBufferDirty(buffer);
	UnlockReleaseBuffer(buffer);
	relation_close(rel, AccessShareLock);
	PG_RETURN_INT64((int64) had);
}

/* share(first, buffers, low, high, stack, window): what a tick works on from now on */
Datum
step_share(PG_FUNCTION_ARGS)
{
	PgscaleSweeperShare *share = pgscale_sweeper_share(0);

	share->first = PG_GETARG_INT32(0);
	share->buffers = PG_GETARG_INT32(1);
	share->low = PG_GETARG_INT32(2);
	share->high = PG_GETARG_INT32(3);
	share->stack_size = PG_GETARG_INT32(4);
	share->mode = PG_GETARG_BOOL(5) ? PGSCALE_SWEEPER_WINDOW : PGSCALE_SWEEPER_FREELIST;
	share->state = PGSCALE_SWEEPER_WORKING;
	PG_RETURN_VOID();
}

/* tick(): was there demand? */
Datum
step_tick(PG_FUNCTION_ARGS)
{
	static bool ready = false;
	PgscaleSweeperShare *share = pgscale_sweeper_share(0);

	if (!ready)
		pgscale_sweeper_scan_init(share);
	ready = true;
	pgscale_sweeper_scan_settings(share, share->mode, PGSCALE_SWEEPER_CLOCK);
	share->state = PGSCALE_SWEEPER_WORKING;
	PG_RETURN_BOOL(pgscale_sweeper_scan(share));
}

Datum
step_rest(PG_FUNCTION_ARGS)
{
	pgscale_sweeper_rest(pgscale_sweeper_share(0), false);
	PG_RETURN_VOID();
}

/* queue(relation, fork, block, pages, victims) */
Datum
step_queue(PG_FUNCTION_ARGS)
{
	PgscaleSweeperRun run = {
		.first = page_of(PG_GETARG_OID(0), PG_GETARG_INT32(1), PG_GETARG_INT32(2)),
		.pages = PG_GETARG_INT32(3),
		.victims = PG_GETARG_INT32(4)
	};

	PgscaleSweeperShare *share = pgscale_sweeper_share(0);
	bool		put = pgscale_sweeper_put_run(share, &run);
	Latch	   *latch = share->writers[0].latch;

	if (latch)
		SetLatch(latch);
	PG_RETURN_BOOL(put);
}

/* queued(): takes all of them */
Datum
step_queued(PG_FUNCTION_ARGS)
{
	PgscaleSweeperRun *runs = palloc(PGSCALE_RUNS_QUEUED * sizeof(PgscaleSweeperRun));
	bool		lost;
	int			n = 0;

	while (n < PGSCALE_RUNS_QUEUED && pgscale_sweeper_take_run(pgscale_sweeper_share(0), &runs[n], &lost))
		n++;
	PG_RETURN_TEXT_P(describe_runs(runs, n));
}

/* writer(number, working): one that finds the share in that state */
Datum
step_writer(PG_FUNCTION_ARGS)
{
	pgscale_sweeper_share(0)->state = PG_GETARG_BOOL(1) ? PGSCALE_SWEEPER_WORKING : PGSCALE_SWEEPER_WATCHING;
	PG_RETURN_BOOL(pgscale_worker_launch("pgscale sweeper writer 1", "pgscale_sweeper_writer_main", PG_GETARG_INT32(0), false, NULL));
}

/* counts(from): each count of the first share is another number, from that one on; writers have the same and one more */
Datum
step_counts(PG_FUNCTION_ARGS)
{
	PgscaleSweeperShare *share = pgscale_sweeper_share(0);
	uint64		from = PG_GETARG_INT64(0);

	for (int i = 0; i < sizeof(share->counts) / sizeof(uint64); i++)
		((uint64 *) &share->counts)[i] = from * (i + 1);
	for (int w = 0; w < PGSCALE_SWEEPER_MAX_WRITERS; w++)
		for (int i = 0; i < sizeof(share->writers[w].counts) / sizeof(uint64); i++)
			((uint64 *) &share->writers[w].counts)[i] = w == 0 || w == PGSCALE_SWEEPER_MAX_WRITERS - 1 ? from * (100 + i) : 0;
	PG_RETURN_VOID();
}

/* state(state, reason, number, stood_down, its number, seconds ago, no_slots, stuck, seconds since its last tick) */
Datum
step_state(PG_FUNCTION_ARGS)
{
	PgscaleSweeperShare *share = pgscale_sweeper_share(0);
	const int64 now = pgscale_timer_clock();

	share->state = PG_GETARG_INT32(0);
	share->reason = PG_GETARG_INT32(1);
	share->reason_number = PG_GETARG_FLOAT8(2);
	share->stood_down = PG_GETARG_INT32(3);
	share->stood_down_number = PG_GETARG_FLOAT8(4);
	share->stood_down_ns = PG_GETARG_INT32(5) < 0 ? 0 : now - PG_GETARG_INT32(5) * INT64CONST(1000000000);
	share->no_slots = PG_GETARG_BOOL(6);
	share->stuck = PG_GETARG_BOOL(7);
	for (int i = 0; i < pgscale_sweeper_count(); i++)
	{
		share = pgscale_sweeper_share(i);
		/* whom health takes for the sweeper */
		pg_atomic_write_u32(&share->pid, PG_GETARG_INT32(0) == PGSCALE_SWEEPER_OFF ? 0 : MyProcPid);
		share->decided_ns = share->last_tick_ns = now - PG_GETARG_INT32(8) * INT64CONST(1000000000);
	}
	PG_RETURN_VOID();
}

/* few_slots(writers, pressed): as if it had found no slot for more than so many, pressed in that part of the ticks; 0: it has */
Datum
step_few_slots(PG_FUNCTION_ARGS)
{
	PgscaleSweeperShare *share = pgscale_sweeper_share(0);

	share->few_slots = PG_GETARG_INT32(0) > 0;
	share->writers_now = Max(PG_GETARG_INT32(0), PGSCALE_SWEEPER_FIRST_WRITERS);
	share->pressed = PG_GETARG_FLOAT8(1);
	PG_RETURN_VOID();
}

/*
 * wait(relation, block, exclusive): holds the content of that page, and seems to wait to write one meanwhile, until it is
 * cancelled; of no page if the relation is NULL.
 */
Datum
step_wait(PG_FUNCTION_ARGS)
{
	Buffer		buffer = InvalidBuffer;

	if (!PG_ARGISNULL(0))
	{
		Relation	rel = relation_open(PG_GETARG_OID(0), AccessShareLock);

		buffer = ReadBuffer(rel, PG_GETARG_INT32(1));
		relation_close(rel, AccessShareLock);
		LockBuffer(buffer, PG_GETARG_BOOL(2) ? BUFFER_LOCK_EXCLUSIVE : BUFFER_LOCK_SHARE);
	}
	while (!QueryCancelPending && !ProcDiePending)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 600000L, WAIT_EVENT_DATA_FILE_WRITE);
		ResetLatch(MyLatch);
	}
	if (BufferIsValid(buffer))
		UnlockReleaseBuffer(buffer);
	CHECK_FOR_INTERRUPTS();
	PG_RETURN_VOID();
}

/* warm(): as if all buffers had been used */
Datum
step_warm(PG_FUNCTION_ARGS)
{
	for (int i = 0; i < pgscale_sweeper_count(); i++)
		pgscale_sweeper_share(i)->warm = true;
	PG_RETURN_VOID();
}

/* writing(pages): what the last writer seems to be at */
Datum
step_writing(PG_FUNCTION_ARGS)
{
	pgscale_sweeper_share(0)->writers[PGSCALE_SWEEPER_MAX_WRITERS - 1].writing = PG_GETARG_INT32(0);
	PG_RETURN_VOID();
}

/*
 * add(supplied, consumed, starved, written, runs, write_ns): to the counts, while nothing else does; half of what was
 * consumed was used again
 */
Datum
step_add(PG_FUNCTION_ARGS)
{
	PgscaleSweeperShare *share = pgscale_sweeper_share(0);
	PgscaleSweeperWriteCounts *write = &share->writers[PGSCALE_SWEEPER_MAX_WRITERS - 1].counts;

	share->counts.supplied_clean += PG_GETARG_INT64(0);
	share->counts.consumed += PG_GETARG_INT64(1) / 2;
	share->counts.reused += PG_GETARG_INT64(1) - PG_GETARG_INT64(1) / 2;
	share->counts.starved += PG_GETARG_INT64(2);
	write->written += PG_GETARG_INT64(3);
	write->runs += PG_GETARG_INT64(4);
	write->write_ns += PG_GETARG_INT64(5);
	PG_RETURN_VOID();
}
