/*-------------------------------------------------------------------------
 *
 * procedures.c
 *	  The procedures that change settings, and the one that reverts a change.
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
 * A revert restores the previous line if the present one is the one that the change
 * made: later changes by hand are not undone without force.  Nor is a change below a
 * later one of the same setting, because the old value of the later one would become
 * wrong; with force both are reverted.
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
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/extension_table.h"
#include "base/node_name.h"
#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/sql.h"
#include "base/subtransaction.h"
#include "tuning/changes/changes.h"
#include "tuning/rules/rule_table.h"

PG_FUNCTION_INFO_V1(pgscale_tuning_set);
PG_FUNCTION_INFO_V1(pgscale_tuning_apply);
PG_FUNCTION_INFO_V1(pgscale_tuning_apply_all);
PG_FUNCTION_INFO_V1(pgscale_tuning_revert);

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

/*
 * Before anything else.  Leaves a connection to SPI, whose memory holds what is
 * needed until the end.
 */
static void
change_begin(FunctionCallInfo fcinfo, const char *procedure, bool reload)
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
				 errdetail("The journal can be written on the primary only."),
				 errhint("Use ALTER SYSTEM here, or tune the primary.")));
	if (XactReadOnly)
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("%s() cannot run in a read-only transaction", procedure),
				 errhint("SET default_transaction_read_only = off.")));
	wait_for_no_standby();
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	if (reload && !DatumGetBool(DirectFunctionCall2(has_function_privilege_id, ObjectIdGetDatum(F_PG_RELOAD_CONF),
													CStringGetTextDatum("EXECUTE"))))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to reload the configuration"),
				 errhint("A superuser can GRANT EXECUTE ON FUNCTION pg_reload_conf().")));
}

/* From now on there are no other changes, in any database. */
static void
change_lock(void)
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
static void
change_remember(PgscaleTuningChange *change)
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
				 errhint("Change it with ALTER SYSTEM, or from a database with that encoding.")));
	change->old_value = line ? pstrdup(line) : NULL;
	pgscale_tuning_verify_remember(change);
}

/* A change of a line, and what has become of the line. */
typedef struct LineChange
{
	const PgscaleTuningChange *change;
	volatile PgscaleTuningLineFate fate;
} LineChange;

static void
change_line(void *arg)
{
	LineChange *line = arg;

	pgscale_tuning_line_change(line->change->setting, line->change->old_value, line->change->new_value, &line->fate);
}

/*
 * Makes the change, and records it before and after.  Returns NULL, or the error; *made
 * is set to whether the file has the change, as it may after an error.  The lock on
 * changes must be held, and nothing else may be left to do in this transaction.
 */
static ErrorData *
make_change(PgscaleTuningChange *change, bool *made)
{
	LineChange	line = {change, PGSCALE_LINE_KEPT};
	ErrorData  *error;
	PgscaleTuningLines lines;

	change->id = pgscale_tuning_journal_begin(change);
	next_transaction();
	pgscale_tuning_journal_hold(change);

	/* Even a cancel is raised only when the journal has its row. */
	HOLD_INTERRUPTS();
	error = pgscale_subtransaction_run(change_line, &line);
	*made = !error || line.fate == PGSCALE_LINE_CHANGED;
	if (*made)
		pgscale_tuning_journal_applied(change);
	/* what is not known stays begun, for pgscale_tuning_journal_reconcile() */
	if (error)
		pgscale_tuning_journal_error(change->id, line.fate == PGSCALE_LINE_KEPT, error->sqlerrcode, error->message);
	next_transaction();
	RESUME_INTERRUPTS();
	if (error)
		return error;

	pgscale_tuning_lines_read(&lines, true);
	if (!lines.known)
		ereport(WARNING,
				(errcode(ERRCODE_IO_ERROR),
				 errmsg("\"%s\" was changed by change " INT64_FORMAT ", but \"%s\" cannot be read now, so it is unknown whether it has the line",
						change->setting, change->id, PG_AUTOCONF_FILENAME),
				 errhint("Once the file can be read, pgscale.tuning_journal shows it.")));
	else if (!pgscale_tuning_line_same(pgscale_tuning_line_of(&lines, change->setting), change->new_value))
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("\"%s\" was changed by hand right after change " INT64_FORMAT, change->setting, change->id),
				 errhint("pgscale.tuning_journal shows the previous value.")));
	return NULL;
}

/* Explains why the server will not have the value even then. */
static void
notify_overridden(const PgscaleTuningChange *change)
{
	const struct config_generic *record = pgscale_compat_find_setting(change->setting);

	if (record && record->reset_source == PGC_S_ARGV)
		ereport(NOTICE,
				(errmsg("the server's command line sets \"%s\", which overrides the change", change->setting)));
	if (pgscale_tuning_journal_number("SELECT count(*) FROM pg_db_role_setting, unnest(setconfig) c"
									  " WHERE lower(split_part(c, '=', 1)) = lower($1)", change->setting) > 0)
		ereport(NOTICE,
				(errmsg("\"%s\" has other values for some databases or roles, which override the change there",
						change->setting),
				 errhint("pg_db_role_setting lists them.")));
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

		notify_overridden(&changes[i]);
		if (record && record->reset_source == PGC_S_ARGV)
			continue;
		if (record && record->context == PGC_POSTMASTER)
			ereport(NOTICE,
					(errmsg("\"%s\" takes effect at the next restart", record->name),
					 errhint("Restart the server.")));
		else if (!reload)
			ereport(NOTICE,
					(errmsg("\"%s\" takes effect at the next reload", changes[i].setting),
					 errhint("SELECT pg_reload_conf(), or use reload => true.")));
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


		/*
		 * If one of the files is broken the server takes nothing, and the
		 * caller of the reload gets no message.
		 */
		if (pgscale_tuning_journal_number("SELECT (bool_or(applied) AND coalesce((SELECT applied FROM pg_file_settings"
										  " WHERE lower(name) = lower($1) ORDER BY seqno DESC LIMIT 1), true))::integer::bigint"
										  " FROM pg_file_settings", changes[i].setting) != 0)
			pgscale_tuning_journal_set(changes[i].id, "effective_at", TIMESTAMPTZOID, TimestampTzGetDatum(now));
		else
			ereport(WARNING,
					(errcode(ERRCODE_CONFIG_FILE_ERROR),
					 errmsg("the server does not take \"%s\" from its files, because of an error in them", record->name),
					 errhint("pg_file_settings shows the error.  Correct it and call pg_reload_conf().")));
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

static void
raise_null(const char *parameter, const char *hint)
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
		raise_null("setting", "pg_settings lists the settings.");
	return text_to_cstring(PG_GETARG_TEXT_PP(0));
}

static bool
bool_argument(FunctionCallInfo fcinfo, int number, const char *name)
{
	if (PG_ARGISNULL(number))
		raise_null(name, "It is true or false.");
	return PG_GETARG_BOOL(number);
}

/* Makes one change and ends the call. */
static Datum
change_one(FunctionCallInfo fcinfo, PgscaleTuningChange *change, bool reload)
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
static void
check_old_line(const PgscaleTuningChange *change)
{
	if (!pgscale_tuning_line_valid(change->setting, change->old_value))
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("the line that \"%s\" had, %s, is not one that ALTER SYSTEM could put back",
						change->setting, pgscale_tuning_line_show(change->setting, change->old_value)),
				 errhint("pgscale.tuning_journal shows it.")));
}

/* How a value is set by hand, as a statement for a hint. */
static const char *
change_statement(const char *setting, const char *value, bool force)
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
							   change_statement(change->setting, change->new_value, true));
}

/* CALL pgscale.set(setting, value, reload, force, change): NULL removes the line. */
Datum
pgscale_tuning_set(PG_FUNCTION_ARGS)
{
	bool		reload = bool_argument(fcinfo, 2, "reload");
	bool		force = bool_argument(fcinfo, 3, "force");
	PgscaleTuningChange change = {0};

	change_begin(fcinfo, "set", reload);
	change.setting = setting_argument(fcinfo);
	change.new_value = PG_ARGISNULL(1) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(1));
	change.setting = unconstify(char *, pgscale_tuning_line_check(change.setting, change.new_value));
	change_lock();
	change_remember(&change);
	if (!force)
		check_start(&change);
	check_old_line(&change);
	return change_one(fcinfo, &change, reload);
}

/* What a rule has found, in the current memory context. */
static PgscaleTuningFinding *
query_rule(const PgscaleTuningRule *rule)
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

static int
by_gain(const ListCell *a, const ListCell *b)
{
	double		gain_a = ((const PgscaleTuningFinding *) lfirst(a))->gain;
	double		gain_b = ((const PgscaleTuningFinding *) lfirst(b))->gain;

	return gain_a > gain_b ? -1 : gain_a < gain_b ? 1 : 0;
}

/*
 * The advice that ALTER SYSTEM can follow, the best of each setting, greatest gain first:
 * for this setting; or with NULL for all, without what is of low confidence.
 */
static List *
advice_to_follow(const char *setting)
{
	const PgscaleTuningRule *rule;
	List	   *findings = NIL;
	List	   *chosen = NIL;
	ListCell   *cell;

	for (int i = 0; (rule = pgscale_tuning_rule(i)) != NULL; i++)
		for (PgscaleTuningFinding *finding = query_rule(rule); finding; finding = finding->next)
			if (finding->verdict == PGSCALE_ADVISES && finding->setting && finding->recommended && !finding->object &&
				pgscale_compat_find_setting(finding->setting) &&
				(setting ? pg_strcasecmp(finding->setting, setting) == 0
				 : finding->confidence && strcmp(finding->confidence, "low") != 0))
				findings = lappend(findings, finding);
	list_sort(findings, by_gain);
	foreach(cell, findings)
	{
		PgscaleTuningFinding *finding = lfirst(cell);
		ListCell   *other;
		bool		known = false;

		foreach(other, chosen)
			known |= pg_strcasecmp(((PgscaleTuningFinding *) lfirst(other))->setting, finding->setting) == 0;
		if (!known)
			chosen = lappend(chosen, finding);
	}
	return chosen;
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
	const PgscaleTuningFinding *finding = rule ? query_rule(rule) : NULL;
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
	bool		reload = bool_argument(fcinfo, 1, "reload");
	PgscaleTuningChange change = {0};
	List	   *advice;
	char	   *setting;

	change_begin(fcinfo, "apply", reload);
	pgscale_preload_require();
	setting = setting_argument(fcinfo);
	if (!pgscale_compat_find_setting(setting))
		(void) pgscale_tuning_line_check(setting, "");
	advice = advice_to_follow(setting);
	if (!advice)
		raise_no_advice(setting);
	change_follow(&change, linitial(advice));
	change_lock();
	change_remember(&change);
	check_start(&change);
	check_old_line(&change);
	return change_one(fcinfo, &change, reload);
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
	change_remember(advice->change);
	check_start(advice->change);
}

/*
 * Follows one advice within apply_all().  Any error of it is reported, and its part rolled back, so that
 * what was changed before is reloaded and returned; only a cancel or the server's end is raised.
 */
static bool
follow_or_warn(PgscaleTuningChange *change, const PgscaleTuningFinding *finding)
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
					(errmsg("\"%s\" is already set to \"%s\", which is not in effect yet", change->setting, change->new_value)));
			return false;
		}
		check_old_line(change);
		error = make_change(change, &made);
	}
	if (error)
		ereport(WARNING,
				(errcode(error->sqlerrcode),
				 made ? errmsg("\"%s\" was set to \"%s\", but: %s", finding->setting, finding->recommended, error->message)
				 : errmsg("\"%s\" was not set to \"%s\": %s", finding->setting, finding->recommended, error->message),
				 error->detail ? errdetail("%s", error->detail) : 0,
				 error->hint ? errhint("%s", error->hint) : 0));
	return made;
}

/* CALL pgscale.apply_all(dry_run, reload, changes) */
Datum
pgscale_tuning_apply_all(PG_FUNCTION_ARGS)
{
	bool		dry_run = bool_argument(fcinfo, 0, "dry_run");
	bool		reload = bool_argument(fcinfo, 1, "reload");
	List	   *advice;
	ListCell   *cell;
	PgscaleTuningChange *changes;
	Datum	   *ids;
	int			n = 0;
	Datum		array;

	change_begin(fcinfo, "apply_all", reload);
	pgscale_preload_require();
	advice = advice_to_follow(NULL);
	changes = palloc0((list_length(advice) + 1) * sizeof(PgscaleTuningChange));
	ids = palloc((list_length(advice) + 1) * sizeof(Datum));
	if (!dry_run)
		change_lock();
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
		if (!follow_or_warn(&changes[n], finding))
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

/* May it be reverted, as far as the journal knows? */
static void
check_revertable(const PgscaleTuningChange *change, bool force)
{
	int64		later;

	if (change->foreign)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("change " INT64_FORMAT " is of %s", change->id, change->foreign),
				 errdetail("Its row came here with a copy of that journal."),
				 errhint("Revert it there, or restore the previous value here: %s.",
						 change_statement(change->setting, change->old_value, false))));
	if (strcmp(change->state, PGSCALE_CHANGE_REVERTED) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("change " INT64_FORMAT " was already reverted, by change " INT64_FORMAT, change->id, change->reverted_by),
				 errhint("To make it again: %s.", change_statement(change->setting, change->new_value, false))));
	if (strcmp(change->state, PGSCALE_CHANGE_APPLIED) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("change " INT64_FORMAT " was not made, so there is nothing to revert", change->id),
				 errhint("pgscale.tuning_journal shows its state and its error.")));
	if (change->revert_of != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("change " INT64_FORMAT " is itself the revert of change " INT64_FORMAT, change->id, change->revert_of),
				 errhint("To restore the previous value: %s.", change_statement(change->setting, change->old_value, false))));
	later = pgscale_tuning_journal_later(change);
	if (later != 0 && !force)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"%s\" was changed again by change " INT64_FORMAT, change->setting, later),
				 errhint("Revert that change first; force => true reverts all changes since then along with this one.")));
}

/* Where it was made, as far as the user may know. */
static const char *
node_of(const PgscaleTuningChange *change)
{
	if (!change->other_node)
		return "this node before its last promotion or restore";
	return pgscale_tuning_line_visible("data_directory") ? psprintf("another node, %s", change->node) : "another node";
}

/* May the line that is there be replaced by the one that was before the change? */
static void
check_line(const PgscaleTuningChange *change, const PgscaleTuningChange *back, bool force)
{
	const char *was = pgscale_tuning_line_show(change->setting, change->new_value);
	const char *is = pgscale_tuning_line_show(change->setting, back->old_value);
	const char *back_to = pgscale_tuning_line_show(change->setting, change->old_value);

	if (force || pgscale_tuning_line_same(back->old_value, change->new_value))
		return;
	if (!change->elsewhere)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"%s\" was changed by hand since change " INT64_FORMAT, change->setting, change->id),
				 errdetail("\"%s\" had %s since then and has %s now.", PG_AUTOCONF_FILENAME, was, is),
				 errhint("force => true overwrites it with %s.", back_to)));
	if (!pgscale_tuning_line_same(back->old_value, change->old_value))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("change " INT64_FORMAT " was made on %s", change->id, node_of(change)),
				 errdetail("\"%s\", which is not replicated, had %s there and has %s here.", PG_AUTOCONF_FILENAME, was, is),
				 errhint("force => true overwrites it with %s.  To make the change here: %s.", back_to,
						 change_statement(change->setting, change->new_value, false))));
	ereport(NOTICE,
			(errmsg("change " INT64_FORMAT " was made on %s, and \"%s\" here has its previous value",
					change->id, node_of(change), PG_AUTOCONF_FILENAME)));
}

/* CALL pgscale.revert(change, reload, force, reverted_by) */
Datum
pgscale_tuning_revert(PG_FUNCTION_ARGS)
{
	bool		reload = bool_argument(fcinfo, 1, "reload");
	bool		force = bool_argument(fcinfo, 2, "force");
	PgscaleTuningChange change;
	PgscaleTuningChange back = {0};

	if (PG_ARGISNULL(0))
		raise_null("change", "pgscale.tuning_journal lists the changes.");
	change_begin(fcinfo, "revert", reload);
	change_lock();
	if (!pgscale_tuning_journal_get(PG_GETARG_INT64(0), &change))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("there is no change " INT64_FORMAT " in this database's journal", PG_GETARG_INT64(0)),
				 errhint("pgscale.tuning_journal lists the changes. Each database with the extension has a journal of its own.")));
	check_revertable(&change, force);
	back.setting = unconstify(char *, pgscale_tuning_line_check(change.setting, change.old_value));
	back.new_value = change.old_value;
	back.revert_of = change.id;
	change_remember(&back);
	check_line(&change, &back, force);
	if (!force)
		pgscale_tuning_start_check(back.setting, back.new_value,
								   psprintf("CALL pgscale.revert(" INT64_FORMAT ", force => true)", change.id));
	if (force)
		check_old_line(&back);
	return change_one(fcinfo, &back, reload);
}
