/*-------------------------------------------------------------------------
 *
 * buffers.c
 *	  Rules about shared buffers: how large, and who writes them.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "common/pg_prng.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"

#include "base/kernel.h"
#include "base/shared_buffers.h"
#include "base/units.h"
#include "tuning/findings.h"

/* Headers to look at: enough for a share to within a per cent. */
#define SAMPLE			4096

/* A read that takes longer did not come from the kernel's cache. */
#define CACHED_READ_US	200.0

/* What shared buffers hold now: shares of them. */
typedef struct Content
{
	double		unused;			/* hold no page */
	double		hot;			/* have been used again */
} Content;

static Content
look_at_buffers(void)
{
	PgscaleTally tally = {0};
	PgscaleUsage usage;
	int			bufs[SAMPLE];
	const int	n = Min(SAMPLE, NBuffers);
	Content		content = {0};

	for (int i = 0; i < n; i++)
		bufs[i] = (int) pg_prng_uint64_range(&pg_global_prng_state, 0, NBuffers - 1);
	pgscale_buffers_tally_some(&tally, bufs, n);
	pgscale_buffers_tally_sum(&tally, &usage);
	content.unused = (double) usage.of[PGSCALE_NO_PAGE].buffers / n;
	for (int count = 2; count <= PGSCALE_MAX_USAGE; count++)
		content.hot += (double) usage.of[count].buffers / n;
	return content;
}

/*
 * bgwriter_lru_maxpages, bgwriter_delay and bgwriter_lru_multiplier.  Window: 30 s
 * or more.
 *
 * Threshold: of the pages written, backends that needed their room wrote a fifth
 * or more, at ten a second or more, and no bulk load did; and either the
 * background writer is set so that it can do next to nothing, or it stopped at
 * bgwriter_lru_maxpages once in ten rounds or more.
 *
 * Gain: what sessions' writes cost (pgscale_tuning_backend_write_cost()), most of which a
 * background writer that keeps up saves; half if it does its part already.
 *
 * Value: pages for twice the allocations of the window in a round of the default's
 * length, and 1000 at least: it is a limit, and bgwriter_lru_multiplier says how
 * many there are to be within it.  Source: BgBufferSync() in bufmgr.c; the
 * documentation of the background writer, by which bgwriter_lru_maxpages = 0
 * disables it.
 */
static PgscaleTuningFinding *
advise_bgwriter(const PgscaleEvidence *e, const char *setting, double value, double gain, bool stalled)
{
	const PgscaleCounters *c = &e->counts;
	const PgscaleTuningNumber numbers[] = {
		{"backend_buffers", c->backend_buffers},
		{"bgwriter_buffers", c->bgwriter_buffers},
		{"checkpoint_buffers", c->checkpoint_buffers},
		{"bgwriter_stopped", c->bgwriter_stopped},
		{"allocations_per_s", pgscale_tuning_rate(e, c->buffers_allocated)},
		{"data_write_fraction", pgscale_tuning_fraction(e, PGSCALE_KIND_DATA_WRITE)},
		{NULL}
	};
	PgscaleTuningFinding *f;

	f = pgscale_tuning_advise(psprintf("%.0f%s", value, strcmp(setting, "bgwriter_delay") == 0 ? "ms" : ""), gain, numbers,
							  "sessions wrote %.0f %% of the pages themselves to free buffers, %.0f a second, "
							  "because the background writer %s (documentation, \"Background Writer\")",
							  100 * pgscale_tuning_backend_write_fraction(e), pgscale_tuning_rate(e, c->backend_buffers),
							  stalled ? "is set so that it can do next to nothing" : "stops at bgwriter_lru_maxpages");
	f->setting = setting;
	f->confidence = stalled ? "high" : "medium";
	return f;
}

PgscaleTuningFinding *
pgscale_tuning_find_bgwriter(const PgscaleTuningRuleInput *input)
{
	const PgscaleEvidence *e = input->sum;
	const PgscaleCounters *c = &e->counts;
	const bool	stalled = pgscale_tuning_bgwriter_stalled();
	const double delay_ms = pgscale_tuning_setting("bgwriter_delay");
	const double maxpages = pgscale_tuning_setting("bgwriter_lru_maxpages");
	const double share = pgscale_tuning_backend_write_fraction(e);
	const double rate = pgscale_tuning_rate(e, c->backend_buffers);
	const double rounds = pgscale_tuning_seconds(e) * 1000 / delay_ms;
	const double cost = pgscale_tuning_backend_write_cost(e);
	const double gain = stalled ? cost : cost / 2;
	const double wanted_delay = Min(delay_ms, 200);
	const double wanted_pages = ceil(2 * pgscale_tuning_rate(e, c->buffers_allocated) * wanted_delay / 1000 / 100) * 100;
	PgscaleTuningFinding *first = NULL;
	PgscaleTuningFinding **next = &first;

	if (c->backend_buffers < 0 || share < 0.2 || rate < 10)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "sessions wrote %.0f %% of the pages themselves, %.1f a second",
									  100 * share, rate);
	if (pgscale_tuning_bulk_load(e))
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "sessions' own writes are bulk load");
	if (!stalled && c->bgwriter_stopped < 0.1 * rounds)
		return pgscale_tuning_finding(PGSCALE_SATISFIED,
									  "sessions write %.0f %% of the pages themselves, but the background writer "
									  "does not stop at its limit", 100 * share);
	if (gain < PGSCALE_LEAST_GAIN)
		return pgscale_tuning_finding(PGSCALE_SATISFIED,
									  "sessions' own writes cost %.1f %% of their time", 100 * cost);

	if (maxpages < wanted_pages || maxpages < 100)
	{
		*next = advise_bgwriter(e, "bgwriter_lru_maxpages", Min(Max(wanted_pages, 1000), INT_MAX / 2), gain, stalled);
		next = &(*next)->next;
	}
	if (delay_ms > 200)
	{
		*next = advise_bgwriter(e, "bgwriter_delay", 200, maxpages < 100 ? gain * 0.99 : gain, stalled);
		next = &(*next)->next;
	}
	if (pgscale_tuning_setting("bgwriter_lru_multiplier") < 2)
	{
		*next = advise_bgwriter(e, "bgwriter_lru_multiplier", 2, gain * 0.98, stalled);
		next = &(*next)->next;
	}
	if (!first)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "the background writer may write as much as is needed");
	return first;
}

static void
backend_writes(const PgscaleEvidence *e, double *of, double *per)
{
	*of = e->counts.backend_buffers < 0 ? NAN : e->counts.backend_buffers;
	*per = pgscale_tuning_pages_written(e);
}

static const PgscaleTuningMetric backend_writes_metric = {
	"pages that sessions write themselves", "1", true, backend_writes
};

/*
 * shared_buffers.  Window: 30 s or more.
 *
 * Threshold: all buffers are in use; a fiftieth or more of the pages asked for
 * are not there; and they are less than a quarter of the memory.
 *
 * Gain: what the misses cost, if the kernel's cache answers them: then the
 * memory that the pages need is there, and holds them twice.
 *
 *		cost = share of DataFileRead, BufferIO, BufferMapping and DataFileWrite
 *			 + misses * 2 microseconds of CPU / sessions' time
 *		gain = cost * 0.8 * least(1, log2(recommended / current) / 3)
 *
 * as not all of it fits, and less the smaller the step.  Where reads take so long
 * that they come from the disk, half: the kernel's cache loses what shared
 * buffers win.  Pages that sequential scans read through rings count for nothing.
 *
 * Value: up to a quarter of the memory, the documentation's "reasonable starting
 * value", in steps of at most sixteen times: what the next one would win the
 * next evidence tells.  Source: the documentation of shared_buffers.
 */
static PgscaleTuningFinding *
find_shared_buffers(const PgscaleTuningRuleInput *input)
{
	const PgscaleEvidence *e = input->sum;
	const PgscaleCounters *c = &e->counts;
	const double ram = (double) pgscale_kernel_ram();
	const double current = (double) NBuffers * BLCKSZ;
	const double wanted = Min(ram / 4, Max(16 * current, 128.0 * PGSCALE_MB));
	const double misses = pgscale_tuning_misses(e);
	const double missing = pgscale_tuning_ratio(misses, misses + c->blocks_hit);
	const double read_us = pgscale_tuning_ratio(e->wait_ns[PGSCALE_KIND_DATA_READ] / 1000.0, Max(c->blocks_read, 1));
	const double ticks = pgscale_tuning_ratio(e->sweep_ticks, c->buffers_allocated);
	const Content content = look_at_buffers();
	double		cost;
	double		gain;
	const PgscaleTuningNumber numbers[] = {
		{"miss_fraction", missing},
		{"misses_per_s", misses / pgscale_tuning_seconds(e)},
		{"read_us", read_us},
		{"sweep_ticks_per_allocation", ticks},
		{"used_again_fraction", content.hot},
		{"memory_bytes", ram},
		{"data_read_fraction", pgscale_tuning_fraction(e, PGSCALE_KIND_DATA_READ)},
		{"data_write_fraction", pgscale_tuning_fraction(e, PGSCALE_KIND_DATA_WRITE)},
		{NULL}
	};
	PgscaleTuningFinding *f;

	if (content.unused > 0.05)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "%.0f %% of shared buffers hold nothing yet", 100 * content.unused);
	if (missing < 0.02)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "%.2f %% of the requested pages were not in shared buffers",
									  100 * missing);
	if (ram <= 0)
		return pgscale_tuning_finding(PGSCALE_SILENT, "the size of the memory is unknown");
	if (!pgscale_kernel_buffers_may_grow() || wanted < 1.5 * current)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "shared buffers are about a quarter of the memory, or more");
	if (pgscale_tuning_bulk_load(e))
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "reads and writes are bulk load, which uses only a few "
									  "buffers");
	if (pgscale_tuning_swaps(e))
		return pgscale_tuning_finding(PGSCALE_SILENT, "the machine swaps: it has no memory for more, see vm.swappiness");
	if (pgscale_tuning_bgwriter_stalled() && pgscale_tuning_backend_write_cost(e) >= PGSCALE_LEAST_GAIN)
		return pgscale_tuning_finding(PGSCALE_SILENT,
									  "the background writer does next to nothing, so that sessions write pages to "
									  "free buffers: change that first, which needs only a reload");

	cost = pgscale_tuning_fraction(e, PGSCALE_KIND_DATA_READ) + pgscale_tuning_fraction(e, PGSCALE_KIND_DATA_WRITE) +
		pgscale_tuning_fraction(e, PGSCALE_KIND_BUFFER_IO) + pgscale_tuning_fraction(e, PGSCALE_KIND_BUFFER_MAPPING) +
		pgscale_tuning_ratio(misses * PGSCALE_MISS_CPU_US * 1000, e->session_ns);
	gain = Min(cost, 1) * 0.8 * Min(1, log2(wanted / current) / 3);
	if (read_us > CACHED_READ_US)
		gain /= 2;
	if (gain < PGSCALE_LEAST_GAIN)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "misses cost %.1f %% of the sessions' time", 100 * cost);

	f = pgscale_tuning_advise(pgscale_tuning_bytes_text(wanted), gain, numbers,
							  "%.0f %% of the requested pages were not in shared buffers, and %s: shared buffers "
							  "are %.1f %% of the memory (documentation: a quarter is a reasonable start)",
							  100 * missing,
							  read_us <= CACHED_READ_US ? "the kernel's cache had them, so that memory holds them twice" :
							  "reading them took as long as a disk takes", 100 * current / ram);
	f->confidence = read_us <= CACHED_READ_US ? "high" : "low";
	return f;
}

static void
miss_fraction(const PgscaleEvidence *e, double *of, double *per)
{
	*of = e->counts.blocks_read;
	*per = e->counts.blocks_read + e->counts.blocks_hit;
}

static const PgscaleTuningMetric misses_metric = {
	"pages not in shared buffers", "1", true, miss_fraction
};

/*
 * The caches of transactions' states, from 17 on.  Window: 30 s or more.
 *
 * Threshold: more than a hundredth of the look-ups, and a hundred a second, had to
 * read a page, and sessions wait for these caches.  Gain: half of that.  Value:
 * four times as much, 1024 buffers at least.  Source: the documentation of
 * transaction_buffers and its like; commit 53c2a97a9.
 */
static PgscaleTuningFinding *
find_slru(const PgscaleTuningRuleInput *input, const char *setting, int64 hits, int64 reads, double share)
{
	const PgscaleEvidence *e = input->sum;
	const double missing = pgscale_tuning_ratio(reads, (double) hits + reads);
	const double cost = share + pgscale_tuning_fraction(e, PGSCALE_KIND_SLRU_IO);
	const double current = pgscale_tuning_setting(setting);
	const PgscaleTuningNumber numbers[] = {
		{"miss_fraction", missing},
		{"reads_per_s", pgscale_tuning_rate(e, reads)},
		{"wait_fraction", cost},
		{NULL}
	};
	PgscaleTuningFinding *f;

	if (current < 0)
		return pgscale_tuning_finding(PGSCALE_SILENT, "it can be set from 17 on");
	if (missing < 0.01 || pgscale_tuning_rate(e, reads) < 100 || cost / 2 < PGSCALE_LEAST_GAIN)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "%.2f %% of the look-ups read a page, %.1f a second; waits take %.1f %% of "
									  "the sessions' time", 100 * missing, pgscale_tuning_rate(e, reads), 100 * cost);
	f = pgscale_tuning_advise(psprintf("%.0f", Min(Max(4 * current, 1024), 131072)), cost / 2, numbers,
							  "%.1f %% of the look-ups had to read a page, and waits for this cache take %.0f %% of the sessions' "
							  "time (documentation of %s)", 100 * missing, 100 * cost, setting);
	f->setting = setting;
	return f;
}

static PgscaleTuningFinding *
find_transaction_buffers(const PgscaleTuningRuleInput *input)
{
	return find_slru(input, "transaction_buffers", input->sum->counts.xact_hits, input->sum->counts.xact_reads,
					 pgscale_tuning_fraction(input->sum, PGSCALE_KIND_XACT));
}

static PgscaleTuningFinding *
find_subtransaction_buffers(const PgscaleTuningRuleInput *input)
{
	return find_slru(input, "subtransaction_buffers", input->sum->counts.subtrans_hits, input->sum->counts.subtrans_reads,
					 pgscale_tuning_fraction(input->sum, PGSCALE_KIND_SUBTRANS));
}

static PgscaleTuningFinding *
find_offset_buffers(const PgscaleTuningRuleInput *input)
{
	return find_slru(input, "multixact_offset_buffers", input->sum->counts.offset_hits, input->sum->counts.offset_reads,
					 pgscale_tuning_fraction(input->sum, PGSCALE_KIND_MULTIXACT));
}

static PgscaleTuningFinding *
find_member_buffers(const PgscaleTuningRuleInput *input)
{
	return find_slru(input, "multixact_member_buffers", input->sum->counts.member_hits, input->sum->counts.member_reads,
					 pgscale_tuning_fraction(input->sum, PGSCALE_KIND_MULTIXACT));
}

const PgscaleTuningRule pgscale_tuning_buffers_rules[] = {
	{
		.name = "bgwriter_lru_maxpages",
		.min_s = 30,
		.settings = {"bgwriter_lru_maxpages", "bgwriter_delay", "bgwriter_lru_multiplier", "pgscale.sweeper", "shared_buffers"},
		.metrics = {&backend_writes_metric, &pgscale_tuning_metric_session_ms},
		.needs = "reload",
		.risk = "pages that change again before the next checkpoint are written more often",
		.find = pgscale_tuning_find_bgwriter,
	},
	{
		.name = "shared_buffers",
		.min_s = 30,
		.settings = {"shared_buffers"},
		.metrics = {&pgscale_tuning_metric_session_ms, &misses_metric},
		.needs = "restart",
		.risk = "less memory for the kernel's cache and for sessions; huge_pages pay from 2 GB on",
		.find = find_shared_buffers,
	},
	{
		.name = "transaction_buffers",
		.min_s = 30,
		.settings = {"transaction_buffers"},
		.needs = "restart",
		.confidence = "medium",
		.risk = "only the memory",
		.find = find_transaction_buffers,
	},
	{
		.name = "subtransaction_buffers",
		.min_s = 30,
		.settings = {"subtransaction_buffers"},
		.needs = "restart",
		.confidence = "medium",
		.risk = "only the memory",
		.find = find_subtransaction_buffers,
	},
	{
		.name = "multixact_offset_buffers",
		.min_s = 30,
		.settings = {"multixact_offset_buffers"},
		.needs = "restart",
		.confidence = "medium",
		.risk = "only the memory",
		.find = find_offset_buffers,
	},
	{
		.name = "multixact_member_buffers",
		.min_s = 30,
		.settings = {"multixact_member_buffers"},
		.needs = "restart",
		.confidence = "medium",
		.risk = "only the memory",
		.find = find_member_buffers,
	},
	{0}
};
