/*-------------------------------------------------------------------------
 *
 * now_disk.c
 *	  How full the disks of pg_wal and of the data directory are.
 *
 * Those two only: without them the server is dead in any case.  On the disk of a tablespace that
 * does not answer, this session would wait as long as the disk does.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/statvfs.h>

#include "access/xlog_internal.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"

#include "base/units.h"
#include "base/wal_disk.h"

/* Less free space than that is little, if it is also less than this part of the disk. */
#define LITTLE_BYTES	(10.0 * PGSCALE_GB)
#define LITTLE_PART		0.1

PG_FUNCTION_INFO_V1(pgscale_now_disk);

/* Puts size and free space, if that is little; returns whether it is. */
static bool
put_disk(StringInfo out, const char *name, const char *folder)
{
	struct statvfs disk;
	double		size;
	double		room;

	if (statvfs(folder, &disk) != 0)
		return false;
	size = (double) disk.f_blocks * disk.f_frsize;
	room = (double) disk.f_bavail * disk.f_frsize;
	if (room >= LITTLE_BYTES || room >= LITTLE_PART * size)
		return false;
	appendStringInfo(out, "%s\"%s_size_bytes\": %.0f, \"%s_free_bytes\": %.0f", out->len > 1 ? ", " : "", name, size, name, room);
	return true;
}

/* pgscale_internal.now_disk(): size and free space of these disks, of each that has little, and the bytes in pg_wal. */
Datum
pgscale_now_disk(PG_FUNCTION_ARGS)
{
	StringInfoData out;

	initStringInfo(&out);
	appendStringInfoChar(&out, '{');
	(void) put_disk(&out, "data", ".");
	if (put_disk(&out, "wal", XLOGDIR))
		appendStringInfo(&out, ", \"wal_used_bytes\": " INT64_FORMAT, pgscale_wal_disk_used());
	appendStringInfoChar(&out, '}');
	PG_RETURN_DATUM(DirectFunctionCall1(jsonb_in, CStringGetDatum(out.data)));
}
