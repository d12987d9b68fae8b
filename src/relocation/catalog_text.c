/*-------------------------------------------------------------------------
 *
 * catalog_text.c
 *	  One text from the catalogs, in the words of SQL.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "executor/spi.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "relocation/relocation.h"

int
pgscale_relocation_names(void)
{
	int			settings = NewGUCNestLevel();

	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	return settings;
}

char *
pgscale_relocation_text(const char *query, Oid oid, int64 number)
{
	MemoryContext context = CurrentMemoryContext;
	Oid			types[2] = {OIDOID, INT8OID};
	Datum		values[2] = {ObjectIdGetDatum(oid), Int64GetDatum(number)};
	char	   *answer = NULL;
	int			settings = pgscale_relocation_names();

	SPI_connect();
	if (SPI_execute_with_args(query, 2, types, values, NULL, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not execute \"%s\"", query);
	if (SPI_processed > 0)
		answer = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	if (answer)
		answer = MemoryContextStrdup(context, answer);
	SPI_finish();
	AtEOXact_GUC(true, settings);
	return answer;
}
