/*-------------------------------------------------------------------------
 *
 * relocation_plan.c
 *	  What pgscale.relocation_plan() measures: how often each relation is read in a window, and sizes.
 *
 * The server counts the reads of each relation.  Two looks at all counts, a window
 * apart, give the reads in between: relocation_look() and relocation_between() in plan.sql.
 *
 * A function runs within a statement, whose snapshot holds back VACUUM and makes moves
 * wait.  So a window within relocation_plan() is short.  A longer one is watched by
 * the procedure relocation_watch(): between its looks it is in a new transaction
 * without a snapshot.  What it has seen stays in the session, for plans of any target
 * and budget.
 *
 * Cost.  A look is one scan of pg_class, and one look-up of statistics for each
 * relation, without a copy of all statistics.  A snapshot of statistics that the transaction has
 * taken is discarded.  No relation of users is locked.
 *
 * The clock is monotonic: that of pg_sleep() can be set back.
 *
 * Sizes of a relation now, of what the kernel caches of it, and of a database in a tablespace:
 * relocation_plan() asks for each relation that was read, so nothing here looks at more
 * than what it is asked for.  No relation is locked: pg_relation_size() would wait for a session that has
 * locked it.  A relation that is gone has no bytes.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid_d.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type_d.h"
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
#include "utils/memutils.h"
#include "utils/snapmgr.h"
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

PG_FUNCTION_INFO_V1(pgscale_relocation_reads);
PG_FUNCTION_INFO_V1(pgscale_relocation_watch);
PG_FUNCTION_INFO_V1(pgscale_relocation_window);

typedef struct PlanLook
{
	int64		at_ns;
	PgscaleRows rows;			/* of relocation_look() */
} PlanLook;

/* The columns of relocation_window(), as text. */
#define WINDOW_COLUMNS	5

typedef struct PlanWindow
{
	char	   *columns[WINDOW_COLUMNS];
	char	   *relations_read;
} PlanWindow;

/* What relocation_watch() saw last; NULL: nothing. */
static PlanWindow *watched = NULL;
static MemoryContext watched_context = NULL;

/* pgscale_internal.relocation_reads(relation): so far; of one copy of its statistics, which others change meanwhile. */
Datum
pgscale_relocation_reads(PG_FUNCTION_ARGS)
{
	const PgStat_StatTabEntry *stats = pgscale_compat_relation_stats(PG_GETARG_OID(0));

	PG_RETURN_INT64(stats ? stats->blocks_fetched - stats->blocks_hit : 0);
}

/* Sees what is so now, also in a transaction whose snapshot is from before the window. */
static void
plan_query(const char *query, int nargs, const Oid *types, const Datum *values, PgscaleRows *rows)
{
	pgstat_clear_snapshot();
	PushActiveSnapshot(GetLatestSnapshot());
	pgscale_sql_query(query, nargs, types, values, rows);
	PopActiveSnapshot();
}

/* Takes a look, in this memory context. */
static void
look_take(PlanLook *look)
{
	look->at_ns = pgscale_timer_clock();
	plan_query("SELECT relations, files, reads, read_us, reset_at FROM pgscale_internal.relocation_look()", 0, NULL, NULL, &look->rows);
}

/* Adds what is being built or rewritten now, index and table, to a list in this memory context. */
static List *
add_built(List *built)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext own = AllocSetContextCreate(caller, "pgscale builds", ALLOCSET_SMALL_SIZES);
	PgscaleRows rows;

	MemoryContextSwitchTo(own);
	plan_query("SELECT index_relid FROM pg_stat_progress_create_index WHERE datname = current_database()"
			   " UNION SELECT relid FROM pg_stat_progress_create_index WHERE datname = current_database()"
			   " UNION SELECT relid FROM pg_stat_progress_cluster WHERE datname = current_database()",
			   0, NULL, NULL, &rows);
	MemoryContextSwitchTo(caller);
	for (int row = 0; row < rows.nrows; row++)
		built = list_append_unique_oid(built, atooid(pgscale_rows_text(&rows, row, 0)));
	MemoryContextDelete(own);
	return built;
}

/* What was read between two looks, in that memory context. */
static void
window_between(PlanWindow *window, const PlanLook *earlier, const PlanLook *later, List *built, MemoryContext context)
{
	static const Oid types[] = {TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, OIDARRAYOID};
	Datum		values[lengthof(types)];
	Datum	   *oids = palloc((list_length(built) + 1) * sizeof(Datum));
	int			n = 0;
	MemoryContext caller = CurrentMemoryContext;
	PgscaleRows rows;
	ListCell   *cell;

	for (int i = 0; i < 3; i++)
	{
		values[i] = CStringGetTextDatum(pgscale_rows_text(&earlier->rows, 0, i));
		values[i + 3] = CStringGetTextDatum(pgscale_rows_text(&later->rows, 0, i));
	}
	foreach(cell, built)
		oids[n++] = ObjectIdGetDatum(lfirst_oid(cell));
	values[6] = PointerGetDatum(construct_array(oids, n, OIDOID, sizeof(Oid), true, TYPALIGN_INT));
	plan_query("SELECT relations, reads, built, relations_read FROM pgscale_internal.relocation_between("
			   "$1::oid[], $2::oid[], $3::bigint[], $4::oid[], $5::oid[], $6::bigint[], $7)", lengthof(types), types, values, &rows);
	MemoryContextSwitchTo(context);
	window->columns[0] = psprintf("%.17g", (later->at_ns - earlier->at_ns) / (double) NS_PER_S);
	window->columns[1] = psprintf("%.17g", (atoll(pgscale_rows_text(&later->rows, 0, 3)) -
											atoll(pgscale_rows_text(&earlier->rows, 0, 3))) / 1000.0);
	for (int i = 0; i < 3; i++)
		window->columns[2 + i] = pstrdup(pgscale_rows_text(&rows, 0, i));
	window->relations_read = pstrdup(pgscale_rows_text(&rows, 0, 3));
	MemoryContextSwitchTo(caller);
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
	if (strcmp(pgscale_rows_text(&later.rows, 0, 4), pgscale_rows_text(&earlier.rows, 0, 4)) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("statistics were reset during the window"),
				 errhint("Repeat the call.")));
	window_between(window, &earlier, &later, built, context);
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
				 errhint("It is the time to watch, such as interval '10 minutes'.")));
	ms = pgscale_interval_ms(PG_GETARG_INTERVAL_P(0));
	if (!(ms >= 1 && ms <= MAX_WINDOW_MS))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("duration must be from a millisecond to a day"),
				 errhint("Choose a time with the usual load, such as interval '10 minutes'.")));
	if (!has_privs_of_role(GetUserId(), ROLE_PG_MONITOR))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to watch reads"),
				 errhint("This procedure needs membership in pg_monitor in addition to EXECUTE.")));
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
	return HeapTupleGetDatum(BuildTupleFromCStrings(TupleDescGetAttInMetadata(tupdesc), &window->relations_read));
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
				 errhint("CALL pgscale.relocation_watch('10 minutes') first, or give a duration.")));
	return HeapTupleGetDatum(BuildTupleFromCStrings(TupleDescGetAttInMetadata(tupdesc), window.columns));
}

/*
 * Sizes
 */

PG_FUNCTION_INFO_V1(pgscale_relocation_bytes);
PG_FUNCTION_INFO_V1(pgscale_relocation_database_bytes);

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

/* Bytes of all files of a relation; *toast: its TOAST table. */
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

/* Bytes of a TOAST table and its index. */
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
