/*-------------------------------------------------------------------------
 *
 * query_waits.c
 *	  Whether the wait profile can be told by query.
 *
 * The view pgscale.query_waits is all SQL; what it needs of the server is
 * checked here, for pgscale.health.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/extension.h"
#include "utils/backend_status.h"
#include "utils/guc.h"

#include "compat.h"
#include "pgscale.h"
#include "query_waits.h"

static void
query_waits_health(PgscaleHealth *health)
{
	health->enabled = pgscale_preloaded();
	health->working = false;
	if (!pgscale_preloaded())
	{
		health->reason = "the sampler is not loaded";
		health->action = "add pgscale to shared_preload_libraries and restart";
	}
	else if (!pgstat_track_activities)
	{
		health->reason = "track_activities is off, so sessions do not tell what they execute";
		health->action = "set track_activities to on";
	}
	else if (!IsQueryIdEnabled())
	{
		health->reason = "compute_query_id is off, so waits cannot be told by query";
		health->action = "set compute_query_id to auto or on";
	}
	else if (GetConfigOption("pg_stat_statements.max", true, false) == NULL)
	{
		health->reason = "pg_stat_statements is not loaded, so query identifiers have no texts";
		health->action = "add pg_stat_statements to shared_preload_libraries and restart";
	}
	else if (!OidIsValid(get_extension_oid("pg_stat_statements", true)))
	{
		health->reason = "pg_stat_statements is not installed in this database";
		health->action = "run CREATE EXTENSION pg_stat_statements";
	}
	else
	{
		health->working = true;
		health->reason = "waits are told by query";
	}
}

const PgscaleModule pgscale_query_waits_module = {
	.name = "query_waits",
	.health = query_waits_health,
};
