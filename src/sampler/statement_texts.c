/*-------------------------------------------------------------------------
 *
 * statement_texts.c
 *	  Texts of statements that ran for more than a second.
 *
 * pg_stat_statements has the text of a statement that has ended, and the server that of one
 * that runs.  A statement that ran for an hour and was cancelled is in neither.  So the sampler
 * keeps the beginnings of the texts of the statements that ran for longest, in shared memory
 * of fixed size, by query identifier and role; and of statements without an
 * identifier by the text itself.
 *
 * Once a second a tick looks at the sessions whose statement has run for a second.  If the
 * statement is known, only its times change.  Otherwise its text is read, at most NEW_TEXTS a look,
 * so that a look costs at most so many times a kilobyte, and a comparison with each text for
 * each of these sessions.  Sessions beyond have their turn a second later.
 *
 * When all places are taken, the place of a text that was not seen for an hour is used again,
 * the one that was seen least recently; if there is none, that of the shortest statement, if the
 * new one has run for longer.
 *
 * A text has the encoding of its database, and the words that its user wrote.  The function that shows
 * them converts and cleans them (base/texts.c), and shows a role what pg_stat_activity would.
 *
 * Locking: the sampler alone writes, within changes (base/change_count.h); readers copy all of it.  It
 * raises no error.  A restart of the server empties it.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "common/hashfn.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/shmem.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/change_count.h"
#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/processes.h"
#include "base/texts.h"
#include "base/units.h"
#include "sampler/samples.h"
#include "sampler/statement_texts.h"

#define TEXTS			64

/* A statement that runs for so long is looked at, so often, and so many new ones at a time. */
#define LONG_US			USECS_PER_SEC
#define TEXTS_LOOK_NS	NS_PER_S
#define NEW_TEXTS		8

/* A text that was not seen for so long makes room for any other. */
#define OLD_US			USECS_PER_HOUR

PG_FUNCTION_INFO_V1(pgscale_statement_texts);

typedef struct LongStatement
{
	int64		queryid;		/* 0: it has no identifier, or had none yet */
	uint64		hash;			/* of its text, if it has no identifier; or 0 */
	Oid			userid;
	Oid			datid;			/* whose encoding the text has */
	TimestampTz first_seen;
	TimestampTz last_seen;
	int64		longest_us;		/* of its executions that were seen */
	char		query[PGSCALE_PROC_TEXT];
} LongStatement;

typedef struct StatementTexts
{
	PgscaleChangeCount changes; /* of all that follows */
	int			used;
	LongStatement statements[TEXTS];
} StatementTexts;

/* Of a session whose statement has no identifier: the text that was read. */
typedef struct HashedStatement
{
	TimestampTz activity_start;
	uint64		hash;
} HashedStatement;

static StatementTexts *texts = NULL;

/* The sampler's own. */
static HashedStatement *hashed = NULL;	/* by slot */
static int64 last_look = 0;
static bool looking = false;
static TimestampTz look_at;
static int	new_left;			/* texts to read in this look */
static int	victim;				/* whose place the next new one takes, or -1 */
static int64 floor_us;			/* which must have run for longer than this */

Size
pgscale_sampler_texts_size(void)
{
	return sizeof(StatementTexts);
}

void
pgscale_sampler_texts_startup(void)
{
	bool		found;

	texts = ShmemInitStruct("pgscale sampler texts", sizeof(StatementTexts), &found);
	if (found)
		return;
	memset(texts, 0, sizeof(*texts));
	pgscale_change_init(&texts->changes);
}

/* The sampler before may have ended within a change. */
void
pgscale_sampler_texts_attach(void)
{
	hashed = MemoryContextAllocZero(TopMemoryContext, pgscale_procs_count() * sizeof(HashedStatement));
	(void) pgscale_change_begin_write(&texts->changes);
	pgscale_change_end_write(&texts->changes);
}

void
pgscale_sampler_texts_reset(void)
{
	(void) pgscale_change_begin_write(&texts->changes);
	texts->used = 0;
	pgscale_change_end_write(&texts->changes);
}

/* Chooses the place of the next new text. */
static void
choose_victim(void)
{
	int			oldest = 0;
	int			shortest = 0;

	floor_us = 0;
	victim = texts->used;
	if (victim < TEXTS)
		return;
	for (int i = 1; i < TEXTS; i++)
	{
		if (texts->statements[i].last_seen < texts->statements[oldest].last_seen)
			oldest = i;
		if (texts->statements[i].longest_us < texts->statements[shortest].longest_us)
			shortest = i;
	}
	if (look_at - texts->statements[oldest].last_seen > OLD_US)
		victim = oldest;
	else
	{
		victim = shortest;
		floor_us = texts->statements[shortest].longest_us;
	}
}

void
pgscale_sampler_texts_begin(int64 now, TimestampTz wall)
{
	if (now - last_look < TEXTS_LOOK_NS)
		return;
	last_look = now;
	looking = true;
	look_at = wall;
	new_left = NEW_TEXTS;
	(void) pgscale_change_begin_write(&texts->changes);
	choose_victim();
}

void
pgscale_sampler_texts_end(void)
{
	if (!looking)
		return;
	looking = false;
	pgscale_change_end_write(&texts->changes);
}

static LongStatement *
find_statement(int64 queryid, uint64 hash, Oid userid)
{
	for (int i = 0; i < texts->used; i++)
	{
		LongStatement *statement = &texts->statements[i];

		if (statement->queryid == queryid && statement->userid == userid && statement->hash == hash)
			return statement;
	}
	return NULL;
}

static uint64
hash_of_query(const char *query)
{
	/* 0 stands for none */
	return hash_bytes_extended((const unsigned char *) query, strlen(query), 0) | 1;
}

static void
add_statement(const PgscaleSamplerTickSample *sample, int64 ran_us)
{
	PgscaleProcStatement read;
	LongStatement *statement;
	uint64		hash = 0;

	if (new_left == 0)
		return;
	new_left--;
	if (!pgscale_procs_read_statement(sample->slot, &read) || read.pid != sample->proc->pid ||
		read.activity_start != sample->proc->activity_start || read.queryid != sample->proc->queryid || read.query[0] == '\0')
		return;
	if (read.queryid == 0)
	{
		hash = hash_of_query(read.query);
		hashed[sample->slot].activity_start = read.activity_start;
		hashed[sample->slot].hash = hash;
	}

	statement = find_statement(read.queryid, hash, read.userid);
	if (statement == NULL)
	{
		if (ran_us <= floor_us)
			return;
		statement = &texts->statements[victim];
		memset(statement, 0, offsetof(LongStatement, query));
		texts->used = Max(texts->used, victim + 1);
		statement->queryid = read.queryid;
		statement->hash = hash;
		statement->userid = read.userid;
		statement->datid = read.datid;
		statement->first_seen = look_at;
		strlcpy(statement->query, read.query, sizeof(statement->query));
	}
	statement->last_seen = look_at;
	statement->longest_us = Max(statement->longest_us, ran_us);
	choose_victim();
}

void
pgscale_sampler_texts_add(const PgscaleSamplerTickSample *sample)
{
	const PgscaleProc *proc = sample->proc;
	const HashedStatement *known;
	LongStatement *statement = NULL;
	int64		ran_us;

	if (!looking || !proc->running || proc->kind != (PgscaleProcKind) B_BACKEND)
		return;
	ran_us = look_at - proc->activity_start;
	if (ran_us < LONG_US)
		return;

	known = &hashed[sample->slot];
	if (proc->queryid != 0)
		statement = find_statement(proc->queryid, 0, proc->userid);
	else if (known->activity_start == proc->activity_start)
		statement = find_statement(0, known->hash, proc->userid);

	if (statement)
	{
		statement->last_seen = look_at;
		statement->longest_us = Max(statement->longest_us, ran_us);
		if (statement == &texts->statements[victim])
			choose_victim();
	}
	else if (ran_us > floor_us)
		add_statement(sample, ran_us);
}

/* The encoding of a database; of one that was dropped, any. */
static int
encoding_of_database(Oid database)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	int			encoding = PG_SQL_ASCII;

	if (HeapTupleIsValid(tuple))
	{
		encoding = ((Form_pg_database) GETSTRUCT(tuple))->encoding;
		ReleaseSysCache(tuple);
	}
	return encoding;
}

static void
put_statement(ReturnSetInfo *rsinfo, const LongStatement *statement)
{
	const int	encoding = encoding_of_database(statement->datid);
	const char *query = statement->query;
	int			len = strlen(query);
	Datum		values[7];
	bool		nulls[7] = {0};

	/* its last character may be cut */
	len = pg_encoding_mbcliplen(encoding == PG_SQL_ASCII ? PG_UTF8 : encoding, query, len, len);
	values[0] = Int64GetDatum(statement->queryid);
	nulls[0] = statement->queryid == 0;
	values[1] = ObjectIdGetDatum(statement->datid);
	values[2] = ObjectIdGetDatum(statement->userid);
	values[3] = TimestampTzGetDatum(statement->first_seen);
	values[4] = TimestampTzGetDatum(statement->last_seen);
	values[5] = Float8GetDatum(statement->longest_us / 1000.0);
	values[6] = CStringGetTextDatum(pgscale_text_statement(query, len, encoding));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * pgscale_internal.statement_texts(): a row a statement whose text the caller may see, by pg_stat_activity's rule.  Without
 * preload there is none.
 */
Datum
pgscale_statement_texts(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	StatementTexts *copy;
	bool		reads_all;

	InitMaterializedSRF(fcinfo, 0);
	if (!pgscale_preload_done())
		return (Datum) 0;

	reads_all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
	copy = palloc(sizeof(StatementTexts));
	pgscale_change_copy(&texts->changes, copy, texts, sizeof(StatementTexts));
	for (int i = 0; i < copy->used; i++)
	{
		const LongStatement *statement = &copy->statements[i];

		CHECK_FOR_INTERRUPTS();
		if (reads_all || has_privs_of_role(GetUserId(), statement->userid))
			put_statement(rsinfo, statement);
	}
	return (Datum) 0;
}
