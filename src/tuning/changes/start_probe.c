/*-------------------------------------------------------------------------
 *
 * start_probe.c
 *	  Asks the server itself whether it would start, and how much shared memory it
 *	  would take.
 *
 * "postgres -C shared_memory_size" reads the configuration, refuses settings that do
 * not fit each other, loads the TLS files, adds up the sizes and ends.  It allocates
 * none of that memory, opens no socket and starts no process.  But it takes the lock
 * file of its data directory, which the running server holds.  So it gets a directory
 * of its own, with a copy of pg_control and the future postgresql.auto.conf.  That
 * directory is a temporary file of the server, which the next start removes at the
 * latest.
 *
 * It loads one library, pgscale's, from the file that is loaded here.  If it loaded
 * all, a role that may change one setting could run code at once.  So the size lacks
 * the parts of other libraries.
 *
 * It runs as the server's user, in some 20 ms.  Waiting for it can be cancelled and has
 * a limit, after which it is killed.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "common/file_utils.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"

#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/timer.h"
#include "base/units.h"
#include "tuning/changes/changes.h"

/* Limits of its time and of its output. */
#define LIMIT_MS	10000
#define ANSWER_MAX	2000

extern char **environ;

/* What must end, however this ends. */
typedef struct Probe
{
	char		folder[MAXPGPATH];
	bool		made;
	int			output;			/* -1: none */
	pid_t		pid;			/* 0: none */
} Probe;

static int
start_wait_for(pid_t pid)
{
	int			status = -1;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

static void
start_end(int code, Datum arg)
{
	Probe	   *probe = (Probe *) DatumGetPointer(arg);

	if (probe->pid != 0)
	{
		(void) kill(probe->pid, SIGKILL);
		(void) start_wait_for(probe->pid);
	}
	if (probe->output >= 0)
		(void) close(probe->output);
	if (probe->made)
		(void) rmtree(probe->folder, true);
}

static void
start_raise(const char *doing, const char *path)
{
	const bool	full = errno == ENOSPC || errno == EDQUOT;

	ereport(ERROR,
			(full ? errcode(ERRCODE_DISK_FULL) : errcode_for_file_access(),
			 errmsg("could not %s \"%s\": %m", doing, path),
			 full ? errhint("Free space on the disk of the data directory. pgscale checks there whether the server would start;"
							" force => true skips the check.")
			 : errhint("pgscale checks there whether the server would start; force => true skips the check.")));
}

static void
make_folder(const char *path)
{
	if (MakePGDirectory(path) != 0 && errno != EEXIST)
		start_raise("create directory", path);
}

static void
start_write(const char *path, const void *data, size_t size)
{
	FILE	   *file = AllocateFile(path, PG_BINARY_W);

	if (!file || fwrite(data, 1, size, file) != size || FreeFile(file) != 0)
		start_raise("write file", path);
}

/* The lock keeps writers away while it is read, and is not held while the copy is written. */
static void
start_copy_control(const char *path)
{
	char		data[PG_CONTROL_FILE_SIZE] = {0};
	bool		valid;

	LWLockAcquire(ControlFileLock, LW_SHARED);
	memcpy(data, get_controlfile(DataDir, &valid), sizeof(ControlFileData));
	LWLockRelease(ControlFileLock);
	start_write(path, data, sizeof(data));
}

static void
add_line(StringInfo text, const char *name, const char *value)
{
	appendStringInfo(text, "%s = '", name);
	for (; *value; value++)
	{
		if (SQL_STR_DOUBLE(*value, true))
			appendStringInfoChar(text, *value);
		appendStringInfoChar(text, *value);
	}
	appendStringInfoString(text, "'\n");
}

/* postgresql.auto.conf with the change, if there is one. */
static const char *
start_lines(const char *setting, const char *value)
{
	PgscaleTuningLines lines;
	StringInfoData text;

	initStringInfo(&text);
	pgscale_tuning_lines_read(&lines, false);
	for (ConfigVariable *line = lines.head; line; line = line->next)
		if (!setting || pg_strcasecmp(line->name, setting) != 0)
			add_line(&text, line->name, line->value);
	if (setting && value)
		add_line(&text, setting, value);
	return text.data;
}

static void
start_prepare(Probe *probe, const char *lines)
{
	const char *version = psprintf("%d\n", PGSCALE_MAJOR_NUMBER);

	make_folder("base/" PG_TEMP_FILES_DIR);
	snprintf(probe->folder, MAXPGPATH, "%s/base/%s/%s%d.start", DataDir, PG_TEMP_FILES_DIR, PG_TEMP_FILE_PREFIX, MyProcPid);
	if (access(probe->folder, F_OK) == 0)	/* of a process that crashed and
											 * had this pid */
		(void) rmtree(probe->folder, true);
	make_folder(probe->folder);
	probe->made = true;
	make_folder(psprintf("%s/global", probe->folder));
	start_write(psprintf("%s/PG_VERSION", probe->folder), version, strlen(version));
	start_copy_control(psprintf("%s/global/pg_control", probe->folder));
	start_write(psprintf("%s/%s", probe->folder, PG_AUTOCONF_FILENAME), lines, strlen(lines));
}

/* What the running server's command line sets, it will set again. */
static void
start_add_argument(const char *name, void *options)
{
	const struct config_generic *record = pgscale_compat_find_setting(name);

	if (record->reset_source == PGC_S_ARGV && (record->context == PGC_POSTMASTER || record->context == PGC_SIGHUP))
		*(List **) options = lappend(*(List **) options, psprintf("%s=%s", name, GetConfigOption(name, false, false)));
}

static char **
start_arguments(const Probe *probe, List *more)
{
	static const char *const fixed[] = {"log_destination=stderr", "log_line_prefix=", "lc_messages=C"};
	List	   *options = NIL;
	Dl_info		own;
	char	  **argv;
	int			n = 0;
	ListCell   *cell;

	pgscale_compat_each_setting(start_add_argument, &options);
	for (int i = 0; i < lengthof(fixed); i++)
		options = lappend(options, pstrdup(fixed[i]));
	options = lappend(options, psprintf("config_file=%s", ConfigFileName));
	options = lappend(options, psprintf("data_directory=%s", probe->folder));
	options = lappend(options, pgscale_preload_done() && dladdr((void *) pgscale_preload_require, &own) != 0
					  ? psprintf("shared_preload_libraries=\"%s\"", own.dli_fname) : pstrdup("shared_preload_libraries="));
	options = list_concat(options, more);

	argv = palloc0((2 * list_length(options) + 4) * sizeof(char *));
	argv[n++] = pstrdup(my_exec_path);
	argv[n++] = pstrdup("-Cshared_memory_size");
	argv[n++] = psprintf("-D%s", probe->folder);
	foreach(cell, options)
	{
		argv[n++] = pstrdup("-c");
		argv[n++] = lfirst(cell);
	}
	return argv;
}

/* Returns 0, or an error's number. */
static int
start_spawn(Probe *probe, char **argv)
{
	posix_spawn_file_actions_t actions;
	int			pipes[2];
	int			error;

	if (pipe2(pipes, O_CLOEXEC) != 0)
		return errno;
	probe->output = pipes[0];
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, pipes[1], STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&actions, pipes[1], STDERR_FILENO);
	error = posix_spawn(&probe->pid, argv[0], &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	(void) close(pipes[1]);
	if (error != 0)
		probe->pid = 0;
	return error;
}

/* All that it says, until it ends; false: it takes too long. */
static bool
start_listen(const Probe *probe, StringInfo answer)
{
	const int64 limit = pgscale_timer_clock() + LIMIT_MS * NS_PER_MS;

	for (;;)
	{
		const int64 left = limit - pgscale_timer_clock();
		char		part[512];
		ssize_t		n;
		int			events;

		if (left <= 0)
			return false;
		events = WaitLatchOrSocket(MyLatch, WL_LATCH_SET | WL_SOCKET_READABLE | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
								   probe->output, left / NS_PER_MS + 1, PG_WAIT_EXTENSION);
		if (events & WL_LATCH_SET)
		{
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
		}
		if (!(events & WL_SOCKET_READABLE))
			continue;
		n = read(probe->output, part, sizeof(part));
		if (n == 0 || (n < 0 && errno != EINTR))
			return true;
		if (n > 0 && answer->len < ANSWER_MAX)
			appendBinaryStringInfo(answer, part, n);
	}
}

static void
start_understand(PgscaleTuningStart *start, int status, StringInfo answer)
{
	const char *last;

	while (answer->len > 0 && answer->data[answer->len - 1] == '\n')
		answer->data[--answer->len] = '\0';
	last = strrchr(answer->data, '\n');
	last = last ? last + 1 : answer->data;
	start->known = WIFEXITED(status);
	start->starts = start->known && WEXITSTATUS(status) == 0;
	start->shared_memory = strtoll(last, NULL, 10) * PGSCALE_MB;
	if (WIFSIGNALED(status))
		start->says = psprintf("\"%s\" was terminated by signal %d", my_exec_path, WTERMSIG(status));
	else
		start->says = pg_verifymbstr(answer->data, answer->len, true) ? answer->data : "an error whose text is not in this database's encoding";
}

void
pgscale_tuning_start_probe(const char *setting, const char *value, List *options, PgscaleTuningStart *start)
{
	Probe		probe = {.output = -1};
	StringInfoData answer;
	const char *lines = start_lines(setting, value);

	memset(start, 0, sizeof(*start));
	initStringInfo(&answer);
	PG_ENSURE_ERROR_CLEANUP(start_end, PointerGetDatum(&probe));
	{
		int			error;

		start_prepare(&probe, lines);
		error = start_spawn(&probe, start_arguments(&probe, options));
		if (error != 0)
			start->says = psprintf("could not execute \"%s\": %s", my_exec_path, strerror(error));
		else if (!start_listen(&probe, &answer))
			start->says = psprintf("\"%s\" has not answered within %d s", my_exec_path, LIMIT_MS / 1000);
		else
		{
			const int	status = start_wait_for(probe.pid);

			probe.pid = 0;
			start_understand(start, status, &answer);
		}
	}
	PG_END_ENSURE_ERROR_CLEANUP(start_end, PointerGetDatum(&probe));
	start_end(0, PointerGetDatum(&probe));
}
