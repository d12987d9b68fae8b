/*
 * For a test: the name of each wait event of this major, by its number, as its type and its name. Those that extensions name are
 * left out.
 */
#include "postgres.h"

#include "fmgr.h"
#include "storage/lwlock.h"
#include "utils/builtins.h"
#include "utils/wait_event.h"

PG_MODULE_MAGIC;
PG_FUNCTION_INFO_V1(wait_event_of);

/* wait_event_of(class, number): NULL if there is none */
Datum
wait_event_of(PG_FUNCTION_ARGS)
{
	const uint32 class = PG_GETARG_INT32(0) << 24;
	const uint32 number = PG_GETARG_INT32(1);
	const char *type = pgstat_get_wait_event_type(class);
	const char *name;

	/* numbers of events that extensions name, which are not known by number only, and of the locks of libraries */
	if (class == PG_WAIT_EXTENSION || class > PG_WAIT_IO || (class == PG_WAIT_LWLOCK && number >= LWTRANCHE_FIRST_USER_DEFINED))
		PG_RETURN_NULL();
	name = pgstat_get_wait_event(class | number);
	if (!type || !name || strcmp(name, "unknown wait event") == 0 || strcmp(name, "???") == 0 || strncmp(name, "<unassigned", 11) == 0)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%s %s", type, name)));
}
