/*-------------------------------------------------------------------------
 *
 * locks.c
 *	  Rules about the lock manager.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "base/pg_compat.h"
#include "tuning/findings.h"

/* With fewer locks a second without a slot, other locks are the cause of the waits. */
#define MISSED_PER_S	100.0

/*
 * max_locks_per_transaction, by which a session's fast-path slots are counted from 18
 * on.  Window: 30 s or more.
 *
 * Threshold: sessions wait for the lock table's own locks, and a hundred locks a second
 * found no slot.  The server counts these from 19 on; before, the waits are all that is
 * known, and statements that take strong locks cause them, too: hence the confidence.
 *
 * Gain: half of the waits.  Value: four times as much, rounded up to a power of two as
 * the slots are.  Source: the documentation of pg_stat_lock; commit c4d5cb71d.
 */
static PgscaleTuningFinding *
find_max_locks(const PgscaleTuningRuleInput *input)
{
	const PgscaleEvidence *e = input->sum;
	const bool	counted = e->counts.fast_path_exceeded >= 0;
	const double missed_per_s = counted ? pgscale_tuning_rate(e, e->counts.fast_path_exceeded) : NAN;
	const double share = pgscale_tuning_fraction(e, PGSCALE_KIND_LOCK_MANAGER);
	const double current = pgscale_tuning_setting("max_locks_per_transaction");
	const double wanted = Min(exp2(ceil(log2(4 * current))), PGSCALE_FAST_PATH_SLOTS);
	const PgscaleTuningNumber numbers[] = {
		{"lock_manager_fraction", share},
		{"fast_path_exceeded_per_s", missed_per_s},
		{NULL}
	};
	PgscaleTuningFinding *f;

	if (PGSCALE_FAST_PATH_SLOTS <= 16)
		return pgscale_tuning_finding(PGSCALE_SILENT, "a session has %d fast-path slots whatever the setting; from "
									  "18 on the setting is their number", (int) PGSCALE_FAST_PATH_SLOTS);
	if (share / 2 < PGSCALE_LEAST_GAIN)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "waits for the lock table's own locks take %.1f %% of the sessions' time",
									  100 * share);
	if (counted && missed_per_s < MISSED_PER_S)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "waits for the lock table's own locks take %.1f %% of the sessions' time, "
									  "but only %.1f locks a second found no fast-path slot", 100 * share, missed_per_s);
	if (wanted <= current)
		return pgscale_tuning_finding(PGSCALE_SATISFIED, "a session has %d fast-path slots, and cannot have more",
									  (int) PGSCALE_FAST_PATH_SLOTS);
	f = pgscale_tuning_advise(psprintf("%.0f", wanted), share / 2, numbers,
							  "waits for the lock table's own locks take %.0f %% of the sessions' time, and %s (commit c4d5cb71d)",
							  100 * share,
							  counted ? psprintf("%.0f locks a second found no fast-path slot", missed_per_s) :
							  "statements that lock more relations than a session has fast-path slots cause such waits");
	f->confidence = counted ? "medium" : "low";
	return f;
}

const PgscaleTuningRule pgscale_tuning_locks_rules[] = {
	{
		.name = "max_locks_per_transaction",
		.min_s = 30,
		.settings = {"max_locks_per_transaction"},
		.needs = "restart",
		.risk = "shared memory: some 300 bytes for each lock of each connection; raise it on standbys first",
		.find = find_max_locks,
	},
	{0}
};
