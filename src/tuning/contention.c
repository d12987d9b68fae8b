/*-------------------------------------------------------------------------
 *
 * contention.c
 *	  The evidence on each kind of wait: its fraction, and the server's own counters for
 *	  such waits.
 *
 * pgscale.contention() takes its fractions from top_waits(), and only the server's
 * counters from here.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/row_builder.h"
#include "tuning/findings.h"
#include "tuning/tuning.h"

PG_FUNCTION_INFO_V1(pgscale_tuning_since);
PG_FUNCTION_INFO_V1(pgscale_tuning_waits);

/* The kind of a wait for each type of lock. */
static const PgscaleWaitKind lock_kinds[PGSCALE_LOCK_TYPES] = {
	[PGSCALE_LOCK_EXTEND] = PGSCALE_KIND_LOCK_EXTEND,
	[PGSCALE_LOCK_TRANSACTION] = PGSCALE_KIND_LOCK_TRANSACTION,
	[PGSCALE_LOCK_TUPLE] = PGSCALE_KIND_LOCK_TUPLE,
	[PGSCALE_LOCK_RELATION] = PGSCALE_KIND_LOCK_RELATION,
	[PGSCALE_LOCK_ADVISORY] = PGSCALE_KIND_LOCK_ADVISORY,
	[PGSCALE_LOCK_OTHER] = PGSCALE_KIND_OTHER_LOCK,
};

/* What the server counts of a kind of wait; NULL if nothing. */
static Jsonb *
server_counts(const PgscaleEvidence *e, int kind)
{
	const PgscaleCounters *c = &e->counts;
	PgscaleTuningJson json = {0};

	if (e->ns == 0)
		return NULL;
	if (kind == PGSCALE_KIND_LOCK_MANAGER && c->fast_path_exceeded >= 0)
	{
		pgscale_tuning_json_number(&json, "fast_path_exceeded_per_s", pgscale_tuning_rate(e, c->fast_path_exceeded));
		return pgscale_tuning_json_end(&json);
	}
	for (int lock = 0; lock < PGSCALE_LOCK_TYPES; lock++)
		if (kind == lock_kinds[lock] && c->lock_waits[lock] >= 0)
		{
			pgscale_tuning_json_number(&json, "long_waits", c->lock_waits[lock]);
			pgscale_tuning_json_number(&json, "long_wait_ms", c->lock_waits[lock] == 0 ? NAN :
									   c->lock_wait_us[lock] / 1e3 / c->lock_waits[lock]);
			return pgscale_tuning_json_end(&json);
		}
	return NULL;
}

/* pgscale_internal.tuning_since(duration): the same errors as for evidence, and no longer than there can be any. */
Datum
pgscale_tuning_since(PG_FUNCTION_ARGS)
{
	const int64 duration_ms = pgscale_tuning_duration_ms(fcinfo, 0);

	pgscale_preload_require();
	PG_RETURN_TIMESTAMPTZ(GetCurrentTimestamp() - duration_ms * (USECS_PER_SEC / 1000));
}

/* pgscale_internal.tuning_waits(duration): one row a kind. */
Datum
pgscale_tuning_waits(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	const int64 duration_ms = pgscale_tuning_duration_ms(fcinfo, 0);
	PgscaleEvidence sum;

	pgscale_preload_require();
	InitMaterializedSRF(fcinfo, 0);
	pgscale_tuning_window(duration_ms, &sum);
	for (int kind = 0; kind < PGSCALE_WAIT_KINDS; kind++)
	{
		Jsonb	   *counts = server_counts(&sum, kind);
		PgscaleRow	row = {0};

		pgscale_row_text(&row, pgscale_wait_kind_name(kind));
		pgscale_row_float8(&row, pgscale_tuning_fraction(&sum, kind));
		pgscale_row_float8(&row, pgscale_tuning_waiting(&sum, kind));
		pgscale_row_put(&row, TimestampTzGetDatum(sum.since), sum.ns == 0);
		pgscale_row_put(&row, TimestampTzGetDatum(sum.until), sum.ns == 0);
		pgscale_row_put(&row, JsonbPGetDatum(counts), counts == NULL);
		pgscale_row_end(&row, rsinfo);
	}
	return (Datum) 0;
}
