/*-------------------------------------------------------------------------
 *
 * findings.c
 *	  Common parts of rules: questions to the evidence, and the parts of a finding.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "access/xlog.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgwriter.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/json.h"

#include "base/texts.h"
#include "base/units.h"
#include "tuning/findings.h"

/* That many pages a second of the background writer are next to nothing. */
#define STALLED_BYTES_PER_S		(1024.0 * 1024.0)

/* And that many swapped pages are a lot. */
#define SWAPPING_PAGES_PER_S	100.0

/* The length of a WAL record, without images: that of an update of a small row. */
#define RECORD_BYTES			80.0

double
pgscale_tuning_ratio(double a, double b)
{
	return b > 0 ? a / b : 0;
}

double
pgscale_tuning_fraction(const PgscaleEvidence *e, PgscaleWaitKind wait)
{
	return pgscale_tuning_ratio(e->wait_ns[wait], e->session_ns);
}

static double
wait_shares(const PgscaleEvidence *e, PgscaleWaitKind first, PgscaleWaitKind last)
{
	double		sum = 0;

	for (int wait = first; wait <= (int) last; wait++)
		sum += pgscale_tuning_fraction(e, (PgscaleWaitKind) wait);
	return sum;
}

double
pgscale_tuning_wal_fraction(const PgscaleEvidence *e)
{
	return wait_shares(e, PGSCALE_KIND_WAL_SYNC, PGSCALE_KIND_WAL_INIT);
}

double
pgscale_tuning_data_fraction(const PgscaleEvidence *e)
{
	return wait_shares(e, PGSCALE_KIND_DATA_READ, PGSCALE_KIND_DATA_SYNC) +
		pgscale_tuning_fraction(e, PGSCALE_KIND_BUFFER_IO);
}

double
pgscale_tuning_waiting(const PgscaleEvidence *e, PgscaleWaitKind wait)
{
	return pgscale_tuning_ratio(e->wait_ns[wait], e->ns);
}

double
pgscale_tuning_busy(const PgscaleEvidence *e)
{
	return pgscale_tuning_ratio(e->session_ns, e->ns);
}

double
pgscale_tuning_seconds(const PgscaleEvidence *e)
{
	return e->ns / 1e9;
}

double
pgscale_tuning_rate(const PgscaleEvidence *e, int64 count)
{
	return pgscale_tuning_ratio(count, pgscale_tuning_seconds(e));
}

/*
 * By how far WAL has come: sessions report what they generate when a statement has
 * ended, so that the counts of long ones are missing as long as they last.
 */
double
pgscale_tuning_wal_volume(const PgscaleEvidence *e)
{
	return e->counts.wal_position >= 0 ? e->counts.wal_position : e->counts.wal_bytes;
}

static int
compare_doubles(const void *a, const void *b)
{
	const double x = *(const double *) a;
	const double y = *(const double *) b;

	return (x > y) - (x < y);
}

double
pgscale_tuning_wal_rate_p95(const PgscaleTuningRuleInput *input)
{
	double	   *rates = palloc(Max(input->nrecords, 1) * sizeof(double));
	double		p95 = 0;

	for (int i = 0; i < input->nrecords; i++)
		rates[i] = pgscale_tuning_ratio(pgscale_tuning_wal_volume(&input->records[i]),
										pgscale_tuning_seconds(&input->records[i]));
	qsort(rates, input->nrecords, sizeof(double), compare_doubles);
	if (input->nrecords > 0)
		p95 = rates[(int) (0.95 * (input->nrecords - 1))];
	pfree(rates);
	return p95;
}

/*
 * Before 19 the server counts images, and not their bytes.  An image is a page without its
 * hole, so that a page counts as full.  With wal_compression it may be a tenth of
 * that: then it is what other records leave, which are RECORD_BYTES each or more.
 */
double
pgscale_tuning_page_images(const PgscaleEvidence *e)
{
	double		images = pgscale_tuning_ratio((double) e->counts.wal_pages * BLCKSZ, e->counts.wal_bytes);

	if (e->counts.wal_page_bytes >= 0)
		return Min(pgscale_tuning_ratio(e->counts.wal_page_bytes, e->counts.wal_bytes), 1);
	if (strcmp(pgscale_tuning_setting_text("wal_compression"), "off") != 0)
		images = Min(images, 1 - pgscale_tuning_ratio((double) e->counts.wal_records * RECORD_BYTES, e->counts.wal_bytes));
	return Min(Max(images, 0), 0.98);
}

/*
 * The server's own measurement, if it makes one.  Otherwise the sessions' waits: at any
 * time one process flushes, so their sum is the time of the flushes, except those of
 * the WAL writer.
 */
double
pgscale_tuning_flush_ms(const PgscaleEvidence *e)
{
	if (e->counts.wal_syncs <= 0)
		return NAN;
	if (e->counts.wal_sync_us > 0)
		return e->counts.wal_sync_us / 1e3 / e->counts.wal_syncs;
	return e->wait_ns[PGSCALE_KIND_WAL_SYNC] / 1e6 / e->counts.wal_syncs;
}

double
pgscale_tuning_pages_written(const PgscaleEvidence *e)
{
	const PgscaleCounters *c = &e->counts;

	return (double) c->backend_buffers + c->bgwriter_buffers + c->checkpoint_buffers + c->sweeper_buffers;
}

double
pgscale_tuning_backend_write_fraction(const PgscaleEvidence *e)
{
	return pgscale_tuning_ratio(e->counts.backend_buffers, pgscale_tuning_pages_written(e));
}

bool
pgscale_tuning_bgwriter_stalled(void)
{
	const double pages = pgscale_tuning_setting("bgwriter_lru_maxpages");
	const double delay_ms = pgscale_tuning_setting("bgwriter_delay");

	return pages * BLCKSZ / (delay_ms / 1000) < STALLED_BYTES_PER_S ||
		pgscale_tuning_setting("bgwriter_lru_multiplier") < 0.5;
}

bool
pgscale_tuning_swaps(const PgscaleEvidence *e)
{
	return pgscale_tuning_rate(e, e->swapped) >= SWAPPING_PAGES_PER_S;
}

/*
 * The waits for these writes, and the CPU's time.  A page must not be written before
 * its WAL is flushed; if commits do not wait for that, the writer of the page does.
 */
double
pgscale_tuning_backend_write_cost(const PgscaleEvidence *e)
{
	double		cost = pgscale_tuning_fraction(e, PGSCALE_KIND_DATA_WRITE) +
		pgscale_tuning_ratio(e->counts.backend_buffers * PGSCALE_MISS_CPU_US * 1000, e->session_ns);

	if (strcmp(GetConfigOptionResetString("synchronous_commit"), "off") == 0 && !pgscale_tuning_wal_buffers_short(e))
		cost += pgscale_tuning_fraction(e, PGSCALE_KIND_WAL_SYNC) + pgscale_tuning_fraction(e, PGSCALE_KIND_WAL_WRITE) +
			pgscale_tuning_fraction(e, PGSCALE_KIND_WAL_WRITE_LOCK);
	return Min(cost, 1);
}

bool
pgscale_tuning_bulk_load(const PgscaleEvidence *e)
{
	const PgscaleCounters *c = &e->counts;

	if (c->backend_ring_buffers >= 0)
		return c->backend_ring_buffers > c->backend_buffers;
	return pgscale_tuning_fraction(e, PGSCALE_KIND_DATA_EXTEND) + pgscale_tuning_fraction(e, PGSCALE_KIND_LOCK_EXTEND) >
		pgscale_tuning_fraction(e, PGSCALE_KIND_DATA_READ) + pgscale_tuning_fraction(e, PGSCALE_KIND_DATA_WRITE);
}

/* CalculateCheckpointSegments() in xlog.c. */
double
pgscale_tuning_wal_distance(void)
{
	return (double) max_wal_size_mb * PGSCALE_MB / (1 + CheckPointCompletionTarget);
}

/* Checkpoints by request, such as CHECKPOINT or a backup, are not counted. */
bool
pgscale_tuning_wal_starts_checkpoints(const PgscaleEvidence *e)
{
	const PgscaleCounters *c = &e->counts;

	return c->checkpoints_requested >= 2 &&
		c->checkpoints_requested > 0.1 * (c->checkpoints_requested + c->checkpoints_timed) &&
		pgscale_tuning_wal_volume(e) > 0.5 * pgscale_tuning_wal_distance() * c->checkpoints_requested;
}

/*
 * Of what was written of WAL, every twentieth time because there was no room; or
 * sessions wait for places to insert, which those keep who wait for room.  Who
 * finds that another one has made it meanwhile is not counted.
 */
bool
pgscale_tuning_wal_buffers_short(const PgscaleEvidence *e)
{
	const double places = pgscale_tuning_fraction(e, PGSCALE_KIND_WAL_INSERT) +
		pgscale_tuning_fraction(e, PGSCALE_KIND_WAL_BUFFERS);

	return pgscale_tuning_rate(e, e->counts.wal_buffers_full) > 1 &&
		(places > 0.05 || e->counts.wal_buffers_full > 0.05 * Max(e->counts.wal_writes, 1));
}

double
pgscale_tuning_sync_fraction(const PgscaleEvidence *e)
{
	return Min(pgscale_tuning_ratio(Max(e->counts.checkpoint_sync_ms * 1e6, e->sync_ns), e->ns), 1);
}

bool
pgscale_tuning_checkpoint_stalls(const PgscaleEvidence *e)
{
	return pgscale_tuning_sync_fraction(e) > 0.05;
}

bool
pgscale_tuning_flush_after_off(void)
{
	return pgscale_tuning_setting("checkpoint_flush_after") == 0 || pgscale_tuning_setting("bgwriter_flush_after") == 0;
}

/* A record's cost of a transaction, if it has any. */
static int
collect_costs(const PgscaleTuningRuleInput *input, bool quiet_only, double *costs)
{
	int			n = 0;

	for (int i = 0; i < input->nrecords; i++)
		if (input->records[i].counts.commits > 0 && (!quiet_only || input->records[i].sync_ns == 0))
			costs[n++] = (double) input->records[i].session_ns / input->records[i].counts.commits;
	return n;
}

/*
 * The usual cost is the median of the records in which the checkpointer did not
 * sync, or of all if there are none such.
 */
double
pgscale_tuning_stalls(const PgscaleTuningRuleInput *input)
{
	double	   *costs = palloc(Max(input->nrecords, 1) * sizeof(double));
	int			n = collect_costs(input, true, costs);
	double		beyond = 0;
	double		usual;

	if (n == 0)
		n = collect_costs(input, false, costs);
	if (n == 0)
		return 0;
	qsort(costs, n, sizeof(double), compare_doubles);
	usual = costs[n / 2];
	for (int i = 0; i < input->nrecords; i++)
		beyond += Max((double) input->records[i].session_ns - input->records[i].counts.commits * usual, 0);
	pfree(costs);
	return pgscale_tuning_ratio(beyond, input->sum->session_ns);
}

/*
 * Before 16 what is read through rings is not counted.  But then, as ever, a buffer
 * that a ring uses again is not counted as allocated (StrategyGetBuffer() in
 * freelist.c), and each other page that is read needs one that is.
 */
double
pgscale_tuning_misses(const PgscaleEvidence *e)
{
	const PgscaleCounters *c = &e->counts;

	if (c->backend_ring_reads < 0)
		return Min(c->blocks_read, c->buffers_allocated);
	return Max(c->blocks_read - c->backend_ring_reads, 0);
}

bool
pgscale_tuning_rewrites(const PgscaleEvidence *e)
{
	const PgscaleCounters *c = &e->counts;
	const double misses = pgscale_tuning_misses(e);
	const double read_us = pgscale_tuning_ratio(e->wait_ns[PGSCALE_KIND_DATA_READ] / 1e3, c->blocks_read);

	return pgscale_tuning_ratio(misses, misses + c->blocks_hit) > 0.05 && read_us < 200;
}

double
pgscale_tuning_setting(const char *name)
{
	const char *value;

	if (!GetConfigOption(name, true, false))
		return -1;
	value = GetConfigOptionResetString(name);
	if (strcmp(value, "on") == 0 || strcmp(value, "off") == 0)
		return strcmp(value, "on") == 0;
	if (strcmp(value, "auto") == 0) /* of a feature of pgscale's */
		return 1;
	return strtod(value, NULL);
}

const char *
pgscale_tuning_setting_text(const char *name)
{
	if (!GetConfigOption(name, true, false))
		return NULL;
	return GetConfigOptionByName(name, NULL, false);
}

/* Two digits and a unit are all that an estimate is worth. */
const char *
pgscale_tuning_bytes_text(double bytes)
{
	double		mb = ceil(bytes / PGSCALE_MB);

	if (bytes < PGSCALE_MB)
		return psprintf("%.0fkB", ceil(bytes / PGSCALE_KB));
	if (mb < 256)
		return psprintf("%.0fMB", ceil(mb / 16) * 16);
	if (mb < 1024)
		return psprintf("%.0fMB", ceil(mb / 128) * 128);
	return psprintf("%.0fGB", ceil(mb / 1024));
}

/* Of what is written so. */
double
pgscale_tuning_bytes_below(double bytes)
{
	const double mb = bytes / PGSCALE_MB;
	const double step = mb < 256 ? 16 : mb < 1024 ? 128 : 1024;

	return floor(mb / step) * step * PGSCALE_MB;
}

/* An object of jsonb, member by member, by its text. */
static void
json_begin(PgscaleTuningJson *json)
{
	if (json->text.data)
		return;
	initStringInfo(&json->text);
	appendStringInfoChar(&json->text, '{');
}

static void
json_add_name(PgscaleTuningJson *json, const char *name)
{
	json_begin(json);
	if (json->text.len > 1)
		appendStringInfoChar(&json->text, ',');
	escape_json(&json->text, name);
	appendStringInfoChar(&json->text, ':');
}

void
pgscale_tuning_json_text(PgscaleTuningJson *json, const char *name, const char *text)
{
	json_add_name(json, name);
	escape_json(&json->text, text);
}

void
pgscale_tuning_json_number(PgscaleTuningJson *json, const char *name, double number)
{
	json_add_name(json, name);
	if (isfinite(number))
		appendStringInfo(&json->text, "%.*g", DBL_DIG, number);
	else
		appendStringInfoString(&json->text, "null");
}

Jsonb *
pgscale_tuning_json_end(PgscaleTuningJson *json)
{
	json_begin(json);
	appendStringInfoChar(&json->text, '}');
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(json->text.data)));
}

static PgscaleTuningFinding *finding_of(PgscaleTuningVerdict verdict, const char *reason, va_list args)
			pg_attribute_printf(2, 0);

static PgscaleTuningFinding *
finding_of(PgscaleTuningVerdict verdict, const char *reason, va_list args)
{
	PgscaleTuningFinding *finding = palloc0(sizeof(PgscaleTuningFinding));

	finding->verdict = verdict;
	finding->reason = pgscale_text_format(reason, args);

	return finding;
}

PgscaleTuningFinding *
pgscale_tuning_finding(PgscaleTuningVerdict verdict, const char *reason,...)
{
	PgscaleTuningFinding *finding;
	va_list		args;

	va_start(args, reason);
	finding = finding_of(verdict, reason, args);
	va_end(args);
	return finding;
}

PgscaleTuningFinding *
pgscale_tuning_advise(const char *recommended, double gain, const PgscaleTuningNumber *numbers, const char *reason,...)
{
	PgscaleTuningFinding *finding;
	va_list		args;

	va_start(args, reason);
	finding = finding_of(PGSCALE_ADVISES, reason, args);
	va_end(args);
	finding->recommended = recommended;
	finding->gain = gain;
	if (numbers)
	{
		PgscaleTuningJson json = {0};

		for (; numbers->name; numbers++)
			pgscale_tuning_json_number(&json, numbers->name, numbers->value);
		finding->evidence = pgscale_tuning_json_end(&json);
	}
	return finding;
}
