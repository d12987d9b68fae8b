/*-------------------------------------------------------------------------
 *
 * policies.c
 *	  The list of policies.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sweeper/policies/policy.h"

const PgscaleSweeperPolicy *const pgscale_sweeper_policies[PGSCALE_SWEEPER_POLICIES] = {
	[PGSCALE_SWEEPER_CLOCK] = &pgscale_sweeper_policy_clock,
	[PGSCALE_SWEEPER_HISTORY] = &pgscale_sweeper_policy_history,
	[PGSCALE_SWEEPER_ADAPTIVE] = &pgscale_sweeper_policy_adaptive
};
