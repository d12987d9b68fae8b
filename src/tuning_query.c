/*-------------------------------------------------------------------------
 *
 * tuning_query.c
 *	  Questions that a rule asks in SQL, as its caller.
 *
 * What one rule may not ask, or cannot, must not keep the others from being
 * asked: so each is a subtransaction, whose error is a result.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/xact.h"
#include "executor/spi.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "tuning_query.h"

double
pgscale_rows_number(const PgscaleRows *rows, int row, int column)
{
	const char *text = pgscale_rows_text(rows, row, column);

	return text ? strtod(text, NULL) : NAN;
}

static void
execute(const char *query, PgscaleRows *rows, MemoryContext context)
{
	MemoryContext old;
	int			result;

	SPI_connect();
	result = SPI_execute(query, false, 0);
	if (result != SPI_OK_SELECT)
		elog(ERROR, "could not execute \"%s\": %s", query, SPI_result_code_string(result));

	old = MemoryContextSwitchTo(context);
	rows->nrows = (int) SPI_processed;
	rows->ncolumns = SPI_tuptable->tupdesc->natts;
	rows->values = palloc0(Max(rows->nrows * rows->ncolumns, 1) * sizeof(char *));
	for (int row = 0; row < rows->nrows; row++)
		for (int column = 0; column < rows->ncolumns; column++)
			rows->values[row * rows->ncolumns + column] =
				SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column + 1);
	MemoryContextSwitchTo(old);
	SPI_finish();
}

void
pgscale_tuning_query(const char *query, PgscaleRows *rows)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	memset(rows, 0, sizeof(*rows));
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		execute(query, rows, context);
		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		if (error->sqlerrcode == ERRCODE_QUERY_CANCELED || error->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN)
			PG_RE_THROW();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		memset(rows, 0, sizeof(*rows));
		rows->error = error->message;
	}
	PG_END_TRY();
}
