/*-------------------------------------------------------------------------
 *
 * progress.c
 *	  What online moves are at, for the view pgscale.relocation_jobs.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "base/pg_compat.h"
#include "base/timer.h"
#include "base/units.h"
#include "relocation/relocation_state.h"

PG_FUNCTION_INFO_V1(pgscale_relocation_progress);

static const char *const phase_words[] = {
	[PGSCALE_PHASE_NONE] = "",
	[PGSCALE_PHASE_COPYING] = "copying",
	[PGSCALE_PHASE_FOLLOWING] = "following",
	[PGSCALE_PHASE_WAITING] = "waiting for a gap",
	[PGSCALE_PHASE_SWITCHING] = "switching",
	[PGSCALE_PHASE_DROPPING] = "dropping",
};

/* As the copy went so far, with its pauses. */
static double
seconds_left(const PgscaleRelocationProgress *progress)
{
	const double done = progress->counts.copied_bytes;
	const double left = Max(progress->total_bytes - done, 0);

	return left / done * (pgscale_timer_clock() - progress->began_ns) / NS_PER_S;
}

/* pgscale_internal.relocation_progress(): a row for each online move of this database. */
Datum
pgscale_relocation_progress(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int slot = 0; slot < PGSCALE_RELOCATION_SLOTS; slot++)
	{
		PgscaleRelocationProgress progress;
		Oid			database;
		int64		job;
		Datum		values[9] = {0};
		bool		nulls[9] = {false};

		if (!pgscale_relocation_progress_of(slot, &database, &job, &progress) || database != MyDatabaseId)
			continue;
		values[0] = Int64GetDatum(job);
		values[1] = CStringGetTextDatum(phase_words[progress.phase]);
		values[2] = Float8GetDatum(progress.total_bytes > 0 ?
								   Min((double) progress.counts.copied_bytes / progress.total_bytes, 1) : 1);
		values[3] = Int64GetDatum(progress.counts.copied_bytes);
		values[4] = Int64GetDatum(progress.counts.recopied_blocks);
		values[5] = Int64GetDatum(progress.counts.wal_read_bytes);
		values[6] = Int64GetDatum(progress.counts.lock_tries);
		nulls[7] = progress.phase != PGSCALE_PHASE_COPYING || progress.counts.copied_bytes == 0;
		if (!nulls[7])
			values[7] = Float8GetDatum(seconds_left(&progress));
		nulls[8] = progress.held_back_by[0] == '\0';
		if (!nulls[8])
			values[8] = CStringGetTextDatum(progress.held_back_by);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
