/*-------------------------------------------------------------------------
 *
 * tables.c
 *	  Rules about tablespaces, tables, and sessions that load them.
 *
 * Rules about tables read the database of the caller's session: no process can read
 * another one.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "utils/builtins.h"

#include "base/pg_compat.h"
#include "base/sql.h"
#include "tuning/findings.h"

/* That many times the dead rows at which autovacuum is due show that it does not keep up. */
#define OVERDUE			2.0

/* Beyond this a read is a disk's and not the kernel's cache's. */
#define DISK_READ_MS	0.1

static PgscaleTuningFinding *
not_probed(void)
{
	return pgscale_tuning_finding(PGSCALE_SILENT,
								  "the disks were not timed: pgscale.advice_rules(probe => true) times them, for "
								  "roles that may call pgscale.tablespace_latency()");
}

/*
 * The probe's result for each tablespace, and its settings.  Asked once for each rule,
 * because it takes seconds; its errors are not caught, because the caller asked for it.
 */
static const char *const probe_query =
"SELECT l.tablespace, l.read_ms, l.random_page_cost, l.reason,"
"       coalesce((SELECT option_value FROM pg_catalog.pg_options_to_table(t.spcoptions)"
"                  WHERE option_name = 'random_page_cost'), s.cost),"
"       coalesce((SELECT option_value FROM pg_catalog.pg_options_to_table(t.spcoptions)"
"                  WHERE option_name = 'effective_io_concurrency'), s.io)"
"  FROM pgscale.tablespace_latency(NULL) l JOIN pg_catalog.pg_tablespace t ON t.spcname = l.tablespace,"
"       (SELECT cost.setting AS cost, io.setting AS io FROM pg_catalog.pg_settings cost, pg_catalog.pg_settings io"
"         WHERE cost.name = 'random_page_cost' AND io.name = 'effective_io_concurrency') s"
" ORDER BY 1";

static PgscaleTuningFinding *
for_tablespaces(const PgscaleTuningRuleInput *input,
				PgscaleTuningFinding *(*each) (const PgscaleTuningRuleInput *input, const PgscaleRows *rows, int row))
{
	PgscaleRows rows;
	PgscaleTuningFinding *first = NULL;
	PgscaleTuningFinding **next = &first;

	pgscale_sql_try(probe_query, &rows);
	if (rows.error)
		return pgscale_tuning_finding(PGSCALE_SILENT, "the disks could not be timed: %s", rows.error);
	for (int row = 0; row < rows.nrows; row++)
	{
		if (isnan(pgscale_sql_number(&rows, row, 1)))
			*next = pgscale_tuning_finding(PGSCALE_SILENT, "%s: %s", pgscale_rows_text(&rows, row, 0),
										   pgscale_rows_text(&rows, row, 3));
		else
			*next = each(input, &rows, row);
		next = &(*next)->next;
	}
	return first;
}

/*
 * random_page_cost, of each tablespace.  Window: none; the probe times the disk.
 *
 * Threshold: what is set is off by more than half from what the probe suggests
 * (see pgscale.tablespace_latency()), of which all rounds must agree.  Gain: that of other plans is unknown; a
 * twentieth of the reads' share stands for it.
 */
static PgscaleTuningFinding *
page_cost_of(const PgscaleTuningRuleInput *input, const PgscaleRows *rows, int row)
{
	const char *tablespace = pgscale_rows_text(rows, row, 0);
	const double measured = pgscale_sql_number(rows, row, 2);
	const double set = pgscale_sql_number(rows, row, 4);
	const PgscaleTuningNumber numbers[] = {
		{"read_ms", pgscale_sql_number(rows, row, 1)},
		{"measured_random_page_cost", measured},
		{"data_read_fraction", pgscale_tuning_fraction(input->sum, PGSCALE_KIND_DATA_READ)},
		{NULL}
	};
	PgscaleTuningFinding *f;

	if (isnan(measured))
		return pgscale_tuning_finding(PGSCALE_SILENT, "%s: %s", tablespace, pgscale_rows_text(rows, row, 3));
	if (measured < 1.5 * set && set < 1.5 * measured)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "%s: %.1f is set, and the measurement suggests %.1f", tablespace, set, measured);
	f = pgscale_tuning_advise(psprintf("ALTER TABLESPACE %s SET (random_page_cost = %.1f)", quote_identifier(tablespace), measured),
							  0.05 * numbers[2].value, numbers,
							  "a random read takes %.2f ms there; where 90 %% of them are answered by a cache, a random page costs "
							  "%.1f times one in sequence (documentation of random_page_cost)", numbers[0].value, measured);
	f->object = tablespace;
	f->current = psprintf("%.1f", set);
	return f;
}

static PgscaleTuningFinding *
find_random_page_cost(const PgscaleTuningRuleInput *input)
{
	return input->probe ? for_tablespaces(input, page_cost_of) : not_probed();
}

/*
 * effective_io_concurrency, of each tablespace.  Window: none; the probe times the
 * disk.
 *
 * Threshold: a read takes between a tenth of a millisecond, below which prefetching
 * costs more than it saves, and three, as on disks that do many reads at a time;
 * fewer than 16 are asked for; and reads take a twentieth of the sessions' time.
 * Gain: a tenth of that, since only bitmap heap scans (and, in 18, sequential
 * ones) prefetch.  Value: 16, the default of 18 (commit ff79b5b2a).
 */
static PgscaleTuningFinding *
concurrency_of(const PgscaleTuningRuleInput *input, const PgscaleRows *rows, int row)
{
	const char *tablespace = pgscale_rows_text(rows, row, 0);
	const double read_ms = pgscale_sql_number(rows, row, 1);
	const double set = pgscale_sql_number(rows, row, 5);
	const double share = pgscale_tuning_fraction(input->sum, PGSCALE_KIND_DATA_READ);
	const PgscaleTuningNumber numbers[] = {
		{"read_ms", read_ms},
		{"data_read_fraction", share},
		{NULL}
	};
	PgscaleTuningFinding *f;

	if (set >= 16 || read_ms < DISK_READ_MS || read_ms > 3 || share < 0.05)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "%s: %.0f are set, a read takes %.2f ms, and reads take %.0f %% of the "
									  "sessions' time", tablespace, set, read_ms, 100 * share);
	f = pgscale_tuning_advise(psprintf("ALTER TABLESPACE %s SET (effective_io_concurrency = 16)", quote_identifier(tablespace)),
							  0.1 * share, numbers,
							  "a random read takes %.2f ms there, like that of a disk that serves many at a time, "
							  "but at most %.0f are requested (documentation of effective_io_concurrency)", read_ms, set);
	f->object = tablespace;
	f->current = psprintf("%.0f", set);
	return f;
}

static PgscaleTuningFinding *
find_io_concurrency(const PgscaleTuningRuleInput *input)
{
	return input->probe ? for_tablespaces(input, concurrency_of) : not_probed();
}

/*
 * fillfactor, of this database's tables.  Window: since their statistics began.
 *
 * Threshold: each row was updated five times or more on average, in a table of
 * 8 MB or more that was not made with a fillfactor; less than half of the updates
 * were HOT, though none need be otherwise: the table has room for more columns to
 * be indexed, which cannot be told from counts, hence the low confidence.  Not where
 * the table has twice the dead rows at which autovacuum is due, or more: these fill
 * the pages.  The server tells that from 19 on.
 *
 * Gain: what an index entry and a page image more cost, of which WAL's share is
 * the part that is seen: a fifth of it.  Source: the documentation's "Heap-Only
 * Tuples (HOT)".
 */
static const char *const hot_query =
"SELECT s.relid::pg_catalog.regclass, s.n_tup_upd, s.n_tup_hot_upd::float8 / s.n_tup_upd,"
"       s.n_tup_upd::float8 / greatest(s.n_live_tup, 1), o.overdue"
"  FROM pg_catalog.pg_stat_user_tables s JOIN pg_catalog.pg_class c ON c.oid = s.relid"
"  LEFT JOIN " PGSCALE_OVERDUE_VACUUM " o ON o.relid = s.relid"
" WHERE s.n_tup_upd > 5 * greatest(s.n_live_tup, 1) AND s.n_tup_hot_upd < 0.5 * s.n_tup_upd"
"   AND c.relpages > 1000 AND NOT coalesce(c.reloptions::text ~ 'fillfactor', false)"
" ORDER BY s.n_tup_upd - s.n_tup_hot_upd DESC LIMIT 5";

static PgscaleTuningFinding *
find_fillfactor(const PgscaleTuningRuleInput *input)
{
	const PgscaleEvidence *e = input->sum;
	const double gain = pgscale_tuning_wal_fraction(e) / 5;
	PgscaleRows rows;
	PgscaleTuningFinding *first = NULL;
	PgscaleTuningFinding **next = &first;

	if (gain < PGSCALE_LEAST_GAIN)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "waiting for WAL takes %.1f %% of the sessions' time",
									  100 * pgscale_tuning_wal_fraction(e));
	pgscale_sql_try(hot_query, &rows);
	if (rows.error)
		return pgscale_tuning_finding(PGSCALE_SILENT, "the statistics of tables could not be read: %s", rows.error);
	if (rows.nrows == 0)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "no table of this database is updated over and over without HOT");
	for (int row = 0; row < rows.nrows; row++)
	{
		const char *table = pgscale_rows_text(&rows, row, 0);
		const double overdue = pgscale_sql_number(&rows, row, 4);
		const PgscaleTuningNumber numbers[] = {
			{"updates", pgscale_sql_number(&rows, row, 1)},
			{"hot_fraction", pgscale_sql_number(&rows, row, 2)},
			{"updates_per_row", pgscale_sql_number(&rows, row, 3)},
			{"vacuum_overdue", overdue},
			{"wal_fraction", pgscale_tuning_wal_fraction(e)},
			{NULL}
		};

		if (overdue >= OVERDUE)
		{
			*next = pgscale_tuning_finding(PGSCALE_SILENT, "%s has %.1f times the dead rows at which autovacuum is due, and they "
										   "fill its pages: VACUUM comes first (pg_stat_autovacuum_scores)", table, overdue);
			next = &(*next)->next;
			continue;
		}
		*next = pgscale_tuning_advise(psprintf("ALTER TABLE %s SET (fillfactor = 85), and VACUUM FULL it when there is time", table),
									  gain / (row + 1), numbers,
									  "%.0f %% of its updates were HOT: pages are full, or indexed columns change (documentation, "
									  "\"Heap-Only Tuples\")", 100 * numbers[1].value);
		(*next)->object = table;
		(*next)->current = "100";
		next = &(*next)->next;
	}
	return first;
}

/*
 * Sessions that wait for each other to extend a relation, as in bulk loads: text.
 * Window: 30 s or more.  Threshold: a fifth of the sessions' time goes to waits
 * for the extension lock.  Gain: half of that.  Source: the release notes of 16,
 * "Allow more efficient addition of multiple heap and index pages" (commit
 * 31966b151, 00d1e02be): several pages at a time, of which only the lock is held
 * for the reservation.
 */
static PgscaleTuningFinding *
find_extension(const PgscaleTuningRuleInput *input)
{
	const double share = pgscale_tuning_fraction(input->sum, PGSCALE_KIND_LOCK_EXTEND);
	const PgscaleTuningNumber numbers[] = {
		{"extension_lock_fraction", share},
		{"data_extend_fraction", pgscale_tuning_fraction(input->sum, PGSCALE_KIND_DATA_EXTEND)},
		{NULL}
	};

	if (share < 0.2)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "waits for the extension lock take %.1f %% of the sessions' time",
									  100 * share);
	return pgscale_tuning_advise("load with fewer sessions at a time, or into several partitions; COPY instead of INSERT",
								 share / 2, numbers,
								 "sessions wait for %.0f %% of their time for each other to extend the same relation%s",
								 100 * share, PGSCALE_MAJOR_NUMBER < 16 ? ", page by page; 16 extends by many pages at a time" : "");
}

const PgscaleTuningRule pgscale_tuning_tables_rules[] = {
	{
		.name = "random_page_cost",
		.settings = {"random_page_cost"},
		.needs = "superuser",
		.confidence = "medium",
		.risk = "other plans, which may be worse where pages are cached less or more than usual",
		.find = find_random_page_cost,
	},
	{
		.name = "effective_io_concurrency",
		.settings = {"effective_io_concurrency"},
		.needs = "superuser",
		.confidence = "low",
		.risk = "more reads at a time make each slower",
		.find = find_io_concurrency,
	},
	{
		.name = "fillfactor",
		.min_s = 50,
		.needs = "the table's owner",
		.confidence = "low",
		.risk = "a table that is larger by a sixth",
		.find = find_fillfactor,
	},
	{
		.name = "relation_extension",
		.object = "relation extension",
		.min_s = 30,
		.needs = "a change of the application",
		.confidence = "medium",
		.risk = "none",
		.find = find_extension,
	},
	{0}
};
