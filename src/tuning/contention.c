/*-------------------------------------------------------------------------
 *
 * contention.c
 *	  The map of contention: how much of the sessions' time each kind of wait takes.
 *
 * Which events a kind has is in wait_kinds.c.  What it means and what helps is SQL,
 * the view pgscale.wait_meanings, with which pgscale.contention() joins this.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "tuning/findings.h"
#include "tuning/tuning.h"
#include "tuning/wait_kinds.h"

PG_FUNCTION_INFO_V1(pgscale_tuning_waits);

/* pgscale.tuning_waits(duration): one row a kind. */
Datum
pgscale_tuning_waits(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	const int64 duration_ms = pgscale_tuning_duration_ms(fcinfo, 0);
	PgscaleTuningEvidence sum;

	pgscale_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	pgscale_tuning_window(duration_ms, &sum);
	for (int kind = 0; kind < PGSCALE_EVIDENCE_WAITS; kind++)
	{
		Datum		values[] = {
			CStringGetTextDatum(pgscale_tuning_wait_kind_name(kind)),
			Float8GetDatum(pgscale_tuning_fraction(&sum, kind)),
			Float8GetDatum(pgscale_tuning_waiting(&sum, kind)),
			TimestampTzGetDatum(sum.since),
			TimestampTzGetDatum(sum.until)
		};
		bool		nulls[lengthof(values)] = {[3] = sum.ns == 0,[4] = sum.ns == 0};

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
