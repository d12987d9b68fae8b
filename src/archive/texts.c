/*-------------------------------------------------------------------------
 *
 * texts.c
 *	  What of other databases' texts and of settings may be archived.
 *
 * Names and queries come from all databases, each in its own encoding, as bytes.
 * Bytes that are no text in the archive's encoding would make an error of any
 * later function that reads them: they are replaced.
 *
 * A setting that only superusers may see can hold a password, and so can a
 * command or a connection string that everybody may see.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/guc_tables.h"

#include "archive/archive.h"
#include "base/pg_compat.h"

PG_FUNCTION_INFO_V1(pgscale_archive_clean_text);
PG_FUNCTION_INFO_V1(pgscale_archive_hides_setting);

/*
 * pgscale.archive_clean_text(value, encoding): the text, which is of a database of that encoding, with
 * a question mark for each byte that may be no character here.
 */
Datum
pgscale_archive_clean_text(PG_FUNCTION_ARGS)
{
	text	   *value = PG_GETARG_TEXT_P_COPY(0);
	char	   *bytes = VARDATA(value);
	const int	length = VARSIZE(value) - VARHDRSZ;

	if (PG_GETARG_INT32(1) == GetDatabaseEncoding() &&
		pg_verify_mbstr(GetDatabaseEncoding(), bytes, length, true))
		PG_RETURN_TEXT_P(value);
	for (int i = 0; i < length; i++)
		if (IS_HIGHBIT_SET(bytes[i]) || bytes[i] == '\0')
			bytes[i] = '?';
	PG_RETURN_TEXT_P(value);
}

/* pgscale.archive_hides_setting(name): whether its value may be a secret */
Datum
pgscale_archive_hides_setting(PG_FUNCTION_ARGS)
{
	static const char *const telling[] = {"command", "conninfo", "password", "passphrase", "secret", "token", "_key"};
	const char *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	const struct config_generic *setting = pgscale_compat_find_setting(name);

	if (!setting || (setting->flags & GUC_SUPERUSER_ONLY) != 0)
		PG_RETURN_BOOL(true);
	for (int i = 0; i < lengthof(telling); i++)
		if (strstr(name, telling[i]))
			PG_RETURN_BOOL(true);
	PG_RETURN_BOOL(false);
}
