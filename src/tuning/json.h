/*-------------------------------------------------------------------------
 *
 * json.h
 *	  An object of jsonb, member by member.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_TUNING_JSON_H
#define PGSCALE_TUNING_JSON_H

#include "postgres.h"

#include "lib/stringinfo.h"
#include "utils/jsonb.h"

/* An object under way; it begins as zeroes. */
typedef struct PgscaleTuningJson
{
	StringInfoData text;
} PgscaleTuningJson;

extern void pgscale_tuning_json_text(PgscaleTuningJson *json, const char *name, const char *value);

/* One that is not finite becomes null. */
extern void pgscale_tuning_json_number(PgscaleTuningJson *json, const char *name, double value);

extern Jsonb *pgscale_tuning_json_end(PgscaleTuningJson *json);

#endif							/* PGSCALE_TUNING_JSON_H */
