/*-------------------------------------------------------------------------
 *
 * json.c
 *	  An object of jsonb, member by member, made by the server's own functions.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "utils/builtins.h"
#include "utils/numeric.h"

#include "tuning/json.h"

static JsonbValue
json_string(const char *text)
{
	JsonbValue	value = {.type = jbvString};

	value.val.string.val = unconstify(char *, text);
	value.val.string.len = strlen(text);
	return value;
}

static void
json_begin(PgscaleTuningJson *json)
{
	if (!json->state.parseState)
		pgscale_compat_push_jsonb(&json->state, WJB_BEGIN_OBJECT, NULL);
}

static void
json_add(PgscaleTuningJson *json, const char *name, JsonbValue *value)
{
	JsonbValue	key = json_string(name);

	json_begin(json);
	pgscale_compat_push_jsonb(&json->state, WJB_KEY, &key);
	pgscale_compat_push_jsonb(&json->state, WJB_VALUE, value);
}

void
pgscale_tuning_json_text(PgscaleTuningJson *json, const char *name, const char *text)
{
	JsonbValue	value = json_string(text);

	json_add(json, name, &value);
}

void
pgscale_tuning_json_number(PgscaleTuningJson *json, const char *name, double number)
{
	JsonbValue	value = {.type = jbvNull};

	if (isfinite(number))
	{
		value.type = jbvNumeric;
		value.val.numeric = DatumGetNumeric(DirectFunctionCall1(float8_numeric, Float8GetDatum(number)));
	}
	json_add(json, name, &value);
}

Jsonb *
pgscale_tuning_json_end(PgscaleTuningJson *json)
{
	json_begin(json);
	pgscale_compat_push_jsonb(&json->state, WJB_END_OBJECT, NULL);
	return JsonbValueToJsonb(json->state.result);
}
