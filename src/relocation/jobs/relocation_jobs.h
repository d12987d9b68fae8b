/*-------------------------------------------------------------------------
 *
 * relocation_jobs.h
 *	  The table of relocation jobs of this database.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_RELOCATION_JOBS_H
#define PGSCALE_RELOCATION_RELOCATION_JOBS_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "base/pg_compat.h"

/* The state of a job at rest, as its row has it. */
#define PGSCALE_JOB_QUEUED		"queued"
#define PGSCALE_JOB_WAITING		"waiting"
#define PGSCALE_JOB_DONE		"done"
#define PGSCALE_JOB_FAILED		"failed"
#define PGSCALE_JOB_CANCELLED	"cancelled"
#define PGSCALE_JOB_LOST		"lost"

/* How it moves; relocation_jobs.c has the words. */
typedef enum PgscaleRelocationMode
{
	PGSCALE_RELOCATE_ONLINE,	/* an index or a table, as it is, while it is
								 * in use */
	PGSCALE_RELOCATE_REBUILD,	/* an index, by building it anew */
	PGSCALE_RELOCATE_LOCK,		/* a table, while its use is blocked */
} PgscaleRelocationMode;

/* Files that a job has to remove, at most: a table's, its TOAST table's, and that one's indexes'. */
#define PGSCALE_JOB_FILES	4

/* What an online move has taken. */
typedef struct PgscaleRelocationCounts
{
	bool		known;			/* of an attempt of this worker */
	int64		copied_bytes;	/* of the first copy */
	int64		recopied_blocks;	/* that had changed since */
	int64		wal_read_bytes;
	int64		lock_tries;
	int64		locked_us;		/* how long it had AccessExclusiveLock, when
								 * it switched */
} PgscaleRelocationCounts;

typedef struct PgscaleRelocationJob
{
	int64		id;
	PgscaleRelocationMode mode;
	bool		is_table;
	Oid			relation;		/* an index has another one after its move */
	Oid			heap;			/* its table; itself if it is one */
	Oid			source;			/* tablespaces, never InvalidOid */
	Oid			target;
	Oid			role;			/* the requesting role */
	bool		amcheck;
	bool		prewarm;
	int			lock_timeout_ms;
	double		block_ms;		/* how long a table's move is expected to
								 * block; -1: unknown */
	int64		bytes;			/* the size when it was asked for */
	int64		undo_of;		/* a job; 0: none */

	/* what has become of it */
	Oid			new_index;		/* that REINDEX made; InvalidOid: none */
	RelFileLocator files[PGSCALE_JOB_FILES];	/* to be removed, unless a
												 * relation has them */
	int			nfiles;
	PgscaleRelocationCounts counts;
	bool		cancel;			/* end it once no trace of it is left */
	int64		bytes_after;	/* once it is known to be done; else 0 */
	int			attempts;
	int			crashes;		/* attempts that a crash has ended */
	char	   *before;			/* what the index was before the move; NULL:
								 * not known yet */
} PgscaleRelocationJob;

/* The relation once it has moved; InvalidOid: there is none. */
static inline Oid
pgscale_relocation_moved(const PgscaleRelocationJob *job)
{
	return job->mode == PGSCALE_RELOCATE_REBUILD ? job->new_index : job->relation;
}

/* For a job's end or pause; sqlstate 0: none. */
typedef struct PgscaleRelocationJobWord
{
	int			sqlstate;
	const char *message;
	const char *detail;			/* all that is known, for roles that may read
								 * the table; NULL: the message is */
} PgscaleRelocationJobWord;

/*
 * In a backend, in its transaction
 */

/* Adds a job and returns its id; 0 if there is one of this relation, with its id in *other. */
extern int64 pgscale_relocation_job_add(const PgscaleRelocationJob *job, int64 *other);

/* The bytes of all jobs to this tablespace that have not ended. */
extern int64 pgscale_relocation_jobs_to(Oid target);

/* Is there at most one job to this tablespace that has not ended? */
extern bool pgscale_relocation_job_is_last_to(Oid target);

/* As of now, whatever this transaction's snapshot is.  False if there is none with this id. */
extern bool pgscale_relocation_job_get(int64 id, PgscaleRelocationJob *job, char **state);

/*
 * Cancels a job that has not begun, or with begun one that no worker is at any
 * more.  Returns false if there is none such.
 */
extern bool pgscale_relocation_job_cancel(int64 id, bool begun);

/*
 * In a worker; each is a transaction of its own
 */

/*
 * Takes the next job, for this process; false if there is none now, or no table of jobs that can be trusted.  *more: are
 * there others that can be done at the same time?
 */
extern bool pgscale_relocation_job_claim(PgscaleRelocationJob *job, bool *more);

/* When the next one can be taken; DT_NOEND if there is none. *open: is there any that has not ended? */
extern TimestampTz pgscale_relocation_jobs_next(bool *open);

/* In a backend: how many jobs of this database wait to begin, and why the first of them does; NULL: no job waits. */
extern char *pgscale_relocation_jobs_wait(void);

extern void pgscale_relocation_job_begin_attempt(PgscaleRelocationJob *job);
extern void pgscale_relocation_job_verifying(const PgscaleRelocationJob *job);

/* In this state it has ended, or is to be tried again after that time. */
extern void pgscale_relocation_job_end_attempt(const PgscaleRelocationJob *job, const char *state, int64 delay_ms,
											   const PgscaleRelocationJobWord *word);

/*
 * In a worker, in the transaction that has made the index
 */
extern void pgscale_relocation_job_made_index(const PgscaleRelocationJob *job);

/*
 * In a worker, in the transaction before that which makes job->files, or in the one that leaves them.  Raises
 * an error if the row is gone: then no worker would remove them.
 */
extern void pgscale_relocation_job_has_files(const PgscaleRelocationJob *job);

/* Is that the state of a job that has ended? */
extern bool pgscale_relocation_job_has_ended(const char *state);

/* False if there is no such word. */
extern bool pgscale_relocation_mode_named(const char *word, PgscaleRelocationMode *mode);

#endif							/* PGSCALE_RELOCATION_RELOCATION_JOBS_H */
