/*-------------------------------------------------------------------------
 *
 * findings.h
 *	  What the files of rules share: questions to the evidence, and the parts of
 *	  a finding.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_TUNING_FINDINGS_H
#define PGSCALE_TUNING_FINDINGS_H

#include "postgres.h"

#include "tuning/rules/rule_table.h"

/*
 * No rule advises for less of the sessions' time than this: runs of the same load
 * differ by as much.
 */
#define PGSCALE_LEAST_GAIN		0.02

/*
 * What a page costs the CPU that is not in shared buffers, beside the waits that
 * the sampler sees: finding a victim, the mapping, and copying 8 kB.
 */
#define PGSCALE_MISS_CPU_US		2.0

/* The sessions' time in a kind of wait, of all that they spent at work: 0 .. 1. */
extern double pgscale_share(const PgscaleEvidence *e, PgscaleEvidenceWait wait);

/* The same of all that has to do with writing WAL. */
extern double pgscale_wal_share(const PgscaleEvidence *e);

/* Likewise, with reading, writing and syncing data. */
extern double pgscale_data_share(const PgscaleEvidence *e);

/* How many sessions were in it at a time, on average. */
extern double pgscale_waiting(const PgscaleEvidence *e, PgscaleEvidenceWait wait);

/* How many were at work. */
extern double pgscale_busy(const PgscaleEvidence *e);

/* Seconds that were observed, and a count a second. */
extern double pgscale_seconds(const PgscaleEvidence *e);
extern double pgscale_rate(const PgscaleEvidence *e, int64 count);

/* a / b, or 0 of nothing. */
extern double pgscale_ratio(double a, double b);

/* Bytes of WAL. */
extern double pgscale_wal_volume(const PgscaleEvidence *e);

/* The 95th percentile of the records' WAL, bytes a second. */
extern double pgscale_wal_rate_p95(const PgscaleRuleInput *input);

/* The share of page images in the WAL's bytes, at most. */
extern double pgscale_page_images(const PgscaleEvidence *e);

/* Milliseconds of a flush of WAL; NaN if there were none. */
extern double pgscale_flush_ms(const PgscaleEvidence *e);

/* The share of pages that backends had to write themselves, to have room. */
extern double pgscale_backend_write_share(const PgscaleEvidence *e);

/*
 * Was the background writer set so that it can do next to nothing?  Then other
 * evidence about shared buffers tells of that.  Not if a feature does its work.
 */
extern bool pgscale_bgwriter_stalled(void);

/* Does the machine swap as much as hurts? */
extern bool pgscale_swaps(const PgscaleEvidence *e);

/* What sessions' own writes cost them, as a share of their time. */
extern double pgscale_backend_write_cost(const PgscaleEvidence *e);

/* Is it tables that grow, whose pages their writers write in any case? */
extern bool pgscale_bulk_load(const PgscaleEvidence *e);

/* Did WAL, and not the clock, start the checkpoints? */
extern bool pgscale_wal_starts_checkpoints(const PgscaleEvidence *e);

/* Did backends often have to make room in WAL buffers? */
extern bool pgscale_wal_buffers_short(const PgscaleEvidence *e);

/*
 * The share of the time in which the checkpointer synced files, by the server's
 * count or by what was seen; and whether that is a lot: then checkpoints leave
 * the disk much to write at their ends.
 */
extern double pgscale_sync_fraction(const PgscaleEvidence *e);
extern bool pgscale_checkpoint_stalls(const PgscaleEvidence *e);

/* Is either of the flush settings off that are on by default? */
extern bool pgscale_flush_after_off(void);

/*
 * The share of the sessions' time beyond what their transactions would have taken
 * at the usual cost of one: stalls.
 */
extern double pgscale_stalls(const PgscaleRuleInput *input);

/*
 * Do pages leave shared buffers to come back from the kernel's cache?  Then that
 * saves writes, too, and to have it write at once would bring them back.
 */
extern bool pgscale_rewrites(const PgscaleEvidence *e);

/*
 * A setting's value in its own unit, whatever the session has made of it; -1 if
 * this major has no such setting.
 */
extern double pgscale_setting(const char *name);

/* As SHOW has it; NULL likewise. */
extern const char *pgscale_setting_text(const char *name);

/* Bytes as ALTER SYSTEM takes them, rounded up to what is easy to read. */
extern const char *pgscale_bytes_text(double bytes);

typedef struct PgscaleNumber
{
	const char *name;			/* NULL ends the list */
	double		value;
} PgscaleNumber;

/* A JSON object of them; without those that are not finite. */
extern const char *pgscale_numbers(const PgscaleNumber *numbers);

/* A finding with a verdict and a sentence.  All else is to be added. */
extern PgscaleFinding *pgscale_finding(PgscaleVerdict verdict, const char *why,...)
			pg_attribute_printf(2, 3);

/* The rules, by file. */
extern const PgscaleRule pgscale_rule_flush_after;
extern const PgscaleRule pgscale_rule_backend_flush_after;
extern const PgscaleRule pgscale_rule_checkpoint_timeout;
extern const PgscaleRule pgscale_rule_completion_target;
extern const PgscaleRule pgscale_rule_wal_compression;
extern const PgscaleRule pgscale_rule_page_images;
extern const PgscaleRule pgscale_rule_max_wal_size;
extern const PgscaleRule pgscale_rule_wal_buffers;
extern const PgscaleRule pgscale_rule_commit_delay;
extern const PgscaleRule pgscale_rule_commit_siblings;
extern const PgscaleRule pgscale_rule_wal_segment_size;
extern const PgscaleRule pgscale_rule_bgwriter;
extern const PgscaleRule pgscale_rule_shared_buffers;
extern const PgscaleRule pgscale_rule_transaction_buffers;
extern const PgscaleRule pgscale_rule_subtransaction_buffers;
extern const PgscaleRule pgscale_rule_offset_buffers;
extern const PgscaleRule pgscale_rule_member_buffers;
extern const PgscaleRule pgscale_rule_huge_pages;
extern const PgscaleRule pgscale_rule_dirty_limits;
extern const PgscaleRule pgscale_rule_transparent;
extern const PgscaleRule pgscale_rule_swapping;
extern const PgscaleRule pgscale_rule_numa;
extern const PgscaleRule pgscale_rule_random_page_cost;
extern const PgscaleRule pgscale_rule_io_concurrency;
extern const PgscaleRule pgscale_rule_fillfactor;
extern const PgscaleRule pgscale_rule_extension;
extern const PgscaleRule pgscale_rule_sampler;
extern const PgscaleRule pgscale_rule_sweeper;
extern const PgscaleRule pgscale_rule_writeback;
extern const PgscaleRule pgscale_rule_worker_processes;

/* Metrics that more than one file's rules have. */
extern const PgscaleMetric pgscale_metric_session_ms;
extern const PgscaleMetric pgscale_metric_throughput;
extern const PgscaleMetric pgscale_metric_wal_bytes;
extern const PgscaleMetric pgscale_metric_wal_share;

#endif							/* PGSCALE_TUNING_FINDINGS_H */
