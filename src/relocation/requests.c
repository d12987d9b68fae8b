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
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/index.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_tablespace_d.h"
#include "catalog/pg_type_d.h"
#include "commands/dbcommands.h"
#include "commands/extension.h"
#include "commands/tablespace.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/latch.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/extension_function.h"
#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/sql.h"
#include "base/timer.h"
#include "base/units.h"
#include "relocation/checks.h"
#include "relocation/job_table.h"
#include "relocation/relocation.h"
#include "relocation/relocation_state.h"
#include "relocation/tablespace_latency.h"

/* Between two looks at a job that is awaited. */
#define LOOK_MS		100

PG_FUNCTION_INFO_V1(pgscale_relocate_index);
PG_FUNCTION_INFO_V1(pgscale_relocate_indexes);
PG_FUNCTION_INFO_V1(pgscale_relocate_all_indexes);
PG_FUNCTION_INFO_V1(pgscale_relocate_table);
PG_FUNCTION_INFO_V1(pgscale_relocation_cancel);
PG_FUNCTION_INFO_V1(pgscale_relocation_undo);
PG_FUNCTION_INFO_V1(pgscale_relocation_wait);

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
					 errhint("COMMIT it.")));
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

/* Before anything else. Returns the tablespace. */
static Oid
begin_request(const char *function, Name tablespace)
{
	Oid			target;

	pgscale_preload_require();
	PreventCommandIfReadOnly(function);
	PreventCommandDuringRecovery(function);
	target = pgscale_relocation_tablespace_named(NameStr(*tablespace));
	pgscale_relocation_check_target(target);
	return target;
}

/* What is in the queue must fit, with that. */
static void
end_request(Oid target, bool logged)
{
	int64		bytes;

	(void) pgscale_relocation_jobs_to(target, &bytes);
	pgscale_relocation_check_space(target, bytes, logged);
	tell_launcher_at_commit();
}

static int64
size_of(Oid relation)
{
	return DatumGetInt64(DirectFunctionCall1(pg_table_size, ObjectIdGetDatum(relation)));
}

/* Adds the job, and its id to the result; if there is one already, says so at this level. */
static int64
request_queue(PgscaleRelocationJob *job, int elevel)
{
	int64		other;

	job->source = pgscale_relocation_tablespace_of(job->relation);
	job->role = GetUserId();
	job->bytes = size_of(job->relation);
	job->id = pgscale_relocation_job_add(job, &other);
	if (job->id == 0)
		ereport(elevel,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("\"%s\" already is to be moved, by job " INT64_FORMAT, get_rel_name(job->relation), other),
				 errhint("Wait for that job, or end it with pgscale.relocation_cancel().")));
	return job->id;
}

static void
put_id(FunctionCallInfo fcinfo, int64 id)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum		value = Int64GetDatum(id);
	bool		isnull = false;

	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &value, &isnull);
}

/*
 * Those with storage below one that is partitioned, or itself.  Where there is none, raises an error
 * with this hint, unless that is NULL.
 */
static List *
request_leaves(Oid relation, const char *hint)
{
	List	   *all;
	List	   *found = NIL;
	ListCell   *cell;

	switch (get_rel_relkind(relation))
	{
		case RELKIND_PARTITIONED_INDEX:
		case RELKIND_PARTITIONED_TABLE:
			break;
		default:
			return list_make1_oid(relation);
	}
	all = find_all_inheritors(relation, AccessShareLock, NULL);
	foreach(cell, all)
		if (RELKIND_HAS_STORAGE(get_rel_relkind(lfirst_oid(cell))))
		found = lappend_oid(found, lfirst_oid(cell));
	if (found == NIL && hint)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"%s\" is partitioned, and has no partition that is stored", get_rel_name(relation)),
				 errhint("%s", hint)));
	return found;
}

/* Says of an index that amcheck cannot check it: it is moved all the same. */
static void
tell_unverified(Oid index)
{
	const char *hint;
	const char *why = pgscale_relocation_cannot_amcheck(index, &hint);

	if (why)
		ereport(NOTICE,
				(errmsg("\"%s\" will be moved, but its contents will not be verified: %s", get_rel_name(index), why),
				 errhint("%s", hint)));
}

static void
move_indexes(FunctionCallInfo fcinfo, List *indexes, Oid target, int elevel)
{
	bool		logged = false;
	ListCell   *cell;

	foreach(cell, indexes)
	{
		PgscaleRelocationJob job = {0};

		CHECK_FOR_INTERRUPTS();
		job.relation = lfirst_oid(cell);
		if (!pgscale_relocation_check_index(job.relation, target, elevel))
			continue;
		job.heap = IndexGetRelation(job.relation, false);
		job.target = target;
		job.amcheck = PG_GETARG_BOOL(2);
		job.prewarm = PG_GETARG_BOOL(3);
		job.block_ms = -1;
		if (request_queue(&job, elevel) == 0)
			continue;
		if (job.amcheck)
			tell_unverified(job.relation);
		logged |= get_rel_persistence(job.relation) == RELPERSISTENCE_PERMANENT;
		put_id(fcinfo, job.id);
	}
	end_request(target, logged);
}

/* What the functions for indexes have in common. Returns the tablespace. */
static Oid
begin_indexes(FunctionCallInfo fcinfo, const char *function)
{
	Oid			target = begin_request(function, PG_GETARG_NAME(1));

	if (PG_GETARG_BOOL(2))
		(void) pgscale_extension_required("amcheck", "amcheck");
	if (PG_GETARG_BOOL(3))
		(void) pgscale_relocation_prewarm_function();
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	return target;
}

/* pgscale.relocate_index(index, tablespace, amcheck, prewarm) */
Datum
pgscale_relocate_index(PG_FUNCTION_ARGS)
{
	Oid			index = PG_GETARG_OID(0);
	Oid			target = begin_indexes(fcinfo, "relocate_index()");
	bool		partitioned = get_rel_relkind(index) == RELKIND_PARTITIONED_INDEX;

	move_indexes(fcinfo,
				 request_leaves(index, "ALTER INDEX ... ATTACH PARTITION attaches the index of a partition; "
								"pgscale.relocate_indexes() moves the indexes of all partitions, attached or not."),
				 target, partitioned ? NOTICE : ERROR);
	return (Datum) 0;
}

static List *
indexes_of(Oid table)
{
	Relation	relation = table_open(table, AccessShareLock);
	List	   *indexes = RelationGetIndexList(relation);

	table_close(relation, AccessShareLock);
	return indexes;
}

/* pgscale.relocate_indexes(table, tablespace, amcheck, prewarm) */
Datum
pgscale_relocate_indexes(PG_FUNCTION_ARGS)
{
	Oid			target = begin_indexes(fcinfo, "relocate_indexes()");
	Oid			table = PG_GETARG_OID(0);
	List	   *indexes = NIL;
	ListCell   *cell;

	pgscale_relocation_check_is_table(table);
	foreach(cell, request_leaves(table, NULL))
		indexes = list_concat(indexes, indexes_of(lfirst_oid(cell)));
	move_indexes(fcinfo, indexes, target, NOTICE);
	return (Datum) 0;
}

/* The indexes of users' tables in a tablespace, largest first. */
static List *
indexes_in(Oid tablespace)
{
	const Oid	types[1] = {OIDOID};
	Datum		values[1] = {ObjectIdGetDatum(tablespace)};
	List	   *indexes = NIL;
	const int	settings = pgscale_sql_names();
	PgscaleRows rows;

	if (tablespace == MyDatabaseTableSpace)
		values[0] = ObjectIdGetDatum(InvalidOid);
	pgscale_sql_query("SELECT oid FROM pg_catalog.pg_class WHERE relkind = 'i' AND reltablespace = $1"
					  " AND relpersistence <> 't' AND relnamespace NOT IN"
					  " ('pg_catalog'::pg_catalog.regnamespace, 'pg_toast'::pg_catalog.regnamespace)"
					  " ORDER BY relpages DESC, oid", lengthof(values), types, values, true, 0, &rows);
	AtEOXact_GUC(true, settings);
	for (int row = 0; row < rows.nrows; row++)
		indexes = lappend_oid(indexes, atooid(pgscale_rows_text(&rows, row, 0)));
	return indexes;
}

/* pgscale.relocate_all_indexes(source, tablespace, amcheck, prewarm) */
Datum
pgscale_relocate_all_indexes(PG_FUNCTION_ARGS)
{
	Oid			source = pgscale_relocation_tablespace_named(NameStr(*PG_GETARG_NAME(0)));
	Oid			target = begin_indexes(fcinfo, "relocate_all_indexes()");

	if (source == target)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the indexes already are in tablespace \"%s\"", NameStr(*PG_GETARG_NAME(1))),
				 errhint("Name two tablespaces.")));
	move_indexes(fcinfo, indexes_in(source), target, NOTICE);
	return (Datum) 0;
}

/* One word of a shell's command line, whatever is in it. */
static char *
shell_word(const char *text)
{
	StringInfoData word;

	initStringInfo(&word);
	appendStringInfoChar(&word, '\'');
	for (; *text; text ++)
	{
		if (*text == '\'')
			appendStringInfoString(&word, "'\\''");
		else
			appendStringInfoChar(&word, *text);
	}
	appendStringInfoChar(&word, '\'');
	return word.data;
}

/* The command of what can move a table online, if that is installed here. */
static char *
online_command(Oid table, const char *tablespace)
{
	char	   *schema = get_namespace_name(get_rel_namespace(table));
	char	   *name = get_rel_name(table);

	if (OidIsValid(get_extension_oid("pg_repack", true)))
		return psprintf("Run: pg_repack --dbname=%s --table=%s --tablespace=%s",
						shell_word(get_database_name(MyDatabaseId)),
						shell_word(quote_qualified_identifier(schema, name)), shell_word(tablespace));
	if (OidIsValid(get_extension_oid("pg_squeeze", true)))
		return psprintf("Run: SELECT squeeze.squeeze_table(%s, %s, NULL, %s);",
						quote_literal_cstr(schema), quote_literal_cstr(name), quote_literal_cstr(tablespace));
	return psprintf("pg_repack or pg_squeeze, where installed, move tables online; "
					"mode => 'lock' blocks all use of the table meanwhile.%s",
					PGSCALE_MAJOR_NUMBER < 19 ? "" :
					" REPACK (CONCURRENTLY) rebuilds a table in its tablespace and cannot move it to another one.");
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

/* Warns the user how long all use of the table is going to wait. */
static void
request_announce(PgscaleRelocationJob *job, double rate)
{
	double		mb = (double) size_of(job->relation) / PGSCALE_MB;

	job->block_ms = rate > 0 ? mb * PGSCALE_MB / rate * 1000 : -1;
	if (rate > 0)
		ereport(NOTICE,
				(errmsg("all use of \"%s\" will wait for about %.1f s: %.0f MB at %.0f MB/s",
						get_rel_name(job->relation), job->block_ms / 1000, mb, rate / PGSCALE_MB),
				 errdetail("The rate is what direct reads of one disk and direct writes of the other give now; "
						   "the WAL of the move comes on top.")));
	else
		ereport(NOTICE,
				(errmsg("all use of \"%s\" will wait while its %.0f MB are copied, at a rate that could not be measured",
						get_rel_name(job->relation), mb)));
}

static void
move_tables(FunctionCallInfo fcinfo, List *tables, Oid target, int lock_timeout_ms, int elevel)
{
	bool		logged = false;
	Oid			source = InvalidOid;
	double		rate = 0;
	ListCell   *cell;

	foreach(cell, tables)
	{
		PgscaleRelocationJob job = {0};

		CHECK_FOR_INTERRUPTS();
		job.is_table = true;
		job.relation = job.heap = lfirst_oid(cell);
		if (!pgscale_relocation_check_table(job.relation, target, elevel))
			continue;
		job.target = target;
		job.lock_timeout_ms = lock_timeout_ms;
		if (pgscale_relocation_tablespace_of(job.relation) != source)
		{
			source = pgscale_relocation_tablespace_of(job.relation);
			rate = copy_rate(source, target);
		}
		request_announce(&job, rate);
		if (request_queue(&job, elevel) == 0)
			continue;
		logged |= get_rel_persistence(job.relation) == RELPERSISTENCE_PERMANENT;
		put_id(fcinfo, job.id);
	}
	end_request(target, logged);
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

/* pgscale.relocate_table(table, tablespace, mode, lock_timeout) */
Datum
pgscale_relocate_table(PG_FUNCTION_ARGS)
{
	Oid			table = PG_GETARG_OID(0);
	Name		tablespace = PG_GETARG_NAME(1);
	char	   *mode = text_to_cstring(PG_GETARG_TEXT_PP(2));
	int			lock_timeout_ms = request_milliseconds(PG_GETARG_INTERVAL_P(3), "lock_timeout");
	Oid			target = begin_request("relocate_table()", tablespace);
	bool		partitioned = get_rel_relkind(table) == RELKIND_PARTITIONED_TABLE;

	if (strcmp(mode, "lock") != 0 && strcmp(mode, "online") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unknown mode \"%s\"", mode),
				 errhint("It is 'online' or 'lock'.")));
	pgscale_relocation_check_is_table(table);
	if (!partitioned)
		(void) pgscale_relocation_check_table(table, target, ERROR);
	if (strcmp(mode, "online") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("the server cannot move a table without blocking its use"),
				 errhint("%s", online_command(table, NameStr(*tablespace)))));
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	move_tables(fcinfo,
				request_leaves(table, "ALTER TABLE ... SET TABLESPACE says where its new partitions are made."),
				target, lock_timeout_ms, partitioned ? NOTICE : ERROR);
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
				 errhint("Superusers can, and roles with the privileges of the requesting role.")));

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

static bool
has_ended(const char *state)
{
	return strcmp(state, PGSCALE_JOB_DONE) == 0 || strcmp(state, PGSCALE_JOB_FAILED) == 0 ||
		strcmp(state, PGSCALE_JOB_CANCELLED) == 0 || strcmp(state, PGSCALE_JOB_LOST) == 0;
}

/* pgscale.relocation_undo(job): the job that moves it back. */
Datum
pgscale_relocation_undo(PG_FUNCTION_ARGS)
{
	int64		id = PG_GETARG_INT64(0);
	PgscaleRelocationJob job;
	PgscaleRelocationJob back = {0};
	char	   *state;

	pgscale_preload_require();
	PreventCommandIfReadOnly("relocation_undo()");
	if (!pgscale_relocation_job_get(id, &job, &state))
		raise_no_job(id);
	back.is_table = job.is_table;
	back.relation = job.is_table ? job.relation : job.new_index;
	if (!has_ended(state))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("relocation job " INT64_FORMAT " has not ended: it is %s", id, state),
				 errhint("Wait for its end with CALL pgscale.relocation_wait(), or end it with pgscale.relocation_cancel().")));
	/* one that has failed may have moved all the same */
	if (!OidIsValid(back.relation) || pgscale_relocation_tablespace_of(back.relation) == job.source)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("relocation job " INT64_FORMAT " is %s, and there is nothing to undo", id, state),
				 errhint("Only what a job has moved, and is not back yet, can be moved back.")));
	if (!OidIsValid(pgscale_relocation_tablespace_of(back.relation)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("what relocation job " INT64_FORMAT " was to move was dropped or built anew since", id),
				 errhint("pgscale.%s() moves what is there now.", job.is_table ? "relocate_table" : "relocate_index")));
	pgscale_relocation_check_target(job.source);
	if (back.is_table)
		(void) pgscale_relocation_check_table(back.relation, job.source, ERROR);
	else
		(void) pgscale_relocation_check_index(back.relation, job.source, ERROR);
	back.heap = job.heap;
	back.target = job.source;
	back.lock_timeout_ms = job.lock_timeout_ms;
	back.block_ms = -1;
	back.undo_of = id;
	(void) request_queue(&back, ERROR);
	end_request(back.target, get_rel_persistence(back.relation) == RELPERSISTENCE_PERMANENT);
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
		state = pgscale_relocation_job_state(id);
		if (!state)
			raise_no_job(id);
		if (has_ended(state) || pgscale_timer_clock() >= give_up)
			break;
		SPI_commit();			/* lets go of the snapshot */
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, LOOK_MS, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	value = SPI_datumTransfer(CStringGetTextDatum(state), false, -1);
	SPI_finish();
	return HeapTupleGetDatum(heap_form_tuple(tupdesc, &value, &isnull));
}
