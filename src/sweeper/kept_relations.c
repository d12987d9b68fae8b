/*-------------------------------------------------------------------------
 *
 * kept_relations.c
 *	  The list of kept relations, its file, and how it follows them.
 *
 * The list is of the server, not of a database or a transaction: a sweeper knows pages by
 * their files only.  pgscale.keep() (keep.c) changes it at once.  A small file has the
 * list's relations by their OIDs, and is written and synced at each change.  So the list
 * survives a restart and a crash.  It is not replicated: a standby has a list of its own.
 *
 * The file has no relation's files, because only the catalogs of its database are sure of
 * these.  Each session looks at the list when it ends a transaction after a change of the
 * list: a test of two integers otherwise.  Relations of its database whose file is not
 * known it looks up before the commit.  So after a start of the server a relation is kept
 * from the first connection to its database on, before which none of its pages is read.
 *
 * Nearly everything that gives a relation another file updates its row in pg_class: VACUUM
 * FULL, CLUSTER, REINDEX, TRUNCATE, another tablespace, a live move.  That invalidates the
 * caches of all sessions, their own first, which calls class_changed().  At the end of the
 * transaction the session looks the relation up, and the list follows after the commit,
 * while the relation is still locked.  After a rollback the next transaction looks it up
 * again.  After a COMMIT PREPARED, and where recovery has replayed the change, the first
 * session of the database that ends a transaction does; it may have connected later and
 * know of no change, so its first look is at all relations of its database.  The catalogs
 * that are an exception cannot be kept.  ALTER DATABASE SET TABLESPACE changes no row, but
 * needs the database without sessions: the first one that connects finds it in another
 * tablespace than the list.
 *
 * REINDEX CONCURRENTLY makes a new index, which gets the name of the old one, and leaves
 * the old one invalid.  So the list follows an index that is gone or invalid to the index
 * of its name, on its table.  An ALTER TABLE that rewrites a table makes another TOAST
 * table of the same name.  Any other relation that was dropped leaves the list; that of a
 * dropped database leaves it at the next change.
 *
 * Two sessions may look a relation up at a time, one before a change and one after it.
 * Each place has a number of changes; a session that finds another one than at its look
 * has the relation looked up once more.
 *
 * Locks: change_lock is held over a write of the file, and lock is not, so that no reader
 * waits for a disk.  Both are LWLocks, which put off a cancel.  After a commit nothing may
 * raise an error, so the file is written with calls that do not.
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
#include "catalog/pg_index.h"
#include "catalog/pg_namespace_d.h"
#include "common/file_perm.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_crc32c.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/relation_files.h"
#include "base/restart_file.h"
#include "sweeper/keep.h"

#define LOCK_TRANCHE	"pgscale sweeper keep"

#define KEPT_FILE		PGSTAT_STAT_PERMANENT_DIRECTORY "/pgscale_sweeper_keep.stat"
#define KEPT_TEMP		KEPT_FILE ".tmp"

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

/* The file as a whole; it ends with the checksum, behind the last relation. */
typedef struct FileContent
{
	FileHeader	header;
	FileRelation of[PGSCALE_SWEEPER_KEPT_MOST];
	pg_crc32c	room_for_crc;
} FileContent;

/* What a session has found of a relation, to be published when it commits. */
typedef struct Finding
{
	int			place;
	bool		gone;
	PgscaleSweeperKept now;
} Finding;

PgscaleSweeperKeptList *pgscale_sweeper_kept_list = NULL;

/* This session's. */
static uint32 seen_version = 0; /* of the list */
static bool has_looked = false;
static uint64 suspects = 0;		/* places, as bits, whose relation may have
								 * changed */
static bool looking = false;	/* in this transaction: */
static uint32 looked_version;
static uint64 looked_suspects;
static int	nfindings;
static Finding findings[PGSCALE_SWEEPER_KEPT_MOST];

static uint64
bit_of(int place)
{
	return UINT64CONST(1) << place;
}

/* Makes the file's content.  Returns its size. */
static Size
make_content(const PgscaleSweeperKept *list, FileContent *content)
{
	uint32		n = 0;
	pg_crc32c	crc;
	Size		size;

	memset(content, 0, sizeof(*content));
	for (int i = 0; i < PGSCALE_SWEEPER_KEPT_MOST; i++)
	{
		FileRelation *relation = &content->of[n];

		if (!OidIsValid(list[i].relation))
			continue;
		relation->database = list[i].database;
		relation->relation = list[i].relation;
		relation->table = list[i].table;
		relation->in_toast = list[i].in_toast;
		relation->fraction = list[i].fraction;
		relation->name = list[i].name;
		n++;
	}
	content->header.format = KEPT_FORMAT;
	content->header.relations = n;
	content->header.cluster = GetSystemIdentifier();
	size = offsetof(FileContent, of) + n * sizeof(FileRelation);
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, content, size);
	FIN_CRC32C(crc);
	memcpy((char *) content + size, &crc, sizeof(crc));
	return size + sizeof(crc);
}

/* Raises no error itself. */
static bool
put_content(const char *content, Size size)
{
	const int	fd = BasicOpenFile(KEPT_TEMP, O_CREAT | O_TRUNC | O_WRONLY | PG_BINARY);
	ssize_t		written;

	if (fd < 0)
		return false;
	errno = 0;
	written = write(fd, content, size);
	if (written == (ssize_t) size && pg_fsync(fd) == 0)
		return close(fd) == 0;
	if (errno == 0)
		errno = ENOSPC;
	written = errno;
	close(fd);
	errno = (int) written;
	return false;
}

static void
sync_folder(void)
{
	const int	fd = BasicOpenFile(PGSTAT_STAT_PERMANENT_DIRECTORY, O_RDONLY | PG_BINARY);

	if (fd < 0 || pg_fsync(fd) != 0)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not fsync directory \"%s\": %m", PGSTAT_STAT_PERMANENT_DIRECTORY)));
	if (fd >= 0)
		close(fd);
}

/* Writes the file of that list, or says with this level of errors why not. */
static void
write_kept_file(const PgscaleSweeperKept *list, int elevel)
{
	FileContent content;
	const Size	size = make_content(list, &content);

	if (!put_content((char *) &content, size) || rename(KEPT_TEMP, KEPT_FILE) != 0)
	{
		const int	problem = errno;

		unlink(KEPT_TEMP);
		if (elevel < ERROR)
			pgscale_sweeper_kept_list->problem = PGSCALE_KEPT_UNWRITTEN;
		errno = problem;
		ereport(elevel,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", KEPT_FILE),
				 errhint("pg_stat/ in the data directory must be writable, and its disk have room.")));
		return;
	}
	sync_folder();
	pgscale_sweeper_kept_list->problem = PGSCALE_KEPT_NO_PROBLEM;
}

/* Is that what a server would have written?  Else why not. */
static const char *
check_content(const FileContent *content, Size size)
{
	const uint32 n = content->header.relations;
	double		sum = 0;
	pg_crc32c	crc;
	pg_crc32c	written;

	if (size < offsetof(FileContent, of) + sizeof(crc))
		return "it is too short";
	if (content->header.format != KEPT_FORMAT)
		return "its format is not this version's";
	if (content->header.cluster != GetSystemIdentifier())
		return "it is of another cluster";
	if (n > PGSCALE_SWEEPER_KEPT_MOST || size != offsetof(FileContent, of) + n * sizeof(FileRelation) + sizeof(crc))
		return "its size is wrong";
	memcpy(&written, (const char *) content + size - sizeof(crc), sizeof(crc));
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, content, size - sizeof(crc));
	FIN_CRC32C(crc);
	if (!EQ_CRC32C(crc, written))
		return "its checksum is wrong";
	for (uint32 i = 0; i < n; i++)
	{
		const FileRelation *relation = &content->of[i];

		sum += relation->fraction;
		if (!OidIsValid(relation->database) || !OidIsValid(relation->relation) || !(relation->fraction > 0) ||
			memchr(NameStr(relation->name), '\0', NAMEDATALEN) == NULL)
			return "it has a relation that cannot be";
	}
	return sum <= PGSCALE_SWEEPER_KEPT_FRACTION + 1e-9 ? NULL : "it keeps more than can be kept";
}

/* In the postmaster, at the start. */
static void
read_kept_file(void)
{
	FileContent content;
	FILE	   *file = pgscale_restart_file_open(KEPT_FILE);
	Size		size;
	const char *problem;
	struct stat there;

	if (file == NULL)
	{
		if (lstat(KEPT_FILE, &there) == 0)
			pgscale_sweeper_kept_list->problem = S_ISREG(there.st_mode) ? PGSCALE_KEPT_UNREAD : PGSCALE_KEPT_NO_FILE;
		return;
	}
	memset(&content, 0, sizeof(content));
	size = fread(&content, 1, sizeof(content), file);
	problem = ferror(file) || getc(file) != EOF ? "it could not be read, or is too long" : check_content(&content, size);
	FreeFile(file);
	if (problem)
	{
		pgscale_sweeper_kept_list->problem = PGSCALE_KEPT_IGNORED;
		ereport(LOG,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("ignoring file \"%s\": %s", KEPT_FILE, problem),
				 errdetail("No relation is kept."),
				 errhint("The next pgscale.keep() writes a new file.")));
		return;
	}
	for (uint32 i = 0; i < content.header.relations; i++)
	{
		PgscaleSweeperKept *kept = &pgscale_sweeper_kept_list->of[i];

		kept->database = content.of[i].database;
		kept->relation = content.of[i].relation;
		kept->table = content.of[i].table;
		kept->in_toast = content.of[i].in_toast != 0;
		kept->name = content.of[i].name;
		kept->fraction = content.of[i].fraction;
		kept->changes = 1;
		pgscale_sweeper_kept_list->counted_since[i] = GetCurrentTimestamp();
	}
	pgscale_sweeper_kept_list->relations = (int) content.header.relations;
	if (content.header.relations > 0)
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
			shared->stayed_before[place] = pgscale_sweeper_kept_stayed_at(place);
		}
	memcpy(shared->of, list, sizeof(shared->of));
	shared->relations = 0;
	for (int place = 0; place < PGSCALE_SWEEPER_KEPT_MOST; place++)
	{
		shared->class_hashes[place] = list[place].class_hash;
		shared->relations += OidIsValid(list[place].relation);
	}
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

uint64
pgscale_sweeper_kept_stayed_at(int place)
{
	uint64		stayed = 0;

	for (int worker = 0; worker < PGSCALE_SWEEPER_MAX_WORKERS; worker++)
		stayed += pgscale_sweeper_kept_list->counts[worker][place].stayed;
	return stayed;
}

void
pgscale_sweeper_kept_reset(void)
{
	PgscaleSweeperKeptList *shared = pgscale_sweeper_kept_list;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	for (int place = 0; place < PGSCALE_SWEEPER_KEPT_MOST; place++)
	{
		shared->counted_since[place] = GetCurrentTimestamp();
		shared->stayed_before[place] = pgscale_sweeper_kept_stayed_at(place);
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
	now->moves_along = !OidIsValid(class->reltablespace);
	now->class_hash = GetSysCacheHashValue1(RELOID, ObjectIdGetDatum(relation));
	now->found = true;
	ReleaseSysCache(tuple);
	return true;
}

void
pgscale_sweeper_kept_suspect(int place)
{
	suspects |= bit_of(place);
}

/* A session's caches no longer have a row of pg_class, or any, if that is 0. */
static void
class_changed(Datum arg, int cache, uint32 hash)
{
	const PgscaleSweeperKeptList *list = pgscale_sweeper_kept_list;

	if (list->relations == 0)
		return;
	for (int place = 0; place < PGSCALE_SWEEPER_KEPT_MOST; place++)
		if ((hash == 0 || list->class_hashes[place] == hash) && list->of[place].database == MyDatabaseId)
			suspects |= bit_of(place);
}

/* Before the commit: what is not sure, of this database. */
static void
look_at_list(void)
{
	PgscaleSweeperKept list[PGSCALE_SWEEPER_KEPT_MOST];

	/* another session may have changed it just now */
	AcceptInvalidationMessages();
	looking = true;
	looked_version = pg_atomic_read_u32(&pgscale_sweeper_kept_list->version);
	looked_suspects = suspects;
	suspects = 0;
	nfindings = 0;
	(void) pgscale_sweeper_kept_copy(list);
	for (int place = 0; place < PGSCALE_SWEEPER_KEPT_MOST; place++)
	{
		const PgscaleSweeperKept *kept = &list[place];
		Finding    *finding = &findings[nfindings];

		if (!OidIsValid(kept->relation) || kept->database != MyDatabaseId)
			continue;
		if (has_looked && kept->found && (looked_suspects & bit_of(place)) == 0 &&
			!(kept->moves_along && kept->file.spcOid != MyDatabaseTableSpace))
			continue;
		finding->place = place;
		finding->gone = !pgscale_sweeper_kept_look_up(kept, &finding->now);
		if (finding->gone)
			finding->now = *kept;
		nfindings++;
	}
}

/* Is that found other than the list has it? */
static bool
finding_differs(const Finding *finding, const PgscaleSweeperKept *kept)
{
	const PgscaleSweeperKept *now = &finding->now;

	return finding->gone || !kept->found || now->relation != kept->relation || now->table != kept->table ||
		strcmp(NameStr(now->name), NameStr(kept->name)) != 0 || now->moves_along != kept->moves_along ||
		!RelFileLocatorEquals(now->file, kept->file);
}

/*
 * After the commit, which nothing here may turn into an error: the list follows.  The file
 * is written if what it has of a relation is another.
 */
static void
follow_findings(void)
{
	PgscaleSweeperKept list[PGSCALE_SWEEPER_KEPT_MOST];
	bool		differs = false;
	bool		in_file = false;

	LWLockAcquire(pgscale_sweeper_kept_list->change_lock, LW_EXCLUSIVE);
	memcpy(list, pgscale_sweeper_kept_list->of, sizeof(list));
	for (int i = 0; i < nfindings; i++)
	{
		const Finding *finding = &findings[i];
		PgscaleSweeperKept *kept = &list[finding->place];

		if (!OidIsValid(kept->relation) || kept->database != MyDatabaseId || !finding_differs(finding, kept))
			continue;
		differs = true;
		if (kept->changes != finding->now.changes)
			kept->found = false;	/* to be looked up by the next transaction */
		else if (finding->gone)
		{
			kept->database = kept->relation = InvalidOid;
			in_file = true;
		}
		else
		{
			in_file |= finding->now.relation != kept->relation || strcmp(NameStr(finding->now.name), NameStr(kept->name)) != 0;
			*kept = finding->now;
		}
		kept->changes++;
	}
	if (in_file)
		write_kept_file(list, LOG);
	if (differs)
		publish_list(list);
	LWLockRelease(pgscale_sweeper_kept_list->change_lock);
}

/* In each process, at each end of a transaction. */
static void
kept_transaction_end(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			if ((suspects != 0 || pg_atomic_read_u32(&pgscale_sweeper_kept_list->version) != seen_version) &&
				OidIsValid(MyDatabaseId))
				look_at_list();
			break;
		case XACT_EVENT_COMMIT:
			if (!looking)
				break;
			looking = false;
			has_looked = true;
			seen_version = looked_version;
			if (nfindings > 0)
				follow_findings();
			break;
		case XACT_EVENT_ABORT:
			if (looking)
				suspects |= looked_suspects;
			looking = false;
			break;
		default:
			break;
	}
}

void
pgscale_sweeper_kept_request(void)
{
	RequestAddinShmemSpace(MAXALIGN(sizeof(PgscaleSweeperKeptList)));
	RequestNamedLWLockTranche(LOCK_TRANCHE, 2);
}

void
pgscale_sweeper_kept_startup(void)
{
	static bool follows = false;
	bool		there;

	pgscale_sweeper_kept_list = ShmemInitStruct("pgscale sweeper keep", sizeof(PgscaleSweeperKeptList), &there);
	if (there)
		return;
	memset(pgscale_sweeper_kept_list, 0, sizeof(PgscaleSweeperKeptList));
	pgscale_sweeper_kept_list->change_lock = &GetNamedLWLockTranche(LOCK_TRANCHE)[0].lock;
	pgscale_sweeper_kept_list->lock = &GetNamedLWLockTranche(LOCK_TRANCHE)[1].lock;
	pg_atomic_init_u32(&pgscale_sweeper_kept_list->version, 0);
	(void) unlink(KEPT_TEMP);
	read_kept_file();

	/* in the postmaster, once; its children have both of it */
	if (!follows)
	{
		RegisterXactCallback(kept_transaction_end, NULL);
		CacheRegisterSyscacheCallback(RELOID, class_changed, (Datum) 0);
	}
	follows = true;
}
