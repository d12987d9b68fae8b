/*-------------------------------------------------------------------------
 *
 * report.c
 *	  The feature's row of health, and which settings it keeps to itself.
 *
 * What a report says is SQL, in the extension's script: report_part() asks the other
 * features and the server.  How it looks is C, in the other files of this folder: text.c
 * makes any text harmless, table.c lays out tables and paragraphs, chart.c draws.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/guc.h"

#include "report/report.h"

PG_FUNCTION_INFO_V1(pgscale_report_secret);

/* Parts of names of settings that hold commands, connections or worse; in lower case. */
static const char *const secret_names[] = {
	"command", "conninfo", "password", "passwd", "passphrase", "secret", "token", "credential", "private", "apikey", "api_key",
	"key_file", "keyfile", NULL
};

/* Parts of values that hold such. */
static const char *const secret_values[] = {
	"password", "passwd", "passphrase", "secret", "token=", "apikey", "api_key", "://", NULL
};

static bool
has_any_part(const char *value, const char *const *parts)
{
	char	   *lower = pstrdup(value);

	for (char *at = lower; *at; at++)
		*at = pg_ascii_tolower((unsigned char) *at);
	for (; *parts; parts++)
		if (strstr(lower, *parts))
			return true;
	return false;
}

/*
 * pgscale.report_secret(setting, value): is it what the server shows to superusers alone, or may
 * it hold a password?  Rather too often than once too little.
 */
Datum
pgscale_report_secret(PG_FUNCTION_ARGS)
{
	char	   *setting = text_to_cstring(PG_GETARG_TEXT_PP(0));
	char	   *value = text_to_cstring(PG_GETARG_TEXT_PP(1));

	if (GetConfigOptionFlags(setting, true) & GUC_SUPERUSER_ONLY)
		PG_RETURN_BOOL(true);
	if (strcmp(setting, "password_encryption") == 0)
		PG_RETURN_BOOL(false);
	PG_RETURN_BOOL(has_any_part(setting, secret_names) || has_any_part(value, secret_values));
}

static void
report_health(PgscaleHealth *health)
{
	if (pgscale_health_preloaded(health, NULL, true))
		health->reason = "reports are made when asked for";
	else
		health->reason = "pgscale is not loaded into the server: a report has no waits; all else works";
	health->state = PGSCALE_HEALTH_IDLE;
}

static const char *const asks[] = {
	"pgscale.apply", "pgscale.buffer_usage_sample", "pgscale.clock_sweep", "pgscale.health", "pgscale.node_identity",
	"pgscale.scalability", "pgscale.sweeper_stats", "pgscale.tuning_journal", "pgscale.wal_efficiency",
	"pgscale.writeback_stats", NULL
};

const PgscaleModule pgscale_report_module = {
	.name = "report",
	.health = report_health,
	.asks = asks,
};
