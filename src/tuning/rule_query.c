/*-------------------------------------------------------------------------
 *
 * rule_query.c
 *	  Questions that a rule asks in SQL, as its caller.
 *
 * What one rule may not ask, or cannot, must not keep the others from being
 * asked: so its error is a result, unless it is one that concerns all of them
 * (base/attempt.h).
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "executor/spi.h"

#include "base/attempt.h"
#include "tuning/rule_query.h"

double
pgscale_rows_number(const PgscaleRows *rows, int row, int column)
{
	const char *text = pgscale_rows_text(rows, row, column);

	return text ? strtod(text, NULL) : NAN;
}

typedef struct Question
{
	const char *query;
	PgscaleRows *rows;
	MemoryContext context;		/* to keep them in */
} Question;

static void
rule_query_execute(void *arg)
{
	const Question *question = arg;
	PgscaleRows *rows = question->rows;
	MemoryContext old;
	int			result;

	SPI_connect();
	result = SPI_execute(question->query, false, 0);
	if (result != SPI_OK_SELECT)
		elog(ERROR, "could not execute \"%s\": %s", question->query, SPI_result_code_string(result));

	old = MemoryContextSwitchTo(question->context);
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
	Question	question = {query, rows, CurrentMemoryContext};
	ErrorData  *error;

	memset(rows, 0, sizeof(*rows));
	error = pgscale_attempt(rule_query_execute, &question);
	if (!error)
		return;
	if (pgscale_is_grave(error))
		ReThrowError(error);
	memset(rows, 0, sizeof(*rows));
	rows->error = error->message;
}
