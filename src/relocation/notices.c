/*-------------------------------------------------------------------------
 *
 * notices.c
 *	  What the request of a move says to its user.
 *
 * A notice is for what an error would be too much: the move is possible, and has an effect that the user may not expect.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_inherits.h"
#include "catalog/pg_type_d.h"
#include "commands/tablespace.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"

#include "base/sql.h"
#include "base/units.h"
#include "relocation/checks.h"
#include "relocation/notices.h"
#include "relocation/relocation.h"
#include "relocation/wal_readers.h"

void
pgscale_relocation_notice_readers(int64 bytes)
{
	char		who[192];

	if (pgscale_relocation_wal_slot_at_risk(bytes, true, who, sizeof(who)))
		ereport(NOTICE,
				(errmsg("moves write " INT64_FORMAT " MB of WAL, and wait before there is no room for it: %s", bytes / PGSCALE_MB, who),
				 errhint("Find out why that WAL is not read, or drop the slot. Moves go on by themselves when it is.")));
}

void
pgscale_relocation_notice_standbys(Oid target, int64 bytes)
{
	const int	settings = pgscale_sql_names();
	PgscaleRows rows;

	pgscale_sql_query("SELECT WHERE EXISTS (SELECT FROM pg_replication_slots WHERE slot_type = 'physical') OR EXISTS"
					  " (SELECT FROM pg_stat_get_wal_senders() w WHERE w.state <> 'backup' AND w.pid NOT IN"
					  "  (SELECT active_pid FROM pg_replication_slots WHERE active_pid IS NOT NULL))",
					  0, NULL, NULL, true, 0, &rows);
	AtEOXact_GUC(true, settings);
	if (rows.nrows > 0)
		ereport(NOTICE,
				(errmsg("each standby needs the same room in tablespace \"%s\": %.1f MB", get_tablespace_name(target), bytes / (double) PGSCALE_MB),
				 errdetail("That is what all queued moves to it may write, beside the old files. A standby whose disk is full stops.")));
}

void
pgscale_relocation_notice_children(Oid table, Oid target)
{
	int64		bytes = 0;
	int			n = 0;
	ListCell   *cell;

	if (pgscale_relocation_is_partitioned(table) || !has_subclass(table))
		return;
	foreach(cell, find_all_inheritors(table, AccessShareLock, NULL))
	{
		if (lfirst_oid(cell) == table || pgscale_relocation_tablespace_of(lfirst_oid(cell)) == target)
			continue;
		bytes += pgscale_relocation_size_of(lfirst_oid(cell));
		n++;
	}
	if (n > 0)
		ereport(NOTICE,
				(errmsg_plural("%d table that inherits from \"%s\" is not moved with it: %.1f MB",
							   "%d tables that inherit from \"%s\" are not moved with it: %.1f MB",
							   n, n, get_rel_name(table), bytes / (double) PGSCALE_MB),
				 errhint("Only partitions are; move these, or their indexes, by calls of their own.")));
}

void
pgscale_relocation_notice_unverified(Oid index)
{
	const char *hint;
	const char *why = pgscale_relocation_cannot_amcheck(index, &hint);

	if (why)
		ereport(NOTICE,
				(errmsg("\"%s\" will be moved, but its contents will not be verified: %s", get_rel_name(index), why),
				 errhint("%s", hint)));
}

void
pgscale_relocation_notice_unique_rebuilds(int n)
{
	if (n > 0)
		ereport(NOTICE,
				(errmsg_plural("while %d unique index is built anew, INSERT ... ON CONFLICT may raise unique violations on its table",
							   "while %d unique indexes are built anew, INSERT ... ON CONFLICT may raise unique violations on their tables",
							   n, n),
				 errhint("mode => 'online', the default, does not have this effect.")));
}

void
pgscale_relocation_notice_lock(PgscaleRelocationJob *job, double rate)
{
	double		mb = (double) pgscale_relocation_size_of(job->relation) / PGSCALE_MB;

	job->block_ms = rate > 0 ? mb * PGSCALE_MB / rate * 1000 : -1;
	if (rate > 0)
		ereport(NOTICE,
				(errmsg("all use of \"%s\" will wait for about %.1f s: %.0f MB at %.0f MB/s",
						get_rel_name(job->relation), job->block_ms / 1000, mb, rate / PGSCALE_MB),
				 errdetail("The rate is what direct reads of one disk and direct writes of the other give now; "
						   "the WAL of the move comes on top.")));
	else
		ereport(NOTICE,
				(errmsg("all use of \"%s\" will wait while its %.0f MB are copied, at a rate that could not be measured",
						get_rel_name(job->relation), mb)));
}

void
pgscale_relocation_notice_online(PgscaleRelocationJob *job)
{
	const double mb = (double) pgscale_relocation_size_of(job->relation) / PGSCALE_MB;

	job->block_ms = -1;
	if (!pgscale_relocation_is_partitioned(job->relation))
		ereport(NOTICE,
				(errmsg("\"%s\" stays in use while %.1f MB are copied", get_rel_name(job->relation), mb),
				 errdetail("This takes as much room in tablespace \"%s\", and as much WAL; the old files are removed at the end.",
						   get_tablespace_name(job->target))));
}

void
pgscale_relocation_notice_staying(Oid tablespace)
{
	const Oid	types[2] = {OIDOID, OIDOID};
	const Datum values[2] = {ObjectIdGetDatum(tablespace == MyDatabaseTableSpace ? InvalidOid : tablespace), ObjectIdGetDatum(tablespace)};
	const int	settings = pgscale_sql_names();
	PgscaleRows rows;

	pgscale_sql_query("SELECT kind, pg_size_pretty(sum(pgscale_internal.relocation_bytes(relation, true, false))), cure"
					  "  FROM pgscale_internal.relocation_staying($1) GROUP BY kind, cure"
					  " UNION ALL "
					  "SELECT format('relations of other databases (%s)', string_agg(quote_ident(d.datname), ', ' ORDER BY d.datname)),"
					  "       coalesce(pg_size_pretty(sum(pgscale_internal.relocation_database_bytes($2, d.oid))), 'unknown size'),"
					  "       'Call pgscale.relocate_tablespace() in each of them.'"
					  "  FROM pg_tablespace_databases($2) t(oid) JOIN pg_database d USING (oid)"
					  " WHERE d.datname <> current_database() AND d.datallowconn HAVING count(*) > 0"
					  " ORDER BY 1", lengthof(types), types, values, true, 0, &rows);
	AtEOXact_GUC(true, settings);
	for (int row = 0; row < rows.nrows; row++)
		ereport(NOTICE,
				(errmsg("%s stay in tablespace \"%s\": %s", pgscale_rows_text(&rows, row, 0), get_tablespace_name(tablespace),
						pgscale_rows_text(&rows, row, 1)),
				 errhint("%s", pgscale_rows_text(&rows, row, 2))));
}
