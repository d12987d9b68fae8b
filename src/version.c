/*-------------------------------------------------------------------------
 *
 * version.c
 *	  The versions of the library and of the extension in this database.
 *
 * They differ during an upgrade.  The server loads a new library when it starts, and
 * each database gets the new objects by ALTER EXTENSION ... UPDATE.  In between the
 * library is newer, and that works: what a released script calls in the library stays.
 * The opposite cannot work: a new script calls what an old library lacks.  So the first
 * statement of each script asks here, and the whole script fails before it has changed
 * anything.  A script cannot ask where it does not run: on a standby whose primary was
 * updated, and where an old library was put back.  The row "version" of pgscale.health
 * reports those.
 *
 * The version of the extension is read from pg_extension: it has the new one while the
 * script runs, so no script has to name it.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xlog.h"
#include "catalog/indexing.h"
#include "catalog/pg_extension.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

#include "base/preload.h"
#include "pgscale.h"

PG_FUNCTION_INFO_V1(pgscale_require_library);

/* Of the extension in this database; NULL if it is not installed here. */
static char *
version_of_extension(void)
{
	Relation	extensions = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	char	   *version = NULL;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ, CStringGetDatum("pgscale"));
	scan = systable_beginscan(extensions, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;

		/*
		 * heap_getattr() links what older minor releases lack:
		 * .ci/release/checks/oldest-minor
		 */
		Datum		value = fastgetattr(tuple, Anum_pg_extension_extversion, RelationGetDescr(extensions), &isnull);

		if (!isnull)
			version = TextDatumGetCString(value);
	}
	systable_endscan(scan);
	table_close(extensions, AccessShareLock);
	return version;
}

/* Compares numbers between dots: 1.9 is less than 1.10, and 1.0 less than 1.0.1. */
static int
version_compare(const char *a, const char *b)
{
	while (*a || *b)
	{
		char	   *a_end;
		char	   *b_end;
		const long	of_a = strtol(a, &a_end, 10);
		const long	of_b = strtol(b, &b_end, 10);

		if (of_a != of_b)
			return of_a < of_b ? -1 : 1;
		if (*a_end != '.' && *b_end != '.')
			break;
		a = *a_end == '.' ? a_end + 1 : "";
		b = *b_end == '.' ? b_end + 1 : "";
	}
	return 0;
}

/*
 * pgscale_internal.require_library(), the first statement of each script of the
 * extension.  Raises an error if the library is older than the extension that the script
 * creates or updates.  Warns if the library is not preloaded: CREATE EXTENSION shows no
 * notices of a script.
 */
Datum
pgscale_require_library(PG_FUNCTION_ARGS)
{
	const char *wanted = version_of_extension();

	if (wanted && version_compare(PGSCALE_VERSION, wanted) < 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("version %s of the extension \"pgscale\" needs a library of that version, not %s",
						wanted, PGSCALE_VERSION),
				 pgscale_preload_done() ?
				 errhint("The server runs the library that it loaded at its start. Install the library of version %s and restart the server.",
						 wanted) :
				 errhint("Install the library of version %s and connect again.", wanted)));
	if (!pgscale_preload_done())
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pgscale is not loaded into the server, so most of it does not work"),
				 errhint("Add \"pgscale\" to shared_preload_libraries and restart the server.")));
	PG_RETURN_VOID();
}

void
pgscale_version_health(PgscaleHealth *health)
{
	const char *extension = version_of_extension();
	const int	newer = extension ? version_compare(PGSCALE_VERSION, extension) : 0;

	memset(health, 0, sizeof(*health));
	health->state = PGSCALE_HEALTH_WORKING;
	if (newer == 0)
		health->reason = psprintf("library and extension have version %s", PGSCALE_VERSION);
	else if (newer > 0)
	{
		health->reason = psprintf("the library has version %s, the extension in this database %s", PGSCALE_VERSION, extension);
		health->action = RecoveryInProgress() ? "on the primary, run ALTER EXTENSION pgscale UPDATE in this database" :
			"run ALTER EXTENSION pgscale UPDATE in this database";
	}
	else
	{
		health->state = PGSCALE_HEALTH_BROKEN;
		health->reason = psprintf("the library has version %s, the extension in this database the later %s", PGSCALE_VERSION,
								  extension);
		health->action = psprintf("install the library of version %s and restart", extension);
	}
}

void
pgscale_version_log(void)
{
	ereport(LOG,
			(errmsg("pgscale %s is loaded", PGSCALE_VERSION),
			 errhint("If no database has the extension \"pgscale\", CREATE EXTENSION pgscale in one of them; its views show the whole server.")));
}
