/*-------------------------------------------------------------------------
 *
 * rule_query.c
 *	  SQL queries of a rule, run as its caller.
 *
 * A query of one rule that fails, or is not permitted, must not stop the other rules:
 * so its error is a result, unless it concerns all of them (base/subtransaction.h).
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/subtransaction.h"
#include "tuning/rule_query.h"

typedef struct Question
{
	const char *query;
	PgscaleRows *rows;
} Question;

static void
rule_query_execute(void *arg)
{
	const Question *question = arg;

	pgscale_sql_query(question->query, 0, NULL, NULL, false, 0, question->rows);
}

void
pgscale_tuning_query(const char *query, PgscaleRows *rows)
{
	Question	question = {query, rows};
	ErrorData  *error;

	memset(rows, 0, sizeof(*rows));
	error = pgscale_subtransaction_run(rule_query_execute, &question);
	if (!error)
		return;
	if (pgscale_subtransaction_is_grave(error))
		ReThrowError(error);
	memset(rows, 0, sizeof(*rows));
	rows->error = error->message;
}
