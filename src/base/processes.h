/*-------------------------------------------------------------------------
 *
 * processes.h
 *	  What other processes of the server do now, read without a lock.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_PROCESSES_H
#define PGSCALE_BASE_PROCESSES_H

#include "postgres.h"

#include <netinet/in.h>

#include "datatype/timestamp.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/proc.h"

/*
 * The kind of a process: the server's BackendType, with parallel workers separate from
 * other background workers.  Stable within a major version.
 */
typedef uint8 PgscaleProcKind;

#define PGSCALE_PROC_PARALLEL	((PgscaleProcKind) 0xFE)

/* Where background workers are separated by their type, each type is a kind from here on. */
#define PGSCALE_PROC_FIRST_TYPE ((PgscaleProcKind) 0x40)
#define PGSCALE_PROC_TYPES		128

/* Is it a background worker of any type, except a parallel worker? */
extern bool pgscale_proc_is_worker(PgscaleProcKind kind);

/* A client backend, or its parallel worker? */
extern bool pgscale_proc_is_session(PgscaleProcKind kind);

/*
 * One process.  Reading the same slot into the same struct again is cheap as
 * long as the process only changes its wait event.
 */
typedef struct PgscaleProc
{
	int			pid;			/* 0: never read, or no process there */
	uint32		wait_event;		/* as in PGPROC; 0: not waiting */
	PgscaleProcKind kind;
	bool		session;		/* a client backend or its parallel worker */
	bool		has_cpu;		/* on CPU if it shows no wait event: sessions,
								 * and io workers, which do sessions' reads */
	bool		running;		/* executing a statement */
	bool		in_transaction; /* idle within one */
	uint8		state;			/* BackendState */
	int			leader_pid;		/* of a parallel worker, else 0 */
	int			leader_slot;	/* or -1 */
	Oid			datid;			/* InvalidOid if none */
	Oid			userid;			/* InvalidOid if none */
	int64		queryid;		/* of the top-level statement that is running
								 * or ran last; 0 if unknown */
	int64		plan_id;		/* of that statement; 0 if it has none, or the
								 * server none at all */
	TimestampTz activity_start;
	TimestampTz proc_start;		/* 0 if unknown; with the pid, which process */
	int			changecount;	/* of the status entry when it was read */
} PgscaleProc;

/* The identifier of the statement that is running, or 0. */
static inline int64
pgscale_proc_running_queryid(const PgscaleProc *proc)
{
	return proc->running ? proc->queryid : 0;
}

/* The same for its plan. */
static inline int64
pgscale_proc_running_plan_id(const PgscaleProc *proc)
{
	return proc->running ? proc->plan_id : 0;
}

/* Slots are 0 .. pgscale_procs_count() - 1. */
extern int	pgscale_procs_count(void);

/* Is a process there?  One cache line, which the other one has fetched. */
static inline bool
pgscale_procs_in_use(int slot)
{
	return ((volatile PGPROC *) &ProcGlobal->allProcs[slot])->procLatch.owner_pid != 0;
}

static inline void
pgscale_procs_prefetch(int slot)
{
	__builtin_prefetch(&ProcGlobal->allProcs[slot].procLatch.owner_pid);
}

/*
 * Is it a slot of max_connections?  The server gives the first ones to client backends, and
 * to no other process: walsenders, autovacuum and background workers have their own.
 */
static inline bool
pgscale_procs_is_connection(int slot)
{
	return slot < MaxConnections;
}

/* Fetches what reading a slot will need. */
extern void pgscale_procs_prefetch_status(int slot);

/*
 * Reads a slot.  Returns false if there is no process in it. *changed is set to whether
 * anything but the wait event differs from the contents of *proc; *retries is
 * incremented for every torn read.
 */
extern bool pgscale_procs_read(int slot, PgscaleProc *proc, bool *changed, uint64 *retries);

/* Reads a slot of which *proc has nothing yet. */
extern bool pgscale_procs_read_anew(int slot, PgscaleProc *proc);

/* Reads a process, and returns its slot; -1 if there is none, and *proc is zeroes. */
extern int	pgscale_procs_find(int pid, PgscaleProc *proc);

/* The client of a session. */
typedef struct PgscaleProcClient
{
	char		application_name[NAMEDATALEN];
	char		address[INET6_ADDRSTRLEN];	/* empty: none, or a Unix socket */
} PgscaleProcClient;

/*
 * Returns false if it is unknown at this moment.  The address, which takes longest, is
 * left empty unless it is wanted.
 */
extern bool pgscale_procs_read_client(int slot, bool address, PgscaleProcClient *client);

/* At most so many bytes of a statement, with the zero at its end. */
#define PGSCALE_PROC_TEXT	1024

/* The statement that a process executes, or has executed last. */
typedef struct PgscaleProcStatement
{
	int			pid;
	TimestampTz proc_start;		/* with the pid, which process */
	TimestampTz activity_start; /* of the statement */
	TimestampTz state_start;	/* since when the process is in its state */
	TimestampTz xact_start;		/* of its transaction; 0 if it has none */
	int64		queryid;		/* 0 if unknown */
	Oid			datid;
	Oid			userid;
	char		query[PGSCALE_PROC_TEXT];	/* in the encoding of its
											 * database; its last character
											 * may be cut */
} PgscaleProcStatement;

/* Returns false if the slot has no status, or it was being written all the time. */
extern bool pgscale_procs_read_statement(int slot, PgscaleProcStatement *statement);

/*
 * Where a process shows that it does something else than when it was read.
 * Asking that takes two cache lines and no call.
 */
typedef struct PgscaleProcMark
{
	const volatile uint32 *wait_event_at;
	const volatile int *changecount_at;
	uint32		wait_event;
	int			changecount;
} PgscaleProcMark;

/* Returns false if the process does not show it. */
extern bool pgscale_procs_mark(int slot, const PgscaleProc *proc, PgscaleProcMark *mark);

/*
 * Is it the same process, in the same wait, at the same statement?  A process
 * that ends changes its status, too.
 */
static inline bool
pgscale_proc_same(const PgscaleProcMark *mark)
{
	uint32		wait_event = *mark->wait_event_at;

	pg_read_barrier();
	return wait_event == mark->wait_event &&
		*mark->changecount_at == mark->changecount;
}

/* Makes the cache fetch what the question will need. */
static inline void
pgscale_proc_prefetch(const PgscaleProcMark *mark)
{
	__builtin_prefetch((const void *) mark->wait_event_at);
	__builtin_prefetch((const void *) mark->changecount_at);
}

/* The slot of the calling process. */
extern int	pgscale_procs_self(void);

extern const char *pgscale_proc_kind_name(PgscaleProcKind kind);
extern const char *pgscale_proc_state_name(uint8 state);

#endif							/* PGSCALE_BASE_PROCESSES_H */
