/*-------------------------------------------------------------------------
 *
 * preload.c
 *	  Whether the library was loaded through shared_preload_libraries.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dlfcn.h>

#include "miscadmin.h"

#include "base/preload.h"

static bool preloaded = false;

/*
 * Before 16 a library shows all its functions, and the first one of a name is called by all
 * others.  So those of another file of pgscale would be called here, and rely on what is set up
 * only there.
 */
static void
refuse_second_file(void)
{
	bool		(*first_preloaded) (void) = (bool (*) (void)) dlsym(RTLD_DEFAULT, "pgscale_preload_done");

	if (!preloaded && first_preloaded && first_preloaded())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("another file of pgscale is loaded into the server"),
				 errhint("Write shared_preload_libraries = 'pgscale', without a folder, and restart the server.")));
}

bool
pgscale_preload_init(void)
{
	if (process_shared_preload_libraries_in_progress)
		preloaded = true;
	else
		refuse_second_file();
	return preloaded;
}

bool
pgscale_preload_done(void)
{
	return preloaded;
}

void
pgscale_preload_require(void)
{
	if (!preloaded)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pgscale is not loaded into the server"),
				 errhint("Add \"pgscale\" to shared_preload_libraries and restart the server.")));
}
