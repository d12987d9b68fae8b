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

/*
 * Which data directory this is: the same after a restart, a promotion and pg_rewind, and another one in
 * each copy.  0 if the kernel does not say.
 */
extern int64 pgscale_node_id(void);

/* Does Patroni set the settings of this server, in place of ALTER SYSTEM? */
extern bool pgscale_node_has_patroni(void);

#endif							/* PGSCALE_BASE_NODE_NAME_H */
