/*-------------------------------------------------------------------------
 *
 * kept_relations.c
 *	  The list of kept relations, its file, and how it follows them.
 *
 * The list is of the server, not of a database or a transaction: the sweeper knows pages by
 * their files only.  pgscale.keep() (keep.c) changes it at once.  A small file has the
 * list's relations by their OIDs, and is written and synced at each change.  So the list
 * survives a restart and a crash.  It is not replicated: a standby has a list of its own.
 *
 * The file has no relation's files, because only the catalogs of its database are sure of
 * these.  The sweeper looks once a second whether each relation's file is known, is there, and
 * has pages.  If not, a worker of that database, for once, looks its relations up, and the
 * list follows.  All relations are looked up now and then.
 *
 * Nearly everything that gives a relation another file empties or removes the old one at
 * the commit: VACUUM FULL, CLUSTER, REINDEX, TRUNCATE, another tablespace, of the database,
 * too, an online move, and where recovery replays that.  So a rollback, a prepared transaction
 * and a standby need no care.  The catalogs that are an exception cannot be kept.  Where
 * that cannot be seen, it is found within a minute: an empty file is not emptied again, an
 * index that REINDEX CONCURRENTLY has replaced has its pages until all that use it have
 * ended, and another index may take over a file with its pages (ALTER TABLE ALTER TYPE).
 * So is what a worker left that failed, or had no slot.
 *
 * REINDEX CONCURRENTLY makes a new index, which gets the name of the old one, and leaves
 * the old one invalid.  So the list follows an index that is gone or invalid to the index
 * of its name, on its table.  An ALTER TABLE that rewrites a table makes another TOAST
 * table of the same name.  Any other relation that was dropped leaves the list; that of a
 * dropped database leaves it at the next change.
 *
 * The relation may be moved once more, or the list changed, between the look and what
 * follows: each place has a number of changes, and the file of another moment is gone at
 * the next look.
 *
 * Locks: change_lock is held over a write of the file, and lock is not, so that no reader
 * waits for a disk.  Both are LWLocks, which put off a cancel.
 *
 * Failure: a damaged file is ignored with a LOG message, and stays until the next change.
 * After a failed write nothing has changed, except where a relation was followed: then the
 * file is behind until the next change.  pgscale.health says both.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/index.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_index.h"
#include "catalog/pg_namespace_d.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/relation_files.h"
#include "base/saved_file.h"
#include "base/shared_area.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/worker.h"
#include "sweeper/keep.h"

#define KEPT_FILE		PGSTAT_STAT_PERMANENT_DIRECTORY "/pgscale_sweeper_keep.stat"

/* To be changed with the format of the header or of a relation. */
#define KEPT_FORMAT		0x70676b31

typedef struct FileHeader
{
	uint32		format;
	uint32		relations;
	uint64		cluster;		/* its system identifier */
} FileHeader;

typedef struct FileRelation
{
	Oid			database;
	Oid			relation;
	Oid			table;
	uint32		in_toast;
	double		fraction;
	NameData	name;
} FileRelation;

/* Between two look-ups of a relation that is as it was before: at first, and at most. */
#define AGAIN_NS		(10 * NS_PER_S)
#define AGAIN_MOST_NS	(60 * NS_PER_S)

/* What the sweeper saw of a place when it last had its database looked up, or when that became needless. */
typedef struct Asked
{
	uint32		changes;
	ino_t		file;			/* 0: none */
	bool		pages;
	int64		pause_ns;		/* until it asks again if all is as it was */
	int64		at_ns;
} Asked;

/* Other databases wait for a worker that waits for a lock. */
static const PgscaleWorkerSetting kept_settings[] = {
	{"lock_timeout", "1s"},
};

PgscaleSweeperKeptList *pgscale_sweeper_kept_list = NULL;

PGDLLEXPORT void pgscale_sweeper_kept_main(Datum arg);

/* Writes the file of that list, or says with this level of errors why not. */
static void
write_kept_file(const PgscaleSweeperKept *list, int elevel)
{
	FileHeader	header = {.format = KEPT_FORMAT,.cluster = GetSystemIdentifier()};
	FileRelation of[PGSCALE_SWEEPER_KEPT_MOST] = {0};
	PgscaleSavedFile file;
	bool		written;

	for (int i = 0; i < PGSCALE_SWEEPER_KEPT_MOST; i++)
	{
		FileRelation *relation = &of[header.relations];

		if (!OidIsValid(list[i].relation))
			continue;
		relation->database = list[i].database;
		relation->relation = list[i].relation;
		relation->table = list[i].table;
		relation->in_toast = list[i].in_toast;
		relation->fraction = list[i].fraction;
		relation->name = list[i].name;
		header.relations++;
	}
	pgscale_saved_begin(&file, KEPT_FILE);
	pgscale_saved_put(&file, &header, sizeof(header));
	pgscale_saved_put(&file, of, header.relations * sizeof(*of));
	written = pgscale_saved_end(&file, elevel, "pg_stat/ in the data directory must be writable, and its disk have room.");
	pgscale_sweeper_kept_list->problem = written ? PGSCALE_KEPT_NO_PROBLEM : PGSCALE_KEPT_UNWRITTEN;
}

/* Reads what the file has; returns why it is not what a server would have written, or NULL. */
static const char *
read_relations(PgscaleSavedFile *file, FileHeader *header, FileRelation *of)
{
	double		sum = 0;

	if (!pgscale_saved_get(file, header, sizeof(*header)))
		return file->problem;
	if (header->format != KEPT_FORMAT)
		return "its format is not this version's";
	if (header->cluster != GetSystemIdentifier())
		return "it is of another cluster";
	if (header->relations > PGSCALE_SWEEPER_KEPT_MOST || file->left != header->relations * sizeof(*of))
		return "its size is wrong";
	if (!pgscale_saved_get(file, of, header->relations * sizeof(*of)))
		return file->problem;
	for (uint32 i = 0; i < header->relations; i++)
	{
		sum += of[i].fraction;
		if (!OidIsValid(of[i].database) || !OidIsValid(of[i].relation) || !(of[i].fraction > 0) ||
			memchr(NameStr(of[i].name), '\0', NAMEDATALEN) == NULL)
			return "it has a relation that cannot be";
	}
	return sum <= PGSCALE_SWEEPER_KEPT_FRACTION + 1e-9 ? NULL : "it keeps more than can be kept";
}

/* In the postmaster, at the start. */
static void
read_kept_file(void)
{
	PgscaleSavedFile file;
	FileHeader	header;
	FileRelation of[PGSCALE_SWEEPER_KEPT_MOST];
	struct stat there;

	if (!pgscale_saved_open(&file, KEPT_FILE, NULL))
		return;
	file.problem = read_relations(&file, &header, of);
	pgscale_saved_close(&file, false, "No relation is kept.", "The next pgscale.keep() writes a new file.");
	if (file.problem)
	{
		if (file.file)
			pgscale_sweeper_kept_list->problem = PGSCALE_KEPT_IGNORED;
		else
			pgscale_sweeper_kept_list->problem = lstat(KEPT_FILE, &there) == 0 && S_ISREG(there.st_mode) ? PGSCALE_KEPT_UNREAD : PGSCALE_KEPT_NO_FILE;
		return;
	}
	for (uint32 i = 0; i < header.relations; i++)
	{
		PgscaleSweeperKept *kept = &pgscale_sweeper_kept_list->of[i];

		kept->database = of[i].database;
		kept->relation = of[i].relation;
		kept->table = of[i].table;
		kept->in_toast = of[i].in_toast != 0;
		kept->name = of[i].name;
		kept->fraction = of[i].fraction;
		kept->changes = 1;
		pgscale_sweeper_kept_list->counted_since[i] = GetCurrentTimestamp();
	}
	pgscale_sweeper_kept_list->relations = (int) header.relations;
	if (header.relations > 0)
		pg_atomic_write_u32(&pgscale_sweeper_kept_list->version, 1);
}

/* Puts a changed list in force.  The caller has change_lock. */
static void
publish_list(const PgscaleSweeperKept *list)
{
	PgscaleSweeperKeptList *shared = pgscale_sweeper_kept_list;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	for (int place = 0; place < PGSCALE_SWEEPER_KEPT_MOST; place++)
		if (list[place].database != shared->of[place].database)
		{
			shared->counted_since[place] = GetCurrentTimestamp();
			shared->stayed_before[place] = shared->counts[place].stayed;
		}
	memcpy(shared->of, list, sizeof(shared->of));
	shared->relations = 0;
	for (int place = 0; place < PGSCALE_SWEEPER_KEPT_MOST; place++)
		shared->relations += OidIsValid(list[place].relation);
	pg_atomic_write_u32(&shared->version, pg_atomic_read_u32(&shared->version) + 1);
	LWLockRelease(shared->lock);
}

void
pgscale_sweeper_kept_change(void (*change) (PgscaleSweeperKept *list, void *arg), void *arg)
{
	PgscaleSweeperKept list[PGSCALE_SWEEPER_KEPT_MOST];

	LWLockAcquire(pgscale_sweeper_kept_list->change_lock, LW_EXCLUSIVE);
	memcpy(list, pgscale_sweeper_kept_list->of, sizeof(list));
	change(list, arg);
	write_kept_file(list, ERROR);
	publish_list(list);
	LWLockRelease(pgscale_sweeper_kept_list->change_lock);
}

int
pgscale_sweeper_kept_copy(PgscaleSweeperKept *list)
{
	int			n = 0;

	LWLockAcquire(pgscale_sweeper_kept_list->lock, LW_SHARED);
	memcpy(list, pgscale_sweeper_kept_list->of, sizeof(pgscale_sweeper_kept_list->of));
	LWLockRelease(pgscale_sweeper_kept_list->lock);
	for (int i = 0; i < PGSCALE_SWEEPER_KEPT_MOST; i++)
		n += OidIsValid(list[i].relation);
	return n;
}

void
pgscale_sweeper_kept_reset(void)
{
	PgscaleSweeperKeptList *shared = pgscale_sweeper_kept_list;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	for (int place = 0; place < PGSCALE_SWEEPER_KEPT_MOST; place++)
	{
		shared->counted_since[place] = GetCurrentTimestamp();
		shared->stayed_before[place] = shared->counts[place].stayed;
	}
	LWLockRelease(shared->lock);
}

/* The table of a valid index, or InvalidOid. */
static Oid
table_of_valid_index(Oid relation)
{
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(relation));
	Oid			table = InvalidOid;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	if (((Form_pg_index) GETSTRUCT(tuple))->indisvalid)
		table = ((Form_pg_index) GETSTRUCT(tuple))->indrelid;
	ReleaseSysCache(tuple);
	return table;
}

static bool
is_still_there(const PgscaleSweeperKept *kept)
{
	if (OidIsValid(kept->table))
		return table_of_valid_index(kept->relation) == kept->table;
	return SearchSysCacheExists1(RELOID, ObjectIdGetDatum(kept->relation));
}

/* Has a command made another one in its place?  Else it is the same. */
static Oid
relation_in_its_place(const PgscaleSweeperKept *kept)
{
	const Oid	schema = kept->in_toast ? PG_TOAST_NAMESPACE : OidIsValid(kept->table) ? get_rel_namespace(kept->table) : InvalidOid;
	Oid			other;

	if (!OidIsValid(schema) || is_still_there(kept))
		return kept->relation;
	other = get_relname_relid(NameStr(kept->name), schema);
	if (!OidIsValid(other) || (!kept->in_toast && table_of_valid_index(other) != kept->table))
		return kept->relation;
	return other;
}

bool
pgscale_sweeper_kept_look_up(const PgscaleSweeperKept *kept, PgscaleSweeperKept *now)
{
	const Oid	relation = relation_in_its_place(kept);
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Form_pg_class class;

	if (!HeapTupleIsValid(tuple))
		return false;
	class = (Form_pg_class) GETSTRUCT(tuple);
	*now = *kept;
	now->relation = relation;
	if (class->relkind == RELKIND_INDEX)
		now->table = IndexGetRelation(relation, true);
	now->in_toast = class->relnamespace == PG_TOAST_NAMESPACE;
	namestrcpy(&now->name, NameStr(class->relname));
	now->file = pgscale_relation_locator(class);
	now->found = true;
	ReleaseSysCache(tuple);
	return true;
}

bool
pgscale_sweeper_kept_follow_one(PgscaleSweeperKept *kept, bool *in_file)
{
	PgscaleSweeperKept now = *kept;

	if (!pgscale_sweeper_kept_look_up(kept, &now))
		now.database = now.relation = InvalidOid;
	else if (kept->found && now.relation == kept->relation && now.table == kept->table &&
			 strcmp(NameStr(now.name), NameStr(kept->name)) == 0 && RelFileLocatorEquals(now.file, kept->file))
		return false;
	*in_file |= now.relation != kept->relation || strcmp(NameStr(now.name), NameStr(kept->name)) != 0;
	*kept = now;
	kept->changes++;
	return true;
}

/* A worker of that database, for once. */
void
pgscale_sweeper_kept_main(Datum arg)
{
	PgscaleSweeperKept before[PGSCALE_SWEEPER_KEPT_MOST];
	PgscaleSweeperKept list[PGSCALE_SWEEPER_KEPT_MOST];
	bool		follows[PGSCALE_SWEEPER_KEPT_MOST] = {0};
	bool		differs = false;
	bool		in_file = false;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	/* while it connects, too */
	pgscale_worker_set_early(kept_settings[0].name, kept_settings[0].value);
	pgscale_worker_connect((Oid) DatumGetInt32(arg), kept_settings, lengthof(kept_settings));

	StartTransactionCommand();
	(void) pgscale_sweeper_kept_copy(before);
	memcpy(list, before, sizeof(list));
	for (int place = 0; place < PGSCALE_SWEEPER_KEPT_MOST; place++)
		if (OidIsValid(list[place].relation) && list[place].database == MyDatabaseId)
			follows[place] = pgscale_sweeper_kept_follow_one(&list[place], &in_file);
	CommitTransactionCommand();

	LWLockAcquire(pgscale_sweeper_kept_list->change_lock, LW_EXCLUSIVE);
	for (int place = 0; place < PGSCALE_SWEEPER_KEPT_MOST; place++)
		if (follows[place] && pgscale_sweeper_kept_list->of[place].changes == before[place].changes)
			differs = true;
		else
			list[place] = pgscale_sweeper_kept_list->of[place];
	if (differs && in_file)
		write_kept_file(list, LOG);
	if (differs)
		publish_list(list);
	LWLockRelease(pgscale_sweeper_kept_list->change_lock);
	proc_exit(0);
}

bool
pgscale_sweeper_kept_has_pages(const PgscaleSweeperKept *kept, ino_t *file)
{
	char		path[MAXPGPATH];
	struct stat there;

	*file = 0;
	if (!kept->found)
		return false;
	pgscale_relation_file_path(path, kept->file, INVALID_PROC_NUMBER, MAIN_FORKNUM, 0);
	if (stat(path, &there) != 0)
		return false;
	*file = there.st_ino;
	return there.st_size > 0;
}

/* Is it there, whole, and may be connected to?  In a process without a database. */
static bool
database_is_open(Oid database)
{
	ResourceOwner owner = CurrentResourceOwner;
	MemoryContext context = CurrentMemoryContext;
	HeapTuple	tuple;
	bool		open = false;

	StartTransactionCommand();
	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);

		/* a limit below -1: its DROP DATABASE was interrupted */
		open = form->datallowconn && form->datconnlimit >= -1;
		ReleaseSysCache(tuple);
	}
	CommitTransactionCommand();
	CurrentResourceOwner = owner;
	MemoryContextSwitchTo(context);
	return open;
}

void
pgscale_sweeper_kept_follow(void)
{
	static Asked asked[PGSCALE_SWEEPER_KEPT_MOST];
	static BackgroundWorkerHandle *handle = NULL;
	static int64 looked = 0;
	static int	first = 0;		/* another one each time: databases take turns */
	const int64 now = pgscale_timer_clock();
	PgscaleSweeperKept list[PGSCALE_SWEEPER_KEPT_MOST];
	Oid			database = InvalidOid;

	if (pgscale_sweeper_kept_list->relations == 0 || now - looked < NS_PER_S)
		return;
	looked = now;
	if (pgscale_worker_launched(&handle))
		return;
	(void) pgscale_sweeper_kept_copy(list);
	first = (first + 1) % PGSCALE_SWEEPER_KEPT_MOST;
	for (int i = 0; i < PGSCALE_SWEEPER_KEPT_MOST; i++)
	{
		const int	place = (first + i) % PGSCALE_SWEEPER_KEPT_MOST;
		const PgscaleSweeperKept *kept = &list[place];
		Asked	   *last = &asked[place];
		Asked		seen = {.changes = kept->changes,.pause_ns = AGAIN_NS,.at_ns = now};

		if (!OidIsValid(kept->relation) || (OidIsValid(database) && kept->database != database))
			continue;
		seen.pages = pgscale_sweeper_kept_has_pages(kept, &seen.file);
		if (last->changes != seen.changes || last->file != seen.file || last->pages != seen.pages)
		{
			*last = seen;
			if (seen.pages)
				continue;
		}
		else if (now - last->at_ns < last->pause_ns)
			continue;
		else
		{
			last->pause_ns = Min(2 * last->pause_ns, AGAIN_MOST_NS);
			last->at_ns = now;
		}
		database = kept->database;
	}
	if (!OidIsValid(database) || !database_is_open(database))
		return;
	/* if the server has no slot now, it is asked again */
	(void) pgscale_worker_launch("pgscale sweeper keep", "pgscale_sweeper_kept_main", (int32) database, true, &handle);
}

static void
kept_init(void)
{
	pg_atomic_init_u32(&pgscale_sweeper_kept_list->version, 0);
	(void) unlink(KEPT_FILE ".tmp");
	read_kept_file();
}

const PgscaleArea pgscale_sweeper_kept_area = {
	.name = "pgscale sweeper keep",
	.at = (void **) &pgscale_sweeper_kept_list,
	.size = sizeof(PgscaleSweeperKeptList),
	.nlocks = 2,
	.locks = offsetof(PgscaleSweeperKeptList, change_lock),
	.init = kept_init,
};
