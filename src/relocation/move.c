/*-------------------------------------------------------------------------
 *
 * move.c
 *	  One move: REINDEX (CONCURRENTLY, TABLESPACE) of an index, ALTER TABLE SET
 *	  TABLESPACE of a table, or an online move (online_move.c); and the cleanup after a failure.
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
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_authid_d.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "commands/tablespace.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "tcop/pquery.h"
#include "tcop/utility.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "base/pg_compat.h"
#include "relocation/checks.h"
#include "relocation/online_move.h"
#include "relocation/relocation.h"
#include "relocation/relocation_state.h"

/* what is being moved, for the hook */
static PgscaleRelocationJob *moving = NULL;
static object_access_hook_type prev_object_access_hook = NULL;

/* Its row is visible by now. */
static void
announce_files(Oid index)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(index));
	Form_pg_class class;
	RelFileLocator locator;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", index);
	class = (Form_pg_class) GETSTRUCT(tuple);
	locator.spcOid = OidIsValid(class->reltablespace) ? class->reltablespace : MyDatabaseTableSpace;
	locator.dbOid = MyDatabaseId;
	locator.relNumber = class->relfilenode;
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
		job->before = MemoryContextStrdup(context, pgscale_relocation_describe_index(job->relation));
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
