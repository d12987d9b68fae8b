/*-------------------------------------------------------------------------
 *
 * requests.c
 *	  Functions that request, cancel, undo and await moves.
 *
 * A request only checks and adds rows.  It is valid when its transaction has committed,
 * and then the launcher is notified.  All checks that are possible now are made here,
 * with the caller's privileges, so that no user learns hours later that the request was
 * impossible.  No lock on the relations is taken, and the move checks everything again.
 *
 * Of several indexes, the impossible ones are skipped with a notice; for a single index
 * it is an error.  An index that amcheck cannot check is moved, with a notice.
 *
 * The default mode of an index is online, as that of a table: it waits for no older transactions of the database and has no
 * effect on statements.  REINDEX CONCURRENTLY, which a rebuild is, has a second
 * unique index for a while, and INSERT ... ON CONFLICT does not expect conflicts there: it raises
 * unique violations.  So a rebuild happens only if the request says rebuild or auto, and the request says that.
 *
 * A notice is for what an error would be too much: the move is possible, and has an effect that the user may not expect.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_tablespace_d.h"
#include "catalog/pg_type_d.h"
#include "commands/tablespace.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/extension_function.h"
#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/sql.h"
#include "base/timer.h"
#include "base/units.h"
#include "relocation/checks.h"
#include "relocation/jobs/launcher.h"
#include "relocation/jobs/relocation_jobs.h"
#include "relocation/move.h"
#include "relocation/online/relocation_wal.h"
#include "relocation/plan/tablespace_latency.h"

/* Between two looks at a job that is awaited. */
#define LOOK_MS		100

PG_FUNCTION_INFO_V1(pgscale_relocate_indexes);
PG_FUNCTION_INFO_V1(pgscale_relocate_table);
PG_FUNCTION_INFO_V1(pgscale_relocate_tablespace);
PG_FUNCTION_INFO_V1(pgscale_relocation_cancel);
PG_FUNCTION_INFO_V1(pgscale_relocation_undo);
PG_FUNCTION_INFO_V1(pgscale_relocation_wait);

/* Is it partitioned, and has no storage of its own? */
static bool
is_partitioned(Oid relation)
{
	const char	kind = get_rel_relkind(relation);

	return kind == RELKIND_PARTITIONED_INDEX || kind == RELKIND_PARTITIONED_TABLE;
}

/*
 * Notices
 */

/* If a slot that no process reads from could lose its WAL by moves of that many bytes. */
static void
notice_readers(int64 bytes)
{
	char		who[192];

	if (pgscale_relocation_wal_slot_at_risk(bytes, true, who, sizeof(who)))
		ereport(NOTICE,
				(errmsg("moves write " INT64_FORMAT " MB of WAL, and will wait: %s", bytes / PGSCALE_MB, who),
				 errhint("Start the consumer of the slot, or drop the slot if the consumer is gone for good. Then the moves continue by themselves.")));
}

/* What room standbys need, where there are any: one that is full stops. */
static void
notice_standbys(Oid target, int64 bytes)
{
	PgscaleRows rows;

	pgscale_sql_query("SELECT WHERE EXISTS (SELECT FROM pg_replication_slots WHERE slot_type = 'physical') OR EXISTS"
					  " (SELECT FROM pg_stat_get_wal_senders() w WHERE w.state <> 'backup' AND w.pid NOT IN"
					  "  (SELECT active_pid FROM pg_replication_slots WHERE active_pid IS NOT NULL))",
					  0, NULL, NULL, &rows);
	if (rows.nrows > 0)
		ereport(NOTICE,
				(errmsg("each standby also needs room in tablespace \"%s\": %.1f MB", get_tablespace_name(target), bytes / (double) PGSCALE_MB),
				 errdetail("This is the size of all queued moves to it, in addition to the old files. A standby whose disk is full stops.")));
}

/* Which tables inherit from one that is moved, and stay where they are. */
static void
notice_children(Oid table, Oid target)
{
	int64		bytes = 0;
	int			n = 0;
	ListCell   *cell;

	if (is_partitioned(table) || !has_subclass(table))
		return;
	foreach(cell, find_all_inheritors(table, AccessShareLock, NULL))
	{
		if (lfirst_oid(cell) == table || pgscale_relocation_tablespace_of(lfirst_oid(cell)) == target)
			continue;
		bytes += pgscale_relocation_size_of(lfirst_oid(cell));
		n++;
	}
	if (n > 0)
		ereport(NOTICE,
				(errmsg_plural("%d table that inherits from \"%s\" is not moved with it: %.1f MB",
							   "%d tables that inherit from \"%s\" are not moved with it: %.1f MB",
							   n, n, get_rel_name(table), bytes / (double) PGSCALE_MB),
				 errhint("Only partitions move with their table. Move these tables, or their indexes, by separate calls.")));
}

/* If amcheck cannot check the index: it is moved all the same. */
static void
notice_unverified(Oid index)
{
	const char *hint;
	const char *why = pgscale_relocation_cannot_amcheck(index, &hint);

	if (why)
		ereport(NOTICE,
				(errmsg("\"%s\" will be moved, but its contents will not be verified: %s", get_rel_name(index), why),
				 errhint("%s", hint)));
}

/* What the rebuild of this number of unique indexes means for others. */
static void
notice_unique_rebuilds(int n)
{
	if (n > 0)
		ereport(NOTICE,
				(errmsg_plural("while %d unique index is rebuilt, INSERT ... ON CONFLICT may raise unique violations on its table",
							   "while %d unique indexes are rebuilt, INSERT ... ON CONFLICT may raise unique violations on their tables",
							   n, n),
				 errhint("mode => 'online', the default, does not have this effect.")));
}

/* How long all use of the table is going to wait, which is noted in the job; rate in bytes/s, 0 if unknown. */
static void
notice_lock(PgscaleRelocationJob *job, double rate)
{
	double		mb = (double) pgscale_relocation_size_of(job->relation) / PGSCALE_MB;

	job->block_ms = rate > 0 ? mb * PGSCALE_MB / rate * 1000 : -1;
	if (rate > 0)
		ereport(NOTICE,
				(errmsg("all use of \"%s\" will wait for about %.1f s: %.0f MB at %.0f MB/s",
						get_rel_name(job->relation), job->block_ms / 1000, mb, rate / PGSCALE_MB),
				 errdetail("The rate was measured by direct reads of one disk and direct writes of the other; "
						   "the WAL of the move comes on top.")));
	else
		ereport(NOTICE,
				(errmsg("all use of \"%s\" will wait while its %.0f MB are copied, at a rate that could not be measured",
						get_rel_name(job->relation), mb)));
}

/* The room that an online move takes.  It blocks no session, so the job has no predicted time. */
static void
notice_online(PgscaleRelocationJob *job)
{
	const double mb = (double) pgscale_relocation_size_of(job->relation) / PGSCALE_MB;

	job->block_ms = -1;
	if (!is_partitioned(job->relation))
		ereport(NOTICE,
				(errmsg("\"%s\" stays in use while %.1f MB are copied", get_rel_name(job->relation), mb),
				 errdetail("The move needs that much room in tablespace \"%s\" and in the WAL; it removes the old files at the end.",
						   get_tablespace_name(job->target))));
}

/* What relocate_tablespace() does not move: a line for each kind. */
static void
notice_staying(Oid tablespace)
{
	const Oid	types[2] = {OIDOID, OIDOID};
	const Datum values[2] = {ObjectIdGetDatum(tablespace == MyDatabaseTableSpace ? InvalidOid : tablespace), ObjectIdGetDatum(tablespace)};
	PgscaleRows rows;

	pgscale_sql_query("SELECT kind, pg_size_pretty(sum(pgscale_internal.relocation_bytes(relation, true, false))), cure"
					  "  FROM pgscale_internal.relocation_staying($1) GROUP BY kind, cure"
					  " UNION ALL "
					  "SELECT format('relations of other databases (%s)', string_agg(quote_ident(d.datname), ', ' ORDER BY d.datname)),"
					  "       coalesce(pg_size_pretty(sum(pgscale_internal.relocation_database_bytes($2, d.oid))), 'unknown size'),"
					  "       'Call pgscale.relocate_tablespace() in each of them.'"
					  "  FROM pg_tablespace_databases($2) t(oid) JOIN pg_database d USING (oid)"
					  " WHERE d.datname <> current_database() AND d.datallowconn HAVING count(*) > 0"
					  " ORDER BY 1", lengthof(types), types, values, &rows);
	for (int row = 0; row < rows.nrows; row++)
		ereport(NOTICE,
				(errmsg("%s stay in tablespace \"%s\": %s", pgscale_rows_text(&rows, row, 0), get_tablespace_name(tablespace),
						pgscale_rows_text(&rows, row, 1)),
				 errhint("%s", pgscale_rows_text(&rows, row, 2))));
}

/*
 * What all requests have in common
 */

/* Has this transaction something for the launcher? */
static bool tell_launcher = false;

static void
at_transaction_end(XactEvent event, void *arg)
{
	if (!tell_launcher)
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			pgscale_relocation_open_begin();
			break;
		case XACT_EVENT_COMMIT:
			pgscale_relocation_open_end();
			pgscale_relocation_due(MyDatabaseId, 0);
			tell_launcher = false;
			break;
		case XACT_EVENT_ABORT:
			pgscale_relocation_open_end();
			tell_launcher = false;
			break;
		case XACT_EVENT_PRE_PREPARE:

			/* COMMIT PREPARED could not notify the launcher */
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot PREPARE a transaction that has changed relocation jobs"),
					 errhint("Use COMMIT instead.")));
			break;
		default:
			break;
	}
}

static void
tell_launcher_at_commit(void)
{
	static bool registered = false;

	if (!registered)
		RegisterXactCallback(at_transaction_end, NULL);
	registered = true;
	tell_launcher = true;
}

/* What is asked for, and what has come of it so far. */
typedef struct MoveRequest
{
	FunctionCallInfo fcinfo;	/* its result has the jobs; NULL: it has none */
	Oid			target;
	PgscaleRelocationMode mode;
	bool		choose;			/* the mode of each index, instead */
	bool		amcheck;		/* indexes */
	bool		prewarm;
	int			lock_timeout_ms;	/* of mode lock */
	Oid			source;			/* of the last table that will be locked, and
								 * the rate from there */
	double		rate;
	bool		logged;			/* is there a relation whose move writes WAL? */
	int			unique_rebuilds;
} MoveRequest;

/* Before anything else, with the modes that there are besides online. */
static MoveRequest
begin_request(FunctionCallInfo fcinfo, const char *function, Name tablespace, const char *mode, PgscaleRelocationMode other,
			  bool amcheck, bool prewarm)
{
	const bool	choose = other == PGSCALE_RELOCATE_REBUILD && strcmp(mode, "auto") == 0;
	MoveRequest request = {.fcinfo = fcinfo,.mode = PGSCALE_RELOCATE_ONLINE,.choose = choose,.amcheck = amcheck,.prewarm = prewarm};

	pgscale_preload_require();
	PreventCommandIfReadOnly(function);
	PreventCommandDuringRecovery(function);
	request.target = pgscale_relocation_tablespace_named(NameStr(*tablespace));
	pgscale_relocation_check_target(request.target);
	if (!choose && (!pgscale_relocation_mode_named(mode, &request.mode) ||
					(request.mode != other && request.mode != PGSCALE_RELOCATE_ONLINE)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unknown mode \"%s\"", mode),
				 errhint(other == PGSCALE_RELOCATE_LOCK ? "The modes are 'online' and 'lock'." : "The modes are 'online', 'rebuild' and 'auto'.")));
	if (amcheck)
		(void) pgscale_extension_required("amcheck", "amcheck");
	if (prewarm)
		(void) pgscale_relocation_prewarm_function();
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	return request;
}

/* What is in the queue must fit, with that. */
static void
end_request(const MoveRequest *request)
{
	const int64 bytes = pgscale_relocation_jobs_to(request->target);

	notice_unique_rebuilds(request->unique_rebuilds);
	pgscale_relocation_check_space(request->target, bytes, request->logged, request->mode == PGSCALE_RELOCATE_ONLINE);
	if (request->logged)
		notice_readers(bytes);
	if (request->logged && bytes > 0)
		notice_standbys(request->target, bytes);
	tell_launcher_at_commit();
}

static bool
is_unique(Oid index)
{
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));
	const bool	unique = HeapTupleIsValid(tuple) && ((Form_pg_index) GETSTRUCT(tuple))->indisunique;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return unique;
}

/* Adds the job; if there is one of this relation already, says so at this level and returns false. */
static bool
request_queue(MoveRequest *request, PgscaleRelocationJob *job, int elevel)
{
	int64		other;

	job->source = pgscale_relocation_tablespace_of(job->relation);
	job->role = GetUserId();
	job->bytes = pgscale_relocation_size_of(job->relation);
	job->id = pgscale_relocation_job_add(job, &other);
	if (job->id == 0)
	{
		ereport(elevel,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("\"%s\" already has the unfinished relocation job " INT64_FORMAT, get_rel_name(job->relation), other),
				 errhint("Wait for that job, or cancel it with pgscale.relocation_cancel().")));
		return false;
	}
	request->logged |= get_rel_persistence(job->relation) == RELPERSISTENCE_PERMANENT;
	request->unique_rebuilds += job->mode == PGSCALE_RELOCATE_REBUILD && is_unique(job->relation);
	return true;
}

/*
 * Those with storage below one that is partitioned, or itself; online first the partitioned ones, whose tablespace is that of
 * new partitions.  Where there is none, raises an error with this hint, unless that is NULL.
 */
static List *
request_leaves(const MoveRequest *request, Oid relation, const char *hint)
{
	List	   *leaves = NIL;
	List	   *found = NIL;
	ListCell   *cell;

	if (!is_partitioned(relation))
		return list_make1_oid(relation);
	foreach(cell, find_all_inheritors(relation, AccessShareLock, NULL))
	{
		if (RELKIND_HAS_STORAGE(get_rel_relkind(lfirst_oid(cell))))
			leaves = lappend_oid(leaves, lfirst_oid(cell));
		else if (request->mode == PGSCALE_RELOCATE_ONLINE && is_partitioned(lfirst_oid(cell)))
			found = lappend_oid(found, lfirst_oid(cell));
	}
	found = list_concat(found, leaves);
	if (found == NIL && hint)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"%s\" is partitioned, and has no partition with storage", get_rel_name(relation)),
				 errhint("%s", hint)));
	return found;
}

/* Whether it is better moved online or built anew; *why: the reason. */
static PgscaleRelocationMode
choose_mode(Oid index, const char **why)
{
	const Oid	types[1] = {OIDOID};
	const Datum values[1] = {ObjectIdGetDatum(index)};
	PgscaleRelocationMode mode;
	PgscaleRows rows;
	const char *word;

	pgscale_sql_query("SELECT mode, why FROM pgscale_internal.relocation_index_mode($1)", lengthof(values), types, values, &rows);
	word = rows.nrows == 1 ? pgscale_rows_text(&rows, 0, 0) : NULL;
	if (!word || !pgscale_relocation_mode_named(word, &mode))
		elog(ERROR, "cannot choose a mode for index %u", index);
	*why = pgscale_rows_text(&rows, 0, 1);
	return mode;
}

/*
 * Bytes/s at which a table can be copied from one tablespace to the other: each
 * page is read, then written, by one process.  0 if unknown.
 */
static double
copy_rate(Oid source, Oid target)
{
	PgscaleRelocationProbe probe;
	double		write_rate = pgscale_relocation_probe_write_rate(target);

	if (!pgscale_relocation_probe_tablespace(source, &probe) || probe.sequential_bytes_per_s <= 0 || write_rate <= 0)
		return 0;
	return 1 / (1 / probe.sequential_bytes_per_s + 1 / write_rate);
}

/* Says what the move of a table means for its users. */
static void
notice_table(MoveRequest *request, PgscaleRelocationJob *job)
{
	const Oid	source = pgscale_relocation_tablespace_of(job->relation);

	if (job->mode == PGSCALE_RELOCATE_ONLINE)
	{
		notice_online(job);
		return;
	}
	if (source != request->source)
	{
		request->source = source;
		request->rate = copy_rate(source, job->target);
	}
	notice_lock(job, request->rate);
}

/* One relation.  That it is not to be moved is said at this level. */
static void
request_move(MoveRequest *request, Oid relation, bool is_table, int elevel)
{
	const bool	partitioned = is_partitioned(relation);
	const char *why = NULL;
	PgscaleRelocationJob job = {
		.relation = relation,
		.is_table = is_table,
		.target = request->target,
		.mode = request->mode,
		.amcheck = request->amcheck && !is_table && !partitioned,
		.prewarm = request->prewarm && !partitioned,
		.lock_timeout_ms = request->lock_timeout_ms,
		.block_ms = -1
	};
	ReturnSetInfo *result = (ReturnSetInfo *) request->fcinfo->resultinfo;
	Datum		id;
	bool		isnull = false;

	if (request->choose && get_rel_relkind(relation) == RELKIND_INDEX)
		job.mode = choose_mode(relation, &why);
	if ((partitioned && pgscale_relocation_tablespace_of(relation) == job.target) || !pgscale_relocation_check(&job, elevel))
		return;
	job.heap = is_table ? relation : IndexGetRelation(relation, false);
	if (is_table)
		notice_table(request, &job);
	if (!request_queue(request, &job, elevel))
		return;
	if (why)
		ereport(NOTICE,
				(errmsg(job.mode == PGSCALE_RELOCATE_ONLINE ? "\"%s\" will be moved online: %s" : "\"%s\" will be rebuilt: %s",
						get_rel_name(relation), why)));
	if (job.amcheck)
		notice_unverified(relation);
	id = Int64GetDatum(job.id);
	tuplestore_putvalues(result->setResult, result->setDesc, &id, &isnull);
}

static void
request_moves(MoveRequest *request, List *relations, bool is_table, int elevel)
{
	ListCell   *cell;

	foreach(cell, relations)
	{
		CHECK_FOR_INTERRUPTS();
		request_move(request, lfirst_oid(cell), is_table, elevel);
	}
}

static List *
indexes_of(Oid table)
{
	Relation	relation = table_open(table, AccessShareLock);
	List	   *indexes = RelationGetIndexList(relation);

	table_close(relation, AccessShareLock);
	return indexes;
}

/* pgscale.relocate_indexes(relation, tablespace, amcheck, prewarm, mode): an index, or all of a table. */
Datum
pgscale_relocate_indexes(PG_FUNCTION_ARGS)
{
	const Oid	relation = PG_GETARG_OID(0);
	const char	kind = get_rel_relkind(relation);
	MoveRequest request = begin_request(fcinfo, "relocate_indexes()", PG_GETARG_NAME(1), text_to_cstring(PG_GETARG_TEXT_PP(4)),
										PGSCALE_RELOCATE_REBUILD, PG_GETARG_BOOL(2), PG_GETARG_BOOL(3));
	ListCell   *cell;

	if (kind == RELKIND_INDEX || kind == RELKIND_PARTITIONED_INDEX)
		request_moves(&request,
					  request_leaves(&request, relation,
									 "ALTER INDEX ... ATTACH PARTITION attaches the index of a partition; "
									 "with the table instead, the indexes of all partitions move, attached or not."),
					  false, kind == RELKIND_PARTITIONED_INDEX ? NOTICE : ERROR);
	else
	{
		pgscale_relocation_check_is_table(relation);
		notice_children(relation, request.target);
		foreach(cell, request_leaves(&request, relation, NULL))
			request_moves(&request, indexes_of(lfirst_oid(cell)), false, NOTICE);
	}
	end_request(&request);
	return (Datum) 0;
}

static int
request_milliseconds(const Interval *interval, const char *parameter)
{
	const double ms = pgscale_interval_ms(interval);

	if (ms < 1 || ms > INT_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be from 1 millisecond to 24 days", parameter),
				 errhint("Name a time such as interval '1 minute'.")));
	return (int) ms;
}

/* pgscale.relocate_table(table, tablespace, mode, lock_timeout, prewarm) */
Datum
pgscale_relocate_table(PG_FUNCTION_ARGS)
{
	const Oid	table = PG_GETARG_OID(0);
	const int	lock_timeout_ms = request_milliseconds(PG_GETARG_INTERVAL_P(3), "lock_timeout");
	MoveRequest request = begin_request(fcinfo, "relocate_table()", PG_GETARG_NAME(1), text_to_cstring(PG_GETARG_TEXT_PP(2)),
										PGSCALE_RELOCATE_LOCK, false, PG_GETARG_BOOL(4));

	request.lock_timeout_ms = lock_timeout_ms;
	pgscale_relocation_check_is_table(table);
	notice_children(table, request.target);
	request_moves(&request, request_leaves(&request, table, "ALTER TABLE ... SET TABLESPACE says where its new partitions are made."),
				  true, is_partitioned(table) ? NOTICE : ERROR);
	end_request(&request);
	return (Datum) 0;
}

/* Users' relations of these kinds in a tablespace, largest first; told: without those that notice_staying() reports. */
static List *
relations_in(Oid tablespace, const char *kinds, bool told)
{
	const Oid	types[3] = {OIDOID, TEXTOID, BOOLOID};
	const Datum values[3] = {
		ObjectIdGetDatum(tablespace == MyDatabaseTableSpace ? InvalidOid : tablespace), CStringGetTextDatum(kinds), BoolGetDatum(told)
	};
	List	   *found = NIL;
	PgscaleRows rows;

	pgscale_sql_query("SELECT oid FROM pg_catalog.pg_class"
					  " WHERE pg_catalog.strpos($2, relkind::pg_catalog.text) > 0 AND reltablespace = $1"
					  " AND relpersistence <> 't' AND relnamespace NOT IN"
					  " ('pg_catalog'::pg_catalog.regnamespace, 'pg_toast'::pg_catalog.regnamespace,"
					  "  'information_schema'::pg_catalog.regnamespace, 'pgscale_internal'::pg_catalog.regnamespace)"
					  " AND NOT ($3 AND oid IN (SELECT relation FROM pgscale_internal.relocation_staying($1)))"
					  " ORDER BY relpages DESC, oid", lengthof(values), types, values, &rows);
	for (int row = 0; row < rows.nrows; row++)
		found = lappend_oid(found, atooid(pgscale_rows_text(&rows, row, 0)));
	return found;
}

/*
 * pgscale.relocate_tablespace(source, tablespace, what, amcheck, prewarm, mode): what this database has there, all of it or only
 * its indexes.
 */
Datum
pgscale_relocate_tablespace(PG_FUNCTION_ARGS)
{
	const Oid	source = pgscale_relocation_tablespace_named(NameStr(*PG_GETARG_NAME(0)));
	const char *what = text_to_cstring(PG_GETARG_TEXT_PP(2));
	const bool	all = strcmp(what, "all") == 0;
	MoveRequest request = begin_request(fcinfo, "relocate_tablespace()", PG_GETARG_NAME(1), text_to_cstring(PG_GETARG_TEXT_PP(5)),
										PGSCALE_RELOCATE_REBUILD, PG_GETARG_BOOL(3), PG_GETARG_BOOL(4));
	const bool	online = request.mode == PGSCALE_RELOCATE_ONLINE;

	if (!all && strcmp(what, "indexes") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("cannot move \"%s\" of a tablespace", what),
				 errhint("The argument what is 'all' or 'indexes'.")));
	if (all && (!online || request.choose))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("all relations of a tablespace can only move online"),
				 errhint("With what => 'indexes' each mode of relocate_indexes() is possible.")));
	if (source == request.target)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the relations are already in tablespace \"%s\"", NameStr(*PG_GETARG_NAME(0))),
				 errhint("Name two tablespaces.")));
	if (all && source == GLOBALTABLESPACE_OID)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("tablespace \"%s\" has only shared relations, which cannot move", NameStr(*PG_GETARG_NAME(0))),
				 errhint("Name another tablespace of pg_tablespace.")));
	if (all)
	{
		notice_staying(source);
		request_moves(&request, relations_in(source, "prm", true), true, NOTICE);
	}
	request_moves(&request, relations_in(source, online ? "Ii" : "i", all), false, NOTICE);
	end_request(&request);
	return (Datum) 0;
}

static void
raise_no_job(int64 id)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("there is no relocation job " INT64_FORMAT " in this database", id),
			 errhint("pgscale.relocation_jobs lists them.")));
}

/* pgscale.relocation_cancel(job): false if it had ended already. */
Datum
pgscale_relocation_cancel(PG_FUNCTION_ARGS)
{
	int64		id = PG_GETARG_INT64(0);
	PgscaleRelocationJob job;
	char	   *state;

	pgscale_preload_require();
	PreventCommandIfReadOnly("relocation_cancel()");
	if (!pgscale_relocation_job_get(id, &job, &state))
		raise_no_job(id);
	if (!has_privs_of_role(GetUserId(), job.role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to cancel relocation job " INT64_FORMAT, id),
				 errhint("A superuser, or a role with the privileges of the requesting role, can cancel it.")));

	/*
	 * Waiting, under way, or left behind: a worker may take it or leave it
	 * meanwhile.
	 */
	if (!pgscale_relocation_job_cancel(id, false))
	{
		if (pgscale_relocation_interrupt(MyDatabaseId, id))
			PG_RETURN_BOOL(true);
		if (!pgscale_relocation_job_cancel(id, true))
			PG_RETURN_BOOL(false);
	}
	tell_launcher_at_commit();
	PG_RETURN_BOOL(true);
}

/* pgscale.relocation_undo(job): the job that moves it back. */
Datum
pgscale_relocation_undo(PG_FUNCTION_ARGS)
{
	int64		id = PG_GETARG_INT64(0);
	PgscaleRelocationJob job;
	PgscaleRelocationJob back = {0};
	MoveRequest request = {0};
	char	   *state;

	pgscale_preload_require();
	PreventCommandIfReadOnly("relocation_undo()");
	if (!pgscale_relocation_job_get(id, &job, &state))
		raise_no_job(id);
	back.is_table = job.is_table;
	back.mode = job.mode;
	back.relation = pgscale_relocation_moved(&job);
	if (!pgscale_relocation_job_has_ended(state))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("relocation job " INT64_FORMAT " has not ended: it is %s", id, state),
				 errhint("Wait for its end with CALL pgscale.relocation_wait(), or cancel it with pgscale.relocation_cancel().")));
	/* one that has failed may have moved all the same */
	if (!OidIsValid(back.relation) || pgscale_relocation_tablespace_of(back.relation) == job.source)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("relocation job " INT64_FORMAT " is %s, and there is nothing to undo", id, state),
				 errhint("Only a relation that the job has moved, and that is not back yet, can be moved back.")));
	if (!OidIsValid(pgscale_relocation_tablespace_of(back.relation)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the relation of relocation job " INT64_FORMAT " was dropped or rebuilt since", id),
				 errhint("pgscale.%s() moves the present relation.", job.is_table ? "relocate_table" : "relocate_indexes")));
	back.heap = job.heap;
	back.target = request.target = job.source;
	request.mode = back.mode;
	pgscale_relocation_check_target(back.target);
	(void) pgscale_relocation_check(&back, ERROR);
	back.lock_timeout_ms = job.lock_timeout_ms;
	back.block_ms = -1;
	back.undo_of = id;
	(void) request_queue(&request, &back, ERROR);
	end_request(&request);
	PG_RETURN_INT64(back.id);
}

/*
 * CALL pgscale.relocation_wait(job, timeout, state): until it has ended, or for
 * so long.
 *
 * A procedure, since REINDEX CONCURRENTLY waits for all older snapshots, and a
 * function's would be one as long as it waits.
 */
Datum
pgscale_relocation_wait(PG_FUNCTION_ARGS)
{
	int64		id = PG_GETARG_INT64(0);
	CallContext *context = castNode(CallContext, fcinfo->context);
	PgscaleRelocationJob job;
	int64		give_up;
	TupleDesc	tupdesc;
	char	   *state;
	Datum		value;
	bool		isnull = false;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("job and timeout must not be null"),
				 errhint("pgscale.relocation_jobs lists the jobs.")));
	if (context->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("relocation_wait() cannot run inside a transaction block"),
				 errdetail("The job would wait for the transaction that waits for it."),
				 errhint("CALL it on its own, after COMMIT.")));
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	give_up = pgscale_timer_clock() + request_milliseconds(PG_GETARG_INTERVAL_P(1), "timeout") * NS_PER_MS;

	SPI_connect_ext(SPI_OPT_NONATOMIC);
	for (;;)
	{
		if (!pgscale_relocation_job_get(id, &job, &state))
			raise_no_job(id);
		if (pgscale_relocation_job_has_ended(state) || pgscale_timer_clock() >= give_up)
			break;
		if (job.before)
			pfree(job.before);
		pfree(state);
		SPI_commit();			/* lets go of the snapshot */
		pgscale_timer_pause(LOOK_MS);
	}
	value = SPI_datumTransfer(CStringGetTextDatum(state), false, -1);
	SPI_finish();
	return HeapTupleGetDatum(heap_form_tuple(tupdesc, &value, &isnull));
}
