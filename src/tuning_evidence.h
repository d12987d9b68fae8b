/*-------------------------------------------------------------------------
 *
 * tuning_evidence.h
 *	  What the server did of late: its counters and its sessions' waits, every
 *	  few seconds.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_TUNING_EVIDENCE_H
#define PGSCALE_TUNING_EVIDENCE_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "counters.h"

/* A record every so often, for so long. */
#define PGSCALE_EVIDENCE_MS		5000
#define PGSCALE_EVIDENCE_MAX	720

/* The kinds of waiting that rules ask for; what else there is, is in its class. */
typedef enum PgscaleEvidenceWait
{
	PGSCALE_EVIDENCE_CPU,
	PGSCALE_EVIDENCE_WAL_WRITE, /* LWLock WALWrite */
	PGSCALE_EVIDENCE_WAL_SYNC,	/* IO WALSync, WALWrite */
	/* ... one each that a rule needs; the rest by class: */
	PGSCALE_EVIDENCE_OTHER_LWLOCK,
	PGSCALE_EVIDENCE_OTHER_IO,
	PGSCALE_EVIDENCE_OTHER,
	PGSCALE_EVIDENCE_WAITS
} PgscaleEvidenceWait;

/* What happened between two moments: sums of adjacent records. */
typedef struct PgscaleEvidence
{
	TimestampTz since;
	TimestampTz until;
	int64		ns;				/* of it that was observed */
	PgscaleCounters counts;		/* differences */
	uint64		active_ns;		/* sessions that executed a statement */
	uint64		wait_ns[PGSCALE_EVIDENCE_WAITS];
} PgscaleEvidence;

extern Size pgscale_evidence_size(void);
extern void pgscale_evidence_startup(void);

/*
 * Reads what lies between two moments, one struct a record, oldest first.
 * Returns how many; records that were overwritten are not there.  Any process.
 */
extern int	pgscale_evidence_read(TimestampTz since, TimestampTz until,
								  PgscaleEvidence *records, int max);
extern void pgscale_evidence_add(PgscaleEvidence *sum, const PgscaleEvidence *record);

/*
 * When a setting last got the value that it has, as far as was seen: evidence of
 * before does not tell of it.
 */
extern TimestampTz pgscale_evidence_set_at(const char *setting);

#endif							/* PGSCALE_TUNING_EVIDENCE_H */
