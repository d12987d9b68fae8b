/*-------------------------------------------------------------------------
 *
 * row_builder.h
 *	  Rows of functions that return sets: their columns one after the other.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_ROW_BUILDER_H
#define PGSCALE_BASE_ROW_BUILDER_H

#include "postgres.h"

#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#define PGSCALE_ROW_COLUMNS 40

/* A row that is being made; zeroes at first. */
typedef struct PgscaleRow
{
	int			n;				/* columns that it has */
	Datum		values[PGSCALE_ROW_COLUMNS];
	bool		nulls[PGSCALE_ROW_COLUMNS];
} PgscaleRow;

/* Adds a column. */
static inline void
pgscale_row_put(PgscaleRow *row, Datum value, bool isnull)
{
	Assert(row->n < PGSCALE_ROW_COLUMNS);
	row->values[row->n] = value;
	row->nulls[row->n++] = isnull;
}

/* A column of one of these types. */
static inline void
pgscale_row_text(PgscaleRow *row, const char *text) /* NULL is null */
{
	pgscale_row_put(row, text ? CStringGetTextDatum(text) : (Datum) 0, text == NULL);
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
pgscale_row_float8(PgscaleRow *row, double value)
{
	pgscale_row_put(row, Float8GetDatum(value), false);
}

/* The end of the row, which then has no columns again. */
static inline void
pgscale_row_end(PgscaleRow *row, ReturnSetInfo *rsinfo)
{
	Assert(row->n == rsinfo->setDesc->natts);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, row->values, row->nulls);
	row->n = 0;
}

#endif							/* PGSCALE_BASE_ROW_BUILDER_H */
