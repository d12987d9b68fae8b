/*-------------------------------------------------------------------------
 *
 * plan.c
 *	  What to move: which indexes and tables would gain how much in another
 *	  tablespace, and which of them to take there when it has only so much
 *	  room.
 *
 * The server counts, for each relation, the blocks that were not in shared
 * buffers.  Two looks at these counts, a window apart, tell what is read now.
 * Some of it the kernel's cache answers; how much the counts do not tell, but
 * time does, if the server measures it (track_io_timing): let f be the time that
 * all reads of this database took in the window, divided by what they would
 * have taken had each gone to its device, which a probe times.  Then
 *
 *		time of a relation's reads here  = reads * latency here * f
 *		how many of them the device sees = reads * least(1, f)
 *		time of them there               = those * latency there
 *
 * f may be larger than 1: requests queue when many sessions read at a time, and
 * the probe, which has one under way, knows nothing of that.  With all that is
 * read in one tablespace, the first line is reads * the mean time of a read, and
 * the probe only says how many reads the device saw.  Reads that the kernel
 * answers cost the same here and there.
 *
 * Without measured times, the share of a relation that the kernel has in its
 * cache stands for the share of reads that it answers, which is a guess: the
 * reason says so.
 *
 * What is built or rewritten in the window is read by that and not by queries,
 * or has counts that are not its own: such rows are shown, and not chosen.
 *
 * Locking.  No relation's: sizes are those that relation_os_cache() finds, past
 * smgr, since pg_relation_size() would wait for whoever locks a relation.  What
 * is dropped meanwhile has no row.  As any query that runs for so long, this one
 * holds back the horizon of VACUUM while it waits.
 *
 * Privileges.  All is done as the caller, who needs pg_monitor's to see what
 * others build, and EXECUTE on tablespace_latency().
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_tablespace_d.h"
#include "catalog/pg_type.h"
#include "commands/tablespace.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/timer.h"
#include "base/units.h"
#include "relocation/checks.h"

#define NS_IN_S			1e9

/* How often to look for what is built, as long as the window lasts. */
#define LOOK_MS				1000

/*
 * What a move must save at least, in ms of all sessions' waiting in a second: a
 * hundredth of one session.  Below it a window tells chance from gain no more.
 */
#define LEAST_GAIN_MS		10.0

#define MAX_WINDOW_MS		(SECS_PER_DAY * 1000)

PG_FUNCTION_INFO_V1(pgscale_relocation_plan);

/* What the server's statistics say at one moment; arrays have an element a relation. */
typedef struct Look
{
	int64		at;
	Datum		relations;
	Datum		filenodes;
	Datum		reads;
	double		read_ms;		/* of this database */
	TimestampTz reset;			/* 0: never */
} Look;

static const char *const look_query =
"SELECT array_agg(c.oid), array_agg(c.relfilenode),"
"       array_agg(pg_stat_get_blocks_fetched(c.oid) - pg_stat_get_blocks_hit(c.oid)),"
"       pg_stat_get_db_blk_read_time(d.oid), pg_stat_get_db_stat_reset_time(d.oid)"
"  FROM pg_class c, pg_database d"
" WHERE d.datname = current_database() AND c.relkind IN ('r', 'm', 't', 'i', 'S') AND NOT c.relisshared"
" GROUP BY d.oid";

/* Adds to $1 what is being built or rewritten: index, and table. */
static const char *const built_query =
"SELECT coalesce(array_agg(DISTINCT built), '{}')"
"  FROM (SELECT unnest($1) AS built"
"        UNION ALL"
"        SELECT unnest(ARRAY[index_relid, relid]) FROM pg_stat_progress_create_index WHERE datname = current_database()"
"        UNION ALL"
"        SELECT relid FROM pg_stat_progress_cluster WHERE datname = current_database()) b";

static const char *const target_query =
"SELECT read_ms, reason, spread, device FROM pgscale.tablespace_latency($1)";

/*
 * $1-$3 the first look, $4-$6 the second, $7 ms of reads in between, $8 the
 * seconds, $9 what was built, $10-$12 target: OID, name, latency, $13 budget,
 * $14 and $15 of the target: spread of the probe, device; $16 the least gain.
 */
static const char *const plan_query =
"WITH RECURSIVE part AS MATERIALIZED ("
/* Each relation, and the one that it is moved with: TOAST moves with its table. */
"    SELECT c.oid AS part, coalesce(owner.oid, c.oid) AS relation, c.reltuples, c.relpages,"
"           coalesce(nullif(c.reltablespace, 0), d.dattablespace) AS tablespace,"
"           CASE WHEN b.filenode = a.filenode THEN b.reads - a.reads ELSE 0 END::float8 AS reads,"
"           b.filenode IS DISTINCT FROM a.filenode OR c.oid = ANY ($9) AS built"
"      FROM pg_class c"
"      JOIN unnest($4, $5, $6) AS b(relation, filenode, reads) ON b.relation = c.oid"
"      JOIN pg_database d ON d.datname = current_database()"
"      LEFT JOIN unnest($1, $2, $3) AS a(relation, filenode, reads) ON a.relation = c.oid"
"      LEFT JOIN pg_index x ON x.indexrelid = c.oid"
"      LEFT JOIN pg_class owner ON owner.reltoastrelid = coalesce(x.indrelid, c.oid)"
"), latency AS MATERIALIZED ("
"    SELECT s.oid, s.spcname, l.read_ms, l.reason, l.spread, l.device"
"      FROM (SELECT DISTINCT tablespace FROM part WHERE reads > 0 AND tablespace <> $10 OFFSET 0) t"
"      JOIN pg_tablespace s ON s.oid = t.tablespace"
"      CROSS JOIN LATERAL pgscale.tablespace_latency(s.spcname) l"
"    UNION ALL"
"    SELECT $10, $11, $12, NULL, $14, $15"
"), factor AS MATERIALIZED ("
"    SELECT CASE WHEN $7 > 0 THEN $7 / nullif(sum(p.reads * l.read_ms), 0) END AS f"
"      FROM part p JOIN latency l ON l.oid = p.tablespace"
"), file AS ("
"    SELECT relation::oid AS part, sum(size_bytes) AS size, sum(os_cache_bytes) AS kernel"
"      FROM pgscale.relation_os_cache()"
"     GROUP BY 1"
"), movable AS MATERIALIZED ("
"    SELECT CASE c.relkind WHEN 'i' THEN 'index' ELSE 'table' END AS kind, c.oid AS relation,"
"           format('%I.%I', n.nspname, c.relname) AS name,"
"           coalesce(nullif(c.reltablespace, 0), d.dattablespace) AS tablespace,"
"           a.amname, c.reloptions, x.indrelid, x.indkey"
"      FROM pg_class c"
"      JOIN pg_namespace n ON n.oid = c.relnamespace"
"      JOIN pg_database d ON d.datname = current_database()"
"      LEFT JOIN pg_am a ON a.oid = c.relam"
"      LEFT JOIN pg_index x ON x.indexrelid = c.oid"
"     WHERE c.relkind IN ('r', 'm', 'i') AND c.relpersistence <> 't'"
"       AND c.oid >= 16384 AND n.nspname NOT IN ('pg_catalog', 'pg_toast')"
"       AND x.indisexclusion IS NOT TRUE AND x.indisvalid IS NOT FALSE"
"       AND coalesce(nullif(c.reltablespace, 0), d.dattablespace) <> $10"
"), read AS MATERIALIZED ("
"    SELECT m.*, p.reads, p.built, p.unknown, p.size, p.tuples,"
"           CASE WHEN NOT (p.built OR p.unknown) THEN p.here END AS here,"
"           CASE WHEN NOT (p.built OR p.unknown) THEN p.physical END AS physical"
"      FROM movable m"
"      JOIN (SELECT p.relation, sum(p.reads) AS reads, bool_or(p.built) AS built,"
"                   bool_or(p.reads > 0 AND l.read_ms IS NULL) AS unknown,"
"                   sum(p.reads * l.read_ms * coalesce(f.f, 1 - coalesce(k.cached, 0))) AS here,"
"                   sum(p.reads * least(1, coalesce(f.f, 1 - coalesce(k.cached, 0)))) AS physical,"
"                   sum(k.size) AS size,"
/* As the planner does: density when last counted, times the present size */
"                   sum(p.reltuples * k.size / nullif(p.relpages, 0) / current_setting('block_size')::float8)"
"                       FILTER (WHERE p.part = p.relation AND p.reltuples >= 0) AS tuples"
"              FROM part p"
"              CROSS JOIN factor f"
"              LEFT JOIN latency l ON l.oid = p.tablespace"
"              LEFT JOIN (SELECT part, size, kernel / nullif(size, 0)::float8 AS cached FROM file) k ON k.part = p.part"
"             GROUP BY 1) p USING (relation)"
"     WHERE p.reads > 0 OR p.built"
"), width AS ("
/* A btree's tuple: header, 8 bytes more with a map of nulls; key, aligned; line pointer */
"    SELECT r.relation, r.tuples,"
"           CASE WHEN bool_or(s.null_frac > 0) THEN 16 ELSE 8 END"
"           + 8 * ceil(sum(s.avg_width * (1 - s.null_frac)) / 8) + 4 AS tuple,"
"           coalesce((SELECT option_value::float8 FROM pg_options_to_table(r.reloptions)"
"                      WHERE option_name = 'fillfactor'), 90) / 100 AS fill,"
"           current_setting('block_size')::float8 AS page"
"      FROM read r"
"      CROSS JOIN LATERAL unnest(r.indkey) WITH ORDINALITY AS k(attnum, position)"
/* An expression's statistics are the index's, by its own column. */
"      JOIN pg_attribute a ON a.attrelid = CASE k.attnum WHEN 0 THEN r.relation ELSE r.indrelid END"
"                         AND a.attnum = CASE k.attnum WHEN 0 THEN k.position ELSE k.attnum END"
"      JOIN pg_class c ON c.oid = a.attrelid"
"      JOIN pg_namespace n ON n.oid = c.relnamespace"
"      LEFT JOIN pg_stats s ON s.schemaname = n.nspname AND s.tablename = c.relname"
"                          AND s.attname = a.attname AND NOT s.inherited"
"     WHERE r.amname = 'btree'"
"     GROUP BY r.relation, r.tuples, r.reloptions"
"    HAVING count(*) = count(s.avg_width)"
"), rebuilt AS ("
/* Pages have 40 bytes of header and special space, and a high key; inner pages are 70 % full; one page is meta. */
"    SELECT relation, (2 + ceil(leaves * fanout / greatest(fanout - 1, 1))) * page AS size"
"      FROM (SELECT relation, page, floor((page - 40) * 0.7 / tuple) AS fanout,"
"                   ceil(tuples / greatest(floor((page * fill - 40) / tuple) - 1, 1)) AS leaves"
"              FROM width) w"
"), rated AS ("
"    SELECT r.*, least(r.size, b.size)::bigint AS size_after, r.physical * $12 AS there,"
"           (r.here - r.physical * $12) / $8 AS saved"
"      FROM read r LEFT JOIN rebuilt b USING (relation)"
"), ranked AS MATERIALIZED ("
"    SELECT *, CASE WHEN gains THEN"
"           row_number() OVER (PARTITION BY gains ORDER BY saved / greatest(size_after, 1) DESC, relation) END AS rank"
/* By the slowest round there; and here by the fastest, where the probe is all that is known. */
"      FROM (SELECT r.*, l.device IS NOT DISTINCT FROM $15 AS same_device,"
"                   saved >= $16 AND l.device IS DISTINCT FROM $15"
"                   AND here / CASE WHEN f.f IS NULL THEN l.spread ELSE 1 END - there * $14 > here * 0.2 AS gains"
"              FROM rated r CROSS JOIN factor f LEFT JOIN latency l ON l.oid = r.tablespace) r"
"), sizes AS MATERIALIZED ("
"    SELECT array_agg(coalesce(size_after, 0) ORDER BY rank) AS size FROM ranked WHERE rank IS NOT NULL"
"), greedy AS ("
/* Down the ranks, taking what still fits. */
"    SELECT 0::bigint AS rank, false AS chosen, $13 AS left_bytes"
"    UNION ALL"
"    SELECT g.rank + 1, g.next <= g.left_bytes, g.left_bytes - CASE WHEN g.next <= g.left_bytes THEN g.next ELSE 0 END"
"      FROM (SELECT rank, left_bytes, (SELECT size FROM sizes)[rank + 1] AS next FROM greedy) g"
"     WHERE g.next IS NOT NULL"
")"
"SELECT r.kind, r.relation::regclass, l.spcname, r.size::bigint, r.size_after,"
"       r.reads / $8, r.physical / $8, r.here / nullif(r.reads, 0), r.there / nullif(r.reads, 0),"
"       r.saved, r.saved / greatest(r.size_after, 1) * 1024 ^ 3, coalesce(g.chosen, false),"
"       CASE r.kind WHEN 'index' THEN format('SELECT pgscale.relocate_index(%L, %L);', r.name, $11)"
"                   ELSE format('SELECT pgscale.relocate_table(%L, %L, mode => ''lock'');', r.name, $11) END,"
"       CASE WHEN r.built THEN 'discarded: built or rewritten during the window'"
"            ELSE concat_ws('; ',"
"                 CASE WHEN r.unknown THEN 'latency here is unknown: ' || t.reason"
"                      WHEN g.chosen THEN 'chosen'"
"                      WHEN r.gains THEN 'does not fit into the budget'"
"                      WHEN r.same_device THEN 'is on the same device: ' || $15"
"                      ELSE 'saves too little' END,"
"                 CASE WHEN f.f IS NULL THEN 'an estimate: no read was timed, so the kernel''s cache stands for what it answers' END)"
"       END"
"  FROM ranked r"
"  CROSS JOIN factor f"
"  JOIN pg_tablespace l ON l.oid = r.tablespace"
"  LEFT JOIN latency t ON t.oid = r.tablespace"
"  LEFT JOIN greedy g ON g.rank = r.rank"
" ORDER BY g.chosen DESC NULLS LAST, r.saved DESC NULLS LAST, r.relation";

static void
raise_null(const char *argument, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("%s must not be null", argument),
			 errhint("%s", hint)));
}

/* In milliseconds. */
static int64
window_of(const Interval *interval)
{
	const double ms = pgscale_interval_ms(interval);

	if (ms < 1 || ms > MAX_WINDOW_MS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("duration must be from a millisecond to a day"),
				 errhint("Name a time in which the server does its usual work, such as interval '1 minute'.")));
	return (int64) ms;
}

/* Runs a query, which must have an answer; from then on SPI_tuptable is that. */
static void
run_query(const char *text, int nargs, const Oid *types, const Datum *values, const char *nulls)
{
	const int	result = SPI_execute_with_args(text, nargs, (Oid *) types, (Datum *) values, nulls, false, 0);

	if (result != SPI_OK_SELECT)
		elog(ERROR, "SPI_execute_with_args failed: %s", SPI_result_code_string(result));
}

/* A column of the answer's first row, in the memory of whoever called us. */
static Datum
plan_answer(int column, bool *isnull)
{
	const TupleDesc desc = SPI_tuptable->tupdesc;
	const Form_pg_attribute attribute = TupleDescAttr(desc, column - 1);
	const Datum value = SPI_getbinval(SPI_tuptable->vals[0], desc, column, isnull);

	return *isnull ? (Datum) 0 : SPI_datumTransfer(value, attribute->attbyval, attribute->attlen);
}

static void
plan_look(Look *look)
{
	bool		isnull;

	pgstat_clear_snapshot();
	run_query(look_query, 0, NULL, NULL, NULL);
	look->at = pgscale_timer_clock();
	look->relations = plan_answer(1, &isnull);
	look->filenodes = plan_answer(2, &isnull);
	look->reads = plan_answer(3, &isnull);
	look->read_ms = DatumGetFloat8(plan_answer(4, &isnull));
	look->reset = DatumGetTimestampTz(plan_answer(5, &isnull));
	SPI_freetuptable(SPI_tuptable);
}

/* Adds what is being built. */
static Datum
look_for_built(Datum built)
{
	const Oid	type = OIDARRAYOID;
	Datum		more;
	bool		isnull;

	pgstat_clear_snapshot();
	run_query(built_query, 1, &type, &built, NULL);
	more = plan_answer(1, &isnull);
	SPI_freetuptable(SPI_tuptable);
	pfree(DatumGetPointer(built));
	return more;
}

/* Lets the window pass, and returns what was built meanwhile. */
static Datum
plan_watch(int64 until)
{
	Datum		built = look_for_built(PointerGetDatum(construct_empty_array(OIDOID)));
	int64		left;

	while ((left = until - pgscale_timer_clock()) > 0)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Min(left / NS_PER_MS + 1, LOOK_MS), PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		built = look_for_built(built);
	}
	return built;
}

/* The latency of where to go; without it there is no plan. */
static Datum
latency_there(Datum name, Datum *spread, Datum *device)
{
	const Oid	type = NAMEOID;
	Datum		latency;
	Datum		reason;
	bool		isnull;

	run_query(target_query, 1, &type, &name, NULL);
	reason = plan_answer(2, &isnull);
	latency = plan_answer(1, &isnull);
	if (isnull)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the latency of tablespace \"%s\" is unknown", NameStr(*DatumGetName(name))),
				 errdetail("pgscale.tablespace_latency says: %s.", TextDatumGetCString(reason)),
				 errhint("Name a tablespace that can be read from and written to.")));
	*spread = plan_answer(3, &isnull);
	*device = plan_answer(4, &isnull);
	SPI_freetuptable(SPI_tuptable);
	return latency;
}

/*
 * pgscale.relocation_plan(tablespace, budget_bytes, duration): a row for each
 * index and table that was read and may go there, those to move first.
 */
Datum
pgscale_relocation_plan(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {
		OIDARRAYOID, OIDARRAYOID, INT8ARRAYOID, OIDARRAYOID, OIDARRAYOID, INT8ARRAYOID,
		FLOAT8OID, FLOAT8OID, OIDARRAYOID, OIDOID, NAMEOID, FLOAT8OID, INT8OID, FLOAT8OID, TEXTOID, FLOAT8OID
	};
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Look		first;
	Look		second;
	Datum		there;
	Datum		spread;
	Datum		device;
	Datum		built;
	int64		window_ms;

	if (PG_ARGISNULL(0))
		raise_null("tablespace", "Name the tablespace to move to.");
	if (PG_ARGISNULL(1))
		raise_null("budget_bytes", "Say how many bytes may be moved.");
	if (PG_ARGISNULL(2))
		raise_null("duration", "Say for how long to watch, such as interval '1 minute'.");
	if (PG_GETARG_INT64(1) <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("budget_bytes must be greater than zero"),
				 errhint("Say how many bytes may be moved, such as pg_size_bytes('10 GB').")));
	window_ms = window_of(PG_GETARG_INTERVAL_P(2));
	if (!has_privs_of_role(GetUserId(), ROLE_PG_MONITOR))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to plan relocation"),
				 errhint("Beside EXECUTE on this function and on pgscale.tablespace_latency(name), it takes pg_monitor.")));

	InitMaterializedSRF(fcinfo, 0);
	SPI_connect();
	there = latency_there(PG_GETARG_DATUM(0), &spread, &device);
	plan_look(&first);
	built = plan_watch(first.at + window_ms * NS_PER_MS);
	plan_look(&second);
	if (first.reset != second.reset)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("statistics were reset during the window"),
				 errhint("Ask again.")));

	{
		const Datum values[] = {
			first.relations, first.filenodes, first.reads, second.relations, second.filenodes, second.reads,
			Float8GetDatum(second.read_ms - first.read_ms), Float8GetDatum((second.at - first.at) / NS_IN_S),
			built, ObjectIdGetDatum(pgscale_relocation_tablespace_named(NameStr(*PG_GETARG_NAME(0)))),
			PG_GETARG_DATUM(0), there, PG_GETARG_DATUM(1), spread, device, Float8GetDatum(LEAST_GAIN_MS)
		};

		StaticAssertStmt(lengthof(values) == lengthof(types), "a type for each value");
		run_query(plan_query, lengthof(types), types, values, NULL);
	}
	for (uint64 i = 0; i < SPI_processed; i++)
		tuplestore_puttuple(rsinfo->setResult, SPI_tuptable->vals[i]);
	SPI_finish();
	return (Datum) 0;
}
