/*-------------------------------------------------------------------------
 *
 * reset.c
 *	  Resets of statistics, by feature.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"

#include "base/preload.h"
#include "pgscale.h"

PG_FUNCTION_INFO_V1(pgscale_reset);

/* Their names, for a hint. */
static char *
features_with_reset(void)
{
	StringInfoData names;

	initStringInfo(&names);
	for (int i = 0; pgscale_modules[i]; i++)
		if (pgscale_modules[i]->reset)
			appendStringInfo(&names, "%s%s", names.len > 0 ? ", " : "", pgscale_modules[i]->name);
	return names.data;
}

/*
 * pgscale.reset(feature): that one, or all if it is null.  One that fails, as the
 * sampler's and the LWLocks' may while the sampler's process is stopped, leaves those
 * behind it in the list as they are.
 */
Datum
pgscale_reset(PG_FUNCTION_ARGS)
{
	const PgscaleModule *module = NULL;

	pgscale_preload_require();
	if (!PG_ARGISNULL(0))
	{
		const char *name = text_to_cstring(PG_GETARG_TEXT_PP(0));

		module = pgscale_module(name);
		if (!module || !module->reset)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("no feature with statistics has the name \"%s\"", name),
					 errhint("The features with statistics are: %s.", features_with_reset())));
	}
	for (int i = 0; pgscale_modules[i]; i++)
		if (pgscale_modules[i]->reset && (!module || module == pgscale_modules[i]))
			pgscale_modules[i]->reset();
	PG_RETURN_VOID();
}
