/*-------------------------------------------------------------------------
 *
 * policy.h
 *	  The choice of pages that leave the cache, and nothing else.
 *
 * Pure: a policy calls no function of the server and changes no buffer.  It gets what
 * the sweeper sees, and returns its decision.  A page's usage is a number from 0 to
 * PGSCALE_MAX_USAGE; at 0 the page may leave.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SWEEPER_POLICIES_POLICY_H
#define PGSCALE_SWEEPER_POLICIES_POLICY_H

#include "postgres.h"

typedef struct PgscaleSweeperPolicy
{
	/*
	 * Of a victim's neighbours in its file, which are written together with
	 * it, those with a usage up to this one leave the cache, too.
	 */
	uint8		neighbour_usage;

	/*
	 * The sweep passes a page that was used so often and may not leave: its
	 * usage from now on.
	 */
	uint8		(*pass) (uint8 usage);

	/*
	 * Only where usage is no count of the server's (supply/window.c): that of
	 * a page which has just come, and was used so often since; of one that
	 * was used so many times more; and for how many rounds the server's hand
	 * shall leave it alone, 1 to 3.
	 */
	uint8		(*arrived) (int uses);
	uint8		(*used) (uint8 usage, int uses);
	uint8		(*header) (uint8 usage);
} PgscaleSweeperPolicy;

/* The server's own: usage counts that a clock hand takes down. */
extern const PgscaleSweeperPolicy pgscale_sweeper_policy_clock;

/* The one in force. */
#define pgscale_sweeper_policy (&pgscale_sweeper_policy_clock)

#endif							/* PGSCALE_SWEEPER_POLICIES_POLICY_H */
