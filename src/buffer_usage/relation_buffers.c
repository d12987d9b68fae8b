/*-------------------------------------------------------------------------
 *
 * relation_buffers.c
 *	  Relations in shared buffers, and how much of each.
 *
 * One pass over the headers adds up the buffers of each fork in a hash table.  Then one
 * scan of pg_class finds their relations in this database.  Relations are not opened
 * and so not locked: nothing is waited for.  The size of a fork is the size of its
 * files.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "common/hashfn.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"

#include "base/pg_compat.h"
#include "base/relation_files.h"
#include "base/row_builder.h"
#include "base/shared_buffers.h"

/* Headers between two checks for interrupts. */
#define HEADERS_AT_ONCE	16384

/* A server with few relations needs no more. */
#define FORKS_AT_FIRST	512

typedef struct ForkKey
{
	RelFileLocator locator;
	ForkNumber	fork;
} ForkKey;

typedef struct Fork
{
	ForkKey		key;
	char		status;			/* the hash table's */
	Oid			relation;		/* if it is known */
	int64		buffers;
	int64		dirty;
	int64		usage;			/* sum of usage counts */
	int64		known;			/* those whose page the sweeper knows */
	double		score;			/* sum of their scores */
	int64		may_leave;
} Fork;

static inline bool
same_key(ForkKey a, ForkKey b)
{
	return a.fork == b.fork && RelFileLocatorEquals(a.locator, b.locator);
}

static inline uint32
hash_key(ForkKey key)
{
	return hash_combine(murmurhash32(key.locator.relNumber), murmurhash32(key.locator.dbOid)) + key.fork;
}

#define SH_PREFIX		forks
#define SH_ELEMENT_TYPE	Fork
#define SH_KEY_TYPE		ForkKey
#define SH_KEY			key
#define SH_HASH_KEY(tb, key)	hash_key(key)
#define SH_EQUAL(tb, a, b)		same_key(a, b)
#define SH_SCOPE		static inline
#define SH_DEFINE
#define SH_DECLARE
#include "lib/simplehash.h"

PG_FUNCTION_INFO_V1(pgscale_relation_buffers);

static Fork *
find_or_add(forks_hash *forks, ForkKey key)
{
	bool		found;
	Fork	   *fork = forks_insert(forks, key, &found);

	if (!found)
	{
		fork->relation = InvalidOid;
		fork->buffers = fork->dirty = fork->usage = fork->known = fork->may_leave = 0;
		fork->score = 0;
	}
	return fork;
}

static void
add_worth(Fork *fork, int buf, const PgscalePage *page)
{
	PgscalePageWorth worth;

	if (!pgscale_buffer_worths || !pgscale_buffer_worths->of(buf, page, &worth))
		return;
	fork->known++;
	fork->score += worth.score;
	fork->may_leave += worth.may_leave;
}

static void
count_buffers(forks_hash *forks)
{
	Fork	   *fork = NULL;

	for (int buf = 0; buf < NBuffers; buf++)
	{
		PgscaleBuffer buffer;
		PgscalePage page;
		ForkKey		key;

		if (buf % HEADERS_AT_ONCE == 0)
			CHECK_FOR_INTERRUPTS();
		if (!pgscale_buffer_read(buf, &buffer, &page))
			continue;

		/* Neighbours in a file were often read one after the other. */
		key.locator = page.locator;
		key.fork = page.fork;
		if (fork == NULL || !same_key(fork->key, key))
			fork = find_or_add(forks, key);
		fork->buffers++;
		fork->dirty += buffer.dirty;
		fork->usage += buffer.usage;
		add_worth(fork, buf, &page);
	}
}

static void
name_forks(void *arg, Form_pg_class class, RelFileLocator locator)
{
	ForkKey		key = {.locator = locator};

	for (key.fork = 0; key.fork <= MAX_FORKNUM; key.fork++)
	{
		Fork	   *fork = forks_lookup((forks_hash *) arg, key);

		if (fork)
			fork->relation = class->oid;
	}
}

/* The size of a fork, by its files; -1 if it is gone or cannot be read. */
static int64
fork_bytes(ForkKey key)
{
	int64		bytes = 0;
	struct stat file = {0};

	for (uint32 segment = 0; segment == 0 || file.st_size == PGSCALE_SEGMENT_BYTES; segment++)
	{
		char		path[MAXPGPATH];

		pgscale_relation_file_path(path, key.locator, INVALID_PROC_NUMBER, key.fork, segment);
		if (stat(path, &file) != 0)
			return errno == ENOENT && segment > 0 ? bytes : -1;
		bytes += file.st_size;
	}
	return bytes;
}

/*
 * pgscale_internal.relation_buffers(): one row a fork that has buffers, of any database.
 *
 * Buffers that hold no page are in none of them, nor is one whose header stays
 * locked while it is read.
 */
Datum
pgscale_relation_buffers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	forks_hash *forks = forks_create(CurrentMemoryContext, FORKS_AT_FIRST, NULL);
	forks_iterator i;
	Fork	   *fork;

	InitMaterializedSRF(fcinfo, 0);
	if (pgscale_buffer_worths)
		pgscale_buffer_worths->begin();
	count_buffers(forks);
	if (pgscale_buffer_worths)
		pgscale_buffer_worths->end();
	pgscale_relation_files_each(name_forks, forks);

	forks_start_iterate(forks, &i);
	while ((fork = forks_iterate(forks, &i)) != NULL)
	{
		const int64 bytes = fork->buffers * BLCKSZ;
		const int64 size = fork_bytes(fork->key);
		PgscaleRow	row = {0};

		CHECK_FOR_INTERRUPTS();
		pgscale_row_put(&row, ObjectIdGetDatum(fork->key.locator.dbOid), false);
		pgscale_row_oid(&row, fork->relation);
		pgscale_row_oid(&row, fork->key.locator.relNumber);
		pgscale_row_oid(&row, fork->key.locator.spcOid);
		pgscale_row_text(&row, forkNames[fork->key.fork]);
		pgscale_row_int8(&row, fork->buffers);
		pgscale_row_int8(&row, bytes);
		pgscale_row_int8(&row, fork->dirty);
		pgscale_row_float8(&row, (double) fork->usage / fork->buffers);
		pgscale_row_float8(&row, size > 0 ? Min((double) bytes / size, 1) : NAN);
		pgscale_row_float8(&row, fork->known > 0 ? fork->score / fork->known : NAN);
		pgscale_row_put(&row, Int64GetDatum(fork->may_leave), fork->known == 0);
		pgscale_row_end(&row, rsinfo);
	}
	forks_destroy(forks);
	return (Datum) 0;
}
