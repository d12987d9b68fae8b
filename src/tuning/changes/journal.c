/*-------------------------------------------------------------------------
 *
 * journal.c
 *	  The journal of changes of settings: each old line is committed before the change
 *	  is made.
 *
 * A change is a row of pgscale_internal.tuning_change.  The row, with the old line of
 * the setting, is committed before the file is touched; the result is committed after.
 * If the session ends between the two, the row stays "begun".  The next holder of the
 * lock on changes then reads the file.  If the file has the new line, the change was
 * made.  If it has the old line, it was not.
 *
 * Settings belong to the cluster, and the journal belongs to a database.  A change by
 * another database's journal counts here as a change by hand.  A copy of a row in
 * another database or server has no effect: base/extension_table.h.
 *
 * The journal is replicated, and postgresql.auto.conf is not.  So each row has the node
 * that made the change, which is a host name and a data directory, and the timeline.
 * If the file does not have the line, and node or timeline differ from the present
 * ones, the line was not changed by hand: it never was here, or it disappeared when
 * this node's files were replaced.  Two cases cannot be recognized: two nodes with the
 * same host name and data directory before one is promoted, such as containers with
 * equal names, and changes by hand after a promotion.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "catalog/pg_type_d.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/extension_table.h"
#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/secrets.h"
#include "tuning/changes/changes.h"
#include "tuning/tuning.h"

PG_FUNCTION_INFO_V1(pgscale_tuning_journal);

static const PgscaleExtensionTable journal = {"tuning_change", "tuning journal"};

/* A snapshot of its own: between a procedure's transactions there is none. */
static uint64
journal_execute(const char *statement, PgscaleParameters *parameters)
{
	PushActiveSnapshot(GetTransactionSnapshot());
	return pgscale_table_execute(&journal, statement, parameters, false);
}

static void
journal_finish(void)
{
	SPI_finish();
	PopActiveSnapshot();
}

int64
pgscale_tuning_journal_number(const char *query, const char *setting)
{
	PgscaleParameters parameters = {0};
	int64		number;

	if (setting)
		pgscale_table_add_text(&parameters, setting);
	journal_execute(query, &parameters);
	number = pgscale_table_bigint(0, 1);
	journal_finish();
	return number;
}

/* Of what returns nothing. */
static uint64
execute_all(const char *statement, PgscaleParameters *parameters)
{
	uint64		processed = journal_execute(statement, parameters);

	journal_finish();
	return processed;
}

static void
add_pointer(PgscaleParameters *parameters, Oid type, const void *value)
{
	if (value)
		pgscale_table_add(parameters, type, PointerGetDatum(value));
	else
		pgscale_table_add_null(parameters, type);
}

static void
add_time(PgscaleParameters *parameters, TimestampTz at)
{
	pgscale_table_add(parameters, TIMESTAMPTZOID, TimestampTzGetDatum(at));
}

static const char *
this_node(void)
{
	static char node[256 + MAXPGPATH] = "";
	char		host[256];

	if (!*node)
	{
		if (gethostname(host, sizeof(host)) != 0)
			strlcpy(host, "unknown", sizeof(host));
		host[sizeof(host) - 1] = '\0';
		snprintf(node, sizeof(node), "%s:%s", host, DataDir);
	}
	return node;
}

static TimeLineID
this_timeline(void)
{
	TimeLineID	timeline;

	if (!RecoveryInProgress())
		return GetWALInsertionTimeLine();
	(void) GetXLogReplayRecPtr(&timeline);
	return timeline;
}

/*
 * What setting $5 has in force.  Of one that sessions may have changed for themselves, what the files have,
 * or the default.
 */
#define IN_FORCE \
	" (SELECT CASE WHEN s.context IN ('postmaster', 'sighup') THEN pgscale_internal.setting_text(s.reset_val, s.unit)" \
	" ELSE coalesce((SELECT f.setting FROM pg_file_settings f WHERE lower(f.name) = lower($5) AND f.applied ORDER BY f.seqno DESC LIMIT 1)," \
	" pgscale_internal.setting_text(s.boot_val, s.unit)) END FROM pg_settings s WHERE lower(s.name) = lower($5))"

int64
pgscale_tuning_journal_begin(const PgscaleTuningChange *change)
{
	PgscaleParameters parameters = {0};
	int64		id;

	pgscale_table_add_here(&parameters);
	pgscale_table_add_text(&parameters, this_node());
	pgscale_table_add_bigint(&parameters, this_timeline());
	pgscale_table_add_text(&parameters, change->setting);
	pgscale_table_add_text(&parameters, change->old_value);
	pgscale_table_add_text(&parameters, change->new_value);
	pgscale_table_add_text(&parameters, GetUserNameFromId(GetSessionUserId(), false));
	pgscale_table_add_text(&parameters, GetUserNameFromId(GetUserId(), false));
	pgscale_table_add_text(&parameters, change->reason);
	add_pointer(&parameters, JSONBOID, change->evidence);
	add_pointer(&parameters, TEXTARRAYOID, change->metrics);
	add_pointer(&parameters, TIMESTAMPTZARRAYOID, change->ends);
	add_pointer(&parameters, FLOAT8ARRAYOID, change->values);
	pgscale_table_add_bigint(&parameters, change->revert_of);
	journal_execute("INSERT INTO pgscale_internal.tuning_change (cluster, database, node, timeline, setting, old_value, new_value,"
					" requested_by, acting_as, reason, evidence, metrics, metric_ends, metric_values, revert_of, old_in_force)"
					" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, nullif($15, 0),"
					IN_FORCE ")"
					" RETURNING change",
					&parameters);
	id = pgscale_table_bigint(0, 1);
	journal_finish();
	return id;
}

#define CHANGE_COLUMNS \
	"change, cluster, database, node, timeline, setting, old_value, new_value, state, revert_of, reverted_by," \
	" metrics, metric_ends, metric_values, requested_at, applied_at, effective_at"

static ArrayType *
array_column(uint64 row, int number)
{
	bool		isnull;
	Datum		value = pgscale_table_column(row, number, &isnull);

	return isnull ? NULL : DatumGetArrayTypePCopy(value);
}

static TimestampTz
time_column(uint64 row, int number)
{
	bool		isnull;
	Datum		value = pgscale_table_column(row, number, &isnull);

	return isnull ? 0 : DatumGetTimestampTz(value);
}

/* All of it is in that context. */
static void
read_change(PgscaleTuningChange *change, uint64 row, MemoryContext context)
{
	MemoryContext old = MemoryContextSwitchTo(context);

	change->id = pgscale_table_bigint(row, 1);
	change->foreign = pgscale_table_origin(pgscale_table_bigint(row, 2), pgscale_table_oid(row, 3));
	change->node = pgscale_table_text(row, 4);
	change->other_node = strcmp(change->node, this_node()) != 0;
	change->elsewhere = change->other_node || pgscale_table_bigint(row, 5) != this_timeline();
	change->setting = pgscale_table_text(row, 6);
	change->old_value = pgscale_table_text(row, 7);
	change->new_value = pgscale_table_text(row, 8);
	change->state = pgscale_table_text(row, 9);
	change->revert_of = pgscale_table_bigint(row, 10);
	change->reverted_by = pgscale_table_bigint(row, 11);
	change->metrics = array_column(row, 12);
	change->ends = array_column(row, 13);
	change->values = array_column(row, 14);
	change->requested_at = time_column(row, 15);
	change->applied_at = time_column(row, 16);
	change->effective_at = time_column(row, 17);
	MemoryContextSwitchTo(old);
}

bool
pgscale_tuning_journal_get(int64 id, PgscaleTuningChange *change)
{
	MemoryContext context = CurrentMemoryContext;
	PgscaleParameters parameters = {0};
	bool		found;

	pgscale_table_add_bigint(&parameters, id);
	found = journal_execute("SELECT " CHANGE_COLUMNS " FROM pgscale_internal.tuning_change WHERE change = $1", &parameters) == 1;
	if (found)
		read_change(change, 0, context);
	journal_finish();
	return found;
}

/* What a revert, $1, of $2 reverts: that, and by force what stands above it. */
#define REVERTED \
	" (change = $2 OR (change > $2 AND change < $1 AND state = 'applied' AND revert_of IS NULL" \
	" AND setting = (SELECT setting FROM pgscale_internal.tuning_change WHERE change = $2) AND" PGSCALE_TABLE_HERE(3, 4) ")) "

void
pgscale_tuning_journal_hold(const PgscaleTuningChange *change)
{
	PgscaleParameters parameters = {0};
	Oid			owner;
	Oid			table = pgscale_table_find(&journal, &owner);

	if (OidIsValid(table))
		LockRelationOid(table, RowExclusiveLock);
	pgscale_table_add_bigint(&parameters, change->id);
	pgscale_table_add_bigint(&parameters, change->revert_of);
	pgscale_table_add_here(&parameters);
	if (execute_all("SELECT FROM pgscale_internal.tuning_change WHERE change = $1 OR" REVERTED "ORDER BY change FOR UPDATE", &parameters) <
		(change->revert_of == 0 ? 1 : 2))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("change " INT64_FORMAT " is no longer in the tuning journal", change->id),
				 errhint("Nothing was changed.  Do not change pgscale_internal.tuning_change by hand.")));
}

void
pgscale_tuning_journal_applied(const PgscaleTuningChange *change)
{
	PgscaleParameters parameters = {0};

	pgscale_table_add_bigint(&parameters, change->id);
	if (change->applied_at != 0)
		add_time(&parameters, change->applied_at);
	else
		pgscale_table_add_null(&parameters, TIMESTAMPTZOID);
	execute_all("UPDATE pgscale_internal.tuning_change SET state = 'applied',"
				" applied_at = coalesce($2, pg_catalog.clock_timestamp()) WHERE change = $1", &parameters);
	if (change->revert_of == 0)
		return;
	parameters.n = 1;
	pgscale_table_add_bigint(&parameters, change->revert_of);
	pgscale_table_add_here(&parameters);
	execute_all("UPDATE pgscale_internal.tuning_change SET state = 'reverted', reverted_by = $1 WHERE" REVERTED, &parameters);
}

void
pgscale_tuning_journal_error(int64 id, bool failed, int sqlstate, const char *message)
{
	PgscaleParameters parameters = {0};

	pgscale_table_add_bigint(&parameters, id);
	pgscale_table_add(&parameters, BOOLOID, BoolGetDatum(failed));
	pgscale_table_add_text(&parameters, unpack_sql_state(sqlstate));
	pgscale_table_add_text(&parameters, message);
	execute_all("UPDATE pgscale_internal.tuning_change SET state = CASE WHEN $2 THEN 'failed' ELSE state END, sqlstate = $3,"
				" message = $4 WHERE change = $1", &parameters);
}

void
pgscale_tuning_journal_set(int64 id, const char *column, Oid type, Datum value)
{
	PgscaleParameters parameters = {0};

	pgscale_table_add_bigint(&parameters, id);
	pgscale_table_add(&parameters, type, value);
	execute_all(psprintf("UPDATE pgscale_internal.tuning_change SET %s = $2 WHERE change = $1", column), &parameters);
}

void
pgscale_tuning_journal_reconcile(void)
{
	MemoryContext context = CurrentMemoryContext;
	PgscaleParameters parameters = {0};
	PgscaleTuningLines lines;
	PgscaleTuningChange *changes;
	uint64		n;

	pgscale_table_add_here(&parameters);
	n = journal_execute("SELECT " CHANGE_COLUMNS " FROM pgscale_internal.tuning_change WHERE state = 'begun' AND" PGSCALE_TABLE_HERE(1, 2)
						"ORDER BY change FOR UPDATE", &parameters);
	changes = MemoryContextAlloc(context, (n + 1) * sizeof(PgscaleTuningChange));
	for (uint64 i = 0; i < n; i++)
		read_change(&changes[i], i, context);
	journal_finish();
	if (n == 0)
		return;
	pgscale_tuning_lines_read(&lines, false);
	for (uint64 i = 0; i < n; i++)
	{
		const char *line = pgscale_tuning_line_of(&lines, changes[i].setting);

		bool		made = pgscale_tuning_line_same(line, changes[i].new_value);

		if (!made && (changes[i].elsewhere || pgscale_tuning_line_same(line, changes[i].old_value)))
		{
			pgscale_tuning_journal_error(changes[i].id, true, ERRCODE_CRASH_SHUTDOWN, changes[i].elsewhere
										 ? psprintf("the session ended before it was known whether the change was made on %s;"
													" this node does not have it", changes[i].node)
										 : "the session ended before the change was made");
			continue;
		}
		changes[i].applied_at = changes[i].requested_at;	/* about then */
		pgscale_tuning_journal_applied(&changes[i]);

		/*
		 * The line is neither the old one nor the new one.  Taken for made,
		 * it can be reverted, if what has changed the line since is; and not
		 * before, as the line is not what it would have made.  Taken for not
		 * made, it could not.
		 */
		if (!made)
			pgscale_tuning_journal_set(changes[i].id, "message", TEXTOID,
									   CStringGetTextDatum("the session ended, and the line has been changed by hand since:"
														   " it is unknown whether this change was made"));
	}
	CommandCounterIncrement();
}

/* A value of the changes of the setting since this one, which the caller has to journal_finish(). */
static void
query_later(const PgscaleTuningChange *change, const char *value)
{
	PgscaleParameters parameters = {0};

	pgscale_table_add_bigint(&parameters, change->id);
	pgscale_table_add_text(&parameters, change->setting);
	pgscale_table_add_here(&parameters);
	journal_execute(psprintf("SELECT %s FROM pgscale_internal.tuning_change WHERE setting = $2 AND change > $1 AND"
							 PGSCALE_TABLE_HERE(3, 4), value), &parameters);
}

int64
pgscale_tuning_journal_later(const PgscaleTuningChange *change)
{
	int64		later;

	query_later(change, "max(change) FILTER (WHERE state = 'applied' AND revert_of IS NULL)");
	later = pgscale_table_bigint(0, 1);
	journal_finish();
	return later;
}

int
pgscale_tuning_journal_others(int64 id, TimestampTz since, TimestampTz until)
{
	PgscaleParameters parameters = {0};
	int64		others;

	pgscale_table_add_bigint(&parameters, id);
	add_time(&parameters, since);
	add_time(&parameters, until);
	pgscale_table_add_bigint(&parameters, (int64) GetSystemIdentifier());
	journal_execute("SELECT count(*) FROM pgscale_internal.tuning_change WHERE change <> $1 AND cluster = $4"
					" AND coalesce(effective_at, applied_at) BETWEEN $2 AND $3", &parameters);
	others = pgscale_table_bigint(0, 1);
	journal_finish();
	return (int) others;
}

TimestampTz
pgscale_tuning_journal_next(const PgscaleTuningChange *change)
{
	TimestampTz next;

	query_later(change, "min(applied_at)");
	next = time_column(0, 1);
	journal_finish();
	return next == 0 ? DT_NOEND : next;
}

TimestampTz
pgscale_tuning_journal_effective_at(const PgscaleTuningChange *change)
{
	struct config_generic *record = pgscale_compat_find_setting(change->setting);
	TimestampTz seen;

	if (change->effective_at != 0)
		return change->effective_at;
	if (change->applied_at == 0)
		return 0;
	if (PgStartTime > change->applied_at)
		return PgStartTime;
	if (!record || record->context == PGC_POSTMASTER)
		return 0;
	seen = pgscale_preload_done() ? pgscale_tuning_set_at(record->name) : 0;
	if (seen > change->applied_at)
		return seen;
	return PgReloadTime > change->applied_at ? PgReloadTime : 0;
}

/*
 * What a change's state is, in view of the file and of the server.  begun: its row
 * is followed by one of a session that is at it, or has ended in the middle, and
 * may have made the line what begun_value is.
 */
static const char *
state_shown(const PgscaleTuningChange *change, bool superseded, bool begun, const char *begun_value,
			const PgscaleTuningLines *lines)
{
	struct config_generic *record;
	const char *line;

	if (change->foreign)
		return psprintf("of %s", change->foreign);
	if (strcmp(change->state, PGSCALE_CHANGE_APPLIED) != 0)
		return change->state;
	if (superseded)
		return "superseded";
	if (!lines->known)
		return "unknown: " PG_AUTOCONF_FILENAME " cannot be read";
	line = pgscale_tuning_line_of(lines, change->setting);
	if (!pgscale_tuning_line_same(line, change->new_value))
	{
		if (begun && pgscale_tuning_line_same(line, begun_value))
			return "superseded";
		return change->elsewhere ? "not on this node" : "changed by hand";
	}
	record = pgscale_compat_find_setting(change->setting);
	if (record && (record->status & GUC_PENDING_RESTART))
		return "pending restart";
	/* what the command line sets, no file changes */
	if (record && record->reset_source == PGC_S_ARGV)
		return "overridden";
	if (pgscale_tuning_journal_effective_at(change) == 0)
		return PgReloadTime > change->applied_at ? PGSCALE_CHANGE_APPLIED : "pending reload";
	return PGSCALE_CHANGE_APPLIED;
}

/*
 * Each change with what has followed it in its journal: one that stands
 * (superseded), and the last one that is begun.  Sorted once: a look from each
 * row at those that follow it takes seconds where there are thousands.
 */
#define FOLLOWED \
	"(SELECT *, CASE WHEN revert_of IS NULL THEN bool_or(state = 'applied' AND revert_of IS NULL) OVER later" \
	" ELSE bool_or(state = 'applied') OVER later END AS superseded," \
	" max(change) FILTER (WHERE state = 'begun') OVER later AS begun" \
	" FROM pgscale_internal.tuning_change WINDOW later AS (PARTITION BY cluster, database, setting ORDER BY change DESC" \
	" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))"

static void
put_value(Datum *value, bool *null, const char *setting, const char *text)
{
	const char *shown = pgscale_tuning_line_shown(setting, text, pgscale_tuning_line_visible(setting) ? "(hidden)" : NULL);

	*null = !shown;
	if (shown)
		*value = CStringGetTextDatum(shown);
}

/* What tuning_journal() shows, in its order, behind the columns that are read for it. */
#define JOURNAL_COLUMNS \
	"change, setting, old_value, new_value, state, requested_by, acting_as, requested_at, applied_at, effective_at, reason, evidence," \
	" outcome, revert_of, reverted_by, sqlstate, message, node, old_in_force"
#define JOURNAL_FIRST	21

/*
 * pgscale_internal.tuning_journal(): values that the user may not see are NULL, and what seems to be a
 * secret is hidden from all but superusers.
 */
Datum
pgscale_tuning_journal(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	MemoryContext context = CurrentMemoryContext;
	PgscaleParameters none = {0};
	PgscaleTuningLines lines;
	uint64		n;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	pgscale_tuning_lines_read(&lines, true);
	n = journal_execute("SELECT " CHANGE_COLUMNS ", superseded, begun IS NOT NULL, begun_value, " JOURNAL_COLUMNS
						" FROM " FOLLOWED " c LEFT JOIN (SELECT change AS begun, new_value AS begun_value"
						" FROM pgscale_internal.tuning_change) b USING (begun) ORDER BY change", &none);
	for (uint64 i = 0; i < n; i++)
	{
		PgscaleTuningChange change;
		Datum		values[19] = {0};
		bool		nulls[19] = {0};
		bool		visible;
		const char *state;
		TimestampTz effective_at;

		read_change(&change, i, context);
		visible = pgscale_tuning_line_visible(change.setting);
		state = state_shown(&change, pgscale_table_bool(i, 18), pgscale_table_bool(i, 19), pgscale_table_text(i, 20), &lines);

		/*
		 * what this server says of itself is nothing about a line that it has
		 * not got
		 */
		effective_at = change.foreign ||
			(change.elsewhere && !pgscale_tuning_line_same(pgscale_tuning_line_of(&lines, change.setting),
														   change.new_value))
			? change.effective_at : pgscale_tuning_journal_effective_at(&change);
		for (int column = 0; column < lengthof(values); column++)
			values[column] = pgscale_table_column(i, JOURNAL_FIRST + column, &nulls[column]);
		put_value(&values[2], &nulls[2], change.setting, change.old_value);
		put_value(&values[3], &nulls[3], change.setting, change.new_value);
		values[4] = CStringGetTextDatum(state);
		values[9] = TimestampTzGetDatum(effective_at);
		nulls[9] = effective_at == 0;
		/* of an error: it may quote them */
		nulls[16] |= !visible || (pgscale_secret_setting(change.setting, change.new_value) && !superuser());
		nulls[17] = !pgscale_tuning_line_visible("data_directory");
		put_value(&values[18], &nulls[18], change.setting, nulls[18] ? NULL : TextDatumGetCString(values[18]));
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	journal_finish();
	return (Datum) 0;
}
