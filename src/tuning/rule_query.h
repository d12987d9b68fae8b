/*-------------------------------------------------------------------------
 *
 * rule_query.h
 *	  SQL queries of a rule, run as its caller.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_TUNING_RULE_QUERY_H
#define PGSCALE_TUNING_RULE_QUERY_H

#include "postgres.h"

#include "base/sql.h"

/*
 * Executes a query that only reads, as the current user.  An error of its own is
 * the result's; a cancel, or what is wrong with the server, is raised.
 */
extern void pgscale_tuning_query(const char *query, PgscaleRows *rows);

#endif							/* PGSCALE_TUNING_RULE_QUERY_H */
