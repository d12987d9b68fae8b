/*-------------------------------------------------------------------------
 *
 * archive.c
 *	  The archive: one row for each minute, in tables of one database.
 *
 * A launcher (round_launcher.c) starts a process each minute (round.c).  That process
 * writes the deltas of the wait profile and of the server's counters (deltas.c).  SQL
 * defines the contents: round.sql has the row, counters.sql the counters,
 * partitions.sql the partitions.
 *
 * Why tables and not files: DBAs can back them up, replicate and query them with their
 * usual tools, and a table follows the primary.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "utils/guc.h"

#include "archive/archive.h"
#include "archive/round_launcher.h"
#include "base/texts.h"

/* If the launcher has not looked for that long, something is wrong. */
#define STALLED_MS	30000

char	   *pgscale_archive_database;
int			pgscale_archive_retention;
int			pgscale_archive_detail;
int			pgscale_archive_top;

static void
archive_define_gucs(void)
{
	DefineCustomStringVariable("pgscale.archive_database",
							   "Database, with the extension, in which the archive is kept.",
							   "Empty: no archive. It takes a worker slot, and a second one for moments.",
							   &pgscale_archive_database, "",
							   PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.archive_retention",
							"Age in days at which the archive drops a day.",
							NULL,
							&pgscale_archive_retention, 35, 1, 3650,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.archive_detail",
							"Age in days at which the archive rolls minutes up to hours.",
							"An hour takes as much disk space as a minute.",
							&pgscale_archive_detail, 7, 1, 3650,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.archive_top",
							"Number of the longest waits of a minute that get a row of their own in the archive.",
							"The rest is one row.",
							&pgscale_archive_top, 200, 1, 1000,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
}

/* A text of the archive's database, whose encoding may be another one than here. */
static const char *
error_text(const PgscaleArchiveError *error, const char *text)
{
	return pgscale_text_line(text, error->encoding, PGSCALE_ARCHIVE_MESSAGE);
}

/* What to do about an error of a round: by whose function raised it, and by its class. */
static const char *
action_about(const PgscaleArchiveError *error)
{
	switch (error->sqlstate)
	{
		case ERRCODE_DISK_FULL:
			return "free disk space, or lower pgscale.archive_retention; the archive then resumes by itself";
		case ERRCODE_ADMIN_SHUTDOWN:
		case ERRCODE_QUERY_CANCELED:
			return "nothing, unless it lasts; then see the server log";
	}
	if (error->function[0] != '\0')
		return psprintf("in database \"%s\": fix the function %s, which is not a part of pgscale, or disable the event"
						" trigger that calls it (ALTER EVENT TRIGGER ... DISABLE); the archive then resumes by itself",
						pgscale_archive_database, error_text(error, error->function));
	switch (error->sqlstate)
	{
		case ERRCODE_UNDEFINED_SCHEMA:
			return psprintf("in database \"%s\": give the schema its name back, or drop and create an extension of an older version", pgscale_archive_database);
		case ERRCODE_WRONG_OBJECT_TYPE:
			return psprintf("in database \"%s\": drop the trigger or rule on this table, or give the table back to a superuser",
							pgscale_archive_database);
		case ERRCODE_UNDEFINED_TABLE:
		case ERRCODE_UNDEFINED_COLUMN:
		case ERRCODE_UNDEFINED_FUNCTION:
		case ERRCODE_UNDEFINED_OBJECT:
		case ERRCODE_DATATYPE_MISMATCH:
		case ERRCODE_CANNOT_COERCE:
			return psprintf("in database \"%s\": CREATE EXTENSION pgscale; if it is there, ALTER EXTENSION pgscale UPDATE, or undo what has"
							" changed its tables and functions", pgscale_archive_database);
		case ERRCODE_UNIQUE_VIOLATION:
			return "nothing: the archive resumes by itself when the clock has passed these rows; check the clock";
		case ERRCODE_LOCK_NOT_AVAILABLE:
			return "end the session that has locked pgscale_internal.archive_minute or one of its partitions, or has read "
				"them in a transaction that is still open";
		default:
			return "see the server log; the archive resumes by itself when the cause is gone";
	}
}

static void
tell_broken(PgscaleHealth *health, const char *reason, const char *action)
{
	health->state = PGSCALE_HEALTH_BROKEN;
	health->reason = reason;
	health->action = action;
}

static void
tell_rounds(PgscaleHealth *health, const PgscaleArchiveState *state)
{
	const PgscaleArchiveError *row = &state->errors[PGSCALE_ARCHIVE_ROW];
	const PgscaleArchiveError *upkeep = &state->errors[PGSCALE_ARCHIVE_UPKEEP];
	const PgscaleArchiveError *pull = &state->errors[PGSCALE_ARCHIVE_PULL];

	if (row->sqlstate != 0)
		tell_broken(health, psprintf("the latest round failed: %s", error_text(row, row->message)), action_about(row));
	else if (upkeep->sqlstate != 0)
		tell_broken(health, psprintf("rows are written, but partitions are not made, rolled up or dropped: %s",
									 error_text(upkeep, upkeep->message)),
					action_about(upkeep));
	else if (pull->sqlstate == ERRCODE_CONNECTION_FAILURE)
		tell_broken(health, psprintf("its own rows are written, but not those of all nodes: %s", error_text(pull, pull->message)),
					"see pgscale.archive_nodes; a node that answers again brings what its memory has, up to an hour");
	else if (pull->sqlstate != 0 && pull->sqlstate != ERRCODE_WARNING)
		tell_broken(health, psprintf("its own rows are written, but not those of other nodes: %s", error_text(pull, pull->message)),
					action_about(pull));
	else if (state->written_at == 0)
	{
		health->state = PGSCALE_HEALTH_STARTING;
		health->reason = "the first row is written after at most two periods";
	}
	else
	{
		health->state = PGSCALE_HEALTH_WORKING;
		health->reason = pull->sqlstate == ERRCODE_WARNING ?
			psprintf("a row is written each period; of other nodes: %s", error_text(pull, pull->message)) : "a row is written each period";
	}
}

static void
archive_health(PgscaleHealth *health)
{
	PgscaleArchiveState state;

	if (!pgscale_health_preloaded(health, "pgscale.archive_database", false))
		return;
	pgscale_archive_state(&state);
	if (pgscale_archive_database[0] == '\0')
	{
		health->state = PGSCALE_HEALTH_OFF;
		health->reason = "no database is named for it";
		health->action = "set pgscale.archive_database to one that has the extension, and reload";
		return;
	}
	if (RecoveryInProgress())
	{
		health->state = PGSCALE_HEALTH_IDLE;
		health->reason = "this is a standby: its primary writes the archive, and this server does after a promotion";
		return;
	}
	if (!pgscale_health_worker(health, &pgscale_archive_module, state.launcher_pid, state.starts, state.last_ns, STALLED_MS))
		return;
	switch (state.obstacle)
	{
		case PGSCALE_ARCHIVE_OFF:	/* the worker does not know of the reload
									 * yet */
			health->state = PGSCALE_HEALTH_STARTING;
			health->reason = "it was switched on a moment ago";
			break;
		case PGSCALE_ARCHIVE_NO_DATABASE:
			tell_broken(health, psprintf("database \"%s\" does not exist", pgscale_archive_database),
						"set pgscale.archive_database to one that has the extension, and reload");
			break;
		case PGSCALE_ARCHIVE_CLOSED:
			tell_broken(health, psprintf("database \"%s\" takes no connections", pgscale_archive_database),
						"ALTER DATABASE ... ALLOW_CONNECTIONS true, or name another one in pgscale.archive_database and reload");
			break;
		case PGSCALE_ARCHIVE_NO_SLOT:
			tell_broken(health, "the server has no slot for another background worker", "raise max_worker_processes and restart");
			health->no_slot = true;
			break;
		case PGSCALE_ARCHIVE_READY:
			tell_rounds(health, &state);
			break;
	}
}

/* What a row is made of. */
static const char *const asks[] = {
	"pgscale_internal.connections_peak", "pgscale_internal.fleet_ask", "pgscale.node_identity", "pgscale_internal.node_key",
	"pgscale_internal.past_coverage", "pgscale.past_waits", "pgscale.relocation_jobs",
	"pgscale_internal.past_queries", "pgscale_internal.sampler_stats", "pgscale_internal.sweeper_stats",
	"pgscale_internal.wait_history", "pgscale_internal.wait_profile", "pgscale_internal.writeback_stats", NULL
};

const PgscaleModule pgscale_archive_module = {
	.name = "archive",
	.define_gucs = archive_define_gucs,
	.areas = (const PgscaleArea *const[]) {&pgscale_archive_area, &pgscale_archive_baseline_area, NULL},
	.worker = &pgscale_archive_launcher,
	.health = archive_health,
	.has_tables = true,
	.asks = asks,
};
