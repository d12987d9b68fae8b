/*-------------------------------------------------------------------------
 *
 * numa.c
 *	  The machine's NUMA nodes, and the nodes of shared memory; on request, shared
 *	  memory interleaved over all nodes.
 *
 * Where shared buffers lie is determined at each call, by page_nodes.c, without
 * bringing unused pages into memory.  A sample of pages costs the same for any size of
 * shared buffers.
 *
 * A page lies on the node of the process that was first to touch it.  So the buffers of
 * a server are where its first sessions were, or pg_prewarm, which may be one node.
 * pgscale.numa_interleave sets another policy for the segment as soon as it exists, in
 * the postmaster, before it has a child.  Until then the server has written only
 * headers and hash tables, and no page of a buffer; those pages are moved.  No failure
 * here keeps the server from starting: it shows in pgscale.health and in the log.
 *
 * The postmaster keeps the outcome in its own memory, which its children inherit.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type_d.h"
#include "common/pg_prng.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "base/pg_compat.h"
#include "base/row_builder.h"
#include "base/shared_buffers.h"
#include "base/wilson_interval.h"
#include "numa/libnuma.h"
#include "numa/numa.h"
#include "numa/page_nodes.h"

/* Random pages to sample, and between two checks for interrupts. */
#define SAMPLE			4096
#define SAMPLE_AT_ONCE	256

/* One page takes as long as that many neighbouring ones. */
#define SAMPLE_COST		24

/* No page's place; the others are nodes. */
#define NOWHERE			PGSCALE_NUMA_NODES

typedef struct Places
{
	int64		pages[PGSCALE_NUMA_NODES + 1];
	int64		bytes[PGSCALE_NUMA_NODES + 1];
} Places;

PG_FUNCTION_INFO_V1(pgscale_numa_nodes);
PG_FUNCTION_INFO_V1(pgscale_numa_buffers);

static bool interleave = false;

/* How interleaving went at the server's start. */
static bool interleaved = false;
static int	interleave_error = 0;

static void
require_numa(void)
{
	const char *action = NULL;
	const char *trouble = pgscale_numa_lib_trouble(&action);

	if (trouble)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%s", trouble),
				 errhint("What can be done: %s.", action)));
}

/* pgscale_internal.numa_nodes(): one row a node. */
Datum
pgscale_numa_nodes(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	int			nodes[PGSCALE_NUMA_NODES];
	Datum		distances[PGSCALE_NUMA_NODES];
	int			n;

	require_numa();
	InitMaterializedSRF(fcinfo, 0);
	n = pgscale_numa_lib_nodes(nodes);

	for (int i = 0; i < n; i++)
	{
		PgscaleNumaNode node;
		PgscaleRow	row = {0};

		pgscale_numa_lib_node(nodes[i], &node);
		for (int j = 0; j < n; j++)
			distances[j] = Int32GetDatum(pgscale_numa_lib_distance(nodes[i], nodes[j]));

		pgscale_row_int4(&row, nodes[i]);
		pgscale_row_int4(&row, node.cpus);
		pgscale_row_text(&row, node.cpu_list);
		pgscale_row_int8(&row, node.memory_bytes);
		pgscale_row_int8(&row, node.free_bytes);
		pgscale_row_put(&row, PointerGetDatum(construct_array(distances, n, INT4OID, sizeof(int32), true, TYPALIGN_INT)), false);
		pgscale_row_end(&row, rsinfo);
	}
	return (Datum) 0;
}

/* Does a part of memory have a buffer that holds a page? */
static bool
buffers_used(const char *page, Size size)
{
	const int	first = Max(page - BufferBlocks, 0) / BLCKSZ;
	const int	last = Min((page + size - 1 - BufferBlocks) / BLCKSZ, NBuffers - 1);

	for (int buf = first; buf <= last; buf++)
	{
		PgscaleBuffer buffer;

		pgscale_buffer_look(buf, &buffer);
		if (buffer.valid)
			return true;
	}
	return false;
}

/* Counts pages that lie side by side, and the bytes of them that are shared buffers. */
static void
count_pages(const PgscaleNumaMapping *mapping, char *first, int count, Places *places)
{
	const char *end = BufferBlocks + (Size) NBuffers * BLCKSZ;
	int			nodes[PGSCALE_NUMA_AT_ONCE];
	const int	error = pgscale_numa_where(mapping, first, count, buffers_used, nodes);

	if (error != 0)
	{
		errno = error;
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not ask the kernel where shared memory lies: %m"),
				 errhint("See pgscale.health.")));
	}

	for (int i = 0; i < count; i++)
	{
		const int	at = nodes[i] >= 0 && nodes[i] < PGSCALE_NUMA_NODES ? nodes[i] : NOWHERE;
		const char *page = first + i * mapping->page;

		places->pages[at]++;
		places->bytes[at] += Min(page + mapping->page, end) - Max(page, BufferBlocks);
	}
}

static void
count_all_pages(const PgscaleNumaMapping *mapping, char *first, int64 pages, Places *places)
{
	for (int64 done = 0; done < pages; done += PGSCALE_NUMA_AT_ONCE)
	{
		CHECK_FOR_INTERRUPTS();
		count_pages(mapping, first + done * mapping->page, Min(PGSCALE_NUMA_AT_ONCE, pages - done), places);
	}
}

static void
count_sampled_pages(const PgscaleNumaMapping *mapping, char *first, int64 pages, Places *places)
{
	for (int i = 0; i < SAMPLE; i++)
	{
		const uint64 page = pg_prng_uint64_range(&pg_global_prng_state, 0, pages - 1);

		if (i % SAMPLE_AT_ONCE == 0)
			CHECK_FOR_INTERRUPTS();
		count_pages(mapping, first + page * mapping->page, 1, places);
	}
}

static void
put_fraction(PgscaleRow *row, double fraction)
{
	pgscale_row_float8(row, rint(fraction * 1e4) / 1e4);
}

/*
 * pgscale.numa_buffers(everything): shared buffers by node, one row each, and one
 * with a null node for those that are not in memory.
 *
 * A sample is scaled up to all, so that the rows sum up to shared buffers.
 */
Datum
pgscale_numa_buffers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	const int64 bytes = (int64) NBuffers * BLCKSZ;
	PgscaleNumaMapping mapping;
	Places		places = {0};
	int			nodes[PGSCALE_NUMA_NODES];
	bool		shown[PGSCALE_NUMA_NODES + 1] = {[NOWHERE] = true};
	char	   *first;
	int64		pages;
	bool		sampled;
	int64		seen = 0;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("the argument \"everything\" must not be null"),
				 errhint("Without an argument a sample is taken.")));
	require_numa();
	if (!pgscale_numa_mapping(BufferBlocks, &mapping))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("the kernel does not show how shared memory is mapped"),
				 errhint("The server must be able to read /proc/self/smaps.")));

	/* A page may hold other parts of shared memory as well. */
	first = mapping.start + (BufferBlocks - mapping.start) / mapping.page * mapping.page;
	pages = (BufferBlocks + bytes - first + mapping.page - 1) / mapping.page;
	sampled = !PG_GETARG_BOOL(0) && pages > SAMPLE * SAMPLE_COST;

	InitMaterializedSRF(fcinfo, 0);
	if (sampled)
		count_sampled_pages(&mapping, first, pages, &places);
	else
		count_all_pages(&mapping, first, pages, &places);

	for (int i = pgscale_numa_lib_nodes(nodes); --i >= 0;)
		shown[nodes[i]] = true;
	for (int at = 0; at <= NOWHERE; at++)
	{
		PgscaleRow	row = {0};

		if (!shown[at] && places.pages[at] == 0)
			continue;
		pgscale_row_put(&row, Int32GetDatum(at), at == NOWHERE);
		if (sampled)
		{
			const double from = (double) seen / SAMPLE;
			const double to = (double) (seen + places.pages[at]) / SAMPLE;
			const PgscaleInterval interval = pgscale_wilson_interval(places.pages[at], SAMPLE);

			pgscale_row_int8(&row, (int64) (rint(to * pages) - rint(from * pages)));
			pgscale_row_int8(&row, (int64) (rint(to * bytes) - rint(from * bytes)));
			put_fraction(&row, (double) places.pages[at] / SAMPLE);
			put_fraction(&row, interval.low);
			put_fraction(&row, interval.high);
			seen += places.pages[at];
		}
		else
		{
			pgscale_row_int8(&row, places.pages[at]);
			pgscale_row_int8(&row, places.bytes[at]);
			/* exact: the interval is the fraction */
			for (int i = 0; i < 3; i++)
				put_fraction(&row, (double) places.bytes[at] / bytes);
		}
		pgscale_row_bool(&row, sampled);
		pgscale_row_end(&row, rsinfo);
	}
	return (Datum) 0;
}

/* Only ever called in the postmaster. */
static void
interleave_shared_memory(void)
{
	PgscaleNumaMapping mapping;
	const char *action;
	int64		left = 0;

	interleaved = false;
	interleave_error = 0;
	if (pgscale_numa_lib_trouble(&action) || pgscale_numa_lib_allowed() < 2)
		return;					/* health says so */

	if (pgscale_numa_mapping(BufferBlocks, &mapping))
		interleave_error = pgscale_numa_interleave(&mapping, &left);
	else
		interleave_error = ENOENT;
	interleaved = interleave_error == 0;

	errno = interleave_error;
	if (interleaved)
		ereport(LOG,
				(errmsg("pgscale interleaves %zu MB of shared memory over %d NUMA nodes; %lld pages in use could not be moved",
						mapping.size >> 20, pgscale_numa_lib_allowed(), (long long) left)));
	else
		ereport(WARNING,
				(errmsg("pgscale could not interleave shared memory: %m"),
				 errhint("See pgscale.health.")));
}

static void
numa_define_gucs(void)
{
	DefineCustomBoolVariable("pgscale.numa_interleave",
							 "Spreads the main shared memory segment over all NUMA nodes.",
							 "Sessions that had it near are slower then. If it is impossible, pgscale.health says so.",
							 &interleave,
							 false,
							 PGC_POSTMASTER,
							 0,
							 NULL, NULL, NULL);
}

static void
numa_startup(void)
{
	if (interleave)
		interleave_shared_memory();
}

static void
numa_health(PgscaleHealth *health)
{
	const bool	preloaded = pgscale_health_preloaded(health, NULL, false);
	int			nodes[PGSCALE_NUMA_NODES];
	int			n;

	/* A machine without it is not a fault until the feature is requested. */
	health->state = interleave ? PGSCALE_HEALTH_BROKEN : PGSCALE_HEALTH_OFF;
	health->reason = pgscale_numa_lib_trouble(&health->action);
	if (!health->reason && interleave && interleave_error != 0)
	{
		health->reason = psprintf("shared memory could not be interleaved: %s", strerror(interleave_error));
		health->action = "allow mbind in the container's seccomp profile, as CAP_SYS_NICE does, and restart";
	}
	if (health->reason)
		return;

	health->state = interleaved ? PGSCALE_HEALTH_WORKING : PGSCALE_HEALTH_IDLE;
	health->action = NULL;
	n = pgscale_numa_lib_nodes(nodes);
	if (!preloaded)
	{
		health->reason = "pgscale is not loaded into the server: nothing is placed; all else works";
		health->action = "add pgscale to shared_preload_libraries and restart";
	}
	else if (n < 2)
		health->reason = "the machine has one node: there is nothing to place";
	else if (interleave && !interleaved)
		health->reason = psprintf("%d nodes, and the server may use the memory of one only: there is nothing to "
								  "place", n);
	else
		health->reason = psprintf("%d nodes; shared memory is %s", n,
								  interleaved ? "interleaved" : "where it was first touched");
}

const PgscaleModule pgscale_numa_module = {
	.name = "numa",
	.define_gucs = numa_define_gucs,
	.shmem_startup = numa_startup,
	.health = numa_health,
};
