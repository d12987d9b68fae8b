/*-------------------------------------------------------------------------
 *
 * query_waits.c
 *	  Whether the wait profile can be told by query.
 *
 * The view pgscale.query_waits is all SQL; what it needs of the server is
 * checked here, for pgscale.health.  There is no setting of its own:
 * pg_stat_statements and query identifiers ask for it, and a server without them
 * lacks nothing.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/extension.h"
#include "utils/guc.h"

#include "base/pg_compat.h"
#include "pgscale.h"
#include "sampler/sampler.h"

static void
query_waits_health(PgscaleHealth *health)
{
	if (!pgscale_health_preloaded(health, "pgscale.sampler", true))
		return;

	health->state = PGSCALE_HEALTH_OFF;
	if (!IsQueryIdEnabled())
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
	else if (pgscale_health_observed(health, 0, 0))
	{
		health->state = PGSCALE_HEALTH_WORKING;
		health->reason = "waits are told by query";
	}
}

const PgscaleModule pgscale_query_waits_module = {
	.name = "query_waits",
	.health = query_waits_health,
};
