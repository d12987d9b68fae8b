/*-------------------------------------------------------------------------
 *
 * now.c
 *	  What is wrong with the server now: the module, and the evidence that needs no look at
 *	  its processes.
 *
 * pgscale_internal.now_evidence() collects what is known of this moment as one jsonb: a
 * scan of all processes (now_processes.c), the root blockers (now_roots.c), what the
 * sampler saw in the last seconds and in the hour before, how full the disks are, and the
 * texts of the few sessions that count, by pg_stat_activity's rules.  Rules in C read that
 * evidence (now_rules.c), so a test can make it up.  The view pgscale.now lays it out, in SQL.
 *
 * The difference of any two snapshots of the evidence is a period: the last seconds, the last
 * minute, and what is usual, the hour before the last half minute.  Nothing is subtracted
 * across two epochs.  A reset of the server's counters takes some of the last seconds away,
 * so that these are unknown then; a longer period bears that.
 *
 * Of the disks those of pg_wal and of the data directory only: without them the server is
 * dead in any case.  On the disk of a tablespace that does not answer, this session would
 * wait as long as the disk does.
 *
 * Locking: the scan takes no lock.  The roots take what blockers takes, and nothing
 * while no process waits for a lock.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/statvfs.h>

#include "access/xlog_internal.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"

#include "base/evidence.h"
#include "base/preload.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/wal_disk.h"
#include "now/now.h"

/* The last seconds: at least so many, which smooths what a single sample is. */
#define RECENT_NS		(5 * NS_PER_S)
#define HALF_MINUTE_NS	(30 * NS_PER_S)
#define MINUTE_NS		(60 * NS_PER_S)

/* The usual period ended half a minute ago, so that what has just begun is not part of it, and has 15 s at least. */
#define USUAL_AGO_NS	(30 * NS_PER_S)
#define USUAL_LEAST_NS	(15 * NS_PER_S)

/* Without a snapshot for so long the sampler is not at work. */
#define STALLED_NS		(10 * NS_PER_S)

/* Less free space than that is little, if it is also less than this part of the disk. */
#define LITTLE_BYTES	(10.0 * PGSCALE_GB)
#define LITTLE_PART		0.1

PG_FUNCTION_INFO_V1(pgscale_now_counts);
PG_FUNCTION_INFO_V1(pgscale_now_disk);

/* The newest snapshot of an epoch (0: any) that is so old or older; else the oldest one of it, if oldest. */
static bool
find_snapshot(PgscaleEvidenceAge age, uint64 epoch, int64 before_ns, bool oldest, PgscaleEvidenceSnapshot *found)
{
	bool		any = false;
	PgscaleEvidenceSnapshot snapshot;

	for (uint64 i = pgscale_evidence_snapshots(age); i > 0 && pgscale_evidence_snapshot(age, i - 1, &snapshot); i--)
	{
		if (epoch != 0 && snapshot.epoch != epoch)
			break;
		if (snapshot.clock_ns > before_ns && !oldest)
			continue;
		*found = snapshot;
		any = true;
		if (snapshot.clock_ns <= before_ns)
			break;
	}
	return any;
}

/* The oldest snapshot since max_wal_size has the value that it has in the latest one, as far as they reach back. */
static void
cut_at_wal_size(const PgscaleEvidenceSnapshot *latest, PgscaleEvidenceSnapshot *from)
{
	PgscaleEvidenceSnapshot snapshot;

	if (from->max_wal_size_mb == latest->max_wal_size_mb)
		return;
	*from = *latest;
	for (uint64 i = pgscale_evidence_snapshots(PGSCALE_EVIDENCE_SECONDS); i > 0 && pgscale_evidence_snapshot(PGSCALE_EVIDENCE_SECONDS, i - 1, &snapshot); i--)
	{
		if (snapshot.epoch != latest->epoch || snapshot.max_wal_size_mb != latest->max_wal_size_mb)
			break;
		if (snapshot.clock_ns <= from->clock_ns)
			*from = snapshot;
	}
}

void
pgscale_now_put_waits(StringInfo out, const int64 *waits, int64 locks, double unit)
{
	int64		active = 0;
	bool		first = true;

	appendStringInfoString(out, ", \"kinds\": {");
	for (int kind = 0; kind < PGSCALE_WAIT_KINDS; kind++)
		if (waits[kind] > 0)
		{
			appendStringInfo(out, "%s\"%s\": %.4f", first ? "" : ", ", pgscale_wait_kind_name(kind), waits[kind] / unit);
			active += waits[kind];
			first = false;
		}
	appendStringInfo(out, "}, \"active\": %.4f, \"locks\": %.4f", active / unit, locks / unit);
}

static void
put_counted(StringInfo out, const char *name, int64 count)
{
	if (count >= 0)
		appendStringInfo(out, ", \"%s\": " INT64_FORMAT, name, count);
}

static void
put_period(StringInfo out, const char *name, const PgscaleEvidenceSnapshot *from, const PgscaleEvidenceSnapshot *to)
{
	PgscaleEvidence e;
	const PgscaleCounters *c = &e.counts;

	(void) pgscale_evidence_between(&from->sums, &to->sums, &e);
	if (e.resets > 0 && e.ns < USUAL_LEAST_NS)
		memset(&e.counts, -1, sizeof(e.counts));
	appendStringInfo(out, "%s\"%s\": {\"s\": %.3f", out->len > 1 ? ", " : "", name, (double) e.ns / NS_PER_S);
	put_counted(out, "commits", c->commits);
	put_counted(out, "rollbacks", c->rollbacks);
	put_counted(out, "deadlocks", c->deadlocks);
	put_counted(out, "reads", to->sums.counts.reads >= 0 ? c->reads : c->blocks_read);
	put_counted(out, "temp_bytes", c->temp_bytes);

	/*
	 * sessions report what they generate at a statement's end, and some last
	 * for minutes
	 */
	put_counted(out, "wal_bytes", to->sums.counts.wal_position >= 0 ? c->wal_position : c->wal_bytes);
	put_counted(out, "wal_syncs", c->wal_syncs);
	put_counted(out, "wal_sync_us", c->wal_sync_us);
	put_counted(out, "checkpoints_requested", c->checkpoints_requested);
	pgscale_now_put_waits(out, e.wait_ns, e.lock_ns, e.ns);
	appendStringInfoChar(out, '}');
}

/*
 * pgscale_internal.now_counts(): what happened in the last seconds ("recent"), the last half minute
 * ("half_minute"), the last minute ("minute"), and the hour before the last half minute ("usual"), as far
 * as each is known; NULL if the sampler is off or the library is not preloaded.  The minute begins no
 * earlier than max_wal_size got its value: what asked for checkpoints before is not known by the new one.
 */
Datum
pgscale_now_counts(PG_FUNCTION_ARGS)
{
	const int64 now = pgscale_timer_clock();
	PgscaleEvidenceSnapshot latest;
	PgscaleEvidenceSnapshot from;
	PgscaleEvidenceSnapshot usual;
	StringInfoData out;

	if (!pgscale_preload_done() || !find_snapshot(PGSCALE_EVIDENCE_SECONDS, 0, now, false, &latest) ||
		now - latest.clock_ns > STALLED_NS ||
		!find_snapshot(PGSCALE_EVIDENCE_SECONDS, latest.epoch, latest.clock_ns - RECENT_NS, false, &from))
		PG_RETURN_NULL();

	initStringInfo(&out);
	appendStringInfoChar(&out, '{');
	put_period(&out, "recent", &from, &latest);
	if (find_snapshot(PGSCALE_EVIDENCE_SECONDS, latest.epoch, latest.clock_ns - HALF_MINUTE_NS, true, &from))
		put_period(&out, "half_minute", &from, &latest);
	if (find_snapshot(PGSCALE_EVIDENCE_HOUR, latest.epoch, latest.clock_ns - MINUTE_NS, true, &from))
	{
		cut_at_wal_size(&latest, &from);
		if (from.sums.ns < latest.sums.ns)
			put_period(&out, "minute", &from, &latest);
		appendStringInfo(&out, ", \"max_wal_size_bytes\": " INT64_FORMAT, latest.max_wal_size_mb * PGSCALE_MB);
	}
	if (find_snapshot(PGSCALE_EVIDENCE_HOUR, latest.epoch, latest.clock_ns - USUAL_AGO_NS, false, &usual) &&
		find_snapshot(PGSCALE_EVIDENCE_HOUR, latest.epoch, PG_INT64_MIN, true, &from) &&
		usual.sums.ns - from.sums.ns >= USUAL_LEAST_NS)
		put_period(&out, "usual", &from, &usual);
	appendStringInfoChar(&out, '}');
	PG_RETURN_DATUM(DirectFunctionCall1(jsonb_in, CStringGetDatum(out.data)));
}

/* Puts size and free space, if that is little; returns whether it is. */
static bool
put_disk(StringInfo out, const char *name, const char *folder)
{
	struct statvfs disk;
	double		size;
	double		room;

	if (statvfs(folder, &disk) != 0)
		return false;
	size = (double) disk.f_blocks * disk.f_frsize;
	room = (double) disk.f_bavail * disk.f_frsize;
	if (room >= LITTLE_BYTES || room >= LITTLE_PART * size)
		return false;
	appendStringInfo(out, "%s\"%s_size_bytes\": %.0f, \"%s_free_bytes\": %.0f", out->len > 1 ? ", " : "", name, size, name, room);
	return true;
}

/* pgscale_internal.now_disk(): size and free space of these disks, of each that has little, and the bytes in pg_wal. */
Datum
pgscale_now_disk(PG_FUNCTION_ARGS)
{
	StringInfoData out;

	initStringInfo(&out);
	appendStringInfoChar(&out, '{');
	(void) put_disk(&out, "data", ".");
	if (put_disk(&out, "wal", XLOGDIR))
		appendStringInfo(&out, ", \"wal_used_bytes\": " INT64_FORMAT, pgscale_wal_disk_used());
	appendStringInfoChar(&out, '}');
	PG_RETURN_DATUM(DirectFunctionCall1(jsonb_in, CStringGetDatum(out.data)));
}

/* The evidence, and the cures. */
static const char *const asks[] = {
	"pgscale.activity", "pgscale.archive_nodes", "pgscale.blockers", "pgscale_internal.blockers", "pgscale.cancel", "pgscale.health",
	"pgscale.revert", "pgscale.set", "pgscale.tablespace_latency", "pgscale.terminate", "pgscale.top_waits",
	"pgscale_internal.tuning_journal", "pgscale_internal.tuning_max_wal_size", "pgscale_internal.wait_history", NULL
};

const PgscaleModule pgscale_now_module = {
	.name = "now",
	.asks = asks,
};
