/*-------------------------------------------------------------------------
 *
 * kernel.c
 *	  Page cache, dirty memory and disks, as the kernel reports them.
 *
 * The page cache. cachestat(2), available since Linux 6.5, counts the pages of a range
 * in all states and costs next to nothing.  Where cachestat is missing or forbidden,
 * mincore(2) on a mapping reports cached pages, but not dirty ones.  It touches no
 * page, so a concurrent truncation raises no signal.
 *
 * A file on an overlay file system has no pages of its own; they belong to the file
 * below it. cachestat() does not look there and would report nothing, so the lower file
 * is mapped.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/fd.h"

#include "base/kernel.h"

/* Libraries and headers older than the kernel lack these. */
#ifndef SYS_cachestat
#define SYS_cachestat	451
#endif
#define OVERLAY_MAGIC	0x794c7630

typedef struct CachestatRange
{
	uint64		off;
	uint64		len;
} CachestatRange;

typedef struct Cachestat
{
	uint64		nr_cache;
	uint64		nr_dirty;
	uint64		nr_writeback;
	uint64		nr_evicted;
	uint64		nr_recently_evicted;
} Cachestat;

/* Mapped at once for mincore(), in pages. */
#define MINCORE_PAGES	16384

/* Large enough for what we look for in /proc/vmstat, which is not at its end. */
#define FILE_BYTES		8192

#define SECTOR_BYTES	512

/* A quota of CPUs is kept in parts of one. */
#define CPU_PARTS		1000000

static int
cachestat_call(int fd, CachestatRange *range, Cachestat *stat)
{
	return syscall(SYS_cachestat, fd, range, stat, 0);
}

/*
 * Tried once in each process, with an invalid file: a kernel that has the call rejects
 * the file first.
 */
bool
pgscale_kernel_reports_dirty(const char **why)
{
	static int	error = -1;
	static char other[128];

	if (error < 0)
	{
		CachestatRange range = {0};
		Cachestat	stat;

		error = cachestat_call(-1, &range, &stat) == 0 ? 0 : errno;
		snprintf(other, sizeof(other), "cachestat fails: %s", strerror(error));
	}
	switch (error)
	{
		case EBADF:
			return true;
		case ENOSYS:
			*why = "the kernel or the container has no cachestat (Linux 6.5 has it)";
			return false;
		case EPERM:
			*why = "cachestat is forbidden here, as by a container's seccomp filter";
			return false;
		default:
			*why = other;
			return false;
	}
}

static bool
on_overlay(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && fs.f_type == OVERLAY_MAGIC;
}

static bool
ask_cachestat(int fd, off_t offset, off_t length, PgscaleCached *cached)
{
	CachestatRange range = {.off = offset,.len = length};
	const int64 page = sysconf(_SC_PAGESIZE);
	Cachestat	stat;

	if (cachestat_call(fd, &range, &stat) != 0)
		return false;
	cached->cached = stat.nr_cache * page;
	cached->dirty = stat.nr_dirty * page;
	cached->writeback = stat.nr_writeback * page;
	return true;
}

static bool
ask_mincore(int fd, off_t offset, off_t length, PgscaleCached *cached)
{
	static unsigned char resident[MINCORE_PAGES];
	const off_t page = sysconf(_SC_PAGESIZE);
	off_t		end = offset + length;
	struct stat file;

	if (length == 0)
	{
		if (fstat(fd, &file) != 0)
			return false;
		end = file.st_size;
	}
	offset -= offset % page;

	cached->cached = 0;
	cached->dirty = cached->writeback = -1;
	while (offset < end)
	{
		const size_t bytes = Min(end - offset, MINCORE_PAGES * page);
		void	   *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, offset);
		int			result;

		if (map == MAP_FAILED)
			return false;
		result = mincore(map, bytes, resident);
		munmap(map, bytes);
		if (result != 0)
			return false;
		for (size_t i = 0; i < (bytes + page - 1) / page; i++)
			cached->cached += (resident[i] & 1) * page;
		offset += bytes;
	}
	return true;
}

bool
pgscale_kernel_begins_writes(const char *path)
{
	struct statfs fs;

	return statfs(path, &fs) != 0 || fs.f_type != OVERLAY_MAGIC;
}

/* Tried once in each process, as cachestat is. */
bool
pgscale_kernel_may_begin_writes(void)
{
	static int	error = -1;

	if (error < 0)
		error = sync_file_range(-1, 0, 0, SYNC_FILE_RANGE_WRITE) == 0 ? 0 : errno;
	return error == EBADF || error == 0;
}

bool
pgscale_kernel_cached(int fd, off_t offset, off_t length, PgscaleCached *cached)
{
	const char *why;

	if (!pgscale_kernel_reports_dirty(&why))
		return ask_mincore(fd, offset, length, cached);
	if (!ask_cachestat(fd, offset, length, cached))
		return false;
	return cached->cached > 0 || !on_overlay(fd) || ask_mincore(fd, offset, length, cached);
}

void
pgscale_kernel_evict(int fd)
{
	(void) posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

/* Reads the begin of a file, as a string. */
static bool
kernel_read_file(const char *path, char *text, size_t size)
{
	const int	fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t		used = 0;
	ssize_t		n = 0;

	if (fd < 0)
		return false;
	while (used < size - 1 && (n = read(fd, text +used, size - 1 - used)) > 0)
		used += n;
	close(fd);
	text[		used] = '\0';

	return n >= 0;
}

/* The number behind a name at a line's begin; -1 if there is none. */
static int64
number_of(const char *text, const char *name)
{
	const size_t length = strlen(name);

	for (const char *line = text; line != NULL; line = strchr(line, '\n'))
	{
		if (*line == '\n')
			line++;
		if (strncmp(line, name, length) == 0 && line[length] == ' ')
			return strtoll(line + length, NULL, 10);
	}
	return -1;
}

void
pgscale_kernel_memory(PgscaleKernelMemory *memory)
{
	const struct
	{
		const char *name;
		int64	   *value;
	}			wanted[] = {
		{"nr_dirty", &memory->dirty},
		{"nr_writeback", &memory->writeback},
		{"nr_dirty_background_threshold", &memory->background_threshold},
		{"nr_dirty_threshold", &memory->threshold}
	};
	const int64 page = sysconf(_SC_PAGESIZE);
	char text[	FILE_BYTES];

	if (!kernel_read_file("/proc/vmstat", text, sizeof(text)))
		text[		0] = '\0';

	for (int i = 0; i < lengthof(wanted); i++)
	{
		const int64 pages = number_of(text, wanted[i].name);

		*wanted[i].value = pages < 0 ? -1 : pages * page;
	}
}

int64
pgscale_kernel_meminfo(const char *name)
{
	char text[	FILE_BYTES];
	int64		kb;

	if (!kernel_read_file("/proc/meminfo", text, sizeof(text)))
		return -1;
	kb = number_of(text, name);
	return kb < 0 ? -1 : kb * 1024;
}

double
pgscale_kernel_io_pressure_fraction(void)
{
	char text[	256];
	double		pressure;

	if (!kernel_read_file("/proc/pressure/io", text, sizeof(text)) ||
		sscanf(text, "some avg10=%lf", &pressure) != 1)
		return -1;
	return pressure / 100;
}

bool
pgscale_kernel_disk(dev_t device, PgscaleDisk *disk)
{
	char		path[64];
	char text[	512];
	long long	reads,
				read_ms,
				writes,
				write_sectors,
				busy_ms;

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/stat", major(device), minor(device));
	if (!kernel_read_file(path, text, sizeof(text)) ||
		sscanf(text, "%lld %*d %*d %lld %lld %*d %lld %*d %*d %lld",
			   &reads, &read_ms, &writes, &write_sectors, &busy_ms) != 5)
		return false;
	disk->reads = reads;
	disk->read_ms = read_ms;
	disk->writes = writes;
	disk->write_bytes = write_sectors * SECTOR_BYTES;
	disk->busy_ms = busy_ms;
	return true;
}

/*
 * The only entry of a folder other than "." and ".."; false if there are none or
 * several.
 */
static bool
only_entry(const char *path, char *name, Size size)
{
	DIR		   *dir = AllocateDir(path);
	struct dirent *entry;
	int			n = 0;

	if (dir == NULL)
		return false;
	while ((entry = ReadDirExtended(dir, path, DEBUG1)) != NULL)
		if (entry->d_name[0] != '.')
		{
			strlcpy(name, entry->d_name, size);
			n++;
		}
	FreeDir(dir);
	return n == 1;
}

/* What is made of other devices, one on the other. */
#define MAX_LAYERS	8

/* A loop device stays itself: what limits it may not be what limits the disk. */
bool
pgscale_kernel_device(const char *path, char *name, Size size)
{
	struct stat status;
	char		link[MAXPGPATH];
	char		folder[PATH_MAX];	/* realpath() takes no less */
	char		slave[MAXPGPATH];

	if (stat(path, &status) != 0)
		return false;
	snprintf(name, size, "%u:%u", major(status.st_dev), minor(status.st_dev));
	snprintf(link, sizeof(link), "/sys/dev/block/%s", name);
	for (int layer = 0; layer < MAX_LAYERS && realpath(link, folder); layer++)
	{
		char		file[PATH_MAX + 16];

		snprintf(file, sizeof(file), "%s/partition", folder);
		if (access(file, F_OK) == 0)
			*strrchr(folder, '/') = '\0';
		strlcpy(name, strrchr(folder, '/') + 1, size);
		snprintf(file, sizeof(file), "%s/slaves", folder);
		if (!only_entry(file, slave, sizeof(slave)))
			break;
		snprintf(link, sizeof(link), "/sys/class/block/%s", slave);
	}
	return true;
}

void
pgscale_kernel_counts(PgscaleKernelCounts *counts)
{
	char		vmstat[FILE_BYTES];

	counts->swapped = counts->compact_stalls = -1;
	if (!kernel_read_file("/proc/vmstat", vmstat, sizeof(vmstat)))
		return;
	counts->compact_stalls = number_of(vmstat, "compact_stall");
	counts->swapped = number_of(vmstat, "pswpin");
	if (counts->swapped >= 0)
		counts->swapped += number_of(vmstat, "pswpout");
}

int
pgscale_kernel_open_schedule(int pid)
{
	char		path[64];

	snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
	return open(path, O_RDONLY | O_CLOEXEC);
}

bool
pgscale_kernel_read_schedule(int fd, PgscaleKernelSchedule *counts)
{
	char		line[96];
	char	   *rest;
	const ssize_t n = pread(fd, line, sizeof(line) - 1, 0);

	if (n <= 0)
		return false;
	line[n] = '\0';
	counts->run_ns = strtoll(line, &rest, 10);
	counts->queue_ns = strtoll(rest, NULL, 10);

	/* A kernel without these counts shows zeroes, but the process has run. */
	return counts->run_ns > 0;
}

/* Parts of a CPU; the kernel's numbers of microseconds have no more than 13 digits. */
static int64
quota_parts(int64 quota_us, int64 period_us)
{
	return quota_us > 0 && period_us > 0 && period_us < PG_INT64_MAX ? (int64) (quota_us / (double) period_us * CPU_PARTS) : PG_INT64_MAX;
}

/* What a file of a group limits, CPUs in parts; PG_INT64_MAX unless it begins with a number, which "max" does not. */
static int64
group_limit(const char *folder, const char *file)
{
	char		name[3 * MAXPGPATH];
	char		line[64];
	char	   *rest;
	int64		limit;

	snprintf(name, sizeof(name), "%s/%s", folder, file);
	if (!pgscale_kernel_setting(name, line, sizeof(line)) || !isdigit((unsigned char) line[0]))
		return PG_INT64_MAX;
	limit = strtoll(line, &rest, 10);
	if (strcmp(file, "cpu.max") == 0)
		return quota_parts(limit, strtoll(rest, NULL, 10));
	if (strcmp(file, "cpu.cfs_quota_us") == 0)
		return quota_parts(limit, group_limit(folder, "cpu.cfs_period_us"));
	return limit;
}

/*
 * The least limit of a group and those around it.  One that is not there, as in a
 * container that sees its own part only, has none.
 */
static int64
least_group_limit(const char *root, const char *path, const char *file)
{
	int64		limit = PG_INT64_MAX;
	char		group[MAXPGPATH];
	char		folder[3 * MAXPGPATH];

	strlcpy(group, path, sizeof(group));
	for (;;)
	{
		char	   *last = strrchr(group, '/');
		int64		own;

		snprintf(folder, sizeof(folder), "%s%s", root, group);
		own = group_limit(folder, file);
		limit = Min(limit, own);
		if (!last)
			return limit;
		*last = '\0';
	}
}

/* Is it one of these controllers, which are separated by commas and end with a colon? */
static bool
is_controller(const char *controllers, const char *controller)
{
	const size_t length = strlen(controller);

	for (const char *at = controllers; *at != ':'; at += *at == ',')
	{
		const size_t n = strcspn(at, ",:");

		if (n == length && strncmp(at, controller, n) == 0)
			return true;
		at += n;
	}
	return false;
}

/* What this process is limited to by its cgroups, which have that in a file of either version. */
static int64
cgroup_limit(const char *controller, const char *version1, const char *version2)
{
	char		lines[FILE_BYTES];
	char		folder[MAXPGPATH];
	int64		limit = PG_INT64_MAX;
	char	   *rest = lines;
	char	   *line;

	if (!kernel_read_file("/proc/self/cgroup", lines, sizeof(lines)))
		return limit;
	snprintf(folder, sizeof(folder), "/sys/fs/cgroup/%s", controller);

	/* Lines are number:controllers:path, of version 2 without controllers. */
	while ((line = strsep(&rest, "\n")) != NULL)
	{
		const char *controllers = strchr(line, ':');
		const char *path = controllers ? strchr(controllers + 1, ':') : NULL;
		int64		group = PG_INT64_MAX;

		if (!path)
			continue;
		if (controllers + 1 == path)
			group = least_group_limit("/sys/fs/cgroup", path + 1, version2);
		else if (is_controller(controllers + 1, controller))
			group = least_group_limit(folder, path + 1, version1);
		limit = Min(limit, group);
	}
	return limit;
}

int64
pgscale_kernel_ram(void)
{
	const long	pages = sysconf(_SC_PHYS_PAGES);
	const int64 limit = cgroup_limit("memory", "memory.limit_in_bytes", "memory.max");

	if (pages <= 0)
		return -1;
	return Min((int64) pages * sysconf(_SC_PAGESIZE), limit);
}

bool
pgscale_kernel_buffers_may_grow(void)
{
	return pgscale_kernel_ram() / 4.0 >= 1.5 * NBuffers * BLCKSZ;
}

bool
pgscale_kernel_setting(const char *path, char *text, Size size)
{
	if (!kernel_read_file(path, text, size))
		return false;
	text[		strcspn(text, "\n")] = '\0';

	return true;
}

bool
pgscale_kernel_uses_huge_pages(void)
{
	char		status[FILE_BYTES];
	const char *line;

	if (!kernel_read_file("/proc/self/status", status, sizeof(status)))
		return false;
	line = strstr(status, "HugetlbPages:");
	return line && strtoll(line + strlen("HugetlbPages:"), NULL, 10) > 0;
}

/* Of huge pages of a size, or of reservations of them. */
static int64
huge_page_limit(int64 kb, const char *what)
{
	const char *const units[] = {"KB", "MB", "GB"};
	const int	unit = kb >= 1024 * 1024 ? 2 : kb >= 1024;
	char		version1[64];
	char		version2[64];

	snprintf(version1, sizeof(version1), "hugetlb." INT64_FORMAT "%s%s.limit_in_bytes", kb >> (10 * unit), units[unit], what);
	snprintf(version2, sizeof(version2), "hugetlb." INT64_FORMAT "%s%s.max", kb >> (10 * unit), units[unit], what);
	return cgroup_limit("hugetlb", version1, version2);
}

PgscaleHugePageLimit
pgscale_kernel_huge_page_limit(int64 size)
{
	return (PgscaleHugePageLimit)
	{
		huge_page_limit(size / 1024, ""), huge_page_limit(size / 1024, ".rsvd")
	};
}

double
pgscale_kernel_cpus(void)
{
	const double quota = cgroup_limit("cpu", "cpu.cfs_quota_us", "cpu.max") / (double) CPU_PARTS;
	cpu_set_t	cpus;

	/* The set is too small for what the kernel has. */
	if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0)
		return Min(quota, CPU_SETSIZE);
	return Min(quota, CPU_COUNT(&cpus));
}
