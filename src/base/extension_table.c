/*-------------------------------------------------------------------------
 *
 * extension_table.c
 *	  Statements on the extension's own tables, which users cannot touch.
 *
 * Such a table belongs to the extension, and no other role can read or write it.  The
 * statements run as its owner, a superuser, on behalf of the caller.  So they must not
 * run code of other roles: names are looked up in pg_catalog whatever the caller's
 * search_path, and a table of that name counts only if it belongs to the extension,
 * because any other table could have triggers.
 *
 * After an error, user and search_path stay changed until the transaction or
 * subtransaction ends, which restores both.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type_d.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "base/extension_function.h"
#include "base/extension_table.h"
#include "base/pg_compat.h"
#include "base/sql.h"

PG_FUNCTION_INFO_V1(pgscale_row_origin);

void
pgscale_table_add(PgscaleParameters *parameters, Oid type, Datum value)
{
	Assert(parameters->n < PGSCALE_TABLE_PARAMETERS);
	parameters->types[parameters->n] = type;
	parameters->values[parameters->n] = value;
	parameters->nulls[parameters->n++] = ' ';
}

void
pgscale_table_add_null(PgscaleParameters *parameters, Oid type)
{
	pgscale_table_add(parameters, type, (Datum) 0);
	parameters->nulls[parameters->n - 1] = 'n';
}

void
pgscale_table_add_bigint(PgscaleParameters *parameters, int64 value)
{
	pgscale_table_add(parameters, INT8OID, Int64GetDatum(value));
}

void
pgscale_table_add_oid(PgscaleParameters *parameters, Oid value)
{
	pgscale_table_add(parameters, OIDOID, ObjectIdGetDatum(value));
}

void
pgscale_table_add_text(PgscaleParameters *parameters, const char *value)
{
	if (value)
		pgscale_table_add(parameters, TEXTOID, CStringGetTextDatum(value));
	else
		pgscale_table_add_null(parameters, TEXTOID);
}

void
pgscale_table_add_here(PgscaleParameters *parameters)
{
	pgscale_table_add_bigint(parameters, (int64) GetSystemIdentifier());
	pgscale_table_add_oid(parameters, MyDatabaseId);
}

const char *
pgscale_table_origin(int64 cluster, Oid database)
{
	if (cluster != (int64) GetSystemIdentifier())
		return "another server";
	return database != MyDatabaseId ? "another database" : NULL;
}

/* pgscale_internal.row_origin(cluster, database), for the views */
Datum
pgscale_row_origin(PG_FUNCTION_ARGS)
{
	const char *origin = pgscale_table_origin(PG_GETARG_INT64(0), PG_GETARG_OID(1));

	if (!origin)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(origin));
}

Oid
pgscale_table_find(const PgscaleExtensionTable *table, Oid *owner)
{
	Oid			namespace = get_namespace_oid("pgscale_internal", true);
	Oid			relation = OidIsValid(namespace) ? get_relname_relid(table->name, namespace) : InvalidOid;
	HeapTuple	tuple = OidIsValid(relation) ? SearchSysCache1(RELOID, ObjectIdGetDatum(relation)) : NULL;
	Oid			extension;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	*owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	extension = getExtensionOfObject(RelationRelationId, relation);
	if (!OidIsValid(extension) || extension != get_extension_oid("pgscale", true) || !superuser_arg(*owner))
		return InvalidOid;
	return relation;
}

void
pgscale_table_refuse_renamed(void)
{
	static const char *const schemas[] = {"pgscale", "pgscale_internal"};

	for (int i = 0; OidIsValid(get_extension_oid("pgscale", true)) && i < lengthof(schemas); i++)
		if (!OidIsValid(get_namespace_oid(schemas[i], true)))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_SCHEMA),
					 errmsg("the extension \"pgscale\" has no schema \"%s\" here", schemas[i]),
					 errhint("If it was renamed, ALTER SCHEMA ... RENAME TO %s. If the extension is of an older version, drop and create it.", schemas[i])));
}

void
pgscale_table_keep_local(Oid relation)
{
	HeapTuple	tuple;
	bool		marked;

	if (!XLogLogicalInfoActive() || XactReadOnly)
		return;
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	marked = HeapTupleIsValid(tuple) && OidIsValid(((Form_pg_class) GETSTRUCT(tuple))->relrewrite);
	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	if (marked)
		return;
	(void) pgscale_extension_own_text("keep_local", 0, NULL, NULL);
	CommandCounterIncrement();
}

/* Does it only read?  That assigns no transaction ID, and so waits for no standby, not even on a screen of an incident. */
static bool
reads_only(SPIPlanPtr plan)
{
	const CachedPlanSource *source = linitial(SPI_plan_get_plan_sources(plan));
	const Query *query = linitial_node(Query, source->query_list);

	return query->commandType == CMD_SELECT && !query->hasModifyingCTE && query->rowMarks == NIL;
}

uint64
pgscale_table_execute(const PgscaleExtensionTable *table, const char *statement, PgscaleParameters *parameters, bool latest)
{
	SPIPlanPtr	plan;
	Oid			relation;
	Oid			owner;
	Oid			user;
	int			context;
	int			settings;
	int			result;

	/*
	 * locked, and looked at again: another one must not come in its place
	 * before the statement is parsed
	 */
	pgscale_table_refuse_renamed();
	relation = pgscale_table_find(table, &owner);
	if (OidIsValid(relation))
		LockRelationOid(relation, AccessShareLock);
	if (!OidIsValid(relation) || pgscale_table_find(table, &owner) != relation)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("this database has no %s", table->keeps),
				 errhint("CREATE EXTENSION pgscale makes the table that they are kept in.")));
	SPI_connect();
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(owner, context | SECURITY_LOCAL_USERID_CHANGE);
	settings = pgscale_sql_names();
	(void) set_config_option("session_replication_role", "origin", PGC_SUSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	plan = SPI_prepare(statement, parameters->n, parameters->types);
	if (!plan)
		elog(ERROR, "could not prepare \"%s\": %s", statement, SPI_result_code_string(SPI_result));
	if (!reads_only(plan))
		pgscale_table_keep_local(relation);
	result = SPI_execute_snapshot(plan, parameters->values, parameters->nulls,
								  latest ? GetLatestSnapshot() : InvalidSnapshot,
								  InvalidSnapshot, latest, true, 0);
	if (result < 0)
		elog(ERROR, "could not execute \"%s\": %s", statement, SPI_result_code_string(result));
	AtEOXact_GUC(true, settings);
	SetUserIdAndSecContext(user, context);
	return SPI_processed;
}

void
pgscale_table_execute_alone(const PgscaleExtensionTable *table, const char *statement, PgscaleParameters *parameters, bool flush)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	if (!flush)
		(void) set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	PushActiveSnapshot(GetTransactionSnapshot());
	(void) pgscale_table_execute(table, statement, parameters, false);
	SPI_finish();
	PopActiveSnapshot();
	CommitTransactionCommand();
}

Datum
pgscale_table_column(uint64 row, int number, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, number, isnull);
}

int64
pgscale_table_bigint(uint64 row, int number)
{
	bool		isnull;
	Datum		value = pgscale_table_column(row, number, &isnull);

	return isnull ? 0 : DatumGetInt64(value);
}

Oid
pgscale_table_oid(uint64 row, int number)
{
	bool		isnull;
	Datum		value = pgscale_table_column(row, number, &isnull);

	return isnull ? InvalidOid : DatumGetObjectId(value);
}

bool
pgscale_table_bool(uint64 row, int number)
{
	bool		isnull;
	Datum		value = pgscale_table_column(row, number, &isnull);

	return !isnull && DatumGetBool(value);
}

char *
pgscale_table_text(uint64 row, int number)
{
	bool		isnull;
	Datum		value = pgscale_table_column(row, number, &isnull);

	return isnull ? NULL : TextDatumGetCString(value);
}
