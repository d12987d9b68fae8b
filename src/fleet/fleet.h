/*-------------------------------------------------------------------------
 *
 * fleet.h
 *	  The feature: the identity of this server, and answers of other nodes.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_FLEET_H
#define PGSCALE_FLEET_H

#include "nodes/pg_list.h"

#include "pgscale.h"

extern const PgscaleModule pgscale_fleet_module;

/* setting, in ms */
extern int	pgscale_fleet_timeout;

/*
 * nodes.c: the nodes that were added, and how the current user connects to them.
 */
typedef struct PgscaleFleetNode
{
	const char *name;
	const char *trouble;		/* why the user cannot connect to it, or NULL */
	const char **keywords;		/* as PQconnectStartParams() takes them */
	const char **values;
	bool		of_superuser;
	bool		needs_password; /* other proofs of its identity do not count */
	int			connect_ms;		/* for connecting only; 0: no limit */
} PgscaleFleetNode;

/* All of them by name, or the one of that name, which it is an error not to find. */
extern List *pgscale_fleet_nodes(const char *name);

#endif							/* PGSCALE_FLEET_H */
