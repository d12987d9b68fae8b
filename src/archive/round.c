/*-------------------------------------------------------------------------
 *
 * round.c
 *	  A round of the archive: a process that connects, writes one row, and ends.
 *
 * It runs three transactions.  The first writes the row and creates the day's partitions
 * if they are missing.  The second does the upkeep, one partition at a time: it creates
 * tomorrow's partitions, drops the expired ones and rolls up the old ones.  Upkeep
 * needs stronger locks and may fail without harm to the row.  It never queues for a
 * lock, because all readers of the archive would wait behind it; the next round tries
 * again.  The third asks the other nodes, which may take fleet_timeout.
 *
 * The work itself is SQL, in round.sql, counters.sql and partitions.sql; some of those
 * functions are called from here, by OID.  They run as the tables' owner, a superuser.
 * So the tables must belong to the extension and must not have triggers or rules of
 * other roles: they are locked first and then checked.
 *
 * Settings of the database or the role must neither stop a round nor change it, so the
 * relevant ones are set here.  Commits do not wait for the disk: after a crash the
 * latest rows may be missing, which shows as a gap.
 *
 * Signals: SIGINT ends the statement and with it the round; SIGTERM ends the process.
 *
 * Failure: pgscale.health shows the error, and the log has it unless the previous round
 * had the same one.  The next round starts from the same baseline.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type_d.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "archive/archive.h"
#include "archive/deltas.h"
#include "archive/round_launcher.h"
#include "base/extension_function.h"
#include "base/extension_table.h"
#include "base/timer.h"
#include "base/worker.h"

/* How long a lock of others may hinder upkeep until that is an error. */
#define HINDERED_MIN	30

/* A node knows all of a minute two seconds after its end; and that its clock is a little behind. */
#define PULL_AFTER_MS	2500

PGDLLEXPORT void pgscale_archive_round_main(Datum arg);

static MemoryContext round_context;
static bool may_age;			/* drop and roll up what is old */
static bool only_began;			/* the round made a baseline and no row, so
								 * that what hinders rows may still be there */
static Oid	round_user;
static int	round_security;

/* Those whose row types and rules a round relies on. */
static const PgscaleExtensionTable tables[] = {
	{"archive_minute", "archive"},
	{"archive_query", "archive"},
	{"archive_change", "archive"},
	{"archive_setting", "archive"},
	{"archive_node", "archive"},
	{"archive_pull", "archive"},
};

static const PgscaleWorkerSetting round_settings[] = {
	{"lock_timeout", "2000"},
	{"synchronous_commit", "off"},
	{"session_replication_role", "origin"},
	{"row_security", "on"},
	{"restrict_nonsystem_relation_kind", ""},
	{"search_path", "pg_catalog, pg_temp"},
	{"default_tablespace", ""},
	{"temp_tablespaces", ""},
	{"default_table_access_method", "heap"},
	{"lc_messages", "C"},		/* find_culprit() */
	{"TimeZone", "UTC"},
	{"DateStyle", "ISO, MDY"},
	{"IntervalStyle", "postgres"},
	{"extra_float_digits", "1"},
	{"array_nulls", "on"},
	{"standard_conforming_strings", "on"},
	{"quote_all_identifiers", "off"},
	{"transform_null_equals", "off"},
	{"stats_fetch_consistency", "cache"},
	{"plan_cache_mode", "auto"},
	{"enable_partition_pruning", "on"},
	{"max_parallel_workers_per_gather", "0"},
	{"jit", "off"},
	{"client_min_messages", "notice"},
	{"plpgsql.variable_conflict", "error"},
	{"plpgsql.extra_errors", "none"},
	{"plpgsql.extra_warnings", "none"},
	{"plpgsql.check_asserts", "off"},
	{"pg_stat_statements.track", "none"},
};

/* Locks the tables, and becomes their owner until the transaction's end. */
static void
take_tables(void)
{
	Oid			owner = InvalidOid;
	Oid			relation = InvalidOid;

	pgscale_table_refuse_renamed();
	for (int i = 0; i < lengthof(tables); i++)
	{
		relation = pgscale_table_find(&tables[i], &owner);
		if (OidIsValid(relation))
			LockRelationOid(relation, RowExclusiveLock);
		if (!OidIsValid(relation) || pgscale_table_find(&tables[i], &owner) != relation)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_TABLE),
					 errmsg("database \"%s\" has no table pgscale_internal.%s that belongs to the extension and a superuser",
							pgscale_archive_database, tables[i].name)));
	}
	GetUserIdAndSecContext(&round_user, &round_security);
	SetUserIdAndSecContext(owner, round_security | SECURITY_LOCAL_USERID_CHANGE);
	pgscale_table_keep_local(relation);
}

/* Ends the transaction's work as itself. */
static void
leave_tables(void)
{
	SetUserIdAndSecContext(round_user, round_security);
}

static void
write_row(void)
{
	const Oid	types[] = {TIMESTAMPTZOID, INTERVALOID};
	Interval	period = {0};
	Datum		values[2];
	TimestampTz since;
	TimestampTz until;
	const char *outcome;
	bool		row;

	take_tables();
	pgscale_archive_deltas_begin(&since, &until);
	period.time = until - since;
	values[0] = TimestampTzGetDatum(since);
	values[1] = IntervalPGetDatum(&period);
	outcome = pgscale_extension_own_text("archive_write", lengthof(types), types, values);
	row = strcmp(outcome, "written") == 0;
	only_began = strcmp(outcome, "first") == 0;
	leave_tables();
	PopActiveSnapshot();
	pgscale_archive_deltas_keep();
	CommitTransactionCommand();
	pgscale_archive_round_written(until, row);
}

static void
keep_up(void)
{
	const Oid	types[] = {INT4OID, INT4OID};
	Datum		values[2];
	const char *outcome;
	TimestampTz hindered_at;

	take_tables();
	values[0] = Int32GetDatum(may_age ? pgscale_archive_detail : PG_INT32_MAX);
	values[1] = Int32GetDatum(may_age ? pgscale_archive_retention : PG_INT32_MAX);
	outcome = pgscale_extension_own_text("archive_upkeep", lengthof(types), types, values);
	hindered_at = pgscale_archive_hindered(strcmp(outcome, "hindered") == 0);
	leave_tables();
	PopActiveSnapshot();
	CommitTransactionCommand();
	if (hindered_at != 0 && TimestampDifferenceExceeds(hindered_at, GetCurrentTimestamp(), HINDERED_MIN * 60 * 1000))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("transactions that have read or locked the archive have been open for %d minutes", HINDERED_MIN)));
}

/*
 * The innermost function of a procedural language in an error's context, unless it
 * is our own: DDL fires event triggers, and those are of others.
 */
static void
find_culprit(const char *context, char *function, size_t size)
{
	const char *line = context;

	function[0] = '\0';
	while (line && strncmp(line, "PL/", 3) != 0)
	{
		line = strchr(line, '\n');
		if (line)
			line++;
	}
	if (line && (line = strstr(line, " function ")) != NULL)
	{
		const char *name = line + strlen(" function ");

		if (strncmp(name, "pgscale.", 8) != 0 && strncmp(name, "pgscale_internal.", 17) != 0)
			strlcpy(function, name, pg_mbcliplen(name, strcspn(name, ")\n") + 1, size - 1) + 1);
	}
}

static void
pull_nodes(void)
{
	const Oid	types[] = {FLOAT8OID};
	const Oid	of_answers[] = {BOOLOID};
	const Datum answered = BoolGetDatum(true);
	Datum		values[1];
	PgscaleArchiveError error = {.encoding = GetDatabaseEncoding()};
	const int64 period_us = pgscale_timer_period_ms(PGSCALE_ARCHIVE_PERIOD_MS) * INT64CONST(1000);
	const int64 begin_us = GetCurrentTimestamp() / period_us * period_us;
	const char *wrong;

	if (pgscale_extension_own_text("archive_asks", 0, NULL, NULL) != NULL)
	{
		int64		left_ms;

		PopActiveSnapshot();
		InvalidateCatalogSnapshot();
		while ((left_ms = PULL_AFTER_MS - (GetCurrentTimestamp() - begin_us) / 1000) > 0)
		{
			pgscale_worker_wait(Min(left_ms, PULL_AFTER_MS));
			CHECK_FOR_INTERRUPTS();
		}
		PushActiveSnapshot(GetTransactionSnapshot());
	}
	take_tables();
	values[0] = Float8GetDatum(period_us / 1e6);
	wrong = pgscale_extension_own_text("archive_pull", lengthof(types), types, values);
	error.sqlstate = wrong ? ERRCODE_CONNECTION_FAILURE : ERRCODE_WARNING;
	if (!wrong)
		wrong = pgscale_extension_own_text("archive_remarks", lengthof(of_answers), of_answers, &answered);
	if (wrong)
		strlcpy(error.message, wrong, pg_mbcliplen(wrong, strlen(wrong), sizeof(error.message) - 1) + 1);
	else
		error.sqlstate = 0;
	leave_tables();
	PopActiveSnapshot();
	CommitTransactionCommand();
	if (pgscale_archive_note(PGSCALE_ARCHIVE_PULL, &error) && error.sqlstate != 0)
		ereport(LOG,
				(errcode(error.sqlstate),
				 errmsg("pgscale archive: %s", error.message)));
}

static void
note_error(PgscaleArchiveStep step, const ErrorData *data)
{
	const char *message = data->message ? data->message : "unknown error";
	PgscaleArchiveError error;

	find_culprit(data->context, error.function, sizeof(error.function));
	error.sqlstate = data->sqlerrcode;
	error.encoding = GetDatabaseEncoding();
	strlcpy(error.message, message, pg_mbcliplen(message, strlen(message), sizeof(error.message) - 1) + 1);
	if (pgscale_archive_note(step, &error))
		ereport(LOG,
				(errcode(data->sqlerrcode),
				 errmsg("pgscale archive: %s", message),
				 data->detail ? errdetail_internal("%s", data->detail) : 0,
				 data->hint ? errhint("%s", data->hint) : 0,
				 data->context ? errcontext("%s", data->context) : 0));
}

static bool
round_try(void (*action) (void), PgscaleArchiveStep step)
{
	volatile bool ok = false;

	MemoryContextSwitchTo(round_context);
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	PG_TRY();
	{
		action();
		ok = true;
	}
	PG_CATCH();
	{
		/*
		 * Any error, a cancel too: it ends the round, whose part of the work
		 * is rolled back, and is noted.
		 */
		ErrorData  *data;

		MemoryContextSwitchTo(round_context);
		data = CopyErrorData();
		FlushErrorState();
		AbortCurrentTransaction();
		MemoryContextSwitchTo(round_context);
		note_error(step, data);
	}
	PG_END_TRY();
	if (ok && step != PGSCALE_ARCHIVE_PULL && (step != PGSCALE_ARCHIVE_ROW || !only_began))
		(void) pgscale_archive_note(step, NULL);
	return ok;
}

void
pgscale_archive_round_main(Datum arg)
{
	Oid			database = pgscale_archive_round_attach(&may_age);

	if (!OidIsValid(database))
		proc_exit(0);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, StatementCancelHandler);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	pgscale_worker_connect(database, round_settings, lengthof(round_settings));

	round_context = AllocSetContextCreate(TopMemoryContext, "pgscale archive round", ALLOCSET_DEFAULT_SIZES);
	pgstat_report_activity(STATE_RUNNING, "pgscale archive round");
	if (round_try(write_row, PGSCALE_ARCHIVE_ROW))
	{
		(void) round_try(keep_up, PGSCALE_ARCHIVE_UPKEEP);
		(void) round_try(pull_nodes, PGSCALE_ARCHIVE_PULL);
	}
	pgstat_report_activity(STATE_IDLE, NULL);
	proc_exit(0);
}
