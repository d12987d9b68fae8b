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

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/hashfn.h"
#include "postmaster/postmaster.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"

#include "base/pg_compat.h"
#include "base/node_name.h"

/* Patroni keeps its copy of the cluster's configuration in this file of the data directory. */
#define PATRONI_FILE	"patroni.dynamic.json"

static void
host_name(char *host, size_t size)
{
	if (gethostname(host, size) != 0)
		strlcpy(host, "unknown", size);
	host[size - 1] = '\0';
}

const char *
pgscale_node_name(void)
{
	char		host[256];

	host_name(host, sizeof(host));
	return psprintf("%s%s%s:%d", cluster_name, cluster_name[0] ? "@" : "", host, PostPortNumber);
}

/*
 * PG_VERSION is written once, and pg_rewind leaves it alone.  A copy of it has another inode and another
 * time of birth, or lies on another machine if the disk was copied as a whole.
 */
int64
pgscale_node_id(void)
{
	struct statx file;
	struct stat older;
	char		host[256];
	int64		of_file[3];

	host_name(host, sizeof(host));
	if (statx(AT_FDCWD, "PG_VERSION", 0, STATX_INO | STATX_BTIME, &file) == 0 && (file.stx_mask & STATX_BTIME))
	{
		of_file[0] = file.stx_ino;
		of_file[1] = file.stx_btime.tv_sec;
		of_file[2] = file.stx_btime.tv_nsec;
	}
	else if (stat("PG_VERSION", &older) == 0)
	{
		of_file[0] = older.st_ino;
		of_file[1] = older.st_mtim.tv_sec;
		of_file[2] = older.st_mtim.tv_nsec;
	}
	else
		return 0;
	return hash_bytes_extended((const unsigned char *) of_file, sizeof(of_file),
							   hash_bytes_extended((const unsigned char *) host, strlen(host), 0));
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
