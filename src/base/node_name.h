/*-------------------------------------------------------------------------
 *
 * node_name.h
 *	  How this server is called, and what manages it.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_NODE_NAME_H
#define PGSCALE_BASE_NODE_NAME_H

/* cluster_name@host:port; in SQL: pgscale.node_identity() */
extern const char *pgscale_node_name(void);

/* Does Patroni set the settings of this server, in place of ALTER SYSTEM? */
extern bool pgscale_node_has_patroni(void);

#endif							/* PGSCALE_BASE_NODE_NAME_H */
