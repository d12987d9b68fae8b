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

#include "utils/jsonb.h"

#include "base/pg_compat.h"

/* An object under way; it begins as zeroes. */
typedef struct PgscaleTuningJson
{
	JsonbInState state;			/* its parseState is NULL: no member yet */
} PgscaleTuningJson;

/* Names and texts must stay as long as the object is under way. */
extern void pgscale_tuning_json_text(PgscaleTuningJson *json, const char *name, const char *value);

/* One that is not finite becomes null. */
extern void pgscale_tuning_json_number(PgscaleTuningJson *json, const char *name, double value);

extern Jsonb *pgscale_tuning_json_end(PgscaleTuningJson *json);

#endif							/* PGSCALE_TUNING_JSON_H */
