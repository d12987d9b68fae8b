/*-------------------------------------------------------------------------
 *
 * plan_sizes.c
 *	  Sizes: of a relation now, what the kernel caches of it, that of an index once it is
 *	  rebuilt, and that of a database in a tablespace.
 *
 * relocation_plan() asks for each relation that was read, so nothing here looks at more
 * than what it is asked for.  No relation is locked: pg_relation_size() would wait for a session that has
 * locked it.  A relation that is gone has no bytes.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>
#include <sys/stat.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/reloptions.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid_d.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_statistic.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/rls.h"
#include "utils/syscache.h"

#include "base/kernel.h"
#include "base/pg_compat.h"
#include "base/relation_files.h"

/* Of a btree: a page's header and special space; its fill unless the index says otherwise, and that of inner pages. */
#define PAGE_OVERHEAD		40
#define DEFAULT_FILL		0.9
#define INNER_FILL			0.7

PG_FUNCTION_INFO_V1(pgscale_relocation_bytes);
PG_FUNCTION_INFO_V1(pgscale_relocation_database_bytes);
PG_FUNCTION_INFO_V1(pgscale_relocation_btree_bytes);

/* A segment's size, or how much the kernel caches of it; *size: its size, -1 if there is none. */
static int64
segment_bytes(const char *path, bool cached, off_t *size)
{
	struct stat file;
	PgscaleCached kernel;
	int64		bytes = 0;
	int			fd;

	*size = -1;
	if (!cached)
	{
		if (stat(path, &file) == 0)
			*size = file.st_size;
		return Max(*size, 0);
	}
	fd = pgscale_relation_file_open(path);
	if (fd < 0)
		return 0;
	if (fstat(fd, &file) == 0)
		*size = file.st_size;
	if (*size > 0 && pgscale_kernel_cached(fd, 0, *size, &kernel))
		bytes = Min(kernel.cached, *size);
	CloseTransientFile(fd);
	return bytes;
}

/* The same of all files of a relation; *toast: its TOAST table. */
static int64
files_bytes(Oid relation, bool cached, Oid *toast)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Form_pg_class class;
	RelFileLocator locator;
	ProcNumber	backend = INVALID_PROC_NUMBER;
	int64		bytes = 0;

	*toast = InvalidOid;
	if (!HeapTupleIsValid(tuple))
		return 0;
	class = (Form_pg_class) GETSTRUCT(tuple);
	*toast = class->reltoastrelid;
	locator = pgscale_relation_locator(class);
	if (class->relpersistence == RELPERSISTENCE_TEMP)
		backend = isTempOrTempToastNamespace(class->relnamespace) ? ProcNumberForTempRelations() :
			GetTempNamespaceProcNumber(class->relnamespace);
	if (RELKIND_HAS_STORAGE(class->relkind))
		for (ForkNumber fork = 0; fork <= MAX_FORKNUM; fork++)
		{
			off_t		size = PGSCALE_SEGMENT_BYTES;

			/* what lies beyond a segment that is not full was truncated */
			for (uint32 segment = 0; size == PGSCALE_SEGMENT_BYTES; segment++)
			{
				char		path[MAXPGPATH];

				CHECK_FOR_INTERRUPTS();
				pgscale_relation_file_path(path, locator, backend, fork, segment);
				bytes += segment_bytes(path, cached, &size);
			}
		}
	ReleaseSysCache(tuple);
	return bytes;
}

/* The same of a TOAST table and its index. */
static int64
toast_bytes(Oid toast, bool cached)
{
	Relation	pg_index = table_open(IndexRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	Oid			none;
	int64		bytes = files_bytes(toast, cached, &none);

	ScanKeyInit(&key, Anum_pg_index_indrelid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(toast));
	scan = systable_beginscan(pg_index, IndexIndrelidIndexId, true, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		bytes += files_bytes(((Form_pg_index) GETSTRUCT(tuple))->indexrelid, cached, &none);
	systable_endscan(scan);
	table_close(pg_index, AccessShareLock);
	return bytes;
}

/*
 * pgscale_internal.relocation_bytes(relation, toast, cached): of all its files; toast: and those of
 * its TOAST table; cached: only what the kernel has of them.
 */
Datum
pgscale_relocation_bytes(PG_FUNCTION_ARGS)
{
	const bool	cached = PG_GETARG_BOOL(2);
	Oid			toast;
	int64		bytes = files_bytes(PG_GETARG_OID(0), cached, &toast);

	if (PG_GETARG_BOOL(1) && OidIsValid(toast))
		bytes += toast_bytes(toast, cached);
	PG_RETURN_INT64(bytes);
}

/* pgscale_internal.relocation_database_bytes(tablespace, database): of the files of a database there; NULL if the role may not know. */
Datum
pgscale_relocation_database_bytes(PG_FUNCTION_ARGS)
{
	const Oid	database = PG_GETARG_OID(1);
	char		folder[MAXPGPATH];
	char		path[MAXPGPATH * 2];
	DIR		   *dir;
	struct dirent *entry;
	struct stat file;
	int64		bytes = 0;

	/* as pg_database_size(), but without an error */
	if (!SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(database)) ||
		!(has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ||
		  DatumGetBool(DirectFunctionCall2(has_database_privilege_id, ObjectIdGetDatum(database), CStringGetTextDatum("CONNECT")))))
		PG_RETURN_NULL();
	pgscale_relation_files_folder(folder, PG_GETARG_OID(0));
	snprintf(path, sizeof(path), "%s/%u", folder, database);
	strlcpy(folder, path, sizeof(folder));
	dir = AllocateDir(folder);
	if (dir == NULL)
		PG_RETURN_INT64(0);
	while ((entry = ReadDirExtended(dir, folder, DEBUG1)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		if (stat(path, &file) == 0 && S_ISREG(file.st_mode))
			bytes += file.st_size;
	}
	FreeDir(dir);
	PG_RETURN_INT64(bytes);
}

/* What ANALYZE has found of a column, for roles that pg_stats would show it to. */
static bool
column_width(Oid relation, AttrNumber column, double *nulls, double *width)
{
	HeapTuple	tuple;
	Form_pg_statistic statistic;

	if ((pg_class_aclcheck(relation, GetUserId(), ACL_SELECT) != ACLCHECK_OK &&
		 pg_attribute_aclcheck(relation, column, GetUserId(), ACL_SELECT) != ACLCHECK_OK) ||
		check_enable_rls(relation, InvalidOid, true) == RLS_ENABLED)
		return false;
	tuple = SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(relation), Int16GetDatum(column), BoolGetDatum(false));
	if (!HeapTupleIsValid(tuple))
		return false;
	statistic = (Form_pg_statistic) GETSTRUCT(tuple);
	*nulls = statistic->stanullfrac;
	*width = statistic->stawidth;
	ReleaseSysCache(tuple);
	return true;
}

/*
 * A tuple of the index: header, 8 bytes more with a map of nulls; key, aligned; line pointer.
 * 0 if the width of a column is unknown.
 */
static double
index_tuple_bytes(Form_pg_index index)
{
	double		key = 0;
	bool		any_null = false;

	for (int i = 0; i < index->indnatts; i++)
	{
		const AttrNumber column = index->indkey.values[i];
		double		nulls;
		double		width;

		/* an expression's statistics are the index's, by its own column */
		if (!(column == 0 ? column_width(index->indexrelid, i + 1, &nulls, &width) :
			  column_width(index->indrelid, column, &nulls, &width)))
			return 0;
		any_null |= nulls > 0;
		key += width * (1 - nulls);
	}
	return (any_null ? 16 : 8) + 8 * ceil(key / 8) + 4;
}

static double
index_fill(Oid index)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(index));
	double		fill = DEFAULT_FILL;
	Datum		options;
	bool		isnull;
	ListCell   *cell;

	if (!HeapTupleIsValid(tuple))
		return fill;
	options = SysCacheGetAttr(RELOID, tuple, Anum_pg_class_reloptions, &isnull);
	foreach(cell, isnull ? NIL : untransformRelOptions(options))
	{
		DefElem    *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, "fillfactor") == 0)
			fill = atof(defGetString(option)) / 100;
	}
	ReleaseSysCache(tuple);
	return fill;
}

/*
 * pgscale_internal.relocation_btree_bytes(index, tuples): the size of a btree index of that many
 * tuples that is built anew; NULL unless ANALYZE has the width of each column.
 */
Datum
pgscale_relocation_btree_bytes(PG_FUNCTION_ARGS)
{
	HeapTuple	index = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(PG_GETARG_OID(0)));
	const double tuples = PG_GETARG_FLOAT8(1);
	double		bytes;
	double		fanout;
	double		leaves;

	if (!HeapTupleIsValid(index))
		PG_RETURN_NULL();
	bytes = index_tuple_bytes((Form_pg_index) GETSTRUCT(index));
	ReleaseSysCache(index);
	if (bytes == 0)
		PG_RETURN_NULL();
	/* a leaf has a high key; one page is meta */
	leaves = ceil(tuples / Max(floor((BLCKSZ * index_fill(PG_GETARG_OID(0)) - PAGE_OVERHEAD) / bytes) - 1, 1));
	fanout = floor((BLCKSZ - PAGE_OVERHEAD) * INNER_FILL / bytes);
	PG_RETURN_FLOAT8((2 + ceil(leaves * fanout / Max(fanout - 1, 1))) * BLCKSZ);
}
