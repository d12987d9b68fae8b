/*-------------------------------------------------------------------------
 *
 * server_settings.c
 *	  The server's values of settings that a session can change for itself.
 *
 * A session knows only its own value: its reset value, too, depends on its role,
 * database and client.  So the postmaster stores the values when it starts, and each
 * worker without a database stores them after it has read the configuration.  All of
 * them store the same values, in any order.  A value is one atomic word, so no reader
 * sees half of it.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "utils/guc.h"

#include "base/server_settings.h"
#include "base/shared_area.h"

/* None has a value longer than a word. */
static const char *const names[] = {"backend_flush_after", "compute_query_id", "track_activities", "track_counts"};

static pg_atomic_uint64 *words = NULL;

void
pgscale_server_settings_store(void)
{
	for (int i = 0; i < lengthof(names); i++)
	{
		char	   *value = GetConfigOptionByName(names[i], NULL, false);
		uint64		word = 0;

		Assert(strlen(value) < sizeof(word));
		strlcpy((char *) &word, value, sizeof(word));
		pg_atomic_write_u64(&words[i], word);
		pfree(value);
	}
}

static void
server_settings_init(void)
{
	for (int i = 0; i < lengthof(names); i++)
		pg_atomic_init_u64(&words[i], 0);
	pgscale_server_settings_store();
}

const PgscaleArea pgscale_server_settings_area = {
	.name = "pgscale server settings",
	.at = (void **) &words,
	.size = lengthof(names) * sizeof(pg_atomic_uint64),
	.init = server_settings_init,
};

const char *
pgscale_server_setting(const char *name)
{
	for (int i = 0; i < lengthof(names); i++)
		if (words && strcmp(names[i], name) == 0)
		{
			const uint64 word = pg_atomic_read_u64(&words[i]);

			return pstrdup((const char *) &word);
		}
	return GetConfigOptionByName(name, NULL, false);
}
