/*-------------------------------------------------------------------------
 *
 * past_archive.c
 *	  The archive's rows as time waited, and the known times.
 *
 * All rows are read once, with the snapshot of the caller's query, a few at a time: so
 * little memory is needed, and no file is written.  A row that is partly in the period
 * counts by that part.  Of a row that was observed in part, the observed time is
 * known.  A row that observed nothing is ignored.
 *
 * A standby's copy of another server's archive is not read: see
 * pgscale_internal.past_archive(), which also checks privileges.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type_d.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/node_name.h"
#include "base/pg_compat.h"
#include "base/sql.h"
#include "base/wait_events.h"
#include "sampler/past/past.h"

/* That many rows are in memory at once. */
#define ROWS_AT_ONCE	64

/* No row is longer. */
#define ROW_MAX_US	USECS_PER_DAY

enum
{
	COLUMN_AT = 1,
	COLUMN_PERIOD_S,
	COLUMN_OBSERVED_MS,
	COLUMN_NODE,
	COLUMN_BACKEND_TYPES,
	COLUMN_DATIDS,
	COLUMN_DATNAMES,
	COLUMN_USENAMES,
	COLUMN_APPLICATION_NAMES,
	COLUMN_QUERYIDS,
	COLUMN_EVENT_TYPES,
	COLUMN_EVENTS,
	COLUMN_BLOCKERS,
	COLUMN_WAIT_MS,
	COLUMNS = COLUMN_WAIT_MS
};

/* Which part of a period an array is for. */
static const uint32 column_parts[] = {
	[COLUMN_BACKEND_TYPES] = PGSCALE_PAST_WAITS | PGSCALE_PAST_CLASSES,
	[COLUMN_DATIDS] = PGSCALE_PAST_DATABASES,
	[COLUMN_DATNAMES] = PGSCALE_PAST_DATABASES,
	[COLUMN_USENAMES] = PGSCALE_PAST_USERS,
	[COLUMN_APPLICATION_NAMES] = PGSCALE_PAST_APPLICATIONS,
	[COLUMN_QUERYIDS] = PGSCALE_PAST_WAITS,
	[COLUMN_EVENT_TYPES] = PGSCALE_PAST_WAITS | PGSCALE_PAST_CLASSES,
	[COLUMN_EVENTS] = PGSCALE_PAST_WAITS | PGSCALE_PAST_CLASSES,
	[COLUMN_BLOCKERS] = PGSCALE_PAST_BLOCKERS,
	[COLUMN_WAIT_MS] = PGSCALE_PAST_WAITS | PGSCALE_PAST_CLASSES,
};

/* An array of a row; of one that is not wanted, none of its values. */
typedef struct Column
{
	Datum	   *values;
	bool	   *nulls;
	int			n;
} Column;

/* The table's qualified name, or NULL; executes what it says as the caller. */
static const char *
find_archive(bool of_node)
{
	if (SPI_execute(psprintf("SELECT a.minutes::pg_catalog.text FROM pgscale_internal.past_archive(%s) a", of_node ? "true" : "false"),
					true, 1) != SPI_OK_SELECT || SPI_processed != 1)
		return NULL;
	return SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
}

/* The data directories that had that name: an array, or an error if there is none and it is not this server's. */
static Datum
node_ids(const char *node, const char *table)
{
	Oid			type = TEXTOID;
	Datum		value = CStringGetTextDatum(node);
	bool		isnull = true;

	if (table && SPI_execute_with_args("SELECT pgscale_internal.archive_node_ids($1)", 1, &type, &value, NULL, true, 1) == SPI_OK_SELECT &&
		SPI_processed == 1)
		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	if (!isnull)
		return value;
	if (!pgscale_sampler_past_remembers(node))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the archive has no node \"%s\"", node),
				 errhint("pgscale.archive_nodes, in the database of the archive, lists the nodes.")));
	return PointerGetDatum(construct_empty_array(INT8OID));
}

static Datum
row_value(HeapTuple row, int column, bool *isnull)
{
	return SPI_getbinval(row, SPI_tuptable->tupdesc, column, isnull);
}

static void
read_column(HeapTuple row, int number, Column *column)
{
	bool		isnull;
	Datum		value = row_value(row, number, &isnull);
	ArrayType  *array;
	int16		len;
	bool		byval;
	char		align;

	column->n = 0;
	if (isnull)
		return;
	array = DatumGetArrayTypeP(value);
	get_typlenbyvalalign(ARR_ELEMTYPE(array), &len, &byval, &align);
	deconstruct_array(array, ARR_ELEMTYPE(array), len, byval, align, &column->values, &column->nulls, &column->n);
}

/* Waits are sorted, so that most texts are those of the wait before. */
static PgscaleSamplerPastText
column_text(PgscaleSamplerPastTexts *texts, const Column *column, int i, PgscaleSamplerPastText before)
{
	const char *bytes;
	const char *last;
	int			len;

	if (i >= column->n || column->nulls[i])
		return 0;
	bytes = VARDATA_ANY(DatumGetPointer(column->values[i]));
	len = VARSIZE_ANY_EXHDR(DatumGetPointer(column->values[i]));
	last = pgscale_sampler_past_text(texts, before);
	if (last && strncmp(last, bytes, len) == 0 && last[len] == '\0')
		return before;
	return pgscale_sampler_past_number_of(texts, bytes, len);
}

static void
add_row_waits(HeapTuple row, const PgscaleSamplerPastRange *range, double part, PgscaleSamplerPast *past)
{
	PgscaleSamplerPastTexts *texts = past->texts;
	Column		columns[COLUMNS + 1];
	const Column *wait_ms = &columns[COLUMN_WAIT_MS];
	const Column *queryids = &columns[COLUMN_QUERYIDS];
	const Column *datids = &columns[COLUMN_DATIDS];
	PgscaleSamplerPastKey key = {0};
	const PgscaleSamplerPastText idle = pgscale_sampler_past_number(texts, PGSCALE_WAIT_IDLE_NAME);
	PgscaleSamplerPastText type = 0;
	bool		session = false;

	for (int i = COLUMN_BACKEND_TYPES; i <= COLUMNS; i++)
	{
		columns[i].n = 0;
		if (past->parts & column_parts[i])
			read_column(row, i, &columns[i]);
	}
	for (int i = 0; i < wait_ms->n; i++)
	{
		const double ms = wait_ms->nulls[i] ? 0 : DatumGetFloat4(wait_ms->values[i]) * part;

		if (!(ms > 0 && !isinf(ms)))
			continue;
		key.queryid = i < queryids->n && !queryids->nulls[i] ? DatumGetInt64(queryids->values[i]) : 0;
		key.datid = i < datids->n && !datids->nulls[i] ? DatumGetObjectId(datids->values[i]) : InvalidOid;
		key.backend_type = column_text(texts, &columns[COLUMN_BACKEND_TYPES], i, key.backend_type);
		key.datname = column_text(texts, &columns[COLUMN_DATNAMES], i, key.datname);
		key.usename = column_text(texts, &columns[COLUMN_USENAMES], i, key.usename);
		key.application_name = column_text(texts, &columns[COLUMN_APPLICATION_NAMES], i, key.application_name);
		key.event_type = column_text(texts, &columns[COLUMN_EVENT_TYPES], i, key.event_type);
		key.event = column_text(texts, &columns[COLUMN_EVENTS], i, key.event);
		key.blocker = column_text(texts, &columns[COLUMN_BLOCKERS], i, key.blocker);
		pgscale_sampler_past_add_wait(past, range, &key, ms);
		if (!(past->parts & PGSCALE_PAST_CLASSES))
			continue;
		if (i == 0 || key.backend_type != type)
		{
			type = key.backend_type;
			session = pgscale_sampler_past_is_session(pgscale_sampler_past_text(texts, type));
		}
		if (session)
			pgscale_sampler_past_add_class(past, range, key.event == idle ? idle : key.event_type, ms);
	}
}

static void
add_row(HeapTuple row, const PgscaleSamplerPastRange *period, const char *own_node, PgscaleSamplerPast *past)
{
	bool		isnull;
	bool		unknown;
	TimestampTz at = DatumGetTimestampTz(row_value(row, COLUMN_AT, &isnull));
	double		period_s = DatumGetFloat8(row_value(row, COLUMN_PERIOD_S, &isnull));
	double		observed_ms = DatumGetFloat8(row_value(row, COLUMN_OBSERVED_MS, &unknown));
	Datum		node = row_value(row, COLUMN_NODE, &isnull);
	const char *name = isnull ? NULL : TextDatumGetCString(node);
	const bool	other_node = name && strcmp(name, own_node) != 0;
	PgscaleSamplerPastRange range;
	double		part;

	if (!(period_s > 0 && period_s * USECS_PER_SEC <= ROW_MAX_US))
		return;
	range.begin = at;
	range.end = at + (int64) rint(period_s * USECS_PER_SEC);
	if (unknown || observed_ms > period_s * 1000)
		observed_ms = period_s * 1000;
	part = (Min(range.end, period->end) - Max(range.begin, period->begin)) / (double) (range.end - range.begin);
	if (!(part > 0 && observed_ms > 0))
		return;
	range.begin = Max(range.begin, period->begin);
	range.end = Min(range.end, period->end);
	pgscale_sampler_past_add_span(past, &range, observed_ms * part, other_node ? psprintf("archive of %s", name) : "archive", other_node);
	add_row_waits(row, &range, part, past);
}

void
pgscale_sampler_past_read_archive(const PgscaleSamplerPastRange *period, const char *node, PgscaleSamplerPast *past)
{
	Oid			types[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, INT8ARRAYOID};
	Datum		values[3];
	MemoryContext rows;
	MemoryContext old;
	ErrorContextCallback locked = {.previous = error_context_stack,.callback = pgscale_sql_locked_hint};
	const char *own_node;
	const char *table;
	Portal		portal;
	int			settings;

	SPI_connect();
	table = find_archive(node != NULL);
	own_node = pgscale_node_name();
	if (node)
		values[2] = node_ids(node, table);
	if (!table)
	{
		SPI_finish();
		return;
	}
	values[0] = TimestampTzGetDatum(period->begin - ROW_MAX_US);
	values[1] = TimestampTzGetDatum(period->end);
	settings = pgscale_sql_short_locks();
	error_context_stack = &locked;
	portal = SPI_cursor_open_with_args(NULL,
									   psprintf("SELECT at, period_s, observed_ms::pg_catalog.float8, node, backend_types, datids, datnames, usenames,"
												" application_names, queryids, event_types, events, blockers, wait_ms"
												" FROM %s WHERE at OPERATOR(pg_catalog.>) $1 AND at OPERATOR(pg_catalog.<) $2 AND %s",
												table, node ? "node_id OPERATOR(pg_catalog.=) ANY ($3)" : "NOT pulled"),
									   node ? 3 : 2, types, values, NULL, true, 0);
	error_context_stack = locked.previous;
	AtEOXact_GUC(true, settings);
	rows = AllocSetContextCreate(CurrentMemoryContext, "pgscale archive rows", ALLOCSET_DEFAULT_SIZES);
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		SPI_cursor_fetch(portal, true, ROWS_AT_ONCE);
		if (SPI_processed == 0)
			break;
		for (uint64 i = 0; i < SPI_processed; i++)
		{
			old = MemoryContextSwitchTo(rows);
			add_row(SPI_tuptable->vals[i], period, own_node, past);
			MemoryContextSwitchTo(old);
			MemoryContextReset(rows);
		}
		SPI_freetuptable(SPI_tuptable);
	}
	SPI_cursor_close(portal);
	SPI_finish();
}

TimestampTz
pgscale_sampler_past_archive_begin(bool of_node)
{
	TimestampTz begin = DT_NOEND;
	bool		isnull;
	Datum		value;
	const char *table;
	ErrorContextCallback locked = {.previous = error_context_stack,.callback = pgscale_sql_locked_hint};
	const int	settings = pgscale_sql_short_locks();

	SPI_connect();
	table = find_archive(of_node);
	error_context_stack = &locked;
	if (table &&
		SPI_execute(psprintf("SELECT pg_catalog.min(at) FROM %s", table), true, 1) == SPI_OK_SELECT &&
		SPI_processed == 1)
	{
		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
		if (!isnull)
			begin = DatumGetTimestampTz(value);
	}
	error_context_stack = locked.previous;
	SPI_finish();
	AtEOXact_GUC(true, settings);
	return begin;
}
