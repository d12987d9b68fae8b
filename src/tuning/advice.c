/*-------------------------------------------------------------------------
 *
 * advice.c
 *	  The findings of all rules, as SQL.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/pg_compat.h"
#include "base/preload.h"
#include "tuning/findings.h"
#include "tuning/tuning.h"

PG_FUNCTION_INFO_V1(pgscale_tuning_findings);
PG_FUNCTION_INFO_V1(pgscale_tuning_wal_size);

static void
put_text(Datum *value, bool *null, const char *text)
{
	*null = text == NULL;
	*value = text ? CStringGetTextDatum(text) : (Datum) 0;
}

static void
put_finding(ReturnSetInfo *rsinfo, const PgscaleTuningRule *rule, const PgscaleTuningFinding *f)
{
	Datum		values[14];
	bool		nulls[lengthof(values)] = {0};
	const char *const texts[] = {
		rule->name, pgscale_tuning_verdict_name(f->verdict), f->setting, f->object, f->current, f->recommended
	};

	for (int i = 0; i < lengthof(texts); i++)
		put_text(&values[i], &nulls[i], texts[i]);
	nulls[6] = !f->evidence;
	values[6] = JsonbPGetDatum(f->evidence);
	put_text(&values[7], &nulls[7], f->reason);
	nulls[8] = f->verdict != PGSCALE_ADVISES || rule->no_gain;
	values[8] = Float8GetDatum(f->gain);
	put_text(&values[9], &nulls[9], f->needs);
	put_text(&values[10], &nulls[10], f->confidence);
	put_text(&values[11], &nulls[11], f->risk);
	nulls[12] = nulls[13] = f->since == 0;
	values[12] = TimestampTzGetDatum(f->since);
	values[13] = TimestampTzGetDatum(f->until);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * pgscale.tuning_findings(duration, probe): the findings of each rule, in evidence of
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
				 errmsg("whether to time the disks must not be null"),
				 errhint("Without an argument it is false.")));
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
