/*-------------------------------------------------------------------------
 *
 * procedures.c
 *	  The procedures that change settings; revert.c reverts a change.
 *
 * ALTER SYSTEM is not part of a transaction.  So the row of the journal, with the
 * present line of the setting, is committed and on disk before the file is touched, and
 * the result is committed after.  That needs procedures: they end transactions, and
 * cannot be called within one.
 *
 * Changes of all databases are serialized by a session lock on an object that exists in
 * none.  It is released at the end, and by the abort of any transaction that an error
 * ends.  All waiting, for that lock and for the row of the journal, happens before the
 * file is touched, and can be cancelled.  From then until the row is committed nothing
 * is waited for, and a cancel must wait.  So only a crash, or SIGKILL, can separate the
 * two: journal.c.
 *
 * Statements on the journal run as its owner.  ALTER SYSTEM and the reload run with the
 * caller's privileges.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_parameter_acl.h"
#include "catalog/pg_type_d.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/lsyscache.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/extension_table.h"
#include "base/node_name.h"
#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/sql.h"
#include "base/subtransaction.h"
#include "tuning/changes/auto_conf.h"
#include "tuning/changes/changes.h"
#include "tuning/changes/journal.h"
#include "tuning/rules/rule_table.h"

PG_FUNCTION_INFO_V1(pgscale_tuning_set);
PG_FUNCTION_INFO_V1(pgscale_tuning_apply);
PG_FUNCTION_INFO_V1(pgscale_tuning_apply_all);

/* No object has this identifier; among those of the settings' privileges. */
#define LOCK_CLASS		ParameterAclRelationId
#define LOCK_OBJECT		InvalidOid
#define LOCK_SUB		1

/* Advice is asked for of so much evidence. */
#define EVIDENCE_MS		(10 * 60 * 1000)

/*
 * The file belongs to this server only, so the journal does not wait for a standby,
 * which may be missing: a cancel of that wait ends only the wait, and the change would
 * still be made.
 */
static void
wait_for_no_standby(void)
{
	(void) set_config_option("synchronous_commit", "local", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
}

/*
 * Ends the transaction and begins the next.  On disk whatever synchronous_commit
 * is, and with READ COMMITTED whatever is the default: what was committed while a
 * lock was waited for must be seen.
 */
static void
next_transaction(void)
{
	ForceSyncCommit();
	SPI_commit();
	XactIsoLevel = XACT_READ_COMMITTED;
	wait_for_no_standby();
}

static void
check_reload(void)
{
	bool		isnull;
	bool		may;

	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_execute("SELECT pg_catalog.has_function_privilege('pg_catalog.pg_reload_conf()'::pg_catalog.text, 'EXECUTE'::pg_catalog.text)",
				true, 0);
	may = DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	PopActiveSnapshot();
	if (!may)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to reload the configuration"),
				 errhint("A superuser can GRANT EXECUTE ON FUNCTION pg_reload_conf().")));
}

/*
 * Before anything else.  Leaves a connection to SPI, whose memory holds what is
 * needed until the end.
 */
void
pgscale_tuning_change_begin(FunctionCallInfo fcinfo, const char *procedure, bool reload)
{
	CallContext *context = castNode(CallContext, fcinfo->context);

	if (context->atomic || IsSubTransaction())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s() cannot run inside a transaction block", procedure),
				 errdetail("The old value must be committed before it is changed."),
				 errhint("CALL it on its own, after COMMIT.")));
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("%s() cannot run on a standby", procedure),
				 errdetail("Its journal is the primary's, and cannot be written here."),
				 errhint("Use ALTER SYSTEM here, or tune the primary.")));
	if (XactReadOnly)
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("%s() cannot run in a read-only transaction", procedure),
				 errhint("SET default_transaction_read_only = off.")));
	wait_for_no_standby();
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	if (reload)
		check_reload();
}

/* From now on there are no other changes, in any database. */
void
pgscale_tuning_change_lock(void)
{
	LockSharedObjectForSession(LOCK_CLASS, LOCK_OBJECT, LOCK_SUB, ExclusiveLock);
	/* sees what the last one to hold it has done */
	next_transaction();
	pgscale_tuning_journal_reconcile();
	next_transaction();
}

static void
end_call(void)
{
	UnlockSharedObjectForSession(LOCK_CLASS, LOCK_OBJECT, LOCK_SUB, ExclusiveLock);
	SPI_commit();				/* the caller goes on with the default
								 * isolation */
	SPI_finish();
}

/* Reads the line that the setting has, and what it is judged by. */
void
pgscale_tuning_change_remember(PgscaleTuningChange *change)
{
	PgscaleTuningLines lines;
	const char *line;

	pgscale_tuning_lines_read(&lines, false);
	line = pgscale_tuning_line_of(&lines, change->setting);
	if (line && !pg_verifymbstr(line, strlen(line), true))
		ereport(ERROR,
				(errcode(ERRCODE_CHARACTER_NOT_IN_REPERTOIRE),
				 errmsg("the value of \"%s\" in file \"%s\" is not valid in this database's encoding",
						change->setting, PG_AUTOCONF_FILENAME),
				 errhint("Change it with ALTER SYSTEM, or from a database that has its encoding.")));
	change->old_value = line ? pstrdup(line) : NULL;
	pgscale_tuning_verify_remember(change);
}

/* Changes the line; NULL, or the error that it was, with what has become of the line. */
static ErrorData *
change_act(const PgscaleTuningChange *change, volatile PgscaleTuningLineFate *fate)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		pgscale_tuning_line_change(change->setting, change->old_value, change->new_value, fate);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		/*
		 * Whichever it is, no cancel, is raised again once the journal has it
		 * and the line's fate.
		 */
		HOLD_INTERRUPTS();		/* the error has let go of them all */
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return error;
}

/*
 * Makes the change, and records it before and after.  Returns NULL, or the error; *made
 * is set to whether the file has the change, as it may after an error.  The lock on
 * changes must be held, and nothing else may be left to do in this transaction.
 */
static ErrorData *
make_change(PgscaleTuningChange *change, bool *made)
{
	ErrorData  *error;
	volatile PgscaleTuningLineFate fate;
	PgscaleTuningLines lines;

	change->id = pgscale_tuning_journal_begin(change);
	next_transaction();
	pgscale_tuning_journal_hold(change);

	HOLD_INTERRUPTS();
	error = change_act(change, &fate);
	*made = !error || fate == PGSCALE_LINE_CHANGED;
	if (*made)
		pgscale_tuning_journal_applied(change);
	else if (fate == PGSCALE_LINE_KEPT)
		pgscale_tuning_journal_failed(change->id, error->sqlerrcode, error->message);
	/* what is not known stays begun, for pgscale_tuning_journal_reconcile() */
	if (error && fate != PGSCALE_LINE_KEPT)
		pgscale_tuning_journal_noted(change->id, error->sqlerrcode, error->message);
	next_transaction();
	RESUME_INTERRUPTS();
	if (error)
		return error;

	pgscale_tuning_lines_read(&lines, true);
	if (!lines.known)
		ereport(WARNING,
				(errcode(ERRCODE_IO_ERROR),
				 errmsg("\"%s\" was changed by change " INT64_FORMAT ", but \"%s\" cannot be read now: whether it has the line is not known",
						change->setting, change->id, PG_AUTOCONF_FILENAME),
				 errhint("Once the file can be read, pgscale.tuning_journal shows it.")));
	else if (!pgscale_tuning_line_same(pgscale_tuning_line_of(&lines, change->setting), change->new_value))
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("\"%s\" was changed by hand at once after change " INT64_FORMAT, change->setting, change->id),
				 errhint("pgscale.tuning_journal has the value before.")));
	return NULL;
}

static const PgscaleExtensionTable journal = {"tuning_change", "tuning journal"};

/* Explains why the server will not have the value even then. */
static void
tell_overridden(const PgscaleTuningChange *change)
{
	const struct config_generic *record = pgscale_compat_find_setting(change->setting);
	PgscaleParameters parameters = {0};
	int64		n;

	if (record && record->reset_source == PGC_S_ARGV)
		ereport(NOTICE,
				(errmsg("the server's command line sets \"%s\", which overrides the change", change->setting)));
	PushActiveSnapshot(GetTransactionSnapshot());
	pgscale_table_add_text(&parameters, change->setting);
	pgscale_table_execute(&journal, "SELECT count(*) FROM pg_db_role_setting, unnest(setconfig) c"
						  " WHERE lower(split_part(c, '=', 1)) = lower($1)", &parameters, false);
	n = pgscale_table_bigint(0, 1);
	SPI_finish();
	PopActiveSnapshot();
	if (n > 0)
		ereport(NOTICE,
				(errmsg("\"%s\" has other values for some databases or roles, which override the change there",
						change->setting),
				 errhint("pg_db_role_setting lists them.")));
}

/*
 * Will the server take the setting from its files when it reads them?  If one of them
 * is broken it takes nothing, and the caller of the reload gets no message.
 */
static bool
files_are_taken(const PgscaleTuningChange *change)
{
	PgscaleParameters parameters = {0};
	bool		taken;

	PushActiveSnapshot(GetTransactionSnapshot());
	pgscale_table_add_text(&parameters, change->setting);
	pgscale_table_execute(&journal, "SELECT bool_or(applied) AND coalesce((SELECT applied FROM pg_file_settings"
						  " WHERE lower(name) = lower($1) ORDER BY seqno DESC LIMIT 1), true) FROM pg_file_settings",
						  &parameters, false);
	taken = pgscale_table_bool(0, 1);
	SPI_finish();
	PopActiveSnapshot();
	return taken;
}

/* What is left to do once changes were made, in the caller's name. */
static void
reload_for(const PgscaleTuningChange *changes, int n, bool reload)
{
	bool		isnull;
	TimestampTz now;

	if (n == 0)
		return;
	if (pgscale_node_has_patroni())
		ereport(NOTICE,
				(errmsg("Patroni manages the settings of this server: after a failover the change is not in force"),
				 errhint("patronictl edit-config changes a setting on all nodes.")));
	for (int i = 0; i < n; i++)
	{
		const struct config_generic *record = pgscale_compat_find_setting(changes[i].setting);

		tell_overridden(&changes[i]);
		if (record && record->reset_source == PGC_S_ARGV)
			continue;
		if (record && record->context == PGC_POSTMASTER)
			ereport(NOTICE,
					(errmsg("\"%s\" takes effect at the next restart", record->name),
					 errhint("Restart the server.")));
		else if (!reload)
			ereport(NOTICE,
					(errmsg("\"%s\" takes effect at the next reload", changes[i].setting),
					 errhint("SELECT pg_reload_conf(), or say reload => true.")));
	}
	if (!reload)
		return;
	next_transaction();
	PushActiveSnapshot(GetTransactionSnapshot());
	now = GetCurrentTimestamp();
	SPI_execute("SELECT pg_catalog.pg_reload_conf()", false, 0);
	if (SPI_processed != 1 ||
		!DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull)))
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("the configuration was not reloaded"),
				 errhint("Call pg_reload_conf(), or send the postmaster SIGHUP.")));
	PopActiveSnapshot();
	for (int i = 0; i < n; i++)
	{
		const struct config_generic *record = pgscale_compat_find_setting(changes[i].setting);

		if (!record || record->context == PGC_POSTMASTER || record->reset_source == PGC_S_ARGV)
			continue;
		if (files_are_taken(&changes[i]))
			pgscale_tuning_journal_effective(changes[i].id, now);
		else
			ereport(WARNING,
					(errcode(ERRCODE_CONFIG_FILE_ERROR),
					 errmsg("the server does not take \"%s\" from its files, because of an error in them", record->name),
					 errhint("pg_file_settings has the error.  Correct it and call pg_reload_conf().")));
	}
	next_transaction();
}

/* A procedure's only result. */
static Datum
change_result(FunctionCallInfo fcinfo, Datum value)
{
	TupleDesc	tupdesc;
	bool		isnull = false;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	return HeapTupleGetDatum(heap_form_tuple(tupdesc, &value, &isnull));
}

void
pgscale_tuning_change_null(const char *parameter, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("%s must not be null", parameter),
			 errhint("%s", hint)));
}

static char *
setting_argument(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(0))
		pgscale_tuning_change_null("setting", "pg_settings lists the settings.");
	return text_to_cstring(PG_GETARG_TEXT_PP(0));
}

bool
pgscale_tuning_change_bool(FunctionCallInfo fcinfo, int number, const char *name)
{
	if (PG_ARGISNULL(number))
		pgscale_tuning_change_null(name, "It is true or false.");
	return PG_GETARG_BOOL(number);
}

/* Makes one change and ends the call. */
Datum
pgscale_tuning_change_one(FunctionCallInfo fcinfo, PgscaleTuningChange *change, bool reload)
{
	bool		made;
	ErrorData  *error = make_change(change, &made);
	int64		id = change->id;

	if (error)
		ReThrowError(error);
	reload_for(change, 1, reload);
	end_call();
	return change_result(fcinfo, Int64GetDatum(id));
}

/* What is there may be something that could not be put back. */
void
pgscale_tuning_change_check_old(const PgscaleTuningChange *change)
{
	if (!pgscale_tuning_line_valid(change->setting, change->old_value))
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("the line that \"%s\" had, %s, is not one that ALTER SYSTEM could put back",
						change->setting, pgscale_tuning_line_show(change->setting, change->old_value)),
				 errhint("pgscale.tuning_journal keeps it.")));
}

const char *
pgscale_tuning_change_statement(const char *setting, const char *value, bool force)
{
	value = pgscale_tuning_line_shown(setting, value, "...");
	return psprintf("CALL pgscale.set(%s, %s%s)", quote_literal_cstr(setting), value ? quote_literal_cstr(value) : "NULL",
					force ? ", force => true" : "");
}

/* Would the server start with it?  Else says how it is changed all the same. */
static void
check_start(const PgscaleTuningChange *change)
{
	pgscale_tuning_start_check(change->setting, change->new_value,
							   pgscale_tuning_change_statement(change->setting, change->new_value, true));
}

/* CALL pgscale.set(setting, value, reload, force, change): NULL removes the line. */
Datum
pgscale_tuning_set(PG_FUNCTION_ARGS)
{
	bool		reload = pgscale_tuning_change_bool(fcinfo, 2, "reload");
	bool		force = pgscale_tuning_change_bool(fcinfo, 3, "force");
	PgscaleTuningChange change = {0};

	pgscale_tuning_change_begin(fcinfo, "set", reload);
	change.setting = setting_argument(fcinfo);
	change.new_value = PG_ARGISNULL(1) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(1));
	change.setting = unconstify(char *, pgscale_tuning_line_check(change.setting, change.new_value));
	pgscale_tuning_change_lock();
	pgscale_tuning_change_remember(&change);
	if (!force)
		check_start(&change);
	pgscale_tuning_change_check_old(&change);
	return pgscale_tuning_change_one(fcinfo, &change, reload);
}

/* What a rule has found, in the current memory context. */
static PgscaleTuningFinding *
change_ask(const PgscaleTuningRule *rule)
{
	PgscaleTuningFinding *finding;
	int			settings;

	CHECK_FOR_INTERRUPTS();

	/*
	 * what a rule may ask of the catalogs is not for others' operators to
	 * answer
	 */
	settings = pgscale_sql_names();
	PushActiveSnapshot(GetTransactionSnapshot());
	finding = pgscale_tuning_find(rule, EVIDENCE_MS, false);
	PopActiveSnapshot();
	AtEOXact_GUC(true, settings);
	return finding;
}

static List *
all_findings(void)
{
	const PgscaleTuningRule *rule;
	List	   *findings = NIL;

	for (int i = 0; (rule = pgscale_tuning_rule(i)) != NULL; i++)
		for (PgscaleTuningFinding *finding = change_ask(rule); finding; finding = finding->next)
			findings = lappend(findings, finding);
	return findings;
}

/* Is it advice that ALTER SYSTEM can follow? */
static bool
can_be_set(const PgscaleTuningFinding *finding)
{
	return finding->verdict == PGSCALE_ADVISES && finding->setting && finding->recommended && !finding->object &&
		pgscale_compat_find_setting(finding->setting);
}

static void
change_follow(PgscaleTuningChange *change, const PgscaleTuningFinding *finding)
{
	change->new_value = pstrdup(finding->recommended);
	change->setting = unconstify(char *, pgscale_tuning_line_check(finding->setting, change->new_value));
	change->reason = finding->reason;
	change->evidence = finding->evidence;
}

static void
raise_no_advice(const char *setting)
{
	const PgscaleTuningRule *rule = pgscale_tuning_rule_named(setting);
	const PgscaleTuningFinding *finding = rule ? change_ask(rule) : NULL;
	const char *why = finding && finding->verdict == PGSCALE_ADVISES
		? psprintf("The advice is %s%s%s, which ALTER SYSTEM cannot set.", finding->recommended,
				   finding->object ? " for " : "", finding->object ? finding->object : "")
		: finding ? finding->reason : NULL;

	ereport(ERROR,
			(errcode(ERRCODE_NO_DATA_FOUND),
			 errmsg("there is no advice for \"%s\"", setting),
			 why ? errdetail("%s", why) : 0,
			 errhint("pgscale.advice_rules shows what each rule has found; pgscale.set() sets any value.")));
}

/* CALL pgscale.apply(setting, reload, change): what pgscale.advice recommends. */
Datum
pgscale_tuning_apply(PG_FUNCTION_ARGS)
{
	bool		reload = pgscale_tuning_change_bool(fcinfo, 1, "reload");
	PgscaleTuningChange change = {0};
	const PgscaleTuningFinding *found = NULL;
	ListCell   *cell;
	char	   *setting;

	pgscale_tuning_change_begin(fcinfo, "apply", reload);
	pgscale_preload_require();
	setting = setting_argument(fcinfo);
	if (!pgscale_compat_find_setting(setting))
		(void) pgscale_tuning_line_check(setting, "");
	foreach(cell, all_findings())
	{
		const PgscaleTuningFinding *finding = lfirst(cell);

		if (can_be_set(finding) && pg_strcasecmp(finding->setting, setting) == 0 &&
			(!found || finding->gain > found->gain))
			found = finding;
	}
	if (!found)
		raise_no_advice(setting);
	change_follow(&change, found);
	pgscale_tuning_change_lock();
	pgscale_tuning_change_remember(&change);
	check_start(&change);
	pgscale_tuning_change_check_old(&change);
	return pgscale_tuning_change_one(fcinfo, &change, reload);
}

static int
by_gain(const ListCell *a, const ListCell *b)
{
	double		gain_a = ((const PgscaleTuningFinding *) lfirst(a))->gain;
	double		gain_b = ((const PgscaleTuningFinding *) lfirst(b))->gain;

	return gain_a > gain_b ? -1 : gain_a < gain_b ? 1 : 0;
}

/* What apply_all() is for: the best advice of each setting, greatest gain first. */
static List *
advice_to_follow(void)
{
	List	   *findings = all_findings();
	List	   *chosen = NIL;
	ListCell   *cell;

	list_sort(findings, by_gain);
	foreach(cell, findings)
	{
		PgscaleTuningFinding *finding = lfirst(cell);
		ListCell   *other;
		bool		known = false;

		if (!can_be_set(finding) || !finding->confidence || strcmp(finding->confidence, "low") == 0)
			continue;
		foreach(other, chosen)
			known |= pg_strcasecmp(((PgscaleTuningFinding *) lfirst(other))->setting, finding->setting) == 0;
		if (!known)
			chosen = lappend(chosen, finding);
	}
	return chosen;
}

/* Of what one advice failed for; the others are followed nevertheless. */
static void
tell_failed(const PgscaleTuningFinding *finding, const ErrorData *error, bool made)
{
	ereport(WARNING,
			(errcode(error->sqlerrcode),
			 made ? errmsg("\"%s\" was set to \"%s\", but: %s", finding->setting, finding->recommended, error->message)
			 : errmsg("\"%s\" was not set to \"%s\": %s", finding->setting, finding->recommended, error->message),
			 error->detail ? errdetail("%s", error->detail) : 0,
			 error->hint ? errhint("%s", error->hint) : 0));
}

/* One advice of apply_all(). */
typedef struct Advice
{
	PgscaleTuningChange *change;
	const PgscaleTuningFinding *finding;
} Advice;

static void
follow_advice(void *arg)
{
	Advice	   *advice = arg;

	change_follow(advice->change, advice->finding);
	pgscale_tuning_change_remember(advice->change);
	check_start(advice->change);
}

/*
 * Follows one advice within apply_all().  Any error of it is reported, and its part rolled back, so that
 * what was changed before is reloaded and returned; only a cancel or the server's end is raised.
 */
static bool
follow_and_tell(PgscaleTuningChange *change, const PgscaleTuningFinding *finding)
{
	Advice		advice = {change, finding};
	ErrorData  *error;
	bool		made = false;

	/* nothing of one that failed */
	memset(change, 0, sizeof(*change));
	error = pgscale_subtransaction_run(follow_advice, &advice);
	if (error && ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION)
		ReThrowError(error);
	if (!error)
	{
		if (pgscale_tuning_line_same(change->old_value, change->new_value))
		{
			ereport(NOTICE,
					(errmsg("\"%s\" already is set to \"%s\", which is not in effect yet", change->setting, change->new_value)));
			return false;
		}
		pgscale_tuning_change_check_old(change);
		error = make_change(change, &made);
	}
	if (error)
		tell_failed(finding, error, made);
	return made;
}

/* CALL pgscale.apply_all(dry_run, reload, changes) */
Datum
pgscale_tuning_apply_all(PG_FUNCTION_ARGS)
{
	bool		dry_run = pgscale_tuning_change_bool(fcinfo, 0, "dry_run");
	bool		reload = pgscale_tuning_change_bool(fcinfo, 1, "reload");
	List	   *advice;
	ListCell   *cell;
	PgscaleTuningChange *changes;
	Datum	   *ids;
	int			n = 0;
	Datum		array;

	pgscale_tuning_change_begin(fcinfo, "apply_all", reload);
	pgscale_preload_require();
	advice = advice_to_follow();
	changes = palloc0((list_length(advice) + 1) * sizeof(PgscaleTuningChange));
	ids = palloc((list_length(advice) + 1) * sizeof(Datum));
	if (!dry_run)
		pgscale_tuning_change_lock();
	foreach(cell, advice)
	{
		const PgscaleTuningFinding *finding = lfirst(cell);

		if (dry_run)
		{
			ereport(NOTICE,
					(errmsg("would set \"%s\" to \"%s\"", finding->setting, finding->recommended),
					 errdetail("%s", finding->reason)));
			continue;
		}
		CHECK_FOR_INTERRUPTS();
		if (!follow_and_tell(&changes[n], finding))
			continue;
		ids[n] = Int64GetDatum(changes[n].id);
		n++;
	}
	if (!advice)
		ereport(NOTICE,
				(errmsg("there is no advice to apply"),
				 errhint("pgscale.advice_rules shows what each rule has found.")));
	if (!dry_run)
		reload_for(changes, n, reload);
	array = SPI_datumTransfer(PointerGetDatum(construct_array(ids, n, INT8OID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE)),
							  false, -1);
	if (!dry_run)
		end_call();
	else
		SPI_finish();
	return change_result(fcinfo, array);
}
