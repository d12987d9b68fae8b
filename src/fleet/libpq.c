/*-------------------------------------------------------------------------
 *
 * libpq.c
 *	  The server's own libpq.
 *
 * The server brings it along for its walreceiver, in a module that is there in
 * every installation.  So pgscale is not linked with it, which would bring libpq and
 * all that it needs into the postmaster; it is loaded by the sessions that ask other
 * nodes.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dlfcn.h>

#include "fmgr.h"

#include "fleet/libpq.h"

#define WALRECEIVER		"libpqwalreceiver"

static const struct
{
	const char *name;
	size_t		offset;
}			functions[] =

{
#define FUNCTION(name)	{"PQ" #name, offsetof(PgscaleFleetLibpq, name)}
	FUNCTION(connectStartParams),
	FUNCTION(connectPoll),
	FUNCTION(status),
	FUNCTION(socket),
	FUNCTION(finish),
	FUNCTION(errorMessage),
	FUNCTION(connectionUsedPassword),
	FUNCTION(setnonblocking),
	FUNCTION(setNoticeReceiver),
	FUNCTION(sendQuery),
	FUNCTION(setSingleRowMode),
	FUNCTION(flush),
	FUNCTION(consumeInput),
	FUNCTION(isBusy),
	FUNCTION(getResult),
	FUNCTION(resultStatus),
	FUNCTION(resultErrorField),
	FUNCTION(resultErrorMessage),
	FUNCTION(ntuples),
	FUNCTION(nfields),
	FUNCTION(fformat),
	FUNCTION(getvalue),
	FUNCTION(getlength),
	FUNCTION(getisnull),
	FUNCTION(clear),
	FUNCTION(conninfoParse),
	FUNCTION(conninfoFree),
	FUNCTION(freemem),
};

const PgscaleFleetLibpq *
pgscale_fleet_libpq(void)
{
	static PgscaleFleetLibpq libpq;
	static bool found = false;

	if (found)
		return &libpq;

	/* With it come the libraries that it is linked with, for all to see. */
	load_file(WALRECEIVER, false);
	for (int i = 0; i < lengthof(functions); i++)
	{
		void	   *function = dlsym(RTLD_DEFAULT, functions[i].name);

		if (function == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("libpq has no function %s", functions[i].name),
					 errhint("Install the libpq that the server's module %s was built with.", WALRECEIVER)));
		memcpy((char *) &libpq + functions[i].offset, &function, sizeof(function));
	}
	found = true;
	return &libpq;
}
