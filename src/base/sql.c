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
#include "fmgr.h"
#include "storage/proc.h"
#include "utils/guc.h"

#include "base/sql.h"
#include "base/subtransaction.h"

PG_FUNCTION_INFO_V1(pgscale_short_locks);

double
pgscale_sql_number(const PgscaleRows *rows, int row, int column)
{
	const char *text = pgscale_rows_text(rows, row, column);

	return text ? strtod(text, NULL) : NAN;
}

static void
sql_execute(const char *query, int nargs, const Oid *types, const Datum *values, bool read_only, PgscaleRows *rows)
{
	MemoryContext context = CurrentMemoryContext;
	MemoryContext old;
	int			result;

	SPI_connect();
	result = SPI_execute_with_args(query, nargs, (Oid *) types, (Datum *) values, NULL, read_only, 0);
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

void
pgscale_sql_query(const char *query, int nargs, const Oid *types, const Datum *values, PgscaleRows *rows)
{
	const int	settings = pgscale_sql_names();

	sql_execute(query, nargs, types, values, true, rows);
	AtEOXact_GUC(true, settings);
}

typedef struct Trial
{
	const char *query;
	PgscaleRows *rows;
} Trial;

static void
sql_try(void *arg)
{
	const Trial *trial = arg;

	sql_execute(trial->query, 0, NULL, NULL, false, trial->rows);
}

void
pgscale_sql_try(const char *query, PgscaleRows *rows)
{
	Trial		trial = {query, rows};
	ErrorData  *error;

	memset(rows, 0, sizeof(*rows));
	error = pgscale_subtransaction_run(sql_try, &trial);
	if (!error)
		return;
	if (pgscale_subtransaction_is_grave(error))
		ReThrowError(error);
	memset(rows, 0, sizeof(*rows));
	rows->error = error->message;
}

int
pgscale_sql_names(void)
{
	int			settings = NewGUCNestLevel();

	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	return settings;
}

static void
wait_short(void)
{
	if (LockTimeout == 0 || LockTimeout > PGSCALE_LOCK_WAIT_MS)
		(void) set_config_option("lock_timeout", CppAsString2(PGSCALE_LOCK_WAIT_MS), PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
}

int
pgscale_sql_short_locks(void)
{
	int			settings = NewGUCNestLevel();

	wait_short();
	return settings;
}

void
pgscale_sql_locked_hint(void *arg)
{
	if (geterrcode() == ERRCODE_LOCK_NOT_AVAILABLE)
		errhint("Another session has locked a table of pgscale; pgscale.blockers shows it. Try again when it has ended.");
}

/*
 * pgscale_internal.short_locks(): pgscale_sql_short_locks(), until the function that calls it ends, which must have
 * a SET clause: what is saved at its level is restored there.
 */
Datum
pgscale_short_locks(PG_FUNCTION_ARGS)
{
	wait_short();
	PG_RETURN_VOID();
}
