/*-------------------------------------------------------------------------
 *
 * verify_move.c
 *	  What a move must not have changed: an index' definition, its constraint,
 *	  statistics targets, comments, options, marks, parent and dependencies.
 *
 * All of that is put into one text before the move, and again after it.  The
 * text is made by a query, since the catalogs are what users and dumps see; it
 * is the same on both sides whatever the major has in it.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "commands/tablespace.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "base/extension_function.h"
#include "base/pg_compat.h"
#include "base/sql.h"
#include "relocation/checks.h"
#include "relocation/relocation.h"
#include "relocation/tablespace_latency.h"

char *
pgscale_relocation_describe_index(Oid index)
{
	return pgscale_sql_text("SELECT pg_catalog.concat_ws(E'\\n',"
							" pg_catalog.pg_get_indexdef(i.indexrelid),"
							" pg_catalog.format('owner %s, persistence %s, options %s, parent %s', c.relowner, c.relpersistence, c.reloptions,"
							"  (SELECT inhparent FROM pg_catalog.pg_inherits WHERE inhrelid = i.indexrelid)),"
							" pg_catalog.format('primary %s, immediate %s, clustered %s, replica identity %s',"
							"  i.indisprimary, i.indimmediate, i.indisclustered, i.indisreplident),"
							" 'comment ' || pg_catalog.obj_description(i.indexrelid, 'pg_class'),"
							" (SELECT pg_catalog.format('constraint %s %s %s %s', k.oid, k.conname, pg_catalog.pg_get_constraintdef(k.oid),"
							"   pg_catalog.obj_description(k.oid, 'pg_constraint'))"
							"  FROM pg_catalog.pg_constraint k WHERE k.conindid = i.indexrelid AND k.conrelid = i.indrelid"
							"  AND k.contype IN ('p', 'u', 'x')),"
							" 'used by ' || (SELECT pg_catalog.string_agg(k.oid::text, ' ' ORDER BY k.oid) FROM pg_catalog.pg_constraint k"
							"  WHERE k.conindid = i.indexrelid AND k.contype = 'f'),"
							" 'statistics targets ' || (SELECT pg_catalog.string_agg(a.attnum || ':' || a.attstattarget, ' ' ORDER BY a.attnum)"
							"  FROM pg_catalog.pg_attribute a WHERE a.attrelid = i.indexrelid),"
							" 'depends on ' || (SELECT pg_catalog.string_agg(pg_catalog.concat_ws('/', refclassid, refobjid, refobjsubid, deptype), ' '"
							"   ORDER BY refclassid, refobjid, refobjsubid, deptype)"
							"  FROM pg_catalog.pg_depend WHERE classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND objid = i.indexrelid),"
							" 'needed by ' || (SELECT pg_catalog.string_agg(pg_catalog.concat_ws('/', classid, objid, objsubid, deptype), ' '"
							"   ORDER BY classid, objid, objsubid, deptype)"
							"  FROM pg_catalog.pg_depend WHERE refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND refobjid = i.indexrelid))"
							" FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid WHERE i.indexrelid = $1", index, 0);
}

static bool
is_btree(Oid index)
{
	return pgscale_sql_text("SELECT true::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_am a ON a.oid = c.relam"
							" WHERE c.oid = $1 AND amname = 'btree'", index, 0) != NULL;
}

Oid
pgscale_relocation_amcheck_function(void)
{
	static const Oid types[] = {REGCLASSOID, BOOLOID};

	return pgscale_extension_function("amcheck", "bt_index_check", lengthof(types), types, "amcheck");
}

Oid
pgscale_relocation_prewarm_function(void)
{
	static const Oid types[] = {REGCLASSOID, TEXTOID, TEXTOID, INT8OID, INT8OID};

	return pgscale_extension_function("pg_prewarm", "pg_prewarm", lengthof(types), types, "prewarm");
}

/* Every row of its table is in it, too. */
static void
look_up_all(Oid index)
{
	(void) OidFunctionCall2(pgscale_relocation_amcheck_function(), ObjectIdGetDatum(index), BoolGetDatum(true));
}

/* All of its blocks: from NULL to NULL. */
static void
verify_prewarm(Oid relation)
{
	LOCAL_FCINFO(fcinfo, 5);
	FmgrInfo	function;

	fmgr_info(pgscale_relocation_prewarm_function(), &function);
	InitFunctionCallInfoData(*fcinfo, &function, 5, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = ObjectIdGetDatum(relation);
	fcinfo->args[1].value = CStringGetTextDatum("buffer");
	fcinfo->args[2].value = CStringGetTextDatum("main");
	for (int i = 0; i < 5; i++)
		fcinfo->args[i].isnull = i > 2;
	(void) FunctionCallInvoke(fcinfo);
}

void
pgscale_relocation_verify_move(PgscaleRelocationJob *job)
{
	Oid			relation = job->is_table ? job->relation : job->new_index;

	if (pgscale_relocation_tablespace_of(relation) != job->target)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("after its move it is not in tablespace \"%s\"", get_tablespace_name(job->target))));
	if (!job->is_table)
	{
		char	   *after = pgscale_relocation_describe_index(relation);

		if (job->before && (!after || strcmp(job->before, after) != 0))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the index has moved, but is not what it was"),
					 errdetail("Before: %s\nAfter: %s", job->before, after ? after : "gone")));
	}
	job->bytes_after = DatumGetInt64(DirectFunctionCall1(pg_table_size, ObjectIdGetDatum(relation)));
	if (job->amcheck && is_btree(relation))
		look_up_all(relation);
	if (job->prewarm)
		verify_prewarm(relation);
}

char *
pgscale_relocation_suggest_settings(const PgscaleRelocationJob *job)
{
	PgscaleRelocationProbe probe;
	int64		bytes;
	char	   *name = pgscale_sql_text("SELECT spcname FROM pg_catalog.pg_tablespace WHERE oid = $1"
										" AND NOT EXISTS (SELECT FROM pg_catalog.unnest(spcoptions) o WHERE o LIKE 'random_page_cost=%')",
										job->target, 0);

	if (!name || pgscale_relocation_jobs_to(job->target, &bytes) > 1 ||
		!pgscale_relocation_probe_tablespace(job->target, &probe) ||
		probe.random_page_cost == 0 ||
		(probe.random_page_cost >= random_page_cost * 0.8 && probe.random_page_cost <= random_page_cost * 1.2))
		return NULL;
	return psprintf("its disk suggests ALTER TABLESPACE %s SET (random_page_cost = %.1f);"
					" new relations go there with default_tablespace = %s",
					quote_identifier(name), probe.random_page_cost, quote_literal_cstr(name));
}
