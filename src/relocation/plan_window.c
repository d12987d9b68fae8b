/*-------------------------------------------------------------------------
 *
 * plan_window.c
 *	  The window of pgscale.relocation_plan(): how often each relation is read in it.
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
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/index.h"
#include "catalog/pg_authid_d.h"
#include "catalog/pg_class.h"
#include "catalog/pg_namespace_d.h"
#include "catalog/pg_type_d.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "pgstat.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "base/pg_compat.h"
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
