/*-------------------------------------------------------------------------
 *
 * evidence.h
 *	  Evidence: the server's counters and its sessions' waits, every few seconds.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_TUNING_EVIDENCE_H
#define PGSCALE_TUNING_EVIDENCE_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "base/server_counters.h"
#include "pgscale.h"

/* The period of records, and the number that are kept. */
#define PGSCALE_EVIDENCE_MS		5000
#define PGSCALE_EVIDENCE_MAX	720

/*
 * The length of a record, which differs in tests.  A rule that needs that many seconds
 * of evidence then needs the usual number of records.
 */
extern int	pgscale_tuning_evidence_ms(void);
#define PGSCALE_EVIDENCE_S(seconds) \
	((double) (seconds) * pgscale_tuning_evidence_ms() / PGSCALE_EVIDENCE_MS)

/*
 * The sessions' time by kind of wait, as rules need it; wait_kinds.c has the events of
 * each kind.  Waits for work, and pg_sleep(), are not included.
 */
typedef enum PgscaleTuningEvidenceWait
{
	PGSCALE_EVIDENCE_CPU,

	PGSCALE_EVIDENCE_WAL_SYNC,	/* IO WalSync */
	PGSCALE_EVIDENCE_WAL_WRITE, /* IO WalWrite */
	PGSCALE_EVIDENCE_WAL_WRITE_LOCK,	/* LWLock WALWrite: mostly others'
										 * sync */
	PGSCALE_EVIDENCE_WAL_INSERT,
	PGSCALE_EVIDENCE_WAL_BUFFERS,	/* LWLock WALBufMapping */
	PGSCALE_EVIDENCE_WAL_INIT,	/* IO WalInitWrite, WalInitSync */

	PGSCALE_EVIDENCE_DATA_READ,
	PGSCALE_EVIDENCE_AIO_QUEUE, /* LWLocks of the io workers' queue */
	PGSCALE_EVIDENCE_AIO_COMPLETION,	/* LWLock AioUringCompletion */
	PGSCALE_EVIDENCE_DATA_WRITE,
	PGSCALE_EVIDENCE_DATA_EXTEND,
	PGSCALE_EVIDENCE_DATA_SYNC,
	PGSCALE_EVIDENCE_TEMP_FILE,
	PGSCALE_EVIDENCE_SLRU_IO,

	PGSCALE_EVIDENCE_BUFFER_MAPPING,
	PGSCALE_EVIDENCE_BUFFER_CONTENT,
	PGSCALE_EVIDENCE_BUFFER_IO, /* IPC BufferIO */
	PGSCALE_EVIDENCE_BUFFER_PIN,

	PGSCALE_EVIDENCE_PROC_ARRAY,
	PGSCALE_EVIDENCE_XID_GEN,
	PGSCALE_EVIDENCE_XACT,		/* commit log */
	PGSCALE_EVIDENCE_SUBTRANS,
	PGSCALE_EVIDENCE_MULTIXACT,
	PGSCALE_EVIDENCE_SINVAL,
	PGSCALE_EVIDENCE_PREDICATE,
	PGSCALE_EVIDENCE_STATISTICS,

	PGSCALE_EVIDENCE_LOCK_MANAGER,
	PGSCALE_EVIDENCE_LOCK_FAST_PATH,
	PGSCALE_EVIDENCE_LOCK_EXTEND,
	PGSCALE_EVIDENCE_LOCK_TRANSACTION,
	PGSCALE_EVIDENCE_LOCK_TUPLE,
	PGSCALE_EVIDENCE_LOCK_RELATION,
	PGSCALE_EVIDENCE_LOCK_ADVISORY,

	PGSCALE_EVIDENCE_SYNC_REP,
	PGSCALE_EVIDENCE_PARALLEL,
	PGSCALE_EVIDENCE_SPIN,		/* Timeout SpinDelay */
	PGSCALE_EVIDENCE_CLIENT,	/* sending to the client */
	PGSCALE_EVIDENCE_IDLE_IN_TRANSACTION,
	PGSCALE_EVIDENCE_REPLICATION,
	PGSCALE_EVIDENCE_RECOVERY,
	PGSCALE_EVIDENCE_BACKUP,	/* and archiving */
	PGSCALE_EVIDENCE_CHECKPOINT,
	PGSCALE_EVIDENCE_VACUUM,
	PGSCALE_EVIDENCE_NOTIFY,
	PGSCALE_EVIDENCE_COMMIT_TS,
	PGSCALE_EVIDENCE_COPY,		/* files and programs of COPY */
	PGSCALE_EVIDENCE_SERVER,	/* rare files and locks of the server's own */
	PGSCALE_EVIDENCE_SERVER_IDLE,

	PGSCALE_EVIDENCE_OTHER_LWLOCK,
	PGSCALE_EVIDENCE_OTHER_LOCK,
	PGSCALE_EVIDENCE_OTHER_IO,
	PGSCALE_EVIDENCE_OTHER_IPC,
	PGSCALE_EVIDENCE_OTHER,
	PGSCALE_EVIDENCE_WAITS
} PgscaleTuningEvidenceWait;

/* What happened between two moments: one record, or the sum of several. */
typedef struct PgscaleTuningEvidence
{
	TimestampTz since;
	TimestampTz until;
	int64		ns;				/* of it that was observed */
	PgscaleCounters counts;		/* differences */
	int64		sync_ns;		/* the checkpointer was seen to sync files;
								 * the server counts that at a checkpoint's
								 * end */
	int64		io_queue_ns;	/* sessions waited for reads of io workers,
								 * none of which idled */
	int64		sweep_ticks;	/* how far the clock hand came */
	int64		swapped;		/* pages, by the kernel; -1: unknown */
	int64		compact_stalls; /* of the machine; -1: unknown */
	uint64		active_ns;		/* client backends that executed a statement */
	uint64		session_ns;		/* the sum of wait_ns: parallel workers, too */
	uint64		wait_ns[PGSCALE_EVIDENCE_WAITS];
} PgscaleTuningEvidence;

extern Size pgscale_tuning_evidence_size(void);
extern void pgscale_tuning_evidence_startup(void);

/* The writer's side: the sampler's process, once a second. */
extern void pgscale_tuning_evidence_observe(const PgscaleObservation *observation);

/* When it last did, and how many records there are; 0: never. */
extern int64 pgscale_tuning_evidence_last_ns(int *nrecords);

/*
 * Reads the records that lie between two moments, oldest first, and returns how
 * many; those that were overwritten are not there, nor those in which counters
 * were reset.  Any process.
 */
extern int	pgscale_tuning_evidence_read(TimestampTz since, TimestampTz until,
										 PgscaleTuningEvidence *records, int max);

/* *sum must begin as zeroes. */
extern void pgscale_tuning_evidence_add(PgscaleTuningEvidence *sum, const PgscaleTuningEvidence *record);

/*
 * The time when a setting got its present value: earlier evidence does not apply to it.
 * 0 if it has had the value since the server's start, as all evidence.
 */
extern TimestampTz pgscale_tuning_evidence_set_at(const char *setting);

#endif							/* PGSCALE_TUNING_EVIDENCE_H */
