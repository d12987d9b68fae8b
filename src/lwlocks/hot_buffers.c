/*-------------------------------------------------------------------------
 *
 * hot_buffers.c
 *	  Buffers that processes wait to read or change: pgscale.hot_buffers.
 *
 * One pass over all content locks, without taking any, finds those with a queue.  There
 * are at most as many as waiting processes, so memory of that size is enough.  One scan
 * of pg_class, only if there are any, finds the relations of this database.
 *
 * The kind of a B-tree page is read from the page itself.  It is copied without a pin
 * and without the content lock, because the caller must not join the queue that the
 * call reports, where it could not even be cancelled. pageinspect would join it.  A
 * page may change under the copy: its level and flags are 6 bytes that change when it
 * is split or deleted, and are checked for nonsense.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "catalog/pg_am_d.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "utils/builtins.h"

#include "base/lwlock_state.h"
#include "base/pg_compat.h"
#include "base/processes.h"
#include "base/relation_files.h"
#include "base/row_builder.h"
#include "base/shared_buffers.h"
#include "base/wait_events.h"

/* Locks between two checks for interrupts. */
#define LOCKS_AT_ONCE	16384

typedef struct HotBuffer
{
	int			buf;
	PgscalePage page;
	PgscaleLwlock lock;
	Oid			relation;		/* if it is known */
	const char *kind;			/* or, of its page */
} HotBuffer;

typedef struct HotBuffers
{
	int			count;
	int			room;
	HotBuffer  *hot;
} HotBuffers;

PG_FUNCTION_INFO_V1(pgscale_hot_buffers);

/* Unless it holds no page by now. */
static void
hot_buffers_add(HotBuffers *buffers, int buf, PgscaleLwlock lock)
{
	HotBuffer	hot = {.buf = buf,.lock = lock};
	PgscaleBuffer buffer;

	if (!pgscale_buffer_read(buf, &buffer, &hot.page))
		return;
	if (buffers->count == buffers->room)
	{
		buffers->room *= 2;
		buffers->hot = repalloc_huge(buffers->hot, buffers->room * sizeof(HotBuffer));
	}
	buffers->hot[buffers->count++] = hot;
}

static void
hot_buffers_find(HotBuffers *buffers)
{
	buffers->count = 0;
	buffers->room = 64;
	buffers->hot = palloc(buffers->room * sizeof(HotBuffer));

	for (int buf = 0; buf < NBuffers; buf++)
	{
		PgscaleLwlock lock;

		if (buf % LOCKS_AT_ONCE == 0)
			CHECK_FOR_INTERRUPTS();
		lock = pgscale_buffer_content_look(buf);
		if (lock.waited)
			hot_buffers_add(buffers, buf, lock);
	}
}

/* NULL if it is not a page of a B-tree, or is being changed. */
static const char *
btree_page_kind(const HotBuffer *hot)
{
	PGAlignedBlock copy;
	PageHeader	header = (PageHeader) copy.data;
	const size_t special = BLCKSZ - MAXALIGN(sizeof(BTPageOpaqueData));
	BTPageOpaque opaque = (BTPageOpaque) (copy.data + special);

	if (!pgscale_buffer_page_copy(hot->buf, &hot->page, copy.data) || header->pd_special != special)
		return NULL;
	if (opaque->btpo_flags & BTP_META)
		return hot->page.block == BTREE_METAPAGE ? "meta" : NULL;
	if (opaque->btpo_flags & (BTP_DELETED | BTP_HALF_DEAD))
		return "deleted";
	if (((opaque->btpo_flags & BTP_LEAF) != 0) != (opaque->btpo_level == 0))
		return NULL;
	if (opaque->btpo_flags & BTP_ROOT)
		return "root";
	return opaque->btpo_flags & BTP_LEAF ? "leaf" : "internal";
}

static void
hot_buffers_name(void *arg, Form_pg_class class, RelFileLocator locator)
{
	HotBuffers *buffers = arg;

	for (int i = 0; i < buffers->count; i++)
	{
		HotBuffer  *hot = &buffers->hot[i];

		if (!RelFileLocatorEquals(hot->page.locator, locator))
			continue;
		hot->relation = class->oid;
		if (class->relam == BTREE_AM_OID && hot->page.fork == MAIN_FORKNUM)
			hot->kind = btree_page_kind(hot);
	}
}

/* How many processes wait for the content of any buffer. */
static int
count_waiters(void)
{
	int			waiters = 0;

	for (int slot = 0; slot < pgscale_procs_count(); slot++)
	{
		PgscaleProc proc;

		if (pgscale_procs_in_use(slot) && pgscale_procs_read_anew(slot, &proc))
			waiters += pgscale_waits_for_content(proc.wait_event);
	}
	return waiters;
}

static void
put_buffer(ReturnSetInfo *rsinfo, const HotBuffer *hot, int waiters)
{
	const PgscaleLwlock *lock = &hot->lock;
	PgscaleRow	row = {0};

	pgscale_row_int4(&row, hot->buf + 1);
	pgscale_row_put(&row, ObjectIdGetDatum(hot->page.locator.dbOid), false);
	pgscale_row_oid(&row, hot->relation);
	pgscale_row_oid(&row, hot->page.locator.relNumber);
	pgscale_row_oid(&row, hot->page.locator.spcOid);
	pgscale_row_text(&row, forkNames[hot->page.fork]);
	pgscale_row_int8(&row, hot->page.block);
	pgscale_row_text(&row, hot->kind);
	pgscale_row_text(&row, lock->exclusive ? "exclusive" : lock->share_exclusive ? "share exclusive" :
					 lock->shared > 0 ? "shared" : NULL);
	pgscale_row_int4(&row, lock->exclusive ? 1 : (int32) lock->shared + lock->share_exclusive);
	pgscale_row_int4(&row, waiters);
	pgscale_row_end(&row, rsinfo);
}

/*
 * pgscale_internal.hot_buffers(): one row a buffer whose content lock has a queue now.  Works
 * without preload.
 */
Datum
pgscale_hot_buffers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	HotBuffers	buffers;
	int			waiters;

	if (!pgscale_lwlock_layout_known())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("pgscale does not know the layout of this server's LWLocks"),
				 errhint("Use a build of pgscale for this server.")));
	InitMaterializedSRF(fcinfo, 0);
	waiters = count_waiters();
	hot_buffers_find(&buffers);
	if (buffers.count > 0)
		pgscale_relation_files_each(hot_buffers_name, &buffers);
	for (int i = 0; i < buffers.count; i++)
		put_buffer(rsinfo, &buffers.hot[i], waiters);
	pfree(buffers.hot);
	return (Datum) 0;
}
