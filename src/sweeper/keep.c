/*-------------------------------------------------------------------------
 *
 * keep.c
 *	  pgscale.keep(), and the rows of pgscale.kept_relations.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/catalog.h"
#include "catalog/pg_class.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/row_builder.h"
#include "sweeper/keep.h"
#include "sweeper/shared.h"
#include "sweeper/sweeper.h"

PG_FUNCTION_INFO_V1(pgscale_keep);
PG_FUNCTION_INFO_V1(pgscale_kept_relations);

/* What sums of fractions may differ by. */
#define ROUNDING	1e-9

static int64
fraction_in_buffers(double fraction)
{
	return (int64) (fraction * NBuffers);
}

static double
check_fraction(double fraction)
{
	if (isnan(fraction) || fraction < 0 || fraction > PGSCALE_SWEEPER_KEPT_FRACTION)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("cannot keep a fraction of %g of shared_buffers", fraction),
				 errhint("Choose one up to %g; 0 takes the relation back.", PGSCALE_SWEEPER_KEPT_FRACTION)));
	if (fraction > 0 && fraction_in_buffers(fraction) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a fraction of %g of shared_buffers is not a single buffer", fraction),
				 errhint("There are %d buffers: choose a larger fraction.", NBuffers)));
	return fraction;
}

static void
check_kind(Relation relation)
{
	const char *name = RelationGetRelationName(relation);
	const char	kind = relation->rd_rel->relkind;

	if (kind == RELKIND_PARTITIONED_TABLE || kind == RELKIND_PARTITIONED_INDEX)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot keep \"%s\": it is partitioned, and has no pages", name),
				 errhint("Keep its partitions.")));
	if (kind != RELKIND_RELATION && kind != RELKIND_INDEX && kind != RELKIND_MATVIEW && kind != RELKIND_TOASTVALUE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot keep \"%s\": it is not a table, index, materialized view or TOAST table", name),
				 errhint("Keep the tables that it reads.")));
	if (relation->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot keep \"%s\": it is temporary, and its pages are not in shared_buffers", name),
				 errhint("The setting temp_buffers says how many of them a session caches.")));
	if (IsCatalogRelation(relation))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot keep \"%s\": it is a system catalog", name),
				 errhint("Keep tables of your own.")));
}

/*
 * Finds the relation, which stays locked until the end of the transaction, so that no other
 * one moves it meanwhile.
 */
static void
find_to_keep(Oid relid, PgscaleSweeperKept *kept)
{
	Relation	relation;

	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relid)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist in this database", relid),
				 errhint("Connect to its database, or name another relation.")));
	/* before it waits for a lock */
	if (!pgscale_owns_relation(relid))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of relation \"%s\"", get_rel_name(relid)),
				 errhint("Ask its owner, or a superuser, to keep it.")));
	relation = relation_open(relid, AccessShareLock);
	check_kind(relation);
	if (relation->rd_createSubid != InvalidSubTransactionId)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot keep \"%s\": this transaction has created it", RelationGetRelationName(relation)),
				 errhint("COMMIT before.")));
	relation_close(relation, NoLock);
	kept->database = MyDatabaseId;
	kept->relation = relid;
	if (!pgscale_sweeper_kept_look_up(kept, kept))
		elog(ERROR, "cache lookup failed for relation %u", relid);
}

/* A relation to keep, or to take back if the fraction is 0. */
typedef struct KeepRequest
{
	PgscaleSweeperKept kept;
	bool		follows[PGSCALE_SWEEPER_KEPT_MOST]; /* is the place's other by
													 * now? */
	PgscaleSweeperKept now[PGSCALE_SWEEPER_KEPT_MOST];	/* then it is that */
	uint32		changes[PGSCALE_SWEEPER_KEPT_MOST]; /* when that was so */
} KeepRequest;

/* One may be the index that REINDEX CONCURRENTLY has made in place of the other. */
static bool
is_same_relation(const PgscaleSweeperKept *a, const PgscaleSweeperKept *b)
{
	return a->relation == b->relation ||
		(OidIsValid(a->table) && a->table == b->table && strcmp(NameStr(a->name), NameStr(b->name)) == 0);
}

static int
place_to_keep(const PgscaleSweeperKept *list, const PgscaleSweeperKept *kept)
{
	int			free = -1;

	for (int place = 0; place < PGSCALE_SWEEPER_KEPT_MOST; place++)
	{
		if (list[place].database == kept->database && is_same_relation(&list[place], kept))
			return place;
		if (free < 0 && !OidIsValid(list[place].relation))
			free = place;
	}
	return free;
}

/* Are the fractions of all more than can be kept? */
static void
check_sum(const PgscaleSweeperKept *list, int place, double fraction)
{
	double		others = 0;

	for (int i = 0; i < PGSCALE_SWEEPER_KEPT_MOST; i++)
		if (i != place && OidIsValid(list[i].relation))
			others += list[i].fraction;
	if (others + fraction > PGSCALE_SWEEPER_KEPT_FRACTION + ROUNDING)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("cannot keep a fraction of %g of shared_buffers beside the %g that are kept already", fraction, others),
				 errdetail("All fractions together are at most %g.", PGSCALE_SWEEPER_KEPT_FRACTION),
				 errhint("pgscale.kept_relations shows them; pgscale.keep(relation, 0) takes one back.")));
}

static void
keep_one(PgscaleSweeperKept *list, void *arg)
{
	KeepRequest *request = arg;
	PgscaleSweeperKept *kept;
	int			at;

	for (int place = 0; place < PGSCALE_SWEEPER_KEPT_MOST; place++)
		if (request->follows[place] && list[place].changes == request->changes[place])
			list[place] = request->now[place];
	at = place_to_keep(list, &request->kept);
	if (request->kept.fraction == 0 && (at < 0 || !OidIsValid(list[at].relation)))
		return;
	if (at < 0)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("cannot keep more than %d relations", PGSCALE_SWEEPER_KEPT_MOST),
				 errhint("pgscale.kept_relations shows them; pgscale.keep(relation, 0) takes one back.")));
	kept = &list[at];
	request->kept.changes = kept->changes + 1;
	if (request->kept.fraction == 0)
	{
		kept->database = kept->relation = InvalidOid;
		kept->changes++;
		return;
	}
	check_sum(list, at, request->kept.fraction);
	*kept = request->kept;
}

/*
 * What was dropped a moment ago, or while the sweeper is off, takes no room, and what was
 * renamed is not taken for another one.  A transaction that has changed something may see
 * what it will roll back.
 */
static void
follow_all(KeepRequest *request)
{
	const bool	sure = !TransactionIdIsValid(GetTopTransactionIdIfAny());
	bool		in_file = false;	/* it is written anyway */

	(void) pgscale_sweeper_kept_copy(request->now);
	for (int place = 0; place < PGSCALE_SWEEPER_KEPT_MOST; place++)
	{
		PgscaleSweeperKept *kept = &request->now[place];

		request->changes[place] = kept->changes;
		if (!OidIsValid(kept->relation))
			continue;
		if (kept->database == MyDatabaseId)
			request->follows[place] = sure && pgscale_sweeper_kept_follow_one(kept, &in_file);
		else if (!SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(kept->database)))
		{
			request->follows[place] = true;
			kept->database = kept->relation = InvalidOid;
			kept->changes++;
		}
	}
}

/*
 * pgscale.keep(relation, fraction): keeps up to that fraction of shared_buffers for the
 * relation's pages, at once and whatever becomes of the transaction; NULL or 0: no more.
 * Returns how many buffers that is.
 */
Datum
pgscale_keep(PG_FUNCTION_ARGS)
{
	KeepRequest request;

	pgscale_preload_require();
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("relation must not be null"),
				 errhint("Name a table, an index, a materialized view or a TOAST table.")));
	memset(&request, 0, sizeof(request));
	request.kept.database = MyDatabaseId;
	request.kept.relation = PG_GETARG_OID(0);
	request.kept.fraction = PG_ARGISNULL(1) ? 0 : check_fraction(PG_GETARG_FLOAT8(1));

	/* What was dropped has no owner, and the list follows that anyway. */
	if (request.kept.fraction > 0 || SearchSysCacheExists1(RELOID, ObjectIdGetDatum(request.kept.relation)))
		find_to_keep(request.kept.relation, &request.kept);
	follow_all(&request);
	pgscale_sweeper_kept_change(keep_one, &request);
	PG_RETURN_INT64(fraction_in_buffers(request.kept.fraction));
}

/* What keeping a relation does now. */
static const char *
describe_effect(const PgscaleSweeperKept *kept)
{
	PgscaleSweeperState state = pgscale_sweeper->state;
	ino_t		file;

	if (!SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(kept->database)))
		return "its database was dropped";
	if (pg_atomic_read_u32(&pgscale_sweeper->pid) == 0)
		state = PGSCALE_SWEEPER_OFF;
	switch (state)
	{
		case PGSCALE_SWEEPER_OFF:
			return "no effect: the sweeper is off";
		case PGSCALE_SWEEPER_WARMING_UP:
			return "no effect: the sweeper is warming up";
		case PGSCALE_SWEEPER_WATCHING:
			return "no effect: the sweeper only watches";
		case PGSCALE_SWEEPER_WORKING:
			break;
	}
	return pgscale_sweeper_kept_has_pages(kept, &file) ? "in force" : "no effect: it has no pages, or its file is being looked for";
}

/* Buffers that the sweeper has met in its last lap; less than 0: not known. */
static int
buffers_held(const PgscaleSweeperKept *kept, int place)
{
	const PgscaleSweeperKeptCounts *counts = &pgscale_sweeper_kept_list->counts[place];

	return counts->changes == kept->changes ? counts->held : -1;
}

/* pgscale_internal.kept_relations(): one row a relation. */
Datum
pgscale_kept_relations(PG_FUNCTION_ARGS)
{
	PgscaleRow	row = {0};
	PgscaleSweeperKept list[PGSCALE_SWEEPER_KEPT_MOST];

	pgscale_preload_require();
	InitMaterializedSRF(fcinfo, 0);
	(void) pgscale_sweeper_kept_copy(list);
	for (int place = 0; place < PGSCALE_SWEEPER_KEPT_MOST; place++)
	{
		const PgscaleSweeperKept *kept = &list[place];
		const int	held = buffers_held(kept, place);

		if (!OidIsValid(kept->relation))
			continue;
		pgscale_row_oid(&row, kept->database);
		pgscale_row_oid(&row, kept->relation);
		pgscale_row_put(&row, NameGetDatum(&kept->name), false);
		pgscale_row_put(&row, ObjectIdGetDatum(kept->file.relNumber), !kept->found);
		pgscale_row_float8(&row, kept->fraction);
		pgscale_row_int8(&row, fraction_in_buffers(kept->fraction));
		pgscale_row_put(&row, Int64GetDatum(held), held < 0);
		pgscale_row_int8(&row, pgscale_sweeper_kept_list->counts[place].stayed - pgscale_sweeper_kept_list->stayed_before[place]);
		pgscale_row_text(&row, describe_effect(kept));
		pgscale_row_timestamp(&row, pgscale_sweeper_kept_list->counted_since[place]);
		pgscale_row_end(&row, (ReturnSetInfo *) fcinfo->resultinfo);
	}
	return (Datum) 0;
}
