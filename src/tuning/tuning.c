/*-------------------------------------------------------------------------
 *
 * tuning.c
 *	  From evidence to action: the cost of the server's settings, and the gain of
 *	  other values.
 *
 * The sampler's process records what the server does (evidence.c).  Everything else
 * happens on request: rules evaluate the evidence of a window
 * (tuning/rules/rule_table.c), and so do the map of contention (contention.c) and the
 * efficiency of WAL (wal_efficiency.c).
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "base/units.h"
#include "tuning/changes/changes.h"
#include "tuning/evidence.h"
#include "tuning/tuning.h"

/* If there was no observation for that long, the sampler is not at work. */
#define STALLED_MS		5000

int64
pgscale_tuning_duration_ms(FunctionCallInfo fcinfo, int argument)
{
	const char *hint = "Evidence is kept for an hour; without an argument it is that of the last 10 minutes.";
	double		ms;

	if (PG_ARGISNULL(argument))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("the duration must not be null"),
				 errhint("%s", hint)));
	ms = pgscale_interval_ms(PG_GETARG_INTERVAL_P(argument));
	if (!(ms > 0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the duration must be positive"),
				 errhint("%s", hint)));
	/* More there never is, and then nothing overflows. */
	return (int64) Min(ms, 1000.0 * SECS_PER_DAY);
}

static void
tuning_shmem_request(void)
{
	RequestAddinShmemSpace(pgscale_tuning_evidence_size());
}

static void
tuning_health(PgscaleHealth *health)
{
	int			nrecords;

	if (!pgscale_health_preloaded(health, "pgscale.sampler", true))
		return;
	if (pgscale_health_observed(health, pgscale_tuning_evidence_last_ns(&nrecords), STALLED_MS))
	{
		health->state = PGSCALE_HEALTH_WORKING;
		health->reason = "records evidence";
		if (pgscale_tuning_evidence_ms() != PGSCALE_EVIDENCE_MS)
		{
			health->reason = "records evidence, but of another length: pgscale.sampler_debug_period is for tests";
			health->action = "reset pgscale.sampler_debug_period and reload";
		}
	}
}

/* Rules, and contention(). */
static const char *const asks[] = {
	"pgscale_internal.blocker_profile", "pgscale.numa_buffers", "pgscale_internal.numa_nodes",
	"pgscale.past_coverage", "pgscale_internal.past_items", "pgscale.tablespace_latency", NULL
};

const PgscaleModule pgscale_tuning_module = {
	.name = "tuning",
	.shmem_request = tuning_shmem_request,
	.shmem_startup = pgscale_tuning_evidence_startup,
	.observe = pgscale_tuning_evidence_observe,
	.health = tuning_health,
	.has_tables = true,
	.asks = asks,
};
