/*-------------------------------------------------------------------------
 *
 * json.c
 *	  An object of jsonb, member by member, by its text.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "fmgr.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"

#include "tuning/json.h"

static void
json_begin(PgscaleTuningJson *json)
{
	if (json->text.data)
		return;
	initStringInfo(&json->text);
	appendStringInfoChar(&json->text, '{');
}

static void
json_add_name(PgscaleTuningJson *json, const char *name)
{
	json_begin(json);
	if (json->text.len > 1)
		appendStringInfoChar(&json->text, ',');
	escape_json(&json->text, name);
	appendStringInfoChar(&json->text, ':');
}

void
pgscale_tuning_json_text(PgscaleTuningJson *json, const char *name, const char *text)
{
	json_add_name(json, name);
	escape_json(&json->text, text);
}

void
pgscale_tuning_json_number(PgscaleTuningJson *json, const char *name, double number)
{
	json_add_name(json, name);
	if (isfinite(number))
		appendStringInfo(&json->text, "%.*g", DBL_DIG, number);
	else
		appendStringInfoString(&json->text, "null");
}

Jsonb *
pgscale_tuning_json_end(PgscaleTuningJson *json)
{
	json_begin(json);
	appendStringInfoChar(&json->text, '}');
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(json->text.data)));
}
