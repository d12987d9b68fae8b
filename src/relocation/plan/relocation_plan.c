/*-------------------------------------------------------------------------
 *
 * relocation_plan.c
 *	  What pgscale.relocation_plan() measures: how often each relation is read in a window, and sizes.
 *
 * The server counts the reads of each relation.  Two looks at all counts, a window
 * apart, give the reads in between; only relations that were read, built or rewritten
 * are kept.  The counts of TOAST tables and of their indexes are added to those of
 * their tables, with which they move.
 *
 * A function runs within a statement, whose snapshot holds back VACUUM and makes moves
 * wait.  So a window within relocation_plan() is short.  A longer one is watched by
 * the procedure relocation_watch(): between its looks it is in a new transaction
 * without a snapshot.  What it has seen stays in the session, for plans of any target
 * and budget.
 *
 * Cost.  A look is one scan of pg_class, and one look-up of statistics for each
 * relation, without a copy of all statistics: those are read as with
 * stats_fetch_consistency = none.  A snapshot of statistics that the transaction has
 * taken is discarded.  No relation other than pg_class is locked.
 *
 * The clock is monotonic: that of pg_sleep() can be set back.
 *
 * Sizes of a relation now, of what the kernel caches of it, of an index once it is rebuilt, and of a database in a tablespace:
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
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid_d.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_namespace_d.h"
#include "catalog/pg_statistic.h"
#include "catalog/pg_type_d.h"
#include "commands/defrem.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rls.h"
#include "utils/syscache.h"

#include "base/kernel.h"
#include "base/pg_compat.h"
#include "base/relation_files.h"
#include "base/sql.h"
#include "base/timer.h"
#include "base/units.h"

/* Between two looks for relations that are being built. */
#define PAUSE_MS			1000

#define MAX_WINDOW_MS		(24 * 60 * 60 * 1000)

PG_FUNCTION_INFO_V1(pgscale_relocation_watch);
PG_FUNCTION_INFO_V1(pgscale_relocation_window);

/* A relation at a look. */
typedef struct PlanCount
{
	Oid			relation;
	RelFileNumber file;
	Oid			toast;			/* its TOAST table, or InvalidOid */
	int64		reads;			/* so far */
} PlanCount;

typedef struct PlanLook
{
	int64		at_ns;
	double		read_ms;		/* of all reads of this database so far */
	TimestampTz reset_at;		/* when these statistics began */
	PlanCount  *count;			/* in the order of OIDs */
	int			n;
	int			room;
} PlanLook;

typedef struct PlanRead
{
	Oid			relation;
	double		reads;
	bool		built;			/* or rewritten, in the window */
} PlanRead;

typedef struct PlanWindow
{
	double		seconds;
	double		timed_ms;
	PlanRead   *read;
	int			n;
} PlanWindow;

/* What relocation_watch() saw last; NULL: nothing. */
static PlanWindow *watched = NULL;
static MemoryContext watched_context = NULL;

static int
by_relation(const void *a, const void *b)
{
	const Oid	left = *(const Oid *) a;
	const Oid	right = *(const Oid *) b;

	return left < right ? -1 : left > right;
}

static void
look_add(PlanLook *look, Form_pg_class class)
{
	PgStat_StatTabEntry *stats;
	PlanCount  *count;

	if (look->n == look->room)
		look->count = repalloc_huge(look->count, (look->room *= 2) * sizeof(PlanCount));
	count = &look->count[look->n++];
	count->relation = class->oid;
	count->file = class->relfilenode;
	count->toast = class->reltoastrelid;
	stats = pgscale_compat_relation_stats(class->oid);
	count->reads = stats ? stats->blocks_fetched - stats->blocks_hit : 0;
	if (stats)
		pfree(stats);
}

/* Takes a look, in this memory context. */
static void
look_take(PlanLook *look)
{
	const int	settings = NewGUCNestLevel();
	PgStat_StatDBEntry *database;
	Relation	pg_class;
	SysScanDesc scan;
	HeapTuple	tuple;

	(void) set_config_option("stats_fetch_consistency", "none", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	look->n = 0;
	look->room = 1024;
	look->count = palloc(look->room * sizeof(PlanCount));
	look->at_ns = pgscale_timer_clock();
	database = pgstat_fetch_stat_dbentry(MyDatabaseId);
	look->reset_at = database ? database->stat_reset_timestamp : 0;
	look->read_ms = DatumGetFloat8(DirectFunctionCall1(pg_stat_get_db_blk_read_time, ObjectIdGetDatum(MyDatabaseId)));

	pg_class = table_open(RelationRelationId, AccessShareLock);
	scan = systable_beginscan(pg_class, InvalidOid, false, NULL, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_class class = (Form_pg_class) GETSTRUCT(tuple);

		CHECK_FOR_INTERRUPTS();
		if (RELKIND_HAS_STORAGE(class->relkind) && !class->relisshared)
			look_add(look, class);
	}
	systable_endscan(scan);
	table_close(pg_class, AccessShareLock);
	AtEOXact_GUC(true, settings);
	pgstat_clear_snapshot();
	qsort(look->count, look->n, sizeof(PlanCount), by_relation);
}

/* Adds what is being built or rewritten now, index and table, to a list in this memory context. */
static List *
add_built(List *built)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext own = AllocSetContextCreate(caller, "pgscale builds", ALLOCSET_SMALL_SIZES);
	const int	settings = pgscale_sql_names();
	PgscaleRows rows;

	MemoryContextSwitchTo(own);
	pgstat_clear_snapshot();
	pgscale_sql_query("SELECT index_relid FROM pg_stat_progress_create_index WHERE datname = current_database()"
					  " UNION SELECT relid FROM pg_stat_progress_create_index WHERE datname = current_database()"
					  " UNION SELECT relid FROM pg_stat_progress_cluster WHERE datname = current_database()",
					  0, NULL, NULL, true, 0, &rows);
	AtEOXact_GUC(true, settings);
	MemoryContextSwitchTo(caller);
	for (int row = 0; row < rows.nrows; row++)
		built = list_append_unique_oid(built, atooid(pgscale_rows_text(&rows, row, 0)));
	MemoryContextDelete(own);
	return built;
}

/* The tables that have TOAST tables, in the order of the latter: file is the table. */
static PlanCount *
toast_owners(const PlanLook *look, int *n)
{
	PlanCount  *owners = MemoryContextAllocHuge(CurrentMemoryContext, Max(look->n, 1) * sizeof(PlanCount));

	*n = 0;
	for (int i = 0; i < look->n; i++)
		if (OidIsValid(look->count[i].toast))
		{
			owners[*n].relation = look->count[i].toast;
			owners[(*n)++].file = look->count[i].relation;
		}
	qsort(owners, *n, sizeof(PlanCount), by_relation);
	return owners;
}

/* The relation with which it moves. */
static Oid
moves_with(Oid relation, const PlanCount *owners, int n)
{
	Oid			toast = relation;
	const PlanCount *owner;

	if (get_rel_namespace(relation) != PG_TOAST_NAMESPACE)
		return relation;
	if (get_rel_relkind(relation) == RELKIND_INDEX)
		toast = IndexGetRelation(relation, true);
	owner = bsearch(&toast, owners, n, sizeof(PlanCount), by_relation);
	return owner ? owner->file : relation;
}

/* Makes one of the entries of each relation. */
static void
window_merge(PlanWindow *window)
{
	int			n = 0;

	qsort(window->read, window->n, sizeof(PlanRead), by_relation);
	for (int i = 0; i < window->n; i++)
	{
		const PlanRead *next = &window->read[i];

		if (n > 0 && window->read[n - 1].relation == next->relation)
		{
			window->read[n - 1].reads += next->reads;
			window->read[n - 1].built |= next->built;
		}
		else
			window->read[n++] = *next;
	}
	window->n = n;
}

/* What was read between two looks, in this memory context. */
static void
window_between(PlanWindow *window, const PlanLook *earlier, const PlanLook *later, const List *built)
{
	int			nowners;
	PlanCount  *owners = toast_owners(later, &nowners);
	int			room = 1024;

	window->seconds = (later->at_ns - earlier->at_ns) / (double) NS_PER_S;
	window->timed_ms = later->read_ms - earlier->read_ms;
	window->read = palloc(room * sizeof(PlanRead));
	window->n = 0;
	for (int i = 0; i < later->n; i++)
	{
		const PlanCount *after = &later->count[i];
		const PlanCount *before = bsearch(&after->relation, earlier->count, earlier->n, sizeof(PlanCount), by_relation);
		const bool	same = before && before->file == after->file;
		PlanRead	read = {
			.relation = after->relation,
			.reads = same ? Max(after->reads - before->reads, 0) : 0,
			.built = !same || list_member_oid(built, after->relation)
		};

		if (read.reads == 0 && !read.built)
			continue;
		if (window->n == room)
			window->read = repalloc_huge(window->read, (room *= 2) * sizeof(PlanRead));
		read.relation = moves_with(read.relation, owners, nowners);
		window->read[window->n++] = read;
	}
	pfree(owners);
	window_merge(window);
}

/*
 * Watches for that long.  release: between the looks without a snapshot, in the procedure of a
 * CALL that may commit, connected to SPI.  The result is in the memory context given.
 */
static void
window_watch(double duration_ms, bool release, MemoryContext context, PlanWindow *window)
{
	PlanLook	earlier;
	PlanLook	later;
	List	   *built = NIL;
	MemoryContext caller;

	look_take(&earlier);
	for (;;)
	{
		double		left_ms;

		built = add_built(built);
		left_ms = duration_ms - (pgscale_timer_clock() - earlier.at_ns) / (double) NS_PER_MS;
		if (left_ms <= 0)
			break;
		if (release)
			SPI_commit();
		pgscale_timer_pause((long) Min(left_ms + 1, PAUSE_MS));
	}
	look_take(&later);
	if (later.reset_at != earlier.reset_at)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("statistics were reset during the window"),
				 errhint("Ask again.")));
	caller = MemoryContextSwitchTo(context);
	window_between(window, &earlier, &later, built);
	MemoryContextSwitchTo(caller);
	pfree(earlier.count);
	pfree(later.count);
}

/* How long CALL relocation_watch() is to watch; raises an error where it cannot. */
static double
watch_begin(FunctionCallInfo fcinfo)
{
	double		ms;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("duration must not be null"),
				 errhint("Say for how long to watch, such as interval '10 minutes'.")));
	ms = pgscale_interval_ms(PG_GETARG_INTERVAL_P(0));
	if (!(ms >= 1 && ms <= MAX_WINDOW_MS))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("duration must be from a millisecond to a day"),
				 errhint("Name a time in which the server does its usual work, such as interval '10 minutes'.")));
	if (!has_privs_of_role(GetUserId(), ROLE_PG_MONITOR))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to watch reads"),
				 errhint("Beside EXECUTE on this procedure, it takes pg_monitor.")));
	if (castNode(CallContext, fcinfo->context)->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("relocation_watch() cannot run inside a transaction block"),
				 errdetail("The transaction would hold back VACUUM while it watches."),
				 errhint("CALL it on its own, after COMMIT.")));
	return ms;
}

/* CALL pgscale.relocation_watch(duration, relations_read): for relocation_plan(..., NULL) in this session. */
Datum
pgscale_relocation_watch(PG_FUNCTION_ARGS)
{
	const double ms = watch_begin(fcinfo);
	PlanWindow *window;
	TupleDesc	tupdesc;
	int64		read = 0;
	Datum		value;
	bool		isnull = false;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (watched_context)
		MemoryContextDelete(watched_context);
	watched = NULL;
	watched_context = AllocSetContextCreate(TopMemoryContext, "pgscale window of reads", ALLOCSET_SMALL_SIZES);
	window = MemoryContextAlloc(watched_context, sizeof(PlanWindow));
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	window_watch(ms, true, watched_context, window);
	SPI_finish();
	watched = window;
	for (int i = 0; i < window->n; i++)
		read += window->read[i].reads > 0;
	value = Int64GetDatum(read);
	return HeapTupleGetDatum(heap_form_tuple(tupdesc, &value, &isnull));
}

static Datum
array_or_empty(Datum *values, int n, Oid type, int length, char align)
{
	if (n == 0)
		return PointerGetDatum(construct_empty_array(type));
	return PointerGetDatum(construct_array(values, n, type, length, true, align));
}

static HeapTuple
window_row(const PlanWindow *window, TupleDesc tupdesc)
{
	Datum		values[5];
	bool		nulls[5] = {0};
	Datum	   *column = MemoryContextAllocHuge(CurrentMemoryContext, Max(window->n, 1) * sizeof(Datum));

	values[0] = Float8GetDatum(window->seconds);
	values[1] = Float8GetDatum(window->timed_ms);
	for (int i = 0; i < window->n; i++)
		column[i] = ObjectIdGetDatum(window->read[i].relation);
	values[2] = array_or_empty(column, window->n, OIDOID, sizeof(Oid), TYPALIGN_INT);
	for (int i = 0; i < window->n; i++)
		column[i] = Float8GetDatum(window->read[i].reads);
	values[3] = array_or_empty(column, window->n, FLOAT8OID, sizeof(float8), TYPALIGN_DOUBLE);
	for (int i = 0; i < window->n; i++)
		column[i] = BoolGetDatum(window->read[i].built);
	values[4] = array_or_empty(column, window->n, BOOLOID, sizeof(bool), TYPALIGN_CHAR);
	pfree(column);
	return heap_form_tuple(tupdesc, values, nulls);
}

/* pgscale_internal.relocation_window(duration_ms): NULL: what relocation_watch() saw in this session. */
Datum
pgscale_relocation_window(PG_FUNCTION_ARGS)
{
	PlanWindow	window;
	TupleDesc	tupdesc;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (!PG_ARGISNULL(0))
		window_watch(PG_GETARG_FLOAT8(0), false, CurrentMemoryContext, &window);
	else if (watched)
		window = *watched;
	else
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("no window was watched in this session"),
				 errhint("CALL pgscale.relocation_watch('10 minutes') watches one; or name a duration.")));
	return HeapTupleGetDatum(window_row(&window, tupdesc));
}

/*
 * Sizes
 */

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
