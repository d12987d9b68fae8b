/*-------------------------------------------------------------------------
 *
 * restart_file.c
 *	  Common code of the files that keep the sampler's data over a restart.
 *
 * The postmaster writes such a file at shutdown, after all other processes have ended,
 * and reads and removes it at start.  So a base backup or a crash never restores an old
 * file.
 *
 * A failure to write or read a file is a LOG message: statistics must never keep a
 * server from starting.  While the postmaster ends, an error would be FATAL, and a wait
 * would be for a process that is gone.  So writing does neither: it takes the contents
 * of shared memory if no change of it is in progress.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/fd.h"

#include "base/pg_compat.h"
#include "base/wait_events.h"
#include "sampler/restart_file.h"
#include "sampler/worker_types.h"

bool
pgscale_sampler_restart_file_put(FILE *file, const void *items, Size size, Size count)
{
	return count == 0 || fwrite(items, size, count, file) == count;
}

bool
pgscale_sampler_restart_file_get(FILE *file, void *items, Size size, Size count)
{
	return count == 0 || fread(items, size, count, file) == count;
}

void
pgscale_sampler_restart_file_not_kept(const char *what)
{
	ereport(LOG,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("%s is not kept over the restart", what),
			 errdetail("The sampler ended in the middle of a change, or there is no memory.")));
}

void
pgscale_sampler_restart_file_finish(FILE *file, bool good, const char *temp, const char *name)
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
pgscale_sampler_restart_file_open(const char *name)
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
pgscale_sampler_restart_file_done(FILE *file, const char *name, const char *problem, const char *detail)
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

bool
pgscale_sampler_restart_file_knows_event(uint32 wait_event)
{
	const char *type;
	const char *name;

	/* The server has names for all of what is durable. */
	wait_event = pgscale_wait_event_durable(wait_event);
	type = pgscale_wait_event_type(wait_event);
	name = pgscale_wait_event_name(wait_event);
	return type != NULL && name != NULL && strcmp(type, "???") != 0 &&
		strcmp(name, "???") != 0 && strcmp(name, "unknown wait event") != 0;
}

bool
pgscale_sampler_restart_file_knows_kind(PgscaleProcKind kind, uint32 ntypes)
{
	return kind < BACKEND_NUM_TYPES || kind == PGSCALE_PROC_PARALLEL ||
		(kind >= PGSCALE_PROC_FIRST_TYPE && kind - PGSCALE_PROC_FIRST_TYPE < ntypes);
}

bool
pgscale_sampler_restart_file_knows_types(const PgscaleSamplerTypeName * types, uint32 ntypes)
{
	for (uint32 i = 0; i < ntypes; i++)
		if (types[i][0] == '\0' || memchr(types[i], '\0', BGW_MAXLEN) == NULL)
			return false;
	return true;
}

bool
pgscale_sampler_restart_file_is_ascii(const char *text)
{
	for (const char *c = text; *c; c++)
		if (*c < ' ' || *c > '~')
			return false;
	return true;
}

/* Of names that need not be text here none is taken. */
void
pgscale_sampler_restart_file_kinds(const PgscaleSamplerTypeName * types, uint32 ntypes, PgscaleProcKind *kinds)
{
	for (uint32 i = 0; i < ntypes; i++)
		kinds[i] = pgscale_sampler_restart_file_is_ascii(types[i]) ? pgscale_sampler_type_kind(types[i]) : (PgscaleProcKind) B_BG_WORKER;
}
