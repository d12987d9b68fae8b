/*-------------------------------------------------------------------------
 *
 * move.c
 *	  One move: REINDEX (CONCURRENTLY, TABLESPACE) of an index, ALTER TABLE SET
 *	  TABLESPACE of a table, or an online move (online/); the cleanup after a failure; and the check that nothing else has
 *	  changed.
 *
 * REINDEX CONCURRENTLY commits several times, so it must be a statement of its own,
 * outside a transaction: it runs through a portal, as if a client had sent it.  It
 * takes a name.  The name is looked up under the lock that REINDEX needs anyway, so it
 * cannot mean another index by then.
 *
 * It builds a new index and swaps the two at the end.  The new index has its own OID.
 * The transaction that creates it stores that OID in the row of the job
 * (pgscale_relocation_job_made_index), from the hook that the server calls for each new
 * object.  So whenever an attempt ends, the two OIDs show the result:
 *
 *	new one valid			moved; the old one must be dropped if it still exists
 *	new one there, invalid	not moved; the new one must be dropped
 *	no new one				not moved; nothing to clean up
 *
 * The cleanup drops by OID and concurrently, as DROP INDEX CONCURRENTLY does: it takes
 * no lock that readers or writers would wait for.
 *
 * ALTER TABLE is a single transaction.  If it rolls back, the server removes its files.
 *
 * An online move has moved if the relation is in its tablespace, since all of it is switched in one transaction.
 * The files that it leaves are in the job's row.
 *
 * What makes an index what it is, its definition, constraint, statistics targets, comments, options, marks, parent and
 * dependencies, becomes one text before a rebuild, and again after it.  A query makes the
 * text, pgscale_internal.relocation_describe_index(), because users and dumps see the
 * catalogs.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/reloptions.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_tablespace_d.h"
#include "catalog/pg_type_d.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "commands/tablespace.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "base/extension_function.h"
#include "base/pg_compat.h"
#include "base/relation_files.h"
#include "relocation/checks.h"
#include "relocation/jobs/launcher.h"
#include "relocation/move.h"
#include "relocation/online/online.h"
#include "relocation/plan/tablespace_latency.h"

/* what is being moved, for the hook */
static PgscaleRelocationJob *moving = NULL;
static object_access_hook_type prev_object_access_hook = NULL;

/* Its row is visible by now. */
static void
announce_files(Oid index)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(index));
	RelFileLocator locator;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", index);
	locator = pgscale_relation_locator((Form_pg_class) GETSTRUCT(tuple));
	ReleaseSysCache(tuple);
	pgscale_relocation_grows(locator);
}

static void
note_new_index(ObjectAccessType access, Oid class, Oid object, int sub, void *arg)
{
	if (prev_object_access_hook)
		prev_object_access_hook(access, class, object, sub, arg);

	/* the first relation that is made; an index' functions may make others */
	if (moving && !OidIsValid(moving->new_index) &&
		access == OAT_POST_CREATE && class == RelationRelationId && sub == 0)
	{
		moving->new_index = object;
		pgscale_relocation_job_made_index(moving);
		announce_files(object);
	}
}

void
pgscale_relocation_move_start(void)
{
	prev_object_access_hook = object_access_hook;
	object_access_hook = note_new_index;
}

/*
 * Runs one utility statement that may commit on its way; in a transaction. The
 * context must outlive it.
 */
static void
run_statement(const char *text, MemoryContext context)
{
	MemoryContext old = MemoryContextSwitchTo(context);
	RawStmt    *raw;
	List	   *plans;
	Portal		portal;
	QueryCompletion completion;

	text = pstrdup(text);
	debug_query_string = text;

	pgstat_report_activity(STATE_RUNNING, text);
	raw = linitial_node(RawStmt, pg_parse_query(text));
	plans = pg_plan_queries(pg_analyze_and_rewrite_fixedparams(raw, text, NULL, 0, NULL), text, 0, NULL);

	portal = CreatePortal("pgscale relocation", true, true);
	portal->visible = false;
	PortalDefineQuery(portal, NULL, text, CreateCommandTag(raw->stmt), plans, NULL);
	PortalStart(portal, NULL, 0, InvalidSnapshot);
	(void) PortalRun(portal, PGSCALE_PORTAL_RUN_TO_END, None_Receiver, None_Receiver, &completion);
	PortalDrop(portal, false);

	MemoryContextSwitchTo(old);
}

/* All that makes an index what it is, but where it lies; NULL if it is gone.  In a transaction. */
static char *
describe_index(Oid index)
{
	static const Oid types[] = {OIDOID};
	const Datum values[] = {ObjectIdGetDatum(index)};

	return pgscale_extension_own_text("relocation_describe_index", lengthof(types), types, values);
}

static void
move_lock(const PgscaleRelocationJob *job)
{
	LockRelationOid(job->heap, job->is_table ? AccessExclusiveLock : ShareUpdateExclusiveLock);
	if (!job->is_table)
		LockRelationOid(job->relation, ShareUpdateExclusiveLock);
	pgscale_relocation_check_there(job->relation, job->is_table);
}

void
pgscale_relocation_move(PgscaleRelocationJob *job, MemoryContext context)
{
	char	   *statement;
	char	   *tablespace;
	char	   *name;

	if (job->mode == PGSCALE_RELOCATE_ONLINE)
	{
		pgscale_relocation_online_move(job);
		return;
	}
	StartTransactionCommand();
	move_lock(job);
	tablespace = get_tablespace_name(job->target);
	if (!tablespace)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the tablespace was dropped")));
	name = quote_qualified_identifier(get_namespace_name(get_rel_namespace(job->relation)),
									  get_rel_name(job->relation));
	statement = psprintf(job->is_table ? "ALTER TABLE %s SET TABLESPACE %s" :
						 "REINDEX (CONCURRENTLY, TABLESPACE %2$s) INDEX %1$s",
						 name, quote_identifier(tablespace));
	if (!job->is_table)
	{
		/* under the lock, so that it does not change until it has moved */
		PushActiveSnapshot(GetTransactionSnapshot());
		job->before = MemoryContextStrdup(context, describe_index(job->relation));
		PopActiveSnapshot();
	}
	moving = job->is_table ? NULL : job;
	Assert(!OidIsValid(job->new_index));
	PG_TRY();
	{
		run_statement(statement, context);
	}
	PG_FINALLY();
	{
		moving = NULL;
		debug_query_string = NULL;
	}
	PG_END_TRY();
	CommitTransactionCommand();
}

/* Drops an index as DROP INDEX CONCURRENTLY does; in no transaction. */
static void
drop_index(Oid heap, Oid index)
{
	MemoryContext context = CurrentMemoryContext;
	ObjectAddresses *addresses = new_object_addresses();
	ObjectAddress address;

	ObjectAddressSet(address, RelationRelationId, index);
	add_exact_object_address(&address, addresses);

	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	LockRelationOid(heap, ShareUpdateExclusiveLock);
	LockRelationOid(index, ShareUpdateExclusiveLock);
	/* it commits, so what it allocates must outlive a transaction */
	MemoryContextSwitchTo(context);
	if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(index)))
		performMultipleDeletions(addresses, DROP_RESTRICT, PERFORM_DELETION_CONCURRENTLY);
	if (ActiveSnapshotSet())
		PopActiveSnapshot();
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	free_object_addresses(addresses);
}

/* Is it an index of this table? *valid: can it be used? */
static bool
is_index_of(Oid index, Oid heap, bool *valid)
{
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));
	bool		is;

	if (!HeapTupleIsValid(tuple))
		return *valid = false;
	is = ((Form_pg_index) GETSTRUCT(tuple))->indrelid == heap;
	*valid = is && ((Form_pg_index) GETSTRUCT(tuple))->indisvalid;
	ReleaseSysCache(tuple);
	return is;
}

static bool
settle_index(PgscaleRelocationJob *job)
{
	bool		old_there;
	bool		old_valid;
	bool		new_there;
	bool		new_valid;

	if (!OidIsValid(job->new_index))
		return false;

	StartTransactionCommand();
	old_there = is_index_of(job->relation, job->heap, &old_valid);
	new_there = is_index_of(job->new_index, job->heap, &new_valid);
	CommitTransactionCommand();

	if (new_valid && old_there && !old_valid)
		drop_index(job->heap, job->relation);
	if (new_there && !new_valid)
		drop_index(job->heap, job->new_index);
	if (!new_valid)
		job->new_index = InvalidOid;
	return new_valid;
}

bool
pgscale_relocation_move_settle(PgscaleRelocationJob *job)
{
	bool		moved;

	if (job->mode == PGSCALE_RELOCATE_REBUILD)
		return settle_index(job);

	pgscale_relocation_online_clean_up(job);
	StartTransactionCommand();
	moved = pgscale_relocation_tablespace_of(job->relation) == job->target;
	CommitTransactionCommand();
	return moved;
}

/*
 * What a move must not have changed
 */

/* The function that checks indexes of an access method; InvalidOid: there is none here. */
static Oid
amcheck_function(Oid am)
{
	static const Oid types[] = {REGCLASSOID, BOOLOID};

	if (am == BTREE_AM_OID)
		return pgscale_extension_function_if_any("amcheck", "bt_index_check", 2, types);
	if (am == GIN_AM_OID && PGSCALE_AMCHECK_GIN)
		return pgscale_extension_function_if_any("amcheck", "gin_index_check", 1, types);
	return InvalidOid;
}

char *
pgscale_relocation_cannot_amcheck(Oid index, const char **hint)
{
	const Oid	am = pgscale_relocation_am_of(index);

	if (OidIsValid(amcheck_function(am)))
		return NULL;
	if (am != BTREE_AM_OID && !(am == GIN_AM_OID && PGSCALE_AMCHECK_GIN))
	{
		*hint = PGSCALE_AMCHECK_GIN ? "It checks btree and gin indexes." : "It checks btree indexes.";
		return psprintf("the extension \"amcheck\" does not check %s indexes", get_am_name(am));
	}
	if (!OidIsValid(get_extension_oid("amcheck", true)))
	{
		*hint = "CREATE EXTENSION amcheck.";
		return pstrdup("the extension \"amcheck\" is not installed here");
	}
	*hint = "ALTER EXTENSION amcheck UPDATE.";
	return psprintf("the extension \"amcheck\" that is installed here is too old to check %s indexes", get_am_name(am));
}

Oid
pgscale_relocation_prewarm_function(void)
{
	static const Oid types[] = {REGCLASSOID, TEXTOID, TEXTOID, INT8OID, INT8OID};

	return pgscale_extension_function("pg_prewarm", "pg_prewarm", lengthof(types), types, "prewarm");
}

/* In a B-tree, every row of its table is looked up, too.  Returns the reason why there is no check, or NULL. */
static char *
verify_amcheck(Oid index)
{
	const Oid	am = pgscale_relocation_am_of(index);
	const Oid	function = amcheck_function(am);
	const char *hint;

	if (!OidIsValid(function))
		return pgscale_relocation_cannot_amcheck(index, &hint);
	if (am == BTREE_AM_OID)
		(void) OidFunctionCall2(function, ObjectIdGetDatum(index), BoolGetDatum(true));
	else
		(void) OidFunctionCall1(function, ObjectIdGetDatum(index));
	return NULL;
}

/* All of its blocks: from NULL to NULL. */
static void
verify_prewarm(Oid relation)
{
	LOCAL_FCINFO(fcinfo, 5);
	FmgrInfo	function;

	fmgr_info(pgscale_relocation_prewarm_function(), &function);
	InitFunctionCallInfoData(*fcinfo, &function, 5, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = ObjectIdGetDatum(relation);
	fcinfo->args[1].value = CStringGetTextDatum("buffer");
	fcinfo->args[2].value = CStringGetTextDatum("main");
	for (int i = 0; i < 5; i++)
		fcinfo->args[i].isnull = i > 2;
	(void) FunctionCallInvoke(fcinfo);
}

char *
pgscale_relocation_verify_move(PgscaleRelocationJob *job)
{
	Oid			relation = pgscale_relocation_moved(job);
	char	   *unverified = NULL;

	if (pgscale_relocation_tablespace_of(relation) != job->target)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the relation is not in its new tablespace after the move: \"%s\"", get_tablespace_name(job->target))));
	if (job->mode == PGSCALE_RELOCATE_REBUILD)
	{
		char	   *after = describe_index(relation);

		if (job->before && (!after || strcmp(job->before, after) != 0))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the index has moved, but differs from before"),
					 errdetail("Before: %s\nAfter: %s", job->before, after ? after : "gone")));
	}
	job->bytes_after = pgscale_relocation_size_of(relation);
	if (job->amcheck)
		unverified = verify_amcheck(relation);
	if (job->prewarm)
		verify_prewarm(relation);
	return unverified;
}

/* Was it set for this tablespace? */
static bool
has_random_page_cost(Oid tablespace)
{
	HeapTuple	tuple = SearchSysCache1(TABLESPACEOID, ObjectIdGetDatum(tablespace));
	Datum		options;
	bool		isnull;
	bool		has;

	if (!HeapTupleIsValid(tuple))
		return false;
	options = SysCacheGetAttr(TABLESPACEOID, tuple, Anum_pg_tablespace_spcoptions, &isnull);
	has = !isnull && ((TableSpaceOpts *) tablespace_reloptions(options, false))->random_page_cost >= 0;
	ReleaseSysCache(tuple);
	return has;
}

char *
pgscale_relocation_suggest_settings(const PgscaleRelocationJob *job)
{
	PgscaleRelocationProbe probe;
	char	   *name = get_tablespace_name(job->target);

	if (!name || has_random_page_cost(job->target) || !pgscale_relocation_job_is_last_to(job->target) ||
		!pgscale_relocation_probe_tablespace(job->target, &probe) ||
		probe.random_page_cost == 0 ||
		(probe.random_page_cost >= random_page_cost * 0.8 && probe.random_page_cost <= random_page_cost * 1.2))
		return NULL;
	return psprintf("the disk of \"%s\" suggests ALTER TABLESPACE %s SET (random_page_cost = %.1f)%s",
					name, quote_identifier(name), probe.random_page_cost,
					job->target == MyDatabaseTableSpace ? "" :
					psprintf("; new relations go there with default_tablespace = %s", quote_literal_cstr(name)));
}
