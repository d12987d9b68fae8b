/*-------------------------------------------------------------------------
 *
 * findings.h
 *	  Common parts of rules: questions to the evidence, and the parts of a finding.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_TUNING_FINDINGS_H
#define PGSCALE_TUNING_FINDINGS_H

#include "postgres.h"

#include "lib/stringinfo.h"
#include "utils/jsonb.h"

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
extern double pgscale_tuning_fraction(const PgscaleEvidence *e, PgscaleWaitKind wait);

/* As above, with all that has to do with writing WAL. */
extern double pgscale_tuning_wal_fraction(const PgscaleEvidence *e);

/* As above, with reading, writing and syncing data. */
extern double pgscale_tuning_data_fraction(const PgscaleEvidence *e);

/* How many sessions were in it at a time, on average. */
extern double pgscale_tuning_waiting(const PgscaleEvidence *e, PgscaleWaitKind wait);

/* How many were at work. */
extern double pgscale_tuning_busy(const PgscaleEvidence *e);

/* Seconds that were observed, and a count a second. */
extern double pgscale_tuning_seconds(const PgscaleEvidence *e);
extern double pgscale_tuning_rate(const PgscaleEvidence *e, int64 count);

/* a / b, or 0 of nothing. */
extern double pgscale_tuning_ratio(double a, double b);

/* Bytes of WAL. */
extern double pgscale_tuning_wal_volume(const PgscaleEvidence *e);

/* The 95th percentile of the records' WAL, bytes a second. */
extern double pgscale_tuning_wal_rate_p95(const PgscaleTuningRuleInput *input);

/* The share of page images in the WAL's bytes; at most, unless the server counts their bytes. */
extern double pgscale_tuning_page_images(const PgscaleEvidence *e);

/* Milliseconds of a flush of WAL; NaN if there were none. */
extern double pgscale_tuning_flush_ms(const PgscaleEvidence *e);

/* Pages that were written, by backends only those for which they needed room. */
extern double pgscale_tuning_pages_written(const PgscaleEvidence *e);

/* Of these, the share that backends had to write themselves. */
extern double pgscale_tuning_backend_write_fraction(const PgscaleEvidence *e);

/*
 * Was the background writer set so that it can do next to nothing?  Then that explains
 * other evidence about shared buffers.
 */
extern bool pgscale_tuning_bgwriter_stalled(void);

/* Does the machine swap as much as hurts? */
extern bool pgscale_tuning_swaps(const PgscaleEvidence *e);

/* What sessions' own writes cost them, as a share of their time. */
extern double pgscale_tuning_backend_write_cost(const PgscaleEvidence *e);

/* Is it tables that grow, whose pages their writers write in any case? */
extern bool pgscale_tuning_bulk_load(const PgscaleEvidence *e);

/* The bytes of WAL after which a checkpoint is due. */
extern double pgscale_tuning_wal_distance(void);

/* Did WAL, and not the clock, start the checkpoints? */
extern bool pgscale_tuning_wal_starts_checkpoints(const PgscaleEvidence *e);

/* Did backends often have to make room in WAL buffers? */
extern bool pgscale_tuning_wal_buffers_short(const PgscaleEvidence *e);

/*
 * The share of the time in which the checkpointer synced files, by the server's
 * count or by what was seen; and whether that is a lot: then checkpoints leave
 * the disk much to write at their ends.
 */
extern double pgscale_tuning_sync_fraction(const PgscaleEvidence *e);
extern bool pgscale_tuning_checkpoint_stalls(const PgscaleEvidence *e);

/* Is either of the flush settings off that are on by default? */
extern bool pgscale_tuning_flush_after_off(void);

/*
 * The share of the sessions' time beyond what their transactions would have taken
 * at the usual cost of one: stalls.
 */
extern double pgscale_tuning_stalls(const PgscaleTuningRuleInput *input);

/*
 * Pages that were asked for and were not in shared buffers, without those that
 * sequential scans and the like read through rings.
 */
extern double pgscale_tuning_misses(const PgscaleEvidence *e);

/*
 * Do pages leave shared buffers to come back from the kernel's cache?  Then that
 * saves writes, too, and to have it write at once would bring them back.
 */
extern bool pgscale_tuning_rewrites(const PgscaleEvidence *e);

/*
 * A setting's value in its own unit, whatever the session has made of it; -1 if
 * this major has no such setting.
 */
extern double pgscale_tuning_setting(const char *name);

/* As SHOW prints it; NULL as above. */
extern const char *pgscale_tuning_setting_text(const char *name);

/* Bytes as ALTER SYSTEM takes them, rounded up to what is easy to read. */
extern const char *pgscale_tuning_bytes_text(double bytes);

/* The largest size of whole megabytes that is as easy to read and no larger than this one. */
extern double pgscale_tuning_bytes_below(double bytes);

typedef struct PgscaleTuningNumber
{
	const char *name;			/* NULL ends the list */
	double		value;
} PgscaleTuningNumber;

/* An object of jsonb under way; it begins as zeroes. */
typedef struct PgscaleTuningJson
{
	StringInfoData text;
} PgscaleTuningJson;

extern void pgscale_tuning_json_text(PgscaleTuningJson *json, const char *name, const char *value);

/* One that is not finite becomes null. */
extern void pgscale_tuning_json_number(PgscaleTuningJson *json, const char *name, double value);

extern Jsonb *pgscale_tuning_json_end(PgscaleTuningJson *json);

/* A finding without advice: a verdict and a sentence. */
extern PgscaleTuningFinding *pgscale_tuning_finding(PgscaleTuningVerdict verdict, const char *reason,...)
			pg_attribute_printf(2, 3);

/* Advice with numbers, or NULL.  What its rule says of all its advice is left out. */
extern PgscaleTuningFinding *pgscale_tuning_advise(const char *recommended, double gain, const PgscaleTuningNumber *numbers,
												   const char *reason,...) pg_attribute_printf(4, 5);

/* The rules by file, each list ended by one without a name. */
extern const PgscaleTuningRule pgscale_tuning_wal_rules[];
extern const PgscaleTuningRule pgscale_tuning_checkpoint_rules[];
extern const PgscaleTuningRule pgscale_tuning_buffers_rules[];
extern const PgscaleTuningRule pgscale_tuning_locks_rules[];
extern const PgscaleTuningRule pgscale_tuning_reads_rules[];
extern const PgscaleTuningRule pgscale_tuning_memory_rules[];
extern const PgscaleTuningRule pgscale_tuning_tables_rules[];
extern const PgscaleTuningRule pgscale_tuning_features_rules[];

/*
 * wal.c: what max_wal_size should be by this evidence, in bytes, as ALTER SYSTEM takes it;
 * 0: no larger one is of use, or its disk has no room.
 */
extern double pgscale_tuning_max_wal_size(const PgscaleTuningRuleInput *input);

/* One that another rule asks first. */
extern PgscaleTuningFinding *pgscale_tuning_find_bgwriter(const PgscaleTuningRuleInput *input);

/* Metrics that more than one file's rules have. */
extern const PgscaleTuningMetric pgscale_tuning_metric_session_ms;
extern const PgscaleTuningMetric pgscale_tuning_metric_throughput;
extern const PgscaleTuningMetric pgscale_tuning_metric_wal_bytes;
extern const PgscaleTuningMetric pgscale_tuning_metric_wal_fraction;

#endif							/* PGSCALE_TUNING_FINDINGS_H */
