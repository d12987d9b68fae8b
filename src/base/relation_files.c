/*-------------------------------------------------------------------------
 *
 * relation_files.c
 *	  The files that a relation's forks lie in, by path and past smgr.
 *
 * smgr would keep descriptors open, and fails where a file is gone.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_tablespace_d.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/relmapper.h"

#include "base/relation_files.h"

void
pgscale_relation_file_path(char *path, RelFileLocator locator, ProcNumber backend, ForkNumber fork, uint32 segment)
{
	pgscale_compat_relpath(path, locator, backend, fork);
	if (segment > 0)
	{
		const size_t length = strlen(path);

		snprintf(path + length, MAXPGPATH - length, ".%u", segment);
	}
}

RelFileLocator
pgscale_relation_locator(Form_pg_class class)
{
	RelFileLocator locator;

	locator.spcOid = OidIsValid(class->reltablespace) ? class->reltablespace : MyDatabaseTableSpace;
	locator.dbOid = class->relisshared ? InvalidOid : MyDatabaseId;
	locator.relNumber = class->relfilenode;
	if (!OidIsValid(locator.relNumber))
		locator.relNumber = RelationMapOidToFilenumber(class->oid, class->relisshared);
	return locator;
}

/*
 * Temporary relations are left out: they may have the file number of one that is
 * permanent.
 */
void
pgscale_relation_files_each(void (*each) (void *arg, Form_pg_class class, RelFileLocator locator), void *arg)
{
	Relation	pg_class = table_open(RelationRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(pg_class, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_class class = (Form_pg_class) GETSTRUCT(tuple);

		CHECK_FOR_INTERRUPTS();
		if (RELKIND_HAS_STORAGE(class->relkind) && class->relpersistence != RELPERSISTENCE_TEMP)
			each(arg, class, pgscale_relation_locator(class));
	}
	systable_endscan(scan);
	table_close(pg_class, AccessShareLock);
}

int
pgscale_relation_file_open(const char *path)
{
	return OpenTransientFile(path, O_RDONLY | PG_BINARY);
}

void
pgscale_relation_files_folder(char *path, Oid tablespace)
{
	if (tablespace == DEFAULTTABLESPACE_OID)
		strlcpy(path, "base", MAXPGPATH);
	else
		snprintf(path, MAXPGPATH, "pg_tblspc/%u/%s", tablespace, TABLESPACE_VERSION_DIRECTORY);
}
