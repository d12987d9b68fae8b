/*-------------------------------------------------------------------------
 *
 * fleet.c
 *	  Which server this is, for whoever keeps what several servers say.
 *
 * A name alone does not tell: Debian gives all clusters of a major the same
 * cluster_name, and Patroni all members of a cluster.  So the host and the port
 * are a part of it.  They are those that the machine and the server have of
 * themselves, not of the session's connection, so that all sessions say the same.
 *
 * The nodes of the fleet are asked by the extension's script, through dblink.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "commands/extension.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "replication/walreceiver.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "fleet/fleet.h"

PG_FUNCTION_INFO_V1(pgscale_node_identity);

/*
 * How far a standby is behind, in seconds; false if nothing tells.  While it
 * streams and has replayed all that it received, it is not behind, however long
 * ago the last transaction was.  While it does not stream, nothing tells how much
 * it lacks, so the age of what was replayed last is taken, which is the most that
 * it can be.
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
	TupleDesc	desc;
	Datum		values[4] = {0};
	bool		nulls[4] = {0};
	char		host[256];
	double		lag_s;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");

	if (gethostname(host, sizeof(host)) != 0)
		strlcpy(host, "unknown", sizeof(host));
	host[sizeof(host) - 1] = '\0';

	values[0] = CStringGetTextDatum(psprintf("%s%s%s:%d", cluster_name, cluster_name[0] ? "@" : "", host, PostPortNumber));
	values[1] = Int64GetDatum((int64) GetSystemIdentifier());
	values[2] = CStringGetTextDatum(RecoveryInProgress() ? "standby" : "primary");
	nulls[3] = !RecoveryInProgress() || !standby_lag(&lag_s);
	if (!nulls[3])
		values[3] = Float8GetDatum(lag_s);

	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

static void
fleet_health(PgscaleHealth *health)
{
	if (!OidIsValid(MyDatabaseId) || !IsTransactionState() || !OidIsValid(get_extension_oid("dblink", true)))
	{
		health->state = PGSCALE_HEALTH_OFF;
		health->reason = "dblink is not installed in this database: no node can be asked";
		health->action = "run CREATE EXTENSION dblink, then call pgscale.fleet_add()";
		return;
	}
	health->state = PGSCALE_HEALTH_IDLE;
	health->reason = "nodes are asked when asked for";
}

const PgscaleModule pgscale_fleet_module = {
	.name = "fleet",
	.health = fleet_health,
};
