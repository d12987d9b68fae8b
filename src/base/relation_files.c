/*-------------------------------------------------------------------------
 *
 * relation_files.c
 *	  The files that a relation's forks lie in, by path and past smgr.
 *
 * smgr would keep descriptors open, and fails where a file is gone.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>

#include "catalog/pg_tablespace_d.h"
#include "storage/fd.h"

#include "base/relation_files.h"

void
pgscale_relation_file_path(char *path, RelFileLocator locator, ProcNumber backend, ForkNumber fork, uint32 segment)
{
	pgscale_compat_relpath(path, locator, backend, fork);
	if (segment > 0)
	{
		const size_t length = strlen(path);

		snprintf(path + length, MAXPGPATH - length, ".%u", segment);
	}
}

int
pgscale_relation_file_open(const char *path)
{
	return OpenTransientFile(path, O_RDONLY | PG_BINARY);
}

void
pgscale_relation_files_folder(char *path, Oid tablespace)
{
	if (tablespace == DEFAULTTABLESPACE_OID)
		strlcpy(path, "base", MAXPGPATH);
	else
		snprintf(path, MAXPGPATH, "pg_tblspc/%u/%s", tablespace, TABLESPACE_VERSION_DIRECTORY);
}
