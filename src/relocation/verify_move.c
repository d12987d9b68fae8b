/*-------------------------------------------------------------------------
 *
 * verify_move.c
 *	  Checks that a move has changed nothing else: an index' definition, its
 *	  constraint, statistics targets, comments, options, marks, parent and
 *	  dependencies.
 *
 * All of that becomes one text before the move, and again after it.  A query makes the
 * text, pgscale_internal.relocation_describe_index(), because users and dumps see the
 * catalogs.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/reloptions.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_class.h"
#include "catalog/pg_tablespace_d.h"
#include "catalog/pg_type_d.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "commands/tablespace.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/syscache.h"

#include "base/extension_function.h"
#include "base/pg_compat.h"
#include "relocation/checks.h"
#include "relocation/relocation.h"
#include "relocation/tablespace_latency.h"

char *
pgscale_relocation_describe_index(Oid index)
{
	static const Oid types[] = {OIDOID};
	const Datum values[] = {ObjectIdGetDatum(index)};

	return pgscale_extension_own_text("relocation_describe_index", lengthof(types), types, values);
}

/* The function that checks indexes of an access method; InvalidOid: there is none here. */
static Oid
amcheck_function(Oid am)
{
	static const Oid types[] = {REGCLASSOID, BOOLOID};

	if (am == BTREE_AM_OID)
		return pgscale_extension_function_if_any("amcheck", "bt_index_check", 2, types);
	if (am == GIN_AM_OID && PGSCALE_AMCHECK_GIN)
		return pgscale_extension_function_if_any("amcheck", "gin_index_check", 1, types);
	return InvalidOid;
}

char *
pgscale_relocation_cannot_amcheck(Oid index, const char **hint)
{
	const Oid	am = pgscale_relocation_am_of(index);

	if (OidIsValid(amcheck_function(am)))
		return NULL;
	if (am != BTREE_AM_OID && !(am == GIN_AM_OID && PGSCALE_AMCHECK_GIN))
	{
		*hint = PGSCALE_AMCHECK_GIN ? "It checks btree and gin indexes." : "It checks btree indexes.";
		return psprintf("the extension \"amcheck\" does not check %s indexes", get_am_name(am));
	}
	if (!OidIsValid(get_extension_oid("amcheck", true)))
	{
		*hint = "CREATE EXTENSION amcheck.";
		return pstrdup("the extension \"amcheck\" is not installed here");
	}
	*hint = "ALTER EXTENSION amcheck UPDATE.";
	return psprintf("the extension \"amcheck\" that is installed here is too old to check %s indexes", get_am_name(am));
}

Oid
pgscale_relocation_prewarm_function(void)
{
	static const Oid types[] = {REGCLASSOID, TEXTOID, TEXTOID, INT8OID, INT8OID};

	return pgscale_extension_function("pg_prewarm", "pg_prewarm", lengthof(types), types, "prewarm");
}

/* In a B-tree, every row of its table is looked up, too.  Returns the reason why there is no check, or NULL. */
static char *
verify_amcheck(Oid index)
{
	const Oid	am = pgscale_relocation_am_of(index);
	const Oid	function = amcheck_function(am);
	const char *hint;

	if (!OidIsValid(function))
		return pgscale_relocation_cannot_amcheck(index, &hint);
	if (am == BTREE_AM_OID)
		(void) OidFunctionCall2(function, ObjectIdGetDatum(index), BoolGetDatum(true));
	else
		(void) OidFunctionCall1(function, ObjectIdGetDatum(index));
	return NULL;
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

char *
pgscale_relocation_verify_move(PgscaleRelocationJob *job)
{
	Oid			relation = pgscale_relocation_moved(job);
	char	   *unverified = NULL;

	if (pgscale_relocation_tablespace_of(relation) != job->target)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("after its move it is not in tablespace \"%s\"", get_tablespace_name(job->target))));
	if (job->mode == PGSCALE_RELOCATE_REBUILD)
	{
		char	   *after = pgscale_relocation_describe_index(relation);

		if (job->before && (!after || strcmp(job->before, after) != 0))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the index has moved, but differs from before"),
					 errdetail("Before: %s\nAfter: %s", job->before, after ? after : "gone")));
	}
	job->bytes_after = DatumGetInt64(DirectFunctionCall1(pg_table_size, ObjectIdGetDatum(relation)));
	if (job->amcheck)
		unverified = verify_amcheck(relation);
	if (job->prewarm)
		verify_prewarm(relation);
	return unverified;
}

/* Was it set for this tablespace? */
static bool
has_random_page_cost(Oid tablespace)
{
	HeapTuple	tuple = SearchSysCache1(TABLESPACEOID, ObjectIdGetDatum(tablespace));
	Datum		options;
	bool		isnull;
	bool		has;

	if (!HeapTupleIsValid(tuple))
		return false;
	options = SysCacheGetAttr(TABLESPACEOID, tuple, Anum_pg_tablespace_spcoptions, &isnull);
	has = !isnull && ((TableSpaceOpts *) tablespace_reloptions(options, false))->random_page_cost >= 0;
	ReleaseSysCache(tuple);
	return has;
}

char *
pgscale_relocation_suggest_settings(const PgscaleRelocationJob *job)
{
	PgscaleRelocationProbe probe;
	char	   *name = get_tablespace_name(job->target);

	if (!name || has_random_page_cost(job->target) || !pgscale_relocation_job_is_last_to(job->target) ||
		!pgscale_relocation_probe_tablespace(job->target, &probe) ||
		probe.random_page_cost == 0 ||
		(probe.random_page_cost >= random_page_cost * 0.8 && probe.random_page_cost <= random_page_cost * 1.2))
		return NULL;
	return psprintf("the disk of \"%s\" suggests ALTER TABLESPACE %s SET (random_page_cost = %.1f)%s",
					name, quote_identifier(name), probe.random_page_cost,
					job->target == MyDatabaseTableSpace ? "" :
					psprintf("; new relations go there with default_tablespace = %s", quote_literal_cstr(name)));
}
