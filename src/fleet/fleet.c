/*-------------------------------------------------------------------------
 *
 * fleet.c
 *	  The identity of this server, for tools that store answers of several servers.
 *
 * A name is not enough: Debian gives all clusters of a major the same cluster_name, and
 * Patroni gives one to all members of a cluster.  So the identity includes host and
 * port.  Both come from the machine and the server, not from the session's connection,
 * so that all sessions report the same identity.
 *
 * ask.c queries the other nodes.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "replication/walreceiver.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "base/node_name.h"
#include "base/row_builder.h"
#include "fleet/fleet.h"

PG_FUNCTION_INFO_V1(pgscale_node_identity);
PG_FUNCTION_INFO_V1(pgscale_node_key);
PG_FUNCTION_INFO_V1(pgscale_node_manager);

int			pgscale_fleet_timeout = 5000;

/*
 * How far a standby is behind, in seconds; false if unknown.  While it streams and has
 * replayed everything that it received, it is not behind, however old the last
 * transaction is.  While it does not stream, its lag is unknown, so the age of the last
 * replayed transaction is used, which is the upper bound.
 */
static bool
standby_lag(double *lag_s)
{
	TimestampTz replayed = GetLatestXTime();
	bool		streams = WalRcvStreaming();

	/* What was received is read first: more of it may come meanwhile. */
	if (streams && GetWalRcvFlushRecPtr(NULL, NULL) <= GetXLogReplayRecPtr(NULL))
	{
		*lag_s = 0;
		return true;
	}
	if (replayed == 0)
		return false;
	*lag_s = Max(GetCurrentTimestamp() - replayed, 0) / (double) USECS_PER_SEC;
	return true;
}

/* pgscale.node_identity(): this server's name, its cluster, its role, and a standby's lag. */
Datum
pgscale_node_identity(PG_FUNCTION_ARGS)
{
	PgscaleRow	row = {0};
	double		lag_s;

	pgscale_row_text(&row, pgscale_node_name());
	pgscale_row_int8(&row, GetSystemIdentifier());
	pgscale_row_text(&row, RecoveryInProgress() ? "standby" : "primary");
	pgscale_row_float8(&row, RecoveryInProgress() && standby_lag(&lag_s) ? lag_s : NAN);
	return pgscale_row_result(&row, fcinfo);
}

/* pgscale_internal.node_key(): this data directory, and the timeline of the WAL that it writes or replays. */
Datum
pgscale_node_key(PG_FUNCTION_ARGS)
{
	PgscaleRow	row = {0};
	TimeLineID	timeline;

	if (RecoveryInProgress())
		(void) GetXLogReplayRecPtr(&timeline);
	else
		timeline = GetWALInsertionTimeLine();
	pgscale_row_int8(&row, pgscale_node_id());
	pgscale_row_int4(&row, timeline);
	return pgscale_row_result(&row, fcinfo);
}

/* pgscale_internal.node_manager(): the software that sets the settings of this server in place of ALTER SYSTEM, or NULL. */
Datum
pgscale_node_manager(PG_FUNCTION_ARGS)
{
	if (pgscale_node_has_patroni())
		PG_RETURN_DATUM(CStringGetTextDatum("patroni"));
	PG_RETURN_NULL();
}

static void
fleet_define_gucs(void)
{
	DefineCustomIntVariable("pgscale.fleet_timeout",
							"Time that each node of the fleet may take to answer, connecting included.",
							"A node that does not answer delays the call by this time.",
							&pgscale_fleet_timeout,
							5000, 100, 600000,
							PGC_USERSET,
							GUC_UNIT_MS,
							NULL, NULL, NULL);
}

/* On the node that is asked. */
static const char *const asks[] = {"pgscale.advice", NULL};

const PgscaleModule pgscale_fleet_module = {
	.name = "fleet",
	.define_gucs = fleet_define_gucs,
	.asks = asks,
};
