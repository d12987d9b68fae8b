/*-------------------------------------------------------------------------
 *
 * checks.c
 *	  Checks before a move: is it possible, and is it possible now?
 *
 * Everything that REINDEX or ALTER TABLE would refuse is refused here, before there is
 * a job, with a hint.  Both commands check again themselves.
 *
 * Room.  A new index is about as large as the old one, or smaller; a fifth more is
 * required.  The move is also written to the WAL, which the server recycles once it has max_wal_size, unless
 * something holds it back.
 *
 * Waiting.  REINDEX CONCURRENTLY waits for all transactions that could still see the
 * table without the new index, and at its end for all older snapshots of this
 * database.  Starting while a transaction is open for hours would build an index that
 * must then be maintained for hours, for nothing.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include "access/htup_details.h"
#include "access/xlog.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_index.h"
#include "catalog/pg_tablespace_d.h"
#include "catalog/pg_type_d.h"
#include "commands/defrem.h"
#include "commands/tablespace.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "base/extension_function.h"
#include "base/pg_compat.h"
#include "base/relation_files.h"
#include "base/units.h"
#include "base/wal_disk.h"
#include "relocation/checks.h"
#include "relocation/online/pace.h"
#include "relocation/online/relocation_wal.h"
#include "relocation/relocation.h"

PG_FUNCTION_INFO_V1(pgscale_relocation_may_move_online);

/* Room for WAL while something holds it back, until the worker looks at the room again. */
#define WAL_AT_LEAST	(256 * PGSCALE_MB)

/* Of what is asked for, in fifths. */
#define ROOM_FIFTHS		6

Oid
pgscale_relocation_tablespace_of(Oid relation)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Oid			tablespace;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	tablespace = ((Form_pg_class) GETSTRUCT(tuple))->reltablespace;
	ReleaseSysCache(tuple);
	return OidIsValid(tablespace) ? tablespace : MyDatabaseTableSpace;
}

Oid
pgscale_relocation_am_of(Oid relation)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Oid			am;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	am = ((Form_pg_class) GETSTRUCT(tuple))->relam;
	ReleaseSysCache(tuple);
	return am;
}

int64
pgscale_relocation_size_of(Oid relation)
{
	return DatumGetInt64(DirectFunctionCall1(pg_table_size, ObjectIdGetDatum(relation)));
}

void
pgscale_relocation_check_there(Oid relation, bool is_table)
{
	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relation)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the %s was dropped", is_table ? "table" : "index")));
}

Oid
pgscale_relocation_tablespace_named(const char *name)
{
	Oid			tablespace = get_tablespace_oid(name, true);

	if (!OidIsValid(tablespace))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("tablespace \"%s\" does not exist", name),
				 errhint("pg_tablespace lists the tablespaces; CREATE TABLESPACE creates one.")));
	return tablespace;
}

void
pgscale_relocation_check_target(Oid tablespace)
{
	char	   *name = get_tablespace_name(tablespace);
	char		folder[MAXPGPATH];
	struct stat st;

	if (!name)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the tablespace was dropped"),
				 errhint("Name a tablespace of pg_tablespace.")));
	if (tablespace == GLOBALTABLESPACE_OID)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("only shared relations can be placed in tablespace \"%s\"", name),
				 errhint("Name another tablespace of pg_tablespace.")));
	/* the database's own one needs no privilege */
	if (tablespace != MyDatabaseTableSpace && !pgscale_may_create_in(tablespace))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for tablespace \"%s\"", name),
				 errhint("GRANT CREATE ON TABLESPACE gives the permission.")));
	/* not that of the mount point, which is there without its disk */
	pgscale_relation_files_folder(folder, tablespace);
	if (stat(folder, &st) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not find the folder of tablespace \"%s\": %m", name),
				 errhint("Is its disk mounted?")));
}

/* Is it stored in files of its own, that are not the system's? */
static bool
check_class(Oid relation, Form_pg_class class, Oid target, int elevel)
{
	const char *name = NameStr(class->relname);

	if (class->relpersistence == RELPERSISTENCE_TEMP)
	{
		ereport(elevel,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("\"%s\" belongs to a temporary table, which cannot be moved", name),
				 errhint("The setting temp_tablespaces determines where temporary tables are created.")));
		return false;
	}
	if (class->relnamespace == get_namespace_oid("pgscale_internal", true))
	{
		ereport(elevel,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("\"%s\" belongs to pgscale itself, which does not move its own relations", name),
				 errhint("ALTER INDEX or ALTER TABLE ... SET TABLESPACE moves it, and blocks all use of it meanwhile.")));
		return false;
	}
	if (IsSystemClass(relation, class))
	{
		ereport(elevel,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("\"%s\" is a system relation, which cannot be moved", name),
				 errhint("A TOAST table moves with its table, and its index with it.")));
		return false;
	}
	if (pgscale_relocation_tablespace_of(relation) == target)
	{
		ereport(elevel,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"%s\" is already in tablespace \"%s\"", name, get_tablespace_name(target)),
				 errhint("Name another tablespace.")));
		return false;
	}
	return true;
}

/* Do the WAL records of this access method name each block that they change? */
static bool
am_is_known(Oid am)
{
	static const char *const known[] = {"heap", "btree", "hash", "gist", "gin", "spgist", "brin", "bloom"};
	const char *name = get_am_name(am);

	for (int i = 0; name && i < lengthof(known); i++)
		if (strcmp(name, known[i]) == 0)
			return true;
	return false;
}

bool
pgscale_relocation_check_online(Oid relation, int elevel)
{
	const char	kind = get_rel_relkind(relation);
	const bool	is_index = kind == RELKIND_INDEX || kind == RELKIND_PARTITIONED_INDEX;
	const char *name = get_rel_name(relation);

	if (!RELKIND_HAS_STORAGE(kind))
		return true;
	if (get_rel_persistence(relation) == RELPERSISTENCE_UNLOGGED)
	{
		ereport(elevel,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("\"%s\" is unlogged, so an online move cannot follow its changes", name),
				 errhint(is_index ? "pgscale.relocate_indexes(..., mode => 'rebuild') moves an unlogged index." :
						 "pgscale.relocate_table(..., mode => 'lock') moves an unlogged table, and blocks all use of it meanwhile.")));
		return false;
	}
	if (!am_is_known(pgscale_relocation_am_of(relation)))
	{
		ereport(elevel,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("\"%s\" has access method \"%s\", which may log changes that a copy cannot follow", name,
						get_am_name(pgscale_relocation_am_of(relation))),
				 errhint(is_index ? "pgscale.relocate_indexes(..., mode => 'rebuild') rebuilds the index." :
						 "pgscale.relocate_table(..., mode => 'lock') moves the table, and blocks all use of it meanwhile.")));
		return false;
	}
	return true;
}

/* pgscale_internal.relocation_may_move_online(relation) */
Datum
pgscale_relocation_may_move_online(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(pgscale_relocation_check_online(PG_GETARG_OID(0), DEBUG5));
}

static bool
check_index(Form_pg_class class, Form_pg_index index, const PgscaleRelocationJob *job, int elevel)
{
	const char *name = NameStr(class->relname);

	if (job->mode == PGSCALE_RELOCATE_ONLINE && !pgscale_owns_relation(index->indexrelid))
	{
		ereport(elevel,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of index \"%s\"", name),
				 pgscale_compat_may_reindex(index->indexrelid, index->indrelid)
				 ? errhint("pgscale.relocate_indexes(..., mode => 'rebuild') moves it with the privilege MAINTAIN.")
				 : errhint("Ask its owner, or a superuser, to move it.")));
		return false;
	}
	if (!pgscale_compat_may_reindex(index->indexrelid, index->indrelid))
	{
		ereport(elevel,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of index \"%s\"", name),
				 errhint("From PostgreSQL 17 on, the privilege MAINTAIN on its table is enough.")));
		return false;
	}
	if (!check_class(index->indexrelid, class, job->target, elevel))
		return false;
	if (!index->indisvalid || !index->indisready || !index->indislive)
	{
		ereport(elevel,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("index \"%s\" is not valid", name),
				 class->relkind == RELKIND_PARTITIONED_INDEX
				 ? errhint("ALTER INDEX ... ATTACH PARTITION attaches the indexes of its partitions.")
				 : errhint("An interrupted CREATE INDEX or REINDEX CONCURRENTLY has left it: drop it, or REINDEX it, first.")));
		return false;
	}
	if (job->mode == PGSCALE_RELOCATE_ONLINE)
		return pgscale_relocation_check_online(index->indexrelid, elevel);
	if (index->indisexclusion)
	{
		ereport(elevel,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 index->indisunique
				 ? errmsg("index \"%s\" belongs to a key WITHOUT OVERLAPS, which cannot be built concurrently", name)
				 : errmsg("index \"%s\" belongs to an exclusion constraint, which cannot be built concurrently", name),
				 class->relpersistence == RELPERSISTENCE_PERMANENT
				 ? errhint("pgscale.relocate_indexes(..., mode => 'online') moves it.")
				 : errhint("ALTER INDEX ... SET TABLESPACE moves it, and blocks all use of its table meanwhile.")));
		return false;
	}
	return true;
}

static void
relocation_raise_no_relation(Oid oid)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("relation with OID %u does not exist", oid),
			 errhint("Name a relation of the database that you are connected to.")));
}

void
pgscale_relocation_check_is_table(Oid relation)
{
	switch (get_rel_relkind(relation))
	{
		case RELKIND_RELATION:
		case RELKIND_MATVIEW:
		case RELKIND_TOASTVALUE:
		case RELKIND_PARTITIONED_TABLE:
			break;
		case '\0':
			relocation_raise_no_relation(relation);
			break;
		default:
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("\"%s\" is not a table", get_rel_name(relation)),
					 errhint("Name a table, a partitioned table or a materialized view; for relocate_indexes(), also an index.")));
	}
}

bool
pgscale_relocation_check(const PgscaleRelocationJob *job, int elevel)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(job->relation));
	HeapTuple	index = job->is_table ? NULL : SearchSysCache1(INDEXRELID, ObjectIdGetDatum(job->relation));
	Form_pg_class class;
	bool		fit;

	if (!HeapTupleIsValid(tuple) || (!job->is_table && !HeapTupleIsValid(index)))
		relocation_raise_no_relation(job->relation);
	class = (Form_pg_class) GETSTRUCT(tuple);
	if (!job->is_table)
	{
		fit = check_index(class, (Form_pg_index) GETSTRUCT(index), job, elevel);
		ReleaseSysCache(index);
	}
	else if (!pgscale_owns_relation(job->relation))
	{
		ereport(elevel,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of table \"%s\"", NameStr(class->relname)),
				 errhint("Ask its owner, or a superuser, to move it.")));
		fit = false;
	}
	else
		fit = check_class(job->relation, class, job->target, elevel) &&
			(job->mode != PGSCALE_RELOCATE_ONLINE || pgscale_relocation_check_online(job->relation, elevel));
	ReleaseSysCache(tuple);
	return fit;
}

void
pgscale_relocation_check_job(const PgscaleRelocationJob *job)
{
	pgscale_relocation_check_there(job->relation, job->is_table);
	pgscale_relocation_check_target(job->target);
	(void) pgscale_relocation_check(job, ERROR);
}

int64
pgscale_relocation_free_bytes(const char *folder, dev_t *device)
{
	struct statvfs space;
	struct stat st;

	if (statvfs(folder, &space) != 0 || stat(folder, &st) != 0)
		return -1;
	*device = st.st_dev;
	return (int64) space.f_bavail * space.f_frsize;
}

static void
tablespace_check_room(const char *what, int64 room, int64 needed)
{
	if (room >= 0 && room < needed)
		ereport(ERROR,
				(errcode(ERRCODE_DISK_FULL),
				 errmsg("not enough free space %s: " INT64_FORMAT " MB are free, " INT64_FORMAT " MB are needed",
						what, room / PGSCALE_MB, (needed + PGSCALE_MB - 1) / PGSCALE_MB),
				 errdetail("A move needs 1.2 times the size in the tablespace, and room for its WAL up to max_wal_size."),
				 errhint("Free some space, or move less at a time.")));
}

int64
pgscale_relocation_wal_growth(int64 bytes)
{
	return Min(bytes, Max(max_wal_size_mb * PGSCALE_MB - pgscale_wal_disk_used(), WAL_AT_LEAST));
}

void
pgscale_relocation_check_space(Oid tablespace, int64 bytes, bool logged, bool online)
{
	int64		needed = bytes / 5 * ROOM_FIFTHS;
	int64		wal = logged ? pgscale_relocation_wal_growth(bytes) : 0;
	dev_t		device = 0;
	dev_t		wal_device = 0;
	int64		wal_room = pgscale_relocation_free_bytes("pg_wal", &wal_device);
	char		folder[MAXPGPATH];
	char		who[128];
	int64		room;

	pgscale_relation_files_folder(folder, tablespace);
	room = pgscale_relocation_free_bytes(folder, &device);
	if (device == wal_device)
		wal_room -= needed;
	/* an online move pauses before it is full, and goes on when there is room */
	if (online && wal_room >= 0 && wal_room < wal && pgscale_relocation_wal_held_back(wal - wal_room, who, sizeof(who)))
		wal = 0;
	if (device == wal_device)
		needed += wal;
	else
		tablespace_check_room("for the WAL", wal_room, wal);
	tablespace_check_room(psprintf("in tablespace \"%s\"", get_tablespace_name(tablespace)), room, needed);
}

char *
pgscale_relocation_obstacle(const PgscaleRelocationJob *job)
{
	static const Oid types[] = {OIDOID, BOOLOID, INT4OID};
	const bool	online = job->mode == PGSCALE_RELOCATE_ONLINE;
	const Datum values[] = {
		ObjectIdGetDatum(online ? job->relation : job->heap),
		BoolGetDatum(online),
		Int32GetDatum(pgscale_relocation_max_transaction_age)
	};
	char		why[192];

	if (pgscale_relocation_pace_must_wait(why, sizeof(why)))
		return pstrdup(why);
	/* an online move looks before each piece */
	if (!online && pgscale_relocation_wal_slot_at_risk(job->bytes, true, why, sizeof(why)))
		return pstrdup(why);
	return pgscale_extension_own_text("relocation_obstacle", lengthof(types), types, values);
}
