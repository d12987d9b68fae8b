/*-------------------------------------------------------------------------
 *
 * relocate_jobs.c
 *	  The table of relocation jobs of this database: what is to be done is
 *	  committed before it is done.
 *
 * A job is a row of pgscale.relocation_job.  A backend adds it in its own
 * transaction, and with that it exists or not.  A worker takes it, tries, and
 * writes down how it went, each in a transaction of its own; and within the very
 * transaction in which REINDEX makes a new index, that index' OID.  So at any
 * crash the table tells exactly what there may be to clean up, and no index is
 * ever taken for one of ours by its name.
 *
 * Workers take jobs one after the other, under a lock on the table that does not
 * hinder backends; else two could take two jobs of one table, which would then
 * deadlock.  A row that says a worker is at it, while none is, was left behind
 * by a worker that ended, or by a crash: whoever comes next puts it back.
 *
 * The table belongs to the extension and nobody else can read or write it; here
 * that is done as its owner, a superuser.  So it must not be made to run what
 * somebody else wrote: names are looked up in pg_catalog, whatever the caller's
 * search_path, and a table that happens to have this name, which could have
 * triggers, counts only if it is the extension's.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type_d.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "relocate.h"
#include "relocate_jobs.h"
#include "relocate_share.h"

#define MAX_PARAMETERS	14

/* A statement's parameters; SQL's NULL by a type without a value. */
typedef struct Parameters
{
	int			n;
	Oid			types[MAX_PARAMETERS];
	Datum		values[MAX_PARAMETERS];
	char		nulls[MAX_PARAMETERS];
} Parameters;

static void
add(Parameters *parameters, Oid type, Datum value)
{
	Assert(parameters->n < MAX_PARAMETERS);
	parameters->types[parameters->n] = type;
	parameters->values[parameters->n] = value;
	parameters->nulls[parameters->n++] = ' ';
}

static void
add_bigint(Parameters *parameters, int64 value)
{
	add(parameters, INT8OID, Int64GetDatum(value));
}

static void
add_oid(Parameters *parameters, Oid value)
{
	add(parameters, OIDOID, ObjectIdGetDatum(value));
}

static void
add_text(Parameters *parameters, const char *value)
{
	add(parameters, TEXTOID, value ? CStringGetTextDatum(value) : (Datum) 0);
	if (!value)
		parameters->nulls[parameters->n - 1] = 'n';
}

/* The table, or InvalidOid; *owner is whom it belongs to. */
static Oid
job_table(Oid *owner)
{
	Oid			namespace = get_namespace_oid("pgscale", true);
	Oid			table = OidIsValid(namespace) ? get_relname_relid("relocation_job", namespace) : InvalidOid;
	HeapTuple	tuple = OidIsValid(table) ? SearchSysCache1(RELOID, ObjectIdGetDatum(table)) : NULL;

	Oid			extension;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	*owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	extension = getExtensionOfObject(RelationRelationId, table);
	if (!OidIsValid(extension) || extension != get_extension_oid("pgscale", true) || !superuser_arg(*owner))
		return InvalidOid;
	return table;
}

/*
 * Executes a statement as the table's owner, of which SPI_tuptable keeps the
 * rows until SPI_finish().  latest: as of now, not of this transaction's
 * snapshot.
 */
static uint64
execute(const char *statement, Parameters *parameters, bool latest)
{
	SPIPlanPtr	plan;
	Oid			owner;
	Oid			user;
	int			context;
	int			settings;
	int			result;

	if (!OidIsValid(job_table(&owner)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("this database has no relocation jobs"),
				 errhint("CREATE EXTENSION pgscale makes the table that they are kept in.")));
	SPI_connect();
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(owner, context | SECURITY_LOCAL_USERID_CHANGE);
	settings = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	plan = SPI_prepare(statement, parameters->n, parameters->types);
	if (!plan)
		elog(ERROR, "could not prepare \"%s\": %s", statement, SPI_result_code_string(SPI_result));
	result = SPI_execute_snapshot(plan, parameters->values, parameters->nulls,
								  latest ? GetLatestSnapshot() : InvalidSnapshot,
								  InvalidSnapshot, latest, true, 0);
	if (result < 0)
		elog(ERROR, "could not execute \"%s\": %s", statement, SPI_result_code_string(result));
	AtEOXact_GUC(true, settings);
	SetUserIdAndSecContext(user, context);
	return SPI_processed;
}

/* The same, as a transaction of its own, for what has no result. */
static uint64
execute_alone(const char *statement, Parameters *parameters)
{
	uint64		processed;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	processed = execute(statement, parameters, false);
	SPI_finish();
	PopActiveSnapshot();
	CommitTransactionCommand();
	return processed;
}

static Datum
column(int number, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, number, isnull);
}

static int64
bigint_column(int number)
{
	bool		isnull;
	Datum		value = column(number, &isnull);

	return isnull ? 0 : DatumGetInt64(value);
}

static Oid
oid_column(int number)
{
	bool		isnull;
	Datum		value = column(number, &isnull);

	return isnull ? InvalidOid : DatumGetObjectId(value);
}

static bool
bool_column(int number)
{
	bool		isnull;
	Datum		value = column(number, &isnull);

	return !isnull && DatumGetBool(value);
}

int64
pgscale_job_add(const PgscaleJob *job, int64 *other)
{
	Parameters	parameters = {0};
	int64		id = 0;

	add_text(&parameters, job->is_table ? "table" : "index");
	add_oid(&parameters, job->relation);
	add_oid(&parameters, job->heap);
	add_oid(&parameters, job->source);
	add_oid(&parameters, job->target);
	add_oid(&parameters, job->role);
	add(&parameters, BOOLOID, BoolGetDatum(job->amcheck));
	add(&parameters, BOOLOID, BoolGetDatum(job->prewarm));
	add(&parameters, INT4OID, Int32GetDatum(job->lock_timeout_ms));
	add(&parameters, FLOAT8OID, Float8GetDatum(job->block_ms));
	add_bigint(&parameters, job->bytes);
	add_bigint(&parameters, job->undo_of);
	if (execute("INSERT INTO pgscale.relocation_job (kind, relation, heap, relation_name, heap_name, source, target,"
				" source_name, target_name, role, role_name, amcheck, prewarm, lock_timeout_ms, block_ms_predicted, bytes, undo_of)"
				" VALUES ($1, $2, $3, $2::pg_catalog.regclass, $3::pg_catalog.regclass, $4, $5,"
				" (SELECT spcname FROM pg_catalog.pg_tablespace WHERE oid = $4),"
				" (SELECT spcname FROM pg_catalog.pg_tablespace WHERE oid = $5),"
				" $6, pg_catalog.pg_get_userbyid($6), $7, $8, $9, nullif($10, -1), $11, nullif($12, 0))"
				" ON CONFLICT (relation) WHERE finished_at IS NULL DO NOTHING RETURNING job", &parameters, false) == 1)
		id = bigint_column(1);
	SPI_finish();
	if (id == 0)
	{
		Parameters	key = {0};

		add_oid(&key, job->relation);
		*other = 0;
		if (execute("SELECT job FROM pgscale.relocation_job WHERE relation = $1 AND finished_at IS NULL", &key, true) == 1)
			*other = bigint_column(1);
		SPI_finish();
	}
	return id;
}

int64
pgscale_jobs_bytes_to(Oid target)
{
	Parameters	parameters = {0};
	int64		bytes;

	add_oid(&parameters, target);
	execute("SELECT sum(bytes)::bigint FROM pgscale.relocation_job WHERE target = $1 AND finished_at IS NULL",
			&parameters, false);
	bytes = bigint_column(1);
	SPI_finish();
	return bytes;
}

#define JOB_COLUMNS \
	"job, kind = 'table', relation, heap, source, target, role, amcheck, prewarm, lock_timeout_ms, new_index, cancel," \
	" attempts, crashes, before, bytes"

/* Of the first row that has these columns; texts in the given context. */
static void
read_job(PgscaleJob *job, MemoryContext context)
{
	bool		isnull;
	Datum		before;
	MemoryContext old;

	memset(job, 0, sizeof(*job));
	job->id = bigint_column(1);
	job->is_table = bool_column(2);
	job->relation = oid_column(3);
	job->heap = oid_column(4);
	job->source = oid_column(5);
	job->target = oid_column(6);
	job->role = oid_column(7);
	job->amcheck = bool_column(8);
	job->prewarm = bool_column(9);
	job->lock_timeout_ms = DatumGetInt32(column(10, &isnull));
	job->new_index = oid_column(11);
	job->cancel = bool_column(12);
	job->attempts = DatumGetInt32(column(13, &isnull));
	job->crashes = DatumGetInt32(column(14, &isnull));
	before = column(15, &isnull);
	if (!isnull)
	{
		old = MemoryContextSwitchTo(context);
		job->before = TextDatumGetCString(before);
		MemoryContextSwitchTo(old);
	}
	job->bytes = bigint_column(16);
}

bool
pgscale_job_get(int64 id, PgscaleJob *job, char **state)
{
	MemoryContext context = CurrentMemoryContext;
	Parameters	parameters = {0};
	bool		found;

	add_bigint(&parameters, id);
	found = execute("SELECT " JOB_COLUMNS ", state FROM pgscale.relocation_job WHERE job = $1", &parameters, true) == 1;
	if (found)
	{
		bool		isnull;
		char	   *name;

		read_job(job, context);
		name = TextDatumGetCString(column(17, &isnull));
		*state = MemoryContextStrdup(context, name);
	}
	SPI_finish();
	return found;
}

char *
pgscale_job_state(int64 id)
{
	PgscaleJob	job;
	char	   *state;

	return pgscale_job_get(id, &job, &state) ? state : NULL;
}

bool
pgscale_job_cancel(int64 id, bool begun)
{
	Parameters	parameters = {0};
	uint64		done;

	add_bigint(&parameters, id);
	add(&parameters, BOOLOID, BoolGetDatum(begun));
	/* where something may have been left, a worker cleans up first */
	done = execute("UPDATE pgscale.relocation_job SET cancel = true, not_before = pg_catalog.clock_timestamp(),"
				   " state = CASE WHEN $2 THEN state WHEN new_index IS NULL THEN 'cancelled' ELSE 'queued' END,"
				   " finished_at = CASE WHEN NOT $2 AND new_index IS NULL THEN pg_catalog.clock_timestamp() END,"
				   " sqlstate = '57014', message = 'cancelled by ' || pg_catalog.quote_ident(session_user)"
				   " WHERE job = $1 AND finished_at IS NULL AND ($2 OR state IN ('queued', 'waiting'))", &parameters, false);
	SPI_finish();
	return done == 1;
}

bool
pgscale_jobs_here(void)
{
	Oid			owner;
	bool		here;

	StartTransactionCommand();
	here = OidIsValid(job_table(&owner));
	CommitTransactionCommand();
	return here;
}

/* Rows whose worker is gone. The lock on the table must be held. */
static void
put_back_orphans(void)
{
	Parameters	none = {0};
	uint64		rows;
	int64	   *orphans;
	int			n = 0;

	rows = execute("SELECT job FROM pgscale.relocation_job WHERE state IN ('running', 'verifying')", &none, false);
	orphans = palloc((rows + 1) * sizeof(int64));
	for (uint64 i = 0; i < rows; i++)
	{
		bool		isnull;
		int64		job = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull));

		if (!pgscale_relocation_is_at_work(MyDatabaseId, job))
			orphans[n++] = job;
	}
	for (int i = 0; i < n; i++)
	{
		Parameters	parameters = {0};

		add_bigint(&parameters, orphans[i]);
		execute("UPDATE pgscale.relocation_job SET state = 'queued', crashes = crashes + 1, pid = NULL,"
				" not_before = pg_catalog.clock_timestamp(), sqlstate = '57P02',"
				" message = 'the server or the worker crashed during the attempt'"
				" WHERE job = $1", &parameters, false);
		SPI_finish();
	}
	SPI_finish();
}

/* Jobs whose table no other worker is at. */
#define CLAIMABLE \
	" FROM pgscale.relocation_job j WHERE state IN ('queued', 'waiting')" \
	" AND NOT EXISTS (SELECT FROM pgscale.relocation_job r WHERE r.heap = j.heap AND r.state IN ('running', 'verifying'))"

bool
pgscale_job_claim(PgscaleJob *job, bool *more)
{
	MemoryContext context = CurrentMemoryContext;
	Parameters	parameters = {0};
	Oid			table;
	Oid			owner;
	bool		found = false;

	*more = false;
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	table = job_table(&owner);
	if (OidIsValid(table))
		LockRelationOid(table, ShareUpdateExclusiveLock);
	/* it may have been dropped until we got the lock */
	if (OidIsValid(table) && job_table(&owner) == table)
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		put_back_orphans();
		PopActiveSnapshot();
		PushActiveSnapshot(GetTransactionSnapshot());
		/* what is cancelled at the same time is left alone */
		found = execute("SELECT " JOB_COLUMNS CLAIMABLE " AND not_before <= pg_catalog.clock_timestamp()"
						" ORDER BY job LIMIT 1 FOR UPDATE SKIP LOCKED", &parameters, false) == 1;
		if (found)
		{
			read_job(job, context);
			SPI_finish();
			/* before the row says so, so that nobody takes it for an orphan */
			pgscale_relocation_at_work(job->id);
			add_bigint(&parameters, job->id);
			add(&parameters, INT4OID, Int32GetDatum(MyProcPid));
			execute("UPDATE pgscale.relocation_job SET state = 'running', pid = $2, sqlstate = NULL,"
					" message = CASE WHEN new_index IS NOT NULL THEN 'cleaning up after an attempt' END,"
					" started_at = coalesce(started_at, pg_catalog.clock_timestamp()) WHERE job = $1", &parameters, false);
			SPI_finish();
			CommandCounterIncrement();
			parameters.n = 0;
			*more = execute("SELECT" CLAIMABLE " AND not_before <= pg_catalog.clock_timestamp() LIMIT 1",
							&parameters, false) > 0;
		}
		SPI_finish();
		PopActiveSnapshot();
	}
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	return found;
}

TimestampTz
pgscale_jobs_next(void)
{
	Parameters	none = {0};
	TimestampTz next = DT_NOEND;
	Oid			owner;

	StartTransactionCommand();
	if (OidIsValid(job_table(&owner)))
	{
		bool		isnull;
		Datum		value;

		PushActiveSnapshot(GetTransactionSnapshot());
		execute("SELECT min(not_before)" CLAIMABLE, &none, false);
		value = column(1, &isnull);
		if (!isnull)
			next = DatumGetTimestampTz(value);
		SPI_finish();
		PopActiveSnapshot();
	}
	CommitTransactionCommand();
	return next;
}

/* Of the job that this process is at, and not of one that got its id since. */
#define MINE	" WHERE job = $1 AND pid = pg_catalog.pg_backend_pid()"

void
pgscale_job_begin_attempt(PgscaleJob *job)
{
	Parameters	parameters = {0};

	add_bigint(&parameters, job->id);
	execute_alone("UPDATE pgscale.relocation_job SET before = NULL, attempts = attempts + 1, new_index = NULL,"
				  " sqlstate = NULL, message = NULL" MINE, &parameters);
	job->attempts++;
}

void
pgscale_job_verifying(const PgscaleJob *job)
{
	Parameters	parameters = {0};

	add_bigint(&parameters, job->id);
	execute_alone("UPDATE pgscale.relocation_job SET state = 'verifying'" MINE, &parameters);
}

static void
add_word(Parameters *parameters, const PgscaleJobWord *word)
{
	add_text(parameters, word && word->sqlstate ? unpack_sql_state(word->sqlstate) : NULL);
	add_text(parameters, word ? word->message : NULL);
}

void
pgscale_job_put_back(const PgscaleJob *job, const char *state, int64 delay_ms, const PgscaleJobWord *why)
{
	Parameters	parameters = {0};

	add_bigint(&parameters, job->id);
	add_text(&parameters, state);
	add_bigint(&parameters, delay_ms);
	add_word(&parameters, why);
	add(&parameters, BOOLOID, BoolGetDatum(job->cancel));
	add_oid(&parameters, job->new_index);
	execute_alone("UPDATE pgscale.relocation_job SET state = $2, pid = NULL, sqlstate = $4, message = $5, cancel = $6,"
				  " new_index = nullif($7, 0),"
				  " not_before = pg_catalog.clock_timestamp() + $3 * interval '1 millisecond'" MINE, &parameters);
}

void
pgscale_job_end(const PgscaleJob *job, const char *state, const PgscaleJobWord *why)
{
	Parameters	parameters = {0};

	add_bigint(&parameters, job->id);
	add_text(&parameters, state);
	add_word(&parameters, why);
	add_oid(&parameters, job->new_index);
	add_bigint(&parameters, job->bytes_after);
	execute_alone("UPDATE pgscale.relocation_job SET state = $2, pid = NULL, sqlstate = $3, message = $4,"
				  " new_index = nullif($5, 0), finished_at = pg_catalog.clock_timestamp(),"
				  " bytes_after = nullif($6, 0)" MINE, &parameters);
}

void
pgscale_job_made_index(const PgscaleJob *job)
{
	Parameters	parameters = {0};

	add_bigint(&parameters, job->id);
	add_oid(&parameters, job->new_index);
	add_text(&parameters, job->before);
	execute("UPDATE pgscale.relocation_job SET new_index = $2, before = $3" MINE, &parameters, false);
	SPI_finish();
}
