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
 * Once a second a tick collects the sessions whose statement has run for a second, which are
 * handled at its end.  If the statement is known, only its times change.  Otherwise its text is
 * read, at most NEW_TEXTS a second, so that it costs at most NEW_TEXTS kilobytes, and a comparison
 * with each key for each of these sessions.  Sessions beyond have their turn a second later.
 *
 * A statement has no identifier before it is analyzed, which may wait for a lock.  So a statement without one
 * is not new while it waits for a lock, if the server computes identifiers; and when it
 * has its identifier later, what was kept without one is kept by that.
 *
 * When all places are taken, the place of a text that was not seen for an hour is used again,
 * the one that was seen least recently; if there is none, that of the shortest statement, if the
 * new one has run for longer.
 *
 * A text has the encoding of its database, and the words that its user wrote.  The function that shows
 * them converts and cleans them (base/texts.c), and shows a role what pg_stat_activity would.
 *
 * Of the longest execution and of the last one it is known when they ran, so that a statement can be
 * found by a period.
 *
 * Locking: only the sampler writes, within one change a second (base/change_count.h), in which nothing
 * can wait or raise an error; readers copy all of it.  A restart of the server empties it.
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
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/change_count.h"
#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/processes.h"
#include "base/row_builder.h"
#include "base/texts.h"
#include "base/units.h"
#include "base/wait_events.h"
#include "sampler/samples.h"

#define TEXTS			64

/* A statement that runs for so long is kept.  So often they are read, and so many new ones at a time. */
#define LONG_US			USECS_PER_SEC
#define TEXTS_READ_NS	NS_PER_S
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
	TimestampTz last_seen;		/* 0: the place is free */
	int64		last_us;		/* of the execution seen last; of several, the
								 * longest */
	TimestampTz longest_seen;	/* when the longest one was seen last */
	int64		longest_us;		/* of its executions that were seen */
} LongStatement;

typedef struct LongStatements
{
	int			used;
	LongStatement statements[TEXTS];
	char		queries[TEXTS][PGSCALE_PROC_TEXT];	/* apart from the keys */
} LongStatements;

typedef struct StatementTexts
{
	PgscaleChangeCount changes; /* of all that follows */
	LongStatements kept;
} StatementTexts;

/* A session whose statement is long, as the tick has read it. */
typedef struct LongSession
{
	int			slot;
	int			pid;
	Oid			userid;
	bool		awaits_lock;
	int64		queryid;
	TimestampTz activity_start;
	int64		ran_us;
} LongSession;

/* Of a session whose statement has no identifier: the text that was read. */
typedef struct HashedStatement
{
	TimestampTz activity_start;
	uint64		hash;
} HashedStatement;

static StatementTexts *texts = NULL;

/* The sampler's own. */
static HashedStatement *hashed = NULL;	/* by slot */
static LongSession *sessions = NULL;	/* of this tick */
static int	nsessions = 0;
static int64 last_read = 0;
static bool reading = false;	/* in the present tick, or at its end */
static TimestampTz read_at;
static int	new_left;			/* texts to read at its end */
static int	victim;				/* whose place the next new one takes */
static int64 floor_us;			/* which must have run for longer than this */

static void
texts_init(void)
{
	pgscale_change_init(&texts->changes);
}

static void
texts_attach(void)
{
	hashed = MemoryContextAllocZero(TopMemoryContext, pgscale_procs_count() * sizeof(HashedStatement));
	sessions = MemoryContextAlloc(TopMemoryContext, pgscale_procs_count() * sizeof(LongSession));
	/* The one before may have ended within a change. */
	(void) pgscale_change_begin_write(&texts->changes);
	pgscale_change_end_write(&texts->changes);
}

static void
texts_reset(int64 now)
{
	(void) pgscale_change_begin_write(&texts->changes);
	texts->kept.used = 0;
	pgscale_change_end_write(&texts->changes);
}

/* Chooses the place of the next new text. */
static void
choose_victim(void)
{
	int			oldest = 0;
	int			shortest = 0;

	floor_us = 0;
	victim = texts->kept.used;
	if (victim < TEXTS)
		return;
	for (int i = 1; i < TEXTS; i++)
	{
		if (texts->kept.statements[i].last_seen < texts->kept.statements[oldest].last_seen)
			oldest = i;
		if (texts->kept.statements[i].longest_us < texts->kept.statements[shortest].longest_us)
			shortest = i;
	}
	if (read_at - texts->kept.statements[oldest].last_seen > OLD_US)
		victim = oldest;
	else
	{
		victim = shortest;
		floor_us = texts->kept.statements[shortest].longest_us;
	}
}

static void
texts_begin(const PgscaleSamplerTick *tick)
{
	if (tick->now - last_read < TEXTS_READ_NS)
		return;
	last_read = tick->now;
	reading = true;
	read_at = tick->wall;
	nsessions = 0;
}

static void
texts_add(PgscaleSamplerTickSample *sample, const PgscaleSamplerTick *tick)
{
	const PgscaleProc *proc = sample->proc;
	LongSession *session;

	if (!reading || sample->idle || !proc->running || proc->kind != (PgscaleProcKind) B_BACKEND || read_at - proc->activity_start < LONG_US)
		return;
	session = &sessions[nsessions++];
	session->slot = sample->slot;
	session->pid = proc->pid;
	session->userid = proc->userid;
	session->awaits_lock = (proc->wait_event & PGSCALE_WAIT_CLASS) == PG_WAIT_LOCK;
	session->queryid = proc->queryid;
	session->activity_start = proc->activity_start;
	session->ran_us = read_at - proc->activity_start;
}

static LongStatement *
find_statement(int64 queryid, uint64 hash, Oid userid)
{
	for (int i = 0; i < texts->kept.used; i++)
	{
		LongStatement *statement = &texts->kept.statements[i];

		if (statement->queryid == queryid && statement->userid == userid && statement->hash == hash && statement->last_seen != 0)
			return statement;
	}
	return NULL;
}

static void
see_statement(LongStatement *statement, int64 ran_us)
{
	statement->last_us = statement->last_seen == read_at ? Max(statement->last_us, ran_us) : ran_us;
	statement->last_seen = read_at;
	if (ran_us < statement->longest_us)
		return;
	statement->longest_us = ran_us;
	statement->longest_seen = read_at;
}

/*
 * A statement that was without its identifier when its text was read, and has one now: it is kept by that.  If it was
 * seen before this execution, others of its executions have none.
 */
static void
identify_statement(const LongSession *session)
{
	HashedStatement *known = &hashed[session->slot];
	LongStatement *statement;

	if (known->activity_start != session->activity_start)
		return;
	known->activity_start = 0;
	statement = find_statement(0, known->hash, session->userid);
	if (statement == NULL || statement->first_seen < session->activity_start)
		return;
	if (find_statement(session->queryid, 0, session->userid))
		statement->last_seen = 0;
	else
	{
		statement->queryid = session->queryid;
		statement->hash = 0;
	}
}

/* The statement of a session, if it is known. */
static LongStatement *
known_statement(const LongSession *session)
{
	const HashedStatement *known = &hashed[session->slot];

	if (session->queryid != 0)
		return find_statement(session->queryid, 0, session->userid);
	if (known->activity_start == session->activity_start)
		return find_statement(0, known->hash, session->userid);
	return NULL;
}

/* Reads the text of a statement, and keeps it if it is new. */
static void
add_statement(const LongSession *session)
{
	PgscaleProcStatement read;
	LongStatement *statement;
	uint64		hash = 0;

	if (new_left == 0)
		return;
	new_left--;
	if (!pgscale_procs_read_statement(session->slot, &read) || read.pid != session->pid ||
		read.activity_start != session->activity_start || read.queryid != session->queryid || read.query[0] == '\0')
		return;
	if (read.queryid == 0)
	{
		/* 0 stands for none */
		hash = hash_bytes_extended((const unsigned char *) read.query, strlen(read.query), 0) | 1;
		hashed[session->slot].activity_start = read.activity_start;
		hashed[session->slot].hash = hash;
	}

	statement = find_statement(read.queryid, hash, read.userid);
	if (statement == NULL)
	{
		statement = &texts->kept.statements[victim];
		memset(statement, 0, sizeof(*statement));
		texts->kept.used = Max(texts->kept.used, victim + 1);
		statement->queryid = read.queryid;
		statement->hash = hash;
		statement->userid = read.userid;
		statement->datid = read.datid;
		statement->first_seen = read_at;
		strlcpy(texts->kept.queries[victim], read.query, sizeof(texts->kept.queries[victim]));
	}
	see_statement(statement, session->ran_us);
	choose_victim();
}

static void
texts_end(PgscaleSamplerTick *tick)
{
	if (!reading)
		return;
	reading = false;
	if (nsessions == 0)
		return;

	(void) pgscale_change_begin_write(&texts->changes);
	/* known ones first: none of them is the victim of a new one */
	for (int i = 0; i < nsessions; i++)
	{
		LongStatement *statement;

		if (sessions[i].queryid != 0)
			identify_statement(&sessions[i]);
		statement = known_statement(&sessions[i]);
		if (statement)
			see_statement(statement, sessions[i].ran_us);
	}
	new_left = NEW_TEXTS;
	choose_victim();
	for (int i = 0; i < nsessions && new_left > 0; i++)
	{
		const LongSession *session = &sessions[i];

		if (session->ran_us > floor_us && !(session->queryid == 0 && session->awaits_lock && IsQueryIdEnabled()) &&
			known_statement(session) == NULL)
			add_statement(session);
	}
	pgscale_change_end_write(&texts->changes);
}

const PgscaleArea pgscale_sampler_texts_area = {
	.name = "pgscale sampler texts",
	.at = (void **) &texts,
	.size = sizeof(StatementTexts),
	.init = texts_init,
};

const PgscaleSamplerConsumer pgscale_sampler_texts_consumer = {
	.attach = texts_attach,
	.reset = texts_reset,
	.begin = texts_begin,
	.add = texts_add,
	.end = texts_end,
};

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
put_statement(ReturnSetInfo *rsinfo, const LongStatement *statement, const char *query)
{
	const int	encoding = encoding_of_database(statement->datid);
	int			len = strlen(query);
	PgscaleRow	row = {0};

	/* its last character may be cut */
	len = pg_encoding_mbcliplen(encoding == PG_SQL_ASCII ? PG_UTF8 : encoding, query, len, len);
	pgscale_row_id(&row, statement->queryid);
	pgscale_row_put(&row, ObjectIdGetDatum(statement->datid), false);
	pgscale_row_put(&row, ObjectIdGetDatum(statement->userid), false);
	pgscale_row_timestamp(&row, statement->first_seen);
	pgscale_row_timestamp(&row, statement->last_seen);
	pgscale_row_float8(&row, statement->last_us / 1000.0);
	pgscale_row_timestamp(&row, statement->longest_seen);
	pgscale_row_float8(&row, statement->longest_us / 1000.0);
	pgscale_row_text(&row, pgscale_text_statement(query, len, encoding));
	pgscale_row_end(&row, rsinfo);
}

/*
 * pgscale_internal.statement_texts(): a row a statement whose text the caller may see, by pg_stat_activity's rule.  Without
 * preload there is none.
 */
Datum
pgscale_statement_texts(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	LongStatements *copy;
	bool		reads_all;

	InitMaterializedSRF(fcinfo, 0);
	if (!pgscale_preload_done())
		return (Datum) 0;

	reads_all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
	copy = palloc(sizeof(*copy));
	pgscale_change_copy(&texts->changes, copy, &texts->kept, sizeof(*copy));
	for (int i = 0; i < copy->used; i++)
	{
		const LongStatement *statement = &copy->statements[i];

		CHECK_FOR_INTERRUPTS();
		if (statement->last_seen == 0)
			continue;
		if (reads_all || has_privs_of_role(GetUserId(), statement->userid))
			put_statement(rsinfo, statement, copy->queries[i]);
	}
	return (Datum) 0;
}
