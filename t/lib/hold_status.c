/*
 * Stops a backend in the middle of a change of its status, for as long as a file is there, as a debugger or a frozen cgroup may.
 * Whoever reads pg_stat_activity waits for it meanwhile; so the file's time is bounded, and whether it was removed in time is the
 * answer.
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "fmgr.h"
#include "port/atomics.h"
#include "utils/backend_status.h"
#include "utils/builtins.h"

#define LIMIT_MS	30000

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(hold_status);

Datum
hold_status(PG_FUNCTION_ARGS)
{
	const char *file = text_to_cstring(PG_GETARG_TEXT_PP(0));
	volatile PgBackendStatus *status = MyBEEntry;

	status->st_changecount++;
	pg_memory_barrier();
	close(open(file, O_CREAT | O_WRONLY, 0600));
	for (int ms = 0; ms < LIMIT_MS && access(file, F_OK) == 0; ms++)
		pg_usleep(1000);
	pg_memory_barrier();
	status->st_changecount++;
	PG_RETURN_BOOL(access(file, F_OK) != 0);
}
