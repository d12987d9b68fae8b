/*-------------------------------------------------------------------------
 *
 * node_name.c
 *	  How this server is called.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "postmaster/postmaster.h"
#include "utils/guc.h"

#include "base/node_name.h"

const char *
pgscale_node_name(void)
{
	char		host[256];

	if (gethostname(host, sizeof(host)) != 0)
		strlcpy(host, "unknown", sizeof(host));
	host[sizeof(host) - 1] = '\0';
	return psprintf("%s%s%s:%d", cluster_name, cluster_name[0] ? "@" : "", host, PostPortNumber);
}
