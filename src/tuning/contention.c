/*-------------------------------------------------------------------------
 *
 * contention.c
 *	  The map of contention: what the waits mean that take the sessions' time, on
 *	  this major; which later one has cured them, and what can be done now.
 *
 * Which events a kind has is in evidence.c; they are shown by the names that
 * this major has for them, as in pgscale.wait_profile.
 *
 * The table below is written from the sources of the majors and from their release
 * notes; a cure names the commit.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "tuning/findings.h"
#include "tuning/tuning.h"

/* A kind of wait that takes less of the sessions' time is not worth a row. */
#define LEAST_SHARE		0.01

typedef struct Meaning
{
	PgscaleTuningEvidenceWait wait;
	const char *type;
	const char *meaning;		/* on majors before the cure, or on all */
	int			cured_in;		/* a major; 0: none yet */
	const char *cure;
	const char *since_then;		/* what it means from the cure on */
	const char *now;
} Meaning;

static const Meaning meanings[] = {
	{
		PGSCALE_EVIDENCE_WAL_SYNC, "IO",
		"a commit flushes WAL to the disk", 0, NULL, NULL,
		"a disk that flushes faster for WAL; synchronous_commit = off where the last commits may be lost in a crash; "
		"fewer and larger transactions; see pgscale.wal_efficiency"
	},
	{
		PGSCALE_EVIDENCE_WAL_WRITE_LOCK, "LWLock",
		"a commit waits for another one's flush, which may cover it, too; or WAL buffers are full", 0, NULL, NULL,
		"as for the flush of WAL; commit_delay if many sessions commit at a time; wal_buffers if they are full, see pgscale.advice"
	},
	{
		PGSCALE_EVIDENCE_WAL_WRITE, "IO",
		"WAL is copied to the kernel, which makes its writer wait if it is to write a lot", 0, NULL, NULL,
		"less WAL: a larger max_wal_size, wal_compression, fewer indexes; see pgscale.advice"
	},
	{
		PGSCALE_EVIDENCE_WAL_INSERT, "LWLock",
		"one of 8 places to insert WAL is taken, or its holder waits for room in WAL buffers; to flush, each holder's progress "
		"is asked for under its lock",
		17, "what a holder has inserted is read without its lock (commit 71e4cc6b8)",
		"one of 8 places to insert WAL is taken, or its holder waits for room in WAL buffers",
		"wal_buffers of 16 MB or more; less WAL: wal_compression, COPY and statements of many rows instead of single rows"
	},
	{
		PGSCALE_EVIDENCE_WAL_BUFFERS, "LWLock",
		"WAL buffers are full, and one session at a time makes room", 0, NULL, NULL,
		"wal_buffers of 16 MB or more; a shorter wal_writer_delay"
	},
	{
		PGSCALE_EVIDENCE_WAL_INIT, "IO",
		"a new file for WAL is filled with zeroes and flushed, while others wait", 0, NULL, NULL,
		"a larger min_wal_size, so that there are old files to be used again; wal_init_zero = off on a copy-on-write file system"
	},
	{
		PGSCALE_EVIDENCE_DATA_READ, "IO",
		"a page is read that is not in shared buffers, one at a time",
		17, "sequential scans and ANALYZE read up to io_combine_limit at a time (commits b7b0f3f27, 041b96802); 18 reads "
		"ahead by itself (io_method)",
		"pages are read that are not in shared buffers",
		"larger shared_buffers if the kernel's cache has the pages; indexes that spare scans; a faster tablespace, see "
		"pgscale.relocation_plan()"
	},
	{
		PGSCALE_EVIDENCE_DATA_WRITE, "IO",
		"a session writes a dirty page to have its buffer", 0, NULL, NULL,
		"a background writer that may write more (bgwriter_lru_maxpages), pgscale.sweeper, larger shared_buffers"
	},
	{
		PGSCALE_EVIDENCE_DATA_EXTEND, "IO",
		"a relation grows, page by page",
		16, "it grows by many pages at a time (commits 31966b151 and 00d1e02be)",
		"a relation grows by many pages at a time",
		"COPY instead of INSERT; load into fewer relations at a time"
	},
	{
		PGSCALE_EVIDENCE_DATA_SYNC, "IO",
		"a session syncs a data file itself: the checkpointer's queue of them is full, or a file was built outside of shared "
		"buffers", 0, NULL, NULL,
		"larger shared_buffers, whose size is that queue's; wal_level above minimal for loads of small tables"
	},
	{
		PGSCALE_EVIDENCE_TEMP_FILE, "IO",
		"a sort or hash did not fit work_mem and goes through files", 0, NULL, NULL,
		"more work_mem for the statements that pgscale.query_waits names"
	},
	{
		PGSCALE_EVIDENCE_SLRU_IO, "IO",
		"pages of transactions' states are read and written; their caches have a fixed size",
		17, "the caches' sizes can be set (commit 53c2a97a9)",
		"pages of transactions' states are read and written",
		"shorter transactions, so that old states are not asked for; pg_stat_slru tells whose they are"
	},
	{
		PGSCALE_EVIDENCE_BUFFER_MAPPING, "LWLock",
		"many pages enter and leave shared buffers: one of 128 parts of the map is being changed", 0, NULL, NULL,
		"larger shared_buffers, or statements that read less"
	},
	{
		PGSCALE_EVIDENCE_BUFFER_CONTENT, "LWLock",
		"many sessions change the same page, mostly an index' last leaf or a small table's only one", 0, NULL, NULL,
		"spread the keys (hash partitions, another first column); a small fillfactor for small, hot tables"
	},
	{
		PGSCALE_EVIDENCE_BUFFER_IO, "IPC",
		"another session reads the same page in", 0, NULL, NULL,
		"as for DataFileRead; several sessions scan the same data at the same time"
	},
	{
		PGSCALE_EVIDENCE_BUFFER_PIN, "BufferPin",
		"VACUUM or HOT pruning waits to be alone with a page that a cursor keeps", 0, NULL, NULL,
		"close cursors, and transactions that are idle"
	},
	{
		PGSCALE_EVIDENCE_PROC_ARRAY, "LWLock",
		"the ends of transactions, and snapshots taken meanwhile, are serial; 14 made snapshots cheap", 0, NULL, NULL,
		"fewer connections at work (a pooler; pgscale.scalability tells how many pay); fewer, larger transactions"
	},
	{
		PGSCALE_EVIDENCE_XID_GEN, "LWLock",
		"transactions that write get their identifiers one after the other", 0, NULL, NULL,
		"fewer, larger transactions; fewer savepoints and exception blocks, each of which takes one"
	},
	{
		PGSCALE_EVIDENCE_XACT, "LWLock",
		"the commit log is looked up or written under one lock, in a cache of at most 1 MB",
		17, "the cache is divided into banks with locks of their own, and transaction_buffers sets its size (commit 53c2a97a9)",
		"the commit log's cache is looked up or written, a bank at a time",
		"VACUUM, which sets hint bits and freezes, so that states need not be looked up; fewer, larger transactions"
	},
	{
		PGSCALE_EVIDENCE_SUBTRANS, "LWLock",
		"a transaction has more than 64 open subtransactions, so that each snapshot of the others looks up parents, under one "
		"lock, in a cache of 256 kB",
		17, "the cache is divided into banks with locks of their own, and subtransaction_buffers sets its size (commit 53c2a97a9)",
		"a transaction has more than 64 open subtransactions, so that each snapshot of the others looks up parents",
		"fewer savepoints and PL/pgSQL exception blocks in one transaction; shorter transactions besides them"
	},
	{
		PGSCALE_EVIDENCE_MULTIXACT, "LWLock",
		"many transactions lock the same rows, as foreign keys do; who they are is looked up under one lock",
		17, "the caches are divided into banks with locks of their own, and multixact_offset_buffers and "
		"multixact_member_buffers set their sizes (commit 53c2a97a9)",
		"many transactions lock the same rows, as foreign keys do",
		"fewer foreign keys to small, hot tables; shorter transactions; VACUUM more often"
	},
	{
		PGSCALE_EVIDENCE_SINVAL, "LWLock",
		"definitions change often, and each session must hear of it", 0, NULL, NULL,
		"fewer temporary tables and less DDL; fewer connections"
	},
	{
		PGSCALE_EVIDENCE_PREDICATE, "LWLock",
		"serializable transactions keep account of what they read", 0, NULL, NULL,
		"REPEATABLE READ where that is enough; READ ONLY DEFERRABLE for reports; shorter transactions"
	},
	{
		PGSCALE_EVIDENCE_STATISTICS, "LWLock",
		"statistics are added up in shared memory", 0, NULL, NULL,
		"pg_stat_statements.track_planning = off, and a larger pg_stat_statements.max if it evicts"
	},
	{
		PGSCALE_EVIDENCE_LOCK_MANAGER, "LWLock",
		"statements lock more than 16 relations, such as partitions and their indexes, or strong locks are taken: these go "
		"through a table in shared memory of 16 parts",
		18, "a session's own fast-path slots grow with max_locks_per_transaction (commit c4d5cb71d)",
		"statements lock more relations than a session has fast-path slots for, or strong locks are taken",
		"plans that prune partitions, prepared statements with generic plans avoided; fewer indexes and partitions; on 18, a larger "
		"max_locks_per_transaction"
	},
	{
		PGSCALE_EVIDENCE_LOCK_FAST_PATH, "LWLock",
		"a strong lock, as DDL takes, moves the weak ones of all sessions", 0, NULL, NULL,
		"less DDL and LOCK TABLE while there is load"
	},
	{
		PGSCALE_EVIDENCE_LOCK_EXTEND, "Lock",
		"sessions that load the same relation extend it one after the other, page by page",
		16, "each extends by many pages at a time, and writes them without the lock (commits 31966b151 and 00d1e02be)",
		"sessions that load the same relation extend it one after the other",
		"COPY instead of INSERT; fewer sessions that load; partitions"
	},
	{
		PGSCALE_EVIDENCE_LOCK_TRANSACTION, "Lock",
		"a row is to be changed that another transaction has changed and not committed", 0, NULL, NULL,
		"shorter transactions, the hot row last; several rows to add up instead of one; SKIP LOCKED for queues"
	},
	{
		PGSCALE_EVIDENCE_LOCK_TUPLE, "Lock",
		"several sessions queue for the same row, of which the first waits for a transaction", 0, NULL, NULL,
		"as for transactionid"
	},
	{
		PGSCALE_EVIDENCE_LOCK_RELATION, "Lock",
		"DDL, LOCK TABLE or VACUUM FULL holds or awaits a lock, and whoever comes later queues behind it", 0, NULL, NULL,
		"lock_timeout for DDL; CONCURRENTLY; pgscale.relocate_index() and its like instead of SET TABLESPACE"
	},
	{
		PGSCALE_EVIDENCE_LOCK_ADVISORY, "Lock",
		"the application's own locks", 0, NULL, NULL,
		"ask the application"
	},
	{
		PGSCALE_EVIDENCE_SYNC_REP, "IPC",
		"a commit waits for a synchronous standby", 0, NULL, NULL,
		"synchronous_commit = remote_write or local where that is enough; a standby that is nearer; ANY instead of FIRST in "
		"synchronous_standby_names"
	},
	{
		PGSCALE_EVIDENCE_PARALLEL, "IPC",
		"parallel workers and their leader wait for each other", 0, NULL, NULL,
		"fewer workers (max_parallel_workers_per_gather) where statements are short or the CPUs are busy"
	},
	{
		PGSCALE_EVIDENCE_SPIN, "Timeout",
		"a spinlock is held by a process that is off its CPU, or by too many in turn", 0, NULL, NULL,
		"fewer connections at work: there are more than CPUs"
	},
	{
		PGSCALE_EVIDENCE_CLIENT, "Client",
		"the client or the network takes the result slowly", 0, NULL, NULL,
		"smaller results; a client that is nearer"
	},
	{
		PGSCALE_EVIDENCE_OTHER_LWLOCK, "LWLock", "see pgscale.wait_profile", 0, NULL, NULL, NULL
	},
	{
		PGSCALE_EVIDENCE_OTHER_LOCK, "Lock", "see pgscale.wait_profile", 0, NULL, NULL, NULL
	},
	{
		PGSCALE_EVIDENCE_OTHER_IO, "IO", "see pgscale.wait_profile", 0, NULL, NULL, NULL
	},
	{
		PGSCALE_EVIDENCE_OTHER_IPC, "IPC", "see pgscale.wait_profile", 0, NULL, NULL, NULL
	},
	{
		PGSCALE_EVIDENCE_OTHER, NULL, "see pgscale.wait_profile", 0, NULL, NULL, NULL
	},
};

PG_FUNCTION_INFO_V1(pgscale_contention);

static void
put_meaning(ReturnSetInfo *rsinfo, const Meaning *m, const PgscaleTuningEvidence *e)
{
	const bool	cured = m->cured_in != 0 && PGSCALE_MAJOR_NUMBER >= m->cured_in;
	const bool	to_cure = m->cured_in != 0 && !cured;
	const char *events = m->type ? pgscale_tuning_evidence_events(m->wait, m->type) : NULL;
	Datum		values[] = {
		m->type ? CStringGetTextDatum(m->type) : (Datum) 0,
		CStringGetTextDatum(events ? events : "others"),
		Float8GetDatum(pgscale_tuning_fraction(e, m->wait)),
		Float8GetDatum(pgscale_tuning_waiting(e, m->wait)),
		CStringGetTextDatum(cured ? m->since_then : m->meaning),
		to_cure ? CStringGetTextDatum(psprintf("%d: %s", m->cured_in, m->cure)) : (Datum) 0,
		m->now ? CStringGetTextDatum(m->now) : (Datum) 0,
		TimestampTzGetDatum(e->since),
		TimestampTzGetDatum(e->until)
	};
	bool		nulls[lengthof(values)] = {[0] = !m->type,[5] = !to_cure,[6] = !m->now};

	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* pgscale.contention(duration): one row a kind of wait that takes a hundredth of the sessions' time or more. */
Datum
pgscale_contention(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	const int64 duration_ms = pgscale_tuning_duration_ms(fcinfo, 0);
	PgscaleTuningEvidence sum;

	pgscale_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	pgscale_tuning_window(duration_ms, &sum);
	for (int i = 0; i < lengthof(meanings); i++)
		if (pgscale_tuning_fraction(&sum, meanings[i].wait) >= LEAST_SHARE)
			put_meaning(rsinfo, &meanings[i], &sum);
	return (Datum) 0;
}
