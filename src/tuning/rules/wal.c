/*-------------------------------------------------------------------------
 *
 * wal.c
 *	  Rules about WAL: how much of it, where it waits, how it reaches the disk.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/xlog.h"
#include "postmaster/bgwriter.h"

#include "base/units.h"
#include "base/wal_disk.h"
#include "tuning/findings.h"

/* All that a commit waits for, but a standby. */
static double
sessions_committing(const PgscaleEvidence *e)
{
	return pgscale_tuning_waiting(e, PGSCALE_KIND_WAL_SYNC) +
		pgscale_tuning_waiting(e, PGSCALE_KIND_WAL_WRITE) +
		pgscale_tuning_waiting(e, PGSCALE_KIND_WAL_WRITE_LOCK);
}

/*
 * The larger part of what sessions wait for when there is more WAL than need be:
 * WAL itself, data that a checkpoint writes meanwhile, and a part of the CPU's
 * time, which copies pages and sums them up.
 */
static double
wal_volume_fraction(const PgscaleEvidence *e)
{
	return pgscale_tuning_wal_fraction(e) + pgscale_tuning_data_fraction(e) +
		0.25 * pgscale_tuning_fraction(e, PGSCALE_KIND_CPU);
}

double
pgscale_tuning_max_wal_size(const PgscaleTuningRuleInput *input)
{
	const double current = (double) max_wal_size_mb * PGSCALE_MB;
	const PgscaleTuningRuleInput latest = {
		.records = &input->records[input->nrecords - input->nlatest],.nrecords = input->nlatest
	};
	const double p95 = Max(pgscale_tuning_wal_rate_p95(input), pgscale_tuning_wal_rate_p95(&latest));
	const double wanted = Max(p95 * CheckPointTimeout * (1 + CheckPointCompletionTarget) * 1.2, 2 * current);
	const double size = Min(wanted, pgscale_tuning_bytes_below(PGSCALE_WAL_DISK_ADVISED * pgscale_wal_disk_room()));

	return size < 1.2 * current ? 0 : size;
}

/*
 * max_wal_size.  Window: 60 s or more, with at least two checkpoints.
 *
 * Threshold: WAL, and not the clock or somebody, asked for more than a tenth of
 * the checkpoints (pgscale_tuning_wal_starts_checkpoints()), and what that costs is
 * worth it.  Cost: each checkpoint makes the next change of each page log the
 * whole page.  So of the page images' share of WAL, all would be saved but what
 * checkpoints as far apart as checkpoint_timeout still cause:
 *
 *		gain = page images * (1 - interval / checkpoint_timeout)
 *			 * share of the sessions' time that depends on the amount of WAL
 *
 * No longer, if at the rate of the last part of the window the clock would start them.
 *
 * Value: so much that at the 95th percentile of the rate of WAL, in all of the window or in
 * its last part, checkpoints come by the clock, since one is due after max_wal_size / (1 +
 * completion target), with a fifth to spare; no more than half of the room of pg_wal's disk.
 *
 * Source: CalculateCheckpointSegments() in xlog.c; the documentation's chapter
 * "WAL Configuration".
 */
static PgscaleTuningFinding *
find_max_wal_size(const PgscaleTuningRuleInput *input)
{
	const PgscaleEvidence *e = input->sum;
	const PgscaleCounters *c = &e->counts;
	const double checkpoints = c->checkpoints_requested + c->checkpoints_timed;
	const double interval = pgscale_tuning_seconds(e) / Max(checkpoints, 1);
	const double images = pgscale_tuning_page_images(e);
	const double gain = images * Max(1 - interval / CheckPointTimeout, 0) * wal_volume_fraction(e);
	const double p95 = pgscale_tuning_wal_rate_p95(input);
	const double rate = pgscale_tuning_wal_volume(input->latest) / pgscale_tuning_seconds(input->latest);
	const double wanted = pgscale_tuning_max_wal_size(input);
	const PgscaleTuningNumber numbers[] = {
		{"checkpoints_requested", c->checkpoints_requested},
		{"checkpoints_timed", c->checkpoints_timed},
		{"interval_s", interval},
		{"wal_bytes_per_s_p95", p95},
		{"page_image_fraction", images},
		{"wal_fraction", pgscale_tuning_wal_fraction(e)},
		{"data_fraction", pgscale_tuning_data_fraction(e)},
		{NULL}
	};
	PgscaleTuningFinding *f;

	if (!pgscale_tuning_wal_starts_checkpoints(e))
		return pgscale_tuning_finding(PGSCALE_SATISFIED,
									  "WAL started %s of the %.0f checkpoints in %.0f s",
									  c->checkpoints_requested > 0 ? "few" : "none", checkpoints, pgscale_tuning_seconds(e));
	if (gain < PGSCALE_LEAST_GAIN)
		return pgscale_tuning_finding(PGSCALE_SATISFIED,
									  "WAL starts checkpoints, but that costs little: page images are %.0f %% of it",
									  100 * images);

	if (input->nlatest < input->nrecords && rate * CheckPointTimeout < 0.5 * pgscale_tuning_wal_distance())
		return pgscale_tuning_finding(PGSCALE_SATISFIED,
									  "WAL started checkpoints, but the clock would at the rate of the last %.0f s, %.2f MB a second",
									  pgscale_tuning_seconds(input->latest), rate / PGSCALE_MB);
	if (wanted == 0)
		return pgscale_tuning_finding(PGSCALE_SATISFIED,
									  "WAL starts checkpoints, but its file system has no room for a larger max_wal_size");

	f = pgscale_tuning_advise(pgscale_tuning_bytes_text(wanted), gain, numbers,
							  "a checkpoint came every %.0f s, because WAL reached max_wal_size, and %.0f %% of the "
							  "WAL are images of whole pages, which each checkpoint causes anew; with this size a checkpoint "
							  "comes every checkpoint_timeout (documentation, \"WAL Configuration\")",
							  interval, 100 * images);
	f->confidence = checkpoints >= 4 ? "high" : "medium";
	return f;
}

/* The share of the sessions' time in which they waited for WAL that was written to make room, and not for a commit. */
static double
wal_writes_for_room(const PgscaleTuningRuleInput *input)
{
	double		ns = 0;

	for (int i = 0; i < input->nrecords; i++)
	{
		const PgscaleEvidence *e = &input->records[i];
		const double full = e->counts.wal_buffers_full;

		ns += ((double) e->wait_ns[PGSCALE_KIND_WAL_WRITE_LOCK] + e->wait_ns[PGSCALE_KIND_WAL_WRITE]) *
			pgscale_tuning_ratio(full, full + e->counts.commits);
	}
	return pgscale_tuning_ratio(ns, input->sum->session_ns);
}

/*
 * wal_buffers.  Window: 30 s or more.
 *
 * Threshold: once a second a backend found no room for its record and wrote WAL
 * itself; that was every twentieth write, or sessions waited for places to insert
 * for a twentieth of their time; and less than a segment of buffers, beyond which
 * more do not help: WAL then comes faster than the disk takes it.
 *
 * Gain: who finds no room needs the lock that a commit holds as long as it
 * flushes, and keeps others waiting for its place:
 *
 *		gain = WALInsert + WALBufMapping
 *			 + (WALWrite lock + WalWrite) * full / (full + commits)
 *
 * The latter is summed up by record: commits wait for WAL, too, before and after a burst.
 *
 * Value: a segment, at most 64 MB, as the server chooses with enough of
 * shared_buffers.  Source: AdvanceXLInsertBuffer() in xlog.c; the documentation
 * of wal_buffers.
 */
static PgscaleTuningFinding *
find_wal_buffers(const PgscaleTuningRuleInput *input)
{
	const PgscaleEvidence *e = input->sum;
	const PgscaleCounters *c = &e->counts;
	const double full = c->wal_buffers_full;
	const double wanted = Min(wal_segment_size, 64 * PGSCALE_MB);
	const double places = pgscale_tuning_fraction(e, PGSCALE_KIND_WAL_INSERT) +
		pgscale_tuning_fraction(e, PGSCALE_KIND_WAL_BUFFERS);
	const double gain = places + wal_writes_for_room(input);
	const PgscaleTuningNumber numbers[] = {
		{"wal_buffers_full", full},
		{"wal_buffers_full_per_s", pgscale_tuning_rate(e, full)},
		{"wal_writes", c->wal_writes},
		{"commits", c->commits},
		{"wal_write_lock_fraction", pgscale_tuning_fraction(e, PGSCALE_KIND_WAL_WRITE_LOCK)},
		{"wal_write_fraction", pgscale_tuning_fraction(e, PGSCALE_KIND_WAL_WRITE)},
		{"wal_insert_fraction", pgscale_tuning_fraction(e, PGSCALE_KIND_WAL_INSERT)},
		{NULL}
	};

	if (!pgscale_tuning_wal_buffers_short(e))
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "WAL buffers were full %.1f times a second", pgscale_tuning_rate(e, full));
	if ((double) XLOGbuffers * XLOG_BLCKSZ >= wanted)
		return pgscale_tuning_finding(PGSCALE_SATISFIED,
									  "WAL buffers were full %.1f times a second, but hold a whole segment: WAL comes faster "
									  "than it is written", pgscale_tuning_rate(e, full));
	if (gain < PGSCALE_LEAST_GAIN)
		return pgscale_tuning_finding(PGSCALE_SATISFIED,
									  "WAL buffers were full %.1f times a second, which cost less than %.1f %% of the "
									  "sessions' time", pgscale_tuning_rate(e, full), Max(100 * gain, 0.1));

	return pgscale_tuning_advise(pgscale_tuning_bytes_text(wanted), gain, numbers,
								 "%.0f times a second a session found WAL buffers full and had to write them itself, behind the "
								 "commits that flush (documentation of wal_buffers)", pgscale_tuning_rate(e, full));
}

/*
 * commit_delay.  Window: 30 s or more.
 *
 * Threshold: commits wait for a quarter of the sessions' time or more, the disk
 * flushes for at least half of the time, a flush takes a millisecond or more,
 * and at least commit_siblings sessions commit at a time; and nothing else is
 * known that makes flushes slow or many.
 *
 * Gain: without a delay, those who come while a flush is under way wait for the
 * next one: of n sessions that do little but commit, half flush, half wait, and
 * each cycle of two flushes commits n.  With a delay of half a flush, all are
 * there: one and a half flushes commit n, a quarter less time.  Where commits share
 * flushes better already, less.
 *
 *		gain = commits' share * least(1/4, 1 - 1.5 * commits per flush / n)
 *
 * Value: half of a flush, as the documentation of commit_delay recommends.
 */
static PgscaleTuningFinding *
find_commit_delay(const PgscaleTuningRuleInput *input)
{
	const PgscaleEvidence *e = input->sum;
	const double committing = sessions_committing(e);
	const double share = pgscale_tuning_ratio(committing, pgscale_tuning_busy(e));
	const double flushing = pgscale_tuning_waiting(e, PGSCALE_KIND_WAL_SYNC);
	const double flush_ms = pgscale_tuning_flush_ms(e);
	const double per_flush = pgscale_tuning_ratio(e->counts.commits, e->counts.wal_syncs);
	const double gain = share * Min(0.25, 1 - 1.5 * pgscale_tuning_ratio(per_flush, committing));
	const PgscaleTuningNumber numbers[] = {
		{"commit_fraction", share},
		{"sessions_committing", committing},
		{"commits_per_flush", per_flush},
		{"flush_ms", flush_ms},
		{"flushes_per_s", pgscale_tuning_rate(e, e->counts.wal_syncs)},
		{"commits_per_s", pgscale_tuning_rate(e, e->counts.commits)},
		{NULL}
	};

	if (pgscale_tuning_setting("commit_delay") > 0)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "there is a delay: %s microseconds",
									  pgscale_tuning_setting_text("commit_delay"));
	if (share < 0.25 || flushing < 0.5)
		return pgscale_tuning_finding(PGSCALE_SATISFIED,
									  "commits wait for %.0f %% of the sessions' time, and the disk flushes WAL for %.0f %% of "
									  "it", 100 * share, 100 * Min(flushing, 1));
	if (isnan(flush_ms) || flush_ms < 1)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "a flush takes %.2f ms: it pays to wait for slow ones only",
									  isnan(flush_ms) ? 0 : flush_ms);
	if (committing < pgscale_tuning_setting("commit_siblings"))
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "%.1f sessions commit at a time: too few to wait for", committing);
	if (gain < PGSCALE_LEAST_GAIN)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "%.1f sessions commit at a time, and %.1f of them share a "
									  "flush already",
									  committing, per_flush);
	if (pgscale_tuning_wal_buffers_short(e))
		return pgscale_tuning_finding(PGSCALE_SILENT, "WAL buffers are full too often, and commits wait for that");
	if (pgscale_tuning_wal_starts_checkpoints(e))
		return pgscale_tuning_finding(PGSCALE_SILENT, "WAL starts checkpoints, and commits wait for that");
	if (pgscale_tuning_checkpoint_stalls(e))
		return pgscale_tuning_finding(PGSCALE_SILENT, "checkpoints keep the disk from flushing WAL, which shows "
									  "nothing about a delay");

	return pgscale_tuning_advise(psprintf("%d", (int) Min(flush_ms * 1000 / 2, 100000)), gain, numbers,
								 "%.1f sessions commit at a time and a flush takes %.1f ms: a delay of half of that "
								 "lets more of them share one (documentation of commit_delay)", committing, flush_ms);
}

/*
 * commit_siblings.  Window: 30 s or more.  Threshold: there is a commit_delay, the
 * disk flushes for at least half of the time, and fewer sessions than
 * commit_siblings, but two or more, commit at a time: then the delay is hardly ever
 * taken.  Gain: half of what commit_delay wins.
 */
static PgscaleTuningFinding *
find_commit_siblings(const PgscaleTuningRuleInput *input)
{
	const PgscaleEvidence *e = input->sum;
	const double committing = sessions_committing(e);
	const double share = pgscale_tuning_ratio(committing, pgscale_tuning_busy(e));
	const double siblings = pgscale_tuning_setting("commit_siblings");
	const PgscaleTuningNumber numbers[] = {
		{"commit_fraction", share},
		{"sessions_committing", committing},
		{"flush_ms", pgscale_tuning_flush_ms(e)},
		{NULL}
	};

	if (pgscale_tuning_setting("commit_delay") <= 0)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "without commit_delay it has no effect");
	if (share < 0.25 || pgscale_tuning_waiting(e, PGSCALE_KIND_WAL_SYNC) < 0.5 || committing < 2 || committing >= siblings)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "%.1f sessions commit at a time, for %.0f %% of the sessions' time",
									  committing, 100 * share);
	return pgscale_tuning_advise(psprintf("%d", (int) committing), share / 8, numbers,
								 "%.1f sessions commit at a time, fewer than commit_siblings: the present "
								 "commit_delay is hardly ever used (documentation of commit_siblings)", committing);
}

/*
 * wal_segment_size, which is of the cluster and no setting.  Window: 30 s or more.
 *
 * Threshold: more than one segment a second is begun, and sessions wait for new
 * files to be made.  Gain: three quarters of that wait, with segments of four times
 * the size, since recycled ones are taken first.  Before checkpoints have recycled
 * any, every file is new, and that tells nothing.  Source: the documentation's "WAL
 * Configuration", XLogFileInit() in xlog.c.
 */
static PgscaleTuningFinding *
find_wal_segment_size(const PgscaleTuningRuleInput *input)
{
	const PgscaleEvidence *e = input->sum;
	const double switches = pgscale_tuning_wal_volume(e) / pgscale_tuning_seconds(e) / wal_segment_size;
	const double share = pgscale_tuning_fraction(e, PGSCALE_KIND_WAL_INIT);
	const PgscaleTuningNumber numbers[] = {
		{"segments_per_s", switches},
		{"wal_init_fraction", share},
		{NULL}
	};
	PgscaleTuningFinding *f;

	if (wal_segment_size >= 64 * PGSCALE_MB || switches < 1 || 0.75 * share < PGSCALE_LEAST_GAIN)
		return pgscale_tuning_finding(PGSCALE_SATISFIED,
									  "%.2f segments of %d MB begin a second, and waits for new files take %.1f %% of the sessions' "
									  "time", switches, (int) (wal_segment_size / PGSCALE_MB), 100 * share);
	if (e->counts.checkpoints_timed + e->counts.checkpoints_requested < 2)
		return pgscale_tuning_finding(PGSCALE_SILENT, "two checkpoints are needed to know whether old files are "
									  "used again; there were %d",
									  (int) (e->counts.checkpoints_timed + e->counts.checkpoints_requested));
	f = pgscale_tuning_advise("a larger min_wal_size, which keeps more files to be recycled; or, with the server stopped, "
							  "pg_resetwal --wal-segsize=64", 0.75 * share, numbers,
							  "%.1f segments of WAL begin a second, and waits for new files take %.0f %% of the sessions' time "
							  "(documentation, \"WAL Configuration\")", switches, 100 * share);
	f->current = psprintf("%dMB", (int) (wal_segment_size / PGSCALE_MB));
	return f;
}

const PgscaleTuningRule pgscale_tuning_wal_rules[] = {
	{
		.name = "max_wal_size",
		.min_s = 50,
		.by_checkpoint = true,
		.settings = {"max_wal_size", "checkpoint_timeout", "checkpoint_completion_target"},
		.metrics = {&pgscale_tuning_metric_session_ms, &pgscale_tuning_metric_wal_bytes},
		.needs = "reload",
		.risk = "more room for WAL, and a longer recovery after a crash",
		.find = find_max_wal_size,
	},
	{
		.name = "wal_buffers",
		.min_s = 30,
		.settings = {"wal_buffers"},
		.metrics = {&pgscale_tuning_metric_session_ms, &pgscale_tuning_metric_wal_fraction},
		.needs = "restart",
		.confidence = "high",
		.risk = "only the memory",
		.find = find_wal_buffers,
	},
	{
		.name = "commit_delay",
		.min_s = 30,
		.settings = {"commit_delay", "commit_siblings"},
		.metrics = {&pgscale_tuning_metric_session_ms, &pgscale_tuning_metric_throughput},
		.needs = "reload",
		.confidence = "medium",
		.risk = "a single commit takes longer",
		.find = find_commit_delay,
	},
	{
		.name = "commit_siblings",
		.min_s = 30,
		.settings = {"commit_delay", "commit_siblings"},
		.metrics = {&pgscale_tuning_metric_session_ms, &pgscale_tuning_metric_throughput},
		.needs = "reload",
		.confidence = "low",
		.risk = "a single commit takes longer",
		.find = find_commit_siblings,
	},
	{
		.name = "wal_segment_size",
		.object = "wal_segment_size",
		.min_s = 30,
		.settings = {"min_wal_size", "max_wal_size", "wal_recycle"},
		.needs = "offline",
		.confidence = "low",
		.risk = "archiving has fewer, but larger files; standbys must be made anew",
		.find = find_wal_segment_size,
	},
	{0}
};
