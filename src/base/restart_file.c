/*-------------------------------------------------------------------------
 *
 * restart_file.c
 *	  Files that keep data over a restart of the server.
 *
 * The postmaster writes such a file at a clean shutdown, after all other processes have
 * ended.  It is read once, at the next start, and removed.  So a base backup or a crash
 * never restores an old file.
 *
 * A failure to write or read a file is a LOG message: statistics must never keep a
 * server from starting.  While the postmaster ends, an error would be FATAL, and a wait
 * would be for a process that is gone.  So writing does neither.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "storage/fd.h"

#include "base/restart_file.h"

bool
pgscale_restart_file_put(FILE *file, const void *items, Size size, Size count)
{
	return count == 0 || fwrite(items, size, count, file) == count;
}

bool
pgscale_restart_file_get(FILE *file, void *items, Size size, Size count)
{
	return count == 0 || fread(items, size, count, file) == count;
}

void
pgscale_restart_file_finish(FILE *file, bool good, const char *temp, const char *name)
{
	if (!good)
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", temp)));
		if (file)
			FreeFile(file);
		unlink(temp);
		return;
	}
	if (FreeFile(file) != 0)
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not close file \"%s\": %m", temp)));
		unlink(temp);
		return;
	}

	/* It reports its own failures. */
	(void) durable_rename(temp, name, LOG);
}

/* The file, if it is one: opening a pipe would never end. */
FILE *
pgscale_restart_file_open(const char *name)
{
	struct stat st;
	FILE	   *file = NULL;

	if (lstat(name, &st) == 0 && !S_ISREG(st.st_mode))
	{
		ereport(LOG,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("ignoring \"%s\": it is not a regular file", name)));
		return NULL;
	}
	file = AllocateFile(name, PG_BINARY_R);
	if (file == NULL && errno != ENOENT)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not read file \"%s\": %m", name)));
	return file;
}

void
pgscale_restart_file_done(FILE *file, const char *name, const char *problem, const char *detail)
{
	FreeFile(file);
	if (problem)
		ereport(LOG,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("ignoring file \"%s\": %s", name, problem),
				 errdetail("%s", detail)));
	if (unlink(name) != 0)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not remove file \"%s\": %m", name)));
}
