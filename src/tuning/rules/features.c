/*-------------------------------------------------------------------------
 *
 * features.c
 *	  Rules about pgscale's own switches, and what its workers need.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "base/processes.h"
#include "pgscale.h"
#include "tuning/findings.h"

/*
 * pgscale.sampler.  Window: none.  Threshold: it is off, and with it all evidence.
 * Gain: none by itself.
 */
static PgscaleTuningFinding *
find_sampler(const PgscaleTuningRuleInput *input)
{
	if (pgscale_tuning_setting("pgscale.sampler") > 0)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "it is on");
	return pgscale_tuning_advise("on", 0, NULL, "without the sampler there is no evidence for any advice");
}

/*
 * pgscale.sweeper.  Window: 30 s or more.
 *
 * Threshold: sessions write a fifth of the pages or more to have their room, which
 * takes a tenth of their time or more, and the background writer is not what is at
 * fault; never where it was of no use.  Gain: half of that time.  Source:
 * doc/sweeper.md, and bench/sweeper.
 */
static PgscaleTuningFinding *
find_sweeper(const PgscaleTuningRuleInput *input)
{
	const PgscaleEvidence *e = input->sum;
	const double share = pgscale_tuning_fraction(e, PGSCALE_KIND_DATA_WRITE);
	const PgscaleTuningNumber numbers[] = {
		{"backend_write_fraction", pgscale_tuning_backend_write_fraction(e)},
		{"backend_buffers_per_s", pgscale_tuning_rate(e, e->counts.backend_buffers)},
		{"data_write_fraction", share},
		{NULL}
	};
	PgscaleHealth health;

	pgscale_health_of(pgscale_module("sweeper"), &health);
	if (health.no_use)
		return pgscale_tuning_finding(PGSCALE_SILENT, "%s", health.reason);
	if (pgscale_tuning_setting("pgscale.sweeper") > 0)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "it is on");
	if (pgscale_tuning_backend_write_fraction(e) < 0.2 || share < 0.1)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "sessions' writes take %.1f %% of their time", 100 * share);
	if (pgscale_tuning_bulk_load(e))
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "sessions' own writes are bulk load");
	if (pgscale_tuning_bgwriter_stalled())
		return pgscale_tuning_finding(PGSCALE_SILENT, "the background writer does next to nothing, which comes first");
	if (pgscale_tuning_find_bgwriter(input)->verdict == PGSCALE_ADVISES)
		return pgscale_tuning_finding(PGSCALE_SILENT, "the background writer stops at its limit, which comes first");
	return pgscale_tuning_advise("auto", share / 2, numbers,
								 "sessions write %.0f %% of the pages themselves, which takes %.0f %% of their time; the sweeper "
								 "cleans ahead of them (doc/sweeper.md)", 100 * pgscale_tuning_backend_write_fraction(e), 100 * share);
}

/*
 * pgscale.writeback.  Window: 50 s or more, with a checkpoint.
 *
 * Threshold: the flush settings are on, and yet syncs take a twentieth of the time
 * and sessions stall; not where the kernel's cache saves writes
 * (pgscale_tuning_rewrites()).  Gain: two fifths of the stalls.  Source:
 * doc/sweeper.md, and bench/writeback.
 */
static PgscaleTuningFinding *
find_writeback(const PgscaleTuningRuleInput *input)
{
	const PgscaleEvidence *e = input->sum;
	const double stalls = pgscale_tuning_stalls(input);
	const PgscaleTuningNumber numbers[] = {
		{"checkpoint_sync_ms", e->counts.checkpoint_sync_ms},
		{"stall_fraction", stalls},
		{NULL}
	};

	if (pgscale_tuning_setting("pgscale.writeback") > 0)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "it is on");
	if (!pgscale_tuning_checkpoint_stalls(e) || 0.4 * stalls < PGSCALE_LEAST_GAIN)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "the syncs that end checkpoints took %.1f %% of the time",
									  100 * pgscale_tuning_sync_fraction(e));
	if (pgscale_tuning_flush_after_off())
		return pgscale_tuning_finding(PGSCALE_SILENT, "checkpoint_flush_after or bgwriter_flush_after is off, which comes first");
	if (pgscale_tuning_rewrites(e))
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "the kernel's cache holds pages that shared buffers do "
									  "not, and saves writes");
	return pgscale_tuning_advise("auto", 0.4 * stalls, numbers,
								 "the syncs that end checkpoints took %.0f %% of the time and sessions stalled for %.0f %% of theirs, "
								 "although the server asks for early writes (doc/sweeper.md)",
								 100 * pgscale_tuning_sync_fraction(e), 100 * stalls);
}

/* Background workers that run now, without parallel ones. */
static int
count_workers(void)
{
	int			workers = 0;

	for (int slot = 0; slot < pgscale_procs_count(); slot++)
	{
		PgscaleProc proc;

		workers += pgscale_procs_read_anew(slot, &proc) && pgscale_proc_is_worker(proc.kind);
	}
	return workers;
}

/*
 * max_worker_processes.  Window: none.  Threshold: a feature of pgscale is on and
 * the server has no slot for a worker of it, as it says in pgscale.health.  Value: four more.
 * Gain: none by itself.  Where background workers leave fewer slots than parallel workers may
 * have, that is said: whether queries miss them is not known.
 */
static PgscaleTuningFinding *
find_worker_processes(const PgscaleTuningRuleInput *input)
{
	int			left;

	for (int i = 0; pgscale_modules[i]; i++)
	{
		PgscaleHealth health;

		if (!pgscale_modules[i]->health)
			continue;
		pgscale_health_of(pgscale_modules[i], &health);
		if (!health.no_slot)
			continue;
		return pgscale_tuning_advise(psprintf("%d", max_worker_processes + 4), 0, NULL,
									 "%s is short of workers: %s (pgscale.health)", pgscale_modules[i]->name, health.reason);
	}
	left = max_worker_processes - count_workers();
	if (left < max_parallel_workers)
		return pgscale_tuning_finding(PGSCALE_SILENT, "pgscale's workers have their slots, but other background workers leave %d of the "
									  "%d to parallel workers, of which max_parallel_workers allows %d",
									  Max(left, 0), max_worker_processes, max_parallel_workers);
	return pgscale_tuning_finding(PGSCALE_SATISFIED, "pgscale's workers have their slots, and parallel workers theirs");
}

const PgscaleTuningRule pgscale_tuning_features_rules[] = {
	{
		.name = "pgscale.sampler",
		.no_gain = true,
		.needs = "reload",
		.confidence = "high",
		.risk = "less than one percent of a CPU",
		.find = find_sampler,
	},
	{
		.name = "pgscale.sweeper",
		.min_s = 30,
		.settings = {"pgscale.sweeper", "bgwriter_lru_maxpages", "bgwriter_delay", "shared_buffers"},
		.metrics = {&pgscale_tuning_metric_session_ms, &pgscale_tuning_metric_throughput},
		.needs = "reload",
		.confidence = "medium",
		.risk = "a few percent where pages are rewritten often; it stands down by itself",
		.find = find_sweeper,
	},
	{
		.name = "pgscale.writeback",
		.min_s = 50,
		.by_checkpoint = true,
		.settings = {"pgscale.writeback", "checkpoint_flush_after", "bgwriter_flush_after"},
		.metrics = {&pgscale_tuning_metric_session_ms, &pgscale_tuning_metric_throughput},
		.needs = "reload",
		.confidence = "medium",
		.risk = "pages that change again soon are written more often; it stands down by itself",
		.find = find_writeback,
	},
	{
		.name = "max_worker_processes",
		.no_gain = true,
		.needs = "restart",
		.confidence = "high",
		.risk = "a standby needs as many",
		.find = find_worker_processes,
	},
	{0}
};
