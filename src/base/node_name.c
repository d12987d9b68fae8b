/*-------------------------------------------------------------------------
 *
 * node_name.c
 *	  How this server is called, and what manages it.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "postmaster/postmaster.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"

#include "base/pg_compat.h"
#include "base/node_name.h"

/* Patroni keeps its copy of the cluster's configuration in this file of the data directory. */
#define PATRONI_FILE	"patroni.dynamic.json"

const char *
pgscale_node_name(void)
{
	char		host[256];

	if (gethostname(host, sizeof(host)) != 0)
		strlcpy(host, "unknown", sizeof(host));
	host[sizeof(host) - 1] = '\0';
	return psprintf("%s%s%s:%d", cluster_name, cluster_name[0] ? "@" : "", host, PostPortNumber);
}

/*
 * Patroni leaves its file behind when it is removed, but only Patroni starts a server with that file and
 * cluster_name on its command line.
 */
bool
pgscale_node_has_patroni(void)
{
	struct config_generic *setting = pgscale_compat_find_setting("cluster_name");
	struct stat file;

	return setting && setting->source == PGC_S_ARGV && stat(PATRONI_FILE, &file) == 0;
}
