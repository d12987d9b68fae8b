/*-------------------------------------------------------------------------
 *
 * checkpoint.c
 *	  Rules about checkpoints: how often, how evenly, and the cost of their page
 *	  images; and about early writes by the kernel.
 *
 * Stalls.  Data that a checkpoint leaves to the kernel goes to the disk at once when it
 * is synced, and then all sessions wait.  In the evidence, a transaction then takes
 * much more of the sessions' time than in other records.  Even writing would save that
 * extra time.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "postmaster/bgwriter.h"

#include "base/units.h"
#include "tuning/findings.h"

/*
 * checkpoint_flush_after and bgwriter_flush_after.  Window: 50 s or more, with a
 * checkpoint.
 *
 * Threshold: one of them is off, the syncs that end checkpoints took a twentieth
 * of the time or more, and there were stalls.
 *
 * Gain: the stalls (pgscale_tuning_stalls()), by who wrote the pages: checkpoints, or
 * the background writer.
 *
 * Value: the server's defaults on Linux.  Source: the documentation of
 * checkpoint_flush_after, "reduce the likelihood of stalls when an fsync is
 * issued at the end of a checkpoint".
 */
static PgscaleTuningFinding *
advise_flush_after(const PgscaleTuningRuleInput *input, const char *setting, const char *value, double gain)
{
	const PgscaleEvidence *e = input->sum;
	const PgscaleTuningNumber numbers[] = {
		{"checkpoint_sync_ms", e->counts.checkpoint_sync_ms},
		{"checkpoint_sync_fraction", pgscale_tuning_sync_fraction(e)},
		{"checkpoints", e->counts.checkpoints_timed + e->counts.checkpoints_requested},
		{"stall_fraction", pgscale_tuning_stalls(input)},
		{"wal_fraction", pgscale_tuning_wal_fraction(e)},
		{"data_fraction", pgscale_tuning_data_fraction(e)},
		{NULL}
	};
	PgscaleTuningFinding *f;

	f = pgscale_tuning_advise(value, gain, numbers,
							  "the syncs that end checkpoints took %.0f %% of the time and sessions stalled for %.0f %% of theirs: "
							  "the kernel collected the writes (documentation of %s)",
							  100 * numbers[1].value, 100 * pgscale_tuning_stalls(input), setting);
	f->setting = setting;
	f->confidence = e->counts.checkpoints_timed + e->counts.checkpoints_requested >= 2 ? "high" : "medium";
	return f;
}

static PgscaleTuningFinding *
find_flush_after(const PgscaleTuningRuleInput *input)
{
	const PgscaleEvidence *e = input->sum;
	const PgscaleCounters *c = &e->counts;
	const double stalls = pgscale_tuning_stalls(input);
	const double by_checkpoint = pgscale_tuning_ratio(c->checkpoint_buffers, (double) c->checkpoint_buffers + c->bgwriter_buffers);
	PgscaleTuningFinding *first = NULL;
	PgscaleTuningFinding **next = &first;

	if (pgscale_tuning_setting("checkpoint_flush_after") > 0 && pgscale_tuning_setting("bgwriter_flush_after") > 0)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "both are on");
	if (c->checkpoint_buffers == 0 && pgscale_tuning_sync_fraction(e) == 0)
		return pgscale_tuning_finding(PGSCALE_SILENT, "there was no checkpoint in %.0f s", pgscale_tuning_seconds(e));
	if (!pgscale_tuning_checkpoint_stalls(e) || stalls < PGSCALE_LEAST_GAIN)
		return pgscale_tuning_finding(PGSCALE_SATISFIED,
									  "the syncs that end checkpoints took %.1f %% of the time, and sessions stalled for %.1f %% "
									  "of theirs", 100 * pgscale_tuning_sync_fraction(e), 100 * stalls);
	if (pgscale_tuning_setting("checkpoint_flush_after") == 0)
	{
		*next = advise_flush_after(input, "checkpoint_flush_after", "256kB", stalls * Max(by_checkpoint, 0.5));
		next = &(*next)->next;
	}
	if (pgscale_tuning_setting("bgwriter_flush_after") == 0 && by_checkpoint < 1)
		*next = advise_flush_after(input, "bgwriter_flush_after", "512kB", stalls * Min(1 - by_checkpoint, 0.49));
	return first ? first : pgscale_tuning_finding(PGSCALE_SATISFIED, "the background writer wrote nothing");
}

static void
sync_fraction(const PgscaleEvidence *e, double *of, double *per)
{
	*per = pgscale_tuning_seconds(e);
	*of = pgscale_tuning_sync_fraction(e) * *per;
}

static const PgscaleTuningMetric sync_metric = {
	"time in checkpoints' syncs", "1", true, sync_fraction
};

/*
 * backend_flush_after.  Window: 30 s or more.
 *
 * Threshold: it is off; backends write a fifth of the pages or more, and a write
 * takes a millisecond or more, as when the kernel makes writers wait.  Not where
 * shared buffers are smaller than the pages in use and these smaller than the
 * kernel's cache (pgscale_tuning_rewrites()): there the kernel's cache saves writes.
 *
 * Gain: half the share of DataFileWrite.  Source: the documentation of
 * backend_flush_after.
 */
static PgscaleTuningFinding *
find_backend_flush_after(const PgscaleTuningRuleInput *input)
{
	const PgscaleEvidence *e = input->sum;
	const double share = pgscale_tuning_fraction(e, PGSCALE_KIND_DATA_WRITE);
	const double write_ms = pgscale_tuning_ratio(e->wait_ns[PGSCALE_KIND_DATA_WRITE] / 1e6, e->counts.backend_buffers);
	const PgscaleTuningNumber numbers[] = {
		{"backend_write_fraction", pgscale_tuning_backend_write_fraction(e)},
		{"backend_buffers_per_s", pgscale_tuning_rate(e, e->counts.backend_buffers)},
		{"write_ms", write_ms},
		{"data_write_fraction", share},
		{NULL}
	};

	if (pgscale_tuning_setting("backend_flush_after") > 0)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "it is on");
	if (pgscale_tuning_backend_write_fraction(e) < 0.2 || write_ms < 1 || share / 2 < PGSCALE_LEAST_GAIN)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "sessions' writes take %.1f %% of their time, %.2f ms each",
									  100 * share, write_ms);
	if (pgscale_tuning_bgwriter_stalled())
		return pgscale_tuning_finding(PGSCALE_SILENT, "the background writer does next to nothing: sessions write in its place");
	if (pgscale_tuning_rewrites(e))
		return pgscale_tuning_finding(PGSCALE_SATISFIED,
									  "sessions' writes are slow, but the kernel's cache holds pages that shared "
									  "buffers do not, and saves writes that this would bring back");
	return pgscale_tuning_advise("512kB", share / 2, numbers,
								 "sessions write %.0f %% of the pages themselves and wait %.1f ms for each, because "
								 "the kernel makes them wait (documentation of backend_flush_after)", 100 * pgscale_tuning_backend_write_fraction(e), write_ms);
}

/* Is this evidence enough to know the cost of page images? */
static bool
whole_cycles(const PgscaleEvidence *e)
{
	return e->counts.checkpoints_timed + e->counts.checkpoints_requested >= 2;
}

/*
 * checkpoint_timeout.  Window: two checkpoints or more, since page images come
 * mostly soon after each.
 *
 * Threshold: the clock starts the checkpoints, and 30 % of the WAL or more are
 * page images.  Gain, by how much rarer they get:
 *
 *		gain = page images * (1 - checkpoint_timeout / recommended)
 *			 * (share of waiting for WAL + a quarter of the CPU's)
 *
 * Value: three times as long, from 5 to 30 minutes.  Source: the documentation's
 * chapter "WAL Configuration".
 */
static PgscaleTuningFinding *
find_checkpoint_timeout(const PgscaleTuningRuleInput *input)
{
	const PgscaleEvidence *e = input->sum;
	const double images = pgscale_tuning_page_images(e);
	const double wanted = Min(Max(3 * CheckPointTimeout, 300), 1800);
	const double gain = images * (1 - CheckPointTimeout / wanted) *
		(pgscale_tuning_wal_fraction(e) + 0.25 * pgscale_tuning_fraction(e, PGSCALE_KIND_CPU));
	const PgscaleTuningNumber numbers[] = {
		{"checkpoints_timed", e->counts.checkpoints_timed},
		{"checkpoints_requested", e->counts.checkpoints_requested},
		{"page_image_fraction", images},
		{"wal_bytes_per_s", pgscale_tuning_wal_volume(e) / pgscale_tuning_seconds(e)},
		{"wal_fraction", pgscale_tuning_wal_fraction(e)},
		{NULL}
	};

	if (wanted < 1.5 * CheckPointTimeout)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "checkpoints are far apart");
	if (!whole_cycles(e))
		return pgscale_tuning_finding(PGSCALE_SILENT, "two checkpoints are needed to know the cost of page images; "
									  "there were %d",
									  (int) (e->counts.checkpoints_timed + e->counts.checkpoints_requested));
	if (pgscale_tuning_wal_starts_checkpoints(e))
		return pgscale_tuning_finding(PGSCALE_SILENT, "WAL starts checkpoints, and not the clock: see max_wal_size");
	if (pgscale_tuning_flush_after_off() && pgscale_tuning_checkpoint_stalls(e))
		return pgscale_tuning_finding(PGSCALE_SILENT, "checkpoints end in stalls: see checkpoint_flush_after");
	if (images < 0.3 || gain < 2 * PGSCALE_LEAST_GAIN)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "page images are %.0f %% of WAL, which cost %.1f %% of the sessions' time",
									  100 * images, 100 * gain);
	return pgscale_tuning_advise(psprintf("%.0fs", wanted), gain, numbers,
								 "checkpoints come every %d s and %.0f %% of WAL are the page images that follow them "
								 "(documentation, \"WAL Configuration\")", CheckPointTimeout, 100 * images);
}

/*
 * checkpoint_completion_target.  Window: 50 s or more, with a checkpoint.
 *
 * Threshold: below 0.7, and sessions stalled.  Gain: the part of the stalls by
 * which a checkpoint's writes get sparser.  Value: the server's default since 14,
 * 0.9; its documentation advises against less.
 */
static PgscaleTuningFinding *
find_completion_target(const PgscaleTuningRuleInput *input)
{
	const PgscaleEvidence *e = input->sum;
	const double stalls = pgscale_tuning_stalls(input);
	const double gain = stalls * (1 - CheckPointCompletionTarget / 0.9);
	const PgscaleTuningNumber numbers[] = {
		{"stall_fraction", stalls},
		{"checkpoint_write_ms", e->counts.checkpoint_write_ms},
		{"checkpoint_sync_ms", e->counts.checkpoint_sync_ms},
		{"checkpoint_buffers", e->counts.checkpoint_buffers},
		{NULL}
	};

	if (CheckPointCompletionTarget >= 0.7)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "checkpoints are spread over %.0f %% of the time between them",
									  100 * CheckPointCompletionTarget);
	if (e->counts.checkpoint_buffers < 100)
		return pgscale_tuning_finding(PGSCALE_SILENT, "checkpoints wrote %d pages in %.0f s", (int) e->counts.checkpoint_buffers,
									  pgscale_tuning_seconds(e));
	if (gain < PGSCALE_LEAST_GAIN)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "sessions stalled for %.1f %% of their time", 100 * stalls);
	return pgscale_tuning_advise("0.9", gain, numbers,
								 "sessions stalled for %.0f %% of their time, and checkpoints write all in %.0f %% of the time "
								 "between them (documentation: lowering it is not recommended)",
								 100 * stalls, 100 * CheckPointCompletionTarget);
}

/*
 * wal_compression.  Window: two checkpoints or more, as for checkpoint_timeout.
 *
 * Threshold: it is off, page images are half of WAL or more, that is a megabyte a
 * second or more, a quarter of the sessions' time goes to waiting for WAL, and
 * the CPU has time.  Gain: compression takes away about half of an image, and
 * half of what WAL costs depends on how much it is:
 *
 *		gain = page images * share of waiting for WAL / 4
 *
 * Value: lz4 where the server has it: it is several times faster than pglz.
 * Source: the documentation of wal_compression.
 */
static PgscaleTuningFinding *
find_wal_compression(const PgscaleTuningRuleInput *input)
{
	const PgscaleEvidence *e = input->sum;
	const double images = pgscale_tuning_page_images(e);
	const double share = pgscale_tuning_wal_fraction(e);
	const double rate = pgscale_tuning_wal_volume(e) / pgscale_tuning_seconds(e);
	const PgscaleTuningNumber numbers[] = {
		{"page_image_fraction", images},
		{"wal_bytes_per_s", rate},
		{"wal_fraction", share},
		{"cpu_fraction", pgscale_tuning_fraction(e, PGSCALE_KIND_CPU)},
		{NULL}
	};
#ifdef USE_LZ4
	const char *method = "lz4";
#else
	const char *method = "pglz";
#endif

	if (strcmp(pgscale_tuning_setting_text("wal_compression"), "off") != 0)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "it is on");
	if (!whole_cycles(e))
		return pgscale_tuning_finding(PGSCALE_SILENT, "two checkpoints are needed to know the cost of page images; "
									  "there were %d",
									  (int) (e->counts.checkpoints_timed + e->counts.checkpoints_requested));
	if (pgscale_tuning_wal_starts_checkpoints(e))
		return pgscale_tuning_finding(PGSCALE_SILENT, "WAL starts checkpoints: fewer of them come first, see max_wal_size");
	if (pgscale_tuning_flush_after_off() && pgscale_tuning_checkpoint_stalls(e))
		return pgscale_tuning_finding(PGSCALE_SILENT, "checkpoints end in stalls: see checkpoint_flush_after");
	if (images < 0.5 || rate < PGSCALE_MB || share < 0.25 || pgscale_tuning_fraction(e, PGSCALE_KIND_CPU) > 0.6)
		return pgscale_tuning_finding(PGSCALE_SATISFIED,
									  "page images are %.0f %% of WAL, %.1f MB of which come a second; waiting for it takes %.0f %% "
									  "of the sessions' time", 100 * images, rate / PGSCALE_MB, 100 * share);
	return pgscale_tuning_advise(method, images * share / 4, numbers,
								 "%.0f %% of WAL are page images, and waiting for WAL takes %.0f %% of the "
								 "sessions' time, while there is free CPU time (documentation of wal_compression)", 100 * images, 100 * share);
}

/*
 * What is left to do about page images: text.  Window and threshold: two
 * checkpoints or more, a quarter of an hour apart or more, and 60 % of WAL are
 * images all the same; gain as for wal_compression.
 */
static PgscaleTuningFinding *
find_page_images(const PgscaleTuningRuleInput *input)
{
	const PgscaleEvidence *e = input->sum;
	const double images = pgscale_tuning_page_images(e);
	const double share = pgscale_tuning_wal_fraction(e);
	const PgscaleTuningNumber numbers[] = {
		{"page_image_fraction", images},
		{"wal_fraction", share},
		{NULL}
	};

	if (!whole_cycles(e))
		return pgscale_tuning_finding(PGSCALE_SILENT, "two checkpoints are needed to know the cost of page images; "
									  "there were %d",
									  (int) (e->counts.checkpoints_timed + e->counts.checkpoints_requested));
	if (CheckPointTimeout < 900 || pgscale_tuning_wal_starts_checkpoints(e))
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "checkpoints could be further apart, see there");
	if (images < 0.6 || images * share / 4 < PGSCALE_LEAST_GAIN)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "page images are %.0f %% of WAL", 100 * images);
	return pgscale_tuning_advise("drop unused indexes; keys in order of time (such as UUID version 7) instead of "
								 "random ones; a fillfactor that leaves room for HOT updates",
								 images * share / 4, numbers,
								 "%.0f %% of WAL are page images although checkpoints are far apart: changes are scattered, each on a "
								 "page of its own", 100 * images);
}

const PgscaleTuningRule pgscale_tuning_checkpoint_rules[] = {
	{
		.name = "checkpoint_flush_after",
		.min_s = 50,
		.by_checkpoint = true,
		.settings = {"checkpoint_flush_after", "bgwriter_flush_after"},
		.metrics = {&pgscale_tuning_metric_session_ms, &sync_metric},
		.needs = "reload",
		.risk = "pages that change again while they would still be in the kernel's cache are written more often",
		.find = find_flush_after,
	},
	{
		.name = "backend_flush_after",
		.min_s = 30,
		.settings = {"backend_flush_after", "bgwriter_lru_maxpages", "shared_buffers"},
		.metrics = {&pgscale_tuning_metric_session_ms, &pgscale_tuning_metric_throughput},
		.needs = "reload",
		.confidence = "low",
		.risk = "pages that change again while they would still be in the kernel's cache are written more often",
		.find = find_backend_flush_after,
	},
	{
		.name = "checkpoint_timeout",
		.min_s = 50,
		.by_checkpoint = true,
		.settings = {"checkpoint_timeout", "max_wal_size"},
		.metrics = {&pgscale_tuning_metric_session_ms, &pgscale_tuning_metric_wal_bytes},
		.needs = "reload",
		.confidence = "medium",
		.risk = "a longer recovery after a crash; max_wal_size may have to be raised, too",
		.find = find_checkpoint_timeout,
	},
	{
		.name = "checkpoint_completion_target",
		.min_s = 50,
		.by_checkpoint = true,
		.settings = {"checkpoint_completion_target"},
		.metrics = {&pgscale_tuning_metric_session_ms, &sync_metric},
		.needs = "reload",
		.confidence = "medium",
		.risk = "WAL of a longer time is kept",
		.find = find_completion_target,
	},
	{
		.name = "wal_compression",
		.min_s = 50,
		.by_checkpoint = true,
		.settings = {"wal_compression", "checkpoint_timeout", "max_wal_size"},
		.metrics = {&pgscale_tuning_metric_session_ms, &pgscale_tuning_metric_wal_bytes},
		.needs = "reload",
		.confidence = "medium",
		.risk = "CPU time of the sessions that write",
		.find = find_wal_compression,
	},
	{
		.name = "full_page_images",
		.object = "full-page images",
		.min_s = 50,
		.by_checkpoint = true,
		.settings = {"checkpoint_timeout", "max_wal_size", "full_page_writes"},
		.needs = "a change of the schema",
		.confidence = "low",
		.risk = "that of any change of the schema",
		.find = find_page_images,
	},
	{0}
};
