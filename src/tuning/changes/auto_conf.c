/*-------------------------------------------------------------------------
 *
 * auto_conf.c
 *	  The lines of postgresql.auto.conf, and how one of them is changed.
 *
 * The file is read by the server's own parser and written by its own ALTER SYSTEM,
 * which checks the value and the user's privilege, writes a new file, and renames it
 * over the old one.  If it fails before that, the old file is unchanged.  The steps
 * after it, which make the new file survive a crash, can fail, too.  So after an error
 * the file is read again.
 *
 * A value is passed as a numeric constant, which the grammar keeps as text: it is the
 * only kind of constant that is copied to the file unchanged.  A string would be quoted
 * as one name where a setting is a list of names (GUC_LIST_QUOTE).  Split and quoted
 * again, it might differ from the old line: a person may have written "search_path =
 * 'Public, pg_temp'", of which the first name is "public".
 *
 * Only under AutoFileLock, which ALTER SYSTEM takes itself, is it certain that no other
 * session changes the line meanwhile.  Between reading and writing the file, ALTER
 * SYSTEM calls the object access hook.  There the file is read once more, and an error
 * is raised if the line has changed.  Only an editor, which does not take the lock, can
 * still come in between.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "catalog/objectaccess.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_parameter_acl.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "nodes/pg_list.h"
#include "storage/fd.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/memutils.h"

#include "base/pg_compat.h"
#include "base/secrets.h"
#include "tuning/changes/changes.h"

/* Values of more than so much are shown shortened. */
#define SHOWN	100

bool
pgscale_tuning_line_same(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

bool
pgscale_tuning_line_visible(const char *setting)
{
	struct config_generic *record = pgscale_compat_find_setting(setting);

	/* an unknown setting might be a secret */
	return (record && !(record->flags & GUC_SUPERUSER_ONLY)) ||
		has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_SETTINGS);
}

const char *
pgscale_tuning_line_shown(const char *setting, const char *value, const char *hidden)
{
	if (!value || (pgscale_tuning_line_visible(setting) && (superuser() || !pgscale_secret_setting(setting, value))))
		return value;
	return hidden;
}

const char *
pgscale_tuning_line_show(const char *setting, const char *value)
{
	if (!value)
		return "no line";
	if (!pgscale_tuning_line_shown(setting, value, NULL))
		return "another value";
	if (strlen(value) > SHOWN)
		return psprintf("\"%.*s...\"", pg_mbcliplen(value, strlen(value), SHOWN), value);
	return psprintf("\"%s\"", value);
}

/*
 * ALTER SYSTEM writes all lines anew.  One that an editor gave a newline, as \n,
 * it would break in two, and the server would not start any more.  And what the
 * file includes it would copy, and include it no more: no journal takes that back.
 */
static void
check_lines(const PgscaleTuningLines *lines)
{
	for (ConfigVariable *line = lines->head; line; line = line->next)
	{
		if (strcmp(line->filename, PG_AUTOCONF_FILENAME) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_CONFIG_FILE_ERROR),
					 errmsg("file \"%s\" includes file \"%s\"", PG_AUTOCONF_FILENAME, line->filename),
					 errdetail("Any ALTER SYSTEM would copy its lines and drop the include."),
					 errhint("Include it in postgresql.conf instead.")));
		if (strchr(line->value, '\n'))
			ereport(ERROR,
					(errcode(ERRCODE_CONFIG_FILE_ERROR),
					 errmsg("the value of \"%s\" in file \"%s\" has a newline", line->name, PG_AUTOCONF_FILENAME),
					 errdetail("Any ALTER SYSTEM would write that line so that it cannot be read."),
					 errhint("Remove that line by hand.")));
	}
}

void
pgscale_tuning_lines_read(PgscaleTuningLines *lines, bool look)
{
	ConfigVariable *tail = NULL;
	struct stat status;
	FILE	   *file;

	/*
	 * ALTER SYSTEM renames a new file over this one: over a link, whose
	 * target would then be forgotten.
	 */
	if (!look && lstat(PG_AUTOCONF_FILENAME, &status) == 0 && S_ISLNK(status.st_mode))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("file \"%s\" is a symbolic link", PG_AUTOCONF_FILENAME),
				 errdetail("Any ALTER SYSTEM would replace the link by a file of its own."),
				 errhint("Change the setting by the software that made the link, or replace the link by the file.")));
	file = AllocateFile(PG_AUTOCONF_FILENAME, "r");
	lines->head = NULL;
	lines->known = true;
	if (!file && errno == ENOENT)
		return;					/* as for the server: no line */
	if (!file && !look)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not open file \"%s\": %m", PG_AUTOCONF_FILENAME),
				 errhint("The operating system user that runs the server must be able to read the file.")));
	lines->known = file && ParseConfigFp(file, PG_AUTOCONF_FILENAME, 0, look ? DEBUG1 : LOG, &lines->head, &tail);
	if (file)
		FreeFile(file);
	if (look)
		return;
	if (!lines->known)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("could not parse contents of file \"%s\"", PG_AUTOCONF_FILENAME),
				 errhint("The server's log names the line.  Correct it by hand.")));
	check_lines(lines);
}

const char *
pgscale_tuning_line_of(const PgscaleTuningLines *lines, const char *setting)
{
	const char *value = NULL;

	for (ConfigVariable *line = lines->head; line; line = line->next)
		if (pg_strcasecmp(line->name, setting) == 0)
			value = line->value;
	return value;
}

/* Settings that name a file without which the server does not start, or does not do what is set. */
static const char *const files[] = {
	"hba_file", "ident_file", "ssl_cert_file", "ssl_key_file", "ssl_ca_file", "ssl_crl_file",
	"ssl_dh_params_file", "krb_server_keyfile", NULL
};

static void
check_file(const char *setting, const char *value)
{
	for (int i = 0; files[i]; i++)
		if (strcmp(setting, files[i]) == 0 && *value && access(value, R_OK) != 0)
		{
			const bool	missing = errno == ENOENT || errno == ENOTDIR;

			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not access file \"%s\" that \"%s\" would name: %m", value, setting),
					 missing ? errhint("Create the file first.")
					 : errhint("The operating system user that runs the server must be able to read the file.")));
		}
}

/* Would the server take this value from its files? */
static void
check_value(const struct config_generic *record, const char *value)
{
	MemoryContext context = CurrentMemoryContext;

	if (strchr(value, '\n'))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("parameter value for ALTER SYSTEM must not contain a newline"),
				 errhint("Lines of \"%s\" cannot be continued.", PG_AUTOCONF_FILENAME)));
	PG_TRY();
	{
		(void) set_config_option(record->name, value, PGC_POSTMASTER, PGC_S_FILE, GUC_ACTION_SET, false, ERROR, false);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		/* a cancel needs no hint */
		if (!error->hint && ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_OPERATOR_INTERVENTION)
			error->hint = pstrdup("pg_settings has its range, unit and values.");
		ReThrowError(error);
	}
	PG_END_TRY();
	check_file(record->name, value);
}

const char *
pgscale_tuning_line_check(const char *setting, const char *value)
{
	struct config_generic *record = pgscale_compat_find_setting(setting);
	const char *allowed = GetConfigOption("allow_alter_system", true, false);

	if (allowed && strcmp(allowed, "off") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("ALTER SYSTEM is not allowed in this environment"),
				 errhint("allow_alter_system is off: settings are changed by the software that manages this server.")));
	if (!record && value)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("unrecognized configuration parameter \"%s\"", setting),
				 errhint("pg_settings lists the parameters, those of a library after LOAD.")));

	/*
	 * the line of an unknown setting can still be removed: then the action
	 * decides
	 */
	if (!superuser() &&
		pg_parameter_aclcheck(record ? record->name : setting, GetUserId(), ACL_ALTER_SYSTEM) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to set parameter \"%s\"", record ? record->name : setting),
				 errhint("A superuser can GRANT ALTER SYSTEM ON PARAMETER.")));
	if (!record)
		return pstrdup(setting);
	if (record->context == PGC_INTERNAL || (record->flags & (GUC_DISALLOW_IN_FILE | GUC_DISALLOW_IN_AUTO_FILE)))
		ereport(ERROR,
				(errcode(ERRCODE_CANT_CHANGE_RUNTIME_PARAM),
				 errmsg("parameter \"%s\" cannot be changed", record->name),
				 errhint("ALTER SYSTEM cannot set it: it is fixed, or set elsewhere.")));
	if (value)
		check_value(record, value);
	return pstrdup(record->name);
}

bool
pgscale_tuning_line_valid(const char *setting, const char *value)
{
	return !value || !pgscale_compat_find_setting(setting) ||
		set_config_option(setting, value, PGC_POSTMASTER, PGC_S_FILE, GUC_ACTION_SET, false, DEBUG5, false) != 0;
}

/* What change_line() is about, for the hook. */
static const char *changing;
static const char *expected_line;
static object_access_hook_type_str next_hook;

/* ALTER SYSTEM has read the file, holds the lock, and is about to write. */
static void
before_write(ObjectAccessType access, Oid class, const char *name, int sub, void *arg)
{
	PgscaleTuningLines lines;
	const char *line;

	if (next_hook)
		next_hook(access, class, name, sub, arg);
	if (access != OAT_POST_ALTER || class != ParameterAclRelationId || !changing)
		return;
	pgscale_tuning_lines_read(&lines, false);
	line = pgscale_tuning_line_of(&lines, changing);
	if (!pgscale_tuning_line_same(line, expected_line))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"%s\" was changed by hand meanwhile: \"%s\" had %s and has %s",
						changing, PG_AUTOCONF_FILENAME, pgscale_tuning_line_show(changing, expected_line),
						pgscale_tuning_line_show(changing, line)),
				 errhint("Repeat the call if you still want the change.")));
}

/* Right after an error; the lock on the file is still held, if it was. */
static PgscaleTuningLineFate
fate_of(const char *setting, const char *expected, const char *value)
{
	PgscaleTuningLines lines;

	pgscale_tuning_lines_read(&lines, true);
	if (!lines.known)
		return PGSCALE_LINE_UNKNOWN;
	return pgscale_tuning_line_same(pgscale_tuning_line_of(&lines, setting), value) && !pgscale_tuning_line_same(expected, value)
		? PGSCALE_LINE_CHANGED : PGSCALE_LINE_KEPT;
}

/* The reason why the line was not changed, or not properly, as far as the error itself does not show it. */
static void
auto_conf_explain(ErrorData *error, PgscaleTuningLineFate fate)
{
	if (fate == PGSCALE_LINE_CHANGED)
	{
		error->detail = pstrdup("\"" PG_AUTOCONF_FILENAME "\" has the new line all the same,"
								" and so has the journal; but a crash of the machine may lose it.");
		error->hint = pstrdup("When the disk works again, set the value again, or revert the change in "
							  "pgscale.tuning_journal.");
	}
	else if (fate == PGSCALE_LINE_UNKNOWN)
	{
		error->detail = pstrdup("\"" PG_AUTOCONF_FILENAME "\" cannot be read, so it is unknown whether it was changed.");
		error->hint = pstrdup("The next change made in this database finds out, and pgscale.tuning_journal then "
							  "shows it.");
	}

	/*
	 * before 17, not even a line of a library that is not loaded can be
	 * removed
	 */
	else if (!error->hint)
		error->hint = pstrdup(error->sqlerrcode == ERRCODE_UNDEFINED_OBJECT
							  ? "LOAD the library that defines it first." : "Nothing was changed.");
}

void
pgscale_tuning_line_change(const char *setting, const char *expected, const char *value, volatile PgscaleTuningLineFate *fate)
{
	MemoryContext context = CurrentMemoryContext;
	AlterSystemStmt *statement = makeNode(AlterSystemStmt);

	*fate = PGSCALE_LINE_KEPT;
	statement->setstmt = makeNode(VariableSetStmt);
	statement->setstmt->name = pstrdup(setting);
	if (value)
	{
		A_Const    *constant = makeNode(A_Const);

		constant->val.fval.type = T_Float;
		constant->val.fval.fval = pstrdup(value);
		constant->location = -1;
		statement->setstmt->kind = VAR_SET_VALUE;
		statement->setstmt->args = list_make1(constant);
	}
	else
		statement->setstmt->kind = VAR_RESET;

	next_hook = object_access_hook_str;
	object_access_hook_str = before_write;
	changing = setting;
	expected_line = expected;
	PG_TRY();
	{
		AlterSystemSetConfigFile(statement);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		HOLD_INTERRUPTS();		/* the error has let go of them all */
		object_access_hook_str = next_hook;
		changing = NULL;
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		*fate = PGSCALE_LINE_UNKNOWN;	/* should reading it raise another */
		*fate = fate_of(setting, expected, value);
		auto_conf_explain(error, *fate);
		RESUME_INTERRUPTS();
		ReThrowError(error);
	}
	PG_END_TRY();
	object_access_hook_str = next_hook;
	changing = NULL;
}
