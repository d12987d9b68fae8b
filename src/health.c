/*-------------------------------------------------------------------------
 *
 * health.c
 *	  One row a feature: does it work here, and if not, what to do.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "funcapi.h"
#include "utils/builtins.h"

#include "compat.h"
#include "pgscale.h"

PG_FUNCTION_INFO_V1(pgscale_health);

/* pgscale.health(): works without preload, where that is the finding. */
Datum
pgscale_health(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; pgscale_modules[i]; i++)
	{
		PgscaleHealth health = {0};
		Datum		values[5] = {0};
		bool		nulls[5] = {0};

		if (!pgscale_modules[i]->health)
			continue;
		pgscale_modules[i]->health(&health);

		values[0] = CStringGetTextDatum(pgscale_modules[i]->name);
		values[1] = BoolGetDatum(health.enabled);
		values[2] = BoolGetDatum(health.working);
		values[3] = CStringGetTextDatum(health.reason);
		if (health.action)
			values[4] = CStringGetTextDatum(health.action);
		else
			nulls[4] = true;
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
