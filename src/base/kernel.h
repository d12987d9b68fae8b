/*-------------------------------------------------------------------------
 *
 * kernel.h
 *	  Page cache, dirty memory and disks, as the kernel reports them.
 *
 * Nothing here allocates memory or raises an error: a missing value is returned as
 * unknown.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_KERNEL_H
#define PGSCALE_BASE_KERNEL_H

#include "postgres.h"

#include <sys/types.h>

/*
 * What the kernel has in memory of a range of a file, in bytes.  dirty is an
 * upper bound: a folio counts whole.  dirty and writeback are -1 if unknown.
 */
typedef struct PgscaleCached
{
	int64		cached;
	int64		dirty;
	int64		writeback;
} PgscaleCached;

/* Does the kernel report dirty pages?  If not, *why is set to the reason. */
extern bool pgscale_kernel_reports_dirty(const char **why);

/*
 * The cached part of the range, in whole pages of the kernel, so a range should begin
 * and end with one. length 0: to the end of the file.  Returns false, with errno, if it
 * is unknown for this file.
 */
extern bool pgscale_kernel_cached(int fd, off_t offset, off_t length, PgscaleCached *cached);

/*
 * Does the file system begin to write when it is asked to?  overlay says yes and
 * does nothing.
 */
extern bool pgscale_kernel_begins_writes(const char *path);

/*
 * May this process ask it to, by sync_file_range?  Where a filter of system calls forbids
 * that, the server takes the failure for a failed write and ends all sessions.
 */
extern bool pgscale_kernel_may_begin_writes(void);

/* Drops what is clean of the file, and begins to write what is not. */
extern void pgscale_kernel_evict(int fd);

/* Bytes; -1 where unknown. */
typedef struct PgscaleKernelMemory
{
	int64		dirty;
	int64		writeback;
	int64		background_threshold;	/* dirty beyond it is written at once */
	int64		threshold;		/* dirty beyond it makes its writers wait */
} PgscaleKernelMemory;

extern void pgscale_kernel_memory(PgscaleKernelMemory *memory);

/*
 * Fraction of the last 10 seconds in which some process waited for I/O; -1 if
 * unknown.
 */
extern double pgscale_kernel_io_pressure_fraction(void);

/* What a block device has done since the kernel knows it. */
typedef struct PgscaleDisk
{
	int64		reads;
	int64		read_ms;		/* sum over the reads */
	int64		writes;
	int64		write_bytes;
	int64		busy_ms;		/* time with a request under way */
} PgscaleDisk;

/* Returns false if there is no such device, as below tmpfs or overlay. */
extern bool pgscale_kernel_disk(dev_t device, PgscaleDisk *disk);

/*
 * The name of the disk below a path, or the number of a file system without a disk.
 * Partitions, logical volumes and encrypted ones have the name of their disk, if it is
 * one disk.  Returns false if there is no such path.
 */
extern bool pgscale_kernel_device(const char *path, char *name, Size size);

/* What the kernel counts since it started; -1 where unknown. */
typedef struct PgscaleKernelCounts
{
	int64		swapped;		/* pages, in and out */
	int64		compact_stalls; /* of processes that waited for a huge page */
} PgscaleKernelCounts;

extern void pgscale_kernel_counts(PgscaleKernelCounts *counts);

/* How long a process ran on a CPU, and queued for one, since its start. */
typedef struct PgscaleKernelSchedule
{
	int64		run_ns;
	int64		queue_ns;
} PgscaleKernelSchedule;

/* A descriptor to read the counts of a process by, or -1 with errno. */
extern int	pgscale_kernel_open_schedule(int pid);

/* False if the process is gone, or the kernel does not count. */
extern bool pgscale_kernel_read_schedule(int fd, PgscaleKernelSchedule *counts);

/*
 * A line of /proc/meminfo, by its name with the colon: bytes of what it has in kB,
 * and 1024 times what it has without a unit; -1: unknown.
 */
extern int64 pgscale_kernel_meminfo(const char *name);

/* Memory that this process may use: the machine's, or its cgroup's; -1: unknown. */
extern int64 pgscale_kernel_ram(void);

/* Are shared buffers much less than a quarter of it, as is a reasonable start? */
extern bool pgscale_kernel_buffers_may_grow(void);

/*
 * The first line of a small file, as below /proc/sys and /sys; false if it
 * cannot be read.
 */
extern bool pgscale_kernel_setting(const char *path, char *text, Size size);

/*
 * CPUs that this process may use: those that it may run on (more than 1024 count as 1024), or
 * fewer, also a part of one, by the quota of its cgroups, of either version.  Reads about ten small files.
 */
extern double pgscale_kernel_cpus(void);

/*
 * Bytes of huge pages of a size that the cgroups of this process, of either version, let it use and
 * reserve; PG_INT64_MAX: no limit.  A mapping beyond what may be reserved fails; one beyond what may
 * be used does not, and then the process ends by SIGBUS when it touches it.
 */
typedef struct PgscaleHugePageLimit
{
	int64		used;
	int64		reserved;
} PgscaleHugePageLimit;

extern PgscaleHugePageLimit pgscale_kernel_huge_page_limit(int64 size);

/* Has this process touched memory in huge pages, as of the server's own? */
extern bool pgscale_kernel_uses_huge_pages(void);

#endif							/* PGSCALE_BASE_KERNEL_H */
