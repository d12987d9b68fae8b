/*-------------------------------------------------------------------------
 *
 * tablespace_latency.c
 *	  The speed of the device below a tablespace: a few reads and writes past every
 *	  cache.
 *
 * Direct I/O, one request at a time.  The result is the mean and not the median: a
 * device with limited requests per second answers most of them at once and delays a
 * few, so its median is 0.1 ms where the mean is 8.
 *
 * Reads.  Random pages of existing relations: a file of our own would be in one free
 * place, and in the device's cache.  Only where there are too few pages, as in a new
 * tablespace, a file is written, among the server's temporary files.  It loses its name at once, so that the
 * kernel removes it when it is closed.  Holes, and reserved blocks that were never
 * written, are answered without the device, so they are not read.  Nor is data that the
 * kernel must still write, because the read would wait for that write.
 *
 * Trust.  One device, measured ten times, suggested values of random_page_cost from 2.1
 * to 7.3: other programs use it, too, and it has caches.  So a measurement has several
 * rounds of random and sequential reads in turn.  The result shows how far they differ,
 * and where they disagree on random_page_cost, none is suggested.
 *
 * Bounds.  Each step has a limit of number and of time: finding files, random reads,
 * sequential reads, writes.  Interrupts are served in between.
 *
 * Failure.  Files may disappear at any moment, because no relation is locked: another
 * file is read instead.  For a device that is gone or full, or a file system without
 * direct I/O, the column reason says so, and the other tablespaces are still measured.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_tablespace.h"
#include "catalog/pg_tablespace_d.h"
#include "commands/tablespace.h"
#include "common/pg_prng.h"
#include "common/file_utils.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "base/kernel.h"
#include "base/pg_compat.h"
#include "base/relation_files.h"
#include "base/row_builder.h"
#include "base/three_digits.h"
#include "base/timer.h"
#include "base/units.h"
#include "relocation/plan/tablespace_latency.h"

#define NS_IN_S				1e9

/* Files worth reading, and how much of them is enough. */
#define MIN_FILE_BYTES			PGSCALE_MB
#define ENOUGH_BYTES			(16 * PGSCALE_MB)
#define MAX_FILES				10000
#define MAX_LOOKS				50000
#define MAX_LOOK_S				1

/* Rounds, and how far what they suggest may be apart. */
#define ROUNDS					4
#define MAX_DISAGREEMENT		1.5

/* In all rounds */
#define MIN_READS				64
#define MAX_READS				256
#define MAX_READ_S				3
#define MAX_SEQUENTIAL_BYTES	(32 * PGSCALE_MB)
#define MAX_SEQUENTIAL_S		1

/* In a round: a pick may hit a hole, or a file that is gone. */
#define MAX_PICKS				(8 * MAX_READS / ROUNDS)

#define PIECE_BYTES				PGSCALE_MB

#define TEMPORARY_BYTES			(64 * PGSCALE_MB)
#define MAX_TEMPORARY_S			3

/* A write of another process must not fail because of ours: that much more must be free. */
#define SPARE_FACTOR			4

#define RATE_BYTES				(32 * PGSCALE_MB)
#define MAX_RATE_S				1

/* Any device's and file system's blocks divide it. */
#define DIRECT_ALIGN			4096

PG_FUNCTION_INFO_V1(pgscale_tablespace_latency);
PG_FUNCTION_INFO_V1(pgscale_relocation_write_rate);

typedef struct ProbeFile
{
	char	   *path;			/* NULL: the temporary file */
	int64		size;
	int64		on_disk;		/* bytes */
	int64		weight;			/* bytes of this one and all before */
} ProbeFile;

typedef struct ProbeFiles
{
	ProbeFile  *file;			/* largest first, once all are found */
	int			n;
	int64		on_disk;		/* bytes of all */
	int			looks;
	int64		give_up;
	int			temporary;		/* descriptor; -1: none */
	const char *problem;		/* the latest, NULL: none */
	const char *doubt;			/* why nothing is suggested; NULL: something
								 * is */
} ProbeFiles;

static char *
aligned_buffer(Size size)
{
	return (char *) TYPEALIGN(DIRECT_ALIGN, palloc(size + DIRECT_ALIGN));
}

/* Says what failed, by errno. */
static void
set_problem(ProbeFiles *files, const char *what, const char *path)
{
	if (errno == EINVAL)
		files->problem = "its file system does not do direct I/O";
	else
		files->problem = psprintf("could not %s \"%s\": %s", what, path, strerror(errno));
}

static void
add_file(ProbeFiles *files, const char *path, const struct stat *st)
{
	const int64 on_disk = Min(st->st_size, st->st_blocks * (int64) 512);
	ProbeFile  *file = &files->file[files->n];

	if (!S_ISREG(st->st_mode) || on_disk < MIN_FILE_BYTES)
		return;
	file->path = path ? pstrdup(path) : NULL;
	file->size = st->st_size;
	file->on_disk = on_disk;
	files->on_disk += on_disk;
	files->n++;
}

/* Has enough been looked at? */
static bool
looked_enough(ProbeFiles *files)
{
	CHECK_FOR_INTERRUPTS();
	return ++files->looks > MAX_LOOKS || files->n == MAX_FILES || pgscale_timer_clock() > files->give_up;
}

/*
 * The relations' files in a tablespace's folder, of all databases; or in the folder of one of these, which may be gone.  False if the
 * tablespace is not there.
 */
static bool
add_relations(ProbeFiles *files, const char *folder, bool of_database)
{
	DIR		   *dir = AllocateDir(folder);
	struct dirent *entry;

	if (dir == NULL)
	{
		if (!of_database)
			set_problem(files, "open directory", folder);
		return of_database;
	}
	while (!looked_enough(files) && (entry = ReadDirExtended(dir, folder, DEBUG1)) != NULL)
	{
		char		path[MAXPGPATH];
		struct stat st;
		RelFileLocator locator;
		ForkNumber	fork;
		uint32		segment;

		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		if (!of_database && strspn(entry->d_name, "0123456789") == strlen(entry->d_name))
			(void) add_relations(files, path, true);
		else if (of_database && pgscale_compat_parse_relfile(entry->d_name, &locator, &fork, &segment) && stat(path, &st) == 0)
			add_file(files, path, &st);
	}
	FreeDir(dir);
	return true;
}

/*
 * Writes random bytes, which no device can shrink, to a temporary file in the tablespace.  Returns how many, and in
 * *elapsed_ns how long that took; 0, with a problem set, if that failed.
 */
static int64
write_temporary(ProbeFiles *files, const char *folder, int64 bytes, int seconds, int64 *elapsed_ns)
{
	char		path[MAXPGPATH];
	char	   *piece = aligned_buffer(PIECE_BYTES);
	int64		written = 0;
	struct statvfs fs;

	*elapsed_ns = 0;
	if (statvfs(folder, &fs) == 0 && fs.f_bavail * (double) fs.f_frsize < SPARE_FACTOR * (double) bytes)
	{
		files->problem = psprintf("less than %d MB are free, too little for a file of %d MB",
								  (int) (SPARE_FACTOR * bytes / PGSCALE_MB), (int) (bytes / PGSCALE_MB));
		return 0;
	}
	if (temp_file_limit >= 0 && temp_file_limit * INT64CONST(1024) < bytes)
	{
		files->problem = psprintf("temp_file_limit does not allow a file of %d MB", (int) (bytes / PGSCALE_MB));
		return 0;
	}
	snprintf(path, sizeof(path), "%s/" PG_TEMP_FILES_DIR, folder);
	(void) MakePGDirectory(path);
	snprintf(path, sizeof(path), "%s/" PG_TEMP_FILES_DIR "/" PG_TEMP_FILE_PREFIX "%d.probe", folder, MyProcPid);
	files->temporary = OpenTransientFile(path, O_RDWR | O_CREAT | O_TRUNC | PG_O_DIRECT | PG_BINARY);
	if (files->temporary < 0)
		set_problem(files, "create file", path);
	/* without direct I/O there is a file, too */
	(void) unlink(path);
	while (files->temporary >= 0 && written < bytes && *elapsed_ns < seconds * NS_IN_S)
	{
		int64		start;
		ssize_t		n;

		for (int i = 0; i < PIECE_BYTES / sizeof(uint64); i++)
			((uint64 *) piece)[i] = pg_prng_uint64(&pg_global_prng_state);
		CHECK_FOR_INTERRUPTS();
		start = pgscale_timer_clock();
		errno = 0;
		n = pg_pwrite(files->temporary, piece, PIECE_BYTES, written);
		*elapsed_ns += pgscale_timer_clock() - start;
		if (n != PIECE_BYTES)
		{
			/* Short without an error: the disk was full just then. */
			if (errno == 0)
				errno = ENOSPC;
			set_problem(files, "write file", path);
			/* A disk that is full, or about to fail, needs no file of ours. */
			return 0;
		}
		written += n;
	}
	return written;
}

static void
close_temporary(ProbeFiles *files)
{
	if (files->temporary >= 0)
		CloseTransientFile(files->temporary);
	files->temporary = -1;
}

/* Is it on disk, and only there to be had? */
static bool
must_come_from_disk(int fd, off_t offset, off_t length)
{
	const off_t data = lseek(fd, offset, SEEK_DATA);
	PgscaleCached cached;

	/* EINVAL: a file system that knows no holes */
	if (data < 0 ? errno != EINVAL : data != offset)
		return false;
	return !pgscale_kernel_cached(fd, offset, length, &cached) || (cached.dirty <= 0 && cached.writeback <= 0);
}

/* How long a read took; -1 if there is nothing to read here. */
static int64
timed_read(ProbeFiles *files, const ProbeFile *file, int fd, char *buffer, off_t length, off_t offset)
{
	int64		start;
	ssize_t		n;

	if (!must_come_from_disk(fd, offset, length))
		return -1;
	pgstat_report_wait_start(WAIT_EVENT_DATA_FILE_READ);
	start = pgscale_timer_clock();
	n = pg_pread(fd, buffer, length, offset);
	start = pgscale_timer_clock() - start;
	pgstat_report_wait_end();
	if (n < 0)
		set_problem(files, "read file", file->path ? file->path : "temporary file");
	return n == length ? start : -1;
}

static int
open_direct(ProbeFiles *files, const ProbeFile *file)
{
	int			fd;

	if (!file->path)
		return files->temporary;
	fd = OpenTransientFile(file->path, O_RDONLY | PG_O_DIRECT | PG_BINARY);
	if (fd < 0 && errno != ENOENT)
		set_problem(files, "open file", file->path);
	return fd;
}

static void
close_direct(const ProbeFile *file, int fd)
{
	if (file->path)
		CloseTransientFile(fd);
}

/* The file that this byte of all of them lies in. */
static int
file_at(const ProbeFiles *files, int64 at)
{
	int			low = 0;
	int			high = files->n - 1;

	while (low < high)
	{
		const int	middle = (low + high) / 2;

		if (files->file[middle].weight > at)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* What one round has found. */
typedef struct Round
{
	int			reads;
	int64		sum_ns;
	int64		max_ns;
	int64		sequential_bytes;
	int64		sequential_ns;
} Round;

/* Returns false if it found too little to read; not if it had no more time. */
static bool
read_random(ProbeFiles *files, Round *round)
{
	char	   *page = aligned_buffer(BLCKSZ);
	const int64 give_up = pgscale_timer_clock() + MAX_READ_S * (int64) NS_IN_S / ROUNDS;

	for (int pick = 0; pick < MAX_PICKS && round->reads < MAX_READS / ROUNDS && pgscale_timer_clock() < give_up; pick++)
	{
		const int64 at = pg_prng_uint64_range(&pg_global_prng_state, 0, files->on_disk - 1);
		const ProbeFile *file = &files->file[file_at(files, at)];
		const int64 block = pg_prng_uint64_range(&pg_global_prng_state, 0, file->size / BLCKSZ - 1);
		const int	fd = open_direct(files, file);
		int64		ns;

		CHECK_FOR_INTERRUPTS();
		if (fd < 0)
			continue;
		ns = timed_read(files, file, fd, page, BLCKSZ, block * BLCKSZ);
		close_direct(file, fd);
		if (ns < 0)
			continue;
		round->sum_ns += ns;
		round->max_ns = Max(round->max_ns, ns);
		round->reads++;
	}
	return round->reads >= MIN_READS / ROUNDS || pgscale_timer_clock() >= give_up;
}

static int
larger_first(const void *a, const void *b)
{
	off_t		left = ((const ProbeFile *) a)->size;
	off_t		right = ((const ProbeFile *) b)->size;

	return left > right ? -1 : left < right;
}

/*
 * Reads on in the largest file, from somewhere; in the next one if that is still
 * on its way to the disk.
 */
static void
read_sequential(ProbeFiles *files, Round *round)
{
	char	   *piece = aligned_buffer(PIECE_BYTES);

	for (int n = 0; n < files->n && round->sequential_bytes == 0; n++)
	{
		const ProbeFile *file = &files->file[n];
		int64		pieces = file->size / PIECE_BYTES;
		int64		want = Min(pieces, MAX_SEQUENTIAL_BYTES / ROUNDS / PIECE_BYTES);
		int64		first = pg_prng_uint64_range(&pg_global_prng_state, 0, pieces - want);
		int			fd = open_direct(files, file);

		if (fd < 0)
			continue;
		for (int64 i = first; i < first + want && round->sequential_ns < MAX_SEQUENTIAL_S * NS_IN_S / ROUNDS; i++)
		{
			int64		ns;

			CHECK_FOR_INTERRUPTS();
			ns = timed_read(files, file, fd, piece, PIECE_BYTES, i * PIECE_BYTES);
			if (ns < 0)
				continue;
			round->sequential_ns += ns;
			round->sequential_bytes += PIECE_BYTES;
		}
		close_direct(file, fd);
	}
}

/*
 * What random_page_cost is for this device, with seq_page_cost at 1.  By the
 * server's documentation ("Planner Cost Constants") its default of 4 stands for
 * random reads that are 40 times slower than sequential ones while 90 % of them
 * are found in a cache: a tenth of what they are slower.
 */
static double
suggested_cost(double read_ms, double sequential_bytes_per_s)
{
	const double sequential_ms = 1000.0 * BLCKSZ / sequential_bytes_per_s;

	return Max(1.0, rint(0.1 * read_ms / sequential_ms * 10) / 10);
}

static double
mean_ms(const Round *round)
{
	return (double) round->sum_ns / NS_PER_MS / round->reads;
}

static double
latency_rate(const Round *round)
{
	return round->sequential_bytes / (round->sequential_ns / NS_IN_S);
}

/* Puts the rounds together; all of them have read something at random. */
static void
sum_up(ProbeFiles *files, const Round *rounds, int n, PgscaleRelocationProbe *probe)
{
	Round		all = {0};
	double		fastest = 0;
	double		slowest = 0;
	double		least = 0;
	double		most = 0;
	bool		known = n == ROUNDS;

	for (int i = 0; i < n; i++)
	{
		const Round *round = &rounds[i];

		all.reads += round->reads;
		all.sum_ns += round->sum_ns;
		all.max_ns = Max(all.max_ns, round->max_ns);
		all.sequential_bytes += round->sequential_bytes;
		all.sequential_ns += round->sequential_ns;
		fastest = i == 0 ? mean_ms(round) : Min(fastest, mean_ms(round));
		slowest = Max(slowest, mean_ms(round));
		if (round->sequential_ns > 0)
		{
			double		cost = suggested_cost(mean_ms(round), latency_rate(round));

			least = least == 0 ? cost : Min(least, cost);
			most = Max(most, cost);
		}
		else
			known = false;
	}
	if (n == 0)
		return;
	probe->reads = all.reads;
	probe->read_ms = mean_ms(&all);
	probe->max_ms = (double) all.max_ns / NS_PER_MS;
	probe->spread = slowest / fastest;
	if (all.sequential_ns > 0)
		probe->sequential_bytes_per_s = latency_rate(&all);
	if (known && most <= MAX_DISAGREEMENT * least)
		probe->random_page_cost = suggested_cost(probe->read_ms, probe->sequential_bytes_per_s);
	else if (known)
		files->doubt = psprintf("no random_page_cost, because %d rounds suggest %.1f to %.1f", n, least, most);
}

/* Returns false if there is too little to read. */
static bool
read_rounds(ProbeFiles *files, PgscaleRelocationProbe *probe)
{
	Round		rounds[ROUNDS];
	int			n = 0;

	memset(rounds, 0, sizeof(rounds));
	qsort(files->file, files->n, sizeof(ProbeFile), larger_first);
	for (int i = 0; i < files->n; i++)
		files->file[i].weight = files->file[i].on_disk + (i > 0 ? files->file[i - 1].weight : 0);
	while (n < ROUNDS)
	{
		if (!read_random(files, &rounds[n]) && n == 0)
			return false;
		if (rounds[n].reads == 0)
			break;
		read_sequential(files, &rounds[n++]);
	}
	sum_up(files, rounds, n, probe);
	return true;
}

/* What was read, and what is to be known of the result. */
static const char *
reason_of(const ProbeFiles *files, const PgscaleRelocationProbe *probe)
{
	StringInfoData text;

	if (probe->reads == 0)
		return files->problem ? files->problem : "nothing there can be read: all of it is holes, or on its way to the disk";
	initStringInfo(&text);
	appendStringInfoString(&text, files->temporary >= 0 ? "of a temporary file, because there was little to read" : "of its relations");
	if (probe->reads < MIN_READS)
		appendStringInfo(&text, "; only %d reads, so it is less certain", probe->reads);
	if (files->doubt)
		appendStringInfo(&text, "; %s", files->doubt);
	if (files->problem)
		appendStringInfo(&text, "; %s", files->problem);
	return text.data;
}

bool
pgscale_relocation_probe_tablespace(Oid tablespace, PgscaleRelocationProbe *probe)
{
	ProbeFiles	files = {.temporary = -1};
	char		folder[MAXPGPATH];
	int64		elapsed_ns;
	struct stat st;
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext own = AllocSetContextCreate(caller, "pgscale probe", ALLOCSET_DEFAULT_SIZES);

	memset(probe, 0, sizeof(PgscaleRelocationProbe));
	MemoryContextSwitchTo(own);
	files.file = palloc((MAX_FILES + 1) * sizeof(ProbeFile));
	files.give_up = pgscale_timer_clock() + MAX_LOOK_S * (int64) NS_IN_S;
	pgscale_relation_files_folder(folder, tablespace);

	if (add_relations(&files, folder, false) &&
		(files.on_disk < ENOUGH_BYTES || !read_rounds(&files, probe)) && !files.problem)
	{
		if (write_temporary(&files, folder, TEMPORARY_BYTES, MAX_TEMPORARY_S, &elapsed_ns) > 0 &&
			fstat(files.temporary, &st) == 0)
		{
			files.n = files.on_disk = 0;
			add_file(&files, NULL, &st);
		}
		else
			close_temporary(&files);
		if (files.n > 0 && probe->reads == 0)
			(void) read_rounds(&files, probe);
	}
	probe->reason = MemoryContextStrdup(caller, reason_of(&files, probe));

	close_temporary(&files);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(own);
	return probe->reads > 0;
}

double
pgscale_relocation_probe_write_rate(Oid tablespace)
{
	ProbeFiles	files = {.temporary = -1};
	char		folder[MAXPGPATH];
	int64		elapsed_ns;
	int64		written;
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext own = AllocSetContextCreate(caller, "pgscale probe", ALLOCSET_DEFAULT_SIZES);

	MemoryContextSwitchTo(own);
	pgscale_relation_files_folder(folder, tablespace);
	written = write_temporary(&files, folder, RATE_BYTES, MAX_RATE_S, &elapsed_ns);
	close_temporary(&files);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(own);
	return elapsed_ns > 0 ? written / (elapsed_ns / NS_IN_S) : 0;
}

/*
 * pgscale_internal.relocation_write_rate(tablespace): bytes/s; null if unknown.  It puts load on
 * the disk as tablespace_latency() does, so it is for the same roles, whatever is granted on it.
 */
Datum
pgscale_relocation_write_rate(PG_FUNCTION_ARGS)
{
	const Oid	tablespace = PG_GETARG_OID(0);
	const Datum probe = DirectFunctionCall1(regprocedurein, CStringGetDatum("pgscale.tablespace_latency(pg_catalog.name)"));
	double		rate;

	if (!DatumGetBool(DirectFunctionCall2(has_function_privilege_id, probe, CStringGetTextDatum("EXECUTE"))))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to measure tablespaces"),
				 errhint("GRANT EXECUTE ON FUNCTION pgscale.tablespace_latency(name) allows it.")));
	if (tablespace == GLOBALTABLESPACE_OID || !get_tablespace_name(tablespace))
		PG_RETURN_NULL();
	rate = pgscale_relocation_probe_write_rate(tablespace);
	if (rate <= 0)
		PG_RETURN_NULL();
	PG_RETURN_FLOAT8(rate);
}

static void
put_tablespace(ReturnSetInfo *rsinfo, Oid tablespace)
{
	const char *name = get_tablespace_name(tablespace);
	PgscaleRow	row = {0};
	PgscaleRelocationProbe probe;
	bool		unknown;
	char		folder[MAXPGPATH];
	char		device[MAXPGPATH];

	/* it was dropped while others were measured */
	if (!name)
		return;
	unknown = !pgscale_relocation_probe_tablespace(tablespace, &probe);
	pgscale_relation_files_folder(folder, tablespace);
	pgscale_row_put(&row, DirectFunctionCall1(namein, CStringGetDatum(name)), false);
	pgscale_row_int4(&row, probe.reads);
	pgscale_row_put(&row, Float8GetDatum(pgscale_three_digits(probe.read_ms)), unknown);
	pgscale_row_put(&row, Float8GetDatum(pgscale_three_digits(probe.max_ms)), unknown);
	pgscale_row_put(&row, Float8GetDatum(pgscale_three_digits(probe.spread)), unknown);
	pgscale_row_put(&row, Int64GetDatum((int64) probe.sequential_bytes_per_s), probe.sequential_bytes_per_s == 0);
	pgscale_row_put(&row, Float8GetDatum(pgscale_three_digits(probe.random_page_cost)), probe.random_page_cost == 0);
	pgscale_row_text(&row, pgscale_kernel_device(folder, device, sizeof(device)) ? device : NULL);
	pgscale_row_text(&row, probe.reason);
	pgscale_row_end(&row, rsinfo);
}

/* All that a relation of a database may lie in. */
static List *
all_tablespaces(void)
{
	Relation	pg_tablespace = table_open(TableSpaceRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(pg_tablespace, InvalidOid, false, NULL, 0, NULL);
	List	   *found = NIL;
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		if (((Form_pg_tablespace) GETSTRUCT(tuple))->oid != GLOBALTABLESPACE_OID)
			found = lappend_oid(found, ((Form_pg_tablespace) GETSTRUCT(tuple))->oid);
	systable_endscan(scan);
	table_close(pg_tablespace, AccessShareLock);
	return found;
}

/* pgscale.tablespace_latency(tablespace): one row, or (NULL) one for each. */
Datum
pgscale_tablespace_latency(PG_FUNCTION_ARGS)
{
	ListCell   *cell;
	List	   *tablespaces;

	if (PG_ARGISNULL(0))
		tablespaces = all_tablespaces();
	else
	{
		const char *name = NameStr(*PG_GETARG_NAME(0));
		const Oid	tablespace = get_tablespace_oid(name, true);

		if (!OidIsValid(tablespace))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("tablespace \"%s\" does not exist", name),
					 errhint("pg_tablespace lists the tablespaces.")));
		if (tablespace == GLOBALTABLESPACE_OID)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("tablespace \"%s\" holds shared relations only", name),
					 errhint("It lies on the device of pg_default, unless its folder is a link.")));
		tablespaces = list_make1_oid(tablespace);
	}

	InitMaterializedSRF(fcinfo, 0);
	foreach(cell, tablespaces)
		put_tablespace((ReturnSetInfo *) fcinfo->resultinfo, lfirst_oid(cell));
	return (Datum) 0;
}
