/*-------------------------------------------------------------------------
 *
 * start_check.c
 *	  Would the server start with a setting changed?
 *
 * ALTER SYSTEM looks at a value alone.  What keeps a server from starting is
 * mostly that it does not fit others, or the machine; and that is found out at
 * night.  So the values that the server would have at its next start are taken
 * from its files, and what the postmaster and recovery would make of them is made
 * of them here, for the settings that are concerned.
 *
 * Why not ask "postgres -C shared_memory_size"?  It refuses while the server runs,
 * as it takes the data directory's lock file; on a made-up directory it would run
 * what all preloaded libraries do when they are loaded, for anybody who may change
 * one setting; and it allocates nothing, so it would not find what is too large.
 *
 * Of shared memory only what a change adds is computed, and less rather than more
 * of it, to what the running server has.  Compared is that with the machine's
 * memory or the cgroup's.  More can be had where the kernel overcommits, and then
 * the server is killed once it has used it.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>
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

#include "base/kernel.h"
#include "base/own_table.h"
#include "base/pg_compat.h"
#include "base/units.h"
#include "tuning/changes/changes.h"

/* The least that the server's structures take of shared memory. */
#define BYTES_PER_BUFFER	(BLCKSZ + 140)	/* descriptor, mapping, lists */
#define BYTES_PER_LOCK		300
#define BYTES_PER_BACKEND	1000


static const PgscaleOwnTable journal = {"tuning_change", "tuning journal"};

/* The change that is looked at. */
typedef struct Change
{
	const char *setting;
	const char *value;
	const char *force;
} Change;

static bool
is_one_of(const char *setting, const char *const *names)
{
	for (; *names; names++)
		if (pg_strcasecmp(setting, *names) == 0)
			return true;
	return false;
}

static int64
ask_number(const char *query, const char *parameter)
{
	PgscaleParameters parameters = {0};
	int64		number;

	if (parameter)
		pgscale_own_add_text(&parameters, parameter);
	PushActiveSnapshot(GetTransactionSnapshot());
	pgscale_own_execute(&journal, query, &parameters, false);
	number = pgscale_own_bigint(0, 1);
	SPI_finish();
	PopActiveSnapshot();
	return number;
}

/* What the files have for a setting, without or with the change; NULL: nothing. */
static char *
in_files(const Change *change, const char *name)
{
	MemoryContext context = CurrentMemoryContext;
	PgscaleParameters parameters = {0};
	bool		changed = pg_strcasecmp(change->setting, name) == 0;
	char	   *value = NULL;

	if (changed && change->value)
		return pstrdup(change->value);
	pgscale_own_add_text(&parameters, name);
	pgscale_own_add(&parameters, BOOLOID, BoolGetDatum(changed));
	PushActiveSnapshot(GetTransactionSnapshot());
	if (pgscale_own_execute(&journal, "SELECT setting FROM pg_file_settings WHERE lower(name) = lower($1)"
							" AND NOT ($2 AND sourcefile ~ '(^|/)postgresql[.]auto[.]conf$') ORDER BY seqno DESC LIMIT 1",
							&parameters, false) == 1)
	{
		const char *text = pgscale_own_text(0, 1);

		value = text ? MemoryContextStrdup(context, text) : NULL;
	}
	SPI_finish();
	PopActiveSnapshot();
	return value;
}

/* A number as the server has it now, in the setting's unit; 0 if this major has not got it. */
static int64
start_running(const char *name)
{
	const struct config_generic *record = pgscale_compat_find_setting(name);

	if (!record)
		return 0;
	switch (record->vartype)
	{
		case PGC_BOOL:
			return *pgscale_compat_of_bool(record)->variable;
		case PGC_INT:
			return *pgscale_compat_of_int(record)->variable;
		case PGC_ENUM:
			return *pgscale_compat_of_enum(record)->variable;
		default:
			elog(ERROR, "setting \"%s\" is no number", name);
	}
}

/* As it will have it at its next start. */
static int64
start_coming(const Change *change, const char *name)
{
	struct config_generic *record = pgscale_compat_find_setting(name);
	char	   *text;
	bool		truth;
	int			number;

	if (!record || record->reset_source == PGC_S_ARGV)
		return start_running(name);
	text = in_files(change, name);

	switch (record->vartype)
	{
		case PGC_BOOL:
			return text &&parse_bool(text, &truth) ? truth : pgscale_compat_of_bool(record)->boot_val;

		case PGC_INT:
			return text &&parse_int(text, &number, record->flags, NULL) ? number : pgscale_compat_of_int(record)->boot_val;

		case PGC_ENUM:
			return text &&config_enum_lookup_by_name((struct config_enum *) pgscale_compat_of_enum(record), text, &number)
			?			number : pgscale_compat_of_enum(record)->boot_val;

		default:
			elog(ERROR, "setting \"%s\" is no number", name);
	}
}

static void
start_refuse(const Change *change, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 change->value ? errmsg("with \"%s\" set to %s the server would not start again", change->setting, change->value)
			 : errmsg("without the line of \"%s\" the server would not start again", change->setting),
			 errdetail("%s", detail),
			 errhint("Change first what it depends on; %s does it all the same.", change->force)));
}

static const char *const connections[] = {
	"max_connections", "superuser_reserved_connections", "reserved_connections", NULL
};

static void
check_reserved(const Change *change)
{
	int64		reserved;
	int64		all;

	if (!is_one_of(change->setting, connections))
		return;
	reserved = start_coming(change, "superuser_reserved_connections") + start_coming(change, "reserved_connections");
	all = start_coming(change, "max_connections");
	if (reserved >= all)
		start_refuse(change, psprintf(INT64_FORMAT " connections would be reserved, of " INT64_FORMAT " in all.", reserved, all));
}

static const char *const wal[] = {"wal_level", "max_wal_senders", "archive_mode", "summarize_wal", NULL};

static void
check_wal(const Change *change)
{
	int64		level;

	if (!is_one_of(change->setting, wal))
		return;
	level = start_coming(change, "wal_level");
	if (level == WAL_LEVEL_MINIMAL)
	{
		static const char *const needs[] = {"max_wal_senders", "archive_mode", "summarize_wal"};

		for (int i = 0; i < lengthof(needs); i++)
			if (start_coming(change, needs[i]) > 0)
				start_refuse(change, psprintf("\"%s\" would be on, and \"wal_level\" minimal, which has too little for it.", needs[i]));
		if (ask_number("SELECT count(*) FROM pg_replication_slots", NULL) > 0)
			start_refuse(change, "There are replication slots, which need more than a minimal \"wal_level\".");
	}
	else if (level < WAL_LEVEL_LOGICAL &&
			 ask_number("SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'logical'", NULL) > 0)
		start_refuse(change, "There are logical replication slots, which need a logical \"wal_level\".");
}

/* What is kept from one start to the next, and must have room. */
static void
start_check_room(const Change *change)
{
	static const struct
	{
		const char *setting;
		const char *query;
		const char *what;
	}			kept[] =
	{
		{
			"max_replication_slots", "SELECT count(*) FROM pg_replication_slots", "replication slots"
		},
		{
			"max_prepared_transactions", "SELECT count(*) FROM pg_prepared_xacts", "prepared transactions"
		},
	};

	for (int i = 0; i < lengthof(kept); i++)
		if (pg_strcasecmp(change->setting, kept[i].setting) == 0)
		{
			int64		n = ask_number(kept[i].query, NULL);

			if (start_coming(change, kept[i].setting) < n)
				start_refuse(change, psprintf("There are " INT64_FORMAT " %s.", n, kept[i].what));
		}
}

/* Of shared memory, what depends on these settings, at least. */
static const char *const sizes[] = {
	"shared_buffers", "wal_buffers", "max_connections", "max_worker_processes", "max_wal_senders", "max_prepared_transactions",
	"max_locks_per_transaction", "min_dynamic_shared_memory", "huge_pages", NULL
};

static double
start_bytes_of(int64 (*value) (const Change *, const char *), const Change *change)
{
	double		backends = value(change, "max_connections") + value(change, "max_worker_processes") +
		value(change, "max_wal_senders") + value(change, "max_prepared_transactions");

	return (double) value(change, "shared_buffers") * BYTES_PER_BUFFER +
		(double) Max(value(change, "wal_buffers"), 0) * XLOG_BLCKSZ +
		backends * (BYTES_PER_BACKEND + (double) value(change, "max_locks_per_transaction") * BYTES_PER_LOCK) +
		(double) value(change, "min_dynamic_shared_memory") * PGSCALE_MB;
}

static int64
running_of(const Change *change, const char *name)
{
	return start_running(name);
}

static char *
pretty_bytes(double bytes)
{
	return bytes < 10.0 * 1024 * PGSCALE_MB ? psprintf("%.0f MB", bytes / PGSCALE_MB) : psprintf("%.0f GB", bytes / PGSCALE_MB / 1024);
}

static void
check_memory(const Change *change)
{
	double		has = (double) start_running("shared_memory_size") * PGSCALE_MB;
	double		needs;
	int64		ram = pgscale_kernel_ram();
	char		mode[8];

	if (!is_one_of(change->setting, sizes))
		return;
	/* one that takes less than the running server is not in question */
	needs = has + start_bytes_of(start_coming, change) - start_bytes_of(running_of, change);
	if (needs > has && ram > 0 && needs > ram)
		start_refuse(change, psprintf("It would take %s of shared memory, and there are %s of memory for it.",
									  pretty_bytes(needs), pretty_bytes(ram)));
	if (needs > has && pgscale_kernel_setting("/proc/sys/vm/overcommit_memory", mode, sizeof(mode)) && mode[0] == '2')
	{
		int64		limit = pgscale_kernel_meminfo("CommitLimit:");
		int64		committed = pgscale_kernel_meminfo("Committed_AS:");

		if (limit >= 0 && committed >= 0 && needs - has > limit - committed)
			start_refuse(change, psprintf("It would take %s more of shared memory, and the kernel, with vm.overcommit_memory = 2, gives %s.",
										  pretty_bytes(needs - has), pretty_bytes(Max(limit - committed, 0))));
	}
	if (start_coming(change, "huge_pages") == HUGE_PAGES_ON && start_coming(change, "huge_page_size") == 0)
	{
		int64		pages = pgscale_kernel_meminfo("HugePages_Total:") / 1024;	/* it has no unit */
		int64		size = pgscale_kernel_meminfo("Hugepagesize:");
		char		surplus[32] = "0";

		(void) pgscale_kernel_setting("/proc/sys/vm/nr_overcommit_hugepages", surplus, sizeof(surplus));
		pages += strtoll(surplus, NULL, 10);
		if (pages >= 0 && size > 0 && needs > (double) pages * size)
			start_refuse(change, psprintf("\"huge_pages\" would be on: that takes %.0f pages of %s, and the kernel has " INT64_FORMAT ".",
										  needs / size, pretty_bytes(size), pages));
	}
}

static const char *const files[] = {"ssl", "ssl_cert_file", "ssl_key_file", NULL};

static void
check_ssl(const Change *change)
{
	struct stat status;
	const char *key;

	if (!is_one_of(change->setting, files) || !start_coming(change, "ssl"))
		return;
	for (int i = 1; files[i]; i++)
	{
		const char *path = in_files(change, files[i]);

		if (!path)
			path = i == 1 ? "server.crt" : "server.key";
		if (access(path, R_OK) != 0)
			start_refuse(change, psprintf("\"ssl\" would be on, and file \"%s\" cannot be read.", path));
	}
	key = in_files(change, "ssl_key_file");
	if (stat(key ? key : "server.key", &status) == 0 && status.st_uid == geteuid() && (status.st_mode & (S_IRWXG | S_IRWXO)))
		start_refuse(change, "\"ssl\" would be on, and the file of the key has group or world access.");
}

static void
check_sockets(const Change *change)
{
	char	   *text;
	List	   *folders;
	ListCell   *cell;

	if (pg_strcasecmp(change->setting, "unix_socket_directories") != 0)
		return;
	text = in_files(change, change->setting);

	if (!text ||!SplitDirectoriesString(text, ',', &folders) || folders == NIL)
		return;
	foreach(cell, folders)
		if (*(char *) lfirst(cell) == '@' || access(lfirst(cell), W_OK | X_OK) == 0)
		return;
	start_refuse(change, "It names no folder in which the server can make a socket.");
}

static const char *const followed[] = {
	"max_connections", "max_worker_processes", "max_wal_senders", "max_prepared_transactions", "max_locks_per_transaction", NULL
};

/* What standbys must have as well; whether they do is not known here. */
static void
tell_standbys(const Change *change)
{
	int64		value;

	if (!is_one_of(change->setting, followed))
		return;
	value = start_coming(change, change->setting);
	if (value > start_running(change->setting) &&
		ask_number("SELECT count(*) FROM pg_stat_replication r WHERE state IN ('streaming', 'catchup') AND NOT EXISTS"
				   " (SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical')", NULL) > 0)
		ereport(NOTICE,
				(errmsg("a standby on which \"%s\" is less than " INT64_FORMAT " stops to replay, and does not start again",
						change->setting, value),
				 errhint("Set it on the standbys and restart them, before this server is restarted.")));
}

void
pgscale_tuning_start_check(const char *setting, const char *value, const char *force)
{
	Change		change = {setting, value, force};

	check_reserved(&change);
	check_wal(&change);
	start_check_room(&change);
	check_memory(&change);
	check_ssl(&change);
	check_sockets(&change);
	tell_standbys(&change);
}
