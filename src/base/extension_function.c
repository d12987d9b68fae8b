/*-------------------------------------------------------------------------
 *
 * extension_function.c
 *	  Functions and views of extensions, by OID.
 *
 * A name is not enough.  Any role that may create objects in the schema of an extension
 * can create a function with the expected name.  An old version of the extension, as
 * after pg_upgrade, may lack the expected one. pgscale calls as a superuser, so a
 * planted function would run as a superuser.  Therefore the function must be a member
 * of the extension, must have exactly these parameters, and must be written in C, which
 * only superusers can create: the owner of a member could replace its body. pgscale's
 * own functions are SQL; they must belong to a superuser, because only superusers can
 * install the extension.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/dependency.h"
#include "catalog/pg_class.h"
#include "catalog/pg_language_d.h"
#include "catalog/pg_proc.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/syscache.h"

#include "base/extension_function.h"

static bool
extension_trusts(Form_pg_proc function, bool own)
{
	return own ? superuser_arg(function->proowner) : function->prolang == ClanguageId;
}

static bool
is_meant(HeapTuple tuple, Oid extension, bool own, int nargs, const Oid *types)
{
	Form_pg_proc function = (Form_pg_proc) GETSTRUCT(tuple);

	return function->pronargs == nargs &&
		(nargs == 0 || memcmp(function->proargtypes.values, types, nargs * sizeof(Oid)) == 0) &&
		function->prokind == PROKIND_FUNCTION && extension_trusts(function, own) &&
		getExtensionOfObject(ProcedureRelationId, function->oid) == extension;
}

static Oid
extension_find(Oid extension, bool own, const char *name, int nargs, const Oid *types)
{
	CatCList   *functions = SearchSysCacheList1(PROCNAMEARGSNSP, CStringGetDatum(name));
	Oid			found = InvalidOid;

	for (int i = 0; i < functions->n_members; i++)
		if (is_meant(&functions->members[i]->tuple, extension, own, nargs, types))
			found = ((Form_pg_proc) GETSTRUCT(&functions->members[i]->tuple))->oid;
	ReleaseSysCacheList(functions);
	return found;
}

Oid
pgscale_extension_required(const char *extension, const char *option)
{
	Oid			oid = get_extension_oid(extension, true);

	if (!OidIsValid(oid))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("%s needs the extension \"%s\", which is not installed here", option, extension),
				 errhint("CREATE EXTENSION %s.", extension)));
	return oid;
}

Oid
pgscale_extension_function(const char *extension, const char *function, int nargs, const Oid *types,
						   const char *option)
{
	Oid			found = extension_find(pgscale_extension_required(extension, option), false, function, nargs, types);

	if (!OidIsValid(found))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("%s needs a newer version of the extension \"%s\" than is installed here", option, extension),
				 errhint("ALTER EXTENSION %s UPDATE.", extension)));
	return found;
}

Oid
pgscale_extension_function_if_any(const char *extension, const char *function, int nargs, const Oid *types)
{
	Oid			oid = get_extension_oid(extension, true);

	return OidIsValid(oid) ? extension_find(oid, false, function, nargs, types) : InvalidOid;
}

Oid
pgscale_extension_view(const char *extension, const char *view)
{
	const Oid	oid = get_extension_oid(extension, true);
	CatCList   *relations = SearchSysCacheList1(RELNAMENSP, CStringGetDatum(view));
	Oid			found = InvalidOid;

	for (int i = 0; OidIsValid(oid) && i < relations->n_members; i++)
	{
		Form_pg_class relation = (Form_pg_class) GETSTRUCT(&relations->members[i]->tuple);

		if (relation->relkind == RELKIND_VIEW && getExtensionOfObject(RelationRelationId, relation->oid) == oid)
			found = relation->oid;
	}
	ReleaseSysCacheList(relations);
	return found;
}

char *
pgscale_extension_own_text(const char *function, int nargs, const Oid *types, const Datum *values)
{
	const Oid	extension = get_extension_oid("pgscale", true);
	const Oid	oid = OidIsValid(extension) ? extension_find(extension, true, function, nargs, types) : InvalidOid;

	LOCAL_FCINFO(fcinfo, FUNC_MAX_ARGS);
	FmgrInfo	called;
	Datum		result;

	if (!OidIsValid(oid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("this database has no function pgscale_internal.%s", function),
				 errhint("CREATE EXTENSION pgscale makes it.")));
	fmgr_info(oid, &called);
	InitFunctionCallInfoData(*fcinfo, &called, nargs, InvalidOid, NULL, NULL);
	for (int i = 0; i < nargs; i++)
	{
		fcinfo->args[i].value = values[i];
		fcinfo->args[i].isnull = false;
	}
	result = FunctionCallInvoke(fcinfo);
	return fcinfo->isnull ? NULL : TextDatumGetCString(result);
}
