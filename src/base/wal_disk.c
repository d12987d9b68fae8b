/*-------------------------------------------------------------------------
 *
 * wal_disk.c
 *	  What pg_wal takes of its disk, and what it may take.
 *
 * The server ends in a PANIC when that disk is full, and cannot recover before there is
 * room.  WAL that a slot, the archiver or wal_keep_size keeps beyond max_wal_size is not
 * counted as room: it stays.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>
#include <sys/statvfs.h>

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "storage/fd.h"

#include "base/units.h"
#include "base/wal_disk.h"

/* Bytes of the segments before that one whose names have this ending in the folder. */
static int64
segments_before(const char *path, const char *ending, XLogSegNo end)
{
	DIR		   *folder = AllocateDir(path);
	struct dirent *entry;
	int64		bytes = 0;

	while ((entry = ReadDirExtended(folder, path, LOG)) != NULL)
	{
		TimeLineID	timeline;
		XLogSegNo	segment = 0;

		if (strspn(entry->d_name, "0123456789ABCDEF") != XLOG_FNAME_LEN || strcmp(entry->d_name + XLOG_FNAME_LEN, ending) != 0)
			continue;
		if (end < PG_UINT64_MAX)
			XLogFromFileName(entry->d_name, &timeline, &segment, wal_segment_size);
		if (segment < end)
			bytes += wal_segment_size;
	}
	FreeDir(folder);
	return bytes;
}

int64
pgscale_wal_disk_used_before(XLogSegNo end)
{
	return segments_before(XLOGDIR, "", end);
}

int64
pgscale_wal_disk_used(void)
{
	return pgscale_wal_disk_used_before(PG_UINT64_MAX);
}

int64
pgscale_wal_disk_to_archive_before(XLogSegNo end)
{
	return XLogArchivingActive() ? segments_before(XLOGDIR "/archive_status", ".ready", end) : 0;
}

double
pgscale_wal_disk_room(void)
{
	struct statvfs disk;

	if (statvfs(XLOGDIR, &disk) != 0)
		return INFINITY;
	return (double) disk.f_bavail * disk.f_frsize + Min(pgscale_wal_disk_used(), max_wal_size_mb * PGSCALE_MB);
}
