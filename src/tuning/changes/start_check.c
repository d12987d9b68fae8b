/*-------------------------------------------------------------------------
 *
 * start_check.c
 *	  Checks whether the server would start with a setting changed.
 *
 * ALTER SYSTEM checks a value by itself.  A server mostly fails to start because the
 * value does not fit other settings, or the machine, and that is noticed at night.
 * Whatever the server checks before it allocates anything, it is asked itself
 * (start_probe.c).  Its later steps are checked here, from the values in its files:
 * whether there is memory for its size, room for what it kept, a library, a socket, a
 * log file, a queue of io_uring, a disk that holds its WAL.
 *
 * The size that the server computes is compared with the memory of the machine or the
 * cgroup.  A kernel that overcommits grants more, and kills the server when it uses
 * that memory.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <grp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "access/xlog.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/pg_shmem.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/snapmgr.h"
#include "utils/varlena.h"

#include "base/extension_table.h"
#include "base/kernel.h"
#include "base/node_name.h"
#include "base/pg_compat.h"
#include "base/texts.h"
#include "base/units.h"
#include "base/wal_disk.h"
#include "tuning/changes/changes.h"

/* The same number on all machines that PostgreSQL has packages for. */
#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup	425
#endif

static const PgscaleExtensionTable journal = {"tuning_change", "tuning journal"};

/* The change that is looked at. */
typedef struct Change
{
	const char *setting;
	const char *value;
	const char *force;
} Change;

/* What the server would find in its command line or its files, with the change; NULL: nothing, or this major has not got it. */
static const char *
line_coming(const Change *change, const char *name)
{
	const struct config_generic *record = pgscale_compat_find_setting(name);
	const bool	changed = pg_strcasecmp(change->setting, name) == 0;
	MemoryContext context = CurrentMemoryContext;
	PgscaleParameters parameters = {0};
	char	   *value = NULL;

	if (!record)
		return NULL;
	if (record->reset_source == PGC_S_ARGV)
		return GetConfigOption(name, false, false);
	if (changed && change->value)
		return change->value;
	pgscale_table_add_text(&parameters, name);
	pgscale_table_add(&parameters, BOOLOID, BoolGetDatum(changed));
	PushActiveSnapshot(GetTransactionSnapshot());
	if (pgscale_table_execute(&journal, "SELECT setting FROM pg_file_settings WHERE lower(name) = lower($1)"
							  " AND NOT ($2 AND sourcefile ~ '(^|/)postgresql[.]auto[.]conf$') ORDER BY seqno DESC LIMIT 1",
							  &parameters, false) == 1)
	{
		const char *text = pgscale_table_text(0, 1);

		value = text ? MemoryContextStrdup(context, text) : NULL;
	}
	SPI_finish();
	PopActiveSnapshot();
	return value;
}

/* A text as the server will have it at its next start, or this if nothing sets it. */
static const char *
text_coming(const Change *change, const char *name, const char *otherwise)
{
	const char *text = line_coming(change, name);

	return text ? text : otherwise;
}

/* This value as a number, in the setting's unit; if it is none, the default. */
static int64
setting_number(const struct config_generic *record, const char *value)
{
	bool		truth;
	int			number;

	switch (record->vartype)
	{
		case PGC_BOOL:
			return value && parse_bool(value, &truth) ? truth : pgscale_compat_of_bool(record)->boot_val;

		case PGC_INT:
			return value && parse_int(value, &number, record->flags, NULL) ? number : pgscale_compat_of_int(record)->boot_val;

		case PGC_ENUM:
			return value && config_enum_lookup_by_name(unconstify(struct config_enum *, pgscale_compat_of_enum(record)), value, &number)
				? number : pgscale_compat_of_enum(record)->boot_val;

		default:
			elog(ERROR, "setting \"%s\" is not a number", record->name);
	}
}

/* As the server has it now; 0 if this major has not got it. */
static int64
number_now(const char *name)
{
	const struct config_generic *record = pgscale_compat_find_setting(name);

	return record ? setting_number(record, GetConfigOption(name, false, false)) : 0;
}

/* As it will have it at its next start. */
static int64
number_coming(const Change *change, const char *name)
{
	const struct config_generic *record = pgscale_compat_find_setting(name);

	return record ? setting_number(record, line_coming(change, name)) : 0;
}

static void
start_refuse(const Change *change, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 change->value ? errmsg("with \"%s\" set to %s the server would not start again", change->setting, change->value)
			 : errmsg("without the line of \"%s\" the server would not start again", change->setting),
			 errdetail("%s", detail),
			 errhint("First change the settings that it depends on; %s skips this check.", change->force)));
}

static void
check_wal_level(const Change *change)
{
	/* from 19 on a logical slot is enough to have the level raised */
	const bool	raised = pgscale_compat_find_setting("effective_wal_level") != NULL;
	int64		level;

	level = number_coming(change, "wal_level");
	if (level == WAL_LEVEL_MINIMAL && pgscale_tuning_journal_number("SELECT count(*) FROM pg_replication_slots WHERE NOT temporary", NULL) > 0)
		start_refuse(change, "There are replication slots, which need more than a minimal \"wal_level\".");
	if (level < WAL_LEVEL_LOGICAL && !raised &&
		pgscale_tuning_journal_number("SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'logical' AND NOT temporary", NULL) > 0)
		start_refuse(change, "There are logical replication slots, which need a logical \"wal_level\".");
}

/* What is kept from one start to the next. */
typedef struct Kept
{
	const char *setting;
	const char *query;
	const char *what;
	bool		unread;			/* if the setting is 0 */
} Kept;

/* Is there room for it? */
static void
check_room(const Change *change)
{
	/* before 18 there was one limit for slots and origins */
	const char *origins = pgscale_compat_find_setting("max_active_replication_origins") ? "max_active_replication_origins" : "max_replication_slots";
	const Kept	kept[] = {
		{"max_replication_slots", "SELECT count(*) FROM pg_replication_slots WHERE NOT temporary", "replication slots", false},
		{"max_prepared_transactions", "SELECT count(*) FROM pg_prepared_xacts", "prepared transactions", false},
		{origins, "SELECT count(*) FROM pg_replication_origin_status", "replication origins with progress", true},
	};

	for (int i = 0; i < lengthof(kept); i++)
		if (pg_strcasecmp(change->setting, kept[i].setting) == 0)
		{
			const int64 room = number_coming(change, kept[i].setting);
			const int64 n = pgscale_tuning_journal_number(kept[i].query, NULL);

			if (room < n && !(room == 0 && kept[i].unread))
				start_refuse(change, psprintf("There are " INT64_FORMAT " %s.", n, kept[i].what));
		}
}

/* Huge pages of a size in kB, 0: the usual one, of which *bytes is the size; those that the kernel may add, too. */
static int64
huge_pages_of(int64 size, int64 *bytes)
{
	char		reserved[32] = "0";
	char		surplus[32] = "0";

	*bytes = size > 0 ? size * PGSCALE_KB : pgscale_kernel_meminfo("Hugepagesize:");
	if (*bytes <= 0)
		return -1;
	(void) pgscale_kernel_setting(psprintf("/sys/kernel/mm/hugepages/hugepages-" INT64_FORMAT "kB/nr_hugepages", *bytes / PGSCALE_KB),
								  reserved, sizeof(reserved));
	(void) pgscale_kernel_setting(psprintf("/sys/kernel/mm/hugepages/hugepages-" INT64_FORMAT "kB/nr_overcommit_hugepages", *bytes / PGSCALE_KB),
								  surplus, sizeof(surplus));
	return strtoll(reserved, NULL, 10) + strtoll(surplus, NULL, 10);
}

/*
 * Are there huge pages for it, and do its cgroups allow them?  Beyond what it may use of them, the server
 * would get them and then end by SIGBUS; if it only tries to get them, it does so unless there are none,
 * or it may not reserve them either.
 */
static void
check_huge_pages(const Change *change, double needs, bool grows)
{
	const int64 mode = number_coming(change, "huge_pages");
	int64		size;
	int64		pages;
	PgscaleHugePageLimit limit;
	bool		in_vain;

	if (mode == HUGE_PAGES_OFF)
		return;
	pages = huge_pages_of(number_coming(change, "huge_page_size"), &size);
	if (mode == HUGE_PAGES_ON && number_coming(change, "shared_memory_type") != SHMEM_TYPE_MMAP)
		start_refuse(change, "\"huge_pages\" would be on, which takes the \"shared_memory_type\" mmap.");
	if (pages < 0)
		return;
	in_vain = needs > (double) pages * size;
	if (mode == HUGE_PAGES_ON && in_vain)
		start_refuse(change, psprintf("\"huge_pages\" would be on: that takes %.0f pages of %s, and the kernel has " INT64_FORMAT ".",
									  needs / size, pgscale_text_bytes(size), pages));
	limit = pgscale_kernel_huge_page_limit(size);
	if (mode == HUGE_PAGES_TRY && (in_vain || needs > limit.reserved || !(grows || pg_strcasecmp(change->setting, "huge_pages") == 0)))
		return;
	if (needs > Min(limit.used, limit.reserved))
		start_refuse(change, psprintf("\"huge_pages\" would be %s: that takes %.0f pages of %s, and the server's cgroup (hugetlb) allows " INT64_FORMAT ".",
									  mode == HUGE_PAGES_ON ? "on" : "try", needs / size, pgscale_text_bytes(size), Min(limit.used, limit.reserved) / size));
}

/* Is there memory for what the server says that it takes? */
static void
check_memory(const Change *change, double needs)
{
	const double has = (double) number_now("shared_memory_size") * PGSCALE_MB;
	int64		ram = pgscale_kernel_ram();
	char		mode[8];

	/* one that takes less than the running server is not in question */
	if (needs > has && ram > 0 && needs > ram)
		start_refuse(change, psprintf("It would take %s of shared memory, and there are %s of memory for it.",
									  pgscale_text_bytes(needs), pgscale_text_bytes(ram)));
	if (needs > has && pgscale_kernel_setting("/proc/sys/vm/overcommit_memory", mode, sizeof(mode)) && mode[0] == '2')
	{
		int64		limit = pgscale_kernel_meminfo("CommitLimit:");
		int64		committed = pgscale_kernel_meminfo("Committed_AS:");

		if (limit >= 0 && committed >= 0 && needs - has > limit - committed)
			start_refuse(change, psprintf("It would take %s more of shared memory, and the kernel, with vm.overcommit_memory = 2, gives %s.",
										  pgscale_text_bytes(needs - has), pgscale_text_bytes(Max(limit - committed, 0))));
	}
	check_huge_pages(change, needs, needs > has);
}

/* Files that it would look for in the folder that is made for asking it. */
static const char *const tls_files[][2] = {
	{"ssl_cert_file", "server.crt"}, {"ssl_key_file", "server.key"}, {"ssl_ca_file", ""}, {"ssl_crl_file", ""}, {"ssl_crl_dir", ""},
	{"ssl_dh_params_file", ""}
};

static List *
tls_options(const Change *change)
{
	List	   *options;

	/*
	 * No command is run, because a role that may not run any may have set it,
	 * or set it before the server that is asked reads the files.  From 19 on
	 * hosts_file has commands, too, and is read if ssl_sni is on.
	 */
	if (*text_coming(change, "ssl_passphrase_command", "") || number_coming(change, "ssl_sni"))
		return list_make1(pstrdup("ssl=off"));
	options = list_make1(pstrdup("ssl_passphrase_command="));
	if (pgscale_compat_find_setting("ssl_sni"))
		options = lappend(options, pstrdup("ssl_sni=off"));
	for (int i = 0; i < lengthof(tls_files); i++)
	{
		const char *path = text_coming(change, tls_files[i][0], tls_files[i][1]);

		if (pgscale_compat_find_setting(tls_files[i][0]) && *path && !is_absolute_path(path))
			options = lappend(options, psprintf("%s=%s/%s", tls_files[i][0], DataDir, path));
	}
	return options;
}

/*
 * What the server says.  Any session may change settings of the user's for itself: they
 * keep none from starting.
 */
static void
check_server(const Change *change)
{
	const struct config_generic *record = pgscale_compat_find_setting(change->setting);
	const Change none = {"", NULL, NULL};
	PgscaleTuningStart with;
	PgscaleTuningStart without;

	if (!record || record->context == PGC_USERSET)
		return;
	pgscale_tuning_start_probe(change->setting, change->value, tls_options(change), &with);
	if (with.starts)
	{
		check_memory(change, with.shared_memory);
		return;
	}
	if (with.known)
	{
		pgscale_tuning_start_probe(NULL, NULL, tls_options(&none), &without);
		if (without.starts)
			start_refuse(change, psprintf("The server says: %s", with.says));
		if (!without.known)
			with = without;
	}
	ereport(WARNING,
			(errcode(ERRCODE_WARNING),
			 with.known ? errmsg("the server would not start again, neither with nor without this change")
			 : errmsg("it is unknown whether the server would start again"),
			 errdetail("%s", with.says)));
}

/* One that it can make is enough; but a group that there is not is in the way of all. */
static void
check_sockets(const Change *change)
{
	const char *group;
	char	   *end;
	List	   *folders;
	ListCell   *cell;
	int64		port;
	bool		usable = false;

	if (!SplitDirectoriesString(pstrdup(text_coming(change, "unix_socket_directories", DEFAULT_PGSOCKET_DIR)), ',', &folders) ||
		folders == NIL)
		return;
	port = number_coming(change, "port");
	foreach(cell, folders)
	{
		const char *folder = lfirst(cell);
		bool		fits = strlen(psprintf("%s/.s.PGSQL." INT64_FORMAT, folder, port)) < sizeof(((struct sockaddr_un *) NULL)->sun_path);

		usable |= fits && (*folder == '@' || access(folder, W_OK | X_OK) == 0);
	}
	if (!usable)
		start_refuse(change, "It names no folder in which the server can make a socket.");
	group = text_coming(change, "unix_socket_group", "");
	(void) strtoul(group, &end, 10);
	if (*group && *end && !getgrnam(group))
		start_refuse(change, psprintf("There is no group \"%s\" to own the sockets.", group));
}

/* It makes the folder, but not the one above. */
static void
check_log(const Change *change)
{
	const char *folder;
	char	   *above;

	if (!number_coming(change, "logging_collector"))
		return;
	folder = text_coming(change, "log_directory", "log");
	above = make_absolute_path(folder);
	get_parent_directory(above);
	if (access(folder, W_OK | X_OK) != 0 && (errno != ENOENT || access(above, W_OK | X_OK) != 0))
		start_refuse(change, psprintf("\"logging_collector\" would be on, and no file can be made in folder \"%s\".", folder));
}

/* In a folder of dynamic_library_path, as the server would find it. */
static bool
is_library_in(const char *folder, const char *name)
{
	struct stat status;
	const char *path = psprintf("%s/%s", folder, name);

	for (int i = 0; i < 2; i++)
	{
		if (stat(path, &status) == 0 && !S_ISDIR(status.st_mode) && access(path, R_OK) == 0)
			return true;
		path = psprintf("%s%s", path, DLSUFFIX);
	}
	return false;
}

/* "$libdir" at the beginning stands for the server's folder of libraries. */
static const char *
with_libdir(const char *path)
{
	return strncmp(path, "$libdir", 7) == 0 && (path[7] == '\0' || path[7] == '/') ? psprintf("%s%s", pkglib_path, path + 7) : path;
}

static bool
is_library(const char *name, const char *folders)
{
	char	   *path = pstrdup(folders);

	if (strchr(name, '/'))
	{
		name = with_libdir(name);
		return is_library_in(is_absolute_path(name) ? "" : DataDir, name);
	}
	for (char *folder = path, *next; folder; folder = next)
	{
		next = strchr(folder, ':');
		if (next)
			*next++ = '\0';
		if (!is_absolute_path(with_libdir(folder)))
			return false;		/* which is an error to the server */
		if (is_library_in(with_libdir(folder), name))
			return true;
	}
	return false;
}

/* Settings that name libraries. */
typedef struct LibrarySetting
{
	const char *name;
	const char *folder;			/* where a name without one is looked for;
								 * NULL: dynamic_library_path */
	bool		is_list;
	bool		searched;		/* $libdir/NAME is looked for as NAME, where
								 * the major does that */
} LibrarySetting;

static const LibrarySetting library_settings[] = {
	{"shared_preload_libraries", NULL, true, false},
	{"session_preload_libraries", NULL, true, false},
	{"local_preload_libraries", "$libdir/plugins", true, false},
	{"archive_library", NULL, false, true},
	{"oauth_validator_libraries", NULL, true, true},
	{"jit_provider", "$libdir", false, false},
};

static void
check_library(const Change *change, const LibrarySetting *setting, const char *name, const char *path)
{
	const char *looked_for = name;

	if (setting->folder && !strchr(name, '/'))
		looked_for = psprintf("%s/%s", setting->folder, name);
	else if (PGSCALE_LIBDIR_SEARCHED && setting->searched && strncmp(name, "$libdir/", 8) == 0 && !strchr(name + 8, '/'))
		looked_for = name + 8;
	if (!is_library(looked_for, path))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FILE),
				 change->value ? errmsg("with \"%s\" set to %s, library \"%s\" of \"%s\" would not be found",
										change->setting, change->value, name, setting->name)
				 : errmsg("without the line of \"%s\", library \"%s\" of \"%s\" would not be found",
						  change->setting, name, setting->name),
				 errhint("Install it first; %s skips this check.", change->force)));
}

/* A library that there is not keeps the server from starting, or each session, or what it is for. */
static void
check_libraries(const Change *change)
{
	const bool	moved = pg_strcasecmp(change->setting, "dynamic_library_path") == 0;
	const char *path = NULL;

	for (int i = 0; i < lengthof(library_settings); i++)
	{
		const LibrarySetting *setting = &library_settings[i];
		const char *value;
		List	   *names;
		ListCell   *cell;

		if (!(moved && !setting->folder) && pg_strcasecmp(change->setting, setting->name) != 0)
			continue;
		value = text_coming(change, setting->name, "");
		if (!path)
			path = text_coming(change, "dynamic_library_path", "$libdir");
		if (!setting->is_list)
			names = *value ? list_make1(pstrdup(value)) : NIL;
		else if (!SplitDirectoriesString(pstrdup(value), ',', &names))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid list syntax in parameter \"%s\"", setting->name),
					 errhint("Separate the names with commas; double quotes are for names with commas and spaces.")));
		foreach(cell, names)
			check_library(change, setting, lfirst(cell), path);
	}
	/* from then on the functions of this extension are looked for there, too */
	if (moved && PGSCALE_LIBDIR_SEARCHED && !is_library("pgscale", path))
		start_refuse(change, "The library of pgscale's own functions would not be found.");
}

/* Sets up that many queues, and removes them: returns 0, or the error's number. */
static int
try_queues(int64 n, unsigned int entries)
{
	int		   *queues = palloc_extended(n * sizeof(int), MCXT_ALLOC_HUGE);
	int64		made = 0;
	int			error = 0;

	while (made < n && error == 0 && !QueryCancelPending && !ProcDiePending)
	{
		char		parameters[512] = {0};	/* the kernel's have 120 bytes */

		queues[made] = (int) syscall(SYS_io_uring_setup, entries, parameters);
		if (queues[made] >= 0)
			made++;
		else
			error = errno;
	}
	while (made > 0)
		(void) close(queues[--made]);
	pfree(queues);
	CHECK_FOR_INTERRUPTS();
	return error;
}

/* So many processes have a queue, at least. */
static const char *const queue_owners[] = {"max_connections", "max_worker_processes", "max_wal_senders", "autovacuum_worker_slots"};

/* Each process has a queue, which the postmaster sets up at its start. */
static void
check_io_uring(const Change *change)
{
	struct rlimit limit;
	int64		n = 0;
	int64		had = 0;
	int64		entries;
	int			error;

	if (pg_strcasecmp(text_coming(change, "io_method", ""), "io_uring") != 0)
		return;
	for (int i = 0; i < lengthof(queue_owners); i++)
	{
		n += number_coming(change, queue_owners[i]);
		had += number_now(queue_owners[i]);
	}
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && n > (int64) limit.rlim_cur)
		start_refuse(change, psprintf("\"io_method\" would be io_uring: that takes more than " INT64_FORMAT " open files, and the limit is " INT64_FORMAT ".",
									  n, (int64) limit.rlim_cur));
	/* a server that has them needs only more */
	if (pg_strcasecmp(GetConfigOption("io_method", false, false), "io_uring") == 0)
		n -= had;
	if (n <= 0)
		return;
	entries = number_coming(change, "io_max_concurrency");
	if (entries < 0)			/* by the server's formula */
		entries = Min(Max(number_coming(change, "shared_buffers") / n, 1), 64);
	error = try_queues(n, entries);
	if (error != 0 && error != EMFILE)
		start_refuse(change, psprintf("\"io_method\" would be io_uring, and the kernel does not set up the queues: %s.", strerror(error)));
}

/*
 * Has the disk of pg_wal the room that it may then take?  The server ends when that disk is full, and does
 * not start before there is room.
 */
static void
check_wal_disk(const Change *change)
{
	const double room = pgscale_wal_disk_room();
	double		needs;

	needs = (double) number_coming(change, change->setting) * PGSCALE_MB;
	if (number_coming(change, change->setting) <= number_now(change->setting) || needs <= PGSCALE_WAL_DISK_TAKEN * room)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_DISK_FULL),
			 errmsg("with \"%s\" set to %s the disk of pg_wal could become full", change->setting, pgscale_text_bytes(needs)),
			 errdetail("That disk has room for %s of WAL, including the WAL that is there now, and pg_wal takes more than \"%s\" while a checkpoint is late. "
					   "The server stops when the disk is full.", pgscale_text_bytes(room), change->setting),
			 errhint("Up to %s fits, if nothing else grows there; %s skips this check.",
					 pgscale_text_bytes(PGSCALE_WAL_DISK_TAKEN * room), change->force)));
}

/* Patroni fails over to the standbys that it has put there: it would not know of another one, or of none. */
static void
check_patroni(const Change *change)
{
	if (!pgscale_node_has_patroni())
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("Patroni manages \"%s\"", change->setting),
			 errdetail("Patroni would fail over to a standby that commits no longer wait for."),
			 errhint("Change synchronous_mode by patronictl edit-config; %s skips this check.", change->force)));
}

/* What standbys must have as well; whether they do is not known here. */
static void
notify_standbys(const Change *change)
{
	const int64 value = number_coming(change, change->setting);

	if (value > number_now(change->setting) &&
		pgscale_tuning_journal_number("SELECT count(*) FROM pg_stat_replication r WHERE state IN ('streaming', 'catchup') AND NOT EXISTS"
									  " (SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical')", NULL) > 0)
		ereport(NOTICE,
				(errmsg("a standby on which \"%s\" is less than " INT64_FORMAT " stops replaying, and does not "
						"start again",
						change->setting, value),
				 errhint("Set it on the standbys and restart them, before this server is restarted.")));
}

/* The checks, and the settings that each is about; none: it sees to that itself. */
static const struct
{
	void		(*check) (const Change *change);
	const char *settings[8];
}			checks[] = {
	{check_libraries},
	{check_server},
	{check_wal_level, {"wal_level"}},
	{check_room},
	{check_sockets, {"unix_socket_directories", "unix_socket_group", "port"}},
	{check_log, {"logging_collector", "log_directory"}},
	{check_io_uring, {
			"io_method", "io_max_concurrency", "max_connections", "max_worker_processes", "max_wal_senders",
			"autovacuum_worker_slots", "shared_buffers"
	}},
	{check_wal_disk, {"max_wal_size", "min_wal_size", "wal_keep_size"}},
	{check_patroni, {"synchronous_standby_names"}},
	{notify_standbys, {
			"max_connections", "max_worker_processes", "max_wal_senders", "max_prepared_transactions", "max_locks_per_transaction"
	}},
};

void
pgscale_tuning_start_check(const char *setting, const char *value, const char *force)
{
	Change		change = {setting, value, force};

	for (int i = 0; i < lengthof(checks); i++)
	{
		const char *const *about = checks[i].settings;

		while (*about && pg_strcasecmp(*about, setting) != 0)
			about++;
		if (*about || !checks[i].settings[0])
			checks[i].check(&change);
	}
}
