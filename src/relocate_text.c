/*-------------------------------------------------------------------------
 *
 * relocate_text.c
 *	  One text from the catalogs, in the words of SQL.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "executor/spi.h"
#include "utils/memutils.h"

#include "relocate_text.h"

char *
pgscale_relocation_text(const char *query, Oid oid, int64 number)
{
	MemoryContext context = CurrentMemoryContext;
	Oid			types[2] = {OIDOID, INT8OID};
	Datum		values[2] = {ObjectIdGetDatum(oid), Int64GetDatum(number)};
	char	   *answer = NULL;

	SPI_connect();
	if (SPI_execute_with_args(query, 2, types, values, NULL, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not execute \"%s\"", query);
	if (SPI_processed > 0)
		answer = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	if (answer)
		answer = MemoryContextStrdup(context, answer);
	SPI_finish();
	return answer;
}
