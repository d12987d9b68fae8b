/*-------------------------------------------------------------------------
 *
 * row_builder.h
 *	  Rows of functions that return a set or a row: their columns one after the other.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_ROW_BUILDER_H
#define PGSCALE_BASE_ROW_BUILDER_H

#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "catalog/pg_type_d.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#define PGSCALE_ROW_COLUMNS 40

/* A row that is being made; zeroes at first. */
typedef struct PgscaleRow
{
	int			n;				/* columns that it has */
	Datum		values[PGSCALE_ROW_COLUMNS];
	bool		nulls[PGSCALE_ROW_COLUMNS];
	bool		texts[PGSCALE_ROW_COLUMNS]; /* made by pgscale_row_text() */
} PgscaleRow;

/* Adds a column. */
static inline void
pgscale_row_put(PgscaleRow *row, Datum value, bool isnull)
{
	Assert(row->n < PGSCALE_ROW_COLUMNS);
	row->values[row->n] = value;
	row->texts[row->n] = false;
	row->nulls[row->n++] = isnull;
}

/* A column of one of these types. */
static inline void
pgscale_row_text(PgscaleRow *row, const char *text) /* NULL is null */
{
	pgscale_row_put(row, text ? CStringGetTextDatum(text) : (Datum) 0, text == NULL);
	row->texts[row->n - 1] = !row->nulls[row->n - 1];
}

static inline void
pgscale_row_bool(PgscaleRow *row, bool value)
{
	pgscale_row_put(row, BoolGetDatum(value), false);
}

static inline void
pgscale_row_int4(PgscaleRow *row, int32 value)
{
	pgscale_row_put(row, Int32GetDatum(value), false);
}

static inline void
pgscale_row_int8(PgscaleRow *row, int64 value)
{
	pgscale_row_put(row, Int64GetDatum(value), false);
}

static inline void
pgscale_row_oid(PgscaleRow *row, Oid oid)	/* InvalidOid is null */
{
	pgscale_row_put(row, ObjectIdGetDatum(oid), !OidIsValid(oid));
}

static inline void
pgscale_row_id(PgscaleRow *row, int64 id)	/* 0 is null */
{
	pgscale_row_put(row, Int64GetDatum(id), id == 0);
}

static inline void
pgscale_row_pid(PgscaleRow *row, int pid)	/* 0 is null */
{
	pgscale_row_put(row, Int32GetDatum(pid), pid == 0);
}

static inline void
pgscale_row_float8(PgscaleRow *row, double value)	/* NaN is null */
{
	pgscale_row_put(row, Float8GetDatum(value), isnan(value));
}

static inline void
pgscale_row_timestamp(PgscaleRow *row, TimestampTz at)	/* 0 is null */
{
	pgscale_row_put(row, TimestampTzGetDatum(at), at == 0);
}

/* An array of counts. */
static inline void
pgscale_row_int8s(PgscaleRow *row, const uint64 *values, int n)
{
	Datum	   *elements = palloc(n * sizeof(Datum));

	for (int i = 0; i < n; i++)
		elements[i] = Int64GetDatum((int64) values[i]);
	pgscale_row_put(row, PointerGetDatum(construct_array(elements, n, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE)), false);
	pfree(elements);
}

/* The end of a row of a set.  The next one may begin; a million rows take no memory here. */
static inline void
pgscale_row_end(PgscaleRow *row, ReturnSetInfo *rsinfo)
{
	Assert(row->n == rsinfo->setDesc->natts);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, row->values, row->nulls);
	for (int i = 0; i < row->n; i++)
		if (row->texts[i])
			pfree(DatumGetPointer(row->values[i]));
	row->n = 0;
}

/* The row, as the result of a function that returns one. */
static inline Datum
pgscale_row_result(PgscaleRow *row, FunctionCallInfo fcinfo)
{
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	Assert(row->n == desc->natts);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), row->values, row->nulls));
}

#endif							/* PGSCALE_BASE_ROW_BUILDER_H */
