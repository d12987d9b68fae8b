/*-------------------------------------------------------------------------
 *
 * sampler_files.c
 *	  Common code of the files that keep the sampler's data over a restart
 *	  (base/saved_file.c).
 *
 * The postmaster reads and removes such a file at start.  When it writes one, it takes
 * the contents of shared memory if no change of it is in progress.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "base/pg_compat.h"
#include "base/wait_events.h"
#include "sampler/sampler_files.h"
#include "sampler/worker_types.h"

void
pgscale_sampler_file_not_kept(const char *what)
{
	ereport(LOG,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("%s is not kept over the restart", what),
			 errdetail("The sampler ended in the middle of a change, or there is no memory.")));
}

bool
pgscale_sampler_file_knows_event(uint32 wait_event)
{
	const char *type;
	const char *name;

	/* The server has names for all of what is durable. */
	wait_event = pgscale_wait_event_durable(wait_event);
	type = pgscale_wait_event_type(wait_event);
	name = pgscale_wait_event_name(wait_event);
	return type != NULL && name != NULL && strcmp(type, "???") != 0 &&
		strcmp(name, "???") != 0 && strcmp(name, "unknown wait event") != 0;
}

bool
pgscale_sampler_file_knows_kind(PgscaleProcKind kind, uint32 ntypes)
{
	return kind < BACKEND_NUM_TYPES || kind == PGSCALE_PROC_PARALLEL ||
		(kind >= PGSCALE_PROC_FIRST_TYPE && kind - PGSCALE_PROC_FIRST_TYPE < ntypes);
}

bool
pgscale_sampler_file_knows_types(const PgscaleSamplerTypeName * types, uint32 ntypes)
{
	for (uint32 i = 0; i < ntypes; i++)
		if (types[i][0] == '\0' || memchr(types[i], '\0', BGW_MAXLEN) == NULL)
			return false;
	return true;
}

bool
pgscale_sampler_file_is_ascii(const char *text)
{
	for (const char *c = text; *c; c++)
		if (*c < ' ' || *c > '~')
			return false;
	return true;
}

/* Of names that need not be text here none is taken. */
void
pgscale_sampler_file_kinds(const PgscaleSamplerTypeName * types, uint32 ntypes, PgscaleProcKind *kinds)
{
	for (uint32 i = 0; i < ntypes; i++)
		kinds[i] = pgscale_sampler_file_is_ascii(types[i]) ? pgscale_sampler_type_kind(types[i]) : (PgscaleProcKind) B_BG_WORKER;
}
