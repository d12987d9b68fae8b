/*-------------------------------------------------------------------------
 *
 * wait_kinds.h
 *	  Kinds of waits: what rules and explanations know of the server's wait events.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_WAIT_KINDS_H
#define PGSCALE_BASE_WAIT_KINDS_H

#include "postgres.h"

/* Each event is of one kind; pg_sleep() is of none. */
typedef enum PgscaleWaitKind
{
	PGSCALE_KIND_CPU,

	PGSCALE_KIND_WAL_SYNC,		/* IO WalSync */
	PGSCALE_KIND_WAL_WRITE,		/* IO WalWrite */
	PGSCALE_KIND_WAL_WRITE_LOCK,	/* LWLock WALWrite: mostly others' sync */
	PGSCALE_KIND_WAL_INSERT,
	PGSCALE_KIND_WAL_BUFFERS,	/* LWLock WALBufMapping */
	PGSCALE_KIND_WAL_INIT,		/* IO WalInitWrite, WalInitSync */

	PGSCALE_KIND_DATA_READ,
	PGSCALE_KIND_AIO_QUEUE,		/* LWLocks of the io workers' queue */
	PGSCALE_KIND_AIO_COMPLETION,	/* LWLock AioUringCompletion */
	PGSCALE_KIND_DATA_WRITE,
	PGSCALE_KIND_DATA_EXTEND,
	PGSCALE_KIND_DATA_SYNC,
	PGSCALE_KIND_TEMP_FILE,
	PGSCALE_KIND_SLRU_IO,

	PGSCALE_KIND_BUFFER_MAPPING,
	PGSCALE_KIND_BUFFER_CONTENT,
	PGSCALE_KIND_BUFFER_IO,		/* IPC BufferIO */
	PGSCALE_KIND_BUFFER_PIN,

	PGSCALE_KIND_PROC_ARRAY,
	PGSCALE_KIND_XID_GEN,
	PGSCALE_KIND_XACT,			/* commit log */
	PGSCALE_KIND_SUBTRANS,
	PGSCALE_KIND_MULTIXACT,
	PGSCALE_KIND_SINVAL,
	PGSCALE_KIND_PREDICATE,
	PGSCALE_KIND_STATISTICS,

	PGSCALE_KIND_LOCK_MANAGER,
	PGSCALE_KIND_LOCK_FAST_PATH,
	PGSCALE_KIND_LOCK_EXTEND,
	PGSCALE_KIND_LOCK_TRANSACTION,
	PGSCALE_KIND_LOCK_TUPLE,
	PGSCALE_KIND_LOCK_RELATION,
	PGSCALE_KIND_LOCK_ADVISORY,

	PGSCALE_KIND_SYNC_REP,
	PGSCALE_KIND_PARALLEL,
	PGSCALE_KIND_SPIN,			/* Timeout SpinDelay */
	PGSCALE_KIND_CLIENT,		/* sending to the client */
	PGSCALE_KIND_IDLE_IN_TRANSACTION,
	PGSCALE_KIND_REPLICATION,
	PGSCALE_KIND_RECOVERY,
	PGSCALE_KIND_BACKUP,		/* and archiving */
	PGSCALE_KIND_CHECKPOINT,
	PGSCALE_KIND_VACUUM,
	PGSCALE_KIND_NOTIFY,
	PGSCALE_KIND_COMMIT_TS,
	PGSCALE_KIND_COPY,			/* files and programs of COPY */
	PGSCALE_KIND_SERVER,		/* rare files and locks of the server's own */
	PGSCALE_KIND_SERVER_IDLE,

	PGSCALE_KIND_OTHER_LWLOCK,
	PGSCALE_KIND_OTHER_LOCK,
	PGSCALE_KIND_OTHER_IO,
	PGSCALE_KIND_OTHER_IPC,
	PGSCALE_KIND_OTHER,
	PGSCALE_WAIT_KINDS
} PgscaleWaitKind;

/* The kind of an event by its number; -1 if it is not a wait of a session at work. */
extern int	pgscale_wait_kind_of(uint32 wait_event);

/* As pgscale.wait_meanings has it. */
extern const char *pgscale_wait_kind_name(PgscaleWaitKind kind);

#endif							/* PGSCALE_BASE_WAIT_KINDS_H */
