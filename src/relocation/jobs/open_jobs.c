/*-------------------------------------------------------------------------
 *
 * open_jobs.c
 *	  The databases with relocation jobs that have not ended.
 *
 * Jobs are rows of a table in their own database, and the launcher is connected to
 * none.  Without this list it would have to let a worker check each database after a
 * start, which wakes idle databases and changes their statistics.  The list is in
 * shared memory and in a file.
 *
 * Truth.  A database is in the file before the transaction that adds its first job
 * commits, and until a worker has seen that no job is open.  So an entry may be
 * superfluous, which costs one check, but no job is forgotten.  A worker must not
 * remove an entry because of jobs that it cannot see: those of a transaction that is
 * about to commit.  These transactions are counted, and each entry has a number that
 * changes whenever one begins to commit.  If no such transaction ran before the check,
 * and the number is the same after it, the check has seen all jobs.  A worker must not
 * remove an entry because of ends that a crash can undo either: the ends of jobs are on
 * disk before (relocation_jobs.c).
 *
 * The file is not replicated; the jobs are.  It contains the timeline on which it was
 * written.  If that differs from the server's, as after a promotion or point-in-time
 * recovery, every database is checked once; so it is after the list was too short.
 * Until all are checked and none has open jobs, the file stays unchanged, so that a
 * crash meanwhile loses nothing.  A base backup may copy the file before a job exists
 * and the job after that.  So the file also has a checksum of the backup label from
 * which its server started; the server keeps a copy of that label.  With another label,
 * the timeline counts as unknown.  Without a file there has never been a job, if the
 * server is on the first timeline and did not start from a backup.  An unreadable file
 * counts as one of an unknown timeline.
 *
 * Locking.  One lock, held while the file is written.  That happens with the first job
 * of a database and after its last one.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>

#include "access/xlog.h"
#include "miscadmin.h"
#include "port/pg_crc32c.h"
#include "storage/fd.h"
#include "storage/lwlock.h"

#include "base/saved_file.h"
#include "base/shared_area.h"
#include "relocation/jobs/launcher.h"

#define OPEN_FILE		"pg_stat/pgscale_relocation.stat"

/* To be changed with the format. */
#define OPEN_FORMAT		0x72656c33

/* More databases than this are found by looking. */
#define OPEN_MAX		256

typedef struct OpenFile
{
	uint32		format;
	TimeLineID	timeline;
	int32		too_many;		/* some had no room */
	int32		n;
	pg_crc32c	backup;			/* see backup_checksum() */
	Oid			databases[OPEN_MAX];
} OpenFile;

typedef struct OpenDatabase
{
	Oid			database;
	int			committing;		/* transactions that are about to add jobs */
	uint64		number;			/* of the latest one of these */
} OpenDatabase;

/* All but the lock itself is guarded by it. */
typedef struct OpenShared
{
	LWLock	   *lock;
	TimeLineID	timeline;		/* that the list is of; 0: unknown */
	pg_crc32c	backup;
	bool		too_many;
	int			committing;		/* transactions that are about to add jobs in
								 * databases that had no room */
	bool		looking;		/* into every database, and none had no room
								 * since */
	uint64		next_number;
	int			n;
	OpenDatabase databases[OPEN_MAX];
} OpenShared;

static OpenShared *shared = NULL;
static bool committing = false; /* does this process count as that? */
static bool has_room;			/* and if so, in its database's entry? */

/* Of the label of the base backup that this server began as; 0: of none. */
static pg_crc32c
backup_checksum(void)
{
	char		label[BLCKSZ];
	ssize_t		got;
	pg_crc32c	crc;
	int			fd = OpenTransientFile(BACKUP_LABEL_FILE, O_RDONLY | PG_BINARY);

	/* recovery from it renames it */
	if (fd < 0)
		fd = OpenTransientFile(BACKUP_LABEL_OLD, O_RDONLY | PG_BINARY);
	/* one that cannot be read is not the one that the file knows */
	if (fd < 0)
		return errno == ENOENT ? 0 : 1;
	got = read(fd, label, sizeof(label));
	CloseTransientFile(fd);
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, label, Max(got, 0));
	FIN_CRC32C(crc);
	return crc == 0 ? 1 : crc;
}

/* False if there is none; what cannot be used is of no timeline. */
static bool
open_jobs_read(OpenFile *content)
{
	PgscaleSavedFile file;

	if (!pgscale_saved_open(&file, OPEN_FILE, NULL))
		return false;
	if (pgscale_saved_get(&file, content, sizeof(*content)))
	{
		if (content->format != OPEN_FORMAT)
			file.problem = "its format is not this version's";
		else if (content->n < 0 || content->n > OPEN_MAX || file.left > 0)
			file.problem = "its size is wrong";
	}
	if (file.problem)
		memset(content, 0, sizeof(*content));
	pgscale_saved_close(&file, false, "All databases are searched for relocation jobs.", NULL);
	return true;
}

static void
open_jobs_init(void)
{
	OpenFile	file;

	shared->backup = backup_checksum();
	shared->timeline = shared->backup == 0 ? 1 : 0;
	if (!open_jobs_read(&file))
		return;
	shared->timeline = file.backup == shared->backup ? file.timeline : 0;
	shared->too_many = file.too_many != 0;
	shared->n = file.n;
	for (int i = 0; i < file.n; i++)
		shared->databases[i].database = file.databases[i];
}

const PgscaleArea pgscale_relocation_open_area = {
	.name = "pgscale relocation databases",
	.at = (void **) &shared,
	.size = sizeof(OpenShared),
	.nlocks = 1,
	.locks = offsetof(OpenShared, lock),
	.init = open_jobs_init,
};

/* If it cannot, the server log has the reason.  The lock must be held. */
static bool
write_file(void)
{
	OpenFile	content = {.format = OPEN_FORMAT,.timeline = shared->timeline,.backup = shared->backup};
	PgscaleSavedFile file;

	content.too_many = shared->too_many;
	content.n = shared->n;
	for (int i = 0; i < shared->n; i++)
		content.databases[i] = shared->databases[i].database;

	pgscale_saved_begin(&file, OPEN_FILE);
	pgscale_saved_put(&file, &content, sizeof(content));
	return pgscale_saved_end(&file, LOG, NULL);
}

/* The lock must be held. */
static OpenDatabase *
open_jobs_find(Oid database)
{
	for (int i = 0; i < shared->n; i++)
		if (shared->databases[i].database == database)
			return &shared->databases[i];
	return NULL;
}

/* Returns NULL if there is no room.  The lock must be held. */
static OpenDatabase *
open_jobs_add(Oid database)
{
	OpenDatabase *entry;

	if (shared->n == OPEN_MAX)
	{
		shared->too_many = true;
		shared->looking = false;
		return NULL;
	}
	entry = &shared->databases[shared->n++];
	memset(entry, 0, sizeof(*entry));
	entry->database = database;
	return entry;
}

/* The lock must be held. */
static void
strike_off(OpenDatabase *entry)
{
	*entry = shared->databases[--shared->n];
	(void) write_file();		/* else it is looked into for nothing */
}

void
pgscale_relocation_open_begin(void)
{
	OpenDatabase *entry;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	entry = open_jobs_find(MyDatabaseId);
	if (!entry)
	{
		bool		too_many = shared->too_many;

		entry = open_jobs_add(MyDatabaseId);
		if ((entry || !too_many) && !write_file())
		{
			/* the next one must not take it for written */
			if (entry)
				shared->n--;
			shared->too_many = too_many;
			LWLockRelease(shared->lock);
			ereport(ERROR,
					(errcode(ERRCODE_IO_ERROR),
					 errmsg("could not record that this database has relocation jobs"),
					 errhint("The server log shows why \"%s\" could not be written.", OPEN_FILE)));
		}
	}
	has_room = entry != NULL;
	if (has_room)
	{
		entry->committing++;
		entry->number = ++shared->next_number;
	}
	else
		shared->committing++;
	committing = true;
	LWLockRelease(shared->lock);
}

void
pgscale_relocation_open_end(void)
{
	OpenDatabase *entry;

	if (!committing)
		return;
	committing = false;
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	entry = has_room ? open_jobs_find(MyDatabaseId) : NULL;
	if (entry)
		entry->committing--;
	else if (!has_room)
		shared->committing--;
	LWLockRelease(shared->lock);
}

uint64
pgscale_relocation_open_look(void)
{
	OpenDatabase *entry;
	uint64		number;

	LWLockAcquire(shared->lock, LW_SHARED);
	entry = open_jobs_find(MyDatabaseId);
	/* what comes later has another number than this */
	number = entry && entry->committing == 0 ? entry->number : PG_UINT64_MAX;
	LWLockRelease(shared->lock);
	return number;
}

void
pgscale_relocation_open_none(uint64 looked)
{
	OpenDatabase *entry;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	entry = open_jobs_find(MyDatabaseId);
	if (entry && entry->committing == 0 && entry->number == looked)
		strike_off(entry);
	LWLockRelease(shared->lock);
}

void
pgscale_relocation_open_gone(Oid database)
{
	OpenDatabase *entry;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	entry = open_jobs_find(database);
	if (entry && entry->committing == 0)
		strike_off(entry);
	LWLockRelease(shared->lock);
}

List *
pgscale_relocation_open_list(List *(*every_one) (void))
{
	List	   *databases = NIL;
	List	   *every;
	bool		known;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	known = shared->timeline == GetWALInsertionTimeLine() && !shared->too_many;
	shared->looking = !known && shared->committing == 0;
	for (int i = 0; i < shared->n; i++)
		databases = lappend_oid(databases, shared->databases[i].database);
	LWLockRelease(shared->lock);
	if (known)
		return databases;

	every = every_one();
	databases = list_concat_unique_oid(databases, every);
	list_free(every);
	return databases;
}

void
pgscale_relocation_open_looked(void)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	if (shared->looking)
	{
		shared->looking = false;
		shared->timeline = GetWALInsertionTimeLine();
		shared->too_many = false;
		(void) write_file();
	}
	LWLockRelease(shared->lock);
}

bool
pgscale_relocation_is_any_open(void)
{
	return shared->n > 0 || shared->too_many || shared->timeline != GetWALInsertionTimeLine();
}
