/*-------------------------------------------------------------------------
 *
 * sql.c
 *	  Queries, and their rows copied.
 *
 * The rows outlive SPI's memory, so that a caller need not know when that goes.
 * Statements on the extension's own tables are extension_table.c's.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type_d.h"
#include "executor/spi.h"
#include "utils/guc.h"

#include "base/sql.h"

double
pgscale_sql_number(const PgscaleRows *rows, int row, int column)
{
	const char *text = pgscale_rows_text(rows, row, column);

	return text ? strtod(text, NULL) : NAN;
}

void
pgscale_sql_query(const char *query, int nargs, const Oid *types, const Datum *values,
				  bool read_only, int max_rows, PgscaleRows *rows)
{
	MemoryContext context = CurrentMemoryContext;
	MemoryContext old;
	int			result;

	SPI_connect();
	result = SPI_execute_with_args(query, nargs, (Oid *) types, (Datum *) values, NULL, read_only, max_rows);
	if (result != SPI_OK_SELECT)
		elog(ERROR, "could not execute \"%s\": %s", query, SPI_result_code_string(result));

	old = MemoryContextSwitchTo(context);
	rows->nrows = (int) SPI_processed;
	rows->ncolumns = SPI_tuptable->tupdesc->natts;
	rows->values = palloc0(Max(rows->nrows * rows->ncolumns, 1) * sizeof(char *));
	rows->error = NULL;
	for (int row = 0; row < rows->nrows; row++)
		for (int column = 0; column < rows->ncolumns; column++)
			rows->values[row * rows->ncolumns + column] =
				SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column + 1);
	MemoryContextSwitchTo(old);
	SPI_finish();
}

int
pgscale_sql_names(void)
{
	int			settings = NewGUCNestLevel();

	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	return settings;
}
