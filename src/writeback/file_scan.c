/*-------------------------------------------------------------------------
 *
 * file_scan.c
 *	  Finds files that are written past the shared buffers.
 *
 * An index build, or the move of a table, never has its pages in a buffer.  So the data
 * directory and the tablespaces are searched, some files in each round, for files that
 * changed since the previous search and of which the buffers show nothing.  The kernel
 * is asked for the dirty pages of those.  That takes milliseconds for a large file, so
 * the search pauses for a multiple of that time.
 *
 * Left out: temporary relations and files, WAL, and the cluster's shared catalogs.
 * Temporary data is gone before it has to reach the disk, WAL is flushed with each
 * commit, and shared catalogs are small.
 *
 * The folder that is being read stays open from round to round, by functions of the C
 * library: a folder that the server's functions open may not outlast a transaction, and
 * serving an interrupt can end one.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dirent.h>
#include <sys/stat.h>
#include <time.h>

#include "catalog/pg_tablespace_d.h"
#include "nodes/pg_list.h"
#include "storage/fd.h"
#include "utils/memutils.h"

#include "base/kernel.h"
#include "base/relation_files.h"
#include "base/timer.h"
#include "base/units.h"
#include "writeback/dirty_tracker.h"
#include "writeback/writeback.h"


#define ROUND_FILES		256

/* From one walk's begin to the next one's, at least. */
#define WALK_NS			(2 * NS_PER_S)

/* How long to ask the kernel in a round, and the fraction of time for it, inverted. */
#define ROUND_NS		(NS_PER_S / 1000)
#define PAUSE_FACTOR	50


/* A folder with the files of relations. */
typedef struct Folder
{
	Oid			tablespace;
	Oid			database;
	char	   *path;
} Folder;

static MemoryContext context = NULL;
static List *folders = NIL;
static int	folder = 0;			/* which of them is being read */
static DIR *dir = NULL;			/* that one, open */
static int64 resume_ns = 0;
static int64 asked_ns = 0;		/* how long the kernel was asked, this round */
static int64 begun_ns = 0;		/* this walk */
static time_t changed_since = 0;	/* what this walk looks for */

void
pgscale_writeback_files_start(void)
{
	if (dir)
		closedir(dir);
	dir = NULL;
	folders = NIL;
	folder = 0;
	if (context)
		MemoryContextReset(context);
	else
		context = AllocSetContextCreate(TopMemoryContext, "pgscale writeback files",
										ALLOCSET_SMALL_SIZES);
	resume_ns = begun_ns = 0;
}

static void
add_folder(Oid tablespace, Oid database, const char *path)
{
	Folder	   *place = palloc(sizeof(Folder));

	place->tablespace = tablespace;
	place->database = database;
	place->path = pstrdup(path);
	folders = lappend(folders, place);
}

/* Adds the databases' folders within another one. */
static void
add_databases(Oid tablespace, const char *path)
{
	DIR		   *databases = AllocateDir(path);
	struct dirent *entry;

	while ((entry = ReadDirExtended(databases, path, DEBUG1)) != NULL)
	{
		char		inner[MAXPGPATH];
		Oid			database = strtoul(entry->d_name, NULL, 10);

		snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name);
		if (OidIsValid(database))
			add_folder(tablespace, database, inner);
	}
	if (databases)
		FreeDir(databases);
}

static void
begin_walk(int64 now_ns)
{
	MemoryContext old = MemoryContextSwitchTo(context);
	DIR		   *tablespaces;
	struct dirent *entry;

	MemoryContextReset(context);
	folders = NIL;
	folder = 0;

	/*
	 * Times of files come from a clock that may have been set meanwhile, so
	 * they are converted to the monotonic clock.
	 */
	changed_since = time(NULL) - 1 - (begun_ns > 0 ? (now_ns - begun_ns) / NS_PER_S : PGSCALE_REWRITE_WINDOW_S);
	begun_ns = now_ns;

	add_databases(DEFAULTTABLESPACE_OID, "base");
	tablespaces = AllocateDir("pg_tblspc");
	while ((entry = ReadDirExtended(tablespaces, "pg_tblspc", DEBUG1)) != NULL)
	{
		Oid			tablespace = strtoul(entry->d_name, NULL, 10);
		char		path[MAXPGPATH];

		snprintf(path, sizeof(path), "pg_tblspc/%s/%s", entry->d_name, TABLESPACE_VERSION_DIRECTORY);
		if (OidIsValid(tablespace))
			add_databases(tablespace, path);
	}
	if (tablespaces)
		FreeDir(tablespaces);
	MemoryContextSwitchTo(old);
}

/* Do the buffers show all writes of a file? */
static bool
is_known(PgscaleWritebackStretchKey key, off_t size)
{
	for (off_t at = 0; at < size; at += PGSCALE_STRETCH_BYTES, key.number++)
		if (!pgscale_writeback_watch_knows(&key))
			return false;
	return true;
}

/* Notes what the kernel has dirty of a stretch, the pieces one by one. */
static int
find_in_stretch(int fd, off_t at, const PgscaleWritebackStretchKey *key, int64 now_ns)
{
	uint16		pieces = 0;
	int			pages = 0;
	PgscaleCached cached;

	for (int piece = 0; piece < PGSCALE_PIECES; piece++)
		if (pgscale_kernel_cached(fd, at + piece * PGSCALE_PIECE_BYTES, PGSCALE_PIECE_BYTES, &cached) && cached.dirty > 0)
		{
			pages += (cached.dirty + BLCKSZ - 1) / BLCKSZ;
			pieces |= 1 << piece;
		}
	return pages > 0 ? pgscale_writeback_watch_found(key, pieces, pages, now_ns) : 0;
}

/* Notes the dirty pages of an open file, except those that the buffers show. */
static int64
find_in_file(int fd, off_t size, PgscaleWritebackStretchKey key, int64 now_ns)
{
	int64		found = 0;
	PgscaleCached cached;

	if (!pgscale_kernel_cached(fd, 0, 0, &cached) || cached.dirty <= 0)
		return 0;
	for (off_t at = 0; at < size; at += PGSCALE_STRETCH_BYTES, key.number++)
		if (!pgscale_writeback_watch_knows(&key))
			found += find_in_stretch(fd, at, &key, now_ns);
	return found;
}

/* One file of the folder that is being read. */
static int64
look_at_file(const Folder *place, const char *name, int64 now_ns)
{
	PgscaleWritebackStretchKey key;
	uint32		segment;
	char		path[MAXPGPATH];
	struct stat status;
	int64		since;
	int64		found;
	int			fd;

	memset(&key, 0, sizeof(key));
	if (!pgscale_compat_parse_relfile(name, &key.locator, &key.fork, &segment) ||
		fstatat(dirfd(dir), name, &status, 0) != 0 ||
		!S_ISREG(status.st_mode) || status.st_mtime < changed_since)
		return 0;
	key.locator.spcOid = place->tablespace;
	key.locator.dbOid = place->database;
	key.number = segment * PGSCALE_SEGMENT_STRETCHES;
	if (is_known(key, status.st_size))
		return 0;

	snprintf(path, sizeof(path), "%s/%s", place->path, name);
	since = pgscale_timer_clock();
	fd = pgscale_relation_file_open(path);
	if (fd < 0)
		return 0;
	found = find_in_file(fd, status.st_size, key, now_ns);
	CloseTransientFile(fd);
	asked_ns += pgscale_timer_clock() - since;
	return found;
}

static void
end_folder(void)
{
	if (dir)
		closedir(dir);
	dir = NULL;
	folder++;
}

int64
pgscale_writeback_files_round(int64 now_ns)
{
	int64		found = 0;

	if (now_ns < resume_ns)
		return 0;
	if (folder >= list_length(folders))
	{
		if (now_ns - begun_ns < WALK_NS)
			return 0;
		begin_walk(now_ns);
	}

	asked_ns = 0;
	for (int i = 0; i < ROUND_FILES && folder < list_length(folders) && asked_ns < ROUND_NS; i++)
	{
		const Folder *place = list_nth(folders, folder);
		struct dirent *entry;

		if (!dir)
			dir = opendir(place->path);
		entry = dir ? readdir(dir) : NULL;
		if (entry)
			found += look_at_file(place, entry->d_name, now_ns);
		else
			end_folder();
	}
	resume_ns = now_ns + PAUSE_FACTOR * asked_ns;
	return found;
}
