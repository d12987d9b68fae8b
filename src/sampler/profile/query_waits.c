/*-------------------------------------------------------------------------
 *
 * query_waits.c
 *	  Checks whether waits can be attributed to queries.
 *
 * The view pgscale.query_waits is SQL; its requirements on the server are checked here,
 * for the view and for pgscale.health.  It has no setting of its own:
 * pg_stat_statements and query identifiers enable it, and a server without them lacks
 * nothing.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "access/attnum.h"
#include "access/xact.h"
#include "commands/extension.h"
#include "executor/nodeHash.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "base/extension_function.h"
#include "base/server_settings.h"
#include "sampler/sampler.h"

/* The texts of pg_stat_statements, in all majors. */
#define TEXT_FILE	PG_STAT_TMP_DIR "/pgss_query_texts.stat"

/* A round of the archive may read this many bytes of them, on average. */
#define BYTES_PER_MINUTE	(INT64CONST(16) * 1024 * 1024)

PG_FUNCTION_INFO_V1(pgscale_query_waits_statements);
PG_FUNCTION_INFO_V1(pgscale_query_waits_text_fits);

/* What keeps query texts from being joined to waits, and what the DBA can do about it. */
typedef struct Obstacle
{
	const char *reason;
	const char *action;
} Obstacle;

/*
 * The view pg_stat_statements if it can be read, or InvalidOid and the obstacle.
 * Before 1.8 it has other columns, which is an obstacle unless any version will do.
 */
static Oid
statements_view(bool any_version, Obstacle *obstacle)
{
	Oid			view;

	/*
	 * A session can give a setting of a library that is not loaded a value: a
	 * placeholder.
	 */
	if (!GetConfigOption("pg_stat_statements.max", true, false) ||
		(GetConfigOptionFlags("pg_stat_statements.max", true) & GUC_CUSTOM_PLACEHOLDER))
	{
		obstacle->reason = "pg_stat_statements is not loaded, so only long statements have texts";
		obstacle->action = "add pg_stat_statements to shared_preload_libraries and restart";
		return InvalidOid;
	}
	view = pgscale_extension_view("pg_stat_statements", "pg_stat_statements");
	if (!OidIsValid(view))
	{
		obstacle->reason = "pg_stat_statements is not installed in this database";
		obstacle->action = "run CREATE EXTENSION pg_stat_statements";
		return InvalidOid;
	}
	if (!any_version && get_attnum(view, "total_exec_time") == InvalidAttrNumber)
	{
		obstacle->reason = "pg_stat_statements is of an old version in this database";
		obstacle->action = "run ALTER EXTENSION pg_stat_statements UPDATE";
		return InvalidOid;
	}
	return view;
}

/*
 * pgscale_internal.query_waits_statements(needed): the view pg_stat_statements; if it cannot be
 * read, an error, or NULL where it is not needed.  There any version will do.
 */
Datum
pgscale_query_waits_statements(PG_FUNCTION_ARGS)
{
	const bool	needed = PG_GETARG_BOOL(0);
	Obstacle	obstacle;
	const Oid	view = statements_view(!needed, &obstacle);

	if (OidIsValid(view))
		PG_RETURN_OID(view);
	if (needed)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("%s", obstacle.reason),
				 errhint("For texts, %s. Without them, pgscale.wait_profile has the waits by queryid.", obstacle.action)));
	PG_RETURN_NULL();
}

/*
 * pgscale_internal.query_waits_text_fits(missed): may this process read all texts now?  Not if they are larger than a hash
 * table may become.  If a client misses some for that reason, one notice for its statement says so.
 */
Datum
pgscale_query_waits_text_fits(PG_FUNCTION_ARGS)
{
	static TimestampTz noticed = 0;
	struct stat file;

	/*
	 * pg_stat_statements reads it into private memory as a whole, for one
	 * text, too
	 */
	const int64 bytes = stat(TEXT_FILE, &file) == 0 ? file.st_size : 0;

	/*
	 * The archive has a round each minute: the larger the file, the more
	 * rarely is its turn.
	 */
	if (bytes <= (int64) get_hash_memory_limit())
		PG_RETURN_BOOL(MyBackendType != B_BG_WORKER ||
					   GetCurrentTransactionStartTimestamp() / USECS_PER_MINUTE % (1 + bytes / BYTES_PER_MINUTE) == 0);
	if (PG_GETARG_BOOL(0) && MyBackendType == B_BACKEND && noticed != GetCurrentStatementStartTimestamp())
	{
		noticed = GetCurrentStatementStartTimestamp();
		ereport(NOTICE,
				(errmsg("texts of queries are missing, because pg_stat_statements would read " INT64_FORMAT " kB into memory",
						bytes / 1024),
				 errdetail("It reads the texts of all statements at once. The limit is work_mem * hash_mem_multiplier."),
				 errhint("Set work_mem to more than this for this session, or lower pg_stat_statements.max.")));
	}
	PG_RETURN_BOOL(false);
}

static void
query_waits_health(PgscaleHealth *health)
{
	Obstacle	obstacle;

	if (!pgscale_health_preloaded(health, "pgscale.sampler", true))
		return;

	health->state = PGSCALE_HEALTH_OFF;
	if (strcmp(pgscale_server_setting("compute_query_id"), "off") == 0)
	{
		health->reason = "waits are not attributed to queries, because compute_query_id is off";
		health->action = "set compute_query_id to auto or on, and reload";
	}
	else if (strcmp(pgscale_server_setting("track_activities"), "off") == 0)
	{
		health->reason = "waits are not attributed to queries, because track_activities is off";
		health->action = "set track_activities to on and reload";
	}
	else if (!OidIsValid(statements_view(false, &obstacle)))
	{
		health->reason = obstacle.reason;
		health->action = obstacle.action;
	}
	else if (pgscale_health_observed(health, 0, 0))
	{
		health->state = PGSCALE_HEALTH_WORKING;
		health->reason = "waits are attributed to queries";
	}
}

const PgscaleModule pgscale_query_waits_module = {
	.name = "query_waits",
	.health = query_waits_health,
};
