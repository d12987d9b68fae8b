/*-------------------------------------------------------------------------
 *
 * now.c
 *	  What is wrong with the server now: the module.
 *
 * pgscale_internal.now_evidence() collects what is known of this moment as one jsonb: a
 * scan of all processes (now_processes.c), the root blockers (now_roots.c), what the
 * sampler saw in the last seconds and in the hour before (now_counts.c), and the texts of
 * the few sessions that count, by pg_stat_activity's rules.  Rules in C read that evidence
 * (now_rules.c), so a test can make it up.  The view pgscale.now lays it out, in SQL.
 *
 * Locking: the scan takes no lock.  The roots take what blockers takes, and nothing
 * while no process waits for a lock.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/ipc.h"
#include "storage/shmem.h"

#include "now/now.h"

static void
now_shmem_request(void)
{
	RequestAddinShmemSpace(pgscale_now_counts_size());
}

/* The evidence, and the cures. */
static const char *const asks[] = {
	"pgscale.activity", "pgscale.blockers", "pgscale_internal.blockers", "pgscale.cancel", "pgscale.health",
	"pgscale.revert", "pgscale.set", "pgscale.tablespace_latency", "pgscale.terminate", "pgscale.top_waits",
	"pgscale_internal.tuning_journal",
	"pgscale_internal.tuning_max_wal_size", "pgscale_internal.wait_history", "pgscale.wait_kind", NULL
};

const PgscaleModule pgscale_now_module = {
	.name = "now",
	.shmem_request = now_shmem_request,
	.shmem_startup = pgscale_now_counts_startup,
	.observe = pgscale_now_counts_observe,
	.asks = asks,
};
