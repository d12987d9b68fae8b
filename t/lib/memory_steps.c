/*
 * What is read of the kernel's files, made up; the clock sweep's reasons at their thresholds; and where pages lie, of
 * memory and nodes that are made up. memory_steps(folder) returns a line for each check. The folder is an empty one: what is opened
 * below /proc and /sys is looked for in it.
 */
#include "steps.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "access/htup_details.h"
#include "funcapi.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(memory_steps);

static char folder[MAXPGPATH];
static bool preloaded = true;
static bool all_used = true;

static char *
below(const char *path)
{
	return psprintf("%s%s", strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/sys/", 5) == 0 ? folder : "", path);
}

static int steps_open(const char *path, int flags) { return open(below(path), flags); }
static FILE *steps_file(const char *path, const char *mode) { return AllocateFile(below(path), mode); }

#define open(path, flags)		steps_open(path, flags)
#define AllocateFile(path, mode) steps_file(path, mode)
#include "base/kernel.c"
#undef TRIES
#include "numa/page_nodes.c"
#undef open
#undef AllocateFile
#include "buffer_usage/clock_sweep.c"

bool pgscale_preload_done(void) { return preloaded; }
bool pgscale_buffers_all_used(void) { return all_used; }

/* What is not asked here */
void pgscale_preload_require(void) { }
int64 pgscale_timer_clock(void) { return 0; }
uint64 pgscale_buffers_hand(void) { return 0; }
void pgscale_buffer_usage_count(PgscaleUsage *usage) { }

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

/* The kernel's files */

static void
say_memory(void)
{
	const double page = sysconf(_SC_PAGESIZE);
	PgscaleKernelMemory m;
	PgscaleKernelCounts counts;

	pgscale_kernel_memory(&m);
	pgscale_kernel_counts(&counts);
	if (m.dirty < 0)
		say("unknown");
	else
		say("%g %g %g %g, swapped %d, stalls %d", m.dirty / page, m.writeback / page, m.background_threshold / page,
			m.threshold / page, (int) counts.swapped, (int) counts.compact_stalls);
}

static void
say_disk(void)
{
	PgscaleDisk d;

	if (pgscale_kernel_disk(makedev(3, 5), &d))
		say("%d in %d ms, %d of %d bytes, busy %d ms", (int) d.reads, (int) d.read_ms, (int) d.writes, (int) d.write_bytes,
			(int) d.busy_ms);
	else
		say("none");
}

static void
say_schedule(int pid)
{
	const int	fd = pgscale_kernel_open_schedule(pid);
	PgscaleKernelSchedule times;

	if (pgscale_kernel_read_schedule(fd, &times))
		say("%d, queued %d", (int) times.run_ns, (int) times.queue_ns);
	else
		say("unknown");
	close(fd);
}

static void
say_setting(void)
{
	char		text[16];

	say(pgscale_kernel_setting("/sys/x", text, sizeof(text)) ? text : "unknown");
}

static void
say_ram(void)
{
	const double all = (double) sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
	const double ram = pgscale_kernel_ram();

	say(ram == all ? "all" : psprintf("%g", ram));
}

static void
say_huge_pages(int64 size)
{
	const PgscaleHugePageLimit limit = pgscale_kernel_huge_page_limit(size * 1024);

	say(limit.used == PG_INT64_MAX ? "any" : psprintf("%g", limit.used / 1024.0));
	say(limit.reserved == PG_INT64_MAX ? "any" : psprintf("%g", limit.reserved / 1024.0));
}

static void
say_cpus(void)
{
	cpu_set_t	cpus;

	sched_getaffinity(0, sizeof(cpus), &cpus);
	say(pgscale_kernel_cpus() == CPU_COUNT(&cpus) ? "all" : psprintf("%g", pgscale_kernel_cpus()));
}

static void
say_mapping(uintptr_t address)
{
	PgscaleNumaMapping m;

	if (pgscale_numa_mapping((void *) address, &m))
		say("%zx, %zx bytes, pages of %d%s", (size_t) m.start, (size_t) m.size, (int) m.page, m.huge ? ", huge" : "");
	else
		say("none");
}

static bool
command(const char *name, const double *n)
{
	COMMAND("memory", say_memory());
	COMMAND("total", say("%g", (double) pgscale_kernel_meminfo("MemTotal:")));
	COMMAND("free", say("%g", (double) pgscale_kernel_meminfo("MemFree:")));
	COMMAND("pressure", say("%g", pgscale_kernel_io_pressure_fraction()));
	COMMAND("disk", say_disk());
	COMMAND("schedule", say_schedule(n[0]));
	COMMAND("uses_huge_pages", say(yes(pgscale_kernel_uses_huge_pages())));
	COMMAND("setting", say_setting());
	COMMAND("ram", say_ram());
	COMMAND("huge", say_huge_pages(n[0]));
	COMMAND("cpus", say_cpus());
	COMMAND("mapping", say_mapping((uintptr_t) n[0]));
	return false;
}

/* A file gets that text, if there is one; then the commands say that. */
static const struct
{
	const char *path;
	const char *text;
	Step		then;
}			files[] = {
	{NULL, NULL, {"memory", "unknown", "no vmstat"}},
	{"/proc/vmstat", "nr_dirty_threshold 19\nnr_dirty_background_threshold 17\nnr_writeback_temp 8\nnr_dirty 11\n"
		"nr_writeback 13\npswpin 100\npswpout 23\ncompact_stall 7\n",
	{"memory", "11 13 17 19, swapped 123, stalls 7", "vmstat"}},
	{"/proc/meminfo", "MemTotal:       1000 kB\nHugePages_Total:       5\n", {"total, free", "1.024e+06; -1", "meminfo is in kB"}},
	{NULL, NULL, {"pressure", "-1", "no pressure is known"}},
	{"/proc/pressure/io", "some avg10=12.50 avg60=50.00 avg300=70.00 total=5\nfull avg10=3.00 avg60=1.00 avg300=1.00 total=3\n",
	{"pressure", "0.125", "pressure is a fraction of ten seconds"}},
	{NULL, NULL, {"disk", "none", "a disk that is not there"}},
	{"/sys/dev/block/3:5/stat", "   11 12 13 14   15 16 17 18   19 20 21 22 23 24 25\n",
	{"disk", "11 in 14 ms, 15 of 8704 bytes, busy 20 ms", "one that is"}},
	{"/proc/77/schedstat", "1234 567 89\n", {"schedule 77", "1234, queued 567", "a process' times"}},
	{"/proc/78/schedstat", "0 0 0\n", {"schedule 78", "unknown", "zeroes are none"}},
	{"/proc/self/status", "Name: x\nHugetlbPages:\t0 kB\n", {"uses_huge_pages", "no", "no huge pages"}},
	{"/proc/self/status", "Name: x\nHugetlbPages:\t2048 kB\n", {"uses_huge_pages", "yes", "huge pages"}},
	{"/sys/x", "first\nsecond\n", {"setting", "first", "a setting is one line"}},

	/* memory */
	{NULL, NULL, {"ram", "all", "without a group: all memory"}},
	{"/proc/self/cgroup", "0::/a/b\n"},
	{"/sys/fs/cgroup/a/b/memory.max", "max\n", {"ram", "all", "a group without a limit"}},
	{"/sys/fs/cgroup/a/memory.max", "300000000\n", {"ram", "3e+08", "the limit of one around it"}},
	{"/sys/fs/cgroup/a/b/memory.max", "200000000\n", {"ram", "2e+08", "its own, if that is less"}},
	{"/sys/fs/cgroup/a/b/memory.max", "400000000\n", {"ram", "3e+08", "the least of them"}},
	{"/proc/self/cgroup", "3:cpu:/c\n4:memory:/c\n"},
	{"/sys/fs/cgroup/memory/c/memory.limit_in_bytes", "150000000\n", {"ram", "1.5e+08", "of the first version, too"}},

	/* huge pages and their reservations, of a size in kB */
	{"/proc/self/cgroup", "0::/h/i\n", {"huge 2048", "any; any", "without a group's files"}},
	{"/sys/fs/cgroup/h/i/hugetlb.2MB.max", "max\n"},
	{"/sys/fs/cgroup/h/i/hugetlb.2MB.rsvd.max", "max\n", {"huge 2048", "any; any", "no limit"}},
	{"/sys/fs/cgroup/h/hugetlb.2MB.max", "4194304\n"},
	{"/sys/fs/cgroup/h/hugetlb.2MB.rsvd.max", "6291456\n", {"huge 2048", "4096; 6144", "that of the group around it"}},
	{"/sys/fs/cgroup/h/i/hugetlb.2MB.max", "0\n", {"huge 2048", "0; 6144", "none at all"}},
	{"/sys/fs/cgroup/h/i/hugetlb.1GB.max", "2147483648\n", {"huge 1048576", "2.09715e+06; any", "of another size"}},
	{"/sys/fs/cgroup/h/i/hugetlb.64KB.max", "65536\n", {"huge 64", "64; any", "of a small one"}},
	{"/sys/fs/cgroup/hugetlb.32MB.max", "33554432\n", {"huge 32768", "32768; any", "of a container, which sees its part only"}},
	{"/proc/self/cgroup", "5:hugetlb:/h\n4:memory:/c\n", {"huge 2048", "any; any", "the first version, without a limit"}},
	{"/sys/fs/cgroup/hugetlb/h/hugetlb.2MB.limit_in_bytes", "8388608\n"},
	{"/sys/fs/cgroup/hugetlb/h/hugetlb.2MB.rsvd.limit_in_bytes", "2097152\n", {"huge 2048", "8192; 2048", "and with one"}},

	/* a machine has one CPU at least, so quotas of less are seen on any */
	{"/proc/self/cgroup", "0::/none\n", {"cpus", "all", "without a quota: all CPUs that it may run on"}},
	{"/proc/self/cgroup", "0::/a/b\n"},
	{"/sys/fs/cgroup/a/b/cpu.max", "max 100000\n", {"cpus", "all", "a group without a quota"}},
	{"/sys/fs/cgroup/a/cpu.max", "50000 100000\n", {"cpus", "0.5", "the quota of one around it"}},
	{"/sys/fs/cgroup/a/b/cpu.max", "75000 100000\n", {"cpus", "0.5", "the least of them"}},
	{"/sys/fs/cgroup/a/b/cpu.max", "25000 200000\n", {"cpus", "0.125", "its own, by its own period"}},
	{"/sys/fs/cgroup/a/b/cpu.max", "100000000 100000\n"},
	{"/sys/fs/cgroup/a/cpu.max", "100000000 100000\n", {"cpus", "all", "a quota of more than there are"}},
	{"/sys/fs/cgroup/cpu.max", "80000 100000\n", {"cpus", "0.8", "that of a container, which sees its part only"}},
	{"/proc/self/cgroup", "4:memory:/c\n3:cpuset,cpuacct:/c\n2:cpuacct,cpu:/c\n", {"cpus", "all",
	"the first version, without a quota"}},
	{"/sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n"},
	{"/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "-1\n", {"cpus", "all", "which may be none, too"}},
	{"/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "30000\n", {"cpus", "0.3", "and with one"}},

	/* mappings of memory */
	{NULL, NULL, {"mapping 0x5000", "none", "no smaps: no mapping"}},
	{"/proc/self/smaps",
		"1000-3000 r-xp 00000000 08:01 50   /lib/x\nSize: 8 kB\nKernelPageSize:        4 kB\n"
		"3000-4000 rw-s 00000000 00:01 60   /dev/zero (deleted)\nKernelPageSize:        4 kB\n"
		"4000-9000 rw-s 00001000 00:01 60   /dev/zero (deleted)\nKernelPageSize:        16 kB\n"
		"9000-b000 rw-s 00006000 00:01 60   /dev/zero (deleted)\nKernelPageSize:        4 kB\n"
		"b000-c000 rw-s 00000000 00:01 61   /dev/zero (deleted)\nKernelPageSize:        4 kB\n"
		"d000-e000 rw-s 00000000 00:01 61   /dev/zero (deleted)\nKernelPageSize:        4 kB\n"
		"e000-f000 rw-p 00000000 00:00 0 \nKernelPageSize:        4 kB\n"
		"f000-10000 rw-p 00000000 00:00 0 \nKernelPageSize:        4 kB\n"
		"7f0000000000-7f0000200000 rw-s 00000000 00:01 70   /anon_hugepage (deleted)\nKernelPageSize:     2048 kB\n",
	{"mapping 0x5000", "3000, 8000 bytes, pages of 16384, huge", "a mapping in parts, of one file"}},
	{NULL, NULL, {"mapping 0x2fff", "1000, 2000 bytes, pages of 4096", "one in a part"}},
	{NULL, NULL, {"mapping 0xb000, mapping 0xc000", "b000, 1000 bytes, pages of 4096; none",
	"the next file's, which ends at a gap"}},
	{NULL, NULL, {"mapping 0xe800", "e000, 1000 bytes, pages of 4096", "what has no file is not joined"}},
	{NULL, NULL, {"mapping 0x7f0000100000", "7f0000000000, 200000 bytes, pages of 2097152, huge", "a huge one, the last"}},
};

static void
check_files(void)
{
	const double buffers = (double) NBuffers * BLCKSZ;

	for (int i = 0; i < lengthof(files); i++)
	{
		if (files[i].path)
			put(files[i].path, files[i].text);
		if (files[i].then.does)
			check_steps(&files[i].then, 1, command);
	}
	put("/proc/self/cgroup", "4:memory:/c\n");
	put("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", psprintf("%.0f\n", 6 * buffers));
	is(pgscale_kernel_buffers_may_grow(), true, "buffers of a sixth may grow");
	put("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", psprintf("%.0f\n", 5.9 * buffers));
	is(pgscale_kernel_buffers_may_grow(), false, "larger ones may not");
}

/* What is cached of a file with pages 17 and 18, by mincore, which is asked for pages from one on, or for all of the file */
static void
check_cached(void)
{
	static const int cases[][3] = {{0, 0, 2}, {0, 2, 0}, {16, 2, 1}, {17, 2, 2}, {18, 1, 1}};
	const int64 page = sysconf(_SC_PAGESIZE);
	char	   *path = psprintf("%s/cached", folder);
	const int	fd = OpenTransientFile(path, O_CREAT | O_RDWR);
	PgscaleCached cached;

	if (fd < 0 || pwrite(fd, palloc0(2 * page), 2 * page - 100, 17 * page) != 2 * page - 100)
		elog(ERROR, "could not write %s: %m", path);
	for (int i = 0; i < lengthof(cases); i++)
	{
		is(ask_mincore(fd, cases[i][0] * page, cases[i][1] * page, &cached), true, "mincore");
		is(cached.cached, cases[i][2] * page, psprintf("mincore: %d pages from %d on", cases[i][1], cases[i][0]));
		is(cached.dirty, -1, "mincore: not what is dirty");
	}
	CloseTransientFile(fd);
}

/* The clock sweep, where three tenths of the buffers are at zero: how its reason begins. */

#define CHOOSES "replacement is choosing: 30.0 % of the buffers are at zero and leave next, 20.0 % are at the maximum and stay; "
#define RANDOM	"replacement is close to random, and expensive: 50.0 % of the buffers are at the maximum usage count, " \
	"whether hot or not, "

static void
check_sweep(void)
{
	static const struct
	{
		bool		preloaded, all_used;
		Sweep		sweep;
		const char *reason;
	}			cases[] = {
		{true, true, {.unused = 0.5}, "counting begins with this call"},
		{false, false, {.unused = 0.5}, "nothing has to leave yet: 50.0 %"},
		{false, false, {.unused = 0.0101}, "nothing has to leave yet: 1.0 %"},
		{false, false, {.unused = 0.0099,.maximum = 0.2,.expected = 3}, CHOOSES "a victim costs 3.0 ticks"},
		{false, true, {.unused = 0.5,.maximum = 0.2,.expected = 3}, CHOOSES},
		{true, true, {.measured = true}, "nothing had to leave"},
		{true, true, {.measured = true,.ticks = 5}, "replacement is choosing"},
		{true, true, {.measured = true,.ticks = 10,.allocations = 99,.maximum = 0.2,.expected = 3},
		CHOOSES "a victim costs 3.0 ticks"},
		{true, true, {.measured = true,.ticks = 49,.allocations = 100}, "victims come from the freelist: 0.49 ticks an allocation"},
		{true, true, {.measured = true,.ticks = 50,.allocations = 100,.maximum = 0.2}, CHOOSES "a victim costs 0.5 ticks"},
		{true, true, {.measured = true,.ticks = 9999,.allocations = 100}, "replacement is choosing: "},
		{true, true, {.measured = true,.ticks = 10000,.allocations = 100,.maximum = 0.49},
		"replacement is choosing, but searches long: a victim costs 100 ticks, and 30.0 %"},
		{true, true, {.measured = true,.ticks = 10000,.allocations = 100,.maximum = 0.5},
		RANDOM "and the next victim costs about 100 ticks"},
		{true, true, {.measured = true,.ticks = 10000,.allocations = 100,.maximum = 0.5,.expected = 700},
		RANDOM "and the next victim costs about 700 ticks"},
		{true, true, {.measured = true,.ticks = 9900,.allocations = 100,.maximum = 0.5,.expected = 99},
		"replacement is choosing: "},
		{true, true, {.measured = true,.ticks = 9900,.allocations = 100,.one = 0.601},
		"replacement is in order of arrival: 90.1 % of the buffers are at zero or one"},
		{true, true, {.measured = true,.ticks = 9900,.allocations = 100,.one = 0.59}, "replacement is choosing: "}
	};
	PgscaleUsage usage = {.buffers = 1000};

	for (int i = 0; i < lengthof(cases); i++)
	{
		Sweep		sweep = cases[i].sweep;
		char	   *reason;

		sweep.zero = 0.3;
		preloaded = cases[i].preloaded;
		all_used = cases[i].all_used;
		reason = pstrdup(clock_sweep_reason(&sweep));
		reason[Min(strlen(reason), strlen(cases[i].reason))] = '\0';
		same(reason, cases[i].reason, psprintf("the clock sweep, %d", i));
	}

	is(expected_search(&usage), 0, "no victim");
	usage.unpinned[0] = 10;
	usage.unpinned[3] = 500;
	is(expected_search(&usage), 91, "some at zero");
	usage.unpinned[0] = 0;
	is(expected_search(&usage), 3000 + 1001.0 / 501, "the least is three: three passes");
	usage.unpinned[0] = 1000;
	is(expected_search(&usage), 1, "all at zero");
}

/* Pages of memory, and their nodes */

#define PAGES	2600

static char *memory;
static Size page_size;
static int	move_error = 0;
static int	asks = 0;
static bool in_move = false;

int
pgscale_numa_lib_locate(int count, void **pages, int *nodes)
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
		const int	number = ((char *) pages[i] - memory) / page_size;

		answers[i] = number == 5 ? 99 : nodes[i];
		say("%d to %d", number, nodes[i]);
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

static bool never_used(const char *page, Size size) { return false; }

/* Where ten pages are, from one on, and how often that was asked for */
static const char *
where(const PgscaleNumaMapping *mapping, int first)
{
	int			nodes[PGSCALE_NUMA_AT_ONCE];
	StringInfoData text;

	initStringInfo(&text);
	asks = 0;
	pgscale_numa_where(mapping, memory + first * page_size, 10, never_used, nodes);
	for (int i = 0; i < 10; i++)
		appendStringInfo(&text, "%d ", nodes[i]);
	appendStringInfo(&text, "(%d)", asks);
	return text.data;
}

static void
check_pages(void)
{
	static const int there[] = {3, 5, 6, 1025, 1027, PAGES - 1};
	PgscaleNumaMapping mapping;
	int64		left = -1;

	page_size = sysconf(_SC_PAGESIZE);
	memory = mmap(NULL, PAGES * page_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		elog(ERROR, "could not map memory: %m");
	mapping = (PgscaleNumaMapping) {.start = memory,.size = PAGES * page_size,.page = page_size};
	for (int i = 0; i < lengthof(there); i++)
		memory[there[i] * page_size] = 1;
	same(where(&mapping, 0), "-1 -1 -1 100 -1 101 102 -1 -1 -1 (1)", "pages that are there have a node");
	in_move = true;
	same(where(&mapping, 0), "-1 -1 -1 100 -1 101 102 -1 -1 -1 (2)", "one that is being moved is asked for again");
	same(where(&mapping, 4), "-1 100 101 -1 -1 -1 -1 -1 -1 -1 (1)", "pages count from the first, not from the mapping's");

	resetStringInfo(&said);
	is(pgscale_numa_interleave(&mapping, &left), 0, "pages are dealt");
	same(said.data, "3 to 7; 5 to 7; 6 to 4; 1025 to 7; 1027 to 7; 2599 to 7", "those that are there, in turn");
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
	initStringInfo(&said);
	strlcpy(folder, text_to_cstring(PG_GETARG_TEXT_PP(0)), sizeof(folder));
	check_files();
	check_cached();
	check_sweep();
	check_pages();
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}
