/*-------------------------------------------------------------------------
 *
 * tuning.c
 *	  From evidence to action: the cost of the server's settings, and the gain of
 *	  other values.
 *
 * The sampler's process records what the server does (base/evidence.c).  Everything else
 * happens on request: rules evaluate the evidence of a window
 * (tuning/rules/rule_table.c), and so do the map of contention (contention.c) and the
 * efficiency of WAL (wal_efficiency.c).  Here are the findings of all rules, as SQL.
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
#include "utils/timestamp.h"

#include "base/evidence.h"
#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/row_builder.h"
#include "base/units.h"
#include "tuning/findings.h"
#include "tuning/tuning.h"

PG_FUNCTION_INFO_V1(pgscale_tuning_findings);
PG_FUNCTION_INFO_V1(pgscale_tuning_wal_size);

/* If there was no observation for that long, the sampler is not at work. */
#define STALLED_MS		5000

int64
pgscale_tuning_duration_ms(FunctionCallInfo fcinfo, int argument)
{
	const char *hint = "Evidence is kept for an hour; without an argument it is that of the last 10 minutes.";
	double		ms;

	if (PG_ARGISNULL(argument))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("the duration must not be null"),
				 errhint("%s", hint)));
	ms = pgscale_interval_ms(PG_GETARG_INTERVAL_P(argument));
	if (!(ms > 0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the duration must be positive"),
				 errhint("%s", hint)));
	/* More there never is, and then nothing overflows. */
	return (int64) Min(ms, 1000.0 * SECS_PER_DAY);
}

static void
put_finding(ReturnSetInfo *rsinfo, const PgscaleTuningRule *rule, const PgscaleTuningFinding *f)
{
	PgscaleRow	row = {0};

	pgscale_row_text(&row, rule->name);
	pgscale_row_text(&row, pgscale_tuning_verdict_name(f->verdict));
	pgscale_row_text(&row, f->setting);
	pgscale_row_text(&row, f->object);
	pgscale_row_text(&row, f->current);
	pgscale_row_text(&row, f->recommended);
	pgscale_row_put(&row, JsonbPGetDatum(f->evidence), !f->evidence);
	pgscale_row_text(&row, f->reason);
	pgscale_row_put(&row, Float8GetDatum(f->gain), f->verdict != PGSCALE_ADVISES || rule->no_gain);
	pgscale_row_text(&row, f->needs);
	pgscale_row_text(&row, f->confidence);
	pgscale_row_text(&row, f->risk);
	pgscale_row_put(&row, TimestampTzGetDatum(f->since), f->since == 0);
	pgscale_row_put(&row, TimestampTzGetDatum(f->until), f->since == 0);
	pgscale_row_end(&row, rsinfo);
}

/*
 * pgscale.advice_rules(duration, probe): the findings of each rule, in evidence of
 * that length; with probe, rules may time the disks.
 */
Datum
pgscale_tuning_findings(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	const int64 duration_ms = pgscale_tuning_duration_ms(fcinfo, 0);
	const PgscaleTuningRule *rule;
	MemoryContext context;
	MemoryContext old;

	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("probe must not be null"),
				 errhint("Its default is false.")));
	pgscale_preload_require();
	InitMaterializedSRF(fcinfo, 0);

	context = AllocSetContextCreate(CurrentMemoryContext, "pgscale findings", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	for (int i = 0; (rule = pgscale_tuning_rule(i)) != NULL; i++)
	{
		CHECK_FOR_INTERRUPTS();
		for (PgscaleTuningFinding *f = pgscale_tuning_find(rule, duration_ms, PG_GETARG_BOOL(1)); f; f = f->next)
			put_finding(rsinfo, rule, f);
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return (Datum) 0;
}

/*
 * pgscale_internal.tuning_max_wal_size(duration): the value that advice has for max_wal_size when it
 * advises one, also before there is enough evidence to advise; NULL if no larger one is of use, or the disk
 * of pg_wal has no room.
 */
Datum
pgscale_tuning_wal_size(PG_FUNCTION_ARGS)
{
	const int64 duration_ms = pgscale_tuning_duration_ms(fcinfo, 0);
	TimestampTz since;
	const char *changed;
	double		bytes;

	pgscale_preload_require();
	bytes = pgscale_tuning_max_wal_size(pgscale_tuning_input(pgscale_tuning_rule_named("max_wal_size"), duration_ms, &since, &changed));
	if (bytes == 0)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(pgscale_tuning_bytes_text(bytes)));
}

static void
tuning_observe(const PgscaleObservation *observation)
{
	pgscale_tuning_settings_watch(observation->at);
	pgscale_evidence_observe(observation);
}

static void
tuning_health(PgscaleHealth *health)
{
	if (!pgscale_health_preloaded(health, "pgscale.sampler", true))
		return;
	if (pgscale_health_observed(health, pgscale_evidence_last_ns(), STALLED_MS))
	{
		health->state = PGSCALE_HEALTH_WORKING;
		health->reason = "records evidence";
		if (pgscale_evidence_ms() != PGSCALE_EVIDENCE_MS)
		{
			health->reason = "records evidence, but of another length: pgscale.debug_period is for tests";
			health->action = "reset pgscale.debug_period and reload";
		}
	}
}

/* Rules, and contention(). */
static const char *const asks[] = {
	"pgscale_internal.blocker_profile", "pgscale.numa_buffers", "pgscale_internal.numa_nodes",
	"pgscale_internal.past_coverage", "pgscale_internal.past_items", "pgscale.tablespace_latency", NULL
};

const PgscaleModule pgscale_tuning_module = {
	.name = "tuning",
	.areas = (const PgscaleArea *const[]) {&pgscale_evidence_area, &pgscale_tuning_settings_area, NULL},
	.observe = tuning_observe,
	.health = tuning_health,
	.has_tables = true,
	.asks = asks,
};
