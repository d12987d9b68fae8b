/*-------------------------------------------------------------------------
 *
 * relocation_jobs.c
 *	  The table of relocation jobs of this database: each step is committed before it
 *	  is made.
 *
 * A job is a row of pgscale_internal.relocation_job.  A backend adds it in its own
 * transaction, so the job exists if that transaction commits.  A worker takes the job,
 * tries it, and stores the result, each in its own transaction.  The OID of a new index
 * is stored by the same transaction of REINDEX that creates the index; the files of an online move are
 * stored before they are made, and with the switch those that it leaves.  So after a
 * crash the table lists exactly the leftovers that may exist, and no index is ever
 * recognized by its name.
 *
 * Workers take jobs one after the other, under a lock of their own; otherwise two workers
 * could take two jobs of one table, which would deadlock.  The lock is not one on the
 * table: ANALYZE and VACUUM of autovacuum would have to wait for it, or be cancelled by it.
 * Shared memory knows the tables that workers are at (launcher.c), so no row has to
 * be compared with other rows.
 *
 * The cost of taking a job does not depend on how many there are.  The jobs are taken in
 * the order of not_before, which an index of the open jobs has, so the first row that it
 * returns is the job, whatever the statistics of the table say.  A job that has to wait goes
 * to the end of the queue.  While an old snapshot is held, the index keeps entries of jobs
 * that have ended: so a search begins at the last job that this worker has taken, and only
 * now and then at the beginning (LOOK_BACK_MS).  Statements that read all open jobs run once
 * in a worker or once in a request.
 *
 * If a row says that a worker runs the job and no worker does, then a worker or the server
 * has crashed: the next worker that starts queues the job again.
 *
 * base/extension_table.c describes how the table is written on behalf of users, and to
 * which server its rows belong.
 *
 * The reason of a failed attempt is the text of an error, which may contain values of
 * rows: of a duplicate key, or of the input of an index function.  So there are two
 * texts: a message for all roles that may see the job, and a detail, which the view
 * shows only to roles that may read the table.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_class_d.h"
#include "catalog/pg_type_d.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/extension_table.h"
#include "base/pg_compat.h"
#include "base/timer.h"
#include "base/units.h"
#include "relocation/jobs/launcher.h"
#include "relocation/jobs/relocation_jobs.h"

static const char *const mode_words[] = {
	[PGSCALE_RELOCATE_ONLINE] = "online",
	[PGSCALE_RELOCATE_REBUILD] = "rebuild",
	[PGSCALE_RELOCATE_LOCK] = "lock",
};

bool
pgscale_relocation_mode_named(const char *word, PgscaleRelocationMode *mode)
{
	for (int i = 0; i < lengthof(mode_words); i++)
		if (strcmp(word, mode_words[i]) == 0)
		{
			*mode = i;
			return true;
		}
	return false;
}

bool
pgscale_relocation_job_has_ended(const char *state)
{
	return strcmp(state, PGSCALE_JOB_DONE) == 0 || strcmp(state, PGSCALE_JOB_FAILED) == 0 ||
		strcmp(state, PGSCALE_JOB_CANCELLED) == 0 || strcmp(state, PGSCALE_JOB_LOST) == 0;
}

static const PgscaleExtensionTable jobs = {"relocation_job", "relocation jobs"};

static uint64
job_table_execute(const char *statement, PgscaleParameters *parameters, bool latest)
{
	return pgscale_table_execute(&jobs, statement, parameters, latest);
}

static void
execute_alone(const char *statement, PgscaleParameters *parameters, bool flush)
{
	pgscale_table_execute_alone(&jobs, statement, parameters, flush);
}

#define HERE	PGSCALE_TABLE_HERE(1, 2)

/*
 * Rows of another database or server, which came with a copy, are not to act
 * here; nor shall they stand in the way.  What an attempt had left behind when
 * the copy was made came with it, under the same OID, and is cleaned up; files
 * come only with a copy in the same server.
 */
#define LEFT_OVER	" (new_index IS NOT NULL OR files IS NOT NULL AND cluster = $1) "

static void
end_foreign(void)
{
	PgscaleParameters parameters = {0};

	pgscale_table_add_here(&parameters);
	job_table_execute("UPDATE pgscale_internal.relocation_job SET cluster = CASE WHEN" LEFT_OVER "THEN $1 ELSE cluster END,"
					  " database = CASE WHEN" LEFT_OVER "THEN $2 ELSE database END, pid = NULL, cancel = true,"
					  " state = CASE WHEN" LEFT_OVER "THEN 'queued' ELSE 'cancelled' END,"
					  " finished_at = CASE WHEN" LEFT_OVER "THEN NULL ELSE pg_catalog.clock_timestamp() END,"
					  " not_before = pg_catalog.clock_timestamp(), sqlstate = '57014', detail = NULL,"
					  " message = 'it was asked for in ' || pgscale_internal.row_origin(cluster, database) || ', of which this is a copy'"
					  " WHERE finished_at IS NULL AND NOT" HERE, &parameters, false);
	SPI_finish();
}

/* Adds the row and returns its id; 0 if there is an open job of this relation. */
static int64
insert_job(PgscaleParameters *parameters)
{
	int64		id = 0;

	if (job_table_execute("INSERT INTO pgscale_internal.relocation_job (kind, relation, heap, relation_name, heap_name, source, target,"
						  " source_name, target_name, role, role_name, amcheck, prewarm, lock_timeout_ms, block_ms_predicted, bytes, undo_of,"
						  " cluster, database, mode)"
						  " VALUES ($1, $2, $3, $2::pg_catalog.regclass, $3::pg_catalog.regclass, $4, $5,"
						  " (SELECT spcname FROM pg_catalog.pg_tablespace WHERE oid = $4),"
						  " (SELECT spcname FROM pg_catalog.pg_tablespace WHERE oid = $5),"
						  " $6, pg_catalog.pg_get_userbyid($6), $7, $8, $9, nullif($10, -1), $11, nullif($12, 0), $13, $14, $15)"
						  " ON CONFLICT (relation) WHERE finished_at IS NULL DO NOTHING RETURNING job", parameters, false) == 1)
		id = pgscale_table_bigint(0, 1);
	SPI_finish();
	return id;
}

/* The open job of a relation; 0: none.  *here: is it one of this database? */
static int64
open_job_of(Oid relation, bool *here)
{
	PgscaleParameters parameters = {0};
	int64		id = 0;

	pgscale_table_add_here(&parameters);
	pgscale_table_add_oid(&parameters, relation);
	if (job_table_execute("SELECT job," HERE "FROM pgscale_internal.relocation_job WHERE relation = $3 AND finished_at IS NULL",
						  &parameters, true) == 1)
	{
		id = pgscale_table_bigint(0, 1);
		*here = pgscale_table_bool(0, 2);
	}
	SPI_finish();
	return id;
}

int64
pgscale_relocation_job_add(const PgscaleRelocationJob *job, int64 *other)
{
	PgscaleParameters parameters = {0};
	bool		here = true;
	int64		id;

	pgscale_table_add_text(&parameters, job->is_table ? "table" : "index");
	pgscale_table_add_oid(&parameters, job->relation);
	pgscale_table_add_oid(&parameters, job->heap);
	pgscale_table_add_oid(&parameters, job->source);
	pgscale_table_add_oid(&parameters, job->target);
	pgscale_table_add_oid(&parameters, job->role);
	pgscale_table_add(&parameters, BOOLOID, BoolGetDatum(job->amcheck));
	pgscale_table_add(&parameters, BOOLOID, BoolGetDatum(job->prewarm));
	pgscale_table_add(&parameters, INT4OID, Int32GetDatum(job->lock_timeout_ms));
	pgscale_table_add(&parameters, FLOAT8OID, Float8GetDatum(job->block_ms));
	pgscale_table_add_bigint(&parameters, job->bytes);
	pgscale_table_add_bigint(&parameters, job->undo_of);
	pgscale_table_add_here(&parameters);
	pgscale_table_add_text(&parameters, mode_words[job->mode]);
	id = insert_job(&parameters);
	if (id == 0)
		*other = open_job_of(job->relation, &here);
	if (id == 0 && !here)
	{
		end_foreign();
		CommandCounterIncrement();
		id = insert_job(&parameters);
		if (id == 0)
			*other = open_job_of(job->relation, &here);
	}
	return id;
}

int64
pgscale_relocation_jobs_to(Oid target)
{
	PgscaleParameters parameters = {0};
	int64		bytes;

	pgscale_table_add_here(&parameters);
	pgscale_table_add_oid(&parameters, target);
	job_table_execute("SELECT sum(bytes)::bigint FROM pgscale_internal.relocation_job WHERE target = $3 AND finished_at IS NULL AND" HERE,
					  &parameters, false);
	bytes = pgscale_table_bigint(0, 1);
	SPI_finish();
	return bytes;
}

bool
pgscale_relocation_job_is_last_to(Oid target)
{
	PgscaleParameters parameters = {0};
	bool		is_last;

	pgscale_table_add_here(&parameters);
	pgscale_table_add_oid(&parameters, target);

	/*
	 * the youngest first: the entries of those that have ended are at the
	 * other end of the index
	 */
	is_last = job_table_execute("SELECT FROM pgscale_internal.relocation_job WHERE target = $3 AND finished_at IS NULL AND" HERE
								" ORDER BY job DESC LIMIT 2", &parameters, false) < 2;
	SPI_finish();
	return is_last;
}

#define JOB_COLUMNS \
	"job, kind = 'table', relation, heap, source, target, role, amcheck, prewarm, lock_timeout_ms, new_index, cancel," \
	" attempts, crashes, before, bytes, mode, files"

/* Of an array that add_files() has made. */
static void
read_files(PgscaleRelocationJob *job, Datum value)
{
	Datum	   *words;
	int			n;

	deconstruct_array(DatumGetArrayTypeP(value), OIDOID, sizeof(Oid), true, TYPALIGN_INT, &words, NULL, &n);
	for (int i = 0; i + 1 < n && job->nfiles < PGSCALE_JOB_FILES; i += 2)
	{
		RelFileLocator *file = &job->files[job->nfiles++];

		file->spcOid = DatumGetObjectId(words[i]);
		file->dbOid = MyDatabaseId;
		file->relNumber = DatumGetObjectId(words[i + 1]);
	}
}

/* As pairs of tablespace and number of file; NULL if there are none. */
static void
add_files(PgscaleParameters *parameters, const PgscaleRelocationJob *job)
{
	Datum		words[2 * PGSCALE_JOB_FILES];

	if (job->nfiles == 0)
	{
		pgscale_table_add_null(parameters, OIDARRAYOID);
		return;
	}
	for (int i = 0; i < job->nfiles; i++)
	{
		words[2 * i] = ObjectIdGetDatum(job->files[i].spcOid);
		words[2 * i + 1] = ObjectIdGetDatum(job->files[i].relNumber);
	}
	pgscale_table_add(parameters, OIDARRAYOID,
					  PointerGetDatum(construct_array(words, 2 * job->nfiles, OIDOID, sizeof(Oid), true, TYPALIGN_INT)));
}

/* Of the first row that has these columns; texts in the given context. */
static void
read_job(PgscaleRelocationJob *job, MemoryContext context)
{
	bool		isnull;
	Datum		before;
	Datum		files;
	MemoryContext old;

	memset(job, 0, sizeof(*job));
	job->id = pgscale_table_bigint(0, 1);
	job->is_table = pgscale_table_bool(0, 2);
	job->relation = pgscale_table_oid(0, 3);
	job->heap = pgscale_table_oid(0, 4);
	job->source = pgscale_table_oid(0, 5);
	job->target = pgscale_table_oid(0, 6);
	job->role = pgscale_table_oid(0, 7);
	job->amcheck = pgscale_table_bool(0, 8);
	job->prewarm = pgscale_table_bool(0, 9);
	job->lock_timeout_ms = DatumGetInt32(pgscale_table_column(0, 10, &isnull));
	job->new_index = pgscale_table_oid(0, 11);
	job->cancel = pgscale_table_bool(0, 12);
	job->attempts = DatumGetInt32(pgscale_table_column(0, 13, &isnull));
	job->crashes = DatumGetInt32(pgscale_table_column(0, 14, &isnull));
	before = pgscale_table_column(0, 15, &isnull);
	if (!isnull)
	{
		old = MemoryContextSwitchTo(context);
		job->before = TextDatumGetCString(before);
		MemoryContextSwitchTo(old);
	}
	job->bytes = pgscale_table_bigint(0, 16);
	if (!pgscale_relocation_mode_named(TextDatumGetCString(pgscale_table_column(0, 17, &isnull)), &job->mode))
		elog(ERROR, "unknown mode of relocation job " INT64_FORMAT, job->id);
	files = pgscale_table_column(0, 18, &isnull);
	if (!isnull)
		read_files(job, files);
}

bool
pgscale_relocation_job_get(int64 id, PgscaleRelocationJob *job, char **state)
{
	MemoryContext context = CurrentMemoryContext;
	PgscaleParameters parameters = {0};
	bool		found;

	pgscale_table_add_bigint(&parameters, id);
	found = job_table_execute("SELECT " JOB_COLUMNS ", state FROM pgscale_internal.relocation_job WHERE job = $1", &parameters, true) == 1;
	if (found)
	{
		bool		isnull;
		char	   *name;

		read_job(job, context);
		name = TextDatumGetCString(pgscale_table_column(0, 19, &isnull));
		*state = MemoryContextStrdup(context, name);
	}
	SPI_finish();
	return found;
}

bool
pgscale_relocation_job_cancel(int64 id, bool begun)
{
	PgscaleParameters parameters = {0};
	uint64		done;

	pgscale_table_add_bigint(&parameters, id);
	pgscale_table_add(&parameters, BOOLOID, BoolGetDatum(begun));
	/* where something may have been left, a worker cleans up first */
	done = job_table_execute("UPDATE pgscale_internal.relocation_job SET cancel = true, not_before = pg_catalog.clock_timestamp(),"
							 " state = CASE WHEN $2 THEN state WHEN new_index IS NULL AND files IS NULL THEN 'cancelled' ELSE 'queued' END,"
							 " finished_at = CASE WHEN NOT $2 AND new_index IS NULL AND files IS NULL THEN pg_catalog.clock_timestamp() END,"
							 " sqlstate = '57014', detail = NULL, message = 'cancelled by ' || pg_catalog.quote_ident(session_user)"
							 " WHERE job = $1 AND finished_at IS NULL AND ($2 OR state IN ('queued', 'waiting'))", &parameters, false);
	SPI_finish();
	return done == 1;
}

/*
 * Rows whose worker is gone. The lock of those that take jobs must be held.  A worker may end its job in between: its row then is not one of
 * them any more.
 */
static void
put_back_orphans(void)
{
	PgscaleParameters here = {0};
	PgscaleRelocationSlot slots[PGSCALE_RELOCATION_SLOTS];
	uint64		rows;
	int64	   *orphans;
	int			n = 0;

	pgscale_table_add_here(&here);
	rows = job_table_execute("SELECT job FROM pgscale_internal.relocation_job WHERE finished_at IS NULL"
							 " AND state IN ('running', 'verifying') AND" HERE, &here, false);
	orphans = palloc((rows + 1) * sizeof(int64));
	pgscale_relocation_slots(slots);
	for (uint64 i = 0; i < rows; i++)
	{
		bool		at_work = false;

		orphans[n] = pgscale_table_bigint(i, 1);
		for (int slot = 0; slot < PGSCALE_RELOCATION_SLOTS; slot++)
			at_work |= slots[slot].database == MyDatabaseId && slots[slot].job == orphans[n];
		n += !at_work;
	}
	for (int i = 0; i < n; i++)
	{
		PgscaleParameters parameters = {0};

		pgscale_table_add_bigint(&parameters, orphans[i]);
		job_table_execute("UPDATE pgscale_internal.relocation_job SET state = 'queued', crashes = crashes + 1, pid = NULL,"
						  " not_before = pg_catalog.clock_timestamp(), sqlstate = '57P02', detail = NULL,"
						  " message = 'the server or the worker ended during the attempt without a word'"
						  " WHERE job = $1 AND state IN ('running', 'verifying')", &parameters, false);
		SPI_finish();
	}
	SPI_finish();
}

/* How often a search for a job begins at the first entry of the index. */
#define LOOK_BACK_MS	1000

/* How often a worker looks for rows of workers that are gone. */
#define LOOK_OVER_MS	10000

/*
 * What is to wait for longer than any job is told to, relocation_worker.c's RETRY_MAX_MS,
 * was told by a clock that was set back since, and is due.
 */
#define LONGEST_US		((int64) 60 * USECS_PER_SEC)

/*
 * Jobs that can be taken: $3 has the tables that workers are at.  In the order of not_before, which is from $4 to $5.
 * These are parameters, because a volatile function cannot be looked up in an index.
 */
#define CLAIMABLE \
	" FROM pgscale_internal.relocation_job WHERE finished_at IS NULL AND state IN ('queued', 'waiting') AND heap <> ALL ($3) AND" HERE \
	" AND not_before >= $4 AND not_before <= $5 ORDER BY not_before, job LIMIT 1"

/* Where the search for a job begins. */
static TimestampTz taken_up_to = DT_NOBEGIN;

/* After true, the caller calls SPI_finish(). */
static bool
find_between(const char *statement, TimestampTz from, TimestampTz until)
{
	PgscaleParameters parameters = {0};
	PgscaleRelocationSlot slots[PGSCALE_RELOCATION_SLOTS];
	Datum		heaps[PGSCALE_RELOCATION_SLOTS];
	int			n = 0;

	pgscale_relocation_slots(slots);
	for (int i = 0; i < PGSCALE_RELOCATION_SLOTS; i++)
		if (slots[i].database == MyDatabaseId && slots[i].job != 0)
			heaps[n++] = ObjectIdGetDatum(slots[i].heap);
	pgscale_table_add_here(&parameters);
	pgscale_table_add(&parameters, OIDARRAYOID,
					  PointerGetDatum(construct_array(heaps, n, OIDOID, sizeof(Oid), true, TYPALIGN_INT)));
	pgscale_table_add(&parameters, TIMESTAMPTZOID, TimestampTzGetDatum(from));
	pgscale_table_add(&parameters, TIMESTAMPTZOID, TimestampTzGetDatum(until));
	if (job_table_execute(statement, &parameters, false) == 1)
		return true;
	SPI_finish();
	return false;
}

/* Is there one that is due?  After true, the caller calls SPI_finish(). */
static bool
find_due(const char *statement)
{
	const TimestampTz now = GetCurrentTimestamp();

	return find_between(statement, taken_up_to, now) ||
		(taken_up_to != DT_NOBEGIN && find_between(statement, DT_NOBEGIN, now)) ||
		find_between(statement, now + LONGEST_US, DT_NOEND);
}

/* Finds the job, and reads it into *job. The lock of those that take jobs must be held. */
static bool
find_next(PgscaleRelocationJob *job, MemoryContext context)
{
	bool		isnull;

	/* a job that is cancelled at the same time is left to the cancel */
	if (!find_due("SELECT " JOB_COLUMNS ", not_before" CLAIMABLE " FOR UPDATE SKIP LOCKED"))
		return false;
	read_job(job, context);
	taken_up_to = Min(DatumGetTimestampTz(pgscale_table_column(0, 19, &isnull)), GetCurrentTimestamp());
	SPI_finish();
	return true;
}

/* Takes the job. The lock of those that take jobs must be held. */
static void
take_job(const PgscaleRelocationJob *job)
{
	PgscaleParameters parameters = {0};

	/* before the row says so, so that it never looks like an orphan */
	pgscale_relocation_at_work(job->id, job->heap);
	pgscale_table_add_bigint(&parameters, job->id);
	pgscale_table_add(&parameters, INT4OID, Int32GetDatum(MyProcPid));
	job_table_execute("UPDATE pgscale_internal.relocation_job SET state = 'running', pid = $2, sqlstate = NULL, detail = NULL,"
					  " message = CASE WHEN new_index IS NOT NULL OR files IS NOT NULL THEN 'cleaning up after an attempt' END,"
					  " started_at = coalesce(started_at, pg_catalog.clock_timestamp()) WHERE job = $1", &parameters, false);
	SPI_finish();
	CommandCounterIncrement();
}

/* Has that time passed since it was last so? */
static bool
is_time(int64 *last_ns, int64 ms)
{
	const int64 now = pgscale_timer_clock();

	if (*last_ns != 0 && now - *last_ns < ms * NS_PER_MS)
		return false;
	*last_ns = now;
	return true;
}

/* What costs more where there are more jobs, from time to time. */
static void
look_around(void)
{
	static int64 looked_back_ns = 0;
	static int64 looked_over_ns = 0;

	if (is_time(&looked_back_ns, LOOK_BACK_MS))
		taken_up_to = DT_NOBEGIN;
	if (!is_time(&looked_over_ns, LOOK_OVER_MS))
		return;
	PushActiveSnapshot(GetTransactionSnapshot());
	end_foreign();
	put_back_orphans();
	PopActiveSnapshot();
}

bool
pgscale_relocation_job_claim(PgscaleRelocationJob *job, bool *more)
{
	MemoryContext context = CurrentMemoryContext;
	Oid			table;
	Oid			owner;
	bool		found = false;

	*more = false;
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	table = pgscale_table_find(&jobs, &owner);
	if (OidIsValid(table))
	{
		LockRelationOid(table, RowExclusiveLock);
		LockDatabaseObject(RelationRelationId, table, 0, ExclusiveLock);
	}
	/* it may have been dropped until we got the lock */
	if (OidIsValid(table) && pgscale_table_find(&jobs, &owner) == table)
	{
		look_around();
		PushActiveSnapshot(GetTransactionSnapshot());
		found = find_next(job, context);
		if (found)
		{
			take_job(job);
			*more = find_due("SELECT" CLAIMABLE);
			if (*more)
				SPI_finish();
		}
		PopActiveSnapshot();
	}
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	return found;
}

/* When the first job can be taken; DT_NOEND if there is none. */
static TimestampTz
first_due(void)
{
	const TimestampTz now = GetCurrentTimestamp();
	TimestampTz due;
	bool		isnull;

	if (find_between("SELECT" CLAIMABLE, now + LONGEST_US, DT_NOEND))
		due = now;
	else if (find_between("SELECT not_before" CLAIMABLE, DT_NOBEGIN, DT_NOEND))
		due = DatumGetTimestampTz(pgscale_table_column(0, 1, &isnull));
	else
		return DT_NOEND;
	SPI_finish();
	return due;
}

char *
pgscale_relocation_jobs_wait(void)
{
	MemoryContext context = CurrentMemoryContext;
	PgscaleParameters here = {0};
	Oid			owner;
	char	   *waits = NULL;

	if (!OidIsValid(pgscale_table_find(&jobs, &owner)))
		return NULL;
	pgscale_table_add_here(&here);
	job_table_execute("SELECT pg_catalog.format('%s of this database wait to begin, the first one because of: %s', pg_catalog.count(*),"
					  " (pg_catalog.array_agg(message ORDER BY job))[1])"
					  " FROM pgscale_internal.relocation_job WHERE finished_at IS NULL AND state = 'waiting' AND message IS NOT NULL AND" HERE
					  " HAVING pg_catalog.count(*) > 0", &here, false);
	if (SPI_processed == 1)
	{
		bool		isnull;

		waits = MemoryContextStrdup(context, TextDatumGetCString(pgscale_table_column(0, 1, &isnull)));
	}
	SPI_finish();
	return waits;
}

TimestampTz
pgscale_relocation_jobs_next(bool *open)
{
	PgscaleParameters here = {0};
	TimestampTz next = DT_NOEND;
	Oid			owner;

	*open = false;
	pgscale_table_add_here(&here);
	StartTransactionCommand();
	if (OidIsValid(pgscale_table_find(&jobs, &owner)))
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		next = first_due();
		*open = job_table_execute("SELECT FROM pgscale_internal.relocation_job WHERE finished_at IS NULL AND" HERE
								  " ORDER BY not_before, job LIMIT 1", &here, false) > 0;
		SPI_finish();
		PopActiveSnapshot();

		/*
		 * The absence of jobs will be on disk (open_jobs.c), but their ends
		 * may not be: with synchronous_commit = off a crash would undo them,
		 * and the jobs would be forgotten.  An empty commit on disk has all
		 * of them there.
		 */
		if (!*open)
		{
			(void) GetCurrentTransactionId();
			ForceSyncCommit();
		}
	}
	CommitTransactionCommand();
	return next;
}

/* Of the job that this process is at, and not of one that got its id since. */
#define MINE	" WHERE job = $1 AND pid = pg_catalog.pg_backend_pid()"

void
pgscale_relocation_job_begin_attempt(PgscaleRelocationJob *job)
{
	PgscaleParameters parameters = {0};

	pgscale_table_add_bigint(&parameters, job->id);
	/* files are noted before they are made, by a commit that waits */
	execute_alone("UPDATE pgscale_internal.relocation_job SET before = NULL, attempts = attempts + 1, new_index = NULL, files = NULL,"
				  " sqlstate = NULL, message = NULL, detail = NULL" MINE, &parameters, false);
	job->attempts++;
}

void
pgscale_relocation_job_verifying(const PgscaleRelocationJob *job)
{
	PgscaleParameters parameters = {0};

	pgscale_table_add_bigint(&parameters, job->id);
	execute_alone("UPDATE pgscale_internal.relocation_job SET state = 'verifying'" MINE, &parameters, false);
}

/*
 * Sets the figures of an online move, if this worker has made or tried it.  Otherwise they stay as they are.
 */
static const char *
set_counts(PgscaleParameters *parameters, const PgscaleRelocationJob *job)
{
	const PgscaleRelocationCounts *counts = &job->counts;
	const int	n = parameters->n;

	if (!counts->known)
		return "";
	pgscale_table_add_bigint(parameters, counts->copied_bytes);
	pgscale_table_add_bigint(parameters, counts->recopied_blocks);
	pgscale_table_add_bigint(parameters, counts->wal_read_bytes);
	pgscale_table_add_bigint(parameters, counts->lock_tries);
	pgscale_table_add(parameters, FLOAT8OID, Float8GetDatum((double) counts->locked_us / 1000));
	return psprintf(", copied_bytes = $%d, recopied_blocks = $%d, wal_read_bytes = $%d, lock_tries = $%d, locked_ms = nullif($%d, 0)",
					n + 1, n + 2, n + 3, n + 4, n + 5);
}

void
pgscale_relocation_job_end_attempt(const PgscaleRelocationJob *job, const char *state, int64 delay_ms, const PgscaleRelocationJobWord *word)
{
	PgscaleParameters parameters = {0};

	pgscale_table_add_bigint(&parameters, job->id);
	pgscale_table_add_text(&parameters, state);
	pgscale_table_add(&parameters, BOOLOID, BoolGetDatum(pgscale_relocation_job_has_ended(state)));
	pgscale_table_add_bigint(&parameters, delay_ms);
	pgscale_table_add_text(&parameters, word->sqlstate ? unpack_sql_state(word->sqlstate) : NULL);
	pgscale_table_add_text(&parameters, word->message);
	pgscale_table_add_text(&parameters, word->detail);
	pgscale_table_add(&parameters, BOOLOID, BoolGetDatum(job->cancel));
	pgscale_table_add_oid(&parameters, job->new_index);
	add_files(&parameters, job);
	pgscale_table_add_bigint(&parameters, job->bytes_after);

	/*
	 * It may be cancelled at the same time.  After a crash, another worker
	 * would find that one that is done has moved.
	 */
	execute_alone(psprintf("UPDATE pgscale_internal.relocation_job SET state = $2, pid = NULL, sqlstate = $5, message = $6, detail = $7,"
						   " cancel = cancel OR $8, new_index = nullif($9, 0), files = $10, bytes_after = CASE WHEN $3 THEN nullif($11, 0) END,"
						   " finished_at = CASE WHEN $3 THEN pg_catalog.clock_timestamp() END,"
						   " not_before = pg_catalog.clock_timestamp() + $4 * interval '1 millisecond'%s" MINE,
						   set_counts(&parameters, job)), &parameters, strcmp(state, PGSCALE_JOB_DONE) != 0);
}

void
pgscale_relocation_job_made_index(const PgscaleRelocationJob *job)
{
	PgscaleParameters parameters = {0};

	pgscale_table_add_bigint(&parameters, job->id);
	pgscale_table_add_oid(&parameters, job->new_index);
	pgscale_table_add_text(&parameters, job->before);
	job_table_execute("UPDATE pgscale_internal.relocation_job SET new_index = $2, before = $3" MINE, &parameters, false);
	SPI_finish();
}

void
pgscale_relocation_job_has_files(const PgscaleRelocationJob *job)
{
	PgscaleParameters parameters = {0};

	pgscale_table_add_bigint(&parameters, job->id);
	add_files(&parameters, job);
	if (job_table_execute("UPDATE pgscale_internal.relocation_job SET files = $2" MINE, &parameters, false) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the row of the relocation job is gone")));
	SPI_finish();
}
