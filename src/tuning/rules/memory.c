/*-------------------------------------------------------------------------
 *
 * memory.c
 *	  Rules about memory and the kernel: huge pages, NUMA, and settings of the kernel.
 *	  The server cannot set those, so they are recommended as text.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/guc.h"

#include "base/kernel.h"
#include "base/sql.h"
#include "base/units.h"
#include "tuning/findings.h"

/*
 * huge_pages.  Window: 30 s or more.
 *
 * Threshold: shared memory of 2 GB or more that is not in huge pages.  Gain: 3 %
 * of the CPU's time, which is what address translation costs at least when each
 * process has page tables of its own for all of it.  Value: on, or, if the server
 * has tried and got none, the kernel's vm.nr_hugepages.  None where the server's cgroup
 * does not allow as many.  Source: the documentation's "Linux Huge Pages".
 */
static PgscaleTuningFinding *
find_huge_pages(const PgscaleTuningRuleInput *input)
{
	const double shared_mb = pgscale_tuning_setting("shared_memory_size");
	const double gain = 0.03 * pgscale_tuning_fraction(input->sum, PGSCALE_KIND_CPU);
	const char *wanted = pgscale_tuning_setting_text("huge_pages");
	const PgscaleTuningNumber numbers[] = {
		{"shared_memory_bytes", shared_mb * PGSCALE_MB},
		{"huge_pages_needed", pgscale_tuning_setting("shared_memory_size_in_huge_pages")},
		{"cpu_fraction", pgscale_tuning_fraction(input->sum, PGSCALE_KIND_CPU)},
		{NULL}
	};
	const int64 size_kb = (int64) pgscale_tuning_setting("huge_page_size");
	const int64 size = size_kb > 0 ? size_kb * PGSCALE_KB : pgscale_kernel_meminfo("Hugepagesize:");
	PgscaleHugePageLimit limit;
	PgscaleTuningFinding *f;

	if (shared_mb < 2048)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "shared memory is less than 2 GB");
	if (pgscale_kernel_uses_huge_pages())
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "shared memory is in huge pages");
	if (gain < PGSCALE_LEAST_GAIN)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "the CPU takes %.0f %% of the sessions' time", 100 * numbers[2].value);
	if (size > 0)
	{
		limit = pgscale_kernel_huge_page_limit(size);
		if (numbers[1].value * size > Min(limit.used, limit.reserved))
			return pgscale_tuning_finding(PGSCALE_SILENT, "shared memory takes %.0f huge pages, and the server's cgroup (hugetlb) allows "
										  INT64_FORMAT ": in huge pages it would not start", numbers[1].value, Min(limit.used, limit.reserved) / size);
	}
	f = pgscale_tuning_advise("try", gain, numbers,
							  "%.1f GB of shared memory are in small pages, so that each session has page tables for them "
							  "(documentation, \"Linux Huge Pages\")", shared_mb / 1024);
	if (strcmp(wanted, "off") != 0)
	{
		f->object = "vm.nr_hugepages";
		f->recommended = psprintf("sysctl vm.nr_hugepages=%.0f, because huge_pages is %s and got none", numbers[1].value, wanted);
		f->needs = "root on the machine, restart";
	}
	return f;
}

/*
 * The kernel's limits of dirty data: text.  Window: 50 s or more, with a
 * checkpoint.
 *
 * Threshold: the server asks for early writes (see checkpoint_flush_after), and
 * yet syncs take a twentieth of the time and sessions stall; and the kernel begins
 * to write at more than 256 MB of dirty data only.  Gain: half of the stalls.
 * Source: the kernel's Documentation/admin-guide/sysctl/vm.rst.
 */
static PgscaleTuningFinding *
find_dirty_limits(const PgscaleTuningRuleInput *input)
{
	const PgscaleEvidence *e = input->sum;
	const double stalls = pgscale_tuning_stalls(input);
	PgscaleKernelMemory memory;
	PgscaleTuningFinding *f;

	pgscale_kernel_memory(&memory);
	if (memory.background_threshold < 0)
		return pgscale_tuning_finding(PGSCALE_SILENT, "the kernel does not report its limits");
	if (pgscale_tuning_flush_after_off())
		return pgscale_tuning_finding(PGSCALE_SILENT, "checkpoint_flush_after or bgwriter_flush_after is off, which comes first");
	if (!pgscale_tuning_checkpoint_stalls(e) || stalls / 2 < PGSCALE_LEAST_GAIN)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "the syncs that end checkpoints took %.1f %% of the time",
									  100 * pgscale_tuning_sync_fraction(e));
	if (memory.background_threshold <= 256 * PGSCALE_MB)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "the kernel begins to write at %.0f MB of dirty data",
									  (double) memory.background_threshold / PGSCALE_MB);
	{
		const PgscaleTuningNumber numbers[] = {
			{"checkpoint_sync_ms", e->counts.checkpoint_sync_ms},
			{"stall_fraction", stalls},
			{"background_threshold_bytes", memory.background_threshold},
			{"threshold_bytes", memory.threshold},
			{NULL}
		};

		f = pgscale_tuning_advise(psprintf("sysctl vm.dirty_background_bytes=268435456 vm.dirty_bytes=1073741824%s",
										   pgscale_tuning_setting("pgscale.writeback") > 0 ? "" : ", or pgscale.writeback"),
								  stalls / 2, numbers,
								  "sessions stalled for %.0f %% of their time, and the kernel collects %.1f GB of dirty data before "
								  "it begins to write (kernel documentation, vm.dirty_background_bytes)",
								  100 * stalls, (double) memory.background_threshold / PGSCALE_GB);
	}
	f->current = psprintf(INT64_FORMAT, memory.background_threshold);
	return f;
}

/*
 * Transparent huge pages: text.  Window: 30 s or more.  Threshold: they are given
 * always, and processes had to wait for one to be put together ten times a second
 * or more.  Gain: a nominal 2 % with at least a millisecond each.
 */
static PgscaleTuningFinding *
find_transparent(const PgscaleTuningRuleInput *input)
{
	const PgscaleEvidence *e = input->sum;
	const double rate = pgscale_tuning_rate(e, e->compact_stalls);
	const PgscaleTuningNumber numbers[] = {{"compact_stalls_per_s", rate}, {NULL}};
	char		enabled[128];
	PgscaleTuningFinding *f;

	if (!pgscale_kernel_setting("/sys/kernel/mm/transparent_hugepage/enabled", enabled, sizeof(enabled)) ||
		e->compact_stalls < 0)
		return pgscale_tuning_finding(PGSCALE_SILENT, "the kernel does not report on transparent huge pages");
	if (!strstr(enabled, "[always]") || rate < 10)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "they are set to %s; %.1f waits a second for one", enabled, Max(rate, 0));
	f = pgscale_tuning_advise("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled", PGSCALE_LEAST_GAIN, numbers,
							  "processes of this machine waited %.0f times a second for a huge page to be put together", rate);
	f->current = "always";
	return f;
}

/*
 * Swapping: text.  Window: 30 s or more.  Threshold: a hundred pages a second
 * swapped in or out.  Gain: a nominal 5 %, since what waits for it shows as CPU.
 */
static PgscaleTuningFinding *
find_swapping(const PgscaleTuningRuleInput *input)
{
	const PgscaleEvidence *e = input->sum;
	const double rate = pgscale_tuning_rate(e, e->swapped);
	const PgscaleTuningNumber numbers[] = {{"swapped_pages_per_s", rate}, {NULL}};
	char		swappiness[32];
	PgscaleTuningFinding *f;

	if (e->swapped < 0 || !pgscale_kernel_setting("/proc/sys/vm/swappiness", swappiness, sizeof(swappiness)))
		return pgscale_tuning_finding(PGSCALE_SILENT, "the kernel does not report on swapping");
	if (!pgscale_tuning_swaps(e))
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "%.1f pages are swapped a second", rate);
	f = pgscale_tuning_advise(psprintf("%sless memory for shared buffers or sessions",
									   strtol(swappiness, NULL, 10) > 1 ? "sysctl vm.swappiness=1, and " : ""),
							  0.05, numbers,
							  "%.0f pages a second are swapped in or out on this machine", rate);
	f->current = pstrdup(swappiness);
	return f;
}

/*
 * NUMA.  Window: 30 s or more.  Threshold: several nodes, one of which holds half
 * more than its part of shared buffers, and the CPU takes a half of the sessions'
 * time.  Gain: access to another node's memory takes about half as long again; of
 * the CPU's time perhaps a fifth is such access: 5 % of it where the fullest node
 * holds twice its part or more, and less in proportion.
 */
static PgscaleTuningFinding *
find_numa(const PgscaleTuningRuleInput *input)
{
	const double cpu = pgscale_tuning_fraction(input->sum, PGSCALE_KIND_CPU);
	PgscaleRows rows;
	double		nodes;
	double		most;

	if (pgscale_tuning_setting("pgscale.numa_interleave") < 0)
		return pgscale_tuning_finding(PGSCALE_SILENT, "pgscale does not know where this server's memory lies");
	if (pgscale_tuning_setting("pgscale.numa_interleave") > 0)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "it is on; pgscale.health shows whether it works");
	pgscale_sql_try("SELECT (SELECT count(*) FROM pgscale_internal.numa_nodes() WHERE memory_bytes > 0),"
					" max(bytes)::float8 / sum(bytes) FROM pgscale.numa_buffers() WHERE node IS NOT NULL", &rows);
	if (rows.error)
		return pgscale_tuning_finding(PGSCALE_SILENT, "it is unknown where memory lies: %s", rows.error);
	nodes = pgscale_sql_number(&rows, 0, 0);
	most = pgscale_sql_number(&rows, 0, 1);
	if (!(nodes > 1) || isnan(most))
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "the machine has one node");
	if (most < 1.5 / nodes || cpu < 0.5)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "of %.0f nodes the fullest holds %.0f %% of shared buffers", nodes, 100 * most);
	{
		const PgscaleTuningNumber numbers[] = {
			{"nodes", nodes},
			{"largest_fraction", most},
			{"cpu_fraction", cpu},
			{NULL}
		};

		return pgscale_tuning_advise("on", 0.05 * cpu * Min(most * nodes / 2, 1), numbers,
									 "one of %.0f nodes holds %.0f %% of shared buffers, %.1f times its share",
									 nodes, 100 * most, most * nodes);
	}
}

const PgscaleTuningRule pgscale_tuning_memory_rules[] = {
	{
		.name = "huge_pages",
		.min_s = 30,
		.settings = {"huge_pages", "shared_buffers"},
		.needs = "restart",
		.confidence = "medium",
		.risk = "memory in huge pages cannot be used otherwise",
		.find = find_huge_pages,
	},
	{
		.name = "vm.dirty_background_bytes",
		.object = "vm.dirty_background_bytes",
		.min_s = 50,
		.by_checkpoint = true,
		.settings = {"checkpoint_flush_after", "bgwriter_flush_after", "pgscale.writeback"},
		.needs = "root on the machine",
		.confidence = "medium",
		.risk = "it applies to all writes on this machine",
		.find = find_dirty_limits,
	},
	{
		.name = "transparent_hugepage",
		.object = "transparent huge pages",
		.min_s = 30,
		.needs = "root on the machine",
		.confidence = "low",
		.risk = "other programs may profit from them",
		.find = find_transparent,
	},
	{
		.name = "vm.swappiness",
		.object = "vm.swappiness",
		.min_s = 30,
		.needs = "root on the machine",
		.confidence = "medium",
		.risk = "where memory is short, a process may be killed instead",
		.find = find_swapping,
	},
	{
		.name = "pgscale.numa_interleave",
		.min_s = 30,
		.needs = "restart",
		.confidence = "low",
		.risk = "sessions that only use memory of their own node get slower",
		.find = find_numa,
	},
	{0}
};
