/*
 * What is read of the kernel's files, made up; the clock sweep's reasons at their thresholds; intervals; and where pages lie, of
 * memory and nodes that are made up. memory_steps(folder) returns a line for each check: "ok" or "not ok", and its name. The
 * folder is an empty one: what is opened below /proc and /sys is looked for in it.
 */
#include "postgres.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "access/htup_details.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "steps.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(memory_steps);

static char folder[MAXPGPATH];
static bool preloaded = true;
static bool all_used = true;

static char *
below(const char *path)
{
	return psprintf("%s%s", strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/sys/", 5) == 0 ? folder : "", path);
}

static int
steps_open(const char *path, int flags)
{
	return open(below(path), flags);
}

static FILE *
steps_file(const char *path, const char *mode)
{
	return AllocateFile(below(path), mode);
}

#define open(path, flags)		steps_open(path, flags)
#define AllocateFile(path, mode) steps_file(path, mode)
#include "base/kernel.c"
#include "base/wilson_interval.c"
#undef TRIES
#include "numa/page_nodes.c"
#undef open
#undef AllocateFile
#include "buffer_usage/clock_sweep.c"

bool
pgscale_preload_done(void)
{
	return preloaded;
}

bool
pgscale_buffers_all_used(void)
{
	return all_used;
}

/* What is not asked here */
void
pgscale_preload_require(void)
{
}

int64
pgscale_timer_clock(void)
{
	return 0;
}

uint64
pgscale_buffers_hand(void)
{
	return 0;
}

void
pgscale_buffer_usage_count(PgscaleUsage *usage)
{
}

static void
begins(const char *got, const char *want, const char *name)
{
	bool		ok = strncmp(got, want, strlen(want)) == 0;

	appendStringInfo(&lines, "%s %s", ok ? "ok" : "not ok", name);
	if (!ok)
		appendStringInfo(&lines, ": \"%s\" instead of \"%s\"", got, want);
	appendStringInfoChar(&lines, '\n');
}

/* A file below the folder, and all folders that it lies in */
static void
put(const char *path, const char *text)
{
	char	   *whole = psprintf("%s%s", folder, path);
	FILE	   *file;

	for (char *slash = whole + strlen(folder); (slash = strchr(slash + 1, '/')) != NULL;)
	{
		*slash = '\0';
		mkdir(whole, 0700);
		*slash = '/';
	}
	if ((file = fopen(whole, "w")) == NULL)
		elog(ERROR, "could not write %s: %m", whole);
	fputs(text, file);
	fclose(file);
}


/*---- the kernel's files ----*/

static void
check_counts(void)
{
	const int64 page = sysconf(_SC_PAGESIZE);
	PgscaleKernelMemory memory;
	PgscaleKernelCounts counts;
	PgscaleKernelSchedule schedule;
	PgscaleDisk disk;
	char text[	16];
	int			fd;

	pgscale_kernel_memory(&memory);
	is(memory.dirty, -1, "no vmstat: nothing is known");
	put("/proc/vmstat", "nr_dirty_threshold 19\nnr_dirty_background_threshold 17\nnr_writeback_temp 8\nnr_dirty 11\n"
		"nr_writeback 13\npswpin 100\npswpout 23\ncompact_stall 7\n");
	pgscale_kernel_memory(&memory);
	is(memory.dirty, 11 * page, "vmstat: dirty");
	is(memory.writeback, 13 * page, "vmstat: writeback");
	is(memory.background_threshold, 17 * page, "vmstat: the background threshold");
	is(memory.threshold, 19 * page, "vmstat: the threshold");
	pgscale_kernel_counts(&counts);
	is(counts.swapped, 123, "vmstat: swapped in and out");
	is(counts.compact_stalls, 7, "vmstat: stalls");
	put("/proc/meminfo", "MemTotal:       1000 kB\nHugePages_Total:       5\n");
	is(pgscale_kernel_meminfo("MemTotal:"), 1024000, "meminfo is in kB");
	is(pgscale_kernel_meminfo("MemFree:"), -1, "or unknown");
	is(pgscale_kernel_io_pressure_fraction(), -1, "no pressure is known");
	put("/proc/pressure/io", "some avg10=12.50 avg60=50.00 avg300=70.00 total=5\nfull avg10=3.00 avg60=1.00 avg300=1.00 total=3\n");
	is(pgscale_kernel_io_pressure_fraction(), 0.125, "pressure is a fraction of ten seconds");

	is(pgscale_kernel_disk(makedev(3, 5), &disk), false, "a disk that is not there");
	put("/sys/dev/block/3:5/stat", "   11 12 13 14   15 16 17 18   19 20 21 22 23 24 25\n");
	is(pgscale_kernel_disk(makedev(3, 5), &disk), true, "one that is");
	is(disk.reads, 11, "reads");
	is(disk.read_ms, 14, "their time");
	is(disk.writes, 15, "writes");
	is(disk.write_bytes, 17 * 512, "their size");
	is(disk.busy_ms, 20, "the time with a request");

	put("/proc/77/schedstat", "1234 567 89\n");
	fd = pgscale_kernel_open_schedule(77);
	is(pgscale_kernel_read_schedule(fd, &schedule), true, "a process' times");
	is(schedule.run_ns, 1234, "on a CPU");
	is(schedule.queue_ns, 567, "queued");
	close(fd);
	put("/proc/78/schedstat", "0 0 0\n");
	fd = pgscale_kernel_open_schedule(78);
	is(pgscale_kernel_read_schedule(fd, &schedule), false, "zeroes are none");
	close(fd);

	put("/proc/self/status", "Name: x\nHugetlbPages:\t0 kB\n");
	is(pgscale_kernel_uses_huge_pages(), false, "no huge pages");
	put("/proc/self/status", "Name: x\nHugetlbPages:\t2048 kB\n");
	is(pgscale_kernel_uses_huge_pages(), true, "huge pages");
	put("/sys/x", "first\nsecond\n");
	is(pgscale_kernel_setting("/sys/x", text, sizeof(text)), true, "a setting");
	begins(text, "first", "its first line");
	is(strlen(text), 5, "and no more");
}

static void
check_ram(void)
{
	const double all = (double) sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
	const double buffers = (double) NBuffers * BLCKSZ;

	is(pgscale_kernel_ram(), all, "without a group: all memory");
	put("/proc/self/cgroup", "0::/a/b\n");
	put("/sys/fs/cgroup/a/b/memory.max", "max\n");
	is(pgscale_kernel_ram(), all, "a group without a limit");
	put("/sys/fs/cgroup/a/memory.max", "300000000\n");
	is(pgscale_kernel_ram(), 300000000, "the limit of one around it");
	put("/sys/fs/cgroup/a/b/memory.max", "200000000\n");
	is(pgscale_kernel_ram(), 200000000, "its own, if that is less");
	put("/sys/fs/cgroup/a/b/memory.max", "400000000\n");
	is(pgscale_kernel_ram(), 300000000, "the least of them");
	put("/proc/self/cgroup", "3:cpu:/c\n4:memory:/c\n");
	put("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", "150000000\n");
	is(pgscale_kernel_ram(), 150000000, "of the first version, too");
	put("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", psprintf("%.0f\n", 6 * buffers));
	is(pgscale_kernel_buffers_may_grow(), true, "buffers of a sixth may grow");
	put("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", psprintf("%.0f\n", 5.9 * buffers));
	is(pgscale_kernel_buffers_may_grow(), false, "larger ones may not");
}

static void
is_huge(int64 size, int64 used, int64 reserved, const char *name)
{
	const PgscaleHugePageLimit limit = pgscale_kernel_huge_page_limit(size);

	is((double) limit.used, (double) used, psprintf("huge pages: %s", name));
	is((double) limit.reserved, (double) reserved, psprintf("reservations: %s", name));
}

static void
check_huge_pages(void)
{
	const int64 mb = 1024 * 1024;

	put("/proc/self/cgroup", "0::/h/i\n");
	is_huge(2 * mb, PG_INT64_MAX, PG_INT64_MAX, "without a group's files");
	put("/sys/fs/cgroup/h/i/hugetlb.2MB.max", "max\n");
	put("/sys/fs/cgroup/h/i/hugetlb.2MB.rsvd.max", "max\n");
	is_huge(2 * mb, PG_INT64_MAX, PG_INT64_MAX, "no limit");
	put("/sys/fs/cgroup/h/hugetlb.2MB.max", "4194304\n");
	put("/sys/fs/cgroup/h/hugetlb.2MB.rsvd.max", "6291456\n");
	is_huge(2 * mb, 4 * mb, 6 * mb, "that of the group around it");
	put("/sys/fs/cgroup/h/i/hugetlb.2MB.max", "0\n");
	is_huge(2 * mb, 0, 6 * mb, "none at all");
	put("/sys/fs/cgroup/h/i/hugetlb.1GB.max", "2147483648\n");
	is_huge(1024 * mb, 2048 * mb, PG_INT64_MAX, "of another size");
	put("/sys/fs/cgroup/h/i/hugetlb.64KB.max", "65536\n");
	is_huge(mb / 16, mb / 16, PG_INT64_MAX, "of a small one");
	put("/sys/fs/cgroup/hugetlb.32MB.max", "33554432\n");
	is_huge(32 * mb, 32 * mb, PG_INT64_MAX, "of a container, which sees its part only");
	put("/proc/self/cgroup", "5:hugetlb:/h\n4:memory:/c\n");
	is_huge(2 * mb, PG_INT64_MAX, PG_INT64_MAX, "the first version, without a limit");
	put("/sys/fs/cgroup/hugetlb/h/hugetlb.2MB.limit_in_bytes", "8388608\n");
	put("/sys/fs/cgroup/hugetlb/h/hugetlb.2MB.rsvd.limit_in_bytes", "2097152\n");
	is_huge(2 * mb, 8 * mb, 2 * mb, "and with one");
}

/* A machine has one CPU at least, so quotas of less are seen on any. */
static void
check_cpus(void)
{
	cpu_set_t	cpus;

	sched_getaffinity(0, sizeof(cpus), &cpus);
	put("/proc/self/cgroup", "0::/none\n");
	is(pgscale_kernel_cpus(), CPU_COUNT(&cpus), "without a quota: all CPUs that it may run on");
	put("/proc/self/cgroup", "0::/a/b\n");
	put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
	is(pgscale_kernel_cpus(), CPU_COUNT(&cpus), "a group without a quota");
	put("/sys/fs/cgroup/a/cpu.max", "50000 100000\n");
	is(pgscale_kernel_cpus(), 0.5, "the quota of one around it");
	put("/sys/fs/cgroup/a/b/cpu.max", "75000 100000\n");
	is(pgscale_kernel_cpus(), 0.5, "the least of them");
	put("/sys/fs/cgroup/a/b/cpu.max", "25000 200000\n");
	is(pgscale_kernel_cpus(), 0.125, "its own, by its own period");
	put("/sys/fs/cgroup/a/b/cpu.max", "100000000 100000\n");
	put("/sys/fs/cgroup/a/cpu.max", "100000000 100000\n");
	is(pgscale_kernel_cpus(), Min(CPU_COUNT(&cpus), 1000), "a quota of more than there are");
	put("/sys/fs/cgroup/cpu.max", "80000 100000\n");
	is(pgscale_kernel_cpus(), 0.8, "that of a container, which sees its part only");
	put("/proc/self/cgroup", "4:memory:/c\n3:cpuset,cpuacct:/c\n2:cpuacct,cpu:/c\n");
	is(pgscale_kernel_cpus(), CPU_COUNT(&cpus), "the first version, without a quota");
	put("/sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
	put("/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "-1\n");
	is(pgscale_kernel_cpus(), CPU_COUNT(&cpus), "which may be none, too");
	put("/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "30000\n");
	is(pgscale_kernel_cpus(), 0.3, "and with one");
}

static void
check_cached(void)
{
	const int64 page = sysconf(_SC_PAGESIZE);
	char	   *path = psprintf("%s/cached", folder);
	char	   *pages = palloc0(10 * page);
	int			fd = OpenTransientFile(path, O_CREAT | O_RDWR);
	PgscaleCached cached;
	const char *why;

	if (fd < 0 || write(fd, pages, 10 * page - 100) != 10 * page - 100)
		elog(ERROR, "could not write %s: %m", path);
	is(ask_mincore(fd, 0, 0, &cached), true, "mincore");
	is(cached.cached, 10 * page, "mincore: all of a file");
	is(cached.dirty, -1, "mincore: not what is dirty");
	ask_mincore(fd, 2 * page, 3 * page, &cached);
	is(cached.cached, 3 * page, "mincore: a range");
	ask_mincore(fd, 9 * page, page, &cached);
	is(cached.cached, page, "mincore: the last page");
	CloseTransientFile(fd);
	path = psprintf("%s/holes", folder);
	fd = OpenTransientFile(path, O_CREAT | O_RDWR);
	if (fd < 0 || ftruncate(fd, 20 * page) != 0 || pwrite(fd, pages, page, 17 * page) != page)
		elog(ERROR, "could not write %s: %m", path);
	ask_mincore(fd, 0, 2 * page, &cached);
	is(cached.cached, 0, "mincore: nothing of a hole");
	ask_mincore(fd, 17 * page, 2 * page, &cached);
	is(cached.cached, page, "mincore: what is behind it");
	CloseTransientFile(fd);
	fd = OpenTransientFile(psprintf("%s/cached", folder), O_RDWR);
	if (pgscale_kernel_tells_dirty(&why) && !on_overlay(fd))
	{
		is(pgscale_kernel_cached(fd, 0, 0, &cached), true, "cachestat");
		is(cached.cached, 10 * page, "cachestat: all of a file");
		is(cached.dirty + cached.writeback >= 0, true, "cachestat: and what is dirty");
		pgscale_kernel_cached(fd, 2 * page, 3 * page, &cached);
		is(cached.cached, 3 * page, "cachestat: a range");
		if (fsync(fd) == 0)
		{
			pgscale_kernel_cached(fd, 0, 0, &cached);
			is(cached.dirty, 0, "nothing is dirty after fsync");
			is(cached.cached, 10 * page, "but it is still there");
		}
	}
	CloseTransientFile(fd);
}


/*---- intervals ----*/

static void
interval_is(double k, double n, double low, double high)
{
	PgscaleInterval got = pgscale_wilson_interval(k, n);

	is(rint(got.low * 1e6), low * 1e6, psprintf("from where, for %g of %g", k, n));
	is(rint(got.high * 1e6), high * 1e6, psprintf("up to where, for %g of %g", k, n));
}

static void
check_intervals(void)
{
	/* computed by the formula, with other means */
	interval_is(0, 10, 0, 0.277533);
	interval_is(10, 10, 0.722467, 1);
	interval_is(5, 10, 0.236593, 0.763407);
	interval_is(30, 1000, 0.021094, 0.042503);
}


/*---- the clock sweep ----*/

static Sweep sweep;

static void
found(const char *want, const char *name)
{
	begins(clock_sweep_reason(&sweep), want, name);
}

static void
check_sweep(void)
{
	PgscaleUsage usage = {.buffers = 1000};

	sweep = (Sweep)
	{
		.measured = false,.unused = 0.5,.zero = 0.3,.one = 0.2,.maximum = 0.2,.expected = 3
	};
	found("counting begins with this call", "not measured");
	preloaded = false;
	all_used = false;
	found("nothing has to leave yet: 50.0 %", "half of them unused");
	sweep.unused = 0.0101;
	found("nothing has to leave yet: 1.0 %", "just more than 1 % unused");
	sweep.unused = 0.0099;
	found("replacement is choosing: 30.0 % of the buffers are at zero and leave next, 20.0 % are at the maximum and stay; "
		  "a victim costs 3.0 ticks", "just less");
	sweep.unused = 0.5;
	all_used = true;
	found("replacement is choosing", "half of them dropped");
	preloaded = true;
	sweep.measured = true;
	found("nothing had to leave", "measured, no allocation");
	sweep.ticks = 5;
	found("replacement is choosing", "no allocation, but ticks");
	sweep.allocations = 99;
	sweep.ticks = 10;
	found("replacement is choosing: 30.0 % of the buffers are at zero and leave next, 20.0 % are at the maximum and stay; "
		  "a victim costs 3.0 ticks", "with few allocations what is expected counts");
	sweep.allocations = 100;
	sweep.ticks = 49;
	found("victims come from the freelist: 0.49 ticks an allocation", "fewer ticks than half the allocations");
	sweep.ticks = 50;
	found("replacement is choosing: 30.0 % of the buffers are at zero and leave next, 20.0 % are at the maximum and stay; "
		  "a victim costs 0.5 ticks", "as many as half");
	sweep.ticks = 9999;
	found("replacement is choosing: ", "not quite 100 ticks");
	sweep.ticks = 10000;
	found("replacement is choosing, but searches long: a victim costs 100 ticks, and 30.0 %", "100 ticks");
	sweep.maximum = 0.49;
	found("replacement is choosing, but searches long", "nearly half at the maximum");
	sweep.maximum = 0.5;
	found("replacement is close to random, and expensive: 50.0 % of the buffers are at the maximum usage count, whether hot or "
		  "not, and the next victim costs about 100 ticks", "half at the maximum");
	sweep.expected = 700;
	found("replacement is close to random, and expensive: 50.0 % of the buffers are at the maximum usage count, whether hot or "
		  "not, and the next victim costs about 700 ticks", "the next one costs more");
	sweep.expected = 99;
	sweep.ticks = 9900;
	found("replacement is choosing: ", "half at the maximum, and cheap");
	sweep.maximum = 0;
	sweep.one = 0.601;
	found("replacement is in order of arrival: 90.1 % of the buffers are at zero or one", "more than 90 % at zero or one");
	sweep.one = 0.59;
	found("replacement is choosing: ", "89 %");

	is(expected_search(&usage), 0, "no victim");
	usage.unpinned[0] = 10;
	usage.unpinned[3] = 500;
	is(expected_search(&usage), 91, "some at zero");
	usage.unpinned[0] = 0;
	is(expected_search(&usage), 3000 + 1001.0 / 501, "the least is three: three passes");
	usage.unpinned[0] = 1000;
	is(expected_search(&usage), 1, "all at zero");
}


/*---- pages of memory, and their nodes ----*/

#define PAGES	2600

static char *memory;
static Size page_size;
static int	move_error = 0;
static int	asks = 0;
static bool in_move = false;
static int64 moved[3];
static int64 moved_wrong = 0;

int
pgscale_numa_lib_ask(int count, void **pages, int *nodes)
{
	asks++;
	for (int i = 0; i < count; i++)
		nodes[i] = in_move && i == 0 ? -ENOENT : 100 + i;
	in_move = false;
	return 0;
}

int
pgscale_numa_lib_move(int count, void **pages, int *nodes, int *answers)
{
	for (int i = 0; i < count; i++)
	{
		int64		number = ((char *) pages[i] - memory) / page_size;

		answers[i] = number == 5 ? 99 : nodes[i];
		moved_wrong += nodes[i] != (number % 2 ? 7 : 4);
		moved[nodes[i] == 4 ? 0 : nodes[i] == 7 ? 1 : 2]++;
	}
	return move_error;
}

int
pgscale_numa_lib_interleave(void *start, Size size, int nodes[PGSCALE_NUMA_NODES], int *n)
{
	*n = 2;
	nodes[0] = 4;
	nodes[1] = 7;
	return move_error;
}

static bool
never_used(const char *page, Size size)
{
	return false;
}

static void
check_mapping(void)
{
	PgscaleNumaMapping mapping;

	is(pgscale_numa_mapping((void *) 0x5000, &mapping), false, "no smaps: no mapping");
	put("/proc/self/smaps",
		"1000-3000 r-xp 00000000 08:01 50   /lib/x\nSize: 8 kB\nKernelPageSize:        4 kB\n"
		"3000-4000 rw-s 00000000 00:01 60   /dev/zero (deleted)\nKernelPageSize:        4 kB\n"
		"4000-9000 rw-s 00001000 00:01 60   /dev/zero (deleted)\nKernelPageSize:        16 kB\n"
		"9000-b000 rw-s 00006000 00:01 60   /dev/zero (deleted)\nKernelPageSize:        4 kB\n"
		"b000-c000 rw-s 00000000 00:01 61   /dev/zero (deleted)\nKernelPageSize:        4 kB\n"
		"d000-e000 rw-s 00000000 00:01 61   /dev/zero (deleted)\nKernelPageSize:        4 kB\n"
		"e000-f000 rw-p 00000000 00:00 0 \nKernelPageSize:        4 kB\n"
		"f000-10000 rw-p 00000000 00:00 0 \nKernelPageSize:        4 kB\n"
		"7f0000000000-7f0000200000 rw-s 00000000 00:01 70   /anon_hugepage (deleted)\nKernelPageSize:     2048 kB\n");
	is(pgscale_numa_mapping((void *) 0x5000, &mapping), true, "a mapping in parts");
	is((uintptr_t) mapping.start, 0x3000, "from its first one");
	is(mapping.size, 0x8000, "to its last one, of the same file");
	is(mapping.page, 16384, "the page is that of the address");
	is(mapping.huge, true, "larger than usual");
	is(pgscale_numa_mapping((void *) 0x2fff, &mapping), true, "one in a part");
	is((uintptr_t) mapping.start, 0x1000, "from there");
	is(mapping.size, 0x2000, "to there");
	is(mapping.huge, false, "of usual pages");
	is(pgscale_numa_mapping((void *) 0xb000, &mapping), true, "the next file's");
	is(mapping.size, 0x1000, "ends at a gap");
	is(pgscale_numa_mapping((void *) 0xc000, &mapping), false, "a gap is in none");
	is(pgscale_numa_mapping((void *) 0xe800, &mapping), true, "what has no file");
	is(mapping.size, 0x1000, "is not joined");
	is(pgscale_numa_mapping((void *) 0x7f0000100000, &mapping), true, "a huge one, the last");
	is(mapping.page, 2097152, "huge pages");
}

static void
check_pages(void)
{
	int			nodes[PGSCALE_NUMA_AT_ONCE];
	PgscaleNumaMapping mapping;
	int64		left = -1;

	page_size = sysconf(_SC_PAGESIZE);
	memory = mmap(NULL, PAGES * page_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		elog(ERROR, "could not map memory: %m");
	mapping = (PgscaleNumaMapping)
	{
		.start = memory,.size = PAGES * page_size,.page = page_size
	};
	memory[3 * page_size] = memory[5 * page_size] = memory[6 * page_size] = 1;
	is(pgscale_numa_where(&mapping, memory, 10, never_used, nodes), 0, "where pages are");
	is(nodes[3], 100, "the first that is there");
	is(nodes[5], 101, "the next");
	is(nodes[6], 102, "and the last");
	is(nodes[4], -1, "one between is not there");
	is(asks, 1, "asked for once");
	in_move = true;
	pgscale_numa_where(&mapping, memory, 10, never_used, nodes);
	is(asks, 3, "one that is being moved is asked for again");
	is(nodes[3], 100, "and then has a node");
	is(nodes[5], 101, "the others keep theirs");
	pgscale_numa_where(&mapping, memory + 4 * page_size, 10, never_used, nodes);
	is(nodes[1], 100, "pages count from the first");
	is(nodes[0], -1, "from the first, and not from the mapping's");

	memory[(PAGES - 1) * page_size] = 1;
	memory[1025 * page_size] = memory[1027 * page_size] = 1;
	is(pgscale_numa_interleave(&mapping, &left), 0, "pages are dealt");
	is(moved[0] + moved[1], 6, "those that are there");
	is(moved[0], 1, "to the first node");
	is(moved[1], 5, "and to the second");
	is(moved_wrong, 0, "in turn");
	is(left, 1, "one did not go there");
	move_error = EPERM;
	is(pgscale_numa_interleave(&mapping, &left), EPERM, "where that is forbidden");
	is(left, 0, "none is counted");
	munmap(memory, PAGES * page_size);
}

Datum
memory_steps(PG_FUNCTION_ARGS)
{
	initStringInfo(&lines);
	strlcpy(folder, text_to_cstring(PG_GETARG_TEXT_PP(0)), sizeof(folder));

	check_counts();
	check_ram();
	check_huge_pages();
	check_cpus();
	check_cached();
	check_intervals();
	check_sweep();
	check_mapping();
	check_pages();
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}
