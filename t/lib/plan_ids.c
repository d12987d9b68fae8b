/*
 * Preloaded into a server: gives each statement that is executed the plan identifier that plan_ids.number says.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "fmgr.h"
#include "utils/backend_status.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

static int	number = 0;

void		_PG_init(void);

static void
plan_ids_start(QueryDesc *desc, int flags)
{
	standard_ExecutorStart(desc, flags);

	/* More than 32 bits, and below 0. */
	if (number != 0)
		pgstat_report_plan_id(number * INT64CONST(-10000000000), false);
}

void
_PG_init(void)
{
	DefineCustomIntVariable("plan_ids.number", "Plan identifier, in units of -10000000000.", NULL,
							&number, 0, 0, 1000, PGC_USERSET, 0, NULL, NULL, NULL);
	ExecutorStart_hook = plan_ids_start;
}
