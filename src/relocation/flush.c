/*-------------------------------------------------------------------------
 *
 * flush.c
 *	  Makes the kernel write new indexes while they grow.
 *
 * A newly built index is written past shared buffers and synced when it is complete,
 * before 17 by the process that builds it.  That is hundreds of megabytes at once, and
 * the commits of all sessions wait behind the sync if the WAL is on the same disk: the
 * longest wait that a move causes.  So the launcher, which has nothing else to do,
 * reads the size of the file from time to time, and asks the kernel to start writing
 * the part that is new.
 *
 * It is a hint, by the file's path and without a lock.  A missing file was dropped, or
 * does not exist yet.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "storage/fd.h"

#include "base/kernel.h"
#include "base/pg_compat.h"
#include "base/relation_files.h"
#include "relocation/relocation.h"
#include "relocation/relocation_state.h"

/* Between two looks: at a file that has grown since the last one, and otherwise. */
#define GROWING_MS	20
#define WAITING_MS	200

/* How far a file has been asked for. */
typedef struct Progress
{
	RelFileLocator locator;
	uint32		segment;
	off_t		done;			/* within the segment */
} Progress;

static Progress progress[PGSCALE_RELOCATION_SLOTS];

/* Returns whether there may be another segment; sets *grown if it has grown. */
static bool
flush_segment(Progress *at, bool *grown)
{
	char		path[MAXPGPATH];
	struct stat st;
	int			fd;

	pgscale_relation_file_path(path, at->locator, INVALID_PROC_NUMBER, MAIN_FORKNUM, at->segment);
	fd = pgscale_relation_file_open(path);
	if (fd < 0)
		return false;
	if (fstat(fd, &st) == 0 && st.st_size > at->done)
	{
		pg_flush_data(fd, at->done, st.st_size - at->done);
		at->done = st.st_size;
		*grown = true;
	}
	CloseTransientFile(fd);
	if (at->done < PGSCALE_SEGMENT_BYTES)
		return false;
	at->segment++;
	at->done = 0;
	return true;
}

long
pgscale_relocation_flush(void)
{
	bool		any = false;
	bool		grown = false;

	if (!pgscale_kernel_may_begin_writes())
		return -1;

	for (int i = 0; i < PGSCALE_RELOCATION_SLOTS; i++)
	{
		Progress   *at = &progress[i];
		RelFileLocator locator;

		if (!pgscale_relocation_growing(i, &locator))
			continue;
		any = true;
		if (!RelFileLocatorEquals(locator, at->locator))
		{
			memset(at, 0, sizeof(*at));
			at->locator = locator;
		}
		while (flush_segment(at, &grown))
			;
	}
	if (!any)
		return -1;
	return grown ? GROWING_MS : WAITING_MS;
}
