/*-------------------------------------------------------------------------
 *
 * read_latency.c
 *	  The time of reads on the disks that the server writes to.
 *
 * The kernel counts reads and their time for each block device.  Files on a file system
 * without a named device (tmpfs, overlay, btrfs) are left out.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "base/kernel.h"
#include "base/units.h"
#include "writeback/writeback.h"


#define MAX_DISKS		16

/* With fewer reads in a second their time is meaningless. */
#define ENOUGH_READS	20

typedef struct Disk
{
	dev_t		device;
	PgscaleDisk before;
} Disk;

static Disk disks[MAX_DISKS];
static int	known = 0;
static int64 looked_ns = 0;

void
pgscale_writeback_disk_note(int fd)
{
	struct stat status;

	if (fstat(fd, &status) != 0)
		return;
	for (int i = 0; i < known; i++)
		if (disks[i].device == status.st_dev)
			return;
	if (known < MAX_DISKS && pgscale_kernel_disk(status.st_dev, &disks[known].before))
		disks[known++].device = status.st_dev;
}

double
pgscale_writeback_disk_read_ms(int64 now_ns)
{
	int64		reads = 0;
	int64		ms = 0;

	if (now_ns - looked_ns < NS_PER_S)
		return -1;
	looked_ns = now_ns;

	for (int i = 0; i < known; i++)
	{
		PgscaleDisk now;

		if (!pgscale_kernel_disk(disks[i].device, &now))
			continue;
		reads += now.reads - disks[i].before.reads;
		ms += now.read_ms - disks[i].before.read_ms;
		disks[i].before = now;
	}
	return reads >= ENOUGH_READS ? (double) ms / reads : -1;
}
