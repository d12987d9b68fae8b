/*-------------------------------------------------------------------------
 *
 * reads.c
 *	  Rules about how data is read, from 18 on: io_method, and how many io workers.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/kernel.h"
#include "base/pg_compat.h"
#include "tuning/findings.h"

/* The most io workers that there may be (MAX_IO_WORKERS in proc.h). */
#define MOST_WORKERS	32

/*
 * io_workers; from 19 on io_max_workers, up to which the server starts them as they
 * are needed.  Window: 30 s or more.
 *
 * Threshold: sessions wait for reads of io workers while none of these idles.  A
 * worker that was woken and has no CPU yet shows that it idles, so that there is no
 * advice where the CPUs are the limit.
 *
 * Gain: half of that time, as reads also take their time with more workers, and a
 * disk may have reached its limit.  Value: twice as many.  Source: the documentation of
 * io_workers.
 */
static PgscaleTuningFinding *
find_io_workers(const PgscaleTuningRuleInput *input)
{
	const PgscaleEvidence *e = input->sum;
	const char *setting = pgscale_tuning_setting("io_max_workers") >= 0 ? "io_max_workers" : "io_workers";
	const double workers = pgscale_tuning_setting(setting);
	const char *method = pgscale_tuning_setting_text("io_method");
	const double queued = pgscale_tuning_ratio(e->io_queue_ns, e->session_ns);
	const PgscaleTuningNumber numbers[] = {
		{"workers", workers},
		{"queued_fraction", queued},
		{"sessions_queued", pgscale_tuning_ratio(e->io_queue_ns, e->ns)},
		{"data_read_fraction", pgscale_tuning_fraction(e, PGSCALE_KIND_DATA_READ)},
		{NULL}
	};
	PgscaleTuningFinding *f;

	if (!method)
		return pgscale_tuning_finding(PGSCALE_SILENT, "there are io workers from 18 on");
	if (strcmp(method, "worker") != 0)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "io_method is %s, which has no io workers", method);
	if (queued / 2 < PGSCALE_LEAST_GAIN)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "waits for reads while all of %.0f io workers are busy take %.1f %% of the "
									  "sessions' time", workers, 100 * queued);
	if (workers >= MOST_WORKERS)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "there are %.0f io workers, the maximum", workers);
	f = pgscale_tuning_advise(psprintf("%.0f", Min(2 * workers, MOST_WORKERS)), queued / 2, numbers,
							  "for %.0f %% of their time sessions waited for reads while all of %.0f io workers were busy "
							  "(documentation of %s)", 100 * queued, workers, setting);
	f->setting = setting;
	return f;
}

/*
 * Of 18 and later.  Window: 30 s or more.
 *
 * sync.  Threshold: of the pages that were read most came several in one read, as scans
 * read that know what comes next: only these can be read ahead; and reading takes sessions' time.
 * Gain: half of their share of that time: reads are then under way while a session
 * works, but are as long as before.  Value: worker, the server's default.
 *
 * worker.  Threshold: sessions wait for the lock of the io workers' queue, which io_uring does
 * not have.  Gain: that time.  Value: io_uring, if this server is built with it and
 * the kernel does not forbid it.
 *
 * Source: the documentation of io_method; method_worker.c.
 */
static PgscaleTuningFinding *
find_io_method(const PgscaleTuningRuleInput *input)
{
	const PgscaleEvidence *e = input->sum;
	const PgscaleCounters *c = &e->counts;
	const char *method = pgscale_tuning_setting_text("io_method");
	const double reading = pgscale_tuning_fraction(e, PGSCALE_KIND_DATA_READ);
	const double queue = pgscale_tuning_fraction(e, PGSCALE_KIND_AIO_QUEUE);
	const double several = Max(1 - pgscale_tuning_ratio(c->reads, c->blocks_read), 0);
	const PgscaleTuningNumber numbers[] = {
		{"data_read_fraction", reading},
		{"queue_lock_fraction", queue},
		{"combined_fraction", several},
		{"reads_per_s", pgscale_tuning_rate(e, c->reads)},
		{NULL}
	};
	char		disabled[32];
	PgscaleTuningFinding *f;

	if (!method)
		return pgscale_tuning_finding(PGSCALE_SILENT, "it can be set from 18 on");
	if (strcmp(method, "sync") == 0)
	{
		if (several < 0.5 || reading * several / 2 < PGSCALE_LEAST_GAIN)
			return pgscale_tuning_finding(PGSCALE_SATISFIED, "reading takes %.1f %% of the sessions' time, and %.0f %% of the pages "
										  "come several in one read, which can be read ahead", 100 * reading, 100 * several);
		f = pgscale_tuning_advise("worker", reading * several / 2, numbers,
								  "reading takes %.0f %% of the sessions' time, %.0f %% of the pages come several in one read, and "
								  "sessions do nothing else meanwhile (documentation of io_method)", 100 * reading, 100 * several);
		f->confidence = "low";
		return f;
	}
	if (strcmp(method, "worker") != 0)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "it is %s", method);
	if (queue < PGSCALE_LEAST_GAIN)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "waits for the queue of the io workers take %.1f %% of the sessions' time",
									  100 * queue);
	if (!pgscale_compat_setting_knows("io_method", "io_uring"))
		return pgscale_tuning_finding(PGSCALE_SILENT, "this server is built without io_uring");
	if (pgscale_kernel_setting("/proc/sys/kernel/io_uring_disabled", disabled, sizeof(disabled)) && disabled[0] != '0')
		return pgscale_tuning_finding(PGSCALE_SILENT, "the kernel forbids io_uring (kernel.io_uring_disabled)");
	f = pgscale_tuning_advise("io_uring", queue, numbers,
							  "waits for the queue of the io workers take %.0f %% of the sessions' time, and io_uring has no such "
							  "queue (documentation of io_method)", 100 * queue);
	f->confidence = "medium";
	return f;
}

const PgscaleTuningRule pgscale_tuning_reads_rules[] = {
	{
		.name = "io_method",
		.min_s = 30,
		.settings = {"io_method"},
		.metrics = {&pgscale_tuning_metric_session_ms},
		.needs = "restart",
		.risk = "reads of pages that the kernel's cache has may take longer; io_uring is not allowed everywhere",
		.find = find_io_method,
	},
	{
		.name = "io_workers",
		.min_s = 30,
		.settings = {"io_method", "io_workers", "io_max_workers"},
		.metrics = {&pgscale_tuning_metric_session_ms},
		.needs = "reload",
		.confidence = "medium",
		.risk = "more processes; a disk that is at its limit reads no more",
		.find = find_io_workers,
	},
	{0}
};
