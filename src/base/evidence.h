/*-------------------------------------------------------------------------
 *
 * evidence.h
 *	  Evidence: the server's counters and its sessions' waits, every few seconds.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_EVIDENCE_H
#define PGSCALE_BASE_EVIDENCE_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "base/kernel.h"
#include "base/server_counters.h"
#include "base/shared_area.h"
#include "base/wait_kinds.h"

/*
 * The sampler's view of the sessions since its last observation, about a second ago.
 * Time is CLOCK_MONOTONIC's, except in at.
 */
typedef struct PgscaleObservation
{
	TimestampTz at;
	int64		ns;				/* the time it stands for */
	bool		anew;			/* the time before it, or a part of its own,
								 * was not observed: add it to nothing */
	double		active;			/* client backends that were executing a
								 * statement, on average */
	const Oid  *databases;		/* those that sessions were in */
	int			ndatabases;

	/*
	 * Calls each(arg, ...) with every wait event of sessions, CPU included,
	 * and the time spent in it since the sampler's process started: it only
	 * grows, and no reset changes it.  Sessions that wait for their client,
	 * in a transaction or not, are left out.
	 */
	void		(*waits) (void (*each) (void *arg, uint32 wait_event, uint64 ns), void *arg);
} PgscaleObservation;

/* The period of records, and the number that are kept. */
#define PGSCALE_EVIDENCE_MS		5000
#define PGSCALE_EVIDENCE_MAX	720

/*
 * The length of a record, which differs in tests.  A rule that needs that many seconds
 * of evidence then needs the usual number of records.
 */
extern int	pgscale_evidence_ms(void);
#define PGSCALE_EVIDENCE_S(seconds) \
	((double) (seconds) * pgscale_evidence_ms() / PGSCALE_EVIDENCE_MS)

/*
 * What happened between two moments: one record, or the sum of several.  After the moments
 * nothing but int64, each -1 where it is unknown: they are summed and subtracted as an array.
 */
typedef struct PgscaleEvidence
{
	TimestampTz since;
	TimestampTz until;
	int64		ns;				/* of it that was observed */
	PgscaleCounters counts;
	int64		resets;			/* times that some of them were reset: what
								 * these counted in the seconds before is not
								 * in them */
	int64		sync_ns;		/* the checkpointer was seen to sync files;
								 * the server counts that at a checkpoint's
								 * end */
	int64		io_queue_ns;	/* sessions waited for reads of io workers,
								 * none of which idled */
	int64		sweep_ticks;	/* how far the clock hand came */
	int64		swapped;		/* pages, by the kernel */
	int64		compact_stalls; /* of the machine */
	int64		active_ns;		/* client backends that executed a statement */
	int64		session_ns;		/* the sum of wait_ns: parallel workers, too */
	int64		lock_ns;		/* of it, in any wait of the class Lock */
	int64		wait_ns[PGSCALE_WAIT_KINDS];
} PgscaleEvidence;

/*
 * A snapshot of all of that: sums that only grow, of which the difference of any two of one
 * epoch is what happened between them.  An epoch ends where the sampler is started anew
 * or did not observe for a while, and with a promotion: what a standby did, of which the server
 * counts some only then, is not usual of a primary.
 */
typedef struct PgscaleEvidenceSnapshot
{
	uint64		epoch;
	bool		standby;
	int64		clock_ns;		/* by CLOCK_MONOTONIC */
	bool		ends_record;	/* with the snapshot before it */
	int			max_wal_size_mb;
	PgscaleEvidence sums;		/* until then; since is not used */
} PgscaleEvidenceSnapshot;

/* Snapshots are kept at two distances. */
typedef enum PgscaleEvidenceAge
{
	PGSCALE_EVIDENCE_SECONDS,	/* two seconds, for half a minute */
	PGSCALE_EVIDENCE_HOUR,		/* a record, for an hour and what a reader
								 * leaves out at its end */
	PGSCALE_EVIDENCE_AGES
} PgscaleEvidenceAge;

#define PGSCALE_EVIDENCE_NSECONDS	17
#define PGSCALE_EVIDENCE_NHOUR		(PGSCALE_EVIDENCE_MAX + 8)

extern const PgscaleArea pgscale_evidence_area;

/* The writer's side: the sampler's process, once a second. */
extern void pgscale_evidence_observe(const PgscaleObservation *observation);

/* When it last did; 0: never. */
extern int64 pgscale_evidence_last_ns(void);

/* Any process: the number of snapshots that there have been, and a copy of one of them; false if it is not there any more. */
extern uint64 pgscale_evidence_snapshots(PgscaleEvidenceAge age);
extern bool pgscale_evidence_snapshot(PgscaleEvidenceAge age, uint64 number, PgscaleEvidenceSnapshot *snapshot);

/* What happened between two snapshots of an epoch; false if one of the numbers fell, which is unknown then. */
extern bool pgscale_evidence_between(const PgscaleEvidence *from, const PgscaleEvidence *to, PgscaleEvidence *difference);

/*
 * Reads the records that lie between two moments, oldest first, and returns how
 * many; those that were overwritten are not there, nor those in which counters
 * were reset, nor those of before a promotion.  Any process.
 */
extern int	pgscale_evidence_read(TimestampTz since, TimestampTz until, PgscaleEvidence *records, int max);

/* What the kernel had counted of a process at a moment, by CLOCK_MONOTONIC. */
typedef struct PgscaleCpuReading
{
	int			pid;
	int64		clock_ns;
	PgscaleKernelSchedule counts;
} PgscaleCpuReading;

/* The sampler keeps what it reads; any process: the latest of a process that is so old, or a few seconds older. */
extern void pgscale_evidence_add_cpu(int pid, const PgscaleKernelSchedule *counts);
extern bool pgscale_evidence_find_cpu(int pid, int64 before_ns, PgscaleCpuReading *found);

/* *sum must begin as zeroes. */
extern void pgscale_evidence_add(PgscaleEvidence *sum, const PgscaleEvidence *record);

#endif							/* PGSCALE_BASE_EVIDENCE_H */
